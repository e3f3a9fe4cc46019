/* Holds attribute values: copies, compares, hashes and prints them.
 *
 * All memory is borrowed from an arena, except that tensors are counted: attr_value_clear releases
 * them. A value is immutable once its node is in a graph. */
#ifndef MILLRACE_COMMON_GRAPH_ATTR_H
#define MILLRACE_COMMON_GRAPH_ATTR_H

#include "common/base/arena.h"
#include "common/signatures/op_signature.h"
#include "common/tensor/tensor.h"

struct attr;

struct attr_func {
    const char *name;
    struct attr *attrs; /* sorted by name */
    int n_attrs;
};

/* One value. `type` says which member is used; list types use `list`. */
struct attr_value {
    enum attr_type type;
    union {
        struct span s;
        int64_t i;
        float f;
        bool b;
        enum dtype dtype;
        struct shape shape;
        struct tensor *tensor;  /* in the arena */
        struct attr_func *func; /* in the arena */
        /* inside function bodies, with is_placeholder: the attr of the function whose value is
         * meant */
        const char *placeholder;
        struct {
            const struct attr_value *values; /* elements, with the element type */
            int n_values;
        } list;
    };
    bool is_placeholder;
};

struct attr {
    const char *name;
    struct attr_value value;
};

/* Releases the tensors, also those in lists and functions. Accepts NULL. */
void attr_value_clear(struct attr_value *value);
/* A copy in `arena`; tensors are shared. */
void attr_value_copy(const struct attr_value *from, struct arena *arena, struct attr_value *ret);
/* Have the two the same type and content (tensors and floats by their bits)? CSE compares so. */
bool attr_value_equal(const struct attr_value *a, const struct attr_value *b);
uint64_t attr_value_hash(const struct attr_value *value);
/* Appends the text form: "float", "[1, 2]", "\"text\"", "{float[2]{1, 2}}". */
void attr_value_print(const struct attr_value *value, struct str *out);

#endif
