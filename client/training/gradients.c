/* Gradients of variables: dense, or the rows that were gathered; clipping. */
#include <stdlib.h>

#include "client/c_gradients.h"
#include "client/training/builder_internal.h"
#include "client/training/optimizer.h"
#include "common/base/map.h"

/* ---- what a loss needs ---- */

/* Adds the operations that `loss` needs to the set. */
static void find_needed(TF_Output loss, struct u64map *needed) {
    TF_Operation **stack = xmalloc(sizeof *stack);
    size_t n = 1, capacity = 1;
    stack[0] = loss.oper;
    u64map_put(needed, (uintptr_t)loss.oper, loss.oper);
    while (n > 0) {
        TF_Operation *oper = stack[--n];
        for (int i = 0; i < TF_OperationNumInputs(oper); i++) {
            TF_Operation *source = TF_OperationInput((TF_Input){oper, i}).oper;
            if (u64map_get(needed, (uintptr_t)source))
                continue;
            u64map_put(needed, (uintptr_t)source, source);
            if (n == capacity)
                stack = xreallocarray(stack, capacity *= 2, sizeof *stack);
            stack[n++] = source;
        }
    }
    free(stack);
}

/* How the loss reaches a variable. */
struct reach {
    TF_Operation **gathers; /* the ResourceGathers that it needs */
    int n_gathers, n_others;
};

static bool is_gather(TF_Operation *oper) {
    int64_t batch_dims = 0;
    TF_Status *status = TF_NewStatus();
    bool is = strcmp(TF_OperationOpType(oper), "ResourceGather") == 0;
    if (is)
        TF_OperationGetAttrInt(oper, "batch_dims", &batch_dims, status);
    TF_DeleteStatus(status);
    return is && batch_dims == 0;
}

static struct reach find_reach(const MR_Variable *v, const struct u64map *needed) {
    int n = TF_OperationOutputNumConsumers(v->handle);
    TF_Input *consumers = xcalloc((size_t)n + 1, sizeof *consumers);
    struct reach reach = {.gathers = xcalloc((size_t)n + 1, sizeof(TF_Operation *))};
    TF_OperationOutputConsumers(v->handle, consumers, n);
    for (int i = 0; i < n; i++) {
        if (!u64map_get(needed, (uintptr_t)consumers[i].oper))
            continue;
        if (is_gather(consumers[i].oper))
            reach.gathers[reach.n_gathers++] = consumers[i].oper;
        else
            reach.n_others++;
    }
    free(consumers);
    return reach;
}

/* ---- gradients ---- */

/* Rows of several gathers as one IndexedSlices. dys[i] is the gradient of gathers[i]. */
static void set_rows(MR_Builder *b, const struct reach *reach, const TF_Output *dys,
                     MR_Gradient *gradient) {
    const MR_Variable *v = gradient->variable;
    const char *device = builder_swap_device(b, v->device);
    TF_Output *values = arena_array(&b->arena, TF_Output, 2 * (reach->n_gathers + 1));
    TF_Output *indices = values + reach->n_gathers + 1;
    int64_t *dims = arena_memdup(&b->arena, v->dims, ((size_t)v->rank + 1) * sizeof *dims);
    dims[0] = -1;
    int n = 0;
    for (int i = 0; i < reach->n_gathers; i++) {
        if (!dys[i].oper)
            continue;
        TF_Output ids = TF_OperationInput((TF_Input){reach->gathers[i], 1});
        values[n] = MR_Binary(b, "Reshape", dys[i], MR_Ints(b, dims, v->rank));
        indices[n++] = MR_Binary(b, "Reshape", ids, MR_Ints(b, MR_DIMS(-1)));
    }
    gradient->values = values[0];
    gradient->indices = indices[0];
    if (n > 1) {
        values[n] = indices[n] = MR_Scalar(b, TF_INT32, 0);
        gradient->values = MR_Op(b, "ConcatV2", NULL, values, n + 1);
        gradient->indices = MR_Op(b, "ConcatV2", NULL, indices, n + 1);
    }
    builder_swap_device(b, device);
}

/* Differentiates by the gathers of variables with rows, and by the handles of the others. */
static void differentiate(MR_Builder *b, TF_Output loss, const struct reach *reaches, int n,
                          MR_Gradient *gradients) {
    int n_xs = 0, at = 0;
    for (int i = 0; i < n; i++)
        n_xs += reaches[i].n_gathers + 1;
    TF_Output *xs = arena_array(&b->arena, TF_Output, 2 * (n_xs + 1)), *dys = xs + n_xs + 1;
    for (int i = 0; i < n; i++) {
        if (reaches[i].n_others > 0)
            xs[at++] = gradients[i].variable->handle;
        for (int k = 0; reaches[i].n_others == 0 && k < reaches[i].n_gathers; k++)
            xs[at++] = (TF_Output){reaches[i].gathers[k], 0};
    }
    TF_Status *status = TF_NewStatus();
    if (at > 0)
        TF_AddGradients(b->graph, &loss, 1, xs, at, NULL, status, dys);
    if (TF_GetCode(status) != TF_OK)
        builder_fail(b, status_new((enum status_code)TF_GetCode(status), "%s", TF_Message(status)));
    TF_DeleteStatus(status);
    at = 0;
    for (int i = 0; i < n && builder_is_ok(b); i++) {
        if (reaches[i].n_others > 0)
            gradients[i].values = dys[at++];
        else if (reaches[i].n_gathers > 0)
            set_rows(b, &reaches[i], &dys[at], &gradients[i]);
        at += reaches[i].n_others > 0 ? 0 : reaches[i].n_gathers;
    }
}

