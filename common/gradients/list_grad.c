/* Differentiates lists of tensors: the gradient of a list is a list. */
#include "common/gradients/build.h"

static struct node_input element_shape(struct gradient_ctx *g, struct node_input list) {
    return OP_WITH("TensorListElementShape", ATTRS(ATTR_T("shape_type", DT_INT32)), list);
}

/* A value with the shape of one row of a tensor of rows. */
static struct node_input row_shape(struct gradient_ctx *g, struct node_input rows) {
    return OP_WITH("StridedSlice", ATTRS(ATTR_I("end_mask", 1)), SHAPE(rows), I32S(1), I32S(0),
                   I32S(1));
}

static void from_tensor_grad(struct gradient_ctx *g) {
    SET(0, OP_WITH("TensorListStack", ATTRS(ATTR_T("element_dtype", gradient_dtype(IN(0)))), DY(0),
                   row_shape(g, IN(0))));
}

static void stack_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorListFromTensor", DY(0), element_shape(g, IN(0))));
}

static void push_back_grad(struct gradient_ctx *g) {
    struct node_input popped =
        OP_WITH("TensorListPopBack", ATTRS(ATTR_T("element_dtype", gradient_dtype(IN(1)))), DY(0),
                SHAPE(IN(1)));
    SET(0, popped);
    SET(1, SECOND(popped));
}

/* Where the rest of the list has no gradient, DY(0) is that of a list of its length. */
static void pop_back_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorListPushBack", DY(0), DY(1)));
}

static void get_item_grad(struct gradient_ctx *g) {
    struct node_input empty =
        OP_WITH("TensorListReserve", ATTRS(ATTR_T("element_dtype", gradient_dtype(OUT(0)))),
                element_shape(g, IN(0)), OP("TensorListLength", IN(0)));
    SET(0, OP("TensorListSetItem", empty, IN(1), DY(0)));
}

static void set_item_grad(struct gradient_ctx *g) {
    struct node_input list = OP("TensorListSetItem", DY(0), IN(1), ZEROS(IN(2)));
    if (gradient_attr_b(g, "resize_if_index_out_of_bounds"))
        list = OP("TensorListResize", list, OP("TensorListLength", IN(0)));
    SET(0, list);
    SET(2, OP_WITH("TensorListGetItem", ATTRS(ATTR_T("element_dtype", gradient_dtype(IN(2)))),
                   DY(0), IN(1), SHAPE(IN(2))));
}

static void resize_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorListResize", DY(0), OP("TensorListLength", IN(0))));
}

static void gather_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorListScatterV2", DY(0), IN(1), element_shape(g, IN(0)),
              OP("TensorListLength", IN(0))));
}

static void scatter_grad(struct gradient_ctx *g) {
    SET(0, OP_WITH("TensorListGather", ATTRS(ATTR_T("element_dtype", gradient_dtype(IN(0)))), DY(0),
                   IN(1), row_shape(g, IN(0))));
}

/* (list, tensor, indices) */
static void scatter_into_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorListScatterIntoExistingList", DY(0), ZEROS(IN(1)), IN(2)));
    SET(1, OP_WITH("TensorListGather", ATTRS(ATTR_T("element_dtype", gradient_dtype(IN(1)))), DY(0),
                   IN(2), row_shape(g, IN(1))));
}

/* (tensor, lengths) of a list: pieces of the rows. */
static void concat_grad(struct gradient_ctx *g) {
    SET(0, OP("TensorListSplit", DY(0), element_shape(g, IN(0)), OUT(1)));
}

/* (tensor, shape of the pieces, lengths) */
static void split_grad(struct gradient_ctx *g) {
    SET(0, OP_WITH("TensorListConcatV2", ATTRS(ATTR_T("element_dtype", gradient_dtype(IN(0)))),
                   DY(0), CONCAT(I32S(-1), row_shape(g, IN(0))), IN(2)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("TensorListFromTensor", from_tensor_grad),
    GRADIENT("TensorListStack", stack_grad),
    GRADIENT("TensorListPushBack", push_back_grad),
    GRADIENT("TensorListPopBack", pop_back_grad),
    GRADIENT("TensorListGetItem", get_item_grad),
    GRADIENT("TensorListSetItem", set_item_grad),
    GRADIENT("TensorListResize", resize_grad),
    GRADIENT("TensorListGather", gather_grad),
    GRADIENT("TensorListScatter", scatter_grad),
    GRADIENT("TensorListScatterV2", scatter_grad),
    NO_GRADIENT("EmptyTensorList"),
    NO_GRADIENT("TensorListReserve"),
    GRADIENT("TensorListScatterIntoExistingList", scatter_into_grad),
    GRADIENT("TensorListSplit", split_grad),
    NO_GRADIENT("TensorListPushBackBatch"),
    NO_GRADIENT("TensorListConcatLists"),
    NO_GRADIENT("TensorListLength"),
    NO_GRADIENT("TensorListElementShape"),
    GRADIENT("TensorListConcat", concat_grad),
    GRADIENT("TensorListConcatV2", concat_grad),
};
// clang-format on

const struct gradient_list list_gradients = {rows, ARRAY_LEN(rows)};
