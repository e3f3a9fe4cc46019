/* The ledger of values that a process has given away by reference, and the map of another process'
 * arena. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/mman.h>

#include "common/tensor/shared_areas.h"
#include "common/tensor/shm_arena.h"
#include "rpc/shm/shm_ledger.h"
#include "rpc/shm/shm_map.h"
#include "tests/unit/rpc/loop_until.h"

enum { BLOCK = 1 << 20, CLASS = 32 };

/* ---- the ledger ---- */

static void what_is_given_is_held_until_it_is_released(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(0);
    struct buffer *buffer = buffer_alloc(allocator_host(), 100);
    uint64_t first = 0, second = 0;
    assert_true(shm_ledger_give(ledger, buffer, 100, &first) &&
                shm_ledger_give(ledger, buffer, 50, &second));
    assert_true(second > first);
    assert_int_equal(shm_ledger_last(ledger), second);
    assert_int_equal(shm_ledger_n_held(ledger), 2);
    assert_null(shm_ledger_release(ledger, &first, 1));
    assert_false(buffer_is_sole(buffer));
    assert_null(shm_ledger_release(ledger, &second, 1));
    assert_true(buffer_is_sole(buffer));
    shm_ledger_free(ledger);
    buffer_unref(buffer);
}

static void expect_invalid(struct status *st) {
    assert_non_null(st);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
}

static void nothing_is_released_twice_or_without_having_been_given(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(0), *other = shm_ledger_new(0);
    struct buffer *buffer = buffer_alloc(allocator_host(), 100);
    uint64_t token, others_token;
    assert_true(shm_ledger_give(ledger, buffer, 100, &token) &&
                shm_ledger_give(other, buffer, 100, &others_token));
    expect_invalid(shm_ledger_release(ledger, &others_token, 1));
    expect_invalid(shm_ledger_release(ledger, &(uint64_t){0}, 1));
    expect_invalid(shm_ledger_release(ledger, (uint64_t[]){token, token}, 2));
    assert_int_equal(shm_ledger_n_held(ledger), 0);
    assert_int_equal(shm_ledger_n_held(other), 1);
    shm_ledger_free(ledger);
    assert_false(buffer_is_sole(buffer));
    shm_ledger_free(other);
    assert_true(buffer_is_sole(buffer));
    buffer_unref(buffer);
}

static void settling_keeps_what_is_named_and_what_came_after(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(0);
    struct buffer *buffer = buffer_alloc(allocator_host(), 100);
    uint64_t tokens[4];
    for (int i = 0; i < 4; i++)
        assert_true(shm_ledger_give(ledger, buffer, 100, &tokens[i]));
    expect_invalid(shm_ledger_keep_only(ledger, tokens[2], &tokens[3], 1));
    assert_int_equal(shm_ledger_n_held(ledger), 4);
    assert_null(shm_ledger_keep_only(ledger, tokens[2], &tokens[1], 1));
    assert_int_equal(shm_ledger_n_held(ledger), 2);
    assert_null(shm_ledger_release(ledger, (uint64_t[]){tokens[1], tokens[3]}, 2));
    assert_true(buffer_is_sole(buffer));
    shm_ledger_free(ledger);
    buffer_unref(buffer);
}

static void a_peer_holds_no_more_than_the_limit(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(0);
    struct buffer *buffer = buffer_alloc(allocator_host(), 100);
    uint64_t token;
    for (int i = 0; i < SHM_LEDGER_MAX_TOKENS; i++)
        assert_true(shm_ledger_give(ledger, buffer, 100, &token));
    assert_false(shm_ledger_give(ledger, buffer, 100, &token));
    assert_null(shm_ledger_release(ledger, &token, 1));
    assert_true(shm_ledger_give(ledger, buffer, 100, &token));
    shm_ledger_free(ledger);
    assert_true(buffer_is_sole(buffer));
    buffer_unref(buffer);
}

static bool give_new(struct shm_ledger *ledger, size_t size_bytes, uint64_t *ret_token) {
    struct buffer *buffer = buffer_alloc(allocator_host(), size_bytes);
    bool is_given = shm_ledger_give(ledger, buffer, size_bytes, ret_token);
    buffer_unref(buffer);
    return is_given;
}

