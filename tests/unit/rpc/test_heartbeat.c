/* When somebody is taken for dead: silence, answers, our own sleep; and what answers tell of the
 * other's clock. */
#include "rpc/wire/heartbeat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { INTERVAL_MS = 2000 };
static const int64_t ms = 1000000;

/* A made-up world: one end, its time, and what it is told to do. */
struct world {
    struct heartbeat beat;
    int64_t now_ns, wall_us;
    int n_pings, n_lost;
    struct str ping;
};

static void begin(struct world *world, bool is_passive) {
    *world = (struct world){.now_ns = 5000 * ms, .wall_us = 1700000000000000, .ping = STR_INIT};
    heartbeat_start(&world->beat, INTERVAL_MS, is_passive, world->now_ns);
}

static void pass(struct world *world, int64_t ns) {
    world->now_ns += ns;
    world->wall_us += ns / 1000;
}

static void tick(struct world *world) {
    unsigned actions = heartbeat_tick(&world->beat, world->now_ns);
    world->n_lost += (actions & HEARTBEAT_LOST) != 0;
    if (actions & HEARTBEAT_PING) {
        world->n_pings++;
        str_clear(&world->ping);
        heartbeat_ping(&world->beat, world->now_ns, world->wall_us, &world->ping);
    }
}

/* The other end's answer to the last ping, `ahead_us` by its clock; on the way for `there` and
 * `back`. */
static void answer(struct world *world, int64_t there_ns, int64_t back_ns, int64_t ahead_us) {
    struct str pong = STR_INIT;
    heartbeat_answer((struct span){world->ping.data, world->ping.len},
                     world->wall_us + there_ns / 1000 + ahead_us, &pong);
    pass(world, there_ns + back_ns);
    heartbeat_pong(&world->beat, world->now_ns, world->beat.ping_id,
                   (struct span){pong.data, pong.len});
    str_fini(&pong);
}

/* Ticks until it is lost; returns the time since the last sign of life, or -1 after a minute. */
static int64_t time_to_loss(struct world *world) {
    int64_t heard_ns = world->beat.heard_ns;
    for (int64_t until_ns = world->now_ns + 60000 * ms; world->now_ns < until_ns;) {
        pass(world, heartbeat_tick_ms(INTERVAL_MS) * ms);
        tick(world);
        if (world->n_lost)
            return world->now_ns - heard_ns;
    }
    return -1;
}

static void who_answers_is_never_lost(void **state) {
    struct world world;
    begin(&world, false);
    for (int i = 0; i < 1000; i++) {
        pass(&world, 1000 * ms);
        int n_pings = world.n_pings;
        tick(&world);
        if (world.n_pings > n_pings)
            answer(&world, ms / 10, ms / 10, 0);
    }
    assert_int_equal(world.n_lost, 0);
    assert_in_range(world.n_pings, 499, 501); /* one an interval */
    assert_int_equal(world.beat.n_missed, 0);
    str_fini(&world.ping);
}

static void silence_is_noticed_after_three_intervals(void **state) {
    static const int64_t heard_after[] = {0, 1, 500, 900, 999};
    for (size_t i = 0; i < ARRAY_LEN(heard_after); i++) {
        struct world world;
        begin(&world, false);
        pass(&world, 1000 * ms);
        tick(&world);
        pass(&world, heard_after[i] * ms);
        heartbeat_heard(&world.beat, world.now_ns);
        pass(&world, (1000 - heard_after[i]) * ms); /* ticks come when they come */
        tick(&world);
        int64_t silent_ns = time_to_loss(&world);
        assert_in_range(silent_ns, 5500 * ms, 7000 * ms);
        assert_true(world.beat.n_missed >= 2);
        assert_false(world.beat.is_on);
        tick(&world);
        assert_int_equal(world.n_lost, 1); /* once */
        struct status *why = heartbeat_silence(&world.beat, world.now_ns);
        assert_int_equal(status_code(why), STATUS_UNAVAILABLE);
        assert_non_null(strstr(status_message(why), "no sign of life for"));
        status_unref(why);
        str_fini(&world.ping);
    }
}

static void anything_heard_is_a_sign_of_life(void **state) {
    struct world world;
    begin(&world, false);
    for (int i = 0; i < 100; i++) { /* it answers no ping, but sends */
        pass(&world, 1000 * ms);
        tick(&world);
        if (i % 4 == 0)
            heartbeat_heard(&world.beat, world.now_ns);
    }
    assert_int_equal(world.n_lost, 0);
    assert_true(world.beat.n_missed > 40);
    str_fini(&world.ping);
}

/* A process that was stopped for an hour: whatever the others sent lies in its sockets, and is
 * read after the tick. */
