/* Activities find the spans of a traced step, whatever of them is missing. The driver's events pass
 * one after another, a thousand nanoseconds apart, and CUPTI is the test's: it tells what it is
 * told to tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "kernels/cuda/gpu_trace.h"

enum { EVENT_NS = 1000, MAX_ACTIVITIES = 16, MAX_DEPTH = 8, N_PARTS = 3 };

/* ---- events ---- */

struct CUevent_st {
    int number; /* when it was recorded last; 0: never */
};
static int n_recorded, n_events;

static CUresult event_create(CUevent *ret, unsigned flags) {
    *ret = calloc(1, sizeof **ret);
    n_events++;
    return CUDA_SUCCESS;
}
static CUresult event_record(CUevent event, CUstream stream) {
    event->number = ++n_recorded;
    return CUDA_SUCCESS;
}
static CUresult event_elapsed(float *ret_ms, CUevent start, CUevent end) {
    *ret_ms = (float)(end->number - start->number) * (float)EVENT_NS * 1e-6f;
    return CUDA_SUCCESS;
}
static CUresult event_destroy(CUevent event) {
    free(event);
    n_events--;
    return CUDA_SUCCESS;
}
static CUresult set_current(CUcontext context) { return CUDA_SUCCESS; }

static const struct driver_api api = {.cuEventCreate = event_create,
                                      .cuEventRecord = event_record,
                                      .cuEventElapsedTime = event_elapsed,
                                      .cuEventDestroy = event_destroy,
                                      .cuCtxSetCurrent = set_current};

/* ---- CUPTI ---- */

static uint64_t marks[MAX_DEPTH]; /* pushed */
static int depth, n_recordings, n_reads;
static struct gpu_activity told[MAX_ACTIVITIES];
static size_t n_told, n_late; /* n_late of them only if forced */
static uint64_t number;

bool gpu_recording_begin(struct gpu_recording *recording) {
    recording->number = ++number;
    n_recordings++;
    return true;
}
void gpu_recording_end(struct gpu_recording *recording) { n_recordings--; }
void gpu_activity_push(uint64_t mark) { marks[depth++] = mark; }
void gpu_activity_pop(void) { depth--; }
void gpu_activity_setup(const char *folders, bool is_off) {}
void gpu_activity_describe(struct str *out) {}
struct gpu_activity *gpu_recording_read(struct gpu_recording *recording, bool is_forced,
                                        size_t *ret_n) {
    struct gpu_activity *copy = malloc(sizeof told);
    *ret_n = is_forced ? n_told : n_told - n_late;
    memcpy(copy, told, sizeof told);
    n_reads++;
    return copy;
}

/* The device did something under the mark that is on top. */
static void tell(const char *name, uint64_t graph_node, int64_t start_ns, int64_t end_ns) {
    told[n_told++] = (struct gpu_activity){.mark = marks[depth - 1],
                                           .start_ns = start_ns,
                                           .end_ns = end_ns,
                                           .graph_node = graph_node,
                                           .name = name,
                                           .stream = 7};
}

/* ---- the device ---- */

static struct gpu_device gpu;
static struct device device;
static struct device_trace *trace;
static struct gpu_function functions[] = {{.name = (char *)"mul"}, {.name = (char *)"relu"}};
static int64_t start_ns;

static int setup(void **state) {
    gpu = (struct gpu_device){.api = &api};
    device = (struct device){.allocator = &gpu.allocator};
    pthread_mutex_init(&gpu.lock, NULL);
    n_told = n_late = 0;
    n_reads = depth = 0;
    trace = gpu_trace_new(&device);
    start_ns = clock_now_ns();
    return 0;
}

static int teardown(void **state) {
    gpu_trace_free(trace);
    assert_null(gpu.traces);
    assert_int_equal(depth, 0);
    assert_int_equal(n_recordings, 0);
    assert_int_equal(n_events, 0);
    for (int i = 0; i < gpu.segments.n_captured; i++) {
        free(gpu.segments.captured[i]->activities);
        free(gpu.segments.captured[i]->n_nodes);
        free(gpu.segments.captured[i]);
    }
    status_unref(gpu.failure);
    return 0;
}

/* A node adds a part. */
static int add(struct gpu_work *work, int function) {
    gpu_trace_begin(trace);
    *work = (struct gpu_work){.function = function < 0 ? NULL : &functions[function]};
    gpu_trace_note(&gpu, work);
    return gpu_trace_end(trace);
}

