/* Reads and writes TensorProto. Decoding visits the fields twice: the first time it finds type,
 * shape and the place of the elements, the second time it stores them. So the elements are written
 * directly to their destination, whatever the order of the fields. */
#include "common/tensor/tensor_proto.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto_internal.h"

enum {
    FIELD_DTYPE = 1,
    FIELD_SHAPE = 2,
    FIELD_CONTENT = 4,
    FIELD_STRING = 8,
    FIELD_RESOURCE = 14,
    FIELD_VARIANT = 15,
    FIELD_FLOAT8 = 18,
};

/* A smaller view is not worth a reference to a whole message; see wants_view. */
enum { VIEW_MIN_BYTES = 4096, VIEW_ALWAYS_BYTES = 1 << 20, VIEW_MAX_WASTE = 16 };

/* The field that lists the elements of a type. `unit_bytes` is the size of one listed value (a
 * complex element has two). */
static const struct tensor_value_field value_fields[DT_N_TYPES] = {
    /* clang-format off */
    [DT_FLOAT] = {5, 5, 4}, [DT_DOUBLE] = {6, 1, 8}, [DT_COMPLEX64] = {9, 5, 4},
    [DT_COMPLEX128] = {12, 1, 8}, [DT_INT32] = {7, 0, 4}, [DT_UINT8] = {7, 0, 1},
    [DT_INT16] = {7, 0, 2}, [DT_INT8] = {7, 0, 1}, [DT_UINT16] = {7, 0, 2}, [DT_QINT8] = {7, 0, 1},
    [DT_QUINT8] = {7, 0, 1}, [DT_QINT16] = {7, 0, 2}, [DT_QUINT16] = {7, 0, 2},
    [DT_QINT32] = {7, 0, 4}, [DT_INT4] = {7, 0, 1}, [DT_UINT4] = {7, 0, 1}, [DT_INT2] = {7, 0, 1},
    [DT_UINT2] = {7, 0, 1}, [DT_INT64] = {10, 0, 8}, [DT_BOOL] = {11, 0, 1}, [DT_HALF] = {13, 0, 2},
    [DT_BFLOAT16] = {13, 0, 2}, [DT_UINT32] = {16, 0, 4}, [DT_UINT64] = {17, 0, 8},
    [DT_FLOAT8_E5M2] = {FIELD_FLOAT8, 2, 1}, [DT_FLOAT8_E4M3FN] = {FIELD_FLOAT8, 2, 1},
    [DT_FLOAT8_E4M3FNUZ] = {FIELD_FLOAT8, 2, 1}, [DT_FLOAT8_E4M3B11FNUZ] = {FIELD_FLOAT8, 2, 1},
    [DT_FLOAT8_E5M2FNUZ] = {FIELD_FLOAT8, 2, 1}, [DT_FLOAT4_E2M1FN] = {FIELD_FLOAT8, 2, 1},
    [DT_STRING] = {FIELD_STRING, 2, 8}, [DT_RESOURCE] = {FIELD_RESOURCE, 2, 8},
    [DT_VARIANT] = {FIELD_VARIANT, 2, 8},
    /* clang-format on */
};

/* ---- objects ---- */

static void variant_proto_free(struct object *object) {
    free(CONTAINER_OF(object, struct bytes, object));
}

const struct object_type variant_proto_type = {.name = "variant", .free = variant_proto_free};

struct bytes *variant_proto_new(struct span proto) {
    struct bytes *bytes = bytes_new(proto.data, proto.len);
    if (bytes)
        bytes->object.type = &variant_proto_type;
    return bytes;
}

static char *text_field(struct span bytes) {
    return bytes.len > 0 ? xstrndup(bytes.data, bytes.len) : NULL;
}

/* The dtype of the resource of a handle, from its first DtypeAndShape. */
static enum dtype handle_dtype(struct span dtype_and_shape) {
    struct proto_field field;
    while (proto_next(&dtype_and_shape, &field) > 0)
        if (field.number == 1 && field.wire_type == 0 &&
            dtype_is_known((int)MIN(field.value, (uint64_t)DT_N_TYPES)))
            return (enum dtype)field.value;
    return DT_INVALID;
}

