/* Counts the arithmetic of ops that do more than touch each element once (kernels/cost.h). */
#include "kernels/cost.h"

static double product(struct shape shape, int n_dims) {
    double n = 1;
    for (int d = 0; d < MIN(n_dims, shape.rank); d++)
        n *= (double)shape.dims[d];
    return n;
}

static double elements(struct shape shape) { return product(shape, shape.rank); }

/* A multiplication and an addition for each element of the output and each step of the inner
 * dimension. */
double cost_flops_matmul(const struct cost_query *query) {
    struct shape a = query->in[0];
    const struct attr_value *flag = node_attr(query->node, "transpose_a");
    if (!flag)
        flag = node_attr(query->node, "adj_x");
    bool is_transposed = flag && flag->type == ATTR_BOOL && flag->b;
    double inner = a.rank >= 2 ? (double)a.dims[a.rank - (is_transposed ? 2 : 1)] : 1;
    return 2 * elements(query->out[0]) * inner;
}

/* Input 0 has a row of indices for each entry of the sparse matrix. */
double cost_flops_sparse_matmul(const struct cost_query *query) {
    struct shape indices = query->in[0], out = query->out[0];
    if (indices.rank < 1 || out.rank < 2)
        return 0;
    return 2 * (double)indices.dims[0] * (double)out.dims[1];
}

/* A multiplication and an addition for each position of the window and each element of the filter,
 * whatever the direction. */
double cost_flops_conv(const struct cost_query *query) {
    const char *op = query->node->op_name;
    bool is_gradient = strstr(op, "Backprop") != NULL,
         is_filter = strstr(op, "BackpropFilter") != NULL;
    struct shape places = is_gradient ? query->in[2] : query->out[0];
    struct shape filter = is_filter ? query->out[0] : query->in[1];
    return 2 * product(places, places.rank - 1) * elements(filter);
}

/* About m·n·min(m, n) for each matrix of input 0. */
double cost_flops_cubic(const struct cost_query *query) {
    struct shape a = query->in[0];
    double inner = a.rank >= 2 ? (double)MIN(a.dims[a.rank - 2], a.dims[a.rank - 1]) : 1;
    return 2 * elements(a) * inner;
}
