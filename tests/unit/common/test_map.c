/* Both hash maps against a plain array as the model, under random puts and removes; the hash
 * function's spread. */
#include "common/base/map.h"

#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/clock.h"

static void an_empty_map_finds_nothing(void **state) {
    struct strmap names;
    struct u64map numbers;
    strmap_init(&names);
    u64map_init(&numbers);
    size_t cursor = 0;
    assert_null(strmap_get(&names, "a"));
    assert_null(strmap_remove(&names, ""));
    assert_false(strmap_next(&names, &cursor, NULL, NULL));
    assert_null(u64map_get(&numbers, 0));
    assert_null(u64map_remove(&numbers, 0));
    assert_false(u64map_next(&numbers, &cursor, NULL, NULL));
    strmap_fini(&names);
    u64map_fini(&numbers);
    strmap_fini(NULL);
    u64map_fini(NULL);
}

static void keys_are_spans(void **state) {
    struct strmap map;
    strmap_init(&map);
    int values[4];
    assert_null(strmap_put(&map, "", &values[0]));
    assert_null(strmap_put_span(&map, (struct span){"ab\0c", 4}, &values[1]));
    assert_null(strmap_put_span(&map, (struct span){"ab\0d", 4}, &values[2]));
    assert_null(strmap_put_span(&map, (struct span){"abc", 2}, &values[3]));
    assert_ptr_equal(strmap_get_span(&map, (struct span){NULL, 0}), &values[0]);
    assert_ptr_equal(strmap_get_span(&map, (struct span){"ab\0d", 4}), &values[2]);
    assert_ptr_equal(strmap_get(&map, "ab"), &values[3]);
    assert_ptr_equal(strmap_remove(&map, "ab"), &values[3]);
    assert_null(strmap_get(&map, "ab"));
    assert_int_equal(map.n_entries, 3);
    strmap_fini(&map);
}

/* The old key may be part of the old value, which the caller frees next. */
static void a_replaced_entry_lets_go_of_its_old_key(void **state) {
    struct strmap map;
    strmap_init(&map);
    char first[] = "name", second[] = "name";
    assert_null(strmap_put(&map, first, first));
    assert_ptr_equal(strmap_put(&map, second, second), first);
    memset(first, 'x', 4);
    assert_ptr_equal(strmap_get(&map, "name"), second);
    strmap_fini(&map);
}

enum { N_KEYS = 700, N_MOVES = 60000 };

/* A generator of our own: the sequence must be the same in each run, for a failure to come
 * again. */
