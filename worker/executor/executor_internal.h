/* The state of one execution of a plan, shared by the executor's files only.
 *
 *   executor.c            ready stack, mailbox, ownership
 *   executor_propagate.c  completing nodes
 *   executor_kernel.c     running kernels
 *   executor_plain.c      running nodes without a kernel
 *   executor_references.c references to variables
 *   executor_failure.c    the first failure
 *   executor_life.c       an executor's memory; start, cancel and end of its execution
 *   executor_wake.c       when executions begin that another execution has woken
 *   executor_frames.c     frames and iterations: Enter, Exit, NextIteration
 *   executor_async.c      what ends elsewhere: asynchronous kernels, kernels on the pool, Recv
 *   executor_device.c     copies between memories; the wait for devices at the end
 *   executor_saves.c      when a save holds its values
 *   executor_host.c       the kernel host
 *   executor_partial.c    partial runs: feeds that come later, fetches that leave early
 *   executor_stats.c      per-node statistics
 *
 * An iteration holds, for each node of its frame, a state (how many inputs are still to come) and
 * slots (the inputs that have come). Invariants:
 *   - A slot holds a value only from its producer's propagation until its node has run. After an
 *     execution that ends well every slot is empty, so recycling an iteration resets its states
 *     and nothing else.
 *   - An iteration with n_outstanding == 0 and no child frames, whose predecessor has ended, has
 *     ended.
 *   - An execution whose ready stack and mailbox are empty and whose n_async is 0 has ended. */
#ifndef MILLRACE_WORKER_EXECUTOR_EXECUTOR_INTERNAL_H
#define MILLRACE_WORKER_EXECUTOR_EXECUTOR_INTERNAL_H

#include "common/base/list.h"
#include "worker/executor/executor.h"
#include "worker/exchange/rendezvous.h"

struct frame;
struct save_states;

struct iteration {
    struct frame *frame; /* NULL in the root frame */
    struct iteration *next_free;
    uint64_t number;
    uint64_t frame_iter;   /* the rendezvous key's part; 0 in the root */
    int32_t n_outstanding; /* nodes ready or running */
    int32_t n_child_frames;
    uint32_t n_unseen_children; /* used while frames_drop_all walks the frames */
    /* once this equals the frame's number of nodes, every slot is empty */
    uint32_t n_executed;
    /* live child frames of this iteration, each at its plan_frame's number */
    struct frame **children;
    struct node_state *states;
    struct tensor *slots;
    uint16_t plan_frame;
};

/* A value that waits for an iteration which does not exist yet, or that every iteration gets. */
struct frame_value {
    uint32_t node;
    struct tensor value; /* TENSOR_NONE: dead */
};

struct frame_values {
    struct frame_value *items;
    uint32_t n, capacity;
};

struct frame {
    const struct plan_frame *plan;
    struct iteration *parent;
    struct frame *next_free;
    uint32_t plan_frame;
    uint32_t n_enters_pending;
    uint64_t last;               /* the newest iteration's number */
    int n_live;                  /* iterations alive */
    struct iteration **ring;     /* live iterations by number modulo ring_size */
    uint32_t ring_size;          /* parallel_iterations + 1 */
    struct frame_values waiting; /* for iteration last + 1, held back by parallel_iterations */
    struct frame_values invariants;
    bool *has_exited;     /* by number of the Exit: a live value has left */
    uint32_t *dead_exits; /* Exits that were dead in the newest iteration */
    uint32_t n_dead_exits, dead_exits_capacity;
};

struct ready {
    struct iteration *iteration;
    uint32_t node;
    bool is_dead;
};

/* When a timed kernel began: on the clock, and on its thread's busy clock. That one stands while
 * other work has the core, and goes on while the thread waits for other threads of its loop. */
struct kernel_start {
    int64_t at_ns, busy_ns;
};

/* A node whose running ends on another thread, or later. */
struct async_op {
    struct kernel_ctx ctx;
    struct async_op *next; /* mailbox, or free list */
    struct list link;      /* executor->pending */
    struct executor *executor;
    struct iteration *iteration;
    const struct plan_node *node;
    int64_t started_ns, ended_ns; /* on a pool thread, while kernels are timed; else 0 */
    int64_t busy_ns;              /* of node_stats */
    int64_t since_ns;
    struct pool_task task; /* run on the pool */
    union {
        struct rendezvous_recv recv;
        struct device_copy copy;
        struct device_wait wait;
    };
    /* of an end, for /stepz: the device that it waits for (NULL: none), and until when */
    const struct device *device;
    const char *until;
    uint32_t outputs_capacity;
    bool is_cancel;     /* the step's cancel message, no execution */
    bool is_end;        /* a wait for a device, a copy at the end of an execution that uses one, or
                        * an end hook */
    bool is_pause;      /* an end: no node runs before it */
    bool is_dead_send;  /* a Send, of a dead value */
    size_t row;         /* of a Send in a traced step: stats_send_begin's */
    struct tensor late; /* what a kernel hands on that forwards a reference; else empty */
    struct tensor *outputs;
};

