/* Makes datasets whose elements are windows: datasets of collected elements. */
#include "kernels/host/data/dataset_window.h"

#include <stdlib.h>

#include "kernels/support/variant.h"

extern const struct kernel_list dataset_window_kernels;

/* ---- a dataset of some elements ---- */

struct list_dataset {
    struct dataset base;
    struct element_buffer elements;
};

struct list_iter {
    struct dataset_iter iter;
    int64_t at;
};

static enum data_poll list_next(struct dataset_iter *iter, struct data_task *task,
                                struct tensor *out) {
    const struct list_dataset *dataset = (const struct list_dataset *)iter->dataset;
    struct list_iter *self = (struct list_iter *)iter;
    if (self->at >= dataset->elements.n)
        return DATA_END;
    element_copy(out, element_at(&dataset->elements, self->at++), dataset->base.n_components);
    return DATA_ELEMENT;
}

static void list_fini(struct dataset *dataset) {
    element_buffer_fini(&((struct list_dataset *)dataset)->elements);
}

static int64_t list_cardinality(struct dataset *dataset) {
    return ((struct list_dataset *)dataset)->elements.n;
}

static const struct dataset_kind list_kind = {.name = "Window",
                                              .dataset_size = sizeof(struct list_dataset),
                                              .iter_size = sizeof(struct list_iter),
                                              .next = list_next,
                                              .fini = list_fini,
                                              .cardinality = list_cardinality};

struct dataset *window_dataset_new(const struct dataset *of, struct element_buffer *elements_take) {
    struct dataset *dataset = dataset_new_bare(&list_kind, 1);
    dataset_set_components(dataset, of->n_components, of->types, of->shapes);
    ((struct list_dataset *)dataset)->elements = *elements_take;
    for (int64_t i = 0; i < elements_take->n * elements_take->n_components; i++)
        dataset->depth =
            MAX(dataset->depth, (int)variant_depth_with(&element_at(elements_take, 0)[i]));
    *elements_take = (struct element_buffer){.n_components = of->n_components};
    return dataset;
}

/* ---- window ---- */

struct window_dataset {
    struct dataset base;
    int64_t size, shift, stride;
    bool drops_remainder;
    bool stacks; /* a window is a tensor instead of a dataset */
};

/* An element of the input that failed. A window fails when it holds one. */
struct failed_element {
    int64_t number; /* its number among all elements of the input */
    struct status *status;
};

struct window_iter {
    struct dataset_iter_one one;
    struct element_buffer buffer; /* begins with the window's first element */
    int64_t first_number;         /* the number of the buffer's first element */
    /* the failed elements in the buffer, in order; the buffer holds nothing for them */
    struct failed_element *failed;
    int n_failed, failed_capacity;
    /* elements to skip before the next window, when the shift is more than was collected */
    int64_t n_to_skip;
    bool has_input_ended;
};

static struct status *window_begin(struct dataset_iter *iter) {
    ((struct window_iter *)iter)->buffer.n_components = iter->dataset->inputs[0]->n_components;
    return dataset_begin_one(iter);
}

/* Drops the failures of elements that have left the buffer. */
static void drop_failures(struct window_iter *self) {
    int n = 0;
    while (n < self->n_failed && self->failed[n].number < self->first_number)
        status_unref(self->failed[n++].status);
    self->n_failed -= n;
    if (n > 0)
        memmove(self->failed, self->failed + n, (size_t)self->n_failed * sizeof(*self->failed));
}

static void window_end(struct dataset_iter *iter) {
    struct window_iter *self = (struct window_iter *)iter;
    dataset_end_one(iter);
    element_buffer_fini(&self->buffer);
    self->first_number = INT64_MAX;
    drop_failures(self);
    free(self->failed);
}

