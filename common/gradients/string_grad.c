/* Derivatives of the string family: texts have none. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("StringLower"),
    NO_GRADIENT("StringUpper"),
    NO_GRADIENT("StringStrip"),
    NO_GRADIENT("StringLength"),
    NO_GRADIENT("Substr"),
    NO_GRADIENT("StringJoin"),
    NO_GRADIENT("ReduceJoin"),
    NO_GRADIENT("UnsortedSegmentJoin"),
    NO_GRADIENT("AsString"),
    NO_GRADIENT("StringToNumber"),
    NO_GRADIENT("StringFormat"),
    NO_GRADIENT("StringToHashBucketFast"),
    NO_GRADIENT("StringToHashBucket"),
    NO_GRADIENT("StringToHashBucketStrong"),
    NO_GRADIENT("StaticRegexFullMatch"),
    NO_GRADIENT("RegexFullMatch"),
    NO_GRADIENT("StaticRegexReplace"),
    NO_GRADIENT("RegexReplace"),
    NO_GRADIENT("EncodeBase64"),
    NO_GRADIENT("DecodeBase64"),
    NO_GRADIENT("StringNGrams"),
    NO_GRADIENT("StringSplit"),
    NO_GRADIENT("StringSplitV2"),
};
// clang-format on

const struct gradient_list string_gradients = {rows, ARRAY_LEN(rows)};
