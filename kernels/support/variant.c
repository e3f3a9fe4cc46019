/* Holds what all kinds of variants share, and the kernels that sum variants and make zeros of them:
 * AddN, ZerosLike. See variant.h. */
#include "kernels/support/variant.h"

#include <stdio.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/update.h"

extern const struct kernel_list variant_kernels;

// clang-format off
static const struct variant_kind *const kinds[] = {
    &list_variant_kind, &optional_variant_kind, &tensor_variant_kind, &ragged_variant_kind,
    &csr_variant_kind, &dataset_variant_kind, &map_variant_kind, &int_variant_kind,
    &float_variant_kind, &bool_variant_kind, &double_variant_kind,
};
// clang-format on

const struct variant_kind *variant_kind_of(const struct object *object) {
    for (size_t i = 0; object && i < ARRAY_LEN(kinds); i++)
        if (object->type == kinds[i]->type)
            return kinds[i];
    return NULL;
}

/* ---- from a message ---- */

bool variant_read_parts(struct span proto, struct variant_parts *ret) {
    struct proto_field field;
    int more;
    *ret = (struct variant_parts){.tensors = proto};
    while ((more = proto_next(&proto, &field)) > 0) {
        if (field.wire_type != 2)
            continue;
        if (field.number == 1)
            ret->type_name = field.bytes;
        else if (field.number == 2)
            ret->metadata = field.bytes;
        else if (field.number == 3)
            ret->n_tensors++;
    }
    return more == 0;
}

bool variant_next_tensor(struct span *tensors, struct span *ret) {
    struct proto_field field;
    while (proto_next(tensors, &field) > 0) {
        if (field.number == 3 && field.wire_type == 2) {
            *ret = field.bytes;
            return true;
        }
    }
    return false;
}

static struct span serialized(const struct object *object) {
    return bytes_span(CONTAINER_OF(object, const struct bytes, object));
}

struct status *variant_resolve(struct object **object, struct allocator *allocator) {
    struct variant_parts parts;
    if (likely(!*object || (*object)->type != &variant_proto_type) ||
        !variant_read_parts(serialized(*object), &parts))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!span_is(parts.type_name, kinds[i]->type->name))
            continue;
        struct object *made = NULL;
        TRY(kinds[i]->decode(serialized(*object), allocator, &made));
        object_unref(*object);
        *object = made;
        return NULL;
    }
    return NULL;
}

/* ---- nesting ---- */

uint32_t variant_depth_with(const struct tensor *t) {
    uint32_t deepest = 0;
    if (likely(t->dtype != DT_VARIANT))
        return 1;
    struct object *const *objects = tensor_cdata(t);
    for (int64_t i = 0; i < t->n_elements; i++) {
        const struct variant_kind *kind = variant_kind_of(objects[i]);
        if (kind)
            deepest = MAX(deepest, kind->depth(objects[i]));
    }
    return deepest + 1;
}

struct status *variant_check_depth(uint32_t depth) {
    if (likely(depth <= VARIANT_MAX_DEPTH))
        return NULL;
    return status_invalid("Variants nest too deep: the limit is %d", VARIANT_MAX_DEPTH);
}

/* ---- texts for messages ---- */

static struct span type_name_of(const struct object *object) {
    struct variant_parts parts;
    struct span name = span_of(object ? object->type->name : "<empty>");
    if (object && object->type == &variant_proto_type &&
        variant_read_parts(serialized(object), &parts) && parts.type_name.len > 0)
        name = parts.type_name;
    name.len = MIN(name.len, (size_t)128);
    return name;
}

const char *variant_text(const struct object *object) {
    static _Thread_local char words[160];
    struct span name = type_name_of(object);
    snprintf(words, sizeof(words), "Variant<type: %.*s>", (int)name.len, name.data);
    return words;
}

/* ---- sums and zeros ---- */

