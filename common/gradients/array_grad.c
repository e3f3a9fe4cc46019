/* Differentiates ops of the array family that move, repeat and reshape elements. array_index_grad.c
 * has those with indices, array_diag_grad.c those with diagonals. */
#include "common/gradients/build.h"

static void identity_grad(struct gradient_ctx *g) {
    for (int i = 0; i < g->node->n_outputs; i++)
        if (gradient_has(g, i))
            SET(i, DY(i));
}

static void prevent_gradient_grad(struct gradient_ctx *g) {
    struct span message = {"", 0};
    g->status = node_get_s(g->node, "message", &message);
    if (!g->status)
        g->status = status_invalid("Gradient explicitly disabled. Reason: %.*s",
                                   (int)MIN(message.len, (size_t)256), message.data);
}

/* ---- shapes ---- */

static void reshape_grad(struct gradient_ctx *g) { SET(0, RESHAPE_LIKE(DY(0), IN(0))); }

static void fill_grad(struct gradient_ctx *g) { SET(1, SUM(DY(0), RANGE(OP("Rank", DY(0))))); }

static void broadcast_to_grad(struct gradient_ctx *g) { SET_SUM(0, DY(0)); }

/* [n0, n1] copies of [d0, d1]: the sum over n0 and n1 of [n0, d0, n1, d1]. */
static void tile_grad(struct gradient_ctx *g) {
    struct node_input shape = SHAPE(IN(0)), copies = gradient_cast(g, IN(1), DT_INT32),
                      rank = OP("Rank", IN(0));
    struct node_input pairs = OP_WITH("Pack", ATTRS(ATTR_I("axis", 1)), copies, shape);
    struct node_input axes = OP("Range", I32(0), MUL(rank, I32(2)), I32(2));
    SET(0, RESHAPE(SUM(RESHAPE(DY(0), RESHAPE(pairs, I32S(-1))), axes), shape));
}

/* ---- order ---- */

static void transpose_grad(struct gradient_ctx *g) {
    SET(0, OP("Transpose", DY(0), OP("InvertPermutation", IN(1))));
}
static void conjugate_transpose_grad(struct gradient_ctx *g) {
    SET(0, OP("ConjugateTranspose", DY(0), OP("InvertPermutation", IN(1))));
}
static void reverse_grad(struct gradient_ctx *g) { SET(0, LIKE(g->node->op_name, DY(0), IN(1))); }
static void roll_grad(struct gradient_ctx *g) { SET(0, OP("Roll", DY(0), NEG(IN(1)), IN(2))); }

/* ---- joining and splitting ---- */

static void take_parts(struct gradient_ctx *g, struct node_input axis, int first) {
    int n = g->node->n_data - 1;
    struct node_input *inputs = arena_array(&g->graph->arena, struct node_input, n + 1);
    struct node_input number = gradient_cast(g, axis, DT_INT32);
    inputs[0] = OP("FloorMod", number, OP("Rank", DY(0)));
    for (int i = 0; i < n; i++)
        inputs[i + 1] = SHAPE(IN(first + i));
    struct node_input offsets = gradient_op(g, "ConcatOffset", false, NULL, n + 1, inputs);
    for (int i = 0; i < n; i++)
        SET(first + i, OP("Slice", DY(0), gradient_second(offsets, i), inputs[i + 1]));
}

static void concat_grad(struct gradient_ctx *g) { take_parts(g, IN(0), 1); }
static void concat_v2_grad(struct gradient_ctx *g) { take_parts(g, IN(g->node->n_data - 1), 0); }

static void pack_grad(struct gradient_ctx *g) {
    struct node_input parts = LIKE_WITH("Unpack", ATTRS(ATTR_I("num", g->node->n_data)), DY(0));
    for (int i = 0; i < g->node->n_data; i++)
        SET(i, gradient_second(parts, i));
}

static void parallel_concat_grad(struct gradient_ctx *g) {
    struct node_input parts =
        OP_WITH("Split", ATTRS(ATTR_I("num_split", g->node->n_data)), I32(0), DY(0));
    for (int i = 0; i < g->node->n_data; i++)
        SET(i, gradient_second(parts, i));
}

