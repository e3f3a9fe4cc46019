/* The engine of linear algebra: runs a routine over stacks of matrices; see linalg.h. */
#include "kernels/cpu/linalg/linalg.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/support/detached_call.h"
#include "kernels/support/half_blocks.h"

enum { OPS_PER_NS = 10 }; /* of one core, about; plan.cost_ns counts operations */

/* ---- attrs ---- */

static struct status *read_flag(const struct node *node, const char *name, bool *ret) {
    return node_attr(node, name) ? node_get_b(node, name, ret) : NULL;
}

static linalg_fn *routine_of(const struct linalg_op *op, enum dtype compute) {
    return compute == DT_FLOAT       ? op->f32
           : compute == DT_DOUBLE    ? op->f64
           : compute == DT_COMPLEX64 ? op->c64
                                     : op->c128;
}

struct status *linalg_init(struct kernel_init *init) {
    struct linalg_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->op = init->arg;
    state->in = (enum dtype)init->node->in_types[0];
    state->compute = dtype_is_narrow_float(state->in) ? DT_FLOAT : state->in;
    state->fn = routine_of(state->op, state->compute);
    CHECK(state->fn); /* the row lists only dtypes that have a routine */
    state->vectors = true;
    state->lower = true;
    const struct node *node = init->node;
    TRY(read_flag(node, "adjoint", &state->adjoint));
    TRY(read_flag(node, "lower", &state->lower));
    TRY(read_flag(node, "full_matrices", &state->full_matrices));
    TRY(read_flag(node, "compute_v", &state->vectors));
    TRY(read_flag(node, "compute_uv", &state->vectors));
    TRY(read_flag(node, "fast", &state->fast));
    TRY(read_flag(node, "partial_pivoting", &state->pivoting));
    TRY(read_flag(node, "perturb_singular", &state->perturbs));
    if (node_attr(node, "output_idx_type"))
        TRY(node_get_type(node, "output_idx_type", &state->index));
    if (state->perturbs && !state->pivoting)
        return status_invalid("Setting perturb_singular requires also setting partial_pivoting.");
    return NULL;
}

/* ---- helpers ---- */

void *linalg_scratch(struct linalg_problem *p, size_t size) {
    if (size <= p->scratch_size && p->scratch)
        return p->scratch;
    free(p->scratch);
    p->scratch_size = (size + 127) & ~(size_t)63;
    p->scratch = aligned_alloc(64, p->scratch_size);
    if (!p->scratch)
        p->scratch_size = 0;
    return p->scratch;
}

struct status *linalg_no_memory(void) {
    return status_exhausted("OOM when allocating the work space of a matrix routine");
}
struct status *linalg_not_invertible(void) {
    return status_invalid("Input is not invertible.");
}

struct status *linalg_plan_stack(const struct kernel_ctx *ctx, struct linalg_plan *plan,
                                 int n_inputs) {
    const struct tensor *first = &ctx->inputs[0];
    for (int i = 0; i < n_inputs; i++) {
        const struct tensor *t = &ctx->inputs[i];
        if (i > 0 && t->rank != first->rank)
            return status_invalid("All input tensors must have the same rank.");
        if (t->rank < 2)
            return status_invalid("Input tensor %d must have rank >= 2, got %d", i, t->rank);
        for (int d = 0; d < first->rank - 2; d++) {
            if (tensor_dim(t, d) != tensor_dim(first, d))
                return status_invalid("All input tensors must have the same outer dimensions.");
        }
    }
    const int64_t *dims = tensor_dims(first);
    plan->stack = (struct shape){first->rank - 2, dims};
    plan->m = dims[first->rank - 2];
    plan->n = dims[first->rank - 1];
    plan->n_matrix_inputs = n_inputs;
    TRY(shape_n_elements(plan->stack, &plan->n_problems));
    for (int i = 0; i < n_inputs; i++) {
        const int64_t *own = tensor_dims(&ctx->inputs[i]);
        /* the product may overflow when the stack is empty */
        if (mul_overflows_i64(own[first->rank - 2], own[first->rank - 1], &plan->in_elements[i]))
            return status_invalid("Matrix of %lld by %lld is too large",
                                  (long long)own[first->rank - 2], (long long)own[first->rank - 1]);
    }
    return NULL;
}

/* ---- one execution ---- */

struct linalg_job {
    struct kernel_ctx *ctx;
    const struct linalg_plan *plan;
    const struct lapack *lapack;
    const char *in[LINALG_MAX_INPUTS];
    char *out[LINALG_MAX_OUTPUTS];
    int64_t out_elements[LINALG_MAX_OUTPUTS];
    size_t out_size[LINALG_MAX_OUTPUTS];
    _Atomic(struct status *) failure; /* the first failure stays */
};