/* The mailbox is a list of operations that have arrived, or this: nobody owns the execution. */
#define MAILBOX_IDLE ((struct async_op *)1)

/* Fields marked "owner's" are touched by the owner's thread only. */
struct executor {
    struct plan *plan; /* one reference */
    struct execution *execution;
    struct executor *next_free;
    struct iteration *root;
    struct ready *ready;
    uint32_t n_ready, ready_capacity;
    uint32_t n_early; /* owner's: how many of plan.early have been started */
    uint32_t n_async; /* owner's */
    /* owner's: nodes since the mailbox was looked at. Kept while the execution moves to another
     * thread or waits, so that its nodes run in the same order in each step. */
    uint32_t n_since_check;
    uint64_t n_executed;
    struct status *status; /* owner's: the first failure */
    bool is_aborted;       /* owner's: nothing more is started */
    uint8_t end_phase;     /* owner's: enum end_phase, of a plan that uses devices */
    bool wants_flush;      /* owner's: something was queued for peers */
    bool is_on_pool;
    /* owner's: no node is run until this device has caught up; a wait for that is under way. NULL:
     * the execution does not pause */
    struct device *paused_for;
    struct tensor *outputs;             /* scratch for one node's outputs */
    struct iteration **free_iterations; /* by plan frame */
    struct frame **free_frames;         /* likewise */
    struct async_op *free_ops;
    size_t memory_bytes;                   /* of iterations, frames and async_ops, used or free */
    struct container_table *own_container; /* made at first use: TensorArrays, stacks */
    struct pool_task task;                 /* runs the execution on the pool */
    struct list deferred_link;             /* executor_wake.c: the thread's deferred executors */
    struct async_op *mail;                 /* what woke this executor; taken when it runs */
    struct step_stats *stats;
    struct save_states *saves; /* owner's: made at first use, of a plan that has saves */
    bool times_nodes;          /* rows are added for nodes that end where they run, also */
    bool is_timed;             /* kernels are: times_nodes is set, or the execution's scale */

    _Atomic(struct async_op *) mailbox;
    _Atomic bool cancel_asked;
    _Atomic bool has_failed;    /* lets kernels that are running see the failure */
    _Atomic bool has_end_hooks; /* end_hooks is not empty */
    struct async_op cancel_op;

    pthread_mutex_t lock;      /* guards what follows */
    struct list pending;       /* async_op.link; /stepz lists them */
    struct list cancel_hooks;  /* kernel_cancel_hook.link */
    struct list end_hooks;     /* kernel_end_hook.link; those that have not begun */
    struct status *cancel_why; /* set once: hooks registered later are refused */
    struct status *asked_why;  /* the status that execution_cancel brought */
};

/* Does nobody want the results of the execution any more? Any thread. */
static inline bool executor_is_unwanted(const struct executor *executor) {
    return atomic_load_explicit(&executor->cancel_asked, memory_order_relaxed) ||
           atomic_load_explicit(&executor->has_failed, memory_order_relaxed);
}

/* What follows is called by the owner, unless a comment says otherwise. */

/* ---- executor_propagate.c ---- */
void executor_push_ready(struct executor *executor, struct iteration *iteration, uint32_t node,
                         bool is_dead);
/* Hands outputs to their consumers in `iteration`; outputs that are TENSOR_NONE are dead. Leaves
 * outputs empty. */
void executor_propagate(struct executor *executor, struct iteration *iteration,
                        const struct plan_node *node, struct tensor *outputs, bool is_dead);
/* Completes a node: clears its inputs first, so that a consumer may be a value's only holder, then
 * propagates its outputs, or fails the execution with the status. */
void executor_finish_node(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *outputs, bool is_dead,
                          struct status *status_take);
/* Completes a feed of a partial run: its value is propagated to preset inputs as well. */
void executor_finish_feed(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *value);

/* ---- executor_kernel.c ---- */
/* Runs a kernel that may take long. One that changes nothing but its outputs stops soon after the
 * execution has been cancelled or has failed, with the status CANCELLED. Any thread. */
