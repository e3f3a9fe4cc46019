/* Reads a bundle: finds a name in the index, and reads the bytes of a tensor from its shard. */
#include <pthread.h>
#include <stdlib.h>

#include "common/io/bundle_internal.h"
#include "common/io/crc32c.h"

enum { CHUNK_BYTES = 1 << 20 };

/* A data file, which is opened at its first use. */
struct shard {
    int fd; /* -1: not open yet */
    int64_t size_bytes;
    char *path;
};

struct bundle_reader {
    const struct file_system *fs;
    char *prefix;
    struct table_reader table;
    int n_shards;
    pthread_mutex_t lock;
    struct shard *shards;     /* guarded by lock */
    struct table_iter lookup; /* guarded by lock: the position of the last name that was found */
};

int bundle_reader_n_shards(const struct bundle_reader *reader) { return reader->n_shards; }
const char *bundle_reader_prefix(const struct bundle_reader *reader) { return reader->prefix; }

static struct status *read_header(struct bundle_reader *reader) {
    struct table_iter iter;
    table_iter_init(&iter, &reader->table);
    struct status *st = table_iter_seek(&iter, (struct span){"", 0});
    if (!st && (!iter.is_valid || table_iter_key(&iter).len != 0))
        st = status_new(STATUS_DATA_LOSS, "%s: the checkpoint has no header", reader->table.path);
    if (!st)
        st = status_prefix_take(bundle_header_parse(table_iter_value(&iter), &reader->n_shards),
                                "%s: ", reader->table.path);
    table_iter_fini(&iter);
    return st;
}

struct status *bundle_reader_open(const struct file_system *fs, const char *prefix,
                                  struct bundle_reader **ret) {
    struct bundle_reader *reader = xcalloc(1, sizeof(*reader));
    struct str path = STR_INIT;
    reader->fs = fs;
    reader->prefix = xstrdup(prefix);
    reader->table.fd = -1;
    pthread_mutex_init(&reader->lock, NULL);
    bundle_index_path(prefix, &path);
    struct status *st = table_reader_open(&reader->table, fs, path.data);
    if (!st)
        st = read_header(reader);
    table_iter_init(&reader->lookup, &reader->table);
    reader->shards = xcalloc((size_t)reader->n_shards + 1, sizeof(*reader->shards));
    for (int i = 0; i < reader->n_shards; i++)
        reader->shards[i].fd = -1;
    str_fini(&path);
    if (st)
        bundle_reader_close(reader);
    else
        *ret = reader;
    return st;
}

void bundle_reader_close(struct bundle_reader *reader) {
    if (!reader)
        return;
    for (int i = 0; i < reader->n_shards; i++) {
        if (reader->shards[i].fd >= 0)
            reader->fs->close(reader->fs, reader->shards[i].fd);
        free(reader->shards[i].path);
    }
    free(reader->shards);
    table_iter_fini(&reader->lookup);
    table_reader_close(&reader->table);
    pthread_mutex_destroy(&reader->lock);
    free(reader->prefix);
    free(reader);
}

/* ---- entries ---- */

static struct status *find_locked(struct bundle_reader *reader, struct span name,
                                  struct arena *arena, struct bundle_entry *ret) {
    struct table_iter *iter = &reader->lookup;
    TRY(table_iter_seek(iter, name));
    if (name.len == 0 || !iter->is_valid || !span_equal(table_iter_key(iter), name))
        return status_not_found("Key %.*s not found in checkpoint", (int)name.len, name.data);
    return status_suffix_take(bundle_entry_parse(table_iter_value(iter), arena, ret),
                              ": %.*s in %s", (int)name.len, name.data, reader->table.path);
}

struct status *bundle_find(struct bundle_reader *reader, struct span name, struct arena *arena,
                           struct bundle_entry *ret) {
    pthread_mutex_lock(&reader->lock);
    struct status *st = find_locked(reader, name, arena, ret);
    pthread_mutex_unlock(&reader->lock);
    return st;
}

/* The table iterator is at an entry, or at the end. */
static struct status *take_entry(struct bundle_iter *iter) {
    iter->is_valid = iter->table.is_valid;
    if (!iter->is_valid)
        return NULL;
    arena_clear(&iter->arena);
    iter->name = table_iter_key(&iter->table);
    struct status *st =
        bundle_entry_parse(table_iter_value(&iter->table), &iter->arena, &iter->entry);
    return status_suffix_take(st, ": %.*s in %s", (int)iter->name.len, iter->name.data,
                              iter->reader->table.path);
}

