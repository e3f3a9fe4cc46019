/* Makes while loops.
 *
 *   input ─► Enter ─► Merge ─► cond ─► LoopCond
 *                      │ ▲                │
 *                      ▼ │                ▼
 *                    Switch ◄─────────────┘──► Exit ─► output
 *                      │ └─ NextIteration ◄─ body ◄─┐
 *                      └────────────────────────────┘
 *
 * The two graphs are imported with the values of the loop in the place of their placeholders. All
 * nodes are added first; shapes are inferred when the way back is there. */
#include "client/c_while.h"

#include <stdlib.h>

#include "client/c_import_internal.h"

/* ---- parameters ---- */

/* Behind cond_inputs; the type of the caller has no place for it. */
struct while_inputs {
    TF_Graph *graph;
    TF_Output *initial;
};

static TF_Output add_placeholder(TF_Graph *graph, const char *prefix, int i, TF_Output like,
                                 TF_Status *status) {
    struct str name = STR_INIT;
    str_addf(&name, "%s%d", prefix, i);
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", str_text(&name));
    const struct node *node = like.oper->node;
    TF_SetAttrType(desc, "dtype", (TF_DataType)dtype_base((enum dtype)node->out_types[like.index]));
    TF_Operation *oper = TF_FinishOperation(desc, status);
    str_fini(&name);
    return (TF_Output){oper, 0};
}

static struct while_inputs *inputs_of(const TF_WhileParams *params) {
    return (struct while_inputs *)(uintptr_t)(params->cond_inputs + params->ninputs);
}

TF_WhileParams TF_NewWhile(TF_Graph *graph, TF_Output *inputs, int ninputs, TF_Status *status) {
    TF_WhileParams none = {.ninputs = 0};
    struct status *st = NULL;
    if (!graph || !inputs)
        st = null_refused(__func__, graph ? "inputs" : "graph");
    else if (ninputs <= 0 || ninputs > NODE_MAX_ARGS)
        st = status_invalid("%s: a loop of %d inputs", __func__, ninputs);
    for (int i = 0; !st && i < ninputs; i++)
        st = output_check(__func__, graph, inputs[i]);
    tf_status_set(status, st);
    if (st)
        return none;
    size_t n = (size_t)ninputs;
    TF_Graph *cond = TF_NewGraph(), *body = TF_NewGraph();
    TF_Output *cond_inputs = xcalloc(1, n * sizeof(TF_Output) + sizeof(struct while_inputs));
    TF_Output *body_inputs = xcalloc(n, sizeof(TF_Output));
    TF_Output *body_outputs = xcalloc(n, sizeof(TF_Output));
    struct while_inputs *hidden = (struct while_inputs *)(cond_inputs + n);
    *hidden = (struct while_inputs){graph, xcalloc(n, sizeof(TF_Output))};
    memcpy(hidden->initial, inputs, n * sizeof(TF_Output));
    for (int i = 0; i < ninputs; i++) {
        cond_inputs[i] = add_placeholder(cond, "cond_input", i, inputs[i], status);
        body_inputs[i] = add_placeholder(body, "body_input", i, inputs[i], status);
    }
    TF_WhileParams params = {ninputs, cond,        cond_inputs,  {NULL, -1},
                             body,    body_inputs, body_outputs, NULL};
    return params;
}

void TF_AbortWhile(const TF_WhileParams *params) {
    if (!params || !params->cond_graph)
        return;
    free(inputs_of(params)->initial);
    TF_DeleteGraph(params->cond_graph);
    TF_DeleteGraph(params->body_graph);
    free((void *)(uintptr_t)params->cond_inputs);
    free((void *)(uintptr_t)params->body_inputs);
    free(params->body_outputs);
}

/* ---- nodes ---- */

/* One loop while it is made. The lock of the graph is held. */
struct loop_maker {
    const TF_WhileParams *params;
    TF_Graph *graph;
    struct arena arena;
    struct node_input *enters, *merges, *switches, *bodies, *exits;
    struct node_input cond;
};

