"""Cases of the pooling family: maxima and means of images and volumes, their gradients, argmax
forms; random geometry."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels
from cases_conv import case, out_size

R = tf.raw_ops
# Sums of gradients: half and bfloat16 are rounded once here, at each addition there.
SUMS = {"float16": {"rtol": 1e-2, "atol": 3e-2}, "bfloat16": {"rtol": 5e-2, "atol": 2e-1},
        "float32": {"rtol": 1e-5, "atol": 1e-5}}
MEANS = {"float16": {"rtol": 1e-2, "atol": 1e-2}, "bfloat16": {"rtol": 5e-2, "atol": 5e-2},
         "float32": {"rtol": 1e-5, "atol": 1e-5}}

GEOMETRIES = [
    ((4, 4), (2, 2), 3, (2, 2), "SAME", None),
    ((5, 7), (2, 3), 2, (1, 2), "VALID", None),
    ((5, 7), (3, 3), 70, (2, 2), "SAME", None),
    ((3, 3), (5, 5), 1, (1, 1), "SAME", None),
    ((9, 8), (1, 1), 4, (1, 1), "VALID", None),
    ((9, 8), (1, 2), 4, (3, 2), "VALID", None),
    ((6, 5), (3, 2), 5, (1, 2), "EXPLICIT", ((1, 2), (0, 1))),
]


def pool_attrs(window, strides, padding, pads):
    attrs = {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "padding": padding}
    if pads:
        attrs["explicit_paddings"] = [0, 0, *[p for pair in pads for p in pair], 0, 0]
    return attrs


def max_2d():
    rng = numpy.random.default_rng(1)
    for image, window, depth, strides, padding, pads in GEOMETRIES:
        places = [out_size(*row) for row in zip(image, window, strides, (1, 1), [padding] * 2,
                                                pads or [(0, 0)] * 2)]
        label = f"{image}{window}{depth}{strides}{padding}"
        attrs = pool_attrs(window, strides, padding, pads)
        for dtype in tf_kernels.cpu_dtypes("MaxPool"):
            x = oracle.sample(rng, dtype, (3, *image, depth))
            y, gg = oracle.sample(rng, dtype, (3, *places, depth)), oracle.sample(
                rng, dtype, x.shape)
            if not tf.as_dtype(dtype).is_floating:
                x = (x % 5).astype(x.dtype)  # ties
            yield f"MaxPool/{dtype}/{label}", *case("MaxPool", {"input": x}, **attrs)
            inputs = {"orig_input": x, "orig_output": y, "grad": y}
            yield f"MaxPoolGrad/{dtype}/{label}", *case(
                "MaxPoolGrad", inputs, SUMS.get(dtype), **attrs)
            if pads:
                continue
            vectors = {"ksize": numpy.array(attrs["ksize"], "int32"),
                       "strides": numpy.array(attrs["strides"], "int32")}
            yield f"MaxPoolV2/{dtype}/{label}", *case(
                "MaxPoolV2", {"input": x, **vectors}, padding=padding)
            yield f"MaxPoolGradV2/{dtype}/{label}", *case(
                "MaxPoolGradV2", {**inputs, **vectors}, SUMS.get(dtype), padding=padding)

            def second(op, x=x, gg=gg, attrs=attrs, vectors=None, padding=padding):
                def build():
                    y = R.MaxPool(input=tf.constant(x), **attrs)
                    more = {k: oracle.const(v) for k, v in vectors.items()} if vectors else attrs
                    extra = {"padding": padding} if vectors else {}
                    return [getattr(R, op)(orig_input=oracle.const(x), orig_output=y,
                                           grad=oracle.const(gg), **more, **extra)]

                return build

            yield f"MaxPoolGradGrad/{dtype}/{label}", second("MaxPoolGradGrad"), {}
            yield f"MaxPoolGradGradV2/{dtype}/{label}", second(
                "MaxPoolGradGradV2", vectors=vectors), {}
            for index in ("int32", "int64"):
                for counts_batch in (False, True):
                    more = {"Targmax": tf.as_dtype(index), "include_batch_in_index": counts_batch}
                    yield f"MaxPoolWithArgmax/{dtype}/{index}/{counts_batch}/{label}", *case(
                        "MaxPoolWithArgmax", {"input": x}, **attrs, **more)
            for counts_batch in (False, True):
                per_image = int(numpy.prod(x.shape[1:]))
                argmax = rng.integers(0, per_image, y.shape)
                if counts_batch:
                    argmax += numpy.arange(3).reshape(3, 1, 1, 1) * per_image
                inputs = {"input": x, "grad": y, "argmax": argmax}
                yield f"MaxPoolGradWithArgmax/{dtype}/{counts_batch}/{label}", *case(
                    "MaxPoolGradWithArgmax", inputs, SUMS.get(dtype), **attrs,
                    include_batch_in_index=counts_batch
                )
    for dtype in tf_kernels.cpu_dtypes("MaxPool"):
        x = oracle.sample(rng, dtype, (2, 3, 4, 12))
        for size in (2, 3, 12):
            yield f"MaxPool/{dtype}/channels by {size}", *case(
                "MaxPool", {"input": x}, ksize=[1, 1, 1, size], strides=[1, 1, 1, size],
                padding="SAME")
    special = numpy.array([1, numpy.nan, 3, numpy.nan, numpy.nan, numpy.nan, -numpy.inf, -numpy.inf,
                           numpy.inf, 0, -0.0, 2], "float32").reshape(1, 3, 4, 1)
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        x = special.astype(tf.as_dtype(dtype).as_numpy_dtype)
        for window in ((1, 2), (2, 2), (3, 3)):
            attrs = pool_attrs(window, (1, 1), "VALID", None)
            yield f"MaxPool/{dtype}/special {window}", *case("MaxPool", {"input": x}, **attrs)
            yield f"MaxPoolWithArgmax/{dtype}/special {window}", *case(
                "MaxPoolWithArgmax", {"input": x}, **attrs)
            y = numpy.arange(1, 1 + (4 - window[0]) * (5 - window[1])).reshape(
                1, 4 - window[0], 5 - window[1], 1).astype(x.dtype)
            yield f"MaxPoolGrad/{dtype}/special {window}", *case(
                "MaxPoolGrad", {"orig_input": x, "orig_output": y, "grad": y}, **attrs)


def averages():
    rng = numpy.random.default_rng(2)
    for image, window, depth, strides, padding, pads in GEOMETRIES:
        if pads:
            continue
        places = [out_size(*row) for row in zip(image, window, strides, (1, 1), [padding] * 2,
                                                [(0, 0)] * 2)]
        attrs, label = pool_attrs(window, strides, padding,
                                  None), f"{image}{window}{depth}{strides}{padding}"
        for dtype in tf_kernels.cpu_dtypes("AvgPool"):
            x, g = oracle.sample(rng, dtype, (3, *image, depth)), oracle.sample(
                rng, dtype, (3, *places, depth))
            yield f"AvgPool/{dtype}/{label}", *case(
                "AvgPool", {"value": x}, MEANS.get(dtype), **attrs)
            inputs = {"orig_input_shape": numpy.array(x.shape, "int32"), "grad": g}
            yield f"AvgPoolGrad/{dtype}/{label}", *case(
                "AvgPoolGrad", inputs, MEANS.get(dtype), **attrs)


def volumes():
    rng = numpy.random.default_rng(3)
    for image, window, depth, strides, padding in (
        ((4, 4, 4), (2, 2, 2), 3, (2, 2, 2), "SAME"), ((3, 5, 7), (2, 1, 3), 2, (1, 2, 1), "VALID"),
        ((3, 5, 4), (3, 3, 3), 70, (1, 1, 1), "SAME"), ((2, 3, 3), (2, 5, 4), 1, (2, 1, 3), "SAME"),
    ):  # fmt: skip
        places = [out_size(*row) for row in zip(image, window, strides, (1, 1, 1), [padding] * 3)]
        attrs, label = pool_attrs(window, strides, padding,
                                  None), f"{image}{window}{depth}{strides}{padding}"
        for dtype in tf_kernels.cpu_dtypes("MaxPool3D"):
            x, g = oracle.sample(rng, dtype, (2, *image, depth)), oracle.sample(
                rng, dtype, (2, *places, depth))
            x, gg = numpy.round(x), oracle.sample(rng, dtype, x.shape)
            yield f"MaxPool3D/{dtype}/{label}", *case("MaxPool3D", {"input": x}, **attrs)
            yield f"AvgPool3D/{dtype}/{label}", *case(
                "AvgPool3D", {"input": x}, MEANS.get(dtype), **attrs)

            def build(op, grad, x=x, attrs=attrs):
                def inner():
                    y = R.MaxPool3D(input=tf.constant(x), **attrs)
                    return [getattr(R, op)(orig_input=oracle.const(x), orig_output=y,
                                           grad=oracle.const(grad), **attrs)]

                return inner

            yield f"MaxPool3DGrad/{dtype}/{label}", build("MaxPool3DGrad", g), SUMS.get(dtype, {})
            yield f"MaxPool3DGradGrad/{dtype}/{label}", build("MaxPool3DGradGrad", gg), {}
            inputs = {"orig_input_shape": numpy.array(x.shape, "int32"), "grad": g}
            yield f"AvgPool3DGrad/{dtype}/{label}", *case(
                "AvgPool3DGrad", inputs, MEANS.get(dtype), **attrs)


def wrong():
    ones = numpy.ones
    plain = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    x, y = ones((2, 4, 4, 6), "float32"), ones((2, 2, 2, 6), "float32")
    for shape in ((0, 4, 4, 6), (2, 0, 4, 6), (2, 4, 4, 0), (4, 4, 6), (2, 1, 1, 6), ()):
        for padding in ("SAME", "VALID"):
            value = ones(shape, "float32")
            for op, name in (("MaxPool", "input"), ("AvgPool", "value"),
                             ("MaxPoolWithArgmax", "input")):
                yield f"{op}/odd/{shape}{padding}", *case(
                    op, {name: value}, **{**plain, "padding": padding})
    for attrs in (
        {"ksize": [1, 0, 2, 1]}, {"ksize": [2, 2, 2, 1]}, {"ksize": [1, 2, 2, 2]},
        {"ksize": [1, 1, 1, 2]}, {"ksize": [1, 1, 1, 4], "strides": [1, 1, 1, 4]},
        {"ksize": [1, 1, 1, 2], "strides": [1, 1, 1, 2]},
        {"ksize": [1, 2, 1, 2], "strides": [1, 1, 1, 2]}, {"ksize": [2, 2]},
        {"strides": [1, 0, 1, 1]}, {"strides": [2, 1, 1, 1]},
        {"strides": [1, 1, 1, 2]}, {"strides": [1, 1]},
        {"data_format": "NCHW", "ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2]},
        {"ksize": [1, 9, 2, 1], "padding": "VALID"},
    ):  # fmt: skip
        attrs = {**plain, **attrs}
        # TensorFlow's static shape believes in a stride of the channels that its kernel does not
        # look at.
        options = {"ignore": "shapes"} if attrs["strides"][3:] == [2] and attrs["ksize"][3:] == [
            1] else {}
        yield f"MaxPool/wrong/{attrs}", *case("MaxPool", {"input": x}, options, **attrs)
        yield f"AvgPool/wrong/{attrs}", *case("AvgPool", {"value": x}, **attrs)
        inputs = {"orig_input": x, "orig_output": y, "grad": y}
        if 0 in attrs["ksize"] + attrs["strides"]:  # TensorFlow's gradients crash
            continue
        yield f"MaxPoolGrad/wrong/{attrs}", *case("MaxPoolGrad", inputs, **attrs)
        yield f"MaxPoolGradGrad/wrong/{attrs}", *case(
            "MaxPoolGradGrad", {**inputs, "grad": x}, **attrs)
        # over channels TensorFlow answers something
        if "data_format" not in attrs and attrs["ksize"][3:] == [1]:
            yield f"MaxPoolWithArgmax/wrong/{attrs}", *case(
                "MaxPoolWithArgmax", {"input": x}, options, **attrs)
    for pads in ([0, 0, 1, 1, 1, 1, 0, 0], [0, 0, 2, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 2, 0, 0],
                 [1, 0, 0, 0, 0, 0, 0, 0], [0, 0, -1, 0, 0, 0, 0, 0], [0, 0]):
        yield f"MaxPool/pads {pads}", *case("MaxPool", {"input": x},
                                            **{**plain, "padding": "EXPLICIT",
                                               "explicit_paddings": pads})
    for a, b, c in (((2, 4, 4, 6), (2, 2, 1, 6), (2, 2, 2, 6)),
                    ((2, 4, 4, 6), (2, 2, 2, 6), (2, 2, 1, 6)),
                    ((4, 4, 6), (2, 2, 2, 6), (2, 2, 2, 6)),
                    ((2, 4, 4, 6), (2, 2, 6), (2, 2, 2, 6)),
                    ((0, 4, 4, 6), (0, 2, 2, 6), (0, 2, 2, 6))):
        inputs = {"orig_input": ones(a, "float32"), "orig_output": ones(b, "float32"),
                  "grad": ones(c, "float32")}
        yield f"MaxPoolGrad/odd/{a}{b}{c}", *case("MaxPoolGrad", inputs, **plain)
        yield f"MaxPoolGradGrad/odd/{a}{b}{c}", *case("MaxPoolGradGrad", inputs, **plain)
    for sizes in ([1, 2, 2], [[1, 2, 2, 1]], [1, 0, 2, 1], [2, 2, 2, 1], [1, 2, 2, 2]):
        inputs = {"input": x, "ksize": numpy.array(sizes, "int32"),
                  "strides": numpy.array([1, 2, 2, 1], "int32")}
        yield f"MaxPoolV2/wrong/ksize {sizes}", *case("MaxPoolV2", inputs, padding="SAME")
    plain = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    x, y = ones((2, 4, 4, 4, 3), "float32"), ones((2, 2, 2, 2, 3), "float32")
    for attrs in ({"ksize": [1, 0, 2, 2, 1]}, {"ksize": [2, 2, 2, 2, 1]},
                  {"ksize": [1, 2, 2, 2, 3]}, {"ksize": [2, 2]}, {"strides": [1, 0, 1, 1, 1]},
                  {"strides": [1, 2, 2, 2, 2]},
                  {"data_format": "NCDHW", "ksize": [1, 1, 2, 2, 2], "strides": [1, 1, 2, 2, 2]}):
        attrs = {**plain, **attrs}
        yield f"MaxPool3D/wrong/{attrs}", *case("MaxPool3D", {"input": x}, **attrs)
        yield f"AvgPool3D/wrong/{attrs}", *case("AvgPool3D", {"input": x}, **attrs)
        if 0 in attrs["ksize"] + attrs["strides"]:
            continue
        yield f"MaxPool3DGrad/wrong/{attrs}", *case(
            "MaxPool3DGrad", {"orig_input": x, "orig_output": y, "grad": y}, **attrs)
        yield f"MaxPool3DGradGrad/wrong/{attrs}", *case(
            "MaxPool3DGradGrad", {"orig_input": x, "orig_output": y, "grad": x}, **attrs)
    for shape in ((0, 4, 4, 4, 3), (2, 4, 4, 4), (2, 4, 4, 4, 0)):
        yield f"MaxPool3D/odd/{shape}", *case("MaxPool3D", {"input": ones(shape, "float32")},
                                              **plain)
        yield f"AvgPool3D/odd/{shape}", *case("AvgPool3D", {"input": ones(shape, "float32")},
                                              **plain)


def random_geometry():
    rng = numpy.random.default_rng(4)
    for i in range(150):
        batch, depth = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 8, 17, 64, 65]))
        image, window = [int(v) for v in rng.integers(1, 15, 2)], [
            int(v) for v in rng.integers(1, 6, 2)]
        strides, padding = [int(v) for v in rng.integers(1, 4, 2)], str(
            rng.choice(["SAME", "VALID"]))
        places = [out_size(*row) for row in zip(image, window, strides, (1, 1), [padding] * 2)]
        x, attrs = oracle.sample(rng, "float32", (batch, *image, depth)), pool_attrs(
            window, strides, padding, None)
        label = f"random {i}/{x.shape}{window}{strides}{padding}"
        yield f"MaxPool/{label}", *case("MaxPool", {"input": x}, **attrs)
        yield f"AvgPool/{label}", *case("AvgPool", {"value": x}, MEANS["float32"], **attrs)
        if min(places) < 1:
            continue
        g = oracle.sample(rng, "float32", (batch, *places, depth))
        yield f"MaxPoolGrad/{label}", *case("MaxPoolGrad",
                                            {"orig_input": x, "orig_output": g, "grad": g},
                                            SUMS["float32"], **attrs)
        inputs = {"orig_input_shape": numpy.array(x.shape, "int32"), "grad": g}
        yield f"AvgPoolGrad/{label}", *case("AvgPoolGrad", inputs, MEANS["float32"], **attrs)


def fractional():
    """TensorFlow's static shapes of the sequences are one too short."""
    rng = numpy.random.default_rng(5)
    for op, dtype in itertools.product(("FractionalMaxPool", "FractionalAvgPool"),
                                       tf_kernels.cpu_dtypes("FractionalMaxPool")):
        x = oracle.sample(rng, dtype, (2, 11, 13, 3))
        for i, (ratios, pseudo_random, overlapping, seeds) in enumerate(
            itertools.product(([1, 1.44, 1.73, 1], [1, 1, 2.6, 1], [1, 11, 13, 1]), (False, True),
                              (False, True), ((1, 2), (7, 0), (-3, 2**40)))
        ):
            attrs = {"pooling_ratio": ratios, "pseudo_random": pseudo_random,
                     "overlapping": overlapping, "seed": seeds[0], "seed2": seeds[1]}
            label = f"{dtype}/{ratios}{pseudo_random}{overlapping}{seeds}"
            yield f"{op}/{label}", *case(op, {"value": x},
                                         {**MEANS.get(dtype, {}), "ignore": "shapes"},
                                         deterministic=True, **attrs)

            def build(op=op, x=x, attrs=attrs, overlapping=overlapping, i=i):
                y, rows, columns = getattr(R, op)(value=tf.constant(x), deterministic=True, **attrs)
                g = oracle.const(oracle.sample(numpy.random.default_rng(i), x.dtype,
                                               y.shape.as_list()))
                if op == "FractionalAvgPool":
                    shape = oracle.const(numpy.array(x.shape, "int64"))
                    return [R.FractionalAvgPoolGrad(orig_input_tensor_shape=shape, out_backprop=g,
                            row_pooling_sequence=rows, col_pooling_sequence=columns,
                            overlapping=overlapping)]
                return [R.FractionalMaxPoolGrad(orig_input=oracle.const(x), orig_output=y,
                                                out_backprop=g, row_pooling_sequence=rows,
                                                col_pooling_sequence=columns,
                                                overlapping=overlapping)]

            yield f"{op}Grad/{label}", build, SUMS.get(dtype, {})
        for attrs in (
            {"pooling_ratio": [1, 0.5, 1, 1]}, {"pooling_ratio": [1, 12, 1, 1]},
            {"pooling_ratio": [2, 1, 1, 1]}, {"pooling_ratio": [1, 1, 1, 2]},
            {"pooling_ratio": [1, 2, 2, 1], "seed": 1},
        ):  # fmt: skip
            yield f"{op}/wrong/{dtype}/{attrs}", *case(op, {"value": x}, **attrs)


def cases():
    yield from fractional()
    yield from max_2d()
    yield from averages()
    yield from volumes()
    yield from wrong()
    yield from random_geometry()
