/* Finds the groups of elementwise nodes that may become one node (fuse.h). On a CPU, reductions may
 * be members too (fuse_reductions.c).
 *
 * A group's node runs when all that its members take is there, and all its results come together.
 * So members have the same device, frame and condition (conditions.h), and two things must be told:
 *
 *   depth   the most nodes on a path to the node that are not elementwise, have inputs, or are on
 *           another device. Nodes of one depth that are connected have no path between them that
 *           leaves their group, so no cycle arises. Nor does the result of one product wait for the
 *           next product. An Exit is behind all nodes of its loop, since each of them may decide,
 *           over iterations, what leaves it.
 *   waits   the asynchronous nodes that the node depends on: a Dequeue may wait for an Enqueue of
 *           another result, an edge that no graph shows. Members of a group with several results
 *           depend on the same ones.
 *
 *   1. Connected nodes for which all of this is the same are a group.
 *   2. A group whose values are all taken by one other group joins that one, whatever the depth:
 *      the result waits for all of it in any case.
 *
 * A node that reads a reference to a variable reads it when it runs, and must not come to run
 * later: an update that nothing orders would mostly come before it then. So its group has only
 * early nodes, which wait for nothing but references, feeds and constants, and 2 leaves the group
 * alone.
 */
#include "master/compile/fuse/fuse.h"

#include <stdlib.h>

#include "common/graph/conditions.h"
#include "common/graph/fused.h"
#include "common/graph/references.h"
#include "kernels/kernel.h"

enum { MAX_WAITERS = 64 }; /* bits of struct fuse_node's `waits` */

struct fuse_node {
    uint64_t waits;
    int depth;
    bool may;      /* it may be in a group */
    bool is_early; /* takes only references, what has no inputs, and values of early nodes */
    bool is_lost;  /* it depends on more asynchronous nodes than there are bits */
};

/* The greatest of what the nodes of a loop have. */
struct loop_sum {
    uint64_t waits;
    int depth;
    bool is_lost;
};

struct finder {
    struct compilation *c;
    struct node *const *order;
    const struct graph_consumers *consumers;
    struct loop_frames frames;
    struct conditions conditions;
    bool *is_reference;        /* by node id */
    bool *is_target;           /* by node id */
    struct loop_sum *loops;    /* by frame */
    int *loop_condition;       /* by frame: of the values of its NextIterations */
    struct fuse_node *nodes;   /* by node id */
    int *parent;               /* by node id: union-find */
    int *group_of;             /* by node id; -1 */
    const uint64_t *feed_sets; /* by node id, in a partial run */
    int *merged_into, *n_in;   /* by group: itself or the group that it has joined; its size */
    const struct node **first; /* by group: a member */
    int n_groups, n_waiters;
};

/* ---- who may be in a group ---- */

/* The loops where every iteration but the first is under one side of one LoopCond, so that all
 * values of an iteration are alive or dead together. Others have UNCERTAIN. */
static void find_loop_conditions(struct finder *f) {
    enum { UNKNOWN = -2 };
    f->loop_condition = arena_array(&f->c->arena, int, f->frames.n_frames);
    for (int i = 0; i < f->frames.n_frames; i++)
        f->loop_condition[i] = UNKNOWN;
    for (int i = 0; i < f->c->graph.n_live; i++) {
        const struct node *node = f->order[i];
        if (!node_is_either(node, "NextIteration", "RefNextIteration"))
            continue;
        int *of = &f->loop_condition[f->frames.in[node->id]];
        int condition = f->conditions.of[node->id];
        bool is_loop_cond =
            condition > CONDITION_ALWAYS &&
            node_is_op(f->c->graph.nodes[f->conditions.all[condition].pred_id], "LoopCond");
        *of =
            is_loop_cond && (*of == UNKNOWN || *of == condition) ? condition : CONDITION_UNCERTAIN;
    }
}

/* The row that computes the node where it is placed. */
static const struct kernel_def *row_in_place(const struct finder *f, const struct node *node) {
    return node->placed >= 0 ? kernel_find(node, f->c->devices->devices[node->placed].type) : NULL;
}

/* A bias of channels in the middle has no loop over contiguous elements. */
static bool has_middle_channels(const struct node *node) {
    const struct attr_value *format = node_attr(node, "data_format");
    return format && !(format->type == ATTR_STRING && span_is(format->s, "NHWC"));
}

