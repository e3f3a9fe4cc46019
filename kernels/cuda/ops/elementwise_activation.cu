/* Kernels of activations and their gradients. See elementwise_forms.h.
 *
 * An activation has one operand, the feature x. A gradient has two: the incoming gradient x, and y,
 * which is the feature, or for Elu and Selu the activation. As in TensorFlow, a gradient is
 * multiplied by 0 instead of replaced by 0, so a NaN gradient stays visible. */
#include "kernels/cuda/ops/elementwise_forms.h"

EACH_FLOAT(UNARY, relu, x <= 0 ? (value)0 : x)
EACH_INT(UNARY, relu, x <= 0 ? (value)0 : x)
EACH_FLOAT(BINARY, relu_grad, x * (value)(y > 0))
EACH_FLOAT(UNARY, relu6, x <= 0 ? (value)0 : x > 6 ? (value)6 : x)
EACH_FLOAT(BINARY, relu6_grad, x * (value)(y > 0 && y < 6))
EACH_FLOAT(UNARY, leaky_relu, x > 0 ? x : x * (value)args.alpha)
EACH_FLOAT(BINARY, leaky_relu_grad, y > 0 ? x : x * (value)args.alpha)
EACH_FLOAT(UNARY, elu, x < 0 ? expm1(x) : x)
EACH_FLOAT(BINARY, elu_grad, y < 0 ? (y + 1) * x : x)

/* The fixed point of mean 0 and variance 1 [Klambauer et al. 2017, equation 14]. */
#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_SCALE_ALPHA 1.7580993408473768599402175208123
EACH_FLOAT(UNARY, selu, x < 0 ? (value)SELU_SCALE_ALPHA * expm1(x) : (value)SELU_SCALE * x)
EACH_FLOAT(BINARY, selu_grad,
           y < 0 ? x * (y + (value)SELU_SCALE_ALPHA) : x * (value)SELU_SCALE)

/* Above 40, log(1 + e^x) is x to the last bit of a double. */
EACH_FLOAT(UNARY, softplus, x > 40 ? x : log1p(exp(x)))
EACH_FLOAT(BINARY, softplus_grad, x / (exp(-y) + 1))
EACH_FLOAT(UNARY, softsign, x / (1 + fabs(x)))
EACH_FLOAT(BINARY, softsign_grad, x / ((1 + fabs(y)) * (1 + fabs(y))))
