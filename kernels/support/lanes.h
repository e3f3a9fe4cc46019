/* Loops over channels whose sums stay in registers: 64 bytes of elements as one value, up to
 * LANES_BLOCK such values at a time.
 *
 * The compiler's vector types are lowered to whatever the machine has; under VECTOR_CLONES to
 * the best it has. Functions that use them are LANES_INLINE and take the number of values as a
 * constant, so that arrays of them become registers. */
#ifndef MILLRACE_KERNELS_SUPPORT_LANES_H
#define MILLRACE_KERNELS_SUPPORT_LANES_H

#include <string.h>

enum { LANES_BYTES = 64, LANES_BLOCK = 4 };

#define LANES_INLINE static inline __attribute__((always_inline))
/* A vector type of T that lies anywhere. */
#define LANES_TYPE(name, T) \
    typedef T name __attribute__((vector_size(64), aligned(sizeof(T)), may_alias))
/* mask ? a : b, lane by lane; mask is what a comparison gave. */
#define LANES_SELECT(mask, a, b) \
    ((__typeof__(a))((((__typeof__(mask))(a)) & (mask)) | (((__typeof__(mask))(b)) & ~(mask))))

#endif
