/* oneDNN's primitives of convolutions: one for each shape and direction, which all nodes, steps and
 * threads share. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_PRIMITIVE_H
#define MILLRACE_KERNELS_CPU_NN_CONV_PRIMITIVE_H

#include "kernels/cpu/nn/conv.h"
#include "kernels/cpu/onednn.h"

struct conv_primitive_key {
    struct conv_shape shape;
    int64_t direction;
};

/* A primitive is immutable once it is in the table. It is never freed then, since the table's size
 * is limited. */
struct conv_primitive {
    struct conv_primitive_key key;
    bool is_usable; /* false: oneDNN has no good implementation for the shape */
    bool reorders;  /* the primitive wants a filter layout of its own */
    dnnl_primitive_t compute, reorder;
    dnnl_memory_desc_t in, out, filter, own_filter, scratch;
    int64_t filter_bytes, scratch_bytes; /* the size of own_filter */
    struct conv_primitive *next;
};

/* Never NULL. *ret_owned is what the caller frees, and NULL when the table keeps the primitive. Any
 * thread. */
const struct conv_primitive *conv_primitive_obtain(const struct onednn *lib,
                                                   enum conv_direction direction,
                                                   const struct conv_shape *s,
                                                   struct conv_primitive **ret_owned);
void conv_primitive_free(const struct onednn *lib, struct conv_primitive *p);

#endif
