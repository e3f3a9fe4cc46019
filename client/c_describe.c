/* Makes operations: collects what a client says about one, and turns it into a node.
 *
 *   description ─► inputs matched with the op's arguments ─► attrs that follow from them
 *               ─► node, checked ─► static shapes ─► operation
 *
 * c_describe_attrs.c has the setters of attrs. */
#include "client/c_describe.h"

#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "common/graph/internal_ops.h"

/* ---- collecting ---- */

void describe_fail(TF_OperationDescription *desc, struct status *status_take) {
    if (desc->status)
        status_unref(status_take);
    else
        desc->status = status_take;
}

bool describe_may_change(const TF_OperationDescription *desc) { return desc && !desc->is_finished; }

TF_OperationDescription *TF_NewOperationLocked(TF_Graph *graph, const char *op_type,
                                               const char *oper_name) {
    if (!graph)
        return NULL;
    struct arena *arena = &graph->graph.arena;
    TF_OperationDescription *desc = arena_new(arena, struct TF_OperationDescription);
    *desc = (struct TF_OperationDescription){
        .owner = graph,
        .name = arena_strdup(arena, oper_name ? oper_name : ""),
        .op_name = arena_strdup(arena, op_type ? op_type : ""),
        .device = "",
    };
    arena_init(&desc->arena);
    if (!op_type || !oper_name)
        describe_fail(desc, null_refused("TF_NewOperation", op_type ? "oper_name" : "op_type"));
    return desc;
}

TF_OperationDescription *TF_NewOperation(TF_Graph *graph, const char *op_type,
                                         const char *oper_name) {
    if (!graph)
        return NULL;
    pthread_mutex_lock(&graph->lock);
    TF_OperationDescription *desc = TF_NewOperationLocked(graph, op_type, oper_name);
    pthread_mutex_unlock(&graph->lock);
    return desc;
}

void TF_SetDevice(TF_OperationDescription *desc, const char *device) {
    if (describe_may_change(desc))
        desc->device = arena_strdup(&desc->arena, device ? device : "");
}

static void add_inputs(const char *function, TF_OperationDescription *desc, const TF_Output *inputs,
                       int n, bool is_list) {
    for (int i = 0; i < n; i++) {
        struct status *st = output_check(function, desc->owner, inputs[i]);
        if (st) {
            describe_fail(desc, st);
            return;
        }
    }
    if (n > NODE_MAX_ARGS || desc->n_inputs >= NODE_MAX_ARGS) {
        describe_fail(desc, status_exhausted("%s: more than %d inputs of '%s'", function,
                                             NODE_MAX_ARGS, desc->name));
        return;
    }
    TF_Output *values = arena_array(&desc->arena, TF_Output, n + 1);
    if (n > 0)
        memcpy(values, inputs, (size_t)n * sizeof *values);
    desc->inputs = xreallocarray(desc->inputs, (size_t)desc->n_inputs + 1, sizeof desc->inputs[0]);
    desc->inputs[desc->n_inputs++] = (struct described_input){values, n, is_list};
}

void TF_AddInput(TF_OperationDescription *desc, TF_Output input) {
    if (describe_may_change(desc))
        add_inputs(__func__, desc, &input, 1, false);
}

void TF_AddInputList(TF_OperationDescription *desc, const TF_Output *inputs, int num_inputs) {
    if (!describe_may_change(desc))
        return;
    if (num_inputs < 0 || (num_inputs > 0 && !inputs))
        describe_fail(desc, num_inputs < 0 ? status_invalid("%s: %d inputs", __func__, num_inputs)
                                           : null_refused(__func__, "inputs"));
    else
        add_inputs(__func__, desc, inputs, num_inputs, true);
}

void TF_AddControlInput(TF_OperationDescription *desc, TF_Operation *input) {
    if (!describe_may_change(desc))
        return;
    struct status *st = operation_check(__func__, desc->owner, input);
    if (st) {
        describe_fail(desc, st);
        return;
    }
    desc->controls =
        xreallocarray(desc->controls, (size_t)desc->n_controls + 1, sizeof desc->controls[0]);
    desc->controls[desc->n_controls++] = input;
}

void describe_colocate(TF_OperationDescription *desc, struct span group) {
    for (int i = 0; i < desc->n_colocations; i++)
        if (span_is(group, desc->colocations[i]))
            return;
    desc->colocations = xreallocarray(desc->colocations, (size_t)desc->n_colocations + 1,
                                      sizeof desc->colocations[0]);
    desc->colocations[desc->n_colocations++] = arena_strndup(&desc->arena, group.data, group.len);
}

