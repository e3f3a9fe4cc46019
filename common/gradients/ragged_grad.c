/* Differentiates ops on ragged tensors with respect to their values; splits have no gradient. */
#include "common/gradients/build.h"

/* Values that were chosen by number: each one gets the sum of its gradients. Negative numbers stand
 * for none. */
static struct node_input sums_by(struct gradient_ctx *g, struct node_input dy,
                                 struct node_input numbers, struct node_input values) {
    return OP("UnsortedSegmentSum", dy, numbers, gradient_element(g, SHAPE(values), 0));
}

/* (splits…, values, indices). Row i has the values of [splits[i], splits[i + 1]), where the splits
 * of several dimensions are looked up in one another. */
static void ragged_gather_grad(struct gradient_ctx *g) {
    int n_splits = g->node->n_data - 2;
    struct node_input splits = IN(0), indices = RESHAPE(IN(n_splits + 1), I32S(-1));
    for (int i = 1; i < n_splits; i++)
        splits = OP("GatherV2", IN(i), splits, I32(0));
    struct node_input begin = OP("GatherV2", splits, indices, I32(0));
    struct node_input end = OP("GatherV2", splits, ADD(indices, OP("OnesLike", indices)), I32(0));
    struct node_input step = gradient_cast(g, I32(1), gradient_dtype(splits));
    struct node_input numbers = SECOND(
        OP_WITH("RaggedRange", ATTRS(ATTR_T("Tsplits", gradient_dtype(splits))), begin, end, step));
    SET(n_splits, sums_by(g, DY(g->node->n_outputs - 1), numbers, IN(n_splits)));
}

/* The number of dimensions that the partitions describe. */
static int ragged_rank(struct gradient_ctx *g) {
    const struct attr_value *types = NULL;
    int n = 0, rank = 0;
    if (!g->status)
        g->status = node_get_list(g->node, "row_partition_types", &types, &n);
    for (int i = 0; i < n && !g->status; i++)
        rank += !span_is(types[i].s, "FIRST_DIM_SIZE");
    return rank;
}

/* (shape, values, default, partitions…). The same op says which value each element is, and -1 where
 * it is the default. */
static void ragged_to_tensor_grad(struct gradient_ctx *g) {
    int n = g->node->n_data;
    struct node_input dy = DY(0), shape = SHAPE(dy), n_outer = I32S(1 + ragged_rank(g)), numbers;
    struct node_input *inputs = arena_array(&g->graph->arena, struct node_input, n + 1);
    inputs[0] = OP("Slice", shape, I32S(0), n_outer);
    inputs[1] = RANGE(gradient_element(g, SHAPE(IN(1)), 0));
    inputs[2] = I32(-1);
    for (int i = 3; i < n; i++)
        inputs[i] = IN(i);
    numbers = gradient_op(g, "RaggedTensorToTensor", true, NULL, n, inputs);
    SET(1, sums_by(g, dy, numbers, IN(1)));
    struct node_input is_default = OP("Less", numbers, I32(0));
    struct node_input n_inner = SUB(RESHAPE(OP("Rank", dy), I32S(1)), n_outer);
    is_default = RESHAPE(is_default, CONCAT(inputs[0], OP("Fill", n_inner, I32(1))));
    SET_SUM(2, WHERE(is_default, dy, NUM(0)));
}

/* (splits…, values) → (indices, values, shape) */
static void ragged_to_sparse_grad(struct gradient_ctx *g) {
    int last = g->node->n_data - 1;
    SET(last, RESHAPE_LIKE(DY(1), IN(last)));
}

/* (variant) → (splits…, values). Without the variant's static rank, the attrs say whether it is one
 * value or a vector. */
static void ragged_from_variant_grad(struct gradient_ctx *g) {
    int n = g->node->n_outputs;
    int64_t rank = gradient_attr_i(g, "output_ragged_rank"),
            inner = gradient_attr_i(g, "input_ragged_rank");
    struct node_input *inputs = arena_array(&g->graph->arena, struct node_input, n + 1);
    for (int i = 0; i + 1 < n; i++)
        inputs[i] = OUT(i);
    inputs[n - 1] = DY(n - 1);
    const struct gradient_attr attrs[] = {ATTR_B("batched_input", rank > MAX(inner, 0)),
                                          {NULL, ATTR_STRING, {0}}};
    SET(0, gradient_op(g, "RaggedTensorToVariant", true, attrs, n, inputs));
}

/* (splits…, values) → variant */
static void ragged_to_variant_grad(struct gradient_ctx *g) {
    int last = g->node->n_data - 1;
    struct node_input splits = last > 0 ? IN(0) : gradient_cast(g, I32(0), DT_INT64);
    SET(last,
        OP_WITH("RaggedTensorToVariantGradient", ATTRS(ATTR_T("Tvalues", gradient_dtype(IN(last)))),
                DY(0), splits, SHAPE(IN(last))));
}

/* (row ids, values, rows, default) */
static void ragged_fill_empty_rows_grad(struct gradient_ctx *g) {
    struct node_input made = OP("RaggedFillEmptyRowsGrad", OUT(3), DY(1));
    SET(1, made);
    SET(3, SECOND(made));
}

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("RaggedRange"),
    GRADIENT("RaggedGather", ragged_gather_grad),
    GRADIENT("RaggedTensorToVariant", ragged_to_variant_grad),
    GRADIENT("RaggedTensorFromVariant", ragged_from_variant_grad),
    UNDEFINED_GRADIENT("RaggedTensorToVariantGradient"),
    GRADIENT("RaggedTensorToTensor", ragged_to_tensor_grad),
    GRADIENT("RaggedTensorToSparse", ragged_to_sparse_grad),
    NO_GRADIENT("RaggedCross"),
    UNDEFINED_GRADIENT("DenseCountSparseOutput"),
    UNDEFINED_GRADIENT("SparseCountSparseOutput"),
    UNDEFINED_GRADIENT("RaggedCountSparseOutput"),
    UNDEFINED_GRADIENT("SparseBincount"),
    UNDEFINED_GRADIENT("RaggedBincount"),
    GRADIENT("RaggedFillEmptyRows", ragged_fill_empty_rows_grad),
    UNDEFINED_GRADIENT("RaggedFillEmptyRowsGrad"),
};
// clang-format on

const struct gradient_list ragged_gradients = {rows, ARRAY_LEN(rows)};
