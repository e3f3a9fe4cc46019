/* Computes CTCLoss: -log p(labels | inputs), summed over all alignments of labels and blanks with
 * the time steps, and its gradient by the logits [Graves, Fernández, Gomez, Schmidhuber 2006: the
 * forward-backward recursion on the labels with a blank around each].
 *
 * Everything is computed in logarithms and in double, whatever the inputs' type. The pool's threads
 * share the sequences of a batch. */
#include <pthread.h>
#include <stdlib.h>

#include "kernels/cpu/nn/ctc_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/scratch.h"

struct loss_state {
    bool collapses; /* equal neighbours among the labels count as one */
    bool merges;    /* a class that is repeated without a blank is one label */
    /* a sequence with more labels than inputs has loss 0; without the attr it is an error */
    bool ignores_longer;
};

struct status *ctc_loss_init(struct kernel_init *init) {
    struct loss_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "preprocess_collapse_repeated", &state->collapses));
    TRY(node_get_b(init->node, "ctc_merge_repeated", &state->merges));
    return node_get_b(init->node, "ignore_longer_outputs_than_inputs", &state->ignores_longer);
}

/* The labels of all sequences, one after the other, in the form that the recursion needs. */
struct targets {
    int64_t *first;  /* batch + 1 entries */
    bool *is_longer; /* by sequence: more labels than inputs, before any collapse */
    int32_t *labels;
};

struct loss_job {
    struct kernel_ctx *ctx;
    const struct loss_state *state;
    struct ctc_inputs in;
    struct targets targets;
    void *loss, *gradient;
    pthread_mutex_t lock;
    struct status *failure; /* guarded by lock */
};

/* ---- labels ---- */

