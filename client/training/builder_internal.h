/* Declares what the files of client/training share. */
#ifndef MILLRACE_CLIENT_TRAINING_BUILDER_INTERNAL_H
#define MILLRACE_CLIENT_TRAINING_BUILDER_INTERNAL_H

#include "client/training/variable.h"
#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

struct MR_Builder {
    TF_Graph *graph;
    TF_Status *status;    /* the first error */
    const char *function; /* the public function that runs, for messages; NULL: none */
    const char *device;   /* "": none */
    const char *prefix;   /* "" or "NAME/" */
    TF_Operation **controls;
    int n_controls;
    int64_t seed;
    MR_Variable **variables;
    int n_variables;
    struct MR_Saver *savers; /* in a list */
    struct arena arena;      /* of all that the builder owns */
};

struct MR_Variable {
    MR_Builder *builder;
    const char *name, *device;
    TF_DataType dtype;
    int64_t *dims;
    int rank;
    bool is_trainable;
    bool is_local; /* of one replica; a saver of all variables leaves it out */
    TF_Output handle;
    TF_Operation *init;
    /* of a part: the name and the rows of the whole, its first row, which part it is; else NULL */
    const char *whole;
    int64_t n_whole_rows, first_row;
    int part, n_parts;
};

/* What an operation is made of. */
struct op_spec {
    const char *op_type;
    const char *name;  /* NULL: a free name after the op */
    const char *attrs; /* NULL: none */
    TF_Tensor *value;  /* the attr "value"; NULL: none */
    const TF_Output *inputs;
    int n_inputs;
    TF_Operation *const *controls; /* besides the builder's */
    int n_controls;
};

#define NO_OUTPUT ((TF_Output){NULL, 0})

/* False after an error. Else sets the name of the public function, unless one runs already; the
 * caller ends with builder_leave(b, outer). */
bool builder_enter(MR_Builder *b, const char *function, const char **ret_outer);
void builder_leave(MR_Builder *b, const char *outer);
/* Keeps the first error, after the name of the function. */
void builder_fail(MR_Builder *b, struct status *status_take);
bool builder_is_ok(const MR_Builder *b);
/* Is it an output of the builder's graph? Else fails; `what` is the argument's name. */
bool builder_check_output(MR_Builder *b, const char *what, TF_Output output);
TF_Output builder_add(MR_Builder *b, const struct op_spec *spec);
/* Makes `device` that of the operations that follow, and returns the one before. */
const char *builder_swap_device(MR_Builder *b, const char *device);
/* Returns the name of a dtype in attrs, as "float". */
const char *builder_dtype(TF_DataType dtype);
/* Adds "[2,3]". */
void shape_text(struct str *out, const int64_t *dims, int rank);
/* As MR_NewVariable, with an initial value that is added already. */
MR_Variable *variable_add(MR_Builder *b, const char *name, TF_DataType dtype, const int64_t *dims,
                          int rank, MR_Initializer init);
/* Frees what savers own outside the arena. Accepts NULL. */
void savers_free(struct MR_Saver *first);
/* Is the variable one of the builder? Else fails. */
bool variable_check(MR_Builder *b, const MR_Variable *variable);

#endif
