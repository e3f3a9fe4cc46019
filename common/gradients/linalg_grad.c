/* Differentiates linear algebra, over batches of matrices. Aᴴ is the adjoint; products of matrices
 * are written without a sign. */
#include "common/gradients/build.h"

#define MATMUL(a, b) gradient_matmul(g, a, false, b, false)
#define ADJ_MATMUL(a, b) gradient_matmul(g, a, true, b, false)
#define MATMUL_ADJ(a, b) gradient_matmul(g, a, false, b, true)
#define BAND(a, below, above)                                       \
    OP("MatrixBandPart", a, gradient_cast(g, I32(below), DT_INT64), \
       gradient_cast(g, I32(above), DT_INT64))

/* ---- inverses and determinants ---- */

/* Y = A⁻¹: dA = -Yᴴ dY Yᴴ. With the attr adjoint, the adjoint of that. */
static void matrix_inverse_grad(struct gradient_ctx *g) {
    struct node_input y = OUT(0), dy = DY(0);
    if (gradient_attr_b(g, "adjoint"))
        SET(0, NEG(MATMUL(y, gradient_matmul(g, dy, true, y, false))));
    else
        SET(0, NEG(ADJ_MATMUL(y, MATMUL_ADJ(dy, y))));
}

/* `by_matrix` · A⁻ᴴ */
static struct node_input scaled_inverse(struct gradient_ctx *g, struct node_input by_matrix) {
    struct node_input inverse = OP_WITH("MatrixInverse", ATTRS(ATTR_B("adjoint", true)), IN(0));
    return MUL(EXPAND(EXPAND(by_matrix, -1), -1), inverse);
}

static void matrix_determinant_grad(struct gradient_ctx *g) {
    SET(0, scaled_inverse(g, MUL(DY(0), OUT(0))));
}
static void log_matrix_determinant_grad(struct gradient_ctx *g) {
    SET(0, scaled_inverse(g, DY(1)));
}

/* ---- solutions: A Y = B, dB = A⁻ᴴ dY, dA = -dB Yᴴ ---- */

static void solve(struct gradient_ctx *g, struct node_input *ret_da, struct node_input *ret_db) {
    bool adjoint = gradient_attr_b(g, "adjoint");
    *ret_db = LIKE_WITH(g->node->op_name, ATTRS(ATTR_B("adjoint", !adjoint)), IN(0), DY(0));
    *ret_da = NEG(adjoint ? MATMUL_ADJ(OUT(0), *ret_db) : MATMUL_ADJ(*ret_db, OUT(0)));
}

static void matrix_solve_grad(struct gradient_ctx *g) {
    struct node_input da, db;
    solve(g, &da, &db);
    SET(0, da);
    SET(1, db);
}

static void matrix_triangular_solve_grad(struct gradient_ctx *g) {
    struct node_input da, db;
    solve(g, &da, &db);
    SET_SUM(0, gradient_attr_b(g, "lower") ? BAND(da, -1, 0) : BAND(da, 0, -1));
    SET_SUM(1, db);
}

/* ---- decompositions ---- */

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

/* A = V diag(e) Vᴴ: dA = V (diag(de) + F ∘ Vᴴ dV) Vᴴ, F_ij = 1 / (e_j - e_i), and 0 where that does
 * not exist. Only the lower triangle of A is read, so its gradient includes that of the upper
 * one. */
static void self_adjoint_eig_grad(struct gradient_ctx *g) {
    struct node_input e = OUT(0), v = OUT(1), middle;
    if (gradient_attr_b(g, "compute_v")) {
        struct node_input apart = SUB(EXPAND(e, -2), EXPAND(e, -1));
        struct node_input f = OP("DivNoNan", OP("OnesLike", apart), apart);
        middle = ADD(OP("MatrixDiag", DY(0)), MUL(f, ADJ_MATMUL(v, DY(1))));
    } else {
        v = SECOND(OP("SelfAdjointEigV2", IN(0)));
        middle = OP("MatrixDiag", DY(0));
    }
    struct node_input da = MATMUL(v, MATMUL_ADJ(middle, v));
    da = BAND(ADD(da, gradient_adjoint(g, da)), -1, 0);
    SET(0, OP("MatrixSetDiag", da, half(g, OP("MatrixDiagPart", da))));
}

/* x R⁻ᴴ for an upper triangle R */
static struct node_input over_upper(struct gradient_ctx *g, struct node_input x,
                                    struct node_input r) {
    return gradient_adjoint(g, OP_WITH("MatrixTriangularSolve", ATTRS(ATTR_B("lower", false)), r,
                                       gradient_adjoint(g, x)));
}

/* A = Q R with at least as many rows as columns. For wider matrices R is no triangle, and the solve
 * fails. */
static void qr_grad(struct gradient_ctx *g) {
    struct node_input q = OUT(0), r = OUT(1), dq = DY(0), dr = DY(1);
    if (gradient_attr_b(g, "full_matrices") && !g->status)
        g->status = status_unimplemented("The gradient of Qr with full_matrices is not supported");
    struct node_input qdq = ADJ_MATMUL(q, dq), rdr = MATMUL_ADJ(r, dr);
    struct node_input skew =
        ADD(SUB(qdq, gradient_adjoint(g, qdq)), SUB(rdr, gradient_adjoint(g, rdr)));
    struct node_input inside = MATMUL(q, ADD(dr, over_upper(g, BAND(skew, -1, 0), r)));
    SET(0, ADD(inside, over_upper(g, SUB(dq, MATMUL(q, qdq)), r)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Cholesky", cholesky_grad),
    GRADIENT("MatrixDeterminant", matrix_determinant_grad),
    GRADIENT("LogMatrixDeterminant", log_matrix_determinant_grad),
    GRADIENT("MatrixInverse", matrix_inverse_grad),
    GRADIENT("MatrixSolve", matrix_solve_grad),
    GRADIENT("MatrixTriangularSolve", matrix_triangular_solve_grad),
    GRADIENT("SelfAdjointEigV2", self_adjoint_eig_grad),
    GRADIENT("Qr", qr_grad),
    NO_GRADIENT("CholeskyGrad"), /* TensorFlow has none either */
    LATER_GRADIENT("BandedTriangularSolve"),
    LATER_GRADIENT("MatrixSolveLs"),
    LATER_GRADIENT("MatrixSquareRoot"),
    NO_GRADIENT("MatrixLogarithm"), /* TensorFlow has none either */
    NO_GRADIENT("Lu"),              /* TensorFlow has none either */
    LATER_GRADIENT("Svd"),
    NO_GRADIENT("SelfAdjointEig"), /* TensorFlow has none either */
    LATER_GRADIENT("Eig"),
    LATER_GRADIENT("TridiagonalSolve"),
    LATER_GRADIENT("TridiagonalMatMul"),
    NO_GRADIENT("BatchCholesky"),
    NO_GRADIENT("BatchCholeskyGrad"),
    NO_GRADIENT("BatchMatrixDeterminant"),
    NO_GRADIENT("BatchMatrixInverse"),
    NO_GRADIENT("BatchMatrixSolve"),
    NO_GRADIENT("BatchMatrixTriangularSolve"),
    NO_GRADIENT("BatchMatrixSolveLs"),
    NO_GRADIENT("BatchSelfAdjointEig"),
    NO_GRADIENT("BatchSelfAdjointEigV2"),
    NO_GRADIENT("BatchSvd"),
};
// clang-format on

const struct gradient_list linalg_gradients = {rows, ARRAY_LEN(rows)};
