/* Lists staging areas. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"Stage", "puts a tuple down; waits for room", shape_none},
    {"Unstage", "picks up the first tuple; waits for one", shape_unknown},
    {"StagePeek", "looks at a tuple; waits for it", shape_unknown},
    {"StageSize", "how many tuples there are", shape_scalar},
    {"StageClear", "drops all tuples", shape_none},
    {"MapStage", "puts components down under a key; waits for room", shape_none},
    {"MapPeek", "looks at components by key; waits for them", shape_unknown},
    {"MapUnstage", "picks up components by key; waits for them", shape_unknown},
    {"MapUnstageNoKey", "picks up components of some key; waits for one", shape_unknown},
    {"MapSize", "how many complete tuples there are", shape_scalar},
    {"MapIncompleteSize", "how many keys still miss a component", shape_scalar},
    {"MapClear", "drops all tuples", shape_none},
    {"OrderedMapStage", "puts components down under a key; waits for room, in the order of keys",
     shape_none},
    {"OrderedMapPeek", "looks at components by key; waits for them, in the order of keys",
     shape_unknown},
    {"OrderedMapUnstage", "picks up components by key; waits for them, in the order of keys",
     shape_unknown},
    {"OrderedMapUnstageNoKey",
     "picks up components of some key; waits for one, in the order of keys", shape_unknown},
    {"OrderedMapSize", "how many complete tuples there are, in the order of keys", shape_scalar},
    {"OrderedMapIncompleteSize", "how many keys still miss a component, in the order of keys",
     shape_scalar},
    {"OrderedMapClear", "drops all tuples, in the order of keys", shape_none},
};
// clang-format on

const struct op_def_list staging_ops = {rows, ARRAY_LEN(rows)};
