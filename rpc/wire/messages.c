/* Writes and reads TensorMeta and the messages about edges, field by field. */
#include "rpc/wire/messages.h"

#include "common/tensor/tensor_proto.h"

/* how much decoding may allocate beyond 16 times the TensorProto's size */
enum { PROTO_SPARE_BYTES = 16 << 20 };
/* the usual length of a TensorMeta: any number of one length byte */
enum { META_SIZE_HINT = 64 };

/* ---- TensorMeta ---- */

static void add_fixed64(struct str *out, uint32_t number, uint64_t value) {
    if (value != 0)
        proto_add_fixed64(out, number, value);
}

static void add_dims(struct str *out, struct shape shape) {
    size_t len = 0;
    for (int i = 0; i < shape.rank; i++)
        len += proto_varint_size((uint64_t)shape.dims[i]);
    if (len == 0)
        return;
    proto_add_tag(out, 2, 2);
    proto_add_varint(out, len);
    for (int i = 0; i < shape.rank; i++)
        proto_add_varint(out, (uint64_t)shape.dims[i]);
}

static void add_plain(struct str *out, enum dtype dtype, struct shape shape, size_t size_bytes) {
    proto_add_int(out, 1, dtype);
    add_dims(out, shape);
    proto_add_int(out, 4, size_bytes);
}

void tensor_meta_add(struct str *out, uint32_t number, const struct tensor *t,
                     size_t proto_size_bytes) {
    size_t begin = proto_begin(out, number, META_SIZE_HINT);
    if (t->storage == TENSOR_DEAD) {
        proto_add_int(out, 3, 1);
    } else if (dtype_is_object((enum dtype)t->dtype)) {
        proto_add_int(out, 1, t->dtype);
        if (proto_size_bytes > 0) {
            proto_add_int(out, 4, proto_size_bytes);
        } else {
            proto_add_tag(out, 5, 2);
            proto_add_varint(out, tensor_proto_size(t));
            size_t before = out->len;
            tensor_to_proto(t, out);
            CHECK(out->len - before == tensor_proto_size(t));
        }
    } else {
        add_plain(out, (enum dtype)t->dtype, tensor_shape(t), tensor_size_bytes(t));
    }
    proto_end(out, begin, META_SIZE_HINT);
}

void tensor_meta_add_proto(struct str *out, uint32_t number, enum dtype dtype, struct span proto,
                           size_t proto_size_bytes) {
    size_t begin = proto_begin(out, number, META_SIZE_HINT);
    proto_add_int(out, 1, dtype);
    if (proto_size_bytes > 0)
        proto_add_int(out, 4, proto_size_bytes);
    else
        proto_add_bytes(out, 5, proto.data, proto.len);
    if (proto_size_bytes > 0 && !dtype_is_object(dtype))
        proto_add_int(out, 6, 1);
    proto_end(out, begin, META_SIZE_HINT);
}

struct status *message_malformed(const char *what) {
    return status_invalid("malformed %s", what);
}

static struct status *read_packed_dims(struct span in, struct tensor_meta *ret) {
    while (in.len > 0) {
        uint64_t value;
        if (!proto_read_varint(&in, &value))
            return message_malformed("sizes in TensorMeta");
        if (ret->rank == SHAPE_MAX_RANK)
            return status_invalid("TensorMeta of more than %d dimensions", SHAPE_MAX_RANK);
        ret->dims[ret->rank++] = (int64_t)value;
    }
    return NULL;
}

static struct status *tensor_meta_read_field(const struct proto_field *field,
                                             struct tensor_meta *ret) {
    bool is_bytes = field->wire_type == 2;
    switch (field->number) {
    case 1:
        if (is_bytes || field->value >= DT_N_TYPES)
            return status_invalid("TensorMeta with unknown dtype %llu",
                                  (unsigned long long)field->value);
        ret->dtype = (enum dtype)field->value;
        return NULL;
    case 2:
        if (is_bytes)
            return read_packed_dims(field->bytes, ret);
        if (ret->rank == SHAPE_MAX_RANK)
            return status_invalid("TensorMeta of more than %d dimensions", SHAPE_MAX_RANK);
        ret->dims[ret->rank++] = (int64_t)field->value;
        return NULL;
    case 3:
        ret->is_dead = field->value != 0;
        return is_bytes ? message_malformed("TensorMeta") : NULL;
    case 4:
        ret->size_bytes = field->value;
        return is_bytes ? message_malformed("TensorMeta") : NULL;
    case 5:
        ret->proto = field->bytes;
        return is_bytes ? NULL : message_malformed("TensorMeta");
    case 6:
        ret->is_proto = field->value != 0;
        return is_bytes ? message_malformed("TensorMeta") : NULL;
    default:
        return NULL;
    }
}

