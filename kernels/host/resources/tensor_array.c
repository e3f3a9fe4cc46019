/* Reads and writes the elements of TensorArrays (kernels/host/resources/tensor_array.h). */
#include "kernels/host/resources/tensor_array.h"

#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/swap.h"
#include "kernels/support/update.h"

/* ---- elements ---- */

static void element_set_shape(struct tensor_array_element *element, struct shape shape) {
    free(element->long_dims);
    element->long_dims =
        shape.rank > TENSOR_INLINE_RANK ? xmalloc((size_t)shape.rank * sizeof(int64_t)) : NULL;
    int64_t *dims = element->long_dims ? element->long_dims : element->dims;
    for (int i = 0; i < shape.rank; i++)
        dims[i] = shape.dims[i];
    element->rank = (int16_t)shape.rank;
}

static struct shape element_shape_of(const struct tensor_array_element *element) {
    return (struct shape){element->rank, element->long_dims ? element->long_dims : element->dims};
}

static void element_fini(struct tensor_array_element *element) {
    tensor_clear(&element->value);
    free(element->long_dims);
    element->long_dims = NULL;
}

/* Makes room for n elements. The memory is zero pages until it is touched. */
static struct status *reserve(struct tensor_array *array, int64_t n) {
    if (n <= array->capacity)
        return NULL;
    int64_t capacity = MAX(n, MIN(2 * array->capacity, (int64_t)INT32_MAX));
    size_t align = _Alignof(struct tensor_array_element);
    char *memory = calloc((size_t)capacity * sizeof(struct tensor_array_element) + align, 1);
    if (!memory)
        return status_exhausted("Out of memory for the %lld elements of TensorArray %s",
                                (long long)n, array->name);
    struct tensor_array_element *elements =
        (void *)(((uintptr_t)memory + align - 1) & ~(uintptr_t)(align - 1));
    if (array->n > 0)
        memcpy(elements, array->elements, (size_t)array->n * sizeof(*elements));
    free(array->memory);
    array->memory = memory;
    array->elements = elements;
    array->capacity = capacity;
    return NULL;
}

/* ---- lifetime ---- */

static void drop_elements(struct tensor_array *array) {
    for (int64_t i = 0; array->elements && i < array->n; i++)
        element_fini(&array->elements[i]);
}

static void tensor_array_free(struct object *object) {
    struct tensor_array *array = (struct tensor_array *)object;
    if (!array->is_closed)
        drop_elements(array);
    pthread_mutex_destroy(&array->lock);
    shape_free(array->element_shape);
    free(array->memory);
    free(array->name);
    free(array);
}

const struct object_type tensor_array_type = {.name = "TensorArray", .free = tensor_array_free};

struct status *tensor_array_new(const struct tensor_array_options *options, int64_t n,
                                struct tensor_array **ret) {
    struct tensor_array *array = xcalloc(1, sizeof(*array));
    object_init(&array->object, &tensor_array_type);
    pthread_mutex_init(&array->lock, NULL);
    array->name = xstrdup(options->name);
    array->dtype = options->dtype;
    array->has_identical_shapes = options->has_identical_shapes;
    array->clears_after_read = options->clears_after_read;
    array->is_dynamic = options->is_dynamic;
    array->n_split = -1;
    array->element_shape = shape_keep(options->element_shape);
    struct status *st = reserve(array, n);
    if (st) {
        object_unref(&array->object);
        return st;
    }
    array->n = n;
    *ret = array;
    return NULL;
}

static COLD struct status *closed(const struct tensor_array *array) {
    return status_invalid("TensorArray %s has already been closed.", array->name);
}

static struct shape shape_join(struct shape before, struct shape after, int64_t *dims) {
    if (after.rank < 0 || before.rank + after.rank > SHAPE_MAX_RANK)
        return SHAPE_UNKNOWN;
    for (int i = 0; i < before.rank; i++)
        dims[i] = before.dims[i];
    for (int i = 0; i < after.rank; i++)
        dims[before.rank + i] = after.dims[i];
    return (struct shape){before.rank + after.rank, dims};
}

