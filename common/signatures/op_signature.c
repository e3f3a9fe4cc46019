/* Looks ops and attrs up in the generated table of signatures. */
#include "common/signatures/op_signature.h"

#include <string.h>

#include "common/base/base.h"
#include "common/signatures/op_signature_internal.h"

const char *attr_type_name(enum attr_type type) {
    /* clang-format off */
    static const char *const names[] = {
        [ATTR_STRING] = "string", [ATTR_LIST_STRING] = "list(string)",
        [ATTR_INT]    = "int",    [ATTR_LIST_INT]    = "list(int)",
        [ATTR_FLOAT]  = "float",  [ATTR_LIST_FLOAT]  = "list(float)",
        [ATTR_BOOL]   = "bool",   [ATTR_LIST_BOOL]   = "list(bool)",
        [ATTR_TYPE]   = "type",   [ATTR_LIST_TYPE]   = "list(type)",
        [ATTR_SHAPE]  = "shape",  [ATTR_LIST_SHAPE]  = "list(shape)",
        [ATTR_TENSOR] = "tensor", [ATTR_LIST_TENSOR] = "list(tensor)",
        [ATTR_FUNC]   = "func",   [ATTR_LIST_FUNC]   = "list(func)",
    };
    /* clang-format on */
    size_t index = (size_t)type;
    return index < ARRAY_LEN(names) ? names[index] : "?";
}

/* Orders len bytes against a NUL-terminated text as strcmp() would. A NUL among the bytes sorts
 * first, so it equals no text. */
static int compare_bytes(const char *bytes, size_t len, const char *text) {
    size_t text_len = strlen(text);
    int order = memcmp(bytes, text, MIN(len, text_len));
    if (order != 0 || len == text_len)
        return order;
    return len < text_len ? -1 : 1;
}

const struct op_signature *op_signature_find_n(const char *name, size_t len) {
    if (len == 0)
        return NULL;
    size_t low = 0;
    size_t high = op_signature_table_len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_bytes(name, len, op_signature_table[middle].name);
        if (order == 0)
            return &op_signature_table[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct op_signature *op_signature_find(const char *name) {
    return op_signature_find_n(name, strlen(name));
}

size_t op_signature_count(void) { return op_signature_table_len; }

const struct op_signature *op_signature_at(size_t index) {
    return index < op_signature_table_len ? &op_signature_table[index] : NULL;
}

bool op_signature_is_known(const struct op_signature *signature) {
    uintptr_t at = (uintptr_t)signature, first = (uintptr_t)op_signature_table;
    return at >= first && at < first + op_signature_table_len * sizeof(*signature);
}

const struct op_attr_signature *op_signature_attr_n(const struct op_signature *signature,
                                                    const char *name, size_t len) {
    if (len == 0)
        return NULL;
    for (size_t i = 0; i < signature->n_attrs; i++)
        if (compare_bytes(name, len, signature->attrs[i].name) == 0)
            return &signature->attrs[i];
    return NULL;
}

const struct op_attr_signature *op_signature_attr(const struct op_signature *signature,
                                                  const char *name) {
    return op_signature_attr_n(signature, name, strlen(name));
}

bool op_attr_signature_allows_type(const struct op_attr_signature *attr, enum dtype type) {
    return dtype_is_known((int)type) &&
           (attr->allowed_types == 0 || dtype_in(type, attr->allowed_types));
}

bool op_attr_signature_allows_string(const struct op_attr_signature *attr, const char *value,
                                     size_t len) {
    if (attr->n_allowed_strings == 0)
        return true;
    for (size_t i = 0; i < attr->n_allowed_strings; i++) {
        const char *allowed = attr->allowed_strings[i];
        if (strlen(allowed) == len && (len == 0 || memcmp(allowed, value, len) == 0))
            return true;
    }
    return false;
}
