/* Keeps captures: a timer each, the traces of their steps, and a job that writes the XSpace. */
#include "master/step/profiler.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "master/session/session.h"
#include "master/step/step_internal.h"
#include "master/step/xspace.h"

/* What is kept of a step, followed by `n_bytes` of StepStats, or by the session's handle with its
 * NUL if it is the step itself. */
struct record {
    uint64_t step_id;
    int64_t start_us, duration_us;
    size_t n_bytes;
    bool is_step;
};

struct profile_capture {
    struct list link;
    struct profiler *profiler; /* NULL once that is closed */
    struct loop *loop;
    struct loop_timer timer;
    struct pool_task write; /* on the pool, then `written` on the loop */
    struct loop_task written;
    bool wants_traces, is_dropped, is_ending;
    int64_t start_us, end_us, max_events, n_events;
    struct profile_summary summary;
    struct str records; /* struct record and bytes */
    char *session_id, *host;
    struct str xspace;
    profile_done_fn *on_done;
    void *arg;
};

void profiler_init(struct profiler *profiler, struct loop *loop, struct pool *pool) {
    *profiler = (struct profiler){.loop = loop, .pool = pool};
    list_init(&profiler->captures);
}

/* Frees the records, which count for the limit until then. */
static void release_records(struct profile_capture *capture) {
    if (capture->profiler)
        capture->profiler->n_bytes -= capture->records.len;
    str_fini(&capture->records);
}

void profiler_close(struct profiler *profiler) {
    LIST_FOR_EACH_SAFE (link, next, &profiler->captures) {
        LIST_ENTRY(link, struct profile_capture, link)->profiler = NULL;
        list_remove(link);
    }
}

static void capture_free(struct profile_capture *capture) {
    release_records(capture);
    if (capture->profiler)
        list_remove(&capture->link);
    str_fini(&capture->xspace);
    free(capture->session_id);
    free(capture->host);
    free(capture);
}

/* ---- the end of a capture ---- */

static void on_timer_closed(struct loop_timer *timer) {
    struct profile_capture *capture = CONTAINER_OF(timer, struct profile_capture, timer);
    if (!capture->is_dropped)
        capture->on_done(capture->arg, &capture->summary, &capture->xspace, capture->n_events);
    capture_free(capture);
}

static void on_written(struct loop_task *task) {
    struct profile_capture *capture = CONTAINER_OF(task, struct profile_capture, written);
    release_records(capture);
    loop_timer_close(&capture->timer, on_timer_closed);
}

static void write_on_pool(struct pool_task *task) {
    struct profile_capture *capture = CONTAINER_OF(task, struct profile_capture, write);
    struct xspace xspace;
    xspace_init(&xspace, capture->start_us, capture->max_events);
    for (size_t at = 0; at < capture->records.len;) {
        struct record record;
        memcpy(&record, capture->records.data + at, sizeof record);
        at += sizeof record;
        if (record.is_step)
            xspace_add_step(&xspace, capture->records.data + at, record.step_id, record.start_us,
                            record.duration_us);
        else
            xspace_add_trace(&xspace, (struct span){capture->records.data + at, record.n_bytes},
                             record.step_id);
        at += record.n_bytes;
    }
    capture->n_events = xspace.n_events;
    xspace_write(&xspace, capture->end_us, capture->host, &capture->xspace);
    xspace_fini(&xspace);
    loop_post(capture->loop, &capture->written);
}

static void end_capture(struct profile_capture *capture) {
    if (capture->is_ending)
        return;
    capture->is_ending = true;
    capture->profiler->n_captures--;
    loop_timer_stop(&capture->timer);
    capture->end_us = clock_wall_us();
    capture->summary.elapsed_us = capture->end_us - capture->start_us;
    if (capture->wants_traces && !capture->is_dropped)
        pool_submit(capture->profiler->pool, &capture->write);
    else
        loop_timer_close(&capture->timer, on_timer_closed);
}

static void on_timer(struct loop_timer *timer) {
    end_capture(CONTAINER_OF(timer, struct profile_capture, timer));
}

void profiler_end_all(struct profiler *profiler) {
    LIST_FOR_EACH_SAFE (link, next, &profiler->captures)
        end_capture(LIST_ENTRY(link, struct profile_capture, link));
}

