/* Saves that are interrupted by power cuts and failing disks: a checkpoint that was reported as
 * saved stays whole, whatever happens to the next one. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/io/bundle.h"
#include "common/io/slices_file.h"
#include "tests/unit/common/sim_fs.h"

enum {
    N_TENSORS = 3,
    N_ELEMENTS = 20000 /* larger than what a sink collects */,
    RANDOM_STATES = 100
};

static long n_states, n_failures;

static void expect_ok(struct status *st) {
    if (st)
        fail_msg("%s", status_message(st));
}

/* ---- contents: every element tells its checkpoint ---- */

static void make_tensor(int generation, int i, struct tensor *ret) {
    int64_t n = i == 0 ? 1 : N_ELEMENTS;
    expect_ok(tensor_new(allocator_host(), DT_INT32, (struct shape){i == 0 ? 0 : 1, &n}, ret));
    for (int64_t k = 0; k < n; k++)
        ((int32_t *)tensor_data(ret))[k] = generation * 1000003 + i * 1009 + (int32_t)k;
}

static void tensor_name(int part, int i, char *out, size_t len) {
    snprintf(out, len, "part%d/t%d", part, i);
}

/* Writes one checkpoint; stops at the first failure. */
static struct status *save(const struct file_system *fs, const char *prefix, int part,
                           int generation) {
    struct bundle_writer *writer = NULL;
    char name[32];
    TRY(bundle_writer_new(fs, prefix, &writer));
    struct status *st = NULL;
    for (int i = 0; !st && i < N_TENSORS; i++) {
        struct tensor t;
        make_tensor(generation, i, &t);
        tensor_name(part, i, name, sizeof(name));
        st = bundle_writer_add(writer, span_of(name), &t);
        tensor_clear(&t);
    }
    if (!st)
        st = bundle_writer_finish(writer);
    bundle_writer_free(writer);
    return st;
}

/* The generation that a checkpoint holds, all of its tensors alike; 0: there is none, -1: it is
 * damaged. */
static int generation_of(const struct file_system *fs, const char *prefix, int n_parts) {
    struct bundle_reader *reader = NULL;
    int generation = 0;
    struct status *st = bundle_reader_open(fs, prefix, &reader);
    if (status_code(st) == STATUS_NOT_FOUND) {
        status_unref(st);
        return 0;
    }
    struct arena arena;
    arena_init(&arena);
    for (int p = 0; !st && p < n_parts; p++)
        for (int i = 0; !st && i < N_TENSORS; i++) {
            struct bundle_entry entry;
            struct tensor t = TENSOR_INIT, expected;
            char name[32];
            tensor_name(p, i, name, sizeof(name));
            st = bundle_find(reader, span_of(name), &arena, &entry);
            if (!st)
                st = bundle_read(reader, span_of(name), &entry, allocator_host(), &t);
            if (st)
                break;
            int found = *(const int32_t *)tensor_cdata(&t) / 1000003;
            make_tensor(found, i, &expected);
            if ((generation != 0 && found != generation) || !tensor_equal(&t, &expected))
                st = status_internal("mixed");
            generation = found;
            tensor_clear(&t);
            tensor_clear(&expected);
        }
    arena_fini(&arena);
    bundle_reader_close(reader);
    if (st)
        print_message("%s\n", status_message(st));
    generation = st ? -1 : generation;
    status_unref(st);
    return generation;
}

/* ---- power cuts ---- */

/* What one state must show. */
typedef void check_fn(const struct file_system *fs, bool is_reported);

static void check_state(const struct sim_fs *sim, int n_settled, int k, bool is_reported,
                        struct sim_choice choice, check_fn *check) {
    struct sim_fs *state = sim_after_cut(sim, n_settled, k, choice);
    check(&state->fs, is_reported);
    assert_int_equal(sim_n_open(state), 0);
    sim_fs_free(state);
    n_states++;
}

