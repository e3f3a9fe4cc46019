/* Reads the requests that run a step: RunStep, PartialRunSetup, MakeCallable and RunCallable.
 *
 * The readers copy no names and no tensors: spans point into the message. docs/compatibility.md
 * lists the fields. Any thread. */
#ifndef MILLRACE_MASTER_REQUEST_REQUEST_H
#define MILLRACE_MASTER_REQUEST_REQUEST_H

#include "common/base/arena.h"
#include "common/base/str.h"
#include "common/base/status.h"
#include "rpc/grpc/grpc.h"

struct run_step_request {
    struct span session_handle;
    struct span *feed_names, *feed_protos; /* n_feeds endpoint names and serialized TensorProtos */
    struct span *fetches, *targets;
    int n_feeds, n_fetches, n_targets;
    struct span *connect_from, *connect_to; /* of a callable: n_connections endpoint names each */
    int n_connections;
    bool is_partial;     /* PartialRunSetup: feed_protos is NULL */
    struct span options; /* serialized RunOptions */
    int64_t timeout_ms;  /* from the options, 0: none */
    int trace_level;
    bool output_partition_graphs;
    struct span *watches; /* n_watches DebugTensorWatch messages of the options */
    int n_watches;
    struct span partial_run_handle;
    bool store_errors_in_response_body;
    uint64_t request_id;
};

/* The most fields of a request: its feeds, fetches and targets, and the few others. The loop works
 * on all of them at once. */
enum { REQUEST_MAX_FIELDS = 100000 };

/* Reads a RunStepRequest. Spans borrow from `body`; arrays are allocated in the arena. Errors:
 * INVALID_ARGUMENT for malformed bytes, RESOURCE_EXHAUSTED for too many fields. The other readers
 * keep the same contract. */
struct status *run_step_request_parse(struct span body, struct arena *arena,
                                      struct run_step_request *ret) MUST_USE;
/* Reads a PartialRunSetupRequest. It has names only: feed_protos is NULL. */
struct status *partial_run_setup_parse(struct span body, struct arena *arena,
                                       struct run_step_request *ret) MUST_USE;
/* Reads CallableOptions: names, targets, connections and run options; feed_protos is NULL. */
struct status *callable_options_parse(struct span options, struct arena *arena,
                                      struct run_step_request *ret) MUST_USE;
/* Reads a RunCallableRequest: `ret` asks for what `callable` asks for, with this call's feeds. */
struct status *run_callable_parse(struct span body, const struct run_step_request *callable,
                                  struct arena *arena, struct run_step_request *ret) MUST_USE;
/* Returns the key of the request's signature in the session's cache of executables: the names of
 * feeds, fetches and targets in the request's order, the connections, and whether the run is
 * partial. Different signatures have different keys. */
struct span run_step_request_key(const struct run_step_request *request, struct arena *arena);
/* The offset of the first large tensor_content in a body of which `head` has arrived: a
 * grpc_align_fn, so that the gRPC server receives that tensor at an aligned address. */
size_t run_step_request_align(struct span head, size_t body_len);
size_t run_callable_request_align(struct span head, size_t body_len);

/* Finds the last length-delimited field of that number in any message; *ret is empty if there is
 * none. Errors: INVALID_ARGUMENT for malformed bytes. */
struct status *request_find_bytes(struct span message, uint32_t number, struct span *ret) MUST_USE;

#endif
