/* Computes StringFormat, which replaces the placeholders of a template by summaries of tensors.
 *
 * A summary is nested brackets. Of a long dimension, the first and last `summarize` elements are
 * shown, with "..." between them. */
#include <stdlib.h>

#include "kernels/support/element_text.h"
#include "kernels/host/text/string_internal.h"

struct format_state {
    int64_t summarize;
    int n_parts;
    struct span *parts; /* the template's parts between placeholders; borrowed from the node */
};

static const char *find(struct span text, struct span what) {
    return what.len ? memmem(text.data, text.len, what.data, what.len) : NULL;
}

struct status *string_format_init(struct kernel_init *init) {
    struct span text, placeholder;
    int64_t summarize;
    TRY(node_get_s(init->node, "template", &text));
    TRY(node_get_s(init->node, "placeholder", &placeholder));
    TRY(node_get_i(init->node, "summarize", &summarize));
    struct format_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->summarize = summarize;
    state->parts = xcalloc((size_t)init->node->n_data + 1, sizeof(*state->parts));
    int n_placeholders = 0;
    for (const char *at; (at = find(text, placeholder)) != NULL; n_placeholders++) {
        size_t before = (size_t)(at - text.data);
        if (n_placeholders < init->node->n_data)
            state->parts[state->n_parts++] = (struct span){text.data, before};
        text = (struct span){at + placeholder.len, text.len - before - placeholder.len};
    }
    state->parts[state->n_parts++] = text;
    if (n_placeholders != init->node->n_data)
        return status_invalid("num placeholders in template and num inputs must match: %d vs. %d",
                              n_placeholders, init->node->n_data);
    return NULL;
}

void string_format_fini(void *state_as_void) {
    struct format_state *state = state_as_void;
    if (state)
        free(state->parts);
    free(state);
}

/* ---- a tensor ---- */

static void add_separator(struct str *out, int dim, int rank) {
    if (dim == rank - 1) {
        str_add_char(out, ' ');
        return;
    }
    for (int i = 0; i < rank - dim - 1; i++)
        str_add_char(out, '\n');
    for (int i = 0; i <= dim; i++)
        str_add_char(out, ' ');
}

static void add_dim(struct str *out, const struct tensor *t, int dim, int64_t n_at_ends,
                    int64_t offset, int64_t stride) {
    if (dim == t->rank) {
        element_text_add(t, offset, true, out);
        return;
    }
    int64_t n = tensor_dim(t, dim), below = n ? stride / n : 0, end = MAX(n_at_ends, n - n_at_ends);
    str_add_char(out, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i > 0)
            add_separator(out, dim, t->rank);
        if (i >= n_at_ends && i < end) {
            if (i == 0)
                add_separator(out, dim, t->rank);
            str_add(out, "...");
            i = end - 1;
            continue;
        }
        add_dim(out, t, dim + 1, n_at_ends, offset + i * below, below);
    }
    str_add_char(out, ']');
}

/* StringFormat: the template with each placeholder replaced by the summary of its tensor; a scalar.
 * Errors   INVALID_ARGUMENT   at init: the number of placeholders is not that of tensors */
enum kernel_result string_format(struct kernel_ctx *ctx) {
    const struct format_state *state = ctx->instance->state;
    struct str out = STR_INIT;
    for (int i = 0; i < state->n_parts; i++) {
        str_add_bytes(&out, state->parts[i].data, state->parts[i].len);
        if (i == ctx->instance->n_inputs)
            break;
        const struct tensor *t = kernel_input(ctx, i);
        int64_t n_at_ends =
            state->summarize < 0 ? t->n_elements : MIN(state->summarize, t->n_elements);
        add_dim(&out, t, 0, n_at_ends, 0, t->n_elements);
    }
    struct bytes *text = bytes_new(out.data, out.len);
    str_fini(&out);
    tensor_init_scalar_object(&ctx->outputs[0], DT_STRING, text ? &text->object : NULL);
    return KERNEL_DONE;
}
