/* Makes MatchingFilesDataset, whose elements are the names of the files that match patterns,
 * sorted, pattern by pattern. An I/O thread lists the directories. */
#include <stdlib.h>

#include "common/io/file_root.h"
#include "kernels/host/data/dataset.h"

extern const struct kernel_list dataset_match_kernels;

struct match_dataset {
    struct dataset base;
    struct tensor patterns; /* string, scalar or vector */
};

struct match_iter {
    struct dataset_iter iter;
    int64_t n_patterns_done;
    struct pool_task pool_task;
    struct data_task *task; /* holds a reference while an I/O thread works */
    bool is_working;
    _Atomic bool is_ready;
    /* the names of one pattern, made by the I/O thread */
    char **names;
    size_t n_names, at;
    struct status *status;
};

static void match_fini(struct dataset *dataset) {
    tensor_clear(&((struct match_dataset *)dataset)->patterns);
}

static void forget_names(struct match_iter *self) {
    file_match_free(self->names, self->n_names);
    self->names = NULL;
    self->n_names = self->at = 0;
}

static void match_end(struct dataset_iter *iter) {
    struct match_iter *self = (struct match_iter *)iter;
    CHECK(!self->is_working);
    forget_names(self);
    status_unref(self->status);
}

static void match_on_io(struct pool_task *pool_task) {
    struct match_iter *self = CONTAINER_OF(pool_task, struct match_iter, pool_task);
    const struct match_dataset *dataset = (const struct match_dataset *)self->iter.dataset;
    struct data_task *task = self->task;
    self->task = NULL;
    self->status = file_match(tensor_string(&dataset->patterns, self->n_patterns_done),
                              &self->names, &self->n_names);
    if (self->status)
        self->n_names = 0;
    if (self->n_names > 1)
        qsort(self->names, self->n_names, sizeof(*self->names), text_compare);
    /* the fields belong to the poll again */
    atomic_store_explicit(&self->is_ready, true, memory_order_release);
    data_task_wake_on_pool(task);
    data_task_unref(task);
}

static void start_matching(struct match_iter *self, struct data_task *task) {
    self->is_working = true;
    atomic_store_explicit(&self->is_ready, false, memory_order_relaxed);
    task->n_running++;
    self->task = data_task_ref(task);
    self->pool_task.run = match_on_io;
    pool_submit(self->iter.env->io_pool, &self->pool_task);
}

static enum data_poll match_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    struct match_iter *self = (struct match_iter *)iter;
    const struct match_dataset *dataset = (const struct match_dataset *)iter->dataset;
    for (;;) {
        if (self->is_working) {
            if (!atomic_load_explicit(&self->is_ready, memory_order_acquire))
                return DATA_PENDING;
            self->is_working = false;
            task->n_running--;
            self->n_patterns_done++;
        }
        if (self->status) {
            struct status *st = self->status;
            self->status = NULL;
            self->names = NULL;
            return data_task_fail(task, st);
        }
        if (self->at < self->n_names) {
            const char *name = self->names[self->at++];
            struct bytes *bytes = bytes_new(name, strlen(name));
            tensor_init_scalar_object(&out[0], DT_STRING, bytes ? &bytes->object : NULL);
            return DATA_ELEMENT;
        }
        forget_names(self);
        if (self->n_patterns_done >= dataset->patterns.n_elements)
            return DATA_END;
        start_matching(self, task);
    }
}

static const struct dataset_kind match_kind = {.name = "MatchingFiles",
                                               .dataset_size = sizeof(struct match_dataset),
                                               .iter_size = sizeof(struct match_iter),
                                               .next = match_next,
                                               .end = match_end,
                                               .fini = match_fini};

static enum kernel_result match_compute(struct kernel_ctx *ctx) {
    static const uint8_t types[] = {DT_STRING};
    static const struct shape shapes[] = {{0, NULL}};
    const struct tensor *patterns = kernel_input(ctx, 0);
    struct dataset *dataset = NULL;
    if (patterns->rank > 1)
        return kernel_fail(ctx, status_invalid("`patterns` must be a scalar or a vector."));
    KERNEL_TRY(ctx, dataset_new(ctx, &match_kind, 0, &dataset));
    dataset_set_components(dataset, 1, types, shapes);
    tensor_copy(&((struct match_dataset *)dataset)->patterns, patterns);
    return dataset_output(ctx, dataset);
}

// clang-format off
static const struct kernel_def rows[] = {
    DATASET_KERNEL("MatchingFilesDataset", match_compute),
    DATASET_KERNEL("ExperimentalMatchingFilesDataset", match_compute),
};
// clang-format on

const struct kernel_list dataset_match_kernels = {rows, ARRAY_LEN(rows)};
