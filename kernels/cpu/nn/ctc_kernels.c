/* Lists the CPU kernels of connectionist temporal classification, and holds what they share and the
 * greedy decoder. */
#include <stdlib.h>

#include "kernels/cpu/nn/ctc_internal.h"
#include "kernels/kernel.h"

extern const struct kernel_list ctc_kernels;

/* ---- inputs ---- */

struct status *ctc_inputs_init(const struct kernel_ctx *ctx, int lengths, struct ctc_inputs *ret) {
    const struct tensor *inputs = kernel_input(ctx, 0), *length = kernel_input(ctx, lengths);
    if (inputs->rank != 3)
        return status_invalid("inputs is not a 3-Tensor");
    if (length->rank != 1)
        return status_invalid("sequence_length is not a vector");
    *ret = (struct ctc_inputs){
        .dtype = (enum dtype)inputs->dtype,
        .logits = tensor_cdata(inputs),
        .lengths = tensor_cdata(length),
        .time = tensor_dim(inputs, 0),
        .batch = tensor_dim(inputs, 1),
        .classes = tensor_dim(inputs, 2),
    };
    /* TensorFlow's loss and its decoders differ in their error codes and in what they accept. */
    bool is_decoder = lengths == 1;
    enum status_code code = is_decoder ? STATUS_FAILED_PRECONDITION : STATUS_INVALID_ARGUMENT;
    if (is_decoder && inputs->n_elements == 0)
        return status_invalid("inputs must not be empty");
    if (ret->batch == 0)
        return status_invalid("batch_size must not be 0");
    if (length->n_elements != ret->batch)
        return status_new(
            code,
            "len(sequence_length) != batch_size.  len(sequence_length):  %lld batch_size: %lld",
            (long long)length->n_elements, (long long)ret->batch);
    if (ret->classes == 0 || ret->classes > INT32_MAX)
        return status_invalid("num_classes is %lld", (long long)ret->classes);
    for (int64_t b = 0; b < ret->batch; b++) {
        if ((ret->lengths[b] < 0 && !is_decoder) || ret->lengths[b] > ret->time)
            return status_new(code, "sequence_length(%lld) <= %lld, but is %d", (long long)b,
                              (long long)ret->time, ret->lengths[b]);
    }
    return NULL;
}

double ctc_log_norm(const struct ctc_inputs *in, int64_t t, int64_t b) {
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < in->classes; c++) {
        double logit = ctc_logit(in, t, b, c);
        max = logit > max ? logit : max;
    }
    if (max == -INFINITY)
        return max;
    for (int64_t c = 0; c < in->classes; c++)
        sum += exp(ctc_logit(in, t, b, c) - max);
    return max + log(sum);
}

/* ---- label sequences ---- */

struct ctc_sequence *ctc_sequences_new(int64_t n) {
    return calloc((size_t)n, sizeof(struct ctc_sequence));
}

void ctc_sequences_free(struct ctc_sequence *sequences, int64_t n) {
    for (int64_t i = 0; sequences && i < n; i++)
        free(sequences[i].labels);
    free(sequences);
}

void ctc_sequence_add(struct ctc_sequence *sequence, int64_t label) {
    if (sequence->n == sequence->capacity) {
        sequence->capacity = MAX((int64_t)16, 2 * sequence->capacity);
        sequence->labels =
            xreallocarray(sequence->labels, (size_t)sequence->capacity, sizeof(*sequence->labels));
    }
    sequence->labels[sequence->n++] = label;
}

struct status *ctc_output_sparse(struct kernel_ctx *ctx, const struct ctc_sequence *sequences,
                                 int64_t batch, int indices, int values, int shape) {
    int64_t n = 0, longest = 0, two = 2;
    for (int64_t b = 0; b < batch; b++) {
        n += sequences[b].n;
        longest = MAX(longest, sequences[b].n);
    }
    int64_t dims[2] = {n, 2};
    TRY(kernel_alloc(ctx, indices, DT_INT64, (struct shape){2, dims}));
    TRY(kernel_alloc(ctx, values, DT_INT64, (struct shape){1, dims}));
    TRY(kernel_alloc(ctx, shape, DT_INT64, (struct shape){1, &two}));
    int64_t *index = tensor_data(&ctx->outputs[indices]),
            *value = tensor_data(&ctx->outputs[values]);
    int64_t *size = tensor_data(&ctx->outputs[shape]);
    for (int64_t b = 0; b < batch; b++) {
        for (int64_t i = 0; i < sequences[b].n; i++) {
            *index++ = b;
            *index++ = i;
            *value++ = sequences[b].labels[i];
        }
    }
    size[0] = batch;
    size[1] = longest;
    return NULL;
}

