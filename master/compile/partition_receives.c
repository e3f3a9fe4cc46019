/* Delays receives, so that fewer values wait in the memory of the receiving task [WP 5.2].
 *
 *   anchor ──► ...                        anchor ──► ...
 *   _MrRecv ──────────► consumer    =>      └─ ─ ─► _MrRecv ──► consumer
 *
 * Without this, all Recvs of a task start with the step. The simulated step (schedule.h) says when
 * a consumer needs its value. Its Recv then starts behind a node of the same task, the anchor,
 * whose simulated end is early enough for the value to arrive in time:
 *
 *   need     the earliest simulated start of a consumer (as soon as possible)
 *   latest   backwards over the receives of a task, as if they shared one link: the value's
 *            transfer ends at its need and before the next transfer begins (as late as possible).
 *            Estimates are rough, so a transfer counts TRANSFER_MARGIN times.
 *   window   the anchor also ends before the consumer of the MIN_AHEAD-th receive before this one
 *            starts. So however wrong the times are, that many values are under way or have
 *            arrived while nodes compute.
 *
 * A delayed value stays with its sender for longer. So only values are delayed that the sender
 * holds anyway: those of variables and constants until the end of the step, others until their last
 * consumer on the sender's task starts. Values of GPUs and narrowed ones (bfloat16) are copied for
 * their Send, so they are not delayed.
 *
 * partition_anchors.h says why no cycle arises and nothing waits for ever.
 *
 * The Recv gets the attr `_late`, and its task does not grant the value before the Recv starts
 * (worker/exchange/rendezvous.h). Partial runs are left alone, because their feeds come at any
 * time. */
#include <math.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/graph/internal_ops.h"
#include "master/compile/cost_estimate.h"
#include "master/compile/partition.h"
#include "master/compile/partition_anchors.h"
#include "master/compile/place.h"

enum {
    MIN_DELAYED_BYTES = 64 << 10, /* smaller values are pushed, and are there before their Recv */
    MIN_AHEAD = 4,
};

static const double TRANSFER_MARGIN = 2, MARGIN_NS = 200000;

struct receive {
    struct node *recv;
    const struct node *src;
    int index, task;
    double transfer_ns, kept_until_ns, latest_ns; /* as drawn above */
    struct takers takers;
};

struct partitioner_receives {
    double *last_use_ns; /* by endpoint: the start of its last consumer on its own task */
    struct receive *all;
    int n, capacity;
};

void partitioner_receives_free(struct partitioner_receives *receives) {
    if (receives)
        free(receives->all);
}

/* ---- the receives of a graph ---- */

/* Has the value's memory an owner for the whole step, so that a late Send holds nothing more? */
static bool is_kept_for_step(const struct node *node) {
    while (node_is_either(node, "Identity", "Snapshot") && node->n_data > 0)
        node = node->inputs[0].src;
    return node_is_either(node, "VariableV2", "Variable") || node_is_op(node, "ReadVariableOp") ||
           node_is_op(node, "Const");
}

void partitioner_note_receive(struct partitioner *p, const struct node *src, int index, int task,
                              struct node *recv) {
    if (!p->times || src->id >= p->n_ids || p->frames.out[src->id] != 0 ||
        device_host(p->devices, src->placed) != src->placed) /* the Send holds a copy */
        return;
    if (!p->receives)
        p->receives = arena_new(&p->c->arena, struct partitioner_receives);
    struct partitioner_receives *receives = p->receives;
    double bytes = (double)partitioner_known_bytes(p, src, index);
    if (bytes <= MIN_DELAYED_BYTES)
        return;
    if (receives->n == receives->capacity) {
        receives->capacity = MAX(16, 2 * receives->capacity);
        receives->all =
            xreallocarray(receives->all, (size_t)receives->capacity, sizeof(*receives->all));
    }
    const struct device_info *devices = p->devices->devices;
    struct schedule_link link = cost_estimate_link(p->c, &devices[src->placed],
                                                   &devices[p->devices->tasks[task].first_device]);
    receives->all[receives->n++] =
        (struct receive){.recv = recv,
                         .src = src,
                         .index = index,
                         .task = task,
                         .transfer_ns = link.latency_ns + bytes * link.ns_per_byte,
                         .takers = TAKERS_INIT};
}

static uint64_t endpoint_of(const struct partitioner *p, const struct node *src, int index) {
    return p->first_endpoint[src->id] + (uint64_t)(index + 1);
}