static bool is_elementwise(const struct kernel_def *def) {
    return def && (def->flags & KERNEL_ELEMENTWISE);
}

/* Does another member make, or take, what the node reduces? Else it is read once in any case, and
 * two large reductions whose results are added would run one after the other. */
static bool shares_operand(const struct finder *f, const struct node *node) {
    const struct node_input *in = &node->inputs[0];
    if (f->nodes[in->src->id].may && in->src->placed == node->placed)
        return true;
    for (int k = f->consumers->first[in->src->id]; k < f->consumers->first[in->src->id + 1]; k++) {
        const struct node_output_edge *edge = &f->consumers->edges[k];
        if (edge->index == in->index && edge->dst->placed == node->placed &&
            is_elementwise(row_in_place(f, edge->dst)))
            return true;
    }
    return false;
}

static bool may_be_fused(const struct finder *f, const struct node *node) {
    const struct kernel_def *def = row_in_place(f, node);
    int frame = f->frames.in[node->id];
    bool is_member =
        is_elementwise(def) || (def && fuse_may_reduce(f->c, node) && shares_operand(f, node));
    return is_member && node->n_data > 0 && node->n_outputs == 1 && !node_is_stateful(node) &&
           !node_has_ref(node) && !f->is_target[node->id] && !has_middle_channels(node) &&
           f->conditions.of[node->id] != CONDITION_UNCERTAIN &&
           (frame == 0 || f->loop_condition[frame] != CONDITION_UNCERTAIN);
}

static bool reads_reference(const struct finder *f, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (f->is_reference[node->inputs[i].src->id])
            return true;
    return false;
}

static bool is_early(const struct finder *f, const struct node *node) {
    for (int i = 0; i < node->n_data; i++) {
        const struct node *src = node->inputs[i].src;
        const struct fuse_node *from = &f->nodes[src->id];
        if (!f->is_reference[src->id] && src->n_inputs > 0 && !(from->may && from->is_early))
            return false;
    }
    return node->n_inputs == node->n_data;
}

/* Asynchronous kernels, and nodes of which nothing is known. */
static bool may_wait(const struct node *node, const struct kernel_def *def) {
    if (def)
        return def->flags & KERNEL_ASYNC;
    return !node_is_internal(node) && (node_is_stateful(node) || node_uses_functions(node));
}

/* A node without inputs is on no path between two members. */
static int depth_after(const struct finder *f, const struct node *src, const struct node *node) {
    const struct fuse_node *from = &f->nodes[src->id];
    bool is_step = src->placed != node->placed || (!from->may && src->n_inputs > 0);
    return from->depth + is_step;
}

/* What leaves a loop waits for all of it. */
static void add_loop(struct finder *f, const struct node *node, bool is_exit) {
    struct fuse_node *me = &f->nodes[node->id];
    struct loop_sum *loop = &f->loops[is_exit ? f->frames.in[node->id] : f->frames.out[node->id]];
    if (is_exit) {
        me->depth = MAX(me->depth, loop->depth + 1);
        me->waits |= loop->waits;
        me->is_lost |= loop->is_lost;
    } else {
        loop->depth = MAX(loop->depth, me->depth);
        loop->waits |= me->waits;
        loop->is_lost |= me->is_lost;
    }
}

/* Returns whether the node has got other values than in the round before. */
static bool look_at_node(struct finder *f, const struct node *node, bool is_first_round) {
    struct fuse_node *me = &f->nodes[node->id], before = *me;
    bool is_exit = node_is_either(node, "Exit", "RefExit");
    const struct kernel_def *def = kernel_find(node, "CPU");
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        if (node_is_either(src, "NextIteration", "RefNextIteration"))
            continue; /* of the iteration before */
        me->depth = MAX(me->depth, depth_after(f, src, node));
        me->waits |= f->nodes[src->id].waits;
        me->is_lost |= f->nodes[src->id].is_lost;
    }
    if (is_exit)
        add_loop(f, node, true);
    me->is_early = is_early(f, node);
    me->may = !me->is_lost && may_be_fused(f, node) && (me->is_early || !reads_reference(f, node));
    if (is_first_round && may_wait(node, def)) {
        if (f->n_waiters == MAX_WAITERS)
            me->is_lost = true;
        else
            me->waits |= UINT64_C(1) << f->n_waiters++;
    }
    if (!is_exit)
        add_loop(f, node, false);
    return me->depth != before.depth || me->waits != before.waits ||
           me->is_lost != before.is_lost || me->may != before.may;
}

