/* Says what the CPU's kernels compute with: libraries and instruction sets, for /statusz. */
#ifndef MILLRACE_KERNELS_CPU_CPU_LIBRARIES_H
#define MILLRACE_KERNELS_CPU_CPU_LIBRARIES_H

#include "common/base/str.h"

/* Appends a JSON object: "instructions", those of our own loops, "blas" and "onednn", and "jit".
 * A library is loaded by the first step that needs it. Until then its value is null, and this call
 * does not load it. "jit" is false where the system forbids memory that is written and executed
 * (MemoryDenyWriteExecute): then oneDNN uses slower code. "fused_code" tells
 * whether fused programs are compiled to machine code (kernels/cpu/emit), and "fused_runs" how many
 * runs of instructions have been. Any thread. */
void cpu_libraries_describe(struct str *out);

#endif