/* Adds a node of one type with up to two inputs; `second` may have no src. */
static struct status *add_node(struct loop_maker *m, const char *op, int i, struct node_input first,
                               struct node_input second, struct node_input *ret) {
    struct graph *graph = &m->graph->graph;
    const char *name = arena_printf(&m->arena, "%s/%s%d", m->params->name, op, i);
    struct node *node;
    TRY(graph_add_node(graph, name, op, "", &node));
    if (op_signature_attr(node->op, "T"))
        node_set_attr_type(graph, node, "T",
                           dtype_base((enum dtype)first.src->out_types[first.index]));
    if (op_signature_attr(node->op, "N"))
        node_set_attr_i(graph, node, "N", 2);
    if (op_signature_attr(node->op, "frame_name"))
        node_set_attr_s(graph, node, "frame_name", m->params->name);
    node_add_input(graph, node, first.src, first.index);
    if (second.src)
        node_add_input(graph, node, second.src, second.index);
    *ret = (struct node_input){node, 0};
    return node_finish(graph, node);
}

static const struct node_input nothing = {NULL, 0};

/* What an output of an imported graph has become. */
static struct node_input find_copied(const struct loop_maker *m, const struct import *import,
                                     const TF_Output *inputs, const struct node_input *values,
                                     TF_Output output) {
    for (int i = 0; i < m->params->ninputs; i++)
        if (inputs[i].oper == output.oper && inputs[i].index == output.index)
            return values[i];
    const struct import_node *node = strmap_get(&import->by_name, output.oper->node->name);
    return (struct node_input){graph_find(&m->graph->graph, node->new_name), output.index};
}

/* Copies a graph with `values` in the place of `inputs`; its constants wait for the first value. */
static struct status *copy_graph(struct loop_maker *m, const char *what, TF_Graph *from,
                                 const TF_Output *inputs, const struct node_input *values,
                                 const TF_Output *outputs, int n_outputs, struct node_input *ret) {
    int n = m->params->ninputs;
    struct graph_limits limits;
    TF_Operation *opers = arena_array(&m->arena, TF_Operation, n + 1), *control = &opers[n];
    struct input_mapping *mappings = arena_array(&m->arena, struct input_mapping, 2 * n);
    struct node_input first;
    TRY(add_node(m, "Identity", what[0] == 'b', values[0], nothing, &first));
    *control = (TF_Operation){.owner = m->graph, .node = first.src};
    for (int i = 0; i < n; i++) {
        opers[i] = (TF_Operation){.owner = m->graph, .node = values[i].src};
        mappings[i] =
            (struct input_mapping){inputs[i].oper->node->name, 0, {&opers[i], values[i].index}};
        mappings[n + i] = (struct input_mapping){
            inputs[i].oper->node->name, CONTROL_EDGE, {control, CONTROL_EDGE}};
    }
    const TF_ImportGraphDefOptions options = {
        .prefix = arena_printf(&m->arena, "%s/%s", m->params->name, what),
        .device = "",
        .mappings = mappings,
        .n_mappings = 2 * n,
        .controls = &control,
        .n_controls = 1,
    };
    struct import import = {.function = "TF_FinishWhile", .graph = m->graph, .options = &options};
    struct str message = STR_INIT;
    arena_init(&import.arena);
    strmap_init(&import.by_name);
    strmap_init(&import.taken);
    import.is_used = arena_array(&import.arena, bool, 2 * n);
    graph_limits_default(&limits);
    graph_to_graphdef(&from->graph, NULL, &message);
    struct status *st = import_rewrite(&import, (struct span){str_text(&message), message.len});
    if (!st)
        st = graph_add_graphdef(&m->graph->graph,
                                (struct span){str_text(&import.out), import.out.len}, &limits);
    for (int i = 0; !st && i < n_outputs; i++)
        ret[i] = find_copied(m, &import, inputs, values, outputs[i]);
    for (int i = 0; !st && i < n; i++) { /* all uses of the placeholders are mapped */
        const struct import_node *node = strmap_get(&import.by_name, inputs[i].oper->node->name);
        graph_remove_node(&m->graph->graph, graph_find(&m->graph->graph, node->new_name));
    }
    str_fini(&message);
    str_fini(&import.out);
    strmap_fini(&import.by_name);
    strmap_fini(&import.taken);
    arena_fini(&import.arena);
    return st;
}

