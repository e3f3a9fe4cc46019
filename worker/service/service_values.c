/* Takes feeds, encodes fetches and releases values. What holds much text is worked on in pieces, on
 * the pool, because neither the loop nor the steps that wait for a pool thread may wait for it:
 *
 *   RunGraph ─► small feeds at once ──────────────────────────────► execution_start
 *            └► much text: a task of 2 ms, again and again ───────►
 *   on_done ──► small fetches at once ────────────────────────────► RunDone
 *            └► much text: a task of 2 ms, again and again ───────► */
#include <stdlib.h>

#include "common/tensor/tensor_pieces.h"
#include "worker/service/service_internal.h"

enum {
    PIECE_UNITS = 2 * TENSOR_UNITS_PER_MS,
    MAX_FEED_BYTES_AT_ONCE = 64 << 10, /* of TensorProtos in a message */
};

static struct pool *pool_of(const struct graph_run *run) { return run->service->options.pool; }

/* Before the execution begins or after it has ended. */
static struct status *why_cancelled(struct graph_run *run) {
    struct execution *execution = &run->execution;
    pthread_mutex_lock(&execution->lock);
    struct status *why =
        execution->cancelled_before ? status_ref(execution->cancelled_before) : NULL;
    pthread_mutex_unlock(&execution->lock);
    return why;
}

/* ---- feeds ---- */

/* The feeds of a RunGraph or a FeedStep, one after another. */
struct feed_reader {
    struct graph_run *run;
    const struct wire_message *message;
    bool is_feed_step;
    struct run_graph_message run_graph;
    struct feed_step_message feed_step;
    uint32_t n; /* how many have been read */
    uint32_t position;
    size_t offset; /* in the payload */
};

static struct status *feed_reader_init(struct feed_reader *reader, struct graph_run *run,
                                       const struct wire_message *message) {
    *reader = (struct feed_reader){
        .run = run, .message = message, .is_feed_step = message->type == WIRE_FEED_STEP};
    if (!reader->is_feed_step)
        return run_graph_read(message->meta, &reader->run_graph);
    feed_step_read(message->meta, &reader->feed_step);
    return NULL;
}

static struct status *next_of_feed_step(struct feed_reader *reader, struct span *ret_bytes,
                                        bool *ret_more) {
    int more = feed_step_next(&reader->feed_step, &reader->position, ret_bytes);
    if (more < 0)
        return status_invalid("malformed FeedStep");
    if (more > 0 && reader->position >= reader->run->graph->plan->n_feeds)
        return status_invalid("FeedStep for feed %u of %u", reader->position,
                              reader->run->graph->plan->n_feeds);
    *ret_more = more > 0;
    return NULL;
}

static struct status *next_of_run_graph(struct feed_reader *reader, struct span *ret_bytes,
                                        bool *ret_more) {
    const struct graph_entry *graph = reader->run->graph;
    bool is_partial = reader->run_graph.is_partial;
    uint32_t n = reader->n;
    *ret_more = run_graph_next_feed(&reader->run_graph, ret_bytes);
    if (*ret_more && (n == graph->plan->n_feeds || is_partial))
        return status_invalid("RunGraph has more feeds than the %u of graph %llu", n,
                              (unsigned long long)graph->handle);
    if (!*ret_more && n != graph->plan->n_feeds && !is_partial)
        return status_invalid("RunGraph has %u feeds, but graph %llu has %u", n,
                              (unsigned long long)graph->handle, graph->plan->n_feeds);
    reader->position = n;
    return NULL;
}

static struct status *feed_reader_next(struct feed_reader *reader, struct tensor_meta *ret,
                                       bool *ret_more) {
    struct span bytes;
    TRY(reader->is_feed_step ? next_of_feed_step(reader, &bytes, ret_more)
                             : next_of_run_graph(reader, &bytes, ret_more));
    reader->n += *ret_more;
    return *ret_more ? tensor_meta_read(bytes, ret) : NULL;
}

