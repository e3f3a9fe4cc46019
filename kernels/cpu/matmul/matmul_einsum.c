/* Runs Einsum with one or two inputs. Labels say which diagonals are taken, and what is summed,
 * multiplied and permuted.
 *
 *   input ── view: a stride per label (repeated labels add up) ── gather: sum labels that only
 *            this input has; lay out [batch, rows, columns] ──┐
 *   input ── the same ──────────────────────────────────┴─ batched product ── scatter ── output
 *
 * A label of both inputs and the output is a batch label. A label of both inputs only is
 * contracted. A label of one input and the output is a row or a column. A label of one input only
 * is summed by the gather. Gather and scatter are left out where the data has the wanted layout
 * already. half and bfloat16 are computed in float.
 *
 * Errors   INVALID_ARGUMENT   ranks or sizes that do not fit the equation
 * Cost     2·batch·rows·inner·columns flops */
#include "kernels/cpu/matmul/matmul_einsum.h"

#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/number_types.h"

extern const struct kernel_list matmul_einsum_kernels;

static struct status *einsum_init(struct kernel_init *init) {
    struct einsum_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span text;
    TRY(node_get_s(init->node, "equation", &text));
    TRY(einsum_parse(text, init->node->n_data, &state->equation));
    state->dtype = (enum dtype)init->node->out_types[0];
    state->compute = dtype_is_narrow_float(state->dtype) ? DT_FLOAT : state->dtype;
    return NULL;
}

/* ---- walking strides ---- */

static void walk_add(struct walk *walk, int64_t size, int64_t stride) {
    if (size != 1)
        walk->axes[walk->n_axes++] = (struct axis){size, stride};
}

/* Moves to the next position of axes [0, n), and returns its offset. */
static int64_t walk_step(const struct axis *axes, int n, int64_t *index, int64_t offset) {
    for (int i = n - 1; i >= 0; i--) {
        offset += axes[i].stride;
        if (++index[i] < axes[i].size)
            return offset;
        offset -= axes[i].size * axes[i].stride;
        index[i] = 0;
    }
    return offset;
}

/* Gathering computes to[…] = Σ from[offset], scattering to[offset] = from[…]. Both go through the
 * kept axes in row-major order. */
#define NAME(x) x##_f32
#define T float
#define W float
#include "kernels/cpu/matmul/matmul_einsum_walks.inc"
#define NAME(x) x##_f64
#define T double
#define W double
#include "kernels/cpu/matmul/matmul_einsum_walks.inc"
#define NAME(x) x##_c64
#define T float complex
#define W float complex
#include "kernels/cpu/matmul/matmul_einsum_walks.inc"
#define NAME(x) x##_c128
#define T double complex
#define W double complex
#include "kernels/cpu/matmul/matmul_einsum_walks.inc"
#define NAME(x) x##_i32
#define T int32_t
#define W uint32_t
#include "kernels/cpu/matmul/matmul_einsum_walks.inc"
#define NAME(x) x##_i64
#define T int64_t
#define W uint64_t
#include "kernels/cpu/matmul/matmul_einsum_walks.inc"

// clang-format off
/* Calls what_TYPE(...) of the compute type. */
#define DISPATCH(dtype, what, ...)                             \
    switch (dtype) {                                           \
    case DT_FLOAT: what##_f32(__VA_ARGS__); break;             \
    case DT_DOUBLE: what##_f64(__VA_ARGS__); break;            \
    case DT_COMPLEX64: what##_c64(__VA_ARGS__); break;         \
    case DT_COMPLEX128: what##_c128(__VA_ARGS__); break;       \
    case DT_INT32: what##_i32(__VA_ARGS__); break;             \
    default: what##_i64(__VA_ARGS__); break;                   \
    }
// clang-format on

/* ---- labels ---- */

