/* Checks types: the attrs of a node against the signature of its op, the types of inputs and
 * outputs that follow, and each edge against the output type of its producer. Messages have
 * TensorFlow's key words, which client code and people search for. */
#include "common/graph/graph_internal.h"

#include "common/tensor/text.h"

/* ---- words for messages ---- */

static void print_arg(const struct op_arg_signature *arg, struct str *out) {
    str_addf(out, "%s:", arg->name);
    if (arg->number_attr)
        str_addf(out, "%s*", arg->number_attr);
    const char *type = arg->type_list_attr ? arg->type_list_attr
                       : arg->type_attr    ? arg->type_attr
                                           : dtype_name(arg->type);
    str_addf(out, arg->is_ref ? "Ref(%s)" : "%s", type);
}

void op_signature_print(const struct op_signature *op, struct str *out) {
    str_addf(out, "Op<name=%s; signature=", op->name);
    for (int i = 0; i < op->n_inputs; i++) {
        str_add(out, i > 0 ? ", " : "");
        print_arg(&op->inputs[i], out);
    }
    str_add(out, " -> ");
    for (int i = 0; i < op->n_outputs; i++) {
        str_add(out, i > 0 ? ", " : "");
        print_arg(&op->outputs[i], out);
    }
    for (int i = 0; i < op->n_attrs; i++)
        str_addf(out, "; attr=%s:%s", op->attrs[i].name, attr_type_name(op->attrs[i].type));
    str_add_char(out, '>');
}

static COLD struct status *attr_missing(const struct node *node, const char *name) {
    struct str op = STR_INIT;
    op_signature_print(node->op, &op);
    struct status *st = status_invalid("NodeDef missing attr '%s' from %s; NodeDef: {{node %s}}",
                                       name, str_text(&op), node->name);
    str_fini(&op);
    return st;
}

/* Consumes `what`. */
static COLD struct status *attr_refused(const struct node *node, struct str *what) {
    struct str op = STR_INIT;
    op_signature_print(node->op, &op);
    struct status *st = status_invalid("%s\n\t; NodeDef: {{node %s}}; %s", str_text(what),
                                       node->name, str_text(&op));
    str_fini(&op);
    str_fini(what);
    return st;
}

static COLD struct status *attr_has_wrong_kind(const struct node *node,
                                               const struct op_attr_signature *attr,
                                               const struct attr_value *value) {
    struct str what = STR_INIT;
    str_addf(&what, "AttrValue had value with %s'%s' when '%s' expected\n\t for attr '%s'",
             value->is_placeholder ? "unexpected type " : "type ",
             value->is_placeholder ? "placeholder" : attr_type_name(value->type),
             attr_type_name(attr->type), attr->name);
    return attr_refused(node, &what);
}

static COLD struct status *
attr_has_no_dtype(const struct node *node, const struct op_attr_signature *attr, enum dtype dtype) {
    struct str what = STR_INIT;
    if (dtype_is_ref(dtype))
        str_addf(&what, "AttrValue must not have reference type value of %s", dtype_name(dtype));
    else
        str_addf(&what, "AttrValue has invalid DataType enum: %d", (int)dtype);
    str_addf(&what, "\n\t for attr '%s'", attr->name);
    return attr_refused(node, &what);
}

static COLD struct status *attr_is_not_allowed(const struct node *node,
                                               const struct op_attr_signature *attr,
                                               const struct attr_value *value) {
    struct str what = STR_INIT;
    str_addf(&what, "Value for attr '%s' of ", attr->name);
    attr_value_print(value, &what);
    str_add(&what, " is not in the list of allowed values: ");
    const char *separator = "";
    for (int i = DT_FLOAT; value->type == ATTR_TYPE && i < DT_N_TYPES; i++)
        if (dtype_in((enum dtype)i, attr->allowed_types)) {
            str_addf(&what, "%s%s", separator, dtype_name((enum dtype)i));
            separator = ", ";
        }
    for (int i = 0; value->type == ATTR_STRING && i < attr->n_allowed_strings; i++) {
        str_add(&what, i > 0 ? ", " : "");
        text_add_quoted(&what, span_of(attr->allowed_strings[i]));
    }
    return attr_refused(node, &what);
}

