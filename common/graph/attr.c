/* Copies, compares, hashes and prints attr values. */
#include "common/graph/attr.h"

#include "common/base/map.h"
#include "common/tensor/text.h"

static void attr_func_clear(struct attr_func *func) {
    for (int i = 0; i < func->n_attrs; i++)
        attr_value_clear(&func->attrs[i].value);
}

void attr_value_clear(struct attr_value *value) {
    if (!value || value->is_placeholder)
        return;
    if (attr_type_is_list(value->type)) {
        enum attr_type element = attr_type_element(value->type);
        if (element == ATTR_TENSOR || element == ATTR_FUNC)
            for (int i = 0; i < value->list.n_values; i++)
                attr_value_clear((struct attr_value *)&value->list
                                     .values[i]); /* memory of the arena, which the value owns */
    } else if (value->type == ATTR_TENSOR && value->tensor) {
        tensor_clear(value->tensor);
    } else if (value->type == ATTR_FUNC && value->func) {
        attr_func_clear(value->func);
    }
}

static struct attr_func *attr_func_copy(const struct attr_func *from, struct arena *arena) {
    struct attr_func *func = arena_new(arena, struct attr_func);
    func->name = arena_strdup(arena, from->name);
    func->n_attrs = from->n_attrs;
    func->attrs = arena_array(arena, struct attr, from->n_attrs);
    for (int i = 0; i < from->n_attrs; i++) {
        func->attrs[i].name = arena_strdup(arena, from->attrs[i].name);
        attr_value_copy(&from->attrs[i].value, arena, &func->attrs[i].value);
    }
    return func;
}

void attr_value_copy(const struct attr_value *from, struct arena *arena, struct attr_value *ret) {
    *ret = *from;
    if (from->is_placeholder) {
        ret->placeholder = arena_strdup(arena, from->placeholder);
        return;
    }
    if (attr_type_is_list(from->type)) {
        struct attr_value *values = arena_array(arena, struct attr_value, from->list.n_values);
        for (int i = 0; i < from->list.n_values; i++)
            attr_value_copy(&from->list.values[i], arena, &values[i]);
        ret->list.values = values;
        return;
    }
    switch (from->type) {
    case ATTR_STRING:
        ret->s.data = arena_strndup(arena, from->s.data, from->s.len);
        break;
    case ATTR_SHAPE:
        ret->shape = shape_dup(from->shape, arena);
        break;
    case ATTR_TENSOR:
        ret->tensor = arena_alloc_aligned(arena, sizeof(*ret->tensor), _Alignof(struct tensor));
        tensor_copy(ret->tensor, from->tensor);
        break;
    case ATTR_FUNC:
        ret->func = attr_func_copy(from->func, arena);
        break;
    default:
        break;
    }
}

static bool attr_func_equal(const struct attr_func *a, const struct attr_func *b) {
    if (strcmp(a->name, b->name) != 0 || a->n_attrs != b->n_attrs)
        return false;
    for (int i = 0; i < a->n_attrs; i++)
        if (strcmp(a->attrs[i].name, b->attrs[i].name) != 0 ||
            !attr_value_equal(&a->attrs[i].value, &b->attrs[i].value))
            return false;
    return true;
}

static bool attr_list_equal(const struct attr_value *a, const struct attr_value *b) {
    if (a->list.n_values != b->list.n_values)
        return false;
    for (int i = 0; i < a->list.n_values; i++)
        if (!attr_value_equal(&a->list.values[i], &b->list.values[i]))
            return false;
    return true;
}

bool attr_value_equal(const struct attr_value *a, const struct attr_value *b) {
    if (a->type != b->type || a->is_placeholder != b->is_placeholder)
        return false;
    if (a->is_placeholder)
        return strcmp(a->placeholder, b->placeholder) == 0;
    if (attr_type_is_list(a->type))
        return attr_list_equal(a, b);
    switch (a->type) {
    case ATTR_STRING:
        return span_equal(a->s, b->s);
    case ATTR_INT:
        return a->i == b->i;
    case ATTR_FLOAT:
        return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case ATTR_BOOL:
        return a->b == b->b;
    case ATTR_TYPE:
        return a->dtype == b->dtype;
    case ATTR_SHAPE:
        return shape_equal(a->shape, b->shape);
    case ATTR_TENSOR:
        return a->tensor == b->tensor || tensor_equal(a->tensor, b->tensor);
    case ATTR_FUNC:
        return attr_func_equal(a->func, b->func);
    default:
        return false;
    }
}

/* Hashes a large tensor by its dtype, shape and first elements: equal tensors have equal hashes,
 * and different tensors may have equal ones. */
