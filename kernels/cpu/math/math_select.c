/* Takes one of several inputs element by element (Select, SelectV2, ClipByValue), and sums many
 * inputs (AddN, AccumulateNV2). */
#include "kernels/cpu/math/math_internal.h"

#include <stdlib.h>

#include "kernels/cpu/math/math_blocks.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/half_blocks.h"

/* ---- Select ---- */

struct element16 {
    uint64_t half[2];
};

/* out[i] = condition[i] ? then[i] : otherwise[i], where then and otherwise may each be one value
 * for all. The loops read both and choose afterwards, so they have no branch and vectorise. `out`
 * may be then or otherwise. */
#define CHOOSE(T, THEN, ELSE)                              \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
        T yes = (THEN), no = (ELSE);                       \
        to[i] = condition[i] ? yes : no;                   \
    }
#define SELECT_LOOP(T)                                                               \
    VECTOR_CLONES static void select_##T(const uint8_t *condition, const void *then, \
                                         int64_t then_step, const void *otherwise,   \
                                         int64_t else_step, void *out, int64_t n) {  \
        const T *t = then, *e = otherwise, one_then = *t, one_else = *e;             \
        T *to = out;                                                                 \
        if (then_step && else_step)                                                  \
            CHOOSE(T, t[i], e[i])                                                    \
        else if (then_step)                                                          \
            CHOOSE(T, t[i], one_else)                                                \
        else if (else_step)                                                          \
            CHOOSE(T, one_then, e[i])                                                \
        else                                                                         \
            CHOOSE(T, one_then, one_else)                                            \
    }
SELECT_LOOP(uint8_t)
SELECT_LOOP(uint16_t)
SELECT_LOOP(uint32_t)
SELECT_LOOP(uint64_t)

static void select_16(const uint8_t *condition, const struct element16 *then, int64_t then_step,
                      const struct element16 *otherwise, int64_t else_step, struct element16 *to,
                      int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = condition[i] ? then[i * then_step] : otherwise[i * else_step];
}

/* One condition decides for the whole run. `out` may be `from`. */
static void select_copy(size_t size, const char *from, int64_t step, char *out, int64_t n) {
    if (step) {
        memmove(out, from, (size_t)n * size);
        return;
    }
    char value[sizeof(struct element16)];
    memcpy(value, from, size);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * size, value, size);
}

static void select_run(enum dtype dtype, const uint8_t *condition, int64_t condition_step,
                       const void *then, int64_t then_step, const void *otherwise,
                       int64_t else_step, void *out, int64_t n) {
    if (dtype_is_object(dtype)) {
        struct object *const *t = then, *const *e = otherwise;
        for (int64_t i = 0; i < n; i++)
            ((struct object **)out)[i] =
                object_ref(condition[i * condition_step] ? t[i * then_step] : e[i * else_step]);
        return;
    }
    if (!condition_step) {
        select_copy(dtype_size(dtype), *condition ? then : otherwise,
                    *condition ? then_step : else_step, out, n);
        return;
    }
    switch (dtype_size(dtype)) {
    case 1:
        select_uint8_t(condition, then, then_step, otherwise, else_step, out, n);
        break;
    case 2:
        select_uint16_t(condition, then, then_step, otherwise, else_step, out, n);
        break;
    case 4:
        select_uint32_t(condition, then, then_step, otherwise, else_step, out, n);
        break;
    case 8:
        select_uint64_t(condition, then, then_step, otherwise, else_step, out, n);
        break;
    default:
        select_16(condition, then, then_step, otherwise, else_step, out, n);
        break;
    }
}

struct select_job {
    const struct broadcast *plan;
    enum dtype dtype;
    int64_t size;
    const uint8_t *condition;
    const char *then, *otherwise;
    char *out;
};