static struct node_input join_outputs(struct gradient_ctx *g, const char *op, bool is_like,
                                      const struct node_input *axis) {
    int n = g->node->n_outputs;
    if (axis && n == 1) /* ConcatV2 wants two */
        return DY(0);
    struct node_input *inputs = arena_array(&g->graph->arena, struct node_input, n + 2);
    for (int i = 0; i < n; i++)
        inputs[i] = DY(i);
    if (axis)
        inputs[n] = *axis;
    return gradient_op(g, op, is_like, NULL, n + (axis != NULL), inputs);
}

static void unpack_grad(struct gradient_ctx *g) { SET(0, join_outputs(g, "Pack", true, NULL)); }
static void split_grad(struct gradient_ctx *g) {
    SET(1, join_outputs(g, "ConcatV2", false, &g->node->inputs[0]));
}
static void split_v_grad(struct gradient_ctx *g) {
    SET(0, join_outputs(g, "ConcatV2", false, &g->node->inputs[2]));
}

/* ---- slices and padding ---- */

static void slice_grad(struct gradient_ctx *g) {
    struct node_input begin = IN(1), shape = SHAPE_AS(IN(0), begin);
    struct node_input after = SUB(SUB(shape, begin), SHAPE_AS(OUT(0), begin));
    SET(0, OP("Pad", DY(0), OP_WITH("Pack", ATTRS(ATTR_I("axis", 1)), begin, after)));
}

static void strided_slice_grad(struct gradient_ctx *g) {
    SET(0, LIKE("StridedSliceGrad", SHAPE_AS(IN(0), IN(1)), IN(1), IN(2), IN(3), DY(0)));
}

static void strided_slice_grad_grad(struct gradient_ctx *g) {
    SET(4, LIKE("StridedSlice", DY(0), IN(1), IN(2), IN(3)));
}

static void tensor_strided_slice_update_grad(struct gradient_ctx *g) {
    SET(0, LIKE("TensorStridedSliceUpdate", DY(0), IN(1), IN(2), IN(3), ZEROS(IN(4))));
    SET_SUM(4, LIKE("StridedSlice", DY(0), IN(1), IN(2), IN(3)));
}

/* The constant of PadV2 gets no gradient, as in TensorFlow. */
static void pad_grad(struct gradient_ctx *g) {
    struct node_input first_column = OP_WITH(
        "StridedSlice",
        ATTRS(ATTR_I("begin_mask", 1), ATTR_I("end_mask", 1), ATTR_I("shrink_axis_mask", 2)), IN(1),
        I32S(0, 0), I32S(0, 1), I32S(1, 1));
    SET(0, OP("Slice", DY(0), first_column, SHAPE_AS(IN(0), IN(1))));
}

static void mirror_pad_grad(struct gradient_ctx *g) { SET(0, LIKE("MirrorPadGrad", DY(0), IN(1))); }
static void mirror_pad_grad_grad(struct gradient_ctx *g) {
    SET(0, LIKE("MirrorPad", DY(0), IN(1)));
}

/* ---- space, batch, depth: each is another's inverse ---- */

