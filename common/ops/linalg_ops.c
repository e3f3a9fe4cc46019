/* Lists the linear algebra family: factorisations, solvers and functions of matrices, on stacks of
 * matrices. */
#include "common/ops/einsum_equation.h"
#include "common/ops/op_def.h"

/* ---- parts of shapes ---- */

/* [stack] + the last dimensions; unknown when the stack is. With `n_last` -1 the stack is the whole
 * shape. */
static struct status *with_stack(struct shape_inference *ctx, struct shape of, int output,
                                 int n_last, int64_t first, int64_t second) {
    if (of.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    struct shape stack = shape_sub(ctx, of, 0, of.rank - 2);
    return shape_concat(ctx, stack, shape_make(ctx, n_last, (int64_t[]){first, second}),
                        &ctx->out[output]);
}

static int64_t from_end(struct shape shape, int i) {
    return shape.rank == SHAPE_UNKNOWN_RANK ? -1 : shape.dims[shape.rank - i];
}

/* Input 0 is [..., n, n]; *ret_n is -1 where unknown. */
static struct status *square_input(struct shape_inference *ctx, int64_t *ret_n) {
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    return shape_merge_dims(from_end(ctx->in[0], 2), from_end(ctx->in[0], 1), ret_n);
}

static int64_t smaller(int64_t a, int64_t b) {
    return a == 0 || b == 0 ? 0 : a < 0 || b < 0 ? -1 : MIN(a, b);
}

static struct status *flag_of(struct shape_inference *ctx, const char *name, bool *ret) {
    return node_get_b(ctx->node, name, ret);
}

/* ---- shapes ---- */

static struct status *shape_square(struct shape_inference *ctx) {
    int64_t n;
    TRY(square_input(ctx, &n));
    return with_stack(ctx, ctx->in[0], 0, 2, n, n);
}

static struct status *shape_determinant(struct shape_inference *ctx) {
    int64_t n;
    TRY(square_input(ctx, &n));
    for (int i = 0; i < ctx->node->n_outputs; i++)
        TRY(with_stack(ctx, ctx->in[0], i, 0, 0, 0));
    return NULL;
}

/* matrix [..., m, n] and rhs [..., m, k] of equal stacks: [..., n, k] */
static struct status *shape_solve_of(struct shape_inference *ctx, bool is_square) {
    int64_t n, rows;
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(shape_require_rank_at_least(ctx, 1, 2));
    if (is_square)
        TRY(square_input(ctx, &n));
    struct shape matrix = ctx->in[0], rhs = ctx->in[1], stack;
    if (matrix.rank == SHAPE_UNKNOWN_RANK || rhs.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    TRY(shape_merge(ctx, shape_sub(ctx, matrix, 0, matrix.rank - 2),
                    shape_sub(ctx, rhs, 0, rhs.rank - 2), &stack));
    TRY(shape_merge_dims(from_end(matrix, 2), from_end(rhs, 2), &rows));
    int64_t columns = is_square ? rows : from_end(matrix, 1);
    return shape_concat(ctx, stack, shape_make(ctx, 2, (int64_t[]){columns, from_end(rhs, 1)}),
                        &ctx->out[0]);
}
static struct status *shape_solve(struct shape_inference *ctx) { return shape_solve_of(ctx, true); }
static struct status *shape_solve_ls(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 2, 0, NULL));
    return shape_solve_of(ctx, false);
}

