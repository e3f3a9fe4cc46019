/* The compute pool: order, lazy threads, draining, resubmission, and loops that nest and cover
 * their range exactly once. */
#include "common/base/pool.h"
#include "common/base/clock.h"
#include "common/base/pool_cancel.h"
#include "common/base/pool_load.h"
#include "common/base/pool_sort.h"
#include "common/base/splitmix.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct job {
    struct pool_task task;
    struct pool *pool;
    _Atomic int *n_run;
    int n_again;
    int number;
};

static void count_job(struct pool_task *task) {
    struct job *job = CONTAINER_OF(task, struct job, task);
    CHECK(pool_is_current());
    bool is_again = job->n_again-- > 0; /* read first: the last count lets the test reuse the job */
    atomic_fetch_add(job->n_run, 1);
    if (is_again)
        pool_submit(job->pool, task);
}

static int count_process_threads(void) {
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void an_unused_pool_has_no_threads(void **state) {
    int before = count_process_threads();
    struct pool *pool = pool_new(8);
    assert_int_equal(pool_n_threads(pool), 8);
    assert_int_equal(count_process_threads(), before);
    pool_free(pool);
    pool_free(NULL);
    pool = pool_new(0);
    assert_true(pool_n_threads(pool) >= 1);
    assert_false(pool_is_current());
    pool_free(pool);
}

static void free_runs_what_is_queued(void **state) {
    enum { N_JOBS = 2000 };
    static struct job jobs[N_JOBS];
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        _Atomic int n_run = 0;
        int n_expected = 0;
        struct pool *pool = pool_new(n_threads);
        for (int i = 0; i < N_JOBS; i++) {
            n_expected += 1 + i % 3;
            jobs[i] = (struct job){
                .task.run = count_job, .pool = pool, .n_run = &n_run, .n_again = i % 3};
            pool_submit(pool, &jobs[i].task);
        }
        pool_free(pool);
        assert_int_equal(n_run, n_expected);
    }
}

static _Atomic int next_number;
static _Atomic int n_out_of_order;

static void check_order(struct pool_task *task) {
    if (CONTAINER_OF(task, struct job, task)->number != atomic_fetch_add(&next_number, 1))
        atomic_fetch_add(&n_out_of_order, 1);
}

static void one_thread_runs_tasks_in_order(void **state) {
    static struct job jobs[500];
    struct pool *pool = pool_new(1);
    for (int i = 0; i < 500; i++) {
        jobs[i] = (struct job){.task.run = check_order, .number = i};
        pool_submit(pool, &jobs[i].task);
    }
    pool_free(pool);
    assert_int_equal(next_number, 500);
    assert_int_equal(n_out_of_order, 0);
}

/* All tasks must be running at once for any to end: fails by a hang if a thread that is needed
 * is not brought. */
static pthread_barrier_t barrier;

static void meet(struct pool_task *task) {
    pthread_barrier_wait(&barrier);
    count_job(task);
}

static void as_many_tasks_as_threads_run_at_once(void **state) {
    enum { N_THREADS = 7 };
    _Atomic int n_run = 0;
    struct job jobs[N_THREADS];
    struct pool *pool = pool_new(N_THREADS);
    for (int round = 0; round < 50; round++) {
        pthread_barrier_init(&barrier, NULL, N_THREADS + 1);
        for (int i = 0; i < N_THREADS; i++) {
            jobs[i] = (struct job){.task.run = meet, .pool = pool, .n_run = &n_run};
            pool_submit(pool, &jobs[i].task);
        }
        pthread_barrier_wait(&barrier);
        while (atomic_load(&n_run) < (round + 1) * N_THREADS)
            sched_yield();
        pthread_barrier_destroy(&barrier);
    }
    pool_free(pool);
}

struct cover {
    unsigned char *n_visits;
    struct pool *pool;
    int64_t n;
    _Atomic int n_calls;
};

static void visit(void *arg, int64_t begin, int64_t end) {
    struct cover *cover = arg;
    CHECK(begin >= 0 && begin < end && end <= cover->n);
    atomic_fetch_add(&cover->n_calls, 1);
    for (int64_t i = begin; i < end; i++)
        cover->n_visits[i]++;
}

static void assert_covered(struct pool *pool, int64_t n, double cost_ns) {
    struct cover cover = {calloc((size_t)n + 1, 1), pool, n, 0};
    pool_parallel_for(pool, n, cost_ns, visit, &cover);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(cover.n_visits[i], 1);
    free(cover.n_visits);
}