static void what_only_the_peer_holds_is_limited(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(1000);
    uint64_t first, second, token;
    assert_true(give_new(ledger, 600, &first));
    assert_true(give_new(ledger, 400, &second));
    assert_false(give_new(ledger, 1, &token));
    assert_null(shm_ledger_release(ledger, &second, 1));
    assert_false(give_new(ledger, 401, &token));
    assert_true(give_new(ledger, 400, &token));
    struct str page = STR_INIT;
    shm_ledger_describe(ledger, &page);
    assert_non_null(
        strstr(str_text(&page), "\"held_bytes\":1000,\"limit_bytes\":1000,\"refused\":2"));
    str_fini(&page);
    shm_ledger_free(ledger);
}

static void one_value_is_never_too_large(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(1000);
    uint64_t token, other;
    assert_true(give_new(ledger, 5000, &token));
    assert_false(give_new(ledger, 1, &other));
    assert_null(shm_ledger_release(ledger, &token, 1));
    assert_true(give_new(ledger, 1, &other));
    shm_ledger_free(ledger);
}

static void what_is_held_here_as_well_does_not_count_until_it_is_let_go(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(1000);
    struct buffer *variable = buffer_alloc(allocator_host(), 900);
    uint64_t token;
    for (int i = 0; i < 10; i++) /* ten steps pull it */
        assert_true(shm_ledger_give(ledger, variable, 900, &token));
    assert_true(give_new(ledger, 800, &token));
    assert_false(give_new(ledger, 300, &token));
    buffer_unref(variable); /* it is replaced: counts once, however often it was given */
    assert_false(give_new(ledger, 1, &token));
    shm_ledger_free(ledger);
}

static void what_several_peers_hold_counts_for_each(void **state) {
    struct shm_ledger *ledgers[] = {shm_ledger_new(1000), shm_ledger_new(1000),
                                    shm_ledger_new(1000)};
    struct buffer *update = buffer_alloc(allocator_host(), 900);
    uint64_t tokens[ARRAY_LEN(ledgers)], token;
    for (size_t i = 0; i < ARRAY_LEN(ledgers); i++)
        assert_true(shm_ledger_give(ledgers[i], update, 900, &tokens[i]));
    assert_true(give_new(ledgers[0], 200, &token)); /* what is held here costs nothing */
    assert_null(shm_ledger_release(ledgers[0], &token, 1));
    buffer_unref(update);
    for (size_t i = 0; i < ARRAY_LEN(ledgers); i++) {
        assert_false(give_new(ledgers[i], 200, &token));
        assert_null(shm_ledger_release(ledgers[i], &tokens[i], 1));
        assert_true(give_new(ledgers[i], 200, &token));
    }
    for (size_t i = 0; i < ARRAY_LEN(ledgers); i++)
        shm_ledger_free(ledgers[i]);
}

static void a_slice_counts_as_its_buffer_and_once(void **state) {
    struct shm_ledger *ledger = shm_ledger_new(1000);
    struct buffer *rows = buffer_alloc(allocator_host(), 900);
    uint64_t tokens[3], token;
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        assert_true(shm_ledger_give(ledger, rows, 10, &tokens[i]));
    buffer_unref(rows);
    assert_false(give_new(ledger, 200, &token));
    /* three slices of one buffer are not three buffers */
    assert_true(give_new(ledger, 100, &token));
    assert_null(shm_ledger_release(ledger, &token, 1));
    assert_null(shm_ledger_release(ledger, tokens, 2));
    assert_false(give_new(ledger, 200, &token)); /* the last slice keeps all of it */
    assert_null(shm_ledger_release(ledger, &tokens[2], 1));
    assert_true(give_new(ledger, 200, &token));
    shm_ledger_free(ledger);
}

/* ---- the map ---- */

static struct loop *loop;
static struct shm_arena *arena;
static struct shm_map *map;
static int n_calls;

static void on_released(void *arg) { n_calls++; }

static int setup(void **state) {
    n_calls = 0;
    loop = loop_new();
    struct status *st = shm_arena_new(64 << 20, &arena);
    CHECK(!st);
    st =
        shm_map_new(loop, dup(shm_arena_fd(arena)), shm_arena_size(arena), on_released, NULL, &map);
    CHECK(!st);
    return 0;
}

static int teardown(void **state) {
    shm_map_close(map);
    loop_end(loop);
    shm_arena_free(arena);
    return 0;
}

static uint64_t filled_block(char byte) {
    uint64_t offset;
    char *block = shm_arena_take(arena, CLASS, BLOCK);
    memset(block, byte, BLOCK);
    assert_true(shm_arena_find(arena, block, &offset));
    return offset;
}

