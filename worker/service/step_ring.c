/* Writes ended steps into the ring, and copies them out of it. */
#include "worker/service/step_ring.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "common/graph/short_name.h"

enum { ENTRY_ALIGN = 8, MANY_ROWS = 1000, SHORT_NS = 1000, MIN_BYTES = 8 << 10 };

struct ring_entry {
    uint32_t size_bytes; /* with its rows; at the end of the ring, of what is unused */
    bool is_unused;
    struct step_ring_step step;
};

struct ring_row {
    int64_t start_ns, duration_ns, size_bytes;
    uint64_t frame_iter;
    uint32_t edge, thread_id;
    uint8_t kind, device_len;
    uint16_t name_len, op_len;
    uint16_t size_words; /* of 8 bytes, with the names that follow */
};

struct step_ring {
    size_t capacity;
    pthread_mutex_t lock; /* guards what follows */
    char *bytes;
    size_t end;       /* where the next entry is written */
    size_t oldest;    /* the first entry that is whole */
    size_t n_entries; /* also unused ones */
};

struct step_ring *step_ring_new(size_t size_bytes) {
    if (size_bytes == 0)
        return NULL;
    size_bytes = MAX(size_bytes, (size_t)MIN_BYTES);
    struct step_ring *ring = xcalloc(1, sizeof *ring);
    ring->capacity = size_bytes / ENTRY_ALIGN * ENTRY_ALIGN;
    ring->bytes = xcalloc(1, ring->capacity);
    pthread_mutex_init(&ring->lock, NULL);
    return ring;
}

void step_ring_free(struct step_ring *ring) {
    if (!ring)
        return;
    pthread_mutex_destroy(&ring->lock);
    free(ring->bytes);
    free(ring);
}

enum execution_stats step_ring_level(const struct step_ring *ring, _Atomic int64_t *credit_ns,
                                     uint64_t n_nodes) {
    if (!ring)
        return EXECUTION_STATS_NONE;
    if (atomic_load_explicit(credit_ns, memory_order_relaxed) < step_ring_cost_ns(n_nodes))
        return EXECUTION_STATS_WAITS;
    atomic_store_explicit(credit_ns, 0, memory_order_relaxed);
    return EXECUTION_STATS_NODES;
}

/* ---- writing ---- */

static struct ring_entry *entry_at(const struct step_ring *ring, size_t at) {
    return (struct ring_entry *)(void *)(ring->bytes + at);
}

static void drop_oldest(struct step_ring *ring) {
    ring->oldest += entry_at(ring, ring->oldest)->size_bytes;
    if (ring->oldest == ring->capacity)
        ring->oldest = 0;
    if (--ring->n_entries == 0)
        ring->oldest = ring->end = 0;
}

/* The bytes from `end` on that may be written. */
static size_t room(const struct step_ring *ring) {
    if (ring->n_entries == 0 || ring->oldest < ring->end)
        return ring->capacity - ring->end;
    return ring->oldest - ring->end; /* 0 when the ring is full */
}

/* Lock held. Makes room for an entry of up to that size. */
static struct ring_entry *entry_begin(struct step_ring *ring, size_t max_bytes) {
    if (ring->n_entries == 0)
        ring->oldest = ring->end = 0;
    if (ring->capacity - ring->end < max_bytes) { /* the rest of the ring stays unused */
        while (ring->n_entries > 0 && ring->oldest >= ring->end && ring->oldest != 0)
            drop_oldest(ring);
        if (ring->end < ring->capacity && ring->n_entries > 0) {
            struct ring_entry *unused = entry_at(ring, ring->end);
            unused->size_bytes = (uint32_t)(ring->capacity - ring->end);
            unused->is_unused = true;
            ring->n_entries++;
        }
        ring->end = 0;
    }
    while (room(ring) < max_bytes)
        drop_oldest(ring);
    return entry_at(ring, ring->end);
}

static bool is_transfer(const struct plan_node *node) {
    return node->kind == PLAN_SEND || node->kind == PLAN_RECV;
}

