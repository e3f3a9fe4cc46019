/* Writes OpDefs from the table of signatures, for clients that ask what ops there are. */
#include "common/graph/graph_proto.h"

#include "common/tensor/tensor_proto.h"

static void add_text(struct str *out, uint32_t number, const char *text) {
    if (text)
        proto_add_bytes(out, number, text, strlen(text));
}

static void add_arg(const struct op_arg_signature *arg, uint32_t number, struct str *out) {
    size_t begin = proto_begin(out, number, 0);
    add_text(out, 1, arg->name);
    proto_add_int(out, 3, (uint64_t)arg->type);
    add_text(out, 4, arg->type_attr);
    add_text(out, 5, arg->number_attr);
    add_text(out, 6, arg->type_list_attr);
    proto_add_int(out, 16, arg->is_ref);
    proto_end(out, begin, 0);
}

/* Fields of AttrValue and of its ListValue; a function has another number in a list. */
static void add_default(const struct op_attr_default *value, enum attr_type type, bool is_in_list,
                        struct str *out) {
    uint32_t bits;
    size_t begin;
    switch (type) {
    case ATTR_STRING:
        proto_add_bytes(out, 2, value->s, (size_t)value->n);
        break;
    case ATTR_INT:
        proto_add_tag(out, 3, 0);
        proto_add_varint(out, (uint64_t)value->i);
        break;
    case ATTR_FLOAT:
        memcpy(&bits, &value->f, sizeof(bits));
        proto_add_fixed32(out, 4, bits);
        break;
    case ATTR_BOOL:
        proto_add_tag(out, 5, 0);
        proto_add_varint(out, value->b);
        break;
    case ATTR_TYPE:
        proto_add_tag(out, 6, 0);
        proto_add_varint(out, (uint64_t)value->type);
        break;
    case ATTR_SHAPE:
        proto_add_shape(out, 7, (struct shape){value->n, value->dims});
        break;
    case ATTR_TENSOR:
        proto_add_bytes(out, 8, value->s, (size_t)value->n);
        break;
    case ATTR_FUNC:
        begin = proto_begin(out, is_in_list ? 9 : 10, 0);
        proto_add_bytes(out, 1, value->s, (size_t)value->n);
        proto_end(out, begin, 0);
        break;
    default: /* a list */
        begin = proto_begin(out, 1, 0);
        for (int i = 0; i < value->n; i++)
            add_default(&value->list[i], attr_type_element(type), true, out);
        proto_end(out, begin, 0);
    }
}

static void add_allowed(const struct op_attr_signature *attr, struct str *out) {
    dtype_set all = 0;
    for (int i = DT_INVALID + 1; i < DT_N_TYPES; i++)
        all |= attr->allowed_types & DTYPE_BIT(i);
    if (all == 0 && attr->n_allowed_strings == 0)
        return;
    size_t value = proto_begin(out, 7, 0), list = proto_begin(out, 1, 0);
    for (int i = DT_INVALID + 1; i < DT_N_TYPES; i++)
        if (all & DTYPE_BIT(i)) {
            proto_add_tag(out, 6, 0);
            proto_add_varint(out, (uint64_t)i);
        }
    for (int i = 0; i < attr->n_allowed_strings; i++)
        add_text(out, 2, attr->allowed_strings[i]);
    proto_end(out, list, 0);
    proto_end(out, value, 0);
}

static void add_attr(const struct op_attr_signature *attr, struct str *out) {
    size_t begin = proto_begin(out, 4, 0);
    add_text(out, 1, attr->name);
    add_text(out, 2, attr_type_name(attr->type));
    if (attr->has_default) {
        size_t value = proto_begin(out, 3, 0);
        add_default(attr->default_value, attr->type, false, out);
        proto_end(out, value, 0);
    }
    proto_add_int(out, 5, attr->has_minimum);
    if (attr->has_minimum)
        proto_add_int(out, 6, (uint64_t)attr->minimum);
    add_allowed(attr, out);
    proto_end(out, begin, 0);
}

void op_signature_to_proto(const struct op_signature *op, struct str *out) {
    add_text(out, 1, op->name);
    for (int i = 0; i < op->n_inputs; i++)
        add_arg(&op->inputs[i], 2, out);
    for (int i = 0; i < op->n_outputs; i++)
        add_arg(&op->outputs[i], 3, out);
    for (int i = 0; i < op->n_attrs; i++)
        add_attr(&op->attrs[i], out);
    if (op->deprecated_at_version) {
        size_t begin = proto_begin(out, 8, 0);
        proto_add_int(out, 1, op->deprecated_at_version);
        proto_end(out, begin, 0);
    }
    proto_add_int(out, 16, op->is_aggregate);
    proto_add_int(out, 17, op->is_stateful);
    proto_add_int(out, 18, op->is_commutative);
    proto_add_int(out, 19, op->allows_uninitialized_input);
    proto_add_int(out, 21, op->is_distributed_communication);
}
