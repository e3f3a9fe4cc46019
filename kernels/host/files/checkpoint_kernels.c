/* Computes the ops of checkpoints in the V2 format, SaveV2 and RestoreV2. checkpoint_merge.c has
 * MergeV2Checkpoints, checkpoint_v1.c the older format, checkpoint_peer.h checkpoints that only
 * another task has. All work is done on I/O threads. A save writes from the inputs' own buffers,
 * because a variable that is updated meanwhile gets another buffer. */
#include <pthread.h>
#include <stdlib.h>

#include "common/io/bundle.h"
#include "common/io/file_root.h"
#include "kernels/host/files/checkpoint_internal.h"
#include "kernels/host/files/checkpoint_peer.h"
#include "kernels/host/files/checkpoint_saves.h"
#include "kernels/support/cancel.h"
#include "kernels/support/io_task.h"

extern const struct kernel_list checkpoint_kernels;

enum {
    N_FIXED_INPUTS = 3,                /* prefix, names, specs */
    MAX_READERS = 4,                   /* threads of one RestoreV2 */
    PARALLEL_RESTORE_BYTES = 16 << 20, /* below this, one thread reads everything */
};

/* ---- SaveV2 and RestoreV2: their inputs ---- */

static struct status *check_fixed_inputs(const struct kernel_ctx *ctx, int64_t n_tensors,
                                         bool is_save) {
    const struct tensor *prefix = kernel_input(ctx, 0), *names = kernel_input(ctx, 1),
                        *specs = kernel_input(ctx, 2);
    if (prefix->n_elements != 1)
        return status_invalid("Input prefix should have a single element, got %lld instead.",
                              (long long)prefix->n_elements);
    if (names->rank != 1 || specs->rank != 1)
        return status_invalid("Input tensor_names and shape_and_slices should be an 1-D tensors, "
                              "got %s and %s instead.",
                              TENSOR_SHAPE_TEXT(names), TENSOR_SHAPE_TEXT(specs));
    if (names->n_elements != specs->n_elements)
        return status_invalid(
            "tensor_names and shape_and_slices have different number of elements: %lld vs. %lld",
            (long long)names->n_elements, (long long)specs->n_elements);
    if (names->n_elements != n_tensors)
        return status_invalid("Got %lld tensor names but %lld %s.", (long long)names->n_elements,
                              (long long)n_tensors, is_save ? "tensors" : "expected dtypes");
    return NULL;
}

/* ---- SaveV2 ---- */

static struct status *save_one(struct bundle_writer *writer, struct span name, struct span spec,
                               const struct tensor *value) {
    struct tensor_slice slice;
    struct shape whole, part;
    struct arena arena;
    if (spec.len == 0)
        return bundle_writer_add(writer, name, value);
    arena_init(&arena);
    struct status *st = tensor_slice_parse_spec(spec, &arena, &whole, &slice, &part);
    if (!st && !shape_equal(part, tensor_shape(value)))
        st = status_invalid("Slice in shape_and_slice specification does not match the shape of "
                            "the tensor to  save: %.*s, tensor: %s",
                            (int)spec.len, spec.data, TENSOR_SHAPE_TEXT(value));
    if (!st)
        st = bundle_writer_add_slice(writer, name, whole, &slice, value);
    arena_fini(&arena);
    return st;
}

static struct status *save_all(struct kernel_ctx *ctx, struct bundle_writer *writer) {
    const struct tensor *names = kernel_input(ctx, 1), *specs = kernel_input(ctx, 2);
    for (int64_t i = 0; i < names->n_elements; i++) {
        TRY(kernel_check_cancelled(ctx));
        TRY(save_one(writer, tensor_string(names, i), tensor_string(specs, i),
                     kernel_input(ctx, N_FIXED_INPUTS + (int)i)));
    }
    /* the last tensor may have taken long, and the next call replaces the existing checkpoint */
    TRY(kernel_check_cancelled(ctx));
    return bundle_writer_finish(writer);
}

static struct status *save_body(struct kernel_ctx *ctx) {
    struct bundle_writer *writer = NULL;
    struct str prefix = STR_INIT;
    struct status *st = io_prefix(tensor_string(kernel_input(ctx, 0), 0), &prefix);
    if (!st)
        st = bundle_writer_new(&file_system_posix, prefix.data, &writer);
    if (!st)
        st = save_all(ctx, writer);
    if (!st)
        checkpoint_note_saved(prefix.data);
    checkpoint_count_save("SaveV2", str_text(&prefix), st);
    bundle_writer_free(writer);
    str_fini(&prefix);
    return st;
}

