/* Reads and writes elements of image batches as floats, whatever their dtype. */
#include <stdlib.h>

#include "kernels/support/half_blocks.h"
#include "kernels/cpu/media/image.h"

#define LOAD(T)                                             \
    do {                                                    \
        const T *from = (const T *)tensor_cdata(t) + first; \
        for (int64_t i = 0; i < n; i++)                     \
            to[i] = (float)from[i];                         \
    } while (0)

void image_load(const struct tensor *t, int64_t first, int64_t n, float *to) {
    switch (t->dtype) {
    case DT_FLOAT:
        memcpy(to, (const float *)tensor_cdata(t) + first, (size_t)n * sizeof(float));
        break;
    case DT_HALF:
    case DT_BFLOAT16:
        half_block_load((enum dtype)t->dtype, to, (const uint16_t *)tensor_cdata(t) + first, n);
        break;
    case DT_DOUBLE:
        LOAD(double);
        break;
    case DT_INT8:
        LOAD(int8_t);
        break;
    case DT_UINT8:
        LOAD(uint8_t);
        break;
    case DT_INT16:
        LOAD(int16_t);
        break;
    case DT_UINT16:
        LOAD(uint16_t);
        break;
    case DT_INT32:
        LOAD(int32_t);
        break;
    case DT_UINT32:
        LOAD(uint32_t);
        break;
    case DT_INT64:
        LOAD(int64_t);
        break;
    default: /* the rows list only types that have a case */
        LOAD(uint64_t);
        break;
    }
}

void image_store(struct tensor *t, int64_t first, int64_t n, const float *from) {
    if (t->dtype == DT_FLOAT) {
        memcpy((float *)tensor_data(t) + first, from, (size_t)n * sizeof(float));
    } else if (t->dtype == DT_DOUBLE) {
        double *to = (double *)tensor_data(t) + first;
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i];
    } else {
        half_block_store((enum dtype)t->dtype, (uint16_t *)tensor_data(t) + first, from, n);
    }
}

const float *image_floats(const struct tensor *t, float **ret_owned) {
    *ret_owned = NULL;
    if (t->dtype == DT_FLOAT)
        return tensor_cdata(t);
    *ret_owned = xmalloc((size_t)MAX(t->n_elements, (int64_t)1) * sizeof(float));
    image_load(t, 0, t->n_elements, *ret_owned);
    return *ret_owned;
}

struct image_size image_size_of(const struct tensor *t) {
    return (struct image_size){tensor_dim(t, 0), tensor_dim(t, 1), tensor_dim(t, 2),
                               tensor_dim(t, 3)};
}
