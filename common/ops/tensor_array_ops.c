/* Lists the TensorArray family. The inferred value of a handle is one element: its dtype and
 * (perhaps partial) shape. The handle's own shape is left open: it is a scalar, but TensorFlow's
 * shape functions still say [2], its shape in earlier versions. */
#include "common/ops/op_def.h"

static struct shape element_of(const struct shape_inference *ctx, enum dtype dtype) {
    if (!ctx->in_handle_dtypes || ctx->in_handle_dtypes[0] != dtype)
        return SHAPE_UNKNOWN;
    return ctx->in_handle_shapes[0];
}

static struct status *shape_array(struct shape_inference *ctx) {
    bool is_identical = false;
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    ctx->out[1] = SHAPE_SCALAR;
    if (!ctx->out_handle_dtypes)
        return NULL;
    TRY(node_get_type(ctx->node, "dtype", &ctx->out_handle_dtypes[0]));
    TRY(node_get_shape(ctx->node, "element_shape", &ctx->out_handle_shapes[0]));
    TRY(node_get_b(ctx->node, "identical_element_shapes", &is_identical));
    /* elements are checked when they are written */
    if (!is_identical && !shape_is_full(ctx->out_handle_shapes[0]))
        ctx->out_handle_shapes[0] = SHAPE_UNKNOWN;
    return NULL;
}

static struct status *shape_array_grad(struct shape_inference *ctx) {
    ctx->out[1] = SHAPE_SCALAR;
    if (!ctx->out_handle_dtypes || !ctx->in_handle_dtypes)
        return NULL;
    ctx->out_handle_dtypes[0] = ctx->in_handle_dtypes[0];
    ctx->out_handle_shapes[0] = ctx->in_handle_shapes[0];
    if (ctx->node->n_data < 3 || ctx->in_handle_dtypes[0] == DT_INVALID)
        return NULL;
    struct shape prepend;
    TRY(shape_from_input(ctx, 2, &prepend));
    return shape_concat(ctx, prepend, ctx->in_handle_shapes[0], &ctx->out_handle_shapes[0]);
}

static struct status *shape_array_write(struct shape_inference *ctx) {
    struct shape unused;
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(shape_require_rank(ctx, 3, 0, NULL));
    TRY(shape_merge(ctx, element_of(ctx, (enum dtype)ctx->node->in_types[2]), ctx->in[2], &unused));
    return shape_scalar(ctx);
}

static struct status *shape_array_read(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(shape_require_rank(ctx, 2, 0, NULL));
    ctx->out[0] = element_of(ctx, (enum dtype)ctx->node->out_types[0]);
    return NULL;
}

static struct status *shape_array_gather(struct shape_inference *ctx) {
    struct shape indices, element = SHAPE_UNKNOWN;
    TRY(shape_require_rank(ctx, 1, 1, &indices));
    /* The flow is left open. Inference here may know more of its shape than TensorFlow's does, and
     * must not refuse a graph for it, because its value has no meaning. */
    TRY(node_get_shape(ctx->node, "element_shape", &element));
    struct shape known = element_of(ctx, (enum dtype)ctx->node->out_types[0]);
    if (shape_is_compatible(element, known))
        TRY(shape_merge(ctx, element, known, &element));
    else /* a run without elements could still succeed */
        element = SHAPE_UNKNOWN;
    return shape_concat(ctx, indices, element, &ctx->out[0]);
}

static struct status *shape_array_scatter(struct shape_inference *ctx) {
    struct shape indices, unused, element = element_of(ctx, (enum dtype)ctx->node->in_types[2]);
    TRY(shape_require_rank(ctx, 1, 1, &indices));
    TRY(shape_require_rank(ctx, 3, 0, NULL));
    TRY(shape_require_rank_at_least(ctx, 2, 1));
    if (ctx->in[2].rank >= 1)
        TRY(shape_merge(ctx, element, shape_sub(ctx, ctx->in[2], 1, -1), &unused));
    return shape_scalar(ctx);
}

static struct status *shape_array_concat(struct shape_inference *ctx) {
    struct shape rest = SHAPE_UNKNOWN;
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(node_get_shape(ctx->node, "element_shape_except0", &rest));
    TRY(shape_concat(ctx, shape_unknown_of_rank(ctx, 1), rest, &ctx->out[0]));
    ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_array_split(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 2, 1, NULL));
    TRY(shape_require_rank(ctx, 3, 0, NULL));
    return shape_scalar(ctx);
}

/* ---- the first two versions: the handle is two strings, about which nothing is inferred ---- */

static struct status *shape_two_elements(struct shape_inference *ctx) {
    static const int64_t two = 2;
    ctx->out[0] = shape_make(ctx, 1, &two);
    return NULL;
}

static struct status *shape_flow(struct shape_inference *ctx) { return shape_scalar(ctx); }

static struct status *shape_strings_concat(struct shape_inference *ctx) {
    ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

// clang-format off
#define OLD_VERSIONS(name, summary, shape) {name, summary, shape}, {name "V2", summary, shape}
static const struct op_def rows[] = {
    OLD_VERSIONS("TensorArray", "an array of tensors that lives for one step", shape_two_elements),
    OLD_VERSIONS("TensorArrayGrad", "the array of gradients of an array", shape_two_elements),
    OLD_VERSIONS("TensorArrayWrite", "writes one element", shape_flow),
    OLD_VERSIONS("TensorArrayRead", "reads one element", shape_unknown),
    OLD_VERSIONS("TensorArrayGather", "elements stacked into one tensor", shape_unknown),
    OLD_VERSIONS("TensorArrayScatter", "rows of a tensor into elements", shape_flow),
    OLD_VERSIONS("TensorArrayConcat", "all elements one after the other", shape_strings_concat),
    OLD_VERSIONS("TensorArraySplit", "runs of rows of a tensor into elements", shape_flow),
    OLD_VERSIONS("TensorArraySize", "the number of elements", shape_scalar),
    OLD_VERSIONS("TensorArrayClose", "releases all elements", shape_none),
    {"TensorArrayPack", "all elements stacked into one tensor", shape_unknown},
    {"TensorArrayUnpack", "rows of a tensor into all elements", shape_flow},
    {"TensorArrayV3", "an array of tensors that lives for one step", shape_array},
    {"TensorArrayGradV3", "the array of gradients of an array", shape_array_grad},
    {"TensorArrayGradWithShape", "the array of gradients of an array, of larger elements",
     shape_array_grad},
    {"TensorArrayWriteV3", "writes one element", shape_array_write},
    {"TensorArrayReadV3", "reads one element", shape_array_read},
    {"TensorArrayGatherV3", "elements stacked into one tensor", shape_array_gather},
    {"TensorArrayScatterV3", "rows of a tensor into elements", shape_array_scatter},
    {"TensorArrayConcatV3", "all elements one after the other", shape_array_concat},
    {"TensorArraySplitV3", "runs of rows of a tensor into elements", shape_array_split},
    {"TensorArraySizeV3", "the number of elements", shape_scalar},
    {"TensorArrayCloseV3", "releases all elements", shape_none},
};
// clang-format on

const struct op_def_list tensor_array_ops = {rows, ARRAY_LEN(rows)};
