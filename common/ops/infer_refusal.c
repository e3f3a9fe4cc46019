/* Adds to the error of a shape function what TensorFlow's client libraries add:
 *
 *   Dimensions must be equal, but are 4 and 3 for '{{node m}} = MatMul[T=DT_FLOAT,
 * transpose_a=false](a, b:1, ^c)' with input shapes: [3,4], ?.
 *        [[{{node m}}]] */
#include <ctype.h>

#include "common/ops/infer_internal.h"

enum { MAX_SHOWN = 64 }; /* inputs or attrs */

static void add_dtype(enum dtype dtype, struct str *out) {
    str_add(out, "DT_");
    for (const char *name = dtype_name(dtype); *name; name++)
        str_add_char(out, (char)toupper((unsigned char)*name));
}

static void add_attr_value(const struct attr_value *value, struct str *out) {
    if (value->type == ATTR_TYPE && !value->is_placeholder) {
        add_dtype(value->dtype, out);
    } else if (value->type == ATTR_LIST_TYPE && !value->is_placeholder) {
        str_add_char(out, '[');
        for (int i = 0; i < MIN(value->list.n_values, (int)MAX_SHOWN); i++) {
            str_add(out, i > 0 ? ", " : "");
            add_dtype(value->list.values[i].dtype, out);
        }
        str_add_char(out, ']');
    } else {
        attr_value_print(value, out);
    }
}

static void add_node(const struct node *node, struct str *out) {
    str_addf(out, "{{node %s}} = %s[", node->name, node->op_name);
    for (int i = 0; i < MIN(node->n_attrs, (int)MAX_SHOWN); i++) {
        str_addf(out, "%s%s=", i > 0 ? ", " : "", node->attrs[i].name);
        add_attr_value(&node->attrs[i].value, out);
    }
    if (node->device[0])
        str_addf(out, "%s_device=\"%s\"", node->n_attrs > 0 ? ", " : "", node->device);
    str_add(out, "](");
    for (int i = 0; i < MIN(node->n_inputs, (int)MAX_SHOWN); i++) {
        const struct node_input *input = &node->inputs[i];
        str_addf(out, "%s%s%s", i > 0 ? ", " : "", input->index == CONTROL_EDGE ? "^" : "",
                 input->src->name);
        if (input->index > 0)
            str_addf(out, ":%d", input->index);
    }
    str_add(out, node->n_inputs > MAX_SHOWN ? ", ...)" : ")");
}

static void add_shape(struct shape shape, struct str *out) {
    if (shape.rank < 0)
        str_add_char(out, '?');
    else
        shape_print(shape, out);
}

struct status *infer_refusal_take(struct status *st, const struct node *node,
                                  const struct infer_inputs *in) {
    struct str text = STR_INIT;
    str_add(&text, " for '");
    add_node(node, &text);
    str_add(&text, "' with input shapes: ");
    for (int i = 0; i < MIN(node->n_data, (int)MAX_SHOWN); i++) {
        str_add(&text, i > 0 ? ", " : "");
        add_shape(in->shapes[i], &text);
    }
    st = status_suffix_take(st, "%s.\n\t [[{{node %s}}]]", str_text(&text), node->name);
    str_fini(&text);
    return st;
}
