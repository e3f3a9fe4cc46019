/* Lists the training family: an optimizer's update of its variables. One shape function reads the
 * names of the arguments. */
#include "common/ops/state_shapes.h"

static bool is_variable(const struct node *node, int input) {
    return node->op->inputs[input].is_ref || node->op->inputs[input].type == DT_RESOURCE;
}

/* Rows of the inner shape of the variable, one for each index. For a variable behind a handle
 * TensorFlow leaves the check to the kernel. */
static struct status *shape_sparse_gradient(struct shape_inference *ctx, struct shape *var,
                                            int grad, int indices) {
    struct shape rows, index;
    int64_t n;
    if (!ctx->node->op->inputs[0].is_ref)
        return NULL;
    TRY(shape_require_rank(ctx, indices, 1, &index));
    if (ctx->in[grad].rank == 0)
        return status_invalid("Argument grad must not be a scalar. Got grad with rank 0");
    if (ctx->in[grad].rank < 0)
        return NULL;
    TRY(shape_merge_dims(index.dims[0], ctx->in[grad].dims[0], &n));
    TRY(shape_concat(ctx, shape_unknown_of_rank(ctx, 1), shape_sub(ctx, ctx->in[grad], 1, -1),
                     &rows));
    return shape_merge(ctx, *var, rows, var);
}

/* Arguments that some kernel of TensorFlow accepts although they are no scalars. Here, too, the
 * kernels decide. */
static bool may_have_any_rank(const char *name) {
    return strcmp(name, "lr_power") == 0 || strcmp(name, "sign_decay") == 0;
}

/* Variables and a dense gradient have one shape, indices are a vector, and all other inputs are
 * scalars. */
static struct status *shape_optimizer(struct shape_inference *ctx) {
    const struct node *node = ctx->node;
    struct shape var = SHAPE_UNKNOWN;
    int grad = -1, indices = -1;
    enum dtype dtype = DT_INVALID;
    TRY(node_get_type(node, "T", &dtype));
    for (int i = 0; i < node->n_data && i < node->op->n_inputs; i++) {
        const char *name = node->op->inputs[i].name;
        if (is_variable(node, i)) {
            TRY(shape_check_handle_dtype(ctx, i, dtype));
            TRY(shape_merge(ctx, var, shape_of_variable(ctx, i), &var));
        } else if (strcmp(name, "grad") == 0 || strcmp(name, "delta") == 0) {
            grad = i;
        } else if (strcmp(name, "indices") == 0) {
            indices = i;
        } else if (!may_have_any_rank(name)) {
            TRY(shape_require_rank(ctx, i, 0, NULL));
        }
    }
    if (indices >= 0)
        TRY(shape_sparse_gradient(ctx, &var, grad, indices));
    else if (grad >= 0)
        TRY(shape_merge(ctx, var, ctx->in[grad], &var));
    shape_pass_reference(ctx, var);
    return NULL;
}

// clang-format off
#define DENSE(name, step)                                                               \
    {"Apply" name, "one step of " step " on ref variables", shape_optimizer},           \
    {"ResourceApply" name, "one step of " step, shape_optimizer}
#define SPARSE(name, step)                                                              \
    {"SparseApply" name, "one step of " step " on rows of ref variables", shape_optimizer}, \
    {"ResourceSparseApply" name, "one step of " step " on rows", shape_optimizer}

static const struct op_def rows[] = {
    DENSE("GradientDescent", "gradient descent"),
    DENSE("ProximalGradientDescent", "FOBOS: gradient descent with l1 and l2"),
    DENSE("Momentum", "momentum"),
    {"ResourceApplyKerasMomentum", "one step of momentum with the rate inside the accumulator",
     shape_optimizer},
    DENSE("Adagrad", "Adagrad"),
    DENSE("AdagradV2", "Adagrad with epsilon"),
    DENSE("AdagradDA", "Adagrad with dual averaging"),
    DENSE("ProximalAdagrad", "Adagrad with l1 and l2"),
    DENSE("Adadelta", "Adadelta"),
    DENSE("RMSProp", "RMSProp"),
    DENSE("CenteredRMSProp", "RMSProp by the variance"),
    DENSE("Adam", "Adam"),
    {"ResourceApplyAdamWithAmsgrad", "one step of Adam with the greatest second moment so far",
     shape_optimizer},
    DENSE("AdaMax", "AdaMax"),
    DENSE("Ftrl", "FTRL-Proximal"),
    DENSE("FtrlV2", "FTRL-Proximal with l2 shrinkage"),
    DENSE("AddSign", "AddSign"),
    DENSE("PowerSign", "PowerSign"),
    SPARSE("ProximalGradientDescent", "FOBOS: gradient descent with l1 and l2"),
    SPARSE("Momentum", "momentum"),
    {"ResourceSparseApplyKerasMomentum",
     "one step of momentum with the rate inside the accumulator, on rows", shape_optimizer},
    SPARSE("Adagrad", "Adagrad"),
    SPARSE("AdagradV2", "Adagrad with epsilon"),
    SPARSE("AdagradDA", "Adagrad with dual averaging"),
    SPARSE("ProximalAdagrad", "Adagrad with l1 and l2"),
    SPARSE("Adadelta", "Adadelta"),
    SPARSE("RMSProp", "RMSProp"),
    SPARSE("CenteredRMSProp", "RMSProp by the variance"),
    SPARSE("Ftrl", "FTRL-Proximal"),
    SPARSE("FtrlV2", "FTRL-Proximal with l2 shrinkage"),
};
// clang-format on

const struct op_def_list training_ops = {rows, ARRAY_LEN(rows)};
