/* Runs a program of two instructions, a GatherV2 and a reduction of the rows that it picks, as in
 * the mean of a text's word vectors [WP 5.1].
 *
 *   g = GatherV2(params [n, inner…], indices [outer…, picked…], 0)   r = Sum(g, [picked…])
 *
 * The rows are added where they are in `params`, so that g never reaches memory. The result has the
 * bits of both kernels. All else runs one by one: another axis, an index out of range, a reduction
 * over other dimensions, few columns. */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/cpu/math/math_picked.h"
#include "kernels/support/reduction_checks.h"

bool fused_is_gather(const struct fused_program *program) {
    return program->n_instructions == 2 && program->n_outputs == 1 && program->results[0] == 1 &&
           node_is_op(program->instructions[0], "GatherV2") &&
           program->instructions[1]->n_data == 2 &&
           program->instructions[1]->inputs[0].src == program->instructions[0] &&
           program->instructions[1]->inputs[1].src != program->instructions[0];
}

static const struct tensor *input_of(const struct kernel_ctx *ctx, int instruction, int operand) {
    const struct fused_state *state = ctx->instance->state;
    return &ctx->inputs[state->instructions[instruction].operands[operand]];
}

/* The shape of what would be gathered. */
struct gathered {
    struct shape shape;
    int64_t dims[SHAPE_MAX_RANK];
    bool is_reduced[SHAPE_MAX_RANK];
};

static bool find_gathered(const struct kernel_ctx *ctx, struct gathered *ret) {
    const struct tensor *params = input_of(ctx, 0, 0), *indices = input_of(ctx, 0, 1),
                        *axis = input_of(ctx, 0, 2);
    int rank = indices->rank + params->rank - 1;
    if (axis->rank != 0 || tensor_index_at(axis, 0) != 0 || params->rank < 2 ||
        rank > SHAPE_MAX_RANK || params->n_elements == 0 || indices->n_elements == 0)
        return false;
    for (int i = 0; i < indices->rank; i++)
        ret->dims[i] = tensor_dim(indices, i);
    for (int i = 1; i < params->rank; i++)
        ret->dims[indices->rank + i - 1] = tensor_dim(params, i);
    ret->shape = (struct shape){rank, ret->dims};
    memset(ret->is_reduced, 0, sizeof(ret->is_reduced));
    struct status *st = reduction_read_axes(input_of(ctx, 1, 1), rank, ret->is_reduced);
    bool is_right = !st;
    status_unref(st);
    return is_right;
}

/* Finds outer and picked dimensions. False: the reduction is over other dimensions. */
static bool split_dims(const struct gathered *g, int n_index_dims, struct math_picked *job) {
    int first = n_index_dims;
    while (first > 0 && g->is_reduced[first - 1])
        first--;
    job->n_outer = job->n_reduced = job->inner = 1;
    for (int i = 0; i < g->shape.rank; i++) {
        bool is_picked = i >= first && i < n_index_dims;
        if (g->is_reduced[i] != is_picked)
            return false;
        *(i < first ? &job->n_outer : is_picked ? &job->n_reduced : &job->inner) *= g->dims[i];
    }
    return true;
}

/* The indices as rows; NULL: one of them is out of range, or there is no memory. */
static int64_t *read_rows(const struct tensor *indices, int64_t n_rows) {
    int64_t *rows = malloc((size_t)indices->n_elements * sizeof(*rows));
    const int32_t *narrow = indices->dtype == DT_INT32 ? tensor_cdata(indices) : NULL;
    bool is_right = rows != NULL;
    for (int64_t i = 0; is_right && i < indices->n_elements; i++) {
        rows[i] = narrow ? narrow[i] : tensor_int_at(indices, i);
        is_right = rows[i] >= 0 && rows[i] < n_rows;
    }
    if (is_right)
        return rows;
    free(rows);
    return NULL;
}

enum kernel_result fused_run_gather(struct kernel_ctx *ctx) {
    const struct fused_state *state = ctx->instance->state;
    const struct kernel_instance *reduction = &state->instructions[1].kernel;
    const struct tensor *params = input_of(ctx, 0, 0), *indices = input_of(ctx, 0, 1);
    struct gathered gathered;
    struct math_picked job = {.from = tensor_cdata(params)};
    int64_t batch_dims = 0, dims[SHAPE_MAX_RANK], *rows = NULL;
    bool keep_dims = false;
    struct status *st = node_get_i(state->program.instructions[0], "batch_dims", &batch_dims);
    if (!st)
        st = node_get_b(state->program.instructions[1], "keep_dims", &keep_dims);
    if (!st && batch_dims == 0 && find_gathered(ctx, &gathered) &&
        split_dims(&gathered, indices->rank, &job) && math_picked_suits(&job))
        rows = read_rows(indices, tensor_dim(params, 0));
    status_unref(st);
    if (!rows)
        return fused_run_apart(ctx, NULL);
    job.rows = rows;
    st = kernel_alloc(ctx, 0, (enum dtype)params->dtype,
                      reduction_output_shape(gathered.shape, gathered.is_reduced, keep_dims, dims));
    if (!st) {
        job.to = tensor_data(&ctx->outputs[0]);
        math_reduce_picked(reduction, &job, ctx->pool);
    }
    free(rows);
    return st ? fused_fail(ctx, &state->instructions[1], st) : KERNEL_DONE;
}
