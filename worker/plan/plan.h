/* A plan: one registered partition, made ready to run. Immutable once built and shared by any
 * number of steps without locks.
 *
 * The partition's nodes are packed into an array; every edge is an index into it; the pending
 * counts that a step starts from are worked out; constants are tensors; each node's kernel is
 * made; and the control-flow frames are known [WP 4.4, CF 4]: each node belongs to one frame,
 * found by following Enter and Exit, and has a place in that frame's states and slots.
 *
 *   plan_frame          what one iteration of a frame needs: n_nodes states, n_slots input tensors, the initial states
 *   plan_node           what to do, where its inputs lie in the iteration's slots, where its outputs go
 *   plan_edge           one consumer of one output: which node, which slot
 *   plan_settled        an input whose value is known when the step begins: no edge brings it
 *
 * See worker/README.md for the executor's invariants. */
#ifndef MILLRACE_WORKER_PLAN_PLAN_H
#define MILLRACE_WORKER_PLAN_PLAN_H

#include <pthread.h>

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "worker/client_state.h"
#include "worker/session_state.h"

/* A value of at most this many bytes is sent without asking; a larger one is announced, and sent
 * once its receiver has granted it. */
enum { PLAN_PUSH_LIMIT_BYTES = 64 * 1024 };

enum plan_kind {
    PLAN_KERNEL,       /* call compute */
    PLAN_KERNEL_ASYNC, /* the same, and it may answer KERNEL_PENDING */
    PLAN_NOOP,         /* no outputs, nothing to do */
    PLAN_CONST,        /* output 0 is the plan's tensor */
    PLAN_IDENTITY,     /* outputs are the inputs */
    PLAN_SWITCH,
    PLAN_SWITCH_N, /* by an index */
    PLAN_MERGE,
    PLAN_ENTER,
    PLAN_EXIT,
    PLAN_NEXT_ITERATION,
    PLAN_CONTROL_TRIGGER, /* live even where its inputs are dead */
    PLAN_SEND,
    PLAN_RECV,
    PLAN_FEED,
    PLAN_FETCH,
};

enum plan_node_flags {
    PLAN_DEREF = 1,          /* some input comes from a ref output and wants its value */
    PLAN_CONSTANT_ENTER = 4, /* the value holds in every iteration */
    /* runs although an input is dead: Send, Fetch, Merge, ControlTrigger, frame ops */
    PLAN_TAKES_DEAD = 16,
    /* a kernel with one output, which goes to one input of a node that is no Merge: made in that
     * one's slot */
    PLAN_DIRECT = 64,
    /* an Identity of a reference: each consumer reads the variable when it runs itself */
    PLAN_LATE_READ = 32,
};

enum plan_edge_flags {
    EDGE_CONTROL = 1,
    EDGE_MOVE = 2, /* the last data consumer of its output: takes the value instead of sharing it */
    EDGE_TO_MERGE = 4,
    /* into a Merge: dead, it makes the Merge dead, since a loop that was not entered has no next
     * iteration */
    EDGE_FROM_ENTER = 8,
    EDGE_PRESET = 16, /* to a settled input: for feeds of partial runs only */
};

struct plan_edge {
    uint32_t dst;
    uint32_t state; /* the consumer's, so that propagation need not touch its plan_node */
    uint32_t slot;  /* in the consumer's iteration; unused for control edges */
    uint16_t output;
    uint8_t flags;
};

/* An input that a constant or a feed of the root frame settles: the value is fetched when the
 * node runs, nothing is counted or handed on for it. A feed of a partial run comes later and
 * does travel along its edge. */
struct plan_preset {
    uint16_t input;
    bool is_feed;
    uint32_t index; /* of plan->constants, or of the run's feeds */
};

/* What changes while an iteration runs, one per node of its frame. */
struct node_state {
    /* edges still to come; for a Merge: control edges times two, plus one while no live value
     * came */
    int32_t pending;
    int32_t n_dead; /* dead edges that came */
};

struct plan_node {
    kernel_fn *compute;
    struct kernel_instance *instance; /* PLAN_KERNEL*; NULL else */
    uint8_t kind, flags;
    uint16_t n_inputs, n_outputs;
    uint16_t frame;      /* plan_frames index of the node's own frame */
    uint32_t state;      /* index in the iteration's states */
    uint32_t first_slot; /* inputs lie side by side from here */
    /* grouped by output, control edges last; edges to settled inputs stand behind these,
     * uncounted */
    uint32_t first_edge, n_edges;
    uint32_t first_preset; /* plan->presets */
    uint16_t n_presets;
    /* PLAN_KERNEL*: with inputs of more it may be heavy, and then it is not run on a loop
     * thread, nor while other nodes are ready */
    int32_t cheap_elements;
    /* PLAN_CONST: constants index; SEND/RECV: plan_channels index; FEED/FETCH: position in the
     * run's arrays; ENTER: child frame; EXIT: its number among the frame's */
    uint32_t aux;
    const struct node *node; /* names, for messages and statistics */
} __attribute__((aligned(64)));