/* In the topological order an Exit may come before nodes of its loop, so there are rounds: two, and
 * one for each further loop behind a loop that the order has so. Of too many nothing is fused. */
static bool look_at_nodes(struct finder *f) {
    enum { MAX_ROUNDS = 16 };
    bool changed = true;
    for (int round = 0; changed && round < MAX_ROUNDS; round++) {
        changed = false;
        for (int i = 0; i < f->c->graph.n_live; i++)
            changed |= look_at_node(f, f->order[i], round == 0);
        changed &= f->frames.n_frames > 1;
    }
    return !changed;
}

/* ---- 1. connected nodes of one kind ---- */

static int root_of(struct finder *f, int id) {
    while (f->parent[id] != id)
        id = f->parent[id] = f->parent[f->parent[id]];
    return id;
}

static bool is_same_kind(const struct finder *f, const struct node *a, const struct node *b) {
    return f->conditions.of[a->id] == f->conditions.of[b->id] && a->placed == b->placed &&
           f->frames.in[a->id] == f->frames.in[b->id] && feed_sets_are_equal(f->feed_sets, a, b);
}

static void connect(struct finder *f, const struct node *node) {
    const struct fuse_node *me = &f->nodes[node->id];
    for (int i = 0; me->may && i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        const struct fuse_node *from = &f->nodes[src->id];
        if (from->may && from->depth == me->depth && from->waits == me->waits &&
            from->is_early == me->is_early && is_same_kind(f, src, node))
            f->parent[root_of(f, src->id)] = root_of(f, node->id);
    }
}

/* Numbers the groups in topological order, and divides what is too large along that order. */
static void number_groups(struct finder *f) {
    int n = f->c->graph.n_nodes;
    int *newest = arena_array(&f->c->arena, int, n + 1); /* by root: its newest group + 1 */
    f->group_of = arena_array(&f->c->arena, int, n + 1);
    f->merged_into = arena_array(&f->c->arena, int, n + 1);
    f->n_in = arena_array(&f->c->arena, int, n + 1);
    f->first = arena_array(&f->c->arena, const struct node *, n + 1);
    for (int i = 0; i < f->c->graph.n_live; i++) {
        const struct node *node = f->order[i];
        f->group_of[node->id] = -1;
        if (!f->nodes[node->id].may)
            continue;
        int *group = &newest[root_of(f, node->id)];
        if (*group == 0 || f->n_in[*group - 1] == FUSED_MAX_INSTRUCTIONS) {
            f->merged_into[f->n_groups] = f->n_groups;
            f->first[f->n_groups] = node;
            *group = ++f->n_groups;
        }
        f->group_of[node->id] = *group - 1;
        f->n_in[*group - 1]++;
    }
}

/* ---- 2. groups that one other group takes ---- */

static int group_of(const struct finder *f, const struct node *node) {
    int group = f->group_of[node->id];
    while (group >= 0 && f->merged_into[group] != group)
        group = f->merged_into[group] = f->merged_into[f->merged_into[group]];
    return group;
}

/* Notes in takers[] the one group that takes values of the node's group: SEVERAL if there are more
 * takers, or other nodes. */
enum { NO_TAKER = -1, SEVERAL_TAKERS = -2 };
static void note_takers(const struct finder *f, const struct node *node, int *takers) {
    int group = group_of(f, node);
    if (group < 0)
        return;
    if (reads_reference(f, node))
        takers[group] = SEVERAL_TAKERS;
    for (int k = f->consumers->first[node->id]; k < f->consumers->first[node->id + 1]; k++) {
        int taker = group_of(f, f->consumers->edges[k].dst);
        if (taker == group)
            continue;
        bool is_first = taker >= 0 && (takers[group] == NO_TAKER || takers[group] == taker);
        takers[group] = is_first ? taker : SEVERAL_TAKERS;
    }
}

