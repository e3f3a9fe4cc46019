/* Draws a placed graph: puts its nodes into boxes, the boxes into layers, and writes a drawing that
 * rpc/daemon/page_svg.h shows. A large graph is grouped: nodes of one name scope on one device are
 * one box, by the longest scopes that make at most GRAPH_DRAWING_BOXES boxes; what is still too
 * much is one box "others" per device. Pure. Cost: nodes times the depth of names. */
#ifndef MILLRACE_MASTER_SERVICE_GRAPH_DRAWING_H
#define MILLRACE_MASTER_SERVICE_GRAPH_DRAWING_H

#include "common/base/str.h"
#include "master/compile/place/placed_graph.h"

enum { GRAPH_DRAWING_BOXES = 60 };

/* What was measured of a node, by its index; n 0: nothing. */
struct node_times {
    int64_t total_ns, n;
};

/* Appends the members "grouping" (how nodes became boxes, for people) and "drawing" of a JSON
 * object. */
void graph_drawing_write(const struct placed_graph *graph, const struct node_times *times,
                         struct str *out);

#endif
