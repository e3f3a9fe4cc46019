#!/usr/bin/env python3
"""Compares elementwise ops, reductions, softmaxes, scans, sorts, selections, segments, sparse
tensors and others of a simulated GPU with the CPU's kernels, in one cluster of ours.

    tests/cuda/run_ops.py [--long] [--only TEXT] [--seed N] [--replays] [--sample N] [--planted]

Each case is one op with fed operands, once for each device. The shapes are those at which the GPU's
kernels change their form: equal, scalar, rows, any broadcast, few and many outputs, chunks. The
simulated device reports races, missing barriers and addresses out of bounds, each of which is a
failure. What adds many numbers also runs with several seeds, which draw the order of blocks and
threads, and must give the same bits. With --replays each step runs five times, so that what it
repeats is replayed as CUDA graphs, and must give the same bits; nothing else is tested then.
Without --long types other than float take turns. --sample draws at most N cases by the seed. With
--planted, or --long without the others, parts of the plugin are also compiled with the bugs of
planted/ (planted_bugs.py), and the cases must find each. Ends with "N passed, N failed".
"""
import argparse
import glob
import inspect
import itertools
import os
import random
import re
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"))
# A sanitized build has no kernels of its own: the device process is not sanitized.
KERNELS = os.path.join(ROOT, os.environ.get("MILLRACE_KERNELS_BUILD", BUILD), "tests", "cuda")
sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

import planted_bugs  # noqa: E402
from cluster import Cluster  # noqa: E402
from function_cases import function_failures  # noqa: E402
from image_cases import image_cases  # noqa: E402
from product_cases import product_cases  # noqa: E402
from queue_cases import queue_failures  # noqa: E402
from rnn_cases import rnn_cases, rnn_failures  # noqa: E402
from window_cases import qint8_failures, window_cases  # noqa: E402

RAW, tf1 = tf.raw_ops, tf.compat.v1
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-11,
             "complex64": 1e-5, "complex128": 1e-11}
LONG_SUMS, SLACK = ("Cum", "Einsum", "BatchNorm", "Depthwise", "Conv", "LSTM", "BlockLSTM",
                    "GRU"), 20  # sums of many numbers
EXACT = "Image"  # cases of which the GPU must have the CPU's bits
BATCH = 60       # cases of one step
N_RUNS = 5       # of a step that is to be replayed

REAL = ["half", "bfloat16", "float32", "float64"]
HALF_TO_DOUBLE = ["half", "float32", "float64"]
WIDE = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INT = ["int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64"]
UNARY = {
    "Neg Sign": REAL + COMPLEX + ["int8", "int64"], "Abs": REAL + ["int16"],
    "Square": REAL + ["int8", "uint16", "uint64"], "Round": REAL + ["int32", "int64"],
    "Reciprocal Inv Exp Sin Cos Tan Sinh Cosh": REAL + COMPLEX,
    "Sqrt Rsqrt Expm1 Log Log1p Sigmoid Asin Acos Atan Tanh Asinh Acosh Atanh Floor Ceil IsNan "
    "IsInf IsFinite Erf Erfc Relu6 LeakyRelu Elu Selu L2Loss": REAL,
    "Rint Lgamma Digamma Softplus Softsign BesselI0 BesselI1 BesselI0e BesselI1e BesselJ0 BesselJ1 "
    "BesselK0 BesselK1 BesselK0e BesselK1e BesselY0 BesselY1": HALF_TO_DOUBLE,
    "Erfinv Ndtri Dawsn Expint Spence FresnelCos FresnelSin": WIDE,
    "Invert": INT + ["int32"], "PopulationCount": ["int8", "int16", "int32", "int64", "uint8"],
    "Conj": COMPLEX, "LogicalNot": ["bool"], "Relu": REAL + ["int8", "uint8", "int64"],
    "Softmax LogSoftmax": REAL, "ZerosLike OnesLike": REAL + COMPLEX + ["bool", "uint64"],
}
SPECIAL_PAIRS = "Zeta Polygamma Igamma Igammac IgammaGradA RandomGammaGrad"
BINARY = {
    "AddV2 Sub Mul Div": REAL + COMPLEX + INT, "MulNoNan": HALF_TO_DOUBLE + COMPLEX,
    "RealDiv DivNoNan Xlogy Xdivy Xlog1py": REAL + COMPLEX, "FloorDiv Maximum Minimum": REAL + INT,
    "TruncateDiv FloorMod": HALF_TO_DOUBLE + INT, "SquaredDifference": REAL + ["int64"],
    "Pow": REAL + ["int64"], "Atan2": REAL, "NextAfter": WIDE,
    "BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift": INT + ["int32"],
    "Less LessEqual Greater GreaterEqual": REAL + INT, "LogicalAnd LogicalOr": ["bool"],
    "Equal NotEqual": REAL + INT + COMPLEX + ["bool"],
    SPECIAL_PAIRS: WIDE,
}
GRADIENTS = ("ReciprocalGrad InvGrad SigmoidGrad TanhGrad SqrtGrad RsqrtGrad ReluGrad Relu6Grad "
             "LeakyReluGrad EluGrad SeluGrad SoftplusGrad SoftsignGrad")
REDUCTIONS = {"Sum": REAL + COMPLEX + ["int64"], "Prod": REAL + COMPLEX + ["int32", "int64"],
              "Mean EuclideanNorm": REAL + COMPLEX, "Max": REAL + ["int64"], "Min": REAL,
              "All Any": ["bool"]}
SCANS = {"Cumsum": REAL + ["int32", "int64"], "Cumprod": REAL, "CumulativeLogsumexp": REAL}
PAIRS = [([1003], [1003]), ([257], []), ([], [64]), ([16, 8, 4], [16, 1, 4]), ([37, 5], [5]),
         ([3, 1, 5, 1], [1, 4, 1, 7]), ([64, 32], [32]), ([64, 32], [64, 1])]
REDUCED = [([1003], [0]), ([4, 300], [1]), ([300, 4], [0]), ([40, 64], [0]), ([3, 4, 5, 6], [0, 2]),
           ([3, 4, 5, 6], [1, 3]), ([5, 5], [0, 1]), ([7, 3], []), ([0, 3], [0]), ([3, 70000], [1]),
           ([9000, 3], [0]), ([2, 1, 5], [1]), ([2048, 40], [0])]
ALONG = [([5000], 0), ([7, 9], 1), ([7, 9], 0), ([3, 300, 5], 1)]


