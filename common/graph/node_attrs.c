/* Keeps the attrs of nodes: sorted rows in the arena of the graph, defaults, typed reads. */
#include "common/graph/graph_internal.h"

#include "common/tensor/tensor_proto.h"

/* ---- tensors ---- */

static void own_tensor(struct graph *graph, struct tensor *tensor) {
    if (graph->n_tensors == graph->tensors_capacity) {
        graph->tensors_capacity = graph->tensors_capacity ? 2 * graph->tensors_capacity : 64;
        graph->tensors = xreallocarray(graph->tensors, (size_t)graph->tensors_capacity,
                                       sizeof(graph->tensors[0]));
    }
    graph->tensors[graph->n_tensors++] = tensor;
}

void graph_own_tensors(struct graph *graph, const struct attr_value *value) {
    if (value->is_placeholder)
        return;
    if (value->type == ATTR_TENSOR) {
        own_tensor(graph, value->tensor);
    } else if (value->type == ATTR_FUNC) {
        for (int i = 0; i < value->func->n_attrs; i++)
            graph_own_tensors(graph, &value->func->attrs[i].value);
    } else if (value->type == ATTR_LIST_TENSOR || value->type == ATTR_LIST_FUNC) {
        for (int i = 0; i < value->list.n_values; i++)
            graph_own_tensors(graph, &value->list.values[i]);
    }
}

/* ---- rows ---- */

