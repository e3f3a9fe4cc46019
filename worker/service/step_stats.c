/* Writes a traced step as TensorFlow's StepStats message; field numbers are those of its
 * step_stats.proto and tensor_description.proto. One field is ours (rpc/wire/trace_fields.h). */
#include "common/graph/fused.h"
#include "common/graph/internal_ops.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/cost.h"
#include "worker/service/service_internal.h"

enum { LABEL_MAX_BYTES = 1024, FUSED_LABEL_MAX_BYTES = 4096 };

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

/* AllocatorMemoryUsed {allocator_name 1, total_bytes 2, peak_bytes 3, live_bytes 4}. TensorFlow's
 * profiler leaves out nodes that used no memory. An output counts for the node that made it, not
 * for nodes that only pass it on. */
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

/* A Recv stands for the node whose value it receives: its name is that with a suffix, which is cut,
 * so that timelines join the node of the other task with this one. */
static int source_name_len(const struct node *node) {
    const char *suffix = node_is_op(node, OP_RECV) ? strstr(node->name, "/_recv_") : NULL;
    return suffix ? (int)(suffix - node->name) : (int)strlen(node->name);
}

/* The nodes that a fused program stands for: " of m: Max, d: Sub, y: Exp". */
static void add_fused_nodes(struct str *label, const struct node *node) {
    const struct attr_value *program = node_attr(node, "program"),
                            *names = node_attr(node, "names");
    int n = MIN(program->list.n_values, names->list.n_values);
    for (int i = 0; i < n && label->len < FUSED_LABEL_MAX_BYTES; i++)
        str_addf(label, "%s%.*s: %s", i ? ", " : " of ", (int)names->list.values[i].s.len,
                 names->list.values[i].s.data, program->list.values[i].func->name);
    if (label->len >= FUSED_LABEL_MAX_BYTES)
        str_add(label, ", ...");
}

/* "c = AddV2(a, b:1, ^d)", as timelines show it. */
static void add_label(struct str *out, const struct node *node) {
    struct str label = STR_INIT;
    str_addf(&label, "%s = %s(", node->name, node->op_name);
    for (int i = 0; i < node->n_inputs && label.len < LABEL_MAX_BYTES; i++) {
        const struct node_input *in = &node->inputs[i];
        str_addf(&label, "%s%s%.*s", i ? ", " : "", in->index == CONTROL_EDGE ? "^" : "",
                 source_name_len(in->src), in->src->name);
        if (in->index > 0)
            str_addf(&label, ":%d", in->index);
    }
    str_add(&label, label.len < LABEL_MAX_BYTES ? ")" : ", ...)");
    if (node_is_op(node, OP_FUSED))
        add_fused_nodes(&label, node);
    proto_add_bytes(out, 8, label.data, label.len);
    str_fini(&label);
}

static void add_node(struct str *out, const struct step_stats *stats,
                     const struct node_stats *row) {
    struct str node = STR_INIT;
    const char *name = row->node->node->name;
    int64_t start_us = step_stats_us(stats, row->start_ns);
    int64_t scheduled_us = step_stats_us(stats, row->scheduled_ns);
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
    if (row->busy_ns > 0)
        proto_add_int(&node, TRACE_BUSY_NANOS, (uint64_t)row->busy_ns);
    proto_add_bytes(out, 2, node.data, node.len);
    str_fini(&node);
}

/* Nodes that the master has added and that are in no client's program: feeds, fetches, both ends of
 * a cut edge. */
static bool is_internal(const struct node_stats *row) {
    enum plan_kind kind = (enum plan_kind)row->node->kind;
    return kind == PLAN_SEND || kind == PLAN_FEED || kind == PLAN_FETCH || kind == PLAN_COPY ||
           row->node->node->name[0] == '_';
}

static bool is_transfer(const struct node_stats *row) {
    return row->node->kind == PLAN_RECV || row->node->kind == PLAN_SEND;
}

/* A small host value that was handed on is no copy. */
static bool is_copy(const struct step_stats *stats, const struct node_stats *row) {
    return row->node->kind == PLAN_COPY && row->output.dtype != DT_INVALID &&
           !(stats->plan->copies[row->node->aux].keeps_inline &&
             row->output.size_bytes <= (int64_t)TENSOR_INLINE_BYTES);
}

static bool is_shown(const struct step_stats *stats, const struct node_stats *row) {
    return is_transfer(row) || is_copy(stats, row) || !is_internal(row);
}

static const char *memory_name(const struct device *device) {
    return device ? device->full_name : "host";
}