/* ---- one large problem, on a thread that can be abandoned ---- */

/* Holds the tensors, so that an abandoned routine may go on to use them. */
struct detached_solve {
    struct detached_call call;
    struct linalg_problem problem;
    struct linalg_state state; /* a copy: the node's may be freed before the routine has ended */
    struct status *status;
    int n_inputs, n_outputs;
    struct tensor tensors[]; /* inputs, then outputs */
};

static void detached_solve_work(struct detached_call *call) {
    struct detached_solve *solve = CONTAINER_OF(call, struct detached_solve, call);
    solve->status = solve->state.fn(&solve->problem);
}

static void detached_solve_free(struct detached_call *call) {
    struct detached_solve *solve = CONTAINER_OF(call, struct detached_solve, call);
    for (int i = 0; i < solve->n_inputs + solve->n_outputs; i++)
        tensor_clear(&solve->tensors[i]);
    free(solve->problem.scratch);
    status_unref(solve->status);
    free(solve);
}

static struct status *solve_detached(const struct linalg_job *job, struct linalg_problem *problem) {
    struct kernel_ctx *ctx = job->ctx;
    int n_inputs = ctx->instance->n_inputs, n_outputs = ctx->instance->n_outputs;
    size_t size =
        sizeof(struct detached_solve) + (size_t)(n_inputs + n_outputs) * sizeof(struct tensor);
    struct detached_solve *solve = aligned_alloc(64, (size + 63) & ~(size_t)63);
    if (!solve)
        return linalg_no_memory();
    memset(solve, 0, size);
    solve->call = (struct detached_call){detached_solve_work, detached_solve_free};
    solve->state = *problem->state;
    solve->problem = *problem;
    solve->problem.state = &solve->state;
    problem->scratch = NULL; /* it is the call's now */
    problem->scratch_size = 0;
    solve->n_inputs = n_inputs;
    solve->n_outputs = n_outputs;
    for (int i = 0; i < n_inputs; i++)
        tensor_copy(&solve->tensors[i], &ctx->inputs[i]);
    for (int i = 0; i < n_outputs; i++)
        tensor_copy(&solve->tensors[n_inputs + i], &ctx->outputs[i]);
    if (!detached_call_run(&solve->call))
        return status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
    struct status *st = solve->status;
    solve->status = NULL;
    detached_solve_free(&solve->call);
    return st;
}

/* Halves are computed on copies, which the kernel frees. */
static bool is_worth_a_thread(const struct linalg_job *job) {
    const struct linalg_state *state = job->plan->state;
    return job->plan->cost_ns > (double)DETACHED_CALL_WORTH_NS * OPS_PER_NS &&
           state->in == state->compute;
}

static void solve_range(void *arg, int64_t begin, int64_t end) {
    struct linalg_job *job = arg;
    const struct linalg_plan *plan = job->plan;
    size_t in_size = dtype_size(plan->state->compute);
    struct linalg_problem p = {.state = plan->state,
                               .lapack = job->lapack,
                               .m = plan->m,
                               .n = plan->n,
                               .k = plan->k,
                               .l2 = plan->l2};
    for (int64_t i = begin; i < end && !atomic_load_explicit(&job->failure, memory_order_relaxed);
         i++) {
        struct broadcast_cursor cursor;
        if (plan->broadcasts)
            broadcast_seek(plan->broadcast, i, &cursor);
        for (int k = 0; k < plan->n_matrix_inputs; k++) {
            int64_t index = plan->broadcasts ? broadcast_offset(plan->broadcast, &cursor, k) : i;
            p.in[k] = job->in[k] + index * plan->in_elements[k] * (int64_t)in_size;
        }
        for (int k = 0; k < LINALG_MAX_OUTPUTS; k++)
            p.out[k] = job->out[k]
                           ? job->out[k] + i * job->out_elements[k] * (int64_t)job->out_size[k]
                           : NULL;
        struct status *st = is_worth_a_thread(job) ? solve_detached(job, &p) : plan->state->fn(&p),
                      *none = NULL;
        if (st && !atomic_compare_exchange_strong(&job->failure, &none, st))
            status_unref(st);
    }
    free(p.scratch);
}

