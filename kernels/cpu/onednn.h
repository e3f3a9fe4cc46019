/* Loads oneDNN with dlopen at first use, because the library takes tens of megabytes and a daemon
 * that convolves nothing must stay small. Callers use their own loops where it is not installed.
 * Any thread.
 *
 * Debian's library starts threads of its own (OpenMP), but this program has one pool. onednn_get
 * sets OpenMP to one thread for the calling thread, so a primitive that is made and executed after
 * that stays on the thread. Callers split work over the pool. */
#ifndef MILLRACE_KERNELS_CPU_ONEDNN_H
#define MILLRACE_KERNELS_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "common/base/str.h"

/* Member NAME is the function dnnl_NAME. */
// clang-format off
#define ONEDNN_FUNCTIONS(X)                                                               \
    X(sgemm) X(engine_create) X(stream_create) X(memory_desc_init_by_strides)             \
    X(memory_desc_init_by_tag) X(memory_desc_equal) X(memory_desc_get_size)               \
    X(memory_create) X(memory_destroy) X(primitive_attr_create)                           \
    X(primitive_attr_set_scratchpad_mode) X(primitive_desc_create)                        \
    X(primitive_desc_query) X(primitive_desc_query_md) X(primitive_desc_destroy)          \
    X(primitive_create) X(primitive_destroy) X(primitive_execute)                         \
    X(reorder_primitive_desc_create) X(dilated_convolution_forward_desc_init)             \
    X(version)                                                                            \
    X(get_effective_cpu_isa)                                                              \
    X(dilated_convolution_backward_data_desc_init)                                        \
    X(dilated_convolution_backward_weights_desc_init)
// clang-format on

struct onednn {
#define ONEDNN_MEMBER(name) __typeof__(dnnl_##name) *name;
    ONEDNN_FUNCTIONS(ONEDNN_MEMBER)
#undef ONEDNN_MEMBER
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* scratch memory comes from the caller */
};

/* Returns NULL when no library is installed. The first call loads it, which takes tens of
 * milliseconds; every later call on a thread takes nanoseconds. */
const struct onednn *onednn_get(void);
/* Appends the version and the largest instruction set that the library uses. Returns false, and
 * appends nothing, until the library has been loaded. */
bool onednn_describe(struct str *out);

#endif
