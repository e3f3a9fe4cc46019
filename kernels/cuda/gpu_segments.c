/* Notes what is enqueued on the compute stream, and decides what is a segment (gpu_segments.h). */
#include "kernels/cuda/gpu_segments.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/gpu_outbox.h"
#include "kernels/cuda/gpu_trace.h"

enum { WORK_ALIGNMENT = 16, HASH_SEED = 0x5e6d, OTHER_STREAMS = 1 };

static void count(struct gpu_segments *s, enum device_count which, uint64_t n) {
    uint64_t before = atomic_load_explicit(&s->counts[which], memory_order_relaxed);
    atomic_store_explicit(&s->counts[which], before + n, memory_order_relaxed);
}

/* ---- life ---- */

void gpu_segments_init(struct gpu_device *gpu, bool is_on) {
    struct gpu_segments *s = &gpu->segments;
    s->is_on = is_on;
    s->bytes = is_on ? aligned_alloc(WORK_ALIGNMENT, SEGMENT_MAX_BYTES) : NULL;
    CHECK(s->bytes || !is_on);
    pthread_mutex_init(&s->notes_lock, NULL);
    pthread_mutex_init(&s->failures_lock, NULL);
}

void gpu_segments_fini(struct gpu_device *gpu) {
    gpu_segments_forget(gpu);
    gpu_graphs_reap(gpu, true);
    if (gpu->segments.stream)
        gpu_give_back(gpu, cuStreamDestroy, gpu->segments.stream);
}

void gpu_segments_free(struct gpu_device *gpu) {
    struct gpu_segments *s = &gpu->segments;
    gpu_segments_forget_failures(gpu);
    free(s->bytes);
    free(s->notes);
    pthread_mutex_destroy(&s->notes_lock);
    pthread_mutex_destroy(&s->failures_lock);
}

void gpu_segments_forget(struct gpu_device *gpu) {
    struct gpu_segments *s = &gpu->segments;
    while (s->n_captured > 0)
        gpu_graph_retire(gpu, s->captured[--s->n_captured]);
    memset(s->seen, 0, sizeof s->seen);
    gpu_graphs_reap(gpu, false);
}

/* ---- sites of allocations ---- */

uint64_t gpu_site_next(struct gpu_device *gpu, CUstream stream, size_t size_bytes) {
    struct gpu_segments *s = &gpu->segments;
    if (!s->is_on)
        return GPU_PLACE_NONE;
    bool is_compute = stream == gpu->compute;
    uint64_t position =
        is_compute ? atomic_load_explicit(&s->position, memory_order_relaxed) : OTHER_STREAMS;
    unsigned n = atomic_fetch_add_explicit(is_compute ? &s->n_allocated : &s->n_allocated_elsewhere,
                                           1, memory_order_relaxed);
    uint64_t site = hash_mix(hash_mix(position, size_bytes), n);
    return site == GPU_PLACE_NONE ? site + 1 : site;
}

/* The sum does not depend on the order, in which copies that end meanwhile have a say. */
static void note_position(struct gpu_segments *s, uint64_t kind) {
    uint64_t position = atomic_load_explicit(&s->position, memory_order_relaxed);
    atomic_store_explicit(&s->position, position + kind, memory_order_relaxed);
    atomic_store_explicit(&s->n_allocated, 0, memory_order_relaxed);
}

void gpu_segments_restart(struct gpu_device *gpu) {
    struct gpu_segments *s = &gpu->segments;
    atomic_store_explicit(&s->position, 0, memory_order_relaxed);
    atomic_store_explicit(&s->n_allocated, 0, memory_order_relaxed);
    atomic_store_explicit(&s->n_allocated_elsewhere, 0, memory_order_relaxed);
}

/* ---- blocks of a simulated device ---- */

static void tell_block(struct gpu_device *gpu, const struct gpu_block_note *note) {
    CUresult (*tell)(CUdeviceptr, size_t, CUstream) =
        note->is_new ? gpu->checker->block_allocated : gpu->checker->block_freed;
    tell(note->start, note->size_bytes, gpu->compute);
}

void gpu_note_block(struct gpu_device *gpu, CUdeviceptr start, size_t size_bytes, bool is_new) {
    struct gpu_segments *s = &gpu->segments;
    if (likely(!gpu->checker))
        return;
    struct gpu_block_note note = {.is_new = is_new, .start = start, .size_bytes = size_bytes};
    pthread_mutex_lock(&s->notes_lock);
    if (!s->is_holding) {
        tell_block(gpu, &note);
    } else {
        if (s->n_notes == s->notes_capacity) {
            s->notes_capacity = s->notes_capacity * 2 + 64;
            s->notes = xreallocarray(s->notes, (size_t)s->notes_capacity, sizeof *s->notes);
        }
        note.at = s->n_held;
        s->notes[s->n_notes++] = note;
    }
    pthread_mutex_unlock(&s->notes_lock);
}

