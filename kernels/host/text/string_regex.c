/* Computes the ops of regular expressions, which tell whether a text matches a pattern as a whole,
 * or replace the matches in a text. */
#include <stdlib.h>

#include "kernels/host/text/regex.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/support/detached_call.h"

/* from this many texts on, machine code for a pattern that is used once saves time */
enum { OFTEN = 64 };

struct regex_state {
    struct regex *regex;
    struct span rewrite; /* borrowed from the node */
    bool replaces_all;
};

static struct status *init_state(struct kernel_init *init, int use, struct regex_state **ret) {
    struct span pattern;
    struct regex_state *state = xcalloc(1, sizeof(*state));
    init->state = *ret = state;
    TRY(node_get_s(init->node, "pattern", &pattern));
    return regex_new(pattern, use | REGEX_OFTEN, &state->regex);
}

struct status *string_regex_init(struct kernel_init *init) {
    struct regex_state *state;
    return init_state(init, REGEX_WHOLE, &state);
}

struct status *string_regex_replace_init(struct kernel_init *init) {
    struct regex_state *state;
    if (node_is_op(init->node, "StaticRegexReplace")) {
        TRY(init_state(init, REGEX_SEARCH, &state));
        TRY(node_get_s(init->node, "rewrite", &state->rewrite));
    } else {
        init->state = state = xcalloc(1, sizeof(*state));
    }
    return node_get_b(init->node, "replace_global", &state->replaces_all);
}

void string_regex_fini(void *state_as_void) {
    struct regex_state *state = state_as_void;
    if (state)
        regex_free(state->regex);
    free(state);
}

/* ---- the texts of a tensor ---- */

static struct status *match_texts(const struct regex *regex, const struct tensor *input,
                                  struct tensor *output) {
    struct status *st = NULL;
    bool *out = tensor_data(output);
    struct regex_run *run = regex_run_new(regex);
    for (int64_t i = 0; i < input->n_elements && !st && text_goes_on(i); i++)
        st = regex_matches_all(run, tensor_string(input, i), &out[i]);
    regex_run_free(run);
    return st;
}

static struct status *replace_in_texts(const struct regex *regex, struct span rewrite,
                                       bool replaces_all, const struct tensor *input,
                                       struct tensor *output) {
    struct str text = STR_INIT;
    struct status *st = NULL;
    struct bytes **out = string_elements(output);
    struct regex_run *run = regex_run_new(regex);
    for (int64_t i = 0; i < input->n_elements && !st && text_goes_on(i); i++) {
        str_clear(&text);
        st = regex_replace(run, tensor_string(input, i), rewrite, replaces_all, &text);
        out[i] = text_new(str_text(&text), text.len);
    }
    str_fini(&text);
    regex_run_free(run);
    return st;
}

/* ---- long texts, on a thread that can be abandoned ----
 *
 * One call of PCRE2 may take about a second in a long text, and cannot be interrupted. */

struct regex_call {
    struct detached_call detached;
    struct regex *regex;
    bool replaces, replaces_all;
    struct span rewrite;
    struct tensor input, output;
    struct status *status;
};

static void regex_call_work(struct detached_call *detached) {
    struct regex_call *call = CONTAINER_OF(detached, struct regex_call, detached);
    call->status = call->replaces ? replace_in_texts(call->regex, call->rewrite, call->replaces_all,
                                                     &call->input, &call->output)
                                  : match_texts(call->regex, &call->input, &call->output);
}

static void regex_call_free(struct detached_call *detached) {
    struct regex_call *call = CONTAINER_OF(detached, struct regex_call, detached);
    regex_free(call->regex);
    free((char *)call->rewrite.data);
    tensor_clear(&call->input);
    tensor_clear(&call->output);
    status_unref(call->status);
    free(call);
}

static bool has_long_text(const struct tensor *input) {
    enum { LONG_BYTES = 1 << 18 };
    for (int64_t i = 0; i < input->n_elements; i++)
        if (tensor_string(input, i).len > LONG_BYTES)
            return true;
    return false;
}

