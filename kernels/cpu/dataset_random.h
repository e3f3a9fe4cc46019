/* Numbers one by one, and seeds from seeds: what datasets that shuffle, sample or make numbers share. */
#ifndef MILLRACE_KERNELS_CPU_DATASET_RANDOM_H
#define MILLRACE_KERNELS_CPU_DATASET_RANDOM_H

#include <pthread.h>

#include "kernels/cpu/dataset.h"
#include "kernels/cpu/philox.h"

/* A stream of words. */
struct word_stream {
    struct philox generator;
    uint32_t block[PHILOX_BLOCK];
    int n_left;
};
void word_stream_init(struct word_stream *stream, int64_t seed, int64_t seed2);
uint32_t word_stream_next(struct word_stream *stream);

/* The seeds of a dataset's iterators: the same each time, or the next two words of a stream. */
struct seed_source {
    pthread_mutex_t lock;
    int64_t seed, seed2;
    bool is_fixed;
    struct word_stream stream; /* guarded by lock */
};
/* Both seeds 0: from the machine. */
void seed_source_init(struct seed_source *source, int64_t seed, int64_t seed2, bool is_fixed);
void seed_source_fini(struct seed_source *source);
void seed_source_next(struct seed_source *source, int64_t *ret_seed, int64_t *ret_seed2);

#endif
