/* Which RDMA device is taken, and the memory that is kept registered. The lines themselves:
 * tests/unit/worker/test_peer_rdma.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/tensor/shm_arena.h"
#include "rpc/rdma/rdma_in.h"
#include "tests/unit/rpc/fake_verbs.h"
#include "tests/unit/rpc/loop_until.h"

static int setup(void **state) {
    fake_verbs_reset();
    return 0;
}

/* ---- which device ---- */

static const struct fake_port good = {
    .device = "mlx5_0",
    .transport = IBV_TRANSPORT_IB,
    .state = IBV_PORT_ACTIVE,
    .mtu = IBV_MTU_1024,
    .max_message_bytes = 1 << 30,
    .gids = {{{0xfe, 0x80, [15] = 9}, IBV_GID_TYPE_ROCE_V2},
             {{[10] = 0xff, 0xff, 10, 0, 0, 1}, IBV_GID_TYPE_ROCE_V1},
             {{0x20, 0x01, [15] = 1}, IBV_GID_TYPE_ROCE_V2},
             {{[10] = 0xff, 0xff, 10, 0, 0, 1}, IBV_GID_TYPE_ROCE_V2}},
    .n_gids = 4};

static struct status *choose(const char *text, struct rdma_port *ret) {
    struct rdma_choice choice;
    TRY(rdma_choice_parse(text, &choice));
    TRY(rdma_port_choose(&fake_verbs_table, &choice, ret));
    fake_verbs_table.close_device(ret->context);
    return NULL;
}

static void expect_refusal(const char *text, enum status_code code, const char *words) {
    struct rdma_port port;
    struct status *st = choose(text, &port);
    assert_int_equal(status_code(st), code);
    assert_non_null(strstr(status_message(st), words));
    status_unref(st);
}

static void an_address_is_chosen_by_content(void **state) {
    struct rdma_port port;
    fake_verbs.ports[0] = good;
    assert_null(choose(NULL, &port));
    assert_int_equal(port.gid_index, 3); /* RoCE v2, IPv4 */
    assert_int_equal(port.mtu, IBV_MTU_1024);
    assert_true(port.is_ethernet);
    fake_verbs.ports[0].n_gids = 3;
    assert_null(choose("mlx5_0:1", &port));
    assert_int_equal(port.gid_index, 2); /* not link-local */
    assert_null(choose("mlx5_0:1:0", &port));
    assert_int_equal(port.gid_index, 0); /* whoever asks for it gets it */
    fake_verbs.ports[0].n_gids = 2;
    expect_refusal("", STATUS_FAILED_PRECONDITION,
                   "port 1 of mlx5_0 has no RoCE v2 address that others can route to");
}

static void infiniband_goes_by_its_lid(void **state) {
    struct rdma_port port;
    fake_verbs.ports[0] = good;
    fake_verbs.ports[0].is_infiniband = true;
    fake_verbs.ports[0].lid = 17;
    assert_null(choose("", &port));
    assert_false(port.is_ethernet);
    assert_int_equal(port.lid, 17);
}

static void ports_that_cannot_serve_are_passed_over(void **state) {
    struct rdma_port port;
    fake_verbs.n_ports = 3;
    fake_verbs.ports[0] = fake_verbs.ports[1] = fake_verbs.ports[2] = good;
    fake_verbs.ports[0].device = "siw0";
    fake_verbs.ports[0].transport = IBV_TRANSPORT_IWARP;
    fake_verbs.ports[1].device = "mlx5_down";
    fake_verbs.ports[1].state = IBV_PORT_DOWN;
    assert_null(choose("", &port));
    assert_string_equal(port.name, "mlx5_0");
    expect_refusal("mlx5_down", STATUS_FAILED_PRECONDITION, "port 1 of mlx5_down is not active");
    expect_refusal("siw0", STATUS_FAILED_PRECONDITION,
                   "siw0 is iWARP, which has no WRITE WITH IMM");
    expect_refusal("mlx5_7", STATUS_FAILED_PRECONDITION, "no RDMA device mlx5_7 that serves");
    expect_refusal("mlx5_0:9", STATUS_FAILED_PRECONDITION, "port 9 of mlx5_0 cannot be queried");
    fake_verbs.n_ports = 0;
    expect_refusal("", STATUS_FAILED_PRECONDITION, "this host has no RDMA device that serves");
}