/* The object of a scalar, writable in *t. The caller must be the only holder of the head. */
static struct object **scalar_object(struct tensor *t) {
    return (struct object **)(void *)t->bytes;
}

static struct status *scalar_unshare(struct tensor *t) {
    if (t->storage == TENSOR_INLINE)
        return NULL;
    struct tensor made = TENSOR_INIT;
    tensor_init_scalar_object(&made, DT_VARIANT,
                              object_ref(*(struct object *const *)tensor_cdata(t)));
    tensor_clear(t);
    tensor_move(t, &made);
    return NULL;
}

/* Sums and zeros recurse, and a variant that arrives serialized may nest deeper than those that our
 * kernels make. */
static _Thread_local uint32_t nesting;

static struct status *objects_add(struct kernel_ctx *ctx, struct object **a,
                                  const struct object *b_shared) {
    struct object *b = object_ref((struct object *)(uintptr_t)b_shared);
    struct status *st = NULL;
    TRY_OUT(variant_resolve(a, ctx->instance->allocator));
    TRY_OUT(variant_resolve(&b, ctx->instance->allocator));
    if (!*a && !b)
        goto out;
    const struct variant_kind *kind = variant_kind_of(*a);
    if (!kind || !kind->add || kind != variant_kind_of(b)) {
        struct span x = type_name_of(*a), y = type_name_of(b);
        st = status_invalid("BinaryOpVariants: Variants a and b have different type ids, or ones "
                            "that cannot be added.  Type names: '%.*s' vs. '%.*s'",
                            (int)x.len, x.data, (int)y.len, y.data);
        goto out;
    }
    nesting++;
    st = variant_check_depth(nesting);
    if (!st)
        st = kind->add(ctx, a, b);
    nesting--;
out:
    object_unref(b);
    return st;
}

/* A tensor like `t`, in the same memory. Of a kernel on a device, the tensors of lists are there,
 * and others are in host memory. */
static struct status *new_like(struct kernel_ctx *ctx, const struct tensor *t, bool is_zeroed,
                               struct tensor *ret) {
    enum dtype dtype = (enum dtype)t->dtype;
    if (tensor_is_on_device(t))
        return kernel_new_on_device(ctx, dtype, tensor_shape(t), is_zeroed, ret);
    struct allocator *allocator =
        kernel_is_for_device(ctx) ? allocator_host() : ctx->instance->allocator;
    return is_zeroed ? tensor_new_zeroed(allocator, dtype, tensor_shape(t), ret)
                     : tensor_new(allocator, dtype, tensor_shape(t), ret);
}

/* to = a + b, in the memory that they are in. */
static struct status *add_elements(struct kernel_ctx *ctx, void *to, const struct tensor *a,
                                   const struct tensor *b) {
    enum dtype dtype = (enum dtype)a->dtype;
    CHECK(tensor_is_on_device(a) == tensor_is_on_device(b));
    if (tensor_is_on_device(a))
        return ctx->instance->engine->update(ctx, UPDATE_ADD, dtype, to, tensor_cdata(a),
                                             tensor_cdata(b), a->n_elements);
    return update_run(ctx->pool, update_find(UPDATE_ADD, dtype), dtype, to, tensor_cdata(a),
                      tensor_cdata(b), a->n_elements);
}

