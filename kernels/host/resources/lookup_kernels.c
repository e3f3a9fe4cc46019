/* Computes the ops of tables that make them, fill them, look keys up and change them. lookup_file.c
 * fills tables from files. The edge carries a handle, and a container holds the table.
 *
 * A table without a name belongs to its node in the session. An anonymous table belongs to the step
 * that made it. The ops of the first version have references to strings as handles. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/resources/lookup_dense.h"
#include "kernels/host/resources/lookup_table.h"
#include "kernels/support/named_resource.h"
#include "kernels/support/variable_input.h"

extern const struct kernel_list lookup_kernels;

/* ---- making ---- */

/* The arg of a row. */
struct table_kind {
    bool is_static, is_anonymous, is_dense;
};
static const struct table_kind static_kind = {true, false}, mutable_kind = {false, false};
static const struct table_kind anonymous_static_kind = {true, true},
                               anonymous_mutable_kind = {false, true};
static const struct table_kind dense_kind = {.is_dense = true},
                               anonymous_dense_kind = {.is_anonymous = true, .is_dense = true};

struct table_state {
    struct lookup_table_options options;
    char *container, *name;
    int64_t row_len;
    int64_t initial_buckets; /* dense tables only */
    float max_load;
    bool is_anonymous, is_private, is_dense;
    _Atomic(struct resource_handle *) handle; /* made by the first execution, constant afterwards */
    /* private tables only: emptied when the session ends */
    _Atomic(struct lookup_table *) own;
    bool is_first_version;
    struct named_resource first_version; /* used instead of the name, the handle and own */
};

static void table_state_fini(void *arg) {
    struct table_state *state = arg;
    struct resource_handle *handle = atomic_load(&state->handle);
    struct lookup_table *own = atomic_load(&state->own);
    if (handle)
        object_unref(&handle->object);
    if (own) {
        lookup_table_clear(own);
        lookup_table_unref(own);
    }
    if (state->is_first_version)
        named_resource_fini(&state->first_version);
    free(state->container);
    free(state->name);
    free(state);
}

/* Reads the shape of one value: an attr in tables of tensors, else []. */
static struct status *value_shape_init(const struct node *node, struct table_state *state) {
    struct shape shape = SHAPE_SCALAR;
    if (!node_attr(node, "value_shape"))
        return NULL;
    TRY(node_get_shape(node, "value_shape", &shape));
    if (!shape_is_full(shape))
        return status_invalid("Shape %s is not fully defined", SHAPE_TEXT(shape));
    if (shape.rank == 0 && state->is_dense)
        return NULL;
    if (shape.rank != 1)
        return status_invalid("Default value must be a vector, got shape %s", SHAPE_TEXT(shape));
    state->row_len = shape.dims[0];
    state->options.value_shape = (struct shape){1, &state->row_len};
    return NULL;
}

static struct status *name_init(const struct kernel_init *init, struct table_state *state) {
    struct span container = {0}, name = {0};
    bool is_by_node_name = false;
    const struct node *node = init->node;
    TRY(node_get_s(node, "container", &container));
    TRY(node_get_s(node, "shared_name", &name));
    TRY(node_get_b(node, "use_node_name_sharing", &is_by_node_name));
    state->container = xstrndup(container.data, container.len);
    if (name.len > 0) {
        state->name = xstrndup(name.data, name.len);
    } else if (is_by_node_name) {
        state->name = xstrdup(node_state_name(node));
    } else {
        struct str text = STR_INIT;
        str_addf(&text, "_%llu_%s", (unsigned long long)(init->host ? init->host->unique_id() : 0),
                 node->name);
        state->name = str_detach(&text);
        state->is_private = true;
    }
    return NULL;
}

static void table_empty(struct object *object) {
    lookup_table_clear(CONTAINER_OF(object, struct lookup_table, object));
}

