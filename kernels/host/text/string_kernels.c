/* Lists the kernels of the string family. */
#include "kernels/host/text/string_internal.h"

#define AS_STRING_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))
#define NUMBER_TYPES                                                                    \
    (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_INDEX | DTYPE_BIT(DT_UINT32) | \
     DTYPE_BIT(DT_UINT64))

// clang-format off
static const struct kernel_def rows[] = {
    {"StringLower",  .compute = string_lower, .init = string_case_init, .cost_ns_per_element = 60},
    {"StringUpper",  .compute = string_upper, .init = string_case_init, .cost_ns_per_element = 60},
    {"StringStrip",  .compute = string_strip, .cost_ns_per_element = 60},
    {"StringLength", .compute = string_length, .init = string_unit_init, .cost_ns_per_element = 5},
    {"Substr", {{"T", DTYPES_INDEX}}, string_substr, string_unit_init, .cost_ns_per_element = 60},
    {"StringJoin",   .compute = string_join, .init = string_join_init, .cost_ns_per_element = 60},
    {"ReduceJoin",   .compute = string_reduce_join, .init = string_join_init,
     .cost_ns_per_element = 30},
    {"UnsortedSegmentJoin", {{"Tindices", DTYPES_INDEX}, {"Tnumsegments", DTYPES_INDEX}},
     string_unsorted_segment_join, string_join_init,
     .cost_ns_per_element = 30},
    {"AsString",       {{"T", AS_STRING_TYPES}},     string_as_string, string_as_string_init,
     .cost_ns_per_element = 200},
    {"StringToNumber", {{"out_type", NUMBER_TYPES}}, string_to_number, .cost_ns_per_element = 50},
    {"StringFormat", .compute = string_format, .init = string_format_init,
     .fini = string_format_fini, .cost_ns_per_element = 20},
    {"StringToHashBucketFast",   .compute = string_hash, .init = string_hash_init,
     .cost_ns_per_element = 10},
    {"StringToHashBucket",       .compute = string_hash, .init = string_hash_init,
     .cost_ns_per_element = 10},
    {"StringToHashBucketStrong", .compute = string_hash, .init = string_hash_init,
     .cost_ns_per_element = 20},
    {"StaticRegexFullMatch", .compute = string_static_regex_match, .init = string_regex_init,
     .fini = string_regex_fini, .cost_ns_per_element = 500},
    {"RegexFullMatch", .compute = string_regex_match, .cost_ns_per_element = 500},
    {"StaticRegexReplace", .compute = string_static_regex_replace,
     .init = string_regex_replace_init, .fini = string_regex_fini,
     .cost_ns_per_element = 500},
    {"RegexReplace", .compute = string_regex_replace, .init = string_regex_replace_init,
     .fini = string_regex_fini, .cost_ns_per_element = 500},
    {"EncodeBase64", .compute = string_encode_base64, .init = string_base64_init,
     .cost_ns_per_element = 60},
    {"DecodeBase64", .compute = string_decode_base64, .cost_ns_per_element = 60},
    {"StringNGrams", {{"Tsplits", DTYPES_INDEX}}, string_ngrams, string_ngrams_init,
     .cost_ns_per_element = 200},
    {"StringSplit",   .compute = string_split,    .init = string_split_init,
     .cost_ns_per_element = 200},
    {"StringSplitV2", .compute = string_split_v2, .init = string_split_init,
     .cost_ns_per_element = 200},
};
// clang-format on

const struct kernel_list string_kernels = {rows, ARRAY_LEN(rows)};
