/* Reads an element of any numeric dtype as an integer or a double (element.h). */
#include "common/tensor/element.h"

#include "common/tensor/float16.h"

int64_t tensor_int_at(const struct tensor *t, int64_t i) {
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

double tensor_real_at(const struct tensor *t, int64_t i) {
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
        return (double)tensor_int_at(t, i);
    }
}

void element_set_one(enum dtype dtype, void *value_) {
    char *value = value_;
    memset(value, 0, 16);
    float one_f = 1;
    double one_d = 1;
    uint16_t half_bits = dtype == DT_HALF ? 0x3c00 : 0x3f80;
    switch (dtype) {
    case DT_FLOAT:
    case DT_COMPLEX64:
        memcpy(value, &one_f, sizeof(one_f));
        break;
    case DT_DOUBLE:
    case DT_COMPLEX128:
        memcpy(value, &one_d, sizeof(one_d));
        break;
    case DT_HALF:
    case DT_BFLOAT16:
        memcpy(value, &half_bits, sizeof(half_bits));
        break;
    default: /* integers and bool, little-endian */
        value[0] = 1;
    }
}
