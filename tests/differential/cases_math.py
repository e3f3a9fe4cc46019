"""Cases of the math family: arithmetic element by element, comparisons, reductions, products,
scans, segments, counts."""

import itertools

import ml_dtypes
import numpy
import tensorflow as tf

import oracle
from tf_kernels import cpu_combinations, cpu_dtypes

RAW = tf.raw_ops
NAN, INF = numpy.nan, numpy.inf
# What one rounding more or less makes of a result whose rounding TensorFlow does in half precision
# at every step.
HALF = {"float16": {"rtol": 8e-3, "atol": 8e-3}, "bfloat16": {"rtol": 5e-2, "atol": 5e-2}}


def np_dtype(name):
    return numpy.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else tf.as_dtype(
        name).as_numpy_dtype


def const(values, dtype):
    return oracle.const(numpy.asarray(values).astype(np_dtype(dtype)) if dtype != "string"
                        else numpy.asarray(values, object), tf.as_dtype(dtype))


def ints(values, dtype="int32"):
    return const(numpy.asarray(values, "int64"), dtype)


def is_float(dtype):
    return tf.as_dtype(dtype).is_floating


def is_complex(dtype):
    return tf.as_dtype(dtype).is_complex


def options(dtype, **more):
    return {**HALF.get(dtype, {}), **more}


# ---- one input ----

UNARY = """Neg Abs ComplexAbs Sign Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Sin Cos Tan
Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid Erf Erfc Erfinv Ndtri Lgamma Digamma Floor
Ceil Round Rint IsNan IsInf IsFinite LogicalNot Invert PopulationCount Conj Real Imag
Angle""".split()
UNARY_GRADS = "SqrtGrad RsqrtGrad ReciprocalGrad InvGrad SigmoidGrad TanhGrad".split()
UNIT_DOMAIN = {"Asin", "Acos", "Atanh", "Erfinv"}
# Where TensorFlow's own approximation is coarser than ours, as (float32, float64).
COARSE = {
    "Digamma": (2e-4, 1e-7), "Erfinv": (2e-5, 1e-10), "Ndtri": (2e-5, 1e-10),
    "Lgamma": (2e-5, 1e-11), "Tan": (2e-5, 1e-11), "Erfc": (2e-5, 1e-11),
    "Sin": (1e-5, 1e-12), "Cos": (1e-5, 1e-12), "Sinh": (1e-5, 1e-12), "Cosh": (1e-5, 1e-12),
    "Exp": (1e-5, 1e-12), "Tanh": (1e-5, 1e-12),
}  # fmt: skip


def arguments_of(op):
    return [argument.name for argument in tf.compat.v1.get_default_graph()._get_op_def(
        op).input_arg]


def apply(op, *inputs, **attrs):
    """The op by its arguments' order, whatever their names."""
    from tensorflow.python.framework import op_def_registry

    names = [argument.name for argument in op_def_registry.get(op).input_arg]
    return getattr(RAW, op)(**dict(zip(names, inputs)), **attrs)


def attr_default_free(op, dtype):
    """Tout of the ops that turn complex numbers into reals."""
    if op in ("ComplexAbs", "Real", "Imag", "Angle"):
        return {"Tout": tf.float32 if dtype == "complex64" else tf.float64}
    return {}


def unary_values(rng, op, dtype, shape):
    if op in UNIT_DOMAIN and is_float(dtype):
        return rng.uniform(-1, 1, shape)
    if op == "Ndtri":
        return rng.uniform(0, 1, shape)
    if op == "Acosh" and is_float(dtype):
        return 1 + rng.exponential(2, shape)
    if op in ("Log", "Sqrt", "Rsqrt", "Log1p") and is_float(dtype):
        return rng.exponential(3, shape)
    return oracle.sample(rng, dtype, shape)


def specials(dtype):
    if is_float(dtype):
        return [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, 1.0, -1.0, 2.0, -2.0, NAN, INF, -INF, 1e-4,
                100.0, -100.0, 3.25]
    if is_complex(dtype):
        return [0, 1, -1, 1j, -1j, 3 + 4j, -2 - 1j, 0.25 - 3j]
    if dtype == "bool":
        return [True, False]
    info = numpy.iinfo(dtype)
    return [0, 1, info.min, info.max, info.max - 1, 7]


def unary_options(op, dtype):
    single, double = COARSE.get(op, (4e-6, 4e-13))
    if dtype in ("float32", "complex64"):
        return {"rtol": 2 * single, "atol": single}
    if dtype in ("float64", "complex128"):
        return {"rtol": double, "atol": double}
    return options(dtype)


def unary_dtypes(op):
    if op == "LogicalNot":
        return ["bool"]
    dtypes = [d for d in cpu_dtypes(op) if d != "variant"]
    # TensorFlow registers Acos for integers, which its op does not allow, and its Round of integers
    # gives 0.
    return [d for d in dtypes if "int" not in d] if op in ("Acos", "Round") else dtypes