/* Checks the feed that was read last, and gives it to the run. */
static struct status *deliver(const struct feed_reader *reader, struct tensor *value_take) {
    struct graph_run *run = reader->run;
    enum dtype want = (enum dtype)run->graph->feed_types[reader->position];
    bool is_dead = value_take->storage == TENSOR_DEAD;
    if (is_dead || (want != DT_INVALID && (enum dtype)value_take->dtype != want)) {
        const char *have = is_dead ? "dead" : dtype_name((enum dtype)value_take->dtype);
        tensor_clear(value_take);
        return status_invalid("feed %u is %s, but the graph expects %s", reader->position, have,
                              dtype_name(want));
    }
    if (reader->is_feed_step)
        execution_feed(&run->execution, reader->position, value_take);
    else
        tensor_move(&run->values[reader->position], value_take);
    return NULL;
}

static struct status *take_at_once(struct feed_reader *reader) {
    struct tensor_meta meta;
    bool more = true;
    while (more) {
        struct tensor value = TENSOR_INIT;
        TRY(feed_reader_next(reader, &meta, &more));
        if (!more)
            break;
        TRY(tensor_meta_take(&meta, reader->message, &reader->offset, allocator_host(), &value));
        TRY(deliver(reader, &value));
    }
    return NULL;
}

/* Do the TensorProtos of the message take long to decode? What is malformed is found at once. */
static bool has_much_text(struct feed_reader reader) {
    struct tensor_meta meta;
    uint64_t size = 0;
    bool more = true;
    if (reader.message->meta.len + reader.message->payload_len <= MAX_FEED_BYTES_AT_ONCE)
        return false;
    while (more && size <= MAX_FEED_BYTES_AT_ONCE) {
        struct status *st = feed_reader_next(&reader, &meta, &more);
        if (st) {
            status_unref(st);
            return false;
        }
        if (more && (meta.proto.len > 0 || !tensor_meta_is_plain(&meta)))
            size += meta.proto.len > 0 ? meta.proto.len : meta.size_bytes;
    }
    return size > MAX_FEED_BYTES_AT_ONCE;
}

/* ---- feeds in pieces ---- */

struct feed_job {
    struct pool_task task;
    struct wire_message message; /* a copy: its meta is `meta`, its payload one reference */
    struct str meta;
    struct feed_reader reader;
    struct tensor_decoder decoder;
    bool is_decoding;
};

static void feed_job_free(struct feed_job *job) {
    if (!job)
        return;
    tensor_decoder_fini(&job->decoder);
    buffer_unref(job->message.payload);
    str_fini(&job->meta);
    free(job);
}

static struct status *feed_job_begin_feed(struct feed_job *job, bool *ret_more) {
    struct feed_reader *reader = &job->reader;
    struct tensor_meta meta;
    struct span proto;
    struct tensor value = TENSOR_INIT;
    TRY(feed_reader_next(reader, &meta, ret_more));
    if (!*ret_more)
        return NULL;
    TRY(tensor_meta_find_proto(&meta, &job->message, &reader->offset, &proto));
    if (proto.data) {
        tensor_decoder_init(&job->decoder, proto, allocator_host());
        job->is_decoding = true;
        return NULL;
    }
    TRY(tensor_meta_take(&meta, &job->message, &reader->offset, allocator_host(), &value));
    return deliver(reader, &value);
}

static struct status *feed_job_continue(struct feed_job *job, int64_t *units, bool *ret_more) {
    struct tensor value = TENSOR_INIT;
    --*units;
    if (!job->is_decoding)
        return feed_job_begin_feed(job, ret_more);
    TRY(tensor_decoder_run(&job->decoder, units, &value));
    if (value.storage == TENSOR_NONE)
        return NULL;
    tensor_decoder_fini(&job->decoder);
    job->is_decoding = false;
    return deliver(&job->reader, &value);
}

