/* Lists the signature of every op of TensorFlow 2.21: its arguments, attrs, defaults and flags.
 *
 * When a client's graph is read, each node is completed (absent attrs get their defaults) and
 * checked (number of arguments, types of attrs, allowed values) against the row of its op. The rows
 * include ops that have no kernel here, and TensorFlow's internal names that begin with '_': real
 * programs contain them, and only a step that needs one fails. What an op computes, its shapes and
 * its gradient are in other tables.
 *
 * tools/gen_op_signatures.py generates common/signatures/op_signatures.c from the registry of
 * TensorFlow's wheel. The table has facts only, no descriptions.
 *
 * The table is constant. No function allocates or fails. Any thread. Strings end with a NUL; those
 * that may contain a NUL have a length. Equal rows are stored once, so two ops may share rows of
 * arguments or attrs: compare rows by content, ops by pointer. Cost: 0.9 MB resident and 0.2 ms at
 * start in a position-independent build, 0.1 us per look-up. The rows follow TensorFlow's
 * op_def.proto [WP 2, "Operations and Kernels"]. */
#ifndef MILLRACE_COMMON_SIGNATURES_OP_SIGNATURE_H
#define MILLRACE_COMMON_SIGNATURES_OP_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/tensor/dtype.h"

/* The type of an attr. list(X) is X with the ATTR_LIST bit. */
enum attr_type {
    ATTR_STRING = 0, /* bytes, not necessarily UTF-8 */
    ATTR_INT = 1,    /* int64 */
    ATTR_FLOAT = 2,  /* float32 */
    ATTR_BOOL = 3,
    ATTR_TYPE = 4, /* enum dtype, never a reference type */
    ATTR_SHAPE = 5,
    ATTR_TENSOR = 6,
    ATTR_FUNC = 7, /* a function's name with its own attrs */
    ATTR_LIST = 8, /* the bit, not a type by itself */
    ATTR_LIST_STRING = ATTR_LIST | ATTR_STRING,
    ATTR_LIST_INT = ATTR_LIST | ATTR_INT,
    ATTR_LIST_FLOAT = ATTR_LIST | ATTR_FLOAT,
    ATTR_LIST_BOOL = ATTR_LIST | ATTR_BOOL,
    ATTR_LIST_TYPE = ATTR_LIST | ATTR_TYPE,
    ATTR_LIST_SHAPE = ATTR_LIST | ATTR_SHAPE,
    ATTR_LIST_TENSOR = ATTR_LIST | ATTR_TENSOR,
    ATTR_LIST_FUNC = ATTR_LIST | ATTR_FUNC,
};

static inline bool attr_type_is_list(enum attr_type type) { return (type & ATTR_LIST) != 0; }
/* ATTR_INT for ATTR_LIST_INT, and for ATTR_INT itself. */
static inline enum attr_type attr_type_element(enum attr_type type) {
    return (enum attr_type)(type & ~ATTR_LIST);
}

/* The name that users see in messages: "int", "list(type)". "?" for a number outside the enum. */
const char *attr_type_name(enum attr_type type);

/* The value that an absent attr takes. Which member is meant follows from the attr's type; a
 * member's pointer may be NULL only when n is 0 (or, for a shape, not above 0).
 *
 *   type      member  n
 *   string    s       length in bytes
 *   int       i       0
 *   float     f       0
 *   bool      b       0
 *   type      type    0
 *   shape     dims    rank, or -1 for unknown rank; a dimension of -1 is unknown
 *   tensor    s       length in bytes of a serialized TensorProto
 *   func      s       length in bytes of the function's name; its attrs are empty
 *   list(X)   list    number of elements, each as X */
struct op_attr_default {
    int32_t n;
    union {
        const char *s;
        int64_t i;
        float f;
        bool b;
        enum dtype type;
        const int64_t *dims;
        const struct op_attr_default *list;
    };
};

