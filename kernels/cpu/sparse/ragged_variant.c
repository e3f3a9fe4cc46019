/* Puts ragged tensors into variants, whole or row by row, and takes them out:
 * RaggedTensorToVariant, RaggedTensorFromVariant, RaggedTensorToVariantGradient. */
#include <stdlib.h>

#include "kernels/cpu/sparse/ragged.h"
#include "kernels/kernel.h"
#include "kernels/support/variant_tensors.h"

extern const struct kernel_list ragged_variant_kernels;

/* ---- RaggedTensorToVariant ---- */

struct to_variant_state {
    bool is_batched;
};

static struct status *to_variant_init(struct kernel_init *init) {
    struct to_variant_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    return node_get_b(init->node, "batched_input", &state->is_batched);
}

static enum kernel_result whole_to_variant(struct kernel_ctx *ctx) {
    struct variant_tensors *variant = NULL;
    KERNEL_TRY(ctx, variant_tensors_new(&variant_ragged_type, ctx->instance->n_inputs, &variant));
    for (int64_t i = 0; i < variant->n; i++)
        tensor_move(&variant->held[i], &ctx->inputs[i]);
    struct status *st = variant_tensors_seal(variant);
    if (st) {
        variant_tensors_unref(variant);
        return kernel_fail(ctx, st);
    }
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, &variant->object);
    return KERNEL_DONE;
}

/* Makes the splits of rows [begin, end) of a dimension, which begin with 0. */
static struct status *splits_of_rows(struct kernel_ctx *ctx, const struct tensor *splits,
                                     int64_t begin, int64_t end, struct tensor *ret) {
    int64_t n = end - begin + 1, first = tensor_index_at(splits, begin);
    TRY(tensor_new(ctx->instance->allocator, (enum dtype)splits->dtype, (struct shape){1, &n},
                   ret));
    for (int64_t i = 0; i < n; i++)
        tensor_set_index(ret, i, tensor_index_at(splits, begin + i) - first);
    return NULL;
}

/* Makes a variant of row i: a ragged tensor of one dimension less. Its values share the input's
 * memory. */
static struct status *row_to_variant(struct kernel_ctx *ctx, int64_t i,
                                     struct variant_tensors *variant) {
    const struct tensor *splits = ctx->inputs, *values = &ctx->inputs[variant->n];
    int64_t begin = tensor_index_at(&splits[0], i), end = tensor_index_at(&splits[0], i + 1);
    for (int d = 1; d < variant->n; d++) {
        TRY(splits_of_rows(ctx, &splits[d], begin, end, &variant->held[d - 1]));
        begin = tensor_index_at(&splits[d], begin);
        end = tensor_index_at(&splits[d], end);
    }
    TRY(tensor_slice_rows(values, begin, end, &variant->held[variant->n - 1]));
    return variant_tensors_seal(variant);
}

/* Makes a variant of row i of a dense tensor: values of one dimension less. */
static struct status *dense_row_to_variant(struct kernel_ctx *ctx, int64_t i,
                                           struct variant_tensors *variant) {
    const struct tensor *values = &ctx->inputs[0];
    struct tensor row = TENSOR_INIT;
    TRY(tensor_slice_rows(values, i, i + 1, &row));
    struct status *st = tensor_reshape(
        &row, (struct shape){values->rank - 1, tensor_dims(values) + 1}, &variant->held[0]);
    tensor_clear(&row);
    return st ? st : variant_tensors_seal(variant);
}

static struct status *check_ragged_input(const struct kernel_ctx *ctx, int n_splits) {
    const struct tensor *values = &ctx->inputs[n_splits];
    if (n_splits == 0)
        return values->rank < 1 ? status_invalid("Ragged values must have rank >= 1") : NULL;
    return ragged_check_nested(ctx->inputs, n_splits, values, false);
}

static enum kernel_result to_variant(struct kernel_ctx *ctx) {
    const struct to_variant_state *state = ctx->instance->state;
    int n_splits = ctx->instance->n_inputs - 1;
    if (!state->is_batched)
        return whole_to_variant(ctx);
    KERNEL_TRY(ctx, check_ragged_input(ctx, n_splits));
    int64_t n_rows = n_splits > 0 ? ctx->inputs[0].n_elements - 1 : tensor_dim(&ctx->inputs[0], 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_VARIANT, (struct shape){1, &n_rows}));
    for (int64_t i = 0; i < n_rows; i++) {
        struct variant_tensors *variant = NULL;
        KERNEL_TRY(ctx, variant_tensors_new(&variant_ragged_type, MAX(n_splits, 1), &variant));
        tensor_set_object(&ctx->outputs[0], i, &variant->object);
        KERNEL_TRY(ctx, n_splits > 0 ? row_to_variant(ctx, i, variant)
                                     : dense_row_to_variant(ctx, i, variant));
    }
    return KERNEL_DONE;
}

