/* Adds variables with initial values, whole or in parts, and looks up rows of parts. */
#include "client/training/variable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/training/builder_internal.h"
#include "common/tensor/text.h"

/* ---- initial values ---- */

enum initializer_kind { FILL, UNIFORM, NORMAL, TRUNCATED, GLOROT };

MR_Initializer MR_Zeros(void) { return MR_Fill(0); }
MR_Initializer MR_Ones(void) { return MR_Fill(1); }
MR_Initializer MR_Fill(double value) { return (MR_Initializer){FILL, value, 0, 0}; }
MR_Initializer MR_RandomUniform(double low, double high, int64_t seed) {
    return (MR_Initializer){UNIFORM, low, high, seed};
}
MR_Initializer MR_RandomNormal(double mean, double stddev, int64_t seed) {
    return (MR_Initializer){NORMAL, mean, stddev, seed};
}
MR_Initializer MR_TruncatedNormal(double mean, double stddev, int64_t seed) {
    return (MR_Initializer){TRUNCATED, mean, stddev, seed};
}
MR_Initializer MR_GlorotUniform(int64_t seed) { return (MR_Initializer){GLOROT, 0, 0, seed}; }

/* The bound of Glorot's uniform values. */
static double glorot_bound(const int64_t *dims, int rank) {
    double receptive = 1;
    for (int i = 0; i < rank - 2; i++)
        receptive *= (double)dims[i];
    double fan_out = rank > 0 ? (double)dims[rank - 1] * receptive : 1;
    double fan_in = rank > 1 ? (double)dims[rank - 2] * receptive : fan_out;
    return sqrt(6 / MAX(fan_in + fan_out, 1.0));
}

static TF_Output vector_of(MR_Builder *b, const int64_t *dims, int rank) {
    struct str attrs = STR_INIT;
    str_addf(&attrs, "dtype=int64, value=int64[%d]{", rank);
    for (int i = 0; i < rank; i++)
        str_addf(&attrs, "%s%lld", i > 0 ? ", " : "", (long long)dims[i]);
    str_add(&attrs, "}");
    TF_Output out = MR_Op(b, "Const", str_text(&attrs), NULL, 0);
    str_fini(&attrs);
    return out;
}

/* Sets *ret_first and *ret_second to the seeds of an operation as TensorFlow's Python makes them of
 * the seeds of a graph and an initializer: below 2^31 - 1, and not both 0, which would mean that
 * each run draws others. */
static void make_seeds(int64_t graph_seed, int64_t seed, int64_t *ret_first, int64_t *ret_second) {
    enum { N_SEEDS = INT32_MAX };
    *ret_first = (graph_seed % N_SEEDS + N_SEEDS) % N_SEEDS;
    *ret_second = (seed % N_SEEDS + N_SEEDS) % N_SEEDS;
    if (*ret_first == 0 && *ret_second == 0)
        *ret_second = INT32_MAX;
}

/* random · scale + shift */
static TF_Output random_value(MR_Builder *b, TF_DataType dtype, const int64_t *dims, int rank,
                              const char *op, int64_t seed, double scale, double shift) {
    struct str attrs = STR_INIT;
    int64_t first, second;
    make_seeds(b->seed, seed, &first, &second);
    str_addf(&attrs, "dtype=%s, seed=%lld, seed2=%lld", builder_dtype(dtype), (long long)first,
             (long long)second);
    TF_Output random = MR_Op(b, op, str_text(&attrs), MR_INPUTS(vector_of(b, dims, rank)));
    str_fini(&attrs);
    return MR_Binary(b, "AddV2", MR_Binary(b, "Mul", random, MR_Scalar(b, dtype, scale)),
                     MR_Scalar(b, dtype, shift));
}

/* The difference of two numbers as the dtype has it. */
static double difference(TF_DataType dtype, double high, double low) {
    return dtype == TF_FLOAT ? (double)((float)high - (float)low) : high - low;
}

static TF_Output initial_value(MR_Builder *b, TF_DataType dtype, const int64_t *dims, int rank,
                               MR_Initializer init) {
    double bound = init.kind == GLOROT ? glorot_bound(dims, rank) : 0;
    double low = init.kind == GLOROT ? -bound : init.a, high = init.kind == GLOROT ? bound : init.b;
    switch (init.kind) {
    case FILL:
        return MR_Binary(b, "Fill", vector_of(b, dims, rank), MR_Scalar(b, dtype, init.a));
    case UNIFORM:
    case GLOROT:
        return random_value(b, dtype, dims, rank, "RandomUniform", init.seed,
                            difference(dtype, high, low), low);
    case NORMAL:
        return random_value(b, dtype, dims, rank, "RandomStandardNormal", init.seed, init.b,
                            init.a);
    case TRUNCATED:
        return random_value(b, dtype, dims, rank, "TruncatedNormal", init.seed, init.b, init.a);
    default:
        builder_fail(b, status_invalid("%d is no kind of initializer", init.kind));
        return NO_OUTPUT;
    }
}

