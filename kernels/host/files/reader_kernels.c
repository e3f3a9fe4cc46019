/* Computes the ops of readers (kernels/host/files/reader.h). */
#include <stdlib.h>

#include "kernels/host/files/reader.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list reader_kernels;

/* ---- making ---- */

struct reader_state {
    struct named_resource resource;
    struct record_options options;
};

static void reader_state_fini(void *arg) {
    struct reader_state *state = arg;
    named_resource_fini(&state->resource);
    free(state);
}

static struct status *read_coding(const struct node *node, const char *attr,
                                  enum record_coding *ret) {
    struct span name = {0};
    TRY(node_get_s(node, attr, &name));
    *ret = span_is(name, "ZLIB") ? CODING_ZLIB : span_is(name, "GZIP") ? CODING_GZIP : CODING_NONE;
    if (name.len > 0 && *ret == CODING_NONE)
        return status_invalid("Unsupported %s: %.*s", attr, (int)MIN(name.len, (size_t)256),
                              name.data);
    return NULL;
}

static struct status *read_fixed(const struct node *node, struct record_options *options) {
    TRY(node_get_i(node, "header_bytes", &options->header_bytes));
    TRY(node_get_i(node, "record_bytes", &options->record_bytes));
    TRY(node_get_i(node, "footer_bytes", &options->footer_bytes));
    TRY(node_get_i(node, "hop_bytes", &options->hop_bytes));
    if (options->header_bytes < 0)
        return status_invalid("header_bytes must be >= 0 got %lld",
                              (long long)options->header_bytes);
    if (options->record_bytes < 0 || options->record_bytes == 0)
        return status_invalid("record_bytes must be >= 0 got %lld",
                              (long long)options->record_bytes);
    if (options->footer_bytes < 0)
        return status_invalid("footer_bytes must be >= 0 got %lld",
                              (long long)options->footer_bytes);
    if (options->hop_bytes < 0)
        return status_invalid("hop_bytes must be >= 0 got %lld", (long long)options->hop_bytes);
    if (options->record_bytes > RECORD_MAX_BYTES || options->footer_bytes > RECORD_MAX_BYTES)
        return status_invalid("record_bytes and footer_bytes must be at most %d", RECORD_MAX_BYTES);
    if (node_attr(node, "encoding"))
        TRY(read_coding(node, "encoding", &options->coding));
    return NULL;
}

/* The arg of a row. */
struct reader_row {
    enum record_format format;
};

static struct status *reader_init(struct kernel_init *init) {
    const struct reader_row *row = init->arg;
    struct reader_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->options.format = row->format;
    TRY(named_resource_init(&state->resource, init, &reader_type, RESOURCE_OWN, NULL));
    if (row->format == RECORD_FIXED)
        return read_fixed(init->node, &state->options);
    if (row->format == RECORD_TFRECORD)
        return read_coding(init->node, "compression_type", &state->options.coding);
    if (row->format != RECORD_LINES)
        return NULL;
    TRY(node_get_i(init->node, "skip_header_lines", &state->options.skip_lines));
    if (state->options.skip_lines < 0)
        return status_invalid("skip_header_lines must be >= 0 not %lld",
                              (long long)state->options.skip_lines);
    return NULL;
}

static struct status *make_reader(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct reader_state *state = arg;
    (void)ctx;
    *ret = &reader_new(&state->options, state->resource.name)->object;
    return NULL;
}

static enum kernel_result reader_compute(struct kernel_ctx *ctx) {
    struct reader_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_reader, state, &found));
    struct status *st = named_resource_output(ctx, &state->resource);
    object_unref(found);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- reading ---- */

/* Gives a source to read from: the present one, or that of the work name that has arrived.
 * *wants_work: there is none, and a work name is needed. */
