/* StaticRegexFullMatch and RegexFullMatch: which texts match a pattern as a whole. */
#include <stdlib.h>

#include "kernels/cpu/regex.h"
#include "kernels/cpu/string_internal.h"

struct status *string_regex_init(struct kernel_init *init) {
    struct span pattern;
    struct regex *regex = NULL;
    TRY(node_get_s(init->node, "pattern", &pattern));
    TRY(regex_new(pattern, &regex));
    init->state = regex;
    return NULL;
}

void string_regex_fini(void *state) { regex_free(state); }

static enum kernel_result match_all(struct kernel_ctx *ctx, const struct regex *regex) {
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_BOOL, tensor_shape(input)));
    bool *out = tensor_data(&ctx->outputs[0]);
    for (int64_t i = 0; i < input->n_elements; i++)
        out[i] = regex_matches_all(regex, tensor_string(input, i));
    return KERNEL_DONE;
}

enum kernel_result string_static_regex_match(struct kernel_ctx *ctx) { return match_all(ctx, ctx->instance->state); }

enum kernel_result string_regex_match(struct kernel_ctx *ctx) {
    const struct tensor *pattern = kernel_input(ctx, 1);
    struct regex *regex = NULL;
    if (pattern->rank != 0) {
        char *shape = string_shape_text(pattern);
        struct status *st = status_invalid("Pattern must be scalar, but received %s", shape);
        free(shape);
        return kernel_fail(ctx, st);
    }
    KERNEL_TRY(ctx, regex_new(tensor_string(pattern, 0), &regex));
    enum kernel_result result = match_all(ctx, regex);
    regex_free(regex);
    return result;
}
