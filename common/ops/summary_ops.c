/* The summary family: what training programs log, as serialized protos. */
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
};
// clang-format on

const struct op_def_list summary_ops = {rows, ARRAY_LEN(rows)};