static enum kernel_result save_compute(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, check_fixed_inputs(ctx, ctx->instance->n_inputs - N_FIXED_INPUTS, true));
    if (ctx->host && ctx->host->inputs_taken)
        ctx->host->inputs_taken(ctx);
    return io_run(ctx, save_body);
}

/* ---- RestoreV2 ---- */

/* One RestoreV2 of a V2 checkpoint. Several threads share it, and each takes the next tensor until
 * there are no more. */
struct restore {
    struct kernel_ctx *ctx;
    struct bundle_reader *reader;
    struct arena arena;
    struct bundle_entry *entries; /* for each output; constant */
    int n;
    _Atomic int next, n_threads;
    pthread_mutex_t lock;
    struct status *status; /* guarded by lock: the first failure */
};

struct restore_task {
    struct pool_task task;
    struct restore *restore;
};

/* Parses the part of a tensor that a spec names, and checks that the part is inside the tensor. */
static struct status *parse_spec(struct span name, struct span spec,
                                 const struct bundle_entry *entry, struct arena *arena,
                                 struct tensor_slice *ret) {
    struct shape whole, part;
    TRY(tensor_slice_parse_spec(spec, arena, &whole, ret, &part));
    if (shape_equal(whole, entry->shape))
        return NULL;
    return status_invalid("tensor_name = %.*s; shape in shape_and_slice spec %s does not match the "
                          "shape stored in checkpoint: %s",
                          (int)name.len, name.data, SHAPE_TEXT(whole), SHAPE_TEXT(entry->shape));
}

struct status *checkpoint_read_output(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                      const struct bundle_entry *entry, int i) {
    struct span name = tensor_string(kernel_input(ctx, 1), i),
                spec = tensor_string(kernel_input(ctx, 2), i);
    struct tensor_slice slice;
    struct arena arena;
    if (spec.len == 0)
        return bundle_read(reader, name, entry, ctx->instance->allocator, &ctx->outputs[i]);
    arena_init(&arena);
    struct status *st = parse_spec(name, spec, entry, &arena, &slice);
    if (!st)
        st = bundle_read_slice(reader, name, entry, &slice, ctx->instance->allocator,
                               &ctx->outputs[i]);
    arena_fini(&arena);
    return st;
}

struct status *checkpoint_visit_output(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                       const struct bundle_entry *entry, int i,
                                       bundle_visit_fn *visit, void *arg) {
    struct span name = tensor_string(kernel_input(ctx, 1), i),
                spec = tensor_string(kernel_input(ctx, 2), i);
    struct tensor_slice slice;
    struct arena arena;
    arena_init(&arena);
    struct status *st = spec.len > 0 ? parse_spec(name, spec, entry, &arena, &slice) : NULL;
    if (!st)
        st = bundle_visit_pieces(reader, name, entry, spec.len > 0 ? &slice : NULL, visit, arg);
    arena_fini(&arena);
    return st;
}

static struct status *restore_one(struct restore *restore, int i) {
    TRY(kernel_check_cancelled(restore->ctx));
    return checkpoint_read_output(restore->ctx, restore->reader, &restore->entries[i], i);
}

static void restore_fail(struct restore *restore, struct status *st_take) {
    pthread_mutex_lock(&restore->lock);
    if (!restore->status) {
        restore->status = st_take;
        st_take = NULL;
    }
    pthread_mutex_unlock(&restore->lock);
    atomic_store(&restore->next, restore->n); /* makes the other threads stop */
    status_unref(st_take);
}

static void restore_free(struct restore *restore) {
    bundle_reader_close(restore->reader);
    arena_fini(&restore->arena);
    pthread_mutex_destroy(&restore->lock);
    free(restore);
}

/* Reads the remaining tensors. The last thread to end ends the execution. */
static void restore_work(struct restore *restore) {
    struct kernel_ctx *ctx = restore->ctx;
    for (int i; (i = atomic_fetch_add(&restore->next, 1)) < restore->n;) {
        struct status *st = restore_one(restore, i);
        if (st)
            restore_fail(restore, st);
    }
    if (atomic_fetch_sub(&restore->n_threads, 1) != 1)
        return;
    if (restore->status)
        kernel_fail(ctx, restore->status);
    restore_free(restore);
    ctx->host->done(ctx);
}

static void restore_help(struct pool_task *task) {
    struct restore_task *helper = CONTAINER_OF(task, struct restore_task, task);
    struct restore *restore = helper->restore;
    free(helper);
    restore_work(restore);
}

struct wanted {
    struct span name;
    int output;
};

static int by_name(const void *a, const void *b) {
    const struct wanted *x = a, *y = b;
    int order = table_compare(x->name, y->name);
    return order != 0 ? order : (x->output > y->output) - (x->output < y->output);
}

