/* Computes the ops on datasets that change no element: options, hints to an optimizer, thread
 * pools, statistics. Their output is their input, and threads come from the task's own pool. */
#include "kernels/host.h"
#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_hint_kernels;

/* How many datasets GetOptions visits. A dataset that is used twice counts twice. */
enum { OPTIONS_MAX_VISITS = 1 << 14 };

/* ---- options, which are kept for GetOptions and have no other effect ---- */

struct options_dataset {
    struct dataset base;
    struct str options; /* a serialized tf.data.Options */
};

static void options_fini(struct dataset *dataset) {
    str_fini(&((struct options_dataset *)dataset)->options);
}

static const struct dataset_kind options_kind = {.name = "Options",
                                                 .dataset_size = sizeof(struct options_dataset),
                                                 .fini = options_fini,
                                                 .keeps_cardinality = true,
                                                 .is_transparent = true};

static enum kernel_result options_compute(struct kernel_ctx *ctx) {
    const struct attr_value *attr = node_attr(ctx->instance->node, "serialized_options");
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &options_kind, 1, &dataset));
    if (attr)
        str_add_bytes(&((struct options_dataset *)dataset)->options, attr->s.data, attr->s.len);
    return dataset_output(ctx, dataset);
}

/* Appends the options of the dataset's inputs, then its own. In a proto the last value of a field
 * counts, and messages are merged. TensorFlow merges options in this order, too. */
static void add_options(const struct dataset *dataset, int *n_visits, struct str *out) {
    for (int i = 0; i < dataset->n_inputs && ++*n_visits < OPTIONS_MAX_VISITS; i++)
        add_options(dataset->inputs[i], n_visits, out);
    if (dataset->kind == &options_kind) {
        const struct str *own = &((const struct options_dataset *)dataset)->options;
        str_add_bytes(out, str_text(own), own->len);
    }
}

static enum kernel_result get_options_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    struct str options = STR_INIT;
    int n_visits = 0;
    KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, SHAPE_SCALAR));
    add_options(dataset, &n_visits, &options);
    tensor_set_string(&ctx->outputs[0], 0, str_text(&options), options.len);
    str_fini(&options);
    return KERNEL_DONE;
}

/* ---- ops whose output is their input ---- */

static enum kernel_result same_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
    return dataset_output(ctx, dataset_ref(dataset));
}

static enum kernel_result same_after_count(struct kernel_ctx *ctx, const char *name) {
    int64_t n = 0;
    KERNEL_TRY(ctx, dataset_scalar_i64(ctx, 1, name, &n));
    if (n < 0)
        return kernel_fail(ctx, status_invalid("`%s` must be >= 0", name));
    return same_compute(ctx);
}
static enum kernel_result intra_op_compute(struct kernel_ctx *ctx) {
    return same_after_count(ctx, "max_intra_op_parallelism");
}
static enum kernel_result thread_pool_compute(struct kernel_ctx *ctx) {
    return same_after_count(ctx, "num_threads");
}

/* A named pool. Functions run on the worker's one pool, whatever the graph asks for. */
static const struct object_type pool_type = {.name = "ThreadPoolResource"};

static struct status *pool_init(struct kernel_init *init) {
    int64_t n;
    TRY(node_get_i(init->node, "num_threads", &n));
    return n >= 0 ? NULL : status_invalid("`num_threads` must be >= 0");
}

static enum kernel_result pool_compute(struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, "", node->name, &pool_type, DT_INVALID);
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return KERNEL_DONE;
}

/* Statistics under a tag, for an aggregator. There is no aggregator. */
static enum kernel_result tagged_compute(struct kernel_ctx *ctx) {
    if (kernel_input(ctx, 1)->rank != 0)
        return kernel_fail(ctx, status_invalid("tag must be a scalar"));
    return same_compute(ctx);
}

/* All inputs must have the same elements, so any of them is right. */
static enum kernel_result fastest_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, i), &dataset));
    return same_compute(ctx);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("OptionsDataset", options_compute),
    {.op = "GetOptions", .compute = get_options_compute, .flags = KERNEL_STATEFUL},
    DATASET_KERNEL("FinalizeDataset", same_compute),
    DATASET_KERNEL("ModelDataset", same_compute),
    DATASET_KERNEL("OptimizeDataset", same_compute),
    DATASET_KERNEL("OptimizeDatasetV2", same_compute),
    DATASET_KERNEL("MaxIntraOpParallelismDataset", intra_op_compute),
    DATASET_KERNEL("PrivateThreadPoolDataset", thread_pool_compute),
    DATASET_KERNEL("NonSerializableDataset", same_compute),
    DATASET_KERNEL("RewriteDataset", same_compute),
    DATASET_KERNEL("ExperimentalNonSerializableDataset", same_compute),
    DATASET_KERNEL("ExperimentalMaxIntraOpParallelismDataset", intra_op_compute),
    DATASET_KERNEL("ExperimentalPrivateThreadPoolDataset", thread_pool_compute),
    DATASET_KERNEL("ThreadPoolDataset", same_compute),
    DATASET_KERNEL("ExperimentalThreadPoolDataset", same_compute),
    {.op = "ThreadPoolHandle", .compute = pool_compute, .init = pool_init,
     .flags = KERNEL_STATEFUL},
    {.op = "ExperimentalThreadPoolHandle", .compute = pool_compute, .init = pool_init,
     .flags = KERNEL_STATEFUL},
    DATASET_KERNEL("BytesProducedStatsDataset", tagged_compute),
    DATASET_KERNEL("ExperimentalBytesProducedStatsDataset", tagged_compute),
    DATASET_KERNEL("LatencyStatsDataset", tagged_compute),
    DATASET_KERNEL("ExperimentalLatencyStatsDataset", tagged_compute),
    DATASET_KERNEL("ChooseFastestDataset", fastest_compute),
    DATASET_KERNEL("ExperimentalChooseFastestDataset", fastest_compute),
    DATASET_KERNEL("WrapDatasetVariant", same_compute),
    DATASET_KERNEL("UnwrapDatasetVariant", same_compute),
};
// clang-format on

const struct kernel_list dataset_hint_kernels = {rows, ARRAY_LEN(rows)};
