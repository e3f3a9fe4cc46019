/* Runs CTCBeamSearchDecoder: finds the most likely label sequences, each with the total probability
 * of those of its alignments that were followed [Graves, Jaitly 2014: prefix search with a beam].
 *
 * Prefixes are a tree. A prefix keeps the alignments that end in a blank apart from those that end
 * in its last label, because the same label makes a longer prefix only after a blank. After each
 * time step the beam_width most likely prefixes stay active. An inactive prefix is freed once no
 * prefix in the beam descends from it.
 *
 *   root ─ a ─ ab          blank: alignments of "ab" whose last output was a blank
 *     └─── b                label: alignments whose last output was b          total: both */
#include <pthread.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "kernels/cpu/nn/ctc_internal.h"
#include "kernels/kernel.h"

enum { MAX_PREFIXES = 1 << 25, SWEEP_FLOOR = 4096 };

struct beam_state {
    int64_t width, top_paths;
    bool merges;
};

struct status *ctc_beam_search_init(struct kernel_init *init) {
    struct beam_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "beam_width", &state->width));
    TRY(node_get_i(init->node, "top_paths", &state->top_paths));
    return node_get_b(init->node, "merge_repeated", &state->merges);
}

struct chance {
    double total, blank, label; /* log-probabilities */
};
static const struct chance no_chance = {-INFINITY, -INFINITY, -INFINITY};

struct prefix {
    int32_t parent, label; /* -1 for the root */
    int32_t n_children;
    bool is_kept; /* used by sweep() */
    struct chance before, now;
};

struct search {
    const struct ctc_inputs *in;
    const struct beam_state *state;
    int64_t b;
    struct prefix *prefixes;
    int64_t n, capacity, sweep_at;
    struct u64map children; /* parent · classes + label → 1 + the child's number */
    int32_t *beam;          /* a heap with the least likely prefix on top */
    int64_t n_beam, beam_capacity;
    int32_t *old; /* the beam before this time step, the most likely first */
    int64_t old_capacity;
};

/* ---- the heap ---- */

static bool is_less(const struct search *s, int32_t a, int32_t b) {
    double x = s->prefixes[a].now.total, y = s->prefixes[b].now.total;
    return x < y || (x == y && a > b);
}

static void sift_down(struct search *s, int64_t at) {
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= s->n_beam)
            return;
        if (child + 1 < s->n_beam && is_less(s, s->beam[child + 1], s->beam[child]))
            child++;
        if (!is_less(s, s->beam[child], s->beam[at]))
            return;
        int32_t swap = s->beam[at];
        s->beam[at] = s->beam[child];
        s->beam[child] = swap;
        at = child;
    }
}

static void beam_push(struct search *s, int32_t prefix) {
    if (s->n_beam == s->state->width) { /* the least likely prefix leaves the beam */
        s->prefixes[s->beam[0]].now = no_chance;
        s->beam[0] = prefix;
        sift_down(s, 0);
        return;
    }
    if (s->n_beam == s->beam_capacity) {
        s->beam_capacity = MAX((int64_t)64, 2 * s->beam_capacity);
        s->beam = xreallocarray(s->beam, (size_t)s->beam_capacity, sizeof(*s->beam));
    }
    int64_t at = s->n_beam++;
    for (; at > 0 && is_less(s, prefix, s->beam[(at - 1) / 2]); at = (at - 1) / 2)
        s->beam[at] = s->beam[(at - 1) / 2];
    s->beam[at] = prefix;
}

/* Moves the beam to `old`, the most likely first. Returns how many prefixes there are. */
static int64_t beam_extract(struct search *s) {
    int64_t n = s->n_beam;
    if (s->old_capacity < s->beam_capacity) {
        s->old_capacity = s->beam_capacity;
        s->old = xreallocarray(s->old, (size_t)s->old_capacity, sizeof(*s->old));
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        s->old[i] = s->beam[0];
        s->beam[0] = s->beam[--s->n_beam];
        sift_down(s, 0);
    }
    return n;
}

/* ---- the tree ---- */

static uint64_t child_key(const struct search *s, int32_t parent, int32_t label) {
    return (uint64_t)parent * (uint64_t)s->in->classes + (uint64_t)label;
}

/* Returns -1 when there is no such child. */
static int32_t find_child(const struct search *s, int32_t parent, int32_t label) {
    if (s->prefixes[parent].n_children == 0)
        return -1;
    return (int32_t)(intptr_t)u64map_get(&s->children, child_key(s, parent, label)) - 1;
}