static struct status *need_source(struct reader_op *op, bool *wants_work) {
    struct reader *reader = op->reader;
    if (reader->source)
        return NULL;
    if (!tensor_has_value(&op->work)) {
        /* cleared also when there will be no more work, because a saved state shows it */
        str_clear(&reader->work);
        *wants_work = true;
        return NULL;
    }
    if (op->work.n_elements != 1)
        return status_invalid("Expected to dequeue a one-element string tensor");
    struct span name = tensor_string(&op->work, 0);
    str_clear(&reader->work);
    str_add_bytes(&reader->work, name.data, name.len);
    struct status *st = record_source_open(&reader->options, name, &reader->source);
    tensor_clear(&op->work);
    TRY(st);
    reader->n_started++;
    return NULL;
}

static void finish_work(struct reader *reader) {
    record_source_free(reader->source);
    reader->source = NULL;
    reader->n_finished = reader->n_started;
}

/* Such work ends with its one record. */
static bool is_one_record(const struct reader *reader) {
    return reader->options.format == RECORD_IDENTITY || reader->options.format == RECORD_WHOLE_FILE;
}

/* Reads the next record, from the next file when one has ended. */
static struct status *next_record(struct reader_op *op, struct str *key, struct str *value,
                                  bool *wants_work) {
    bool is_end = true;
    while (is_end) {
        TRY(need_source(op, wants_work));
        if (*wants_work)
            return NULL;
        TRY(kernel_check_cancelled(op->outer));
        TRY(record_source_next(op->reader->source, key, value, &is_end));
        if (is_end || is_one_record(op->reader))
            finish_work(op->reader);
    }
    op->reader->n_records++;
    return NULL;
}

static struct status *put_strings(struct kernel_ctx *ctx, struct shape shape,
                                  const struct str *texts, int64_t stride, int output) {
    TRY(kernel_alloc(ctx, output, DT_STRING, shape));
    for (int64_t i = 0; i < ctx->outputs[output].n_elements; i++)
        tensor_set_string(&ctx->outputs[output], i, str_text(&texts[i * stride]),
                          texts[i * stride].len);
    return NULL;
}

static struct status *read_body(struct reader_op *op, bool *wants_work) {
    struct str pair[2] = {STR_INIT, STR_INIT};
    struct status *st = next_record(op, &pair[0], &pair[1], wants_work);
    for (int i = 0; i < 2 && !st && !*wants_work; i++)
        st = put_strings(op->outer, SHAPE_SCALAR, &pair[i], 1, i);
    str_fini(&pair[0]);
    str_fini(&pair[1]);
    return st;
}

/* ReaderRead: the reader's next record. Waits for a work name when the reader has no open file.
 *   reader_handle, queue_handle   key string [], value string []
 * Errors   OUT_OF_RANGE   the queue is closed and empty
 *          NOT_FOUND      a file is missing
 *          DATA_LOSS      a file is damaged */
static enum kernel_result reader_read(struct kernel_ctx *ctx) {
    return reader_run(ctx, read_body, true);
}

/* Keys and values in turn. */
struct records {
    struct str *texts;
    int64_t n, capacity;
};

/* Reads the remaining records of the present file, at most `limit`. */
static struct status *collect(struct reader_op *op, struct records *records, int64_t limit) {
    bool is_end = false;
    while (records->n < limit && !is_end) {
        if (records->n == records->capacity) {
            records->capacity = MAX(2 * records->capacity, (int64_t)16);
            records->texts = xreallocarray(records->texts, (size_t)records->capacity * 2,
                                           sizeof(*records->texts));
        }
        struct str *pair = records->texts + 2 * records->n;
        pair[0] = pair[1] = (struct str){0};
        records->n++; /* counted first, so that it is freed in any case */
        TRY(kernel_check_cancelled(op->outer));
        TRY(record_source_next(op->reader->source, &pair[0], &pair[1], &is_end));
        if (!is_end && is_one_record(op->reader)) {
            finish_work(op->reader);
            return NULL;
        }
    }
    if (is_end) {
        records->n--;
        str_fini(&records->texts[2 * records->n]);
        str_fini(&records->texts[2 * records->n + 1]);
        finish_work(op->reader);
    }
    return NULL;
}

static struct status *read_some(struct reader_op *op, struct records *records, int64_t limit,
                                bool *wants_work) {
    while (records->n == 0) {
        TRY(need_source(op, wants_work));
        if (*wants_work)
            return NULL;
        TRY(collect(op, records, limit));
        if (limit == 0)
            break;
    }
    op->reader->n_records += records->n;
    for (int i = 0; i < 2; i++)
        TRY(put_strings(op->outer, (struct shape){1, &records->n}, records->texts + i, 2, i));
    return NULL;
}

