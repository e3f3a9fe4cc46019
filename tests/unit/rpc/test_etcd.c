/* The client of etcd, and a registration, against a gateway that says what the test wants. */
#include "rpc/membership/etcd_registration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "rpc/host_id.h"
#include "tests/unit/rpc/fake_gateway.h"
#include "tests/unit/rpc/loop_until.h"
#include "tests/unit/state_drawing.h"

struct fixture {
    struct loop *loop;
    struct etcd *etcd;
    struct fake_gateway *gateways[2];
    bool is_closed;
    /* What came. */
    struct etcd_call call;
    struct etcd_watch watch;
    struct status *status;
    int n_replies, n_events, n_ends;
    int64_t revision;
    /* What the gateway does: by test. */
    int mode, n_calls, n_grants, n_claims, n_keeps, n_looks;
    int64_t claimed_at_ns[4];
    bool is_held, is_taken, has_ended, is_claimed_as_new;
    char why[512];
};

static void on_reply(struct etcd_call *call, struct status *status_take,
                     const struct etcd_reply *reply) {
    struct fixture *f = CONTAINER_OF(call, struct fixture, call);
    status_unref(f->status);
    f->status = status_take;
    f->revision = reply ? reply->revision : 0;
    f->n_replies++;
}

static void on_events(struct etcd_watch *watch, const struct etcd_reply *reply) {
    CONTAINER_OF(watch, struct fixture, watch)->n_events += reply->n_events;
}

static void on_end(struct etcd_watch *watch, struct status *status_take) {
    struct fixture *f = CONTAINER_OF(watch, struct fixture, watch);
    status_unref(f->status);
    f->status = status_take;
    f->n_ends++;
}

static struct fixture *setup(int n_gateways, int (*answer)(void *arg, const char *path,
                                                           const char *body, struct str *out)) {
    struct fixture *f = calloc(1, sizeof(*f));
    struct str urls = STR_INIT;
    f->loop = loop_new();
    for (int i = 0; i < n_gateways; i++) {
        f->gateways[i] = fake_gateway_new(answer, f);
        str_addf(&urls, "%s127.0.0.1:%d", i ? "," : "", f->gateways[i]->port);
    }
    f->call.on_reply = on_reply;
    f->watch.on_events = on_events;
    f->watch.on_end = on_end;
    assert_null(etcd_new(
        f->loop, &(struct etcd_options){.urls = str_text(&urls), .timeout_ms = 500}, &f->etcd));
    str_fini(&urls);
    return f;
}

static void on_closed(void *arg) { ((struct fixture *)arg)->is_closed = true; }

static void teardown(struct fixture *f) {
    etcd_close(f->etcd, on_closed, f);
    loop_stop(f->loop);
    loop_run(f->loop);
    assert_true(f->is_closed);
    for (int i = 0; i < 2; i++)
        if (f->gateways[i])
            fake_gateway_stop(f->gateways[i]);
    status_unref(f->status);
    loop_free(f->loop);
}

/* ---- the client ---- */

enum { GOOD, NO_JSON, NO_LEADER, CLOSES, HANGS };

static int answer_by_mode(void *arg, const char *path, const char *body, struct str *out) {
    struct fixture *f = arg;
    f->n_calls++;
    if (strcmp(path, "/v3/watch") == 0) {
        str_add(out, "{\"result\":{\"created\":true}}\n{\"result\":{\"events\":[{\"kv\":{\"key\":"
                     "\"YQ==\"}}]}}\n");
        return -2;
    }
    if (f->mode == NO_LEADER) {
        str_add(out, "{\"error\":\"etcdserver: no leader\",\"code\":14}");
        return 503;
    }
    str_add(out, f->mode == NO_JSON ? "<html>" : "{\"header\":{\"revision\":\"17\"}}");
    return f->mode == CLOSES ? 0 : f->mode == HANGS ? -1 : 200;
}

static void ask(struct fixture *f, int mode) {
    int before = f->n_replies;
    f->mode = mode;
    etcd_range(f->etcd, &f->call, "a", false);
    LOOP_UNTIL(f->loop, f->n_replies > before);
}

/* ---- an etcd with authentication ---- */

