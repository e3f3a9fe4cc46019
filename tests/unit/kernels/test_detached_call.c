/* Calls on a thread of their own: waited for, and abandoned. */
#include "kernels/support/detached_call.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/pool_cancel.h"

struct call {
    struct detached_call detached;
    sem_t may_end, freed;
    _Atomic bool has_begun;
    bool has_ended, was_unwanted;
};

static void work(struct detached_call *detached) {
    struct call *call = CONTAINER_OF(detached, struct call, detached);
    atomic_store(&call->has_begun, true);
    CHECK(sem_wait(&call->may_end) == 0);
    call->was_unwanted = pool_is_unwanted();
    call->has_ended = true;
}

static void freed(struct detached_call *detached) {
    CHECK(sem_post(&CONTAINER_OF(detached, struct call, detached)->freed) == 0);
}

static void call_init(struct call *call) {
    *call = (struct call){.detached = {work, freed}};
    CHECK(sem_init(&call->may_end, 0, 0) == 0 && sem_init(&call->freed, 0, 0) == 0);
}

static bool is_unwanted(void *arg) { return atomic_load(&((struct call *)arg)->has_begun); }

static void a_call_is_waited_for(void **state) {
    struct call call;
    call_init(&call);
    CHECK(sem_post(&call.may_end) == 0);
    assert_true(detached_call_run(&call.detached));
    assert_true(call.has_ended);
    assert_false(call.was_unwanted);
    assert_int_not_equal(sem_trywait(&call.freed), 0); /* the record is still the caller's */
}

static void an_unwanted_call_is_abandoned_and_frees_its_record(void **state) {
    struct call call;
    call_init(&call);
    struct pool_cancel cancel = {is_unwanted, &call};
    pool_set_cancel(&cancel);
    assert_false(detached_call_run(&call.detached)); /* the call cannot end before this returns */
    pool_set_cancel(NULL);
    CHECK(sem_post(&call.may_end) == 0);
    CHECK(sem_wait(&call.freed) == 0);
    assert_true(call.has_ended);
    assert_true(call.was_unwanted); /* its own code can end early */
}

static void with_too_many_abandoned_calls_the_next_is_waited_for(void **state) {
    static struct call calls[DETACHED_CALL_MAX_ABANDONED + 1];
    for (int i = 0; i <= DETACHED_CALL_MAX_ABANDONED; i++) {
        call_init(&calls[i]);
        struct pool_cancel cancel = {is_unwanted, &calls[i]};
        if (i == DETACHED_CALL_MAX_ABANDONED)
            CHECK(sem_post(&calls[i].may_end) == 0);
        pool_set_cancel(&cancel);
        assert_int_equal(detached_call_run(&calls[i].detached), i == DETACHED_CALL_MAX_ABANDONED);
        pool_set_cancel(NULL);
    }
    for (int i = 0; i < DETACHED_CALL_MAX_ABANDONED; i++) {
        CHECK(sem_post(&calls[i].may_end) == 0);
        CHECK(sem_wait(&calls[i].freed) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_waited_for),
        cmocka_unit_test(an_unwanted_call_is_abandoned_and_frees_its_record),
        cmocka_unit_test(with_too_many_abandoned_calls_the_next_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
