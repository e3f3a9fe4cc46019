/* Computes the ops of checkpoints in the older, V1 format: Save, SaveSlices, Restore, RestoreSlice.
 * Runs on I/O threads. */
#include "common/io/file_root.h"
#include "common/io/slices_file.h"
#include "kernels/host/files/checkpoint_internal.h"
#include "kernels/support/cancel.h"
#include "kernels/support/io_task.h"

extern const struct kernel_list checkpoint_v1_kernels;

/* ---- saving ---- */

/* How many inputs precede the tensors: filename and names in Save, also specs in SaveSlices. The
 * arg of a row. */
static const int save_fixed = 2, save_slices_fixed = 3;

static int n_fixed(const struct kernel_ctx *ctx) { return *(const int *)ctx->instance->def->arg; }

static struct status *check_save_inputs(const struct kernel_ctx *ctx) {
    const struct tensor *filename = kernel_input(ctx, 0), *names = kernel_input(ctx, 1);
    int n_inputs = ctx->instance->n_inputs, fixed = n_fixed(ctx);
    if (filename->n_elements != 1)
        return status_invalid(
            "Input 0 (filename) must be a string scalar; got a tensor of %lld elements",
            (long long)filename->n_elements);
    if (fixed == save_slices_fixed && kernel_input(ctx, 2)->n_elements != names->n_elements)
        return status_invalid(
            "Expected %lld elements for the tensor shapes and slices but got %lld",
            (long long)names->n_elements, (long long)kernel_input(ctx, 2)->n_elements);
    if (names->n_elements + fixed != n_inputs)
        return status_invalid("Expected totally %lld inputs as input #1 (which is a string tensor "
                              "of saved names) contains %lld names, but "
                              "received %d inputs",
                              (long long)names->n_elements + fixed, (long long)names->n_elements,
                              n_inputs);
    return NULL;
}

static struct status *save_one(struct slices_writer *writer, struct span name, struct span spec,
                               const struct tensor *value) {
    struct shape whole = tensor_shape(value), part;
    struct tensor_slice slice;
    struct arena arena;
    struct status *st = NULL;
    arena_init(&arena);
    if (spec.len == 0)
        slice = tensor_slice_all(whole.rank, &arena);
    else
        st = tensor_slice_parse_spec(spec, &arena, &whole, &slice, &part);
    if (!st && spec.len > 0 && !shape_equal(part, tensor_shape(value)))
        st = status_invalid("Slice in shape_and_slice specification does not match the shape of "
                            "the tensor to  save: %.*s, tensor: %s",
                            (int)spec.len, spec.data, TENSOR_SHAPE_TEXT(value));
    if (!st)
        st = slices_writer_add(writer, name, whole, &slice, value);
    arena_fini(&arena);
    return st;
}

static struct status *save_body(struct kernel_ctx *ctx) {
    const struct tensor *names = kernel_input(ctx, 1);
    int fixed = n_fixed(ctx);
    struct str path = STR_INIT;
    struct status *st = io_prefix(tensor_string(kernel_input(ctx, 0), 0), &path);
    struct slices_writer *writer = st ? NULL : slices_writer_new(&file_system_posix, path.data);
    for (int64_t i = 0; !st && i < names->n_elements; i++) {
        struct span spec =
            fixed == save_slices_fixed ? tensor_string(kernel_input(ctx, 2), i) : span_of("");
        st = save_one(writer, tensor_string(names, i), spec, kernel_input(ctx, fixed + (int)i));
    }
    if (!st)
        st = kernel_check_cancelled(ctx);
    if (!st)
        st = slices_writer_finish(writer);
    slices_writer_free(writer);
    str_fini(&path);
    return st;
}

static enum kernel_result save_compute(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, check_save_inputs(ctx));
    return io_run(ctx, save_body);
}

/* ---- restoring ---- */

