/* A step's own state, shared by the files that move it:
 *
 *   step.c            from the request to the end: timers, cancellation
 *   step_feeds.c      the feeds of its request
 *   step_parts.c      messages to the workers, and their replies
 *   step_barrier.c    the step at the save barrier
 *   step_answer.c     the bytes of the answer
 *   partial_run.c     a step whose feeds come and whose fetches are asked for in several calls */
#ifndef MILLRACE_MASTER_STEP_STEP_INTERNAL_H
#define MILLRACE_MASTER_STEP_STEP_INTERNAL_H

#include "common/tensor/tensor.h"
#include "master/step/step.h"
#include "master/step/step_machine.h"

struct partial_run;
struct late_feeds;

/* One partition's run. */
struct step_part {
    struct task_call call;
    struct step *step;
    int index;
};

/* A fetched value. A plain one is `value`, a view on the worker's reply. Of other dtypes `proto` is
 * the TensorProto, in the step's arena or in the buffer that `value` refers to. */
struct fetched {
    struct tensor value;
    struct span proto; /* empty for a plain dtype */
    bool is_there;
};

/* What a task has recorded of a traced step: a StepStats message, in the task's reply. */
struct trace {
    struct trace *next;
    struct buffer *buffer; /* one reference */
    struct span bytes;
};

struct step {
    struct executable_wait wait;
    struct list session_link;
    struct list live_link; /* env->live_steps, once it runs */
    struct session *session;
    struct executable *executable;
    enum step_form form;
    struct grpc_call *call;
    struct grpc_message message; /* feeds point into it; one reference */
    struct run_step_request request;
    struct arena arena;
    struct tensor *feeds;
    bool *is_passed_on; /* by feed: its task decodes it, and the tensor has its dtype only */
    struct late_feeds *late_feeds; /* the job that reads some of them, or NULL */
    struct fetched *fetched;
    struct step_part *parts;
    bool *is_running;
    struct step_machine machine;
    struct trace *traces; /* in the arena */
    size_t traces_size_bytes;
    struct buffer *graphs; /* RunMetadata.partition_graphs, or NULL; one reference */
    bool is_sampled;       /* traced for the table of measured costs */
    bool is_profiled;      /* traced for a capture of the profiler */
    bool has_cost_graph;   /* RunMetadata.cost_graph is wanted, also without a trace */
    struct str cost_graph; /* a CostGraphDef, once the step has ended well */
    struct loop_timer timer;
    bool has_timer, is_finished;
    uint64_t id;
    int64_t start_ns, launch_ns;   /* launch_ns is 0 before it is sent to its tasks */
    struct barrier_member barrier; /* its place at the save barrier */
    int n_saves_taken;
    struct partial_run *partial; /* the partial run that owns the step, or NULL */
};

/* ---- step.c ---- */
/* A new step in its session's list, without an executable. It is allocated in its own arena, which
 * it takes. `call` is NULL for the step of a partial run. */
struct step *step_new(struct session *session, struct grpc_call *call,
                      const struct run_step_request *request, struct arena *arena_take);
/* Writes the signature of a new executable: session_executable's `fill`, its argument a
 * run_step_request. */
void step_fill_executable(void *request, struct executable *executable);
/* INVALID_ARGUMENT if the feed's dtype is not what the graph expects. */
struct status *step_check_feed(const struct step *step, int position) MUST_USE;
/* Launches the step if its executable is READY, waits if it is not yet, and ends the step if the
 * executable has FAILED. */
void step_executable_settled(struct executable_wait *waiter);
void step_start_timer(struct step *step, int64_t ms);
void step_carry_out(struct step *step, unsigned actions);
/* Frees a finished step. */
void step_release(struct step *step);

/* ---- step_feeds.c ---- */
/* Decodes a feed of a partial run's step, unless its task shall do that. `buffer` contains the
 * TensorProto. */
struct status *step_decode_feed(struct step *step, struct span name, int position,
                                struct span proto, struct buffer *buffer) MUST_USE;
/* Decodes all feeds of the step's request, or some of them in a job of the session. While that runs
 * step->late_feeds is set; then it calls step_executable_settled, or cancels the step. */
struct status *step_decode_feeds(struct step *step) MUST_USE;
void step_feeds_forget(struct step *step); /* the step ends; the job must leave it alone */

/* ---- step_barrier.c ---- */
/* Enters the save barrier. True: the step may run now. False: it is launched when it is
 * admitted. */
bool step_enter_barrier(struct step *step) MUST_USE;
void step_barrier_leave(struct step *step);
void step_barrier_metrics_register(void);
/* A SaveV2 node of the step has taken its values. */
void step_save_taken(struct step *step);

/* ---- step_parts.c ---- */
void step_send_part(struct step *step, int index);
/* Sends the feeds of a partial run's step that are new, by the signature's position. */
void step_send_feeds(struct step *step, int index, const bool *is_new);
void step_cancel_parts(struct step *step);

/* ---- step_answer.c ---- */
/* Adds one fetch to an answer: a NamedTensorProto, or without a name a TensorProto. */
void step_add_fetch(struct grpc_body *body, const char *name, const struct fetched *fetched);
/* Adds RunMetadata: nothing if none was asked for. The traces are shared, not copied. */
void step_add_metadata(const struct step *step, struct grpc_body *body);
void step_answer_error(struct grpc_call *call, bool in_body, struct status *status_take);
void step_answer(struct step *step, struct status *status_take);

/* ---- partial_run.c ---- */
/* The step's RunGraphs have been sent. */
void partial_run_launched(struct partial_run *run);
bool partial_run_is_awaited(const struct partial_run *run); /* true while a call waits for it */
/* The fetch at that position has arrived. */
void partial_run_fetched(struct partial_run *run, int position);
/* The step has ended. The run and the step may be freed before this returns. */
void partial_run_ended(struct partial_run *run, struct status *status_take);

#endif
