/* Hands out the seeds of datasets' iterators, and keeps where each occurrence of a dataset is
 * (dataset_random.h). */
#include <stdlib.h>

#include "common/base/clock.h"
#include "kernels/host/data/dataset_random.h"

struct philox_words dataset_words(int64_t seed, int64_t seed2) {
    return (struct philox_words){.next = {.key = (uint64_t)seed, .hi = (uint64_t)seed2}};
}

/* ---- owners ---- */

struct seed_owner {
    _Atomic uint32_t n_refs;
    pthread_mutex_t lock;
    struct seed_owner *branches, *next; /* a list; guarded by lock, a reference each */
    int number;                         /* among the branches of its parent */
};

struct seed_owner *seed_owner_new(void) {
    struct seed_owner *owner = xcalloc(1, sizeof(*owner));
    atomic_init(&owner->n_refs, 1);
    CHECK(pthread_mutex_init(&owner->lock, NULL) == 0);
    return owner;
}

struct seed_owner *seed_owner_ref(struct seed_owner *owner) {
    atomic_fetch_add_explicit(&owner->n_refs, 1, memory_order_relaxed);
    return owner;
}

void seed_owner_unref(struct seed_owner *owner) {
    if (!owner || atomic_fetch_sub_explicit(&owner->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (struct seed_owner *branch = owner->branches, *next; branch; branch = next) {
        next = branch->next;
        seed_owner_unref(branch);
    }
    pthread_mutex_destroy(&owner->lock);
    free(owner);
}

struct seed_owner *seed_owner_branch(struct seed_owner *owner, int i) {
    pthread_mutex_lock(&owner->lock);
    struct seed_owner *branch = owner->branches;
    while (branch && branch->number != i)
        branch = branch->next;
    if (!branch) {
        branch = seed_owner_new();
        branch->number = i;
        branch->next = owner->branches;
        owner->branches = branch;
    }
    seed_owner_ref(branch);
    pthread_mutex_unlock(&owner->lock);
    return branch;
}

/* Does nobody but one stream refer to it, so that no iterator will ask for the stream again? */
static bool is_forgotten(const struct seed_owner *owner) {
    return atomic_load_explicit(&owner->n_refs, memory_order_acquire) == 1;
}

/* ---- sources ---- */

void seed_source_init(struct seed_source *source, int64_t seed, int64_t seed2, bool is_fixed,
                      bool is_shared) {
    *source = (struct seed_source){
        .seed = seed, .seed2 = seed2, .is_fixed = is_fixed, .is_shared = is_shared};
    CHECK(pthread_mutex_init(&source->lock, NULL) == 0);
}

void seed_source_fini(struct seed_source *source) {
    for (int i = 0; i < source->n_streams; i++)
        seed_owner_unref(source->streams[i].owner);
    free(source->streams);
    pthread_mutex_destroy(&source->lock);
}

/* A dataset that many pipelines read one after the other does not grow. */
static void drop_forgotten(struct seed_source *source) {
    int n = 0;
    for (int i = 0; i < source->n_streams; i++) {
        struct seed_stream *stream = &source->streams[i];
        if (stream->owner && is_forgotten(stream->owner))
            seed_owner_unref(stream->owner);
        else
            source->streams[n++] = *stream;
    }
    source->n_streams = n;
}

/* With the source's lock held. */
static struct seed_stream *stream_of(struct seed_source *source, struct seed_owner *owner) {
    for (int i = 0; i < source->n_streams; i++)
        if (source->streams[i].owner == owner)
            return &source->streams[i];
    drop_forgotten(source);
    if (source->n_streams == source->capacity) {
        source->capacity = MAX(1, 2 * source->capacity);
        source->streams =
            xreallocarray(source->streams, (size_t)source->capacity, sizeof(*source->streams));
    }
    struct seed_stream *stream = &source->streams[source->n_streams++];
    bool is_seeded = source->seed != 0 || source->seed2 != 0;
    *stream = (struct seed_stream){.owner = owner ? seed_owner_ref(owner) : NULL,
                                   .seed = is_seeded ? source->seed : (int64_t)random_u64(),
                                   .seed2 = is_seeded ? source->seed2 : (int64_t)random_u64()};
    stream->words = dataset_words(stream->seed, stream->seed2);
    return stream;
}

static void draw(struct seed_source *source, const struct dataset_env *env, int64_t seeds[2]) {
    pthread_mutex_lock(&source->lock);
    struct seed_stream *stream = stream_of(source, source->is_shared ? NULL : env->owner);
    seeds[0] = source->is_fixed ? stream->seed : philox_words_u32(&stream->words);
    seeds[1] = source->is_fixed ? stream->seed2 : philox_words_u32(&stream->words);
    pthread_mutex_unlock(&source->lock);
}

/* ---- the log ---- */

/* With the environment's lock held. False: nothing is left to replay. */
static bool replay(struct seed_log *log, int64_t seeds[2]) {
    if (log->n_replayed == log->n)
        return false;
    memcpy(seeds, log->words + 2 * log->n_replayed++, 2 * sizeof(*seeds));
    return true;
}

/* With the environment's lock held. */
static void note(struct seed_log *log, const int64_t seeds[2]) {
    if (log->n == log->capacity) {
        log->capacity = MAX(16, 2 * log->capacity);
        log->words = xreallocarray(log->words, (size_t)log->capacity, 2 * sizeof(*log->words));
    }
    memcpy(log->words + 2 * log->n++, seeds, 2 * sizeof(*seeds));
    log->n_replayed = log->n;
}

void seed_source_next(struct seed_source *source, struct dataset_env *env, int64_t *ret_seed,
                      int64_t *ret_seed2) {
    int64_t seeds[2];
    struct dataset_env *root = env->root;
    pthread_mutex_lock(&root->lock);
    if (!root->seeds || !replay(root->seeds, seeds)) {
        draw(source, env, seeds);
        if (root->seeds && root->seeds->n < SEED_LOG_MAX)
            note(root->seeds, seeds);
    }
    pthread_mutex_unlock(&root->lock);
    *ret_seed = seeds[0];
    *ret_seed2 = seeds[1];
}