/* Looks the tensors up in the order of names, which is the order of the index. */
struct status *checkpoint_find_all(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                   struct arena *arena, struct bundle_entry *entries) {
    int n = ctx->instance->n_outputs;
    struct wanted *wanted = arena_array(arena, struct wanted, n + 1);
    struct str mismatches = STR_INIT;
    struct status *st = NULL;
    for (int i = 0; i < n; i++)
        wanted[i] = (struct wanted){tensor_string(kernel_input(ctx, 1), i), i};
    qsort(wanted, (size_t)n, sizeof(*wanted), by_name);
    for (int i = 0; !st && i < n; i++) {
        struct span name = wanted[i].name;
        struct bundle_entry *entry = &entries[wanted[i].output];
        enum dtype dtype = (enum dtype)ctx->instance->out_types[wanted[i].output];
        st = bundle_find(reader, name, arena, entry);
        if (!st && entry->dtype != dtype)
            str_addf(&mismatches,
                     "%stensor_name = %.*s; expected dtype %s does not equal original dtype %s",
                     mismatches.len > 0 ? "\n" : "", (int)name.len, name.data, dtype_name(dtype),
                     dtype_name(entry->dtype));
    }
    if (!st && mismatches.len > 0)
        st = status_invalid("%s", mismatches.data);
    str_fini(&mismatches);
    return st;
}

static struct status *restore_open(struct kernel_ctx *ctx, const char *prefix,
                                   struct restore **ret) {
    struct restore *restore = xcalloc(1, sizeof(*restore));
    restore->ctx = ctx;
    restore->n = ctx->instance->n_outputs;
    arena_init(&restore->arena);
    pthread_mutex_init(&restore->lock, NULL);
    restore->entries = arena_array(&restore->arena, struct bundle_entry, restore->n + 1);
    struct status *st = bundle_reader_open(&file_system_posix, prefix, &restore->reader);
    if (!st)
        st = checkpoint_find_all(ctx, restore->reader, &restore->arena, restore->entries);
    if (st)
        restore_free(restore);
    else
        *ret = restore;
    return st;
}

/* How many additional threads the sizes are worth. */
static int count_helpers(const struct restore *restore) {
    int64_t size = 0;
    for (int i = 0; i < restore->n; i++)
        size += MIN(restore->entries[i].size_bytes, INT64_MAX / MAX(restore->n, 1));
    return size < PARALLEL_RESTORE_BYTES ? 0 : MIN(restore->n, (int)MAX_READERS) - 1;
}

static void restore_start(struct restore *restore) {
    struct kernel_ctx *ctx = restore->ctx;
    int n_helpers = count_helpers(restore);
    atomic_store(&restore->n_threads, n_helpers + 1);
    for (int i = 0; i < n_helpers; i++) {
        struct restore_task *helper = xmalloc(sizeof(*helper));
        *helper = (struct restore_task){{.run = restore_help}, restore};
        ctx->host->submit_io(ctx, &helper->task);
    }
    restore_work(restore);
}

/* As in TensorFlow, a file that is no V2 checkpoint may be a checkpoint of the older format. If it
 * is neither, another task may have the checkpoint. */
static void restore_begin(struct kernel_ctx *ctx) {
    struct restore *restore = NULL;
    bool is_elsewhere = false;
    struct str prefix = STR_INIT, index = STR_INIT;
    struct status *st = checkpoint_check_name(tensor_string(kernel_input(ctx, 0), 0));
    if (!st)
        st = io_prefix(tensor_string(kernel_input(ctx, 0), 0), &prefix);
    if (!st) {
        bundle_index_path(prefix.data, &index);
        if (file_system_posix.kind(&file_system_posix, index.data) > FILE_KIND_NONE) {
            st = restore_open(ctx, prefix.data, &restore);
        } else {
            st = checkpoint_v1_restore(ctx);
            is_elsewhere = st && status_code(st) == STATUS_NOT_FOUND && checkpoint_has_peers(ctx);
        }
    }
    str_fini(&prefix);
    str_fini(&index);
    if (restore) {
        restore_start(restore);
        return;
    }
    if (is_elsewhere) {
        status_unref(st);
        checkpoint_remote_restore(ctx);
        return;
    }
    if (st)
        kernel_fail(ctx, st);
    ctx->host->done(ctx);
}

static enum kernel_result restore_compute(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, check_fixed_inputs(ctx, ctx->instance->n_outputs, false));
    return io_start(ctx, restore_begin);
}

#define FILES (KERNEL_STATEFUL | KERNEL_ASYNC)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SaveV2", .compute = save_compute, .flags = FILES},
    {.op = "RestoreV2", .compute = restore_compute, .flags = FILES},
};
// clang-format on

const struct kernel_list checkpoint_kernels = {rows, ARRAY_LEN(rows)};