/* Cuts power after each entry from n_settled on. The entry numbered n_reported is the first that
 * was made after the save was reported. */
static void cut_everywhere(const struct sim_fs *sim, int n_settled, int n_reported,
                           check_fn *check) {
    for (int k = n_settled; k <= sim->n_log; k++) {
        bool is_reported = k >= n_reported;
        check_state(sim, n_settled, k, is_reported, (struct sim_choice){.how = SIM_ALL}, check);
        check_state(sim, n_settled, k, is_reported, (struct sim_choice){.how = SIM_NONE}, check);
        for (int i = n_settled; i < k; i++) {
            if (!sim_is_open(sim, i, k))
                continue;
            check_state(sim, n_settled, k, is_reported,
                        (struct sim_choice){.how = SIM_ALL_BUT, .entry = i}, check);
            check_state(sim, n_settled, k, is_reported,
                        (struct sim_choice){.how = SIM_ONLY, .entry = i}, check);
        }
        for (int r = 0; r < RANDOM_STATES; r++)
            check_state(sim, n_settled, k, is_reported,
                        (struct sim_choice){.how = SIM_RANDOM, .seed = (uint64_t)(k * 1000 + r)},
                        check);
    }
}

static void check_replaced(const struct file_system *fs, bool is_reported) {
    int generation = generation_of(fs, "d/model", 1);
    assert_true(generation == 2 || (!is_reported && generation == 1));
}

static void test_overwriting_survives_any_cut(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(save(&sim->fs, "d/model", 0, 1));
    int n_settled = sim->n_log;
    expect_ok(save(&sim->fs, "d/model", 0, 2));
    cut_everywhere(sim, n_settled, sim->n_log, check_replaced);
    sim_fs_free(sim);
}

static void check_second(const struct file_system *fs, bool is_reported) {
    int generation = generation_of(fs, "d/model-2", 1);
    assert_int_equal(generation_of(fs, "d/model-1", 1), 1);
    assert_true(generation == 2 || (!is_reported && generation == 0));
}

static void test_a_new_name_survives_any_cut(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(save(&sim->fs, "d/model-1", 0, 1));
    int n_settled = sim->n_log;
    expect_ok(save(&sim->fs, "d/model-2", 0, 2));
    cut_everywhere(sim, n_settled, sim->n_log, check_second);
    sim_fs_free(sim);
}

static void check_third(const struct file_system *fs, bool is_reported) {
    int generation = generation_of(fs, "d/new/deeper/model", 1);
    assert_true(generation == 2 || (!is_reported && generation == 0));
}

static void test_new_directories_survive_any_cut(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(save(&sim->fs, "d/new/deeper/model", 0, 2));
    cut_everywhere(sim, 0, sim->n_log, check_third);
    sim_fs_free(sim);
}

/* Somebody else has made the directory and not synced it yet. */
static void test_a_directory_that_was_found_survives_any_cut(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(file_make_dirs(&sim->fs, "d/new"));
    assert_int_equal(sim->fs.make_dir(&sim->fs, "d/new/deeper"), 0);
    expect_ok(save(&sim->fs, "d/new/deeper/model", 0, 2));
    cut_everywhere(sim, 0, sim->n_log, check_third);
    sim_fs_free(sim);
}

/* The second save was reported; what the third does must not touch it until it takes its place. */
static void test_what_was_reported_stays_while_the_next_is_written(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(save(&sim->fs, "d/model", 0, 1));
    expect_ok(save(&sim->fs, "d/model", 0, 1));
    int n_settled = sim->n_log;
    expect_ok(save(&sim->fs, "d/model", 0, 2));
    cut_everywhere(sim, n_settled, sim->n_log, check_replaced);
    sim_fs_free(sim);
}

static struct status *save_sharded(const struct file_system *fs, int generation) {
    static const char *const parts[] = {"d/model_temp/part-00000-of-00002",
                                        "d/model_temp/part-00001-of-00002"};
    for (int i = 0; i < 2; i++)
        TRY(save(fs, parts[i], i, generation));
    return bundle_merge(fs, parts, 2, "d/model", false);
}

