/* Finds the loop that each node belongs to (control_flow.h). */
#include "common/graph/control_flow.h"

#include <stdlib.h>

/* ---- predicates ---- */

bool node_is_frame_op(const struct node *node) {
    return node_is_either(node, "Enter", "RefEnter") || node_is_either(node, "Exit", "RefExit") ||
           node_is_either(node, "Merge", "RefMerge") ||
           node_is_either(node, "NextIteration", "RefNextIteration") ||
           node_is_op(node, "LoopCond");
}

bool node_is_switch(const struct node *node) {
    return node_is_either(node, "Switch", "RefSwitch") || node_is_op(node, "_SwitchN");
}

/* ---- frames ---- */

struct frame_finder {
    struct loop_frames *frames;
    struct strmap by_name; /* "parent/frame_name" → frame number, as a pointer */
    struct arena arena;    /* the names */
    int capacity;
};

static void add_frame(struct frame_finder *finder, int parent) {
    struct loop_frames *frames = finder->frames;
    if (frames->n_frames == finder->capacity) {
        finder->capacity = finder->capacity ? 2 * finder->capacity : 8;
        frames->parent = xreallocarray(frames->parent, (size_t)finder->capacity, sizeof(int));
        frames->outermost = xreallocarray(frames->outermost, (size_t)finder->capacity, sizeof(int));
    }
    int frame = frames->n_frames++;
    frames->parent[frame] = parent;
    frames->outermost[frame] = parent <= 0 ? frame : frames->outermost[parent];
}

/* An Enter without a frame_name makes no frame here; the worker's plan refuses it by name. */
static int child_frame(struct frame_finder *finder, const struct node *enter, int parent) {
    const struct attr_value *name = node_attr(enter, "frame_name");
    if (!name || name->type != ATTR_STRING)
        return parent;
    const char *key =
        arena_printf(&finder->arena, "%d/%.*s", parent, (int)name->s.len, name->s.data);
    void *known = strmap_get(&finder->by_name, key);
    if (known)
        return (int)(intptr_t)known;
    add_frame(finder, parent);
    int frame = finder->frames->n_frames - 1;
    strmap_put(&finder->by_name, key, (void *)(intptr_t)frame);
    return frame;
}

/* A node runs in the frame of its inputs. If one input is from the root and another from a loop,
 * a plan reports the error. */
static int frame_of_inputs(const struct loop_frames *frames, const struct node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        int frame = frames->out[node->inputs[i].src->id]; /* 0 while unknown: a back edge */
        if (frame != 0)
            return frame;
    }
    return 0;
}

void loop_frames_init(struct loop_frames *frames, const struct graph *graph,
                      struct node *const *order, int n_order) {
    *frames = (struct loop_frames){0};
    frames->in = xcalloc((size_t)graph->n_nodes + 1, sizeof(int));
    frames->out = xcalloc((size_t)graph->n_nodes + 1, sizeof(int));
    struct frame_finder finder = {.frames = frames};
    arena_init(&finder.arena);
    strmap_init(&finder.by_name);
    add_frame(&finder, -1);
    for (int i = 0; i < n_order; i++) {
        const struct node *node = order[i];
        int frame = frame_of_inputs(frames, node);
        frames->in[node->id] = frames->out[node->id] = frame;
        if (node_is_either(node, "Enter", "RefEnter"))
            frames->out[node->id] = child_frame(&finder, node, frame);
        else if (frame != 0 && node_is_either(node, "Exit", "RefExit"))
            frames->out[node->id] = frames->parent[frame];
    }
    strmap_fini(&finder.by_name);
    arena_fini(&finder.arena);
}

void loop_frames_fini(struct loop_frames *frames) {
    free(frames->in);
    free(frames->out);
    free(frames->parent);
    free(frames->outermost);
    *frames = (struct loop_frames){0};
}
