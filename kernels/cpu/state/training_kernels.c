/* CPU kernels of the optimizers: Apply* and SparseApply* on reference variables, ResourceApply* and
 * ResourceSparseApply* on handles.
 *
 * One engine runs all of them. An optimizer is a row with its slots, scalars and rule; the names of
 * the op's arguments tell which input is which. A step locks its variables in the order of their
 * addresses, checks everything, and only then writes. It writes in place when a variable alone
 * holds its buffer. Otherwise it writes into a new buffer in the same pass (dense), or into a copy
 * (sparse). */
#include "kernels/cpu/state/training_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"
#include "kernels/support/half_blocks.h"

#include <stdlib.h>

extern const struct kernel_list training_kernels;

/* ---- the optimizers ---- */

enum scalar_check {
    ANY_SCALAR,
    ONE_ELEMENT,
    POSITIVE,
    POSITIVE_SPARSE,
    NOT_NEGATIVE,
    NOT_NEGATIVE_SPARSE,
    NOT_POSITIVE_SPARSE
};

struct train_scalar {
    const char *name, *label; /* the argument's name, and what messages call it (NULL: the name) */
    enum scalar_check check;
};

struct optimizer {
    enum train_rule rule, sparse_rule;
    const char *slots[TRAIN_MAX_SLOTS];
    struct train_scalar scalars[TRAIN_MAX_SCALARS];
    const char *flag; /* the attr's name */
    double cost_ns;   /* of one element */
};

// clang-format off
#define L1(check) {"l1", "l1 regularization strength", check}
#define L2(check) {"l2", "l2 regularization strength", check}
#define SAME_RULE(which) .rule = (which), .sparse_rule = (which)

static const struct optimizer gradient_descent = {
    SAME_RULE(RULE_GRADIENT_DESCENT), .slots = {"var"}, .scalars = {{"alpha"}}, .cost_ns = 0.4};
static const struct optimizer proximal_gradient_descent = {
    SAME_RULE(RULE_PROXIMAL_GRADIENT_DESCENT), .slots = {"var"},
        .scalars = {{"alpha"}, L1(ANY_SCALAR), L2(ANY_SCALAR)}, .cost_ns = 0.6};
static const struct optimizer momentum = {
    SAME_RULE(RULE_MOMENTUM), .slots = {"var", "accum"}, .scalars = {{"lr"}, {"momentum"}},
        .flag = "use_nesterov", .cost_ns = 0.6};
static const struct optimizer keras_momentum = {
    SAME_RULE(RULE_KERAS_MOMENTUM), .slots = {"var", "accum"}, .scalars = {{"lr"}, {"momentum"}},
        .flag = "use_nesterov", .cost_ns = 0.6};
static const struct optimizer adagrad = {
    SAME_RULE(RULE_ADAGRAD), .slots = {"var", "accum"}, .scalars = {{"lr"}}, .flag = "update_slots",
        .cost_ns = 1};
static const struct optimizer adagrad_v2 = {
    SAME_RULE(RULE_ADAGRAD_V2), .slots = {"var", "accum"}, .scalars = {{"lr"}, {"epsilon"}},
        .flag = "update_slots", .cost_ns = 1};
static const struct optimizer adagrad_da = {
    .rule = RULE_ADAGRAD_DA, .sparse_rule = RULE_ADAGRAD_DA_SPARSE,
        .slots = {"var", "gradient_accumulator", "gradient_squared_accumulator"},
    .scalars = {{"lr"}, L1(ANY_SCALAR), L2(ANY_SCALAR)}, .cost_ns = 1.2};
static const struct optimizer proximal_adagrad = {
    SAME_RULE(RULE_PROXIMAL_ADAGRAD), .slots = {"var", "accum"},
        .scalars = {{"lr", NULL, POSITIVE}, L1(NOT_NEGATIVE), L2(NOT_NEGATIVE)}, .cost_ns = 1.2};
static const struct optimizer adadelta = {
    SAME_RULE(RULE_ADADELTA), .slots = {"var", "accum", "accum_update"},
        .scalars = {{"lr"}, {"rho"}, {"epsilon"}}, .cost_ns = 1.5};
