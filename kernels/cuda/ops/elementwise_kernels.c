/* The init and compute functions of the elementwise rows. The checks and their words are those of
 * the CPU's kernels (kernels/support/elementwise_checks.h).
 *
 * Where a CPU's kernel reports an integer division by zero or a negative integer power, a GPU's
 * gives a value, as TensorFlow does: the host would have to wait to see the mistake. */
#include "kernels/cuda/ops/elementwise.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cuda/ops/elementwise_launch.h"
#include "kernels/support/dims.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/half_blocks.h"

enum { NAME_BYTES = 64 }; /* of a kernel */

/* ---- init ---- */

static struct status *find_function(struct kernel_init *init, const char *suffix,
                                    struct elementwise_state *state) {
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "%s_%s", (const char *)init->arg, suffix ? suffix : "?");
    return gpu_function_find(gpu_of_init(init), name, &state->function);
}

static struct status *read_attrs(const struct node *node, struct elementwise_state *state) {
    enum dtype dtype = (enum dtype)node->in_types[0];
    float alpha = 0;
    if (node_attr(node, "alpha"))
        TRY(node_get_f(node, "alpha", &alpha));
    if (node_attr(node, "tolerance"))
        TRY(node_get_f(node, "tolerance", &alpha));
    if (dtype_is_narrow_float(dtype))
        alpha = half_value_load(dtype, half_value_store(dtype, alpha));
    state->alpha = alpha;
    if (node_attr(node, "incompatible_shape_error")) {
        bool is_error = true;
        TRY(node_get_b(node, "incompatible_shape_error", &is_error));
        state->accepts_incompatible = !is_error;
        state->incompatible_result = strcmp(node->op_name, "NotEqual") == 0;
    }
    return bias_read_format(node, &state->is_nchw);
}

/* A launch looks up no sizes. */
static struct elementwise_state *new_state(struct kernel_init *init) {
    struct elementwise_state *state = xcalloc(1, sizeof(*state));
    const struct node *node = init->node;
    for (int k = 0; k < MIN(node->n_data, (int)ELEMENTWISE_MAX_OPERANDS); k++)
        state->in_bytes[k] = (uint8_t)dtype_size((enum dtype)node->in_types[k]);
    state->out_bytes = (uint8_t)dtype_size((enum dtype)node->out_types[0]);
    init->state = state;
    return state;
}

struct status *elementwise_init(struct kernel_init *init) {
    struct elementwise_state *state = new_state(init);
    TRY(read_attrs(init->node, state));
    enum dtype dtype = (enum dtype)init->node->in_types[0];
    return find_function(init, gpu_dtype_suffix(dtype == DT_QINT8 ? DT_INT8 : dtype), state);
}

struct status *elementwise_init_by_size(struct kernel_init *init) {
    struct elementwise_state *state = new_state(init);
    size_t size = dtype_size(dtype_base((enum dtype)init->node->out_types[0]));
    return find_function(init, gpu_size_suffix(size), state);
}

/* ---- one operand ---- */

/* The plan of an output that has the shape of the input. */
static void plan_equal(struct broadcast *plan, int64_t n) {
    plan->n_elements = n;
    plan->rank = 1;
    plan->inner_stretched = plan->ever_stretched = 0;
}

enum kernel_result elementwise_unary(struct kernel_ctx *ctx) {
    struct elementwise_launch launch;
    struct broadcast plan;
    const struct tensor *in = kernel_input(ctx, 0);
    plan_equal(&plan, in->n_elements);
    elementwise_begin(ctx, &launch);
    KERNEL_TRY(ctx, elementwise_take(ctx, &launch, 0));
    struct status *st =
        kernel_forward_or_alloc(ctx, 0, 0, kernel_out_dtype(ctx, 0), tensor_shape(in));
    if (st) {
        elementwise_drop(&launch);
        return kernel_fail(ctx, st);
    }
    return elementwise_run(ctx, &launch, &plan);
}

enum kernel_result elementwise_relu_of_qint8(struct kernel_ctx *ctx) {
    int64_t n = kernel_input(ctx, 0)->n_elements;
    if (unlikely(n % 4 != 0))
        return kernel_fail(ctx, status_invalid("Relu of qint8 takes a multiple of 4 elements on a "
                                               "GPU, but its features have %lld",
                                               (long long)n));
    return elementwise_unary(ctx);
}

/* ---- several operands ---- */

/* The input whose memory the output may take: `first`, unless only a later one has as many elements
 * as the output and belongs to nobody else. */
