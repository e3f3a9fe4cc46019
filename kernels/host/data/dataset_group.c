/* Makes datasets that group elements by a key, which a function computes from each element: group
 * by window, group by reducer. */
#include <stdlib.h>

#include "kernels/host/data/dataset_map.h"
#include "kernels/host/data/dataset_window.h"

extern const struct kernel_list dataset_group_kernels;

enum { N_FUNCTIONS = 4 }; /* key, reduce, window size; or key, init, reduce, finalize */

struct group_dataset {
    struct dataset base;
    struct dataset_fn fns[N_FUNCTIONS];
    int n_state; /* group by reducer only */
};

struct group {
    int64_t key, window_size;
    struct element_buffer elements;
    struct tensor *state; /* group by reducer only */
};

/* What is being computed between two polls. */
enum group_stage { GROUP_PULL, GROUP_KEY, GROUP_OPEN, GROUP_ADD, GROUP_FLUSH, GROUP_DRAIN };

struct group_iter {
    struct dataset_iter_one one;
    struct dataset_call calls[N_FUNCTIONS];
    struct tensor *element;
    enum group_stage stage;
    struct group *groups; /* in the order of their keys */
    int64_t n_groups, capacity, at;
    struct dataset_iter *current; /* the dataset that the reduce function made of a window */
    bool has_input_ended;
};

static void group_dataset_fini(struct dataset *dataset) {
    for (int i = 0; i < N_FUNCTIONS; i++)
        dataset_fn_fini(&((struct group_dataset *)dataset)->fns[i]);
}

static void group_fini(struct group *group, int n_state) {
    element_buffer_fini(&group->elements);
    element_free(group->state, n_state);
}

static void group_end(struct dataset_iter *iter) {
    struct group_iter *self = (struct group_iter *)iter;
    dataset_end_one(iter);
    for (int i = 0; i < N_FUNCTIONS; i++)
        dataset_call_fini(&self->calls[i]);
    for (int64_t i = 0; i < self->n_groups; i++)
        group_fini(&self->groups[i], ((const struct group_dataset *)iter->dataset)->n_state);
    element_free(self->element, iter->dataset->inputs[0]->n_components);
    dataset_iter_free(self->current);
    free(self->groups);
}

/* The position of the key's group. When there is none, *ret_is_new is true and the position is
 * where the group belongs. */
