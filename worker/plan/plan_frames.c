/* Which frame each node of a partition runs in [CF 4.1].
 *
 * A node runs in the frame that its inputs' values live in. Enter runs in its parent's frame and
 * puts its value into the child; Exit runs in the child and puts its value into the parent. So
 * one walk in topological order (the back edges of NextIteration left out) settles all.
 */
#include "worker/plan/plan.h"

#include <stdlib.h>

#include "common/base/map.h"

struct frame_finder {
    const struct graph *graph;
    struct plan_frame_map *map;
    int capacity;
    struct strmap first_of_name; /* the first frame of a name, as its number */
    struct u64map by_key;        /* by the first frame of its name, and its parent */
};

static bool is_enter(const struct node *node) {
    return node_is_op(node, "Enter") || node_is_op(node, "RefEnter");
}
static bool is_exit(const struct node *node) {
    return node_is_op(node, "Exit") || node_is_op(node, "RefExit");
}
static bool is_next_iteration(const struct node *node) {
    return node_is_op(node, "NextIteration") || node_is_op(node, "RefNextIteration");
}

static void *from_number(int frame) { return (void *)(uintptr_t)((unsigned)frame + 1); }
static int to_number(const void *value) { return value ? (int)((uintptr_t)value - 1) : -1; }

static int frame_add(struct frame_finder *finder, const char *name, int parent,
                     int parallel_iterations) {
    struct plan_frame_map *map = finder->map;
    if (map->n_frames == finder->capacity) {
        finder->capacity = MAX(4, finder->capacity * 2);
        map->frames = xreallocarray(map->frames, (size_t)finder->capacity, sizeof *map->frames);
    }
    map->frames[map->n_frames] = (struct plan_frame_info){name, parent, parallel_iterations};
    return map->n_frames++;
}

static uint64_t frame_key(int first_of_name, int parent) {
    return (uint64_t)first_of_name << 32 | (uint32_t)parent;
}

/* Returns the child frame of `parent` with this name, which it makes at first use. */
static int frame_find_or_add(struct frame_finder *finder, struct span name, int parent,
                             int parallel_iterations) {
    int first = to_number(strmap_get_span(&finder->first_of_name, name));
    int frame = first < 0 ? -1 : to_number(u64map_get(&finder->by_key, frame_key(first, parent)));
    if (frame >= 0)
        return frame;
    const char *own = arena_strndup((struct arena *)&finder->graph->arena, name.data, name.len);
    frame = frame_add(finder, own, parent, parallel_iterations);
    if (first < 0) {
        first = frame;
        strmap_put(&finder->first_of_name, own, from_number(frame));
    }
    u64map_put(&finder->by_key, frame_key(first, parent), from_number(frame));
    return frame;
}

static struct status *child_frame(struct frame_finder *finder, const struct node *enter, int parent,
                                  int *ret_frame) {
    struct span name;
    int64_t parallel = 10;
    TRY(node_get_s(enter, "frame_name", &name));
    TRY(node_get_i(enter, "parallel_iterations", &parallel));
    if (name.len == 0)
        return status_invalid("The Enter {{node %s}} must have a frame name.", enter->name);
    if (memchr(name.data, '\0', name.len))
        return status_invalid("frame_name of {{node %s}} has a NUL byte", enter->name);
    if (parallel < 1)
        return status_invalid("parallel_iterations of {{node %s}} must be positive, is %lld",
                              enter->name, (long long)parallel);
    *ret_frame = frame_find_or_add(finder, name, parent, (int)MIN(parallel, 1 << 16));
    return NULL;
}

static struct status *settle(struct frame_finder *finder, const struct node *node) {
    int frame = -1;
    const struct node *from = NULL;
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        if (is_next_iteration(src))
            continue;
        int in = finder->map->output_frame_of[src->id];
        if (frame >= 0 && in != frame)
            return status_invalid("{{node %s}} has inputs from different frames. The input {{node "
                                  "%s}} is in frame '%s'. The input {{node %s}} is "
                                  "in frame '%s'.",
                                  node->name, from->name, finder->map->frames[frame].name,
                                  src->name, finder->map->frames[in].name);
        frame = in;
        from = src;
    }
    frame = frame < 0 ? 0 : frame;
    finder->map->frame_of[node->id] = finder->map->output_frame_of[node->id] = frame;
    if (is_next_iteration(node) && frame == 0)
        return status_invalid("{{node %s}} is a NextIteration outside of any loop frame",
                              node->name);
    if (is_enter(node))
        return child_frame(finder, node, frame, &finder->map->output_frame_of[node->id]);
    if (is_exit(node)) {
        if (frame == 0)
            return status_invalid("{{node %s}} is an Exit outside of any loop frame", node->name);
        finder->map->output_frame_of[node->id] = finder->map->frames[frame].parent;
    }
    return NULL;
}

/* All frames are known now: a back edge must stay in its own frame. */
static struct status *check_back_edges(const struct plan_frame_map *map, const struct node *node) {
    for (int k = 0; k < node->n_inputs; k++) {
        const struct node *src = node->inputs[k].src;
        if (is_next_iteration(src) && map->output_frame_of[src->id] != map->frame_of[node->id])
            return status_invalid(
                "{{node %s}} takes the next iteration of another frame from {{node %s}}",
                node->name, src->name);
    }
    return NULL;
}

struct status *plan_find_frames(const struct graph *graph, struct plan_frame_map *ret) {
    struct frame_finder finder = {.graph = graph, .map = ret};
    struct node **order = NULL;
    *ret = (struct plan_frame_map){0};
    TRY(graph_topological_order(graph, &order));
    ret->frame_of = xcalloc((size_t)graph->n_nodes + 1, sizeof *ret->frame_of);
    ret->output_frame_of = xcalloc((size_t)graph->n_nodes + 1, sizeof *ret->output_frame_of);
    strmap_init(&finder.first_of_name);
    u64map_init(&finder.by_key);
    frame_add(&finder, "", -1, 1);
    struct status *st = NULL;
    for (int i = 0; i < graph->n_live && !st; i++)
        st = status_suffix_take(settle(&finder, order[i]), "\n\t [[{{node %s}}]]", order[i]->name);
    for (int i = 0; i < graph->n_live && !st; i++)
        st = check_back_edges(ret, order[i]);
    free(order);
    strmap_fini(&finder.first_of_name);
    u64map_fini(&finder.by_key);
    if (st)
        plan_frame_map_fini(ret);
    return st;
}

void plan_frame_map_fini(struct plan_frame_map *map) {
    free(map->frame_of);
    free(map->output_frame_of);
    free(map->frames);
    *map = (struct plan_frame_map){0};
}
