/* Builds plans: from a partition's graph to packed nodes, edges and frames.
 *
 * Nodes are packed in topological order, so an execution walks memory forwards. plan_nodes.c builds
 * each of them. */
#include "worker/plan/plan.h"

#include <stdlib.h>

#include "common/graph/references.h"
#include "worker/plan/function_table.h"
#include "worker/plan/plan_internal.h"

static void build_frames(struct plan_builder *b) {
    struct plan *plan = b->plan;
    plan->n_frames = (uint32_t)b->frames.n_frames;
    plan->frames = xcalloc(plan->n_frames, sizeof *plan->frames);
    for (uint32_t i = 0; i < plan->n_frames; i++) {
        const struct plan_frame_info *info = &b->frames.frames[i];
        struct plan_frame *frame = &plan->frames[i];
        frame->name = info->name;
        frame->parent = info->parent;
        frame->parallel_iterations = info->parallel_iterations;
        frame->name_hash = hash_bytes(frame->name, strlen(frame->name), 0x6d72);
        if (info->parent >= 0)
            frame->number = plan->frames[info->parent].n_children++;
    }
}

/* Is the value known when the execution begins, and never dead? Nodes that take dead inputs handle
 * values as they come. */
static bool is_preset(const struct plan_node *src, const struct plan_node *dst) {
    return (src->kind == PLAN_CONST || src->kind == PLAN_FEED) && src->node->n_inputs == 0 &&
           src->frame == 0 && dst->frame == 0 && !(dst->flags & PLAN_TAKES_DEAD);
}

static void build_presets(struct plan_builder *b) {
    struct plan *plan = b->plan;
    plan->presets = xcalloc((size_t)plan->frames[0].n_slots + 1, sizeof *plan->presets);
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        struct plan_node *dst = &plan->nodes[i];
        dst->first_preset = plan->n_presets;
        for (uint16_t k = 0; k < dst->n_inputs; k++) {
            const struct plan_node *src = &plan->nodes[b->index_of[dst->node->inputs[k].src->id]];
            if (is_preset(src, dst))
                plan->presets[plan->n_presets++] =
                    (struct plan_preset){k, src->kind == PLAN_FEED, src->aux};
        }
        dst->n_presets = (uint16_t)(plan->n_presets - dst->first_preset);
    }
}

/* Is the handle known before anything has run, or made by a node that waits for nothing? */
static bool has_early_handle(const struct plan_node *read, const struct plan_node *handle) {
    bool is_made_early = handle->kind == PLAN_KERNEL && handle->frame == 0 &&
                         handle->node->n_inputs == 0 && node_is_op(handle->node, "VarHandleOp");
    return is_made_early || read->n_presets == 1;
}

static void build_early(struct plan_builder *b) {
    struct plan *plan = b->plan;
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        struct plan_node *read = &plan->nodes[i];
        if (read->kind != PLAN_KERNEL || read->frame != 0 || read->node->n_inputs != 1 ||
            read->node->n_data != 1 || !node_is_op(read->node, "ReadVariableOp"))
            continue;
        struct plan_node *handle = &plan->nodes[b->index_of[read->node->inputs[0].src->id]];
        if (!has_early_handle(read, handle))
            continue;
        read->flags |= PLAN_EARLY;
        if (read->n_presets == 0)
            handle->flags |= PLAN_EARLY;
    }
    plan->early = xcalloc(plan->n_nodes + 1, sizeof *plan->early);
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].flags & PLAN_EARLY)
            plan->early[plan->n_early++] = i;
}

/* Pending counts that an iteration starts from. An early node counts one more, because the executor
 * starts it by itself. */
static void build_initial_states(struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_frames; i++)
        plan->frames[i].initial = xcalloc(plan->frames[i].n_nodes + 1, sizeof(struct node_state));
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        const struct plan_node *node = &plan->nodes[i];
        int n_control = node->node->n_inputs - node->node->n_data;
        struct node_state *state = &plan->frames[node->frame].initial[node->state];
        state->pending =
            node->kind == PLAN_MERGE ? 1 + 2 * n_control : node->node->n_inputs - node->n_presets;
        state->pending += node->flags & PLAN_EARLY ? 1 : 0;
    }
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        for (uint32_t k = 0; k < plan->nodes[i].n_presets; k++) {
            if (!plan->presets[plan->nodes[i].first_preset + k].is_feed)
                continue;
            if (!plan->partial_initial) {
                size_t size = plan->frames[0].n_nodes * sizeof(struct node_state);
                plan->partial_initial = memcpy(xmalloc(size), plan->frames[0].initial, size);
            }
            plan->partial_initial[plan->nodes[i].state].pending++;
        }
}