static void feed_job_run(struct pool_task *task) {
    struct feed_job *job = CONTAINER_OF(task, struct feed_job, task);
    struct graph_run *run = job->reader.run;
    struct status *st = NULL, *cancelled = why_cancelled(run);
    int64_t units = PIECE_UNITS;
    bool more = cancelled == NULL, is_feed_step = job->reader.is_feed_step;
    status_unref(cancelled); /* the execution ends with it as soon as it starts */
    while (more && !st && units > 0)
        st = feed_job_continue(job, &units, &more);
    if (more && !st) {
        pool_submit(pool_of(run), task);
        return;
    }
    feed_job_free(job);
    if (st)
        execution_cancel(&run->execution, st);
    status_unref(st);
    if (is_feed_step)
        graph_run_unref(run);
    else
        execution_start(&run->execution);
}

static struct status *feed_job_new(struct graph_run *run, struct wire_message *message,
                                   struct feed_job **ret) {
    struct feed_job *job = xcalloc(1, sizeof(*job));
    str_add_bytes(&job->meta, message->meta.data, message->meta.len);
    job->message = *message;
    job->message.meta = (struct span){job->meta.data, job->meta.len};
    message->payload = NULL; /* it is the job's */
    job->task.run = feed_job_run;
    struct status *st = feed_reader_init(&job->reader, run, &job->message);
    if (st)
        feed_job_free(job);
    else
        *ret = job;
    return st;
}

struct status *service_take_feeds(struct graph_run *run, struct wire_message *message,
                                  bool *ret_is_later) {
    struct feed_reader reader;
    TRY(feed_reader_init(&reader, run, message));
    *ret_is_later = pool_of(run) && unlikely(has_much_text(reader));
    return *ret_is_later ? feed_job_new(run, message, &run->feed_job) : take_at_once(&reader);
}

void service_decode_feeds(struct graph_run *run) {
    struct feed_job *job = run->feed_job;
    run->feed_job = NULL;
    pool_submit(pool_of(run), &job->task);
}

struct status *service_feed_run(struct graph_run *run, struct wire_message *message) {
    struct feed_reader reader;
    struct feed_job *job;
    if (!run->execution.is_partial)
        return status_invalid("FeedStep for step %llx, which is not a partial run",
                              (unsigned long long)run->id);
    TRY(feed_reader_init(&reader, run, message));
    if (!pool_of(run) || !has_much_text(reader))
        return take_at_once(&reader);
    TRY(feed_job_new(run, message, &job));
    atomic_fetch_add_explicit(&run->n_refs, 1, memory_order_relaxed); /* the job's */
    pool_submit(pool_of(run), &job->task);
    return NULL;
}

/* ---- fetches and traces in pieces ---- */

struct reply_job {
    struct pool_task task;
    struct graph_run *run;
    struct status *status; /* CANCELLED, or NULL */
    uint32_t n_fetches, n_done;
    struct tensor_encoder encoder;
    struct stats_writer trace;
    bool is_encoding, has_trace;
    struct encoded_reply encoded; /* the last: it has an entry for each fetch */
};

static void take_encoded(struct str *text, struct encoded *ret) {
    ret->len = text->len;
    if (text->len == 0)
        return;
    char *bytes = str_detach(text);
    ret->buffer = buffer_wrap(bytes, ret->len, free, bytes);
}

static void reply_job_free(struct reply_job *job) {
    tensor_encoder_fini(&job->encoder);
    stats_writer_fini(&job->trace);
    buffer_unref(job->encoded.trace.buffer);
    for (uint32_t i = 0; i < job->n_fetches; i++)
        buffer_unref(job->encoded.texts[i].buffer);
    free(job);
}

