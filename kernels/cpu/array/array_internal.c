/* Helpers of the array family (array_internal.h). */
#include "kernels/cpu/array/array_internal.h"

#include "common/tensor/float16.h"

#include <stdio.h>
#include <stdlib.h>

int64_t array_int_at(const struct tensor *t, int64_t i) {
    const void *data = tensor_cdata(t);
    switch (t->dtype) {
    case DT_INT32:
        return ((const int32_t *)data)[i];
    case DT_INT64:
    case DT_UINT64:
        return ((const int64_t *)data)[i];
    case DT_INT16:
        return ((const int16_t *)data)[i];
    case DT_INT8:
        return ((const int8_t *)data)[i];
    case DT_UINT8:
        return ((const uint8_t *)data)[i];
    case DT_UINT16:
        return ((const uint16_t *)data)[i];
    case DT_UINT32:
        return ((const uint32_t *)data)[i];
    default:
        return 0;
    }
}

double array_real_at(const struct tensor *t, int64_t i) {
    const void *data = tensor_cdata(t);
    switch (t->dtype) {
    case DT_DOUBLE:
        return ((const double *)data)[i];
    case DT_FLOAT:
        return ((const float *)data)[i];
    case DT_HALF:
        return half_to_float(((const uint16_t *)data)[i]);
    case DT_BFLOAT16:
        return bfloat16_to_float(((const uint16_t *)data)[i]);
    default:
        return (double)array_int_at(t, i);
    }
}

struct shape_name array_shape_name(struct shape shape) {
    struct shape_name name;
    struct str text = STR_INIT;
    shape_print(shape, &text);
    snprintf(name.text, sizeof(name.text), "%s", str_text(&text));
    str_fini(&text);
    return name;
}

void array_pass_as(struct kernel_ctx *ctx, int input, int output, struct shape shape) {
    struct tensor *in = &ctx->inputs[input], *out = &ctx->outputs[output];
    /* The sizes may lie in the input itself, and the output's place is not the input's: copy before letting go. */
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

struct status *array_init_int_attr(struct kernel_init *init, const char *name) {
    int64_t value;
    TRY(node_get_i(init->node, name, &value));
    init->state = xmalloc(sizeof(value));
    *(int64_t *)init->state = value;
    return NULL;
}
