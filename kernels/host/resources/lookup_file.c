/* Computes InitializeTableFromTextFileV2, which fills a table from the lines of a file, on an I/O
 * thread. */
#include <errno.h>
#include <stdlib.h>

#include "common/io/file_root.h"
#include "common/tensor/text.h"
#include "kernels/support/io_task.h"
#include "kernels/host/resources/lookup_table.h"

extern const struct kernel_list lookup_file_kernels;

/* Columns have numbers from 0 on. These are special. */
enum { LINE_NUMBER = -1, WHOLE_LINE = -2 };
enum { FILE_MAX_BYTES = 1 << 30 };

struct file_state {
    int64_t vocab_size; /* how many lines are read; -1: all */
    int64_t key_index, value_index, offset;
    char delimiter;
};

static struct status *file_init(struct kernel_init *init) {
    struct file_state *state = xcalloc(1, sizeof(*state));
    struct span delimiter;
    init->state = state;
    TRY(node_get_i(init->node, "vocab_size", &state->vocab_size));
    TRY(node_get_i(init->node, "key_index", &state->key_index));
    TRY(node_get_i(init->node, "value_index", &state->value_index));
    if (node_attr(init->node, "offset"))
        TRY(node_get_i(init->node, "offset", &state->offset));
    TRY(node_get_s(init->node, "delimiter", &delimiter));
    if (delimiter.len != 1)
        return status_invalid("delimiter should be only 1 char");
    state->delimiter = delimiter.data[0];
    return NULL;
}

/* ---- checks of columns ---- */

static struct status *check_index(const char *what, const char *role, int64_t index,
                                  enum dtype dtype) {
    if (index == LINE_NUMBER && dtype != DT_INT64)
        return status_invalid("%s index for line number requires table %s dtype of int64, got %s",
                              what, role, dtype_name(dtype));
    if (index == WHOLE_LINE && dtype != DT_STRING && !dtype_in(dtype, DTYPES_INT))
        return status_invalid(
            "%s index for whole line requires table %s dtype of integer or string, got %s", what,
            role, dtype_name(dtype));
    return NULL;
}

/* ---- lines ---- */

struct lines {
    struct span rest;
    int64_t n; /* lines that were read so far */
};

/* Reads the next line, without its line feed. A carriage return before that is part of the line.
 * False at the end. */
static bool take_line(struct lines *lines, struct span *ret) {
    if (lines->rest.len == 0)
        return false;
    const char *end = memchr(lines->rest.data, '\n', lines->rest.len);
    size_t len = end ? (size_t)(end - lines->rest.data) : lines->rest.len,
           taken = len + (end != NULL);
    if (len > 0 && lines->rest.data[len - 1] == '\r')
        len--;
    *ret = (struct span){lines->rest.data, len};
    lines->rest.data += taken;
    lines->rest.len -= taken;
    return true;
}

static int64_t count_lines(struct span text) {
    struct lines lines = {text, 0};
    struct span line;
    int64_t n = 0;
    while (take_line(&lines, &line))
        n++;
    return n;
}

/* Finds column `index` of a line. False when there are fewer columns. */
static bool find_column(struct span line, char delimiter, int64_t index, struct span *ret) {
    for (;; index--) {
        const char *end = line.len > 0 ? memchr(line.data, delimiter, line.len) : NULL;
        if (index == 0 || !end) {
            *ret = (struct span){line.data, end ? (size_t)(end - line.data) : line.len};
            return index == 0;
        }
        line.len -= (size_t)(end + 1 - line.data);
        line.data = end + 1;
    }
}

static int64_t count_columns(struct span line, char delimiter) {
    int64_t n = 1;
    for (size_t i = 0; i < line.len; i++)
        n += line.data[i] == delimiter;
    return n;
}

/* ---- fields ---- */

static bool parse_integer(struct span field, int64_t min, int64_t max, int64_t *ret) {
    struct span in = field;
    if (!text_take_int(&in, ret) || *ret < min || *ret > max)
        return false;
    text_skip_blanks(&in);
    bool is_wrapped = *ret < 0 && !memchr(field.data, '-', field.len); /* numbers from 2^63 on */
    return in.len == 0 && !is_wrapped;
}

static bool parse_real(struct span field, double *ret) {
    char *text = xstrndup(field.data, field.len), *end;
    *ret = strtod(text, &end);
    struct span rest = {end, (size_t)(text + field.len - end)};
    text_skip_blanks(&rest);
    bool is_good = end != text && rest.len == 0;
    free(text);
    return is_good;
}

static bool set_field(struct tensor *out, int64_t at, struct span field) {
    void *data = tensor_data(out);
    int64_t integer;
    double real;
    switch (out->dtype) {
    case DT_INT32:
        if (!parse_integer(field, INT32_MIN, INT32_MAX, &integer))
            return false;
        ((int32_t *)data)[at] = (int32_t)integer;
        return true;
    case DT_INT64:
        return parse_integer(field, INT64_MIN, INT64_MAX, &((int64_t *)data)[at]);
    case DT_FLOAT:
        if (!parse_real(field, &real))
            return false;
        ((float *)data)[at] = (float)real;
        return true;
    case DT_DOUBLE:
        return parse_real(field, &((double *)data)[at]);
    default:
        tensor_set_string(out, at, field.data, field.len);
        return true;
    }
}