static const struct optimizer rmsprop = {
    SAME_RULE(RULE_RMSPROP), .slots = {"var", "ms", "mom"},
        .scalars = {{"lr"}, {"rho"}, {"momentum"}, {"epsilon"}}, .cost_ns = 1.2};
static const struct optimizer centered_rmsprop = {
    SAME_RULE(RULE_CENTERED_RMSPROP), .slots = {"var", "mg", "ms", "mom"},
        .scalars = {{"lr"}, {"rho"}, {"momentum"}, {"epsilon"}}, .cost_ns = 1.5};
static const struct optimizer adam = {
    SAME_RULE(RULE_ADAM), .slots = {"var", "m", "v"},
    .scalars = {{"beta1_power"}, {"beta2_power"}, {"lr"}, {"beta1"}, {"beta2"}, {"epsilon"}},
        .flag = "use_nesterov", .cost_ns = 1.2};
static const struct optimizer adam_amsgrad = {
    SAME_RULE(RULE_ADAM_AMSGRAD), .slots = {"var", "m", "v", "vhat"},
    .scalars = {{"beta1_power"}, {"beta2_power"}, {"lr"}, {"beta1"}, {"beta2"}, {"epsilon"}},
        .cost_ns = 1.5};
static const struct optimizer adamax = {
    SAME_RULE(RULE_ADAMAX), .slots = {"var", "m", "v"},
        .scalars = {{"beta1_power"}, {"lr"}, {"beta1"}, {"beta2"}, {"epsilon"}}, .cost_ns = 1.2};
static const struct optimizer ftrl = {
    SAME_RULE(RULE_FTRL), .slots = {"var", "accum", "linear"},
    .scalars = {{"lr", NULL, POSITIVE_SPARSE}, L1(NOT_NEGATIVE_SPARSE), L2(NOT_NEGATIVE_SPARSE),
        {"lr_power", NULL, NOT_POSITIVE_SPARSE}},
    .flag = "multiply_linear_by_lr", .cost_ns = 2};
static const struct optimizer ftrl_v2 = {
    SAME_RULE(RULE_FTRL_V2), .slots = {"var", "accum", "linear"},
    .scalars = {{"lr", NULL, POSITIVE_SPARSE}, L1(NOT_NEGATIVE_SPARSE), L2(NOT_NEGATIVE_SPARSE),
                {"l2_shrinkage", "l2 shrinkage regularization strength", NOT_NEGATIVE_SPARSE},
                    {"lr_power", NULL, NOT_POSITIVE_SPARSE}},
    .flag = "multiply_linear_by_lr", .cost_ns = 2};
static const struct optimizer add_sign = {
    SAME_RULE(RULE_ADD_SIGN), .slots = {"var", "m"},
        .scalars = {{"lr"}, {"alpha"}, {"sign_decay", NULL, ONE_ELEMENT}, {"beta"}},
        .cost_ns = 0.8};
static const struct optimizer power_sign = {
    SAME_RULE(RULE_POWER_SIGN), .slots = {"var", "m"},
        .scalars = {{"lr"}, {"logbase"}, {"sign_decay", NULL, ONE_ELEMENT}, {"beta"}},
        .cost_ns = 0.8};
// clang-format on

/* ---- a node's layout ---- */

enum { NO_INPUT = -1 };

struct train_state {
    const struct optimizer *optimizer;
    train_fn *fn;
    enum dtype dtype;
    int n_slots, n_scalars;
    int8_t slot_inputs[TRAIN_MAX_SLOTS], scalar_inputs[TRAIN_MAX_SCALARS];
    int8_t grad_input, indices_input, step_input; /* NO_INPUT where the op has no such input */
    const char *grad_name;
    bool is_ref, flag;
};

static int8_t input_named(const struct node *node, const char *name) {
    for (int i = 0; i < node->op->n_inputs; i++) {
        if (strcmp(node->op->inputs[i].name, name) == 0)
            return (int8_t)i;
    }
    return NO_INPUT;
}