/* ---- one variable ---- */

static struct status *check_new(const MR_Builder *b, const char *name, const int64_t *dims,
                                int rank) {
    if (!name)
        return status_invalid("name is NULL");
    if (rank < 0 || (rank > 0 && !dims))
        return status_invalid("variable '%s' needs a known shape", name);
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return status_invalid("size %d of variable '%s' is %lld", i, name, (long long)dims[i]);
    return NULL;
}

static TF_Output add_handle(MR_Builder *b, const char *name, TF_DataType dtype, const int64_t *dims,
                            int rank) {
    struct str attrs = STR_INIT, shared_name = STR_INIT;
    str_add(&shared_name, b->prefix);
    str_add(&shared_name, name);
    str_addf(&attrs, "dtype=%s, shared_name=", builder_dtype(dtype));
    text_add_quoted(&attrs, (struct span){str_text(&shared_name), shared_name.len});
    str_add(&attrs, ", shape=");
    shape_text(&attrs, dims, rank);
    TF_Output handle = builder_add(
        b, &(struct op_spec){.op_type = "VarHandleOp", .name = name, .attrs = str_text(&attrs)});
    str_fini(&attrs);
    str_fini(&shared_name);
    return handle;
}

MR_Variable *variable_add(MR_Builder *b, const char *name, TF_DataType dtype, const int64_t *dims,
                          int rank, MR_Initializer init) {
    struct status *st = check_new(b, name, dims, rank);
    if (st) {
        builder_fail(b, st);
        return NULL;
    }
    int n_controls = b->n_controls;
    b->n_controls = 0; /* an initial value waits for nothing */
    TF_Output handle = add_handle(b, name, dtype, dims, rank);
    TF_Output value = initial_value(b, dtype, dims, rank, init);
    TF_Output assign = MR_Binary(b, "AssignVariableOp", handle, value);
    b->n_controls = n_controls;
    if (!builder_is_ok(b))
        return NULL;
    MR_Variable *v = arena_new(&b->arena, MR_Variable);
    *v = (MR_Variable){
        .builder = b,
        .name = TF_OperationName(handle.oper),
        .device = b->device,
        .dtype = dtype,
        .dims = arena_array(&b->arena, int64_t, rank + 1),
        .rank = rank,
        .is_trainable = true,
        .handle = handle,
        .init = assign.oper,
    };
    if (rank > 0)
        memcpy(v->dims, dims, (size_t)rank * sizeof *dims);
    b->variables = xreallocarray(b->variables, (size_t)b->n_variables + 1, sizeof v);
    b->variables[b->n_variables++] = v;
    return v;
}

MR_Variable *MR_NewVariable(MR_Builder *builder, const char *name, TF_DataType dtype,
                            const int64_t *dims, int num_dims, MR_Initializer init) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    MR_Variable *v = variable_add(builder, name, dtype, dims, num_dims, init);
    builder_leave(builder, outer);
    return v;
}

MR_Variable *MR_NewGlobalStep(MR_Builder *builder) {
    MR_Variable *v = MR_NewVariable(builder, "global_step", TF_INT64, NULL, 0, MR_Zeros());
    MR_SetTrainable(v, 0);
    return v;
}

void MR_SetTrainable(MR_Variable *variable, unsigned char is_trainable) {
    if (variable)
        variable->is_trainable = is_trainable != 0;
}

bool variable_check(MR_Builder *b, const MR_Variable *variable) {
    if (!variable)
        builder_fail(b, status_invalid("a variable is NULL"));
    else if (variable->builder != b)
        builder_fail(b, status_invalid("variable '%s' is of another builder", variable->name));
    return variable && variable->builder == b;
}

TF_Output MR_Read(MR_Builder *builder, const MR_Variable *variable) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (variable_check(builder, variable)) {
        struct str attrs = STR_INIT;
        str_addf(&attrs, "dtype=%s", builder_dtype(variable->dtype));
        const char *device = builder_swap_device(builder, variable->device);
        out = MR_Op(builder, "ReadVariableOp", str_text(&attrs), &variable->handle, 1);
        builder_swap_device(builder, device);
        str_fini(&attrs);
    }
    builder_leave(builder, outer);
    return out;
}

TF_Operation *MR_Assign(MR_Builder *builder, const MR_Variable *variable, TF_Output value) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return NULL;
    if (variable_check(builder, variable)) {
        const char *device = builder_swap_device(builder, variable->device);
        out = MR_Binary(builder, "AssignVariableOp", variable->handle, value);
        builder_swap_device(builder, device);
    }
    builder_leave(builder, outer);
    return out.oper;
}

