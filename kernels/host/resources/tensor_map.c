/* Computes the ops of tensor maps: variants that hold tensors under keys, which are tensors as
 * well. A map with several holders is never changed. Entries are kept in the order of their
 * insertion and are found by the hashes of their keys. */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/support/rows.h"
#include "kernels/kernel.h"
#include "kernels/support/element_text.h"
#include "kernels/support/variant.h"

extern const struct kernel_list tensor_map_kernels;

enum { SPARE_CLAIM_BYTES = 1 << 20, MAX_ENTRIES = 1 << 24 };

struct tensor_map {
    struct object object;
    int n, capacity;
    uint32_t depth; /* how deeply variants are nested in it: see variant_check_depth */
    uint64_t *hashes;
    struct tensor *keys, *values;
};

/* ---- the object ---- */

static void map_free(struct object *object) {
    struct tensor_map *map = (struct tensor_map *)object;
    rows_free(map->keys, map->n);
    rows_free(map->values, map->n);
    free(map->hashes);
    free(map);
}

/* Writes a VariantTensorDataProto of keys and values by turns. */
static void map_encode(const struct object *object, struct str *out) {
    const struct tensor_map *map = (const struct tensor_map *)object;
    proto_add_bytes(out, 1, object->type->name, strlen(object->type->name));
    for (int i = 0; i < 2 * map->n && out->len <= VARIANT_MAX_PROTO_BYTES; i++) {
        size_t begin = proto_begin(out, 3, 0);
        tensor_to_proto(i % 2 ? &map->values[i / 2] : &map->keys[i / 2], out);
        proto_end(out, begin, 0);
    }
}

static const struct object_type map_type = {
    .name = "tensorflow::TensorMap", .free = map_free, .encode = map_encode};

static struct tensor_map *map_new(void) {
    struct tensor_map *map = xcalloc(1, sizeof(*map));
    object_init(&map->object, &map_type);
    map->depth = 1;
    return map;
}

static void grow(struct tensor_map *map, struct tensor **tensors, int capacity) {
    struct tensor *more = rows_new(capacity);
    for (int i = 0; i < map->n; i++)
        tensor_move(&more[i], &(*tensors)[i]);
    rows_free(*tensors, map->n);
    *tensors = more;
}

/* Makes room for an entry at the end, which is not counted yet. */
static struct status *map_reserve(struct tensor_map *map) {
    if (map->n == MAX_ENTRIES)
        return status_exhausted("A tensor map of more than %d entries", MAX_ENTRIES);
    if (map->n < map->capacity)
        return NULL;
    map->capacity = MAX(2 * map->capacity, 4);
    map->hashes = xreallocarray(map->hashes, (size_t)map->capacity, sizeof(*map->hashes));
    grow(map, &map->keys, map->capacity);
    grow(map, &map->values, map->capacity);
    return NULL;
}

static uint64_t hash_key(const struct tensor *key) {
    uint64_t hash = hash_mix(key->dtype, (uint64_t)key->n_elements);
    if (key->dtype != DT_STRING)
        return hash_bytes(tensor_cdata(key), tensor_size_bytes(key), hash);
    for (int64_t i = 0; i < key->n_elements; i++)
        hash = hash_bytes(tensor_string(key, i).data, tensor_string(key, i).len, hash);
    return hash;
}

static int map_find(const struct tensor_map *map, const struct tensor *key) {
    uint64_t hash = hash_key(key);
    for (int i = 0; i < map->n; i++)
        if (map->hashes[i] == hash && tensor_equal(&map->keys[i], key))
            return i;
    return -1;
}

/* Adds or replaces an entry. The caller is the only holder of the map. */
static struct status *map_put(struct tensor_map *map, const struct tensor *key,
                              const struct tensor *value) {
    int at = map_find(map, key);
    if (at < 0) {
        TRY(map_reserve(map));
        at = map->n++;
        map->hashes[at] = hash_key(key);
        tensor_copy(&map->keys[at], key);
    }
    tensor_clear(&map->values[at]);
    tensor_copy(&map->values[at], value);
    map->depth = MAX(map->depth, variant_depth_with(value));
    return variant_check_depth(map->depth);
}

static void map_erase(struct tensor_map *map, int at) {
    int last = --map->n;
    tensor_clear(&map->keys[at]);
    tensor_clear(&map->values[at]);
    if (at == last)
        return;
    tensor_move(&map->keys[at], &map->keys[last]);
    tensor_move(&map->values[at], &map->values[last]);
    map->hashes[at] = map->hashes[last];
}

