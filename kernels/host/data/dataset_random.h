/* Makes random numbers one by one, and seeds from seeds, for datasets that shuffle, sample or make
 * random numbers. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_RANDOM_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_RANDOM_H

#include <pthread.h>

#include "kernels/host/data/dataset.h"
#include "kernels/support/philox_words.h"

/* The stream of random words of a pair of seeds. */
struct philox_words dataset_words(int64_t seed, int64_t seed2);

/* The seeds that the iterators of one pipeline have drawn, in order. A pipeline that continues from
 * a saved position draws the same ones again (iterator_position.c). */
enum { SEED_LOG_MAX = 1 << 20 }; /* a position after more draws is not saved */
struct seed_log {
    int64_t *words; /* two for each draw */
    int64_t n, capacity;
    int64_t n_replayed; /* draws that have been made again; below n while a position is restored */
};

/* An occurrence of a dataset in a pipeline, for the sources of seeds. The iterators of all
 * pipelines that begin with one dataset have the same occurrences. A tree like that of the
 * environments; it outlives the dataset where a source still refers to it. Counted. Any thread. */
struct seed_owner;
struct seed_owner *seed_owner_new(void);
struct seed_owner *seed_owner_ref(struct seed_owner *owner);
void seed_owner_unref(struct seed_owner *owner); /* accepts NULL */
/* The owner of the i-th branch. Returns a reference. */
struct seed_owner *seed_owner_branch(struct seed_owner *owner, int i);

/* Where one occurrence of a dataset is in its seeds. */
struct seed_stream {
    struct seed_owner *owner; /* a reference; NULL: all environments share the stream */
    int64_t seed, seed2;
    struct philox_words words;
};

/* The source of the seeds of a dataset's iterators. Each iterator gets the same seeds, or the next
 * two words of a stream. Each environment has a stream of its own that begins with the same seeds,
 * unless the dataset's seeds are a resource's. */
struct seed_source {
    pthread_mutex_t lock;
    int64_t seed, seed2;
    bool is_fixed, is_shared;
    struct seed_stream *streams; /* guarded by lock, like the numbers */
    int n_streams, capacity;
};
/* When both seeds are 0, the machine's entropy replaces them in each stream. */
void seed_source_init(struct seed_source *source, int64_t seed, int64_t seed2, bool is_fixed,
                      bool is_shared);
void seed_source_fini(struct seed_source *source);
/* Draws the seeds of an iterator, and notes them in the environment's log. Any thread. */
void seed_source_next(struct seed_source *source, struct dataset_env *env, int64_t *ret_seed,
                      int64_t *ret_seed2);

#endif