/* NULL when malformed. */
static struct resource_handle *resource_handle_from_proto(struct span proto) {
    char *texts[4] = {NULL}; /* device, container, name, type name */
    enum dtype dtype = DT_INVALID;
    struct proto_field field;
    int more;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.wire_type != 2)
            continue;
        int at = field.number >= 1 && field.number <= 3 ? (int)field.number - 1
                 : field.number == 5                    ? 3
                                                        : -1;
        if (at >= 0) {
            free(texts[at]);
            texts[at] = text_field(field.bytes);
        } else if (field.number == 6 && dtype == DT_INVALID) {
            dtype = handle_dtype(field.bytes);
        }
    }
    struct resource_handle *handle = NULL;
    if (more == 0)
        handle =
            resource_handle_new(texts[0] ? texts[0] : "", texts[1] ? texts[1] : "",
                                texts[2] ? texts[2] : "", texts[3] ? texts[3] : "", dtype, NULL);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    return handle;
}

static void resource_handle_to_proto(const struct resource_handle *handle, struct str *out) {
    if (!handle)
        return;
    const char *texts[3] = {handle->device, handle->container, handle->name};
    for (uint32_t i = 0; i < 3; i++)
        if (texts[i][0])
            proto_add_bytes(out, i + 1, texts[i], strlen(texts[i]));
    proto_add_int(out, 4, handle->hash);
    if (handle->type_name[0])
        proto_add_bytes(out, 5, handle->type_name, strlen(handle->type_name));
    if (handle->dtype != DT_INVALID) {
        size_t begin = proto_begin(out, 6, 0);
        proto_add_int(out, 1, (uint64_t)handle->dtype);
        proto_end(out, begin, 0);
    }
}

bool tensor_object_decode(enum dtype dtype, struct span bytes, struct object **ret) {
    if (dtype == DT_RESOURCE) {
        struct resource_handle *handle = resource_handle_from_proto(bytes);
        *ret = handle ? &handle->object : NULL;
        return handle != NULL;
    }
    struct bytes *object =
        dtype == DT_STRING ? bytes_new(bytes.data, bytes.len) : variant_proto_new(bytes);
    *ret = object ? &object->object : NULL;
    return true;
}

/* ---- the first look ---- */

struct status *tensor_proto_malformed(const char *what) {
    return status_invalid("Malformed TensorProto: %s", what);
}

const struct tensor_value_field *tensor_value_field(enum dtype dtype) {
    return &value_fields[dtype];
}
uint32_t tensor_parts_list_field(enum dtype dtype) { return value_fields[dtype].number; }

struct status *tensor_parts_add(struct tensor_parts *parts, const struct proto_field *field) {
    if (field->number == FIELD_DTYPE && field->wire_type == 0)
        parts->type = field->value;
    else if (field->number == FIELD_CONTENT && field->wire_type == 2)
        parts->content = field->bytes;
    else if (field->number == FIELD_SHAPE && field->wire_type == 2 &&
             !proto_read_shape(field->bytes, parts->dims, &parts->rank))
        return tensor_proto_malformed("its shape cannot be read, or has more than 254 dimensions");
    return NULL;
}

struct status *tensor_parts_check(struct tensor_parts *parts) {
    if (parts->type == DT_INVALID || parts->type >= DT_N_TYPES)
        return status_invalid("TensorProto with the invalid type %llu",
                              (unsigned long long)parts->type);
    if (parts->rank < 0)
        return tensor_proto_malformed("its shape has no rank");
    return NULL;
}

static enum dtype type_of(const struct tensor_parts *parts) { return (enum dtype)parts->type; }

static struct shape shape_of(const struct tensor_parts *parts) {
    return (struct shape){parts->rank, parts->dims};
}

static struct status *find_parts(struct span proto, struct tensor_parts *parts) {
    struct proto_field field;
    int more;
    parts->type = DT_INVALID;
    parts->rank = 0;
    parts->content = (struct span){NULL, 0};
    while ((more = proto_next(&proto, &field)) > 0)
        TRY(tensor_parts_add(parts, &field));
    return more < 0 ? tensor_proto_malformed("its fields cannot be read")
                    : tensor_parts_check(parts);
}

/* ---- tensor_content ---- */

/* A view keeps the whole message in memory, so it must be large or a fair part of it. */
static bool wants_view(struct span content, size_t element_bytes, const struct buffer *owner) {
    if (!owner || content.len < VIEW_MIN_BYTES ||
        (uintptr_t)content.data % MIN(element_bytes, (size_t)8) != 0)
        return false;
    return content.len >= VIEW_ALWAYS_BYTES || content.len >= owner->size_bytes / VIEW_MAX_WASTE;
}

/* A bool byte other than 0 and 1 would be undefined behaviour in every kernel that reads it. */
static bool has_only_bools(struct span content) {
    uint8_t seen = 0;
    for (size_t i = 0; i < content.len; i++)
        seen |= (uint8_t)content.data[i];
    return seen <= 1;
}

