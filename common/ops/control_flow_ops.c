/* Lists control flow [WP 4.4]: Switch, Merge, frames. The executor runs these ops itself, so they
 * have no kernels. The functional forms have none either: the master inlines them. */
#include "common/ops/op_def.h"

/* Merge: value and value_index. The shape is known only where all inputs agree. */
static struct status *shape_of_merge(struct shape_inference *ctx) {
    struct shape out = ctx->node->n_data ? ctx->in[0] : SHAPE_UNKNOWN;
    for (int i = 1; i < ctx->node->n_data && out.rank >= 0; i++) {
        struct shape in = ctx->in[i];
        if (in.rank != out.rank) {
            out = SHAPE_UNKNOWN;
            break;
        }
        int64_t *dims = arena_array(ctx->arena, int64_t, out.rank + 1);
        for (int d = 0; d < out.rank; d++)
            dims[d] = in.dims[d] == out.dims[d] ? out.dims[d] : -1;
        out.dims = dims;
    }
    ctx->out[0] = out;
    ctx->out[1] = SHAPE_SCALAR;
    return NULL;
}

static void pass_handle(struct shape_inference *ctx, int output) {
    if (!ctx->in_handle_dtypes || !ctx->out_handle_dtypes)
        return;
    ctx->out_handle_dtypes[output] = ctx->in_handle_dtypes[0];
    ctx->out_handle_shapes[output] = ctx->in_handle_shapes[0];
}

/* Switch: both outputs are the data input; the predicate is a scalar. */
static struct status *shape_of_switch(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    for (int i = 0; i < ctx->node->n_outputs; i++) {
        ctx->out[i] = ctx->in[0];
        pass_handle(ctx, i);
    }
    return NULL;
}

static struct status *shape_of_switch_n(struct shape_inference *ctx) {
    return shape_of_switch(ctx);
}

/* Enter: a loop invariant keeps its shape; a loop variable may change it from one iteration to
 * the next. */
static struct status *shape_of_enter(struct shape_inference *ctx) {
    bool is_constant = false;
    TRY(node_get_b(ctx->node, "is_constant", &is_constant));
    ctx->out[0] = is_constant ? ctx->in[0] : SHAPE_UNKNOWN;
    pass_handle(ctx, 0);
    if (is_constant || !ctx->in_handle_dtypes || ctx->in_handle_dtypes[0] == DT_INVALID)
        return NULL;
    ctx->out[0] = ctx->in[0]; /* a handle stays a handle in every iteration */
    return NULL;
}

static struct status *shape_of_exit(struct shape_inference *ctx) {
    ctx->out[0] = SHAPE_UNKNOWN; /* the value that an iteration has made */
    pass_handle(ctx, 0);
    return NULL;
}

static struct status *shape_of_next_iteration(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[0];
    pass_handle(ctx, 0);
    return NULL;
}

static struct status *shape_of_loop_cond(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    ctx->out[0] = SHAPE_SCALAR;
    return NULL;
}

static struct status *shape_of_ref_select(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    struct shape first = ctx->node->n_data > 1 ? ctx->in[1] : SHAPE_UNKNOWN;
    for (int i = 2; i < ctx->node->n_data; i++) {
        if (first.rank < 0 || !shape_is_full(first) || !shape_equal(first, ctx->in[i]))
            first = SHAPE_UNKNOWN;
    }
    ctx->out[0] = first;
    return NULL;
}

/* The output shapes of functions, where the client states them. */
static struct status *shape_of_call(struct shape_inference *ctx) {
    const struct attr_value *shapes = node_attr(ctx->node, "output_shapes");
    if (!shapes || shapes->type != ATTR_LIST_SHAPE || shapes->list.n_values != ctx->node->n_outputs)
        return NULL;
    for (int i = 0; i < ctx->node->n_outputs; i++)
        ctx->out[i] = shapes->list.values[i].shape;
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"Switch", "passes data to the output that the predicate selects; the other one is dead",
     shape_of_switch},
    {"RefSwitch", "Switch for a reference", shape_of_switch},
    {"_SwitchN", "passes data to the output that an index selects; the others are dead",
     shape_of_switch_n},
    {"Merge", "the first input that is not dead, and its index", shape_of_merge},
    {"RefMerge", "Merge for references", shape_of_merge},
    {"Enter", "passes data into the frame of a loop", shape_of_enter},
    {"RefEnter", "Enter for a reference", shape_of_enter},
    {"Exit", "passes data out of the frame of a loop", shape_of_exit},
    {"RefExit", "Exit for a reference", shape_of_exit},
    {"NextIteration", "passes data to the next iteration of the frame", shape_of_next_iteration},
    {"RefNextIteration", "NextIteration for a reference", shape_of_next_iteration},
    {"LoopCond", "the condition of a loop, for its Switch ops", shape_of_loop_cond},
    {"RefSelect", "the reference that an index selects", shape_of_ref_select},
    {"ToBool",
     "true for a number that is not 0, a string that is not empty, a tensor with elements",
     shape_scalar},
    {"DeviceIndex", "the index of the node's device type in a list", shape_scalar},
    {"FakeParam", "a value that is never read", shape_from_attr},
    {"SyncDevice", "waits until the device has finished all work", shape_none},
    {"If", "calls one of two functions, by a predicate", shape_of_call},
    {"StatelessIf", "calls one of two functions without state, by a predicate", shape_of_call},
    {"Case", "calls one of several functions, by an index", shape_of_call},
    {"StatelessCase", "calls one of several functions without state, by an index", shape_of_call},
    {"While", "calls a function while another one returns true", shape_of_call},
    {"StatelessWhile", "calls a function without state while another one returns true",
     shape_of_call},
    {"For", "calls a function for each number from start to limit", shape_of_call},
    {"PartitionedCall", "a function", shape_of_call},
    {"RemoteCall", "calls a function on the device that an input names", shape_of_call},
    {"SymbolicGradient", "the derivative of a function", shape_of_call},
    {"StatefulPartitionedCall", "a function with state", shape_of_call},
    {"ControlTrigger", "runs once all control inputs have ended, dead ones too", shape_none},
};
// clang-format on

const struct op_def_list control_flow_ops = {rows, ARRAY_LEN(rows)};
