/* Prints and reads graphs as text. The reader makes all nodes first, then the edges, then checks
 * them, so that a line may name a node that comes later. */
#include "common/graph/graph_text.h"

#include <stdlib.h>

#include "common/graph/graph_internal.h"
#include "common/tensor/text.h"

/* ---- printing ---- */

static bool is_default(const struct graph_op *info, const struct attr *attr) {
    int at;
    return attrs_find(info->defaults, info->n_defaults, attr->name, &at) &&
           attr_value_equal(&info->defaults[at].value, &attr->value);
}

static void print_inputs(const struct node *node, struct str *out) {
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node_input *input = &node->inputs[i];
        str_addf(out, "%s%s%s", i > 0 ? ", " : "", input->index == CONTROL_EDGE ? "^" : "",
                 input->src->name);
        if (input->index > 0)
            str_addf(out, ":%d", input->index);
    }
}

static void print_attrs(const struct graph *graph, const struct node *node, struct str *out) {
    const struct graph_op *info = u64map_get(&graph->ops, (uint64_t)(uintptr_t)node->op);
    const struct graph_op none = {0};
    const char *separator = " {";
    for (int i = 0; i < node->n_attrs; i++) {
        if (is_default(info ? info : &none, &node->attrs[i]))
            continue;
        str_addf(out, "%s%s=", separator, node->attrs[i].name);
        attr_value_print(&node->attrs[i].value, out);
        separator = ", ";
    }
    if (separator[0] == ',')
        str_add_char(out, '}');
}

void graph_print(const struct graph *graph, struct str *out) {
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        if (node->is_removed)
            continue;
        str_addf(out, "%s = %s(", node->name, node->op_name);
        print_inputs(node, out);
        str_add_char(out, ')');
        print_attrs(graph, node, out);
        if (node->device[0])
            str_addf(out, " @%s", node->device);
        if (node->placed >= 0)
            str_addf(out, " -> %d", node->placed);
        str_add_char(out, '\n');
    }
}

/* ---- reading: attr values ---- */

static struct status *parse_value(struct graph *graph, struct span *in, enum attr_type type,
                                  int depth, struct attr_value *ret);

struct status *text_wanted(const char *wanted, struct span at) {
    return status_invalid("%s is wanted at '%.*s'", wanted, (int)MIN(at.len, (size_t)40), at.data);
}

static char peek(struct span in) {
    text_skip_blanks(&in);
    return in.len > 0 ? *in.data : '\0';
}

/* The type of a value whose attr is in no signature, from the way it is written. */
static enum attr_type guess_type(struct span in) {
    text_skip_blanks(&in);
    char c = peek(in);
    if (c == '"' || c == '$' || c == '\0')
        return ATTR_STRING;
    if (c == '&')
        return ATTR_FUNC;
    if (c == '<')
        return ATTR_SHAPE;
    if (c == '[') {
        const char *end = memchr(in.data, ']', in.len), *unknown = memchr(in.data, '?', in.len),
                   *inner = memchr(in.data + 1, '[', in.len - 1);
        if (unknown && end && unknown < end && !(inner && inner < unknown))
            return ATTR_SHAPE;
        in.data++;
        in.len--;
        if (peek(in) == ']')
            return ATTR_LIST_STRING;
        return (enum attr_type)(ATTR_LIST | (peek(in) == '[' ? ATTR_SHAPE : guess_type(in)));
    }
    struct span word = text_take_word(&in, "_+-.");
    if (span_is(word, "true") || span_is(word, "false"))
        return ATTR_BOOL;
    if (dtype_parse(word) != DT_INVALID)
        return peek(in) == '[' ? ATTR_TENSOR : ATTR_TYPE;
    for (size_t i = 0; i < word.len; i++)
        if (strchr(".ein", word.data[i]))
            return ATTR_FLOAT;
    return ATTR_INT;
}

static struct status *parse_func(struct graph *graph, struct span *in, int depth,
                                 struct attr_value *ret) {
    enum { MAX_FUNC_ATTRS = 64 };
    if (!text_take(in, "&"))
        return text_wanted("A function, such as &name", *in);
    struct attr attrs[MAX_FUNC_ATTRS];
    int n_attrs = 0;
    struct span name = text_take_word(in, "_>./-");
    if (text_take(in, "{"))
        while (!text_take(in, "}")) {
            if (n_attrs == MAX_FUNC_ATTRS || (n_attrs > 0 && !text_take(in, ",")))
                return text_wanted("',' or '}'", *in);
            struct span key = text_take_word(in, "_");
            if (!text_take(in, "="))
                return text_wanted("'='", *in);
            attrs[n_attrs].name = arena_strndup(&graph->arena, key.data, key.len);
            TRY(parse_value(graph, in, guess_type(*in), depth + 1, &attrs[n_attrs].value));
            n_attrs++;
        }
    ret->func = arena_new(&graph->arena, struct attr_func);
    ret->func->name = arena_strndup(&graph->arena, name.data, name.len);
    ret->func->n_attrs = attrs_sort(attrs, n_attrs);
    ret->func->attrs = arena_memdup(&graph->arena, attrs, (size_t)n_attrs * sizeof(attrs[0]));
    return NULL;
}

