"""Cases of the linear algebra family. Where an answer is not unique (signs and phases of QR,
singular and eigen vectors), the case's graph puts the matrix together again, and both sides must
find it. The ops named Batch… are refused in new graphs: rows of the same kernels."""

import itertools

import numpy
import tensorflow as tf

import oracle
from tf_kernels import cpu_dtypes

RAW = tf.raw_ops
NAN, INF = numpy.nan, numpy.inf
TOLERANCE = {"float16": 3e-2, "float32": 2e-4, "complex64": 2e-4, "float64": 1e-10,
             "complex128": 1e-10}
SQUARE = ((1, 1), (2, 2), (5, 5), (3, 4, 4), (2, 3, 2, 2), (33, 33), (0, 0), (2, 0, 0), (0, 3, 3))
OBLONG = ((4, 3), (3, 4), (2, 5, 1), (1, 5), (2, 2, 40, 7), (3, 20, 21), (0, 3), (3, 0), (2, 0, 4),
          (0, 2, 3))


UNWRITTEN = {"Cholesky": {"explained": "TensorFlow leaves the upper triangle of a matrix that it "
                                       "could not decompose as the memory was"}}


def const(values, dtype):
    return oracle.const(numpy.asarray(values).astype(tf.as_dtype(dtype).as_numpy_dtype),
                        tf.as_dtype(dtype))


def options(dtype, factor=1, **more):
    return {"rtol": TOLERANCE[dtype] * factor, "atol": TOLERANCE[dtype] * factor, **more}


def random(rng, dtype, shape):
    value = rng.normal(size=shape)
    return value + 1j * rng.normal(size=shape) if tf.as_dtype(dtype).is_complex else value


def well_behaved(rng, dtype, shape):
    """Square, far from singular."""
    return random(rng, dtype, shape) + 2 * numpy.sqrt(shape[-1] + 1) * numpy.eye(shape[-1])


def definite(rng, dtype, shape):
    a = random(rng, dtype, shape)
    return a @ numpy.conj(numpy.swapaxes(a, -1, -2)) + (shape[-1] + 1) * numpy.eye(shape[-1])


def hermitian(rng, dtype, shape):
    a = random(rng, dtype, shape)
    return a + numpy.conj(numpy.swapaxes(a, -1, -2))


def product(a, b, adj_x=False, adj_y=False):
    return RAW.BatchMatMulV2(x=a, y=b, adj_x=adj_x, adj_y=adj_y)


def wrong_squares(op, build, dtype="float32"):
    for shape in ((2, 3), (3,), (), (3, 0), (2, 3, 2)):
        yield f"{op}/wrong/{shape}", lambda s=shape: build(const(numpy.ones(s), dtype))


