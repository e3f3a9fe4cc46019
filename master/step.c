/* A step's way through the workers and back: see step.h; what happens when is decided in step_machine.c. */
#include "master/step.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"
#include "master/service.h"
#include "master/step_machine.h"
#include "proto/worker.pb-c.h"

enum {
    FEED_SPARE_BYTES = 16 << 20, /* what a feed may take beyond a multiple of its bytes: this thread fills it */
    END_GRACE_MS = 10000,        /* a task that does not say that its part has ended (stopped, deep in a kernel) holds nobody up longer */
};

/* One partition's run. */
struct step_part {
    struct task_call call;
    struct step *step;
    int index;
};

/* A fetched value as it came: a view on the worker's reply, or an encoded proto. */
struct fetched {
    struct tensor value;
    struct span proto; /* dtypes that are not plain: in `arena` */
};

struct step {
    struct list link; /* executable->waiting, until it runs */
    struct list session_link;
    struct list live_link; /* service->live_steps, once it runs */
    struct session *session;
    struct executable *executable;
    struct grpc_call *call;
    struct grpc_message message; /* feeds point into it: one reference */
    struct run_step_request request;
    struct arena arena;
    struct tensor *feeds;
    struct fetched *fetched;
    struct step_part *parts;
    bool *is_running;
    struct step_machine machine;
    struct str step_stats;
    struct loop_timer timer;
    bool has_timer, is_finished;
    uint64_t id;
    int64_t start_ns;
};

static struct metric steps_total = METRIC_COUNTER_INIT("millrace_steps_total", "Steps that ended");
static struct metric steps_failed = METRIC_COUNTER_INIT("millrace_steps_failed_total", "Steps that ended with an error");
static struct metric step_latency = METRIC_HISTOGRAM_INIT("millrace_step_duration_us", "From a step's request to its answer");

void step_metrics_register(void) {
    metrics_register(&steps_total);
    metrics_register(&steps_failed);
    metrics_register(&step_latency);
}

/* ---- the answer ---- */

static void add_fetch(struct grpc_body *body, const char *name, const struct fetched *fetched) {
    struct str head = STR_INIT, tensor = STR_INIT;
    size_t name_len = strlen(name), content = 0, proto_len;
    bool is_plain = fetched->proto.data == NULL;
    if (is_plain) {
        tensor_proto_head(&fetched->value, &tensor);
        content = tensor_size_bytes(&fetched->value);
        proto_len = tensor.len + content;
    } else {
        proto_len = fetched->proto.len;
    }
    size_t named_len = 1 + proto_varint_size(name_len) + name_len + 1 + proto_varint_size(proto_len) + proto_len;
    proto_add_tag(&head, 1, 2);
    proto_add_varint(&head, named_len);
    proto_add_bytes(&head, 1, name, name_len);
    proto_add_tag(&head, 2, 2);
    proto_add_varint(&head, proto_len);
    grpc_body_add_copy(body, head.data, head.len);
    if (is_plain) {
        grpc_body_add_copy(body, tensor.data, tensor.len);
        if (content && fetched->value.storage == TENSOR_BUFFER && content > 1024)
            grpc_body_add_shared(body, tensor_cdata(&fetched->value), content, buffer_ref(fetched->value.buffer));
        else
            grpc_body_add_copy(body, tensor_cdata(&fetched->value), content);
    } else {
        grpc_body_add_copy(body, fetched->proto.data, fetched->proto.len);
    }
    str_fini(&head);
    str_fini(&tensor);
}

static void add_metadata(const struct step *step, struct grpc_body *body) {
    struct str metadata = STR_INIT, head = STR_INIT;
    if (step->step_stats.len)
        proto_add_bytes(&metadata, 1, step->step_stats.data, step->step_stats.len);
    for (int i = 0; step->request.output_partition_graphs && i < step->executable->compiled->n_partitions; i++) {
        struct str graph = STR_INIT;
        graph_to_graphdef(&step->executable->compiled->partitions[i].graph, NULL, &graph);
        proto_add_bytes(&metadata, 3, graph.data, graph.len);
        str_fini(&graph);
    }
    if (metadata.len) {
        proto_add_tag(&head, 2, 2);
        proto_add_varint(&head, metadata.len);
        grpc_body_add_copy(body, head.data, head.len);
        grpc_body_add_copy(body, metadata.data, metadata.len);
    }
    str_fini(&metadata);
    str_fini(&head);
}