static struct status *first_version_init(struct kernel_init *init, struct table_state *state) {
    bool is_by_node_name = false;
    TRY(node_get_b(init->node, "use_node_name_sharing", &is_by_node_name));
    state->is_first_version = true;
    state->name = xstrdup(init->node->name);
    return named_resource_init(&state->first_version, init, &lookup_table_type,
                               is_by_node_name ? RESOURCE_BY_NODE_NAME : RESOURCE_OWN, table_empty);
}

static struct status *table_init(struct kernel_init *init) {
    const struct table_kind *kind = init->arg;
    struct table_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->options.is_static = kind->is_static;
    state->is_anonymous = kind->is_anonymous;
    state->is_dense = kind->is_dense;
    TRY(node_get_type(init->node, "key_dtype", &state->options.key_dtype));
    TRY(node_get_type(init->node, "value_dtype", &state->options.value_dtype));
    TRY(value_shape_init(init->node, state));
    if (state->is_dense) {
        TRY(node_get_i(init->node, "initial_num_buckets", &state->initial_buckets));
        TRY(node_get_f(init->node, "max_load_factor", &state->max_load));
    }
    if (dtype_is_ref((enum dtype)init->node->out_types[0]))
        return first_version_init(init, state);
    return kind->is_anonymous ? NULL : name_init(init, state);
}

static struct status *make_table(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct table_state *state = arg;
    if (state->is_dense) {
        struct lookup_dense_options options = {state->options, state->initial_buckets,
                                               state->max_load};
        struct lookup_table *table = NULL;
        TRY(lookup_dense_new(&options, ctx->instance->allocator, kernel_input(ctx, 0),
                             kernel_input(ctx, 1), &table));
        *ret = &table->object;
        return NULL;
    }
    *ret = &lookup_table_new(&state->options)->object;
    return NULL;
}

static struct status *anonymous_handle(struct kernel_ctx *ctx, struct table_state *state) {
    struct str name = STR_INIT;
    struct object *found = NULL;
    str_addf(&name, "_AnonymousTable%llu", (unsigned long long)ctx->host->unique_id());
    struct resource_handle *handle = ctx->host->handle_make(
        ctx, NULL, str_text(&name), &lookup_table_type, state->options.value_dtype);
    str_fini(&name);
    struct status *st = ctx->host->handle_lookup_or_create(ctx, handle, &lookup_table_type,
                                                           make_table, state, &found);
    object_unref(found);
    if (st)
        object_unref(&handle->object);
    else
        tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return st;
}

static struct resource_handle *constant_handle(struct kernel_ctx *ctx, struct table_state *state) {
    struct resource_handle *handle = atomic_load_explicit(&state->handle, memory_order_acquire);
    if (likely(handle != NULL))
        return handle;
    struct resource_handle *made = ctx->host->handle_make(
        ctx, state->container, state->name, &lookup_table_type, state->options.value_dtype);
    if (atomic_compare_exchange_strong(&state->handle, &handle, made))
        return made;
    object_unref(&made->object);
    return handle;
}

static struct status *check_dtypes(const struct table_state *state,
                                   const struct lookup_table *table) {
    const struct lookup_table_options *wanted = &state->options;
    if (likely(table->key_dtype == wanted->key_dtype && table->value_dtype == wanted->value_dtype))
        return NULL;
    return status_invalid("Conflicting key/value dtypes %s->%s with %s-%s for table %s",
                          dtype_name(wanted->key_dtype), dtype_name(wanted->value_dtype),
                          dtype_name(table->key_dtype), dtype_name(table->value_dtype),
                          state->name);
}

static void keep_own(struct table_state *state, struct lookup_table *table) {
    struct lookup_table *none = NULL;
    if (!state->is_private || atomic_load_explicit(&state->own, memory_order_relaxed))
        return;
    object_ref(&table->object);
    if (!atomic_compare_exchange_strong(&state->own, &none, table))
        lookup_table_unref(table);
}

static struct status *first_version_output(struct kernel_ctx *ctx, struct table_state *state) {
    struct object *found = NULL;
    TRY(named_resource_get(ctx, &state->first_version, make_table, state, &found));
    struct status *st = check_dtypes(state, CONTAINER_OF(found, struct lookup_table, object));
    object_unref(found);
    return st ? st : named_resource_output(ctx, &state->first_version);
}

