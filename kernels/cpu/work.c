/* Estimates of an execution's time: kernels/work.h. All in nanoseconds, as doubles: nothing
 * overflows. */
#include "kernels/kernel.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"
#include "kernels/work.h"

#include "common/base/map.h"
#include "kernels/host/resources/tensor_array.h"
#include "kernels/host/resources/tensor_list.h"

enum {
    /* elements: what two such inputs can make of each other is cheap, where an element of it is */
    FEW = 200,
    MANY = 256, /* things: more are not looked at */
};

static double of_elements(const struct kernel_ctx *ctx, double n) {
    float cost = ctx->instance->def->cost_ns_per_element;
    return n * (double)(cost > 0 ? cost : 0.5f);
}

static const struct tensor *value_of(const struct kernel_ctx *ctx, int input) {
    const struct tensor *t = input < ctx->instance->n_inputs ? &ctx->inputs[input] : NULL;
    return t && tensor_has_value(t) ? t : NULL;
}

static double n_of(const struct kernel_ctx *ctx, int input) {
    const struct tensor *t = value_of(ctx, input);
    return t ? (double)t->n_elements : 0;
}

static bool is_index(const struct tensor *t) {
    return t && (t->dtype == DT_INT32 || t->dtype == DT_INT64);
}

static double index_at(const struct tensor *t, int64_t i) {
    return (double)MAX(tensor_index_at(t, i), (int64_t)0);
}

/* Of the sizes in an input; 0 where one of them is bad: that ends in an error. */
static double product_of(const struct kernel_ctx *ctx, int input) {
    const struct tensor *t = value_of(ctx, input);
    double n = 1;
    for (int64_t i = 0; is_index(t) && i < MIN(t->n_elements, (int64_t)SHAPE_MAX_RANK); i++)
        n *= index_at(t, i);
    return is_index(t) ? n : 0;
}

/* ---- the output's shape is an input ---- */

static double shape_in_0(const struct kernel_ctx *ctx) {
    return of_elements(ctx, product_of(ctx, 0));
}
static double shape_in_0_and_values(const struct kernel_ctx *ctx) {
    return of_elements(ctx, product_of(ctx, 0) + n_of(ctx, 1));
}
static double shape_in_1(const struct kernel_ctx *ctx) {
    return of_elements(ctx, product_of(ctx, 1));
}
static double shape_in_1_and_all(const struct kernel_ctx *ctx) {
    return of_elements(ctx, product_of(ctx, 1) + n_of(ctx, 0) + n_of(ctx, 2));
}
static double shape_in_3(const struct kernel_ctx *ctx) {
    return of_elements(ctx, product_of(ctx, 3) + n_of(ctx, 0));
}
static double shape_in_2(const struct kernel_ctx *ctx) {
    return of_elements(ctx, product_of(ctx, 2) + n_of(ctx, 1));
}
/* A number for each parameter, so many times; drawing one takes longer than writing it. */
static double draws(const struct kernel_ctx *ctx) {
    return 20 * product_of(ctx, 0) * MAX(n_of(ctx, 1), 1.0);
}
static double many_draws(const struct kernel_ctx *ctx) { return 30 * product_of(ctx, 0); }
static double random_in_0(const struct kernel_ctx *ctx) { return 2 * product_of(ctx, 0); }
static double random_in_2(const struct kernel_ctx *ctx) { return 2 * product_of(ctx, 2); }
static double many_draws_in_2(const struct kernel_ctx *ctx) { return 30 * product_of(ctx, 2); }
static double times_1(const struct kernel_ctx *ctx) {
    return of_elements(ctx, MAX(n_of(ctx, 0), 1.0) * product_of(ctx, 1));
}

static double sampled(const struct kernel_ctx *ctx) {
    const struct tensor *logits = value_of(ctx, 0);
    double n_rows = logits && logits->rank > 0 ? (double)tensor_dim(logits, 0) : 0;
    return 20 * n_rows * product_of(ctx, 1) + 5 * n_of(ctx, 0);
}

/* A row of segment_sum's output for each segment, whatever comes in. */
static double segments(const struct kernel_ctx *ctx) {
    double row = n_of(ctx, 0) / MAX(n_of(ctx, 1), 1.0);
    return of_elements(ctx, n_of(ctx, 0) + product_of(ctx, 2) * row);
}

