/* Sends a step's messages to its tasks (RunGraph, FeedStep, CancelStep) and takes their replies
 * (RunDone, StepFetched). */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "master/step/step_internal.h"
#include "proto/worker.pb-c.h"
#include "rpc/wire/wire_values.h"

/* ---- replies ---- */

static struct status *take_fetch(struct step *step, int position, const Millrace__TensorMeta *meta,
                                 struct wire_message *message, size_t *offset) {
    struct fetched *fetched = &step->fetched[position];
    size_t begin;
    if (meta->dead)
        return status_invalid(
            "Retval[%d] does not have value: %s was fetched, but its branch was not taken",
            position, step->executable->signature.fetches[position]);
    if (meta->dtype < DT_N_TYPES && dtype_is_object((enum dtype)meta->dtype) &&
        meta->inline_proto.len == 0) {
        int64_t size = (int64_t)meta->size_bytes;
        if (size <= 0 || !wire_payload_next(message, offset, meta->size_bytes, &begin))
            return status_internal("malformed fetch in RunDone: %s without its TensorProto",
                                   dtype_name((enum dtype)meta->dtype));
        fetched->proto = (struct span){message->payload->data + begin, meta->size_bytes};
        return tensor_view(message->payload, message->payload->data + begin, DT_UINT8,
                           (struct shape){1, &size}, &fetched->value);
    }
    if (meta->inline_proto.len) {
        fetched->proto = (struct span){
            arena_memdup(&step->arena, meta->inline_proto.data, meta->inline_proto.len),
            meta->inline_proto.len};
        return NULL;
    }
    struct shape shape = {(int)MIN(meta->n_dim, (size_t)SHAPE_MAX_RANK + 1), meta->dim};
    int64_t n_elements, size_bytes;
    if (meta->dtype >= DT_N_TYPES || !dtype_in((enum dtype)meta->dtype, DTYPES_PLAIN))
        return status_internal("malformed fetch in RunDone: dtype %u without its TensorProto",
                               meta->dtype);
    TRY(shape_n_elements(shape, &n_elements));
    if (mul_overflows_i64(n_elements, (int64_t)dtype_size((enum dtype)meta->dtype), &size_bytes) ||
        (uint64_t)size_bytes != meta->size_bytes ||
        !wire_payload_next(message, offset, meta->size_bytes, &begin))
        return status_internal("malformed fetch in RunDone: %llu bytes",
                               (unsigned long long)meta->size_bytes);
    if (!message->payload)
        return tensor_new(allocator_host(), (enum dtype)meta->dtype, shape, &fetched->value);
    return tensor_view(message->payload, message->payload->data + begin, (enum dtype)meta->dtype,
                       shape, &fetched->value);
}

static struct status *take_run_done(struct step *step, const struct partition *partition,
                                    const Millrace__RunDone *reply, struct wire_message *message) {
    size_t offset = 0;
    if (reply->step_stats.len)
        str_add_bytes(&step->step_stats, reply->step_stats.data, reply->step_stats.len);
    int n_fetches = step->partial ? 0 : partition->n_fetches;
    if (reply->n_fetch != (size_t)n_fetches)
        return status_internal("RunDone brought %zu fetches instead of %d", reply->n_fetch,
                               n_fetches);
    for (int i = 0; i < n_fetches; i++)
        TRY(take_fetch(step, partition->fetches[i], reply->fetch[i], message, &offset));
    return NULL;
}

static void *arena_protobuf_alloc(void *arena, size_t size) { return arena_alloc(arena, size); }
static void arena_protobuf_free(void *arena, void *block) {}

static void on_part_reply(struct task_call *call, struct status *status_take,
                          struct wire_message *message) {
    struct step_part *part = CONTAINER_OF(call, struct step_part, call);
    struct step *step = part->step;
    struct status *st = status_take;
    bool is_derived = false;
    if (!st) {
        ProtobufCAllocator allocator = {arena_protobuf_alloc, arena_protobuf_free, &step->arena};
        Millrace__RunDone *reply = millrace__run_done__unpack(&allocator, message->meta.len,
                                                              (const uint8_t *)message->meta.data);
        if (!reply)
            st = status_internal("RunDone is malformed");
        else if (reply->code)
            st = status_from_wire(reply->code, span_of(reply->message));
        else
            st = take_run_done(step, &step->executable->compiled->partitions[part->index], reply,
                               message);
        is_derived = reply && reply->is_derived;
        if (st)
            st = status_prefix_take(st, "From %s:\n",
                                    task_name(step->executable->registrations[part->index].task));
    }
    step_carry_out(step, step_machine_part_ended(&step->machine, part->index, st, is_derived));
}

