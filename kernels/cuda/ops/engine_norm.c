/* Launches the kernels of norm.cu and norm_packs.cu. */
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/norm_args.h"

/* Channels first, last, last in packs at any address, and in aligned packs. */
enum norm_form { FORM_INNER, FORM_LAST, FORM_PARTS, FORM_PACKS };
static struct gpu_stem moments_stems[] = {
    {"norm_moments_inner"}, {"norm_moments"}, {"norm_parts_moments"}, {"norm_packs_moments"}};
static struct gpu_stem sums_stems[] = {
    {"norm_sums_inner"}, {"norm_sums"}, {"norm_parts_sums"}, {"norm_packs_sums"}};
static struct gpu_stem apply_stem = {"norm_apply"};
static struct gpu_stem packs_apply_stem = {"norm_packs_apply"},
                       parts_apply_stem = {"norm_parts_apply"};
static struct gpu_stem statistics_stem = {"norm_statistics"}, gradients_stem = {"norm_gradients"};
static struct gpu_stem lrn_stem = {"lrn"}, lrn_norms_stem = {"lrn_norms"};
static struct gpu_stem lrn_grad_stem = {"lrn_grad"};

/* Rows that a thread adds up, at least, and blocks that keep a device busy. Each block's sums are
 * merged later, so sums have no more blocks than needed to have enough loads under way. */
enum { ROWS_OF_THREAD = 8, MOST_BLOCKS = 1024, MOST_PACK_BLOCKS = 512, MOST_APPLY_BLOCKS = 2048 };

static int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Are channels last, and in packs? Only sizes decide, since sums are added up in another order. */
static bool has_packs(const struct device_batch_norm *job) {
    return job->inner == 1 && job->channels % NORM_VECTOR == 0 && job->outer > 0;
}

/* Can packs be read and written at once? */
static bool is_aligned(const struct device_batch_norm *job, const void *x, const void *g,
                       const void *result) {
    uintptr_t addresses = (uintptr_t)x | (uintptr_t)g | (uintptr_t)result;
    return addresses % (NORM_VECTOR * dtype_size(job->dtype)) == 0;
}

static struct norm_rows rows_of(const struct device_batch_norm *job, int64_t most_blocks) {
    struct norm_rows rows = {
        .n_rows = job->outer * job->inner,
        .channels = job->channels,
        .inner = gpu_divisor_of(MAX(job->inner, (int64_t)1), job->outer * job->inner + 1),
        .width = 1};
    int64_t n_lanes = has_packs(job) ? job->channels / NORM_VECTOR : job->channels;
    while (job->inner == 1 && rows.width < NORM_MAX_WIDTH && rows.width < n_lanes) {
        rows.width *= 2;
        rows.width_bits++;
    }
    int64_t n_groups = divided_up(n_lanes, rows.width);
    rows.n_groups = (int32_t)n_groups;
    int64_t wanted = divided_up(rows.n_rows, NORM_THREADS / rows.width * ROWS_OF_THREAD);
    rows.n_chunks = MIN(wanted, MAX(most_blocks / n_groups, (int64_t)1));
    rows.chunk = rows.n_chunks ? divided_up(rows.n_rows, rows.n_chunks) : 0;
    rows.n_chunks = rows.n_chunks ? divided_up(rows.n_rows, rows.chunk) : 0;
    return rows;
}

static struct norm_rows sum_rows(const struct device_batch_norm *job) {
    return rows_of(job, has_packs(job) ? MOST_PACK_BLOCKS : MOST_BLOCKS);
}

/* A block for each chunk of each group of channels or packs. */
static struct gpu_grid chunks_grid(const struct norm_rows *rows) {
    return (struct gpu_grid){.n_blocks = (unsigned)(rows->n_chunks * rows->n_groups),
                             .n_threads = NORM_THREADS};
}

/* A block for each channel. */
static struct gpu_grid merge_grid(const struct norm_rows *rows) {
    enum { MOST_CHANNELS = 1 << 20 };
    return (struct gpu_grid){
        .n_blocks = (unsigned)MAX(MIN(rows->channels, (int64_t)MOST_CHANNELS), (int64_t)1),
        .n_threads = NORM_MERGE_THREADS};
}

/* Launches moments, or the sums of a gradient. `first`, `second` and `pivot` become scratch memory,
 * one behind the other. */
static struct status *sum_chunks(struct kernel_ctx *ctx, const struct device_batch_norm *job,
                                 const struct norm_rows *rows, struct buffer **ret) {
    int64_t n = rows->n_chunks * rows->channels;
    struct norm_chunks_args args = {.x = job->x, .g = job->g, .mean = job->mean, .rows = *rows};
    bool is_quick = has_packs(job) && is_aligned(job, job->x, job->g, NULL);
    enum norm_form form = is_quick          ? FORM_PACKS
                          : has_packs(job)  ? FORM_PARTS
                          : job->inner == 1 ? FORM_LAST
                                            : FORM_INNER;
    struct gpu_stem *stem = &(job->g ? sums_stems : moments_stems)[form];
    TRY(gpu_scratch(ctx, (size_t)(n * 2 + rows->channels) * sizeof(float), ret));
    args.first = (float *)(void *)(*ret)->data;
    args.second = args.first + n;
    args.pivot = args.second + n;
    return engine_launch(ctx, stem, gpu_dtype_suffix(job->dtype), chunks_grid(rows), &args);
}

