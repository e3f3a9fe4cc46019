/* Runs the registration of a process in etcd: one etcd call or one timer at a time, each reply
 * moves the state machine that the header draws. */
#include "rpc/membership/etcd_registration.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/state_machine.h"
#include "rpc/host_id.h"
#include "rpc/membership/probe.h"

enum {
    RETRY_MS = 1000,
    LEAVE_MS = 1000,
    /* A lease counts as renewed when its remaining time is this much longer than expected, because
     * etcd rounds it down to seconds and the clocks of its members differ. */
    SLACK_MS = 2000,
};

enum registration_state { GRANTING, CLAIMING, PROBING, WAITING, HELD, HELD_BY_OTHER, LEAVING };

#define LEAVE STATE_SET(LEAVING)
static const struct state_row states[] = {
    [GRANTING] = {"GRANTING", STATE_SET(GRANTING) | STATE_SET(CLAIMING) | LEAVE, .is_first = true},
    [CLAIMING] = {"CLAIMING", STATE_SET(GRANTING) | STATE_SET(CLAIMING) | STATE_SET(PROBING) |
                                  STATE_SET(HELD) | LEAVE},
    [PROBING] = {"PROBING",
                 STATE_SET(GRANTING) | STATE_SET(WAITING) | STATE_SET(HELD_BY_OTHER) | LEAVE},
    [WAITING] = {"WAITING", STATE_SET(GRANTING) | STATE_SET(HELD_BY_OTHER) | LEAVE},
    [HELD] = {"HELD", STATE_SET(GRANTING) | STATE_SET(CLAIMING) | STATE_SET(HELD) |
                          STATE_SET(HELD_BY_OTHER) | LEAVE},
    [HELD_BY_OTHER] = {"HELD_BY_OTHER", LEAVE},
    [LEAVING] = {"LEAVING", 0},
};
#undef LEAVE
const struct state_machine etcd_registration_machine = {"etcd registration", states,
                                                        ARRAY_LEN(states)};

static struct metric registered = METRIC_GAUGE_INIT(
    "millrace_etcd_registered",
    "1 while etcd has confirmed this process' registration within its time to live");

struct etcd_registration {
    struct loop *loop;
    struct etcd_registration_options options; /* its strings are its own */
    struct str value;
    char *address;
    uint64_t incarnation;
    uint8_t state;               /* enum registration_state */
    int64_t lease, mod_revision; /* of the key: the next claim expects it */
    struct etcd_call call;
    struct loop_timer timer;
    struct probe probe;
    /* when the last call about our lease was sent, and when the last one that was answered was
     * sent */
    int64_t asked_ms, kept_ms;
    struct str holder, why_unknown;      /* for messages */
    struct str trouble;                  /* what the last call failed with; "": it did not */
    int64_t holder_lease, holder_ttl_ms; /* WAITING: the time that its lease had left at seen_ms */
    int64_t seen_ms;                     /* 0: etcd was not asked yet */
    /* consecutive claims that failed although nobody holds the key */
    int n_in_vain;
    bool is_away, has_held, has_ended;
    int n_open; /* timers */
    void (*on_left)(void *arg);
    void *on_left_arg;
};

static void move(struct etcd_registration *e, enum registration_state to) {
    state_machine_move(&etcd_registration_machine, &e->state, to, e);
}

static void grant(struct etcd_registration *e);
static void claim(struct etcd_registration *e);

static int64_t now_ms(void) { return clock_now_ns() / 1000000; }

bool etcd_registration_has_lapsed(const struct etcd_registration *e) {
    return e->has_held && e->state != HELD_BY_OTHER && e->state != LEAVING &&
           now_ms() - e->kept_ms > e->options.ttl_s * 1000;
}

bool etcd_registration_is_ready(const struct etcd_registration *e, struct str *why_not) {
    if (e->has_held && e->state != HELD_BY_OTHER)
        return true;
    str_addf(why_not, "not registered in etcd: %s",
             e->trouble.len > 0 ? str_text(&e->trouble) : "no answer yet");
    return false;
}

