/* Computes what a debugger watches (master/compile/partition/pass_debug.c), and writes it to its
 * URLs: files (debug_file.h), or servers (debug_hub.h). */
#include <math.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/pool_cancel.h"
#include "common/graph/internal_ops.h"
#include "common/tensor/element.h"
#include "common/tensor/tensor_proto.h"
#include "kernels/host/debug/debug_event.h"
#include "kernels/host/debug/debug_file.h"
#include "kernels/host/debug/debug_hub.h"
#include "kernels/support/io_task.h"
#include "kernels/variable.h"

extern const struct kernel_list debug_kernels;

enum { DEBUG_GRAPH_REPLY_MS = 1000 };

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

/* ---- publishing ---- */

/* One of the debug ops. */
struct debug_kind {
    /* Sets output 0. *ret_is_silent: nothing is to be published. */
    struct status *(*compute)(struct kernel_ctx *ctx, bool *ret_is_silent);
};

struct debug_state {
    struct span device, name, slot; /* of the tensor; borrowed from the node, as the URLs are */
    char *key;                      /* "NAME:SLOT:OP" */
    const struct attr_value *urls;
    int n_urls;
    bool has_file, has_server; /* among the URLs */
    bool is_gated;             /* gated_grpc */
    bool waits_for_gates;      /* the step has a node _MrDebugGates on this task */
    float lower, upper;        /* what counts as infinite */
    bool is_mute;              /* nothing is written of a healthy tensor */
};

static struct span text_span(const struct str *text) {
    return (struct span){text->data, text->len};
}

/* A server that an event is for. */
struct target {
    struct debug_hub *hub;
    struct span url;
};

static struct status *send_event(void *arg, struct span event) {
    const struct target *target = arg;
    return debug_hub_send(target->hub, target->url, event);
}

/* A file that an event is for. */
struct place {
    struct span url, device;
    const char *name;
};

static struct status *write_event(void *arg, struct span event) {
    const struct place *place = arg;
    return debug_file_write(place->url, place->device, place->name, event);
}

static struct status *publish_to_server(struct debug_hub *hub, const struct debug_state *state,
                                        const struct debug_tensor *tensor, struct span url) {
    struct target target = {hub, url};
    enum debug_gate gate = debug_hub_gate(hub, url, state->key);
    if (state->is_gated && gate == GATE_CLOSED)
        return NULL;
    TRY(debug_tensor_events(tensor, DEBUG_CHUNK_BYTES, send_event, &target));
    return gate == GATE_WRITE ? debug_hub_receive(hub, url, -1) : NULL;
}

/* Writes output 0 to all URLs of the node. `hub` is NULL where all of them are files. Blocks. */
static struct status *publish(struct kernel_ctx *ctx, struct debug_hub *hub) {
    const struct debug_state *state = ctx->instance->state;
    const struct tensor *output = &ctx->outputs[0];
    const char *op = ctx->instance->node->op_name;
    bool is_missing =
        strcmp(op, "DebugIdentity") == 0 && kernel_input(ctx, 0)->storage == TENSOR_REF;
    struct debug_tensor tensor = {.device = state->device,
                                  .name = state->name,
                                  .slot = state->slot,
                                  .op = op,
                                  .t = is_missing ? NULL : output,
                                  .dtype = tensor_dtype(output),
                                  .now_us = clock_wall_us()};
    struct str file = STR_INIT;
    struct status *st = NULL;
    str_addf(&file, "%.*s_%.*s_%s_%lld", (int)tensor.name.len, tensor.name.data,
             (int)tensor.slot.len, tensor.slot.data, op, (long long)tensor.now_us);
    for (int i = 0; !st && i < state->n_urls; i++) {
        struct span url = state->urls[i].s;
        struct place place = {url, tensor.device, str_text(&file)};
        st = debug_url_is_grpc(url) ? publish_to_server(hub, state, &tensor, url)
                                    : debug_tensor_events(&tensor, 0, write_event, &place);
    }
    str_fini(&file);
    return st;
}

static struct status *publish_files(struct kernel_ctx *ctx) { return publish(ctx, NULL); }

/* Is a gate open for the node at any of its servers? */
static bool has_open_gate(const struct debug_state *state, struct debug_hub *hub) {
    for (int i = 0; i < state->n_urls; i++)
        if (debug_url_is_grpc(state->urls[i].s) &&
            debug_hub_gate(hub, state->urls[i].s, state->key) != GATE_CLOSED)
            return true;
    return false;
}

/* The output of an op all of whose gates are closed. */
static struct status *make_empty(struct kernel_ctx *ctx) {
    const int64_t n = 0;
    return kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0], (struct shape){1, &n});
}

