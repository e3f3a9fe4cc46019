/* Computes convolutions of floats by oneDNN.
 *
 * Activations keep TensorFlow's layout (channels last). The filter is reordered into the layout
 * that the primitive wants, once for each execution. The batch is split into equal shares, and a
 * share that takes long into pieces (conv_split.h). Each piece runs on one thread of our pool. The
 * filter gradients of the shares are added in order.
 *
 *   in, out   [n, spatial, c] ──────────────┐
 *   filter    [spatial, i, o] ── reorder ── primitive (per piece) ── result
 *
 * conv_gemm.c computes what oneDNN refuses, or would compute with its reference code. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/cpu/nn/conv_primitive.h"
#include "kernels/cpu/nn/conv_split.h"
#include "kernels/support/scratch.h"

enum {
    MAX_FILTER_SHARES = 16,
    LEAST_SHARE = 4000000,        /* multiplications that are worth waking a thread */
    LEAST_GROUPED_SHARE = 500000, /* with groups each multiplication is slower */
    /* multiplications of a piece, between which a cancel is seen: some 10 ms */
    MOST_PIECE = 500000000,
    MOST_GROUPED_PIECE = 100000000,
};

/* ---- executing ---- */

/* Pieces of one shape. */
struct piece_kind {
    const struct conv_primitive *primitive;
    struct conv_primitive *owned; /* see conv_primitive_obtain */
    /* in the primitive's layout; for the filter's gradient one for each share */
    char *filter;
    struct tensor scratch; /* the filter's memory */
};

struct onednn_job {
    const struct kernel_ctx *ctx;
    enum conv_direction direction;
    const struct conv_operands *operands;
    const struct conv_split *split;
    int64_t in_bytes, out_bytes; /* of one image */
    int n_kinds;
    int kind_of[CONV_MAX_BANDS]; /* by band */
    struct piece_kind kinds[CONV_MAX_BANDS];
    struct status *failure; /* the first failure */
};

static struct status *execute(const struct onednn *lib, dnnl_primitive_t primitive, int n,
                              const int *args, const dnnl_memory_desc_t *const *descriptions,
                              void *const *data) {
    dnnl_exec_arg_t bound[4];
    dnnl_status_t status = dnnl_success;
    int n_made = 0;
    for (; n_made < n && status == dnnl_success; n_made++) {
        bound[n_made] = (dnnl_exec_arg_t){.arg = args[n_made]};
        status = lib->memory_create(&bound[n_made].memory, descriptions[n_made], lib->engine,
                                    data[n_made]);
        if (status != dnnl_success)
            break;
    }
    if (status == dnnl_success)
        status = lib->primitive_execute(primitive, lib->stream, n, bound);
    while (n_made-- > 0)
        lib->memory_destroy(bound[n_made].memory);
    if (status == dnnl_out_of_memory)
        return status_exhausted("OOM in a convolution");
    return status == dnnl_success ? NULL
                                  : status_internal("oneDNN failed with status %d", (int)status);
}

/* Runs a band of a group of images, which begins with image `image`. `filter` is in the primitive's
 * layout. */
static struct status *run_piece(const struct onednn_job *job, int64_t image, int band_index,
                                char *filter) {
    const struct conv_split *split = job->split;
    const struct conv_band *band = &split->bands[band_index];
    const struct conv_primitive *p = job->kinds[job->kind_of[band_index]].primitive;
    const struct conv_operands *o = job->operands;
    const struct onednn *lib = onednn_get();
    struct tensor scratch = TENSOR_INIT;
    void *scratch_data;
    TRY(scratch_new(job->ctx, DT_UINT8, MAX(p->scratch_bytes, 1), 1, &scratch, &scratch_data));
    bool is_forward = job->direction == CONV_FORWARD,
         is_filter = job->direction == CONV_BACKPROP_FILTER;
    char *in = (char *)(uintptr_t)(job->direction == CONV_BACKPROP_INPUT ? o->result : o->in) +
               image * job->in_bytes +
               band->in_row * split->in_row_elements * (int64_t)sizeof(float);
    char *out = (char *)(uintptr_t)(is_forward ? o->result : o->out) + image * job->out_bytes +
                band->out_row * split->out_row_elements * (int64_t)sizeof(float);
    const int args[] = {job->direction == CONV_BACKPROP_INPUT ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC,
                        is_filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
                        is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, DNNL_ARG_SCRATCHPAD};
    struct status *st =
        execute(lib, p->compute, 4, args,
                (const dnnl_memory_desc_t *const[]){&p->in, &p->own_filter, &p->out, &p->scratch},
                (void *const[]){in, filter, out, scratch_data});
    tensor_clear(&scratch);
    return st;
}

