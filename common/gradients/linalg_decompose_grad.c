/* Differentiates decompositions of matrices, and their square roots (linalg.h). Vectors that a
 * decomposition may choose (the signs of eigenvectors) are taken as they were chosen. */
#include "common/gradients/linalg.h"

/* ---- Cholesky, Qr ---- */

static struct node_input half(struct gradient_ctx *g, struct node_input a) {
    return MUL(NUM(0.5), a);
}

/* A = L Lᴴ: dA is half of S + Sᴴ, S = L⁻ᴴ Φ(Lᴴ dL) L⁻¹, where Φ takes the lower triangle and
 * half of the diagonal. */
static void cholesky_grad(struct gradient_ctx *g) {
    struct node_input l = OUT(0), middle = ADJ_MATMUL(l, DY(0));
    middle = BAND(OP("MatrixSetDiag", middle, half(g, OP("MatrixDiagPart", middle))), -1, 0);
    struct node_input eye = OP("MatrixDiag", OP("OnesLike", OP("MatrixDiagPart", l)));
    struct node_input inverse = OP("MatrixTriangularSolve", l, eye);
    struct node_input s = MATMUL(ADJ_MATMUL(inverse, middle), inverse);
    SET(0, half(g, ADD(s, gradient_adjoint(g, s))));
}

/* x R⁻ᴴ for an upper triangle R */
static struct node_input over_upper(struct gradient_ctx *g, struct node_input x,
                                    struct node_input r) {
    return gradient_adjoint(g, OP_WITH("MatrixTriangularSolve", ATTRS(ATTR_B("lower", false)), r,
                                       gradient_adjoint(g, x)));
}

/* Columns [0, n) or [n, end). */
static struct node_input columns(struct gradient_ctx *g, struct node_input a, struct node_input n,
                                 bool is_first) {
    struct node_input shape = SHAPE(a), outer = gradient_outer(g, shape, 1);
    struct node_input begin = CONCAT(ZEROS(outer), n), zeros = ZEROS(shape);
    return is_first ? OP("Slice", a, zeros, CONCAT(outer, n))
                    : OP("Slice", a, begin, SUB(shape, begin));
}

/* A = Q R for a square R. */
static struct node_input square_qr(struct gradient_ctx *g, struct node_input r,
                                   struct node_input dq, struct node_input dr) {
    struct node_input q = OUT(0), qdq = ADJ_MATMUL(q, dq), rdr = MATMUL_ADJ(r, dr);
    struct node_input skew =
        ADD(SUB(qdq, gradient_adjoint(g, qdq)), SUB(rdr, gradient_adjoint(g, rdr)));
    struct node_input inside = MATMUL(q, ADD(dr, over_upper(g, BAND(skew, -1, 0), r)));
    struct node_input da = ADD(inside, over_upper(g, SUB(dq, MATMUL(q, qdq)), r));
    if (!dtype_in(gradient_dtype(q), DTYPES_COMPLEX))
        return da;
    /* the phases of complex numbers: the imaginary part of the diagonal */
    struct node_input both = BAND(SUB(rdr, gradient_adjoint(g, qdq)), 0, 0);
    struct node_input phase = half(g, SUB(both, CONJ(both)));
    return ADD(da, over_upper(g, MATMUL(q, gradient_adjoint(g, phase)), r));
}

/* [A B] = Q [R S] with a square R: B = Q S moves Q, too. With full_matrices, an A with more rows
 * than columns has an R that is not square, and the step fails. */
static void qr_grad(struct gradient_ctx *g) {
    struct node_input r = OUT(1), n = gradient_inner(g, SHAPE(OUT(0)), 1);
    struct node_input last = gradient_inner(g, SHAPE(r), 1);
    struct node_input width = OP("Minimum", n, last);
    struct node_input ds = columns(g, DY(1), width, false);
    struct node_input dq = ADD(DY(0), MATMUL_ADJ(columns(g, IN(0), width, false), ds));
    struct node_input da =
        square_qr(g, columns(g, r, width, true), dq, columns(g, DY(1), width, true));
    SET(0, OP("ConcatV2", da, MATMUL(OUT(0), ds), I32(-1)));
}

/* ---- eigenvalues, singular values ---- */

