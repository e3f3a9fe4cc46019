/* Writes and reads the metas of the messages of a step between master and worker, field by field:
 * RunGraph, FeedStep, StepFetched, RunDone, CancelStep (proto/worker.proto).
 *
 * Malformed bytes only cause INVALID_ARGUMENT. Spans in results point into the message. A writer
 * appends to `out`. Any thread. */
#ifndef MILLRACE_RPC_WIRE_STEP_MESSAGES_H
#define MILLRACE_RPC_WIRE_STEP_MESSAGES_H

#include "rpc/wire/messages.h"

/* A feed that is written. */
struct step_feed {
    const struct tensor *value;
    struct span proto;       /* its TensorProto; data NULL: `value` is encoded */
    size_t proto_size_bytes; /* > 0: the TensorProto is a payload part of this size */
};

struct run_graph_message {
    uint64_t graph, step_id, master_incarnation, oldest_live_step;
    bool collect_stats, is_partial, tells_saves;
    int64_t timeout_ms;
    int64_t clock_ahead_us; /* how far the worker's clock is ahead of the master's */
    struct span feeds;      /* read: the rest of the message, for run_graph_next_feed */
};
/* Writes everything except the feeds, which run_graph_add_feed adds in the order of the graph's. */
void run_graph_write(struct str *out, const struct run_graph_message *message);
void run_graph_add_feed(struct str *out, const struct step_feed *feed);
struct status *run_graph_read(struct span in, struct run_graph_message *ret) MUST_USE;
/* Finds the TensorMeta of the next feed. Returns false at the end. */
bool run_graph_next_feed(struct run_graph_message *message, struct span *ret_meta);

/* FeedStep: a list of positions and a list of feeds of the same length. */
struct feed_step_message {
    struct span positions, feeds; /* the rest of the message, for each of the lists */
};
/* Adds a feed and its position among the graph's. */
void feed_step_add(struct str *out, uint32_t position, const struct step_feed *feed);
void feed_step_read(struct span in, struct feed_step_message *ret);
/* Reads the next position and feed. Returns 1, or 0 at the end, or -1 when the message is malformed
 * or one list is longer. */
int feed_step_next(struct feed_step_message *message, uint32_t *ret_position,
                   struct span *ret_meta);

/* StepFetched: one fetch of a partial run. proto_size_bytes: as for tensor_meta_add. */
void step_fetched_write(struct str *out, uint32_t position, const struct tensor *t,
                        size_t proto_size_bytes);
struct step_fetched_message {
    uint32_t position; /* among the graph's fetches */
    struct span fetch; /* its TensorMeta */
    bool has_fetch;
};
struct status *step_fetched_read(struct span in, struct step_fetched_message *ret) MUST_USE;

/* RunDone, part by part. A derived status is one that a failure elsewhere has caused. */
void run_done_add_status(struct str *out, const struct status *status, bool is_derived);
/* Fetches are added in the order of the graph's. A dead one is TENSOR_DEAD. proto_size_bytes: as
 * for tensor_meta_add. */
void run_done_add_fetch(struct str *out, const struct tensor *t, size_t proto_size_bytes);
/* The field of NodeExecStats messages that is not TensorFlow's: for how many nanoseconds the node's
 * kernel kept its thread busy, without the time in which other work had the core. */
enum { TRACE_BUSY_NANOS = 1000 };
/* The payload's last part, of that size, is a StepStats message. */
void run_done_add_trace(struct str *out, size_t size_bytes);

struct run_done_message {
    int code; /* enum status_code */
    bool is_derived;
    struct span message;
    uint64_t trace_size_bytes; /* of the payload's last part, a StepStats message; 0: none */
    size_t n_fetches;
    struct span fetches; /* the rest of the message, for run_done_next_fetch */
};
struct status *run_done_read(struct span in, struct run_done_message *ret) MUST_USE;
/* Finds the TensorMeta of the next fetch. Returns false at the end. */
bool run_done_next_fetch(struct run_done_message *message, struct span *ret_meta);

void cancel_step_write(struct str *out, uint64_t step_id, const struct status *why);
struct cancel_step_message {
    uint64_t step_id;
    int code;
    struct span message;
};
struct status *cancel_step_read(struct span in, struct cancel_step_message *ret) MUST_USE;

#endif
