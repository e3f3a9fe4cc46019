/* Sends a step's messages to its tasks (RunGraph, FeedStep, CancelStep) and takes their replies
 * (RunDone, StepFetched). */
#include "master/step/step_internal.h"
#include "rpc/wire/step_messages.h"
#include "rpc/wire/wire_values.h"

/* ---- replies ---- */

/* Takes a reply's TensorProto as it is. An inline one is copied, because the message is not
 * kept. */
static struct status *take_fetched_proto(struct step *step, const struct tensor_meta *meta,
                                         const struct wire_message *message, size_t *offset,
                                         struct fetched *fetched) {
    struct span proto;
    TRY(tensor_meta_take_proto(meta, message, offset, &proto));
    if (meta->proto.len > 0) {
        fetched->proto =
            (struct span){arena_memdup(&step->arena, proto.data, proto.len), proto.len};
        return NULL;
    }
    int64_t size = (int64_t)proto.len;
    fetched->proto = proto;
    return tensor_view(message->payload, (char *)(uintptr_t)proto.data, DT_UINT8,
                       (struct shape){1, &size}, &fetched->value);
}

static struct status *take_fetch(struct step *step, int position, struct span fetch,
                                 const struct wire_message *message, size_t *offset) {
    struct fetched *fetched = &step->fetched[position];
    struct tensor_meta meta;
    struct status *st = tensor_meta_read(fetch, &meta);
    if (!st && meta.is_dead)
        return status_invalid(
            "Retval[%d] does not have value: %s was fetched, but its branch was not taken",
            position, step->executable->signature.fetches[position]);
    if (!st && tensor_meta_is_plain(&meta) && meta.proto.len == 0)
        st = tensor_meta_take(&meta, message, offset, allocator_host(), &fetched->value);
    else if (!st)
        st = take_fetched_proto(step, &meta, message, offset, fetched);
    if (!st)
        return NULL;
    struct status *malformed = status_internal("malformed fetch: %s", status_message(st));
    status_unref(st);
    return malformed;
}

static struct status *take_run_done(struct step *step, const struct partition *partition,
                                    struct run_done_message *reply,
                                    const struct wire_message *message) {
    size_t offset = 0;
    struct span fetch;
    int n_fetches = step->partial ? 0 : partition->n_fetches;
    if (reply->n_fetches != (size_t)n_fetches)
        return status_internal("RunDone has %zu fetches instead of %d", reply->n_fetches,
                               n_fetches);
    for (int i = 0; i < n_fetches && run_done_next_fetch(reply, &fetch); i++)
        TRY(take_fetch(step, partition->fetches[i], fetch, message, &offset));
    return NULL;
}

/* The trace is the last part of the payload. */
static struct status *take_trace(struct step *step, const struct run_done_message *reply,
                                 const struct wire_message *message) {
    uint64_t size = reply->trace_size_bytes;
    if (size == 0)
        return NULL;
    if (!message->payload || size > message->payload_len)
        return status_internal("malformed trace in RunDone: %llu bytes", (unsigned long long)size);
    struct trace *trace = arena_new(&step->arena, struct trace);
    trace->buffer = buffer_ref(message->payload);
    trace->bytes = (struct span){message->payload->data + message->payload_len - size, size};
    trace->next = step->traces;
    step->traces = trace;
    step->traces_size_bytes += size;
    return NULL;
}

static struct status *take_reply(struct step *step, int index, const struct wire_message *message,
                                 bool *ret_is_derived) {
    struct run_done_message reply;
    struct status *st = run_done_read(message->meta, &reply);
    if (st) {
        status_unref(st);
        return status_internal("RunDone is malformed");
    }
    *ret_is_derived = reply.is_derived;
    if (reply.code)
        return status_from_wire(reply.code, reply.message);
    TRY(take_trace(step, &reply, message));
    return take_run_done(step, &step->executable->compiled->partitions[index], &reply, message);
}

static void on_part_reply(struct task_call *call, struct status *status_take,
                          struct wire_message *message) {
    struct step_part *part = CONTAINER_OF(call, struct step_part, call);
    struct step *step = part->step;
    struct status *st = status_take;
    bool is_derived = false;
    if (!st)
        st = status_prefix_take(take_reply(step, part->index, message, &is_derived), "From %s:\n",
                                task_name(step->executable->registrations[part->index].task));
    step_carry_out(step, step_machine_part_ended(&step->machine, part->index, st, is_derived));
}

static struct status *take_step_fetched(struct step *step, int index,
                                        const struct wire_message *message, int *ret_position) {
    const struct partition *partition = &step->executable->compiled->partitions[index];
    struct step_fetched_message fetched;
    size_t offset = 0;
    struct status *st = step_fetched_read(message->meta, &fetched);
    if (st || !step->partial || fetched.position >= (uint32_t)partition->n_fetches) {
        status_unref(st);
        return status_internal("StepFetched from %s is malformed",
                               task_name(step->executable->registrations[index].task));
    }
    *ret_position = partition->fetches[fetched.position];
    if (step->fetched[*ret_position].is_there)
        return NULL;
    return take_fetch(step, *ret_position, fetched.fetch, message, &offset);
}

