/* Lists the summary family: serialized protos that training programs log. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"ScalarSummary", "a Summary with a value per tag", shape_scalar},
    {"HistogramSummary", "a Summary with a histogram of the values", shape_scalar},
    {"TensorSummary", "a Summary with a tensor, under the node's name", shape_scalar},
    {"TensorSummaryV2", "a Summary with a tensor, a tag and metadata", shape_scalar},
    {"MergeSummary", "several Summaries as one", shape_scalar},
    {"AudioSummary", "a Summary with sounds as WAV files", shape_scalar},
    {"AudioSummaryV2", "a Summary with sounds as WAV files", shape_scalar},
    {"ImageSummary", "a Summary with pictures as PNG files", shape_scalar},
    {"SummaryWriter", "a handle to a writer of Events", shape_scalar},
    {"CreateSummaryFileWriter", "opens a file of Events for a writer", shape_none},
    {"FlushSummaryWriter", "writes the buffered Events of a writer", shape_none},
    {"CloseSummaryWriter", "writes the buffered Events of a writer, and closes it", shape_none},
    {"WriteSummary", "writes an Event with a tensor", shape_none},
    {"WriteRawProtoSummary", "writes an Event with a serialized Summary", shape_none},
    {"WriteScalarSummary", "writes an Event with a number", shape_none},
    {"WriteHistogramSummary", "writes an Event with a histogram", shape_none},
    {"WriteImageSummary", "writes an Event with pictures as PNG files", shape_none},
    {"WriteAudioSummary", "writes an Event with sounds as WAV files", shape_none},
    {"WriteGraphSummary", "writes an Event with a serialized graph", shape_none},
    {"ImportEvent", "writes a serialized Event", shape_none},
};
// clang-format on

const struct op_def_list summary_ops = {rows, ARRAY_LEN(rows)};
