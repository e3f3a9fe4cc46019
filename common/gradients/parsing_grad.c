/* Derivatives of the parsing family: bytes have none. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("DecodeRaw"),
    NO_GRADIENT("DecodePaddedRaw"),
    NO_GRADIENT("DecodeCSV"),
    NO_GRADIENT("DecodeJSONExample"),
    NO_GRADIENT("ParseTensor"),
    NO_GRADIENT("SerializeTensor"),
    NO_GRADIENT("DecodeCompressed"),
    NO_GRADIENT("Fingerprint"),
    NO_GRADIENT("ParseExample"),
    NO_GRADIENT("ParseExampleV2"),
    NO_GRADIENT("ParseSingleExample"),
    NO_GRADIENT("ParseSequenceExample"),
    NO_GRADIENT("ParseSequenceExampleV2"),
    NO_GRADIENT("ParseSingleSequenceExample"),
};
// clang-format on

const struct gradient_list parsing_gradients = {rows, ARRAY_LEN(rows)};