/* A fetch of a partial run has arrived before the reply. An invalid one ends the step. */
static void on_part_fetched(struct task_call *call, struct wire_message *message) {
    struct step_part *part = CONTAINER_OF(call, struct step_part, call);
    struct step *step = part->step;
    int position;
    struct status *st = take_step_fetched(step, part->index, message, &position);
    if (st) {
        step_cancel(step, st);
        return;
    }
    step->fetched[position].is_there = true;
    partial_run_fetched(step->partial, position);
}

/* A SaveV2 node of the part has taken its values. */
static void on_part_taken(struct task_call *call) {
    step_save_taken(CONTAINER_OF(call, struct step_part, call)->step);
}

/* ---- requests ---- */

/* Adds the feed to the payload, or prepares its TensorProto for the meta. `buffer` contains the
 * TensorProto; NULL: it is copied. */
static struct status *add_feed(struct wire_values *values, const struct step *step, int position,
                               struct buffer *buffer, struct step_feed *ret) {
    const struct tensor *value = &step->feeds[position];
    *ret = (struct step_feed){.value = value};
    if (!dtype_is_object((enum dtype)value->dtype) && !step->is_passed_on[position])
        return wire_values_add(values, value, &ret->proto_size_bytes);
    ret->proto = step->request.feed_protos[position];
    return wire_values_add_proto(values, ret->proto, buffer, &ret->proto_size_bytes);
}

static struct status *write_run_graph(struct step *step, int index, struct wire_values *values,
                                      struct str *meta) {
    const struct partition *partition = &step->executable->compiled->partitions[index];
    bool is_traced = step->request.trace_level > 0 || step->has_cost_graph || step->is_sampled ||
                     step->is_profiled;
    struct task *task = step->executable->registrations[index].task;
    struct run_graph_message message = {.graph = step->executable->registrations[index].graph,
                                        .step_id = step->id,
                                        .master_incarnation = step->session->env->incarnation,
                                        .oldest_live_step = steps_oldest_live(step->session->env),
                                        .collect_stats = is_traced,
                                        .clock_ahead_us = is_traced ? task_clock_ahead_us(task) : 0,
                                        .timeout_ms = step->request.timeout_ms,
                                        .is_partial = step->partial != NULL,
                                        .tells_saves = step->barrier.is_save};
    run_graph_write(meta, &message);
    for (int i = 0; i < partition->n_feeds && !step->partial; i++) {
        struct step_feed feed;
        TRY(add_feed(values, step, partition->feeds[i], step->message.buffer, &feed));
        run_graph_add_feed(meta, &feed);
    }
    return NULL;
}

void step_send_part(struct step *step, int index) {
    struct step_part *part = &step->parts[index];
    struct task *task = step->executable->registrations[index].task;
    struct wire_values values;
    struct str meta = STR_INIT;
    part->call.on_reply = on_part_reply;
    part->call.on_fetched = on_part_fetched;
    part->call.on_taken = on_part_taken;
    wire_values_init(&values, (size_t)step->executable->compiled->partitions[index].n_feeds);
    struct status *st = write_run_graph(step, index, &values, &meta);
    struct wire_out out = {.type = WIRE_RUN_GRAPH,
                           .id = step->id,
                           .meta = {meta.data, meta.len},
                           .tensors = values.parts,
                           .n_tensors = values.n_parts};
    if (st)
        task_call_refuse(task, &part->call, st);
    else
        task_call_start(task, &part->call, &out);
    wire_values_fini(&values);
    str_fini(&meta);
}

void step_send_feeds(struct step *step, int index, const bool *is_new) {
    const struct partition *partition = &step->executable->compiled->partitions[index];
    struct str meta = STR_INIT;
    struct wire_values values;
    struct status *st = NULL;
    wire_values_init(&values, (size_t)partition->n_feeds);
    for (int i = 0; i < partition->n_feeds && !st; i++) {
        struct step_feed feed;
        if (!is_new[partition->feeds[i]])
            continue;
        st = add_feed(&values, step, partition->feeds[i], NULL, &feed);
        if (!st)
            feed_step_add(&meta, (uint32_t)i, &feed);
    }
    if (!st)
        st = wire_check_meta(WIRE_FEED_STEP, meta.len);
    if (st)
        step_cancel(step, st);
    else if (meta.len > 0)
        task_send_in_order(step->executable->registrations[index].task,
                           &(struct wire_out){.type = WIRE_FEED_STEP,
                                              .id = step->id,
                                              .meta = {meta.data, meta.len},
                                              .tensors = values.parts,
                                              .n_tensors = values.n_parts});
    wire_values_fini(&values);
    str_fini(&meta);
}

void step_cancel_parts(struct step *step) {
    struct str meta = STR_INIT;
    cancel_step_write(&meta, step->id, step->machine.status);
    for (int i = 0; i < step->machine.n_parts; i++)
        if (step->is_running[i])
            task_send(step->executable->registrations[i].task,
                      &(struct wire_out){
                          .type = WIRE_CANCEL_STEP, .id = step->id, .meta = {meta.data, meta.len}});
    str_fini(&meta);
}
