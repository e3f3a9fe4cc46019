/* Differentiates ops of the array family with indices: the gradient of a gather is a scatter, and
 * the other way round. array_grad.c has the rest. */
#include "common/gradients/build.h"

static void gather_nd_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ScatterNd", IN(1), DY(0), SHAPE_AS(IN(0), IN(1))));
}

/* (input, indices, updates) */
static void scatter_nd_add_grad(struct gradient_ctx *g) {
    SET(0, DY(0));
    SET(2, OP("GatherNd", DY(0), IN(1)));
}

static void scatter_nd_grad(struct gradient_ctx *g) { SET(1, LIKE("GatherNd", DY(0), IN(0))); }

/* ---- Gather: rows of dy are added to the rows that they were read from ---- */

struct gathered {
    struct node_input params_shape;    /* [batch…, before…, n, after…] */
    struct node_input n_batch, n_axis; /* the number of axes before and of */
    /* products of sizes; `chosen`: indices in one batch */
    struct node_input outer, before, n, after, chosen;
};

static struct node_input product_of(struct gradient_ctx *g, struct node_input shape,
                                    struct node_input begin, struct node_input end) {
    return RESHAPE(gradient_product(g, gradient_slice(g, shape, begin, end)), I32S(1));
}

static struct gathered measure(struct gradient_ctx *g, struct node_input axis, int64_t n_batch) {
    struct gathered by = {.params_shape = SHAPE(IN(0))};
    struct node_input shape = by.params_shape, indices_shape = SHAPE(IN(1)),
                      rank = OP("Size", shape), one = I32(1);
    by.n_axis = OP("FloorMod", gradient_cast(g, axis, DT_INT32), rank);
    by.n_batch = I32((int32_t)n_batch);
    if (n_batch < 0)
        by.n_batch = ADD(by.n_batch, OP("Size", indices_shape));
    by.outer = product_of(g, shape, I32(0), by.n_batch);
    by.before = product_of(g, shape, by.n_batch, by.n_axis);
    by.n = product_of(g, shape, by.n_axis, ADD(by.n_axis, one));
    by.after = product_of(g, shape, ADD(by.n_axis, one), rank);
    by.chosen = product_of(g, indices_shape, by.n_batch, OP("Size", indices_shape));
    return by;
}

/* dy [batch, before, chosen, after] ─► [batch · chosen, before · after]
 *    ─ sums of rows ─► [batch · n, before · after]
 *    ─► [batch, before, n, after], the shape of the parameters */
static void gather_dense(struct gradient_ctx *g, struct node_input axis, int64_t n_batch) {
    struct gathered by = measure(g, axis, n_batch);
    struct node_input to_rows = I32S(0, 2, 1, 3); /* the permutation is its own inverse */
    struct node_input dy =
        OP("Transpose", RESHAPE(DY(0), CONCAT(by.outer, by.before, by.chosen, by.after)), to_rows);
    struct node_input rows =
        RESHAPE(dy, CONCAT(MUL(by.outer, by.chosen), MUL(by.before, by.after)));
    struct node_input first = MUL(RANGE(RESHAPE(by.outer, OP("Shape", I32(0)))), by.n);
    struct node_input ids = RESHAPE(gradient_cast(g, IN(1), DT_INT64), CONCAT(by.outer, by.chosen));
    ids = RESHAPE(ADD(ids, EXPAND(gradient_cast(g, first, DT_INT64), 1)), MUL(by.outer, by.chosen));
    struct node_input n_rows = RESHAPE(MUL(by.outer, by.n), OP("Shape", I32(0)));
    struct node_input sums = OP("UnsortedSegmentSum", rows, ids, n_rows);
    struct node_input apart =
        OP("Transpose", RESHAPE(sums, CONCAT(by.outer, by.n, by.before, by.after)), to_rows);
    SET(0, RESHAPE(apart, by.params_shape));
}

static void gather_grad(struct gradient_ctx *g) { gather_dense(g, I32(0), 0); }
static void gather_v2_grad(struct gradient_ctx *g) {
    gather_dense(g, IN(2), gradient_attr_i(g, "batch_dims"));
}

/* ---- scatters into a tensor ---- */

static void tensor_scatter_update_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorScatterUpdate", DY(0), IN(1), ZEROS(IN(2))));
    SET(2, OP("GatherNd", DY(0), IN(1)));
}

static void tensor_scatter_sub_grad(struct gradient_ctx *g) {
    SET(0, DY(0));
    SET(2, NEG(OP("GatherNd", DY(0), IN(1))));
}

/* Equal candidates share the gradient: the element of the tensor and all updates that equal the
 * result. */
static void tensor_scatter_extreme_grad(struct gradient_ctx *g) {
    struct node_input is_old = CAST(OP("Equal", IN(0), OUT(0)), DY(0));
    struct node_input is_new = CAST(OP("Equal", IN(2), OP("GatherNd", OUT(0), IN(1))), DY(0));
    struct node_input n = ADD(is_old, OP("ScatterNd", IN(1), is_new, SHAPE_AS(IN(0), IN(1))));
    struct node_input share = DIV(DY(0), n);
    SET(0, MUL(share, is_old));
    SET(2, MUL(OP("GatherNd", share, IN(1)), is_new));
}

/* ---- partitions ---- */

static void dynamic_partition_grad(struct gradient_ctx *g) {
    int n = g->node->n_outputs;
    struct node_input shape = SHAPE(IN(1));
    struct node_input places = RESHAPE(RANGE(gradient_product(g, shape)), shape);
    struct node_input parts = LIKE("DynamicPartition", places, IN(1));
    struct node_input *inputs = arena_array(&g->graph->arena, struct node_input, 2 * n + 1);
    for (int i = 0; i < n; i++) {
        inputs[i] = gradient_second(parts, i);
        inputs[n + i] = DY(i);
    }
    SET(0, RESHAPE_LIKE(gradient_op(g, "DynamicStitch", false, NULL, 2 * n, inputs), IN(0)));
}

static void dynamic_stitch_grad(struct gradient_ctx *g) {
    int n = g->node->n_data / 2;
    for (int i = 0; i < n; i++)
        SET(n + i, OP("GatherV2", DY(0), IN(i), I32(0)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Gather", gather_grad),
    GRADIENT("GatherV2", gather_v2_grad),
    GRADIENT("GatherNd", gather_nd_grad),
    GRADIENT("ScatterNd", scatter_nd_grad),
    GRADIENT("ScatterNdNonAliasingAdd", scatter_nd_add_grad),
    GRADIENT("TensorScatterUpdate", tensor_scatter_update_grad),
    GRADIENT("TensorScatterAdd", scatter_nd_add_grad),
    GRADIENT("TensorScatterSub", tensor_scatter_sub_grad),
    GRADIENT("TensorScatterMin", tensor_scatter_extreme_grad),
    GRADIENT("TensorScatterMax", tensor_scatter_extreme_grad),
    GRADIENT("DynamicPartition", dynamic_partition_grad),
    GRADIENT("DynamicStitch", dynamic_stitch_grad),
    GRADIENT("ParallelDynamicStitch", dynamic_stitch_grad),
    UNDEFINED_GRADIENT("Unique"),
    UNDEFINED_GRADIENT("UniqueWithCounts"),
    UNDEFINED_GRADIENT("UniqueV2"),
    UNDEFINED_GRADIENT("UniqueWithCountsV2"),
    UNDEFINED_GRADIENT("ListDiff"),
    NO_GRADIENT("Where"),
    NO_GRADIENT("OneHot"),
};
// clang-format on

const struct gradient_list array_index_gradients = {rows, ARRAY_LEN(rows)};
