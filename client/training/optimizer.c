/* Optimizers: a row each says the slots, and the inputs of the operations that make a step. */
#include "client/training/optimizer.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/training/builder_internal.h"

enum { MAX_SLOTS = 3, N_PARAMETERS = 3 };

/* The inputs of an operation, a letter each:
 *   v variable   0 1 2 slots   l rate   a b c parameters   g gradient   i numbers of its rows
 *   p q the powers of Adam's betas */
struct optimizer_kind {
    const char *name; /* of the slots */
    int n_slots;
    int first_fill; /* slots that begin with `fill`, the others with 0 */
    double fill;
    const char *dense, *dense_inputs;
    const char *sparse, *sparse_inputs; /* NULL: see apply_rows */
};

enum { DESCENT, MOMENTUM, ADAGRAD, ADADELTA, RMSPROP, CENTERED, ADAM };

// clang-format off
static const struct optimizer_kind kinds[] = {
    [DESCENT] = {"GradientDescent", 0, 0, 0, "ResourceApplyGradientDescent", "vlg", NULL, NULL},
    [MOMENTUM] = {"Momentum", 1, 0, 0, "ResourceApplyMomentum", "v0lga",
                  "ResourceSparseApplyMomentum", "v0lgia"},
    [ADAGRAD] = {"Adagrad", 1, 1, 0, "ResourceApplyAdagrad", "v0lg",
                 "ResourceSparseApplyAdagrad", "v0lgi"},
    [ADADELTA] = {"Adadelta", 2, 0, 0, "ResourceApplyAdadelta", "v01labg",
                  "ResourceSparseApplyAdadelta", "v01labgi"},
    [RMSPROP] = {"RMSProp", 2, 1, 1, "ResourceApplyRMSProp", "v01labcg",
                 "ResourceSparseApplyRMSProp", "v01labcgi"},
    [CENTERED] = {"RMSProp", 3, 1, 1, "ResourceApplyCenteredRMSProp", "v102labcg",
                  "ResourceSparseApplyCenteredRMSProp", "v102labcgi"},
    [ADAM] = {"Adam", 2, 0, 0, "ResourceApplyAdam", "v01pqlabcg", NULL, NULL},
};
// clang-format on

struct slots {
    const MR_Variable *variable;
    MR_Variable *slot[MAX_SLOTS];
};

struct MR_Optimizer {
    MR_Builder *builder;
    const struct optimizer_kind *kind;
    TF_Output rate;
    double parameters[N_PARAMETERS];
    double fill;
    bool use_nesterov;
    MR_Variable *powers[2]; /* Adam's */
    struct slots *slots;
    int n_slots, slots_capacity;
};

/* ---- new ones ---- */

static MR_Optimizer *optimizer_new(MR_Builder *b, const char *function, int kind, TF_Output rate,
                                   double p0, double p1, double p2) {
    const char *outer;
    if (!builder_enter(b, function, &outer))
        return NULL;
    TF_Status *status = TF_NewStatus();
    if (builder_check_output(b, "rate", rate) &&
        TF_GraphGetTensorNumDims(b->graph, rate, status) > 0)
        builder_fail(b, status_invalid("rate '%s' is no scalar", TF_OperationName(rate.oper)));
    TF_DeleteStatus(status);
    MR_Optimizer *o = NULL;
    if (builder_is_ok(b)) {
        o = arena_new(&b->arena, MR_Optimizer);
        *o = (MR_Optimizer){
            .builder = b,
            .kind = &kinds[kind],
            .rate = rate,
            .parameters = {p0, p1, p2},
            .fill = kinds[kind].fill,
        };
    }
    builder_leave(b, outer);
    return o;
}

MR_Optimizer *MR_NewGradientDescent(MR_Builder *builder, TF_Output rate) {
    return optimizer_new(builder, __func__, DESCENT, rate, 0, 0, 0);
}

MR_Optimizer *MR_NewMomentum(MR_Builder *builder, TF_Output rate, double momentum,
                             unsigned char use_nesterov) {
    MR_Optimizer *o = optimizer_new(builder, __func__, MOMENTUM, rate, momentum, 0, 0);
    if (o)
        o->use_nesterov = use_nesterov != 0;
    return o;
}

MR_Optimizer *MR_NewAdagrad(MR_Builder *builder, TF_Output rate, double initial) {
    MR_Optimizer *o = optimizer_new(builder, __func__, ADAGRAD, rate, 0, 0, 0);
    if (o && !(initial > 0))
        builder_fail(builder, status_invalid("%s: initial is %g, not above 0", __func__, initial));
    if (o)
        o->fill = initial;
    return o;
}

