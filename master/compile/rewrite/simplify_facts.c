/* What the rows of `simplify` may know about values: constants, and shapes that no step can
 * contradict (simplify.h).
 *
 * A static shape is a hint (common/ops/infer.h): a step may feed a placeholder with another shape
 * than the graph says, and a variable, a queue or an iterator may hold other values. So shapes are
 * inferred here without what these sources say. */
#include "kernels/infer_eval.h"
#include "kernels/kernel.h"
#include "master/compile/rewrite/simplify.h"

/* ---- constants ---- */

const struct tensor *simplify_const(const struct node_input *in) {
    const struct tensor *t = in->index == 0 ? const_behind(in->src) : NULL;
    return t && t->dtype == (int)dtype_base((enum dtype)in->src->out_types[0]) ? t : NULL;
}

int simplify_const_ints(struct simplifier *s, const struct node_input *in, int64_t **ret) {
    const struct tensor *t = simplify_const(in);
    if (!t || !dtype_in((enum dtype)t->dtype, DTYPES_INDEX) || t->rank > 2 ||
        t->n_elements > SIMPLIFY_MAX_ELEMENTS)
        return -1;
    *ret = arena_array(&s->c->arena, int64_t, t->n_elements + 1);
    for (int64_t i = 0; i < t->n_elements; i++)
        (*ret)[i] = tensor_index_at(t, i);
    return (int)t->n_elements;
}

/* An element of a type for which `neutral` values are asked. */
static bool element_is(const struct tensor *t, int64_t i, double value) {
    const void *data = tensor_cdata(t);
    switch ((enum dtype)t->dtype) {
    case DT_FLOAT:
        return (double)((const float *)data)[i] == value;
    case DT_DOUBLE:
        return ((const double *)data)[i] == value;
    case DT_INT8:
        return (double)((const int8_t *)data)[i] == value;
    case DT_UINT8:
        return (double)((const uint8_t *)data)[i] == value;
    case DT_INT16:
        return (double)((const int16_t *)data)[i] == value;
    case DT_UINT16:
        return (double)((const uint16_t *)data)[i] == value;
    case DT_INT32:
        return (double)((const int32_t *)data)[i] == value;
    case DT_UINT32:
        return (double)((const uint32_t *)data)[i] == value;
    case DT_INT64:
        return ((const int64_t *)data)[i] == (int64_t)value;
    case DT_UINT64:
        return value >= 0 && ((const uint64_t *)data)[i] == (uint64_t)value;
    case DT_BOOL:
        return (double)((const bool *)data)[i] == value;
    default:
        return false;
    }
}

/* 0.0 and -0.0 differ: x + 0.0 is not x where x is -0.0, and x - (-0.0) is not either. */
static bool is_negative_zero(const struct tensor *t, int64_t i) {
    static const uint8_t zero[sizeof(double)];
    size_t size = dtype_size((enum dtype)t->dtype);
    return memcmp((const char *)tensor_cdata(t) + (size_t)i * size, zero, size) != 0;
}

bool simplify_const_is(const struct tensor *t, double value) {
    if (t->n_elements > SIMPLIFY_MAX_ELEMENTS)
        return false;
    for (int64_t i = 0; i < t->n_elements; i++)
        if (!element_is(t, i, value) || (value == 0 && is_negative_zero(t, i)))
            return false;
    return t->n_elements > 0;
}

/* ---- nodes ---- */

bool simplify_has_kernel(const struct node *node, int flag) {
    const struct kernel_def *def = kernel_find(node, "CPU");
    if (!def || (flag && !(def->flags & flag)))
        return false;
    /* a client that asks for a GPU hears that its op has no kernel there */
    return !strstr(node->device, "GPU") || kernel_find(node, "GPU");
}

static bool is_handle(int type) { return type == DT_RESOURCE || type == DT_VARIANT; }

bool simplify_is_plain(const struct simplifier *s, const struct node_input *in) {
    int type = in->src->out_types[in->index];
    return !dtype_is_ref((enum dtype)type) && !is_handle(type) && in->src->id < s->n_ids &&
           !s->is_reference[in->src->id];
}

/* ---- shapes ---- */

static bool is_random(const struct node *node) {
    static const char *const prefixes[] = {"Random", "TruncatedNormal", "ParameterizedTruncated",
                                           "Multinomial"};
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(node->op_name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* May the node's value have another shape than its shape function says? */
static bool assumes_shape(const struct node *node) {
    if (node_has_ref(node) || node_is_internal(node) || node_uses_functions(node) ||
        strncmp(node->op_name, "Placeholder", strlen("Placeholder")) == 0 ||
        (node_is_stateful(node) && !is_random(node)))
        return true;
    for (int i = 0; i < node->n_data; i++)
        if (is_handle(node->in_types[i]))
            return true;
    return false;
}

struct shape simplify_shape(struct simplifier *s, const struct node_input *in) {
    if (s->shapes.n_nodes == 0) {
        struct infer_options options;
        infer_options_with_kernels(&options);
        options.is_unknown = assumes_shape;
        status_unref(graph_infer_shapes(&s->c->graph, &s->shapes, &options));
    }
    return graph_shapes_of(&s->shapes, in->src, in->index);
}
