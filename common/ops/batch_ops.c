/* Lists the ops that batch values of several steps. */
#include "common/ops/op_def.h"

/* The shape of an input with any number of rows. */
static struct status *rows_of(struct shape_inference *ctx, int input, struct shape *ret) {
    struct shape shape = ctx->in[input];
    if (shape.rank == 0)
        return status_invalid("Out of range dim_index 0 for shape with 0 dimensions");
    *ret = shape;
    if (shape.rank < 0)
        return NULL;
    int64_t *dims = arena_array(ctx->arena, int64_t, shape.rank);
    memcpy(dims, shape.dims, (size_t)shape.rank * sizeof(*dims));
    dims[0] = -1;
    *ret = (struct shape){shape.rank, dims};
    return NULL;
}

/* The batch index is a matrix of 3 columns, except that without rows it is an empty vector. */
static struct status *shape_batch(struct shape_inference *ctx) {
    for (int i = 0; i < ctx->node->n_data; i++)
        TRY(rows_of(ctx, i, &ctx->out[i]));
    return NULL;
}

static struct status *shape_unbatch(struct shape_inference *ctx) {
    return rows_of(ctx, 0, &ctx->out[0]);
}

static struct status *shape_unbatch_grad(struct shape_inference *ctx) {
    if (ctx->in[2].rank >= 0)
        ctx->out[0] = shape_unknown_of_rank(ctx, ctx->in[2].rank);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"Batch", "joins rows of concurrent steps for one of them", shape_batch},
    {"BatchFunction", "a function, called once with the rows of concurrent steps", shape_unknown},
    {"Unbatch", "the step's own rows of a batch, which another step may have", shape_unbatch},
    {"UnbatchGrad", "joins the gradients of rows for the step that had the batch",
     shape_unbatch_grad},
};
// clang-format on

const struct op_def_list batch_ops = {rows, ARRAY_LEN(rows)};
