/* Carries a step from its request to its end: timers, cancellation, and the actions that
 * step_machine.c decides on. */
#include "master/step/step.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "master/compile/cost/cost_rows.h"
#include "master/session/replacement.h"
#include "master/step/cost_graph.h"
#include "master/step/cost_samples.h"
#include "master/session/step_log.h"
#include "master/step/profiler.h"
#include "master/step/step_internal.h"

enum {
    /* how long a cancelled step waits for a task that does not end its part (the task is stopped,
     * or a kernel runs) */
    END_GRACE_MS = 10000,
    /* the same after a task was lost: its part may never end, and the client must be told soon */
    LOST_GRACE_MS = 1000,
};

#define CODE_METRIC(code)                                                                     \
    {                                                                                         \
        .kind = METRIC_COUNTER, .name = "millrace_step_errors_total",                         \
        .labels = "code=\"" #code "\"", .help = "Steps that ended with an error, by its code" \
    }
// clang-format off
static struct metric step_errors[] = { /* by code; OK is never counted */
    CODE_METRIC(OK), CODE_METRIC(CANCELLED), CODE_METRIC(UNKNOWN),
    CODE_METRIC(INVALID_ARGUMENT), CODE_METRIC(DEADLINE_EXCEEDED), CODE_METRIC(NOT_FOUND),
    CODE_METRIC(ALREADY_EXISTS), CODE_METRIC(PERMISSION_DENIED),
    CODE_METRIC(RESOURCE_EXHAUSTED), CODE_METRIC(FAILED_PRECONDITION), CODE_METRIC(ABORTED),
    CODE_METRIC(OUT_OF_RANGE), CODE_METRIC(UNIMPLEMENTED), CODE_METRIC(INTERNAL),
    CODE_METRIC(UNAVAILABLE), CODE_METRIC(DATA_LOSS), CODE_METRIC(UNAUTHENTICATED),
};
// clang-format on

static struct metric steps_total = METRIC_COUNTER_INIT("millrace_steps_total", "Steps that ended");
static struct metric steps_failed =
    METRIC_COUNTER_INIT("millrace_steps_failed_total", "Steps that ended with an error");
static struct metric step_latency =
    METRIC_HISTOGRAM_INIT("millrace_step_duration_seconds", "From a step's request to its answer");

#define PHASE_METRIC(phase)                                                 \
    {                                                                       \
        .kind = METRIC_HISTOGRAM, .name = "millrace_step_phase_seconds",    \
        .labels = "phase=\"" phase "\"",                                    \
        .help = "Parts of the duration of a step: until it is sent to its " \
                "tasks, and until they have ended"                          \
    }
static struct metric phase_start = PHASE_METRIC("start"), phase_run = PHASE_METRIC("run");

void step_metrics_register(void) {
    metrics_register(&steps_total);
    metrics_register(&steps_failed);
    for (size_t i = 1; i < ARRAY_LEN(step_errors); i++)
        metrics_register(&step_errors[i]);
    metrics_register(&step_latency);
    metrics_register(&phase_start);
    metrics_register(&phase_run);
    step_barrier_metrics_register();
    replacement_metrics_register();
}

static void count_step(const struct step *step, struct status *status) {
    int64_t now_ns = clock_now_ns(), launch_ns = step->launch_ns ? step->launch_ns : now_ns;
    metric_add(&steps_total, 1);
    metric_observe_us(&step_latency, (now_ns - step->start_ns) / 1000);
    metric_observe_us(&phase_start, (launch_ns - step->start_ns) / 1000);
    if (step->launch_ns)
        metric_observe_us(&phase_run, (now_ns - launch_ns) / 1000);
    if (!status)
        return;
    metric_add(&steps_failed, 1);
    struct session *session = step->session;
    session->n_steps_failed++;
    session->last_error_us = clock_wall_us();
    status_unref(session->last_error);
    session->last_error = status_ref(status);
    metric_add(
        &step_errors[(size_t)status_code(status) < ARRAY_LEN(step_errors) ? status_code(status)
                                                                          : STATUS_UNKNOWN],
        1);
}