TF_Output MR_VariableHandle(const MR_Variable *variable) {
    return variable ? variable->handle : NO_OUTPUT;
}
TF_Operation *MR_VariableInitializer(const MR_Variable *variable) {
    return variable ? variable->init : NULL;
}
const char *MR_VariableName(const MR_Variable *variable) { return variable ? variable->name : ""; }
TF_DataType MR_VariableType(const MR_Variable *variable) {
    return variable ? variable->dtype : (TF_DataType)0;
}
int MR_VariableShape(const MR_Variable *variable, int64_t *dims, int max_dims) {
    for (int i = 0; variable && dims && i < MIN(variable->rank, max_dims); i++)
        dims[i] = variable->dims[i];
    return variable ? variable->rank : -1;
}

MR_Variable *MR_FindVariable(const MR_Builder *builder, const char *name) {
    for (int i = 0; builder && name && i < builder->n_variables; i++)
        if (strcmp(builder->variables[i]->name, name) == 0)
            return builder->variables[i];
    return NULL;
}

TF_Operation *MR_InitializeAll(MR_Builder *builder) {
    if (!builder_is_ok(builder))
        return NULL;
    TF_Operation **inits = xmalloc(((size_t)builder->n_variables + 1) * sizeof *inits);
    for (int i = 0; i < builder->n_variables; i++)
        inits[i] = builder->variables[i]->init;
    TF_Operation *init = MR_Group(builder, NULL, inits, builder->n_variables);
    free(inits);
    return init;
}

/* ---- partitioned variables ---- */

static bool check_parts(MR_Builder *b, const char *name, int num_dims, const int64_t *dims,
                        int num_parts, MR_Variable **parts) {
    struct status *st = check_new(b, name, dims, num_dims);
    if (!st && num_dims < 1)
        st = status_invalid("variable '%s' has no rows to partition", name);
    if (!st && (num_parts < 1 || num_parts > dims[0]))
        st = status_invalid("variable '%s' with %lld rows cannot have %d parts", name,
                            (long long)dims[0], num_parts);
    if (!st && !parts)
        st = status_invalid("parts is NULL");
    builder_fail(b, st);
    return !st;
}

void MR_NewPartitionedVariable(MR_Builder *builder, const char *name, TF_DataType dtype,
                               const int64_t *dims, int num_dims, MR_Initializer init,
                               const char *const *devices, int num_parts, MR_Variable **parts) {
    const char *outer;
    if (!builder_enter(builder, __func__, &outer))
        return;
    bool is_good = check_parts(builder, name, num_dims, dims, num_parts, parts);
    struct arena *arena = &builder->arena;
    int64_t *part_dims = arena_array(arena, int64_t, MAX(num_dims, 0) + 1), first = 0;
    if (is_good)
        memcpy(part_dims, dims, (size_t)num_dims * sizeof *dims);
    if (is_good && init.kind == GLOROT) { /* the fans are those of the whole variable */
        double bound = glorot_bound(dims, num_dims);
        init = MR_RandomUniform(-bound, bound, init.seed);
    }
    for (int i = 0; is_good && i < num_parts; i++) {
        const char *device = builder->device;
        if (devices)
            MR_SetDevice(builder, devices[i]);
        part_dims[0] = dims[0] / num_parts + (i < dims[0] % num_parts);
        MR_Initializer part_init = init;
        part_init.seed += i;
        parts[i] = variable_add(builder, arena_printf(arena, "%s/part_%d", name, i), dtype,
                                part_dims, num_dims, part_init);
        builder_swap_device(builder, device);
        if (!parts[i])
            break;
        parts[i]->whole = arena_printf(arena, "%s%s", builder->prefix, name);
        parts[i]->n_whole_rows = dims[0];
        parts[i]->first_row = first;
        parts[i]->part = i;
        parts[i]->n_parts = num_parts;
        first += part_dims[0];
    }
    builder_leave(builder, outer);
}

/* Sets *ret_part to the part of each row (int32) and *ret_row to its number there: the first
 * `extra` parts have rows + 1 rows, the others `rows`. */
static void locate_rows(MR_Builder *b, TF_Output ids, TF_DataType dtype, int64_t n_rows,
                        int n_parts, TF_Output *ret_part, TF_Output *ret_row) {
    int64_t rows = n_rows / n_parts, extra = n_rows % n_parts;
    TF_Output longer = MR_Scalar(b, dtype, (double)(rows + 1)), limit;
    TF_Output shorter = MR_Scalar(b, dtype, (double)rows);
    TF_Output shift = MR_Scalar(b, dtype, (double)extra);
    limit = MR_Scalar(b, dtype, (double)(extra * (rows + 1)));
    TF_Output moved = MR_Binary(b, "Sub", ids, shift);
    TF_Output part = MR_Binary(b, "Maximum", MR_Binary(b, "FloorDiv", ids, longer),
                               MR_Binary(b, "FloorDiv", moved, shorter));
    *ret_part = MR_Cast(b, part, TF_INT32);
    *ret_row =
        MR_Op(b, "SelectV2", NULL,
              MR_INPUTS(MR_Binary(b, "Less", ids, limit), MR_Binary(b, "FloorMod", ids, longer),
                        MR_Binary(b, "FloorMod", moved, shorter)));
}

