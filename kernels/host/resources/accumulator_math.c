/* Adds and divides gradients in their own type. A half is rounded after each addition. */
#include "common/tensor/float16.h"
#include "kernels/host/resources/accumulator.h"

VECTOR_CLONES static void add_f32(float *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}
VECTOR_CLONES static void add_f64(double *to, const double *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}
static void add_f16(uint16_t *to, const uint16_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = half_from_float(half_to_float(to[i]) + half_to_float(from[i]));
}

void accumulator_add(enum dtype dtype, void *to, const void *from, int64_t n) {
    if (dtype == DT_FLOAT)
        add_f32(to, from, n);
    else if (dtype == DT_DOUBLE)
        add_f64(to, from, n);
    else
        add_f16(to, from, n);
}

VECTOR_CLONES static void divide_f32(float *values, int64_t n, float by) {
    for (int64_t i = 0; i < n; i++)
        values[i] /= by;
}
VECTOR_CLONES static void divide_f64(double *values, int64_t n, double by) {
    for (int64_t i = 0; i < n; i++)
        values[i] /= by;
}
static void divide_f16(uint16_t *values, int64_t n, float by) {
    float rounded = half_to_float(half_from_float(by));
    for (int64_t i = 0; i < n; i++)
        values[i] = half_from_float(half_to_float(values[i]) / rounded);
}

void accumulator_divide(enum dtype dtype, void *values, int64_t n, int64_t by) {
    if (dtype == DT_FLOAT)
        divide_f32(values, n, (float)by);
    else if (dtype == DT_DOUBLE)
        divide_f64(values, n, (double)by);
    else
        divide_f16(values, n, (float)by);
}
