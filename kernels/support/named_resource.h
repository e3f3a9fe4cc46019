/* Nodes that make a named resource and hand out its handle, and the way back from a handle: what
 * queues, barriers, accumulators, staging areas and mutexes share.
 *
 * A handle has two forms. V2: a scalar of resource. V1: a reference to the strings {container,
 * name}. A node without a shared_name has a resource of its own in its session; what that holds
 * is let go when the session ends. Any thread. */
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
    /* a private one's session has ended: lets go of what it holds */
    void (*empty)(struct object *resource);
    _Atomic(struct resource_handle *) handle; /* made at the first execution; then constant */
    _Atomic(struct variable *) words;         /* V1: likewise */
    _Atomic(struct object *) own;             /* of a private one */
};

enum resource_naming {
    RESOURCE_OWN,         /* without a shared_name: a name that nobody else has */
    RESOURCE_BY_NODE_NAME /* without one: the node's */
};
/* From the attrs container and shared_name. `empty` may be NULL. After an error fini is still to
 * be called. */
struct status *named_resource_init(struct named_resource *resource, const struct kernel_init *init,
                                   const struct object_type *type, enum resource_naming naming,
                                   void (*empty)(struct object *)) MUST_USE;
void named_resource_fini(struct named_resource *resource);

/* The resource, made by `create` when it is not there; with a reference. */
struct status *named_resource_get(struct kernel_ctx *ctx, struct named_resource *resource,
                                  resource_create_fn *create, void *arg,
                                  struct object **ret) MUST_USE;
/* Output 0: the handle in the form that the op has. After named_resource_get. */
struct status *named_resource_output(struct kernel_ctx *ctx,
                                     struct named_resource *resource) MUST_USE;

/* The resource of the handle in an input, in either form; with a reference. Errors: NOT_FOUND;
 * INVALID_ARGUMENT for another kind. */
struct status *named_resource_of(struct kernel_ctx *ctx, int input, const struct object_type *type,
                                 struct object **ret) MUST_USE;
static inline struct status *named_resource_of_input(struct kernel_ctx *ctx,
                                                     const struct object_type *type,
                                                     struct object **ret) {
    return named_resource_of(ctx, 0, type, ret);
}

/* A list of element types. */
struct type_list {
    const uint8_t *types;
    int n;
};
/* The op's inputs after the handle and its outputs are of these types. Errors: INVALID_ARGUMENT
 * "Signature mismatch, have: …". */
struct status *check_signature(const struct kernel_ctx *ctx, struct type_list in,
                               struct type_list out) MUST_USE;

/* ---- lists of types and shapes that such a node declares ---- */

/* The attr's types, after n_before entries that the caller sets; malloc'd. */
struct status *read_types(const struct node *node, const char *attr, int n_before,
                          uint8_t **ret_types, int *ret_n) MUST_USE;
/* Likewise for shapes; each owns its sizes. Unless is_partial, one of unknown rank is a
 * scalar's, as TensorFlow takes it (clients declare components so that they say nothing of), and
 * one with unknown sizes is INVALID_ARGUMENT. */
struct status *read_shapes(const struct node *node, const char *attr, int n_before, bool is_partial,
                           struct shape **ret_shapes, int *ret_n) MUST_USE;
struct shape shape_keep(struct shape shape); /* a copy that owns its sizes */
void shapes_free(struct shape *shapes, int n);
void types_print(const uint8_t *types, int n, struct str *out);        /* "int32, float" */
void shapes_print(const struct shape *shapes, int n, struct str *out); /* "[[2], []]" */

#endif
