/* The measurable nodes of a compiled step: what their executions are called in the table of
 * measured costs (cost_table.h). For this room and for the end of sampled steps. */
#ifndef MILLRACE_MASTER_COMPILE_COST_COST_ROWS_H
#define MILLRACE_MASTER_COMPILE_COST_COST_ROWS_H

#include "master/compile/compile.h"
#include "master/compile/cost/cost_table.h"

struct compiled_cost {
    const char *node; /* its name in traces: the node's; on other devices than a CPU NAME:OP */
    const char *key;
    double slowness;    /* of its device, for this node; measured times are divided by it */
    double expected_ns; /* what it was taken to cost when it was placed, undivided */
};

/* The shape with a guess in place of each unknown size, in the arena. */
struct shape cost_full_shape(struct arena *arena, struct shape shape);
/* The key of the node on a device of that type, in the arena. */
const char *cost_key_of(struct arena *arena, const struct graph_shapes *shapes,
                        const struct node *node, const char *device_type);

/* Lists the nodes of the placed graph whose kernels compute and do not wait. Pool thread. */
void cost_rows_find(struct compilation *c);
/* By which part of a step's time the measured costs differ from `expected_ns`, one for each of
 * compiled->costs, or NULL for those of the compilation: 0 none, below 1. Nodes that are not
 * measured do not count; 0 also where so little time is at stake that no placement matters. */
double cost_rows_contradiction(const struct compiled *compiled, const double *expected_ns,
                               struct cost_table *table);
/* Hands the list on to the result. */
void cost_rows_keep(const struct compilation *c, struct compiled *compiled);

#endif
