/* Calls of several threads in one session, and asynchronous runs, against a master on another
 * thread. Under ThreadSanitizer, too. */
#include "client/c_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>

#include "tests/unit/client/fake_master.h"

enum { N_THREADS = 8, N_STEPS = 40 };

struct fixture {
    struct fake_master *master;
    TF_Graph *graph;
    TF_Session *session;
    TF_Status *status;
    const TF_Operation *plain, *hang, *end_hung;
};

static const TF_Operation *add_target(struct fixture *f, const char *name) {
    TF_Operation *oper = TF_FinishOperation(TF_NewOperation(f->graph, "NoOp", name), f->status);
    assert_int_equal(TF_GetCode(f->status), TF_OK);
    return oper;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    f->master = fake_master_start();
    f->status = TF_NewStatus();
    f->graph = TF_NewGraph();
    f->plain = add_target(f, "plain");
    f->hang = add_target(f, "hang");
    f->end_hung = add_target(f, "end_hung");
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, f->master->target);
    f->session = TF_NewSession(f->graph, options, f->status);
    TF_DeleteSessionOptions(options);
    *state = f;
    return f->session ? 0 : -1;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    TF_DeleteSession(f->session, f->status);
    TF_DeleteGraph(f->graph);
    fake_master_stop(f->master);
    TF_DeleteStatus(f->status);
    free(f);
    return 0;
}

static void run(struct fixture *f, const TF_Operation *target, TF_Status *status) {
    TF_SessionRun(f->session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, status);
}

static MR_Run *start(struct fixture *f, const TF_Operation *target, MR_RunDone on_done, void *arg) {
    MR_Run *started = MR_SessionRunAsync(f->session, NULL, NULL, NULL, 0, NULL, 0, &target, 1,
                                         on_done, arg, f->status);
    assert_non_null(started);
    return started;
}

static void finish(MR_Run *run, TF_Code expected) {
    TF_Status *status = TF_NewStatus();
    MR_RunResult(run, NULL, NULL, status);
    assert_int_equal(TF_GetCode(status), expected);
    TF_DeleteStatus(status);
    MR_DeleteRun(run);
}

static void *run_many(void *arg) {
    struct fixture *f = arg;
    TF_Status *status = TF_NewStatus();
    int n_good = 0;
    for (int i = 0; i < N_STEPS; i++) {
        run(f, f->plain, status);
        n_good += TF_GetCode(status) == TF_OK;
    }
    TF_DeleteStatus(status);
    return (void *)(intptr_t)n_good;
}

static void run_threads(struct fixture *f) {
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, f), 0);
    for (int i = 0; i < N_THREADS; i++) {
        void *n_good;
        pthread_join(threads[i], &n_good);
        assert_int_equal((intptr_t)n_good, N_STEPS);
    }
}

static void threads_share_a_session(void **state) {
    struct fixture *f = *state;
    run_threads(f);
    assert_int_equal(f->master->n_created, 1);
    assert_int_equal(f->master->n_steps, N_THREADS * N_STEPS);
}

static void *run_hanging(void *arg) {
    struct fixture *f = arg;
    TF_Status *status = TF_NewStatus();
    run(f, f->hang, status);
    TF_Code code = TF_GetCode(status);
    TF_DeleteStatus(status);
    return (void *)(intptr_t)code;
}

/* The thread that drives the loop is in a call that does not end, or another one is. */
static void threads_run_beside_a_step_that_hangs(void **state) {
    struct fixture *f = *state;
    pthread_t hanging;
    MR_Run *hung = start(f, f->hang, NULL, NULL);
    run_threads(f);
    finish(start(f, f->plain, NULL, NULL), TF_OK);
    MR_CancelRun(hung);
    finish(hung, TF_CANCELLED);
    /* this thread's calls go through the loop that the other thread drives */
    run(f, f->plain, f->status);
    int n_steps = f->master->n_steps;
    MR_DeleteRun(start(f, f->hang, NULL, NULL));
    assert_int_equal(pthread_create(&hanging, NULL, run_hanging, f), 0);
    while (f->master->n_steps < n_steps + 1)
        run(f, f->plain, f->status);
    run_threads(f);
    assert_int_equal(TF_GetCode(f->status), TF_OK);
    run(f, f->end_hung, f->status);
    void *code;
    pthread_join(hanging, &code);
    assert_int_equal((intptr_t)code, TF_ABORTED);
}

struct told {
    int n;
    sem_t all;
};

static void count(void *arg, MR_Run *run) {
    struct told *told = arg;
    finish(run, TF_OK);
    if (++told->n == N_STEPS)
        sem_post(&told->all);
}

static void runs_end_beside_calls(void **state) {
    struct fixture *f = *state;
    struct told told = {0};
    sem_init(&told.all, 0, 0);
    for (int i = 0; i < N_STEPS; i++) {
        start(f, f->plain, count, &told);
        if (i % 4 == 0)
            run(f, f->plain, f->status);
    }
    run_threads(f);
    while (sem_wait(&told.all) != 0) {
    }
    assert_int_equal(told.n, N_STEPS);
    sem_destroy(&told.all);
}

static void a_descriptor_tells_of_ends(void **state) {
    struct fixture *f = *state;
    struct told told = {0};
    sem_init(&told.all, 0, 0);
    struct pollfd event = {.fd = MR_SessionEventFd(f->session, f->status), .events = POLLIN};
    assert_true(event.fd >= 0);
    for (int i = 0; i < N_STEPS; i++)
        start(f, f->plain, count, &told);
    while (told.n < N_STEPS && poll(&event, 1, 60000) == 1)
        MR_SessionDispatch(f->session);
    assert_int_equal(told.n, N_STEPS);
    sem_destroy(&told.all);
}

static void on_cancelled(void *arg, MR_Run *run) {
    ++*(int *)arg;
    finish(run, TF_CANCELLED);
}

static void a_deleted_session_ends_its_runs(void **state) {
    struct fixture *f = *state;
    int n_told = 0;
    for (int i = 0; i < N_STEPS; i++)
        start(f, f->hang, on_cancelled, &n_told);
    MR_Run *kept = start(f, f->hang, NULL, NULL);
    TF_DeleteSession(f->session, f->status);
    f->session = NULL;
    assert_int_equal(n_told, N_STEPS);
    assert_true(MR_RunHasEnded(kept));
    finish(kept, TF_CANCELLED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(threads_share_a_session, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_run_beside_a_step_that_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(runs_end_beside_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(a_descriptor_tells_of_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deleted_session_ends_its_runs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
