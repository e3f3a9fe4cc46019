/* A small host for kernels, and a simple evaluator of graphs, for the kernel tests and graph_eval.
 *
 * The host has named containers (resources outlive runs), a container per run, cancellation, a
 * pool and an I/O thread. The evaluator runs a graph's needed nodes one after the other in
 * topological order. It supports Switch and Merge, but no loops; the worker's executor is the real
 * one. One thread at a time may use a graph. */
#ifndef MILLRACE_TESTS_TOOLS_TEST_HOST_H
#define MILLRACE_TESTS_TOOLS_TEST_HOST_H

#include <pthread.h>

#include "common/base/list.h"
#include "common/base/map.h"
#include "kernels/host.h"
#include "kernels/kernel.h"

#define TEST_DEVICE "/job:localhost/replica:0/task:0/device:CPU:0"

struct test_host {
    struct kernel_host host; /* first: kernels see this part */
    struct pool *pool;       /* NULL when made with 0 threads */
    struct pool *io_pool;    /* made at the first submit_io; guarded by lock */
    pthread_mutex_t lock;
    struct strmap resources;    /* "container/name" → struct test_resource; guarded by lock */
    struct alarm_clock *alarms; /* time advances only by test_host_advance */
    _Atomic int64_t now_ns;
    _Atomic uint64_t next_step_id;
};
struct test_host *test_host_new(int n_threads);
void test_host_free(struct test_host *host);
/* Advances the time and runs the alarms that are due. */
void test_host_advance(struct test_host *host, int64_t us);
/* How many resources there are now (leak checks). */
size_t test_host_n_resources(struct test_host *host);

/* One step: owns the step's container and the waits that cancellation ends. */
struct test_step {
    struct test_host *host;
    uint64_t id;
    pthread_mutex_t lock;
    struct list hooks;        /* guarded by lock */
    struct status *cancelled; /* guarded by lock; NULL while the step lives */
};
void test_step_init(struct test_step *step, struct test_host *host);
void test_step_fini(struct test_step *step); /* drops the step's container */
void test_step_cancel(struct test_step *step, struct status *why_take);

/* One execution of a kernel. Inputs are copied in (shared); outputs are the caller's to take
 * after the wait. */
struct test_call {
    struct kernel_ctx ctx;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done; /* guarded by lock */
};
void test_call_start(struct test_call *call, struct test_step *step,
                     const struct kernel_instance *instance, const struct tensor *inputs);
/* Advances the time from alarm to alarm until the call is done or no alarm is set. For calls that
 * wait only for alarms. */
void test_call_skip_time(struct test_call *call);
/* Waits for the end. After timeout_ms the step is cancelled with DEADLINE_EXCEEDED, which must
 * end the kernel's wait. */
struct status *test_call_wait(struct test_call *call, int timeout_ms) MUST_USE;
bool test_call_is_done(struct test_call *call);
void test_call_fini(struct test_call *call); /* clears what was not taken */

/* A graph with its kernels' instances, which live as long as it does. */
struct test_graph {
    struct graph graph;
    struct test_host *host;
    struct allocator *allocator;       /* of the instances; the host's unless changed before runs */
    struct kernel_instance *instances; /* by node id; all-zero until first run */
    int n_instances;
    struct node **order; /* topological */
    bool *is_on_device;  /* by node id; NULL without a device (test_device.h) */
};
struct test_feed {
    const char *endpoint;
    struct tensor value; /* borrowed by the run */
};
/* then fill graph->graph, then test_graph_prepare */
void test_graph_init(struct test_graph *graph, struct test_host *host);
struct status *test_graph_prepare(struct test_graph *graph) MUST_USE;
void test_graph_fini(struct test_graph *graph);
/* One step. `ret` has n_fetches entries, which own their values after success. */
struct status *test_graph_run(struct test_graph *graph, const struct test_feed *feeds, int n_feeds,
                              const char *const *fetches, int n_fetches, const char *const *targets,
                              int n_targets, struct tensor *ret) MUST_USE;
/* Static shapes of the fetches, as the op rows' shape functions infer them (constants folded by
 * our own kernels). Texts as shape_print makes them, malloc'd. Errors: what a shape function
 * says. */
struct status *test_graph_infer(struct test_graph *graph, const char *const *fetches, int n_fetches,
                                char **ret_texts) MUST_USE;

#endif