static void space_to_batch_grad(struct gradient_ctx *g) {
    SET(0, LIKE("BatchToSpace", DY(0), IN(1)));
}
static void batch_to_space_grad(struct gradient_ctx *g) {
    SET(0, LIKE("SpaceToBatch", DY(0), IN(1)));
}
static void space_to_batch_nd_grad(struct gradient_ctx *g) {
    SET(0, OP("BatchToSpaceND", DY(0), IN(1), IN(2)));
}
static void batch_to_space_nd_grad(struct gradient_ctx *g) {
    SET(0, OP("SpaceToBatchND", DY(0), IN(1), IN(2)));
}
static void space_to_depth_grad(struct gradient_ctx *g) { SET(0, LIKE("DepthToSpace", DY(0))); }
static void depth_to_space_grad(struct gradient_ctx *g) { SET(0, LIKE("SpaceToDepth", DY(0))); }

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Identity", identity_grad),
    GRADIENT("IdentityN", identity_grad),
    GRADIENT("RefIdentity", identity_grad),
    GRADIENT("PlaceholderWithDefault", identity_grad),
    GRADIENT("Snapshot", identity_grad),
    GRADIENT("DebugGradientIdentity", identity_grad),
    GRADIENT("DebugGradientRefIdentity", identity_grad),
    GRADIENT("DeepCopy", identity_grad),
    GRADIENT("EnsureShape", identity_grad),
    GRADIENT("GuaranteeConst", identity_grad),
    GRADIENT("PreventGradient", prevent_gradient_grad),
    GRADIENT("Reshape", reshape_grad),
    GRADIENT("ExpandDims", reshape_grad),
    GRADIENT("Squeeze", reshape_grad),
    GRADIENT("Fill", fill_grad),
    GRADIENT("BroadcastTo", broadcast_to_grad),
    GRADIENT("Tile", tile_grad),
    GRADIENT("Transpose", transpose_grad),
    GRADIENT("ConjugateTranspose", conjugate_transpose_grad),
    GRADIENT("Reverse", reverse_grad),
    GRADIENT("ReverseV2", reverse_grad),
    GRADIENT("ReverseSequence", reverse_grad),
    GRADIENT("Roll", roll_grad),
    GRADIENT("Concat", concat_grad),
    GRADIENT("ConcatV2", concat_v2_grad),
    GRADIENT("Pack", pack_grad),
    GRADIENT("ParallelConcat", parallel_concat_grad),
    GRADIENT("Unpack", unpack_grad),
    GRADIENT("Split", split_grad),
    GRADIENT("SplitV", split_v_grad),
    GRADIENT("Slice", slice_grad),
    GRADIENT("StridedSlice", strided_slice_grad),
    GRADIENT("StridedSliceGrad", strided_slice_grad_grad),
    GRADIENT("TensorStridedSliceUpdate", tensor_strided_slice_update_grad),
    GRADIENT("Pad", pad_grad),
    GRADIENT("PadV2", pad_grad),
    GRADIENT("MirrorPad", mirror_pad_grad),
    GRADIENT("MirrorPadGrad", mirror_pad_grad_grad),
    GRADIENT("SpaceToBatch", space_to_batch_grad),
    GRADIENT("BatchToSpace", batch_to_space_grad),
    GRADIENT("SpaceToBatchND", space_to_batch_nd_grad),
    GRADIENT("BatchToSpaceND", batch_to_space_nd_grad),
    GRADIENT("SpaceToDepth", space_to_depth_grad),
    GRADIENT("DepthToSpace", depth_to_space_grad),
    NO_GRADIENT("NoOp"),
    NO_GRADIENT("Const"),
    NO_GRADIENT("Placeholder"),
    NO_GRADIENT("PlaceholderV2"),
    NO_GRADIENT("StopGradient"),
    NO_GRADIENT("Bitcast"),
    NO_GRADIENT("Shape"),
    NO_GRADIENT("ShapeN"),
    NO_GRADIENT("Rank"),
    NO_GRADIENT("Size"),
    NO_GRADIENT("Empty"),
    UNDEFINED_GRADIENT("InplaceUpdate"),
    UNDEFINED_GRADIENT("InplaceAdd"),
    UNDEFINED_GRADIENT("InplaceSub"),
    NO_GRADIENT("ZerosLike"),
    NO_GRADIENT("OnesLike"),
    NO_GRADIENT("BroadcastArgs"),
    NO_GRADIENT("BroadcastGradientArgs"),
    NO_GRADIENT("UnravelIndex"),
    NO_GRADIENT("InvertPermutation"),
    NO_GRADIENT("ConcatOffset"),
    NO_GRADIENT("StridedSliceAssign"),
    NO_GRADIENT("ResourceStridedSliceAssign"),
    NO_GRADIENT("Range"),
    NO_GRADIENT("LinSpace"),
};
// clang-format on

const struct gradient_list array_gradients = {rows, ARRAY_LEN(rows)};
