/* Restores tensors from a checkpoint that another task has:
 *
 *   search ──► index, into memory ──► names and types ──► fetches
 *   a fetch: the next tensor ──► its bytes ──► checked ──► the output
 *
 * Only the needed ranges of the data files are fetched. A plain tensor is fetched directly into the
 * output's memory. Strings and slices are fetched into buffers of their own, from which the usual
 * reader assembles them. That reader uses a small file system in memory, which has the index, the
 * sizes of the data files and the fetched ranges. */
#include <errno.h>
#include <stdlib.h>

#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/support/cancel.h"

enum {
    MAX_TENSOR_FETCHES = 4,    /* tensors that are fetched at the same time */
    INDEX_MAX_BYTES = 1 << 30, /* of an index that is fetched into memory */
    INDEX_FD = 0,              /* the numbers of data files follow, in the order of `found` */
};

/* Bytes of a data file that have been fetched. */
struct fetched_range {
    struct list link; /* in files->ranges */
    int shard;
    int64_t offset, size_bytes;
    char *bytes;
};

struct fetched_files {
    struct file_system fs;
    const char *prefix;
    const struct checkpoint_listing *found;
    char *index;
    pthread_mutex_t lock;
    struct list ranges; /* guarded by lock */
};

struct remote_restore;

/* Fetches one tensor after another. */
struct tensor_fetch {
    struct remote_restore *remote;
    int output;
    struct fetched_range *pieces;
    int n_pieces, capacity, current;
    bool is_direct; /* into the output's own memory */
    bool is_listed; /* the pieces are in files->ranges */
    struct checkpoint_stream stream;
};

struct remote_restore {
    struct kernel_ctx *ctx;
    char *prefix;
    struct checkpoint_search search;
    struct checkpoint_listing found;
    struct fetched_files files;
    struct checkpoint_stream index_stream;
    struct bundle_reader *reader;
    struct arena arena;
    struct bundle_entry *entries;
    _Atomic int next, n_lanes;
    struct tensor_fetch fetches[MAX_TENSOR_FETCHES];
    pthread_mutex_t lock;
    struct status *status; /* guarded by lock: the first failure */
};

/* ---- the file system ---- */

static const struct fetched_files *fetched_files_of(const struct file_system *fs) {
    return CONTAINER_OF(fs, const struct fetched_files, fs);
}

static int fetched_files_open(const struct file_system *fs, const char *path, enum file_mode mode) {
    const struct fetched_files *files = fetched_files_of(fs);
    size_t n = strlen(files->prefix);
    int at = -ENOENT;
    if (mode != FILE_READ || strncmp(path, files->prefix, n) != 0)
        return -EACCES;
    if (strcmp(path + n, ".index") == 0)
        return INDEX_FD;
    struct str name = STR_INIT;
    for (int i = 0; i < files->found->n_shards && at < 0; i++) {
        str_clear(&name);
        bundle_data_path(files->prefix, files->found->shards[i].shard,
                         files->found->shards[i].n_shards, &name);
        if (strcmp(path, name.data) == 0)
            at = i + 1;
    }
    str_fini(&name);
    return at;
}

static int fetched_files_close(const struct file_system *fs, int fd) { return 0; }

static int64_t fetched_files_size(const struct file_system *fs, int fd) {
    const struct checkpoint_listing *found = fetched_files_of(fs)->found;
    return fd == INDEX_FD ? found->index.size_bytes : found->shards[fd - 1].size_bytes;
}

static int64_t fetched_files_read(const struct file_system *fs, int fd, void *to, size_t n,
                                  int64_t offset) {
    struct fetched_files *files = (struct fetched_files *)(uintptr_t)fetched_files_of(fs);
    if (fd == INDEX_FD) {
        int64_t left = files->found->index.size_bytes - offset;
        n = left <= 0 ? 0 : MIN(n, (size_t)left);
        memcpy(to, files->index + offset, n);
        return (int64_t)n;
    }
    int shard = files->found->shards[fd - 1].shard;
    const char *from = NULL;
    pthread_mutex_lock(&files->lock);
    LIST_FOR_EACH (link, &files->ranges) {
        const struct fetched_range *range = LIST_ENTRY(link, struct fetched_range, link);
        if (range->shard == shard && offset >= range->offset &&
            offset - range->offset <= range->size_bytes - (int64_t)n)
            from = range->bytes + (offset - range->offset);
    }
    /* stays valid, because the reader's own fetch holds the bytes */
    pthread_mutex_unlock(&files->lock);
    if (!from)
        return -EIO;
    memcpy(to, from, n);
    return (int64_t)n;
}

