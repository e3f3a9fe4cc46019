/* Computes the weights of a resampled axis. With every method, an output position is a weighted sum
 * of neighbouring input positions. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/media/image.h"

/* The weights are not divided by a sum that is smaller than this. */
#define TINY_SUM (1000.0f * FLT_MIN)

static struct status *axis_new(int64_t n_in, int64_t n_out, int64_t stride,
                               struct image_axis *ret) {
    int64_t n = 0;
    *ret = (struct image_axis){.n_in = n_in, .n_out = n_out, .stride = stride, .cost = 1};
    if (mul_overflows_i64(n_out, MAX(stride, (int64_t)1), &n) || n > INT64_MAX / 64)
        return status_exhausted(
            "Resampling %lld positions by %lld weights each takes too much memory",
            (long long)n_out, (long long)stride);
    ret->first = calloc((size_t)n_out + 1, sizeof(*ret->first));
    ret->n_taps = calloc((size_t)n_out + 1, sizeof(*ret->n_taps));
    ret->weights = calloc((size_t)n + 1, sizeof(*ret->weights));
    if (ret->first && ret->n_taps && ret->weights)
        return NULL;
    image_axis_fini(ret);
    return status_exhausted("Resampling %lld positions by %lld weights each takes too much memory",
                            (long long)n_out, (long long)stride);
}

void image_axis_fini(struct image_axis *axis) {
    free(axis->first);
    free(axis->n_taps);
    free(axis->weights);
    *axis = (struct image_axis){0};
}