static struct gpu_trace_given give(const struct gpu_work *work, int n,
                                   const struct gpu_segment *segment) {
    return gpu_trace_give_begin(&gpu, work, n, segment);
}

/* A graph of mul, a library's two kernels, relu. */
static struct gpu_segment *segment_new(void) {
    static const int n_nodes[N_PARTS] = {1, 2, 1};
    struct gpu_segment *segment = calloc(1, sizeof *segment);
    segment->n = N_PARTS;
    segment->n_nodes = memcpy(malloc(sizeof n_nodes), n_nodes, sizeof n_nodes);
    segment->n_nodes_sum = 4;
    segment->serial = 5;
    gpu.segments.captured[gpu.segments.n_captured++] = segment;
    return segment;
}

static void add_all(struct gpu_work work[N_PARTS]) {
    static const int which[N_PARTS] = {0, -1, 1};
    for (int i = 0; i < N_PARTS; i++)
        assert_int_equal(add(&work[i], which[i]), i);
}

static void expect_span(int span, int64_t start, int64_t end) {
    int64_t from_ns, to_ns;
    assert_true(gpu_trace_read(trace, span, &from_ns, &to_ns));
    assert_int_equal(from_ns - start_ns, start);
    assert_int_equal(to_ns - start_ns, end);
}

static void expect_activity(int span, size_t n, const char *name) {
    struct device_activity activity;
    bool is_known = gpu_trace_activity(trace, span, n, &activity);
    assert_int_equal(is_known, name != NULL);
    if (!name)
        return;
    assert_string_equal(activity.name, name);
    assert_int_equal(activity.stream, 7);
}

/* The activities of a replay, the one with the number `missing` left out. */
static void replay(struct gpu_work work[N_PARTS], const struct gpu_segment *segment, int missing) {
    static const char *const names[] = {"mul", "gemm", "reduce", "relu"};
    struct gpu_trace_given given = give(work, N_PARTS, segment);
    for (int i = 0; i < 4; i++)
        if (i != missing)
            tell(names[i], (uint64_t)(90 - i), start_ns + 10 * i, start_ns + 10 * i + 5);
    gpu_trace_give_end(&gpu, given);
}

/* ---- tests ---- */

static void parts_that_are_given_alone_have_all_activities_of_their_call(void **state) {
    struct gpu_work work;
    assert_int_equal(add(&work, -1), 0);
    struct gpu_trace_given given = give(&work, 1, NULL);
    tell("gemm", 0, start_ns + 10, start_ns + 20);
    tell("reduce", 0, start_ns + 30, start_ns + 40);
    gpu_trace_give_end(&gpu, given);
    expect_span(0, 10, 40);
    expect_activity(0, 0, "gemm");
    expect_activity(0, 1, "reduce");
    expect_activity(0, 2, NULL);
    assert_int_equal(n_reads, 1); /* nothing is missing */
}

static void nodes_of_a_graph_are_those_of_its_parts(void **state) {
    struct gpu_work work[N_PARTS];
    struct gpu_segment *segment = segment_new();
    add_all(work);
    replay(work, segment, -1);
    expect_span(0, 0, 5);
    expect_span(1, 10, 25);
    expect_span(2, 30, 35);
    expect_activity(1, 0, "gemm");
    expect_activity(1, 1, "reduce");
    assert_int_equal(segment->activities[3], 87);
}

static void a_missing_node_lasts_from_its_neighbour_to_its_neighbour(void **state) {
    struct gpu_work work[N_PARTS];
    struct gpu_segment *segment = segment_new();
    add_all(work);
    replay(work, segment, -1);
    expect_span(0, 0, 5);
    gpu_trace_free(trace);
    trace = gpu_trace_new(&device);
    n_told = 0;
    add_all(work);
    replay(work, segment, 0);
    expect_span(0, 10, 10); /* the events say that the graph began not later than the second part */
    expect_activity(0, 0, NULL);
    expect_span(1, 10, 25);
    expect_span(2, 30, 35);
    assert_int_equal(n_reads, 3); /* once more, because it was missing */
}

