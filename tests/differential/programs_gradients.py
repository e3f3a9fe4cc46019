"""SymbolicGradient against tf.gradients: for each op with a gradient row a function of it, whose
SymbolicGradient the cluster expands, and in process the same op differentiated by TensorFlow's
client. Gradients of the outputs are fed, so that each output has another one."""

import zlib

import numpy as np
from programs import PS, WORKER1, Run, tf, tf1
from tensorflow.python.framework import function as legacy
from tensorflow.python.ops import functional_ops

raw = tf.raw_ops
REAL = ("float32", "float64")
ALL = REAL + ("complex64", "complex128")


def _values(name, shape, dtype, low, high):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    value = rng.uniform(low, high, shape)
    if "complex" in dtype:
        value = value + 1j * rng.uniform(low, high, shape)
    return value.astype(dtype)


def _output_gradients(name, f, xs):
    """A gradient for each output of f, as f makes it of xs."""
    graph = tf.Graph()
    with graph.as_default():
        ys = f(*[tf.constant(x) for x in xs])
    with tf1.Session("", graph=graph) as session:
        return [_values(f"{name} dy {i}", y.shape, y.dtype.name, -1, 1) for i,
                y in enumerate(session.run(ys))]


def _outputs(f):
    def listed(*xs):
        ys = f(*xs)
        return list(ys) if isinstance(ys, (list, tuple)) else [ys]

    return listed


def _symbolic(f, xs, dys):
    with tf.Graph().as_default():  # a function of its own for each case
        pass
    function = legacy.Defun(*[x.dtype.base_dtype for x in xs])(lambda *args: tuple(f(*args)))
    function.add_to_graph(tf1.get_default_graph())
    return functional_ops.symbolic_gradient(input=[*xs, *dys],
                                            Tout=[x.dtype.base_dtype for x in xs], f=function)


def _client(f, xs, dys):
    found = tf1.gradients(f(*xs), xs, dys, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(dx) for dx in found]


def case(name, f, xs, client=_client, **options):
    """`f`: of tensors to one or several. `xs`: arrays. `client`: how TensorFlow differentiates."""
    f, dys = _outputs(f), []

    def build(differentiate):
        if not dys:
            dys.extend(_output_gradients(name, f, xs))
        places = [tf1.placeholder(v.dtype, v.shape) for v in [*xs, *dys]]
        feeds = dict(zip(places, [*xs, *dys]))
        return [Run(list(differentiate(f, places[: len(xs)], places[len(xs) :])), feeds)]

    return f"gradient/{name}", lambda: build(_symbolic), {
        "oracle": lambda: build(client), "node": False, "rtol": 1e-4, **options}


def over(dtypes, name, f, *shapes, low=-2.0, high=2.0, **options):
    """A case per dtype, of values between low and high."""
    for dtype in dtypes:
        xs = [_values(f"{name} {i}", shape, dtype, low, high) for i, shape in enumerate(shapes)]
        tolerance = {"rtol": 1e-9} if dtype in ("float64", "complex128") else {"rtol": 2e-4}
        yield case(f"{name}/{dtype}", f, xs, **{**tolerance, **options})


def i32(*values):
    return tf.constant(values, tf.int32)


# ---- element by element ----

