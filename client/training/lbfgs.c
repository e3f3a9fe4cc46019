/* L-BFGS as a graph: one step of it finds the direction, another moves the variables along it.
 *
 *   direction:  x, g ─► s = x - x', y = g - g' ─► history ─► two loops ─► d;  x' = x, g' = g
 *   move:       variables = x' + length · d */
#include "client/training/lbfgs.h"

#include <stdlib.h>

#include "client/c_describe.h"
#include "client/training/builder_internal.h"

enum { MAX_HISTORY = 100, MAX_HALVINGS = 30 };

struct MR_Lbfgs {
    MR_Builder *builder;
    TF_DataType dtype;
    int history, n; /* n: variables */
    MR_Gradient *gradients;
    int64_t size; /* elements of all variables */
    MR_Variable *s, *y, *x, *g, *d;
    TF_Output loss, slope, length; /* length: fed */
    TF_Operation *find, *move;
};

/* ---- arithmetic on vectors ---- */

static TF_Output add(MR_Builder *b, TF_Output x, TF_Output y) {
    return MR_Binary(b, "AddV2", x, y);
}
static TF_Output sub(MR_Builder *b, TF_Output x, TF_Output y) { return MR_Binary(b, "Sub", x, y); }
static TF_Output mul(MR_Builder *b, TF_Output x, TF_Output y) { return MR_Binary(b, "Mul", x, y); }
static TF_Output dot(MR_Builder *b, TF_Output x, TF_Output y) {
    return MR_Binary(b, "Sum", mul(b, x, y), MR_Ints(b, MR_DIMS(0)));
}
static TF_Output choose(MR_Builder *b, TF_Output condition, TF_Output x, TF_Output y) {
    return MR_Op(b, "SelectV2", NULL, MR_INPUTS(condition, x, y));
}

/* Joins tensors as one vector. */
static TF_Output flatten(MR_Builder *b, const TF_Output *parts, int n) {
    TF_Output *flat = arena_array(&b->arena, TF_Output, n + 1);
    for (int i = 0; i < n; i++)
        flat[i] = MR_Binary(b, "Reshape", parts[i], MR_Ints(b, MR_DIMS(-1)));
    flat[n] = MR_Scalar(b, TF_INT32, 0);
    return n == 1 ? flat[0] : MR_Op(b, "ConcatV2", NULL, flat, n + 1);
}

/* ---- the direction ---- */

/* Drops the oldest row and adds a new one at the end. */
static TF_Output push_row(MR_Lbfgs *l, TF_Output rows, TF_Output row) {
    MR_Builder *b = l->builder;
    TF_Output kept = MR_Op(b, "Slice", NULL,
                           MR_INPUTS(rows, MR_Ints(b, MR_DIMS(1, 0)), MR_Ints(b, MR_DIMS(-1, -1))));
    TF_Output added = MR_Binary(b, "ExpandDims", row, MR_Scalar(b, TF_INT32, 0));
    return MR_Op(b, "ConcatV2", NULL, MR_INPUTS(kept, added, MR_Scalar(b, TF_INT32, 0)));
}

static TF_Operation *unpack(MR_Lbfgs *l, TF_Output rows) {
    struct str attrs = STR_INIT;
    str_addf(&attrs, "num=%d", l->history);
    TF_Output out = MR_Op(l->builder, "Unpack", str_text(&attrs), &rows, 1);
    str_fini(&attrs);
    return out.oper;
}

/* The inverse of the approximate second derivatives, times g. Rows of zeros change nothing. */
static TF_Output two_loops(MR_Lbfgs *l, TF_Output s_rows, TF_Output y_rows, TF_Output g) {
    MR_Builder *b = l->builder;
    TF_Operation *s = unpack(l, s_rows), *y = unpack(l, y_rows);
    TF_Output *alphas = arena_array(&b->arena, TF_Output, 2 * l->history);
    TF_Output *inverses = alphas + l->history; /* 1 / s·y */
    TF_Output q = g, one = MR_Scalar(b, l->dtype, 1);
    for (int i = l->history - 1; i >= 0; i--) {
        TF_Output si = {s, i}, yi = {y, i};
        inverses[i] = MR_Binary(b, "DivNoNan", one, dot(b, si, yi));
        alphas[i] = mul(b, inverses[i], dot(b, si, q));
        q = sub(b, q, mul(b, alphas[i], yi));
    }
    TF_Output s_last = {s, l->history - 1}, y_last = {y, l->history - 1};
    TF_Output yy = dot(b, y_last, y_last);
    TF_Output first = MR_Binary(b, "DivNoNan", one, MR_Unary(b, "Sqrt", dot(b, g, g)));
    TF_Output scale = MR_Binary(b, "DivNoNan", dot(b, s_last, y_last), yy);
    TF_Output has_history = MR_Binary(b, "Greater", yy, MR_Scalar(b, l->dtype, 0));
    TF_Output r = mul(b, choose(b, has_history, scale, first), q);
    for (int i = 0; i < l->history; i++) {
        TF_Output si = {s, i}, yi = {y, i};
        TF_Output beta = mul(b, inverses[i], dot(b, yi, r));
        r = add(b, r, mul(b, si, sub(b, alphas[i], beta)));
    }
    return r;
}

