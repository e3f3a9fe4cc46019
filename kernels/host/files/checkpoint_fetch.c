/* Fetches a part of a sharded save from the task that wrote it, when no other task has it:
 *
 *   search ──► index ──► data file 0 ──► … ──► every tensor's checksum ──► on_end
 *
 * Each file is streamed into a local file, which is synced to the disk before the next one starts.
 * The names are new and end in ".tmp-…", so a later save never mistakes the remains of a crash for
 * a part. */
#include <stdlib.h>

#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/support/io_task.h"

/* bytes that are written before the disk is told to start */
enum { START_WRITING_BYTES = 32 << 20 };

struct fetch {
    struct part_fetch *part;
    struct checkpoint_search search;
    struct checkpoint_stream stream;
    struct checkpoint_listing found;
    int n_shards; /* from the index; 0 before it has arrived */
    int shard;    /* the file that is being fetched; INDEX_SHARD is the first */
    int fd;
    struct str path; /* the local path of that file */
    _Atomic int64_t n_written, n_started;
};

static void begin_file(struct fetch *fetch);

void part_fetch_remove(const char *local_prefix, int n_shards) {
    const struct file_system *fs = &file_system_posix;
    struct str path = STR_INIT;
    bundle_index_path(local_prefix, &path);
    fs->unlink(fs, path.data);
    for (int i = 0; i < n_shards; i++) {
        str_clear(&path);
        bundle_data_path(local_prefix, i, n_shards, &path);
        fs->unlink(fs, path.data);
    }
    str_fini(&path);
}

static void end_fetch(struct fetch *fetch, struct status *st_take) {
    struct part_fetch *part = fetch->part;
    if (fetch->fd >= 0)
        file_system_posix.close(&file_system_posix, fetch->fd);
    if (st_take)
        part_fetch_remove(part->local_prefix, fetch->n_shards);
    checkpoint_listing_fini(&fetch->found);
    str_fini(&fetch->path);
    free(fetch);
    part->on_end(part, st_take);
}

static struct status *open_index(struct fetch *fetch, struct bundle_reader **ret) {
    struct status *st = bundle_reader_open(&file_system_posix, fetch->part->local_prefix, ret);
    if (!st && bundle_reader_n_shards(*ret) > LISTING_MAX_SHARDS) {
        st = status_exhausted("%s has %d data files; %d can be fetched", fetch->part->prefix,
                              bundle_reader_n_shards(*ret), LISTING_MAX_SHARDS);
        bundle_reader_close(*ret);
    }
    return st;
}

/* Called when all files have arrived. Are they what the index says? */
static struct status *check_all(struct fetch *fetch) {
    struct bundle_reader *reader = NULL;
    TRY(open_index(fetch, &reader));
    struct status *st = bundle_check(reader);
    bundle_reader_close(reader);
    return st;
}

/* Begins the next data file. The index may count a file that the task does not have. That is no
 * error when no tensor is stored in the file, and otherwise check_all finds that it is missing. */
static void next_file(struct fetch *fetch) {
    while (++fetch->shard < fetch->n_shards)
        if (checkpoint_listing_shard(&fetch->found, fetch->shard, fetch->n_shards)) {
            begin_file(fetch);
            return;
        }
    struct status *st = check_all(fetch);
    if (st && status_code(st) == STATUS_NOT_FOUND) {
        struct status *lost = status_new(STATUS_DATA_LOSS, "%s", status_message(st));
        status_unref(st);
        st = lost;
    }
    const char *from = fetch->part->ctx->host->peer_name(fetch->part->ctx, fetch->part->task);
    end_fetch(fetch, status_prefix_take(st, "%s, as it came from %s: ", fetch->part->prefix, from));
}

static struct status *finish_file(struct fetch *fetch) {
    const struct file_system *fs = &file_system_posix;
    int error = fs->sync(fs, fetch->fd);
    int close_error = fs->close(fs, fetch->fd);
    fetch->fd = -1;
    if (error < 0 || close_error < 0)
        return file_failed(fetch->path.data, error < 0 ? error : close_error);
    if (fetch->shard == INDEX_SHARD) {
        struct bundle_reader *reader = NULL;
        TRY(open_index(fetch, &reader));
        fetch->n_shards = bundle_reader_n_shards(reader);
        bundle_reader_close(reader);
    }
    return NULL;
}

static void on_stream_end(struct checkpoint_stream *stream, struct status *status_take) {
    struct fetch *fetch = stream->arg;
    struct status *st = status_take;
    if (!st)
        st = finish_file(fetch);
    if (st)
        end_fetch(fetch, st);
    else
        next_file(fetch);
}

/* Writes a piece. Several pieces are written at the same time, and the disk is told to start when
 * enough bytes have been written. */
static struct status *take_piece(struct checkpoint_stream *stream, int64_t offset,
                                 const char *bytes, size_t n) {
    struct fetch *fetch = stream->arg;
    const struct file_system *fs = &file_system_posix;
    TRY(file_write_all(fs, fetch->fd, fetch->path.data, bytes, n, offset));
    int64_t written = atomic_fetch_add(&fetch->n_written, (int64_t)n) + (int64_t)n;
    int64_t started = atomic_load(&fetch->n_started);
    if (written - started >= START_WRITING_BYTES &&
        atomic_compare_exchange_strong(&fetch->n_started, &started, written))
        fs->start_writing(fs, fetch->fd, started, written - started);
    return NULL;
}

static void begin_file(struct fetch *fetch) {
    const struct file_system *fs = &file_system_posix;
    struct part_fetch *part = fetch->part;
    const struct checkpoint_file *file =
        fetch->shard == INDEX_SHARD
            ? &fetch->found.index
            : checkpoint_listing_shard(&fetch->found, fetch->shard, fetch->n_shards);
    str_clear(&fetch->path);
    if (fetch->shard == INDEX_SHARD)
        bundle_index_path(part->local_prefix, &fetch->path);
    else
        bundle_data_path(part->local_prefix, fetch->shard, fetch->n_shards, &fetch->path);
    fetch->fd = fs->open(fs, fetch->path.data, FILE_CREATE);
    if (fetch->fd < 0) {
        end_fetch(fetch, file_failed(fetch->path.data, fetch->fd));
        return;
    }
    atomic_store(&fetch->n_written, 0);
    atomic_store(&fetch->n_started, 0);
    fetch->stream = (struct checkpoint_stream){.ctx = part->ctx,
                                               .task = part->task,
                                               .prefix = part->prefix,
                                               .file = *file,
                                               .end = file->size_bytes,
                                               .take = take_piece,
                                               .on_end = on_stream_end,
                                               .arg = fetch};
    checkpoint_stream_start(&fetch->stream);
}

static void on_search_end(struct checkpoint_search *search) {
    struct fetch *fetch = CONTAINER_OF(search, struct fetch, search);
    struct part_fetch *part = fetch->part;
    part->task = search->task;
    fetch->found = search->found;
    search->found = (struct checkpoint_listing){.index.shard = INDEX_SHARD};
    if (search->status || search->task < 0)
        end_fetch(fetch, search->status);
    else
        begin_file(fetch);
}

void part_fetch_start(struct part_fetch *part) {
    struct fetch *fetch = xcalloc(1, sizeof(*fetch));
    fetch->part = part;
    fetch->shard = INDEX_SHARD;
    fetch->fd = -1;
    fetch->path = STR_INIT;
    fetch->search = (struct checkpoint_search){
        .ctx = part->ctx, .prefix = part->prefix, .on_end = on_search_end};
    checkpoint_search_start(&fetch->search);
}
