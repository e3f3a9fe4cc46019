/* Decodes functions, and makes nodes of what was decoded (function_body.h). A client wrote these
 * bytes: their depth was limited when the function joined the library; all names are checked
 * here. */
#include "common/graph/function_body.h"

#include <stdlib.h>

#include "common/graph/graph_internal.h"
#include "common/graph/internal_ops.h"
#include "common/tensor/tensor_proto.h"

/* FunctionDef, NodeDef, map entry: as in a GraphDef. */
enum { BODY_ATTR_DEPTH = 3 };

struct body_reader {
    struct graph *graph;
    struct function_body *body;
    struct attr_reader attrs;
};

static COLD struct status *malformed(const struct body_reader *reader, const char *what) {
    return status_invalid("Malformed FunctionDef of function '%s': %s", reader->body->name, what);
}

static int count_fields(struct span message, uint32_t number) {
    struct proto_field field;
    int n = 0;
    while (proto_next(&message, &field) > 0)
        n += proto_field_is(&field, number, 2);
    return n;
}

/* ---- names ---- */

/* A value of the map is the position + 1, times two; odd for args. */
static bool put_name(struct body_reader *reader, const char *name, int position, bool is_arg) {
    return !strmap_put(&reader->body->names, name,
                       (void *)(((uintptr_t)position + 1) << 1 | is_arg));
}

bool function_body_find(const struct function_body *body, struct span name, bool *ret_is_arg,
                        int *ret_position) {
    uintptr_t value = (uintptr_t)strmap_get_span(&body->names, name);
    if (value == 0)
        return false;
    *ret_is_arg = value & 1;
    *ret_position = (int)(value >> 1) - 1;
    return true;
}

/* Splits `text` at the first colon; the rest is empty where there is none. */
static struct span take_part(struct span *text) {
    const char *colon = text->len > 0 ? memchr(text->data, ':', text->len) : NULL;
    struct span part = {text->data, colon ? (size_t)(colon - text->data) : text->len};
    size_t taken = colon ? part.len + 1 : part.len;
    *text = (struct span){text->data + taken, text->len - taken};
    return part;
}

static bool parse_index(struct span text, int *ret) {
    int64_t index = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || index > NODE_MAX_ARGS)
            return false;
        index = index * 10 + (text.data[i] - '0');
    }
    *ret = (int)MIN(index, (int64_t)INT32_MAX);
    return true;
}

static struct status *read_input(struct body_reader *reader, struct span text, const char *where,
                                 struct function_input *ret) {
    struct span rest = text;
    *ret = (struct function_input){.is_control = text.len > 0 && text.data[0] == '^'};
    if (ret->is_control)
        rest = (struct span){text.data + 1, text.len - 1};
    bool is_known =
        function_body_find(reader->body, take_part(&rest), &ret->is_arg, &ret->position);
    if (is_known && !ret->is_control) {
        struct span output = ret->is_arg ? (struct span){"", 0} : take_part(&rest);
        ret->output = (struct span){arena_strndup(&reader->graph->arena, output.data, output.len),
                                    output.len};
        is_known = parse_index(rest, &ret->index);
    }
    if (is_known && !(ret->is_control && rest.len > 0))
        return NULL;
    return status_invalid("input '%.*s' of '%s' in function '%s' is not found",
                          (int)MIN(text.len, (size_t)256), text.data, where, reader->body->name);
}

/* ---- the signature ---- */

static struct status *read_default(struct body_reader *reader, struct span attr_def) {
    struct span name = {"", 0}, value = {NULL, 0};
    struct op_attr_signature wanted = {0};
    struct proto_field field;
    bool has_type = false, is_set = false;
    while (proto_next(&attr_def, &field) > 0) {
        if (proto_field_is(&field, 1, 2))
            name = field.bytes;
        else if (proto_field_is(&field, 2, 2))
            has_type = attr_type_parse(field.bytes, &wanted.type);
        else if (proto_field_is(&field, 3, 2))
            value = field.bytes;
    }
    if (!value.data || !has_type)
        return NULL;
    struct attr *attr = &reader->body->defaults[reader->body->n_defaults];
    attr->name = arena_strndup(&reader->graph->arena, name.data, name.len);
    TRY(attr_read(&reader->attrs, value, &wanted, BODY_ATTR_DEPTH, &attr->value, &is_set));
    reader->body->n_defaults += is_set;
    return NULL;
}

