/* Computes shapes inside gradient formulas. They are values of the step, because the static shapes
 * of the graph are not known here (build.h). */
#include "common/gradients/build.h"

#include "common/tensor/tensor.h"

struct node_input gradient_concat(struct gradient_ctx *g, const struct node_input *vectors) {
    struct node_input inputs[8];
    int n = 0;
    for (; vectors[n].index != INT32_MIN; n++) {
        CHECK(n + 1 < (int)ARRAY_LEN(inputs));
        inputs[n] = vectors[n];
    }
    inputs[n] = I32(0);
    return gradient_op(g, "ConcatV2", false, NULL, n + 1, inputs);
}

struct node_input gradient_slice(struct gradient_ctx *g, struct node_input vector,
                                 struct node_input begin, struct node_input end) {
    return OP("Slice", vector, RESHAPE(begin, I32S(1)), RESHAPE(SUB(end, begin), I32S(1)));
}

struct node_input gradient_element(struct gradient_ctx *g, struct node_input vector, int32_t i) {
    return OP_WITH("StridedSlice", ATTRS(ATTR_I("shrink_axis_mask", 1)), vector, I32S(i),
                   I32S(i + 1), I32S(1));
}

struct node_input gradient_product(struct gradient_ctx *g, struct node_input vector) {
    return OP("Prod", vector, I32S(0));
}

struct node_input gradient_outer(struct gradient_ctx *g, struct node_input shape, int32_t n) {
    return OP_WITH("StridedSlice", ATTRS(ATTR_I("begin_mask", 1)), shape, I32S(0), I32S(-n),
                   I32S(1));
}

struct node_input gradient_inner(struct gradient_ctx *g, struct node_input shape, int32_t n) {
    return OP_WITH("StridedSlice", ATTRS(ATTR_I("end_mask", 1)), shape, I32S(-n), I32S(0), I32S(1));
}

/* Axes of size 1 on both sides are summed too: the sum of one element. */
struct node_input gradient_unbroadcast(struct gradient_ctx *g, struct node_input value,
                                       struct node_input to) {
    struct node_input shape = SHAPE(to);
    return RESHAPE(SUM(value, OP("BroadcastGradientArgs", shape, SHAPE(value))), shape);
}

struct node_input gradient_axes(struct gradient_ctx *g, struct node_input x,
                                struct node_input axes) {
    struct node_input vector = RESHAPE(gradient_cast(g, axes, DT_INT32), I32S(-1));
    return OP("FloorMod", vector, OP("Rank", x));
}

struct node_input gradient_kept_shape(struct gradient_ctx *g, struct node_input x,
                                      struct node_input axes) {
    struct node_input numbers = gradient_axes(g, x, axes);
    return OP("DynamicStitch", RANGE(OP("Rank", x)), numbers, SHAPE(x), OP("OnesLike", numbers));
}

struct node_input gradient_matmul(struct gradient_ctx *g, struct node_input a, bool adj_a,
                                  struct node_input b, bool adj_b) {
    return OP_WITH("BatchMatMulV2", ATTRS(ATTR_B("adj_x", adj_a), ATTR_B("adj_y", adj_b)), a, b);
}

struct node_input gradient_adjoint(struct gradient_ctx *g, struct node_input a) {
    struct node_input rank = OP("Rank", a), all = RANGE(rank);
    struct node_input outer = gradient_slice(g, all, I32(0), SUB(rank, I32(2)));
    struct node_input last = gradient_element(g, all, -1), before = gradient_element(g, all, -2);
    return OP("ConjugateTranspose", a,
              CONCAT(outer, RESHAPE(last, I32S(1)), RESHAPE(before, I32S(1))));
}

struct node_input gradient_zeros(struct gradient_ctx *g, struct node_input like, enum dtype dtype) {
    if (gradient_dtype(like) != DT_RESOURCE)
        return ZEROS(like);
    struct node_input shape = OP_WITH("VariableShape", ATTRS(ATTR_T("out_type", DT_INT32)), like);
    double zero = 0;
    struct tensor scalar = TENSOR_INIT;
    tensor_init_scalar(&scalar, DT_DOUBLE, &zero);
    return OP("Fill", shape, gradient_cast(g, gradient_constant(g, &scalar), dtype));
}
