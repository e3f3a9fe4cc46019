/* The state of one run of a plan, shared by the executor's files only.
 *
 *   executor.c            ready stack, running nodes, mailbox, ownership
 *   executor_life.c       a step's memory; start, cancel and end
 *   executor_wake.c       steps that a step wakes
 *   executor_frames.c     frames and iterations: Enter, Exit, NextIteration
 *   executor_async.c      what ends elsewhere: asynchronous kernels, kernels on the pool, Recv; the kernel host
 *   executor_partial.c    partial runs: feeds that come later, fetches that leave early
 *   executor_stats.c      per-node statistics
 *
 * An iteration holds, for each node of its frame, a state (what is still to come) and slots (the
 * inputs that came). Invariants:
 *   - a slot holds something only between its producer's propagation and its node's execution; a step that ends well leaves
 *     every slot empty, so a recycled iteration needs only its states reset
 *   - an iteration with outstanding == 0 and no child frames, whose predecessor is gone, is done
 *   - a step with an empty ready stack, n_async == 0 and an empty mailbox has ended */
#ifndef MILLRACE_WORKER_EXECUTOR_EXECUTOR_INTERNAL_H
#define MILLRACE_WORKER_EXECUTOR_EXECUTOR_INTERNAL_H

#include "common/base/list.h"
#include "worker/executor/executor.h"
#include "worker/exchange/rendezvous.h"

struct frame;

struct iteration {
    struct frame *frame; /* NULL in the root frame */
    struct iteration *next_free;
    uint64_t number;
    uint64_t frame_iter;   /* the rendezvous key's part; 0 in the root */
    int32_t n_outstanding; /* nodes ready or running */
    int32_t n_child_frames;
    uint32_t n_unseen_children; /* while all is dropped */
    /* when this is all of the frame's nodes, no slot can be left filled */
    uint32_t n_executed;
    /* live child frames of this iteration, each at its plan_frame's number */
    struct frame **children;
    struct node_state *states;
    struct tensor *slots;
    uint16_t plan_frame;
};

/* A value that enters an iteration which does not exist yet, or every one of them. */
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
    uint64_t last;               /* number of the newest iteration */
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

/* One execution that ends elsewhere. */
struct async_op {
    struct kernel_ctx ctx;
    struct async_op *next; /* mailbox, or free list */
    struct list link;      /* step->pending */
    struct step *step;
    struct iteration *iteration;
    const struct plan_node *node;
    int64_t since_ns;
    struct pool_task task; /* run on the pool */
    struct rendezvous_recv recv;
    uint32_t outputs_capacity;
    bool is_cancel;    /* the step's cancel message, no execution */
    bool is_dead_send; /* a Send, of a dead value */
    struct tensor *outputs;
};

/* The mailbox word: a list of arrived operations, or no owner. */
#define MAILBOX_IDLE ((struct async_op *)1)

struct step {
    struct plan *plan; /* one reference */
    struct step_run *run;
    struct step *next_free;
    struct iteration *root;
    struct ready *ready;
    uint32_t n_ready, ready_capacity;
    uint32_t n_async; /* owner's */
    uint64_t n_executed;
    struct status *status; /* owner's: the first failure */
    bool is_aborted;       /* owner's: nothing more is started */
    bool wants_flush;      /* owner's: something was queued for peers */
    bool is_on_pool;
    struct tensor *outputs;             /* scratch for one node's outputs */
    struct iteration **free_iterations; /* by plan frame */
    struct frame **free_frames;         /* likewise */
    struct async_op *free_ops;
    struct container_table *own_container; /* made at first use: TensorArrays, stacks */
    struct pool_task task;                 /* the step itself on the pool */
    /* among those that begin when the thread's step pauses */
    struct list woken_link;
    struct async_op *mail; /* what woke it, until it runs */
    struct step_stats *stats;

    _Atomic(struct async_op *) mailbox;
    _Atomic bool cancel_asked;
    _Atomic bool has_failed; /* for kernels that run meanwhile */
    struct async_op cancel_op;

    pthread_mutex_t lock;      /* guards what follows */
    struct list pending;       /* async_op.link: for /stepz */
    struct list cancel_hooks;  /* kernel_cancel_hook.link */
    struct status *cancel_why; /* set once: hooks registered later are refused */
    struct status *asked_why;  /* what executor_cancel brought */
};