static train_fn *rule_find(enum train_rule rule, enum dtype dtype) {
    switch (dtype) {
    case DT_HALF:
        return train_rules_half[rule];
    case DT_BFLOAT16:
        return train_rules_bfloat16[rule];
    case DT_FLOAT:
        return train_rules_float[rule];
    case DT_DOUBLE:
        return train_rules_double[rule];
    case DT_COMPLEX64:
        return train_rules_complex64[rule];
    case DT_COMPLEX128:
        return train_rules_complex128[rule];
    default:
        return NULL;
    }
}

static struct status *train_init(struct kernel_init *init) {
    const struct node *node = init->node;
    const struct optimizer *optimizer = init->arg;
    struct train_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->optimizer = optimizer;
    TRY(node_get_type(node, "T", &state->dtype));
    if (optimizer->flag && node_attr(node, optimizer->flag))
        TRY(node_get_b(node, optimizer->flag, &state->flag));
    for (; state->n_slots < TRAIN_MAX_SLOTS && optimizer->slots[state->n_slots]; state->n_slots++)
        state->slot_inputs[state->n_slots] = input_named(node, optimizer->slots[state->n_slots]);
    for (; state->n_scalars < TRAIN_MAX_SCALARS && optimizer->scalars[state->n_scalars].name;
         state->n_scalars++)
        state->scalar_inputs[state->n_scalars] =
            input_named(node, optimizer->scalars[state->n_scalars].name);
    state->grad_name = input_named(node, "grad") == NO_INPUT ? "delta" : "grad";
    state->grad_input = input_named(node, state->grad_name);
    state->indices_input = input_named(node, "indices");
    state->step_input = input_named(node, "global_step");
    state->is_ref = node->op->inputs[state->slot_inputs[0]].is_ref;
    state->fn = rule_find(
        state->indices_input == NO_INPUT ? optimizer->rule : optimizer->sparse_rule, state->dtype);
    CHECK(state->fn); /* the rows list only dtypes that have a function */
    return NULL;
}

/* ---- checks ---- */

static int sign_of(enum dtype dtype, const struct tensor *scalar) {
    CHECK(!tensor_is_on_device(scalar));
    double v = 0; /* a NaN has no sign */
    if (dtype == DT_DOUBLE)
        v = *(const double *)tensor_cdata(scalar);
    else if (dtype == DT_FLOAT)
        v = (double)*(const float *)tensor_cdata(scalar);
    else if (dtype_is_narrow_float(dtype)) {
        uint16_t bits = *(const uint16_t *)tensor_cdata(scalar);
        bool is_nan = (bits & 0x7fff) > (dtype == DT_HALF ? 0x7c00 : 0x7f80);
        v = is_nan || (bits & 0x7fff) == 0 ? 0 : bits & 0x8000 ? -1 : 1;
    }
    return (v > 0) - (v < 0);
}

static struct status *check_scalar(const struct train_state *state, const struct train_scalar *row,
                                   const struct tensor *scalar) {
    const char *label = row->label ? row->label : row->name;
    enum scalar_check check = row->check;
    bool is_sparse = state->indices_input != NO_INPUT;
    bool is_scalar = check == ONE_ELEMENT ? scalar->n_elements == 1 : scalar->rank == 0;
    if (check == POSITIVE_SPARSE || check == NOT_NEGATIVE_SPARSE || check == NOT_POSITIVE_SPARSE)
        check = !is_sparse ? ANY_SCALAR : check;
    if (check == ANY_SCALAR || check == ONE_ELEMENT)
        return is_scalar
                   ? NULL
                   : status_invalid("%s is not a scalar: %s", label, TENSOR_SHAPE_TEXT(scalar));
    if (is_scalar && tensor_is_on_device(scalar)) /* its value is not known, as in TensorFlow */
        return NULL;
    int sign = is_scalar ? sign_of(state->dtype, scalar) : 0;
    if (check == POSITIVE && (!is_scalar || sign <= 0))
        return status_invalid("%s is not a positive scalar: %s", label, TENSOR_SHAPE_TEXT(scalar));
    if (check == POSITIVE_SPARSE && (!is_scalar || sign < 0 || (sign == 0 && !state->flag)))
        return status_invalid(
            "%s is not a positive scalar (or zero if multiply_linear_by_lr is set): %s", label,
            TENSOR_SHAPE_TEXT(scalar));
    if ((check == NOT_NEGATIVE || check == NOT_NEGATIVE_SPARSE) && (!is_scalar || sign < 0))
        return status_invalid("%s is not a non-negative scalar: %s", label,
                              TENSOR_SHAPE_TEXT(scalar));
    if (check == NOT_POSITIVE_SPARSE && (!is_scalar || sign > 0))
        return status_invalid("%s is not a non-positive scalar: %s", label,
                              TENSOR_SHAPE_TEXT(scalar));
    return NULL;
}

