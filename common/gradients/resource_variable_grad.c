/* Differentiates reads of resource variables: the gradient of the handle is the dense gradient of
 * the variable's value. */
#include "common/gradients/build.h"

static void read_variable_grad(struct gradient_ctx *g) { SET(0, DY(0)); }

static struct node_input variable_shape(struct gradient_ctx *g, enum dtype dtype) {
    return OP_WITH("VariableShape", ATTRS(ATTR_T("out_type", dtype)), IN(0));
}

/* (handle, indices): rows are added up. */
static void resource_gather_grad(struct gradient_ctx *g) {
    struct node_input shape = variable_shape(g, DT_INT32);
    if (gradient_attr_i(g, "batch_dims") != 0 && !g->status)
        g->status =
            status_unimplemented("The gradient of ResourceGather with batch_dims is not supported");
    struct node_input row =
        OP_WITH("StridedSlice", ATTRS(ATTR_I("end_mask", 1)), shape, I32S(1), I32S(0), I32S(1));
    struct node_input rows = RESHAPE(DY(0), CONCAT(RESHAPE(OP("Size", IN(1)), I32S(1)), row));
    SET(0, OP("UnsortedSegmentSum", rows, RESHAPE(IN(1), I32S(-1)), gradient_element(g, shape, 0)));
}

static void resource_gather_nd_grad(struct gradient_ctx *g) {
    SET(0, OP("ScatterNd", IN(1), DY(0), variable_shape(g, gradient_dtype(IN(1)))));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("ReadVariableOp", read_variable_grad),
    GRADIENT("ResourceGather", resource_gather_grad),
    GRADIENT("ResourceGatherNd", resource_gather_nd_grad),
    NO_GRADIENT("VarHandleOp"),
    NO_GRADIENT("DisableCopyOnRead"),
    NO_GRADIENT("AssignVariableOp"),
    NO_GRADIENT("AssignAddVariableOp"),
    NO_GRADIENT("AssignSubVariableOp"),
    NO_GRADIENT("VarIsInitializedOp"),
    NO_GRADIENT("VariableShape"),
    NO_GRADIENT("DestroyResourceOp"),
    NO_GRADIENT("ResourceCountUpTo"),
    NO_GRADIENT("ResourceScatterUpdate"),
    NO_GRADIENT("ResourceScatterAdd"),
    NO_GRADIENT("ResourceScatterSub"),
    NO_GRADIENT("ResourceScatterMul"),
    NO_GRADIENT("ResourceScatterDiv"),
    NO_GRADIENT("ResourceScatterMin"),
    NO_GRADIENT("ResourceScatterMax"),
    NO_GRADIENT("ResourceScatterNdUpdate"),
    NO_GRADIENT("ResourceScatterNdAdd"),
    NO_GRADIENT("ResourceScatterNdSub"),
    NO_GRADIENT("ResourceScatterNdMin"),
    NO_GRADIENT("ResourceScatterNdMax"),
};
// clang-format on

const struct gradient_list resource_variable_gradients = {rows, ARRAY_LEN(rows)};
