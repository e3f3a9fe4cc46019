/* Derivatives of the mutex family: none. Locks have none. */
#include "common/gradients/gradient.h"

extern const struct gradient_list mutex_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("MutexV2"),
    NO_GRADIENT("MutexLock"),
    NO_GRADIENT("ConsumeMutexLock"),
};
// clang-format on

const struct gradient_list mutex_gradients = {rows, ARRAY_LEN(rows)};
