/* Region memory: alignment, growth, reuse after a clear. */
#include "common/base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void an_unused_arena_owns_nothing(void **state) {
    struct arena arena;
    arena_init(&arena);
    arena_clear(&arena);
    assert_int_equal(arena.size_bytes, 0);
    arena_fini(&arena);
    arena_fini(&arena);
    arena_fini(NULL);
}

static void blocks_are_aligned_and_apart(void **state) {
    struct arena arena;
    arena_init(&arena);
    unsigned char *blocks[2000];
    size_t sizes[2000];
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        sizes[i] = i * 7919 % 1500;
        size_t align = (size_t)1 << (i % 13);
        blocks[i] = arena_alloc_aligned(&arena, sizes[i], align);
        assert_int_equal((uintptr_t)blocks[i] % MAX(align, 16), 0);
        memset(blocks[i], (int)(i & 0xFF), sizes[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(blocks[i][k], i & 0xFF);
    }
    arena_fini(&arena);
}

static void zero_bytes_have_an_address_of_their_own(void **state) {
    struct arena arena;
    arena_init(&arena);
    void *a = arena_alloc(&arena, 0), *b = arena_alloc(&arena, 0);
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    arena_fini(&arena);
}

static void a_large_request_leaves_the_newest_block_in_use(void **state) {
    struct arena arena;
    arena_init(&arena);
    char *first = arena_alloc(&arena, 16);
    char *large = arena_alloc_aligned(&arena, 10 << 20, 4096);
    assert_int_equal((uintptr_t)large % 4096, 0);
    memset(large, 1, 10 << 20);
    assert_ptr_equal(arena_alloc(&arena, 16), first + 16);
    arena_fini(&arena);
}

static void clear_keeps_one_usual_block(void **state) {
    struct arena arena;
    arena_init(&arena);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 500; i++)
            memset(arena_alloc(&arena, 1000), round, 1000);
        arena_alloc(&arena, 10 << 20);
        assert_true(arena.size_bytes > 10 << 20);
        arena_clear(&arena);
        assert_in_range(arena.size_bytes, 1, 256 * 1024);
    }
    size_t kept = arena.size_bytes;
    arena_alloc(&arena, 100);
    assert_int_equal(arena.size_bytes, kept);
    arena_fini(&arena);
}

static void a_zeroed_block_is_zero_after_reuse(void **state) {
    struct arena arena;
    arena_init(&arena);
    memset(arena_alloc(&arena, 512), 0xFF, 512);
    arena_clear(&arena);
    const int64_t *numbers = arena_array(&arena, int64_t, 64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(numbers[i], 0);
    arena_fini(&arena);
}

static void text_is_copied(void **state) {
    struct arena arena;
    arena_init(&arena);
    char source[] = "abcdef";
    char *whole = arena_strdup(&arena, source), *part = arena_strndup(&arena, source, 3);
    char *bytes = arena_memdup(&arena, source, 2);
    source[0] = 'X';
    assert_string_equal(whole, "abcdef");
    assert_string_equal(part, "abc");
    assert_memory_equal(bytes, "ab", 2);
    assert_string_equal(arena_strndup(&arena, NULL, 0), "");
    assert_non_null(arena_memdup(&arena, NULL, 0));
    arena_fini(&arena);
}

static void printf_holds_text_of_any_length(void **state) {
    struct arena arena;
    arena_init(&arena);
    assert_string_equal(arena_printf(&arena, "%s:%d", "a", 1), "a:1");
    for (int len = 250; len < 260; len++) {
        char *text = arena_printf(&arena, "%0*d", len, 7);
        assert_int_equal(strlen(text), len);
        assert_int_equal(text[len - 1], '7');
    }
    arena_fini(&arena);
}

static size_t resident_bytes(void) {
    unsigned long n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &n_pages), 1);
    fclose(file);
    return n_pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* As when a daemon has refused an oversized graph: something small lives on above it in the
 * heap. */
static void a_large_region_leaves_no_pages_behind(void **state) {
#ifdef __SANITIZE_ADDRESS__
    skip(); /* its quarantine keeps them */
#endif
    enum { BLOCK_BYTES = 64 * 1024, N_BLOCKS = 3200 }; /* 200 MiB */
    struct arena arena;
    char *above = NULL;
    /* the first teaches malloc to take blocks from its heap */
    for (int round = 0; round < 2; round++) {
        arena_init(&arena);
        for (int i = 0; i < N_BLOCKS; i++)
            memset(arena_alloc(&arena, BLOCK_BYTES), 1, BLOCK_BYTES);
        if (round == 1)
            above = xcalloc(1, 5000);
        arena_fini(&arena);
    }
    assert_in_range(resident_bytes(), 1, 64 << 20);
    free(above);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unused_arena_owns_nothing),
        cmocka_unit_test(blocks_are_aligned_and_apart),
        cmocka_unit_test(zero_bytes_have_an_address_of_their_own),
        cmocka_unit_test(a_large_request_leaves_the_newest_block_in_use),
        cmocka_unit_test(clear_keeps_one_usual_block),
        cmocka_unit_test(a_zeroed_block_is_zero_after_reuse),
        cmocka_unit_test(text_is_copied),
        cmocka_unit_test(printf_holds_text_of_any_length),
        cmocka_unit_test(a_large_region_leaves_no_pages_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