static int edge_order(const void *a, const void *b) {
    const struct plan_edge *x = a, *y = b;
    int x_class = x->flags & (EDGE_CONTROL | EDGE_PRESET),
        y_class = y->flags & (EDGE_CONTROL | EDGE_PRESET);
    if (x_class != y_class)
        return x_class - y_class;
    if (x->output != y->output)
        return x->output < y->output ? -1 : 1;
    return x->dst < y->dst ? -1 : x->dst > y->dst ? 1 : x->slot < y->slot ? -1 : x->slot > y->slot;
}

static void build_edges(struct plan_builder *b) {
    struct plan *plan = b->plan;
    const struct graph_consumers *consumers = &b->consumers;
    plan->edges = xcalloc((size_t)consumers->first[plan->graph.n_nodes] + 1, sizeof *plan->edges);
    uint32_t n_edges = 0;
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        struct plan_node *node = &plan->nodes[i];
        node->first_edge = n_edges;
        for (int k = consumers->first[node->node->id]; k < consumers->first[node->node->id + 1];
             k++) {
            const struct node_output_edge *from = &consumers->edges[k];
            const struct plan_node *dst = &plan->nodes[b->index_of[from->dst->id]];
            struct plan_edge *edge = &plan->edges[n_edges++];
            edge->dst = b->index_of[from->dst->id];
            edge->state = dst->state;
            edge->flags = dst->kind != PLAN_MERGE    ? 0
                          : node->kind == PLAN_ENTER ? EDGE_TO_MERGE | EDGE_FROM_ENTER
                                                     : EDGE_TO_MERGE;
            if (from->index == CONTROL_EDGE) {
                edge->flags |= EDGE_CONTROL;
            } else {
                edge->output = (uint16_t)from->index;
                edge->slot = dst->first_slot + (uint32_t)from->position;
                if (is_preset(node, dst))
                    edge->flags |= EDGE_PRESET;
            }
        }
        struct plan_edge *edges = &plan->edges[node->first_edge];
        qsort(edges, n_edges - node->first_edge, sizeof *edges, edge_order);
        while (node->first_edge + node->n_edges < n_edges &&
               !(edges[node->n_edges].flags & EDGE_PRESET))
            node->n_edges++;
        for (uint32_t k = 0; k < node->n_edges; k++)
            if (!(edges[k].flags & EDGE_CONTROL) &&
                (k + 1 == node->n_edges || (edges[k + 1].flags & EDGE_CONTROL) ||
                 edges[k + 1].output != edges[k].output))
                edges[k].flags |= EDGE_MOVE;
        if (node->kind == PLAN_KERNEL && node->n_outputs == 1 && node->n_edges == 1 &&
            edges[0].flags == EDGE_MOVE)
            node->flags |= PLAN_DIRECT;
    }
}

/* Roots are nodes that wait for nothing. The ready stack is last in, first out, so the nodes that
 * should start first are last: the Recvs. */
static void build_roots(struct plan *plan) {
    plan->roots = xcalloc(plan->n_nodes + 1, sizeof *plan->roots);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = plan->n_nodes; i-- > 0;) {
            const struct plan_node *node = &plan->nodes[i];
            bool waits = node->frame != 0 || plan->frames[0].initial[node->state].pending != 0;
            if (!waits && (node->kind == PLAN_RECV) == (pass == 1))
                plan->roots[plan->n_roots++] = i;
        }
}

static struct status *add_copies(struct plan_builder *b) {
    struct graph *graph = &b->plan->graph;
    struct graph_consumers consumers;
    b->has_device_memory = plan_has_device_memory(b->options) && plan_first_cpu(b->options);
    if (!b->has_device_memory)
        return NULL;
    graph_consumers_init(&consumers, graph);
    bool *is_reference = graph_find_references(graph, &consumers);
    graph_consumers_fini(&consumers);
    struct status *st = plan_add_copies(graph, b->options, is_reference);
    free(is_reference);
    return st;
}

/* Do only copies to devices wait for the Recv? Then nobody reads bytes that are not there yet. */
static bool takes_growing(const struct plan *plan, const struct plan_node *recv) {
    for (uint32_t i = 0; i < recv->n_edges; i++) {
        const struct plan_edge *edge = &plan->edges[recv->first_edge + i];
        const struct plan_node *consumer = &plan->nodes[edge->dst];
        if ((edge->flags & EDGE_CONTROL) || consumer->kind != PLAN_COPY ||
            !plan->copies[consumer->aux].dst)
            return false;
    }
    return recv->n_edges > 0;
}

static void find_growing(struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == PLAN_RECV)
            plan->channels[plan->nodes[i].aux].takes_growing = takes_growing(plan, &plan->nodes[i]);
}