static struct status *read_up_to_body(struct reader_op *op, bool *wants_work) {
    const struct tensor *limit = kernel_input(op->outer, 2);
    struct records records = {0};
    if (limit->rank != 0)
        return status_invalid("num_records must be a scalar, but has shape %s",
                              TENSOR_SHAPE_TEXT(limit));
    int64_t n = tensor_index_at(limit, 0);
    if (n < 0)
        return status_invalid("num_records must not be negative, but is %lld", (long long)n);
    struct status *st = read_some(op, &records, n, wants_work);
    for (int64_t i = 0; i < 2 * records.n; i++)
        str_fini(&records.texts[i]);
    free(records.texts);
    return st;
}

/* ReaderReadUpTo: at most num_records records, all of one file and at least one. */
static enum kernel_result reader_read_up_to(struct kernel_ctx *ctx) {
    return reader_run(ctx, read_up_to_body, true);
}

/* ---- inspection and state ---- */

static struct status *count_records_body(struct reader_op *op, bool *wants_work) {
    (void)wants_work;
    tensor_init_scalar_i64(&op->outer->outputs[0], op->reader->n_records);
    return NULL;
}
static enum kernel_result reader_count_records(struct kernel_ctx *ctx) {
    return reader_run(ctx, count_records_body, false);
}

static struct status *count_work_body(struct reader_op *op, bool *wants_work) {
    (void)wants_work;
    tensor_init_scalar_i64(&op->outer->outputs[0], op->reader->n_finished);
    return NULL;
}
static enum kernel_result reader_count_work(struct kernel_ctx *ctx) {
    return reader_run(ctx, count_work_body, false);
}

static struct status *reset_body(struct reader_op *op, bool *wants_work) {
    (void)wants_work;
    finish_work(op->reader);
    op->reader->n_started = op->reader->n_finished = op->reader->n_records = 0;
    str_clear(&op->reader->work);
    return NULL;
}
static enum kernel_result reader_reset(struct kernel_ctx *ctx) {
    return reader_run(ctx, reset_body, false);
}

/* ---- state: a ReaderBaseState message: 1 work_started, 2 work_finished, 3 num_records_produced
 * (int64), 4 current_work (bytes) ---- */

static struct status *check_has_state(const struct reader *reader, const char *what) {
    if (is_one_record(reader)) /* never in the middle of a file */
        return NULL;
    return status_unimplemented("Reader %s", what);
}

static void add_varint(struct str *out, uint64_t v) {
    for (; v >= 128; v >>= 7)
        str_add_char(out, (char)(v | 128));
    str_add_char(out, (char)v);
}

