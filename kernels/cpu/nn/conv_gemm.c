/* Computes convolutions as matrix products over columns. A row of the columns belongs to one
 * position of the window and holds what the window covers there.
 *
 *   forward         out[p, o]    = columns[p, w] · filter[w, o]
 *   filter gradient filter[w, o] = columns[p, w]ᵀ · out[p, o]
 *   input gradient  columns[p, w] = out[p, o] · filter[w, o]ᵀ, added to the inputs that the windows
 *                   cover
 *
 * Columns are made for a block of positions at a time, small enough to stay in the cache. A window
 * of one element with strides of one needs no columns, because the input is its own column
 * matrix. */
#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/support/scratch.h"

enum {
    COLUMN_BLOCK_BYTES = 1 << 18,
    MAX_FILTER_SHARES = 16, /* partial sums of a filter gradient */
    /* multiplications of a block, between which a cancel is seen: some 10 ms */
    BLOCK_MULTIPLICATIONS = 1 << 25,
    LEAST_BLOCK = 16,
};

struct gemm_job {
    const struct conv_shape *shape;
    const struct conv_operands *operands;
    enum dtype dtype;
    int64_t size;                /* of one element */
    int64_t group_in, group_out; /* channels of one group */
    /* elements of a window in one group, which is the width of the columns */
    int64_t depth;
    int64_t block;            /* window positions in a block */
    bool is_pointwise;        /* the input itself is the column matrix */
    int64_t images_per_share; /* images in one unit of work */
    /* the filter gradients of the shares; NULL when there is one share */
    char *partials;
    const struct kernel_ctx *ctx;
    struct status *failure; /* the first failure */
};

static void job_fail(struct gemm_job *job, struct status *st_take) {
    struct status *none = NULL;
    if (!__atomic_compare_exchange_n(&job->failure, &none, st_take, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        status_unref(st_take);
}

/* ---- columns ---- */

/* The origin of the window at output number p: the input position of its first tap, which may be
 * outside of the input. */
static void window_origin(const struct conv_shape *s, int64_t p, int64_t origin[3]) {
    for (int i = 2; i >= 0; i--) {
        origin[i] = p % s->out[i] * s->stride[i] - s->pad_before[i];
        p /= s->out[i];
    }
}

/* Gathers one row of taps along the innermost dimension. `at` is the channel block of the first
 * input element of that row. */
static char *gather_taps(const struct gemm_job *job, const char *row, int64_t origin, char *to) {
    const struct conv_shape *s = job->shape;
    int64_t pixel = s->in_channels * job->size, tap = job->group_in * job->size;
    if (s->rate[2] == 1 && s->groups == 1) { /* the taps are contiguous */
        int64_t begin = MIN(MAX(0, -origin), s->window[2]),
                end = MAX(begin, MIN(s->window[2], s->in[2] - origin));
        memset(to, 0, (size_t)(begin * tap));
        if (end > begin)
            memcpy(to + begin * tap, row + (origin + begin) * pixel, (size_t)((end - begin) * tap));
        memset(to + end * tap, 0, (size_t)((s->window[2] - end) * tap));
        return to + s->window[2] * tap;
    }
    for (int64_t w = 0; w < s->window[2]; w++, to += tap) {
        int64_t x = origin + w * s->rate[2];
        if (x >= 0 && x < s->in[2])
            memcpy(to, row + x * pixel, (size_t)tap);
        else
            memset(to, 0, (size_t)tap);
    }
    return to;
}

static void gather_columns(const struct gemm_job *job, const char *image, int64_t group,
                           int64_t first, int64_t n, char *to) {
    const struct conv_shape *s = job->shape;
    image += group * job->group_in * job->size;
    for (int64_t p = first; p < first + n; p++) {
        int64_t origin[3];
        window_origin(s, p, origin);
        for (int64_t i = 0; i < s->window[0]; i++) {
            for (int64_t j = 0; j < s->window[1]; j++) {
                int64_t z = origin[0] + i * s->rate[0], y = origin[1] + j * s->rate[1];
                if (z < 0 || z >= s->in[0] || y < 0 || y >= s->in[1]) {
                    int64_t bytes = s->window[2] * job->group_in * job->size;
                    memset(to, 0, (size_t)bytes);
                    to += bytes;
                } else {
                    to = gather_taps(
                        job, image + (z * s->in[1] + y) * s->in[2] * s->in_channels * job->size,
                        origin[2], to);
                }
            }
        }
    }
}

#define ADD_TO(s, T)                                                                              \
    VECTOR_CLONES static void add_to_##s(void *to_pointer, const void *from_pointer, int64_t n) { \
        T *to = to_pointer;                                                                       \
        const T *from = from_pointer;                                                             \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] += from[i];                    \
    }
