/* Describes each supported op beyond its signature: a row in the file of its family
 * (common/ops/FAMILY_ops.c) says what the op does and has its static shape function.
 *
 * The signature (arguments, attrs, flags) of every op of TensorFlow 2.21 is in a generated table
 * (op_signature.h). Any thread. */
#ifndef MILLRACE_COMMON_OPS_OP_DEF_H
#define MILLRACE_COMMON_OPS_OP_DEF_H

#include "common/graph/graph.h"

/* What a shape function reads and sets. Shapes are in the arena or in tensors that outlive the
 * call. */
struct shape_inference {
    const struct node *node;
    int producer; /* the graph's producer version */
    struct arena *arena;
    const struct shape *in; /* n_data input shapes, each known, partial or unknown */
    /* the constant value of each input, NULL where unknown */
    const struct tensor *const *in_values;
    /* For shape_from_input: an integer vector of which only some elements are known, as a shape;
     * else NULL. */
    const struct shape *const *in_as_shapes;
    struct shape *out; /* n_outputs; unknown before the call */
    /* The dtype (DT_INVALID where unknown) and shape of the value that each resource or variant
     * input refers to. An op that makes a handle sets them for its output. */
    const enum dtype *in_handle_dtypes;
    const struct shape *in_handle_shapes;
    enum dtype *out_handle_dtypes;
    struct shape *out_handle_shapes;
};
/* Must accept inputs of which nothing is known. Errors: INVALID_ARGUMENT with TensorFlow's key
 * words ("Shape must be rank 2 but is rank 1", "Dimensions must be equal, but are 2 and 3"),
 * without the name of the node, which the caller adds. */
typedef struct status *op_shape_fn(struct shape_inference *ctx);

struct op_def {
    const char *name;
    const char *summary; /* one line for docs/ops.md */
    op_shape_fn *shape;
};

struct op_def_list {
    const struct op_def *rows;
    size_t n_rows;
};
#define OPS(list) extern const struct op_def_list list;
#include "common/ops/families.inc"

extern const struct op_def_list *const op_def_lists[]; /* in the order of families.inc */
extern const size_t n_op_def_lists;

const struct op_def *op_def_find(const char *name); /* NULL when unsupported */

/* ---- shape functions that many families share (common/ops/shape_fns.c) ---- */
op_shape_fn shape_unknown;       /* every output is unknown: its shape depends on values */
op_shape_fn shape_same_as_input; /* every output has input 0's shape */
op_shape_fn shape_broadcast;     /* output 0 is the broadcast of inputs 0 and 1 */
op_shape_fn shape_scalar;        /* every output is a scalar */
op_shape_fn shape_none;          /* no outputs */
/* Sum and similar ops: inputs (input, reduction_indices), attr keep_dims */
op_shape_fn shape_reduction;
op_shape_fn shape_matmul; /* MatMul: inputs 0 and 1 (math_ops.c) */
/* Reshape: output 0 has the shape that input 1 contains (array_ops.c) */
op_shape_fn shape_of_reshape;
/* output 0 has images of the size that input 1 contains (image_ops.c) */
op_shape_fn shape_resize_images;
op_shape_fn shape_from_attr;        /* output 0 has the shape of the attr `shape` */
op_shape_fn shape_v1_handle;        /* output 0 is the handle of an op's V1 form, two strings */
op_shape_fn shape_merge_two_inputs; /* output 0 has the merged shape of inputs 0 and 1 */
op_shape_fn shape_merge_all_inputs; /* output 0 has the merged shape of all inputs */

/* Helpers for shape functions; results in the arena. */
struct status *shape_require_rank(struct shape_inference *ctx, int input, int rank,
                                  struct shape *ret) MUST_USE;
struct status *shape_require_rank_at_least(struct shape_inference *ctx, int input,
                                           int rank) MUST_USE;
struct status *shape_merge(struct shape_inference *ctx, struct shape a, struct shape b,
                           struct shape *ret) MUST_USE;
struct status *shape_merge_dims(int64_t a, int64_t b, int64_t *ret) MUST_USE; /* -1 unknown */
struct status *shape_of_broadcast(struct shape_inference *ctx, struct shape a, struct shape b,
                                  struct shape *ret) MUST_USE;
struct status *shape_concat(struct shape_inference *ctx, struct shape a, struct shape b,
                            struct shape *ret) MUST_USE;
/* copies dims */
struct shape shape_make(struct shape_inference *ctx, int rank, const int64_t *dims);
struct shape shape_unknown_of_rank(struct shape_inference *ctx, int rank);
/* end -1: to the end */
struct shape shape_sub(struct shape_inference *ctx, struct shape shape, int begin, int end);
/* Sets output 0 to inputs [first, first + n) joined along the axis that input axis_input contains.
 * An unknown axis leaves only the rank known. */
struct status *shape_of_joined(struct shape_inference *ctx, int first, int n,
                               int axis_input) MUST_USE;
/* The shape that an integer vector input contains: from its value where it is constant, else
 * unknown, with the rank that the length of the vector gives. */
struct status *shape_from_input(struct shape_inference *ctx, int input, struct shape *ret) MUST_USE;
/* The same for an op that also accepts the scalar -1 for an unknown rank. */
struct status *shape_from_input_or_scalar(struct shape_inference *ctx, int input,
                                          struct shape *ret) MUST_USE;

#endif