static void one_of_two_nodes_of_a_part_is_found_by_the_order(void **state) {
    struct gpu_work work[N_PARTS];
    struct gpu_segment *segment = segment_new();
    add_all(work);
    replay(work, segment, 1);
    expect_span(0, 0, 5);
    expect_span(1, 5, 30); /* from its neighbour to its neighbour: half of it is missing */
    expect_span(2, 30, 35);
    expect_activity(1, 0, "reduce");
    expect_activity(1, 1, NULL);
    assert_int_equal(segment->activities[0], 90);
    assert_int_equal(segment->activities[1], 0); /* it may have been either one */
    assert_int_equal(segment->activities[3], 87);
}

/* Three parts are one kernel each, the same one. */
static void an_activity_that_may_be_of_two_parts_is_nobody_s(void **state) {
    struct gpu_work work[N_PARTS];
    struct gpu_segment *segment = segment_new();
    int64_t from_ns, to_ns;
    segment->n_nodes[1] = 1;
    segment->n_nodes_sum = N_PARTS;
    for (int i = 0; i < N_PARTS; i++)
        add(&work[i], 0);
    for (int is_known = 0; is_known < 2; is_known++) {
        struct gpu_trace_given given = give(work, N_PARTS, segment);
        if (is_known)
            tell("mul", 70, start_ns, start_ns + 5);
        tell("mul", 71, start_ns + 10, start_ns + 20);
        if (is_known)
            tell("mul", 72, start_ns + 30, start_ns + 40);
        gpu_trace_give_end(&gpu, given);
    }
    assert_true(gpu_trace_read(trace, 0, &from_ns, &to_ns));
    assert_int_equal(trace->parts[1].n_found, 0);
    assert_int_equal(trace->parts[N_PARTS + 1].n_found, 1);
    assert_int_equal(segment->activities[1], 71);
    /* From now on it is known. */
    gpu_trace_free(trace);
    trace = gpu_trace_new(&device);
    n_told = 0;
    for (int i = 0; i < N_PARTS; i++)
        add(&work[i], 0);
    struct gpu_trace_given given = give(work, N_PARTS, segment);
    tell("mul", 71, start_ns + 10, start_ns + 20);
    gpu_trace_give_end(&gpu, given);
    expect_span(1, 10, 20);
    expect_activity(0, 0, NULL);
    expect_activity(1, 0, "mul");
}

static void activities_in_another_order_are_not_believed(void **state) {
    struct gpu_work work[N_PARTS];
    struct gpu_segment *segment = segment_new();
    add_all(work);
    struct gpu_trace_given given = give(work, N_PARTS, segment);
    tell("relu", 0, start_ns, start_ns + 10);
    tell("mul", 0, start_ns + 30, start_ns + 40);
    gpu_trace_give_end(&gpu, given);
    int64_t from_ns, to_ns;
    for (int i = 0; i < N_PARTS; i++) {
        assert_true(gpu_trace_read(trace, i, &from_ns, &to_ns));
        expect_activity(i, 0, NULL);
    }
}

static void kernels_of_another_name_are_not_believed(void **state) {
    struct gpu_work work[N_PARTS];
    struct gpu_segment *segment = segment_new();
    int64_t from_ns, to_ns;
    add_all(work);
    replay(work, segment, -1);
    told[3].name = "another";
    for (int i = 0; i < N_PARTS; i++) {
        assert_true(gpu_trace_read(trace, i, &from_ns, &to_ns));
        assert_int_equal(to_ns - from_ns, EVENT_NS);
        expect_activity(i, 0, NULL);
    }
}

static void records_that_are_late_are_asked_for_again(void **state) {
    struct gpu_work work;
    assert_int_equal(add(&work, 0), 0);
    struct gpu_trace_given given = give(&work, 1, NULL);
    tell("mul", 0, start_ns + 10, start_ns + 20);
    gpu_trace_give_end(&gpu, given);
    n_late = 1;
    expect_span(0, 10, 20);
    assert_int_equal(n_reads, 2);
}

static void times_that_cannot_be_are_left_out(void **state) {
    struct gpu_work work;
    int64_t from_ns, to_ns;
    assert_int_equal(add(&work, 0), 0);
    struct gpu_trace_given given = give(&work, 1, NULL);
    tell("mul", 0, 0, 0);
    tell("mul", 0, start_ns + 20, start_ns + 10);
    tell("mul", 0, start_ns, INT64_MAX);
    gpu_trace_give_end(&gpu, given);
    assert_true(gpu_trace_read(trace, 0, &from_ns, &to_ns));
    assert_int_equal(to_ns - from_ns, EVENT_NS);
    assert_true(to_ns <= clock_now_ns());
    expect_activity(0, 0, NULL);
}