/* ---- CTCGreedyDecoder ---- */

struct greedy_state {
    int64_t blank; /* negative values count from the end */
    bool merges;
};

static struct status *greedy_init(struct kernel_init *init) {
    struct greedy_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i32(init->node, "blank_index", &state->blank));
    return node_get_b(init->node, "merge_repeated", &state->merges);
}

struct greedy_job {
    struct ctc_inputs in;
    int64_t blank;
    bool merges;
    struct ctc_sequence *sequences;
    void *scores; /* of the inputs' dtype */
};

static void greedy_range(void *arg, int64_t begin, int64_t end) {
    struct greedy_job *job = arg;
    const struct ctc_inputs *in = &job->in;
    for (int64_t b = begin; b < end; b++) {
        double score = 0;
        int64_t previous = -1;
        for (int64_t t = 0; t < in->lengths[b]; t++) {
            int64_t best = 0;
            for (int64_t c = 1; c < in->classes; c++)
                best = ctc_logit(in, t, b, c) > ctc_logit(in, t, b, best) ? c : best;
            score -= ctc_logit(in, t, b, best);
            if (best != job->blank && !(job->merges && best == previous))
                ctc_sequence_add(&job->sequences[b], best);
            previous = best;
        }
        if (in->dtype == DT_FLOAT)
            ((float *)job->scores)[b] = (float)score;
        else
            ((double *)job->scores)[b] = score;
    }
}

/* CTCGreedyDecoder.
 *   inputs            T [time, batch, classes]
 *   sequence_length   int32 [batch]
 *   decoded_indices int64 [n,2], decoded_values int64 [n], decoded_shape int64 [2]
 *   log_probability   T [batch,1]: minus the sum of the largest logits
 * Errors   INVALID_ARGUMENT      shapes, empty inputs, blank_index beyond the classes
 *          FAILED_PRECONDITION   a length beyond time */
static enum kernel_result greedy_compute(struct kernel_ctx *ctx) {
    const struct greedy_state *state = ctx->instance->state;
    struct greedy_job job = {.merges = state->merges};
    KERNEL_TRY(ctx, ctc_inputs_init(ctx, 1, &job.in));
    int64_t classes = job.in.classes, dims[2] = {job.in.batch, 1};
    if (state->blank >= classes || state->blank < -classes)
        return kernel_fail(
            ctx,
            status_invalid("blank_index expected to be between %lld and %lld but was %lld",
                           (long long)-classes, (long long)classes - 1, (long long)state->blank));
    job.blank = state->blank < 0 ? state->blank + classes : state->blank;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 3, job.in.dtype, (struct shape){2, dims}));
    job.scores = tensor_data(&ctx->outputs[3]);
    job.sequences = ctc_sequences_new(job.in.batch);
    if (!job.sequences)
        return kernel_fail(ctx,
                           status_exhausted("OOM for %lld sequences", (long long)job.in.batch));
    pool_parallel_for(ctx->pool, job.in.batch, (double)job.in.time * (double)classes, greedy_range,
                      &job);
    struct status *st = ctc_output_sparse(ctx, job.sequences, job.in.batch, 0, 1, 2);
    ctc_sequences_free(job.sequences, job.in.batch);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

// clang-format off
#define TYPES (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
static const struct kernel_def rows[] = {
    {"CTCLoss", {{"T", TYPES}}, ctc_loss, ctc_loss_init},
    {"CTCGreedyDecoder", {{"T", TYPES}}, greedy_compute, greedy_init},
    {"CTCBeamSearchDecoder", {{"T", TYPES}}, ctc_beam_search, ctc_beam_search_init},
};
// clang-format on

const struct kernel_list ctc_kernels = {rows, ARRAY_LEN(rows)};
