/* Makes and finds named resources; see named_resource.h. */
#include "kernels/support/named_resource.h"

#include <stdlib.h>

#include "kernels/support/variable_input.h"

struct status *named_resource_init(struct named_resource *resource, const struct kernel_init *init,
                                   const struct object_type *type, enum resource_naming naming,
                                   void (*empty)(struct object *)) {
    struct span container = {0}, name = {0};
    resource->type = type;
    resource->empty = empty;
    TRY(node_get_s(init->node, "container", &container));
    TRY(node_get_s(init->node, "shared_name", &name));
    resource->container = xstrndup(container.data, container.len);
    if (name.len > 0) {
        resource->name = xstrndup(name.data, name.len);
    } else if (naming == RESOURCE_BY_NODE_NAME) {
        resource->name = xstrdup(node_state_name(init->node));
    } else {
        struct str text = STR_INIT;
        str_addf(&text, "_%llu_%s", (unsigned long long)(init->host ? init->host->unique_id() : 0),
                 init->node->name);
        resource->name = str_detach(&text);
        resource->is_private = true;
    }
    return NULL;
}

void named_resource_fini(struct named_resource *resource) {
    struct resource_handle *handle = atomic_load(&resource->handle);
    struct object *own = atomic_load(&resource->own);
    if (handle)
        object_unref(&handle->object);
    if (own && resource->empty)
        resource->empty(own);
    object_unref(own);
    variable_unref(atomic_load(&resource->strings));
    free(resource->container);
    free(resource->name);
}

/* ---- handles as outputs ---- */

static struct resource_handle *handle_of(struct kernel_ctx *ctx, struct named_resource *resource) {
    struct resource_handle *handle = atomic_load_explicit(&resource->handle, memory_order_acquire);
    if (likely(handle != NULL))
        return handle;
    struct resource_handle *made = ctx->host->handle_make(ctx, resource->container, resource->name,
                                                          resource->type, DT_INVALID);
    if (atomic_compare_exchange_strong(&resource->handle, &handle, made))
        return made;
    object_unref(&made->object);
    return handle;
}

static void keep_own(struct named_resource *resource, struct object *object) {
    struct object *none = NULL;
    if (!resource->is_private || atomic_load_explicit(&resource->own, memory_order_relaxed))
        return;
    if (!atomic_compare_exchange_strong(&resource->own, &none, object_ref(object)))
        object_unref(object);
}

struct status *named_resource_get(struct kernel_ctx *ctx, struct named_resource *resource,
                                  resource_create_fn *create, void *arg, struct object **ret) {
    TRY(ctx->host->handle_lookup_or_create(ctx, handle_of(ctx, resource), resource->type, create,
                                           arg, ret));
    keep_own(resource, *ret);
    return NULL;
}

static struct status *strings_of(struct kernel_ctx *ctx, struct named_resource *resource,
                                 struct variable **ret) {
    struct variable *strings = atomic_load_explicit(&resource->strings, memory_order_acquire);
    struct tensor value = TENSOR_INIT;
    if (!strings) {
        const char *container = handle_of(ctx, resource)->container;
        TRY(tensor_new(ctx->instance->allocator, DT_STRING, (struct shape){1, (const int64_t[]){2}},
                       &value));
        tensor_set_string(&value, 0, container, strlen(container));
        tensor_set_string(&value, 1, resource->name, strlen(resource->name));
        struct variable *made = variable_new(DT_STRING, resource->name);
        variable_assign_take(made, &value);
        if (atomic_compare_exchange_strong(&resource->strings, &strings, made))
            strings = made;
        else
            variable_unref(made);
    }
    *ret = strings;
    return NULL;
}

struct status *named_resource_output(struct kernel_ctx *ctx, struct named_resource *resource) {
    if (dtype_base((enum dtype)ctx->instance->out_types[0]) == DT_STRING) {
        struct variable *strings = NULL;
        TRY(strings_of(ctx, resource, &strings));
        tensor_init_ref(&ctx->outputs[0], DT_STRING, object_ref(&strings->object));
    } else {
        tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE,
                                  object_ref(&handle_of(ctx, resource)->object));
    }
    return NULL;
}

struct status *named_resource_make_anonymous(struct kernel_ctx *ctx, const char *prefix,
                                             const struct object_type *type,
                                             resource_create_fn *create) {
    struct object *made = NULL;
    struct str name = STR_INIT;
    str_addf(&name, "%s%llu", prefix, (unsigned long long)ctx->host->unique_id());
    struct status *st =
        ctx->host->resource_lookup_or_create(ctx, NULL, str_text(&name), type, create, NULL, &made);
    if (!st)
        tensor_init_scalar_object(
            &ctx->outputs[0], DT_RESOURCE,
            &ctx->host->handle_make(ctx, NULL, str_text(&name), type, DT_INVALID)->object);
    object_unref(made);
    str_fini(&name);
    return st;
}

/* ---- handles as inputs ---- */

static struct status *find_by_strings(struct kernel_ctx *ctx, int input,
                                      const struct object_type *type, struct object **ret) {
    struct variable *variable = NULL;
    struct tensor strings = TENSOR_INIT;
    TRY(variable_of_input(ctx, input, &variable));
    struct status *st = variable_read(variable, &strings);
    variable_unref(variable);
    TRY(st);
    if (strings.dtype != DT_STRING || strings.n_elements != 2) {
        st = status_invalid("Resource handle must have 2 elements, but had shape: %s",
                            TENSOR_SHAPE_TEXT(&strings));
    } else {
        char *container = xstrndup(tensor_string(&strings, 0).data, tensor_string(&strings, 0).len);
        char *name = xstrndup(tensor_string(&strings, 1).data, tensor_string(&strings, 1).len);
        st = ctx->host->resource_lookup(ctx, container, name, type, ret);
        free(container);
        free(name);
    }
    tensor_clear(&strings);
    return st;
}

