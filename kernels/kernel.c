/* The kernel registry and the helpers that every kernel uses (kernels/kernel.h).
 *
 * Each device type has an index from op name to its rows, in list order. The first lookup builds
 * the index from the constant lists; afterwards the index is only read. */
#include "kernels/kernel.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/str.h"
#include "kernels/cost.h"
#include "kernels/device.h"
#include "kernels/host.h"

enum { MAX_DEVICE_TYPES = 8 };

/* The rows of an op on one device type: rows[0 … n) of the type's array. */
struct op_rows {
    const struct kernel_def **rows;
    size_t n;
};

struct device_type {
    const char *name;
    const struct kernel_list *const *lists;
    size_t n_lists;
    pthread_once_t once;
    struct strmap by_op; /* op → struct op_rows */
    struct op_rows *ops;
    const struct kernel_def **rows; /* grouped by op */
};

static struct device_type device_types[MAX_DEVICE_TYPES];
static size_t n_device_types;
static pthread_once_t cpu_once = PTHREAD_ONCE_INIT;

static void device_type_add(const char *name, const struct kernel_list *const *lists,
                            size_t n_lists) {
    CHECK(n_device_types < MAX_DEVICE_TYPES);
    device_types[n_device_types] = (struct device_type){
        .name = name, .lists = lists, .n_lists = n_lists, .once = PTHREAD_ONCE_INIT};
    n_device_types++;
}

static void cpu_add(void) { device_type_add("CPU", cpu_kernel_lists, n_cpu_kernel_lists); }

void kernel_add_device_type(const char *device_type, const struct kernel_list *const *lists,
                            size_t n_lists) {
    pthread_once(&cpu_once, cpu_add);
    device_type_add(device_type, lists, n_lists);
}

/* Two passes over the lists: the first counts the rows of each op, the second stores them so that
 * the rows of an op are next to each other. */
static void index_build(struct device_type *type) {
    size_t n_rows = 0, n_ops = 0, n_placed = 0;
    for (size_t l = 0; l < type->n_lists; l++)
        n_rows += type->lists[l]->n_rows;
    type->rows = xcalloc(n_rows + 1, sizeof(*type->rows));
    type->ops = xcalloc(n_rows + 1, sizeof(*type->ops));
    strmap_init(&type->by_op);
    for (size_t l = 0; l < type->n_lists; l++) {
        for (size_t r = 0; r < type->lists[l]->n_rows; r++) {
            const struct kernel_def *def = &type->lists[l]->rows[r];
            struct op_rows *op = strmap_get(&type->by_op, def->op);
            if (!op) {
                op = &type->ops[n_ops++];
                strmap_put(&type->by_op, def->op, op);
            }
            op->n++;
        }
    }
    for (size_t o = 0; o < n_ops; o++) {
        type->ops[o].rows = type->rows + n_placed;
        n_placed += type->ops[o].n;
        type->ops[o].n = 0;
    }
    for (size_t l = 0; l < type->n_lists; l++) {
        for (size_t r = 0; r < type->lists[l]->n_rows; r++) {
            const struct kernel_def *def = &type->lists[l]->rows[r];
            struct op_rows *op = strmap_get(&type->by_op, def->op);
            op->rows[op->n++] = def;
        }
    }
}

/* pthread_once passes no argument, so each slot has its own builder. */
#define SLOT_BUILDER(i) \
    static void index_build_##i(void) { index_build(&device_types[i]); }
SLOT_BUILDER(0)
SLOT_BUILDER(1)
SLOT_BUILDER(2)
SLOT_BUILDER(3)
SLOT_BUILDER(4)
SLOT_BUILDER(5)
SLOT_BUILDER(6)
SLOT_BUILDER(7)
static void (*const slot_builders[MAX_DEVICE_TYPES])(void) = {
    index_build_0, index_build_1, index_build_2, index_build_3,
    index_build_4, index_build_5, index_build_6, index_build_7};

static struct device_type *device_type_find(const char *name) {
    pthread_once(&cpu_once, cpu_add);
    for (size_t i = 0; i < n_device_types; i++) {
        if (strcmp(device_types[i].name, name) != 0)
            continue;
        pthread_once(&device_types[i].once, slot_builders[i]);
        return &device_types[i];
    }
    return NULL;
}

static const struct op_rows *op_rows_find(const char *op, const char *device_type) {
    const struct device_type *type = device_type_find(device_type);
    return type ? strmap_get(&type->by_op, op) : NULL;
}

static bool constraint_holds(const struct node *node, const char *attr_name, dtype_set types) {
    const struct attr_value *value = node_attr(node, attr_name);
    if (!value || value->is_placeholder)
        return false;
    if (value->type == ATTR_TYPE)
        return dtype_in(value->dtype, types);
    if (value->type != ATTR_LIST_TYPE)
        return false;
    for (int i = 0; i < value->list.n_values; i++) {
        if (!dtype_in(value->list.values[i].dtype, types))
            return false;
    }
    return true;
}

