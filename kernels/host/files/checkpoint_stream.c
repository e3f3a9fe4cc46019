/* Requests checkpoint files from other tasks: searches for the task that has a file, and streams
 * its bytes. */
#include <stdlib.h>

#include "common/io/crc32c.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/support/cancel.h"

bool checkpoint_has_peers(struct kernel_ctx *ctx) {
    return ctx->host->peer_count && ctx->host->peer_count(ctx) > 0;
}

struct status *checkpoint_check_name(struct span name) {
    enum { MAX_NAME_BYTES = 8192 };
    return name.len <= MAX_NAME_BYTES
               ? NULL
               : status_invalid("A checkpoint's name of %zu bytes; at most %d can be", name.len,
                                MAX_NAME_BYTES);
}

/* ---- searching ---- */

/* Takes the reply of one task. When a task could not answer, the other replies may be
 * incomplete. */
static void take_reply(struct checkpoint_search *search, struct peer_call *call) {
    struct checkpoint_listing found = {.index.shard = INDEX_SHARD};
    struct status *st = call->status;
    if (!st)
        st = checkpoint_listing_parse((struct span){str_text(&call->reply), call->reply.len},
                                      &found);
    if (!st && found.is_there &&
        (search->task < 0 || found.changed_ns > search->found.changed_ns)) {
        struct checkpoint_listing older = search->found;
        search->found = found;
        found = older;
        search->task = call->task;
    }
    /* a path outside of the task's roots is one that it does not have */
    if (st && status_code(st) != STATUS_PERMISSION_DENIED && status_code(st) != STATUS_NOT_FOUND &&
        !search->status) {
        search->status = st;
        st = NULL;
    }
    status_unref(st);
    checkpoint_listing_fini(&found);
    str_fini(&call->reply);
    buffer_unref(call->payload);
}

static struct status *not_askable(const struct checkpoint_search *search, struct status *why_take) {
    struct status *st = status_unavailable(
        "Checkpoint %s is not here, and a task that may have it could not be asked: %s",
        search->prefix, status_message(why_take));
    status_unref(why_take);
    return st;
}

static void end_search(struct pool_task *task) {
    struct checkpoint_search *search = CONTAINER_OF(task, struct checkpoint_search, io_task);
    search->task = -1;
    search->status = NULL;
    for (int i = 0; i < search->n_calls; i++)
        take_reply(search, &search->calls[i].call);
    free(search->calls);
    search->calls = NULL;
    str_fini(&search->request);
    if (search->task >= 0) {
        status_unref(search->status);
        search->status = NULL;
    } else if (search->status) {
        search->status = not_askable(search, search->status);
    }
    search->on_end(search);
}

static void on_looked(struct peer_call *call) {
    struct checkpoint_search *search = CONTAINER_OF(call, struct search_call, call)->search;
    if (atomic_fetch_sub(&search->n_left, 1) == 1)
        search->ctx->host->submit_io(search->ctx, &search->io_task);
}

void checkpoint_search_start(struct checkpoint_search *search) {
    struct kernel_ctx *ctx = search->ctx;
    int n = checkpoint_has_peers(ctx) ? ctx->host->peer_count(ctx) : 0;
    search->n_calls = n;
    search->calls = xcalloc((size_t)n + 1, sizeof(*search->calls));
    search->request = STR_INIT;
    search->found = (struct checkpoint_listing){.index.shard = INDEX_SHARD};
    search->io_task.run = end_search;
    checkpoint_request_print(&(struct checkpoint_request){.kind = CHECKPOINT_LOOK,
                                                          .prefix = span_of(search->prefix),
                                                          .shard = INDEX_SHARD},
                             &search->request);
    atomic_store(&search->n_left, n + 1);
    for (int i = 0; i < n; i++) {
        struct search_call *asked = &search->calls[i];
        asked->search = search;
        asked->call =
            (struct peer_call){.task = i,
                               .request = {str_text(&search->request), search->request.len},
                               .on_done = on_looked};
        ctx->host->peer_call_start(ctx, &asked->call);
    }
    if (atomic_fetch_sub(&search->n_left, 1) == 1)
        ctx->host->submit_io(ctx, &search->io_task);
}

struct status *checkpoint_search_not_found(struct kernel_ctx *ctx, const char *prefix) {
    struct str asked = STR_INIT;
    int n = checkpoint_has_peers(ctx) ? ctx->host->peer_count(ctx) : 0;
    for (int i = 0; i < n; i++)
        str_addf(&asked, "%s%s", i > 0 ? ", " : "", ctx->host->peer_name(ctx, i));
    struct status *st = status_not_found("Unsuccessful TensorSliceReader constructor: Failed to "
                                         "find any matching files for %s: neither this "
                                         "task has it, nor those that were asked: %s%s",
                                         prefix, str_text(&asked),
                                         prefix[0] == '/' ? ""
                                                          : "; a relative path starts at the "
                                                            "directory of each task, not of the "
                                                            "client");
    str_fini(&asked);
    return st;
}

/* ---- streams ---- */

static void on_piece(struct peer_call *call);
static void work_on_piece(struct pool_task *task);

/* Ends the stream once none of its requests is running. */
static void end_stream(struct checkpoint_stream *stream) {
    struct status *st = stream->status;
    stream->status = NULL;
    pthread_mutex_destroy(&stream->lock);
    for (int i = 0; i < STREAM_WINDOW; i++)
        str_fini(&stream->pieces[i].request);
    stream->on_end(stream, st);
}

