/* Sets the attrs of a description. Values are copied; c_describe.c checks them against the op. */
#include "client/c_describe.h"

#include <stdlib.h>

#include "client/client_tensor.h"
#include "common/tensor/tensor_proto.h"

enum { MAX_ATTRS = 256, MAX_LIST = 1 << 24 };

/* ---- keeping ---- */

static bool is_colocation(const char *name, const struct attr_value *value) {
    return strcmp(name, "_class") == 0 &&
           (value->type == ATTR_STRING || value->type == ATTR_LIST_STRING) &&
           !value->is_placeholder;
}

static void set_colocations(TF_OperationDescription *desc, const struct attr_value *value) {
    desc->n_colocations = 0;
    if (value->type == ATTR_STRING)
        describe_colocate(desc, value->s);
    for (int i = 0; value->type == ATTR_LIST_STRING && i < value->list.n_values; i++)
        describe_colocate(desc, value->list.values[i].s);
}

void describe_attr(TF_OperationDescription *desc, const char *name,
                   const struct attr_value *value) {
    if (is_colocation(name, value)) {
        set_colocations(desc, value);
        return;
    }
    for (int i = 0; i < desc->n_attrs; i++) {
        if (strcmp(desc->attrs[i].name, name) != 0)
            continue;
        if (!attr_value_equal(&desc->attrs[i].value, value))
            describe_fail(desc, status_invalid("Inconsistent values for attr '%s' of '%s'", name,
                                               desc->name));
        return;
    }
    if (desc->n_attrs >= MAX_ATTRS) {
        describe_fail(desc, status_exhausted("Operation '%s' would have more than %d attrs",
                                             desc->name, MAX_ATTRS));
        return;
    }
    desc->attrs = xreallocarray(desc->attrs, (size_t)desc->n_attrs + 1, sizeof desc->attrs[0]);
    struct attr *attr = &desc->attrs[desc->n_attrs++];
    attr->name = arena_strdup(&desc->arena, name);
    attr_value_copy(value, &desc->arena, &attr->value);
}

/* May the attr be set? `array` is NULL only for an empty list. */
static bool begins(const char *function, TF_OperationDescription *desc, const char *name,
                   const void *array, int64_t n) {
    if (!describe_may_change(desc))
        return false;
    struct status *st = NULL;
    if (!name)
        st = null_refused(function, "attr_name");
    else if (n < 0 || n > MAX_LIST)
        st = status_invalid("%s: attr '%s' of '%s' with %lld values", function, name, desc->name,
                            (long long)n);
    else if (n > 0 && !array)
        st = status_invalid("%s: the value of attr '%s' of '%s' is NULL", function, name,
                            desc->name);
    if (st)
        describe_fail(desc, st);
    return !st;
}

static struct attr_value *list_new(TF_OperationDescription *desc, int n) {
    return arena_array(&desc->arena, struct attr_value, n + 1);
}

static void set_list(TF_OperationDescription *desc, const char *name, enum attr_type type,
                     const struct attr_value *values, int n) {
    describe_attr(
        desc, name,
        &(struct attr_value){.type = (enum attr_type)(ATTR_LIST | type), .list = {values, n}});
}

/* ---- strings, numbers, types ---- */

void TF_SetAttrString(TF_OperationDescription *desc, const char *attr_name, const void *value,
                      size_t length) {
    if (begins(__func__, desc, attr_name, value, length > 0))
        describe_attr(desc, attr_name,
                      &(struct attr_value){.type = ATTR_STRING, .s = {value ? value : "", length}});
}

void TF_SetAttrStringList(TF_OperationDescription *desc, const char *attr_name,
                          const void *const *values, const size_t *lengths, int num_values) {
    if (!begins(__func__, desc, attr_name, values, num_values) ||
        !begins(__func__, desc, attr_name, lengths, num_values))
        return;
    struct attr_value *list = list_new(desc, num_values);
    for (int i = 0; i < num_values; i++) {
        if (!begins(__func__, desc, attr_name, values[i], lengths[i] > 0))
            return;
        list[i] =
            (struct attr_value){.type = ATTR_STRING, .s = {values[i] ? values[i] : "", lengths[i]}};
    }
    set_list(desc, attr_name, ATTR_STRING, list, num_values);
}