def unary_cases(rng):
    for op in UNARY:
        for dtype in unary_dtypes(op):
            attrs = attr_default_free(op, dtype)
            for shape in ((), (3,), (2, 5), (0, 3), (1, 1, 1), (2, 1, 2, 1, 3, 1, 2)):
                value = unary_values(rng, op, dtype, shape)
                yield f"{op}/{dtype}/{list(shape)}", lambda op=op, d=dtype, v=value, a=attrs: [
                    apply(op, const(v, d), **a)], unary_options(op, dtype)
            value = unary_values(rng, op, dtype, (1500,))
            yield f"{op}/{dtype}/long", lambda op=op, d=dtype, v=value, a=attrs: [
                apply(op, const(v, d), **a)], unary_options(op, dtype)
            if not (op == "Log1p" and is_complex(dtype)):  # TensorFlow's log1p(-1) has a NaN
                value = specials(dtype)
                if op == "Erf" and dtype == "float64":  # TensorFlow's erf(inf) is NaN
                    value = [v for v in value if not numpy.isinf(v)]
                yield f"{op}/{dtype}/specials", lambda op=op, d=dtype, v=value, a=attrs: [
                    apply(op, const(v, d), **a)], unary_options(op, dtype)
    for op in UNARY_GRADS:
        for dtype in cpu_dtypes(op):
            for shape in ((), (7,), (2, 3), (0,)):
                y, dy = oracle.sample(rng, dtype, shape), oracle.sample(rng, dtype, shape)
                yield f"{op}/{dtype}/{list(shape)}", lambda op=op, d=dtype, y=y, dy=dy: [
                    apply(op, const(y, d), const(dy, d))], options(
                        dtype, **({} if dtype in HALF else {"rtol": 1e-5}))
        if op in ("InvGrad", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad"):
            for dtype in cpu_dtypes(op):  # of a function whose derivative may be infinite
                y, dy = numpy.meshgrid([0, -0.0, 1, -1, numpy.inf, -numpy.inf, numpy.nan],
                                       numpy.repeat([0, -0.0], 16))
                yield f"{op}/{dtype}/no gradient", lambda op=op, d=dtype, y=y, dy=dy: [
                    apply(op, const(y, d), const(dy, d))], {"bits": True}
        yield f"{op}/sizes", lambda op=op: [apply(op, const([1, 2, 3], "float32"),
                const([1, 2], "float32"))]
        yield f"{op}/shapes", lambda op=op: [apply(op, const([[1, 2, 3]], "float32"),
                const([1, 2, 3], "float32"))], {"modes": ("hidden",)}


# ---- two inputs ----

BINARY = """Add AddV2 Sub Mul MulNoNan Div RealDiv TruncateDiv FloorDiv DivNoNan FloorMod Mod
TruncateMod Maximum Minimum Pow SquaredDifference Atan2 Xlogy Xdivy Xlog1py Complex BitwiseAnd
BitwiseOr BitwiseXor LeftShift RightShift NextAfter Equal NotEqual Less LessEqual Greater
GreaterEqual LogicalAnd LogicalOr""".split()
DIVISIONS = {"Div", "TruncateDiv", "FloorDiv", "FloorMod", "Mod", "TruncateMod"}
SHAPES = [
    ((), ()), ((3,), (3,)), ((), (5,)), ((5,), ()), ((2, 3), (3,)), ((2, 3), (2, 1)),
    ((4, 1), (1, 5)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)),
    ((1,), (0,)), ((2, 3, 4), (2, 3, 4)), ((3, 1, 2, 1, 2), (1, 2, 1, 3, 1)), ((2, 40), (40,)),
    ((2, 40), (2, 1)), ((1, 1), ()), ((700,), (700,)),
    ((300, 3), (3,)), ((300, 3), (300, 1)),
]  # fmt: skip


def binary_values(rng, op, dtype, shapes):
    x, y = (oracle.sample(rng, dtype, shape) for shape in shapes)
    kind = tf.as_dtype(dtype)
    if op in DIVISIONS and kind.is_integer:
        y = numpy.where(y == 0, 3, y).astype(y.dtype)
    if op == "Pow":
        y = numpy.abs(y) % 5 if kind.is_integer else (
            y.astype("complex128") / 2 if kind.is_complex else numpy.asarray(y, "float64") / 2)
        x = numpy.abs(numpy.asarray(x, "float64")) if is_float(dtype) else x
    if op in ("Xlogy", "Xlog1py") and is_float(dtype):
        y = numpy.abs(numpy.asarray(y, "float64"))
    if op in ("Equal", "NotEqual") and dtype != "string" and not kind.is_complex:
        x, y = numpy.asarray(x) * 0 + (numpy.asarray(x) > 0), numpy.asarray(y) * 0 + (
            numpy.asarray(y) > 0)
    return x, y


def binary_dtypes(op):
    if op.startswith("Logical"):
        return ["bool"]
    return [d for d in cpu_dtypes(op) if not d.startswith(("q", "Q"))]


def binary_options(op, dtype):
    if op in ("FloorMod", "Mod", "TruncateMod", "FloorDiv", "TruncateDiv",
              "NextAfter") and dtype in HALF:
        return {"ignore": "values"} if op != "NextAfter" else {}
    single = {"Pow": 2e-5, "Xlogy": 1e-5, "Xlog1py": 1e-5, "Atan2": 1e-5}.get(op, 4e-6)
    if dtype in ("float32", "complex64"):
        return {"rtol": single, "atol": single}
    if dtype in ("float64", "complex128"):
        return {"rtol": 1e-12, "atol": 1e-12}
    return options(dtype)


def binary_cases(rng):
    for op in BINARY:
        for dtype in binary_dtypes(op):
            attrs = {"Tout": tf.complex64 if dtype == "float32"
                     else tf.complex128} if op == "Complex" else {}
            picks = range(len(SHAPES)) if dtype in ("float32", "int32", "string") else sorted(
                rng.choice(len(SHAPES), 6, replace=False))
            for i in picks:
                x, y = binary_values(rng, op, dtype, SHAPES[i])
                yield (f"{op}/{dtype}/{SHAPES[i]}", lambda op=op, d=dtype, x=x, y=y,
                       a=attrs: [apply(op, const(x, d), const(y, d), **a)],
                       binary_options(op, dtype))
            if dtype not in ("string",) and op not in (
                "Pow", "Div", "RealDiv", "Xdivy", "DivNoNan", "Mul", "MulNoNan",
                "SquaredDifference", "Xlogy", "Xlog1py") or is_float(dtype):
                grid = numpy.array(list(itertools.product(specials(dtype), repeat=2)), dtype=object)
                x, y = ([v for v in grid[:, k]] for k in (0, 1))
                if op in DIVISIONS and not is_float(dtype):
                    keep = [i for i, v in enumerate(y) if v != 0
                            and not (dtype == "uint64" and op == "TruncateDiv")]
                    x, y = [x[i] for i in keep], [y[i] for i in keep]
                more = {"modes": ("hidden",)}
                yield (f"{op}/{dtype}/specials", lambda op=op, d=dtype, x=x, y=y,
                       a=attrs: [apply(op, const(x, d), const(y, d), **a)],
                       {**binary_options(op, dtype), **more})
        dtype = binary_dtypes(op)[0] if op != "Add" else "float32"
        attrs = {"Tout": tf.complex64} if op == "Complex" else {}
        dtype = "float32" if op == "Complex" else dtype
        one = specials(dtype)[1]
        yield f"{op}/incompatible", lambda op=op, d=dtype, v=one, a=attrs: [
            apply(op, const([v] * 3, d), const([[v] * 2], d), **a)]
    for op, dtype in itertools.product(sorted(DIVISIONS), ("int32", "int64", "uint8", "int16")):
        # TensorFlow's answer is INTERNAL there
        if dtype in cpu_dtypes(op) and not op.startswith("Truncate"):
            yield f"{op}/{dtype}/zero", lambda op=op, d=dtype: [
                apply(op, const([1, 2], d), const([1, 0], d))]
            yield f"{op}/{dtype}/scalar zero", lambda op=op, d=dtype: [
                apply(op, const(1, d), const(0, d))]
    for dtype in ("int32", "int64", "int8"):
        yield f"Pow/{dtype}/negative", lambda d=dtype: [
            RAW.Pow(x=const([2, 3], d), y=const([1, -1], d))]
        yield f"Pow/{dtype}/wraps", lambda d=dtype: [
            RAW.Pow(x=const([3, -3, 0, -1], d), y=const([77, 78, 0, 5], d))]
    for op in ("Equal", "NotEqual"):
        for shapes in (((3,), (2,)), ((2, 2), (2,)), ((), (2,)), ((2, 3), (3, 2))):
            values = [numpy.ones(s) for s in shapes]
            yield f"{op}/lenient/{shapes}", lambda op=op, v=values: [
                apply(op, const(v[0], "int32"), const(v[1], "int32"),
                      incompatible_shape_error=False)]
    for x, y in (([1.0, 2, 3], [1.0, 2.1, 3.000001]), (1.0, 1.0), ([1.0, 2], [1.0])):
        for dtype in ("float32", "float64"):
            yield f"ApproximateEqual/{dtype}/{x}", lambda x=x, y=y, d=dtype: [
                RAW.ApproximateEqual(x=const(x, d), y=const(y, d), tolerance=1e-3)]


