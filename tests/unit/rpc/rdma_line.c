/* A connection from this process to itself. */
#include "tests/unit/rpc/rdma_line.h"

#include "tests/unit/rpc/loop_until.h"

static void on_written(void *owner, struct rdma_transfer *transfer) {
    ((struct rdma_line *)owner)->is_written = true;
}
static void on_out_refused(void *owner, struct rdma_transfer *transfer, struct status *why) {
    ((struct rdma_line *)owner)->refused = status_ref(why);
}
static void on_failed(void *owner, struct status *why) {
    struct rdma_line *line = owner;
    if (!line->refused)
        line->refused = status_ref(why);
}
static void on_abandoned(struct rdma_transfer *transfer) { CHECK(false); }
static void on_granted(void *owner, struct rdma_pending_write *pending) {
    ((struct rdma_line *)owner)->is_granted = true;
}
static void on_in_refused(void *owner, struct rdma_pending_write *pending, struct status *why) {
    ((struct rdma_line *)owner)->refused = status_ref(why);
    buffer_unref(pending->buffer);
}
static void on_received(void *owner, struct rdma_pending_write *pending) {
    ((struct rdma_line *)owner)->is_received = true;
    buffer_unref(pending->buffer);
}
static void on_withdrawn(void *owner, struct rdma_pending_write *pending) {
    ((struct rdma_line *)owner)->is_received = true;
    buffer_unref(pending->buffer);
}

static const struct rdma_out_handlers out_handlers = {.on_written = on_written,
                                                      .on_refused = on_out_refused,
                                                      .on_failed = on_failed,
                                                      .on_abandoned = on_abandoned};
static const struct rdma_in_handlers in_handlers = {.on_granted = on_granted,
                                                    .on_refused = on_in_refused,
                                                    .on_received = on_received,
                                                    .on_withdrawn = on_withdrawn,
                                                    .on_failed = on_failed};

void rdma_line_open(struct rdma_line *line, const struct verbs *verbs,
                    struct rdma_exporter *exporter) {
    struct rdma_choice any = {.gid = -1};
    struct rdma_address out_address, in_address;
    *line = (struct rdma_line){.loop = loop_new()};
    struct status *st = rdma_device_open(line->loop, verbs, &any, &line->device);
    CHECK(!st);
    rdma_device_set_exporter(line->device, exporter);
    st = rdma_out_open(&line->out, line->device, &out_handlers, line);
    CHECK(!st);
    st = rdma_in_open(&line->in, line->device, &in_handlers, line);
    CHECK(!st);
    rdma_queue_address(&line->out.queue, &out_address);
    rdma_queue_address(&line->in.queue, &in_address);
    st = rdma_in_connect(&line->in, &out_address);
    CHECK(!st);
    st = rdma_queue_connect(&line->out.queue, &in_address);
    CHECK(!st);
}

static struct status *take_refusal(struct rdma_line *line) {
    struct status *st = line->refused;
    line->refused = NULL;
    return st;
}

struct status *rdma_line_send(struct rdma_line *line, struct buffer *from, const char *data,
                              struct buffer *to, size_t size_bytes) {
    line->is_granted = line->is_written = line->is_received = false;
    CHECK(rdma_in_add_write(&line->in, &line->pending, to, size_bytes));
    LOOP_UNTIL(line->loop, line->is_granted || line->refused);
    if (line->refused)
        return take_refusal(line);
    rdma_out_write(&line->out, &line->transfer, &line->pending.remote_slot, from, data, size_bytes);
    LOOP_UNTIL(line->loop, line->refused || (line->is_written && line->is_received));
    if (!line->refused)
        return NULL;
    struct status *st = rdma_in_decline(&line->in, line->pending.remote_slot.number);
    CHECK(!st);
    LOOP_UNTIL(line->loop, line->is_received);
    return take_refusal(line);
}

void rdma_line_close(struct rdma_line *line) {
    rdma_out_close(&line->out);
    rdma_in_close(&line->in);
    rdma_device_close(line->device);
    loop_end(line->loop);
}
