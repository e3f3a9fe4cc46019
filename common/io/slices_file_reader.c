/* Reads V1 checkpoints: one file, or the shards that a pattern found. */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/io/slices_file.h"
#include "common/io/table.h"
#include "common/tensor/tensor_proto.h"

/* The bytes that a shape may claim beyond 16 times the bytes of its values. */
enum { SPARE_BYTES = 64 << 20 };

struct slices_tensor {
    struct span name;
    enum dtype dtype;
    struct shape shape;
    struct tensor_slice *slices; /* files[i] has slices[i] */
    int *files;
    int n, capacity;
};

struct slices_reader {
    struct arena arena;
    struct table_reader *tables;
    size_t n_tables;
    struct slices_tensor **tensors;
    size_t n_tensors, capacity;
    struct strmap by_name;
};

enum dtype slices_tensor_dtype(const struct slices_tensor *tensor) { return tensor->dtype; }
struct shape slices_tensor_shape(const struct slices_tensor *tensor) {
    return tensor->shape;
}
struct span slices_tensor_name(const struct slices_tensor *tensor) {
    return tensor->name;
}

const struct slices_tensor *slices_reader_find(const struct slices_reader *reader,
                                               struct span name) {
    return strmap_get_span(&reader->by_name, name);
}

const struct slices_tensor *slices_reader_at(const struct slices_reader *reader, size_t i) {
    return i < reader->n_tensors ? reader->tensors[i] : NULL;
}

static COLD struct status *damaged(const struct table_reader *table, const char *what,
                                   struct span name) {
    return status_new(STATUS_DATA_LOSS, "%s: %s: tensor '%.*s'", table->path, what, (int)name.len,
                      name.data);
}

/* ---- what there is ---- */

static struct slices_tensor *add_tensor(struct slices_reader *reader, struct span name) {
    struct slices_tensor *tensor = arena_new(&reader->arena, struct slices_tensor);
    tensor->name = (struct span){arena_strndup(&reader->arena, name.data, name.len), name.len};
    if (reader->n_tensors == reader->capacity) {
        reader->capacity = reader->capacity ? 2 * reader->capacity : 16;
        reader->tensors =
            xreallocarray(reader->tensors, reader->capacity, sizeof(*reader->tensors));
    }
    reader->tensors[reader->n_tensors++] = tensor;
    strmap_put_span(&reader->by_name, tensor->name, tensor);
    return tensor;
}

static void add_slice(struct slices_reader *reader, struct slices_tensor *tensor,
                      struct tensor_slice slice, int file) {
    if (tensor->n == tensor->capacity) {
        int capacity = tensor->capacity ? 2 * tensor->capacity : 1;
        struct tensor_slice *slices = arena_array(&reader->arena, struct tensor_slice, capacity);
        int *files = arena_array(&reader->arena, int, capacity);
        for (int i = 0; i < tensor->n; i++) {
            slices[i] = tensor->slices[i];
            files[i] = tensor->files[i];
        }
        tensor->slices = slices;
        tensor->files = files;
        tensor->capacity = capacity;
    }
    tensor->slices[tensor->n] = slice;
    tensor->files[tensor->n++] = file;
}

/* SavedSliceMeta: name = 1, shape = 2, type = 3, slice = 4 (repeated). */
struct tensor_meta {
    struct span name;
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
    uint64_t dtype;
};

static bool parse_tensor_meta(struct span proto, struct tensor_meta *ret) {
    struct proto_field field;
    int more;
    ret->name = (struct span){"", 0};
    ret->rank = 0;
    ret->dtype = DT_INVALID;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 2)
            ret->name = field.bytes;
        else if (field.number == 2 && field.wire_type == 2 &&
                 (!proto_read_shape(field.bytes, ret->dims, &ret->rank) || ret->rank < 0))
            return false;
        else if (field.number == 3 && field.wire_type == 0)
            ret->dtype = field.value;
    }
    return more == 0 && ret->dtype < DT_N_TYPES &&
           dtype_in((enum dtype)ret->dtype, DTYPES_SLICES_FILE);
}

