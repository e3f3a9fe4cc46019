/* Holds the helpers that array_internal.h declares. */
#include "kernels/cpu/array/array_internal.h"

#include <stdlib.h>

void array_pass_as(struct kernel_ctx *ctx, int input, int output, struct shape shape) {
    struct tensor *in = &ctx->inputs[input], *out = &ctx->outputs[output];
    /* The sizes may be stored in the input, and the output is another tensor: copy them before the
     * input is released. */
    int64_t *old_dims = in->rank > TENSOR_INLINE_RANK ? in->long_dims : NULL;
    out->dtype = in->dtype;
    out->rank = (uint8_t)shape.rank;
    out->storage = in->storage;
    memset(out->reserved, 0, sizeof(out->reserved));
    out->n_elements = in->n_elements;
    memcpy(out->bytes, in->bytes, sizeof(out->bytes));
    int64_t *dims = out->dims;
    if (shape.rank > TENSOR_INLINE_RANK)
        dims = out->long_dims = xmalloc((size_t)shape.rank * sizeof(*dims));
    if (shape.rank > 0)
        memcpy(dims, shape.dims, (size_t)shape.rank * sizeof(*dims));
    free(old_dims);
    in->storage = TENSOR_NONE;
    in->rank = 0;
}
