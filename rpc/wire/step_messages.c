/* Writes and reads the messages of a step between master and worker, field by field. */
#include "rpc/wire/step_messages.h"

#include "common/tensor/tensor_proto.h"

/* Finds the next field of that number in the rest of a message, and moves the rest past it. */
static bool next_bytes(struct span *rest, uint32_t number, struct span *ret) {
    struct proto_field field;
    while (proto_next(rest, &field) > 0)
        if (field.number == number && field.wire_type == 2) {
            *ret = field.bytes;
            return true;
        }
    return false;
}

/* ---- RunGraph ---- */

struct status *run_graph_read(struct span in, struct run_graph_message *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct run_graph_message){.feeds = in};
    while ((rc = proto_next(&in, &field)) > 0) {
        bool is_number = field.wire_type != 2;
        if (field.number == 1 && is_number)
            ret->graph = field.value;
        else if (field.number == 2 && is_number)
            ret->step_id = field.value;
        else if (field.number == 3 && is_number)
            ret->master_incarnation = field.value;
        else if (field.number == 4 && is_number)
            ret->oldest_live_step = field.value;
        else if (field.number == 6 && is_number)
            ret->collect_stats = field.value != 0;
        else if (field.number == 7 && is_number)
            ret->timeout_ms = (int64_t)field.value;
        else if (field.number == 8 && is_number)
            ret->is_partial = field.value != 0;
        else if (field.number == 9 && is_number)
            ret->tells_saves = field.value != 0;
        else if (field.number == 10 && is_number)
            ret->clock_ahead_us = (int64_t)field.value;
    }
    return rc < 0 ? message_malformed("RunGraph") : NULL;
}

void run_graph_write(struct str *out, const struct run_graph_message *message) {
    proto_add_int(out, 1, message->graph);
    proto_add_fixed64(out, 2, message->step_id);
    proto_add_fixed64(out, 3, message->master_incarnation);
    proto_add_fixed64(out, 4, message->oldest_live_step);
    proto_add_int(out, 6, message->collect_stats);
    proto_add_int(out, 7, (uint64_t)message->timeout_ms);
    proto_add_int(out, 8, message->is_partial);
    proto_add_int(out, 9, message->tells_saves);
    proto_add_int(out, 10, (uint64_t)message->clock_ahead_us);
}

static void add_feed(struct str *out, uint32_t number, const struct step_feed *feed) {
    enum dtype dtype = (enum dtype)feed->value->dtype;
    if (feed->proto.data)
        tensor_meta_add_proto(out, number, dtype, feed->proto, feed->proto_size_bytes);
    else
        tensor_meta_add(out, number, feed->value, feed->proto_size_bytes);
}

void run_graph_add_feed(struct str *out, const struct step_feed *feed) { add_feed(out, 5, feed); }

bool run_graph_next_feed(struct run_graph_message *message, struct span *ret_meta) {
    return next_bytes(&message->feeds, 5, ret_meta);
}

/* ---- partial runs ---- */

void feed_step_read(struct span in, struct feed_step_message *ret) {
    *ret = (struct feed_step_message){in, in};
}

static int next_position(struct feed_step_message *message, uint32_t *ret) {
    struct proto_field field;
    int rc;
    while ((rc = proto_next(&message->positions, &field)) > 0) {
        if (field.number != 1)
            continue;
        *ret = (uint32_t)field.value;
        return field.wire_type == 0 ? 1 : -1;
    }
    return rc;
}

int feed_step_next(struct feed_step_message *message, uint32_t *ret_position,
                   struct span *ret_meta) {
    struct proto_field field;
    int has_position = next_position(message, ret_position), rc;
    while ((rc = proto_next(&message->feeds, &field)) > 0)
        if (field.number == 2 && field.wire_type == 2) {
            *ret_meta = field.bytes;
            return has_position > 0 ? 1 : -1;
        }
    return rc < 0 || has_position != 0 ? -1 : 0;
}

void feed_step_add(struct str *out, uint32_t position, const struct step_feed *feed) {
    proto_add_tag(out, 1, 0); /* also for position 0, since positions and feeds are paired */
    proto_add_varint(out, position);
    add_feed(out, 2, feed);
}

void step_fetched_write(struct str *out, uint32_t position, const struct tensor *t,
                        size_t proto_size_bytes) {
    proto_add_int(out, 1, position);
    tensor_meta_add(out, 2, t, proto_size_bytes);
}

struct status *step_fetched_read(struct span in, struct step_fetched_message *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct step_fetched_message){0};
    while ((rc = proto_next(&in, &field)) > 0)
        if (field.number == 1 && field.wire_type == 0) {
            ret->position = (uint32_t)field.value;
        } else if (field.number == 2 && field.wire_type == 2) {
            ret->fetch = field.bytes;
            ret->has_fetch = true;
        }
    return rc < 0 || !ret->has_fetch ? message_malformed("StepFetched") : NULL;
}

/* ---- RunDone ---- */

void run_done_add_status(struct str *out, const struct status *status, bool is_derived) {
    if (!status)
        return;
    const char *message = status_message(status);
    proto_add_int(out, 1, (uint64_t)status_code(status));
    proto_add_bytes(out, 2, message, strlen(message));
    proto_add_int(out, 5, is_derived);
}

void run_done_add_fetch(struct str *out, const struct tensor *t, size_t proto_size_bytes) {
    tensor_meta_add(out, 3, t, proto_size_bytes);
}
void run_done_add_trace(struct str *out, size_t size_bytes) { proto_add_int(out, 4, size_bytes); }

struct status *run_done_read(struct span in, struct run_done_message *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct run_done_message){.fetches = in};
    while ((rc = proto_next(&in, &field)) > 0) {
        bool is_bytes = field.wire_type == 2;
        if (field.number == 1 && !is_bytes)
            ret->code = (int)field.value;
        else if (field.number == 2 && is_bytes)
            ret->message = field.bytes;
        else if (field.number == 3 && is_bytes)
            ret->n_fetches++;
        else if (field.number == 4 && !is_bytes)
            ret->trace_size_bytes = field.value;
        else if (field.number == 5 && !is_bytes)
            ret->is_derived = field.value != 0;
    }
    return rc < 0 ? message_malformed("RunDone") : NULL;
}

bool run_done_next_fetch(struct run_done_message *message, struct span *ret_meta) {
    return next_bytes(&message->fetches, 3, ret_meta);
}

/* ---- CancelStep ---- */

void cancel_step_write(struct str *out, uint64_t step_id, const struct status *why) {
    const char *message = status_message(why);
    proto_add_fixed64(out, 1, step_id);
    proto_add_int(out, 2, (uint64_t)status_code(why));
    proto_add_bytes(out, 3, message, strlen(message));
}

struct status *cancel_step_read(struct span in, struct cancel_step_message *ret) {
    struct proto_field field;
    int rc;
    *ret = (struct cancel_step_message){.code = STATUS_CANCELLED};
    while ((rc = proto_next(&in, &field)) > 0) {
        if (field.number == 1 && field.wire_type != 2)
            ret->step_id = field.value;
        else if (field.number == 2 && field.wire_type != 2)
            ret->code = (int)field.value;
        else if (field.number == 3 && field.wire_type == 2)
            ret->message = field.bytes;
    }
    return rc < 0 ? message_malformed("CancelStep") : NULL;
}