/* The element at the buffer's end has failed: it counts, and its status is kept. */
static void add_failed(struct window_iter *self, struct data_task *task) {
    if (self->n_failed == self->failed_capacity) {
        self->failed_capacity = MAX(4, 2 * self->failed_capacity);
        self->failed =
            xreallocarray(self->failed, (size_t)self->failed_capacity, sizeof(*self->failed));
    }
    self->failed[self->n_failed++] =
        (struct failed_element){self->first_number + self->buffer.n++, task->status};
    task->status = NULL;
}

static enum data_poll skip_elements(struct window_iter *self, struct data_task *task) {
    while (self->n_to_skip > 0 && !self->has_input_ended) {
        struct tensor *room = element_buffer_reserve(&self->buffer);
        if (!room)
            return data_task_fail(task, status_exhausted("Out of memory for an element"));
        enum data_poll result = dataset_iter_next(self->one.input, task, room);
        if (result == DATA_PENDING || (result == DATA_FAILED && !data_task_may_continue(task)))
            return result;
        if (result == DATA_FAILED) { /* the element is skipped, so its failure does not matter */
            status_unref(task->status);
            task->status = NULL;
        }
        self->has_input_ended = result == DATA_END;
        if (result == DATA_ELEMENT)
            element_clear(room, self->buffer.n_components);
        self->first_number++;
        self->n_to_skip--;
    }
    return DATA_ELEMENT;
}

static enum data_poll collect_window(struct window_iter *self, int64_t target,
                                     struct data_task *task) {
    enum data_poll result = skip_elements(self, task);
    if (result != DATA_ELEMENT || self->has_input_ended)
        return result;
    const struct window_dataset *dataset = (const struct window_dataset *)self->one.iter.dataset;
    while ((result = element_buffer_fill(&self->buffer, target, self->one.input, task)) ==
               DATA_FAILED &&
           data_task_may_continue(task) && !dataset->stacks)
        add_failed(self, task);
    self->has_input_ended = result == DATA_END;
    return result == DATA_END ? DATA_ELEMENT : result;
}

/* Makes component i of every stride-th element, as a dataset or as the rows of a tensor. */
static struct status *window_of(const struct window_iter *self, int i, int64_t stride,
                                struct tensor *ret) {
    const struct window_dataset *dataset = (const struct window_dataset *)self->one.iter.dataset;
    const struct dataset *input = dataset->base.inputs[0];
    struct element_buffer elements = {.n_components = 1};
    for (int64_t e = 0; e < self->buffer.n; e += MIN(stride, INT64_MAX - e)) {
        struct tensor *room = element_buffer_reserve(&elements);
        if (!room) {
            element_buffer_fini(&elements);
            return status_exhausted("Out of memory for a window");
        }
        tensor_copy(room, &element_at(&self->buffer, e)[i]);
        elements.n++;
    }
    if (dataset->stacks) {
        struct status *st = element_buffer_stack(&elements, 0, self->one.iter.env->allocator, ret);
        element_buffer_fini(&elements);
        return st;
    }
    struct dataset one = {
        .n_components = 1, .types = &input->types[i], .shapes = &input->shapes[i]};
    tensor_init_scalar_object(ret, DT_VARIANT, &window_dataset_new(&one, &elements)->object);
    return NULL;
}

/* Returns the first failure of an element in the window, with a reference, or NULL. */
static struct status *failure_in_window(const struct window_iter *self, int64_t stride) {
    for (int i = 0; i < self->n_failed; i++)
        if ((self->failed[i].number - self->first_number) % stride == 0)
            return status_ref(self->failed[i].status);
    return NULL;
}