static uint32_t next_number(uint32_t *seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static void strmap_agrees_with_an_array(void **state) {
    struct strmap map;
    strmap_init(&map);
    static char keys[N_KEYS][80];
    static void *model[N_KEYS];
    static char values[16];
    size_t n_live = 0;
    for (int i = 0; i < N_KEYS; i++)
        snprintf(keys[i], sizeof(keys[i]), "%0*d", 1 + i % 70, i);
    uint32_t seed = 1;
    for (int move = 0; move < N_MOVES; move++) {
        /* Keys drift, so that tombstones pile up and are swept. */
        uint32_t k = (next_number(&seed) % 100 + (uint32_t)move / 100) % N_KEYS;
        void *value = next_number(&seed) % 2 ? &values[next_number(&seed) % 16] : NULL;
        assert_ptr_equal(value ? strmap_put(&map, keys[k], value) : strmap_remove(&map, keys[k]),
                         model[k]);
        n_live += !!value;
        n_live -= !!model[k];
        model[k] = value;
        assert_ptr_equal(strmap_get(&map, keys[k]), value);
        assert_int_equal(map.n_entries, n_live);
        assert_true(map.n_used >= n_live && map.n_used < map.capacity + !map.capacity);
    }
    assert_true(map.capacity <= 2048);
    for (int i = 0; i < N_KEYS; i++)
        assert_ptr_equal(strmap_get(&map, keys[i]), model[i]);
    strmap_fini(&map);
}

static void u64map_agrees_with_an_array(void **state) {
    struct u64map map;
    u64map_init(&map);
    static void *model[N_KEYS];
    static char values[16];
    uint32_t seed = 2;
    for (int move = 0; move < N_MOVES; move++) {
        uint32_t k = (next_number(&seed) % 100 + (uint32_t)move / 100) % N_KEYS;
        uint64_t key = (uint64_t)k << 40; /* ids whose low bits are all alike */
        void *value = next_number(&seed) % 2 ? &values[next_number(&seed) % 16] : NULL;
        assert_ptr_equal(value ? u64map_put(&map, key, value) : u64map_remove(&map, key), model[k]);
        model[k] = value;
        assert_ptr_equal(u64map_get(&map, key), value);
    }
    assert_true(map.capacity <= 2048);
    size_t n_live = 0, n_seen = 0, cursor = 0;
    for (int i = 0; i < N_KEYS; i++)
        n_live += !!model[i];
    uint64_t key;
    void *value;
    while (u64map_next(&map, &cursor, &key, &value)) {
        assert_ptr_equal(model[key >> 40], value);
        n_seen++;
    }
    assert_int_equal(n_seen, n_live);
    u64map_fini(&map);
}

static void a_visitor_may_remove_where_it_stands(void **state) {
    struct strmap names;
    struct u64map numbers;
    strmap_init(&names);
    u64map_init(&numbers);
    static char keys[500][16];
    for (int i = 0; i < 500; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%d", i);
        strmap_put(&names, keys[i], keys[i]);
        u64map_put(&numbers, (uint64_t)i, keys[i]);
    }
    size_t cursor = 0, n_seen = 0;
    struct span key;
    void *value;
    for (; strmap_next(&names, &cursor, &key, &value); n_seen++)
        assert_ptr_equal(strmap_remove_span(&names, key), value);
    assert_int_equal(n_seen, 500);
    assert_int_equal(names.n_entries, 0);
    assert_int_equal(names.n_used, 0);
    cursor = n_seen = 0;
    uint64_t number;
    for (; u64map_next(&numbers, &cursor, &number, &value); n_seen++) {
        if (number % 2)
            assert_ptr_equal(u64map_remove(&numbers, number), value);
    }
    assert_int_equal(n_seen, 500);
    assert_int_equal(numbers.n_entries, 250);
    strmap_fini(&names);
    u64map_fini(&numbers);
}

static void a_queue_of_keys_needs_no_growing_table(void **state) {
    struct u64map map;
    u64map_init(&map);
    int value;
    for (uint64_t i = 0; i < 100000; i++) {
        u64map_put(&map, i, &value);
        if (i >= 8)
            assert_ptr_equal(u64map_remove(&map, i - 8), &value);
    }
    assert_true(map.capacity <= 64);
    u64map_fini(&map);
}

static void every_byte_and_length_changes_the_hash(void **state) {
    unsigned char bytes[200] = {0};
    struct u64map seen;
    u64map_init(&seen);
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        assert_null(u64map_put(&seen, hash_bytes(bytes, len, 5), bytes));
        for (size_t at = 0; at < len; at++) {
            bytes[at] ^= 0x80;
            assert_null(u64map_put(&seen, hash_bytes(bytes, len, 5), bytes));
            bytes[at] ^= 0x80;
        }
    }
    assert_true(hash_bytes(bytes, 8, 1) != hash_bytes(bytes, 8, 2));
    u64map_fini(&seen);
}

static void the_hash_spreads_low_bits(void **state) {
    static int n_in[256];
    for (int i = 0; i < 256 * 100; i++) {
        char name[64];
        int len = snprintf(name, sizeof(name), "layer_%d/weights", i);
        n_in[hash_bytes(name, (size_t)len, 99) & 255]++;
    }
    for (int i = 0; i < 256; i++)
        assert_in_range(n_in[i], 50, 150); /* five sigma of a fair spread */
}

static void random_numbers_differ_and_are_never_zero(void **state) {
    struct u64map seen;
    u64map_init(&seen);
    for (int i = 0; i < 5000; i++) {
        uint64_t number = random_u64();
        assert_true(number != 0);
        assert_null(u64map_put(&seen, number, &seen));
    }
    u64map_fini(&seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_nothing),
        cmocka_unit_test(keys_are_spans),
        cmocka_unit_test(a_replaced_entry_lets_go_of_its_old_key),
        cmocka_unit_test(strmap_agrees_with_an_array),
        cmocka_unit_test(u64map_agrees_with_an_array),
        cmocka_unit_test(a_visitor_may_remove_where_it_stands),
        cmocka_unit_test(a_queue_of_keys_needs_no_growing_table),
        cmocka_unit_test(every_byte_and_length_changes_the_hash),
        cmocka_unit_test(the_hash_spreads_low_bits),
        cmocka_unit_test(random_numbers_differ_and_are_never_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
