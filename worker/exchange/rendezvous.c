/* Keeps the task's live steps by id, the ids of ended steps, and what has arrived for steps that
 * have not begun here. */
#include "worker/exchange/rendezvous.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "worker/exchange/rendezvous_internal.h"

/* ---- the table ---- */

static void on_late(struct loop_task *task);

struct rendezvous_table *rendezvous_table_new(struct peer_table *peers,
                                              struct allocator *allocator) {
    struct rendezvous_table *table = xcalloc(1, sizeof(*table));
    table->peers = peers;
    table->allocator = allocator;
    table->task = peers ? peer_table_task(peers) : NULL;
    table->max_in_flight_bytes = RENDEZVOUS_IN_FLIGHT_BYTES;
    CHECK(pthread_mutex_init(&table->lock, NULL) == 0);
    u64map_init(&table->steps);
    step_ids_init(&table->ended);
    list_init(&table->orphans);
    list_init(&table->pending);
    table->late_task.run = on_late;
    table->n_refs = 1;
    if (peers)
        peer_table_set_receiver(peers, &rendezvous_receiver, table);
    return table;
}

void rendezvous_table_set_in_flight_limit(struct rendezvous_table *table, int64_t bytes) {
    table->max_in_flight_bytes = bytes;
}

static void rendezvous_destroy(struct rendezvous *rendezvous) {
    for (struct slot *slot = rendezvous->free_slots, *next; slot; slot = next) {
        next = slot->next;
        free(slot);
    }
    pthread_mutex_destroy(&rendezvous->lock);
    free(rendezvous->buckets);
    free(rendezvous->peers);
    free(rendezvous);
}

