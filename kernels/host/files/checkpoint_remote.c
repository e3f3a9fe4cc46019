/* RestoreV2 of a checkpoint that another task has:
 *
 *   search ──► index, into memory ──► names and types ──► lanes, each: the next tensor ──► its bytes ──► checked, the output
 *
 * Only what is wanted of the data files comes over: a plain tensor straight into the output's
 * memory; strings and slices into memory of their own, from which the usual reader puts them
 * together. That reader stands on a small file system that has the index, the sizes of the data
 * files and what has been fetched of them. */
#include <errno.h>
#include <stdlib.h>

#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/support/io_task.h"

enum {
    MAX_LANES = 4,             /* tensors on their way at a time */
    INDEX_MAX_BYTES = 1 << 30, /* of an index that is fetched into memory */
    INDEX_FD = 0,              /* data files follow, in the order of `found` */
};

/* Bytes of a data file that are here. */
struct held {
    struct list link; /* mirror->held */
    int shard;
    int64_t offset, size_bytes;
    char *bytes;
};

struct mirror {
    struct file_system fs;
    const char *prefix;
    const struct checkpoint_listing *found;
    char *index;
    pthread_mutex_t lock;
    struct list held; /* guarded by lock */
};

struct remote;

/* One tensor at a time. */
struct lane {
    struct remote *remote;
    int output;
    struct held *pieces;
    int n_pieces, capacity, current;
    bool is_direct; /* into the output's own memory */
    bool is_held;   /* the pieces are in mirror->held */
    struct checkpoint_stream stream;
};

struct remote {
    struct kernel_ctx *ctx;
    char *prefix;
    struct checkpoint_search search;
    struct checkpoint_listing found;
    struct mirror mirror;
    struct checkpoint_stream index_stream;
    struct bundle_reader *reader;
    struct arena arena;
    struct bundle_entry *entries;
    _Atomic int next, n_lanes;
    struct lane lanes[MAX_LANES];
    pthread_mutex_t lock;
    struct status *status; /* guarded by lock: the first failure */
};

/* ---- the file system ---- */

static const struct mirror *mirror_of(const struct file_system *fs) {
    return CONTAINER_OF(fs, const struct mirror, fs);
}

static int mirror_open(const struct file_system *fs, const char *path, enum file_mode mode) {
    const struct mirror *mirror = mirror_of(fs);
    size_t n = strlen(mirror->prefix);
    int at = -ENOENT;
    if (mode != FILE_READ || strncmp(path, mirror->prefix, n) != 0)
        return -EACCES;
    if (strcmp(path + n, ".index") == 0)
        return INDEX_FD;
    struct str name = STR_INIT;
    for (int i = 0; i < mirror->found->n_shards && at < 0; i++) {
        str_clear(&name);
        bundle_data_path(mirror->prefix, mirror->found->shards[i].shard,
                         mirror->found->shards[i].n_shards, &name);
        if (strcmp(path, name.data) == 0)
            at = i + 1;
    }
    str_fini(&name);
    return at;
}

static int mirror_close(const struct file_system *fs, int fd) { return 0; }

static int64_t mirror_size(const struct file_system *fs, int fd) {
    const struct checkpoint_listing *found = mirror_of(fs)->found;
    return fd == INDEX_FD ? found->index.size_bytes : found->shards[fd - 1].size_bytes;
}

static int64_t mirror_read(const struct file_system *fs, int fd, void *to, size_t n,
                           int64_t offset) {
    struct mirror *mirror = (struct mirror *)(uintptr_t)mirror_of(fs);
    if (fd == INDEX_FD) {
        int64_t left = mirror->found->index.size_bytes - offset;
        n = left <= 0 ? 0 : MIN(n, (size_t)left);
        memcpy(to, mirror->index + offset, n);
        return (int64_t)n;
    }
    int shard = mirror->found->shards[fd - 1].shard;
    const char *from = NULL;
    pthread_mutex_lock(&mirror->lock);
    LIST_FOR_EACH (link, &mirror->held) {
        const struct held *held = LIST_ENTRY(link, struct held, link);
        if (held->shard == shard && offset >= held->offset &&
            offset - held->offset <= held->size_bytes - (int64_t)n)
            from = held->bytes + (offset - held->offset);
    }
    pthread_mutex_unlock(&mirror->lock); /* the reader's own lane holds the bytes */
    if (!from)
        return -EIO;
    memcpy(to, from, n);
    return (int64_t)n;
}

static void mirror_init(struct mirror *mirror, const char *prefix,
                        const struct checkpoint_listing *found) {
    mirror->fs = (struct file_system){
        .open = mirror_open, .close = mirror_close, .read = mirror_read, .size = mirror_size};
    mirror->prefix = prefix;
    mirror->found = found;
    list_init(&mirror->held);
    CHECK(pthread_mutex_init(&mirror->lock, NULL) == 0);
}

/* ---- the end ---- */