ADD_TO(f32, float)
ADD_TO(f64, double)
ADD_TO(u32, uint32_t)
typedef void add_fn(void *to, const void *from, int64_t n);
static add_fn *adder(enum dtype dtype) {
    return dtype == DT_FLOAT ? add_to_f32 : dtype == DT_DOUBLE ? add_to_f64 : add_to_u32;
}

static void scatter_columns(const struct gemm_job *job, char *image, int64_t group, int64_t first,
                            int64_t n, const char *from) {
    const struct conv_shape *s = job->shape;
    add_fn *add = adder(job->dtype);
    int64_t tap = job->group_in * job->size;
    bool is_contiguous = s->rate[2] == 1 && s->groups == 1; /* the taps of a row */
    image += group * tap;
    for (int64_t p = first; p < first + n; p++) {
        int64_t origin[3];
        window_origin(s, p, origin);
        for (int64_t i = 0; i < s->window[0]; i++) {
            for (int64_t j = 0; j < s->window[1]; j++) {
                int64_t z = origin[0] + i * s->rate[0], y = origin[1] + j * s->rate[1];
                bool is_inside = z >= 0 && z < s->in[0] && y >= 0 && y < s->in[1];
                if (is_contiguous) {
                    int64_t begin = MIN(MAX(0, -origin[2]), s->window[2]),
                            end = MIN(s->window[2], s->in[2] - origin[2]);
                    if (is_inside && end > begin)
                        add(image + ((z * s->in[1] + y) * s->in[2] + origin[2] + begin) * tap,
                            from + begin * tap, (end - begin) * s->in_channels);
                    from += s->window[2] * tap;
                    continue;
                }
                for (int64_t w = 0; w < s->window[2]; w++, from += tap) {
                    int64_t x = origin[2] + w * s->rate[2];
                    if (is_inside && x >= 0 && x < s->in[2])
                        add(image +
                                ((z * s->in[1] + y) * s->in[2] + x) * s->in_channels * job->size,
                            from, job->group_in);
                }
            }
        }
    }
}

/* ---- one block of window positions ---- */

static void block_product(const struct gemm_job *job, enum conv_direction direction, int64_t image,
                          int64_t group, int64_t first, int64_t n, char *columns,
                          char *filter_gradient) {
    const struct conv_shape *s = job->shape;
    const struct conv_operands *o = job->operands;
    int64_t in_bytes = conv_n_positions(s->in) * s->in_channels * job->size;
    int64_t out_at =
        ((image * conv_n_positions(s->out) + first) * s->out_channels + group * job->group_out) *
        job->size;
    int64_t pixel = s->in_channels * job->size, filter_at = group * job->group_out * job->size;
    int64_t in_at = image * in_bytes + first * pixel + group * job->group_in * job->size;
    struct matmul g = {.ldc = s->out_channels};
    switch (direction) {
    case CONV_FORWARD:
        if (!job->is_pointwise)
            gather_columns(job, (const char *)o->in + image * in_bytes, group, first, n, columns);
        g.a = job->is_pointwise ? (const char *)o->in + in_at : columns;
        g.lda = job->is_pointwise ? s->in_channels : job->depth;
        g.b = (const char *)o->filter + filter_at;
        g.ldb = s->out_channels;
        g.c = (char *)o->result + out_at;
        g.m = n, g.n = job->group_out, g.k = job->depth;
        matmul_run(job->dtype, &g);
        return;
    case CONV_BACKPROP_INPUT:
        g.a = (const char *)o->out + out_at;
        g.lda = s->out_channels;
        g.b = (const char *)o->filter + filter_at;
        g.ldb = s->out_channels;
        g.trans_b = true;
        g.c = job->is_pointwise ? (char *)o->result + in_at : columns;
        g.ldc = job->is_pointwise ? s->in_channels : job->depth;
        g.m = n, g.n = job->depth, g.k = job->group_out;
        matmul_run(job->dtype, &g);
        if (!job->is_pointwise)
            scatter_columns(job, (char *)o->result + image * in_bytes, group, first, n, columns);
        return;
    default:
        if (!job->is_pointwise)
            gather_columns(job, (const char *)o->in + image * in_bytes, group, first, n, columns);
        g.a = job->is_pointwise ? (const char *)o->in + in_at : columns;
        g.lda = job->is_pointwise ? s->in_channels : job->depth;
        g.trans_a = true;
        g.b = (const char *)o->out + out_at;
        g.ldb = s->out_channels;
        g.c = filter_gradient + filter_at;
        g.m = job->depth, g.n = job->group_out, g.k = n;
        g.adds = true;
        matmul_run(job->dtype, &g);
    }
}

