/* Adds operations in a short notation: matches flat inputs with the arguments of an op, and reads
 * attrs from text. */
#include "client/training/builder.h"

#include <math.h>
#include <stdlib.h>

#include "client/c_describe.h"
#include "client/training/builder_internal.h"
#include "common/graph/graph_text.h"
#include "common/tensor/text.h"

enum { DEFAULT_GRAPH_SEED = 87654321 };

MR_Builder *MR_NewBuilder(TF_Graph *graph) {
    MR_Builder *b = xcalloc(1, sizeof *b);
    arena_init(&b->arena);
    b->graph = graph;
    b->status = TF_NewStatus();
    b->device = b->prefix = "";
    b->seed = DEFAULT_GRAPH_SEED;
    if (!graph)
        tf_status_set(b->status, null_refused(__func__, "graph"));
    return b;
}

void MR_DeleteBuilder(MR_Builder *builder) {
    if (!builder)
        return;
    TF_DeleteStatus(builder->status);
    free(builder->controls);
    free(builder->variables);
    savers_free(builder->savers);
    arena_fini(&builder->arena);
    free(builder);
}

const TF_Status *MR_BuilderStatus(const MR_Builder *builder) {
    return builder ? builder->status : NULL;
}

TF_Graph *MR_BuilderGraph(const MR_Builder *builder) { return builder ? builder->graph : NULL; }

/* ---- errors ---- */

bool builder_is_ok(const MR_Builder *b) { return b && TF_GetCode(b->status) == TF_OK; }

void builder_fail(MR_Builder *b, struct status *status_take) {
    if (!status_take)
        return;
    if (!builder_is_ok(b))
        status_unref(status_take);
    else
        tf_status_set(b->status, b->function ? status_prefix_take(status_take, "%s: ", b->function)
                                             : status_take);
}

bool builder_check_output(MR_Builder *b, const char *what, TF_Output output) {
    if (!builder_is_ok(b))
        return false;
    builder_fail(b, output.oper ? output_check(what, b->graph, output)
                                : status_invalid("%s is NULL", what));
    return builder_is_ok(b);
}

bool builder_enter(MR_Builder *b, const char *function, const char **ret_outer) {
    if (!builder_is_ok(b))
        return false;
    *ret_outer = b->function;
    if (!b->function)
        b->function = function;
    return true;
}

void builder_leave(MR_Builder *b, const char *outer) { b->function = outer; }

/* ---- what holds for the operations that follow ---- */

const char *builder_swap_device(MR_Builder *b, const char *device) {
    const char *before = b->device;
    b->device = device;
    return before;
}

void MR_SetDevice(MR_Builder *builder, const char *device) {
    if (builder)
        builder->device = arena_strdup(&builder->arena, device ? device : "");
}

void MR_SetPrefix(MR_Builder *builder, const char *prefix) {
    if (builder)
        builder->prefix = prefix && prefix[0] ? arena_printf(&builder->arena, "%s/", prefix) : "";
}

void MR_SetControls(MR_Builder *builder, TF_Operation *const *controls, int num_controls) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return;
    builder->n_controls = 0;
    if (num_controls < 0 || (num_controls > 0 && !controls))
        builder_fail(builder, num_controls < 0 ? status_invalid("%d controls", num_controls)
                                               : status_invalid("controls is NULL"));
    for (int i = 0; i < num_controls && builder_is_ok(builder); i++)
        if (!controls[i])
            builder_fail(builder, status_invalid("control %d is NULL", i));
    if (num_controls > 0 && builder_is_ok(builder)) {
        size_t n = (size_t)num_controls;
        builder->controls = xreallocarray(builder->controls, n, sizeof builder->controls[0]);
        memcpy(builder->controls, controls, n * sizeof controls[0]);
        builder->n_controls = num_controls;
    }
    builder_leave(builder, outer);
}

void MR_SetSeed(MR_Builder *builder, int64_t seed) {
    if (builder)
        builder->seed = seed;
}

/* ---- one operation ---- */

/* Reads "NAME=VALUE, NAME=VALUE". The caller holds the lock of the graph. */
static struct status *read_attrs(TF_OperationDescription *desc, const struct op_signature *op,
                                 const char *text) {
    struct span in = span_of(text);
    for (int n = 0; text_skip_blanks(&in), in.len > 0; n++) {
        struct attr attr;
        if (n > 0 && !text_take(&in, ","))
            return status_invalid("',' is wanted at '%.*s'", (int)MIN(in.len, 40u), in.data);
        TRY(text_take_attr(&desc->owner->graph, op, &in, &attr));
        describe_attr(desc, attr.name, &attr.value);
    }
    return NULL;
}

