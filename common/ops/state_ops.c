/* Lists the state family: reference variables, assignments and scattered updates. Defines shape
 * functions for both kinds of variables. */
#include "common/ops/state_shapes.h"

struct shape shape_of_variable(const struct shape_inference *ctx, int input) {
    if (ctx->node->in_types[input] != DT_RESOURCE)
        return ctx->in[input];
    if (!ctx->in_handle_dtypes || ctx->in_handle_dtypes[input] == DT_INVALID)
        return SHAPE_UNKNOWN;
    return ctx->in_handle_shapes[input];
}

struct status *shape_check_handle_dtype(const struct shape_inference *ctx, int input,
                                        enum dtype dtype) {
    enum dtype known = ctx->node->in_types[input] == DT_RESOURCE && ctx->in_handle_dtypes
                           ? ctx->in_handle_dtypes[input]
                           : DT_INVALID;
    if (known == DT_INVALID || known == dtype)
        return NULL;
    return status_invalid("Trying to read variable with wrong dtype. Expected %s got %s",
                          dtype_name(known), dtype_name(dtype));
}

void shape_pass_reference(struct shape_inference *ctx, struct shape shape) {
    if (ctx->node->n_outputs > 0)
        ctx->out[0] = shape;
}

static enum dtype input_dtype(const struct shape_inference *ctx, int input) {
    return dtype_base((enum dtype)ctx->node->in_types[input]);
}

struct status *shape_assign_update(struct shape_inference *ctx) {
    struct shape merged;
    TRY(shape_check_handle_dtype(ctx, 0, input_dtype(ctx, 1)));
    TRY(shape_merge(ctx, shape_of_variable(ctx, 0), ctx->in[1], &merged));
    shape_pass_reference(ctx, merged);
    return NULL;
}

struct status *shape_scatter_update(struct shape_inference *ctx) {
    struct shape variable = shape_of_variable(ctx, 0), wanted, unused;
    TRY(shape_check_handle_dtype(ctx, 0, input_dtype(ctx, 2)));
    if (ctx->in[2].rank != 0 && variable.rank >= 1) {
        TRY(shape_concat(ctx, ctx->in[1], shape_sub(ctx, variable, 1, -1), &wanted));
        TRY(shape_merge(ctx, ctx->in[2], wanted, &unused));
    }
    shape_pass_reference(ctx, variable);
    return NULL;
}

/* indices [batch…, depth], updates [batch…] + variable.shape[depth:] */
struct status *shape_scatter_nd_update(struct shape_inference *ctx) {
    struct shape variable = shape_of_variable(ctx, 0), indices = ctx->in[1], updates = ctx->in[2],
                 unused;
    TRY(shape_check_handle_dtype(ctx, 0, input_dtype(ctx, 2)));
    shape_pass_reference(ctx, variable);
    if (variable.rank < 0 || indices.rank < 1 || updates.rank < 0)
        return NULL;
    int batch_rank = indices.rank > 1 ? indices.rank - 1 : 1;
    int64_t depth = indices.rank > 1 ? indices.dims[indices.rank - 1] : 1;
    if (updates.rank < batch_rank)
        return status_invalid("Dimensions [0,%d) of indices[shape=%s] must match dimensions [0,%d) "
                              "of updates[shape=%s]",
                              batch_rank, SHAPE_TEXT(indices), batch_rank, SHAPE_TEXT(updates));
    TRY(shape_merge(ctx, shape_sub(ctx, indices, 0, batch_rank),
                    shape_sub(ctx, updates, 0, batch_rank), &unused));
    if (depth < 0 || depth > variable.rank) /* too deep, which the kernel reports */
        return NULL;
    return shape_merge(ctx, shape_sub(ctx, variable, (int)depth, -1),
                       shape_sub(ctx, updates, batch_rank, -1), &unused);
}

struct status *shape_count_up_to(struct shape_inference *ctx) {
    struct shape variable = shape_of_variable(ctx, 0);
    TRY(shape_check_handle_dtype(ctx, 0, (enum dtype)ctx->node->out_types[0]));
    if (variable.rank > 0)
        return status_invalid("Shape must be rank 0 but is rank %d", variable.rank);
    ctx->out[0] = SHAPE_SCALAR;
    return NULL;
}

/* The first form of variables states an unknown shape as a scalar's. */
static struct status *shape_variable_v1(struct shape_inference *ctx) {
    TRY(shape_from_attr(ctx));
    if (ctx->out[0].rank == 0)
        ctx->out[0] = SHAPE_UNKNOWN;
    return NULL;
}

static struct status *shape_assign(struct shape_inference *ctx) {
    bool validates = true;
    TRY(node_get_b(ctx->node, "validate_shape", &validates));
    if (validates)
        return shape_merge(ctx, ctx->in[0], ctx->in[1], &ctx->out[0]);
    ctx->out[0] = ctx->in[1];
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"Variable", "a ref variable, in the first form", shape_variable_v1},
    {"VariableV2", "a ref variable: a tensor with a name that outlives steps", shape_from_attr},
    {"TemporaryVariable", "a ref variable that lives for one step", shape_from_attr},
    {"DestroyTemporaryVariable", "the last value of a temporary variable, which is destroyed",
     shape_same_as_input},
    {"IsVariableInitialized", "whether a ref variable has a value", shape_scalar},
    {"Assign", "replaces a ref variable's value", shape_assign},
    {"AssignAdd", "adds to a ref variable", shape_assign_update},
    {"AssignSub", "subtracts from a ref variable", shape_assign_update},
    {"CountUpTo", "a counter's value before it is raised by one; OUT_OF_RANGE at the limit",
     shape_count_up_to},
    {"ScatterUpdate", "replaces rows of a ref variable", shape_scatter_update},
    {"ScatterAdd", "adds to rows of a ref variable", shape_scatter_update},
    {"ScatterSub", "subtracts from rows of a ref variable", shape_scatter_update},
    {"ScatterMul", "multiplies rows of a ref variable", shape_scatter_update},
    {"ScatterDiv", "divides rows of a ref variable", shape_scatter_update},
    {"ScatterMin", "the smaller of rows of a ref variable and updates, element by element",
     shape_scatter_update},
    {"ScatterMax", "the larger of rows of a ref variable and updates, element by element",
     shape_scatter_update},
    {"ScatterNdUpdate", "replaces slices of a ref variable at coordinates",
     shape_scatter_nd_update},
    {"ScatterNdAdd", "adds to slices of a ref variable at coordinates", shape_scatter_nd_update},
    {"ScatterNdSub", "subtracts from slices of a ref variable at coordinates",
     shape_scatter_nd_update},
    {"ScatterNdMin", "the smaller of slices of a ref variable and updates",
     shape_scatter_nd_update},
    {"ScatterNdMax", "the larger of slices of a ref variable and updates", shape_scatter_nd_update},
    {"ScatterNdNonAliasingAdd", "a tensor with updates added to slices at coordinates",
     shape_same_as_input},
};
// clang-format on

const struct op_def_list state_ops = {rows, ARRAY_LEN(rows)};
