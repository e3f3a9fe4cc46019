/* A dataset that is kept in a file: which iterator writes, which ones read, what an iterator that
 * is freed too early leaves, and files that do not fit. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/io/file_root.h"
#include "common/io/file_system.h"
#include "kernels/host/data/dataset_cache.h"
#include "tests/unit/kernels/kernel_test.h"

enum { MAX_COMPONENTS = 11 };

static char dir[] = "/tmp/millrace-cache-XXXXXX";

static int set_up(void **state) {
    if (!mkdtemp(dir))
        return -1;
    const char *const roots[] = {dir};
    struct status *st = file_roots_set(roots, 1);
    status_unref(st);
    return st ? -1 : 0;
}

/* ---- the input: n elements of int64, component c of element e is 100 * e + c ---- */

struct counting {
    struct dataset base;
    int64_t n;
};
struct counting_iter {
    struct dataset_iter iter;
    int64_t at;
};

static enum data_poll count(struct dataset_iter *iter, struct data_task *task, struct tensor *out) {
    struct counting_iter *self = (struct counting_iter *)iter;
    if (self->at == ((const struct counting *)iter->dataset)->n)
        return DATA_END;
    for (int c = 0; c < iter->dataset->n_components; c++)
        tensor_init_scalar_i64(&out[c], 100 * self->at + c);
    self->at++;
    return DATA_ELEMENT;
}

static const struct dataset_kind counting_kind = {.name = "Counting",
                                                  .dataset_size = sizeof(struct counting),
                                                  .iter_size = sizeof(struct counting_iter),
                                                  .next = count};

/* ---- an iterator over what CacheDataset makes of it ---- */

struct fixture {
    struct pool *io;
    struct dataset_env *env;
    struct dataset *cached;
    struct dataset_iter *iter;
};

static struct pool *io_of_fixture;
static struct pool *io_pool(struct kernel_ctx *ctx) { return io_of_fixture; }

static void fixture_init(struct fixture *f, const char *name, int n_components, int64_t n) {
    static const struct kernel_instance plain = {.n_inputs = 1, .n_outputs = 1};
    struct kernel_instance instance = plain;
    struct kernel_host host = {.io_pool = io_pool};
    struct tensor input = TENSOR_INIT, output = TENSOR_INIT;
    uint8_t types[MAX_COMPONENTS];
    char prefix[128];
    instance.allocator = allocator_host();
    struct kernel_ctx ctx = {
        .inputs = &input, .outputs = &output, .instance = &instance, .host = &host};
    struct dataset *input_dataset = dataset_new_bare(&counting_kind, 1);
    memset(types, DT_INT64, sizeof(types));
    ((struct counting *)input_dataset)->n = n;
    dataset_set_components(input_dataset, n_components, types, NULL);
    tensor_init_scalar_object(&input, DT_VARIANT, &input_dataset->object);
    snprintf(prefix, sizeof(prefix), "%s/%s", dir, name);
    f->io = io_of_fixture = pool_new_io(2);
    assert_int_equal(dataset_cache_file(&ctx, span_of(prefix)), KERNEL_DONE);
    assert_null(dataset_of(&output, &f->cached));
    dataset_ref(f->cached);
    f->env = dataset_env_new(&ctx, f->cached);
    f->env->host = NULL; /* nothing here calls functions */
    assert_null(dataset_iter_new(f->cached, f->env, &f->iter));
    tensor_clear(&input);
    tensor_clear(&output);
}

/* The iterator goes; what it leaves to the I/O threads may still be on its way. */
static void leave(struct fixture *f) {
    dataset_iter_free(f->iter);
    f->iter = NULL;
}

static void fixture_fini(struct fixture *f) {
    leave(f);
    dataset_env_unref(f->env);
    dataset_unref(f->cached);
    pool_free(f->io);
}

/* ---- an element ---- */

struct pull {
    struct data_task task;
    struct dataset_iter *iter;
    struct tensor *out;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_ended;
    enum data_poll result;
};

static enum data_poll poll_pull(struct data_task *task) {
    struct pull *pull = CONTAINER_OF(task, struct pull, task);
    return dataset_iter_next(pull->iter, task, pull->out);
}

static void on_ended(struct data_task *task, enum data_poll result) {
    struct pull *pull = CONTAINER_OF(task, struct pull, task);
    pthread_mutex_lock(&pull->lock);
    pull->result = result;
    pull->has_ended = true;
    pthread_cond_broadcast(&pull->changed);
    pthread_mutex_unlock(&pull->lock);
}

static void pull_free(struct data_task *task) {
    struct pull *pull = CONTAINER_OF(task, struct pull, task);
    data_task_fini(task);
    pthread_mutex_destroy(&pull->lock);
    pthread_cond_destroy(&pull->changed);
    free(pull);
}

