/* Keeps partial runs and carries out their calls (partial_run.h). */
#include "master/step/partial_run.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "master/step/step_internal.h"

struct partial_run {
    struct session *session; /* the step's reference */
    struct step *step;
    char *handle;
    struct grpc_call *setup;           /* until it is compiled */
    struct buffer *message;            /* of the setup: it contains the names */
    struct strmap feeds, fetches;      /* endpoint → an index in is_fed or is_asked */
    bool *is_fed, *is_asked, *is_sent; /* by position */
    uint64_t *fed;                     /* the same as is_fed: a set of feeds */
    struct partial_call **askers;      /* by position: the call that waits for the fetch, or NULL */
    int n_unfed, n_unasked;
    struct list calls;     /* struct partial_call.link, in the order they came */
    struct status *status; /* of a run that failed while no call waited */
    bool is_launched, has_ended, is_dropped;
};

/* A RunStep call that waits for its fetches. */
struct partial_call {
    struct list link;
    struct partial_run *run;
    struct grpc_call *call;
    struct buffer *message;   /* it contains the feeds until they are sent */
    int *fetches;             /* positions */
    int n_fetches, n_missing; /* that many fetches have not arrived */
    bool is_error_in_body, wants_metadata;
    bool is_last; /* it waits for the step's end as well */
};

bool partial_run_is_awaited(const struct partial_run *run) {
    return run->setup || !list_is_empty(&run->calls);
}

/* ---- the end ---- */

static void call_free(struct partial_call *call) {
    for (int i = 0; i < call->n_fetches; i++)
        call->run->askers[call->fetches[i]] = NULL;
    list_remove(&call->link);
    buffer_unref(call->message);
    free(call->fetches);
    free(call);
}

static void run_free(struct partial_run *run) {
    struct step *step = run->step;
    if (strmap_get(&run->session->partial_runs, run->handle) == run)
        strmap_remove(&run->session->partial_runs, run->handle);
    strmap_fini(&run->feeds);
    strmap_fini(&run->fetches);
    status_unref(run->status);
    buffer_unref(run->message);
    free(run->handle);
    free(run);
    step_release(step);
}

static void answer_call(struct partial_call *call, struct status *status_take) {
    struct step *step = call->run->step;
    struct grpc_body body;
    grpc_call_set_user(call->call, NULL, NULL);
    if (status_take) {
        step_answer_error(call->call, call->is_error_in_body, status_take);
        call_free(call);
        return;
    }
    grpc_body_init(&body);
    for (int i = 0; i < call->n_fetches; i++)
        step_add_fetch(&body, step->executable->signature.fetches[call->fetches[i]],
                       &step->fetched[call->fetches[i]]);
    if (call->wants_metadata && call->is_last)
        step_add_metadata(step, &body);
    grpc_call_reply(call->call, &body);
    grpc_body_fini(&body);
    call_free(call);
}

static bool is_complete(const struct partial_call *call) {
    return call->n_missing == 0 && call->run->is_launched &&
           (!call->is_last || call->run->has_ended);
}

/* Answers the calls that can be answered. The run may be freed by this. */
static void review(struct partial_run *run) {
    LIST_FOR_EACH_SAFE (link, next, &run->calls) {
        struct partial_call *call = LIST_ENTRY(link, struct partial_call, link);
        if (is_complete(call))
            answer_call(call, NULL);
    }
    if (run->has_ended && (run->is_dropped || (run->n_unfed == 0 && run->n_unasked == 0 &&
                                               list_is_empty(&run->calls))))
        run_free(run);
    else if (list_is_empty(&run->calls) && run->step->has_timer &&
             run->step->machine.state != STEP_ENDING)
        loop_timer_stop(&run->step->timer); /* the fetch belonged to the calls */
}

void partial_run_fetched(struct partial_run *run, int position) {
    struct partial_call *call = run->askers[position];
    if (call && --call->n_missing == 0)
        review(run);
}

