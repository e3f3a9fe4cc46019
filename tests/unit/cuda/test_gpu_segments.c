/* Work that is replayed: what is done with more runs of it than a device keeps graphs, and how far
 * a step may be ahead. The driver is the test's: it writes down what runs on the compute stream, in
 * the order in which it was enqueued, and events pass when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cuda/dnn.h"
#include "kernels/cuda/gpu_outbox.h"

/* ---- the driver ---- */

enum { MAX_LOG = 1 << 16, N_PARTS = 4, MAX_EVENTS = 64 };

/* A launch; of an event only the number of the event. */
struct launch {
    uint32_t form, part, value;
};
struct CUstream_st {
    CUgraph capturing;
};
struct CUgraphNode_st {
    struct launch launch;
};
struct CUgraph_st {
    int n;
    struct CUgraphNode_st nodes[SEGMENT_MAX_WORK];
};
struct CUgraphExec_st {
    CUgraph origin;
    struct CUgraph_st graph;
};
struct CUevent_st {
    int n_before; /* launches that it was recorded behind */
};

static struct CUstream_st compute;
static struct launch log_of_launches[MAX_LOG];
static int n_logged, n_passed; /* the device has done the first n_passed */
static int n_graphs, n_execs, n_events;
static CUgraphNode last_captured;

static CUresult set_current(CUcontext context) { return CUDA_SUCCESS; }

static CUresult stream_create(CUstream *ret, unsigned flags, int priority) {
    *ret = calloc(1, sizeof **ret);
    return CUDA_SUCCESS;
}
static CUresult stream_destroy(CUstream stream) {
    free(stream);
    return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *ret, unsigned flags) {
    *ret = calloc(1, sizeof **ret);
    n_events++;
    return CUDA_SUCCESS;
}
static CUresult event_destroy(CUevent event) {
    free(event);
    n_events--;
    return CUDA_SUCCESS;
}
static CUresult event_record(CUevent event, CUstream stream) {
    assert_ptr_equal(stream, &compute);
    event->n_before = n_logged;
    return CUDA_SUCCESS;
}
static CUresult event_query(CUevent event) {
    return event->n_before <= n_passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult begin_capture(CUstream stream, unsigned mode) {
    assert_ptr_not_equal(stream, &compute);
    stream->capturing = calloc(1, sizeof *stream->capturing);
    n_graphs++;
    return CUDA_SUCCESS;
}
static CUresult capture_info(CUstream stream, unsigned *ret_status, uint64_t *ret_id,
                             CUgraph *ret_graph, const CUgraphNode **ret_nodes, size_t *ret_n) {
    last_captured = &stream->capturing->nodes[stream->capturing->n - 1];
    *ret_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    *ret_id = 1;
    *ret_graph = stream->capturing;
    *ret_nodes = &last_captured;
    *ret_n = 1;
    return CUDA_SUCCESS;
}
static CUresult end_capture(CUstream stream, CUgraph *ret) {
    *ret = stream->capturing;
    stream->capturing = NULL;
    return CUDA_SUCCESS;
}
static CUresult instantiate(CUgraphExec *ret, CUgraph graph, unsigned long long flags) {
    *ret = calloc(1, sizeof **ret);
    **ret = (struct CUgraphExec_st){.origin = graph, .graph = *graph};
    n_execs++;
    return CUDA_SUCCESS;
}
static CUresult set_params(CUgraphExec exec, CUgraphNode node,
                           const CUDA_KERNEL_NODE_PARAMS *params) {
    exec->graph.nodes[node - exec->origin->nodes].launch =
        *(const struct launch *)params->arguments[0];
    return CUDA_SUCCESS;
}
static CUresult launch_graph(CUgraphExec exec, CUstream stream) {
    assert_ptr_equal(stream, &compute);
    for (int i = 0; i < exec->graph.n; i++)
        log_of_launches[n_logged++] = exec->graph.nodes[i].launch;
    return CUDA_SUCCESS;
}
static CUresult exec_destroy(CUgraphExec exec) {
    free(exec);
    n_execs--;
    return CUDA_SUCCESS;
}
static CUresult graph_destroy(CUgraph graph) {
    free(graph);
    n_graphs--;
    return CUDA_SUCCESS;
}

static const struct driver_api api = {.cuCtxSetCurrent = set_current,
                                      .cuStreamCreateWithPriority = stream_create,
                                      .cuStreamDestroy = stream_destroy,
                                      .cuEventCreate = event_create,
                                      .cuEventDestroy = event_destroy,
                                      .cuEventRecord = event_record,
                                      .cuEventQuery = event_query,
                                      .cuStreamBeginCapture = begin_capture,
                                      .cuStreamGetCaptureInfo = capture_info,
                                      .cuStreamEndCapture = end_capture,
                                      .cuGraphInstantiate = instantiate,
                                      .cuGraphExecKernelNodeSetParams = set_params,
                                      .cuGraphLaunch = launch_graph,
                                      .cuGraphExecDestroy = exec_destroy,
                                      .cuGraphDestroy = graph_destroy};

/* ---- the device ---- */

static struct gpu_device *gpu;
static const struct gpu_function function = {.name = (char *)"part"};
static const int owner, other_owner;

static int setup(void **state) {
    gpu = calloc(1, sizeof *gpu);
    gpu->api = &api;
    gpu->compute = &compute;
    gpu->dnn = gpu_dnn_new();
    pthread_mutex_init(&gpu->lock, NULL);
    gpu_segments_init(gpu, true);
    gpu_outbox_init(gpu);
    n_logged = n_passed = 0;
    return 0;
}

/* All that was made for graphs is given back. */
static int teardown(void **state) {
    gpu_note_ended(gpu, atomic_load(&gpu->memory.enqueued));
    gpu_segments_fini(gpu);
    for (size_t i = 0; i < ARRAY_LEN(gpu->marks); i++)
        if (gpu->marks[i].event)
            gpu_event_put(gpu, gpu->marks[i].event);
    for (int i = 0; i < gpu->n_free_events; i++)
        event_destroy(gpu->free_events[i]);
    gpu_segments_free(gpu);
    gpu_outbox_free(gpu);
    gpu_dnn_free(gpu->dnn);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu);
    assert_int_equal(n_graphs, 0);
    assert_int_equal(n_execs, 0);
    assert_int_equal(n_events, 0);
    return 0;
}