static void select_range(void *arg, int64_t begin, int64_t end) {
    const struct select_job *job = arg;
    const struct broadcast *plan = job->plan;
    struct broadcast_cursor cursor;
    broadcast_seek(plan, begin, &cursor);
    while (begin < end) {
        int64_t n = MIN(plan->dims[plan->rank - 1] - cursor.inner, end - begin);
        select_run(job->dtype, job->condition + broadcast_offset(plan, &cursor, 0),
                   !(plan->inner_stretched & 1),
                   job->then + broadcast_offset(plan, &cursor, 1) * job->size,
                   !(plan->inner_stretched & 2),
                   job->otherwise + broadcast_offset(plan, &cursor, 2) * job->size,
                   !(plan->inner_stretched & 4), job->out + begin * job->size, n);
        begin += n;
        broadcast_next_row(plan, &cursor);
    }
}

/* Selects from the three inputs, broadcast at these shapes. `plan` is the result of
 * broadcast_init. */
static enum kernel_result select_with_plan(struct kernel_ctx *ctx, const struct broadcast *plan) {
    enum dtype dtype = (enum dtype)ctx->inputs[1].dtype;
    struct select_job job = {plan,
                             dtype,
                             (int64_t)dtype_size(dtype),
                             tensor_cdata(&ctx->inputs[0]),
                             tensor_cdata(&ctx->inputs[1]),
                             tensor_cdata(&ctx->inputs[2]),
                             NULL};
    const struct tensor *then = &ctx->inputs[1];
    bool takes_then = then->storage == TENSOR_BUFFER && then->n_elements == plan->n_elements &&
                      buffer_is_sole(then->buffer);
    KERNEL_TRY(ctx,
               kernel_forward_or_alloc(ctx, takes_then ? 1 : 2, 0, dtype, broadcast_shape(plan)));
    job.out = tensor_data(&ctx->outputs[0]);
    if (plan->n_elements > 0)
        pool_parallel_for(ctx->pool, plan->n_elements, dtype_is_object(dtype) ? 10 : 1,
                          select_range, &job);
    return KERNEL_DONE;
}

static enum kernel_result select_v2_compute(struct kernel_ctx *ctx) {
    if (is_inline_scalar(&ctx->inputs[0]) && ctx->inputs[1].rank == ctx->inputs[2].rank &&
        shape_equal(tensor_shape(&ctx->inputs[1]), tensor_shape(&ctx->inputs[2]))) {
        kernel_pass(ctx, ctx->inputs[0].bytes[0] ? 1 : 2, 0);
        return KERNEL_DONE;
    }
    struct broadcast plan;
    KERNEL_TRY(ctx, elementwise_plan_select_v2(ctx, &plan));
    return select_with_plan(ctx, &plan);
}

/* Select: the condition has the shape of the others, or is a scalar, or chooses whole rows. */
static enum kernel_result select_compute(struct kernel_ctx *ctx) {
    const struct tensor *condition = &ctx->inputs[0];
    struct broadcast plan;
    KERNEL_TRY(ctx, elementwise_plan_select(ctx, &plan));
    if (is_inline_scalar(condition)) {
        kernel_pass(ctx, condition->bytes[0] ? 1 : 2, 0);
        return KERNEL_DONE;
    }
    return select_with_plan(ctx, &plan);
}

static unsigned select_block(const struct kernel_instance *instance, const void *const *operands,
                             unsigned ones, void *out, int64_t n) {
    select_run((enum dtype)instance->out_types[0], operands[0], !(ones & 1), operands[1],
               !(ones & 2), operands[2], !(ones & 4), out, n);
    return 0;
}

const struct block_engine math_select_engine = {select_compute, select_block, BLOCK_SELECT, NULL,
                                                NULL};
const struct block_engine math_select_v2_engine = {select_v2_compute, select_block, BLOCK_BROADCAST,
                                                   NULL, NULL};

/* ---- ClipByValue: max(min(t, high), low), each limit a scalar or of t's shape ---- */

typedef void clip_loop(const void *t, const void *low, int64_t low_step, const void *high,
                       int64_t high_step, void *out, int64_t n);
