"""Cases of special functions: Bessel functions and others of one argument, and functions related to
the gamma function."""

import itertools

import numpy
import tensorflow as tf

import oracle
from tf_kernels import cpu_dtypes

RAW = tf.raw_ops
NAN, INF = numpy.nan, numpy.inf
TOLERANCE = {"float16": 5e-3, "float32": 3e-5, "float64": 1e-9}
ANY = "BesselI0 BesselI1 BesselI0e BesselI1e BesselJ0 BesselJ1 Dawsn FresnelCos FresnelSin".split()
POSITIVE = "BesselK0 BesselK1 BesselK0e BesselK1e BesselY0 BesselY1 Expint Spence".split()
PAIRS = "Igamma Igammac IgammaGradA RandomGammaGrad Zeta Polygamma".split()


def const(values, dtype):
    return oracle.const(numpy.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype),
                        tf.as_dtype(dtype))


def options(dtype, factor=1):
    return {"rtol": factor * TOLERANCE[dtype], "atol": factor * TOLERANCE[dtype]}


def pair_values(rng, op, n):
    if op == "Zeta":
        return 1.1 + 5 * rng.random(n), 0.1 + 10 * rng.random(n)
    if op == "Polygamma":
        return rng.integers(0, 5, n), 0.2 + 10 * rng.random(n)
    return 0.1 + 20 * rng.random(n), 0.1 + 20 * rng.random(n)


def apply(op, x, y):
    names = {"Zeta": ("x", "q"), "RandomGammaGrad": ("alpha", "sample")}.get(op, ("a", "x"))
    return getattr(RAW, op)(**dict(zip(names, (x, y))))


def extremes():
    """Huge values, and values beside poles."""
    for op in ("BesselI0e", "BesselI1e", "BesselK0e", "BesselK1e"):
        yield f"{op}/largest", lambda op=op: [
            getattr(RAW, op)(x=const([1.5e308, 1.7e308], "float64"))], {"rtol": 1e-12, "atol": 0}
    yield "Zeta/largest", lambda: [
        RAW.Zeta(x=const([1e30, 1e300], "float64"), q=const([1, 1.5], "float64"))], {}
    yield "Igammac/least a", lambda: [RAW.Igammac(a=const([1e-3, 1e-8, 1e-20], "float64"),
        x=const(1, "float64"))], {"rtol": 1e-10, "atol": 0}
    beside = [-1e-3, -1e-8, -2e-7, -1 - 2**-30, -2 + 2**-30]
    yield "Digamma/poles", lambda: [RAW.Digamma(x=const(beside, "float64"))], {
        "rtol": 1e-12, "atol": 0}


def cases():
    rng = numpy.random.default_rng(17)
    yield from extremes()
    for op in ANY + POSITIVE:
        for dtype in cpu_dtypes(op):
            limit = 8 if dtype == "float16" else 20
            for shape in ((), (0,), (3, 5), (700,)):
                value = limit * (rng.random(shape) if op in POSITIVE else 2 * rng.random(shape) - 1)
                value = value + 0.01 * (op in POSITIVE)
                yield f"{op}/{dtype}/{shape}", lambda op=op, d=dtype, v=value: [
                    getattr(RAW, op)(x=const(v, d))], {
                        "rtol": 5 * TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
            specials = [0.0, NAN] + ([-1.0] if op not in ("Expint",) else [])
            yield f"{op}/{dtype}/special", lambda op=op, d=dtype, v=specials: [
                getattr(RAW, op)(x=const(v, d))], options(dtype)
    for op in PAIRS:
        for dtype in cpu_dtypes(op):
            x, y = pair_values(rng, op, 400)
            yield f"{op}/{dtype}/many", lambda op=op, d=dtype, x=x, y=y: [
                apply(op, const(x, d), const(y, d))], options(dtype, 10)
            yield f"{op}/{dtype}/broadcast", lambda op=op, d=dtype, x=x, y=y: [
                apply(op, const(x[:3].reshape(3, 1), d), const(y[:4], d))], options(dtype, 10)
            yield f"{op}/{dtype}/empty", lambda op=op, d=dtype: [
                apply(op, const(numpy.zeros((0, 2)), d), const(numpy.zeros(2), d))]
        yield f"{op}/wrong", lambda op=op: [apply(op, const([1, 2], "float32"),
                const([1, 2, 3], "float32"))]
    for op, x, y in itertools.product(("Igamma", "Igammac"), (0.0, -1.0, 1.0, NAN, INF),
                                      (0.0, -1.0, 2.0, NAN, INF)):
        if INF not in (x, y) and not (x == 0 and y >= 0):
            yield f"{op}/special/{x},{y}", lambda op=op, x=x, y=y: [
                apply(op, const(x, "float64"), const(y, "float64"))], options("float64")
    for x, y in ((1.0, 2.0), (0.5, 2.0), (2.0, 0.0), (2.0, -1.0), (2.0, -0.5), (2.5, -0.5),
                 (NAN, 1.0)):
        yield f"Zeta/special/{x},{y}", lambda x=x, y=y: [
            apply("Zeta", const(x, "float64"), const(y, "float64"))], options("float64")
    for x, y in ((0.5, 2.0), (-1.0, 2.0), (1.0, 0.0), (0.0, 1.5)):
        yield f"Polygamma/special/{x},{y}", lambda x=x, y=y: [
            apply("Polygamma", const(x, "float64"), const(y, "float64"))], options("float64")
    yield from betainc_cases(rng)


def betainc_cases(rng):
    def case(dtype, *arguments):
        return lambda: [RAW.Betainc(a=const(arguments[0], dtype), b=const(arguments[1], dtype),
                                    x=const(arguments[2], dtype))]

    for dtype in cpu_dtypes("Betainc"):
        a, b, x = 0.1 + 10 * rng.random((20, 30)), 0.1 + 10 * rng.random((20, 30)), rng.random(
            (20, 30))
        yield f"Betainc/{dtype}/many", case(dtype, a, b, x), options(dtype, 10)
        for scalars in itertools.product((True, False), repeat=3):
            values = [v[0, 0] if is_scalar else v for v, is_scalar in zip((a, b, x), scalars)]
            yield f"Betainc/{dtype}/scalars {scalars}", case(dtype, *values), options(dtype, 10)
        yield f"Betainc/{dtype}/nothing", case(dtype, a[:0], 1.0, x[:0]), options(dtype)
        yield f"Betainc/{dtype}/special", case(dtype, [1, 1, 0, -1, NAN, 1, 1, 2, 2],
                                               [1, 1, 1, 1, 1, -1, 0, 3, 3],
                                               [0, 1, 0.5, 0.5, 0.5, 0.5, 0.5, -0.1, 1.1]), options(
                                                   dtype)
    for i, shapes in enumerate((((2,), (3,), ()), ((2,), (), (3,)), ((), (2,), (3,)),
                                ((2, 1), (2, 2), (2, 2)), ((1,), (2,), (2,)))):
        yield f"Betainc/wrong {i}", case("float32", *(numpy.ones(shape) for shape in shapes)), {}
