/* Lists the kernels of the servers as TensorFlow's KernelList. The client has none itself, so the
 * rows are a copy of the servers' tables, which tools/gen_docs.py writes. */
#include "client/c_graph_internal.h"

#include <stdlib.h>

#include "common/tensor/tensor_proto.h"

/* A line is a kernel: "OP DEVICE", and "ATTR=TYPES" for each attr of types, whose TYPES are a mask
 * in hexadecimal of the numbers of dtypes. */
static const char rows[] =
#include "client/kernel_rows.inc"
    ;

/* Fields of KernelList, KernelDef, AttrConstraint, AttrValue and AttrValue.ListValue. */
enum { LIST_KERNEL = 1 };
enum { KERNEL_OP = 1, KERNEL_DEVICE = 2, KERNEL_CONSTRAINT = 3 };
enum { CONSTRAINT_NAME = 1, CONSTRAINT_VALUES = 2, VALUE_LIST = 1, LIST_TYPES = 6 };

/* Takes the text up to `end`, and `end` itself. */
static struct span take_until(struct span *text, char end) {
    const char *found = memchr(text->data, end, text->len);
    size_t len = found ? (size_t)(found - text->data) : text->len;
    struct span taken = {text->data, len};
    text->data += MIN(len + 1, text->len);
    text->len -= MIN(len + 1, text->len);
    return taken;
}

static void add_constraint(struct str *out, struct span constraint) {
    struct span name = take_until(&constraint, '=');
    struct str types = STR_INIT, list = STR_INIT, value = STR_INIT, message = STR_INIT;
    uint64_t mask = strtoull(constraint.data, NULL, 16);
    for (unsigned dtype = 0; dtype < 64; dtype++)
        if (mask >> dtype & 1)
            proto_add_varint(&types, dtype);
    proto_add_bytes(&list, LIST_TYPES, types.data, types.len);
    proto_add_bytes(&value, VALUE_LIST, list.data, list.len);
    proto_add_bytes(&message, CONSTRAINT_NAME, name.data, name.len);
    proto_add_bytes(&message, CONSTRAINT_VALUES, value.data, value.len);
    proto_add_bytes(out, KERNEL_CONSTRAINT, message.data, message.len);
    str_fini(&types);
    str_fini(&list);
    str_fini(&value);
    str_fini(&message);
}

static void add_kernel(struct str *out, struct span op, struct span row) {
    struct str kernel = STR_INIT;
    struct span device = take_until(&row, ' ');
    proto_add_bytes(&kernel, KERNEL_OP, op.data, op.len);
    proto_add_bytes(&kernel, KERNEL_DEVICE, device.data, device.len);
    while (row.len > 0)
        add_constraint(&kernel, take_until(&row, ' '));
    proto_add_bytes(out, LIST_KERNEL, kernel.data, kernel.len);
    str_fini(&kernel);
}

/* The kernels of an op, or of all. */
static TF_Buffer *list_kernels(const char *wanted) {
    struct str list = STR_INIT;
    struct span left = {rows, sizeof(rows) - 1};
    while (left.len > 0) {
        struct span row = take_until(&left, '\n'), op = take_until(&row, ' ');
        if (!wanted || span_is(op, wanted))
            add_kernel(&list, op, row);
    }
    TF_Buffer *buffer = TF_NewBufferFromString(str_text(&list), list.len);
    str_fini(&list);
    return buffer;
}

TF_Buffer *TF_GetAllRegisteredKernels(TF_Status *status) {
    tf_status_set(status, NULL);
    return list_kernels(NULL);
}

TF_Buffer *TF_GetRegisteredKernelsForOp(const char *name, TF_Status *status) {
    tf_status_set(status, name ? NULL : null_refused(__func__, "name"));
    return name ? list_kernels(name) : NULL;
}
