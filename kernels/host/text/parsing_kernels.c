/* Lists the kernels of the parsing family. */
#include "kernels/host/text/parsing_internal.h"

#define BIT DTYPE_BIT
#define RAW_TYPES                                                                              \
    (DTYPES_REAL_FLOAT | DTYPES_COMPLEX | DTYPES_SIGNED_INT | BIT(DT_UINT8) | BIT(DT_UINT16) | \
     BIT(DT_BOOL))
#define PADDED_TYPES (DTYPES_REAL_FLOAT | DTYPES_SIGNED_INT | BIT(DT_UINT8) | BIT(DT_UINT16))
#define SERIAL_TYPES (DTYPES_NUMBER | BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
static const struct kernel_def rows[] = {
    {"DecodeRaw",       {{"out_type", RAW_TYPES}},    parsing_decode_raw,        parsing_raw_init,
     .cost_ns_per_element = 2},
    {"DecodePaddedRaw", {{"out_type", PADDED_TYPES}}, parsing_decode_padded_raw, parsing_raw_init,
     .cost_ns_per_element = 2},
    {"DecodeCSV", .compute = parsing_decode_csv, .init = parsing_csv_init, .fini = parsing_csv_fini,
     .cost_ns_per_element = 500},
    {"DecodeJSONExample", .compute = parsing_decode_json_example, .cost_ns_per_element = 5000},
    {"ParseTensor", .compute = parsing_parse_tensor, .cost_ns_per_element = 1000},
    {"SerializeTensor", {{"T", SERIAL_TYPES}}, parsing_serialize_tensor, .cost_ns_per_element = 1},
    {"DecodeCompressed", .compute = parsing_decode_compressed, .init = parsing_compressed_init,
     .cost_ns_per_element = 10000},
    {"Fingerprint", .compute = parsing_fingerprint, .cost_ns_per_element = 5},
    {"ParseExample",       .compute = parsing_example,        .init = parsing_example_init,
     .fini = parsing_example_fini, .cost_ns_per_element = 1000},
    {"ParseExampleV2",     .compute = parsing_example_v2,     .init = parsing_example_init,
     .fini = parsing_example_fini, .cost_ns_per_element = 1000},
    {"ParseSingleExample", .compute = parsing_single_example, .init = parsing_example_init,
     .fini = parsing_example_fini, .cost_ns_per_element = 1000},
    {"ParseSequenceExample",       .compute = parsing_sequence,
     .init = parsing_sequence_init, .cost_ns_per_element = 2000},
    {"ParseSequenceExampleV2",     .compute = parsing_sequence_v2,
     .init = parsing_sequence_init, .cost_ns_per_element = 2000},
    {"ParseSingleSequenceExample", .compute = parsing_single_sequence,
     .init = parsing_sequence_init, .cost_ns_per_element = 2000},
};
// clang-format on

const struct kernel_list parsing_kernels = {rows, ARRAY_LEN(rows)};
