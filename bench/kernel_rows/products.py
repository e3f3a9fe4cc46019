"""Matrix products, dense linear algebra and Fourier transforms: three sizes each."""

import numpy
import tensorflow as tf

from kernels import Row

R = tf.raw_ops
RNG = numpy.random.default_rng(3)


NARROW = "multiplied as floats, rounded once; TensorFlow has the processor's products of bfloat16"
DOUBLES = ("in doubles whatever the type, in one copy for several dimensions; TensorFlow "
           "transforms floats")


def data(*shape, dtype="float32"):
    return tf.constant(RNG.normal(size=shape), dtype=dtype)


def positive(batch, n, dtype):
    a = RNG.normal(size=(batch, n, n))
    return tf.constant(a @ a.transpose(0, 2, 1) + n * numpy.eye(n), dtype=dtype)


def products():
    for label, (m, k, n) in {"8": (8, 8, 8), "64": (64, 64, 64), "512": (512, 512, 512),
                             "LSTM": (32, 512, 1024), "MLP": (64, 784, 256)}.items():
        yield Row(f"MatMul {label}", lambda m=m, k=k, n=n: R.MatMul(a=data(m, k), b=data(k, n)))
        yield Row(f"MatMul {label}, a transposed", lambda m=m, k=k,
                  n=n: R.MatMul(a=data(k, m), b=data(k, n), transpose_a=True))
        yield Row(f"MatMul {label}, b transposed", lambda m=m, k=k,
                  n=n: R.MatMul(a=data(m, k), b=data(n, k), transpose_b=True))
    for label, n in {"64": 64, "512": 512, "2048": 2048}.items():
        yield Row(f"MatMul vector {label}", lambda n=n: R.MatMul(a=data(1, n), b=data(n, n)))
    for dtype in ("float64", "complex64", "int32", "float16", "bfloat16"):
        for n in (16, 64, 256):
            value = (lambda n, dtype=dtype: tf.constant(RNG.integers(-9, 9, (n, n)), dtype=dtype))
            yield Row(f"MatMul {dtype} {n}", lambda n=n,
                      value=value: R.MatMul(a=value(n), b=value(n)), NARROW if "16" in dtype
                      else "")
    for label, (batch, m, k, n) in {"attention": (32, 64, 32, 64), "many": (512, 8, 8, 8),
                                    "large": (8, 128, 128, 128)}.items():
        yield Row(f"BatchMatMulV2 {label}", lambda b=batch, m=m, k=k,
                  n=n: R.BatchMatMulV2(x=data(b, m, k), y=data(b, k, n)),
                  "a call for each product of 8 x 8" if label == "many" else "")
    for label, (n, rows, k, columns) in {"small": (100, 20, 30, 8),
                                         "middle": (5000, 1000, 1000, 32),
                                         "large": (50000, 10000, 5000, 64)}.items():

        def sparse(n=n, rows=rows, k=k, columns=columns):
            flat = numpy.sort(RNG.choice(rows * k, n, replace=False))
            return R.SparseTensorDenseMatMul(a_indices=tf.constant(
                numpy.stack([flat // k, flat % k], 1)), a_values=data(n), a_shape=[rows, k],
                                             b=data(k, columns))

        yield Row(f"SparseTensorDenseMatMul {label}", sparse)


def linear_algebra():
    for label, (batch, n) in {"8": (16, 8), "64": (4, 64), "256": (1, 256)}.items():
        yield Row(f"Cholesky {label}", lambda b=batch,
                  n=n: R.Cholesky(input=positive(b, n, "float32")))
        yield Row(f"MatrixInverse {label}", lambda b=batch,
                  n=n: R.MatrixInverse(input=positive(b, n, "float32")))
        yield Row(f"MatrixSolve {label}", lambda b=batch,
                  n=n: R.MatrixSolve(matrix=positive(b, n, "float64"),
                                     rhs=data(b, n, 4, dtype="float64")))
        yield Row(f"MatrixTriangularSolve {label}", lambda b=batch,
                  n=n: R.MatrixTriangularSolve(matrix=positive(b, n, "float32"), rhs=data(b, n, n)))
        yield Row(f"MatrixDeterminant {label}", lambda b=batch,
                  n=n: R.MatrixDeterminant(input=positive(b, n, "float64") / n))
        yield Row(f"Qr {label}", lambda b=batch, n=n: R.Qr(input=data(b, n, n))[0])
        yield Row(f"SelfAdjointEigV2 {label}", lambda b=batch,
                  n=n: R.SelfAdjointEigV2(input=positive(b, n, "float32"))[0])
        yield Row(f"Svd {label}", lambda b=batch, n=n: R.Svd(input=data(b, n, n))[0])


def fourier():
    for label, shape in {"256": (8, 256), "1000": (16, 1000), "65536": (2, 65536)}.items():
        yield Row(f"FFT {label}", lambda s=shape: R.FFT(input=tf.complex(data(*s), data(*s))),
                  DOUBLES)
        yield Row(f"RFFT {label}", lambda s=shape: R.RFFT(input=data(*s), fft_length=[s[1]]),
                  DOUBLES + ", and real numbers as such")
    for label, n in {"16": 16, "128": 128, "512": 512}.items():
        yield Row(f"FFT2D {label}",
                  lambda n=n: R.FFT2D(input=tf.complex(data(2, n, n), data(2, n, n))), DOUBLES)


def rows():
    yield from products()
    yield from linear_algebra()
    yield from fourier()
