/* Computes the ops that batch across steps: Batch and BatchFunction (batcher.h), Unbatch and
 * UnbatchGrad (unbatch.h). Reads and checks attrs and inputs. Each op names its resource by
 * container and shared_name, or by its node's name; the first op that names a resource makes it. */
#include <stdlib.h>

#include "common/graph/function_key.h"
#include "common/graph/graph_proto.h"
#include "kernels/support/rows.h"
#include "kernels/host/data/batcher.h"
#include "kernels/support/named_resource.h"
#include "kernels/host/data/unbatch.h"

extern const struct kernel_list batch_kernels;

enum {
    /* the limit when the op gives no number of threads, as in TensorFlow */
    ADAPTIVE_MAX_RUNNING = 64,
};

struct batch_state {
    struct named_resource resource;
    struct batcher_options options;
    struct str queue; /* its key */
    int64_t n_threads, timeout_us;
    int n_in, n_captured;
};

static void batch_state_fini(void *arg) {
    struct batch_state *state = arg;
    named_resource_fini(&state->resource);
    batcher_options_fini(&state->options);
    str_fini(&state->queue);
    free(state);
}

/* ---- attrs ---- */

/* As in TensorFlow, sizes that are not positive are accepted and never chosen. */
static struct status *read_allowed(const struct node *node, struct batcher_options *options) {
    const struct attr_value *values = NULL;
    TRY(node_get_list(node, "allowed_batch_sizes", &values, &options->n_allowed));
    options->allowed = xcalloc((size_t)options->n_allowed + 1, sizeof(*options->allowed));
    for (int i = 0; i < options->n_allowed; i++) {
        options->allowed[i] = values[i].i;
        if (i > 0 && options->allowed[i] <= options->allowed[i - 1])
            return status_invalid("allowed_batch_sizes entries must be monotonically increasing");
    }
    return NULL;
}

/* A negative number means no limit. */
static int64_t or_unlimited(int64_t n) { return n < 0 ? INT64_MAX : n; }

/* Rows that one call may take together: of nodes with the same types and function, and the same
 * name for their queue. */
static void queue_key(const struct node *node, struct span name, struct str *ret) {
    static const char *const attrs[] = {"T", "Tin", "Tcaptured", "Tout"};
    const struct attr_value *f = node_attr(node, "f");
    struct str value = STR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(attrs); i++) {
        str_clear(&value);
        if (node_attr(node, attrs[i]))
            attr_value_to_proto(node_attr(node, attrs[i]), &value);
        str_add_bytes(ret, &value.len, sizeof(value.len));
        str_add_bytes(ret, str_text(&value), value.len);
    }
    str_add_bytes(ret, &name.len, sizeof(name.len));
    str_add_bytes(ret, name.data, name.len);
    if (f)
        function_identity(f->func, ret);
    str_fini(&value);
}

static struct status *read_common(struct kernel_init *init, struct batch_state *state) {
    struct batcher_options *options = &state->options;
    struct span queue;
    TRY(named_resource_init(&state->resource, init, &batcher_type, RESOURCE_BY_NODE_NAME, NULL));
    TRY(node_get_s(init->node, "batching_queue", &queue));
    queue_key(init->node, queue, &state->queue);
    TRY(node_get_i32(init->node, "num_batch_threads", &state->n_threads));
    TRY(node_get_i(init->node, "max_batch_size", &options->max_input_rows));
    TRY(node_get_i(init->node, "batch_timeout_micros", &options->timeout_us));
    TRY(node_get_i(init->node, "max_enqueued_batches", &options->max_enqueued));
    TRY(read_allowed(init->node, options));
    options->max_enqueued = or_unlimited(options->max_enqueued);
    options->max_running = MIN(state->n_threads, (int64_t)BATCH_MAX_RUNNING);
    return NULL;
}

static struct status *batch_init(struct kernel_init *init) {
    struct batch_state *state = init->state = xcalloc(1, sizeof(*state));
    struct batcher_options *options = &state->options;
    TRY(read_common(init, state));
    if (options->n_allowed > 0 &&
        options->allowed[options->n_allowed - 1] != options->max_input_rows)
        return status_invalid("final entry in allowed_batch_sizes must equal max_batch_size");
    options->max_batch_rows = options->max_input_rows = or_unlimited(options->max_input_rows);
    state->n_in = init->node->n_outputs - 2;
    return NULL;
}