static int answer_to_users(void *arg, const char *path, const char *body, struct str *out) {
    struct fixture *f = arg;
    if (strcmp(path, "/v3/auth/authenticate") == 0) {
        f->n_grants++;
        bool is_right = strcmp(body, "{\"name\":\"ada\",\"password\":\"se\\\"cret\"}") == 0;
        str_add(out, f->mode == NO_JSON ? "{\"token\":\"a\\r\\nX: b\"}"
                     : is_right         ? "{\"token\":\"abc.7\"}"
                                        : "{\"error\":\"etcdserver: authentication failed\","
                                          "\"code\":3}");
        return is_right || f->mode == NO_JSON ? 200 : 400;
    }
    f->n_calls++;
    if (f->n_looks > 0) { /* so many requests are refused */
        f->n_looks--;
        str_add(out, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}");
        return 401;
    }
    str_add(out, "{\"header\":{\"revision\":\"17\"}}");
    return 200;
}

static void write_password(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static struct fixture *setup_user(const char *password) {
    static const char path[] = "/tmp/millrace-test-etcd-password";
    struct fixture *f = calloc(1, sizeof(*f));
    struct str url = STR_INIT;
    write_password(path, password);
    f->loop = loop_new();
    f->gateways[0] = fake_gateway_new(answer_to_users, f);
    f->call.on_reply = on_reply;
    str_addf(&url, "127.0.0.1:%d", f->gateways[0]->port);
    struct etcd_options options = {
        .urls = str_text(&url), .timeout_ms = 5000, .user = "ada", .password_file = path};
    assert_null(etcd_new(f->loop, &options, &f->etcd));
    str_fini(&url);
    return f;
}

static void test_a_login_comes_first_and_is_repeated(void **state) {
    struct fixture *f = setup_user("se\"cret\n");
    ask(f, GOOD);
    assert_null(f->status);
    ask(f, GOOD);
    assert_null(f->status);
    assert_int_equal(f->n_grants, 1); /* one token for both */
    f->n_looks = 1;                   /* it has expired */
    ask(f, GOOD);
    assert_null(f->status);
    assert_int_equal(f->revision, 17);
    assert_int_equal(f->n_grants, 2);
    f->n_looks = 2; /* another token does not help either: no loop */
    ask(f, GOOD);
    assert_int_equal(status_code(f->status), STATUS_UNAUTHENTICATED);
    assert_non_null(strstr(status_message(f->status), "invalid auth token"));
    assert_int_equal(f->n_grants, 3);
    teardown(f);
}

static void test_a_login_that_fails_says_why(void **state) {
    struct fixture *f = setup_user("wrong");
    ask(f, GOOD);
    assert_non_null(strstr(status_message(f->status),
                           "login of user ada: etcd: etcdserver: authentication failed"));
    assert_int_equal(f->n_calls, 0); /* nothing was asked without a token */
    ask(f, NO_JSON);
    assert_non_null(strstr(status_message(f->status), "malformed token"));
    teardown(f);
}

static void test_a_password_file_must_have_a_password(void **state) {
    static const char *const texts[] = {"", "\n"};
    static const char path[] = "/tmp/millrace-test-etcd-nothing";
    struct loop *loop = loop_new();
    struct etcd_options options = {
        .urls = "127.0.0.1:1", .user = "ada", .password_file = "/nonexistent/password"};
    struct etcd *etcd;
    struct status *st = etcd_new(loop, &options, &etcd);
    assert_non_null(strstr(status_message(st), "/nonexistent/password"));
    status_unref(st);
    options.password_file = path;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        write_password(path, texts[i]);
        st = etcd_new(loop, &options, &etcd);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
    unlink(path);
    loop_free(loop);
}

static void test_a_call(void **state) {
    struct fixture *f = setup(1, answer_by_mode);
    ask(f, GOOD);
    assert_null(f->status);
    assert_int_equal(f->revision, 17);
    assert_true(etcd_is_up(f->etcd, NULL));
    ask(f, NO_JSON);
    assert_int_equal(status_code(f->status), STATUS_INVALID_ARGUMENT);
    teardown(f);
    free(f);
}

static void test_trouble_is_told_and_ends(void **state) {
    static const int modes[] = {NO_LEADER, CLOSES, HANGS};
    struct fixture *f = setup(1, answer_by_mode);
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct str why = STR_INIT;
        ask(f, modes[i]);
        assert_int_equal(status_code(f->status), STATUS_UNAVAILABLE);
        assert_false(etcd_is_up(f->etcd, &why));
        assert_non_null(strstr(str_text(&why), "etcd has not answered"));
        str_fini(&why);
    }
    ask(f, GOOD);
    assert_true(etcd_is_up(f->etcd, NULL));
    teardown(f);
    free(f);
}

