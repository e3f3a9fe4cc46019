/* Makes a function of a part of a graph: a FunctionDef in which arguments, nodes and results have
 * names of one space.
 *
 *   names of results ─► names of arguments ─► names of nodes ─► the message */
#include <ctype.h>
#include <stdlib.h>

#include "client/c_function_internal.h"
#include "common/tensor/tensor_proto.h"

/* What the caller gave. */
struct function_parts {
    const char *caller, *name, *description;
    bool appends_hash;
    int n_opers, n_inputs, n_outputs, n_controls;
    const TF_Operation *const *opers, *const *controls;
    const TF_Output *inputs, *outputs;
    const char *const *output_names, *const *control_names;
};

struct function_maker {
    const struct function_parts *parts;
    TF_Graph *graph;
    struct arena arena;
    struct strmap names;       /* all names of the function */
    const char **node_names;   /* by node id; NULL for a node that is not in the body */
    const char **input_names;  /* of the arguments */
    const char **output_names; /* of the results */
    struct str out;
};

/* ---- names ---- */

static const char *unique_name(struct function_maker *m, const char *name) {
    const char *candidate = name;
    for (int i = 0; strmap_get(&m->names, candidate); i++)
        candidate = arena_printf(&m->arena, "%s_%d", name, i);
    strmap_put(&m->names, candidate, m);
    return candidate;
}

/* Lower case, with _ for other characters, from the first letter on. */
static const char *argument_name(struct function_maker *m, const char *name) {
    while (*name && !isalpha((unsigned char)*name))
        name++;
    char *text = arena_strdup(&m->arena, *name ? name : "unknown");
    for (char *c = text; *c; c++)
        *c = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '_';
    return unique_name(m, text);
}

static struct status *take_output_names(struct function_maker *m) {
    const struct function_parts *parts = m->parts;
    for (int i = 0; parts->output_names && i < parts->n_outputs; i++) {
        const char *name = parts->output_names[i];
        if (!name)
            return null_refused(parts->caller, "an output name");
        if (strmap_put(&m->names, name, m))
            return status_invalid("%s: Cannot have duplicate output names. Name '%s' appears more "
                                  "than once in 'output_names' array.",
                                  parts->caller, name);
        m->output_names[i] = name;
    }
    return NULL;
}

static int find_input(const struct function_maker *m, const struct node *node, int index) {
    for (int i = 0; i < m->parts->n_inputs; i++)
        if (m->parts->inputs[i].oper->node == node &&
            (index == CONTROL_EDGE || m->parts->inputs[i].index == index))
            return i;
    return -1;
}

static struct status *choose_names(struct function_maker *m) {
    const struct function_parts *parts = m->parts;
    const struct graph *graph = &m->graph->graph;
    TRY(take_output_names(m));
    for (int i = 0; !parts->output_names && i < parts->n_outputs; i++)
        m->output_names[i] = argument_name(m, parts->outputs[i].oper->node->name);
    for (int i = 0; i < parts->n_inputs; i++) {
        const struct node *node = parts->inputs[i].oper->node;
        if (find_input(m, node, parts->inputs[i].index) != i)
            return status_invalid("%s: TF_Output %s:%d appears twice in the input list",
                                  parts->caller, node->name, parts->inputs[i].index);
        m->input_names[i] = argument_name(m, node->name);
    }
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        bool is_in =
            parts->n_opers < 0 && !node->is_removed && find_input(m, node, CONTROL_EDGE) < 0;
        for (int i = 0; !is_in && i < parts->n_opers; i++)
            is_in = parts->opers[i]->node == node;
        m->node_names[id] = is_in ? unique_name(m, node->name) : NULL;
    }
    return NULL;
}

/* ---- edges ---- */

/* "node:output_arg:1", or the name of an argument. NULL: it is neither in the body nor an argument.
 */