static struct status *read_adaptive(const struct node *node, struct batch_state *state) {
    struct batcher_options *options = &state->options;
    const struct attr_value *asked = node_attr(node, "_enable_adaptive_scheduler"),
                            *limit = node_attr(node, "_max_inflight_batches");
    options->is_adaptive = state->n_threads <= 0 || (asked && asked->type == ATTR_BOOL && asked->b);
    if (!options->is_adaptive)
        return NULL;
    options->splits = true;
    options->max_running = MIN(limit && limit->type == ATTR_INT ? limit->i : ADAPTIVE_MAX_RUNNING,
                               (int64_t)BATCH_MAX_RUNNING);
    if (options->max_running <= 0)
        return status_invalid("_max_inflight_batches must be positive; was %lld",
                              (long long)options->max_running);
    return NULL;
}

static struct status *function_init(struct kernel_init *init) {
    struct batch_state *state = init->state = xcalloc(1, sizeof(*state));
    struct batcher_options *options = &state->options;
    const struct attr_value *types = NULL;
    struct span policy;
    bool splits;
    TRY(read_common(init, state));
    TRY(node_get_b(init->node, "enable_large_batch_splitting", &splits));
    TRY(node_get_s(init->node, "batch_padding_policy", &policy));
    TRY(node_get_list(init->node, "Tin", &types, &state->n_in));
    TRY(node_get_list(init->node, "Tcaptured", &types, &state->n_captured));
    int64_t last =
        options->n_allowed > 0 ? options->allowed[options->n_allowed - 1] : options->max_input_rows;
    if (!splits && last != options->max_input_rows)
        return status_invalid("final entry in allowed_batch_sizes must equal max_batch_size when "
                              "enable_large_batch_splitting is False");
    options->calls_function = true;
    options->splits = splits;
    TRY(read_adaptive(init->node, state));
    options->trims_down = splits && span_is(policy, "BATCH_DOWN");
    options->max_input_rows = or_unlimited(options->max_input_rows);
    options->max_batch_rows = options->splits ? or_unlimited(last) : options->max_input_rows;
    return options->max_batch_rows > 0 || options->max_input_rows == 0
               ? NULL
               : status_invalid("allowed_batch_sizes must be positive");
}

/* ---- inputs ---- */

static void describe_inputs(const struct kernel_ctx *ctx, int n, struct str *out) {
    for (int i = 0; i < n; i++)
        str_addf(out, " - input %d has shape %s\n", i, TENSOR_SHAPE_TEXT(&ctx->inputs[i]));
}

static struct status *check_inputs(const struct kernel_ctx *ctx, int n) {
    const char *complaint = NULL;
    for (int i = 0; i < n && !complaint; i++) {
        if (ctx->inputs[i].rank == 0)
            complaint = "must have at least one dimension.";
        else if (tensor_dim(&ctx->inputs[i], 0) != tensor_dim(&ctx->inputs[0], 0))
            complaint = "supplied in a given op invocation must have equal 0th-dimension size.";
    }
    if (!complaint)
        return NULL;
    struct str text = STR_INIT;
    describe_inputs(ctx, n, &text);
    struct status *st = status_invalid(
        "Batching input tensors %s\nBelow are the input tensors: \n%s", complaint, str_text(&text));
    str_fini(&text);
    return st;
}

/* An input without rows does not wait. As in TensorFlow, the outputs are vectors. */
static enum kernel_result answer_nothing(struct kernel_ctx *ctx) {
    static const int64_t none[1] = {0};
    for (int i = 0; i < ctx->instance->n_outputs; i++)
        KERNEL_TRY(ctx, kernel_alloc(ctx, i, dtype_base((enum dtype)ctx->instance->out_types[i]),
                                     (struct shape){1, none}));
    return KERNEL_DONE;
}

/* ---- Batch, BatchFunction ---- */

static struct status *find_alarms(struct kernel_ctx *ctx, struct alarm_clock **ret) {
    *ret = ctx->host->alarms ? ctx->host->alarms(ctx) : NULL;
    if (*ret && ctx->pool)
        return NULL;
    return status_unimplemented("%s needs a worker: there are no timers or no threads here",
                                ctx->instance->node->op->name);
}

