/* The functions of the rows of segments and counts (kernels/cuda/rows/select.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SEGMENTS_H
#define MILLRACE_KERNELS_CUDA_OPS_SEGMENTS_H

#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/segments_args.h"
#include "kernels/kernel.h"
#include "kernels/support/update.h"

/* What a row's arg is. */
struct segments_op {
    enum update_op op;
    enum segments_scale scale;
    bool is_sparse; /* input 1 names the rows, and input 2 has the ids */
};
extern const struct segments_op segments_sum, segments_mean, segments_prod, segments_min,
    segments_max, segments_sparse_sum, segments_sparse_mean, segments_sparse_sqrt_n;
/* May answer KERNEL_PENDING. */
kernel_fn segments_compute, segments_grad;

/* The form of blocks that reduce n_segments runs of n_places rows in all, of `inner` elements each:
 * how many columns a block has, and how many threads share a run (struct runs_args). */
struct gpu_grid segments_grid(int64_t n_segments, int64_t inner, int64_t n_places,
                              int64_t *ret_width, int64_t *ret_n_lanes);
/* Reduces runs of n_places rows in all. The function sets the block's form in *args. */
struct status *segments_run(struct kernel_ctx *ctx, enum dtype dtype, struct runs_args *args,
                            int64_t n_places) MUST_USE;

/* Bincount, DenseBincount, HistogramFixedWidth, InTopK. */
struct status *count_init_bins(struct kernel_init *init);
struct status *count_init_in_top_k(struct kernel_init *init);
kernel_fn count_bins, count_histogram, count_in_top_k;
/* LowerBound, UpperBound: the row's arg is NULL for the lower one. Bucketize. */
struct status *count_init_bucketize(struct kernel_init *init);
kernel_fn count_search, count_bucketize;
kernel_fn count_cross; /* its init is gpu_init_function */
/* CheckNumerics, CheckNumericsV2 (arg is not NULL); it answers KERNEL_PENDING. */
struct status *check_numbers_init(struct kernel_init *init);
kernel_fn check_numbers;
kernel_fn sparse_reorder;

#endif
