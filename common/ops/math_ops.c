/* Lists the math family: elementwise arithmetic, comparisons, reductions, products, scans, segments
 * and counts. */
#include "common/ops/op_def.h"

/* ---- shapes ---- */

/* With incompatible_shape_error false, Equal and NotEqual return a scalar for shapes that do not
 * fit. */
static struct status *shape_equality(struct shape_inference *ctx) {
    bool is_error = true;
    TRY(node_get_b(ctx->node, "incompatible_shape_error", &is_error));
    if (is_error)
        return shape_broadcast(ctx);
    if (shape_is_full(ctx->in[0]) && shape_is_full(ctx->in[1])) {
        struct status *st = shape_broadcast(ctx);
        if (!st)
            return NULL;
        status_unref(st);
    }
    ctx->out[0] = SHAPE_UNKNOWN;
    return NULL;
}

static struct status *shape_accumulate(struct shape_inference *ctx) {
    struct shape shape;
    TRY(node_get_shape(ctx->node, "shape", &shape));
    TRY(shape_merge_all_inputs(ctx));
    return shape_merge(ctx, ctx->out[0], shape, &ctx->out[0]);
}

/* Select: the condition is a scalar, or has the same shape, or is a vector that selects rows. */
static struct status *shape_select(struct shape_inference *ctx) {
    struct shape condition = ctx->in[0], data;
    TRY(shape_merge(ctx, ctx->in[1], ctx->in[2], &data));
    ctx->out[0] = data;
    if (condition.rank <= 0 || data.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    if (condition.rank == 1 && data.rank > 0) {
        int64_t rows;
        return shape_merge_dims(condition.dims[0], data.dims[0], &rows);
    }
    return shape_merge(ctx, data, condition, &ctx->out[0]);
}

static struct status *shape_select_v2(struct shape_inference *ctx) {
    struct shape data;
    TRY(shape_of_broadcast(ctx, ctx->in[1], ctx->in[2], &data));
    return shape_of_broadcast(ctx, ctx->in[0], data, &ctx->out[0]);
}

/* ArgMax: the input's shape without one dimension. */
static struct status *shape_arg(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    if (in.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    if (in.rank <= 1) {
        ctx->out[0] = SHAPE_SCALAR;
        return NULL;
    }
    const struct tensor *dimension = ctx->in_values[1];
    if (!dimension || (dimension->dtype != DT_INT32 && dimension->dtype != DT_INT64)) {
        ctx->out[0] = shape_unknown_of_rank(ctx, in.rank - 1);
        return NULL;
    }
    int64_t axis = tensor_index_at(dimension, 0), own = axis < 0 ? axis + in.rank : axis;
    if (own < 0 || own >= in.rank)
        return status_invalid("Dimension (%lld) must be in the range [%d, %d), where %d is the "
                              "number of dimensions in the input.",
                              (long long)axis, -in.rank, in.rank, in.rank);
    return shape_concat(ctx, shape_sub(ctx, in, 0, (int)own), shape_sub(ctx, in, (int)own + 1, -1),
                        &ctx->out[0]);
}

struct status *shape_matmul(struct shape_inference *ctx) {
    struct shape a, b;
    bool transpose_a = false, transpose_b = false;
    TRY(shape_require_rank(ctx, 0, 2, &a));
    TRY(shape_require_rank(ctx, 1, 2, &b));
    TRY(node_get_b(ctx->node, "transpose_a", &transpose_a));
    TRY(node_get_b(ctx->node, "transpose_b", &transpose_b));
    int64_t inner;
    TRY(shape_merge_dims(a.dims[transpose_a ? 0 : 1], b.dims[transpose_b ? 1 : 0], &inner));
    ctx->out[0] =
        shape_make(ctx, 2, (int64_t[]){a.dims[transpose_a ? 1 : 0], b.dims[transpose_b ? 0 : 1]});
    return NULL;
}

static struct status *batch_matmul(struct shape_inference *ctx, bool broadcasts) {
    bool adj_x = false, adj_y = false;
    TRY(node_get_b(ctx->node, "adj_x", &adj_x));
    TRY(node_get_b(ctx->node, "adj_y", &adj_y));
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(shape_require_rank_at_least(ctx, 1, 2));
    struct shape x = ctx->in[0], y = ctx->in[1], batch;
    if (x.rank == SHAPE_UNKNOWN_RANK || y.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    struct shape x_batch = shape_sub(ctx, x, 0, x.rank - 2),
                 y_batch = shape_sub(ctx, y, 0, y.rank - 2);
    if (broadcasts)
        TRY(shape_of_broadcast(ctx, x_batch, y_batch, &batch));
    else
        TRY(shape_merge(ctx, x_batch, y_batch, &batch));
    const int64_t *x_matrix = x.dims + x.rank - 2, *y_matrix = y.dims + y.rank - 2;
    int64_t inner;
    TRY(shape_merge_dims(x_matrix[adj_x ? 0 : 1], y_matrix[adj_y ? 1 : 0], &inner));
    struct shape product =
        shape_make(ctx, 2, (int64_t[]){x_matrix[adj_x ? 1 : 0], y_matrix[adj_y ? 0 : 1]});
    return shape_concat(ctx, batch, product, &ctx->out[0]);
}
static struct status *shape_batch_matmul(struct shape_inference *ctx) {
    return batch_matmul(ctx, false);
}
static struct status *shape_batch_matmul_v2(struct shape_inference *ctx) {
    return batch_matmul(ctx, true);
}

/* A size given by a scalar input; -1 while its value is unknown. */
static struct status *size_from_input(struct shape_inference *ctx, int input, int64_t *ret) {
    const struct tensor *value = ctx->in_values[input];
    TRY(shape_require_rank(ctx, input, 0, NULL));
    *ret = -1;
    if (!value || (value->dtype != DT_INT32 && value->dtype != DT_INT64))
        return NULL;
    *ret = tensor_index_at(value, 0);
    if (*ret < 0)
        return status_invalid(
            "Dimension size, given by scalar input %d, must be non-negative but is %lld", input,
            (long long)*ret);
    return NULL;
}

/* [n] + the dimensions of `tail` from `from` on. */
static struct status *shape_rows(struct shape_inference *ctx, int64_t n, struct shape tail,
                                 int from) {
    if (tail.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    return shape_concat(ctx, shape_make(ctx, 1, &n), shape_sub(ctx, tail, from, -1), &ctx->out[0]);
}

static struct status *shape_segment(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    return shape_rows(ctx, -1, ctx->in[0], 1);
}

static struct status *shape_unsorted_segment(struct shape_inference *ctx) {
    struct shape data = ctx->in[0], ids = ctx->in[1], merged;
    int64_t n;
    TRY(size_from_input(ctx, 2, &n));
    if (data.rank == SHAPE_UNKNOWN_RANK || ids.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    if (data.rank < ids.rank)
        return status_invalid("Shape must be at least rank %d but is rank %d: data.shape must "
                              "start with segment_ids.shape",
                              ids.rank, data.rank);
    TRY(shape_merge(ctx, shape_sub(ctx, data, 0, ids.rank), ids, &merged));
    return shape_rows(ctx, n, data, ids.rank);
}

static struct status *sparse_segment(struct shape_inference *ctx, int64_t n_rows) {
    struct shape indices, ids, both;
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(shape_require_rank(ctx, 1, 1, &indices));
    TRY(shape_require_rank(ctx, 2, 1, &ids));
    TRY(shape_merge(ctx, indices, ids, &both));
    return shape_rows(ctx, n_rows, ctx->in[0], 1);
}
static struct status *shape_sparse_segment(struct shape_inference *ctx) {
    return sparse_segment(ctx, -1);
}
static struct status *shape_sparse_segment_sized(struct shape_inference *ctx) {
    int64_t n;
    TRY(size_from_input(ctx, 3, &n));
    return sparse_segment(ctx, n);
}

static struct status *shape_bincount(struct shape_inference *ctx) {
    int64_t n;
    TRY(size_from_input(ctx, 1, &n));
    ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_dense_bincount(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    int64_t n;
    TRY(size_from_input(ctx, 1, &n));
    if (in.rank == SHAPE_UNKNOWN_RANK)
        return NULL;
    if (in.rank > 2)
        return status_invalid("Shape must be at most rank 2 but is rank %d", in.rank);
    ctx->out[0] =
        in.rank == 2 ? shape_make(ctx, 2, (int64_t[]){in.dims[0], n}) : shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_histogram(struct shape_inference *ctx) {
    struct shape range;
    int64_t n, two;
    TRY(shape_require_rank(ctx, 1, 1, &range));
    TRY(shape_merge_dims(range.dims[0], 2, &two));
    TRY(size_from_input(ctx, 2, &n));
    ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_cross(struct shape_inference *ctx) {
    struct shape both;
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(shape_require_rank_at_least(ctx, 1, 1));
    TRY(shape_merge(ctx, ctx->in[0], ctx->in[1], &both));
    if (both.rank >= 1) {
        int64_t three;
        TRY(shape_merge_dims(both.dims[both.rank - 1], 3, &three));
    }
    ctx->out[0] = both;
    return NULL;
}

/* ---- rows ---- */

/* All inputs that are not scalars must have one shape. */
static struct status *shape_betainc(struct shape_inference *ctx) {
    struct shape merged = SHAPE_SCALAR;
    bool is_open = false; /* an input of unknown rank may have any shape */
    for (int i = 0; i < 3; i++) {
        is_open = is_open || ctx->in[i].rank < 0;
        if (ctx->in[i].rank > 0 && merged.rank == 0)
            merged = ctx->in[i];
        else if (ctx->in[i].rank > 0)
            TRY(shape_merge(ctx, merged, ctx->in[i], &merged));
    }
    ctx->out[0] = merged.rank == 0 && is_open ? SHAPE_UNKNOWN : merged;
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"Neg", "-x", shape_same_as_input},
    {"CheckNumerics", "the input, or an error when anything in it is infinite or NaN",
     shape_same_as_input},
    {"CheckNumericsV2", "CheckNumerics that says the sign of infinities", shape_same_as_input},
    {"Abs", "|x|", shape_same_as_input},
    {"ComplexAbs", "the magnitude of a complex number", shape_same_as_input},
    {"Sign", "-1, 0 or 1; of a complex number x / |x|", shape_same_as_input},
    {"Square", "x²", shape_same_as_input},
    {"Sqrt", "√x", shape_same_as_input},
    {"Rsqrt", "1 / √x", shape_same_as_input},
    {"Reciprocal", "1 / x", shape_same_as_input},
    {"Inv", "1 / x", shape_same_as_input},
    {"Exp", "e^x", shape_same_as_input},
    {"Expm1", "e^x - 1", shape_same_as_input},
    {"Log", "the natural logarithm", shape_same_as_input},
    {"Log1p", "log(1 + x)", shape_same_as_input},
    {"Sin", "sine", shape_same_as_input},
    {"Cos", "cosine", shape_same_as_input},
    {"Tan", "tangent", shape_same_as_input},
    {"Asin", "inverse sine", shape_same_as_input},
    {"Acos", "inverse cosine", shape_same_as_input},
    {"Atan", "inverse tangent", shape_same_as_input},
    {"Sinh", "hyperbolic sine", shape_same_as_input},
    {"Cosh", "hyperbolic cosine", shape_same_as_input},
    {"Tanh", "hyperbolic tangent", shape_same_as_input},
    {"Asinh", "inverse hyperbolic sine", shape_same_as_input},
    {"Acosh", "inverse hyperbolic cosine", shape_same_as_input},
    {"Atanh", "inverse hyperbolic tangent", shape_same_as_input},
    {"Sigmoid", "1 / (1 + e^-x)", shape_same_as_input},
    {"Erf", "the error function", shape_same_as_input},
    {"Erfc", "1 - erf(x)", shape_same_as_input},
    {"Erfinv", "the inverse of the error function", shape_same_as_input},
    {"Ndtri", "the quantile of the standard normal distribution", shape_same_as_input},
    {"Lgamma", "log |Γ(x)|", shape_same_as_input},
    {"Digamma", "the derivative of log Γ(x)", shape_same_as_input},
    {"BesselI0", "the modified Bessel function I0", shape_same_as_input},
    {"BesselI1", "the modified Bessel function I1", shape_same_as_input},
    {"BesselI0e", "e^-|x| I0(x)", shape_same_as_input},
    {"BesselI1e", "e^-|x| I1(x)", shape_same_as_input},
    {"BesselK0", "the modified Bessel function K0", shape_same_as_input},
    {"BesselK1", "the modified Bessel function K1", shape_same_as_input},
    {"BesselK0e", "e^x K0(x)", shape_same_as_input},
    {"BesselK1e", "e^x K1(x)", shape_same_as_input},
    {"BesselY0", "the Bessel function Y0", shape_same_as_input},
    {"BesselY1", "the Bessel function Y1", shape_same_as_input},
    {"Dawsn", "Dawson's integral", shape_same_as_input},
    {"Expint", "the exponential integral Ei", shape_same_as_input},
    {"Spence", "the dilogarithm of 1 - x", shape_same_as_input},
    {"FresnelCos", "Fresnel's integral C", shape_same_as_input},
    {"FresnelSin", "Fresnel's integral S", shape_same_as_input},
    {"BesselJ0", "the Bessel function J0", shape_same_as_input},
    {"BesselJ1", "the Bessel function J1", shape_same_as_input},
    {"Zeta", "Hurwitz' zeta function of x and q", shape_broadcast},
    {"Polygamma", "the derivative of order a of the digamma function", shape_broadcast},
    {"Igamma", "the lower incomplete gamma function, as a share of the whole", shape_broadcast},
    {"Igammac", "the upper one", shape_broadcast},
    {"Betainc", "the regularized incomplete beta function", shape_betainc},
    {"IgammaGradA", "the derivative of Igamma by a", shape_broadcast},
    {"RandomGammaGrad", "how a sample of the gamma distribution moves with its shape",
     shape_broadcast},
    {"Floor", "the largest integer not above x", shape_same_as_input},
    {"Ceil", "the least integer not below x", shape_same_as_input},
    {"Round", "the nearest integer, ties to even", shape_same_as_input},
    {"Rint", "the nearest integer, ties to even", shape_same_as_input},
    {"IsNan", "is x not a number?", shape_same_as_input},
    {"IsInf", "is x infinite?", shape_same_as_input},
    {"IsFinite", "is x neither infinite nor NaN?", shape_same_as_input},
    {"LogicalNot", "not x", shape_same_as_input},
    {"Invert", "every bit flipped", shape_same_as_input},
    {"PopulationCount", "the number of bits that are set", shape_same_as_input},
    {"Conj", "the complex conjugate", shape_same_as_input},
    {"Real", "the real part", shape_same_as_input},
    {"Imag", "the imaginary part", shape_same_as_input},
    {"Angle", "the argument of a complex number", shape_same_as_input},
    {"SqrtGrad", "dy / 2y, for y = √x", shape_same_as_input},
    {"RsqrtGrad", "-dy y³ / 2, for y = 1 / √x", shape_same_as_input},
    {"ReciprocalGrad", "-dy y², for y = 1 / x", shape_same_as_input},
    {"InvGrad", "-dy y², for y = 1 / x", shape_same_as_input},
    {"SigmoidGrad", "dy y (1 - y), for y = sigmoid(x)", shape_same_as_input},
    {"TanhGrad", "dy (1 - y²), for y = tanh(x)", shape_same_as_input},
    {"Add", "x + y; strings are joined", shape_broadcast},
    {"AddV2", "x + y", shape_broadcast},
    {"Sub", "x - y", shape_broadcast},
    {"Mul", "x · y", shape_broadcast},
    {"MulNoNan", "x · y, and 0 where y is 0 whatever x is", shape_broadcast},
    {"Div", "x / y; integers towards zero", shape_broadcast},
    {"RealDiv", "x / y", shape_broadcast},
    {"TruncateDiv", "x / y towards zero", shape_broadcast},
    {"FloorDiv", "x / y towards minus infinity", shape_broadcast},
    {"DivNoNan", "x / y, and 0 where y is 0", shape_broadcast},
    {"FloorMod", "what FloorDiv leaves over: it has y's sign", shape_broadcast},
    {"Mod", "what TruncateDiv leaves over: it has x's sign", shape_broadcast},
    {"TruncateMod", "what TruncateDiv leaves over: it has x's sign", shape_broadcast},
    {"Maximum", "the larger of x and y; NaN when either is", shape_broadcast},
    {"Minimum", "the smaller of x and y; NaN when either is", shape_broadcast},
    {"Pow", "x to the power of y", shape_broadcast},
    {"SquaredDifference", "(x - y) times its conjugate", shape_broadcast},
    {"Atan2", "the angle of the point (x, y)", shape_broadcast},
    {"Xlogy", "x log y, and 0 where x is 0", shape_broadcast},
    {"Xdivy", "x / y, and 0 where x is 0", shape_broadcast},
    {"Xlog1py", "x log(1 + y), and 0 where x is 0", shape_broadcast},
    {"Complex", "the complex number of two parts", shape_broadcast},
    {"BitwiseAnd", "bits set in both", shape_broadcast},
    {"BitwiseOr", "bits set in either", shape_broadcast},
    {"BitwiseXor", "bits set in one", shape_broadcast},
    {"LeftShift", "x · 2^y, bit by bit; y is held to the type's width", shape_broadcast},
    {"RightShift", "x / 2^y, bit by bit; signed numbers keep their sign", shape_broadcast},
    {"NextAfter", "the float after x towards y", shape_broadcast},
    {"ApproximateEqual", "|x - y| < tolerance", shape_merge_two_inputs},
    {"Equal", "x == y", shape_equality},
    {"NotEqual", "x != y", shape_equality},
    {"Less", "x < y", shape_broadcast},
    {"LessEqual", "x <= y", shape_broadcast},
    {"Greater", "x > y", shape_broadcast},
    {"GreaterEqual", "x >= y", shape_broadcast},
    {"LogicalAnd", "x and y", shape_broadcast},
    {"LogicalOr", "x or y", shape_broadcast},
    {"Cast", "the same numbers in another type", shape_same_as_input},
    {"Select", "then where the condition holds, else the other; a vector condition picks rows",
     shape_select},
    {"SelectV2", "then where the condition holds, else the other, broadcast", shape_select_v2},
    {"ClipByValue", "t held between two limits", shape_same_as_input},
    {"AddN", "the sum of all inputs", shape_merge_all_inputs},
    {"AccumulateNV2", "the sum of all inputs", shape_accumulate},
    {"Sum", "the sum along axes", shape_reduction},
    {"Prod", "the product along axes", shape_reduction},
    {"Mean", "the mean along axes", shape_reduction},
    {"Max", "the largest along axes; NaN when any is", shape_reduction},
    {"Min", "the smallest along axes; NaN when any is", shape_reduction},
    {"All", "do all hold along axes?", shape_reduction},
    {"Any", "does any hold along axes?", shape_reduction},
    {"EuclideanNorm", "the root of the sum of squares along axes", shape_reduction},
    {"ArgMax", "the place of the largest along a dimension, the first of equals", shape_arg},
    {"ArgMin", "the place of the smallest along a dimension, the first of equals", shape_arg},
    {"Cumsum", "running sums along an axis", shape_same_as_input},
    {"Cumprod", "running products along an axis", shape_same_as_input},
    {"CumulativeLogsumexp", "running log(sum of exp) along an axis", shape_same_as_input},
    {"MatMul", "the matrix product, each side transposed if asked", shape_matmul},
    {"BatchMatMul", "matrix products of two stacks of matrices", shape_batch_matmul},
    {"BatchMatMulV2", "matrix products of two stacks of matrices, stacks broadcast",
     shape_batch_matmul_v2},
    {"BatchMatMulV3",
     "matrix products of two stacks of matrices, stacks broadcast, the result's type chosen",
     shape_batch_matmul_v2},
    {"Cross", "the cross product of vectors of 3", shape_cross},
    {"SegmentSum", "sums of rows by sorted segment id", shape_segment},
    {"SegmentMean", "means of rows by sorted segment id", shape_segment},
    {"SegmentProd", "products of rows by sorted segment id", shape_segment},
    {"SegmentMin", "least elements of rows by sorted segment id", shape_segment},
    {"SegmentMax", "largest elements of rows by sorted segment id", shape_segment},
    {"UnsortedSegmentSum", "sums by segment id; negative ids are left out", shape_unsorted_segment},
    {"UnsortedSegmentProd", "products by segment id; negative ids are left out",
     shape_unsorted_segment},
    {"UnsortedSegmentMin", "least elements by segment id; negative ids are left out",
     shape_unsorted_segment},
    {"UnsortedSegmentMax", "largest elements by segment id; negative ids are left out",
     shape_unsorted_segment},
    {"SparseSegmentSum", "sums of gathered rows by sorted segment id", shape_sparse_segment},
    {"SparseSegmentMean", "means of gathered rows by sorted segment id", shape_sparse_segment},
    {"SparseSegmentSqrtN",
     "sums of gathered rows by sorted segment id, over the root of their number",
     shape_sparse_segment},
    {"SparseSegmentSumWithNumSegments", "SparseSegmentSum with the number of segments given",
     shape_sparse_segment_sized},
    {"SparseSegmentMeanWithNumSegments", "SparseSegmentMean with the number of segments given",
     shape_sparse_segment_sized},
    {"SparseSegmentSqrtNWithNumSegments", "SparseSegmentSqrtN with the number of segments given",
     shape_sparse_segment_sized},
    {"SparseSegmentSumGrad", "SparseSegmentSum's gradient for its data",
     shape_sparse_segment_sized},
    {"SparseSegmentMeanGrad", "SparseSegmentMean's gradient for its data",
     shape_sparse_segment_sized},
    {"SparseSegmentSqrtNGrad", "SparseSegmentSqrtN's gradient for its data",
     shape_sparse_segment_sized},
    {"Bincount", "how often each integer occurs, or the sum of its weights", shape_bincount},
    {"DenseBincount", "how often each integer occurs, or the sum of its weights, row by row",
     shape_dense_bincount},
    {"HistogramFixedWidth", "counts in bins of equal width", shape_histogram},
};
// clang-format on

const struct op_def_list math_ops = {rows, ARRAY_LEN(rows)};
