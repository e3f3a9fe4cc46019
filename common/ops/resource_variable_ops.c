/* Lists the resource variable family: variables behind handles. */
#include "common/ops/state_shapes.h"

static struct status *shape_var_handle(struct shape_inference *ctx) {
    ctx->out[0] = SHAPE_SCALAR;
    if (!ctx->out_handle_dtypes)
        return NULL;
    TRY(node_get_type(ctx->node, "dtype", &ctx->out_handle_dtypes[0]));
    return node_get_shape(ctx->node, "shape", &ctx->out_handle_shapes[0]);
}

static struct status *shape_read_variable(struct shape_inference *ctx) {
    TRY(shape_check_handle_dtype(ctx, 0, (enum dtype)ctx->node->out_types[0]));
    ctx->out[0] = shape_of_variable(ctx, 0);
    return NULL;
}

static struct status *shape_variable_shape(struct shape_inference *ctx) {
    struct shape variable = shape_of_variable(ctx, 0);
    ctx->out[0] = shape_make(ctx, 1, (const int64_t[]){variable.rank < 0 ? -1 : variable.rank});
    return NULL;
}

/* params [batch…, n, inner…], indices [batch…, i…] → [batch…, i…, inner…] */
static struct status *shape_resource_gather(struct shape_inference *ctx) {
    struct shape params = shape_of_variable(ctx, 0), indices = ctx->in[1], batch, out;
    int64_t batch_dims = 0;
    TRY(shape_check_handle_dtype(ctx, 0, (enum dtype)ctx->node->out_types[0]));
    TRY(node_get_i(ctx->node, "batch_dims", &batch_dims));
    if (batch_dims < 0)
        return status_invalid("batch_dims is negative (%lld)", (long long)batch_dims);
    if (params.rank >= 0 && params.rank <= batch_dims)
        return status_invalid("Shape must be at least rank %llu but is rank %d",
                              (unsigned long long)batch_dims + 1, params.rank);
    if (indices.rank >= 0 && indices.rank < batch_dims)
        return status_invalid("Shape must be at least rank %lld but is rank %d",
                              (long long)batch_dims, indices.rank);
    if (params.rank < 0 || indices.rank < 0)
        return NULL;
    TRY(shape_merge(ctx, shape_sub(ctx, params, 0, (int)batch_dims),
                    shape_sub(ctx, indices, 0, (int)batch_dims), &batch));
    TRY(shape_concat(ctx, batch, shape_sub(ctx, indices, (int)batch_dims, -1), &out));
    return shape_concat(ctx, out, shape_sub(ctx, params, (int)batch_dims + 1, -1), &ctx->out[0]);
}

static struct status *shape_resource_gather_nd(struct shape_inference *ctx) {
    struct shape params = shape_of_variable(ctx, 0), indices = ctx->in[1];
    TRY(shape_check_handle_dtype(ctx, 0, (enum dtype)ctx->node->out_types[0]));
    TRY(shape_require_rank_at_least(ctx, 1, 1));
    if (params.rank < 0 || indices.rank < 0 || indices.dims[indices.rank - 1] < 0)
        return NULL;
    int64_t depth = indices.dims[indices.rank - 1];
    if (depth > params.rank)
        return status_invalid("indices.shape[-1] must be <= params.rank, but saw indices shape: %s "
                              "and params shape: %s",
                              SHAPE_TEXT(indices), SHAPE_TEXT(params));
    return shape_concat(ctx, shape_sub(ctx, indices, 0, indices.rank - 1),
                        shape_sub(ctx, params, (int)depth, -1), &ctx->out[0]);
}

// clang-format off
static const struct op_def rows[] = {
    {"VarHandleOp", "the handle of a variable", shape_var_handle},
    {"ReadVariableOp", "a variable's value", shape_read_variable},
    {"DisableCopyOnRead", "does nothing: reads here never copy", shape_none},
    {"AssignVariableOp", "replaces a variable's value", shape_assign_update},
    {"AssignAddVariableOp", "adds to a variable", shape_assign_update},
    {"AssignSubVariableOp", "subtracts from a variable", shape_assign_update},
    {"VarIsInitializedOp", "whether a variable has a value", shape_scalar},
    {"VariableShape", "the shape of a variable's value", shape_variable_shape},
    {"DestroyResourceOp", "releases the resource of a handle", shape_none},
    {"ResourceCountUpTo", "a counter's value before it is raised by one; OUT_OF_RANGE at the limit",
     shape_count_up_to},
    {"ResourceGather", "rows of a variable", shape_resource_gather},
    {"ResourceGatherNd", "slices of a variable at coordinates", shape_resource_gather_nd},
    {"ResourceScatterUpdate", "replaces rows of a variable", shape_scatter_update},
    {"ResourceScatterAdd", "adds to rows of a variable", shape_scatter_update},
    {"ResourceScatterSub", "subtracts from rows of a variable", shape_scatter_update},
    {"ResourceScatterMul", "multiplies rows of a variable", shape_scatter_update},
    {"ResourceScatterDiv", "divides rows of a variable", shape_scatter_update},
    {"ResourceScatterMin", "the smaller of rows of a variable and updates, element by element",
     shape_scatter_update},
    {"ResourceScatterMax", "the larger of rows of a variable and updates, element by element",
     shape_scatter_update},
    {"ResourceScatterNdUpdate", "replaces slices of a variable at coordinates",
     shape_scatter_nd_update},
    {"ResourceScatterNdAdd", "adds to slices of a variable at coordinates",
     shape_scatter_nd_update},
    {"ResourceScatterNdSub", "subtracts from slices of a variable at coordinates",
     shape_scatter_nd_update},
    {"ResourceScatterNdMin", "the smaller of slices of a variable and updates",
     shape_scatter_nd_update},
    {"ResourceScatterNdMax", "the larger of slices of a variable and updates",
     shape_scatter_nd_update},
};
// clang-format on

const struct op_def_list resource_variable_ops = {rows, ARRAY_LEN(rows)};
