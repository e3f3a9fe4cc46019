/* Declares the shape functions that several families of state use. A variable is a reference, whose
 * shape is that of the edge, or a handle, whose shape is known from the op that made it. */
#ifndef MILLRACE_COMMON_OPS_STATE_SHAPES_H
#define MILLRACE_COMMON_OPS_STATE_SHAPES_H

#include "common/ops/op_def.h"

/* The shape of the variable behind an input; unknown where nothing is known. */
struct shape shape_of_variable(const struct shape_inference *ctx, int input);
/* Errors: INVALID_ARGUMENT where the handle of the input is known to refer to another dtype. */
struct status *shape_check_handle_dtype(const struct shape_inference *ctx, int input,
                                        enum dtype dtype) MUST_USE;
/* Sets output 0, the reference that the op passes on, to a shape. */
void shape_pass_reference(struct shape_inference *ctx, struct shape shape);
/* The ops with inputs (variable, indices, updates), and similar ones. */
op_shape_fn shape_scatter_update, shape_scatter_nd_update, shape_count_up_to, shape_assign_update;

#endif