static COLD struct status *wrong_type(const struct resource_handle *handle,
                                      const struct object_type *type, struct status *why_take) {
    bool is_other = strcmp(handle->type_name, type->name) != 0;
    if (!is_other)
        return why_take;
    status_unref(why_take);
    return status_invalid("Trying to access a handle's resource using the wrong type. The handle "
                          "points to a resource (name '%s') of type "
                          "'%s' but you are trying to access the resource as type '%s'",
                          handle->name, handle->type_name, type->name);
}

struct status *named_resource_of(struct kernel_ctx *ctx, int input, const struct object_type *type,
                                 struct object **ret) {
    const struct resource_handle *handle = NULL;
    if (ctx->inputs[input].storage == TENSOR_REF)
        return find_by_strings(ctx, input, type, ret);
    TRY(handle_of_input(ctx, input, &handle));
    struct status *st = ctx->host->handle_lookup(ctx, handle, type, ret);
    return unlikely(st != NULL) ? wrong_type(handle, type, st) : NULL;
}

/* ---- signatures ---- */

static void add_types(struct str *out, const char *first, const uint8_t *in, int n_in,
                      const uint8_t *out_types, int n_out) {
    str_add(out, first);
    for (int i = 0; i < n_in; i++)
        str_addf(out, ", %s", dtype_name((enum dtype)in[i]));
    str_add(out, "->");
    types_print(out_types, n_out, out);
}

static COLD struct status *wrong_signature(const struct kernel_ctx *ctx, struct type_list in,
                                           struct type_list out) {
    const struct kernel_instance *instance = ctx->instance;
    const char *first = dtype_name((enum dtype)instance->in_types[0]);
    struct str text = STR_INIT;
    add_types(&text, first, instance->in_types + 1, instance->n_inputs - 1, instance->out_types,
              instance->n_outputs);
    str_add(&text, " expected: ");
    add_types(&text, first, in.types, in.n, out.types, out.n);
    struct status *st = status_invalid("Signature mismatch, have: %s", str_text(&text));
    str_fini(&text);
    return st;
}

static bool types_equal(const uint8_t *have, int n_have, struct type_list expected) {
    return n_have == expected.n &&
           (n_have == 0 || memcmp(have, expected.types, (size_t)n_have) == 0);
}

struct status *check_signature(const struct kernel_ctx *ctx, struct type_list in,
                               struct type_list out) {
    const struct kernel_instance *instance = ctx->instance;
    if (likely(types_equal(instance->in_types + 1, instance->n_inputs - 1, in) &&
               types_equal(instance->out_types, instance->n_outputs, out)))
        return NULL;
    return wrong_signature(ctx, in, out);
}

enum kernel_result named_resource_delete(struct kernel_ctx *ctx) {
    const struct resource_handle *handle = NULL;
    KERNEL_TRY(ctx, handle_of_input(ctx, 0, &handle));
    KERNEL_TRY(ctx, ctx->host->resource_delete(ctx, handle));
    return KERNEL_DONE;
}

/* ---- lists ---- */

struct status *read_types(const struct node *node, const char *attr, int n_before,
                          uint8_t **ret_types, int *ret_n) {
    const struct attr_value *values = NULL;
    int n = 0;
    TRY(node_get_list(node, attr, &values, &n));
    uint8_t *types = xcalloc((size_t)(n_before + n) + 1, 1);
    for (int i = 0; i < n; i++)
        types[n_before + i] = (uint8_t)values[i].dtype;
    *ret_types = types;
    *ret_n = n_before + n;
    return NULL;
}

void shapes_free(struct shape *shapes, int n) {
    for (int i = 0; shapes && i < n; i++)
        free((void *)(uintptr_t)shapes[i].dims);
    free(shapes);
}

struct status *read_shapes(const struct node *node, const char *attr, int n_before, bool is_partial,
                           struct shape **ret_shapes, int *ret_n) {
    const struct attr_value *values = NULL;
    int n = 0;
    TRY(node_get_list(node, attr, &values, &n));
    for (int i = 0; i < n; i++) {
        int64_t n_elements;
        if (!is_partial && values[i].shape.rank >= 0 && !shape_is_full(values[i].shape))
            return status_invalid("Shape %s is not fully defined", SHAPE_TEXT(values[i].shape));
        if (shape_is_full(values[i].shape))
            TRY(shape_n_elements(values[i].shape, &n_elements));
    }
    struct shape *shapes = xcalloc((size_t)(n_before + n) + 1, sizeof(*shapes));
    for (int i = 0; i < n; i++)
        shapes[n_before + i] =
            shape_keep(!is_partial && values[i].shape.rank < 0 ? SHAPE_SCALAR : values[i].shape);
    *ret_shapes = shapes;
    *ret_n = n_before + n;
    return NULL;
}

void types_print(const uint8_t *types, int n, struct str *out) {
    for (int i = 0; i < n; i++)
        str_addf(out, "%s%s", i > 0 ? ", " : "", dtype_name((enum dtype)types[i]));
}

void shapes_print(const struct shape *shapes, int n, struct str *out) {
    str_add_char(out, '[');
    for (int i = 0; i < n; i++) {
        str_add(out, i > 0 ? ", " : "");
        shape_print(shapes[i], out);
    }
    str_add_char(out, ']');
}