static void remote_end(struct remote *remote) {
    struct kernel_ctx *ctx = remote->ctx;
    struct status *st = remote->status;
    if (st && remote->search.task >= 0)
        st = status_prefix_take(
            st, "Restoring from %s: ", ctx->host->peer_name(ctx, remote->search.task));
    bundle_reader_close(remote->reader);
    free(remote->mirror.index);
    pthread_mutex_destroy(&remote->mirror.lock);
    pthread_mutex_destroy(&remote->lock);
    checkpoint_listing_fini(&remote->found);
    arena_fini(&remote->arena);
    free(remote->prefix);
    free(remote);
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

static void remote_fail(struct remote *remote, struct status *st_take) {
    pthread_mutex_lock(&remote->lock);
    if (!remote->status) {
        remote->status = st_take;
        st_take = NULL;
    }
    pthread_mutex_unlock(&remote->lock);
    /* the other lanes need not go on */
    atomic_store(&remote->next, remote->ctx->instance->n_outputs);
    status_unref(st_take);
}

/* ---- lanes ---- */

static void lane_next(struct lane *lane);

static void lane_release(struct lane *lane) {
    struct mirror *mirror = &lane->remote->mirror;
    pthread_mutex_lock(&mirror->lock);
    for (int i = 0; i < lane->n_pieces && lane->is_held; i++)
        list_remove(&lane->pieces[i].link);
    pthread_mutex_unlock(&mirror->lock);
    lane->is_held = false;
    for (int i = 0; i < lane->n_pieces && !lane->is_direct; i++)
        free(lane->pieces[i].bytes);
    lane->n_pieces = 0;
}

static struct span name_of(const struct lane *lane) {
    return tensor_string(kernel_input(lane->remote->ctx, 1), lane->output);
}

static struct status *add_piece(void *arg, const struct bundle_entry *piece) {
    struct lane *lane = arg;
    if (piece->dtype == DT_VARIANT || piece->dtype == DT_RESOURCE)
        return NULL; /* the reader refuses it */
    TRY(bundle_check_claim(lane->remote->reader, name_of(lane), piece));
    if (lane->n_pieces == lane->capacity) {
        lane->capacity = lane->capacity ? 2 * lane->capacity : 4;
        lane->pieces = xreallocarray(lane->pieces, (size_t)lane->capacity, sizeof(*lane->pieces));
    }
    lane->pieces[lane->n_pieces++] = (struct held){
        .shard = piece->shard, .offset = piece->offset, .size_bytes = piece->size_bytes};
    return NULL;
}

/* All of the tensor's bytes are here. */
static struct status *lane_take(struct lane *lane) {
    struct remote *remote = lane->remote;
    const struct bundle_entry *entry = &remote->entries[lane->output];
    struct mirror *mirror = &remote->mirror;
    if (lane->is_direct)
        return bundle_check_plain(remote->reader, name_of(lane), entry,
                                  tensor_cdata(&remote->ctx->outputs[lane->output]));
    pthread_mutex_lock(&mirror->lock);
    for (int i = 0; i < lane->n_pieces; i++)
        list_push_back(&mirror->held, &lane->pieces[i].link);
    lane->is_held = true;
    pthread_mutex_unlock(&mirror->lock);
    return checkpoint_read_output(remote->ctx, remote->reader, entry, lane->output);
}

static struct status *take_piece(struct checkpoint_stream *stream, int64_t offset,
                                 const char *bytes, size_t n) {
    const struct lane *lane = stream->arg;
    const struct held *piece = &lane->pieces[lane->current];
    memcpy(piece->bytes + (offset - piece->offset), bytes, n);
    return NULL;
}

static void fetch_piece(struct lane *lane);

static void on_piece_end(struct checkpoint_stream *stream, struct status *status_take) {
    struct lane *lane = stream->arg;
    struct status *st = status_take;
    if (!st && ++lane->current < lane->n_pieces) {
        fetch_piece(lane);
        return;
    }
    if (!st)
        st = lane_take(lane);
    if (st)
        remote_fail(lane->remote, st);
    lane_release(lane);
    lane_next(lane);
}

static void fetch_piece(struct lane *lane) {
    struct remote *remote = lane->remote;
    const struct held *piece = &lane->pieces[lane->current];
    lane->stream = (struct checkpoint_stream){
        .ctx = remote->ctx,
        .task = remote->search.task,
        .prefix = remote->prefix,
        .file = *checkpoint_listing_shard(&remote->found, piece->shard,
                                          bundle_reader_n_shards(remote->reader)),
        .begin = piece->offset,
        .end = piece->offset + piece->size_bytes,
        .take = take_piece,
        .on_end = on_piece_end,
        .arg = lane};
    checkpoint_stream_start(&lane->stream);
}

/* Memory for all pieces; none is taken before its claim was checked. */
static struct status *lane_begin(struct lane *lane) {
    struct remote *remote = lane->remote;
    struct kernel_ctx *ctx = remote->ctx;
    const struct bundle_entry *entry = &remote->entries[lane->output];
    bool is_whole =
        tensor_string(kernel_input(ctx, 2), lane->output).len == 0 && entry->n_slices == 0;
    lane->current = 0;
    lane->is_direct = false;
    lane->n_pieces = 0;
    TRY(io_check_cancelled(ctx));
    TRY(checkpoint_visit_output(ctx, remote->reader, entry, lane->output, add_piece, lane));
    lane->is_direct = is_whole && lane->n_pieces == 1 && entry->dtype != DT_STRING;
    if (lane->is_direct) {
        TRY(tensor_new(ctx->instance->allocator, entry->dtype, entry->shape,
                       &ctx->outputs[lane->output]));
        lane->pieces[0].bytes = tensor_data(&ctx->outputs[lane->output]);
        return NULL;
    }
    for (int i = 0; i < lane->n_pieces; i++) {
        lane->pieces[i].bytes = malloc((size_t)lane->pieces[i].size_bytes + 1);
        if (!lane->pieces[i].bytes)
            return status_exhausted("No memory for %lld bytes of tensor '%.*s'",
                                    (long long)lane->pieces[i].size_bytes, (int)name_of(lane).len,
                                    name_of(lane).data);
    }
    return NULL;
}

/* The last lane to end ends the execution. */
static void lane_end(struct lane *lane) {
    struct remote *remote = lane->remote;
    free(lane->pieces);
    if (atomic_fetch_sub(&remote->n_lanes, 1) == 1)
        remote_end(remote);
}

static void lane_next(struct lane *lane) {
    struct remote *remote = lane->remote;
    for (;;) {
        lane->output = atomic_fetch_add(&remote->next, 1);
        if (lane->output >= remote->ctx->instance->n_outputs) {
            lane_end(lane);
            return;
        }
        struct status *st = lane_begin(lane);
        if (!st && lane->n_pieces > 0) {
            fetch_piece(lane);
            return;
        }
        if (!st)
            st = checkpoint_read_output(remote->ctx, remote->reader, &remote->entries[lane->output],
                                        lane->output);
        lane_release(lane);
        if (st)
            remote_fail(remote, st);
    }
}

/* ---- the index ---- */

static struct status *open_reader(struct remote *remote) {
    struct kernel_ctx *ctx = remote->ctx;
    TRY(bundle_reader_open(&remote->mirror.fs, remote->prefix, &remote->reader));
    remote->entries =
        arena_array(&remote->arena, struct bundle_entry, ctx->instance->n_outputs + 1);
    return checkpoint_find_all(ctx, remote->reader, &remote->arena, remote->entries);
}

static struct status *take_index(struct checkpoint_stream *stream, int64_t offset,
                                 const char *bytes, size_t n) {
    struct remote *remote = stream->arg;
    memcpy(remote->mirror.index + offset, bytes, n);
    return NULL;
}

static void on_index_end(struct checkpoint_stream *stream, struct status *status_take) {
    struct remote *remote = stream->arg;
    struct status *st = status_take;
    if (!st)
        st = open_reader(remote);
    if (st) {
        remote->status = st;
        remote_end(remote);
        return;
    }
    int n = MAX(1, MIN(MAX_LANES, remote->ctx->instance->n_outputs));
    atomic_store(&remote->next, 0);
    atomic_store(&remote->n_lanes, n);
    for (int i = 0; i < n; i++) {
        remote->lanes[i].remote = remote;
        lane_next(&remote->lanes[i]); /* the last of them may end it all */
    }
}

static struct status *check_search(struct remote *remote) {
    struct checkpoint_search *search = &remote->search;
    if (search->status)
        return search->status;
    if (search->task < 0)
        return checkpoint_search_not_found(remote->ctx, remote->prefix);
    if (remote->found.index.size_bytes > INDEX_MAX_BYTES)
        return status_exhausted(
            "%s: its index has %lld bytes; one of %d can be read from another task", remote->prefix,
            (long long)remote->found.index.size_bytes, INDEX_MAX_BYTES);
    remote->mirror.index = malloc((size_t)remote->found.index.size_bytes + 1);
    return remote->mirror.index ? NULL
                                : status_exhausted("No memory for the index of %s", remote->prefix);
}

static void on_search_end(struct checkpoint_search *search) {
    struct remote *remote = CONTAINER_OF(search, struct remote, search);
    remote->found = search->found;
    struct status *st = check_search(remote);
    if (st) {
        remote->status = st;
        remote_end(remote);
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
    struct remote *remote = xcalloc(1, sizeof(*remote));
    struct span name = tensor_string(kernel_input(ctx, 0), 0);
    remote->ctx = ctx;
    remote->prefix = xstrndup(name.data, name.len);
    arena_init(&remote->arena);
    CHECK(pthread_mutex_init(&remote->lock, NULL) == 0);
    mirror_init(&remote->mirror, remote->prefix, &remote->found);
    remote->search =
        (struct checkpoint_search){.ctx = ctx, .prefix = remote->prefix, .on_end = on_search_end};
    checkpoint_search_start(&remote->search);
}
