/* Runs steps asynchronously: the session's loop carries them, and a thread of the session, or the
 * program itself, is told of their ends. */
#include "client/c_run_async.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/c_session_internal.h"
#include "common/base/thread.h"

/*
 *   MR_SessionRunAsync ──► LIVE ──reply──► ENDED ──┬─ on_done ──► TOLD
 *                           │                      └─ without one ─► TOLD
 *                           └─ MR_DeleteRun: cancelled; freed at its end, and nobody is told
 *
 * The queue belongs to the session, to its runs and to whoever tells, so that a run that has ended
 * may be read and deleted after the session, and that an on_done may delete the session. */
struct run_queue {
    int n_refs; /* guarded by lock, as is all below */
    pthread_mutex_t lock;
    pthread_cond_t ended;  /* a run has ended, or the teller has to stop */
    struct list live, due; /* struct MR_Run.link */
    int n_live;
    TF_DeprecatedSession *master; /* NULL once the session is deleted */
    int event_fd;                 /* -1: the teller tells */
    pthread_t teller;
    bool has_teller, is_closing;
};

struct MR_Run {
    struct run_queue *queue;
    struct list link;
    MR_RunDone on_done;
    void *arg;
    struct arena names;
    const char *const *output_names;
    int noutputs;
    struct grpc_body body;
    struct loop_task begin_task, cancel_task;
    struct master_call call; /* loop thread */
    bool is_under_way;       /* it has begun and not ended; loop thread */
    bool is_cancelled;       /* before it began; loop thread */
    /* guarded by the queue's lock */
    struct status *status;
    struct grpc_message reply;
    bool has_ended, is_taken, is_deleted, is_cancel_posted, is_being_told;
};

/* ---- memory ---- */

static struct run_queue *queue_new(TF_DeprecatedSession *master) {
    struct run_queue *queue = xcalloc(1, sizeof *queue);
    queue->n_refs = 1;
    queue->master = master;
    queue->event_fd = -1;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->ended, NULL);
    list_init(&queue->live);
    list_init(&queue->due);
    return queue;
}

/* Takes the lock away. */
static void queue_unref_locked(struct run_queue *queue) {
    bool is_last = --queue->n_refs == 0;
    pthread_mutex_unlock(&queue->lock);
    if (!is_last)
        return;
    if (queue->event_fd >= 0)
        close(queue->event_fd);
    pthread_cond_destroy(&queue->ended);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

/* With the queue's lock, which is released. */
static void run_free_locked(MR_Run *run) {
    struct run_queue *queue = run->queue;
    list_remove(&run->link);
    queue_unref_locked(queue);
    status_unref(run->status);
    buffer_unref(run->reply.buffer);
    grpc_body_fini(&run->body);
    arena_fini(&run->names);
    free(run);
}

/* ---- on the loop ---- */

static void signal_event(struct run_queue *queue) {
    uint64_t one = 1;
    if (queue->event_fd >= 0 && write(queue->event_fd, &one, sizeof one) < 0)
        CHECK(errno == EAGAIN); /* it is readable already */
}

static void on_reply(void *arg, struct status *status_take, struct grpc_message message_take) {
    MR_Run *run = arg;
    struct run_queue *queue = run->queue;
    TF_DeprecatedSession *master = queue->master;
    run->is_under_way = false;
    pthread_mutex_lock(&queue->lock);
    run->status = status_take;
    run->reply = message_take;
    run->has_ended = true;
    list_remove(&run->link);
    queue->n_live--;
    if (run->on_done && !run->is_deleted) {
        list_push_back(&queue->due, &run->link);
        signal_event(queue);
    }
    call_loop_end_async(&master->calls);
    pthread_cond_broadcast(&queue->ended);
    if (run->is_deleted && !run->is_cancel_posted)
        run_free_locked(run);
    else
        pthread_mutex_unlock(&queue->lock);
}

static void begin(struct loop_task *task) {
    MR_Run *run = CONTAINER_OF(task, MR_Run, begin_task);
    TF_DeprecatedSession *master = run->queue->master;
    if (run->is_cancelled) {
        on_reply(run, status_new(STATUS_CANCELLED, "MR_CancelRun was called"),
                 (struct grpc_message){.buffer = NULL});
        return;
    }
    run->is_under_way = true;
    session_start_call(master, "/tensorflow.MasterService/RunStep", &run->body, on_reply, run,
                       &run->call);
}

static void cancel(struct loop_task *task) {
    MR_Run *run = CONTAINER_OF(task, MR_Run, cancel_task);
    struct run_queue *queue = run->queue;
    if (run->is_under_way)
        session_cancel_call(queue->master, &run->call);
    run->is_cancelled = true;
    pthread_mutex_lock(&queue->lock);
    run->is_cancel_posted = false;
    if (run->is_deleted && run->has_ended && !run->is_being_told)
        run_free_locked(run);
    else
        pthread_mutex_unlock(&queue->lock);
}

/* The lock is held, and the session exists. */
static void post_cancel(MR_Run *run) {
    if (run->has_ended || run->is_cancel_posted)
        return;
    run->is_cancel_posted = true;
    loop_post(run->queue->master->calls.loop, &run->cancel_task);
}

/* ---- telling ---- */

/* Calls on_done of the runs that are due, without the lock, which is held before and after. A run
 * that is deleted meanwhile, by its on_done or by another thread, is freed afterwards. The caller
 * has a reference of its own. */
static int tell(struct run_queue *queue) {
    struct list *link;
    int n = 0;
    while ((link = list_pop_front(&queue->due))) {
        MR_Run *run = LIST_ENTRY(link, MR_Run, link);
        run->is_being_told = true;
        pthread_mutex_unlock(&queue->lock);
        run->on_done(run->arg, run);
        n++;
        pthread_mutex_lock(&queue->lock);
        run->is_being_told = false;
        if (run->is_deleted && !run->is_cancel_posted) {
            run_free_locked(run);
            pthread_mutex_lock(&queue->lock);
        }
    }
    return n;
}

static void *run_teller(void *arg) {
    struct run_queue *queue = arg;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        tell(queue);
        if (queue->is_closing && queue->n_live == 0 && list_is_empty(&queue->due))
            break;
        if (list_is_empty(&queue->due))
            pthread_cond_wait(&queue->ended, &queue->lock);
    }
    queue_unref_locked(queue);
    return NULL;
}

