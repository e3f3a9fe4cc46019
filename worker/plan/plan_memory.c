/* Finds the nodes whose outputs are allocated in memory that other tasks of the host can map:
 * values that a Send takes, and values that a variable will hold, because other tasks fetch these.
 * The first use of such memory is expensive (common/tensor/buffer.h), so nothing else is allocated
 * there. */
#include <stdlib.h>

#include "common/graph/graph.h"
#include "worker/plan/plan.h"

struct marking {
    bool *is_shared;
    const struct node **stack;
    int n, capacity;
};

static void push(struct marking *marking, const struct node *node) {
    if (marking->is_shared[node->id])
        return;
    marking->is_shared[node->id] = true;
    if (marking->n == marking->capacity) {
        marking->capacity = marking->capacity ? marking->capacity * 2 : 64;
        marking->stack =
            xreallocarray(marking->stack, (size_t)marking->capacity, sizeof(struct node *));
    }
    marking->stack[marking->n++] = node;
}

/* Passes its input on unchanged. */
static bool passes_on(const struct node *node) {
    static const char *const ops[] = {
        "Identity", "IdentityN", "Snapshot",   "StopGradient", "PreventGradient", "CheckNumerics",
        "Reshape",  "Squeeze",   "ExpandDims", "Switch",       "RefSwitch",       "Merge",
        "RefMerge", "Enter",     "Exit",       "NextIteration"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return true;
    return false;
}

static bool has_state_input(const struct node *node) {
    if (node->n_data == 0)
        return false;
    enum dtype dtype = (enum dtype)node->in_types[0];
    return dtype_is_ref(dtype) || dtype == DT_RESOURCE;
}

/* Makes a new value of a variable, unless it can update the old one in place. */
static bool changes_variable(const struct node *node) {
    const char *op = node->op_name;
    return has_state_input(node) &&
           (strstr(op, "Assign") || strstr(op, "Apply") || strstr(op, "Scatter"));
}

static bool replaces_variable(const struct node *node) {
    return has_state_input(node) &&
           (node_is_op(node, "Assign") || node_is_op(node, "AssignVariableOp"));
}

static void mark_inputs(struct marking *marking, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        push(marking, node->inputs[i].src);
}

bool *plan_find_shared(const struct graph *graph) {
    struct marking marking = {.is_shared = xcalloc((size_t)graph->n_nodes + 1, sizeof(bool))};
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct node *node = graph->nodes[i];
        if (node->is_removed)
            continue;
        if (node_is_op(node, "_MrSend") || replaces_variable(node))
            mark_inputs(&marking, node);
        if (changes_variable(node))
            push(&marking, node);
    }
    while (marking.n > 0) {
        const struct node *node = marking.stack[--marking.n];
        if (passes_on(node))
            mark_inputs(&marking, node);
    }
    free(marking.stack);
    return marking.is_shared;
}