/* Written so that a NaN in t stays NaN, and a limit that is NaN has no effect. */
#define CLIP_LOOP(tag, T, W, DT, ...)                                                          \
    static void clip_##tag(const void *t, const void *low, int64_t low_step, const void *high, \
                           int64_t high_step, void *out, int64_t n) {                          \
        const T *from = t, *least = low, *most = high;                                         \
        T *to = out;                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                      \
            T x = from[i], a = least[i * low_step], b = most[i * high_step];                   \
            to[i] = CLIP(x, a, b);                                                             \
        }                                                                                      \
    }
#define CLIP_ENTRY(tag, T, W, DT, ...) [DT] = clip_##tag,
#define CLIP(x, a, b) ((b) < (x) ? (b) < (a) ? (a) : (b) : (x) < (a) ? (a) : (x))
NUMBERS_INTS(CLIP_LOOP)
NUMBERS_FLOATS(CLIP_LOOP)
#undef CLIP
/* Clips the parts of complex numbers separately. */
#define PART(x, a, b) ((b) < (x) ? (b) < (a) ? (a) : (b) : (x) < (a) ? (a) : (x))
#define CLIP(x, a, b) \
    MAKE(PART(__real__ x, __real__ a, __real__ b), PART(__imag__ x, __imag__ a, __imag__ b))
#define MAKE CMPLXF
NUMBERS_C64(CLIP_LOOP)
#undef MAKE
#define MAKE CMPLX
NUMBERS_C128(CLIP_LOOP)
static clip_loop *const clip_loops[DT_N_TYPES] = {
    NUMBERS_INTS(CLIP_ENTRY) NUMBERS_FLOATS(CLIP_ENTRY) NUMBERS_COMPLEX(CLIP_ENTRY)};

struct clip_job {
    enum dtype dtype;
    const char *t, *low, *high;
    int64_t low_step, high_step, size;
    char *out;
};

static void clip_range(void *arg, int64_t begin, int64_t end) {
    const struct clip_job *job = arg;
    const char *low = job->low + begin * job->low_step * job->size,
               *high = job->high + begin * job->high_step * job->size;
    if (!dtype_is_narrow_float(job->dtype)) {
        clip_loops[job->dtype](job->t + begin * job->size, low, job->low_step, high, job->high_step,
                               job->out + begin * job->size, end - begin);
        return;
    }
    float t[HALF_BLOCK], least[HALF_BLOCK], most[HALF_BLOCK];
    for (; begin < end; begin += HALF_BLOCK) {
        int64_t n = MIN(end - begin, HALF_BLOCK);
        half_block_load(job->dtype, t, (const uint16_t *)job->t + begin, n);
        half_block_load(job->dtype, least, (const uint16_t *)job->low + begin * job->low_step,
                        job->low_step ? n : 1);
        half_block_load(job->dtype, most, (const uint16_t *)job->high + begin * job->high_step,
                        job->high_step ? n : 1);
        clip_loops[DT_FLOAT](t, least, job->low_step, most, job->high_step, t, n);
        half_block_store(job->dtype, (uint16_t *)job->out + begin, t, n);
    }
}

static enum kernel_result clip_compute(struct kernel_ctx *ctx) {
    struct tensor *t = &ctx->inputs[0], *low = &ctx->inputs[1], *high = &ctx->inputs[2];
    struct shape shape = tensor_shape(t);
    KERNEL_TRY(ctx, elementwise_check_clip(ctx));
    enum dtype dtype = (enum dtype)t->dtype;
    struct clip_job job = {
        dtype,          tensor_cdata(t), tensor_cdata(low),          tensor_cdata(high),
        low->rank != 0, high->rank != 0, (int64_t)dtype_size(dtype), NULL};
    int64_t n = t->n_elements;
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, dtype, shape));
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, n, 1, clip_range, &job);
    return KERNEL_DONE;
}

static unsigned clip_block(const struct kernel_instance *instance, const void *const *operands,
                           unsigned ones, void *out, int64_t n) {
    enum dtype dtype = (enum dtype)instance->in_types[0];
    struct clip_job job = {dtype,
                           operands[0],
                           operands[1],
                           operands[2],
                           !(ones & 2),
                           !(ones & 4),
                           (int64_t)dtype_size(dtype),
                           out};
    clip_range(&job, 0, n);
    return 0;
}

