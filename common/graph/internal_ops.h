/* Declares our own ops, which the compiler and workers put into partitions: the ends of cut edges,
 * copies, fused programs. A client's graph may not contain them.
 *
 *   _MrFeed            the value of a feed, by its index in the feeds of the step
 *   _MrFetch           takes the value of a fetch, by its index in the fetches of the step
 *   _MrSend, _MrRecv   the two ends of an edge between tasks; `edge` is its number in the
 *                      registered graph
 *   _MrCopy            copies a value from one memory of a task to another; a worker adds it when
 *                      it makes a plan. `src_device` and `dst_device` are "" for host memory
 *   _MrDebugGraph      writes the graph of a device to a debugger's URL, once
 *   _MrDebugOpen       opens the streams of a step to debug servers; the gates that are open
 *   _MrDebugGates      takes those, and lets the debug ops of its task begin
 *   _MrFused           a fused program (common/graph/fused.h)
 *
 * All but the last are stateful, so that passes neither fold nor merge them. Any thread. */
#ifndef MILLRACE_COMMON_GRAPH_INTERNAL_OPS_H
#define MILLRACE_COMMON_GRAPH_INTERNAL_OPS_H

#include "common/base/base.h"
#include "common/signatures/op_signature.h"

#define OP_FEED "_MrFeed"
#define OP_FETCH "_MrFetch"
#define OP_SEND "_MrSend"
#define OP_RECV "_MrRecv"
#define OP_COPY "_MrCopy"
#define OP_DEBUG_GRAPH "_MrDebugGraph"
#define OP_DEBUG_OPEN "_MrDebugOpen"
#define OP_DEBUG_GATES "_MrDebugGates"
/* An attr of debug ops whose task has a _MrDebugGates: they wait for it. */
#define DEBUG_WAITS_ATTR "_waits_for_gates"

/* NULL for any other name. */
const struct op_signature *internal_op_find(struct span name);

#endif