MR_Optimizer *MR_NewAdadelta(MR_Builder *builder, TF_Output rate, double rho, double epsilon) {
    return optimizer_new(builder, __func__, ADADELTA, rate, rho, epsilon, 0);
}

MR_Optimizer *MR_NewRmsProp(MR_Builder *builder, TF_Output rate, double decay, double momentum,
                            double epsilon, unsigned char is_centered) {
    return optimizer_new(builder, __func__, is_centered ? CENTERED : RMSPROP, rate, decay, momentum,
                         epsilon);
}

MR_Optimizer *MR_NewAdam(MR_Builder *builder, TF_Output rate, double beta1, double beta2,
                         double epsilon) {
    return optimizer_new(builder, __func__, ADAM, rate, beta1, beta2, epsilon);
}

/* ---- slots ---- */

MR_Variable *MR_Slot(const MR_Optimizer *optimizer, const MR_Variable *variable, int slot) {
    for (int i = 0; optimizer && i < optimizer->n_slots; i++)
        if (optimizer->slots[i].variable == variable && slot >= 0 &&
            slot < optimizer->kind->n_slots)
            return optimizer->slots[i].slot[slot];
    return NULL;
}

/* "VARIABLE/Adam", "VARIABLE/Adam_1" */
static MR_Variable *add_slot(MR_Optimizer *o, const MR_Variable *v, int slot) {
    MR_Builder *b = o->builder;
    const char *suffix = slot == 0 ? "" : arena_printf(&b->arena, "_%d", slot);
    const char *name = arena_printf(&b->arena, "%s/%s%s", v->name, o->kind->name, suffix);
    double fill = slot < o->kind->first_fill ? o->fill : 0;
    for (int i = 1; MR_FindVariable(b, name); i++) /* of another optimizer of this kind */
        name = arena_printf(&b->arena, "%s/%s_%d", v->name, o->kind->name, slot + i);
    const char *device = builder_swap_device(b, v->device), *prefix = b->prefix;
    b->prefix = "";
    MR_Variable *added = variable_add(b, name, v->dtype, v->dims, v->rank, MR_Fill(fill));
    b->prefix = prefix;
    builder_swap_device(b, device);
    if (added)
        added->is_trainable = false;
    if (added && v->whole) {
        added->whole = arena_printf(&b->arena, "%s%s", v->whole, name + strlen(v->name));
        added->n_whole_rows = v->n_whole_rows;
        added->first_row = v->first_row;
        added->part = v->part;
        added->n_parts = v->n_parts;
    }
    return added;
}

static void make_slots(MR_Optimizer *o, const MR_Variable *v) {
    MR_Builder *b = o->builder;
    for (int i = 0; i < o->n_slots; i++)
        if (o->slots[i].variable == v)
            return;
    struct slots made = {.variable = v};
    for (int i = 0; i < o->kind->n_slots; i++)
        made.slot[i] = add_slot(o, v, i);
    if (o->n_slots == o->slots_capacity) {
        o->slots_capacity = MAX(8, 2 * o->slots_capacity);
        struct slots *more = arena_array(&b->arena, struct slots, o->slots_capacity);
        if (o->n_slots > 0)
            memcpy(more, o->slots, (size_t)o->n_slots * sizeof *more);
        o->slots = more;
    }
    o->slots[o->n_slots++] = made;
}

/* Adam's powers of beta1 and beta2, below the builder's prefix, on the device of the
 * variable whose name sorts first. They are float32 for all variables, as TensorFlow's. */
static void make_powers(MR_Optimizer *o, const MR_Gradient *gradients, int n) {
    MR_Builder *b = o->builder;
    const MR_Variable *first = NULL;
    for (int i = 0; i < n; i++) {
        const MR_Variable *v = gradients[i].values.oper ? gradients[i].variable : NULL;
        if (v && (!first || strcmp(v->name, first->name) < 0))
            first = v;
    }
    if (o->kind != &kinds[ADAM] || o->powers[0] || !first)
        return;
    const char *device = builder_swap_device(b, first->device);
    for (int i = 0; i < 2; i++) {
        const char *name = arena_printf(&b->arena, "beta%d_power", i + 1);
        for (int k = 1; MR_FindVariable(b, arena_printf(&b->arena, "%s%s", b->prefix, name)); k++)
            name = arena_printf(&b->arena, "beta%d_power_%d", i + 1, k);
        o->powers[i] = variable_add(b, name, TF_FLOAT, NULL, 0, MR_Fill(o->parameters[i]));
        MR_SetTrainable(o->powers[i], 0);
    }
    builder_swap_device(b, device);
}

/* ---- one step ---- */

