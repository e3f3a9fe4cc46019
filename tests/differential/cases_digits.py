"""Sums that lose digits if they are made term by term: many equal terms, which are all rounded to
the same side. Ours may lose as many digits as TensorFlow's, not more."""

import numpy

from cases_conv import case

# Adding this to a larger number rounds down nearly always.
THIRD = numpy.float32(1 / 3)


def thirds(*shape):
    return numpy.full(shape, THIRD)


def within(rtol):
    return {"rtol": rtol, "atol": 0, "modes": ("static",)}


def products():
    for m, n in ((1, 5), (1, 64), (5, 1), (4, 5), (33, 2)):
        for transpose_a, transpose_b in ((False, False), (False, True), (True, False)):
            a = thirds(*((100000, m) if transpose_a else (m, 100000)))
            b = thirds(*((n, 100000) if transpose_b else (100000, n)))
            # TensorFlow's products with a vector lose more
            yield f"MatMul/{m}x{n},{transpose_a},{transpose_b}", *case(
                "MatMul", {"a": a, "b": b}, within(2e-4 if min(m, n) == 1 else 1e-5),
                transpose_a=transpose_a, transpose_b=transpose_b)


def convolutions():
    x, g = thirds(8, 56, 56, 4), thirds(8, 56, 56, 4)
    yield "DepthwiseConv2dNativeBackpropFilter", *case(
        "DepthwiseConv2dNativeBackpropFilter",
        {"input": x, "filter_sizes": numpy.array([1, 1, 4, 1], "int32"), "out_backprop": g},
        within(5e-5), strides=[1] * 4, padding="VALID")
    yield "Conv2D", *case("Conv2D", {"input": x, "filter": thirds(56, 56, 4, 16)}, within(1e-5),
                          strides=[1] * 4, padding="VALID")


def sums():
    places = numpy.stack([numpy.zeros(100000), numpy.arange(100000)], 1).astype("int64")
    inputs = {"input_indices": places, "input_values": thirds(100000),
              "input_shape": numpy.array([1, 100000]),
              "reduction_axes": numpy.array([1], "int32")}
    yield "SparseReduceSum", *case("SparseReduceSum", inputs, within(1e-5))
    for shape, axis in (((1000000,), 0), ((4, 250000), 1)):
        for op in ("Sum", "Mean"):
            inputs = {"input": thirds(*shape), "axis": numpy.int32(axis)}
            yield f"{op}/{shape}", *case(op, inputs, within(1e-5))
    yield "L2Loss", *case("L2Loss", {"t": thirds(1000000)}, within(1e-5))
    row = numpy.full((1, 1000000), numpy.log(numpy.float32(0.1)))
    row[0, 0] = 0
    for op in ("Softmax", "LogSoftmax"):
        yield op, *case(op, {"logits": row}, within(1e-5))
    yield "SoftmaxCrossEntropyWithLogits", *case(
        "SoftmaxCrossEntropyWithLogits", {"features": row, "labels": thirds(1, 1000000)},
        within(1e-5))


def cases():
    yield from products()
    yield from convolutions()
    yield from sums()
