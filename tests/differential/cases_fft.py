"""Cases of the Fourier transforms."""

import itertools

import numpy
import tensorflow as tf

import oracle

RAW = tf.raw_ops
SUFFIXES = {1: "", 2: "2D", 3: "3D"}
TOLERANCE = {"float32": 3e-5, "complex64": 3e-5, "float64": 1e-11, "complex128": 1e-11}
SHAPES = {
    1: [(n,) for n in (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 25, 36, 60, 97, 128, 360, 1000,
                       1009, 2 * 1009, 13 * 17)] + [(3, 6), (2, 3, 10), (0, 4), (2, 0)],
    2: [(1, 1), (2, 3), (8, 8), (17, 6), (3, 5, 7), (2, 1, 4, 19), (0, 3, 4), (2, 0, 3)],
    3: [(1, 1, 1), (2, 3, 4), (4, 4, 4), (2, 5, 3, 17), (2, 1, 3, 6, 2), (0, 2, 3, 4)],
}


def const(values, dtype):
    return oracle.const(numpy.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype),
                        tf.as_dtype(dtype))


def options(dtype, shape):
    size = numpy.sqrt(max(1, numpy.prod(shape[-3:])))
    return {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype] * size}


def real_case(op, value, length, complex_dtype):
    real = "float32" if complex_dtype == "complex64" else "float64"
    own, attr = (complex_dtype, {"Treal": tf.as_dtype(real)}) if op.startswith("I") else (
        real, {"Tcomplex": tf.as_dtype(complex_dtype)})
    return lambda: [getattr(RAW, op)(input=const(value, own), fft_length=const(length, "int32"),
                                     **attr)]


def cases():
    rng = numpy.random.default_rng(5)
    for rank, dtype in itertools.product((1, 2, 3), ("complex64", "complex128")):
        for shape in SHAPES[rank]:
            value = rng.normal(size=shape) + 1j * rng.normal(size=shape)
            for op in ("FFT" + SUFFIXES[rank], "IFFT" + SUFFIXES[rank]):
                yield f"{op}/{dtype}/{shape}", lambda op=op, d=dtype, v=value: [
                    getattr(RAW, op)(input=const(v, d))], options(dtype, shape)
            lengths = shape[-rank:]
            for cut in (0, 1):
                length = [n - cut for n in lengths]
                if min(length) < 1:  # TensorFlow's process ends
                    continue
                yield f"RFFT{SUFFIXES[rank]}/{dtype}/{shape}{cut}", real_case(
                    "RFFT" + SUFFIXES[rank], value.real, length, dtype), options(dtype, shape)
            for last in {2 * lengths[-1] - 2, 2 * lengths[-1] - 1, lengths[-1]}:
                if min(lengths) < 1 or last < 1:
                    continue
                yield f"IRFFT{SUFFIXES[rank]}/{dtype}/{shape}{last}", real_case(
                    "IRFFT" + SUFFIXES[rank], value, [*lengths[:-1], last], dtype), options(
                        dtype, shape)
    for rank in (1, 2, 3):
        suffix, shape = SUFFIXES[rank], (4, 4, 4)[:rank]
        for op in ("FFT" + suffix, "IFFT" + suffix):
            yield f"{op}/wrong/rank", lambda op=op, r=rank: [
                getattr(RAW, op)(input=const(numpy.ones((4,) * (r - 1)), "complex64"))]
        for op, value in (("RFFT" + suffix, numpy.ones(shape)),
                          ("IRFFT" + suffix, numpy.ones(shape))):
            for length in ([4] * (rank - 1) + [-1], [4] * (rank - 1), [4] * (rank + 1), 4,
                           [4] * (rank - 1) + [5], [4] * (rank - 1) + [9], [5] + [4] * (rank - 1)):
                yield f"{op}/wrong/{length}", real_case(op, value, length, "complex64"), options(
                    "complex64", shape)
            yield f"{op}/wrong/rank", real_case(op, numpy.ones(shape[1:]), [4] * rank, "complex64")
