/* Makes CSVDataset: an element for each record of CSV files, with the fields as components [RFC
 * 4180, with TensorFlow's deviations].
 *
 *   file dataset: raw records ──► fields ──► numbers and strings
 *   (RECORD_CSV: quoted newlines belong to a record)
 *
 * A malformed record is an error. The iterator then continues with the next record. */
#include <stdlib.h>

#include "kernels/host/data/dataset_file.h"
#include "kernels/host/text/string_number.h"

extern const struct kernel_list dataset_csv_kernels;

struct csv_dataset {
    struct dataset base; /* input 0 is the dataset of records */
    char delimiter;
    bool has_quotes;
    char *missing; /* the text that stands for a missing field */
    size_t missing_len;
    /* the numbers of the wanted fields in rising order, or of those that are not wanted */
    int64_t *columns;
    int n_columns;
    bool excludes;
    /* for each component its value where the field is missing; without elements the field is
     * required */
    struct tensor *defaults;
};

/* ---- a record ---- */

struct csv_record {
    const struct csv_dataset *dataset;
    struct span text;
    size_t at;
    struct str field;
    int64_t n_parsed; /* fields that were read so far */
    int n_taken;      /* how many of them are wanted */
    struct tensor *out;
    struct status *status; /* the first error; the rest of the record is only skipped */
};

static void note_error(struct csv_record *record, struct status *status_take) {
    if (record->status)
        status_unref(status_take);
    else
        record->status = status_take;
}

static struct status *set_field(struct csv_record *record, int i) {
    const struct csv_dataset *dataset = record->dataset;
    const struct tensor *default_value = &dataset->defaults[i];
    struct span field = {str_text(&record->field), record->field.len};
    enum dtype dtype = (enum dtype)dataset->base.types[i];
    if (field.len == 0 ||
        span_equal(field, (struct span){dataset->missing, dataset->missing_len})) {
        if (default_value->n_elements != 1)
            return status_invalid("Field %d is required but missing in record!", i);
        return tensor_reshape(default_value, SHAPE_SCALAR, &record->out[i]);
    }
    if (dtype == DT_STRING) {
        tensor_init_scalar_object(&record->out[i], DT_STRING,
                                  &bytes_new(field.data, field.len)->object);
        return NULL;
    }
    char number[sizeof(int64_t)] __attribute__((aligned(8)));
    if (!string_parse_number(dtype, field, number))
        return status_invalid("Field %d in record is not a valid %s: %.*s", i, dtype_name(dtype),
                              (int)MIN(field.len, (size_t)1000), field.data);
    tensor_init_scalar(&record->out[i], dtype, number);
    return NULL;
}

static bool is_wanted(const struct csv_record *record) {
    const struct csv_dataset *dataset = record->dataset;
    if (dataset->excludes) {
        for (int i = 0; i < dataset->n_columns; i++)
            if (dataset->columns[i] == record->n_parsed)
                return false;
        return true;
    }
    return dataset->n_columns == 0 || (record->n_taken < dataset->n_columns &&
                                       dataset->columns[record->n_taken] == record->n_parsed);
}

static void end_field(struct csv_record *record, bool is_sound) {
    int n = record->dataset->base.n_components;
    bool wanted = is_wanted(record);
    record->n_parsed++;
    if (!wanted)
        return;
    int i = record->n_taken++;
    if (i >= n)
        note_error(record, status_invalid("Expect %d fields but have more in record", n));
    if (i < n && is_sound && !record->status)
        note_error(record, set_field(record, i));
}

/* Moves from behind the opening quote to behind the delimiter. False at the end of the record. */
static bool take_quoted(struct csv_record *record) {
    struct span text = record->text;
    char delimiter = record->dataset->delimiter;
    bool is_sound = true;
    while (record->at < text.len) {
        char c = text.data[record->at++];
        if (c != '"') {
            str_add_char(&record->field, c);
            continue;
        }
        bool is_end = record->at == text.len;
        char next = is_end ? '\0' : text.data[record->at++];
        if (is_end || next == delimiter) {
            end_field(record, is_sound);
            return !is_end;
        }
        if (next != '"') {
            note_error(record,
                       status_invalid("Quote inside a string has to be escaped by another quote"));
            is_sound = false;
        }
        str_add_char(&record->field, '"');
    }
    status_unref(record->status); /* replaces any earlier error */
    record->status = status_invalid("Reached end of file without closing quoted field in record");
    record->n_taken = record->dataset->base.n_components;
    return false;
}

