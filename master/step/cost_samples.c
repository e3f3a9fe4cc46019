/* Reads the traces of sampled steps. Field numbers are those of TensorFlow's step_stats.proto. */
#include "master/step/cost_samples.h"

#include <stdlib.h>

#include "master/compile/cost/cost_rows.h"
#include "master/step/trace_nodes.h"
#include "rpc/wire/step_messages.h"

/* What the traces say of one node or program. */
struct sample {
    double total_ns;
    int64_t n;
};

bool cost_sample_is_due(const struct compiled *compiled, struct last_sample last,
                        int64_t unsampled_ns) {
    int64_t n_nodes = 0;
    for (int i = 0; i < compiled->n_partitions; i++)
        n_nodes += compiled->partitions[i].graph.n_live;
    int64_t reckoned_ns = SAMPLE_STEP_NS + MAX(n_nodes, last.rows) * SAMPLE_NODE_NS;
    return compiled->n_costs > 0 && unsampled_ns / SAMPLE_EVERY >= MAX(reckoned_ns, last.ns);
}

/* NodeExecStats {node_name 1, all_end_rel_nanos 16, TRACE_BUSY_NANOS}. The time that passed counts
 * only where nothing better is known: other work on the host lengthens it. */
static void read_node(struct span in, const struct strmap *by_name) {
    struct proto_field field;
    struct sample *sample = NULL;
    uint64_t elapsed_ns = 0, busy_ns = 0;
    while (proto_next(&in, &field) > 0)
        if (proto_field_is(&field, 1, 2))
            sample = strmap_get_span(by_name, field.bytes);
        else if (proto_field_is(&field, 16, 0))
            elapsed_ns = field.value;
        else if (proto_field_is(&field, TRACE_BUSY_NANOS, 0))
            busy_ns = field.value;
    uint64_t ns = busy_ns > 0 ? busy_ns : elapsed_ns;
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

void cost_samples_note(const struct compiled *compiled, const struct span *traces, int n_traces,
                       struct cost_table *table) {
    struct sample *samples = xcalloc((size_t)compiled->n_costs + 1, sizeof *samples);
    struct strmap by_name;
    strmap_init(&by_name);
    for (int i = 0; i < compiled->n_costs; i++)
        if (compiled->costs[i].node)
            strmap_put(&by_name, compiled->costs[i].node, &samples[i]);
    for (int i = 0; i < n_traces; i++)
        trace_for_each_node(traces[i], &by_name, read_node);
    for (int i = 0; i < compiled->n_costs; i++) {
        struct noting noting = {table, MIN(samples[i].n, (int64_t)COST_MAX_COUNT)};
        if (samples[i].n > 0)
            cost_rows_share(compiled, i, samples[i].total_ns / (double)samples[i].n, note_share,
                            &noting);
    }
    strmap_fini(&by_name);
    free(samples);
}
