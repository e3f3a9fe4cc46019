/* Attr values from strangers: an AttrValue is read or refused; what is read prints, copies, and
 * survives our own encoding.
 *
 * The first byte chooses the attr of an op's signature that the value is for (none, too); the
 * rest is the message. */
#include "common/graph/graph_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An attr of each kind. */
static const struct op_attr_signature *wanted_attr(unsigned which) {
    static const char *const attrs[][2] = {
        {"Const", "value"},
        {"Const", "dtype"},
        {"Placeholder", "shape"},
        {"Conv2D", "strides"},
        {"Conv2D", "padding"},
        {"ConcatV2", "N"},
        {"MatMul", "transpose_a"},
        {"IdentityN", "T"},
        {"PartitionedCall", "f"},
        {"Case", "branches"},
        {"FusedBatchNorm", "epsilon"},
        {"QueueDequeueV2", "component_types"},
        {"FIFOQueueV2", "shapes"},
        {"_NoSuchOp", "T"},
    };
    const char *const *row = attrs[which % ARRAY_LEN(attrs)];
    const struct op_signature *op = op_signature_find(row[0]);
    return op ? op_signature_attr_n(op, row[1], strlen(row[1])) : NULL;
}

/* Types that we do not know are read as DT_INVALID, and what a handle stands for is not in its
 * bytes: they are not what came. */
static bool is_kept_whole(const struct attr_value *value) {
    if (value->is_placeholder)
        return true;
    if (value->type == ATTR_TYPE)
        return value->dtype != DT_INVALID;
    if (value->type == ATTR_TENSOR)
        return value->tensor->dtype != DT_RESOURCE && value->tensor->dtype != DT_VARIANT;
    for (int i = 0; attr_type_is_list(value->type) && i < value->list.n_values; i++)
        if (!is_kept_whole(&value->list.values[i]))
            return false;
    for (int i = 0; value->type == ATTR_FUNC && i < value->func->n_attrs; i++)
        if (!is_kept_whole(&value->func->attrs[i].value))
            return false;
    return true;
}

static void check_copy(struct graph *graph, const struct attr_value *value) {
    struct attr_value copy;
    attr_value_copy(value, &graph->arena, &copy);
    CHECK(attr_value_equal(value, &copy) && attr_value_hash(value) == attr_value_hash(&copy));
    attr_value_clear(&copy);
}

static void read_again(struct graph *graph, const struct attr_value *value,
                       const struct op_attr_signature *wanted, const struct graph_limits *limits) {
    struct str bytes = STR_INIT, text = STR_INIT, text_again = STR_INIT;
    struct attr_value again;
    bool is_set;
    attr_value_to_proto(value, &bytes);
    struct status *st = attr_value_from_proto(graph, (struct span){str_text(&bytes), bytes.len},
                                              wanted, limits, &again, &is_set);
    CHECK(!st && is_set && attr_value_equal(value, &again));
    attr_value_print(value, &text);
    attr_value_print(&again, &text_again);
    CHECK(strcmp(str_text(&text), str_text(&text_again)) == 0);
    str_fini(&bytes);
    str_fini(&text);
    str_fini(&text_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct graph_limits limits;
    struct graph graph;
    struct attr_value value;
    bool is_set = false;
    if (size == 0)
        return 0;
    const struct op_attr_signature *wanted = wanted_attr(data[0]);
    graph_limits_default(&limits);
    limits.max_tensor_bytes = 16 << 20;
    graph_init(&graph);
    struct status *st = attr_value_from_proto(
        &graph, (struct span){(const char *)data + 1, size - 1}, wanted, &limits, &value, &is_set);
    if (!st && is_set) {
        check_copy(&graph, &value);
        if (is_kept_whole(&value))
            read_again(&graph, &value, wanted, &limits);
    }
    CHECK(status_code(st) != STATUS_INTERNAL);
    status_unref(st);
    graph_fini(&graph);
    return 0;
}
