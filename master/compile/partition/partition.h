/* What the files of the partition pass share: pass_partition.c (edges between tasks, copies, one
 * graph per task), partition_loops.c (loops that span tasks), partition_narrow.c (bfloat16),
 * partition_slots.c (shapes that a Recv can rely on), partition_model.c (the step as a problem for
 * the simulation), partition_times.c (when nodes run), partition_anchors.c (what late nodes can
 * wait for) and partition_receives.c (when Recvs start).
 * Before it, pass_delays.c looks at nodes in the same way. Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_PARTITION_PARTITION_H
#define MILLRACE_MASTER_COMPILE_PARTITION_PARTITION_H

#include "master/compile/compilation.h"

/* What is known of a node before the graph is cut (partition_times.c). */
struct node_time {
    double start_ns, end_ns; /* in the simulated step */
    int order;               /* topological */
    uint64_t may;            /* the asynchronous nodes that it may wait for */
    uint64_t must;           /* those whose end it waits for if it is alive */
};
/* In `may`: nodes that have no bit, and what leaves a loop. */
#define NODE_TIME_LOST (UINT64_C(1) << 63)

/* The order of the nodes: no edge leads backwards. */
static inline bool node_time_is_before(const struct node_time *a, const struct node_time *b) {
    return a->start_ns < b->start_ns || (a->start_ns == b->start_ns && a->order < b->order);
}

/* The state of the pass. */
struct partitioner {
    struct compilation *c;
    const struct device_table *devices;
    struct loop_frames frames;
    int n_ids; /* node ids of the graph before the pass added nodes */
    /* by node id: the endpoint number of its control output; output i has that number + 1 + i */
    uint64_t *first_endpoint;
    struct u64map arrivals;    /* endpoint * n_tasks + task → the node that provides it there */
    struct node **copied_from; /* by node id, also of new nodes: the node that it is a copy of */
    int copied_capacity;
    /* frame * n_tasks + task → a node that runs on that task in each iteration of the loop */
    struct u64map pulses;
    /* by node id: the input of an Enter or NextIteration before its edges were replaced */
    struct node_input *step_inputs;
    bool *runs_once; /* by frame: it has no NextIteration */
    /* by node id: it does not run once in every iteration of its loop; NULL if no loop spans
     * tasks */
    bool *is_irregular;
    struct partitioner_slots *slots;     /* NULL: no shapes are known */
    const struct conditions *conditions; /* under which nodes before the cut run; may be NULL */
    struct node_time *times;             /* by id, of the nodes before the cut; NULL: nobody asks */
    struct step_model *model;            /* with `times` */
    struct partitioner_receives *receives; /* NULL: no Recv is delayed */
    int n_edges;
    bool *exchanges; /* [a * n_tasks + b]: does task a send to task b? */
};

/* Edges from these lead backwards in a graph's order. */
static inline bool node_is_way_back(const struct node *src) {
    return node_is_either(src, "NextIteration", "RefNextIteration");
}

static inline int partitioner_task(const struct partitioner *p, const struct node *node) {
    return p->devices->devices[node->placed].task;
}

/* ---- pass_partition.c ---- */
/* Has each task that reads the node a copy of its own? */
bool partitioner_is_copied(const struct node *node);
/* Finds or makes the endpoint that provides src:index on a task: itself, a copy, or a Recv. */
struct status *partitioner_arrive(struct partitioner *p, struct node *src, int index, int task,
                                  struct node **ret, int *ret_index) MUST_USE;
/* Finds or makes the node on a task whose end means that `src` has ended: a source for control
 * edges there. */
struct status *partitioner_arrive_control(struct partitioner *p, struct node *src, int task,
                                          struct node **ret) MUST_USE;
/* Makes a Send of from:index on its task and a Recv on `task`, in loop `frame`. `src` and
 * `tensor_name` are the client's names, for messages and traces. */
struct status *partitioner_add_pair(struct partitioner *p, struct node *from, int index,
                                    const struct node *src, int frame, const char *tensor_name,
                                    int task, struct node **ret_recv) MUST_USE;
/* ---- partition_narrow.c ---- */
/* Does src:index travel as bfloat16? */
bool partitioner_is_narrowed(const struct partitioner *p, const struct node *src, int index);
/* The same as partitioner_add_pair of src:index, with a Cast to bfloat16 before the Send and a Cast
 * to float after the Recv; *ret is the latter. */
struct status *partitioner_add_narrow_pair(struct partitioner *p, struct node *src, int index,
                                           const char *tensor_name, int task,
                                           struct node **ret) MUST_USE;

/* ---- pass_partition.c ---- */
/* Notes that `copy` is a copy of `original`. */
void partitioner_note_copy(struct partitioner *p, const struct node *copy, struct node *original);

/* ---- partition_loops.c ---- */
/* Adds, for each task that a loop spans, a small loop that follows its iterations. Computes
 * p->frames, of the graph with the new loops. */
struct status *partitioner_add_loops(struct partitioner *p) MUST_USE;
/* The node that starts a task's Recvs in each iteration of a loop; NULL if the loop does not span
 * that task. */
struct node *partitioner_pulse(const struct partitioner *p, int frame, int task);
/* Is it an Enter or NextIteration, which another task repeats from its input instead of receiving
 * its output? */
bool partitioner_is_step_of_loop(const struct node *node);
struct status *partitioner_repeat_step(struct partitioner *p, struct node *src, int task,
                                       struct node **ret) MUST_USE;
/* Errors: UNIMPLEMENTED if src's value exists in some iterations only, so that another task cannot
 * receive it in each. */
struct status *partitioner_check_regular(const struct partitioner *p, const struct node *src,
                                         const struct node *dst) MUST_USE;

/* ---- partition_slots.c ---- */
/* Finds out which values are sent in every step, and their shapes. p->slots stays NULL if no edge
 * could use that. */
struct status *partitioner_find_slots(struct partitioner *p) MUST_USE;
void partitioner_slots_free(struct partitioner_slots *slots);
/* Sets the shape of src:index as an attr of its Recv, if the receiver may pre-grant memory. */
void partitioner_say_shape(const struct partitioner *p, const struct node *src, int index,
                           struct node *recv);
/* Only while p->slots is set. The size of src:index; -1: not known. */
int64_t partitioner_known_bytes(const struct partitioner *p, const struct node *src, int index);
/* Only while p->conditions is set. The condition under which a node before the cut runs
 * (conditions.h). */
int partitioner_condition(const struct partitioner *p, const struct node *node);

/* ---- partition_times.c ---- */
/* Before the cut: simulates the step, and sets p->times and p->model, which the caller frees. Reads
 * p->frames. */
struct status *partitioner_time_nodes(struct partitioner *p) MUST_USE;
/* ---- partition_receives.c ---- */
void partitioner_receives_free(struct partitioner_receives *receives);
/* Notes the Recv of src:index on a task. */
void partitioner_note_receive(struct partitioner *p, const struct node *src, int index, int task,
                              struct node *recv);
/* After the cut: gives the Recvs that would start too early a control input. */
void partitioner_delay_receives(struct partitioner *p);

#endif