struct status *tensor_content_check(const struct tensor_parts *parts) {
    int64_t n_elements;
    size_t element_bytes = dtype_size(type_of(parts));
    TRY(shape_n_elements(shape_of(parts), &n_elements));
    if ((uint64_t)n_elements != parts->content.len / element_bytes ||
        parts->content.len % element_bytes != 0)
        return status_invalid("Malformed TensorProto: tensor_content has %zu bytes where %lld "
                              "elements of type %s have %lld each",
                              parts->content.len, (long long)n_elements, dtype_name(type_of(parts)),
                              (long long)element_bytes);
    return NULL;
}

static struct status *plain_from_content(const struct tensor_parts *parts, struct buffer *owner,
                                         struct allocator *allocator, struct tensor *ret) {
    size_t element_bytes = dtype_size(type_of(parts));
    struct span content = parts->content;
    TRY(tensor_content_check(parts));
    bool is_clean = type_of(parts) != DT_BOOL || has_only_bools(content);
    if (is_clean && wants_view(content, element_bytes, owner))
        return tensor_view(owner, (char *)content.data, type_of(parts), shape_of(parts), ret);
    TRY(tensor_new(allocator, type_of(parts), shape_of(parts), ret));
    uint8_t *data = tensor_data(ret);
    memcpy(data, content.data, content.len);
    for (size_t i = 0; !is_clean && i < content.len; i++)
        data[i] = data[i] != 0;
    return NULL;
}

/* ---- typed lists ---- */

/* The number of values in a field: one, or as many as are packed in it. */
static int64_t count_values(const struct proto_field *field,
                            const struct tensor_value_field *wanted) {
    if (field->number != wanted->number)
        return 0;
    if (wanted->number == FIELD_FLOAT8)
        return (int64_t)field->bytes.len;
    if (field->wire_type == wanted->wire_type)
        return 1;
    if (field->wire_type != 2)
        return 0;
    if (wanted->wire_type != 0)
        return (int64_t)(field->bytes.len / wanted->unit_bytes);
    int64_t n = 0;
    for (size_t i = 0; i < field->bytes.len; i++)
        n += (uint8_t)field->bytes.data[i] < 0x80;
    return n;
}

/* Do the packed values end where the field ends? */
bool tensor_value_field_is_whole(const struct proto_field *field,
                                 const struct tensor_value_field *wanted) {
    if (field->number != wanted->number || field->wire_type != 2 || field->bytes.len == 0 ||
        wanted->wire_type == 2)
        return true;
    if (wanted->wire_type != 0)
        return field->bytes.len % wanted->unit_bytes == 0;
    return (uint8_t)field->bytes.data[field->bytes.len - 1] < 0x80;
}

static void store_value(enum dtype dtype, uint64_t value, size_t unit_bytes, char *to) {
    if (dtype == DT_BOOL)
        value = value != 0;
    memcpy(to, &value, unit_bytes);
}

/* Stores the values of one field, at most up to `end`. Returns the position after the last one;
 * NULL when malformed. */
static char *store_field(enum dtype dtype, const struct proto_field *field,
                         const struct tensor_value_field *wanted, char *to, char *end) {
    struct span packed = field->bytes;
    size_t unit = wanted->unit_bytes, room = (size_t)(end - to);
    if (field->wire_type == wanted->wire_type && wanted->number != FIELD_FLOAT8) {
        if (room > 0)
            store_value(dtype, field->value, unit, to);
        return room > 0 ? to + unit : to;
    }
    if (wanted->wire_type != 0) {
        size_t size = MIN(packed.len, room);
        if (size > 0)
            memcpy(to, packed.data, size);
        return to + size;
    }
    while (packed.len > 0 && to < end) {
        uint64_t value;
        if (!proto_read_varint(&packed, &value))
            return NULL;
        store_value(dtype, value, unit, to);
        to += unit;
    }
    return to;
}

/* Fills the elements from `n` on with copies of the one before. Fresh memory that is zero already
 * is not touched. */
static void repeat_last(struct tensor *t, int64_t n) {
    static const char zeros[16];
    size_t size = dtype_size((enum dtype)t->dtype), done = (size_t)n * size,
           total = tensor_size_bytes(t);
    char *data = tensor_data(t), *last = data + done - size;
    if (memcmp(last, zeros, size) == 0)
        return;
    char element[16];
    memcpy(element, last, size);
    size_t begin = done;
    if (total > done) {
        memcpy(data + done, element, size);
        done += size;
    }
    while (done < total) {
        size_t step = MIN(done - begin, total - done);
        memcpy(data + done, data + begin, step);
        done += step;
    }
}

