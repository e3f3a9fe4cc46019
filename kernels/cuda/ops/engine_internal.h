/* What the files of the engine share. Any thread. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ENGINE_INTERNAL_H
#define MILLRACE_KERNELS_CUDA_OPS_ENGINE_INTERNAL_H

#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/picks_args.h"
#include "kernels/cuda/ops/pooling_args.h"
#include "kernels/support/device_engine.h"

/* Launches the kernel STEM_SUFFIX of the node's device. */
#define engine_launch(ctx, stem, suffix, grid, args) \
    engine_launch_bytes((ctx), (stem), (suffix), (grid), (args), GPU_ARGS_BYTES(args))
struct status *engine_launch_bytes(struct kernel_ctx *ctx, struct gpu_stem *stem,
                                   const char *suffix, struct gpu_grid grid, const void *args,
                                   size_t args_bytes) MUST_USE;
/* The same with threads for n pieces of work. */
#define engine_launch_for(ctx, stem, suffix, n, args) \
    engine_launch((ctx), (stem), (suffix), gpu_grid_for((ctx), (n)), (args))
/* The grid of a kernel whose slices have owners (owners.h), and the groups and parts of it. */
struct gpu_grid engine_owner_grid(const struct pick_slices *slices, int64_t *ret_n_groups,
                                  int64_t *ret_n_parts);

struct pick_scalar engine_scalar(const struct device_scalar *scalar);
struct pick_slices engine_slices(const struct device_slices *slices);
int64_t engine_index(enum dtype dtype); /* enum pick_index */
/* The widest size from element_bytes to 16 that divides len elements and all bits of `addresses`
 * (the pointers, or-ed together). */
size_t engine_widen(size_t element_bytes, int64_t len, uintptr_t addresses);

/* engine_convolve.c */
struct status *engine_convolve(struct kernel_ctx *ctx, const struct conv_job *job) MUST_USE;
/* engine_direct.c */
struct status *engine_convolve_directly(struct kernel_ctx *ctx,
                                        const struct conv_job *job) MUST_USE;
/* engine_depthwise.c */
struct status *engine_depthwise(struct kernel_ctx *ctx, const struct conv_job *job) MUST_USE;
/* engine_moves.c */
struct status *engine_move(struct kernel_ctx *ctx, size_t element_bytes,
                           const struct device_move *moves, int n) MUST_USE;
struct status *engine_zero(struct kernel_ctx *ctx, void *to, size_t size_bytes) MUST_USE;
/* engine_picks.c */
struct status *engine_gather(struct kernel_ctx *ctx, const struct device_gather *gather) MUST_USE;
struct status *engine_gather_slices(struct kernel_ctx *ctx, const struct device_slices *slices,
                                    size_t element_bytes, char *to, const char *from) MUST_USE;
struct status *engine_mirror_grad(struct kernel_ctx *ctx,
                                  const struct device_mirror *mirror) MUST_USE;
struct status *engine_one_hot(struct kernel_ctx *ctx,
                              const struct device_one_hot *one_hot) MUST_USE;
struct status *engine_renumber(struct kernel_ctx *ctx,
                               const struct device_renumber *renumber) MUST_USE;
struct status *engine_band(struct kernel_ctx *ctx, const struct device_band *band) MUST_USE;
struct status *engine_reverse_sequence(struct kernel_ctx *ctx,
                                       const struct device_reverse_sequence *reverse) MUST_USE;
struct status *engine_conjugate(struct kernel_ctx *ctx, enum dtype dtype, void *at,
                                int64_t n) MUST_USE;
struct status *engine_range(struct kernel_ctx *ctx, enum dtype dtype, const void *start,
                            const void *delta, void *to, int64_t n) MUST_USE;
/* engine_norm.c */
struct status *engine_batch_norm(struct kernel_ctx *ctx,
                                 const struct device_batch_norm *job) MUST_USE;
struct status *engine_batch_norm_grad(struct kernel_ctx *ctx,
                                      const struct device_batch_norm *job) MUST_USE;
struct status *engine_lrn(struct kernel_ctx *ctx, const struct device_lrn *job) MUST_USE;
/* engine_pooling.c */
struct window_grid engine_window_grid(const int64_t dims[3], int64_t batch, int64_t channels,
                                      bool is_channels_first);
struct status *engine_pool(struct kernel_ctx *ctx, const struct pooling_job *job) MUST_USE;
/* engine_pooling_images.c. engine_pools_images says whether engine_pool_images takes a job that
 * has fewer than 2^30 elements. */
bool engine_pools_images(const struct pooling_job *job);
struct status *engine_pool_images(struct kernel_ctx *ctx, const struct pooling_job *job) MUST_USE;
/* engine_updates.c */
struct status *engine_scatter(struct kernel_ctx *ctx, const struct device_scatter *job) MUST_USE;
struct status *engine_segments(struct kernel_ctx *ctx,
                               const struct device_segments *segments) MUST_USE;
struct status *engine_update(struct kernel_ctx *ctx, enum update_op op, enum dtype dtype, void *dst,
                             const void *a, const void *b, int64_t n) MUST_USE;
struct status *engine_train(struct kernel_ctx *ctx, const struct device_train *train) MUST_USE;
struct status *engine_advance(struct kernel_ctx *ctx, uint64_t *words, uint64_t n_blocks,
                              uint64_t *before) MUST_USE;
struct status *engine_multinomial(struct kernel_ctx *ctx,
                                  const struct device_multinomial *job) MUST_USE;
struct status *engine_gamma(struct kernel_ctx *ctx, const struct device_gamma *job) MUST_USE;
struct status *engine_parameterized(struct kernel_ctx *ctx,
                                    const struct device_parameterized *job) MUST_USE;
struct status *engine_random(struct kernel_ctx *ctx, const struct random_fill *fill,
                             const struct device_generator *generator, void *out,
                             int64_t n) MUST_USE;

#endif
