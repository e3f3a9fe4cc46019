/* Lists the kernels of the summary family. */
#include "kernels/host/text/summary_internal.h"

#define IMAGE_TYPES \
    (DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_DOUBLE))
#define SERIAL_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
#define FILES .flags = KERNEL_ASYNC | KERNEL_STATEFUL
#define WRITE(op_name, attr, types, what) \
    {op_name, {{attr, types}}, summary_write, summary_write_init, \
     .arg = (const void *)(intptr_t)SUMMARY_WRITE_##what, FILES}
static const struct kernel_def rows[] = {
    {"ScalarSummary",    {{"T", DTYPES_REAL}}, summary_scalar},
    {"HistogramSummary", {{"T", DTYPES_REAL}}, summary_histogram},
    {"TensorSummary",    {{"T", SERIAL_TYPES}}, summary_tensor},
    {"TensorSummaryV2",  {{"T", SERIAL_TYPES}}, summary_tensor_v2},
    {"MergeSummary",   .compute = summary_merge},
    {"AudioSummary",   .compute = summary_audio, .init = summary_audio_init},
    {"AudioSummaryV2", .compute = summary_audio, .init = summary_audio_init},
    {"ImageSummary",   {{"T", IMAGE_TYPES}}, summary_image, summary_image_init, summary_image_fini},
    {"SummaryWriter",  .compute = summary_writer, .init = summary_writer_init,
     .fini = summary_writer_fini, .flags = KERNEL_STATEFUL},
    {"CreateSummaryFileWriter", .compute = summary_writer_create, FILES},
    {"FlushSummaryWriter", .compute = summary_writer_flush, FILES},
    {"CloseSummaryWriter", .compute = summary_writer_close, FILES},
    WRITE("WriteSummary", "T", SERIAL_TYPES, ANY),
    WRITE("WriteRawProtoSummary", NULL, 0, RAW),
    WRITE("WriteScalarSummary", "T", DTYPES_REAL, SCALAR),
    WRITE("WriteHistogramSummary", "T", DTYPES_REAL, HISTOGRAM),
    WRITE("WriteImageSummary", "T", IMAGE_TYPES & ~DTYPE_BIT(DT_DOUBLE), IMAGE),
    WRITE("WriteAudioSummary", NULL, 0, AUDIO),
    WRITE("WriteGraphSummary", NULL, 0, GRAPH),
    WRITE("ImportEvent", NULL, 0, EVENT),
};
// clang-format on

const struct kernel_list summary_kernels = {rows, ARRAY_LEN(rows)};