void TF_ColocateWith(TF_OperationDescription *desc, TF_Operation *op) {
    if (!describe_may_change(desc))
        return;
    struct status *st = operation_check(__func__, desc->owner, op);
    if (st)
        describe_fail(desc, st);
    else
        describe_colocate(desc, span_of(arena_printf(&desc->arena, "loc:@%s", op->node->name)));
}

/* ---- inputs and the attrs that follow from them ---- */

static COLD struct status *building(const TF_OperationDescription *desc,
                                    const struct op_signature *op, struct status *status_take) {
    struct str text = STR_INIT;
    op_signature_print(op, &text);
    struct status *st = status_suffix_take(status_take, " while building NodeDef '%s' using %s",
                                           desc->name, str_text(&text));
    str_fini(&text);
    return st;
}

static enum dtype base_type(TF_Output output) {
    return dtype_base((enum dtype)output.oper->node->out_types[output.index]);
}

/* Sets an attr, or checks that it has this value already. */
static struct status *deduce(TF_OperationDescription *desc, const char *name,
                             const struct attr_value *value) {
    for (int i = 0; i < desc->n_attrs; i++) {
        const struct attr_value *old = &desc->attrs[i].value;
        if (strcmp(desc->attrs[i].name, name) != 0)
            continue;
        if (old->is_placeholder || attr_value_equal(old, value))
            return NULL;
        struct str text = STR_INIT;
        attr_value_print(old, &text);
        str_add(&text, " vs. ");
        attr_value_print(value, &text);
        struct status *st =
            status_invalid("Inconsistent values for attr '%s' %s", name, str_text(&text));
        str_fini(&text);
        return st;
    }
    describe_attr(desc, name, value);
    return NULL;
}

static struct status *check_types(const struct op_arg_signature *arg,
                                  const struct described_input *input) {
    for (int i = 0; i < input->n; i++) {
        enum dtype wanted = arg->type_attr ? base_type(input->values[0]) : arg->type;
        if (wanted != base_type(input->values[i]))
            return status_invalid("Input '%s' passed %s expected %s", arg->name,
                                  dtype_name(base_type(input->values[i])), dtype_name(wanted));
        int given = input->values[i].oper->node->out_types[input->values[i].index];
        if (arg->is_ref && !dtype_is_ref((enum dtype)given))
            return status_invalid("Input '%s' passed %s expected ref type", arg->name,
                                  dtype_name((enum dtype)given));
    }
    return NULL;
}

static struct status *deduce_types(TF_OperationDescription *desc, const char *attr,
                                   const struct described_input *input) {
    struct attr_value *types = arena_array(&desc->arena, struct attr_value, input->n + 1);
    for (int i = 0; i < input->n; i++)
        types[i] = (struct attr_value){.type = ATTR_TYPE, .dtype = base_type(input->values[i])};
    return deduce(desc, attr,
                  &(struct attr_value){.type = ATTR_LIST_TYPE, .list = {types, input->n}});
}

static struct status *match_arg(TF_OperationDescription *desc, const struct op_arg_signature *arg,
                                const struct described_input *input) {
    bool wants_list = arg->number_attr || arg->type_list_attr;
    if (wants_list && !input->is_list)
        return status_invalid("Single tensor passed to '%s', expected list", arg->name);
    if (!wants_list && input->is_list)
        return status_invalid("List provided to input '%s' when single Tensor expected", arg->name);
    if (arg->type_list_attr)
        return deduce_types(desc, arg->type_list_attr, input);
    TRY(check_types(arg, input));
    if (arg->number_attr)
        TRY(deduce(desc, arg->number_attr, &(struct attr_value){.type = ATTR_INT, .i = input->n}));
    if (!arg->type_attr || input->n == 0)
        return NULL;
    return deduce(desc, arg->type_attr,
                  &(struct attr_value){.type = ATTR_TYPE, .dtype = base_type(input->values[0])});
}

static struct status *match_inputs(TF_OperationDescription *desc, const struct op_signature *op) {
    if (desc->n_inputs < op->n_inputs)
        return status_invalid("%d inputs specified of %d inputs in Op", desc->n_inputs,
                              op->n_inputs);
    if (desc->n_inputs > op->n_inputs)
        return status_invalid("More Input() calls than the %d input_args", op->n_inputs);
    for (int i = 0; i < op->n_inputs; i++)
        TRY(match_arg(desc, &op->inputs[i], &desc->inputs[i]));
    return NULL;
}

/* ---- the node ---- */

static struct status *check_name(const TF_OperationDescription *desc) {
    const struct graph *graph = &desc->owner->graph;
    if (!desc->name[0] || desc->name[0] == '_')
        return status_invalid("Illegal op name '%s'", desc->name);
    if (graph_find(graph, desc->name))
        return status_invalid("Duplicate node name in graph: '%s'", desc->name);
    return NULL;
}

