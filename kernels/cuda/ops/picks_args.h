/* The arguments of the kernels in picks.cu and scatter.cu. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_PICKS_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_PICKS_ARGS_H

#include <stdint.h>

enum { PICKS_MAX_DEPTH = 8 };
enum pick_index { PICK_INT32, PICK_INT64, PICK_UINT8, PICK_INT8 };

/* An element at `at` on the device; NULL: the element is `value`. */
struct pick_scalar {
    const void *at;
    uint64_t value[2] __attribute__((aligned(16)));
};

/* As struct device_gather (kernels/support/device_engine.h), in elements of the kernel's size. */
struct gather_args {
    char *to;
    const char *from;
    const void *indices;
    int64_t index; /* enum pick_index */
    int64_t n, n_outer, n_axis, n_picked, len;
};

/* Row r of the indices [n_rows, depth] names a slice of `len` elements. */
struct pick_slices {
    const void *indices;
    int64_t index; /* enum pick_index */
    int64_t wraps; /* a coordinate is taken modulo its dimension */
    int64_t depth, n_rows, len;
    int64_t dims[PICKS_MAX_DEPTH];
    int64_t n_stacks; /* of rows and slices of their own; 0: one. Segments only */
};

struct gather_slices_args {
    char *to;
    const char *from;
    int64_t n;
    struct pick_slices slices;
};

struct scatter_args {
    char *params;
    const char *updates; /* NULL: `scalar` for all */
    struct pick_scalar scalar;
    int64_t op; /* enum update_op */
    /* Blocks with the same group own the same slices, and share out their columns. */
    int64_t n_groups, n_parts;
    struct pick_slices slices;
};

struct segment_args {
    char *out; /* of the type that sums are made in */
    const char *data;
    int64_t op; /* enum update_op */
    int64_t n_groups, n_parts;
    struct pick_slices slices;
};

/* to[i] = from[i], from float to half or bfloat16. */
struct narrow_args {
    char *to;
    const char *from;
    int64_t n;
};

struct update_args {
    char *dst;
    const char *a, *b;
    int64_t op; /* enum update_op */
    int64_t n;
};

struct one_hot_args {
    char *to;
    const void *indices;
    int64_t index; /* enum pick_index */
    struct pick_scalar on, off;
    int64_t n, depth, suffix;
};

struct band_args {
    char *to;
    const char *from;
    int64_t n, n_rows, n_cols, lower, upper;
};

enum { RENUMBER_MOST = 8 };
struct renumber_args {
    void *to;
    const void *from;
    int64_t n, n_numbers;
    int64_t numbers[RENUMBER_MOST];
};

struct reverse_sequence_args {
    char *to;
    const char *from;
    const void *lengths;
    int64_t length; /* enum pick_index of the lengths */
    int64_t n, n_steps, middle, n_batch, inner;
    int64_t batch_is_first;
};

enum { MIRROR_MAX_RANK = 8 };
struct mirror_args {
    char *to;
    const char *from;
    int64_t n, rank, offset;
    int64_t dims[MIRROR_MAX_RANK], before[MIRROR_MAX_RANK], after[MIRROR_MAX_RANK];
};

struct conjugate_args {
    char *at;
    int64_t n;
};

struct range_args {
    char *to;
    int64_t n;
    uint64_t start, delta; /* elements, from the first byte on */
};

#endif
