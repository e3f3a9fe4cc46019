/* Runs Conv2D, Conv3D, Conv and their gradients: turns attrs and shapes into a geometry, which the
 * engine (conv.h) computes.
 *
 *   Conv2D                  input [n,h,w,i], filter [h,w,i/groups,o] → output [n,h,w,o]
 *   Conv2DBackpropInput     input_sizes, filter, out_backprop → the input's gradient
 *   Conv2DBackpropFilter    input, filter_sizes, out_backprop → the filter's gradient
 *   Conv3D…                 the same with depth before height
 *   Conv                    2-D or 3-D, with any number of batch dimensions
 *
 * As in TensorFlow's CPU kernels, channels are the last dimension, and only the forward direction
 * of 2-D convolution takes groups and dilations. On a device (device_engine.h) every direction
 * takes both, and channels may be first.
 * Errors   INVALID_ARGUMENT   ranks, channels and sizes that do not fit together
 *          UNIMPLEMENTED      channels first (INVALID_ARGUMENT from the gradients and in three
 *                             dimensions)
 * Cost     2 · elements of out · elements of one output channel's filter, flops */
#include <stdlib.h>

#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"

struct conv_state {
    struct conv_op op;
    struct window_attrs attrs;
    enum dtype dtype;
    bool is_general; /* the op is Conv */
    bool is_for_device;
    int64_t batch_dims; /* Conv's attr; 1 for the others */
};

/* ---- attrs ---- */

static struct status *check_rates(const struct conv_state *state, const char *op_name) {
    for (int i = 0; i < state->attrs.n_spatial; i++) {
        if (state->attrs.rates.spatial[i] == 1)
            continue;
        if (state->attrs.n_spatial == 3 && state->op.direction == CONV_FORWARD)
            return status_invalid(
                "CPU implementation of Conv3D currently only supports dilated rates of 1.");
        if (state->op.direction != CONV_FORWARD)
            return status_invalid(
                "Current CPU implementations do not yet support dilation rates larger than 1. (%s)",
                op_name);
    }
    return NULL;
}

/* Checks what the attrs say of batch and channels. Conv2D and its input's gradient answer
 * UNIMPLEMENTED, all others INVALID_ARGUMENT. */
static struct status *check_other_dims(const struct conv_state *state) {
    bool is_open = !state->is_general && state->op.direction != CONV_BACKPROP_FILTER &&
                   state->attrs.n_spatial == 2;
    enum status_code code = is_open ? STATUS_UNIMPLEMENTED : STATUS_INVALID_ARGUMENT;
    if (state->attrs.strides.batch != 1 || state->attrs.strides.channel != 1)
        return status_new(code, "Current implementation does not yet support strides in the batch "
                                "and depth dimensions.");
    if (state->attrs.rates.batch != 1 || state->attrs.rates.channel != 1)
        return status_new(code, "Current implementation does not yet support dilations in the "
                                "batch and depth dimensions.");
    return NULL;
}

static struct status *read_conv_attrs(const struct node *node, struct conv_state *state) {
    int64_t groups;
    const struct attr_value *strides;
    int n_strides;
    TRY(node_get_i(node, "groups", &groups));
    if (groups != 1)
        return status_unimplemented("Grouped/Depthwise Convolutions are not supported yet.");
    TRY(node_get_i(node, "batch_dims", &state->batch_dims));
    TRY(node_get_list(node, "strides", &strides, &n_strides));
    state->op.n_spatial = n_strides - 2;
    if (n_strides != 4 && n_strides != 5)
        return status_invalid("The input must have 2 or 3 spatial dimensions but got %d",
                              n_strides - 2);
    return NULL;
}

struct status *conv_init(struct kernel_init *init) {
    struct conv_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->op = *(const struct conv_op *)init->arg;
    state->dtype = (enum dtype)init->node->out_types[0];
    state->batch_dims = 1;
    state->is_general = state->op.n_spatial == 0;
    state->is_for_device = init->allocator->device_memory != NULL;
    if (state->is_general)
        TRY(read_conv_attrs(init->node, state));
    TRY(window_attrs_read(init->node, state->op.n_spatial, &state->attrs));
    if (state->is_for_device && state->attrs.is_vect_c)
        return status_invalid("%s does not support NCHW_VECT_C", init->node->op_name);
    if (state->attrs.is_channels_first && state->op.direction != CONV_FORWARD &&
        !state->is_for_device)
        return status_invalid(state->op.n_spatial == 2 ? "%s only supports NHWC."
                                                       : "%s only supports NDHWC on the CPU.",
                              init->node->op_name);
    TRY(check_other_dims(state));
    return state->is_for_device ? NULL : check_rates(state, init->node->op_name);
}

