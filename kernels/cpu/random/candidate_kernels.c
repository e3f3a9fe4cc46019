/* Runs the candidate samplers, which draw classes for a batch, without repetition if the attr says
 * so, and tell how often each class was to be expected. The numbers are those of TensorFlow for the
 * same seeds [Jean et al. 2015; Mikolov et al. 2013 explain the use]. */
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/pool_sort.h"
#include "kernels/cpu/random/candidate_internal.h"
#include "kernels/support/cancel.h"
#include "kernels/support/io_task.h"
#include "kernels/support/scratch.h"

extern const struct kernel_list candidate_kernels;

/* ---- distributions without weights ---- */

static int64_t uniform_draw(const struct candidate_node *node, struct philox_words *words) {
    return (int64_t)philox_words_below_u64(words, (uint64_t)node->range);
}
static float uniform_probability(const struct candidate_node *node, int64_t value) {
    (void)value;
    return (float)(1.0 / (double)node->range);
}
static const struct candidate_law uniform = {.draw = uniform_draw,
                                             .probability = uniform_probability};

/* Class k has the part [log(k + 1), log(k + 2)) of [0, log(range + 1)). */
static int64_t log_uniform_draw(const struct candidate_node *node, struct philox_words *words) {
    int64_t value = (int64_t)exp(philox_words_f64(words) * node->log_range) - 1;
    return value % node->range; /* rounding may give a value outside of the range */
}
static float log_uniform_probability(const struct candidate_node *node, int64_t value) {
    return (float)(log(((double)value + 2.0) / ((double)value + 1.0)) / node->log_range);
}
static const struct candidate_law log_uniform = {.draw = log_uniform_draw,
                                                 .probability = log_uniform_probability};

static float all_probability(const struct candidate_node *node, int64_t value) {
    (void)node, (void)value;
    return 1;
}
static const struct candidate_law all = {.probability = all_probability};

/* ---- the node ---- */

static void sampler_fini(void *state) {
    struct candidate_node *node = state;
    if (!node)
        return;
    if (node->law->fini)
        node->law->fini(node);
    pthread_mutex_destroy(&node->lock);
    free(node);
}

static struct status *sampler_init(struct kernel_init *init) {
    struct candidate_node *node = xcalloc(1, sizeof(*node));
    init->state = node;
    node->law = init->arg;
    pthread_mutex_init(&node->lock, NULL);
    atomic_init(&node->is_ready, !node->law->load);
    TRY(random_state_seed(&node->random, init->node));
    TRY(node_get_i(init->node, "num_true", &node->num_true));
    TRY(node_get_i32(init->node, "num_sampled", &node->num_sampled));
    TRY(node_get_b(init->node, "unique", &node->is_unique));
    node->range = node->num_sampled;
    if (node->law->draw)
        TRY(node_get_i(init->node, "range_max", &node->range));
    node->log_range = log1p((double)node->range);
    return node->law->init ? node->law->init(node, init) : NULL;
}

/* ---- a batch ---- */

/* The set of classes that were drawn so far, at most half full. An entry of -1 is free. */
struct drawn {
    struct tensor memory;
    int64_t *slots;
    uint64_t mask, seed;
};

static struct status *drawn_init(struct drawn *drawn, const struct kernel_ctx *ctx, int64_t n) {
    int64_t n_slots = 16;
    while (n_slots / 2 < n)
        n_slots *= 2;
    *drawn = (struct drawn){.mask = (uint64_t)n_slots - 1, .seed = random_u64()};
    TRY(scratch_new(ctx, DT_INT64, n_slots, 1, &drawn->memory, &drawn->slots));
    memset(drawn->slots, -1, (size_t)n_slots * sizeof(*drawn->slots));
    return NULL;
}

static bool drawn_add(struct drawn *drawn, int64_t value) {
    uint64_t at = hash_mix((uint64_t)value, drawn->seed) & drawn->mask;
    for (; drawn->slots[at] >= 0; at = (at + 1) & drawn->mask) {
        if (drawn->slots[at] == value)
            return false;
    }
    drawn->slots[at] = value;
    return true;
}

enum { TRIES_UNTIL_CANCELLATION_IS_ASKED = 1 << 16 }; /* some milliseconds */

/* Draws until there are num_sampled different classes. When a distribution hardly ever gives the
 * last classes, this ends in an error. */
static struct status *draw_unique(struct kernel_ctx *ctx, const struct candidate_node *node,
                                  struct philox_words *words, int64_t *out, int64_t *ret_tries) {
    struct drawn drawn;
    TRY(drawn_init(&drawn, ctx, node->num_sampled));
    int64_t tries = 0;
    struct status *st = NULL;
    for (int64_t i = 0; i < node->num_sampled && !st; tries++) {
        out[i] = node->law->draw(node, words);
        i += drawn_add(&drawn, out[i]);
        if (unlikely(tries == INT32_MAX))
            st = status_exhausted("%lld different classes were not found in %d draws",
                                  (long long)node->num_sampled, INT32_MAX);
        else if (unlikely(tries % TRIES_UNTIL_CANCELLATION_IS_ASKED ==
                          TRIES_UNTIL_CANCELLATION_IS_ASKED - 1))
            st = kernel_check_cancelled(ctx);
    }
    tensor_clear(&drawn.memory);
    *ret_tries = tries;
    return st;
}

