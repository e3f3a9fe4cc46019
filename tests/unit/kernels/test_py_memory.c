/* Memory shared with servers of Python functions: what is mapped, which blocks are free, and what
 * hostile servers may name. The test is the server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/host/calls/py_message.h"

enum { SIZE = 1 << 20, HALF = SIZE / 2 };

static const char NONCE[] = "00112233445566778899aabbccddeeff";

struct server {
    int fd;
    char *map;
    char name[128];
};

static void server_open(struct server *server, int seals) {
    server->fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(server->fd >= 0);
    assert_int_equal(ftruncate(server->fd, SIZE), 0);
    assert_int_equal(fcntl(server->fd, F_ADD_SEALS, seals), 0);
    server->map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, server->fd, 0);
    assert_true(server->map != MAP_FAILED);
    for (int i = 0; i < PY_MEMORY_NONCE_BYTES; i++)
        server->map[i] = (char)(i * 0x11);
    snprintf(server->name, sizeof(server->name), "%d %d %d %s", getpid(), server->fd, SIZE, NONCE);
}

static void server_close(struct server *server) {
    munmap(server->map, SIZE);
    close(server->fd);
}

static void expect_unmapped(const char *name) {
    struct py_memory *memory = py_memory_open(span_of(name));
    if (memory)
        fail_msg("'%s' is mapped", name);
}

static void free_block(struct server *server, uint64_t at) {
    memset(server->map + at - PY_MEMORY_ALIGN, 0, sizeof(uint32_t));
}

static void names_that_are_not_the_servers_are_not_mapped(void **state) {
    struct server server, shrinks;
    char name[160];
    server_open(&server, F_SEAL_SHRINK);
    server_open(&shrinks, F_SEAL_GROW);
    struct py_memory *memory = py_memory_open(span_of(server.name));
    assert_non_null(memory);
    py_memory_unref(memory);
    expect_unmapped("");
    expect_unmapped("a message");
    expect_unmapped(shrinks.name);
    snprintf(name, sizeof(name), "%s0", server.name);
    expect_unmapped(name);
    snprintf(name, sizeof(name), "%.*s", (int)strlen(server.name) - 1, server.name);
    expect_unmapped(name);
    snprintf(name, sizeof(name), "%d %d %d 0%s", getpid(), server.fd, SIZE, NONCE + 1);
    assert_non_null(memory = py_memory_open(span_of(name)));
    py_memory_unref(memory);
    snprintf(name, sizeof(name), "%d %d %d 1%s", getpid(), server.fd, SIZE, NONCE + 1);
    expect_unmapped(name);
    snprintf(name, sizeof(name), "%d %d %d %s", getpid(), server.fd, 2 * SIZE, NONCE);
    expect_unmapped(name);
    snprintf(name, sizeof(name), "%d 0 %d %s", getpid(), SIZE, NONCE);
    expect_unmapped(name);
    FILE *plain = tmpfile(); /* it has no seals */
    assert_non_null(plain);
    assert_int_equal(fwrite(server.map, 1, SIZE, plain), SIZE);
    assert_int_equal(fflush(plain), 0);
    snprintf(name, sizeof(name), "%d %d %d %s", getpid(), fileno(plain), SIZE, NONCE);
    expect_unmapped(name);
    fclose(plain);
    server_close(&server);
    server_close(&shrinks);
}