/* Sets the history and the direction, and where the step begins. */
static void add_find(MR_Lbfgs *l) {
    MR_Builder *b = l->builder;
    TF_Output *parts = arena_array(&b->arena, TF_Output, 2 * l->n);
    for (int i = 0; i < l->n; i++) {
        parts[i] = MR_Read(b, l->gradients[i].variable);
        parts[l->n + i] = l->gradients[i].values;
    }
    TF_Output x = flatten(b, parts, l->n), g = flatten(b, parts + l->n, l->n);
    TF_Output old_s = MR_Read(b, l->s), old_y = MR_Read(b, l->y);
    TF_Output g_before = MR_Read(b, l->g);
    TF_Output s = sub(b, x, MR_Read(b, l->x)), y = sub(b, g, g_before);
    /* not in the first step, nor where the loss curves downwards */
    TF_Output is_later =
        MR_Binary(b, "Greater", dot(b, g_before, g_before), MR_Scalar(b, l->dtype, 0));
    TF_Output least = mul(b, MR_Scalar(b, l->dtype, 1e-10), dot(b, y, y));
    TF_Output is_good =
        MR_Binary(b, "LogicalAnd", is_later, MR_Binary(b, "Greater", dot(b, s, y), least));
    TF_Output new_s = choose(b, is_good, push_row(l, old_s, s), old_s);
    TF_Output new_y = choose(b, is_good, push_row(l, old_y, y), old_y);
    TF_Output d = MR_Unary(b, "Neg", two_loops(l, new_s, new_y, g)), slope = dot(b, g, d);
    TF_Output falls = MR_Binary(b, "Less", slope, MR_Scalar(b, l->dtype, 0));
    d = choose(b, falls, d, MR_Unary(b, "Neg", g));
    l->slope = choose(b, falls, slope, MR_Unary(b, "Neg", dot(b, g, g)));
    /* x and g do not depend on the values before, whose reads must be over */
    TF_Operation **before = b->controls;
    int n_before = b->n_controls;
    b->controls = &d.oper;
    b->n_controls = d.oper ? 1 : 0;
    TF_Operation *sets[] = {MR_Assign(b, l->s, new_s), MR_Assign(b, l->y, new_y),
                            MR_Assign(b, l->x, x), MR_Assign(b, l->g, g), MR_Assign(b, l->d, d)};
    b->controls = before;
    b->n_controls = n_before;
    l->find = MR_Group(b, NULL, sets, (int)ARRAY_LEN(sets));
}

/* Moves the variables to x + length · d. */
static void add_move(MR_Lbfgs *l) {
    MR_Builder *b = l->builder;
    struct str attrs = STR_INIT;
    str_addf(&attrs, "dtype=%s, shape=[]", builder_dtype(l->dtype));
    l->length = MR_Op(b, "Placeholder", str_text(&attrs), NULL, 0);
    str_fini(&attrs);
    TF_Output to = add(b, MR_Read(b, l->x), mul(b, l->length, MR_Read(b, l->d)));
    TF_Operation **sets = arena_array(&b->arena, TF_Operation *, l->n);
    int64_t at = 0;
    for (int i = 0; i < l->n; i++) {
        const MR_Variable *v = l->gradients[i].variable;
        int64_t size = 1;
        for (int k = 0; k < v->rank; k++)
            size *= v->dims[k];
        TF_Output part =
            MR_Op(b, "Slice", NULL, MR_INPUTS(to, MR_Ints(b, &at, 1), MR_Ints(b, &size, 1)));
        sets[i] = MR_Assign(b, v, MR_Binary(b, "Reshape", part, MR_Ints(b, v->dims, v->rank)));
        at += size;
    }
    l->move = MR_Group(b, NULL, sets, l->n);
}

/* ---- a new one ---- */

/* Counts the elements, and makes gradients of rows dense. */
static void check_gradients(MR_Lbfgs *l) {
    MR_Builder *b = l->builder;
    for (int i = 0; builder_is_ok(b) && i < l->n; i++) {
        MR_Gradient *gradient = &l->gradients[i];
        const MR_Variable *v = gradient->variable;
        int64_t size = 1;
        if (!gradient->values.oper)
            builder_fail(b, status_invalid("the loss does not depend on variable '%s'", v->name));
        else if (v->dtype != l->dtype)
            builder_fail(b, status_invalid("variable '%s' is %s, and the loss %s", v->name,
                                           builder_dtype(v->dtype), builder_dtype(l->dtype)));
        if (builder_is_ok(b) && gradient->indices.oper)
            gradient->values = MR_Op(b, "UnsortedSegmentSum", NULL,
                                     MR_INPUTS(gradient->values, gradient->indices,
                                               MR_Scalar(b, TF_INT32, (double)v->dims[0])));
        for (int k = 0; k < v->rank; k++)
            size *= v->dims[k];
        l->size += size;
    }
}