bool attrs_find(const struct attr *attrs, int n_attrs, const char *name, int *ret_at) {
    int low = 0, high = n_attrs;
    while (low < high) {
        int middle = (low + high) / 2;
        int order = attrs[middle].name == name ? 0 : strcmp(attrs[middle].name, name);
        if (order == 0) {
            *ret_at = middle;
            return true;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_at = low;
    return false;
}

int attrs_sort(struct attr *attrs, int n_attrs) {
    int n = 0, at;
    for (int i = 0; i < n_attrs; i++) {
        struct attr attr = attrs[i];
        /* the usual case: sorted already */
        if (n > 0 && strcmp(attrs[n - 1].name, attr.name) < 0) {
            attrs[n++] = attr;
            continue;
        }
        if (!attrs_find(attrs, n, attr.name, &at)) {
            memmove(&attrs[at + 1], &attrs[at], (size_t)(n - at) * sizeof(attr));
            n++;
        }
        attrs[at] = attr;
    }
    return n;
}

/* ---- defaults ---- */

static void default_value(struct graph *graph, const struct op_attr_default *from,
                          enum attr_type type, struct attr_value *ret);

static void default_tensor(struct graph *graph, const struct op_attr_default *from,
                           struct attr_value *ret) {
    ret->tensor = arena_alloc_aligned(&graph->arena, sizeof(*ret->tensor), _Alignof(struct tensor));
    *ret->tensor = TENSOR_INIT;
    struct status *st = tensor_from_proto((struct span){from->s, (size_t)from->n}, NULL,
                                          allocator_host(), ret->tensor);
    CHECK(st == NULL); /* bytes of the constant table */
}

static void default_list(struct graph *graph, const struct op_attr_default *from,
                         enum attr_type element, struct attr_value *ret) {
    struct attr_value *values = arena_array(&graph->arena, struct attr_value, from->n);
    for (int i = 0; i < from->n; i++)
        default_value(graph, &from->list[i], element, &values[i]);
    ret->list.values = values;
    ret->list.n_values = from->n;
}

static void default_value(struct graph *graph, const struct op_attr_default *from,
                          enum attr_type type, struct attr_value *ret) {
    *ret = (struct attr_value){.type = type};
    if (attr_type_is_list(type)) {
        default_list(graph, from, attr_type_element(type), ret);
        return;
    }
    switch (type) {
    case ATTR_STRING:
        ret->s = (struct span){from->s ? from->s : "", (size_t)from->n};
        break;
    case ATTR_INT:
        ret->i = from->i;
        break;
    case ATTR_FLOAT:
        ret->f = from->f;
        break;
    case ATTR_BOOL:
        ret->b = from->b;
        break;
    case ATTR_TYPE:
        ret->dtype = from->type;
        break;
    case ATTR_SHAPE:
        ret->shape = (struct shape){from->n, from->dims};
        break;
    case ATTR_TENSOR:
        default_tensor(graph, from, ret);
        break;
    case ATTR_FUNC:
        ret->func = arena_new(&graph->arena, struct attr_func);
        ret->func->name = arena_strndup(&graph->arena, from->s ? from->s : "", (size_t)from->n);
        break;
    default:
        break;
    }
}

static struct graph_op *graph_op_info(struct graph *graph, const struct op_signature *op) {
    struct graph_op *info = u64map_get(&graph->ops, (uint64_t)(uintptr_t)op);
    if (info)
        return info;
    info = arena_new(&graph->arena, struct graph_op);
    info->op = op;
    info->defaults = arena_array(&graph->arena, struct attr, op->n_attrs);
    for (int i = 0; i < op->n_attrs; i++) {
        if (!op->attrs[i].has_default)
            continue;
        struct attr *attr = &info->defaults[info->n_defaults++];
        attr->name = op->attrs[i].name;
        default_value(graph, op->attrs[i].default_value, op->attrs[i].type, &attr->value);
        graph_own_tensors(graph, &attr->value);
    }
    info->n_defaults = attrs_sort(info->defaults, info->n_defaults);
    u64map_put(&graph->ops, (uint64_t)(uintptr_t)op, info);
    return info;
}

void node_fill_defaults(struct graph *graph, struct node *node) {
    const struct graph_op *info = graph_op_info(graph, node->op);
    CHECK(node->n_attrs + info->n_defaults <= node->attrs_capacity);
    for (int i = 0; i < info->n_defaults; i++) {
        int at;
        if (attrs_find(node->attrs, node->n_attrs, info->defaults[i].name, &at))
            continue;
        memmove(&node->attrs[at + 1], &node->attrs[at],
                (size_t)(node->n_attrs - at) * sizeof(node->attrs[0]));
        node->attrs[at] = info->defaults[i];
        node->n_attrs++;
    }
}

/* ---- setting ---- */

static void set_owned(struct graph *graph, struct node *node, const char *name,
                      const struct attr_value *value) {
    int at;
    if (attrs_find(node->attrs, node->n_attrs, name, &at)) {
        /* the graph keeps the old tensor, since other nodes may share it */
        node->attrs[at].value = *value;
        return;
    }
    if (node->n_attrs == node->attrs_capacity) {
        node->attrs_capacity = node->attrs_capacity ? 2 * node->attrs_capacity : 4;
        struct attr *attrs =
            arena_alloc(&graph->arena, (size_t)node->attrs_capacity * sizeof(attrs[0]));
        memcpy(attrs, node->attrs, (size_t)node->n_attrs * sizeof(attrs[0]));
        node->attrs = attrs;
    }
    memmove(&node->attrs[at + 1], &node->attrs[at],
            (size_t)(node->n_attrs - at) * sizeof(node->attrs[0]));
    const struct op_attr_signature *known = op_signature_attr(node->op, name);
    node->attrs[at].name = known ? known->name : arena_strdup(&graph->arena, name);
    node->attrs[at].value = *value;
    node->n_attrs++;
}

void node_set_attr(struct graph *graph, struct node *node, const char *name,
                   const struct attr_value *value) {
    struct attr_value copy;
    attr_value_copy(value, &graph->arena, &copy);
    graph_own_tensors(graph, &copy);
    set_owned(graph, node, name, &copy);
}

void node_set_attr_i(struct graph *graph, struct node *node, const char *name, int64_t value) {
    set_owned(graph, node, name, &(struct attr_value){.type = ATTR_INT, .i = value});
}

void node_set_attr_s(struct graph *graph, struct node *node, const char *name, const char *value) {
    node_set_attr(graph, node, name,
                  &(struct attr_value){.type = ATTR_STRING, .s = span_of(value)});
}

void node_set_attr_b(struct graph *graph, struct node *node, const char *name, bool value) {
    set_owned(graph, node, name, &(struct attr_value){.type = ATTR_BOOL, .b = value});
}

void node_set_attr_type(struct graph *graph, struct node *node, const char *name,
                        enum dtype value) {
    set_owned(graph, node, name, &(struct attr_value){.type = ATTR_TYPE, .dtype = value});
}

void node_set_attr_tensor(struct graph *graph, struct node *node, const char *name,
                          const struct tensor *value) {
    node_set_attr(graph, node, name,
                  &(struct attr_value){.type = ATTR_TENSOR, .tensor = (struct tensor *)value});
}

void node_set_attr_shape(struct graph *graph, struct node *node, const char *name,
                         struct shape value) {
    node_set_attr(graph, node, name, &(struct attr_value){.type = ATTR_SHAPE, .shape = value});
}

/* ---- reading ---- */

const struct attr_value *node_attr(const struct node *node, const char *name) {
    int at;
    return attrs_find(node->attrs, node->n_attrs, name, &at) ? &node->attrs[at].value : NULL;
}

const char *node_state_name(const struct node *node) {
    const struct attr_value *state = node_attr(node, NODE_STATE_ATTR);
    return state && !state->is_placeholder && state->type == ATTR_STRING ? state->s.data
                                                                         : node->name;
}

static COLD struct status *attr_refused(const struct node *node, const char *name,
                                        const char *wanted, const struct attr_value *found) {
    if (!found)
        return status_invalid("No attr named '%s' in node '%s' (op %s), where one of type '%s' is "
                              "wanted\n\t [[{{node %s}}]]",
                              name, node->name, node->op_name, wanted, node->name);
    return status_invalid("AttrValue had value with type '%s' when '%s' expected\n\t for attr '%s' "
                          "of node '%s' (op %s)\n\t [[{{node %s}}]]",
                          found->is_placeholder ? "placeholder" : attr_type_name(found->type),
                          wanted, name, node->name, node->op_name, node->name);
}

static struct status *get_typed(const struct node *node, const char *name, enum attr_type type,
                                const struct attr_value **ret) {
    const struct attr_value *value = node_attr(node, name);
    if (unlikely(!value || value->type != type || value->is_placeholder))
        return attr_refused(node, name, attr_type_name(type), value);
    *ret = value;
    return NULL;
}

struct status *node_get_i(const struct node *node, const char *name, int64_t *ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_INT, &value));
    *ret = value->i;
    return NULL;
}

