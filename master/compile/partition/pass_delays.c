/* Lets nodes that make a large value of little run just before the first node that takes it, so
 * that fewer such values are in memory at once [WP 5.2].
 *
 *   y1 = MatMul(y0, w)    n = Fill(dims, 0.5)    y2 = Mul(y1, n)
 *      =>  n = Fill(dims, 0.5, ^y0)
 *
 * Without this, a Fill runs as soon as its inputs exist, which is at the start of the step for
 * most, and its value waits. The nodes are those of `expanding`, and elementwise fused programs, on
 * a CPU. Their value is known to have at least MIN_BYTES, and MIN_GROWTH times the bytes of their
 * inputs, which wait instead of it.
 *
 * Such a node waits for an anchor (partition_anchors.h), and only a control edge is added: nothing
 * is computed twice, and no value changes. The step must not take longer, so by its simulation
 *
 *   - the anchor ends so early that the node, whose time counts TIME_MARGIN times, ends before the
 *     other inputs of its takers exist. So a node on the critical path stays as it is.
 *   - the anchor ends before the value of the preceding such node is needed. So however wrong the
 *     times are, one value is ready, or being made by another thread, while a node computes.
 *   - all takers wait for the anchor anyway. Otherwise they could have run beside it, on another
 *     thread: nodes of a wide graph stay as they are.
 *
 * Then the step is simulated with all new edges (step_trial_run). They are used if a peak of memory
 * falls, none rises, and the step is as short.
 *
 * Only in sessions whose receives are scheduled (partition_receives.c). Where a task has idle
 * threads at the start of the step, they would make all values then, at no cost but memory.
 *
 * Random numbers are not among them, because they take long to make: a thread that has nothing else
 * to do had better make them early. Left alone are loops, what depends on a condition, nodes that
 * read a reference to a variable, values that another task takes, and partial runs, whose feeds
 * come at any time. */
#include <stdlib.h>

#include "common/graph/conditions.h"
#include "common/graph/fused.h"
#include "common/graph/references.h"
#include "kernels/kernel.h"
#include "master/compile/cost/cost_estimate.h"
#include "master/compile/partition/partition_anchors.h"
#include "master/compile/partition/partition_model.h"

enum { MIN_BYTES = 1 << 20, MIN_GROWTH = 3, MAX_VISITS = 10000, MAX_TRIED = 8 };

static const double TIME_MARGIN = 2, MARGIN_NS = 50000, EARLIER_NS = 2;

static const char *const expanding[] = {
    "BroadcastTo",  "Cast",         "Fill",   "LinSpace", "MatrixDiag",
    "MatrixDiagV2", "MatrixDiagV3", "OneHot", "Range",    "Tile",
};

struct expander {
    struct node *node;
    struct takers takers;
    double start_ns, latest_ns;
    int task;
    bool is_late; /* its last input is the anchor */
};

struct delayer {
    struct compilation *c;
    struct partitioner p; /* for partition_times.c and partition_anchors.c */
    struct conditions conditions;
    struct graph_consumers consumers;
    bool *is_reference; /* by node id */
    int *visited;       /* by node id: the number of the last walk that was there */
    int n_walks;
    struct expander *all;
    int n;
};

/* ---- the nodes ---- */

static bool is_expanding(const struct compilation *c, const struct node *node) {
    bool is_listed = node_is_op(node, OP_FUSED) && node->n_outputs == 1;
    for (size_t i = 0; i < ARRAY_LEN(expanding) && !is_listed; i++)
        is_listed = node_is_op(node, expanding[i]);
    return is_listed && node->n_data > 0 && node->placed >= 0 &&
           strcmp(c->devices->devices[node->placed].type, "CPU") == 0;
}

/* Is it no fused program, or one that only computes element by element? Such a program grows by a
 * Cast, or by an operand that is broadcast. */
static bool is_cheap(const struct node *node) {
    struct fused_program program;
    bool is_cheap = true;
    if (!node_is_op(node, OP_FUSED))
        return true;
    struct status *st = fused_program_read(node, &program);
    status_unref(st);
    if (st)
        return false;
    for (int i = 0; i < program.n_instructions; i++) {
        const struct kernel_def *def = kernel_find(program.instructions[i], "CPU");
        is_cheap &= def && (def->flags & KERNEL_ELEMENTWISE);
    }
    fused_program_fini(&program);
    return is_cheap;
}

static bool reads_reference(const struct delayer *d, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (d->is_reference[node->inputs[i].src->id])
            return true;
    return node_has_ref(node);
}

