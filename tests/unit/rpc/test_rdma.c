/* Which RDMA device is taken, and the memory that is kept registered. The lines themselves:
 * tests/unit/worker/test_peer_rdma.c. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/tensor/release.h"
#include "common/tensor/shm_arena.h"
#include "rpc/rdma/rdma_in.h"
#include "tests/unit/rpc/fake_verbs.h"
#include "tests/unit/rpc/loop_until.h"
#include "tests/unit/rpc/rdma_line.h"

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

/* ---- the memory of devices ---- */

/* A device whose memory is a file. Its addresses are closed to the host, as a GPU's are. */
enum { STEP = 64 << 10, N_STEPS = 8 };

static struct memory_device {
    struct rdma_exporter exporter;
    struct allocator allocator;
    int file;
    char *addresses;
    int n_opened, n_flushed;
    struct status *why_not; /* opening fails */
} memory;

static void memory_widen(struct rdma_exporter *exporter, const struct buffer *buffer,
                         const char **data, size_t *size_bytes) {
    size_t begin = (size_t)(*data - memory.addresses) / STEP * STEP,
           end = ((size_t)(*data - memory.addresses) + *size_bytes + STEP - 1) / STEP * STEP;
    *data = memory.addresses + begin;
    *size_bytes = end - begin;
}

