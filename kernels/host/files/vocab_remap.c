/* Computes GenerateVocabRemapping and LoadAndRemapMatrix, which load a checkpoint's weights for a
 * vocabulary that has changed since the save. Both read files, on an I/O thread. */
#include <stdlib.h>

#include "common/base/map.h"
#include "common/io/bundle.h"
#include "kernels/support/cancel.h"
#include "kernels/support/io_task.h"

extern const struct kernel_list vocab_remap_kernels;

enum { FILE_MAX_BYTES = 1 << 30 };

/* ---- vocabularies ---- */

struct vocab_state {
    int64_t offset, n_new, old_size; /* old_size -1: all lines */
};

static struct status *vocab_init(struct kernel_init *init) {
    struct vocab_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "new_vocab_offset", &state->offset));
    TRY(node_get_i(init->node, "num_new_vocab", &state->n_new));
    return node_get_i(init->node, "old_vocab_size", &state->old_size);
}

struct vocab {
    struct str text;
    struct span *lines;
    int64_t n, capacity;
};

static void vocab_fini(struct vocab *vocab) {
    str_fini(&vocab->text);
    free(vocab->lines);
}

/* Splits the text into lines without their ends, at most `max` (-1: all). */
static void split_lines(struct vocab *vocab, int64_t max) {
    struct span rest = {str_text(&vocab->text), vocab->text.len};
    while (rest.len > 0 && vocab->n != max) {
        const char *end = memchr(rest.data, '\n', rest.len);
        size_t len = end ? (size_t)(end - rest.data) : rest.len, taken = len + (end != NULL);
        if (vocab->n == vocab->capacity) {
            vocab->capacity = vocab->capacity ? 2 * vocab->capacity : 256;
            vocab->lines =
                xreallocarray(vocab->lines, (size_t)vocab->capacity, sizeof(*vocab->lines));
        }
        vocab->lines[vocab->n++] =
            (struct span){rest.data, len > 0 && rest.data[len - 1] == '\r' ? len - 1 : len};
        rest = (struct span){rest.data + taken, rest.len - taken};
    }
}

static struct status *check_lines(const struct vocab *vocab, const char *path, int64_t max) {
    if (vocab->text.len == 0)
        return status_out_of_range("Read less bytes than requested: %s is empty", path);
    for (int64_t i = 0; i < vocab->n; i++)
        if (vocab->lines[i].len == 0)
            return status_invalid("Invalid content in %s: empty line found at position %lld.", path,
                                  (long long)i);
    if (max > 0 && vocab->n < max)
        return status_invalid("Invalid vocab_size in %s: expected %lld but got %lld", path,
                              (long long)max, (long long)vocab->n);
    return NULL;
}

static struct status *vocab_load(struct kernel_ctx *ctx, int input, const char *what, int64_t max,
                                 struct vocab *vocab) {
    struct span name;
    struct str path = STR_INIT;
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("%s should be a single string, but got rank %d", what, t->rank);
    name = tensor_string(t, 0);
    if (name.len == 0)
        return status_invalid("%s cannot be empty.", what);
    struct status *st = io_path(name, &path);
    if (!st)
        st = file_load(&file_system_posix, path.data, FILE_MAX_BYTES, &vocab->text);
    if (!st)
        split_lines(vocab, max);
    if (!st)
        st = check_lines(vocab, path.data, max);
    str_fini(&path);
    return st;
}

/* Maps each line to its number + 1, as a pointer that is not NULL. */
static struct status *index_lines(const struct vocab *vocab, struct strmap *map) {
    for (int64_t i = 0; i < vocab->n; i++) {
        void *before = strmap_put_span(map, vocab->lines[i], (void *)(uintptr_t)(i + 1));
        if (before)
            return status_failed_precondition("HashTable has different value for same key. Key "
                                              "%.*s has %lld and trying to add value %lld",
                                              (int)vocab->lines[i].len, vocab->lines[i].data,
                                              (long long)(uintptr_t)before - 1, (long long)i);
    }
    return NULL;
}