UNARY = {
    "Neg": ALL, "Square": ALL, "Sqrt": ALL, "Rsqrt": ALL, "Reciprocal": ALL, "Inv": ALL, "Exp": ALL,
    "Expm1": ALL, "Log": ALL, "Log1p": ALL,
    "Sigmoid": ALL, "Tanh": ALL, "Sin": ALL, "Cos": ALL, "Tan": ALL, "Atan": ALL, "Sinh": ALL,
    "Cosh": ALL, "Asinh": ALL, "Erf": REAL, "Erfc": REAL,
    "Lgamma": REAL, "Digamma": REAL, "BesselI0": REAL, "BesselI0e": REAL, "BesselI1": REAL,
    "BesselI1e": REAL, "BesselJ0": REAL, "BesselJ1": REAL,
    "BesselY0": REAL, "BesselY1": REAL, "BesselK0": REAL, "BesselK0e": REAL, "BesselK1": REAL,
    "BesselK1e": REAL, "FresnelSin": REAL, "FresnelCos": REAL,
    "Spence": REAL, "Expint": REAL, "Dawsn": REAL, "Abs": REAL, "Conj": ALL[2:], "Sign": REAL,
    "Softplus": REAL, "Softsign": REAL, "Relu": REAL,
    "Relu6": REAL, "LeakyRelu": REAL, "Elu": REAL, "Selu": REAL, "Identity": ALL, "Softmax": REAL,
    "LogSoftmax": REAL, "L2Loss": REAL,
    "Floor": REAL, "Ceil": REAL, "Rint": REAL, "Round": REAL, "StopGradient": REAL,
    "ZerosLike": REAL,
}  # fmt: skip
POSITIVE = {"Sqrt", "Rsqrt", "Log", "Log1p", "Lgamma", "Digamma", "BesselY0", "BesselY1",
            "BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "Spence", "Expint"}
FIRST_ARGUMENT = {"L2Loss": "t", "Softmax": "logits", "LogSoftmax": "logits", "Identity": "input",
                  "StopGradient": "input", "Conj": "input"}
FEATURES = {"Softplus", "Softsign", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu"}


def _argument(op):
    return FIRST_ARGUMENT.get(op, "features" if op in FEATURES else "x")


def unary_cases():
    for op, dtypes in UNARY.items():
        low = 0.3 if op in POSITIVE else -2.0
        yield from over(dtypes, op, lambda x, op=op: getattr(raw, op)(**{_argument(op): x}), [3, 4],
                        low=low)
    for op in ("Asin", "Acos", "Atanh", "Erfinv"):
        yield from over(REAL, op, lambda x, op=op: getattr(raw, op)(x=x), [3, 4], low=-0.8,
                        high=0.8)
        if op != "Erfinv":
            yield from over(("complex64",), op, lambda x, op=op: getattr(raw, op)(x=x), [3, 4],
                            low=-0.8, high=0.8)
    yield from over(ALL, "Acosh", lambda x: raw.Acosh(x=x), [5], low=1.2)
    yield from over(REAL, "Ndtri", lambda x: raw.Ndtri(x=x), [5], low=0.1, high=0.9)
    yield from over(ALL[2:], "ComplexAbs",
                    lambda x: raw.ComplexAbs(x=x, Tout=tf.float32 if x.dtype == tf.complex64
                                             else tf.float64), [5])
    for op in ("Real", "Imag", "Angle"):
        # noqa: E731
        f = lambda x, op=op: getattr(raw, op)(input=x, Tout=tf.float32 if x.dtype == tf.complex64
                                              else tf.float64)
        yield from over(ALL[2:], op, f, [5])
    yield from over(REAL, "Complex", lambda a,
                    b: raw.Complex(real=a, imag=b, Tout=tf.complex64 if a.dtype == tf.float32
                                   else tf.complex128), [2, 3], [3])
    for to in ("float64", "float16", "bfloat16", "complex64", "int32"):
        yield from over(("float32",), f"Cast/{to}", lambda x,
                        to=to: tf.cast(tf.cast(x, to), tf.float32) + x, [4], rtol=2e-2)
    yield from over(REAL, "CheckNumerics", lambda x: raw.CheckNumerics(tensor=x, message="m"), [4])
    for op, zero in (("BesselI1", 0), ("BesselI1e", 0), ("BesselJ1", 0), ("Spence", 1), ("Abs", 0),
                     ("Relu", 0), ("Sqrt", 0)):
        f = lambda x, op=op: getattr(raw, op)(**{_argument(op): x})  # noqa: E731
        yield case(f"{op}/at_{zero}", f, [np.full([2], zero, np.float32)])
    yield from over(REAL, "Print", lambda x: tf1.Print(x * 2, [x], "x"), [2])
    yield from over(REAL, "NextAfter", lambda a, b: raw.NextAfter(x1=a, x2=b), [2, 3], [3])
    for op in ("SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad", "SigmoidGrad", "TanhGrad"):
        yield from over(ALL, op, lambda y, dy, op=op: getattr(raw, op)(y=y, dy=dy), [3, 2], [3, 2],
                        low=0.2)
    for op in ("ReluGrad", "Relu6Grad", "LeakyReluGrad", "SoftplusGrad"):
        yield from over(REAL, op, lambda a, b, op=op: getattr(raw, op)(gradients=a, features=b),
                        [3, 4], [3, 4])
    for op in ("EluGrad", "SeluGrad"):
        yield from over(REAL, op, lambda a, b, op=op: getattr(raw, op)(gradients=a, outputs=b),
                        [3, 4], [3, 4])


BINARY = {
    "Add": ALL, "AddV2": ALL, "Sub": ALL, "Mul": ALL, "MulNoNan": REAL, "Div": ALL, "RealDiv": ALL,
    "DivNoNan": REAL, "FloorMod": REAL,
    "SquaredDifference": ALL, "Maximum": REAL, "Minimum": REAL, "Pow": ALL, "Xlogy": REAL,
    "Xlog1py": REAL, "Xdivy": REAL, "FloorDiv": REAL,
}  # fmt: skip


def binary_cases():
    for op, dtypes in BINARY.items():
        f = lambda x, y, op=op: getattr(raw, op)(x=x, y=y)  # noqa: E731
        for shapes in (([2, 3], [2, 3]), ([2, 1, 3], [4, 1]), ([], [3]), ([1, 3], [2, 1])):
            yield from over(dtypes, f"{op}/{shapes}", f, *shapes, low=0.2)
    yield from over(REAL, "Atan2", lambda a, b: raw.Atan2(y=a, x=b), [2, 3], [3])
    for op in ("Igamma", "Igammac"):
        yield from over(REAL, op, lambda a, x, op=op: getattr(raw, op)(a=a, x=x), [2, 3], [3],
                        low=0.3)
    yield from over(REAL, "Betainc",
                    lambda x: raw.Betainc(a=tf.constant(2.5, x.dtype), b=tf.constant(1.5, x.dtype),
                                          x=x), [3], low=0.1, high=0.9)
    f = lambda a: raw.StatelessRandomGammaV2(shape=[4, 2], seed=[3, 5], alpha=a)  # noqa: E731
    yield from over(REAL, "StatelessRandomGammaV2", f, [2], low=0.5)
    yield from over(REAL, "Polygamma", lambda x: raw.Polygamma(a=tf.ones([], x.dtype), x=x), [3],
                    low=0.3)
    yield from over(REAL, "Zeta", lambda q: raw.Zeta(x=tf.constant(2.5, q.dtype), q=q), [3],
                    low=0.3)
    yield case("Maximum/equal", lambda a, b: raw.Maximum(x=a, y=b),
               [np.float32([1, 2, 3]), np.float32([1, 3, 2])])
    yield case("Xlogy/zero", lambda a, b: raw.Xlogy(x=a, y=b),
               [np.float32([0, 2, 0]), np.float32([0, 3, 2])])
    yield case("DivNoNan/zero", lambda a, b: raw.DivNoNan(x=a, y=b),
               [np.float32([1, 2, 3]), np.float32([0, 3, 2])])
    yield case("Pow/zero", lambda a, b: raw.Pow(x=a, y=b),
               [np.float32([0, 2, 3]), np.float32([2, 3, 0])])
    choose = lambda: tf.constant([True, False, True])  # noqa: E731
    yield from over(ALL, "Select", lambda a, b: raw.Select(condition=choose(), x=a, y=b), [3, 2],
                    [3, 2])
    yield from over(ALL, "SelectV2", lambda a, b: raw.SelectV2(condition=choose(), t=a, e=b), [3],
                    [2, 1])
    yield from over(REAL, "ClipByValue", lambda x, a,
                    b: raw.ClipByValue(t=x, clip_value_min=a - 1, clip_value_max=b), [3, 2], [],
                    [3, 2])
    yield from over(ALL, "AddN", lambda a, b: raw.AddN(inputs=[a, b, a]), [3], [3])
    yield from over(REAL, "AccumulateNV2", lambda a, b: raw.AccumulateNV2(inputs=[a, b], shape=[3]),
                    [3], [3])


def reduction_cases():
    for op in ("Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"):
        for axes in ([0], [1], [-1, 0], [], [0, 1, 2]):
            for keep in (False, True):
                # noqa: E731
                f = lambda x, op=op, axes=axes, keep=keep: getattr(raw, op)(
                    input=x, axis=tf.constant(axes, tf.int32), keep_dims=keep)
                yield from over(REAL, f"{op}/{axes}/{keep}", f, [2, 3, 2])
    yield from over(ALL, "Sum/scalar_axis", lambda x: raw.Sum(input=x, axis=1), [2, 3])
    yield case("Prod/zeros", lambda x: raw.Prod(input=x, axis=[1]),
               [np.float32([[1, 0, 3], [0, 2, 0], [4, 5, 6]])])
    yield case("Max/ties", lambda x: raw.Max(input=x, axis=[1]),
               [np.float32([[1, 1, 0], [2, 2, 2]])])
    for exclusive in (False, True):
        for reverse in (False, True):
            options = dict(axis=-1, exclusive=exclusive, reverse=reverse)
            for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
                yield from over(REAL, f"{op}/{exclusive}/{reverse}", lambda x, op=op,
                                o=options: getattr(raw, op)(x=x, **o), [2, 4], atol=1e-5)


def segment_cases():
    ids = lambda: i32(0, 0, 2, 2, 2)  # noqa: E731
    for op in ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"):
        yield from over(REAL, op, lambda x, op=op: getattr(raw, op)(data=x, segment_ids=ids()),
                        [5, 2])
    yield case("SegmentProd/zeros", lambda x: raw.SegmentProd(data=x, segment_ids=ids()),
               [np.float32([1, 0, 0, 0, 2])])
    for op in ("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMin",
               "UnsortedSegmentMax"):
        # noqa: E731
        f = lambda x, op=op: getattr(raw, op)(data=x, segment_ids=i32(3, -1, 0, 3, 0),
                                              num_segments=4)
        yield from over(REAL, op, f, [5, 2])
        # noqa: E731
        f = lambda x, op=op: getattr(raw, op)(data=x, segment_ids=tf.constant([[1, 0], [-1, 1]]),
                                              num_segments=3)
        yield from over(REAL, f"{op}/matrix", f, [2, 2, 3])
    for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
        # noqa: E731
        f = lambda x, op=op: getattr(raw, op)(data=x, indices=i32(0, 3, 1, 3),
                                              segment_ids=i32(0, 0, 2, 2))
        yield from over(REAL, op, f, [5, 2])
        op += "WithNumSegments"
        # noqa: E731
        f = lambda x, op=op: getattr(raw, op)(data=x, indices=i32(0, 3, 1, 3),
                                              segment_ids=i32(0, 0, 2, 2), num_segments=4)
        yield from over(REAL, op, f, [5, 2])


def matmul_cases():
    for ta in (False, True):
        for tb in (False, True):
            a, b = [4, 2] if ta else [2, 4], [3, 4] if tb else [4, 3]
            yield from over(ALL, f"MatMul/{ta}/{tb}", lambda x, y, ta=ta,
                            tb=tb: raw.MatMul(a=x, b=y, transpose_a=ta, transpose_b=tb), a, b)
            # noqa: E731
            f = lambda x, y, ta=ta, tb=tb: raw.SparseMatMul(
                a=x, b=y, transpose_a=ta, transpose_b=tb)
            yield from over(("float32",), f"SparseMatMul/{ta}/{tb}", f, a, b)
            for op in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
                extra = {"Tout": None} if op == "BatchMatMulV3" else {}
                # noqa: E731
                f = lambda x, y, ta=ta, tb=tb, op=op, e=extra: getattr(raw, op)(
                    x=x, y=y, adj_x=ta, adj_y=tb, **({"Tout": x.dtype} if e else {}))
                yield from over(ALL, f"{op}/{ta}/{tb}", f, [2, *a], [2, *b])
                if op != "BatchMatMul":
                    yield from over(REAL, f"{op}/broadcast/{ta}/{tb}", f, [2, 1, *a], [3, *b])
    yield from over(REAL, "Cross", lambda a, b: raw.Cross(a=a, b=b), [2, 3], [2, 3])


# ---- arrays ----


def array_cases():
    yield from over(ALL, "Reshape", lambda x: tf.reshape(x, [3, -1]), [2, 3])
    yield from over(REAL, "ExpandDims", lambda x: tf.expand_dims(x, 1), [2, 3])
    yield from over(REAL, "Squeeze", lambda x: tf.squeeze(x), [2, 1, 3])
    yield from over(REAL, "IdentityN", lambda a, b: raw.IdentityN(input=[a, b]), [2], [3])
    yield from over(REAL, "EnsureShape", lambda x: raw.EnsureShape(input=x, shape=[None, 3]),
                    [2, 3])
    yield from over(ALL, "Fill", lambda x: tf.fill([2, 3], x), [])
    yield from over(ALL, "BroadcastTo", lambda x: tf.broadcast_to(x, [4, 2, 3]), [2, 1])
    yield from over(REAL, "Tile", lambda x: tf.tile(x, [2, 1, 3]), [2, 3, 1])
    yield from over(REAL, "Tile/int64", lambda x: tf.tile(x, tf.constant([2, 3], tf.int64)), [2, 3])
    yield from over(ALL, "Transpose", lambda x: raw.Transpose(x=x, perm=[2, 0, 1]), [2, 3, 4])
    yield from over(ALL, "ConjugateTranspose",
                    lambda x: raw.ConjugateTranspose(x=x, perm=[2, 0, 1]), [2, 3, 4])
    yield from over(REAL, "Reverse", lambda x: raw.Reverse(tensor=x, dims=[True, False]), [2, 3])
    yield from over(REAL, "ReverseV2", lambda x: raw.ReverseV2(tensor=x, axis=[1]), [2, 3])
    yield from over(REAL, "ReverseSequence",
                    lambda x: raw.ReverseSequence(
                        input=x, seq_lengths=[1, 3], seq_dim=1, batch_dim=0), [2, 3])
    yield from over(REAL, "Roll", lambda x: raw.Roll(input=x, shift=[1, -2], axis=[0, 1]), [2, 3])
    for axis in (0, 1, -1):
        yield from over(REAL, f"ConcatV2/{axis}", lambda a, b,
                        axis=axis: tf.concat([a, b, a], axis), [2, 3], [2, 3])
    yield from over(REAL, "ConcatV2/sizes", lambda a, b: tf.concat([a, b], 1), [2, 3], [2, 1])
    yield from over(REAL, "Concat", lambda a, b: raw.Concat(concat_dim=1, values=[a, b]), [2, 3],
                    [2, 1])
    yield from over(REAL, "Pack", lambda a, b: tf.stack([a, b, b], 1), [2, 3], [2, 3])
    yield from over(REAL, "Unpack", lambda x: tf.unstack(x, 3, axis=1), [2, 3])
    yield from over(REAL, "Unpack/one", lambda x: tf.unstack(x, 3, axis=-1)[1], [2, 3])
    yield from over(REAL, "Split", lambda x: tf.split(x, 3, 1), [2, 6])
    yield from over(REAL, "SplitV", lambda x: tf.split(x, [1, 3, 2], -1), [2, 6])
    yield from over(REAL, "SplitV/one", lambda x: tf.split(x, [1, 3, 2], 1)[2], [2, 6])
    yield from over(ALL, "Slice", lambda x: tf.slice(x, [0, 1, 0], [2, 2, -1]), [2, 4, 3])
    yield from over(REAL, "StridedSlice", lambda x: x[::-1, 1, tf.newaxis, ...], [2, 4, 3])
    yield from over(REAL, "StridedSlice/steps", lambda x: x[:, 3:0:-2], [2, 4, 3])
    # noqa: E731
    g = lambda dy: raw.StridedSliceGrad(shape=[5], begin=[1], end=[5], strides=[2], dy=dy)
    yield from over(REAL, "StridedSliceGrad", g, [2])
    # noqa: E731
    f = lambda x, v: raw.TensorStridedSliceUpdate(input=x, begin=[1], end=[3], strides=[1], value=v)
    yield from over(REAL, "TensorStridedSliceUpdate", f, [4, 2], [2, 2])
    yield from over(REAL, "Pad", lambda x: tf.pad(x, [[1, 0], [0, 2]]), [2, 3])
    yield from over(REAL, "PadV2", lambda x: tf.pad(x, [[1, 0], [0, 2]], constant_values=3), [2, 3])
    for mode in ("REFLECT", "SYMMETRIC"):
        yield from over(REAL, f"MirrorPad/{mode}", lambda x, m=mode: tf.pad(x, [[1, 0], [1, 2]], m),
                        [2, 3])
        yield from over(REAL, f"MirrorPadGrad/{mode}", lambda x,
                        m=mode: raw.MirrorPadGrad(input=x, paddings=[[1, 0], [1, 2]], mode=m),
                        [3, 6])
    yield from over(REAL, "SpaceToBatch",
                    lambda x: raw.SpaceToBatch(input=x, paddings=[[0, 0], [1, 1]], block_size=2),
                    [1, 4, 2, 1])
    yield from over(REAL, "BatchToSpace",
                    lambda x: raw.BatchToSpace(input=x, crops=[[0, 0], [1, 1]], block_size=2),
                    [4, 2, 2, 1])
    yield from over(REAL, "SpaceToBatchND",
                    lambda x: raw.SpaceToBatchND(input=x, block_shape=[2], paddings=[[1, 1]]),
                    [1, 4, 2])
    yield from over(REAL, "BatchToSpaceND",
                    lambda x: raw.BatchToSpaceND(input=x, block_shape=[2], crops=[[1, 0]]),
                    [4, 2, 2])
    yield from over(REAL, "SpaceToDepth", lambda x: raw.SpaceToDepth(input=x, block_size=2),
                    [1, 4, 2, 3])
    yield from over(REAL, "DepthToSpace", lambda x: raw.DepthToSpace(input=x, block_size=2),
                    [1, 2, 2, 4])


def index_cases():
    for axis in (0, 1, -1):
        # noqa: E731
        f = lambda x, axis=axis: raw.GatherV2(params=x, indices=[[1, 0], [1, 1]], axis=axis)
        yield from over(ALL, f"GatherV2/{axis}", f, [2, 3, 2])
    for batch, axis in ((1, 1), (1, 2), (-1, 1), (-1, -1)):
        # noqa: E731
        f = lambda x, b=batch, axis=axis: raw.GatherV2(
            params=x, indices=tf.constant([[1, 0], [1, 1]], tf.int64), axis=axis, batch_dims=b)
        yield from over(REAL, f"GatherV2/batch/{batch}/{axis}", f, [2, 3, 2])
    yield from over(REAL, "Gather", lambda x: raw.Gather(params=x, indices=[2, 0, 2]), [3, 2])
    yield from over(REAL, "GatherNd", lambda x: tf.gather_nd(x, [[1, 0], [1, 0], [0, 2]]),
                    [2, 3, 2])
    yield from over(REAL, "ScatterNd", lambda u: tf.scatter_nd([[1], [3], [1]], u, [5, 2]), [3, 2])
    yield from over(REAL, "ScatterNdNonAliasingAdd", lambda x,
                    u: raw.ScatterNdNonAliasingAdd(input=x, indices=[[1], [3]], updates=u), [5, 2],
                    [2, 2])
    for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMin",
               "TensorScatterMax"):
        # noqa: E731
        f = lambda x, u, op=op: getattr(raw, op)(tensor=x, indices=[[1], [3]], updates=u)
        yield from over(REAL, op, f, [5, 2], [2, 2])
    yield from over(REAL, "DynamicPartition", lambda x: tf.dynamic_partition(x, [1, 0, 2, 1], 3),
                    [4, 2])
    for op in ("DynamicStitch", "ParallelDynamicStitch"):
        # noqa: E731
        f = lambda a, b, op=op: getattr(raw, op)(indices=[i32(0, 3), i32(1, 2)], data=[a, b])
        yield from over(REAL, op, f, [2, 2], [2, 2])
    yield from over(ALL, "Diag", lambda x: raw.Diag(diagonal=x), [3])
    yield from over(ALL, "DiagPart", lambda x: raw.DiagPart(input=x), [3, 3])
    yield from over(ALL, "MatrixDiag", lambda x: raw.MatrixDiag(diagonal=x), [2, 3])
    yield from over(ALL, "MatrixDiagPart", lambda x: raw.MatrixDiagPart(input=x), [2, 3, 3])
    yield from over(ALL, "MatrixSetDiag", lambda x, d: raw.MatrixSetDiag(input=x, diagonal=d),
                    [2, 3, 4], [2, 3])
    for version in ("V2", "V3"):
        zero = lambda x: tf.zeros([], x.dtype)  # noqa: E731
        # noqa: E731
        f = lambda x, v=version: getattr(raw, "MatrixDiag" + v)(
            diagonal=x, k=[-1, 0], num_rows=-1, num_cols=-1, padding_value=zero(x))
        yield from over(REAL, f"MatrixDiag{version}", f, [2, 3])
        # noqa: E731
        f = lambda x, v=version: getattr(raw, "MatrixDiagPart" + v)(
            input=x, k=[-1, 1], padding_value=zero(x))
        yield from over(REAL, f"MatrixDiagPart{version}", f, [3, 4])
        # noqa: E731
        f = lambda x, d, v=version: getattr(raw, "MatrixSetDiag" + v)(input=x, diagonal=d, k=1)
        yield from over(REAL, f"MatrixSetDiag{version}", f, [3, 4], [3])
    yield from over(ALL, "MatrixBandPart", lambda x: tf.linalg.band_part(x, 1, 0), [2, 3, 4])


# ---- nets ----


def nn_cases():
    for layout, shape in (("NHWC", [2, 3, 2, 4]), ("NCHW", [2, 4, 3, 2])):
        yield from over(REAL, f"BiasAdd/{layout}", lambda x, b,
                        d=layout: raw.BiasAdd(value=x, bias=b, data_format=d), shape, [4])
        yield from over(REAL, f"BiasAddGrad/{layout}", lambda x,
                        d=layout: raw.BiasAddGrad(out_backprop=x, data_format=d), shape)
    yield from over(REAL, "BiasAddV1", lambda x, b: raw.BiasAddV1(value=x, bias=b), [3, 4], [4])
    # noqa: E731
    f = lambda a, b: raw.SoftmaxCrossEntropyWithLogits(features=a, labels=tf.nn.softmax(b))[0]
    yield from over(REAL, "SoftmaxCrossEntropyWithLogits", f, [3, 4], [3, 4])
    # noqa: E731
    f = lambda a, b: list(raw.SoftmaxCrossEntropyWithLogits(features=a, labels=tf.stop_gradient(
        tf.nn.softmax(b))))
    yield from over(REAL, "SoftmaxCrossEntropyWithLogits/both", f, [3, 4], [3, 4])
    # noqa: E731
    f = lambda a: raw.SparseSoftmaxCrossEntropyWithLogits(features=a, labels=[1, 0, 3])[0]
    yield from over(REAL, "SparseSoftmaxCrossEntropyWithLogits", f, [3, 4])
    yield from over(REAL, "TopKV2", lambda x: tf.nn.top_k(x, 2)[0], [2, 3, 4])
    yield from over(REAL, "TopKV2/vector", lambda x: tf.nn.top_k(x, 3)[0], [4])
    # noqa: E731
    f = lambda x: raw.CTCLoss(inputs=x, labels_indices=[[0, 0], [0, 1], [1, 0]],
                              labels_values=[1, 0, 2], sequence_length=[4, 3])[0]
    yield from over(REAL, "CTCLoss", f, [4, 2, 4], rtol=1e-5)
    yield from over(REAL, "NthElement", lambda x: raw.NthElement(input=x, n=1), [3, 4])
    yield from over(("float32",), "LRN", lambda x: raw.LRN(input=x, depth_radius=2, alpha=0.5),
                    [2, 2, 3, 5])


def conv_cases():
    for padding in ("SAME", "VALID"):
        a = dict(strides=[1, 2, 1, 1], padding=padding, dilations=[1, 1, 1, 1])
        yield from over(REAL, f"Conv2D/{padding}", lambda x, w,
                        a=a: raw.Conv2D(input=x, filter=w, **a), [2, 5, 4, 3], [3, 2, 3, 2],
                        atol=1e-4)
        # noqa: E731
        f = lambda w, d, a=a: raw.Conv2DBackpropInput(
            input_sizes=[2, 5, 4, 3], filter=w, out_backprop=d, **a)
        size = [2, 3, 4, 2] if padding == "SAME" else [2, 2, 3, 2]
        yield from over(REAL, f"Conv2DBackpropInput/{padding}", f, [3, 2, 3, 2], size, atol=1e-4)
        # noqa: E731
        f = lambda x, d, a=a: raw.Conv2DBackpropFilter(
            input=x, filter_sizes=[3, 2, 3, 2], out_backprop=d, **a)
        yield from over(REAL, f"Conv2DBackpropFilter/{padding}", f, [2, 5, 4, 3], size, atol=1e-4)
        b = dict(strides=[1, 1, 1, 1], padding=padding)
        f = lambda x, w, b=b: raw.DepthwiseConv2dNative(input=x, filter=w, **b)  # noqa: E731
        yield from over(REAL, f"DepthwiseConv2dNative/{padding}", f, [2, 4, 4, 2], [2, 2, 2, 2],
                        atol=1e-4)
        size = [2, 4, 4, 4] if padding == "SAME" else [2, 3, 3, 4]
        # noqa: E731
        f = lambda w, d, b=b: raw.DepthwiseConv2dNativeBackpropInput(
            input_sizes=[2, 4, 4, 2], filter=w, out_backprop=d, **b)
        yield from over(REAL, f"DepthwiseConv2dNativeBackpropInput/{padding}", f, [2, 2, 2, 2],
                        size, atol=1e-4)
        # noqa: E731
        f = lambda x, d, b=b: raw.DepthwiseConv2dNativeBackpropFilter(
            input=x, filter_sizes=[2, 2, 2, 2], out_backprop=d, **b)
        yield from over(REAL, f"DepthwiseConv2dNativeBackpropFilter/{padding}", f, [2, 4, 4, 2],
                        size, atol=1e-4)
        c = dict(strides=[1, 1, 1, 1, 1], padding=padding)
        yield from over(REAL, f"Conv3D/{padding}", lambda x, w,
                        c=c: raw.Conv3D(input=x, filter=w, **c), [1, 3, 4, 3, 2], [2, 2, 2, 2, 2],
                        atol=1e-4)
        size = [1, 3, 4, 3, 2] if padding == "SAME" else [1, 2, 3, 2, 2]
        # noqa: E731
        f = lambda w, d, c=c: raw.Conv3DBackpropInputV2(
            input_sizes=[1, 3, 4, 3, 2], filter=w, out_backprop=d, **c)
        yield from over(REAL, f"Conv3DBackpropInputV2/{padding}", f, [2, 2, 2, 2, 2], size,
                        atol=1e-4)
        # noqa: E731
        f = lambda x, d, c=c: raw.Conv3DBackpropFilterV2(
            input=x, filter_sizes=[2, 2, 2, 2, 2], out_backprop=d, **c)
        yield from over(REAL, f"Conv3DBackpropFilterV2/{padding}", f, [1, 3, 4, 3, 2], size,
                        atol=1e-4)
        d = dict(strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding=padding)
        yield from over(REAL, f"Dilation2D/{padding}", lambda x, w,
                        d=d: raw.Dilation2D(input=x, filter=w, **d), [1, 4, 4, 2], [2, 2, 2])
        # noqa: E731
        f = lambda x, p=padding: raw.ExtractImagePatches(
            images=x, ksizes=[1, 2, 3, 1], strides=[1, 1, 2, 1], rates=[1, 1, 1, 1], padding=p)
        yield from over(REAL, f"ExtractImagePatches/{padding}", f, [2, 4, 5, 2])
        # noqa: E731
        f = lambda x, p=padding: raw.ExtractVolumePatches(
            input=x, ksizes=[1, 2, 2, 1, 1], strides=[1, 1, 1, 1, 1], padding=p)
        yield from over(REAL, f"ExtractVolumePatches/{padding}", f, [1, 3, 3, 2, 2])


def pool_cases():
    p2, p3 = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 1, 1], padding="SAME"), dict(
        ksize=[1, 2, 2, 1, 1], strides=[1, 1, 1, 1, 1], padding="VALID")
    yield from over(REAL, "MaxPool", lambda x: raw.MaxPool(input=x, **p2), [2, 4, 3, 2])
    # noqa: E731
    f = lambda x: raw.MaxPoolV2(input=x, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID")
    yield from over(REAL, "MaxPoolV2", f, [2, 4, 3, 2])
    yield from over(REAL, "AvgPool", lambda x: raw.AvgPool(value=x, **p2), [2, 4, 3, 2])
    yield from over(REAL, "AvgPoolGrad",
                    lambda d: raw.AvgPoolGrad(orig_input_shape=[2, 4, 3, 2], grad=d, **p2),
                    [2, 2, 3, 2])
    yield from over(REAL, "MaxPoolGrad", lambda x,
                    d: raw.MaxPoolGrad(orig_input=x, orig_output=raw.MaxPool(input=x, **p2), grad=d,
                                       **p2), [2, 4, 3, 2], [2, 2, 3, 2])
    # noqa: E731
    f = lambda x, d: raw.MaxPoolGradGrad(orig_input=x, orig_output=raw.MaxPool(input=x, **p2),
                                         grad=d, **p2)
    yield from over(REAL, "MaxPoolGradGrad", f, [2, 4, 3, 2], [2, 4, 3, 2])
    yield from over(REAL, "MaxPoolWithArgmax", lambda x: raw.MaxPoolWithArgmax(input=x, **p2)[0],
                    [2, 4, 3, 2])
    yield from over(("float32",), "MaxPool3D", lambda x: raw.MaxPool3D(input=x, **p3),
                    [1, 3, 3, 2, 2])
    # noqa: E731
    f = lambda x, d: raw.MaxPool3DGrad(orig_input=x, orig_output=raw.MaxPool3D(input=x, **p3),
                                       grad=d, **p3)
    yield from over(("float32",), "MaxPool3DGrad", f, [1, 3, 3, 2, 2], [1, 2, 2, 2, 2])
    yield from over(("float32",), "AvgPool3D", lambda x: raw.AvgPool3D(input=x, **p3),
                    [1, 3, 3, 2, 2])
    yield from over(("float32",), "AvgPool3DGrad",
                    lambda d: raw.AvgPool3DGrad(orig_input_shape=[1, 3, 3, 2, 2], grad=d, **p3),
                    [1, 2, 2, 2, 2])
    fixed = dict(pooling_ratio=[1.0, 1.4, 1.4, 1.0], deterministic=True, seed=3, seed2=4)
    yield from over(REAL, "FractionalMaxPool", lambda x: raw.FractionalMaxPool(value=x, **fixed)[0],
                    [1, 5, 6, 2])
    yield from over(REAL, "FractionalAvgPool", lambda x: raw.FractionalAvgPool(value=x, **fixed)[0],
                    [1, 5, 6, 2])


def norm_cases():
    for version in ("", "V2", "V3"):
        op = getattr(raw, "FusedBatchNorm" + version)
        # noqa: E731
        f = lambda x, s, o, op=op: op(x=x, scale=s, offset=o, mean=tf.zeros([0]),
                                      variance=tf.zeros([0]), is_training=True)[0]
        yield from over(("float32",), f"FusedBatchNorm{version}/training", f, [2, 3, 2, 4], [4],
                        [4], atol=1e-4)
        # noqa: E731
        f = lambda x, s, o, op=op: op(x=x, scale=s, offset=o, mean=tf.zeros([4]),
                                      variance=tf.ones([4]) * 2, is_training=False)[0]
        yield from over(("float32",), f"FusedBatchNorm{version}/inference", f, [2, 3, 2, 4], [4],
                        [4], atol=1e-4)


    for training in (False, True):
        for form, shape in (("NHWC", [2, 3, 2, 4]), ("NCHW", [2, 4, 3, 2])):
            # noqa: E731
            f = lambda d, x, s, t=training, m=form: list(raw.FusedBatchNormGrad(
                y_backprop=d, x=x, scale=s, reserve_space_1=tf.zeros([4]),
                reserve_space_2=tf.ones([4]) * 2, is_training=t, data_format=m)[:3])
            if training or form == "NHWC":  # TensorFlow has no other CPU kernel
                yield from over(("float32",), f"FusedBatchNormGrad/{training}/{form}", f, shape,
                                shape, [4], atol=1e-3)


# ---- matrices ----


def _positive(a):
    return tf.matmul(a, a, adjoint_b=True) + 3 * tf.eye(3, dtype=a.dtype)


def linalg_cases():
    for adjoint in (False, True):
        yield from over(ALL, f"MatrixInverse/{adjoint}", lambda a,
                        t=adjoint: raw.MatrixInverse(input=_positive(a), adjoint=t), [2, 3, 3])
        # noqa: E731
        f = lambda a, b, t=adjoint: raw.MatrixSolve(
            matrix=a + 4 * tf.eye(3, dtype=a.dtype), rhs=b, adjoint=t)
        yield from over(ALL, f"MatrixSolve/{adjoint}", f, [2, 3, 3], [2, 3, 2])
        for lower in (False, True):
            # noqa: E731
            f = lambda a, b, t=adjoint, low=lower: raw.MatrixTriangularSolve(
                matrix=a + 4 * tf.eye(3, dtype=a.dtype), rhs=b, lower=low, adjoint=t)
            yield from over(ALL, f"MatrixTriangularSolve/{adjoint}/{lower}", f, [2, 3, 3],
                            [2, 3, 2])
    yield from over(REAL, "MatrixTriangularSolve/broadcast", lambda a,
                    b: raw.MatrixTriangularSolve(matrix=a + 4 * tf.eye(3, dtype=a.dtype), rhs=b),
                    [3, 3], [2, 3, 2])
    yield from over(REAL, "MatrixDeterminant", lambda a: raw.MatrixDeterminant(input=a), [2, 3, 3])
    yield from over(REAL, "LogMatrixDeterminant", lambda a: raw.LogMatrixDeterminant(input=a)[1],
                    [2, 3, 3])
    yield from over(ALL, "Cholesky", lambda a: raw.Cholesky(input=_positive(a)), [2, 3, 3])
    for v in (False, True):  # squares: the sign of an eigenvector is anybody's
        # noqa: E731
        f = lambda a, v=v: [tf.square(y)
                            for y in raw.SelfAdjointEigV2(input=_positive(a), compute_v=v)][: 1 + v]
        yield from over(REAL, f"SelfAdjointEigV2/{v}", f, [2, 3, 3], rtol=1e-3, atol=1e-3)
    yield from over(REAL, "Qr", lambda a: list(raw.Qr(input=a)), [2, 4, 3], rtol=1e-3, atol=1e-4)


def einsum_cases():
    two = {"ij,jk->ik": ([2, 3], [3, 4]), "bij,bjk->bki": ([2, 3, 2], [2, 2, 4]),
           "ij,kj->": ([2, 3], [4, 3]), "i,j->ij": ([2], [3]), "ij,ij->i": ([2, 3], [2, 3]),
           "abc,cd->abd": ([2, 3, 2], [2, 3]),
           # fmt: skip
           "ij,k->k": ([2, 3], [4]), "ii,ij->j": ([3, 3], [3, 2]),
           "...ij,...jk->...ik": ([2, 2, 3], [1, 3, 2]), "...i,ij->...j": ([2, 2, 3], [3, 2]),
           "...,...->...": ([2, 1, 3], [4, 1])}
    one = {"ij->ji": [2, 3], "ij->": [2, 3], "ij->j": [2, 3], "ii->i": [3, 3], "ii->": [3, 3],
           "aij->ia": [2, 3, 2], "...ij->...ji": [2, 2, 3], "i->ii": [3], "aab->b": [2, 2, 3]}
    for equation, shapes in two.items():
        yield from over(ALL, f"Einsum/{equation}", lambda a, b,
                        e=equation: raw.Einsum(inputs=[a, b], equation=e), *shapes, atol=1e-5)
    for equation, shape in one.items():
        yield from over(ALL, f"Einsum/{equation}", lambda a,
                        e=equation: raw.Einsum(inputs=[a], equation=e), shape, atol=1e-5)


def decomposition_cases():
    for compute in (False, True):  # squares: the sign of a vector is anybody's
        for shape in ([2, 3, 3], [4, 3], [3, 4]):
            # noqa: E731
            f = lambda a, c=compute: [
                tf.square(y) for y in raw.Svd(input=a, compute_uv=c)][: 1 + 2 * c]
            yield from over(("float64",), f"Svd/{compute}/{shape}", f, shape, rtol=1e-6, atol=1e-6)
    yield from over(("float64",), "Eig",
                    lambda a: tf.abs(raw.Eig(input=a, Tout=tf.complex128).e), [2, 3, 3], rtol=1e-6)
    yield from over(("float64",), "Qr/wide", lambda a: list(raw.Qr(input=a)), [3, 4], rtol=1e-6)
    yield from over(ALL[2:], "MatrixSquareRoot",
                    lambda a: raw.MatrixSquareRoot(input=_positive(a)), [2, 3, 3], rtol=1e-3,
                    atol=1e-3)
    for rows in (3, 5):
        # noqa: E731
        f = lambda a, b: raw.MatrixSolveLs(matrix=a, rhs=b, l2_regularizer=tf.constant(.5,
                tf.float64))
        yield from over(REAL, f"MatrixSolveLs/{rows}", f, [rows, 4], [rows, 2], rtol=1e-3,
                        atol=1e-3)
    for lower in (False, True):
        # noqa: E731
        f = lambda a, b, low=lower: raw.BandedTriangularSolve(matrix=a + 4, rhs=b, lower=low)
        yield from over(REAL, f"BandedTriangularSolve/{lower}", f, [2, 4], [4, 3], rtol=1e-3)
    f = lambda a, b, c, d: raw.TridiagonalMatMul(superdiag=a, maindiag=b, subdiag=c,  # noqa: E731
                                                 rhs=d)
    yield from over(ALL, "TridiagonalMatMul", f, [2, 1, 4], [2, 1, 4], [2, 1, 4], [2, 4, 3])
    f = lambda a, b: raw.TridiagonalSolve(diagonals=a + tf.constant(  # noqa: E731
        [[0.0], [9.0], [0.0]], a.dtype), rhs=b)
    yield from over(REAL, "TridiagonalSolve", f, [2, 3, 4], [2, 4, 3])


def quant_cases():
    yield from over(REAL[:1], "FakeQuantWithMinMaxArgs",
                    lambda x: raw.FakeQuantWithMinMaxArgs(inputs=x, min=-1, max=1.5), [2, 3])
    # noqa: E731
    f = lambda x, low, high: raw.FakeQuantWithMinMaxVars(
        inputs=x, min=-tf.square(low) - 0.5, max=tf.square(high) + 0.5)
    yield from over(REAL[:1], "FakeQuantWithMinMaxVars", f, [2, 3], [], [])
    # noqa: E731
    f = lambda x, low, high: raw.FakeQuantWithMinMaxVarsPerChannel(
        inputs=x, min=-tf.square(low) - 0.5, max=tf.square(high) + 0.5)
    yield from over(REAL[:1], "FakeQuantWithMinMaxVarsPerChannel", f, [2, 3], [3], [3])
    for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
        # noqa: E731
        f = lambda x, op=op: getattr(raw, op)(input=x, input_min=tf.constant(-1.0),
                                              input_max=tf.constant(1.5), range_given=True)
        yield from over(REAL[:1], op, f, [2, 3])


def fft_cases():
    for rank in (1, 2, 3):
        suffix = "" if rank == 1 else f"{rank}D"
        for op in ("FFT", "IFFT"):
            yield from over(ALL[2:], f"{op}{suffix}", lambda x,
                            op=op + suffix: getattr(raw, op)(input=x), [2, 3, 2, 4], atol=1e-4)


    for lengths in ([4, 6], [3, 5]):
        # noqa: E731
        f = lambda x, n=lengths: raw.RFFT2D(input=x, fft_length=n, Tcomplex=tf.complex64 if x.dtype
                                            == tf.float32 else tf.complex128)
        yield from over(REAL, f"RFFT2D/{lengths}", f, [2, *lengths], atol=1e-4)
        # noqa: E731
        f = lambda x, n=lengths: raw.IRFFT2D(input=x, fft_length=n, Treal=tf.float32 if x.dtype
                                             == tf.complex64 else tf.float64)
        yield from over(ALL[2:], f"IRFFT2D/{lengths}", f, [2, lengths[0], lengths[1] // 2 + 1],
                        atol=1e-4)
    for length in (6, 5, 4, 8):
        # noqa: E731
        f = lambda x, n=length: raw.RFFT(input=x, fft_length=[n], Tcomplex=tf.complex64 if x.dtype
                                         == tf.float32 else tf.complex128)
        yield from over(REAL, f"RFFT/{length}", f, [2, length], atol=1e-5)
        # noqa: E731
        f = lambda x, n=length: raw.IRFFT(input=x, fft_length=[n], Treal=tf.float32 if x.dtype
                                          == tf.complex64 else tf.float64)
        yield from over(ALL[2:], f"IRFFT/{length}", f, [2, length // 2 + 1], atol=1e-5)


# ---- lists, arrays of tensors ----


def list_cases():
    def stacked(x):
        return raw.TensorListStack(input_handle=raw.TensorListFromTensor(tensor=x * 2,
                element_shape=[2]), element_shape=[2], element_dtype=x.dtype)

    def pushed(a, b):
        items = raw.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=a.dtype)
        items = raw.TensorListPushBack(input_handle=raw.TensorListPushBack(input_handle=items,
                tensor=a), tensor=b * 2)
        items, last = raw.TensorListPopBack(input_handle=items, element_shape=[2],
                                            element_dtype=a.dtype)
        return last * raw.TensorListPopBack(input_handle=items, element_shape=[2],
                                            element_dtype=a.dtype)[1]

    def items(x, y):
        items = raw.TensorListFromTensor(tensor=x, element_shape=[2])
        items = raw.TensorListSetItem(input_handle=items, index=1, item=y)
        first, second = (raw.TensorListGetItem(input_handle=items, index=i, element_shape=[2],
                                               element_dtype=x.dtype) for i in (0, 1))
        return first * second

    def gathered(x):
        items = raw.TensorListScatterV2(tensor=x, indices=[2, 0, 1], element_shape=[2],
                                        num_elements=3)
        return raw.TensorListGather(input_handle=items, indices=[1, 2], element_shape=[2],
                                    element_dtype=x.dtype)

    def array(x):
        array = tf1.TensorArray(x.dtype, 3, infer_shape=False, element_shape=[2]).unstack(x)
        return array.read(0) * array.read(2)

    def written(a, b):
        return tf1.TensorArray(a.dtype, 2, element_shape=[2]).write(0, a).write(1, b * 2).stack()

    def joined(a, b):
        return tf1.TensorArray(a.dtype, 2, element_shape=None, infer_shape=False).write(0, a).write(
            1, b).concat()

    yield from over(REAL, "TensorList/stack", stacked, [3, 2])
    yield from over(REAL, "TensorList/push_and_pop", pushed, [2], [2])
    yield from over(REAL, "TensorList/items", items, [3, 2], [2])
    yield from over(REAL, "TensorList/gather", gathered, [3, 2])
    yield from over(REAL, "TensorArray/read", array, [3, 2])
    yield from over(REAL, "TensorArray/write", written, [2], [2])
    yield from over(REAL, "TensorArray/concat", joined, [2, 3], [1, 3])


# ---- images, sparse and ragged tensors ----


def optional(a, b):
    made = raw.OptionalGetValue(optional=raw.OptionalFromValue(components=[a, b * 2]),
                                output_types=[a.dtype, b.dtype], output_shapes=[[2], [3]])
    return [made[1], made[0]]


def ragged_cases():
    splits = lambda: tf.constant([0, 2, 2, 5], tf.int64)  # noqa: E731

    def gathered(x):
        return raw.RaggedGather(params_nested_splits=[splits()], params_dense_values=x,
                                indices=tf.constant([2, 0, 2], tf.int64),
                                OUTPUT_RAGGED_RANK=1).output_dense_values

    def dense(x, default):
        return raw.RaggedTensorToTensor(shape=tf.constant([3, 4], tf.int64), values=x,
                                        default_value=default, row_partition_tensors=[splits()],
                                        row_partition_types=["ROW_SPLITS"])

    yield from over(REAL, "RaggedGather", gathered, [5, 2])
    yield from over(REAL, "RaggedTensorToTensor", dense, [5], [])
    yield from over(REAL, "RaggedTensorToSparse",
                    lambda x: raw.RaggedTensorToSparse(rt_nested_splits=[splits()],
                                                       rt_dense_values=x).sparse_values, [5])
    yield from over(REAL, "Optional", optional, [2], [3])

def image_cases():
    for corners in (False, True):
        # noqa: E731
        f = lambda x, c=corners: raw.ResizeBilinear(images=x, size=[3, 5], align_corners=c)
        yield from over(("float32",), f"ResizeBilinear/{corners}", f, [1, 4, 3, 2])
        # noqa: E731
        f = lambda x, c=corners: raw.ResizeNearestNeighbor(images=x, size=[3, 5], align_corners=c)
        yield from over(REAL, f"ResizeNearestNeighbor/{corners}", f, [1, 4, 3, 2])
        # noqa: E731
        f = lambda x, c=corners: raw.ResizeBicubic(images=x, size=[3, 5], align_corners=c)
        yield from over(("float32",), f"ResizeBicubic/{corners}", f, [1, 4, 3, 2], atol=1e-4)
    # noqa: E731
    f = lambda x: raw.ScaleAndTranslate(images=x, size=[3, 5], scale=[0.8, 1.5],
                                        translation=[0.0, 0.5], kernel_type="triangle",
                                        antialias=True)
    yield from over(("float32",), "ScaleAndTranslate", f, [1, 4, 3, 2], atol=1e-4)
    yield from over(REAL, "RGBToHSV", lambda x: raw.RGBToHSV(images=x), [2, 4, 3], low=.1, high=.9)
    # noqa: E731
    f = lambda x: raw.ImageProjectiveTransformV3(
        images=x, transforms=[[1.0, 0.2, 0.1, 0.0, 0.9, 0.3, 0.0, 0.0]], output_shape=[4, 5],
        fill_value=0.0, interpolation="BILINEAR")
    yield from over(("float32",), "ImageProjectiveTransformV3", f, [2, 4, 5, 3], atol=1e-4)
    # noqa: E731
    f = lambda x, b: raw.CropAndResize(image=x, boxes=b, box_ind=[0, 1], crop_size=[3, 2])
    yield from over(("float32",), "CropAndResize", f, [2, 5, 4, 2], [2, 4], low=0.1, high=0.9,
                    atol=1e-3)


def sparse_cases():
    places = lambda: tf.constant([[0, 1], [1, 0], [1, 2]], tf.int64)  # noqa: E731
    shape = lambda: tf.constant([3, 4], tf.int64)  # noqa: E731
    for adj_a in (False, True):
        for adj_b in (False, True):
            size = [3, 2] if adj_a else [4, 2]
            # noqa: E731
            f = lambda v, b, s=adj_a, t=adj_b: raw.SparseTensorDenseMatMul(
                a_indices=places(), a_values=v, a_shape=shape(), b=b, adjoint_a=s, adjoint_b=t)
            yield from over(ALL, f"SparseTensorDenseMatMul/{adj_a}/{adj_b}", f, [3],
                            size[::-1] if adj_b else size)
    yield from over(REAL, "SparseToDense", lambda v,
                    d: raw.SparseToDense(sparse_indices=places(), output_shape=shape(),
                                         sparse_values=v, default_value=d), [3], [])
    yield from over(REAL, "SparseTensorDenseAdd", lambda v,
                    b: raw.SparseTensorDenseAdd(a_indices=places(), a_values=v, a_shape=shape(),
                                                b=b), [3], [3, 4])
    turned = lambda: tf.constant([[1, 2], [0, 1], [1, 0]], tf.int64)  # noqa: E731
    yield from over(REAL, "SparseReorder",
                    lambda v: raw.SparseReorder(input_indices=turned(), input_values=v,
                                                input_shape=shape())[1], [3])
    # noqa: E731
    f = lambda v, d: raw.SparseFillEmptyRows(indices=places(), values=v, dense_shape=shape(),
                                             default_value=d)[1]
    yield from over(REAL, "SparseFillEmptyRows", f, [3], [])
    other = lambda: tf.constant([[0, 1], [2, 2]], tf.int64)  # noqa: E731
    # noqa: E731
    f = lambda a, b: raw.SparseAdd(a_indices=places(), a_values=a, a_shape=shape(),
                                   b_indices=other(), b_values=b, b_shape=shape(),
                                   thresh=tf.zeros([], a.dtype))[1]
    yield from over(REAL, "SparseAdd", f, [3], [2])
    # noqa: E731
    f = lambda v: raw.SparseSlice(indices=places(), values=v, shape=shape(),
                                  start=tf.constant([1, 0], tf.int64),
                                  size=tf.constant([2, 3], tf.int64))[1]
    yield from over(REAL, "SparseSlice", f, [3])


def csr_cases():
    places = lambda: tf.constant([[0, 1], [1, 0], [1, 2]], tf.int64)  # noqa: E731

    def matrix(values):
        return raw.SparseTensorToCSRSparseMatrix(indices=places(), values=values,
                                                 dense_shape=tf.constant([3, 4], tf.int64))

    def product(values, b, **options):
        return raw.SparseMatrixMatMul(a=matrix(values), b=b, **options)

    yield from over(REAL, "SparseMatrixMatMul", product, [3], [4, 2])
    yield from over(REAL, "SparseMatrixMatMul/transposed",
                    lambda v, b: product(v, b, adjoint_a=True, transpose_output=True), [3], [3, 2])
    # noqa: E731
    f = lambda v: raw.CSRSparseMatrixToDense(sparse_input=raw.SparseMatrixTranspose(
        input=matrix(v), type=v.dtype), type=v.dtype)
    yield from over(REAL, "SparseMatrixTranspose", f, [3])
    for op in ("SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
        # noqa: E731
        f = lambda v, b, op=op: getattr(raw, op)(
            sp_indices=places(), sp_values=v, sp_shape=tf.constant([3, 4], tf.int64), dense=b)
        yield from over(REAL, op, f, [3], [3, 1], low=.3)
    for axes in ([0], [1], [-1, 0]):
        # noqa: E731
        f = lambda v, a=axes: raw.SparseReduceSum(
            input_indices=places(), input_values=v, input_shape=tf.constant([3, 4], tf.int64),
            reduction_axes=a)
        yield from over(REAL, f"SparseReduceSum/{axes}", f, [3])
    # noqa: E731
    f = lambda v: raw.SparseSoftmax(sp_indices=places(), sp_values=v,
                                    sp_shape=tf.constant([3, 4], tf.int64))
    yield from over(REAL, "SparseSoftmax", f, [3])


def _lstm(version, x, w, b):
    state, peephole = tf.zeros([2, 3], x.dtype), tf.zeros([3], x.dtype)
    inputs = dict(seq_len_max=tf.constant(3, tf.int64), x=x, cs_prev=state, h_prev=state, w=w,
                  wci=peephole, wcf=peephole, wco=peephole, b=b)
    return inputs, getattr(raw, "BlockLSTM" + version)(**inputs)


def _lstm_by_op(f, xs, dys):
    """TensorFlow's client takes the first version's derivative for the second version, whose gates
    have another order."""
    inputs, out = _lstm("V2", *xs)
    made = raw.BlockLSTMGradV2(**inputs, **out._asdict(), h_grad=dys[0], cs_grad=dys[1],
                               use_peephole=False)
    return [made.x_grad, made.w_grad, made.b_grad]


def rnn_cases():
    for version in ("", "V2"):
        # noqa: E731
        f = lambda x, w, b, v=version: [_lstm(v, x, w, b)[1].h, _lstm(v, x, w, b)[1].cs]
        client = {"client": _lstm_by_op} if version else {}
        yield from over(("float32",), f"BlockLSTM{version}", f, [3, 2, 2], [5, 12], [12], low=-1,
                        high=1, atol=1e-4, **client)


# ---- functions ----


def _network(x, w, b):
    hidden = tf.nn.relu(tf.matmul(x, w) + b)
    return tf.reduce_mean(tf.square(tf.nn.log_softmax(tf.concat([hidden, hidden[:, ::-1]],
            1)))), hidden


def _calls(x, y):
    """Functions within: by name and by PartitionedCall, some arguments twice."""

    @legacy.Defun(tf.float32, tf.float32)
    def inner(a, b):
        return tf.sin(a) * b + a, a * a

    @tf.function
    def called(a):
        return inner(a, a)[0] * y

    first, second = inner(x, y)
    return inner(first, first)[0] + called(second), first * 2


def _same_argument_twice():
    @legacy.Defun(tf.float32, tf.float32)
    def f(a, b):
        return a * a * b

    x, dy = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.float32, [2])
    f.add_to_graph(tf1.get_default_graph())
    both = functional_ops.symbolic_gradient(input=[x, x, dy], Tout=[tf.float32, tf.float32], f=f)
    return [Run(list(both), {x: [2, 3], dy: [1, 10]})]


def _same_argument_twice_by_client():
    x, dy = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.float32, [2])
    a, b = tf.identity(x), tf.identity(x)
    return [Run(tf1.gradients(a * a * b, [a, b], dy), {x: [2, 3], dy: [1, 10]})]


def _on_devices(where):
    """A gradient in a branch, in a loop's body, on another task; after an op that must run first.
    """

    def build(differentiate):
        def f(x):
            return [tf.exp(x) * 3 + tf.fill([2], tf.reduce_sum(x))]

        with tf.device(where):
            x, p = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.bool, [])
            ones = tf.ones([2])
            y = tf.cond(p, lambda: differentiate(f, [x + 1], [ones])[0], lambda: -x)
            z = tf1.while_loop(lambda i, _: i < 3, lambda i,
                               v: [i + 1, v + 0.01 * differentiate(f, [tf.identity(v)], [ones])[0]],
                               [0, x])[1]
        return [Run([y, z], {x: [1, 2], p: flag}) for flag in (True, False)]

    return lambda: build(_symbolic), {"oracle": lambda: build(_client)}


def _gradient_function(by_client):
    """A function that states its gradient: another than the true one."""

    def build():
        @legacy.Defun(tf.float32, tf.float32)
        def gradient(x, dy):
            return dy * 100 + x

        @legacy.Defun(tf.float32, grad_func=gradient)
        def f(x):
            return x * x

        @legacy.Defun(tf.float32)
        def g(x):
            return f(x * 2) + f(x)

        x, dy = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.float32, [2])
        for function in (f, g, gradient):
            function.add_to_graph(tf1.get_default_graph())
        if by_client:
            found = [dy * 100 + x, (dy * 100 + 2 * x) * 2 + dy * 100 + x]
        else:
            found = [functional_ops.symbolic_gradient(input=[x, dy], Tout=[tf.float32], f=function)[
                0] for function in (f, g)]
        return [Run([f(x), *found], {x: [2, 3], dy: [1, 10]})]

    return build