static void answer_error(struct grpc_call *call, bool in_body, struct status *status_take) {
    if (!in_body) {
        grpc_call_fail(call, status_take);
        return;
    }
    struct str head = STR_INIT;
    struct grpc_body body;
    const char *message = status_message(status_take);
    proto_add_int(&head, 3, (uint64_t)status_code(status_take));
    proto_add_bytes(&head, 4, message, strlen(message));
    grpc_body_init(&body);
    grpc_body_add_copy(&body, head.data, head.len);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
    str_fini(&head);
    status_unref(status_take);
}

static void answer(struct step *step, struct status *status_take) {
    metric_add(&steps_total, 1);
    metric_observe_us(&step_latency, (clock_now_ns() - step->start_ns) / 1000);
    if (status_take) {
        metric_add(&steps_failed, 1);
        answer_error(step->call, step->request.store_errors_in_response_body, status_take);
        return;
    }
    struct grpc_body body;
    const struct executable *executable = step->executable;
    grpc_body_init(&body);
    for (int i = 0; i < executable->signature.n_fetches; i++)
        if (!executable->is_repeated_fetch[i])
            add_fetch(&body, executable->signature.fetches[i], &step->fetched[i]);
    if (step->request.trace_level > 0 || step->request.output_partition_graphs)
        add_metadata(step, &body);
    grpc_call_reply(step->call, &body);
    grpc_body_fini(&body);
}

static void step_free(struct step *step) {
    struct session *session = step->session;
    struct arena arena = step->arena;
    buffer_unref(step->message.buffer);
    for (int i = 0; step->feeds && i < step->request.n_feeds; i++)
        tensor_clear(&step->feeds[i]);
    for (int i = 0; step->fetched && i < step->request.n_fetches; i++)
        tensor_clear(&step->fetched[i].value);
    step_machine_fini(&step->machine);
    str_fini(&step->step_stats);
    executable_unref(step->executable);
    arena_fini(&arena); /* the step itself lies in it */
    session_unref(session);
}

static void timer_closed(struct loop_timer *timer) { step_free(CONTAINER_OF(timer, struct step, timer)); }

/* Answers and goes. Takes the status. */
static void finish(struct step *step, struct status *status_take) {
    CHECK(!step->is_finished);
    step->is_finished = true;
    list_remove(&step->link);
    list_remove(&step->session_link);
    list_remove(&step->live_link);
    step->session->n_steps--;
    step->session->service->n_steps--;
    for (int i = 0; step->parts && i < step->machine.n_parts; i++)
        task_call_forget(&step->parts[i].call);
    answer(step, status_take);
    if (step->has_timer)
        loop_timer_close(&step->timer, timer_closed);
    else
        step_free(step);
}

/* ---- carrying out the machine's actions ---- */

static void cancel_parts(struct step *step) {
    Millrace__CancelStep message = MILLRACE__CANCEL_STEP__INIT;
    message.step_id = step->id;
    message.code = (int32_t)status_code(step->machine.status);
    message.message = (char *)status_message(step->machine.status);
    size_t len = millrace__cancel_step__get_packed_size(&message);
    uint8_t *bytes = xmalloc(len);
    millrace__cancel_step__pack(&message, bytes);
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            task_send(step->executable->registrations[i].task,
                      &(struct wire_out){.type = WIRE_CANCEL_STEP, .id = step->id, .meta = {(char *)bytes, len}});
    free(bytes);
}

static void on_timeout(struct loop_timer *timer);

static void start_timer(struct step *step, int64_t ms) {
    if (!step->has_timer)
        loop_timer_init(step->session->service->loop, &step->timer, on_timeout);
    step->has_timer = true;
    loop_timer_start(&step->timer, ms, 0);
}

static void carry_out(struct step *step, unsigned actions) {
    if (actions & STEP_CANCEL_PARTS) {
        cancel_parts(step);
        start_timer(step, END_GRACE_MS);
    }
    if (actions & STEP_FINISH)
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
    carry_out(step, step_machine_cancel(&step->machine, why_take));
}

static void on_call_cancelled(struct grpc_call *call, void *user) {
    step_cancel(user, status_new(STATUS_CANCELLED, "The client cancelled the step, its deadline passed, or its connection ended"));
}

