"""Cases of the nn family: biases, activations, softmax and its losses, the largest of a row."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
FLOATS = ("float16", "bfloat16", "float32", "float64")
# TensorFlow computes these in half or with its own fast exp: a few of its roundings, not ours.
LOOSE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 4e-6, "float64": 1e-12}


def np_dtype(name):
    return tf.as_dtype(name).as_numpy_dtype


def special(dtype):
    """Values at which formulas bend; no NaN."""
    if tf.as_dtype(dtype).is_floating:
        return numpy.array([-0.0, 0.0, -1, 1, 6, 5.96, 6.04, 7, -30, 30, -1e-3, 1e-3, -13.9, 13.9,
                            numpy.inf, -numpy.inf], np_dtype(dtype))
    info = numpy.iinfo(np_dtype(dtype))
    return numpy.array([0, 1, 5, 6, 7, info.min, info.max], np_dtype(dtype))


def op_case(op, inputs, options=None, **attrs):
    """inputs: {argument: value}"""

    def build():
        out = getattr(R, op)(**{name: oracle.const(value) for name, value in inputs.items()},
                             **attrs)
        return list(out) if isinstance(out, tuple) else [out]

    return build, options or {}


def activations():
    rng = numpy.random.default_rng(1)
    single = ("Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Softsign")
    shapes = ((), (1,), (3,), (17,), (2, 3), (0,), (3, 0, 2), (1, 2, 1, 2, 1, 2, 1, 2), (4099,))
    for op in single:
        for dtype in tf_kernels.cpu_dtypes(op):
            options = {"rtol": LOOSE.get(dtype, 0)}
            for shape in shapes:
                yield f"{op}/{dtype}/{list(shape)}", *op_case(
                    op, {"features": oracle.sample(rng, dtype, shape)}, options)
            values = special(dtype)
            if op in ("Softsign",):
                values = values[numpy.isfinite(values.astype(float))]
            yield f"{op}/{dtype}/special", *op_case(op, {"features": values}, options)
            if tf.as_dtype(dtype).is_floating:
                yield f"{op}/{dtype}/nan", *op_case(
                    op, {"features": numpy.full(5, numpy.nan, np_dtype(dtype))}, options)
        grad, second = op + "Grad", "outputs" if op in ("Elu", "Selu") else "features"
        for dtype in tf_kernels.cpu_dtypes(grad):
            options = {"rtol": LOOSE.get(dtype, 0)}
            for shape in shapes:
                pair = {"gradients": oracle.sample(rng, dtype, shape),
                        second: oracle.sample(rng, dtype, shape)}
                yield f"{grad}/{dtype}/{list(shape)}", *op_case(grad, pair, options)
            values = special(dtype)
            yield f"{grad}/{dtype}/special", *op_case(
                grad, {"gradients": oracle.sample(rng, dtype, values.shape), second: values},
                options)
        pair = {"gradients": numpy.ones((2, 3), "float32"), second: numpy.ones((3, 2), "float32")}
        yield f"{grad}/shapes differ", *op_case(grad, pair)
        pair[second] = numpy.float32(1)
        yield f"{grad}/scalar", *op_case(grad, pair)
    for dtype, alpha in itertools.product(FLOATS, (0.0, 0.1, 1.0, 3.7, -0.5)):
        values = oracle.sample(rng, dtype, (33,))
        yield f"LeakyRelu/{dtype}/alpha {alpha}", *op_case(
            "LeakyRelu", {"features": values}, alpha=alpha)
        yield f"LeakyReluGrad/{dtype}/alpha {alpha}", *op_case(
            "LeakyReluGrad", {"gradients": values[::-1], "features": values}, alpha=alpha)


def biases():
    rng = numpy.random.default_rng(2)
    shapes = ((2, 3), (5, 1), (1, 7), (0, 3), (2, 0), (2, 3, 4), (2, 3, 4, 5), (2, 1, 3, 1, 2),
              (3, 2, 1, 1, 2, 2), (2, 2, 1, 1, 1, 2, 1, 3), (700, 3))
    for dtype in tf_kernels.cpu_dtypes("BiasAdd"):
        options = {"rtol": LOOSE.get(dtype, 2e-6)}
        sums = {"rtol": {"float16": 2e-2, "bfloat16": 1.5e-1}.get(dtype, 1e-5)}
        for shape, layout in itertools.product(shapes, ("NHWC", "NCHW")):
            channels = shape[1 if layout == "NCHW" else -1]
            value, bias = oracle.sample(rng, dtype, shape), oracle.sample(rng, dtype, (channels,))
            if layout == "NCHW" and len(shape) == 2:
                options, sums = {**options, "modes": ("hidden",)}, {**sums, "modes": ("hidden",)}
            yield f"BiasAdd/{dtype}/{layout}/{list(shape)}", *op_case(
                "BiasAdd", {"value": value, "bias": bias}, options, data_format=layout)
            yield f"BiasAddGrad/{dtype}/{layout}/{list(shape)}", *op_case(
                "BiasAddGrad", {"out_backprop": value}, sums, data_format=layout)
            options, sums = ({k: v for k, v in o.items() if k != "modes"} for o in (options, sums))
        yield f"BiasAddV1/{dtype}", *op_case("BiasAddV1",
                                             {"value": value, "bias": bias[:0] if channels == 0
                                              else oracle.sample(rng, dtype, (value.shape[-1],))},
                                             options)
    ones = numpy.ones
    for layout, value, bias in (
        ("NHWC", ones(3), ones(3)),
        ("NHWC", ones(()), ones(3)),
        ("NHWC", ones((2, 3)), ones((1, 3))),
        ("NHWC", ones((2, 3)), ones(2)),
        ("NCHW", ones((2, 3, 4)), ones(4)),
        ("NCHW", ones(3), ones(3)),
    ):
        yield f"BiasAdd/wrong/{layout}/{value.shape}{bias.shape}", *op_case(
            "BiasAdd", {"value": value, "bias": bias}, data_format=layout)
    for layout, shape in itertools.product(("NHWC", "NCHW"), ((), (3,))):
        yield f"BiasAddGrad/wrong/{layout}/{shape}", *op_case(
            "BiasAddGrad", {"out_backprop": ones(shape)}, data_format=layout)
    for dtype, shape in itertools.product(("float32", "float64", "int32", "complex64", "float16"),
                                          ((21, 1100), (3, 4, 513), (9, 512))):
        sums = {"rtol": 1e-4, "atol": 1e-4} if dtype != "float16" else {"rtol": 2e-2, "atol": 2e-2}
        yield f"BiasAddGrad/{dtype}/wide/{list(shape)}", *op_case(
            "BiasAddGrad", {"out_backprop": oracle.sample(rng, dtype, shape)}, sums)
    big = oracle.sample(rng, "float32", (20000, 33))
    yield "BiasAddGrad/big", *op_case("BiasAddGrad", {"out_backprop": big},
                                      {"rtol": 1e-4, "atol": 1e-2})
    yield "BiasAddGrad/big NCHW", *op_case("BiasAddGrad",
                                           {"out_backprop": big.reshape(20, 33, 1000)},
                                           {"rtol": 1e-4, "atol": 1e-2}, data_format="NCHW")
    yield "BiasAdd/big", *op_case("BiasAdd", {"value": big, "bias": big[0]})
    yield "BiasAdd/big NCHW", *op_case("BiasAdd",
                                       {"value": big.reshape(20, 33, 1000), "bias": big[0]},
                                       data_format="NCHW")
    for dtype in FLOATS:
        for shape in ((), (1,), (5,), (3, 4), (0,), (70000,)):
            tolerance = {"rtol": {"float16": 2e-3, "bfloat16": 1.6e-2,
                                  "float32": 1e-4}.get(dtype, 1e-12)}
            values = oracle.sample(rng, dtype, shape)
            if shape == (70000,):
                if dtype in ("float16", "bfloat16"):
                    values = values * np_dtype(dtype)(0.05)
                    tolerance = {"rtol": 5e-2}
            yield f"L2Loss/{dtype}/{list(shape)}", *op_case("L2Loss", {"t": values}, tolerance)


def softmaxes():
    rng = numpy.random.default_rng(3)
    shapes = ((1,), (3,), (16,), (17,), (2, 3), (5, 16), (3, 33), (1, 1), (0, 3), (2, 0), (2, 3, 5),
              (1, 2, 1, 2, 1, 2, 1, 3), (2, 3001), (300, 10))
    for dtype in FLOATS:
        options = {"rtol": {"float16": 4e-3, "bfloat16": 5e-2, "float32": 1e-5,
                            "float64": 1e-12}[dtype]}
        for shape in shapes:
            values = oracle.sample(rng, dtype, shape)
            yield f"Softmax/{dtype}/{list(shape)}", *op_case("Softmax", {"logits": values}, options)
            yield f"LogSoftmax/{dtype}/{list(shape)}", *op_case(
                "LogSoftmax", {"logits": values}, options)
            if len(shape) == 2:
                labels = oracle.sample(rng, dtype, shape)
                labels = (abs(labels)
                          / numpy.maximum(abs(labels).sum(-1, keepdims=True),
                                          np_dtype(dtype)(1))).astype(np_dtype(dtype))
                options = {**options, "rtol": 5e-2} if dtype in ("float16", "bfloat16") else options
                pair = {"features": values, "labels": labels}
                yield f"SoftmaxCrossEntropyWithLogits/{dtype}/{list(shape)}", *op_case(
                    "SoftmaxCrossEntropyWithLogits", pair, options)
                for index in ("int32", "int64"):
                    classes = rng.integers(0, max(shape[1], 1), shape[0]).astype(index)
                    pair = {"features": values, "labels": classes}
                    yield (f"SparseSoftmaxCrossEntropyWithLogits/{dtype}/{index}/{list(shape)}",
                           *op_case(
                        "SparseSoftmaxCrossEntropyWithLogits", pair, options
                    ))
        big = numpy.array([[1000, -1000, 999], [-3000, -3000, -3001]], np_dtype(dtype))
        yield f"Softmax/{dtype}/big", *op_case("Softmax", {"logits": big}, options)
        yield f"LogSoftmax/{dtype}/big", *op_case("LogSoftmax", {"logits": big}, options)
        open_ended = numpy.array([[-numpy.inf, 0, 1], [-numpy.inf, -numpy.inf, -numpy.inf]],
                                 np_dtype(dtype))
        yield f"Softmax/{dtype}/-inf", *op_case("Softmax", {"logits": open_ended}, options)
        yield f"LogSoftmax/{dtype}/-inf", *op_case("LogSoftmax", {"logits": open_ended}, options)
        pair = {"features": open_ended[:1], "labels": numpy.array([[0, 0.5, 0.5]], np_dtype(dtype))}
        pair = {"features": open_ended[:1], "labels": numpy.array([1], "int32")}
        yield f"SparseSoftmaxCrossEntropyWithLogits/{dtype}/-inf", *op_case(
            "SparseSoftmaxCrossEntropyWithLogits", pair, options)
    yield "LogSoftmax/scalar", *op_case("LogSoftmax", {"logits": numpy.float32(1)})
    for a, b in (
        ((1, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 1), (1, 3)), ((1, 3), (2, 1)), ((3,), (2, 3)),
        ((3,), (1, 3)), ((2, 3), (3,)), ((2, 3), ()), ((), (2, 3)),
        ((2, 3), (2, 1)), ((1, 3), (0, 3)), ((2, 3), (3, 3)), ((2, 3, 1), (2, 3, 1)), ((3,), (3,)),
        ((), ()), ((2, 3), (2, 2)), ((1, 1), (1, 4)),
        ((1, 1), (40, 50)), ((40, 1), (40, 50)),
    ):  # fmt: skip
        for dtype in ("float32", "float16", "float64"):
            pair = {"features": oracle.sample(rng, dtype, a),
                    "labels": abs(oracle.sample(rng, dtype, b))}
            options = {"rtol": 5e-2 if dtype == "float16" else 1e-4}
            yield f"SoftmaxCrossEntropyWithLogits/{dtype}/{a}{b}", *op_case(
                "SoftmaxCrossEntropyWithLogits", pair, options)
    for shape, labels in (
        ((2, 3), [5, 0]), ((2, 3), [0, -1]), ((2, 3), [3, 0]), ((2, 3, 1), [2, 0]),
        ((2, 3), [[2, 0]]), ((2, 3), [2, 0, 1]), ((2, 3), 1), ((2, 0), [0, 0]), ((0, 0), []),
        ((3,), [1]),
    ):  # fmt: skip
        pair = {"features": oracle.sample(rng, "float32", shape),
                "labels": numpy.array(labels, "int32")}
        yield f"SparseSoftmaxCrossEntropyWithLogits/wrong/{shape}{labels}", *op_case(
            "SparseSoftmaxCrossEntropyWithLogits", pair)
    yield "Softmax/big rows", *op_case("Softmax",
                                       {"logits": oracle.sample(rng, "float32", (64, 5000))},
                                       {"rtol": 1e-5})


def top_k():
    rng = numpy.random.default_rng(4)
    for dtype in tf_kernels.cpu_dtypes("TopKV2"):
        for shape, k in (
            ((5,), 0), ((5,), 1), ((5,), 3), ((5,), 5), ((2, 7), 2), ((0, 4), 2), ((3, 0), 0),
            ((1, 2, 1, 2, 1, 2, 1, 6), 4), ((3, 200), 70), ((2, 200), 199), ((2, 200), 200),
            ((2, 9000), 3), ((2, 9000), 140), ((1, 9000), 141), ((1, 9000), 8000),
        ):  # fmt: skip
            values = oracle.sample(rng, dtype, shape)
            for k_type, index in (("int32", "int32"), ("int16", "int16"), ("int64", "int64"),
                                  ("int32", "int64")):
                if index != "int32" and shape[-1] > 200:
                    continue
                inputs = {"input": values, "k": numpy.array(k, k_type)}
                yield f"TopKV2/{dtype}/{list(shape)}/{k}/{k_type}/{index}", *op_case(
                    "TopKV2", inputs, index_type=index)

                def build_unsorted(inputs=inputs, index=index):
                    values, indices = R.TopKV2(input=oracle.const(inputs["input"]),
                                               k=oracle.const(inputs["k"]), index_type=index,
                                               sorted=False)
                    return [tf.cast(tf.reduce_sum(tf.cast(values, tf.float64)), tf.float32),
                            tf.reduce_sum(tf.cast(indices, tf.int64))]

                if index == "int32" and dtype == "float32" and shape != (3, 0):
                    yield f"TopKV2/{dtype}/{list(shape)}/{k}/unsorted", build_unsorted, {
                        "rtol": 1e-5}
            if k < shape[-1]:
                for reverse in (False, True):
                    inputs = {"input": values, "n": numpy.array(k, "int32")}
                    yield f"NthElement/{dtype}/{list(shape)}/{k}/{reverse}", *op_case(
                        "NthElement", inputs, reverse=reverse)
    zeros = numpy.array([0.0, -0.0, 1, -numpy.inf, numpy.inf, -0.0, 0.0], "float32")
    yield "TopKV2/signed zeros", *op_case("TopKV2", {"input": zeros, "k": numpy.int32(7)})
    for value, k in (
        (numpy.float32(1), numpy.int32(1)), (numpy.ones(3), numpy.int32(4)),
        (numpy.ones(3), numpy.int32(-1)), (numpy.ones(3), numpy.array([1], "int32")),
        (numpy.ones((0, 3)), numpy.int32(4)),
    ):  # fmt: skip
        yield f"TopKV2/wrong/{value.shape}/{k}", *op_case("TopKV2", {"input": value, "k": k})
        yield f"NthElement/wrong/{value.shape}/{k}", *op_case(
            "NthElement", {"input": value, "n": k})
    yield "TopKV2/int16 too small", *op_case("TopKV2",
                                             {"input": numpy.arange(32768), "k": numpy.int32(1)},
                                             index_type="int16")
    yield "TopKV2/int16 just fits", *op_case("TopKV2",
                                             {"input": numpy.arange(32767), "k": numpy.int32(1)},
                                             index_type="int16")

    predictions = numpy.array([[0.1, 0.5, 0.4, 0.5], [numpy.nan, 1, 2, 3], [1, 2, 3, numpy.inf],
                               [1, 2, 3, 4]], "float32")
    for index, k in itertools.product(("int32", "int64"), (-1, 0, 1, 2, 3, 4, 10)):
        for targets in ([1, 1, 1, 1], [-1, 4, 3, 3], [3, 2, 1, 0]):
            inputs = {"predictions": predictions, "targets": numpy.array(targets, index)}
            yield f"InTopK/{index}/{k}/{targets}", *op_case("InTopK", inputs, k=k)
            yield f"InTopKV2/{index}/{k}/{targets}", *op_case(
                "InTopKV2", {**inputs, "k": numpy.array(k, index)})
    for p, t, k in (
        (predictions[0], [1], 1), (predictions, [[1]], 1), (predictions, [1], 1),
        (predictions, [1] * 4, [1]), (predictions[:0], [], 1), (predictions[:, :0], [0] * 4, 1),
    ):  # fmt: skip
        inputs = {"predictions": p, "targets": numpy.array(t, "int32"),
                  "k": numpy.array(k, "int32")}
        yield f"InTopKV2/wrong/{p.shape}/{t}/{k}", *op_case("InTopKV2", inputs)
    many = oracle.sample(rng, "float32", (100, 50))
    yield "InTopKV2/many", *op_case("InTopKV2",
                                    {"predictions": many, "targets": rng.integers(0, 50, 100),
                                     "k": numpy.int64(20)})


def cases():
    yield from activations()
    yield from biases()
    yield from softmaxes()
    yield from top_k()