static struct status *check_scalars(const struct kernel_ctx *ctx, const struct train_state *state) {
    for (int i = 0; i < state->n_scalars; i++)
        TRY(check_scalar(state, &state->optimizer->scalars[i],
                         &ctx->inputs[state->scalar_inputs[i]]));
    if (state->step_input != NO_INPUT && ctx->inputs[state->step_input].rank != 0)
        return status_invalid("global_step is not a scalar: %s",
                              TENSOR_SHAPE_TEXT(&ctx->inputs[state->step_input]));
    return NULL;
}

static struct status *check_sparse(const struct tensor *var, const struct tensor *grad,
                                   const struct tensor *indices) {
    if (var->rank < 1)
        return status_invalid("var must be at least 1 dimensional");
    if (indices->rank != 1)
        return status_invalid("indices must be one-dimensional");
    if (grad->rank != var->rank)
        return status_invalid("grad must have the same number of dimensions as var");
    if (tensor_dim(grad, 0) != indices->n_elements)
        return status_invalid("grad must be the same size as indices in the first dimension.");
    for (int i = 1; i < var->rank; i++) {
        if (tensor_dim(var, i) != tensor_dim(grad, i))
            return status_invalid("var and grad must match in dimension %d", i);
    }
    int64_t n_rows = tensor_dim(var, 0);
    for (int64_t i = 0; i < indices->n_elements && !tensor_is_on_device(indices); i++) {
        int64_t row = tensor_index_at(indices, i);
        if (unlikely(row < 0 || row >= n_rows))
            return status_invalid("Index %lld at offset %lld in indices is out of range",
                                  (long long)row, (long long)i);
    }
    return NULL;
}

/* Checks in TensorFlow's order: the variables, the scalars, the shapes. The caller holds all locks.
 */
static struct status *check_all(const struct kernel_ctx *ctx, const struct train_state *state,
                                struct variable *const *variables) {
    for (int k = 0; k < state->n_slots; k++)
        TRY(variable_check(variables[k], state->is_ref, state->dtype));
    TRY(check_scalars(ctx, state));
    const struct tensor *var = &variables[0]->value, *grad = &ctx->inputs[state->grad_input];
    for (int k = 1; k < state->n_slots; k++) {
        if (unlikely(!shape_equal(tensor_shape(var), tensor_shape(&variables[k]->value))))
            return status_invalid("var and %s do not have the same shape%s %s",
                                  state->optimizer->slots[k], TENSOR_SHAPE_TEXT(var),
                                  TENSOR_SHAPE_TEXT(&variables[k]->value));
    }
    if (state->indices_input != NO_INPUT)
        return check_sparse(var, grad, &ctx->inputs[state->indices_input]);
    if (unlikely(!shape_equal(tensor_shape(var), tensor_shape(grad))))
        return status_invalid("var and %s do not have the same shape%s %s", state->grad_name,
                              TENSOR_SHAPE_TEXT(var), TENSOR_SHAPE_TEXT(grad));
    return NULL;
}

/* ---- locks ---- */

/* The step's variables, each once, in the order of their addresses. Every step locks in this
 * order. */
struct train_locks {
    struct variable *sorted[TRAIN_MAX_SLOTS];
    int n;
};

static void locks_take(struct train_locks *locks, struct variable *const *variables, int n) {
    locks->n = 0;
    for (int k = 0; k < n; k++) {
        int at = locks->n;
        while (at > 0 && (uintptr_t)locks->sorted[at - 1] > (uintptr_t)variables[k])
            at--;
        if (at > 0 && locks->sorted[at - 1] == variables[k])
            continue;
        memmove(&locks->sorted[at + 1], &locks->sorted[at],
                (size_t)(locks->n - at) * sizeof(locks->sorted[0]));
        locks->sorted[at] = variables[k];
        locks->n++;
    }
    for (int i = 0; i < locks->n; i++)
        pthread_mutex_lock(&locks->sorted[i]->lock);
}