class Cases:
    """Cases by name: a function that makes the op from placeholders, and what is fed."""

    def __init__(self, seed, only):
        self.rng, self.only, self.list = numpy.random.default_rng(seed), only, []

    def values(self, dtype, shape, low=-3, high=3, is_special=False):
        dtype = tf.as_dtype(dtype)
        if dtype == tf.bool:
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype.is_integer:
            limits = numpy.iinfo(dtype.as_numpy_dtype)
            values = self.rng.integers(max(limits.min, -60), min(limits.max, 60), shape)
            return numpy.asarray(values).astype(dtype.as_numpy_dtype)
        values = numpy.asarray(self.rng.uniform(low, high, shape))
        if dtype.is_complex:
            return (values + 1j * self.rng.uniform(low, high, shape)).astype(dtype.as_numpy_dtype)
        if is_special and values.size > 10:
            values.flat[:6] = [0, -0.0, numpy.nan, numpy.inf, -numpy.inf, 1]
        return values.astype(dtype.as_numpy_dtype)

    def add(self, name, make, *operands):
        if not self.only or self.only in name:
            self.list.append((name, make, operands))


def raw(op, n, **attrs):
    """A function of n operands that makes the op."""
    function = getattr(RAW, op)
    names = [name for name in inspect.signature(function).parameters][:n]
    return lambda *operands: function(**dict(zip(names, operands)), **attrs)


def each(table):
    for ops, dtypes in table.items():
        for op in ops.split():
            for dtype in dtypes:
                yield op, dtype


def elementwise_cases(cases):
    for op, dtype in each(UNARY):
        for shape in ([1003], [4, 64]):
            cases.add(f"{op}/{dtype}/{shape}", raw(op, 1),
                      cases.values(dtype, shape, is_special=True))
    for op, dtype in each(BINARY):
        for a, b in PAIRS:
            x, y = (cases.values(dtype, shape, is_special=True) for shape in (a, b))
            if "Div" in op or "Mod" in op:
                if y.dtype.kind in "iu":
                    y = numpy.where(y == 0, numpy.asarray(3, y.dtype), y)
            elif op == "Pow" and y.dtype.kind == "i":
                y = numpy.abs(y) % 7
            elif op in SPECIAL_PAIRS.split():
                x, y = cases.values(dtype, a, 1.5, 9), cases.values(dtype, b, 0.3, 9)
                x = numpy.floor(x) if op == "Polygamma" else x
            cases.add(f"{op}/{dtype}/{a}{b}", raw(op, 2), x, y)
    for op in GRADIENTS.split():
        for dtype in REAL:
            cases.add(f"{op}/{dtype}", raw(op, 2), cases.values(dtype, [1003], is_special=True),
                      cases.values(dtype, [1003]))


def mixed_cases(cases):
    every = REAL + INT + ["int32", "bool"] + COMPLEX
    for source in every:
        for target in every:
            values = cases.values(source, [133], -300 if source in REAL else 0, 300, True)
            cases.add(f"Cast/{source}/{target}", raw("Cast", 1, DstT=tf.as_dtype(target)), values)
    for dtype in REAL + COMPLEX + ["bool", "int32", "int64"]:
        x, y = cases.values(dtype, [6, 8]), cases.values(dtype, [6, 8])
        for shape in ([6, 8], [6], []):
            condition = cases.values("bool", shape)
            cases.add(f"Select/{dtype}/{shape}", raw("Select", 3), condition, x, y)
        cases.add(f"SelectV2/{dtype}", raw("SelectV2", 3), cases.values("bool", [6, 1]), x,
                  cases.values(dtype, [8]))
        cases.add(f"Fill/{dtype}", lambda value: RAW.Fill(dims=tf.constant([7, 9]), value=value),
                  cases.values(dtype, []))
    for dtype in REAL + ["int64", "uint8"]:
        cases.add(f"ClipByValue/{dtype}", raw("ClipByValue", 3), cases.values(dtype, [99]),
                  cases.values(dtype, []), cases.values(dtype, []))
    for dtype in WIDE + COMPLEX + ["int64", "uint32"]:
        for n in (1, 2, 5, 70, 140):
            cases.add(f"AddN/{dtype}/{n}", lambda *inputs: RAW.AddN(inputs=inputs),
                      *(cases.values(dtype, [45]) for _ in range(n)))
    for dtype in REAL:
        x, bias = cases.values(dtype, [5, 7, 4, 9]), cases.values(dtype, [9])
        cases.add(f"BiasAdd/{dtype}", raw("BiasAdd", 2), x, bias)
        cases.add(f"BiasAdd/NCHW/{dtype}", raw("BiasAdd", 2, data_format="NCHW"), x, bias[:7])
        for data_format in ("NHWC", "NCHW"):
            cases.add(f"BiasAddGrad/{data_format}/{dtype}",
                      raw("BiasAddGrad", 1, data_format=data_format), x)
        cases.add(f"chain/{dtype}", lambda a, b: tf.nn.relu(tf.exp(a) * b + a) - b,
                  cases.values(dtype, [64, 32]), cases.values(dtype, [32]))


def reduction_cases(cases, is_long):
    for op, dtype in each(REDUCTIONS):
        low, high = (0.9, 1.1) if op == "Prod" else (-3, 3)
        if op == "Prod" and dtype in COMPLEX:  # of a size near 1
            low, high = low / 2**0.5, high / 2**0.5
        for shape, axes in REDUCED:
            if numpy.prod(shape) > 20000 and dtype != "float32" and not is_long:
                continue
            make = lambda x, op=op, axes=axes: getattr(RAW, op)(  # noqa: E731
                input=x, axis=tf.constant(axes, tf.int32), keep_dims=len(axes) == 2)
            cases.add(f"{op}/{dtype}/{shape}{axes}", make, cases.values(dtype, shape, low, high))
    for dtype in REAL:
        for shape in ([1, 1], [5, 10], [3, 1500], [33, 40]):
            logits, labels = cases.values(dtype, shape), cases.values(dtype, shape, 0, 1)
            cases.add(f"CrossEntropy/{dtype}/{shape}", raw("SoftmaxCrossEntropyWithLogits", 2),
                      logits, labels)
            cases.add(f"CrossEntropy/broadcast/{dtype}/{shape}",
                      raw("SoftmaxCrossEntropyWithLogits", 2), logits[:1], labels)
            if dtype != "float64":
                cases.add(f"SparseCrossEntropy/{dtype}/{shape}",
                          raw("SparseSoftmaxCrossEntropyWithLogits", 2), logits,
                          cases.rng.integers(0, shape[1], shape[0]))
    for op in ("ArgMax", "ArgMin"):
        for dtype in REAL + ["bool"]:
            for shape, axis in ALONG:
                make = lambda x, op=op, axis=axis: getattr(RAW, op)(  # noqa: E731
                    input=x, dimension=tf.constant(axis), output_type=tf.int32)
                cases.add(f"{op}/{dtype}/{shape}{axis}", make, cases.values(dtype, shape))
    for op, dtype in each(SCANS):
        low, high = (0.97, 1.03) if op == "Cumprod" else (-1, 1)
        for shape, axis in ALONG:
            for mode in range(4):
                make = lambda x, op=op, axis=axis, mode=mode: getattr(RAW, op)(  # noqa: E731
                    x=x, axis=tf.constant(axis), exclusive=bool(mode & 1), reverse=mode > 1)
                cases.add(f"{op}/{dtype}/{shape}{axis}/{mode}", make,
                          cases.values(dtype, shape, low, high))


