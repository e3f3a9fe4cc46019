/* Parses the features of tf.train.Example and SequenceExample: what the op wants, what an example
 * has, and the tensors that come out.
 *
 * While examples are read, each feature grows as a ragged matrix: its elements one after the other,
 * and the end of each row. A row is the list of one example, or of one step in a feature list; then
 * `outer_ends` tells after how many rows each example ends. At the end the matrix becomes what the
 * op wants: sparse, dense or ragged.
 *
 * The protos are read in place, by the wire format. One thread at a time. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_PARSING_FEATURES_H
#define MILLRACE_KERNELS_HOST_TEXT_PARSING_FEATURES_H

#include "common/base/map.h"
#include "kernels/kernel.h"

enum feature_kind { FEATURE_SPARSE, FEATURE_DENSE, FEATURE_RAGGED };

struct offsets {
    int64_t *at, n, capacity;
};

struct feature {
    struct span key; /* borrowed */
    enum feature_kind kind;
    enum dtype dtype;
    struct shape shape; /* dense: the shape of the value of an example (or step); borrowed */
    /* dense: the number of elements of `shape`; with is_variable, those for each index of the first
     * dimension */
    int64_t stride;
    /* dense: the first dimension is that of the longest example */
    bool is_variable;
    bool is_of_list;  /* a row is a step of a feature list */
    bool is_optional; /* a dense feature list that may be missing, and is empty then */
    /* dense: the value where the example has none; NULL or empty: that is an error. With
     * is_variable: the padding */
    const struct tensor *default_value;
    struct feature *next_same; /* the next feature with the same key */
    /* of the example that is being read */
    struct span found;
    bool is_found;
    /* of all examples so far */
    char *values;
    int64_t n_values, capacity;
    struct offsets ends, outer_ends;
};

/* What an op's attrs tell about the features of one level. Borrowed from the node. */
struct feature_types {
    const struct attr_value *sparse_types, *dense_types, *dense_shapes, *ragged_types, *split_types,
        *sparse_keys, *dense_keys;
    int n_sparse, n_dense, n_ragged;
};

struct feature_set {
    const struct feature_types *types;
    struct feature *features; /* sparse, then dense, then ragged */
    int n;
    bool are_lists;
    /* The op has a single example: the splits that are not needed are a scalar 0 for a sequence,
     * and an empty vector for an Example. */
    bool is_of_sequence;
    struct strmap by_key;
};

/* Checks the attrs. Errors: INVALID_ARGUMENT. */
struct status *feature_types_check(const struct feature_types *types, int n_shapes,
                                   int n_splits) MUST_USE;

/* Makes the features without keys and default values. The caller sets those, then calls
 * feature_set_index. */
struct status *feature_set_init(struct feature_set *set, const struct feature_types *types,
                                bool are_lists) MUST_USE;
void feature_set_index(struct feature_set *set);
void feature_set_fini(struct feature_set *set); /* accepts an all-zero one */
/* Sets the default value of dense feature `index`, after checking that it is compatible with the
 * feature's shape, or is one element of padding. Borrows the tensor. Errors: INVALID_ARGUMENT. */
struct status *feature_set_default(struct feature_set *set, int index,
                                   const struct tensor *default_value) MUST_USE;

/* Names an example in error messages. */
struct feature_place {
    struct span name;
    int64_t index;
};

/* Finds the set's features in a serialized Features or FeatureLists message. The last value of a
 * key counts. False when the message is malformed. */
bool feature_set_find(struct feature_set *set, struct span message);
/* forgets what the previous example had; call it before each example */
void feature_set_reset(struct feature_set *set);
/* Adds the value that was found for each feature, or its default value. Errors:
 * INVALID_ARGUMENT. */
struct status *feature_set_take(struct feature_set *set,
                                const struct feature_place *place) MUST_USE;

/* Makes the outputs from *output on, and increments *output by their number. The order is: all
 * indices, all values and all shapes of sparse features; the values of dense features and the
 * lengths of dense lists; the values and splits of ragged features. `is_single`: one example,
 * without a batch dimension. `has_lengths`: dense lists have an output of lengths. */
struct status *feature_set_emit(struct feature_set *set, struct kernel_ctx *ctx, int64_t n_examples,
                                bool is_single, bool has_lengths, int *output) MUST_USE;

/* Does all of the above for a tensor of serialized Examples, and sets the outputs from 0 on.
 * `names`, for error messages, may be NULL (parsing_example.c). */
struct status *parsing_run_examples(struct kernel_ctx *ctx, struct feature_set *set,
                                    const struct tensor *serialized, const struct tensor *names,
                                    bool is_single) MUST_USE;

#endif
