/* Makes the cache in a file. The first iterator that reaches the end writes a checkpoint
 * (common/io/bundle.h) whose tensors are the elements' components, under names that sort in the
 * order of the elements. After that, iterators read the checkpoint. The format is TensorFlow's.
 *
 *                    ┌ PREFIX.index exists ─────► READING: elements in blocks of names
 *   OPENING (I/O) ───┤
 *                    └ not: PREFIX_0.lockfile ─► WRITING: elements are passed on, and written in
 *                                                blocks ─► end: the index ─► ENDED
 *
 * When an iterator is freed before the end, an I/O thread removes its files. An iterator that
 * starts meanwhile removes the lock file first. An iterator that finds another process' lock file
 * fails, because another task is writing, or a task was killed while it wrote. */
#include "kernels/host/data/dataset_cache.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/io/bundle.h"
#include "common/io/file_root.h"
#include "kernels/host.h"
#include "kernels/host/data/dataset_buffer.h"

/* what an I/O thread writes or reads in one go */
enum { BLOCK_ELEMENTS = 256, BLOCK_BYTES = 1 << 20 };
/* of an element's number in a name, padded with blanks */
enum { NUMBER_DIGITS = 7 };

struct file_cache_dataset {
    struct dataset base;
    char *prefix; /* as the client wrote it */
};

enum cache_state { CACHE_OPENING, CACHE_READING, CACHE_WRITING, CACHE_ENDED };

struct file_cache_iter {
    struct dataset_iter_one one; /* the input, while the file is written */
    enum cache_state state;
    struct str path, lock_path;
    struct bundle_reader *reader;
    struct bundle_writer *writer;
    /* elements that were read and not handed out yet, or handed out and not written yet */
    struct element_buffer block;
    size_t block_bytes;
    int64_t number; /* the number of the next element to read or write */
    bool has_input_ended, has_file_ended;
    struct pool_task pool_task;
    struct data_task *task; /* holds a reference while I/O is running */
    bool is_busy;
    _Atomic bool is_done;
    struct status *status; /* the I/O thread's result */
};

static const struct file_system *const fs = &file_system_posix;

/* ---- lock files of iterators that were freed ---- */

/* The files of an unfinished cache, which an I/O thread removes. */
struct abandoned_lock {
    struct pool_task task;
    struct list link;
    struct bundle_reader *reader;
    struct bundle_writer *writer;
    /* guarded by leaving_lock, like the field below; empty once the file is removed */
    struct str lock_path;
    /* a thread removes the file now, without holding the lock, because loop threads take the
     * lock */
    bool is_unlinking;
};

static pthread_mutex_t leaving_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_unlinked = PTHREAD_COND_INITIALIZER;
static struct list all_leaving = {&all_leaving, &all_leaving};

static void unlock(struct str *lock_path) {
    if (lock_path->len > 0)
        fs->unlink(fs, str_text(lock_path));
    str_clear(lock_path);
}

/* The caller holds the lock. It is released and taken again. */
static void unlock_abandoned(struct abandoned_lock *leaving) {
    leaving->is_unlinking = true;
    pthread_mutex_unlock(&leaving_lock);
    fs->unlink(fs, str_text(&leaving->lock_path));
    pthread_mutex_lock(&leaving_lock);
    str_clear(&leaving->lock_path);
    leaving->is_unlinking = false;
    pthread_cond_broadcast(&has_unlinked);
}

static struct abandoned_lock *find_abandoned(const char *lock_path) {
    LIST_FOR_EACH (link, &all_leaving) {
        struct abandoned_lock *leaving = LIST_ENTRY(link, struct abandoned_lock, link);
        if (strcmp(str_text(&leaving->lock_path), lock_path) == 0)
            return leaving;
    }
    return NULL;
}

/* Removes the lock file of that name if its iterator was freed. */
static void unlock_if_abandoned(const char *lock_path) {
    pthread_mutex_lock(&leaving_lock);
    for (struct abandoned_lock *leaving; (leaving = find_abandoned(lock_path));) {
        if (leaving->is_unlinking)
            pthread_cond_wait(&has_unlinked, &leaving_lock);
        else
            unlock_abandoned(leaving);
    }
    pthread_mutex_unlock(&leaving_lock);
}

