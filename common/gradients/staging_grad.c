/* Derivatives of the staging family: none. They carry tensors between steps. */
#include "common/gradients/gradient.h"

extern const struct gradient_list staging_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Stage"),
    NO_GRADIENT("Unstage"),
    NO_GRADIENT("StagePeek"),
    NO_GRADIENT("StageSize"),
    NO_GRADIENT("StageClear"),
    NO_GRADIENT("MapStage"),
    NO_GRADIENT("MapPeek"),
    NO_GRADIENT("MapUnstage"),
    NO_GRADIENT("MapUnstageNoKey"),
    NO_GRADIENT("MapSize"),
    NO_GRADIENT("MapIncompleteSize"),
    NO_GRADIENT("MapClear"),
    NO_GRADIENT("OrderedMapStage"),
    NO_GRADIENT("OrderedMapPeek"),
    NO_GRADIENT("OrderedMapUnstage"),
    NO_GRADIENT("OrderedMapUnstageNoKey"),
    NO_GRADIENT("OrderedMapSize"),
    NO_GRADIENT("OrderedMapIncompleteSize"),
    NO_GRADIENT("OrderedMapClear"),
};
// clang-format on

const struct gradient_list staging_gradients = {rows, ARRAY_LEN(rows)};