/* Feeds, fetches and what only hands values on take no time worth a row. */
static bool is_kept(const struct node_stats *row, bool has_many) {
    if (row->activity)
        return false; /* the node has a row */
    if (is_transfer(row->node))
        return true;
    int64_t ns = row->end_ns - row->start_ns;
    return ns > (has_many ? SHORT_NS : 0) && row->node->kind != PLAN_FETCH;
}

/* "CPU:0" of "/job:a/replica:0/task:0/device:CPU:0" */
static struct span device_of(const struct node_stats *row) {
    const struct kernel_instance *instance = row->node->instance;
    const char *device = row->stream ? row->stream : instance ? instance->device : "";
    const char *last = strstr(device, "/device:");
    return span_of(last ? last + strlen("/device:") : device);
}

/* False: there is no room. */
static bool add_row(char **at, const char *end, const struct step_stats *stats,
                    const struct node_stats *row, int64_t start_ns) {
    const struct plan_node *node = row->node;
    const struct plan_channel *channel =
        is_transfer(node) ? &stats->plan->channels[node->aux] : NULL;
    char name_buffer[SHORT_NAME_BYTES + 1], op_buffer[SHORT_NAME_BYTES + 1];
    struct span name = short_name(channel ? channel->tensor_name : node->node->name, name_buffer),
                op = short_name(channel ? channel->peer_task : node->node->op_name, op_buffer),
                device = device_of(row);
    size_t size = sizeof(struct ring_row) + name.len + op.len + MIN(device.len, (size_t)UINT8_MAX);
    size = (size + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
    if ((size_t)(end - *at) < size)
        return false;
    struct ring_row *to = (struct ring_row *)(void *)*at;
    char *text = (char *)(to + 1);
    *to = (struct ring_row){
        .start_ns = row->start_ns - start_ns,
        .duration_ns = row->end_ns - row->start_ns,
        .size_bytes = row->output.size_bytes,
        .frame_iter = row->frame_iter,
        .edge = channel ? channel->edge : 0,
        .thread_id = row->thread_id,
        .kind = node->kind == PLAN_SEND   ? STEP_RING_SEND
                : node->kind == PLAN_RECV ? STEP_RING_RECV
                                          : STEP_RING_NODE,
        .device_len = (uint8_t)MIN(device.len, (size_t)UINT8_MAX),
        .name_len = (uint16_t)name.len,
        .op_len = (uint16_t)op.len,
        .size_words = (uint16_t)(size / ENTRY_ALIGN),
    };
    memcpy(text, name.data, name.len);
    memcpy(text + name.len, op.data, op.len);
    memcpy(text + name.len + op.len, device.data, to->device_len);
    *at += size;
    return true;
}

void step_ring_add(struct step_ring *ring, const struct step_ring_step *step, int64_t start_ns,
                   const struct step_stats *stats) {
    if (!ring)
        return;
    size_t n = stats ? stats->n_nodes : 0;
    size_t row_bytes = sizeof(struct ring_row) + 2 * SHORT_NAME_BYTES + UINT8_MAX + ENTRY_ALIGN;
    size_t max_bytes =
        MIN(sizeof(struct ring_entry) + n * row_bytes, ring->capacity / STEP_RING_SHARE);
    max_bytes = max_bytes / ENTRY_ALIGN * ENTRY_ALIGN;
    pthread_mutex_lock(&ring->lock);
    struct ring_entry *entry = entry_begin(ring, max_bytes);
    char *at = (char *)(entry + 1), *end = (char *)entry + max_bytes;
    uint32_t n_rows = 0, n_left_out = stats ? (uint32_t)MIN(stats->n_left_out, UINT32_MAX) : 0;
    bool has_room = true;
    for (size_t i = 0; i < n; i++) {
        if (!is_kept(&stats->nodes[i], n > MANY_ROWS))
            continue;
        has_room = has_room && add_row(&at, end, stats, &stats->nodes[i], start_ns);
        n_rows += has_room;
        n_left_out += !has_room;
    }
    entry->size_bytes = (uint32_t)(at - (char *)entry);
    entry->is_unused = false;
    entry->step = *step;
    entry->step.n_rows = n_rows;
    entry->step.n_left_out = n_left_out;
    ring->end += entry->size_bytes;
    ring->n_entries++;
    pthread_mutex_unlock(&ring->lock);
}

/* ---- reading ---- */

static bool is_wanted(const struct ring_entry *entry, uint64_t master_incarnation,
                      const uint64_t *ids, int n) {
    if (entry->is_unused ||
        (master_incarnation && entry->step.master_incarnation != master_incarnation))
        return false;
    for (int i = 0; ids && i < n; i++)
        if (ids[i] == entry->step.step_id)
            return true;
    return !ids;
}

/* Lock held. Finds the wanted entries, the newest n of them, oldest first in a list that has room
 * for all. Returns how many bytes they have. */
static size_t find_wanted(struct step_ring *ring, uint64_t master_incarnation, const uint64_t *ids,
                          int n, size_t *found, size_t *ret_n_found, size_t *ret_first) {
    size_t at = ring->oldest, n_found = 0, n_bytes = 0;
    for (size_t i = 0; i < ring->n_entries; i++) {
        const struct ring_entry *entry = entry_at(ring, at);
        if (is_wanted(entry, master_incarnation, ids, n))
            found[n_found++] = at;
        at += entry->size_bytes;
        if (at == ring->capacity)
            at = 0;
    }
    *ret_first = n_found > (size_t)n ? n_found - (size_t)n : 0;
    *ret_n_found = n_found;
    for (size_t i = *ret_first; i < n_found; i++)
        n_bytes += entry_at(ring, found[i])->size_bytes;
    return n_bytes;
}

void step_ring_copy(struct step_ring *ring, uint64_t master_incarnation, const uint64_t *ids, int n,
                    struct step_ring_copy *ret) {
    size_t n_found, first, used = 0;
    *ret = (struct step_ring_copy){.n = 0};
    if (!ring)
        return;
    pthread_mutex_lock(&ring->lock);
    size_t *found = xcalloc(ring->n_entries + 1, sizeof *found);
    size_t n_bytes = find_wanted(ring, master_incarnation, ids, n, found, &n_found, &first);
    *ret = (struct step_ring_copy){.bytes = xcalloc(1, n_bytes + 1), .n = (int)(n_found - first)};
    ret->steps = xcalloc((size_t)ret->n + 1, sizeof *ret->steps);
    for (size_t i = first; i < n_found; i++) {
        const struct ring_entry *entry = entry_at(ring, found[i]);
        memcpy(ret->bytes + used, entry, entry->size_bytes);
        ret->steps[n_found - 1 - i] =
            &((const struct ring_entry *)(const void *)(ret->bytes + used))->step;
        used += entry->size_bytes;
    }
    pthread_mutex_unlock(&ring->lock);
    free(found);
}

void step_ring_copy_free(struct step_ring_copy *copy) {
    free(copy->bytes);
    free(copy->steps);
}

bool step_ring_next(const struct step_ring_step *step, size_t *cursor, struct step_ring_row *ret) {
    const struct ring_entry *entry = CONTAINER_OF(step, const struct ring_entry, step);
    const char *bytes = (const char *)entry;
    size_t at = *cursor ? *cursor : sizeof *entry;
    if (at == entry->size_bytes)
        return false;
    const struct ring_row *row = (const struct ring_row *)(const void *)(bytes + at);
    const char *text = (const char *)(row + 1);
    *ret = (struct step_ring_row){
        .kind = (enum step_ring_kind)row->kind,
        .name = {text, row->name_len},
        .op = {text + row->name_len, row->op_len},
        .device = {text + row->name_len + row->op_len, row->device_len},
        .start_ns = row->start_ns,
        .duration_ns = row->duration_ns,
        .size_bytes = row->size_bytes,
        .frame_iter = row->frame_iter,
        .edge = row->edge,
        .thread_id = row->thread_id,
    };
    *cursor = at + (size_t)row->size_words * ENTRY_ALIGN;
    return true;
}