/* `rewrite` is NULL for a match. */
static struct status *run_texts(struct kernel_ctx *ctx, const struct regex *regex,
                                const struct span *rewrite, bool replaces_all) {
    const struct tensor *input = kernel_input(ctx, 0);
    struct tensor *output = &ctx->outputs[0];
    TRY(kernel_alloc(ctx, 0, rewrite ? DT_STRING : DT_BOOL, tensor_shape(input)));
    if (!has_long_text(input))
        return rewrite ? replace_in_texts(regex, *rewrite, replaces_all, input, output)
                       : match_texts(regex, input, output);
    struct regex_call *call = aligned_alloc(_Alignof(struct regex_call), sizeof(*call));
    if (!call)
        out_of_memory(sizeof(*call));
    *call = (struct regex_call){.detached = {regex_call_work, regex_call_free},
                                .replaces = rewrite != NULL,
                                .replaces_all = replaces_all,
                                .input = TENSOR_INIT,
                                .output = TENSOR_INIT};
    if (rewrite)
        call->rewrite = (struct span){xstrndup(rewrite->data, rewrite->len), rewrite->len};
    tensor_copy(&call->input, input);
    tensor_copy(&call->output, output);
    struct status *st = regex_copy(regex, &call->regex);
    if (!st && !detached_call_run(&call->detached))
        return status_new(STATUS_CANCELLED, "The step was cancelled while this op ran");
    if (!st) {
        st = call->status;
        call->status = NULL;
    }
    regex_call_free(&call->detached);
    return st;
}

/* Reads the pattern or rewrite from an input. */
static struct status *scalar_text(struct kernel_ctx *ctx, int input, const char *what,
                                  struct span *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0) {
        struct status *st =
            status_invalid("%s must be scalar, but received %s", what, TENSOR_SHAPE_TEXT(t));
        return st;
    }
    *ret = tensor_string(t, 0);
    return NULL;
}

/* ---- kernels ---- */

static enum kernel_result end(struct kernel_ctx *ctx, struct status *st) {
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* StaticRegexFullMatch (attr pattern), RegexFullMatch (input 1): does each text as a whole match?
 *   input   string
 *   output  bool, its shape
 * Errors   INVALID_ARGUMENT     a pattern that RE2 refuses, or that is no scalar
 *          RESOURCE_EXHAUSTED   a match beyond its limits */
enum kernel_result string_static_regex_match(struct kernel_ctx *ctx) {
    const struct regex_state *state = ctx->instance->state;
    return end(ctx, run_texts(ctx, state->regex, NULL, false));
}

enum kernel_result string_regex_match(struct kernel_ctx *ctx) {
    struct span pattern;
    struct regex *regex = NULL;
    KERNEL_TRY(ctx, scalar_text(ctx, 1, "Pattern", &pattern));
    KERNEL_TRY(
        ctx, regex_new(pattern,
                       REGEX_WHOLE | (kernel_input(ctx, 0)->n_elements >= OFTEN ? REGEX_OFTEN : 0),
                       &regex));
    struct status *st = run_texts(ctx, regex, NULL, false);
    regex_free(regex);
    return end(ctx, st);
}

/* StaticRegexReplace (attrs pattern, rewrite), RegexReplace (inputs 1 and 2): replaces the first
 * match in each text, or all of them (attr replace_global), by the rewrite, in which \1 to \9 stand
 * for groups and \0 for the match.
 *   input   string
 *   output  string, its shape
 * Errors   as above */
enum kernel_result string_static_regex_replace(struct kernel_ctx *ctx) {
    const struct regex_state *state = ctx->instance->state;
    return end(ctx, run_texts(ctx, state->regex, &state->rewrite, state->replaces_all));
}

enum kernel_result string_regex_replace(struct kernel_ctx *ctx) {
    struct span pattern, rewrite;
    struct regex *regex = NULL;
    KERNEL_TRY(ctx, scalar_text(ctx, 1, "Pattern", &pattern));
    KERNEL_TRY(ctx, scalar_text(ctx, 2, "Rewrite", &rewrite));
    KERNEL_TRY(
        ctx, regex_new(pattern,
                       REGEX_SEARCH | (kernel_input(ctx, 0)->n_elements >= OFTEN ? REGEX_OFTEN : 0),
                       &regex));
    struct status *st = run_texts(ctx, regex, &rewrite,
                                  ((const struct regex_state *)ctx->instance->state)->replaces_all);
    regex_free(regex);
    return end(ctx, st);
}
