/* CPU kernels of clustering, which find the nearest centers, and choose the first centers of
 * k-means. */
#include <math.h>
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/philox_words.h"
#include "kernels/support/scratch.h"

extern const struct kernel_list kmeans_kernels;

static double squared_distance(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sum;
}

/* ---- NearestNeighbors ---- */

struct nearest_job {
    const float *points, *centers;
    int64_t n_centers, n_dims, k;
    int64_t *indices;
    float *distances;
};

/* The outputs hold the k nearest centers so far, sorted. A farther center changes nothing. */
static void nearest_range(void *arg, int64_t begin, int64_t end) {
    const struct nearest_job *job = arg;
    for (int64_t p = begin; p < end; p++) {
        int64_t *index = job->indices + p * job->k, n = 0;
        float *distance = job->distances + p * job->k;
        for (int64_t c = 0; c < job->n_centers; c++) {
            float d = (float)squared_distance(job->points + p * job->n_dims,
                                              job->centers + c * job->n_dims, job->n_dims);
            if (n == job->k && !(d < distance[n - 1]))
                continue;
            int64_t at = n < job->k ? n++ : n - 1;
            for (; at > 0 && d < distance[at - 1]; at--) {
                distance[at] = distance[at - 1];
                index[at] = index[at - 1];
            }
            distance[at] = d;
            index[at] = c;
        }
    }
}

/* NearestNeighbors
 *   points                     float [n, d]
 *   centers                    float [m, d]
 *   k                          int64, scalar
 *   nearest_center_indices     int64 [n, min(k, m)], nearest first
 *   nearest_center_distances   float, squared
 * Errors   INVALID_ARGUMENT   shapes; no points; a negative k */
static enum kernel_result nearest_compute(struct kernel_ctx *ctx) {
    const struct tensor *points = kernel_input(ctx, 0), *centers = kernel_input(ctx, 1),
                        *k = kernel_input(ctx, 2);
    if (points->rank != 2)
        return kernel_fail(ctx, status_invalid("Input points should be a matrix."));
    if (centers->rank != 2)
        return kernel_fail(ctx, status_invalid("Input centers should be a matrix."));
    if (k->rank != 0)
        return kernel_fail(ctx, status_invalid("Input k should be a scalar."));
    int64_t n = tensor_dim(points, 0), wanted = *(const int64_t *)tensor_cdata(k);
    struct nearest_job job = {.points = tensor_cdata(points),
                              .centers = tensor_cdata(centers),
                              .n_centers = tensor_dim(centers, 0)};
    job.n_dims = tensor_dim(points, 1);
    if (job.n_dims != tensor_dim(centers, 1))
        return kernel_fail(
            ctx, status_invalid("Points and centers should have the same dimensionality."));
    if (wanted < 0)
        return kernel_fail(
            ctx, status_invalid("Input k should be non-negative, got %lld", (long long)wanted));
    if (n == 0)
        return kernel_fail(ctx, status_invalid("Expected points.rows() > 0."));
    job.k = MIN(wanted, job.n_centers);
    int64_t dims[2] = {n, job.k};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, dims}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_FLOAT, (struct shape){2, dims}));
    job.indices = tensor_data(&ctx->outputs[0]);
    job.distances = tensor_data(&ctx->outputs[1]);
    if (job.k > 0)
        pool_parallel_for(ctx->pool, n, 1.5 * (double)job.n_centers * (double)(job.n_dims + 2),
                          nearest_range, &job);
    return KERNEL_DONE;
}

/* ---- first centers of k-means ---- */

/* Draws an index with the given weights: the first at which the sum of the weights exceeds a random
 * part of the total. */
static int64_t draw(struct philox_words *words, const float *weights, int64_t n, double total) {
    double left = (double)philox_words_f32(words) * total;
    for (int64_t i = 0; i < n; i++) {
        left -= (double)weights[i];
        if (left < 0)
            return i;
    }
    return n - 1;
}

enum { RETRIES_BETWEEN_LOOKS = 64 };

struct start {
    struct kernel_ctx *ctx;
    const float *points;
    int64_t n_points, n_dims, n_wanted, n_retries;
    struct philox_words words;       /* seeded by the op's seed */
    float *distances, *trial, *best; /* squared distances to the nearest center so far */
    float *out;
};

/* trial[i] := the distance of point i if `center` were one of the centers. Returns their sum. */
static double try_center(const struct start *start, int64_t center, bool is_first) {
    double total = 0;
    for (int64_t i = 0; i < start->n_points && pool_goes_on_rows(i + 1, start->n_dims); i++) {
        const float *point = start->points + i * start->n_dims;
        float d =
            (float)squared_distance(point, start->points + center * start->n_dims, start->n_dims);
        start->trial[i] = is_first || d < start->distances[i] ? d : start->distances[i];
        total += (double)start->trial[i];
    }
    return total;
}

static void keep(float **a, float **b) {
    float *kept = *a;
    *a = *b;
    *b = kept;
}

/* Draws some candidates and takes the best. The first center is drawn evenly, the others by
 * distance. */
