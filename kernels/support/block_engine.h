/* Describes how an elementwise kernel computes a block of elements, without tensors, memory or
 * threads: what a fused program (kernels/cpu/fused) calls instead of the kernel's compute.
 *
 * The engine of a row is found by the row's compute function. It runs the same loops as that
 * function, so that each element is the same to the bit. */
#ifndef MILLRACE_KERNELS_SUPPORT_BLOCK_ENGINE_H
#define MILLRACE_KERNELS_SUPPORT_BLOCK_ENGINE_H

#include "kernels/kernel.h"

/* How the shapes of the operands make the shape of the result. Where they do not fit, the kernel's
 * own compute has to answer. */
enum block_shapes {
    BLOCK_BROADCAST, /* the broadcast of all operands; one operand: its shape */
    BLOCK_EQUAL,     /* all operands have one shape */
    BLOCK_SELECT,    /* operands 1 and 2 have one shape; 0 has that shape too, or is a scalar */
    BLOCK_CLIP,      /* operands 1 and 2 have the shape of 0, or are scalars */
    BLOCK_BIAS,  /* operand 0 has a rank of at least 2, 1 is a vector along its last dimension */
    BLOCK_NEVER, /* the node's attrs ask for something else */
};

/* Computes n > 0 elements of `out` from the same number of elements of each operand. Bit k of
 * `ones` says that operand k is one element that stands for all; at least one operand has n. `out`
 * may be an operand with elements of the same size, or overlaps none. Returns 0, or nonzero when an
 * element is outside of the op's domain; what is then in `out` has no meaning. Any thread. */
typedef unsigned block_fn(const struct kernel_instance *instance, const void *const *operands,
                          unsigned ones, void *out, int64_t n);

struct block_engine {
    kernel_fn *compute;
    block_fn *run;
    enum block_shapes shapes;
    /* Where that depends on the node; NULL: never. */
    enum block_shapes (*shapes_of)(const struct kernel_instance *instance);
    /* Can `run` return nonzero? NULL: no. */
    bool (*may_fail)(const struct kernel_instance *instance);
};

#endif