static void locks_release(struct train_locks *locks) {
    for (int i = locks->n - 1; i >= 0; i--)
        pthread_mutex_unlock(&locks->sorted[i]->lock);
}

/* ---- the step ---- */

struct train_job {
    struct train_run run;
    train_fn *fn;
    int n_slots;
    size_t size;
    const struct tensor *indices; /* set in sparse steps, which update rows of row_len elements */
    int64_t row_len;
};

static void train_dense(void *arg, int64_t begin, int64_t end) {
    const struct train_job *job = arg;
    job->fn(&job->run, begin, end);
}

/* Updates the rows one after the other, in columns [begin, end) of each. */
static void train_columns(const struct train_job *job, int64_t begin, int64_t end) {
    struct train_run run = job->run;
    for (int64_t i = 0; i < job->indices->n_elements; i++) {
        size_t row = (size_t)(tensor_index_at(job->indices, i) * job->row_len) * job->size;
        for (int k = 0; k < job->n_slots; k++) {
            run.out[k] = (char *)job->run.out[k] + row;
            run.in[k] = run.out[k];
        }
        run.grad = (const char *)job->run.grad + (size_t)(i * job->row_len) * job->size;
        job->fn(&run, begin, end);
    }
}

enum { COLUMN_BLOCK = 64, PARALLEL_ELEMENTS = 16 * 1024 };

static void train_blocks(void *arg, int64_t begin, int64_t end) {
    const struct train_job *job = arg;
    train_columns(job, begin * COLUMN_BLOCK, MIN(end * COLUMN_BLOCK, job->row_len));
}

static struct status *train_on_device(struct kernel_ctx *ctx, const struct train_state *state,
                                      const struct train_job *job, const struct tensor *var,
                                      int64_t n) {
    struct device_train train = {.rule = job->indices ? state->optimizer->sparse_rule
                                                      : state->optimizer->rule,
                                 .dtype = state->dtype,
                                 .n_slots = state->n_slots,
                                 .n_scalars = state->n_scalars,
                                 .run = job->run,
                                 .n = n};
    for (int i = 0; i < state->n_scalars; i++)
        train.scalars[i] = device_scalar_of(&ctx->inputs[state->scalar_inputs[i]]);
    if (job->indices) {
        train.indices = tensor_cdata(job->indices);
        train.index_dtype = (enum dtype)job->indices->dtype;
        train.n_indices = job->indices->n_elements;
        train.n_rows = tensor_dim(var, 0);
        train.row_len = job->row_len;
    }
    return n > 0 ? ctx->instance->engine->train(ctx, &train) : NULL;
}

static void train_run_all(struct kernel_ctx *ctx, struct train_job *job, int64_t n,
                          double cost_ns) {
    if (!job->indices) {
        if (ctx->pool && n >= PARALLEL_ELEMENTS)
            pool_parallel_for(ctx->pool, n, cost_ns, train_dense, job);
        else
            job->fn(&job->run, 0, n);
        return;
    }
    int64_t n_rows = job->indices->n_elements;
    if (n_rows == 0 || job->row_len == 0)
        return;
    if (ctx->pool && job->row_len >= 2 * COLUMN_BLOCK && n_rows >= PARALLEL_ELEMENTS / job->row_len)
        pool_parallel_for(ctx->pool, (job->row_len + COLUMN_BLOCK - 1) / COLUMN_BLOCK,
                          cost_ns * COLUMN_BLOCK * (double)n_rows, train_blocks, job);
    else
        train_columns(job, 0, job->row_len);
}

/* Chooses where slot k is written: in place, or to new memory in `made`, which becomes the
 * variable's value after the run. */
