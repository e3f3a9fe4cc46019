/* Computes DecodeCSV, which turns records of fields between delimiters into a tensor for each field
 * [RFC 4180]. */
#include <stdlib.h>

#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/string_number.h"

struct csv_state {
    char delimiter;
    bool has_quotes;
    struct span missing; /* the text that stands for a missing field; borrowed from the node */
    int n_fields;
    int64_t *columns; /* the numbers of the wanted fields, ascending; NULL: all */
};

struct status *parsing_csv_init(struct kernel_init *init) {
    struct csv_state *state = xcalloc(1, sizeof(*state));
    struct span delimiter;
    const struct attr_value *columns, *types;
    int n_columns;
    init->state = state;
    TRY(node_get_s(init->node, "field_delim", &delimiter));
    TRY(node_get_b(init->node, "use_quote_delim", &state->has_quotes));
    TRY(node_get_s(init->node, "na_value", &state->missing));
    TRY(node_get_list(init->node, "select_cols", &columns, &n_columns));
    TRY(node_get_list(init->node, "OUT_TYPE", &types, &state->n_fields));
    if (delimiter.len != 1)
        return status_invalid("field_delim should be only 1 char");
    state->delimiter = delimiter.data[0];
    if (n_columns > 0 && n_columns != state->n_fields)
        return status_invalid("select_cols should match output size");
    if (n_columns > 0)
        state->columns = xcalloc((size_t)n_columns, sizeof(*state->columns));
    for (int i = 0; i < n_columns; i++) {
        state->columns[i] = columns[i].i;
        if (columns[i].i < 0)
            return status_invalid("select_cols should be non-negative indices");
        if (i > 0 && columns[i].i <= columns[i - 1].i)
            return status_invalid("select_cols should be strictly increasing indices");
    }
    return NULL;
}

void parsing_csv_fini(void *state_as_void) {
    struct csv_state *state = state_as_void;
    if (state)
        free(state->columns);
    free(state);
}

/* ---- a record ---- */

/* The wanted fields of a record, each followed by a NUL. */
struct fields {
    struct str text;
    size_t *begins; /* n_fields + 1 offsets */
    int n, n_max;
    int64_t n_seen;
};

static bool wants(const struct csv_state *state, const struct fields *fields) {
    return !state->columns ||
           (fields->n < fields->n_max && state->columns[fields->n] == fields->n_seen);
}

/* Ends a field: its text was written from `begin` on. */
static void end_field(struct fields *fields, size_t begin, bool is_wanted) {
    fields->n_seen++;
    if (!is_wanted)
        return;
    str_add_char(&fields->text, '\0');
    if (fields->n < fields->n_max)
        fields->begins[fields->n] = begin;
    fields->n++;
    if (fields->n <= fields->n_max)
        fields->begins[fields->n] = fields->text.len;
}

/* Reads from *at, which is behind the opening quote, up to behind the delimiter. */
static struct status *take_quoted(const struct csv_state *state, struct span record, size_t *at,
                                  bool is_wanted, struct str *out) {
    size_t i = *at;
    while (i + 1 < record.len &&
           (record.data[i] != '"' || record.data[i + 1] != state->delimiter)) {
        if (record.data[i] == '"' && record.data[i + 1] != '"')
            return status_invalid("Quote inside a string has to be escaped by another quote");
        if (is_wanted)
            str_add_char(out, record.data[i]);
        i += record.data[i] == '"' ? 2 : 1;
    }
    bool is_closed = i < record.len && record.data[i] == '"' &&
                     (i + 1 == record.len || record.data[i + 1] == state->delimiter);
    *at = i + 2;
    return is_closed
               ? NULL
               : status_invalid("Quoted field has to end with quote followed by delim or end");
}

static struct status *take_plain(const struct csv_state *state, struct span record, size_t *at,
                                 bool is_wanted, struct str *out) {
    size_t i = *at;
    for (; i < record.len && record.data[i] != state->delimiter; i++) {
        char c = record.data[i];
        if ((state->has_quotes && c == '"') || c == '\n' || c == '\r')
            return status_invalid("Unquoted fields cannot have quotes/CRLFs inside");
        if (is_wanted)
            str_add_char(out, c);
    }
    *at = i + 1;
    return NULL;
}

