/* From an input to its variable, and words for messages: kernels/support/state_internal.h. */
#include "kernels/support/state_internal.h"

#include <stdio.h>

struct status *handle_of_input(const struct kernel_ctx *ctx, int input, const struct resource_handle **ret) {
    const struct tensor *in = &ctx->inputs[input];
    struct object *object = in->dtype == DT_RESOURCE && in->n_elements > 0 ? *(struct object *const *)tensor_cdata(in) : NULL;
    if (unlikely(!object || object->type != &resource_handle_type))
        return status_invalid("Input %d of %s holds no resource handle", input, ctx->instance->node->name);
    *ret = (const struct resource_handle *)object;
    return NULL;
}

struct status *variable_of_input(struct kernel_ctx *ctx, int input, struct variable **ret) {
    const struct tensor *in = &ctx->inputs[input];
    if (in->storage == TENSOR_REF) {
        if (unlikely(!in->ref || in->ref->type != &variable_type))
            return status_invalid("Input %d of %s refers to no variable", input, ctx->instance->node->name);
        *ret = variable_of(object_ref(in->ref));
        return NULL;
    }
    const struct resource_handle *handle = NULL;
    TRY(handle_of_input(ctx, input, &handle));
    struct object *found = NULL;
    TRY(ctx->host->handle_lookup(ctx, handle, &variable_type, &found));
    *ret = variable_of(found);
    return NULL;
}

struct status *variable_check(const struct variable *variable, bool is_ref, enum dtype dtype) {
    if (unlikely(!tensor_has_value(&variable->value))) {
        if (is_ref)
            return status_failed_precondition("Attempting to use uninitialized value %s", variable->name);
        return status_failed_precondition("Error while reading resource variable %s from Container: localhost. This could mean that the "
                                          "variable was uninitialized. Attempting to use uninitialized value %s",
                                          variable->name, variable->name);
    }
    if (unlikely(variable->value.dtype != dtype))
        return status_invalid("DType of variable handle and value does not match. Trying to use variable %s with wrong dtype. Expected %s "
                              "got %s",
                              variable->name, dtype_name(dtype), dtype_name((enum dtype)variable->value.dtype));
    return NULL;
}

enum { N_WORDS = 4, WORDS_LEN = 512 };
static _Thread_local char words[N_WORDS][WORDS_LEN];
static _Thread_local unsigned next_words;

const char *shape_words(struct shape shape) {
    struct str text = STR_INIT;
    shape_print(shape, &text);
    char *out = words[next_words++ % N_WORDS];
    snprintf(out, WORDS_LEN, "%s", str_text(&text));
    str_fini(&text);
    return out;
}

const char *position_words(struct shape shape, int64_t i) {
    char *out = words[next_words++ % N_WORDS];
    size_t len = 0;
    int64_t below = 1;
    for (int d = 0; d < shape.rank; d++)
        below *= MAX(shape.dims[d], 1);
    out[0] = '\0';
    for (int d = 0; d < shape.rank && len < WORDS_LEN - 24; d++) {
        below /= MAX(shape.dims[d], 1);
        len += (size_t)snprintf(out + len, WORDS_LEN - len, "%s%lld", d ? "," : "", (long long)(i / below));
        i %= below;
    }
    return out;
}
