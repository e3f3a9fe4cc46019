/* CPU kernels of the summary family. */
#include "kernels/cpu/summary_internal.h"

#define SERIAL_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
static const struct kernel_def rows[] = {
    {"ScalarSummary",    {{"T", DTYPES_REAL}}, summary_scalar, .cost_ns_per_element = 50},
    {"HistogramSummary", {{"T", DTYPES_REAL}}, summary_histogram, .cost_ns_per_element = 20},
    {"TensorSummary",    {{"T", SERIAL_TYPES}}, summary_tensor, .cost_ns_per_element = 1},
    {"TensorSummaryV2",  {{"T", SERIAL_TYPES}}, summary_tensor_v2, .cost_ns_per_element = 1},
    {"MergeSummary",   .compute = summary_merge, .cost_ns_per_element = 500},
    {"AudioSummary",   .compute = summary_audio, .init = summary_audio_init, .cost_ns_per_element = 5},
    {"AudioSummaryV2", .compute = summary_audio, .init = summary_audio_init, .cost_ns_per_element = 5},
};
// clang-format on

const struct kernel_list summary_kernels = {rows, ARRAY_LEN(rows)};
