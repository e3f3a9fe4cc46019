/* What the CPU's table of costs asks about fused programs. */
#ifndef MILLRACE_KERNELS_CPU_FUSED_FUSED_H
#define MILLRACE_KERNELS_CPU_FUSED_FUSED_H

#include "common/graph/fused.h"
#include "kernels/kernel.h"

/* Of the time that a row of the table says for an element this much is reading and writing memory.
 * An instruction of a block has its operands in the nearest cache. Measured with
 * bench/fused_kernel: a chain of 20 takes 0.15 ns for an element and instruction at 16 KB and at
 * 256 KB. */
#define FUSED_MOVE_NS 0.35
#define FUSED_LEAST_NS 0.1
/* What an instruction takes of that where code keeps its values in registers: a chain of ten takes
 * 0.2 ns for an element, Adam 0.34. */
#define FUSED_CODE_SHARE 0.25

/* What an instruction takes for an element of a block. */
static inline double fused_instruction_ns(double row_ns) {
    return MAX(row_ns - FUSED_MOVE_NS, FUSED_LEAST_NS);
}

/* What the product or the GatherV2 takes with which the program of an execution begins; 0: there is
 * none. The instructions behind it take little beside it. */
double fused_product_ns(const struct kernel_ctx *ctx);

/* By input: has it the axes of a reduction? Then its shape is no part of what is broadcast. NULL:
 * there are no reductions. */
const bool *fused_axes_of(const struct kernel_instance *instance);
/* The same, where there is no instance. In the program's arena. */
const bool *fused_program_axes(struct fused_program *program);

/* The sum over the instructions, for one element. */
double fused_ns_per_element(const struct kernel_instance *instance);

#endif
