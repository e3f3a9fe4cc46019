/* Runs AudioSpectrogram, which turns sound into energies of frequencies over time, and Mfcc, which
 * turns these into a few numbers that tell speech sounds apart [Davis, Mermelstein: "Comparison of
 * parametric representations for monosyllabic word recognition", 1980]. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/media/audio_internal.h"
#include "kernels/cpu/linalg/fft.h"
#include "kernels/kernel.h"
#include "kernels/support/scratch.h"

/* ---- AudioSpectrogram ---- */

struct spectrogram_state {
    int64_t window, stride, length; /* length: the transform's, a power of two */
    bool is_squared;
    double *hann;
    struct fft_plan *plan;
};

void audio_spectrogram_fini(void *arg) {
    struct spectrogram_state *state = arg;
    if (!state)
        return;
    free(state->hann);
    fft_plan_unref(state->plan);
    free(state);
}

struct status *audio_spectrogram_init(struct kernel_init *init) {
    struct spectrogram_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "window_size", &state->window));
    TRY(node_get_i(init->node, "stride", &state->stride));
    TRY(node_get_b(init->node, "magnitude_squared", &state->is_squared));
    if (state->window < 2 || state->stride < 1 || state->window > INT32_MAX / 4)
        return status_invalid(
            "Spectrogram initialization failed for window size %lld and stride %lld",
            (long long)state->window, (long long)state->stride);
    for (state->length = 1; state->length < state->window;)
        state->length *= 2;
    state->hann = malloc((size_t)state->window * sizeof(*state->hann));
    if (!state->hann)
        return status_exhausted("OOM for a window of %lld samples", (long long)state->window);
    for (int64_t i = 0; i < state->window; i++)
        state->hann[i] = 0.5 - 0.5 * cos(2 * M_PI * (double)i / (double)state->window);
    return fft_plan_get(state->length, &state->plan);
}

struct spectrogram_job {
    const struct kernel_ctx *ctx;
    const struct spectrogram_state *state;
    const float *x;
    float *y;
    int64_t n_channels, n_slices;
    struct status *_Atomic failure; /* the first failure of a share */
};

static void slice(const struct spectrogram_job *job, int64_t i, double complex *line,
                  double complex *scratch) {
    const struct spectrogram_state *state = job->state;
    int64_t channel = i / job->n_slices, first = i % job->n_slices * state->stride,
            bins = state->length / 2 + 1;
    for (int64_t k = 0; k < state->length; k++)
        line[k] = k < state->window
                      ? state->hann[k] * (double)job->x[(first + k) * job->n_channels + channel]
                      : 0;
    fft_run(state->plan, false, line, scratch);
    for (int64_t k = 0; k < bins; k++) {
        double re = creal(line[k]), im = cimag(line[k]), energy = re * re + im * im;
        job->y[i * bins + k] = (float)(state->is_squared ? energy : sqrt(energy));
    }
}

static void spectrogram_range(void *arg, int64_t begin, int64_t end) {
    struct spectrogram_job *job = arg;
    struct tensor memory = TENSOR_INIT;
    double complex *line;
    struct status *st =
        scratch_new(job->ctx, DT_COMPLEX128, 1,
                    job->state->length + fft_plan_scratch(job->state->plan), &memory, &line);
    for (int64_t i = begin; i < end && !st; i++)
        slice(job, i, line, line + job->state->length);
    tensor_clear(&memory);
    struct status *none = NULL;
    if (st && !atomic_compare_exchange_strong(&job->failure, &none, st))
        status_unref(st);
}

/* AudioSpectrogram: transforms windows of samples, `stride` apart, each multiplied with Hann's
 * window function.
 *   input         float [samples, channels]
 *   spectrogram   float [channels, slices, 1 + (window, rounded up to a power of two) / 2]
 * Errors   INVALID_ARGUMENT   another rank */