def one_matrix_cases(rng):
    for op, make in (
        ("Cholesky", definite), ("MatrixDeterminant", random), 
        ("LogMatrixDeterminant", random), ("MatrixSquareRoot", definite),
        ("MatrixLogarithm", well_behaved),
    ):  # fmt: skip
        for dtype, shape in itertools.product(cpu_dtypes(op), SQUARE):
            if op.endswith("Determinant") and op != "LogMatrixDeterminant" and shape[-1] > 10:
                continue
            value = make(rng, dtype, shape)
            yield f"{op}/{dtype}/{shape}", lambda op=op, d=dtype, v=value: [
                *tf.nest.flatten(getattr(RAW, op)(input=const(v, d)))], options(dtype)
        if op != "MatrixLogarithm":
            yield from wrong_squares(op, lambda a,
                                     op=op: [*tf.nest.flatten(getattr(RAW, op)(input=a))])
    yield from wrong_squares("MatrixLogarithm", lambda a: [RAW.MatrixLogarithm(input=a)],
                             "complex64")
    singular = numpy.array([[1.0, 2], [2, 4]])
    for op in ("Cholesky", "MatrixDeterminant", "LogMatrixDeterminant", "MatrixSquareRoot"):
        for name, value in (("zero", singular * 0), ("negative", [[1.0, 2], [2, -4]]),
                            ("nan", singular * NAN)):
            yield f"{op}/special/{name}", lambda op=op, v=value: [
                *tf.nest.flatten(getattr(RAW, op)(input=const(v, "float32")))], {
                    **options("float32"), **UNWRITTEN.get(op, {})}
    yield "MatrixLogarithm/special/negative", lambda: [
        RAW.MatrixLogarithm(input=const([[1, 2], [2, -4]], "complex64"))], options("complex64")
    for op in ("CholeskyGrad",):
        for dtype, shape in itertools.product(cpu_dtypes(op), SQUARE):
            l, grad = numpy.tril(well_behaved(rng, dtype, shape)), random(rng, dtype, shape)
            yield f"{op}/{dtype}/{shape}", lambda op=op, d=dtype, l=l, g=grad: [
                getattr(RAW, op)(l=const(l, d), grad=const(g, d))], options(dtype)
        for l, grad in (((2, 3), (2, 3)), ((2, 2), (3, 3)), ((2,), (2,)), ((2, 2), (1, 2, 2)),
                        ((2, 2, 2), (3, 2, 2))):
            yield f"{op}/wrong/{l}{grad}", lambda op=op, l=l, g=grad: [
                getattr(RAW, op)(l=const(numpy.ones(l), "float32"),
                                 grad=const(numpy.ones(g), "float32"))]
    for op in ("MatrixInverse",):
        for dtype, shape, adjoint in itertools.product(cpu_dtypes(op), SQUARE, (False, True)):
            value = well_behaved(rng, dtype, shape)
            yield f"{op}/{dtype}/{shape}{adjoint}", lambda op=op, d=dtype, v=value, a=adjoint: [
                getattr(RAW, op)(input=const(v, d), adjoint=a)], options(dtype)
        yield from wrong_squares(op, lambda a, op=op: [getattr(RAW, op)(input=a)])
        for name, value in (("singular", singular), ("zero", singular * 0), ("nan", singular * NAN),
                            ("second", [numpy.eye(2), singular])):
            yield f"{op}/{name}", lambda op=op, v=value: [
                getattr(RAW, op)(input=const(v, "float32"))]


def lu_cases(rng):
    for dtype, shape, index in itertools.product(cpu_dtypes("Lu"), SQUARE, ("int32", "int64")):
        value = random(rng, dtype, shape)
        yield f"Lu/{dtype}/{shape}{index}", lambda d=dtype, v=value, i=index: [
            *RAW.Lu(input=const(v, d), output_idx_type=tf.as_dtype(i))], options(dtype, 5)
    yield from wrong_squares("Lu", lambda a: [*RAW.Lu(input=a)])
    for name, value in (("singular", [[1, 2], [2, 4]]), ("zero", [[0]]), ("nan", [[NAN]]),
                        ("rows", [[0, 0, 1], [1, 0, 0], [0, 1, 0]])):
        yield f"Lu/{name}", lambda v=value: [*RAW.Lu(input=const(v, "float64"))]


