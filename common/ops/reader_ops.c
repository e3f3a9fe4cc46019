/* Lists the reader family: readers of files whose names come from a queue. */
#include "common/ops/op_def.h"

/* A handle of the first form is a vector of two strings. */
static struct status *shape_reader(struct shape_inference *ctx) {
    bool is_v1 = dtype_base((enum dtype)ctx->node->out_types[0]) == DT_STRING;
    ctx->out[0] = is_v1 ? shape_make(ctx, 1, (const int64_t[]){2}) : SHAPE_SCALAR;
    return NULL;
}

static struct status *shape_vectors(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 2, 0, &ctx->out[0]));
    ctx->out[0] = ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"RecordInput", "records of files, in random order, without end", shape_unknown},
    {"WholeFileReader", "a reader of whole files", shape_reader},
    {"WholeFileReaderV2", "a reader of whole files", shape_reader},
    {"TextLineReader", "a reader of lines", shape_reader},
    {"TextLineReaderV2", "a reader of lines", shape_reader},
    {"FixedLengthRecordReader", "a reader of blocks of equal size", shape_reader},
    {"FixedLengthRecordReaderV2", "a reader of blocks of equal size", shape_reader},
    {"TFRecordReader", "a reader of TFRecord files", shape_reader},
    {"TFRecordReaderV2", "a reader of TFRecord files", shape_reader},
    {"IdentityReader", "a reader that returns the names of files", shape_reader},
    {"IdentityReaderV2", "a reader that returns the names of files", shape_reader},
    {"ReaderRead", "the next record of a reader; takes work from a queue", shape_scalar},
    {"ReaderReadV2", "the next record of a reader; takes work from a queue", shape_scalar},
    {"ReaderReadUpTo", "some records of a reader; takes work from a queue", shape_vectors},
    {"ReaderReadUpToV2", "some records of a reader; takes work from a queue", shape_vectors},
    {"ReaderNumRecordsProduced", "the number of records that a reader has returned", shape_scalar},
    {"ReaderNumRecordsProducedV2", "the number of records that a reader has returned",
     shape_scalar},
    {"ReaderNumWorkUnitsCompleted", "the number of files that a reader has finished", shape_scalar},
    {"ReaderNumWorkUnitsCompletedV2", "the number of files that a reader has finished",
     shape_scalar},
    {"ReaderSerializeState", "the state of a reader as a string", shape_scalar},
    {"ReaderSerializeStateV2", "the state of a reader as a string", shape_scalar},
    {"ReaderRestoreState", "sets a reader's state", shape_none},
    {"ReaderRestoreStateV2", "sets a reader's state", shape_none},
    {"ReaderReset", "resets a reader to its start", shape_none},
    {"ReaderResetV2", "resets a reader to its start", shape_none},
};
// clang-format on

const struct op_def_list reader_ops = {rows, ARRAY_LEN(rows)};