static void hold(struct gpu_device *gpu) {
    struct gpu_segments *s = &gpu->segments;
    if (likely(!gpu->checker))
        return;
    pthread_mutex_lock(&s->notes_lock);
    s->is_holding = true;
    s->n_held = s->n;
    pthread_mutex_unlock(&s->notes_lock);
}

/* The notes have been told, or nobody wants to know them. With the notes' lock, where there is a
 * checker. */
static void stop_holding(struct gpu_segments *s) {
    s->is_holding = false;
    s->n_notes = s->n_held = 0;
}

/* ---- work ---- */

static uint64_t hash_work(const struct gpu_work *work, uint64_t before) {
    uint64_t key[] = {(uint64_t)(uintptr_t)work->enqueue, (uint64_t)(uintptr_t)work->function,
                      work->grid.n_blocks | (uint64_t)work->grid.n_threads << 32,
                      work->grid.shared_bytes | (uint64_t)work->args_bytes << 32};
    uint64_t hash = hash_bytes(key, sizeof key, before);
    return work->function ? hash : hash_bytes(work->args, work->args_bytes, hash);
}

static bool is_same(const struct gpu_work *a, const struct gpu_work *b) {
    return a->enqueue == b->enqueue && a->function == b->function &&
           a->grid.n_blocks == b->grid.n_blocks && a->grid.n_threads == b->grid.n_threads &&
           a->grid.shared_bytes == b->grid.shared_bytes && a->args_bytes == b->args_bytes &&
           (a->function || memcmp(a->args, b->args, a->args_bytes) == 0);
}

/* Hashes have found it, so this is only to be certain. */
static bool is_all_same(const struct gpu_segments *s, const struct gpu_segment *segment) {
    for (int i = 0; i < s->n; i++)
        if (!is_same(&s->work[i], &segment->work[i]))
            return false;
    return true;
}

/* The longest graph that begins with the work so far; with `is_whole`, that has nothing more. */
static struct gpu_segment *find(struct gpu_segments *s, bool is_whole) {
    struct gpu_segment *best = NULL;
    for (int i = 0; i < s->n_captured; i++) {
        struct gpu_segment *segment = s->captured[i];
        if (segment->n < s->n || segment->hashes[s->n - 1] != s->hashes[s->n - 1] ||
            (is_whole && segment->n != s->n))
            continue;
        if (!best || segment->n > best->n)
            best = segment;
    }
    return best;
}

/* What is equal of the same work in each step. */
static uint64_t kind_of(const struct gpu_work *work) {
    uint64_t code = hash_mix((uint64_t)(uintptr_t)work->function,
                             (uint64_t)(uintptr_t)work->enqueue + work->args_bytes);
    return hash_mix(code, work->grid.n_blocks | (uint64_t)work->grid.n_threads << 32);
}

static void note_work(struct gpu_segments *s, const void *owner, const struct gpu_work *work) {
    uint64_t kind = kind_of(work);
    struct gpu_work *to = &s->work[s->n];
    *to = *work;
    to->args = memcpy(s->bytes + s->n_bytes, work->args, work->args_bytes);
    s->hashes[s->n] = hash_work(work, s->n > 0 ? s->hashes[s->n - 1] : HASH_SEED);
    s->n_bytes += (work->args_bytes + WORK_ALIGNMENT - 1) / WORK_ALIGNMENT * WORK_ALIGNMENT;
    s->kinds = hash_mix(s->kinds, kind);
    s->owner = owner;
    s->n++;
    note_position(s, kind);
}

static void clear(struct gpu_segments *s) {
    s->n = 0;
    s->kinds = 0;
    s->n_bytes = 0;
    s->candidate = NULL;
    s->owner = NULL;
}

/* ---- enqueueing what is held back ---- */

static bool has_failed(struct gpu_device *gpu, const void *owner) {
    struct status *st = gpu_segments_see_failure(gpu, owner);
    status_unref(st);
    return st != NULL;
}

static struct status *with_node_take(struct status *st, const struct gpu_work *work) {
    if (work->nodes)
        return status_suffix_take(st, "\n\t [[%s]]", work->nodes);
    if (!work->node)
        return st;
    return status_suffix_take(st, "\n\t [[{{node %s}}]]", work->node);
}

