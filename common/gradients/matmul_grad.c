/* Differentiates products of matrices. */
#include "common/gradients/build.h"

/* C = op(A) op(B), op a transposition or not: dop(A) = dC op(B)ᴴ, dop(B) = op(A)ᴴ dC. MatMul
 * transposes without conjugating. */
static struct node_input matmul(struct gradient_ctx *g, struct node_input a, bool transpose_a,
                                struct node_input b, bool transpose_b) {
    return OP_WITH("MatMul",
                   ATTRS(ATTR_B("transpose_a", transpose_a), ATTR_B("transpose_b", transpose_b)), a,
                   b);
}

static void mat_mul_grad(struct gradient_ctx *g) {
    bool ta = gradient_attr_b(g, "transpose_a"), tb = gradient_attr_b(g, "transpose_b");
    struct node_input a = CONJ(IN(0)), b = CONJ(IN(1)), dy = DY(0);
    SET(0, ta ? matmul(g, b, tb, dy, true) : matmul(g, dy, false, b, !tb));
    SET(1, tb ? matmul(g, dy, true, a, ta) : matmul(g, a, !ta, dy, false));
}

static void batch_mat_mul_grad(struct gradient_ctx *g) {
    bool adj_a = gradient_attr_b(g, "adj_x"), adj_b = gradient_attr_b(g, "adj_y");
    struct node_input a = IN(0), b = IN(1), dy = DY(0);
    SET_SUM(0, adj_a ? gradient_matmul(g, b, adj_b, dy, true)
                     : gradient_matmul(g, dy, false, b, !adj_b));
    SET_SUM(1, adj_b ? gradient_matmul(g, dy, true, a, adj_a)
                     : gradient_matmul(g, a, !adj_a, dy, false));
}

/* Either input may be bfloat16, the product is float. */
static void sparse_mat_mul_grad(struct gradient_ctx *g) {
    bool ta = gradient_attr_b(g, "transpose_a"), tb = gradient_attr_b(g, "transpose_b");
    struct node_input dy = DY(0), a = CAST(IN(0), dy), b = CAST(IN(1), dy);
    SET(0, CAST(ta ? matmul(g, b, tb, dy, true) : matmul(g, dy, false, b, !tb), IN(0)));
    SET(1, CAST(tb ? matmul(g, dy, true, a, ta) : matmul(g, a, !ta, dy, false), IN(1)));
}

static void cross_grad(struct gradient_ctx *g) {
    SET(0, OP("Cross", IN(1), DY(0)));
    SET(1, OP("Cross", DY(0), IN(0)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("MatMul", mat_mul_grad),
    GRADIENT("BatchMatMul", batch_mat_mul_grad),
    GRADIENT("BatchMatMulV2", batch_mat_mul_grad),
    GRADIENT("BatchMatMulV3", batch_mat_mul_grad),
    GRADIENT("SparseMatMul", sparse_mat_mul_grad),
    GRADIENT("Cross", cross_grad),
};
// clang-format on

const struct gradient_list matmul_gradients = {rows, ARRAY_LEN(rows)};
