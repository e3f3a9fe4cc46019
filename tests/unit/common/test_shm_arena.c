/* The arena that peers can map, and the allocator's face in front of it. */
#include "common/tensor/shm_arena.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/tensor/shared_areas.h"
#include "common/tensor/tensor.h"

enum { BLOCK = 1 << 20, CLASS = 32 };

static void blocks_come_back_as_zeros(void **state) {
    struct shm_arena *arena;
    assert_null(shm_arena_new(64 << 20, &arena));
    char *a = shm_arena_take(arena, CLASS, BLOCK), *b = shm_arena_take(arena, CLASS, BLOCK);
    uint64_t at_a = 0, at_b = 0;
    assert_true(shm_arena_find(arena, a, &at_a) && shm_arena_find(arena, b + BLOCK - 1, &at_b));
    assert_true(at_b >= at_a + BLOCK || at_a > at_b);
    assert_false(shm_arena_find(arena, &at_a, &at_b));
    memset(a, 7, BLOCK);
    assert_int_equal(shm_arena_taken_bytes(arena), 2 * BLOCK);
    shm_arena_give(arena, CLASS, a, BLOCK);
    assert_int_equal(shm_arena_taken_bytes(arena), BLOCK);
    assert_ptr_equal(shm_arena_take(arena, CLASS, BLOCK), a);
    for (int i = 0; i < BLOCK; i++)
        assert_int_equal(a[i], 0);
    shm_arena_free(arena);
}

static void ranges_run_out(void **state) {
    struct shm_arena *arena;
    assert_null(shm_arena_new(64 << 20, &arena));
    size_t n = shm_arena_size(arena) / BLOCK;
    for (size_t i = 0; i < n; i++)
        assert_non_null(shm_arena_take(arena, CLASS, BLOCK));
    assert_null(shm_arena_take(arena, CLASS, BLOCK));
    assert_null(shm_arena_take(arena, 0, 4096));
    shm_arena_free(arena);
}