static void run_shares(struct gemm_job *job, enum conv_direction direction, int64_t begin,
                       int64_t end) {
    const struct conv_shape *s = job->shape;
    struct tensor scratch = TENSOR_INIT;
    char *columns = NULL;
    bool hands_over = direction == CONV_FORWARD && job->operands->hands_over;
    int64_t n_places = conv_n_positions(s->out);
    int64_t filter_bytes = job->depth * s->out_channels * job->size;
    struct status *st = NULL;
    if (!job->is_pointwise)
        st = scratch_new(job->ctx, job->dtype, job->block, job->depth, &scratch, &columns);
    if (st) {
        job_fail(job, st);
        return;
    }
    for (int64_t image = begin * job->images_per_share; image < end * job->images_per_share;
         image++) {
        char *partial = job->partials ? job->partials + image / job->images_per_share * filter_bytes
                                      : job->operands->result;
        for (int64_t group = 0; group < s->groups; group++) {
            for (int64_t p = 0; p < n_places && !pool_is_unwanted(); p += job->block)
                block_product(job, direction, image, group, p, MIN(job->block, n_places - p),
                              columns, partial);
        }
        if (hands_over)
            kernel_hand_over(job->ctx, image * n_places * s->out_channels,
                             (image + 1) * n_places * s->out_channels);
    }
    tensor_clear(&scratch);
}

static void forward_range(void *job, int64_t begin, int64_t end) {
    run_shares(job, CONV_FORWARD, begin, end);
}
static void backprop_input_range(void *job, int64_t begin, int64_t end) {
    run_shares(job, CONV_BACKPROP_INPUT, begin, end);
}
static void backprop_filter_range(void *job, int64_t begin, int64_t end) {
    run_shares(job, CONV_BACKPROP_FILTER, begin, end);
}

/* ---- the whole convolution ---- */

static bool is_pointwise(const struct conv_shape *s) {
    for (int i = 0; i < 3; i++) {
        if (s->window[i] != 1 || s->stride[i] != 1 || s->pad_before[i] != 0 ||
            s->in[i] != s->out[i])
            return false;
    }
    return true;
}

static void add_partials(const struct gemm_job *job, int64_t n_shares) {
    int64_t n = job->depth * job->shape->out_channels;
    char *result = job->operands->result;
    memcpy(result, job->partials, (size_t)(n * job->size));
    for (int64_t i = 1; i < n_shares; i++)
        adder(job->dtype)(result, job->partials + i * n * job->size, n);
}

struct status *conv_by_gemm(const struct kernel_ctx *ctx, enum conv_direction direction,
                            const struct conv_shape *s, enum dtype dtype,
                            const struct conv_operands *operands) {
    struct gemm_job job = {.shape = s,
                           .operands = operands,
                           .dtype = dtype,
                           .size = (int64_t)dtype_size(dtype),
                           .ctx = ctx};
    job.group_in = s->in_channels / s->groups;
    job.group_out = s->out_channels / s->groups;
    job.depth = conv_n_positions(s->window) * job.group_in;
    job.is_pointwise = is_pointwise(s);
    int64_t n_places = conv_n_positions(s->out);
    job.block = MAX(BLOCK_MULTIPLICATIONS / job.depth / job.group_out, (int64_t)LEAST_BLOCK);
    if (!job.is_pointwise)
        job.block =
            MIN(job.block, MAX(COLUMN_BLOCK_BYTES / job.size / job.depth, (int64_t)LEAST_BLOCK));
    job.block = MIN(job.block, n_places);
    job.images_per_share = direction == CONV_BACKPROP_FILTER ? conv_images_per_share(s, 1e6) : 1;
    struct tensor partials = TENSOR_INIT;
    struct status *st = NULL;
    if (direction == CONV_BACKPROP_FILTER) {
        while (s->batch / job.images_per_share > MAX_FILTER_SHARES ||
               s->batch % job.images_per_share != 0)
            job.images_per_share++;
    }
    int64_t n_shares = s->batch / job.images_per_share,
            filter_bytes = job.depth * s->out_channels * job.size;
    if (direction == CONV_BACKPROP_INPUT && !job.is_pointwise)
        memset(operands->result, 0,
               (size_t)(s->batch * conv_n_positions(s->in) * s->in_channels * job.size));
    if (direction == CONV_BACKPROP_FILTER && n_shares > 1) {
        TRY_OUT(scratch_new(ctx, DT_UINT8, n_shares, filter_bytes, &partials, &job.partials));
        memset(job.partials, 0, (size_t)(n_shares * filter_bytes));
    } else if (direction == CONV_BACKPROP_FILTER) {
        memset(operands->result, 0, (size_t)filter_bytes);
    }
    static void (*const ranges[])(void *, int64_t, int64_t) = {forward_range, backprop_input_range,
                                                               backprop_filter_range};
    double cost_ns = conv_n_multiplications(s) / (double)n_shares *
                         (dtype == DT_FLOAT    ? 0.03
                          : dtype == DT_DOUBLE ? 0.06
                                               : 0.3) +
                     100;
    pool_parallel_for(ctx->pool, n_shares, cost_ns, ranges[direction], &job);
    st = job.failure;
    if (!st && job.partials)
        add_partials(&job, n_shares);
out:
    tensor_clear(&partials);
    return st;
}