/* A copy between memories, as TensorFlow's timelines show it: a row of the device DEVICE/memcpy.
 * It lasts from the request until the value has arrived, or until its copy is enqueued where the
 * device goes on without the host. */
static void add_copy(struct str *out, const struct step_stats *stats,
                     const struct node_stats *row) {
    const struct plan_copy *copy = &stats->plan->copies[row->node->aux];
    const struct node_input *from = &row->node->node->inputs[0];
    int64_t start_us = step_stats_us(stats, row->start_ns);
    int64_t elapsed_us = (row->end_ns - row->start_ns) / 1000;
    struct str node = STR_INIT, label = STR_INIT;
    str_addf(&label, "[%lldB] %.*s:%d from %s to %s", (long long)row->output.size_bytes,
             LABEL_MAX_BYTES, from->src->name, from->index, memory_name(copy->src),
             memory_name(copy->dst));
    proto_add_bytes(&node, 1, from->src->name, strlen(from->src->name));
    proto_add_int(&node, 2, (uint64_t)start_us);
    proto_add_int(&node, 4, (uint64_t)elapsed_us);
    proto_add_int(&node, 5, (uint64_t)elapsed_us);
    add_output(&node, row);
    proto_add_bytes(&node, 8, str_text(&label), label.len);
    proto_add_int(&node, 10, row->thread_id);
    proto_add_bytes(out, 2, node.data, node.len);
    str_fini(&node);
    str_fini(&label);
}

/* "[40.0MB] [812.3Mb/s] x:0 from DEVICE to DEVICE over tcp" */
static void add_channel_label(struct str *label, const struct exchange *exchange,
                              const struct plan_channel *channel, const struct node_stats *row) {
    double bytes = (double)row->output.size_bytes;
    double megabits = 8e3 * bytes / (double)MAX(row->end_ns - row->start_ns, (int64_t)1000);
    const char *transport =
        peer_table_transport(exchange->peers, channel->peer_task, row->output.size_bytes);
    if (bytes >= 0.1 * (1 << 20))
        str_addf(label, "[%.1fMB] ", bytes / (1 << 20));
    else
        str_addf(label, "[%lldB] ", (long long)row->output.size_bytes);
    if (megabits >= 1000)
        str_addf(label, "[%.1fGb/s] ", megabits / 1000);
    else
        str_addf(label, "[%fMb/s] ", megabits);
    str_addf(label, "%.*s from %s to %s", LABEL_MAX_BYTES, channel->tensor_name,
             channel->src_device, channel->dst_device);
    if (*transport)
        str_addf(label, " over %s", transport);
}

/* A value that came from another task, as TensorFlow's workers log it: a row "RecvTensor" of the
 * receiving device. A value that went to one: a row "SendTensor" of the sending device, until the
 * value was handed to the connection or to shared memory. TensorFlow's timelines read the label of
 * the latter as that of a node. */
