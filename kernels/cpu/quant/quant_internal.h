/* What the quantization kernels share. A quantized tensor holds codes, numbers of few bits that
 * stand for reals of a range.
 *
 * A code of a type with codes lowest … highest stands for a real on the line through (lowest, min)
 * and (highest, max). Loops take codes as int32 and reals as float, block by block, so that a
 * formula is written once instead of once per type. */
#ifndef MILLRACE_KERNELS_CPU_QUANT_QUANT_INTERNAL_H
#define MILLRACE_KERNELS_CPU_QUANT_QUANT_INTERNAL_H

#include <math.h>

#include "kernels/kernel.h"

enum { QUANT_BLOCK = 512 }; /* elements; a few such blocks fit into the first-level cache */

struct quant_type {
    int n_bits;
    int64_t lowest, highest;
};
struct quant_type quant_type_of(enum dtype dtype); /* qint8, quint8, qint16, quint16, qint32 */

/* Read and write codes of these types. A store keeps the low bits. */
void quant_codes_load(enum dtype dtype, int32_t *to, const void *from, int64_t first, int64_t n);
void quant_codes_store(enum dtype dtype, void *to, int64_t first, const int32_t *from, int64_t n);

/* Converts as x86 does: a value that does not fit, or NaN, becomes the least int32. */
static inline int32_t quant_code_of_float(float v) {
    return v >= -2147483648.0f && v < 2147483648.0f ? (int32_t)v : INT32_MIN;
}
/* Clamps v; NaN stays NaN. */
static inline float quant_clamp(float v, float low, float high) {
    v = v > high ? high : v;
    return v < low ? low : v;
}

/* ---- conversions by a range, rounded so that 0 is a code (mode MIN_FIRST, and all arithmetic on
 * codes) ---- */

struct quant_to_float {
    float base, step; /* of code c: base + c · step */
};
struct quant_to_code {
    float steps;     /* units per real */
    float base;      /* subtracted after rounding */
    float low, high; /* codes, as floats that fit an int32 */
};
struct quant_to_float quant_to_float_of(enum dtype dtype, float min, float max);
struct quant_to_code quant_to_code_of(enum dtype dtype, float min, float max);
static inline float quant_float(const struct quant_to_float *map, int32_t code) {
    return map->base + (float)code * map->step;
}
static inline int32_t quant_code(const struct quant_to_code *map, float v) {
    return quant_code_of_float(
        quant_clamp(roundf(v * map->steps) - map->base, map->low, map->high));
}

/* Converts one number in double precision: the start of a range, or where 0 is. */
float quant_float_exact(enum dtype dtype, int32_t code, float min, float max);
int64_t quant_code_unclamped(enum dtype dtype, float v, float min, float max);
int32_t quant_code_exact(enum dtype dtype, float v, float min, float max);

/* Reads the only element of an input. Errors: INVALID_ARGUMENT "WHAT must be a scalar, …". */
struct status *quant_scalar(const struct kernel_ctx *ctx, int input, const char *what,
                            float *ret) MUST_USE;
/* Sets the outputs `first` and first + 1 to scalars. */
void quant_set_range(struct kernel_ctx *ctx, int first, float min, float max);

/* quant_fake.c */
struct status *quant_fake_init(struct kernel_init *init);
kernel_fn quant_fake, quant_fake_grad, quant_fake_channels, quant_fake_channels_grad;

/* quant_simulate.c */
struct status *quant_simulate_init(struct kernel_init *init);
kernel_fn quant_simulate, quant_simulate_grad;

/* quant_convert.c */
struct status *quant_convert_init(struct kernel_init *init);
kernel_fn quant_quantize, quant_dequantize;

/* quant_range.c */
kernel_fn quant_requantize, quant_used_range, quant_shrink_range;

/* quant_arith.c */
kernel_fn quant_relu, quant_bias_add, quant_add;
/* Reads the inputs x, y, min_x, max_x, min_y, max_y: the ranges in this order, and how the two
 * shapes broadcast. Errors: INVALID_ARGUMENT when a range is no scalar or is empty, when the shapes
 * do not fit, or when the result has no elements. */
struct broadcast;
struct status *quant_pairs_read(const struct kernel_ctx *ctx, float ranges[4],
                                struct broadcast *plan) MUST_USE;
/* Reads codes [first, first + n) of operand k as they are after broadcasting. n is at most
 * QUANT_BLOCK. */
void quant_gather(const struct broadcast *plan, int k, enum dtype dtype, const void *from,
                  int64_t first, int64_t n, int32_t *to);

/* quant_product.c */
struct status *quant_matmul_init(struct kernel_init *init);
struct status *quant_conv_init(struct kernel_init *init);
kernel_fn quant_matmul, quant_conv, quant_mul;

/* quant_pooling.c; its init is pooling_init */
kernel_fn quant_pooling;

/* quant_concat.c */
kernel_fn quant_concat, quant_reshape;

/* quant_norm.c */
struct status *quant_batch_norm_init(struct kernel_init *init);
struct status *quant_instance_norm_init(struct kernel_init *init);
kernel_fn quant_batch_norm, quant_instance_norm;

/* quant_resize.c */
struct status *quant_resize_init(struct kernel_init *init);
kernel_fn quant_resize;

/* quant_channels.c */
struct status *quant_channels_init(struct kernel_init *init); /* RequantizationRangePerChannel */
kernel_fn quant_used_range_channels, quant_requantize_channels;

#endif