static uint64_t counted(enum device_count which) {
    return atomic_load(&gpu->segments.counts[which]);
}

/* The device has done all that it was given. */
static void catch_up(void) {
    n_passed = n_logged;
    gpu_note_ended(gpu, atomic_load(&gpu->given));
}

/* ---- work ---- */

static struct status *enqueue_part(struct gpu_device *of, const struct gpu_work *work,
                                   CUstream stream) {
    const struct launch *launch = work->args;
    if (stream->capturing)
        stream->capturing->nodes[stream->capturing->n++].launch = *launch;
    else
        log_of_launches[n_logged++] = *launch;
    return NULL;
}

/* Parts of different forms are other launches; a value is an argument that a replay may change. */
static void add_part(const void *whose, uint32_t form, uint32_t part, uint32_t value) {
    struct launch launch = {form, part, value};
    struct gpu_work work = {.enqueue = enqueue_part,
                            .function = &function,
                            .grid = {form * SEGMENT_MAX_WORK + part + 1, 32, 0},
                            .args = &launch,
                            .args_bytes = sizeof launch};
    struct status *st = gpu_segments_add(gpu, whose, &work);
    assert_null(st);
}

/* A step of n parts, whose launches come in this order. */
static void run_step(uint32_t form, uint32_t n) {
    static uint32_t value;
    int before = n_logged;
    value++;
    for (uint32_t i = 0; i < n; i++)
        add_part(&owner, form, i, value);
    gpu_segments_end(gpu, DEVICE_ENDS_IDLE);
    gpu_segments_restart(gpu);
    assert_int_equal(n_logged - before, n);
    for (uint32_t i = 0; i < n; i++) {
        struct launch expected = {form, i, value};
        assert_memory_equal(&log_of_launches[before + (int)i], &expected, sizeof expected);
    }
    if (n_logged > MAX_LOG / 2) {
        catch_up();
        n_logged = n_passed = 0;
    }
}

static bool is_replayed(uint32_t form) {
    uint64_t before = counted(DEVICE_REPLAYS);
    run_step(form, N_PARTS);
    return counted(DEVICE_REPLAYS) == before + 1;
}

/* ---- more forms than graphs ---- */

static void fill(void) {
    for (uint32_t form = 0; form < SEGMENTS_MAX; form++)
        for (int i = 0; i < SEGMENT_RUNS; i++)
            run_step(form, N_PARTS);
    assert_int_equal(counted(DEVICE_CAPTURES), SEGMENTS_MAX);
    assert_int_equal(n_execs, SEGMENTS_MAX);
    catch_up();
}

