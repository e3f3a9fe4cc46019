/* Finds the cost row of a node, and evaluates it. */
#include "kernels/cost.h"

#include <math.h>
#include <pthread.h>

#include "common/base/map.h"

enum { MAX_DEVICE_TYPES = 8 };

/* The least time that a core needs where it multiplies matrices; no estimate is below this. */
static const double NS_PER_FLOP = 0.009;

static const struct cost_row default_row = {.ns_per_element = 0.5f};

/* What an H200 does with float32, rounded (docs/gpu.md, "Figures"): a launch, products in
 * comparison with one core of a CPU, and reading or writing memory. */
static const double GPU_LAUNCH_NS = 2000, GPU_CORES = 500, GPU_NS_PER_BYTE = 0.0004;

struct device_costs {
    const char *device_type;
    /* op name → the op's first struct cost_row in the first list that has the op */
    struct strmap by_op;
    struct cost_list lists[4];
    size_t n_lists;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_costs devices[MAX_DEVICE_TYPES]; /* guarded by lock */
static size_t n_devices;                              /* guarded by lock */

static void add_device_type(const char *device_type, const struct cost_list *const *lists,
                            size_t n_lists) {
    struct device_costs *device = &devices[n_devices++];
    CHECK(n_devices <= MAX_DEVICE_TYPES && n_lists <= ARRAY_LEN(device->lists));
    device->device_type = device_type;
    device->n_lists = n_lists;
    strmap_init(&device->by_op);
    for (size_t l = 0; l < n_lists; l++) {
        device->lists[l] = *lists[l];
        for (size_t i = 0; i < lists[l]->n_rows; i++) {
            const struct cost_row *row = &lists[l]->rows[i];
            if (!strmap_get(&device->by_op, row->op))
                strmap_put(&device->by_op, row->op, (void *)row);
        }
    }
}

/* The caller holds the lock. */
static void add_cpu_once(void) {
    static const struct cost_list *const lists[] = {&cpu_costs};
    if (n_devices == 0)
        add_device_type("CPU", lists, 1);
}

void cost_add_device_type(const char *device_type, const struct cost_list *const *lists,
                          size_t n_lists) {
    pthread_mutex_lock(&lock);
    add_cpu_once();
    add_device_type(device_type, lists, n_lists);
    pthread_mutex_unlock(&lock);
}

static const struct device_costs *device_find(const char *device_type) {
    const struct device_costs *found = NULL;
    pthread_mutex_lock(&lock);
    add_cpu_once();
    for (size_t i = 0; i < n_devices && !found; i++)
        if (strcmp(devices[i].device_type, device_type) == 0)
            found = &devices[i]; /* nobody writes the entry after it is published */
    pthread_mutex_unlock(&lock);
    return found;
}

static const struct cost_row *rows_end(const struct device_costs *device,
                                       const struct cost_row *row) {
    for (size_t l = 0; l < device->n_lists; l++) {
        const struct cost_list *list = &device->lists[l];
        if (row >= list->rows && row < list->rows + list->n_rows)
            return list->rows + list->n_rows;
    }
    return row;
}

const struct cost_row *cost_find(const char *device_type, const struct node *node) {
    const struct device_costs *device = device_find(device_type);
    const struct cost_row *row = device ? strmap_get(&device->by_op, node->op_name) : NULL;
    if (!row)
        return &default_row;
    enum dtype dtype = node->n_data > 0      ? (enum dtype)node->in_types[0]
                       : node->n_outputs > 0 ? (enum dtype)node->out_types[0]
                                             : DT_INVALID;
    for (const struct cost_row *end = rows_end(device, row);
         row < end && strcmp(row->op, node->op_name) == 0; row++)
        if (!row->types || dtype_in(dtype_base(dtype), row->types))
            return row;
    return &default_row;
}

bool cost_is_constant(const struct cost_row *row) { return row->ns_per_element == 0; }

int32_t cost_cheap_elements(const struct cost_row *row) {
    if (row->ns_per_call > COST_HEAVY_NS)
        return -1;
    if (cost_is_constant(row))
        return INT32_MAX;
    float cheap = COST_HEAVY_NS / row->ns_per_element;
    if (row->ns) /* the output may have as many elements as the product of two inputs' sizes */
        return MIN(row->cheap_elements, (int32_t)sqrtf(cheap));
    return (int32_t)cheap;
}

static struct cost_query query_of(const struct kernel_ctx *ctx) {
    return (struct cost_query){.row = ctx->instance->cost, .node = ctx->instance->node, .ctx = ctx};
}

bool cost_is_heavy(const struct kernel_ctx *ctx) {
    const struct cost_row *row = ctx->instance->cost;
    if (!row->ns)
        return true;
    struct cost_query query = query_of(ctx);
    return row->ns(&query) > COST_HEAVY_NS;
}

static double linear_ns(const struct cost_row *row, double n_elements) {
    return (double)row->ns_per_call + n_elements * (double)row->ns_per_element;
}

double cost_ns_of_execution(const struct kernel_ctx *ctx) {
    struct cost_query query = query_of(ctx);
    int64_t n = 0;
    if (query.row->ns)
        return query.row->ns(&query);
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        n = MAX(n, ctx->inputs[i].n_elements);
    return linear_ns(query.row, (double)n);
}

static double n_elements(struct shape shape) {
    double n = 1;
    for (int d = 0; d < shape.rank; d++)
        n *= (double)shape.dims[d];
    return n;
}

static struct cost cost_by_row(const char *device_type, const struct node *node,
                               const struct shape *in, const struct shape *out) {
    const struct cost_row *row = cost_find(device_type, node);
    struct cost_query query = {.row = row, .node = node, .in = in, .out = out};
    double largest_input = 0, largest = 0, bytes = 0;
    if (cost_is_constant(row))
        return (struct cost){.ns = (double)row->ns_per_call};
    for (int i = 0; i < node->n_data; i++) {
        largest_input = MAX(largest_input, n_elements(in[i]));
        bytes += n_elements(in[i]) * (double)dtype_size(dtype_base((enum dtype)node->in_types[i]));
    }
    largest = largest_input;
    for (int i = 0; i < node->n_outputs; i++) {
        largest = MAX(largest, n_elements(out[i]));
        bytes +=
            n_elements(out[i]) * (double)dtype_size(dtype_base((enum dtype)node->out_types[i]));
    }
    struct cost cost = {.flops = row->flops ? row->flops(&query) : largest,
                        .bytes = row->bytes ? row->bytes(&query) : bytes};
    double ns = row->ns ? row->ns(&query) : linear_ns(row, largest_input);
    cost.ns = row->flops ? MAX(ns, cost.flops * NS_PER_FLOP) : ns;
    return cost;
}

/* A GPU has no rows: the work is that of the CPU's row. What touches no element is the host's. */
static struct cost cost_on_gpu(const struct node *node, const struct shape *in,
                               const struct shape *out) {
    struct cost cost = cost_by_row("CPU", node, in, out);
    if (cost_is_constant(cost_find("CPU", node)))
        return cost;
    cost.launch_ns = GPU_LAUNCH_NS;
    cost.ns = cost.launch_ns + MAX(cost.ns / GPU_CORES, cost.bytes * GPU_NS_PER_BYTE);
    return cost;
}

struct cost cost_of_shapes(const char *device_type, const struct node *node, const struct shape *in,
                           const struct shape *out) {
    return strcmp(device_type, "GPU") == 0 ? cost_on_gpu(node, in, out)
                                           : cost_by_row(device_type, node, in, out);
}
