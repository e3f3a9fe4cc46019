/* Defines gradients of elementwise ops, an expression for each (build.h).
 *
 * In a UNARY expression, dy is dL/dy; x and y are the conjugates of input and output: dL/dx = dL/dy
 * · conj(f'(x)) = dL/dy · f'(conj x). In a BINARY one, a, b and y are the conjugates of the inputs
 * and the output, and each result is summed to the shape of its input. A PLAIN_BINARY one has
 * the inputs themselves: for complex numbers TensorFlow does not conjugate there. */
#ifndef MILLRACE_COMMON_GRADIENTS_ELEMENTWISE_H
#define MILLRACE_COMMON_GRADIENTS_ELEMENTWISE_H

#include "common/gradients/build.h"

#define UNARY(name, dx)                                                        \
    static void name##_grad(struct gradient_ctx *g) {                          \
        const struct node_input dy = DY(0), x = CONJ(IN(0)), y = CONJ(OUT(0)); \
        (void)dy, (void)x, (void)y;                                            \
        SET(0, dx);                                                            \
    }

#define BINARY(name, da, db)                                                                    \
    static void name##_grad(struct gradient_ctx *g) {                                           \
        const struct node_input dy = DY(0), a = CONJ(IN(0)), b = CONJ(IN(1)), y = CONJ(OUT(0)); \
        (void)dy, (void)a, (void)b, (void)y;                                                    \
        SET_SUM(0, da);                                                                         \
        SET_SUM(1, db);                                                                         \
    }

#define PLAIN_BINARY(name, da, db)                                \
    static void name##_grad(struct gradient_ctx *g) {             \
        const struct node_input dy = DY(0), a = IN(0), b = IN(1); \
        SET_SUM(0, da);                                           \
        SET_SUM(1, db);                                           \
    }

#endif
