/* Writes what the nodes of a step cost, as TensorFlow's CostGraphDef [WP 9.2]. A client asks for it
 * with GraphOptions.build_cost_model: N means each Nth step of a signature, after the first
 * build_cost_model_after. Any thread. */
#ifndef MILLRACE_MASTER_STEP_COST_GRAPH_H
#define MILLRACE_MASTER_STEP_COST_GRAPH_H

#include "common/base/str.h"
#include "master/compile/compile.h"

/* Is the step with that number (from 0, counted by signature) one whose costs a session with these
 * GraphOptions wants? */
bool cost_graph_is_due(int64_t build_cost_model, int64_t build_cost_model_after, int64_t step);

/* Appends the fields of a CostGraphDef: one node for each node of the partitions, in their order.
 * Ids are numbers from 0 over all partitions. `traces` are the StepStats messages of the tasks,
 * which any bytes may be in.
 *   compute_cost   the mean time of the node's executions, in microseconds, at least 1; 0 where the
 *                  trace has no execution
 *   output_info    sizes and shapes are those of the largest value that the trace has of output 0;
 *                  a size that it lacks is -1, and the shape has an unknown rank
 *   is_final       a fetch, or a value that is sent */
void cost_graph_write(const struct compiled *compiled, const struct span *traces, int n_traces,
                      struct str *out);

#endif
