/* Writes V1 checkpoints. */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/io/slices_file.h"
#include "common/io/table.h"
#include "common/io/temporary.h"
#include "common/tensor/tensor_proto.h"

/* A message of protobuf must be shorter than 2 GiB. The second number is more than all fields but
 * the elements take. */
#define MAX_MESSAGE_BYTES (1ll << 31)
enum { HEAD_BYTES = 1 << 20, VERSION = 1 };

struct piece {
    struct span key;
    struct span name;
    struct tensor_slice slice;
    struct tensor value;
};

struct whole {
    struct span name;
    enum dtype dtype;
    struct shape shape;
    struct piece **pieces;
    int n, capacity;
};

struct slices_writer {
    const struct file_system *fs;
    char *path;
    struct arena arena;
    struct whole **tensors; /* in the order in which they were added */
    struct piece **pieces;
    int n_tensors, tensors_capacity, n_pieces, pieces_capacity;
    struct strmap by_name, by_key;
};

struct slices_writer *slices_writer_new(const struct file_system *fs, const char *path) {
    struct slices_writer *writer = xcalloc(1, sizeof(*writer));
    writer->fs = fs;
    writer->path = xstrdup(path);
    arena_init(&writer->arena);
    strmap_init(&writer->by_name);
    strmap_init(&writer->by_key);
    return writer;
}

void slices_writer_free(struct slices_writer *writer) {
    if (!writer)
        return;
    for (int i = 0; i < writer->n_pieces; i++)
        tensor_clear(&writer->pieces[i]->value);
    for (int i = 0; i < writer->n_tensors; i++)
        free(writer->tensors[i]->pieces);
    free(writer->tensors);
    free(writer->pieces);
    strmap_fini(&writer->by_name);
    strmap_fini(&writer->by_key);
    arena_fini(&writer->arena);
    free(writer->path);
    free(writer);
}

/* Makes room for one more pointer. */
static void *grow(void *items, int n, int *capacity) {
    if (n < *capacity)
        return items;
    *capacity = *capacity ? 2 * *capacity : 8;
    return xreallocarray(items, (size_t)*capacity, sizeof(void *));
}

/* ---- elements ---- */

/* The most bytes that an element takes in its list. */
static int64_t element_bytes(enum dtype dtype) {
    switch (dtype) {
    case DT_BOOL:
        return 1;
    case DT_UINT8:
    case DT_QUINT8:
        return 2;
    case DT_UINT16:
    case DT_HALF:
        return 3;
    case DT_FLOAT:
        return 4;
    case DT_DOUBLE:
    case DT_COMPLEX64:
        return 8;
    case DT_COMPLEX128:
        return 16;
    default:
        return 10;
    }
}

static struct status *check_size(struct span name, const struct tensor *value) {
    int64_t size = HEAD_BYTES, part = 0;
    bool is_large = false;
    if (value->dtype == DT_STRING) {
        for (int64_t i = 0; i < value->n_elements && size <= MAX_MESSAGE_BYTES; i++)
            size += (int64_t)tensor_string(value, i).len + 11;
    } else {
        is_large =
            mul_overflows_i64(value->n_elements, element_bytes((enum dtype)value->dtype), &part) ||
            part > MAX_MESSAGE_BYTES;
        size += is_large ? 0 : part;
    }
    if (!is_large && size <= MAX_MESSAGE_BYTES)
        return NULL;
    return status_invalid(
        "Tensor slice is too large to serialize (conservative estimate: %lld bytes): %.*s",
        (long long)(is_large ? INT64_MAX : size), (int)name.len, name.data);
}

/* A list of fixed-size elements is the memory of the tensor. */
static void add_fixed(struct str *out, uint32_t field, const struct tensor *value) {
    proto_add_bytes(out, field, tensor_cdata(value), tensor_size_bytes(value));
}

#define VARINTS(type, widened)                                             \
    for (int64_t i = 0; i < value->n_elements; i++)                        \
        proto_add_varint(out, (uint64_t)(widened)((const type *)data)[i]); \
    break;