/* ---- sizes ---- */

struct status *conv_read_sizes(const struct tensor *t, const char *what, int n, int64_t *ret) {
    if (t->rank != 1)
        return status_invalid("%s must be 1-dim, not %d-dim", what, t->rank);
    if (t->n_elements != n)
        return status_invalid("%s must contain %d values, but got %lld", what, n,
                              (long long)t->n_elements);
    for (int i = 0; i < n; i++) {
        ret[i] = tensor_index_at(t, i);
        if (ret[i] < 0)
            return status_invalid("Dimension %lld of %s must be >= 0", (long long)ret[i], what);
    }
    return NULL;
}

struct status *conv_check_image_strides(const struct window_attrs *attrs) {
    if (attrs->strides.spatial[0] != attrs->strides.spatial[1])
        return status_invalid("Current implementation only supports equal length strides in the "
                              "row and column dimensions.");
    if (attrs->strides.batch != 1 || attrs->strides.channel != 1)
        return status_invalid("Current implementation does not yet support strides in the batch "
                              "and depth dimensions.");
    return NULL;
}

struct status *conv_fit_dim(const struct window_attrs *attrs, int i, int64_t input, int64_t window,
                            struct conv_shape *shape, int64_t *ret_out) {
    struct window_fit fit;
    int at = i + 3 - attrs->n_spatial;
    TRY(window_fit(attrs, i, input, window, &fit));
    shape->in[at] = input;
    shape->window[at] = window;
    shape->out[at] = *ret_out = fit.out;
    shape->stride[at] = attrs->strides.spatial[i];
    shape->rate[at] = attrs->rates.spatial[i];
    shape->pad_before[at] = fit.pad_before;
    return NULL;
}

/* The dimensions of the three operands, with the batch dimensions folded into one. */
struct operand_dims {
    int64_t in[WINDOW_MAX_RANK], filter[WINDOW_MAX_RANK], out[WINDOW_MAX_RANK];
};

static struct status *dims_of(const struct conv_state *state, const struct tensor *t,
                              const char *what, int64_t *ret) {
    int rank = state->attrs.n_spatial + 2;
    if (t->rank == rank) {
        memcpy(ret, tensor_dims(t), (size_t)rank * sizeof(*ret));
        return NULL;
    }
    return status_invalid("%s must be %d-dimensional: %s", what, rank, TENSOR_SHAPE_TEXT(t));
}

/* Conv's input: folds the leading dimensions into one. */
static struct status *fold_batch_dims(const struct conv_state *state, const struct tensor *t,
                                      int64_t *ret) {
    int n_spatial = state->attrs.n_spatial;
    const int64_t *dims = tensor_dims(t);
    if (state->batch_dims == 1 && t->rank == n_spatial + 2)
        return dims_of(state, t, "input", ret);
    if (state->batch_dims < 0 || t->rank != n_spatial + 1 + state->batch_dims)
        return status_invalid("The input must have 2 or 3 spatial dimensions but got %lld",
                              (long long)t->rank - 1 - (long long)state->batch_dims);
    ret[0] = 1;
    for (int i = 0; i < (int)state->batch_dims; i++) {
        if (mul_overflows_i64(ret[0], dims[i], &ret[0]))
            return status_invalid("Shape would have more than 2**63 - 1 elements");
    }
    memcpy(ret + 1, dims + state->batch_dims, (size_t)(n_spatial + 1) * sizeof(*ret));
    return NULL;
}

static struct status *sizes_of(const struct conv_state *state, const struct tensor *t,
                               const char *what, const int64_t *filter, const int64_t *out,
                               int64_t *ret) {
    int rank = state->attrs.n_spatial + 2;
    if (state->op.takes_tensors)
        return dims_of(state, t, what, ret);
    /* only height and width are given */
    if (filter && rank == 4 && t->rank == 1 && t->n_elements == 2) {
        TRY(conv_read_sizes(t, what, 2, ret + window_spatial_dim(&state->attrs, 0)));
        ret[0] = out[0];
        ret[window_channel_dim(&state->attrs)] = filter[2];
        return NULL;
    }
    return conv_read_sizes(t, what, rank, ret);
}

