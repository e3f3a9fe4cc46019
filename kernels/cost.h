/* What one execution of an op costs on a device type: its time, its arithmetic and its memory
 * traffic, as functions of its inputs' and outputs' shapes.
 *
 * A device type has a table of rows, one per op (kernels/cpu/cost_rows.c), and these rows are the
 * only place where costs are written down. A placer's estimate for a GPU follows from the CPU's
 * row: the same work, at a GPU's rates. Two readers ask different questions:
 *
 *   the executor   "is this execution worth a pool thread?": the inputs are there, so their
 *                  values count as well. A shape among them says how large the output will be, an
 *                  index picks a little from much, a string holds megabytes.
 *   a placer       "what would this node cost there?": only shapes are known.
 *
 * Estimates are rough: they tell microseconds from milliseconds. Any thread. */
#ifndef MILLRACE_KERNELS_COST_H
#define MILLRACE_KERNELS_COST_H

#include "kernels/kernel.h"

/* An execution that takes longer than this is heavy: handing it to another thread pays. */
enum { COST_HEAVY_NS = 40000 };

struct cost {
    double ns;        /* on one core, or on the whole of a device that is no CPU */
    double flops;     /* arithmetic operations on elements */
    double bytes;     /* read and written, each element once */
    double launch_ns; /* the part of ns that a faster device of the type needs, too; 0 of a CPU */
};

/* One question. Either `ctx` is set, or `in` and `out` are. */
struct cost_query {
    const struct cost_row *row;
    const struct node *node;
    /* An execution whose inputs have arrived. They may be wrong in every way, since no kernel has
     * checked them yet. NULL: only shapes are known. */
    const struct kernel_ctx *ctx;
    const struct shape *in;  /* node->n_data full shapes */
    const struct shape *out; /* node->n_outputs full shapes */
};
/* Changes nothing and does not block. Answers 0 where the inputs cannot be right. */
typedef double cost_fn(const struct cost_query *query);

/* The cost of an op on a device type:
 *   ns     what `ns` answers; NULL: ns_per_call + ns_per_element · elements of the largest input
 *   flops  what `flops` answers; NULL: one for each element of the largest input or output
 *   bytes  what `bytes` answers; NULL: the sizes of all inputs and outputs
 * A row with ns_per_element 0 touches no element: it has no flops, and no bytes. */
struct cost_row {
    const char *op;
    dtype_set types; /* of input 0, or of output 0 where there is no input; 0: all */
    float ns_per_call, ns_per_element;
    cost_fn *ns, *flops, *bytes;
    /* With `ns`: while no input has more elements than this the execution is cheap and `ns` need
     * not be asked; -1: ask always. */
    int32_t cheap_elements;
};
struct cost_list {
    const struct cost_row *rows; /* rows of one op are adjacent; the first that fits counts */
    size_t n_rows;
};

/* kernels/cpu/cost_rows.c */
extern const struct cost_list cpu_costs;

/* Adds a device type's rows; where two lists name an op, the first list counts. The lists must live
 * as long as the process. Before threads start. A device type without rows has the default row's
 * costs for every op. */
void cost_add_device_type(const char *device_type, const struct cost_list *const *lists,
                          size_t n_lists);

/* Never NULL: an op without a row has the default one, linear in the largest input. */
const struct cost_row *cost_find(const char *device_type, const struct node *node);

/* Does the op touch no element, so that its time is the same whatever the sizes? */
bool cost_is_constant(const struct cost_row *row);
/* While no input of an execution has more elements than this, the execution is cheap: the caller
 * need not ask cost_is_heavy. -1: it has to be asked always. */
int32_t cost_cheap_elements(const struct cost_row *row);
/* Is the execution worth a pool thread, given that an input has more elements than
 * cost_cheap_elements? */
bool cost_is_heavy(const struct kernel_ctx *ctx);

/* The estimate of an execution whose inputs are there. */
double cost_ns_of_execution(const struct kernel_ctx *ctx);
/* The estimate from full shapes alone. */
struct cost cost_of_shapes(const char *device_type, const struct node *node, const struct shape *in,
                           const struct shape *out);

/* ---- flops of ops that do more than touch each element, for the rows of any device type
 * (kernels/cost_flops.c); from shapes only ---- */
cost_fn cost_flops_matmul, cost_flops_sparse_matmul, cost_flops_conv, cost_flops_cubic;

#endif
