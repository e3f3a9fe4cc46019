/* Names, reads and writes what describes a saved dataset. */
#include "kernels/host/data/snapshot_files.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/io/file_system.h"
#include "common/tensor/tensor_proto.h"

enum { MAX_METADATA_BYTES = 1 << 20 };
/* fields of SnapshotMetadataRecord */
enum { RUN_ID = 2, CREATED = 3, VERSION = 4, DTYPE = 5, N_ELEMENTS = 6, FINALIZED = 1000 };

static const struct file_system *const fs = &file_system_posix;

void snapshot_metadata_fini(struct snapshot_metadata *metadata) { free(metadata->run_id); }

void snapshot_add_shard(struct str *out, const char *dir, const char *run_id, int64_t shard) {
    str_addf(out, "%s/%s/%08llu.shard", dir, run_id, (unsigned long long)shard);
}

void snapshot_add_file(struct str *out, const char *shard, int64_t number) {
    str_addf(out, "%s/%08llu.snapshot", shard, (unsigned long long)number);
}

static void metadata_path(const char *dir, struct str *out) {
    str_addf(out, "%s/snapshot.metadata", dir);
}

/* Readers see the old metadata or the new, never a part. */
static struct status *replace_file(const char *path, const struct str *text) {
    struct str made = STR_INIT;
    struct file_sink sink = FILE_SINK_INIT;
    struct status *st = NULL;
    str_addf(&made, "%s-tmp-%llu", path, (unsigned long long)clock_now_ns());
    TRY_OUT(file_sink_open(&sink, fs, str_text(&made)));
    st = file_sink_write(&sink, str_text(text), text->len);
    if (!st)
        st = file_sink_finish(&sink);
    if (!st) {
        int error = fs->rename(fs, str_text(&made), path);
        st = error < 0 ? file_failed(path, error) : NULL;
    }
    if (st)
        fs->unlink(fs, str_text(&made));
out:
    file_sink_fini(&sink);
    str_fini(&made);
    return st;
}

struct status *snapshot_metadata_write(const char *dir, const struct snapshot_metadata *metadata,
                                       const struct dataset *dataset) {
    struct str path = STR_INIT, text = STR_INIT;
    proto_add_bytes(&text, RUN_ID, metadata->run_id, strlen(metadata->run_id));
    proto_add_int(&text, CREATED, (uint64_t)metadata->created_us);
    proto_add_int(&text, VERSION, (uint64_t)metadata->version);
    for (int i = 0; i < dataset->n_components; i++) {
        proto_add_tag(&text, DTYPE, 0);
        proto_add_varint(&text, dataset->types[i]);
    }
    proto_add_int(&text, N_ELEMENTS, (uint64_t)metadata->n_elements);
    proto_add_int(&text, FINALIZED, metadata->is_finalized);
    metadata_path(dir, &path);
    struct status *st = replace_file(str_text(&path), &text);
    str_fini(&path);
    str_fini(&text);
    return st;
}

static bool read_fields(struct span text, struct snapshot_metadata *ret) {
    struct proto_field field;
    int more;
    while ((more = proto_next(&text, &field)) > 0) {
        if (field.number == RUN_ID && field.wire_type == 2 &&
            !memchr(field.bytes.data, 0, field.bytes.len) &&
            !memchr(field.bytes.data, '/', field.bytes.len)) {
            free(ret->run_id);
            ret->run_id = xstrndup(field.bytes.data, field.bytes.len);
        } else if (field.number == CREATED) {
            ret->created_us = (int64_t)field.value;
        } else if (field.number == VERSION) {
            ret->version = (int64_t)field.value;
        } else if (field.number == N_ELEMENTS) {
            ret->n_elements = (int64_t)field.value;
        } else if (field.number == FINALIZED) {
            ret->is_finalized = field.value != 0;
        }
    }
    return more == 0 && ret->run_id;
}

struct status *snapshot_metadata_read(const char *dir, struct snapshot_metadata *ret,
                                      bool *ret_is_there) {
    struct str path = STR_INIT, text = STR_INIT;
    struct snapshot_metadata found = {0};
    struct status *st = NULL;
    metadata_path(dir, &path);
    *ret_is_there = fs->kind(fs, str_text(&path)) == FILE_KIND_FILE;
    if (!*ret_is_there)
        goto out;
    TRY_OUT(file_load(fs, str_text(&path), MAX_METADATA_BYTES, &text));
    if (!read_fields((struct span){str_text(&text), text.len}, &found))
        TRY_OUT(
            status_new(STATUS_DATA_LOSS, "%s is no metadata of a saved dataset", str_text(&path)));
    *ret = found;
    found.run_id = NULL;
out:
    snapshot_metadata_fini(&found);
    str_fini(&path);
    str_fini(&text);
    return st;
}
