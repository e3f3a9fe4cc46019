"""Cases of the normalisation family: batch normalisation in its forms, local response
normalisation."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels
from cases_conv import case

R = tf.raw_ops
LOOSE = {"float16": {"rtol": 2e-2, "atol": 2e-2}, "bfloat16": {"rtol": 6e-2, "atol": 6e-2},
         "float32": {"rtol": 2e-5, "atol": 2e-5}, "float64": {"rtol": 1e-10, "atol": 1e-10}}
SUMS = {"float16": {"rtol": 3e-2, "atol": 6e-2}, "bfloat16": {"rtol": 1e-1, "atol": 3e-1},
        "float32": {"rtol": 1e-4, "atol": 1e-4}}


def forward(op, x, vectors, n_outputs, options, **attrs):
    """Only the first outputs: what the others hold outside of training is nobody's business."""

    def build():
        names = ("scale", "offset", "mean", "variance")
        return list(getattr(R, op)(x=oracle.const(x),
                                   **{n: oracle.const(v) for n, v in zip(names, vectors)},
                                   **attrs))[:n_outputs]

    return build, options


def batch_norm():
    rng = numpy.random.default_rng(1)
    shapes = {"NHWC": ((2, 3, 4, 5), (1, 1, 1, 3), (4, 9, 9, 70), (2, 40, 40, 3), (1, 1, 2, 1)),
              "NCHW": ((2, 5, 3, 4), (1, 3, 1, 1), (3, 7, 9, 9), (2, 3, 33, 32))}
    volumes = {"NDHWC": ((2, 3, 2, 4, 5), (1, 1, 1, 1, 2)),
               "NCDHW": ((2, 5, 3, 2, 4), (3, 2, 1, 1, 1))}
    for version in ("", "V2", "V3"):
        op = "FusedBatchNorm" + version
        for layout, sizes in {**shapes, **(volumes if version == "V3" else {})}.items():
            for dtype, size in itertools.product(tf_kernels.cpu_dtypes(op), sizes):
                channels = size[1 if layout[1] == "C" else -1]
                x = oracle.sample(rng, dtype, size) + tf.as_dtype(dtype).as_numpy_dtype(1)
                scale, offset, mean = (rng.normal(size=channels).astype("float32")
                                       for _ in range(3))
                variance = (abs(rng.normal(size=channels)) + 0.1).astype("float32")
                label, options, none = f"{dtype}/{layout}/{size}", LOOSE[dtype], numpy.zeros(
                    0, "float32")
                for factor, epsilon in ((1.0, 1e-3), (0.1, 1e-4), (0.0, 0.1)):
                    attrs = {"data_format": layout, "epsilon": epsilon, "is_training": True,
                             "exponential_avg_factor": factor}
                    yield f"{op}/training {factor}/{label}", *forward(
                        op, x, (scale, offset, mean, variance), 5, options, **attrs)
                attrs = {"data_format": layout, "is_training": True}
                yield f"{op}/training, nothing yet/{label}", *forward(
                    op, x, (scale, offset, none, none), 6, options, **attrs)
                attrs = {"data_format": layout, "epsilon": 1e-3, "is_training": False}
                yield f"{op}/inference/{label}", *forward(
                    op, x, (scale, offset, mean, variance), 3, options, **attrs)
                g = oracle.sample(rng, dtype, size)
                inputs = {"y_backprop": g, "x": x, "scale": scale, "reserve_space_1": mean,
                          "reserve_space_2": variance}
                if version == "V3":
                    inputs["reserve_space_3"] = numpy.float32(0)
                for training in (True, False):
                    attrs = {"data_format": layout, "epsilon": 1e-3, "is_training": training}
                    yield f"FusedBatchNormGrad{version}/{training}/{label}", *case(
                        "FusedBatchNormGrad" + version, inputs, SUMS[dtype], **attrs)
    far = (rng.normal(size=(8, 16, 16, 4)) + 1000).astype("float32")
    ones = numpy.ones(4, "float32")
    # TensorFlow's sums lose more
    yield "FusedBatchNormV3/far from 0", *forward(
        "FusedBatchNormV3", far, (ones, ones, ones, ones), 3, {"rtol": 1e-2, "atol": 1e-2},
        is_training=True)