static struct status *split_record(const struct csv_state *state, struct span record,
                                   struct fields *fields) {
    fields->n = 0;
    fields->n_seen = 0;
    str_clear(&fields->text);
    for (size_t at = 0; at < record.len;) {
        char c = record.data[at];
        if (c == '\n' || c == '\r') {
            at++;
            continue;
        }
        bool is_wanted = wants(state, fields);
        size_t begin = fields->text.len;
        if (c == '"' && state->has_quotes) {
            at++;
            TRY(take_quoted(state, record, &at, is_wanted, &fields->text));
        } else {
            TRY(take_plain(state, record, &at, is_wanted, &fields->text));
        }
        end_field(fields, begin, is_wanted);
        if (state->columns && fields->n == fields->n_max)
            return NULL;
    }
    if (record.len > 0 && record.data[record.len - 1] == state->delimiter && wants(state, fields))
        end_field(fields, fields->text.len, true);
    return NULL;
}

/* ---- fields to elements ---- */

static struct status *set_field(struct kernel_ctx *ctx, int f, int64_t record, struct span field) {
    const struct csv_state *state = ctx->instance->state;
    const struct tensor *default_value = kernel_input(ctx, f + 1);
    struct tensor *out = &ctx->outputs[f];
    enum dtype dtype = (enum dtype)out->dtype;
    bool is_missing = field.len == 0 || (field.len == state->missing.len &&
                                         memcmp(field.data, state->missing.data, field.len) == 0);
    if (is_missing && default_value->n_elements != 1)
        return status_invalid("Field %d is required but missing in record %lld!", f,
                              (long long)record);
    char *to = (char *)tensor_data(out) + (size_t)record * dtype_size(dtype);
    if (is_missing)
        elements_copy(dtype, to, tensor_cdata(default_value), 1);
    else if (dtype == DT_STRING)
        tensor_set_string(out, record, field.data, field.len);
    else if (!string_parse_number(dtype, field, to))
        return status_invalid("Field %d in record %lld is not a valid %s: %.*s", f,
                              (long long)record, dtype_name(dtype), (int)MIN(field.len, 1000),
                              field.data);
    return NULL;
}

static struct status *check_inputs(struct kernel_ctx *ctx, int n_fields) {
    for (int i = 0; i < n_fields; i++) {
        const struct tensor *default_value = kernel_input(ctx, i + 1);
        if (default_value->rank > 1)
            return status_invalid("Shape must be at most rank 1 but is rank %d",
                                  default_value->rank);
        if (default_value->n_elements > 1)
            return status_invalid("There should only be 1 default per field but field %d has %lld",
                                  i, (long long)default_value->n_elements);
    }
    return NULL;
}

/* DecodeCSV: attrs field_delim, use_quote_delim, na_value, select_cols.
 *   records          string, any shape
 *   record_defaults  a scalar or vector for each field: its value where the field is missing;
 *                    without elements the field is required
 *   output           a tensor for each field, of the records' shape
 * Errors   INVALID_ARGUMENT   another number of fields, a required field that is missing, a field
 *                             that is no number, misplaced quotes; at init: attrs */
enum kernel_result parsing_decode_csv(struct kernel_ctx *ctx) {
    const struct csv_state *state = ctx->instance->state;
    const struct tensor *records = kernel_input(ctx, 0);
    struct fields fields = {.n_max = state->n_fields};
    struct status *st = NULL;
    KERNEL_TRY(ctx, check_inputs(ctx, state->n_fields));
    for (int f = 0; f < state->n_fields; f++)
        KERNEL_TRY(ctx, kernel_alloc(ctx, f, (enum dtype)ctx->instance->out_types[f],
                                     tensor_shape(records)));
    fields.begins = xcalloc((size_t)state->n_fields + 1, sizeof(*fields.begins));
    for (int64_t i = 0; i < records->n_elements; i++) {
        enum { RECORDS_PER_POLL = 256 };
        if (i % RECORDS_PER_POLL == 0)
            TRY_OUT(kernel_check_cancelled(ctx));
        TRY_OUT(split_record(state, tensor_string(records, i), &fields));
        if (fields.n != state->n_fields) {
            st = status_invalid("Expect %d fields but have %d in record %lld", state->n_fields,
                                fields.n, (long long)i);
            goto out;
        }
        for (int f = 0; f < state->n_fields; f++) {
            struct span field = {fields.text.data + fields.begins[f],
                                 fields.begins[f + 1] - fields.begins[f] - 1};
            TRY_OUT(set_field(ctx, f, i, field));
        }
    }
out:
    str_fini(&fields.text);
    free(fields.begins);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}
