/* Variants of one plain number: "int", "float", "bool" and "double", with the number's bytes as
 * metadata. A graph's Const may hold them; AddN sums them, and ZerosLike makes a zero. Nobody
 * changes one. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/support/variant.h"

struct number {
    struct object object;
    union {
        int32_t i;
        float f;
        bool b;
        double d;
    } value;
};

static void number_free(struct object *object) {
    free(CONTAINER_OF(object, struct number, object));
}

static size_t number_size(const struct object_type *type);

static void number_encode(const struct object *object, struct str *out) {
    const struct number *number = CONTAINER_OF(object, const struct number, object);
    proto_add_bytes(out, 1, object->type->name, strlen(object->type->name));
    proto_add_bytes(out, 2, &number->value, number_size(object->type));
}

#define NUMBER_TYPE(words) \
    { .name = (words), .free = number_free, .encode = number_encode }
static const struct object_type int_type = NUMBER_TYPE("int"), float_type = NUMBER_TYPE("float"),
                                bool_type = NUMBER_TYPE("bool"),
                                double_type = NUMBER_TYPE("double");

static size_t number_size(const struct object_type *type) {
    return type == &bool_type ? sizeof(bool) : type == &double_type ? sizeof(double) : 4;
}

static struct number *number_new(const struct object_type *type) {
    struct number *number = xcalloc(1, sizeof(*number));
    object_init(&number->object, type);
    return number;
}

static struct status *decode(const struct object_type *type, struct span proto,
                             struct object **ret) {
    struct variant_parts parts;
    if (!variant_read_parts(proto, &parts) || parts.metadata.len != number_size(type))
        return status_invalid("Malformed variant of type %s: it has no %zu bytes", type->name,
                              number_size(type));
    struct number *number = number_new(type);
    memcpy(&number->value, parts.metadata.data, parts.metadata.len);
    if (type == &bool_type)
        number->value.b = parts.metadata.data[0] != 0;
    *ret = &number->object;
    return NULL;
}

static uint32_t number_depth(const struct object *object) { return 1; }

static struct status *number_add(struct kernel_ctx *ctx, struct object **a,
                                 const struct object *b) {
    const struct number *x = CONTAINER_OF(*a, const struct number, object),
                        *y = CONTAINER_OF(b, const struct number, object);
    struct number *sum = number_new((*a)->type);
    if ((*a)->type == &int_type)
        sum->value.i = (int32_t)((uint32_t)x->value.i + (uint32_t)y->value.i);
    else if ((*a)->type == &float_type)
        sum->value.f = x->value.f + y->value.f;
    else if ((*a)->type == &double_type)
        sum->value.d = x->value.d + y->value.d;
    else
        sum->value.b = x->value.b || y->value.b;
    object_unref(*a);
    *a = &sum->object;
    return NULL;
}

static struct status *number_zeros(struct kernel_ctx *ctx, struct object **a) {
    struct number *zero = number_new((*a)->type);
    object_unref(*a);
    *a = &zero->object;
    return NULL;
}

#define DECODE(kind)                                                                    \
    static struct status *decode_##kind(struct span proto, struct allocator *allocator, \
                                        struct object **ret) {                          \
        return decode(&kind##_type, proto, ret);                                        \
    }
DECODE(int)
DECODE(float)
DECODE(bool)
DECODE(double)

const struct variant_kind int_variant_kind = {&int_type, decode_int, number_depth, number_add,
                                              number_zeros};
const struct variant_kind float_variant_kind = {&float_type, decode_float, number_depth, number_add,
                                                number_zeros};
const struct variant_kind bool_variant_kind = {&bool_type, decode_bool, number_depth, number_add,
                                               number_zeros};
const struct variant_kind double_variant_kind = {&double_type, decode_double, number_depth,
                                                 number_add, number_zeros};