const struct block_engine math_clip_engine = {clip_compute, clip_block, BLOCK_CLIP, NULL, NULL};

/* ---- AddN, AccumulateNV2 ---- Adds all inputs block by block, so that the running sum stays in
 * the first-level cache. */

enum { ADD_BLOCK = 1024 };
/* sum = a + b. `sum` may be a or b. */
#define ADD_LOOP(tag, T, W, DT, ...)                                                               \
    VECTOR_CLONES static void add_pair_##tag(const void *a, const void *b, void *sum, int64_t n) { \
        const T *left = a, *right = b;                                                             \
        T *to = sum;                                                                               \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                                     \
            to[i] = (T)((W)left[i] + (W)right[i]);                                                 \
        }                                                                                          \
    }
#define ADD_ENTRY(tag, T, W, DT, ...) [DT] = add_pair_##tag,
NUMBERS_INTS(ADD_LOOP)
NUMBERS_FLOATS(ADD_LOOP)
static void (*const add_loops[DT_N_TYPES])(const void *, const void *, void *, int64_t) = {
    NUMBERS_INTS(ADD_ENTRY) NUMBERS_FLOATS(ADD_ENTRY)};

struct add_job {
    const void *const *inputs;
    int n_inputs;
    enum dtype dtype;
    char *out;
};

/* Adds narrow floats in float, and rounds the sum once. */
static void add_narrow_block(const struct add_job *job, int64_t begin, int64_t n) {
    float sum[HALF_BLOCK], more[HALF_BLOCK];
    half_block_load(job->dtype, sum, (const uint16_t *)job->inputs[0] + begin, n);
    for (int k = 1; k < job->n_inputs; k++) {
        half_block_load(job->dtype, more, (const uint16_t *)job->inputs[k] + begin, n);
        add_pair_f32(sum, more, sum, n);
    }
    half_block_store(job->dtype, (uint16_t *)job->out + begin, sum, n);
}

/* `begin` and `end` count reals. A complex number is two. */
static void add_range(void *arg, int64_t begin, int64_t end) {
    const struct add_job *job = arg;
    bool is_narrow = dtype_is_narrow_float(job->dtype);
    int64_t block = is_narrow ? HALF_BLOCK : ADD_BLOCK, size = (int64_t)dtype_size(job->dtype);
    char sum[ADD_BLOCK * sizeof(double)] __attribute__((aligned(64)));
    for (; begin < end; begin += block) {
        int64_t n = MIN(end - begin, block);
        if (is_narrow) {
            add_narrow_block(job, begin, n);
            continue;
        }
        /* Only the last addition writes to the output, because its memory may be that of any
         * input. */
        const void *so_far = (const char *)job->inputs[0] + begin * size;
        for (int k = 1; k < job->n_inputs; k++) {
            void *to = k + 1 < job->n_inputs ? sum : job->out + begin * size;
            add_loops[job->dtype](so_far, (const char *)job->inputs[k] + begin * size, to, n);
            so_far = sum;
        }
    }
}

/* The dtype of the loop. */
static enum dtype add_dtype(enum dtype dtype) {
    return dtype == DT_COMPLEX64 ? DT_FLOAT : dtype == DT_COMPLEX128 ? DT_DOUBLE : dtype;
}