static const char *endpoint_in_function(struct function_maker *m, struct node_input edge) {
    int input = find_input(m, edge.src, edge.index);
    const char *name = input >= 0 ? m->input_names[input] : m->node_names[edge.src->id];
    if (!name || edge.index == CONTROL_EDGE)
        return name ? arena_printf(&m->arena, "^%s", name) : NULL;
    if (input >= 0)
        return name;
    int first = 0;
    for (int i = 0; i < edge.src->op->n_outputs; i++) {
        int64_t n = 0;
        const struct op_arg_signature *arg = &edge.src->op->outputs[i];
        status_unref(node_count_arg(edge.src, arg, &n)); /* its node is finished */
        if (edge.index < first + n)
            return arena_printf(&m->arena, "%s:%s:%d", name, arg->name, edge.index - first);
        first += (int)n;
    }
    return NULL;
}

static struct status *add_inputs(struct function_maker *m, const struct node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node_input *input = &node->inputs[i];
        const char *text = endpoint_in_function(m, *input);
        if (!text && input->index == CONTROL_EDGE)
            return status_invalid("%s: The source of control edge %s -> %s in function '%s' is not "
                                  "in the body",
                                  m->parts->caller, input->src->name, node->name, m->parts->name);
        if (!text)
            return status_invalid("%s: Input %d, '%s:%d', of node '%s' in function '%s' is not "
                                  "available. You might need to include it in inputs or include "
                                  "its source node in the body",
                                  m->parts->caller, i, input->src->name, input->index, node->name,
                                  m->parts->name);
        proto_add_bytes(&m->out, 3, text, strlen(text));
    }
    return NULL;
}

/* ---- the message ---- */

static void add_text(struct str *out, uint32_t number, const char *text) {
    proto_add_bytes(out, number, text, strlen(text));
}

static struct status *add_node(struct function_maker *m, const struct node *node) {
    size_t begin = proto_begin(&m->out, 3, 0);
    add_text(&m->out, 1, m->node_names[node->id]);
    add_text(&m->out, 2, node->op_name);
    TRY(add_inputs(m, node));
    if (node->device[0])
        add_text(&m->out, 4, node->device);
    for (int i = 0; i < node->n_attrs; i++) {
        size_t entry = proto_begin(&m->out, 5, 0);
        add_text(&m->out, 1, node->attrs[i].name);
        size_t value = proto_begin(&m->out, 2, 0);
        attr_value_to_proto(&node->attrs[i].value, &m->out);
        proto_end(&m->out, value, 0);
        proto_end(&m->out, entry, 0);
    }
    proto_end(&m->out, begin, 0);
    return NULL;
}

static void add_arg(struct str *out, uint32_t number, const char *name, TF_Output output) {
    size_t begin = proto_begin(out, number, 0);
    add_text(out, 1, name);
    proto_add_int(out, 3, output.oper->node->out_types[output.index]);
    proto_end(out, begin, 0);
}

static const char *control_name(const struct function_parts *parts, int i) {
    return parts->control_names ? parts->control_names[i] : parts->controls[i]->node->name;
}

static void add_signature(struct function_maker *m, const char *name, struct str *out) {
    const struct function_parts *parts = m->parts;
    size_t begin = proto_begin(out, 1, 0);
    add_text(out, 1, name);
    for (int i = 0; i < parts->n_inputs; i++)
        add_arg(out, 2, m->input_names[i], parts->inputs[i]);
    for (int i = 0; i < parts->n_outputs; i++)
        add_arg(out, 3, m->output_names[i], parts->outputs[i]);
    if (parts->description)
        add_text(out, 6, parts->description);
    for (int i = 0; i < parts->n_controls; i++)
        add_text(out, 20, control_name(parts, i));
    proto_end(out, begin, 0);
}

static void add_entry(struct str *out, uint32_t number, const char *key, const char *value) {
    size_t begin = proto_begin(out, number, 0);
    add_text(out, 1, key);
    add_text(out, 2, value);
    proto_end(out, begin, 0);
}