static struct status *memory_open(struct rdma_exporter *exporter, const struct buffer *buffer,
                                  const char *data, size_t size_bytes, enum rdma_right right,
                                  struct rdma_dmabuf *ret) {
    char path[64];
    memory.n_opened++;
    if (memory.why_not)
        return status_ref(memory.why_not);
    memory_widen(exporter, buffer, &data, &size_bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", memory.file);
    *ret = (struct rdma_dmabuf){.fd = open(path, O_RDWR | O_CLOEXEC), .start = data};
    assert_true(ret->fd >= 0);
    assert_int_equal(lseek(ret->fd, data - memory.addresses, SEEK_SET), data - memory.addresses);
    return NULL;
}

static void memory_flush(struct rdma_exporter *exporter, const struct buffer *buffer) {
    memory.n_flushed++;
    fake_verbs_flush_writes();
}

static int setup_memory(void **state) {
    fake_verbs_reset();
    memory = (struct memory_device){
        .exporter = {.widen = memory_widen, .open = memory_open, .flush = memory_flush},
        .allocator = {.name = "memory device"},
        .file = memfd_create("memory", MFD_CLOEXEC)};
    assert_int_equal(ftruncate(memory.file, N_STEPS * STEP), 0);
    memory.addresses =
        mmap(NULL, N_STEPS * STEP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory.addresses, MAP_FAILED);
    return 0;
}

static int teardown_memory(void **state) {
    rdma_exporter_fini(&memory.exporter);
    status_unref(memory.why_not);
    munmap(memory.addresses, N_STEPS * STEP);
    close(memory.file);
    return 0;
}

/* The test's record, which outlives all uses. */
static struct buffer *of_memory(struct buffer *record, size_t offset, size_t size_bytes) {
    *record = (struct buffer){.flags = BUFFER_IS_DEVICE,
                              .size_bytes = size_bytes,
                              .data = memory.addresses + offset,
                              .allocator = &memory.allocator};
    atomic_init(&record->n_refs, 1);
    return record;
}

static void fill(const struct buffer *buffer, unsigned seed) {
    char *bytes = malloc(buffer->size_bytes);
    for (size_t i = 0; i < buffer->size_bytes; i++)
        bytes[i] = (char)(i * 31 + seed);
    assert_int_equal(
        pwrite(memory.file, bytes, buffer->size_bytes, buffer->data - memory.addresses),
        buffer->size_bytes);
    free(bytes);
}

static bool holds(const struct buffer *buffer, unsigned seed) {
    char *bytes = malloc(buffer->size_bytes);
    bool is_equal = true;
    assert_int_equal(pread(memory.file, bytes, buffer->size_bytes, buffer->data - memory.addresses),
                     buffer->size_bytes);
    for (size_t i = 0; i < buffer->size_bytes; i++)
        is_equal &= bytes[i] == (char)(i * 31 + seed);
    free(bytes);
    return is_equal;
}

/* Neither begins at a page, and both span pieces. What was written is there only once it is
 * flushed, and that is before the receiver hears of it. */
static void a_value_goes_from_device_memory_into_device_memory(void **state) {
    struct buffer from, to;
    struct rdma_line line;
    rdma_line_open(&line, &fake_verbs_table, &memory.exporter);
    of_memory(&from, STEP - 1000, STEP + 3000);
    of_memory(&to, 4 * STEP - 512, STEP + 3000);
    fill(&from, 1);
    assert_null(rdma_line_send(&line, &from, from.data, &to, from.size_bytes));
    assert_true(holds(&to, 1));
    assert_int_equal(memory.n_flushed, 1);
    assert_int_equal(fake_verbs.n_unflushed, 0);
    assert_int_equal(fake_verbs.n_regions, 1); /* of what is sent */
    rdma_line_close(&line);
    assert_int_equal(fake_verbs.n_regions, 0);
}

static void host_memory_is_not_flushed(void **state) {
    struct buffer from;
    struct buffer *to = buffer_alloc(allocator_host(), STEP);
    struct rdma_line line;
    rdma_line_open(&line, &fake_verbs_table, &memory.exporter);
    of_memory(&from, 0, STEP);
    fill(&from, 2);
    assert_null(rdma_line_send(&line, &from, from.data, to, STEP));
    assert_int_equal(to->data[77], (char)(77 * 31 + 2));
    assert_int_equal(memory.n_flushed, 0);
    rdma_line_close(&line);
    buffer_unref(to);
}

static void add_value(const struct buffer *buffer) { add(buffer, 0, buffer->size_bytes); }

static void values_of_a_piece_share_a_region_until_it_is_released(void **state) {
    struct buffer first, second, spanning;
    begin(64 * PIECE);
    rdma_regions_set_exporter(regions, &memory.exporter);
    of_memory(&first, 512, 1024);
    of_memory(&second, STEP - 512, 512);
    of_memory(&spanning, 2 * STEP - 512, 1024);
    add_value(&first);
    add_value(&second);
    assert_int_equal(fake_verbs.n_registered, 1);
    assert_true(has(&first, 0, 1024) && has(&second, 0, 512));
    assert_false(has(&spanning, 0, 1024));
    add_value(&spanning);
    assert_int_equal(fake_verbs.n_regions, 2);
    memory_announce_release(memory.addresses + 2 * STEP, STEP);
    assert_int_equal(fake_verbs.n_regions, 1);
    assert_true(has(&first, 0, 1024));
    memory_announce_release(memory.addresses, STEP);
    assert_int_equal(fake_verbs.n_regions, 0);
    end();
}

/* A region in use is unregistered after its last use, whatever becomes of the other pieces. */
static void a_region_in_use_outlives_the_announcement(void **state) {
    struct buffer spanning;
    struct rdma_region *region;
    begin(64 * PIECE);
    rdma_regions_set_exporter(regions, &memory.exporter);
    of_memory(&spanning, STEP - 512, 1024);
    assert_null(rdma_regions_add(regions, &spanning, spanning.data, 1024, &region));
    memory_announce_release(memory.addresses + STEP, STEP);
    assert_int_equal(fake_verbs.n_regions, 1);
    assert_false(has(&spanning, 0, 1024));
    rdma_region_release(region);
    assert_int_equal(fake_verbs.n_regions, 0);
    end();
}

static void expect_no_dmabuf(const struct verbs *verbs, struct rdma_exporter *exporter,
                             enum rdma_right right, const char *words) {
    struct buffer buffer;
    struct ibv_mr *mr;
    of_memory(&buffer, 0, 4096);
    struct rdma_memory bytes = rdma_memory_of(exporter, &buffer, buffer.data, 4096);
    assert_int_equal(bytes.kind, RDMA_MEMORY_DEVICE);
    struct status *st = rdma_register(verbs, pd, &bytes, right, &mr);
    assert_int_equal(status_code(st), STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(status_message(st), words));
    status_unref(st);
}

static void without_dmabuf_the_reason_is_told_and_not_asked_for_again(void **state) {
    struct verbs old = fake_verbs_table;
    old.reg_dmabuf_mr = NULL;
    begin(PIECE);
    expect_no_dmabuf(&fake_verbs_table, NULL, RDMA_READ_HERE, "no memory of devices is exported");
    expect_no_dmabuf(&old, &memory.exporter, RDMA_READ_HERE, "libibverbs is older");
    expect_no_dmabuf(&fake_verbs_table, &memory.exporter, RDMA_READ_HERE, "libibverbs is older");
    assert_int_equal(memory.n_opened, 0);
    fake_verbs.dmabuf_error = EOPNOTSUPP;
    expect_no_dmabuf(&fake_verbs_table, &memory.exporter, RDMA_WRITTEN_BY_PEER,
                     "the RDMA device takes no dmabuf");
    fake_verbs.dmabuf_error = 0;
    expect_no_dmabuf(&fake_verbs_table, &memory.exporter, RDMA_WRITTEN_BY_PEER,
                     "the RDMA device takes no dmabuf");
    assert_int_equal(memory.n_opened, 1);
    end();
}

static void what_the_driver_cannot_export_is_refused_to_the_peer(void **state) {
    struct buffer from, to;
    struct rdma_line line;
    of_memory(&from, 0, STEP);
    of_memory(&to, 4 * STEP, STEP);
    memory.why_not = status_unimplemented("a driver without dmabuf");
    rdma_line_open(&line, &fake_verbs_table, &memory.exporter);
    struct status *st = rdma_line_send(&line, &from, from.data, &to, STEP);
    assert_int_equal(status_code(st), STATUS_UNIMPLEMENTED);
    status_unref(st);
    rdma_line_close(&line);
}

static void another_failure_is_not_kept(void **state) {
    struct buffer buffer;
    struct rdma_region *region;
    begin(PIECE);
    rdma_regions_set_exporter(regions, &memory.exporter);
    of_memory(&buffer, 0, 4096);
    fake_verbs.dmabuf_error = ENOMEM;
    struct status *st = rdma_regions_add(regions, &buffer, buffer.data, 4096, &region);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(status_message(st), "of memory device for RDMA"));
    status_unref(st);
    fake_verbs.dmabuf_error = 0;
    add_value(&buffer);
    assert_int_equal(fake_verbs.n_regions, 1);
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
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, setup_memory, teardown_memory)

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
        TEST(a_refused_registration_names_the_limit),
        MEMORY_TEST(a_value_goes_from_device_memory_into_device_memory),
        MEMORY_TEST(host_memory_is_not_flushed),
        MEMORY_TEST(values_of_a_piece_share_a_region_until_it_is_released),
        MEMORY_TEST(a_region_in_use_outlives_the_announcement),
        MEMORY_TEST(without_dmabuf_the_reason_is_told_and_not_asked_for_again),
        MEMORY_TEST(what_the_driver_cannot_export_is_refused_to_the_peer),
        MEMORY_TEST(another_failure_is_not_kept),
    };
    return cmocka_run_group_tests(tests, make_arena, drop_arena);
}
