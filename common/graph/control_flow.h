/* Finds the loop frames of a graph [WP 4.4, CF 4.1], and says what the ops of control flow are.
 * Any thread; the graph must not change. */
#ifndef MILLRACE_COMMON_GRAPH_CONTROL_FLOW_H
#define MILLRACE_COMMON_GRAPH_CONTROL_FLOW_H

#include "common/graph/graph.h"

/* Is it an Enter, Exit, Merge, NextIteration, LoopCond or one of their Ref forms? */
bool node_is_frame_op(const struct node *node);
/* May one of its outputs be dead while the node itself runs? */
bool node_is_switch(const struct node *node);

/* The loop that each node belongs to; frame 0 is the root. An Enter runs in the parent frame and
 * its output belongs to the child frame; an Exit is the other way round. So a node has a frame that
 * it runs in and one that its outputs belong to. Arrays are malloc'd. */
struct loop_frames {
    int *in, *out; /* by node id */
    int *parent;   /* by frame: a smaller number than the frame's own; -1 for the root */
    /* by frame: itself or the ancestor whose parent is the root; 0 for the root */
    int *outermost;
    int n_frames;
};
/* `order` has nodes in topological order: all, or those of a part (graph_order_from). Nodes
 * outside of the part count as nodes of the root. */
void loop_frames_init(struct loop_frames *frames, const struct graph *graph,
                      struct node *const *order, int n_order);
void loop_frames_fini(struct loop_frames *frames); /* accepts an all-zero one */

#endif