static void encode_fetch(struct reply_job *job, int64_t *units) {
    const struct tensor *fetch = &job->run->execution.fetches[job->n_done];
    --*units;
    if (!job->is_encoding && !tensor_has_much_text(fetch)) {
        job->n_done++;
        return;
    }
    if (!job->is_encoding)
        tensor_encoder_init(&job->encoder, fetch);
    job->is_encoding = !tensor_encoder_run(&job->encoder, units);
    if (!job->is_encoding)
        take_encoded(&job->encoder.out, &job->encoded.texts[job->n_done++]);
}

static void write_trace(struct reply_job *job, int64_t *units) {
    if (!stats_writer_run(&job->trace, units))
        return;
    take_encoded(&job->trace.out, &job->encoded.trace);
    job->has_trace = false;
}

/* True: there is more to do. */
static bool reply_job_continue(struct reply_job *job, int64_t units) {
    while (!job->status && job->n_done < job->n_fetches && units > 0)
        encode_fetch(job, &units);
    while (job->has_trace && units > 0)
        write_trace(job, &units);
    return (!job->status && job->n_done < job->n_fetches) || job->has_trace;
}

static void reply_job_end(struct reply_job *job) {
    graph_run_finish(job->run, &job->encoded, job->status);
    reply_job_free(job);
}

static void reply_job_run(struct pool_task *task) {
    struct reply_job *job = CONTAINER_OF(task, struct reply_job, task);
    struct status *cancelled = why_cancelled(job->run);
    bool more = !cancelled && reply_job_continue(job, PIECE_UNITS);
    if (cancelled && !job->status)
        job->status = status_ref(cancelled);
    status_unref(cancelled);
    if (more)
        pool_submit(pool_of(job->run), task);
    else
        reply_job_end(job);
}

static bool has_texts(const struct graph_run *run) {
    uint32_t n = run->graph->plan->n_fetches;
    for (uint32_t i = 0; i < n; i++)
        if (unlikely(tensor_has_much_text(&run->execution.fetches[i])))
            return true;
    return false;
}

bool service_encode_later(struct graph_run *run, const struct status *status) {
    struct step_stats *stats = run->execution.stats;
    bool can_wait = pool_of(run) && !run->execution.is_partial;
    bool is_traced = stats && run->execution.stats_level == EXECUTION_STATS_ALL;
    bool has_much = !status && (is_traced || (can_wait && has_texts(run)));
    if (likely(!has_much))
        return false;
    uint32_t n = run->execution.is_partial ? 0 : run->graph->plan->n_fetches;
    struct reply_job *job = xcalloc(1, sizeof(*job) + n * sizeof(job->encoded.texts[0]));
    job->run = run;
    job->n_fetches = n;
    if (is_traced) {
        stats->clock_ahead_us = run->clock_ahead_us;
        stats_writer_init(&job->trace, stats, run->graph->exchange, SERVICE_MAX_TRACE_BYTES);
        job->has_trace = true;
    }
    job->task.run = reply_job_run;
    if (pool_of(run)) {
        pool_submit(pool_of(run), &job->task);
    } else {
        CHECK(!reply_job_continue(job, INT64_MAX));
        reply_job_end(job);
    }
    return true;
}

/* ---- releasing ---- */

static void release_task_run(struct pool_task *task) {
    struct graph_run *run = CONTAINER_OF(task, struct graph_run, release_task);
    int64_t units = PIECE_UNITS;
    while (run->n_values > 0 && units > 0)
        if (tensor_release(&run->values[run->n_values - 1], &units))
            run->n_values--;
    if (run->n_values > 0)
        pool_submit(pool_of(run), task);
    else
        graph_run_recycle(run);
}

bool service_release_later(struct graph_run *run) {
    for (; run->n_values > 0; run->n_values--) {
        struct tensor *value = &run->values[run->n_values - 1];
        if (unlikely(pool_of(run) && tensor_has_much_text(value))) {
            run->release_task.run = release_task_run;
            pool_submit(pool_of(run), &run->release_task);
            return true;
        }
        tensor_clear(value);
    }
    return false;
}
