/* Writes and reads the metas of frequent messages, field by field. */
#include "rpc/wire/messages.h"

#include "common/tensor/tensor_proto.h"

enum { PROTO_SPARE_BYTES = 16 << 20 }; /* that decoding may take beyond 16 times a TensorProto */

/* ---- TensorMeta ---- */

static void add_fixed64(struct str *out, uint32_t number, uint64_t value) {
    if (value == 0)
        return;
    proto_add_tag(out, number, 1);
    str_add_bytes(out, &value, sizeof(value)); /* little-endian, like every host this runs on */
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

/* Writes the nested message behind a length of one byte, which nearly always suffices; else the
 * bytes move up. */
static size_t nested_begin(struct str *out, uint32_t number) {
    proto_add_tag(out, number, 2);
    str_add_char(out, 0);
    return out->len;
}

static void nested_end(struct str *out, size_t begin) {
    size_t len = out->len - begin;
    if (likely(len < 0x80)) {
        out->data[begin - 1] = (char)len;
        return;
    }
    size_t n_more = proto_varint_size(len) - 1;
    for (size_t i = 0; i < n_more; i++)
        str_add_char(out, 0);
    memmove(out->data + begin + n_more, out->data + begin, len);
    char *at = out->data + begin - 1;
    for (uint64_t rest = len; at < out->data + begin + n_more; rest >>= 7)
        *at++ = (char)(rest >= 0x80 ? rest | 0x80 : rest);
}

static void add_plain(struct str *out, enum dtype dtype, struct shape shape, size_t size_bytes) {
    proto_add_int(out, 1, dtype);
    add_dims(out, shape);
    proto_add_int(out, 4, size_bytes);
}

void tensor_meta_add(struct str *out, uint32_t number, const struct tensor *t,
                     size_t proto_size_bytes) {
    size_t begin = nested_begin(out, number);
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
    nested_end(out, begin);
}

static struct status *malformed(const char *what) { return status_invalid("malformed %s", what); }

static struct status *read_packed_dims(struct span in, struct tensor_meta *ret) {
    while (in.len > 0) {
        uint64_t value;
        if (!proto_read_varint(&in, &value))
            return malformed("sizes in TensorMeta");
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
        return is_bytes ? malformed("TensorMeta") : NULL;
    case 4:
        ret->size_bytes = field->value;
        return is_bytes ? malformed("TensorMeta") : NULL;
    case 5:
        ret->proto = field->bytes;
        return is_bytes ? NULL : malformed("TensorMeta");
    default:
        return NULL;
    }
}

struct status *tensor_meta_read(struct span in, struct tensor_meta *ret) {
    struct proto_field field;
    int rc;
    ret->dtype = DT_INVALID;
    ret->is_dead = false;
    ret->size_bytes = 0;
    ret->proto = (struct span){NULL, 0};
    ret->rank = 0;
    while ((rc = proto_next(&in, &field)) > 0)
        TRY(tensor_meta_read_field(&field, ret));
    return rc < 0 ? malformed("TensorMeta") : NULL;
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

struct status *tensor_meta_take(const struct tensor_meta *meta, const struct wire_message *message,
                                size_t *offset, struct allocator *allocator, struct tensor *ret) {
    if (meta->is_dead) {
        tensor_init_dead(ret);
        return NULL;
    }
    if (meta->proto.len > 0)
        return tensor_from_proto(meta->proto, NULL, allocator, ret);
    TRY(tensor_meta_check(meta));
    size_t begin;
    if (!wire_payload_next(message, offset, meta->size_bytes, &begin))
        return status_invalid("the payload of %zu bytes has no room for a tensor of %llu",
                              message->payload_len, (unsigned long long)meta->size_bytes);
    if (!tensor_meta_is_plain(meta)) {
        if (meta->size_bytes == 0)
            return status_invalid("a %s tensor without its TensorProto", dtype_name(meta->dtype));
        struct span proto = {message->payload->data + begin, meta->size_bytes};
        TRY(tensor_proto_check_claim(proto, PROTO_SPARE_BYTES));
        return tensor_from_proto(proto, message->payload, allocator, ret);
    }
    struct shape shape = {meta->rank, meta->dims};
    if (meta->size_bytes <= TENSOR_INLINE_BYTES) {
        TRY(tensor_new(allocator, meta->dtype, shape, ret));
        if (meta->size_bytes > 0)
            memcpy(tensor_data(ret), message->payload->data + begin, meta->size_bytes);
        return NULL;
    }
    return tensor_view(message->payload, message->payload->data + begin, meta->dtype, shape, ret);
}

/* ---- RunGraph ---- */

struct status *run_graph_read(struct span in, struct run_graph_message *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct run_graph_message){.feeds = in};
    while ((rc = proto_next(&in, &field)) > 0) {
        bool is_number = field.wire_type != 2;
        if (field.number == 1 && is_number)
            ret->graph = field.value;
        else if (field.number == 2 && is_number)
            ret->step_id = field.value;
        else if (field.number == 3 && is_number)
            ret->master_incarnation = field.value;
        else if (field.number == 4 && is_number)
            ret->oldest_live_step = field.value;
        else if (field.number == 6 && is_number)
            ret->collect_stats = field.value != 0;
        else if (field.number == 7 && is_number)
            ret->timeout_ms = (int64_t)field.value;
        else if (field.number == 8 && is_number)
            ret->is_partial = field.value != 0;
        else if (field.number == 9 && is_number)
            ret->tells_saves = field.value != 0;
    }
    return rc < 0 ? malformed("RunGraph") : NULL;
}

bool run_graph_next_feed(struct run_graph_message *message, struct span *ret_meta) {
    struct proto_field field;
    while (proto_next(&message->feeds, &field) > 0)
        if (field.number == 5 && field.wire_type == 2) {
            *ret_meta = field.bytes;
            return true;
        }
    return false;
}

/* ---- partial runs ---- */

void feed_step_read(struct span in, struct feed_step_message *ret) {
    *ret = (struct feed_step_message){in, in};
}

static int next_position(struct feed_step_message *message, uint32_t *ret) {
    struct proto_field field;
    int rc;
    while ((rc = proto_next(&message->positions, &field)) > 0) {
        if (field.number != 1)
            continue;
        *ret = (uint32_t)field.value;
        return field.wire_type == 0 ? 1 : -1;
    }
    return rc;
}

int feed_step_next(struct feed_step_message *message, uint32_t *ret_position,
                   struct span *ret_meta) {
    struct proto_field field;
    int has_position = next_position(message, ret_position), rc;
    while ((rc = proto_next(&message->feeds, &field)) > 0)
        if (field.number == 2 && field.wire_type == 2) {
            *ret_meta = field.bytes;
            return has_position > 0 ? 1 : -1;
        }
    return rc < 0 || has_position != 0 ? -1 : 0;
}

void step_fetched_write(struct str *out, uint32_t position, const struct tensor *t,
                        size_t proto_size_bytes) {
    proto_add_int(out, 1, position);
    tensor_meta_add(out, 2, t, proto_size_bytes);
}

/* ---- RunDone ---- */

void run_done_add_status(struct str *out, const struct status *status, bool is_derived) {
    if (!status)
        return;
    const char *message = status_message(status);
    proto_add_int(out, 1, (uint64_t)status_code(status));
    proto_add_bytes(out, 2, message, strlen(message));
    proto_add_int(out, 5, is_derived);
}

void run_done_add_fetch(struct str *out, const struct tensor *t, size_t proto_size_bytes) {
    tensor_meta_add(out, 3, t, proto_size_bytes);
}
void run_done_add_stats(struct str *out, struct span step_stats) {
    proto_add_bytes(out, 4, step_stats.data, step_stats.len);
}

/* ---- the others ---- */

struct status *cancel_step_read(struct span in, struct cancel_step_message *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct cancel_step_message){.code = STATUS_CANCELLED};
    while ((rc = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type != 2)
            ret->step_id = field.value;
        else if (field.number == 2 && field.wire_type != 2)
            ret->code = (int)field.value;
        else if (field.number == 3 && field.wire_type == 2)
            ret->message = field.bytes;
    }
    return rc < 0 ? malformed("CancelStep") : NULL;
}