static struct status *add_prefix(struct search *s, int32_t parent, int32_t label, int32_t *ret) {
    if (s->n == MAX_PREFIXES)
        return status_exhausted("a beam search of more than %d prefixes", MAX_PREFIXES);
    if (s->n == s->capacity) {
        s->capacity = MAX((int64_t)256, 2 * s->capacity);
        s->prefixes = xreallocarray(s->prefixes, (size_t)s->capacity, sizeof(*s->prefixes));
    }
    *ret = (int32_t)s->n++;
    s->prefixes[*ret] =
        (struct prefix){.parent = parent, .label = label, .before = no_chance, .now = no_chance};
    if (parent >= 0) {
        s->prefixes[parent].n_children++;
        u64map_put(&s->children, child_key(s, parent, label), (void *)(intptr_t)(*ret + 1));
    }
    return NULL;
}

/* Drops the prefixes that no prefix in the beam descends from. One that is needed later is made
 * again and has lost nothing. A parent has a lower number than its children. */
static void sweep(struct search *s) {
    for (int64_t i = 0; i < s->n_beam; i++) {
        for (int32_t p = s->beam[i]; p >= 0 && !s->prefixes[p].is_kept; p = s->prefixes[p].parent)
            s->prefixes[p].is_kept = true;
    }
    int32_t *moved = xreallocarray(NULL, (size_t)s->n, sizeof(*moved));
    int64_t n = 0;
    u64map_fini(&s->children);
    u64map_init(&s->children);
    for (int64_t p = 0; p < s->n; p++) {
        if (!s->prefixes[p].is_kept)
            continue;
        struct prefix prefix = s->prefixes[p];
        prefix.is_kept = false;
        prefix.n_children = 0;
        moved[p] = (int32_t)n;
        if (prefix.parent >= 0) {
            prefix.parent = moved[prefix.parent];
            s->prefixes[prefix.parent].n_children++;
            u64map_put(&s->children, child_key(s, prefix.parent, prefix.label),
                       (void *)(intptr_t)(n + 1));
        }
        s->prefixes[n++] = prefix;
    }
    for (int64_t i = 0; i < s->n_beam; i++)
        s->beam[i] = moved[s->beam[i]];
    free(moved);
    s->n = n;
    s->sweep_at = MAX(4 * n, (int64_t)SWEEP_FLOOR);
}

/* ---- one time step ---- */

/* Extends a prefix that was in the beam without making it longer: by a blank or by its last label
 * once more. Its parent may also reach it by that label. */
static void stay(struct search *s, int32_t number, int64_t t, double log_norm) {
    struct prefix *prefix = &s->prefixes[number];
    if (prefix->parent >= 0) {
        const struct prefix *parent = &s->prefixes[prefix->parent];
        if (parent->now.total != -INFINITY)
            prefix->now.label = ctc_log_add(prefix->now.label, prefix->label == parent->label
                                                                   ? parent->before.blank
                                                                   : parent->before.total);
        prefix->now.label += ctc_logit(s->in, t, s->b, prefix->label) - log_norm;
    }
    prefix->now.blank =
        prefix->before.total + ctc_logit(s->in, t, s->b, s->in->classes - 1) - log_norm;
    prefix->now.total = ctc_log_add(prefix->now.blank, prefix->now.label);
    beam_push(s, number);
}

static bool is_candidate(const struct search *s, double total) {
    return total > -INFINITY &&
           (s->n_beam < s->state->width || total > s->prefixes[s->beam[0]].now.total);
}

/* Extends a prefix by each label. */
static struct status *grow(struct search *s, int32_t parent, int64_t t, double log_norm) {
    struct chance before = s->prefixes[parent].before;
    for (int32_t label = 0; label < s->in->classes - 1; label++) {
        int32_t child = find_child(s, parent, label);
        if (child >= 0 && s->prefixes[child].now.total != -INFINITY)
            continue; /* the child was in the beam, so stay() has counted it */
        double from = label == s->prefixes[parent].label ? before.blank : before.total;
        double chance = from + ctc_logit(s->in, t, s->b, label) - log_norm;
        if (!is_candidate(s, chance)) {
            if (child >= 0)
                s->prefixes[child].before = s->prefixes[child].now = no_chance;
            continue;
        }
        if (child < 0)
            TRY(add_prefix(s, parent, label, &child));
        s->prefixes[child].now = (struct chance){chance, -INFINITY, chance};
        beam_push(s, child);
    }
    return NULL;
}

static struct status *step(struct search *s, int64_t t) {
    double log_norm = ctc_log_norm(s->in, t, s->b);
    int64_t n_old = beam_extract(s);
    for (int64_t i = 0; i < n_old; i++)
        s->prefixes[s->old[i]].before = s->prefixes[s->old[i]].now;
    for (int64_t i = 0; i < n_old; i++)
        stay(s, s->old[i], t, log_norm);
    for (int64_t i = 0; i < n_old; i++) {
        if (is_candidate(s, s->prefixes[s->old[i]].before.total))
            TRY(grow(s, s->old[i], t, log_norm));
    }
    if (s->n > s->sweep_at)
        sweep(s);
    return NULL;
}

