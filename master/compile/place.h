/* Placement's engine [WP 3.2.1, 4.3]: which nodes must share a device, and which device a group
 * of them gets. Two callers: place_session (stateful groups, once) and pass_place (everything
 * else, per signature). For this folder and its tests.
 *
 *   reference edges, resource handles, _class "loc:@x"  ──union-find──►  groups
 *   a group's requests                                  ──intersect──►  one partial name  ──choose──►  a device
 *
 * Whose word counts, strongest first: 1. a member that has been placed before: the group is
 *   there; 2. the requests of members that own what the group shares (variables, queues,
 *   handles) or were colocated by the client: they must
 *      agree, else INVALID_ARGUMENT; 3. the requests of members that only take a reference or a
 *   handle: they narrow what is left open, and give way where 2 said
 *      otherwise. (TensorFlow's clients build a variable on the ps and its assign_add under a
 *      worker's device scope; TensorFlow runs it on the ps. Found by experiment with the 2.21
 *      wheel.)
 * With allow_soft_placement, type and number of a device may be given up, job and task never. */
#ifndef MILLRACE_MASTER_COMPILE_PLACE_H
#define MILLRACE_MASTER_COMPILE_PLACE_H

#include "master/compile/compile.h"

/* One device name that somebody asked for, or an intersection of such. Interned: equal names are
 * one object. */
struct place_request {
    struct device_name name;
    const char *text;
    int device; /* what it leads to: -2 not asked yet, -1 none */
};

struct place_group {
    struct place_request *request; /* NULL: free */
    const struct node *asked_by;   /* for messages */
    bool is_strict;                /* the request is of the second kind */
    int pinned;                    /* device of members placed before, or -1 */
    const struct node *pinned_by;
    int device; /* the answer, -1 before */
    int n_members;
    bool is_wanted; /* place_session: has a stateful member */
};

struct placer {
    const struct graph *graph;
    const struct device_table *devices;
    const struct compile_options *options;
    struct arena *arena;          /* everything below lies here, but the map */
    int *parent;                  /* by node id: union-find */
    struct place_group **groups;  /* by root's id */
    struct place_request **asked; /* by node id: what its device attr says, NULL when nothing */
    struct strmap requests;       /* canonical text → struct place_request */
};

/* Parses the requests and builds the groups. Errors: INVALID_ARGUMENT naming a node with a
 * malformed device. The placer can be finished (placer_fini) after failure too. */
struct status *placer_init(struct placer *placer, const struct graph *graph,
                           const struct device_table *devices,
                           const struct compile_options *options, struct arena *arena) MUST_USE;
void placer_fini(struct placer *placer);
struct place_group *placer_group(struct placer *placer, const struct node *node);

/* Merges the members' requests into their groups, and gives each group with a request or a
 * pinned member its device. Groups that are not wanted are passed over when only_wanted. Errors:
 * INVALID_ARGUMENT with TensorFlow's key words, naming nodes and devices. */
struct status *placer_settle(struct placer *placer, bool only_wanted) MUST_USE;

/* Has `node` no kernel for the type of device `device`, although there are kernels for that type
 * and for this op somewhere? (What has none at all is left to the worker: the step that needs it
 * fails there, naming it. Control flow has none by design.) */
bool node_lacks_kernel(const struct node *node, const struct device_table *devices, int device);

/* CPU:0 of a device's task: where feeds, fetches, sends and receives run, whose tensors are in
 * host memory. */
static inline int device_host(const struct device_table *devices, int device) {
    return devices->tasks[devices->devices[device].task].first_device;
}

#endif
