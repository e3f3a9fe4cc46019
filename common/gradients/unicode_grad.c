/* Derivatives of the Unicode family: texts have none. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("UnicodeDecode"),
    NO_GRADIENT("UnicodeDecodeWithOffsets"),
    NO_GRADIENT("UnicodeEncode"),
    NO_GRADIENT("UnicodeTranscode"),
    NO_GRADIENT("UnicodeScript"),
};
// clang-format on

const struct gradient_list unicode_gradients = {rows, ARRAY_LEN(rows)};