/* Remembers the step for /tracez. */
static void log_step(const struct step *step, const struct status *status) {
    int64_t now_ns = clock_now_ns(), launch_ns = step->launch_ns ? step->launch_ns : now_ns;
    const struct run_step_request *request = &step->request;
    struct step_log_entry *entry = step_log_add(step->session->env->home->log);
    struct span what = request->n_fetches > 0   ? request->fetches[0]
                       : request->n_targets > 0 ? request->targets[0]
                                                : span_of("");
    *entry = (struct step_log_entry){
        .id = step->id,
        .signature = step->executable ? step->executable->number : 0,
        .n_more = MAX(request->n_fetches + request->n_targets - 1, 0),
        .start_us = clock_wall_us() - (now_ns - step->start_ns) / 1000,
        .start_ns = launch_ns - step->start_ns,
        .run_ns = now_ns - launch_ns,
        .code = status ? (int)status_code(status) : 0,
    };
    memcpy(entry->session, step->session->handle,
           MIN(strlen(step->session->handle), (size_t)STEP_LOG_HANDLE_BYTES));
    memcpy(entry->what, what.data, MIN(what.len, (size_t)STEP_LOG_WHAT_BYTES - 1));
}

static void step_free(struct step *step) {
    struct session *session = step->session;
    struct arena arena = step->arena;
    buffer_unref(step->message.buffer);
    buffer_unref(step->graphs);
    for (int i = 0; step->feeds && i < step->request.n_feeds; i++)
        tensor_clear(&step->feeds[i]);
    for (int i = 0; step->fetched && i < step->request.n_fetches; i++)
        tensor_clear(&step->fetched[i].value);
    step_machine_fini(&step->machine);
    for (struct trace *trace = step->traces; trace; trace = trace->next)
        buffer_unref(trace->buffer);
    str_fini(&step->cost_graph);
    executable_unref(step->executable);
    arena_fini(&arena); /* the step itself is allocated in it */
    session_unref(session);
}

static void timer_closed(struct loop_timer *timer) {
    step_free(CONTAINER_OF(timer, struct step, timer));
}

void step_release(struct step *step) {
    if (step->has_timer)
        loop_timer_close(&step->timer, timer_closed);
    else
        step_free(step);
}

/* Answers the client and frees the step. Takes the status. */
static void finish(struct step *step, struct status *status_take) {
    CHECK(!step->is_finished);
    step->is_finished = true;
    list_remove(&step->wait.link);
    step_feeds_forget(step);
    list_remove(&step->session_link);
    list_remove(&step->live_link);
    step->session->n_steps--;
    step->session->env->home->n_steps--;
    step_barrier_leave(step);
    for (int i = 0; step->parts && i < step->machine.n_parts; i++)
        task_call_forget(&step->parts[i].call);
    count_step(step, status_take);
    log_step(step, status_take);
    if (unlikely(profiler_is_on(step->session->env->home->profiler)))
        profiler_note(step->session->env->home->profiler, step,
                      (clock_now_ns() - step->start_ns) / 1000);
    if (step->partial) {
        partial_run_ended(step->partial, status_take);
        return;
    }
    step_answer(step, status_take);
    step_release(step);
}

/* ---- the cost graph, written on the pool ---- */

struct cost_job {
    struct session_job job;
    struct step *step;
};

static void cost_work(struct session_job *session_job) {
    struct step *step = CONTAINER_OF(session_job, struct cost_job, job)->step;
    int n = 0;
    for (const struct trace *trace = step->traces; trace; trace = trace->next)
        n++;
    struct span *traces = xcalloc((size_t)n + 1, sizeof(*traces));
    n = 0;
    for (const struct trace *trace = step->traces; trace; trace = trace->next)
        traces[n++] = trace->bytes;
    cost_graph_write(step->executable->compiled, traces, n, &step->cost_graph);
    free(traces);
}

