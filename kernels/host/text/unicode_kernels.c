/* Lists the kernels of the Unicode family. */
#include "kernels/host/text/unicode_internal.h"

// clang-format off
static const struct kernel_def rows[] = {
    {"UnicodeDecode",            {{"Tsplits", DTYPES_INDEX}}, unicode_decode, unicode_init},
    {"UnicodeDecodeWithOffsets", {{"Tsplits", DTYPES_INDEX}}, unicode_decode, unicode_init},
    {"UnicodeEncode",            {{"Tsplits", DTYPES_INDEX}}, unicode_encode, unicode_init},
    {"UnicodeTranscode", .compute = unicode_transcode, .init = unicode_init},
    {"UnicodeScript",    .compute = unicode_script},
};
// clang-format on

const struct kernel_list unicode_kernels = {rows, ARRAY_LEN(rows)};