# ---- casts, choices, sums of many ----


def cast_cases(rng):
    names = ("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 "
             "float64 complex64 complex128".split())
    for source, target in itertools.product(names, names):
        value = oracle.sample(rng, source, (37,))
        if is_float(source) or is_complex(source):
            value = numpy.abs(value)
        elif source not in ("bool",) and target.startswith("uint"):
            value = numpy.abs(value)
        yield f"Cast/{source}/{target}", lambda s=source, t=target, v=value: [
            RAW.Cast(x=const(v, s), DstT=tf.as_dtype(t)),
            RAW.Cast(x=const(v[0], s), DstT=tf.as_dtype(t))]
    wild = [1e10, -1e10, NAN, 300.7, -1.9, 70000.0, INF, -INF, 3e9, 1e20, 9.3e18, -9.3e18,
            2147483648.0, -2147483648.0]
    for source, target in itertools.product(("float32", "float64"),
                                            ("int32", "int64", "uint64", "bool", "float16",
                                             "bfloat16", "float32", "float64")):
        yield f"Cast/{source}/{target}/wild", lambda s=source, t=target: [
            RAW.Cast(x=const(wild, s), DstT=tf.as_dtype(t))], {"modes": ("hidden",)}
    for source, target in itertools.product(("float64", "float32", "complex128"),
                                            ("float32", "float16", "bfloat16", "complex64")):
        value = [1.99999999, 3.3333333333, 1e30, -1.99999999, 65519.999, 1.0, 0.1]
        if not (is_complex(source) ^ is_complex(target)):
            yield f"Cast/{source}/{target}/truncate", lambda s=source, t=target, v=value: [
                RAW.Cast(x=const(v, s), DstT=tf.as_dtype(t), Truncate=True)]
    for target in ("float8_e5m2", "float8_e4m3fn"):
        value = numpy.concatenate([rng.normal(size=300) * 10 ** rng.uniform(-4, 4, 300),
                                   [0, -0.0, INF, -INF, NAN, 448, 464, 465, 480, 57344, 61440,
                                    65536]])
        yield f"Cast/float32/{target}", lambda t=target, v=value: [
            RAW.Cast(x=RAW.Cast(x=const(v, "float32"), DstT=tf.as_dtype(t)), DstT=tf.float32)], {
                "rtol": 0, "atol": 0}
    for target in ("int4", "uint4"):
        yield f"Cast/int32/{target}", lambda t=target: [
            RAW.Cast(x=RAW.Cast(x=ints(range(-9, 17)), DstT=tf.as_dtype(t)), DstT=tf.int32)]


