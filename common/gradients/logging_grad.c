/* Derivatives of the logging family. */
#include "common/gradients/gradient.h"

extern const struct gradient_list logging_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Assert"),
    LATER_GRADIENT("Print"),
    NO_GRADIENT("PrintV2"),
    NO_GRADIENT("Timestamp"),
};
// clang-format on

const struct gradient_list logging_gradients = {rows, ARRAY_LEN(rows)};