static struct status *add_loop(struct loop_maker *m) {
    const TF_WhileParams *params = m->params;
    const TF_Output *initial = inputs_of(params)->initial;
    int n = params->ninputs;
    struct node_input *trues = arena_array(&m->arena, struct node_input, n);
    for (int i = 0; i < n; i++) {
        struct node_input input = {initial[i].oper->node, initial[i].index};
        TRY(add_node(m, "Enter", i, input, nothing, &m->enters[i]));
        TRY(add_node(m, "Merge", i, m->enters[i], m->enters[i], &m->merges[i]));
    }
    TRY(copy_graph(m, "cond", params->cond_graph, params->cond_inputs, m->merges,
                   &params->cond_output, 1, &m->cond));
    TRY(add_node(m, "LoopCond", 0, m->cond, nothing, &m->cond));
    for (int i = 0; i < n; i++) {
        TRY(add_node(m, "Switch", i, m->merges[i], m->cond, &m->switches[i]));
        TRY(add_node(m, "Exit", i, m->switches[i], nothing, &m->exits[i]));
        trues[i] = (struct node_input){m->switches[i].src, 1};
    }
    TRY(copy_graph(m, "body", params->body_graph, params->body_inputs, trues, params->body_outputs,
                   n, m->bodies));
    for (int i = 0; i < n; i++) {
        struct node_input next;
        TRY(add_node(m, "NextIteration", i, m->bodies[i], nothing, &next));
        node_set_input(m->merges[i].src, 1, next.src, 0);
        TRY(node_finish(&m->graph->graph, m->merges[i].src));
    }
    return NULL;
}

/* ---- the end ---- */

static struct status *check_params(const TF_WhileParams *params) {
    if (!params || !params->cond_graph)
        return null_refused("TF_FinishWhile", params ? "cond_graph" : "params");
    if (!params->name || !params->name[0])
        return status_invalid("TF_FinishWhile: TF_WhileParams `name` field isn't set");
    if (!params->cond_output.oper)
        return status_invalid("TF_FinishWhile: TF_WhileParams `cond_output` field isn't set");
    TRY(output_check("TF_FinishWhile", params->cond_graph, params->cond_output));
    for (int i = 0; i < params->ninputs; i++) {
        if (!params->body_outputs[i].oper)
            return status_invalid("TF_FinishWhile: TF_WhileParams `body_outputs[%d]` field isn't "
                                  "set",
                                  i);
        TRY(output_check("TF_FinishWhile", params->body_graph, params->body_outputs[i]));
    }
    return NULL;
}

static struct status *finish(const TF_WhileParams *params, TF_Output *outputs) {
    int n = params->ninputs;
    struct loop_maker m = {.params = params, .graph = inputs_of(params)->graph};
    arena_init(&m.arena);
    m.enters = arena_array(&m.arena, struct node_input, 5 * n);
    m.merges = m.enters + n;
    m.switches = m.merges + n;
    m.bodies = m.switches + n;
    m.exits = m.bodies + n;
    pthread_mutex_lock(&m.graph->lock);
    struct graph *graph = &m.graph->graph;
    int first_id = graph->n_nodes, producer = graph->producer, min_consumer = graph->min_consumer;
    struct status *st = add_loop(&m);
    if (st) {
        graph_drop_nodes(m.graph, first_id);
        graph_track_operations(m.graph);
        st = status_prefix_take(st, "TF_FinishWhile: ");
    } else {
        st = graph_take_nodes(m.graph, first_id);
    }
    graph->producer = st ? producer : MIN(producer, graph->producer);
    if (st)
        graph->min_consumer = min_consumer;
    for (int i = 0; !st && i < n; i++)
        outputs[i] = (TF_Output){graph_operation(m.graph, m.exits[i].src), 0};
    pthread_mutex_unlock(&m.graph->lock);
    arena_fini(&m.arena);
    return st;
}

void TF_FinishWhile(const TF_WhileParams *params, TF_Status *status, TF_Output *outputs) {
    struct status *st = check_params(params);
    if (!st && !outputs)
        st = null_refused(__func__, "outputs");
    if (!st)
        st = finish(params, outputs);
    tf_status_set(status, st);
    TF_AbortWhile(params);
}