static void test_the_next_endpoint_is_asked(void **state) {
    struct fixture *f = setup(2, answer_by_mode);
    fake_gateway_stop(f->gateways[0]);
    f->gateways[0] = NULL;
    ask(f, GOOD);
    assert_null(f->status);
    assert_int_equal(f->n_calls, 1);
    teardown(f);
    free(f);
}

static void test_a_cancelled_call_is_silent(void **state) {
    struct fixture *f = setup(1, answer_by_mode);
    f->mode = HANGS;
    etcd_range(f->etcd, &f->call, "a", false);
    LOOP_UNTIL(f->loop, f->n_calls == 1);
    etcd_call_cancel(&f->call);
    ask(f, GOOD);
    assert_int_equal(f->n_replies, 1);
    teardown(f);
    free(f);
}

static void test_a_watch_ends_with_the_call_that_finds_its_endpoint_silent(void **state) {
    struct fixture *f = setup(1, answer_by_mode);
    etcd_watch_start(f->etcd, &f->watch, "a/", 1);
    LOOP_UNTIL(f->loop, f->n_events == 1);
    ask(f, HANGS);
    assert_int_equal(f->n_ends, 1);
    teardown(f);
    free(f);
}

static int answer_compacted(void *arg, const char *path, const char *body, struct str *out) {
    str_add(out, "{\"result\":{\"created\":true}}\n{\"result\":{\"canceled\":true,\"compact_"
                 "revision\":\"9\"}}\n");
    return -2;
}

static int answer_ending(void *arg, const char *path, const char *body, struct str *out) {
    str_add(out, "{\"result\":{\"events\":[{\"kv\":{\"key\":\"YQ==\"}}]}}\n{\"result\":{\"eve");
    return -3;
}

static int answer_garbage(void *arg, const char *path, const char *body, struct str *out) {
    str_add(out, "no json\n");
    return -2;
}

static void watch_until_end(int (*answer)(void *arg, const char *path, const char *body,
                                          struct str *out),
                            int n_events, enum status_code code) {
    struct fixture *f = setup(1, answer);
    etcd_watch_start(f->etcd, &f->watch, "a/", 1);
    LOOP_UNTIL(f->loop, f->n_ends == 1);
    assert_int_equal(f->n_events, n_events);
    assert_int_equal(status_code(f->status), code);
    teardown(f);
    free(f);
}

static void test_a_compacted_watch_says_so(void **state) {
    watch_until_end(answer_compacted, 0, STATUS_OUT_OF_RANGE);
}
static void test_a_watch_that_breaks_ends(void **state) {
    watch_until_end(answer_ending, 1, STATUS_UNAVAILABLE);
}
static void test_a_watch_of_garbage_ends(void **state) {
    watch_until_end(answer_garbage, 0, STATUS_INVALID_ARGUMENT);
}

static void test_urls(void **state) {
    static const char *const wrong[] = {"",          ",",
                                        "http://",   "http://a:1,",
                                        "ftp://a:1", "http://a:1/v3",
                                        "a b:1",     "http://a:1?x",
                                        "u@h:1"};
    assert_null(etcd_check_urls("http://a:1,https://b:2/,c:3"));
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct status *st = etcd_check_urls(wrong[i]);
        if (status_code(st) != STATUS_INVALID_ARGUMENT)
            fail_msg("'%s' was taken", wrong[i]);
        status_unref(st);
    }
}

/* ---- a registration ---- */

enum {
    HELD_FOR_EVER,
    LAPSES_ONCE,
    LAPSES_AS_AN_ERROR,
    SILENT_KEEP_ALIVE, /* until the mode changes */
    REPLACED,
    JOB_ENDED,
    DEAD_HOLDER,  /* of our host, which refuses the connection */
    LAPSING,      /* a holder of another host, which is never kept alive again */
    RENEWED,      /* and one that is */
    NO_CLAIM,     /* the first claims fail, and nobody holds the key */
    NO_LEASE_LEFT /* the first leases have gone when they are used */
};

enum { N_IN_VAIN = 3 };

static void add_entry(struct str *out, const char *value, int64_t lease) {
    str_add(out, "{\"key\":\"aw==\",\"mod_revision\":\"3\",\"value\":\"");
    base64_encode(out, span_of(value));
    str_addf(out, "\",\"lease\":\"%lld\"}", (long long)lease);
}

