/* RunStepRequest, decoded by hand: names and tensors stay where the message has them.
 * docs/compatibility.md lists the fields. */
#ifndef MILLRACE_MASTER_REQUEST_REQUEST_H
#define MILLRACE_MASTER_REQUEST_REQUEST_H

#include "common/base/arena.h"
#include "common/base/str.h"
#include "common/base/status.h"
#include "rpc/grpc/grpc.h"

struct run_step_request {
    struct span session_handle;
    struct span *feed_names, *feed_protos; /* n_feeds: endpoint names and serialized TensorProtos */
    struct span *fetches, *targets;
    int n_feeds, n_fetches, n_targets;
    struct span *connect_from, *connect_to; /* of a callable: n_connections endpoint names each */
    int n_connections;
    bool is_partial;     /* PartialRunSetup: feed_protos is NULL */
    struct span options; /* serialized RunOptions */
    int64_t timeout_ms;  /* from the options, 0: none */
    int trace_level;
    bool output_partition_graphs;
    struct span partial_run_handle;
    bool store_errors_in_response_body;
    uint64_t request_id;
};

/* Spans borrow from `body`; arrays lie in the arena. Errors: INVALID_ARGUMENT for malformed
 * bytes. */
struct status *run_step_request_parse(struct span body, struct arena *arena,
                                      struct run_step_request *ret) MUST_USE;
/* PartialRunSetupRequest: names only. */
struct status *partial_run_setup_parse(struct span body, struct arena *arena,
                                       struct run_step_request *ret) MUST_USE;
/* CallableOptions: names, targets, connections and run options; feed_protos is NULL. */
struct status *callable_options_parse(struct span options, struct arena *arena,
                                      struct run_step_request *ret) MUST_USE;
/* RunCallableRequest: what `callable` asks for, with this call's feeds. */
struct status *run_callable_parse(struct span body, const struct run_step_request *callable,
                                  struct arena *arena, struct run_step_request *ret) MUST_USE;
/* The cache key of what is asked: feeds, fetches and targets by name, in the request's order;
 * connections; whether it is partial. */
struct span run_step_request_key(const struct run_step_request *request, struct arena *arena);
/* Where the first large tensor_content starts, for the aligned receive (grpc_align_fn). */
size_t run_step_request_align(struct span head, size_t body_len);
size_t run_callable_request_align(struct span head, size_t body_len);

/* The last length-delimited field of that number in any message; empty when absent. Errors:
 * INVALID_ARGUMENT for malformed bytes. */
struct status *request_find_bytes(struct span message, uint32_t number, struct span *ret) MUST_USE;

#endif
