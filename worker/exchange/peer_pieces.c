/* Sends values while a device's copy still fills them (peer_pieces.h). */
#include "worker/exchange/peer_pieces.h"

#include <stdlib.h>

#include "common/tensor/growing_buffer.h"
#include "worker/exchange/peer_internal.h"

enum { PIECE_ALIGN = 64 << 10 };

/* A value that is being sent. */
struct growing_value {
    struct growing_wait wait;
    struct loop_task task; /* posted by on_reached */
    struct peer *peer;
    uint64_t n_losses; /* the peer's, when the value was granted */
    struct peer_value value;
    bool is_in_pieces;
    uint64_t piece_bytes;
    unsigned n_pieces, n_sent;
    bool has_slot; /* it is written to the slot of that connection */
    struct rdma_remote_slot slot;
    uint64_t rdma_connection;
};

bool peer_value_is_growing(const struct peer_value *value) {
    return !value->proto && value->value.storage == TENSOR_BUFFER &&
           buffer_is_growing(value->value.buffer);
}

static void end(struct growing_value *growing) {
    struct peer *peer = growing->peer;
    peer_value_fini(&growing->value);
    free(growing);
    peer_release(peer);
}

/* The steps of the connections over which the value was granted have ended, or will end. */
static bool is_over(const struct growing_value *growing) {
    const struct peer *peer = growing->peer;
    return peer->table->is_closing || peer->n_losses != growing->n_losses;
}

static size_t piece_end(const struct growing_value *growing) {
    return MIN(growing->piece_bytes * (growing->n_sent + 1), growing->value.size_bytes);
}

static void fail(struct growing_value *growing, struct status *why) {
    struct peer *peer = growing->peer;
    peer->pieces.n_failed++;
    if (growing->has_slot && growing->rdma_connection == peer_rdma_connection_to(&peer->rdma))
        peer_rdma_decline(&peer->rdma, &growing->slot);
    if (atomic_load_explicit(&peer->takes_pieces, memory_order_relaxed))
        peer_streams_fail_pieces(peer, &growing->value, why);
}

/* Sends the pieces that are there. Returns true when no more will be sent: all are, or the peer is
 * being lost. */
static bool send_pieces(struct growing_value *growing) {
    struct peer *peer = growing->peer;
    const struct buffer *buffer = growing->value.value.buffer;
    size_t n_filled = growing_buffer_filled(buffer);
    while (growing->n_sent < growing->n_pieces && piece_end(growing) <= n_filled) {
        bool is_early = buffer_is_growing(buffer);
        if (!peer_streams_push_piece(peer, &growing->value, growing->piece_bytes, growing->n_sent))
            return true;
        growing->n_sent++;
        peer->pieces.n_sent++;
        peer->pieces.n_early += is_early;
    }
    return growing->n_sent == growing->n_pieces;
}

static void send_whole(struct growing_value *growing) {
    struct peer *peer = growing->peer;
    if (!growing->has_slot) {
        peer_push(peer, &growing->value);
        return;
    }
    struct status *st = peer_rdma_write_pregranted(&peer->rdma, growing->rdma_connection,
                                                   &growing->slot, &growing->value);
    growing->value = (struct peer_value){0};
    if (st)
        peer_rdma_host.fail(peer, st);
    status_unref(st);
}

/* Does what can be done now. Returns true when that was all. */
static bool advance(struct growing_value *growing) {
    struct buffer *buffer = growing->value.value.buffer;
    struct status *failure = growing_buffer_failure(buffer);
    if (is_over(growing))
        return true;
    if (failure) {
        fail(growing, failure);
        return true;
    }
    if (growing->is_in_pieces)
        return send_pieces(growing);
    if (buffer_is_growing(buffer))
        return false;
    send_whole(growing);
    return true;
}

/* Goes on until the next bytes have to be waited for. */
static void proceed(struct growing_value *growing) {
    size_t next;
    do {
        if (advance(growing)) {
            end(growing);
            return;
        }
        next = growing->is_in_pieces ? piece_end(growing) : growing->value.size_bytes;
    } while (growing_buffer_wait(growing->value.value.buffer, &growing->wait, next));
}

static void on_posted(struct loop_task *task) {
    proceed(CONTAINER_OF(task, struct growing_value, task));
}

static void on_reached(struct growing_wait *wait) {
    struct growing_value *growing = CONTAINER_OF(wait, struct growing_value, wait);
    loop_post(growing->peer->table->loop, &growing->task);
}

/* Takes the value. */
static struct growing_value *growing_value_new(struct peer *peer, struct peer_value *value_take) {
    struct growing_value *growing = aligned_alloc(_Alignof(struct growing_value), sizeof *growing);
    CHECK(growing && loop_is_current(peer->table->loop));
    CHECK(value_take->value.data == value_take->value.buffer->data);
    *growing = (struct growing_value){.wait = {.on_reached = on_reached},
                                      .task = {.run = on_posted},
                                      .peer = peer,
                                      .n_losses = peer->n_losses,
                                      .value = *value_take};
    *value_take = (struct peer_value){0};
    peer_hold(peer);
    return growing;
}

void peer_pieces_push(struct peer *peer, const struct peer_value *value) {
    struct peer_value copy = {.step = value->step, .size_bytes = value->size_bytes};
    tensor_copy(&copy.value, &value->value);
    str_add_bytes(&copy.meta, value->meta.data, value->meta.len);
    struct growing_value *growing = growing_value_new(peer, &copy);
    size_t size = value->size_bytes;
    if (atomic_load_explicit(&peer->takes_pieces, memory_order_relaxed) &&
        size >= PEER_STRIPE_MIN_BYTES) {
        uint64_t least = (size + PEER_MAX_PIECES - 1) / PEER_MAX_PIECES;
        growing->is_in_pieces = true;
        growing->piece_bytes = MAX((uint64_t)PEER_PIECE_BYTES,
                                   (least + PIECE_ALIGN - 1) & ~(uint64_t)(PIECE_ALIGN - 1));
        growing->n_pieces = (unsigned)((size - 1) / growing->piece_bytes + 1);
        peer->pieces.n_values++;
    }
    proceed(growing);
}

void peer_pieces_write(struct peer *peer, uint64_t rdma_connection,
                       const struct rdma_remote_slot *slot, struct peer_value *value_take) {
    struct growing_value *growing = growing_value_new(peer, value_take);
    growing->has_slot = true;
    growing->slot = *slot;
    growing->rdma_connection = rdma_connection;
    proceed(growing);
}

void peer_pieces_describe(const struct peer *peer, struct str *out) {
    const struct peer_pieces *pieces = &peer->pieces;
    str_addf(out,
             "{\"values_sent\":%llu,\"sent\":%llu,\"sent_before_whole\":%llu,\"failed\":%llu,"
             "\"received\":%llu,\"handed_on\":%llu}",
             (unsigned long long)pieces->n_values, (unsigned long long)pieces->n_sent,
             (unsigned long long)pieces->n_early, (unsigned long long)pieces->n_failed,
             (unsigned long long)peer->streams.n_pieces_received,
             (unsigned long long)peer->streams.n_handed_on);
}