static void what_is_no_device_is_refused(void **state) {
    static const char *const bad[] = {"a:b",   "a:1:x",     "a:1:2:3", "a:0", "a:-1",
                                      "a:999", "a:1:70000", "a:",      "a:1:"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        expect_refusal(bad[i], STATUS_INVALID_ARGUMENT, "is not NAME[:PORT[:GID]]");
}

/* ---- addresses of peers ---- */

static void an_address_that_is_none_is_refused(void **state) {
    static const struct rdma_address right = {.qpn = 0x101,
                                              .psn = 5,
                                              .gid = {[10] = 0xff, 0xff, 10, 0, 0, 2},
                                              .mtu = IBV_MTU_4096,
                                              .is_ethernet = true,
                                              .max_message_bytes = 1 << 20};
    struct rdma_address bad[8];
    struct rdma_choice any = {.gid = -1};
    struct rdma_device *device;
    struct rdma_queue queue = {.is_failed = false};
    struct loop *loop = loop_new();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = right;
    bad[0].qpn = 1 << 24;
    bad[1].psn = 1 << 24;
    bad[2].mtu = 0;
    bad[3].mtu = 6;
    bad[4].max_message_bytes = 4095;
    memset(bad[5].gid, 0, 16);
    bad[6].is_ethernet = false;
    bad[7].mtu = 1u << 31;
    assert_null(rdma_device_open(loop, &fake_verbs_table, &any, &device));
    assert_null(rdma_queue_open(&queue, device, device->send_pd, RDMA_SENDS));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct status *st = rdma_queue_connect(&queue, &bad[i]);
        assert_int_equal(status_code(st),
                         i == 6 ? STATUS_FAILED_PRECONDITION : STATUS_INVALID_ARGUMENT);
        status_unref(st);
    }
    assert_null(rdma_queue_connect(&queue, &right));
    assert_int_equal(queue.max_message_bytes, 1 << 20);
    rdma_queue_close(&queue);
    rdma_device_close(device);
    loop_end(loop);
}

/* ---- registered memory ---- */

enum { PIECE = 1 << 20 };

static struct ibv_pd *pd;
static struct rdma_regions *regions;

static void begin(int64_t max_bytes) {
    pd = fake_verbs_table.alloc_pd(NULL);
    regions = rdma_regions_new(&fake_verbs_table, pd, max_bytes);
}
static void end(void) {
    rdma_regions_free(regions);
    assert_int_equal(fake_verbs.n_regions, 0);
    fake_verbs_table.dealloc_pd(pd);
}

/* Blocks of the arena are recycled in every build. */
static struct buffer *recycled(size_t size_bytes) {
    struct buffer *buffer = buffer_alloc(allocator_host_shared(allocator_host()), size_bytes);
    assert_true(buffer_is_recycled(buffer));
    return buffer;
}

static void add(const struct buffer *buffer, size_t offset, size_t size_bytes) {
    struct rdma_region *region;
    assert_null(rdma_regions_add(regions, buffer, buffer->data + offset, size_bytes, &region));
    rdma_region_release(region);
}

static bool has(const struct buffer *buffer, size_t offset, size_t size_bytes) {
    struct rdma_region *region = rdma_regions_find(regions, buffer->data + offset, size_bytes);
    rdma_region_release(region);
    return region != NULL;
}

static void a_region_serves_what_lies_inside_it(void **state) {
    struct buffer *buffer = recycled(PIECE);
    begin(64 * PIECE);
    add(buffer, 4096, 8192);
    assert_true(has(buffer, 4096, 8192) && has(buffer, 5000, 100));
    assert_false(has(buffer, 4095, 10) || has(buffer, 4096, 8193) || has(buffer, 12287, 2) ||
                 has(buffer, 0, 1));
    buffer_unref(buffer);
    end();
}

