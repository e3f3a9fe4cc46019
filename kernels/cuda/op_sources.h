/* The source text of the elementwise ops, for what is compiled at run time (fused_source.c).
 * Written by tools/embed_ops.py. */
#ifndef MILLRACE_KERNELS_CUDA_OP_SOURCES_H
#define MILLRACE_KERNELS_CUDA_OP_SOURCES_H

#include <stddef.h>

struct gpu_op_source {
    const char *name, *text; /* the text declares struct NAME_op */
};
/* What comes before them: first, what other compilers have in headers of CUDA and C++. */
extern const char gpu_ops_runtime[], gpu_ops_shared[];
extern const struct gpu_op_source gpu_op_sources[]; /* by name */
extern const size_t n_gpu_op_sources;

#endif