/* The same where the number of rows is input 3: gradients of embeddings' sums. */
static double sparse_segments(const struct kernel_ctx *ctx) {
    const struct tensor *data = value_of(ctx, 0);
    double row =
        data && data->rank > 0 ? n_of(ctx, 0) / (double)MAX(tensor_dim(data, 0), (int64_t)1) : 0;
    return of_elements(ctx, n_of(ctx, 0) + (product_of(ctx, 3) + n_of(ctx, 1)) * row);
}

static double number_at(const struct tensor *t) {
    switch (t && t->n_elements == 1 ? t->dtype : DT_INVALID) {
    case DT_INT32:
        return *(const int32_t *)tensor_cdata(t);
    case DT_INT64:
        return (double)*(const int64_t *)tensor_cdata(t);
    case DT_FLOAT:
        return (double)*(const float *)tensor_cdata(t);
    case DT_DOUBLE:
        return *(const double *)tensor_cdata(t);
    default:
        return 0;
    }
}

static double range(const struct kernel_ctx *ctx) {
    double n =
        (number_at(value_of(ctx, 1)) - number_at(value_of(ctx, 0))) / number_at(value_of(ctx, 2));
    return n > 0 ? of_elements(ctx, n) : 0; /* not of a step of zero, nor of what is no number */
}

/* Rows of start to limit, in steps of delta; each may be one number for all. */
static double ragged_range(const struct kernel_ctx *ctx) {
    const struct tensor *starts = value_of(ctx, 0), *limits = value_of(ctx, 1);
    double n = MAX(n_of(ctx, 0), MAX(n_of(ctx, 1), n_of(ctx, 2))), total = n;
    if (starts && limits && starts->n_elements == 1 && limits->n_elements == 1)
        return of_elements(ctx, n * range(ctx));
    for (int64_t i = 0; is_index(limits) && i < MIN(limits->n_elements, (int64_t)MANY); i++)
        total += index_at(limits, i);
    return of_elements(ctx, total);
}

static double projected(const struct kernel_ctx *ctx) {
    const struct tensor *images = value_of(ctx, 0);
    if (!images || images->rank != 4)
        return 0;
    return 10 * (double)tensor_dim(images, 0) * (double)tensor_dim(images, 3) * product_of(ctx, 2);
}

static double padded(const struct kernel_ctx *ctx) {
    const struct tensor *t = value_of(ctx, 0), *pads = value_of(ctx, 1);
    double n = 1;
    if (!t || !is_index(pads) || pads->n_elements != 2 * t->rank)
        return 0;
    for (int d = 0; d < t->rank; d++)
        n *= (double)tensor_dim(t, d) + index_at(pads, 2 * d) + index_at(pads, 2 * d + 1);
    return of_elements(ctx, n);
}

static double resized(const struct kernel_ctx *ctx) {
    const struct tensor *images = value_of(ctx, 0);
    if (!images || images->rank != 4)
        return 0;
    return 5 * (double)tensor_dim(images, 0) * (double)tensor_dim(images, 3) * product_of(ctx, 1) +
           of_elements(ctx, n_of(ctx, 0));
}

static double cropped(const struct kernel_ctx *ctx) {
    const struct tensor *images = value_of(ctx, 0), *boxes = value_of(ctx, 1);
    if (!images || images->rank != 4 || !boxes || boxes->rank != 2)
        return 0;
    return 5 * (double)tensor_dim(boxes, 0) * (double)tensor_dim(images, 3) * product_of(ctx, 3);
}

/* A vector becomes a matrix. */
static double diagonal(const struct kernel_ctx *ctx) {
    const struct tensor *t = value_of(ctx, 0);
    return t && t->rank > 0 ? of_elements(ctx, n_of(ctx, 0) * (double)tensor_dim(t, t->rank - 1))
                            : 0;
}
/* The same; its numbers of rows and columns may be said, -1 where they are not. */
static double diagonal_in(const struct kernel_ctx *ctx) {
    const struct tensor *t = value_of(ctx, 0);
    double batch =
        t && t->rank > 0 ? n_of(ctx, 0) / (double)MAX(tensor_dim(t, t->rank - 1), (int64_t)1) : 0;
    double last = t && t->rank > 0 ? (double)tensor_dim(t, t->rank - 1) : 0,
           rows = number_at(value_of(ctx, 2)), columns = number_at(value_of(ctx, 3));
    return of_elements(ctx, batch * MAX(rows, last) * MAX(columns, last));
}
static double diagonal_of_all(const struct kernel_ctx *ctx) {
    return of_elements(ctx, n_of(ctx, 0) * n_of(ctx, 0));
}

