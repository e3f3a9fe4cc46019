/* Sigmoid and tanh of floats as code without branches, for the loops of recurrent cells. */
#ifndef MILLRACE_KERNELS_CPU_NN_RNN_MATH_H
#define MILLRACE_KERNELS_CPU_NN_RNN_MATH_H

#include <math.h>

#include "kernels/support/vmath.h"

/* Both tails keep their precision, since exp never overflows. */
static inline float rnn_sigmoid(float x) {
    float e = vexp_f32(-fabsf(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* tanh |x| = -m / (2 + m) with m = e^(-2|x|) - 1, so nothing cancels near zero. */
static inline float rnn_tanh(float x) {
    float m = vexpm1_negative_f32(-2 * fabsf(x));
    return copysignf(m / (2 + m), x);
}

#endif