struct status *tensor_meta_read(struct span in, struct tensor_meta *ret) {
    struct proto_field field;
    int rc;
    ret->dtype = DT_INVALID;
    ret->is_dead = ret->is_proto = false;
    ret->size_bytes = 0;
    ret->proto = (struct span){NULL, 0};
    ret->rank = 0;
    while ((rc = proto_next(&in, &field)) > 0)
        TRY(tensor_meta_read_field(&field, ret));
    return rc < 0 ? message_malformed("TensorMeta") : NULL;
}

bool tensor_meta_fits(const struct tensor_meta *meta, const struct tensor *t) {
    return t->storage != TENSOR_DEAD && meta->dtype == (enum dtype)t->dtype &&
           shape_equal((struct shape){meta->rank, meta->dims}, tensor_shape(t));
}

struct status *tensor_meta_check(const struct tensor_meta *meta) {
    if (meta->is_dead)
        return meta->size_bytes == 0 ? NULL
                                     : status_invalid("a dead tensor of %llu bytes",
                                                      (unsigned long long)meta->size_bytes);
    if (!dtype_is_known(meta->dtype) && meta->proto.len == 0)
        return status_invalid("TensorMeta without a dtype");
    if (!tensor_meta_is_plain(meta))
        return NULL;
    int64_t n_elements, size;
    TRY(shape_n_elements((struct shape){meta->rank, meta->dims}, &n_elements));
    if (mul_overflows_i64(n_elements, (int64_t)dtype_size(meta->dtype), &size) ||
        (uint64_t)size != meta->size_bytes)
        return status_invalid("a %s tensor of %lld elements in %llu bytes", dtype_name(meta->dtype),
                              (long long)n_elements, (unsigned long long)meta->size_bytes);
    return NULL;
}

static struct status *next_part(const struct tensor_meta *meta, const struct wire_message *message,
                                size_t *offset, size_t *ret_begin) {
    TRY(tensor_meta_check(meta));
    if (!wire_payload_next(message, offset, meta->size_bytes, ret_begin))
        return status_invalid("the payload of %zu bytes has no room for a tensor of %llu",
                              message->payload_len, (unsigned long long)meta->size_bytes);
    if (!tensor_meta_is_plain(meta) && meta->size_bytes == 0)
        return status_invalid("a %s tensor without its TensorProto", dtype_name(meta->dtype));
    return NULL;
}

struct status *tensor_meta_take_proto(const struct tensor_meta *meta,
                                      const struct wire_message *message, size_t *offset,
                                      struct span *ret) {
    size_t begin;
    *ret = meta->proto;
    if (meta->proto.len > 0)
        return NULL;
    TRY(next_part(meta, message, offset, &begin));
    *ret = (struct span){message->payload->data + begin, meta->size_bytes};
    return NULL;
}

struct status *tensor_meta_find_proto(const struct tensor_meta *meta,
                                      const struct wire_message *message, size_t *offset,
                                      struct span *ret) {
    *ret = (struct span){NULL, 0};
    if (meta->is_dead || (meta->proto.len == 0 && tensor_meta_is_plain(meta)))
        return NULL;
    TRY(tensor_meta_take_proto(meta, message, offset, ret));
    return meta->proto.len > 0 ? NULL : tensor_proto_check_claim(*ret, PROTO_SPARE_BYTES);
}

struct status *tensor_meta_take(const struct tensor_meta *meta, const struct wire_message *message,
                                size_t *offset, struct allocator *allocator, struct tensor *ret) {
    struct span proto;
    size_t begin;
    if (meta->is_dead) {
        tensor_init_dead(ret);
        return NULL;
    }
    TRY(tensor_meta_find_proto(meta, message, offset, &proto));
    if (proto.data)
        return tensor_from_proto(proto, meta->proto.len > 0 ? NULL : message->payload, allocator,
                                 ret);
    TRY(next_part(meta, message, offset, &begin));
    struct shape shape = {meta->rank, meta->dims};
    if (meta->size_bytes <= TENSOR_INLINE_BYTES) {
        TRY(tensor_new(allocator, meta->dtype, shape, ret));
        if (meta->size_bytes > 0)
            memcpy(tensor_data(ret), message->payload->data + begin, meta->size_bytes);
        return NULL;
    }
    return tensor_view(message->payload, message->payload->data + begin, meta->dtype, shape, ret);
}

