/* Fills tensors with independent random numbers, which have the bits that TensorFlow's CPU kernels
 * give for the same generator.
 *
 * Outputs are made in groups: 4 of up to 32 bits, or 2 of 64. Group g of a distribution that needs
 * a fixed number of words uses block g. A truncated normal draws until its group is full, from
 * block g · 64 · group size on; the 256 numbers for each output are never exhausted in practice.
 * The normal is Box and Muller's, with libm's log, sin and cos, because the same functions on the
 * same machine make the last bit agree. */
#include "kernels/cpu/random/random_fill.h"

#include <math.h>

#include "kernels/cpu/random/random_internal.h"
#include "kernels/support/half_blocks.h"

enum {
    CHUNK_BLOCKS = 128,
    CHUNK_WORDS = CHUNK_BLOCKS * PHILOX_BLOCK,
    BLOCKS_PER_TRUNCATED_OUTPUT = 64
};

struct fill_job {
    const struct random_fill *fill;
    char *out;
    int64_t n;
    int group; /* outputs that one block gives */
};

/* ---- the normal ---- */

/* Turns two words into two normals [Box, Muller 1958]. The product is rounded once from double, as
 * TensorFlow's is. */
static inline void normal_pair_f32(uint32_t a, uint32_t b, float out[2]) {
    float u = philox_f32(a);
    u = u < 1.0e-7f ? 1.0e-7f : u;
    float angle = (float)(2.0 * M_PI * (double)philox_f32(b)), sine, cosine;
    float radius = sqrtf(-2.0f * logf(u));
    sincosf(angle, &sine, &cosine);
    out[0] = sine * radius;
    out[1] = cosine * radius;
}

static inline void normal_pair_f64(const uint32_t words[4], double out[2]) {
    double u = philox_f64(words[0], words[1]);
    u = u < 1.0e-7 ? 1.0e-7 : u;
    double angle = 2.0 * M_PI * philox_f64(words[2], words[3]), radius = sqrt(-2.0 * log(u)), sine,
           cosine;
    sincos(angle, &sine, &cosine);
    out[0] = sine * radius;
    out[1] = cosine * radius;
}

static void normals(enum dtype dtype, const uint32_t *words, int64_t n, char *out) {
    float floats[CHUNK_WORDS + 1];
    double pair[2];
    if (dtype == DT_DOUBLE) {
        double *to = (double *)(void *)out;
        for (int64_t i = 0; i + 1 < n; i += 2)
            normal_pair_f64(words + 2 * i, to + i);
        if (n & 1) {
            normal_pair_f64(words + 2 * (n - 1), pair);
            to[n - 1] = pair[0];
        }
        return;
    }
    for (int64_t i = 0; i < n; i += 2)
        normal_pair_f32(words[i], words[i + 1], floats + i);
    if (dtype == DT_FLOAT)
        memcpy(out, floats, (size_t)n * sizeof(float));
    else
        half_block_store(dtype, (uint16_t *)(void *)out, floats, n);
}

/* ---- words to elements: n words, or n pairs of words for 64-bit elements ---- */

VECTOR_CLONES
static void uniforms_f32(const uint32_t *words, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = philox_f32(words[i]);
}
VECTOR_CLONES
static void uniforms_f64(const uint32_t *words, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = philox_f64(words[2 * i], words[2 * i + 1]);
}

/* The low 10 (7) bits are the fraction of a number in [1, 2), from which 1 is subtracted. In float
 * this is exact. */
VECTOR_CLONES
static void scale_low_bits(const uint32_t *words, int64_t n, uint32_t mask, float scale,
                           float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(int32_t)(words[i] & mask) * scale;
}
static void uniforms_narrow(enum dtype dtype, const uint32_t *words, int64_t n, uint16_t *out) {
    float floats[CHUNK_WORDS];
    scale_low_bits(words, n, dtype == DT_HALF ? 0x3ffu : 0x7fu,
                   dtype == DT_HALF ? 0x1p-10f : 0x1p-7f, floats);
    half_block_store(dtype, out, floats, n);
}

static void uniforms(enum dtype dtype, const uint32_t *words, int64_t n, void *out) {
    if (dtype == DT_FLOAT)
        uniforms_f32(words, n, out);
    else if (dtype == DT_DOUBLE)
        uniforms_f64(words, n, out);
    else
        uniforms_narrow(dtype, words, n, out);
}

static void integers(const struct random_fill *fill, const uint32_t *words, int64_t n, void *out) {
    bool is_range = fill->kind == RANDOM_RANGE;
    if (dtype_size(fill->dtype) == 4) {
        uint32_t *to = out, low = (uint32_t)fill->low, range = (uint32_t)fill->range;
        for (int64_t i = 0; i < n; i++)
            to[i] = is_range ? low + words[i] % range : words[i];
        return;
    }
    uint64_t *to = out;
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = philox_u64(words[2 * i], words[2 * i + 1]);
        to[i] = is_range ? fill->low + bits % fill->range : bits;
    }
}