static struct status *slot_open(struct kernel_ctx *ctx, struct train_job *job, int k,
                                struct variable *variable, bool may_replace, struct tensor *made) {
    struct tensor *value = &variable->value;
    if (may_replace && !tensor_is_sole(value)) {
        TRY(kernel_new(ctx, (enum dtype)value->dtype, tensor_shape(value), made));
        job->run.in[k] = tensor_cdata(value);
        job->run.out[k] = tensor_data(made);
        return NULL;
    }
    TRY(variable_make_writable(ctx, variable));
    job->run.in[k] = job->run.out[k] = tensor_data(value);
    return NULL;
}

/* The caller holds all locks. Afterwards made[k] holds the replaced value of slot k. */
static struct status *train_locked(struct kernel_ctx *ctx, const struct train_state *state,
                                   struct variable *const *variables, bool has_doubles,
                                   struct tensor *made) {
    TRY(check_all(ctx, state, variables));
    const struct tensor *grad = &ctx->inputs[state->grad_input];
    bool is_sparse = state->indices_input != NO_INPUT;
    struct train_job job = {
        .fn = state->fn, .n_slots = state->n_slots, .size = dtype_size(state->dtype)};
    for (int k = 0; k < state->n_slots; k++)
        TRY(slot_open(ctx, &job, k, variables[k], !is_sparse && !has_doubles, &made[k]));
    for (int i = 0; i < state->n_scalars && !kernel_is_for_device(ctx); i++)
        job.run.scalars[i] = tensor_cdata(&ctx->inputs[state->scalar_inputs[i]]);
    if (state->step_input != NO_INPUT)
        job.run.global_step = *(const int64_t *)tensor_cdata(&ctx->inputs[state->step_input]);
    job.run.grad = tensor_cdata(grad);
    job.run.flag = state->flag;
    if (is_sparse) {
        int64_t n_rows = tensor_dim(&variables[0]->value, 0);
        job.indices = &ctx->inputs[state->indices_input];
        job.row_len = n_rows > 0 ? variables[0]->value.n_elements / n_rows : 0;
    }
    if (kernel_is_for_device(ctx))
        TRY(train_on_device(ctx, state, &job, &variables[0]->value, grad->n_elements));
    else
        train_run_all(ctx, &job, grad->n_elements, state->optimizer->cost_ns);
    for (int k = 0; k < state->n_slots; k++) {
        if (made[k].storage == TENSOR_NONE)
            continue;
        struct tensor old = variables[k]->value;
        variables[k]->value = made[k];
        made[k] = old;
    }
    return NULL;
}

/* Words a failed lookup as the optimizers report it. */
static COLD struct status *no_variable(struct status *why) {
    if (status_code(why) != STATUS_NOT_FOUND)
        return why;
    struct status *st =
        status_failed_precondition("Invalid variable reference. %s", status_message(why));
    status_unref(why);
    return st;
}

static enum kernel_result train(struct kernel_ctx *ctx) {
    const struct train_state *state = ctx->instance->state;
    struct variable *variables[TRAIN_MAX_SLOTS] = {NULL};
    struct tensor made[TRAIN_MAX_SLOTS] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    struct status *st = NULL;
    for (int k = 0; k < state->n_slots && !st; k++)
        st = variable_of_input(ctx, state->slot_inputs[k], &variables[k]);
    if (unlikely(st != NULL))
        st = no_variable(st);
    if (!st)
        st = device_input(ctx, state->grad_input);
    if (!st && state->indices_input != NO_INPUT)
        st = device_input(ctx, state->indices_input);
    if (!st) {
        struct train_locks locks;
        locks_take(&locks, variables, state->n_slots);
        st = train_locked(ctx, state, variables, locks.n < state->n_slots, made);
        locks_release(&locks);
    }
    for (int k = 0; k < state->n_slots; k++) {
        tensor_clear(&made[k]);
        variable_unref(variables[k]);
    }
    KERNEL_TRY(ctx, st);
    if (state->is_ref)
        kernel_pass(ctx, state->slot_inputs[0], 0);
    return KERNEL_DONE;
}

/* ---- rows ---- */

#define TYPES_ALL (DTYPES_REAL_FLOAT | DTYPES_COMPLEX)
#define TYPES_REAL_FLOAT DTYPES_REAL_FLOAT
#define TYPES_WIDE (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
#define TYPES_NO_BFLOAT16 (TYPES_ALL & ~DTYPE_BIT(DT_BFLOAT16))