void partial_run_ended(struct partial_run *run, struct status *status_take) {
    run->has_ended = true;
    if (!status_take) {
        review(run);
        return;
    }
    bool is_told = run->setup || !list_is_empty(&run->calls);
    if (run->setup) {
        grpc_call_set_user(run->setup, NULL, NULL);
        grpc_call_fail(run->setup, status_ref(status_take));
    }
    while (!list_is_empty(&run->calls))
        answer_call(LIST_ENTRY(run->calls.next, struct partial_call, link),
                    status_ref(status_take));
    if (is_told || run->is_dropped) {
        status_unref(status_take);
        run_free(run);
    } else {
        run->status = status_take;
    }
}

void partial_runs_drop(struct session *session) {
    size_t cursor = 0;
    struct span key;
    void *value;
    struct strmap runs = session->partial_runs;
    strmap_init(&session->partial_runs);
    while (strmap_next(&runs, &cursor, &key, &value)) {
        struct partial_run *run = value;
        run->is_dropped = true;
        if (run->has_ended)
            run_free(run);
    }
    strmap_fini(&runs);
}

/* ---- setup ---- */

static void setup_cancelled(struct grpc_call *call, void *user) {
    struct partial_run *run = user;
    run->setup = NULL;
    run->is_dropped = true;
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "the client cancelled the call"));
    step_cancel(run->step,
                status_new(STATUS_CANCELLED, "the client cancelled the setup of the partial run"));
}

static void setup_settled(struct executable_wait *waiter) {
    struct step *step = CONTAINER_OF(waiter, struct step, wait);
    struct partial_run *run = step->partial;
    if (!executable_await(step->executable, waiter))
        return;
    if (step->executable->state == EXECUTABLE_FAILED) {
        step_cancel(step, status_ref(step->executable->status));
        return;
    }
    struct str reply = STR_INIT;
    struct grpc_body body;
    grpc_body_init(&body);
    proto_add_bytes(&reply, 1, run->handle, strlen(run->handle));
    grpc_body_add_copy(&body, reply.data, reply.len);
    grpc_call_set_user(run->setup, NULL, NULL);
    grpc_call_reply(run->setup, &body);
    run->setup = NULL;
    grpc_body_fini(&body);
    str_fini(&reply);
    step->wait.settled = step_executable_settled;
}

/* Numbers the names, by their indices in `flags`. The cut pass refuses a repeated name. */
static void number_names(struct strmap *map, const struct span *names, int n, bool *flags) {
    strmap_init(map);
    for (int i = 0; i < n; i++)
        if (!strmap_get_span(map, names[i]))
            strmap_put_span(map, names[i], &flags[i]);
}

void partial_run_setup(struct session *session, struct grpc_call *call,
                       const struct run_step_request *request, struct arena *arena_take) {
    struct partial_run *run = xcalloc(1, sizeof *run);
    struct step *step = step_new(session, NULL, request, arena_take);
    struct str handle = STR_INIT;
    str_addf(&handle, "%llu", (unsigned long long)session->n_partial_runs_total++);
    step->form = STEP_FORM_PARTIAL;
    step->partial = run;
    step->request.feed_protos = arena_array(&step->arena, struct span, request->n_feeds + 1);
    *run = (struct partial_run){
        .session = session, .step = step, .handle = str_detach(&handle), .setup = call};
    if (grpc_call_message(call)->buffer)
        run->message = buffer_ref(grpc_call_message(call)->buffer);
    run->is_fed = arena_array(&step->arena, bool, request->n_feeds + 1);
    run->is_sent = arena_array(&step->arena, bool, request->n_feeds + 1);
    run->is_asked = arena_array(&step->arena, bool, request->n_fetches + 1);
    run->fed = arena_array(&step->arena, uint64_t, (int)FEED_SET_WORDS(request->n_feeds) + 1);
    run->askers = arena_array(&step->arena, struct partial_call *, request->n_fetches + 1);
    number_names(&run->feeds, request->feed_names, request->n_feeds, run->is_fed);
    number_names(&run->fetches, request->fetches, request->n_fetches, run->is_asked);
    run->n_unfed = (int)run->feeds.n_entries;
    run->n_unasked = (int)run->fetches.n_entries;
    list_init(&run->calls);
    strmap_put(&session->partial_runs, run->handle, run);
    grpc_call_set_user(call, run, setup_cancelled);
    step->executable =
        session_executable(session, run_step_request_key(&step->request, &step->arena),
                           step_fill_executable, &step->request);
    step->wait.settled = setup_settled;
    setup_settled(&step->wait);
}