static struct status *read_signature(struct body_reader *reader, struct span op_def) {
    struct function_body *body = reader->body;
    struct arena *arena = &reader->graph->arena;
    struct proto_field field;
    int n_attrs = count_fields(op_def, 4);
    body->n_args = count_fields(op_def, 2);
    body->n_rets = count_fields(op_def, 3);
    if (n_attrs > NODE_MAX_ATTRS)
        return malformed(reader, "it has more than 256 attrs");
    struct op_arg_signature *args = arena_array(arena, struct op_arg_signature, body->n_args);
    struct op_arg_signature *rets = arena_array(arena, struct op_arg_signature, body->n_rets);
    body->args = args;
    body->rets = rets;
    body->defaults = arena_array(arena, struct attr, n_attrs);
    while (proto_next(&op_def, &field) > 0) {
        if (proto_field_is(&field, 2, 2))
            op_arg_read(reader->graph, field.bytes, args++);
        else if (proto_field_is(&field, 3, 2))
            op_arg_read(reader->graph, field.bytes, rets++);
        else if (proto_field_is(&field, 4, 2))
            TRY(read_default(reader, field.bytes));
    }
    body->n_defaults = attrs_sort(body->defaults, body->n_defaults);
    for (int i = 0; i < body->n_args; i++)
        if (!put_name(reader, body->args[i].name, i, true))
            return status_invalid("Function '%s' has two arguments '%s'", body->name,
                                  body->args[i].name);
    return NULL;
}

/* ---- nodes ---- */

static struct status *read_attrs(struct body_reader *reader, struct span def,
                                 struct function_node *node) {
    struct proto_field field;
    int n_attrs = count_fields(def, 5);
    if (n_attrs > NODE_MAX_ATTRS)
        return status_invalid("Node '%s' of function '%s' states %d attrs, more than %d",
                              node->name, reader->body->name, n_attrs, NODE_MAX_ATTRS);
    node->attrs = arena_array(&reader->graph->arena, struct attr, n_attrs);
    while (proto_next(&def, &field) > 0) {
        bool is_set;
        if (!proto_field_is(&field, 5, 2))
            continue;
        TRY(attr_read_entry(&reader->attrs, field.bytes, node->op, BODY_ATTR_DEPTH,
                            &node->attrs[node->n_attrs], &is_set));
        node->n_attrs += is_set;
    }
    node->n_attrs = attrs_sort(node->attrs, node->n_attrs);
    return NULL;
}

static bool is_control_flow(const struct op_signature *op) {
    static const char *const names[] = {"Switch",        "RefSwitch",       "_SwitchN", "Merge",
                                        "RefMerge",      "Enter",           "RefEnter", "Exit",
                                        "NextIteration", "RefNextIteration"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(op->name, names[i]) == 0)
            return true;
    return false;
}

static struct status *read_node(struct body_reader *reader, struct span def,
                                struct function_node *node) {
    struct arena *arena = &reader->graph->arena;
    struct span name = {"", 0}, op = {"", 0}, device = {"", 0}, in = def;
    struct proto_field field;
    int more;
    while ((more = proto_next(&in, &field)) > 0) {
        if (proto_field_is(&field, 1, 2))
            name = field.bytes;
        else if (proto_field_is(&field, 2, 2))
            op = field.bytes;
        else if (proto_field_is(&field, 4, 2))
            device = field.bytes;
    }
    if (more < 0)
        return malformed(reader, "a node cannot be read");
    if (!node_name_is_valid(name, false))
        return node_name_refused(name);
    node->name = arena_strndup(arena, name.data, name.len);
    node->device = device.len > 0 ? arena_strndup(arena, device.data, device.len) : "";
    node->op = internal_op_find(op) ? NULL : graph_op_lookup_span(reader->graph, op);
    if (!node->op)
        return status_suffix_take(op_not_registered(op), "\n\t [[{{node %s}}]] of function '%s'",
                                  node->name, reader->body->name);
    if (!put_name(reader, node->name, (int)(node - reader->body->nodes), false))
        return status_invalid("The name '%s' is not unique in function '%s'", node->name,
                              reader->body->name);
    reader->body->has_control_flow = reader->body->has_control_flow || is_control_flow(node->op);
    return status_suffix_take(read_attrs(reader, def, node),
                              "\n\t [[{{node %s}}]] of function '%s'", node->name,
                              reader->body->name);
}

