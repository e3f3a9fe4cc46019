/* Records a traced step: one row per node that ran, and one for what it did on a device. Only the
 * owner writes, so there is no lock.
 *
 * A node of a device is done once its work is enqueued. The device's events say when it did the
 * work, which is known at the end of the step: then the spans become rows of their own. Those of
 * copies replace the times of the copies' rows. */
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>

#include "common/base/clock.h"
#include "worker/executor/executor_internal.h"

/* What a device did for a node. `row` is the copy's, SIZE_MAX for a kernel. */
struct stats_span {
    const struct plan_node *node;
    size_t row;
    int number;
};
/* One for each device that the plan uses. */
struct stats_device {
    struct device *device;
    struct device_trace *trace; /* NULL: it tells no times, or they are read */
    char *stream;
    struct stats_stream {
        uint32_t number;
        char *name;
    } * streams; /* those on which it did something */
    size_t n_streams;
    struct stats_span *spans;
    size_t n_spans, capacity;
};

static void begin_devices(struct step_stats *stats, enum execution_stats level) {
    const struct plan *plan = stats->plan;
    if (plan->n_used_devices == 0 || level < EXECUTION_STATS_ALL)
        return;
    stats->devices = xcalloc(plan->n_used_devices, sizeof *stats->devices);
    for (uint32_t i = 0; i < plan->n_used_devices; i++) {
        struct stats_device *device = &stats->devices[i];
        struct str name = STR_INIT;
        device->device = plan->used_devices[i];
        str_addf(&name, "%s/stream:all", device->device->full_name);
        device->stream = str_detach(&name);
        if (device->device->ops->trace_new)
            device->trace = device->device->ops->trace_new(device->device);
    }
}

/* The device on whose stream the node enqueues, if it tells times. */
static struct stats_device *find_device(const struct executor *executor,
                                        const struct plan_node *node) {
    const struct plan *plan = executor->plan;
    const struct allocator *allocator = NULL;
    if (node->kind == PLAN_COPY && plan->copies[node->aux].dst)
        allocator = plan->copies[node->aux].dst->allocator;
    else if (node->kind <= PLAN_KERNEL_ASYNC)
        allocator = node->instance->allocator;
    for (uint32_t i = 0; executor->stats->devices && i < plan->n_used_devices; i++)
        if (executor->stats->devices[i].device->allocator == allocator)
            return executor->stats->devices[i].trace ? &executor->stats->devices[i] : NULL;
    return NULL;
}

void stats_enqueue_begin(struct executor *executor, const struct plan_node *node) {
    struct stats_device *device = find_device(executor, node);
    if (device)
        device->device->ops->trace_begin(device->trace);
}

void stats_enqueue_end(struct executor *executor, const struct plan_node *node, bool has_row) {
    struct stats_device *device = find_device(executor, node);
    int number = device ? device->device->ops->trace_end(device->trace) : -1;
    bool is_copy = node->kind == PLAN_COPY;
    size_t n_nodes = executor->stats->n_nodes;
    if (number < 0 || (is_copy && (!has_row || n_nodes == 0)))
        return; /* a copy that has not ended is told by the host */
    if (device->n_spans == device->capacity) {
        device->capacity = MAX((size_t)64, device->capacity * 2);
        device->spans = xreallocarray(device->spans, device->capacity, sizeof *device->spans);
    }
    device->spans[device->n_spans++] =
        (struct stats_span){node, is_copy ? n_nodes - 1 : SIZE_MAX, number};
}

void stats_begin(struct executor *executor) {
    struct execution *execution = executor->execution;
    struct step_stats *stats =
        execution->spare_stats ? execution->spare_stats : xcalloc(1, sizeof *stats);
    execution->spare_stats = NULL;
    stats->plan = plan_ref(executor->plan);
    stats->start_ns = clock_now_ns();
    stats->start_wall_us = clock_wall_us();
    stats->clock_ahead_us = 0;
    executor->stats = stats;
    begin_devices(stats, execution->stats_level);
}

static uint32_t thread_id(void) {
    static _Thread_local uint32_t id;
    if (!id)
        id = (uint32_t)syscall(SYS_gettid);
    return id;
}

/* A loop may run without end. Nodes that run later are counted, but not recorded. */
enum { STATS_MAX_NODES = 1 << 18 };

struct node_stats *stats_node(struct executor *executor, const struct plan_node *node,
                              int64_t start_ns, int64_t end_ns, const struct tensor *output) {
    struct step_stats *stats = executor->stats;
    bool is_all = executor->execution->stats_level == EXECUTION_STATS_ALL;
    if (unlikely(stats->n_nodes >=
                 (is_all ? (size_t)STATS_MAX_NODES : (size_t)EXECUTION_STATS_MAX_ROWS))) {
        stats->n_left_out++;
        executor->times_nodes = is_all; /* the time of reading clocks is limited, too */
        return NULL;
    }
    if (stats->n_nodes == stats->capacity) {
        stats->capacity = MAX((size_t)64, stats->capacity * 2);
        stats->nodes = xreallocarray(stats->nodes, stats->capacity, sizeof *stats->nodes);
    }
    struct node_stats *row = &stats->nodes[stats->n_nodes++];
    *row = (struct node_stats){.node = node,
                               .scheduled_ns = start_ns,
                               .start_ns = start_ns,
                               .end_ns = MAX(start_ns, end_ns),
                               .thread_id = thread_id()};
    if (output && tensor_has_value(output)) {
        row->output.dtype = output->dtype;
        row->output.rank = output->rank;
        memcpy(row->output.dims, tensor_dims(output),
               sizeof(int64_t) * (size_t)MIN((int)output->rank, (int)TENSOR_INLINE_RANK));
        row->output.size_bytes = (int64_t)tensor_size_bytes(output);
    }
    return row;
}

