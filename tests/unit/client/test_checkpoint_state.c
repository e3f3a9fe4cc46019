/* The file `checkpoint`: its text, power cuts while it is replaced, and failing disks. */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "client/training/checkpoint_state.h"
#include "tests/unit/common/sim_fs.h"

enum { RANDOM_STATES = 50 };

static void expect_ok(struct status *st) {
    if (st)
        fail_msg("%s", status_message(st));
}

/* A checkpoint whose index is on the disk. */
static void add_index(const struct file_system *fs, const char *name) {
    struct file_sink sink = FILE_SINK_INIT;
    expect_ok(file_sink_open(&sink, fs, name));
    expect_ok(file_sink_finish(&sink));
    file_sink_fini(&sink);
    expect_ok(file_sync_dir_of(fs, name));
}

static char *paths[] = {"d/model-1", "d/model-2"};

static struct sim_fs *two_checkpoints(void) {
    struct sim_fs *sim = sim_fs_new();
    add_index(&sim->fs, "d/model-1.index");
    add_index(&sim->fs, "d/model-2.index");
    expect_ok(checkpoint_state_write(&sim->fs, paths, 1));
    return sim;
}

/* Returns the number of the latest checkpoint. */
static int latest(const struct file_system *fs) {
    struct str path = STR_INIT;
    int number = 0;
    assert_true(checkpoint_state_read(fs, "d", &path));
    assert_int_equal(sscanf(str_text(&path), "d/model-%d", &number), 1);
    str_fini(&path);
    return number;
}

static void check_state(const struct sim_fs *sim, int n_settled, int k, struct sim_choice choice) {
    struct sim_fs *state = sim_after_cut(sim, n_settled, k, choice);
    int number = latest(&state->fs);
    assert_true(number == 2 || (number == 1 && k < sim->n_log));
    sim_fs_free(state);
}

static void any_cut_leaves_the_old_state_or_the_new_one(void **state) {
    struct sim_fs *sim = two_checkpoints();
    int n_settled = sim->n_log;
    expect_ok(checkpoint_state_write(&sim->fs, paths, 2));
    for (int k = n_settled; k <= sim->n_log; k++) {
        check_state(sim, n_settled, k, (struct sim_choice){.how = SIM_ALL});
        check_state(sim, n_settled, k, (struct sim_choice){.how = SIM_NONE});
        for (int i = n_settled; i < k; i++) {
            if (!sim_is_open(sim, i, k))
                continue;
            check_state(sim, n_settled, k, (struct sim_choice){.how = SIM_ALL_BUT, .entry = i});
            check_state(sim, n_settled, k, (struct sim_choice){.how = SIM_ONLY, .entry = i});
        }
        for (int r = 0; r < RANDOM_STATES; r++)
            check_state(sim, n_settled, k,
                        (struct sim_choice){.how = SIM_RANDOM, .seed = (uint64_t)r});
    }
    sim_fs_free(sim);
}

static void a_failing_disk_is_reported_and_the_old_state_stays(void **state) {
    int n_failures = 0;
    for (int after = 1;; after++) { /* the first call may fail: nothing to remove */
        struct sim_fs *sim = two_checkpoints();
        sim->fail_after = after;
        sim->fail_error = 5; /* EIO */
        sim->fail_once = true;
        struct status *st = checkpoint_state_write(&sim->fs, paths, 2);
        sim->fail_after = -1;
        int number = latest(&sim->fs);
        assert_true(number == 2 || (st && number == 1));
        assert_int_equal(sim_n_open(sim), 0);
        bool is_done = !st;
        n_failures += !is_done;
        status_unref(st);
        sim_fs_free(sim);
        if (is_done)
            break;
    }
    assert_true(n_failures >= 6); /* open, write, sync, close, rename and the folder's sync */
}

static void a_state_without_an_index_names_nothing(void **state) {
    struct sim_fs *sim = two_checkpoints();
    struct str path = STR_INIT;
    assert_int_equal(latest(&sim->fs), 1);
    assert_int_equal(sim->fs.unlink(&sim->fs, "d/model-1.index"), 0);
    assert_false(checkpoint_state_read(&sim->fs, "d", &path));
    assert_int_equal(path.len, 0);
    str_fini(&path);
    sim_fs_free(sim);
}

static void only_the_files_of_a_checkpoint_are_deleted(void **state) {
    struct sim_fs *sim = two_checkpoints();
    add_index(&sim->fs, "d/model-1.data-00000-of-00002");
    add_index(&sim->fs, "d/model-1.data-00001-of-00002");
    add_index(&sim->fs, "d/model-10.index");
    checkpoint_delete(&sim->fs, "d/model-1");
    for (int i = 0; sim_name_at(sim, i); i++)
        assert_null(strstr(sim_name_at(sim, i), "model-1."));
    assert_int_equal(sim->n_names, 3); /* the state and the indices of 2 and 10 */
    sim_fs_free(sim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_leaves_the_old_state_or_the_new_one),
        cmocka_unit_test(a_failing_disk_is_reported_and_the_old_state_stays),
        cmocka_unit_test(a_state_without_an_index_names_nothing),
        cmocka_unit_test(only_the_files_of_a_checkpoint_are_deleted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
