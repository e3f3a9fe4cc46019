/* Delays receives, so that fewer values wait in the memory of the receiving task [WP 5.2].
 *
 *   anchor ──► ...                        anchor ──► ...
 *   _MrRecv ──────────► consumer    =>      └─ ─ ─► _MrRecv ──► consumer
 *
 * Without this, all Recvs of a task start with the step. The simulated step (partition_model.h)
 * says when a consumer needs its value. Its Recv then starts behind a node of the same task, the
 * anchor, whose simulated end is early enough for the value to arrive in time:
 *
 *   need     the earliest simulated start of a consumer (as soon as possible)
 *   latest   backwards over the receives of a task, as if they shared one link: the value's
 *            transfer ends MARGIN_NS before its need, and before the next transfer begins (as late
 *            as possible). A transfer counts TRANSFER_MARGIN times.
 *   window   while the anchor runs, at least MIN_AHEAD other values are under way or have arrived.
 *            Their transfers take AHEAD_NS, or the first of them is needed EARLY_NS before. It ends
 *            before the consumer of the value starts that is this far ahead. So however wrong the
 *            times are, the link is busy while nodes compute, also where the threads of either end
 *            get a core late.
 *
 * A delayed value stays with its sender for longer. So only values are delayed that the sender
 * holds anyway: those of variables and constants until the end of the step, others until their last
 * consumer on the sender's task starts. Values of GPUs and narrowed ones (bfloat16) are copied for
 * their Send, so they are not delayed.
 *
 * What was chosen is then tried (step_trial_run): if the simulated step takes longer or a device
 * needs more memory, it is tried again with CAREFUL times the margins, and then for each task by
 * itself. What does not pay is left out.
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
#include "master/compile/cost/cost_estimate.h"
#include "master/compile/partition/partition_anchors.h"
#include "master/compile/partition/partition_model.h"
#include "master/compile/place/place.h"

enum {
    MIN_DELAYED_BYTES = 64 << 10, /* smaller values are pushed, and are there before their Recv */
    MIN_AHEAD = 4,
};

static const double TRANSFER_MARGIN = 1.25, MARGIN_NS = 1e6, AHEAD_NS = 3e6, EARLY_NS = 12e6,
                    CAREFUL = 3;

/* Simulated units in the trials of one step: some 0.2 s. */
enum { MAX_VISITS = 1000 * 1000 };

