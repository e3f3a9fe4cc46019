/* Kernels of the elementwise comparisons. See elementwise_forms.h. */
#include "kernels/cuda/ops/elementwise_forms.h"

#define ORDERED(name, ...)                    \
    EACH_FLOAT(COMPARISON, name, __VA_ARGS__) \
    EACH_INT(COMPARISON, name, __VA_ARGS__)
ORDERED(less, x < y)
ORDERED(less_equal, x <= y)
ORDERED(greater, x > y)
ORDERED(greater_equal, x >= y)
ORDERED(equal, x == y)
EACH_COMPLEX(COMPARISON, equal, x == y)
EACH_BOOL(COMPARISON, equal, (x != 0) == (y != 0))
ORDERED(not_equal, x != y)
EACH_COMPLEX(COMPARISON, not_equal, x != y)
EACH_BOOL(COMPARISON, not_equal, (x != 0) != (y != 0))
EACH_WIDE(COMPARISON, approximate_equal, fabs(x - y) < (value)args.alpha)
