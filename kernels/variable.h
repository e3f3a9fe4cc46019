/* A variable is a tensor with a name that outlives steps. Both kinds use it: ref variables
 * (VariableV2; the edge carries a TENSOR_REF to the variable) and resource variables
 * (VarHandleOp; the edge carries a handle).
 *
 * A buffer that somebody else holds is never written. Readers get a reference under the lock; an
 * update writes in place only when the variable is the only holder, else into a copy. So no reader
 * ever sees a torn value, or a later one. Small values live inside the struct and are copied under
 * the lock. Any thread. */
#ifndef MILLRACE_KERNELS_VARIABLE_H
#define MILLRACE_KERNELS_VARIABLE_H

#include <pthread.h>

#include "common/tensor/tensor.h"

struct variable {
    struct object object;
    pthread_mutex_t lock;
    struct tensor value; /* guarded by lock; TENSOR_NONE while uninitialized */
    /* Of a ref variable: the value that an Assign of another number of elements replaced.
     * References that were made before still mean it. Guarded by lock; TENSOR_NONE: there is none.
     */
    struct tensor former;
    enum dtype dtype;
    char *name; /* for messages */
    /* The shape that a ref variable's node declares: what the first Assign is compared with. Set
     * before sharing, then constant. */
    bool has_declared_shape;
    struct shape declared_shape; /* owns its sizes */
};
extern const struct object_type variable_type; /* its name is "Var" */

struct variable *variable_new(enum dtype dtype, const char *name);
/* Copies the sizes. Before the variable is shared. */
void variable_declare_shape(struct variable *variable, struct shape shape);
static inline struct variable *variable_of(struct object *object) {
    return (struct variable *)object;
}

/* Reads the value. Later updates do not change what *ret holds, which must hold nothing before.
 * Errors: FAILED_PRECONDITION naming the variable while it is uninitialized. */
struct status *variable_read(struct variable *variable, struct tensor *ret) MUST_USE;
/* As variable_read, for a reference to a value of n_elements: reads the former value if the
 * variable has another number of elements now and the former one has that. */
struct status *variable_read_sized(struct variable *variable, int64_t n_elements,
                                   struct tensor *ret) MUST_USE;
bool variable_is_initialized(struct variable *variable);
/* Replaces the value. Takes what *value holds. */
void variable_assign_take(struct variable *variable, struct tensor *value);

#endif
