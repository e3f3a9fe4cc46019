/* Compiles the optimizers' rules for float and double. */
#include <math.h>

#include "kernels/cpu/state/training_internal.h"

#define NAME(rule) float_##rule
#define T float
#define C float
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT sqrtf
#define POWER powf
#define EXP expf
#define RULES train_rules_float
#include "kernels/cpu/state/training_rules.inc"

#define NAME(rule) double_##rule
#define T double
#define C double
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT sqrt
#define POWER pow
#define EXP exp
#define RULES train_rules_double
#include "kernels/cpu/state/training_rules.inc"