static void cost_done(struct session_job *session_job) {
    struct cost_job *job = CONTAINER_OF(session_job, struct cost_job, job);
    struct step *step = job->step;
    free(job);
    finish(step, NULL);
}

/* The step ends when its cost graph is written. Until then it is DONE, so nothing can cancel it. */
static void start_cost_graph(struct step *step) {
    struct cost_job *job = xcalloc(1, sizeof(*job));
    *job = (struct cost_job){.job = {.work = cost_work, .done = cost_done}, .step = step};
    session_run_job(step->session, &job->job);
}

/* ---- sampled steps, whose traces are read on the pool ---- */

struct sample_job {
    struct session_job job;
    struct executable *executable; /* one reference */
    int n_traces;
    struct buffer **buffers; /* one reference each */
    struct span *traces;
    const double *expected_ns; /* the executable's */
    double contradiction;
    int64_t read_ns; /* that the job's thread took */
};

static void sample_work(struct session_job *session_job) {
    struct sample_job *job = CONTAINER_OF(session_job, struct sample_job, job);
    int64_t start_ns = clock_thread_ns();
    cost_samples_note(job->executable->compiled, job->traces, job->n_traces,
                      session_job->session->options.costs);
    job->contradiction = cost_rows_contradiction(job->executable->compiled, job->expected_ns,
                                                 session_job->session->options.costs);
    job->read_ns = clock_thread_ns() - start_ns;
}

static void sample_done(struct session_job *session_job) {
    struct sample_job *job = CONTAINER_OF(session_job, struct sample_job, job);
    for (int i = 0; i < job->n_traces; i++)
        buffer_unref(job->buffers[i]);
    job->executable->sample_ns += job->read_ns;
    replacement_costs_measured(job->executable, job->contradiction);
    executable_unref(job->executable);
    free(job->buffers);
    free(job->traces);
    free(job);
}

/* The step has ended well. What it took counts until the next sample, unless it was sampled: the
 * time of tracing must not pay for more tracing. A sampled step hands its traces to a job. */
static void end_sample(struct step *step) {
    int64_t now_ns = clock_now_ns();
    if (!step->is_sampled) {
        step->executable->unsampled_ns += now_ns - step->start_ns;
        step->executable->n_unsampled++;
        if (step->request.trace_level == 0 && !step->has_cost_graph && !step->is_profiled &&
            !step->partial)
            replacement_step_ended(step->executable, (double)(now_ns - step->launch_ns));
        return;
    }
    step->executable->sample_ns =
        MAX(now_ns - step->start_ns - step->executable->usual_ns, (int64_t)0);
    step->executable->sampled_rows = (int64_t)(step->traces_size_bytes / SAMPLE_ROW_BYTES);
    if (!step->traces || step->traces_size_bytes > SAMPLE_MAX_TRACE_BYTES)
        return;
    struct sample_job *job = xcalloc(1, sizeof *job);
    *job = (struct sample_job){.job = {.work = sample_work, .done = sample_done},
                               .executable = step->executable,
                               .expected_ns = step->executable->expected_ns};
    cost_samples_note_feeds(step->executable->compiled, step->feeds, step->is_passed_on,
                            step->session->options.costs);
    step->executable->n_refs++;
    for (const struct trace *trace = step->traces; trace; trace = trace->next)
        job->n_traces++;
    job->buffers = xcalloc((size_t)job->n_traces, sizeof *job->buffers);
    job->traces = xcalloc((size_t)job->n_traces, sizeof *job->traces);
    int n = 0;
    for (const struct trace *trace = step->traces; trace; trace = trace->next, n++) {
        job->buffers[n] = buffer_ref(trace->buffer);
        job->traces[n] = trace->bytes;
    }
    session_run_job(step->session, &job->job);
}

/* ---- carrying out the machine's actions ---- */

static void on_timeout(struct loop_timer *timer);