struct status *bundle_iter_init(struct bundle_iter *iter, struct bundle_reader *reader) {
    *iter = (struct bundle_iter){.reader = reader};
    arena_init(&iter->arena);
    table_iter_init(&iter->table, &reader->table);
    TRY(table_iter_seek(&iter->table, (struct span){"", 0}));
    return bundle_iter_next(iter); /* skips the header */
}

struct status *bundle_iter_next(struct bundle_iter *iter) {
    TRY(table_iter_next(&iter->table));
    return take_entry(iter);
}

void bundle_iter_fini(struct bundle_iter *iter) {
    table_iter_fini(&iter->table);
    arena_fini(&iter->arena);
}

/* ---- bytes ---- */

static struct status *open_shard(struct bundle_reader *reader, int number, struct shard *shard) {
    struct str path = STR_INIT;
    bundle_data_path(reader->prefix, number, reader->n_shards, &path);
    int fd = reader->fs->open(reader->fs, path.data, FILE_READ);
    int64_t size = fd < 0 ? fd : reader->fs->size(reader->fs, fd);
    struct status *st = size < 0 ? file_failed(path.data, (int)size) : NULL;
    if (st && fd >= 0)
        reader->fs->close(reader->fs, fd);
    if (st)
        str_fini(&path);
    else
        *shard = (struct shard){fd, size, str_detach(&path)};
    return st;
}

static struct status *get_shard(struct bundle_reader *reader, int number, struct shard *ret) {
    struct status *st = NULL;
    if (number >= reader->n_shards)
        return status_new(STATUS_DATA_LOSS, "shard %d of %d", number, reader->n_shards);
    pthread_mutex_lock(&reader->lock);
    if (reader->shards[number].fd < 0)
        st = open_shard(reader, number, &reader->shards[number]);
    *ret = reader->shards[number];
    pthread_mutex_unlock(&reader->lock);
    return st;
}

static COLD struct status *damaged(const struct shard *shard, struct span name,
                                   const struct bundle_entry *entry, const char *what) {
    return status_new(STATUS_DATA_LOSS, "%s: tensor '%.*s' at offset %lld (%lld bytes): %s",
                      shard->path, (int)name.len, name.data, (long long)entry->offset,
                      (long long)entry->size_bytes, what);
}

static COLD struct status *wrong_checksum(const struct shard *shard, struct span name,
                                          const struct bundle_entry *entry, uint32_t crc) {
    struct str what = STR_INIT;
    str_addf(&what, "Checksum does not match: stored %u vs. calculated on the restored bytes %u",
             crc32c_unmask(entry->crc), crc);
    struct status *st = damaged(shard, name, entry, str_text(&what));
    str_fini(&what);
    return st;
}

/* Checks that the size fits the file and the type, so that memory for it may be allocated. */
static struct status *check_claim(const struct shard *shard, struct span name,
                                  const struct bundle_entry *entry) {
    int64_t n = 0, wanted = 0;
    TRY(shape_n_elements(entry->shape, &n));
    if (entry->offset + entry->size_bytes > shard->size_bytes)
        return damaged(shard, name, entry, "the data file ends before the tensor does");
    if (entry->dtype == DT_STRING) /* at least a byte for each length, and their checksum */
        return n <= entry->size_bytes - (int64_t)sizeof(uint32_t)
                   ? NULL
                   : damaged(shard, name, entry, "too few bytes for its strings");
    if (entry->dtype == DT_VARIANT) /* a length and a checksum each */
        return n <= entry->size_bytes / BUNDLE_VARIANT_MIN_BYTES
                   ? NULL
                   : damaged(shard, name, entry, "too few bytes for its variants");
    if (mul_overflows_i64(n, (int64_t)dtype_size(entry->dtype), &wanted) ||
        wanted != entry->size_bytes)
        return damaged(shard, name, entry, "its size is not that of its shape and type");
    return NULL;
}

static struct status *read_plain(struct bundle_reader *reader, const struct shard *shard,
                                 struct span name, const struct bundle_entry *entry, char *to) {
    uint32_t crc = 0;
    for (int64_t done = 0; done < entry->size_bytes;) {
        size_t n = (size_t)MIN(entry->size_bytes - done, (int64_t)CHUNK_BYTES);
        TRY(file_read_all(reader->fs, shard->fd, shard->path, to + done, n, entry->offset + done));
        crc = crc32c_extend(crc, to + done, n);
        done += (int64_t)n;
    }
    return crc == crc32c_unmask(entry->crc) ? NULL : wrong_checksum(shard, name, entry, crc);
}

