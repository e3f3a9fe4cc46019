/* Reads the traces of sampled steps. Field numbers are those of TensorFlow's step_stats.proto. */
#include "master/step/cost_samples.h"

#include <stdlib.h>

#include "master/compile/cost/cost_rows.h"
#include "master/compile/cost/expected_shapes.h"
#include "master/step/trace_nodes.h"
#include "rpc/wire/step_messages.h"

/* What the traces say of one node or program. */
struct sample {
    double total_ns;
    int64_t n;
    /* Of output 0: how many values had the rank of the first one, and the sums of their sizes. */
    int64_t n_sized;
    int rank;
    double dims[TENSOR_INLINE_RANK];
};

bool cost_sample_is_due(const struct compiled *compiled, struct last_sample last,
                        int64_t unsampled_ns) {
    int64_t n_nodes = 0;
    for (int i = 0; i < compiled->n_partitions; i++)
        n_nodes += compiled->partitions[i].graph.n_live;
    int64_t reckoned_ns = SAMPLE_STEP_NS + MAX(n_nodes, last.rows) * SAMPLE_NODE_NS;
    return compiled->n_costs > 0 && unsampled_ns / SAMPLE_EVERY >= MAX(reckoned_ns, last.ns);
}

static void read_output(struct span in, struct sample *sample) {
    struct trace_output output;
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    if (!trace_read_output(in, &output))
        return;
    if (!proto_read_shape(output.shape, dims, &rank) || rank < 0 || rank > TENSOR_INLINE_RANK ||
        (sample->n_sized > 0 && rank != sample->rank))
        return;
    for (int d = 0; d < rank; d++)
        if (dims[d] < 0)
            return;
    sample->n_sized++;
    sample->rank = rank;
    for (int d = 0; d < rank; d++)
        sample->dims[d] += (double)dims[d];
}

/* NodeExecStats {node_name 1, output 7, all_end_rel_nanos 16, TRACE_BUSY_NANOS}. The time that
 * passed counts only where nothing better is known: other work on the host lengthens it. */
static void read_node(struct span in, const struct strmap *by_name) {
    struct proto_field field;
    struct sample *sample = NULL;
    struct span output = {"", 0};
    uint64_t elapsed_ns = 0, busy_ns = 0;
    while (proto_next(&in, &field) > 0)
        if (proto_field_is(&field, 1, 2))
            sample = strmap_get_span(by_name, field.bytes);
        else if (proto_field_is(&field, 7, 2))
            output = output.len > 0 ? output : field.bytes;
        else if (proto_field_is(&field, 16, 0))
            elapsed_ns = field.value;
        else if (proto_field_is(&field, TRACE_BUSY_NANOS, 0))
            busy_ns = field.value;
    uint64_t ns = busy_ns > 0 ? busy_ns : elapsed_ns;
    if (sample && output.len > 0)
        read_output(output, sample);
    if (!sample || ns == 0 || (double)ns > COST_MAX_NS)
        return;
    sample->total_ns += (double)ns;
    sample->n++;
}

struct noting {
    struct cost_table *table;
    int64_t n; /* executions */
};

static void note_share(void *arg, const struct compiled_cost *cost, double ns) {
    const struct noting *noting = arg;
    cost_table_note(noting->table, cost->key, ns / cost->slowness, noting->n);
}

static void note_times(const struct compiled *compiled, const struct sample *samples,
                       struct cost_table *table) {
    for (int i = 0; i < compiled->n_costs; i++) {
        struct noting noting = {table, MIN(samples[i].n, (int64_t)COST_MAX_COUNT)};
        if (samples[i].n > 0)
            cost_rows_share(compiled, i, samples[i].total_ns / (double)samples[i].n, note_share,
                            &noting);
    }
}

static void note_sizes(const struct compiled *compiled, const struct strmap *by_name,
                       struct cost_table *table) {
    for (int i = 0; i < compiled->n_sizes; i++) {
        const struct compiled_size *size = &compiled->sizes[i];
        struct sample *sample = size->node ? strmap_get(by_name, size->node) : NULL;
        if (!sample || sample->n_sized == 0)
            continue;
        double dims[TENSOR_INLINE_RANK];
        for (int d = 0; d < sample->rank; d++)
            dims[d] = sample->dims[d] / (double)sample->n_sized;
        expected_size_note(size, dims, sample->rank, MIN(sample->n_sized, (int64_t)COST_MAX_COUNT),
                           table);
    }
}

void cost_samples_note(const struct compiled *compiled, const struct span *traces, int n_traces,
                       struct cost_table *table) {
    int n_samples = compiled->n_costs + compiled->n_sizes;
    struct sample *samples = xcalloc((size_t)n_samples + 1, sizeof *samples);
    struct strmap by_name;
    strmap_init(&by_name);
    for (int i = 0; i < compiled->n_costs; i++)
        if (compiled->costs[i].node)
            strmap_put(&by_name, compiled->costs[i].node, &samples[i]);
    for (int i = 0; i < compiled->n_sizes; i++) {
        const char *node = compiled->sizes[i].node;
        if (node && !strmap_get(&by_name, node))
            strmap_put(&by_name, node, &samples[compiled->n_costs + i]);
    }
    for (int i = 0; i < n_traces; i++)
        trace_for_each_node(traces[i], &by_name, read_node);
    note_times(compiled, samples, table);
    note_sizes(compiled, &by_name, table);
    strmap_fini(&by_name);
    free(samples);
}

void cost_samples_note_feeds(const struct compiled *compiled, const struct tensor *feeds,
                             const bool *is_passed_on, struct cost_table *table) {
    for (int i = 0; i < compiled->n_sizes; i++) {
        const struct compiled_size *size = &compiled->sizes[i];
        if (size->node || is_passed_on[size->feed])
            continue;
        const struct tensor *feed = &feeds[size->feed];
        double dims[SHAPE_MAX_RANK];
        for (int d = 0; d < feed->rank; d++)
            dims[d] = (double)tensor_dims(feed)[d];
        expected_size_note(size, dims, feed->rank, 1, table);
    }
}
