"""Cases of the conv family: convolution and its gradients, depthwise convolution, dilation,
patches, data formats; wide and random geometry."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
# Sums of products: TensorFlow rounds in another order, and in half and bfloat16 at other places.
LOOSE = {
    "float16": {"rtol": 2e-2, "atol": 3e-2},
    "bfloat16": {"rtol": 1e-1, "atol": 2e-1},
    "float32": {"rtol": 1e-5, "atol": 2e-5},
    "float64": {"rtol": 1e-12, "atol": 1e-12},
}


# TensorFlow says of patches of a volume of unknown shape that they have rank 4.
WRONG_RANK = {"ignore": "shapes"}


def values(rng, dtype, shape):
    """Small values, so that sums stay within the narrow types."""
    data = oracle.sample(rng, dtype, shape)
    return (data / 6).astype(data.dtype) if tf.as_dtype(dtype).is_floating else (data % 7).astype(
        data.dtype)


def case(op, inputs, options=None, **attrs):
    """inputs: {argument: value}"""

    def build():
        out = getattr(R, op)(**{name: oracle.const(value) for name, value in inputs.items()},
                             **attrs)
        return list(out) if isinstance(out, tuple) else [out]

    return build, options or {}


def out_size(size, window, stride, rate, padding, pads=(0, 0)):
    reach = (window - 1) * rate + 1
    return -(-size // stride) if padding == "SAME" else (
        size + sum(pads) - reach + stride) // stride


# image, filter (spatial), channels in, channels out, strides, dilations, padding, explicit pads
GEOMETRIES = [
    ((5, 5), (3, 3), 2, 3, (1, 1), (1, 1), "SAME", None),
    ((5, 5), (3, 3), 2, 3, (1, 1), (1, 1), "VALID", None),
    ((7, 6), (3, 2), 1, 4, (2, 2), (1, 1), "SAME", None),
    ((7, 6), (3, 2), 4, 1, (2, 3), (1, 1), "VALID", None),
    ((8, 9), (1, 1), 5, 7, (1, 1), (1, 1), "SAME", None),
    ((8, 9), (1, 1), 5, 7, (2, 2), (1, 1), "VALID", None),
    ((4, 4), (5, 5), 3, 3, (1, 1), (1, 1), "SAME", None),
    ((4, 4), (4, 4), 3, 3, (1, 1), (1, 1), "VALID", None),
    ((3, 9), (2, 4), 2, 2, (3, 1), (1, 1), "SAME", None),
    ((6, 6), (2, 2), 3, 5, (3, 3), (1, 1), "VALID", None),
    ((5, 7), (3, 3), 2, 4, (1, 1), (1, 1), "EXPLICIT", ((1, 2), (0, 3))),
    ((5, 7), (3, 3), 2, 4, (2, 1), (1, 1), "EXPLICIT", ((4, 0), (2, 2))),
    ((9, 9), (3, 3), 2, 4, (1, 1), (2, 2), "SAME", None),
    ((9, 8), (3, 2), 2, 4, (2, 1), (2, 3), "VALID", None),
    ((9, 9), (3, 3), 3, 3, (2, 2), (3, 2), "SAME", None),
    ((28, 28), (5, 5), 1, 32, (1, 1), (1, 1), "SAME", None),
    ((14, 14), (5, 5), 32, 64, (1, 1), (1, 1), "SAME", None),
    ((15, 15), (7, 7), 3, 16, (2, 2), (1, 1), "SAME", None),
    ((14, 13), (3, 3), 17, 33, (2, 2), (1, 1), "VALID", None),
    ((12, 12), (1, 1), 64, 32, (1, 1), (1, 1), "VALID", None),
    ((1, 40), (1, 5), 8, 16, (1, 2), (1, 1), "SAME", None),
    ((11, 11), (3, 3), 16, 16, (1, 1), (1, 1), "EXPLICIT", ((2, 1), (0, 2))),
    ((3, 3), (3, 3), 300, 20, (1, 1), (1, 1), "VALID", None),
    ((32, 31), (3, 3), 16, 32, (1, 1), (1, 1), "SAME", None),
    ((30, 27), (3, 3), 32, 16, (1, 1), (1, 1), "EXPLICIT", ((2, 0), (1, 1))),
]


def conv_attrs(strides, rates, padding, pads, rank=4):
    attrs = {"strides": [1, *strides, 1], "padding": padding, "dilations": [1, *rates, 1]}
    if pads:
        attrs["explicit_paddings"] = [0, 0, *itertools.chain(*pads), 0, 0]
    return attrs


def conv_2d():
    rng = numpy.random.default_rng(1)
    for image, window, depth, out_depth, strides, rates, padding, pads in GEOMETRIES:
        places = [out_size(*row) for row in zip(image, window, strides, rates, [padding] * 2,
                                                pads or [(0, 0)] * 2)]
        label = f"{image}{window}{depth}>{out_depth} s{strides} d{rates} {padding}{pads or ''}"
        for dtype, batch in itertools.product(tf_kernels.cpu_dtypes("Conv2D"), (2, 5)):
            x, f = values(rng, dtype, (batch, *image, depth)), values(
                rng, dtype, (*window, depth, out_depth))
            g = values(rng, dtype, (batch, *places, out_depth))
            attrs, options = conv_attrs(strides, rates, padding, pads), LOOSE.get(dtype)
            n_sums = batch * int(numpy.prod(window)) * max(depth, out_depth)
            if dtype == "float32":  # how the products are grouped depends on the processor
                options = {**options, "atol": max(options["atol"], 4e-8 * n_sums / batch)}
            if dtype in ("float16", "bfloat16") and n_sums > 100:
                options = {"rtol": 0.1, "atol": {"float16": 0.2, "bfloat16": 2.0}[dtype]}
            yield f"Conv2D/{dtype}/{batch}{label}", *case(
                "Conv2D", {"input": x, "filter": f}, options, **attrs)
            yield f"Conv/{dtype}/{batch}{label}", *case(
                "Conv", {"input": x, "filter": f}, options, **attrs)
            sizes = numpy.array(x.shape, "int32")
            inputs = {"input_sizes": sizes, "filter": f, "out_backprop": g}
            yield f"Conv2DBackpropInput/{dtype}/{batch}{label}", *case(
                "Conv2DBackpropInput", inputs, options, **attrs)
            if dtype != "int32":
                inputs = {"input": x, "filter_sizes": numpy.array(f.shape, "int32"),
                          "out_backprop": g}
                wide = {"float32": {"rtol": 1e-4, "atol": 1e-4},
                        "float16": {"rtol": 3e-2, "atol": 3e-1},
                        "bfloat16": {"rtol": 1e-1, "atol": 3.0}}
                yield f"Conv2DBackpropFilter/{dtype}/{batch}{label}", *case(
                    "Conv2DBackpropFilter", inputs, wide.get(dtype, options), **attrs)
    for dtype, groups in itertools.product(tf_kernels.cpu_dtypes("Conv2D"), (2, 4)):
        x, f = values(rng, dtype, (3, 9, 10, 16)), values(rng, dtype, (3, 3, 16 // groups, 24))
        for strides, rates in (((1, 1), (1, 1)), ((2, 1), (1, 2))):
            yield f"Conv2D/{dtype}/groups {groups}{strides}{rates}", *case(
                "Conv2D", {"input": x, "filter": f}, LOOSE.get(dtype),
                **conv_attrs(strides, rates, "SAME", None)
            )
    x, f = values(rng, "float32", (3, 9, 10, 32)), values(rng, "float32", (3, 3, 1, 64))
    yield "Conv2D/groups as many as channels", *case(
        "Conv2D", {"input": x, "filter": f}, LOOSE["float32"],
        **conv_attrs((1, 1), (1, 1), "SAME", None))
    x = values(rng, "float32", (2, 3, 9, 10, 4))
    f = values(rng, "float32", (3, 3, 4, 5))
    for batch_dims, shape in ((2, x.shape), (0, x.shape[2:]), (1, x.shape[1:]), (3, x.shape),
                              (2, x.shape[1:])):
        data = x.reshape(-1)[: int(numpy.prod(shape))].reshape(shape)
        yield f"Conv/batch_dims {batch_dims}/{shape}", *case(
            "Conv", {"input": data, "filter": f}, LOOSE["float32"], batch_dims=batch_dims,
            strides=[1, 1, 1, 1], padding="SAME"
        )
    yield "Conv/groups", *case("Conv", {"input": x[0], "filter": f[:, :, :2]}, strides=[1] * 4,
                               padding="SAME", groups=2)
    yield "Conv/channels first", *case("Conv", {"input": x[0], "filter": f}, strides=[1] * 4,
                                       padding="SAME", data_format="CHANNELS_FIRST")
    f = values(rng, "float32", (3, 3, 4, 6))
    g = values(rng, "float32", (2, 9, 10, 6))
    yield "Conv2DBackpropInput/two sizes", *case(
        "Conv2DBackpropInput", {"input_sizes": numpy.array([9, 10], "int32"), "filter": f,
                                "out_backprop": g}, LOOSE["float32"], strides=[1] * 4,
                                                 padding="SAME"
    )


def empty_and_wrong_2d():
    ones = numpy.ones
    plain = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    for x, f in (
        ((0, 5, 5, 2), (3, 3, 2, 3)), ((2, 0, 5, 2), (3, 3, 2, 3)), ((2, 5, 5, 2), (3, 3, 2, 0)),
        ((2, 5, 5, 0), (3, 3, 0, 3)), ((2, 5, 5, 2), (0, 3, 2, 3)),
        ((2, 5, 5, 0), (3, 3, 2, 3)), ((2, 5, 5, 2), (3, 3, 0, 3)), ((2, 5, 5, 3), (3, 3, 2, 3)),
        ((2, 5, 5), (3, 3, 2, 3)), ((2, 5, 5, 2), (3, 2, 3)), ((), ()),
        ((2, 5, 5, 4), (3, 3, 2, 3)), ((2, 2, 2, 2), (3, 3, 2, 3)), ((2, 1, 1, 2), (4, 4, 2, 3)),
    ):  # fmt: skip
        for padding, stride in (("SAME", 1), ("VALID", 1), ("VALID", 2)):
            inputs = {"input": ones(x, "float32"), "filter": ones(f, "float32")}
            yield f"Conv2D/odd/{x}{f}{padding}{stride}", *case(
                "Conv2D", inputs, strides=[1, stride, stride, 1], padding=padding)
            yield f"Conv/odd/{x}{f}{padding}{stride}", *case(
                "Conv", inputs, strides=[1, stride, stride, 1], padding=padding)
    for attrs in (
        {"strides": [1, 0, 1, 1]}, {"strides": [1, -1, 1, 1]}, {"strides": [2, 1, 1, 1]},
        {"strides": [1, 1, 1, 2]}, {"strides": [1, 1, 1]}, {"dilations": [1, 0, 1, 1]},
        {"dilations": [2, 1, 1, 1]}, {"dilations": [1, 1, 1, 3]}, {"dilations": [1, 1]},
        {"padding": "EXPLICIT"}, {"explicit_paddings": [0, 0, 1, 1, 1, 1, 0, 0]},
        {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, -1, 1, 1, 0, 0]},
        {"padding": "EXPLICIT", "explicit_paddings": [0, 1, 1, 1, 1, 1, 0, 0]},
        {"data_format": "NCHW"}, {"dilations": [1, 2, 2, 1]},
    ):  # fmt: skip
        attrs = {**plain, **attrs}
        x, f, g = ones((2, 5, 5, 5), "float32"), ones((3, 3, 5, 5), "float32"), ones(
            (2, 5, 5, 5), "float32")
        sizes = numpy.array([2, 5, 5, 5], "int32"), numpy.array([3, 3, 5, 5], "int32")
        yield f"Conv2D/wrong/{attrs}", *case("Conv2D", {"input": x, "filter": f}, **attrs)
        yield f"Conv2DBackpropInput/wrong/{attrs}", *case(
            "Conv2DBackpropInput", {"input_sizes": sizes[0], "filter": f, "out_backprop": g},
            **attrs)
        yield f"Conv2DBackpropFilter/wrong/{attrs}", *case(
            "Conv2DBackpropFilter", {"input": x, "filter_sizes": sizes[1], "out_backprop": g},
            **attrs)
        # which TensorFlow's depthwise gradients do not look at; we refuse them
        if attrs.get("dilations") in ([1, 0, 1, 1], [1, 1]):
            continue
        yield f"DepthwiseConv2dNative/wrong/{attrs}", *case(
            "DepthwiseConv2dNative", {"input": x, "filter": f[..., :1]}, **attrs)
        inputs = {"input_sizes": sizes[0], "filter": f[..., :1], "out_backprop": g}
        yield f"DepthwiseConv2dNativeBackpropInput/wrong/{attrs}", *case(
            "DepthwiseConv2dNativeBackpropInput", inputs, **attrs)
        inputs = {"input": x, "filter_sizes": numpy.array([3, 3, 5, 1], "int32"), "out_backprop": g}
        yield f"DepthwiseConv2dNativeBackpropFilter/wrong/{attrs}", *case(
            "DepthwiseConv2dNativeBackpropFilter", inputs, **attrs)
    for sizes, f, g in (
        ([2, 5, 5, 2], (3, 3, 2, 3), (2, 5, 5, 3)), ([2, 5, 5], (3, 3, 2, 3), (2, 5, 5, 3)),
        ([[2, 5, 5, 2]], (3, 3, 2, 3), (2, 5, 5, 3)), ([2, 5, 5, -2], (3, 3, 2, 3), (2, 5, 5, 3)),
        ([3, 5, 5, 2], (3, 3, 2, 3), (2, 5, 5, 3)), ([2, 6, 5, 2], (3, 3, 2, 3), (2, 5, 5, 3)),
        ([2, 5, 5, 2], (3, 3, 2, 3), (2, 5, 5, 4)), ([2, 5, 5, 3], (3, 3, 2, 3), (2, 5, 5, 3)),
        ([2, 5, 5, 4], (3, 3, 2, 3), (2, 5, 5, 3)), ([0, 5, 5, 2], (3, 3, 2, 3), (0, 5, 5, 3)),
        ([2, 0, 5, 2], (3, 3, 2, 3), (2, 0, 5, 3)), ([2, 5, 5, 2], (3, 3, 2, 0), (2, 5, 5, 0)),
        ([2, 5, 5, 2], (3, 3, 2), (2, 5, 5, 3)), ([2, 5, 5, 2], (3, 3, 2, 3), (2, 5, 3)),
        ([2, 5, 5, 0], (3, 3, 0, 3), (2, 5, 5, 3)), (3, (3, 3, 2, 3), (2, 5, 5, 3)),
        ([2, 2**31 - 1, 2**31 - 1, 2], (3, 3, 2, 3), (2, 5, 5, 3)),
    ):  # fmt: skip
        inputs = {"input_sizes": numpy.array(sizes, "int32"), "filter": ones(f, "float32"),
                  "out_backprop": ones(g, "float32")}
        yield f"Conv2DBackpropInput/odd/{sizes}{f}{g}", *case(
            "Conv2DBackpropInput", inputs, **plain)
    for x, sizes, g in (
        ((2, 5, 5, 2), [3, 3, 2, 3], (2, 5, 5, 3)), ((2, 5, 5, 2), [3, 3, 2], (2, 5, 5, 3)),
        ((2, 5, 5, 2), [[3, 3, 2, 3]], (2, 5, 5, 3)), ((2, 5, 5, 2), [3, 3, 2, -3], (2, 5, 5, 3)),
        ((3, 5, 5, 2), [3, 3, 2, 3], (2, 5, 5, 3)), ((2, 6, 5, 2), [3, 3, 2, 3], (2, 5, 5, 3)),
        ((2, 5, 5, 2), [3, 3, 2, 4], (2, 5, 5, 3)), ((2, 5, 5, 3), [3, 3, 2, 3], (2, 5, 5, 3)),
        ((0, 5, 5, 2), [3, 3, 2, 3], (0, 5, 5, 3)), ((2, 5, 5, 2), [3, 3, 2, 0], (2, 5, 5, 0)),
        ((2, 5, 5), [3, 3, 2, 3], (2, 5, 5, 3)),
        ((2, 5, 5, 0), [3, 3, 0, 3], (2, 5, 5, 3)), ((2, 5, 5, 2), [3, 3, 1, 3], (2, 5, 5, 3)),
        ((2, 5, 5, 2), 3, (2, 5, 5, 3)), ((2, 5, 5, 2), [0, 3, 2, 3], (2, 5, 5, 3)),
    ):  # fmt: skip
        inputs = {"input": ones(x, "float32"), "filter_sizes": numpy.array(sizes, "int32"),
                  "out_backprop": ones(g, "float32")}
        yield f"Conv2DBackpropFilter/odd/{x}{sizes}{g}", *case(
            "Conv2DBackpropFilter", inputs, **plain)


def depthwise():
    rng = numpy.random.default_rng(2)
    for image, window, depth, multiplier, stride, padding, pads in (
        ((5, 5), (3, 3), 2, 1, 1, "SAME", None), ((5, 5), (3, 3), 2, 3, 1, "VALID", None),
        ((7, 6), (3, 2), 1, 4, 2, "SAME", None), ((7, 8), (2, 3), 65, 1, 2, "SAME", None),
        ((9, 9), (5, 5), 33, 2, 1, "SAME", None),
        ((5, 7), (3, 3), 4, 2, 1, "EXPLICIT", ((1, 2), (0, 3))),
        ((5, 7), (3, 3), 4, 1, 2, "EXPLICIT", ((4, 0), (2, 2))),
        ((6, 6), (1, 1), 7, 1, 1, "SAME", None), ((3, 3), (5, 4), 3, 1, 1, "SAME", None),
        ((8, 8), (2, 2), 130, 1, 3, "VALID", None), ((70, 3), (67, 2), 3, 1, 1, "SAME", None),
    ):  # fmt: skip
        places = [out_size(*row) for row in zip(image, window, (stride, stride), (1, 1),
                                                [padding] * 2, pads or [(0, 0)] * 2)]
        attrs = {"strides": [1, stride, stride, 1], "padding": padding}
        if pads:
            attrs["explicit_paddings"] = [0, 0, *itertools.chain(*pads), 0, 0]
        for dtype, batch in itertools.product(tf_kernels.cpu_dtypes("DepthwiseConv2dNative"),
                                              (1, 3)):
            x, f = values(rng, dtype, (batch, *image, depth)), values(
                rng, dtype, (*window, depth, multiplier))
            g = values(rng, dtype, (batch, *places, depth * multiplier))
            label, options = (f"{dtype}/{batch}{image}{window}{depth}x{multiplier} s{stride} "
                              f"{padding}{pads or ''}", LOOSE[dtype])
            sums = {"float16": {"rtol": 5e-2, "atol": 1e-1},
                    "bfloat16": {"rtol": 2e-1, "atol": 8e-1},
                    "float32": {"rtol": 1e-4, "atol": 1e-4}}.get(dtype, options)
            yield f"DepthwiseConv2dNative/{label}", *case(
                "DepthwiseConv2dNative", {"input": x, "filter": f}, options, **attrs)
            inputs = {"input_sizes": numpy.array(x.shape, "int32"), "filter": f, "out_backprop": g}
            yield f"DepthwiseConv2dNativeBackpropInput/{label}", *case(
                "DepthwiseConv2dNativeBackpropInput", inputs, options, **attrs)
            inputs = {"input": x, "filter_sizes": numpy.array(f.shape, "int32"), "out_backprop": g}
            yield f"DepthwiseConv2dNativeBackpropFilter/{label}", *case(
                "DepthwiseConv2dNativeBackpropFilter", inputs, sums, **attrs)
    ones = numpy.ones
    plain = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    for x, f in (
        ((0, 5, 5, 2), (3, 3, 2, 1)), ((2, 0, 5, 2), (3, 3, 2, 1)), ((2, 5, 5, 2), (3, 3, 2, 0)),
        ((2, 5, 5, 0), (3, 3, 0, 1)), ((2, 5, 5, 2), (0, 3, 2, 1)), ((2, 5, 5, 3), (3, 3, 2, 1)),
        ((2, 5, 5), (3, 3, 2, 1)), ((2, 5, 5, 2), (3, 3, 2)), ((2, 2, 2, 2), (4, 4, 2, 1)),
    ):  # fmt: skip
        inputs = {"input": ones(x, "float32"), "filter": ones(f, "float32")}
        for padding in ("SAME", "VALID"):
            yield f"DepthwiseConv2dNative/odd/{x}{f}{padding}", *case(
                "DepthwiseConv2dNative", inputs, strides=[1] * 4, padding=padding)
    for sizes, f, g in (
        ([2, 5, 5, 2], (3, 3, 2, 1), (2, 5, 5, 2)), ([2, 5, 5], (3, 3, 2, 1), (2, 5, 5, 2)),
        ([[2, 5, 5, 2]], (3, 3, 2, 1), (2, 5, 5, 2)), ([3, 5, 5, 2], (3, 3, 2, 1), (2, 5, 5, 2)),
        ([2, 6, 5, 2], (3, 3, 2, 1), (2, 5, 5, 2)), ([2, 5, 5, 2], (3, 3, 2, 1), (2, 5, 5, 4)),
        ([2, 5, 5, 3], (3, 3, 2, 1), (2, 5, 5, 2)), ([0, 5, 5, 2], (3, 3, 2, 1), (0, 5, 5, 2)),
        ([2, 5, 5, -2], (3, 3, 2, 1), (2, 5, 5, 2)),
    ):  # fmt: skip
        inputs = {"input_sizes": numpy.array(sizes, "int32"), "filter": ones(f, "float32"),
                  "out_backprop": ones(g, "float32")}
        yield f"DepthwiseConv2dNativeBackpropInput/odd/{sizes}{f}{g}", *case(
            "DepthwiseConv2dNativeBackpropInput", inputs, **plain)
    for x, sizes, g in (
        ((2, 5, 5, 2), [3, 3, 2, 1], (2, 5, 5, 2)), ((2, 5, 5, 2), [3, 3, 2], (2, 5, 5, 2)),
        ((3, 5, 5, 2), [3, 3, 2, 1], (2, 5, 5, 2)), ((2, 6, 5, 2), [3, 3, 2, 1], (2, 5, 5, 2)),
        ((2, 5, 5, 2), [3, 3, 2, 2], (2, 5, 5, 2)), ((2, 5, 5, 3), [3, 3, 2, 1], (2, 5, 5, 2)),
    ):  # fmt: skip
        inputs = {"input": ones(x, "float32"), "filter_sizes": numpy.array(sizes, "int32"),
                  "out_backprop": ones(g, "float32")}
        yield f"DepthwiseConv2dNativeBackpropFilter/odd/{x}{sizes}{g}", *case(
            "DepthwiseConv2dNativeBackpropFilter", inputs, **plain)


def conv_3d():
    rng = numpy.random.default_rng(3)
    sums = {"float32": {"rtol": 1e-4, "atol": 1e-4}, "float16": {"rtol": 5e-2, "atol": 2e-1},
            "bfloat16": {"rtol": 2e-1, "atol": 8e-1}}
    for image, window, depth, out_depth, strides, padding in (
        ((4, 5, 5), (2, 3, 3), 2, 3, (1, 1, 1), "SAME"),
        ((4, 5, 5), (2, 3, 3), 2, 3, (1, 1, 1), "VALID"),
        ((5, 6, 7), (3, 2, 1), 3, 4, (2, 1, 3), "SAME"),
        ((5, 6, 7), (1, 1, 1), 3, 4, (1, 1, 1), "VALID"),
        ((5, 6, 7), (1, 1, 1), 3, 4, (2, 2, 2), "SAME"),
        ((1, 6, 7), (1, 3, 3), 16, 16, (1, 1, 1), "SAME"),
        ((6, 8, 8), (3, 3, 3), 16, 24, (2, 2, 2), "SAME"),
    ):  # fmt: skip
        places = [out_size(*row) for row in zip(image, window, strides, (1, 1, 1), [padding] * 3)]
        attrs = {"strides": [1, *strides, 1], "padding": padding}
        for dtype in tf_kernels.cpu_dtypes("Conv3D"):
            x, f = values(rng, dtype, (2, *image, depth)), values(
                rng, dtype, (*window, depth, out_depth))
            g = values(rng, dtype, (2, *places, out_depth))
            label, options = (f"{dtype}/{image}{window}{depth}>{out_depth} s{strides} {padding}",
                              LOOSE[dtype])
            if dtype == "bfloat16":
                options = sums[dtype]
            yield f"Conv3D/{label}", *case("Conv3D", {"input": x, "filter": f}, options, **attrs)
            yield f"Conv/{label}", *case("Conv", {"input": x, "filter": f}, options, **attrs)
            for index in ("int32", "int64"):
                inputs = {"input_sizes": numpy.array(x.shape, index), "filter": f,
                          "out_backprop": g}
                yield f"Conv3DBackpropInputV2/{index}/{label}", *case(
                    "Conv3DBackpropInputV2", inputs, options, **attrs)
            inputs = {"input": x, "filter_sizes": numpy.array(f.shape, "int32"), "out_backprop": g}
            yield f"Conv3DBackpropFilterV2/{label}", *case(
                "Conv3DBackpropFilterV2", inputs, sums.get(dtype, options), **attrs)
    ones = numpy.ones
    plain = {"strides": [1] * 5, "padding": "SAME"}
    for x, f in (
        ((0, 4, 5, 5, 2), (2, 3, 3, 2, 3)), ((2, 4, 0, 5, 2), (2, 3, 3, 2, 3)),
        ((2, 4, 5, 5, 2), (2, 3, 3, 2, 0)), ((2, 4, 5, 5, 0), (2, 3, 3, 0, 3)),
        ((2, 4, 5, 5, 4), (2, 3, 3, 2, 3)),
        ((2, 4, 5, 5, 3), (2, 3, 3, 2, 3)), ((2, 4, 5, 5), (2, 3, 3, 2, 3)),
        ((2, 4, 5, 5, 2), (3, 3, 2, 3)), ((2, 1, 1, 1, 2), (4, 4, 4, 2, 3)),
        ((2, 4, 5, 5, 2), (2, 0, 3, 2, 3)),
    ):  # fmt: skip
        inputs = {"input": ones(x, "float32"), "filter": ones(f, "float32")}
        for padding in ("SAME", "VALID"):
            yield f"Conv3D/odd/{x}{f}{padding}", *case(
                "Conv3D", inputs, strides=[1] * 5, padding=padding)
    x, f, g = ones((2, 4, 4, 4, 4), "float32"), ones((3, 3, 3, 4, 4), "float32"), ones(
        (2, 4, 4, 4, 4), "float32")
    sizes = numpy.array(x.shape, "int32"), numpy.array(f.shape, "int32")
    for attrs in (
        {"strides": [1, 0, 1, 1, 1]}, {"strides": [2, 1, 1, 1, 1]}, {"strides": [1, 1, 1, 1, 2]},
        {"strides": [1, 1, 1]}, {"dilations": [1, 2, 1, 1, 1]}, {"dilations": [2, 1, 1, 1, 1]},
        {"dilations": [1, 0, 1, 1, 1]}, {"data_format": "NCDHW"}, {},
    ):  # fmt: skip
        attrs = {**plain, **attrs}
        yield f"Conv3D/wrong/{attrs}", *case("Conv3D", {"input": x, "filter": f}, **attrs)
        yield f"Conv3DBackpropInputV2/wrong/{attrs}", *case(
            "Conv3DBackpropInputV2", {"input_sizes": sizes[0], "filter": f, "out_backprop": g},
            **attrs)
        yield f"Conv3DBackpropFilterV2/wrong/{attrs}", *case(
            "Conv3DBackpropFilterV2", {"input": x, "filter_sizes": sizes[1], "out_backprop": g},
            **attrs)
    for sizes, f, g in (
        ([2, 4, 4, 4], (3, 3, 3, 4, 4), (2, 4, 4, 4, 4)),
        ([3, 4, 4, 4, 4], (3, 3, 3, 4, 4), (2, 4, 4, 4, 4)),
        ([2, 5, 4, 4, 4], (3, 3, 3, 4, 4), (2, 4, 4, 4, 4)),
        ([2, 4, 4, 4, 8], (3, 3, 3, 4, 4), (2, 4, 4, 4, 4)),
        ([2, 4, 4, 4, 4], (3, 3, 3, 4, 4), (2, 4, 4, 4, 5)),
        ([0, 4, 4, 4, 4], (3, 3, 3, 4, 4), (0, 4, 4, 4, 4)),
        ([[2, 4, 4, 4, 4]], (3, 3, 3, 4, 4), (2, 4, 4, 4, 4)),
        ([2, 4, 4, 4, -4], (3, 3, 3, 4, 4), (2, 4, 4, 4, 4)),
    ):  # fmt: skip
        inputs = {"input_sizes": numpy.array(sizes, "int32"), "filter": ones(f, "float32"),
                  "out_backprop": ones(g, "float32")}
        yield f"Conv3DBackpropInputV2/odd/{sizes}{f}{g}", *case(
            "Conv3DBackpropInputV2", inputs, **plain)
    for x, sizes, g in (
        ((2, 4, 4, 4, 4), [3, 3, 3, 4], (2, 4, 4, 4, 4)),
        ((3, 4, 4, 4, 4), [3, 3, 3, 4, 4], (2, 4, 4, 4, 4)),
        ((2, 4, 4, 4, 4), [3, 3, 3, 4, 5], (2, 4, 4, 4, 4)),
        ((2, 4, 4, 4, 8), [3, 3, 3, 4, 4], (2, 4, 4, 4, 4)),
        ((0, 4, 4, 4, 4), [3, 3, 3, 4, 4], (0, 4, 4, 4, 4)),
        ((2, 4, 5, 4, 4), [3, 3, 3, 4, 4], (2, 4, 4, 4, 4)),
    ):  # fmt: skip
        inputs = {"input": ones(x, "float32"), "filter_sizes": numpy.array(sizes, "int32"),
                  "out_backprop": ones(g, "float32")}
        yield f"Conv3DBackpropFilterV2/odd/{x}{sizes}{g}", *case(
            "Conv3DBackpropFilterV2", inputs, **plain)


def dilation():
    rng = numpy.random.default_rng(4)
    for dtype in tf_kernels.cpu_dtypes("Dilation2D"):
        options = {"float16": {"rtol": 1e-2, "atol": 1e-2},
                   "bfloat16": {"rtol": 5e-2, "atol": 5e-2}}.get(dtype, {})
        for image, window, depth, strides, rates, padding in (
            ((5, 5), (3, 3), 2, (1, 1), (1, 1), "SAME"),
            ((5, 6), (2, 3), 3, (2, 1), (1, 1), "VALID"),
            ((9, 8), (3, 2), 17, (1, 2), (2, 3), "SAME"),
            ((7, 7), (3, 3), 1, (2, 2), (2, 2), "VALID"),
        ):  # fmt: skip
            x, f = oracle.sample(rng, dtype, (2, *image, depth)), oracle.sample(
                rng, dtype, (*window, depth))
            places = [out_size(*row) for row in zip(image, window, strides, rates, [padding] * 2)]
            g = oracle.sample(rng, dtype, (2, *places, depth))
            attrs = {"strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
            label = f"{dtype}/{image}{window}{depth}{strides}{rates}{padding}"
            yield f"Dilation2D/{label}", *case("Dilation2D", {"input": x, "filter": f}, options,
                                               **attrs)
            inputs = {"input": x, "filter": f, "out_backprop": g}
            yield f"Dilation2DBackpropInput/{label}", *case(
                "Dilation2DBackpropInput", inputs, options, **attrs)
            yield f"Dilation2DBackpropFilter/{label}", *case(
                "Dilation2DBackpropFilter", inputs, options, **attrs)
    ones, plain = numpy.ones, {"strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
    for x, f, g in (
        ((0, 5, 5, 2), (3, 3, 2), (0, 5, 5, 2)), ((2, 5, 5, 3), (3, 3, 2), (2, 5, 5, 3)),
        ((2, 5, 5), (3, 3, 2), (2, 5, 5, 2)), ((2, 5, 5, 2), (3, 3), (2, 5, 5, 2)),
        ((2, 5, 5, 2), (3, 3, 2), (2, 4, 5, 2)),
        ((2, 5, 5, 2), (3, 3, 2), (5, 5, 2)), ((2, 5, 5, 0), (3, 3, 0), (2, 5, 5, 0)),
        ((2, 5, 5, 2), (0, 3, 2), (2, 5, 5, 2)),
    ):  # fmt: skip
        inputs = {"input": ones(x, "float32"), "filter": ones(f, "float32")}
        yield f"Dilation2D/odd/{x}{f}", *case("Dilation2D", inputs, **plain)
        inputs = {**inputs, "out_backprop": ones(g, "float32")}
        yield f"Dilation2DBackpropInput/odd/{x}{f}{g}", *case(
            "Dilation2DBackpropInput", inputs, **plain)
        yield f"Dilation2DBackpropFilter/odd/{x}{f}{g}", *case(
            "Dilation2DBackpropFilter", inputs, **plain)
    # a rate of 0, which TensorFlow takes, we refuse
    for attrs in ({"strides": [1, 0, 1, 1]}, {"strides": [2, 1, 1, 1]}, {"rates": [1, 1, 1, 2]},
                  {"strides": [1, 1, 1]}):
        inputs = {"input": ones((2, 5, 5, 2), "float32"), "filter": ones((3, 3, 2), "float32")}
        yield f"Dilation2D/wrong/{attrs}", *case("Dilation2D", inputs, **{**plain, **attrs})


def patches():
    rng = numpy.random.default_rng(5)
    for dtype in tf_kernels.cpu_dtypes("ExtractImagePatches"):
        x = oracle.sample(rng, dtype, (2, 7, 8, 3))
        for size, strides, rates, padding in (((3, 3), (1, 1), (1, 1), "SAME"),
                                              ((2, 3), (2, 3), (1, 1), "VALID"),
                                              ((3, 2), (1, 2), (2, 3), "SAME"),
                                              ((3, 2), (5, 5), (2, 3), "VALID")):
            attrs = {"ksizes": [1, *size, 1], "strides": [1, *strides, 1], "rates": [1, *rates, 1],
                     "padding": padding}
            yield f"ExtractImagePatches/{dtype}/{size}{strides}{rates}{padding}", *case(
                "ExtractImagePatches", {"images": x}, **attrs)
    for dtype in tf_kernels.cpu_dtypes("ExtractVolumePatches"):
        x = oracle.sample(rng, dtype, (2, 5, 7, 8, 3))
        for size, strides, padding in (((2, 3, 3), (1, 1, 1), "SAME"),
                                       ((2, 2, 3), (1, 2, 3), "VALID"),
                                       ((6, 1, 1), (1, 1, 1), "SAME")):
            attrs = {"ksizes": [1, *size, 1], "strides": [1, *strides, 1], "padding": padding}
            yield f"ExtractVolumePatches/{dtype}/{size}{strides}{padding}", *case(
                "ExtractVolumePatches", {"input": x}, WRONG_RANK, **attrs)
    plain = {"ksizes": [1, 3, 3, 1], "strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
    for shape in ((0, 5, 5, 2), (2, 0, 5, 2), (2, 5, 5, 0), (2, 5, 5), (2, 2, 2, 2), (1, 1, 1, 1)):
        for padding in ("SAME", "VALID"):
            yield f"ExtractImagePatches/odd/{shape}{padding}", *case(
                "ExtractImagePatches", {"images": numpy.ones(shape, "float32")},
                **{**plain, "padding": padding})
    for attrs in (
        {"ksizes": [1, 0, 3, 1]}, {"ksizes": [2, 3, 3, 1]}, {"ksizes": [1, 3, 3, 2]},
        {"ksizes": [3, 3]}, {"strides": [1, 0, 1, 1]}, {"strides": [2, 1, 1, 1]},
        {"rates": [1, 0, 1, 1]}, {"rates": [1, 1, 1, 2]},
    ):  # fmt: skip
        yield f"ExtractImagePatches/wrong/{attrs}", *case(
            "ExtractImagePatches", {"images": numpy.ones((2, 5, 5, 2), "float32")},
            **{**plain, **attrs})
    plain = {"ksizes": [1, 2, 3, 3, 1], "strides": [1] * 5, "padding": "SAME"}
    for shape in ((0, 4, 5, 5, 2), (2, 4, 5, 5), (1, 1, 1, 1, 1)):
        yield f"ExtractVolumePatches/odd/{shape}", *case(
            "ExtractVolumePatches", {"input": numpy.ones(shape, "float32")}, WRONG_RANK, **plain)
    for attrs in ({"ksizes": [1, 0, 3, 3, 1]}, {"ksizes": [2, 1, 3, 3, 1]},
                  {"strides": [1, 0, 1, 1, 1]}, {"strides": [1, 1, 1, 1, 2]},
                  {"ksizes": [1, 1, 1]}):
        yield f"ExtractVolumePatches/wrong/{attrs}", *case(
            "ExtractVolumePatches", {"input": numpy.ones((2, 4, 5, 5, 2), "float32")},
            **{**plain, **attrs})


def data_formats():
    pairs = [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "HWNC"), ("NDHWC", "NCDHW"),
             ("NCDHW", "NDHWC"), ("NHWC", "NHWC"), ("NHWC", "NCDHW"), ("NHWC", "NCHX"),
             ("NHW", "NHW"), ("NHWC", "NNNN")]
    for dtype, (src, dst) in itertools.product(("int32", "int64"), pairs):
        n = len(src)
        for x in (list(range(n)), list(range(-n, 0)), 1, [[0, 1], [2, 3]], [], [n], [-n - 1]):
            yield f"DataFormatDimMap/{dtype}/{src}{dst}/{x}", *case(
                "DataFormatDimMap", {"x": numpy.array(x, dtype)}, src_format=src, dst_format=dst)
        for shape in ((n,), (n, 2), (n - 2,), (n - 2, 2), (3,), (1,), (n, 3), (0,), (), (n, 2, 1),
                      (n + 1,)):
            x = numpy.arange(int(numpy.prod(shape)), dtype=dtype).reshape(shape) + 10
            yield f"DataFormatVecPermute/{dtype}/{src}{dst}/{shape}", *case(
                "DataFormatVecPermute", {"x": x}, src_format=src, dst_format=dst)


def random_geometry():
    rng = numpy.random.default_rng(6)
    for i in range(250):
        dtype = str(rng.choice(["float32", "float64", "float32"]))
        batch, depth, out_depth = int(rng.integers(1, 5)), int(
            rng.choice([1, 2, 3, 4, 7, 8, 16, 19, 32])), int(rng.choice([1, 2, 5, 8, 16, 21, 32]))
        image, window = [int(v) for v in rng.integers(1, 18, 2)], [
            int(v) for v in rng.integers(1, 6, 2)]
        strides, rates = [int(v) for v in rng.integers(1, 4, 2)], [
            int(v) for v in rng.choice([1, 1, 1, 2, 3], 2)]
        padding = str(rng.choice(["SAME", "VALID", "EXPLICIT"]))
        pads = [tuple(int(v) for v in rng.integers(0, 4, 2))
                for _ in range(2)] if padding == "EXPLICIT" else None
        places = [out_size(*row) for row in zip(image, window, strides, rates, [padding] * 2,
                                                pads or [(0, 0)] * 2)]
        x, f = values(rng, dtype, (batch, *image, depth)), values(
            rng, dtype, (*window, depth, out_depth))
        attrs, options = conv_attrs(strides, rates, padding, pads), {
            "float32": {"rtol": 1e-4, "atol": 1e-4}}.get(dtype, LOOSE[dtype])
        label = f"random {i}/{dtype}/{x.shape}{f.shape} s{strides} d{rates} {padding}{pads or ''}"
        yield f"Conv2D/{label}", *case("Conv2D", {"input": x, "filter": f}, options, **attrs)
        attrs = conv_attrs(strides, (1, 1), padding, pads)
        places = [out_size(*row) for row in zip(image, window, strides, (1, 1), [padding] * 2,
                                                pads or [(0, 0)] * 2)]
        if min(places) < 1:  # TensorFlow's gradients crash on an empty one
            continue
        g = values(rng, dtype, (batch, *places, out_depth))
        inputs = {"input_sizes": numpy.array(x.shape, "int32"), "filter": f, "out_backprop": g}
        yield f"Conv2DBackpropInput/{label}", *case("Conv2DBackpropInput", inputs, options, **attrs)
        inputs = {"input": x, "filter_sizes": numpy.array(f.shape, "int32"), "out_backprop": g}
        yield f"Conv2DBackpropFilter/{label}", *case(
            "Conv2DBackpropFilter", inputs, options, **attrs)


def cases():
    yield from conv_2d()
    yield from empty_and_wrong_2d()
    yield from depthwise()
    yield from conv_3d()
    yield from dilation()
    yield from patches()
    yield from data_formats()
    yield from random_geometry()
