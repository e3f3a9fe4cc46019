/* Makes named resources, hands out their handles, and finds a resource by its handle. Queues,
 * barriers, accumulators, staging areas and mutexes share this.
 *
 * A handle has two forms. The op's V2 form outputs a scalar of dtype resource; its V1 form outputs
 * a reference to the strings {container, name}. A node without a shared_name has a resource of its
 * own in its session, and the resource is emptied when the session ends. Any thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_NAMED_RESOURCE_H
#define MILLRACE_KERNELS_SUPPORT_NAMED_RESOURCE_H

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/variable.h"

/* Part of the state of a node that makes or names a resource (rows with KERNEL_SESSION_STATE). */
struct named_resource {
    const struct object_type *type;
    char *container, *name;
    bool is_private;
    /* Drops what the resource holds. Called when the session of a resource without shared_name
     * ends; may be NULL. */
    void (*empty)(struct object *resource);
    /* set by the first execution, never changed after that */
    _Atomic(struct resource_handle *) handle;
    /* V1 only; set by the first execution, never changed after that */
    _Atomic(struct variable *) strings;
    _Atomic(struct object *) own; /* the resource of a node without shared_name */
};

enum resource_naming {
    RESOURCE_OWN, /* without a shared_name, the resource has a name that no other resource has */
    RESOURCE_BY_NODE_NAME /* without a shared_name, the resource has the node_state_name */
};
/* Reads the attrs container and shared_name. `empty` may be NULL. The caller calls
 * named_resource_fini also after an error. */
struct status *named_resource_init(struct named_resource *resource, const struct kernel_init *init,
                                   const struct object_type *type, enum resource_naming naming,
                                   void (*empty)(struct object *)) MUST_USE;
void named_resource_fini(struct named_resource *resource);

/* Finds the resource, or makes it with `create`. The caller unrefs *ret. Errors: those of
 * `create`, or INVALID_ARGUMENT when the name belongs to another kind of resource. */
struct status *named_resource_get(struct kernel_ctx *ctx, struct named_resource *resource,
                                  resource_create_fn *create, void *arg,
                                  struct object **ret) MUST_USE;
/* Sets output 0 to the handle, in the op's form. Call named_resource_get first. */
struct status *named_resource_output(struct kernel_ctx *ctx,
                                     struct named_resource *resource) MUST_USE;

/* Finds the resource of the handle in an input, in either form. The caller unrefs *ret_resource.
 * Errors: NOT_FOUND; INVALID_ARGUMENT when the resource is of another kind. */
struct status *named_resource_of(struct kernel_ctx *ctx, int input, const struct object_type *type,
                                 struct object **ret) MUST_USE;
static inline struct status *named_resource_of_input(struct kernel_ctx *ctx,
                                                     const struct object_type *type,
                                                     struct object **ret) {
    return named_resource_of(ctx, 0, type, ret);
}

/* Makes a resource under the name PREFIX and a unique number, and sets output 0 to its handle.
 * Errors: those of `create`. */
struct status *named_resource_make_anonymous(struct kernel_ctx *ctx, const char *prefix,
                                             const struct object_type *type,
                                             resource_create_fn *create) MUST_USE;
/* Removes the resource of the handle in input 0 from its container: DeleteIterator and similar ops.
 */
kernel_fn named_resource_delete;

/* A list of element types. */
struct type_list {
    const uint8_t *types;
    int n;
};
/* Checks the types of the op's inputs after the handle against `in`, and those of its outputs
 * against `out`. Errors: INVALID_ARGUMENT "Signature mismatch, have: …". */
struct status *check_signature(const struct kernel_ctx *ctx, struct type_list in,
                               struct type_list out) MUST_USE;

/* ---- lists of types and shapes that such a node declares ---- */

/* Reads a list of types from an attr into *ret_types, after n_before entries that the caller sets.
 * The caller frees *ret_types. */
struct status *read_types(const struct node *node, const char *attr, int n_before,
                          uint8_t **ret_types, int *ret_n) MUST_USE;
/* Reads a list of shapes, as read_types does; each shape owns its sizes. With is_partial false, a
 * shape of unknown rank is taken for a scalar's, as TensorFlow takes it: clients that say nothing
 * about a component declare it so. A shape with unknown sizes is then INVALID_ARGUMENT. */
struct status *read_shapes(const struct node *node, const char *attr, int n_before, bool is_partial,
                           struct shape **ret_shapes, int *ret_n) MUST_USE;
void shapes_free(struct shape *shapes, int n);
void types_print(const uint8_t *types, int n, struct str *out);        /* "int32, float" */
void shapes_print(const struct shape *shapes, int n, struct str *out); /* "[[2], []]" */

#endif