static COLD struct status *attr_is_below_minimum(const struct node *node,
                                                 const struct op_attr_signature *attr,
                                                 int64_t value) {
    struct str what = STR_INIT;
    str_addf(&what, "%s for attr '%s' of %lld must be at least minimum %lld",
             attr_type_is_list(attr->type) ? "Length" : "Value", attr->name, (long long)value,
             (long long)attr->minimum);
    return attr_refused(node, &what);
}

/* ---- attrs ---- */

/* Checks one value, or one element of a list, whose type is right. */
static struct status *check_allowed(const struct node *node, const struct op_attr_signature *attr,
                                    const struct attr_value *value) {
    if (value->type == ATTR_TYPE) {
        if (unlikely(dtype_is_ref(value->dtype) || !dtype_is_known((int)value->dtype)))
            return attr_has_no_dtype(node, attr, value->dtype);
        if (unlikely(!op_attr_signature_allows_type(attr, value->dtype)))
            return attr_is_not_allowed(node, attr, value);
    } else if (value->type == ATTR_STRING && attr->n_allowed_strings > 0) {
        if (unlikely(!op_attr_signature_allows_string(attr, value->s.data, value->s.len)))
            return attr_is_not_allowed(node, attr, value);
    }
    return NULL;
}

static struct status *check_attr(const struct node *node, const struct op_attr_signature *attr) {
    const struct attr_value *value = node_attr(node, attr->name);
    if (unlikely(!value))
        return attr_missing(node, attr->name);
    if (unlikely(value->type != attr->type || value->is_placeholder))
        return attr_has_wrong_kind(node, attr, value);
    if (!attr_type_is_list(attr->type)) {
        if (attr->has_minimum && unlikely(value->i < attr->minimum))
            return attr_is_below_minimum(node, attr, value->i);
        return check_allowed(node, attr, value);
    }
    if (attr->has_minimum && unlikely(value->list.n_values < attr->minimum))
        return attr_is_below_minimum(node, attr, value->list.n_values);
    for (int i = 0; i < value->list.n_values; i++)
        TRY(check_allowed(node, attr, &value->list.values[i]));
    return NULL;
}

/* ---- arguments ---- */

struct status *node_count_arg(const struct node *node, const struct op_arg_signature *arg,
                              int64_t *ret_n) {
    *ret_n = 1;
    if (arg->number_attr) {
        TRY(node_get_i(node, arg->number_attr, ret_n));
        if (unlikely(*ret_n < 0))
            return status_invalid("Value for number_attr() %lld < 0\n\t [[{{node %s}}]]",
                                  (long long)*ret_n, node->name);
    } else if (arg->type_list_attr) {
        const struct attr_value *values;
        int n;
        TRY(node_get_list(node, arg->type_list_attr, &values, &n));
        *ret_n = n;
    }
    return NULL;
}

static struct status *count_args(const struct node *node, const struct op_arg_signature *args,
                                 int n_args, int *ret_n) {
    int64_t total = 0;
    for (int i = 0; i < n_args; i++) {
        int64_t n;
        TRY(node_count_arg(node, &args[i], &n));
        if (unlikely(n > NODE_MAX_ARGS || (total += n) > NODE_MAX_ARGS))
            return status_invalid(
                "Node '%s' (op %s) would have more than %d inputs or outputs\n\t [[{{node %s}}]]",
                node->name, node->op_name, NODE_MAX_ARGS, node->name);
    }
    *ret_n = (int)total;
    return NULL;
}

static struct status *fill_types(const struct node *node, const struct op_arg_signature *args,
                                 int n_args, uint8_t *types) {
    for (int i = 0; i < n_args; i++) {
        const struct op_arg_signature *arg = &args[i];
        int ref_offset = arg->is_ref ? DT_REF_OFFSET : 0;
        if (arg->type_list_attr) {
            const struct attr_value *values;
            int n;
            TRY(node_get_list(node, arg->type_list_attr, &values, &n));
            for (int k = 0; k < n; k++)
                *types++ = (uint8_t)((int)values[k].dtype + ref_offset);
            continue;
        }
        int64_t n;
        enum dtype dtype = arg->type;
        TRY(node_count_arg(node, arg, &n));
        if (arg->type_attr)
            TRY(node_get_type(node, arg->type_attr, &dtype));
        memset(types, (int)dtype + ref_offset, (size_t)n);
        types += n;
    }
    return NULL;
}

