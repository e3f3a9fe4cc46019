/* Says which reductions may be members of a fused program (fuse.h): those that a CPU computes, over
 * the last dimensions of what they reduce, so that a cache has a row of elements while it is
 * reduced and while its elements are computed from the result.
 *
 *   m = Max(x, [-1])   d = Sub(x, m)   e = Exp(d)   s = Sum(e, [-1])   y = RealDiv(e, s)
 *
 * The axes must be constants. Negative ones tell by themselves; for others the rank must be known.
 * A GPU has no instruction for reductions. */
#include "common/graph/fused.h"
#include "kernels/kernel.h"
#include "master/compile/fuse/fuse.h"

static bool is_reduction(const char *op) {
    static const char *const ops[] = {"All",  "Any", "EuclideanNorm", "Max",
                                      "Mean", "Min", "Prod",          "Sum"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (strcmp(op, ops[i]) == 0)
            return true;
    return false;
}

/* Are the axes the last dimensions, each once? `rank` may be unknown. */
static bool are_last(const struct tensor *axes, int rank) {
    uint64_t seen = 0;
    if (axes->n_elements < 1 || axes->n_elements > 63)
        return false;
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t axis = tensor_index_at(axes, i), from_end = axis < 0 ? -axis : rank - axis;
        if ((axis >= 0 && rank < 0) || from_end < 1 || from_end > axes->n_elements ||
            (rank >= 0 && from_end > rank))
            return false;
        seen |= UINT64_C(1) << from_end;
    }
    return seen == (UINT64_C(2) << axes->n_elements) - 2;
}

/* -1: unknown. Shapes are asked for only where they are needed, because to infer them takes longer
 * than all else. */
static int rank_of_operand(struct compilation *c, const struct node *node,
                           const struct tensor *axes) {
    for (int64_t i = 0; i < axes->n_elements; i++)
        if (tensor_index_at(axes, i) >= 0)
            return graph_shapes_of(compilation_shapes(c), node->inputs[0].src,
                                   node->inputs[0].index)
                .rank;
    return -1;
}

bool fuse_may_reduce(struct compilation *c, const struct node *node) {
    if (node->n_data != 2 || node->placed < 0 || !is_reduction(node->op_name) ||
        strcmp(c->devices->devices[node->placed].type, "CPU") != 0 || !kernel_find(node, "CPU"))
        return false;
    const struct tensor *axes =
        node->inputs[1].index == 0 ? const_behind(node->inputs[1].src) : NULL;
    return axes && (axes->dtype == DT_INT32 || axes->dtype == DT_INT64) &&
           are_last(axes, rank_of_operand(c, node, axes));
}

bool fuse_has_reduction(const struct node *fused) {
    const struct attr_value *program = node_attr(fused, "program");
    for (int i = 0; i < program->list.n_values; i++)
        if (is_reduction(program->list.values[i].func->name))
            return true;
    return false;
}