static struct buffer *take(uint64_t token, uint64_t offset) {
    struct buffer *buffer = NULL;
    assert_null(shm_map_take(map, token, offset, BLOCK, &buffer));
    assert_non_null(buffer);
    return buffer;
}

/* Is the page in this process' tables? */
static bool is_in_tables(const char *address) {
    uint64_t entry = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(
        pread(fd, &entry, sizeof(entry),
              (off_t)((uintptr_t)address / (uintptr_t)sysconf(_SC_PAGESIZE) * sizeof(entry))),
        sizeof(entry));
    close(fd);
    return entry >> 63;
}

static void what_was_looked_at_longest_ago_leaves_the_tables(void **state) {
    enum { N = 5, KEPT = 2 };
    const char *at[N];
    shm_map_limit_kept(map, KEPT * BLOCK);
    for (int i = 0; i < N; i++) {
        struct buffer *buffer = take((uint64_t)i + 1, filled_block((char)i));
        at[i] = buffer->data;
        assert_int_equal(*(const volatile char *)buffer->data, i);
        buffer_unref(buffer);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(is_in_tables(at[i]), i >= N - KEPT);
    assert_int_equal(*(const volatile char *)at[0], 0); /* and it is still there */
    uint64_t *tokens;
    assert_int_equal(shm_map_take_released(map, &tokens), N);
    free(tokens);
    LOOP_UNTIL(loop, n_calls > 0);
}

static void a_reference_is_the_owners_bytes_and_goes_back_once(void **state) {
    struct buffer *a = take(1, filled_block(11)), *b = take(2, filled_block(22));
    uint64_t *tokens;
    assert_int_equal(a->data[BLOCK - 1], 11);
    assert_int_equal(b->data[0], 22);
    assert_false(buffer_is_sole(a));
    buffer_unref(buffer_ref(a));
    assert_int_equal(shm_map_take_released(map, &tokens), 0);
    free(tokens);
    buffer_unref(a);
    buffer_unref(b);
    LOOP_UNTIL(loop, n_calls == 1); /* once for both */
    assert_int_equal(shm_map_take_released(map, &tokens), 2);
    assert_int_equal(tokens[0] + tokens[1], 3);
    free(tokens);
}

static void what_is_not_in_the_arena_is_refused(void **state) {
    struct buffer *buffer = NULL;
    uint64_t size = shm_arena_size(arena);
    expect_invalid(shm_map_take(map, 1, size, 1, &buffer));
    expect_invalid(shm_map_take(map, 1, size - 64, 65, &buffer));
    expect_invalid(shm_map_take(map, 1, 64, UINT64_MAX - 32, &buffer));
    expect_invalid(shm_map_take(map, 1, UINT64_MAX - 63, 64, &buffer));
    expect_invalid(shm_map_take(map, 1, 8, 64, &buffer)); /* not aligned */
    expect_invalid(shm_map_take(map, 1, 0, 0, &buffer));
    expect_invalid(shm_map_take(map, 0, 0, 64, &buffer));
    assert_null(buffer);
    buffer = take(5, 0);
    struct buffer *again = NULL;
    expect_invalid(shm_map_take(map, 5, 64, 64, &again));
    buffer_unref(buffer);
}

static void settling_names_what_is_held_and_refuses_what_comes_late(void **state) {
    struct buffer *held = take(3, 0), *gone = take(2, 0), *later = take(9, 0), *late = held;
    uint64_t *released, *tokens;
    size_t n_released, n;
    buffer_unref(gone);
    shm_map_settle(map, 4, &released, &n_released, &tokens, &n);
    assert_int_equal(n_released, 1);
    assert_int_equal(released[0], 2);
    assert_int_equal(n, 1);
    assert_int_equal(tokens[0], 3);
    free(released);
    free(tokens);
    assert_null(shm_map_take(map, 1, 0, 64, &late));
    assert_null(late);
    assert_null(shm_map_take(map, 4, 0, 64, &late));
    assert_null(late);
    buffer_unref(held);
    buffer_unref(later);
    assert_int_equal(shm_map_take_released(map, &tokens), 2);
    free(tokens);
}

/* ---- who is told that pages may be others than before ---- */

static struct {
    uint64_t offset, size_bytes;
    int n;
} told;
static const char *map_base;

static void on_changed(const char *data, size_t size_bytes) {
    told.offset = (uint64_t)(data - map_base);
    told.size_bytes = size_bytes;
    told.n++;
}

static void take_with_epoch(uint64_t token, uint64_t offset, uint64_t epoch) {
    struct buffer *buffer = take(token, offset);
    map_base = buffer->data - offset;
    shm_map_note_epoch(map, offset, BLOCK, epoch);
    buffer_unref(buffer);
}

static void whoever_watches_is_told_when_pages_may_have_changed(void **state) {
    enum { SLAB = SHM_ARENA_SLAB_BYTES };
    uint64_t token = 0;
    take_with_epoch(++token, 0, 5); /* nobody watches */
    assert_int_equal(told.n, 0);
    shared_areas_watch(on_changed);
    take_with_epoch(++token, SLAB, 1);
    assert_int_equal(told.n, 1);
    take_with_epoch(++token, SLAB, 1); /* the same pages */
    assert_int_equal(told.n, 1);
    take_with_epoch(++token, SLAB, 4);
    assert_int_equal(told.n, 2);
    take_with_epoch(++token, SLAB + BLOCK, 3); /* a reference that came late */
    assert_int_equal(told.n, 2);
    take_with_epoch(++token, SLAB + BLOCK, 6); /* the other block of the slab may have changed */
    assert_int_equal(told.n, 3);
    assert_true(told.offset == SLAB && told.size_bytes == SLAB);
    take_with_epoch(++token, SLAB + BLOCK / 2, 0); /* a sender that says nothing */
    take_with_epoch(++token, SLAB + BLOCK / 2, 0);
    assert_int_equal(told.n, 5);
    take_with_epoch(++token, 2 * SLAB - BLOCK / 2, 7); /* in two slabs */
    assert_true(told.n == 6 && told.offset == SLAB && told.size_bytes == 2 * SLAB);
    shm_map_close(map);
    map = NULL;
    LOOP_UNTIL(loop, told.n == 7); /* the mapping ends */
    assert_true(told.offset == 0 && told.size_bytes == shm_arena_size(arena));
    shared_areas_watch(NULL);
}

static void the_pages_outlive_the_owner_while_they_are_looked_at(void **state) {
    struct buffer *buffer = take(1, filled_block(33)), *refused = NULL;
    shm_map_close(map);
    shm_arena_free(arena);
    arena = NULL;
    for (int i = 0; i < BLOCK; i++)
        assert_int_equal(buffer->data[i], 33);
    struct status *st = shm_map_take(map, 2, 0, 64, &refused);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_unref(st);
    buffer_unref(buffer); /* the map goes with it */
    map = NULL;
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(n_calls, 0);
}

static void expect_refused_file(int fd, uint64_t size, const char *words) {
    struct shm_map *made = NULL;
    struct status *st = shm_map_new(loop, fd, size, on_released, NULL, &made);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st), words));
    assert_null(made);
    status_unref(st);
}