def select_cases(cases):
    for dtype in WIDE + COMPLEX + ["bool", "int8", "uint8", "int64"]:
        for shape in ([1], [5000], [7, 9], [3, 1, 5, 2], [0, 3], [2, 3001]):
            values = cases.values(dtype, shape, is_special=dtype in WIDE)
            kept = cases.rng.integers(0, 3, shape) == 0
            cases.add(f"Where/{dtype}/{shape}", raw("Where", 1),
                      numpy.where(kept, values, 0).astype(values.dtype))
        cases.add(f"Where/none/{dtype}", raw("Where", 1), cases.values(dtype, [70, 2]) * 0 != 0)
    for dtype in REAL + INT + ["int32", "bool"]:
        for n in (0, 1, 37, 5000, 9001):
            values = cases.values(dtype, [n], is_special=True)
            for out_idx in (tf.int32, tf.int64):
                cases.add(f"Unique/{dtype}/{n}", raw("Unique", 1, out_idx=out_idx), values)
            cases.add(f"UniqueWithCounts/{dtype}/{n}", raw("UniqueWithCounts", 1), values)
        cases.add(f"Unique/same/{dtype}", raw("Unique", 1), numpy.ones_like(values))
    for dtype in REAL + COMPLEX + ["int32", "int64"]:
        for shape, rank, n_parts in (([9, 3], 1, 2), ([5000], 1, 7), ([4, 6, 2], 2, 300),
                                     ([0], 1, 3), ([700, 2, 0], 1, 2)):
            parts = cases.rng.integers(0, n_parts, shape[:rank]).astype(numpy.int32)
            cases.add(f"DynamicPartition/{dtype}/{shape}{n_parts}",
                      lambda data, partitions, n=n_parts: tuple(RAW.DynamicPartition(
                          data=data, partitions=partitions, num_partitions=n)),
                      cases.values(dtype, shape), parts)


def order_cases(cases):
    for dtype in REAL + INT + ["int32"]:
        for shape, k in (([1003], 1), ([7, 300], 5), ([3, 5000], 64), ([2, 1500], 1500),
                         ([4, 2], 2), ([9, 1], 1), ([0, 5], 2), ([5, 3], 0), ([2, 2, 40], 7),
                         ([2, 1100], 1100)):
            values = cases.values(dtype, shape, is_special=True)
            cases.add(f"TopKV2/{dtype}/{shape}{k}",
                      lambda x, k=k: RAW.TopKV2(input=x, k=tf.constant(k)), values)
        for op in ("LowerBound", "UpperBound"):
            rows, values = cases.values(dtype, [4, 37]), cases.values(dtype, [4, 50])
            for out_type in (tf.int32, tf.int64):
                cases.add(f"{op}/{dtype}", raw(op, 2, out_type=out_type), numpy.sort(rows), values)
        cases.add(f"Cross/{dtype}", raw("Cross", 2), cases.values(dtype, [5, 3]),
                  cases.values(dtype, [5, 3]))
    for dtype in ("int32", "int64", "float32", "float64"):
        for boundaries in ([], [0.0], [-2.0, -1.0, 0.5, 0.5, 20.0]):
            cases.add(f"Bucketize/{dtype}/{len(boundaries)}",
                      raw("Bucketize", 1, boundaries=boundaries), cases.values(dtype, [301]))
    for index in ("int32", "int64"):
        predictions = cases.values("float32", [9, 400])
        predictions[2, 7], predictions[3] = numpy.nan, 1
        targets = cases.rng.integers(-1, 401, 9).astype(index)
        cases.add(f"InTopKV2/{index}", raw("InTopKV2", 3), predictions, targets,
                  numpy.asarray(40, index))
    for dtype in REAL + ["int64", "bool"]:
        places = cases.rng.integers(0, 60, [700, 2])
        cases.add(f"SparseReorder/{dtype}", raw("SparseReorder", 3), places,
                  cases.values(dtype, [700]), numpy.array([60, 60]))
        cases.add(f"SparseToDense/{dtype}",
                  lambda at, values: RAW.SparseToDense(
                      sparse_indices=at, output_shape=tf.constant([60, 60], tf.int64),
                      sparse_values=values, default_value=tf.cast(1, values.dtype),
                      validate_indices=False), places[:300], cases.values(dtype, [300]))


