/* Resamples both axes of images: for each output row, sums the weighted input rows, then the
 * weighted columns of that sum.
 *
 * A unit of work is an output row (forward) or an image (backward, where rows of the output add to
 * the same rows of the input). */
#include <stdlib.h>

#include "kernels/cpu/media/image.h"

struct resample_job {
    const struct tensor *from;
    struct tensor *to;
    const struct image_axis *rows, *columns;
    int64_t channels;
};

VECTOR_CLONES
static void set_scaled(float *restrict sum, const float *restrict row, float weight, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sum[i] = weight * row[i];
}
VECTOR_CLONES
static void set_scaled_pair(float *restrict sum, const float *restrict a, float a_weight,
                            const float *restrict b, float b_weight, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sum[i] = a_weight * a[i] + b_weight * b[i];
}
VECTOR_CLONES
static void add_scaled(float *restrict sum, const float *restrict row, float weight, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        sum[i] += weight * row[i];
}

static void sum_rows(const struct resample_job *job, int64_t image, int64_t y, float *sum,
                     float *loaded) {
    const struct image_axis *rows = job->rows;
    int64_t n = job->columns->n_in * job->channels,
            first = (image * rows->n_in + rows->first[y]) * n;
    const float *weights = rows->weights + y * rows->stride;
    if (job->from->dtype == DT_FLOAT && rows->n_taps[y] == 2) {
        const float *row = (const float *)tensor_cdata(job->from) + first;
        set_scaled_pair(sum, row, weights[0], row + n, weights[1], n);
        return;
    }
    for (int64_t k = 0; k < rows->n_taps[y]; k++) {
        int64_t at = first + k * n;
        const float *row = loaded;
        if (job->from->dtype == DT_FLOAT)
            row = (const float *)tensor_cdata(job->from) + at;
        else
            image_load(job->from, at, n, loaded);
        if (k == 0)
            set_scaled(sum, row, weights[k], n);
        else
            add_scaled(sum, row, weights[k], n);
    }
    if (rows->n_taps[y] == 0)
        memset(sum, 0, (size_t)n * sizeof(float));
}

typedef float four_floats __attribute__((vector_size(16), aligned(4)));

/* Sums images of up to four channels, whose pixels are treated as four floats that may include the
 * beginning of the next pixel. Each pixel is overwritten by the next where it is too wide. `in` has
 * room for four floats from each pixel on, but `out` has room for n_out pixels only, so the last
 * few pixels are not computed. Bilinear weights have no loop over taps: where there is no second
 * tap, it has the weight 0 and the first tap's pixel. Returns how many pixels were computed. */
static int64_t sum_few_channels(const struct image_axis *columns, int64_t channels,
                                const float *sum, float *out) {
    int64_t x = 0, n = columns->n_out * channels / 4 > 0
                           ? (columns->n_out * channels - 4) / channels + 1
                           : 0;
    for (; columns->is_linear && x < n; x++, out += channels) {
        const float *in = sum + columns->first[x] * channels, *weights = columns->weights + x * 2;
        const float *next = in + (columns->n_taps[x] - 1) * channels;
        *(four_floats *)out =
            weights[0] * *(const four_floats *)in + weights[1] * *(const four_floats *)next;
    }
    for (; x < n; x++, out += channels) {
        const float *in = sum + columns->first[x] * channels,
                    *weights = columns->weights + x * columns->stride;
        four_floats total = {0};
        for (int64_t k = 0; k < columns->n_taps[x]; k++)
            total += weights[k] * *(const four_floats *)(in + k * channels);
        *(four_floats *)out = total;
    }
    return x;
}

