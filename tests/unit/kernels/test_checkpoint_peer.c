/* What a task replies about its checkpoint files, and which requests it refuses
 * (kernels/host/files/checkpoint_peer.h). */
#include "kernels/host/files/checkpoint_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/io/crc32c.h"
#include "common/io/file_root.h"
#include "common/tensor/tensor_proto.h"

static char base[] = "/tmp/millrace-peer-XXXXXX";
static char root[128], outside[128];

static void write_bundle(const char *prefix) {
    struct bundle_writer *writer = NULL;
    struct tensor t = TENSOR_INIT;
    int64_t dims[] = {1000};
    assert_null(tensor_new(allocator_host(), DT_INT32, (struct shape){1, dims}, &t));
    for (int i = 0; i < 1000; i++)
        ((int32_t *)tensor_data(&t))[i] = i;
    assert_null(bundle_writer_new(&file_system_posix, prefix, &writer));
    assert_null(bundle_writer_add(writer, span_of("v"), &t));
    assert_null(bundle_writer_finish(writer));
    bundle_writer_free(writer);
    tensor_clear(&t);
}

static const char *in(const char *dir, const char *name) {
    static char text[4][256];
    static int next;
    char *ret = text[next++ % 4];
    snprintf(ret, sizeof(text[0]), "%s/%s", dir, name);
    return ret;
}

static enum status_code ask(const struct checkpoint_request *call, struct peer_reply *ret) {
    struct str request = STR_INIT;
    *ret = (struct peer_reply){.bytes = STR_INIT};
    checkpoint_request_print(call, &request);
    struct status *st = checkpoint_serve((struct span){str_text(&request), request.len}, ret);
    enum status_code code = status_code(st);
    status_unref(st);
    str_fini(&request);
    return code;
}

static void answer_fini(struct peer_reply *answer) {
    str_fini(&answer->bytes);
    buffer_unref(answer->payload);
}

static enum status_code look(const char *prefix, struct checkpoint_listing *ret) {
    struct peer_reply answer;
    enum status_code code = ask(&(struct checkpoint_request){.kind = CHECKPOINT_LOOK,
                                                             .prefix = span_of(prefix),
                                                             .shard = INDEX_SHARD},
                                &answer);
    *ret = (struct checkpoint_listing){0};
    if (code == STATUS_OK)
        assert_null(checkpoint_listing_parse(
            (struct span){str_text(&answer.bytes), answer.bytes.len}, ret));
    answer_fini(&answer);
    return code;
}

static enum status_code read_some(const char *prefix, const struct checkpoint_file *file,
                                  uint64_t offset, uint64_t n, struct peer_reply *ret) {
    return ask(&(struct checkpoint_request){.kind = CHECKPOINT_READ,
                                            .prefix = span_of(prefix),
                                            .shard = file->shard,
                                            .n_shards = file->n_shards,
                                            .offset = offset,
                                            .n = n,
                                            .identity = file->identity},
               ret);
}

static enum status_code remove_it(const char *prefix) {
    struct peer_reply answer;
    enum status_code code = ask(&(struct checkpoint_request){.kind = CHECKPOINT_REMOVE,
                                                             .prefix = span_of(prefix),
                                                             .removes_dir = true},
                                &answer);
    answer_fini(&answer);
    return code;
}

static void test_finds_and_reads(void **state) {
    const char *prefix = in(root, "here/model");
    struct checkpoint_listing found;
    struct peer_reply answer;
    write_bundle(prefix);
    assert_int_equal(look(prefix, &found), STATUS_OK);
    assert_true(found.is_there);
    assert_int_equal(found.n_shards, 1);
    assert_int_equal(found.shards[0].size_bytes, 4000);
    assert_int_equal(read_some(prefix, &found.shards[0], 400, 8, &answer), STATUS_OK);
    assert_int_equal(answer.payload_bytes, 8);
    assert_int_equal(((const int32_t *)(const void *)answer.payload->data)[1], 101);
    struct span in_answer = {answer.bytes.data, answer.bytes.len};
    struct proto_field field;
    assert_int_equal(proto_next(&in_answer, &field), 1);
    assert_int_equal((uint32_t)field.value, crc32c(answer.payload->data, 8));
    answer_fini(&answer);
    assert_int_equal(read_some(prefix, &found.index, 0, (uint64_t)found.index.size_bytes, &answer),
                     STATUS_OK);
    answer_fini(&answer);
    assert_int_equal(read_some(prefix, &found.shards[0], 3999, 2, &answer), STATUS_OUT_OF_RANGE);
    answer_fini(&answer);
    assert_int_equal(read_some(prefix, &found.shards[0], 1ull << 61, 2, &answer),
                     STATUS_OUT_OF_RANGE);
    answer_fini(&answer);
    assert_int_equal(read_some(prefix, &found.shards[0], 0, STREAM_PIECE_BYTES + 1, &answer),
                     STATUS_INVALID_ARGUMENT);
    answer_fini(&answer);
    checkpoint_listing_fini(&found);
    assert_int_equal(look(in(root, "here/none"), &found), STATUS_OK);
    assert_false(found.is_there);
    checkpoint_listing_fini(&found);
}

