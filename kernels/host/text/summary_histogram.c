/* Computes HistogramSummary, which counts values in buckets. The buckets' limits grow by a tenth,
 * from 1e-12 to 1e20, on both sides of 0. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "kernels/host/text/summary_internal.h"

enum { MAX_LIMITS = 2048 };
enum {
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX,
    HISTOGRAM_NUM,
    HISTOGRAM_SUM,
    HISTOGRAM_SUM_SQUARES,
    HISTOGRAM_LIMITS,
    HISTOGRAM_BUCKETS
};

/* Bucket i counts values that are at least limits[i - 1] and less than limits[i]. */
static double limits[MAX_LIMITS];
static int n_limits;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_limits(void) {
    double up[MAX_LIMITS / 2];
    int n = 0;
    for (double v = 1e-12; v < 1e20; v *= 1.1)
        up[n++] = v;
    up[n++] = DBL_MAX;
    for (int i = n; i-- > 0;)
        limits[n_limits++] = -up[i];
    limits[n_limits++] = 0;
    for (int i = 0; i < n; i++)
        limits[n_limits++] = up[i];
}

static int bucket_of(double v) {
    int begin = 0, end = n_limits;
    while (begin < end) {
        int middle = begin + (end - begin) / 2;
        if (v < limits[middle])
            end = middle;
        else
            begin = middle + 1;
    }
    return MIN(begin, n_limits - 1);
}

struct histogram {
    double min, max, n, sum, sum_squares, buckets[MAX_LIMITS];
};

static void add_packed(struct str *out, uint32_t number, const double *values, int n) {
    /* little-endian, as this machine */
    proto_add_bytes(out, number, values, (size_t)n * sizeof(*values));
}

/* Runs of empty buckets become one. */
static void add_buckets(const struct histogram *histogram, struct str *out) {
    double *ends = xcalloc((size_t)n_limits, sizeof(*ends)),
           *counts = xcalloc((size_t)n_limits, sizeof(*counts));
    int n = 0;
    for (int i = 0; i < n_limits; i++) {
        bool extends = n > 0 && counts[n - 1] <= 0 && histogram->buckets[i] <= 0;
        n += !extends;
        ends[n - 1] = limits[i];
        counts[n - 1] = histogram->buckets[i];
    }
    add_packed(out, HISTOGRAM_LIMITS, ends, n);
    add_packed(out, HISTOGRAM_BUCKETS, counts, n);
    free(ends);
    free(counts);
}

static struct status *count(const struct kernel_ctx *ctx, const struct tensor *values,
                            struct histogram *histogram) {
    for (int64_t i = 0; i < values->n_elements; i++) {
        double v = summary_number_at(values, i);
        if (isnan(v))
            return status_invalid("Nan in summary histogram for: %s", ctx->instance->node->name);
        if (isinf(v))
            return status_invalid("Infinity in summary histogram for: %s",
                                  ctx->instance->node->name);
        histogram->buckets[bucket_of(v)] += 1;
        histogram->min = MIN(histogram->min, v);
        histogram->max = MAX(histogram->max, v);
        histogram->n += 1;
        histogram->sum += v;
        histogram->sum_squares += v * v;
    }
    return NULL;
}

struct status *summary_add_histogram(const struct kernel_ctx *ctx, struct span tag,
                                     const struct tensor *values, struct str *out) {
    pthread_once(&once, make_limits);
    struct histogram *histogram = xcalloc(1, sizeof(*histogram));
    histogram->min = DBL_MAX;
    histogram->max = -DBL_MAX;
    struct status *st = count(ctx, values, histogram);
    if (!st) {
        size_t value = proto_begin(out, SUMMARY_VALUE, 1024);
        if (tag.len > 0)
            proto_add_bytes(out, VALUE_TAG, tag.data, tag.len);
        size_t begin = proto_begin(out, VALUE_HISTOGRAM, 1024);
        summary_add_double(out, HISTOGRAM_MIN, histogram->min);
        summary_add_double(out, HISTOGRAM_MAX, histogram->max);
        summary_add_double(out, HISTOGRAM_NUM, histogram->n);
        summary_add_double(out, HISTOGRAM_SUM, histogram->sum);
        summary_add_double(out, HISTOGRAM_SUM_SQUARES, histogram->sum_squares);
        add_buckets(histogram, out);
        proto_end(out, begin, 1024);
        proto_end(out, value, 1024);
    }
    free(histogram);
    return st;
}

/* HistogramSummary
 *   tag       string, scalar
 *   values    T, any shape
 *   summary   string, scalar: a Summary with one histogram
 * Errors   INVALID_ARGUMENT   a tag that is no scalar; NaN or infinity among the values */
enum kernel_result summary_histogram(struct kernel_ctx *ctx) {
    struct span tag;
    struct str out = STR_INIT;
    KERNEL_TRY(ctx, summary_scalar_text(ctx, 0, "tags", &tag));
    struct status *st = summary_add_histogram(ctx, tag, kernel_input(ctx, 1), &out);
    return st ? kernel_fail(ctx, st) : summary_end(ctx, &out);
}
