/* Differentiates the logging family. */
#include "common/gradients/build.h"

static void print_grad(struct gradient_ctx *g) { SET(0, DY(0)); }

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Abort"),
    NO_GRADIENT("Assert"),
    GRADIENT("Print", print_grad),
    NO_GRADIENT("PrintV2"),
    NO_GRADIENT("Timestamp"),
};
// clang-format on

const struct gradient_list logging_gradients = {rows, ARRAY_LEN(rows)};
