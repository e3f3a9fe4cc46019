/* Watches how kernels ask whether their results are wanted; see test_polls.h. */
#include "tests/tools/test_polls.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/pool_cancel.h"

static const char *watched; /* NULL: nothing */
static bool cancels;

/* The execution of this thread. */
static _Thread_local struct {
    const struct kernel_instance *instance; /* NULL: it is not watched */
    const struct pool_cancel *before;
    int64_t begin_ns, last_ns, longest_ns, n_asked;
} here;

void test_polls_init(void) {
    watched = getenv("GRAPH_EVAL_POLLS");
    cancels = getenv("GRAPH_EVAL_CANCEL") != NULL;
}

static int64_t thread_ns(void) {
    struct timespec t;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void lap(void) {
    int64_t now_ns = thread_ns();
    here.longest_ns = MAX(here.longest_ns, now_ns - here.last_ns);
    here.last_ns = now_ns;
}

bool test_polls_ask(void) {
    if (!here.instance)
        return false;
    here.n_asked++;
    lap();
    return cancels;
}

static bool is_unwanted(void *arg) {
    (void)arg;
    return test_polls_ask();
}

void test_polls_begin(const struct kernel_instance *instance) {
    static const struct pool_cancel cancel = {is_unwanted, NULL};
    if (!watched || (strcmp(watched, "*") != 0 && strcmp(watched, instance->node->op->name) != 0))
        return;
    here.instance = instance;
    here.before = pool_set_cancel(&cancel);
    here.begin_ns = here.last_ns = thread_ns();
    here.longest_ns = here.n_asked = 0;
}

void test_polls_end(struct kernel_ctx *ctx, enum kernel_result result) {
    if (!here.instance)
        return;
    lap();
    pool_set_cancel(here.before);
    here.instance = NULL;
    if (result != KERNEL_DONE)
        return;
    fprintf(stderr, "polls %s asked %lld longest %lld all %lld\n", ctx->instance->node->op->name,
            (long long)here.n_asked, (long long)here.longest_ns,
            (long long)(here.last_ns - here.begin_ns));
    if (cancels && here.n_asked > 0 && !ctx->status)
        ctx->status = status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
}
