/* Writes the key of a function's instance. */
#include "common/graph/function_key.h"

void function_key(const struct attr_func *function, const char *device, struct str *out) {
    str_add(out, function->name);
    for (int i = 0; i < function->n_attrs; i++) {
        str_addf(out, "%s%s=", i == 0 ? "[" : ", ", function->attrs[i].name);
        attr_value_print(&function->attrs[i].value, out);
    }
    str_addf(out, "%s@%s", function->n_attrs > 0 ? "]" : "", device);
}
