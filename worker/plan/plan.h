/* A plan is one registered partition, made ready to run. It is immutable once built, and any number
 * of executions share it without locks.
 *
 * The partition's nodes are packed into an array and edges are indices into it. A plan knows the
 * pending counts that an execution starts from, holds constants as tensors and a kernel for each
 * node, and knows the control-flow frames [WP 4.4, CF 4]: each node belongs to one frame, found by
 * following Enter and Exit, and has a place in that frame's states and slots.
 *
 *   plan_frame     what one iteration of a frame needs: n_nodes states, n_slots input tensors,
 *                  the initial states
 *   plan_node      what to do, which slots hold its inputs, which edges take its outputs
 *   plan_edge      one consumer of one output: which node, which slot
 *   plan_preset    an input whose value is known when an execution begins: no edge brings it
 *
 * worker/executor/README.md states the executor's invariants. */
#ifndef MILLRACE_WORKER_PLAN_PLAN_H
#define MILLRACE_WORKER_PLAN_PLAN_H

#include <pthread.h>

#include "kernels/device.h"
#include "kernels/host.h"
#include "kernels/kernel.h"
#include "worker/client_state.h"
#include "worker/session_state.h"

/* A value of at most this many bytes is sent without asking; a larger one is announced, and sent
 * once its receiver has granted it. */
enum { PLAN_PUSH_LIMIT_BYTES = 64 * 1024 };

enum plan_kind {
    PLAN_KERNEL,       /* call compute */
    PLAN_KERNEL_ASYNC, /* call compute, which may answer KERNEL_PENDING */
    PLAN_NOOP,         /* no outputs, nothing to do */
    PLAN_CONST,        /* output 0 is the plan's tensor */
    PLAN_IDENTITY,     /* outputs are the inputs */
    PLAN_SWITCH,
    PLAN_SWITCH_N, /* chooses the output by an index */
    PLAN_MERGE,
    PLAN_ENTER,
    PLAN_EXIT,
    PLAN_NEXT_ITERATION,
    PLAN_CONTROL_TRIGGER, /* live even where its inputs are dead */
    PLAN_SEND,
    PLAN_RECV,
    PLAN_FEED,
    PLAN_FETCH,
    PLAN_COPY, /* from one memory of the task to another */
};

enum plan_node_flags {
    PLAN_DEREF = 1,          /* some input is a reference, and the op needs its value */
    PLAN_EARLY = 2,          /* runs before all other nodes: plan.early */
    PLAN_CONSTANT_ENTER = 4, /* the value holds in every iteration */
    /* takes the reference to a variable that has no value (KERNEL_TAKES_UNINITIALIZED) */
    PLAN_TAKES_UNINITIALIZED = 8,
    /* runs although an input is dead: Send, Fetch, Merge, ControlTrigger, frame ops */
    PLAN_TAKES_DEAD = 16,
    /* a kernel whose one output has one consumer, which is no Merge: it writes the output into the
     * consumer's slot */
    PLAN_DIRECT = 64,
    /* looks at the value and passes the reference on: each consumer reads the variable when it
     * runs */
    PLAN_LATE_READ = 32,
    /* a kernel that enqueues on a device: it waits while the device is far behind */
    PLAN_ENQUEUES = 128,
};

enum plan_edge_flags {
    EDGE_CONTROL = 1,
    EDGE_MOVE = 2, /* the output's last data edge: moves the value instead of sharing it */
    EDGE_TO_MERGE = 4,
    /* from an Enter into a Merge. When the Enter is dead the Merge is dead, because a loop that was
     * not entered has no next iteration. */
    EDGE_FROM_ENTER = 8,
    EDGE_PRESET = 16, /* to a preset input: only a feed of a partial run uses it */
};

struct plan_edge {
    uint32_t dst;
    uint32_t state; /* the consumer's, so that propagation need not touch its plan_node */
    uint32_t slot;  /* in the consumer's iteration; unused for control edges */
    uint16_t output;
    uint8_t flags;
};

/* An input that gets its value from a constant or a feed of the root frame. The node fetches the
 * value when it runs; nothing is counted or propagated for it. A feed of a partial run comes later,
 * along an edge. */
struct plan_preset {
    uint16_t input;
    bool is_feed;
    uint32_t index; /* of plan->constants, or of the execution's feeds */
};