static bool def_fits(const struct kernel_def *def, const struct node *node) {
    for (int i = 0; i < KERNEL_MAX_CONSTRAINTS && def->constraints[i].attr; i++) {
        if (!constraint_holds(node, def->constraints[i].attr, def->constraints[i].types))
            return false;
    }
    return true;
}

const struct kernel_def *kernel_find(const struct node *node, const char *device_type) {
    const struct op_rows *op = op_rows_find(node->op_name, device_type);
    for (size_t i = 0; op && i < op->n; i++) {
        if (def_fits(op->rows[i], node))
            return op->rows[i];
    }
    return NULL;
}

bool kernel_op_is_supported(const char *op, const char *device_type) {
    return op_rows_find(op, device_type) != NULL;
}

bool kernel_op_has_session_state(const char *op, const char *device_type) {
    const struct op_rows *rows = op_rows_find(op, device_type);
    for (size_t i = 0; rows && i < rows->n; i++)
        if (rows->rows[i]->flags & KERNEL_SESSION_STATE)
            return true;
    return false;
}

const struct kernel_def *kernel_at(const char *device_type, size_t index) {
    const struct device_type *type = device_type_find(device_type);
    for (size_t l = 0; type && l < type->n_lists; l++) {
        if (index < type->lists[l]->n_rows)
            return &type->lists[l]->rows[index];
        index -= type->lists[l]->n_rows;
    }
    return NULL;
}

static void print_type_attrs(const struct node *node, struct str *out) {
    bool first = true;
    for (int i = 0; i < node->n_attrs; i++) {
        const struct attr *attr = &node->attrs[i];
        if (attr->name[0] == '_' || attr_type_element(attr->value.type) != ATTR_TYPE)
            continue;
        str_addf(out, "%s%s=", first ? "" : ", ", attr->name);
        attr_value_print(&attr->value, out);
        first = false;
    }
}

/* An op that has kernels, but none for these types, is the caller's mistake. An op without any
 * kernel is a gap of ours. */
static COLD struct status *no_kernel(const struct node *node, const char *device_type) {
    struct str text = STR_INIT;
    str_addf(
        &text,
        "No OpKernel was registered to support Op '%s' used by {{node %s}} with these attrs: [",
        node->op_name, node->name);
    print_type_attrs(node, &text);
    str_addf(&text, "]\nRegistered devices: [%s]\nRegistered kernels:\n", device_type);
    const struct op_rows *op = op_rows_find(node->op_name, device_type);
    if (!op)
        str_add(&text, "  <no registered kernels>\n");
    for (size_t i = 0; op && i < op->n; i++) {
        str_addf(&text, "  device='%s'", device_type);
        for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && op->rows[i]->constraints[c].attr; c++) {
            char types[512];
            dtype_set_print(op->rows[i]->constraints[c].types, types, sizeof(types));
            str_addf(&text, "; %s in %s", op->rows[i]->constraints[c].attr, types);
        }
        str_add_char(&text, '\n');
    }
    str_addf(&text, "\n\t [[{{node %s}}]]", node->name);
    struct status *st =
        status_new(op ? STATUS_INVALID_ARGUMENT : STATUS_UNIMPLEMENTED, "%s", str_text(&text));
    str_fini(&text);
    return st;
}

struct status *kernel_instance_init(struct kernel_instance *instance, const struct node *node,
                                    const char *device_type, const char *device,
                                    struct allocator *allocator, const struct kernel_host *host) {
    *instance = (struct kernel_instance){0};
    const struct kernel_def *def = kernel_find(node, device_type);
    if (!def)
        return no_kernel(node, device_type);
    struct kernel_init init = {.node = node,
                               .allocator = allocator,
                               .device = device,
                               .host = host,
                               .arg = def->arg,
                               .compute = def->compute};
    struct status *st = def->init ? def->init(&init) : NULL;
    if (st) {
        if (init.state)
            (def->fini ? def->fini : free)(init.state);
        return status_suffix_take(st, "\n\t [[{{node %s}}]]", node->name);
    }
    *instance = (struct kernel_instance){
        .node = node,
        .def = def,
        .compute = init.compute,
        .state = init.state,
        .cost = cost_find(device_type, node),
        .allocator = allocator,
        .engine = allocator && allocator->device_memory ? allocator->device_memory->engine : NULL,
        .device = device,
        .n_inputs = node->n_data,
        .n_outputs = node->n_outputs,
        .in_types = node->in_types,
        .out_types = node->out_types,
        .plain_state_bytes = (uint32_t)init.plain_state_bytes,
    };
    return NULL;
}

void kernel_instance_fini(struct kernel_instance *instance) {
    if (!instance->def)
        return;
    if (instance->state && !instance->is_state_shared)
        (instance->def->fini ? instance->def->fini : free)(instance->state);
    *instance = (struct kernel_instance){0};
}

enum { EVAL_STACK_TENSORS = 16 };