static void abandon_on_io(struct pool_task *task) {
    struct abandoned_lock *leaving = CONTAINER_OF(task, struct abandoned_lock, task);
    /* the files being written have other names than the cache */
    bundle_writer_free(leaving->writer);
    bundle_reader_close(leaving->reader);
    pthread_mutex_lock(&leaving_lock);
    while (leaving->is_unlinking)
        pthread_cond_wait(&has_unlinked, &leaving_lock);
    if (leaving->lock_path.len > 0)
        unlock_abandoned(leaving);
    list_remove(&leaving->link);
    pthread_mutex_unlock(&leaving_lock);
    str_fini(&leaving->lock_path);
    free(leaving);
}

/* ---- on an I/O thread ---- */

static void name_of(int64_t number, int component, int n_components, char ret[static 64]) {
    int digits = snprintf(NULL, 0, "%d", MAX(n_components - 1, 0));
    snprintf(ret, 64, "%*lld_%*d", NUMBER_DIGITS, (long long)number, digits, component);
}

static struct status *lock(struct file_cache_iter *self) {
    struct str text = STR_INIT;
    str_clear(&self->lock_path);
    str_addf(&self->lock_path, "%s_0.lockfile", str_text(&self->path));
    struct status *st = NULL;
    unlock_if_abandoned(str_text(&self->lock_path));
    int fd = fs->open(fs, str_text(&self->lock_path), FILE_CREATE);
    if (fd == -EEXIST) {
        /* the lock file may have been removed meanwhile */
        status_unref(file_load(fs, str_text(&self->lock_path), 1 << 10, &text));
        st = status_new(STATUS_ALREADY_EXISTS,
                        "There appears to be a concurrent caching iterator running - cache "
                        "lockfile already exists ('%s'). If you are sure "
                        "no other running TF computations are using this cache prefix, delete the "
                        "lockfile and re-initialize the "
                        "iterator. Lockfile contents: %s",
                        str_text(&self->lock_path), str_text(&text));
        str_clear(&self->lock_path); /* the lock file is another process', so it is not removed */
    } else if (fd < 0) {
        st = file_failed(str_text(&self->lock_path), fd);
        str_clear(&self->lock_path);
    } else {
        str_addf(&text, "Created at: %lld", (long long)(clock_wall_us() / 1000000));
        st = file_write_all(fs, fd, str_text(&self->lock_path), str_text(&text), text.len, 0);
        int error = fs->close(fs, fd);
        if (!st && error < 0)
            st = file_failed(str_text(&self->lock_path), error);
        if (st)
            unlock(&self->lock_path);
    }
    str_fini(&text);
    return st;
}

static struct status *open_file(struct file_cache_iter *self) {
    const struct file_cache_dataset *dataset =
        (const struct file_cache_dataset *)self->one.iter.dataset;
    struct str index = STR_INIT;
    str_clear(&self->path);
    TRY(file_root_resolve_prefix(span_of(dataset->prefix), &self->path));
    bundle_index_path(str_text(&self->path), &index);
    bool is_there = fs->kind(fs, str_text(&index)) == FILE_KIND_FILE;
    str_fini(&index);
    if (is_there) {
        TRY(bundle_reader_open(fs, str_text(&self->path), &self->reader));
        self->state = CACHE_READING;
        return NULL;
    }
    TRY(lock(self));
    struct status *st = bundle_writer_new(fs, str_text(&self->path), &self->writer);
    if (st) {
        unlock(&self->lock_path);
        return st;
    }
    self->state = CACHE_WRITING;
    return NULL;
}

/* Is there such a component of the next element? */
static struct status *find_component(struct file_cache_iter *self, int i, struct arena *arena,
                                     bool *ret) {
    struct bundle_entry entry;
    char name[64];
    name_of(self->number, i, self->one.iter.dataset->n_components, name);
    struct status *st = bundle_find(self->reader, span_of(name), arena, &entry);
    *ret = !st;
    if (!st || status_code(st) != STATUS_NOT_FOUND)
        return st;
    status_unref(st);
    return NULL;
}

/* Checks that the file holds elements of as many components as ours have, or no elements. */
static struct status *check_file(struct file_cache_iter *self, struct arena *arena,
                                 bool has_first) {
    int n = self->one.iter.dataset->n_components;
    struct bundle_iter entries;
    bool has_more = false;
    struct status *st = bundle_iter_init(&entries, self->reader);
    bool is_empty = !st && !entries.is_valid;
    bundle_iter_fini(&entries);
    TRY(st);
    TRY(find_component(self, n, arena, &has_more));
    if ((has_first || is_empty) && !has_more)
        return NULL;
    return status_invalid("The cache file '%s' does not hold elements of %d components",
                          str_text(&self->path), n);
}