static bool join_taker(struct finder *f, int group, int taker) {
    if (f->merged_into[group] != group || taker < 0)
        return false;
    taker = f->merged_into[taker] == taker ? taker : group_of(f, f->first[taker]);
    if (taker == group || f->n_in[group] + f->n_in[taker] > FUSED_MAX_INSTRUCTIONS ||
        !is_same_kind(f, f->first[group], f->first[taker]))
        return false;
    f->merged_into[group] = taker;
    f->n_in[taker] += f->n_in[group];
    return true;
}

/* A group that has joined its taker may be what kept another one from having a single taker, so it
 * goes on while something changes, a few times. */
static void join_takers(struct finder *f) {
    enum { MAX_ROUNDS = 4 };
    int *takers = arena_array(&f->c->arena, int, f->n_groups + 1);
    bool changed = true;
    for (int round = 0; changed && round < MAX_ROUNDS; round++) {
        changed = false;
        for (int i = 0; i < f->n_groups; i++)
            takers[i] = NO_TAKER;
        for (int i = 0; i < f->c->graph.n_live; i++)
            note_takers(f, f->order[i], takers);
        for (int i = f->n_groups - 1; i >= 0; i--)
            changed |= join_taker(f, i, takers[i]);
    }
}

/* ---- the result ---- */

/* By group: a reduction gains nothing but from elementwise nodes beside it. */
static bool *find_elementwise(struct finder *f) {
    bool *has_elementwise = arena_array(&f->c->arena, bool, f->n_groups + 1);
    for (int i = 0; i < f->c->graph.n_live; i++) {
        int group = group_of(f, f->order[i]);
        if (group >= 0)
            has_elementwise[group] |= !fuse_may_reduce(f->c, f->order[i]);
    }
    return has_elementwise;
}

static void list_groups(struct finder *f, struct fuse_groups *ret) {
    struct arena *arena = &f->c->arena;
    int *number = arena_array(arena, int, f->n_groups + 1);
    const bool *has_elementwise = find_elementwise(f);
    ret->groups = arena_array(arena, struct fuse_group, f->n_groups + 1);
    ret->of = arena_array(arena, int, f->c->graph.n_nodes + 1);
    for (int i = 0; i < f->n_groups; i++) {
        number[i] = -1;
        if (f->merged_into[i] != i || f->n_in[i] < 2 || !has_elementwise[i])
            continue;
        number[i] = ret->n_groups++;
        ret->groups[number[i]].members = arena_array(arena, struct node *, f->n_in[i]);
    }
    for (int i = 0; i < f->c->graph.n_live; i++) {
        struct node *node = f->order[i];
        int group = group_of(f, node);
        ret->of[node->id] = group >= 0 ? number[group] : -1;
        if (ret->of[node->id] < 0)
            continue;
        struct fuse_group *of = &ret->groups[ret->of[node->id]];
        of->members[of->n_members++] = node;
    }
}

void fuse_groups_find(struct compilation *c, struct node *const *order,
                      const struct graph_consumers *consumers, const uint64_t *feed_sets,
                      struct fuse_groups *ret) {
    struct finder f = {.c = c, .order = order, .consumers = consumers, .feed_sets = feed_sets};
    int n = c->graph.n_nodes;
    *ret = (struct fuse_groups){0};
    f.nodes = arena_array(&c->arena, struct fuse_node, n + 1);
    f.parent = arena_array(&c->arena, int, n + 1);
    f.is_target = compile_targets(c);
    f.is_reference = graph_find_references(&c->graph, consumers);
    loop_frames_init(&f.frames, &c->graph, order, c->graph.n_live);
    conditions_init(&f.conditions, &c->graph, order, c->graph.n_live);
    find_loop_conditions(&f);
    for (int i = 0; i < n; i++)
        f.parent[i] = i;
    f.loops = arena_array(&c->arena, struct loop_sum, f.frames.n_frames + 1);
    bool is_known = look_at_nodes(&f);
    for (int i = 0; i < c->graph.n_live; i++) {
        f.nodes[order[i]->id].may &= is_known;
        connect(&f, order[i]);
    }
    number_groups(&f);
    join_takers(&f);
    list_groups(&f, ret);
    conditions_fini(&f.conditions);
    loop_frames_fini(&f.frames);
    free(f.is_reference);
}
