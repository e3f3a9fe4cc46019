/* Checks the input shapes of each linear algebra op, and computes the shapes of its outputs. */
#include "kernels/cpu/linalg/linalg.h"

static struct status *plan_square(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(linalg_plan_stack(ctx, plan, 1));
    return plan->m == plan->n ? NULL : status_invalid("Input matrix must be square.");
}

static void add_matrix(struct linalg_plan *plan, int i, enum dtype dtype, int64_t rows,
                       int64_t columns) {
    plan->out[i].dtype = dtype;
    plan->out[i].rank = 2;
    plan->out[i].dims[0] = rows;
    plan->out[i].dims[1] = columns;
}
static void add_vector(struct linalg_plan *plan, int i, enum dtype dtype, int64_t n) {
    plan->out[i].dtype = dtype;
    plan->out[i].rank = 1;
    plan->out[i].dims[0] = n;
}
/* a scalar for each matrix */
static void add_scalar(struct linalg_plan *plan, int i) { plan->out[i].dtype = plan->state->in; }
/* TensorFlow returns this scalar in place of vectors that were not asked for. */
static void add_lone_scalar(struct linalg_plan *plan, int i, enum dtype dtype) {
    plan->out[i].dtype = dtype;
    plan->out[i].rank = -1;
}

struct status *linalg_check_square(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(plan_square(ctx, plan));
    add_matrix(plan, 0, plan->state->in, plan->n, plan->n);
    return NULL;
}
struct status *linalg_check_cholesky(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    return linalg_check_square(ctx, plan);
}

struct status *linalg_check_cholesky_grad(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(linalg_plan_stack(ctx, plan, 2));
    if (plan->m != plan->n || plan->in_elements[1] != plan->in_elements[0] ||
        tensor_dim(&ctx->inputs[1], ctx->inputs[1].rank - 1) != plan->n)
        return status_invalid("Inputs must be a square matrices.");
    add_matrix(plan, 0, plan->state->in, plan->n, plan->n);
    return NULL;
}

struct status *linalg_check_determinant(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(plan_square(ctx, plan));
    add_scalar(plan, 0);
    return NULL;
}
struct status *linalg_check_log_determinant(const struct kernel_ctx *ctx,
                                            struct linalg_plan *plan) {
    TRY(plan_square(ctx, plan));
    add_scalar(plan, 0);
    add_scalar(plan, 1);
    return NULL;
}

/* Reads the shape of the second input, whose columns become the plan's k. Returns its rows. */
static int64_t rows_beside(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    const struct tensor *rhs = &ctx->inputs[1];
    plan->k = tensor_dim(rhs, rhs->rank - 1);
    return tensor_dim(rhs, rhs->rank - 2);
}

struct status *linalg_check_solve(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(linalg_plan_stack(ctx, plan, 2));
    int64_t rows = rows_beside(ctx, plan);
    if (plan->m != plan->n)
        return status_invalid("First input (lhs) must be a square matrix.");
    if (rows != plan->n)
        return status_invalid("Input matrix and rhs are incompatible.");
    add_matrix(plan, 0, plan->state->in, plan->n, plan->k);
    return NULL;
}

/* Plans matrix [..., m, n] and rhs [..., rows, k], whose stacks are broadcast together. */
static struct status *plan_broadcast(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    struct shape stacks[2];
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = &ctx->inputs[i];
        if (t->rank < 2)
            return status_invalid("In[%d] ndims must be >= 2: %d", i, t->rank);
        stacks[i] = (struct shape){t->rank - 2, tensor_dims(t)};
        plan->in_elements[i] = tensor_dim(t, t->rank - 2) * tensor_dim(t, t->rank - 1);
    }
    const struct tensor *matrix = &ctx->inputs[0];
    plan->m = tensor_dim(matrix, matrix->rank - 2);
    plan->n = tensor_dim(matrix, matrix->rank - 1);
    plan->n_matrix_inputs = 2;
    if (!broadcast_init(plan->broadcast, stacks, 2))
        return status_invalid("In[0] and In[1] must have compatible batch dimensions");
    plan->broadcasts = true;
    plan->stack = broadcast_shape(plan->broadcast);
    plan->n_problems = plan->broadcast->n_elements;
    return NULL;
}

static struct status *mismatch(int64_t inner, int64_t rows, const struct linalg_plan *plan) {
    return status_invalid("In[0] mismatch In[1] shape: %lld vs. %lld: %d %d", (long long)inner,
                          (long long)rows, plan->state->lower, plan->state->adjoint);
}

struct status *linalg_check_triangular_solve(const struct kernel_ctx *ctx,
                                             struct linalg_plan *plan) {
    TRY(plan_broadcast(ctx, plan));
    int64_t rows = rows_beside(ctx, plan);
    if (plan->m != plan->n)
        return status_invalid(
            "In[0] matrices in the last dimensions must be square (%lld =/= %lld)",
            (long long)plan->n, (long long)plan->m);
    if (rows != plan->n)
        return mismatch(plan->n, rows, plan);
    add_matrix(plan, 0, plan->state->in, plan->n, plan->k);
    return NULL;
}