/* ---- edges and credit ---- */

static void add_key(struct str *out, uint32_t edge, uint64_t frame_iter) {
    str_reserve(out, 128);
    proto_add_int(out, 1, edge);
    add_fixed64(out, 2, frame_iter);
}

void edge_message_write_expected(struct str *out, uint32_t edge, uint64_t frame_iter,
                                 enum dtype dtype, struct shape shape, size_t size_bytes) {
    add_key(out, edge, frame_iter);
    size_t begin = proto_begin(out, 3, META_SIZE_HINT);
    add_plain(out, dtype, shape, size_bytes);
    proto_end(out, begin, META_SIZE_HINT);
}

void edge_message_write(struct str *out, uint32_t edge, uint64_t frame_iter, const struct tensor *t,
                        size_t proto_size_bytes) {
    add_key(out, edge, frame_iter);
    if (t)
        tensor_meta_add(out, 3, t, proto_size_bytes);
}

void edge_message_add_reference(struct str *out, const struct arena_reference *reference) {
    size_t begin = proto_begin(out, 4, META_SIZE_HINT);
    proto_add_int(out, 1, reference->token);
    proto_add_int(out, 2, reference->offset);
    proto_add_int(out, 3, reference->epoch);
    proto_end(out, begin, META_SIZE_HINT);
}

void edge_message_add_wants_grant(struct str *out) { proto_add_int(out, 6, 1); }

void edge_message_add_remote_slot(struct str *out, const struct rdma_remote_slot *remote_slot) {
    size_t begin = proto_begin(out, 5, META_SIZE_HINT);
    proto_add_int(out, 1, remote_slot->number);
    add_fixed64(out, 2, remote_slot->address);
    proto_add_tag(out, 3, 5);
    str_add_bytes(out, &remote_slot->key, sizeof(remote_slot->key));
    proto_end(out, begin, META_SIZE_HINT);
}

static struct status *remote_slot_read(struct span in, struct rdma_remote_slot *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct rdma_remote_slot){0};
    while ((rc = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0 && field.value <= UINT32_MAX)
            ret->number = (uint32_t)field.value;
        else if (field.number == 2 && field.wire_type == 1)
            ret->address = field.value;
        else if (field.number == 3 && field.wire_type == 5)
            ret->key = (uint32_t)field.value;
    }
    return rc < 0 ? message_malformed("Place") : NULL;
}

static struct status *reference_read(struct span in, struct arena_reference *ret) {
    struct proto_field field;
    int rc;
    while ((rc = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0)
            ret->token = field.value;
        else if (field.number == 2 && field.wire_type == 0)
            ret->offset = field.value;
        else if (field.number == 3 && field.wire_type == 0)
            ret->epoch = field.value;
    }
    return rc < 0 || ret->token == 0 ? message_malformed("Reference") : NULL;
}

struct status *edge_message_read(struct span in, struct edge_message *ret) {
    struct proto_field field;
    int rc;
    ret->reference = (struct arena_reference){0, 0, 0};
    ret->edge = 0;
    ret->frame_iter = 0;
    ret->has_tensor = ret->has_remote_slot = ret->wants_grant = false;
    while ((rc = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type != 2) {
            ret->edge = (uint32_t)field.value;
        } else if (field.number == 2 && field.wire_type != 2) {
            ret->frame_iter = field.value;
        } else if (field.number == 3 && field.wire_type == 2) {
            TRY(tensor_meta_read(field.bytes, &ret->tensor));
            ret->has_tensor = true;
        } else if (field.number == 4 && field.wire_type == 2) {
            TRY(reference_read(field.bytes, &ret->reference));
        } else if (field.number == 5 && field.wire_type == 2) {
            TRY(remote_slot_read(field.bytes, &ret->remote_slot));
            ret->has_remote_slot = true;
        } else if (field.number == 6 && field.wire_type == 0) {
            ret->wants_grant = field.value != 0;
        }
    }
    return rc < 0 ? message_malformed("a message about an edge") : NULL;
}

void credit_write(struct str *out, uint64_t bytes) { proto_add_int(out, 1, bytes); }

struct status *credit_read(struct span in, uint64_t *ret_bytes) {
    struct proto_field field;
    int rc;
    *ret_bytes = 0;
    while ((rc = proto_next(&in, &field)) > 0)
        if (field.number == 1 && field.wire_type == 0)
            *ret_bytes = field.value;
    return rc < 0 ? message_malformed("Credit") : NULL;
}