struct status *variant_tensor_add(struct kernel_ctx *ctx, struct tensor *sum,
                                  const struct tensor *by) {
    enum dtype dtype = (enum dtype)sum->dtype;
    if (dtype == DT_VARIANT && by->dtype == DT_VARIANT) {
        if (sum->rank != 0 || by->rank != 0)
            return status_invalid("AddN of non-scalar Tensor with dtype=DT_VARIANT is not "
                                  "supported; inputs[0] has shape: %s.",
                                  TENSOR_SHAPE_TEXT(sum->rank != 0 ? sum : by));
        TRY(scalar_unshare(sum));
        return objects_add(ctx, scalar_object(sum), *(struct object *const *)tensor_cdata(by));
    }
    if (by->dtype != dtype || !shape_equal(tensor_shape(sum), tensor_shape(by)))
        return status_invalid(
            "Trying to add two tensors with incompatible element %s. One is %s and the other is %s",
            by->dtype != dtype ? "types" : "shapes",
            by->dtype != dtype ? dtype_name(dtype) : TENSOR_SHAPE_TEXT(sum),
            by->dtype != dtype ? dtype_name((enum dtype)by->dtype) : TENSOR_SHAPE_TEXT(by));
    if (!dtype_in(dtype, DTYPES_NUMBER) || !update_find(UPDATE_ADD, dtype))
        return status_invalid("Trying to add unsupported dtype %d", (int)dtype);
    if (tensor_is_sole(sum))
        return add_elements(ctx, tensor_data(sum), sum, by);
    struct tensor made = TENSOR_INIT;
    TRY(new_like(ctx, sum, false, &made));
    struct status *st = add_elements(ctx, tensor_data(&made), sum, by);
    tensor_clear(sum);
    tensor_move(sum, &made);
    return st;
}

static struct status *object_zeros(struct kernel_ctx *ctx, struct object **object) {
    TRY(variant_resolve(object, ctx->instance->allocator));
    const struct variant_kind *kind = variant_kind_of(*object);
    if (!*object)
        return NULL;
    if (!kind || !kind->zeros_like)
        return status_invalid(
            "No unary variant unary_op function found for op ZEROS_LIKE Variant type_name: %s",
            variant_text(*object));
    nesting++;
    struct status *st = variant_check_depth(nesting);
    if (!st)
        st = kind->zeros_like(ctx, object);
    nesting--;
    return st;
}

struct status *variant_tensor_zeros(struct kernel_ctx *ctx, struct tensor *t) {
    enum dtype dtype = (enum dtype)t->dtype;
    if (dtype == DT_VARIANT) {
        if (t->rank != 0)
            return status_invalid(
                "ZerosLike non-scalar Tensor with dtype=DT_VARIANT is not supported.");
        TRY(scalar_unshare(t));
        return object_zeros(ctx, scalar_object(t));
    }
    if (!dtype_in(dtype, DTYPES_NUMBER | DTYPE_BIT(DT_BOOL)))
        return status_invalid("Trying to compute zeros_like for unsupported dtype %s",
                              dtype_name(dtype));
    if (tensor_is_sole(t) && !tensor_is_on_device(t)) {
        memset(tensor_data(t), 0, tensor_size_bytes(t));
        return NULL;
    }
    struct tensor made = TENSOR_INIT;
    TRY(new_like(ctx, t, true, &made));
    tensor_clear(t);
    tensor_move(t, &made);
    return NULL;
}

static enum kernel_result add_variants(struct kernel_ctx *ctx) {
    struct tensor *sum = &ctx->inputs[0];
    for (int i = 0; i < ctx->instance->n_inputs; i++) {
        if (ctx->inputs[i].rank != 0)
            return kernel_fail(ctx,
                               status_invalid("AddN of non-scalar Tensor with dtype=DT_VARIANT is "
                                              "not supported; inputs[%d] has shape: %s.",
                                              i, TENSOR_SHAPE_TEXT(&ctx->inputs[i])));
        if (i > 0)
            KERNEL_TRY(ctx, variant_tensor_add(ctx, sum, &ctx->inputs[i]));
    }
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static enum kernel_result zero_variant(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, variant_tensor_zeros(ctx, &ctx->inputs[0]));
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "AddN", {{"T", DTYPE_BIT(DT_VARIANT)}}, .compute = add_variants},
    {.op = "ZerosLike", {{"T", DTYPE_BIT(DT_VARIANT)}}, .compute = zero_variant},
};
// clang-format on

const struct kernel_list variant_kernels = {rows, ARRAY_LEN(rows)};
