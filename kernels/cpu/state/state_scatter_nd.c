/* Runs ScatterNdUpdate, ScatterNdAdd and similar ops, which update slices of a variable at
 * coordinates, and ScatterNdNonAliasingAdd, which does so on a plain tensor.
 *
 *   params   T [d0 … dn]
 *   indices  int32 or int64 [batch…, depth]: each row names params[i0, …, i(depth-1), …]; a vector
 *            means [n, 1]
 *   updates  T [batch…] + params.shape[depth:]
 *
 * A coordinate outside of params is an error before anything is written, or its slice is left out
 * (bad_indices_policy "IGNORE"). */
#include <stdlib.h>

#include "kernels/cpu/state/state_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/variable.h"

extern const struct kernel_list state_scatter_nd_kernels;

struct scatter_nd_row {
    enum update_op op;
    bool is_ref;
};

struct scatter_nd_state {
    bool ignores_bad_indices;
};

static struct status *scatter_nd_init(struct kernel_init *init) {
    struct scatter_nd_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span policy = {0};
    if (node_attr(init->node, "bad_indices_policy"))
        TRY(node_get_s(init->node, "bad_indices_policy", &policy));
    state->ignores_bad_indices = span_is(policy, "IGNORE");
    if (policy.len > 0 && !state->ignores_bad_indices && !span_is(policy, "DEFAULT") &&
        !span_is(policy, "ERROR"))
        return status_invalid("Unknown bad indices handling attribute: %.*s", (int)policy.len,
                              policy.data);
    return NULL;
}

/* The slices of params that indices name: n_slices slices of slice_len elements, `depth`
 * coordinates each. */
struct scatter_nd_cut {
    int batch_rank, depth;
    int64_t n_slices, slice_len;
};

static COLD struct status *batches_differ(const struct tensor *indices,
                                          const struct tensor *updates, int batch_rank) {
    return status_invalid(
        "Dimensions [0,%d) of indices[shape=%s] must match dimensions [0,%d) of updates[shape=%s]",
        batch_rank, TENSOR_SHAPE_TEXT(indices), batch_rank, TENSOR_SHAPE_TEXT(updates));
}

static COLD struct status *slices_differ(const struct tensor *params, const struct tensor *updates,
                                         int depth) {
    return status_invalid(
        "Dimensions [%d,%d) of input[shape=%s] must match dimensions [%d,%d) of updates[shape=%s]",
        depth, params->rank, TENSOR_SHAPE_TEXT(params), depth, updates->rank,
        TENSOR_SHAPE_TEXT(updates));
}

static struct status *cut_params(const struct tensor *params, const struct tensor *indices,
                                 const struct tensor *updates, struct scatter_nd_cut *cut) {
    if (params->rank < 1)
        return status_invalid("Output must be at least 1-D, got shape: %s",
                              TENSOR_SHAPE_TEXT(params));
    bool has_all = params->n_elements > 0 && indices->n_elements > 0 && updates->n_elements > 0;
    if (!has_all && (indices->n_elements > 0 || updates->n_elements > 0))
        return status_invalid("Indices and updates specified for empty output.  indices shape: %s",
                              TENSOR_SHAPE_TEXT(indices));
    cut->batch_rank = indices->rank > 1 ? indices->rank - 1 : 1;
    int64_t depth = indices->rank > 1 ? tensor_dim(indices, indices->rank - 1) : 1;
    if (indices->rank < 1 || updates->rank < cut->batch_rank)
        return batches_differ(indices, updates, cut->batch_rank);
    /* the product is at most the size of the indices, so it fits */
    cut->n_slices = has_all ? 1 : 0;
    for (int i = 0; i < cut->batch_rank; i++) {
        if (tensor_dim(indices, i) != tensor_dim(updates, i))
            return batches_differ(indices, updates, cut->batch_rank);
        cut->n_slices *= tensor_dim(indices, i);
    }
    if (depth > params->rank || updates->rank - cut->batch_rank != params->rank - depth)
        return slices_differ(params, updates, (int)MIN(depth, SHAPE_MAX_RANK + 1));
    cut->depth = (int)depth;
    cut->slice_len = 1;
    for (int i = cut->depth; i < params->rank; i++) {
        if (tensor_dim(params, i) != tensor_dim(updates, cut->batch_rank + i - cut->depth))
            return slices_differ(params, updates, cut->depth);
        cut->slice_len *= tensor_dim(params, i);
    }
    return NULL;
}

static COLD struct status *bad_index(const struct tensor *params, const struct tensor *indices,
                                     const struct scatter_nd_cut *cut, int64_t slice) {
    struct str text = STR_INIT;
    for (int i = 0; i < cut->depth; i++)
        str_addf(&text, "%s%lld", i ? ", " : "",
                 (long long)tensor_index_at(indices, slice * cut->depth + i));
    struct shape batch = {cut->batch_rank, tensor_dims(indices)};
    struct status *st = status_invalid("indices%s = [%s] does not index into shape %s",
                                       batch.rank ? SHAPE_INDEX_TEXT(batch, slice) : "[]",
                                       str_text(&text), TENSOR_SHAPE_TEXT(params));
    str_fini(&text);
    return st;
}

/* Computes the element offsets of all slices, -1 for those that are left out. */
static struct status *find_offsets(const struct tensor *params, const struct tensor *indices,
                                   const struct scatter_nd_cut *cut, bool ignores_bad_indices,
                                   int64_t *ret_offsets) {
    const int64_t *dims = tensor_dims(params);
    for (int64_t s = 0; s < cut->n_slices; s++) {
        int64_t offset = 0;
        bool is_inside = true;
        for (int i = 0; i < cut->depth; i++) {
            int64_t index = tensor_index_at(indices, s * cut->depth + i);
            is_inside = is_inside && index >= 0 && index < dims[i];
            if (is_inside)
                offset = offset * dims[i] + index; /* stays below the size of params */
        }
        if (unlikely(!is_inside && !ignores_bad_indices))
            return bad_index(params, indices, cut, s);
        ret_offsets[s] = is_inside ? offset * cut->slice_len : -1;
    }
    return NULL;
}