/* ---- RaggedTensorFromVariant ---- */

/* The components that all elements of the input hold, each with a reference. */
struct components {
    int64_t n;
    struct variant_tensors **at;
    int n_splits; /* of each component */
};

static void components_fini(struct components *components) {
    for (int64_t i = 0; components->at && i < components->n; i++)
        variant_tensors_unref(components->at[i]);
    free(components->at);
}

static struct status *check_component(const struct kernel_ctx *ctx,
                                      const struct variant_tensors *variant, int n_splits,
                                      int64_t i) {
    const struct tensor *values = &variant->held[variant->n - 1];
    enum dtype dtype = (enum dtype)ctx->instance->out_types[ctx->instance->n_outputs - 1];
    if (variant->n - 1 != n_splits)
        return status_invalid(
            "Encoded input RaggedTensorVariant has ragged_rank=%lld.  Expected ragged_rank=%d.",
            (long long)(variant->n - 1), n_splits);
    if (values->dtype != dtype)
        return status_invalid("Expected values Tensor dtype: %s, found: %s", dtype_name(dtype),
                              dtype_name((enum dtype)values->dtype));
    if (values->rank < 1 && ctx->inputs[0].rank == 0)
        return status_invalid(
            "Ragged values must have rank >= 1; encoded scalar element at index %lld has a scalar",
            (long long)i);
    for (int d = 0; d < n_splits; d++) {
        const struct tensor *splits = &variant->held[d];
        if (splits->dtype != ctx->instance->out_types[0])
            return status_invalid("Expected row_splits Tensor dtype: %s, found: %s",
                                  dtype_name((enum dtype)ctx->instance->out_types[0]),
                                  dtype_name((enum dtype)splits->dtype));
        if (splits->rank != 1 || splits->n_elements < 1)
            return status_invalid("Ragged splits must have rank 1; encoded scalar element at index "
                                  "%lld has splits of shape %s",
                                  (long long)i, TENSOR_SHAPE_TEXT(splits));
    }
    return NULL;
}

static struct status *components_init(struct kernel_ctx *ctx, int n_splits,
                                      struct components *components) {
    const struct tensor *in = &ctx->inputs[0];
    components->n_splits = n_splits;
    components->n = in->n_elements;
    components->at = calloc((size_t)in->n_elements + 1, sizeof(*components->at));
    if (!components->at)
        return status_exhausted("OOM: %lld ragged components", (long long)in->n_elements);
    for (int64_t i = 0; i < in->n_elements; i++) {
        TRY(variant_tensors_at(in, i, &variant_ragged_type, ctx->instance->allocator,
                               &components->at[i]));
        if (!components->at[i])
            return status_invalid(
                "Input Variant element at index %lld doesn't hold a RaggedTensorVariant: %s",
                (long long)i, variant_text(((struct object *const *)tensor_cdata(in))[i]));
        TRY(check_component(ctx, components->at[i], n_splits, i));
    }
    return NULL;
}

static const struct tensor *component_values(const struct components *components, int64_t i) {
    return &components->at[i]->held[components->n_splits];
}

/* The number of rows of a component, which is 1 when the component has no dimensions of its own. */
static int64_t component_rows(const struct components *components, int64_t i) {
    const struct tensor *values = component_values(components, i);
    if (components->n_splits > 0)
        return components->at[i]->held[0].n_elements - 1;
    return values->rank > 0 ? tensor_dim(values, 0) : 1;
}

/* Makes the splits of the input's own dimensions. They are regular, except that the innermost ones
 * are the components' numbers of rows. */
static struct status *make_outer_splits(struct kernel_ctx *ctx,
                                        const struct components *components) {
    const struct tensor *in = &ctx->inputs[0];
    int64_t n_rows = 1;
    for (int d = 0; d < in->rank; d++) {
        n_rows *= tensor_dim(in, d);
        int64_t n_splits = n_rows + 1, total = 0;
        TRY(kernel_alloc(ctx, d, (enum dtype)ctx->instance->out_types[d],
                         (struct shape){1, &n_splits}));
        tensor_set_index(&ctx->outputs[d], 0, 0);
        for (int64_t i = 0; i < n_rows; i++) {
            total += d + 1 < in->rank ? tensor_dim(in, d + 1) : component_rows(components, i);
            tensor_set_index(&ctx->outputs[d], i + 1, total);
        }
    }
    return NULL;
}

/* Joins the components' splits of one dimension. Splits from a message may wrap, but here they are
 * only copied. */