/* Its parts were cancelled and do not end: the client has its answer, what they still say is dropped. */
static void give_up(struct step *step) {
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            log_warning("step %016llx was cancelled %d s ago, and task %s has not ended it", (unsigned long long)step->id,
                        END_GRACE_MS / 1000, task_name(step->executable->registrations[i].task));
    finish(step, status_ref(step->machine.status));
}

static void on_timeout(struct loop_timer *timer) {
    struct step *step = CONTAINER_OF(timer, struct step, timer);
    if (step->is_finished)
        return;
    if (step->machine.state == STEP_ENDING)
        give_up(step);
    else
        step_cancel(step, status_new(STATUS_DEADLINE_EXCEEDED, "Timed out waiting for the step after %lld ms",
                                     (long long)step->request.timeout_ms));
}

void steps_cancel_all(struct session *session, struct status *why) {
    for (struct list *link = session->steps.next; link != &session->steps;) {
        struct step *step = LIST_ENTRY(link, struct step, session_link);
        link = link->next;
        step_cancel(step, status_ref(why));
    }
}

/* ---- what comes back ---- */

static struct status *take_fetch(struct step *step, int position, const Millrace__TensorMeta *meta, struct wire_message *message,
                                 size_t *offset) {
    struct fetched *fetched = &step->fetched[position];
    size_t begin;
    if (meta->dead)
        return status_invalid("Retval[%d] does not have value: %s was fetched, but its branch was not taken", position,
                              step->executable->signature.fetches[position]);
    if (meta->inline_proto.len) {
        fetched->proto = (struct span){arena_memdup(&step->arena, meta->inline_proto.data, meta->inline_proto.len), meta->inline_proto.len};
        return NULL;
    }
    struct shape shape = {(int)MIN(meta->n_dim, (size_t)SHAPE_MAX_RANK + 1), meta->dim};
    int64_t n_elements, size_bytes;
    if (meta->dtype >= DT_N_TYPES || !dtype_in((enum dtype)meta->dtype, DTYPES_PLAIN))
        return status_internal("malformed fetch in RunDone: dtype %u without its TensorProto", meta->dtype);
    TRY(shape_n_elements(shape, &n_elements));
    if (mul_overflows_i64(n_elements, (int64_t)dtype_size((enum dtype)meta->dtype), &size_bytes) ||
        (uint64_t)size_bytes != meta->size_bytes || !wire_payload_next(message, offset, meta->size_bytes, &begin))
        return status_internal("malformed fetch in RunDone: %llu bytes", (unsigned long long)meta->size_bytes);
    if (!message->payload)
        return tensor_new(allocator_host(), (enum dtype)meta->dtype, shape, &fetched->value);
    return tensor_view(message->payload, message->payload->data + begin, (enum dtype)meta->dtype, shape, &fetched->value);
}

static struct status *take_run_done(struct step *step, const struct partition *partition, const Millrace__RunDone *reply,
                                    struct wire_message *message) {
    size_t offset = 0;
    if (reply->step_stats.len)
        str_add_bytes(&step->step_stats, reply->step_stats.data, reply->step_stats.len);
    if (reply->n_fetch != (size_t)partition->n_fetches)
        return status_internal("RunDone brought %zu fetches instead of %d", reply->n_fetch, partition->n_fetches);
    for (int i = 0; i < partition->n_fetches; i++)
        TRY(take_fetch(step, partition->fetches[i], reply->fetch[i], message, &offset));
    return NULL;
}

static void *arena_protobuf_alloc(void *arena, size_t size) { return arena_alloc(arena, size); }
static void arena_protobuf_free(void *arena, void *block) {}

static void on_part_reply(struct task_call *call, struct status *status_take, struct wire_message *message) {
    struct step_part *part = CONTAINER_OF(call, struct step_part, call);
    struct step *step = part->step;
    struct status *st = status_take;
    bool is_derived = false;
    if (!st) {
        ProtobufCAllocator allocator = {arena_protobuf_alloc, arena_protobuf_free, &step->arena};
        Millrace__RunDone *reply = millrace__run_done__unpack(&allocator, message->meta.len, (const uint8_t *)message->meta.data);
        if (!reply)
            st = status_internal("RunDone is malformed");
        else if (reply->code)
            st = status_from_wire(reply->code, span_of(reply->message));
        else
            st = take_run_done(step, &step->executable->compiled->partitions[part->index], reply, message);
        is_derived = reply && reply->is_derived;
        if (st)
            st = status_prefix_take(st, "From %s:\n", task_name(step->executable->registrations[part->index].task));
    }
    carry_out(step, step_machine_part_ended(&step->machine, part->index, st, is_derived));
}

