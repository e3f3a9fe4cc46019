/* Writes a traced step as TensorFlow's StepStats message; field numbers are those of its
 * step_stats.proto and tensor_description.proto. */
#include "common/tensor/tensor_proto.h"
#include "kernels/cost.h"
#include "worker/service/service_internal.h"

enum { LABEL_MAX_BYTES = 1024 };

/* NodeOutput {slot 1, tensor_description 3 {dtype 1, shape 2 {dim 2 {size 1}},
 * allocation_description 4 {requested_bytes 1}}} */
static void add_output(struct str *out, const struct node_stats *row) {
    struct str shape = STR_INIT, description = STR_INIT, output = STR_INIT, bytes = STR_INIT;
    for (int i = 0; i < MIN((int)row->output.rank, (int)TENSOR_INLINE_RANK); i++) {
        struct str dim = STR_INIT;
        proto_add_int(&dim, 1, (uint64_t)row->output.dims[i]);
        proto_add_bytes(&shape, 2, str_text(&dim), dim.len);
        str_fini(&dim);
    }
    proto_add_int(&description, 1, row->output.dtype);
    proto_add_bytes(&description, 2, str_text(&shape), shape.len);
    proto_add_int(&bytes, 1, (uint64_t)row->output.size_bytes);
    proto_add_bytes(&description, 4, str_text(&bytes), bytes.len);
    proto_add_bytes(&output, 3, description.data, description.len);
    proto_add_bytes(out, 7, output.data, output.len);
    str_fini(&shape);
    str_fini(&description);
    str_fini(&output);
    str_fini(&bytes);
}

/* AllocatorMemoryUsed {allocator_name 1, total_bytes 2, peak_bytes 3, live_bytes 4}.
 * TensorFlow's profiler leaves out what has used no memory. An output counts as its node's, but
 * not what the node only hands on. */
static void add_memory(struct str *out, const struct node_stats *row) {
    static const char name[] = "cpu";
    const struct kernel_instance *kernel = row->node->instance;
    uint64_t n_bytes = (uint64_t)row->output.size_bytes;
    if (n_bytes == 0 || !kernel || cost_is_constant(kernel->cost) ||
        dtype_is_ref((enum dtype)kernel->out_types[0]))
        return;
    struct str memory = STR_INIT;
    proto_add_bytes(&memory, 1, name, strlen(name));
    for (uint32_t field = 2; field <= 4; field++)
        proto_add_int(&memory, field, n_bytes);
    proto_add_bytes(out, 6, memory.data, memory.len);
    str_fini(&memory);
}

/* "c = AddV2(a, b:1, ^d)", as timelines show it. */
static void add_label(struct str *out, const struct node *node) {
    struct str label = STR_INIT;
    str_addf(&label, "%s = %s(", node->name, node->op_name);
    for (int i = 0; i < node->n_inputs && label.len < LABEL_MAX_BYTES; i++) {
        const struct node_input *in = &node->inputs[i];
        str_addf(&label, "%s%s%s", i ? ", " : "", in->index == CONTROL_EDGE ? "^" : "",
                 in->src->name);
        if (in->index > 0)
            str_addf(&label, ":%d", in->index);
    }
    str_add(&label, label.len < LABEL_MAX_BYTES ? ")" : ", ...)");
    proto_add_bytes(out, 8, label.data, label.len);
    str_fini(&label);
}

static void add_node(struct str *out, const struct step_stats *stats,
                     const struct node_stats *row) {
    struct str node = STR_INIT;
    const char *name = row->node->node->name;
    int64_t start_us = stats->start_wall_us + (row->start_ns - stats->start_ns) / 1000;
    int64_t scheduled_us = stats->start_wall_us + (row->scheduled_ns - stats->start_ns) / 1000;
    int64_t run_ns = row->end_ns - row->start_ns;
    proto_add_bytes(&node, 1, name, strlen(name));
    proto_add_int(&node, 2, (uint64_t)start_us);
    proto_add_int(&node, 4, (uint64_t)(run_ns / 1000));
    proto_add_int(&node, 5, (uint64_t)(run_ns / 1000));
    if (row->output.dtype != DT_INVALID) {
        add_memory(&node, row);
        add_output(&node, row);
    }
    add_label(&node, row->node->node);
    proto_add_int(&node, 9, (uint64_t)scheduled_us);
    proto_add_int(&node, 10, row->thread_id);
    proto_add_int(&node, 13, (uint64_t)start_us * 1000);
    proto_add_int(&node, 15, (uint64_t)run_ns);
    proto_add_int(&node, 16, (uint64_t)run_ns);
    proto_add_int(&node, 17, (uint64_t)scheduled_us * 1000);
    proto_add_bytes(out, 2, node.data, node.len);
    str_fini(&node);
}

