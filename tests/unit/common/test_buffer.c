/* Tensor memory: alignment, accounting, limits, recycling, wrapped memory. */
#include "common/tensor/buffer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/tensor/tensor.h"

#if defined(__SANITIZE_ADDRESS__)
#define IS_HOSTILE true
#else
#define IS_HOSTILE false
#endif

static int64_t in_use(struct allocator *allocator) { return atomic_load(&allocator->in_use_bytes); }

static void data_is_aligned_and_writable_at_every_size(void **state) {
    struct allocator *host = allocator_host();
    int64_t before = in_use(host);
    for (size_t size = 0; size < (size_t)20 << 20; size = size * 3 / 2 + 1) {
        struct buffer *buffer = buffer_alloc(host, size);
        assert_non_null(buffer);
        assert_int_equal((uintptr_t)buffer->data % BUFFER_ALIGN, 0);
        assert_true(buffer->size_bytes >= size && buffer->size_bytes <= size + size / 8 + 64);
        assert_true(buffer_is_sole(buffer));
        memset(buffer->data, 0xab, size);
        buffer_ref(buffer);
        assert_false(buffer_is_sole(buffer));
        buffer_unref(buffer);
        buffer_unref(buffer);
    }
    assert_int_equal(in_use(host), before);
    buffer_unref(NULL);
}

static void use_is_counted_and_the_peak_kept(void **state) {
    struct allocator *allocator = allocator_host_new("cpu", 0);
    struct buffer *a = buffer_alloc(allocator, 1000), *b = buffer_alloc(allocator, 1 << 20);
    int64_t both = in_use(allocator);
    assert_true(both >= 1000 + (1 << 20));
    buffer_unref(b);
    assert_int_equal(in_use(allocator), 1000);
    assert_int_equal(atomic_load(&allocator->peak_bytes), both);
    buffer_unref(a);
    allocator_host_free(allocator);
}

static void a_limit_refuses_and_counts_nothing(void **state) {
    struct allocator *allocator = allocator_host_new("cpu", 1 << 20);
    struct buffer *a = buffer_alloc(allocator, 600 << 10);
    assert_non_null(a);
    int64_t before = in_use(allocator);
    assert_null(buffer_alloc(allocator, 600 << 10));
    assert_int_equal(in_use(allocator), before);
    buffer_unref(a);
    a = buffer_alloc(allocator, 600 << 10);
    assert_non_null(a);
    buffer_unref(a);
    assert_null(buffer_alloc(allocator, SIZE_MAX / 2));
    assert_null(buffer_alloc(allocator_host(), SIZE_MAX - 10));
    assert_null(buffer_alloc(allocator_host(), (size_t)1 << 50));
    allocator_host_free(allocator);
}

static void an_error_tells_what_the_shared_face_stands_for(void **state) {
    struct allocator *allocator = allocator_host_new("small", 1000);
    struct allocator *shared = allocator_host_shared(allocator);
    struct buffer *buffer = buffer_alloc(shared, 600);
    struct tensor tensor = TENSOR_INIT;
    struct status *st =
        tensor_new(shared, DT_UINT8, ((struct shape){1, (int64_t[]){600}}), &tensor);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(status_message(st),
                        "OOM when allocating tensor with shape[600] and type uint8 (600 bytes) "
                        "from allocator small: 600 of 1000 bytes in use");
    status_unref(st);
    buffer_unref(buffer);
    allocator_host_free(allocator);
}

static void an_allocator_lives_as_long_as_its_buffers(void **state) {
    struct allocator *allocator = allocator_host_new("short-lived", 0);
    struct buffer *small = buffer_alloc(allocator, 10), *large = buffer_alloc(allocator, 100 << 10);
    allocator_host_free(allocator);
    assert_string_equal(small->allocator->name, "short-lived");
    buffer_unref(small);
    buffer_unref(large);
    allocator_host_free(NULL);
}