/* ---- sending it out ---- */

static void fill_meta(struct step *step, const struct tensor *value, struct span proto, Millrace__TensorMeta *meta) {
    millrace__tensor_meta__init(meta);
    meta->dtype = value->dtype;
    if (!dtype_in((enum dtype)value->dtype, DTYPES_PLAIN)) {
        meta->inline_proto.data = (uint8_t *)proto.data;
        meta->inline_proto.len = proto.len;
        return;
    }
    meta->n_dim = value->rank;
    meta->dim = (int64_t *)tensor_dims(value);
    meta->size_bytes = tensor_size_bytes(value);
}

static void send_part(struct step *step, int index) {
    const struct partition *partition = &step->executable->compiled->partitions[index];
    const struct registration *registration = &step->executable->registrations[index];
    struct step_part *part = &step->parts[index];
    Millrace__RunGraph message = MILLRACE__RUN_GRAPH__INIT;
    Millrace__TensorMeta *metas = arena_array(&step->arena, Millrace__TensorMeta, partition->n_feeds + 1);
    const struct tensor **tensors = arena_array(&step->arena, const struct tensor *, partition->n_feeds + 1);
    size_t n_tensors = 0;
    message.graph = registration->graph;
    message.step_id = step->id;
    message.master_incarnation = step->session->service->incarnation;
    message.oldest_live_step = steps_oldest_live(step->session->service);
    message.collect_stats = step->request.trace_level > 0;
    message.timeout_ms = step->request.timeout_ms;
    message.n_feed = (size_t)partition->n_feeds;
    message.feed = arena_array(&step->arena, Millrace__TensorMeta *, partition->n_feeds + 1);
    for (int i = 0; i < partition->n_feeds; i++) {
        int position = partition->feeds[i];
        fill_meta(step, &step->feeds[position], step->request.feed_protos[position], &metas[i]);
        message.feed[i] = &metas[i];
        if (!metas[i].inline_proto.data)
            tensors[n_tensors++] = &step->feeds[position];
    }
    size_t len = millrace__run_graph__get_packed_size(&message);
    uint8_t *bytes = arena_alloc(&step->arena, len + 1);
    millrace__run_graph__pack(&message, bytes);
    part->call.on_reply = on_part_reply;
    struct wire_out out = {
        .type = WIRE_RUN_GRAPH, .id = step->id, .meta = {(char *)bytes, len}, .tensors = tensors, .n_tensors = n_tensors};
    task_call_start(registration->task, &part->call, &out);
}

static struct status *check_feeds(const struct step *step) {
    for (int i = 0; i < step->request.n_feeds; i++) {
        enum dtype want = step->executable->compiled->feed_types[i], have = (enum dtype)step->feeds[i].dtype;
        if (have != want)
            return status_invalid("Expects arg[%d] (%s) to be %s but %s is provided", i, step->executable->signature.feeds[i],
                                  dtype_name(want), dtype_name(have));
    }
    return NULL;
}

static void launch(struct step *step) {
    struct service *service = step->session->service;
    int n_parts = step->executable->compiled->n_partitions;
    struct status *st = check_feeds(step);
    if (!st)
        st = session_check_incarnations(step->session, step->executable);
    if (st) {
        finish(step, st);
        return;
    }
    step->id = tasks_new_id(service->tasks);
    list_push_back(&service->live_steps, &step->live_link);
    step->parts = arena_array(&step->arena, struct step_part, n_parts + 1);
    step->fetched = arena_alloc_aligned(&step->arena, sizeof(struct fetched) * (size_t)(step->request.n_fetches + 1), 64);
    memset(step->fetched, 0, sizeof(struct fetched) * (size_t)(step->request.n_fetches + 1));
    step->is_running = arena_array(&step->arena, bool, n_parts + 1);
    step_machine_init(&step->machine, n_parts, step->is_running);
    for (int i = 0; i < n_parts; i++) {
        step->parts[i].step = step;
        step->parts[i].index = i;
        send_part(step, i);
    }
    carry_out(step, step_machine_start(&step->machine));
}

struct step *step_of_session_link(struct list *link) {
    return LIST_ENTRY(link, struct step, session_link);
}
struct step *step_of_waiting_link(struct list *link) {
    return LIST_ENTRY(link, struct step, link);
}