static bool take_varint(struct span *in, uint64_t *ret) {
    *ret = 0;
    for (int shift = 0; shift < 64 && in->len > 0; shift += 7) {
        uint8_t byte = (uint8_t)*in->data++;
        in->len--;
        *ret |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static struct status *serialize_body(struct reader_op *op, bool *wants_work) {
    (void)wants_work;
    const struct reader *reader = op->reader;
    const int64_t numbers[3] = {reader->n_started, reader->n_finished, reader->n_records};
    struct str out = STR_INIT;
    TRY(check_has_state(reader, "SerializeState"));
    for (int i = 0; i < 3; i++) {
        if (numbers[i] == 0)
            continue;
        str_add_char(&out, (char)((i + 1) << 3));
        add_varint(&out, (uint64_t)numbers[i]);
    }
    if (reader->work.len > 0) {
        str_add_char(&out, 4 << 3 | 2);
        add_varint(&out, reader->work.len);
        str_add_bytes(&out, reader->work.data, reader->work.len);
    }
    struct status *st = put_strings(op->outer, SHAPE_SCALAR, &out, 1, 0);
    str_fini(&out);
    return st;
}
static enum kernel_result reader_serialize(struct kernel_ctx *ctx) {
    return reader_run(ctx, serialize_body, false);
}

static bool parse_state(struct span in, int64_t numbers[3], struct span *work) {
    uint64_t tag = 0, v = 0;
    while (in.len > 0) {
        if (!take_varint(&in, &tag) || !take_varint(&in, &v))
            return false;
        if ((tag & 7) == 0 && tag >> 3 >= 1 && tag >> 3 <= 3) {
            numbers[(tag >> 3) - 1] = (int64_t)v;
        } else if (tag == (4 << 3 | 2) && v <= in.len) {
            *work = (struct span){in.data, (size_t)v};
            in.data += v;
            in.len -= (size_t)v;
        } else {
            return false;
        }
    }
    return true;
}

static struct status *restore_body(struct reader_op *op, bool *wants_work) {
    (void)wants_work;
    struct reader *reader = op->reader;
    const struct tensor *state = kernel_input(op->outer, 1);
    int64_t numbers[3] = {0};
    struct span work = {0};
    if (state->rank != 0)
        return status_invalid("Reader state must be scalar, but had shape: %s",
                              TENSOR_SHAPE_TEXT(state));
    TRY(check_has_state(reader, "RestoreState"));
    if (!parse_state(tensor_string(state, 0), numbers, &work))
        return status_invalid("Could not parse state for %s", reader->name);
    if (numbers[0] < 0 || numbers[1] < 0 || numbers[2] < 0)
        return status_invalid("Unexpected negative value when restoring in %s", reader->name);
    if (numbers[0] > numbers[1])
        return status_invalid(
            "Inconsistent work started vs. finished when restoring in %s: %lld vs. %lld",
            reader->name, (long long)numbers[0], (long long)numbers[1]);
    finish_work(reader);
    str_clear(&reader->work);
    str_add_bytes(&reader->work, work.data, work.len);
    reader->n_started = numbers[0];
    reader->n_finished = numbers[1];
    reader->n_records = numbers[2];
    return NULL;
}
static enum kernel_result reader_restore(struct kernel_ctx *ctx) {
    return reader_run(ctx, restore_body, false);
}

static const struct reader_row identity = {RECORD_IDENTITY}, whole = {RECORD_WHOLE_FILE},
                               lines = {RECORD_LINES}, fixed = {RECORD_FIXED},
                               tfrecord = {RECORD_TFRECORD};

#define READER(name, kind)                                                                       \
    {                                                                                            \
        .op = (name), .compute = reader_compute, .init = reader_init, .fini = reader_state_fini, \
        .arg = &(kind), .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE                          \
    }
#define READS(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_ASYNC | KERNEL_STATEFUL }

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "RecordInput", .compute = record_input, .init = record_input_init,
     .fini = record_input_fini, .flags = KERNEL_ASYNC | KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    READER("IdentityReader", identity),
    READER("IdentityReaderV2", identity),
    READER("WholeFileReader", whole),
    READER("WholeFileReaderV2", whole),
    READER("TextLineReader", lines),
    READER("TextLineReaderV2", lines),
    READER("FixedLengthRecordReader", fixed),
    READER("FixedLengthRecordReaderV2", fixed),
    READER("TFRecordReader", tfrecord),
    READER("TFRecordReaderV2", tfrecord),
    READS("ReaderRead", reader_read),
    READS("ReaderReadV2", reader_read),
    READS("ReaderReadUpTo", reader_read_up_to),
    READS("ReaderReadUpToV2", reader_read_up_to),
    READS("ReaderNumRecordsProduced", reader_count_records),
    READS("ReaderNumRecordsProducedV2", reader_count_records),
    READS("ReaderNumWorkUnitsCompleted", reader_count_work),
    READS("ReaderNumWorkUnitsCompletedV2", reader_count_work),
    READS("ReaderReset", reader_reset),
    READS("ReaderResetV2", reader_reset),
    READS("ReaderSerializeState", reader_serialize),
    READS("ReaderSerializeStateV2", reader_serialize),
    READS("ReaderRestoreState", reader_restore),
    READS("ReaderRestoreStateV2", reader_restore),
};
// clang-format on

const struct kernel_list reader_kernels = {rows, ARRAY_LEN(rows)};
