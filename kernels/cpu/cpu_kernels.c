/* Makes the table of CPU kernels from the families of ops. Where an op has several rows, they are
 * tried in the order of common/ops/families.inc. */
#include "kernels/kernel.h"

#define KERNELS(list) extern const struct kernel_list list;
#include "common/ops/families.inc"

const struct kernel_list *const cpu_kernel_lists[] = {
#define KERNELS(list) &list,
#include "common/ops/families.inc"
};
const size_t n_cpu_kernel_lists = ARRAY_LEN(cpu_kernel_lists);
