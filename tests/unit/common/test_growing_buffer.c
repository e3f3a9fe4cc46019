/* Buffers that are filled while they are read: what a reader sees and is told, and when. */
#include "common/tensor/growing_buffer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 1 << 20, PIECE = 1 << 12 };

struct reader {
    struct growing_wait wait;
    int n_told;
};

static void on_reached(struct growing_wait *wait) {
    CONTAINER_OF(wait, struct reader, wait)->n_told++;
}

static struct buffer *new_buffer(void) {
    struct buffer *buffer = growing_buffer_new(allocator_host(), SIZE);
    assert_non_null(buffer);
    assert_true(buffer_is_growing(buffer));
    assert_int_equal(buffer->size_bytes, SIZE);
    assert_int_equal((uintptr_t)buffer->data % BUFFER_ALIGN, 0);
    return buffer;
}

static void other_buffers_do_not_grow(void **state) {
    struct buffer *buffer = buffer_alloc(allocator_host(), SIZE);
    assert_false(buffer_is_growing(buffer));
    buffer_unref(buffer);
}

static void its_memory_is_the_allocators(void **state) {
    struct allocator *allocator = allocator_host_new("small", SIZE + SIZE / 2);
    struct buffer *buffer = growing_buffer_new(allocator, SIZE);
    assert_true(atomic_load(&allocator->in_use_bytes) >= SIZE);
    assert_null(growing_buffer_new(allocator, SIZE));
    growing_buffer_end(buffer, NULL);
    buffer_unref(buffer);
    assert_int_equal(atomic_load(&allocator->in_use_bytes), 0);
    allocator_host_free(allocator);
}

static void a_wait_ends_when_its_bytes_are_there_and_not_before(void **state) {
    struct buffer *buffer = new_buffer();
    struct reader first = {{on_reached}}, second = {{on_reached}}, none = {{on_reached}};
    assert_false(growing_buffer_wait(buffer, &first.wait, PIECE));
    assert_false(growing_buffer_wait(buffer, &second.wait, 2 * PIECE));
    growing_buffer_advance(buffer, PIECE - 1);
    assert_int_equal(first.n_told, 0);
    growing_buffer_advance(buffer, PIECE + 1);
    assert_int_equal(first.n_told, 1);
    assert_int_equal(second.n_told, 0);
    assert_int_equal(growing_buffer_filled(buffer), PIECE + 1);
    growing_buffer_advance(buffer, PIECE); /* it never shrinks */
    assert_int_equal(growing_buffer_filled(buffer), PIECE + 1);
    assert_true(growing_buffer_wait(buffer, &none.wait, PIECE + 1));
    growing_buffer_end(buffer, NULL);
    assert_int_equal(first.n_told, 1);
    assert_int_equal(second.n_told, 1);
    assert_int_equal(none.n_told, 0);
    assert_false(buffer_is_growing(buffer));
    assert_int_equal(growing_buffer_filled(buffer), SIZE);
    assert_null(growing_buffer_failure(buffer));
    buffer_unref(buffer);
}

static void a_failure_ends_all_waits_and_is_final(void **state) {
    struct buffer *buffer = new_buffer();
    struct reader waiting = {{on_reached}}, late = {{on_reached}};
    struct status *why = status_internal("the device is gone");
    growing_buffer_advance(buffer, PIECE);
    assert_false(growing_buffer_wait(buffer, &waiting.wait, SIZE));
    growing_buffer_end(buffer, why);
    assert_int_equal(waiting.n_told, 1);
    assert_ptr_equal(growing_buffer_failure(buffer), why);
    assert_true(growing_buffer_wait(buffer, &late.wait, SIZE));
    growing_buffer_advance(buffer, SIZE); /* a thread that hung comes back */
    assert_int_equal(growing_buffer_filled(buffer), PIECE);
    assert_true(buffer_is_growing(buffer)); /* for ever */
    status_unref(why);
    buffer_unref(buffer);
}

/* ---- two threads ---- */

static void *fill(void *arg) {
    struct buffer *buffer = arg;
    for (size_t at = 0; at < SIZE; at += PIECE) {
        memset(buffer->data + at, (int)(at / PIECE), PIECE);
        growing_buffer_advance(buffer, at + PIECE);
    }
    growing_buffer_end(buffer, NULL);
    buffer_unref(buffer);
    return NULL;
}

struct signal {
    struct growing_wait wait;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_told; /* guarded by lock */
};

static void signal_reached(struct growing_wait *wait) {
    struct signal *signal = CONTAINER_OF(wait, struct signal, wait);
    pthread_mutex_lock(&signal->lock);
    signal->n_told++;
    pthread_cond_signal(&signal->changed);
    pthread_mutex_unlock(&signal->lock);
}

static void a_reader_sees_what_another_thread_has_filled(void **state) {
    struct signal signal = {.wait = {signal_reached}};
    struct buffer *buffer = new_buffer();
    pthread_t filler;
    pthread_mutex_init(&signal.lock, NULL);
    pthread_cond_init(&signal.changed, NULL);
    assert_int_equal(pthread_create(&filler, NULL, fill, buffer_ref(buffer)), 0);
    int n_waits = 0;
    for (size_t at = 0; at < SIZE; at += PIECE) {
        if (!growing_buffer_wait(buffer, &signal.wait, at + PIECE)) {
            n_waits++;
            pthread_mutex_lock(&signal.lock);
            while (signal.n_told < n_waits)
                pthread_cond_wait(&signal.changed, &signal.lock);
            pthread_mutex_unlock(&signal.lock);
        }
        for (size_t i = 0; i < PIECE; i++)
            if ((uint8_t)buffer->data[at + i] != (uint8_t)(at / PIECE))
                fail_msg("byte %zu is not there", at + i);
    }
    pthread_join(filler, NULL);
    assert_int_equal(signal.n_told, n_waits);
    buffer_unref(buffer);
    pthread_mutex_destroy(&signal.lock);
    pthread_cond_destroy(&signal.changed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_buffers_do_not_grow),
        cmocka_unit_test(its_memory_is_the_allocators),
        cmocka_unit_test(a_wait_ends_when_its_bytes_are_there_and_not_before),
        cmocka_unit_test(a_failure_ends_all_waits_and_is_final),
        cmocka_unit_test(a_reader_sees_what_another_thread_has_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