static void show_whether_registered(const struct etcd_registration *e) {
    metric_set(&registered,
               e->has_held && e->state != HELD_BY_OTHER && !etcd_registration_has_lapsed(e));
}

/* ---- trouble ---- */

static void retry_later(struct etcd_registration *e, struct status *why_take) {
    if (!e->is_away || strcmp(str_text(&e->trouble), status_message(why_take)) != 0)
        log_event(EVENT_REGISTRATION_FAILED, "registration %s: %s; trying again every second",
                  e->options.key, status_message(why_take));
    e->is_away = true;
    str_clear(&e->trouble);
    str_add(&e->trouble, status_message(why_take));
    status_unref(why_take);
    show_whether_registered(e);
    loop_timer_start(&e->timer, RETRY_MS, 0);
}

static void taken(struct etcd_registration *e, const char *how) {
    struct str why = STR_INIT;
    str_addf(&why, "%s is held by %s, which %s", e->options.key, str_text(&e->holder), how);
    move(e, HELD_BY_OTHER);
    show_whether_registered(e);
    loop_timer_stop(&e->timer);
    e->options.on_taken(e->options.arg, str_text(&why));
    str_fini(&why);
}

/* ---- the job's key ---- */

static void check_job(struct etcd_registration *e, const struct etcd_range *range) {
    if (range->n == 0 || e->has_ended || !span_is(range->kvs[0].value, MEMBER_JOB_ENDED))
        return;
    e->has_ended = true;
    e->options.on_job_ended(e->options.arg);
}

/* ---- held ---- */

static void held(struct etcd_registration *e) {
    move(e, HELD);
    if (e->is_away || !e->has_held)
        log_event(EVENT_REGISTERED, "registered as %s", e->options.key);
    e->is_away = false;
    str_clear(&e->trouble);
    e->has_held = true;
    e->n_in_vain = 0;
    show_whether_registered(e);
    loop_timer_start(&e->timer, e->options.ttl_s * 1000 / 3, 0);
}

static void describe_holder(struct etcd_registration *e, const struct cluster_member *member) {
    str_clear(&e->holder);
    str_addf(&e->holder, "the process at %s with incarnation %016" PRIx64, member->address,
             member->incarnation);
}

/* Checks whether our entry still exists, and whether another process has replaced it. */
static void on_checked(struct etcd_call *call, struct status *status_take,
                       const struct etcd_reply *reply) {
    struct etcd_registration *e = CONTAINER_OF(call, struct etcd_registration, call);
    if (status_take || reply->n_ranges < 2) {
        retry_later(e, status_take
                           ? status_take
                           : status_unavailable("etcd: the reply lacks a key that was asked for"));
        return;
    }
    struct etcd_range *own = &reply->ranges[0];
    struct arena arena;
    struct cluster_member member;
    arena_init(&arena);
    struct status *st = own->n > 0 ? member_parse(own->kvs[0].value, &arena, &member) : NULL;
    if (own->n == 0) {
        e->mod_revision = 0;
        claim(e);
    } else if (!st && member.incarnation != e->incarnation) {
        describe_holder(e, &member);
        taken(e, "replaced this one while it was silent");
    } else {
        e->mod_revision = own->kvs[0].mod_revision;
        if (st || own->kvs[0].lease != e->lease)
            claim(e); /* something changed the entry: write it again */
        else
            held(e);
    }
    status_unref(st);
    arena_fini(&arena);
    if (e->state == HELD || e->state == CLAIMING)
        check_job(e, &reply->ranges[1]);
}

/* etcd removed our entry with its lease. */
static void lease_has_lapsed(struct etcd_registration *e) {
    log_event(EVENT_REGISTRATION_LAPSED, "registration %s: its lease has lapsed; registering again",
              e->options.key);
    e->mod_revision = 0;
    grant(e);
}

static void on_kept_alive(struct etcd_call *call, struct status *status_take,
                          const struct etcd_reply *reply) {
    struct etcd_registration *e = CONTAINER_OF(call, struct etcd_registration, call);
    if (status_code(status_take) == STATUS_NOT_FOUND || (!status_take && reply->ttl_s <= 0)) {
        status_unref(status_take);
        lease_has_lapsed(e);
        return;
    }
    if (status_take) {
        retry_later(e, status_take);
        return;
    }
    e->kept_ms = e->asked_ms;
    show_whether_registered(e);
    e->call.on_reply = on_checked;
    const char *keys[] = {e->options.key, e->options.job_key};
    etcd_read(e->options.etcd, &e->call, keys, ARRAY_LEN(keys));
}