static void a_file_that_could_shrink_is_not_mapped(void **state) {
    int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, BLOCK), 0);
    expect_refused_file(dup(fd), BLOCK, "sealed against shrinking");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    expect_refused_file(dup(fd), 2 * BLOCK, "announced with");
    expect_refused_file(dup(fd), 0, "announced with");
    close(fd);
    expect_refused_file(open("/dev/zero", O_RDONLY), BLOCK, "not a memory file");
    expect_refused_file(-1, BLOCK, "without a descriptor");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_given_is_held_until_it_is_released),
        cmocka_unit_test(nothing_is_released_twice_or_without_having_been_given),
        cmocka_unit_test(settling_keeps_what_is_named_and_what_came_after),
        cmocka_unit_test(a_peer_holds_no_more_than_the_limit),
        cmocka_unit_test(what_only_the_peer_holds_is_limited),
        cmocka_unit_test(one_value_is_never_too_large),
        cmocka_unit_test(what_is_held_here_as_well_does_not_count_until_it_is_let_go),
        cmocka_unit_test(what_several_peers_hold_counts_for_each),
        cmocka_unit_test(a_slice_counts_as_its_buffer_and_once),
        cmocka_unit_test_setup_teardown(what_was_looked_at_longest_ago_leaves_the_tables, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_reference_is_the_owners_bytes_and_goes_back_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_not_in_the_arena_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(settling_names_what_is_held_and_refuses_what_comes_late,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_watches_is_told_when_pages_may_have_changed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_pages_outlive_the_owner_while_they_are_looked_at, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_file_that_could_shrink_is_not_mapped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