void step_start_timer(struct step *step, int64_t ms) {
    if (!step->has_timer)
        loop_timer_init(step->session->env->loop, &step->timer, on_timeout);
    step->has_timer = true;
    loop_timer_start(&step->timer, ms, 0);
}

void step_carry_out(struct step *step, unsigned actions) {
    if (actions & STEP_CANCEL_PARTS) {
        step_cancel_parts(step);
        step_start_timer(step, status_code(step->machine.status) == STATUS_UNAVAILABLE
                                   ? LOST_GRACE_MS
                                   : END_GRACE_MS);
    }
    if (!(actions & STEP_FINISH))
        return;
    if (!step->machine.status)
        end_sample(step);
    else
        replacement_step_failed(step->executable, step->machine.status);
    if (step->has_cost_graph && !step->machine.status)
        start_cost_graph(step);
    else
        finish(step, status_ref(step->machine.status));
}

void step_cancel(struct step *step, struct status *why_take) {
    if (step->machine.state == STEP_NEW) { /* still waits for its executable */
        if (!step->is_finished)
            finish(step, why_take);
        else
            status_unref(why_take);
        return;
    }
    step_carry_out(step, step_machine_cancel(&step->machine, why_take));
}

static void on_call_cancelled(struct grpc_call *call, void *user) {
    step_cancel(
        user,
        status_new(STATUS_CANCELLED,
                   "The client cancelled the step, its deadline passed, or its connection ended"));
}

/* Answers although some cancelled parts have not ended. Their later messages are dropped. */
static void give_up(struct step *step) {
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            log_event(EVENT_STEP_STUCK,
                      "step %016llx was cancelled a while ago, and task %s has not ended it",
                      (unsigned long long)step->id,
                      task_name(step->executable->registrations[i].task));
    replacement_step_failed(step->executable, step->machine.status);
    finish(step, status_ref(step->machine.status));
}

static void on_timeout(struct loop_timer *timer) {
    struct step *step = CONTAINER_OF(timer, struct step, timer);
    if (step->is_finished)
        return;
    if (step->machine.state == STEP_ENDING)
        give_up(step);
    else
        step_cancel(step, status_new(STATUS_DEADLINE_EXCEEDED,
                                     "Timed out waiting for the step after %lld ms",
                                     (long long)step->request.timeout_ms));
}

/* Without the hold, a step that leaves the barrier could admit the session's next step, which may
 * end and be freed at once. */
void steps_cancel_all(struct session *session, struct status *why) {
    struct save_barrier *barrier = &session->env->save_barrier;
    save_barrier_hold(barrier);
    for (struct list *link = session->steps.next; link != &session->steps;) {
        struct step *step = LIST_ENTRY(link, struct step, session_link);
        link = link->next;
        step_cancel(step, status_ref(why));
    }
    save_barrier_release(barrier);
}

struct status *step_check_feed(const struct step *step, int position) {
    enum dtype want = step->executable->compiled->feed_types[position],
               have = (enum dtype)step->feeds[position].dtype;
    if (have == want)
        return NULL;
    return status_invalid("Expects arg[%d] (%s) to be %s but %s is provided", position,
                          step->executable->signature.feeds[position], dtype_name(want),
                          dtype_name(have));
}

static struct status *check_feeds(const struct step *step) {
    for (int i = 0; i < step->request.n_feeds && step->form != STEP_FORM_PARTIAL; i++)
        TRY(step_check_feed(step, i));
    return NULL;
}

static bool is_sample_due(const struct step *step) {
    const struct executable *executable = step->executable;
    struct last_sample last = {executable->sampled_rows, executable->sample_ns};
    return !step->partial && step->session->options.costs &&
           cost_sample_is_due(executable->compiled, last, executable->unsampled_ns);
}

static void begin_sample(struct executable *executable) {
    executable->usual_ns = executable->unsampled_ns / MAX(executable->n_unsampled, (int64_t)1);
    executable->unsampled_ns = 0;
    executable->n_unsampled = 0;
}