static void keep_alive(struct etcd_registration *e) {
    e->asked_ms = now_ms();
    e->call.on_reply = on_kept_alive;
    etcd_lease_keep_alive(e->options.etcd, &e->call, e->lease);
}

/* ---- claiming ---- */

/* Is the entry an older one of this process, or one of a process at our own address? That process
 * has ended, because we listen at the address now. */
static bool is_our_place(const struct etcd_registration *e, const struct cluster_member *member) {
    return member->incarnation == e->incarnation ||
           (strcmp(member->address, e->address) == 0 && strcmp(member->host_id, host_id()) == 0);
}

static void check_holder(struct etcd_registration *e, const struct etcd_kv *kv) {
    struct arena arena;
    struct cluster_member member;
    arena_init(&arena);
    struct status *st = member_parse(kv->value, &arena, &member);
    e->mod_revision = kv->mod_revision;
    e->holder_lease = kv->lease;
    if (st) {
        log_event(EVENT_REGISTRATION_REPLACED,
                  "registration %s: the existing entry is invalid (%s); replacing it",
                  e->options.key, status_message(st));
        status_unref(st);
        claim(e);
    } else if (is_our_place(e, &member)) {
        claim(e);
    } else {
        describe_holder(e, &member);
        log_event(EVENT_REGISTRATION_HELD,
                  "registration %s is held by %s: probing whether it lives", e->options.key,
                  str_text(&e->holder));
        move(e, PROBING);
        if (e->options.is_master)
            probe_master(&e->probe, etcd_http(e->options.etcd), &member);
        else
            probe_task(&e->probe, &member);
    }
    arena_fini(&arena);
}

/* Claims the key of a dead holder. Takes a fresh lease first, because ours may have lapsed during
 * the probe. */
static void replace(struct etcd_registration *e, const char *why) {
    log_event(EVENT_REGISTRATION_REPLACED, "registration %s: %s is dead (%s); replacing it",
              e->options.key, str_text(&e->holder), why);
    grant(e);
}

/* ---- nobody can tell whether the holder lives: wait and see whether it renews its lease ---- */

static bool is_renewed(const struct etcd_registration *e, int64_t ttl_ms) {
    return e->seen_ms > 0 && ttl_ms + (e->asked_ms - e->seen_ms) > e->holder_ttl_ms + SLACK_MS;
}

static void on_lease_seen(struct etcd_call *call, struct status *status_take,
                          const struct etcd_reply *reply) {
    struct etcd_registration *e = CONTAINER_OF(call, struct etcd_registration, call);
    if (status_code(status_take) == STATUS_NOT_FOUND || (!status_take && reply->ttl_s <= 0)) {
        status_unref(status_take);
        replace(e, "its lease has lapsed");
    } else if (status_take) {
        e->seen_ms = 0; /* After a restart etcd gives every lease its full time again. */
        retry_later(e, status_take);
    } else if (is_renewed(e, reply->ttl_s * 1000)) {
        struct str how = STR_INIT;
        str_addf(&how, "renews its lease, but cannot be probed from here (%s)",
                 str_text(&e->why_unknown));
        taken(e, str_text(&how));
        str_fini(&how);
    } else {
        if (e->seen_ms == 0) {
            e->seen_ms = now_ms();
            e->holder_ttl_ms = reply->ttl_s * 1000;
        }
        loop_timer_start(&e->timer, RETRY_MS, 0);
    }
}

static void check_lease(struct etcd_registration *e) {
    e->asked_ms = now_ms();
    e->call.on_reply = on_lease_seen;
    etcd_lease_time_to_live(e->options.etcd, &e->call, e->holder_lease);
}

