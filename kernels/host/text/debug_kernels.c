/* Computes what a debugger watches (master/compile/pass_debug.c), and writes it to files that
 * TensorFlow's DebugDumpDir reads:
 *
 *   ROOT/_tfdbg_device_,job_ps,replica_0,task_0,device_CPU_0/
 *     SCOPE/NODE_SLOT_DebugIdentity_MICROSECONDS     an Event, whose Summary has the tensor
 *     _tfdbg_graph_hashNUMBER_MICROSECONDS           an Event with the GraphDef of the device
 *   ROOT/_tfdbg_core_metadata_sessionrun…            an Event with the names of feeds and fetches
 *
 * A file is one Event, without the framing of records. Files are below the task's roots. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/host/text/summary_internal.h"
#include "kernels/support/io_task.h"
#include "kernels/variable.h"

extern const struct kernel_list debug_kernels;

/* Fields of Event, LogMessage, SummaryMetadata and its PluginData. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_GRAPH = 4,
    EVENT_SUMMARY = 5,
    EVENT_LOG_MESSAGE = 6,
    LOG_MESSAGE_TEXT = 2,
    METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1,
    PLUGIN_CONTENT = 2,
    TENSOR_DTYPE = 1,
};
enum { MAX_SAME_NAMES = 1000 };
static const char file_scheme[] = "file://";

/* ---- files ---- */

static struct span text_span(const struct str *text) {
    return (struct span){text->data, text->len};
}

/* "/job:ps/replica:0/…" becomes "_tfdbg_device_,job_ps,replica_0,…". */
static void add_device_dir(struct span device, struct str *out) {
    str_add(out, "/_tfdbg_device_");
    for (size_t i = 0; i < device.len; i++)
        str_add_char(out, device.data[i] == '/'   ? ','
                          : device.data[i] == ':' ? '_'
                                                  : device.data[i]);
}

/* Begins the path of a file: the directory of the URL. */
static void add_root(struct span url, struct str *out) {
    size_t len = strlen(file_scheme);
    str_add_bytes(out, url.data + len, url.len - len);
}

/* Creates the file; another name where one of that microsecond exists. */
static struct status *create(const char *path, int *ret_fd) {
    const struct file_system *fs = &file_system_posix;
    struct str other = STR_INIT;
    int fd = fs->open(fs, path, FILE_CREATE);
    for (int i = 1; fd == -EEXIST && i <= MAX_SAME_NAMES; i++) {
        str_clear(&other);
        str_addf(&other, "%s-%d", path, i);
        fd = fs->open(fs, str_text(&other), FILE_CREATE);
    }
    str_fini(&other);
    *ret_fd = fd;
    return fd < 0 ? file_failed(path, fd) : NULL;
}

static struct status *write_event(struct span name, struct span event) {
    const struct file_system *fs = &file_system_posix;
    struct str path = STR_INIT, dir = STR_INIT;
    struct status *st = NULL;
    int fd;
    TRY_OUT(io_path(name, &path));
    file_dir_of(str_text(&path), &dir);
    TRY_OUT(file_make_dirs(fs, str_text(&dir)));
    TRY_OUT(create(str_text(&path), &fd));
    st = file_write_all(fs, fd, str_text(&path), event.data, event.len, 0);
    int error = fs->close(fs, fd);
    if (!st && error)
        st = file_failed(str_text(&path), error);
out:
    str_fini(&path);
    str_fini(&dir);
    return st;
}

/* ---- events of tensors ---- */