static struct status *remap_vocab(struct kernel_ctx *ctx) {
    const struct vocab_state *state = ctx->instance->state;
    struct vocab new_vocab = {0}, old_vocab = {0};
    struct strmap map;
    struct status *st = NULL;
    int32_t n_present = 0;
    strmap_init(&map);
    TRY_OUT(vocab_load(ctx, 0, "new_vocab_file", -1, &new_vocab));
    if (state->offset > new_vocab.n || state->n_new > new_vocab.n - state->offset) {
        st = status_invalid(
            "lookup table size must be greater than or equal to last new vocab entry's line");
        goto out;
    }
    TRY_OUT(vocab_load(ctx, 1, "old_vocab_file", state->old_size, &old_vocab));
    TRY_OUT(index_lines(&old_vocab, &map));
    TRY_OUT(kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &state->n_new}));
    int64_t *remapping = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < state->n_new; i++) {
        remapping[i] =
            (int64_t)(uintptr_t)strmap_get_span(&map, new_vocab.lines[state->offset + i]) - 1;
        n_present += remapping[i] >= 0;
    }
    tensor_init_scalar_i32(&ctx->outputs[1], n_present);
out:
    strmap_fini(&map);
    vocab_fini(&new_vocab);
    vocab_fini(&old_vocab);
    return st;
}

/* GenerateVocabRemapping: attrs new_vocab_offset, num_new_vocab, old_vocab_size (-1: all).
 *   new_vocab_file, old_vocab_file  string, scalars: a word per line
 *   remapping    int64 [num_new_vocab]: the old line of each new word, -1 for none
 *   num_present  int32: how many new words have an old line
 * Errors   INVALID_ARGUMENT      fewer lines than the attrs say, an empty line
 *          FAILED_PRECONDITION   an old word twice
 *          those of the file system */
static enum kernel_result generate_vocab_remapping(struct kernel_ctx *ctx) {
    return io_run(ctx, remap_vocab);
}

/* ---- matrices ---- */

struct matrix_state {
    int64_t n_rows, n_columns, max_rows; /* max_rows below 1: no limit on the rows in memory */
};

static struct status *matrix_init(struct kernel_init *init) {
    struct matrix_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "num_rows", &state->n_rows));
    TRY(node_get_i(init->node, "num_cols", &state->n_columns));
    return node_get_i(init->node, "max_rows_in_memory", &state->max_rows);
}

/* new_of[old] is the new index + 1, or 0 for none. */
struct remapping {
    int64_t *new_of;
    int64_t n_old;
};

/* `ids` has the old index of each new one, and a negative number where there is none. */
static struct status *invert(const struct tensor *ids, int64_t n_old, const char *what,
                             struct remapping *ret) {
    const int64_t *old_ids = tensor_cdata(ids);
    ret->n_old = n_old;
    ret->new_of = xcalloc((size_t)n_old + 1, sizeof(*ret->new_of));
    for (int64_t i = 0; i < ids->n_elements; i++) {
        int64_t old = old_ids[i];
        if (old < 0)
            continue;
        if (old >= n_old)
            return status_invalid("Extent out of bounds: the old tensor has %lld %ss, but the "
                                  "remapping asks for %lld",
                                  (long long)n_old, what, (long long)old);
        if (ret->new_of[old])
            return status_unimplemented("Old ID %lld is mapped to both new ID %lld and %lld, which "
                                        "is not currently supported.",
                                        (long long)old, (long long)(ret->new_of[old] - 1),
                                        (long long)i);
        ret->new_of[old] = i + 1;
    }
    return NULL;
}

struct matrix {
    const struct matrix_state *state;
    struct remapping rows, columns; /* columns.new_of is NULL when the columns stay as they are */
    float *to;
    bool *row_is_there;
};

