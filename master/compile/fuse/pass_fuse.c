/* Makes one node of a group of elementwise nodes, and on a CPU of reductions over the last
 * dimensions. A CPU computes it block by block and a GPU element by element, so that the values
 * between them never reach memory (common/graph/fused.h) [WP 5.1].
 *
 *   a = Mul(x, y)   b = AddV2(a, z)   c = Tanh(b)   d = MatMul(c, w)   e = Mul(b, c)
 *      =>  e = _MrFused(x, y, z) with the results c and e   d = MatMul(e, w)
 *
 * fuse_groups.c chooses the groups. The pass comes after placement: a group is on one device. In a
 * partial run a group's members depend on the same feeds, since a value must not wait for a feed
 * that it does not need. */
#include <stdlib.h>

#include "common/graph/fused.h"
#include "common/graph/graph_controls.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/fuse/fuse.h"

struct fuser {
    struct compilation *c;
    struct graph *graph;
    struct graph_consumers consumers;
    struct fuse_groups groups;
    int *n_before;       /* by group: edges from groups that are not made yet */
    int *ready, n_ready; /* groups for which n_before is 0 */
    bool *has_new_edges; /* by node id: of its control edges, two may be the same now */
};

/* Calls fn for each edge that leaves the group. */
static void each_leaving_edge(struct fuser *f, int group,
                              void (*fn)(struct fuser *f, int group, int member,
                                         const struct node_output_edge *edge)) {
    const struct fuse_group *of = &f->groups.groups[group];
    for (int i = 0; i < of->n_members; i++) {
        int id = of->members[i]->id;
        for (int k = f->consumers.first[id]; k < f->consumers.first[id + 1]; k++)
            if (f->groups.of[f->consumers.edges[k].dst->id] != group)
                fn(f, group, i, &f->consumers.edges[k]);
    }
}

static void count_edge(struct fuser *f, int group, int member,
                       const struct node_output_edge *edge) {
    (void)group;
    (void)member;
    int to = f->groups.of[edge->dst->id];
    if (to >= 0)
        f->n_before[to]++;
}

static void release_edge(struct fuser *f, int group, int member,
                         const struct node_output_edge *edge) {
    (void)group;
    (void)member;
    int to = f->groups.of[edge->dst->id];
    if (to >= 0 && --f->n_before[to] == 0)
        f->ready[f->n_ready++] = to;
}

static void set_control(struct fuser *f, int group, int member,
                        const struct node_output_edge *edge) {
    (void)member;
    const struct fuse_group *of = &f->groups.groups[group];
    if (edge->index != CONTROL_EDGE)
        return;
    node_set_input(edge->dst, edge->position, of->members[of->n_members - 1], CONTROL_EDGE);
    f->has_new_edges[edge->dst->id] = true;
}

/* Gives the takers of member i the node's result. Returns whether there are any. */
static bool set_takers(struct fuser *f, int group, int i, int result) {
    const struct fuse_group *of = &f->groups.groups[group];
    int id = of->members[i]->id;
    bool is_taken = false;
    for (int k = f->consumers.first[id]; k < f->consumers.first[id + 1]; k++) {
        const struct node_output_edge *edge = &f->consumers.edges[k];
        if (edge->index == CONTROL_EDGE || f->groups.of[edge->dst->id] == group)
            continue;
        node_set_input(edge->dst, edge->position, of->members[of->n_members - 1], result);
        is_taken = true;
    }
    return is_taken;
}

/* A group of which nothing but the end is taken stays as it is. */
static bool has_result(const struct fuser *f, int group) {
    const struct fuse_group *of = &f->groups.groups[group];
    for (int i = 0; i < of->n_members; i++) {
        int id = of->members[i]->id;
        for (int k = f->consumers.first[id]; k < f->consumers.first[id + 1]; k++)
            if (f->consumers.edges[k].index != CONTROL_EDGE &&
                f->groups.of[f->consumers.edges[k].dst->id] != group)
                return true;
    }
    return false;
}

static struct status *fuse(struct fuser *f, int group) {
    const struct fuse_group *of = &f->groups.groups[group];
    bool is_result[FUSED_MAX_INSTRUCTIONS];
    int n_results = 0;
    if (!has_result(f, group))
        return NULL;
    for (int i = 0; i < of->n_members; i++) {
        is_result[i] = set_takers(f, group, i, n_results);
        n_results += is_result[i];
    }
    each_leaving_edge(f, group, set_control);
    cost_rows_join(f->c, of->members, of->n_members);
    return fused_node_make(f->graph, of->members, of->n_members, is_result);
}

/* A group is made after those whose values it takes, because a member that has become a node has
 * other outputs. */
static struct status *fuse_all(struct fuser *f) {
    for (int i = 0; i < f->groups.n_groups; i++)
        each_leaving_edge(f, i, count_edge);
    for (int i = 0; i < f->groups.n_groups; i++)
        if (f->n_before[i] == 0)
            f->ready[f->n_ready++] = i;
    for (int i = 0; i < f->n_ready; i++) {
        TRY(fuse(f, f->ready[i]));
        each_leaving_edge(f, f->ready[i], release_edge);
    }
    CHECK(f->n_ready == f->groups.n_groups);
    return NULL;
}

static void drop_doubled_controls(struct fuser *f, struct arena *arena) {
    int *last_seen = arena_array(arena, int, f->graph->n_nodes + 1);
    for (int id = 0; id < f->graph->n_nodes; id++)
        if (f->has_new_edges[id] && !f->graph->nodes[id]->is_removed)
            node_drop_doubled_controls(f->graph->nodes[id], last_seen);
}

struct status *pass_fuse(struct compilation *c, bool *ret_changed) {
    struct fuser f = {.c = c, .graph = &c->graph};
    struct node **order;
    struct status *st = NULL;
    uint64_t *feed_sets;
    TRY(compile_feed_sets(c, &feed_sets));
    TRY(graph_topological_order(&c->graph, &order));
    graph_consumers_init(&f.consumers, &c->graph);
    fuse_groups_find(c, order, &f.consumers, feed_sets, &f.groups);
    f.n_before = arena_array(&c->arena, int, f.groups.n_groups + 1);
    f.ready = arena_array(&c->arena, int, f.groups.n_groups + 1);
    f.has_new_edges = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
    TRY_OUT(fuse_all(&f));
    drop_doubled_controls(&f, &c->arena);
    *ret_changed = f.groups.n_groups > 0;
out:
    graph_consumers_fini(&f.consumers);
    free(order);
    return st;
}