static void check_sharded(const struct file_system *fs, bool is_reported) {
    int generation = generation_of(fs, "d/model", 2);
    assert_true(generation == 2 || (!is_reported && generation == 1));
}

static void test_a_sharded_save_survives_any_cut(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(save_sharded(&sim->fs, 1));
    int n_settled = sim->n_log;
    expect_ok(save_sharded(&sim->fs, 2));
    cut_everywhere(sim, n_settled, sim->n_log, check_sharded);
    sim_fs_free(sim);
}

/* ---- the older format ---- */

static struct status *save_v1(const struct file_system *fs, int generation) {
    struct slices_writer *writer = slices_writer_new(fs, "d/old");
    struct arena arena;
    struct status *st = NULL;
    arena_init(&arena);
    for (int i = 0; !st && i < N_TENSORS; i++) {
        struct tensor t;
        char name[32];
        make_tensor(generation, i, &t);
        tensor_name(0, i, name, sizeof(name));
        struct tensor_slice all = tensor_slice_all(t.rank, &arena);
        st = slices_writer_add(writer, span_of(name), tensor_shape(&t), &all, &t);
        tensor_clear(&t);
    }
    if (!st)
        st = slices_writer_finish(writer);
    slices_writer_free(writer);
    arena_fini(&arena);
    return st;
}

static int generation_of_v1(const struct file_system *fs) {
    struct slices_reader *reader = NULL;
    char path[] = "d/old", *paths[] = {path};
    struct tensor t = TENSOR_INIT;
    struct arena arena;
    arena_init(&arena);
    expect_ok(slices_reader_open(fs, paths, 1, &reader));
    const struct slices_tensor *tensor = slices_reader_find(reader, span_of("part0/t2"));
    assert_non_null(tensor);
    struct tensor_slice all = tensor_slice_all(1, &arena);
    expect_ok(slices_reader_read(reader, tensor, &all, allocator_host(), &t));
    int generation = *(const int32_t *)tensor_cdata(&t) / 1000003;
    tensor_clear(&t);
    slices_reader_close(reader);
    arena_fini(&arena);
    return generation;
}

static void check_v1(const struct file_system *fs, bool is_reported) {
    int generation = generation_of_v1(fs);
    assert_true(generation == 2 || (!is_reported && generation == 1));
}

static void test_the_older_format_survives_any_cut(void **state) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(save_v1(&sim->fs, 1));
    int n_settled = sim->n_log;
    expect_ok(save_v1(&sim->fs, 2));
    cut_everywhere(sim, n_settled, sim->n_log, check_v1);
    sim_fs_free(sim);
}

static void test_enough_states_were_seen(void **state) {
    print_message("%ld states after a power cut\n", n_states);
    assert_true(n_states >= 5000);
}

/* ---- failing calls ---- */

static int count_names(const struct sim_fs *sim, const char *part) {
    int n = 0;
    for (int i = 0; sim_name_at(sim, i); i++)
        n += strstr(sim_name_at(sim, i), part) != NULL;
    return n;
}

/* Nothing under a final name but the checkpoint, its data, and nothing half-written when the
 * disk works again. */
static void check_files(const struct sim_fs *sim, bool is_once, int n_data) {
    if (!is_once) /* a disk that stays broken refuses to remove files, too */
        return;
    if (count_names(sim, ".tmp-") > 1)
        for (int i = 0; sim_name_at(sim, i); i++)
            print_message("  %s\n", sim_name_at(sim, i));
    assert_true(count_names(sim, ".tmp-") <= 1); /* one when the failing call was its removal */
    assert_true(count_names(sim, ".data-0") <= 2 * n_data);
}

struct attempt {
    struct status *(*run)(const struct file_system *fs, int generation);
    int (*generation)(const struct file_system *fs);
    int n_data;
};