/* Makes *object a map that nobody else holds. */
static struct status *map_own(struct object **object) {
    struct tensor_map *old = (struct tensor_map *)*object, *made;
    struct status *st = NULL;
    if (atomic_load_explicit(&old->object.n_refs, memory_order_acquire) == 1)
        return NULL;
    made = map_new();
    for (int i = 0; i < old->n && !st; i++)
        st = map_put(made, &old->keys[i], &old->values[i]);
    object_unref(st ? &made->object : *object);
    *object = st ? *object : &made->object;
    return st;
}

/* ---- as a kind of variant ---- */

static uint32_t map_depth(const struct object *object) {
    return ((const struct tensor_map *)object)->depth;
}

static struct status *decode_entries(struct tensor_map *map, struct variant_parts *parts,
                                     struct allocator *allocator) {
    struct span proto;
    if (parts->n_tensors % 2 != 0)
        return status_invalid("Malformed TensorMap: a key without a value");
    for (int64_t i = 0; i < parts->n_tensors / 2; i++) {
        TRY(map_reserve(map));
        struct tensor *entry[2] = {&map->keys[map->n], &map->values[map->n]};
        for (int k = 0; k < 2 && variant_next_tensor(&parts->tensors, &proto); k++) {
            struct status *st = tensor_proto_check_claim(proto, SPARE_CLAIM_BYTES);
            if (!st)
                st = tensor_from_proto(proto, NULL, allocator, entry[k]);
            if (st) {
                tensor_clear(entry[0]);
                return st;
            }
        }
        map->hashes[map->n] = hash_key(entry[0]);
        map->n++;
    }
    return NULL;
}

static struct status *map_decode(struct span proto, struct allocator *allocator,
                                 struct object **ret) {
    struct variant_parts parts;
    if (!variant_read_parts(proto, &parts))
        return status_invalid("Malformed TensorMap: its fields cannot be read");
    struct tensor_map *map = map_new();
    struct status *st = decode_entries(map, &parts, allocator);
    if (st)
        object_unref(&map->object);
    else
        *ret = &map->object;
    return st;
}

/* Values under the same key are added. Values that only one map has are kept. */
static struct status *map_add(struct kernel_ctx *ctx, struct object **a, const struct object *b) {
    const struct tensor_map *by = (const struct tensor_map *)b;
    TRY(map_own(a));
    struct tensor_map *sum = (struct tensor_map *)*a;
    for (int i = 0; i < by->n; i++) {
        int at = map_find(sum, &by->keys[i]);
        if (at < 0)
            TRY(map_put(sum, &by->keys[i], &by->values[i]));
        else
            TRY(variant_tensor_add(ctx, &sum->values[at], &by->values[i]));
    }
    return NULL;
}

/* The zero of sums is an empty map. */
static struct status *map_zeros(struct kernel_ctx *ctx, struct object **a) {
    object_unref(*a);
    *a = &map_new()->object;
    return NULL;
}

const struct variant_kind map_variant_kind = {&map_type, map_decode, map_depth, map_add, map_zeros};

/* ---- kernels ---- */

/* Takes the map out of input 0, with a reference. */
static struct status *map_of_input(struct kernel_ctx *ctx, struct object **ret) {
    struct tensor *in = &ctx->inputs[0];
    if (in->n_elements != 1 || in->rank != 0)
        return status_invalid("Input map must be a scalar saw: %s", TENSOR_SHAPE_TEXT(in));
    struct object *object = object_ref(*(struct object *const *)tensor_cdata(in));
    struct status *st = variant_resolve(&object, ctx->instance->allocator);
    if (!st && (!object || object->type != &map_type))
        st = status_invalid("Input handle is not a map. Saw: '%s'",
                            object ? variant_text(object) : "Variant<type: (empty)>");
    if (st) {
        object_unref(object);
        return st;
    }
    tensor_clear(in);
    *ret = object;
    return NULL;
}

static COLD struct status *no_key(const char *what, const struct tensor *key) {
    struct str text = STR_INIT;
    for (int64_t i = 0; i < MIN(key->n_elements, (int64_t)100); i++) {
        str_add(&text, i ? " " : "");
        element_text_add(key, i, false, &text);
    }
    struct status *st =
        status_invalid("Trying to %s. Could not find key \"%s\".", what, str_text(&text));
    str_fini(&text);
    return st;
}

static struct status *check_key(const struct tensor *key) {
    return key->dtype == DT_RESOURCE || key->dtype == DT_VARIANT
               ? status_invalid("A key cannot be a %s", dtype_name((enum dtype)key->dtype))
               : NULL;
}