/* Runs on the hub's thread. */
static struct status *run_with_servers(struct kernel_ctx *ctx, struct debug_hub *hub, void *arg) {
    const struct debug_state *state = ctx->instance->state;
    const struct debug_kind *kind = ctx->instance->def->arg;
    bool is_silent = false;
    if (state->is_gated && !state->has_file && !has_open_gate(state, hub))
        return make_empty(ctx);
    TRY(kind->compute(ctx, &is_silent));
    return is_silent ? NULL : publish(ctx, hub);
}

static enum kernel_result debug_compute(struct kernel_ctx *ctx) {
    const struct debug_state *state = ctx->instance->state;
    const struct debug_kind *kind = ctx->instance->def->arg;
    struct debug_hub *hub;
    bool is_silent = false;
    if (state->has_server) {
        KERNEL_TRY(ctx, debug_hub_of(ctx, &hub));
        enum kernel_result result =
            debug_hub_run(hub, ctx, run_with_servers, NULL, state->waits_for_gates);
        debug_hub_unref(hub);
        return result;
    }
    if (state->is_gated && !state->has_file)
        KERNEL_TRY(ctx, make_empty(ctx));
    else
        KERNEL_TRY(ctx, kind->compute(ctx, &is_silent));
    return state->has_file && !is_silent ? io_run(ctx, publish_files) : KERNEL_DONE;
}

static bool is_file(struct span url) { return url.len >= 7 && memcmp(url.data, "file://", 7) == 0; }

static struct status *read_urls(const struct node *node, struct debug_state *state) {
    TRY(node_get_list(node, "debug_urls", &state->urls, &state->n_urls));
    for (int i = 0; i < state->n_urls; i++) {
        struct span url = state->urls[i].s;
        bool is_server = debug_url_is_grpc(url);
        if (!is_server && !is_file(url))
            return status_unimplemented("%s: tensors are written to file:// and grpc:// only, and "
                                        "not to %.*s",
                                        node->op->name, (int)MIN(url.len, (size_t)200), url.data);
        *(is_server ? &state->has_server : &state->has_file) = true;
    }
    return NULL;
}

static struct status *debug_init(struct kernel_init *init) {
    struct debug_state *state = init->state = xcalloc(1, sizeof *state);
    const struct node *node = init->node;
    struct str key = STR_INIT;
    *state = (struct debug_state){.lower = -INFINITY, .upper = INFINITY};
    TRY(name_of_tensor(node, &state->name, &state->slot));
    TRY(node_get_s(node, "device_name", &state->device));
    TRY(read_urls(node, state));
    str_addf(&key, "%.*s:%.*s:%s", (int)state->name.len, state->name.data, (int)state->slot.len,
             state->slot.data, node->op_name);
    state->key = str_detach(&key);
    state->waits_for_gates = node_attr(node, DEBUG_WAITS_ATTR) != NULL;
    if (node_attr(node, "gated_grpc"))
        TRY(node_get_b(node, "gated_grpc", &state->is_gated));
    if (node_attr(node, "lower_bound")) {
        TRY(node_get_f(node, "lower_bound", &state->lower));
        TRY(node_get_f(node, "upper_bound", &state->upper));
        TRY(node_get_b(node, "mute_if_healthy", &state->is_mute));
    }
    return NULL;
}

static void debug_fini(void *state) {
    free(((struct debug_state *)state)->key);
    free(state);
}

/* ---- DebugIdentity, DebugNanCount, DebugNumericSummary ---- */

/* The input that is a reference variable without a value, or NULL: a debugger may look at a
 * variable in the step that initializes it. */
static const struct variable *uninitialized(const struct kernel_ctx *ctx) {
    const struct tensor *t = kernel_input(ctx, 0);
    return t->storage == TENSOR_REF ? variable_of(t->ref) : NULL;
}

/* DebugIdentity: the input; empty if it is uninitialized.
 *   input  T    output  T */
static struct status *identity(struct kernel_ctx *ctx, bool *ret_is_silent) {
    if (uninitialized(ctx))
        return make_empty(ctx);
    kernel_identity(ctx);
    return NULL;
}
static const struct debug_kind identity_kind = {identity};

/* DebugNanCount: how many elements are NaN.
 *   input  T    output  int64 [1] */