static struct status *take_label(struct einsum_job *job, struct operand *operand,
                                 const struct tensor *t, uint16_t label, int axis, int64_t stride) {
    int64_t size = tensor_dim(t, axis), *known = &job->size[label];
    bool is_stretched = label >= EINSUM_ELLIPSIS && (size == 1 || *known == 1);
    if (*known < 0 || (is_stretched && size != 1))
        *known = size;
    else if (*known != size && !is_stretched)
        return status_invalid(
            "Expected dimension %lld at axis %d of the input but got dimension %lld",
            (long long)*known, axis, (long long)size);
    if (!operand->has[label])
        operand->labels[operand->n_labels++] = label;
    operand->has[label] = true;
    operand->stride[label] += stride;
    return NULL;
}

static struct status *read_input(struct einsum_job *job, int i, const struct tensor *t,
                                 int *ellipsis_rank) {
    uint16_t labels[SHAPE_MAX_RANK];
    int own_rank;
    int64_t stride = 1;
    TRY(einsum_input_labels(&job->state->equation, i, t->rank, labels, &own_rank));
    *ellipsis_rank = MAX(*ellipsis_rank, own_rank);
    for (int axis = t->rank - 1; axis >= 0; axis--) {
        TRY(take_label(job, &job->in[i], t, labels[axis], axis, stride));
        stride *= tensor_dim(t, axis);
    }
    return NULL;
}

/* A dimension of size 1 that the other input stretches is dropped. */
static void drop_stretched(struct einsum_job *job, struct operand *operand, const struct tensor *t,
                           int input) {
    uint16_t labels[SHAPE_MAX_RANK];
    int own_rank, kept = 0;
    status_unref(einsum_input_labels(&job->state->equation, input, t->rank, labels, &own_rank));
    for (int axis = 0; axis < t->rank; axis++) {
        if (labels[axis] >= EINSUM_ELLIPSIS && tensor_dim(t, axis) == 1 &&
            job->size[labels[axis]] != 1)
            operand->has[labels[axis]] = false;
    }
    for (int i = 0; i < operand->n_labels; i++) {
        if (operand->has[operand->labels[i]])
            operand->labels[kept++] = operand->labels[i];
    }
    operand->n_labels = kept;
}

static struct status *make_output(struct kernel_ctx *ctx, struct einsum_job *job,
                                  int ellipsis_rank) {
    uint16_t labels[SHAPE_MAX_RANK];
    int64_t dims[SHAPE_MAX_RANK], stride = 1;
    int rank;
    TRY(einsum_output_labels(&job->state->equation, ellipsis_rank, labels, &rank));
    for (int i = 0; i < rank; i++)
        dims[i] = job->size[labels[i]];
    TRY(kernel_alloc(ctx, 0, job->state->dtype, (struct shape){rank, dims}));
    for (int i = rank - 1; i >= 0; i--) {
        job->out.stride[labels[i]] += stride;
        stride *= dims[i];
    }
    for (int i = 0; i < rank; i++) {
        if (!job->out.has[labels[i]])
            job->out.labels[job->out.n_labels++] = labels[i];
        job->out.has[labels[i]] = true;
    }
    return NULL;
}

/* ---- roles of labels ---- */

enum role { BATCH, ROW, COLUMN, INNER, SUMMED };

static enum role role_of(const struct einsum_job *job, uint16_t label) {
    bool a = job->in[0].has[label], b = job->in[1].has[label], out = job->out.has[label];
    return a && b ? (out ? BATCH : INNER) : !out ? SUMMED : a ? ROW : COLUMN;
}

/* Adds the labels of `from` that have the role, and counts their elements. */
static int64_t add_role(const struct einsum_job *job, const struct operand *from, enum role role,
                        const struct operand *strides, struct walk *walk) {
    int64_t n = 1;
    for (int i = 0; i < from->n_labels; i++) {
        uint16_t label = from->labels[i];
        if (role_of(job, label) != role || !strides->has[label])
            continue;
        walk_add(walk, job->size[label], strides->stride[label]);
        n *= job->size[label];
    }
    return n;
}

