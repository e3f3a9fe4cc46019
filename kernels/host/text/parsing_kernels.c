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
    {"DecodeRaw",       {{"out_type", RAW_TYPES}},    parsing_decode_raw,        parsing_raw_init},
    {"DecodePaddedRaw", {{"out_type", PADDED_TYPES}}, parsing_decode_padded_raw, parsing_raw_init},
    {"DecodeCSV", .compute = parsing_decode_csv, .init = parsing_csv_init,
     .fini = parsing_csv_fini},
    {"DecodeJSONExample", .compute = parsing_decode_json_example},
    {"ParseTensor", .compute = parsing_parse_tensor},
    {"SerializeTensor", {{"T", SERIAL_TYPES}}, parsing_serialize_tensor},
    {"DecodeCompressed", .compute = parsing_decode_compressed, .init = parsing_compressed_init},
    {"Fingerprint", .compute = parsing_fingerprint},
    {"ParseExample",       .compute = parsing_example,        .init = parsing_example_init,
     .fini = parsing_example_fini},
    {"ParseExampleV2",     .compute = parsing_example_v2,     .init = parsing_example_init,
     .fini = parsing_example_fini},
    {"ParseSingleExample", .compute = parsing_single_example, .init = parsing_example_init,
     .fini = parsing_example_fini},
    {"ParseSequenceExample",       .compute = parsing_sequence, .init = parsing_sequence_init},
    {"ParseSequenceExampleV2",     .compute = parsing_sequence_v2, .init = parsing_sequence_init},
    {"ParseSingleSequenceExample", .compute = parsing_single_sequence,
     .init = parsing_sequence_init},
};
// clang-format on

const struct kernel_list parsing_kernels = {rows, ARRAY_LEN(rows)};