def _clients_gradient():
    """tf.gradients of calls: the client emits SymbolicGradient."""

    @legacy.Defun(tf.float32, tf.float32, func_name="Layer")
    def layer(x, w):
        return tf.tanh(tf.matmul(x, w))

    with tf.device(PS):
        w = tf1.get_variable("w", initializer=np.eye(2, dtype=np.float32))
    x = tf1.placeholder(tf.float32, [3, 2])
    loss = tf.reduce_sum(layer(layer(x, w), w))
    with tf.device(WORKER1):
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    data = np.arange(6, dtype=np.float32).reshape([3, 2]) / 6
    return [Run(tf1.global_variables_initializer())] + [Run([loss, train], {x: data})] * 3 + [
        Run(w)]


def _control_flow(differentiate):
    """A conditional, and a loop with another one, in a function."""

    def f(x, w):
        def body(i, v, t):
            v = tf.cond(tf.equal(i % 2, 0), lambda: v * w, lambda: tf.sin(v) + x)
            inner = tf1.while_loop(lambda j, _: j < i, lambda j, u: [j + 1, tf.tanh(u * w)],
                                   [0, v])[1]
            return [i + 1, v + inner, t * w]
        y, t = tf1.while_loop(lambda i, *_: i < 4, body, [0, x, w])[1:]
        return [tf.cond(x[0] > 1.5, lambda: y * x, lambda: y + t)]

    x, w = (tf1.placeholder(tf.float32, [2]) for _ in range(2))
    found = differentiate(f, [x, w], [tf.ones([2])])
    return [Run(list(found), {x: value, w: [.5, .75]}) for value in ([1, 2], [2, 1])]