void executor_compute_long(const struct plan_node *node, struct kernel_ctx *ctx);

/* ---- executor_scale.c ---- */
/* A kernel begins, and is timed. Any thread. */
struct kernel_start kernel_start_now(void);
/* A kernel has run since `start` on this thread: lets the time pass that execution.scale adds,
 * unless the step is cancelled. Returns the busy time that such a slow device would have taken. Any
 * thread. */
int64_t executor_slow_down(const struct executor *executor, struct kernel_start start);

/* ---- executor_plain.c ---- */
/* Takes the value that a fetch has read, and leaves *value empty. In a partial run the client gets
 * it at once, else at the end. */
void executor_finish_fetch(struct executor *executor, const struct plan_node *node,
                           struct tensor *value, bool is_dead);

/* ---- executor_references.c ---- */
/* Reads the variable that a TENSOR_REF leads to, under the reference's shape if it has one. Of a
 * variable that has changed its number of elements since, the former value is read if it has the
 * reference's number, and else the value as it is. *ret must hold nothing.
 * Errors: FAILED_PRECONDITION while the variable is uninitialized. */
struct status *executor_read_reference(const struct tensor *ref, struct tensor *ret) MUST_USE;

/* ---- executor_failure.c ---- */
/* Adds the node to the text of its failure. Any thread. Accepts NULL. */
struct status *executor_name_take(const struct executor *executor, const struct plan_node *node,
                                  struct status *st) MUST_USE;
void executor_fail(struct executor *executor, const struct plan_node *node,
                   struct status *status_take);

/* ---- executor.c ---- */
/* Posts an operation that has ended. Any thread; may run the execution. */
void executor_post(struct async_op *op);
/* Adds a message to the mailbox. True: the calling thread has become the owner, and must call
 * executor_wake with the message. Any thread. */
bool executor_mailbox_post(struct executor *executor, struct async_op *op);
/* Runs the execution until it ends, waits or moves to the pool. `mail` is what the mailbox held
 * when the thread became the owner. Only executor_wake.c calls it. */
void executor_run(struct executor *executor, struct async_op *mail);
/* Submits the execution to the pool. The pool thread that runs it is its owner from here on, so the
 * caller must not touch it again. */
void executor_move_to_pool(struct executor *executor);

/* ---- executor_wake.c ---- */
/* Runs the execution as its owner, then the executions that it has woken. */
void executor_drive(struct executor *executor, struct async_op *mail);
/* As executor_drive, but when this thread is already running an execution, the woken one is
 * deferred until that one pauses. */
void executor_wake(struct executor *executor, struct async_op *mail);
void executor_drive_on_pool(struct pool_task *task); /* executor->task */
/* Submits this thread's deferred executors to the pool, because the thread will be busy. */
void wake_submit_deferred(void);
/* Between the two, this thread defers the executions that it wakes. Pairs nest; the end of the
 * outermost pair runs them. */
void wake_defer_begin(void);
void wake_defer_end(void);

/* ---- executor_life.c ---- */
void executor_end(struct executor *executor); /* the executor is recycled or freed */

/* ---- executor_frames.c ---- */
struct iteration *iteration_new(struct executor *executor, uint32_t plan_frame);
void iteration_recycle(struct executor *executor, struct iteration *iteration);
void iteration_free(struct iteration *iteration);
size_t iteration_bytes(const struct plan_frame *frame); /* of one iteration of the frame */
void frame_free(struct frame *frame);
size_t frame_bytes(const struct plan_frame *plan); /* of one instance of the frame */
/* Each completes a control-flow node that ran in `iteration`, and propagates its value. */
void frame_enter(struct executor *executor, struct iteration *iteration,
                 const struct plan_node *node, struct tensor *value, bool is_dead);
void frame_exit(struct executor *executor, struct iteration *iteration,
                const struct plan_node *node, struct tensor *value, bool is_dead);
void frame_next_iteration(struct executor *executor, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *value, bool is_dead);
/* Called when an iteration of a loop frame has no outstanding node: ends the iteration if it can
 * end, and then its frame. */
void frame_iteration_idle(struct executor *executor, struct iteration *iteration);
/* Recycles every live frame and iteration, and clears their slots. After an abort. */
void frames_drop_all(struct executor *executor);

/* ---- executor_async.c ---- */
void async_op_free(struct async_op *op);
size_t async_op_bytes(const struct plan *plan);
struct async_op *async_op_new(struct executor *executor, struct iteration *iteration,
                              const struct plan_node *node);