static void add_varints(struct str *out, const struct tensor *value) {
    const void *data = tensor_cdata(value);
    switch (value->dtype) {
    case DT_INT32:
    case DT_QINT32:
        VARINTS(int32_t, int64_t)
    case DT_INT16:
        VARINTS(int16_t, int64_t)
    case DT_INT8:
    case DT_QINT8:
        VARINTS(int8_t, int64_t)
    case DT_UINT8:
    case DT_QUINT8:
        VARINTS(uint8_t, uint64_t)
    case DT_UINT16:
    case DT_HALF:
        VARINTS(uint16_t, uint64_t)
    case DT_BOOL:
        VARINTS(uint8_t, bool)
    default:
        VARINTS(int64_t, int64_t)
    }
}

/* Writes the fields of a TensorProto that contain elements, without dtype and shape. */
static void add_elements(struct str *out, const struct tensor *value) {
    static const uint8_t fields[DT_N_TYPES] = {
        [DT_FLOAT] = 5,  [DT_DOUBLE] = 6, [DT_INT32] = 7,       [DT_UINT8] = 7,
        [DT_INT16] = 7,  [DT_INT8] = 7,   [DT_QINT8] = 7,       [DT_QUINT8] = 7,
        [DT_QINT32] = 7, [DT_UINT16] = 7, [DT_STRING] = 8,      [DT_COMPLEX64] = 9,
        [DT_INT64] = 10, [DT_BOOL] = 11,  [DT_COMPLEX128] = 12, [DT_HALF] = 13};
    uint32_t field = fields[value->dtype];
    if (value->dtype == DT_STRING) {
        for (int64_t i = 0; i < value->n_elements; i++)
            proto_add_bytes(out, field, tensor_string(value, i).data, tensor_string(value, i).len);
    } else if (value->n_elements == 0) {
        return;
    } else if (field == 5 || field == 6 || field == 9 || field == 12) {
        add_fixed(out, field, value);
    } else {
        size_t hint = (size_t)value->n_elements, list = proto_begin(out, field, hint);
        add_varints(out, value);
        proto_end(out, list, hint);
    }
}

/* ---- adding ---- */

static struct status *find_whole(struct slices_writer *writer, struct span name, struct shape shape,
                                 enum dtype dtype, struct whole **ret) {
    struct whole *whole = strmap_get_span(&writer->by_name, name);
    if (!whole) {
        whole = arena_new(&writer->arena, struct whole);
        whole->name = (struct span){arena_strndup(&writer->arena, name.data, name.len), name.len};
        whole->dtype = dtype;
        whole->shape = shape_dup(shape, &writer->arena);
        writer->tensors = grow(writer->tensors, writer->n_tensors, &writer->tensors_capacity);
        writer->tensors[writer->n_tensors++] = whole;
        strmap_put_span(&writer->by_name, whole->name, whole);
    } else if (!shape_equal(whole->shape, shape)) {
        return status_invalid(
            "Mismatching shapes: existing tensor = %s, trying to add name %.*s, shape = %s",
            SHAPE_TEXT(whole->shape), (int)name.len, name.data, SHAPE_TEXT(shape));
    } else if (whole->dtype != dtype) {
        return status_invalid(
            "Mismatching types: existing type = %s, trying to add name %.*s, type = %s",
            dtype_name(whole->dtype), (int)name.len, name.data, dtype_name(dtype));
    }
    *ret = whole;
    return NULL;
}

struct status *slices_writer_add(struct slices_writer *writer, struct span name,
                                 struct shape whole_shape, const struct tensor_slice *slice,
                                 const struct tensor *value) {
    struct whole *whole = NULL;
    struct str key = STR_INIT;
    enum dtype dtype = (enum dtype)value->dtype;
    if (dtype == DT_UINT32 || dtype == DT_UINT64) /* TensorFlow uses other words for these two */
        return status_invalid("Tensor slice serialization not implemented for dtype %d",
                              (int)dtype);
    if (!dtype_in(dtype, DTYPES_SLICES_FILE))
        return status_unimplemented("Saving data type %s not yet supported", dtype_name(dtype));
    TRY(check_size(name, value));
    TRY(find_whole(writer, name, whole_shape, dtype, &whole));
    tensor_slice_add_key(name, slice, &key);
    struct piece *piece =
        arena_alloc_aligned(&writer->arena, sizeof(*piece), _Alignof(struct piece));
    size_t n = (size_t)MAX(slice->rank, 1) * sizeof(int64_t);
    *piece = (struct piece){.key = {arena_memdup(&writer->arena, key.data, key.len), key.len},
                            .name = whole->name};
    piece->slice =
        (struct tensor_slice){slice->rank, arena_memdup(&writer->arena, slice->starts, n),
                              arena_memdup(&writer->arena, slice->lengths, n)};
    str_fini(&key);
    if (strmap_get_span(&writer->by_key, piece->key))
        return status_invalid("Overlapping slices: existing slice = %s, new slice = %s",
                              tensor_slice_text(slice, &writer->arena),
                              tensor_slice_text(slice, &writer->arena));
    tensor_copy(&piece->value, value);
    whole->pieces = grow(whole->pieces, whole->n, &whole->capacity);
    whole->pieces[whole->n++] = piece;
    writer->pieces = grow(writer->pieces, writer->n_pieces, &writer->pieces_capacity);
    writer->pieces[writer->n_pieces++] = piece;
    strmap_put_span(&writer->by_key, piece->key, piece);
    return NULL;
}