static struct status *read_tensor_meta(struct slices_reader *reader, int file, struct span proto) {
    const struct table_reader *table = &reader->tables[file];
    struct tensor_meta meta;
    struct proto_field field;
    struct tensor_slice slice;
    struct shape unused;
    int64_t n;
    if (!parse_tensor_meta(proto, &meta))
        return damaged(table, "malformed description", meta.name);
    struct shape shape = {meta.rank, meta.dims};
    TRY(status_prefix_take(shape_n_elements(shape, &n), "%s: tensor '%.*s': ", table->path,
                           (int)meta.name.len, meta.name.data));
    struct slices_tensor *tensor = strmap_get_span(&reader->by_name, meta.name);
    if (!tensor) {
        tensor = add_tensor(reader, meta.name);
        tensor->dtype = (enum dtype)meta.dtype;
        tensor->shape = shape_dup(shape, &reader->arena);
    } else if (tensor->dtype != (enum dtype)meta.dtype || !shape_equal(tensor->shape, shape)) {
        return status_new(STATUS_DATA_LOSS,
                          "Incompatible tensor types or shapes detected for tensor %.*s in %s",
                          (int)meta.name.len, meta.name.data, table->path);
    }
    while (proto_next(&proto, &field) > 0) {
        if (field.number != 4 || field.wire_type != 2)
            continue;
        if (!tensor_slice_from_proto(field.bytes, &reader->arena, &slice))
            return damaged(table, "malformed slice", meta.name);
        TRY(status_prefix_take(tensor_slice_shape(&slice, tensor->shape, &reader->arena, &unused),
                               "%s: ", table->path));
        add_slice(reader, tensor, slice, file);
    }
    return NULL;
}

static struct status *read_meta(struct slices_reader *reader, int file, struct span proto) {
    struct proto_field field, part;
    int more, more_parts;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number != 1 || field.wire_type != 2)
            continue;
        while ((more_parts = proto_next(&field.bytes, &part)) > 0)
            if (part.number == 1 && part.wire_type == 2)
                TRY(read_tensor_meta(reader, file, part.bytes));
        if (more_parts < 0)
            more = -1;
    }
    return more < 0 ? damaged(&reader->tables[file], "malformed description", span_of("")) : NULL;
}

static struct status *open_file(struct slices_reader *reader, const struct file_system *fs,
                                const char *path) {
    struct table_reader *table = &reader->tables[reader->n_tables];
    struct table_iter iter;
    struct status *st = table_reader_open(table, fs, path);
    if (st)
        return status_prefix_take(
            status_suffix_take(
                st,
                ": perhaps your file is in a different file format and you need to use a different "
                "restore operator?"),
            "Unable to open table file ");
    reader->n_tables++;
    table_iter_init(&iter, table);
    st = table_iter_seek(&iter, (struct span){"", 0});
    if (!st && (!iter.is_valid || table_iter_key(&iter).len != 0))
        st = status_new(
            STATUS_DATA_LOSS,
            "Failed to find the saved tensor slices at the beginning of the checkpoint file: %s",
            path);
    if (!st)
        st = read_meta(reader, (int)reader->n_tables - 1, table_iter_value(&iter));
    table_iter_fini(&iter);
    return st;
}

struct status *slices_reader_open(const struct file_system *fs, char *const *paths, size_t n,
                                  struct slices_reader **ret) {
    struct slices_reader *reader = xcalloc(1, sizeof(*reader));
    struct status *st = NULL;
    arena_init(&reader->arena);
    strmap_init(&reader->by_name);
    reader->tables = xcalloc(n + 1, sizeof(*reader->tables));
    for (size_t i = 0; !st && i < n; i++)
        st = open_file(reader, fs, paths[i]);
    if (st)
        slices_reader_close(reader);
    else
        *ret = reader;
    return st;
}

void slices_reader_close(struct slices_reader *reader) {
    if (!reader)
        return;
    for (size_t i = 0; i < reader->n_tables; i++)
        table_reader_close(&reader->tables[i]);
    free(reader->tables);
    free(reader->tensors);
    strmap_fini(&reader->by_name);
    arena_fini(&reader->arena);
    free(reader);
}

/* ---- elements ---- */

/* SavedTensorSlices.data (2) → SavedSlice.data (3), a TensorProto without type and shape. */
static bool find_elements(struct span proto, struct span *ret) {
    struct proto_field field, part;
    int more;
    bool is_found = false;
    while ((more = proto_next(&proto, &field)) > 0)
        if (field.number == 2 && field.wire_type == 2)
            while (proto_next(&field.bytes, &part) > 0)
                if (part.number == 3 && part.wire_type == 2) {
                    *ret = part.bytes;
                    is_found = true;
                }
    return more == 0 && is_found;
}