static void plan_walks(struct einsum_job *job) {
    struct operand *a = &job->in[0], *b = &job->in[1], *out = &job->out;
    job->n_batch = add_role(job, out, BATCH, a, &a->walk);
    job->rows = add_role(job, out, ROW, a, &a->walk);
    job->inner = add_role(job, a, INNER, a, &a->walk);
    add_role(job, out, BATCH, b, &b->walk);
    add_role(job, a, INNER, b, &b->walk);
    job->columns = add_role(job, out, COLUMN, b, &b->walk);
    for (int i = 0; i < 2; i++) {
        struct walk *walk = &job->in[i].walk;
        int before = walk->n_axes;
        add_role(job, &job->in[i], SUMMED, &job->in[i], walk);
        walk->n_summed = walk->n_axes - before;
    }
    add_role(job, out, BATCH, out, &out->walk);
    add_role(job, out, ROW, out, &out->walk);
    add_role(job, out, COLUMN, out, &out->walk);
}

/* ---- data ---- */

static struct status *no_memory(void) {
    return status_exhausted("OOM when allocating the operands of an einsum");
}

/* Brings the operand into the layout that the product wants. */
static struct status *gather_operand(const struct einsum_job *job, struct operand *operand,
                                     const struct tensor *t) {
    enum dtype compute = job->state->compute;
    const struct walk *walk = &operand->walk;
    const void *from = tensor_cdata(t);
    bool is_plain = walk_is_contiguous(walk), widens = compute != job->state->dtype;
    int64_t n = walk_elements(walk, 0, walk->n_axes - walk->n_summed);
    operand->data = from;
    if (is_plain && !widens)
        return NULL;
    int64_t n_wide = widens ? t->n_elements : 0;
    char *memory = operand->memory =
        malloc((size_t)(n_wide + (is_plain ? 0 : n)) * dtype_size(compute) + 1);
    if (!memory)
        return no_memory();
    if (widens) {
        half_block_load(job->state->dtype, (float *)(void *)memory, from, n_wide);
        operand->data = from = memory;
    }
    if (is_plain)
        return NULL;
    void *to = memory + (size_t)n_wide * dtype_size(compute);
    DISPATCH(compute, gather, walk, from, to)
    operand->data = to;
    return NULL;
}

static struct matmul product_of(const struct einsum_job *job, int64_t batch) {
    int64_t size = (int64_t)dtype_size(job->state->compute), m = job->rows, k = job->inner,
            n = job->columns;
    return (struct matmul){.m = m,
                           .n = n,
                           .k = k,
                           .a = job->a + batch * m * k * size,
                           .b = job->b + batch * k * n * size,
                           .c = job->c + batch * m * n * size,
                           .lda = k,
                           .ldb = n,
                           .ldc = n};
}

static void multiply_rows(const struct einsum_job *job, int64_t batch, int64_t row,
                          int64_t n_rows) {
    enum dtype compute = job->state->compute;
    struct matmul whole = product_of(job, batch),
                  g = matmul_part(compute, &whole, row, n_rows, 0, whole.n);
    matmul_run(compute, &g);
}

static void multiply_range(void *arg, int64_t begin, int64_t end) {
    const struct einsum_job *job = arg;
    if (job->n_batch == 1) {
        struct matmul whole = product_of(job, 0);
        matmul_run_units(job->state->compute, &whole, &job->division, begin, end);
        return;
    }
    for (; begin < end; begin++) {
        int64_t row = begin % job->units * job->unit_rows;
        multiply_rows(job, begin / job->units, row, MIN(job->unit_rows, job->rows - row));
    }
}

/* Multiplies in units of rows of the only product, or of whole products. A product that would keep
 * its thread for long is divided, so that a cancel is seen in time. */
static void multiply(struct kernel_ctx *ctx, struct einsum_job *job) {
    enum { UNIT_NS = 30 * 1000 * 1000, LEAST_ROWS = 256 };
    double row_ns = 0.1 * (double)job->inner * (double)job->columns,
           n = (double)job->rows * (double)job->inner * (double)job->columns,
           product_ns = n * matmul_cost_ns(job->state->compute, n);
    if (job->n_batch == 1) {
        struct matmul whole = product_of(job, 0);
        job->division = matmul_divide(job->state->compute, &whole, job->rows >= job->columns);
        pool_parallel_for(ctx->pool, job->division.n_units,
                          20 + row_ns * (double)job->rows / (double)job->division.n_units,
                          multiply_range, job);
        return;
    }
    job->unit_rows = job->rows;
    if (product_ns > 2 * UNIT_NS)
        job->unit_rows =
            MIN(MAX((int64_t)(UNIT_NS / product_ns * (double)job->rows), (int64_t)LEAST_ROWS),
                job->rows);
    job->units = (job->rows - 1) / job->unit_rows + 1;
    pool_parallel_for(ctx->pool, job->n_batch * job->units, 20 + row_ns * (double)job->unit_rows,
                      multiply_range, job);
}