/* Component 0 of the next element; -1: the end; -2: it failed with *ret. */
static int64_t next(struct fixture *f, struct status **ret) {
    struct pull *pull = xcalloc(1, sizeof(*pull));
    int n = f->cached->n_components;
    data_task_init(&pull->task, NULL);
    pthread_mutex_init(&pull->lock, NULL);
    pthread_cond_init(&pull->changed, NULL);
    pull->task.poll = poll_pull;
    pull->task.ended = on_ended;
    pull->task.free = pull_free;
    pull->iter = f->iter;
    pull->out = element_new(n);
    data_task_wake(&pull->task);
    pthread_mutex_lock(&pull->lock);
    while (!pull->has_ended)
        pthread_cond_wait(&pull->changed, &pull->lock);
    pthread_mutex_unlock(&pull->lock);
    int64_t value = pull->result == DATA_END ? -1 : -2;
    if (pull->result == DATA_ELEMENT) {
        value = *(const int64_t *)tensor_cdata(&pull->out[0]);
        assert_int_equal(*(const int64_t *)tensor_cdata(&pull->out[n - 1]), value + n - 1);
    }
    *ret = status_ref(pull->task.status);
    element_free(pull->out, n);
    data_task_unref(&pull->task);
    return value;
}

static void expect_next(struct fixture *f, int64_t expected) {
    struct status *st;
    int64_t value = next(f, &st);
    if (st)
        fail_msg("%s", status_message(st));
    assert_int_equal(value, expected);
}

static void expect_failure(struct fixture *f, enum status_code code, const char *words) {
    struct status *st;
    int64_t value = next(f, &st);
    if (value != -2 || status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("expected %s \"%s\", got %lld %s: %s", status_code_name(code), words,
                 (long long)value, status_code_name(status_code(st)), status_message(st));
    status_unref(st);
}

static void expect_all(const char *name, int n_components, int64_t n_input, int64_t n) {
    struct fixture f;
    fixture_init(&f, name, n_components, n_input);
    for (int64_t i = 0; i < n; i++)
        expect_next(&f, 100 * i);
    expect_next(&f, -1);
    fixture_fini(&f);
}

static bool is_there(const char *name) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void remove_file(const char *name) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

static int tear_down(void **state) {
    static const char *const names[] = {"whole", "none", "other", "lost"};
    char path[128];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s.index", dir, names[i]);
        unlink(path);
        snprintf(path, sizeof(path), "%s/%s.data-00000-of-00001", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir); /* nothing else is left */
}

/* ---- tests ---- */

static void test_written_and_read(void **state) {
    expect_all("whole", 2, 300, 300);
    expect_all("whole", 2, 3, 300); /* what is there counts */
    expect_all("none", 2, 0, 0);
    assert_true(is_there("none.index"));
    expect_all("none", 2, 5, 0);
}

static void test_other_components_are_refused(void **state) {
    static const int others[] = {1, 3, MAX_COMPONENTS};
    expect_all("other", 2, 3, 3);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct fixture f;
        fixture_init(&f, "other", others[i], 3);
        if (others[i] == 3) /* as far as the names go they are alike */
            expect_failure(&f, STATUS_NOT_FOUND, "0_2");
        else
            expect_failure(&f, STATUS_INVALID_ARGUMENT, "does not hold elements of");
        fixture_fini(&f);
    }
}

static void test_lost_data_are_no_end(void **state) {
    struct fixture f;
    expect_all("lost", 2, 3, 3);
    remove_file("lost.data-00000-of-00001");
    fixture_init(&f, "lost", 2, 3);
    expect_failure(&f, STATUS_NOT_FOUND, "lost.data-00000-of-00001");
    fixture_fini(&f);
}

struct blocker {
    struct pool_task task;
    pthread_mutex_t *lock;
};

static void block(struct pool_task *task) {
    struct blocker *blocker = CONTAINER_OF(task, struct blocker, task);
    pthread_mutex_lock(blocker->lock);
    pthread_mutex_unlock(blocker->lock);
}

static void test_the_next_does_not_wait_for_what_was_left(void **state) {
    struct fixture a, b;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct blocker blockers[2] = {{{.run = block}, &lock}, {{.run = block}, &lock}};
    fixture_init(&a, "left", 1, 10);
    expect_next(&a, 0);
    fixture_init(&b, "left", 1, 10);
    expect_failure(&b, STATUS_ALREADY_EXISTS,
                   "There appears to be a concurrent caching iterator running");
    fixture_fini(&b);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++)
        pool_submit(a.io, &blockers[i].task);
    leave(&a); /* behind them */
    fixture_init(&b, "left", 1, 10);
    expect_next(&b, 0);
    pthread_mutex_unlock(&lock);
    fixture_fini(&a);
    assert_true(is_there("left_0.lockfile")); /* the other's */
    fixture_fini(&b);
    assert_false(is_there("left_0.lockfile"));
}

static void test_no_room_for_the_lock(void **state) {
    struct fixture f;
    struct rlimit before, tight;
    fixture_init(&f, "tight", 1, 10);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = (struct rlimit){4, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    struct status *st;
    int64_t value = next(&f, &st);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(value, -2);
    assert_non_null(strstr(status_message(st), "tight_0.lockfile"));
    assert_false(is_there("tight_0.lockfile"));
    status_unref(st);
    fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_and_read),
        cmocka_unit_test(test_other_components_are_refused),
        cmocka_unit_test(test_lost_data_are_no_end),
        cmocka_unit_test(test_the_next_does_not_wait_for_what_was_left),
        cmocka_unit_test(test_no_room_for_the_lock),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