static bool is_list(const struct op_arg_signature *arg) {
    return arg->number_attr || arg->type_list_attr;
}

/* Sets *ret_length to how many inputs each argument of several tensors takes. */
static struct status *list_length(const struct op_signature *op, int n_inputs, int *ret_length) {
    const char *number = NULL;
    int n_lists = 0;
    for (int i = 0; i < op->n_inputs; i++) {
        const struct op_arg_signature *arg = &op->inputs[i];
        if (!is_list(arg))
            continue;
        if (n_lists > 0 && (!number || !arg->number_attr || strcmp(number, arg->number_attr) != 0))
            return status_unimplemented("op '%s' has several arguments of several tensors; use "
                                        "TF_NewOperation",
                                        op->name);
        number = arg->number_attr;
        n_lists++;
    }
    int rest = n_inputs - (op->n_inputs - n_lists);
    *ret_length = n_lists > 0 ? rest / n_lists : 0;
    if (rest < 0 || (n_lists == 0 ? rest != 0 : rest % n_lists != 0))
        return status_invalid("op '%s' takes %d inputs%s, not %d", op->name, op->n_inputs,
                              n_lists > 0 ? " or more" : "", n_inputs);
    return NULL;
}

static struct status *add_inputs(TF_OperationDescription *desc, const struct op_signature *op,
                                 const struct op_spec *spec) {
    int length, at = 0;
    if (spec->n_inputs < 0 || (spec->n_inputs > 0 && !spec->inputs))
        return status_invalid("the inputs of '%s' are NULL", desc->name);
    for (int i = 0; i < spec->n_inputs; i++)
        if (!spec->inputs[i].oper)
            return status_invalid("input %d of '%s' is NULL", i, desc->name);
    TRY(list_length(op, spec->n_inputs, &length));
    for (int i = 0; i < op->n_inputs; i++) {
        if (is_list(&op->inputs[i])) {
            TF_AddInputList(desc, &spec->inputs[at], length);
            at += length;
        } else {
            TF_AddInput(desc, spec->inputs[at++]);
        }
    }
    return NULL;
}

/* "PREFIX/NAME", and a free name where the operation has none of its own. */
static const char *full_name(MR_Builder *b, const struct op_spec *spec) {
    const char *name =
        arena_printf(&b->arena, "%s%s", b->prefix, spec->name ? spec->name : spec->op_type);
    return spec->name ? name : graph_unique_name(&b->graph->graph, name);
}

static struct status *describe(MR_Builder *b, const struct op_spec *spec,
                               TF_OperationDescription **ret) {
    const struct op_signature *op = graph_op_lookup(&b->graph->graph, spec->op_type);
    if (!op)
        return status_invalid("there is no op '%s'", spec->op_type);
    TF_OperationDescription *desc =
        TF_NewOperationLocked(b->graph, spec->op_type, full_name(b, spec));
    *ret = desc;
    TRY(add_inputs(desc, op, spec));
    TF_SetDevice(desc, b->device);
    for (int i = 0; i < b->n_controls; i++)
        TF_AddControlInput(desc, b->controls[i]);
    for (int i = 0; i < spec->n_controls; i++)
        TF_AddControlInput(desc, spec->controls[i]);
    struct status *st = spec->attrs ? read_attrs(desc, op, spec->attrs) : NULL;
    return st ? status_suffix_take(st, " in the attrs of '%s'", desc->name) : NULL;
}

TF_Output builder_add(MR_Builder *b, const struct op_spec *spec) {
    if (!builder_is_ok(b))
        return NO_OUTPUT;
    TF_OperationDescription *desc = NULL;
    TF_Status *status = TF_NewStatus();
    pthread_mutex_lock(&b->graph->lock);
    struct status *st = describe(b, spec, &desc);
    if (desc && st)
        describe_fail(desc, st);
    pthread_mutex_unlock(&b->graph->lock);
    if (desc && spec->value)
        TF_SetAttrTensor(desc, "value", spec->value, status);
    TF_Operation *oper = desc ? TF_FinishOperation(desc, status) : NULL;
    if (!oper)
        builder_fail(b, desc ? status_ref(status->status) : st);
    TF_DeleteStatus(status);
    return (TF_Output){oper, 0};
}