static bool take_plain(struct csv_record *record) {
    struct span text = record->text;
    const struct csv_dataset *dataset = record->dataset;
    bool is_sound = true;
    for (; record->at < text.len && text.data[record->at] != dataset->delimiter; record->at++) {
        if (dataset->has_quotes && text.data[record->at] == '"') {
            note_error(record, status_invalid("Unquoted fields cannot have quotes inside"));
            is_sound = false;
        }
        str_add_char(&record->field, text.data[record->at]);
    }
    end_field(record, is_sound);
    return record->at++ < text.len;
}

static struct status *parse_record(const struct csv_dataset *dataset, struct span text,
                                   struct tensor *out) {
    struct csv_record record = {.dataset = dataset, .text = text, .out = out, .field = STR_INIT};
    int n = dataset->base.n_components;
    for (bool goes_on = true; goes_on;) {
        bool is_quoted = dataset->has_quotes && record.at < text.len && text.data[record.at] == '"';
        str_clear(&record.field);
        record.at += is_quoted;
        goes_on = is_quoted ? take_quoted(&record) : take_plain(&record);
    }
    str_fini(&record.field);
    if (record.n_taken < n)
        note_error(&record,
                   status_invalid("Expect %d fields but have %d in record", n, record.n_taken));
    if (record.status)
        element_clear(out, n);
    return record.status;
}

/* ---- the dataset ---- */

static enum data_poll csv_next(struct dataset_iter *iter, struct data_task *task,
                               struct tensor *out) {
    struct tensor record __attribute__((aligned(64))) = TENSOR_INIT;
    enum data_poll result =
        dataset_iter_next(((struct dataset_iter_one *)iter)->input, task, &record);
    if (result != DATA_ELEMENT)
        return result;
    struct status *st =
        parse_record((const struct csv_dataset *)iter->dataset, tensor_string(&record, 0), out);
    tensor_clear(&record);
    return st ? data_task_fail(task, st) : DATA_ELEMENT;
}

static void csv_fini(struct dataset *dataset) {
    struct csv_dataset *self = (struct csv_dataset *)dataset;
    element_free(self->defaults, dataset->n_components);
    free(self->columns);
    free(self->missing);
}

static const struct dataset_kind csv_kind = {.name = "CSV",
                                             .dataset_size = sizeof(struct csv_dataset),
                                             .iter_size = sizeof(struct dataset_iter_one),
                                             .begin = dataset_begin_one,
                                             .next = csv_next,
                                             .end = dataset_end_one,
                                             .fini = csv_fini};

/* ---- the kernel: inputs filenames, compression_type, buffer_size, header, field_delim,
 * use_quote_delim, na_value, select_cols, record_defaults…, and in V2 exclude_cols ---- */

enum {
    IN_CODING = 1,
    IN_BUFFER_SIZE,
    IN_HEADER,
    IN_DELIMITER,
    IN_QUOTES,
    IN_MISSING,
    IN_COLUMNS,
    IN_DEFAULTS
};

static struct status *take_string(struct kernel_ctx *ctx, int input, const char *name,
                                  struct span *ret) {
    if (kernel_input(ctx, input)->rank != 0)
        return status_invalid("%s must be a scalar", name);
    *ret = tensor_string(kernel_input(ctx, input), 0);
    return NULL;
}

static struct status *take_columns(struct kernel_ctx *ctx, int input, const char *name,
                                   struct csv_dataset *self) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 1)
        return status_invalid("`%s` must be a vector.", name);
    if (t->n_elements == 0)
        return NULL;
    if (self->n_columns > 0)
        return status_invalid("Either select_cols or exclude_cols should be empty");
    self->n_columns = (int)MIN(t->n_elements, (int64_t)INT32_MAX);
    self->columns = xcalloc((size_t)self->n_columns, sizeof(*self->columns));
    for (int i = 0; i < self->n_columns; i++) {
        self->columns[i] = tensor_index_at(t, i);
        if (self->columns[i] < 0)
            return status_invalid("%s should be non-negative indices", name);
        if (i > 0 && self->columns[i] <= self->columns[i - 1])
            return status_invalid("%s should be strictly increasing indices", name);
    }
    return NULL;
}