/* The part of a node that changes while an iteration runs; one per node of its frame. */
struct node_state {
    /* Edges still to come. For a Merge: twice the control edges still to come, plus one until a
     * live value has come. */
    int32_t pending;
    int32_t n_dead; /* dead edges that have come */
};

struct plan_node {
    kernel_fn *compute;
    struct kernel_instance *instance; /* set for PLAN_KERNEL and PLAN_KERNEL_ASYNC only */
    uint8_t kind, flags;
    uint16_t n_inputs, n_outputs;
    uint16_t frame;      /* plan_frames index of the node's own frame */
    uint32_t state;      /* index in the iteration's states */
    uint32_t first_slot; /* slots of its inputs: n_inputs from here */
    /* Grouped by output, control edges last. Edges to preset inputs follow them and are not counted
     * in n_edges. */
    uint32_t first_edge, n_edges;
    uint32_t first_preset; /* plan->presets */
    uint16_t n_presets;
    /* A kernel with an input of more elements may be heavy (kernels/cost.h). A heavy one does not
     * run on a loop thread, nor on the owner's thread while other nodes are ready. */
    int32_t cheap_elements;
    /* PLAN_CONST: index in plan->constants; SEND, RECV: in plan->channels; FEED, FETCH: position in
     * the execution's arrays; COPY: in plan->copies; ENTER: the child frame; EXIT: its number among
     * its frame's Exits */
    uint32_t aux;
    const struct node *node; /* names, for messages and statistics */
} __attribute__((aligned(64)));

struct plan_frame {
    const char *name; /* frame_name attr; "" for the root */
    int parent;       /* -1 for the root */
    int parallel_iterations;
    uint32_t n_nodes, n_slots;
    /* Enters into this frame: it has all its inputs once they have come */
    uint32_t n_enters;
    uint32_t n_exits;
    uint32_t number; /* among its parent's child frames */
    /* frames whose parent this is; an iteration holds at most one instance of each */
    uint32_t n_children;
    /* The same in every process: part of the rendezvous keys of values that cross tasks inside the
     * frame. */
    uint64_t name_hash;
    struct node_state *initial; /* n_nodes */
};

/* A Send or Recv: one end of an edge that the master cut between two tasks. */
struct plan_channel {
    uint32_t edge; /* the edge's number in the master's compiled step; the same at both ends */
    const char *tensor_name; /* "node:output", for messages */
    const char *src_device, *dst_device;
    const char *peer_task; /* the task of the other end: "/job:ps/replica:0/task:0" */
    enum dtype dtype;
    /* What a Recv's value will most likely be, where it is certain to come, comes once a step, and
     * is too large to be sent unasked. slot_bytes 0: not known. */
    struct shape shape;
    size_t slot_bytes;
    /* A Recv whose value only copies to devices take, so that it may be handed on in a growing
     * buffer (common/tensor/growing_buffer.h). */
    bool takes_growing;
};

/* Numbers of edges, in order. */
struct plan_edges {
    uint32_t *edges;
    uint32_t n;
};

/* A copy between two memories of the task. */
struct plan_copy {
    struct device *src, *dst; /* NULL: the host's memory */
    struct allocator *allocator;
    bool keeps_inline;        /* hands a small host value on as it is */
    const char *trace_device; /* what traces call the place of its rows */
};

/* A SaveV2 of the root frame that saves values from a device's memory. */
struct plan_save {
    uint32_t node;
    uint32_t *copies; /* of plan->copies: a copy for each input that one brings */
    uint32_t n_copies;
};

struct function_table; /* worker/plan/function_table.h */
struct executor;       /* worker/executor: the memory of an execution */