/* Reads the attr tensor_name, "NODE:SLOT" or "NODE". */
static struct status *name_of_tensor(const struct node *node, struct span *ret_name,
                                     struct span *ret_slot) {
    struct span tensor;
    TRY(node_get_s(node, "tensor_name", &tensor));
    const char *colon = tensor.len > 0 ? memchr(tensor.data, ':', tensor.len) : NULL;
    size_t len = colon ? (size_t)(colon - tensor.data) : tensor.len,
           n_digits = colon ? tensor.len - len - 1 : 0;
    size_t first = n_digits > 0 && colon[1] == '-'; /* a sign */
    bool is_parsed = tensor.len > 0 && (!colon || n_digits > first);
    for (size_t i = first; i < n_digits; i++)
        is_parsed &= colon[1 + i] >= '0' && colon[1 + i] <= '9';
    if (!is_parsed)
        return status_invalid("Failed to parse tensor name: \"%.*s\"",
                              (int)MIN(tensor.len, (size_t)256), tensor.data);
    *ret_name = (struct span){tensor.data, len};
    *ret_slot = n_digits > 0 ? (struct span){colon + 1, n_digits} : span_of("0");
    return NULL;
}

static void add_metadata(struct span device, struct span slot, struct str *out) {
    struct str content = STR_INIT;
    str_add(&content, "{\"device\":\"");
    str_add_json_escaped(&content, device.data, device.len);
    str_addf(&content, "\",\"outputSlot\":%.*s,\"numChunks\":1,\"chunkIndex\":0}", (int)slot.len,
             slot.data);
    size_t size = content.len + 16, begin = proto_begin(out, VALUE_METADATA, size),
           plugin = proto_begin(out, METADATA_PLUGIN, size);
    proto_add_bytes(out, PLUGIN_NAME, "debugger", 8);
    proto_add_bytes(out, PLUGIN_CONTENT, content.data, content.len);
    proto_end(out, plugin, size);
    proto_end(out, begin, size);
    str_fini(&content);
}

/* A scalar without content, which clients read as an uninitialized tensor. */
static void add_uninitialized(enum dtype dtype, struct str *out) {
    size_t begin = proto_begin(out, VALUE_TENSOR, 16);
    proto_add_int(out, TENSOR_DTYPE, (uint64_t)dtype);
    proto_end(out, begin, 16);
}

/* t NULL: the tensor is uninitialized, of type `dtype`. */
static void add_tensor_event(const struct node *node, const struct tensor *t, enum dtype dtype,
                             struct span device, struct span name, struct span slot, int64_t now_us,
                             struct str *out) {
    struct str key = STR_INIT;
    size_t size = (t ? tensor_proto_size(t) : 16) + 2 * name.len + device.len + 128;
    str_addf(&key, "%.*s:%.*s:%s", (int)name.len, name.data, (int)slot.len, slot.data,
             node->op_name);
    summary_add_double(out, EVENT_WALL_TIME, (double)now_us);
    size_t summary = proto_begin(out, EVENT_SUMMARY, size),
           value = proto_begin(out, SUMMARY_VALUE, size);
    summary_add_text(out, VALUE_TAG, name);
    summary_add_text(out, VALUE_NODE_NAME, text_span(&key));
    if (t)
        summary_add_tensor(out, t);
    else
        add_uninitialized(dtype, out);
    add_metadata(device, slot, out);
    proto_end(out, value, size);
    proto_end(out, summary, size);
    str_fini(&key);
}

/* Writes a tensor to all URLs of the node; t NULL: an uninitialized one. Blocks. */
static struct status *publish(const struct node *node, const struct tensor *t, enum dtype dtype) {
    const struct attr_value *urls;
    struct str path = STR_INIT, event = STR_INIT;
    struct span device, name, slot;
    struct status *st = NULL;
    int n_urls;
    int64_t now_us = clock_wall_us();
    TRY_OUT(node_get_list(node, "debug_urls", &urls, &n_urls));
    TRY_OUT(node_get_s(node, "device_name", &device));
    TRY_OUT(name_of_tensor(node, &name, &slot));
    add_tensor_event(node, t, dtype, device, name, slot, now_us, &event);
    for (int i = 0; i < n_urls; i++) {
        str_clear(&path);
        add_root(urls[i].s, &path);
        add_device_dir(device, &path);
        str_addf(&path, "/%.*s_%.*s_%s_%lld", (int)name.len, name.data, (int)slot.len, slot.data,
                 node->op_name, (long long)now_us);
        TRY_OUT(write_event(text_span(&path), text_span(&event)));
    }
out:
    str_fini(&path);
    str_fini(&event);
    return st;
}

