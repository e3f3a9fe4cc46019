/* Reads the attrs of operations. */
#include "client/c_graph_internal.h"
#include "client/client_tensor.h"
#include "common/tensor/tensor_proto.h"

/* ---- finding ---- */

/* TensorFlow's code for a missing attr is NOT_FOUND in the getters of a single value that is no
 * string, and INVALID_ARGUMENT in the others. */
static struct status *find_attr(const char *function, const TF_Operation *oper, const char *name,
                                bool is_single, const struct attr_value **ret) {
    if (!oper || !name)
        return null_refused(function, oper ? "attr_name" : "oper");
    *ret = node_attr(oper->node, name);
    if (!*ret && is_single)
        return status_not_found("%s: No attr named '%s' in operation '%s'", function, name,
                                oper->node->name);
    return *ret ? NULL
                : status_invalid("%s: Operation '%s' has no attr named '%s'.", function,
                                 oper->node->name, name);
}

static struct status *find_typed(const char *function, const TF_Operation *oper, const char *name,
                                 enum attr_type type, const void *result,
                                 const struct attr_value **ret) {
    TRY(find_attr(function, oper, name, type != ATTR_STRING && !attr_type_is_list(type), ret));
    if (!result)
        return null_refused(function, "the result");
    if ((*ret)->type == type && !(*ret)->is_placeholder)
        return NULL;
    return status_invalid("%s: AttrValue had value with type '%s' when '%s' expected for attr '%s' "
                          "of '%s'",
                          function,
                          (*ret)->is_placeholder ? "placeholder" : attr_type_name((*ret)->type),
                          attr_type_name(type), name, oper->node->name);
}

#define GET(attr_type, member, convert)                                                   \
    const struct attr_value *attr = NULL;                                                 \
    struct status *st = find_typed(__func__, oper, attr_name, (attr_type), value, &attr); \
    if (!st)                                                                              \
        *value = (convert)attr->member;                                                   \
    tf_status_set(status, st)

#define GET_LIST(attr_type, member, convert)                                               \
    const struct attr_value *attr = NULL;                                                  \
    struct status *st = find_typed(__func__, oper, attr_name, (attr_type), values, &attr); \
    for (int i = 0; !st && i < attr->list.n_values && i < max_values; i++)                 \
        values[i] = (convert)attr->list.values[i].member;                                  \
    tf_status_set(status, st)

/* ---- metadata ---- */

static int64_t total_size(const struct attr_value *value) {
    int64_t total = 0;
    if (value->type == ATTR_STRING)
        return (int64_t)value->s.len;
    if (value->type == ATTR_SHAPE)
        return value->shape.rank;
    if (value->type != ATTR_LIST_STRING && value->type != ATTR_LIST_SHAPE)
        return -1;
    for (int i = 0; i < value->list.n_values; i++)
        total += MAX(total_size(&value->list.values[i]), 0);
    return total;
}

TF_AttrMetadata TF_OperationGetAttrMetadata(TF_Operation *oper, const char *attr_name,
                                            TF_Status *status) {
    TF_AttrMetadata metadata = {.list_size = -1, .total_size = -1};
    const struct attr_value *value = NULL;
    struct status *st = find_attr(__func__, oper, attr_name, false, &value);
    if (!st && value->is_placeholder) {
        metadata.type = TF_ATTR_PLACEHOLDER;
    } else if (!st) {
        enum attr_type element = attr_type_element(value->type);
        metadata.is_list = attr_type_is_list(value->type);
        metadata.type = element == ATTR_FUNC ? TF_ATTR_FUNC : (TF_AttrType)element;
        if (metadata.is_list)
            metadata.list_size = value->list.n_values;
        metadata.total_size = total_size(value);
    }
    tf_status_set(status, st);
    return metadata;
}

int TF_OperationGetNumAttrs(TF_Operation *oper) { return oper ? oper->node->n_attrs : 0; }

