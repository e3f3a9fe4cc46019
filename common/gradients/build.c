/* Adds the nodes of gradient formulas: attrs that follow from inputs, constants (build.h). */
#include "common/gradients/build.h"

#include "common/tensor/tensor.h"

/* ---- the op ---- */

struct node_input gradient_input(const struct gradient_ctx *g, int i) {
    return g->node->inputs[i];
}

struct node_input gradient_output(const struct gradient_ctx *g, int i) {
    return (struct node_input){(struct node *)(uintptr_t)g->node, i};
}

bool gradient_has(const struct gradient_ctx *g, int i) { return g->grad_out[i].src != NULL; }

struct node_input gradient_of(struct gradient_ctx *g, int i) {
    return gradient_has(g, i) ? g->grad_out[i] : ZEROS(OUT(i));
}

void gradient_set(struct gradient_ctx *g, int i, struct node_input value) {
    if (!g->status)
        g->grad_in[i] = value;
}

int64_t gradient_attr_i(struct gradient_ctx *g, const char *name) {
    int64_t value = 0;
    if (!g->status)
        g->status = node_get_i(g->node, name, &value);
    return value;
}

bool gradient_attr_b(struct gradient_ctx *g, const char *name) {
    bool value = false;
    if (!g->status)
        g->status = node_get_b(g->node, name, &value);
    return value;
}

enum dtype gradient_dtype(struct node_input value) {
    return value.src ? dtype_base((enum dtype)value.src->out_types[value.index]) : DT_INVALID;
}

/* ---- nodes ---- */

static void take_attrs(struct gradient_ctx *g, struct node *node) {
    for (int i = 0; i < node->op->n_attrs; i++) {
        const struct op_attr_signature *wanted = &node->op->attrs[i];
        const struct attr_value *value = node_attr(g->node, wanted->name);
        if (value && value->type == wanted->type)
            node_set_attr(g->graph, node, wanted->name, value);
    }
}

static void set_types(struct gradient_ctx *g, struct node *node, const char *attr, int n,
                      const struct node_input *inputs) {
    struct attr_value *values = arena_array(&g->graph->arena, struct attr_value, n + 1);
    for (int i = 0; i < n; i++)
        values[i] = (struct attr_value){.type = ATTR_TYPE, .dtype = gradient_dtype(inputs[i])};
    node_set_attr(g->graph, node, attr,
                  &(struct attr_value){.type = ATTR_LIST_TYPE, .list = {values, n}});
}

/* Sets types and counts from the inputs. Arguments that share a count share the inputs that single
 * arguments leave. */
static void infer_attrs(struct gradient_ctx *g, struct node *node, int n_inputs,
                        const struct node_input *inputs) {
    const struct op_signature *op = node->op;
    int n_runs = 0, at = 0;
    for (int i = 0; i < op->n_inputs; i++)
        n_runs += op->inputs[i].number_attr || op->inputs[i].type_list_attr;
    int run = n_runs > 0 ? (n_inputs - (op->n_inputs - n_runs)) / n_runs : 0;
    for (int i = 0; i < op->n_inputs; i++) {
        const struct op_arg_signature *arg = &op->inputs[i];
        int n = arg->number_attr || arg->type_list_attr ? run : 1;
        if (n < 0 || at + n > n_inputs)
            return; /* node_finish reports the error */
        if (arg->number_attr)
            node_set_attr_i(g->graph, node, arg->number_attr, n);
        if (arg->type_list_attr)
            set_types(g, node, arg->type_list_attr, n, &inputs[at]);
        else if (arg->type_attr && n > 0)
            node_set_attr_type(g->graph, node, arg->type_attr, gradient_dtype(inputs[at]));
        at += n;
    }
}

static void set_attrs(struct gradient_ctx *g, struct node *node,
                      const struct gradient_attr *attrs) {
    for (; attrs && attrs->name; attrs++) {
        if (attrs->type == ATTR_BOOL)
            node_set_attr_b(g->graph, node, attrs->name, attrs->b);
        else if (attrs->type == ATTR_INT)
            node_set_attr_i(g->graph, node, attrs->name, attrs->i);
        else if (attrs->type == ATTR_TYPE)
            node_set_attr_type(g->graph, node, attrs->name, attrs->dtype);
        else
            node_set_attr_s(g->graph, node, attrs->name, attrs->s);
    }
}

