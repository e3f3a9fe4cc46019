/* Writes a bundle, and makes it durable and visible in this order:
 *
 *   data.tmp    written, synced
 *   index.tmp   written, synced
 *   data.tmp  → PREFIX.data-00000-of-N    N such that no older file has the name; the directory is
 *                                         synced, so that no index is visible without its data
 *   index.tmp → PREFIX.index              replaces an older checkpoint; the directory is synced
 *   old files                             older data files of the prefix are removed, and temporary
 *                                         files of processes that have ended */
#include <stdlib.h>

#include "common/io/bundle_internal.h"
#include "common/io/crc32c.h"
#include "common/io/temporary.h"

/* The number of bytes that are added to the checksum and then written while they are still in the
 * cache. */
enum { CHUNK_BYTES = 1 << 20 };

struct bundle_writer {
    const struct file_system *fs;
    char *prefix;
    char *data_tmp, *index_tmp;
    struct file_sink data;
    struct bundle_index index;
    bool has_data_tmp;
};

/* ---- adding ---- */

struct status *bundle_writer_new(const struct file_system *fs, const char *prefix,
                                 struct bundle_writer **ret) {
    struct bundle_writer *writer = xcalloc(1, sizeof(*writer));
    *writer = (struct bundle_writer){.fs = fs, .prefix = xstrdup(prefix), .data = FILE_SINK_INIT};
    bundle_index_init(&writer->index);
    writer->data_tmp = bundle_temporary_path(prefix, "data");
    writer->index_tmp = bundle_temporary_path(prefix, "index");
    struct status *st = bundle_make_dir_of(fs, prefix);
    if (!st)
        st = file_sink_open(&writer->data, fs, writer->data_tmp);
    writer->has_data_tmp = !st;
    if (st)
        bundle_writer_free(writer);
    else
        *ret = writer;
    return st;
}

static struct status *check_name(const struct bundle_writer *writer, struct span name,
                                 enum dtype dtype) {
    if (name.len == 0)
        return status_invalid("A tensor without a name cannot be saved: %s", writer->prefix);
    if (dtype == DT_RESOURCE)
        return status_unimplemented("Saving tensor '%.*s' of type %s", (int)name.len, name.data,
                                    dtype_name(dtype));
    return NULL;
}

static struct status *write_elements(struct file_sink *sink, const struct tensor *value,
                                     uint32_t *ret_crc) {
    const char *at = tensor_cdata(value);
    size_t size = tensor_size_bytes(value);
    *ret_crc = 0;
    for (size_t done = 0; done < size; done += MIN(size - done, (size_t)CHUNK_BYTES)) {
        size_t n = MIN(size - done, (size_t)CHUNK_BYTES);
        *ret_crc = crc32c_extend(*ret_crc, at + done, n);
        TRY(file_sink_write(sink, at + done, n));
    }
    return NULL;
}

static struct status *add(struct bundle_writer *writer, struct span key,
                          const struct tensor *value) {
    uint32_t crc;
    if (bundle_index_find(&writer->index, key))
        return status_invalid("Adding duplicate key: %.*s", (int)key.len, key.data);
    struct bundle_item *item = bundle_index_add(&writer->index, key);
    struct bundle_entry *entry = &item->entry;
    entry->dtype = (enum dtype)value->dtype;
    entry->shape = shape_dup(tensor_shape(value), &writer->index.arena);
    entry->offset = file_sink_offset(&writer->data);
    if (value->dtype == DT_STRING)
        TRY(bundle_write_strings(&writer->data, value, &crc));
    else if (value->dtype == DT_VARIANT)
        TRY(bundle_write_variants(&writer->data, value, &crc));
    else
        TRY(write_elements(&writer->data, value, &crc));
    entry->size_bytes = file_sink_offset(&writer->data) - entry->offset;
    entry->crc = crc32c_mask(crc);
    return NULL;
}

struct status *bundle_writer_add(struct bundle_writer *writer, struct span name,
                                 const struct tensor *value) {
    TRY(check_name(writer, name, (enum dtype)value->dtype));
    return add(writer, name, value);
}

