/* Derivatives of the state family: none. A variable is read through an Identity, which carries
 * the gradient. */
#include "common/gradients/gradient.h"

extern const struct gradient_list state_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Variable"),
    NO_GRADIENT("VariableV2"),
    NO_GRADIENT("TemporaryVariable"),
    NO_GRADIENT("DestroyTemporaryVariable"),
    NO_GRADIENT("IsVariableInitialized"),
    NO_GRADIENT("Assign"),
    NO_GRADIENT("AssignAdd"),
    NO_GRADIENT("AssignSub"),
    NO_GRADIENT("CountUpTo"),
    NO_GRADIENT("ScatterUpdate"),
    NO_GRADIENT("ScatterAdd"),
    NO_GRADIENT("ScatterSub"),
    NO_GRADIENT("ScatterMul"),
    NO_GRADIENT("ScatterDiv"),
    NO_GRADIENT("ScatterMin"),
    NO_GRADIENT("ScatterMax"),
    NO_GRADIENT("ScatterNdUpdate"),
    NO_GRADIENT("ScatterNdAdd"),
    NO_GRADIENT("ScatterNdSub"),
    NO_GRADIENT("ScatterNdMin"),
    NO_GRADIENT("ScatterNdMax"),
};
// clang-format on

const struct gradient_list state_gradients = {rows, ARRAY_LEN(rows)};
