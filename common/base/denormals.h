/* Makes a thread compute with denormal numbers as TensorFlow's threads do: as zero.
 *
 * A denormal operand or result costs a core a hundred cycles and more, and numbers that small mean
 * nothing to a model. Every thread that runs kernels calls this once: the pools' threads and the
 * loop threads of daemons. Other arithmetic on such a thread sees zeros, too. */
#ifndef MILLRACE_COMMON_BASE_DENORMALS_H
#define MILLRACE_COMMON_BASE_DENORMALS_H

#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Denormal results of the calling thread become zero (FTZ), and denormal operands count as zero
 * (DAZ). Does nothing on processors other than x86 and ARMv8. */
static inline void denormals_flush_to_zero(void) {
#if defined(__SSE2__)
    enum { FTZ = 1 << 15, DAZ = 1 << 6 };
    _mm_setcsr(_mm_getcsr() | FTZ | DAZ);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | UINT64_C(1) << 24)); /* FZ does both */
#endif
}

#endif