/* An edge of the cut graph: within a task, or from a Recv. */
static void note_edge(struct partitioner *p, const struct node_input *in, const int *receive_of,
                      const struct node *dst) {
    struct partitioner_receives *receives = p->receives;
    if (receive_of[in->src->id] >= 0) {
        takers_add(&receives->all[receive_of[in->src->id]].takers, p, dst);
        return;
    }
    bool is_use = in->index != CONTROL_EDGE && in->src->id < p->n_ids && dst->id < p->n_ids;
    if (!is_use)
        return;
    double *last_ns = &receives->last_use_ns[endpoint_of(p, in->src, in->index)];
    *last_ns = node_is_op(dst, OP_FETCH) ? INFINITY : MAX(*last_ns, p->times[dst->id].start_ns);
}

static void find_consumers(struct partitioner *p) {
    const struct graph *graph = &p->c->graph;
    struct partitioner_receives *receives = p->receives;
    int *receive_of = arena_array(&p->c->arena, int, graph->n_nodes + 1);
    memset(receive_of, -1, sizeof(int) * ((size_t)graph->n_nodes + 1));
    receives->last_use_ns = arena_array(&p->c->arena, double, p->first_endpoint[p->n_ids] + 1);
    for (int i = 0; i < receives->n; i++)
        receive_of[receives->all[i].recv->id] = i;
    for (int id = 0; id < graph->n_nodes; id++)
        for (int i = 0; !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_inputs; i++)
            note_edge(p, &graph->nodes[id]->inputs[i], receive_of, graph->nodes[id]);
    for (int i = 0; i < receives->n; i++) {
        struct receive *receive = &receives->all[i];
        receive->kept_until_ns =
            is_kept_for_step(receive->src)
                ? INFINITY
                : receives->last_use_ns[endpoint_of(p, receive->src, receive->index)];
    }
}

/* ---- delays ---- */

/* By task, need, and edge. */
static int compare_receives(const void *left, const void *right) {
    const struct receive *a = left, *b = right;
    if (a->task != b->task)
        return a->task - b->task;
    if (a->takers.need_ns != b->takers.need_ns)
        return a->takers.need_ns < b->takers.need_ns ? -1 : 1;
    return a->recv->id - b->recv->id;
}

/* The receives of one task, by their need. */
static void find_latest(struct receive *receives, int n) {
    double next_ns = INFINITY;
    for (int i = n - 1; i >= 0; i--) {
        struct receive *receive = &receives[i];
        next_ns = MIN(receive->takers.need_ns, next_ns) - TRANSFER_MARGIN * receive->transfer_ns;
        receive->latest_ns = MIN(next_ns - MARGIN_NS, receive->kept_until_ns);
        receive->latest_ns =
            i < MIN_AHEAD ? 0 : MIN(receive->latest_ns, receives[i - MIN_AHEAD].takers.need_ns);
    }
}

/* Returns how many receives of the task it has delayed. */
static int delay_on_task(struct partitioner *p, struct receive *receives, int n) {
    struct anchors anchors;
    int n_late = 0;
    if (n <= MIN_AHEAD)
        return 0;
    anchors_init(&anchors, p, receives[0].task);
    find_latest(receives, n);
    for (int i = 0; i < n; i++) {
        struct receive *receive = &receives[i];
        const struct anchor *anchor =
            receive->latest_ns > 0 ? anchors_choose(&anchors, &receive->takers, receive->latest_ns)
                                   : NULL;
        if (!anchor)
            continue;
        node_add_control(&p->c->graph, receive->recv, anchor->node);
        node_set_attr_b(&p->c->graph, receive->recv, "_late", true);
        n_late++;
    }
    anchors_fini(&anchors);
    return n_late;
}

void partitioner_delay_receives(struct partitioner *p) {
    struct partitioner_receives *receives = p->receives;
    if (!receives)
        return;
    find_consumers(p);
    int n = 0, n_late = 0;
    for (int i = 0; i < receives->n; i++)
        if (takers_are_known(&receives->all[i].takers))
            receives->all[n++] = receives->all[i];
    if (n > 0)
        qsort(receives->all, (size_t)n, sizeof(*receives->all), compare_receives);
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && receives->all[end].task == receives->all[i].task;)
            end++;
        n_late += delay_on_task(p, &receives->all[i], end - i);
    }
    log_event(EVENT_GRAPH_RECEIVES, "receives: %d of %d large ones are late", n_late, receives->n);
}