static int input_to_take(const struct kernel_ctx *ctx, int first, int n_operands, int64_t n) {
    for (int k = first; k < n_operands; k++) {
        const struct tensor *t = kernel_input(ctx, k);
        if (t->storage == TENSOR_BUFFER && t->n_elements == n && buffer_is_sole(t->buffer))
            return k;
    }
    return first;
}

/* Makes output 0 of `shape` and runs. Inputs before `first` have elements of another type. */
static enum kernel_result run_shaped(struct kernel_ctx *ctx, const struct broadcast *plan,
                                     struct shape shape, int first, int n_operands) {
    struct elementwise_launch launch;
    elementwise_begin(ctx, &launch);
    for (int k = 0; k < n_operands; k++)
        KERNEL_TRY(ctx, elementwise_take(ctx, &launch, k));
    int taken = input_to_take(ctx, first, n_operands, plan->n_elements);
    struct status *st = kernel_forward_or_alloc(ctx, taken, 0, kernel_out_dtype(ctx, 0), shape);
    if (st) {
        elementwise_drop(&launch);
        return kernel_fail(ctx, st);
    }
    return elementwise_run(ctx, &launch, plan);
}

/* Plans the shapes that most nodes have: two equal ones, or a scalar and a larger one. Returns the
 * input that has the output's shape; -1 if the shapes are others. */
static int plan_simple(const struct kernel_ctx *ctx, struct broadcast *plan) {
    const struct tensor *x = kernel_input(ctx, 0), *y = kernel_input(ctx, 1);
    struct shape x_shape = tensor_shape(x), y_shape = tensor_shape(y);
    if (x_shape.rank == y_shape.rank) {
        for (int i = 0; i < x_shape.rank; i++)
            if (x_shape.dims[i] != y_shape.dims[i])
                return -1;
        plan_equal(plan, x->n_elements);
        return 0;
    }
    if ((x_shape.rank > 0 && y_shape.rank > 0) || MAX(x->n_elements, y->n_elements) <= 1)
        return -1;
    int scalar = x_shape.rank > 0;
    plan_equal(plan, kernel_input(ctx, !scalar)->n_elements);
    plan->inner_stretched = plan->ever_stretched = 1u << scalar;
    return !scalar;
}

/* The same for all that can be broadcast. */
static bool plan_pair(const struct kernel_ctx *ctx, struct broadcast *plan, struct shape *ret) {
    int like = plan_simple(ctx, plan);
    if (likely(like >= 0)) {
        *ret = tensor_shape(kernel_input(ctx, like));
        return true;
    }
    struct shape shapes[2] = {tensor_shape(kernel_input(ctx, 0)),
                              tensor_shape(kernel_input(ctx, 1))};
    if (unlikely(!broadcast_init(plan, shapes, 2)))
        return false;
    *ret = broadcast_shape(plan);
    return true;
}

static struct status *cannot_broadcast(const struct kernel_ctx *ctx) {
    return elementwise_incompatible(tensor_shape(kernel_input(ctx, 0)),
                                    tensor_shape(kernel_input(ctx, 1)));
}

enum kernel_result elementwise_binary(struct kernel_ctx *ctx) {
    struct broadcast plan;
    struct shape shape;
    if (unlikely(!plan_pair(ctx, &plan, &shape)))
        return kernel_fail(ctx, cannot_broadcast(ctx));
    return run_shaped(ctx, &plan, shape, 0, 2);
}

/* Shapes that cannot be broadcast are unequal, if the op's attr says so. */
enum kernel_result elementwise_equal(struct kernel_ctx *ctx) {
    const struct elementwise_state *state = ctx->instance->state;
    struct broadcast plan;
    struct shape shape;
    if (likely(plan_pair(ctx, &plan, &shape)))
        return run_shaped(ctx, &plan, shape, 0, 2);
    if (!state->accepts_incompatible)
        return kernel_fail(ctx, cannot_broadcast(ctx));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_BOOL, SHAPE_SCALAR));
    struct buffer *answer;
    KERNEL_TRY(ctx, gpu_stage(ctx, &state->incompatible_result, 1, &answer));
    struct status *st = gpu_copy_within(ctx, ctx->outputs[0].data, answer->data, 1);
    buffer_unref(answer);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* Inputs that are taken element by element, whatever their shapes: the output has the first's. */