/* ---- sends ---- */

size_t stats_send_begin(struct executor *executor, const struct iteration *iteration,
                        const struct plan_node *node, const struct tensor *value) {
    struct step_stats *stats = executor->stats;
    size_t number = stats->n_nodes;
    struct node_stats *row = stats_node(executor, node, clock_now_ns(), 0, value);
    if (!row)
        return SIZE_MAX;
    row->frame_iter = iteration->frame_iter;
    return number;
}

void stats_send_end(struct executor *executor, size_t row) {
    if (row != SIZE_MAX)
        executor->stats->nodes[row].end_ns = clock_now_ns();
}

void stats_send_undo(struct executor *executor, size_t row) {
    if (row == SIZE_MAX)
        executor->stats->n_left_out--;
    else
        executor->stats->n_nodes = row;
}

void stats_async_node(struct executor *executor, const struct async_op *op,
                      const struct tensor *output) {
    if (op->node->kind == PLAN_SEND) {
        stats_send_end(executor, op->row);
        return;
    }
    struct node_stats *row =
        op->started_ns ? stats_node(executor, op->node, op->started_ns, op->ended_ns, output)
                       : stats_node(executor, op->node, op->since_ns, clock_now_ns(), output);
    if (!row)
        return;
    row->scheduled_ns = op->since_ns;
    row->busy_ns = op->started_ns ? op->busy_ns : 0;
    if (op->node->kind == PLAN_RECV)
        row->frame_iter = op->iteration->frame_iter;
}

static const char *stream_name(struct stats_device *device, uint32_t number) {
    for (size_t i = 0; i < device->n_streams; i++)
        if (device->streams[i].number == number)
            return device->streams[i].name;
    struct str name = STR_INIT;
    str_addf(&name, "%s/stream:%u", device->device->full_name, number);
    device->streams =
        xreallocarray(device->streams, device->n_streams + 1, sizeof *device->streams);
    device->streams[device->n_streams] = (struct stats_stream){number, str_detach(&name)};
    return device->streams[device->n_streams++].name;
}

/* A row for each thing that the device did for a node. */
static void add_activities(struct executor *executor, struct stats_device *device,
                           const struct stats_span *span) {
    const struct device_ops *ops = device->device->ops;
    struct device_activity activity;
    for (size_t n = 0;
         ops->trace_activity && ops->trace_activity(device->trace, span->number, n, &activity);
         n++) {
        struct node_stats *row =
            stats_node(executor, span->node, activity.start_ns, activity.end_ns, NULL);
        if (!row)
            return;
        row->stream = stream_name(device, activity.stream);
        row->activity = activity.name;
    }
}

static void end_device(struct executor *executor, struct stats_device *device) {
    const struct device_ops *ops = device->device->ops;
    struct step_stats *stats = executor->stats;
    int64_t start_ns, end_ns;
    for (size_t i = 0; i < device->n_spans; i++) {
        const struct stats_span *span = &device->spans[i];
        if (!ops->trace_read(device->trace, span->number, &start_ns, &end_ns))
            continue;
        struct node_stats *row = span->row == SIZE_MAX ? NULL : &stats->nodes[span->row];
        if (!row) {
            row = stats_node(executor, span->node, start_ns, end_ns, NULL);
            if (row)
                row->stream = device->stream;
            add_activities(executor, device, span);
        } else if (row->node == span->node) {
            row->start_ns = start_ns;
            row->end_ns = end_ns;
        }
    }
    ops->trace_free(device->trace);
    device->trace = NULL;
}

void stats_end(struct executor *executor) {
    struct step_stats *stats = executor->stats;
    for (uint32_t i = 0; stats->devices && i < stats->plan->n_used_devices; i++)
        if (stats->devices[i].trace)
            end_device(executor, &stats->devices[i]);
}

static void devices_free(struct step_stats *stats) {
    for (uint32_t i = 0; stats->devices && i < stats->plan->n_used_devices; i++) {
        for (size_t k = 0; k < stats->devices[i].n_streams; k++)
            free(stats->devices[i].streams[k].name);
        free(stats->devices[i].streams);
        free(stats->devices[i].stream);
        free(stats->devices[i].spans);
    }
    free(stats->devices);
}

void step_stats_free(struct step_stats *stats) {
    if (!stats)
        return;
    devices_free(stats);
    plan_unref(stats->plan);
    free(stats->nodes);
    free(stats);
}

struct step_stats *step_stats_reset(struct step_stats *stats_take) {
    enum { KEPT_ROWS = 256 };
    if (!stats_take || stats_take->capacity > KEPT_ROWS || stats_take->devices) {
        step_stats_free(stats_take);
        return NULL;
    }
    plan_unref(stats_take->plan);
    stats_take->plan = NULL;
    stats_take->n_nodes = stats_take->n_left_out = 0;
    return stats_take;
}
