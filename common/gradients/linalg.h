/* The notation of linear algebra over batches of matrices, on top of build.h. In comments Aᴴ is the
 * adjoint of A, and products of matrices are written without a sign. */
#ifndef MILLRACE_COMMON_GRADIENTS_LINALG_H
#define MILLRACE_COMMON_GRADIENTS_LINALG_H

#include "common/gradients/build.h"

#define MATMUL(a, b) gradient_matmul(g, a, false, b, false)
#define ADJ_MATMUL(a, b) gradient_matmul(g, a, true, b, false)
#define MATMUL_ADJ(a, b) gradient_matmul(g, a, false, b, true)
#define BAND(a, below, above)                                       \
    OP("MatrixBandPart", a, gradient_cast(g, I32(below), DT_INT64), \
       gradient_cast(g, I32(above), DT_INT64))

#endif
