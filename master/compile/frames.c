/* Finds the loop frames that the passes see, and answers questions about nodes that several passes
 * have [WP 4.4, CF 4.1]. */
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "common/graph/references.h"
#include "common/tensor/tensor.h"
#include "master/compile/compile_internal.h"
#include "master/compile/inline.h"

/* ---- questions ---- */

bool node_is_frame_op(const struct node *node) {
    return node_is_either(node, "Enter", "RefEnter") || node_is_either(node, "Exit", "RefExit") ||
           node_is_either(node, "Merge", "RefMerge") ||
           node_is_either(node, "NextIteration", "RefNextIteration") ||
           node_is_op(node, "LoopCond");
}

bool node_is_switch(const struct node *node) {
    return node_is_either(node, "Switch", "RefSwitch") || node_is_op(node, "_SwitchN");
}

bool node_has_ref(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (dtype_is_ref((enum dtype)node->in_types[i]) ||
            dtype_is_ref((enum dtype)node->inputs[i].src->out_types[node->inputs[i].index]))
            return true;
    for (int i = 0; i < node->n_outputs; i++)
        if (dtype_is_ref((enum dtype)node->out_types[i]))
            return true;
    return false;
}

bool node_uses_functions(const struct node *node) {
    if (!op_signature_is_known(node->op))
        return !node_is_internal(node);
    for (int i = 0; i < node->op->n_attrs; i++)
        if (attr_type_element(node->op->attrs[i].type) == ATTR_FUNC)
            return true;
    return false;
}

enum { MAX_IDENTITIES = 100 }; /* a client's graph may have a cycle of them */

const struct tensor *const_behind(const struct node *node) {
    for (int i = 0; i < MAX_IDENTITIES && node_is_op(node, "Identity") && node->n_data > 0; i++)
        node = node->inputs[0].src;
    const struct attr_value *value = node_is_op(node, "Const") ? node_attr(node, "value") : NULL;
    return value && value->type == ATTR_TENSOR ? value->tensor : NULL;
}

bool node_is_call(const struct node *node) {
    if (node_is_op(node, "RemoteCall") && (node->n_data == 0 || !const_behind(node->inputs[0].src)))
        return false; /* its kernel calls the function */
    return node_uses_functions(node) &&
           (!op_signature_is_known(node->op) || inline_rule_find(node->op_name) != NULL);
}

bool node_is_internal(const struct node *node) {
    return internal_op_find(span_of(node->op_name)) != NULL;
}

int64_t const_size_bytes(const struct node *node) {
    const struct attr_value *value = node_is_op(node, "Const") ? node_attr(node, "value") : NULL;
    if (!value || value->type != ATTR_TENSOR)
        return -1;
    const struct tensor *t = value->tensor;
    /* its worker refuses it; until then no pass computes with it */
    if (t->dtype != node->out_types[0])
        return -1;
    int64_t size = (int64_t)tensor_size_bytes(t);
    for (int64_t i = 0; t->dtype == DT_STRING && i < t->n_elements && size <= CONST_COUNTED_BYTES;
         i++)
        size += (int64_t)tensor_string(t, i).len;
    return size;
}

bool *compile_references(const struct graph *graph) {
    struct graph_consumers consumers;
    bool has_references = false;
    for (int id = 0; id < graph->n_nodes && !has_references; id++)
        for (int i = 0; i < graph->nodes[id]->n_outputs; i++)
            has_references =
                has_references || dtype_is_ref((enum dtype)graph->nodes[id]->out_types[i]);
    if (!has_references)
        return xcalloc((size_t)graph->n_nodes + 1, sizeof(bool));
    graph_consumers_init(&consumers, graph);
    bool *is_reference = graph_find_references(graph, &consumers);
    graph_consumers_fini(&consumers);
    return is_reference;
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
 * the plan reports the error. */
static int frame_of_inputs(const struct loop_frames *frames, const struct node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        int frame = frames->out[node->inputs[i].src->id]; /* 0 while unknown: a back edge */
        if (frame != 0)
            return frame;
    }
    return 0;
}

void loop_frames_init(struct loop_frames *frames, const struct graph *graph,
                      struct node *const *order) {
    *frames = (struct loop_frames){0};
    frames->in = xcalloc((size_t)graph->n_nodes + 1, sizeof(int));
    frames->out = xcalloc((size_t)graph->n_nodes + 1, sizeof(int));
    struct frame_finder finder = {.frames = frames};
    arena_init(&finder.arena);
    strmap_init(&finder.by_name);
    add_frame(&finder, -1);
    for (int i = 0; i < graph->n_live; i++) {
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