/* A fetch of a partial run has arrived before the reply. An invalid one ends the step. */
static void on_part_fetched(struct task_call *call, struct wire_message *message) {
    struct step_part *part = CONTAINER_OF(call, struct step_part, call);
    struct step *step = part->step;
    const struct partition *partition = &step->executable->compiled->partitions[part->index];
    ProtobufCAllocator allocator = {arena_protobuf_alloc, arena_protobuf_free, &step->arena};
    Millrace__StepFetched *fetched = millrace__step_fetched__unpack(
        &allocator, message->meta.len, (const uint8_t *)message->meta.data);
    struct status *st = NULL;
    size_t offset = 0;
    int position = -1;
    if (!step->partial || !fetched || !fetched->fetch ||
        fetched->position >= (uint32_t)partition->n_fetches)
        st = status_internal("StepFetched from %s is malformed",
                             task_name(step->executable->registrations[part->index].task));
    else if (!step->fetched[position = partition->fetches[fetched->position]].is_there)
        st = take_fetch(step, position, fetched->fetch, message, &offset);
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

/* Adds the feed to the payload, or to the meta. `buffer` holds `proto`; NULL: it is copied. */
static struct status *add_feed(struct wire_values *values, const struct tensor *value,
                               struct span proto, struct buffer *buffer,
                               Millrace__TensorMeta *meta) {
    size_t proto_bytes;
    millrace__tensor_meta__init(meta);
    meta->dtype = value->dtype;
    if (dtype_is_object((enum dtype)value->dtype)) {
        TRY(wire_values_add_proto(values, proto, buffer, &proto_bytes));
        meta->size_bytes = proto_bytes;
        if (proto_bytes == 0) {
            meta->inline_proto.data = (uint8_t *)proto.data;
            meta->inline_proto.len = proto.len;
        }
        return NULL;
    }
    TRY(wire_values_add(values, value, &proto_bytes));
    meta->n_dim = value->rank;
    meta->dim = (int64_t *)tensor_dims(value);
    meta->size_bytes = tensor_size_bytes(value);
    return NULL;
}

void step_send_part(struct step *step, int index) {
    const struct partition *partition = &step->executable->compiled->partitions[index];
    const struct registration *registration = &step->executable->registrations[index];
    struct step_part *part = &step->parts[index];
    Millrace__RunGraph message = MILLRACE__RUN_GRAPH__INIT;
    Millrace__TensorMeta *metas =
        arena_array(&step->arena, Millrace__TensorMeta, partition->n_feeds + 1);
    struct wire_values values;
    struct status *st = NULL;
    message.graph = registration->graph;
    message.step_id = step->id;
    message.master_incarnation = step->session->env->incarnation;
    message.oldest_live_step = steps_oldest_live(step->session->env);
    message.collect_stats = step->request.trace_level > 0;
    message.timeout_ms = step->request.timeout_ms;
    message.is_partial = step->partial != NULL;
    message.tells_saves = step->barrier.is_save;
    int n_feeds = step->partial ? 0 : partition->n_feeds;
    message.n_feed = (size_t)n_feeds;
    message.feed = arena_array(&step->arena, Millrace__TensorMeta *, partition->n_feeds + 1);
    wire_values_init(&values, (size_t)n_feeds);
    for (int i = 0; i < n_feeds && !st; i++) {
        int position = partition->feeds[i];
        st = add_feed(&values, &step->feeds[position], step->request.feed_protos[position],
                      step->message.buffer, &metas[i]);
        message.feed[i] = &metas[i];
    }
    part->call.on_reply = on_part_reply;
    part->call.on_fetched = on_part_fetched;
    part->call.on_taken = on_part_taken;
    if (st) {
        wire_values_fini(&values);
        task_call_refuse(registration->task, &part->call, st);
        return;
    }
    size_t len = millrace__run_graph__get_packed_size(&message);
    uint8_t *bytes = arena_alloc(&step->arena, len + 1);
    millrace__run_graph__pack(&message, bytes);
    struct wire_out out = {.type = WIRE_RUN_GRAPH,
                           .id = step->id,
                           .meta = {(char *)bytes, len},
                           .tensors = values.parts,
                           .n_tensors = values.n_parts};
    task_call_start(registration->task, &part->call, &out);
    wire_values_fini(&values);
}

void step_send_feeds(struct step *step, int index, const bool *is_new) {
    const struct partition *partition = &step->executable->compiled->partitions[index];
    struct str meta = STR_INIT;
    struct wire_values values;
    struct status *st = NULL;
    wire_values_init(&values, (size_t)partition->n_feeds);
    for (int i = 0; i < partition->n_feeds && !st; i++) {
        int position = partition->feeds[i];
        Millrace__TensorMeta feed;
        if (!is_new[position])
            continue;
        st = add_feed(&values, &step->feeds[position], step->request.feed_protos[position], NULL,
                      &feed);
        if (st)
            break;
        proto_add_tag(&meta, 1, 0);
        proto_add_varint(&meta, (uint64_t)i);
        size_t len = millrace__tensor_meta__get_packed_size(&feed);
        proto_add_tag(&meta, 2, 2);
        proto_add_varint(&meta, len);
        str_reserve(&meta, meta.len + len);
        millrace__tensor_meta__pack(&feed, (uint8_t *)meta.data + meta.len);
        meta.len += len;
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
                      &(struct wire_out){
                          .type = WIRE_CANCEL_STEP, .id = step->id, .meta = {(char *)bytes, len}});
    free(bytes);
}