/* ---- groups ---- */

static void fill_groups(void *arg, int64_t begin, int64_t end) {
    const struct fill_job *job = arg;
    const struct random_fill *fill = job->fill;
    uint32_t words[CHUNK_WORDS];
    for (int64_t block = begin; block < end; block += CHUNK_BLOCKS) {
        int64_t n_blocks = MIN(end - block, (int64_t)CHUNK_BLOCKS), first = block * job->group;
        int64_t n = MIN(n_blocks * job->group, job->n - first);
        char *out = job->out + (size_t)first * dtype_size(fill->dtype);
        philox_fill(philox_skip(fill->generator, (uint64_t)block), n_blocks, words);
        if (fill->kind == RANDOM_UNIFORM)
            uniforms(fill->dtype, words, n, out);
        else if (fill->kind == RANDOM_NORMAL)
            normals(fill->dtype, words, n, out);
        else
            integers(fill, words, n, out);
    }
}

void random_next_f32(enum random_kind kind, enum dtype dtype, struct philox *generator,
                     float out[4]) {
    uint32_t words[PHILOX_BLOCK];
    uint16_t narrow[PHILOX_BLOCK];
    philox_next(generator, words);
    void *to = dtype == DT_FLOAT ? (void *)out : narrow;
    if (kind == RANDOM_NORMAL)
        normals(dtype, words, PHILOX_BLOCK, to);
    else
        uniforms(dtype, words, PHILOX_BLOCK, to);
    if (dtype != DT_FLOAT)
        half_block_load(dtype, out, narrow, PHILOX_BLOCK);
}

void random_next_f64(enum random_kind kind, struct philox *generator, double out[2]) {
    uint32_t words[PHILOX_BLOCK];
    philox_next(generator, words);
    if (kind == RANDOM_NORMAL)
        normals(DT_DOUBLE, words, 2, (char *)out);
    else
        uniforms(DT_DOUBLE, words, 2, out);
}

/* Makes one group of normals within (-2, 2). Those outside are dropped, and the next ones are
 * used. */
static void truncated_group(enum dtype dtype, struct philox generator, float floats[4],
                            double doubles[2]) {
    const int group = dtype == DT_DOUBLE ? 2 : 4;
    uint32_t words[PHILOX_BLOCK];
    for (int filled = 0; filled < group;) {
        philox_next(&generator, words);
        if (dtype == DT_DOUBLE) {
            double pair[2];
            normal_pair_f64(words, pair);
            for (int i = 0; i < 2 && filled < group; i++) {
                if (fabs(pair[i]) < 2.0)
                    doubles[filled++] = pair[i];
            }
            continue;
        }
        float four[4];
        normal_pair_f32(words[0], words[1], four);
        normal_pair_f32(words[2], words[3], four + 2);
        for (int i = 0; i < 4 && filled < group; i++) {
            if (fabsf(four[i]) < 2.0f)
                floats[filled++] = four[i];
        }
    }
}

static void truncated_groups(void *arg, int64_t begin, int64_t end) {
    const struct fill_job *job = arg;
    enum dtype dtype = job->fill->dtype;
    uint64_t stride = (uint64_t)job->group * BLOCKS_PER_TRUNCATED_OUTPUT;
    for (int64_t group = begin; group < end; group++) {
        float floats[4];
        double doubles[2];
        int64_t first = group * job->group, n = MIN((int64_t)job->group, job->n - first);
        truncated_group(dtype, philox_skip(job->fill->generator, (uint64_t)group * stride), floats,
                        doubles);
        char *out = job->out + (size_t)first * dtype_size(dtype);
        if (dtype == DT_DOUBLE)
            memcpy(out, doubles, (size_t)n * sizeof(double));
        else if (dtype == DT_FLOAT)
            memcpy(out, floats, (size_t)n * sizeof(float));
        else
            half_block_store(dtype, (uint16_t *)(void *)out, floats, n);
    }
}

void random_fill_run(const struct random_fill *fill, struct pool *pool, void *out, int64_t n) {
    struct fill_job job = {fill, out, n, dtype_size(fill->dtype) == 8 ? 2 : 4};
    bool is_truncated = fill->kind == RANDOM_TRUNCATED;
    double cost_ns = is_truncated ? 120 : fill->kind == RANDOM_NORMAL ? 60 : 6;
    pool_parallel_for(pool, (n + job.group - 1) / job.group, cost_ns,
                      is_truncated ? truncated_groups : fill_groups, &job);
}
