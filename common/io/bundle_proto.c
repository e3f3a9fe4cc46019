/* Reads and writes the messages in the index of a bundle, and the names of its files. */
#include "common/io/bundle.h"
#include "common/tensor/tensor_proto.h"

void bundle_index_path(const char *prefix, struct str *out) { str_addf(out, "%s.index", prefix); }

void bundle_data_path(const char *prefix, int shard, int n_shards, struct str *out) {
    str_addf(out, "%s.data-%05d-of-%05d", prefix, shard, n_shards);
}

static bool digits(const char *text, int *ret) {
    *ret = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *ret = *ret * 10 + text[i] - '0';
    }
    return true;
}

bool bundle_data_name(const char *base, const char *name, int *ret_shard, int *ret_n_shards) {
    size_t n = strlen(base);
    return strncmp(name, base, n) == 0 && strncmp(name + n, ".data-", 6) == 0 &&
           strlen(name + n) == 20 && digits(name + n + 6, ret_shard) &&
           strncmp(name + n + 11, "-of-", 4) == 0 && digits(name + n + 15, ret_n_shards);
}

/* ---- BundleHeaderProto: num_shards = 1, endianness = 2, version = 3 {producer = 1,
 * min_consumer = 2, bad_consumers = 3} ---- */

void bundle_header_print(int n_shards, struct str *out) {
    proto_add_int(out, 1, (uint64_t)n_shards);
    size_t version = proto_begin(out, 3, 0);
    proto_add_int(out, 1, BUNDLE_VERSION);
    proto_end(out, version, 0);
}

static struct status *check_version(struct span proto) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number == 2 && field.wire_type == 0 && (int64_t)field.value > BUNDLE_VERSION)
            return status_unimplemented(
                "The checkpoint needs a reader of version %llu; this one is of version %d",
                (unsigned long long)field.value, BUNDLE_VERSION);
        if (field.number == 3 && field.wire_type == 0 && field.value == BUNDLE_VERSION)
            return status_unimplemented("The checkpoint refuses readers of version %d",
                                        BUNDLE_VERSION);
    }
    return more < 0 ? status_new(STATUS_DATA_LOSS, "malformed version of a checkpoint") : NULL;
}

struct status *bundle_header_parse(struct span proto, int *ret_n_shards) {
    struct proto_field field;
    int more;
    *ret_n_shards = 0;
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.number == 1 && field.wire_type == 0) {
            if (field.value > BUNDLE_MAX_SHARDS)
                return status_new(STATUS_DATA_LOSS, "a checkpoint of %llu shards",
                                  (unsigned long long)field.value);
            *ret_n_shards = (int)field.value;
        } else if (field.number == 2 && field.wire_type == 0 && field.value != 0) {
            return status_unimplemented(
                "Reading a bundle with different endianness from the reader's");
        } else if (field.number == 3 && field.wire_type == 2) {
            TRY(check_version(field.bytes));
        }
    }
    return more < 0 ? status_new(STATUS_DATA_LOSS, "malformed header of a checkpoint") : NULL;
}

/* ---- BundleEntryProto: dtype = 1, shape = 2, shard_id = 3, offset = 4, size = 5, crc32c = 6
 * (fixed), slices = 7 ---- */

void bundle_entry_print(const struct bundle_entry *entry, struct str *out) {
    proto_add_int(out, 1, (uint64_t)entry->dtype);
    proto_add_shape(out, 2, entry->shape);
    proto_add_int(out, 3, (uint64_t)entry->shard);
    proto_add_int(out, 4, (uint64_t)entry->offset);
    proto_add_int(out, 5, (uint64_t)entry->size_bytes);
    if (entry->crc != 0)
        proto_add_fixed32(out, 6, entry->crc);
    for (int i = 0; i < entry->n_slices; i++)
        tensor_slice_add_proto(&entry->slices[i], 7, out);
}

static int count_slices(struct span proto) {
    struct proto_field field;
    int n = 0;
    while (proto_next(&proto, &field) > 0)
        n += field.number == 7 && field.wire_type == 2;
    return n;
}

static bool read_number(const struct proto_field *field, struct bundle_entry *entry) {
    int64_t value = (int64_t)field->value;
    switch (field->number) {
    case 1:
        entry->dtype = value > 0 && value < DT_N_TYPES ? (enum dtype)value : DT_INVALID;
        return entry->dtype != DT_INVALID;
    case 3:
        entry->shard = value >= 0 && value < BUNDLE_MAX_SHARDS ? (int)value : -1;
        return entry->shard >= 0;
    case 4:
        entry->offset = value;
        return value >= 0;
    case 5:
        entry->size_bytes = value;
        return value >= 0;
    default:
        return true;
    }
}

static bool read_shape(struct span proto, struct arena *arena, struct shape *ret) {
    int64_t dims[SHAPE_MAX_RANK], n;
    int rank = 0;
    if (!proto_read_shape(proto, dims, &rank) || rank < 0)
        return false;
    *ret = shape_dup((struct shape){rank, dims}, arena);
    struct status *st = shape_n_elements(*ret, &n);
    bool is_good = !st;
    status_unref(st);
    return is_good;
}

/* Checks that each slice fits the shape. */
static bool check_slices(const struct bundle_entry *entry, struct arena *arena) {
    struct shape unused;
    for (int i = 0; i < entry->n_slices; i++) {
        struct status *st = tensor_slice_shape(&entry->slices[i], entry->shape, arena, &unused);
        status_unref(st);
        if (st)
            return false;
    }
    return true;
}

static bool parse_fields(struct span proto, struct arena *arena, struct bundle_entry *entry) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&proto, &field)) > 0) {
        bool is_good = true;
        if (field.wire_type == 0)
            is_good = read_number(&field, entry);
        else if (field.number == 2 && field.wire_type == 2)
            is_good = read_shape(field.bytes, arena, &entry->shape);
        else if (field.number == 6 && field.wire_type == 5)
            entry->crc = (uint32_t)field.value;
        else if (field.number == 7 && field.wire_type == 2)
            is_good =
                tensor_slice_from_proto(field.bytes, arena, &entry->slices[entry->n_slices++]);
        if (!is_good)
            return false;
    }
    return more == 0;
}

struct status *bundle_entry_parse(struct span proto, struct arena *arena,
                                  struct bundle_entry *ret) {
    int64_t unused;
    *ret = (struct bundle_entry){.shape = SHAPE_SCALAR};
    ret->slices = arena_array(arena, struct tensor_slice, count_slices(proto) + 1);
    if (!parse_fields(proto, arena, ret) || ret->dtype == DT_INVALID || !check_slices(ret, arena) ||
        add_overflows_i64(ret->offset, ret->size_bytes, &unused))
        return status_new(STATUS_DATA_LOSS, "malformed entry of a checkpoint");
    return NULL;
}