static struct status *open_files(struct span pattern, struct slices_reader **ret) {
    char **paths = NULL;
    size_t n = 0;
    struct status *st = file_match(pattern, &paths, &n);
    if (!st && n == 0)
        st = status_not_found("Unsuccessful TensorSliceReader constructor: Failed to find any "
                              "matching files for %.*s",
                              (int)pattern.len, pattern.data);
    if (!st)
        st = slices_reader_open(&file_system_posix, paths, n, ret);
    file_match_free(paths, n);
    return st;
}

static struct status *read_one(struct kernel_ctx *ctx, int output,
                               const struct slices_reader *reader,
                               const struct slices_tensor *tensor, struct span spec) {
    struct shape saved = slices_tensor_shape(tensor), whole, part;
    struct tensor_slice slice;
    struct arena arena;
    struct status *st = NULL;
    arena_init(&arena);
    if (spec.len == 0)
        slice = tensor_slice_all(saved.rank, &arena);
    else
        st = tensor_slice_parse_spec(spec, &arena, &whole, &slice, &part);
    if (!st && spec.len > 0 && !shape_equal(whole, saved))
        st = status_invalid("Shape in shape_and_slice spec does not match the shape in the save "
                            "file: %s, save file shape: %s",
                            SHAPE_TEXT(whole), SHAPE_TEXT(saved));
    if (!st)
        st = slices_reader_read(reader, tensor, &slice, ctx->instance->allocator,
                                &ctx->outputs[output]);
    arena_fini(&arena);
    return st;
}

static struct status *find_and_read(struct kernel_ctx *ctx, int output,
                                    const struct slices_reader *reader, struct span pattern,
                                    struct span name, struct span spec) {
    enum dtype wanted = (enum dtype)ctx->instance->out_types[output];
    const struct slices_tensor *tensor = slices_reader_find(reader, name);
    if (!tensor)
        return status_not_found("Tensor name \"%.*s\" not found in checkpoint files %.*s",
                                (int)name.len, name.data, (int)pattern.len, pattern.data);
    if (slices_tensor_dtype(tensor) != wanted)
        return status_invalid("Expected to restore a tensor of type %s, got a tensor of type %s "
                              "instead: tensor_name = %.*s",
                              dtype_name(wanted), dtype_name(slices_tensor_dtype(tensor)),
                              (int)name.len, name.data);
    return read_one(ctx, output, reader, tensor, spec);
}

struct status *checkpoint_v1_restore(struct kernel_ctx *ctx) {
    struct span pattern = tensor_string(kernel_input(ctx, 0), 0);
    struct slices_reader *reader = NULL;
    TRY(open_files(pattern, &reader));
    struct status *st = NULL;
    for (int i = 0; !st && i < ctx->instance->n_outputs; i++) {
        struct span spec =
            ctx->instance->n_inputs > 2 ? tensor_string(kernel_input(ctx, 2), i) : span_of("");
        st = kernel_check_cancelled(ctx);
        if (!st)
            st = find_and_read(ctx, i, reader, pattern, tensor_string(kernel_input(ctx, 1), i),
                               spec);
    }
    slices_reader_close(reader);
    return st;
}

static enum kernel_result restore_compute(struct kernel_ctx *ctx) {
    static const char *const names[] = {"file_pattern", "tensor_name", "shape_and_slice"};
    for (int i = 0; i < ctx->instance->n_inputs; i++)
        if (kernel_input(ctx, i)->n_elements != 1)
            return kernel_fail(
                ctx, status_invalid(
                         "Input %d (%s) must be a string scalar; got a tensor of %lld elements", i,
                         names[i], (long long)kernel_input(ctx, i)->n_elements));
    return io_run(ctx, checkpoint_v1_restore);
}

#define FILES (KERNEL_STATEFUL | KERNEL_ASYNC)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Save", .compute = save_compute, .arg = &save_fixed, .flags = FILES},
    {.op = "SaveSlices", .compute = save_compute, .arg = &save_slices_fixed, .flags = FILES},
    {.op = "Restore", .compute = restore_compute, .flags = FILES},
    {.op = "RestoreSlice", .compute = restore_compute, .flags = FILES},
};
// clang-format on

const struct kernel_list checkpoint_v1_kernels = {rows, ARRAY_LEN(rows)};