static struct status *find_op(const TF_OperationDescription *desc,
                              const struct op_signature **ret) {
    struct graph *graph = &desc->owner->graph;
    const struct op_signature *op =
        internal_op_find(span_of(desc->op_name)) ? NULL : graph_op_lookup(graph, desc->op_name);
    if (!op)
        return status_invalid("Op type not registered '%s' while building NodeDef '%s'. Millrace "
                              "knows the ops of TensorFlow 2.21 and the functions of the graph.",
                              desc->op_name, desc->name);
    if (op->deprecated_at_version && graph->producer >= op->deprecated_at_version)
        return status_unimplemented(
            "Op %s is not available in GraphDef version %d. It has been removed in version %d.",
            op->name, graph->producer, op->deprecated_at_version);
    *ret = op;
    return NULL;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void set_colocations(TF_OperationDescription *desc, struct node *node) {
    int n = desc->n_colocations;
    if (n == 0)
        return;
    qsort(desc->colocations, (size_t)n, sizeof desc->colocations[0], compare_texts);
    struct attr_value *groups = arena_array(&desc->arena, struct attr_value, n);
    for (int i = 0; i < n; i++)
        groups[i] = (struct attr_value){.type = ATTR_STRING, .s = span_of(desc->colocations[i])};
    node_set_attr(&desc->owner->graph, node, "_class",
                  &(struct attr_value){.type = ATTR_LIST_STRING, .list = {groups, n}});
}

static struct status *fill_node(TF_OperationDescription *desc, struct node *node) {
    struct graph *graph = &desc->owner->graph;
    for (int i = 0; i < desc->n_attrs; i++) {
        const struct attr *attr = &desc->attrs[i];
        if (attr->name[0] != '_' && !op_signature_attr(node->op, attr->name))
            return status_invalid("NodeDef mentions attr '%s' not in Op<name=%s>; NodeDef: {{node "
                                  "%s}}",
                                  attr->name, node->op_name, node->name);
        node_set_attr(graph, node, attr->name, &attr->value);
    }
    set_colocations(desc, node);
    for (int i = 0; i < desc->n_inputs; i++)
        for (int k = 0; k < desc->inputs[i].n; k++)
            node_add_input(graph, node, desc->inputs[i].values[k].oper->node,
                           desc->inputs[i].values[k].index);
    struct node **controls = arena_array(&desc->arena, struct node *, desc->n_controls + 1);
    for (int i = 0; i < desc->n_controls; i++)
        controls[i] = desc->controls[i]->node;
    node_add_controls(graph, node, controls, desc->n_controls);
    return node_finish(graph, node);
}

static struct status *make_node(TF_OperationDescription *desc, struct node **ret) {
    struct graph *graph = &desc->owner->graph;
    const struct op_signature *op;
    int first_id = graph->n_nodes;
    if (desc->status)
        return status_ref(desc->status);
    TRY(find_op(desc, &op));
    TRY(check_name(desc));
    struct status *st = match_inputs(desc, op);
    if (st)
        return building(desc, op, st);
    TRY(graph_add_node(graph, desc->name, desc->op_name, desc->device, ret));
    st = fill_node(desc, *ret);
    if (st) {
        graph_drop_nodes(desc->owner, first_id);
        return st;
    }
    return graph_take_nodes(desc->owner, first_id);
}

static void end_description(TF_OperationDescription *desc) {
    for (int i = 0; i < desc->n_attrs; i++)
        attr_value_clear(&desc->attrs[i].value);
    free(desc->attrs);
    free(desc->inputs);
    free(desc->controls);
    free(desc->colocations);
    status_unref(desc->status);
    arena_fini(&desc->arena);
    *desc = (struct TF_OperationDescription){
        .owner = desc->owner, .name = desc->name, .op_name = desc->op_name, .is_finished = true};
}

TF_Operation *TF_FinishOperationLocked(TF_OperationDescription *desc, TF_Status *status) {
    struct node *node = NULL;
    if (!desc) {
        tf_status_set(status, null_refused("TF_FinishOperation", "desc"));
        return NULL;
    }
    if (desc->is_finished) {
        tf_status_set(status,
                      status_failed_precondition("TF_FinishOperation: operation '%s' (op %s) is "
                                                 "finished already",
                                                 desc->name, desc->op_name));
        return NULL;
    }
    struct status *st = make_node(desc, &node);
    end_description(desc);
    tf_status_set(status, st);
    return st ? NULL : graph_operation(desc->owner, node);
}

TF_Operation *TF_FinishOperation(TF_OperationDescription *desc, TF_Status *status) {
    if (!desc)
        return TF_FinishOperationLocked(desc, status);
    pthread_mutex_lock(&desc->owner->lock);
    TF_Operation *oper = TF_FinishOperationLocked(desc, status);
    pthread_mutex_unlock(&desc->owner->lock);
    return oper;
}