static void a_loop_covers_its_range_once(void **state) {
    static const int64_t sizes[] = {0, 1, 2, 3, 63, 64, 1000, 4097, 100003};
    static const double costs[] = {-1, 0, 0.1, 1, 100, 30000, 1e18, 1.0 / 0.0, 0.0 / 0.0};
    for (int n_threads = 0; n_threads <= 5; n_threads++) {
        struct pool *pool = n_threads ? pool_new(n_threads) : NULL;
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            for (size_t k = 0; k < ARRAY_LEN(costs); k++)
                assert_covered(pool, sizes[i], costs[k]);
        }
        pool_free(pool);
    }
}

static void a_cheap_loop_is_one_call(void **state) {
    struct pool *pool = pool_new(4);
    unsigned char visits[1000] = {0};
    struct cover cover = {visits, pool, 1000, 0};
    pool_parallel_for(pool, 1000, 1, visit, &cover);
    assert_int_equal(cover.n_calls, 1);
    pool_parallel_for(pool, 1000, 1000, visit, &cover);
    assert_in_range(cover.n_calls, 5, 51); /* a millisecond in ranges of 20 µs and more */
    pool_free(pool);
}

static void visit_nested(void *arg, int64_t begin, int64_t end) {
    struct cover *outer = arg;
    for (int64_t i = begin; i < end; i++) {
        unsigned char visits[40] = {0};
        struct cover inner = {visits, outer->pool, 40, 0};
        pool_parallel_for(outer->pool, 40, 20000, visit, &inner);
        for (int k = 0; k < 40; k++)
            CHECK(visits[k] == 1);
    }
    visit(arg, begin, end);
}

static void nested_loops_end(void **state) {
    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        struct pool *pool = pool_new(n_threads);
        for (int round = 0; round < 5; round++) {
            unsigned char visits[100] = {0};
            struct cover cover = {visits, pool, 100, 0};
            pool_parallel_for(pool, 100, 1e6, visit_nested, &cover);
            for (int i = 0; i < 100; i++)
                assert_int_equal(visits[i], 1);
        }
        pool_free(pool);
    }
}

static void *loop_often(void *arg) {
    for (int i = 0; i < 300; i++) {
        unsigned char visits[64] = {0};
        struct cover cover = {visits, arg, 64, 0};
        pool_parallel_for(arg, 64, 20000, visit, &cover);
        for (int k = 0; k < 64; k++)
            CHECK(visits[k] == 1);
    }
    return NULL;
}

static void several_threads_loop_on_one_pool(void **state) {
    struct pool *pool = pool_new(3);
    pthread_t threads[3];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, loop_often, pool), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    pool_free(pool);
}

static void wait_at_barrier(struct pool_task *task) { pthread_barrier_wait(&barrier); }

/* Every pool thread is held, so no helper can start: the caller must do the whole loop, and the
 * helpers run after it. */
static void a_loop_needs_no_thread_but_its_callers(void **state) {
    struct pool *pool = pool_new(2);
    struct job jobs[2] = {{.task.run = wait_at_barrier}, {.task.run = wait_at_barrier}};
    pthread_barrier_init(&barrier, NULL, 3);
    pool_submit(pool, &jobs[0].task);
    pool_submit(pool, &jobs[1].task);
    assert_covered(pool, 1000, 1000);
    pthread_barrier_wait(&barrier);
    pool_free(pool);
    pthread_barrier_destroy(&barrier);
}

/* ---- work that becomes unwanted ---- */

struct unwanted {
    _Atomic int n_ranges; /* that have begun */
    _Atomic int64_t longest;
    int wanted;              /* ranges */
    _Atomic int64_t n_units; /* of slow_range */
};

static bool is_unwanted(void *arg) {
    struct unwanted *unwanted = arg;
    return atomic_load(&unwanted->n_ranges) >= unwanted->wanted;
}

static void count_range(void *arg, int64_t begin, int64_t end) {
    struct unwanted *unwanted = arg;
    int64_t longest = atomic_load(&unwanted->longest);
    while (end - begin > longest &&
           !atomic_compare_exchange_weak(&unwanted->longest, &longest, end - begin))
        ;
    atomic_fetch_add(&unwanted->n_ranges, 1);
}