enum { OFFSETS_ON_STACK = 64 };

static struct status *scatter_on_device(struct kernel_ctx *ctx, struct tensor *params,
                                        const struct scatter_nd_cut *cut, enum update_op op) {
    const struct tensor *indices = &ctx->inputs[1], *updates = &ctx->inputs[2];
    struct device_scatter job = {.op = op,
                                 .dtype = (enum dtype)updates->dtype,
                                 .params = tensor_data(params),
                                 .updates = tensor_cdata(updates)};
    TRY(device_slices_init(&job.slices, indices, cut->depth, tensor_shape(params), cut->n_slices));
    return ctx->instance->engine->scatter(ctx, &job);
}

/* With a variable, params is its value, which is made writable after all checks. Without a
 * variable, params is a tensor that is written as it is. */
static struct status *scatter_nd_into(struct kernel_ctx *ctx, struct tensor *params,
                                      struct variable *variable, enum update_op op) {
    const struct scatter_nd_state *state = ctx->instance->state;
    const struct tensor *indices = &ctx->inputs[1], *updates = &ctx->inputs[2];
    struct scatter_nd_cut cut;
    TRY(cut_params(params, indices, updates, &cut));
    if (cut.n_slices == 0)
        return NULL;
    if (kernel_is_for_device(ctx)) {
        TRY(device_input(ctx, 1));
        TRY(device_input(ctx, 2));
        if (variable)
            TRY(variable_make_writable(ctx, variable));
        return scatter_on_device(ctx, params, &cut, op);
    }
    struct status *st = NULL;
    int64_t on_stack[OFFSETS_ON_STACK];
    int64_t *offsets = cut.n_slices <= OFFSETS_ON_STACK
                           ? on_stack
                           : malloc((size_t)cut.n_slices * sizeof(*offsets));
    if (!offsets)
        return status_exhausted("Out of memory for the offsets of %lld slices of %s",
                                (long long)cut.n_slices, ctx->instance->node->name);
    TRY_OUT(find_offsets(params, indices, &cut, state->ignores_bad_indices, offsets));
    if (variable)
        TRY_OUT(variable_make_writable(ctx, variable));
    struct scatter_job job = {
        .fn = update_find(op, (enum dtype)updates->dtype),
        .dtype = (enum dtype)updates->dtype,
        .params = tensor_data(params),
        .updates = tensor_cdata(updates),
        .update_step = 1,
        .offsets = offsets,
        .n_slices = cut.n_slices,
        .slice_len = cut.slice_len,
    };
    st = scatter_run(ctx->pool, &job);
out:
    if (offsets != on_stack)
        free(offsets);
    return st;
}

/* A variable_change_fn. */
static struct status *scatter_nd_variable(struct kernel_ctx *ctx, struct variable *variable,
                                          const void *arg) {
    const struct scatter_nd_row *row = arg;
    TRY(variable_check(variable, row->is_ref, (enum dtype)ctx->inputs[2].dtype));
    return scatter_nd_into(ctx, &variable->value, variable, row->op);
}

static enum kernel_result scatter_nd(struct kernel_ctx *ctx) {
    const struct scatter_nd_row *row = ctx->instance->def->arg;
    return variable_change(ctx, scatter_nd_variable, row->is_ref);
}

/* The output takes over the input's memory where it may. */
static enum kernel_result scatter_nd_plain(struct kernel_ctx *ctx) {
    const struct scatter_nd_row *row = ctx->instance->def->arg;
    if (tensor_is_sole(&ctx->inputs[0]))
        kernel_pass(ctx, 0, 0);
    else
        KERNEL_TRY(ctx, kernel_clone(ctx, &ctx->inputs[0], &ctx->outputs[0]));
    KERNEL_TRY(ctx, scatter_nd_into(ctx, &ctx->outputs[0], NULL, row->op));
    return KERNEL_DONE;
}

// clang-format off
#define ND(op_name, types, update_op, is_ref)                                              \
    {.op = (op_name), {{"T", (types)}, {"Tindices", DTYPES_INDEX}}, .compute = scatter_nd, \
        .init = scatter_nd_init,                                                           \
     .arg = &(const struct scatter_nd_row){(update_op), (is_ref)}, .flags = KERNEL_STATEFUL}
#define BOTH(name, types, update_op)              \
    ND("ScatterNd" name, types, update_op, true), \
    ND("ResourceScatterNd" name, types, update_op, false)

static const struct kernel_def rows[] = {
    BOTH("Update", DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING), UPDATE_ASSIGN),
    BOTH("Add", DTYPES_NUMBER, UPDATE_ADD),
    BOTH("Sub", DTYPES_NUMBER, UPDATE_SUB),
    BOTH("Min", DTYPES_REAL, UPDATE_MIN),
    BOTH("Max", DTYPES_REAL, UPDATE_MAX),
    {.op = "ScatterNdNonAliasingAdd", {{"T", DTYPES_NUMBER | DTYPE_BIT(DT_BOOL)},
        {"Tindices", DTYPES_INDEX}}, .compute = scatter_nd_plain, .init = scatter_nd_init,
     .arg = &(const struct scatter_nd_row){UPDATE_ADD, false}},
};
// clang-format on

const struct kernel_list state_scatter_nd_kernels = {rows, ARRAY_LEN(rows)};