TF_Output MR_Op(MR_Builder *builder, const char *op_type, const char *attrs,
                const TF_Output *inputs, int num_inputs) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (op_type)
        out = builder_add(builder, &(struct op_spec){.op_type = op_type,
                                                     .attrs = attrs,
                                                     .inputs = inputs,
                                                     .n_inputs = num_inputs});
    else
        builder_fail(builder, status_invalid("op_type is NULL"));
    builder_leave(builder, outer);
    return out;
}

/* MR_Op for another function, which errors name. */
static TF_Output add_op(MR_Builder *b, const char *function, const char *op_type,
                        const TF_Output *inputs, int n_inputs) {
    const char *outer;
    if (!builder_enter(b, function, &outer))
        return NO_OUTPUT;
    TF_Output out = MR_Op(b, op_type, NULL, inputs, n_inputs);
    builder_leave(b, outer);
    return out;
}

TF_Output MR_Unary(MR_Builder *builder, const char *op_type, TF_Output x) {
    return add_op(builder, __func__, op_type, &x, 1);
}

TF_Output MR_Binary(MR_Builder *builder, const char *op_type, TF_Output x, TF_Output y) {
    return add_op(builder, __func__, op_type, (TF_Output[]){x, y}, 2);
}

/* ---- values ---- */

const char *builder_dtype(TF_DataType dtype) { return dtype_name((enum dtype)dtype); }

void shape_text(struct str *out, const int64_t *dims, int rank) {
    if (rank < 0) {
        str_add(out, "<unknown>");
        return;
    }
    str_add(out, "[");
    for (int i = 0; i < rank; i++) {
        str_add(out, i > 0 ? "," : "");
        if (dims[i] < 0)
            str_add(out, "?");
        else
            str_addf(out, "%lld", (long long)dims[i]);
    }
    str_add(out, "]");
}

TF_Output MR_Placeholder(MR_Builder *builder, const char *name, TF_DataType dtype,
                         const int64_t *dims, int num_dims) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NO_OUTPUT;
    struct str attrs = STR_INIT;
    if (num_dims > 0 && !dims)
        builder_fail(builder, status_invalid("the dims of '%s' are NULL", name ? name : ""));
    else {
        str_addf(&attrs, "dtype=%s, shape=", builder_dtype(dtype));
        shape_text(&attrs, dims, num_dims);
    }
    TF_Output out = builder_add(
        builder,
        &(struct op_spec){.op_type = "Placeholder", .name = name, .attrs = str_text(&attrs)});
    str_fini(&attrs);
    builder_leave(builder, outer);
    return out;
}

TF_Output MR_Constant(MR_Builder *builder, TF_Tensor *value) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (value) {
        struct str attrs = STR_INIT;
        str_addf(&attrs, "dtype=%s", builder_dtype(TF_TensorType(value)));
        out = builder_add(
            builder,
            &(struct op_spec){.op_type = "Const", .attrs = str_text(&attrs), .value = value});
        str_fini(&attrs);
    } else {
        builder_fail(builder, status_invalid("value is NULL"));
    }
    builder_leave(builder, outer);
    return out;
}

/* Is the dtype one of integers? Sets *ret_least and *ret_end, the first number above all. */
static bool integer_range(TF_DataType dtype, double *ret_least, double *ret_end) {
    bool is_signed =
        dtype == TF_INT8 || dtype == TF_INT16 || dtype == TF_INT32 || dtype == TF_INT64;
    if (!is_signed && dtype != TF_UINT8 && dtype != TF_UINT16 && dtype != TF_UINT32 &&
        dtype != TF_UINT64)
        return false;
    int n_bits = 8 * (int)TF_DataTypeSize(dtype) - is_signed;
    *ret_end = ldexp(1, n_bits);
    *ret_least = is_signed ? -*ret_end : 0;
    return true;
}

/* Sets *ret_is_integer. Errors: the dtype cannot hold the number. */
static struct status *check_scalar(TF_DataType dtype, double value, bool *ret_is_integer) {
    double least, end;
    *ret_is_integer = integer_range(dtype, &least, &end);
    bool is_held = *ret_is_integer ? value >= least && value < end && value == floor(value)
                                   : dtype == TF_BOOL || dtype == TF_FLOAT || dtype == TF_DOUBLE ||
                                         dtype == TF_HALF || dtype == TF_BFLOAT16;
    return is_held ? NULL
                   : status_invalid("%.17g is not a value of %s", value, builder_dtype(dtype));
}

