"""Cases of isotonic regression, and of index shuffles."""

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
OUT = {"int8": "float32", "int16": "float32", "int32": "float64", "int64": "float64"}


def isotonic(value, out=None):
    out = tf.as_dtype(out or OUT.get(value.dtype.name, value.dtype.name))

    def build():
        result = R.IsotonicRegression(input=oracle.const(value), output_dtype=out)
        return [result.output, result.segments]

    return build


def shuffle(index, seed, largest, dtype="int32", seed_dtype="int32", **attrs):
    def build():
        inputs = {"index": numpy.array(index, dtype), "seed": numpy.array(seed, seed_dtype),
                  "max_index": numpy.array(largest, dtype)}
        return [R.RandomIndexShuffle(**{k: oracle.const(v) for k, v in inputs.items()}, **attrs)]

    return build


def cases():
    rng = numpy.random.default_rng(1)
    for dtype in ("float16", "float32", "float64", "int8", "int16", "int32", "int64"):
        for shape in ((7,), (3, 5), (2, 2, 40), (), (0,), (2, 0), (0, 2), (1, 1)):
            yield f"IsotonicRegression/{dtype}/{shape}", isotonic(
                rng.integers(-20, 20, shape).astype(dtype) if shape else numpy.array(3, dtype)), {
                    "rtol": 1e-2 if dtype == "float16" else 1e-5}
    yield "IsotonicRegression/bfloat16", isotonic(
        numpy.array([[1, 3, 2, 5]], tf.bfloat16.as_numpy_dtype), "bfloat16"), {"rtol": 1e-2}
    for row in ([4, 4, 5, 1, 6], [3, 3, 3], [5, 4, 3], [numpy.nan, 1, 2], [2, numpy.nan, 1],
                [numpy.inf, 1, 2]):
        yield f"IsotonicRegression/{row}", isotonic(numpy.array([row], "float32")), {"rtol": 1e-5}
    yield "IsotonicRegression/types", isotonic(numpy.zeros((1, 2), "float32"), "float64")
    for dtype in ("int32", "uint32", "int64", "uint64"):
        for seed_dtype in ("int32", "uint32", "int64", "uint64"):
            yield f"RandomIndexShuffle/{dtype}/{seed_dtype}", shuffle(
                numpy.arange(50), [1, 2, 3], 49, dtype, seed_dtype)
        for largest in (0, 1, 2, 3, 255, 65535, 65536, 65537, 1 << 20, (1 << 31) - 1):
            yield f"RandomIndexShuffle/{dtype}/to {largest}", shuffle(
                numpy.minimum(numpy.arange(6), largest), [7, 8, 9], largest, dtype)
    for largest in ((1 << 33) + 1, (1 << 62) + 5, (1 << 63) - 1):
        yield f"RandomIndexShuffle/to {largest}", shuffle(
            [0, 1, 12345], [7, 8, 9], largest, "int64", "int64")
    yield "RandomIndexShuffle/largest", shuffle([0, 5], [1, 2, 3], (1 << 64) - 1, "uint64")
    for rounds in (4, 6, 8, 20):  # with others TensorFlow reads keys that it does not have
        yield f"RandomIndexShuffle/{rounds} rounds", shuffle(
            [0, 1, 2], [1, 2, 3], 100, rounds=rounds)
    for name, arguments in {
        "scalars": (3, [1, 2, 3], 10), "seeds": ([0, 1], [[1, 2, 3], [4, 5, 6]], [9, 7]),
        "one index": (1, [[1, 2, 3], [4, 5, 6]], 9),
        "maxima": (1, [1, 2, 3], [9, 7]), "one seed": (1, [[1, 2, 3]], 9),
        "none": ([], [1, 2, 3], 9), "negative seed": ([1], [-1, -2, -3], 9),
        "beyond": (5, [1, 2, 3], 3), "negative": (-1, [1, 2, 3], 3),
        "negative largest": (0, [1, 2, 3], -1), "short seed": (0, [1, 2], 3),
        "sizes": ([0, 1], [1, 2, 3], [5, 6, 7]), "matrix": ([[0]], [1, 2, 3], 4),
        "matrix largest": (0, [1, 2, 3], [[4]]),
        "seeds of another": ([0, 1, 2], [[1, 2, 3]] * 2, 4),
    }.items():  # fmt: skip
        yield f"RandomIndexShuffle/{name}", shuffle(*arguments)
