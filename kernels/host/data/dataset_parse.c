/* Makes ParseExampleDataset: batches of serialized tf.train.Examples become their features, in the
 * order of the keys.
 *
 *   input_dataset       vectors of string
 *   num_parallel_calls  int64 scalar
 *   dense_defaults      a tensor for each dense key
 *   an element has a component for each key:
 *     sparse   variant [3]: indices, values, shape, each in a variant of its own, as
 *              SerializeSparse writes them
 *     dense    its type [n, dense_shape…]
 *     ragged   a variant: splits and values, as RaggedTensorToVariant writes them
 *
 * The consumer's task parses a batch. To parse ahead, programs add a prefetch. */
#include <stdlib.h>

#include "kernels/host/data/dataset.h"
#include "kernels/host/text/parsing_features.h"
#include "kernels/support/variant_tensors.h"

extern const struct kernel_list dataset_parse_kernels;

struct parse_dataset {
    struct dataset base;
    struct arena arena; /* holds the fields below, because the dataset may outlive its node */
    struct feature_types types;
    struct span *keys; /* of sparse, dense and ragged features */
    int *places;       /* the component of each key */
    struct tensor *defaults;
    bool has_arena;
};

static int n_features(const struct feature_types *types) {
    return types->n_sparse + types->n_dense + types->n_ragged;
}

/* ---- attrs ---- */

static struct span keep_span(struct arena *arena, struct span s) {
    return (struct span){s.len ? arena_memdup(arena, s.data, s.len) : "", s.len};
}

/* Copies a list attr, which the op may not have. */
static struct status *keep_list(struct parse_dataset *self, const struct node *node,
                                const char *name, const struct attr_value **ret, int *ret_n) {
    const struct attr_value *values;
    *ret_n = 0;
    if (!node_attr(node, name))
        return NULL;
    TRY(node_get_list(node, name, &values, ret_n));
    struct attr_value *kept = arena_array(&self->arena, struct attr_value, *ret_n + 1);
    for (int i = 0; i < *ret_n; i++) {
        kept[i] = values[i];
        if (values[i].type == ATTR_SHAPE && values[i].shape.rank > 0)
            kept[i].shape.dims = arena_memdup(&self->arena, values[i].shape.dims,
                                              (size_t)values[i].shape.rank * sizeof(int64_t));
        else if (values[i].type == ATTR_STRING)
            kept[i].s = keep_span(&self->arena, values[i].s);
    }
    *ret = kept;
    return NULL;
}

static struct status *read_types_and_keys(struct parse_dataset *self, const struct node *node) {
    struct feature_types *types = &self->types;
    const struct attr_value *ragged_keys = NULL;
    int n_sparse, n_dense, n_ragged, n_shapes, n_splits;
    TRY(keep_list(self, node, "sparse_types", &types->sparse_types, &types->n_sparse));
    TRY(keep_list(self, node, "Tdense", &types->dense_types, &types->n_dense));
    TRY(keep_list(self, node, "dense_shapes", &types->dense_shapes, &n_shapes));
    TRY(keep_list(self, node, "ragged_value_types", &types->ragged_types, &types->n_ragged));
    TRY(keep_list(self, node, "ragged_split_types", &types->split_types, &n_splits));
    TRY(keep_list(self, node, "sparse_keys", &types->sparse_keys, &n_sparse));
    TRY(keep_list(self, node, "dense_keys", &types->dense_keys, &n_dense));
    TRY(keep_list(self, node, "ragged_keys", &ragged_keys, &n_ragged));
    if (n_sparse != types->n_sparse || n_dense != types->n_dense || n_ragged != types->n_ragged)
        return status_invalid("len(keys) != len(types): of sparse, dense and ragged features, %d, "
                              "%d and %d keys but %d, %d and %d types",
                              n_sparse, n_dense, n_ragged, types->n_sparse, types->n_dense,
                              types->n_ragged);
    TRY(feature_types_check(types, n_shapes, n_splits));
    self->keys = arena_array(&self->arena, struct span, n_features(types) + 1);
    for (int i = 0; i < n_sparse; i++)
        self->keys[i] = types->sparse_keys[i].s;
    for (int i = 0; i < n_dense; i++)
        self->keys[n_sparse + i] = types->dense_keys[i].s;
    for (int i = 0; i < n_ragged; i++)
        self->keys[n_sparse + n_dense + i] = ragged_keys[i].s;
    return NULL;
}

static int compare_keys(struct span a, struct span b) {
    int order = memcmp(a.data, b.data, MIN(a.len, b.len));
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* A feature's component is the number of keys that sort before its own. */
static struct status *place_keys(struct parse_dataset *self) {
    int n = n_features(&self->types), n_sparse = self->types.n_sparse,
        n_dense_end = n_sparse + self->types.n_dense;
    const struct dataset *dataset = &self->base;
    if (n != dataset->n_components)
        return status_invalid("There are %d features, but %d output_types", n,
                              dataset->n_components);
    self->places = arena_array(&self->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++) {
            int order = compare_keys(self->keys[k], self->keys[i]);
            if (order == 0 && k != i)
                return status_invalid("The key '%.*s' is there twice", (int)self->keys[i].len,
                                      self->keys[i].data);
            self->places[i] += order < 0;
        }
        bool is_dense = i >= n_sparse && i < n_dense_end;
        enum dtype wanted = is_dense ? self->types.dense_types[i - n_sparse].dtype : DT_VARIANT;
        if (dataset->types[self->places[i]] != wanted)
            return status_invalid("output_types[%d] is %s, but the feature '%.*s' is %s",
                                  self->places[i],
                                  dtype_name((enum dtype)dataset->types[self->places[i]]),
                                  (int)self->keys[i].len, self->keys[i].data, dtype_name(wanted));
    }
    return NULL;
}