static struct status *nan_count(struct kernel_ctx *ctx, bool *ret_is_silent) {
    const struct tensor *t = kernel_input(ctx, 0);
    int64_t n = 1, n_nan = 0, n_elements = uninitialized(ctx) ? 0 : t->n_elements;
    for (int64_t i = 0; i < n_elements && pool_goes_on(i + 1); i++)
        n_nan += isnan(tensor_real_at(t, i));
    TRY(kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &n}));
    *(int64_t *)tensor_data(&ctx->outputs[0]) = n_nan;
    return NULL;
}
static const struct debug_kind nan_count_kind = {nan_count};

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
static struct status *numeric_summary(struct kernel_ctx *ctx, bool *ret_is_silent) {
    const struct debug_state *state = ctx->instance->state;
    const struct tensor *t = kernel_input(ctx, 0);
    const struct variable *variable = uninitialized(ctx);
    const struct shape unknown = {0};
    struct shape shape = !variable                      ? tensor_shape(t)
                         : variable->has_declared_shape ? variable->declared_shape
                                                        : unknown;
    struct numbers n = nothing;
    if (!variable)
        summarize(state, t, &n);
    *ret_is_silent = state->is_mute && n.n_nan + n.n_lower + n.n_upper == 0;
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
    TRY(kernel_alloc(ctx, 0, DT_DOUBLE, (struct shape){1, &len}));
    double *to = tensor_data(&ctx->outputs[0]);
    memcpy(to, head, sizeof head);
    for (int d = 0; d < shape.rank; d++)
        to[ARRAY_LEN(head) + (size_t)d] = (double)shape.dims[d];
    return NULL;
}
static const struct debug_kind numeric_summary_kind = {numeric_summary};

/* ---- _MrDebugGraph ---- */

struct graph_state {
    struct span url, device, graph, metadata; /* borrowed from the node */
    _Atomic bool is_written;
};

static struct status *graph_init_state(struct kernel_init *init) {
    struct graph_state *state = init->state = xcalloc(1, sizeof *state);
    TRY(node_get_s(init->node, "debug_url", &state->url));
    TRY(node_get_s(init->node, "device_name", &state->device));
    TRY(node_get_s(init->node, "graph", &state->graph));
    return node_get_s(init->node, "metadata", &state->metadata);
}

static struct status *write_graph(const struct graph_state *state, int64_t now_us) {
    struct str event = STR_INIT, name = STR_INIT;
    str_addf(&name, "_tfdbg_graph_hash%llu_%lld",
             (unsigned long long)hash_bytes(state->graph.data, state->graph.len, 0),
             (long long)now_us);
    debug_graph_event(state->graph, now_us, &event);
    struct status *st =
        debug_file_write(state->url, state->device, str_text(&name), text_span(&event));
    str_fini(&event);
    str_fini(&name);
    return st;
}

static struct status *write_core_metadata(const struct graph_state *state, int64_t now_us) {
    struct str event = STR_INIT, name = STR_INIT;
    const struct span no_device = {"", 0};
    str_addf(&name, "_tfdbg_core_metadata_sessionrun00000000000000_%lld", (long long)now_us);
    debug_metadata_event(state->metadata, now_us, &event);
    struct status *st = debug_file_write(state->url, no_device, str_text(&name), text_span(&event));
    str_fini(&event);
    str_fini(&name);
    return st;
}

static struct status *graph_body(struct kernel_ctx *ctx) {
    const struct graph_state *state = ctx->instance->state;
    int64_t now_us = clock_wall_us();
    TRY(write_graph(state, now_us));
    return state->metadata.len > 0 ? write_core_metadata(state, now_us) : NULL;
}

/* Sends the graph, and waits a moment for the reply that TensorFlow's servers give: it may open
 * gates, and a breakpoint must not take it for its own. */
static struct status *send_graph(struct kernel_ctx *ctx, struct debug_hub *hub, void *arg) {
    struct graph_state *state = ctx->instance->state;
    struct target target = {hub, state->url};
    TRY(debug_graph_events(state->graph, state->device, clock_wall_us(), send_event, &target));
    struct status *st = debug_hub_receive(hub, state->url, DEBUG_GRAPH_REPLY_MS);
    atomic_store(&state->is_written, true);
    if (!st || status_code(st) != STATUS_DEADLINE_EXCEEDED)
        return st;
    status_unref(st);
    return NULL;
}

/* The graph is the same in each step, so it is written once. */
static enum kernel_result debug_graph(struct kernel_ctx *ctx) {
    struct graph_state *state = ctx->instance->state;
    struct debug_hub *hub;
    if (!debug_url_is_grpc(state->url))
        return atomic_exchange(&state->is_written, true) ? KERNEL_DONE : io_run(ctx, graph_body);
    if (atomic_load(&state->is_written))
        return KERNEL_DONE;
    KERNEL_TRY(ctx, debug_hub_of(ctx, &hub));
    enum kernel_result result = debug_hub_run(hub, ctx, send_graph, NULL, true);
    debug_hub_unref(hub);
    return result;
}