static void add_transfer(struct str *out, const struct stats_writer *writer,
                         const struct node_stats *row) {
    const struct plan_channel *channel = &writer->stats->plan->channels[row->node->aux];
    bool is_send = row->node->kind == PLAN_SEND;
    const char *name = is_send ? "SendTensor" : "RecvTensor";
    int64_t start_us = step_stats_us(writer->stats, row->start_ns);
    int64_t elapsed_us = (row->end_ns - row->start_ns) / 1000;
    struct str node = STR_INIT, label = STR_INIT;
    if (is_send)
        str_addf(&label, "%.*s = SendTensor(%.*s) ", LABEL_MAX_BYTES, row->node->node->name,
                 LABEL_MAX_BYTES, row->node->node->inputs[0].src->name);
    add_channel_label(&label, writer->exchange, channel, row);
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

/* What a device did for a node, as TensorFlow's timelines show it: a row "NAME:OP" of the device
 * DEVICE/stream:all. Each thing that it did: a row of its stream, whose label names the kernel,
 * "KERNEL@@NAME:OP#". */
static void add_work(struct str *out, const struct step_stats *stats,
                     const struct node_stats *row) {
    struct str node = STR_INIT, name = STR_INIT, label = STR_INIT;
    int64_t start_us = step_stats_us(stats, row->start_ns);
    int64_t run_ns = row->end_ns - row->start_ns;
    str_addf(&name, "%s:%s", row->node->node->name, row->node->node->op_name);
    proto_add_bytes(&node, 1, name.data, name.len);
    proto_add_int(&node, 2, (uint64_t)start_us);
    proto_add_int(&node, 4, (uint64_t)(run_ns / 1000));
    proto_add_int(&node, 5, (uint64_t)(run_ns / 1000));
    if (row->activity)
        str_addf(&label, "%s@@%.*s#", row->activity, LABEL_MAX_BYTES, str_text(&name));
    else
        str_addf(&label, "%.*s", LABEL_MAX_BYTES, str_text(&name));
    proto_add_bytes(&node, 8, label.data, label.len);
    proto_add_int(&node, 13, (uint64_t)start_us * 1000);
    proto_add_int(&node, 15, (uint64_t)run_ns);
    proto_add_int(&node, 16, (uint64_t)run_ns);
    proto_add_bytes(out, 2, node.data, node.len);
    str_fini(&node);
    str_fini(&name);
    str_fini(&label);
}

static const char *device_of(const struct step_stats *stats, const struct node_stats *row,
                             const char *fallback) {
    if (row->stream)
        return row->stream;
    if (row->node->kind == PLAN_RECV)
        return stats->plan->channels[row->node->aux].dst_device;
    if (row->node->kind == PLAN_SEND)
        return stats->plan->channels[row->node->aux].src_device;
    if (is_copy(stats, row))
        return stats->plan->copies[row->node->aux].trace_device;
    if (row->node->instance)
        return row->node->instance->device;
    const char *device = row->node->node->device; /* control flow, constants */
    return device && *device ? device : fallback;
}

static void add_row(struct str *out, const struct stats_writer *writer,
                    const struct node_stats *row) {
    const struct step_stats *stats = writer->stats;
    if (row->stream)
        add_work(out, stats, row);
    else if (is_transfer(row))
        add_transfer(out, writer, row);
    else if (is_copy(stats, row))
        add_copy(out, stats, row);
    else if (!is_internal(row))
        add_node(out, stats, row);
}

/* ---- in pieces ---- */

enum { UNITS_PER_ROW = 10 }; /* a row takes about a microsecond */

void stats_writer_init(struct stats_writer *writer, const struct step_stats *stats,
                       const struct exchange *exchange, size_t max_bytes) {
    *writer = (struct stats_writer){.stats = stats,
                                    .exchange = exchange,
                                    .max_bytes = max_bytes,
                                    .n_left_out = stats->n_left_out};
    strmap_init(&writer->done);
}

void stats_writer_fini(struct stats_writer *writer) {
    strmap_fini(&writer->done);
    str_fini(&writer->rows);
    str_fini(&writer->out);
}

/* A row that says what the reader of the trace does not see. */
static void add_left_out(struct stats_writer *writer) {
    static const char name[] = "left out";
    struct str node = STR_INIT, label = STR_INIT;
    if (writer->n_left_out == 0)
        return;
    str_addf(&label, "%zu more rows: the trace of a task is limited", writer->n_left_out);
    proto_add_bytes(&node, 1, name, strlen(name));
    proto_add_int(&node, 2, (uint64_t)step_stats_us(writer->stats, writer->stats->start_ns));
    proto_add_bytes(&node, 8, label.data, label.len);
    proto_add_bytes(&writer->rows, 2, node.data, node.len);
    writer->n_left_out = 0;
    str_fini(&node);
    str_fini(&label);
}

/* The rows of one device are complete. */
static void add_device(struct stats_writer *writer) {
    add_left_out(writer);
    proto_add_bytes(&writer->out, 1, writer->rows.data, writer->rows.len);
    str_clear(&writer->rows);
    writer->name = NULL;
}

/* Takes up the device of the first row whose device has not been written. */
static void begin_device(struct stats_writer *writer) {
    const char *name = device_of(writer->stats, &writer->stats->nodes[writer->first],
                                 writer->exchange->cpu_device);
    if (strmap_get(&writer->done, name)) {
        writer->first++;
        return;
    }
    strmap_put(&writer->done, name, (void *)(uintptr_t)name);
    proto_add_bytes(&writer->rows, 1, name, strlen(name));
    writer->name = name;
    writer->next = writer->first++;
}

bool stats_writer_run(struct stats_writer *writer, int64_t *units) {
    const struct step_stats *stats = writer->stats;
    while ((writer->name || writer->first < stats->n_nodes) && *units > 0) {
        --*units;
        if (!writer->name) {
            begin_device(writer);
            continue;
        }
        if (writer->next == stats->n_nodes) {
            add_device(writer);
            continue;
        }
        const struct node_stats *row = &stats->nodes[writer->next++];
        if (strcmp(device_of(stats, row, writer->exchange->cpu_device), writer->name) != 0)
            continue;
        if (writer->out.len + writer->rows.len >= writer->max_bytes)
            writer->n_left_out += is_shown(stats, row);
        else
            add_row(&writer->rows, writer, row);
        *units -= UNITS_PER_ROW;
    }
    return !writer->name && writer->first >= stats->n_nodes;
}