/* ---- executor.c ---- */
void step_push_ready(struct step *step, struct iteration *iteration, uint32_t node, bool is_dead);
/* Hands outputs to their consumers in `iteration`; outputs that are TENSOR_NONE are dead. Leaves
 * outputs empty. */
void step_propagate(struct step *step, struct iteration *iteration, const struct plan_node *node,
                    struct tensor *outputs, bool is_dead);
/* What an execution left: inputs are let go first (a consumer may then be the sole holder),
 * outputs go on, or the step fails. */
void step_finish_node(struct step *step, struct iteration *iteration, const struct plan_node *node,
                      struct tensor *outputs, bool is_dead, struct status *status_take);
/* The same for a feed of a partial run, whose value goes to settled inputs, too. */
void step_finish_feed(struct step *step, struct iteration *iteration, const struct plan_node *node,
                      struct tensor *value);
void step_fail(struct step *step, const struct plan_node *node, struct status *status_take);
void step_post(struct async_op *op); /* any thread; may run the step */
/* Adds a message; true when the poster has become the owner and must call step_wake with it. */
bool step_mailbox_post(struct step *step, struct async_op *op);
/* Runs the step as its owner until it ends, waits or moves. `mail`: what the mailbox brought
 * with the ownership. For executor_wake.c. */
void step_own(struct step *step, struct async_op *mail);
/* Its owner from here on is the pool thread that comes to it. */
void step_move_to_pool(struct step *step);

/* ---- executor_wake.c ---- */
/* Runs the step as its owner, then what it has woken. */
void step_drive(struct step *step, struct async_op *mail);
/* The same, but where this thread is in the middle of a step, the woken one waits until that one
 * pauses. */
void step_wake(struct step *step, struct async_op *mail);
void step_drive_on_pool(struct pool_task *task); /* step->task */
/* to the pool: this thread is about to be busy for long */
void steps_woken_go_first(void);
/* Around what wakes steps but is none. */
void thread_begins(void);
void thread_ends(void);

/* ---- executor_life.c ---- */
void step_end(struct step *step); /* the step is gone after */

/* ---- executor_frames.c ---- */
struct iteration *iteration_new(struct step *step, uint32_t plan_frame);
void iteration_recycle(struct step *step, struct iteration *iteration);
void iteration_free(struct iteration *iteration);
void frame_free(struct frame *frame);
/* Each completes a control-flow node that ran in `iteration`: propagation included. */
void frame_enter(struct step *step, struct iteration *iteration, const struct plan_node *node,
                 struct tensor *value, bool is_dead);
void frame_exit(struct step *step, struct iteration *iteration, const struct plan_node *node,
                struct tensor *value, bool is_dead);
void frame_next_iteration(struct step *step, struct iteration *iteration,
                          const struct plan_node *node, struct tensor *value, bool is_dead);
/* An iteration of a loop frame has no outstanding node: it may be done, and its frame with it. */
void frame_iteration_settled(struct step *step, struct iteration *iteration);
/* After an abort: every live frame and iteration of the step goes, with what their slots hold. */
void frames_drop_all(struct step *step);

/* ---- executor_async.c ---- */
struct async_op *async_op_new(struct step *step, struct iteration *iteration,
                              const struct plan_node *node);
/* Runs a kernel that may stay pending, a Recv, a Send of a value that may have to wait for its
 * receiver's grant, or a feed of a partial run; true when it ended at once (outputs are in op). */
bool async_start(struct async_op *op);
void async_start_on_pool(struct async_op *op);
/* Ends every wait of the step with its status. */
void async_cancel_waits(struct step *step);
/* It has come home: its outputs go on, or the step fails; the record is recycled. Owner only. */
void async_home(struct async_op *op);

/* ---- executor_partial.c ---- */
void partial_begin(struct step_run *run, struct iteration *root); /* before the step starts */
void partial_end(struct step_run *run);                           /* with run->lock held */
bool partial_start_feed(struct async_op *op);
/* TENSOR_DEAD: dead */
void partial_hand_out(struct step *step, uint32_t position, struct tensor *value);
void partial_cancel_waits(struct step *step);

/* ---- executor_stats.c ---- */
void stats_begin(struct step *step);
void stats_node(struct step *step, const struct plan_node *node, int64_t start_ns, int64_t end_ns,
                const struct tensor *output);

#endif
