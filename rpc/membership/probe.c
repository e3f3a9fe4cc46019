/* Asks a task over the worker wire, or a master over HTTP, for its incarnation. */
#include "rpc/membership/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "proto/worker.pb-c.h"
#include "rpc/host_id.h"
#include "rpc/wire/wire.h"

static const struct wire_handlers handlers;

void probe_stop(struct probe *probe) {
    struct wire_conn *conn = probe->conn;
    probe->conn = NULL;
    http_call_cancel(&probe->http);
    loop_timer_stop(&probe->timer);
    if (!conn)
        return;
    wire_conn_set_owner(conn, NULL, &handlers);
    wire_conn_close(conn, NULL);
    wire_conn_unref(conn);
}

static void done(struct probe *probe, enum probe_outcome outcome, const char *why) {
    probe_stop(probe);
    probe->on_done(probe, outcome, why);
}

static void done_with(struct probe *probe, uint64_t incarnation) {
    struct str why = STR_INIT;
    str_addf(&why, "another process answers there, with incarnation %016" PRIx64, incarnation);
    if (incarnation == 0)
        done(probe, PROBE_UNKNOWN, "what answers there does not state which process it is");
    else
        done(probe, incarnation == probe->incarnation ? PROBE_ALIVE : PROBE_GONE, str_text(&why));
    str_fini(&why);
}

static void done_without_answer(struct probe *probe, int connect_error, const char *why) {
    done(probe, probe->is_same_host && connect_error == ECONNREFUSED ? PROBE_GONE : PROBE_UNKNOWN,
         why);
}

static void begin(struct probe *probe, const struct cluster_member *member) {
    probe->incarnation = member->incarnation;
    probe->is_same_host = strcmp(member->host_id, host_id()) == 0;
}

static void on_timer(struct loop_timer *timer) {
    done(CONTAINER_OF(timer, struct probe, timer), PROBE_UNKNOWN, "no answer within 3 s");
}

void probe_init(struct probe *probe, struct loop *loop) {
    probe->loop = loop;
    probe->is_open = true;
    loop_timer_init(loop, &probe->timer, on_timer);
}

void probe_close(struct probe *probe, void (*on_closed)(struct loop_timer *timer)) {
    probe_stop(probe);
    probe->is_open = false;
    loop_timer_close(&probe->timer, on_closed);
}

/* ---- a task ---- */

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct probe *probe = owner;
    if (!probe || message->type != WIRE_STATUS)
        return;
    Millrace__WorkerStatus *status = millrace__worker_status__unpack(
        NULL, message->meta.len, (const uint8_t *)message->meta.data);
    uint64_t incarnation = status ? status->incarnation : 0;
    if (status)
        millrace__worker_status__free_unpacked(status, NULL);
    done_with(probe, incarnation);
}

static void on_wire_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct probe *probe = owner;
    if (probe)
        done_without_answer(probe, wire_conn_connect_error(conn),
                            why ? status_message(why) : "it closed the connection");
}

static const struct wire_handlers handlers = {.on_message = on_message,
                                              .on_closed = on_wire_closed};

void probe_task(struct probe *probe, const struct cluster_member *member) {
    Millrace__Hello hello = MILLRACE__HELLO__INIT;
    uint8_t bytes[64];
    hello.protocol = WIRE_PROTOCOL; /* without a task's name, as from a tool */
    CHECK(millrace__hello__get_packed_size(&hello) <= sizeof(bytes));
    size_t len = millrace__hello__pack(&hello, bytes);
    begin(probe, member);
    probe->conn = wire_connect(probe->loop, member->address, &handlers, probe);
    wire_conn_secure(probe->conn, probe->tls, probe->task);
    wire_queue(probe->conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {(char *)bytes, len}});
    wire_send(probe->conn, &(struct wire_out){.type = WIRE_GET_STATUS, .id = 1});
    loop_timer_start(&probe->timer, PROBE_TIMEOUT_MS, 0);
}

/* ---- a master ---- */

/* Its page has the incarnation as 16 hex digits after this word. */
static uint64_t find_incarnation(struct span page) {
    static const char word[] = "\"incarnation\": \"";
    const char *at = memmem(page.data, page.len, word, sizeof(word) - 1);
    return at && (size_t)(page.data + page.len - at) > sizeof(word) - 1 + 16
               ? strtoull(at + sizeof(word) - 1, NULL, 16)
               : 0;
}

static void on_page(struct http_call *http, struct status *status_take, int http_code,
                    struct span body) {
    struct probe *probe = CONTAINER_OF(http, struct probe, http);
    if (status_take)
        done_without_answer(probe, http->connect_error, status_message(status_take));
    else
        done_with(probe, find_incarnation(body));
    status_unref(status_take);
}

static void on_no_admin(struct loop_timer *timer) {
    struct probe *probe = CONTAINER_OF(timer, struct probe, timer);
    timer->on_fire = on_timer;
    done(probe, PROBE_UNKNOWN,
         probe->is_same_host ? "it has no admin port" : "it has no admin port for other hosts");
}

/* Such an address leads to this host, not to the member's. */
static bool is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

void probe_master(struct probe *probe, struct http_client *http,
                  const struct cluster_member *member) {
    struct str url = STR_INIT;
    begin(probe, member);
    if (!*member->admin_address || (!probe->is_same_host && is_loopback(member->admin_address))) {
        probe->timer.on_fire = on_no_admin;
        loop_timer_start(&probe->timer, 0, 0);
        return;
    }
    probe->http = (struct http_call){.on_done = on_page};
    str_addf(&url, "%s://%s/statusz", probe->is_https ? "https" : "http", member->admin_address);
    /* The incarnation tells whether it is the same process: only that process knows it, and those
     * who read its entry. */
    http_call_start(http, &probe->http,
                    &(struct http_request){.url = str_text(&url),
                                           .timeout_ms = PROBE_TIMEOUT_MS,
                                           .max_body_bytes = 64 << 20,
                                           .accepts_any_certificate = true});
    str_fini(&url);
}