def decomposition_cases(rng):
    for dtype, shape, full in itertools.product(cpu_dtypes("Qr"), (*OBLONG, *SQUARE),
                                                (False, True)):

        def build(d=dtype, v=random(rng, dtype, shape), f=full):
            q, r = RAW.Qr(input=const(v, d), full_matrices=f)
            return [product(q, r), product(q, q, adj_x=True),
                    RAW.ComplexAbs(x=r, Tout=tf.as_dtype(d).real_dtype) if tf.as_dtype(d).is_complex
                    else RAW.Abs(x=r)]

        yield f"Qr/{dtype}/{shape}{full}", build, options(dtype, 3)
    for shape in ((3,), ()):
        yield f"Qr/wrong/{shape}", lambda s=shape: [*RAW.Qr(input=const(numpy.ones(s), "float32"))]
        yield f"Svd/wrong/{shape}", lambda s=shape: [
            *RAW.Svd(input=const(numpy.ones(s), "float32"))]
    yield "Qr/zero", lambda: [RAW.Qr(input=const(numpy.zeros((3, 2)), "float64")).r]
    yield "Svd/nan", lambda: [*RAW.Svd(input=const(numpy.full((3, 2), NAN), "float64"))]
    for op in ("Svd",):
        for dtype, shape, vectors, full in itertools.product(
            cpu_dtypes(op), (*OBLONG, *SQUARE), (False, True), (False, True)):

            def build(op=op, d=dtype, v=random(rng, dtype, shape), c=vectors, f=full):
                s, u, w = getattr(RAW, op)(input=const(v, d), compute_uv=c, full_matrices=f)
                if not c:
                    return [s, RAW.Shape(input=u), RAW.Shape(input=w)]  # nothing is written to them
                together = [] if f else [product(u * tf.expand_dims(s, -2), w, adj_y=True)]
                return [s, product(u, u, adj_x=True), product(w, w, adj_x=True), *together]

            yield f"{op}/{dtype}/{shape}{vectors}{full}", build, options(dtype, 3)
    for op in ("SelfAdjointEigV2",):
        for dtype, shape, vectors in itertools.product(cpu_dtypes(op), SQUARE, (False, True)):

            def build(op=op, d=dtype, v=hermitian(rng, dtype, shape), c=vectors):
                e, w = getattr(RAW, op)(input=const(v, d), compute_v=c)
                return [e, product(w * tf.expand_dims(e, -2), w, adj_y=True),
                        product(w, w, adj_x=True)] if c else [e, RAW.Shape(input=w)]

            yield f"{op}/{dtype}/{shape}{vectors}", build, options(dtype, 10)
        yield f"{op}/lower", lambda op=op: [getattr(RAW, op)(input=const([[1, 100], [2, 3]],
                "float64"), compute_v=False).e], options("float64")
        yield f"{op}/nan", lambda op=op: [*getattr(RAW, op)(input=const([[1, 100], [NAN, 3]],
                "float64"))]
        yield from wrong_squares(op, lambda a, op=op: [*getattr(RAW, op)(input=a)])
    for dtype, shape, vectors in itertools.product(cpu_dtypes("Eig"), SQUARE, (False, True)):
        out = tf.complex64 if dtype in ("float32", "complex64") else tf.complex128

        def build(d=dtype, v=random(rng, dtype, shape), c=vectors, o=out):
            a = const(v, d)
            e, w = RAW.Eig(input=a, compute_v=c, Tout=o)
            sums = [tf.reduce_sum(e, -1), tf.reduce_sum(e * e, -1)]
            wide = a if a.dtype == o else tf.cast(a, o)
            return [*sums, product(wide, w) - w * tf.expand_dims(e, -2),
                    tf.reduce_sum(w * tf.math.conj(w), -2)] if c else [*sums, RAW.Shape(input=w)]

        yield f"Eig/{dtype}/{shape}{vectors}", build, options(out.name, 30)
    yield "Eig/nan", lambda: [*RAW.Eig(input=const([[NAN]], "float64"), Tout=tf.complex128)]
    yield from wrong_squares("Eig", lambda a: [*RAW.Eig(input=a, Tout=tf.complex64)])


