/* Estimates times of nodes and sizes of values (cost_estimate.h). */
#include "master/compile/cost/cost_estimate.h"

#include <string.h>

#include "common/graph/fused.h"
#include "kernels/cost.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/cost/cost_table.h"
#include "master/compile/cost/expected_shapes.h"
#include "master/compile/cost/link_table.h"

enum { MIN_STRING_BYTES = 24 };

static const double DISPATCH_NS = 20; /* of any node, beside its kernel */

/* A copy to or from a GPU of the same task: 10 us, 12 GB/s. */
static const struct schedule_link WITHIN_TASK = {0, 0}, TO_GPU = {10000, 0.08};

void cost_estimates_init(struct cost_estimates *estimates, struct compilation *c,
                         struct arena *arena) {
    *estimates = (struct cost_estimates){.c = c,
                                         .shapes = expected_shapes(c),
                                         .arena = arena,
                                         .has_measured = c->options->costs &&
                                                         cost_table_n_rows(c->options->costs) > 0};
}

static struct shape full_shape(const struct cost_estimates *estimates, const struct node *node,
                               int output) {
    return expected_full_shape(estimates->arena, graph_shapes_of(estimates->shapes, node, output));
}

/* ---- nodes ---- */

/* The measured time of an execution on the device, else the estimate. */
static double execution_ns(struct cost_estimates *estimates, const struct node *node,
                           const struct device_info *device, struct cost estimate) {
    double estimated_ns = device_slowness_ns(&device->slowness, &estimate);
    if (!estimates->has_measured)
        return estimated_ns;
    if (node_is_op(node, OP_FUSED)) {
        double program_ns = cost_rows_program_ns(estimates->c, node);
        estimates->n_measured += program_ns > 0;
        return program_ns > 0 ? program_ns : estimated_ns;
    }
    double measured_ns =
        cost_measured_ns(estimates->c, estimates->shapes, estimates->arena, node, device->type);
    if (measured_ns == 0)
        return estimated_ns;
    estimates->n_measured++;
    return estimate.ns > 0 ? measured_ns * estimated_ns / estimate.ns : measured_ns;
}

double cost_estimate_ns(struct cost_estimates *estimates, const struct node *node,
                        const struct device_info *device) {
    struct shape *in = arena_array(estimates->arena, struct shape, node->n_data + 1);
    struct shape *out = arena_array(estimates->arena, struct shape, node->n_outputs + 1);
    for (int i = 0; i < node->n_data; i++)
        in[i] = full_shape(estimates, node->inputs[i].src, node->inputs[i].index);
    for (int i = 0; i < node->n_outputs; i++)
        out[i] = full_shape(estimates, node, i);
    struct cost estimate = cost_of_shapes(device->type, node, in, out);
    return DISPATCH_NS * device->slowness.dispatch +
           execution_ns(estimates, node, device, estimate);
}

/* ---- values ---- */

double cost_estimate_bytes(const struct cost_estimates *estimates, const struct node *node,
                           int output) {
    enum dtype dtype = dtype_base((enum dtype)node->out_types[output]);
    struct shape shape = full_shape(estimates, node, output);
    double bytes = dtype == DT_RESOURCE ? 0 : (double)MAX(dtype_size(dtype), 1);
    if (dtype == DT_STRING)
        bytes = MIN_STRING_BYTES;
    for (int d = 0; d < shape.rank; d++)
        bytes *= (double)shape.dims[d];
    return bytes;
}

struct schedule_link cost_estimate_link(const struct compilation *c, const struct device_info *a,
                                        const struct device_info *b) {
    const struct task_info *tasks = c->devices->tasks;
    struct schedule_link link =
        a->task == b->task
            ? WITHIN_TASK
            : link_table_find(c->options->links, tasks[a->task].name, tasks[b->task].name);
    int n_copies = a == b ? 0 : (strcmp(a->type, "CPU") != 0) + (strcmp(b->type, "CPU") != 0);
    link.latency_ns += n_copies * TO_GPU.latency_ns;
    link.ns_per_byte += n_copies * TO_GPU.ns_per_byte;
    return link;
}