static struct status *make_output(struct kernel_ctx *ctx, const struct linalg_plan *plan, int i,
                                  struct linalg_job *job) {
    int64_t dims[SHAPE_MAX_RANK];
    int rank = plan->stack.rank;
    enum dtype dtype = plan->out[i].dtype;
    if (plan->out[i].rank < 0)
        return tensor_new_zeroed(ctx->instance->allocator, dtype, SHAPE_SCALAR, &ctx->outputs[i]);
    memcpy(dims, plan->stack.dims, (size_t)rank * sizeof(*dims));
    job->out_elements[i] = 1;
    job->out_size[i] = dtype_size(dtype);
    for (int d = 0; d < plan->out[i].rank; d++) {
        dims[rank++] = plan->out[i].dims[d];
        job->out_elements[i] *= plan->out[i].dims[d];
    }
    TRY(kernel_alloc(ctx, i, dtype, (struct shape){rank, dims}));
    job->out[i] = tensor_data(&ctx->outputs[i]);
    return NULL;
}

/* Computes half in float, with copies of all inputs and outputs. */
static struct status *widen(struct kernel_ctx *ctx, struct linalg_job *job, float **ret_copies) {
    const struct linalg_plan *plan = job->plan;
    int64_t total = 1;
    for (int i = 0; i < plan->n_matrix_inputs; i++)
        total += ctx->inputs[i].n_elements;
    for (int i = 0; i < ctx->instance->n_outputs; i++)
        total += ctx->outputs[i].n_elements;
    float *copies = *ret_copies = malloc((size_t)total * sizeof(*copies));
    if (!copies)
        return linalg_no_memory();
    for (int i = 0; i < plan->n_matrix_inputs; i++) {
        half_block_load(plan->state->in, copies, tensor_cdata(&ctx->inputs[i]),
                        ctx->inputs[i].n_elements);
        job->in[i] = (const char *)copies;
        copies += ctx->inputs[i].n_elements;
    }
    for (int i = 0; i < ctx->instance->n_outputs; i++) {
        job->out[i] = (char *)copies;
        job->out_size[i] = sizeof(float);
        copies += ctx->outputs[i].n_elements;
    }
    return NULL;
}

static struct status *run(struct kernel_ctx *ctx, struct linalg_job *job) {
    const struct linalg_plan *plan = job->plan;
    float *copies = NULL;
    struct status *st = NULL;
    if (plan->state->in != plan->state->compute)
        TRY_OUT(widen(ctx, job, &copies));
    pool_parallel_for(ctx->pool, plan->n_problems, plan->cost_ns, solve_range, job);
    st = atomic_load(&job->failure);
    for (int i = 0; copies && !st && i < ctx->instance->n_outputs; i++)
        half_block_store(plan->state->in, tensor_data(&ctx->outputs[i]), (const float *)job->out[i],
                         ctx->outputs[i].n_elements);
out:
    free(copies);
    return st;
}

/* A stack of empty matrices may be of any height without using memory, so it must not be walked. */
static bool has_results(const struct kernel_ctx *ctx, const struct linalg_plan *plan) {
    for (int i = 0; i < ctx->instance->n_outputs; i++)
        if (plan->out[i].rank >= 0 && ctx->outputs[i].n_elements > 0)
            return true;
    return false;
}

enum kernel_result linalg_compute(struct kernel_ctx *ctx) {
    const struct linalg_state *state = ctx->instance->state;
    struct broadcast broadcast;
    struct linalg_plan plan = {.state = state, .broadcast = &broadcast};
    struct linalg_job job = {.ctx = ctx, .plan = &plan};
    KERNEL_TRY(ctx, state->op->check(ctx, &plan));
    if (plan.m > INT_MAX || plan.n > INT_MAX || plan.k > INT_MAX)
        return kernel_fail(ctx, status_invalid("Matrix of %lld by %lld is too large",
                                               (long long)plan.m, (long long)plan.n));
    for (int i = 0; i < ctx->instance->n_outputs; i++)
        KERNEL_TRY(ctx, make_output(ctx, &plan, i, &job));
    if (!has_results(ctx, &plan))
        return KERNEL_DONE;
    for (int i = 0; i < plan.n_matrix_inputs; i++)
        job.in[i] = tensor_cdata(&ctx->inputs[i]);
    job.lapack = lapack_get();
    if (!job.lapack)
        return kernel_fail(
            ctx, status_unimplemented("Op '%s' needs LAPACK, and no OpenBLAS that has it was found",
                                      ctx->instance->node->op->name));
    double weight =
        dtype_in(state->compute, DTYPES_COMPLEX) ? 4 * state->op->weight : state->op->weight;
    plan.cost_ns = 500 + weight * 2.0 * (double)MAX(plan.m, plan.n) * (double)MIN(plan.m, plan.n) *
                             (double)MAX(MIN(plan.m, plan.n), plan.k);
    KERNEL_TRY(ctx, run(ctx, &job));
    return KERNEL_DONE;
}
