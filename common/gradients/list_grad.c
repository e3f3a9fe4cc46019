/* Derivatives of the TensorList family: lists of gradients, as long as the lists. */
#include "common/gradients/gradient.h"

extern const struct gradient_list list_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("EmptyTensorList"),
    NO_GRADIENT("TensorListReserve"),
    LATER_GRADIENT("TensorListFromTensor"),
    LATER_GRADIENT("TensorListScatter"),
    LATER_GRADIENT("TensorListScatterV2"),
    LATER_GRADIENT("TensorListScatterIntoExistingList"),
    LATER_GRADIENT("TensorListSplit"),
    LATER_GRADIENT("TensorListPushBack"),
    LATER_GRADIENT("TensorListPushBackBatch"),
    LATER_GRADIENT("TensorListPopBack"),
    LATER_GRADIENT("TensorListSetItem"),
    LATER_GRADIENT("TensorListResize"),
    LATER_GRADIENT("TensorListConcatLists"),
    NO_GRADIENT("TensorListLength"),
    NO_GRADIENT("TensorListElementShape"),
    LATER_GRADIENT("TensorListGetItem"),
    LATER_GRADIENT("TensorListStack"),
    LATER_GRADIENT("TensorListGather"),
    LATER_GRADIENT("TensorListConcat"),
    LATER_GRADIENT("TensorListConcatV2"),
};
// clang-format on

const struct gradient_list list_gradients = {rows, ARRAY_LEN(rows)};