/* ---- what inputs make of each other ---- */

static double all_inputs(const struct kernel_ctx *ctx) {
    double n = 0;
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        n += n_of(ctx, i);
    return of_elements(ctx, n);
}

static double broadcast(const struct kernel_ctx *ctx) {
    double n = 1;
    int rank = 0;
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        rank = MAX(rank, value_of(ctx, i) ? ctx->inputs[i].rank : 0);
    for (int d = 1; d <= rank; d++) { /* from the last one */
        int64_t size = 1;
        for (int i = 0; i < ctx->instance->n_inputs; i++) {
            const struct tensor *t = value_of(ctx, i);
            int64_t own = t && d <= t->rank ? tensor_dim(t, t->rank - d) : 1;
            size = own != 1 ? own : size;
        }
        n *= (double)size;
    }
    return of_elements(ctx, n);
}

/* Rows times depth times columns. */
static double matrix_product(const struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    const struct tensor *a = value_of(ctx, 0), *b = value_of(ctx, 1);
    bool transposes = false;
    if (!a || !b || a->rank < 2 || b->rank < 2 || a->n_elements == 0 || b->n_elements == 0)
        return 0;
    status_unref(node_get_b(node, node->op_name[0] == 'M' ? "transpose_a" : "adj_x", &transposes));
    double depth = (double)tensor_dim(a, a->rank - (transposes ? 2 : 1));
    double columns =
        (double)tensor_dim(b, b->rank - 1) * (double)tensor_dim(b, b->rank - 2) / depth;
    return of_elements(ctx, MAX(n_of(ctx, 0), n_of(ctx, 1))) +
           0.1 * n_of(ctx, 0) * MAX(columns, 1.0);
}

/* Of two operands: not more than this, whatever the equation says. */
static double einsum(const struct kernel_ctx *ctx) {
    const struct tensor *a = value_of(ctx, 0), *b = value_of(ctx, 1);
    double columns = b && a && a->rank <= 1 ? n_of(ctx, 1) : 1;
    if (b && b->rank > 1) {
        int64_t least = INT64_MAX;
        for (int d = 0; d < b->rank; d++)
            least = MIN(least, tensor_dim(b, d));
        columns = n_of(ctx, 1) / (double)MAX(least, (int64_t)1);
    }
    return of_elements(ctx, MAX(n_of(ctx, 0), n_of(ctx, 1))) + 0.1 * n_of(ctx, 0) * columns;
}

static double sparse_product(const struct kernel_ctx *ctx) {
    const struct tensor *b = value_of(ctx, 3);
    double columns = b && b->rank == 2 ? (double)MAX(tensor_dim(b, 0), tensor_dim(b, 1)) : 1;
    return n_of(ctx, 1) * columns + of_elements(ctx, n_of(ctx, 3));
}

/* ---- a little of much ---- */

/* A copy of `n` slices. */
static double slices(const struct tensor *from, double n_slices, double slice_len) {
    double element = dtype_is_object((enum dtype)from->dtype)
                         ? 20
                         : (double)dtype_size((enum dtype)from->dtype) * 0.1;
    return n_slices * (5 + slice_len * element);
}

static double gathered(const struct tensor *from, const struct kernel_ctx *ctx, int64_t axis,
                       int64_t n_batch_dims) {
    axis = axis < 0 && from ? axis + from->rank : axis;
    if (!from || axis < 0 || axis >= from->rank || tensor_dim(from, (int)axis) == 0)
        return 0;
    double outer = 1, inner = 1;
    /* the indices have those of the batch themselves */
    for (int64_t d = MAX(n_batch_dims, (int64_t)0); d < axis; d++)
        outer *= (double)tensor_dim(from, (int)d);
    for (int d = (int)axis + 1; d < from->rank; d++)
        inner *= (double)tensor_dim(from, d);
    return slices(from, outer * n_of(ctx, 1), inner);
}

static double gather(const struct kernel_ctx *ctx) {
    const struct tensor *axis = value_of(ctx, 2), *indices = value_of(ctx, 1);
    int64_t n_batch_dims = 0;
    if (axis && indices && indices->rank > 1)
        status_unref(node_get_i(ctx->instance->node, "batch_dims", &n_batch_dims));
    return gathered(value_of(ctx, 0), ctx,
                    is_index(axis) && axis->n_elements == 1 ? tensor_index_at(axis, 0) : 0,
                    n_batch_dims);
}

