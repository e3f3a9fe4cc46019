/* Writes /rendezvousz: what meets, or does not meet, in the steps' tables of keys. */
#include "common/base/clock.h"
#include "rpc/daemon/page.h"
#include "worker/exchange/rendezvous_internal.h"

enum { MAX_STEPS = 100, MAX_SLOTS = 50 /* of one step */ };

static const char *const state_names[SLOT_N_STATES] = {
    [SLOT_WAITING] = "a Recv waits for it",
    [SLOT_VALUE] = "waits for its Recv",
    [SLOT_ANNOUNCED] = "announced, waits for credit",
    [SLOT_GRANTED] = "granted, on its way",
    [SLOT_ARRIVING] = "arriving",
    [SLOT_PREGRANTED] = "granted before it exists, by RDMA",
    [SLOT_DONE] = "handed on",
    [SLOT_GROWING] = "arriving, and copied to a device meanwhile",
    [SLOT_OFFERED] = "waits here for the grant of its receiver",
    [SLOT_PENDING_PREGRANT] = "granted by its receiver before it exists",
};

static void add_slot(const struct slot *slot, int64_t now_ns, struct str *out) {
    page_open(out, NULL, '{');
    page_int(out, "edge", slot->edge);
    if (slot->channel)
        page_name(out, "tensor", slot->channel->tensor_name);
    else if (slot->state == SLOT_GROWING)
        page_name(out, "tensor", slot->grows->tensor_name);
    if (slot->frame_iter != 0)
        page_id(out, "frame_iteration", slot->frame_iter);
    page_text(out, "state", state_names[slot->state]);
    if (slot->peer)
        page_name(out, "task", peer_name(slot->peer));
    if (slot->state != SLOT_WAITING && slot->state != SLOT_DONE &&
        slot->state != SLOT_PENDING_PREGRANT)
        page_int(out, "size_bytes", (int64_t)slot->size_bytes);
    if (slot->recv && slot->recv->since_ns > 0)
        page_real(out, "waits_seconds", (double)(now_ns - slot->recv->since_ns) / 1e9);
    page_close(out, '}');
}

/* Slots that are done stay until the step ends, and say nothing. */
static void add_slots(const struct rendezvous *rendezvous, struct str *out) {
    int64_t now_ns = clock_now_ns();
    size_t n = 0;
    page_open(out, "values", '[');
    for (uint32_t i = 0; i < rendezvous->n_buckets; i++)
        for (const struct slot *slot = rendezvous->buckets[i]; slot; slot = slot->next)
            if (slot->state != SLOT_DONE && n++ < MAX_SLOTS)
                add_slot(slot, now_ns, out);
    page_more(out, n > MAX_SLOTS ? n - MAX_SLOTS : 0);
    page_close(out, ']');
}

static void add_step(struct rendezvous *rendezvous, bool is_operator, struct str *out) {
    pthread_mutex_lock(&rendezvous->lock);
    page_open(out, NULL, '{');
    page_id(out, "step", rendezvous->step_id);
    page_bool(out, "started", rendezvous->is_opened);
    page_int(out, "early_bytes", (int64_t)rendezvous->early_bytes);
    page_int(out, "announced", rendezvous->n_announced);
    page_int(out, "granted", rendezvous->n_granted);
    if (rendezvous->why)
        page_error(out, "aborted", rendezvous->why, is_operator);
    add_slots(rendezvous, out);
    page_close(out, '}');
    pthread_mutex_unlock(&rendezvous->lock);
}

/* The two locks are never held together, so the steps are referenced first. */
static int take_steps(struct rendezvous_table *table, struct rendezvous **ret_steps,
                      size_t *ret_n_steps) {
    size_t cursor = 0;
    uint64_t id;
    void *value;
    int n = 0;
    pthread_mutex_lock(&table->lock);
    *ret_n_steps = table->steps.n_entries;
    while (n < MAX_STEPS && u64map_next(&table->steps, &cursor, &id, &value)) {
        struct rendezvous *rendezvous = value;
        atomic_fetch_add_explicit(&rendezvous->n_refs, 1, memory_order_relaxed);
        ret_steps[n++] = rendezvous;
    }
    pthread_mutex_unlock(&table->lock);
    return n;
}

void rendezvous_table_page(struct rendezvous_table *table, bool is_operator, struct str *out) {
    struct rendezvous *steps[MAX_STEPS];
    size_t n_steps;
    int n = take_steps(table, steps, &n_steps);
    page_key(out, "table");
    rendezvous_table_describe(table, out);
    page_open(out, "steps", '[');
    for (int i = 0; i < n; i++) {
        add_step(steps[i], is_operator, out);
        rendezvous_unref(steps[i]);
    }
    page_more(out, n_steps - (size_t)n);
    page_close(out, ']');
}
