/* Reads sizes that are the values of an input; see dims.h. */
#include "kernels/support/dims.h"

struct status *dims_read(const struct tensor *t, const char *what, struct dims *ret) {
    if (t->rank > 1 || t->n_elements > SHAPE_MAX_RANK)
        return status_invalid("%s must be a vector of at most %d sizes, got shape %s", what,
                              SHAPE_MAX_RANK, TENSOR_SHAPE_TEXT(t));
    ret->rank = (int)t->n_elements;
    for (int i = 0; i < ret->rank; i++) {
        ret->at[i] = tensor_index_at(t, i);
        if (ret->at[i] < 0)
            return status_invalid("Dimension %lld must be >= 0 (%s)", (long long)ret->at[i], what);
    }
    return NULL;
}

struct status *dims_of_fill(const struct tensor *sizes, const struct tensor *value,
                            struct dims *ret) {
    if (sizes->rank != 1)
        return status_invalid("dims must represent a vector, got shape %s",
                              TENSOR_SHAPE_TEXT(sizes));
    if (value->rank != 0 && !(value->rank == 1 && value->n_elements == 1))
        return status_invalid("value must represent a scalar, got shape %s",
                              TENSOR_SHAPE_TEXT(value));
    return dims_read(sizes, "dims", ret);
}