/* The input that a letter of a row means, for the variable of a gradient. */
static TF_Output input_of(MR_Optimizer *o, const MR_Gradient *gradient, char letter) {
    MR_Builder *b = o->builder;
    const MR_Variable *v = gradient->variable;
    switch (letter) {
    case 'v':
        return v->handle;
    case 'l':
        return MR_Cast(b, o->rate, v->dtype);
    case 'g':
        return gradient->values;
    case 'i':
        return gradient->indices;
    case 'p':
    case 'q':
        return MR_Cast(b, MR_Read(b, o->powers[letter - 'p']), v->dtype);
    case 'a':
    case 'b':
    case 'c':
        return MR_Scalar(b, v->dtype, o->parameters[letter - 'a']);
    default:
        return MR_VariableHandle(MR_Slot(o, v, letter - '0'));
    }
}

static TF_Operation *apply_row(MR_Optimizer *o, const MR_Gradient *gradient, const char *op,
                               const char *letters) {
    TF_Output inputs[16];
    int n = 0;
    for (const char *c = letters; *c; c++)
        inputs[n++] = input_of(o, gradient, *c);
    return MR_Op(o->builder, op, o->use_nesterov ? "use_nesterov=true" : NULL, inputs, n).oper;
}

/* Adds up the rows of equal numbers. */
static MR_Gradient without_repeats(MR_Builder *b, const MR_Gradient *gradient) {
    MR_Gradient once = *gradient;
    once.indices = MR_Unary(b, "Unique", gradient->indices);
    TF_Output places = {once.indices.oper, 1};
    once.values = MR_Op(b, "UnsortedSegmentSum", NULL,
                        MR_INPUTS(gradient->values, places, MR_Unary(b, "Size", once.indices)));
    return once;
}

static TF_Operation *scatter_add(MR_Builder *b, const MR_Variable *v, TF_Output indices,
                                 TF_Output values) {
    return MR_Op(b, "ResourceScatterAdd", NULL, MR_INPUTS(v->handle, indices, values)).oper;
}

/* slot = slot · beta, and then the rows of values · (1 - beta) are added. Returns the slot's new
 * value. */
static TF_Output decay_rows(MR_Builder *b, const MR_Variable *slot, TF_Output beta,
                            TF_Output indices, TF_Output values) {
    TF_Output one = MR_Scalar(b, slot->dtype, 1);
    TF_Output added = MR_Binary(b, "Mul", values, MR_Binary(b, "Sub", one, beta));
    TF_Operation *decayed = MR_Assign(b, slot, MR_Binary(b, "Mul", MR_Read(b, slot), beta));
    TF_Operation **before = b->controls;
    int n_before = b->n_controls;
    b->controls = &decayed;
    b->n_controls = decayed ? 1 : 0;
    TF_Operation *scattered = scatter_add(b, slot, indices, added);
    b->controls = &scattered;
    b->n_controls = scattered ? 1 : 0;
    TF_Output value = MR_Read(b, slot);
    b->controls = before;
    b->n_controls = n_before;
    return value;
}

/* Adam by rows: all rows of the moments decay, so all rows of the variable move. */
static TF_Operation *apply_adam_rows(MR_Optimizer *o, const MR_Gradient *gradient) {
    MR_Builder *b = o->builder;
    const MR_Variable *v = gradient->variable;
    TF_Output one = MR_Scalar(b, v->dtype, 1);
    TF_Output power1 = input_of(o, gradient, 'p'), power2 = input_of(o, gradient, 'q');
    TF_Output root = MR_Unary(b, "Sqrt", MR_Binary(b, "Sub", one, power2));
    TF_Output rate = MR_Binary(b, "RealDiv", MR_Binary(b, "Mul", input_of(o, gradient, 'l'), root),
                               MR_Binary(b, "Sub", one, power1));
    TF_Output m = decay_rows(b, MR_Slot(o, v, 0), input_of(o, gradient, 'a'), gradient->indices,
                             gradient->values);
    TF_Output square = MR_Binary(b, "Mul", gradient->values, gradient->values);
    TF_Output s =
        decay_rows(b, MR_Slot(o, v, 1), input_of(o, gradient, 'b'), gradient->indices, square);
    TF_Output divisor = MR_Binary(b, "AddV2", MR_Unary(b, "Sqrt", s), input_of(o, gradient, 'c'));
    TF_Output change = MR_Binary(b, "RealDiv", MR_Binary(b, "Mul", rate, m), divisor);
    return MR_Binary(b, "AssignSubVariableOp", v->handle, change).oper;
}