/* The lock is held. */
static struct status *start_teller(struct run_queue *queue) {
    if (queue->has_teller || queue->event_fd >= 0)
        return NULL;
    int error = thread_start(&queue->teller, NULL, run_teller, queue);
    queue->has_teller = error == 0;
    queue->n_refs += queue->has_teller;
    return error ? status_exhausted("cannot start a thread: %s", strerror(error)) : NULL;
}

static struct run_queue *queue_of(TF_Session *session) {
    pthread_mutex_lock(&session->lock);
    if (!session->runs)
        session->runs = queue_new(session->master);
    struct run_queue *queue = session->runs;
    pthread_mutex_unlock(&session->lock);
    return queue;
}

/* ---- the functions ---- */

static struct status *start(TF_Session *session, MR_Run *run) {
    struct run_queue *queue = queue_of(session);
    struct status *st = call_loop_keep(&session->master->calls, false);
    pthread_mutex_lock(&queue->lock);
    if (!st && queue->is_closing)
        st = status_new(STATUS_CANCELLED, "MR_SessionRunAsync: the session is being deleted");
    if (!st && run->on_done)
        st = start_teller(queue);
    if (!st) {
        run->queue = queue;
        queue->n_refs++;
        queue->n_live++;
        list_push_back(&queue->live, &run->link);
        call_loop_begin_async(&session->master->calls, &run->begin_task);
    }
    pthread_mutex_unlock(&queue->lock);
    return st;
}

static MR_Run *make_run(MR_RunDone on_done, void *arg) {
    MR_Run *run = xcalloc(1, sizeof *run);
    run->on_done = on_done;
    run->arg = arg;
    run->begin_task.run = begin;
    run->cancel_task.run = cancel;
    arena_init(&run->names);
    grpc_body_init(&run->body);
    list_init(&run->link);
    return run;
}

/* Checks the arguments, sends the graph, and writes the request. */
static struct status *prepare(const char *function, TF_Session *session,
                              const TF_Buffer *run_options, const struct session_step *step,
                              MR_Run *run) {
    struct step_spec spec = {.run_options = run_options};
    TRY(session_step_name(function, session, step, &run->names, &spec));
    TRY(session_step_feed(function, step, &spec));
    TRY(session_extend(session));
    TRY(session_open(session->master));
    step_request_write(&session->master->handle, &spec, &run->body);
    run->output_names = spec.output_names;
    run->noutputs = spec.noutputs;
    return NULL;
}

MR_Run *MR_SessionRunAsync(TF_Session *session, const TF_Buffer *run_options,
                           const TF_Output *inputs, TF_Tensor *const *input_values, int ninputs,
                           const TF_Output *outputs, int noutputs,
                           const TF_Operation *const *target_opers, int ntargets,
                           MR_RunDone on_done, void *arg, TF_Status *status) {
    struct session_step step = {inputs,   input_values, ninputs, outputs,
                                noutputs, target_opers, ntargets};
    MR_Run *run = make_run(on_done, arg);
    struct status *st = prepare(__func__, session, run_options, &step, run);
    if (!st)
        st = start(session, run);
    if (st) {
        grpc_body_fini(&run->body);
        arena_fini(&run->names);
        free(run);
        run = NULL;
    }
    tf_status_set(status, st);
    return run;
}