/* Sets the variables of the gradients; returns how many there are. */
static int choose_variables(MR_Builder *b, MR_Variable *const *variables, int n,
                            MR_Gradient *gradients, int max_gradients) {
    int n_chosen = 0;
    if (n >= 0 && n > 0 && !variables)
        builder_fail(b, status_invalid("variables is NULL"));
    for (int i = 0; builder_is_ok(b) && i < (n < 0 ? b->n_variables : n); i++) {
        MR_Variable *v = n < 0 ? b->variables[i] : variables[i];
        if ((n < 0 && !v->is_trainable) || !variable_check(b, v))
            continue;
        if (n_chosen < max_gradients && gradients)
            gradients[n_chosen] = (MR_Gradient){v, NO_OUTPUT, NO_OUTPUT};
        n_chosen++;
    }
    return n_chosen;
}

int MR_Gradients(MR_Builder *builder, TF_Output loss, MR_Variable *const *variables,
                 int num_variables, MR_Gradient *gradients, int max_gradients) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return 0;
    int n_all = choose_variables(builder, variables, num_variables, gradients, max_gradients);
    int n = MIN(n_all, MAX(max_gradients, 0));
    builder_check_output(builder, "loss", loss);
    if (max_gradients > 0 && !gradients)
        builder_fail(builder, status_invalid("gradients is NULL"));
    if (builder_is_ok(builder) && n > 0) {
        struct u64map needed;
        u64map_init(&needed);
        find_needed(loss, &needed);
        struct reach *reaches = xcalloc((size_t)n, sizeof *reaches);
        for (int i = 0; i < n; i++)
            reaches[i] = find_reach(gradients[i].variable, &needed);
        differentiate(builder, loss, reaches, n, gradients);
        for (int i = 0; i < n; i++)
            free(reaches[i].gathers);
        free(reaches);
        u64map_fini(&needed);
    }
    builder_leave(builder, outer);
    return n_all;
}

/* ---- clipping ---- */

/* The sum of squares of all gradients. */
static TF_Output sum_of_squares(MR_Builder *b, const MR_Gradient *gradients, int n,
                                TF_DataType *ret_dtype) {
    TF_Output *halves = arena_array(&b->arena, TF_Output, n + 1);
    int n_halves = 0;
    for (int i = 0; i < n; i++) {
        if (!gradients[i].values.oper || !variable_check(b, gradients[i].variable))
            continue;
        const char *device = builder_swap_device(b, gradients[i].variable->device);
        halves[n_halves] = MR_Unary(b, "L2Loss", gradients[i].values);
        builder_swap_device(b, device);
        if (!builder_is_ok(b))
            return NO_OUTPUT;
        *ret_dtype = TF_OperationOutputType(halves[0]);
        halves[n_halves] = MR_Cast(b, halves[n_halves], *ret_dtype);
        n_halves++;
    }
    if (n_halves == 0) {
        builder_fail(b, status_invalid("there is no gradient"));
        return NO_OUTPUT;
    }
    return MR_Binary(b, "Mul", MR_Op(b, "AddN", NULL, halves, n_halves),
                     MR_Scalar(b, *ret_dtype, 2));
}

TF_Output MR_ClipByGlobalNorm(MR_Builder *builder, MR_Gradient *gradients, int num_gradients,
                              double clip) {
    const char *outer;
    TF_Output norm = NO_OUTPUT;
    TF_DataType dtype = TF_FLOAT;
    if (!builder_enter(builder, __func__, &outer))
        return norm;
    if (num_gradients < 0 || !gradients)
        builder_fail(builder, gradients ? status_invalid("%d gradients", num_gradients)
                                        : status_invalid("gradients is NULL"));
    else if (!(clip > 0))
        builder_fail(builder, status_invalid("clip is %g, not above 0", clip));
    if (builder_is_ok(builder))
        norm = MR_Unary(builder, "Sqrt", sum_of_squares(builder, gradients, num_gradients, &dtype));
    TF_Output one = MR_Scalar(builder, dtype, 1), limit = MR_Scalar(builder, dtype, clip);
    TF_Output scale =
        MR_Binary(builder, "Mul", limit,
                  MR_Binary(builder, "Minimum", MR_Binary(builder, "RealDiv", one, norm),
                            MR_Binary(builder, "RealDiv", one, limit)));
    /* so that an infinite norm makes every gradient NaN */
    scale = MR_Binary(builder, "AddV2", scale, MR_Binary(builder, "Sub", norm, norm));
    for (int i = 0; builder_is_ok(builder) && i < num_gradients; i++) {
        TF_Output *values = &gradients[i].values;
        if (!values->oper)
            continue;
        const char *device = builder_swap_device(builder, gradients[i].variable->device);
        *values = MR_Binary(builder, "Mul", *values,
                            MR_Cast(builder, scale, TF_OperationOutputType(*values)));
        builder_swap_device(builder, device);
    }
    builder_leave(builder, outer);
    return norm;
}