/* Adds the constant, frees the text of its attrs, and leaves the function. */
static TF_Output end_constant(MR_Builder *builder, struct str *attrs, const char *outer) {
    str_add(attrs, "}");
    TF_Output out =
        builder_add(builder, &(struct op_spec){.op_type = "Const", .attrs = str_text(attrs)});
    str_fini(attrs);
    builder_leave(builder, outer);
    return out;
}

TF_Output MR_Scalar(MR_Builder *builder, TF_DataType dtype, double value) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NO_OUTPUT;
    const char *type = builder_dtype(dtype);
    struct str attrs = STR_INIT;
    bool is_integer;
    builder_fail(builder, check_scalar(dtype, value, &is_integer));
    str_addf(&attrs, "dtype=%s, value=%s[]{", type, type);
    if (dtype == TF_BOOL)
        str_add(&attrs, value != 0 ? "true" : "false");
    else if (is_integer)
        str_addf(&attrs, "%.0f", value);
    else
        text_add_double(&attrs, value);
    return end_constant(builder, &attrs, outer);
}

TF_Output MR_String(MR_Builder *builder, const char *text) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (text) {
        size_t length = strlen(text);
        TF_Tensor *value = MR_NewStringTensor(NULL, 0, &text, &length);
        out = MR_Constant(builder, value);
        TF_DeleteTensor(value);
    } else {
        builder_fail(builder, status_invalid("text is NULL"));
    }
    builder_leave(builder, outer);
    return out;
}

TF_Output MR_Ints(MR_Builder *builder, const int64_t *values, int num_values) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NO_OUTPUT;
    struct str attrs = STR_INIT;
    str_addf(&attrs, "dtype=int32, value=int32[%d]{", num_values);
    if (num_values < 0 || (num_values > 0 && !values))
        builder_fail(builder, status_invalid("values is NULL"));
    for (int i = 0; i < num_values && values; i++) {
        if (values[i] < INT32_MIN || values[i] > INT32_MAX)
            builder_fail(builder, status_invalid("value %d is %lld, which is not an int32", i,
                                                 (long long)values[i]));
        str_addf(&attrs, "%s%lld", i > 0 ? ", " : "", (long long)values[i]);
    }
    return end_constant(builder, &attrs, outer);
}

TF_Output MR_Cast(MR_Builder *builder, TF_Output x, TF_DataType dtype) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NO_OUTPUT;
    TF_Output out = NO_OUTPUT;
    if (builder_check_output(builder, "x", x) && TF_OperationOutputType(x) == dtype) {
        out = x;
    } else if (builder_is_ok(builder)) {
        struct str attrs = STR_INIT;
        str_addf(&attrs, "DstT=%s", builder_dtype(dtype));
        out = MR_Op(builder, "Cast", str_text(&attrs), &x, 1);
        str_fini(&attrs);
    }
    builder_leave(builder, outer);
    return out;
}

TF_Operation *MR_Group(MR_Builder *builder, const char *name, TF_Operation *const *opers,
                       int num_opers) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    TF_Operation **controls = xmalloc(((size_t)MAX(num_opers, 0) + 1) * sizeof *controls);
    int n = 0;
    if (num_opers < 0 || (num_opers > 0 && !opers))
        builder_fail(builder, num_opers < 0 ? status_invalid("%d opers", num_opers)
                                            : status_invalid("opers is NULL"));
    for (int i = 0; i < num_opers && opers; i++)
        if (opers[i])
            controls[n++] = opers[i];
    TF_Output out = builder_add(
        builder,
        &(struct op_spec){.op_type = "NoOp", .name = name, .controls = controls, .n_controls = n});
    free(controls);
    builder_leave(builder, outer);
    return out.oper;
}

/* ---- sessions ---- */

TF_Session *MR_NewSession(TF_Graph *graph, const char *target, TF_Status *status) {
    if (!graph) {
        tf_status_set(status, null_refused(__func__, "graph"));
        return NULL;
    }
    if (!target)
        target = getenv("MILLRACE_TARGET");
    if (!target) {
        tf_status_set(
            status, status_invalid("%s: target is NULL, and MILLRACE_TARGET is not set", __func__));
        return NULL;
    }
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, target);
    TF_Session *session = TF_NewSession(graph, options, status);
    TF_DeleteSessionOptions(options);
    return session;
}

void MR_RunOperation(TF_Session *session, const TF_Operation *oper, TF_Status *status) {
    if (!session || !oper)
        tf_status_set(status, null_refused(__func__, session ? "oper" : "session"));
    else
        TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &oper, 1, NULL, status);
}
