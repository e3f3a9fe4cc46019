/* Lists staging areas. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"Stage", "adds a tuple; waits for room", shape_none},
    {"Unstage", "takes the first tuple; waits for one", shape_unknown},
    {"StagePeek", "reads a tuple; waits for it", shape_unknown},
    {"StageSize", "the number of tuples", shape_scalar},
    {"StageClear", "removes all tuples", shape_none},
    {"MapStage", "adds components under a key; waits for room", shape_none},
    {"MapPeek", "reads components by key; waits for them", shape_unknown},
    {"MapUnstage", "takes components by key; waits for them", shape_unknown},
    {"MapUnstageNoKey", "takes components of some key; waits for one", shape_unknown},
    {"MapSize", "the number of complete tuples", shape_scalar},
    {"MapIncompleteSize", "the number of keys without all components", shape_scalar},
    {"MapClear", "removes all tuples", shape_none},
    {"OrderedMapStage", "adds components under a key; waits for room, in the order of keys",
     shape_none},
    {"OrderedMapPeek", "reads components by key; waits for them, in the order of keys",
     shape_unknown},
    {"OrderedMapUnstage", "takes components by key; waits for them, in the order of keys",
     shape_unknown},
    {"OrderedMapUnstageNoKey", "takes components of the first key; waits for one", shape_unknown},
    {"OrderedMapSize", "the number of complete tuples", shape_scalar},
    {"OrderedMapIncompleteSize", "the number of keys without all components", shape_scalar},
    {"OrderedMapClear", "removes all tuples", shape_none},
};
// clang-format on

const struct op_def_list staging_ops = {rows, ARRAY_LEN(rows)};