/* Gives one part to the driver. */
static struct status *give(struct gpu_device *gpu, const struct gpu_work *work) {
    if (likely(!gpu->traces))
        return work->enqueue(gpu, work, gpu->compute);
    struct gpu_trace_given given = gpu_trace_give_begin(gpu, work, 1, NULL);
    struct status *st = work->enqueue(gpu, work, gpu->compute);
    gpu_trace_give_end(gpu, given);
    return st;
}

/* Enqueues the first n parts one by one. After a failure the rest is left out. */
static void give_parts(struct gpu_device *gpu, int n) {
    struct gpu_segments *s = &gpu->segments;
    struct status *st = NULL;
    int note = 0;
    if (gpu->checker)
        pthread_mutex_lock(&s->notes_lock);
    for (int i = 0; i <= n; i++) {
        for (; note < s->n_notes && s->notes[note].at <= i; note++)
            tell_block(gpu, &s->notes[note]);
        if (i == n || st)
            continue;
        st = give(gpu, &s->work[i]);
        if (st)
            st = with_node_take(st, &s->work[i]);
    }
    if (st)
        gpu_segments_fail_take(gpu, s->owner, st);
    stop_holding(s);
    if (gpu->checker)
        pthread_mutex_unlock(&s->notes_lock);
    gpu_count_given(gpu);
}

static struct status *launch(struct gpu_device *gpu, struct gpu_segment *segment) {
    if (likely(!gpu->traces))
        return gpu_graph_launch(gpu, segment);
    struct gpu_trace_given given =
        gpu_trace_give_begin(gpu, gpu->segments.work, segment->n, segment);
    struct status *st = gpu_graph_launch(gpu, segment);
    gpu_trace_give_end(gpu, given);
    return st;
}

/* Launches the graph of what is noted, or enqueues it part by part if that fails. */
static void replay(struct gpu_device *gpu, struct gpu_segment *segment) {
    struct gpu_segments *s = &gpu->segments;
    if (gpu->checker)
        pthread_mutex_lock(&s->notes_lock);
    struct status *st = is_all_same(s, segment) ? launch(gpu, segment)
                                                : status_internal("two segments have one hash");
    bool is_lost = st && atomic_load(&gpu->failure);
    if (!st || is_lost)
        stop_holding(s);
    if (gpu->checker)
        pthread_mutex_unlock(&s->notes_lock);
    if (is_lost) {
        gpu_segments_fail_take(gpu, s->owner, with_node_take(st, &s->work[s->n - 1]));
        return;
    }
    if (!st) {
        segment->last_use = ++s->n_uses;
        segment->number = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
        count(s, DEVICE_REPLAYS, 1);
        count(s, DEVICE_WORK_REPLAYED, (uint64_t)s->n);
        gpu_count_given(gpu);
        return;
    }
    gpu_graph_note_take(gpu, st);
    for (int i = 0; i < s->n_captured; i++)
        if (s->captured[i] == segment)
            s->captured[i] = s->captured[--s->n_captured];
    gpu_graph_retire(gpu, segment);
    count(s, DEVICE_FAILED, 1);
    give_parts(gpu, s->n);
}

/* ---- learning ---- */

static int least_recently_used(const struct gpu_segments *s) {
    int at = 0;
    for (int i = 1; i < s->n_captured; i++)
        if (s->captured[i]->last_use < s->captured[at]->last_use)
            at = i;
    return at;
}

/* Is there room for a graph of work that was first seen when n_uses was `since`? It may replace one
 * that was not launched meanwhile. If all were, there are more forms than graphs, and each new
 * graph would be replaced before it is of use. */
static bool has_room(const struct gpu_segments *s, uint64_t since) {
    return s->n_captured < SEGMENTS_MAX || s->captured[least_recently_used(s)]->last_use <= since;
}

static void add_captured(struct gpu_device *gpu, struct gpu_segment *segment) {
    struct gpu_segments *s = &gpu->segments;
    int at = s->n_captured;
    if (at == SEGMENTS_MAX) {
        at = least_recently_used(s);
        gpu_graph_retire(gpu, s->captured[at]);
    } else {
        s->n_captured++;
    }
    s->captured[at] = segment;
    segment->last_use = ++s->n_uses;
    count(s, DEVICE_CAPTURES, 1);
}

/* The noted work was not replayed. Was the same captured at other addresses? */
static void look_for_addresses(struct gpu_segments *s) {
    for (int i = 0; i < s->n_captured; i++)
        if (s->captured[i]->n == s->n && s->captured[i]->kinds == s->kinds) {
            count(s, DEVICE_OTHER_ADDRESSES, 1);
            return;
        }
}