static struct status *parse_list(struct graph *graph, struct span *in, enum attr_type element,
                                 int depth, struct attr_value *ret) {
    if (!text_take(in, "["))
        return text_wanted("A list", *in);
    struct attr_value *values = NULL;
    int n = 0, capacity = 0;
    struct status *st = NULL;
    while (!st && !text_take(in, "]")) {
        if (n > 0 && !text_take(in, ",")) {
            st = text_wanted("',' or ']'", *in);
            break;
        }
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            values = xreallocarray(values, (size_t)capacity, sizeof(values[0]));
        }
        st = parse_value(graph, in, element, depth + 1, &values[n]);
        n += !st;
    }
    if (!st) {
        ret->list.values =
            n > 0 ? arena_memdup(&graph->arena, values, (size_t)n * sizeof(values[0])) : NULL;
        ret->list.n_values = n;
    }
    free(values);
    return st;
}

static struct status *parse_string(struct graph *graph, struct span *in, struct attr_value *ret) {
    struct str text = STR_INIT;
    bool is_good = text_take_quoted(in, &text);
    ret->s = (struct span){arena_strndup(&graph->arena, str_text(&text), text.len), text.len};
    str_fini(&text);
    return is_good ? NULL : text_wanted("A string in double quotes", *in);
}

static struct status *parse_tensor(struct graph *graph, struct span *in, struct attr_value *ret) {
    ret->tensor = arena_alloc_aligned(&graph->arena, sizeof(*ret->tensor), _Alignof(struct tensor));
    *ret->tensor = TENSOR_INIT;
    TRY(tensor_parse(in, allocator_host(), ret->tensor));
    graph_own_tensors(graph, ret);
    return NULL;
}

static struct status *parse_plain(struct span *in, struct attr_value *ret) {
    double real;
    switch (ret->type) {
    case ATTR_INT:
        return text_take_int(in, &ret->i) ? NULL : text_wanted("An int", *in);
    case ATTR_FLOAT:
        if (!text_take_double(in, &real))
            return text_wanted("A float", *in);
        ret->f = (float)real;
        return NULL;
    case ATTR_BOOL:
        ret->b = text_take(in, "true");
        return ret->b || text_take(in, "false") ? NULL : text_wanted("true or false", *in);
    default:
        ret->dtype = dtype_parse(text_take_word(in, "_"));
        return ret->dtype != DT_INVALID ? NULL : text_wanted("A type, such as float", *in);
    }
}

static struct status *parse_value(struct graph *graph, struct span *in, enum attr_type type,
                                  int depth, struct attr_value *ret) {
    enum { MAX_DEPTH = 32 };
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
    if (depth > MAX_DEPTH)
        return status_invalid("Attrs nest too deep");
    *ret = (struct attr_value){.type = type};
    if (text_take(in, "$")) {
        struct span name = text_take_word(in, "_");
        ret->is_placeholder = true;
        ret->placeholder = arena_strndup(&graph->arena, name.data, name.len);
        return NULL;
    }
    if (attr_type_is_list(type))
        return parse_list(graph, in, attr_type_element(type), depth, ret);
    switch (type) {
    case ATTR_STRING:
        return parse_string(graph, in, ret);
    case ATTR_SHAPE:
        if (!text_take_shape(in, dims, &rank))
            return text_wanted("A shape, such as [2,?] or <unknown>", *in);
        ret->shape = shape_dup((struct shape){rank, dims}, &graph->arena);
        return NULL;
    case ATTR_TENSOR:
        return parse_tensor(graph, in, ret);
    case ATTR_FUNC:
        return parse_func(graph, in, depth, ret);
    default:
        return parse_plain(in, ret);
    }
}

struct status *text_take_attr(struct graph *graph, const struct op_signature *op, struct span *in,
                              struct attr *ret) {
    struct span key = text_take_word(in, "_.-");
    if (!text_take(in, "="))
        return text_wanted("'='", *in);
    const struct op_attr_signature *known = op_signature_attr_n(op, key.data, key.len);
    ret->name = known ? known->name : arena_strndup(&graph->arena, key.data, key.len);
    return parse_value(graph, in, known ? known->type : guess_type(*in), 0, &ret->value);
}

static struct status *parse_attrs(struct graph *graph, struct node *node, struct span *in) {
    if (!text_take(in, "{"))
        return NULL;
    for (int n = 0; !text_take(in, "}"); n++) {
        struct attr attr;
        if (n > 0 && !text_take(in, ","))
            return text_wanted("',' or '}'", *in);
        TRY(text_take_attr(graph, node->op, in, &attr));
        node_set_attr(graph, node, attr.name, &attr.value);
    }
    return NULL;
}