static enum data_poll window_next(struct dataset_iter *iter, struct data_task *task,
                                  struct tensor *out) {
    const struct window_dataset *dataset = (const struct window_dataset *)iter->dataset;
    struct window_iter *self = (struct window_iter *)iter;
    int64_t target;
    if (mul_overflows_i64(dataset->size - 1, dataset->stride, &target) ||
        add_overflows_i64(target, 1, &target))
        target = INT64_MAX;
    enum data_poll result = collect_window(self, target, task);
    if (result != DATA_ELEMENT)
        return result;
    if (self->buffer.n == 0 || (dataset->drops_remainder && self->buffer.n < target))
        return DATA_END;
    struct status *st = failure_in_window(self, dataset->stride);
    int n = 0;
    for (; n < iter->dataset->n_components && !st; n++)
        st = window_of(self, n, dataset->stride, &out[n]);
    int64_t n_dropped = MIN(dataset->shift, self->buffer.n);
    element_buffer_drop(&self->buffer, n_dropped);
    self->first_number += n_dropped;
    drop_failures(self);
    self->n_to_skip = dataset->shift - n_dropped;
    if (!st)
        return DATA_ELEMENT;
    element_clear(out, n);
    return data_task_fail(task, st);
}

static int64_t window_cardinality(struct dataset *dataset) {
    const struct window_dataset *self = (const struct window_dataset *)dataset;
    int64_t n = dataset_cardinality(dataset->inputs[0]), span;
    if (n < 0)
        return n;
    if (mul_overflows_i64(self->size - 1, self->stride, &span) || add_overflows_i64(span, 1, &span))
        span = INT64_MAX;
    if (self->drops_remainder)
        return n < span ? 0 : (n - span) / self->shift + 1;
    return n / self->shift + (n % self->shift != 0);
}

static const struct dataset_kind window_kind = {.name = "Window",
                                                .dataset_size = sizeof(struct window_dataset),
                                                .iter_size = sizeof(struct window_iter),
                                                .begin = window_begin,
                                                .next = window_next,
                                                .end = window_end,
                                                .cardinality = window_cardinality};

static struct status *take_sizes(struct kernel_ctx *ctx, struct window_dataset *self) {
    TRY(dataset_scalar_i64(ctx, 1, "size", &self->size));
    TRY(dataset_scalar_i64(ctx, 2, "shift", &self->shift));
    TRY(dataset_scalar_i64(ctx, 3, "stride", &self->stride));
    if (self->size <= 0)
        return status_invalid("Window size must be greater than zero.");
    if (self->shift <= 0)
        return status_invalid("Window shift must be greater than zero.");
    if (self->stride <= 0)
        return status_invalid("Window stride must be greater than zero.");
    return NULL;
}

static struct status *window_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct window_dataset *self = (struct window_dataset *)dataset;
    TRY(take_sizes(ctx, self));
    TRY(dataset_scalar_bool(ctx, 4, "drop_remainder", &self->drops_remainder));
    int n = dataset->n_components;
    uint8_t *types = xmalloc((size_t)n + 1);
    struct shape *shapes = xcalloc((size_t)n + 1, sizeof(*shapes)); /* the shapes of scalars */
    memset(types, DT_VARIANT, (size_t)n);
    dataset_set_components(dataset, n, types, shapes);
    free(types);
    free(shapes);
    return NULL;
}

static enum kernel_result window_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &window_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, window_take(ctx, dataset));
}

static struct status *slide_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct window_dataset *self = (struct window_dataset *)dataset;
    const struct attr_value *drops = node_attr(ctx->instance->node, "drop_remainder");
    self->stacks = true;
    self->drops_remainder = !drops || drops->b;
    TRY(take_sizes(ctx, self));
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    const struct dataset *input = dataset->inputs[0];
    if (dataset->n_components != input->n_components ||
        memcmp(dataset->types, input->types, (size_t)input->n_components) != 0)
        return status_invalid("output_types must be those of the dataset");
    return NULL;
}

static enum kernel_result slide_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &window_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, slide_take(ctx, dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("WindowDataset", window_compute),
    DATASET_KERNEL("SlidingWindowDataset", slide_compute),
    DATASET_KERNEL("ExperimentalSlidingWindowDataset", slide_compute),
};
// clang-format on

const struct kernel_list dataset_window_kernels = {rows, ARRAY_LEN(rows)};
