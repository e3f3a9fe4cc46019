/* Keeps the function library. FunctionDefs stay serialized, for the inliner. Their signatures are
 * read here: nodes that call a function by its name need them. */
#include "common/graph/graph_internal.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

/* ---- signatures, from an OpDef ---- */

static const char *copy_text(struct graph *graph, struct span text) {
    return text.len > 0 ? arena_strndup(&graph->arena, text.data, text.len) : NULL;
}

void op_arg_read(struct graph *graph, struct span proto, struct op_arg_signature *arg) {
    struct proto_field field;
    arg->name = "";
    while (proto_next(&proto, &field) > 0) {
        if (proto_field_is(&field, 1, 2))
            arg->name = arena_strndup(&graph->arena, field.bytes.data, field.bytes.len);
        else if (proto_field_is(&field, 3, 0))
            arg->type = field.value < DT_N_TYPES ? (enum dtype)field.value : DT_INVALID;
        else if (proto_field_is(&field, 4, 2))
            arg->type_attr = copy_text(graph, field.bytes);
        else if (proto_field_is(&field, 5, 2))
            arg->number_attr = copy_text(graph, field.bytes);
        else if (proto_field_is(&field, 6, 2))
            arg->type_list_attr = copy_text(graph, field.bytes);
        else if (proto_field_is(&field, 16, 0))
            arg->is_ref = field.value != 0;
    }
}

bool attr_type_parse(struct span text, enum attr_type *ret) {
    for (int type = ATTR_STRING; type <= ATTR_LIST_FUNC; type++)
        if (span_is(text, attr_type_name((enum attr_type)type))) {
            *ret = (enum attr_type)type;
            return true;
        }
    return false;
}

/* Reads a default of a simple type. Other defaults are left out: a node must give those attrs. */
static bool default_from_value(struct graph *graph, const struct attr_value *value,
                               struct op_attr_default *ret) {
    *ret = (struct op_attr_default){0};
    if (value->is_placeholder)
        return false;
    if (attr_type_is_list(value->type)) {
        struct op_attr_default *list =
            arena_array(&graph->arena, struct op_attr_default, value->list.n_values);
        for (int i = 0; i < value->list.n_values; i++)
            if (!default_from_value(graph, &value->list.values[i], &list[i]))
                return false;
        ret->n = value->list.n_values;
        ret->list = list;
        return true;
    }
    switch (value->type) {
    case ATTR_STRING:
        ret->n = (int32_t)MIN(value->s.len, (size_t)INT32_MAX);
        ret->s = value->s.data;
        return true;
    case ATTR_INT:
        ret->i = value->i;
        return true;
    case ATTR_FLOAT:
        ret->f = value->f;
        return true;
    case ATTR_BOOL:
        ret->b = value->b;
        return true;
    case ATTR_TYPE:
        ret->type = value->dtype;
        return true;
    case ATTR_SHAPE:
        ret->n = value->shape.rank;
        ret->dims = value->shape.dims;
        return true;
    default:
        return false;
    }
}

/* False when the type of the attr is unknown. */
static bool read_attr(struct attr_reader *reader, struct span proto,
                      struct op_attr_signature *attr) {
    struct proto_field field;
    struct span default_proto = {NULL, 0};
    bool has_type = false;
    attr->name = "";
    while (proto_next(&proto, &field) > 0) {
        if (proto_field_is(&field, 1, 2)) {
            attr->name = arena_strndup(&reader->graph->arena, field.bytes.data, field.bytes.len);
        } else if (proto_field_is(&field, 2, 2)) {
            has_type = attr_type_parse(field.bytes, &attr->type);
        } else if (proto_field_is(&field, 3, 2)) {
            default_proto = field.bytes;
        } else if (proto_field_is(&field, 5, 0)) {
            attr->has_minimum = field.value != 0;
        } else if (proto_field_is(&field, 6, 0)) {
            attr->minimum = (int64_t)field.value;
        }
    }
    attr->has_minimum =
        attr->has_minimum && (attr->type == ATTR_INT || attr_type_is_list(attr->type));
    struct attr_value value;
    bool is_set = false;
    struct status *st =
        default_proto.data ? attr_read(reader, default_proto, attr, 0, &value, &is_set) : NULL;
    if (!st && is_set && value.type == attr->type) {
        struct op_attr_default *def = arena_new(&reader->graph->arena, struct op_attr_default);
        attr->has_default = default_from_value(reader->graph, &value, def);
        attr->default_value = attr->has_default ? def : NULL;
    }
    status_unref(st);
    return has_type;
}

/* Checks that arguments refer to attrs that exist and have the right type: node_check.c relies on
 * it. */