static void our_own_sleep_is_nobodys_silence(void **state) {
    struct world world;
    begin(&world, false);
    pass(&world, 1000 * ms);
    tick(&world);
    answer(&world, ms, ms, 0);
    pass(&world, 3600ll * 1000 * ms);
    tick(&world);
    assert_int_equal(world.n_lost, 0);
    heartbeat_heard(&world.beat, world.now_ns); /* it was there */
    pass(&world, 1000 * ms);
    tick(&world);
    assert_int_equal(world.n_lost, 0);
    pass(&world, 3600ll * 1000 * ms); /* asleep again; this time the other has gone meanwhile */
    tick(&world);
    assert_in_range(time_to_loss(&world), 3600ll * 1000 * ms, 3608ll * 1000 * ms);
    str_fini(&world.ping);
}

static void a_passive_one_never_pings(void **state) {
    struct world world;
    begin(&world, true);
    assert_in_range(time_to_loss(&world), 5500 * ms, 7000 * ms);
    assert_int_equal(world.n_pings, 0);
}

static void one_that_is_off_does_nothing(void **state) {
    struct world world = {.now_ns = 1, .ping = STR_INIT};
    assert_int_equal(time_to_loss(&world), -1);
    begin(&world, false);
    heartbeat_stop(&world.beat);
    assert_int_equal(time_to_loss(&world), -1);
    assert_int_equal(world.n_pings, 0);
}

static void the_clock_is_told_by_the_shortest_round_trip(void **state) {
    struct world world;
    begin(&world, false);
    for (int i = 0; i < 20; i++) {
        pass(&world, 2000 * ms);
        tick(&world);
        bool is_clean = i % 8 == 3; /* the others wait 40 ms on one way */
        answer(&world, ms / 10, is_clean ? ms / 10 : 40 * ms, -250000);
    }
    assert_int_equal(heartbeat_offset_us(&world.beat), -250000);
    assert_in_range(world.beat.rtt_ns, 10 * ms, 41 * ms);
    str_fini(&world.ping);
}

static void odd_answers_are_signs_of_life_and_no_more(void **state) {
    struct world world;
    begin(&world, false);
    pass(&world, 1000 * ms);
    tick(&world);
    uint64_t id = world.beat.ping_id;
    heartbeat_pong(&world.beat, world.now_ns, id + 1, span_of("x"));
    heartbeat_pong(&world.beat, world.now_ns, id - 1,
                   (struct span){world.ping.data, world.ping.len});
    assert_int_equal(world.beat.rtt_ns, 0);
    heartbeat_pong(&world.beat, world.now_ns, id, span_of("\xff\xff\xff"));
    /* a second answer */
    heartbeat_pong(&world.beat, world.now_ns, id, (struct span){world.ping.data, world.ping.len});
    assert_int_equal(world.beat.n_samples, 0);
    assert_int_equal(heartbeat_offset_us(&world.beat), 0);
    str_fini(&world.ping);
}

static void a_ping_says_how_often_it_comes(void **state) {
    struct world world;
    begin(&world, false);
    pass(&world, 2000 * ms);
    tick(&world);
    struct span ping = {world.ping.data, world.ping.len};
    assert_int_equal(heartbeat_ping_interval_ms(ping), INTERVAL_MS);
    assert_int_equal(heartbeat_ping_interval_ms(span_of("")), 0);
    /* cut */
    assert_int_equal(
        heartbeat_ping_interval_ms(span_of("\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f")), 86400000);
    for (size_t n = 0; n < ping.len; n++)
        (void)!heartbeat_ping_interval_ms((struct span){ping.data, n});
    str_fini(&world.ping);
}

static void a_large_ping_is_not_echoed_whole(void **state) {
    static char large[100000];
    struct str out = STR_INIT;
    heartbeat_answer((struct span){large, sizeof(large)}, 1, &out);
    assert_true(out.len < 1000);
    assert_int_equal(heartbeat_ping_interval_ms((struct span){large, sizeof(large)}), 0);
    str_fini(&out);
}

static void a_task_says_that_it_drains_and_that_it_leaves(void **state) {
    struct str out = STR_INIT;
    heartbeat_add_draining(&out);
    struct span meta = {out.data, out.len};
    assert_true(heartbeat_is_draining(meta) && !heartbeat_is_leaving(meta));
    str_clear(&out);
    heartbeat_add_leaving(&out);
    meta = (struct span){out.data, out.len};
    assert_true(heartbeat_is_leaving(meta) && !heartbeat_is_draining(meta));
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_answers_is_never_lost),
        cmocka_unit_test(silence_is_noticed_after_three_intervals),
        cmocka_unit_test(anything_heard_is_a_sign_of_life),
        cmocka_unit_test(our_own_sleep_is_nobodys_silence),
        cmocka_unit_test(a_passive_one_never_pings),
        cmocka_unit_test(one_that_is_off_does_nothing),
        cmocka_unit_test(the_clock_is_told_by_the_shortest_round_trip),
        cmocka_unit_test(odd_answers_are_signs_of_life_and_no_more),
        cmocka_unit_test(a_ping_says_how_often_it_comes),
        cmocka_unit_test(a_large_ping_is_not_echoed_whole),
        cmocka_unit_test(a_task_says_that_it_drains_and_that_it_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