static void the_graph_that_was_launched_least_recently_is_replaced(void **state) {
    enum { LEAST = 5, NEW = SEGMENTS_MAX };
    fill();
    assert_int_equal(counted(DEVICE_REPLAYS), 0);
    for (uint32_t form = 0; form < SEGMENTS_MAX; form++)
        if (form != LEAST)
            assert_true(is_replayed(form));
    for (int i = 0; i < SEGMENT_RUNS; i++)
        assert_false(is_replayed(NEW));
    assert_int_equal(counted(DEVICE_CAPTURES), SEGMENTS_MAX + 1);
    assert_true(is_replayed(NEW));
    assert_false(is_replayed(LEAST));
    for (uint32_t form = 0; form < SEGMENTS_MAX; form++)
        assert_int_equal(is_replayed(form), form != LEAST);
    assert_int_equal(counted(DEVICE_WORK_REPLAYED), counted(DEVICE_REPLAYS) * N_PARTS);
    assert_int_equal(counted(DEVICE_FAILED), 0);
}

/* Its memory is the driver's again once the device has ended its last launch, not before. */
static void a_replaced_graph_is_freed_when_the_device_has_ended_it(void **state) {
    enum { NEW = SEGMENTS_MAX };
    fill();
    for (uint32_t form = 0; form < SEGMENTS_MAX; form++)
        assert_true(is_replayed(form));
    for (int i = 0; i < SEGMENT_RUNS; i++)
        run_step(NEW, N_PARTS);
    assert_int_equal(counted(DEVICE_CAPTURES), SEGMENTS_MAX + 1);
    assert_int_equal(n_execs, SEGMENTS_MAX + 1);
    run_step(NEW + 1, N_PARTS);
    assert_int_equal(n_execs, SEGMENTS_MAX + 1);
    catch_up();
    run_step(NEW + 1, N_PARTS);
    assert_int_equal(n_execs, SEGMENTS_MAX);
    assert_int_equal(n_graphs, SEGMENTS_MAX);
}

/* Forms that come in turn are counted beside each other, so each gets a graph. */
static void each_of_many_forms_in_turn_is_captured(void **state) {
    enum { N_FORMS = 96 };
    for (int round = 0; round < SEGMENT_RUNS; round++)
        for (uint32_t form = 0; form < N_FORMS; form++)
            run_step(form, N_PARTS);
    assert_int_equal(counted(DEVICE_CAPTURES), N_FORMS);
    for (uint32_t form = 0; form < N_FORMS; form++)
        assert_true(is_replayed(form));
    catch_up();
}

/* As many as there are graphs are replayed, and the others are enqueued part by part: nothing is
 * captured that would be replaced before it comes again. */
static void more_forms_in_turn_than_graphs_capture_no_more(void **state) {
    enum { N_FORMS = SEGMENTS_MAX + 32, N_ROUNDS = 12 };
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t n_replays = counted(DEVICE_REPLAYS);
        for (uint32_t form = 0; form < N_FORMS; form++)
            run_step(form, N_PARTS);
        catch_up();
        assert_true(round < SEGMENT_RUNS || counted(DEVICE_REPLAYS) - n_replays == SEGMENTS_MAX);
    }
    assert_int_equal(counted(DEVICE_CAPTURES), SEGMENTS_MAX);
    assert_int_equal(n_execs, SEGMENTS_MAX);
}

/* Other forms that come instead get the graphs of those that come no more. */
static void forms_that_come_no_more_make_room(void **state) {
    enum { N_NEW = 96 };
    fill();
    for (uint32_t i = 0; i < SEGMENTS_MAX; i++)
        assert_true(is_replayed(i));
    for (int round = 0; round < SEGMENT_RUNS; round++)
        for (uint32_t i = 0; i < N_NEW; i++)
            assert_false(is_replayed(SEGMENTS_MAX + i));
    catch_up();
    for (uint32_t i = 0; i < N_NEW; i++)
        assert_true(is_replayed(SEGMENTS_MAX + i));
    assert_int_equal(counted(DEVICE_CAPTURES), SEGMENTS_MAX + N_NEW);
    assert_int_equal(n_execs, SEGMENTS_MAX);
}

/* ---- how far ahead ---- */

enum { N_AHEAD = GPU_MAX_AHEAD / SEGMENT_MAX_WORK };

/* Graphs of 256 parts are launched until the device is far behind. */
static void get_far_ahead(void) {
    for (int i = 0; i < SEGMENT_RUNS; i++) {
        run_step(0, SEGMENT_MAX_WORK);
        catch_up();
    }
    for (int i = 0; i < N_AHEAD; i++) {
        assert_false(gpu_is_far_ahead(gpu));
        run_step(0, SEGMENT_MAX_WORK);
    }
    assert_int_equal(counted(DEVICE_REPLAYS), N_AHEAD);
    assert_true(gpu_is_far_ahead(gpu));
}

