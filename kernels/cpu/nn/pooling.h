/* What the files of the pooling kernels share, and what quantized pooling uses. pooling_kernels.c
 * lists the rows. */
#ifndef MILLRACE_KERNELS_CPU_NN_POOLING_H
#define MILLRACE_KERNELS_CPU_NN_POOLING_H

#include "common/base/pool_cancel.h"
#include "common/ops/window.h"
#include "kernels/cpu/nn/conv.h"

enum pooling_kind {
    POOLING_MAX,
    POOLING_AVG,
    POOLING_MAX_GRAD,
    POOLING_MAX_GRAD_GRAD,
    POOLING_AVG_GRAD,
    POOLING_ARGMAX,
    POOLING_ARGMAX_GRAD
};

struct pooling_op {
    enum pooling_kind kind;
    int n_spatial;
    /* the input that holds ksize (the next one holds strides); 0 when both are attrs */
    int size_input;
};

enum { POOLING_USUAL_TAPS = 4 }; /* the taps of a 2 by 2 window, whose loops are unrolled */

/* Scratch memory of max_grad: for each tap, and for each channel. */
struct pooling_places {
    const void **taps;
    int32_t *at;
    void *best; /* 8 bytes for each channel */
};

/* The loops of one element type, over the channels of one position (pooling_loops.inc). half and
 * bfloat16 are computed in float. max computes n_positions contiguous positions, whose taps are
 * `step` elements apart. */
struct pooling_loops {
    void (*max)(const void *const *taps, int64_t n_taps, int64_t n_positions, int64_t step,
                int64_t n, void *out);
    void (*search)(const void *const *taps, int64_t n_taps, int64_t n, void *best, int32_t *at);
    void (*scatter)(void *const *to, const int32_t *at, int64_t n, const void *gradient);
    /* Gives the gradient of a maximum to the first tap that has it: stores it, and 0 at the other
     * taps, with is_only, when no tap belongs to two positions; adds it otherwise. n_taps > 0. */
    void (*max_grad)(const void *const *taps, void *const *to, int64_t n_taps, int64_t n_positions,
                     int64_t step, int64_t n, const void *gradient, bool is_only,
                     const struct pooling_places *places);
    void (*scatter_equal)(void *const *to, const void *const *taps, int64_t n_taps, int64_t n,
                          const void *out, const void *gradient);
    void (*gather_equal)(const void *const *from, const void *const *taps, int64_t n_taps,
                         int64_t n, const void *out, void *to);
    bool (*scatter_at)(void *to, int64_t n_to, const void *indices, bool is_wide, int64_t n,
                       const void *gradient);
};
extern const struct pooling_loops *const pooling_loops_of[DT_N_TYPES];
/* May a loop over windows go on to window i? False once nobody wants the result. A window takes up
 * to some microseconds. */
static inline bool pooling_goes_on(int64_t i) { return i % 1024 != 0 || !pool_is_unwanted(); }
/* Takes float, double, qint8 and quint8 and computes the mean of the taps, position by position as
 * max does. */
void pooling_mean(enum dtype dtype, const void *const *taps, int64_t n_taps, int64_t n_positions,
                  int64_t step, int64_t n, void *out);

/* One execution. All operands have one dtype. On a CPU it is not half or bfloat16, and channels are
 * last; a device takes any (device_engine.pool). */
struct pooling_job {
    const struct kernel_ctx *ctx;
    const struct conv_shape *shape; /* in_channels = out_channels */
    enum pooling_kind kind;
    int n_spatial;
    enum dtype dtype;
    const void *in, *out, *gradient; /* inputs of the op; NULL when the op does not have them */
    void *result;
    void *argmax; /* POOLING_ARGMAX: where the positions of the maxima are written */
    bool is_argmax_wide, counts_batch, is_channels_first;
    struct status *failure; /* the first failure of any share */
};
struct status *pooling_run(struct pooling_job *job) MUST_USE;

/* The args of the rows of MaxPool and MaxPoolV2. */
extern const struct pooling_op pooling_max_2d, pooling_max_2d_v2;
/* pooling_ops.c */
struct status *pooling_init(struct kernel_init *init);
kernel_fn pooling_compute, pooling_argmax_grad;

/* pooling_fractional.c */
struct status *fractional_init(struct kernel_init *init);
kernel_fn fractional_compute, fractional_grad_compute;

#endif