struct status *kernel_eval(const struct node *node, struct allocator *allocator, struct pool *pool,
                           const struct kernel_host *host, void *host_data,
                           const struct tensor *inputs, struct tensor *outputs) {
    struct kernel_instance instance;
    TRY(kernel_instance_init(&instance, node, "CPU", "/job:localhost/replica:0/task:0/device:CPU:0",
                             allocator, host));
    struct status *st = NULL;
    struct tensor stack[EVAL_STACK_TENSORS], *heap = NULL, *own = stack;
    if (instance.n_inputs > EVAL_STACK_TENSORS) {
        own = heap =
            aligned_alloc(_Alignof(struct tensor), (size_t)instance.n_inputs * sizeof(*heap));
        if (!heap)
            out_of_memory((size_t)instance.n_inputs * sizeof(*heap));
    }
    for (int i = 0; i < instance.n_inputs; i++)
        tensor_copy(&own[i], &inputs[i]);
    struct kernel_ctx ctx = {.inputs = own,
                             .outputs = outputs,
                             .instance = &instance,
                             .host = host,
                             .pool = pool,
                             .host_data = host_data};
    if (instance.def->flags & KERNEL_ASYNC)
        ctx.status = status_unimplemented("Op '%s' is asynchronous: only an executor can run it",
                                          node->op_name);
    else if ((instance.def->flags & KERNEL_STATEFUL) && !host)
        ctx.status = status_unimplemented("Op '%s' has state: it needs a worker", node->op_name);
    else
        CHECK(instance.compute(&ctx) == KERNEL_DONE);
    st = ctx.status;
    for (int i = 0; i < instance.n_inputs; i++)
        tensor_clear(&own[i]);
    if (st) {
        for (int i = 0; i < instance.n_outputs; i++)
            tensor_clear(&outputs[i]);
        if (!(instance.def->flags & KERNEL_NAMES_NODES))
            st = status_suffix_take(st, "\n\t [[{{node %s}}]]", node->name);
    }
    free(heap);
    kernel_instance_fini(&instance);
    return st;
}

enum kernel_result kernel_fail(struct kernel_ctx *ctx, struct status *status_take) {
    CHECK(status_take);
    if (ctx->status)
        status_unref(status_take);
    else
        ctx->status = status_take;
    return KERNEL_DONE;
}

static bool is_in_place_allowed = true;

void kernel_set_in_place(bool is_allowed) { is_in_place_allowed = is_allowed; }

/* Do elements of a type fit where those of the input are? */
static bool has_like_elements(const struct tensor *in, enum dtype dtype) {
    enum dtype own = (enum dtype)in->dtype;
    if (likely(own == dtype))
        return !dtype_is_object(dtype);
    return dtype_size(own) == dtype_size(dtype) && !dtype_is_object(dtype) && !dtype_is_object(own);
}

/* Moves the input's memory to the output, if nobody else holds it and it fits. */
static struct status *forward(struct kernel_ctx *ctx, int input, int output, enum dtype dtype,
                              struct shape shape, bool *ret_is_forwarded) {
    struct tensor *in = &ctx->inputs[input], *out = &ctx->outputs[output];
    bool can = is_in_place_allowed && in->storage == TENSOR_BUFFER && buffer_is_sole(in->buffer) &&
               has_like_elements(in, dtype) &&
               allocator_likes(ctx->instance->allocator, in->buffer);
    int64_t n = in->n_elements;
    if (can && (shape.dims != tensor_dims(in) || shape.rank != in->rank)) /* not its own shape */
        TRY(shape_n_elements(shape, &n));
    *ret_is_forwarded = can && n == in->n_elements;
    if (!*ret_is_forwarded)
        return NULL;
    /* The sizes may be stored in the input itself, so they are copied before the input is
     * released. */
    struct tensor made = {.dtype = (uint8_t)dtype,
                          .rank = (uint8_t)shape.rank,
                          .storage = TENSOR_BUFFER,
                          .n_elements = n};
    int64_t *to = made.dims;
    if (shape.rank > TENSOR_INLINE_RANK)
        to = made.long_dims = xmalloc((size_t)shape.rank * sizeof(*to));
    if (shape.rank > 0)
        memcpy(to, shape.dims, (size_t)shape.rank * sizeof(*to));
    made.buffer = in->buffer;
    made.data = in->data;
    if (in->rank > TENSOR_INLINE_RANK)
        free(in->long_dims);
    in->storage = TENSOR_NONE;
    in->rank = 0;
    *out = made;
    return NULL;
}

struct status *kernel_forward_or_alloc(struct kernel_ctx *ctx, int input, int output,
                                       enum dtype dtype, struct shape shape) {
    bool is_forwarded;
    TRY(forward(ctx, input, output, dtype, shape, &is_forwarded));
    return is_forwarded ? NULL : kernel_alloc(ctx, output, dtype, shape);
}

void kernel_pass(struct kernel_ctx *ctx, int input, int output) {
    tensor_move(&ctx->outputs[output], &ctx->inputs[input]);
}

enum kernel_result kernel_identity(struct kernel_ctx *ctx) {
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}