static enum kernel_result table_compute(struct kernel_ctx *ctx) {
    struct table_state *state = ctx->instance->state;
    if (state->is_first_version) {
        KERNEL_TRY(ctx, first_version_output(ctx, state));
        return KERNEL_DONE;
    }
    if (state->is_anonymous) {
        KERNEL_TRY(ctx, anonymous_handle(ctx, state));
        return KERNEL_DONE;
    }
    struct resource_handle *handle = constant_handle(ctx, state);
    struct object *found = NULL;
    KERNEL_TRY(ctx, ctx->host->handle_lookup_or_create(ctx, handle, &lookup_table_type, make_table,
                                                       state, &found));
    struct lookup_table *table = (struct lookup_table *)found;
    struct status *st = check_dtypes(state, table);
    if (likely(!st))
        keep_own(state, table);
    lookup_table_unref(table);
    KERNEL_TRY(ctx, st);
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, object_ref(&handle->object));
    return KERNEL_DONE;
}

/* ---- from inputs ---- */

struct status *lookup_table_of_input(struct kernel_ctx *ctx, struct lookup_table **ret) {
    const struct resource_handle *handle = NULL;
    struct object *found = NULL;
    if (ctx->inputs[0].storage == TENSOR_REF) {
        TRY(named_resource_of_input(ctx, &lookup_table_type, &found));
    } else {
        TRY(handle_of_input(ctx, 0, &handle));
        TRY(ctx->host->handle_lookup(ctx, handle, &lookup_table_type, &found));
    }
    *ret = (struct lookup_table *)found;
    return NULL;
}

struct status *lookup_check_static(const struct kernel_ctx *ctx, const struct lookup_table *table) {
    const struct resource_handle *handle = NULL;
    if (table->is_static)
        return NULL;
    if (ctx->inputs[0].storage == TENSOR_REF)
        return status_invalid("The table is not initializable");
    TRY(handle_of_input(ctx, 0, &handle));
    return status_invalid("Table %s %s is not initializable", handle->container, handle->name);
}

/* Words the op's types, and the types that the table has. */
static COLD struct status *wrong_signature(const struct kernel_ctx *ctx,
                                           const struct lookup_table *table) {
    const struct kernel_instance *instance = ctx->instance;
    const char *handle = dtype_name((enum dtype)instance->in_types[0]);
    struct str have = STR_INIT;
    str_add(&have, handle);
    for (int i = 1; i < instance->n_inputs; i++)
        str_addf(&have, ", %s", dtype_name((enum dtype)instance->in_types[i]));
    str_addf(&have, "->%s expected: %s",
             instance->n_outputs > 0 ? dtype_name((enum dtype)instance->out_types[0]) : "", handle);
    if (instance->n_inputs > 1)
        str_addf(&have, ", %s", dtype_name(table->key_dtype));
    if (instance->n_inputs > 2)
        str_addf(&have, ", %s", dtype_name(table->value_dtype));
    str_addf(&have, "->%s", instance->n_outputs > 0 ? dtype_name(table->value_dtype) : "");
    struct status *st = status_invalid("Signature mismatch, have: %s", str_text(&have));
    str_fini(&have);
    return st;
}

/* Checks that the inputs after the handle are keys and values of this table. */
static struct status *check_inputs(const struct kernel_ctx *ctx, const struct lookup_table *table) {
    const struct kernel_instance *instance = ctx->instance;
    bool is_right = (instance->n_inputs < 2 || instance->in_types[1] == table->key_dtype) &&
                    (instance->n_inputs < 3 || instance->in_types[2] == table->value_dtype);
    return likely(is_right) ? NULL : wrong_signature(ctx, table);
}

/* The shape of keys without the dimensions of a key, followed by the shape of a value. `dims` has
 * room for one more size than the largest rank. */
