/* The placer: decides which nodes must share a device, and which device such a group gets [WP
 * 3.2.1, 4.3]. Two callers: place_session (groups with stateful nodes, once per session) and
 * pass_place (all other nodes, once per signature). For the compiler's rooms and their tests. Pool
 * thread.
 *
 *   reference edges, resource handles, _class "loc:@x"  ──union-find──►  groups
 *   a group's requests  ──intersect──►  one partial name  ──choose──►  a device
 *
 * What decides, strongest first:
 *   1. A member that has been placed before: the whole group gets its device.
 *   2. The requests of members that own what the group shares (variables, queues, handles) or that
 *      the client colocated. They must agree, else INVALID_ARGUMENT.
 *   3. The requests of members that only take a reference or a handle. They narrow what 2 leaves
 *      open, and are ignored where they contradict it. (TensorFlow's clients build a variable on
 *      the ps and its assign_add under a worker's device scope; TensorFlow runs it on the ps.
 *      Found by experiment with the 2.21 wheel.)
 * With allow_soft_placement the type and number of a requested device may be ignored, its job and
 * task never. */
#ifndef MILLRACE_MASTER_COMPILE_PLACE_PLACE_H
#define MILLRACE_MASTER_COMPILE_PLACE_PLACE_H

#include "master/compile/compilation.h"

/* A device name that a node asks for, or an intersection of such names. Interned: equal names are
 * one object. */
struct place_request {
    struct device_name name;
    const char *text;
    int device; /* the device that it selects; -2: not computed yet, -1: none */
};

struct place_group {
    struct place_request *request; /* NULL: none */
    const struct node *asked_by;   /* for messages */
    bool is_strict;                /* the request is of kind 2 above */
    int pinned;                    /* the device of members placed before; -1: none */
    const struct node *pinned_by;  /* for messages: of these the first that has state, if any */
    int device;                    /* the result; -1: not decided */
    int id;                        /* of the root node */
    int n_members;
    bool is_open;       /* the request leaves several tasks open, of which `device` is the first */
    bool is_chosen;     /* `device` was chosen by cost: also its type */
    const char *reason; /* why `device` was chosen by cost; NULL: it was not, or nobody asks */
    bool is_wanted;     /* place_session: the group has a stateful member */
    bool needs_cpu;     /* some member has no kernel for GPUs; known only if there are GPUs */
};

struct placer {
    const struct graph *graph;
    const struct device_table *devices;
    const struct compile_options *options;
    struct arena *arena;          /* holds everything below but the map */
    int *parent;                  /* by node id: union-find */
    struct place_group **groups;  /* by root's id */
    struct place_request **asked; /* by node id: its device attr; NULL: it has none */
    struct strmap requests;       /* canonical text → struct place_request */
    bool may_use_gpus;
};

/* Parses the requests and builds the groups. Errors: INVALID_ARGUMENT, which names a node with a
 * malformed device. Call placer_fini also after a failure. */
struct status *placer_init(struct placer *placer, const struct graph *graph,
                           const struct device_table *devices,
                           const struct compile_options *options, struct arena *arena) MUST_USE;
void placer_fini(struct placer *placer);
struct place_group *placer_group(struct placer *placer, const struct node *node);

/* Merges the members' requests into their groups, and gives a device to each group with a request
 * or a pinned member. With only_wanted, other groups are skipped. Errors: INVALID_ARGUMENT with
 * TensorFlow's key words, which names nodes and devices. */
struct status *placer_settle(struct placer *placer, bool only_wanted) MUST_USE;

/* Finds out which groups could be on a GPU. After placer_init, once. */
void placer_find_types(struct placer *placer);
/* Gives tasks of job ps to the groups of variables that may be on several of them (place_spread.c).
 * For place_session, after placer_settle(placer, true). */
void spread_variables(struct placer *placer);
/* Of what has a shape and a dtype as attrs; a dimension that is left open counts as 1. */
double variable_bytes(const struct node *variable);
/* Chooses by the cost model the devices of groups that the client left open (place_cost.c); with
 * PLACEMENT_SPREAD only of those that it asked onto one of several tasks. Call it after
 * placer_settle(placer, false); `order` is the topological order. Changes nothing where that gains
 * nothing. False: there was nothing to choose. */
bool place_by_cost(struct compilation *c, struct placer *placer, const struct loop_frames *frames,
                   struct node *const *order);

/* Why a step's node is where it is, if not by its group's constraints or by cost. */
enum place_why { WHY_DEFAULT, WHY_LOOP, WHY_SHAPE, WHY_WAITS, WHY_CONSUMERS };
/* Appends a line "NAME: (OP): DEVICE: REASON" for each of the program's nodes, once all are placed
 * (place_explain.c). `why` is by node id. */
void place_explain(struct placer *placer, struct node *const *order, const uint8_t *why,
                   struct str *out);

/* Is it the first device of its type in its task? The CPUs of a task share its cores, so the cost
 * model looks at one of them. */
bool device_is_first_of_type(const struct device_table *devices, int device);

/* Fills a placed_graph with all nodes, likewise. */
void place_report(struct compilation *c, struct placer *placer, struct node *const *order,
                  const uint8_t *why);

/* The device for a group that the simple rule puts on `device`: the first GPU of the same task, if
 * nobody asked for a type and all members have kernels for GPUs; otherwise `device`. */
int placer_best_device(const struct placer *placer, const struct place_group *group, int device);

/* True if `node` has no kernel for the type of `device`, although that type has kernels and the op
 * has a kernel for another type. (An op without any kernel is left to the worker, where the step
 * fails and names it. Control flow ops have no kernels by design.) */
bool node_lacks_kernel(const struct node *node, const struct device_table *devices, int device);

/* CPU:0 of a device's task. Feeds, fetches, sends and receives run there, because their tensors are
 * in host memory. */
static inline int device_host(const struct device_table *devices, int device) {
    return devices->tasks[devices->devices[device].task].first_device;
}

#endif
