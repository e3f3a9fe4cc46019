/* Derivatives of the candidate samplers: what is drawn follows nothing. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("UniformCandidateSampler"),
    NO_GRADIENT("LogUniformCandidateSampler"),
    NO_GRADIENT("LearnedUnigramCandidateSampler"),
    NO_GRADIENT("ThreadUnsafeUnigramCandidateSampler"),
    NO_GRADIENT("FixedUnigramCandidateSampler"),
    NO_GRADIENT("AllCandidateSampler"),
    NO_GRADIENT("ComputeAccidentalHits"),
};
// clang-format on

const struct gradient_list candidate_gradients = {rows, ARRAY_LEN(rows)};