static struct status *parse_elements(const struct table_reader *table,
                                     const struct slices_tensor *tensor, struct shape shape,
                                     struct span value, struct allocator *allocator,
                                     struct tensor *ret) {
    struct span elements = {NULL, 0};
    struct str proto = STR_INIT;
    if (!find_elements(value, &elements))
        return damaged(table, "malformed slice data", tensor->name);
    /* Fields may come in any order, so missing ones are added at the end, where they override those
     * in the file. */
    str_add_bytes(&proto, elements.data, elements.len);
    proto_add_int(&proto, 1, (uint64_t)tensor->dtype);
    proto_add_shape(&proto, 2, shape);
    struct span in = {proto.data, proto.len};
    struct status *st = tensor_proto_check_claim(in, SPARE_BYTES);
    if (!st)
        st = tensor_from_proto(in, NULL, allocator, ret);
    str_fini(&proto);
    if (!st && (ret->dtype != tensor->dtype || !shape_equal(tensor_shape(ret), shape))) {
        tensor_clear(ret);
        return damaged(table, "slice data of another type or shape", tensor->name);
    }
    if (st && status_code(st) == STATUS_INVALID_ARGUMENT) {
        status_unref(st);
        return damaged(table, "malformed slice data", tensor->name);
    }
    return st;
}

static struct status *read_piece(const struct slices_reader *reader,
                                 const struct slices_tensor *tensor, int i, struct arena *arena,
                                 struct allocator *allocator, struct tensor *ret) {
    const struct table_reader *table = &reader->tables[tensor->files[i]];
    struct str key = STR_INIT;
    struct table_iter iter;
    struct shape shape;
    tensor_slice_add_key(tensor->name, &tensor->slices[i], &key);
    table_iter_init(&iter, table);
    struct status *st = tensor_slice_shape(&tensor->slices[i], tensor->shape, arena, &shape);
    if (!st)
        st = table_iter_seek(&iter, (struct span){key.data, key.len});
    if (!st &&
        (!iter.is_valid || !span_equal(table_iter_key(&iter), (struct span){key.data, key.len})))
        st = damaged(table, "a slice is missing", tensor->name);
    if (!st)
        st = parse_elements(table, tensor, shape, table_iter_value(&iter), allocator, ret);
    table_iter_fini(&iter);
    str_fini(&key);
    return st;
}

static struct status *assemble(const struct slices_reader *reader,
                               const struct slices_tensor *tensor, const struct slice_box *box,
                               struct arena *arena, struct allocator *allocator,
                               struct tensor *out) {
    for (int i = 0; i < tensor->n && out->n_elements > 0; i++) {
        struct slice_box from = slice_box_of(&tensor->slices[i], tensor->shape, arena), part;
        struct tensor t = TENSOR_INIT;
        if (!slice_box_cross(&from, box, arena, &part))
            continue;
        TRY(read_piece(reader, tensor, i, arena, allocator, &t));
        slice_box_copy(tensor->dtype, &part, &from, tensor_cdata(&t), box, tensor_data(out));
        tensor_clear(&t);
    }
    return NULL;
}

struct status *slices_reader_read(const struct slices_reader *reader,
                                  const struct slices_tensor *tensor,
                                  const struct tensor_slice *slice, struct allocator *allocator,
                                  struct tensor *ret) {
    struct arena arena;
    struct tensor out = TENSOR_INIT;
    struct shape shape;
    struct status *st = NULL;
    bool is_covered = false;
    arena_init(&arena);
    TRY_OUT(tensor_slice_shape(slice, tensor->shape, &arena, &shape));
    struct slice_box box = slice_box_of(slice, tensor->shape, &arena);
    TRY_OUT(
        tensor_slices_cover(tensor->slices, tensor->n, tensor->shape, &box, &arena, &is_covered));
    if (!is_covered) {
        st =
            status_invalid("Error copying slice data: the checkpoint lacks a part of tensor '%.*s'",
                           (int)tensor->name.len, tensor->name.data);
        goto out;
    }
    TRY_OUT(tensor_new(allocator, tensor->dtype, shape, &out));
    st = assemble(reader, tensor, &box, &arena, allocator, &out);
    if (st)
        tensor_clear(&out);
    else
        tensor_move(ret, &out);
out:
    arena_fini(&arena);
    return st;
}