struct source {
    const struct file_state *state;
    const char *path;
};

static struct status *set_column(const struct source *source, struct tensor *out, int64_t at,
                                 int64_t index, struct span line) {
    const struct file_state *state = source->state;
    struct span field = line;
    if (index == LINE_NUMBER) {
        ((int64_t *)tensor_data(out))[at] = at + state->offset;
        return NULL;
    }
    if (index >= 0 && !find_column(line, state->delimiter, index, &field))
        return status_invalid(
            "Invalid number of columns in %s line %lld (%.*s) : expected %lld got %lld",
            source->path, (long long)at, (int)line.len, line.data,
            (long long)MAX(state->key_index, state->value_index),
            (long long)count_columns(line, state->delimiter));
    if (set_field(out, at, field))
        return NULL;
    return status_invalid("Field %.*s in line %lld is not a valid %s.", (int)field.len, field.data,
                          (long long)at, dtype_name((enum dtype)out->dtype));
}

static struct status *read_lines(const struct source *source, struct span text, struct tensor *keys,
                                 struct tensor *values) {
    const struct file_state *state = source->state;
    struct lines lines = {text, 0};
    struct span line;
    for (; lines.n < keys->n_elements; lines.n++) {
        CHECK(take_line(&lines, &line));
        if (line.len == 0)
            return status_invalid("Invalid content in %s: empty line found at position %lld.",
                                  source->path, (long long)(lines.rest.data - text.data));
        TRY(set_column(source, keys, lines.n, state->key_index, line));
        TRY(set_column(source, values, lines.n, state->value_index, line));
    }
    return NULL;
}

/* ---- the table ---- */

static struct status *fill(struct kernel_ctx *ctx, struct lookup_table *table,
                           const struct source *source, struct span text) {
    struct allocator *allocator = ctx->instance->allocator;
    struct tensor keys = TENSOR_INIT, values = TENSOR_INIT;
    int64_t n = count_lines(text), wanted = source->state->vocab_size;
    if (n == 0)
        return status_out_of_range("Read less bytes than requested: %s is empty", source->path);
    if (wanted == 0)
        return status_out_of_range("Finished reading 0 of lines from %s", source->path);
    if (wanted > n)
        return status_invalid("Invalid vocab_size in %s: expected %lld but got %lld", source->path,
                              (long long)wanted, (long long)n);
    if (wanted >= 0)
        n = wanted;
    struct shape shape = {1, &n};
    TRY(tensor_new(allocator, table->key_dtype, shape, &keys));
    struct status *st = tensor_new(allocator, table->value_dtype, shape, &values);
    if (!st)
        st = read_lines(source, text, &keys, &values);
    if (!st)
        st = lookup_table_fill(table, &keys, &values);
    tensor_clear(&keys);
    tensor_clear(&values);
    return st;
}

static struct status *load(struct kernel_ctx *ctx, struct lookup_table *table) {
    const struct file_state *state = ctx->instance->state;
    struct str path = STR_INIT, text = STR_INIT;
    struct status *st = NULL;
    TRY_OUT(lookup_check_static(ctx, table));
    TRY_OUT(check_index("Key", "key", state->key_index, table->key_dtype));
    TRY_OUT(check_index("Value", "value", state->value_index, table->value_dtype));
    TRY_OUT(io_path(tensor_string(kernel_input(ctx, 1), 0), &path));
    TRY_OUT(file_load(&file_system_posix, path.data, FILE_MAX_BYTES, &text));
    struct source source = {state, path.data};
    st = fill(ctx, table, &source, (struct span){str_text(&text), text.len});
out:
    str_fini(&path);
    str_fini(&text);
    return st;
}

static struct status *file_body(struct kernel_ctx *ctx) {
    struct lookup_table *table = NULL;
    TRY(lookup_table_of_input(ctx, &table));
    struct status *st = load(ctx, table);
    lookup_table_unref(table);
    return st;
}

static enum kernel_result file_compute(struct kernel_ctx *ctx) {
    const struct tensor *name = kernel_input(ctx, 1);
    if (name->n_elements != 1)
        return kernel_fail(ctx, status_invalid("filename should be a single string, but got %s",
                                               TENSOR_SHAPE_TEXT(name)));
    if (tensor_string(name, 0).len == 0)
        return kernel_fail(ctx, status_invalid("filename cannot be empty."));
    return io_run(ctx, file_body);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "InitializeTableFromTextFile", .compute = file_compute, .init = file_init,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
    {.op = "InitializeTableFromTextFileV2", .compute = file_compute, .init = file_init,
     .flags = KERNEL_STATEFUL | KERNEL_ASYNC},
};
// clang-format on

const struct kernel_list lookup_file_kernels = {rows, ARRAY_LEN(rows)};
