/* Feature crosses: for each row of a batch, every combination of one value from each of some
 * features, joined as text or as a hash. What SparseCross, SparseCrossV2, SparseCrossHashed and
 * RaggedCross share. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_CROSS_H
#define MILLRACE_KERNELS_CPU_SPARSE_CROSS_H

#include "kernels/kernel.h"

/* One feature: int64 or string values, each row's side by side. */
struct cross_feature {
    /* sparse: of the device's memory, for a shape may claim any number of rows; else nothing */
    struct tensor owned_splits;
    const struct tensor *values;
    const struct tensor *splits; /* ragged: int32 or int64, checked; else NULL */
    int64_t width;               /* dense: values per row */
};

enum cross_hash {
    CROSS_TEXT,
    CROSS_HASH, /* strings by fingerprint, integers as they are, all folded into a key */
    /* no key; integers of sparse features by fingerprint; with is_strong all by a salted hash */
    CROSS_HASH_SALTED,
};

struct cross {
    struct cross_feature *features;
    int n_features;
    int64_t n_rows;
    enum cross_hash hash;
    struct span separator; /* text */
    uint64_t key;          /* CROSS_HASH */
    int64_t n_buckets;     /* 0: hashes are cut below the largest int64 */
    bool is_strong;
    uint64_t salt[2];
};

/* The rows of a sparse feature by the first column of its indices (a checked matrix), which must
 * not fall: entries from where it does are left out. `skips`: entries of rows that are passed
 * over belong to the next row, instead of ending the feature. */
struct status *cross_feature_sparse(struct cross_feature *feature, struct allocator *allocator,
                                    const struct tensor *indices, const struct tensor *values,
                                    int64_t n_rows, bool skips) MUST_USE;
struct cross_feature *cross_features_new(int n); /* all zero */
void cross_features_free(struct cross_feature *features, int n);

/* How many combinations row r has. Errors: INVALID_ARGUMENT when an int64 does not count them. */
struct status *cross_count(const struct cross *cross, int64_t row, int64_t *ret_n) MUST_USE;
/* Writes row r's combinations, the last feature turning fastest, to elements [first, first + n)
 * of `out` (int64, or string for text). */
void cross_write(const struct cross *cross, int64_t row, int64_t first, int64_t n,
                 struct tensor *out);

#endif