/* Puts data inputs first, as TensorFlow does. */
static struct status *read_inputs(struct body_reader *reader, struct span def,
                                  struct function_node *node) {
    struct proto_field field;
    struct function_input input;
    int n_control = 0, n = count_fields(def, 3);
    node->inputs = arena_array(&reader->graph->arena, struct function_input, n);
    for (struct span in = def; proto_next(&in, &field) > 0;)
        n_control +=
            proto_field_is(&field, 3, 2) && field.bytes.len > 0 && field.bytes.data[0] == '^';
    node->n_data = n - n_control;
    int at[2] = {0, node->n_data};
    while (proto_next(&def, &field) > 0) {
        if (!proto_field_is(&field, 3, 2))
            continue;
        TRY(read_input(reader, field.bytes, node->name, &input));
        node->inputs[at[input.is_control]++] = input;
    }
    node->n_inputs = n;
    return NULL;
}

static struct status *read_nodes(struct body_reader *reader, struct span def) {
    struct function_body *body = reader->body;
    struct proto_field field;
    int n = count_fields(def, 3);
    if (n > reader->attrs.limits->max_nodes)
        return status_exhausted("Function '%s' has %d nodes, more than %d", body->name, n,
                                reader->attrs.limits->max_nodes);
    body->nodes = arena_array(&reader->graph->arena, struct function_node, n);
    for (struct span in = def; proto_next(&in, &field) > 0;) {
        if (!proto_field_is(&field, 3, 2))
            continue;
        TRY(read_node(reader, field.bytes, &body->nodes[body->n_nodes]));
        body->n_nodes++;
    }
    for (struct function_node *node = body->nodes; proto_next(&def, &field) > 0;)
        if (proto_field_is(&field, 3, 2))
            TRY(read_inputs(reader, field.bytes, node++));
    return NULL;
}

/* ---- results ---- */

static void read_map_entry(struct span entry, struct span *ret_key, struct span *ret_value) {
    struct proto_field field;
    *ret_key = *ret_value = (struct span){"", 0};
    while (proto_next(&entry, &field) > 0) {
        if (proto_field_is(&field, 1, 2))
            *ret_key = field.bytes;
        else if (proto_field_is(&field, 2, 2))
            *ret_value = field.bytes;
    }
}

static struct status *read_rets(struct body_reader *reader, struct span def) {
    struct function_body *body = reader->body;
    struct strmap by_name;
    struct proto_field field;
    struct span key, value;
    struct status *st = NULL;
    strmap_init(&by_name);
    bool *is_set = xcalloc((size_t)body->n_rets + 1, sizeof(*is_set));
    body->ret_values = arena_array(&reader->graph->arena, struct function_input, body->n_rets);
    for (int i = 0; i < body->n_rets; i++)
        strmap_put(&by_name, body->rets[i].name, (void *)((uintptr_t)i + 1));
    while (proto_next(&def, &field) > 0) {
        if (!proto_field_is(&field, 4, 2))
            continue;
        read_map_entry(field.bytes, &key, &value);
        uintptr_t i = (uintptr_t)strmap_get_span(&by_name, key);
        if (i == 0)
            continue;
        TRY_OUT(read_input(reader, value, "its outputs", &body->ret_values[i - 1]));
        if (body->ret_values[i - 1].is_control)
            TRY_OUT(malformed(reader, "an output is a control edge"));
        is_set[i - 1] = true;
    }
    for (int i = 0; i < body->n_rets; i++)
        if (!is_set[i])
            TRY_OUT(status_invalid("Return argument '%s' of function '%s' has no value",
                                   body->rets[i].name, body->name));
out:
    strmap_fini(&by_name);
    free(is_set);
    return st;
}

/* Marks the producers of the nodes on the stack as needed. */
static void mark_needed(struct function_body *body, int *stack, int n_stack) {
    while (n_stack > 0) {
        const struct function_node *node = &body->nodes[stack[--n_stack]];
        for (int i = 0; i < node->n_inputs; i++) {
            struct function_node *src = &body->nodes[node->inputs[i].position];
            if (node->inputs[i].is_arg || src->is_needed)
                continue;
            src->is_needed = true;
            stack[n_stack++] = node->inputs[i].position;
        }
    }
}