def select_cases(rng):
    for dtype in cpu_dtypes("SelectV2"):
        if dtype in ("resource", "variant"):
            continue
        for c, t, e in (((), (), ()), ((3,), (3,), (3,)), ((2, 1), (3,), (2, 3)),
                        ((), (2, 2), (2, 2)), ((), (2, 2), (2,)), ((4, 1, 1), (1, 3, 1), (1, 1, 2)),
                        ((0,), (1,), (1,)), ((700,), (700,), (700,))):
            values = [oracle.sample(rng, d, s) for d, s in (("bool", c), (dtype, t), (dtype, e))]
            yield f"SelectV2/{dtype}/{c}{t}{e}", lambda d=dtype, v=values: [
                RAW.SelectV2(condition=const(v[0], "bool"), t=const(v[1], d), e=const(v[2], d))]
        for c, t in (((), ()), ((3,), (3,)), ((), (2, 2)), ((3,), (3, 2)), ((2, 2), (2, 2)),
                     ((3,), (3, 2, 2)), ((0,), (0, 3))):
            values = [oracle.sample(rng, d, s) for d, s in (("bool", c), (dtype, t), (dtype, t))]
            yield f"Select/{dtype}/{c}{t}", lambda d=dtype, v=values: [
                RAW.Select(condition=const(v[0], "bool"), x=const(v[1], d), y=const(v[2], d))]
    for c, t, e in (((3,), (2, 2), (2, 2)), ((2,), (2, 2), (2,)), ((1, 2), (2, 2), (2, 2)),
                    ((1,), (), ())):
        yield f"Select/wrong/{c}{t}{e}", lambda c=c, t=t, e=e: [
            RAW.Select(condition=const(numpy.ones(c), "bool"), x=const(numpy.ones(t), "int32"),
                       y=const(numpy.ones(e), "int32"))]
    yield "SelectV2/wrong", lambda: [RAW.SelectV2(condition=const([True] * 3, "bool"),
            t=const(numpy.ones((2, 2)), "int32"), e=const(numpy.ones((2, 2)), "int32"))]
    for dtype in cpu_dtypes("ClipByValue"):
        for t, a, b in (((5,), (), ()), ((2, 3), (2, 3), ()), ((2, 3), (), (2, 3)), ((), (), ()),
                        ((4,), (4,), (4,)), ((0,), (), ()), ((900,), (), (900,))):
            values = [oracle.sample(rng, dtype, s) for s in (t, a, b)]
            yield f"ClipByValue/{dtype}/{t}{a}{b}", lambda d=dtype, v=values: [
                RAW.ClipByValue(t=const(v[0], d), clip_value_min=const(v[1], d),
                                clip_value_max=const(v[2], d))]
    yield "ClipByValue/nan", lambda: [RAW.ClipByValue(t=const([1, 2, NAN], "float32"),
            clip_value_min=const(1.5, "float32"), clip_value_max=const(1.0, "float32"))]
    for t, a, b in (((3,), (2,), ()), ((3,), (1,), (1,)), ((), (1,), ())):
        yield f"ClipByValue/wrong/{t}{a}{b}", lambda t=t, a=a, b=b: [
            RAW.ClipByValue(t=const(numpy.ones(t), "float32"),
                            clip_value_min=const(numpy.ones(a), "float32"),
                            clip_value_max=const(numpy.ones(b), "float32"))]
    for dtype in cpu_dtypes("AddN"):
        if dtype == "variant":
            continue
        for n, shape in ((1, (2,)), (2, ()), (3, (2, 3)), (20, (5,)), (4, (3000,)), (2, (0, 2))):
            values = [oracle.sample(rng, dtype, shape) for _ in range(n)]
            yield f"AddN/{dtype}/{n}x{shape}", lambda d=dtype, v=values: [
                RAW.AddN(inputs=[const(x, d) for x in v])], options(
                    dtype, **({"atol": 0.2} if dtype in HALF else {"rtol": 1e-5, "atol": 1e-5}
                              if dtype in ("float32", "complex64") else {}))
    yield "AddN/wrong", lambda: [RAW.AddN(inputs=[const([1, 2], "int32"),
            const([1, 2, 3], "int32")])]


# ---- reductions ----