static void blocks_are_used_again_once_the_server_has_freed_them(void **state) {
    struct server server;
    enum { N = 7, BYTES = HALF / 8 };
    char *bytes = calloc(1, BYTES);
    uint64_t at[N];
    server_open(&server, F_SEAL_SHRINK);
    struct py_memory *memory = py_memory_open(span_of(server.name));
    for (int i = 0; i < N; i++) {
        memset(bytes, 'a' + i, BYTES);
        at[i] = py_memory_put(memory, bytes, BYTES);
        assert_true(at[i] > 0 && at[i] + BYTES <= HALF);
    }
    assert_int_equal(py_memory_put(memory, bytes, BYTES), 0);
    free_block(&server, at[3]);
    assert_int_equal(py_memory_put(memory, bytes, BYTES + 1), 0);
    assert_int_equal(py_memory_put(memory, bytes, BYTES), at[3]);
    for (int i = 0; i < N; i++)
        assert_int_equal(server.map[at[i] + BYTES - 1], i == 3 ? 'g' : 'a' + i);
    for (int i = 0; i < N; i++)
        free_block(&server, at[i]);
    assert_int_equal(py_memory_put(memory, bytes, BYTES), at[0]);
    assert_int_equal(py_memory_put(memory, bytes, SIZE), 0);
    assert_int_equal(py_memory_put(memory, bytes, SIZE_MAX), 0);
    py_memory_unref(memory);
    server_close(&server);
    free(bytes);
}

static void only_the_servers_half_is_read(void **state) {
    static const uint64_t places[] = {0,    64,         HALF,     HALF + 1,  HALF + 65,
                                      SIZE, SIZE - 128, SIZE * 2, UINT64_MAX};
    struct server server;
    char bytes[256];
    server_open(&server, F_SEAL_SHRINK);
    struct py_memory *memory = py_memory_open(span_of(server.name));
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct status *st = py_memory_take(memory, places[i], bytes, sizeof(bytes));
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
    memset(server.map + HALF, 1, PY_MEMORY_ALIGN + sizeof(bytes));
    assert_null(py_memory_take(memory, HALF + PY_MEMORY_ALIGN, bytes, sizeof(bytes)));
    assert_int_equal(bytes[255], 1);
    assert_int_equal(*(uint32_t *)(void *)(server.map + HALF), 0);
    py_memory_unref(memory);
    server_close(&server);
}

static void the_map_outlives_the_servers_file(void **state) {
    struct server server;
    server_open(&server, F_SEAL_SHRINK);
    struct py_memory *memory = py_memory_open(span_of(server.name));
    assert_int_equal(ftruncate(server.fd, 0), -1);
    server_close(&server);
    assert_true(py_memory_put(memory, NONCE, sizeof(NONCE)) > 0);
    py_memory_unref(memory);
}

/* Through the messages: a large value is shared, a small one and a string are not. */
static void a_call_shares_its_large_values(void **state) {
    struct server server;
    struct tensor values[3] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT}, blob = TENSOR_INIT;
    enum { N = PY_SHARED_MIN_BYTES };
    server_open(&server, F_SEAL_SHRINK);
    assert_null(
        tensor_new(allocator_host(), DT_UINT8, (struct shape){1, &(int64_t){N}}, &values[0]));
    assert_null(
        tensor_new(allocator_host(), DT_UINT8, (struct shape){1, &(int64_t){N - 1}}, &values[1]));
    assert_null(
        tensor_new(allocator_host(), DT_STRING, (struct shape){1, &(int64_t){N}}, &values[2]));
    memset(tensor_data(&values[0]), 'x', N);
    struct py_call call = {.id = 1,
                           .token = span_of("pyfunc_0"),
                           .values = values,
                           .n_values = 1,
                           .memory = py_memory_open(span_of(server.name))};
    assert_null(py_call_write(&call, allocator_host(), &blob));
    assert_true(blob.n_elements < 256);
    assert_int_equal(server.map[2 * PY_MEMORY_ALIGN + N - 1], 'x');
    tensor_clear(&blob);
    for (int i = 1; i < 3; i++) {
        call.values = &values[i];
        assert_null(py_call_write(&call, allocator_host(), &blob));
        assert_true(blob.n_elements >= N - 1);
        tensor_clear(&blob);
    }
    py_memory_unref(call.memory);
    for (int i = 0; i < 3; i++)
        tensor_clear(&values[i]);
    server_close(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_are_not_the_servers_are_not_mapped),
        cmocka_unit_test(blocks_are_used_again_once_the_server_has_freed_them),
        cmocka_unit_test(only_the_servers_half_is_read),
        cmocka_unit_test(the_map_outlives_the_servers_file),
        cmocka_unit_test(a_call_shares_its_large_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