struct status *node_get_i32(const struct node *node, const char *name, int64_t *ret) {
    int64_t value;
    TRY(node_get_i(node, name, &value));
    if (value < INT32_MIN || value > INT32_MAX)
        return status_invalid("Attr %s has value %lld out of range for an int32", name,
                              (long long)value);
    *ret = value;
    return NULL;
}

struct status *node_get_f(const struct node *node, const char *name, float *ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_FLOAT, &value));
    *ret = value->f;
    return NULL;
}

struct status *node_get_b(const struct node *node, const char *name, bool *ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_BOOL, &value));
    *ret = value->b;
    return NULL;
}

struct status *node_get_s(const struct node *node, const char *name, struct span *ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_STRING, &value));
    *ret = value->s;
    return NULL;
}

struct status *node_get_type(const struct node *node, const char *name, enum dtype *ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_TYPE, &value));
    *ret = value->dtype;
    return NULL;
}

struct status *node_get_shape(const struct node *node, const char *name, struct shape *ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_SHAPE, &value));
    *ret = value->shape;
    return NULL;
}

struct status *node_get_tensor(const struct node *node, const char *name,
                               const struct tensor **ret) {
    const struct attr_value *value = NULL;
    TRY(get_typed(node, name, ATTR_TENSOR, &value));
    *ret = value->tensor;
    return NULL;
}

struct status *node_get_list(const struct node *node, const char *name,
                             const struct attr_value **ret_values, int *ret_n) {
    const struct attr_value *value = node_attr(node, name);
    if (unlikely(!value || !attr_type_is_list(value->type) || value->is_placeholder))
        return attr_refused(node, name, "list", value);
    *ret_values = value->list.values;
    *ret_n = value->list.n_values;
    return NULL;
}

struct status *node_get_list_if_any(const struct node *node, const char *name,
                                    const struct attr_value **ret_values, int *ret_n) {
    *ret_n = 0;
    return node_attr(node, name) ? node_get_list(node, name, ret_values, ret_n) : NULL;
}