/* The caller holds the lock of `of`. */
static struct status *new_grad_locked(struct tensor_array *of, const char *name,
                                      struct shape prepend, struct tensor_array **ret) {
    int64_t dims[SHAPE_MAX_RANK];
    if (of->is_closed)
        return closed(of);
    of->is_dynamic = false; /* later elements would have no gradient, so the array may not grow */
    struct tensor_array_options options = {
        .name = name,
        .dtype = of->dtype,
        .element_shape = shape_join(prepend, of->element_shape, dims),
        .has_identical_shapes = of->has_identical_shapes,
        .clears_after_read = true,
    };
    struct tensor_array *grad = NULL;
    TRY(tensor_array_new(&options, of->n, &grad));
    grad->is_grad = true;
    grad->n_split = of->n_split;
    for (int64_t i = 0; i < of->n; i++) {
        if (!of->elements[i].is_written)
            continue;
        element_set_shape(&grad->elements[i],
                          shape_join(prepend, element_shape_of(&of->elements[i]), dims));
        /* gradients of elements with a known shape begin as zeros */
        grad->elements[i].is_written = grad->elements[i].rank >= 0;
    }
    *ret = grad;
    return NULL;
}

struct status *tensor_array_new_grad(struct tensor_array *of, const char *name,
                                     struct shape prepend, struct tensor_array **ret) {
    if (of->is_grad)
        return status_invalid("Wrong input container. %s", of->name);
    pthread_mutex_lock(&of->lock);
    struct status *st = new_grad_locked(of, name, prepend, ret);
    pthread_mutex_unlock(&of->lock);
    return st;
}

/* ---- writing ---- */

static COLD struct status *write_refused(const struct tensor_array *array, int64_t index,
                                         const char *why) {
    return status_invalid(
        "TensorArray %s: Could not write to TensorArray index %lld because it has already been %s.",
        array->name, (long long)index, why);
}

static struct status *make_room(struct tensor_array *array, int64_t index) {
    if (index < 0 || (index >= array->n && !array->is_dynamic) || index >= INT32_MAX)
        return status_invalid("TensorArray %s: Tried to write to index %lld but array is not "
                              "resizeable and size is: %lld",
                              array->name, (long long)index, (long long)array->n);
    if (index >= array->n) {
        TRY(reserve(array, index + 1));
        array->n = index + 1;
    }
    return NULL;
}

static COLD struct status *wrong_shape(const struct tensor_array *array, int64_t index,
                                       const struct tensor *value) {
    return status_invalid(
        "TensorArray %s: Could not write to TensorArray index %lld because the value shape is %s "
        "which is incompatible "
        "with the TensorArray's inferred element shape: %s (consider setting infer_shape=False).",
        array->name, (long long)index, TENSOR_SHAPE_TEXT(value), SHAPE_TEXT(array->element_shape));
}

static bool can_add(const struct kernel_ctx *ctx, enum dtype dtype) {
    return kernel_is_for_device(ctx) || update_find(UPDATE_ADD, dtype) != NULL;
}

/* to = a + b, in whatever memory they are. */
static struct status *add_values(struct kernel_ctx *ctx, enum dtype dtype, void *to, const void *a,
                                 const void *b, int64_t n) {
    if (!kernel_is_for_device(ctx))
        return update_run(ctx->pool, update_find(UPDATE_ADD, dtype), dtype, to, a, b, n);
    return n == 0 ? NULL : ctx->instance->engine->update(ctx, UPDATE_ADD, dtype, to, a, b, n);
}

/* Adds *value to the element, and takes it. */
static struct status *element_add(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                  struct tensor *value) {
    struct tensor_array_element *element = &array->elements[index];
    struct tensor *sum = &element->value;
    if (!shape_equal(element_shape_of(element), tensor_shape(value)))
        return status_invalid("TensorArray %s: Could not aggregate to TensorArray index %lld "
                              "because the existing shape is %s but the new "
                              "input shape is %s.",
                              array->name, (long long)index, SHAPE_TEXT(element_shape_of(element)),
                              TENSOR_SHAPE_TEXT(value));
    if (sum->storage == TENSOR_NONE) {
        tensor_move(sum, value);
        return NULL;
    }
    if (!can_add(ctx, array->dtype))
        return status_invalid("TensorArray %s: Could not aggregate to TensorArray index %lld "
                              "because type %s cannot be added",
                              array->name, (long long)index, dtype_name(array->dtype));
    TRY(swap_in_now(ctx, sum));
    int64_t n = sum->n_elements;
    if (tensor_is_sole(sum)) {
        TRY(add_values(ctx, array->dtype, tensor_data(sum), tensor_cdata(sum), tensor_cdata(value),
                       n));
        tensor_clear(value);
        return NULL;
    }
    struct tensor made = TENSOR_INIT;
    if (tensor_is_sole(value))
        tensor_move(&made, value);
    else
        TRY(kernel_new(ctx, array->dtype, tensor_shape(sum), &made));
    const void *by = value->storage == TENSOR_NONE ? tensor_cdata(&made) : tensor_cdata(value);
    struct status *st = add_values(ctx, array->dtype, tensor_data(&made), tensor_cdata(sum), by, n);
    tensor_clear(sum);
    tensor_clear(value);
    tensor_move(sum, &made);
    return st;
}