static double gathered_nd(const struct tensor *from, const struct kernel_ctx *ctx) {
    const struct tensor *indices = value_of(ctx, 1);
    if (!from || !indices || indices->rank == 0)
        return 0;
    int64_t depth = tensor_dim(indices, indices->rank - 1);
    double inner = 1, n_slices = 1;
    for (int64_t d = depth; d < from->rank; d++)
        inner *= (double)tensor_dim(from, (int)d);
    for (int d = 0; d + 1 < indices->rank; d++)
        n_slices *= (double)tensor_dim(indices, d);
    return slices(from, n_slices, inner);
}

static double gather_nd(const struct kernel_ctx *ctx) { return gathered_nd(value_of(ctx, 0), ctx); }

/* Of the variable that a handle names, as it is now. */
static double of_variable(const struct kernel_ctx *ctx,
                          double (*estimate)(const struct tensor *value,
                                             const struct kernel_ctx *ctx)) {
    struct variable *variable;
    struct status *st = variable_of_input((struct kernel_ctx *)ctx, 0, &variable);
    if (st) {
        status_unref(st);
        return 0;
    }
    pthread_mutex_lock(&variable->lock);
    double ns = tensor_has_value(&variable->value) ? estimate(&variable->value, ctx) : 0;
    pthread_mutex_unlock(&variable->lock);
    object_unref(&variable->object);
    return ns;
}

static double gathered_rows(const struct tensor *from, const struct kernel_ctx *ctx) {
    return gathered(from, ctx, 0, 0);
}
static double resource_gather(const struct kernel_ctx *ctx) {
    return of_variable(ctx, gathered_rows);
}
static double resource_gather_nd(const struct kernel_ctx *ctx) {
    return of_variable(ctx, gathered_nd);
}

/* ---- containers ---- */

/* n elements like the first one that there is. */
static double of_alike(const struct tensor *t, double n) {
    return tensor_has_value(t) ? slices(t, n, (double)t->n_elements) : 0;
}

static double tensor_array(const struct kernel_ctx *ctx) {
    struct tensor_array *array;
    struct status *st = tensor_array_of_input((struct kernel_ctx *)ctx, &array);
    if (st) {
        status_unref(st);
        return 0;
    }
    pthread_mutex_lock(&array->lock);
    double ns = 0;
    for (int64_t i = 0; ns == 0 && i < MIN(array->n, (int64_t)MANY); i++)
        ns = of_alike(&array->elements[i].value, (double)array->n);
    pthread_mutex_unlock(&array->lock);
    object_unref(&array->object);
    return ns;
}

static double tensor_list(const struct kernel_ctx *ctx) {
    const struct tensor *t = value_of(ctx, 0);
    const struct object *object = t && t->dtype == DT_VARIANT && t->n_elements == 1
                                      ? *(struct object *const *)tensor_cdata(t)
                                      : NULL;
    if (!object || object->type != &tensor_list_type)
        return 0;
    const struct tensor_list *list = CONTAINER_OF(object, const struct tensor_list, object);
    double ns = 0;
    for (int64_t i = 0; ns == 0 && i < MIN(list->n, (int64_t)MANY); i++)
        ns = of_alike(&list->elements[i], (double)list->n);
    return ns;
}

/* ---- strings: their bytes ---- */

static double text(const struct kernel_ctx *ctx) {
    double ns = 0;
    for (int i = 0; i < ctx->instance->n_inputs; i++) {
        const struct tensor *t = value_of(ctx, i);
        if (!t)
            continue;
        ns += of_elements(ctx, (double)t->n_elements);
        for (int64_t k = 0; t->dtype == DT_STRING && k < t->n_elements && ns <= KERNEL_CHEAP_NS;
             k++)
            ns += 20 + 2 * (double)tensor_string(t, k).len;
    }
    return ns;
}

static double joined_segments(const struct kernel_ctx *ctx) {
    return 20 * product_of(ctx, 2) + text(ctx);
}

/* ---- the table ---- */

