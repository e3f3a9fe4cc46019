/* Says what the last steps have done: /tracez, and the reply to a master's GetTraces. */
#include "common/base/clock.h"
#include "common/graph/short_name.h"
#include "common/tensor/tensor_proto.h"
#include "rpc/daemon/page.h"
#include "worker/service/service_internal.h"

enum {
    MAX_IDS = 256, /* of a GetTraces */
    STEPS_SHOWN = 20,
    NODES_SHOWN = 5, /* of a step: the slowest ones */
};

/* ---- for a master ---- */

static void add_signed(struct str *out, uint32_t number, int64_t value) {
    proto_add_int(out, number, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

static void add_span(struct str *out, uint32_t number, struct span bytes) {
    if (bytes.len > 0)
        proto_add_bytes(out, number, bytes.data, bytes.len);
}

static void write_row(struct str *out, const struct step_ring_row *row, struct peer_table *peers) {
    struct str bytes = STR_INIT;
    proto_add_int(&bytes, 1, row->kind);
    add_span(&bytes, 2, row->name);
    add_span(&bytes, 3, row->op);
    add_span(&bytes, 4, row->device);
    add_signed(&bytes, 5, row->start_ns);
    proto_add_int(&bytes, 6, (uint64_t)row->duration_ns);
    proto_add_int(&bytes, 7, (uint64_t)row->size_bytes);
    proto_add_int(&bytes, 8, row->thread_id);
    if (row->kind != STEP_RING_NODE) {
        char task[SHORT_NAME_BYTES + 1];
        snprintf(task, sizeof task, "%.*s", (int)row->op.len, row->op.data);
        proto_add_int(&bytes, 9, row->edge);
        proto_add_fixed64(&bytes, 10, row->frame_iter);
        add_span(&bytes, 11, span_of(peer_table_transport(peers, task, row->size_bytes)));
    }
    proto_add_bytes(out, 8, bytes.data, bytes.len);
    str_fini(&bytes);
}

static void write_step(struct str *out, const struct step_ring_step *step, int64_t clock_ahead_us,
                       struct peer_table *peers) {
    struct str bytes = STR_INIT;
    struct step_ring_row row;
    proto_add_fixed64(&bytes, 1, step->step_id);
    proto_add_int(&bytes, 2, (uint64_t)step->start_us - (uint64_t)clock_ahead_us);
    proto_add_int(&bytes, 3, (uint64_t)step->prepare_ns);
    proto_add_int(&bytes, 4, (uint64_t)step->run_ns);
    proto_add_int(&bytes, 5, (uint64_t)step->code);
    proto_add_int(&bytes, 6, step->has_nodes);
    proto_add_int(&bytes, 7, step->n_left_out);
    for (size_t cursor = 0; step_ring_next(step, &cursor, &row);)
        write_row(&bytes, &row, peers);
    proto_add_bytes(out, 1, bytes.data, bytes.len);
    str_fini(&bytes);
}

struct status *service_send_traces(struct service_connection *connection,
                                   const struct wire_message *message) {
    struct worker_service *service = connection->service;
    uint64_t ids[MAX_IDS];
    int n = 0, rc;
    int64_t clock_ahead_us = 0;
    struct proto_field field;
    struct span rest = message->meta;
    while ((rc = proto_next(&rest, &field)) > 0)
        if (proto_field_is(&field, 1, 1) && n < MAX_IDS)
            ids[n++] = field.value;
        else if (proto_field_is(&field, 2, 0))
            clock_ahead_us = (int64_t)field.value;
    if (rc < 0)
        return message_malformed("GetTraces");
    struct step_ring_copy copy;
    struct str traces = STR_INIT;
    step_ring_copy(service->ring, connection->incarnation, ids, n, &copy);
    for (int i = 0; i < copy.n; i++)
        write_step(&traces, copy.steps[i], clock_ahead_us, exchange_of(connection)->peers);
    service_send(connection->wire, WIRE_TRACES, message->id, traces.data, traces.len);
    step_ring_copy_free(&copy);
    str_fini(&traces);
    return NULL;
}

/* ---- the page ---- */

/* The step's slowest nodes, the slowest first; and how long it waited for values. */
static int find_slowest(const struct step_ring_step *step, struct step_ring_row *slowest,
                        int64_t *ret_waits_ns) {
    struct step_ring_row row;
    int n = 0;
    *ret_waits_ns = 0;
    for (size_t cursor = 0; step_ring_next(step, &cursor, &row);) {
        int at = n;
        *ret_waits_ns += row.kind == STEP_RING_RECV ? row.duration_ns : 0;
        while (at > 0 && slowest[at - 1].duration_ns < row.duration_ns)
            at--;
        if (at == NODES_SHOWN)
            continue;
        n = MIN(n + 1, (int)NODES_SHOWN);
        memmove(&slowest[at + 1], &slowest[at], (size_t)(n - 1 - at) * sizeof *slowest);
        slowest[at] = row;
    }
    return n;
}

static void add_step(const struct step_ring_step *step, int64_t now_us, struct str *out) {
    struct step_ring_row slowest[NODES_SHOWN];
    int64_t waits_ns;
    find_slowest(step, slowest, &waits_ns);
    page_open(out, NULL, '{');
    page_id(out, "step", step->step_id);
    page_real(out, "age_seconds", (double)(now_us - step->start_us) / 1e6);
    page_int(out, "graph", (int64_t)step->graph);
    page_text(out, "code", status_code_name((enum status_code)step->code));
    page_real(out, "prepare_us", (double)step->prepare_ns / 1e3);
    page_real(out, "run_us", (double)step->run_ns / 1e3);
    page_real(out, "receives_us", (double)waits_ns / 1e3);
    page_text(out, "recorded", step->has_nodes ? "every node" : "what it waited for");
    page_close(out, '}');
}

static void add_step_nodes(const struct step_ring_step *step, struct str *out) {
    struct step_ring_row slowest[NODES_SHOWN];
    int64_t waits_ns;
    int n = find_slowest(step, slowest, &waits_ns);
    for (int i = 0; i < n; i++) {
        page_open(out, NULL, '{');
        page_id(out, "step", step->step_id);
        page_real(out, "took_us", (double)slowest[i].duration_ns / 1e3);
        if (slowest[i].kind == STEP_RING_NODE)
            page_span(out, "op", slowest[i].op);
        else
            page_text(out, "op", slowest[i].kind == STEP_RING_SEND ? "Send" : "Recv");
        page_span(out, "node", slowest[i].name);
        page_close(out, '}');
    }
}

void worker_service_page_traces(struct worker_service *service, struct str *out) {
    struct step_ring_copy copy;
    int64_t now_us = clock_wall_us();
    step_ring_copy(service->ring, 0, NULL, STEPS_SHOWN, &copy);
    page_open(out, NULL, '{');
    page_int(out, "ring_bytes", service->options.step_ring_bytes);
    page_open(out, "steps", '[');
    for (int i = 0; i < copy.n; i++)
        add_step(copy.steps[i], now_us, out);
    page_close(out, ']');
    page_open(out, "slowest", '[');
    for (int i = 0; i < copy.n; i++)
        add_step_nodes(copy.steps[i], out);
    page_close(out, ']');
    page_close(out, '}');
    str_add_char(out, '\n');
    step_ring_copy_free(&copy);
}