/* ---- a call ---- */

/* Finds the positions that a call's names stand for. Refuses an unknown name, and one that was
 * stated before. `flags` is unchanged. */
static struct status *find_places(const struct strmap *map, bool *flags, const struct span *names,
                                  int n, const char *what, const char *done, int *ret) {
    struct status *st = NULL;
    int n_found = 0;
    for (int i = 0; i < n && !st; i++) {
        bool *flag = strmap_get_span(map, names[i]);
        int len = (int)MIN(names[i].len, (size_t)200);
        if (!flag)
            st = status_invalid("The %s %.*s was not specified in partial_run_setup.", what, len,
                                names[i].data);
        else if (*flag)
            st = status_invalid("The %s %.*s has already been %s.", what, len, names[i].data, done);
        else
            *flag = true,
            ret[n_found++] = (int)(flag - flags); /* so that a second one in this call is noticed */
    }
    for (int i = 0; i < n_found; i++)
        flags[ret[i]] = false;
    return st;
}

static struct status *check_needs(const struct partial_run *run, const uint64_t *will_be_fed,
                                  const int *fetches, int n_fetches) {
    const struct executable *executable = run->step->executable;
    int n_feeds = executable->signature.n_feeds;
    const uint64_t *needs = executable->compiled->feed_needs;
    for (int i = 0; i < n_fetches; i++) {
        int feed = feed_set_missing(&needs[(size_t)fetches[i] * FEED_SET_WORDS(n_feeds)], run->fed,
                                    will_be_fed, n_feeds);
        if (feed >= 0)
            return status_invalid("Fetch %s can't be computed from the feeds that have been "
                                  "fed so far: it needs %s",
                                  executable->signature.fetches[fetches[i]],
                                  executable->signature.feeds[feed]);
    }
    return NULL;
}

static struct status *take_feeds(struct partial_run *run, const struct run_step_request *request,
                                 struct buffer *buffer, const int *feeds) {
    struct step *step = run->step;
    for (int i = 0; i < request->n_feeds; i++) {
        tensor_clear(&step->feeds[feeds[i]]); /* of a call that was refused */
        TRY(step_decode_feed(step, request->feed_names[i], feeds[i], request->feed_protos[i],
                             buffer));
        TRY(step_check_feed(step, feeds[i]));
        step->request.feed_protos[feeds[i]] = request->feed_protos[i];
    }
    return NULL;
}

/* Checks everything that may be refused. The run's state is unchanged by this. */
static struct status *check_call(struct partial_run *run, const struct run_step_request *request,
                                 struct buffer *buffer, int *feeds, int *fetches) {
    struct status *st = find_places(&run->feeds, run->is_fed, request->feed_names, request->n_feeds,
                                    "feed", "fed", feeds);
    if (!st)
        st = find_places(&run->fetches, run->is_asked, request->fetches, request->n_fetches,
                         "fetch", "fetched", fetches);
    if (st)
        return st;
    uint64_t *will_be_fed =
        xcalloc(FEED_SET_WORDS(run->step->request.n_feeds) + 1, sizeof(*will_be_fed));
    for (int i = 0; i < request->n_feeds; i++)
        feed_set_add(will_be_fed, feeds[i]);
    st = check_needs(run, will_be_fed, fetches, request->n_fetches);
    free(will_be_fed);
    return st ? st : take_feeds(run, request, buffer, feeds);
}