static void an_unwanted_loop_leaves_out_what_has_not_begun(void **state) {
    for (int n_threads = 0; n_threads <= 3; n_threads++) {
        struct pool *pool = n_threads > 0 ? pool_new(n_threads) : NULL;
        struct unwanted unwanted = {.wanted = 5};
        struct pool_cancel cancel = {is_unwanted, &unwanted};
        assert_null(pool_set_cancel(&cancel));
        assert_false(pool_is_unwanted());
        pool_parallel_for(pool, 100000, 1e5, count_range, &unwanted); /* ten seconds */
        assert_true(pool_is_unwanted());
        assert_true(unwanted.n_ranges >= 5 && unwanted.n_ranges <= 5 + n_threads);
        assert_true(unwanted.longest <= 1000); /* a tenth of a second, at most */
        assert_ptr_equal(pool_set_cancel(NULL), &cancel);
        assert_false(pool_is_unwanted());
        unwanted.n_ranges = 0;
        unwanted.wanted = INT32_MAX;
        pool_parallel_for(pool, 1000, 1e5, count_range, &unwanted); /* nobody asks any more */
        assert_true(unwanted.n_ranges >= 1);
        pool_free(pool);
    }
}

/* Each unit takes a hundred times what the loop is told. */
static void slow_range(void *arg, int64_t begin, int64_t end) {
    struct unwanted *unwanted = arg;
    count_range(arg, begin, end);
    atomic_fetch_add(&unwanted->n_units, end - begin);
    int64_t until_ns = clock_now_ns() + (end - begin) * 1000;
    while (clock_now_ns() < until_ns)
        ;
}

static void a_loop_whose_cost_is_underestimated_is_cut_into_short_pieces(void **state) {
    struct unwanted unwanted = {.wanted = 4};
    struct pool_cancel cancel = {is_unwanted, &unwanted};
    pool_set_cancel(&cancel);
    pool_parallel_for(NULL, 1 << 20, 10, slow_range, &unwanted); /* a second */
    pool_set_cancel(NULL);
    assert_int_equal(unwanted.n_ranges, 4);
    assert_true(unwanted.n_units < 1 << 17); /* the estimate alone would make one range of it */
}

static void loop_inside(void *arg, int64_t begin, int64_t end) {
    (void)begin, (void)end;
    CHECK(pool_set_cancel(pool_set_cancel(NULL)) == NULL); /* helpers have it, too */
    pool_parallel_for(NULL, 1000, 1e6, count_range, arg);
}

static void loops_inside_an_unwanted_loop_end_with_it(void **state) {
    struct pool *pool = pool_new(2);
    struct unwanted unwanted = {.wanted = 7};
    struct pool_cancel cancel = {is_unwanted, &unwanted};
    pool_set_cancel(&cancel);
    pool_parallel_for(pool, 10, 1e9, loop_inside, &unwanted);
    pool_set_cancel(NULL);
    assert_true(unwanted.n_ranges >= 7 && unwanted.n_ranges <= 7 + 2);
    pool_free(pool);
}

static void large_memory_is_left_unfinished_once_unwanted(void **state) {
    size_t size = 32 << 20;
    char *from = malloc(size), *to = malloc(size);
    assert_true(from && to);
    memset(from, 1, size);
    memset(to, 2, size);
    struct unwanted unwanted = {.wanted = 0}; /* unwanted from the first question on */
    struct pool_cancel cancel = {is_unwanted, &unwanted};
    pool_set_cancel(&cancel);
    pool_copy(to, from, size);
    assert_int_equal(to[0], 1);
    assert_int_equal(to[size - 1], 2);
    pool_clear(to, size);
    assert_int_equal(to[0], 0);
    assert_int_equal(to[size - 1], 2);
    pool_set_cancel(NULL);
    pool_copy(to, from, size - 1);
    assert_memory_equal(to, from, size - 1);
    assert_int_equal(to[size - 1], 2);
    pool_clear(to, size);
    assert_int_equal(to[size - 1], 0);
    free(from);
    free(to);
}

/* The row before which the first question is asked. */
static int64_t rows_until_unwanted(int64_t n, int64_t len) {
    struct unwanted unwanted = {.wanted = 0};
    struct pool_cancel cancel = {is_unwanted, &unwanted};
    int64_t row = 0;
    for (; row < n; row++) {
        pool_set_cancel(&cancel);
        if (!pool_goes_on_rows(row + 1, len))
            break;
    }
    pool_set_cancel(NULL);
    return row;
}