void TF_SetAttrInt(TF_OperationDescription *desc, const char *attr_name, int64_t value) {
    if (begins(__func__, desc, attr_name, NULL, 0))
        describe_attr(desc, attr_name, &(struct attr_value){.type = ATTR_INT, .i = value});
}

void TF_SetAttrFloat(TF_OperationDescription *desc, const char *attr_name, float value) {
    if (begins(__func__, desc, attr_name, NULL, 0))
        describe_attr(desc, attr_name, &(struct attr_value){.type = ATTR_FLOAT, .f = value});
}

void TF_SetAttrBool(TF_OperationDescription *desc, const char *attr_name, unsigned char value) {
    if (begins(__func__, desc, attr_name, NULL, 0))
        describe_attr(desc, attr_name, &(struct attr_value){.type = ATTR_BOOL, .b = value != 0});
}

/* DT_INVALID is the default of some attrs. */
static bool are_types(const char *function, TF_OperationDescription *desc, const char *name,
                      const TF_DataType *values, int n) {
    for (int i = 0; i < n; i++) {
        int base = (int)dtype_base((enum dtype)values[i]);
        if (base == DT_INVALID || dtype_is_known(base))
            continue;
        describe_fail(desc, status_invalid("%s: attr '%s' of '%s': %d is no dtype", function, name,
                                           desc->name, (int)values[i]));
        return false;
    }
    return true;
}

void TF_SetAttrType(TF_OperationDescription *desc, const char *attr_name, TF_DataType value) {
    if (begins(__func__, desc, attr_name, NULL, 0) &&
        are_types(__func__, desc, attr_name, &value, 1))
        describe_attr(desc, attr_name,
                      &(struct attr_value){.type = ATTR_TYPE, .dtype = (enum dtype)value});
}

#define SET_LIST(element_type, member, converted)                                     \
    if (!begins(__func__, desc, attr_name, values, num_values))                       \
        return;                                                                       \
    struct attr_value *list = list_new(desc, num_values);                             \
    for (int i = 0; i < num_values; i++)                                              \
        list[i] = (struct attr_value){.type = (element_type), .member = (converted)}; \
    set_list(desc, attr_name, (element_type), list, num_values)

void TF_SetAttrIntList(TF_OperationDescription *desc, const char *attr_name, const int64_t *values,
                       int num_values) {
    SET_LIST(ATTR_INT, i, values[i]);
}

void TF_SetAttrFloatList(TF_OperationDescription *desc, const char *attr_name, const float *values,
                         int num_values) {
    SET_LIST(ATTR_FLOAT, f, values[i]);
}

void TF_SetAttrBoolList(TF_OperationDescription *desc, const char *attr_name,
                        const unsigned char *values, int num_values) {
    SET_LIST(ATTR_BOOL, b, values[i] != 0);
}

void TF_SetAttrTypeList(TF_OperationDescription *desc, const char *attr_name,
                        const TF_DataType *values, int num_values) {
    if (!begins(__func__, desc, attr_name, values, num_values) ||
        !are_types(__func__, desc, attr_name, values, num_values))
        return;
    SET_LIST(ATTR_TYPE, dtype, (enum dtype)values[i]);
}

/* ---- functions and placeholders ---- */

void TF_SetAttrPlaceholder(TF_OperationDescription *desc, const char *attr_name,
                           const char *placeholder) {
    if (begins(__func__, desc, attr_name, placeholder, 1))
        describe_attr(desc, attr_name,
                      &(struct attr_value){.is_placeholder = true, .placeholder = placeholder});
}

void TF_SetAttrFuncName(TF_OperationDescription *desc, const char *attr_name, const char *value,
                        size_t length) {
    if (!begins(__func__, desc, attr_name, value, length > 0))
        return;
    struct attr_func func = {.name = arena_strndup(&desc->arena, value ? value : "", length)};
    describe_attr(desc, attr_name, &(struct attr_value){.type = ATTR_FUNC, .func = &func});
}

