/* Computes the ops of TensorArrays that make or close an array, work on one element, or report the
 * size. Ops on many elements are in tensor_array_bulk.c.
 *
 * `flow` is a float that orders a graph's reads after its writes. Ops forward it unchanged; its
 * value has no meaning. The second version's handle is two strings, the first version's a reference
 * to two strings. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/resources/tensor_array.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/swap.h"

extern const struct kernel_list tensor_array_kernels;

/* ---- TensorArrayV3 ---- */

struct array_state {
    char *name;
    struct shape element_shape; /* borrowed from the node */
    enum dtype dtype;
    bool has_identical_shapes, is_dynamic, clears_after_read;
};

static void array_state_fini(void *arg) {
    struct array_state *state = arg;
    free(state->name);
    free(state);
}

static struct status *array_init(struct kernel_init *init) {
    const struct node *node = init->node;
    struct array_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span name = {0};
    TRY(node_get_s(node, "tensor_array_name", &name));
    if (name.len == 0)
        name = span_of(node->name);
    state->name = xstrndup(name.data, name.len);
    TRY(node_get_type(node, "dtype", &state->dtype));
    TRY(node_get_shape(node, "element_shape", &state->element_shape));
    TRY(node_get_b(node, "dynamic_size", &state->is_dynamic));
    TRY(node_get_b(node, "clear_after_read", &state->clears_after_read));
    if (!node_attr(node, "identical_element_shapes"))
        return NULL;
    return node_get_b(node, "identical_element_shapes", &state->has_identical_shapes);
}

/* What to make: a new array, or the array of gradients of `of`. */
struct array_create_args {
    const struct array_state *state;
    const char *name;
    int64_t n;
    struct tensor_array *of;
    struct shape prepend;
};

static struct status *make_array(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct array_create_args *making = arg;
    struct tensor_array *array = NULL;
    if (making->of) {
        TRY(tensor_array_new_grad(making->of, making->name, making->prepend, &array));
    } else {
        const struct array_state *state = making->state;
        struct tensor_array_options options = {
            .name = making->name,
            .dtype = state->dtype,
            .element_shape = state->element_shape,
            .has_identical_shapes = state->has_identical_shapes,
            .is_dynamic = state->is_dynamic,
            .clears_after_read = state->clears_after_read,
        };
        TRY(tensor_array_new(&options, making->n, &array));
    }
    *ret = &array->object;
    return NULL;
}

/* ---- handles of the first two versions ---- */

#define WORDS_CONTAINER "_tensor_arrays"

struct status *tensor_array_of_strings(struct kernel_ctx *ctx, struct tensor_array **ret) {
    struct tensor strings = TENSOR_INIT;
    struct variable *variable = NULL;
    struct object *found = NULL;
    struct status *st = NULL;
    if (ctx->inputs[0].storage == TENSOR_REF) {
        TRY(variable_of_input(ctx, 0, &variable));
        st = variable_read(variable, &strings);
        variable_unref(variable);
        TRY(st);
    } else {
        tensor_copy(&strings, &ctx->inputs[0]);
    }
    if (strings.dtype != DT_STRING || strings.n_elements != 2) {
        st = status_invalid("Tensor array handle must be 2-element vector, but had shape: %s",
                            TENSOR_SHAPE_TEXT(&strings));
    } else {
        struct span text = tensor_string(&strings, 1);
        char *name = xstrndup(text.data, text.len);
        st = ctx->host->resource_lookup(ctx, NULL, name, &tensor_array_type, &found);
        free(name);
    }
    tensor_clear(&strings);
    if (!st)
        *ret = (struct tensor_array *)found;
    return st;
}

static struct status *make_strings(struct kernel_ctx *ctx, struct array_create_args *making) {
    static const int64_t two = 2;
    struct tensor strings = TENSOR_INIT;
    struct object *found = NULL;
    TRY(ctx->host->resource_lookup_or_create(ctx, NULL, making->name, &tensor_array_type,
                                             make_array, making, &found));
    object_unref(found);
    TRY(tensor_new(ctx->instance->allocator, DT_STRING, (struct shape){1, &two}, &strings));
    tensor_set_string(&strings, 0, WORDS_CONTAINER, strlen(WORDS_CONTAINER));
    tensor_set_string(&strings, 1, making->name, strlen(making->name));
    if (!dtype_is_ref((enum dtype)ctx->instance->out_types[0])) {
        tensor_move(&ctx->outputs[0], &strings);
        return NULL;
    }
    struct variable *variable = variable_new(DT_STRING, making->name);
    variable_assign_take(variable, &strings);
    tensor_init_ref(&ctx->outputs[0], DT_STRING, &variable->object);
    return NULL;
}