static void rows_are_asked_about_by_their_elements(void **state) {
    assert_int_equal(rows_until_unwanted(1000000, 1), POOL_PIECE - 1);
    assert_int_equal(rows_until_unwanted(1000000, 3), POOL_PIECE / 3); /* 21846 · 3 > 65536 */
    assert_int_equal(rows_until_unwanted(1000000, POOL_PIECE), 0);
    assert_int_equal(rows_until_unwanted(1000000, 10 * POOL_PIECE), 0);
    assert_int_equal(rows_until_unwanted(1000000, 0), 1000000); /* no work */
}

static void pieces_cover_a_loop_and_end_it_once_unwanted(void **state) {
    const int64_t sizes[] = {0, 1, POOL_PIECE - 1, POOL_PIECE, POOL_PIECE + 1, 5 * POOL_PIECE};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        int64_t at = 7, n = 7 + sizes[i];
        POOL_PIECES (begin, end, 7, n) {
            assert_true(begin == at && end > begin && end - begin <= POOL_PIECE);
            at = end;
        }
        assert_int_equal(at, n);
    }
    struct unwanted unwanted = {.wanted = 0};
    struct pool_cancel cancel = {is_unwanted, &unwanted};
    int n_pieces = 0;
    pool_set_cancel(&cancel);
    POOL_PIECES (begin, end, 0, 5 * (int64_t)POOL_PIECE) {
        n_pieces++;
        assert_int_equal(end - begin, POOL_PIECE);
    }
    pool_set_cancel(NULL);
    assert_int_equal(n_pieces, 1); /* the first one is begun without a question */
    n_pieces = 0;
    POOL_ROW_PIECES (begin, end, 100, (int64_t)POOL_PIECE / 10) {
        n_pieces++;
        assert_int_equal(end - begin, 10);
    }
    assert_int_equal(n_pieces, 10);
    POOL_ROW_PIECES (begin, end, 3, 100 * (int64_t)POOL_PIECE)
        assert_int_equal(end - begin, 1);
}

struct keyed {
    int32_t key, place, unused;
};

static int compare_keyed(const void *a_, const void *b_) {
    const struct keyed *a = a_, *b = b_;
    return a->key != b->key ? (a->key > b->key) - (a->key < b->key)
                            : (a->place > b->place) - (a->place < b->place);
}

static struct keyed *make_keyed(int64_t n) {
    struct keyed *made = malloc(((size_t)n + 1) * sizeof(*made));
    uint64_t random = (uint64_t)n;
    assert_non_null(made);
    for (int64_t i = 0; i < n; i++)
        made[i] = (struct keyed){(int32_t)(splitmix64(&random) % 1000), (int32_t)i, 7};
    return made;
}

static void a_sort_in_pieces_sorts_as_qsort_does(void **state) {
    const int64_t sizes[] = {0, 1, 2, 1000, 32768, 32769, 65536, 100000, 200001};
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        struct keyed *got = make_keyed(sizes[s]), *expected = make_keyed(sizes[s]);
        assert_true(pool_sort(got, sizes[s], sizeof(*got), compare_keyed));
        qsort(expected, (size_t)sizes[s], sizeof(*expected), compare_keyed);
        assert_memory_equal(got, expected, (size_t)sizes[s] * sizeof(*got));
        free(got);
        free(expected);
    }
}

struct questions {
    int n, n_wanted; /* how many have been asked, and how many of them find the work wanted */
};

static bool count_question(void *arg) {
    struct questions *questions = arg;
    return ++questions->n > questions->n_wanted;
}

static void an_unwanted_sort_ends_early_and_loses_no_element(void **state) {
    int64_t n = 300000;
    bool was_sorted = false;
    for (int n_wanted = 0; !was_sorted; n_wanted++) {
        struct questions questions = {.n_wanted = n_wanted};
        struct pool_cancel cancel = {count_question, &questions};
        struct keyed *got = make_keyed(n);
        int64_t sum = 0;
        pool_set_cancel(&cancel);
        was_sorted = pool_sort(got, n, sizeof(*got), compare_keyed);
        pool_set_cancel(NULL);
        assert_int_equal(was_sorted, questions.n <= n_wanted);
        assert_true(!was_sorted || n_wanted >= 20); /* 9 pieces, and 4 rounds of 300,000 elements */
        for (int64_t i = 0; i < n; i++) {
            sum += got[i].place;
            if (was_sorted && i > 0)
                assert_true(compare_keyed(&got[i - 1], &got[i]) < 0);
        }
        assert_int_equal(sum, n * (n - 1) / 2);
        free(got);
    }
}

