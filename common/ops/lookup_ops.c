/* Lists tables. The inferred value of the handle of a mutable table is one value. */
#include "common/ops/op_def.h"

static struct status *shape_table(struct shape_inference *ctx) {
    ctx->out[0] = SHAPE_SCALAR;
    if (!ctx->out_handle_dtypes)
        return NULL;
    ctx->out_handle_shapes[0] = SHAPE_SCALAR;
    TRY(node_get_type(ctx->node, "value_dtype", &ctx->out_handle_dtypes[0]));
    if (node_attr(ctx->node, "value_shape"))
        TRY(node_get_shape(ctx->node, "value_shape", &ctx->out_handle_shapes[0]));
    return NULL;
}

/* The shape of the keys, then that of one value. */
static struct status *shape_values(struct shape_inference *ctx, struct shape keys, enum dtype dtype,
                                   struct shape *ret) {
    *ret = SHAPE_UNKNOWN;
    if (!ctx->in_handle_dtypes || ctx->in_handle_dtypes[0] == DT_INVALID)
        return NULL;
    if (ctx->in_handle_dtypes[0] != dtype)
        return status_invalid("Trying to read value with wrong dtype. Expected %s got %s",
                              dtype_name(ctx->in_handle_dtypes[0]), dtype_name(dtype));
    return shape_concat(ctx, keys, ctx->in_handle_shapes[0], ret);
}

static struct status *shape_find(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    return shape_values(ctx, ctx->in[1], (enum dtype)ctx->node->out_types[0], &ctx->out[0]);
}

static struct status *shape_size(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    return shape_scalar(ctx);
}

static struct status *shape_export(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 0, 0, NULL);
}

static struct status *shape_initialize(struct shape_inference *ctx) {
    struct shape keys, unused;
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    TRY(shape_require_rank(ctx, 1, 1, &keys));
    return shape_merge(ctx, keys, ctx->in[2], &unused);
}

static struct status *shape_initialize_from_file(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    return shape_require_rank(ctx, 1, 0, NULL);
}

static struct status *shape_change(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 0, 0, NULL);
}

/* ---- the first version: the handle is a reference to two strings ---- */

static const int64_t two = 2;

static struct status *check_first_handle(struct shape_inference *ctx) {
    struct shape handle;
    TRY(shape_require_rank(ctx, 0, 1, &handle));
    if (handle.rank == 1 && handle.dims[0] >= 0 && handle.dims[0] != two)
        return status_invalid("Dimension must be 2 but is %lld", (long long)handle.dims[0]);
    return NULL;
}

static struct status *shape_first_version(struct shape_inference *ctx) {
    ctx->out[0] = shape_make(ctx, 1, &two);
    return NULL;
}

static struct status *shape_first_find(struct shape_inference *ctx) {
    TRY(check_first_handle(ctx));
    if (ctx->in[2].rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", ctx->in[2].rank);
    return NULL;
}

static struct status *shape_first_size(struct shape_inference *ctx) {
    TRY(check_first_handle(ctx));
    return shape_scalar(ctx);
}

static struct status *shape_first_export(struct shape_inference *ctx) {
    TRY(check_first_handle(ctx));
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_first_initialize(struct shape_inference *ctx) {
    struct shape keys, unused;
    TRY(check_first_handle(ctx));
    TRY(shape_require_rank(ctx, 1, 1, &keys));
    return shape_merge(ctx, keys, ctx->in[2], &unused);
}

static struct status *shape_first_file(struct shape_inference *ctx) {
    TRY(check_first_handle(ctx));
    return shape_require_rank(ctx, 1, 0, NULL);
}

static struct status *shape_first_change(struct shape_inference *ctx) {
    return check_first_handle(ctx);
}

// clang-format off
static const struct op_def rows[] = {
    {"HashTableV2", "a table that is filled once", shape_scalar},
    {"AnonymousHashTable", "a table that is filled once, of the step", shape_scalar},
    {"MutableHashTableV2", "a table that changes", shape_table},
    {"AnonymousMutableHashTable", "a table that changes, of the step", shape_table},
    {"MutableHashTableOfTensorsV2", "a table of vectors that changes", shape_table},
    {"AnonymousMutableHashTableOfTensors", "a table of vectors that changes, of the step",
     shape_table},
    {"MutableDenseHashTableV2", "a table that changes, with open buckets", shape_scalar},
    {"AnonymousMutableDenseHashTable", "a table that changes, with open buckets, of the step",
     shape_scalar},
    {"LookupTableFindV2", "the values of keys", shape_find},
    {"LookupTableSizeV2", "how many keys a table has", shape_size},
    {"LookupTableExportV2", "all keys and values, in any order", shape_export},
    {"InitializeTableV2", "fills a table, once", shape_initialize},
    {"InitializeTableFromDataset", "fills a table with a dataset's pairs, once",
     shape_initialize_from_file},
    {"InitializeTableFromTextFileV2", "fills a table from the lines of a file, once",
     shape_initialize_from_file},
    {"LookupTableInsertV2", "adds keys with values, or replaces theirs", shape_change},
    {"LookupTableImportV2", "replaces all that a table holds", shape_change},
    {"LookupTableRemoveV2", "removes keys", shape_change},
    {"HashTable", "a table that is filled once", shape_first_version},
    {"MutableHashTable", "a table that changes", shape_first_version},
    {"MutableHashTableOfTensors", "a table of vectors that changes", shape_first_version},
    {"LookupTableFind", "the values of keys", shape_first_find},
    {"LookupTableSize", "how many keys a table has", shape_first_size},
    {"LookupTableExport", "all keys and values, in any order", shape_first_export},
    {"InitializeTable", "fills a table, once", shape_first_initialize},
    {"InitializeTableFromTextFile", "fills a table from the lines of a file, once",
     shape_first_file},
    {"LookupTableInsert", "adds keys with values, or replaces theirs", shape_first_change},
    {"LookupTableImport", "replaces all that a table holds", shape_first_change},
};
// clang-format on

const struct op_def_list lookup_ops = {rows, ARRAY_LEN(rows)};