/* The caller holds the lock. */
static struct status *write_locked(struct tensor_array *array, struct kernel_ctx *ctx,
                                   int64_t index, struct tensor *value) {
    if (unlikely(array->is_closed))
        return closed(array);
    if (unlikely(value->dtype != array->dtype))
        return status_invalid("TensorArray %s: Could not write to TensorArray index %lld because "
                              "the value dtype is %s but TensorArray "
                              "dtype is %s.",
                              array->name, (long long)index, dtype_name((enum dtype)value->dtype),
                              dtype_name(array->dtype));
    if (unlikely(index < 0 || index >= array->n))
        TRY(make_room(array, index));
    struct tensor_array_element *element = &array->elements[index];
    struct shape shape = tensor_shape(value);
    if (unlikely(!shape_is_compatible(array->element_shape, shape)))
        return wrong_shape(array, index, value);
    if (unlikely(element->is_read))
        return write_refused(array, index, "read");
    if (element->is_written) {
        if (!array->is_grad)
            return write_refused(array, index, "written to");
        return element_add(array, ctx, index, value);
    }
    if (array->has_identical_shapes && !shape_is_full(array->element_shape)) {
        shape_free(array->element_shape);
        array->element_shape = shape_keep(shape);
    }
    element_set_shape(element, shape);
    element->is_written = true;
    tensor_move(&element->value, value);
    return NULL;
}

struct status *tensor_array_write(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                  struct tensor *value) {
    pthread_mutex_lock(&array->lock);
    struct status *st = write_locked(array, ctx, index, value);
    pthread_mutex_unlock(&array->lock);
    return st;
}

struct status *tensor_array_write_many(struct tensor_array *array, struct kernel_ctx *ctx,
                                       const int32_t *indices, int64_t n, struct tensor *values) {
    struct status *st = NULL;
    pthread_mutex_lock(&array->lock);
    for (int64_t i = 0; i < n && !st; i++)
        st = write_locked(array, ctx, indices ? indices[i] : i, &values[i]);
    pthread_mutex_unlock(&array->lock);
    return st;
}

void tensor_array_look(struct tensor_array *array, int64_t index, struct tensor *ret) {
    pthread_mutex_lock(&array->lock);
    if (!array->is_closed && index < array->n)
        tensor_copy(ret, &array->elements[index].value);
    pthread_mutex_unlock(&array->lock);
}

void tensor_array_replace(struct tensor_array *array, int64_t index, const struct tensor *from,
                          struct tensor *by) {
    pthread_mutex_lock(&array->lock);
    if (!array->is_closed) {
        struct tensor *value = &array->elements[index].value;
        if (value->storage == TENSOR_BUFFER && value->data == from->data) {
            tensor_clear(value);
            tensor_move(value, by);
        }
    }
    pthread_mutex_unlock(&array->lock);
}

/* ---- reading ---- */

static struct status *read_zeros(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                 struct tensor *ret) {
    struct tensor_array_element *element = &array->elements[index];
    if (!element->is_written || element->rank < 0) {
        if (!shape_is_full(array->element_shape))
            return status_invalid(
                "TensorArray %s: Could not read from TensorArray index %lld.  Furthermore, the "
                "element shape is not fully defined: %s.  It "
                "is "
                "possible you are working with a resizeable TensorArray and stop_gradients is not "
                "allowing the gradients to be written.  "
                "If "
                "you set the full element_shape property on the forward TensorArray, the proper "
                "all-zeros tensor will be returned instead "
                "of incurring this error.",
                array->name, (long long)index, SHAPE_TEXT(array->element_shape));
        element_set_shape(element, array->element_shape);
        element->is_written = true;
    }
    struct shape shape = element_shape_of(element);
    return kernel_is_for_device(ctx)
               ? kernel_new_on_device(ctx, array->dtype, shape, true, ret)
               : tensor_new_zeroed(ctx->instance->allocator, array->dtype, shape, ret);
}

