"""Element by element: unary and binary formulas, broadcast, casts, choices: three sizes each."""

import numpy
import tensorflow as tf

from kernels import Row

R = tf.raw_ops
RNG = numpy.random.default_rng(2)
REASONS = {"Rsqrt": "a root and a division, rounded once each; TensorFlow refines the processor's "
                    "estimate"}
HALF = ("halves go through blocks of floats, loaded and stored apart from the sum; TensorFlow "
        "keeps them in registers")
SIZES = {"1k": (32, 32), "64k": (256, 256), "1M": (1024, 1024)}


def data(shape, dtype="float32", low=0.5, high=2.0):
    return tf.constant(RNG.uniform(low, high, shape), dtype=dtype)


def unary():
    for op in ("Exp", "Log", "Tanh", "Sigmoid", "Sqrt", "Rsqrt", "Square", "Erf", "Sin", "Floor"):
        for label, shape in SIZES.items():
            yield Row(f"{op} {label}", lambda op=op, shape=shape: getattr(R, op)(x=data(shape)),
                      REASONS.get(op, ""))
    for op in ("Relu", "Elu", "Softplus"):
        for label, shape in SIZES.items():
            yield Row(f"{op} {label}", lambda op=op,
                      shape=shape: getattr(R, op)(features=data(shape, low=-1.0, high=1.0)))


def binary():
    for op in ("AddV2", "Mul", "RealDiv", "Maximum", "Pow", "SquaredDifference", "Greater"):
        for label, shape in SIZES.items():
            yield Row(f"{op} {label}", lambda op=op,
                      shape=shape: getattr(R, op)(x=data(shape), y=data(shape)))
    for label, shape in SIZES.items():
        yield Row(f"AddV2 row {label}",
                  lambda shape=shape: R.AddV2(x=data(shape), y=data(shape[1:])))
        yield Row(f"Mul column {label}",
                  lambda shape=shape: R.Mul(x=data(shape), y=data((shape[0], 1))))
        yield Row(f"Mul scalar {label}", lambda shape=shape: R.Mul(x=data(shape), y=data(())))
        yield Row(f"FloorMod int32 {label}",
                  lambda shape=shape: R.FloorMod(
                      x=data(shape, "int32", 1, 1000), y=data(shape, "int32", 1, 30)))
        yield Row(f"AddV2 half {label}",
                  lambda shape=shape: R.AddV2(x=data(shape, "float16"), y=data(shape, "float16")),
                  HALF)
        yield Row(f"AddV2 bfloat16 {label}",
                  lambda shape=shape: R.AddV2(x=data(shape, "bfloat16"), y=data(shape, "bfloat16")))
        yield Row(f"TanhGrad {label}",
                  lambda shape=shape: R.TanhGrad(y=data(shape), dy=data(shape)))
        yield Row(f"ReluGrad {label}",
                  lambda shape=shape: R.ReluGrad(gradients=data(shape), features=data(shape)))
        yield Row(f"AddN of 4 {label}",
                  lambda shape=shape: R.AddN(inputs=[data(shape) for _ in range(4)]))


def others():
    for label, shape in SIZES.items():
        yield Row(f"SelectV2 {label}",
                  lambda shape=shape: R.SelectV2(
                      condition=tf.constant(RNG.integers(0, 2, shape).astype(bool)), t=data(shape),
                      e=data(shape)))
        for src, dst in (("float32", "int32"), ("float32", "float16"), ("uint8", "float32"),
                         ("int64", "int32")):
            yield Row(f"Cast {src} to {dst} {label}", lambda shape=shape, src=src,
                      dst=dst: R.Cast(x=data(shape, src, 1, 100), DstT=tf.as_dtype(dst)))


def rows():
    yield from unary()
    yield from binary()
    yield from others()
