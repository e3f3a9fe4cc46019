/* Control flow has no gradient row of its own: clients differentiate conditionals and loops frame by frame, and the functional
 * forms that SymbolicGradient sees hold none of these ops. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Switch"),
    NO_GRADIENT("RefSwitch"),
    NO_GRADIENT("_SwitchN"),
    NO_GRADIENT("Merge"),
    NO_GRADIENT("RefMerge"),
    NO_GRADIENT("Enter"),
    NO_GRADIENT("RefEnter"),
    NO_GRADIENT("Exit"),
    NO_GRADIENT("RefExit"),
    NO_GRADIENT("NextIteration"),
    NO_GRADIENT("RefNextIteration"),
    NO_GRADIENT("LoopCond"),
    NO_GRADIENT("RefSelect"),
    NO_GRADIENT("ControlTrigger"),
    NO_GRADIENT("ToBool"),
    NO_GRADIENT("If"), /* what is inlined is differentiated as what it comes to */
    NO_GRADIENT("StatelessIf"),
    NO_GRADIENT("Case"),
    NO_GRADIENT("StatelessCase"),
    NO_GRADIENT("While"),
    NO_GRADIENT("StatelessWhile"),
    NO_GRADIENT("PartitionedCall"),
    NO_GRADIENT("StatefulPartitionedCall"),
    NO_GRADIENT("_MrFeed"),
    NO_GRADIENT("_MrFetch"),
    NO_GRADIENT("_MrSend"),
    NO_GRADIENT("_MrRecv"),
};
// clang-format on

const struct gradient_list control_flow_gradients = {rows, ARRAY_LEN(rows)};