static void sum_columns(const struct resample_job *job, const float *sum, float *out) {
    const struct image_axis *columns = job->columns;
    int64_t channels = job->channels,
            x = channels <= 4 ? sum_few_channels(columns, channels, sum, out) : 0;
    for (out += x * channels; x < columns->n_out; x++, out += channels) {
        const float *in = sum + columns->first[x] * channels,
                    *weights = columns->weights + x * columns->stride;
        for (int64_t c = 0; c < channels; c++)
            out[c] = 0;
        for (int64_t k = 0; k < columns->n_taps[x]; k++)
            add_scaled(out, in + k * channels, weights[k], channels);
    }
}

static void resample_range(void *arg, int64_t begin, int64_t end) {
    const struct resample_job *job = arg;
    int64_t n = job->columns->n_in * job->channels;
    enum { BEYOND = 4 }; /* floats after the sums that sum_few_channels may read */
    float *scratch = xcalloc((size_t)(2 * n + BEYOND), sizeof(float));
    for (int64_t i = begin; i < end; i++) {
        sum_rows(job, i / job->rows->n_out, i % job->rows->n_out, scratch, scratch + n + BEYOND);
        sum_columns(job, scratch,
                    (float *)tensor_data(job->to) + i * job->columns->n_out * job->channels);
    }
    free(scratch);
}

void image_resample(struct pool *pool, const struct tensor *input, const struct image_axis *rows,
                    const struct image_axis *columns, struct tensor *output) {
    struct resample_job job = {input, output, rows, columns, tensor_dim(input, 3)};
    if (output->n_elements == 0)
        return;
    double cost = (double)job.channels * (0.3 * rows->cost * (double)columns->n_in +
                                          columns->cost * (double)columns->n_out);
    pool_parallel_for(pool, tensor_dim(input, 0) * rows->n_out, cost, resample_range, &job);
}

/* ---- the transposed map ---- */

static void spread_columns(const struct resample_job *job, const float *grad, float *sum) {
    const struct image_axis *columns = job->columns;
    int64_t channels = job->channels;
    memset(sum, 0, (size_t)(columns->n_in * channels) * sizeof(float));
    for (int64_t x = 0; x < columns->n_out; x++, grad += channels) {
        float *to = sum + columns->first[x] * channels;
        const float *weights = columns->weights + x * columns->stride;
        for (int64_t k = 0; k < columns->n_taps[x]; k++)
            for (int64_t c = 0; c < channels; c++)
                to[k * channels + c] += weights[k] * grad[c];
    }
}

static void grad_range(void *arg, int64_t begin, int64_t end) {
    const struct resample_job *job = arg;
    const struct image_axis *rows = job->rows;
    int64_t n_row = job->columns->n_in * job->channels,
            n_grad = job->columns->n_out * job->channels, n_image = rows->n_in * n_row;
    float *scratch = xmalloc((size_t)(n_image + n_row + n_grad + 1) * sizeof(float));
    float *sum = scratch + n_image, *grad = sum + n_row;
    for (int64_t i = begin; i < end; i++) {
        memset(scratch, 0, (size_t)n_image * sizeof(float));
        for (int64_t y = 0; y < rows->n_out; y++) {
            image_load(job->from, (i * rows->n_out + y) * n_grad, n_grad, grad);
            spread_columns(job, grad, sum);
            for (int64_t k = 0; k < rows->n_taps[y]; k++)
                add_scaled(scratch + (rows->first[y] + k) * n_row, sum,
                           rows->weights[y * rows->stride + k], n_row);
        }
        image_store(job->to, i * n_image, n_image, scratch);
    }
    free(scratch);
}

void image_resample_grad(struct pool *pool, const struct tensor *grads,
                         const struct image_axis *rows, const struct image_axis *columns,
                         struct tensor *output) {
    struct resample_job job = {grads, output, rows, columns, tensor_dim(grads, 3)};
    if (output->n_elements == 0)
        return;
    double row = (double)job.channels * (columns->cost * (double)columns->n_out +
                                         0.3 * rows->cost * (double)columns->n_in);
    pool_parallel_for(pool, tensor_dim(grads, 0), row * (double)rows->n_out, grad_range, &job);
}