struct plan_frame {
    const char *name; /* frame_name attr; "" for the root */
    int parent;       /* -1 for the root */
    int parallel_iterations;
    uint32_t n_nodes, n_slots;
    /* of this frame, in its parent: the frame has all its inputs after that many */
    uint32_t n_enters;
    uint32_t n_exits;
    uint32_t number; /* among its parent's child frames */
    /* kinds of frames that its iterations may hold, one of each at a time */
    uint32_t n_children;
    /* the same in every process: part of the rendezvous key of what crosses tasks inside the
     * frame */
    uint64_t name_hash;
    struct node_state *initial; /* n_nodes */
};

/* A Send or Recv between tasks: one end of an edge that the master cut. */
struct plan_channel {
    uint32_t edge;           /* unique in the master's compiled step; the same at both ends */
    const char *tensor_name; /* "node:output", for messages */
    const char *src_device, *dst_device;
    const char *peer_task; /* the other end: "/job:ps/replica:0/task:0" */
    enum dtype dtype;
    /* Of a Recv whose value is certain to come, once a step, and too large to be sent unasked:
     * what it will most likely be. */
    struct shape shape;
    size_t slot_bytes; /* 0: not known */
};

struct function_table; /* worker/plan/function_table.h */
struct executor;       /* worker/executor: the memory of a run */

struct plan {
    struct graph graph; /* owns names and attrs */
    struct plan_node *nodes;
    uint32_t n_nodes;
    struct plan_edge *edges;
    struct plan_preset *presets;
    uint32_t n_presets;
    struct plan_frame *frames; /* [0] is the root */
    uint32_t n_frames;
    /* the root frame's, for a partial run; NULL: no input is settled by a feed */
    struct node_state *partial_initial;
    uint32_t *roots; /* ready at the start; Recvs first */
    uint32_t n_roots;
    struct tensor *constants;
    uint32_t n_constants;
    struct plan_channel *channels;
    uint32_t n_channels;
    uint32_t n_feeds, n_fetches;
    uint16_t max_outputs;
    struct kernel_instance *instances;
    uint32_t n_instances;
    struct session_state *session_state; /* one reference, or NULL */
    struct client_state *client;         /* one reference, or NULL */
    /* that its kernels call; one reference, but borrowed where is_function; or NULL */
    struct function_table *functions;
    bool is_function; /* the table owns this plan */
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;
    /* Guarded by lock: the memory of runs that have ended, for the next ones. The executor says how
     * it is freed when it keeps some. */
    struct executor *free_executors;
    uint32_t n_free_executors;
    void (*executors_free)(struct executor *first);
};

/* A device of this task, as kernels see it. */
struct device {
    struct device_name name;
    char *full_name;  /* "/job:worker/replica:0/task:0/device:CPU:0" */
    const char *type; /* "CPU" */
    struct allocator *allocator;
    /* of what peers of this host are likely to see; NULL: the same */
    struct allocator *shared_allocator;
    uint64_t incarnation;
    /* what clients are told: the allocator's limit, or the host's memory where it has none */
    int64_t memory_limit_bytes;
};

enum { PLAN_MAX_CPU_DEVICES = 64 }; /* of a task, in names */

struct plan_options {
    const struct device *devices; /* of this task; each node's device names one of them */
    int n_devices;
    const struct kernel_host *host;
    struct session_state *session_state; /* borrowed; NULL: every plan begins anew */
    struct client_state *client;         /* borrowed; NULL: the plan is nobody's */
    struct function_table *functions;    /* borrowed; NULL: none */
    bool is_function;                    /* of that table */
};

/* Builds a plan from a partition; takes the graph's contents (graph is empty after, also on
 * failure). Errors name the node: no kernel (UNIMPLEMENTED), a node in two frames, a cycle, a
 * bad attr (INVALID_ARGUMENT). Cost: linear. */
struct status *plan_new(struct graph *graph_take, const struct plan_options *options,
                        struct plan **ret_plan) MUST_USE;
struct plan *plan_ref(struct plan *plan);
void plan_unref(struct plan *plan); /* no step may be running on the last reference */

/* ---- plan_references.c: variables that are read late ---- */
/* An Identity of a reference: "v/read". */
bool plan_reads_late(const struct node *node);
/* By node id: may its values be references, although its op makes values? malloc'd. Cost:
 * linear. */
bool *plan_find_references(const struct graph *graph, const struct graph_consumers *consumers);
/* Does a reference arrive where the op needs the value? */
bool plan_wants_values(const struct node *node, const bool *is_reference);

/* Which nodes make what is likely to be passed to another task, or kept for it: by node id,
 * malloc'd. */
bool *plan_find_shared(const struct graph *graph);

/* The frames of a graph's live nodes. */
struct plan_frame_info {
    const char *name;
    int parent;
    int parallel_iterations;
};
struct plan_frame_map {
    int *frame_of; /* by node id: where the node runs */
    /* by node id: where its values live; another one for Enter and Exit */
    int *output_frame_of;
    struct plan_frame_info *frames; /* [0] is the root */
    int n_frames;
};
/* Errors: INVALID_ARGUMENT naming a node whose inputs come from different frames. Cost: linear. */
struct status *plan_find_frames(const struct graph *graph, struct plan_frame_map *ret) MUST_USE;
void plan_frame_map_fini(struct plan_frame_map *map); /* an all-zero one, too */

#endif
