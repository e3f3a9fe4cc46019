/* Lists the kernels of the string family. */
#include "kernels/host/text/string_internal.h"

#define AS_STRING_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))
#define NUMBER_TYPES                                                                    \
    (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_INDEX | DTYPE_BIT(DT_UINT32) | \
     DTYPE_BIT(DT_UINT64))

// clang-format off
static const struct kernel_def rows[] = {
    {"StringLower",  .compute = string_lower, .init = string_case_init},
    {"StringUpper",  .compute = string_upper, .init = string_case_init},
    {"StringStrip",  .compute = string_strip},
    {"StringLength", .compute = string_length, .init = string_unit_init},
    {"Substr", {{"T", DTYPES_INDEX}}, string_substr, string_unit_init},
    {"StringJoin",   .compute = string_join, .init = string_join_init},
    {"ReduceJoin",   .compute = string_reduce_join, .init = string_join_init},
    {"UnsortedSegmentJoin", {{"Tindices", DTYPES_INDEX}, {"Tnumsegments", DTYPES_INDEX}},
     string_unsorted_segment_join, string_join_init},
    {"AsString",       {{"T", AS_STRING_TYPES}},     string_as_string, string_as_string_init},
    {"StringToNumber", {{"out_type", NUMBER_TYPES}}, string_to_number},
    {"StringFormat", .compute = string_format, .init = string_format_init,
     .fini = string_format_fini},
    {"StringToHashBucketFast",   .compute = string_hash, .init = string_hash_init},
    {"StringToHashBucket",       .compute = string_hash, .init = string_hash_init},
    {"StringToHashBucketStrong", .compute = string_hash, .init = string_hash_init},
    {"StaticRegexFullMatch", .compute = string_static_regex_match, .init = string_regex_init,
     .fini = string_regex_fini},
    {"RegexFullMatch", .compute = string_regex_match},
    {"StaticRegexReplace", .compute = string_static_regex_replace,
     .init = string_regex_replace_init, .fini = string_regex_fini},
    {"RegexReplace", .compute = string_regex_replace, .init = string_regex_replace_init,
     .fini = string_regex_fini},
    {"EncodeBase64", .compute = string_encode_base64, .init = string_base64_init},
    {"DecodeBase64", .compute = string_decode_base64},
    {"StringNGrams", {{"Tsplits", DTYPES_INDEX}}, string_ngrams, string_ngrams_init},
    {"StringSplit",   .compute = string_split,    .init = string_split_init},
    {"StringSplitV2", .compute = string_split_v2, .init = string_split_init},
};
// clang-format on

const struct kernel_list string_kernels = {rows, ARRAY_LEN(rows)};
