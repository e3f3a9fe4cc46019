/* Derivatives of pictures' formats: bytes have none. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("DecodeImage"),
    NO_GRADIENT("DecodeJpeg"),
    NO_GRADIENT("DecodeAndCropJpeg"),
    NO_GRADIENT("DecodePng"),
    NO_GRADIENT("DecodeGif"),
    NO_GRADIENT("DecodeBmp"),
    NO_GRADIENT("ExtractJpegShape"),
    NO_GRADIENT("EncodeJpeg"),
    NO_GRADIENT("EncodeJpegVariableQuality"),
    NO_GRADIENT("EncodePng"),
};
// clang-format on

const struct gradient_list codec_gradients = {rows, ARRAY_LEN(rows)};