static struct status *build(struct plan_builder *b) {
    struct plan *plan = b->plan;
    struct graph *graph = &plan->graph;
    TRY(add_copies(b));
    TRY(graph_topological_order(graph, &b->order));
    TRY(plan_find_frames(graph, &b->frames));
    if (b->frames.n_frames > UINT16_MAX)
        return status_invalid("the graph has %d loop frames; at most %d are supported",
                              b->frames.n_frames, UINT16_MAX);
    build_frames(b);
    plan->n_nodes = (uint32_t)graph->n_live;
    size_t n = plan->n_nodes + 1;
    plan->nodes = aligned_alloc(64, n * sizeof *plan->nodes);
    if (!plan->nodes)
        return status_exhausted("no memory for a plan of %u nodes", plan->n_nodes);
    memset(plan->nodes, 0, n * sizeof *plan->nodes);
    plan->instances = xcalloc(n, sizeof *plan->instances);
    plan->channels = xcalloc(n, sizeof *plan->channels);
    if (b->has_device_memory) {
        plan->copies = xcalloc(n, sizeof *plan->copies);
        plan->used_devices = xcalloc((size_t)b->options->n_devices, sizeof(*plan->used_devices));
    }
    plan->constants = aligned_alloc(64, n * sizeof *plan->constants);
    CHECK(plan->constants);
    memset(plan->constants, 0, n * sizeof *plan->constants);
    b->index_of = xcalloc((size_t)graph->n_nodes + 1, sizeof *b->index_of);
    graph_consumers_init(&b->consumers, graph);
    b->is_reference = graph_find_references(graph, &b->consumers);
    if (b->options->n_devices > 0 && b->options->devices[0].shared_allocator)
        b->is_shared = plan_find_shared(graph);
    for (uint32_t i = 0; i < plan->n_nodes; i++) {
        b->index_of[b->order[i]->id] = i;
        TRY(plan_build_node(b, b->order[i], i));
    }
    build_presets(b);
    build_early(b);
    build_initial_states(plan);
    build_edges(b);
    /* where the edges of the last node end */
    plan->nodes[plan->n_nodes].first_edge = (uint32_t)b->consumers.first[graph->n_nodes];
    build_roots(plan);
    plan_find_saves(plan);
    if (b->has_device_memory)
        find_growing(plan);
    return NULL;
}

struct status *plan_new(struct graph *graph_take, const struct plan_options *options,
                        struct plan **ret_plan) {
    struct plan *plan = xcalloc(1, sizeof *plan);
    struct plan_builder b = {.plan = plan, .options = options};
    atomic_init(&plan->n_refs, 1);
    pthread_mutex_init(&plan->lock, NULL);
    plan->client = options->client ? client_state_ref(options->client) : NULL;
    plan->session_state = options->session_state ? session_state_ref(options->session_state) : NULL;
    plan->is_function = options->is_function;
    plan->functions = options->functions && !plan->is_function
                          ? function_table_ref(options->functions)
                          : options->functions;
    plan->graph = *graph_take;
    graph_init(graph_take);
    struct status *st = build(&b);
    free(b.order);
    plan_frame_map_fini(&b.frames);
    free(b.index_of);
    free(b.is_reference);
    free(b.is_shared);
    graph_consumers_fini(&b.consumers);
    if (st) {
        plan_unref(plan);
        return st;
    }
    *ret_plan = plan;
    return NULL;
}

struct plan *plan_ref(struct plan *plan) {
    atomic_fetch_add_explicit(&plan->n_refs, 1, memory_order_relaxed);
    return plan;
}

void plan_unref(struct plan *plan) {
    if (!plan || atomic_fetch_sub_explicit(&plan->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    if (plan->free_executors)
        plan->executors_free(plan->free_executors);
    for (uint32_t i = 0; i < plan->n_instances; i++)
        kernel_instance_fini(&plan->instances[i]);
    session_state_unref(plan->session_state);
    session_state_unref(plan->own_state);
    client_state_unref(plan->client);
    if (!plan->is_function)
        function_table_unref(plan->functions);
    for (uint32_t i = 0; i < plan->n_constants; i++)
        tensor_clear(&plan->constants[i]);
    for (uint32_t i = 0; plan->frames && i < plan->n_frames; i++)
        free(plan->frames[i].initial);
    free(plan->instances);
    free(plan->constants);
    free(plan->channels);
    free(plan->late_edges.edges);
    free(plan->copies);
    for (uint32_t i = 0; i < plan->n_saves; i++)
        free(plan->saves[i].copies);
    free(plan->saves);
    free(plan->used_devices);
    free(plan->frames);
    free(plan->partial_initial);
    free(plan->presets);
    free(plan->nodes);
    free(plan->edges);
    free(plan->roots);
    free(plan->early);
    pthread_mutex_destroy(&plan->lock);
    graph_fini(&plan->graph);
    free(plan);
}