static TF_Output gather(MR_Builder *b, const MR_Variable *part, TF_Output rows) {
    struct str attrs = STR_INIT;
    str_addf(&attrs, "dtype=%s", builder_dtype(part->dtype));
    const char *device = builder_swap_device(b, part->device);
    TF_Output out = MR_Op(b, "ResourceGather", str_text(&attrs), MR_INPUTS(part->handle, rows));
    builder_swap_device(b, device);
    str_fini(&attrs);
    return out;
}

/* Gathers the rows of each part, and puts them in the order of the ids. */
static TF_Output gather_parts(MR_Builder *b, MR_Variable *const *parts, int n_parts,
                              TF_Output ids) {
    TF_DataType dtype = TF_OperationOutputType(ids);
    TF_Output flat = MR_Binary(b, "Reshape", ids, MR_Ints(b, MR_DIMS(-1))), part, row;
    locate_rows(b, flat, dtype, parts[0]->n_whole_rows, n_parts, &part, &row);
    TF_Output places = MR_Op(
        b, "Range", NULL,
        MR_INPUTS(MR_Scalar(b, TF_INT32, 0), MR_Unary(b, "Size", flat), MR_Scalar(b, TF_INT32, 1)));
    char attrs[48];
    snprintf(attrs, sizeof attrs, "num_partitions=%d", n_parts);
    TF_Output rows_of = MR_Op(b, "DynamicPartition", attrs, MR_INPUTS(row, part));
    TF_Output places_of = MR_Op(b, "DynamicPartition", attrs, MR_INPUTS(places, part));
    TF_Output *inputs = arena_array(&b->arena, TF_Output, 2 * n_parts);
    for (int i = 0; i < n_parts; i++) {
        inputs[i] = (TF_Output){places_of.oper, i};
        inputs[n_parts + i] = gather(b, parts[i], (TF_Output){rows_of.oper, i});
    }
    TF_Output stitched = MR_Op(b, "DynamicStitch", NULL, inputs, 2 * n_parts);
    TF_Output shape = MR_Unary(b, "Shape", ids);
    if (parts[0]->rank > 1)
        shape = MR_Op(b, "ConcatV2", NULL,
                      MR_INPUTS(shape, MR_Ints(b, parts[0]->dims + 1, parts[0]->rank - 1),
                                MR_Scalar(b, TF_INT32, 0)));
    return MR_Binary(b, "Reshape", stitched, shape);
}

static bool is_part(const MR_Variable *v, int part, int n_parts, const MR_Variable *first) {
    return v->whole && first->whole && v->part == part && v->n_parts == n_parts &&
           strcmp(v->whole, first->whole) == 0;
}

static bool check_lookup(MR_Builder *b, MR_Variable *const *parts, int n_parts, TF_Output ids) {
    struct status *st = NULL;
    if (n_parts < 1 || !parts)
        st = status_invalid(parts ? "num_parts is %d" : "parts is NULL", n_parts);
    for (int i = 0; !st && i < n_parts; i++) {
        if (!variable_check(b, parts[i]))
            return false;
        if (parts[i]->rank < 1)
            st = status_invalid("variable '%s' has no rows", parts[i]->name);
        else if (n_parts > 1 && !is_part(parts[i], i, n_parts, parts[0]))
            st = status_invalid("'%s' is not part %d of %d of one variable", parts[i]->name, i,
                                n_parts);
    }
    if (!st && !ids.oper)
        st = status_invalid("ids is NULL");
    if (!st && TF_OperationOutputType(ids) != TF_INT32 && TF_OperationOutputType(ids) != TF_INT64)
        st = status_invalid("ids '%s' are %s, not int32 or int64", TF_OperationName(ids.oper),
                            builder_dtype(TF_OperationOutputType(ids)));
    builder_fail(b, st);
    return !st;
}

TF_Output MR_EmbeddingLookup(MR_Builder *builder, MR_Variable *const *parts, int num_parts,
                             TF_Output ids) {
    const char *outer;
    TF_Output out = NO_OUTPUT;
    if (!builder_enter(builder, __func__, &outer))
        return out;
    if (check_lookup(builder, parts, num_parts, ids))
        out = num_parts == 1 ? gather(builder, parts[0], ids)
                             : gather_parts(builder, parts, num_parts, ids);
    builder_leave(builder, outer);
    return out;
}