static struct status *make_batcher(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct batch_state *state = arg;
    struct batcher_options options = state->options;
    struct alarm_clock *alarms;
    struct batcher *batcher;
    TRY(find_alarms(ctx, &alarms));
    if (state->n_threads <= 0 && !options.is_adaptive)
        return status_invalid("num_batch_threads must be positive; was %lld",
                              (long long)state->n_threads);
    options.allowed = xcalloc((size_t)options.n_allowed + 1, sizeof(*options.allowed));
    memcpy(options.allowed, state->options.allowed,
           (size_t)options.n_allowed * sizeof(*options.allowed));
    TRY(batcher_new(&options, alarms, ctx->pool, &batcher));
    *ret = &batcher->object;
    return NULL;
}

static struct status *take_function(struct kernel_ctx *ctx, const struct batch_state *state,
                                    struct batch_entry *entry) {
    for (int i = 0; i < state->n_in; i++)
        if (ctx->inputs[i].dtype == DT_RESOURCE)
            return status_invalid(
                "BatchFunction cannot take resource inputs but input %d is a resource.", i);
    TRY(rows_try_new((size_t)state->n_captured, &entry->captured));
    entry->n_captured = state->n_captured;
    for (int i = 0; i < state->n_captured; i++)
        tensor_copy(&entry->captured[i], &ctx->inputs[state->n_in + i]);
    if (!ctx->host->function_find)
        return status_unimplemented("%s needs a worker: there are no functions here",
                                    ctx->instance->node->op->name);
    return ctx->host->function_find(ctx, "f", &entry->function);
}

static enum kernel_result enter(struct kernel_ctx *ctx, const struct batch_state *state,
                                struct batcher *batcher) {
    bool calls = ctx->instance->node->op->name[strlen("Batch")] != '\0';
    if (calls != batcher->options.calls_function)
        return kernel_fail(
            ctx, status_invalid(
                     "%s shares its container and shared_name with the other kind of batching op",
                     ctx->instance->node->name));
    KERNEL_TRY(ctx, check_inputs(ctx, state->n_in));
    if (tensor_dim(&ctx->inputs[0], 0) == 0)
        return answer_nothing(ctx);
    struct batch_entry *entry = batch_entry_new(batcher, ctx, state->n_in);
    struct status *st = calls ? take_function(ctx, state, entry) : NULL;
    if (!st)
        return batcher_enter(entry, (struct span){state->queue.data, state->queue.len});
    batch_entry_unref(entry);
    return kernel_fail(ctx, st);
}

static enum kernel_result batch_compute(struct kernel_ctx *ctx) {
    struct batch_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_batcher, state, &found));
    enum kernel_result result = enter(ctx, state, (struct batcher *)found);
    object_unref(found);
    return result;
}

/* ---- Unbatch, UnbatchGrad: the row's arg is the kind of resource ---- */

static struct status *unbatch_init(struct kernel_init *init) {
    struct batch_state *state = init->state = xcalloc(1, sizeof(*state));
    if (node_attr(init->node, "timeout_micros"))
        TRY(node_get_i(init->node, "timeout_micros", &state->timeout_us));
    return named_resource_init(&state->resource, init, init->arg, RESOURCE_BY_NODE_NAME, NULL);
}

static struct status *make_unbatch(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct batch_state *state = arg;
    struct alarm_clock *alarms;
    TRY(find_alarms(ctx, &alarms));
    *ret = unbatch_new(state->resource.type, alarms, state->timeout_us);
    return NULL;
}

static enum kernel_result unbatch_compute(struct kernel_ctx *ctx) {
    struct batch_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_unbatch, state, &found));
    enum kernel_result result = state->resource.type == &unbatch_type
                                    ? unbatch_run(found, ctx)
                                    : unbatch_grad_run(found, ctx);
    object_unref(found);
    return result;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Batch", .compute = batch_compute, .init = batch_init, .fini = batch_state_fini,
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {.op = "BatchFunction", .compute = batch_compute, .init = function_init,
     .fini = batch_state_fini, .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {.op = "Unbatch", .compute = unbatch_compute, .init = unbatch_init, .fini = batch_state_fini,
     .arg = &unbatch_type,
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {.op = "UnbatchGrad", .compute = unbatch_compute, .init = unbatch_init,
     .fini = batch_state_fini, .arg = &unbatch_grad_type,
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list batch_kernels = {rows, ARRAY_LEN(rows)};