/* The static shape of an argument: the attr "_output_shapes" of its entry of arg_attr. */
static void add_argument_shape(struct function_maker *m, int i) {
    const struct attr_value *shape = node_attr(m->parts->inputs[i].oper->node, "shape");
    if (!node_is_op(m->parts->inputs[i].oper->node, "Placeholder") || !shape)
        return;
    size_t entry = proto_begin(&m->out, 7, 0);
    proto_add_tag(&m->out, 1, 0);
    proto_add_varint(&m->out, (uint64_t)i);
    size_t attrs = proto_begin(&m->out, 2, 0), attr = proto_begin(&m->out, 1, 0);
    add_text(&m->out, 1, "_output_shapes");
    size_t value = proto_begin(&m->out, 2, 0), list = proto_begin(&m->out, 1, 0);
    attr_value_to_proto(shape, &m->out);
    proto_end(&m->out, list, 0);
    proto_end(&m->out, value, 0);
    proto_end(&m->out, attr, 0);
    proto_end(&m->out, attrs, 0);
    proto_end(&m->out, entry, 0);
}

static struct status *add_results(struct function_maker *m) {
    const struct function_parts *parts = m->parts;
    for (int i = 0; i < parts->n_outputs; i++) {
        TF_Output output = parts->outputs[i];
        const char *text =
            endpoint_in_function(m, (struct node_input){output.oper->node, output.index});
        if (!text)
            return status_invalid("%s: TF_Output '%s:%d' of function '%s' is neither in the "
                                  "function body nor among function inputs",
                                  parts->caller, output.oper->node->name, output.index,
                                  parts->name);
        add_entry(&m->out, 4, m->output_names[i], text);
    }
    for (int i = 0; i < parts->n_controls; i++) {
        const char *name = m->node_names[parts->controls[i]->node->id];
        if (!name)
            return status_invalid("%s: control output '%s' of function '%s' is not in the body",
                                  parts->caller, parts->controls[i]->node->name, parts->name);
        add_entry(&m->out, 6, control_name(parts, i), name);
    }
    return NULL;
}

/* Functions neither take nor return references. */
static struct status *check_value(const char *caller, const TF_Graph *graph, TF_Output output) {
    TRY(output_check(caller, graph, output));
    enum dtype dtype = (enum dtype)output.oper->node->out_types[output.index];
    return dtype_is_ref(dtype)
               ? status_invalid("%s: Output %d of node '%s' has a reference type %s", caller,
                                output.index, output.oper->node->name, dtype_name(dtype))
               : NULL;
}

static struct status *check_parts(const struct function_parts *parts, const TF_Graph *graph) {
    const char *caller = parts->caller;
    if (!graph || !parts->name)
        return null_refused(caller, graph ? "fn_name" : "fn_body");
    if ((parts->n_opers > 0 && !parts->opers) || (parts->n_inputs > 0 && !parts->inputs) ||
        (parts->n_outputs > 0 && !parts->outputs) || (parts->n_controls > 0 && !parts->controls))
        return null_refused(caller, "an array");
    if (parts->n_inputs < 0 || parts->n_outputs < 0 || parts->n_controls < 0)
        return status_invalid("%s: %d inputs, %d outputs and %d control outputs", caller,
                              parts->n_inputs, parts->n_outputs, parts->n_controls);
    for (int i = 0; i < parts->n_opers; i++)
        TRY(operation_check(caller, graph, parts->opers[i]));
    for (int i = 0; i < parts->n_controls; i++) {
        TRY(operation_check(caller, graph, parts->controls[i]));
        if (parts->control_names && !parts->control_names[i])
            return null_refused(caller, "a control output name");
    }
    for (int i = 0; i < parts->n_inputs; i++)
        TRY(check_value(caller, graph, parts->inputs[i]));
    for (int i = 0; i < parts->n_outputs; i++)
        TRY(check_value(caller, graph, parts->outputs[i]));
    return NULL;
}