REDUCTIONS = "Sum Prod Mean Max Min All Any EuclideanNorm".split()
REDUCE_SHAPES = [
    ((), []), ((5,), [0]), ((5,), []), ((5,), [-1]), ((2, 3), [0]), ((2, 3), [1]), ((2, 3), [0, 1]),
    ((2, 3, 4), [1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [-1, 0]),
    ((2, 3, 2, 3, 2), [1, 3]), ((2, 3, 2, 3, 2), [0, 2, 4]),
    ((2, 2, 2, 2, 2, 2, 2, 2), [0, 3, 4, 7]), ((0, 3), [0]), ((0, 3), [1]), ((3, 0), [0, 1]),
    ((1, 1), [0]), ((1, 5, 1), [0, 2]),
    ((1000,), [0]), ((900, 3), [0]), ((900, 3), [1]), ((40, 70), [0]), ((40, 70), [1]),
    ((4, 600), [0]), ((1, 3), 0), ((2, 3), [[0, 1]]),
]  # fmt: skip


def reduce_values(rng, op, dtype, shape):
    value = oracle.sample(rng, dtype, shape)
    if op == "Prod" and (is_float(dtype) or is_complex(dtype)):
        return 1 + numpy.asarray(value) / 40
    return value


def reduce_cases(rng):
    for op in REDUCTIONS:
        dtypes = ["bool"] if op in ("All", "Any") else cpu_dtypes(op)
        for dtype in dtypes:
            picks = range(len(REDUCE_SHAPES)) if dtype in ("float32", "int32", "bool") else sorted(
                rng.choice(len(REDUCE_SHAPES), 9, replace=False))
            tolerance = {"float32": {"rtol": 2e-5, "atol": 2e-5},
                         "complex64": {"rtol": 3e-5, "atol": 3e-5},
                         "float64": {"rtol": 1e-12, "atol": 1e-12},
                         "complex128": {"rtol": 1e-12, "atol": 1e-12}}.get(dtype, {})
            if dtype in HALF:
                tolerance = {"rtol": 3e-2, "atol": 3e-1} if dtype == "float16" else {
                    "rtol": 6e-2, "atol": 1.5}
            for i in picks:
                shape, axes = REDUCE_SHAPES[i]
                value = reduce_values(rng, op, dtype, shape)
                for keep in (False, True):
                    index = ("int32", "int64")[(i + keep) % 2]
                    yield (
                        f"{op}/{dtype}/{shape}{axes}{'k' if keep else ''}",
                        lambda op=op, d=dtype, v=value, x=axes, k=keep,
                        n=index: [getattr(RAW,
                                          op)(input=const(v, d), axis=ints(x, n), keep_dims=k)],
                        tolerance,
                    )
        dtype = dtypes[0]
        for axes in ([0, 0], [1], [-2], [0, -1]):
            if axes != [1]:
                yield f"{op}/wrong/{axes}", lambda op=op, d=dtype, x=axes: [
                    getattr(RAW, op)(input=const([1, 1], d), axis=ints(x))]
        yield f"{op}/wrong/scalar", lambda op=op, d=dtype: [
            getattr(RAW, op)(input=const(1, d), axis=ints([0]))]
    for op, dtype in itertools.product(("Max", "Min"),
                                       ("float32", "float64", "float16", "bfloat16")):
        for value in ([NAN, 1, 2], [1, NAN] * 20, [[1, NAN], [NAN, 2]], [INF, -INF], [-INF, -INF]):
            yield f"{op}/{dtype}/specials/{str(value)[:20]}", lambda op=op, d=dtype, v=value: [
                getattr(RAW, op)(input=const(v, d), axis=ints([0]))]
    for dtype, value in (("int8", [100] * 9), ("int32", [2**31 - 1] * 3), ("int32", [-7, -8]),
                         ("uint8", [200, 100]), ("int64", [2**63 - 1] * 2), ("int16", [])):
        for op in ("Sum", "Mean", "Prod"):
            yield f"{op}/{dtype}/wraps/{str(value)[:12]}", lambda op=op, d=dtype, v=value: [
                getattr(RAW, op)(input=const(numpy.array(v, d), d), axis=ints([0]))]
    for op in REDUCTIONS:
        for dtype, n in itertools.product(["bool"] if op in ("All", "Any")
                                          else [d for d in cpu_dtypes(op) if d not in HALF],
                                          (32, 63, 127, 300, 1100, 2075)):
            value = reduce_values(rng, op, dtype, (2, n))
            if op == "Prod" and not dtype.startswith(("float", "complex")):
                value = value | 1
            yield f"{op}/{dtype}/long/{n}", lambda op=op, d=dtype, v=value: [
                getattr(RAW, op)(input=const(v, d), axis=ints([1]))], {
                    "rtol": 2e-4, "atol": 2e-4} if dtype in ("float32", "complex64") else {
                        "rtol": 1e-10, "atol": 1e-10}
    for op, n, at in itertools.product(("Max", "Min"), (40, 300, 1100), (0, 3, -1)):
        value = rng.normal(size=n)
        value[at] = NAN
        yield f"{op}/NaN in a row/{n}/{at}", lambda op=op, v=value: [
            getattr(RAW, op)(input=const(v, "float32"), axis=ints([0]))]
    big = rng.normal(size=(3, 200000)).astype("float32") + 1
    for op, axes in itertools.product(("Sum", "Mean", "Max", "EuclideanNorm"), ([0], [1], [0, 1])):
        yield f"{op}/big/{axes}", lambda op=op, x=axes: [
            getattr(RAW, op)(input=const(big, "float32"), axis=ints(x))], {"rtol": 1e-4}
        yield f"{op}/big transposed/{axes}", lambda op=op, x=axes: [
            getattr(RAW, op)(input=const(big.T, "float32"), axis=ints(x))], {"rtol": 1e-4}


# ---- along one dimension ----

ALONG_SHAPES = [((5,), 0), ((2, 3), 0), ((2, 3), 1), ((2, 3, 4), -2), ((2, 3, 2, 3, 2), 2),
                ((1, 1), 1), ((3, 0), 0), ((600,), 0), ((4, 600), 0), ((3, 300), 1)]


def along_cases(rng):
    for op in ("ArgMax", "ArgMin"):
        for combination in cpu_combinations(op):
            types = dict(combination)
            dtype, out = types["T"], types["output_type"]
            for shape, axis in [ALONG_SHAPES[i]
                                for i in rng.choice(len(ALONG_SHAPES), 4, replace=False)]:
                value, index = oracle.sample(rng, dtype, shape), types.get("Tidx", "int32")
                yield (f"{op}/{dtype}/{out}/{shape}/{axis}", lambda op=op, d=dtype, o=out, v=value,
                       a=axis, n=index: [getattr(RAW, op)(input=const(v, d), dimension=ints(a, n),
                               output_type=tf.as_dtype(o))])
        for dtype, (shape, axis) in itertools.product(
            [t for t in cpu_dtypes(op) if t not in HALF and not is_complex(t)],
            (((9001,), 0), ((3, 131), 1), ((300, 70), 0), ((2, 5000, 3), 1))):
            value = oracle.sample(rng, dtype, shape)
            yield f"{op}/long/{dtype}/{shape}", lambda op=op, d=dtype, v=value, a=axis: [
                getattr(RAW, op)(input=const(v, d), dimension=ints(a))]
            if is_float(dtype):
                value = numpy.where(rng.random(shape) < 0.3, NAN, numpy.round(value))
                yield f"{op}/long NaN/{dtype}/{shape}", lambda op=op, d=dtype, v=value, a=axis: [
                    getattr(RAW, op)(input=const(v, d), dimension=ints(a))]
        for dtype in ("float32", "float64", "float16"):
            for value in ([NAN, 1, 2], [1, NAN, 2], [1, 2, NAN], [NAN, NAN], [1, 3, 3],
                          [-INF, -INF], [INF, INF]):
                yield f"{op}/{dtype}/specials/{value}", lambda op=op, d=dtype, v=value: [
                    getattr(RAW, op)(input=const(v, d), dimension=ints(0))]
        for shape, axis in (((0,), 0), ((0, 3), 0), ((0, 3), 1), ((1,), 3), ((1,), [0]), ((), 0),
                            ((2, 2), -3)):
            yield f"{op}/wrong/{shape}/{axis}", lambda op=op, s=shape, a=axis: [
                getattr(RAW, op)(input=const(numpy.ones(s), "float32"), dimension=ints(a))]
    for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        for dtype in cpu_dtypes(op):
            for shape, axis in [ALONG_SHAPES[i]
                                for i in rng.choice(len(ALONG_SHAPES), 5, replace=False)]:
                value = oracle.sample(rng, dtype, shape)
                if op == "Cumprod" and (is_float(dtype) or is_complex(dtype)):
                    value = 1 + numpy.asarray(value) / 40
                tolerance = {"float32": {"rtol": 1e-4, "atol": 1e-4},
                             "complex64": {"rtol": 1e-4, "atol": 1e-4},
                             "float64": {"rtol": 1e-11, "atol": 1e-11},
                             "complex128": {"rtol": 1e-11, "atol": 1e-11}}.get(dtype, {})
                if dtype in HALF:
                    tolerance = {"rtol": 5e-2, "atol": 5e-1} if dtype == "float16" else {
                        "rtol": 3e-1, "atol": 4}
                for exclusive, reverse in itertools.product((False, True), repeat=2):
                    yield (
                        f"{op}/{dtype}/{shape}/{axis}/{exclusive}{reverse}",
                        lambda op=op, d=dtype, v=value, a=axis, e=exclusive,
                        r=reverse: [getattr(RAW,
                                            op)(x=const(v, d), axis=ints(
                                                a, "int64" if r else "int32"), exclusive=e,
                                                reverse=r)],
                        tolerance,
                    )
        for shape, axis in (((), 0), ((1,), 1), ((1,), [0]), ((2, 2), -3)):
            yield f"{op}/wrong/{shape}/{axis}", lambda op=op, s=shape, a=axis: [
                getattr(RAW, op)(x=const(numpy.ones(s), "float32"), axis=ints(a))]
    for value in ([-INF, -INF, INF, 1], [-INF, 1, 2], [1000.0, 1000, -1000]):
        for reverse in (False, True):
            yield f"CumulativeLogsumexp/specials/{value}{reverse}", lambda v=value, r=reverse: [
                RAW.CumulativeLogsumexp(x=const(v, "float64"), axis=ints(0), reverse=r)]


# ---- products ----

PRODUCT_TOLERANCE = {
    "float32": {"rtol": 2e-4, "atol": 2e-4}, "complex64": {"rtol": 2e-4, "atol": 2e-4},
    "float64": {"rtol": 1e-11, "atol": 1e-11}, "complex128": {"rtol": 1e-11, "atol": 1e-11},
    "float16": {"rtol": 2e-2, "atol": 2e-1}, "bfloat16": {"rtol": 6e-2, "atol": 2},
}  # fmt: skip
STACKS = [
    ((), ()), ((2,), (2,)), ((3,), ()), ((), (3,)), ((2, 3), (2, 3)), ((2, 1), (1, 3)),
    ((2, 3), (3,)), ((1,), (4,)), ((0,), (0,)), ((2, 1, 2), (3, 1)),
]  # fmt: skip


def product_cases(rng):
    for dtype in cpu_dtypes("MatMul"):
        for m, k, n in ((1, 1, 1), (2, 3, 4), (1, 32, 10), (7, 1, 5), (0, 3, 2), (3, 0, 2),
                        (3, 2, 0), (33, 40, 37), (5, 300, 2)):
            for ta, tb in itertools.product((False, True), repeat=2):
                a, b = oracle.sample(rng, dtype, (k, m) if ta else (m, k)), oracle.sample(
                    rng, dtype, (n, k) if tb else (k, n))
                yield (
                    f"MatMul/{dtype}/{m},{k},{n}/{ta:d}{tb:d}",
                    lambda d=dtype, a=a, b=b, ta=ta,
                    tb=tb: [RAW.MatMul(a=const(a, d), b=const(b, d), transpose_a=ta,
                                       transpose_b=tb)],
                    PRODUCT_TOLERANCE.get(dtype, {}),
                )
        for op in ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"):
            if dtype not in cpu_dtypes(op, "Ta" if op.endswith("3") else "T"):
                continue
            for x_stack, y_stack in STACKS:
                if op == "BatchMatMul" and x_stack != y_stack:
                    continue
                m, k, n = (int(i) for i in rng.integers(1, 9, 3))
                ax, ay = (bool(i) for i in rng.integers(0, 2, 2))
                x, y = oracle.sample(rng, dtype,
                                     (*x_stack, *((k, m) if ax else (m, k)))), oracle.sample(
                                         rng, dtype, (*y_stack, *((n, k) if ay else (k, n))))
                attrs = {"Tout": tf.as_dtype(dtype)} if op.endswith("3") else {}
                yield (
                    f"{op}/{dtype}/{x_stack}{y_stack}/{m},{k},{n}/{ax:d}{ay:d}",
                    lambda op=op, d=dtype, x=x, y=y, ax=ax, ay=ay,
                    attrs=attrs: [getattr(RAW, op)(x=const(x, d), y=const(y, d), adj_x=ax, adj_y=ay,
                            **attrs)],
                    PRODUCT_TOLERANCE.get(dtype, {}),
                )
    for combination in cpu_combinations("BatchMatMulV3"):
        types = dict(combination)
        if types["Ta"] == types["Tb"] == types["Tout"]:
            continue
        x, y = oracle.sample(rng, types["Ta"], (2, 3, 4)), oracle.sample(
            rng, types["Tb"], (2, 4, 5))
        yield f"BatchMatMulV3/{types}", lambda t=types, x=x, y=y: [
            RAW.BatchMatMulV3(x=const(x, t["Ta"]), y=const(y, t["Tb"]),
                              Tout=tf.as_dtype(t["Tout"]))], {"rtol": 6e-2, "atol": 1}
    for m, k, n in ((128, 128, 128), (64, 784, 100), (1, 500, 300), (300, 500, 1), (257, 65, 129)):
        a, b = rng.normal(size=(m, k)), rng.normal(size=(k, n))
        for dtype in ("float32", "float64", "complex64", "int32", "bfloat16"):
            yield f"MatMul/{dtype}/large {m},{k},{n}", lambda d=dtype, a=a, b=b: [
                RAW.MatMul(a=const(a * 9, d), b=const(b * 9, d))], {
                    "rtol": 2e-3, "atol": 0.2} if dtype != "bfloat16" else {
                        "rtol": 6e-2, "atol": 60}
    # few rows: as dot products
    for m, k, n in ((3, 300, 7), (24, 257, 65), (32, 1024, 100), (47, 512, 50), (64, 400, 64)):
        a, b = numpy.random.default_rng(m).normal(size=(m, k)), numpy.random.default_rng(n).normal(
            size=(n, k))
        yield f"MatMul/few rows/{m},{k},{n}", lambda a=a, b=b: [
            RAW.MatMul(a=const(a, "float32"), b=const(b, "float32"), transpose_b=True)], {
                "rtol": 1e-4, "atol": 1e-4}
    # rows of slices: a GPU has them where they are, aligned to an element only
    for dtype in ("bfloat16", "half", "float32", "float64", "complex64"):
        own = numpy.random.default_rng(13)
        a, b = oracle.sample(own, dtype, (72, 13)), oracle.sample(own, dtype, (24, 13))
        yield f"MatMul/{dtype}/rows of slices", lambda d=dtype, a=a, b=b: [
            RAW.MatMul(a=const(a, d)[1:], b=const(b, d)[3:], transpose_b=True)], {
                "rtol": 6e-2, "atol": 2} if dtype in ("bfloat16", "half") else {
                    "rtol": 2e-4, "atol": 2e-4}

    def long_stack():  # of more products than fit in a dimension of a GPU's grid
        x = tf.reshape(tf.cast(tf.range(140_000) % 7, tf.float32), [70_000, 1, 2])
        y = tf.reshape(x * 2 - 3, [70_000, 2, 1])
        return [RAW.BatchMatMulV2(x=x, y=y)[::997]]

    yield "BatchMatMulV2/long stack", long_stack
    for shapes in (((2, 3), (2, 3)), ((2,), (2, 3)), ((2, 2), (2,)), ((2, 2, 3), (2, 3, 2)),
                   ((2, 3), (1, 3, 2))):
        yield f"MatMul/wrong/{shapes}", lambda s=shapes: [
            RAW.MatMul(a=const(numpy.ones(s[0]), "float32"), b=const(numpy.ones(s[1]), "float32"))]
    for op in ("BatchMatMul", "BatchMatMulV2"):
        for shapes in (((2, 2, 3), (2, 2, 3)), ((2, 2, 3), (3, 3, 3)), ((3,), (3, 3)),
                       ((3, 3), (3,)), ((2, 2, 3), (3, 3)), ((2, 2, 3), (1, 3, 3))):
            yield f"{op}/wrong/{shapes}", lambda op=op, s=shapes: [
                getattr(RAW, op)(x=const(numpy.ones(s[0]), "float32"),
                                 y=const(numpy.ones(s[1]), "float32"))]


# ---- segments and counts ----


def segment_cases(rng):
    def tolerance(dtype):
        return {"float32": {"rtol": 1e-5, "atol": 1e-5}, "complex64": {"rtol": 1e-5, "atol": 1e-5},
                "float16": {"rtol": 2e-2, "atol": 5e-2},
                "bfloat16": {"rtol": 6e-2, "atol": 0.3}}.get(dtype, {})

    data_shapes = [((4,), [0, 0, 1, 3]), ((3, 2), [0, 0, 0]), ((5, 2, 3), [1, 1, 2, 2, 5]),
                   ((0, 2), []), ((3, 0), [0, 1, 1]), ((2, 600), [0, 0])]
    for op in ("SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"):
        for dtype in cpu_dtypes(op):
            for shape, ids in data_shapes:
                value = oracle.sample(rng, dtype, shape)
                yield f"{op}/{dtype}/{shape}", lambda op=op, d=dtype, v=value, i=ids: [
                    getattr(RAW, op)(data=const(v, d),
                                     segment_ids=ints(
                                         i, ("int32", "int64")[len(i) % 2]))], tolerance(dtype)
        for shape, ids in (((3, 2), [0, 2, 1]), ((3, 2), [-1, 0, 0]), ((3, 2), [0, 0]),
                           ((3, 2), [[0, 0, 1]]), ((), [0]), ((3, 2), [0, -1, 0])):
            yield f"{op}/wrong/{shape}/{ids}", lambda op=op, s=shape, i=ids: [
                getattr(RAW, op)(data=const(numpy.ones(s), "float32"), segment_ids=ints(i))]
    for ids in ([0, 7], [7, 9]):  # nothing is added: no id is wrong
        yield f"UnsortedSegmentSum/nothing/{ids}", lambda ids=ids: [
            RAW.UnsortedSegmentSum(data=const(numpy.zeros((2, 0, 3)), "float32"),
                                   segment_ids=const(ids, "int32"), num_segments=const(3, "int32"))
        ]
    for op in ("UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMin",
               "UnsortedSegmentMax"):
        for dtype in cpu_dtypes(op):
            for shape, ids, n in (((4,), [3, -1, 0, 3], 5), ((3, 2), [2, 0, 2], 3),
                                  ((3, 2), [[0, 1], [1, 0], [-1, 3]], 4), ((2, 3, 2), [1, 0], 2),
                                  ((0, 2), [], 3), ((3, 2), 1, 2), ((2, 600), [1, 1], 2)):
                value = oracle.sample(rng, dtype, shape)
                yield f"{op}/{dtype}/{shape}/{n}", lambda op=op, d=dtype, v=value, i=ids, n=n: [
                    getattr(RAW, op)(data=const(v, d),
                                     segment_ids=ints(i, ("int32", "int64")[len(v) % 2]),
                                     num_segments=ints(n, ("int32", "int64")[n % 2]))], tolerance(
                                         dtype)
        for shape, ids, n in (((3, 2), [5, 0, 0], 4), ((3, 2), [0, 1], 4), ((3, 2), [0, 1, 2], -1),
                              ((3, 2), [0, 1, 2], [4]), ((3, 2), [[[0]]], 3),
                              ((3, 2), [0, 0, 0], 0)):
            yield f"{op}/wrong/{shape}/{ids}/{n}", lambda op=op, s=shape, i=ids, n=n: [
                getattr(RAW, op)(data=const(numpy.ones(s), "float32"), segment_ids=ints(i),
                                 num_segments=ints(n))]
    for base, suffix in itertools.product(("SparseSegmentSum", "SparseSegmentMean",
                                           "SparseSegmentSqrtN"), ("", "WithNumSegments")):
        op = base + suffix
        more = {"num_segments": 7} if suffix else {}
        for dtype in cpu_dtypes(op):
            for shape, indices, ids in (((4,), [0, 3, 1, 1], [0, 0, 1, 3]),
                                        ((3, 2), [2, 0, 2], [0, 0, 0]), ((5, 2, 3), [4, 1], [1, 5]),
                                        ((3, 2), [], []), ((3, 600), [1, 2], [0, 0])):
                value = oracle.sample(rng, dtype, shape)
                yield (
                    f"{op}/{dtype}/{shape}{len(ids)}",
                    lambda op=op, d=dtype, v=value, x=indices, i=ids,
                    m=more: [getattr(RAW, op)(data=const(v, d),
                                              indices=ints(x, ("int32", "int64")[len(x) % 2]),
                                              segment_ids=ints(
                                                  i, ("int64", "int32")[len(x) // 2 % 2]),
                                              **{k: ints(n) for k, n in m.items()})],
                    tolerance(dtype),
                )
        for shape, indices, ids in (((3, 2), [0, 3], [0, 0]), ((3, 2), [0, -1], [0, 0]),
                                    ((3, 2), [0, 1], [1, 0]), ((3, 2), [0, 1], [-1, 0]),
                                    ((3, 2), [0, 1], [0]), ((3, 2), [[0]], [[0]]), ((), [0], [0])):
            yield (f"{op}/wrong/{shape}/{indices}/{ids}", lambda op=op, s=shape, x=indices, i=ids,
                   m=more: [getattr(RAW, op)(data=const(numpy.ones(s), "float32"), indices=ints(x),
                                             segment_ids=ints(i),
                                             **{k: ints(n) for k, n in m.items()})])
        for n in (2, -1, [5]) if suffix else ():
            yield f"{op}/wrong/{n}", lambda op=op, n=n: [
                getattr(RAW, op)(data=const(numpy.ones((3, 2)), "float32"), indices=ints([0, 1]),
                                 segment_ids=ints([0, 2]), num_segments=ints(n))]
    for op in ("SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"):
        for dtype in cpu_dtypes(op):
            for shape, indices, ids, n in (((2, 2), [0, 2, 2], [0, 0, 1], 4),
                                           ((3,), [1, 0, 0], [0, 2, 2], 2),
                                           ((2, 3, 600), [1, 1], [0, 1], 2)):
                value = oracle.sample(rng, dtype, shape)
                yield (f"{op}/{dtype}/{shape}", lambda op=op, d=dtype, v=value, x=indices, i=ids,
                       n=n: [getattr(RAW, op)(grad=const(v, d), indices=ints(x),
                                              segment_ids=ints(i), output_dim0=ints(n))],
                       tolerance(dtype))
        for indices, ids, n in (([0, 4], [0, 1], 4), ([0, -1], [0, 1], 4), ([0, 1], [0, 2], 4),
                                ([0, 1], [-1, 0], 4), ([0, 1], [0, 1], -4), ([0], [0, 1], 4),
                                ([0], [0], [4])):
            yield f"{op}/wrong/{indices}/{ids}/{n}", lambda op=op, x=indices, i=ids, n=n: [
                getattr(RAW, op)(grad=const(numpy.ones((2, 2)), "float32"), indices=ints(x),
                                 segment_ids=ints(i), output_dim0=ints(n))]
    for dtype in cpu_dtypes("Bincount"):
        for values, weighted in (([1, 1, 2, 7, 0], False), ([1, 1, 2, 7, 0], True),
                                 ([[1, 2], [2, 2]], False), ([[1, 2], [2, 2]], True), ([], False),
                                 (1, False)):
            w = oracle.sample(rng, dtype, numpy.shape(values)) if weighted else []
            for op in ("Bincount", "DenseBincount") if dtype in cpu_dtypes("DenseBincount") else (
                "Bincount",):
                for binary in (False, True) if op == "DenseBincount" else (None,):
                    attrs = {} if binary is None else {"binary_output": binary}
                    name = "arr" if op == "Bincount" else "input"
                    yield (f"{op}/{dtype}/{values}/{weighted}{binary}", lambda op=op, d=dtype,
                           v=values, w=w, a=attrs,
                           n=name: [getattr(RAW,
                                            op)(**{n: ints(v)}, size=ints(4), weights=const(w, d),
                                                **a)], tolerance(dtype))
    for dtype, index, (shape, size) in itertools.product(
        cpu_dtypes("DenseBincount"), ("int32", "int64"),
        (((1003,), 5), ((2, 402), 3), ((400,), 1), ((900,), 7))):
        values = rng.integers(0, size + 2, shape)
        weights = oracle.sample(rng, dtype, shape)
        for binary, weighted in itertools.product((False, True), (False, True)):
            yield (f"DenseBincount/many/{dtype}/{index}/{shape}/{size}/{binary}{weighted}",
                   lambda d=dtype, i=index, v=values, n=size, b=binary, w=weights if weighted
                   else []: [
                RAW.DenseBincount(input=const(v, i), size=const(n, i), weights=const(w, d),
                                  binary_output=b)
            ], {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else tolerance(dtype))
    for values, n, w in (([1, -1], 4, []), ([1], -1, []), ([1], [3], []), ([1, 2], 3, [1]),
                         ([[1, -1]], 4, []), ([[[1]]], 3, []), ([1], 0, [])):
        yield f"Bincount/wrong/{values}/{n}/{w}", lambda v=values, n=n, w=w: [
            RAW.Bincount(arr=ints(v), size=ints(n), weights=const(w, "float32"))]
        yield f"DenseBincount/wrong/{values}/{n}/{w}", lambda v=values, n=n, w=w: [
            RAW.DenseBincount(input=ints(v), size=ints(n), weights=const(w, "float32"))]
    for dtype, out in itertools.product(cpu_dtypes("HistogramFixedWidth"), ("int32", "int64")):
        yield f"HistogramFixedWidth/{dtype}/{out}", lambda d=dtype, o=out: [
            RAW.HistogramFixedWidth(values=const([0, 1, 2, 2, 5, 15, 100, 4], d),
                                    value_range=const([1, 6], d), nbins=ints(5),
                                    dtype=tf.as_dtype(o))]
    for values, bounds, n in (([-1.0, 0.0, 1.5, 2.0, 5.0, 15], [0, 5], 5), ([1, 2], [5, 5], 5),
                              ([1, 2], [5, 0], 5), ([1, 2], [0, 5, 6], 5), ([1, 2], [0, 5], 0),
                              ([NAN, 1], [0, 5], 5), ([], [0, 5], 5), ([1, 2], [0, 5], [5]),
                              ([[1, 2], [3, 4]], [0, 5], 5), ([1], [NAN, 1], 5)):
        yield f"HistogramFixedWidth/special/{values}{bounds}{n}", lambda v=values, b=bounds, n=n: [
            RAW.HistogramFixedWidth(values=const(v, "float32"), value_range=const(b, "float32"),
                                    nbins=ints(n))]
    for dtype in cpu_dtypes("Cross"):
        for shape in ((3,), (2, 3), (0, 3), (70, 3)):
            a, b = oracle.sample(rng, dtype, shape), oracle.sample(rng, dtype, shape)
            yield f"Cross/{dtype}/{shape}", lambda d=dtype, a=a, b=b: [
                RAW.Cross(a=const(a, d), b=const(b, d))], {
                    **tolerance(dtype), **({"atol": 0.3, "rtol": 0.1} if dtype in HALF else {})}
    for a, b in (((2,), (2,)), ((3,), (1, 3)), ((), ())):
        yield f"Cross/wrong/{a}{b}", lambda a=a, b=b: [
            RAW.Cross(a=const(numpy.ones(a), "float32"), b=const(numpy.ones(b), "float32"))]


def cases():
    rng = numpy.random.default_rng(7)
    with numpy.errstate(all="ignore"):
        yield from unary_cases(rng)
        yield from binary_cases(rng)
        yield from cast_cases(rng)
        yield from select_cases(rng)
        yield from reduce_cases(rng)
        yield from along_cases(rng)
        yield from product_cases(rng)
        yield from segment_cases(rng)