struct receive {
    struct node *recv;
    const struct node *src;
    int index, task;
    double transfer_ns, kept_until_ns, latest_ns; /* as said above */
    struct takers takers;
    struct node *anchor; /* NULL: it starts with the step */
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
        if (isinf(receive->kept_until_ns))
            step_model_keep(p->model, receive->src, receive->index);
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

/* The last receive whose consumer may start before the i-th one is requested; -1: none. `ahead` is
 * that of the receive before, and *sum_ns what the transfers after it take. */
static int find_ahead(const struct receive *receives, int i, int ahead, double margin,
                      double *sum_ns) {
    for (; ahead + 1 <= i - MIN_AHEAD; ahead++) {
        const struct receive *next = &receives[ahead + 1];
        double early_ns = receives[i].takers.need_ns - next->takers.need_ns;
        if (*sum_ns - next->transfer_ns < margin * AHEAD_NS && early_ns < margin * EARLY_NS)
            break;
        *sum_ns -= next->transfer_ns;
    }
    return ahead;
}

/* The receives of one task, by their need. */
static void find_latest(struct receive *receives, int n, double margin) {
    double next_ns = INFINITY, sum_ns = 0;
    for (int i = n - 1; i >= 0; i--) {
        struct receive *receive = &receives[i];
        next_ns = MIN(receive->takers.need_ns - margin * MARGIN_NS, next_ns) -
                  TRANSFER_MARGIN * receive->transfer_ns;
        receive->latest_ns = MIN(next_ns, receive->kept_until_ns);
    }
    for (int i = 0, ahead = -1; i < n; i++) {
        ahead = find_ahead(receives, i, ahead, margin, &sum_ns);
        receives[i].latest_ns =
            ahead < 0 ? 0 : MIN(receives[i].latest_ns, receives[ahead].takers.need_ns);
        sum_ns += receives[i].transfer_ns;
    }
}

static void forget_anchors(struct receive *receives, int n) {
    for (int i = 0; i < n; i++)
        receives[i].anchor = NULL;
}

static void choose_on_task(struct partitioner *p, struct receive *receives, int n, double margin) {
    struct anchors anchors;
    if (n <= MIN_AHEAD) { /* no value is ever that far ahead */
        forget_anchors(receives, n);
        return;
    }
    anchors_init(&anchors, p, receives[0].task);
    find_latest(receives, n, margin);
    for (int i = 0; i < n; i++) {
        struct receive *receive = &receives[i];
        const struct anchor *anchor =
            receive->latest_ns > 0 ? anchors_choose(&anchors, &receive->takers, receive->latest_ns)
                                   : NULL;
        receive->anchor = anchor ? anchor->node : NULL;
    }
    anchors_fini(&anchors);
}

/* ---- trials ---- */

static int end_of_task(const struct receive *receives, int n, int from) {
    int end = from;
    while (end < n && receives[end].task == receives[from].task)
        end++;
    return end;
}

static void set_gates(const struct partitioner *p, int *gates, const struct receive *receives,
                      int n) {
    for (int i = 0; i < n; i++)
        step_model_set_gate(p->model, p, gates, receives[i].src, receives[i].index,
                            receives[i].task, receives[i].anchor);
}

static enum step_verdict choose_for_all(struct partitioner *p, struct step_trial *trial, int *gates,
                                        struct receive *receives, int n, double margin) {
    bool has_anchors = false;
    for (int i = 0, end; i < n; i = end) {
        end = end_of_task(receives, n, i);
        choose_on_task(p, &receives[i], end - i, margin);
    }
    for (int i = 0; i < n; i++)
        has_anchors |= receives[i].anchor != NULL;
    set_gates(p, gates, receives, n);
    return has_anchors ? step_trial_run(trial, p->model, gates) : STEP_GAINS_NOTHING;
}

/* Leaves the receives of those tasks late whose trials pay. */
static void choose_by_task(struct partitioner *p, struct step_trial *trial,
                           struct receive *receives, int n) {
    int *gates = step_model_new_gates(p->model);
    for (int i = 0, end; i < n; i = end) {
        end = end_of_task(receives, n, i);
        set_gates(p, gates, &receives[i], end - i);
        if (schedule_n_visits(p->model->schedule) < MAX_VISITS &&
            step_trial_run(trial, p->model, gates) == STEP_PAYS)
            continue;
        forget_anchors(&receives[i], end - i);
        set_gates(p, gates, &receives[i], end - i);
    }
}

static void choose_anchors(struct partitioner *p, struct receive *receives, int n) {
    struct step_trial trial;
    int *gates = step_model_new_gates(p->model);
    step_trial_init(&trial, p->model);
    enum step_verdict verdict = choose_for_all(p, &trial, gates, receives, n, 1);
    if (verdict == STEP_HARMS)
        verdict = choose_for_all(p, &trial, gates, receives, n, CAREFUL);
    if (verdict == STEP_HARMS)
        choose_by_task(p, &trial, receives, n);
    else if (verdict == STEP_GAINS_NOTHING)
        forget_anchors(receives, n);
}

void partitioner_delay_receives(struct partitioner *p) {
    struct partitioner_receives *receives = p->receives;
    int n = 0, n_late = 0;
    if (!receives)
        return;
    find_consumers(p);
    for (int i = 0; i < receives->n; i++)
        if (takers_are_known(&receives->all[i].takers))
            receives->all[n++] = receives->all[i];
    if (n > MIN_AHEAD) {
        qsort(receives->all, (size_t)n, sizeof(*receives->all), compare_receives);
        choose_anchors(p, receives->all, n);
    }
    for (int i = 0; i < n; i++) {
        struct receive *receive = &receives->all[i];
        if (!receive->anchor)
            continue;
        node_add_control(&p->c->graph, receive->recv, receive->anchor);
        node_set_attr_b(&p->c->graph, receive->recv, "_late", true);
        n_late++;
    }
    log_event(EVENT_GRAPH_RECEIVES, "receives: %d of %d large ones are late", n_late, receives->n);
}