static bool arg_is_sound(const struct op_signature *op, const struct op_arg_signature *arg) {
    const struct op_attr_signature *type =
        arg->type_attr ? op_signature_attr(op, arg->type_attr) : NULL;
    const struct op_attr_signature *list =
        arg->type_list_attr ? op_signature_attr(op, arg->type_list_attr) : NULL;
    const struct op_attr_signature *number =
        arg->number_attr ? op_signature_attr(op, arg->number_attr) : NULL;
    if (arg->type_attr)
        return type && type->type == ATTR_TYPE && !arg->type_list_attr &&
               (!arg->number_attr || (number && number->type == ATTR_INT));
    if (arg->type_list_attr)
        return list && list->type == ATTR_LIST_TYPE && !arg->number_attr;
    return dtype_is_known((int)arg->type) &&
           (!arg->number_attr || (number && number->type == ATTR_INT));
}

static struct span find_op_def(struct span functiondef) {
    struct proto_field field;
    struct span op_def = {NULL, 0};
    while (proto_next(&functiondef, &field) > 0)
        if (proto_field_is(&field, 1, 2))
            op_def = field.bytes;
    return op_def;
}

/* The signature of a node that calls the function, from its definition. NULL: the function cannot
 * be called by its name. */
static const struct op_signature *function_signature_new(struct graph *graph,
                                                         struct span functiondef) {
    struct span op_def = find_op_def(functiondef);
    struct proto_field field;
    int n_inputs = 0, n_outputs = 0, n_attrs = 0;
    for (struct span in = op_def; proto_next(&in, &field) > 0;) {
        n_inputs += proto_field_is(&field, 2, 2);
        n_outputs += proto_field_is(&field, 3, 2);
        n_attrs += proto_field_is(&field, 4, 2);
    }
    if (n_inputs > UINT8_MAX || n_outputs > UINT8_MAX || n_attrs > UINT8_MAX)
        return NULL; /* the counts in a signature are bytes */
    struct graph_limits limits;
    struct attr_reader reader;
    graph_limits_default(&limits);
    attr_reader_init(&reader, graph, &limits);
    struct op_arg_signature *inputs = arena_array(&graph->arena, struct op_arg_signature, n_inputs);
    struct op_arg_signature *outputs =
        arena_array(&graph->arena, struct op_arg_signature, n_outputs);
    struct op_attr_signature *attrs = arena_array(&graph->arena, struct op_attr_signature, n_attrs);
    struct op_signature *op = arena_new(&graph->arena, struct op_signature);
    op->inputs = inputs;
    op->outputs = outputs;
    op->attrs = attrs;
    op->name = "";
    bool is_sound = true;
    for (struct span in = op_def; proto_next(&in, &field) > 0;) {
        if (proto_field_is(&field, 1, 2))
            op->name = arena_strndup(&graph->arena, field.bytes.data, field.bytes.len);
        else if (proto_field_is(&field, 2, 2))
            op_arg_read(graph, field.bytes, &inputs[op->n_inputs++]);
        else if (proto_field_is(&field, 3, 2))
            op_arg_read(graph, field.bytes, &outputs[op->n_outputs++]);
        else if (proto_field_is(&field, 4, 2))
            is_sound = read_attr(&reader, field.bytes, &attrs[op->n_attrs++]) && is_sound;
        else if (proto_field_is(&field, 17, 0))
            op->is_stateful = field.value != 0;
    }
    attr_reader_fini(&reader);
    for (int i = 0; i < n_inputs; i++)
        is_sound = is_sound && arg_is_sound(op, &inputs[i]);
    for (int i = 0; i < n_outputs; i++)
        is_sound = is_sound && arg_is_sound(op, &outputs[i]);
    return is_sound ? op : NULL;
}

/* ---- the library ---- */

/* The messages inside a FunctionDef that contain map entries: their serialized order may differ
 * each time. */
enum message_kind {
    OTHER,
    FUNCTION_DEF,
    ARG_ATTRS_ENTRY,
    ARG_ATTRS,
    NODE_DEF,
    ATTR_ENTRY,
    ATTR_VALUE,
    LIST_VALUE,
    NAME_ATTR_LIST
};

static const struct part {
    enum message_kind whole;
    uint32_t number;
    enum message_kind kind;
    bool is_ordered;
} parts[] = {
    {FUNCTION_DEF, 3, NODE_DEF, false},
    {FUNCTION_DEF, 4, OTHER, false}, /* ret */
    {FUNCTION_DEF, 5, ATTR_ENTRY, false},
    {FUNCTION_DEF, 6, OTHER, false}, /* control_ret */
    /* resource_arg_unique_id */
    {FUNCTION_DEF, 7, ARG_ATTRS_ENTRY, false},
    {FUNCTION_DEF, 8, OTHER, false},
    {ARG_ATTRS_ENTRY, 2, ARG_ATTRS, true},
    {ARG_ATTRS, 1, ATTR_ENTRY, false},
    {NODE_DEF, 5, ATTR_ENTRY, false},
    {ATTR_ENTRY, 2, ATTR_VALUE, true},
    {ATTR_VALUE, 1, LIST_VALUE, true},
    {ATTR_VALUE, 10, NAME_ATTR_LIST, true},
    {LIST_VALUE, 9, NAME_ATTR_LIST, true},
    {NAME_ATTR_LIST, 2, ATTR_ENTRY, false},
};

