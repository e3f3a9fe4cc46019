/* What the CPU's table of costs asks about fused programs. */
#ifndef MILLRACE_KERNELS_CPU_FUSED_FUSED_H
#define MILLRACE_KERNELS_CPU_FUSED_FUSED_H

#include "kernels/kernel.h"

/* The sum of the instructions' costs for one element, in nanoseconds. */
double fused_ns_per_element(const struct kernel_instance *instance);

#endif
