/* Records a traced step: one row per node that ran. Only the owner writes, so there is no lock. */
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>

#include "common/base/clock.h"
#include "worker/executor/executor_internal.h"

void stats_begin(struct executor *executor) {
    struct step_stats *stats = xcalloc(1, sizeof *stats);
    stats->plan = plan_ref(executor->plan);
    stats->start_ns = clock_now_ns();
    stats->start_wall_us = clock_wall_us();
    executor->stats = stats;
}

static uint32_t thread_id(void) {
    static _Thread_local uint32_t id;
    if (!id)
        id = (uint32_t)syscall(SYS_gettid);
    return id;
}

/* A loop may run without end. Nodes that run later are counted, but not recorded. */
enum { STATS_MAX_NODES = 1 << 18 };

void stats_node(struct executor *executor, const struct plan_node *node, int64_t start_ns,
                int64_t end_ns, const struct tensor *output) {
    struct step_stats *stats = executor->stats;
    if (unlikely(stats->n_nodes >= STATS_MAX_NODES)) {
        stats->n_left_out++;
        return;
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
}

void step_stats_free(struct step_stats *stats) {
    if (!stats)
        return;
    plan_unref(stats->plan);
    free(stats->nodes);
    free(stats);
}