static struct status *take_defaults(struct kernel_ctx *ctx, struct csv_dataset *self) {
    int n = self->base.n_components;
    self->defaults = element_new(n);
    for (int i = 0; i < n; i++) {
        const struct tensor *default_value = kernel_input(ctx, IN_DEFAULTS + i);
        if (default_value->rank > 1)
            return status_invalid("Each record default should be at most rank 1");
        if (default_value->n_elements > 1)
            return status_invalid("There should only be 1 default per field but field %d has %lld",
                                  i, (long long)default_value->n_elements);
        if (default_value->dtype != self->base.types[i])
            return status_invalid("The default of field %d is %s, not %s", i,
                                  dtype_name((enum dtype)default_value->dtype),
                                  dtype_name((enum dtype)self->base.types[i]));
        tensor_copy(&self->defaults[i], default_value);
    }
    return NULL;
}

static struct status *take_syntax(struct kernel_ctx *ctx, struct csv_dataset *self,
                                  struct record_options *options) {
    struct span delimiter, missing;
    bool has_header;
    int64_t buffer_size;
    TRY(file_take_compression(ctx, IN_CODING, options));
    TRY(dataset_scalar_i64(ctx, IN_BUFFER_SIZE, "buffer_size", &buffer_size));
    TRY(dataset_scalar_bool(ctx, IN_HEADER, "header", &has_header));
    TRY(take_string(ctx, IN_DELIMITER, "field_delim", &delimiter));
    TRY(dataset_scalar_bool(ctx, IN_QUOTES, "use_quote_delim", &self->has_quotes));
    TRY(take_string(ctx, IN_MISSING, "na_value", &missing));
    if (buffer_size <= 0)
        return status_invalid("buffer_size should be positive");
    if (delimiter.len != 1)
        return status_invalid("field_delim should be only 1 char");
    self->delimiter = delimiter.data[0];
    self->missing = xstrndup(missing.data, missing.len);
    self->missing_len = missing.len;
    options->format = RECORD_CSV;
    options->skip_lines = has_header;
    options->delimiter = self->delimiter;
    options->has_quotes = self->has_quotes;
    return NULL;
}

static struct status *csv_take(struct kernel_ctx *ctx, struct dataset *dataset) {
    struct csv_dataset *self = (struct csv_dataset *)dataset;
    struct record_options options = {0};
    TRY(dataset_declare(ctx, dataset, NULL, NULL));
    int n = dataset->n_components;
    if (ctx->instance->n_inputs != IN_DEFAULTS + n &&
        ctx->instance->n_inputs != IN_DEFAULTS + n + 1)
        return status_invalid("record_defaults must be as many as output_types: %d", n);
    TRY(take_syntax(ctx, self, &options));
    TRY(take_columns(ctx, IN_COLUMNS, "select_cols", self));
    if (self->n_columns > 0 && self->n_columns != n)
        return status_invalid("select_cols should match output size");
    bool has_selection = self->n_columns > 0;
    if (ctx->instance->n_inputs > IN_DEFAULTS + n)
        TRY(take_columns(ctx, IN_DEFAULTS + n, "exclude_cols", self));
    self->excludes = !has_selection && self->n_columns > 0;
    TRY(take_defaults(ctx, self));
    dataset->inputs = xcalloc(1, sizeof(*dataset->inputs));
    TRY(file_dataset_new(ctx, &options, &dataset->inputs[0]));
    dataset->n_inputs = 1;
    return NULL;
}

static enum kernel_result csv_compute(struct kernel_ctx *ctx) {
    struct dataset *dataset = dataset_new_bare(&csv_kind, 2);
    return dataset_finish(ctx, dataset, csv_take(ctx, dataset));
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "CSVDataset", .compute = csv_compute, .flags = KERNEL_STATEFUL},
    {.op = "CSVDatasetV2", .compute = csv_compute, .flags = KERNEL_STATEFUL},
    {.op = "ExperimentalCSVDataset", .compute = csv_compute, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list dataset_csv_kernels = {rows, ARRAY_LEN(rows)};