/* Moves rows [first, first + n) of the old matrix to their new positions. */
static void place_rows(struct matrix *matrix, const struct tensor *part, int64_t first) {
    int64_t n_old_columns = tensor_dim(part, 1);
    const float *from = tensor_cdata(part);
    for (int64_t i = 0; i < tensor_dim(part, 0); i++, from += n_old_columns) {
        int64_t row = matrix->rows.new_of[first + i] - 1;
        if (row < 0)
            continue;
        matrix->row_is_there[row] = true;
        float *to = matrix->to + row * matrix->state->n_columns;
        for (int64_t k = 0; k < n_old_columns; k++) {
            int64_t column = matrix->columns.new_of ? matrix->columns.new_of[k] - 1 : k;
            if (column >= 0)
                to[column] = from[k];
        }
    }
}

static struct status *read_rows(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                struct span name, const struct bundle_entry *entry,
                                struct matrix *matrix) {
    int64_t first = 0, end = matrix->rows.n_old,
            step = matrix->state->max_rows > 0 ? matrix->state->max_rows : INT64_MAX;
    while (first < end && !matrix->rows.new_of[first])
        first++;
    while (end > first && !matrix->rows.new_of[end - 1])
        end--;
    for (int64_t n; first < end; first += n) {
        n = MIN(step, end - first);
        int64_t starts[2] = {first, 0}, lengths[2] = {n, SLICE_ALL};
        struct tensor_slice slice = {2, starts, lengths};
        struct tensor part = TENSOR_INIT;
        TRY(kernel_check_cancelled(ctx));
        TRY(bundle_read_slice(reader, name, entry, &slice, ctx->instance->allocator, &part));
        place_rows(matrix, &part, first);
        tensor_clear(&part);
    }
    return NULL;
}

/* Fills the elements that have no old one with the initializing values, in order. */
static struct status *fill_missing(const struct matrix *matrix, const struct tensor *column_ids,
                                   const struct tensor *values) {
    const float *from = tensor_cdata(values);
    const int64_t *old_columns = tensor_cdata(column_ids);
    int64_t n_missing = 0;
    for (int64_t row = 0; row < matrix->state->n_rows; row++) {
        for (int64_t k = 0; k < matrix->state->n_columns; k++) {
            bool is_there =
                matrix->row_is_there[row] && (!matrix->columns.new_of || old_columns[k] >= 0);
            if (is_there)
                continue;
            if (n_missing < values->n_elements)
                matrix->to[row * matrix->state->n_columns + k] = from[n_missing];
            n_missing++;
        }
    }
    if (n_missing == values->n_elements)
        return NULL;
    return status_invalid(
        "initializing_values contained %lld elements, but the number of missing values is %lld",
        (long long)values->n_elements, (long long)n_missing);
}

static struct status *check_matrix(const struct matrix_state *state,
                                   const struct bundle_entry *entry, struct span name,
                                   const struct tensor *rows, const struct tensor *columns) {
    if (rows->n_elements != state->n_rows)
        return status_invalid(
            "Size of row_remapping is %lld instead of being equal to num_rows=%lld",
            (long long)rows->n_elements, (long long)state->n_rows);
    if (columns->n_elements != 0 && columns->n_elements != state->n_columns)
        return status_invalid(
            "Provided col_remapping, but its size is %lld instead of being equal to num_cols=%lld",
            (long long)columns->n_elements, (long long)state->n_columns);
    if (entry->dtype != DT_FLOAT)
        return status_invalid("Tensor %.*s has invalid type %s instead of expected type float",
                              (int)name.len, name.data, dtype_name(entry->dtype));
    if (entry->shape.rank != 2)
        return status_invalid("Tensor %.*s has rank %d instead of being two-dimensional",
                              (int)name.len, name.data, entry->shape.rank);
    if (columns->n_elements == 0 && entry->shape.dims[1] != state->n_columns)
        return status_invalid(
            "Tensor %.*s has %lld columns, and no col_remapping, instead of num_cols=%lld",
            (int)name.len, name.data, (long long)entry->shape.dims[1], (long long)state->n_columns);
    return NULL;
}

