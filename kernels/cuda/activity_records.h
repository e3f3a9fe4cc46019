/* The records of CUPTI's activity API, in declarations of our own (cupti_activity.h of
 * libcupti.so.12 and .13). Records have grown from one version to the next, and what stands here
 * has kept its place in all of them; tests/unit/cuda/test_activity_layout.c compares it with
 * NVIDIA's header where there is one. That test includes both, so nothing else is included here. */
#ifndef MILLRACE_KERNELS_CUDA_ACTIVITY_RECORDS_H
#define MILLRACE_KERNELS_CUDA_ACTIVITY_RECORDS_H

#include <stdint.h>

enum {
    CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_FLUSH_FORCED = 1,
    CUPTI_EXTERNAL_CUSTOM = 3, /* whose marks a correlation has: a program's own */
    CUPTI_RECORD_ALIGNMENT = 8,
};

/* The kinds of records that are asked for. A mark is told with the record of the call that was made
 * under it, so calls are asked for, too. */
enum {
    CUPTI_KIND_MEMCPY = 1,
    CUPTI_KIND_MEMSET = 2,
    CUPTI_KIND_DRIVER = 4,
    CUPTI_KIND_RUNTIME = 5,
    CUPTI_KIND_KERNEL = 10,
    CUPTI_KIND_MEMCPY_PEER = 22,
    CUPTI_KIND_EXTERNAL = 39,
};

/* Every record begins with its kind. */
struct cupti_record {
    uint32_t kind;
};
/* The beginning of a kernel's record. */
struct cupti_kernel {
    uint32_t kind, skipped[3];
    uint64_t start_ns, end_ns;
    uint64_t skipped2;
    uint32_t device, context, stream;
    uint32_t skipped3[10];
    uint32_t correlation;
    uint64_t skipped4;
    const char *name;
    uint64_t skipped5[4];
    uint64_t graph_node;
};
/* Of a copy. */
struct cupti_memcpy {
    uint32_t kind;
    uint8_t copy_kind, skipped[3];
    uint64_t size_bytes;
    uint64_t start_ns, end_ns;
    uint32_t device, context, stream, correlation;
    uint32_t skipped2[4];
    uint64_t graph_node;
};
/* Of a copy between devices. */
struct cupti_memcpy_peer {
    uint32_t kind;
    uint8_t copy_kind, skipped[3];
    uint64_t size_bytes;
    uint64_t start_ns, end_ns;
    uint32_t device, context, stream;
    uint32_t skipped2[4];
    uint32_t correlation;
    uint32_t skipped3[2];
    uint64_t graph_node;
};
/* Of a fill. */
struct cupti_memset {
    uint32_t kind, skipped;
    uint64_t size_bytes;
    uint64_t start_ns, end_ns;
    uint32_t device, context, stream, correlation;
    uint32_t skipped2[4];
    uint64_t graph_node;
};
/* A call with this correlation was made under a mark. */
struct cupti_external {
    uint32_t kind, external_kind;
    uint64_t mark;
    uint32_t correlation;
};

#endif