static enum kernel_result run_equal(struct kernel_ctx *ctx, int n_operands) {
    struct broadcast plan;
    plan_equal(&plan, kernel_input(ctx, 0)->n_elements);
    return run_shaped(ctx, &plan, tensor_shape(kernel_input(ctx, 0)), 0, n_operands);
}

enum kernel_result elementwise_function_gradient(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, elementwise_check_equal_sizes(ctx));
    return run_equal(ctx, 2);
}

enum kernel_result elementwise_activation_gradient(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, elementwise_check_same_shapes(ctx));
    return run_equal(ctx, 2);
}

enum kernel_result elementwise_approximate_equal(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, elementwise_check_approximate(ctx));
    return run_equal(ctx, 2);
}

/* Value and bias are broadcast as [outer, channels, inner] and [channels, 1]. */
enum kernel_result elementwise_bias_add(struct kernel_ctx *ctx) {
    const struct elementwise_state *state = ctx->instance->state;
    const struct tensor *value = kernel_input(ctx, 0);
    struct bias_extent extent;
    KERNEL_TRY(ctx, bias_extent_of(ctx, state->is_nchw, &extent));
    KERNEL_TRY(ctx, bias_check(ctx, state->is_nchw, &extent));
    int64_t dims[3] = {extent.outer, extent.channels, extent.inner};
    int64_t bias_dims[2] = {extent.channels, 1};
    struct shape shapes[2] = {{3, dims}, {2, bias_dims}};
    struct broadcast plan;
    if (value->n_elements == 0)
        plan_equal(&plan, 0);
    else
        CHECK(broadcast_init(&plan, shapes, 2));
    return run_shaped(ctx, &plan, tensor_shape(value), 0, 2);
}

enum kernel_result elementwise_select(struct kernel_ctx *ctx) {
    struct broadcast plan;
    KERNEL_TRY(ctx, elementwise_plan_select(ctx, &plan));
    return run_shaped(ctx, &plan, broadcast_shape(&plan), 1, 3);
}

enum kernel_result elementwise_select_v2(struct kernel_ctx *ctx) {
    struct broadcast plan;
    KERNEL_TRY(ctx, elementwise_plan_select_v2(ctx, &plan));
    return run_shaped(ctx, &plan, broadcast_shape(&plan), 1, 3);
}

/* Operands of one shape, or scalars. */
static enum kernel_result run_with_scalars(struct kernel_ctx *ctx, struct shape shape) {
    struct shape shapes[3];
    for (int k = 0; k < 3; k++)
        shapes[k] = tensor_shape(kernel_input(ctx, k));
    struct broadcast plan;
    CHECK(broadcast_init(&plan, shapes, 3));
    return run_shaped(ctx, &plan, shape, 0, 3);
}

enum kernel_result elementwise_clip(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, elementwise_check_clip(ctx));
    return run_with_scalars(ctx, tensor_shape(kernel_input(ctx, 0)));
}

enum kernel_result elementwise_betainc(struct kernel_ctx *ctx) {
    struct shape shape;
    KERNEL_TRY(ctx, elementwise_check_betainc(ctx, &shape));
    return run_with_scalars(ctx, shape);
}

/* ---- filled tensors ---- */

/* Fills output 0 with the only operand of a launch. */
static enum kernel_result run_fill(struct kernel_ctx *ctx, struct elementwise_launch *launch) {
    struct broadcast plan;
    plan_equal(&plan, tensor_n_elements(&ctx->outputs[0]));
    plan.inner_stretched = 1;
    return elementwise_run(ctx, launch, &plan);
}

enum kernel_result elementwise_fill(struct kernel_ctx *ctx) {
    const struct tensor *value = kernel_input(ctx, 1);
    struct dims dims;
    KERNEL_TRY(ctx, dims_of_fill(kernel_input(ctx, 0), value, &dims));
    struct elementwise_launch launch;
    elementwise_begin(ctx, &launch);
    KERNEL_TRY(ctx, elementwise_take(ctx, &launch, 1));
    struct status *st = kernel_alloc(ctx, 0, (enum dtype)value->dtype, dims_shape(&dims));
    if (st) {
        elementwise_drop(&launch);
        return kernel_fail(ctx, st);
    }
    return run_fill(ctx, &launch);
}

enum kernel_result elementwise_zeros_like(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)in->dtype, tensor_shape(in)));
    if (in->n_elements > 0)
        KERNEL_TRY(ctx, gpu_zero(ctx, ctx->outputs[0].data, tensor_size_bytes(&ctx->outputs[0])));
    return KERNEL_DONE;
}