/* What is known of work that comes, the latest of its set from then on. */
static struct gpu_seen *seen_find(struct gpu_segments *s, uint64_t hash) {
    struct gpu_seen *set = s->seen[hash % SEGMENTS_SEEN_SETS];
    int i = 0;
    while (i < SEGMENTS_SEEN_WAYS - 1 && set[i].hash != hash)
        i++;
    struct gpu_seen seen = set[i].hash == hash ? set[i] : (struct gpu_seen){.hash = hash};
    memmove(&set[1], &set[0], (size_t)i * sizeof *set);
    set[0] = seen;
    return &set[0];
}

/* The noted work was enqueued. Captures it if it has come often enough. */
static void learn(struct gpu_device *gpu) {
    struct gpu_segments *s = &gpu->segments;
    if (s->n < SEGMENT_MIN_WORK || find(s, true))
        return;
    struct gpu_seen *seen = seen_find(s, s->hashes[s->n - 1]);
    if (seen->n_runs == 0)
        seen->since = s->n_uses;
    if (++seen->n_runs < SEGMENT_RUNS)
        return;
    seen->n_runs = 0;
    if (!has_room(s, seen->since))
        return;
    struct gpu_segment *segment = gpu_graph_capture(gpu);
    if (segment) {
        add_captured(gpu, segment);
    } else {
        seen->n_runs = -SEGMENT_RETRY_RUNS;
        count(s, DEVICE_FAILED, 1);
    }
}

void gpu_segments_end(struct gpu_device *gpu, enum device_count why) {
    struct gpu_segments *s = &gpu->segments;
    if (s->n == 0)
        return;
    count(s, why, 1);
    struct gpu_segment *same = s->candidate ? find(s, true) : NULL;
    if (same) {
        replay(gpu, same);
        gpu_outbox_leave(gpu);
    } else {
        if (s->candidate) {
            count(s, DEVICE_INTERRUPTED, 1);
            give_parts(gpu, s->n);
        }
        gpu_outbox_leave(gpu);
        look_for_addresses(s);
        learn(gpu);
    }
    clear(s);
    gpu_graphs_reap(gpu, false);
}

/* ---- adding ---- */

static struct status *enqueue_now(struct gpu_device *gpu, const struct gpu_work *work) {
    struct status *st = give(gpu, work);
    gpu_count_enqueued(gpu);
    return st;
}

/* The last part is not what a graph goes on with. */
static struct status *leave_candidate(struct gpu_device *gpu, const void *owner) {
    struct gpu_segments *s = &gpu->segments;
    count(s, DEVICE_INTERRUPTED, 1);
    give_parts(gpu, s->n - 1);
    return has_failed(gpu, owner) ? NULL : enqueue_now(gpu, &s->work[s->n - 1]);
}

struct status *gpu_segments_add(struct gpu_device *gpu, const void *owner,
                                const struct gpu_work *work) {
    struct gpu_segments *s = &gpu->segments;
    struct gpu_work noted;
    count(s, DEVICE_WORK, 1);
    if (unlikely(gpu->traces)) {
        noted = *work;
        gpu_trace_note(gpu, &noted);
        work = &noted;
    }
    if (!s->is_on)
        return enqueue_now(gpu, work);
    if (unlikely(has_failed(gpu, owner)))
        return NULL;
    if (s->n > 0 && s->owner != owner)
        gpu_segments_end(gpu, DEVICE_ENDS_OTHER_STEP);
    if (s->n == SEGMENT_MAX_WORK ||
        s->n_bytes + work->args_bytes + WORK_ALIGNMENT > SEGMENT_MAX_BYTES)
        gpu_segments_end(gpu, DEVICE_ENDS_FULL);
    bool was_held = s->candidate != NULL, is_first = s->n == 0;
    note_work(s, owner, work);
    if (is_first || (was_held && (s->candidate->n < s->n ||
                                  s->candidate->hashes[s->n - 1] != s->hashes[s->n - 1])))
        s->candidate = find(s, false);
    if (!s->candidate)
        return was_held ? leave_candidate(gpu, owner) : enqueue_now(gpu, &s->work[s->n - 1]);
    gpu_count_held(gpu);
    hold(gpu);
    if (s->candidate->n == s->n) {
        replay(gpu, s->candidate);
        clear(s);
        gpu_outbox_leave(gpu);
        gpu_graphs_reap(gpu, false);
    }
    return NULL;
}