static struct status *read_component(struct file_cache_iter *self, int i, struct arena *arena,
                                     struct tensor *ret) {
    const struct dataset *dataset = self->one.iter.dataset;
    struct bundle_entry entry;
    char name[64];
    name_of(self->number, i, dataset->n_components, name);
    TRY(bundle_find(self->reader, span_of(name), arena, &entry));
    if (entry.dtype != dataset->types[i])
        return status_invalid("Component %d of a cached element is %s, not %s", i,
                              dtype_name(entry.dtype), dtype_name((enum dtype)dataset->types[i]));
    return bundle_read(self->reader, span_of(name), &entry, self->one.iter.env->allocator, ret);
}

/* Reads the next element. At the end there is none. */
static struct status *read_element(struct file_cache_iter *self, struct arena *arena) {
    int n = self->one.iter.dataset->n_components;
    struct tensor *element = element_buffer_reserve(&self->block);
    struct status *st = NULL;
    bool is_there = false;
    int i = 0;
    if (!element)
        return status_exhausted("Out of memory for a cached element");
    TRY(find_component(self, 0, arena, &is_there));
    if (self->number == 0)
        TRY(check_file(self, arena, is_there));
    self->has_file_ended = !is_there;
    if (!is_there)
        return NULL;
    for (; i < n; i++) {
        st = read_component(self, i, arena, &element[i]);
        if (st)
            break;
        self->block_bytes += tensor_size_bytes(&element[i]);
    }
    if (!st) {
        self->block.n++;
        self->number++;
        return NULL;
    }
    element_clear(element, i);
    return st;
}

static struct status *read_block(struct file_cache_iter *self) {
    struct arena arena;
    struct status *st = NULL;
    arena_init(&arena);
    while (!st && !self->has_file_ended && self->block.n < BLOCK_ELEMENTS &&
           self->block_bytes < BLOCK_BYTES)
        st = read_element(self, &arena);
    arena_fini(&arena);
    return st;
}

static struct status *write_block(struct file_cache_iter *self) {
    char name[64];
    for (int64_t e = 0; e < self->block.n; e++, self->number++)
        for (int i = 0; i < self->block.n_components; i++) {
            name_of(self->number, i, self->block.n_components, name);
            TRY(bundle_writer_add(self->writer, span_of(name), &element_at(&self->block, e)[i]));
        }
    element_buffer_clear(&self->block);
    self->block_bytes = 0;
    return NULL;
}

/* Closes the files. Without an index nothing of them remains. */
static void close_files(struct file_cache_iter *self) {
    bundle_writer_free(self->writer);
    self->writer = NULL;
    unlock(&self->lock_path);
}

static struct status *write_and_finish(struct file_cache_iter *self) {
    TRY(write_block(self));
    if (!self->has_input_ended)
        return NULL;
    TRY(bundle_writer_finish(self->writer));
    self->state = CACHE_ENDED;
    close_files(self);
    return NULL;
}

static void work_on_io(struct pool_task *pool_task) {
    struct file_cache_iter *self = CONTAINER_OF(pool_task, struct file_cache_iter, pool_task);
    struct data_task *task = self->task;
    self->task = NULL;
    switch (self->state) {
    case CACHE_OPENING:
        self->status = open_file(self);
        break;
    case CACHE_READING:
        self->status = read_block(self);
        break;
    default:
        self->status = write_and_finish(self);
        if (self->status) { /* the next iterator starts from the beginning */
            close_files(self);
            self->state = CACHE_ENDED;
        }
    }
    /* the fields belong to the poll again */
    atomic_store_explicit(&self->is_done, true, memory_order_release);
    data_task_wake_on_pool(task);
    data_task_unref(task);
}

/* ---- the poll ---- */

static enum data_poll start_work(struct file_cache_iter *self, struct data_task *task) {
    self->is_busy = true;
    atomic_store_explicit(&self->is_done, false, memory_order_relaxed);
    task->n_running++;
    self->task = data_task_ref(task);
    self->pool_task.run = work_on_io;
    pool_submit(self->one.iter.env->io_pool, &self->pool_task);
    return DATA_PENDING;
}