// clang-format off
#define DENSE(op_name, types, optimizer)                                                           \
    {.op = (op_name), {{"T", (types)}}, .compute = train, .init = train_init, .arg = &(optimizer), \
        .flags = KERNEL_STATEFUL}
#define SPARSE(op_name, types, optimizer)                                             \
    {.op = (op_name), {{"T", (types)}, {"Tindices", DTYPES_INDEX}}, .compute = train, \
        .init = train_init, .arg = &(optimizer), .flags = KERNEL_STATEFUL}
#define DENSE_BOTH(name, types, optimizer) DENSE("Apply" name, types, optimizer), \
    DENSE("ResourceApply" name, types, optimizer)
#define SPARSE_BOTH(name, types, optimizer) SPARSE("SparseApply" name, types, optimizer), \
    SPARSE("ResourceSparseApply" name, types, optimizer)

static const struct kernel_def rows[] = {
    DENSE_BOTH("GradientDescent", TYPES_ALL, gradient_descent),
    DENSE_BOTH("ProximalGradientDescent", TYPES_WIDE, proximal_gradient_descent),
    DENSE_BOTH("Momentum", TYPES_ALL, momentum),
    DENSE("ResourceApplyKerasMomentum", TYPES_ALL, keras_momentum),
    DENSE_BOTH("Adagrad", TYPES_ALL, adagrad),
    DENSE_BOTH("AdagradV2", TYPES_ALL, adagrad_v2),
    DENSE_BOTH("AdagradDA", TYPES_WIDE, adagrad_da),
    DENSE_BOTH("ProximalAdagrad", TYPES_WIDE | DTYPE_BIT(DT_HALF), proximal_adagrad),
    DENSE_BOTH("Adadelta", TYPES_ALL, adadelta),
    DENSE_BOTH("RMSProp", TYPES_ALL, rmsprop),
    DENSE_BOTH("CenteredRMSProp", TYPES_ALL, centered_rmsprop),
    DENSE_BOTH("Adam", TYPES_ALL, adam),
    DENSE("ResourceApplyAdamWithAmsgrad", TYPES_REAL_FLOAT, adam_amsgrad),
    DENSE_BOTH("AdaMax", TYPES_WIDE | DTYPE_BIT(DT_HALF), adamax),
    DENSE_BOTH("Ftrl", TYPES_REAL_FLOAT, ftrl),
    DENSE_BOTH("FtrlV2", TYPES_REAL_FLOAT, ftrl_v2),
    DENSE_BOTH("AddSign", TYPES_REAL_FLOAT, add_sign),
    DENSE_BOTH("PowerSign", TYPES_REAL_FLOAT, power_sign),
    SPARSE_BOTH("ProximalGradientDescent", TYPES_WIDE, proximal_gradient_descent),
    SPARSE_BOTH("Momentum", TYPES_ALL, momentum),
    SPARSE("ResourceSparseApplyKerasMomentum", TYPES_ALL, keras_momentum),
    SPARSE_BOTH("Adagrad", TYPES_ALL, adagrad),
    SPARSE_BOTH("AdagradV2", TYPES_ALL, adagrad_v2),
    SPARSE_BOTH("AdagradDA", TYPES_WIDE, adagrad_da),
    SPARSE_BOTH("ProximalAdagrad", TYPES_WIDE | DTYPE_BIT(DT_HALF), proximal_adagrad),
    SPARSE_BOTH("Adadelta", TYPES_ALL, adadelta),
    SPARSE_BOTH("RMSProp", TYPES_NO_BFLOAT16, rmsprop),
    SPARSE_BOTH("CenteredRMSProp", TYPES_NO_BFLOAT16, centered_rmsprop),
    SPARSE_BOTH("Ftrl", TYPES_REAL_FLOAT, ftrl),
    SPARSE_BOTH("FtrlV2", TYPES_REAL_FLOAT, ftrl_v2),
};
// clang-format on

const struct kernel_list training_kernels = {rows, ARRAY_LEN(rows)};
