/* Lists the kernels of the Unicode family. */
#include "kernels/host/text/unicode_internal.h"

// clang-format off
static const struct kernel_def rows[] = {
    {"UnicodeDecode",            {{"Tsplits", DTYPES_INDEX}}, unicode_decode, unicode_init,
     .cost_ns_per_element = 200},
    {"UnicodeDecodeWithOffsets", {{"Tsplits", DTYPES_INDEX}}, unicode_decode, unicode_init,
     .cost_ns_per_element = 200},
    {"UnicodeEncode",            {{"Tsplits", DTYPES_INDEX}}, unicode_encode, unicode_init,
     .cost_ns_per_element = 20},
    {"UnicodeTranscode", .compute = unicode_transcode, .init = unicode_init,
     .cost_ns_per_element = 200},
    {"UnicodeScript",    .compute = unicode_script, .cost_ns_per_element = 10},
};
// clang-format on

const struct kernel_list unicode_kernels = {rows, ARRAY_LEN(rows)};
