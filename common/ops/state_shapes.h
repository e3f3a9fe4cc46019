/* Shape functions that the families of state share: a variable is a reference (its shape stands
 * on the edge) or a handle (its shape is what the handle is known to refer to). */
#ifndef MILLRACE_COMMON_OPS_STATE_SHAPES_H
#define MILLRACE_COMMON_OPS_STATE_SHAPES_H

#include "common/ops/op_def.h"

/* The shape of the variable behind input i; unknown where nothing is known. */
struct shape shape_of_variable(const struct shape_inference *ctx, int input);
/* The handle of input i is known to refer to another dtype: INVALID_ARGUMENT. */
struct status *shape_check_handle_dtype(const struct shape_inference *ctx, int input,
                                        enum dtype dtype) MUST_USE;
/* A reference op hands its reference on. */
void shape_pass_reference(struct shape_inference *ctx, struct shape shape);
/* (variable, indices, updates) */
op_shape_fn shape_scatter_update, shape_scatter_nd_update, shape_count_up_to, shape_assign_update;

#endif