static void wait_for_lease(struct etcd_registration *e, const char *why) {
    log_event(EVENT_REGISTRATION_UNCLEAR,
              "registration %s: cannot tell whether %s lives (%s): waiting for its lease to lapse",
              e->options.key, str_text(&e->holder), why);
    str_clear(&e->why_unknown);
    str_add(&e->why_unknown, why);
    move(e, WAITING);
    e->seen_ms = 0;
    check_lease(e);
}

static void on_probed(struct probe *probe, enum probe_outcome outcome, const char *why) {
    struct etcd_registration *e = CONTAINER_OF(probe, struct etcd_registration, probe);
    if (outcome == PROBE_ALIVE)
        taken(e, "is alive");
    else if (outcome == PROBE_GONE)
        replace(e, why);
    else if (e->holder_lease == 0)
        replace(e, "its entry has no lease that it could renew");
    else
        wait_for_lease(e, why);
}

/* ---- the claim ---- */

/* Tries again at once, or after a second if the last attempt failed in the same way. */
static void try_again(struct etcd_registration *e, enum registration_state state, const char *why) {
    move(e, state);
    if (e->n_in_vain++ > 0)
        retry_later(e, status_unavailable("etcd: %s", why));
    else if (state == GRANTING)
        grant(e);
    else
        claim(e);
}

static void claimed(struct etcd_registration *e) {
    const char *keys[] = {e->options.key, e->options.job_key};
    bool is_first = !e->has_held;
    held(e);
    e->call.on_reply = on_checked;
    /* the job may have ended before we registered */
    etcd_read(e->options.etcd, &e->call, keys, ARRAY_LEN(keys));
    if (is_first && e->options.on_held)
        e->options.on_held(e->options.arg);
}

static void on_claimed(struct etcd_call *call, struct status *status_take,
                       const struct etcd_reply *reply) {
    struct etcd_registration *e = CONTAINER_OF(call, struct etcd_registration, call);
    if (status_code(status_take) == STATUS_NOT_FOUND) {
        status_unref(status_take);
        try_again(e, GRANTING, "etcd does not know the lease that it has just granted");
    } else if (status_take) {
        retry_later(e, status_take);
    } else if (reply->has_succeeded) {
        claimed(e);
    } else if (reply->n_ranges > 0 && reply->ranges[0].n > 0) {
        check_holder(e, &reply->ranges[0].kvs[0]);
    } else {
        e->mod_revision = 0; /* the entry disappeared meanwhile */
        try_again(e, CLAIMING, "the claim fails although nobody holds the key");
    }
}

static void claim(struct etcd_registration *e) {
    move(e, CLAIMING);
    loop_timer_stop(&e->timer);
    e->call.on_reply = on_claimed;
    etcd_claim(e->options.etcd, &e->call, e->options.key, e->mod_revision,
               (struct span){str_text(&e->value), e->value.len}, e->lease);
}

static void on_granted(struct etcd_call *call, struct status *status_take,
                       const struct etcd_reply *reply) {
    struct etcd_registration *e = CONTAINER_OF(call, struct etcd_registration, call);
    if (status_take || reply->lease == 0) {
        retry_later(e, status_take ? status_take
                                   : status_unavailable("etcd: a lease without a number"));
        return;
    }
    e->lease = reply->lease;
    e->kept_ms = e->asked_ms;
    claim(e);
}

static void grant(struct etcd_registration *e) {
    move(e, GRANTING);
    e->lease = 0;
    e->asked_ms = now_ms();
    e->call.on_reply = on_granted;
    etcd_lease_grant(e->options.etcd, &e->call, e->options.ttl_s);
}

/* ---- timer, start and end ---- */

static void free_memory(struct etcd_registration *e) {
    void (*on_left)(void *arg) = e->on_left;
    void *arg = e->on_left_arg;
    str_fini(&e->value);
    str_fini(&e->holder);
    str_fini(&e->why_unknown);
    str_fini(&e->trouble);
    free(e->address);
    free((char *)(uintptr_t)e->options.key);
    free((char *)(uintptr_t)e->options.job_key);
    free((char *)(uintptr_t)e->options.task);
    free(e);
    if (on_left)
        on_left(arg);
}