static void the_least_recently_used_go_first_and_none_in_use(void **state) {
    struct buffer *buffers[4];
    struct rdma_region *used;
    for (int i = 0; i < 4; i++)
        buffers[i] = recycled(PIECE);
    begin(2 * PIECE);
    assert_null(rdma_regions_add(regions, buffers[0], buffers[0]->data, PIECE, &used));
    add(buffers[1], 0, PIECE);
    assert_true(has(buffers[1], 0, PIECE));
    add(buffers[2], 0, PIECE);
    assert_true(has(buffers[0], 0, PIECE) && has(buffers[2], 0, PIECE));
    assert_false(has(buffers[1], 0, PIECE));
    rdma_region_release(used);
    add(buffers[3], 0, PIECE);
    assert_int_equal(fake_verbs.n_regions, 2);
    assert_true(has(buffers[3], 0, PIECE));
    for (int i = 0; i < 4; i++)
        buffer_unref(buffers[i]);
    end();
}

static void memory_of_others_is_registered_for_one_use(void **state) {
    static char memory[PIECE];
    struct buffer *buffer = buffer_wrap(memory, sizeof(memory), NULL, NULL);
    begin(64 * PIECE);
    add(buffer, 0, PIECE);
    assert_int_equal(fake_verbs.n_regions, 0);
    assert_false(has(buffer, 0, PIECE));
    buffer_unref(buffer);
    end();
}

static void what_the_allocator_gives_back_is_withdrawn(void **state) {
    struct buffer *kept = recycled(PIECE), *gone = recycled(4 * PIECE);
    begin(64 * PIECE);
    add(kept, 0, PIECE);
    add(gone, 0, PIECE);
    add(gone, 2 * PIECE, PIECE);
    buffer_unref(gone);
    allocator_host_trim();
    assert_int_equal(fake_verbs.n_regions, 1);
    assert_true(has(kept, 0, PIECE));
    buffer_unref(kept);
    end();
}

static void a_devices_own_memory_is_not_there_yet(void **state) {
    struct rdma_memory memory = {RDMA_MEMORY_DEVICE, NULL, 4096};
    struct ibv_mr *mr;
    begin(PIECE);
    struct status *st = rdma_register(&fake_verbs_table, pd, &memory, RDMA_READ_HERE, &mr);
    assert_int_equal(status_code(st), STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(status_message(st), "dmabuf"));
    status_unref(st);
    end();
}

static void a_refused_registration_names_the_limit(void **state) {
    struct buffer *buffer = buffer_alloc(allocator_host(), PIECE);
    struct rdma_region *region;
    begin(PIECE);
    fake_verbs.n_sources_to_fail = 1;
    struct status *st = rdma_regions_add(regions, buffer, buffer->data, PIECE, &region);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(status_message(st), "ulimit -l"));
    status_unref(st);
    buffer_unref(buffer);
    end();
}

static struct shm_arena *arena;

static int make_arena(void **state) {
    struct status *st = shm_arena_new(0, &arena);
    CHECK(!st);
    allocator_host_set_arena(arena);
    return 0;
}

static int drop_arena(void **state) {
    allocator_host_set_arena(NULL);
    shm_arena_free(arena);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_address_is_chosen_by_content),
        TEST(infiniband_goes_by_its_lid),
        TEST(ports_that_cannot_serve_are_passed_over),
        TEST(what_is_no_device_is_refused),
        TEST(an_address_that_is_none_is_refused),
        TEST(a_region_serves_what_lies_inside_it),
        TEST(the_least_recently_used_go_first_and_none_in_use),
        TEST(memory_of_others_is_registered_for_one_use),
        TEST(what_the_allocator_gives_back_is_withdrawn),
        TEST(a_devices_own_memory_is_not_there_yet),
        TEST(a_refused_registration_names_the_limit),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
