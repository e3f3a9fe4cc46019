/* What the files of the partition pass share: pass_partition.c (edges between tasks, copies, one
 * graph per task), partition_loops.c (loops that span tasks), partition_narrow.c (bfloat16) and
 * partition_slots.c (shapes that a Recv can rely on). Pool thread. */
#ifndef MILLRACE_MASTER_COMPILE_PARTITION_H
#define MILLRACE_MASTER_COMPILE_PARTITION_H

#include "master/compile/compile_internal.h"

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
    struct partitioner_slots *slots; /* NULL: no shapes are known */
    int n_edges;
    bool *exchanges; /* [a * n_tasks + b]: does task a send to task b? */
};

static inline int partitioner_task(const struct partitioner *p, const struct node *node) {
    return p->devices->devices[node->placed].task;
}

/* ---- pass_partition.c ---- */
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

#endif