enum kernel_result audio_spectrogram(struct kernel_ctx *ctx) {
    const struct spectrogram_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0);
    if (x->rank != 2)
        return kernel_fail(
            ctx, status_invalid("input must be 2-dimensional, got shape %s", TENSOR_SHAPE_TEXT(x)));
    int64_t n_samples = tensor_dim(x, 0), rest = n_samples - state->window;
    struct spectrogram_job job = {
        .ctx = ctx, .state = state, .x = tensor_cdata(x), .n_channels = tensor_dim(x, 1)};
    job.n_slices = rest < 0 ? 0 : 1 + rest / state->stride;
    int64_t dims[3] = {job.n_channels, job.n_slices, state->length / 2 + 1};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){3, dims}));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, job.n_channels * job.n_slices, 20.0 * (double)state->length,
                      spectrogram_range, &job);
    KERNEL_TRY(ctx, job.failure);
    return KERNEL_DONE;
}

/* ---- Mfcc ---- */

struct mfcc_state {
    float low_hz, high_hz;
    int64_t n_bands, n_coefficients;
};

struct status *audio_mfcc_init(struct kernel_init *init) {
    struct mfcc_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_f(init->node, "lower_frequency_limit", &state->low_hz));
    TRY(node_get_f(init->node, "upper_frequency_limit", &state->high_hz));
    TRY(node_get_i(init->node, "filterbank_channel_count", &state->n_bands));
    return node_get_i(init->node, "dct_coefficient_count", &state->n_coefficients);
}

/* Bands are triangles over mels that overlap by half. A bin gives `weight` of its energy to its
 * band, and the rest to the next band. */
struct mfcc_plan {
    int64_t first, last; /* the bins that count, without the constant part */
    int64_t *band;       /* the band of each bin; -1 is the slope below the first band */
    double *weight;
    double *cosines; /* [coefficients, bands] */
};

static double mel_of(double hz) { return 1127.0 * log1p(hz / 700.0); }

static void plan_bands(const struct mfcc_state *state, int64_t n_bins, double hz_per_bin,
                       struct mfcc_plan *plan) {
    double low = mel_of((double)state->low_hz),
           spacing = (mel_of((double)state->high_hz) - low) / (double)(state->n_bands + 1);
    int64_t band = 0;
    for (int64_t i = 0; i < n_bins; i++) {
        double mel = mel_of((double)i * hz_per_bin);
        if (i < plan->first || i > plan->last)
            continue;
        while (band < state->n_bands && low + spacing * (double)(band + 1) < mel)
            band++;
        double center = low + spacing * (double)band, next = low + spacing * (double)(band + 1);
        plan->band[i] = band - 1;
        plan->weight[i] = (next - mel) / (next - center);
    }
}

static void plan_cosines(const struct mfcc_state *state, struct mfcc_plan *plan) {
    double norm = sqrt(2.0 / (double)state->n_bands), step = M_PI / (double)state->n_bands;
    for (int64_t i = 0; i < state->n_coefficients; i++)
        for (int64_t j = 0; j < state->n_bands; j++)
            plan->cosines[i * state->n_bands + j] =
                norm * cos((double)i * step * ((double)j + 0.5));
}

struct mfcc_job {
    const struct mfcc_state *state;
    const struct mfcc_plan *plan;
    const float *x;
    float *y;
    int64_t n_bins;
    double *energies; /* [lines, bands] */
};

static void mfcc_range(void *arg, int64_t begin, int64_t end) {
    static const double least = 1e-12; /* added so that silence has a logarithm */
    const struct mfcc_job *job = arg;
    const struct mfcc_plan *plan = job->plan;
    int64_t n_bands = job->state->n_bands, n = job->state->n_coefficients;
    for (int64_t line = begin; line < end; line++) {
        const float *x = job->x + line * job->n_bins;
        double *energies = job->energies + line * n_bands;
        memset(energies, 0, (size_t)n_bands * sizeof(*energies));
        for (int64_t i = plan->first; i <= plan->last && plan->last < job->n_bins; i++) {
            double v = sqrt((double)x[i]), part = v * plan->weight[i];
            if (plan->band[i] >= 0)
                energies[plan->band[i]] += part;
            if (plan->band[i] + 1 < n_bands)
                energies[plan->band[i] + 1] += v - part;
        }
        for (int64_t j = 0; j < n_bands; j++)
            energies[j] = log(energies[j] < least ? least : energies[j]);
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t j = 0; j < n_bands; j++)
                sum += plan->cosines[k * n_bands + j] * energies[j];
            job->y[line * n + k] = (float)sum;
        }
    }
}