struct plan {
    struct graph graph; /* owns names and attrs */
    struct plan_node *nodes;
    uint32_t n_nodes;
    struct plan_edge *edges;
    struct plan_preset *presets;
    uint32_t n_presets;
    struct plan_frame *frames; /* [0] is the root */
    uint32_t n_frames;
    /* the root frame's states in a partial run; NULL: no feed presets an input */
    struct node_state *partial_initial;
    /* nodes that are ready at the start, Recvs last: the ready stack runs the last one first */
    uint32_t *roots;
    uint32_t n_roots;
    /* Reads of resource variables that wait for nothing, and the handles that they take, in
     * topological order. In TensorFlow they mostly run before everything that waits for something,
     * so a program that fetches such a read beside an update of the variable gets the value
     * before. */
    uint32_t *early;
    uint32_t n_early;
    struct tensor *constants;
    uint32_t n_constants;
    struct plan_channel *channels;
    uint32_t n_channels;
    /* the edges whose Recvs start late: their values should not be there earlier */
    struct plan_edges late_edges;
    struct plan_copy *copies;
    uint32_t n_copies;
    struct plan_save *saves;
    uint32_t n_saves;
    struct device **used_devices; /* those of its nodes that have a memory of their own */
    uint32_t n_used_devices;
    uint32_t n_feeds, n_fetches;
    uint16_t max_outputs;
    struct kernel_instance *instances;
    uint32_t n_instances;
    struct session_state *session_state; /* one reference, or NULL */
    /* of a function that kernels call: what copies of one node share; NULL: they share nothing */
    struct session_state *own_state;
    struct client_state *client; /* one reference, or NULL */
    /* what its kernels call: one reference, borrowed where is_function is set; or NULL */
    struct function_table *functions;
    bool is_function; /* the table owns this plan */
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;
    /* Guarded by lock: the memory of executions that have ended, for the next ones. The executor
     * says how it is freed when it keeps some. */
    struct executor *free_executors;
    uint32_t n_free_executors;
    size_t free_executor_bytes;
    void (*executors_free)(struct executor *first);
};

enum { PLAN_MAX_CPU_DEVICES = 64 }; /* that a session may name in one task */

struct plan_options {
    struct device *devices; /* of this task; each node's device names one of them */
    int n_devices;
    /* This task's name in the graph, where that is not its own name: a session's cluster may call
     * it otherwise. Borrowed; NULL: its own. */
    const char *task;
    const struct kernel_host *host;
    struct session_state *session_state; /* borrowed; NULL: the plan shares no state with others */
    struct client_state *client;         /* borrowed; NULL: the plan has no client */
    struct function_table *functions;    /* borrowed; NULL: none */
    bool is_function;                    /* the plan is a row of that table */
};

/* The host's memory, where others are the indices of devices in plan_options.devices. */
enum { PLAN_HOST = -1 };

/* Builds a plan from a partition. Takes the graph's contents: `graph_take` is empty afterwards,
 * also on failure. Errors name the node: no kernel (UNIMPLEMENTED), a node in two frames, a cycle,
 * a bad attr (INVALID_ARGUMENT). Cost: linear. */
struct status *plan_new(struct graph *graph_take, const struct plan_options *options,
                        struct plan **ret_plan) MUST_USE;
struct plan *plan_ref(struct plan *plan);
void plan_unref(struct plan *plan); /* no execution may hold the last reference */

/* ---- plan_references.c: variables that are read late ---- */
/* Does the op look at the value and pass the reference on, as an Identity of a reference does? */
bool plan_reads_late(const struct node *node, const bool *is_reference);
/* Does a reference arrive where the op needs the value? */
bool plan_wants_values(const struct node *node, const bool *is_reference);

/* ---- plan_copies.c: values between memories ---- */
/* Has some device a memory of its own? */
bool plan_has_device_memory(const struct plan_options *options);
/* Puts a node _MrCopy where an edge leads from one memory to another. `is_reference` is
 * graph_find_references' of the graph. Some device must be a CPU. Cost: linear. */
struct status *plan_add_copies(struct graph *graph, const struct plan_options *options,
                               const bool *is_reference) MUST_USE;
/* Where an output of a node is: PLAN_HOST, or an index in options->devices. */
int plan_output_memory(const struct plan_options *options, const struct node *node, int output);

/* ---- plan_memory.c ---- */
/* By node id: does the node make what another task is likely to read? malloc'd; the caller frees
 * it. Cost: linear. */
bool *plan_find_shared(const struct graph *graph);

/* ---- plan_frames.c: the frames of a graph's live nodes ---- */
struct plan_frame_info {
    const char *name;
    int parent;
    int parallel_iterations;
};
struct plan_frame_map {
    int *frame_of; /* by node id: where the node runs */
    /* by node id: the frame of its outputs; another one for Enter and Exit */
    int *output_frame_of;
    struct plan_frame_info *frames; /* [0] is the root */
    int n_frames;
};
/* Errors: INVALID_ARGUMENT naming a node whose inputs come from different frames. Cost: linear. */
struct status *plan_find_frames(const struct graph *graph, struct plan_frame_map *ret) MUST_USE;
void plan_frame_map_fini(struct plan_frame_map *map); /* accepts an all-zero map */

#endif