static void need(struct function_body *body, int position, int *stack) {
    if (body->nodes[position].is_needed)
        return;
    body->nodes[position].is_needed = true;
    stack[0] = position;
    mark_needed(body, stack, 1);
}

/* For each node: does it depend on control flow of the body itself? A depth-first walk over inputs.
 * 1: being visited, or no; 2: yes. A node pushes its inputs at its first visit only, so the stack
 * never has more entries than there are edges and nodes. */
static void find_below_control_flow(const struct function_body *body, uint8_t *is_below) {
    size_t n_edges = 0;
    for (int i = 0; i < body->n_nodes; i++)
        n_edges += (size_t)body->nodes[i].n_inputs;
    int *stack = xcalloc(n_edges + (size_t)body->n_nodes + 1, sizeof(*stack));
    for (int start = 0; start < body->n_nodes; start++) {
        int n_stack = 0;
        if (!is_below[start])
            stack[n_stack++] = start;
        while (n_stack > 0) {
            const struct function_node *node = &body->nodes[stack[n_stack - 1]];
            uint8_t *state = &is_below[stack[n_stack - 1]];
            bool is_first_visit = *state == 0;
            int n_before = n_stack;
            *state = *state == 2 || is_control_flow(node->op) ? 2 : 1;
            for (int i = 0; i < node->n_inputs; i++) {
                int src = node->inputs[i].position;
                if (node->inputs[i].is_arg)
                    continue;
                if (is_below[src] == 2)
                    *state = 2;
                else if (is_first_visit && is_below[src] == 0)
                    stack[n_stack++] = src;
            }
            n_stack -= n_stack == n_before;
        }
    }
    free(stack);
}

/* A call of a stateful function. Its effects are known when it is inlined. */
static bool is_stateful_call(const struct op_signature *op) {
    bool calls = !op_signature_is_known(op);
    for (int i = 0; i < op->n_attrs && !calls; i++)
        calls = attr_type_element(op->attrs[i].type) == ATTR_FUNC;
    return calls && op->is_stateful;
}

static void add_effect(struct function_body *body, int position, bool *is_effect) {
    if (is_effect[position])
        return;
    is_effect[position] = true;
    body->effects[body->n_effects++] = position;
}

static void add_needed_calls(struct function_body *body, const uint8_t *is_below, bool *is_effect) {
    for (int i = 0; i < body->n_nodes; i++)
        if (body->nodes[i].is_needed && is_below[i] != 2 && is_stateful_call(body->nodes[i].op))
            add_effect(body, i, is_effect);
}

/* Is it an If, Case or While that becomes nodes of the graph around? */
static bool is_lowered(const struct function_node *node) {
    int at;
    return attrs_find(node->attrs, node->n_attrs, "_lower_using_switch_merge", &at) &&
           node->attrs[at].value.type == ATTR_BOOL && node->attrs[at].value.b;
}

struct use_walk {
    struct function_body *body;
    bool *is_reached; /* by node */
    int *stack, n_stack;
};

static void use(struct use_walk *walk, const struct function_input *input) {
    if (input->is_arg) {
        walk->body->arg_is_used[input->position] = true;
    } else if (!walk->is_reached[input->position]) {
        walk->is_reached[input->position] = true;
        walk->stack[walk->n_stack++] = input->position;
    }
}

static void find_used_args(struct graph *graph, struct function_body *body) {
    struct use_walk walk = {.body = body};
    body->arg_is_used = arena_array(&graph->arena, bool, body->n_args + 1);
    walk.is_reached = xcalloc((size_t)body->n_nodes + 1, sizeof(*walk.is_reached));
    walk.stack = xcalloc((size_t)body->n_nodes + 1, sizeof(*walk.stack));
    for (int i = 0; i < body->n_rets; i++)
        use(&walk, &body->ret_values[i]);
    for (int i = 0; i < body->n_named_effects; i++)
        use(&walk, &(struct function_input){.position = body->effects[i]});
    while (walk.n_stack > 0) {
        const struct function_node *node = &body->nodes[walk.stack[--walk.n_stack]];
        for (int i = 0; i < node->n_inputs && !is_lowered(node); i++)
            use(&walk, &node->inputs[i]);
    }
    free(walk.is_reached);
    free(walk.stack);
}