static struct status *apply_packs(struct kernel_ctx *ctx, const struct device_batch_norm *job,
                                  const struct norm_apply_args *line) {
    struct norm_packs_args args = {.x = line->x,
                                   .g = line->g,
                                   .result = job->result,
                                   .mean = line->mean,
                                   .factor = line->factor,
                                   .offset = line->offset,
                                   .weight = line->weight,
                                   .rows = rows_of(job, MOST_APPLY_BLOCKS)};
    struct gpu_stem *stem =
        is_aligned(job, line->x, line->g, job->result) ? &packs_apply_stem : &parts_apply_stem;
    return engine_launch(ctx, stem, gpu_dtype_suffix(job->dtype), chunks_grid(&args.rows), &args);
}

static struct status *apply(struct kernel_ctx *ctx, const struct device_batch_norm *job,
                            struct norm_apply_args *args) {
    if (has_packs(job))
        return apply_packs(ctx, job, args);
    args->result = job->result;
    args->n = job->outer * job->channels * job->inner;
    args->inner = gpu_divisor_of(job->inner, args->n + 1);
    args->channels = gpu_divisor_of(job->channels, args->n + 1);
    return engine_launch_for(ctx, &apply_stem, gpu_dtype_suffix(job->dtype), args->n, args);
}

struct status *engine_batch_norm(struct kernel_ctx *ctx, const struct device_batch_norm *job) {
    struct norm_rows rows = sum_rows(job);
    struct norm_statistics_args args = {.scale = job->scale,
                                        .mean = job->mean,
                                        .variance = job->variance,
                                        .epsilon = job->epsilon,
                                        .average_factor = job->average_factor,
                                        .is_training = job->is_training,
                                        .rows = rows};
    struct buffer *chunks = NULL, *factor = NULL;
    struct status *st = NULL;
    memcpy(args.out, job->out, sizeof args.out);
    if (job->is_training && rows.n_rows > 0) {
        TRY_OUT(sum_chunks(ctx, job, &rows, &chunks));
        args.first = (const float *)(const void *)chunks->data;
        args.second = args.first + rows.n_chunks * rows.channels;
        args.pivot = args.second + rows.n_chunks * rows.channels;
    }
    TRY_OUT(gpu_scratch(ctx, (size_t)rows.channels * sizeof(float), &factor));
    args.factor = (float *)(void *)factor->data;
    TRY_OUT(engine_launch(ctx, &statistics_stem, "f32", merge_grid(&rows), &args));
    if (rows.n_rows > 0)
        TRY_OUT(apply(
            ctx, job,
            &(struct norm_apply_args){
                .x = job->x, .mean = job->out[2], .factor = args.factor, .offset = job->offset}));
out:
    buffer_unref(chunks);
    buffer_unref(factor);
    return st;
}

struct status *engine_batch_norm_grad(struct kernel_ctx *ctx, const struct device_batch_norm *job) {
    struct norm_rows rows = sum_rows(job);
    struct norm_gradients_args args = {.scale = job->scale,
                                       .variance = job->variance,
                                       .scale_out = job->out[0],
                                       .offset_out = job->out[1],
                                       .epsilon = job->epsilon,
                                       .is_training = job->is_training,
                                       .rows = rows};
    struct buffer *chunks = NULL, *lines = NULL;
    struct status *st = NULL;
    TRY_OUT(sum_chunks(ctx, job, &rows, &chunks));
    args.first = (const float *)(const void *)chunks->data;
    args.second = args.first + rows.n_chunks * rows.channels;
    TRY_OUT(gpu_scratch(ctx, (size_t)rows.channels * 3 * sizeof(float), &lines));
    args.line.factor = (float *)(void *)lines->data;
    args.line.offset = args.line.factor + rows.channels;
    args.line.weight = args.line.offset + rows.channels;
    TRY_OUT(engine_launch(ctx, &gradients_stem, "f32", merge_grid(&rows), &args));
    TRY_OUT(apply(ctx, job,
                  &(struct norm_apply_args){.x = job->is_training ? job->x : NULL,
                                            .g = job->g,
                                            .mean = job->mean,
                                            .factor = args.line.factor,
                                            .offset = args.line.offset,
                                            .weight = args.line.weight}));
out:
    buffer_unref(chunks);
    buffer_unref(lines);
    return st;
}

struct status *engine_lrn(struct kernel_ctx *ctx, const struct device_lrn *job) {
    struct lrn_args args = {.in = job->in,
                            .out = job->out,
                            .gradient = job->gradient,
                            .result = job->result,
                            .n = job->n,
                            .radius = job->radius,
                            .depth = gpu_divisor_of(job->depth, job->n),
                            .bias = job->bias,
                            .alpha = job->alpha,
                            .beta = job->beta,
                            .is_small = job->n < 1 << 30};
    args.radius = MIN(args.radius, job->depth);
    if (!job->gradient)
        return engine_launch_for(ctx, &lrn_stem, "f32", args.n, &args);
    struct buffer *norms = NULL;
    TRY(gpu_scratch(ctx, (size_t)args.n * 2 * sizeof(float), &norms));
    args.norms = (float *)(void *)norms->data;
    args.shares = args.norms + args.n;
    struct status *st = engine_launch_for(ctx, &lrn_norms_stem, "f32", args.n, &args);
    if (!st)
        st = engine_launch_for(ctx, &lrn_grad_stem, "f32", args.n, &args);
    buffer_unref(norms);
    return st;
}
