/* Tests of passes as text: a graph in, a graph out (after MLIR's .mlir tests).
 *
 * A file in data/ holds cases:
 *
 *   == what must be so
 *   tasks: worker:0 ps:0+gpu         the cluster; default worker:0. "+gpu" gives a task GPU:0,
 *                                    "+cpu" CPU:1, "*3" makes its last device take three
 *                                    times as long, "~4" limits CPU:0 to 4 MiB, "x4" gives the
 *                                    last device four lanes
 *   feeds: a:0                       the signature
 *   fetches: c:0
 *   targets: n
 *   watches: a:0:DebugIdentity       what a debugger watches; slot -1: all
 *   passes: cut prune                default: what the test program says
 *   options: soft session            soft placement; place_session before the passes
 *            few_nodes bfloat16      functions may make 1000 nodes, not a million; floats cross as
 *                                    bfloat16
 *            by_cost, spread         PLACEMENT_COST, PLACEMENT_SPREAD
 *            late_receives           receives start shortly before they are needed
 *            slow_links              a value takes a second from worker:0 to worker:1 and back
 *            second_away             the second of two tasks cannot be reached
 *            small_debug             the graphs for a debugger take at most 1000 bytes
 *            partial                 a partial run
 *            explain                 prints why each node is where it is, behind the graph
 *   -- in
 *   a = Placeholder() {dtype=float}
 *   -- extend                        (optional) nodes that join later: placed by a second
 *                                    place_session
 *   -- out
 *   the graph after the passes, or "error CODE: message"
 *
 * With MILLRACE_REGENERATE=1 in the environment the out sections are written again: review the
 * diff. */
#ifndef MILLRACE_TESTS_UNIT_MASTER_PASS_FILE_H
#define MILLRACE_TESTS_UNIT_MASTER_PASS_FILE_H

#include "master/compile/compilation.h"

/* Runs all cases of data/`name`; fails the current cmocka test after printing every difference. */
void pass_file_run(const char *name, const char *default_passes);

/* "worker:0 ps:1+gpu" */
struct device_table *devices_from_text(const char *tasks);
/* The graph's text with the ops' defaults left out. */
void graph_print_short(const struct graph *graph, struct str *out);

#endif
