/* Says which ops of control flow have a derivative. Clients differentiate conditionals and loops
 * frame by frame, and a function that contains them is refused. A call is differentiated as a
 * function. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("Switch"),
    LATER_GRADIENT("RefSwitch"),
    LATER_GRADIENT("_SwitchN"),
    LATER_GRADIENT("Merge"),
    LATER_GRADIENT("RefMerge"),
    LATER_GRADIENT("Enter"),
    LATER_GRADIENT("RefEnter"),
    LATER_GRADIENT("Exit"),
    LATER_GRADIENT("RefExit"),
    LATER_GRADIENT("NextIteration"),
    LATER_GRADIENT("RefNextIteration"),
    NO_GRADIENT("LoopCond"),
    NO_GRADIENT("RefSelect"),
    NO_GRADIENT("ControlTrigger"),
    NO_GRADIENT("ToBool"),
    NO_GRADIENT("DeviceIndex"),
    NO_GRADIENT("FakeParam"),
    NO_GRADIENT("SyncDevice"),
    LATER_GRADIENT("If"),
    LATER_GRADIENT("StatelessIf"),
    LATER_GRADIENT("Case"),
    LATER_GRADIENT("StatelessCase"),
    LATER_GRADIENT("While"),
    LATER_GRADIENT("StatelessWhile"),
    LATER_GRADIENT("For"),
    LATER_GRADIENT("RemoteCall"),
    LATER_GRADIENT("SymbolicGradient"),
    CALL_GRADIENT("PartitionedCall"),
    CALL_GRADIENT("StatefulPartitionedCall"),
    NO_GRADIENT("_MrFeed"),
    NO_GRADIENT("_MrFetch"),
    NO_GRADIENT("_MrSend"),
    NO_GRADIENT("_MrRecv"),
    NO_GRADIENT("_MrFused"),
};
// clang-format on

const struct gradient_list control_flow_gradients = {rows, ARRAY_LEN(rows)};
