/* Differentiates conditionals [CF 5.1]: the gradient of a Merge is a Switch, and that of a Switch a
 * Merge. The nodes that make loops are differentiated together (backprop_loop.c), and calls as
 * functions. */
#include "common/gradients/backprop_internal.h"
#include "common/gradients/build.h"

/* The predicate by which the inputs of a Merge exclude each other, and the side of each. False: it
 * is not certain. */
static bool find_predicate(struct walk *walk, const struct node *merge, struct node_input *ret_pred,
                           int *sides) {
    struct conditions *conditions = &walk->conditions;
    int first = condition_of_input(conditions, &merge->inputs[0]);
    for (int i = 0; i < merge->n_data; i++) {
        int of = condition_of_input(conditions, &merge->inputs[i]);
        if (first <= CONDITION_ALWAYS || of <= CONDITION_ALWAYS)
            return false;
        const struct condition *a = &conditions->all[first], *b = &conditions->all[of];
        if (a->parent != b->parent || a->pred_id != b->pred_id ||
            a->pred_output != b->pred_output || b->n_sides != merge->n_data)
            return false;
        sides[i] = b->side;
        for (int k = 0; k < i; k++)
            if (sides[k] == b->side)
                return false;
        *ret_pred = (struct node_input){walk->b->graph->nodes[b->pred_id], b->pred_output};
    }
    return true;
}

static void merge_grad(struct gradient_ctx *g) {
    int n = g->node->n_data;
    struct node_input pred;
    int *sides = arena_array(&g->graph->arena, int, n + 1);
    if (find_predicate(g->walk, g->node, &pred, sides)) {
        struct node_input switched = gradient_switch(g, DY(0), pred, n);
        for (int i = 0; i < n; i++)
            SET(i, gradient_second(switched, sides[i]));
        return;
    }
    for (int i = 0; i < n; i++) /* the input that came */
        SET(i, SECOND(OP("Switch", DY(0), OP("Equal", OUT(1), I32(i)))));
}

static void switch_grad(struct gradient_ctx *g) {
    int n = g->node->n_outputs;
    enum dtype dtype = DT_INVALID;
    struct node_input *parts = arena_array(&g->graph->arena, struct node_input, n + 1);
    for (int i = 0; i < n; i++)
        if (gradient_has(g, i))
            dtype = gradient_dtype(DY(i));
    for (int i = 0; i < n; i++)
        parts[i] = gradient_has(g, i) ? DY(i) : gradient_zeros(g, OUT(i), dtype);
    SET(0, gradient_op(g, "Merge", false, NULL, n, parts));
}

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Switch", switch_grad),
    GRADIENT("RefSwitch", switch_grad),
    GRADIENT("_SwitchN", switch_grad),
    GRADIENT("Merge", merge_grad),
    GRADIENT("RefMerge", merge_grad),
    /* of loops, which are differentiated as a whole */
    NO_GRADIENT("Enter"),
    NO_GRADIENT("RefEnter"),
    NO_GRADIENT("Exit"),
    NO_GRADIENT("RefExit"),
    NO_GRADIENT("NextIteration"),
    NO_GRADIENT("RefNextIteration"),
    NO_GRADIENT("LoopCond"),
    NO_GRADIENT("RefSelect"),
    NO_GRADIENT("ControlTrigger"),
    NO_GRADIENT("ToBool"),
    NO_GRADIENT("DeviceIndex"),
    NO_GRADIENT("FakeParam"),
    NO_GRADIENT("SyncDevice"),
    CALL_GRADIENT("If"),
    CALL_GRADIENT("StatelessIf"),
    CALL_GRADIENT("Case"),
    CALL_GRADIENT("StatelessCase"),
    CALL_GRADIENT("While"),
    CALL_GRADIENT("StatelessWhile"),
    CALL_GRADIENT("For"),
    UNDEFINED_GRADIENT("RemoteCall"),
    UNDEFINED_GRADIENT("SymbolicGradient"),
    CALL_GRADIENT("PartitionedCall"),
    CALL_GRADIENT("StatefulPartitionedCall"),
    NO_GRADIENT("_MrFeed"),
    NO_GRADIENT("_MrFetch"),
    NO_GRADIENT("_MrSend"),
    NO_GRADIENT("_MrRecv"),
    NO_GRADIENT("_MrFused"),
};
// clang-format on

const struct gradient_list control_flow_gradients = {rows, ARRAY_LEN(rows)};
