/* What kernels/cpu/cost_estimates.c (estimates) and cost_rows.c (the CPU's cost rows) share. Each
 * function answers in nanoseconds, but for cost_bytes_gather. */
#ifndef MILLRACE_KERNELS_CPU_COST_ESTIMATES_H
#define MILLRACE_KERNELS_CPU_COST_ESTIMATES_H

#include "kernels/cost.h"

cost_fn cost_shape_in_0, cost_shape_in_0_and_values, cost_shape_in_1, cost_shape_in_1_and_all,
    cost_shape_in_2, cost_shape_in_3, cost_draws, cost_many_draws, cost_many_draws_in_2,
    cost_random_in_0, cost_random_in_2, cost_times_1, cost_sampled, cost_segments,
    cost_sparse_segments, cost_range, cost_ragged_range, cost_projected, cost_padded, cost_resized,
    cost_cropped, cost_diagonal, cost_diagonal_in, cost_diagonal_of_all, cost_all_inputs,
    cost_broadcast, cost_matrix_product, cost_einsum, cost_sparse_product, cost_gather,
    cost_gather_nd, cost_resource_gather, cost_resource_gather_nd, cost_bytes_gather,
    cost_tensor_array, cost_tensor_list, cost_text, cost_joined_segments, cost_fused;

#endif