static void add_others_entry(struct str *out, bool is_same_host) {
    struct str value = STR_INIT;
    str_addf(&value,
             "{\"incarnation\":\"0000000000000002\",\"address\":\"127.0.0.1:2\",\"host_id\":\"%s\","
             "\"admin_address\":\"%s\"}",
             is_same_host ? host_id() : "elsewhere", is_same_host ? "127.0.0.1:2" : "");
    add_entry(out, str_text(&value), 77);
    str_fini(&value);
}

static int answer_claim(struct fixture *f, const char *body, struct str *out) {
    bool has_holder = f->mode == DEAD_HOLDER || f->mode == LAPSING || f->mode == RENEWED;
    f->claimed_at_ns[MIN(f->n_claims, N_IN_VAIN)] = clock_now_ns();
    f->is_claimed_as_new = strstr(body, "\"CREATE\"") != NULL;
    f->n_claims++;
    if (f->mode == NO_LEASE_LEFT && f->n_claims <= N_IN_VAIN) {
        str_add(out, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}");
        return 404;
    }
    if (has_holder && f->n_claims == 1) {
        str_add(out, "{\"responses\":[{\"response_range\":{\"kvs\":[");
        add_others_entry(out, f->mode == DEAD_HOLDER);
        str_add(out, "]}}]}");
    } else if (f->mode == NO_CLAIM && f->n_claims <= N_IN_VAIN) {
        str_add(out, "{\"responses\":[{\"response_range\":{}}]}");
    } else {
        str_add(out, "{\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}");
    }
    return 200;
}

static int answer_keep_alive(struct fixture *f, struct str *out) {
    bool is_lapse = f->n_grants == 1;
    f->n_keeps++;
    if (f->mode == SILENT_KEEP_ALIVE)
        return 0;
    if (f->mode == LAPSES_AS_AN_ERROR && is_lapse) {
        str_add(out, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}");
        return 404;
    }
    str_addf(out, "{\"result\":{\"ID\":\"1\",\"TTL\":\"%d\"}}\n",
             f->mode == LAPSES_ONCE && is_lapse ? 0 : 1);
    return 200;
}

static void answer_read(struct fixture *f, struct str *out) {
    static const char ours[] = "{\"incarnation\":\"0000000000000001\",\"address\":\"127.0.0.1:1\"}";
    str_add(out, "{\"succeeded\":true,\"responses\":[{\"response_range\":{\"kvs\":[");
    if (f->mode == REPLACED && f->is_held)
        add_others_entry(out, false);
    else
        add_entry(out, ours, f->n_grants);
    str_add(out, "]}},{\"response_range\":{");
    if (f->mode == JOB_ENDED && f->n_keeps > 0) {
        str_add(out, "\"kvs\":[");
        add_entry(out, "ended", 0);
        str_add_char(out, ']');
    }
    str_add(out, "}}]}");
}

/* An etcd with one entry: ours, or another's (REPLACED: once ours was there, a holder's: until
 * ours is there); a job that has JOB_ENDED was still there when we came. */
static int answer_registration(void *arg, const char *path, const char *body, struct str *out) {
    struct fixture *f = arg;
    if (strcmp(path, "/v3/lease/grant") == 0) {
        str_addf(out, "{\"ID\":\"%d\",\"TTL\":\"1\"}", ++f->n_grants);
    } else if (strcmp(path, "/v3/lease/keepalive") == 0) {
        return answer_keep_alive(f, out);
    } else if (strcmp(path, "/v3/lease/timetolive") == 0) {
        bool has_lapsed = ++f->n_looks > 2 && f->mode == LAPSING;
        assert_non_null(strstr(body, "\"77\""));
        str_addf(out, "{\"ID\":\"77\",\"TTL\":\"%d\"}", has_lapsed ? -1 : 1);
    } else if (strcmp(path, "/v3/kv/txn") == 0 && strstr(body, "request_put")) {
        return answer_claim(f, body, out);
    } else if (strcmp(path, "/v3/kv/txn") == 0) {
        answer_read(f, out);
    } else {
        str_add(out, "{}");
    }
    return 200;
}

static void on_held(void *arg) { ((struct fixture *)arg)->is_held = true; }
static void on_job_ended(void *arg) { ((struct fixture *)arg)->has_ended = true; }
static void on_left(void *arg) { ((struct fixture *)arg)->n_ends++; }

static void on_taken(void *arg, const char *why) {
    struct fixture *f = arg;
    f->is_taken = true;
    snprintf(f->why, sizeof(f->why), "%s", why);
}