/* The caller's range ends once another thread has begun the other one, which takes a while. */
static _Atomic bool has_helper_begun;

static void wait_for_helper(void *arg, int64_t begin, int64_t end) {
    int64_t until_ns = clock_thread_ns() + 5 * 1000 * 1000;
    if (pool_is_current())
        has_helper_begun = true;
    while (pool_is_current() ? clock_thread_ns() < until_ns : !has_helper_begun)
        sched_yield();
}

static void the_wait_for_other_ranges_is_counted(void **state) {
    struct pool *pool = pool_new(2);
    int64_t before_ns = pool_waited_ns(), start_ns = clock_now_ns();
    has_helper_begun = false;
    pool_parallel_for(pool, 2, 1e6, wait_for_helper, NULL);
    assert_true(pool_waited_ns() > before_ns);
    assert_true(pool_waited_ns() - before_ns <= clock_now_ns() - start_ns);
    pool_free(pool);
}

/* Tells, once it is asked, whether the pool is busy, and ends. */
struct holder {
    struct pool_task task;
    struct pool *pool;
    _Atomic bool has_begun, is_asked, is_busy, has_ended;
};

static void hold_thread(struct pool_task *task) {
    struct holder *holder = CONTAINER_OF(task, struct holder, task);
    holder->has_begun = true;
    while (!holder->is_asked)
        sched_yield();
    holder->is_busy = pool_is_busy(holder->pool);
    holder->has_ended = true;
}

static void hold_one(struct pool *pool, struct holder *holder) {
    *holder = (struct holder){.task.run = hold_thread, .pool = pool};
    pool_submit(pool, &holder->task);
}

static void await(const _Atomic bool *flag) {
    while (!*flag)
        sched_yield();
}

static bool ask(struct holder *holder) {
    await(&holder->has_begun);
    holder->is_asked = true;
    await(&holder->has_ended);
    return holder->is_busy;
}

static void a_pool_is_busy_while_no_thread_is_free(void **state) {
    struct pool *pool = pool_new(2);
    struct holder holders[3];
    assert_false(pool_is_busy(pool));
    hold_one(pool, &holders[0]);
    assert_false(pool_is_busy(pool)); /* a thread is free */
    hold_one(pool, &holders[1]);
    assert_true(pool_is_busy(pool));
    hold_one(pool, &holders[2]);
    assert_true(ask(&holders[0]));
    await(&holders[2].has_begun); /* on the same thread */
    assert_false(ask(&holders[1]));
    assert_false(ask(&holders[2]));
    while (pool_is_busy(pool)) /* until a thread has come back */
        sched_yield();
    pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_busy_while_no_thread_is_free),
        cmocka_unit_test(an_unused_pool_has_no_threads),
        cmocka_unit_test(free_runs_what_is_queued),
        cmocka_unit_test(one_thread_runs_tasks_in_order),
        cmocka_unit_test(as_many_tasks_as_threads_run_at_once),
        cmocka_unit_test(a_loop_covers_its_range_once),
        cmocka_unit_test(a_cheap_loop_is_one_call),
        cmocka_unit_test(nested_loops_end),
        cmocka_unit_test(several_threads_loop_on_one_pool),
        cmocka_unit_test(a_loop_needs_no_thread_but_its_callers),
        cmocka_unit_test(an_unwanted_loop_leaves_out_what_has_not_begun),
        cmocka_unit_test(a_loop_whose_cost_is_underestimated_is_cut_into_short_pieces),
        cmocka_unit_test(loops_inside_an_unwanted_loop_end_with_it),
        cmocka_unit_test(large_memory_is_left_unfinished_once_unwanted),
        cmocka_unit_test(rows_are_asked_about_by_their_elements),
        cmocka_unit_test(pieces_cover_a_loop_and_end_it_once_unwanted),
        cmocka_unit_test(a_sort_in_pieces_sorts_as_qsort_does),
        cmocka_unit_test(an_unwanted_sort_ends_early_and_loses_no_element),
        cmocka_unit_test(the_wait_for_other_ranges_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
