/* The metas of the messages that every step sends and receives, by hand: RunGraph, RunDone,
 * CancelStep, Push, Announce, Grant (proto/worker.proto). The rare ones go through protobuf-c
 * where they are used. Any thread.
 *
 * Bytes from a stranger yield INVALID_ARGUMENT; spans borrow from the message. */
#ifndef MILLRACE_RPC_WIRE_MESSAGES_H
#define MILLRACE_RPC_WIRE_MESSAGES_H

#include "common/tensor/tensor.h"
#include "rpc/rdma/rdma_remote_slot.h"
#include "rpc/wire/wire.h"

struct tensor_meta {
    enum dtype dtype;
    bool is_dead;
    uint64_t size_bytes;
    struct span proto; /* inline_proto */
    int rank;
    int64_t dims[SHAPE_MAX_RANK]; /* the first `rank` are set */
};

/* Adds TensorMeta as field `number`. Object dtypes travel as inline_proto, unless
 * `proto_size_bytes` > 0 says that their TensorProto of that size is the payload part. */
void tensor_meta_add(struct str *out, uint32_t number, const struct tensor *t,
                     size_t proto_size_bytes);
struct status *tensor_meta_read(struct span in, struct tensor_meta *ret) MUST_USE;
/* Elements and size agree with what a tensor of that dtype and shape has. */
struct status *tensor_meta_check(const struct tensor_meta *meta) MUST_USE;
/* The tensor that `meta` describes, its elements the payload's next part: a view on the payload,
 * or a copy where it is small enough to live in the value. A dead one is TENSOR_DEAD. `ret` must
 * hold nothing. */
struct status *tensor_meta_take(const struct tensor_meta *meta, const struct wire_message *message,
                                size_t *offset, struct allocator *allocator,
                                struct tensor *ret) MUST_USE;
/* Is that what it describes: a value of its dtype and shape? */
bool tensor_meta_fits(const struct tensor_meta *meta, const struct tensor *t);
/* Plain memory of one size, so that a payload part can be it? */
static inline bool tensor_meta_is_plain(const struct tensor_meta *meta) {
    return dtype_in(meta->dtype, DTYPES_PLAIN);
}

struct run_graph_message {
    uint64_t graph, step_id, master_incarnation, oldest_live_step;
    bool collect_stats, is_partial, tells_saves;
    int64_t timeout_ms;
    struct span feeds; /* the message again: feeds are read by run_graph_next_feed */
};
struct status *run_graph_read(struct span in, struct run_graph_message *ret) MUST_USE;
/* The next feed's meta; false at the end. */
bool run_graph_next_feed(struct run_graph_message *message, struct span *ret_meta);

/* FeedStep: positions and feeds, pairwise. */
struct feed_step_message {
    struct span positions, feeds; /* the message, twice: each is read by the function below */
};
void feed_step_read(struct span in, struct feed_step_message *ret);
/* 1: the next one; 0: the end; -1: malformed, or more of one than of the other. */
int feed_step_next(struct feed_step_message *message, uint32_t *ret_position,
                   struct span *ret_meta);

/* proto_size_bytes: as tensor_meta_add has it. */
void step_fetched_write(struct str *out, uint32_t position, const struct tensor *t,
                        size_t proto_size_bytes);

void run_done_add_status(struct str *out, const struct status *status, bool is_derived);
void run_done_add_fetch(struct str *out, const struct tensor *t,
                        size_t proto_size_bytes); /* TENSOR_DEAD for a dead one */
void run_done_add_stats(struct str *out, struct span step_stats);

struct cancel_step_message {
    uint64_t step_id;
    int code;
    struct span message;
};
struct status *cancel_step_read(struct span in, struct cancel_step_message *ret) MUST_USE;

/* Where a value is in its sender's arena; token 0: nowhere. */
struct arena_reference {
    uint64_t token, offset;
};

/* Push, Announce, Grant: an edge's key; the first two with a tensor, a Push perhaps with a
 * reference instead of a payload, a Grant perhaps with a remote slot for the value. A Grant
 * with a tensor is a pre-grant (worker/exchange/rendezvous.h). */
struct edge_message {
    uint32_t edge;
    uint64_t frame_iter;
    bool has_tensor;
    bool has_remote_slot;
    bool wants_grant; /* Announce: although a pre-grant may be under way */
    struct arena_reference reference;
    struct rdma_remote_slot remote_slot;
    struct tensor_meta tensor;
};
void edge_message_write(struct str *out, uint32_t edge, uint64_t frame_iter, const struct tensor *t,
                        size_t proto_size_bytes); /* t may be NULL */
/* The same for a value that does not exist yet, of a plain dtype and a full shape. */
void edge_message_write_expected(struct str *out, uint32_t edge, uint64_t frame_iter,
                                 enum dtype dtype, struct shape shape, size_t size_bytes);
void edge_message_add_reference(struct str *out, const struct arena_reference *reference);
void edge_message_add_wants_grant(struct str *out);
void edge_message_add_remote_slot(struct str *out, const struct rdma_remote_slot *remote_slot);
struct status *edge_message_read(struct span in, struct edge_message *ret) MUST_USE;

/* Credit: how many bytes of small values may be pushed again. */
void credit_write(struct str *out, uint64_t bytes);
struct status *credit_read(struct span in, uint64_t *ret_bytes) MUST_USE;

#endif