struct status *profiler_end(struct profiler *profiler, struct span session_id) {
    if (session_id.len == 0)
        return status_invalid("The request names no session_id of a profile");
    LIST_FOR_EACH_SAFE (link, next, &profiler->captures) {
        struct profile_capture *capture = LIST_ENTRY(link, struct profile_capture, link);
        if (span_is(session_id, capture->session_id))
            end_capture(capture);
    }
    return NULL;
}

void profile_drop(struct profile_capture *capture) {
    capture->is_dropped = true;
    end_capture(capture);
}

/* ---- its beginning ---- */

struct status *profile_start(struct profiler *profiler, int64_t duration_ms, int64_t max_events,
                             bool traces, struct span session_id, struct span host,
                             profile_done_fn *on_done, void *arg, struct profile_capture **ret) {
    if (duration_ms < 0 || duration_ms > PROFILER_MAX_MS)
        return status_invalid("A profile lasts from 0 to %d ms, but %lld ms are asked for",
                              PROFILER_MAX_MS, (long long)duration_ms);
    if (profiler->n_captures >= PROFILER_MAX_CAPTURES)
        return status_exhausted("%d profiles are being captured already", PROFILER_MAX_CAPTURES);
    struct profile_capture *capture = xcalloc(1, sizeof *capture);
    bool has_max = max_events > 0 && max_events < PROFILER_MAX_EVENTS;
    *capture = (struct profile_capture){.profiler = profiler,
                                        .loop = profiler->loop,
                                        .write.run = write_on_pool,
                                        .written.run = on_written,
                                        .wants_traces = traces,
                                        .start_us = clock_wall_us(),
                                        .max_events = has_max ? max_events : PROFILER_MAX_EVENTS,
                                        .session_id = xstrndup(session_id.data, session_id.len),
                                        .host = xstrndup(host.data, host.len),
                                        .on_done = on_done,
                                        .arg = arg};
    list_push_back(&profiler->captures, &capture->link);
    profiler->n_captures++;
    loop_timer_init(profiler->loop, &capture->timer, on_timer);
    loop_timer_start(&capture->timer, duration_ms, 0);
    *ret = capture;
    return NULL;
}

/* ---- steps ---- */

bool profiler_wants_traces(const struct profiler *profiler) {
    LIST_FOR_EACH (link, &profiler->captures) {
        const struct profile_capture *capture = LIST_ENTRY(link, struct profile_capture, link);
        if (capture->wants_traces && !capture->is_ending)
            return true;
    }
    return false;
}

static void add_record(struct profile_capture *capture, struct record record, const void *bytes) {
    size_t size = sizeof record + record.n_bytes;
    if (capture->profiler->n_bytes + size > PROFILER_MAX_BYTES)
        return;
    capture->profiler->n_bytes += size;
    str_add_bytes(&capture->records, (const char *)&record, sizeof record);
    str_add_bytes(&capture->records, bytes, record.n_bytes);
}

static void note_traces(struct profile_capture *capture, const struct step *step,
                        int64_t duration_us) {
    const char *session = step->session->handle;
    struct record record = {.step_id = step->id,
                            .start_us = clock_wall_us() - duration_us,
                            .duration_us = duration_us,
                            .n_bytes = strlen(session) + 1,
                            .is_step = true};
    add_record(capture, record, session);
    for (const struct trace *trace = step->traces; trace; trace = trace->next)
        add_record(capture, (struct record){.step_id = step->id, .n_bytes = trace->bytes.len},
                   trace->bytes.data);
}

void profiler_note(struct profiler *profiler, const struct step *step, int64_t duration_us) {
    LIST_FOR_EACH (link, &profiler->captures) {
        struct profile_capture *capture = LIST_ENTRY(link, struct profile_capture, link);
        if (capture->is_ending)
            continue;
        struct profile_summary *summary = &capture->summary;
        summary->min_us = summary->n_steps > 0 ? MIN(summary->min_us, duration_us) : duration_us;
        summary->max_us = MAX(summary->max_us, duration_us);
        summary->total_us += duration_us;
        summary->n_steps++;
        if (capture->wants_traces)
            note_traces(capture, step, duration_us);
    }
}