static enum kernel_result add_n_compute(struct kernel_ctx *ctx) {
    enum { STACK_INPUTS = 16 };
    int n = ctx->instance->n_inputs;
    struct shape shape = tensor_shape(&ctx->inputs[0]);
    KERNEL_TRY(ctx, elementwise_check_same_shapes(ctx));
    if (n == 1) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    const void *stack[STACK_INPUTS],
        **heap = n > STACK_INPUTS ? xmalloc((size_t)n * sizeof(*heap)) : NULL,
        **inputs = heap ? heap : stack;
    enum dtype dtype = (enum dtype)ctx->inputs[0].dtype;
    struct add_job job = {inputs, n, add_dtype(dtype), NULL};
    int taken = 0;
    for (int k = 0; k < n; k++) {
        inputs[k] = tensor_cdata(&ctx->inputs[k]);
        if (!tensor_is_sole(&ctx->inputs[taken]) && tensor_is_sole(&ctx->inputs[k]))
            taken = k;
    }
    int64_t n_elements = ctx->inputs[0].n_elements;
    struct status *st = kernel_forward_or_alloc(ctx, taken, 0, dtype, shape);
    if (!st) {
        job.out = tensor_data(&ctx->outputs[0]);
        bool is_complex = dtype_in(dtype, DTYPES_COMPLEX);
        pool_parallel_for(ctx->pool, is_complex ? 2 * n_elements : n_elements, 0.3 * n, add_range,
                          &job);
    }
    free(heap);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

static unsigned add_n_block(const struct kernel_instance *instance, const void *const *operands,
                            unsigned ones, void *out, int64_t n) {
    enum dtype dtype = (enum dtype)instance->in_types[0];
    struct add_job job = {operands, instance->n_inputs, add_dtype(dtype), out};
    (void)ones;
    if (instance->n_inputs == 1)
        memmove(out, operands[0], (size_t)n * dtype_size(dtype));
    else
        add_range(&job, 0, dtype_in(dtype, DTYPES_COMPLEX) ? 2 * n : n);
    return 0;
}

const struct block_engine math_add_n_engine = {add_n_compute, add_n_block, BLOCK_EQUAL, NULL, NULL};

/* ---- ApproximateEqual ---- */

static struct status *approximate_equal_init(struct kernel_init *init) {
    float *tolerance = xmalloc(sizeof(*tolerance));
    init->state = tolerance;
    return node_get_f(init->node, "tolerance", tolerance);
}

static unsigned approximate_equal_block(const struct kernel_instance *instance,
                                        const void *const *operands, unsigned ones, void *out,
                                        int64_t n) {
    float tolerance = *(const float *)instance->state;
    const void *a = operands[0], *b = operands[1];
    uint8_t *to = out;
    (void)ones;
    for (int64_t i = 0; i < n; i++)
        to[i] = instance->in_types[0] == DT_FLOAT
                    ? fabsf(((const float *)a)[i] - ((const float *)b)[i]) < tolerance
                    : fabs(((const double *)a)[i] - ((const double *)b)[i]) < (double)tolerance;
    return 0;
}

static enum kernel_result approximate_equal_compute(struct kernel_ctx *ctx) {
    struct tensor *x = &ctx->inputs[0], *y = &ctx->inputs[1];
    KERNEL_TRY(ctx, elementwise_check_approximate(ctx));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_BOOL, tensor_shape(x)));
    const void *operands[2] = {tensor_cdata(x), tensor_cdata(y)};
    approximate_equal_block(ctx->instance, operands, 0, tensor_data(&ctx->outputs[0]),
                            x->n_elements);
    return KERNEL_DONE;
}

const struct block_engine math_approximate_engine = {
    approximate_equal_compute, approximate_equal_block, BLOCK_EQUAL, NULL, NULL};

#define ELEMENTWISE(op, types, compute) \
    { (op), {{"T", (types)}}, (compute), .flags = KERNEL_ELEMENTWISE }
static const struct kernel_def rows[] = {
    ELEMENTWISE("Select", DTYPES_PLAIN, select_compute),
    {"Select", {{"T", DTYPES_OBJECT}}, select_compute},
    ELEMENTWISE("SelectV2", DTYPES_PLAIN, select_v2_compute),
    {"SelectV2", {{"T", DTYPES_OBJECT}}, select_v2_compute},
    ELEMENTWISE("ClipByValue", DTYPES_NUMBER, clip_compute),
    ELEMENTWISE("AddN", DTYPES_NUMBER, add_n_compute),
    ELEMENTWISE("AccumulateNV2", DTYPES_NUMBER, add_n_compute),
    {"ApproximateEqual",
     {{"T", DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE)}},
     approximate_equal_compute,
     approximate_equal_init,
     .flags = KERNEL_ELEMENTWISE},
};

const struct kernel_list math_select_kernels = {rows, ARRAY_LEN(rows)};
