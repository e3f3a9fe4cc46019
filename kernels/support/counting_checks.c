/* Checks of histograms, searches and gradients of segments; see counting_checks.h. */
#include "kernels/support/counting_checks.h"

#include <math.h>

#include "common/tensor/element.h"

struct status *histogram_check(const struct kernel_ctx *ctx, struct histogram_bins *ret) {
    const struct tensor *range = kernel_input(ctx, 1), *n = kernel_input(ctx, 2);
    if (range->rank != 1 || range->n_elements != 2)
        return status_invalid("value_range should be a vector of 2 elements.");
    if (n->rank != 0)
        return status_invalid("nbins should be a scalar.");
    double low = tensor_real_at(range, 0), high = tensor_real_at(range, 1);
    if (!(low < high) || !isfinite(low) || !isfinite(high))
        return status_invalid(
            "value_range should satisfy value_range[0] < value_range[1], but got '[%g, %g]'", low,
            high);
    *ret = (struct histogram_bins){.low = low, .n = tensor_index_at(n, 0)};
    if (ret->n <= 0)
        return status_invalid("nbins should be a positive number, but got '%lld'",
                              (long long)ret->n);
    ret->step = (high - low) / (double)ret->n;
    return NULL;
}

struct status *bound_check(const struct kernel_ctx *ctx) {
    const struct tensor *sorted = kernel_input(ctx, 0), *values = kernel_input(ctx, 1);
    bool is_narrow = ctx->instance->out_types[0] == DT_INT32;
    if (sorted->rank != 2)
        return status_invalid("sorted input argument must be a matrix");
    if (values->rank != 2)
        return status_invalid("value argument must be a matrix");
    if (tensor_dim(sorted, 0) != tensor_dim(values, 0))
        return status_invalid("Leading dim_size of both tensors must match.");
    if (is_narrow && values->n_elements >= INT32_MAX)
        return status_invalid("values tensor size must less than %d", INT32_MAX);
    if (is_narrow && tensor_dim(sorted, 1) >= INT32_MAX)
        return status_invalid("trailing dim_size must less than %d for int32 output type",
                              INT32_MAX);
    return NULL;
}

struct status *segment_grad_check(const struct kernel_ctx *ctx, int64_t *ret_n_rows) {
    const struct tensor *grad = kernel_input(ctx, 0), *indices = kernel_input(ctx, 1),
                        *ids = kernel_input(ctx, 2), *n_rows = kernel_input(ctx, 3);
    if (n_rows->rank != 0)
        return status_invalid("output_dim0 should be a scalar, not shape %s",
                              TENSOR_SHAPE_TEXT(n_rows));
    if (indices->rank != 1)
        return status_invalid("indices should be a vector.");
    if (ids->rank != 1)
        return status_invalid("segment_ids should be a vector.");
    if (grad->rank < 1)
        return status_invalid("Shape must be at least rank 1");
    if (ids->n_elements != indices->n_elements)
        return status_invalid("segment_ids and indices should have same size.");
    *ret_n_rows = tensor_index_at(n_rows, 0);
    if (*ret_n_rows < 0)
        return status_invalid("Expected a non-negative size, got %lld", (long long)*ret_n_rows);
    return NULL;
}