/* Another step has work that is held back. */
static void hold_back(uint32_t n) {
    int before = n_logged;
    for (uint32_t i = 0; i < n; i++)
        add_part(&other_owner, 0, i, 7);
    assert_int_equal(n_logged, before);
    assert_non_null(gpu->segments.candidate);
}

static CUevent take_mark(uint64_t *ret_number) {
    CUevent event;
    struct status *st = gpu_mark_take(gpu, &event, ret_number);
    assert_null(st);
    return event;
}

/* What is held back is not ahead yet: the device would have nothing to do if the step waited. */
static void what_is_held_back_is_not_ahead(void **state) {
    for (int i = 0; i < SEGMENT_RUNS; i++) {
        run_step(0, SEGMENT_MAX_WORK);
        catch_up();
    }
    for (uint32_t i = 0; i < GPU_MAX_AHEAD - 100; i++)
        run_step(1 + i, 1);
    hold_back(SEGMENT_MAX_WORK - 1);
    assert_false(gpu_is_far_ahead(gpu));
    add_part(&other_owner, 0, SEGMENT_MAX_WORK - 1, 7);
    assert_true(gpu_is_far_ahead(gpu));
}

/* The step waits for what the device was given before, and what is held back stays so. */
static void a_step_that_pauses_does_not_end_the_segment(void **state) {
    uint64_t number;
    get_far_ahead();
    hold_back(100);
    int n_launched = n_logged;
    CUevent event = take_mark(&number);
    assert_non_null(event);
    assert_int_equal(n_logged, n_launched);
    assert_int_equal(gpu->segments.n, 100);
    assert_true(event->n_before <= n_launched - SEGMENT_MAX_WORK);
    n_passed = event->n_before;
    gpu_note_ended(gpu, number);
    assert_false(gpu_is_far_ahead(gpu));
    assert_true(atomic_load(&gpu->ended) <= atomic_load(&gpu->memory.enqueued) - 100);
    gpu_event_put(gpu, event);
    for (uint32_t i = 100; i < SEGMENT_MAX_WORK; i++)
        add_part(&other_owner, 0, i, 7);
    assert_int_equal(counted(DEVICE_REPLAYS), N_AHEAD + 1);
    assert_int_equal(counted(DEVICE_INTERRUPTED), 0);
}

/* The marks are taken by others, so the event comes after all that there is: what is held back has
 * to be enqueued first, because the event's number counts it. */
static void without_a_mark_what_is_held_back_is_enqueued(void **state) {
    CUevent taken[MAX_EVENTS];
    uint64_t number;
    int n_taken = 0;
    get_far_ahead();
    int n_given = n_logged;
    do
        taken[n_taken++] = take_mark(&number);
    while (taken[n_taken - 1]->n_before < n_given);
    hold_back(100);
    CUevent event = take_mark(&number);
    assert_int_equal(n_logged, n_given + 100);
    assert_int_equal(event->n_before, n_logged);
    assert_int_equal(number, atomic_load(&gpu->memory.enqueued));
    assert_int_equal(number, atomic_load(&gpu->given));
    assert_int_equal(gpu->segments.n, 0);
    gpu_event_put(gpu, event);
    for (int i = 0; i < n_taken; i++)
        gpu_event_put(gpu, taken[i]);
}

/* Work that is noted was enqueued, so an event may come in the middle of it. */
static void without_a_mark_a_segment_that_is_not_held_back_goes_on(void **state) {
    uint64_t number;
    get_far_ahead();
    for (size_t i = 0; i < ARRAY_LEN(gpu->marks); i++)
        if (gpu->marks[i].event) {
            gpu_event_put(gpu, gpu->marks[i].event);
            gpu->marks[i].event = NULL;
        }
    for (uint32_t i = 0; i < 10; i++)
        add_part(&other_owner, 1, i, 7);
    CUevent event = take_mark(&number);
    assert_int_equal(event->n_before, n_logged);
    assert_int_equal(gpu->segments.n, 10);
    gpu_event_put(gpu, event);
    gpu_segments_end(gpu, DEVICE_ENDS_IDLE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_graph_that_was_launched_least_recently_is_replaced),
        TEST(a_replaced_graph_is_freed_when_the_device_has_ended_it),
        TEST(each_of_many_forms_in_turn_is_captured),
        TEST(more_forms_in_turn_than_graphs_capture_no_more),
        TEST(forms_that_come_no_more_make_room),
        TEST(what_is_held_back_is_not_ahead),
        TEST(a_step_that_pauses_does_not_end_the_segment),
        TEST(without_a_mark_what_is_held_back_is_enqueued),
        TEST(without_a_mark_a_segment_that_is_not_held_back_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