/* The record alone, for an operation that is no node's. */
struct async_op *async_op_take(struct executor *executor);
/* Starts a kernel that may stay pending, a Recv, a Send whose value may have to wait for its
 * receiver's grant, or a feed of a partial run. True: it has ended, and its outputs are in op. */
bool async_start(struct async_op *op);
void async_start_on_pool(struct async_op *op);
/* Ends every wait of the execution with its status. */
void async_cancel_waits(struct executor *executor);
/* Completes an operation that has ended: finishes its node and recycles the record. */
void async_complete(struct async_op *op);

/* ---- executor_device.c ---- */
/* Starts the copy of a node PLAN_COPY; the contract is async_start's. */
bool device_start_copy(struct async_op *op);
/* The node whose value a node hands on: a copy between memories is the plan's, and the client does
 * not know it. */
static inline const struct node *device_copied_node(const struct plan_node *node) {
    return node->kind == PLAN_COPY ? node->node->inputs[0].src : node->node;
}
/* executor_variants.c: the same for a variant. */
bool device_start_variant_copy(struct async_op *op, const struct plan_copy *plan);
/* Starts copying a value that a partial run fetches from a device's memory to the host's. */
bool device_start_fetch(struct async_op *op);
/* Counts the execution among those that use its devices, and no longer. */
void device_steps_begin(struct executor *executor);
void device_steps_end(struct executor *executor);
/* Enqueues what the devices of the execution hold back of its work, but not what a device does that
 * the execution pauses for. A failure of such work ends the execution. */
void device_flush(struct executor *executor);
/* Enqueues what all of them hold back, and returns the failure: it came before one that the caller
 * has found. */
struct status *device_take_failure(struct executor *executor) MUST_USE;
/* Is too much enqueued on a device of the execution? Then the execution is paused: a wait for the
 * device has begun, as an asynchronous operation. */
bool device_pauses(struct executor *executor);
/* Called when nothing is ready and nothing waited for, in an execution that uses devices: starts
 * what is left to do before it may end. True: nothing is left. */
bool device_may_end(struct executor *executor);
/* Completes what device_may_end, device_pauses or executor_end_hooks has started. */
void device_end_arrived(struct async_op *op);
/* Begins the end hooks of kernels. True: nothing is left. */
bool executor_end_hooks(struct executor *executor);

/* ---- executor_saves.c: plan->saves; the owner, or where the execution begins ---- */
void saves_begin(struct executor *executor);
void saves_free(struct executor *executor);
/* A copy has begun, or ended. */
void saves_note_copy(const struct async_op *op, bool is_under_way);
/* Tells of each save that holds its values now, once. Called where nothing is ready to run. */
void saves_look(struct executor *executor);
/* Has saves_look told of this kernel? Any thread that runs the kernel. */
bool saves_is_told(const struct executor *executor, const struct kernel_instance *instance);

/* ---- executor_partial.c ---- */
/* To be called before the first node runs. */
void partial_begin(struct execution *execution, struct iteration *root);
void partial_end(struct execution *execution); /* with execution->lock held */
bool partial_start_feed(struct async_op *op);
/* Gives the value of a fetch, TENSOR_DEAD for a dead one, to on_fetch. */
void partial_hand_out(struct executor *executor, uint32_t position, struct tensor *value);
void partial_cancel_waits(struct executor *executor);

/* ---- executor_stats.c ---- */
void stats_begin(struct executor *executor);
/* Around what a node (PLAN_ENQUEUES, PLAN_COPY) enqueues on a device, on the owner's thread. The
 * second one is called after stats_node where the node has ended. */
void stats_enqueue_begin(struct executor *executor, const struct plan_node *node);
void stats_enqueue_end(struct executor *executor, const struct plan_node *node, bool has_row);
/* Adds the times of devices, whose work has ended. */
void stats_end(struct executor *executor);
/* Returns the row, valid until the next call; NULL: it is left out. */
struct node_stats *stats_node(struct executor *executor, const struct plan_node *node,
                              int64_t start_ns, int64_t end_ns, const struct tensor *output);
/* Adds the row of a Send, before the value is taken; returns its number for stats_send_end.
 * stats_send_undo takes the last row back: the Send begins again as an asynchronous one. */
size_t stats_send_begin(struct executor *executor, const struct iteration *iteration,
                        const struct plan_node *node, const struct tensor *value);
void stats_send_end(struct executor *executor, size_t row);
void stats_send_undo(struct executor *executor, size_t row);
/* The operation has ended. If it ran on the pool, its time is that of the kernel, without
 * the pool's queue and the mailbox. */
void stats_async_node(struct executor *executor, const struct async_op *op,
                      const struct tensor *output);

#endif
