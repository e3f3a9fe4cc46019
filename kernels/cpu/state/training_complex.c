/* Compiles the optimizers' rules for complex numbers, except those that compare numbers. */
#include <complex.h>

#include "kernels/cpu/state/training_internal.h"

#define IS_COMPLEX
#define NAME(rule) complex64_##rule
#define T float complex
#define C float complex
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT csqrtf
#define RULES train_rules_complex64
#include "kernels/cpu/state/training_rules.inc"

#define IS_COMPLEX
#define NAME(rule) complex128_##rule
#define T double complex
#define C double complex
#define LOAD(v) (v)
#define STORE(v) (v)
#define ROOT csqrt
#define RULES train_rules_complex128
#include "kernels/cpu/state/training_rules.inc"