/* Computes the product of the gathered operands, or returns the one gathered operand. */
static struct status *run(struct kernel_ctx *ctx, struct einsum_job *job) {
    const struct einsum_state *state = job->state;
    struct tensor *out = &ctx->outputs[0];
    int64_t n = job->n_batch * job->rows * job->columns;
    size_t size = dtype_size(state->compute);
    bool scatters = !walk_is_contiguous(&job->out.walk), widens = state->compute != state->dtype;
    int n_inputs = state->equation.n_inputs;
    for (int i = 0; i < n_inputs; i++)
        TRY(gather_operand(job, &job->in[i], &ctx->inputs[i]));
    job->c = tensor_data(out);
    if (n_inputs == 2 && (scatters || widens)) {
        job->c = job->out.memory = malloc((size_t)n * size + 1);
        if (!job->c)
            return no_memory();
    }
    if (n_inputs == 2) {
        job->a = job->in[0].data;
        job->b = job->in[1].data;
        if (job->inner == 0)
            memset(job->c, 0, (size_t)n * size);
        else
            multiply(ctx, job);
    }
    const void *result = n_inputs == 2 ? job->c : job->in[0].data;
    if (!scatters && !widens) {
        if (result != tensor_data(out))
            memcpy(tensor_data(out), result, (size_t)n * size);
        return NULL;
    }
    memset(tensor_data(out), 0, tensor_size_bytes(out)); /* elements off the diagonals are 0 */
    if (!widens) {
        DISPATCH(state->compute, scatter, &job->out.walk, result, tensor_data(out))
        return NULL;
    }
    float *wide = scatters ? calloc((size_t)out->n_elements + 1, sizeof(*wide)) : NULL;
    if (scatters && !wide)
        return no_memory();
    if (scatters)
        scatter_f32(&job->out.walk, result, wide);
    half_block_store(state->dtype, tensor_data(out), scatters ? wide : result, out->n_elements);
    free(wide);
    return NULL;
}

static struct status *einsum(struct kernel_ctx *ctx, struct einsum_job *job) {
    const struct einsum_state *state = ctx->instance->state;
    int ellipsis_rank = 0, n_inputs = state->equation.n_inputs;
    job->state = state;
    for (int i = 0; i < EINSUM_N_LABELS; i++)
        job->size[i] = -1;
    for (int i = 0; i < n_inputs; i++)
        TRY(read_input(job, i, &ctx->inputs[i], &ellipsis_rank));
    for (int i = 0; i < n_inputs; i++)
        drop_stretched(job, &job->in[i], &ctx->inputs[i], i);
    TRY(make_output(ctx, job, ellipsis_rank));
    if (ctx->outputs[0].n_elements == 0)
        return NULL;
    plan_walks(job);
    return kernel_is_for_device(ctx) ? einsum_run_on_device(ctx, job) : run(ctx, job);
}

static enum kernel_result einsum_compute(struct kernel_ctx *ctx) {
    /* tables by label are too large for a stack */
    struct einsum_job *job = xcalloc(1, sizeof(*job));
    struct status *st = einsum(ctx, job);
    for (int i = 0; i < EINSUM_MAX_INPUTS; i++)
        free(job->in[i].memory);
    free(job->out.memory);
    free(job);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static const struct kernel_def rows[] = {
    {"Einsum",
     {{"T", DTYPES_REAL_FLOAT | DTYPES_COMPLEX | DTYPES_INDEX}},
     einsum_compute,
     einsum_init},
};
const struct kernel_list matmul_einsum_kernels = {rows, ARRAY_LEN(rows)};
