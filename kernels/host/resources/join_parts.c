/* Joins parts in the memory of the host or of a device. */
#include "kernels/host/resources/join_parts.h"

#include "kernels/support/moves.h"

enum { POOL_MIN_ELEMENTS = 64 * 1024 };

struct join_job {
    const struct join_parts *join;
    char *to;
};

static const struct tensor *part_at(const struct join_parts *join, int64_t i) {
    return &join->parts[join->indices ? tensor_index_at(join->indices, i) : i];
}

static int64_t offset_of(const struct join_parts *join, int64_t i) {
    return join->offsets ? join->offsets[i] : i * join->part_len;
}

static void join_range(void *arg, int64_t begin, int64_t end) {
    const struct join_job *job = arg;
    const struct join_parts *join = job->join;
    size_t size = dtype_size(join->dtype);
    for (int64_t i = begin; i < end; i++) {
        const struct tensor *part = part_at(join, i);
        int64_t offset = offset_of(join, i), n = offset_of(join, i + 1) - offset;
        char *to = job->to + (size_t)offset * size;
        if (part->storage != TENSOR_NONE)
            elements_copy(join->dtype, to, tensor_cdata(part), n);
        else if (!dtype_is_object(join->dtype)) /* pointers to objects are NULL already */
            memset(to, 0, (size_t)n * size);
    }
}

static struct status *join_on_device(struct kernel_ctx *ctx, const struct join_job *job,
                                     int64_t n) {
    static const char zero[16]; /* of any dtype */
    const struct join_parts *join = job->join;
    struct moves moves;
    moves_begin(&moves, ctx, join->dtype);
    for (int64_t i = 0; i < n; i++) {
        const struct tensor *part = part_at(join, i);
        int64_t offset = offset_of(join, i), len = offset_of(join, i + 1) - offset;
        bool has_value = part->storage != TENSOR_NONE;
        char *to = job->to + (size_t)offset * dtype_size(join->dtype);
        struct strided s;
        if (len == 0)
            continue;
        strided_init(&s);
        strided_add(&s, len, has_value, 1);
        if (has_value)
            moves_add(&moves, &s, to, tensor_cdata(part));
        else
            moves_add_value(&moves, &s, to, zero);
    }
    return moves_end(&moves);
}

struct status *join_parts(struct kernel_ctx *ctx, const struct join_parts *join, int64_t n) {
    struct join_job job = {join, tensor_data(&ctx->outputs[0])};
    int64_t n_all = ctx->outputs[0].n_elements;
    if (n_all == 0)
        return NULL;
    if (kernel_is_for_device(ctx))
        return join_on_device(ctx, &job, n);
    double part_ns = 5 + 0.1 * (double)dtype_size(join->dtype) * (double)(n_all / n);
    if (ctx->pool && n_all >= POOL_MIN_ELEMENTS)
        pool_parallel_for(ctx->pool, n, part_ns, join_range, &job);
    else
        join_range(&job, 0, n);
    return NULL;
}
