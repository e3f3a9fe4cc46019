/* Compiles the optimizers' rules for half and bfloat16, which are computed in float and rounded
 * once. */
#include <math.h>

#include "common/tensor/float16.h"
#include "kernels/cpu/state/training_internal.h"

#define NAME(rule) half_##rule
#define T uint16_t
#define C float
#define LOAD half_to_float
#define STORE half_from_float
#define ROOT sqrtf
#define POWER powf
#define EXP expf
#define RULES train_rules_half
#include "kernels/cpu/state/training_rules.inc"

#define NAME(rule) bfloat16_##rule
#define T uint16_t
#define C float
#define LOAD bfloat16_to_float
#define STORE bfloat16_from_float
#define ROOT sqrtf
#define POWER powf
#define EXP expf
#define RULES train_rules_bfloat16
#include "kernels/cpu/state/training_rules.inc"