/* Two attrs of a few bytes decide how many cosines there are. This limit is 128 MiB of them. */
enum { MFCC_MAX_COSINES = 1 << 24 };

static struct status *check_mfcc(const struct mfcc_state *state, int64_t n_bins, int32_t rate) {
    bool is_fine = state->n_bands >= 1 && rate > 0 && n_bins >= 2 && state->low_hz >= 0 &&
                   state->high_hz > state->low_hz;
    if (!is_fine || state->n_coefficients < 1 || state->n_coefficients > state->n_bands)
        return status_invalid(
            "Mfcc initialization failed for channel count %lld, sample rate %d, lower frequency "
            "limit %g, upper frequency "
            "limit %g, filterbank channel count %lld, and dct coefficient count %lld",
            (long long)n_bins, rate, (double)state->low_hz, (double)state->high_hz,
            (long long)state->n_bands, (long long)state->n_coefficients);
    if (state->n_bands > MFCC_MAX_COSINES / state->n_coefficients)
        return status_exhausted(
            "Mfcc takes at most %d weights: filterbank_channel_count %lld times "
            "dct_coefficient_count %lld",
            MFCC_MAX_COSINES, (long long)state->n_bands, (long long)state->n_coefficients);
    return NULL;
}

/* Mfcc.
 *   spectrogram   float [channels, time, bins], energies
 *   sample_rate   int32, scalar
 *   output        float [channels, time, dct_coefficient_count]
 * Errors   INVALID_ARGUMENT     other ranks; attrs that make no bands
 *          RESOURCE_EXHAUSTED   more than MFCC_MAX_COSINES weights */
enum kernel_result audio_mfcc(struct kernel_ctx *ctx) {
    const struct mfcc_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0), *rate = kernel_input(ctx, 1);
    if (x->rank != 3)
        return kernel_fail(ctx, status_invalid("spectrogram must be 3-dimensional, got shape %s",
                                               TENSOR_SHAPE_TEXT(x)));
    if (rate->rank != 0)
        return kernel_fail(
            ctx, status_invalid("Input sample_rate should be a scalar tensor, got %s instead.",
                                TENSOR_SHAPE_TEXT(rate)));
    int32_t hz = *(const int32_t *)tensor_cdata(rate);
    int64_t n_bins = tensor_dim(x, 2), n_lines = n_bins > 0 ? x->n_elements / n_bins : 0;
    KERNEL_TRY(ctx, check_mfcc(state, n_bins, hz));
    int64_t dims[3] = {tensor_dim(x, 0), tensor_dim(x, 1), state->n_coefficients};
    double hz_per_bin = 0.5 * (double)hz / (double)(n_bins - 1),
           last = (double)state->high_hz / hz_per_bin;
    double first = 1.5 + (double)state->low_hz / hz_per_bin;
    struct mfcc_plan plan = {.first = (int64_t)fmin(first, 1e9), .last = (int64_t)fmin(last, 1e9)};
    struct mfcc_job job = {.state = state, .plan = &plan, .x = tensor_cdata(x), .n_bins = n_bins};
    struct tensor memory[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    struct status *st = NULL;
    TRY_OUT(kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){3, dims}));
    TRY_OUT(scratch_new(ctx, DT_INT64, 1, n_bins, &memory[0], &plan.band));
    TRY_OUT(scratch_new(ctx, DT_DOUBLE, 1, n_bins, &memory[1], &plan.weight));
    TRY_OUT(scratch_new(ctx, DT_DOUBLE, state->n_coefficients, state->n_bands, &memory[2],
                        &plan.cosines));
    TRY_OUT(scratch_new(ctx, DT_DOUBLE, n_lines, state->n_bands, &memory[3], &job.energies));
    plan_bands(state, n_bins, hz_per_bin, &plan);
    plan_cosines(state, &plan);
    job.y = tensor_data(&ctx->outputs[0]);
    double cost = 3.0 * (double)n_bins + 20.0 * (double)state->n_bands +
                  (double)state->n_bands * (double)state->n_coefficients;
    pool_parallel_for(ctx->pool, n_lines, cost, mfcc_range, &job);
out:
    for (int i = 0; i < 4; i++)
        tensor_clear(&memory[i]);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
