/* Computes the ops of optionals: variants that hold some tensors, or none. An optional is immutable
 * unless it has exactly one holder. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/data/optional.h"
#include "kernels/kernel.h"
#include "kernels/support/swap_many.h"
#include "kernels/support/variant.h"

extern const struct kernel_list optional_kernels;

/* A component of an optional that arrives may claim this much memory beyond what its message
 * justifies. */
enum { SPARE_CLAIM_BYTES = 1 << 20 };

/* ---- the object ---- */

struct optional {
    struct object object;
    uint32_t depth; /* how deeply variants are nested in it: see variant_check_depth */
    bool has_value;
    int64_t n; /* 0 when there is no value */
    struct tensor *components;
};

static void optional_free(struct object *object) {
    struct optional *optional = (struct optional *)object;
    for (int64_t i = 0; i < optional->n; i++)
        tensor_clear(&optional->components[i]);
    free(optional->components);
    free(optional);
}

/* Writes a VariantTensorDataProto whose tensors are the components. Its metadata is one byte, which
 * tells whether there is a value. */
static void optional_encode(const struct object *object, struct str *out) {
    const struct optional *optional = (const struct optional *)object;
    char has_value = optional->has_value;
    proto_add_bytes(out, 1, object->type->name, strlen(object->type->name));
    if (out->len > VARIANT_MAX_PROTO_BYTES)
        return;
    proto_add_bytes(out, 2, &has_value, 1);
    for (int64_t i = 0; i < optional->n; i++) {
        size_t begin = proto_begin(out, 3, 0);
        tensor_to_proto(&optional->components[i], out);
        proto_end(out, begin, 0);
    }
}

static const struct object_type optional_type = {
    .name = "tensorflow::data::Optional", .free = optional_free, .encode = optional_encode};

/* Makes an optional with n components that hold nothing yet. */
static struct status *optional_new(bool has_value, int64_t n, struct optional **ret) {
    size_t size = (size_t)n * sizeof(struct tensor);
    struct tensor *components = n > 0 ? aligned_alloc(_Alignof(struct tensor), size) : NULL;
    if (n > 0 && !components)
        return status_exhausted("Out of memory for the %lld components of an optional",
                                (long long)n);
    if (n > 0)
        memset(components, 0, size);
    struct optional *optional = xcalloc(1, sizeof(*optional));
    object_init(&optional->object, &optional_type);
    optional->depth = 1;
    optional->has_value = has_value;
    optional->n = n;
    optional->components = components;
    *ret = optional;
    return NULL;
}

static struct status *note_depth(struct optional *optional) {
    for (int64_t i = 0; i < optional->n; i++)
        optional->depth = MAX(optional->depth, variant_depth_with(&optional->components[i]));
    return variant_check_depth(optional->depth);
}

static uint32_t optional_depth(const struct object *object) {
    return ((const struct optional *)object)->depth;
}

static struct status *decode_components(struct optional *optional, struct span tensors,
                                        struct allocator *allocator) {
    struct span proto;
    for (int64_t i = 0; i < optional->n && variant_next_tensor(&tensors, &proto); i++) {
        TRY(tensor_proto_check_claim(proto, SPARE_CLAIM_BYTES));
        TRY(tensor_from_proto(proto, NULL, allocator, &optional->components[i]));
    }
    return NULL;
}

static struct status *optional_decode(struct span proto, struct allocator *allocator,
                                      struct object **ret) {
    struct variant_parts parts;
    if (!variant_read_parts(proto, &parts) || parts.metadata.len != 1)
        return status_invalid("Malformed Optional: its fields cannot be read");
    bool has_value = parts.metadata.data[0] != 0;
    struct optional *optional = NULL;
    TRY(optional_new(has_value, has_value ? parts.n_tensors : 0, &optional));
    struct status *st = decode_components(optional, parts.tensors, allocator);
    if (st)
        object_unref(&optional->object);
    else
        *ret = &optional->object;
    return st;
}

/* Makes a copy that shares the components. */
static struct status *optional_clone(const struct optional *of, struct optional **ret) {
    TRY(optional_new(of->has_value, of->n, ret));
    (*ret)->depth = of->depth;
    for (int64_t i = 0; i < of->n; i++)
        tensor_copy(&(*ret)->components[i], &of->components[i]);
    return NULL;
}

static struct status *optional_copy(const struct object *object, struct object **ret,
                                    struct tensor **ret_tensors, int64_t *ret_n) {
    struct optional *made = NULL;
    TRY(optional_clone((const struct optional *)object, &made));
    *ret = &made->object;
    *ret_tensors = made->components;
    *ret_n = made->n;
    return NULL;
}

/* Makes *a an optional that nobody else holds. Its components may still be shared. */
static struct status *optional_own(struct object **a) {
    struct optional *made = NULL;
    if (atomic_load_explicit(&(*a)->n_refs, memory_order_acquire) == 1)
        return NULL;
    TRY(optional_clone((struct optional *)*a, &made));
    object_unref(*a);
    *a = &made->object;
    return NULL;
}

static struct status *optional_add(struct kernel_ctx *ctx, struct object **a,
                                   const struct object *b) {
    const struct optional *by = (const struct optional *)b;
    if (((struct optional *)*a)->has_value != by->has_value)
        return status_invalid(
            "Cannot add optionals because one has a value and the other doesn't.");
    if (((struct optional *)*a)->n != by->n)
        return status_invalid(
            "Cannot add optionals because they have different numbers of components: %lld and %lld",
            (long long)((struct optional *)*a)->n, (long long)by->n);
    TRY(optional_own(a));
    struct optional *sum = (struct optional *)*a;
    for (int64_t i = 0; i < sum->n; i++)
        TRY(swap_in_and_add(ctx, &sum->components[i], &by->components[i]));
    return note_depth(sum);
}