static uint64_t tensor_hash(const struct tensor *t) {
    enum { MAX_HASHED_BYTES = 4096, MAX_HASHED_STRINGS = 64 };
    struct shape shape = tensor_shape(t);
    uint64_t hash = hash_bytes(shape.dims, (size_t)shape.rank * sizeof(shape.dims[0]),
                               (uint64_t)t->dtype << 8 | (uint64_t)shape.rank);
    if (!tensor_has_value(t))
        return hash;
    if (!dtype_is_object((enum dtype)t->dtype))
        return hash_bytes(tensor_cdata(t), MIN(tensor_size_bytes(t), (size_t)MAX_HASHED_BYTES),
                          hash);
    for (int64_t i = 0; t->dtype == DT_STRING && i < t->n_elements && i < MAX_HASHED_STRINGS; i++) {
        struct span text = tensor_string(t, i);
        hash = hash_bytes(text.data, text.len, hash);
    }
    return hash;
}

uint64_t attr_value_hash(const struct attr_value *value) {
    uint64_t hash = (uint64_t)value->type + 1;
    if (value->is_placeholder)
        return hash_bytes(value->placeholder, strlen(value->placeholder), hash);
    if (attr_type_is_list(value->type)) {
        for (int i = 0; i < value->list.n_values; i++)
            hash = hash_mix(hash, attr_value_hash(&value->list.values[i]));
        return hash;
    }
    switch (value->type) {
    case ATTR_STRING:
        return hash_bytes(value->s.data, value->s.len, hash);
    case ATTR_INT:
        return hash_mix(hash, (uint64_t)value->i);
    case ATTR_FLOAT:
        return hash_bytes(&value->f, sizeof(value->f), hash);
    case ATTR_BOOL:
        return hash_mix(hash, value->b);
    case ATTR_TYPE:
        return hash_mix(hash, (uint64_t)value->dtype);
    case ATTR_SHAPE:
        hash = hash_mix(hash, (uint64_t)(value->shape.rank + 1));
        return value->shape.rank > 0 ? hash_bytes(value->shape.dims,
                                                  (size_t)value->shape.rank * sizeof(int64_t), hash)
                                     : hash;
    case ATTR_TENSOR:
        return hash_mix(hash, tensor_hash(value->tensor));
    case ATTR_FUNC:
        hash = hash_bytes(value->func->name, strlen(value->func->name), hash);
        for (int i = 0; i < value->func->n_attrs; i++)
            hash = hash_mix(hash, attr_value_hash(&value->func->attrs[i].value));
        return hash;
    default:
        return hash;
    }
}

/* ---- text ---- */

static void print_float(float f, struct str *out) {
    size_t begin = out->len;
    text_add_float(out, f);
    /* so that the reader does not take the number for an int */
    if (!strpbrk(out->data + begin, ".ein"))
        str_add(out, ".0");
}

static void print_func(const struct attr_func *func, struct str *out) {
    str_addf(out, "&%s", func->name);
    if (func->n_attrs == 0)
        return;
    for (int i = 0; i < func->n_attrs; i++) {
        str_addf(out, "%s%s=", i == 0 ? "{" : ", ", func->attrs[i].name);
        attr_value_print(&func->attrs[i].value, out);
    }
    str_add_char(out, '}');
}

void attr_value_print(const struct attr_value *value, struct str *out) {
    enum { MAX_PRINTED_ELEMENTS = 256 };
    if (value->is_placeholder) {
        str_addf(out, "$%s", value->placeholder);
        return;
    }
    if (attr_type_is_list(value->type)) {
        str_add_char(out, '[');
        for (int i = 0; i < value->list.n_values; i++) {
            if (i > 0)
                str_add(out, ", ");
            attr_value_print(&value->list.values[i], out);
        }
        str_add_char(out, ']');
        return;
    }
    switch (value->type) {
    case ATTR_STRING:
        text_add_quoted(out, value->s);
        break;
    case ATTR_INT:
        str_addf(out, "%lld", (long long)value->i);
        break;
    case ATTR_FLOAT:
        print_float(value->f, out);
        break;
    case ATTR_BOOL:
        str_add(out, value->b ? "true" : "false");
        break;
    case ATTR_TYPE:
        str_add(out, dtype_name(value->dtype));
        break;
    case ATTR_SHAPE:
        shape_print(value->shape, out);
        break;
    case ATTR_TENSOR:
        tensor_print(value->tensor, MAX_PRINTED_ELEMENTS, out);
        break;
    case ATTR_FUNC:
        print_func(value->func, out);
        break;
    default:
        break;
    }
}
