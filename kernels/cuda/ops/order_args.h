/* The arguments of the kernels that sort, scan and select. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ORDER_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_ORDER_ARGS_H

#include <stdint.h>

enum {
    ORDER_THREADS = 256, /* of a block */
    ORDER_WARPS = ORDER_THREADS / 32,
    SCAN_ITEMS_OF_THREAD = 8,
    SCAN_TILE_LEN = ORDER_THREADS * SCAN_ITEMS_OF_THREAD,
    RADIX_BITS = 8,
    RADIX_DIGITS = 1 << RADIX_BITS, /* as many as a block has threads */
    RADIX_ROUNDS = 16,              /* keys of a thread */
    RADIX_TILE_LEN = ORDER_THREADS * RADIX_ROUNDS,
    PLACES_MAX_RANK = 8, /* of Where, as in TensorFlow's GPU kernels */
    TOP_K_MOST = 1024,   /* entries that a block sorts in shared memory; a power of two */
};

/* Positions are int32 where every one fits, else int64. */
struct order_positions {
    const void *at; /* NULL: position i is i */
    int64_t size_bytes;
};

/* An exclusive scan of values[0 … n), in place. values[n] becomes the sum, and so does *total. */
struct scan_args {
    int64_t *values;
    int64_t *tiles; /* sums of the tiles; scan_one: not used */
    int64_t *total; /* NULL: not wanted */
    int64_t n;
};

/* keys[i] = a key of element i, in whose order elements ascend, or descend. */
struct keys_args {
    const void *from;
    void *keys;
    int64_t n;
    int64_t is_descending;
};

/* keys[i] = positions[i] / by */
struct row_keys_args {
    void *keys;
    struct order_positions positions;
    int64_t n, by;
    int64_t key_bytes;
};

/* keys[i] = the index, or n_valid where it is out of range */
struct index_keys_args {
    const void *indices;
    void *keys;
    int64_t index; /* enum pick_index */
    int64_t n, n_valid;
    int64_t key_bytes;
};

/* One pass of a radix sort, by the digit at `shift`. */
struct radix_args {
    const void *keys;
    struct order_positions positions;
    void *to_keys, *to_positions;
    int64_t *counts; /* [RADIX_DIGITS, n_tiles] */
    int64_t n, n_tiles, shift;
};

/* firsts[v] = the number of keys below v, for v in [0, n_values]. */
struct bounds_args {
    const void *keys;
    int64_t key; /* enum pick_index, or BOUNDS_U32 or BOUNDS_U64 */
    int64_t *firsts;
    int64_t n, n_values;
};
enum { BOUNDS_U32 = 100, BOUNDS_U64 };

/* Where: counts[t] = elements of tile t that are not 0; then their coordinates. */
struct places_args {
    const void *in;
    int64_t *counts;
    int64_t *out; /* [count, rank] */
    int64_t n, rank;
    int64_t dims[PLACES_MAX_RANK];
};

/* Groups of equal sorted keys. heads [n + 1]: 1 where a group begins, and then, scanned, the number
 * of groups that begin before. Keys above `distinct_above` are each a group. */
struct groups_args {
    const void *keys;
    struct order_positions positions;
    int64_t *heads;
    int64_t *starts; /* starts[g]: where group g begins; its length is n_groups + 1 */
    int64_t *marks;  /* unless NULL: marks[the first position of a group] = 1 */
    int64_t n;
    uint64_t distinct_above;
    uint64_t n_valid; /* keys from here on are in no group */
};
/* to[g] = the key of group g */
struct group_keys_args {
    const void *keys;
    const int64_t *starts;
    void *to;
    int64_t n_groups, key_bytes, to_bytes;
};

/* Unique: what each element's group is called, by the group's first position. */
struct unique_args {
    const void *x;
    void *y, *of, *counts; /* counts: NULL unless wanted */
    struct order_positions positions;
    const int64_t *heads, *starts, *ranks; /* ranks: the scanned marks */
    int64_t n;
    int64_t out_bytes; /* of an element of `of` and `counts` */
};

struct top_k_args {
    const void *in;
    void *values, *indices;
    int64_t n_rows, n_cols, k, n_entries; /* n_entries: a power of two, k or more */
    int64_t index_bytes;
};

/* The first k entries of each row of sorted positions. */
struct top_k_pick_args {
    const void *in;
    void *values, *indices;
    struct order_positions positions;
    int64_t n_rows, n_cols, k;
    int64_t index_bytes;
};
#endif