/* ---- parsing ---- */

/* Adds the wanted features, with their keys and defaults. */
static struct status *open_set(const struct parse_dataset *self, struct feature_set *set) {
    TRY(feature_set_init(set, &self->types, false));
    for (int i = 0; i < set->n; i++)
        set->features[i].key = self->keys[i];
    for (int i = 0; i < self->types.n_dense; i++)
        TRY(feature_set_default(set, i, &self->defaults[i]));
    return NULL;
}

static struct status *wrap_sparse(struct allocator *allocator, struct tensor *parts, int n_sparse,
                                  int i, struct tensor *out) {
    int64_t three = 3;
    TRY(tensor_new(allocator, DT_VARIANT, (struct shape){1, &three}, out));
    for (int k = 0; k < 3; k++)
        TRY(element_wrap(&parts[k * n_sparse + i], out, k));
    return NULL;
}

static struct status *wrap_ragged(struct tensor *values, struct tensor *splits,
                                  struct tensor *out) {
    struct variant_tensors *variant = NULL;
    TRY(variant_tensors_new(&variant_ragged_type, 2, &variant));
    tensor_init_scalar_object(out, DT_VARIANT, &variant->object);
    tensor_move(&variant->held[0], splits);
    tensor_move(&variant->held[1], values);
    return variant_tensors_seal(variant);
}

/* Puts the parser's outputs in the order of the element's components. */
static struct status *arrange(const struct parse_dataset *self, struct allocator *allocator,
                              struct tensor *parts, struct tensor *out) {
    int n_sparse = self->types.n_sparse, n_dense = self->types.n_dense,
        n_ragged = self->types.n_ragged;
    const int *place = self->places;
    for (int i = 0; i < n_sparse; i++)
        TRY(wrap_sparse(allocator, parts, n_sparse, i, &out[*place++]));
    parts += 3 * n_sparse;
    for (int i = 0; i < n_dense; i++)
        tensor_move(&out[*place++], &parts[i]);
    parts += n_dense;
    for (int i = 0; i < n_ragged; i++)
        TRY(wrap_ragged(&parts[i], &parts[n_ragged + i], &out[*place++]));
    return NULL;
}

static struct status *parse(const struct parse_dataset *self, struct allocator *allocator,
                            const struct tensor *serialized, struct tensor *out) {
    int n_parts = 3 * self->types.n_sparse + self->types.n_dense + 2 * self->types.n_ragged;
    struct tensor *parts = element_new(n_parts);
    const struct kernel_instance instance = {.allocator = allocator};
    struct kernel_ctx ctx = {.outputs = parts, .instance = &instance};
    struct feature_set set = {0};
    struct status *st = open_set(self, &set);
    if (!st)
        st = parsing_run_examples(&ctx, &set, serialized, NULL, false);
    if (!st)
        st = arrange(self, allocator, parts, out);
    if (st)
        element_clear(out, self->base.n_components);
    feature_set_fini(&set);
    element_free(parts, n_parts);
    return st;
}

/* ---- the dataset ---- */

static enum data_poll parse_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    struct dataset_iter_one *self = (struct dataset_iter_one *)iter;
    struct tensor serialized = TENSOR_INIT;
    enum data_poll result = dataset_iter_next(self->input, task, &serialized);
    if (result != DATA_ELEMENT)
        return result;
    struct status *st =
        parse((const struct parse_dataset *)iter->dataset, iter->env->allocator, &serialized, out);
    tensor_clear(&serialized);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static void parse_fini(struct dataset *dataset) {
    struct parse_dataset *self = (struct parse_dataset *)dataset;
    element_free(self->defaults, self->types.n_dense);
    if (self->has_arena)
        arena_fini(&self->arena);
}

static const struct dataset_kind parse_kind = {.name = "ParseExample",
                                               .dataset_size = sizeof(struct parse_dataset),
                                               .iter_size = sizeof(struct dataset_iter_one),
                                               .begin = dataset_begin_one,
                                               .next = parse_next,
                                               .end = dataset_end_one,
                                               .fini = parse_fini,
                                               .keeps_cardinality = true};

static struct status *take(struct kernel_ctx *ctx, struct parse_dataset *self) {
    const struct dataset *input = self->base.inputs[0];
    struct feature_set set = {0};
    int64_t n_calls;
    arena_init(&self->arena);
    self->has_arena = true;
    TRY(dataset_declare(ctx, &self->base, NULL, NULL));
    TRY(read_types_and_keys(self, ctx->instance->node));
    self->defaults = element_new(self->types.n_dense);
    element_copy(self->defaults, &ctx->inputs[2], self->types.n_dense);
    TRY(dataset_scalar_i64(ctx, 1, "num_parallel_calls", &n_calls));
    if (n_calls < 1 && n_calls != -1)
        return status_invalid("num_parallel_calls must be greater than zero.");
    if (input->n_components != 1 || input->types[0] != DT_STRING)
        return status_invalid("The input dataset must hand out vectors of string");
    struct status *st = open_set(self, &set);
    feature_set_fini(&set);
    TRY(st);
    return place_keys(self);
}

static enum kernel_result parse_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &parse_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, take(ctx, (struct parse_dataset *)dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("ParseExampleDataset", parse_compute),
    DATASET_KERNEL("ParseExampleDatasetV2", parse_compute),
    DATASET_KERNEL("ExperimentalParseExampleDataset", parse_compute),
};
// clang-format on

const struct kernel_list dataset_parse_kernels = {rows, ARRAY_LEN(rows)};