/* x / (x² + ε): the reciprocal, and 0 for 0. */
static struct node_input safe_reciprocal(struct gradient_ctx *g, struct node_input x) {
    return MUL(x, OP("Reciprocal", ADD(SQUARE(x), gradient_number(g, x, 1e-20))));
}

/* [i, j]: 1 / (e_j - e_i), and 0 where that does not exist. */
static struct node_input reciprocal_gaps(struct gradient_ctx *g, struct node_input e) {
    return safe_reciprocal(g, SUB(EXPAND(e, -2), EXPAND(e, -1)));
}

/* A = V diag(e) Vᴴ: dA = V (diag(de) + F ∘ Vᴴ dV) Vᴴ, F = reciprocal_gaps(e). Only the lower
 * triangle of A is read, so its gradient includes that of the upper one. */
static void self_adjoint_eig_grad(struct gradient_ctx *g) {
    struct node_input e = OUT(0), v = OUT(1), middle;
    if (gradient_attr_b(g, "compute_v")) {
        middle = ADD(OP("MatrixDiag", DY(0)), MUL(reciprocal_gaps(g, e), ADJ_MATMUL(v, DY(1))));
    } else {
        v = SECOND(OP("SelfAdjointEigV2", IN(0)));
        middle = OP("MatrixDiag", DY(0));
    }
    struct node_input da = MATMUL(v, MATMUL_ADJ(middle, v));
    da = BAND(ADD(da, gradient_adjoint(g, da)), -1, 0);
    SET(0, OP("MatrixSetDiag", da, half(g, OP("MatrixDiagPart", da))));
}

/* A = V diag(e) V⁻¹: dA = V⁻ᴴ (diag(de) + conj(F) ∘ (VᴴdV - VᴴV diag(Re VᴴdV))) Vᴴ, where the
 * second term belongs to eigenvectors of length 1, and a real A takes the real part. */
static void eig_grad(struct gradient_ctx *g) {
    struct node_input v = OUT(1), middle = OP("MatrixDiag", DY(0)), a = IN(0);
    if (gradient_attr_b(g, "compute_v")) {
        struct node_input vdv = ADJ_MATMUL(v, DY(1)), of_length = OP("MatrixDiagPart", vdv);
        of_length = OP("MatrixDiag", half(g, ADD(of_length, CONJ(of_length))));
        struct node_input inner = SUB(vdv, MATMUL(ADJ_MATMUL(v, v), of_length));
        middle = ADD(middle, MUL(CONJ(reciprocal_gaps(g, OUT(0))), inner));
    } else {
        v = SECOND(LIKE_WITH("Eig", ATTRS(ATTR_B("compute_v", true)), a));
    }
    struct node_input vh = gradient_adjoint(g, v);
    SET(0, CAST(OP("MatrixSolve", vh, MATMUL(middle, vh)), a));
}

/* What the singular vectors beside the first ones add: (I - P) dX S⁻¹ - X₂ dX₂ᴴ X S⁻¹, where P
 * projects on X, and X₂ and dX₂ are the columns after those of X. It is 0 for a square X. */
static struct node_input outside(struct gradient_ctx *g, int output, struct node_input width,
                                 struct node_input inverse) {
    struct node_input x = columns(g, OUT(output), width, true),
                      dx = columns(g, DY(output), width, true),
                      x2 = columns(g, OUT(output), width, false),
                      dx2 = columns(g, DY(output), width, false);
    struct node_input rest = SUB(dx, MATMUL(x, ADJ_MATMUL(x, dx)));
    rest = MUL(SUB(rest, MATMUL(x2, ADJ_MATMUL(dx2, x))), EXPAND(inverse, -2));
    struct node_input has_rest = OP("Greater", gradient_inner(g, SHAPE(x), 2), width);
    return WHERE(gradient_element(g, has_rest, 0), rest, ZEROS(rest));
}

static void singular_values_grad(struct gradient_ctx *g) {
    struct node_input u =
        LIKE_WITH("Svd", ATTRS(ATTR_B("compute_uv", true), ATTR_B("full_matrices", false)), IN(0));
    struct node_input v = gradient_second(u, 2);
    SET(0, MATMUL(SECOND(u), MATMUL_ADJ(OP("MatrixDiag", DY(0)), v)));
}

/* Complex numbers: ds is conjugated for a tall A, as in TensorFlow, and half of the difference of
 * the phases of the smaller side is added. `udu` is Uᴴ dU. */