static struct status *new_node(struct gradient_ctx *g, const char *op, struct node **ret) {
    const char *name =
        graph_unique_name(g->graph, arena_printf(&g->graph->arena, "%s/%s", g->prefix, op));
    return graph_add_node(g->graph, name, op, g->node->device, ret);
}

static struct status *make_op(struct gradient_ctx *g, const char *op, bool is_like,
                              const struct gradient_attr *attrs, int n_inputs,
                              const struct node_input *inputs, struct node **ret) {
    TRY(new_node(g, op, ret));
    if (is_like)
        take_attrs(g, *ret);
    infer_attrs(g, *ret, n_inputs, inputs);
    set_attrs(g, *ret, attrs);
    for (int i = 0; i < n_inputs; i++)
        node_add_input(g->graph, *ret, inputs[i].src, inputs[i].index);
    TRY(node_finish(g->graph, *ret));
    if (n_inputs == 0 && g->entry)
        node_add_control(g->graph, *ret, g->entry);
    return NULL;
}

struct node_input gradient_op(struct gradient_ctx *g, const char *op, bool is_like,
                              const struct gradient_attr *attrs, int n_inputs,
                              const struct node_input *inputs) {
    struct node_input made = {NULL, 0};
    if (!g->status)
        g->status = make_op(g, op, is_like, attrs, n_inputs, inputs, &made.src);
    return g->status ? (struct node_input){NULL, 0} : made;
}

struct node_input gradient_op_of(struct gradient_ctx *g, const char *op, bool is_like,
                                 const struct gradient_attr *attrs,
                                 const struct node_input *inputs) {
    int n = 0;
    while (inputs[n].index != INT32_MIN)
        n++;
    return gradient_op(g, op, is_like, attrs, n, inputs);
}

struct node_input gradient_second(struct node_input value, int output) {
    return (struct node_input){value.src, output};
}

struct node_input gradient_switch(struct gradient_ctx *g, struct node_input value,
                                  struct node_input pred, int n_sides) {
    if (gradient_dtype(pred) == DT_BOOL)
        return OP("Switch", value, pred);
    return OP_WITH("_SwitchN", ATTRS(ATTR_I("num_outs", n_sides)), value, pred);
}

/* ---- constants ---- */

static struct status *make_constant(struct gradient_ctx *g, const struct tensor *value,
                                    struct node **ret) {
    TRY(new_node(g, "Const", ret));
    node_set_attr_type(g->graph, *ret, "dtype", (enum dtype)value->dtype);
    node_set_attr_tensor(g->graph, *ret, "value", value);
    TRY(node_finish(g->graph, *ret));
    if (g->entry)
        node_add_control(g->graph, *ret, g->entry);
    return NULL;
}

struct node_input gradient_constant(struct gradient_ctx *g, const struct tensor *value) {
    struct node_input made = {NULL, 0};
    if (!g->status)
        g->status = make_constant(g, value, &made.src);
    return g->status ? (struct node_input){NULL, 0} : made;
}

struct node_input gradient_number(struct gradient_ctx *g, struct node_input like, double value) {
    struct tensor scalar = TENSOR_INIT;
    tensor_init_scalar(&scalar, DT_DOUBLE, &value);
    return gradient_cast(g, gradient_constant(g, &scalar), gradient_dtype(like));
}

struct node_input gradient_i32(struct gradient_ctx *g, int32_t value) {
    struct tensor scalar = TENSOR_INIT;
    tensor_init_scalar_i32(&scalar, value);
    return gradient_constant(g, &scalar);
}

struct node_input gradient_i32s(struct gradient_ctx *g, int n, const int32_t *values) {
    struct tensor vector = TENSOR_INIT;
    if (!g->status)
        g->status = tensor_new(allocator_host(), DT_INT32, (struct shape){1, (const int64_t[]){n}},
                               &vector);
    if (g->status)
        return (struct node_input){NULL, 0};
    memcpy(tensor_data(&vector), values, (size_t)n * sizeof(values[0]));
    struct node_input made = gradient_constant(g, &vector);
    tensor_clear(&vector);
    return made;
}

struct node_input gradient_cast(struct gradient_ctx *g, struct node_input value, enum dtype dtype) {
    if (g->status || gradient_dtype(value) == dtype)
        return value;
    return OP_WITH("Cast", ATTRS(ATTR_T("DstT", dtype)), value);
}

struct node_input gradient_conj(struct gradient_ctx *g, struct node_input value) {
    enum dtype dtype = gradient_dtype(value);
    return dtype == DT_COMPLEX64 || dtype == DT_COMPLEX128 ? OP("Conj", value) : value;
}