static struct status *read_operands(const struct conv_state *state, const struct kernel_ctx *ctx,
                                    struct operand_dims *dims) {
    const struct tensor *t = ctx->inputs;
    switch (state->op.direction) {
    case CONV_FORWARD:
        TRY(fold_batch_dims(state, &t[0], dims->in));
        return dims_of(state, &t[1], "filter", dims->filter);
    case CONV_BACKPROP_INPUT:
        TRY(dims_of(state, &t[1], "filter", dims->filter));
        TRY(dims_of(state, &t[2], "out_backprop", dims->out));
        return sizes_of(state, &t[0], "input_sizes", dims->filter, dims->out, dims->in);
    default:
        TRY(dims_of(state, &t[0], "input", dims->in));
        TRY(dims_of(state, &t[2], "out_backprop", dims->out));
        return sizes_of(state, &t[1], "filter_sizes", NULL, NULL, dims->filter);
    }
}

/* ---- geometry ---- */

static struct status *check_channels(const struct conv_state *state, int64_t in, int64_t filter_in,
                                     int64_t filter_out) {
    if (filter_in <= 0)
        return status_invalid("filter depth must be stricly greater than 0");
    if (in % filter_in != 0)
        return status_invalid("input depth must be evenly divisible by filter depth: %lld vs %lld",
                              (long long)in, (long long)filter_in);
    if (in == filter_in)
        return NULL;
    if (state->attrs.n_spatial == 3 && !state->is_for_device)
        return status_invalid(
            "Number of channels in filter (%lld) must match last dimension of input (%lld)",
            (long long)filter_in, (long long)in);
    if (state->op.direction != CONV_FORWARD && !state->is_for_device)
        return status_invalid("Gradients for grouped convolutions are not supported on CPU. "
                              "Computed input depth %lld doesn't match filter "
                              "input depth %lld",
                              (long long)in, (long long)filter_in);
    if (in > 0 && filter_out % (in / filter_in) != 0)
        return status_invalid(
            "output depth must be evenly divisible by number of groups: %lld vs %lld",
            (long long)filter_out, (long long)(in / filter_in));
    return NULL;
}

/* Only Conv2D accepts a filter without output channels. Its result is empty. */
static struct status *check_filter(const struct conv_state *state,
                                   const struct operand_dims *dims) {
    int rank = state->attrs.n_spatial + 2, n = rank - (state->is_general || rank == 5 ? 0 : 1);
    if (state->op.direction != CONV_FORWARD)
        return NULL;
    for (int i = 0; i < n; i++) {
        if (dims->filter[i] == 0)
            return status_invalid(
                "filter must not have zero elements (i.e. all dimensions must be non-zero)");
    }
    int64_t in = dims->in[window_channel_dim(&state->attrs)];
    if (state->is_general && in == 0)
        return status_invalid("Input depth must be equal to filter depth: %lld vs %lld",
                              (long long)in, (long long)dims->filter[rank - 2]);
    return NULL;
}

static struct status *check_backprop(const struct conv_state *state,
                                     const struct operand_dims *dims,
                                     const struct conv_shape *shape) {
    int rank = state->attrs.n_spatial + 2;
    int64_t channels = dims->out[window_channel_dim(&state->attrs)];
    if (dims->out[0] != dims->in[0])
        return status_invalid("input and out_backprop must have the same batch size. Input batch: "
                              "%lld, outbackprop batch: %lld",
                              (long long)dims->in[0], (long long)dims->out[0]);
    if (channels != dims->filter[rank - 1])
        return status_invalid(
            "filter and out_backprop must have the same out_depth, but got: %lld and %lld",
            (long long)dims->filter[rank - 1], (long long)channels);
    for (int i = 0; i < state->attrs.n_spatial; i++) {
        int at = 3 - state->attrs.n_spatial + i;
        int64_t out = dims->out[window_spatial_dim(&state->attrs, i)];
        if (out != shape->out[at])
            return status_invalid("Size of out_backprop doesn't match computed: actual = %lld, "
                                  "computed = %lld spatial_dim: %d input: %lld "
                                  "filter: %lld output: %lld stride: %lld dilation: %lld",
                                  (long long)out, (long long)shape->out[at], i + 1,
                                  (long long)shape->in[at], (long long)shape->window[at],
                                  (long long)out, (long long)shape->stride[at],
                                  (long long)shape->rate[at]);
    }
    return NULL;
}