/* How often a class of probability p is to be expected: in num_sampled draws with repetition, or
 * the probability that it occurs at least once in `tries` draws without. */
static float expected_count(const struct candidate_node *node, int64_t value, int64_t tries) {
    float p = node->law->probability(node, value);
    if (!node->law->draw)
        return p;
    if (tries == node->num_sampled)
        return p * (float)node->num_sampled;
    return -expm1f((float)tries * log1pf(-p));
}

static struct status *draw_batch(struct kernel_ctx *ctx, struct candidate_node *node) {
    const int64_t *classes = tensor_cdata(kernel_input(ctx, 0));
    int64_t n_classes = kernel_input(ctx, 0)->n_elements, n = node->num_sampled, tries = n;
    int64_t *sampled = tensor_data(&ctx->outputs[0]);
    float *expected = tensor_data(&ctx->outputs[1]),
          *sampled_expected = tensor_data(&ctx->outputs[2]);
    struct philox_words words = {.next = random_state_reserve(ctx, (uint64_t)n * 512)};
    if (!node->law->draw) {
        for (int64_t i = 0; i < n; i++)
            sampled[i] = i;
    } else if (node->is_unique) {
        TRY(draw_unique(ctx, node, &words, sampled, &tries));
    } else {
        for (int64_t i = 0; i < n && pool_goes_on(i); i++)
            sampled[i] = node->law->draw(node, &words);
    }
    for (int64_t i = 0; i < n && pool_goes_on(i); i++)
        sampled_expected[i] = expected_count(node, sampled[i], tries);
    for (int64_t i = 0; i < n_classes && pool_goes_on(i); i++)
        expected[i] = expected_count(node, classes[i], tries);
    if (node->law->learn)
        node->law->learn(node, classes, n_classes);
    return NULL;
}

static struct status *check_unique(const struct candidate_node *node) {
    int64_t n = node->law->n_drawable ? node->law->n_drawable(node) : node->range;
    return node->is_unique && node->num_sampled > n
               ? status_invalid("Sampler's range is too small.")
               : NULL;
}

/* Runs under the lock where the weights may change, and on an I/O thread when there is a file to
 * read. */
static struct status *sample(struct kernel_ctx *ctx) {
    struct candidate_node *node = ctx->instance->state;
    struct status *st = NULL;
    bool is_locked = node->law->learn || !atomic_load(&node->is_ready);
    if (is_locked)
        pthread_mutex_lock(&node->lock);
    if (!atomic_load(&node->is_ready))
        st = node->law->load(node);
    if (!st)
        st = check_unique(node);
    if (!st)
        st = draw_batch(ctx, node);
    if (is_locked)
        pthread_mutex_unlock(&node->lock);
    return st;
}

static struct status *check_classes(const struct candidate_node *node,
                                    const struct tensor *classes) {
    if (classes->rank != 2)
        return status_invalid("true_classes must be a matrix");
    if (tensor_dim(classes, 1) != node->num_true)
        return status_invalid("true_classes must have num_true columns, expected: %lld was: %lld",
                              (long long)tensor_dim(classes, 1), (long long)node->num_true);
    const int64_t *values = tensor_cdata(classes);
    for (int64_t i = 0; i < classes->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        if (values[i] < 0 || values[i] >= node->range)
            return status_invalid("`true_candidate` out of range [0, %lld), received %lld",
                                  (long long)node->range, (long long)values[i]);
    }
    return NULL;
}

/* XCandidateSampler.
 *   true_classes             int64 [batch, num_true]
 *   sampled                  int64 [num_sampled]
 *   true_expected_count      float [batch, num_true]
 *   sampled_expected_count   float [num_sampled]
 * Errors   INVALID_ARGUMENT   true_classes of another shape; more different classes requested than
 *                             there are
 * Cost     num_sampled draws, some more where each class may be drawn only once */
static enum kernel_result sampler_compute(struct kernel_ctx *ctx) {
    const struct candidate_node *node = ctx->instance->state;
    const struct tensor *classes = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, check_classes(node, classes));
    bool is_ready = atomic_load(&node->is_ready);
    if (is_ready)
        KERNEL_TRY(ctx, check_unique(node));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &node->num_sampled}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_FLOAT, tensor_shape(classes)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_FLOAT, (struct shape){1, &node->num_sampled}));
    if (!is_ready)
        return io_run(ctx, sample);
    KERNEL_TRY(ctx, sample(ctx));
    return KERNEL_DONE;
}

/* ---- ComputeAccidentalHits ---- */

struct hits {
    int64_t n, capacity;
    int32_t *rows;
    int64_t *places;
};