def wrong_batch_norm():
    def ones(*shape):
        return numpy.ones(shape, "float32")

    for training, layout in itertools.product((True, False), ("NHWC", "NCHW")):
        attrs = {"is_training": training, "data_format": layout}
        for shapes in (
            ((2, 3, 4), (4,), (4,), (4,), (4,)), ((2, 3, 3, 4), (3,), (4,), (4,), (4,)),
            ((2, 3, 3, 4), (4,), (3,), (4,), (4,)), ((2, 3, 3, 4), (4,), (4,), (3,), (4,)),
            ((2, 3, 3, 4), (4,), (4,), (4,), (3,)), ((2, 3, 3, 4), (4, 1), (4,), (4,), (4,)),
            ((2, 3, 3, 4), (4,), (), (4,), (4,)), ((2, 3, 3, 4), (4,), (4,), (0,), (0,)),
            ((2, 3, 3, 4), (4,), (4,), (4,), ()),
        ):  # fmt: skip
            vectors = [ones(*s) for s in shapes[1:]]
            yield f"FusedBatchNormV3/wrong/{training}{layout}{shapes}", *forward(
                "FusedBatchNormV3", ones(*shapes[0]), vectors, 1, {}, **attrs)
        for shapes in (
            ((2, 3, 3, 4), (2, 3, 3, 4), (4,), (4,), (4,)),
            ((2, 3, 3, 4), (2, 3, 1, 4), (4,), (4,), (4,)),
            ((3, 3, 4), (3, 3, 4), (4,), (4,), (4,)),
            ((2, 3, 3, 4), (2, 3, 3, 4), (3,), (4,), (4,)),
            ((2, 3, 3, 4), (2, 3, 3, 4), (4,), (3,), (4,)),
            ((2, 3, 3, 4), (2, 3, 3, 4), (4,), (4,), (4, 1)),
        ):  # fmt: skip
            inputs = dict(zip(("y_backprop", "x", "scale", "reserve_space_1", "reserve_space_2"),
                              (ones(*s) for s in shapes)))
            yield f"FusedBatchNormGradV3/wrong/{training}{layout}{shapes}", *case(
                "FusedBatchNormGradV3", {**inputs, "reserve_space_3": numpy.float32(0)}, **attrs)
    for shape in ((0, 3, 3, 4), (2, 0, 3, 4)):
        yield f"FusedBatchNormV3/empty/{shape}", *forward(
            "FusedBatchNormV3", ones(*shape), [ones(4)] * 4, 3, {}, is_training=True)
    yield "FusedBatchNormV3/no channels", *forward(
        "FusedBatchNormV3", ones(2, 3, 3, 0), [ones(0)] * 4, 3, {}, is_training=True)


def local_response():
    rng = numpy.random.default_rng(3)
    for dtype in tf_kernels.cpu_dtypes("LRN"):
        options = {"float16": {"rtol": 3e-2, "atol": 3e-2}}.get(dtype, {"rtol": 1e-4, "atol": 1e-5})
        for shape, (radius, bias, alpha, beta) in itertools.product(
            ((2, 3, 4, 9), (1, 1, 1, 1), (3, 5, 5, 40), (0, 2, 2, 3), (1, 2, 2, 0)),
            ((5, 1.0, 1.0, 0.5), (2, 2.0, 0.5, 0.75), (0, 1.0, 1e-2, 1.0), (100, 0.5, 0.1, 1.3))
        ):
            x, g = oracle.sample(rng, dtype, shape), oracle.sample(rng, dtype, shape)
            attrs = {"depth_radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
            yield f"LRN/{dtype}/{shape}{radius},{bias},{alpha},{beta}", *case(
                "LRN", {"input": x}, options, **attrs)

            def build(x=x, g=g, attrs=attrs):
                y = R.LRN(input=tf.constant(x), **attrs)
                return [R.LRNGrad(input_grads=oracle.const(g), input_image=oracle.const(x),
                                  output_image=y, **attrs)]

            yield f"LRNGrad/{dtype}/{shape}{radius},{bias},{alpha},{beta}", build, options
    # windows of ones beside a large value, whose square must not take their digits away
    spike = numpy.ones((1, 1, 2, 60), "float32")
    spike[0, 0, 0, 0] = spike[0, 0, 1, 30] = 1e15
    for radius in (3, 10, 25, 70):
        attrs = {"depth_radius": radius, "bias": 1.0, "alpha": 1.0, "beta": 0.5}
        yield f"LRN/spike/{radius}", *case("LRN", {"input": spike}, **attrs)
        inputs = {"input_grads": spike, "input_image": spike**0, "output_image": spike**0}
        yield f"LRNGrad/spike/{radius}", *case("LRNGrad", inputs, {"rtol": 1e-5}, **attrs)
    for a, b, c in (((2, 3, 4), (2, 3, 4), (2, 3, 4)), ((2, 3, 4, 5), (2, 3, 4, 4), (2, 3, 4, 5)),
                    ((2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 1))):
        inputs = {"input_grads": numpy.ones(a, "float32"), "input_image": numpy.ones(b, "float32"),
                  "output_image": numpy.ones(c, "float32")}
        yield f"LRNGrad/wrong/{a}{b}{c}", *case("LRNGrad", inputs)
        yield f"LRN/wrong/{a}", *case("LRN", {"input": numpy.ones(a, "float32")})
    yield "LRN/wrong/radius", *case("LRN", {"input": numpy.ones((1, 1, 1, 4), "float32")},
                                    depth_radius=2**31)


def cases():
    yield from batch_norm()
    yield from wrong_batch_norm()
    yield from local_response()