/* ---- shapes ---- */

static struct status *make_shape(TF_OperationDescription *desc, const char *function,
                                 const char *name, const int64_t *dims, int num_dims,
                                 struct attr_value *ret) {
    if (num_dims > SHAPE_MAX_RANK || (num_dims > 0 && !dims))
        return status_invalid("%s: attr '%s' of '%s': a shape of %d dimensions%s", function, name,
                              desc->name, num_dims, dims ? "" : ", which are NULL");
    *ret = (struct attr_value){.type = ATTR_SHAPE, .shape = SHAPE_UNKNOWN};
    if (num_dims < 0)
        return NULL;
    int64_t *copy = arena_array(&desc->arena, int64_t, num_dims + 1);
    for (int i = 0; i < num_dims; i++)
        copy[i] = MAX(dims[i], -1);
    ret->shape = (struct shape){num_dims, copy};
    return NULL;
}

void TF_SetAttrShape(TF_OperationDescription *desc, const char *attr_name, const int64_t *dims,
                     int num_dims) {
    struct attr_value value;
    if (!begins(__func__, desc, attr_name, NULL, 0))
        return;
    struct status *st = make_shape(desc, __func__, attr_name, dims, num_dims, &value);
    if (st)
        describe_fail(desc, st);
    else
        describe_attr(desc, attr_name, &value);
}

void TF_SetAttrShapeList(TF_OperationDescription *desc, const char *attr_name,
                         const int64_t *const *dims, const int *num_dims, int num_shapes) {
    if (!begins(__func__, desc, attr_name, dims, num_shapes) ||
        !begins(__func__, desc, attr_name, num_dims, num_shapes))
        return;
    struct attr_value *list = list_new(desc, num_shapes);
    for (int i = 0; i < num_shapes; i++) {
        struct status *st = make_shape(desc, __func__, attr_name, dims[i], num_dims[i], &list[i]);
        if (st) {
            describe_fail(desc, st);
            return;
        }
    }
    set_list(desc, attr_name, ATTR_SHAPE, list, num_shapes);
}

static struct status *read_shape(TF_OperationDescription *desc, const char *function,
                                 const char *name, struct span proto, struct attr_value *ret) {
    int64_t dims[SHAPE_MAX_RANK];
    int rank = 0;
    if (!proto.data && proto.len > 0)
        return null_refused(function, "proto");
    if (!proto_is_message(proto) || !proto_read_shape(proto, dims, &rank))
        return status_invalid("%s: Unparseable TensorShapeProto for attr '%s' of '%s'", function,
                              name, desc->name);
    return make_shape(desc, function, name, dims, rank, ret);
}

/* Makes the errors of a setter with a status: those of the description before come out at the
 * finish. */
static struct status *may_set(const char *function, TF_OperationDescription *desc, const char *name,
                              const void *array, int64_t n) {
    if (!desc)
        return null_refused(function, "desc");
    if (desc->is_finished)
        return status_failed_precondition("%s: operation '%s' is finished already", function,
                                          desc->name);
    if (!name)
        return null_refused(function, "attr_name");
    if (n < 0 || n > MAX_LIST)
        return status_invalid("%s: attr '%s' of '%s' with %lld values", function, name, desc->name,
                              (long long)n);
    return n > 0 && !array ? null_refused(function, "the value") : NULL;
}

void TF_SetAttrTensorShapeProto(TF_OperationDescription *desc, const char *attr_name,
                                const void *proto, size_t proto_len, TF_Status *status) {
    struct attr_value value;
    struct status *st = may_set(__func__, desc, attr_name, NULL, 0);
    if (!st)
        st = read_shape(desc, __func__, attr_name, (struct span){proto, proto_len}, &value);
    if (!st)
        describe_attr(desc, attr_name, &value);
    tf_status_set(status, st);
}

