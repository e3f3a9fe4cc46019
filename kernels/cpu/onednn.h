/* The one home of oneDNN: loaded with dlopen at first use, because the library takes tens of
 * megabytes and a daemon that convolves nothing must stay small. Where it is missing, callers
 * use their own loops. Any thread.
 *
 * Debian's library runs its own threads (OpenMP). Ours has one pool: onednn_get sets the calling
 * thread to one OpenMP thread, so that a primitive, made and executed after it, stays on that
 * thread; callers split work over the pool themselves. */
#ifndef MILLRACE_KERNELS_CPU_ONEDNN_H
#define MILLRACE_KERNELS_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "common/base/base.h"

/* Each member is the function dnnl_NAME. */
#define ONEDNN_FUNCTIONS(X)                        \
    X(sgemm)                                       \
    X(engine_create)                               \
    X(stream_create)                               \
    X(memory_desc_init_by_strides)                 \
    X(memory_desc_init_by_tag)                     \
    X(memory_desc_equal)                           \
    X(memory_desc_get_size)                        \
    X(memory_create)                               \
    X(memory_destroy)                              \
    X(primitive_attr_create)                       \
    X(primitive_attr_set_scratchpad_mode)          \
    X(primitive_desc_create)                       \
    X(primitive_desc_query)                        \
    X(primitive_desc_query_md)                     \
    X(primitive_desc_destroy)                      \
    X(primitive_create)                            \
    X(primitive_destroy)                           \
    X(primitive_execute)                           \
    X(reorder_primitive_desc_create)               \
    X(dilated_convolution_forward_desc_init)       \
    X(dilated_convolution_backward_data_desc_init) \
    X(dilated_convolution_backward_weights_desc_init)

struct onednn {
#define ONEDNN_MEMBER(name) __typeof__(dnnl_##name) *name;
    ONEDNN_FUNCTIONS(ONEDNN_MEMBER)
#undef ONEDNN_MEMBER
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch memory comes from the caller */
};

/* NULL when no library is there. The first call loads it (tens of milliseconds); every later
 * call on a thread costs nanoseconds. */
const struct onednn *onednn_get(void);

#endif
