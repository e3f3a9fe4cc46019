/* Differentiates TensorArrays. A second array, found by the handle of the first one and a name,
 * holds the gradients of its elements. A read from the second array waits, through the flow, for
 * the writes into it. */
#include "common/gradients/build.h"

/* Makes the array of gradients after `flow`, and returns its handle and flow. */
static struct node_input array_of_gradients(struct gradient_ctx *g, struct node_input flow) {
    return OP_WITH("TensorArrayGradV3", ATTRS(ATTR_S("source", g->array_source)), IN(0), flow);
}

/* ---- reads: dy is written, and the gradient of the flow is the write's flow ---- */

static void read_grad(struct gradient_ctx *g) {
    struct node_input array = array_of_gradients(g, IN(2));
    SET(2, OP("TensorArrayWriteV3", array, IN(1), DY(0), SECOND(array)));
}

static void gather_grad(struct gradient_ctx *g) {
    struct node_input array = array_of_gradients(g, IN(2));
    SET(2, OP("TensorArrayScatterV3", array, IN(1), DY(0), SECOND(array)));
}

static void concat_grad(struct gradient_ctx *g) {
    struct node_input array = array_of_gradients(g, IN(1));
    SET(1, OP("TensorArraySplitV3", array, DY(0), OUT(1), SECOND(array)));
}

/* ---- writes: dy is a flow, after which the gradient is read ---- */

static void set_read(struct gradient_ctx *g, int value, int flow, struct node_input read) {
    SET(value, read);
    SET(flow, DY(0));
}

static struct node_input read_as(struct gradient_ctx *g, const char *op, struct node_input value,
                                 struct node_input places) {
    struct node_input array = array_of_gradients(g, DY(0));
    return OP_WITH(op, ATTRS(ATTR_T("dtype", gradient_dtype(value))), array, places, SECOND(array));
}

static void write_grad(struct gradient_ctx *g) {
    set_read(g, 2, 3, read_as(g, "TensorArrayReadV3", IN(2), IN(1)));
}
static void scatter_grad(struct gradient_ctx *g) {
    set_read(g, 2, 3, read_as(g, "TensorArrayGatherV3", IN(2), IN(1)));
}

static void split_grad(struct gradient_ctx *g) {
    struct node_input array = array_of_gradients(g, DY(0));
    struct node_input all = OP_WITH(
        "TensorArrayConcatV3", ATTRS(ATTR_T("dtype", gradient_dtype(IN(1)))), array, SECOND(array));
    set_read(g, 1, 3, all);
}

/* ---- rows ---- */

/* The handles of old arrays are strings, for which there is no array of gradients. */
#define OLD_ARRAY "only TensorArrayV3 and its ops have gradients"

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("TensorArrayReadV3", read_grad),
    GRADIENT("TensorArrayWriteV3", write_grad),
    GRADIENT("TensorArrayGatherV3", gather_grad),
    GRADIENT("TensorArrayScatterV3", scatter_grad),
    GRADIENT("TensorArrayConcatV3", concat_grad),
    GRADIENT("TensorArraySplitV3", split_grad),
    NO_GRADIENT("TensorArrayV3"),
    NO_GRADIENT("TensorArrayGradV3"),
    NO_GRADIENT("TensorArrayGradWithShape"),
    NO_GRADIENT("TensorArraySizeV3"),
    NO_GRADIENT("TensorArrayCloseV3"),
    NO_GRADIENT("TensorArray"),
    NO_GRADIENT("TensorArrayV2"),
    NO_GRADIENT("TensorArrayGrad"),
    NO_GRADIENT("TensorArrayGradV2"),
    NO_GRADIENT("TensorArraySize"),
    NO_GRADIENT("TensorArraySizeV2"),
    NO_GRADIENT("TensorArrayClose"),
    NO_GRADIENT("TensorArrayCloseV2"),
    REFUSED_GRADIENT("TensorArrayRead", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayReadV2", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayWrite", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayWriteV2", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayGather", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayGatherV2", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayScatter", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayScatterV2", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayConcat", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayConcatV2", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArraySplit", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArraySplitV2", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayPack", OLD_ARRAY),
    REFUSED_GRADIENT("TensorArrayUnpack", OLD_ARRAY),
};
// clang-format on

const struct gradient_list tensor_array_gradients = {rows, ARRAY_LEN(rows)};
