"""Cases of run_ops.py: elementwise ops, casts, selections, reductions, softmaxes, scans, sorts, ops
that move elements. The other modules of cases use what is here."""
import inspect
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

RAW = tf.raw_ops
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