static struct status *shape_of_values(const struct tensor *keys, const struct lookup_table *table,
                                      int64_t *dims, struct shape *ret) {
    int rank = 0, n_batch = keys->rank - table->key_shape.rank;
    if (n_batch < 0 ||
        (table->key_shape.rank == 1 && tensor_dim(keys, n_batch) != table->key_shape.dims[0]))
        return status_invalid("Input key shape %s must end with table's key shape %s",
                              TENSOR_SHAPE_TEXT(keys), SHAPE_TEXT(table->key_shape));
    for (int i = 0; i < n_batch; i++)
        dims[rank++] = tensor_dim(keys, i);
    for (int i = 0; i < table->value_shape.rank; i++)
        dims[rank++] = table->value_shape.dims[i];
    if (rank > SHAPE_MAX_RANK)
        return status_invalid("Values of %d dimensions are beyond the limit of %d", rank,
                              SHAPE_MAX_RANK);
    *ret = (struct shape){rank, dims};
    return NULL;
}

/* As TensorFlow's, a dense table takes keys in one dimension only: [n], or [n, key]. */
static struct status *check_dense_keys(const struct tensor *keys,
                                       const struct lookup_table *table) {
    int64_t n = keys->rank == 0 ? 1 : tensor_dim(keys, 0), key_len = 1;
    if (!table->methods)
        return NULL;
    for (int i = 0; i < table->key_shape.rank; i++)
        key_len *= table->key_shape.dims[i];
    if (keys->n_elements == n * key_len)
        return NULL;
    int64_t dims[SHAPE_MAX_RANK + 1] = {n};
    memcpy(dims + 1, table->key_shape.dims, (size_t)table->key_shape.rank * sizeof(*dims));
    return status_invalid("Expected key shape %s got %s",
                          SHAPE_TEXT((struct shape){1 + table->key_shape.rank, dims}),
                          TENSOR_SHAPE_TEXT(keys));
}

static struct status *check_values(const struct kernel_ctx *ctx, const struct lookup_table *table) {
    int64_t dims[SHAPE_MAX_RANK + 1];
    struct shape wanted;
    TRY(check_inputs(ctx, table));
    TRY(shape_of_values(kernel_input(ctx, 1), table, dims, &wanted));
    TRY(check_dense_keys(kernel_input(ctx, 1), table));
    if (shape_equal(wanted, tensor_shape(kernel_input(ctx, 2))))
        return NULL;
    return status_invalid("Expected shape %s for value, got %s", SHAPE_TEXT(wanted),
                          TENSOR_SHAPE_TEXT(kernel_input(ctx, 2)));
}

/* The body of a kernel that works on the table of input 0. */
typedef struct status *table_fn(struct kernel_ctx *ctx, struct lookup_table *table);

