/* What the files of the pooling family share: pooling_kernels.c lists the rows. (The threads' pool
 * is common/base/pool.h.) */
#ifndef MILLRACE_KERNELS_CPU_NN_POOLING_H
#define MILLRACE_KERNELS_CPU_NN_POOLING_H

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
    int size_input; /* the input that holds ksize, strides being the next; 0: both are attrs */
};

enum { POOLING_USUAL_TAPS = 4 }; /* of a window of 2 by 2: its loops are unrolled */

/* Loops by element type, over the channels of one place (pooling_loops.inc); no half or bfloat16,
 * which are taken through float. max goes over n_places in a row, each with its taps `step`
 * elements behind the last one's. */
struct pooling_loops {
    void (*max)(const void *const *taps, int64_t n_taps, int64_t n_places, int64_t step, int64_t n,
                void *out);
    void (*search)(const void *const *taps, int64_t n_taps, int64_t n, void *best, int32_t *at);
    void (*scatter)(void *const *to, const int32_t *at, int64_t n, const void *gradient);
    void (*scatter_equal)(void *const *to, const void *const *taps, int64_t n_taps, int64_t n,
                          const void *out, const void *gradient);
    void (*gather_equal)(const void *const *from, const void *const *taps, int64_t n_taps,
                         int64_t n, const void *out, void *to);
    bool (*scatter_at)(void *to, int64_t n_to, const void *indices, bool is_wide, int64_t n,
                       const void *gradient);
};
extern const struct pooling_loops *const pooling_loops_of[DT_N_TYPES];
/* Averages, of float, double, qint8 and quint8: the mean of the taps, place by place as max; and
 * of float and double its gradient given back to them: added, or where each has no other place,
 * stored. */
void pooling_mean(enum dtype dtype, const void *const *taps, int64_t n_taps, int64_t n_places,
                  int64_t step, int64_t n, void *out);
void pooling_mean_grad(enum dtype dtype, void *const *to, int64_t n_taps, int64_t n_places,
                       int64_t step, int64_t n, const void *gradient, bool is_only);

/* One execution, all operands of a plain dtype. */
struct pooling_job {
    const struct kernel_ctx *ctx;
    const struct conv_shape *shape; /* in_channels = out_channels */
    enum pooling_kind kind;
    int n_spatial;
    enum dtype dtype;
    const void *in, *out, *gradient; /* the op's; NULL where it has none */
    void *result;
    void *argmax; /* POOLING_ARGMAX: to be written */
    bool is_argmax_wide, counts_batch;
    struct status *failure; /* the first one of the shares */
};
struct status *pooling_run(struct pooling_job *job) MUST_USE;

/* pooling_ops.c */
struct status *pooling_init(struct kernel_init *init);
kernel_fn pooling_compute, pooling_argmax_grad;

/* pooling_fractional.c */
struct status *fractional_init(struct kernel_init *init);
kernel_fn fractional_compute, fractional_grad_compute;

#endif