int TF_OperationGetAttrNameLength(TF_Operation *oper, int i) {
    return oper && i >= 0 && i < oper->node->n_attrs ? (int)strlen(oper->node->attrs[i].name) : -1;
}

void TF_OperationGetAttrName(TF_Operation *oper, int i, char *output, TF_Status *status) {
    int length = TF_OperationGetAttrNameLength(oper, i);
    if (!oper || !output)
        tf_status_set(status, null_refused(__func__, oper ? "output" : "oper"));
    else if (length < 0)
        tf_status_set(status, status_out_of_range("%s: '%s' has %d attrs, and no attr %d", __func__,
                                                  oper->node->name, oper->node->n_attrs, i));
    else {
        memcpy(output, oper->node->attrs[i].name, (size_t)length);
        tf_status_set(status, NULL);
    }
}

/* ---- strings, numbers, types ---- */

void TF_OperationGetAttrString(TF_Operation *oper, const char *attr_name, void *value,
                               size_t max_length, TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_STRING, value, &attr);
    if (!st && MIN(attr->s.len, max_length) > 0)
        memcpy(value, attr->s.data, MIN(attr->s.len, max_length));
    tf_status_set(status, st);
}

void TF_OperationGetAttrStringList(TF_Operation *oper, const char *attr_name, void **values,
                                   size_t *lengths, int max_values, void *storage,
                                   size_t storage_size, TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_LIST_STRING, values, &attr);
    char *at = storage;
    if (!st && !lengths)
        st = null_refused(__func__, "lengths");
    for (int i = 0; !st && i < attr->list.n_values && i < max_values; i++) {
        struct span s = attr->list.values[i].s;
        if (s.len > storage_size - (size_t)(at - (char *)storage) || (s.len > 0 && !storage)) {
            st = status_invalid("%s: Not enough storage to hold the requested list of strings '%s'",
                                __func__, attr_name);
            break;
        }
        values[i] = at;
        lengths[i] = s.len;
        if (s.len > 0)
            memcpy(at, s.data, s.len);
        at += s.len;
    }
    tf_status_set(status, st);
}

void TF_OperationGetAttrInt(TF_Operation *oper, const char *attr_name, int64_t *value,
                            TF_Status *status) {
    GET(ATTR_INT, i, int64_t);
}

void TF_OperationGetAttrIntList(TF_Operation *oper, const char *attr_name, int64_t *values,
                                int max_values, TF_Status *status) {
    GET_LIST(ATTR_LIST_INT, i, int64_t);
}

void TF_OperationGetAttrFloat(TF_Operation *oper, const char *attr_name, float *value,
                              TF_Status *status) {
    GET(ATTR_FLOAT, f, float);
}

void TF_OperationGetAttrFloatList(TF_Operation *oper, const char *attr_name, float *values,
                                  int max_values, TF_Status *status) {
    GET_LIST(ATTR_LIST_FLOAT, f, float);
}

void TF_OperationGetAttrBool(TF_Operation *oper, const char *attr_name, unsigned char *value,
                             TF_Status *status) {
    GET(ATTR_BOOL, b, unsigned char);
}

void TF_OperationGetAttrBoolList(TF_Operation *oper, const char *attr_name, unsigned char *values,
                                 int max_values, TF_Status *status) {
    GET_LIST(ATTR_LIST_BOOL, b, unsigned char);
}

void TF_OperationGetAttrType(TF_Operation *oper, const char *attr_name, TF_DataType *value,
                             TF_Status *status) {
    GET(ATTR_TYPE, dtype, TF_DataType);
}

void TF_OperationGetAttrTypeList(TF_Operation *oper, const char *attr_name, TF_DataType *values,
                                 int max_values, TF_Status *status) {
    GET_LIST(ATTR_LIST_TYPE, dtype, TF_DataType);
}

/* ---- shapes ---- */