/* ---- DebugIdentity, DebugNanCount, DebugNumericSummary ---- */

struct debug_state {
    bool has_urls;
    bool is_gated_off;  /* gated_grpc, and no URL whose gate is open: the output is empty */
    float lower, upper; /* what counts as infinite */
    bool is_mute;       /* nothing is written of a healthy tensor */
};

static struct status *debug_init(struct kernel_init *init) {
    struct debug_state *state = init->state = xcalloc(1, sizeof *state);
    const struct attr_value *urls;
    struct span name, slot;
    int n_urls;
    TRY(name_of_tensor(init->node, &name, &slot));
    *state = (struct debug_state){.lower = -INFINITY, .upper = INFINITY};
    TRY(node_get_list(init->node, "debug_urls", &urls, &n_urls));
    state->has_urls = n_urls > 0;
    for (int i = 0; i < n_urls; i++)
        if (urls[i].s.len < strlen(file_scheme) ||
            memcmp(urls[i].s.data, file_scheme, strlen(file_scheme)) != 0)
            return status_unimplemented("%s: tensors are written to file:// only, and not to %.*s",
                                        init->node->op->name, (int)MIN(urls[i].s.len, (size_t)200),
                                        urls[i].s.data);
    if (node_attr(init->node, "gated_grpc")) {
        TRY(node_get_b(init->node, "gated_grpc", &state->is_gated_off));
        state->is_gated_off &= !state->has_urls; /* a file has no gate */
    }
    if (node_attr(init->node, "lower_bound")) {
        TRY(node_get_f(init->node, "lower_bound", &state->lower));
        TRY(node_get_f(init->node, "upper_bound", &state->upper));
        TRY(node_get_b(init->node, "mute_if_healthy", &state->is_mute));
    }
    return NULL;
}

static struct status *publish_body(struct kernel_ctx *ctx) {
    const struct tensor *output = &ctx->outputs[0];
    bool is_copy = strcmp(ctx->instance->node->op_name, "DebugIdentity") == 0;
    bool is_missing = is_copy && kernel_input(ctx, 0)->storage == TENSOR_REF;
    return publish(ctx->instance->node, is_missing ? NULL : output, tensor_dtype(output));
}

static enum kernel_result end(struct kernel_ctx *ctx) {
    const struct debug_state *state = ctx->instance->state;
    return state->has_urls ? io_run(ctx, publish_body) : KERNEL_DONE;
}

/* The input that is a reference variable without a value, or NULL: a debugger may look at a
 * variable in the step that initializes it. */
static const struct variable *uninitialized(const struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    return t->storage == TENSOR_REF ? variable_of(t->ref) : NULL;
}

static enum kernel_result end_empty(struct kernel_ctx *ctx, enum dtype dtype) {
    const int64_t n = 0;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, (struct shape){1, &n}));
    return KERNEL_DONE;
}

static bool is_gated_off(const struct kernel_ctx *ctx) {
    return ((const struct debug_state *)ctx->instance->state)->is_gated_off;
}

/* DebugIdentity: the input; empty if it is uninitialized.
 *   input  T    output  T */
static enum kernel_result identity(struct kernel_ctx *ctx) {
    const struct variable *variable = uninitialized(ctx);
    const int64_t n = 0;
    if (is_gated_off(ctx))
        return end_empty(ctx, variable ? variable->dtype : tensor_dtype(kernel_input(ctx, 0)));
    if (variable)
        KERNEL_TRY(ctx, kernel_alloc(ctx, 0, variable->dtype, (struct shape){1, &n}));
    else
        kernel_identity(ctx);
    return end(ctx);
}

/* DebugNanCount: how many elements are NaN.
 *   input  T    output  int64 [1] */
