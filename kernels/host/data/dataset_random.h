/* Numbers one by one, and seeds from seeds: what datasets that shuffle, sample or make numbers
 * share. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_RANDOM_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_RANDOM_H

#include <pthread.h>

#include "kernels/host/data/dataset.h"
#include "kernels/support/philox_words.h"

/* The words that a pair of seeds stands for. */
struct philox_words dataset_words(int64_t seed, int64_t seed2);

/* The seeds of a dataset's iterators: the same each time, or the next two words of a stream. */
struct seed_source {
    pthread_mutex_t lock;
    int64_t seed, seed2;
    bool is_fixed;
    struct philox_words words; /* guarded by lock */
};
/* Both seeds 0: from the machine. */
void seed_source_init(struct seed_source *source, int64_t seed, int64_t seed2, bool is_fixed);
void seed_source_fini(struct seed_source *source);
void seed_source_next(struct seed_source *source, int64_t *ret_seed, int64_t *ret_seed2);

#endif
