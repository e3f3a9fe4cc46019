/* Nodes that another node of their task can wait for, its anchors, so that it runs later than its
 * inputs allow and its value occupies memory for a shorter time [WP 5.2].
 *
 *   anchor ──► ...                       anchor ──► ...
 *   late ────────────► taker    =>         └─ ─ ─► late ──► taker
 *
 * An anchor comes before all takers in the order of the simulated step (partition.h), in which
 * every edge leads forwards, so no cycle arises. That holds for many late nodes at once if none of
 * them is an anchor, and if the values of each are taken as late as the order says or later.
 *
 * Nothing waits for ever for a reason that the graph does not show, such as an Enqueue for which a
 * Dequeue before the anchor waits: the takers wait for all asynchronous nodes that the anchor may
 * wait for, also without the new edge. Anchors are outside of loops, behind no loop, and run in
 * every step. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_PARTITION_PARTITION_ANCHORS_H
#define MILLRACE_MASTER_COMPILE_PARTITION_PARTITION_ANCHORS_H

#include <math.h>

#include "master/compile/partition/partition.h"

/* Those who take a value. */
struct takers {
    double need_ns;                /* their earliest start (as soon as possible) */
    const struct node_time *first; /* of them, in the order */
    const struct node *first_node;
    uint64_t must;      /* what all of them wait for */
    bool is_impossible; /* one is no node before the cut, so nothing is known of it */
    bool is_certain;    /* all of them run in every step */
};
#define TAKERS_INIT \
    (struct takers) { .need_ns = INFINITY, .must = ~UINT64_C(0), .is_certain = true }

void takers_add(struct takers *takers, const struct partitioner *p, const struct node *taker);
/* Is there a taker, and is something known of all? */
bool takers_are_known(const struct takers *takers);

struct anchor {
    const struct node_time *time;
    struct node *node;
};

/* The anchors of a task, by their ends. */
struct anchors {
    const struct partitioner *p;
    struct anchor *all;
    int n;
    int *seen_by; /* by node id: the last walk that saw the node */
    const struct node **queue;
    int n_walks;
};

/* Reads p->times and p->conditions. Nodes whose `may` is NODE_TIME_LOST are no anchors. */
void anchors_init(struct anchors *anchors, const struct partitioner *p, int task);
void anchors_fini(struct anchors *anchors);
/* The last anchor before the takers that ends by `latest_ns`; NULL: there is none. One that the
 * first taker waits for anyway is preferred if it ends not much earlier, because times may be wrong
 * and it delays nothing but the value. */
const struct anchor *anchors_choose(struct anchors *anchors, const struct takers *takers,
                                    double latest_ns);

#endif
