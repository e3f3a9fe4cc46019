/* Differentiates matrices in compressed rows (CSR). The gradient of such a matrix is one with the
 * same elements: elements that are not there have no gradient. A' is A, transposed or adjoint as
 * the attrs say. */
#include "common/gradients/linalg.h"

/* ---- conversions ---- */

/* (indices, values, shape) of the elements of a matrix. */
static struct node_input elements(struct gradient_ctx *g, struct node_input csr, enum dtype type) {
    return OP_WITH("CSRSparseMatrixToSparseTensor", ATTRS(ATTR_T("type", type)), csr);
}

static struct node_input to_dense(struct gradient_ctx *g, struct node_input csr, enum dtype type) {
    return OP_WITH("CSRSparseMatrixToDense", ATTRS(ATTR_T("type", type)), csr);
}

static struct node_input to_csr(struct gradient_ctx *g, struct node_input indices,
                                struct node_input values, struct node_input shape) {
    return OP("SparseTensorToCSRSparseMatrix", indices, values, shape);
}

static enum dtype element_type(struct gradient_ctx *g) {
    enum dtype type = DT_FLOAT;
    if (!g->status)
        g->status = node_get_type(g->node, "type", &type);
    return type;
}

/* (dense, indices) */
static void dense_to_csr_grad(struct gradient_ctx *g) {
    SET(0, to_dense(g, DY(0), gradient_dtype(IN(0))));
}

static void csr_to_dense_grad(struct gradient_ctx *g) {
    struct node_input of = elements(g, IN(0), gradient_dtype(OUT(0)));
    SET(0, to_csr(g, of, OP("GatherNd", DY(0), of), gradient_second(of, 2)));
}

/* (indices, values, shape) */
static void sparse_tensor_to_csr_grad(struct gradient_ctx *g) {
    SET(1, SECOND(elements(g, DY(0), gradient_dtype(IN(1)))));
}
static void csr_to_sparse_tensor_grad(struct gradient_ctx *g) {
    SET(0, to_csr(g, OUT(0), DY(1), OUT(2)));
}

static void transpose_grad(struct gradient_ctx *g) { SET(0, LIKE("SparseMatrixTranspose", DY(0))); }

/* ---- products ---- */

/* How an attr pair transposes an input: A' = op(A). */
enum side { AS_IS, TRANSPOSED, ADJOINT };

static enum side side_of(struct gradient_ctx *g, const char *transpose, const char *adjoint) {
    return gradient_attr_b(g, adjoint)     ? ADJOINT
           : gradient_attr_b(g, transpose) ? TRANSPOSED
                                           : AS_IS;
}

static struct node_input transposed(struct gradient_ctx *g, struct node_input a) {
    return CONJ(gradient_adjoint(g, a));
}

static struct node_input as_side(struct gradient_ctx *g, struct node_input a, enum side side) {
    return side == ADJOINT ? gradient_adjoint(g, a) : side == TRANSPOSED ? transposed(g, a) : a;
}

/* The gradient of A, at the elements of A, where that of A' is x yᵀ. Only the rows of x and y that
 * belong to elements are multiplied. */
static struct node_input at_elements(struct gradient_ctx *g, struct node_input csr, enum side side,
                                     struct node_input x, struct node_input y) {
    struct node_input of = elements(g, csr, gradient_dtype(x)), shape = SHAPE(of);
    struct node_input rank = gradient_element(g, shape, 1), zeros = I32S(0, 0), minus = I32S(-1);
    struct node_input n_batch = RESHAPE(SUB(rank, I32(2)), I32S(1));
    struct node_input rows = OP("Slice", of, zeros, CONCAT(minus, ADD(n_batch, I32(1))));
    struct node_input batch = OP("Slice", of, zeros, CONCAT(minus, n_batch));
    struct node_input last = OP("Slice", of, CONCAT(I32S(0), ADD(n_batch, I32(1))), I32S(-1, 1));
    struct node_input columns = OP("ConcatV2", batch, last, I32(1));
    struct node_input of_x = OP("GatherNd", x, side == AS_IS ? rows : columns);
    struct node_input of_y = OP("GatherNd", y, side == AS_IS ? columns : rows);
    struct node_input values = SUM(MUL(of_x, of_y), I32(-1));
    return to_csr(g, of, side == ADJOINT ? CONJ(values) : values, gradient_second(of, 2));
}

/* C = A' B' with a dense B, then transposed and conjugated as the attrs say:
 * dA' = dC B'ᴴ, dB' = A'ᴴ dC */
static void mat_mul_grad(struct gradient_ctx *g) {
    enum side a = side_of(g, "transpose_a", "adjoint_a"),
              b = side_of(g, "transpose_b", "adjoint_b");
    struct node_input dc = DY(0), db;
    if (gradient_attr_b(g, "conjugate_output"))
        dc = CONJ(dc);
    if (gradient_attr_b(g, "transpose_output"))
        dc = transposed(g, dc);
    SET(0, at_elements(g, IN(0), a, dc, CONJ(as_side(g, IN(1), b))));
    if (a == TRANSPOSED) /* conj(A) dC */
        db = CONJ(OP("SparseMatrixMatMul", IN(0), CONJ(dc)));
    else
        db = OP_WITH("SparseMatrixMatMul", ATTRS(ATTR_B("adjoint_a", a == AS_IS)), IN(0), dc);
    SET(1, as_side(g, db, b));
}

/* C = A' B', both sparse. */
static void sparse_mat_mul_grad(struct gradient_ctx *g) {
    enum dtype type = element_type(g);
    enum side a = side_of(g, "transpose_a", "adjoint_a"),
              b = side_of(g, "transpose_b", "adjoint_b");
    struct node_input dc = to_dense(g, DY(0), type), left = as_side(g, to_dense(g, IN(0), type), a),
                      right = as_side(g, to_dense(g, IN(1), type), b);
    SET(0, at_elements(g, IN(0), a, dc, CONJ(right)));
    SET(1, at_elements(g, IN(1), b, gradient_adjoint(g, left), transposed(g, dc)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("SparseTensorToCSRSparseMatrix", sparse_tensor_to_csr_grad),
    GRADIENT("DenseToCSRSparseMatrix", dense_to_csr_grad),
    GRADIENT("CSRSparseMatrixToSparseTensor", csr_to_sparse_tensor_grad),
    GRADIENT("CSRSparseMatrixToDense", csr_to_dense_grad),
    GRADIENT("SparseMatrixTranspose", transpose_grad),
    GRADIENT("SparseMatrixMatMul", mat_mul_grad),
    GRADIENT("SparseMatrixSparseMatMul", sparse_mat_mul_grad),
    UNDEFINED_GRADIENT("CSRSparseMatrixComponents"),
    NO_GRADIENT("SparseMatrixNNZ"),
};
// clang-format on

const struct gradient_list csr_gradients = {rows, ARRAY_LEN(rows)};
