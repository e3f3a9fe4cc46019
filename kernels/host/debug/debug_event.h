/* Writes Event messages for TensorFlow's debugger: what a tensor was, the graph of a device, the
 * names of a step's feeds and fetches. Any thread. */
#ifndef MILLRACE_KERNELS_HOST_DEBUG_DEBUG_EVENT_H
#define MILLRACE_KERNELS_HOST_DEBUG_DEBUG_EVENT_H

#include "common/tensor/tensor_proto.h"

enum {
    /* what TensorFlow puts into one message at most, so that a server with gRPC's limit takes it */
    DEBUG_CHUNK_BYTES = 4000 * 1024
};

/* What an event says of a tensor. */
struct debug_tensor {
    struct span device, name, slot;
    const char *op;         /* the debug op's */
    const struct tensor *t; /* NULL: the tensor is uninitialized, of type `dtype` */
    enum dtype dtype;
    int64_t now_us;
};

/* Takes an event, whose bytes are borrowed. */
typedef struct status *debug_event_fn(void *arg, struct span event);

/* Calls `each` with the events of the tensor, in their order, until it returns a failure. The
 * tensor's content or strings are divided among events of about chunk_bytes; 0: all is in one. */
struct status *debug_tensor_events(const struct debug_tensor *tensor, size_t chunk_bytes,
                                   debug_event_fn *each, void *arg) MUST_USE;
/* The same for a GraphDef. Each event begins with a head that says which part it is. */
struct status *debug_graph_events(struct span graph, struct span device, int64_t now_us,
                                  debug_event_fn *each, void *arg) MUST_USE;
/* Append an event with a whole GraphDef, as files have it, and one with core metadata (JSON). */
void debug_graph_event(struct span graph, int64_t now_us, struct str *out);
void debug_metadata_event(struct span metadata, int64_t now_us, struct str *out);

#endif
