/* Kernels of the special functions, with the CPU's code: in double for every type, as on a CPU. See
 * elementwise_forms.h. */
#include "kernels/cuda/ops/elementwise_forms.h"

#define SPECIAL __device__ __noinline__ static
#define SPECIAL_PART __device__ __noinline__ static

SPECIAL double special_lgamma(double x) { return lgamma(x); }

#include "kernels/support/special_quantile.inc"
#include "kernels/support/special_gamma.inc"
#include "kernels/support/special_integrals.inc"

EACH_FLOAT_SLOWLY(erf, erf(x))
EACH_FLOAT_SLOWLY(erfc, erfc(x))
EACH_FLOAT_SLOWLY(lgamma, lgamma(x))

#define OF_DOUBLE(X, name) EACH_FLOAT(X, name, special_##name((double)x))
OF_DOUBLE(UNARY, digamma)
OF_DOUBLE(UNARY, bessel_i0)
OF_DOUBLE(UNARY, bessel_i1)
OF_DOUBLE(UNARY, bessel_i0e)
OF_DOUBLE(UNARY, bessel_i1e)
OF_DOUBLE(UNARY, bessel_k0)
OF_DOUBLE(UNARY, bessel_k1)
OF_DOUBLE(UNARY, bessel_k0e)
OF_DOUBLE(UNARY, bessel_k1e)
OF_DOUBLE(UNARY, bessel_y0)
__device__ __noinline__ static double special_bessel_j0(double x) { return j0(x); }
__device__ __noinline__ static double special_bessel_j1(double x) { return j1(x); }
OF_DOUBLE(UNARY, bessel_j0)
OF_DOUBLE(UNARY, bessel_j1)
/* TensorFlow's function for floats computes 0·log 0, which is NaN. */
EACH_NARROW(UNARY, bessel_y1, special_bessel_y1f((double)x))
UNARY(f32, float, bessel_y1, special_bessel_y1f((double)x))
UNARY(f64, double, bessel_y1, special_bessel_y1(x))

#define OF_WIDE(name) EACH_WIDE(UNARY, name, special_##name((double)x))
OF_WIDE(erfinv)
OF_WIDE(ndtri)
OF_WIDE(dawsn)
OF_WIDE(expint)
OF_WIDE(spence)
OF_WIDE(fresnel_cos)
OF_WIDE(fresnel_sin)

#define OF_TWO(name) EACH_WIDE(BINARY, name, special_##name((double)x, (double)y))
OF_TWO(zeta)
OF_TWO(polygamma)
OF_TWO(igamma)
OF_TWO(igammac)
OF_TWO(igamma_grad_a)
OF_TWO(random_gamma_grad)
EACH_WIDE(TERNARY, betainc, special_betainc((double)x, (double)y, (double)z))
