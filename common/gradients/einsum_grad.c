/* Differentiates Einsum: the derivative is again an Einsum.
 *
 * Of y = Σ a·b over the labels that y lacks, da is Σ dy·conj(b) over the labels that a lacks.
 * Labels that only a has were summed alone, so da does not change along them. A label that a has
 * twice chose a diagonal, so da is 0 off the diagonal. */
#include "common/gradients/build.h"
#include "common/ops/einsum_equation.h"

static void add_term(struct str *text, const struct einsum_term *term) {
    for (int i = 0; i <= term->n_labels; i++) {
        if (i == term->ellipsis)
            str_add(text, "...");
        if (i < term->n_labels)
            str_add_char(text, (char)term->labels[i]);
    }
}

static struct node_input einsum_of(struct gradient_ctx *g, const struct str *text, int n,
                                   struct node_input a, struct node_input b) {
    const struct gradient_attr attrs[] = {ATTR_S("equation", str_text(text)),
                                          {NULL, ATTR_STRING, {0}}};
    const struct node_input inputs[] = {a, b};
    return gradient_op(g, "Einsum", false, attrs, n, inputs);
}

/* The labels of a term, each once, without those that only this term has. */
struct parts {
    struct einsum_term all, shared;
};

static void split_term(const struct einsum_equation *equation, int input, struct parts *ret) {
    const struct einsum_term *term = &equation->in[input];
    ret->all = (struct einsum_term){.ellipsis = term->ellipsis >= 0 ? 0 : -1};
    ret->shared = (struct einsum_term){.ellipsis = equation->out.ellipsis >= 0 ? 0 : -1};
    for (int i = 0; i < term->n_labels; i++) {
        uint8_t label = term->labels[i];
        if (einsum_term_has(&ret->all, label))
            continue;
        bool is_elsewhere =
            einsum_term_has(&equation->out, label) ||
            (equation->n_inputs > 1 && einsum_term_has(&equation->in[1 - input], label));
        ret->all.labels[ret->all.n_labels++] = label;
        if (is_elsewhere)
            ret->shared.labels[ret->shared.n_labels++] = label;
    }
}

/* Chooses diagonals and an order: the terms of an Einsum with one input. */
static struct node_input rearranged(struct gradient_ctx *g, struct node_input value,
                                    const struct einsum_term *from, const struct einsum_term *to) {
    struct str text = STR_INIT;
    add_term(&text, from);
    str_add(&text, "->");
    add_term(&text, to);
    value = einsum_of(g, &text, 1, value, value);
    str_fini(&text);
    return value;
}

/* An axis of size 1 for each label that only this input has. Axes count from the end, because an
 * ellipsis stands for any number of them. */
static struct node_input with_all_labels(struct gradient_ctx *g, struct node_input value,
                                         const struct parts *parts) {
    int n_after = parts->shared.n_labels;
    for (int i = 0; i < parts->all.n_labels; i++) {
        if (einsum_term_has(&parts->shared, parts->all.labels[i]))
            n_after--;
        else
            value = EXPAND(value, -1 - n_after);
    }
    return value;
}

static struct node_input input_grad(struct gradient_ctx *g, const struct einsum_equation *equation,
                                    int input) {
    const struct einsum_term *term = &equation->in[input];
    struct parts parts;
    struct str text = STR_INIT;
    split_term(equation, input, &parts);
    add_term(&text, &equation->out);
    if (equation->n_inputs > 1) {
        str_add(&text, ",");
        add_term(&text, &equation->in[1 - input]);
    }
    str_add(&text, "->");
    add_term(&text, &parts.shared);
    struct node_input other = equation->n_inputs > 1 ? CONJ(IN(1 - input)) : DY(0);
    struct node_input value = einsum_of(g, &text, equation->n_inputs, DY(0), other);
    str_fini(&text);

    bool is_plain = parts.all.n_labels == term->n_labels && term->ellipsis <= 0;
    struct node_input like = is_plain ? IN(input) : rearranged(g, IN(input), term, &parts.all);
    value = with_all_labels(g, value, &parts);
    if (parts.shared.n_labels < parts.all.n_labels || parts.shared.ellipsis < parts.all.ellipsis)
        value = ADD(value, ZEROS(like)); /* repeats it along these axes */
    if (parts.shared.ellipsis >= 0)
        value = UNBROADCAST(value, like);
    return is_plain ? value : rearranged(g, value, &parts.all, term);
}

static void einsum_grad(struct gradient_ctx *g) {
    struct einsum_equation equation;
    struct span text = {0};
    if (!g->status)
        g->status = node_get_s(g->node, "equation", &text);
    if (!g->status)
        g->status = einsum_parse(text, g->node->n_data, &equation);
    for (int i = 0; i < g->node->n_data && !g->status; i++)
        SET(i, input_grad(g, &equation, i));
}

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("Einsum", einsum_grad),
};
// clang-format on

const struct gradient_list einsum_gradients = {rows, ARRAY_LEN(rows)};