static void test_tells_a_file_that_was_replaced(void **state) {
    const char *prefix = in(root, "twice/model");
    struct checkpoint_listing found;
    struct peer_reply answer;
    write_bundle(prefix);
    assert_int_equal(look(prefix, &found), STATUS_OK);
    write_bundle(prefix);
    assert_int_equal(read_some(prefix, &found.index, 0, 10, &answer), STATUS_ABORTED);
    answer_fini(&answer);
    checkpoint_listing_fini(&found);
}

static void test_leaves_the_roots_to_nobody(void **state) {
    struct checkpoint_listing found;
    struct peer_reply answer;
    struct checkpoint_file file = {.shard = 0, .n_shards = 1};
    char dots[256];
    snprintf(dots, sizeof(dots), "%s/here/../../outside/model", root);
    write_bundle(in(outside, "model"));
    assert_int_equal(symlink(outside, in(root, "link")), 0);
    mkdir(in(root, "odd"), 0755);
    assert_int_equal(symlink(in(outside, "model.index"), in(root, "odd/m.index")), 0);
    assert_int_equal(
        symlink(in(outside, "model.data-00000-of-00001"), in(root, "odd/m.data-00000-of-00001")),
        0);
    const char *const denied[] = {in(outside, "model"), dots, in(root, "link/model"),
                                  "/etc/passwd"};
    for (size_t i = 0; i < ARRAY_LEN(denied); i++) {
        assert_int_equal(look(denied[i], &found), STATUS_PERMISSION_DENIED);
        assert_int_equal(read_some(denied[i], &file, 0, 1, &answer), STATUS_PERMISSION_DENIED);
        answer_fini(&answer);
        assert_int_equal(remove_it(denied[i]), STATUS_PERMISSION_DENIED);
    }
    /* The prefix lies below a root, and its files are links to elsewhere. */
    assert_int_equal(look(in(root, "odd/m"), &found), STATUS_OK);
    /* the link's own */
    assert_int_equal(found.index.size_bytes, strlen(in(outside, "model.index")));
    assert_int_equal(found.n_shards, 1);
    assert_int_equal(found.shards[0].size_bytes, strlen(in(outside, "model.data-00000-of-00001")));
    checkpoint_listing_fini(&found);
    assert_int_equal(read_some(in(root, "odd/m"), &file, 0, 1, &answer), STATUS_PERMISSION_DENIED);
    answer_fini(&answer);
    assert_int_equal(mkfifo(in(root, "odd/f.data-00000-of-00001"), 0600), 0);
    assert_int_equal(read_some(in(root, "odd/f"), &file, 0, 1, &answer), STATUS_PERMISSION_DENIED);
    answer_fini(&answer);
}

static void test_removes_only_what_it_has_saved(void **state) {
    const char *prefix = in(root, "temp/part");
    write_bundle(prefix);
    assert_int_equal(remove_it(prefix), STATUS_PERMISSION_DENIED);
    checkpoint_note_saved(prefix);
    write_bundle(prefix); /* somebody else's now */
    assert_int_equal(remove_it(prefix), STATUS_PERMISSION_DENIED);
    checkpoint_note_saved(prefix);
    assert_int_equal(remove_it(prefix), STATUS_OK);
    assert_int_equal(access(in(root, "temp"), F_OK), -1);
    write_bundle(prefix);
    assert_int_equal(remove_it(prefix), STATUS_PERMISSION_DENIED);
}

static void test_strangers_bytes(void **state) {
    struct str text = STR_INIT;
    struct checkpoint_file shards[3] = {{0, 3, 10, 5}, {1, 3, 1 << 30, 6}, {2, 3, 0, 7}};
    struct checkpoint_listing found = {.is_there = true,
                                       .index = {.size_bytes = 99, .identity = 1},
                                       .changed_ns = 3,
                                       .shards = shards,
                                       .n_shards = 3};
    uint64_t seed = 7;
    checkpoint_listing_print(&found, &text);
    checkpoint_request_print(
        &(struct checkpoint_request){
            .kind = CHECKPOINT_READ, .prefix = span_of("model"), .shard = 3, .n_shards = 9, .n = 5},
        &text);
    for (int round = 0; round < 100000; round++) {
        struct checkpoint_request call;
        struct checkpoint_listing parsed;
        char bytes[256];
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        size_t n = (size_t)(seed >> 33) % (text.len + 1);
        memcpy(bytes, text.data, n);
        for (int k = 0; k < 3 && n > 0; k++) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            bytes[(seed >> 33) % n] = (char)(seed >> 50);
        }
        status_unref(checkpoint_request_parse((struct span){bytes, n}, &call));
        status_unref(checkpoint_listing_parse((struct span){bytes, n}, &parsed));
        assert_true(parsed.n_shards <= LISTING_MAX_SHARDS);
        checkpoint_listing_fini(&parsed);
    }
    str_fini(&text);
}

static int set_up(void **state) {
    assert_non_null(mkdtemp(base));
    snprintf(root, sizeof(root), "%s/root", base);
    snprintf(outside, sizeof(outside), "%s/outside", base);
    mkdir(root, 0755);
    mkdir(outside, 0755);
    const char *roots[] = {root};
    assert_null(file_roots_set(roots, 1));
    return 0;
}

static int tear_down(void **state) {
    char command[256];
    snprintf(command, sizeof(command), "rm -r %s", base);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_and_reads),
        cmocka_unit_test(test_tells_a_file_that_was_replaced),
        cmocka_unit_test(test_leaves_the_roots_to_nobody),
        cmocka_unit_test(test_removes_only_what_it_has_saved),
        cmocka_unit_test(test_strangers_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