static void what_is_enqueued_at_once_is_its_node_s(void **state) {
    gpu_trace_begin(trace);
    gpu_trace_touch(&gpu);
    gpu_trace_touch(&gpu); /* the lock is taken twice */
    tell("convolve", 0, start_ns + 10, start_ns + 20);
    atomic_fetch_add(&gpu.memory.enqueued, 1);
    assert_int_equal(depth, 1);
    assert_int_equal(gpu_trace_end(trace), 0);
    assert_int_equal(depth, 0);
    expect_span(0, 10, 20);
}

static void a_node_that_enqueues_nothing_has_no_span(void **state) {
    gpu_trace_begin(trace);
    gpu_trace_touch(&gpu);
    assert_int_equal(gpu_trace_end(trace), -1);
    gpu_trace_begin(trace);
    assert_int_equal(gpu_trace_end(trace), -1);
    struct gpu_work work;
    assert_int_equal(add(&work, 0), 0);
}

static void work_of_others_has_nobody_s_mark(void **state) {
    struct gpu_work work = {.function = &functions[0]};
    gpu_trace_note(&gpu, &work); /* by a thread that is in no span */
    assert_int_equal(work.trace, 0);
    gpu_trace_begin(trace);
    gpu_trace_touch(&gpu);
    struct gpu_trace_given given = give(&work, 1, NULL);
    assert_null(given.trace);
    assert_int_equal(marks[depth - 1], 0);
    gpu_trace_give_end(&gpu, given);
    assert_int_equal(depth, 1);
    assert_int_equal(gpu_trace_end(trace), -1);
}

/* Work that was held back may be given after its trace was freed. */
static void a_freed_trace_is_not_found(void **state) {
    struct gpu_work work;
    assert_int_equal(add(&work, 0), 0);
    gpu_trace_free(trace);
    trace = gpu_trace_new(&device);
    struct gpu_trace_given given = give(&work, 1, NULL);
    assert_null(given.trace);
    gpu_trace_give_end(&gpu, given);
}

static void a_device_that_has_failed_tells_nothing(void **state) {
    struct gpu_work work;
    int64_t from_ns, to_ns;
    assert_int_equal(add(&work, 0), 0);
    struct gpu_trace_given given = give(&work, 1, NULL);
    tell("mul", 0, start_ns + 10, start_ns + 20);
    gpu_trace_give_end(&gpu, given);
    atomic_store(&gpu.failure, status_internal("lost"));
    assert_false(gpu_trace_read(trace, 0, &from_ns, &to_ns));
    assert_int_equal(n_reads, 0);
}

static void spans_have_a_limit(void **state) {
    struct gpu_work work;
    for (int i = 0; i < TRACE_MAX_SPANS; i++)
        assert_int_equal(add(&work, 0), i);
    assert_int_equal(add(&work, 0), -1);
    assert_int_equal(work.trace, 0);
}

static void groups_have_a_limit(void **state) {
    struct gpu_work work;
    assert_int_equal(add(&work, 0), 0);
    for (int i = 0; i < TRACE_MAX_GROUPS; i++) {
        struct gpu_trace_given given = give(&work, 1, NULL);
        assert_ptr_equal(given.trace, trace);
        gpu_trace_give_end(&gpu, given);
    }
    struct gpu_trace_given given = give(&work, 1, NULL);
    assert_null(given.trace);
    gpu_trace_give_end(&gpu, given);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(parts_that_are_given_alone_have_all_activities_of_their_call),
        TEST(nodes_of_a_graph_are_those_of_its_parts),
        TEST(a_missing_node_lasts_from_its_neighbour_to_its_neighbour),
        TEST(one_of_two_nodes_of_a_part_is_found_by_the_order),
        TEST(an_activity_that_may_be_of_two_parts_is_nobody_s),
        TEST(activities_in_another_order_are_not_believed),
        TEST(kernels_of_another_name_are_not_believed),
        TEST(records_that_are_late_are_asked_for_again),
        TEST(times_that_cannot_be_are_left_out),
        TEST(what_is_enqueued_at_once_is_its_node_s),
        TEST(a_node_that_enqueues_nothing_has_no_span),
        TEST(work_of_others_has_nobody_s_mark),
        TEST(a_freed_trace_is_not_found),
        TEST(a_device_that_has_failed_tells_nothing),
        TEST(spans_have_a_limit),
        TEST(groups_have_a_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