static struct status *plain_from_list(struct span proto, const struct tensor_parts *parts,
                                      struct allocator *allocator, struct tensor *ret) {
    const struct tensor_value_field *wanted = &value_fields[type_of(parts)];
    struct proto_field field;
    int64_t n_elements, n_values = 0;
    TRY(shape_n_elements(shape_of(parts), &n_elements));
    for (struct span in = proto; proto_next(&in, &field) > 0;) {
        n_values += count_values(&field, wanted);
        if (!tensor_value_field_is_whole(&field, wanted))
            return tensor_proto_malformed("its values cannot be read");
    }
    int64_t units = (int64_t)(dtype_size(type_of(parts)) / wanted->unit_bytes),
            n_listed = n_values / units;
    struct tensor t = TENSOR_INIT;
    if (n_listed < n_elements)
        TRY(tensor_new_zeroed(allocator, type_of(parts), shape_of(parts), &t));
    else
        TRY(tensor_new(allocator, type_of(parts), shape_of(parts), &t));
    char *to = tensor_data(&t),
         *end = to + (size_t)MIN(n_listed, n_elements) * dtype_size(type_of(parts));
    for (struct span in = proto; to && proto_next(&in, &field) > 0;)
        if (count_values(&field, wanted) > 0)
            to = store_field(type_of(parts), &field, wanted, to, end);
    if (to != end) {
        tensor_clear(&t);
        return tensor_proto_malformed("its values cannot be read");
    }
    if (n_listed > 0 && n_listed < n_elements)
        repeat_last(&t, n_listed);
    tensor_move(ret, &t);
    return NULL;
}

static struct status *objects_from_proto(struct span proto, const struct tensor_parts *parts,
                                         struct allocator *allocator, struct tensor *ret) {
    struct tensor_decoder decoder;
    int64_t units = INT64_MAX;
    tensor_decoder_init_parts(&decoder, proto, parts, allocator);
    struct status *st = tensor_decoder_run(&decoder, &units, ret);
    tensor_decoder_fini(&decoder);
    return st;
}

struct status *tensor_from_proto(struct span proto, struct buffer *owner,
                                 struct allocator *allocator, struct tensor *ret) {
    struct tensor_parts parts;
    TRY(find_parts(proto, &parts));
    if (dtype_is_object(type_of(&parts)))
        return objects_from_proto(proto, &parts, allocator, ret);
    return parts.content.len > 0 ? plain_from_content(&parts, owner, allocator, ret)
                                 : plain_from_list(proto, &parts, allocator, ret);
}

struct status *tensor_proto_check_claim(struct span proto, int64_t spare_bytes) {
    enum { FACTOR = 16 }; /* a list of small values grows by half */
    struct tensor_parts parts;
    int64_t n_elements, size,
        allowed = (int64_t)MIN(proto.len, (size_t)INT32_MAX) * FACTOR + spare_bytes;
    struct status *st = find_parts(proto, &parts);
    if (!st)
        st = shape_n_elements(shape_of(&parts), &n_elements);
    if (st) {
        status_unref(st);
        return NULL;
    }
    if (!mul_overflows_i64(n_elements, (int64_t)dtype_size(type_of(&parts)), &size) &&
        size <= allowed)
        return NULL;
    return status_exhausted("TensorProto of %zu bytes for %lld elements of type %s", proto.len,
                            (long long)n_elements, dtype_name(type_of(&parts)));
}

enum tensor_proto_peek_result tensor_proto_peek(struct span proto, int64_t max_fields,
                                                struct tensor_proto_peek *ret) {
    struct proto_field field = {.number = 0};
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0, more = 1;
    bool has_shape = false, is_valid = true, is_list = false;
    uint64_t dtype = DT_INVALID;
    *ret = (struct tensor_proto_peek){.content = {NULL, 0}};
    for (int64_t i = 0; !(has_shape && dtype != DT_INVALID && (is_list || ret->content.data));
         i++) {
        if (i == max_fields)
            return PEEK_ENDLESS;
        more = proto_next(&proto, &field);
        if (more <= 0)
            break;
        if (field.number == FIELD_DTYPE && field.wire_type == 0) {
            dtype = field.value;
        } else if (field.number == FIELD_SHAPE && field.wire_type == 2) {
            is_valid &= proto_read_shape(field.bytes, dims, &rank) && rank >= 0;
            has_shape = true;
        } else if (field.number == FIELD_CONTENT && field.wire_type == 2) {
            ret->content = field.bytes;
        } else {
            is_list |= field.number > FIELD_CONTENT;
        }
    }
    bool is_known = has_shape && dtype != DT_INVALID;
    if ((more < 0 && !is_known) || !is_valid || dtype == DT_INVALID || dtype >= DT_N_TYPES)
        return PEEK_INVALID;
    struct status *st = shape_n_elements((struct shape){rank, dims}, &ret->n_elements);
    is_valid = st == NULL;
    status_unref(st);
    ret->dtype = (enum dtype)dtype;
    return is_valid ? PEEK_READ : PEEK_INVALID;
}