/* Stacks are broadcast. */
static struct status *triangular(struct shape_inference *ctx, bool is_square) {
    int64_t n;
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(shape_require_rank_at_least(ctx, 1, 2));
    if (is_square)
        TRY(square_input(ctx, &n));
    struct shape matrix = ctx->in[0], rhs = ctx->in[1], stack;
    if (matrix.rank == SHAPE_UNKNOWN_RANK || rhs.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    TRY(shape_merge_dims(from_end(matrix, 1), from_end(rhs, 2), &n));
    TRY(shape_of_broadcast(ctx, shape_sub(ctx, matrix, 0, matrix.rank - 2),
                           shape_sub(ctx, rhs, 0, rhs.rank - 2), &stack));
    return shape_concat(ctx, stack, shape_make(ctx, 2, (int64_t[]){n, from_end(rhs, 1)}),
                        &ctx->out[0]);
}
static struct status *shape_triangular_solve(struct shape_inference *ctx) {
    return triangular(ctx, true);
}
static struct status *shape_banded_solve(struct shape_inference *ctx) {
    return triangular(ctx, false);
}

static struct status *shape_lu(struct shape_inference *ctx) {
    int64_t n;
    TRY(square_input(ctx, &n));
    TRY(with_stack(ctx, ctx->in[0], 0, 2, n, n));
    return with_stack(ctx, ctx->in[0], 1, 1, n, 0);
}

static struct status *shape_qr(struct shape_inference *ctx) {
    bool full = false;
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(flag_of(ctx, "full_matrices", &full));
    int64_t m = from_end(ctx->in[0], 2), n = from_end(ctx->in[0], 1),
            inner = full ? m : smaller(m, n);
    TRY(with_stack(ctx, ctx->in[0], 0, 2, m, inner));
    return with_stack(ctx, ctx->in[0], 1, 2, inner, n);
}

static struct status *shape_svd(struct shape_inference *ctx) {
    bool full = false, vectors = true;
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(flag_of(ctx, "full_matrices", &full));
    TRY(flag_of(ctx, "compute_uv", &vectors));
    int64_t m = from_end(ctx->in[0], 2), n = from_end(ctx->in[0], 1), inner = smaller(m, n);
    TRY(with_stack(ctx, ctx->in[0], 0, 1, inner, 0));
    if (!vectors) /* TensorFlow's own shape function and kernel disagree here */
        return NULL;
    TRY(with_stack(ctx, ctx->in[0], 1, 2, m, full ? m : inner));
    return with_stack(ctx, ctx->in[0], 2, 2, n, full ? n : inner);
}

static struct status *shape_eig(struct shape_inference *ctx) {
    int64_t n;
    bool vectors = true;
    TRY(square_input(ctx, &n));
    TRY(flag_of(ctx, "compute_v", &vectors));
    TRY(with_stack(ctx, ctx->in[0], 0, 1, n, 0));
    return vectors ? with_stack(ctx, ctx->in[0], 1, 2, n, n) : NULL; /* see shape_svd */
}

static struct status *shape_eig_v1(struct shape_inference *ctx) {
    int64_t n;
    TRY(square_input(ctx, &n));
    return with_stack(ctx, ctx->in[0], 0, 2, n < 0 || n == INT64_MAX ? -1 : n + 1, n);
}

static struct status *shape_tridiagonal_solve(struct shape_inference *ctx) {
    struct shape diagonals = ctx->in[0], rhs = ctx->in[1], stack;
    int64_t n, three;
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(shape_require_rank_at_least(ctx, 1, 2));
    if (diagonals.rank == SHAPE_UNKNOWN_RANK || rhs.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    TRY(shape_merge(ctx, shape_sub(ctx, diagonals, 0, diagonals.rank - 2),
                    shape_sub(ctx, rhs, 0, rhs.rank - 2), &stack));
    TRY(shape_merge_dims(from_end(diagonals, 2), 3, &three));
    TRY(shape_merge_dims(from_end(diagonals, 1), from_end(rhs, 2), &n));
    ctx->out[0] = rhs;
    return NULL;
}

static struct status *shape_tridiagonal_matmul(struct shape_inference *ctx) {
    for (int i = 0; i < 4; i++)
        TRY(shape_require_rank_at_least(ctx, i, 2));
    ctx->out[0] = ctx->in[3];
    return NULL;
}

/* The sizes of labels where the inputs give them; a dimension of the ellipsis is broadcast. */
static struct status *merge_labels(const uint16_t *labels, struct shape shape, int64_t *sizes) {
    for (int axis = 0; axis < shape.rank; axis++) {
        int64_t *known = &sizes[labels[axis]], size = shape.dims[axis];
        bool broadcasts = labels[axis] >= EINSUM_ELLIPSIS;
        if (broadcasts && *known == -2) /* no input has the label */
            *known = size;
        else if (broadcasts && (size > 1 || *known == 1))
            *known = *known > 1 ? *known : size;
        else if (!broadcasts)
            TRY(shape_merge_dims(*known == -2 ? -1 : *known, size, known));
    }
    return NULL;
}

static struct status *shape_einsum(struct shape_inference *ctx) {
    struct einsum_equation equation;
    struct span text;
    uint16_t labels[SHAPE_MAX_RANK];
    int ellipsis_rank = 0, own_rank, rank;
    bool is_known = true;
    int64_t *sizes = arena_array(ctx->arena, int64_t, EINSUM_N_LABELS);
    TRY(node_get_s(ctx->node, "equation", &text));
    TRY(einsum_parse(text, ctx->node->n_data, &equation));
    for (int i = 0; i < EINSUM_N_LABELS; i++)
        sizes[i] = -2;
    for (int i = 0; i < equation.n_inputs; i++) {
        is_known &= ctx->in[i].rank != SHAPE_UNKNOWN_RANK;
        if (ctx->in[i].rank == SHAPE_UNKNOWN_RANK)
            continue;
        TRY(einsum_input_labels(&equation, i, ctx->in[i].rank, labels, &own_rank));
        ellipsis_rank = MAX(ellipsis_rank, own_rank);
        TRY(merge_labels(labels, ctx->in[i], sizes));
    }
    if (!is_known)
        return NULL;
    TRY(einsum_output_labels(&equation, ellipsis_rank, labels, &rank));
    int64_t dims[SHAPE_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = sizes[labels[i]] < 0 ? -1 : sizes[labels[i]];
    ctx->out[0] = shape_make(ctx, rank, dims);
    return NULL;
}

/* ---- rows ---- */

// clang-format off
static const struct op_def rows[] = {
    {"Einsum", "sums of products along labelled dimensions", shape_einsum},
    {"Cholesky", "the lower triangle L of A = L·Lᴴ", shape_square},
    {"CholeskyGrad", "the gradient of A = L·Lᵀ from that of L", shape_square},
    {"MatrixDeterminant", "the determinant", shape_determinant},
    {"LogMatrixDeterminant", "the determinant's sign, and the logarithm of its size",
     shape_determinant},
    {"MatrixInverse", "A⁻¹, or that of the adjoint", shape_square},
    {"MatrixSolve", "X of A·X = B, or of Aᴴ·X = B", shape_solve},
    {"MatrixTriangularSolve", "X of A·X = B for a triangle A", shape_triangular_solve},
    {"BandedTriangularSolve", "X of A·X = B for a triangle of a few diagonals", shape_banded_solve},
    {"MatrixSolveLs", "X of least |A·X - B|² + l2·|X|²", shape_solve_ls},
    {"MatrixSquareRoot", "the X of X·X = A", shape_square},
    {"MatrixLogarithm", "the X of e^X = A", shape_square},
    {"Lu", "triangles L and U in one matrix and the rows' order, of P·A = L·U", shape_lu},
    {"Qr", "an orthonormal Q and a triangle R of A = Q·R", shape_qr},
    {"Svd", "singular values and vectors of A = U·S·Vᴴ", shape_svd},
    {"SelfAdjointEigV2", "eigenvalues and eigenvectors of a self-adjoint matrix", shape_eig},
    {"SelfAdjointEig", "the same in one matrix: values in the first row, vectors below",
     shape_eig_v1},
    {"Eig", "eigenvalues and eigenvectors of a square matrix", shape_eig},
    {"TridiagonalSolve", "X of A·X = B for a matrix of three diagonals", shape_tridiagonal_solve},
    {"TridiagonalMatMul", "the product of a matrix of three diagonals and another",
     shape_tridiagonal_matmul},
    /* TensorFlow infers nothing for the old names. */
    {"BatchCholesky", "Cholesky by its old name", shape_unknown},
    {"BatchCholeskyGrad", "CholeskyGrad by its old name", shape_unknown},
    {"BatchMatrixDeterminant", "MatrixDeterminant by its old name", shape_unknown},
    {"BatchMatrixInverse", "MatrixInverse by its old name", shape_unknown},
    {"BatchMatrixSolve", "MatrixSolve by its old name", shape_unknown},
    {"BatchMatrixTriangularSolve", "MatrixTriangularSolve by its old name", shape_unknown},
    {"BatchMatrixSolveLs", "MatrixSolveLs by its old name", shape_unknown},
    {"BatchSelfAdjointEig", "SelfAdjointEig by its old name", shape_unknown},
    {"BatchSelfAdjointEigV2", "SelfAdjointEigV2 by its old name", shape_unknown},
    {"BatchSvd", "Svd by its old name", shape_unknown},
};
// clang-format on
const struct op_def_list linalg_ops = {rows, ARRAY_LEN(rows)};