static void step_launch(struct step *step) {
    struct master_env *env = step->session->env;
    int n_parts = step->executable->compiled->n_partitions;
    struct status *st = check_feeds(step);
    if (!st)
        st = session_check_incarnations(step->session, step->executable);
    if (st) {
        finish(step, st);
        return;
    }
    if (!step_enter_barrier(step))
        return;
    step->has_cost_graph =
        !step->partial &&
        cost_graph_is_due(step->session->build_cost_model, step->session->build_cost_model_after,
                          step->executable->n_steps);
    step->is_sampled = is_sample_due(step);
    if (step->is_sampled)
        begin_sample(step->executable);
    step->is_profiled =
        unlikely(profiler_is_on(env->home->profiler)) && profiler_wants_traces(env->home->profiler);
    step->executable->n_steps++;
    step->launch_ns = clock_now_ns();
    step->id = tasks_new_id(env->tasks);
    list_push_back(&env->live_steps, &step->live_link);
    step->parts = arena_array(&step->arena, struct step_part, n_parts + 1);
    step->fetched = arena_alloc_aligned(
        &step->arena, sizeof(struct fetched) * (size_t)(step->request.n_fetches + 1), 64);
    memset(step->fetched, 0, sizeof(struct fetched) * (size_t)(step->request.n_fetches + 1));
    step->is_running = arena_array(&step->arena, bool, n_parts + 1);
    step_machine_init(&step->machine, n_parts, step->is_running);
    for (int i = 0; i < n_parts; i++) {
        step->parts[i].step = step;
        step->parts[i].index = i;
        step_send_part(step, i);
    }
    unsigned actions = step_machine_start(&step->machine);
    if (step->partial)
        partial_run_launched(step->partial);
    step_carry_out(step, actions);
}

struct step *step_of_session_link(struct list *link) {
    return LIST_ENTRY(link, struct step, session_link);
}

void step_executable_settled(struct executable_wait *waiter) {
    struct step *step = CONTAINER_OF(waiter, struct step, wait);
    struct executable *executable = step->executable;
    if (!executable_await(executable, waiter))
        return;
    if (executable->state == EXECUTABLE_FAILED)
        finish(step, status_ref(executable->status));
    else if (!step->request.output_partition_graphs || step->graphs ||
             executable_await_graphs(executable, waiter, &step->graphs))
        step_launch(step);
}

/* ---- the request ---- */

static const char **copy_names(struct arena *arena, const struct span *names, int n) {
    const char **copies = arena_array(arena, const char *, n + 1);
    for (int i = 0; i < n; i++)
        copies[i] = arena_strndup(arena, names[i].data, names[i].len);
    return copies;
}

void step_fill_executable(void *arg, struct executable *executable) {
    const struct run_step_request *request = arg;
    struct signature *signature = &executable->signature;
    signature->is_partial = request->is_partial;
    signature->connect_from =
        copy_names(&executable->arena, request->connect_from, request->n_connections);
    signature->connect_to =
        copy_names(&executable->arena, request->connect_to, request->n_connections);
    signature->n_connections = request->n_connections;
    signature->feeds = copy_names(&executable->arena, request->feed_names, request->n_feeds);
    signature->fetches = copy_names(&executable->arena, request->fetches, request->n_fetches);
    signature->targets = copy_names(&executable->arena, request->targets, request->n_targets);
    signature->n_feeds = request->n_feeds;
    signature->n_fetches = request->n_fetches;
    signature->n_targets = request->n_targets;
    struct span *watches = arena_array(&executable->arena, struct span, request->n_watches + 1);
    for (int i = 0; i < request->n_watches; i++)
        watches[i] = (struct span){
            arena_memdup(&executable->arena, request->watches[i].data, request->watches[i].len),
            request->watches[i].len};
    signature->watches = watches;
    signature->n_watches = request->n_watches;
    executable->is_repeated_fetch = arena_array(&executable->arena, bool, request->n_fetches + 1);
    struct strmap seen;
    strmap_init(&seen);
    for (int i = 0; i < request->n_fetches; i++)
        executable->is_repeated_fetch[i] =
            strmap_put(&seen, signature->fetches[i], executable) != NULL;
    strmap_fini(&seen);
}