/* Lock held; releases it. */
static void table_unref_unlock(struct rendezvous_table *table) {
    bool is_last = --table->n_refs == 0;
    pthread_mutex_unlock(&table->lock);
    if (!is_last)
        return;
    for (struct rendezvous *rendezvous = table->free_steps, *next; rendezvous; rendezvous = next) {
        next = rendezvous->next_free;
        rendezvous_destroy(rendezvous);
    }
    u64map_fini(&table->steps);
    step_ids_fini(&table->ended);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

void rendezvous_table_free(struct rendezvous_table *table) {
    if (!table)
        return;
    if (table->peers)
        peer_table_set_receiver(table->peers, NULL, NULL);
    struct status *why = status_new(STATUS_CANCELLED, "the worker is stopping");
    pthread_mutex_lock(&table->lock);
    table->is_freed = true;
    struct u64map steps = table->steps;
    u64map_init(&table->steps);
    pthread_mutex_unlock(&table->lock);
    size_t cursor = 0;
    uint64_t id;
    void *step;
    while (u64map_next(&steps, &cursor, &id, &step)) {
        rendezvous_clear(step, why, true);
        rendezvous_unref(step);
    }
    u64map_fini(&steps);
    status_unref(why);
    pthread_mutex_lock(&table->lock);
    struct list pending;
    list_init(&pending);
    list_splice_back(&pending, &table->pending);
    pthread_mutex_unlock(&table->lock);
    for (struct list *link; (link = list_pop_front(&pending));)
        rendezvous_unref(LIST_ENTRY(link, struct rendezvous, pending_link));
    pthread_mutex_lock(&table->lock);
    table_unref_unlock(table);
}

/* ---- one step's life ---- */

struct session_credit *session_credit_new(void) {
    struct session_credit *credit = xcalloc(1, sizeof(*credit));
    atomic_init(&credit->n_refs, 1);
    return credit;
}

struct session_credit *session_credit_ref(struct session_credit *credit) {
    if (credit)
        atomic_fetch_add_explicit(&credit->n_refs, 1, memory_order_relaxed);
    return credit;
}

void session_credit_unref(struct session_credit *credit) {
    if (credit && atomic_fetch_sub_explicit(&credit->n_refs, 1, memory_order_acq_rel) == 1)
        free(credit);
}

/* Lock held. */
static struct rendezvous *rendezvous_new(struct rendezvous_table *table, uint64_t step_id) {
    struct rendezvous *rendezvous = table->free_steps;
    if (rendezvous) {
        table->free_steps = rendezvous->next_free;
        table->n_free_steps--;
    } else {
        rendezvous = xcalloc(1, sizeof(*rendezvous));
        rendezvous->table = table;
        CHECK(pthread_mutex_init(&rendezvous->lock, NULL) == 0);
        list_init(&rendezvous->link);
        list_init(&rendezvous->pending_link);
    }
    atomic_init(&rendezvous->n_refs, 2); /* the table's and the caller's references */
    rendezvous->step_id = step_id;
    rendezvous->is_opened = rendezvous->is_ended = rendezvous->has_dropped_pregrant = false;
    rendezvous->n_peers = 0;
    rendezvous->n_considered = 0;
    rendezvous->late_edges = NULL;
    list_init(&rendezvous->announced);
    u64map_put(&table->steps, step_id, rendezvous);
    table->n_refs++;
    return rendezvous;
}

static struct rendezvous *rendezvous_ref(struct rendezvous *rendezvous) {
    atomic_fetch_add_explicit(&rendezvous->n_refs, 1, memory_order_relaxed);
    return rendezvous;
}

void rendezvous_unref(struct rendezvous *rendezvous) {
    if (!rendezvous || atomic_fetch_sub_explicit(&rendezvous->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    struct rendezvous_table *table = rendezvous->table;
    status_unref(rendezvous->why);
    rendezvous->why = NULL;
    session_credit_unref(rendezvous->credit);
    rendezvous->credit = NULL;
    pthread_mutex_lock(&table->lock);
    bool keep = table->n_free_steps < STEPS_KEPT && rendezvous->n_buckets <= SLOTS_KEPT;
    if (keep) {
        rendezvous->next_free = table->free_steps;
        table->free_steps = rendezvous;
        table->n_free_steps++;
    }
    table_unref_unlock(table);
    if (!keep)
        rendezvous_destroy(rendezvous);
}

struct rendezvous *rendezvous_open(struct rendezvous_table *table, uint64_t step_id,
                                   struct session_credit *credit,
                                   const struct plan_edges *late_edges) {
    pthread_mutex_lock(&table->lock);
    struct rendezvous *rendezvous = u64map_get(&table->steps, step_id);
    if (rendezvous)
        rendezvous_ref(rendezvous);
    else if (!table->is_freed && !step_ids_is_ended(&table->ended, step_id))
        rendezvous = rendezvous_new(table, step_id);
    if (rendezvous)
        list_remove(&rendezvous->link);
    pthread_mutex_unlock(&table->lock);
    if (!rendezvous)
        return NULL;
    pthread_mutex_lock(&rendezvous->lock);
    rendezvous->is_opened = true;
    if (late_edges && late_edges->n > 0)
        rendezvous->late_edges = late_edges;
    if (!rendezvous->credit)
        rendezvous->credit = session_credit_ref(credit);
    size_t early_bytes = rendezvous->early_bytes;
    rendezvous->early_bytes = 0;
    bool has_announced = rendezvous->n_announced > 0;
    pthread_mutex_unlock(&rendezvous->lock);
    atomic_fetch_sub_explicit(&table->early_bytes, (int64_t)early_bytes, memory_order_relaxed);
    if (has_announced)
        rendezvous_try_grants(rendezvous);
    return rendezvous;
}

enum find_result rendezvous_find(struct rendezvous_table *table, uint64_t step_id, bool make,
                                 struct rendezvous **ret) {
    enum find_result result = FOUND;
    pthread_mutex_lock(&table->lock);
    struct rendezvous *rendezvous = u64map_get(&table->steps, step_id);
    bool is_full = make && atomic_load_explicit(&table->early_bytes, memory_order_relaxed) >=
                               RENDEZVOUS_EARLY_MAX_BYTES;
    /* an orphan that would grow beyond the limit */
    if (rendezvous && is_full && !list_is_empty(&rendezvous->link)) {
        rendezvous = NULL;
        result = FIND_REFUSED;
    } else if (rendezvous) {
        rendezvous_ref(rendezvous);
    } else if (table->is_freed || step_ids_is_ended(&table->ended, step_id)) {
        result = FIND_ENDED;
    } else if (!make || is_full || table->steps.n_entries >= RENDEZVOUS_EARLY_MAX_STEPS) {
        result = FIND_REFUSED;
    } else {
        rendezvous = rendezvous_new(table, step_id);
        rendezvous->since_ns = clock_now_ns();
        list_push_back(&table->orphans, &rendezvous->link);
    }
    pthread_mutex_unlock(&table->lock);
    *ret = rendezvous;
    return result;
}

/* When nothing more may be kept, the step counts as ended, so its RunGraph will be refused. */
void rendezvous_lose_step(struct rendezvous_table *table, uint64_t step_id, struct status *why) {
    pthread_mutex_lock(&table->lock);
    struct rendezvous *rendezvous = u64map_get(&table->steps, step_id);
    if (rendezvous) {
        rendezvous_ref(rendezvous);
    } else if (table->is_freed || step_ids_is_ended(&table->ended, step_id)) {
        rendezvous = NULL;
    } else if (table->steps.n_entries >= RENDEZVOUS_EARLY_MAX_STEPS) {
        step_ids_end(&table->ended, step_id);
    } else {
        rendezvous = rendezvous_new(table, step_id);
        rendezvous->since_ns = clock_now_ns();
        list_push_back(&table->orphans, &rendezvous->link);
    }
    pthread_mutex_unlock(&table->lock);
    if (!rendezvous)
        return;
    rendezvous_abort(rendezvous, why);
    rendezvous_unref(rendezvous);
}

void rendezvous_end_step(struct rendezvous_table *table, uint64_t step_id) {
    pthread_mutex_lock(&table->lock);
    struct rendezvous *rendezvous = u64map_remove(&table->steps, step_id);
    if (rendezvous)
        list_remove(&rendezvous->link);
    step_ids_end(&table->ended, step_id);
    pthread_mutex_unlock(&table->lock);
    if (!rendezvous)
        return;
    rendezvous_clear(rendezvous, NULL, true);
    rendezvous_unref(rendezvous);
}

bool rendezvous_is_ended(struct rendezvous_table *table, uint64_t step_id) {
    pthread_mutex_lock(&table->lock);
    bool is_ended = step_ids_is_ended(&table->ended, step_id);
    pthread_mutex_unlock(&table->lock);
    return is_ended;
}

/* ---- steps whose RunGraph never comes ---- */

/* Lock held. Takes the orphans out of the table that are too old, or whose master says that they
 * have ended. */
static void collect_orphans(struct rendezvous_table *table, int64_t before_ns,
                            struct list *ret_gone) {
    LIST_FOR_EACH_SAFE (link, next, &table->orphans) {
        struct rendezvous *rendezvous = LIST_ENTRY(link, struct rendezvous, link);
        if (rendezvous->since_ns >= before_ns &&
            !step_ids_is_ended(&table->ended, rendezvous->step_id))
            continue;
        list_remove(link);
        list_push_back(ret_gone, link);
        u64map_remove(&table->steps, rendezvous->step_id);
        step_ids_end(&table->ended, rendezvous->step_id);
    }
}

static void drop_orphans(struct list *gone) {
    for (struct list *link; (link = list_pop_front(gone));) {
        struct rendezvous *rendezvous = LIST_ENTRY(link, struct rendezvous, link);
        rendezvous_clear(rendezvous, NULL, true);
        rendezvous_unref(rendezvous);
    }
}

void rendezvous_prune(struct rendezvous_table *table, uint64_t master_incarnation,
                      uint64_t oldest_live_step) {
    struct list gone;
    list_init(&gone);
    pthread_mutex_lock(&table->lock);
    step_ids_prune(&table->ended, oldest_live_step);
    if (unlikely(!list_is_empty(&table->orphans)))
        collect_orphans(table, INT64_MIN, &gone);
    pthread_mutex_unlock(&table->lock);
    drop_orphans(&gone);
}

void rendezvous_forget_master(struct rendezvous_table *table, uint64_t master_incarnation) {
    uint64_t master = step_id_master(master_incarnation << STEP_SEQUENCE_BITS);
    struct list gone;
    list_init(&gone);
    pthread_mutex_lock(&table->lock);
    LIST_FOR_EACH (link, &table->orphans) {
        struct rendezvous *rendezvous = LIST_ENTRY(link, struct rendezvous, link);
        if (step_id_master(rendezvous->step_id) == master)
            rendezvous->since_ns = INT64_MIN;
    }
    collect_orphans(table, INT64_MIN + 1, &gone);
    step_ids_forget(&table->ended, master);
    pthread_mutex_unlock(&table->lock);
    drop_orphans(&gone);
}

void rendezvous_expire(struct rendezvous_table *table, int64_t now_ns) {
    struct list gone;
    list_init(&gone);
    pthread_mutex_lock(&table->lock);
    collect_orphans(table, now_ns - RENDEZVOUS_ORPHAN_SECONDS * 1000000000ll, &gone);
    pthread_mutex_unlock(&table->lock);
    drop_orphans(&gone);
}

/* ---- waits that began too late ---- */

static void tell(struct late_recv *late) {
    while (late) {
        struct late_recv *next = late->next;
        late->recv->on_value(late->recv, late->why, NULL);
        free(late);
        late = next;
    }
}

static void on_late(struct loop_task *task) {
    struct rendezvous_table *table = CONTAINER_OF(task, struct rendezvous_table, late_task);
    pthread_mutex_lock(&table->lock);
    struct late_recv *late = table->late;
    table->late = NULL;
    table->is_late_posted = false;
    pthread_mutex_unlock(&table->lock);
    tell(late);
    pthread_mutex_lock(&table->lock);
    table_unref_unlock(table);
}

/* A table without peers has no loop (in tests, and in a task on its own). The wait is then told at
 * once, which the executor allows. */
void rendezvous_tell_late(struct rendezvous_table *table, struct rendezvous_recv *recv,
                          struct status *why_take) {
    struct late_recv *late = xmalloc(sizeof(*late));
    *late = (struct late_recv){.recv = recv, .why = why_take};
    if (!table->peers) {
        tell(late);
        return;
    }
    pthread_mutex_lock(&table->lock);
    late->next = table->late;
    table->late = late;
    bool must_post = !table->is_late_posted;
    table->is_late_posted = true;
    table->n_refs += must_post;
    pthread_mutex_unlock(&table->lock);
    if (must_post)
        loop_post(peer_table_loop(table->peers), &table->late_task);
}

/* ---- steps that wait for room ---- */

void rendezvous_add_pending(struct rendezvous *rendezvous) {
    struct rendezvous_table *table = rendezvous->table;
    pthread_mutex_lock(&table->lock);
    if (list_is_empty(&rendezvous->pending_link) && !table->is_freed)
        list_push_back(&table->pending, &rendezvous_ref(rendezvous)->pending_link);
    pthread_mutex_unlock(&table->lock);
}

void rendezvous_retry_pending(struct rendezvous_table *table) {
    struct list pending;
    list_init(&pending);
    pthread_mutex_lock(&table->lock);
    list_splice_back(&pending, &table->pending);
    pthread_mutex_unlock(&table->lock);
    for (;;) {
        /* another thread's rendezvous_add_pending reads the link */
        pthread_mutex_lock(&table->lock);
        struct list *link = list_pop_front(&pending);
        pthread_mutex_unlock(&table->lock);
        if (!link)
            break;
        struct rendezvous *rendezvous = LIST_ENTRY(link, struct rendezvous, pending_link);
        rendezvous_try_grants(rendezvous); /* it is queued again when there is no credit */
        rendezvous_unref(rendezvous);
    }
}

/* ---- the status page ---- */

void rendezvous_table_describe(struct rendezvous_table *table, struct str *out) {
    pthread_mutex_lock(&table->lock);
    size_t n_orphans = 0;
    LIST_FOR_EACH (link, &table->orphans)
        n_orphans++;
    str_addf(out,
             "{\"steps\":%zu,\"unopened\":%zu,\"in_flight_bytes\":%lld,\"in_flight_limit_bytes\":%"
             "lld,\"pregrant_bytes\":%lld,\"pregrant_limit_"
             "bytes\":%lld,"
             "\"early_bytes\":%lld}",
             table->steps.n_entries, n_orphans, (long long)atomic_load(&table->in_flight_bytes),
             (long long)table->max_in_flight_bytes, (long long)atomic_load(&table->pregrant_bytes),
             (long long)(table->max_in_flight_bytes / RENDEZVOUS_PREGRANT_SHARE),
             (long long)atomic_load(&table->early_bytes));
    pthread_mutex_unlock(&table->lock);
}