def solver_cases(rng):
    sides = (((2, 2), (2, 1)), ((5, 5), (5, 3)), ((3, 4, 4), (3, 4, 2)), ((40, 40), (40, 9)),
             ((2, 2), (2, 0)), ((0, 0), (0, 2)), ((0, 2, 2), (0, 2, 1)))
    broadcast = (((2, 2), (3, 2, 1)), ((3, 2, 2), (2, 4)), ((2, 1, 3, 3), (4, 3, 2)),
                 ((2, 2), (0, 2, 1)))
    for op in ("MatrixSolve", "MatrixTriangularSolve"):
        is_triangular = "Triangular" in op
        for dtype, (a, b), adjoint, lower in itertools.product(
            cpu_dtypes(op), sides + broadcast * is_triangular, (False, True),
            (True, False)[: 1 + is_triangular]):
            value, rhs = well_behaved(rng, dtype, a), random(rng, dtype, b)
            more = {"lower": lower} if is_triangular else {}
            yield (f"{op}/{dtype}/{a}{b}{adjoint}{lower}", lambda op=op, d=dtype, v=value, r=rhs,
                   t=adjoint, m=more: [getattr(RAW,
                                               op)(matrix=const(v, d), rhs=const(r, d), adjoint=t,
                                                       **m)], options(dtype))
        for a, b in (((2, 3), (2, 1)), ((2, 2), (3, 1)), ((2, 2), (2,)), ((2,), (2, 1)),
                     ((2, 2, 2), (3, 2, 1)), ((2, 2), (3, 2, 1)), ((0, 0), (2, 1))):
            if not (is_triangular and (a, b) == ((2, 2), (3, 2, 1))):
                yield f"{op}/wrong/{a}{b}", lambda op=op, a=a, b=b: [
                    getattr(RAW, op)(matrix=const(numpy.ones(a), "float32"),
                                     rhs=const(numpy.ones(b), "float32"))]
        for name, value in (("singular", [[1, 2], [2, 4]]), ("zero", numpy.zeros((2, 2))),
                            ("nan", numpy.full((2, 2), NAN))):
            yield f"{op}/{name}", lambda op=op, v=value: [
                getattr(RAW, op)(matrix=const(v, "float32"), rhs=const([[1], [2]], "float32"))]
    for dtype, (a, b), adjoint, lower in itertools.product(
        cpu_dtypes("BandedTriangularSolve"), (((1, 3), (3, 1)), ((2, 4), (4, 2)), ((3, 3), (3, 1)),
                                              ((2, 2, 5), (2, 5, 1)), ((2, 5), (3, 5, 2)),
                                              ((4, 2, 5), (5, 2))), (False, True), (True, False)
    ):
        value, rhs = random(rng, dtype, a) + 4, random(rng, dtype, b)
        yield (f"BandedTriangularSolve/{dtype}/{a}{b}{adjoint}{lower}", lambda d=dtype, v=value,
               r=rhs, t=adjoint, l=lower: [RAW.BandedTriangularSolve(matrix=const(v, d),
                       rhs=const(r, d), adjoint=t, lower=l)], options(dtype))
    for a, b in (((2, 3), (2, 1)), ((2,), (2, 1)), ((2, 2), (2,)), ((0, 2), (2, 1)),
                 ((2, 2), (2, 0))):
        yield f"BandedTriangularSolve/wrong/{a}{b}", lambda a=a, b=b: [
            RAW.BandedTriangularSolve(matrix=const(numpy.ones(a), "float32"),
                                      rhs=const(numpy.ones(b), "float32"))]
    yield "BandedTriangularSolve/zero", lambda: [
        RAW.BandedTriangularSolve(matrix=const([[1, 0], [1, 1]], "float32"),
                                  rhs=const([[1], [1]], "float32"))]
    for op in ("MatrixSolveLs",):
        for dtype, (a, b), fast, l2 in itertools.product(
            cpu_dtypes(op), (((2, 2), (2, 1)), ((5, 3), (5, 2)), ((3, 5), (3, 2)),
                             ((2, 6, 3), (2, 6, 1)), ((3, 0), (3, 2)), ((0, 3), (0, 2)),
                             ((2, 2), (2, 0)), ((30, 20), (30, 4))), (True, False), (0.0, 0.5)
        ):
            value, rhs = random(rng, dtype, a), random(rng, dtype, b)
            # TensorFlow leaves them as the memory was
            more = {"ignore": "values"} if 0 in a else {}
            yield (f"{op}/{dtype}/{a}{b}{fast}{l2}", lambda op=op, d=dtype, v=value, r=rhs, f=fast,
                   l=l2: [getattr(RAW, op)(matrix=const(v, d), rhs=const(r, d),
                                           l2_regularizer=const(l, "float64"), fast=f)],
                   options(dtype, 50, **more))
        for a, b, l2 in (((2, 3), (3, 1), 0), ((2, 2), (2,), 0), ((2,), (2, 1), 0),
                         ((2, 2), (2, 1), -1), ((2, 2), (2, 1), [0]), ((2, 2), (1, 2, 1), 0),
                         ((2, 2), (2, 1), 0)):
            yield f"{op}/wrong/{a}{b}{l2}", lambda op=op, a=a, b=b, l=l2: [
                getattr(RAW, op)(matrix=const(numpy.ones(a), "float32"),
                                 rhs=const(numpy.ones(b), "float32"),
                                 l2_regularizer=const(l, "float64"))]
        yield f"{op}/deficient", lambda op=op: [getattr(RAW, op)(
            matrix=const([[1, 2], [2, 4], [0, 0]], "float64"),
            rhs=const([[1], [1], [1]], "float64"), l2_regularizer=const(0, "float64"),
            fast=False)], options("float64")


