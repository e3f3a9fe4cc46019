/* Names the tables of loop templates (.inc) that are compiled once per instruction set, and tells
 * which sets this machine has. */
#ifndef MILLRACE_KERNELS_SUPPORT_ISA_H
#define MILLRACE_KERNELS_SUPPORT_ISA_H

#include "common/base/base.h"

/* A .inc file is compiled once per instruction set. LOOP_ISA names the set. */
#define LOOP_TABLE_NAME_(name, isa) name##_loops_##isa
#define LOOP_TABLE_NAME(name, isa) LOOP_TABLE_NAME_(name, isa)
#ifndef LOOP_ISA
#define LOOP_ISA base
#endif
#define LOOP_TABLE(name) LOOP_TABLE_NAME(name, LOOP_ISA)

#ifdef __x86_64__
#define HAS_AVX2_FILES 1
static inline bool cpu_has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static inline bool cpu_has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#else
#define HAS_AVX2_FILES 0
static inline bool cpu_has_avx2(void) { return false; }
static inline bool cpu_has_avx512(void) { return false; }
#endif

#endif