/* ---- reading: lines ---- */

struct line {
    struct node *node;
    struct span inputs; /* between the parentheses */
    int number;
};

/* Reads to the next blank. */
struct span text_take_to_blank(struct span *in) {
    struct span word = {in->data, 0};
    while (word.len < in->len && in->data[word.len] != ' ' && in->data[word.len] != '\t')
        word.len++;
    in->data += word.len;
    in->len -= word.len;
    return word;
}

static struct status *parse_line(struct graph *graph, struct span in, struct line *line) {
    struct span name = text_take_word(&in, "_>./-");
    if (!text_take(&in, "="))
        return text_wanted("name = Op(inputs)", in);
    struct span op = text_take_word(&in, "_>");
    const char *close = in.len > 0 ? memchr(in.data, ')', in.len) : NULL;
    if (!text_take(&in, "(") || !close)
        return text_wanted("(inputs)", in);
    line->inputs = (struct span){in.data, (size_t)(close - in.data)};
    in = (struct span){close + 1, (size_t)(in.data + in.len - close - 1)};
    TRY(graph_add_node(graph, arena_strndup(&graph->arena, name.data, name.len),
                       arena_strndup(&graph->arena, op.data, op.len), "", &line->node));
    TRY(parse_attrs(graph, line->node, &in));
    if (text_take(&in, "@")) {
        struct span device = text_take_to_blank(&in);
        line->node->device = arena_strndup(&graph->arena, device.data, device.len);
    }
    int64_t placed;
    if (text_take(&in, "->")) {
        if (!text_take_int(&in, &placed) || placed < 0 || placed > INT32_MAX)
            return text_wanted("The number of a device", in);
        line->node->placed = (int)placed;
    }
    text_skip_blanks(&in);
    return in.len == 0 || *in.data == '#' || *in.data == '\r'
               ? NULL
               : text_wanted("The end of the line", in);
}

static struct status *parse_inputs(struct graph *graph, struct line *line) {
    struct span in = line->inputs;
    for (int n = 0; text_skip_blanks(&in), in.len > 0; n++) {
        if (n > 0 && !text_take(&in, ","))
            return text_wanted("','", in);
        struct span text = text_take_word(&in, "_>./-^:"), name;
        int index;
        if (!endpoint_parse(text, &name, &index))
            return text_wanted("An input, such as a, a:1 or ^a", in);
        struct node *src = graph_find_span(graph, name);
        if (!src)
            return status_invalid("Node '%s': Unknown input node '%.*s'", line->node->name,
                                  (int)text.len, text.data);
        if (index == CONTROL_EDGE)
            node_add_control(graph, line->node, src);
        else if (line->node->n_data < line->node->n_inputs)
            return status_invalid(
                "All control inputs must follow all data inputs\n\t [[{{node %s}}]]",
                line->node->name);
        else
            node_add_input(graph, line->node, src, index);
    }
    return NULL;
}

/* A line that begins with the word "function" begins a function: after the name of a node comes "
 * =". */
static bool is_function(struct span in) {
    return span_is(text_take_word(&in, "_>./-"), "function") && peek(in) != '=';
}

static struct status *parse_lines(struct graph *graph, const char *text, struct line **lines,
                                  int *n_lines, int *ret_number) {
    int capacity = 0;
    for (int number = 1; *text; number++) {
        const char *end = strchrnul(text, '\n');
        struct span in = {text, (size_t)(end - text)};
        text = *end ? end + 1 : end;
        *ret_number = number;
        char c = peek(in);
        if (c == '\0' || c == '#' || c == '\r')
            continue;
        if (is_function(in)) {
            TRY(function_parse(graph, in, &text, ret_number));
            number = *ret_number;
            continue;
        }
        if (*n_lines == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            *lines = xreallocarray(*lines, (size_t)capacity, sizeof((*lines)[0]));
        }
        struct line *line = &(*lines)[*n_lines];
        line->number = number;
        TRY(parse_line(graph, in, line));
        ++*n_lines;
    }
    return NULL;
}

struct status *graph_parse(const char *text, struct graph *graph) {
    int n_before = graph->n_nodes, n_lines = 0, number = 0;
    struct line *lines = NULL;
    struct status *st = parse_lines(graph, text, &lines, &n_lines, &number);
    for (int i = 0; i < n_lines && !st; i++) {
        number = lines[i].number;
        st = parse_inputs(graph, &lines[i]);
    }
    for (int i = 0; i < n_lines && !st; i++) {
        number = lines[i].number;
        st = node_work_out_types(graph, lines[i].node);
    }
    for (int i = 0; i < n_lines && !st; i++) {
        number = lines[i].number;
        st = node_check_edges(graph, lines[i].node);
    }
    st = status_prefix_take(st, "line %d: ", number);
    if (!st)
        st = graph_order_from(graph, n_before, NULL);
    if (st)
        graph_drop_newest(graph, n_before);
    free(lines);
    return st;
}