def count_cases(cases):
    for index in ("int32", "int64"):
        for weights in ("float32", "int32"):
            for shape in ([5000], [3, 400], [0]):
                values = cases.rng.integers(0, 40, shape).astype(index)
                size = lambda values: tf.constant(30, values.dtype)  # noqa: E731
                for is_binary in (False, True):
                    make = lambda values, weights, b=is_binary: RAW.DenseBincount(  # noqa: E731
                        input=values, size=size(values), weights=weights, binary_output=b)
                    cases.add(f"DenseBincount/{index}/{weights}/{shape}", make, values,
                              cases.values(weights, [0]))
                    cases.add(f"DenseBincount/weights/{index}/{weights}/{shape}", make, values,
                              cases.values(weights, shape, 0.5, 3))
    for dtype in WIDE:
        cases.add(f"HistogramFixedWidth/{dtype}",
                  lambda x: RAW.HistogramFixedWidth(
                      values=x, value_range=tf.cast([-1, 2], x.dtype), nbins=tf.constant(9)),
                  cases.values(dtype, [3000]))
    for dtype in REAL:
        for op in ("Sum", "Mean", "Prod", "Min", "Max"):
            low, high = (0.9, 1.1) if op == "Prod" else (-3, 3)
            for shape in ([500], [40, 3], [7, 300], [3000, 2], [1, 1], [0, 4]):
                for index in ("int32", "int64"):
                    ids = numpy.sort(cases.rng.integers(0, max(shape[0] // 5, 1) + 3, shape[0]))
                    cases.add(f"Segment{op}/{dtype}/{index}{shape}", raw(f"Segment{op}", 2),
                              cases.values(dtype, shape, low, high), ids.astype(index))
        for kind in ("Sum", "Mean", "SqrtN"):
            rows, ids = cases.rng.integers(0, 50, 300), numpy.sort(cases.rng.integers(0, 70, 300))
            data, op = cases.values(dtype, [50, 6]), f"SparseSegment{kind}"
            for index, id_type in (("int32", "int32"), ("int64", "int32"), ("int32", "int64")):
                operands = rows.astype(index), ids.astype(id_type)
                name = f"{dtype}/{index}/{id_type}"
                cases.add(f"{op}/{name}", raw(op, 3), data, *operands)
                cases.add(f"{op}WithNumSegments/{name}", lambda d, r, i, op=op: getattr(
                    RAW, op + "WithNumSegments")(data=d, indices=r, segment_ids=i,
                                                 num_segments=tf.constant(80)), data, *operands)
                grad = cases.values(dtype, [70, 6])
                cases.add(f"{op}Grad/{name}", lambda g, r, i, op=op: getattr(RAW, op + "Grad")(
                    grad=g, indices=r, segment_ids=i, output_dim0=tf.constant(55)), grad, *operands)
                cases.add(f"{op}GradV2/{name}", lambda g, r, i, op=op: getattr(RAW, op + "GradV2")(
                    grad=g, indices=r, segment_ids=i, dense_output_dim0=tf.constant(55)),
                    grad, *operands)
        if dtype != "bfloat16":
            cases.add(f"CheckNumerics/{dtype}", raw("CheckNumerics", 1, message="here"),
                      cases.values(dtype, [3000]))


def sparse_cases(cases):
    """More entries than a block has threads. Rows without entries are in most of them."""
    def entries(n, sizes):
        flat = numpy.sort(cases.rng.choice(numpy.prod(sizes), n, replace=False))
        return numpy.stack(numpy.unravel_index(flat, sizes), 1).astype(numpy.int64)

    def shape(*sizes):
        return tf.constant(sizes, tf.int64)

    for dtype in REAL + INT + ["bool"] + COMPLEX:
        at, values = entries(900, (300, 70)), cases.values(dtype, [900])
        more, others = entries(40, (11, 70)), cases.values(dtype, [40])
        cases.add(f"SparseConcat/{dtype}",
                  lambda a, x, b, y: tuple(RAW.SparseConcat(
                      indices=[a, b], values=[x, y], shapes=[shape(300, 70), shape(11, 70)],
                      concat_dim=0)), at, values, more, others)
        cases.add(f"SparseSlice/{dtype}",
                  lambda a, x: tuple(RAW.SparseSlice(indices=a, values=x, shape=shape(300, 70),
                                                     start=shape(20, 7), size=shape(200, 30))),
                  at, values)
        for axis, n_parts in ((0, 7), (1, 1), (1, 70)):
            cases.add(f"SparseSplit/{dtype}/{axis}/{n_parts}",
                      lambda a, x, axis=axis, n=n_parts: tuple(tf.nest.flatten(RAW.SparseSplit(
                          split_dim=shape(axis)[0], indices=a, values=x, shape=shape(300, 70),
                          num_split=n))), at, values)
        shuffled = cases.rng.permutation(900)
        cases.add(f"SparseFillEmptyRows/{dtype}",
                  lambda a, x, filler: tuple(RAW.SparseFillEmptyRows(
                      indices=a, values=x, dense_shape=shape(1500, 70), default_value=filler)),
                  at[shuffled], values, cases.values(dtype, []))
        if dtype not in ["bool", *COMPLEX]:
            # half sums on the CPU round after each addition
            marks = cases.rng.permutation(1200 if "float16" not in dtype and dtype != "half" else
                                          910)[:900]
            size = marks.max() + 1
            cases.add(f"SparseFillEmptyRowsGrad/{dtype}", raw("SparseFillEmptyRowsGrad", 2),
                      marks.astype(numpy.int64), cases.values(dtype, [int(size)]))
    for dtype in HALF_TO_DOUBLE + COMPLEX:
        for index in ("int32", "int64"):
            for adjoint_a, adjoint_b in itertools.product((False, True), (False, True)):
                for n in (1, 20) if index == "int64" else (260,):
                    at = cases.rng.permutation(entries(500, (40, 70))).astype(index)
                    at[:100, 0] = 17  # a long row, with entries that are repeated
                    b = (n, 40 if adjoint_a else 70)
                    cases.add(f"SparseTensorDenseMatMul/{dtype}/{index}/{adjoint_a}{adjoint_b}/{n}",
                              lambda at, x, b, t=adjoint_a, u=adjoint_b:
                              RAW.SparseTensorDenseMatMul(a_indices=at, a_values=x, b=b,
                                                          a_shape=shape(40, 70), adjoint_a=t,
                                                          adjoint_b=u),
                              at, cases.values(dtype, [500], 0.1, 1),
                              cases.values(dtype, b if adjoint_b else b[::-1], 0.1, 1))
    for dtype in REAL + ["int64", "bool"]:
        for index in ("int32", "int64"):
            at = entries(3000, (300, 70)).astype(index)
            cases.add(f"SparseToDense/validated/{dtype}/{index}",
                      lambda at, x: RAW.SparseToDense(
                          sparse_indices=at, output_shape=tf.constant([300, 70], at.dtype),
                          sparse_values=x, default_value=tf.cast(1, x.dtype)),
                      at, cases.values(dtype, [3000]))
    cases.add("SparseReshape", lambda a: tuple(RAW.SparseReshape(
        input_indices=a, input_shape=shape(300, 70), new_shape=shape(7, -1, 50))),
        entries(900, (300, 70)))


def other_cases(cases):
    for dtype in ("bfloat16", "float32", "float64", "int8", "uint8", "int64", "uint64", "half"):
        x, rows = cases.values(dtype, [37, 50]), cases.rng.integers(-90, 90, 600).astype("int32")
        for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
            if dtype in ("bfloat16", "half") and op != "InplaceUpdate":
                continue  # order and rounding: tests/differential
            cases.add(f"{op}/{dtype}", lambda x, i, v, op=op: getattr(RAW, op)(
                x=tf.identity(x), i=i, v=v), x, rows, cases.values(dtype, [600, 50]))
    for dtype in ("int32", "int64"):
        cases.add(f"DataFormatDimMap/{dtype}", raw("DataFormatDimMap", 1),
                  cases.rng.integers(-9, 9, 1003).astype(dtype))
    for dtype in HALF_TO_DOUBLE + COMPLEX:
        for equation, *shapes in (("ij,jk->ik", [33, 70], [70, 40]), ("iij->j", [40, 40, 33]),
                                  ("abc,cbd->da", [9, 20, 31], [31, 20, 5]),
                                  ("a->aa", [60]), ("ab,cd->ac", [7, 300], [8, 90]),
                                  ("...ab,...bc->...ac", [4, 1, 9, 8], [6, 8, 7])):
            operands = [cases.values(dtype, shape, -1, 1) for shape in shapes]
            if dtype == "half" and len(shapes) > 1:
                continue  # sums that one operand alone has are rounded on a GPU
            cases.add(f"Einsum/{dtype}/{equation}", lambda *inputs, e=equation: RAW.Einsum(
                inputs=inputs, equation=e), *operands)
    for dtype in REAL[:1] + WIDE:
        alpha = cases.values(dtype, [40], 0.2, 6)
        alpha[3] = 1
        cases.add(f"StatelessRandomGammaV2/{dtype}", lambda alpha: RAW.StatelessRandomGammaV2(
            shape=tf.constant([30, 40]), seed=tf.constant([3, 9]), alpha=alpha), alpha)
        cases.add(f"StatelessRandomGammaV3/{dtype}", lambda key, counter, alpha:
                  RAW.StatelessRandomGammaV3(shape=tf.constant([30, 40]), key=key, counter=counter,
                                             alg=tf.constant(1), alpha=alpha),
                  numpy.array([7], "uint64"), numpy.array([5, 6], "uint64"), alpha)


def repeated_cases(cases):
    """Many rows that are added to few places, in an order that would show in the last bits."""
    for dtype in ["half", "float32", "float64"]:
        data = cases.values(dtype, [3000, 5]) * 10.0 ** cases.rng.integers(-3, 3, [3000, 1])
        data, ids = data.astype(tf.as_dtype(dtype).as_numpy_dtype), cases.rng.integers(0, 9, 3000)
        cases.add(f"UnsortedSegmentSum/{dtype}", lambda x, at: RAW.UnsortedSegmentSum(
            data=x, segment_ids=at, num_segments=tf.constant(9)), data, ids)
        if dtype != "half":
            cases.add(f"TensorScatterAdd/{dtype}", lambda x, at: RAW.TensorScatterAdd(
                tensor=x[:9] * 0, indices=at[:, None], updates=x), data, ids)
        cases.add(f"ScatterNd/{dtype}", lambda x, at: RAW.ScatterNd(
            indices=at[:, None], updates=x, shape=tf.constant([9, 5], at.dtype)), data, ids)


def difference(name, cpu, gpu):
    """What differs, or None."""
    cpu, gpu = numpy.asarray(cpu), numpy.asarray(gpu)
    if cpu.dtype != gpu.dtype or cpu.shape != gpu.shape:
        return f"{cpu.dtype}{cpu.shape} on a CPU, {gpu.dtype}{gpu.shape} on a GPU"
    if cpu.dtype.name not in TOLERANCE:
        agrees = cpu == gpu
    elif name.startswith(EXACT):
        both_nan = numpy.isnan(cpu) & numpy.isnan(gpu)
        agrees = (cpu == gpu) & (numpy.signbit(cpu) == numpy.signbit(gpu)) | both_nan
    else:
        tolerance = TOLERANCE[cpu.dtype.name] * (SLACK if name.startswith(LONG_SUMS) else 1)
        wide = "complex128" if cpu.dtype.kind == "c" else "float64"
        x, y = cpu.astype(wide), gpu.astype(wide)
        agrees = numpy.isclose(x, y, tolerance, tolerance, True) | numpy.isnan(x) & numpy.isnan(y)
    if agrees.all():
        return None
    at = tuple(numpy.argwhere(~agrees)[0])
    return f"{(~agrees).sum()} of {cpu.size}, at {at} {cpu[at]} on a CPU, {gpu[at]} on a GPU"


def bits(values):
    return [numpy.asarray(x).tobytes() for both in values for x in both[1]]


def run_batch(target, part, n_runs=1):
    """The failures of some cases, which are one step. A step that fails is halved."""
    with tf1.Graph().as_default() as graph:
        fetches, feeds = [], {}
        for _, make, operands in part:
            both = []
            for device in ("CPU", "GPU"):
                with tf.device(f"/job:worker/task:0/device:{device}:0"):
                    places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
                    feeds.update(zip(places, operands))
                    both.append(make(*places))
            fetches.append([tf.nest.flatten(tuple(x) if isinstance(x, tuple) else x) for x in both])
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            try:
                values = session.run(fetches, feeds)
                later = [bits(session.run(fetches, feeds)) for _ in range(n_runs - 1)]
            except (tf.errors.UnavailableError, tf.errors.AbortedError):
                raise  # a session with a daemon that has died would wait for it
            except tf.errors.OpError as error:
                if len(part) == 1:
                    return [f"{part[0][0]}: {error.message}"]
                half = len(part) // 2
                return (run_batch(target, part[:half], n_runs) +
                        run_batch(target, part[half:], n_runs))
    found = [f"{part[0][0]} … {part[-1][0]}: other bits in a later run"
             for other in later if other != bits(values)]
    for (name, _, _), (cpu, gpu) in zip(part, values):
        different = [text for a, b in zip(cpu, gpu) if (text := difference(name, a, b))]
        found += [f"{name}: {different[0]}"] if different else []
    return found


# What adds many numbers: its bits must not depend on the order in which blocks and threads run.
SUMS = re.compile(r"(UnsortedSegment|TensorScatterAdd|ScatterNd|Sum|BiasAddGrad|L2Loss|Cumsum|"
                  r"SegmentSum|SparseSegment\w+|DenseBincount/weights|SparseFillEmptyRowsGrad|"
                  r"InplaceAdd|Einsum|SparseTensorDenseMatMul|\w*Pool(3D)?Grad|BatchNorm|Depthwise|"
                  r"BlockLSTMGrad)"
                  r".*/(half|float32|float64)\b")


def bits_on_gpu(target, listed):
    """The bytes that the cases give on the GPU."""
    found = []
    for first in range(0, len(listed), BATCH):
        with tf1.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
            fetches, feeds = [], {}
            for _, make, operands in listed[first:first + BATCH]:
                places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
                feeds.update(zip(places, operands))
                made = make(*places)
                fetches.append(tf.nest.flatten(tuple(made) if isinstance(made, tuple) else made))
            config = tf1.ConfigProto(allow_soft_placement=False)
            with tf1.Session(target, graph=graph, config=config) as session:
                found += [[numpy.asarray(value).tobytes() for value in values]
                          for values in session.run(fetches, feeds)]
    return found


def order_failures(listed, seeds, plugin):
    """The cases whose bits differ between orders that the simulated device draws."""
    by_seed = []
    for seed in seeds:
        os.environ["MILLRACE_SIM_SEED"] = str(seed)
        with Cluster(worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
            by_seed.append(bits_on_gpu(cluster.target, listed))
            cluster.check()
    return [f"{name}: other bits in another order"
            for (name, _, _), *values in zip(listed, *by_seed)
            if any(value != values[0] for value in values)]


def run_on(target, device, make, *operands):
    """What an op gives on one device."""
    with tf1.Graph().as_default() as graph, tf.device(f"/job:worker/task:0/device:{device}:0"):
        places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
        made = make(*places)
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            return session.run(made, dict(zip(places, operands)))


# mean, deviation, lower and upper bound: by normals, by uniform numbers and by exponential ones,
# from the lower tail, and with one bound
BOUNDS = [(1, 2, -4, 6), (0, 1, -0.5, 0.25), (1, 0.5, 2.5, 9), (0, 3, -30, -6),
          (-1, 1, -numpy.inf, 0), (2, 1, 1, numpy.inf)]


def distribution_failures(target):
    """ParameterizedTruncatedNormal, whose numbers are not the CPU's: it must have their
    distribution, by the statistic of Kolmogorov and Smirnov for 1 of 1000 wrong alarms."""
    n, failures = 3000, []
    most = 1.95 * (2 / n) ** 0.5
    wrong = [(0, 0, -1, 1), (0, 1, 1, 1), (0, 1, -numpy.inf, numpy.inf), (0, numpy.nan, 0, 1)]
    for dtype in HALF_TO_DOUBLE:
        def make(*parameters):
            names = ("means", "stdevs", "minvals", "maxvals")
            return RAW.ParameterizedTruncatedNormal(
                shape=tf.constant([parameters[0].shape[0], n]), seed=3, seed2=7,
                **dict(zip(names, parameters)))
        columns = numpy.array(BOUNDS, tf.as_dtype(dtype).as_numpy_dtype).T
        cpu, gpu = (run_on(target, device, make, *columns) for device in ("CPU", "GPU"))
        for (mean, deviation, low, high), x, y in zip(BOUNDS, cpu, gpu):
            name = f"ParameterizedTruncatedNormal/{dtype}/{mean},{deviation},{low},{high}"
            both = numpy.sort(numpy.concatenate([x, y]))
            counts = [numpy.searchsorted(numpy.sort(z), both, "right") for z in (x, y)]
            distance = numpy.abs(counts[0] - counts[1]).max() / n
            slack = 2 ** -8 if dtype == "half" else 0
            if not (numpy.all(y >= low - slack) and numpy.all(y <= high + slack)):
                failures.append(f"{name}: {y.min()} to {y.max()}")
            if distance > most:
                failures.append(f"{name}: a distance of {distance:.4f} from the CPU's numbers")
        columns = numpy.array(wrong + BOUNDS[:1], tf.as_dtype(dtype).as_numpy_dtype).T
        is_nan = numpy.isnan(run_on(target, "GPU", make, *columns))
        if not is_nan[:-1].all() or is_nan[-1].any():
            failures.append(f"ParameterizedTruncatedNormal/{dtype}: wrong parameters give "
                            f"{is_nan.mean(1)} of NaN")
    return failures


def entry_failures(target):
    """Entries out of range, repeated or out of order: what a GPU says, or does, about them."""
    def product(at, b):
        return RAW.SparseTensorDenseMatMul(a_indices=at, a_values=tf.ones([3]), b=b,
                                           a_shape=tf.constant([3, 2], tf.int64))

    def dense(at):
        return RAW.SparseToDense(sparse_indices=at, output_shape=tf.constant([400, 5], at.dtype),
                                 sparse_values=tf.constant(2.0), default_value=tf.constant(0.0))

    failures = []
    at = numpy.array([[0, 1], [1, 2], [5, 0]])  # entry 1 has no row of b, entry 2 none of a
    found = run_on(target, "GPU", product, at, numpy.array([[1, 2], [3, 4]], "float32"))
    if not numpy.array_equal(found, [[3, 4], [numpy.nan] * 2, [0, 0]], equal_nan=True):
        failures.append(f"SparseTensorDenseMatMul/out of range: {found.tolist()}")
    for index in ("int32", "int64"):
        right = numpy.stack(numpy.unravel_index(numpy.arange(0, 2000, 2), (400, 5)), 1)
        for where, entry in ((700, (-1, 2)), (700, (400, 0)), (999, (399, 5)), (0, (0, -7)),
                             (500, tuple(right[499])), (500, tuple(right[3])), (1, (0, 0))):
            at = right.astype(index)
            at[where], at[-1] = entry, (at[-1] if where == 999 else (9, 9))
            texts = []
            for device in ("CPU", "GPU"):
                try:
                    run_on(target, device, dense, at)
                    texts.append("no error")
                except tf.errors.InvalidArgumentError as error:
                    texts.append(re.search(r"indices\[\d+\] is [^\n\[]*", error.message)[0])
            if texts[0] != texts[1] or "indices" not in texts[0]:
                failures.append(f"SparseToDense/{index}/{entry} at {where}: {texts}")
    return failures


def optimizer_failures(target):
    """ProximalAdagrad of half, which TensorFlow's CPU does not have, beside NumPy."""
    failures, rows = [], numpy.array([4, 0, 2])
    rng = numpy.random.default_rng(3)
    var, grad = (rng.normal(size=(5, 3)).astype("float16") for _ in range(2))
    accum = rng.uniform(0.5, 1, (5, 3)).astype("float16")
    for is_sparse, is_resource in itertools.product((False, True), (False, True)):
        at = rows if is_sparse else numpy.arange(5)
        g = grad[:3] if is_sparse else grad
        with tf1.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
            values = [tf1.Variable(x, use_resource=is_resource) for x in (var, accum)]
            op = ("Resource" if is_resource else "") + ("Sparse" if is_sparse else "")
            extra = {"indices": tf.constant(rows)} if is_sparse else {}
            refs = [v.handle if is_resource else v._ref() for v in values]
            lr, l1, l2 = (tf.constant(x, tf.float16) for x in (0.1, 0.2, 0.3))
            step = getattr(RAW, op + "ApplyProximalAdagrad")(
                var=refs[0], accum=refs[1], lr=lr, l1=l1, l2=l2, grad=tf.constant(g), **extra)
            config = tf1.ConfigProto(allow_soft_placement=False)
            with tf1.Session(target, graph=graph, config=config) as session:
                session.run([v.initializer for v in values])
                session.run(step.op if hasattr(step, "op") else step)
                found = session.run([v.read_value() for v in values])
        x, a, g = (z.astype("float64") for z in (var[at], accum[at], g))
        a = a + g * g
        rate = 0.1 / numpy.sqrt(a)
        x = x - g * rate
        x = numpy.sign(x) * numpy.maximum(numpy.abs(x) - rate * 0.2, 0) / (1 + rate * 0.3)
        expected = [var.astype("float64"), accum.astype("float64")]
        expected[0][at], expected[1][at] = x, a
        if not all(numpy.allclose(f, e, 3e-3, 1e-3) for f, e in zip(found, expected)):
            failures.append(f"ProximalAdagrad/half/{op}: {found} instead of {expected}")
    return failures


def list_of(*values):
    made = RAW.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.float32)
    for value in values:
        made = RAW.TensorListPushBack(input_handle=made, tensor=value)
    return made


def stack(made):
    return RAW.TensorListStack(input_handle=made, element_shape=[3], element_dtype=tf.float32)


def list_variable_failures(target, index):
    """A variable of lists that a GPU keeps, with indices of a type."""
    with tf1.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
        x, at = tf1.placeholder(tf.float32, [3]), tf1.placeholder(index, [])
        cpu = "/job:worker/task:0/device:CPU:0"  # for ops that GPUs have not for variants
        three = [list_of(x * 2), list_of(x * 3), list_of(x * 4)]
        with tf.device(cpu):
            lists = RAW.Pack(values=three)
        v = RAW.VarHandleOp(dtype=tf.variant, shape=[3])
        assign = RAW.AssignVariableOp(resource=v, value=lists)
        kept = RAW.ReadVariableOp(resource=v, dtype=tf.variant)
        read = stack(RAW.ResourceGather(resource=v, indices=at, dtype=tf.variant))
        with tf.control_dependencies([kept]):  # so that the update has to copy the variants
            update = RAW.ResourceScatterUpdate(resource=v, indices=at, updates=list_of(x * 5))
        with tf.control_dependencies([update]):
            former = tf.identity(kept)
            pair = RAW.ResourceGather(resource=v, indices=tf.stack([at, 0]), dtype=tf.variant)
        with tf.device(cpu):
            parts = RAW.Unpack(value=former, num=3) + RAW.Unpack(value=pair, num=2)
        updated = [stack(made) for made in parts]
    value, failures = numpy.arange(3, dtype="float32"), []
    config = tf1.ConfigProto(allow_soft_placement=False)
    with tf1.Session(target, graph=graph, config=config) as session:
        session.run(assign, {x: value})
        found = [session.run(read, {at: 1})] + session.run(updated, {x: value, at: 2})
        found.append(session.run(read, {at: 2}))
        for name, wrong in (("ResourceGather", read), ("ResourceScatterUpdate", update)):
            try:
                failures.append(f"{name}/variant: {session.run(wrong, {x: value, at: 3})}")
            except tf.errors.InvalidArgumentError:
                pass
    if not numpy.array_equal(found, [[value * k] for k in (3, 2, 3, 4, 5, 2, 5)]):
        failures.append(f"ResourceGather and ResourceScatterUpdate/variant: {found}")
    return failures


def variant_failures(target):
    """Ops that hand lists on, whose tensors stay in the GPU's memory."""
    ops = {"Conj": lambda made: RAW.Conj(input=made),
           "EnsureShape": lambda made: RAW.EnsureShape(input=made, shape=[]),
           "PlaceholderWithDefault": lambda made: RAW.PlaceholderWithDefault(input=made, shape=[])}
    failures, x = [], numpy.arange(3, dtype="float32")
    for name, op in ops.items():
        found = run_on(target, "GPU", lambda x, op=op: stack(op(list_of(x * 2, x + 1))), x)
        if not numpy.array_equal(found, [x * 2, x + 1]):
            failures.append(f"{name}/variant: {found}")

    def wrong(x):
        hidden = RAW.PlaceholderWithDefault(input=list_of(x), shape=None)
        return stack(RAW.EnsureShape(input=hidden, shape=[1]))
    try:
        failures.append(f"EnsureShape/variant: {run_on(target, 'GPU', wrong, x)}")
    except tf.errors.InvalidArgumentError:
        pass
    return failures + [failure for index in (tf.int32, tf.int64)
                       for failure in list_variable_failures(target, index)]


def device_failures(target):
    """Ops that a GPU has and TensorFlow's CPU has not, and those that only hand values over."""
    failures = []
    x = numpy.array([5, 1, -1, 0, -7, 1 << 40])
    for op in (RAW.Reciprocal, RAW.Inv):
        found = run_on(target, "GPU", lambda x, op=op: op(x=x), x)
        if found.tolist() != [0, 1, -1, -1, 0, 0]:
            failures.append(f"Reciprocal/int64: {found}")

    def relu(x):
        return tf.bitcast(RAW.Relu(features=tf.bitcast(x, tf.qint8)), tf.int8)
    for shape in ([256], [3, 5, 4], [0], [2, 2]):
        x = numpy.resize(numpy.arange(-128, 128), shape).astype("int8")
        found = run_on(target, "GPU", relu, x)
        if not numpy.array_equal(found, numpy.maximum(x, 0)):
            failures.append(f"Relu/qint8/{shape}: {found}")
    try:
        failures.append(f"Relu/qint8: {run_on(target, 'GPU', relu, x.reshape(-1)[:3])}")
    except tf.errors.InvalidArgumentError as error:
        if "multiple of 4" not in error.message:
            failures.append(f"Relu/qint8: {error.message}")
    x = numpy.arange(6, dtype="float32").reshape(2, 3)
    if not numpy.array_equal(run_on(target, "GPU", lambda x: RAW.Copy(input=x) * 2, x), x * 2):
        failures.append("Copy")
    zeros = run_on(target, "GPU", lambda x: RAW.FakeParam(dtype=tf.float32, shape=[2, 3]) + x, x)
    if not numpy.array_equal(zeros, x):
        failures.append(f"FakeParam: {zeros}")

    def synced(x):
        product = x * 3
        with tf.control_dependencies([product]):
            wait = RAW.SyncDevice()
        with tf.control_dependencies([wait]):
            return tf.identity(product)
    if not numpy.array_equal(run_on(target, "GPU", synced, x), x * 3):
        failures.append("SyncDevice")
    gpu, cpu = (f"/job:worker/replica:0/task:0/device:{device}:0" for device in ("GPU", "CPU"))
    with tf1.Graph().as_default() as graph, tf.device(gpu):
        handle = RAW.GetSessionHandle(value=tf.constant(x) + 1)
        place = tf1.placeholder(tf.string)
        kept = RAW.GetSessionTensor(handle=place, dtype=tf.float32) * 2
        delete = RAW.DeleteSessionTensor(handle=place)
        with tf.device(cpu):
            moved = RAW.GetSessionTensor(handle=place, dtype=tf.float32)
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            made = session.run(handle)  # lives, or the tensor would be deleted
            name = made.handle
            if gpu not in str(name):
                failures.append(f"GetSessionHandle: {name}")
            if not numpy.array_equal(session.run(kept, {place: name}), (x + 1) * 2):
                failures.append("GetSessionTensor")
            try:
                failures.append(f"GetSessionTensor on a CPU: {session.run(moved, {place: name})}")
            except tf.errors.InvalidArgumentError as error:
                if "is not in the memory of" not in error.message:
                    failures.append(f"GetSessionTensor on a CPU: {error.message}")
            session.run(delete, {place: name})
            try:
                failures.append(f"GetSessionTensor/deleted: {session.run(kept, {place: name})}")
            except tf.errors.InvalidArgumentError:
                pass
    return failures


def reports(cluster):
    """What the simulated device says in the daemons' logs."""
    for daemon in cluster.daemons:
        with open(daemon.log_path, errors="replace") as log:
            yield from (line.strip() for line in log if line.startswith("simulated device"))


def finds_bug(listed, kernels, plugin):
    """What the cases find, or None."""
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    with Cluster(worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
        for first in range(0, len(listed), BATCH):
            failures = run_batch(cluster.target, listed[first:first + BATCH])
            if failures:
                return failures[0]
        return next(reports(cluster), None)


def planted_failures(listed, kernels, plugin):
    """The bugs that no case finds, and how many there are."""
    missed, n = [], 0
    for name, pattern in planted_bugs.CASES.items():
        chosen = [case for case in listed if re.search(pattern, case[0])]
        for patch in planted_bugs.patches(name) if chosen else ():
            with tempfile.TemporaryDirectory() as work:
                found = finds_bug(chosen, *planted_bugs.variant(patch, kernels, plugin, work))
            print(f"{os.path.basename(patch)}: {found or 'not found'}")
            missed += [] if found else [f"{os.path.basename(patch)}: not found"]
            n += 1
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    return missed, n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replays", action="store_true", help="run each step five times")
    parser.add_argument("--sample", type=int, metavar="N", help="at most this many cases")
    parser.add_argument("--planted", action="store_true", help="find the bugs of planted/ as well")
    arguments = parser.parse_args()
    cases = Cases(arguments.seed, arguments.only)
    elementwise_cases(cases)
    mixed_cases(cases)
    reduction_cases(cases, arguments.long)
    select_cases(cases)
    order_cases(cases)
    count_cases(cases)
    sparse_cases(cases)
    other_cases(cases)
    repeated_cases(cases)
    window_cases(cases)
    image_cases(cases)
    rnn_cases(cases)
    product_cases(cases)
    listed = cases.list
    if not arguments.long:
        listed = [case for i, case in enumerate(listed) if "float32" in case[0] or i % 4 == 0]
    if arguments.sample and arguments.sample < len(listed):
        listed = random.Random(arguments.seed).sample(listed, arguments.sample)
    tests = os.path.join(BUILD, "tests", "cuda")
    path = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["LD_LIBRARY_PATH"] = os.path.join(tests, "sim") + (":" + path if path else "")
    os.environ["MILLRACE_SIM_DEVICES"] = "1"
    os.environ["MILLRACE_SIM_SEED"] = str(arguments.seed)
    kernels = glob.glob(os.path.join(KERNELS, "gpu_*.so"))
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    plugin = os.path.join(BUILD, "kernels", "cuda", "millrace-cuda.so")
    with Cluster(worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
        failures = []
        for first in range(0, len(listed), BATCH):
            failures += run_batch(cluster.target, listed[first:first + BATCH],
                                  N_RUNS if arguments.replays else 1)
        n_alone = 0
        for name, check in (("ParameterizedTruncatedNormal", distribution_failures),
                            ("SparseT", entry_failures), ("ApplyProximal", optimizer_failures),
                            ("Variant", variant_failures), ("Function", function_failures),
                            ("RNNWrong", rnn_failures), ("Queue", queue_failures),
                            ("MaxPool/qint8", qint8_failures),
                            ("Device", device_failures)):
            if arguments.replays:
                break
            if not arguments.only or name.startswith(arguments.only[:len(name)]):
                failures += check(cluster.target)
                n_alone += 1
        n_replays = sum(int(n) for task in cluster.tasks for n in re.findall(
            r"^millrace_device_replays_total{.*GPU.*} (\d+)$", task.page("/metrics"), re.M))
        if arguments.replays and listed and n_replays == 0:
            failures.append("nothing was replayed")
        failures += reports(cluster)
        cluster.check()
    sums = [case for case in listed if SUMS.match(case[0]) and not arguments.replays]
    first = arguments.seed
    if sums:
        seeds = range(first, first + (10 if arguments.long else 3))
        failures += order_failures(sums, seeds, plugin)
    n_planted = 0
    if arguments.planted or arguments.long and not (arguments.replays or arguments.sample):
        missed, n_planted = planted_failures(cases.list, kernels, plugin)
        failures += missed
    print("\n".join(failures))
    n_run = len(listed) + len(sums) + n_alone + n_planted
    print(f"{n_run - len(failures)} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