static enum kernel_result nan_count(struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    int64_t n = 1, n_nan = 0, n_elements = uninitialized(ctx) ? 0 : t->n_elements;
    if (is_gated_off(ctx))
        return end_empty(ctx, DT_INT64);
    for (int64_t i = 0; i < n_elements && pool_goes_on(i + 1); i++)
        n_nan += isnan(tensor_real_at(t, i));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &n}));
    *(int64_t *)tensor_data(&ctx->outputs[0]) = n_nan;
    return end(ctx);
}

struct numbers {
    int64_t n_nan, n_lower, n_negative, n_zero, n_positive, n_upper;
    double min, max, mean, variance;
};

static const struct numbers nothing = {
    .min = INFINITY, .max = -INFINITY, .mean = NAN, .variance = NAN};

static double number_at(const struct tensor *t, int64_t i) {
    enum dtype dtype = tensor_dtype(t);
    if (dtype == DT_BOOL)
        return *(const bool *)tensor_cat(t, i);
    return dtype == DT_UINT64 ? (double)*(const uint64_t *)tensor_cat(t, i) : tensor_real_at(t, i);
}

static void count(const struct debug_state *state, double v, struct numbers *n) {
    if (isnan(v))
        n->n_nan++;
    else if (v <= (double)state->lower)
        n->n_lower++;
    else if (v >= (double)state->upper)
        n->n_upper++;
    else
        *(v < 0 ? &n->n_negative : v > 0 ? &n->n_positive : &n->n_zero) += 1;
}

/* Two passes over the finite elements: the mean, then the variance. */
static void summarize(const struct debug_state *state, const struct tensor *t,
                      struct numbers *ret) {
    struct numbers n = nothing;
    double sum = 0, squares = 0;
    int64_t n_finite = 0;
    for (int64_t i = 0; i < t->n_elements && pool_goes_on(i + 1); i++) {
        double v = number_at(t, i);
        count(state, v, &n);
        if (!isfinite(v))
            continue;
        n.min = MIN(n.min, v);
        n.max = MAX(n.max, v);
        sum += v;
        n_finite++;
    }
    if (n_finite > 0) {
        n.mean = sum / (double)n_finite;
        for (int64_t i = 0; i < t->n_elements && pool_goes_on(i + 1); i++) {
            double v = number_at(t, i);
            squares += isfinite(v) ? (v - n.mean) * (v - n.mean) : 0;
        }
        n.variance = squares / (double)n_finite;
    }
    *ret = n;
}

/* DebugNumericSummary: initialized (1 or 0), elements, NaN, elements up to lower_bound, negative,
 * zero, positive, elements from upper_bound on; of the finite elements min, max, mean, variance;
 * dtype, rank, sizes.
 *   input  T    output  double [14 + rank] */
static enum kernel_result numeric_summary(struct kernel_ctx *ctx) {
    const struct debug_state *state = ctx->instance->state;
    const struct tensor *t = kernel_input(ctx, 0);
    const struct variable *variable = uninitialized(ctx);
    const struct shape unknown = {0};
    if (is_gated_off(ctx))
        return end_empty(ctx, DT_DOUBLE);
    struct shape shape = !variable                      ? tensor_shape(t)
                         : variable->has_declared_shape ? variable->declared_shape
                                                        : unknown;
    struct numbers n = nothing;
    if (!variable)
        summarize(state, t, &n);
    bool is_muted = state->is_mute && n.n_nan + n.n_lower + n.n_upper == 0;
    const double head[] = {variable ? 0 : 1,
                           variable ? 0 : (double)t->n_elements,
                           (double)n.n_nan,
                           (double)n.n_lower,
                           (double)n.n_negative,
                           (double)n.n_zero,
                           (double)n.n_positive,
                           (double)n.n_upper,
                           n.min,
                           n.max,
                           n.mean,
                           n.variance,
                           variable ? variable->dtype : tensor_dtype(t),
                           shape.rank};
    int64_t len = (int64_t)ARRAY_LEN(head) + shape.rank;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_DOUBLE, (struct shape){1, &len}));
    double *to = tensor_data(&ctx->outputs[0]);
    memcpy(to, head, sizeof head);
    for (int d = 0; d < shape.rank; d++)
        to[ARRAY_LEN(head) + (size_t)d] = (double)shape.dims[d];
    return is_muted ? KERNEL_DONE : end(ctx);
}

