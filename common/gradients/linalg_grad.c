/* Differentiates inverses, determinants and solutions (linalg.h). linalg_decompose_grad.c has the
 * decompositions. */
#include "common/gradients/linalg.h"

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

/* A has the bands of a triangle in its rows. Its full gradient is that of the triangle. */
static void banded_triangular_solve_grad(struct gradient_ctx *g) {
    struct node_input da, db;
    bool is_lower = gradient_attr_b(g, "lower");
    solve(g, &da, &db);
    struct node_input n_more = SUB(gradient_element(g, SHAPE(IN(0)), -2), I32(1));
    struct node_input k = OP("Pack", is_lower ? NEG(n_more) : I32(0), is_lower ? I32(0) : n_more);
    SET_SUM(0, OP_WITH("MatrixDiagPartV3", ATTRS(ATTR_S("align", "LEFT_RIGHT")), da, k, NUM(0)));
    SET_SUM(1, db);
}

/* ---- least squares ---- */

/* M + r I */
static struct node_input regularized(struct gradient_ctx *g, struct node_input m,
                                     struct node_input r) {
    struct node_input diagonal = OP("MatrixDiagPart", m);
    return OP("MatrixSetDiag", m, ADD(diagonal, r));
}

/* M⁻¹ Y for a positive definite M, by the factor that the kernel of MatrixSolveLs also uses. So
 * whatever that kernel solves has a gradient, also where M is nearly singular. */
static struct node_input cholesky_solve(struct gradient_ctx *g, struct node_input m,
                                        struct node_input y) {
    struct node_input l = OP("Cholesky", m), half = OP("MatrixTriangularSolve", l, y);
    return OP_WITH("MatrixTriangularSolve", ATTRS(ATTR_B("adjoint", true)), l, half);
}

/* X = (AᴴA + r I)⁻¹ Aᴴ B for A with at least as many rows as columns, else Aᴴ (A Aᴴ + r I)⁻¹ B.
 * dB is the least-squares solution for Aᴴ and dX. dA = R - dB Xᴴ, where R is
 *   tall A   (B - A X) Zᴴ, Z = (AᴴA + r I)⁻¹ dX
 *   other A  W (dX - Aᴴ dB)ᴴ, W = (A Aᴴ + r I)⁻¹ B
 * Which one it is, the step knows. It computes both, and adds 1 to r for the one that is not used,
 * whose matrix has no inverse. */
static void matrix_solve_ls_grad(struct gradient_ctx *g) {
    if (!gradient_attr_b(g, "fast") && !g->status)
        g->status = status_unimplemented("The gradient of MatrixSolveLs with fast=false is not "
                                         "defined");
    struct node_input a = IN(0), b = IN(1), dx = DY(0), shape = SHAPE(a), r = CAST(IN(2), a);
    struct node_input is_tall =
        OP("GreaterEqual", gradient_element(g, shape, -2), gradient_element(g, shape, -1));
    struct node_input db = LIKE("MatrixSolveLs", gradient_adjoint(g, a), dx, IN(2));
    struct node_input r_tall = ADD(r, WHERE(is_tall, NUM(0), NUM(1)));
    struct node_input r_other = ADD(r, WHERE(is_tall, NUM(1), NUM(0)));
    struct node_input z = cholesky_solve(g, regularized(g, ADJ_MATMUL(a, a), r_tall), dx);
    struct node_input w = cholesky_solve(g, regularized(g, MATMUL_ADJ(a, a), r_other), b);
    struct node_input of_tall = MATMUL_ADJ(SUB(b, MATMUL(a, OUT(0))), z);
    struct node_input of_other = MATMUL_ADJ(w, SUB(dx, ADJ_MATMUL(a, db)));
    SET(0, SUB(WHERE(is_tall, of_tall, of_other), MATMUL_ADJ(db, OUT(0))));
    SET(1, db);
}

/* ---- matrices of three diagonals ---- */

/* The part along axis -2 or -1, moved by one towards its begin or its end, with a 0 at the other
 * side. */