/* Finds or makes the array in the step's container; its handle becomes output 0. */
static struct status *make_handle(struct kernel_ctx *ctx, struct array_create_args *making,
                                  enum dtype dtype) {
    if (ctx->instance->out_types[0] != DT_RESOURCE)
        return make_strings(ctx, making);
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, NULL, making->name, &tensor_array_type, dtype);
    struct object *found = NULL;
    struct status *st = ctx->host->handle_lookup_or_create(ctx, handle, &tensor_array_type,
                                                           make_array, making, &found);
    if (st) {
        object_unref(&handle->object);
        return st;
    }
    object_unref(found);
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return NULL;
}

static enum kernel_result array_compute(struct kernel_ctx *ctx) {
    const struct array_state *state = ctx->instance->state;
    const struct tensor *size = kernel_input(ctx, 0);
    if (size->rank != 0)
        return kernel_fail(ctx, status_invalid("TensorArray size must be scalar, but had shape: %s",
                                               TENSOR_SHAPE_TEXT(size)));
    int64_t n = tensor_index_at(size, 0);
    if (n < 0)
        return kernel_fail(ctx, status_invalid("Size should be >= 0."));
    struct str name = STR_INIT;
    str_addf(&name, "%s_%llu", state->name, (unsigned long long)ctx->host->unique_id());
    struct array_create_args making = {.state = state, .name = str_text(&name), .n = n};
    struct status *st = make_handle(ctx, &making, state->dtype);
    str_fini(&name);
    KERNEL_TRY(ctx, st);
    if (ctx->instance->n_outputs > 1 && kernel_is_for_device(ctx))
        KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 1, DT_FLOAT, SHAPE_SCALAR));
    else if (ctx->instance->n_outputs > 1)
        tensor_init_scalar_f32(&ctx->outputs[1], 0);
    return KERNEL_DONE;
}

/* ---- TensorArrayGradV3, TensorArrayGradWithShape ---- */

static struct status *grad_init(struct kernel_init *init) {
    struct span source = {0};
    TRY(node_get_s(init->node, "source", &source));
    init->state = xstrndup(source.data, source.len);
    return NULL;
}

static struct status *prepend_of_input(const struct tensor *in, int64_t *dims, struct shape *ret) {
    if (in->rank > 1 || in->n_elements > SHAPE_MAX_RANK)
        return status_invalid("shape_to_prepend must be a vector, but had shape: %s",
                              TENSOR_SHAPE_TEXT(in));
    for (int64_t i = 0; i < in->n_elements; i++) {
        dims[i] = tensor_index_at(in, i);
        if (dims[i] < 0)
            return status_invalid(
                "shape_to_prepend must be fully defined, but dimension %lld is %lld", (long long)i,
                (long long)dims[i]);
    }
    *ret = (struct shape){(int)in->n_elements, dims};
    return NULL;
}

static enum kernel_result grad_compute(struct kernel_ctx *ctx) {
    const char *source = ctx->instance->state;
    struct tensor_array *of = NULL;
    int64_t dims[SHAPE_MAX_RANK];
    struct array_create_args making = {.prepend = {0, dims}};
    if (ctx->instance->n_inputs > 2)
        KERNEL_TRY(ctx, prepend_of_input(kernel_input(ctx, 2), dims, &making.prepend));
    KERNEL_TRY(ctx, tensor_array_of_input(ctx, &of));
    struct str name = STR_INIT;
    str_addf(&name, "%s@%s", of->name, source);
    making.of = of;
    making.name = str_text(&name);
    struct status *st = make_handle(ctx, &making, of->dtype);
    str_fini(&name);
    tensor_array_unref(of);
    KERNEL_TRY(ctx, st);
    if (ctx->instance->n_outputs > 1)
        kernel_pass(ctx, 1, 1);
    return KERNEL_DONE;
}

/* ---- one element ---- */

static struct status *index_of_input(const struct kernel_ctx *ctx, int64_t *ret) {
    const struct tensor *index = kernel_input(ctx, 1);
    if (unlikely(index->rank != 0))
        return status_invalid("TensorArray index must be scalar, but had shape: %s",
                              TENSOR_SHAPE_TEXT(index));
    *ret = tensor_index_at(index, 0);
    return NULL;
}

/* The value of an element is on its way to the host's memory. */
struct write_swap {
    struct swap swap;
    struct tensor_array *array;
    int64_t index;
    struct tensor value; /* on the device: keeps its memory, by which it is known */
};