struct op_attr_signature {
    const char *name;
    enum attr_type type;
    /* default_value is not NULL; without one, a node must state the attr */
    bool has_default;
    bool has_minimum;           /* only int and lists */
    uint16_t n_allowed_strings; /* 0: every string */
    int64_t minimum;            /* the least value of an int, the least length of a list */
    /* type and list(type): each type must be among them; 0: every type */
    dtype_set allowed_types;
    const char *const *allowed_strings; /* string and list(string): each must be among them */
    const struct op_attr_default *default_value;
};

/* One input or output of an op, which stands for one tensor or for a run of tensors at a node:
 *
 *   number_attr   type_list_attr   tensors                               of dtype
 *   NULL          NULL             one                                   type, or type_attr's value
 *   an int attr   NULL             the value of the attr (may be 0)      the same for all
 *   NULL          a list(type)     the length of the list (may be 0)     one entry of the list each
 *
 * Exactly one of type (not DT_INVALID), type_attr and type_list_attr is given. The attrs named
 * here are always among the op's own. */
struct op_arg_signature {
    const char *name;
    const char *type_attr;      /* an attr of type `type`, or NULL */
    const char *number_attr;    /* an attr of type `int`, or NULL */
    const char *type_list_attr; /* an attr of type `list(type)`, or NULL */
    enum dtype type;            /* a base dtype; DT_INVALID when an attr gives it */
    /* the tensors are references: a variable's buffer (dtype + 100), not a value */
    bool is_ref;
};

struct op_signature {
    const char *name;
    const struct op_arg_signature *inputs;  /* n_inputs, in the order of a node's data inputs */
    const struct op_arg_signature *outputs; /* n_outputs */
    const struct op_attr_signature *attrs;  /* n_attrs, as declared */
    /* The op that TensorFlow names as the successor of a deprecated one; NULL when none is named
     * or nothing is deprecated. */
    const char *replaced_by;
    /* A graph whose producer version is at or above this may not hold the op; an older graph
     * may. 0: not deprecated. */
    uint16_t deprecated_at_version;
    uint8_t n_inputs;
    uint8_t n_outputs;
    uint8_t n_attrs;
    /* has effects or state: never folded, merged with a twin, or placed twice */
    bool is_stateful;
    bool is_commutative; /* op(a, b) == op(b, a) for all inputs */
    /* all inputs and the output have one type, and order and grouping do not matter */
    bool is_aggregate;
    bool allows_uninitialized_input;   /* takes a reference to a variable that has no value yet */
    bool is_distributed_communication; /* talks to other tasks while it runs */
};

/* The op's row, or NULL for a name that TensorFlow 2.21 does not know. Case counts. Cost: a
 * binary search over 2,000 rows. */
const struct op_signature *op_signature_find(const char *name);
/* The same for a name that is not NUL-terminated, such as one inside a message; a name with a
 * NUL in it is not found. */
const struct op_signature *op_signature_find_n(const char *name, size_t len);

/* All rows, sorted by name as bytes, each name once. An index at or above the count gives NULL. */
size_t op_signature_count(void);
const struct op_signature *op_signature_at(size_t index);

/* Is this a row of the table, rather than one that somebody made? Cost: a comparison of
 * addresses. */
bool op_signature_is_known(const struct op_signature *signature);

/* The op's attr of this name, or NULL. Cost: linear in n_attrs, which is 22 at most. */
const struct op_attr_signature *op_signature_attr(const struct op_signature *signature,
                                                  const char *name);
const struct op_attr_signature *op_signature_attr_n(const struct op_signature *signature,
                                                    const char *name, size_t len);

/* Whether the attr (of type `type` or list(type)) may hold this dtype. DT_INVALID and reference
 * types never. */
bool op_attr_signature_allows_type(const struct op_attr_signature *attr, enum dtype type);
/* Whether the attr (of type `string` or list(string)) may hold these bytes. */
bool op_attr_signature_allows_string(const struct op_attr_signature *attr, const char *value,
                                     size_t len);

#endif