static MR_Variable *add_vectors(MR_Lbfgs *l, const char *name, int n) {
    MR_Builder *b = l->builder;
    for (int i = 1; MR_FindVariable(b, arena_printf(&b->arena, "%s%s", b->prefix, name)); i++)
        name = arena_printf(&b->arena, "%s_%d", name, i);
    int64_t dims[2] = {n, l->size};
    MR_Variable *v = n > 1 ? variable_add(b, name, l->dtype, dims, 2, MR_Zeros())
                           : variable_add(b, name, l->dtype, dims + 1, 1, MR_Zeros());
    MR_SetTrainable(v, 0);
    return v;
}

static void build(MR_Lbfgs *l) {
    check_gradients(l);
    l->s = add_vectors(l, "lbfgs/s", l->history);
    l->y = add_vectors(l, "lbfgs/y", l->history);
    l->x = add_vectors(l, "lbfgs/x", 1);
    l->g = add_vectors(l, "lbfgs/g", 1);
    l->d = add_vectors(l, "lbfgs/d", 1);
    if (builder_is_ok(l->builder))
        add_find(l);
    if (builder_is_ok(l->builder))
        add_move(l);
}

static bool check_new(MR_Builder *b, TF_Output loss, int history) {
    if (!builder_check_output(b, "loss", loss))
        return false;
    TF_DataType dtype = TF_OperationOutputType(loss);
    if (dtype != TF_FLOAT && dtype != TF_DOUBLE)
        builder_fail(b,
                     status_invalid("the loss is %s, not float or double", builder_dtype(dtype)));
    else if (history < 2 || history > MAX_HISTORY)
        builder_fail(b, status_invalid("history is %d, not in 2 to %d", history, MAX_HISTORY));
    return builder_is_ok(b);
}

MR_Lbfgs *MR_NewLbfgs(MR_Builder *builder, TF_Output loss, MR_Variable *const *variables,
                      int num_variables, int history) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    MR_Lbfgs *l = NULL;
    if (check_new(builder, loss, history)) {
        int n_most = num_variables < 0 ? builder->n_variables : num_variables;
        l = arena_new(&builder->arena, MR_Lbfgs);
        *l = (MR_Lbfgs){
            .builder = builder,
            .dtype = TF_OperationOutputType(loss),
            .history = history,
            .loss = loss,
            .gradients = arena_array(&builder->arena, MR_Gradient, n_most + 1),
        };
        l->n = MR_Gradients(builder, loss, variables, num_variables, l->gradients, n_most);
        if (builder_is_ok(builder) && l->n == 0)
            builder_fail(builder, status_invalid("there are no variables"));
        if (builder_is_ok(builder))
            build(l);
    }
    builder_leave(builder, outer);
    return builder_is_ok(builder) ? l : NULL;
}

/* ---- a step ---- */

static double scalar_of(const MR_Lbfgs *l, TF_Tensor *value_take) {
    const void *data = TF_TensorData(value_take);
    double value = l->dtype == TF_FLOAT ? *(const float *)data : *(const double *)data;
    TF_DeleteTensor(value_take);
    return value;
}

static void move_by(const MR_Lbfgs *l, TF_Session *session, double length, TF_Status *status) {
    const TF_Operation *move = l->move;
    TF_Tensor *value = TF_AllocateTensor(l->dtype, NULL, 0, TF_DataTypeSize(l->dtype));
    if (l->dtype == TF_FLOAT)
        *(float *)TF_TensorData(value) = (float)length;
    else
        *(double *)TF_TensorData(value) = length;
    TF_SessionRun(session, NULL, &l->length, &value, 1, NULL, NULL, 0, &move, 1, NULL, status);
    TF_DeleteTensor(value);
}

double MR_LbfgsStep(MR_Lbfgs *lbfgs, TF_Session *session, const TF_Output *inputs,
                    TF_Tensor *const *input_values, int ninputs, TF_Status *status) {
    if (!lbfgs || !session || !status) {
        tf_status_set(status, null_refused(__func__, lbfgs ? "session" : "lbfgs"));
        return 0;
    }
    const TF_Operation *find = lbfgs->find;
    TF_Output wanted[2] = {lbfgs->loss, lbfgs->slope};
    TF_Tensor *found[2] = {NULL, NULL};
    TF_SessionRun(session, NULL, inputs, input_values, ninputs, wanted, found, 2, &find, 1, NULL,
                  status);
    if (TF_GetCode(status) != TF_OK) {
        tf_status_set(status, status_prefix_take(status_ref(status->status), "%s: ", __func__));
        return 0;
    }
    double before = scalar_of(lbfgs, found[0]), slope = scalar_of(lbfgs, found[1]), length = 1;
    for (int i = 0; i < MAX_HALVINGS; i++, length /= 2) {
        move_by(lbfgs, session, length, status);
        if (TF_GetCode(status) != TF_OK)
            return before;
        TF_SessionRun(session, NULL, inputs, input_values, ninputs, wanted, found, 1, NULL, 0, NULL,
                      status);
        if (TF_GetCode(status) != TF_OK)
            return before;
        double now = scalar_of(lbfgs, found[0]);
        if (now <= before + 1e-4 * length * slope)
            return now;
    }
    move_by(lbfgs, session, 0, status);
    return before;
}
