/* A variable: a tensor with a name that outlives steps. Both kinds use it: ref variables
 * (VariableV2; the edge carries a TENSOR_REF to the variable) and resource variables
 * (VarHandleOp; the edge carries a handle).
 *
 * A buffer with another holder is never written: readers get a reference under the lock; an
 * update goes in place only when the variable is the only holder, else into a copy. So no reader
 * ever sees a torn or later value. Small values live inside the struct and are copied under the
 * lock. Any thread. */
#ifndef MILLRACE_KERNELS_VARIABLE_H
#define MILLRACE_KERNELS_VARIABLE_H

#include <pthread.h>

#include "common/tensor/tensor.h"

struct variable {
    struct object object;
    pthread_mutex_t lock;
    struct tensor value; /* guarded by lock; TENSOR_NONE while uninitialized */
    enum dtype dtype;
    char *name; /* for messages */
    /* The shape that a ref variable's node declares: what the first Assign is compared with. Set
     * before sharing, then constant. */
    bool has_declared_shape;
    struct shape declared_shape; /* owns its sizes */
};
extern const struct object_type variable_type; /* its name, "Var", is the resource kind's */

struct variable *variable_new(enum dtype dtype, const char *name);
/* Copies the sizes. Before the variable is shared. */
void variable_declare_shape(struct variable *variable, struct shape shape);
static inline struct variable *variable_of(struct object *object) {
    return (struct variable *)object;
}

/* A snapshot. Errors: FAILED_PRECONDITION naming the variable while it is uninitialized. `ret`
 * must hold nothing. */
struct status *variable_read(struct variable *variable, struct tensor *ret) MUST_USE;
bool variable_is_initialized(struct variable *variable);
/* Replaces the value. Takes what *value holds. */
void variable_assign_take(struct variable *variable, struct tensor *value);
/* With the lock held: makes value's elements writable (copies them when another holder is
 * there). Errors: as variable_read, and RESOURCE_EXHAUSTED. Unlocking stays the caller's. */
struct status *variable_make_writable(struct variable *variable,
                                      struct allocator *allocator) MUST_USE;

#endif