static int64_t group_find(const struct group_iter *self, int64_t key, bool *ret_is_new) {
    int64_t low = 0, high = self->n_groups;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (self->groups[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    *ret_is_new = low == self->n_groups || self->groups[low].key != key;
    return low;
}

static struct group *group_insert(struct group_iter *self, int64_t at, int64_t key) {
    if (self->n_groups == self->capacity) {
        self->capacity = MAX(2 * self->capacity, (int64_t)8);
        self->groups = xreallocarray(self->groups, (size_t)self->capacity, sizeof(*self->groups));
    }
    memmove(self->groups + at + 1, self->groups + at,
            (size_t)(self->n_groups - at) * sizeof(*self->groups));
    self->n_groups++;
    self->groups[at] = (struct group){
        .key = key, .elements.n_components = self->one.iter.dataset->inputs[0]->n_components};
    return &self->groups[at];
}

/* Reads the int64 scalar that a function has returned. */
static struct status *take_number(struct dataset_call *call, const char *what, int64_t *ret) {
    const struct tensor *t = &call->rets[0];
    bool is_sound = call->function->n_rets == 1 && t->rank == 0 && t->dtype == DT_INT64;
    if (is_sound)
        *ret = *(const int64_t *)tensor_cdata(t);
    element_clear(call->rets, call->function->n_rets);
    return is_sound ? NULL : status_invalid("`%s` must return a scalar int64.", what);
}

/* ---- the key of the next element ---- */

/* Reads an element and computes its key. self->at becomes the position of the key's group.
 * *ret_is_new: the group does not exist yet. */
static enum data_poll next_key(struct group_iter *self, struct data_task *task, int64_t *ret_key) {
    int n = self->one.iter.dataset->inputs[0]->n_components;
    if (self->stage == GROUP_PULL) {
        enum data_poll result = self->has_input_ended
                                    ? DATA_END
                                    : dataset_iter_next(self->one.input, task, self->element);
        self->has_input_ended = self->has_input_ended || result == DATA_END;
        if (result != DATA_ELEMENT)
            return result;
        self->stage = GROUP_KEY;
        element_copy(self->calls[0].args, self->element, n);
    }
    enum data_poll result = dataset_call_poll(&self->calls[0], task);
    if (result == DATA_PENDING)
        return result;
    struct status *st =
        result == DATA_ELEMENT ? take_number(&self->calls[0], "key_func", ret_key) : NULL;
    if (st)
        result = data_task_fail(task, st);
    if (result != DATA_ELEMENT) {
        element_clear(self->element, n);
        self->stage = GROUP_PULL;
    }
    return result;
}

/* ---- group by window ---- */

static struct status *windows_begin(struct dataset_iter *iter) {
    struct group_iter *self = (struct group_iter *)iter;
    const struct group_dataset *dataset = (const struct group_dataset *)iter->dataset;
    int n = iter->dataset->inputs[0]->n_components;
    self->element = element_new(n);
    TRY(dataset_begin_one(iter));
    TRY(dataset_call_init(&self->calls[0], &dataset->fns[0], iter->env, n));
    TRY(dataset_call_init(&self->calls[1], &dataset->fns[1], iter->env, 2));
    return dataset_call_init(&self->calls[2], &dataset->fns[2], iter->env, 1);
}

static struct status *add_element(struct group_iter *self, struct group *group) {
    struct tensor *room = element_buffer_reserve(&group->elements);
    int n = self->one.iter.dataset->inputs[0]->n_components;
    if (!room) {
        element_clear(self->element, n);
        return status_exhausted("Out of memory for the elements of a group");
    }
    element_move(room, self->element, n);
    group->elements.n++;
    return NULL;
}

/* Calls the reduce function with the key and a dataset, which takes the group's elements. */
static void flush_group(struct group_iter *self, int64_t at) {
    struct group *group = &self->groups[at];
    struct tensor *args = self->calls[1].args;
    tensor_init_scalar_i64(&args[0], group->key);
    struct dataset *window =
        window_dataset_new(self->one.iter.dataset->inputs[0], &group->elements);
    tensor_init_scalar_object(&args[1], DT_VARIANT, &window->object);
    self->stage = GROUP_FLUSH;
}

static struct status *open_group(struct group_iter *self) {
    struct dataset_call *call = &self->calls[1];
    const struct dataset *outer = self->one.iter.dataset;
    struct dataset *dataset = NULL;
    struct status *st = call->function->n_rets == 1
                            ? dataset_of(&call->rets[0], &dataset)
                            : status_invalid("`reduce_func` must return a Dataset.");
    if (!st && (dataset->n_components != outer->n_components ||
                (outer->n_components > 0 &&
                 memcmp(dataset->types, outer->types, (size_t)outer->n_components) != 0)))
        st = status_invalid("The dataset that `reduce_func` returns is not of the declared types");
    if (!st)
        st = dataset_iter_new(dataset, self->one.iter.env, &self->current);
    element_clear(call->rets, call->function->n_rets);
    return st;
}

static enum data_poll open_window(struct group_iter *self, struct data_task *task) {
    int64_t window_size = 0;
    enum data_poll result = dataset_call_poll(&self->calls[2], task);
    if (result == DATA_PENDING)
        return result;
    struct status *st = result == DATA_ELEMENT
                            ? take_number(&self->calls[2], "window_size_func", &window_size)
                            : NULL;
    if (!st && result == DATA_ELEMENT && window_size <= 0)
        st = status_invalid("Window size must be greater than zero, but got %lld.",
                            (long long)window_size);
    if (st)
        result = data_task_fail(task, st);
    if (result == DATA_ELEMENT) {
        self->groups[self->at].window_size = window_size;
        self->stage = GROUP_ADD;
        return result;
    }
    element_clear(self->element, self->one.iter.dataset->inputs[0]->n_components);
    /* the group has no size, so the next element of this key asks for it again */
    group_fini(&self->groups[self->at], 0);
    memmove(self->groups + self->at, self->groups + self->at + 1,
            (size_t)(--self->n_groups - self->at) * sizeof(*self->groups));
    self->stage = GROUP_PULL;
    return result;
}

/* Finds the group of the next element, which is read unless it has been read already. When the key
 * is new, the group is made, the stage is GROUP_OPEN, and the key becomes the argument of
 * `open`. */
static enum data_poll next_group(struct group_iter *self, struct dataset_call *open, int n_state,
                                 struct data_task *task) {
    int64_t key = 0;
    bool is_new;
    if (self->stage != GROUP_PULL && self->stage != GROUP_KEY)
        return DATA_ELEMENT;
    enum data_poll result = next_key(self, task, &key);
    if (result != DATA_ELEMENT)
        return result;
    self->at = group_find(self, key, &is_new);
    self->stage = is_new ? GROUP_OPEN : GROUP_ADD;
    if (!is_new)
        return DATA_ELEMENT;
    struct group *group = group_insert(self, self->at, key);
    if (n_state > 0)
        group->state = element_new(n_state);
    tensor_init_scalar_i64(&open->args[0], key);
    return DATA_ELEMENT;
}

/* Adds elements until a group must be flushed. DATA_END: all elements are in groups. */
static enum data_poll collect_groups(struct group_iter *self, struct data_task *task) {
    for (;;) {
        enum data_poll result = next_group(self, &self->calls[2], 0, task);
        if (result != DATA_ELEMENT)
            return result;
        if (self->stage == GROUP_OPEN) {
            result = open_window(self, task);
            if (result != DATA_ELEMENT)
                return result;
        }
        self->stage = GROUP_PULL;
        struct status *st = add_element(self, &self->groups[self->at]);
        if (st)
            return data_task_fail(task, st);
        if (self->groups[self->at].elements.n == self->groups[self->at].window_size) {
            flush_group(self, self->at);
            return DATA_ELEMENT;
        }
    }
}

/* Flushes the next group that has elements, once the input has ended. */
static bool flush_rest(struct group_iter *self) {
    for (self->at = 0; self->at < self->n_groups; self->at++)
        if (self->groups[self->at].elements.n > 0) {
            flush_group(self, self->at);
            return true;
        }
    return false;
}

static enum data_poll windows_next(struct dataset_iter *iter, struct data_task *task,
                                   struct tensor *out) {
    struct group_iter *self = (struct group_iter *)iter;
    for (;;) {
        enum data_poll result;
        if (self->stage == GROUP_DRAIN) {
            result = dataset_iter_next(self->current, task, out);
            if (result != DATA_END)
                return result;
            dataset_iter_free(self->current);
            self->current = NULL;
            self->stage = GROUP_PULL;
        }
        if (self->stage != GROUP_FLUSH) {
            result = collect_groups(self, task);
            if (result == DATA_PENDING || result == DATA_FAILED)
                return result;
            if (result == DATA_END && !flush_rest(self))
                return DATA_END;
        }
        result = dataset_call_poll(&self->calls[1], task);
        if (result == DATA_PENDING)
            return result;
        struct status *st = result == DATA_ELEMENT ? open_group(self) : NULL;
        self->stage = result == DATA_ELEMENT && !st ? GROUP_DRAIN : GROUP_PULL;
        if (st)
            return data_task_fail(task, st);
        if (result == DATA_FAILED)
            return result;
    }
}

static const struct dataset_kind windows_kind = {.name = "GroupByWindow",
                                                 .dataset_size = sizeof(struct group_dataset),
                                                 .iter_size = sizeof(struct group_iter),
                                                 .begin = windows_begin,
                                                 .next = windows_next,
                                                 .end = group_end,
                                                 .fini = group_dataset_fini};

/* ---- group by reducer ---- */

enum { FN_KEY, FN_INIT, FN_REDUCE, FN_FINALIZE };

static struct status *reducer_begin(struct dataset_iter *iter) {
    struct group_iter *self = (struct group_iter *)iter;
    const struct group_dataset *dataset = (const struct group_dataset *)iter->dataset;
    int n = iter->dataset->inputs[0]->n_components;
    self->element = element_new(n);
    TRY(dataset_begin_one(iter));
    TRY(dataset_call_init(&self->calls[FN_KEY], &dataset->fns[FN_KEY], iter->env, n));
    TRY(dataset_call_init(&self->calls[FN_INIT], &dataset->fns[FN_INIT], iter->env, 1));
    TRY(dataset_call_init(&self->calls[FN_REDUCE], &dataset->fns[FN_REDUCE], iter->env,
                          dataset->n_state + n));
    return dataset_call_init(&self->calls[FN_FINALIZE], &dataset->fns[FN_FINALIZE], iter->env,
                             dataset->n_state);
}

/* Adds all elements to their groups' states. DATA_END: the input has ended. */
static enum data_poll reduce_all(struct group_iter *self, struct data_task *task) {
    const struct group_dataset *dataset = (const struct group_dataset *)self->one.iter.dataset;
    int n = dataset->base.inputs[0]->n_components, n_state = dataset->n_state;
    for (;;) {
        enum data_poll result = next_group(self, &self->calls[FN_INIT], n_state, task);
        if (result != DATA_ELEMENT)
            return result;
        if (self->stage == GROUP_OPEN) {
            result = dataset_call_poll(&self->calls[FN_INIT], task);
            if (result != DATA_ELEMENT)
                return result;
            element_move(self->groups[self->at].state, self->calls[FN_INIT].rets, n_state);
            self->stage = GROUP_ADD;
        }
        struct dataset_call *reduce = &self->calls[FN_REDUCE];
        if (!reduce->is_running) {
            element_move(reduce->args, self->groups[self->at].state, n_state);
            element_move(reduce->args + n_state, self->element, n);
        }
        result = dataset_call_poll(reduce, task);
        if (result != DATA_ELEMENT)
            return result;
        element_move(self->groups[self->at].state, reduce->rets, n_state);
        self->stage = GROUP_PULL;
    }
}

static enum data_poll reducer_next(struct dataset_iter *iter, struct data_task *task,
                                   struct tensor *out) {
    struct group_iter *self = (struct group_iter *)iter;
    int n_state = ((const struct group_dataset *)iter->dataset)->n_state;
    if (self->stage != GROUP_FLUSH) {
        enum data_poll result = reduce_all(self, task);
        if (result == DATA_FAILED) { /* the states are incomplete, so there are no elements */
            self->has_input_ended = true;
            self->at = self->n_groups;
            self->stage = GROUP_FLUSH;
        }
        if (result != DATA_END)
            return result;
        self->stage = GROUP_FLUSH;
        self->at = 0;
    }
    if (self->at >= self->n_groups)
        return DATA_END;
    struct dataset_call *finalize = &self->calls[FN_FINALIZE];
    if (!finalize->is_running)
        element_move(finalize->args, self->groups[self->at].state, n_state);
    enum data_poll result = dataset_call_poll(finalize, task);
    if (result == DATA_PENDING)
        return result;
    self->at++;
    if (result == DATA_ELEMENT)
        element_move(out, finalize->rets, iter->dataset->n_components);
    return result;
}

static const struct dataset_kind reducer_kind = {.name = "GroupByReducer",
                                                 .dataset_size = sizeof(struct group_dataset),
                                                 .iter_size = sizeof(struct group_iter),
                                                 .begin = reducer_begin,
                                                 .next = reducer_next,
                                                 .end = group_end,
                                                 .fini = group_dataset_fini};

/* ---- kernels ---- */

/* A function, and the list attr that says how many tensors it has captured. */
struct named_fn {
    const char *attr, *captured;
};

static struct status *take_fns(struct kernel_ctx *ctx, struct group_dataset *self,
                               const struct named_fn *names, int n) {
    static const uint8_t number[] = {DT_INT64};
    int first = 1;
    for (int i = 0; i < n; i++) {
        int n_captured = dataset_list_length(ctx, names[i].captured);
        TRY(dataset_fn_init(ctx, names[i].attr, first, n_captured, &self->fns[i]));
        first += n_captured;
    }
    TRY(dataset_fn_check(&self->fns[0], number, 1));
    return dataset_declare(ctx, &self->base, NULL, NULL);
}

static enum kernel_result windows_compute(struct kernel_ctx *ctx) {
    static const struct named_fn names[] = {
        {"key_func", "Tkey_func_other_arguments"},
        {"reduce_func", "Treduce_func_other_arguments"},
        {"window_size_func", "Twindow_size_func_other_arguments"}};
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &windows_kind, 1, &dataset));
    return dataset_finish(ctx, dataset, take_fns(ctx, (struct group_dataset *)dataset, names, 3));
}

