/* Writes and compares what tells the instances of functions apart. */
#include "common/graph/function_key.h"

#include "common/graph/graph_proto.h"

static bool is_instance_attr(const struct attr *attr) {
    return strcmp(attr->name, FUNCTION_INSTANCE_ATTR) == 0;
}

void function_key(const struct attr_func *function, const char *device, struct str *out) {
    int64_t instance = 0;
    for (int i = 0; i < function->n_attrs; i++)
        if (is_instance_attr(&function->attrs[i]) && function->attrs[i].value.type == ATTR_INT)
            instance = function->attrs[i].value.i;
    str_addf(out, "%s#%lld@%s", function->name, (long long)instance, device);
}

/* The first attr from `i` on that a client gave; n_attrs at the end. */
static int next_attr(const struct attr_func *function, int i) {
    while (i < function->n_attrs && is_instance_attr(&function->attrs[i]))
        i++;
    return i;
}

bool function_is_same_instance(const struct attr_func *a, const struct attr_func *b) {
    int i = next_attr(a, 0), k = next_attr(b, 0);
    if (strcmp(a->name, b->name) != 0)
        return false;
    for (; i < a->n_attrs && k < b->n_attrs; i = next_attr(a, i + 1), k = next_attr(b, k + 1))
        if (strcmp(a->attrs[i].name, b->attrs[k].name) != 0 ||
            !attr_value_equal(&a->attrs[i].value, &b->attrs[k].value))
            return false;
    return i == a->n_attrs && k == b->n_attrs;
}

static void add_sized(const void *data, size_t len, struct str *out) {
    str_add_bytes(out, &len, sizeof(len));
    str_add_bytes(out, data, len);
}

void function_identity(const struct attr_func *function, struct str *out) {
    struct str value = STR_INIT;
    add_sized(function->name, strlen(function->name), out);
    for (int i = next_attr(function, 0); i < function->n_attrs; i = next_attr(function, i + 1)) {
        str_clear(&value);
        attr_value_to_proto(&function->attrs[i].value, &value);
        add_sized(function->attrs[i].name, strlen(function->attrs[i].name), out);
        add_sized(str_text(&value), value.len, out);
    }
    str_fini(&value);
}