static void fetched_files_init(struct fetched_files *files, const char *prefix,
                               const struct checkpoint_listing *found) {
    files->fs = (struct file_system){.open = fetched_files_open,
                                     .close = fetched_files_close,
                                     .read = fetched_files_read,
                                     .size = fetched_files_size};
    files->prefix = prefix;
    files->found = found;
    list_init(&files->ranges);
    CHECK(pthread_mutex_init(&files->lock, NULL) == 0);
}

/* ---- the end ---- */

static void remote_restore_end(struct remote_restore *remote) {
    struct kernel_ctx *ctx = remote->ctx;
    struct status *st = remote->status;
    if (st && remote->search.task >= 0)
        st = status_prefix_take(
            st, "Restoring from %s: ", ctx->host->peer_name(ctx, remote->search.task));
    bundle_reader_close(remote->reader);
    free(remote->files.index);
    pthread_mutex_destroy(&remote->files.lock);
    pthread_mutex_destroy(&remote->lock);
    checkpoint_listing_fini(&remote->found);
    arena_fini(&remote->arena);
    free(remote->prefix);
    free(remote);
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

static void remote_restore_fail(struct remote_restore *remote, struct status *st_take) {
    pthread_mutex_lock(&remote->lock);
    if (!remote->status) {
        remote->status = st_take;
        st_take = NULL;
    }
    pthread_mutex_unlock(&remote->lock);
    /* makes the other fetches stop */
    atomic_store(&remote->next, remote->ctx->instance->n_outputs);
    status_unref(st_take);
}

/* ---- fetches ---- */

static void tensor_fetch_next(struct tensor_fetch *fetch);

static void tensor_fetch_release(struct tensor_fetch *fetch) {
    struct fetched_files *files = &fetch->remote->files;
    pthread_mutex_lock(&files->lock);
    for (int i = 0; i < fetch->n_pieces && fetch->is_listed; i++)
        list_remove(&fetch->pieces[i].link);
    pthread_mutex_unlock(&files->lock);
    fetch->is_listed = false;
    for (int i = 0; i < fetch->n_pieces && !fetch->is_direct; i++)
        free(fetch->pieces[i].bytes);
    fetch->n_pieces = 0;
}

static struct span name_of(const struct tensor_fetch *fetch) {
    return tensor_string(kernel_input(fetch->remote->ctx, 1), fetch->output);
}

static struct status *add_piece(void *arg, const struct bundle_entry *piece) {
    struct tensor_fetch *fetch = arg;
    if (piece->dtype == DT_RESOURCE)
        return NULL; /* the reader refuses the tensor later */
    TRY(bundle_check_claim(fetch->remote->reader, name_of(fetch), piece));
    if (fetch->n_pieces == fetch->capacity) {
        fetch->capacity = fetch->capacity ? 2 * fetch->capacity : 4;
        fetch->pieces =
            xreallocarray(fetch->pieces, (size_t)fetch->capacity, sizeof(*fetch->pieces));
    }
    fetch->pieces[fetch->n_pieces++] = (struct fetched_range){
        .shard = piece->shard, .offset = piece->offset, .size_bytes = piece->size_bytes};
    return NULL;
}

/* Called when all of the tensor's bytes have arrived. */
static struct status *tensor_fetch_take(struct tensor_fetch *fetch) {
    struct remote_restore *remote = fetch->remote;
    const struct bundle_entry *entry = &remote->entries[fetch->output];
    struct fetched_files *files = &remote->files;
    if (fetch->is_direct)
        return bundle_check_plain(remote->reader, name_of(fetch), entry,
                                  tensor_cdata(&remote->ctx->outputs[fetch->output]));
    pthread_mutex_lock(&files->lock);
    for (int i = 0; i < fetch->n_pieces; i++)
        list_push_back(&files->ranges, &fetch->pieces[i].link);
    fetch->is_listed = true;
    pthread_mutex_unlock(&files->lock);
    return checkpoint_read_output(remote->ctx, remote->reader, entry, fetch->output);
}

static struct status *take_piece(struct checkpoint_stream *stream, int64_t offset,
                                 const char *bytes, size_t n) {
    const struct tensor_fetch *fetch = stream->arg;
    const struct fetched_range *piece = &fetch->pieces[fetch->current];
    memcpy(piece->bytes + (offset - piece->offset), bytes, n);
    return NULL;
}

static void fetch_piece(struct tensor_fetch *fetch);

static void on_piece_end(struct checkpoint_stream *stream, struct status *status_take) {
    struct tensor_fetch *fetch = stream->arg;
    struct status *st = status_take;
    if (!st && ++fetch->current < fetch->n_pieces) {
        fetch_piece(fetch);
        return;
    }
    if (!st)
        st = tensor_fetch_take(fetch);
    if (st)
        remote_restore_fail(fetch->remote, st);
    tensor_fetch_release(fetch);
    tensor_fetch_next(fetch);
}

static void fetch_piece(struct tensor_fetch *fetch) {
    struct remote_restore *remote = fetch->remote;
    const struct fetched_range *piece = &fetch->pieces[fetch->current];
    fetch->stream = (struct checkpoint_stream){
        .ctx = remote->ctx,
        .task = remote->search.task,
        .prefix = remote->prefix,
        .file = *checkpoint_listing_shard(&remote->found, piece->shard,
                                          bundle_reader_n_shards(remote->reader)),
        .begin = piece->offset,
        .end = piece->offset + piece->size_bytes,
        .take = take_piece,
        .on_end = on_piece_end,
        .arg = fetch};
    checkpoint_stream_start(&fetch->stream);
}

/* Allocates memory for all pieces. The claim is checked before any memory is taken. */
static struct status *tensor_fetch_begin(struct tensor_fetch *fetch) {
    struct remote_restore *remote = fetch->remote;
    struct kernel_ctx *ctx = remote->ctx;
    const struct bundle_entry *entry = &remote->entries[fetch->output];
    bool is_whole =
        tensor_string(kernel_input(ctx, 2), fetch->output).len == 0 && entry->n_slices == 0;
    fetch->current = 0;
    fetch->is_direct = false;
    fetch->n_pieces = 0;
    TRY(kernel_check_cancelled(ctx));
    TRY(checkpoint_visit_output(ctx, remote->reader, entry, fetch->output, add_piece, fetch));
    fetch->is_direct = is_whole && fetch->n_pieces == 1 && !dtype_is_object(entry->dtype);
    if (fetch->is_direct) {
        TRY(tensor_new(ctx->instance->allocator, entry->dtype, entry->shape,
                       &ctx->outputs[fetch->output]));
        fetch->pieces[0].bytes = tensor_data(&ctx->outputs[fetch->output]);
        return NULL;
    }
    for (int i = 0; i < fetch->n_pieces; i++) {
        fetch->pieces[i].bytes = malloc((size_t)fetch->pieces[i].size_bytes + 1);
        if (!fetch->pieces[i].bytes)
            return status_exhausted("No memory for %lld bytes of tensor '%.*s'",
                                    (long long)fetch->pieces[i].size_bytes, (int)name_of(fetch).len,
                                    name_of(fetch).data);
    }
    return NULL;
}

/* The last fetch to end ends the execution. */
static void tensor_fetch_end(struct tensor_fetch *fetch) {
    struct remote_restore *remote = fetch->remote;
    free(fetch->pieces);
    if (atomic_fetch_sub(&remote->n_lanes, 1) == 1)
        remote_restore_end(remote);
}

static void tensor_fetch_next(struct tensor_fetch *fetch) {
    struct remote_restore *remote = fetch->remote;
    for (;;) {
        fetch->output = atomic_fetch_add(&remote->next, 1);
        if (fetch->output >= remote->ctx->instance->n_outputs) {
            tensor_fetch_end(fetch);
            return;
        }
        struct status *st = tensor_fetch_begin(fetch);
        if (!st && fetch->n_pieces > 0) {
            fetch_piece(fetch);
            return;
        }
        if (!st)
            st = checkpoint_read_output(remote->ctx, remote->reader,
                                        &remote->entries[fetch->output], fetch->output);
        tensor_fetch_release(fetch);
        if (st)
            remote_restore_fail(remote, st);
    }
}

/* ---- the index ---- */

static struct status *open_reader(struct remote_restore *remote) {
    struct kernel_ctx *ctx = remote->ctx;
    TRY(bundle_reader_open(&remote->files.fs, remote->prefix, &remote->reader));
    remote->entries =
        arena_array(&remote->arena, struct bundle_entry, ctx->instance->n_outputs + 1);
    return checkpoint_find_all(ctx, remote->reader, &remote->arena, remote->entries);
}

static struct status *take_index(struct checkpoint_stream *stream, int64_t offset,
                                 const char *bytes, size_t n) {
    struct remote_restore *remote = stream->arg;
    memcpy(remote->files.index + offset, bytes, n);
    return NULL;
}

static void on_index_end(struct checkpoint_stream *stream, struct status *status_take) {
    struct remote_restore *remote = stream->arg;
    struct status *st = status_take;
    if (!st)
        st = open_reader(remote);
    if (st) {
        remote->status = st;
        remote_restore_end(remote);
        return;
    }
    int n = MAX(1, MIN(MAX_TENSOR_FETCHES, remote->ctx->instance->n_outputs));
    atomic_store(&remote->next, 0);
    atomic_store(&remote->n_lanes, n);
    for (int i = 0; i < n; i++) {
        remote->fetches[i].remote = remote;
        tensor_fetch_next(&remote->fetches[i]); /* the last call may end and free everything */
    }
}

static struct status *check_search(struct remote_restore *remote) {
    struct checkpoint_search *search = &remote->search;
    if (search->status)
        return search->status;
    if (search->task < 0)
        return checkpoint_search_not_found(remote->ctx, remote->prefix);
    if (remote->found.index.size_bytes > INDEX_MAX_BYTES)
        return status_exhausted(
            "%s: its index has %lld bytes; one of %d can be read from another task", remote->prefix,
            (long long)remote->found.index.size_bytes, INDEX_MAX_BYTES);
    remote->files.index = malloc((size_t)remote->found.index.size_bytes + 1);
    return remote->files.index ? NULL
                               : status_exhausted("No memory for the index of %s", remote->prefix);
}

static void on_search_end(struct checkpoint_search *search) {
    struct remote_restore *remote = CONTAINER_OF(search, struct remote_restore, search);
    remote->found = search->found;
    struct status *st = check_search(remote);
    if (st) {
        remote->status = st;
        remote_restore_end(remote);
        return;
    }
    remote->index_stream = (struct checkpoint_stream){.ctx = remote->ctx,
                                                      .task = search->task,
                                                      .prefix = remote->prefix,
                                                      .file = remote->found.index,
                                                      .end = remote->found.index.size_bytes,
                                                      .take = take_index,
                                                      .on_end = on_index_end,
                                                      .arg = remote};
    checkpoint_stream_start(&remote->index_stream);
}

void checkpoint_remote_restore(struct kernel_ctx *ctx) {
    struct remote_restore *remote = xcalloc(1, sizeof(*remote));
    struct span name = tensor_string(kernel_input(ctx, 0), 0);
    remote->ctx = ctx;
    remote->prefix = xstrndup(name.data, name.len);
    arena_init(&remote->arena);
    CHECK(pthread_mutex_init(&remote->lock, NULL) == 0);
    fetched_files_init(&remote->files, remote->prefix, &remote->found);
    remote->search =
        (struct checkpoint_search){.ctx = ctx, .prefix = remote->prefix, .on_end = on_search_end};
    checkpoint_search_start(&remote->search);
}