static struct status *remap_from(struct kernel_ctx *ctx, struct bundle_reader *reader,
                                 struct arena *arena) {
    const struct matrix_state *state = ctx->instance->state;
    const struct tensor *rows = kernel_input(ctx, 2), *columns = kernel_input(ctx, 3);
    struct bundle_entry entry;
    struct span name;
    struct matrix matrix = {.state = state};
    struct status *st = NULL;
    int64_t dims[2] = {state->n_rows, state->n_columns};
    if (rows->rank != 1)
        return status_invalid("The `row_remapping` tensor must be 1-D, got a tensor of shape %s",
                              TENSOR_SHAPE_TEXT(rows));
    if (columns->rank != 1)
        return status_invalid("The `col_remapping` tensor must be 1-D, got a tensor of shape %s",
                              TENSOR_SHAPE_TEXT(columns));
    TRY(io_scalar_string(ctx, 1, "old_tensor_name", &name));
    TRY(bundle_find(reader, name, arena, &entry));
    TRY(check_matrix(state, &entry, name, rows, columns));
    TRY(tensor_new_zeroed(ctx->instance->allocator, DT_FLOAT, (struct shape){2, dims},
                          &ctx->outputs[0]));
    matrix.to = tensor_data(&ctx->outputs[0]);
    matrix.row_is_there = xcalloc((size_t)state->n_rows + 1, sizeof(bool));
    TRY_OUT(invert(rows, entry.shape.dims[0], "row", &matrix.rows));
    if (columns->n_elements > 0)
        TRY_OUT(invert(columns, entry.shape.dims[1], "column", &matrix.columns));
    TRY_OUT(read_rows(ctx, reader, name, &entry, &matrix));
    st = fill_missing(&matrix, columns, kernel_input(ctx, 4));
out:
    free(matrix.row_is_there);
    free(matrix.rows.new_of);
    free(matrix.columns.new_of);
    return st;
}

static struct status *remap_matrix(struct kernel_ctx *ctx) {
    const struct tensor *prefix = kernel_input(ctx, 0);
    struct bundle_reader *reader = NULL;
    struct str path = STR_INIT;
    struct arena arena;
    if (prefix->n_elements != 1)
        return status_invalid("The `ckpt_path` tensor must have exactly one element, got %lld",
                              (long long)prefix->n_elements);
    arena_init(&arena);
    struct status *st = io_prefix(tensor_string(prefix, 0), &path);
    if (!st)
        st = bundle_reader_open(&file_system_posix, path.data, &reader);
    if (!st)
        st = remap_from(ctx, reader, &arena);
    bundle_reader_close(reader);
    str_fini(&path);
    arena_fini(&arena);
    return st;
}

/* LoadAndRemapMatrix: a matrix of a checkpoint (V2) with its rows and columns in other positions;
 * attrs num_rows, num_cols, max_rows_in_memory (how many old rows are read at a time).
 *   ckpt_path  string    old_tensor_name  string, scalar
 *   row_remapping  int64 [num_rows]: the old row of each new one, below 0: none
 *   col_remapping  int64 [num_cols], or [0]: the columns stay
 *   initializing_values  float: the elements that have no old one, row by row
 *   output_matrix  float [num_rows, num_cols]
 * Errors   INVALID_ARGUMENT   sizes, another number of initializing values
 *          UNIMPLEMENTED      an old row or column twice
 *          INTERNAL           an old index beyond the matrix
 *          those of the checkpoint */
static enum kernel_result load_and_remap_matrix(struct kernel_ctx *ctx) {
    return io_run(ctx, remap_matrix);
}

// clang-format off
static const struct kernel_def rows[] = {
    {"GenerateVocabRemapping", .compute = generate_vocab_remapping, .init = vocab_init,
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {"LoadAndRemapMatrix", .compute = load_and_remap_matrix, .init = matrix_init,
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list vocab_remap_kernels = {rows, ARRAY_LEN(rows)};
