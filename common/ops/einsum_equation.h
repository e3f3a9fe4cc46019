/* Parses Einsum's equation, "ab...,bc...->ac...": a term of labels for each input and one for the
 * output. A label is any byte except the separators. The ellipsis covers the dimensions without a
 * label, which are broadcast. Any thread. */
#ifndef MILLRACE_COMMON_OPS_EINSUM_EQUATION_H
#define MILLRACE_COMMON_OPS_EINSUM_EQUATION_H

#include <string.h>

#include "common/base/status.h"
#include "common/tensor/shape.h"

enum {
    EINSUM_MAX_INPUTS = 2,
    /* label of the last dimension of the ellipsis; the one before it has the next number */
    EINSUM_ELLIPSIS = 256,
    EINSUM_N_LABELS = EINSUM_ELLIPSIS + SHAPE_MAX_RANK + 1, /* labels are below */
};

struct einsum_term {
    int n_labels; /* without the ellipsis */
    int ellipsis; /* the number of labels before the ellipsis; -1: no ellipsis */
    uint8_t labels[SHAPE_MAX_RANK];
};
static inline bool einsum_term_has(const struct einsum_term *term, uint8_t label) {
    return memchr(term->labels, label, (size_t)term->n_labels) != NULL;
}
struct einsum_equation {
    int n_inputs;
    struct einsum_term in[EINSUM_MAX_INPUTS], out;
};

/* Errors: INVALID_ARGUMENT where the text is no equation of n_inputs inputs. */
struct status *einsum_parse(struct span text, int n_inputs, struct einsum_equation *ret) MUST_USE;
/* The labels of the dimensions of an input of rank `rank`, and the number of those that the
 * ellipsis covers. Errors: INVALID_ARGUMENT: the rank does not fit. */
struct status *einsum_input_labels(const struct einsum_equation *equation, int input, int rank,
                                   uint16_t labels[SHAPE_MAX_RANK],
                                   int *ret_ellipsis_rank) MUST_USE;
/* The labels and the rank of the output when the ellipses of the inputs cover at most
 * `ellipsis_rank` dimensions. Errors: INVALID_ARGUMENT: the output has no ellipsis for them;
 * RESOURCE_EXHAUSTED: its rank is beyond the limit. */
struct status *einsum_output_labels(const struct einsum_equation *equation, int ellipsis_rank,
                                    uint16_t labels[SHAPE_MAX_RANK], int *ret_rank) MUST_USE;

#endif