static void add_key(struct str *out, uint32_t edge, uint64_t frame_iter) {
    str_reserve(out, 128);
    proto_add_int(out, 1, edge);
    add_fixed64(out, 2, frame_iter);
}

void edge_message_write_expected(struct str *out, uint32_t edge, uint64_t frame_iter,
                                 enum dtype dtype, struct shape shape, size_t size_bytes) {
    add_key(out, edge, frame_iter);
    size_t begin = nested_begin(out, 3);
    add_plain(out, dtype, shape, size_bytes);
    nested_end(out, begin);
}

void edge_message_write(struct str *out, uint32_t edge, uint64_t frame_iter, const struct tensor *t,
                        size_t proto_size_bytes) {
    add_key(out, edge, frame_iter);
    if (t)
        tensor_meta_add(out, 3, t, proto_size_bytes);
}

void edge_message_add_reference(struct str *out, const struct arena_reference *reference) {
    size_t begin = nested_begin(out, 4);
    proto_add_int(out, 1, reference->token);
    proto_add_int(out, 2, reference->offset);
    nested_end(out, begin);
}

void edge_message_add_wants_grant(struct str *out) { proto_add_int(out, 6, 1); }

void edge_message_add_remote_slot(struct str *out, const struct rdma_remote_slot *remote_slot) {
    size_t begin = nested_begin(out, 5);
    proto_add_int(out, 1, remote_slot->number);
    add_fixed64(out, 2, remote_slot->address);
    proto_add_tag(out, 3, 5);
    str_add_bytes(out, &remote_slot->key, sizeof(remote_slot->key));
    nested_end(out, begin);
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
    return rc < 0 ? malformed("Place") : NULL;
}

static struct status *reference_read(struct span in, struct arena_reference *ret) {
    struct proto_field field;
    int rc;
    while ((rc = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0)
            ret->token = field.value;
        else if (field.number == 2 && field.wire_type == 0)
            ret->offset = field.value;
    }
    return rc < 0 || ret->token == 0 ? malformed("Reference") : NULL;
}

struct status *edge_message_read(struct span in, struct edge_message *ret) {
    struct proto_field field;
    int rc;
    ret->reference = (struct arena_reference){0, 0};
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
    return rc < 0 ? malformed("a message about an edge") : NULL;
}

void credit_write(struct str *out, uint64_t bytes) { proto_add_int(out, 1, bytes); }

struct status *credit_read(struct span in, uint64_t *ret_bytes) {
    struct proto_field field;
    int rc;
    *ret_bytes = 0;
    while ((rc = proto_next(&in, &field)) > 0)
        if (field.number == 1 && field.wire_type == 0)
            *ret_bytes = field.value;
    return rc < 0 ? malformed("Credit") : NULL;
}