// clang-format off
static const struct kernel_work table[] = {
    {"Fill", shape_in_0, -1}, {"Empty", shape_in_0, -1}, {"BroadcastTo", shape_in_1, -1}, {"SparseToDense", shape_in_1_and_all, -1},
    {"ScatterNd", shape_in_2, -1}, {"LinSpace", shape_in_2, -1}, {"Range", range, -1}, {"Tile", times_1, -1}, {"OneHot", times_1, -1},
    {"Pad", padded, -1}, {"PadV2", padded, -1}, {"MirrorPad", padded, -1}, {"Bincount", shape_in_1_and_all, -1}, {"DenseBincount", times_1, -1},
    {"ResizeArea", resized, -1}, {"ResizeBicubic", resized, -1}, {"ResizeBilinear", resized, -1}, {"ResizeNearestNeighbor", resized, -1},
    {"ScaleAndTranslate", resized, -1}, {"CropAndResize", cropped, -1},
    {"UnsortedSegmentSum", segments, -1}, {"UnsortedSegmentProd", segments, -1}, {"UnsortedSegmentMax", segments, -1},
    {"UnsortedSegmentMin", segments, -1}, {"SparseSegmentSumGrad", sparse_segments, -1}, {"SparseSegmentMeanGrad", sparse_segments, -1},
    {"SparseSegmentSqrtNGrad", sparse_segments, -1}, {"SparseSegmentSumWithNumSegments", sparse_segments, -1},
    {"SparseSegmentMeanWithNumSegments", sparse_segments, -1}, {"SparseSegmentSqrtNWithNumSegments", sparse_segments, -1},
    {"RaggedRange", ragged_range, -1}, {"RaggedTensorToTensor", shape_in_0_and_values, -1}, {"AvgPoolGrad", shape_in_0_and_values, -1},
    {"AvgPool3DGrad", shape_in_0_and_values, -1}, {"CropAndResizeGradImage", shape_in_3, -1},
    {"ImageProjectiveTransformV2", projected, -1}, {"ImageProjectiveTransformV3", projected, -1}, {"Einsum", einsum, FEW},
    {"Diag", diagonal_of_all, FEW}, {"MatrixDiag", diagonal, FEW}, {"MatrixDiagV2", diagonal_in, -1}, {"MatrixDiagV3", diagonal_in, -1},

    {"RandomUniform", random_in_0, -1}, {"RandomUniformInt", random_in_0, -1}, {"RandomStandardNormal", many_draws, -1},
    {"TruncatedNormal", many_draws, -1}, {"ParameterizedTruncatedNormal", many_draws, -1}, {"NonDeterministicInts", random_in_0, -1},
    {"RandomGamma", draws, -1}, {"RandomPoisson", draws, -1}, {"RandomPoissonV2", draws, -1},
    {"StatelessRandomUniform", random_in_0, -1}, {"StatelessRandomUniformV2", random_in_0, -1}, {"StatelessRandomUniformInt", random_in_0, -1},
    {"StatelessRandomUniformIntV2", random_in_0, -1}, {"StatelessRandomUniformFullInt", random_in_0, -1},
    {"StatelessRandomUniformFullIntV2", random_in_0, -1}, {"StatelessRandomNormal", many_draws, -1}, {"StatelessRandomNormalV2", many_draws, -1},
    {"StatelessTruncatedNormal", many_draws, -1}, {"StatelessTruncatedNormalV2", many_draws, -1}, {"StatelessRandomPoisson", many_draws, -1},
    {"StatelessRandomBinomial", many_draws, -1}, {"StatelessRandomGammaV2", many_draws, -1}, {"StatelessRandomGammaV3", many_draws, -1},
    {"StatefulUniform", random_in_2, -1}, {"StatefulUniformInt", random_in_2, -1}, {"StatefulUniformFullInt", random_in_2, -1},
    {"StatefulStandardNormalV2", many_draws_in_2, -1}, {"StatefulTruncatedNormal", many_draws_in_2, -1}, {"StatefulRandomBinomial", many_draws_in_2, -1},
    {"Multinomial", sampled, -1}, {"StatelessMultinomial", sampled, -1},

    {"Concat", all_inputs, -1}, {"ConcatV2", all_inputs, -1}, {"Pack", all_inputs, -1}, {"ParallelConcat", all_inputs, -1},
    {"AddN", all_inputs, -1}, {"AccumulateNV2", all_inputs, -1}, {"DynamicStitch", all_inputs, -1}, {"ParallelDynamicStitch", all_inputs, -1},

    {"Add", broadcast, FEW}, {"AddV2", broadcast, FEW}, {"Sub", broadcast, FEW}, {"Mul", broadcast, FEW}, {"Div", broadcast, FEW},
    {"RealDiv", broadcast, FEW}, {"DivNoNan", broadcast, FEW}, {"MulNoNan", broadcast, FEW}, {"FloorDiv", broadcast, FEW},
    {"FloorMod", broadcast, FEW}, {"Mod", broadcast, FEW}, {"TruncateDiv", broadcast, FEW}, {"TruncateMod", broadcast, FEW},
    {"Maximum", broadcast, FEW}, {"Minimum", broadcast, FEW}, {"Pow", broadcast, FEW}, {"SquaredDifference", broadcast, FEW},
    {"Atan2", broadcast, FEW}, {"Xdivy", broadcast, FEW}, {"Xlogy", broadcast, FEW}, {"Xlog1py", broadcast, FEW}, {"Complex", broadcast, FEW},
    {"Equal", broadcast, FEW}, {"NotEqual", broadcast, FEW}, {"Less", broadcast, FEW}, {"LessEqual", broadcast, FEW},
    {"Greater", broadcast, FEW}, {"GreaterEqual", broadcast, FEW}, {"LogicalAnd", broadcast, FEW}, {"LogicalOr", broadcast, FEW},
    {"BitwiseAnd", broadcast, FEW}, {"BitwiseOr", broadcast, FEW}, {"BitwiseXor", broadcast, FEW}, {"LeftShift", broadcast, FEW},
    {"RightShift", broadcast, FEW}, {"NextAfter", broadcast, FEW}, {"Igamma", broadcast, FEW}, {"Igammac", broadcast, FEW},
    {"Zeta", broadcast, FEW}, {"Polygamma", broadcast, FEW}, {"Betainc", broadcast, FEW / 8}, {"SelectV2", broadcast, FEW / 8},
    {"MatMul", matrix_product, FEW}, {"BatchMatMul", matrix_product, FEW}, {"BatchMatMulV2", matrix_product, FEW},
    {"BatchMatMulV3", matrix_product, FEW}, {"SparseTensorDenseMatMul", sparse_product, FEW},

    {"Gather", gather, -1}, {"GatherV2", gather, -1}, {"GatherNd", gather_nd, -1}, {"ResourceGather", resource_gather, -1},
    {"ResourceGatherNd", resource_gather_nd, -1},
    {"TensorArrayGatherV3", tensor_array, -1}, {"TensorArrayConcatV3", tensor_array, -1},
    {"TensorListStack", tensor_list, -1}, {"TensorListGather", tensor_list, -1}, {"TensorListConcat", tensor_list, -1},
    {"TensorListConcatV2", tensor_list, -1},

    {"AsString", text, -1}, {"DecodeBase64", text, -1}, {"EncodeBase64", text, -1}, {"DecodeCSV", text, -1}, {"DecodeCompressed", text, -1},
    {"DecodeJSONExample", text, -1}, {"DecodePaddedRaw", text, -1}, {"DecodeRaw", text, -1}, {"DecodeWav", text, -1},
    {"Fingerprint", text, -1}, {"ParseExample", text, -1}, {"ParseExampleV2", text, -1}, {"ParseSequenceExample", text, -1},
    {"ParseSequenceExampleV2", text, -1}, {"ParseSingleExample", text, -1}, {"ParseSingleSequenceExample", text, -1},
    {"ParseTensor", text, -1}, {"ReduceJoin", text, -1}, {"RegexFullMatch", text, -1}, {"RegexReplace", text, -1},
    {"StaticRegexFullMatch", text, -1}, {"StaticRegexReplace", text, -1}, {"StringFormat", text, -1}, {"StringJoin", text, -1},
    {"StringLower", text, -1}, {"StringUpper", text, -1}, {"StringNGrams", text, -1}, {"StringSplit", text, -1}, {"StringSplitV2", text, -1},
    {"StringStrip", text, -1}, {"StringToHashBucket", text, -1}, {"StringToHashBucketFast", text, -1}, {"StringToHashBucketStrong", text, -1},
    {"StringToNumber", text, -1}, {"Substr", text, -1}, {"UnsortedSegmentJoin", joined_segments, -1}, {"UnicodeDecode", text, -1},
    {"UnicodeDecodeWithOffsets", text, -1}, {"UnicodeEncode", text, -1}, {"UnicodeTranscode", text, -1}, {"EditDistance", text, -1},
};
// clang-format on

static struct strmap by_op;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void build(void) {
    strmap_init(&by_op);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        strmap_put(&by_op, table[i].op, (void *)&table[i]);
}

const struct kernel_work *kernel_work_find(const char *op) {
    pthread_once(&once, build);
    return strmap_get(&by_op, op);
}

const struct kernel_work *kernel_work_at(size_t i) {
    return i < ARRAY_LEN(table) ? &table[i] : NULL;
}
