/* Compiles a client's graph for a task with one GPU, and adds the plan's copies (step_plan.h). */
#include "tests/tools/step_plan.h"

#include <stdlib.h>

#include "common/graph/graph_proto.h"
#include "common/graph/internal_ops.h"
#include "common/graph/references.h"

#define TASK "/job:worker/replica:0/task:0"
enum { CPU, GPU, N_DEVICES };

/* No copy is started: that the GPU has a memory of its own is all that a plan wants to know. */
static const struct device_ops no_ops;
static struct device devices[N_DEVICES] = {
    {.full_name = TASK "/device:CPU:0", .type = "CPU"},
    {.full_name = TASK "/device:GPU:0", .type = "GPU", .ops = &no_ops}};
const struct plan_options step_plan_options = {.devices = devices, .n_devices = N_DEVICES};

static struct device_table *one_task(void) {
    struct device_table *table = device_table_new();
    device_table_add(table, TASK, "localhost:1", NULL, 1);
    for (int i = 0; i < N_DEVICES; i++)
        device_table_add_device(table, devices[i].full_name, devices[i].type, 0, 1, "");
    device_table_finish(table);
    return table;
}

static struct status *add_copies(struct graph *graph) {
    struct graph_consumers consumers;
    graph_consumers_init(&consumers, graph);
    bool *is_reference = graph_find_references(graph, &consumers);
    graph_consumers_fini(&consumers);
    struct status *st = plan_add_copies(graph, &step_plan_options, is_reference);
    free(is_reference);
    return st;
}

struct status *step_plan_init(struct step_plan *plan, struct span graphdef) {
    const char *fetches[] = {"loss:0"}, *targets[] = {"step"};
    struct signature signature = {NULL, fetches, targets, 0, 1, 1};
    struct graph_limits limits;
    struct compile_options options;
    *plan = (struct step_plan){.table = one_task()};
    graph_init(&plan->client);
    graph_limits_default(&limits);
    compile_options_default(&options);
    options.allow_soft_placement = true;
    options.fold_budget_ns = 60 * INT64_C(1000000000);
    TRY(graph_add_graphdef(&plan->client, graphdef, &limits));
    TRY(place_session(&plan->client, plan->table, &options));
    TRY(compile_step(&plan->client, &signature, plan->table, &options, NULL, &plan->compiled));
    CHECK(plan->compiled->n_partitions == 1);
    plan->graph = &plan->compiled->partitions[0].graph;
    return add_copies(plan->graph);
}

void step_plan_fini(struct step_plan *plan) {
    if (plan->compiled)
        compiled_free(plan->compiled);
    graph_fini(&plan->client);
    device_table_unref(plan->table);
}

bool step_plan_output_is_on_gpu(const struct node *node, int output) {
    if (!node_is_op(node, OP_COPY))
        return plan_output_memory(&step_plan_options, node, output) == GPU;
    struct span to = {NULL, 0};
    status_unref(node_get_s(node, "dst_device", &to));
    return to.len > 0;
}
