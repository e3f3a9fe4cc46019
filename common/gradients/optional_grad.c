/* Differentiates optionals: the gradient of an optional is an optional of gradients. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("OptionalNone"),
    LATER_GRADIENT("OptionalFromValue"),
    NO_GRADIENT("OptionalHasValue"),
    LATER_GRADIENT("OptionalGetValue"),
};
// clang-format on

const struct gradient_list optional_gradients = {rows, ARRAY_LEN(rows)};
