/* Derivatives of the resource variable family: reads have them, changes do not. */
#include "common/gradients/gradient.h"

extern const struct gradient_list resource_variable_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("VarHandleOp"),
    LATER_GRADIENT("ReadVariableOp"),
    NO_GRADIENT("DisableCopyOnRead"),
    NO_GRADIENT("AssignVariableOp"),
    NO_GRADIENT("AssignAddVariableOp"),
    NO_GRADIENT("AssignSubVariableOp"),
    NO_GRADIENT("VarIsInitializedOp"),
    NO_GRADIENT("VariableShape"),
    NO_GRADIENT("DestroyResourceOp"),
    NO_GRADIENT("ResourceCountUpTo"),
    LATER_GRADIENT("ResourceGather"),
    LATER_GRADIENT("ResourceGatherNd"),
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