static struct status *find_effects(struct body_reader *reader, struct span def) {
    struct function_body *body = reader->body;
    struct proto_field field;
    struct span key, value;
    struct status *st = NULL;
    bool is_arg;
    int position, *stack = xcalloc((size_t)body->n_nodes + 1, sizeof(*stack));
    uint8_t *is_below = xcalloc((size_t)body->n_nodes + 1, sizeof(*is_below));
    bool *is_effect = xcalloc((size_t)body->n_nodes + 1, sizeof(*is_effect));
    body->effects = arena_array(&reader->graph->arena, int, body->n_nodes);
    while (proto_next(&def, &field) > 0) {
        if (!proto_field_is(&field, 6, 2))
            continue;
        read_map_entry(field.bytes, &key, &value);
        if (!function_body_find(body, value, &is_arg, &position) || is_arg)
            TRY_OUT(status_invalid("Control output '%.*s' of function '%s' is not found",
                                   (int)MIN(value.len, (size_t)256), value.data, body->name));
        add_effect(body, position, is_effect);
    }
    for (int i = 0; i < body->n_rets; i++)
        if (!body->ret_values[i].is_arg)
            need(body, body->ret_values[i].position, stack);
    for (int i = 0; i < body->n_effects; i++)
        need(body, body->effects[i], stack);
    if (body->has_control_flow)
        find_below_control_flow(body, is_below);
    body->has_results = body->n_rets > 0 || body->n_effects > 0;
    body->n_named_effects = body->n_effects;
    add_needed_calls(body, is_below, is_effect);
    body->n_kept_effects = body->n_effects;
    /* from the end, since a later node mostly needs earlier ones */
    for (int i = body->n_nodes - 1; i >= 0; i--) {
        if (body->nodes[i].is_needed || !body->nodes[i].op->is_stateful || is_below[i] == 2)
            continue;
        add_effect(body, i, is_effect);
        need(body, i, stack);
    }
    add_needed_calls(body, is_below, is_effect);
out:
    free(stack);
    free(is_below);
    free(is_effect);
    return st;
}

static struct status *read_body(struct body_reader *reader, struct span def) {
    struct proto_field field;
    struct span op_def = {"", 0};
    for (struct span in = def; proto_next(&in, &field) > 0;)
        if (proto_field_is(&field, 1, 2))
            op_def = field.bytes;
    TRY(read_signature(reader, op_def));
    TRY(read_nodes(reader, def));
    TRY(read_rets(reader, def));
    TRY(find_effects(reader, def));
    find_used_args(reader->graph, reader->body);
    return NULL;
}

struct status *function_body_read(struct graph *graph, const struct graph_function *function,
                                  const struct graph_limits *limits, struct function_body **ret) {
    struct body_reader reader = {.graph = graph,
                                 .body = arena_new(&graph->arena, struct function_body)};
    reader.body->name = function->name;
    attr_reader_init(&reader.attrs, graph, limits);
    strmap_init(&reader.body->names);
    struct status *st = read_body(&reader, function->def);
    attr_reader_fini(&reader.attrs);
    if (st)
        function_body_fini(reader.body);
    else
        *ret = reader.body;
    return st;
}

void function_body_fini(struct function_body *body) {
    if (body)
        strmap_fini(&body->names);
}

/* ---- making nodes ---- */

static const struct attr_value *find_attr(const struct function_body *body,
                                          const struct function_attrs *attrs, const char *name) {
    int at;
    if (attrs_find(attrs->attrs, attrs->n_attrs, name, &at))
        return &attrs->attrs[at].value;
    return attrs_find(body->defaults, body->n_defaults, name, &at) ? &body->defaults[at].value
                                                                   : NULL;
}

static bool has_placeholder(const struct attr_value *value) {
    if (value->is_placeholder)
        return true;
    if (value->type == ATTR_FUNC) {
        for (int i = 0; i < value->func->n_attrs; i++)
            if (has_placeholder(&value->func->attrs[i].value))
                return true;
    } else if (value->type == ATTR_LIST_FUNC) {
        for (int i = 0; i < value->list.n_values; i++)
            if (has_placeholder(&value->list.values[i]))
                return true;
    }
    return false;
}

static struct status *substitute(struct graph *graph, const struct function_body *body,
                                 const struct function_attrs *attrs, const struct attr_value *from,
                                 struct attr_value *ret);