static struct node_input complex_middle(struct gradient_ctx *g, struct node_input middle,
                                        struct node_input udu, struct node_input vdv,
                                        struct node_input inverse) {
    struct node_input shape = SHAPE(IN(0)), ds = DY(0);
    struct node_input is_tall =
        OP("Greater", gradient_element(g, shape, -2), gradient_element(g, shape, -1));
    struct node_input phase = WHERE(is_tall, SUB(udu, CONJ(udu)), SUB(CONJ(vdv), vdv));
    phase = half(g, MUL(OP("MatrixDiagPart", phase), inverse));
    return ADD(middle, OP("MatrixDiag", ADD(phase, WHERE(is_tall, CONJ(ds), ds))));
}

/* A = U diag(s) Vᴴ: dA = U M Vᴴ + outside(U) Vᴴ + U outside(V)ᴴ, with F = reciprocal_gaps(s²) and M
 * = diag(ds) + (F∘UᴴdU + its adjoint) diag(s) + diag(s) (F∘VᴴdV + its adjoint). Without vectors it
 * is U diag(ds) Vᴴ. With full_matrices, the vectors after the first ones are not unique. */
static void svd_grad(struct gradient_ctx *g) {
    if (!gradient_attr_b(g, "compute_uv")) {
        singular_values_grad(g);
        return;
    }
    struct node_input s = OUT(0), width = gradient_inner(g, SHAPE(s), 1);
    struct node_input f = reciprocal_gaps(g, SQUARE(s)), inverse = safe_reciprocal(g, s);
    struct node_input u = columns(g, OUT(1), width, true), v = columns(g, OUT(2), width, true);
    struct node_input udu = ADJ_MATMUL(u, columns(g, DY(1), width, true)),
                      vdv = ADJ_MATMUL(v, columns(g, DY(2), width, true)), fu = MUL(f, udu),
                      fv = MUL(f, vdv);
    struct node_input of_u = MUL(ADD(fu, gradient_adjoint(g, fu)), EXPAND(s, -2)),
                      of_v = MUL(EXPAND(s, -1), ADD(fv, gradient_adjoint(g, fv)));
    struct node_input middle = ADD(of_u, of_v);
    if (dtype_in(gradient_dtype(u), DTYPES_COMPLEX))
        middle = complex_middle(g, middle, udu, vdv, inverse);
    else
        middle = ADD(middle, OP("MatrixDiag", DY(0)));
    struct node_input inside = MATMUL(u, MATMUL_ADJ(middle, v));
    SET(0, ADD(inside, ADD(MATMUL_ADJ(outside(g, 1, width, inverse), v),
                           MATMUL_ADJ(u, outside(g, 2, width, inverse)))));
}

/* ---- square roots ---- */

/* R R = A: dR is given, and dA = Y with Rᵀ Y + Y Rᵀ = dR, as in TensorFlow, which does not
 * conjugate. Row by row this is the system (Rᵀ⊗I + I⊗R) y = dr. */
static void matrix_square_root_grad(struct gradient_ctx *g) {
    struct node_input r = OUT(0), shape = SHAPE(r), n = gradient_inner(g, shape, 1);
    struct node_input eye = OP("MatrixDiag", OP("Fill", n, NUM(1)));
    struct node_input sum =
        ADD(OP_WITH("Einsum", ATTRS(ATTR_S("equation", "...ji,kl->...ikjl")), r, eye),
            OP_WITH("Einsum", ATTRS(ATTR_S("equation", "...kl,ij->...ikjl")), r, eye));
    struct node_input outer = gradient_outer(g, shape, 2), size = SQUARE(n);
    struct node_input y = OP("MatrixSolve", RESHAPE(sum, CONCAT(outer, size, size)),
                             RESHAPE(DY(0), CONCAT(outer, size, I32S(1))));
    SET(0, RESHAPE(y, shape));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Cholesky", cholesky_grad),
    GRADIENT("Qr", qr_grad),
    GRADIENT("SelfAdjointEigV2", self_adjoint_eig_grad),
    GRADIENT("Eig", eig_grad),
    GRADIENT("Svd", svd_grad),
    GRADIENT("MatrixSquareRoot", matrix_square_root_grad),
};
// clang-format on

const struct gradient_list linalg_decompose_gradients = {rows, ARRAY_LEN(rows)};
