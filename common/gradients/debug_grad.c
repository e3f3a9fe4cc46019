/* Differentiates the ops that debuggers insert. */
#include "common/gradients/build.h"

static void same_grad(struct gradient_ctx *g) { SET(0, DY(0)); }

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("DebugNumericSummaryV2"),
    NO_GRADIENT("DebugIdentity"),
    NO_GRADIENT("_MrDebugGraph"),
    NO_GRADIENT("_MrDebugOpen"),
    NO_GRADIENT("_MrDebugGates"),
    NO_GRADIENT("DebugNanCount"),
    NO_GRADIENT("DebugNumericSummary"),
    GRADIENT("DebugIdentityV2", same_grad),
    /* a runtime inserts it after gradients are made; TensorFlow has no derivative either */
    NO_GRADIENT("Copy"),
    NO_GRADIENT("CopyHost"),
};
// clang-format on

const struct gradient_list debug_gradients = {rows, ARRAY_LEN(rows)};