static void hits_add(struct hits *hits, int64_t row, int64_t place) {
    if (hits->n == hits->capacity) {
        hits->capacity = MAX((int64_t)64, 2 * hits->capacity);
        hits->rows = xreallocarray(hits->rows, (size_t)hits->capacity, sizeof(*hits->rows));
        hits->places = xreallocarray(hits->places, (size_t)hits->capacity, sizeof(*hits->places));
    }
    hits->rows[hits->n] = (int32_t)row;
    hits->places[hits->n++] = place;
}

/* A class with its position among the sampled ones. */
struct sampled_class {
    int64_t value, place;
};

static int compare_sampled(const void *a_, const void *b_) {
    const struct sampled_class *a = a_, *b = b_;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* The last position of a class, or -1. */
static int64_t find_sampled(const struct sampled_class *sorted, int64_t n, int64_t value) {
    int64_t begin = 0, end = n; /* finds the first entry above it */
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        if (sorted[middle].value > value)
            end = middle;
        else
            begin = middle + 1;
    }
    return begin > 0 && sorted[begin - 1].value == value ? sorted[begin - 1].place : -1;
}

static struct status *find_hits(const struct tensor *classes, const struct tensor *sampled,
                                struct hits *hits) {
    int64_t n = sampled->n_elements, num_true = tensor_dim(classes, 1);
    const int64_t *values = tensor_cdata(sampled), *wanted = tensor_cdata(classes);
    struct sampled_class *sorted = malloc((size_t)MAX(n, (int64_t)1) * sizeof(*sorted));
    if (!sorted)
        return status_exhausted("OOM when sorting %lld candidates", (long long)n);
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++)
        sorted[i] = (struct sampled_class){values[i], i};
    pool_sort(sorted, n, sizeof(*sorted), compare_sampled);
    for (int64_t i = 0; i < classes->n_elements && pool_goes_on(i + 1); i++) {
        int64_t place = find_sampled(sorted, n, wanted[i]);
        if (place >= 0)
            hits_add(hits, i / num_true, place);
    }
    free(sorted);
    return NULL;
}

static struct status *hits_output(struct kernel_ctx *ctx, const struct hits *hits) {
    struct shape shape = {1, &hits->n};
    TRY(kernel_alloc(ctx, 0, DT_INT32, shape));
    TRY(kernel_alloc(ctx, 1, DT_INT64, shape));
    TRY(kernel_alloc(ctx, 2, DT_FLOAT, shape));
    int32_t *rows = tensor_data(&ctx->outputs[0]);
    int64_t *places = tensor_data(&ctx->outputs[1]);
    float *weights = tensor_data(&ctx->outputs[2]);
    for (int64_t i = 0; i < hits->n; i++) {
        rows[i] = hits->rows[i];
        places[i] = hits->places[i];
        weights[i] = -FLT_MAX;
    }
    return NULL;
}

static struct status *accidental_init(struct kernel_init *init) {
    int64_t *num_true = xmalloc(sizeof(*num_true));
    init->state = num_true;
    return node_get_i(init->node, "num_true", num_true);
}

/* ComputeAccidentalHits: finds the sampled classes that are true ones.
 *   true_classes         int64 [batch, num_true]
 *   sampled_candidates   int64 [num_sampled]
 *   indices              int32 [n], the row
 *   ids                  int64 [n], the position among the sampled classes
 *   weights              float [n], all -FLT_MAX
 * Errors   INVALID_ARGUMENT   other shapes */
static enum kernel_result accidental_hits(struct kernel_ctx *ctx) {
    const struct tensor *classes = kernel_input(ctx, 0), *sampled = kernel_input(ctx, 1);
    int64_t num_true = *(const int64_t *)ctx->instance->state;
    if (classes->rank != 2 || tensor_dim(classes, 1) != num_true)
        return kernel_fail(
            ctx, status_invalid("true_candidates must be a batch_size * num_true matrix"));
    if (sampled->rank != 1)
        return kernel_fail(ctx, status_invalid("sampled_candidates must be a vector, which is "
                                               "typically an output from CandidateSampler"));
    struct hits hits = {0};
    struct status *st = find_hits(classes, sampled, &hits);
    if (!st)
        st = hits_output(ctx, &hits);
    free(hits.rows);
    free(hits.places);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

// clang-format off
#define SAMPLER(name, law, more_flags)                                                            \
    {name, .compute = sampler_compute, .init = sampler_init, .fini = sampler_fini, .arg = &(law), \
     .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE | (more_flags)}

static const struct kernel_def rows[] = {
    SAMPLER("UniformCandidateSampler",             uniform, 0),
    SAMPLER("LogUniformCandidateSampler",          log_uniform, 0),
    SAMPLER("LearnedUnigramCandidateSampler",      candidate_learned, 0),
    SAMPLER("ThreadUnsafeUnigramCandidateSampler", candidate_learned, 0),
    SAMPLER("FixedUnigramCandidateSampler",        candidate_fixed, KERNEL_ASYNC),
    SAMPLER("AllCandidateSampler",                 all, 0),
    {"ComputeAccidentalHits", .compute = accidental_hits, .init = accidental_init},
};
// clang-format on

const struct kernel_list candidate_kernels = {rows, ARRAY_LEN(rows)};
