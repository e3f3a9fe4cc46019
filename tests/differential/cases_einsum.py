"""Cases of Einsum, and of CheckNumerics."""

import itertools

import ml_dtypes
import numpy
import tensorflow as tf

import oracle
from tf_kernels import cpu_dtypes

RAW = tf.raw_ops
NAN, INF = numpy.nan, numpy.inf
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-5, "complex64": 1e-5,
             "float64": 1e-12, "complex128": 1e-12}
EQUATIONS = (
    ("ab,bc->ac", ((2, 3), (3, 4))), ("ab,bc->ca", ((2, 3), (3, 4))),
    ("ba,bc->ac", ((3, 2), (3, 4))), ("ab,cb->ac", ((2, 3), (4, 3))),
    ("ab->", ((2, 3),)), ("ab->ba", ((2, 3),)), ("ab->a", ((2, 3),)), ("ab->b", ((2, 3),)),
    ("->", ((),)), ("a->a", ((3,),)), ("aa->a", ((3, 3),)),
    ("aa->", ((3, 3),)), ("aab->ab", ((2, 2, 4),)), ("ab->abb", ((2, 3),)), ("ab->aa", ((2, 3),)),
    ("a->aaa", ((3,),)), ("aab,b->aa", ((2, 2, 3), (3,))),
    ("a...->...a", ((2, 3, 4),)), ("...ab->...ba", ((2, 3, 4),)), ("...->...", ((2, 3),)),
    ("...a->...", ((2, 3),)), ("a...a->...", ((2, 3, 2),)),
    ("a...,b...->ab...", ((2, 3), (4, 1))), ("...ab,...bc->...ac", ((5, 2, 3), (3, 4))),
    ("...ab,...bc->...ac", ((5, 1, 2, 3), (6, 3, 4))),
    ("...,...->...", ((2, 1, 3), (4, 1))), ("...a,a->...", ((2, 1, 3), (3,))),
    ("ab,ab->ab", ((2, 3), (2, 3))), ("ab,ab->", ((2, 3), (2, 3))), ("a,b->ab", ((2,), (3,))),
    ("a,b->ba", ((2,), (3,))), ("a,b->a", ((2,), (3,))), ("a,b->", ((2,), (3,))), (",->", ((), ())),
    ("a,->a", ((3,), ())), ("a,a->aa", ((2,), (2,))),
    ("abc,cd->abd", ((2, 3, 4), (4, 5))), ("abcd,aebd->acbe", ((2, 3, 4, 5), (2, 6, 3, 5))),
    ("abc,abd->acd", ((2, 3, 4), (2, 3, 5))), ("bac,cad->bd", ((2, 3, 4), (4, 3, 5))),
    ("a...b,b...->...a", ((2, 3, 4), (4, 3))), ("Ab,bC->AC", ((2, 3), (3, 4))),
    ("a1->1", ((2, 3),)), ("ab,b->...", ((2, 2), (2,))), ("a->...a", ((2,),)), ("a...->a", ((2,),)),
    ("ab,bc->ac", ((2, 0), (0, 4))), ("ab,bc->ac", ((0, 2), (2, 4))), ("ab->a", ((2, 0),)),
    ("ab->ba", ((2, 0),)), ("abcdef->fedcba", ((1, 2, 3, 1, 2, 2),)),
)  # fmt: skip
WRONG = (
    ("ab,bc->ac", ((2, 3), (2, 4))), ("aab->a", ((2, 3, 4),)), ("ab,ab->ab", ((2, 3), (1, 3))),
    ("abc->a", ((2, 3),)), ("...a->a", ((2, 3),)), ("a b,b c->a c", ((2, 3), (3, 4))),
    ("...a,...b->...ab", ((2, 3), (3, 4))), ("abc...->a", ((2, 3),)), ("a,b->c", ((2,), (2,))),
    ("ab", ((2, 3),)), ("a.b->a", ((2, 3),)), ("a->a", ((2,), (2,))),
)  # fmt: skip


def np_dtype(name):
    return numpy.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else tf.as_dtype(
        name).as_numpy_dtype


def const(values, dtype):
    return oracle.const(numpy.asarray(values).astype(np_dtype(dtype)), tf.as_dtype(dtype))


def einsum(equation, values, dtype):
    return lambda: [RAW.Einsum(inputs=[const(value, dtype) for value in values], equation=equation)]


def cases():
    rng = numpy.random.default_rng(3)
    for dtype, (equation, shapes) in itertools.product(cpu_dtypes("Einsum"), EQUATIONS):
        values = [oracle.sample(rng, dtype, shape) for shape in shapes]
        tolerance = TOLERANCE.get(dtype, 0)
        yield f"Einsum/{dtype}/{equation}/{shapes}", einsum(equation, values, dtype), {
            "rtol": tolerance, "atol": 10 * tolerance}
    for equation, shapes in WRONG:
        yield f"Einsum/wrong/{equation}/{shapes}", einsum(
            equation, [numpy.ones(shape) for shape in shapes], "float32")
    for dtype in ("float32", "complex128", "int32"):
        for equation, shapes in (("ab,bc->ac", ((70, 50), (50, 90))),
                                 ("bhqd,bkhd->bhqk", ((2, 4, 20, 16), (2, 30, 4, 16))),
                                 ("...ab,...bc->...ca", ((4, 1, 30, 20), (5, 20, 25)))):
            yield f"Einsum/{dtype}/large/{equation}", einsum(
                equation, [oracle.sample(rng, dtype, shape) for shape in shapes], dtype), {
                    "rtol": 1e-4, "atol": 1e-2}
    for op in ("CheckNumerics", "CheckNumericsV2"):
        for dtype, bad in itertools.product(cpu_dtypes(op),
                                            ([], [NAN], [INF], [-INF], [NAN, INF], [NAN, -INF],
                                             [INF, -INF], [NAN, INF, -INF], [-NAN])):
            values = numpy.concatenate([rng.normal(size=30), bad, [1, 0.0, -0.0]])
            yield f"{op}/{dtype}/{bad}", lambda op=op, d=dtype, v=values: [
                getattr(RAW, op)(tensor=const(v, d), message="words")]
        yield f"{op}/empty", lambda op=op: [getattr(RAW, op)(tensor=const(numpy.zeros((0, 3)),
                "float32"), message="")]
        yield f"{op}/scalar", lambda op=op: [getattr(RAW, op)(tensor=const(NAN, "float64"),
                message="")]
