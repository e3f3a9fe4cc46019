/* Parses Einsum's equation and assigns labels to dimensions. */
#include "common/ops/einsum_equation.h"

static struct status *parse_term(struct span text, struct einsum_term *term) {
    int n_periods = 0;
    term->n_labels = 0;
    term->ellipsis = -1;
    for (size_t i = 0; i < text.len; i++)
        n_periods += text.data[i] == '.';
    for (size_t i = 0; i < text.len; i++) {
        bool is_ellipsis =
            n_periods == 3 && i + 3 <= text.len && memcmp(text.data + i, "...", 3) == 0;
        if (text.data[i] == '.' && !is_ellipsis)
            return status_invalid("Expected at most one ellipsis (...), but found %d periods (.) "
                                  "in the input subscript: %.*s",
                                  n_periods, (int)text.len, (const char *)text.data);
        if (is_ellipsis) {
            term->ellipsis = term->n_labels;
            i += 2;
            continue;
        }
        if (term->n_labels == SHAPE_MAX_RANK)
            return status_invalid("Einsum subscript has more than %d labels", SHAPE_MAX_RANK);
        term->labels[term->n_labels++] = (uint8_t)text.data[i];
    }
    return NULL;
}

/* The position of `what` in the text, from `from` on; len where it is not there. */
static size_t find(struct span text, const char *what, size_t from) {
    size_t n = strlen(what);
    for (size_t i = from; i + n <= text.len; i++) {
        if (memcmp(text.data + i, what, n) == 0)
            return i;
    }
    return text.len;
}

static struct status *check_output(const struct einsum_equation *equation, struct span text) {
    for (int i = 0; i < equation->out.n_labels; i++) {
        bool found = false;
        for (int k = 0; k < equation->n_inputs; k++)
            found |= einsum_term_has(&equation->in[k], equation->out.labels[i]);
        if (!found)
            return status_invalid("Einsum output subscripts for equation '%.*s' has label '%c' "
                                  "which is not present in the input subscripts",
                                  (int)text.len, (const char *)text.data, equation->out.labels[i]);
    }
    return NULL;
}

struct status *einsum_parse(struct span text, int n_inputs, struct einsum_equation *ret) {
    size_t arrow = find(text, "->", 0);
    if (arrow == text.len || find(text, "->", arrow + 2) != text.len)
        return status_invalid("Expecting exactly one '->' in einsum equation: %.*s", (int)text.len,
                              (const char *)text.data);
    struct span left = {text.data, arrow};
    int n_terms = 0;
    for (size_t begin = 0; begin <= left.len; n_terms++) {
        size_t end = find(left, ",", begin);
        if (n_terms < EINSUM_MAX_INPUTS)
            TRY(parse_term((struct span){left.data + begin, end - begin}, &ret->in[n_terms]));
        begin = end + 1;
    }
    if (n_terms > EINSUM_MAX_INPUTS)
        return status_invalid("Expecting 1 or 2 input subscripts in equation '%.*s' but got: %d",
                              (int)text.len, (const char *)text.data, n_terms);
    if (n_terms != n_inputs)
        return status_invalid("Expecting %d input subscripts in equation '%.*s' but got %d inputs",
                              n_terms, (int)text.len, (const char *)text.data, n_inputs);
    ret->n_inputs = n_inputs;
    TRY(parse_term((struct span){text.data + arrow + 2, text.len - arrow - 2}, &ret->out));
    return check_output(ret, text);
}

static void expand(const struct einsum_term *term, int ellipsis_rank, uint16_t *labels) {
    int n = 0;
    for (int i = 0; i <= term->n_labels; i++) {
        for (int k = 0; i == term->ellipsis && k < ellipsis_rank; k++)
            labels[n++] = (uint16_t)(EINSUM_ELLIPSIS + ellipsis_rank - 1 - k);
        if (i < term->n_labels)
            labels[n++] = term->labels[i];
    }
}

struct status *einsum_input_labels(const struct einsum_equation *equation, int input, int rank,
                                   uint16_t labels[SHAPE_MAX_RANK], int *ret_ellipsis_rank) {
    const struct einsum_term *term = &equation->in[input];
    bool fits = term->ellipsis < 0 ? rank == term->n_labels : rank >= term->n_labels;
    if (!fits)
        return status_invalid("Expected input %d to have rank %s%d but got: %d", input,
                              term->ellipsis < 0 ? "" : "at least ", term->n_labels, rank);
    *ret_ellipsis_rank = rank - term->n_labels;
    expand(term, *ret_ellipsis_rank, labels);
    return NULL;
}

struct status *einsum_output_labels(const struct einsum_equation *equation, int ellipsis_rank,
                                    uint16_t labels[SHAPE_MAX_RANK], int *ret_rank) {
    const struct einsum_term *out = &equation->out;
    if (out->ellipsis < 0 && ellipsis_rank > 0)
        return status_invalid("Output contains %d broadcasting dimension(s) but no ellipsis (...) "
                              "was found in the output subscripts.",
                              ellipsis_rank);
    if (out->n_labels + ellipsis_rank > SHAPE_MAX_RANK)
        return status_exhausted("The output's rank of %d is beyond the limit of %d",
                                out->n_labels + ellipsis_rank, SHAPE_MAX_RANK);
    *ret_rank = out->n_labels + ellipsis_rank;
    expand(out, ellipsis_rank, labels);
    return NULL;
}