static struct status *geometry_of(const struct conv_state *state, struct operand_dims *dims,
                                  struct conv_shape *shape) {
    const struct window_attrs *attrs = &state->attrs;
    int n_spatial = attrs->n_spatial, channel = window_channel_dim(attrs);
    *shape = (struct conv_shape){.in = {1, 1, 1},
                                 .out = {1, 1, 1},
                                 .window = {1, 1, 1},
                                 .stride = {1, 1, 1},
                                 .rate = {1, 1, 1}};
    shape->batch = dims->in[0];
    shape->in_channels = dims->in[channel];
    shape->out_channels = dims->filter[n_spatial + 1];
    TRY(check_filter(state, dims));
    TRY(check_channels(state, shape->in_channels, dims->filter[n_spatial], shape->out_channels));
    shape->groups = MAX(shape->in_channels / dims->filter[n_spatial], 1);
    for (int i = 0; i < n_spatial; i++) {
        int64_t out;
        TRY(conv_fit_dim(attrs, i, dims->in[window_spatial_dim(attrs, i)], dims->filter[i], shape,
                         &out));
        if (state->op.direction == CONV_FORWARD)
            dims->out[window_spatial_dim(attrs, i)] = out;
    }
    if (state->op.direction != CONV_FORWARD)
        return check_backprop(state, dims, shape);
    dims->out[0] = shape->batch;
    dims->out[channel] = shape->out_channels;
    return NULL;
}

/* ---- running ---- */

static struct status *alloc_result(const struct conv_state *state, struct kernel_ctx *ctx,
                                   const struct operand_dims *dims) {
    int rank = state->attrs.n_spatial + 2;
    const int64_t *result = state->op.direction == CONV_FORWARD          ? dims->out
                            : state->op.direction == CONV_BACKPROP_INPUT ? dims->in
                                                                         : dims->filter;
    if (state->batch_dims == 1)
        return kernel_alloc_product(ctx, state->dtype, (struct shape){rank, result});
    int64_t unfolded[SHAPE_MAX_RANK];
    memcpy(unfolded, tensor_dims(&ctx->inputs[0]), (size_t)state->batch_dims * sizeof(*unfolded));
    memcpy(unfolded + state->batch_dims, result + 1, (size_t)(rank - 1) * sizeof(*unfolded));
    return kernel_alloc_product(ctx, state->dtype,
                                (struct shape){(int)state->batch_dims + rank - 1, unfolded});
}

static struct status *refuse_channels_first(const struct conv_state *state) {
    if (state->attrs.n_spatial == 3)
        return status_invalid(
            "CPU implementation of Conv3D currently only supports the NHWC tensor format.");
    return status_unimplemented("The Conv2D op currently only supports the NHWC tensor format on "
                                "the CPU. The op was given the format: NCHW");
}

static struct status *run_on_device(struct kernel_ctx *ctx, const struct conv_state *state,
                                    const struct conv_shape *shape,
                                    const struct conv_operands *operands, bool is_empty) {
    struct conv_job job = {.direction = state->op.direction,
                           .dtype = state->dtype,
                           .is_channels_first = state->attrs.is_channels_first,
                           .shape = shape,
                           .operands = operands};
    const struct device_engine *engine = ctx->instance->engine;
    if (is_empty)
        return engine->zero(ctx, operands->result, tensor_size_bytes(&ctx->outputs[0]));
    return engine->convolve(ctx, &job);
}

enum kernel_result conv_compute(struct kernel_ctx *ctx) {
    const struct conv_state *state = ctx->instance->state;
    struct operand_dims dims;
    struct conv_shape shape;
    KERNEL_TRY(ctx, read_operands(state, ctx, &dims));
    KERNEL_TRY(ctx, geometry_of(state, &dims, &shape));
    KERNEL_TRY(ctx, alloc_result(state, ctx, &dims));
    struct tensor *result = &ctx->outputs[0];
    if (result->n_elements == 0)
        return KERNEL_DONE;
    if (state->attrs.is_channels_first && !state->is_for_device)
        return kernel_fail(ctx, refuse_channels_first(state));
    struct conv_operands operands = {.result = tensor_data(result),
                                     .hands_over = state->op.direction == CONV_FORWARD};
    bool is_empty = false; /* an operand without elements: the result is zeros */
    for (int i = 0; i < ctx->instance->n_inputs; i++) {
        /* input_sizes is input 0, filter_sizes is input 1 */
        bool is_sizes = (int)state->op.direction == i + 1;
        if (state->op.direction != CONV_FORWARD && is_sizes)
            continue;
        *(i == 0   ? &operands.in
          : i == 1 ? &operands.filter
                   : &operands.out) = tensor_cdata(&ctx->inputs[i]);
        is_empty |= ctx->inputs[i].n_elements == 0;
    }
    if (state->is_for_device)
        KERNEL_TRY(ctx, run_on_device(ctx, state, &shape, &operands, is_empty));
    else if (is_empty)
        memset(operands.result, 0, tensor_size_bytes(result));
    else
        KERNEL_TRY(ctx, conv_run(ctx, state->op.direction, &shape, state->dtype, &operands));
    return KERNEL_DONE;
}