static void others_read_and_cannot_write_or_shrink(void **state) {
    struct shm_arena *arena;
    assert_null(shm_arena_new(64 << 20, &arena));
    int fd = dup(shm_arena_fd(arena));
    size_t size = shm_arena_size(arena);
    char *mine = shm_arena_take(arena, CLASS, BLOCK);
    uint64_t offset;
    assert_true(shm_arena_find(arena, mine, &offset));
    memset(mine, 42, BLOCK);
    assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_not_equal(ftruncate(fd, 0), 0);
    const char *theirs = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    assert_ptr_not_equal(theirs, MAP_FAILED);
    assert_int_not_equal(mprotect((void *)(uintptr_t)theirs, BLOCK, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(theirs[offset + BLOCK - 1], 42);
    shm_arena_free(arena); /* the pages live as long as somebody looks at them */
    assert_int_equal(theirs[offset], 42);
    munmap((void *)(uintptr_t)theirs, size);
    close(fd);
}

/* ---- who is told ---- */

static struct {
    const char *data;
    size_t size_bytes;
    int n;
} told;

static void on_release(const char *data, size_t size_bytes) {
    told.data = data;
    told.size_bytes = size_bytes;
    told.n++;
    assert_int_equal(*data, 7); /* its pages are still there */
}

static void a_block_that_is_given_back_is_told_and_raises_its_slabs_epoch(void **state) {
    struct shm_arena *arena;
    uint64_t at_a = 0, at_b = 0;
    enum { LARGE = SHM_ARENA_SLAB_BYTES };
    assert_null(shm_arena_new(64 << 20, &arena));
    char *a = shm_arena_take(arena, CLASS, LARGE), *b = shm_arena_take(arena, CLASS, LARGE);
    assert_true(shm_arena_find(arena, a, &at_a) && shm_arena_find(arena, b, &at_b));
    assert_int_equal(shm_arena_epoch(arena, at_a, LARGE), 1);
    a[0] = 7;
    shm_arena_give(arena, CLASS, a, LARGE); /* nobody wants to know */
    assert_int_equal(shm_arena_epoch(arena, at_a, LARGE), 2);
    assert_int_equal(shm_arena_epoch(arena, at_b, LARGE), 1);
    b[0] = 7;
    shared_areas_watch(on_release);
    shm_arena_give(arena, CLASS, b, LARGE);
    assert_true(told.n == 1 && told.data == b && told.size_bytes == LARGE);
    assert_int_equal(shm_arena_epoch(arena, at_a, LARGE), 2);
    assert_int_equal(shm_arena_epoch(arena, at_b, LARGE), 3);
    assert_int_equal(shm_arena_epoch(arena, at_a, 2 * LARGE), 3);
    shared_areas_watch(NULL);
    shm_arena_free(arena);
    assert_int_equal(told.n, 1);
}

static void an_arena_is_an_area_until_it_is_freed(void **state) {
    struct shm_arena *arena;
    struct shared_area area;
    assert_null(shm_arena_new(64 << 20, &arena));
    char *a = shm_arena_take(arena, CLASS, BLOCK);
    assert_true(shared_areas_find(a, BLOCK, &area));
    assert_false(area.is_read_only);
    assert_int_equal(area.size_bytes, shm_arena_size(arena));
    assert_true(shared_areas_find(area.base, area.size_bytes, &area));
    assert_false(shared_areas_find(area.base, area.size_bytes + 1, &area));
    assert_false(shared_areas_find(area.base + area.size_bytes, 1, &area));
    *(char *)(uintptr_t)area.base = 7;
    shared_areas_watch(on_release);
    shm_arena_free(arena);
    assert_ptr_equal(told.data, area.base);
    assert_int_equal(told.size_bytes, area.size_bytes);
    shared_areas_watch(NULL);
    assert_false(shared_areas_find(area.base, 1, &area));
}

/* ---- the allocator ---- */

static void only_large_blocks_of_the_shared_face_lie_there(void **state) {
    struct shm_arena *arena;
    struct allocator *host = allocator_host_new("cpu", 8 << 20),
                     *shared = allocator_host_shared(host);
    uint64_t offset;
    assert_null(shm_arena_new(0, &arena));
    struct buffer *before = buffer_alloc(shared, BLOCK); /* no arena yet */
    allocator_host_set_arena(arena);
    assert_false(shm_arena_find(arena, before->data, &offset));
    assert_false(allocator_likes(shared, before));
    assert_true(allocator_likes(host, before));
    buffer_unref(before);
    struct buffer *small = buffer_alloc(shared, 1000), *plain = buffer_alloc(host, BLOCK),
                  *large = buffer_alloc(shared, BLOCK);
    assert_false(shm_arena_find(arena, small->data, &offset));
    assert_true(allocator_likes(shared, small)); /* it is no worse off */
    assert_false(shm_arena_find(arena, plain->data, &offset));
    assert_true(shm_arena_find(arena, large->data, &offset));
    assert_int_equal(offset % BUFFER_ALIGN, 0);
    assert_true(allocator_likes(shared, large));
    assert_true(buffer_is_sole(large));
    assert_int_equal(atomic_load(&host->in_use_bytes), 1000 + 2 * BLOCK); /* one account */
    assert_null(buffer_alloc(shared, 7 << 20));                           /* one limit */
    memset(large->data, 1, BLOCK);
    buffer_unref(small);
    buffer_unref(plain);
    buffer_unref(large);
    assert_int_equal(atomic_load(&host->in_use_bytes), 0);
    allocator_host_trim();
    assert_int_equal(shm_arena_taken_bytes(arena), 0); /* punched out */
    allocator_host_free(host);
    allocator_host_set_arena(NULL);
    shm_arena_free(arena);
}

static void an_arena_without_room_gives_way_to_private_memory(void **state) {
    struct shm_arena *arena;
    struct buffer *buffers[80];
    uint64_t offset;
    size_t n_there = 0;
    assert_null(shm_arena_new(64 << 20, &arena));
    allocator_host_set_arena(arena);
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++) {
        buffers[i] = buffer_alloc(allocator_host_shared(allocator_host()), BLOCK);
        assert_non_null(buffers[i]);
        n_there += shm_arena_find(arena, buffers[i]->data, &offset);
    }
    assert_int_equal(n_there, shm_arena_size(arena) / BLOCK);
    for (size_t i = 0; i < ARRAY_LEN(buffers); i++)
        buffer_unref(buffers[i]);
    allocator_host_set_arena(NULL);
    shm_arena_free(arena);
}

static void memory_to_be_read_only_is_never_the_sole_holders(void **state) {
    static char bytes[128] __attribute__((aligned(BUFFER_ALIGN)));
    struct buffer *buffer = buffer_wrap(bytes, sizeof(bytes), NULL, NULL);
    struct tensor t = TENSOR_INIT;
    int64_t n = sizeof(bytes);
    assert_true(buffer_is_sole(buffer));
    buffer->flags |= BUFFER_IS_READ_ONLY;
    assert_false(buffer_is_sole(buffer));
    assert_null(tensor_view(buffer, bytes, DT_UINT8, (struct shape){1, &n}, &t));
    buffer_unref(buffer);
    assert_false(tensor_is_sole(&t));
    tensor_clear(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_back_as_zeros),
        cmocka_unit_test(ranges_run_out),
        cmocka_unit_test(others_read_and_cannot_write_or_shrink),
        cmocka_unit_test(a_block_that_is_given_back_is_told_and_raises_its_slabs_epoch),
        cmocka_unit_test(an_arena_is_an_area_until_it_is_freed),
        cmocka_unit_test(only_large_blocks_of_the_shared_face_lie_there),
        cmocka_unit_test(an_arena_without_room_gives_way_to_private_memory),
        cmocka_unit_test(memory_to_be_read_only_is_never_the_sole_holders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
