/* Derivatives of files and checkpoints: none. */
#include "common/gradients/gradient.h"

extern const struct gradient_list io_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("SaveV2"),
    NO_GRADIENT("RestoreV2"),
    NO_GRADIENT("MergeV2Checkpoints"),
    NO_GRADIENT("Save"),
    NO_GRADIENT("SaveSlices"),
    NO_GRADIENT("Restore"),
    NO_GRADIENT("RestoreSlice"),
    NO_GRADIENT("ShardedFilename"),
    NO_GRADIENT("ShardedFilespec"),
    NO_GRADIENT("ReadFile"),
    NO_GRADIENT("WriteFile"),
    NO_GRADIENT("GenerateVocabRemapping"),
    NO_GRADIENT("LoadAndRemapMatrix"),
    NO_GRADIENT("MatchingFiles"),
};
// clang-format on

const struct gradient_list io_gradients = {rows, ARRAY_LEN(rows)};