/* Chooses the next bytes for a free piece. False when there are none left, or the stream has
 * failed. */
static bool claim(struct checkpoint_stream *stream, struct stream_piece *piece) {
    struct status *cancelled = kernel_check_cancelled(stream->ctx);
    pthread_mutex_lock(&stream->lock);
    if (cancelled && !stream->status) {
        stream->status = cancelled;
        cancelled = NULL;
    }
    bool is_claimed = !stream->status && stream->next < stream->end;
    if (is_claimed) {
        piece->offset = stream->next;
        piece->n_bytes = MIN(stream->end - stream->next, (int64_t)STREAM_PIECE_BYTES);
        stream->next += piece->n_bytes;
    }
    pthread_mutex_unlock(&stream->lock);
    status_unref(cancelled);
    return is_claimed;
}

static void request_piece(struct stream_piece *piece) {
    struct checkpoint_stream *stream = piece->stream;
    struct checkpoint_request call = {.kind = CHECKPOINT_READ,
                                      .prefix = span_of(stream->prefix),
                                      .shard = stream->file.shard,
                                      .n_shards = stream->file.n_shards,
                                      .offset = (uint64_t)piece->offset,
                                      .n = (uint64_t)piece->n_bytes,
                                      .identity = stream->file.identity};
    str_clear(&piece->request);
    checkpoint_request_print(&call, &piece->request);
    piece->task.run = work_on_piece;
    piece->call = (struct peer_call){.task = stream->task,
                                     .request = {piece->request.data, piece->request.len},
                                     .on_done = on_piece};
    stream->ctx->host->peer_call_start(stream->ctx, &piece->call);
}

static void on_piece(struct peer_call *call) {
    struct stream_piece *piece = CONTAINER_OF(call, struct stream_piece, call);
    piece->stream->ctx->host->submit_io(piece->stream->ctx, &piece->task);
}

/* The reply's only field is the checksum: 1, fixed. */
static struct status *check_piece(const struct stream_piece *piece) {
    struct span in = {str_text(&piece->call.reply), piece->call.reply.len};
    struct proto_field field;
    const struct checkpoint_stream *stream = piece->stream;
    const char *from = stream->ctx->host->peer_name(stream->ctx, stream->task);
    uint32_t crc;
    if (piece->call.payload_bytes != (size_t)piece->n_bytes)
        return status_new(STATUS_DATA_LOSS, "%s sent %zu of the %lld bytes at offset %lld of %s",
                          from, piece->call.payload_bytes, (long long)piece->n_bytes,
                          (long long)piece->offset, stream->prefix);
    if (proto_next(&in, &field) <= 0 || field.number != 1 || field.wire_type != 5)
        return status_internal("%s sent bytes of %s without a checksum", from, stream->prefix);
    crc = crc32c(piece->call.payload->data, (size_t)piece->n_bytes);
    if (crc != (uint32_t)field.value)
        return status_new(
            STATUS_DATA_LOSS,
            "%s: the %lld bytes at offset %lld did not come from %s as they were sent",
            stream->prefix, (long long)piece->n_bytes, (long long)piece->offset, from);
    return NULL;
}

static void work_on_piece(struct pool_task *task) {
    struct stream_piece *piece = CONTAINER_OF(task, struct stream_piece, task);
    struct checkpoint_stream *stream = piece->stream;
    struct status *st = piece->call.status;
    if (!st)
        st = check_piece(piece);
    if (!st)
        st = stream->take(stream, piece->offset, piece->call.payload->data, (size_t)piece->n_bytes);
    buffer_unref(piece->call.payload);
    str_fini(&piece->call.reply);
    pthread_mutex_lock(&stream->lock);
    if (st && !stream->status) {
        stream->status = st;
        st = NULL;
    }
    pthread_mutex_unlock(&stream->lock);
    status_unref(st);
    if (claim(stream, piece)) {
        request_piece(piece);
        return;
    }
    pthread_mutex_lock(&stream->lock);
    bool is_last = --stream->n_pieces == 0;
    pthread_mutex_unlock(&stream->lock);
    if (is_last)
        end_stream(stream);
}

static void end_empty(struct pool_task *task) {
    end_stream(CONTAINER_OF(task, struct checkpoint_stream, empty_task));
}

void checkpoint_stream_start(struct checkpoint_stream *stream) {
    bool is_claimed[STREAM_WINDOW];
    int n = 0;
    CHECK(pthread_mutex_init(&stream->lock, NULL) == 0);
    stream->next = stream->begin;
    stream->status = NULL;
    stream->n_pieces = 0;
    for (int i = 0; i < STREAM_WINDOW; i++) {
        stream->pieces[i].stream = stream;
        stream->pieces[i].request = STR_INIT;
        is_claimed[i] = claim(stream, &stream->pieces[i]);
        n += is_claimed[i];
    }
    stream->n_pieces = n;
    if (n == 0) {
        stream->empty_task.run = end_empty;
        stream->ctx->host->submit_io(stream->ctx, &stream->empty_task);
    }
    for (int i = 0; i < STREAM_WINDOW && n > 0; i++) {
        if (!is_claimed[i])
            break; /* pieces are claimed in order */
        request_piece(&stream->pieces[i]);
    }
}