struct step *step_new(struct session *session, struct grpc_call *call,
                      const struct run_step_request *request, struct arena *arena_take) {
    struct arena arena = *arena_take;
    struct step *step = arena_alloc_aligned(&arena, sizeof *step, 64);
    size_t feeds_size = sizeof(struct tensor) * (size_t)(request->n_feeds + 1);
    arena_init(arena_take);
    memset(step, 0, sizeof *step);
    step->arena = arena;
    step->session = session;
    step->call = call;
    step->request = *request;
    step->feeds = arena_alloc_aligned(&step->arena, feeds_size, 64);
    memset(step->feeds, 0, feeds_size);
    step->is_passed_on = arena_array(&step->arena, bool, request->n_feeds + 1);
    step->start_ns = clock_now_ns();
    list_init(&step->wait.link);
    list_init(&step->live_link);
    list_init(&step->barrier.link);
    session_ref(session);
    list_push_back(&session->steps, &step->session_link);
    session->n_steps++;
    session->n_steps_total++;
    session->env->home->n_steps++;
    return step;
}

void step_run(struct session *session, struct grpc_call *call, enum step_form form,
              const struct run_step_request *request, struct arena *arena_take) {
    struct step *step = step_new(session, call, request, arena_take);
    step->form = form;
    step->message = *grpc_call_message(call);
    if (step->message.buffer)
        buffer_ref(step->message.buffer);
    grpc_call_set_user(call, step, on_call_cancelled);
    struct status *st = step_decode_feeds(step);
    if (st) {
        finish(step, st);
        return;
    }
    if (step->request.timeout_ms <= 0)
        step->request.timeout_ms = session->operation_timeout_ms;
    if (step->request.timeout_ms > 0)
        step_start_timer(step, step->request.timeout_ms);
    step->executable = session_executable(session, run_step_request_key(request, &step->arena),
                                          step_fill_executable, &step->request);
    step->wait.settled = step_executable_settled;
    if (!step->late_feeds)
        step_executable_settled(&step->wait);
}

uint64_t steps_oldest_live(struct master_env *env) {
    struct list *first = env->live_steps.next;
    return first == &env->live_steps ? 0 : LIST_ENTRY(first, struct step, live_link)->id;
}

bool step_is_awaited(const struct step *step) {
    return !step->partial || partial_run_is_awaited(step->partial);
}

uint64_t step_id(const struct step *step) { return step->id; }

bool step_waits_for(const struct step *step, const struct task *task) {
    for (int i = 0; step->machine.state != STEP_NEW && i < step->machine.n_parts; i++)
        if (step->is_running[i] && step->executable->registrations[i].task == task)
            return true;
    return false;
}

int64_t step_age_ns(const struct step *step) { return clock_now_ns() - step->start_ns; }

const char *step_session_handle(const struct step *step) { return step->session->handle; }

void step_describe(const struct step *step, struct str *out) {
    if (step->partial && step->machine.state == STEP_NEW) {
        str_add(out, "a partial run that waits for its first call");
        return;
    }
    if (step->machine.state == STEP_NEW && step->barrier.state == BARRIER_WAITING) {
        str_add(out, step->barrier.is_save
                         ? "waits for a consistent checkpoint: for the steps that ran before it"
                         : "waits for a save to take its values");
        return;
    }
    if (step->machine.state == STEP_NEW) {
        str_add(out, step->executable && step->executable->state == EXECUTABLE_COMPILING
                         ? "being compiled"
                         : "waits for its graphs to be registered");
        return;
    }
    if (step->machine.state == STEP_DONE) {
        str_add(out, "has ended; its cost graph is being written");
        return;
    }
    str_add(out, step->machine.state == STEP_ENDING ? "is being ended; waits for" : "waits for");
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            str_addf(out, " %s", task_name(step->executable->registrations[i].task));
}
