/* Containers: named resources (variables, queues, TensorArrays) of a task, which outlive steps
 * and sessions [WP 2, OSDI 3.1].
 *
 * A container's entry stays valid as long as somebody holds it. Reset takes the resource out of the
 * entry, so a handle or a plan that kept the entry finds nothing from then on. Any thread. */
#ifndef MILLRACE_WORKER_CONTAINER_H
#define MILLRACE_WORKER_CONTAINER_H

#include "common/base/status.h"
#include "common/base/str.h"
#include "common/tensor/object.h"

struct container_table;

struct container_table *container_table_new(void); /* one reference */
struct container_table *container_table_ref(struct container_table *table);
/* Drops a reference; accepts NULL. With the last one all resources go. */
void container_table_free(struct container_table *table);
/* A weak reference keeps no resources: what a resource holds must not keep the table that holds the
 * resource. A table that has weak references only is empty and stays so. */
struct container_table *container_table_ref_weak(struct container_table *table);
void container_table_unref_weak(struct container_table *table); /* accepts NULL */

/* Where a resource is. Two kinds may use one name. A device with a memory of its own has its own
 * resources, as in TensorFlow, because what a resource holds is in that memory. */
struct container_place {
    const char *container; /* "" is the default container, named "localhost" */
    const char *device;    /* its full name; "" for all devices whose memory is the host's */
};

/* Finds a resource by place, name and kind. *ret gets one reference. Errors: NOT_FOUND. */
struct status *container_lookup(struct container_table *table, struct container_place place,
                                const char *name, const struct object_type *type,
                                struct object **ret) MUST_USE;
/* As container_lookup, but makes a missing resource. `create(arg, &resource)` is called without a
 * lock; when two callers race, one of the two resources is dropped. Errors: those of `create`;
 * CANCELLED when the table has weak references only. */
struct status *container_lookup_or_create(struct container_table *table,
                                          struct container_place place, const char *name,
                                          const struct object_type *type,
                                          struct status *(*create)(void *arg, struct object **ret),
                                          void *arg, struct object **ret) MUST_USE;
/* Takes the resource out of its entry. Errors: NOT_FOUND. */
struct status *container_delete(struct container_table *table, struct container_place place,
                                const char *name, const char *kind) MUST_USE;
/* Drops all resources of a container, or of all with NULL. */
void container_reset(struct container_table *table, const char *container);
/* The entry of a name, made empty when it is new; handles keep it. The caller gets a reference to
 * an opaque object. */
struct object *container_entry(struct container_table *table, struct container_place place,
                               const char *name, const struct object_type *type);
/* The entry's resource. *ret gets one reference. Errors: NOT_FOUND when a Reset or a delete has
 * taken it out. */
struct status *container_entry_lookup(struct container_table *table, struct object *entry,
                                      struct object **ret) MUST_USE;
struct status *container_entry_lookup_or_create(struct container_table *table, struct object *entry,
                                                struct status *(*create)(void *arg,
                                                                         struct object **ret),
                                                void *arg, struct object **ret) MUST_USE;
size_t container_n_resources(struct container_table *table);
/* Calls `visit` for each resource, in no order, without a lock. */
void container_for_each(struct container_table *table,
                        void (*visit)(void *arg, const char *container, const char *name,
                                      struct object *resource),
                        void *arg);
/* Appends JSON rows for /statusz: container, name, kind, the device unless it is "", and bytes if
 * the resource tells and few enough tensors were looked at before it (RESOURCE_HELD_MAX_LOOKS).
 * After max_rows rows, one more says how many are left out: {"more":N}. Long names are cut. */
void container_describe(struct container_table *table, size_t max_rows, struct str *out);

#endif
