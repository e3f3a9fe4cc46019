/* Tells the simulated CUPTI which operations are enqueued, and when they ran. */
#include "tests/cuda/sim/driver.h"

static _Atomic(void (*)(const struct sim_operation *)) watcher;
static atomic_uint n_calls; /* that enqueued something */

/* The launch of a graph that this thread makes. */
static _Thread_local struct {
    bool is_begun;
    uint32_t call;
    uint64_t node;
} launch;

void watch_graph_begin(void) {
    launch.is_begun = true;
    launch.call = atomic_fetch_add(&n_calls, 1) + 1;
}

void watch_graph_node(uint64_t number) { launch.node = number; }

void watch_graph_end(void) {
    launch.is_begun = false;
    launch.node = 0;
}

static bool is_watched(uint32_t command) {
    return command == SIM_KERNEL || command == SIM_HOST || command == SIM_COPY_IN ||
           command == SIM_COPY_OUT || command == SIM_COPY || command == SIM_FILL;
}

void watch_operation(const struct sim_message *message, const void *bytes) {
    void (*watch)(const struct sim_operation *) = atomic_load(&watcher);
    if (watch == NULL || !is_watched(message->command))
        return;
    struct sim_operation operation = {.command = message->command,
                                      .device = message->device,
                                      .stream = message->stream,
                                      .clock = message->clock,
                                      .call = launch.is_begun ? launch.call
                                                              : atomic_fetch_add(&n_calls, 1) + 1,
                                      .graph_node = launch.is_begun ? launch.node : 0,
                                      .size = message->size};
    if (message->command == SIM_KERNEL)
        operation.kernel = kernel_name(((const struct sim_launch *)bytes)->kernel);
    else if (message->command == SIM_HOST)
        operation.kernel = "library";
    watch(&operation);
}

EXPORTED CUresult simWatchOperations(void (*watch)(const struct sim_operation *)) {
    struct sim_message message = {.command = SIM_TIME, .value = 1};
    struct sim_answer answer;
    atomic_store(&watcher, watch);
    if (watch == NULL)
        return CUDA_SUCCESS;
    link_lock();
    return link_request(&message, NULL, &answer);
}

EXPORTED CUresult simOperationTime(const struct sim_operation *operation, uint64_t *ret_start_ns,
                                   uint64_t *ret_end_ns) {
    struct sim_message message = {.command = SIM_TIME,
                                  .device = operation->device,
                                  .stream = operation->stream,
                                  .clock = operation->clock};
    struct sim_answer answer;
    link_lock();
    TRY(link_request(&message, NULL, &answer));
    *ret_start_ns = answer.value;
    *ret_end_ns = answer.value2;
    return CUDA_SUCCESS;
}