struct status *linalg_check_banded_solve(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(plan_broadcast(ctx, plan));
    int64_t rows = rows_beside(ctx, plan);
    for (int i = 0; i < 2; i++) {
        if (ctx->inputs[i].n_elements == 0)
            return status_invalid("In[%d] must not be an empty tensor", i);
    }
    if (rows != plan->n)
        return mismatch(plan->n, rows, plan);
    add_matrix(plan, 0, plan->state->in, plan->n, plan->k);
    return NULL;
}

struct status *linalg_check_lu(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    if (ctx->inputs[0].rank < 2)
        return status_invalid("Input tensor must have rank >= 2, got %d", ctx->inputs[0].rank);
    TRY(plan_square(ctx, plan));
    add_matrix(plan, 0, plan->state->in, plan->n, plan->n);
    add_vector(plan, 1, plan->state->index, plan->n);
    return NULL;
}

struct status *linalg_check_qr(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(linalg_plan_stack(ctx, plan, 1));
    int64_t inner = plan->state->full_matrices ? plan->m : MIN(plan->m, plan->n);
    add_matrix(plan, 0, plan->state->in, plan->m, inner);
    add_matrix(plan, 1, plan->state->in, inner, plan->n);
    return NULL;
}

struct status *linalg_check_svd(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(linalg_plan_stack(ctx, plan, 1));
    enum dtype dtype = plan->state->in;
    int64_t inner = MIN(plan->m, plan->n);
    /* complex matrices have complex results too, whose imaginary parts are 0 */
    add_vector(plan, 0, dtype, inner);
    if (!plan->state->vectors) {
        add_lone_scalar(plan, 1, dtype);
        add_lone_scalar(plan, 2, dtype);
        return NULL;
    }
    add_matrix(plan, 1, dtype, plan->m, plan->state->full_matrices ? plan->m : inner);
    add_matrix(plan, 2, dtype, plan->n, plan->state->full_matrices ? plan->n : inner);
    return NULL;
}

struct status *linalg_check_self_adjoint_eig(const struct kernel_ctx *ctx,
                                             struct linalg_plan *plan) {
    TRY(plan_square(ctx, plan));
    add_vector(plan, 0, plan->state->in, plan->n);
    if (plan->state->vectors)
        add_matrix(plan, 1, plan->state->in, plan->n, plan->n);
    else
        add_lone_scalar(plan, 1, plan->state->in);
    return NULL;
}

/* The one output has the eigenvalues in its first row and the eigenvectors below. */
struct status *linalg_check_self_adjoint_eig_v1(const struct kernel_ctx *ctx,
                                                struct linalg_plan *plan) {
    TRY(plan_square(ctx, plan));
    add_matrix(plan, 0, plan->state->in, plan->n + 1, plan->n);
    return NULL;
}

struct status *linalg_check_eig(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    TRY(plan_square(ctx, plan));
    enum dtype out = (enum dtype)ctx->instance->out_types[0];
    add_vector(plan, 0, out, plan->n);
    if (plan->state->vectors)
        add_matrix(plan, 1, out, plan->n, plan->n);
    else
        add_lone_scalar(plan, 1, out);
    return NULL;
}

struct status *linalg_check_solve_ls(const struct kernel_ctx *ctx, struct linalg_plan *plan) {
    const struct tensor *l2 = &ctx->inputs[2];
    if (l2->rank != 0)
        return status_invalid("l2_regularizer must be scalar, got rank %d", l2->rank);
    plan->l2 = *(const double *)tensor_cdata(l2);
    if (!(plan->l2 >= 0))
        return status_invalid("l2_regularizer must be >= 0.");
    TRY(linalg_plan_stack(ctx, plan, 2));
    if (rows_beside(ctx, plan) != plan->m)
        return status_invalid("Input matrix and rhs are incompatible.");
    add_matrix(plan, 0, plan->state->in, plan->n, plan->k);
    return NULL;
}

struct status *linalg_check_tridiagonal_solve(const struct kernel_ctx *ctx,
                                              struct linalg_plan *plan) {
    TRY(linalg_plan_stack(ctx, plan, 2));
    int64_t rows = rows_beside(ctx, plan);
    if (plan->m != 3)
        return status_invalid(
            "Expected diagonals to be provided as a matrix with 3 rows, got %lld rows.",
            (long long)plan->m);
    if (rows != plan->n)
        return status_invalid(
            "Expected the same number of left-hand sides and right-hand sides, got %lld and %lld.",
            (long long)plan->n, (long long)rows);
    add_matrix(plan, 0, plan->state->in, plan->n, plan->k);
    return NULL;
}

struct status *linalg_check_tridiagonal_matmul(const struct kernel_ctx *ctx,
                                               struct linalg_plan *plan) {
    static const char *const names[] = {"superdiagonal", "main diagonal", "subdiagonal"};
    TRY(linalg_plan_stack(ctx, plan, 4));
    const struct tensor *rhs = &ctx->inputs[3];
    plan->n = tensor_dim(rhs, rhs->rank - 2);
    plan->k = tensor_dim(rhs, rhs->rank - 1);
    for (int i = 0; i < 3; i++) {
        const struct tensor *diagonal = &ctx->inputs[i];
        if (tensor_dim(diagonal, diagonal->rank - 2) != 1 ||
            tensor_dim(diagonal, diagonal->rank - 1) != plan->n)
            return status_invalid("Invalid %s shape.", names[i]);
    }
    add_matrix(plan, 0, plan->state->in, plan->n, plan->k);
    return NULL;
}