static struct status *join_splits(struct kernel_ctx *ctx, const struct components *components,
                                  int dim, int output) {
    int64_t n_splits = 1, at = 1;
    uint64_t base = 0;
    for (int64_t i = 0; i < components->n; i++)
        n_splits += components->at[i]->held[dim].n_elements - 1;
    TRY(kernel_alloc(ctx, output, (enum dtype)ctx->instance->out_types[output],
                     (struct shape){1, &n_splits}));
    tensor_set_index(&ctx->outputs[output], 0, 0);
    for (int64_t i = 0; i < components->n; i++) {
        const struct tensor *splits = &components->at[i]->held[dim];
        for (int64_t k = 1; k < splits->n_elements; k++)
            tensor_set_index(&ctx->outputs[output], at++,
                             (int64_t)(base + (uint64_t)tensor_index_at(splits, k)));
        base = (uint64_t)tensor_index_at(&ctx->outputs[output], at - 1);
    }
    return NULL;
}

/* Without components the values have no known shape, so it is [0]. */
static struct status *joined_values_shape(const struct components *components, int64_t *dims,
                                          int *ret_rank) {
    *ret_rank = 1;
    dims[0] = 0;
    for (int64_t i = 0; i < components->n; i++) {
        const struct tensor *values = component_values(components, i),
                            *first = component_values(components, 0);
        bool is_row = values->rank == 0;
        if (values->rank != first->rank)
            return status_invalid("Rank of values must match for all components; values shape at "
                                  "index 0: %s, values shape at index %lld: %s",
                                  TENSOR_SHAPE_TEXT(first), (long long)i,
                                  TENSOR_SHAPE_TEXT(values));
        for (int d = 1; d < values->rank; d++) {
            if (tensor_dim(values, d) != tensor_dim(first, d))
                return status_invalid("Shapes of values must match for all components but in the "
                                      "first dimension; at index 0: %s, at "
                                      "index %lld: %s",
                                      TENSOR_SHAPE_TEXT(first), (long long)i,
                                      TENSOR_SHAPE_TEXT(values));
            dims[d] = tensor_dim(values, d);
        }
        *ret_rank = MAX(values->rank, 1);
        if (add_overflows_i64(dims[0], is_row ? 1 : tensor_dim(values, 0), &dims[0]))
            return status_invalid("The values of all components are too many to count");
    }
    return NULL;
}

static struct status *join_values(struct kernel_ctx *ctx, const struct components *components,
                                  int output) {
    int64_t dims[SHAPE_MAX_RANK], at = 0;
    int rank;
    enum dtype dtype = (enum dtype)ctx->instance->out_types[output];
    TRY(joined_values_shape(components, dims, &rank));
    TRY(kernel_alloc(ctx, output, dtype, (struct shape){rank, dims}));
    char *to = tensor_data(&ctx->outputs[output]);
    for (int64_t i = 0; i < components->n; i++) {
        const struct tensor *values = component_values(components, i);
        elements_copy(dtype, to + at * (int64_t)dtype_size(dtype), tensor_cdata(values),
                      values->n_elements);
        at += values->n_elements;
    }
    return NULL;
}

static struct status *join_components(struct kernel_ctx *ctx, const struct components *components) {
    int n_outer = ctx->inputs[0].rank;
    if (n_outer == 0) {
        for (int64_t i = 0; i <= components->n_splits; i++)
            tensor_copy(&ctx->outputs[i], &components->at[0]->held[i]);
        return NULL;
    }
    TRY(make_outer_splits(ctx, components));
    for (int d = 0; d < components->n_splits; d++)
        TRY(join_splits(ctx, components, d, n_outer + d));
    return join_values(ctx, components, n_outer + components->n_splits);
}

static struct status *from_variant_init(struct kernel_init *init) {
    int64_t *rank = xcalloc(1, sizeof(*rank));
    init->state = rank;
    return node_get_i(init->node, "input_ragged_rank", rank);
}