enum kernel_result elementwise_ones_like(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    struct elementwise_launch launch;
    elementwise_begin(ctx, &launch);
    element_set_one((enum dtype)in->dtype, launch.args.values[0]);
    launch.args.is_inline = 1;
    launch.n_operands = 1;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)in->dtype, tensor_shape(in)));
    return run_fill(ctx, &launch);
}

/* ---- Cast ---- */

/* A suffix also for types that only Cast takes. */
static const char *cast_suffix(enum dtype dtype) {
    switch (dtype) {
    case DT_FLOAT8_E5M2:
        return "e5m2";
    case DT_FLOAT8_E4M3FN:
        return "e4m3";
    case DT_INT4:
        return "i4";
    case DT_UINT4:
        return "u4";
    default:
        return gpu_dtype_suffix(dtype);
    }
}

/* With Truncate, the fraction bits of a float that the target cannot hold are cut off instead of
 * rounded. */
struct status *elementwise_init_cast(struct kernel_init *init) {
    struct elementwise_state *state = new_state(init);
    enum dtype from = (enum dtype)init->node->in_types[0],
               to = (enum dtype)init->node->out_types[0];
    bool truncates = false;
    TRY(node_get_b(init->node, "Truncate", &truncates));
    state->is_pass = from == to;
    if (state->is_pass)
        return NULL;
    /* half, bfloat16 and 8-bit floats are widened to float first */
    int wide_bits = elementwise_fraction_bits(from) == 52 ? 52 : 23;
    if (truncates && elementwise_fraction_bits(from) < 64 &&
        elementwise_fraction_bits(to) < wide_bits)
        state->cut_bits = wide_bits - elementwise_fraction_bits(to);
    const char *from_suffix = cast_suffix(from), *to_suffix = cast_suffix(to);
    char name[NAME_BYTES];
    snprintf(name, sizeof(name), "cast_%s_%s", from_suffix ? from_suffix : dtype_name(from),
             to_suffix ? to_suffix : dtype_name(to));
    return gpu_function_find(gpu_of_init(init), name, &state->function);
}

enum kernel_result elementwise_cast(struct kernel_ctx *ctx) {
    const struct elementwise_state *state = ctx->instance->state;
    if (!state->is_pass)
        return elementwise_unary(ctx);
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* ---- AddN ---- */

/* One launch adds up to ADD_N_MAX inputs. Later ones go on with the sum so far, so the output may
 * take the memory of an input of the first launch only. */
enum kernel_result elementwise_add_n(struct kernel_ctx *ctx) {
    const struct elementwise_state *state = ctx->instance->state;
    int n_inputs = ctx->instance->n_inputs;
    struct shape shape = tensor_shape(kernel_input(ctx, 0));
    KERNEL_TRY(ctx, elementwise_check_same_shapes(ctx));
    if (n_inputs == 1) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    enum dtype dtype = (enum dtype)kernel_input(ctx, 0)->dtype;
    int64_t n = kernel_input(ctx, 0)->n_elements;
    const void **in = xcalloc((size_t)n_inputs, sizeof(*in));
    for (int k = 0; k < n_inputs; k++)
        in[k] = n > 0 ? kernel_input(ctx, k)->data : NULL;
    int taken = input_to_take(ctx, 0, MIN(n_inputs, ADD_N_MAX), n);
    struct status *st = kernel_forward_or_alloc(ctx, taken, 0, dtype, shape);
    void *out = !st && n > 0 ? ctx->outputs[0].data : NULL;
    int done = 0;
    while (!st && n > 0 && done < n_inputs) {
        struct add_n_args args = {.out = out, .n = n};
        uintptr_t addresses = (uintptr_t)out;
        if (done > 0)
            args.in[args.n_inputs++] = out;
        while (args.n_inputs < ADD_N_MAX && done < n_inputs)
            args.in[args.n_inputs++] = in[done++];
        for (int k = 0; k < args.n_inputs; k++)
            addresses |= (uintptr_t)args.in[k];
        args.is_vector = addresses % ELEMENTWISE_VECTOR_BYTES == 0;
        int64_t per_vector = ELEMENTWISE_VECTOR_BYTES / (int64_t)dtype_size(dtype);
        int64_t pieces = args.is_vector ? MAX(n / per_vector, per_vector) : n;
        st = gpu_launch(ctx, state->function, gpu_grid_for(ctx, pieces), &args);
    }
    free(in);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}