void TF_SetAttrTensorShapeProtoList(TF_OperationDescription *desc, const char *attr_name,
                                    const void *const *protos, const size_t *proto_lens,
                                    int num_shapes, TF_Status *status) {
    struct status *st = may_set(__func__, desc, attr_name, protos, num_shapes);
    if (!st)
        st = may_set(__func__, desc, attr_name, proto_lens, num_shapes);
    struct attr_value *list = st ? NULL : list_new(desc, num_shapes);
    for (int i = 0; !st && i < num_shapes; i++)
        st = read_shape(desc, __func__, attr_name, (struct span){protos[i], proto_lens[i]},
                        &list[i]);
    if (!st)
        set_list(desc, attr_name, ATTR_SHAPE, list, num_shapes);
    tf_status_set(status, st);
}

/* ---- tensors and whole values ---- */

/* Copies the elements, since attr_value_copy shares them and the caller may change them later. */
static struct status *clone_tensor(const TF_Tensor *from, struct tensor *ret_copy,
                                   struct attr_value *ret) {
    TRY(tensor_clone(allocator_host(), client_tensor_value(from), ret_copy));
    *ret = (struct attr_value){.type = ATTR_TENSOR, .tensor = ret_copy};
    return NULL;
}

void TF_SetAttrTensor(TF_OperationDescription *desc, const char *attr_name, TF_Tensor *value,
                      TF_Status *status) {
    struct attr_value attr;
    struct tensor copy = TENSOR_INIT;
    struct status *st = may_set(__func__, desc, attr_name, value, 1);
    if (!st)
        st = clone_tensor(value, &copy, &attr);
    if (!st)
        describe_attr(desc, attr_name, &attr);
    tensor_clear(&copy);
    tf_status_set(status, st);
}

void TF_SetAttrTensorList(TF_OperationDescription *desc, const char *attr_name,
                          TF_Tensor *const *values, int num_values, TF_Status *status) {
    struct status *st = may_set(__func__, desc, attr_name, values, num_values);
    struct attr_value *list = st ? NULL : list_new(desc, num_values);
    struct tensor *copies = st ? NULL : xcalloc((size_t)num_values + 1, sizeof *copies);
    int n = 0;
    for (; !st && n < num_values; n += !st) {
        st = may_set(__func__, desc, attr_name, values[n], 1);
        if (!st)
            st = clone_tensor(values[n], &copies[n], &list[n]);
    }
    if (!st)
        set_list(desc, attr_name, ATTR_TENSOR, list, num_values);
    while (n > 0)
        tensor_clear(&copies[--n]);
    free(copies);
    tf_status_set(status, st);
}

static struct status *read_value(TF_OperationDescription *desc, const char *name, struct span proto,
                                 struct attr_value *ret) {
    struct graph *graph = &desc->owner->graph;
    struct graph_limits limits;
    bool is_set = false;
    graph_limits_default(&limits);
    pthread_mutex_lock(&desc->owner->lock);
    const struct op_signature *op = graph_op_lookup(graph, desc->op_name);
    struct status *st = attr_value_from_proto(graph, proto, op ? op_signature_attr(op, name) : NULL,
                                              &limits, ret, &is_set);
    pthread_mutex_unlock(&desc->owner->lock);
    if (!st && !is_set)
        st = status_invalid("an AttrValue without a value");
    return st;
}

void TF_SetAttrValueProto(TF_OperationDescription *desc, const char *attr_name, const void *proto,
                          size_t proto_len, TF_Status *status) {
    struct attr_value value;
    struct status *st = may_set(__func__, desc, attr_name, proto, proto_len > 0);
    if (!st) {
        st = read_value(desc, attr_name, (struct span){proto ? proto : "", proto_len}, &value);
        st = status_prefix_take(st,
                                "%s: Unparseable AttrValue proto for attr '%s' of '%s': ", __func__,
                                attr_name, desc->name);
    }
    if (!st)
        describe_attr(desc, attr_name, &value);
    tf_status_set(status, st);
}