/* ---- _MrDebugGraph ---- */

struct graph_state {
    _Atomic int64_t n_runs;
};

static struct status *graph_init_state(struct kernel_init *init) {
    init->state = xcalloc(1, sizeof(struct graph_state));
    return NULL;
}

static struct status *write_graph(const struct node *node, struct span url, int64_t now_us) {
    struct str path = STR_INIT, event = STR_INIT;
    struct span device, graph;
    struct status *st = NULL;
    TRY_OUT(node_get_s(node, "device_name", &device));
    TRY_OUT(node_get_s(node, "graph", &graph));
    summary_add_double(&event, EVENT_WALL_TIME, (double)now_us);
    proto_add_bytes(&event, EVENT_GRAPH, graph.data, graph.len);
    add_root(url, &path);
    add_device_dir(device, &path);
    str_addf(&path, "/_tfdbg_graph_hash%llu_%lld",
             (unsigned long long)hash_bytes(graph.data, graph.len, 0), (long long)now_us);
    st = write_event(text_span(&path), text_span(&event));
out:
    str_fini(&path);
    str_fini(&event);
    return st;
}

static struct status *write_core_metadata(const struct node *node, struct span url,
                                          int64_t now_us) {
    struct str path = STR_INIT, event = STR_INIT;
    struct span metadata;
    struct status *st = NULL;
    TRY_OUT(node_get_s(node, "metadata", &metadata));
    if (metadata.len == 0)
        goto out;
    summary_add_double(&event, EVENT_WALL_TIME, (double)now_us);
    size_t begin = proto_begin(&event, EVENT_LOG_MESSAGE, metadata.len + 8);
    proto_add_bytes(&event, LOG_MESSAGE_TEXT, metadata.data, metadata.len);
    proto_end(&event, begin, metadata.len + 8);
    add_root(url, &path);
    str_addf(&path, "/_tfdbg_core_metadata_sessionrun00000000000000_%lld", (long long)now_us);
    st = write_event(text_span(&path), text_span(&event));
out:
    str_fini(&path);
    str_fini(&event);
    return st;
}

static struct status *graph_body(struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    int64_t now_us = clock_wall_us();
    struct span url;
    TRY(node_get_s(node, "debug_url", &url));
    TRY(write_graph(node, url, now_us));
    return write_core_metadata(node, url, now_us);
}

/* The graph is the same in each step, so it is written once. */
static enum kernel_result debug_graph(struct kernel_ctx *ctx) {
    struct graph_state *state = ctx->instance->state;
    return atomic_fetch_add(&state->n_runs, 1) == 0 ? io_run(ctx, graph_body) : KERNEL_DONE;
}

#define SUMMARY_TYPES (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_INT | DTYPE_BIT(DT_BOOL))
#define FILES .flags = KERNEL_ASYNC | KERNEL_STATEFUL
#define TENSORS .flags = KERNEL_ASYNC | KERNEL_STATEFUL | KERNEL_TAKES_UNINITIALIZED

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "DebugIdentity", {{"T", DTYPES_ALL}}, .compute = identity, .init = debug_init, TENSORS},
    {.op = "DebugNanCount", {{"T", DTYPES_REAL}}, .compute = nan_count,
     .init = debug_init, TENSORS},
    {.op = "DebugNumericSummary", {{"T", SUMMARY_TYPES}}, .compute = numeric_summary,
     .init = debug_init, TENSORS},
    {.op = "_MrDebugGraph", .compute = debug_graph, .init = graph_init_state, FILES},
};
// clang-format on

const struct kernel_list debug_kernels = {rows, ARRAY_LEN(rows)};