static struct status *check_indices(const struct ctc_inputs *in, const struct tensor *indices,
                                    const struct tensor *values) {
    if (indices->rank != 2)
        return status_invalid("labels_indices is not a matrix");
    if (values->rank != 1)
        return status_invalid("labels_values is not a vector");
    if (tensor_dim(indices, 1) != 2)
        return status_invalid("labels_indices must have two columns, but has shape %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (tensor_dim(indices, 0) != values->n_elements)
        return status_invalid("labels_indices and labels_values must contain the same number of "
                              "rows, but saw shapes: %s vs. %s",
                              TENSOR_SHAPE_TEXT(indices), TENSOR_SHAPE_TEXT(values));
    const int64_t *index = tensor_cdata(indices);
    for (int64_t i = 0; i < values->n_elements; i++, index += 2) {
        TRY(kernel_loop_check(i + 1));
        if (index[0] < 0 || index[0] >= in->batch || index[1] < 0 || index[1] >= in->time)
            return status_invalid("labels_indices[%lld] = [%lld,%lld] is out of bounds: need 0 <= "
                                  "index < [%lld,%lld]",
                                  (long long)i, (long long)index[0], (long long)index[1],
                                  (long long)in->batch, (long long)in->time);
        if (i > 0 && (index[0] < index[-2] || (index[0] == index[-2] && index[1] <= index[-1])))
            return status_invalid("labels_indices[%lld] = [%lld,%lld] is %s", (long long)i,
                                  (long long)index[0], (long long)index[1],
                                  index[0] == index[-2] && index[1] == index[-1] ? "repeated"
                                                                                 : "out of order");
    }
    return NULL;
}

/* Copies one sequence's labels [begin, end), without those that collapse and without blanks at the
 * end. */
static struct status *take_labels(const struct loss_job *job, const int32_t *values, int64_t begin,
                                  int64_t end, int64_t b, int64_t *n) {
    int64_t blank = job->in.classes - 1;
    bool has_ended = false;
    for (int64_t i = begin; i < end; i++) {
        if (job->state->collapses && i > begin && values[i] == values[i - 1])
            continue;
        if (values[i] >= blank) {
            has_ended = true;
            continue;
        }
        if (has_ended)
            return status_invalid("Saw a non-null label (index >= num_classes - 1) following a "
                                  "null label, batch: %lld num_classes: %lld",
                                  (long long)b, (long long)job->in.classes);
        if (values[i] < 0)
            return status_invalid("All labels must be nonnegative integers, batch: %lld labels: %d",
                                  (long long)b, values[i]);
        job->targets.labels[(*n)++] = values[i];
    }
    return NULL;
}

static struct status *take_all_labels(struct loss_job *job, const struct tensor *indices,
                                      const struct tensor *values) {
    const int64_t *index = tensor_cdata(indices);
    const int32_t *labels = tensor_cdata(values);
    int64_t n = 0, at = 0;
    for (int64_t b = 0; b < job->in.batch; b++) {
        int64_t begin = at;
        while (at < values->n_elements && index[2 * at] == b)
            at++;
        if (at == begin)
            return status_invalid("Labels length is zero in batch %lld", (long long)b);
        job->targets.first[b] = n;
        TRY(take_labels(job, labels, begin, at, b, &n));
        /* the limit holds even where labels collapse */
        job->targets.is_longer[b] = at - begin > job->in.lengths[b];
        if (!job->state->ignores_longer && job->targets.is_longer[b])
            return status_invalid(
                "Not enough time for target transition sequence (required: %lld, available: "
                "%d)%lldYou can turn this "
                "error into a warning by using the flag ignore_longer_outputs_than_inputs",
                (long long)(at - begin), job->in.lengths[b], (long long)b);
    }
    job->targets.first[job->in.batch] = n;
    return NULL;
}

/* ---- one sequence ----
 *
 * State u of U = 2·labels + 1 is a blank for even u, and label u / 2 for odd u. A path advances by
 * 0, 1, or 2 (which skips a blank). */

struct sequence {
    const struct loss_job *job;
    int64_t b, time, n_positions;
    const int32_t *labels;
    double *log_norm; /* by time step */
    /* [time, states]: the probability of all paths from the start to a state at a time step,
     * including that time step's output */
    double *alpha;
    /* [states]: the probability of all paths from a state to the end, without the state's own
     * output */
    double *beta, *further;
    double *by_class; /* [classes] */
};

static int64_t class_at(const struct sequence *s, int64_t u) {
    return u % 2 ? s->labels[u / 2] : s->job->in.classes - 1;
}
static double log_output(const struct sequence *s, int64_t t, int64_t u) {
    return ctc_logit(&s->job->in, t, s->b, class_at(s, u)) - s->log_norm[t];
}
/* May a path stay at u, or go from u - 2 to u? */
static bool may_stay(const struct sequence *s, int64_t u) {
    return u % 2 == 0 || s->job->state->merges;
}
static bool may_jump(const struct sequence *s, int64_t u) {
    return u % 2 && u > 1 && !(s->job->state->merges && s->labels[u / 2] == s->labels[u / 2 - 1]);
}

static void forward(const struct sequence *s) {
    int64_t n = s->n_positions;
    for (int64_t u = 0; u < n; u++)
        s->alpha[u] = u < 2 ? log_output(s, 0, u) : -INFINITY;
    for (int64_t t = 1; t < s->time; t++) {
        const double *before = s->alpha + (t - 1) * n;
        for (int64_t u = 0; u < n; u++) {
            double sum = may_stay(s, u) ? before[u] : -INFINITY;
            if (u > 0)
                sum = ctc_log_add(sum, before[u - 1]);
            if (may_jump(s, u))
                sum = ctc_log_add(sum, before[u - 2]);
            s->alpha[t * n + u] = sum == -INFINITY ? sum : sum + log_output(s, t, u);
        }
    }
}

/* Computes beta of time step t from that of t + 1. */
static void step_back(struct sequence *s, int64_t t) {
    int64_t n = s->n_positions;
    double *next = s->further;
    for (int64_t u = 0; u < n; u++)
        next[u] = s->beta[u] == -INFINITY ? -INFINITY : s->beta[u] + log_output(s, t + 1, u);
    for (int64_t u = 0; u < n; u++) {
        double sum = may_stay(s, u) ? next[u] : -INFINITY;
        if (u + 1 < n)
            sum = ctc_log_add(sum, next[u + 1]);
        if (u + 2 < n && may_jump(s, u + 2))
            sum = ctc_log_add(sum, next[u + 2]);
        s->beta[u] = sum;
    }
}

static void set_real(enum dtype dtype, void *at, int64_t i, double v) {
    if (dtype == DT_FLOAT)
        ((float *)at)[i] = (float)v;
    else
        ((double *)at)[i] = v;
}

/* d loss / d logit = output - the part of all paths' probability that uses the class at this time
 * step. */
static void gradient_at(const struct sequence *s, int64_t t, double log_p) {
    const struct ctc_inputs *in = &s->job->in;
    for (int64_t c = 0; c < in->classes; c++)
        s->by_class[c] = -INFINITY;
    for (int64_t u = 0; u < s->n_positions && log_p != -INFINITY; u++) {
        double *sum = &s->by_class[class_at(s, u)];
        *sum = ctc_log_add(*sum, s->alpha[t * s->n_positions + u] + s->beta[u]);
    }
    int64_t row = (t * in->batch + s->b) * in->classes;
    for (int64_t c = 0; c < in->classes; c++) {
        double part = s->by_class[c] == -INFINITY ? 0 : exp(s->by_class[c] - log_p);
        set_real(in->dtype, s->job->gradient, row + c,
                 exp(ctc_logit(in, t, s->b, c) - s->log_norm[t]) - part);
    }
}

static void run_recursion(struct sequence *s) {
    const double *last = s->alpha + (s->time - 1) * s->n_positions;
    forward(s);
    double log_p = last[s->n_positions - 1];
    if (s->n_positions > 1)
        log_p = ctc_log_add(log_p, last[s->n_positions - 2]);
    set_real(s->job->in.dtype, s->job->loss, s->b, -log_p);
    for (int64_t u = 0; u < s->n_positions; u++)
        s->beta[u] = u >= s->n_positions - 2 ? 0 : -INFINITY;
    for (int64_t t = s->time - 1; t >= 0; t--) {
        if (t < s->time - 1)
            step_back(s, t);
        gradient_at(s, t, log_p);
    }
}

static struct status *run_sequence(const struct loss_job *job, int64_t b) {
    const int64_t *first = job->targets.first + b;
    struct tensor memory[2] = {TENSOR_INIT, TENSOR_INIT};
    struct sequence s = {.job = job,
                         .b = b,
                         .time = job->in.lengths[b],
                         .n_positions = 2 * (first[1] - first[0]) + 1};
    s.labels = job->targets.labels + first[0];
    if (s.time == 0 || job->targets.is_longer[b])
        return NULL; /* its loss is 0 */
    struct status *st =
        scratch_new(job->ctx, DT_DOUBLE, s.time, s.n_positions, &memory[0], &s.alpha);
    if (!st)
        st = scratch_new(job->ctx, DT_DOUBLE, s.time + 2 * s.n_positions + job->in.classes, 1,
                         &memory[1], &s.log_norm);
    if (!st) {
        s.beta = s.log_norm + s.time;
        s.further = s.beta + s.n_positions;
        s.by_class = s.further + s.n_positions;
        for (int64_t t = 0; t < s.time; t++)
            s.log_norm[t] = ctc_log_norm(&job->in, t, b);
        run_recursion(&s);
    }
    tensor_clear(&memory[0]);
    tensor_clear(&memory[1]);
    return st;
}

static void loss_range(void *arg, int64_t begin, int64_t end) {
    struct loss_job *job = arg;
    for (int64_t b = begin; b < end; b++) {
        struct status *st = run_sequence(job, b);
        if (!st)
            continue;
        pthread_mutex_lock(&job->lock);
        status_unref(job->failure);
        job->failure = st;
        pthread_mutex_unlock(&job->lock);
    }
}

/* ---- the kernel ---- */

static struct status *prepare(struct loss_job *job) {
    struct kernel_ctx *ctx = job->ctx;
    const struct tensor *indices = kernel_input(ctx, 1), *values = kernel_input(ctx, 2);
    TRY(ctc_inputs_init(ctx, 3, &job->in));
    TRY(check_indices(&job->in, indices, values));
    job->targets.first = xcalloc((size_t)job->in.batch + 1, sizeof(*job->targets.first));
    job->targets.is_longer = xcalloc((size_t)job->in.batch + 1, sizeof(*job->targets.is_longer));
    job->targets.labels = xcalloc((size_t)values->n_elements + 1, sizeof(*job->targets.labels));
    TRY(take_all_labels(job, indices, values));
    TRY(tensor_new_zeroed(ctx->instance->allocator, job->in.dtype,
                          (struct shape){1, &job->in.batch}, &ctx->outputs[0]));
    TRY(tensor_new_zeroed(ctx->instance->allocator, job->in.dtype,
                          tensor_shape(kernel_input(ctx, 0)), &ctx->outputs[1]));
    job->loss = tensor_data(&ctx->outputs[0]);
    job->gradient = tensor_data(&ctx->outputs[1]);
    return NULL;
}

/* CTCLoss. The last class is the blank.
 *   inputs            T [time, batch, classes], logits
 *   sequence_length   int32 [batch]
 *   labels_indices    int64 [n,2] in order: sequence, position
 *   labels_values     int32 [n]
 *   loss, gradient    T [batch], T like inputs; both 0 for a sequence without inputs
 * Errors   INVALID_ARGUMENT   shapes, a length beyond time, labels that are negative, out of order
 *                             or more than their inputs
 * Cost     time · (labels + classes) for each sequence; 16 bytes · time · labels of memory for each
 *          sequence that is being computed */
enum kernel_result ctc_loss(struct kernel_ctx *ctx) {
    struct loss_job job = {.ctx = ctx, .state = ctx->instance->state};
    struct status *st = prepare(&job);
    if (!st) {
        int64_t labels = job.targets.first[job.in.batch] / job.in.batch;
        double cost_ns = (double)job.in.time * (80 * (double)labels + 10 * (double)job.in.classes);
        pthread_mutex_init(&job.lock, NULL);
        pool_parallel_for(ctx->pool, job.in.batch, cost_ns, loss_range, &job);
        pthread_mutex_destroy(&job.lock);
        st = job.failure;
    }
    free(job.targets.first);
    free(job.targets.is_longer);
    free(job.targets.labels);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
