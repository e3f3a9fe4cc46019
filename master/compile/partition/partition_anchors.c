/* Finds anchors for nodes that run late (partition_anchors.h). */
#include "master/compile/partition/partition_anchors.h"

#include <stdlib.h>

#include "common/graph/conditions.h"
#include "common/graph/internal_ops.h"

/* For one value: anchors that are looked at, and nodes before its taker. */
enum { MAX_TRIED = 64, MAX_WALKED = 256 };

static const double ROUNDING_NS = 1, NOT_MUCH_NS = 2e6;

/* ---- takers ---- */

void takers_add(struct takers *takers, const struct partitioner *p, const struct node *taker) {
    if (taker->id >= p->n_ids) {
        takers->is_impossible = true;
        return;
    }
    const struct node_time *time = &p->times[taker->id];
    if (!takers->first || node_time_is_before(time, takers->first)) {
        takers->first = time;
        takers->first_node = taker;
    }
    takers->need_ns = MIN(takers->need_ns, time->start_ns);
    takers->must &= time->must;
    takers->is_certain &= partitioner_condition(p, taker) == CONDITION_ALWAYS;
}

bool takers_are_known(const struct takers *takers) {
    return takers->first && !takers->is_impossible;
}

/* ---- anchors ---- */

static bool may_be_anchor(const struct partitioner *p, const struct node *node) {
    return !node->is_removed && node->n_inputs > 0 && p->frames.in[node->id] == 0 &&
           p->frames.out[node->id] == 0 && !node_is_internal(node) && !node_is_switch(node) &&
           partitioner_condition(p, node) == CONDITION_ALWAYS &&
           !(p->times[node->id].may & NODE_TIME_LOST);
}

static int compare_anchors(const void *left, const void *right) {
    const struct anchor *a = left, *b = right;
    if (a->time->end_ns != b->time->end_ns)
        return a->time->end_ns < b->time->end_ns ? -1 : 1;
    return a->time->order - b->time->order;
}

void anchors_init(struct anchors *anchors, const struct partitioner *p, int task) {
    size_t n_nodes = (size_t)p->c->graph.n_nodes + 1;
    *anchors = (struct anchors){.p = p,
                                .all = xcalloc(n_nodes, sizeof(*anchors->all)),
                                .seen_by = xcalloc(n_nodes, sizeof(*anchors->seen_by)),
                                .queue = xcalloc(MAX_WALKED, sizeof(struct node *))};
    for (int id = 0; id < p->n_ids; id++) {
        struct node *node = p->c->graph.nodes[id];
        if (!node->is_removed && partitioner_task(p, node) == task && may_be_anchor(p, node))
            anchors->all[anchors->n++] = (struct anchor){&p->times[id], node};
    }
    qsort(anchors->all, (size_t)anchors->n, sizeof(*anchors->all), compare_anchors);
}

void anchors_fini(struct anchors *anchors) {
    free(anchors->all);
    free(anchors->seen_by);
    free(anchors->queue);
}

/* Notes the nodes of the task that the taker waits for, breadth first. */
static void walk_back(struct anchors *anchors, const struct node *taker) {
    int n = 0, walk = ++anchors->n_walks;
    anchors->queue[n++] = taker;
    for (int at = 0; at < n; at++)
        for (int i = 0; i < anchors->queue[at]->n_inputs && n < MAX_WALKED; i++) {
            const struct node *src = anchors->queue[at]->inputs[i].src;
            if (anchors->seen_by[src->id] == walk || node_is_way_back(src))
                continue;
            anchors->seen_by[src->id] = walk;
            anchors->queue[n++] = src;
        }
}

static bool fits(const struct anchor *anchor, const struct takers *takers) {
    return node_time_is_before(anchor->time, takers->first) &&
           (anchor->time->may & ~takers->must) == 0 &&
           (anchor->time->may == 0 || takers->is_certain);
}

const struct anchor *anchors_choose(struct anchors *anchors, const struct takers *takers,
                                    double latest_ns) {
    const struct anchor *last = NULL;
    int low = 0, high = anchors->n; /* all below `low` end in time, all from `high` on do not */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (anchors->all[middle].time->end_ns <= latest_ns + ROUNDING_NS)
            low = middle + 1;
        else
            high = middle;
    }
    walk_back(anchors, takers->first_node);
    for (int i = low - 1; i >= MAX(0, low - MAX_TRIED); i--) {
        const struct anchor *anchor = &anchors->all[i];
        if (last && anchor->time->end_ns < last->time->end_ns - NOT_MUCH_NS)
            break;
        if (!fits(anchor, takers))
            continue;
        if (anchors->seen_by[anchor->node->id] == anchors->n_walks)
            return anchor;
        last = last ? last : anchor;
    }
    return last;
}