static struct status *optional_zeros(struct kernel_ctx *ctx, struct object **a) {
    TRY(optional_own(a));
    struct optional *optional = (struct optional *)*a;
    for (int64_t i = 0; i < optional->n; i++)
        TRY(variant_tensor_zeros(ctx, &optional->components[i]));
    return note_depth(optional);
}

const struct variant_kind optional_variant_kind = {&optional_type, optional_decode, optional_depth,
                                                   optional_add,   optional_zeros,  optional_copy};

/* ---- kernels ---- */

static enum kernel_result optional_none(struct kernel_ctx *ctx) {
    struct optional *optional = NULL;
    KERNEL_TRY(ctx, optional_new(false, 0, &optional));
    tensor_init_scalar_object(&ctx->outputs[0], DT_VARIANT, &optional->object);
    return KERNEL_DONE;
}

struct status *optional_make(bool has_value, struct tensor *components, int n, struct tensor *ret) {
    struct optional *optional = NULL;
    TRY(optional_new(has_value, has_value ? n : 0, &optional));
    for (int64_t i = 0; i < optional->n; i++)
        tensor_move(&optional->components[i], &components[i]);
    struct status *st = note_depth(optional);
    if (st)
        object_unref(&optional->object);
    else
        tensor_init_scalar_object(ret, DT_VARIANT, &optional->object);
    return st;
}

static enum kernel_result optional_from_value(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, optional_make(true, ctx->inputs, ctx->instance->n_inputs, &ctx->outputs[0]));
    return KERNEL_DONE;
}

/* Returns the optional that the input holds, with a reference of its own. */
static struct status *optional_of_input(struct kernel_ctx *ctx, struct optional **ret) {
    struct tensor *in = &ctx->inputs[0];
    const char *op = ctx->instance->def->op;
    if (in->rank != 0)
        return status_invalid(
            "Input to %s must be a scalar tensor containing an OptionalVariant object.", op);
    struct object *object = object_ref(*(struct object *const *)tensor_cdata(in));
    struct status *st = variant_resolve(&object, ctx->instance->allocator);
    if (!st && (!object || object->type != &optional_type))
        st = status_invalid("Input to %s must be an OptionalVariant object.", op);
    if (st) {
        object_unref(object);
        return st;
    }
    tensor_clear(in);
    *ret = (struct optional *)object;
    return NULL;
}

static enum kernel_result optional_has_value(struct kernel_ctx *ctx) {
    struct optional *optional = NULL;
    KERNEL_TRY(ctx, optional_of_input(ctx, &optional));
    tensor_init_scalar_bool(&ctx->outputs[0], optional->has_value);
    object_unref(&optional->object);
    return KERNEL_DONE;
}

/* The requested shapes, borrowed from the node. */
struct wanted {
    const struct attr_value *shapes;
    int n;
};

static struct status *get_value_init(struct kernel_init *init) {
    struct wanted *wanted = xcalloc(1, sizeof(*wanted));
    init->state = wanted;
    TRY(node_get_list(init->node, "output_shapes", &wanted->shapes, &wanted->n));
    if (wanted->n != init->node->n_outputs)
        return status_invalid(
            "output_types and output_shapes must be the same length, got: %d vs. %d",
            init->node->n_outputs, wanted->n);
    return NULL;
}

static struct status *check_components(const struct kernel_ctx *ctx,
                                       const struct optional *optional) {
    const struct wanted *wanted = ctx->instance->state;
    if (!optional->has_value)
        return status_invalid("The given optional does not have a value.");
    if (optional->n != wanted->n)
        return status_invalid("The given optional has %lld components, expected %d",
                              (long long)optional->n, wanted->n);
    for (int i = 0; i < wanted->n; i++) {
        const struct tensor *t = &optional->components[i];
        enum dtype dtype = (enum dtype)ctx->instance->out_types[i];
        if (t->dtype != dtype)
            return status_invalid("The given optional does not match the expected type for "
                                  "component %d. Expected: %s. Actual: %s.",
                                  i, dtype_name(dtype), dtype_name((enum dtype)t->dtype));
        if (!shape_is_compatible(wanted->shapes[i].shape, tensor_shape(t)))
            return status_invalid("The given optional does not match the expected shape for "
                                  "component %d. Expected: %s. Actual: %s.",
                                  i, SHAPE_TEXT(wanted->shapes[i].shape), TENSOR_SHAPE_TEXT(t));
    }
    return NULL;
}

static enum kernel_result optional_get_value(struct kernel_ctx *ctx) {
    struct optional *optional = NULL;
    KERNEL_TRY(ctx, optional_of_input(ctx, &optional));
    struct status *st = check_components(ctx, optional);
    bool is_sole = atomic_load_explicit(&optional->object.n_refs, memory_order_acquire) == 1;
    for (int64_t i = 0; !st && i < optional->n; i++) {
        if (is_sole)
            tensor_move(&ctx->outputs[i], &optional->components[i]);
        else
            tensor_copy(&ctx->outputs[i], &optional->components[i]);
    }
    object_unref(&optional->object);
    KERNEL_TRY(ctx, st);
    return swap_in_outputs(ctx);
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "OptionalNone", .compute = optional_none},
    {.op = "OptionalFromValue", .compute = optional_from_value},
    {.op = "OptionalHasValue", .compute = optional_has_value},
    {.op = "OptionalGetValue", .compute = optional_get_value, .init = get_value_init},
};
// clang-format on

const struct kernel_list optional_kernels = {rows, ARRAY_LEN(rows)};
