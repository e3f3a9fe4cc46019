/* The measurable nodes of a compiled step: what their executions are called in the table of
 * measured costs (cost_table.h). For the compiler's rooms and for the end of sampled steps. */
#ifndef MILLRACE_MASTER_COMPILE_COST_COST_ROWS_H
#define MILLRACE_MASTER_COMPILE_COST_COST_ROWS_H

#include "master/compile/compile.h"
#include "master/compile/cost/cost_table.h"

/* A node of the placed graph. Nodes that become a program (common/graph/fused.h) run together, so
 * traces have a time for all of them: the rows of a program are a list. */
struct compiled_cost {
    /* The name of the node or program in traces: the node's; on other devices than a CPU NAME:OP.
     * NULL in the second and further rows of a program. */
    const char *node;
    const char *key;
    double slowness;    /* of its device, for this node; measured times are divided by it */
    double expected_ns; /* what it was taken to cost when it was placed, divided by slowness */
    int next;           /* the row of the program's next node; -1: there is none */
    bool is_product;    /* the kernel has KERNEL_PRODUCT */
    bool is_measured;   /* expected_ns was measured */
};

/* The measured time of an execution of the node on a device of that type; 0: there is none.
 * `expected` are those of expected_shapes.h. Sizes that are guesses are unknown in its key. Where a
 * size has been measured since, but no time with it, the time of unknown sizes counts. */
double cost_measured_ns(const struct compilation *c, const struct graph_shapes *expected,
                        struct arena *scratch, const struct node *node, const char *device_type);

/* Lists the nodes of the placed graph whose kernels compute and do not wait. Before nodes become
 * programs, so that equal graphs have equal lists, whatever becomes a program. Pool thread. */
void cost_rows_find(struct compilation *c);
/* The last of the nodes becomes a program of all of them, in this order. Pool thread. */
void cost_rows_join(struct compilation *c, struct node *const *members, int n_members);
/* What an execution of the program takes on its device by measured times of all its nodes; 0: they
 * are not measured. */
double cost_rows_program_ns(const struct compilation *c, const struct node *program);
/* Calls fn for each row of a program, or the one row of a node, with its share of `ns`, which an
 * execution took.
 *
 * The shares are in the ratio of what the nodes were taken to cost, so times that were measured of
 * nodes alone stay what they are. Nodes behind a product get no more than they were taken to cost:
 * estimates of elementwise nodes, which memory bounds, are good, and the product is what the placer
 * wants to know. */
void cost_rows_share(const struct compiled *compiled, int first, double ns,
                     void (*fn)(void *arg, const struct compiled_cost *cost, double ns), void *arg);
/* By which part of a step's time the measured costs differ from `expected_ns`, one for each of
 * compiled->costs, or NULL for those of the compilation: 0 none, below 1. Nodes that are not
 * measured do not count; 0 also where so little time is at stake that no placement matters. */
double cost_rows_contradiction(const struct compiled *compiled, const double *expected_ns,
                               struct cost_table *table);
/* Hands the list on to the result. */
void cost_rows_keep(const struct compilation *c, struct compiled *compiled);

#endif