/* ---- encoding ---- */

static void add_type_and_shape(const struct tensor *t, struct str *out) {
    proto_add_int(out, FIELD_DTYPE, t->dtype);
    proto_add_shape(out, FIELD_SHAPE, tensor_shape(t));
}

static void add_content_head(size_t content_bytes, struct str *out) {
    if (content_bytes == 0)
        return;
    proto_add_tag(out, FIELD_CONTENT, 2);
    proto_add_varint(out, content_bytes);
}

void tensor_proto_add_head(const struct tensor *t, size_t content_bytes, struct str *out) {
    add_type_and_shape(t, out);
    add_content_head(content_bytes, out);
}

void tensor_proto_head(const struct tensor *t, struct str *out) {
    CHECK(!dtype_is_object((enum dtype)t->dtype));
    tensor_proto_add_head(t, tensor_size_bytes(t), out);
}

static size_t string_content_size(const struct tensor *t) {
    size_t size = 0;
    for (int64_t i = 0; i < t->n_elements; i++) {
        size_t len = tensor_string(t, i).len;
        size += proto_varint_size(len) + len;
    }
    return size;
}

static void strings_to_proto(const struct tensor *t, struct str *out) {
    size_t content_bytes = string_content_size(t);
    add_content_head(content_bytes, out);
    str_reserve(out, content_bytes);
    for (int64_t i = 0; i < t->n_elements; i++)
        proto_add_varint(out, tensor_string(t, i).len);
    for (int64_t i = 0; i < t->n_elements; i++) {
        struct span text = tensor_string(t, i);
        if (text.len > 0)
            str_add_bytes(out, text.data, text.len);
    }
}

static void resources_to_proto(const struct tensor *t, struct str *out) {
    struct str lengths = STR_INIT, protos = STR_INIT;
    for (int64_t i = 0; i < t->n_elements; i++) {
        size_t before = protos.len;
        const struct object *object = ((struct object *const *)tensor_cdata(t))[i];
        resource_handle_to_proto(
            object ? CONTAINER_OF(object, struct resource_handle, object) : NULL, &protos);
        proto_add_varint(&lengths, protos.len - before);
    }
    add_content_head(lengths.len + protos.len, out);
    str_add_bytes(out, str_text(&lengths), lengths.len);
    str_add_bytes(out, str_text(&protos), protos.len);
    str_fini(&lengths);
    str_fini(&protos);
}

void variant_add_proto(const struct object *object, struct str *out) {
    if (object && object->type == &variant_proto_type) {
        struct span proto = bytes_span(CONTAINER_OF(object, struct bytes, object));
        str_add_bytes(out, proto.data, proto.len);
    } else if (object && object->type->encode) {
        object->type->encode(object, out);
    } else if (object) {
        proto_add_bytes(out, 1, object->type->name, strlen(object->type->name));
    }
}

static void variants_to_proto(const struct tensor *t, struct str *out) {
    for (int64_t i = 0; i < t->n_elements; i++) {
        size_t begin = proto_begin(out, FIELD_VARIANT, 0);
        variant_add_proto(((struct object *const *)tensor_cdata(t))[i], out);
        proto_end(out, begin, 0);
    }
}

void tensor_to_proto(const struct tensor *t, struct str *out) {
    add_type_and_shape(t, out);
    switch ((enum dtype)t->dtype) {
    case DT_STRING:
        strings_to_proto(t, out);
        break;
    case DT_RESOURCE:
        resources_to_proto(t, out);
        break;
    case DT_VARIANT:
        variants_to_proto(t, out);
        break;
    default:
        add_content_head(tensor_size_bytes(t), out);
        if (t->n_elements > 0)
            str_add_bytes(out, tensor_cdata(t), tensor_size_bytes(t));
    }
}

size_t tensor_proto_size(const struct tensor *t) {
    struct str out = STR_INIT;
    size_t content_bytes = 0;
    if (t->dtype == DT_RESOURCE || t->dtype == DT_VARIANT) {
        tensor_to_proto(t, &out);
    } else {
        content_bytes = t->dtype == DT_STRING ? string_content_size(t) : tensor_size_bytes(t);
        add_type_and_shape(t, &out);
        add_content_head(content_bytes, &out);
    }
    size_t size = out.len + content_bytes;
    str_fini(&out);
    return size;
}