void TF_OperationGetAttrShape(TF_Operation *oper, const char *attr_name, int64_t *value,
                              int num_dims, TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_SHAPE,
                                   num_dims > 0 ? (void *)value : (void *)&attr, &attr);
    for (int i = 0; !st && i < attr->shape.rank && i < num_dims; i++)
        value[i] = attr->shape.dims[i];
    tf_status_set(status, st);
}

void TF_OperationGetAttrShapeList(TF_Operation *oper, const char *attr_name, int64_t **dims,
                                  int *num_dims, int num_shapes, int64_t *storage, int storage_size,
                                  TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_LIST_SHAPE, dims, &attr);
    int n_used = 0;
    if (!st && !num_dims)
        st = null_refused(__func__, "num_dims");
    for (int i = 0; !st && i < attr->list.n_values && i < num_shapes; i++) {
        struct shape shape = attr->list.values[i].shape;
        num_dims[i] = shape.rank;
        dims[i] = storage ? storage + n_used : NULL;
        if (shape.rank > storage_size - n_used || (shape.rank > 0 && !storage)) {
            st = status_invalid("%s: Not enough storage to hold the requested list of shapes '%s'",
                                __func__, attr_name);
            break;
        }
        if (shape.rank > 0)
            memcpy(dims[i], shape.dims, (size_t)shape.rank * sizeof(int64_t));
        n_used += MAX(shape.rank, 0);
    }
    tf_status_set(status, st);
}

static void shape_to_message(struct shape shape, struct str *out) {
    struct str field = STR_INIT;
    struct proto_field read;
    proto_add_shape(&field, 1, shape);
    struct span in = {str_text(&field), field.len};
    if (proto_next(&in, &read) > 0)
        str_add_bytes(out, read.bytes.data, read.bytes.len);
    str_fini(&field);
}

void TF_OperationGetAttrTensorShapeProto(TF_Operation *oper, const char *attr_name,
                                         TF_Buffer *value, TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct str text = STR_INIT;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_SHAPE, value, &attr);
    if (!st) {
        shape_to_message(attr->shape, &text);
        st = buffer_fill(__func__, value, &text);
    }
    tf_status_set(status, st);
}

void TF_OperationGetAttrTensorShapeProtoList(TF_Operation *oper, const char *attr_name,
                                             TF_Buffer **values, int max_values,
                                             TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_LIST_SHAPE, values, &attr);
    for (int i = 0; !st && i < attr->list.n_values && i < max_values; i++) {
        struct str text = STR_INIT;
        shape_to_message(attr->list.values[i].shape, &text);
        values[i] = TF_NewBufferFromString(str_text(&text), text.len);
        str_fini(&text);
    }
    tf_status_set(status, st);
}

/* ---- tensors and whole values ---- */

void TF_OperationGetAttrTensor(TF_Operation *oper, const char *attr_name, TF_Tensor **value,
                               TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_TENSOR, value, &attr);
    if (!st)
        st = client_tensor_clone(attr->tensor, value);
    tf_status_set(status, st);
}

void TF_OperationGetAttrTensorList(TF_Operation *oper, const char *attr_name, TF_Tensor **values,
                                   int max_values, TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct status *st = find_typed(__func__, oper, attr_name, ATTR_LIST_TENSOR, values, &attr);
    int n = 0;
    for (; !st && n < attr->list.n_values && n < max_values; n += !st)
        st = client_tensor_clone(attr->list.values[n].tensor, &values[n]);
    while (st && n > 0)
        TF_DeleteTensor(values[--n]);
    tf_status_set(status, st);
}

void TF_OperationGetAttrValueProto(TF_Operation *oper, const char *attr_name,
                                   TF_Buffer *output_attr_value, TF_Status *status) {
    const struct attr_value *attr = NULL;
    struct str text = STR_INIT;
    struct status *st = find_attr(__func__, oper, attr_name, false, &attr);
    if (!st && !output_attr_value)
        st = null_refused(__func__, "output_attr_value");
    if (!st) {
        attr_value_to_proto(attr, &text);
        st = buffer_fill(__func__, output_attr_value, &text);
    }
    tf_status_set(status, st);
}