static enum data_poll next_read(struct file_cache_iter *self, struct data_task *task,
                                struct tensor *out) {
    if (self->block.n > 0) {
        struct tensor *element = element_at(&self->block, 0);
        self->block_bytes = self->block.n == 1 ? 0 : self->block_bytes;
        element_copy(out, element, self->block.n_components);
        element_buffer_drop(&self->block, 1);
        return DATA_ELEMENT;
    }
    return self->has_file_ended ? DATA_END : start_work(self, task);
}

static enum data_poll next_written(struct file_cache_iter *self, struct data_task *task,
                                   struct tensor *out) {
    int n = self->block.n_components;
    if (self->has_input_ended || self->block.n >= BLOCK_ELEMENTS ||
        self->block_bytes >= BLOCK_BYTES)
        return start_work(self, task);
    struct tensor *room = element_buffer_reserve(&self->block);
    if (!room)
        return data_task_fail(task, status_exhausted("Out of memory for an element"));
    enum data_poll result = dataset_iter_next(self->one.input, task, room);
    self->has_input_ended = result == DATA_END;
    if (result == DATA_END)
        return start_work(self, task);
    if (result != DATA_ELEMENT)
        return result;
    for (int i = 0; i < n; i++)
        self->block_bytes += tensor_size_bytes(&room[i]);
    element_copy(out, room, n);
    self->block.n++;
    return DATA_ELEMENT;
}

static enum data_poll cache_next(struct dataset_iter *iter, struct data_task *task,
                                 struct tensor *out) {
    struct file_cache_iter *self = (struct file_cache_iter *)iter;
    if (self->is_busy) {
        if (!atomic_load_explicit(&self->is_done, memory_order_acquire))
            return DATA_PENDING;
        self->is_busy = false;
        task->n_running--;
    }
    if (self->status) {
        struct status *st = self->status;
        self->status = NULL;
        return data_task_fail(task, st);
    }
    if (self->state == CACHE_OPENING)
        return start_work(self, task);
    if (self->state == CACHE_READING)
        return next_read(self, task, out);
    if (self->state == CACHE_ENDED)
        return DATA_END;
    if (!self->one.input) {
        struct status *st = dataset_begin_one(iter);
        if (st)
            return data_task_fail(task, st);
    }
    return next_written(self, task, out);
}

static struct status *cache_begin(struct dataset_iter *iter) {
    ((struct file_cache_iter *)iter)->block.n_components = iter->dataset->n_components;
    return NULL;
}

static void cache_end(struct dataset_iter *iter) {
    struct file_cache_iter *self = (struct file_cache_iter *)iter;
    CHECK(!self->is_busy);
    dataset_end_one(iter);
    element_buffer_fini(&self->block);
    status_unref(self->status);
    str_fini(&self->path);
    if (!self->writer && !self->reader) {
        str_fini(&self->lock_path);
        return;
    }
    struct abandoned_lock *leaving = xcalloc(1, sizeof(*leaving));
    leaving->writer = self->writer;
    leaving->reader = self->reader;
    leaving->lock_path = self->lock_path;
    leaving->task.run = abandon_on_io;
    pthread_mutex_lock(&leaving_lock);
    list_push_back(&all_leaving, &leaving->link);
    pthread_mutex_unlock(&leaving_lock);
    pool_submit(iter->env->io_pool, &leaving->task);
}

static void cache_fini(struct dataset *dataset) {
    free(((struct file_cache_dataset *)dataset)->prefix);
}

static const struct dataset_kind file_cache_kind = {.name = "FileCache",
                                                    .dataset_size =
                                                        sizeof(struct file_cache_dataset),
                                                    .iter_size = sizeof(struct file_cache_iter),
                                                    .begin = cache_begin,
                                                    .next = cache_next,
                                                    .end = cache_end,
                                                    .fini = cache_fini,
                                                    .keeps_cardinality = true};

enum kernel_result dataset_cache_file(struct kernel_ctx *ctx, struct span prefix) {
    struct dataset *dataset = NULL;
    if (!ctx->host->io_pool)
        return kernel_fail(ctx, status_unimplemented("Files can be used on workers only"));
    KERNEL_TRY(ctx, dataset_new(ctx, &file_cache_kind, 1, &dataset));
    ((struct file_cache_dataset *)dataset)->prefix = xstrndup(prefix.data, prefix.len);
    return dataset_output(ctx, dataset);
}