/* Is the value large, and are the inputs small, which will be in memory for longer? */
static bool grows(const struct graph_shapes *shapes, const struct node *node) {
    int64_t bytes = graph_shapes_bytes(shapes, node, 0), inputs = 0;
    for (int i = 0; i < node->n_data; i++) {
        int64_t input = graph_shapes_bytes(shapes, node->inputs[i].src, node->inputs[i].index);
        if (input < 0)
            return false;
        inputs += input;
    }
    return bytes >= MIN_BYTES && bytes / MIN_GROWTH >= inputs;
}

/* Are there nodes that may be delayed? *ret_large has them, by node id; in the arena. */
static bool find_large(struct compilation *c, bool **ret_large) {
    bool *is_large = NULL;
    for (int id = 0; id < c->graph.n_nodes; id++) {
        const struct node *node = c->graph.nodes[id];
        if (node->is_removed || !is_expanding(c, node) || !grows(compilation_shapes(c), node) ||
            !is_cheap(node))
            continue;
        if (!is_large)
            is_large = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
        is_large[id] = true;
    }
    *ret_large = is_large;
    return is_large != NULL;
}

static void add_takers(const struct delayer *d, struct expander *expander) {
    const struct node *node = expander->node;
    for (int i = d->consumers.first[node->id]; i < d->consumers.first[node->id + 1]; i++) {
        const struct node *taker = d->consumers.edges[i].dst;
        takers_add(&expander->takers, &d->p, taker);
        expander->takers.is_impossible |= partitioner_task(&d->p, taker) != expander->task ||
                                          d->p.frames.in[taker->id] != 0 ||
                                          d->p.frames.out[taker->id] != 0;
    }
}

/* All large ones are no anchors, also those that are not delayed. */
static void gather(struct delayer *d, const bool *is_large) {
    d->all = arena_array(&d->c->arena, struct expander, d->p.n_ids + 1);
    for (int id = 0; id < d->p.n_ids; id++) {
        struct node *node = d->c->graph.nodes[id];
        struct expander *expander = &d->all[d->n];
        if (!is_large[id])
            continue;
        *expander = (struct expander){.node = node,
                                      .takers = TAKERS_INIT,
                                      .start_ns = d->p.times[id].start_ns,
                                      .task = partitioner_task(&d->p, node)};
        d->p.times[id].may |= NODE_TIME_LOST;
        if (d->p.frames.in[id] != 0 || d->p.frames.out[id] != 0 || reads_reference(d, node) ||
            partitioner_condition(&d->p, node) != CONDITION_ALWAYS)
            continue;
        add_takers(d, expander);
        d->n += takers_are_known(&expander->takers);
    }
}

/* ---- delays ---- */

/* By task, need, and number. */
static int compare_expanders(const void *left, const void *right) {
    const struct expander *a = left, *b = right;
    if (a->task != b->task)
        return a->task - b->task;
    if (a->takers.need_ns != b->takers.need_ns)
        return a->takers.need_ns < b->takers.need_ns ? -1 : 1;
    return a->node->id - b->node->id;
}

/* When a taker could start if it needed all inputs but that of the node. The simulation may start
 * it later, because there a task has one thread. */
static double ready_ns(const struct delayer *d, const struct node *taker, const struct node *node) {
    double ready_ns = 0;
    for (int i = 0; i < taker->n_inputs; i++)
        if (taker->inputs[i].src != node)
            ready_ns = MAX(ready_ns, d->p.times[taker->inputs[i].src->id].end_ns);
    return ready_ns;
}

static void find_latest(struct delayer *d, int i) {
    struct expander *expander = &d->all[i];
    const struct node *node = expander->node;
    const struct node_time *time = &d->p.times[node->id];
    double need_ns = expander->takers.need_ns;
    for (int k = d->consumers.first[node->id]; k < d->consumers.first[node->id + 1]; k++)
        need_ns = MIN(need_ns, ready_ns(d, d->consumers.edges[k].dst, node));
    expander->latest_ns = need_ns - TIME_MARGIN * (time->end_ns - time->start_ns) - MARGIN_NS;
    if (i > 0 && d->all[i - 1].task == expander->task)
        expander->latest_ns = MIN(expander->latest_ns, d->all[i - 1].takers.need_ns);
}

/* Does the taker wait for the anchor? False also where that takes long to find out. */
static bool waits_for(struct delayer *d, const struct node *taker, const struct node *anchor,
                      const struct node **stack) {
    int n_stack = 0, n_visits = 0, walk = ++d->n_walks;
    stack[n_stack++] = taker;
    while (n_stack > 0 && n_visits < MAX_VISITS) {
        const struct node *node = stack[--n_stack];
        for (int i = 0; i < node->n_inputs; i++, n_visits++) {
            const struct node *src = node->inputs[i].src;
            if (src == anchor)
                return true;
            if (d->visited[src->id] == walk ||
                d->p.times[src->id].order < d->p.times[anchor->id].order)
                continue;
            d->visited[src->id] = walk;
            stack[n_stack++] = src;
        }
    }
    return false;
}