static void job_fail(struct onednn_job *job, struct status *st_take) {
    struct status *none = NULL;
    if (st_take && !__atomic_compare_exchange_n(&job->failure, &none, st_take, false,
                                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        status_unref(st_take);
}

/* A band of several images is all of their rows. */
static void hand_over(const struct onednn_job *job, int64_t image, const struct conv_band *band) {
    const struct conv_shape *s = &band->shape;
    int64_t first = image * (job->out_bytes / (int64_t)sizeof(float)) +
                    band->out_row * job->split->out_row_elements;
    kernel_hand_over(job->ctx, first,
                     first + s->batch * conv_n_positions(s->out) * s->out_channels);
}

/* Units are the pieces of all shares. */
static void pieces_range(void *arg, int64_t begin, int64_t end) {
    struct onednn_job *job = arg;
    const struct conv_split *split = job->split;
    for (; begin < end && !pool_is_unwanted(); begin++) {
        int band = (int)(begin % split->n_bands);
        int64_t image = begin / split->n_bands * split->images;
        job_fail(job, run_piece(job, image, band, job->kinds[job->kind_of[band]].filter));
        if (job->operands->hands_over)
            hand_over(job, image, &split->bands[band]);
    }
}

VECTOR_CLONES
static void add_floats(float *to, const float *from, int64_t n) {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] += from[i];
}

static struct status *reorder_filter(const struct conv_primitive *p, bool is_result, void *plain,
                                     void *own) {
    const struct onednn *lib = onednn_get();
    const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    if (is_result)
        return execute(lib, p->reorder, 2, args,
                       (const dnnl_memory_desc_t *const[]){&p->own_filter, &p->filter},
                       (void *const[]){own, plain});
    return execute(lib, p->reorder, 2, args,
                   (const dnnl_memory_desc_t *const[]){&p->filter, &p->own_filter},
                   (void *const[]){plain, own});
}

/* ---- gradients of the filter: the pieces of a share are added, for each kind by itself ---- */

static struct status *run_filter_share(const struct onednn_job *job, int64_t share) {
    const struct conv_split *split = job->split;
    bool has_begun[CONV_MAX_BANDS] = {false};
    int64_t n_pieces = split->n_groups * split->n_bands, most_bytes = 0;
    struct tensor scratch = TENSOR_INIT;
    char *piece = NULL;
    struct status *st = NULL;
    for (int k = 0; k < job->n_kinds; k++)
        most_bytes = MAX(most_bytes, job->kinds[k].primitive->filter_bytes);
    if (n_pieces > job->n_kinds)
        TRY(scratch_new(job->ctx, DT_UINT8, most_bytes, 1, &scratch, &piece));
    for (int64_t i = 0; i < n_pieces && !pool_is_unwanted(); i++) {
        int band = (int)(i % split->n_bands), k = job->kind_of[band];
        int64_t image = (share * split->n_groups + i / split->n_bands) * split->images;
        int64_t bytes = job->kinds[k].primitive->filter_bytes;
        char *sum = job->kinds[k].filter + share * bytes;
        TRY_OUT(run_piece(job, image, band, has_begun[k] ? piece : sum));
        if (has_begun[k])
            add_floats((float *)(void *)sum, (float *)(void *)piece, bytes / 4);
        has_begun[k] = true;
    }
out:
    tensor_clear(&scratch);
    return st;
}

static void filter_shares_range(void *arg, int64_t begin, int64_t end) {
    struct onednn_job *job = arg;
    for (; begin < end; begin++)
        job_fail(job, run_filter_share(job, begin));
}

/* Adds the shares of one kind, and stores the sum at `plain`. */
static struct status *sum_shares(const struct piece_kind *kind, int64_t n_shares, void *plain) {
    const struct conv_primitive *p = kind->primitive;
    for (int64_t i = 1; i < n_shares; i++)
        add_floats((float *)(void *)kind->filter,
                   (float *)(void *)(kind->filter + i * p->filter_bytes), p->filter_bytes / 4);
    if (p->reorders)
        return reorder_filter(p, true, plain, kind->filter);
    if (kind->filter != plain)
        memcpy(plain, kind->filter, (size_t)p->filter_bytes);
    return NULL;
}

static struct status *sum_kinds(const struct onednn_job *job, int64_t n_shares,
                                int64_t plain_bytes) {
    void *plain = job->operands->result, *addend;
    struct tensor scratch = TENSOR_INIT;
    TRY(sum_shares(&job->kinds[0], n_shares, plain));
    if (job->n_kinds == 1)
        return NULL;
    TRY(scratch_new(job->ctx, DT_UINT8, plain_bytes, 1, &scratch, &addend));
    struct status *st = NULL;
    for (int k = 1; k < job->n_kinds && !st; k++) {
        st = sum_shares(&job->kinds[k], n_shares, addend);
        if (!st)
            add_floats(plain, addend, plain_bytes / 4);
    }
    tensor_clear(&scratch);
    return st;
}

/* ---- the whole convolution ---- */

static struct status *prepare_filters(struct onednn_job *job, int64_t n_shares) {
    bool is_result = job->direction == CONV_BACKPROP_FILTER;
    void *plain = is_result ? job->operands->result : (void *)(uintptr_t)job->operands->filter;
    for (int k = 0; k < job->n_kinds; k++) {
        struct piece_kind *kind = &job->kinds[k];
        const struct conv_primitive *p = kind->primitive;
        kind->filter = plain;
        if (p->reorders || (is_result && (n_shares > 1 || job->n_kinds > 1)))
            TRY(scratch_new(job->ctx, DT_UINT8, is_result ? n_shares : 1, p->filter_bytes,
                            &kind->scratch, &kind->filter));
        if (p->reorders && !is_result)
            TRY(reorder_filter(p, false, plain, kind->filter));
    }
    return NULL;
}

static struct status *run_job(struct onednn_job *job, int64_t n_shares, double cost_ns) {
    const struct conv_shape *band = &job->split->bands[0].shape;
    int64_t n_pieces = job->split->n_groups * job->split->n_bands;
    TRY(prepare_filters(job, n_shares));
    if (job->direction != CONV_BACKPROP_FILTER) {
        pool_parallel_for(job->ctx->pool, n_shares * n_pieces, cost_ns / (double)n_pieces,
                          pieces_range, job);
        return job->failure;
    }
    pool_parallel_for(job->ctx->pool, n_shares, cost_ns, filter_shares_range, job);
    if (job->failure || pool_is_unwanted())
        return job->failure;
    return sum_kinds(job, n_shares,
                     conv_n_positions(band->window) * (band->in_channels / band->groups) *
                         band->out_channels * (int64_t)sizeof(float));
}

/* Finds the primitives of the pieces. False: oneDNN has no good one for some of them. */
static bool obtain_kinds(struct onednn_job *job, const struct onednn *lib) {
    for (int band = 0; band < job->split->n_bands; band++) {
        const struct conv_shape *shape = &job->split->bands[band].shape;
        int k = 0;
        while (k < job->n_kinds &&
               memcmp(&job->kinds[k].primitive->key.shape, shape, sizeof(*shape)) != 0)
            k++;
        job->kind_of[band] = k;
        if (k < job->n_kinds)
            continue;
        struct piece_kind *kind = &job->kinds[job->n_kinds++];
        *kind = (struct piece_kind){.scratch = TENSOR_INIT};
        kind->primitive = conv_primitive_obtain(lib, job->direction, shape, &kind->owned);
        if (!kind->primitive->is_usable)
            return false;
    }
    return true;
}

static void forget_kinds(struct onednn_job *job, const struct onednn *lib) {
    for (int k = 0; k < job->n_kinds; k++) {
        tensor_clear(&job->kinds[k].scratch);
        if (job->kinds[k].owned)
            conv_primitive_free(lib, job->kinds[k].owned);
    }
    job->n_kinds = 0;
}

/* oneDNN's generated code counts bytes in 32 bits in some places. */
static bool fits(const struct conv_shape *s) {
    const double limit = 1u << 29;
    return (double)s->batch * (double)s->in_channels * (double)conv_n_positions(s->in) < limit &&
           (double)s->batch * (double)s->out_channels * (double)conv_n_positions(s->out) < limit;
}

struct status *conv_by_onednn(const struct kernel_ctx *ctx, enum conv_direction direction,
                              const struct conv_shape *shape, const struct conv_operands *operands,
                              bool *ret_done) {
    *ret_done = false;
    const struct onednn *lib = onednn_get();
    bool is_grouped = shape->groups > 1;
    int64_t images = conv_images_per_share(shape, is_grouped ? LEAST_GROUPED_SHARE : LEAST_SHARE);
    if (!lib || !fits(shape))
        return NULL;
    while (direction == CONV_BACKPROP_FILTER &&
           (shape->batch / images > MAX_FILTER_SHARES || shape->batch % images != 0))
        images++;
    struct conv_shape share = *shape;
    share.batch = images;
    struct conv_split split;
    struct onednn_job job = {
        .ctx = ctx, .direction = direction, .operands = operands, .split = &split};
    job.in_bytes = conv_n_positions(shape->in) * shape->in_channels * (int64_t)sizeof(float);
    job.out_bytes = conv_n_positions(shape->out) * shape->out_channels * (int64_t)sizeof(float);
    conv_split(direction, &share, is_grouped ? MOST_GROUPED_PIECE : MOST_PIECE, &split);
    *ret_done = obtain_kinds(&job, lib);
    if (!*ret_done && split.n_groups * split.n_bands > 1) {
        forget_kinds(&job, lib);
        conv_split_none(&share, &split);
        *ret_done = obtain_kinds(&job, lib);
    }
    struct status *st = NULL;
    if (*ret_done)
        st = run_job(&job, shape->batch / images,
                     conv_n_multiplications(&share) * (is_grouped ? 0.04 : 0.01) + 2000);
    forget_kinds(&job, lib);
    return st;
}