/* Nodes that the master has added and no program knows: feeds, fetches, both ends of a cut edge. */
static bool is_internal(const struct node_stats *row) {
    enum plan_kind kind = (enum plan_kind)row->node->kind;
    return kind == PLAN_SEND || kind == PLAN_FEED || kind == PLAN_FETCH ||
           row->node->node->name[0] == '_';
}

/* A value that came from another task, as TensorFlow's workers log it: a row "RecvTensor" of the
 * receiving device, labelled "[40.0MB] [812.3Mb/s] x:0 from DEVICE to DEVICE". */
static void add_transfer(struct str *out, const struct step_stats *stats,
                         const struct node_stats *row) {
    static const char name[] = "RecvTensor";
    const struct plan_channel *channel = &stats->plan->channels[row->node->aux];
    int64_t start_us = stats->start_wall_us + (row->start_ns - stats->start_ns) / 1000;
    int64_t elapsed_us = (row->end_ns - row->start_ns) / 1000;
    double bytes = (double)row->output.size_bytes;
    double megabits = 8 * bytes / (double)MAX(elapsed_us, (int64_t)1);
    struct str node = STR_INIT, label = STR_INIT;
    if (bytes >= 0.1 * (1 << 20))
        str_addf(&label, "[%.1fMB] ", bytes / (1 << 20));
    else
        str_addf(&label, "[%lldB] ", (long long)row->output.size_bytes);
    if (megabits >= 1000)
        str_addf(&label, "[%.1fGb/s] ", megabits / 1000);
    else
        str_addf(&label, "[%fMb/s] ", megabits);
    str_addf(&label, "%.*s from %s to %s", LABEL_MAX_BYTES, channel->tensor_name,
             channel->src_device, channel->dst_device);
    proto_add_bytes(&node, 1, name, strlen(name));
    proto_add_int(&node, 2, (uint64_t)start_us);
    proto_add_int(&node, 4, (uint64_t)elapsed_us);
    proto_add_int(&node, 5, (uint64_t)elapsed_us);
    if (row->output.dtype != DT_INVALID)
        add_output(&node, row);
    proto_add_bytes(&node, 8, label.data, label.len);
    proto_add_int(&node, 10, row->thread_id);
    proto_add_bytes(out, 2, node.data, node.len);
    str_fini(&node);
    str_fini(&label);
}

static const char *device_of(const struct step_stats *stats, const struct node_stats *row,
                             const char *fallback) {
    if (row->node->kind == PLAN_RECV)
        return stats->plan->channels[row->node->aux].dst_device;
    return row->node->instance ? row->node->instance->device : fallback;
}

static void add_row(struct str *out, const struct step_stats *stats, const struct node_stats *row) {
    if (row->node->kind == PLAN_RECV)
        add_transfer(out, stats, row);
    else if (!is_internal(row))
        add_node(out, stats, row);
}

void step_stats_write(const struct step_stats *stats, const char *device, size_t max_bytes,
                      struct str *out) {
    size_t end = out->len + max_bytes;
    struct strmap done;
    strmap_init(&done);
    for (size_t i = 0; i < stats->n_nodes; i++) {
        const char *name = device_of(stats, &stats->nodes[i], device);
        if (strmap_get(&done, name))
            continue;
        strmap_put(&done, name, (void *)(uintptr_t)name);
        struct str rows = STR_INIT;
        proto_add_bytes(&rows, 1, name, strlen(name));
        for (size_t k = i; k < stats->n_nodes && out->len + rows.len < end; k++)
            if (strcmp(device_of(stats, &stats->nodes[k], device), name) == 0)
                add_row(&rows, stats, &stats->nodes[k]);
        proto_add_bytes(out, 1, rows.data, rows.len);
        str_fini(&rows);
    }
    strmap_fini(&done);
}
