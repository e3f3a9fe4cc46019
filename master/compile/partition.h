/* What the partition's files share: pass_partition.c (edges, copies, one graph per task),
 * partition_loops.c (loops that span tasks), partition_slots.c (what is known of values before
 * they come). */
#ifndef MILLRACE_MASTER_COMPILE_PARTITION_H
#define MILLRACE_MASTER_COMPILE_PARTITION_H

#include "master/compile/compile_internal.h"

/* Where a Recv, or a copy, of something is on some task. */
struct partitioner {
    struct compilation *c;
    const struct device_table *devices;
    struct loop_frames frames;
    int n_ids; /* nodes before cutting */
    /* by node id: the number of its control "output"; output i has that + 1 + i */
    uint64_t *first_endpoint;
    struct u64map arrivals;    /* endpoint * n_tasks + task → the node that stands for it there */
    struct node **copied_from; /* by node id, new ones too: whose copy it is */
    int copied_capacity;
    /* frame * n_tasks + task → the node that runs there in each of the loop's iterations */
    struct u64map pulses;
    /* by node id: what an Enter or NextIteration took before its edges were cut */
    struct node_input *step_inputs;
    bool *runs_once; /* by frame: no NextIteration leads back into it */
    /* by node id: in a loop, and not once in every iteration; NULL when no loop spans tasks */
    bool *is_irregular;
    struct partitioner_slots *slots; /* NULL: nothing is known of what crosses */
    int n_edges;
    bool *exchanges; /* n_tasks × n_tasks: does a send to b? */
};

static inline int partitioner_task(const struct partitioner *p, const struct node *node) {
    return p->devices->devices[node->placed].task;
}

/* ---- pass_partition.c ---- */
/* The node and output that stand for src:index on a task: itself, a copy, or a Recv. */
struct status *partitioner_arrive(struct partitioner *p, struct node *src, int index, int task,
                                  struct node **ret, int *ret_index) MUST_USE;
/* What stands on a task for the end of `src`: a control edge's source there. */
struct status *partitioner_arrive_control(struct partitioner *p, struct node *src, int task,
                                          struct node **ret) MUST_USE;
/* A Send of from:index on its task and a Recv on `task`, in loop `frame`. `src` and
 * `tensor_name` are what the client calls it. */
struct status *partitioner_add_pair(struct partitioner *p, struct node *from, int index,
                                    const struct node *src, int frame, const char *tensor_name,
                                    int task, struct node **ret_recv) MUST_USE;
/* ---- partition_narrow.c ---- */
/* Does src:index travel as bfloat16? */
bool partitioner_is_narrowed(const struct partitioner *p, const struct node *src, int index);
/* The same as partitioner_add_pair of src:index, by way of 16 bits; *ret is a float again. */
struct status *partitioner_add_narrow_pair(struct partitioner *p, struct node *src, int index,
                                           const char *tensor_name, int task,
                                           struct node **ret) MUST_USE;

/* ---- pass_partition.c ---- */
void partitioner_note_copy(struct partitioner *p, const struct node *copy, struct node *original);
/* Where the arrival of an endpoint on a task is kept: p->arrivals. */
uint64_t partitioner_arrival_key(const struct partitioner *p, const struct node *src, int index,
                                 int task);

/* ---- partition_loops.c ---- */
/* Adds the small loops that tell each task of a loop of its iterations. Works out p->frames,
 * anew after that. */
struct status *partitioner_add_loops(struct partitioner *p) MUST_USE;
/* The node that starts what a task receives in each iteration of a loop; NULL: the loop is not
 * known to be there. */
struct node *partitioner_pulse(const struct partitioner *p, int frame, int task);
/* Does another task make it again, from its input, instead of receiving it? */
bool partitioner_is_step_of_loop(const struct node *node);
struct status *partitioner_repeat_step(struct partitioner *p, struct node *src, int task,
                                       struct node **ret) MUST_USE;
/* A value that comes in some iterations only cannot be received in each. */
struct status *partitioner_check_regular(const struct partitioner *p, const struct node *src,
                                         const struct node *dst) MUST_USE;

/* ---- partition_slots.c ---- */
/* Works out which values are certain to come, and their shapes. Where no step or no edge could
 * use that, p->slots stays NULL. */
struct status *partitioner_find_slots(struct partitioner *p) MUST_USE;
void partitioner_slots_free(struct partitioner_slots *slots);
/* Notes the shape of src:index at the Recv that stands for it, where a place for it may be
 * prepared. */
void partitioner_say_shape(const struct partitioner *p, const struct node *src, int index,
                           struct node *recv);

#endif