void MR_CancelRun(MR_Run *run) {
    if (!run)
        return;
    pthread_mutex_lock(&run->queue->lock);
    post_cancel(run);
    pthread_mutex_unlock(&run->queue->lock);
}

unsigned char MR_RunHasEnded(MR_Run *run) {
    if (!run)
        return 1;
    pthread_mutex_lock(&run->queue->lock);
    bool has_ended = run->has_ended;
    pthread_mutex_unlock(&run->queue->lock);
    return has_ended;
}

void MR_WaitRun(MR_Run *run) {
    if (!run)
        return;
    pthread_mutex_lock(&run->queue->lock);
    while (!run->has_ended)
        pthread_cond_wait(&run->queue->ended, &run->queue->lock);
    pthread_mutex_unlock(&run->queue->lock);
}

void MR_RunResult(MR_Run *run, TF_Tensor **outputs, TF_Buffer *run_metadata, TF_Status *status) {
    if (!run || (run->noutputs > 0 && !outputs)) {
        tf_status_set(status, null_refused(__func__, run ? "outputs" : "run"));
        return;
    }
    for (int i = 0; i < run->noutputs; i++)
        outputs[i] = NULL;
    if (run_metadata && run_metadata->data) {
        tf_status_set(status, status_invalid("Passing non-empty run_metadata is invalid."));
        return;
    }
    MR_WaitRun(run);
    pthread_mutex_lock(&run->queue->lock);
    bool was_taken = run->is_taken;
    run->is_taken = true;
    pthread_mutex_unlock(&run->queue->lock);
    struct status *st = was_taken
                            ? status_failed_precondition("%s: the result has been taken", __func__)
                            : status_ref(run->status);
    if (!st)
        st = step_reply_take(&run->reply, run->output_names, outputs, run->noutputs, run_metadata);
    tf_status_set(status, st);
}

void MR_DeleteRun(MR_Run *run) {
    if (!run)
        return;
    pthread_mutex_lock(&run->queue->lock);
    run->is_deleted = true;
    post_cancel(run);
    if (run->has_ended && !run->is_cancel_posted && !run->is_being_told)
        run_free_locked(run);
    else
        pthread_mutex_unlock(&run->queue->lock);
}

int MR_SessionEventFd(TF_Session *session, TF_Status *status) {
    struct status *st = session ? NULL : null_refused(__func__, "session");
    struct run_queue *queue = session ? queue_of(session) : NULL;
    int fd = -1;
    if (queue) {
        pthread_mutex_lock(&queue->lock);
        if (queue->has_teller)
            st = status_failed_precondition("%s: a thread of the session calls on_done already",
                                            __func__);
        else if (queue->event_fd < 0)
            queue->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        fd = queue->event_fd;
        if (!st && fd < 0)
            st = status_exhausted("%s: %s", __func__, strerror(errno));
        pthread_mutex_unlock(&queue->lock);
    }
    tf_status_set(status, st);
    return fd;
}

int MR_SessionDispatch(TF_Session *session) {
    struct run_queue *queue = session ? queue_of(session) : NULL;
    uint64_t count;
    if (!queue)
        return 0;
    pthread_mutex_lock(&queue->lock);
    if (queue->event_fd >= 0 && read(queue->event_fd, &count, sizeof count) < 0)
        CHECK(errno == EAGAIN);
    queue->n_refs++;
    int n = queue->has_teller ? 0 : tell(queue);
    queue_unref_locked(queue);
    return n;
}

/* An on_done may delete the session: then the teller goes on by itself. */
static void end_teller_locked(struct run_queue *queue) {
    pthread_t teller = queue->teller;
    if (pthread_equal(teller, pthread_self())) {
        pthread_detach(teller);
        return;
    }
    pthread_mutex_unlock(&queue->lock);
    pthread_join(teller, NULL);
    pthread_mutex_lock(&queue->lock);
}

void run_queue_close(struct run_queue *queue) {
    if (!queue)
        return;
    pthread_mutex_lock(&queue->lock);
    queue->is_closing = true; /* no further run starts */
    LIST_FOR_EACH (link, &queue->live)
        post_cancel(LIST_ENTRY(link, MR_Run, link));
    while (queue->n_live > 0)
        pthread_cond_wait(&queue->ended, &queue->lock);
    pthread_cond_broadcast(&queue->ended);
    if (queue->has_teller)
        end_teller_locked(queue);
    else
        tell(queue);
    queue->master = NULL;
    queue_unref_locked(queue);
}
