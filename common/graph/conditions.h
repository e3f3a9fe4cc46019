/* Finds under which conditions the nodes of a graph run [CF 4.1]. Any thread.
 *
 *   a ──► Switch(p) ──0──► b ──► Merge ──► d       a: always
 *               └───1──► c ───────┘                b: (always, p, 0)    c: (always, p, 1)
 *                                                  d: always: all sides of one condition meet there
 *
 * A node has the innermost condition of its inputs. If one of these does not contain the other, the
 * node is uncertain. A loop is entered and left under the condition of its Enters; within the loop,
 * the side of its LoopCond is a condition as well. A node below more than 64 conditions is
 * uncertain too, since joining two conditions costs the difference of their depths. */
#ifndef MILLRACE_COMMON_GRAPH_CONDITIONS_H
#define MILLRACE_COMMON_GRAPH_CONDITIONS_H

#include "common/graph/graph.h"

enum { CONDITION_ALWAYS = 0, CONDITION_UNCERTAIN = -1 };

/* Holds if the predicate chooses `side`, within `parent`. */
struct condition {
    int parent, depth;
    int pred_id, pred_output; /* the predicate: a node's output, which is no plain Identity */
    int side, n_sides;
    int next; /* the next one of its bucket */
};

struct conditions {
    struct arena arena;
    struct condition *all; /* [CONDITION_ALWAYS] */
    int n, capacity;
    int *first_of; /* by hash; 0: none */
    size_t n_buckets;
    int *of; /* by node id: the condition under which it runs, an index of `all` */
};

/* `order` has nodes in topological order: all, or those of a part (graph_order_from). What is
 * outside of the part runs always. */
void conditions_init(struct conditions *conditions, const struct graph *graph,
                     struct node *const *order, int n_order);
void conditions_fini(struct conditions *conditions); /* accepts an all-zero one */

/* The condition under which the value of an edge is alive. */
int condition_of_input(struct conditions *conditions, const struct node_input *in);

#endif