static void on_probe_timer_closed(struct loop_timer *timer) {
    struct etcd_registration *e = CONTAINER_OF(timer, struct etcd_registration, probe.timer);
    if (--e->n_open == 0)
        free_memory(e);
}

static void on_timer_closed(struct loop_timer *timer) {
    struct etcd_registration *e = CONTAINER_OF(timer, struct etcd_registration, timer);
    if (--e->n_open == 0)
        free_memory(e);
}

static void left(struct etcd_registration *e) {
    etcd_call_cancel(&e->call);
    probe_close(&e->probe, on_probe_timer_closed);
    loop_timer_close(&e->timer, on_timer_closed);
}

static void on_revoked(struct etcd_call *call, struct status *status_take,
                       const struct etcd_reply *reply) {
    status_unref(status_take); /* on an error the lease lapses by itself */
    left(CONTAINER_OF(call, struct etcd_registration, call));
}

static void on_timer(struct loop_timer *timer) {
    struct etcd_registration *e = CONTAINER_OF(timer, struct etcd_registration, timer);
    if (e->call.etcd && e->state != LEAVING)
        return; /* its reply continues the machine */
    if (e->state == LEAVING)
        left(e);
    else if (e->state == HELD)
        keep_alive(e);
    else if (e->state == WAITING)
        check_lease(e);
    else if (e->state == CLAIMING)
        claim(e);
    else if (e->state == GRANTING)
        grant(e);
}

struct etcd_registration *etcd_registration_new(struct loop *loop,
                                                const struct etcd_registration_options *options) {
    struct etcd_registration *e = xcalloc(1, sizeof(*e));
    metrics_register(&registered);
    e->loop = loop;
    state_machine_start(&etcd_registration_machine, &e->state, GRANTING, e);
    e->options = *options;
    e->options.member = NULL;
    e->options.key = xstrdup(options->key);
    e->options.job_key = xstrdup(options->job_key);
    e->options.ttl_s = options->ttl_s > 0 ? options->ttl_s : ETCD_REGISTRATION_TTL_S;
    e->address = xstrdup(options->member->address);
    e->incarnation = options->member->incarnation;
    member_write(options->member, &e->value);
    loop_timer_init(loop, &e->timer, on_timer);
    probe_init(&e->probe, loop);
    e->probe.on_done = on_probed;
    e->probe.tls = options->tls;
    e->probe.task = e->options.task = options->task ? xstrdup(options->task) : NULL;
    e->probe.is_https = options->is_https;
    e->n_open = 2;
    loop_timer_start(&e->timer, 0, 0);
    return e;
}

void etcd_registration_leave(struct etcd_registration *e, void (*on_left)(void *arg), void *arg) {
    bool has_entry = e->lease != 0 && e->state != HELD_BY_OTHER;
    e->on_left = on_left;
    e->on_left_arg = arg;
    move(e, LEAVING);
    etcd_call_cancel(&e->call);
    probe_stop(&e->probe);
    if (!has_entry || !etcd_is_up(e->options.etcd, NULL)) {
        left(e);
        return;
    }
    e->call.on_reply = on_revoked;
    etcd_lease_revoke(e->options.etcd, &e->call, e->lease);
    loop_timer_start(&e->timer, LEAVE_MS, 0);
}

void etcd_registration_describe(const struct etcd_registration *e, struct str *out) {
    static const char *const names[] = {"granting", "claiming", "probing", "waiting",
                                        "held",     "taken",    "leaving"};
    struct str why = STR_INIT;
    bool is_up = etcd_is_up(e->options.etcd, &why);
    if (is_up)
        str_add(&why, str_text(&e->trouble));
    str_addf(out,
             "{\"key\": \"%s\", \"state\": \"%s\", \"lease\": \"%" PRIx64
             "\", \"etcd\": \"%s\", \"why\": \"",
             e->options.key,
             e->state == HELD && etcd_registration_has_lapsed(e) ? "lapsed" : names[e->state],
             (uint64_t)e->lease, is_up ? "up" : "away");
    str_add_json_escaped(out, str_text(&why), why.len);
    str_add(out, "\"}");
    str_fini(&why);
}