/* ---- _MrDebugOpen, _MrDebugGates ---- */

struct open_state {
    struct span names; /* borrowed from the node, as the URLs are */
    const struct attr_value *urls;
    int n_urls;
    _Atomic int64_t n_runs;
};

static struct status *open_init(struct kernel_init *init) {
    struct open_state *state = init->state = xcalloc(1, sizeof *state);
    TRY(node_get_s(init->node, "names", &state->names));
    return node_get_list(init->node, "debug_urls", &state->urls, &state->n_urls);
}

/* Tells a server what the step runs, and lets it open and close gates. */
static struct status *send_metadata(struct debug_hub *hub, struct span url, struct span names,
                                    int64_t n_runs) {
    struct str text = STR_INIT, event = STR_INIT;
    struct span path = debug_url_path(url);
    struct status *st = NULL;
    str_addf(&text,
             "{\"global_step\":-1,\"session_run_index\":%lld,\"executor_step_index\":%lld,%.*s,"
             "\"grpc_path\":\"",
             (long long)n_runs, (long long)n_runs, (int)names.len, names.data);
    str_add_json_escaped(&text, path.data, path.len);
    str_add(&text, "\"}");
    debug_metadata_event(text_span(&text), clock_wall_us(), &event);
    TRY_OUT(debug_hub_send(hub, url, text_span(&event)));
    TRY_OUT(debug_hub_receive(hub, url, DEBUG_STALL_MS));
out:
    str_fini(&text);
    str_fini(&event);
    return st;
}

static struct status *open_servers(struct kernel_ctx *ctx, struct debug_hub *hub, void *arg) {
    struct open_state *state = ctx->instance->state;
    struct str gates = STR_INIT;
    int64_t n_runs = atomic_fetch_add(&state->n_runs, 1);
    TRY(debug_hub_keep_gates(hub, ctx));
    for (int i = 0; i < state->n_urls; i++)
        TRY(send_metadata(hub, state->urls[i].s, state->names, n_runs));
    debug_hub_write_gates(hub, &gates);
    struct bytes *bytes = bytes_new(gates.data, gates.len);
    tensor_init_scalar_object(&ctx->outputs[0], DT_STRING, bytes ? &bytes->object : NULL);
    str_fini(&gates);
    return NULL;
}

/* _MrDebugOpen: opens the step's streams to debug servers.
 *   gates  string, scalar: the gates that are open (debug_gates_write) */
static enum kernel_result debug_open(struct kernel_ctx *ctx) {
    struct debug_hub *hub;
    KERNEL_TRY(ctx, debug_hub_of(ctx, &hub));
    enum kernel_result result = debug_hub_run(hub, ctx, open_servers, NULL, false);
    debug_hub_unref(hub);
    return result;
}

/* _MrDebugGates: lets the debug ops of a task begin.
 *   gates  string, scalar */
static enum kernel_result debug_set_gates(struct kernel_ctx *ctx) {
    struct debug_hub *hub;
    KERNEL_TRY(ctx, debug_hub_of(ctx, &hub));
    struct status *st = debug_hub_set_gates(hub, tensor_string(kernel_input(ctx, 0), 0));
    debug_hub_unref(hub);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

#define SUMMARY_TYPES (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_INT | DTYPE_BIT(DT_BOOL))
#define OWN .flags = KERNEL_ASYNC | KERNEL_STATEFUL
#define TENSORS .flags = KERNEL_ASYNC | KERNEL_STATEFUL | KERNEL_TAKES_UNINITIALIZED

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "DebugIdentity", {{"T", DTYPES_ALL}}, .compute = debug_compute, .init = debug_init,
     .fini = debug_fini, .arg = &identity_kind, TENSORS},
    {.op = "DebugNanCount", {{"T", DTYPES_REAL}}, .compute = debug_compute, .init = debug_init,
     .fini = debug_fini, .arg = &nan_count_kind, TENSORS},
    {.op = "DebugNumericSummary", {{"T", SUMMARY_TYPES}}, .compute = debug_compute,
     .init = debug_init, .fini = debug_fini, .arg = &numeric_summary_kind, TENSORS},
    {.op = OP_DEBUG_GRAPH, .compute = debug_graph, .init = graph_init_state, OWN},
    {.op = OP_DEBUG_OPEN, .compute = debug_open, .init = open_init, OWN},
    {.op = OP_DEBUG_GATES, .compute = debug_set_gates, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list debug_kernels = {rows, ARRAY_LEN(rows)};
