/* Writes and reads TensorMeta, and the metas of the messages about edges that tasks send to each
 * other: Push, Announce, Grant, Credit (proto/worker.proto). step_messages.h has those between
 * master and worker. Rare messages go through protobuf-c where they are used.
 *
 * Malformed bytes only cause INVALID_ARGUMENT. Spans in results point into the message. A writer
 * appends to `out`. Any thread. */
#ifndef MILLRACE_RPC_WIRE_MESSAGES_H
#define MILLRACE_RPC_WIRE_MESSAGES_H

#include "common/tensor/tensor.h"
#include "rpc/rdma/rdma_remote_slot.h"
#include "rpc/wire/wire.h"

struct tensor_meta {
    enum dtype dtype;
    bool is_dead;
    bool is_proto; /* the payload part is a TensorProto, although the dtype is plain */
    uint64_t size_bytes;
    struct span proto; /* inline_proto */
    int rank;
    int64_t dims[SHAPE_MAX_RANK]; /* the first `rank` are set */
};

/* Adds a TensorMeta as field `number`. A tensor of an object dtype travels as inline_proto. With
 * `proto_size_bytes` > 0 its TensorProto, of that size, is a payload part instead. */
void tensor_meta_add(struct str *out, uint32_t number, const struct tensor *t,
                     size_t proto_size_bytes);
/* Does the same for a value of any dtype whose TensorProto exists already. With
 * `proto_size_bytes` > 0 the TensorProto is a payload part of that size, and `proto` is not
 * used. */
void tensor_meta_add_proto(struct str *out, uint32_t number, enum dtype dtype, struct span proto,
                           size_t proto_size_bytes);
struct status *tensor_meta_read(struct span in, struct tensor_meta *ret) MUST_USE;
/* The error of a reader: INVALID_ARGUMENT, "malformed WHAT". */
COLD struct status *message_malformed(const char *what) MUST_USE;
/* Checks that the size is that of a tensor of this dtype and shape. Errors: INVALID_ARGUMENT. */
struct status *tensor_meta_check(const struct tensor_meta *meta) MUST_USE;
/* Makes the tensor that `meta` describes. Its elements are the payload part at *offset, which is
 * moved to the part's end. The tensor is a view on the payload, or a copy if it is small enough to
 * be stored in the struct. A dead one is TENSOR_DEAD. `allocator` is for decoded TensorProtos. *ret
 * must hold nothing; the caller clears it. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
struct status *tensor_meta_take(const struct tensor_meta *meta, const struct wire_message *message,
                                size_t *offset, struct allocator *allocator,
                                struct tensor *ret) MUST_USE;
/* For a value that is neither dead nor plain: finds its TensorProto without looking into it. *ret
 * points into the message's meta or, as its next part, into the payload. Errors:
 * INVALID_ARGUMENT. */
struct status *tensor_meta_take_proto(const struct tensor_meta *meta,
                                      const struct wire_message *message, size_t *offset,
                                      struct span *ret) MUST_USE;
/* Finds the TensorProto of a string, handle or variant, in the meta or as the payload's next part.
 * ret->data is NULL for a plain or dead tensor, of which nothing is taken. A TensorProto in the
 * payload is checked by tensor_proto_check_claim. Errors: INVALID_ARGUMENT. */
struct status *tensor_meta_find_proto(const struct tensor_meta *meta,
                                      const struct wire_message *message, size_t *offset,
                                      struct span *ret) MUST_USE;
/* Has the tensor the dtype and the shape that `meta` describes? */
bool tensor_meta_fits(const struct tensor_meta *meta, const struct tensor *t);
/* Are the tensor's elements plain memory, which can be a payload part as they are? */
static inline bool tensor_meta_is_plain(const struct tensor_meta *meta) {
    return dtype_in(meta->dtype, DTYPES_PLAIN) && !meta->is_proto;
}

/* Where a value is in its sender's arena. Token 0: the value is not in the arena. */
struct arena_reference {
    uint64_t token, offset;
    uint64_t epoch; /* shm_arena_epoch of the value's bytes; 0: the sender does not say */
};

/* Push, Announce and Grant. Each has the key of an edge. Push and Announce have a tensor. A Push
 * may have a reference instead of a payload. A Grant may have a remote slot for the value. A Grant
 * with a tensor is a pre-grant (worker/exchange/rendezvous.h). */
struct edge_message {
    uint32_t edge;
    uint64_t frame_iter;
    bool has_tensor;
    bool has_remote_slot;
    bool wants_grant; /* Announce: it needs a Grant although a pre-grant may be under way */
    struct arena_reference reference;
    struct rdma_remote_slot remote_slot;
    struct tensor_meta tensor;
};
/* `t` may be NULL. proto_size_bytes: as for tensor_meta_add. */
void edge_message_write(struct str *out, uint32_t edge, uint64_t frame_iter, const struct tensor *t,
                        size_t proto_size_bytes);
/* Does the same for a value that does not exist yet. The dtype is plain, the shape fully known. */
void edge_message_write_expected(struct str *out, uint32_t edge, uint64_t frame_iter,
                                 enum dtype dtype, struct shape shape, size_t size_bytes);
/* The next three add to a message that edge_message_write has begun. */
void edge_message_add_reference(struct str *out, const struct arena_reference *reference);
void edge_message_add_wants_grant(struct str *out);
void edge_message_add_remote_slot(struct str *out, const struct rdma_remote_slot *remote_slot);
struct status *edge_message_read(struct span in, struct edge_message *ret) MUST_USE;

/* Credit: how many bytes of small values the receiver has taken, so that they may be pushed
 * again. */
void credit_write(struct str *out, uint64_t bytes);
struct status *credit_read(struct span in, uint64_t *ret_bytes) MUST_USE;

#endif
