/* Computes the ops of files: ReadFile, WriteFile, MatchingFiles, and the names of sharded files. */
#include <stdlib.h>

#include "common/io/file_root.h"
#include "kernels/support/io_task.h"

extern const struct kernel_list io_kernels;

#define READ_MAX_BYTES (4ll << 30)

/* ---- ReadFile, WriteFile ---- */

static struct status *read_body(struct kernel_ctx *ctx) {
    struct str path = STR_INIT, contents = STR_INIT;
    struct status *st = io_path(tensor_string(kernel_input(ctx, 0), 0), &path);
    if (!st)
        st = file_load(&file_system_posix, path.data, READ_MAX_BYTES, &contents);
    if (!st)
        st = kernel_alloc(ctx, 0, DT_STRING, SHAPE_SCALAR);
    if (!st)
        tensor_set_string(&ctx->outputs[0], 0, str_text(&contents), contents.len);
    str_fini(&path);
    str_fini(&contents);
    return st;
}

static enum kernel_result read_compute(struct kernel_ctx *ctx) {
    struct span unused;
    KERNEL_TRY(ctx, io_scalar_string(ctx, 0, "Input filename tensor", &unused));
    return io_run(ctx, read_body);
}

static struct status *write_file(const char *path, struct span contents) {
    const struct file_system *fs = &file_system_posix;
    struct str dir = STR_INIT;
    file_dir_of(path, &dir);
    struct status *st = file_make_dirs(fs, dir.data);
    str_fini(&dir);
    TRY(st);
    int fd = fs->open(fs, path, FILE_REPLACE);
    if (fd < 0)
        return file_failed(path, fd);
    st = file_write_all(fs, fd, path, contents.data, contents.len, 0);
    int error = fs->close(fs, fd);
    return st ? st : error < 0 ? file_failed(path, error) : NULL;
}

static struct status *write_body(struct kernel_ctx *ctx) {
    struct str path = STR_INIT;
    struct status *st = io_path(tensor_string(kernel_input(ctx, 0), 0), &path);
    if (!st)
        st = write_file(path.data, tensor_string(kernel_input(ctx, 1), 0));
    str_fini(&path);
    return st;
}

static enum kernel_result write_compute(struct kernel_ctx *ctx) {
    struct span unused;
    KERNEL_TRY(ctx, io_scalar_string(ctx, 0, "Input filename tensor", &unused));
    KERNEL_TRY(ctx, io_scalar_string(ctx, 1, "Contents tensor", &unused));
    return io_run(ctx, write_body);
}

/* ---- MatchingFiles ---- */

struct matching_files {
    char **paths;
    size_t n;
};

static struct status *match_all(const struct tensor *patterns, struct matching_files *found) {
    for (int64_t i = 0; i < patterns->n_elements; i++) {
        char **paths;
        size_t n;
        TRY(file_match(tensor_string(patterns, i), &paths, &n));
        found->paths = xreallocarray(found->paths, found->n + n + 1, sizeof(*paths));
        for (size_t k = 0; k < n; k++)
            found->paths[found->n++] = paths[k];
        free(paths);
    }
    return NULL;
}

static struct status *match_body(struct kernel_ctx *ctx) {
    struct matching_files found = {0};
    struct status *st = match_all(kernel_input(ctx, 0), &found);
    int64_t n = (int64_t)found.n;
    if (!st)
        st = kernel_alloc(ctx, 0, DT_STRING, (struct shape){1, &n});
    if (!st && n > 1)
        qsort(found.paths, found.n, sizeof(*found.paths), text_compare);
    for (int64_t i = 0; !st && i < n; i++)
        tensor_set_string(&ctx->outputs[0], i, found.paths[i], strlen(found.paths[i]));
    file_match_free(found.paths, found.n);
    return st;
}

static enum kernel_result match_compute(struct kernel_ctx *ctx) {
    const struct tensor *patterns = kernel_input(ctx, 0);
    if (patterns->rank > 1)
        return kernel_fail(
            ctx, status_invalid("Input patterns tensor must be scalar or vector, but had shape: %s",
                                TENSOR_SHAPE_TEXT(patterns)));
    return io_run(ctx, match_body);
}

/* ---- names ---- */

static struct status *check_scalars(const struct kernel_ctx *ctx, const char *const *names) {
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        if (kernel_input(ctx, i)->rank != 0)
            return status_invalid("%s must be a scalar, got shape %s", names[i],
                                  TENSOR_SHAPE_TEXT(kernel_input(ctx, i)));
    return NULL;
}

static struct status *set_text(struct kernel_ctx *ctx, struct str *text) {
    struct status *st = kernel_alloc(ctx, 0, DT_STRING, SHAPE_SCALAR);
    if (!st)
        tensor_set_string(&ctx->outputs[0], 0, text->data, text->len);
    str_fini(text);
    return st;
}

static int int_at(const struct kernel_ctx *ctx, int input) {
    return *(const int32_t *)tensor_cdata(kernel_input(ctx, input));
}

static enum kernel_result filename_compute(struct kernel_ctx *ctx) {
    static const char *const names[] = {"basename", "shard", "num_shards"};
    struct str text = STR_INIT;
    KERNEL_TRY(ctx, check_scalars(ctx, names));
    struct span base = tensor_string(kernel_input(ctx, 0), 0);
    str_add_bytes(&text, base.data, base.len);
    str_addf(&text, "-%05d-of-%05d", int_at(ctx, 1), int_at(ctx, 2));
    KERNEL_TRY(ctx, set_text(ctx, &text));
    return KERNEL_DONE;
}

static enum kernel_result filespec_compute(struct kernel_ctx *ctx) {
    static const char *const names[] = {"basename", "num_shards"};
    struct str text = STR_INIT;
    KERNEL_TRY(ctx, check_scalars(ctx, names));
    struct span base = tensor_string(kernel_input(ctx, 0), 0);
    str_add_bytes(&text, base.data, base.len);
    str_addf(&text, "-\?\?\?\?\?-of-%05d", int_at(ctx, 1));
    KERNEL_TRY(ctx, set_text(ctx, &text));
    return KERNEL_DONE;
}

#define FILES (KERNEL_STATEFUL | KERNEL_ASYNC)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ReadFile", .compute = read_compute, .flags = FILES},
    {.op = "WriteFile", .compute = write_compute, .flags = FILES},
    {.op = "MatchingFiles", .compute = match_compute, .flags = FILES},
    {.op = "ShardedFilename", .compute = filename_compute},
    {.op = "ShardedFilespec", .compute = filespec_compute},
};
// clang-format on

const struct kernel_list io_kernels = {rows, ARRAY_LEN(rows)};