/* Strings or variants. */
static struct status *read_objects(struct bundle_reader *reader, const struct shard *shard,
                                   struct span name, const struct bundle_entry *entry,
                                   struct tensor *ret) {
    char *bytes = malloc((size_t)entry->size_bytes + 1);
    struct span in = {bytes, (size_t)entry->size_bytes};
    uint32_t crc;
    struct status *st = NULL;
    if (!bytes)
        return status_exhausted("No memory for %lld bytes of tensor '%.*s'",
                                (long long)entry->size_bytes, (int)name.len, name.data);
    TRY_OUT(file_read_all(reader->fs, shard->fd, shard->path, bytes, in.len, entry->offset));
    if (entry->dtype == DT_VARIANT)
        st = bundle_parse_variants(in, ret, &crc)
                 ? NULL
                 : damaged(shard, name, entry, "one of its variants: Checksum does not match");
    else if (!bundle_strings_crc(in, ret->n_elements, &crc))
        st = damaged(shard, name, entry,
                     "the lengths of its strings do not fit: Checksum does not match");
    if (!st && crc != crc32c_unmask(entry->crc))
        st = wrong_checksum(shard, name, entry, crc);
    if (!st && entry->dtype == DT_STRING)
        CHECK(bundle_parse_strings(in, ret));
out:
    free(bytes);
    return st;
}

struct status *bundle_read_own(struct bundle_reader *reader, struct span name,
                               const struct bundle_entry *entry, struct allocator *allocator,
                               struct tensor *ret) {
    struct shard shard;
    struct tensor t = TENSOR_INIT;
    if (entry->dtype == DT_RESOURCE)
        return status_unimplemented("Restoring tensor '%.*s' of type %s", (int)name.len, name.data,
                                    dtype_name(entry->dtype));
    TRY(status_prefix_take(get_shard(reader, entry->shard, &shard),
                           "%s: tensor '%.*s': ", reader->prefix, (int)name.len, name.data));
    TRY(check_claim(&shard, name, entry));
    TRY(tensor_new(allocator, entry->dtype, entry->shape, &t));
    struct status *st = dtype_is_object(entry->dtype)
                            ? read_objects(reader, &shard, name, entry, &t)
                            : read_plain(reader, &shard, name, entry, tensor_data(&t));
    if (st)
        tensor_clear(&t);
    else
        tensor_move(ret, &t);
    return st;
}

/* ---- checking ---- */

struct status *bundle_check_claim(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry) {
    struct shard shard;
    TRY(status_prefix_take(get_shard(reader, entry->shard, &shard),
                           "%s: tensor '%.*s': ", reader->prefix, (int)name.len, name.data));
    return check_claim(&shard, name, entry);
}

struct status *bundle_check_plain(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry, const void *bytes) {
    struct shard shard;
    TRY(get_shard(reader, entry->shard, &shard));
    uint32_t crc = crc32c(bytes, (size_t)entry->size_bytes);
    return crc == crc32c_unmask(entry->crc) ? NULL : wrong_checksum(&shard, name, entry, crc);
}

static struct status *check_plain(struct bundle_reader *reader, const struct shard *shard,
                                  struct span name, const struct bundle_entry *entry, char *chunk) {
    uint32_t crc = 0;
    for (int64_t done = 0, n; done < entry->size_bytes; done += n) {
        n = MIN(entry->size_bytes - done, (int64_t)CHUNK_BYTES);
        TRY(file_read_all(reader->fs, shard->fd, shard->path, chunk, (size_t)n,
                          entry->offset + done));
        crc = crc32c_extend(crc, chunk, (size_t)n);
    }
    return crc == crc32c_unmask(entry->crc) ? NULL : wrong_checksum(shard, name, entry, crc);
}

static struct status *check_entry(struct bundle_reader *reader, struct span name,
                                  const struct bundle_entry *entry, char *chunk) {
    struct shard shard;
    struct tensor t = TENSOR_INIT;
    if (entry->n_slices > 0)
        return NULL; /* the slices have entries of their own */
    if (!dtype_is_object(entry->dtype)) {
        TRY(bundle_check_claim(reader, name, entry));
        TRY(get_shard(reader, entry->shard, &shard));
        return check_plain(reader, &shard, name, entry, chunk);
    }
    struct status *st = bundle_read_own(reader, name, entry, allocator_host(), &t);
    tensor_clear(&t);
    return st;
}

struct status *bundle_check(struct bundle_reader *reader) {
    struct bundle_iter iter;
    char *chunk = xmalloc(CHUNK_BYTES);
    struct status *st = bundle_iter_init(&iter, reader);
    for (; !st && iter.is_valid; st = st ? st : bundle_iter_next(&iter))
        st = check_entry(reader, iter.name, &iter.entry, chunk);
    bundle_iter_fini(&iter);
    free(chunk);
    return st;
}