static struct node_input moved(struct gradient_ctx *g, struct node_input value, int32_t axis,
                               bool to_begin) {
    struct node_input shape = SHAPE(value), rank = OP("Size", shape), none = ZEROS(shape);
    struct node_input one = OP("OneHot", ADD(rank, I32(axis)), rank, I32(1), I32(0));
    struct node_input padding =
        OP_WITH("Pack", ATTRS(ATTR_I("axis", 1)), to_begin ? none : one, to_begin ? one : none);
    return OP("Slice", OP("Pad", value, padding), to_begin ? one : none, shape);
}

static struct node_input row_sums(struct gradient_ctx *g, struct node_input a,
                                  struct node_input b) {
    return EXPAND(SUM(MUL(a, b), I32(-1)), -2);
}

/* (above, middle, below, B): row i of the product is above_i B_i+1 + middle_i B_i + below_i B_i-1
 * */
static void tridiagonal_mat_mul_grad(struct gradient_ctx *g) {
    struct node_input b = CONJ(IN(3)), dy = DY(0);
    SET(0, row_sums(g, moved(g, b, -2, true), dy));
    SET(1, row_sums(g, b, dy));
    SET(2, row_sums(g, moved(g, b, -2, false), dy));
    SET(3, ADD(MUL(gradient_adjoint(g, IN(1)), dy),
               ADD(moved(g, MUL(gradient_adjoint(g, IN(0)), dy), -2, false),
                   moved(g, MUL(gradient_adjoint(g, IN(2)), dy), -2, true))));
}

static struct node_input diagonal(struct gradient_ctx *g, int32_t i) {
    return OP("GatherV2", IN(0), I32S(i), I32(-2));
}

/* The diagonals above, on and below the main one are rows of A. As in TensorFlow, A is transposed,
 * but its complex numbers are not conjugated. */
static void tridiagonal_solve_grad(struct gradient_ctx *g) {
    struct node_input x = OUT(0), axis = I32(-2);
    struct node_input transposed = OP("ConcatV2", moved(g, diagonal(g, 2), -1, true),
                                      diagonal(g, 1), moved(g, diagonal(g, 0), -1, false), axis);
    struct node_input db = LIKE("TridiagonalSolve", transposed, DY(0));
    SET(0, NEG(OP("ConcatV2", row_sums(g, db, moved(g, x, -2, true)), row_sums(g, db, x),
                  row_sums(g, db, moved(g, x, -2, false)), axis)));
    SET(1, db);
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("MatrixDeterminant", matrix_determinant_grad),
    GRADIENT("LogMatrixDeterminant", log_matrix_determinant_grad),
    GRADIENT("MatrixInverse", matrix_inverse_grad),
    GRADIENT("MatrixSolve", matrix_solve_grad),
    GRADIENT("MatrixTriangularSolve", matrix_triangular_solve_grad),
    UNDEFINED_GRADIENT("CholeskyGrad"),
    GRADIENT("BandedTriangularSolve", banded_triangular_solve_grad),
    GRADIENT("MatrixSolveLs", matrix_solve_ls_grad),
    UNDEFINED_GRADIENT("MatrixLogarithm"),
    UNDEFINED_GRADIENT("Lu"),
    UNDEFINED_GRADIENT("SelfAdjointEig"),
    GRADIENT("TridiagonalSolve", tridiagonal_solve_grad),
    GRADIENT("TridiagonalMatMul", tridiagonal_mat_mul_grad),
    UNDEFINED_GRADIENT("BatchCholesky"),
    UNDEFINED_GRADIENT("BatchCholeskyGrad"),
    UNDEFINED_GRADIENT("BatchMatrixDeterminant"),
    UNDEFINED_GRADIENT("BatchMatrixInverse"),
    UNDEFINED_GRADIENT("BatchMatrixSolve"),
    UNDEFINED_GRADIENT("BatchMatrixTriangularSolve"),
    UNDEFINED_GRADIENT("BatchMatrixSolveLs"),
    UNDEFINED_GRADIENT("BatchSelfAdjointEig"),
    UNDEFINED_GRADIENT("BatchSelfAdjointEigV2"),
    UNDEFINED_GRADIENT("BatchSvd"),
};
// clang-format on

const struct gradient_list linalg_gradients = {rows, ARRAY_LEN(rows)};