/* ---- the file ---- */

static void print_meta(const struct slices_writer *writer, struct str *out) {
    size_t meta = proto_begin(out, 1, 0);
    for (int i = 0; i < writer->n_tensors; i++) {
        const struct whole *whole = writer->tensors[i];
        size_t tensor = proto_begin(out, 1, 0);
        proto_add_bytes(out, 1, whole->name.data, whole->name.len);
        proto_add_shape(out, 2, whole->shape);
        proto_add_int(out, 3, (uint64_t)whole->dtype);
        for (int k = 0; k < whole->n; k++)
            tensor_slice_add_proto(&whole->pieces[k]->slice, 4, out);
        proto_end(out, tensor, 0);
    }
    size_t versions = proto_begin(out, 2, 0);
    proto_add_int(out, 1, VERSION);
    proto_end(out, versions, 0);
    proto_end(out, meta, 0);
}

static void print_piece(const struct piece *piece, struct str *out) {
    size_t hint = tensor_size_bytes(&piece->value), data = proto_begin(out, 2, hint);
    proto_add_bytes(out, 1, piece->name.data, piece->name.len);
    tensor_slice_add_proto(&piece->slice, 2, out);
    size_t elements = proto_begin(out, 3, hint);
    add_elements(out, &piece->value);
    proto_end(out, elements, hint);
    proto_end(out, data, hint);
}

static int by_key(const void *a, const void *b) {
    return table_compare((*(struct piece *const *)a)->key, (*(struct piece *const *)b)->key);
}

static struct status *write_table(struct slices_writer *writer, struct file_sink *sink) {
    struct table_writer table;
    struct str proto = STR_INIT;
    if (writer->n_pieces > 1)
        qsort(writer->pieces, (size_t)writer->n_pieces, sizeof(*writer->pieces), by_key);
    table_writer_init(&table, sink);
    print_meta(writer, &proto);
    struct status *st =
        table_writer_add(&table, (struct span){"", 0}, (struct span){proto.data, proto.len});
    for (int i = 0; !st && i < writer->n_pieces; i++) {
        str_clear(&proto);
        print_piece(writer->pieces[i], &proto);
        st = table_writer_add(&table, writer->pieces[i]->key, (struct span){proto.data, proto.len});
    }
    if (!st)
        st = table_writer_finish(&table);
    str_fini(&proto);
    table_writer_fini(&table);
    return st;
}

struct status *slices_writer_finish(struct slices_writer *writer) {
    const struct file_system *fs = writer->fs;
    struct file_sink sink = FILE_SINK_INIT;
    struct str temporary = STR_INIT;
    str_add(&temporary, writer->path);
    temporary_add_name(&temporary);
    struct status *st = file_sink_open(&sink, fs, temporary.data);
    if (!st) {
        st = write_table(writer, &sink);
        if (!st)
            st = file_sink_finish(&sink);
        int error = st ? 0 : fs->rename(fs, temporary.data, writer->path);
        if (error < 0)
            st = file_failed(writer->path, error);
        if (st)
            fs->unlink(fs, temporary.data);
        else
            st = file_sync_dir_of(fs, writer->path);
        if (!st)
            temporary_collect(fs, writer->path);
    }
    file_sink_fini(&sink);
    str_fini(&temporary);
    return st;
}