/* Sends the feeds that have arrived and were not sent yet. */
static void send_feeds(struct partial_run *run) {
    struct step *step = run->step;
    int n_feeds = step->request.n_feeds;
    bool *is_new = xcalloc((size_t)n_feeds + 1, sizeof(*is_new));
    for (int i = 0; i < n_feeds; i++) {
        is_new[i] = run->is_fed[i] && !run->is_sent[i];
        run->is_sent[i] = run->is_fed[i];
    }
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            step_send_feeds(step, i, is_new);
    free(is_new);
}

static void call_cancelled(struct grpc_call *grpc_call, void *user) {
    struct partial_call *call = user;
    struct step *step = call->run->step;
    call_free(call);
    grpc_call_fail(grpc_call, status_new(STATUS_CANCELLED, "the client cancelled the call"));
    if (!step->is_finished)
        step_cancel(
            step,
            status_new(STATUS_CANCELLED,
                       "The client cancelled a call of the partial run, or its connection ended"));
}

void partial_run_launched(struct partial_run *run) {
    run->is_launched = true;
    send_feeds(run);
    review(run);
}

static void add_call(struct partial_run *run, struct grpc_call *grpc_call,
                     const struct run_step_request *request, const int *feeds, int *fetches_take) {
    struct partial_call *call = xcalloc(1, sizeof *call);
    int n_missing = 0;
    for (int i = 0; i < request->n_feeds; i++) {
        run->is_fed[feeds[i]] = true;
        feed_set_add(run->fed, feeds[i]);
    }
    for (int i = 0; i < request->n_fetches; i++) {
        run->is_asked[fetches_take[i]] = true;
        run->askers[fetches_take[i]] = call;
        n_missing += !run->is_launched || !run->step->fetched[fetches_take[i]].is_there;
    }
    run->n_unfed -= request->n_feeds;
    run->n_unasked -= request->n_fetches;
    *call = (struct partial_call){.run = run,
                                  .call = grpc_call,
                                  .fetches = fetches_take,
                                  .n_fetches = request->n_fetches,
                                  .n_missing = n_missing,
                                  .is_error_in_body = request->store_errors_in_response_body,
                                  .wants_metadata =
                                      request->trace_level > 0 || request->output_partition_graphs,
                                  .is_last = run->n_unfed == 0 && run->n_unasked == 0};
    if (grpc_call_message(grpc_call)->buffer)
        call->message = buffer_ref(grpc_call_message(grpc_call)->buffer);
    list_push_back(&run->calls, &call->link);
    grpc_call_set_user(grpc_call, call, call_cancelled);
}

/* The step continues with the feeds of the newest call. The run may be freed by this. */
static void run_next_part(struct partial_run *run, const struct run_step_request *request) {
    struct step *step = run->step;
    if (request->timeout_ms > 0 && !step->is_finished) {
        step->request.timeout_ms = request->timeout_ms;
        step_start_timer(step, request->timeout_ms);
    }
    if (run->is_launched) {
        send_feeds(run);
        review(run);
        return;
    }
    if (!list_is_empty(&step->wait.link))
        return; /* another call has brought it meanwhile */
    step->request.trace_level = request->trace_level;
    step->request.output_partition_graphs = request->output_partition_graphs;
    step_executable_settled(&step->wait);
}

void partial_run_call(struct session *session, struct grpc_call *call,
                      const struct run_step_request *request) {
    struct partial_run *run = strmap_get_span(&session->partial_runs, request->partial_run_handle);
    struct status *st = NULL;
    if (!run || run->setup)
        st = status_invalid("Must run PartialRunSetup before performing partial runs");
    else if (run->status)
        st = status_ref(run->status);
    if (st) {
        if (run && run->status)
            run_free(run);
        step_answer_error(call, request->store_errors_in_response_body, st);
        return;
    }
    int *feeds = xcalloc((size_t)request->n_feeds + 1, sizeof(int)),
        *fetches = xcalloc((size_t)request->n_fetches + 1, sizeof(int));
    st = check_call(run, request, grpc_call_message(call)->buffer, feeds, fetches);
    if (st) {
        step_answer_error(call, request->store_errors_in_response_body, st);
        free(fetches);
    } else {
        add_call(run, call, request, feeds, fetches);
        run_next_part(run, request);
    }
    free(feeds);
}