static enum kernel_result from_variant(struct kernel_ctx *ctx) {
    int64_t own_rank = *(const int64_t *)ctx->instance->state,
            out_rank = ctx->instance->n_outputs - 1, rank = ctx->inputs[0].rank;
    if (own_rank == -1) {
        own_rank = out_rank - rank;
        if (own_rank < 0)
            return kernel_fail(
                ctx, status_invalid(
                         "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) "
                         "must be >= 0, "
                         "found output_ragged_rank: %lld, encoded_variant.dims(): %lld, inferred "
                         "input_ragged_rank: %lld",
                         (long long)out_rank, (long long)rank, (long long)own_rank));
    }
    if (out_rank != rank + own_rank)
        return kernel_fail(
            ctx,
            status_invalid(
                "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); "
                "output_ragged_rank: %lld, input_ragged_rank: %lld, encoded_variant.dims(): %lld.",
                (long long)out_rank, (long long)own_rank, (long long)rank));
    struct components components = {0};
    struct status *st = components_init(ctx, (int)own_rank, &components);
    if (!st)
        st = join_components(ctx, &components);
    components_fini(&components);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- RaggedTensorToVariantGradient ---- */

/* Joins the rows' gradients. A row that no gradient reached becomes zeros, as long as its splits
 * say. */
static struct status *join_gradients(struct kernel_ctx *ctx, const struct components *grads,
                                     struct shape shape) {
    const struct tensor *splits = &ctx->inputs[1];
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    if (grads->n == 1 && grads->at[0]) {
        tensor_copy(&ctx->outputs[0], &grads->at[0]->held[grads->at[0]->n - 1]);
        return NULL;
    }
    TRY(tensor_new_zeroed(ctx->instance->allocator, dtype, shape, &ctx->outputs[0]));
    if (ctx->inputs[0].rank == 0)
        return NULL;
    struct tensor *out = &ctx->outputs[0];
    int64_t at = 0, row_len = shape.rank > 0 ? ragged_row_len(out) : 1,
            size = (int64_t)dtype_size(dtype);
    for (int64_t i = 0; i < grads->n && out->n_elements > 0; i++) {
        const struct tensor *values =
            grads->at[i] ? &grads->at[i]->held[grads->at[i]->n - 1] : NULL;
        int64_t rows = tensor_index_at(splits, i + 1) - tensor_index_at(splits, i),
                n = values ? values->n_elements : 0;
        if (!values && (mul_overflows_i64(rows, row_len, &n) || n < 0))
            return status_invalid("row_splits must not fall");
        if (n > out->n_elements - at)
            return status_invalid(
                "The gradients of all rows have more values than dense_values_shape");
        if (values)
            elements_copy(dtype, (char *)tensor_data(out) + at * size, tensor_cdata(values), n);
        at += n;
    }
    return NULL;
}

static struct status *gradients_init(struct kernel_ctx *ctx, struct components *grads) {
    const struct tensor *in = &ctx->inputs[0];
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    grads->n = in->n_elements;
    grads->at = calloc((size_t)in->n_elements + 1, sizeof(*grads->at));
    if (!grads->at)
        return status_exhausted("OOM: %lld ragged components", (long long)in->n_elements);
    for (int64_t i = 0; i < in->n_elements; i++) {
        TRY(variant_tensors_at(in, i, &variant_ragged_type, ctx->instance->allocator,
                               &grads->at[i]));
        if (grads->at[i] && grads->at[i]->held[grads->at[i]->n - 1].dtype != dtype)
            return status_invalid(
                "Expected values Tensor dtype: %s, found: %s", dtype_name(dtype),
                dtype_name((enum dtype)grads->at[i]->held[grads->at[i]->n - 1].dtype));
    }
    return NULL;
}

static enum kernel_result to_variant_gradient(struct kernel_ctx *ctx) {
    const struct tensor *splits = &ctx->inputs[1], *sizes = &ctx->inputs[2];
    int64_t dims[SHAPE_MAX_RANK];
    struct components grads = {0};
    KERNEL_TRY(ctx, ragged_check_splits(splits, -1, false));
    /* an input that is a scalar holds the whole tensor instead of rows */
    if (ctx->inputs[0].rank > 0 && ctx->inputs[0].n_elements != splits->n_elements - 1)
        return kernel_fail(
            ctx, status_invalid("encoded_ragged_grad has %lld elements, row_splits tell of %lld",
                                (long long)ctx->inputs[0].n_elements,
                                (long long)(splits->n_elements - 1)));
    if (sizes->rank != 1 || sizes->n_elements > SHAPE_MAX_RANK)
        return kernel_fail(
            ctx,
            status_invalid("dense_values_shape must be a vector of at most %d sizes, got shape %s",
                           SHAPE_MAX_RANK, TENSOR_SHAPE_TEXT(sizes)));
    for (int64_t i = 0; i < sizes->n_elements; i++)
        dims[i] = tensor_index_at(sizes, i);
    struct status *st = gradients_init(ctx, &grads);
    if (!st)
        st = join_gradients(ctx, &grads, (struct shape){(int)sizes->n_elements, dims});
    components_fini(&grads);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))
#define BY_TYPES                                              \
    {                                                         \
        {"Tvalues", VALUE_TYPES}, { "Tsplits", DTYPES_INDEX } \
    }
// clang-format off
static const struct kernel_def rows[] = {
    {.op = "RaggedTensorToVariant", .constraints = BY_TYPES, .compute = to_variant,
        .init = to_variant_init},
    {.op = "RaggedTensorFromVariant", .constraints = BY_TYPES, .compute = from_variant,
        .init = from_variant_init},
    {.op = "RaggedTensorToVariantGradient", .constraints = BY_TYPES,
        .compute = to_variant_gradient},
};
// clang-format on

const struct kernel_list ragged_variant_kernels = {rows, ARRAY_LEN(rows)};