def tridiagonal_cases(rng):
    for dtype, n, k, stack, pivoting in itertools.product(
        cpu_dtypes("TridiagonalSolve"), (1, 2, 3, 10), (0, 1, 4), ((), (2,), (2, 3), (0,)),
        (True, False)):
        diagonals = random(rng, dtype, (*stack, 3, n)) + numpy.array([0, 0 if pivoting else 5, 0])[
            :, None]
        rhs = random(rng, dtype, (*stack, n, k))
        # TensorFlow crashes where nothing stands on the right
        for perturbs in (False, True)[: 1 + (pivoting and k > 0)]:
            yield (f"TridiagonalSolve/{dtype}/{n},{k},{stack}{pivoting}{perturbs}", lambda d=dtype,
                   v=diagonals, r=rhs, p=pivoting,
                   s=perturbs: [RAW.TridiagonalSolve(diagonals=const(v, d), rhs=const(r, d),
                           partial_pivoting=p, perturb_singular=s)], options(dtype, 50))
    for shape, rhs in (((3, 2), (3, 1)), ((2, 3), (3, 1)), ((3,), (3, 1)), ((3, 3), (3,)),
                       ((2, 3, 3), (3, 1)), ((2, 3, 3), (3, 3, 1))):
        yield f"TridiagonalSolve/wrong/{shape}{rhs}", lambda s=shape, r=rhs: [
            RAW.TridiagonalSolve(diagonals=const(numpy.ones(s), "float32"),
                                 rhs=const(numpy.ones(r), "float32"))]
    for pivoting, perturbs in ((True, False), (False, False), (False, True)):
        yield f"TridiagonalSolve/singular{pivoting}{perturbs}", lambda p=pivoting, s=perturbs: [
            RAW.TridiagonalSolve(diagonals=const([[0, 0, 0], [0, 1, 1], [0, 0, 0]], "float32"),
                                 rhs=const([[1], [1], [1]], "float32"), partial_pivoting=p,
                                 perturb_singular=s)]
    for dtype, n, k, stack in itertools.product(cpu_dtypes("TridiagonalMatMul"), (1, 2, 3, 10),
                                                (0, 1, 4), ((), (2,), (2, 3), (0,))):
        parts = [random(rng, dtype, (*stack, 1, n)) for _ in range(3)]
        rhs = random(rng, dtype, (*stack, n, k))
        yield f"TridiagonalMatMul/{dtype}/{n},{k},{stack}", lambda d=dtype, p=parts, r=rhs: [
            RAW.TridiagonalMatMul(superdiag=const(p[0], d), maindiag=const(p[1], d),
                                  subdiag=const(p[2], d), rhs=const(r, d))], options(dtype)
    for shapes in (((1, 3), (1, 2), (1, 3), (3, 1)), ((3,), (3,), (3,), (3, 1)),
                   ((1, 3), (1, 3), (2, 3), (3, 1)), ((1, 3), (1, 3), (1, 3), (2, 1)),
                   ((1, 1, 3), (1, 3), (1, 3), (3, 1))):
        yield f"TridiagonalMatMul/wrong/{shapes}", lambda s=shapes: [
            RAW.TridiagonalMatMul(superdiag=const(numpy.ones(s[0]), "float32"),
                                  maindiag=const(numpy.ones(s[1]), "float32"),
                                  subdiag=const(numpy.ones(s[2]), "float32"),
                                  rhs=const(numpy.ones(s[3]), "float32"))]


def cases():
    rng = numpy.random.default_rng(11)
    yield from one_matrix_cases(rng)
    yield from lu_cases(rng)
    yield from decomposition_cases(rng)
    yield from solver_cases(rng)
    yield from tridiagonal_cases(rng)