/* ---- results ---- */

static void read_labels(const struct search *s, int32_t prefix, struct ctc_sequence *out) {
    int32_t after = -1;
    for (int32_t p = prefix; s->prefixes[p].parent >= 0; p = s->prefixes[p].parent) {
        if (!s->state->merges || s->prefixes[p].label != after)
            ctc_sequence_add(out, s->prefixes[p].label);
        after = s->prefixes[p].label;
    }
    for (int64_t i = 0; i < out->n / 2; i++) {
        int64_t swap = out->labels[i];
        out->labels[i] = out->labels[out->n - 1 - i];
        out->labels[out->n - 1 - i] = swap;
    }
}

struct beam_job {
    struct ctc_inputs in;
    const struct beam_state *state;
    struct ctc_sequence *paths; /* [top_paths, batch] */
    void *scores;               /* [batch, top_paths] */
    pthread_mutex_t lock;
    struct status *failure; /* guarded by lock */
};

static struct status *search_sequence(struct beam_job *job, struct search *s) {
    int32_t root;
    TRY(add_prefix(s, -1, -1, &root));
    s->prefixes[root].now = (struct chance){0, 0, -INFINITY};
    beam_push(s, root);
    for (int64_t t = 0; t < job->in.lengths[s->b]; t++)
        TRY(step(s, t));
    if (job->state->top_paths > s->n_beam)
        return status_invalid("Less leaves in the beam search than requested.");
    beam_extract(s);
    for (int64_t i = 0; i < job->state->top_paths; i++) {
        double score = s->prefixes[s->old[i]].now.total;
        int64_t at = s->b * job->state->top_paths + i;
        if (job->in.dtype == DT_FLOAT)
            ((float *)job->scores)[at] = (float)score;
        else
            ((double *)job->scores)[at] = score;
        read_labels(s, s->old[i], &job->paths[i * job->in.batch + s->b]);
    }
    return NULL;
}

static void beam_range(void *arg, int64_t begin, int64_t end) {
    struct beam_job *job = arg;
    for (int64_t b = begin; b < end; b++) {
        struct search s = {.in = &job->in, .state = job->state, .b = b, .sweep_at = SWEEP_FLOOR};
        u64map_init(&s.children);
        struct status *st = search_sequence(job, &s);
        u64map_fini(&s.children);
        free(s.prefixes);
        free(s.beam);
        free(s.old);
        if (!st)
            continue;
        pthread_mutex_lock(&job->lock);
        status_unref(job->failure);
        job->failure = st;
        pthread_mutex_unlock(&job->lock);
    }
}

static struct status *output_paths(struct kernel_ctx *ctx, const struct beam_job *job) {
    int n = (int)job->state->top_paths;
    for (int i = 0; i < n; i++)
        TRY(ctc_output_sparse(ctx, job->paths + i * job->in.batch, job->in.batch, i, n + i,
                              2 * n + i));
    return NULL;
}

/* CTCBeamSearchDecoder. The last class is the blank.
 *   inputs            T [time, batch, classes], logits
 *   sequence_length   int32 [batch]
 *   decoded_indices, decoded_values, decoded_shape   int64, a sparse tensor for each path, the most
 *                     likely first
 *   log_probability   T [batch, top_paths]
 * Errors   FAILED_PRECONDITION   a length beyond time
 *          INVALID_ARGUMENT      shapes, more paths than the beam holds, or than were found
 * Cost     time · beam_width · classes for each sequence */
enum kernel_result ctc_beam_search(struct kernel_ctx *ctx) {
    struct beam_job job = {.state = ctx->instance->state};
    KERNEL_TRY(ctx, ctc_inputs_init(ctx, 1, &job.in));
    int64_t top = job.state->top_paths, dims[2] = {job.in.batch, top};
    if (top > job.state->width)
        return kernel_fail(ctx, status_invalid("requested more paths than the beam width."));
    KERNEL_TRY(ctx, kernel_alloc(ctx, (int)(3 * top), job.in.dtype, (struct shape){2, dims}));
    job.scores = tensor_data(&ctx->outputs[3 * top]);
    int64_t n_paths = top * job.in.batch; /* does not overflow, because there are as many scores */
    job.paths = ctc_sequences_new(n_paths);
    if (!job.paths)
        return kernel_fail(ctx, status_exhausted("OOM for %lld paths", (long long)n_paths));
    pthread_mutex_init(&job.lock, NULL);
    double cost_ns = 20.0 * (double)job.in.time * (double)MIN(job.state->width, (int64_t)1000) *
                     (double)job.in.classes;
    pool_parallel_for(ctx->pool, job.in.batch, cost_ns, beam_range, &job);
    pthread_mutex_destroy(&job.lock);
    struct status *st = job.failure ? job.failure : output_paths(ctx, &job);
    ctc_sequences_free(job.paths, n_paths);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