static enum kernel_result with_table(struct kernel_ctx *ctx, table_fn *fn) {
    struct lookup_table *table = NULL;
    KERNEL_TRY(ctx, lookup_table_of_input(ctx, &table));
    struct status *st = fn(ctx, table);
    lookup_table_unref(table);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- looking up ---- */

static struct status *find_in(struct kernel_ctx *ctx, struct lookup_table *table) {
    const struct tensor *keys = kernel_input(ctx, 1), *defaults = kernel_input(ctx, 2);
    int64_t dims[SHAPE_MAX_RANK + 1];
    struct shape wanted;
    TRY(check_inputs(ctx, table));
    TRY(shape_of_values(keys, table, dims, &wanted));
    TRY(check_dense_keys(keys, table));
    bool has_one_default = shape_equal(tensor_shape(defaults), table->value_shape);
    if (!has_one_default && !shape_equal(tensor_shape(defaults), wanted))
        return status_invalid("Expected shape %s or %s for default value, got %s",
                              SHAPE_TEXT(table->value_shape), SHAPE_TEXT(wanted),
                              TENSOR_SHAPE_TEXT(defaults));
    TRY(kernel_alloc(ctx, 0, table->value_dtype, wanted));
    /* A static table has one default for all keys, whatever the input's shape. As in TensorFlow,
     * that is not checked. */
    return lookup_table_find(table, keys, defaults, has_one_default || table->is_static,
                             &ctx->outputs[0]);
}
static enum kernel_result lookup_find(struct kernel_ctx *ctx) { return with_table(ctx, find_in); }

static struct status *size_in(struct kernel_ctx *ctx, struct lookup_table *table) {
    tensor_init_scalar_i64(&ctx->outputs[0], lookup_table_size(table));
    return NULL;
}
static enum kernel_result lookup_size(struct kernel_ctx *ctx) { return with_table(ctx, size_in); }

static struct status *export_from(struct kernel_ctx *ctx, struct lookup_table *table) {
    const uint8_t *types = ctx->instance->out_types;
    if (types[0] != table->key_dtype || types[1] != table->value_dtype)
        return status_invalid("Signature mismatch, have: %s->%s, %s expected: %s->%s, %s",
                              dtype_name((enum dtype)ctx->instance->in_types[0]),
                              dtype_name((enum dtype)types[0]), dtype_name((enum dtype)types[1]),
                              dtype_name((enum dtype)ctx->instance->in_types[0]),
                              dtype_name(table->key_dtype), dtype_name(table->value_dtype));
    return lookup_table_export(table, ctx->instance->allocator, &ctx->outputs[0], &ctx->outputs[1]);
}
static enum kernel_result lookup_export(struct kernel_ctx *ctx) {
    return with_table(ctx, export_from);
}

/* ---- changing ---- */

static struct status *initialize_in(struct kernel_ctx *ctx, struct lookup_table *table) {
    const struct tensor *keys = kernel_input(ctx, 1), *values = kernel_input(ctx, 2);
    TRY(lookup_check_static(ctx, table));
    TRY(check_inputs(ctx, table));
    if (keys->rank != 1)
        return status_invalid("Keys must be a vector, but received shape%s",
                              TENSOR_SHAPE_TEXT(keys));
    if (values->rank != 1)
        return status_invalid("Values must be a vector, but received shape%s",
                              TENSOR_SHAPE_TEXT(values));
    if (keys->n_elements != values->n_elements)
        return status_invalid("Keys and values must have the same size %lld vs %lld",
                              (long long)keys->n_elements, (long long)values->n_elements);
    if (keys->n_elements == 0)
        return status_invalid("keys and values cannot be empty tensors.");
    return lookup_table_fill(table, keys, values);
}
static enum kernel_result lookup_initialize(struct kernel_ctx *ctx) {
    return with_table(ctx, initialize_in);
}

static struct status *insert_into(struct kernel_ctx *ctx, struct lookup_table *table) {
    TRY(check_values(ctx, table));
    if (table->is_static)
        return status_unimplemented(
            "Insert not supported by InitializableLookupTable implementations");
    return lookup_table_insert(table, kernel_input(ctx, 1), kernel_input(ctx, 2), false);
}
static enum kernel_result lookup_insert(struct kernel_ctx *ctx) {
    return with_table(ctx, insert_into);
}

static struct status *import_into(struct kernel_ctx *ctx, struct lookup_table *table) {
    if (table->methods) {
        TRY(check_inputs(ctx, table));
        return lookup_table_insert(table, kernel_input(ctx, 1), kernel_input(ctx, 2), true);
    }
    TRY(check_values(ctx, table));
    if (table->is_static)
        return lookup_table_fill(table, kernel_input(ctx, 1), kernel_input(ctx, 2));
    return lookup_table_insert(table, kernel_input(ctx, 1), kernel_input(ctx, 2), true);
}
static enum kernel_result lookup_import(struct kernel_ctx *ctx) {
    return with_table(ctx, import_into);
}

static struct status *remove_from(struct kernel_ctx *ctx, struct lookup_table *table) {
    TRY(check_inputs(ctx, table));
    if (table->is_static)
        return status_unimplemented(
            "Remove not supported by InitializableLookupTable implementations");
    if (table->key_shape.rank > 0) {
        int64_t dims[SHAPE_MAX_RANK + 1];
        struct shape unused;
        TRY(shape_of_values(kernel_input(ctx, 1), table, dims, &unused));
    }
    TRY(check_dense_keys(kernel_input(ctx, 1), table));
    return lookup_table_remove(table, kernel_input(ctx, 1));
}
static enum kernel_result lookup_remove(struct kernel_ctx *ctx) {
    return with_table(ctx, remove_from);
}

/* ---- rows ---- */

#define BITS(a, b, c, d, e) \
    (DTYPE_BIT(a) | DTYPE_BIT(b) | DTYPE_BIT(c) | DTYPE_BIT(d) | DTYPE_BIT(e))
/* The types that TensorFlow registers: types of values for each type of key. There are three sets:
 * for static tables, for mutable tables of scalars, and for mutable tables of tensors. */
#define BY_INT32 (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_INT32))
#define BY_INT64 BITS(DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_STRING)
#define BY_STRING BITS(DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_BOOL)
#define TABLE(name, key, types, kind)                                                           \
    {                                                                                           \
        .op = (name), {{"key_dtype", DTYPE_BIT(key)}, {"value_dtype", (types)}},                \
        .compute = table_compute, .init = table_init, .fini = table_state_fini, .arg = &(kind), \
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE                                         \
    }
#define TABLES(name, by_int32, by_int64, by_string, kind)                         \
    TABLE(name, DT_INT32, by_int32, kind), TABLE(name, DT_INT64, by_int64, kind), \
        TABLE(name, DT_STRING, by_string, kind)
#define STATIC_TABLES(name, kind) \
    TABLES(name, BY_INT32 | DTYPE_BIT(DT_STRING), BY_INT64, BY_STRING | DTYPE_BIT(DT_STRING), kind)
#define MUTABLE_TABLES(name, kind) \
    TABLES(name, BY_INT32, BY_INT64 | DTYPE_BIT(DT_VARIANT), BY_STRING, kind)

#define DENSE_BY_INT64 BITS(DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_BOOL)

// clang-format off
static const struct kernel_def rows[] = {
    TABLES("MutableDenseHashTableV2", BY_INT32, DENSE_BY_INT64 | DTYPE_BIT(DT_VARIANT),
    BY_STRING | DTYPE_BIT(DT_RESOURCE), dense_kind),
    TABLES("AnonymousMutableDenseHashTable", BY_INT32, DENSE_BY_INT64 | DTYPE_BIT(DT_VARIANT),
    BY_STRING | DTYPE_BIT(DT_RESOURCE), anonymous_dense_kind),
    STATIC_TABLES("HashTableV2", static_kind),
    STATIC_TABLES("AnonymousHashTable", anonymous_static_kind),
    MUTABLE_TABLES("MutableHashTableV2", mutable_kind),
    MUTABLE_TABLES("AnonymousMutableHashTable", anonymous_mutable_kind),
    TABLES("MutableHashTableOfTensorsV2", BY_INT32, BY_INT64, BY_STRING, mutable_kind),
    TABLES("AnonymousMutableHashTableOfTensors", BY_INT32, BY_INT64, BY_STRING,
    anonymous_mutable_kind),
    STATIC_TABLES("HashTable", static_kind),
    MUTABLE_TABLES("MutableHashTable", mutable_kind),
    TABLES("MutableHashTableOfTensors", BY_INT32, BY_INT64, BY_STRING, mutable_kind),
    {.op = "LookupTableFindV2", .compute = lookup_find, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableFind", .compute = lookup_find, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableSizeV2", .compute = lookup_size, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableSize", .compute = lookup_size, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableExportV2", .compute = lookup_export, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableExport", .compute = lookup_export, .flags = KERNEL_STATEFUL},
    {.op = "InitializeTableV2", .compute = lookup_initialize, .flags = KERNEL_STATEFUL},
    {.op = "InitializeTable", .compute = lookup_initialize, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableInsertV2", .compute = lookup_insert, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableInsert", .compute = lookup_insert, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableImportV2", .compute = lookup_import, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableImport", .compute = lookup_import, .flags = KERNEL_STATEFUL},
    {.op = "LookupTableRemoveV2", .compute = lookup_remove, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list lookup_kernels = {rows, ARRAY_LEN(rows)};
