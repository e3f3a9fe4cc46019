/* Features of tf.train.Example and SequenceExample: what is asked for, what was found, and how
 * it becomes tensors.
 *
 * While examples are read, every feature grows as a ragged matrix: its elements one after the
 * other, and where each row ends. A row is one example's list; in a feature list, one step's,
 * and `outer_ends` says after how many rows each example ends. Only at the end it becomes what was
 * asked for: sparse, dense or ragged.
 *
 * The protos are read in place, by the wire format. Threads: one at a time. */
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
    struct shape shape; /* dense: of an example's (a step's) value; borrowed */
    /* dense: elements of that; of a variable one, elements per index of the first dimension */
    int64_t stride;
    /* dense: the first dimension is as long as the longest example's */
    bool is_variable;
    bool is_optional; /* a dense feature list: it is empty where it is not there */
    /* dense: its value where it is not there; NULL or empty: an error. Of a variable one:
     * padding */
    const struct tensor *default_value;
    struct feature *next_same; /* another one with that key */
    /* in the example at hand */
    struct span found;
    bool is_found;
    /* of all examples */
    char *values;
    int64_t n_values, capacity;
    struct offsets ends, outer_ends;
};

/* What an op's attrs say of the features of one level; borrowed from the node. */
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
    /* of a single one, the splits that are not needed are a scalar 0; of an Example, a vector of
     * nothing */
    bool is_of_sequence;
    struct strmap by_key;
};

/* Checks the attrs that it has been filled with. Errors: INVALID_ARGUMENT. */
struct status *feature_types_check(const struct feature_types *types, int n_shapes,
                                   int n_splits) MUST_USE;

/* Features without keys and defaults: the caller sets them, then feature_set_index. */
struct status *feature_set_init(struct feature_set *set, const struct feature_types *types,
                                bool are_lists) MUST_USE;
void feature_set_index(struct feature_set *set);
void feature_set_fini(struct feature_set *set); /* accepts an all-zero one */
/* Compatible with the dense feature's shape, or one element of padding. Errors:
 * INVALID_ARGUMENT. */
struct status *feature_set_default(struct feature *feature, const struct tensor *default_value,
                                   int index) MUST_USE;

/* Where in errors: of which example. */
struct feature_place {
    struct span name;
    int64_t index;
};

/* Looks for the set's features in a serialized Features or FeatureLists message; the last of a
 * key counts. False when malformed. */
bool feature_set_find(struct feature_set *set, struct span message);
void feature_set_reset(struct feature_set *set); /* before an example */
/* Takes what was found of every feature, or its default_value. Errors: INVALID_ARGUMENT. */
struct status *feature_set_take(struct feature_set *set,
                                const struct feature_place *place) MUST_USE;

/* Makes the outputs from *output on, and moves it past them: of sparse features all indices, all
 * values, all shapes; of dense ones the values, and the lengths of lists; of ragged ones the
 * values and splits. `is_single`: one example, without a batch dimension; `has_lengths`: dense
 * lists tell their lengths. */
struct status *feature_set_emit(struct feature_set *set, struct kernel_ctx *ctx, int64_t n_examples,
                                bool is_single, bool has_lengths, int *output) MUST_USE;

/* All of that for a tensor of serialized Examples: outputs from 0 on. `names`, for errors, may
 * be NULL (parsing_example.c). */
struct status *parsing_run_examples(struct kernel_ctx *ctx, struct feature_set *set,
                                    const struct tensor *serialized, const struct tensor *names,
                                    bool is_single) MUST_USE;

#endif