/* Checks that the states have the same types at every function. */
static struct status *check_states(struct group_dataset *self) {
    const struct function *init = self->fns[FN_INIT].function;
    self->n_state = init->n_rets;
    TRY(dataset_fn_check(&self->fns[FN_REDUCE], init->ret_types, init->n_rets));
    return dataset_fn_check(&self->fns[FN_FINALIZE], self->base.types, self->base.n_components);
}

static enum kernel_result reducer_compute(struct kernel_ctx *ctx) {
    static const struct named_fn names[] = {{"key_func", "Tkey_func_other_arguments"},
                                            {"init_func", "Tinit_func_other_arguments"},
                                            {"reduce_func", "Treduce_func_other_arguments"},
                                            {"finalize_func", "Tfinalize_func_other_arguments"}};
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_new(ctx, &reducer_kind, 1, &dataset));
    struct group_dataset *self = (struct group_dataset *)dataset;
    struct status *st = take_fns(ctx, self, names, 4);
    return dataset_finish(ctx, dataset, st ? st : check_states(self));
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("GroupByWindowDataset", windows_compute),
    DATASET_KERNEL("ExperimentalGroupByWindowDataset", windows_compute),
    DATASET_KERNEL("GroupByReducerDataset", reducer_compute),
    DATASET_KERNEL("ExperimentalGroupByReducerDataset", reducer_compute),
};
// clang-format on

const struct kernel_list dataset_group_kernels = {rows, ARRAY_LEN(rows)};
