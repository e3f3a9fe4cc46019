/* Computes feature crosses: for each row of a batch, every combination of one value of each
 * feature, joined as text or as a hash. SparseCross, SparseCrossV2, SparseCrossHashed and
 * RaggedCross share it. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_CROSS_H
#define MILLRACE_KERNELS_CPU_SPARSE_CROSS_H

#include "kernels/kernel.h"

/* One feature. It has int64 or string values, and the values of a row are contiguous. */
struct cross_feature {
    /* Splits that the cross made for a sparse feature. The device allocates them, because a shape
     * may claim any number of rows. Empty for other features. */
    struct tensor owned_splits;
    const struct tensor *values;
    /* a ragged or sparse feature's splits, int32 or int64, checked; NULL for a dense feature */
    const struct tensor *splits;
    int64_t width; /* a dense feature's values per row */
};

enum cross_hash {
    CROSS_TEXT,
    CROSS_HASH, /* strings by fingerprint, integers as they are, all folded into a key */
    /* no key: integers of sparse features by fingerprint; with is_strong all values by a salted
     * hash */
    CROSS_HASH_SALTED,
};

struct cross {
    struct cross_feature *features;
    int n_features;
    int64_t n_rows;
    enum cross_hash hash;
    struct span separator; /* for text */
    uint64_t key;          /* for CROSS_HASH */
    int64_t n_buckets;     /* 0: hashes are taken modulo the largest int64 */
    bool is_strong;
    uint64_t salt[2];
};

/* Computes the rows of a sparse feature from the first column of its indices, a checked matrix. The
 * column must not decrease: the first entry where it does ends the feature. With `skips`, entries
 * of rows that are passed over belong to the next row instead. */
struct status *cross_feature_sparse(struct cross_feature *feature, struct allocator *allocator,
                                    const struct tensor *indices, const struct tensor *values,
                                    int64_t n_rows, bool skips) MUST_USE;
struct cross_feature *cross_features_new(int n); /* Returns n features that are all zero. */
void cross_features_free(struct cross_feature *features, int n);

/* Counts the combinations of a row. Errors: INVALID_ARGUMENT when an int64 cannot count them. */
struct status *cross_count(const struct cross *cross, int64_t row, int64_t *ret_n) MUST_USE;
/* Writes the combinations of a row to elements [first, first + n) of `out`, which holds int64, or
 * strings for text. The last feature varies fastest. */
void cross_write(const struct cross *cross, int64_t row, int64_t first, int64_t n,
                 struct tensor *out);

#endif
