/* Prints and parses the requests and replies about checkpoint files. In both directions the bytes
 * are not trusted. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/files/checkpoint_peer.h"

/* The request: kind = 1, prefix = 2, shard = 3 (0: the index, else one more than its number),
 * n_shards = 4, offset = 5, n = 6, identity = 7, removes_dir = 8. */
void checkpoint_request_print(const struct checkpoint_request *request, struct str *out) {
    proto_add_int(out, 1, request->kind);
    proto_add_bytes(out, 2, request->prefix.data, request->prefix.len);
    proto_add_int(out, 3, (uint64_t)(request->shard + 1));
    proto_add_int(out, 4, (uint64_t)request->n_shards);
    proto_add_int(out, 5, request->offset);
    proto_add_int(out, 6, request->n);
    proto_add_int(out, 7, request->identity);
    proto_add_int(out, 8, request->removes_dir);
}

static bool take_number(const struct proto_field *field, struct checkpoint_request *ret) {
    switch (field->number) {
    case 1:
        ret->kind = (enum checkpoint_request_kind)MIN(field->value, 255ull);
        return true;
    case 3:
        ret->shard = (int)MIN(field->value, (uint64_t)BUNDLE_MAX_SHARDS + 1) - 1;
        return field->value <= BUNDLE_MAX_SHARDS;
    case 4:
        ret->n_shards = (int)MIN(field->value, (uint64_t)BUNDLE_MAX_SHARDS);
        return field->value <= BUNDLE_MAX_SHARDS;
    case 5:
        ret->offset = field->value;
        return field->value <= INT64_MAX / 2;
    case 6:
        ret->n = field->value;
        return field->value <= STREAM_PIECE_BYTES;
    case 7:
        ret->identity = field->value;
        return true;
    case 8:
        ret->removes_dir = field->value != 0;
        return true;
    default:
        return true;
    }
}

struct status *checkpoint_request_parse(struct span in, struct checkpoint_request *ret) {
    struct proto_field field;
    bool is_good = true;
    int more;
    *ret = (struct checkpoint_request){.shard = INDEX_SHARD};
    while (is_good && (more = proto_next(&in, &field)) > 0) {
        if (field.number == 2 && field.wire_type == 2)
            ret->prefix = field.bytes;
        else if (field.wire_type == 0)
            is_good = take_number(&field, ret);
    }
    if (!is_good || more < 0)
        return status_invalid("a malformed request for checkpoint files");
    return NULL;
}

/* A listing: is_there = 1, changed_ns = 2, index = 3, shards = 4; a file: shard = 1, n_shards = 2,
 * size = 3, identity = 4. */
static void print_file(const struct checkpoint_file *file, uint32_t number, struct str *out) {
    size_t begin = proto_begin(out, number, 0);
    proto_add_int(out, 1, (uint64_t)MAX(file->shard, 0));
    proto_add_int(out, 2, (uint64_t)file->n_shards);
    proto_add_int(out, 3, (uint64_t)file->size_bytes);
    proto_add_int(out, 4, file->identity);
    proto_end(out, begin, 0);
}

void checkpoint_listing_print(const struct checkpoint_listing *found, struct str *out) {
    if (!found->is_there)
        return;
    proto_add_int(out, 1, 1);
    proto_add_int(out, 2, (uint64_t)found->changed_ns);
    print_file(&found->index, 3, out);
    for (int i = 0; i < found->n_shards; i++)
        print_file(&found->shards[i], 4, out);
}

static bool parse_file(struct span in, struct checkpoint_file *ret) {
    struct proto_field field;
    int more;
    *ret = (struct checkpoint_file){0};
    while ((more = proto_next(&in, &field)) > 0) {
        if (field.wire_type != 0)
            continue;
        if ((field.number <= 2 && field.value > BUNDLE_MAX_SHARDS) ||
            (field.number == 3 && field.value > INT64_MAX / 2))
            return false;
        if (field.number == 1)
            ret->shard = (int)field.value;
        else if (field.number == 2)
            ret->n_shards = (int)field.value;
        else if (field.number == 3)
            ret->size_bytes = (int64_t)field.value;
        else if (field.number == 4)
            ret->identity = field.value;
    }
    return more == 0;
}

static bool parse_found_field(const struct proto_field *field, struct checkpoint_listing *ret) {
    if (field->number == 1 && field->wire_type == 0) {
        ret->is_there = field->value != 0;
    } else if (field->number == 2 && field->wire_type == 0) {
        ret->changed_ns = (int64_t)field->value;
    } else if (field->number == 3 && field->wire_type == 2) {
        bool is_good = parse_file(field->bytes, &ret->index);
        ret->index.shard = INDEX_SHARD;
        return is_good;
    } else if (field->number == 4 && field->wire_type == 2) {
        if (ret->n_shards == LISTING_MAX_SHARDS)
            return false;
        if (!ret->shards)
            ret->shards = xcalloc(LISTING_MAX_SHARDS, sizeof(*ret->shards));
        return parse_file(field->bytes, &ret->shards[ret->n_shards++]);
    }
    return true;
}

struct status *checkpoint_listing_parse(struct span in, struct checkpoint_listing *ret) {
    struct proto_field field;
    bool is_good = true;
    int more = 0;
    *ret = (struct checkpoint_listing){.index.shard = INDEX_SHARD};
    while (is_good && (more = proto_next(&in, &field)) > 0)
        is_good = parse_found_field(&field, ret);
    return is_good && more == 0 ? NULL
                                : status_internal("a malformed answer about checkpoint files");
}

void checkpoint_listing_fini(struct checkpoint_listing *found) {
    free(found->shards);
    *found = (struct checkpoint_listing){.index.shard = INDEX_SHARD};
}

const struct checkpoint_file *checkpoint_listing_shard(const struct checkpoint_listing *found,
                                                       int shard, int n_shards) {
    for (int i = 0; i < found->n_shards; i++)
        if (found->shards[i].shard == shard && found->shards[i].n_shards == n_shards)
            return &found->shards[i];
    return NULL;
}