static TF_Operation *apply_rows(MR_Optimizer *o, const MR_Gradient *gradient) {
    MR_Builder *b = o->builder;
    MR_Gradient once = without_repeats(b, gradient);
    if (o->kind->sparse)
        return apply_row(o, &once, o->kind->sparse, o->kind->sparse_inputs);
    if (o->kind == &kinds[ADAM])
        return apply_adam_rows(o, &once);
    TF_Output change =
        MR_Binary(b, "Mul", MR_Unary(b, "Neg", once.values), input_of(o, gradient, 'l'));
    return scatter_add(b, once.variable, once.indices, change);
}

/* After all updates: the powers of Adam's betas, then the step. */
static TF_Operation *finish_step(MR_Optimizer *o, TF_Operation *const *updates, int n,
                                 MR_Variable *global_step) {
    MR_Builder *b = o->builder;
    TF_Operation *all[3] = {MR_Group(b, NULL, updates, n), NULL, NULL};
    TF_Operation **before = b->controls;
    int n_before = b->n_controls;
    b->controls = all;
    b->n_controls = all[0] ? 1 : 0;
    for (int i = 0; i < 2 && o->powers[0]; i++) {
        const char *device = builder_swap_device(b, o->powers[i]->device);
        TF_Output beta = MR_Scalar(b, o->powers[i]->dtype, o->parameters[i]);
        TF_Output power = MR_Binary(b, "Mul", MR_Read(b, o->powers[i]), beta);
        all[i + 1] = MR_Assign(b, o->powers[i], power);
        builder_swap_device(b, device);
    }
    if (o->powers[0])
        all[0] = MR_Group(b, NULL, all, 3);
    if (global_step && variable_check(b, global_step)) {
        const char *device = builder_swap_device(b, global_step->device);
        all[0] = MR_Binary(b, "AssignAddVariableOp", global_step->handle,
                           MR_Scalar(b, global_step->dtype, 1))
                     .oper;
        builder_swap_device(b, device);
    }
    b->controls = before;
    b->n_controls = n_before;
    return builder_is_ok(b) ? all[0] : NULL;
}

static TF_Operation *apply_all(MR_Optimizer *o, const MR_Gradient *gradients, int n,
                               MR_Variable *global_step) {
    MR_Builder *b = o->builder;
    TF_Operation **updates = arena_array(&b->arena, TF_Operation *, n + 1);
    int n_updates = 0;
    make_powers(o, gradients, n);
    for (int i = 0; builder_is_ok(b) && i < n; i++) {
        const MR_Gradient *gradient = &gradients[i];
        if (!gradient->values.oper || !variable_check(b, gradient->variable))
            continue;
        make_slots(o, gradient->variable);
        if (!builder_is_ok(b))
            return NULL;
        const char *device = builder_swap_device(b, gradient->variable->device);
        updates[n_updates++] = gradient->indices.oper
                                   ? apply_rows(o, gradient)
                                   : apply_row(o, gradient, o->kind->dense, o->kind->dense_inputs);
        builder_swap_device(b, device);
    }
    if (n_updates == 0)
        builder_fail(b, status_invalid("no variable has a gradient"));
    return builder_is_ok(b) ? finish_step(o, updates, n_updates, global_step) : NULL;
}

static bool check_optimizer(MR_Builder *b, const MR_Optimizer *optimizer) {
    if (!optimizer || optimizer->builder != b)
        builder_fail(b, status_invalid(optimizer ? "the optimizer is of another builder"
                                                 : "optimizer is NULL"));
    return builder_is_ok(b);
}

TF_Operation *MR_ApplyGradients(MR_Builder *builder, MR_Optimizer *optimizer,
                                const MR_Gradient *gradients, int num_gradients,
                                MR_Variable *global_step) {
    const char *outer;
    TF_Operation *step = NULL;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (num_gradients < 0 || !gradients)
        builder_fail(builder, gradients ? status_invalid("%d gradients", num_gradients)
                                        : status_invalid("gradients is NULL"));
    if (check_optimizer(builder, optimizer))
        step = apply_all(optimizer, gradients, num_gradients, global_step);
    builder_leave(builder, outer);
    return step;
}

TF_Operation *MR_Minimize(MR_Builder *builder, MR_Optimizer *optimizer, TF_Output loss,
                          MR_Variable *global_step) {
    const char *outer;
    TF_Operation *step = NULL;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (check_optimizer(builder, optimizer)) {
        size_t n_max = (size_t)builder->n_variables;
        MR_Gradient *gradients = xcalloc(n_max + 1, sizeof *gradients);
        int n = MR_Gradients(builder, loss, NULL, -1, gradients, (int)n_max);
        step = MR_ApplyGradients(builder, optimizer, gradients, n, global_step);
        free(gradients);
    }
    builder_leave(builder, outer);
    return step;
}