static struct etcd_registration *register_as(struct fixture *f, int mode, bool is_master) {
    struct cluster_member member = {.address = "127.0.0.1:1", .incarnation = 1};
    struct etcd_registration_options options = {.etcd = f->etcd,
                                                .key = "k",
                                                .job_key = "j",
                                                .member = &member,
                                                .is_master = is_master,
                                                .ttl_s = 1,
                                                .on_held = on_held,
                                                .on_taken = on_taken,
                                                .on_job_ended = on_job_ended,
                                                .arg = f};
    f->mode = mode;
    return etcd_registration_new(f->loop, &options);
}

static struct etcd_registration *register_in_etcd(struct fixture *f, int mode) {
    return register_as(f, mode, false);
}

static void leave(struct fixture *f, struct etcd_registration *e) {
    etcd_registration_leave(e, on_left, f);
    LOOP_UNTIL(f->loop, f->n_ends == 1);
    teardown(f);
    free(f);
}

static void test_a_lease_is_kept(void **state) {
    struct fixture *f = setup(1, answer_registration);
    struct etcd_registration *e = register_in_etcd(f, HELD_FOR_EVER);
    LOOP_UNTIL(f->loop, f->n_keeps == 3);
    assert_int_equal(f->n_grants, 1);
    assert_int_equal(f->n_claims, 1);
    leave(f, e);
}

static void test_a_dead_holder_is_replaced_under_a_fresh_lease(void **state) {
    for (int is_master = 0; is_master < 2; is_master++) {
        struct fixture *f = setup(1, answer_registration);
        struct etcd_registration *e = register_as(f, DEAD_HOLDER, is_master);
        LOOP_UNTIL(f->loop, f->is_held);
        assert_int_equal(f->n_grants, 2);
        assert_int_equal(f->n_claims, 2);
        assert_int_equal(f->n_looks, 0); /* its host has said so */
        leave(f, e);
    }
}

/* Whether it is one that cannot be reached, or, a master without an admin port, cannot be asked. */
static void test_a_holder_that_cannot_be_asked_is_replaced_once_its_lease_has_lapsed(void **state) {
    for (int is_master = 0; is_master < 2; is_master++) {
        struct fixture *f = setup(1, answer_registration);
        struct etcd_registration *e = register_as(f, LAPSING, is_master);
        LOOP_UNTIL(f->loop, f->is_held || f->is_taken);
        assert_true(f->is_held);
        assert_int_equal(f->n_looks, 3);
        assert_int_equal(f->n_claims, 2);
        assert_false(f->is_claimed_as_new); /* but as what replaces the entry that was seen */
        leave(f, e);
    }
}

static void test_a_holder_that_cannot_be_asked_but_keeps_its_lease_stays(void **state) {
    for (int is_master = 0; is_master < 2; is_master++) {
        struct fixture *f = setup(1, answer_registration);
        struct etcd_registration *e = register_as(f, RENEWED, is_master);
        LOOP_UNTIL(f->loop, f->is_held || f->is_taken);
        assert_true(f->is_taken);
        assert_int_equal(f->n_claims, 1);
        assert_non_null(strstr(f->why, "renews its lease"));
        assert_non_null(
            strstr(f->why, is_master ? "no admin port" : "cannot connect to 127.0.0.1:2"));
        leave(f, e);
    }
}

static void test_a_lease_that_lapsed_is_asked_for_anew(void **state) {
    static const int modes[] = {LAPSES_ONCE, LAPSES_AS_AN_ERROR};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct fixture *f = setup(1, answer_registration);
        struct etcd_registration *e = register_in_etcd(f, modes[i]);
        LOOP_UNTIL(f->loop, f->n_claims == 2);
        assert_int_equal(f->n_grants, 2);
        assert_true(f->is_held);
        assert_true(f->is_claimed_as_new);
        assert_false(f->is_taken);
        leave(f, e);
    }
}

static void test_what_is_in_vain_is_tried_again_at_leisure(void **state) {
    static const int modes[] = {NO_CLAIM, NO_LEASE_LEFT};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct fixture *f = setup(1, answer_registration);
        struct etcd_registration *e = register_in_etcd(f, modes[i]);
        LOOP_UNTIL(f->loop, f->is_held);
        assert_int_equal(f->n_claims, N_IN_VAIN + 1);
        assert_true(f->claimed_at_ns[2] - f->claimed_at_ns[1] >= 900 * 1000000ll);
        assert_true(f->claimed_at_ns[3] - f->claimed_at_ns[2] >= 900 * 1000000ll);
        leave(f, e);
    }
}

