/* Derivatives of the stack family: none. Stacks keep values for gradients and have none
 * themselves. */
#include "common/gradients/gradient.h"

extern const struct gradient_list stack_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("StackV2"),
    NO_GRADIENT("StackPushV2"),
    NO_GRADIENT("StackPopV2"),
    NO_GRADIENT("StackCloseV2"),
    NO_GRADIENT("Stack"),
    NO_GRADIENT("StackPush"),
    NO_GRADIENT("StackPop"),
    NO_GRADIENT("StackClose"),
};
// clang-format on

const struct gradient_list stack_gradients = {rows, ARRAY_LEN(rows)};