static struct status *insert(struct kernel_ctx *ctx, struct object **map) {
    TRY(map_own(map));
    TRY(map_put((struct tensor_map *)*map, kernel_input(ctx, 1), kernel_input(ctx, 2)));
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, object_ref(*map));
    return NULL;
}

static struct status *erase(struct kernel_ctx *ctx, struct object **map) {
    int at = map_find((struct tensor_map *)*map, kernel_input(ctx, 1));
    if (at < 0)
        return no_key("erase non-existent item", kernel_input(ctx, 1));
    TRY(map_own(map));
    map_erase((struct tensor_map *)*map, map_find((struct tensor_map *)*map, kernel_input(ctx, 1)));
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, object_ref(*map));
    return NULL;
}

static struct status *lookup(struct kernel_ctx *ctx, struct object **object) {
    const struct tensor_map *map = (const struct tensor_map *)*object;
    int at = map_find(map, kernel_input(ctx, 1));
    if (at < 0)
        return no_key("lookup non-existent key", kernel_input(ctx, 1));
    if (map->values[at].dtype != ctx->instance->out_types[0])
        return status_invalid("Output 0 of type %s does not match declared output type %s",
                              dtype_name((enum dtype)map->values[at].dtype),
                              dtype_name((enum dtype)ctx->instance->out_types[0]));
    tensor_copy(&ctx->outputs[0], &map->values[at]);
    return NULL;
}

static struct status *has_key(struct kernel_ctx *ctx, struct object **map) {
    tensor_init_scalar_bool(&ctx->outputs[0],
                            map_find((struct tensor_map *)*map, kernel_input(ctx, 1)) >= 0);
    return NULL;
}

static struct status *size(struct kernel_ctx *ctx, struct object **map) {
    tensor_init_scalar_i32(&ctx->outputs[0], ((struct tensor_map *)*map)->n);
    return NULL;
}

static struct status *stack_keys(struct kernel_ctx *ctx, struct object **object) {
    const struct tensor_map *map = (const struct tensor_map *)*object;
    if (map->n == 0)
        return status_invalid("TensorMapStackKeys cannot be called on empty map.");
    const struct tensor *first = &map->keys[0];
    int64_t dims[SHAPE_MAX_RANK + 1] = {map->n};
    for (int i = 0; i < map->n; i++) {
        if (map->keys[i].dtype != ctx->instance->out_types[0])
            return status_invalid("Key does not match requested dtype.");
        if (!shape_equal(tensor_shape(&map->keys[i]), tensor_shape(first)))
            return status_invalid("Keys must all have the same shape.");
    }
    if (first->rank == SHAPE_MAX_RANK)
        return status_invalid("Keys of %d dimensions cannot be stacked", first->rank);
    for (int d = 0; d < first->rank; d++)
        dims[d + 1] = tensor_dim(first, d);
    TRY(kernel_alloc(ctx, 0, (enum dtype)first->dtype, (struct shape){first->rank + 1, dims}));
    char *to = tensor_data(&ctx->outputs[0]);
    for (int i = 0; i < map->n; i++)
        elements_copy((enum dtype)first->dtype, to + (size_t)i * tensor_size_bytes(first),
                      tensor_cdata(&map->keys[i]), first->n_elements);
    return NULL;
}

/* The arg of a row. */
struct map_row {
    struct status *(*run)(struct kernel_ctx *ctx, struct object **map);
};
static const struct map_row insert_row = {insert}, erase_row = {erase}, lookup_row = {lookup},
                            has_key_row = {has_key}, size_row = {size}, keys_row = {stack_keys};

static enum kernel_result map_compute(struct kernel_ctx *ctx) {
    const struct map_row *row = ctx->instance->def->arg;
    struct object *map = NULL;
    if (ctx->instance->n_inputs > 1)
        KERNEL_TRY(ctx, check_key(kernel_input(ctx, 1)));
    KERNEL_TRY(ctx, map_of_input(ctx, &map));
    struct status *st = row->run(ctx, &map);
    object_unref(map);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result empty_compute(struct kernel_ctx *ctx) {
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, &map_new()->object);
    return KERNEL_DONE;
}

#define MAP(name, row) \
    { .op = (name), .compute = map_compute, .arg = &(row) }

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "EmptyTensorMap", .compute = empty_compute},
    MAP("TensorMapInsert", insert_row),
    MAP("TensorMapErase", erase_row),
    MAP("TensorMapLookup", lookup_row),
    MAP("TensorMapHasKey", has_key_row),
    MAP("TensorMapSize", size_row),
    MAP("TensorMapStackKeys", keys_row),
};
// clang-format on

const struct kernel_list tensor_map_kernels = {rows, ARRAY_LEN(rows)};