static bool says(const struct etcd_registration *e, const char *words) {
    struct str page = STR_INIT;
    etcd_registration_describe(e, &page);
    bool does = strstr(str_text(&page), words) != NULL;
    str_fini(&page);
    return does;
}

static bool counts_as_registered(void) {
    struct str page = STR_INIT;
    metrics_write_prometheus(&page);
    bool does = strstr(str_text(&page), "\nmillrace_etcd_registered 1\n") != NULL;
    str_fini(&page);
    return does;
}

static void test_one_that_etcd_has_not_kept_for_a_time_to_live_has_lapsed(void **state) {
    struct fixture *f = setup(1, answer_registration);
    struct etcd_registration *e = register_in_etcd(f, HELD_FOR_EVER);
    LOOP_UNTIL(f->loop, f->n_keeps == 2);
    int64_t kept_ns = clock_now_ns();
    assert_true(says(e, "\"state\": \"held\""));
    assert_false(etcd_registration_has_lapsed(e));
    assert_true(counts_as_registered());
    f->mode = SILENT_KEEP_ALIVE;
    LOOP_UNTIL(f->loop, says(e, "\"state\": \"lapsed\""));
    assert_true(etcd_registration_has_lapsed(e));
    /* of a second since the call was sent */
    assert_true(clock_now_ns() - kept_ns >= 500 * 1000000ll);
    LOOP_UNTIL(f->loop, !counts_as_registered());
    f->mode = HELD_FOR_EVER;
    LOOP_UNTIL(f->loop, says(e, "\"state\": \"held\""));
    assert_false(etcd_registration_has_lapsed(e));
    assert_true(counts_as_registered());
    assert_false(f->is_taken);
    leave(f, e);
}

static void test_one_that_was_replaced_is_told_by_whom(void **state) {
    struct fixture *f = setup(1, answer_registration);
    struct etcd_registration *e = register_in_etcd(f, REPLACED);
    LOOP_UNTIL(f->loop, f->is_taken);
    assert_non_null(strstr(f->why, "the process at 127.0.0.1:2 with incarnation 0000000000000002"));
    leave(f, e);
}

static void test_the_end_of_the_job_is_told(void **state) {
    struct fixture *f = setup(1, answer_registration);
    struct etcd_registration *e = register_in_etcd(f, JOB_ENDED);
    LOOP_UNTIL(f->loop, f->has_ended);
    leave(f, e);
}

static void test_the_drawing_of_the_states_is_the_table(void **state) {
    assert_drawing_is_table(TEST_SOURCE_ROOT "/rpc/membership/etcd_registration.h", "States (",
                            &etcd_registration_machine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_login_comes_first_and_is_repeated),
        cmocka_unit_test(test_a_login_that_fails_says_why),
        cmocka_unit_test(test_a_password_file_must_have_a_password),
        cmocka_unit_test(test_a_call),
        cmocka_unit_test(test_trouble_is_told_and_ends),
        cmocka_unit_test(test_the_next_endpoint_is_asked),
        cmocka_unit_test(test_a_cancelled_call_is_silent),
        cmocka_unit_test(test_a_watch_ends_with_the_call_that_finds_its_endpoint_silent),
        cmocka_unit_test(test_a_compacted_watch_says_so),
        cmocka_unit_test(test_a_watch_that_breaks_ends),
        cmocka_unit_test(test_a_watch_of_garbage_ends),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_a_lease_is_kept),
        cmocka_unit_test(test_a_dead_holder_is_replaced_under_a_fresh_lease),
        cmocka_unit_test(test_a_holder_that_cannot_be_asked_is_replaced_once_its_lease_has_lapsed),
        cmocka_unit_test(test_a_holder_that_cannot_be_asked_but_keeps_its_lease_stays),
        cmocka_unit_test(test_a_lease_that_lapsed_is_asked_for_anew),
        cmocka_unit_test(test_what_is_in_vain_is_tried_again_at_leisure),
        cmocka_unit_test(test_one_that_etcd_has_not_kept_for_a_time_to_live_has_lapsed),
        cmocka_unit_test(test_one_that_was_replaced_is_told_by_whom),
        cmocka_unit_test(test_the_end_of_the_job_is_told),
        cmocka_unit_test(test_the_drawing_of_the_states_is_the_table),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