static void large_blocks_are_recycled_within_their_class(void **state) {
    if (IS_HOSTILE)
        skip(); /* nothing is recycled there */
    allocator_host_trim();
    struct buffer *a = buffer_alloc(allocator_host(), 3000000);
    char *data = a->data;
    assert_true(a->flags & BUFFER_IS_ZERO);
    for (size_t i = 0; i < 3000000; i += 4096)
        assert_int_equal(data[i], 0);
    data[5] = 1;
    buffer_unref(a);
    struct buffer *b = buffer_alloc(allocator_host(), 2990000);
    assert_ptr_equal(b->data, data);
    assert_false(b->flags & BUFFER_IS_ZERO);
    struct buffer *c = buffer_alloc(allocator_host(), 3000000);
    assert_ptr_not_equal(c->data, data);
    buffer_unref(b);
    buffer_unref(c);
    allocator_host_trim();
}

static void the_cache_keeps_no_more_than_its_limit(void **state) {
    if (IS_HOSTILE)
        skip();
    allocator_host_set_cache_limit(0);
    struct buffer *a = buffer_alloc(allocator_host(), 2 << 20);
    buffer_unref(a);
    a = buffer_alloc(allocator_host(), 2 << 20);
    assert_true(a->flags & BUFFER_IS_ZERO);
    buffer_unref(a);
    allocator_host_set_cache_limit(1ll << 30);
}

static long resident_kib(void) {
    long pages = 0, ignored;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void a_lying_length_costs_nothing_until_touched(void **state) {
    if (IS_HOSTILE)
        skip();
    long before = resident_kib();
    struct buffer *buffer = buffer_alloc(allocator_host(), (size_t)1 << 30);
    if (!buffer)
        skip(); /* a very small machine */
    buffer->data[0] = 1;
    assert_true(resident_kib() - before < 16 * 1024);
    buffer_unref(buffer);
    allocator_host_trim();
}

static void count_release(void *arg) { ++*(int *)arg; }

static void wrapped_memory_is_released_once(void **state) {
    char memory[100];
    int n_released = 0;
    struct buffer *buffer = buffer_wrap(memory, sizeof(memory), count_release, &n_released);
    assert_ptr_equal(buffer->data, memory);
    buffer_ref(buffer);
    buffer_unref(buffer);
    assert_int_equal(n_released, 0);
    buffer_unref(buffer);
    assert_int_equal(n_released, 1);
}

static void *allocate_and_free(void *arg) {
    struct allocator *allocator = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    struct buffer *held[16] = {NULL};
    for (int i = 0; i < 3000; i++) {
        int at = rand_r(&seed) % 16;
        buffer_unref(held[at]);
        held[at] = buffer_alloc(allocator, (size_t)1 << (rand_r(&seed) % 20));
        if (held[at])
            held[at]->data[0] = (char)i;
    }
    for (int i = 0; i < 16; i++)
        buffer_unref(held[i]);
    return NULL;
}

static void threads_share_an_allocator(void **state) {
    struct allocator *allocator = allocator_host_new("shared", 8 << 20);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, allocate_and_free, allocator);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(in_use(allocator), 0);
    assert_true(atomic_load(&allocator->peak_bytes) <= 8 << 20);
    allocator_host_free(allocator);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_is_aligned_and_writable_at_every_size),
        cmocka_unit_test(use_is_counted_and_the_peak_kept),
        cmocka_unit_test(a_limit_refuses_and_counts_nothing),
        cmocka_unit_test(an_error_tells_what_the_shared_face_stands_for),
        cmocka_unit_test(an_allocator_lives_as_long_as_its_buffers),
        cmocka_unit_test(large_blocks_are_recycled_within_their_class),
        cmocka_unit_test(the_cache_keeps_no_more_than_its_limit),
        cmocka_unit_test(a_lying_length_costs_nothing_until_touched),
        cmocka_unit_test(wrapped_memory_is_released_once),
        cmocka_unit_test(threads_share_an_allocator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
