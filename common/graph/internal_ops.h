/* Ops of our own, which partitions carry and no client may use: the ends of edges that were cut.
 *
 *   _MrFeed   ──► value of a feed, by its index in the step's feeds
 *   _MrFetch  ◄── value of a fetch, by its index in the step's fetches
 *   _MrSend, _MrRecv   the two ends of an edge between devices; `edge` numbers it within its registered graph
 *
 * All are stateful: never folded, never merged with a twin. Any thread. */
#ifndef MILLRACE_COMMON_GRAPH_INTERNAL_OPS_H
#define MILLRACE_COMMON_GRAPH_INTERNAL_OPS_H

#include "common/base/base.h"
#include "common/signatures/op_signature.h"

#define OP_FEED "_MrFeed"
#define OP_FETCH "_MrFetch"
#define OP_SEND "_MrSend"
#define OP_RECV "_MrRecv"

/* NULL when the name is none of ours. */
const struct op_signature *internal_op_find(struct span name);

#endif
