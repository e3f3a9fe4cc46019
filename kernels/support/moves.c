/* Runs or collects strided copies; see moves.h. */
#include "kernels/support/moves.h"

void moves_flush(struct moves *moves) {
    if (moves->n == 0)
        return;
    size_t size = dtype_size(moves->dtype);
    if (!moves->status)
        moves->status = moves->ctx->instance->engine->move(moves->ctx, size, moves->list, moves->n);
    moves->n = 0;
}

static struct device_move *moves_next(struct moves *moves) {
    if (moves->n == DEVICE_MOVE_BATCH)
        moves_flush(moves);
    return &moves->list[moves->n++];
}

/* Adds loops [first, n_loops), which a device takes as they are; each turn of a loop before them is
 * a copy of its own. */
static void collect(struct moves *moves, const struct strided *s, int first, char *to,
                    const char *from, const void *value) {
    size_t size = dtype_size(moves->dtype);
    if (s->n_loops - first > DEVICE_MOVE_LOOPS) {
        for (int64_t i = 0; i < s->dims[first]; i++)
            collect(moves, s, first + 1, to + i * s->to[first] * (int64_t)size,
                    from ? from + i * s->from[first] * (int64_t)size : NULL, value);
        return;
    }
    struct device_move *move = moves_next(moves);
    move->to = to;
    move->from = from;
    if (value)
        memcpy(move->value, value, size);
    move->n_loops = s->n_loops - first;
    for (int i = 0; i < move->n_loops; i++) {
        move->dims[i] = s->dims[first + i];
        move->from_strides[i] = s->from[first + i];
        move->to_strides[i] = s->to[first + i];
    }
}

static bool is_empty(const struct strided *s) {
    for (int i = 0; i < s->n_loops; i++)
        if (s->dims[i] == 0)
            return true;
    return false;
}

void moves_add(struct moves *moves, struct strided *s, void *to, const void *from) {
    if (!kernel_is_for_device(moves->ctx))
        strided_run(s, moves->dtype, to, from, moves->ctx->pool);
    else if (!is_empty(s))
        collect(moves, s, 0, to, from, NULL);
}

void moves_add_value(struct moves *moves, struct strided *s, void *to, const void *value) {
    if (!kernel_is_for_device(moves->ctx))
        strided_run(s, moves->dtype, to, value, moves->ctx->pool);
    else if (!is_empty(s))
        collect(moves, s, 0, to, NULL, value);
}

struct status *moves_end(struct moves *moves) {
    moves_flush(moves);
    return moves->status;
}

struct status *move_run(struct kernel_ctx *ctx, struct strided *s, enum dtype dtype, void *to,
                        const void *from) {
    if (likely(!kernel_is_for_device(ctx))) {
        strided_run(s, dtype, to, from, ctx->pool);
        return NULL;
    }
    struct moves moves;
    moves_begin(&moves, ctx, dtype);
    moves_add(&moves, s, to, from);
    return moves_end(&moves);
}

struct status *move_fill(struct kernel_ctx *ctx, enum dtype dtype, void *to, const void *value,
                         int64_t n) {
    struct strided s;
    strided_init(&s);
    strided_add(&s, n, 0, 1);
    if (likely(!kernel_is_for_device(ctx))) {
        strided_run(&s, dtype, to, value, ctx->pool);
        return NULL;
    }
    struct moves moves;
    moves_begin(&moves, ctx, dtype);
    moves_add_value(&moves, &s, to, value);
    return moves_end(&moves);
}

struct status *device_input(struct kernel_ctx *ctx, int input) {
    struct tensor *in = &ctx->inputs[input], there = TENSOR_INIT;
    struct buffer *buffer = NULL;
    if (likely(!kernel_is_for_device(ctx)) || tensor_is_on_device(in) || !tensor_has_value(in) ||
        in->n_elements == 0)
        return NULL;
    TRY(ctx->instance->engine->stage(ctx, tensor_cdata(in), tensor_size_bytes(in), &buffer));
    struct status *st =
        tensor_view(buffer, buffer->data, (enum dtype)in->dtype, tensor_shape(in), &there);
    buffer_unref(buffer);
    if (st)
        return st;
    tensor_clear(in);
    tensor_move(in, &there);
    return NULL;
}

struct status *device_slices_init(struct device_slices *slices, const struct tensor *indices,
                                  int depth, struct shape shape, int64_t n_rows) {
    if (depth > DEVICE_MAX_DEPTH)
        return status_unimplemented(
            "A device takes indices of at most %d coordinates, not %d (indices of shape %s)",
            DEVICE_MAX_DEPTH, depth, TENSOR_SHAPE_TEXT(indices));
    *slices = (struct device_slices){.indices = tensor_cdata(indices),
                                     .index_dtype = (enum dtype)indices->dtype,
                                     .depth = depth,
                                     .n_rows = n_rows,
                                     .len = 1};
    for (int i = 0; i < depth; i++)
        slices->dims[i] = shape.dims[i];
    for (int i = depth; i < shape.rank; i++)
        slices->len *= shape.dims[i];
    return NULL;
}