static const struct part *part_find(enum message_kind whole, uint32_t number) {
    static const struct part other = {.kind = OTHER, .is_ordered = true};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (parts[i].whole == whole && parts[i].number == number)
            return &parts[i];
    return &other;
}

/* A field in canonical form: equal bytes mean equal contents. */
struct canonical_field {
    uint32_t number;
    bool is_ordered;
    size_t position; /* within the message */
    struct str content;
};

static int compare_fields(const void *a, const void *b) {
    const struct canonical_field *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    size_t len = MIN(x->content.len, y->content.len);
    int order = x->is_ordered ? 0 : memcmp(str_text(&x->content), str_text(&y->content), len);
    if (order == 0 && !x->is_ordered && x->content.len != y->content.len)
        return x->content.len < y->content.len ? -1 : 1;
    return order != 0 ? order : x->position < y->position ? -1 : 1;
}

static void add_number(struct str *out, uint64_t number) {
    str_add_bytes(out, &number, sizeof(number));
}

static void message_to_canonical(struct span message, enum message_kind kind, struct str *out);

static void field_to_canonical(const struct proto_field *field, const struct part *part,
                               struct str *out) {
    add_number(out, field->wire_type);
    if (field->wire_type != 2)
        add_number(out, field->value);
    else if (part->kind != OTHER)
        message_to_canonical(field->bytes, part->kind, out);
    else
        str_add_bytes(out, field->bytes.data, field->bytes.len);
}

/* Appends the message with its fields sorted: by number, and where the order of fields of one
 * number says nothing, by content. Each field has its length in front, so that two messages have
 * the same form only if they say the same. The depth of the message has been checked. */
static void message_to_canonical(struct span message, enum message_kind kind, struct str *out) {
    struct proto_field field;
    size_t n = 0, at = 0;
    for (struct span in = message; proto_next(&in, &field) > 0;)
        n++;
    struct canonical_field *fields = xcalloc(n + 1, sizeof(*fields));
    for (struct span in = message; at < n && proto_next(&in, &field) > 0; at++) {
        const struct part *part = part_find(kind, field.number);
        fields[at].number = field.number;
        fields[at].is_ordered = part->is_ordered;
        fields[at].position = at;
        field_to_canonical(&field, part, &fields[at].content);
    }
    qsort(fields, n, sizeof(*fields), compare_fields);
    for (size_t i = 0; i < n; i++) {
        add_number(out, fields[i].number);
        add_number(out, fields[i].content.len);
        str_add_bytes(out, fields[i].content.data, fields[i].content.len);
        str_fini(&fields[i].content);
    }
    free(fields);
}

/* Are the two equal, except perhaps for the order of fields of different numbers and of map
 * entries? */
static bool functions_are_equal(struct span a, struct span b) {
    if (a.len != b.len)
        return false;
    if (span_equal(a, b))
        return true;
    struct str x = STR_INIT, y = STR_INIT;
    message_to_canonical(a, FUNCTION_DEF, &x);
    message_to_canonical(b, FUNCTION_DEF, &y);
    bool same = span_equal((struct span){str_text(&x), x.len}, (struct span){str_text(&y), y.len});
    str_fini(&x);
    str_fini(&y);
    return same;
}

struct status *graph_new_function(struct graph *graph, struct span functiondef,
                                  const struct graph_limits *limits,
                                  struct graph_function **ret_added) {
    struct proto_field field;
    struct span op_def = find_op_def(functiondef), name = {NULL, 0};
    for (struct span in = op_def; proto_next(&in, &field) > 0;)
        if (proto_field_is(&field, 1, 2))
            name = field.bytes;
    if (proto_is_too_deep(functiondef, limits->max_depth))
        return status_invalid("Malformed FunctionDef '%.*s': its fields cannot be read, or nest "
                              "deeper than %d messages",
                              (int)MIN(name.len, (size_t)256), name.data ? name.data : "",
                              limits->max_depth);
    if (name.len == 0 || memchr(name.data, '\0', name.len))
        return status_invalid("Malformed FunctionDef: it has no name");
    const struct graph_function *there = strmap_get_span(&graph->functions, name);
    *ret_added = NULL;
    if (there && functions_are_equal(there->def, functiondef))
        return NULL;
    if (there)
        return status_invalid("Cannot add function '%s' because a different function with the same "
                              "name already exists.",
                              there->name);
    struct graph_function *function = arena_new(&graph->arena, struct graph_function);
    function->name = arena_strndup(&graph->arena, name.data, name.len);
    function->def = (struct span){arena_memdup(&graph->arena, functiondef.data, functiondef.len),
                                  functiondef.len};
    function->signature = function_signature_new(graph, function->def);
    strmap_put_span(&graph->functions, (struct span){function->name, name.len}, function);
    *ret_added = function;
    return NULL;
}

struct status *graph_add_function(struct graph *graph, struct span functiondef,
                                  const struct graph_limits *limits) {
    struct graph_function *added;
    return graph_new_function(graph, functiondef, limits, &added);
}