static bool all_wait_for(struct delayer *d, const struct node *node, const struct node *anchor,
                         const struct node **stack) {
    for (int i = d->consumers.first[node->id]; i < d->consumers.first[node->id + 1]; i++)
        if (!waits_for(d, d->consumers.edges[i].dst, anchor, stack))
            return false;
    return true;
}

/* The last anchor that ends in time, and that all takers wait for; NULL: there is none. */
static struct node *choose(struct delayer *d, struct anchors *anchors,
                           const struct expander *expander, const struct node **stack) {
    double latest_ns = expander->latest_ns;
    for (int i = 0; i < MAX_TRIED; i++) {
        const struct anchor *anchor = anchors_choose(anchors, &expander->takers, latest_ns);
        if (!anchor || anchor->time->end_ns <= expander->start_ns)
            return NULL;
        if (all_wait_for(d, expander->node, anchor->node, stack))
            return anchor->node;
        latest_ns = anchor->time->end_ns - EARLIER_NS;
    }
    return NULL;
}

/* Returns how many it has delayed. */
static int delay_all(struct delayer *d) {
    struct anchors anchors = {0};
    int n_delayed = 0;
    const struct node **stack = xcalloc((size_t)d->p.n_ids + 1, sizeof(struct node *));
    qsort(d->all, (size_t)d->n, sizeof(*d->all), compare_expanders);
    for (int i = 0; i < d->n; i++) {
        struct expander *expander = &d->all[i];
        if (i == 0 || d->all[i - 1].task != expander->task) {
            anchors_fini(&anchors);
            anchors_init(&anchors, &d->p, expander->task);
        }
        find_latest(d, i);
        struct node *anchor = choose(d, &anchors, expander, stack);
        int n_before = expander->node->n_inputs;
        if (anchor)
            node_add_control(&d->c->graph, expander->node, anchor);
        expander->is_late = expander->node->n_inputs > n_before;
        n_delayed += expander->is_late;
    }
    anchors_fini(&anchors);
    free(stack);
    return n_delayed;
}

/* Simulates the step with the new edges. */
static struct status *try_edges(struct delayer *d, enum step_verdict *ret) {
    struct step_trial trial;
    struct node **order;
    TRY(graph_topological_order(&d->c->graph, &order));
    struct step_model *late = step_model_new(&d->p, order);
    free(order);
    step_trial_init(&trial, d->p.model);
    *ret = step_trial_run(&trial, late, step_model_new_gates(late));
    step_model_free(late);
    return NULL;
}

static void take_back(struct delayer *d) {
    for (int i = 0; i < d->n; i++)
        if (d->all[i].is_late)
            node_remove_input(d->all[i].node, d->all[i].node->n_inputs - 1);
}

static struct status *delay(struct delayer *d, const bool *is_large, bool *ret_changed) {
    struct graph *graph = &d->c->graph;
    struct node **order;
    TRY(graph_topological_order(graph, &order));
    loop_frames_init(&d->p.frames, graph, order, graph->n_live);
    conditions_init(&d->conditions, graph, order, graph->n_live);
    free(order);
    d->p.conditions = &d->conditions;
    d->p.n_ids = graph->n_nodes;
    TRY(partitioner_time_nodes(&d->p));
    gather(d, is_large);
    enum step_verdict verdict = STEP_GAINS_NOTHING;
    if (delay_all(d) > 0)
        TRY(try_edges(d, &verdict));
    *ret_changed = verdict == STEP_PAYS;
    if (verdict != STEP_PAYS)
        take_back(d);
    return NULL;
}

struct status *pass_delays(struct compilation *c, bool *ret_changed) {
    struct delayer d = {.c = c, .p = {.c = c, .devices = c->devices}};
    bool *is_large;
    if (!c->options->recv_scheduling || c->signature->is_partial || !find_large(c, &is_large))
        return NULL;
    graph_consumers_init(&d.consumers, &c->graph);
    d.is_reference = graph_find_references(&c->graph, &d.consumers);
    d.visited = arena_array(&c->arena, int, c->graph.n_nodes + 1);
    struct status *st = delay(&d, is_large, ret_changed);
    graph_consumers_fini(&d.consumers);
    conditions_fini(&d.conditions);
    loop_frames_fini(&d.p.frames);
    step_model_free(d.p.model);
    free(d.is_reference);
    return st;
}