struct status *node_work_out_types(struct graph *graph, struct node *node) {
    const struct op_signature *op = node->op;
    for (int i = 0; i < op->n_attrs; i++)
        TRY(check_attr(node, &op->attrs[i]));
    int n_in, n_out;
    TRY(count_args(node, op->inputs, op->n_inputs, &n_in));
    TRY(count_args(node, op->outputs, op->n_outputs, &n_out));
    /* Allocates a byte more, so that in_types is never NULL once the types are known. The number of
     * inputs is checked with the edges. */
    uint8_t *types = arena_alloc(&graph->arena, (size_t)n_in + (size_t)n_out + 1);
    TRY(fill_types(node, op->inputs, op->n_inputs, types));
    TRY(fill_types(node, op->outputs, op->n_outputs, types + n_in));
    node->in_types = types;
    node->out_types = types + n_in;
    node->n_outputs = n_out;
    return NULL;
}

struct status *node_find_output(const struct node *node, struct span arg, int *ret_first,
                                int *ret_n) {
    int64_t first = 0, n;
    for (int i = 0; i < node->op->n_outputs; i++) {
        TRY(node_count_arg(node, &node->op->outputs[i], &n));
        if (n > NODE_MAX_ARGS)
            break;
        if (span_is(arg, node->op->outputs[i].name)) {
            *ret_first = (int)first;
            *ret_n = (int)n;
            return NULL;
        }
        first += n;
    }
    return status_invalid("Node '%s' (op %s) has no output '%.*s'", node->name, node->op_name,
                          (int)MIN(arg.len, (size_t)256), arg.data);
}

/* ---- edges ---- */

static COLD struct status *wrong_number_of_inputs(const struct node *node, int n_expected) {
    enum { MAX_SHOWN = 32 };
    struct str expected = STR_INIT, op = STR_INIT;
    for (int i = 0; i < n_expected && i < MAX_SHOWN; i++)
        str_addf(&expected, "%s%s", i > 0 ? ", " : "", dtype_name((enum dtype)node->in_types[i]));
    if (n_expected > MAX_SHOWN)
        str_addf(&expected, ", … (%d)", n_expected);
    op_signature_print(node->op, &op);
    struct status *st = status_invalid(
        "NodeDef expected inputs '%s' do not match %d inputs specified; %s; NodeDef: {{node %s}}",
        str_text(&expected), node->n_data, str_text(&op), node->name);
    str_fini(&expected);
    str_fini(&op);
    return st;
}

static struct status *check_edge(struct graph *graph, struct node *node, int position) {
    const struct node_input *input = &node->inputs[position];
    if (!input->src->out_types)
        TRY(node_work_out_types(
            /* a back edge of a loop: its producer is finished after this node */
            graph, input->src));
    if (unlikely(input->index >= input->src->n_outputs))
        return status_invalid(
            "Node '%s': Connecting to invalid output %d of source node %s which has %d outputs.",
            node->name, input->index, input->src->name, input->src->n_outputs);
    int expected = node->in_types[position], given = input->src->out_types[input->index];
    if (likely(given == expected) || given == expected + DT_REF_OFFSET)
        return NULL;
    return status_invalid(
        "Input %d of node %s was passed %s from %s:%d incompatible with expected %s.", position,
        node->name, dtype_name((enum dtype)given), input->src->name, input->index,
        dtype_name((enum dtype)expected));
}

struct status *node_check_edges(struct graph *graph, struct node *node) {
    int n_expected = (int)(node->out_types - node->in_types);
    if (unlikely(n_expected != node->n_data))
        return wrong_number_of_inputs(node, n_expected);
    for (int i = 0; i < node->n_data; i++)
        TRY(check_edge(graph, node, i));
    return NULL;
}

struct status *node_finish(struct graph *graph, struct node *node) {
    TRY(node_work_out_types(graph, node));
    return node_check_edges(graph, node);
}
