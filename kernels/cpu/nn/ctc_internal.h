/* What the kernels of connectionist temporal classification share. */
#ifndef MILLRACE_KERNELS_CPU_NN_CTC_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_CTC_INTERNAL_H

#include <math.h>

#include "kernels/kernel.h"

/* Logits [time, batch, classes] of float or double, and the length of each sequence of the batch.
 */
struct ctc_inputs {
    enum dtype dtype;
    const void *logits;
    const int32_t *lengths;
    int64_t time, batch, classes;
};
/* Reads the inputs 0 and `lengths`. Errors: INVALID_ARGUMENT, also for a negative length;
 * FAILED_PRECONDITION. */
struct status *ctc_inputs_init(const struct kernel_ctx *ctx, int lengths,
                               struct ctc_inputs *ret) MUST_USE;

static inline double ctc_logit(const struct ctc_inputs *in, int64_t t, int64_t b, int64_t c) {
    int64_t i = (t * in->batch + b) * in->classes + c;
    return in->dtype == DT_FLOAT ? (double)((const float *)in->logits)[i]
                                 : ((const double *)in->logits)[i];
}
/* Returns log Σ e^logit at time t of sequence b. A logit minus this is a log-probability. */
double ctc_log_norm(const struct ctc_inputs *in, int64_t t, int64_t b);

/* Returns log(e^a + e^b), where -inf stands for a probability of 0. */
static inline double ctc_log_add(double a, double b) {
    double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

/* The label sequences of a batch, each with room for more labels. */
struct ctc_sequence {
    int64_t *labels;
    int64_t n, capacity;
};
/* Returns n empty sequences; NULL when there is no memory. */
struct ctc_sequence *ctc_sequences_new(int64_t n);
void ctc_sequences_free(struct ctc_sequence *sequences, int64_t n);
void ctc_sequence_add(struct ctc_sequence *sequence, int64_t label);
/* Sets the outputs `indices`, `values` and `shape` to the sequences as a sparse tensor [batch,
 * longest]. */
struct status *ctc_output_sparse(struct kernel_ctx *ctx, const struct ctc_sequence *sequences,
                                 int64_t batch, int indices, int values, int shape) MUST_USE;

struct status *ctc_loss_init(struct kernel_init *init);        /* ctc_loss.c */
struct status *ctc_beam_search_init(struct kernel_init *init); /* ctc_beam_search.c */
kernel_fn ctc_loss, ctc_beam_search;

#endif