static struct status *run_plain(const struct file_system *fs, int generation) {
    return save(fs, "d/model", 0, generation);
}
static int plain_generation(const struct file_system *fs) {
    return generation_of(fs, "d/model", 1);
}
static int sharded_generation(const struct file_system *fs) {
    return generation_of(fs, "d/model", 2);
}

/* Fails the call numbered `at` of the second save; false when the save made fewer. */
static bool fail_at(const struct attempt *attempt, int at, int error, bool is_once, bool is_short) {
    struct sim_fs *sim = sim_fs_new();
    expect_ok(attempt->run(&sim->fs, 1));
    sim->fail_after = at;
    sim->fail_error = error;
    sim->fail_once = is_once;
    sim->short_once = is_short;
    struct status *st = attempt->run(&sim->fs, 2);
    bool was_reached = sim->fail_after <= 0 && (sim->fail_after < 0 || !is_once);
    if (sim->fail_after > 0)
        was_reached = false;
    sim->fail_after = -1;
    assert_int_equal(sim_n_open(sim), 0);
    int generation = attempt->generation(&sim->fs);
    /* A failure after the rename of the index leaves the new one, whole. */
    assert_true(st ? generation == 1 || generation == 2 : generation == 2);
    if (was_reached) {
        check_files(sim, is_once, attempt->n_data);
        n_failures++;
    }
    if (status_code(st) != STATUS_OK)
        assert_true(strlen(status_message(st)) > 0);
    status_unref(st);
    /* The next save works, and cleans up what may be left of data. */
    expect_ok(attempt->run(&sim->fs, 2));
    assert_int_equal(attempt->generation(&sim->fs), 2);
    if (attempt->n_data > 0)
        assert_int_equal(count_names(sim, "d/model.data-0"), attempt->n_data);
    sim_fs_free(sim);
    return was_reached;
}

static void fail_everywhere(const struct attempt *attempt) {
    static const int errors[] = {ENOSPC, EIO, EDQUOT};
    for (size_t e = 0; e < ARRAY_LEN(errors); e++)
        for (int once = 0; once < 2; once++)
            for (int at = 0; fail_at(attempt, at, errors[e], once, false); at++) {
            }
    for (int at = 0; fail_at(attempt, at, EIO, true, true); at++) {
    }
}

static void test_every_failing_call_leaves_the_checkpoint_before(void **state) {
    static const struct attempt plain = {run_plain, plain_generation, 1},
                                sharded = {save_sharded, sharded_generation, 2},
                                v1 = {save_v1, generation_of_v1, 0};
    fail_everywhere(&plain);
    fail_everywhere(&sharded);
    fail_everywhere(&v1);
    print_message("%ld failing calls\n", n_failures);
    assert_true(n_failures > 300);
}

static void test_errors_have_their_codes(void **state) {
    struct sim_fs *sim = sim_fs_new();
    sim->fail_after = 0;
    sim->fail_error = ENOSPC;
    struct status *st = save(&sim->fs, "d/model", 0, 1);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(status_message(st), "d/model"));
    assert_non_null(strstr(status_message(st), "No space left"));
    status_unref(st);
    assert_null(sim_name_at(sim, 0));
    sim_fs_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overwriting_survives_any_cut),
        cmocka_unit_test(test_a_new_name_survives_any_cut),
        cmocka_unit_test(test_new_directories_survive_any_cut),
        cmocka_unit_test(test_a_directory_that_was_found_survives_any_cut),
        cmocka_unit_test(test_what_was_reported_stays_while_the_next_is_written),
        cmocka_unit_test(test_a_sharded_save_survives_any_cut),
        cmocka_unit_test(test_the_older_format_survives_any_cut),
        cmocka_unit_test(test_enough_states_were_seen),
        cmocka_unit_test(test_every_failing_call_leaves_the_checkpoint_before),
        cmocka_unit_test(test_errors_have_their_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