static int64_t clamp_index(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* Sets the weights of positions from, from + 1, …. Weights of positions outside of the axis are
 * added to those of its ends. */
static void set_taps(struct image_axis *axis, int64_t out, int64_t from, const float *weights,
                     int n) {
    int64_t first = clamp_index(from, axis->n_in);
    axis->first[out] = first;
    axis->n_taps[out] = clamp_index(from + n - 1, axis->n_in) - first + 1;
    for (int k = 0; k < n; k++)
        axis->weights[out * axis->stride + clamp_index(from + k, axis->n_in) - first] += weights[k];
}

float image_grid_scale(struct image_grid grid) {
    if (grid.align_corners && grid.n_out > 1)
        return (float)(grid.n_in - 1) / (float)(grid.n_out - 1);
    return (float)grid.n_in / (float)grid.n_out;
}

static float grid_position(struct image_grid grid, float scale, int64_t out) {
    return grid.half_pixel_centers ? ((float)out + 0.5f) * scale - 0.5f : (float)out * scale;
}

struct status *image_axis_bilinear(struct image_grid grid, struct image_axis *ret) {
    float scale = image_grid_scale(grid);
    TRY(axis_new(grid.n_in, grid.n_out, 2, ret));
    for (int64_t i = 0; i < grid.n_out; i++) {
        float at = grid_position(grid, scale, i), below = floorf(at), part = at - below;
        float weights[2] = {1.0f - part, part};
        set_taps(ret, i, (int64_t)below, weights, part > 0 ? 2 : 1);
    }
    ret->cost = 2;
    ret->is_linear = true;
    return NULL;
}

/* ---- bicubic [Keys 1981]: as in TensorFlow, weights are read from a table of 1024 steps ---- */

enum { CUBIC_STEPS = 1024 };

static float cubic_near(float a, float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
static float cubic_far(float a, float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

struct status *image_axis_bicubic(struct image_grid grid, struct image_axis *ret) {
    float scale = image_grid_scale(grid), a = grid.half_pixel_centers ? -0.5f : -0.75f;
    TRY(axis_new(grid.n_in, grid.n_out, 4, ret));
    for (int64_t i = 0; i < grid.n_out; i++) {
        float at = grid_position(grid, scale, i), below = floorf(at);
        float part = (float)lrintf((at - below) * CUBIC_STEPS) / CUBIC_STEPS, rest = 1.0f - part;
        float weights[4] = {cubic_far(a, part + 1), cubic_near(a, part), cubic_near(a, rest),
                            cubic_far(a, rest + 1)},
              sum = 0;
        int64_t from = (int64_t)below - 1;
        for (int k = 0; k < 4 && grid.half_pixel_centers; k++) {
            /* positions outside have no weight */
            weights[k] = from + k >= 0 && from + k < grid.n_in ? weights[k] : 0;
            sum += weights[k];
        }
        for (int k = 0; k < 4 && fabsf(sum) >= TINY_SUM; k++)
            weights[k] /= sum;
        set_taps(ret, i, from, weights, 4);
    }
    ret->cost = 4;
    return NULL;
}

/* ---- area: the mean of what an output position covers ---- */

struct status *image_axis_area(struct image_grid grid, struct image_axis *ret) {
    float scale = image_grid_scale(grid);
    int64_t reach = (int64_t)MIN(ceilf(scale) + 2.0f, (float)grid.n_in + 1.0f);
    TRY(axis_new(grid.n_in, grid.n_out, reach, ret));
    for (int64_t i = 0; i < grid.n_out; i++) {
        float begin = (float)i * scale, end = (float)(i + 1) * scale;
        int64_t first = (int64_t)floorf(begin), after = (int64_t)ceilf(end);
        ret->first[i] = clamp_index(first, grid.n_in);
        for (int64_t k = first; k < after; k++) {
            float weight = (float)k < begin
                               ? ((float)(k + 1) > end ? scale : (float)(k + 1) - begin)
                               : ((float)(k + 1) > end ? end - (float)k : 1.0f);
            int64_t tap = MIN(clamp_index(k, grid.n_in) - ret->first[i], reach - 1);
            ret->weights[i * reach + tap] += weight / scale;
            ret->n_taps[i] = MAX(ret->n_taps[i], tap + 1);
        }
        if (scale == 0) { /* an axis of size one with aligned corners, whose scale is 0 / 0 */
            ret->weights[i * reach] = NAN;
            ret->n_taps[i] = 1;
        }
    }
    ret->cost = (double)reach;
    return NULL;
}

/* ---- ScaleAndTranslate: any filter, which is wider where the image shrinks ---- */

static float filter_radius(enum image_filter filter) {
    static const float radii[] = {1, 3, 5, 1.5f, 0.5f, 1, 2, 2};
    return radii[filter];
}

static float lanczos(float radius, float x) {
    const float pi = 3.14159265359f;
    if (x > radius)
        return 0;
    return x <= 1e-3f ? 1.0f : radius * sinf(pi * x) * sinf(pi * x / radius) / (pi * pi * x * x);
}

static float filter_at(enum image_filter filter, float x) {
    float radius = filter_radius(filter), sigma = radius / 3.0f;
    switch (filter) {
    case FILTER_GAUSSIAN:
        return x >= radius ? 0 : expf(-x * x / (2.0f * sigma * sigma));
    case FILTER_BOX:
        return x < 0.5f ? 1.0f : x == 0.5f ? 0.5f : 0.0f;
    case FILTER_TRIANGLE:
        return x < 1.0f ? 1.0f - x : 0.0f;
    case FILTER_CUBIC:
        return x >= 2   ? 0
               : x >= 1 ? ((-0.5f * x + 2.5f) * x - 4.0f) * x + 2.0f
                        : (1.5f * x - 2.5f) * x * x + 1.0f;
    case FILTER_MITCHELL: /* Mitchell's B = C = 1/3 */
        return x >= 2   ? 0
               : x >= 1 ? (((-7.0f / 18.0f) * x + 2.0f) * x - 10.0f / 3.0f) * x + 16.0f / 9.0f
                        : (((7.0f / 6.0f) * x - 2.0f) * x) * x + 8.0f / 9.0f;
    default:
        return lanczos(radius, x);
    }
}

/* Converts a float to an index inside [0, n). A float far outside must not overflow before it is
 * limited. */
static int64_t index_of(float at, int64_t n) {
    return at <= 0 ? 0 : at >= (float)(n - 1) ? n - 1 : (int64_t)at;
}

struct status *image_axis_placed(const struct image_placement *placement, struct image_axis *ret) {
    float back = 1.0f / placement->scale, shift = -back * placement->translation;
    float width = placement->antialias ? MAX(back, 1.0f) : 1.0f,
          reach = filter_radius(placement->filter) * width;
    int64_t n_in = placement->n_in, stride = (int64_t)MIN(2.0f * ceilf(reach) + 1.0f, (float)n_in);
    stride = MIN(MAX(stride, (int64_t)1), n_in);
    TRY(axis_new(n_in, placement->n_out, stride, ret));
    for (int64_t i = 0; i < placement->n_out; i++) {
        float at = ((float)i + 0.5f) * back + shift, sum = 0, *weights = ret->weights + i * stride;
        if (!(at >= 0 && at <= (float)n_in))
            continue;
        int64_t first = index_of(ceilf(at - reach - 0.5f), n_in),
                last = index_of(floorf(at + reach - 0.5f), n_in);
        ret->first[i] = first;
        ret->n_taps[i] = MIN(MAX(last - first + 1, (int64_t)0), stride);
        for (int64_t k = 0; k < ret->n_taps[i]; k++) {
            weights[k] =
                filter_at(placement->filter, fabsf(((float)(first + k) + 0.5f - at) / width));
            sum += weights[k];
        }
        for (int64_t k = 0; k < ret->n_taps[i] && fabsf(sum) >= TINY_SUM; k++)
            weights[k] *= 1.0f / sum;
    }
    ret->cost = (double)stride;
    return NULL;
}