static struct status *write_swapped(struct swap *swap, struct status *st_take) {
    struct write_swap *job = CONTAINER_OF(swap, struct write_swap, swap);
    if (!st_take)
        tensor_array_replace(job->array, job->index, &job->value, &swap->value);
    tensor_clear(&swap->value);
    tensor_clear(&job->value);
    tensor_array_unref(job->array);
    free(job);
    return st_take;
}

/* Where the device's memory is short, the element moves before the write is done. Takes the
 * reference to the array. */
static enum kernel_result swap_written_take(struct kernel_ctx *ctx, struct tensor_array *array,
                                            int64_t index) {
    struct tensor value = TENSOR_INIT;
    if (unlikely(swap_is_short(ctx)))
        tensor_array_look(array, index, &value);
    if (likely(!swap_is_wanted(ctx, &value))) {
        tensor_clear(&value);
        tensor_array_unref(array);
        return KERNEL_DONE;
    }
    struct write_swap *job = aligned_alloc(_Alignof(struct write_swap), sizeof *job);
    CHECK(job);
    *job = (struct write_swap){
        .swap.finish = write_swapped, .array = array, .index = index, .value = TENSOR_INIT};
    tensor_move(&job->value, &value);
    return swap_out_start(ctx, &job->swap, &job->value);
}

static enum kernel_result array_write(struct kernel_ctx *ctx) {
    struct tensor_array *array = NULL;
    int64_t index = 0;
    KERNEL_TRY(ctx, index_of_input(ctx, &index));
    KERNEL_TRY(ctx, tensor_array_of_input(ctx, &array));
    struct status *st = tensor_array_check_write(array, &ctx->inputs[2]);
    if (likely(!st))
        st = tensor_array_write(array, ctx, index, &ctx->inputs[2]);
    if (unlikely(st != NULL)) {
        tensor_array_unref(array);
        return kernel_fail(ctx, st);
    }
    kernel_pass(ctx, 3, 0);
    return swap_written_take(ctx, array, index);
}

static enum kernel_result array_read(struct kernel_ctx *ctx) {
    struct tensor_array *array = NULL;
    int64_t index = 0;
    KERNEL_TRY(ctx, index_of_input(ctx, &index));
    KERNEL_TRY(ctx, tensor_array_of_input(ctx, &array));
    struct tensor value = TENSOR_INIT;
    struct status *st = tensor_array_check_read(array, (enum dtype)ctx->instance->out_types[0]);
    if (likely(!st))
        st = tensor_array_read(array, ctx, index, &value);
    tensor_array_unref(array);
    KERNEL_TRY(ctx, st);
    if (unlikely(swap_is_out(ctx, &value)))
        return swap_in_take(ctx, 0, &value);
    tensor_move(&ctx->outputs[0], &value);
    return KERNEL_DONE;
}

/* ---- size and closing ---- */

static enum kernel_result array_size(struct kernel_ctx *ctx) {
    struct tensor_array *array = NULL;
    int64_t n = 0;
    KERNEL_TRY(ctx, tensor_array_of_input(ctx, &array));
    struct status *st = tensor_array_size(array, &n, NULL);
    tensor_array_unref(array);
    KERNEL_TRY(ctx, st);
    /* cannot overflow, since arrays have at most INT32_MAX elements */
    tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)n);
    return KERNEL_DONE;
}

static enum kernel_result array_close(struct kernel_ctx *ctx) {
    struct tensor_array *array = NULL;
    KERNEL_TRY(ctx, tensor_array_of_input(ctx, &array));
    tensor_array_close(array);
    tensor_array_unref(array);
    return KERNEL_DONE;
}

// clang-format off
#define STATEFUL .flags = KERNEL_STATEFUL
static const struct kernel_def rows[] = {
    TENSOR_ARRAY_VERSIONS("TensorArray", .compute = array_compute, .init = array_init,
             .fini = array_state_fini, STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArrayGrad", .compute = grad_compute, .init = grad_init, STATEFUL),
    {.op = "TensorArrayGradWithShape", .compute = grad_compute, .init = grad_init, STATEFUL},
    TENSOR_ARRAY_VERSIONS("TensorArrayWrite", .constraints = {{"T", TYPES_ARRAY_WRITE}},
             .compute = array_write, STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArrayRead", .constraints = {{"dtype", TYPES_ARRAY_WRITE}},
             .compute = array_read, STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArraySize", .compute = array_size, STATEFUL),
    TENSOR_ARRAY_VERSIONS("TensorArrayClose", .compute = array_close, STATEFUL),
};
// clang-format on

const struct kernel_list tensor_array_kernels = {rows, ARRAY_LEN(rows)};