void step_executable_settled(struct step *step) {
    struct executable *executable = step->executable;
    if (executable->state == EXECUTABLE_FAILED)
        finish(step, status_ref(executable->status));
    else if (executable_is_ready(executable))
        launch(step);
    else
        list_push_back(&executable->waiting, &step->link);
}

/* ---- the request ---- */

static struct status *decode_feeds(struct step *step) {
    int n = step->request.n_feeds;
    step->feeds = arena_alloc_aligned(&step->arena, sizeof(struct tensor) * (size_t)(n + 1), 64);
    memset(step->feeds, 0, sizeof(struct tensor) * (size_t)(n + 1));
    for (int i = 0; i < n; i++) {
        struct status *st = tensor_proto_check_claim(step->request.feed_protos[i], FEED_SPARE_BYTES);
        if (!st)
            st = tensor_from_proto(step->request.feed_protos[i], step->message.buffer, allocator_host(), &step->feeds[i]);
        if (st)
            return status_prefix_take(st, "Invalid TensorProto for feed value %d (%.*s): ", i,
                                      (int)MIN(step->request.feed_names[i].len, (size_t)200), step->request.feed_names[i].data);
    }
    return NULL;
}

static const char **copy_names(struct arena *arena, const struct span *names, int n) {
    const char **copies = arena_array(arena, const char *, n + 1);
    for (int i = 0; i < n; i++)
        copies[i] = arena_strndup(arena, names[i].data, names[i].len);
    return copies;
}

static void fill_executable(void *arg, struct executable *executable) {
    const struct run_step_request *request = arg;
    struct signature *signature = &executable->signature;
    signature->feeds = copy_names(&executable->arena, request->feed_names, request->n_feeds);
    signature->fetches = copy_names(&executable->arena, request->fetches, request->n_fetches);
    signature->targets = copy_names(&executable->arena, request->targets, request->n_targets);
    signature->n_feeds = request->n_feeds;
    signature->n_fetches = request->n_fetches;
    signature->n_targets = request->n_targets;
    executable->is_repeated_fetch = arena_array(&executable->arena, bool, request->n_fetches + 1);
    struct strmap seen;
    strmap_init(&seen);
    for (int i = 0; i < request->n_fetches; i++)
        executable->is_repeated_fetch[i] = strmap_put(&seen, signature->fetches[i], executable) != NULL;
    strmap_fini(&seen);
}

void step_run(struct session *session, struct grpc_call *call, const struct run_step_request *request, struct arena *arena_take) {
    struct arena arena = *arena_take;
    struct step *step = arena_alloc_aligned(&arena, sizeof *step, 64);
    arena_init(arena_take);
    memset(step, 0, sizeof *step);
    step->arena = arena;
    step->session = session;
    step->call = call;
    step->request = *request;
    step->message = *grpc_call_message(call);
    if (step->message.buffer)
        buffer_ref(step->message.buffer);
    step->start_ns = clock_now_ns();
    list_init(&step->link);
    list_init(&step->live_link);
    session_ref(session);
    list_push_back(&session->steps, &step->session_link);
    session->n_steps++;
    session->n_steps_total++;
    session->service->n_steps++;
    grpc_call_set_user(call, step, on_call_cancelled);
    struct status *st = decode_feeds(step);
    if (st) {
        finish(step, st);
        return;
    }
    if (request->timeout_ms > 0)
        start_timer(step, request->timeout_ms);
    step->executable = session_executable(session, run_step_request_key(request, &step->arena), fill_executable, &step->request);
    step_executable_settled(step);
}

uint64_t steps_oldest_live(struct service *service) {
    struct list *first = service->live_steps.next;
    return first == &service->live_steps ? 0 : LIST_ENTRY(first, struct step, live_link)->id;
}

void step_describe(const struct step *step, struct str *out) {
    str_addf(out, "step %016llx session %s, %.3f s: ", (unsigned long long)step->id, step->session->handle,
             (double)(clock_now_ns() - step->start_ns) / 1e9);
    if (step->machine.state == STEP_NEW) {
        str_add(out, step->executable && step->executable->state == EXECUTABLE_COMPILING ? "being compiled\n"
                                                                                         : "waits for its graphs to be registered\n");
        return;
    }
    str_add(out, step->machine.state == STEP_ENDING ? "is being ended; waits for" : "waits for");
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            str_addf(out, " %s", task_name(step->executable->registrations[i].task));
    str_add_char(out, '\n');
}