/* The caller holds the lock. */
static struct status *read_locked(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                  struct tensor *ret) {
    if (unlikely(array->is_closed))
        return closed(array);
    if (unlikely(index < 0 || index >= array->n))
        return status_invalid("Tried to read from index %lld but array size is: %lld",
                              (long long)index, (long long)array->n);
    struct tensor_array_element *element = &array->elements[index];
    if (unlikely(element->is_cleared))
        return status_invalid("TensorArray %s: Could not read index %lld twice because it was "
                              "cleared after a previous read (perhaps try "
                              "setting clear_after_read = false?).",
                              array->name, (long long)index);
    if (element->value.storage == TENSOR_NONE) {
        TRY(read_zeros(array, ctx, index, ret));
        if (!array->clears_after_read)
            tensor_copy(&element->value, ret);
    } else if (array->clears_after_read) {
        tensor_move(ret, &element->value);
    } else {
        tensor_copy(ret, &element->value);
    }
    element->is_read = true;
    element->is_cleared = array->clears_after_read;
    return NULL;
}

struct status *tensor_array_read(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                 struct tensor *ret) {
    pthread_mutex_lock(&array->lock);
    struct status *st = read_locked(array, ctx, index, ret);
    pthread_mutex_unlock(&array->lock);
    return st;
}

struct status *tensor_array_read_many(struct tensor_array *array, struct kernel_ctx *ctx,
                                      const int32_t *indices, int64_t n, struct tensor *ret) {
    struct status *st = NULL;
    pthread_mutex_lock(&array->lock);
    for (int64_t i = 0; i < n && !st; i++)
        st = read_locked(array, ctx, indices ? indices[i] : i, &ret[i]);
    pthread_mutex_unlock(&array->lock);
    for (int64_t i = 0; i < n && !st; i++)
        st = swap_in_now(ctx, &ret[i]);
    return st;
}

/* ---- size, closing ---- */

struct status *tensor_array_size(struct tensor_array *array, int64_t *ret_n, bool *ret_is_dynamic) {
    pthread_mutex_lock(&array->lock);
    struct status *st = array->is_closed ? closed(array) : NULL;
    *ret_n = array->n;
    if (ret_is_dynamic)
        *ret_is_dynamic = array->is_dynamic;
    pthread_mutex_unlock(&array->lock);
    return st;
}

struct status *tensor_array_n_joined(struct tensor_array *array, int64_t *ret_n) {
    TRY(tensor_array_size(array, ret_n, NULL));
    pthread_mutex_lock(&array->lock);
    if (array->is_grad && array->n_split >= 0)
        *ret_n = MIN(*ret_n, array->n_split);
    pthread_mutex_unlock(&array->lock);
    return NULL;
}

void tensor_array_set_split(struct tensor_array *array, int64_t n) {
    pthread_mutex_lock(&array->lock);
    if (!array->is_grad)
        array->n_split = n;
    pthread_mutex_unlock(&array->lock);
}

void tensor_array_close(struct tensor_array *array) {
    pthread_mutex_lock(&array->lock);
    if (!array->is_closed)
        drop_elements(array);
    array->is_closed = true;
    pthread_mutex_unlock(&array->lock);
}

struct tensor *tensors_new(int64_t n) {
    size_t size = (size_t)MAX(n, 1) * sizeof(struct tensor);
    struct tensor *tensors = (uint64_t)n > SIZE_MAX / 2 / sizeof(struct tensor)
                                 ? NULL
                                 : aligned_alloc(_Alignof(struct tensor), size);
    if (tensors)
        memset(tensors, 0, size);
    return tensors;
}

void tensors_free(struct tensor *tensors, int64_t n) {
    for (int64_t i = 0; tensors && i < n; i++)
        tensor_clear(&tensors[i]);
    free(tensors);
}