static struct status *write_body(struct function_maker *m) {
    const struct graph *graph = &m->graph->graph;
    TRY(choose_names(m));
    for (int id = 0; id < graph->n_nodes; id++)
        if (m->node_names[id])
            TRY(add_node(m, graph->nodes[id]));
    for (int i = 0; i < m->parts->n_inputs; i++)
        add_argument_shape(m, i);
    return add_results(m);
}

/* The lock is held. */
static struct status *make_function(const struct function_parts *parts, TF_Graph *graph,
                                    TF_Function **ret) {
    struct function_maker m = {.parts = parts, .graph = graph};
    struct str def = STR_INIT;
    arena_init(&m.arena);
    strmap_init(&m.names);
    m.node_names = arena_array(&m.arena, const char *, graph->graph.n_nodes + 1);
    m.input_names = arena_array(&m.arena, const char *, parts->n_inputs + 1);
    m.output_names = arena_array(&m.arena, const char *, parts->n_outputs + 1);
    struct status *st = write_body(&m);
    if (!st) {
        const char *name = parts->name;
        if (parts->appends_hash)
            name = arena_printf(&m.arena, "%s_%016llx", name,
                                (unsigned long long)hash_bytes(str_text(&m.out), m.out.len, 0));
        add_signature(&m, name, &def);
        str_add_bytes(&def, str_text(&m.out), m.out.len);
        st = function_new(parts->caller, &def, ret);
    }
    str_fini(&m.out);
    strmap_fini(&m.names);
    arena_fini(&m.arena);
    return st;
}

static TF_Function *make(const struct function_parts *parts, const TF_Graph *fn_body,
                         TF_Status *status) {
    /* the graph is locked, not changed */
    TF_Graph *graph = (TF_Graph *)(uintptr_t)fn_body;
    TF_Function *func = NULL;
    struct status *st = check_parts(parts, graph);
    if (!st) {
        pthread_mutex_lock(&graph->lock);
        st = make_function(parts, graph, &func);
        pthread_mutex_unlock(&graph->lock);
    }
    tf_status_set(status, st);
    return func;
}

TF_Function *TF_GraphToFunction(const TF_Graph *fn_body, const char *fn_name,
                                unsigned char append_hash_to_fn_name, int num_opers,
                                const TF_Operation *const *opers, int ninputs,
                                const TF_Output *inputs, int noutputs, const TF_Output *outputs,
                                const char *const *output_names, const TF_FunctionOptions *options,
                                const char *description, TF_Status *status) {
    struct function_parts parts = {
        .caller = __func__,
        .name = fn_name,
        .description = description,
        .appends_hash = append_hash_to_fn_name != 0,
        .n_opers = num_opers,
        .opers = opers,
        .n_inputs = ninputs,
        .inputs = inputs,
        .n_outputs = noutputs,
        .outputs = outputs,
        .output_names = output_names,
    };
    return make(&parts, fn_body, status);
}

TF_Function *TF_GraphToFunctionWithControlOutputs(
    const TF_Graph *fn_body, const char *fn_name, unsigned char append_hash_to_fn_name,
    int num_opers, const TF_Operation *const *opers, int ninputs, const TF_Output *inputs,
    int noutputs, const TF_Output *outputs, const char *const *output_names, int ncontrol_outputs,
    const TF_Operation *const *control_outputs, const char *const *control_output_names,
    const TF_FunctionOptions *options, const char *description, TF_Status *status) {
    struct function_parts parts = {
        .caller = __func__,
        .name = fn_name,
        .description = description,
        .appends_hash = append_hash_to_fn_name != 0,
        .n_opers = num_opers,
        .opers = opers,
        .n_inputs = ninputs,
        .inputs = inputs,
        .n_outputs = noutputs,
        .outputs = outputs,
        .output_names = output_names,
        .n_controls = ncontrol_outputs,
        .controls = control_outputs,
        .control_names = control_output_names,
    };
    return make(&parts, fn_body, status);
}