/* Finds the entry of the whole tensor; its first slice makes it. */
static struct status *note_slice(struct bundle_writer *writer, struct span name, struct shape whole,
                                 const struct tensor_slice *slice, enum dtype dtype) {
    struct bundle_item *item = bundle_index_find(&writer->index, name);
    if (!item) {
        item = bundle_index_add(&writer->index, name);
        item->entry.dtype = dtype;
        item->entry.shape = shape_dup(whole, &writer->index.arena);
    } else if (item->entry.n_slices == 0) {
        return status_invalid("Adding duplicate key: %.*s", (int)name.len, name.data);
    } else if (item->entry.dtype != dtype || !shape_equal(item->entry.shape, whole)) {
        return status_invalid(
            "The slices of tensor '%.*s' differ in type or whole shape: %s %s, before %s %s",
            (int)name.len, name.data, dtype_name(dtype), SHAPE_TEXT(whole),
            dtype_name(item->entry.dtype), SHAPE_TEXT(item->entry.shape));
    }
    bundle_entry_add_slice(&writer->index, &item->entry, slice);
    return NULL;
}

struct status *bundle_writer_add_slice(struct bundle_writer *writer, struct span name,
                                       struct shape whole, const struct tensor_slice *slice,
                                       const struct tensor *value) {
    struct str key = STR_INIT;
    TRY(check_name(writer, name, (enum dtype)value->dtype));
    if (tensor_slice_is_all(slice, whole))
        return add(writer, name, value);
    TRY(note_slice(writer, name, whole, slice, (enum dtype)value->dtype));
    tensor_slice_add_key(name, slice, &key);
    struct status *st = add(writer, (struct span){key.data, key.len}, value);
    str_fini(&key);
    return st;
}

/* ---- the end ---- */

static struct status *rename_synced(const struct file_system *fs, const char *from,
                                    const char *to) {
    int error = fs->rename(fs, from, to);
    if (error < 0)
        return file_failed(to, error);
    return file_sync_dir_of(fs, to);
}

/* Renames the two temporary files, which are on the disk. */
static struct status *publish(struct bundle_writer *writer, const char *data_path,
                              const char *index_path) {
    const struct file_system *fs = writer->fs;
    struct status *st = rename_synced(fs, writer->data_tmp, data_path);
    if (st) {
        fs->unlink(fs, data_path); /* no other process knows the file yet */
        return st;
    }
    writer->has_data_tmp = false;
    int error = fs->rename(fs, writer->index_tmp, index_path);
    if (error < 0) {
        fs->unlink(fs, data_path);
        return file_failed(index_path, error);
    }
    /* From here on the new checkpoint is visible, so its data are kept whatever happens. */
    return file_sync_dir_of(fs, index_path);
}

/* Called with the lock of names. */
static struct status *replace(struct bundle_writer *writer, struct bundle_old *old,
                              struct str *data_path, struct str *index_path) {
    TRY(bundle_old_find(old, writer->fs, writer->prefix));
    int n_shards = bundle_old_free_number(old, 1);
    bundle_data_path(writer->prefix, 0, n_shards, data_path);
    bundle_index_path(writer->prefix, index_path);
    TRY(bundle_index_write(&writer->index, writer->fs, writer->index_tmp, n_shards));
    struct status *st = publish(writer, data_path->data, index_path->data);
    if (st)
        writer->fs->unlink(writer->fs, writer->index_tmp);
    return st;
}

struct status *bundle_writer_finish(struct bundle_writer *writer) {
    struct bundle_old old = {0};
    struct str data_path = STR_INIT, index_path = STR_INIT;
    TRY(file_sink_finish(&writer->data));
    bundle_names_lock();
    struct status *st = replace(writer, &old, &data_path, &index_path);
    if (!st)
        bundle_old_remove(&old, writer->fs, writer->prefix);
    bundle_names_unlock();
    if (!st)
        temporary_collect(writer->fs, writer->prefix);
    bundle_old_fini(&old);
    str_fini(&data_path);
    str_fini(&index_path);
    return st;
}

void bundle_writer_free(struct bundle_writer *writer) {
    if (!writer)
        return;
    file_sink_fini(&writer->data);
    if (writer->has_data_tmp)
        writer->fs->unlink(writer->fs, writer->data_tmp);
    bundle_index_fini(&writer->index);
    free(writer->prefix);
    free(writer->data_tmp);
    free(writer->index_tmp);
    free(writer);
}
