/* Runs DataFormatDimMap and DataFormatVecPermute: converts indices and vectors that refer to the
 * dimensions of one data format to another format.
 *
 *   DimMap       x T [...]: indices of dimensions of src_format → those of dst_format
 *   VecPermute   x T [n] or [n, 2]: an entry for each dimension; n is the number of dimensions of
 *                the formats, or of their spatial dimensions alone
 *
 * Errors   INVALID_ARGUMENT   formats that are no permutation of each other, inputs of another
 *                             size */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/moves.h"

enum { MAX_FORMAT = 5 };

struct data_format_state {
    char src[MAX_FORMAT + 1], dst[MAX_FORMAT + 1];
    int n;
};

static bool is_permutation(const char *a, const char *b) {
    if (strlen(a) != strlen(b))
        return false;
    for (const char *c = a; *c; c++) {
        if (!strchr(b, *c) || strchr(c + 1, *c))
            return false;
    }
    return true;
}

static struct status *read_format(const struct node *node, const char *attr, const char *what,
                                  char *ret) {
    struct span text;
    TRY(node_get_s(node, attr, &text));
    if (text.len != 4 && text.len != 5)
        return status_invalid("%s must be of length 4 or 5, received %s = %.*s", what, attr,
                              (int)text.len, text.data);
    memcpy(ret, text.data, text.len);
    return NULL;
}

struct status *data_format_init(struct kernel_init *init) {
    struct data_format_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(read_format(init->node, "src_format", "Source format", state->src));
    TRY(read_format(init->node, "dst_format", "Destination format", state->dst));
    state->n = (int)strlen(state->src);
    if (!is_permutation(state->src, state->dst))
        return status_invalid(
            "Destination and source format must determine a permutation, got %s and %s", state->src,
            state->dst);
    return NULL;
}

enum kernel_result data_format_dim_map(struct kernel_ctx *ctx) {
    const struct data_format_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0);
    struct device_renumber job = {
        .dtype = tensor_dtype(x), .n = x->n_elements, .n_numbers = state->n};
    for (int dim = 0; dim < state->n; dim++)
        job.numbers[dim] = strchr(state->dst, state->src[dim]) - state->dst;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)x->dtype, tensor_shape(x)));
    void *y = tensor_data(&ctx->outputs[0]);
    if (kernel_is_for_device(ctx)) {
        job.to = y;
        job.from = tensor_cdata(x);
        if (job.n > 0)
            KERNEL_TRY(ctx, ctx->instance->engine->renumber(ctx, &job));
        return KERNEL_DONE;
    }
    for (int64_t i = 0; i < x->n_elements && pool_goes_on(i + 1); i++) {
        int64_t dim = tensor_index_at(x, i);
        dim %= state->n; /* an index beyond the dimensions wraps around, as in TensorFlow */
        int64_t mapped = job.numbers[dim < 0 ? dim + state->n : dim];
        if (x->dtype == DT_INT32)
            ((int32_t *)y)[i] = (int32_t)mapped;
        else
            ((int64_t *)y)[i] = mapped;
    }
    return KERNEL_DONE;
}

/* Writes the format without batch and channels. */
static void keep_spatial(const char *format, char *ret) {
    for (; *format; format++) {
        if (*format != 'N' && *format != 'C')
            *ret++ = *format;
    }
    *ret = 0;
}

enum kernel_result data_format_vec_permute(struct kernel_ctx *ctx) {
    const struct data_format_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0);
    if (x->rank != 1 && x->rank != 2)
        return kernel_fail(
            ctx, status_invalid("input must be a vector or 2D tensor, but got shape of rank %d",
                                x->rank));
    int n = state->n;
    int64_t rows = tensor_dim(x, 0), columns = x->rank == 2 ? tensor_dim(x, 1) : 1;
    char src[MAX_FORMAT + 1], dst[MAX_FORMAT + 1];
    memcpy(src, state->src, sizeof(src));
    memcpy(dst, state->dst, sizeof(dst));
    if (rows == n - 2) {
        keep_spatial(state->src, src);
        keep_spatial(state->dst, dst);
    } else if (rows != n) {
        return kernel_fail(ctx,
                           status_invalid("%dD input must be of size %d or %d, but got %lld rows",
                                          x->rank, n - 2, n, (long long)rows));
    }
    if (columns != (x->rank == 2 ? 2 : 1))
        return kernel_fail(
            ctx, status_invalid("Second dimension of 2D input must be of size 2, but got %lld",
                                (long long)columns));
    if ((int64_t)strlen(src) != rows || !is_permutation(src, dst))
        return kernel_fail(
            ctx, status_invalid(
                     "Destination and source format must determine a permutation, got %s and %s",
                     src, dst));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)x->dtype, tensor_shape(x)));
    struct moves moves;
    moves_begin(&moves, ctx, (enum dtype)x->dtype);
    for (int64_t i = 0; i < rows; i++) {
        struct strided s;
        strided_init(&s);
        strided_add(&s, columns, 1, 1);
        moves_add(&moves, &s, tensor_at(&ctx->outputs[0], (strchr(dst, src[i]) - dst) * columns),
                  tensor_cat(x, i * columns));
    }
    KERNEL_TRY(ctx, moves_end(&moves));
    return KERNEL_DONE;
}
