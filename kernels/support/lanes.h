/* Helps to write loops over channels whose sums stay in registers. One value holds 64 bytes of
 * elements, and a loop works on up to LANES_BLOCK such values at a time.
 *
 * The types are the compiler's vector types. The compiler lowers them to the machine's vectors; in
 * functions marked VECTOR_CLONES to the best ones that the machine has. Functions that use them are
 * LANES_INLINE and take the number of values as a constant, so that arrays of values become
 * registers. */
#ifndef MILLRACE_KERNELS_SUPPORT_LANES_H
#define MILLRACE_KERNELS_SUPPORT_LANES_H

#include <string.h>

enum { LANES_BYTES = 64, LANES_BLOCK = 4 };

#define LANES_INLINE static inline __attribute__((always_inline))
/* Declares a vector type of T that needs no alignment. */
#define LANES_TYPE(name, T) \
    typedef T name __attribute__((vector_size(64), aligned(sizeof(T)), may_alias))
/* mask ? a : b, lane by lane. The mask is the result of a comparison of vectors. */
#define LANES_SELECT(mask, a, b) \
    ((__typeof__(a))((((__typeof__(mask))(a)) & (mask)) | (((__typeof__(mask))(b)) & ~(mask))))

#endif