static struct status *substitute_func(struct graph *graph, const struct function_body *body,
                                      const struct function_attrs *attrs,
                                      const struct attr_value *from, struct attr_value *ret) {
    struct attr_func *func = arena_new(&graph->arena, struct attr_func);
    *func = *from->func;
    func->attrs = arena_array(&graph->arena, struct attr, func->n_attrs);
    for (int i = 0; i < func->n_attrs; i++) {
        func->attrs[i].name = from->func->attrs[i].name;
        TRY(substitute(graph, body, attrs, &from->func->attrs[i].value, &func->attrs[i].value));
    }
    ret->func = func;
    return NULL;
}

/* Values without placeholders are shared rather than copied: the graph of the body and the graph of
 * the call both outlive the node. */
static struct status *substitute(struct graph *graph, const struct function_body *body,
                                 const struct function_attrs *attrs, const struct attr_value *from,
                                 struct attr_value *ret) {
    *ret = *from;
    if (!has_placeholder(from))
        return NULL;
    if (from->is_placeholder) {
        const struct attr_value *value = find_attr(body, attrs, from->placeholder);
        if (!value || value->is_placeholder)
            return status_invalid("Function '%s' is called without its attr '%s'", body->name,
                                  from->placeholder);
        *ret = *value;
        return NULL;
    }
    if (from->type == ATTR_FUNC)
        return substitute_func(graph, body, attrs, from, ret);
    struct attr_value *values = arena_array(&graph->arena, struct attr_value, from->list.n_values);
    for (int i = 0; i < from->list.n_values; i++)
        TRY(substitute(graph, body, attrs, &from->list.values[i], &values[i]));
    ret->list.values = values;
    return NULL;
}

struct status *function_node_new(struct graph *graph, const struct function_body *body,
                                 const struct function_node *from,
                                 const struct function_attrs *attrs, const char *name,
                                 const char *device, struct node **ret) {
    if (graph_find(graph, name))
        return status_invalid("Node '%s' is not unique", name);
    struct node *node = graph_new_node(graph, span_of(name), from->op, span_of(device),
                                       from->n_attrs + from->op->n_attrs);
    struct status *st = NULL;
    for (int i = 0; i < from->n_attrs && !st; i++) {
        node->attrs[i].name = from->attrs[i].name;
        st = substitute(graph, body, attrs, &from->attrs[i].value, &node->attrs[i].value);
        node->n_attrs += !st;
    }
    if (st)
        return status_suffix_take(st, "\n\t [[{{node %s}}]]", name);
    node_fill_defaults(graph, node);
    *ret = node;
    return NULL;
}

struct status *function_arg_count(const struct function_body *body,
                                  const struct op_arg_signature *arg,
                                  const struct function_attrs *attrs, int *ret_n) {
    const char *counter = arg->number_attr ? arg->number_attr : arg->type_list_attr;
    *ret_n = 1;
    if (!counter)
        return NULL;
    const struct attr_value *value = find_attr(body, attrs, counter);
    bool is_list = !arg->number_attr,
         is_sound = value && !value->is_placeholder &&
                    value->type == (is_list ? ATTR_LIST_TYPE : ATTR_INT);
    int64_t n = !is_sound ? -1 : is_list ? value->list.n_values : value->i;
    if (n < 0 || n > NODE_MAX_ARGS)
        return status_invalid("Function '%s' is called without an attr '%s' that says how many "
                              "tensors '%s' stands for",
                              body->name, counter, arg->name);
    *ret_n = (int)n;
    return NULL;
}

struct status *function_arg_type(const struct function_body *body,
                                 const struct op_arg_signature *arg,
                                 const struct function_attrs *attrs, int i, enum dtype *ret) {
    *ret = arg->type;
    if (!arg->type_attr && !arg->type_list_attr)
        return NULL;
    const char *name = arg->type_attr ? arg->type_attr : arg->type_list_attr;
    const struct attr_value *value = find_attr(body, attrs, name);
    if (value && !value->is_placeholder && value->type == ATTR_LIST_TYPE &&
        i < value->list.n_values)
        *ret = value->list.values[i].dtype;
    else if (value && !value->is_placeholder && value->type == ATTR_TYPE)
        *ret = value->dtype;
    else
        return status_invalid(
            "Function '%s' is called without an attr '%s' that says the type of '%s'", body->name,
            name, arg->name);
    return NULL;
}