static double choose_center(struct start *start, bool is_first, double total, float *out) {
    double least = 0;
    int64_t center = 0;
    for (int64_t retry = 0; retry <= start->n_retries; retry++) {
        int64_t candidate =
            is_first ? (int64_t)philox_words_below_u64(&start->words, (uint64_t)start->n_points)
                     : draw(&start->words, start->distances, start->n_points, total);
        double sum = try_center(start, candidate, is_first);
        /* any number of retries may be requested */
        if (retry % RETRIES_BETWEEN_LOOKS == RETRIES_BETWEEN_LOOKS - 1 &&
            kernel_is_cancelled(start->ctx))
            break;
        if (retry == 0 || sum < least) {
            least = sum;
            center = candidate;
            keep(&start->best, &start->trial);
        }
    }
    keep(&start->distances, &start->best);
    memcpy(out, start->points + center * start->n_dims, (size_t)start->n_dims * sizeof(float));
    return least;
}

static void choose_centers(struct start *start) {
    double total = 0;
    for (int64_t c = 0; c < start->n_wanted && !kernel_is_cancelled(start->ctx); c++)
        total = choose_center(start, c == 0, total, start->out + c * start->n_dims);
}

/* KmeansPlusPlusInitialization: chooses points as centers. Each is drawn with the square of its
 * distance to the centers before as weight, and the best of some tries is taken [Arthur,
 * Vassilvitskii: "k-means++: the advantages of careful seeding", 2007].
 *   points  float [n, d]    num_to_sample, seed, num_retries_per_sample  int64 scalars
 *   samples  float [num_to_sample, d]
 * Errors   INVALID_ARGUMENT   shapes; more centers than points */
static enum kernel_result plus_plus_compute(struct kernel_ctx *ctx) {
    static const char *const names[] = {"points", "num_to_sample", "seed",
                                        "num_retries_per_sample"};
    const struct tensor *points = kernel_input(ctx, 0);
    int64_t numbers[3];
    if (points->rank != 2)
        return kernel_fail(ctx, status_invalid("Input points should be a matrix."));
    for (int i = 0; i < 3; i++) {
        if (kernel_input(ctx, 1 + i)->rank != 0)
            return kernel_fail(ctx, status_invalid("Input %s should be a scalar.", names[1 + i]));
        numbers[i] = *(const int64_t *)tensor_cdata(kernel_input(ctx, 1 + i));
    }
    struct start start = {.ctx = ctx,
                          .points = tensor_cdata(points),
                          .n_points = tensor_dim(points, 0),
                          .n_dims = tensor_dim(points, 1)};
    start.n_wanted = numbers[0];
    start.words.next.key = (uint64_t)numbers[1];
    if (numbers[0] <= 0)
        return kernel_fail(ctx, status_invalid("Input num_to_sample should be positive."));
    if (start.n_points < numbers[0])
        return kernel_fail(
            ctx,
            status_invalid(
                "Input num_to_sample should not be larger than the number of points: %lld vs. %lld",
                (long long)numbers[0], (long long)start.n_points));
    start.n_retries = MAX(numbers[2], 0);
    if (numbers[2] < 0) /* a negative number asks for the usual number */
        start.n_retries = 2 + (int64_t)log((double)numbers[0]);
    int64_t dims[2] = {numbers[0], start.n_dims};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){2, dims}));
    struct tensor memory = TENSOR_INIT;
    KERNEL_TRY(ctx, scratch_new(ctx, DT_FLOAT, 3, start.n_points, &memory, &start.distances));
    start.trial = start.distances + start.n_points;
    start.best = start.trial + start.n_points;
    start.out = tensor_data(&ctx->outputs[0]);
    choose_centers(&start);
    tensor_clear(&memory);
    KERNEL_TRY(ctx, kernel_check_cancelled(ctx));
    return KERNEL_DONE;
}

/* KMC2ChainInitialization: chooses one point by a chain, which always moves to a farther point and
 * sometimes to a nearer one [Bachem, Lucic, Hassani, Krause: "Approximate k-means++ in sublinear
 * time", 2016].
 *   distances  float [n]    seed  int64, scalar    index  int64, scalar
 * Errors   INVALID_ARGUMENT   shapes; no points */
static enum kernel_result chain_compute(struct kernel_ctx *ctx) {
    const struct tensor *distances = kernel_input(ctx, 0), *seed = kernel_input(ctx, 1);
    if (distances->rank != 1)
        return kernel_fail(ctx, status_invalid("Input distances should be a vector."));
    if (seed->rank != 0)
        return kernel_fail(ctx, status_invalid("Input seed should be a scalar."));
    if (distances->n_elements == 0)
        return kernel_fail(ctx, status_invalid("Input distances should not be empty."));
    const float *d = tensor_cdata(distances);
    struct philox_words words = {.next = {.key = *(const uint64_t *)tensor_cdata(seed)}};
    int64_t at = 0;
    for (int64_t i = 1; i < distances->n_elements && pool_goes_on(i); i++) {
        /* A point of distance 0 is left at the first opportunity. */
        if ((double)d[i] > (double)d[at] * (double)philox_words_f32(&words))
            at = i;
    }
    tensor_init_scalar_i64(&ctx->outputs[0], at);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {"NearestNeighbors", .compute = nearest_compute},
    /* may be without an end: never folded */
    {"KmeansPlusPlusInitialization", .compute = plus_plus_compute, .flags = KERNEL_STATEFUL},
    {"KMC2ChainInitialization", .compute = chain_compute},
};
// clang-format on

const struct kernel_list kmeans_kernels = {rows, ARRAY_LEN(rows)};