def _refused():
    @legacy.Defun(tf.float32)
    def area(x):
        return raw.ResizeArea(images=x, size=[1, 1])

    area.add_to_graph(tf1.get_default_graph())
    pixel = tf.constant([[[[.25, .5, .75]]]])
    return [Run(functional_ops.symbolic_gradient(input=[pixel, pixel], Tout=[tf.float32], f=area)[
        0])]


def function_cases():
    yield from over(("float32",), "function/network", _network, [3, 2], [2, 4], [4])
    yield from over(("float32",), "function/calls", _calls, [3], [3])
    yield from over(("float32",), "function/unused_argument", lambda x, y: x * 2, [3], [2])
    yield from over(("float32",), "function/hands_on", lambda x, y: [x, x, y + 1], [3], [2])
    yield "gradient/function/same_argument_twice", _same_argument_twice, {
        "oracle": _same_argument_twice_by_client}
    for where in (None, PS, WORKER1):
        build, options = _on_devices(where)
        yield f"gradient/function/control_flow/{where}", build, options
    yield "gradient/function/states_its_gradient", _gradient_function(False), {
        "oracle": _gradient_function(True)}
    yield "gradient/function/by_client", _clients_gradient
    yield "gradient/function/with_control_flow", lambda: _control_flow(_symbolic), {
        "oracle": lambda: _control_flow(_client)}
    yield "gradient/function/refused", _refused, {
        "cluster_error": (tf.errors.NotFoundError,
                          "No gradient defined for op: ResizeArea .TensorFlow defines none")}


def cases():
    for family in (
        unary_cases, binary_cases, reduction_cases, segment_cases, matmul_cases, array_cases,
        index_cases, nn_cases, conv_cases, pool_cases, norm_cases,
        linalg_cases, decomposition_cases, einsum_cases, quant_cases, fft_cases, list_cases,
        image_cases, sparse_cases,
        ragged_cases, csr_cases,
        rnn_cases, function_cases,
    ):  # fmt: skip
        yield from family()
