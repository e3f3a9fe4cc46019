/* Runs ScatterUpdate, ScatterAdd and similar ops: assigns or updates rows of a variable that
 * indices choose.
 *
 *   params   T [n, inner…]       the variable
 *   indices  int32 or int64, any shape
 *   updates  T indices.shape + [inner…], or a scalar for all
 *
 * All indices are checked before anything is written. A row that is named twice is updated
 * twice. */
#include <stdlib.h>

#include "kernels/cpu/state/state_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/variable.h"

extern const struct kernel_list state_scatter_kernels;

struct scatter_row {
    enum update_op op;
    bool is_ref;
};

/* updates.shape == indices.shape + params.shape[1:] */
static bool updates_fit(struct shape params, struct shape indices, struct shape updates) {
    if (updates.rank != indices.rank + params.rank - 1)
        return false;
    for (int i = 0; i < updates.rank; i++) {
        if (updates.dims[i] !=
            (i < indices.rank ? indices.dims[i] : params.dims[i - indices.rank + 1]))
            return false;
    }
    return true;
}

static struct status *check_shapes(const struct tensor *params, const struct tensor *indices,
                                   const struct tensor *updates, bool is_ref) {
    if (params->rank < 1 && is_ref)
        return status_invalid("params must be at least 1-D, got shape %s",
                              TENSOR_SHAPE_TEXT(params));
    if (params->rank >= 1 &&
        (updates->rank == 0 ||
         updates_fit(tensor_shape(params), tensor_shape(indices), tensor_shape(updates))))
        return NULL;
    return status_invalid("Must have updates.shape = indices.shape + params.shape[1:] or "
                          "updates.shape = [], got updates.shape %s, "
                          "indices.shape %s, params.shape %s",
                          TENSOR_SHAPE_TEXT(updates), TENSOR_SHAPE_TEXT(indices),
                          TENSOR_SHAPE_TEXT(params));
}

static struct status *scatter_on_device(struct kernel_ctx *ctx, struct tensor *params,
                                        enum update_op op) {
    const struct tensor *indices = &ctx->inputs[1], *updates = &ctx->inputs[2];
    struct device_scatter job = {
        .op = op, .dtype = (enum dtype)updates->dtype, .params = tensor_data(params)};
    TRY(device_slices_init(&job.slices, indices, 1, tensor_shape(params), indices->n_elements));
    if (updates->rank == 0) {
        job.scalar = device_scalar_of(updates);
    } else {
        TRY(device_input(ctx, 2));
        job.updates = tensor_cdata(updates);
    }
    return ctx->instance->engine->scatter(ctx, &job);
}

/* A variable_change_fn. */
static struct status *scatter_into(struct kernel_ctx *ctx, struct variable *variable,
                                   const void *arg) {
    const struct scatter_row *row = arg;
    const struct tensor *indices = &ctx->inputs[1], *updates = &ctx->inputs[2];
    enum dtype dtype = (enum dtype)updates->dtype;
    TRY(variable_check(variable, row->is_ref, dtype));
    struct tensor *params = &variable->value;
    TRY(check_shapes(params, indices, updates, row->is_ref));
    if (!tensor_is_on_device(indices))
        TRY(indices_check(indices, tensor_dim(params, 0)));
    if (indices->n_elements == 0 || params->n_elements == 0)
        return NULL;
    TRY(variable_make_writable(ctx, variable));
    if (kernel_is_for_device(ctx) && !dtype_is_object(dtype)) {
        TRY(device_input(ctx, 1));
        return scatter_on_device(ctx, params, row->op);
    }
    struct scatter_job job = {
        .fn = update_find(row->op, dtype),
        .dtype = dtype,
        .params = tensor_data(params),
        .updates = tensor_cdata(updates),
        .update_step = updates->rank == 0 ? 0 : 1,
        .indices = tensor_cdata(indices),
        .indices_are_wide = indices->dtype == DT_INT64,
        .n_slices = indices->n_elements,
        .slice_len = params->n_elements / tensor_dim(params, 0),
    };
    /* One index of a row with one element makes a scalar both: an update of the whole shape, and a
     * scalar for all. The result is the same. */
    return scatter_run(ctx->pool, &job);
}

static enum kernel_result scatter(struct kernel_ctx *ctx) {
    const struct scatter_row *row = ctx->instance->def->arg;
    return variable_change(ctx, scatter_into, row->is_ref);
}

#define TYPES_SCATTER_UPDATE (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
#define TYPES_ORDER_REF (DTYPES_REAL_FLOAT | DTYPES_INDEX)
// clang-format off
#define SCATTER(op_name, attr, types, update_op, is_ref)                                   \
    {.op = (op_name), {{(attr), (types)}, {"Tindices", DTYPES_INDEX}}, .compute = scatter, \
        .arg = &(const struct scatter_row){(update_op), (is_ref)}, .flags = KERNEL_STATEFUL}
#define BOTH(name, types, update_op)                                                               \
    SCATTER("Scatter" name, "T", types, update_op, true), SCATTER("ResourceScatter" name, "dtype", \
        types, update_op, false)

static const struct kernel_def rows[] = {
    BOTH("Update", TYPES_SCATTER_UPDATE, UPDATE_ASSIGN),
    BOTH("Add", DTYPES_NUMBER, UPDATE_ADD),
    BOTH("Sub", DTYPES_NUMBER, UPDATE_SUB),
    BOTH("Mul", DTYPES_NUMBER, UPDATE_MUL),
    BOTH("Div", DTYPES_NUMBER, UPDATE_DIV),
    SCATTER("ScatterMin", "T", TYPES_ORDER_REF, UPDATE_MIN, true),
    SCATTER("ResourceScatterMin", "dtype", DTYPES_REAL, UPDATE_MIN, false),
    SCATTER("ScatterMax", "T", TYPES_ORDER_REF, UPDATE_MAX, true),
    SCATTER("ResourceScatterMax", "dtype", DTYPES_REAL, UPDATE_MAX, false),
};
// clang-format on

const struct kernel_list state_scatter_kernels = {rows, ARRAY_LEN(rows)};
