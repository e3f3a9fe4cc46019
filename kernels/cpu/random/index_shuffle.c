/* Runs RandomIndexShuffle: computes the position of each index of [0, max_index] in a permutation
 * that the seed chooses, without computing the permutation.
 *
 * A Simon block cipher (Beaulieu et al. 2013) over blocks just wide enough permutes more numbers
 * than are wanted. A number beyond max_index is encrypted again until one is in range (cycle
 * walking, Black and Rogaway 2002). Rounds, key schedule and the least block are TensorFlow's, so
 * the numbers are the same. The cipher protects no secret here. */
#include <math.h>
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/support/dims.h"

extern const struct kernel_list index_shuffle_kernels;

enum { KEY_WORDS = 3, LEAST_BLOCK_BITS = 16, MAX_ROUNDS = 1 << 10 };

/* A cipher whose words have `bits` bits. */
struct cipher {
    int bits, n_rounds;
    uint64_t mask;
    uint64_t *round_keys; /* n_rounds, at least KEY_WORDS */
};

static uint64_t rotate_left(const struct cipher *c, uint64_t x, int n) {
    return ((x << n) | (x >> (c->bits - n))) & c->mask;
}
static uint64_t rotate_right(const struct cipher *c, uint64_t x, int n) {
    return ((x >> n) | (x << (c->bits - n))) & c->mask;
}

static void set_key(struct cipher *c, const uint32_t key[KEY_WORDS]) {
    uint64_t constant = UINT64_C(0xfffffffc) & c->mask, z = UINT64_C(0x7369f885192c0ef5) & c->mask;
    for (int i = 0; i < KEY_WORDS; i++)
        c->round_keys[i] = key[i] & c->mask;
    for (int i = KEY_WORDS; i < c->n_rounds; i++, z >>= 1) {
        uint64_t last = c->round_keys[i - 1];
        c->round_keys[i] = constant ^ (z & 1) ^ c->round_keys[i - 3] ^ rotate_right(c, last, 3) ^
                           rotate_right(c, last, 4);
    }
}

static uint64_t mix(const struct cipher *c, uint64_t x) {
    return (rotate_left(c, x, 1) & rotate_left(c, x, 8)) ^ rotate_left(c, x, 2);
}

static uint64_t encrypt(const struct cipher *c, uint64_t value) {
    uint64_t left = (value >> c->bits) & c->mask, right = value & c->mask;
    for (int i = 0; i < c->n_rounds; i += 2) {
        left ^= mix(c, right) ^ c->round_keys[i];
        right ^= mix(c, left) ^ c->round_keys[i + 1];
    }
    return left << c->bits | right;
}

/* Half the bits of a block. A block has an even number of bits, enough for max_index, which is not
 * 0. As in TensorFlow the logarithm is a double's. */
static int word_bits(uint64_t max_index) {
    int bits = (int)ceil(log2((double)max_index));
    return MIN(MAX(bits + bits % 2, LEAST_BLOCK_BITS), 64) / 2;
}

static uint64_t shuffle_index(struct cipher *c, uint64_t index, const uint32_t key[KEY_WORDS],
                              uint64_t max_index) {
    if (max_index == 0)
        return 0;
    c->bits = word_bits(max_index);
    c->mask = (UINT64_C(1) << c->bits) - 1;
    set_key(c, key);
    do
        index = encrypt(c, index);
    while (index > max_index);
    return index;
}

/* ---- the kernel ---- */

static struct status *rounds_init(struct kernel_init *init) {
    TRY(kernel_init_int_attr(init, "rounds"));
    int64_t n = *(const int64_t *)init->state;
    if (n < 4 || n % 2 != 0 || n > MAX_ROUNDS)
        return status_invalid("rounds must be an even number of at least 4, but was %lld",
                              (long long)n);
    return NULL;
}

static bool is_scalar_or_vector(const struct tensor *t, int64_t n) {
    return t->rank == 0 || (t->rank == 1 && tensor_dim(t, 0) == n);
}

static struct status *check_inputs(const struct tensor *index, const struct tensor *seed,
                                   const struct tensor *max_index, int64_t n) {
    if (!is_scalar_or_vector(index, n))
        return status_invalid("Index bust be a scalar or vector.");
    if (!(seed->rank == 1 && tensor_dim(seed, 0) == KEY_WORDS) &&
        !(seed->rank == 2 && tensor_dim(seed, 0) == n && tensor_dim(seed, 1) == KEY_WORDS))
        return status_invalid(
            "Seed must be a vector of size [3] or a matrix of size [%lld, 3] but got %s.",
            (long long)n, TENSOR_SHAPE_TEXT(seed));
    if (!is_scalar_or_vector(max_index, n))
        return status_invalid(
            "Maxval must be a scalar or a vector of the same size as index but got %s",
            TENSOR_SHAPE_TEXT(max_index));
    return NULL;
}

static struct status *check_range(enum dtype dtype, int64_t index, int64_t max_index) {
    bool is_signed = dtype == DT_INT32 || dtype == DT_INT64;
    if (is_signed && max_index < 0)
        return status_invalid("max_index must be >= 0 but was %lld", (long long)max_index);
    if (is_signed && index < 0)
        return status_invalid("index must be >= 0 but was %lld", (long long)index);
    if ((uint64_t)index > (uint64_t)max_index)
        return status_invalid("max_index must be >= index, but %llu < %llu",
                              (unsigned long long)max_index, (unsigned long long)index);
    return NULL;
}

static void put_number(struct tensor *t, int64_t i, uint64_t v) {
    if (dtype_size((enum dtype)t->dtype) == sizeof(uint32_t))
        ((uint32_t *)tensor_data(t))[i] = (uint32_t)v;
    else
        ((uint64_t *)tensor_data(t))[i] = v;
}

static struct status *shuffle_all(struct kernel_ctx *ctx, struct cipher *c, int64_t n) {
    const struct tensor *index = kernel_input(ctx, 0), *seed = kernel_input(ctx, 1),
                        *max_index = kernel_input(ctx, 2);
    for (int64_t i = 0; i < n; i++) {
        uint32_t key[KEY_WORDS];
        int64_t at = tensor_int_at(index, index->rank ? i : 0),
                largest = tensor_int_at(max_index, max_index->rank ? i : 0);
        for (int k = 0; k < KEY_WORDS; k++)
            key[k] = (uint32_t)tensor_int_at(seed, (seed->rank == 1 ? 0 : i * KEY_WORDS) + k);
        TRY(check_range(tensor_dtype(index), at, largest));
        put_number(&ctx->outputs[0], i, shuffle_index(c, (uint64_t)at, key, (uint64_t)largest));
    }
    return NULL;
}

static enum kernel_result index_shuffle(struct kernel_ctx *ctx) {
    const struct tensor *index = kernel_input(ctx, 0), *seed = kernel_input(ctx, 1),
                        *max_index = kernel_input(ctx, 2);
    int64_t n = MAX(MAX(index->n_elements, max_index->n_elements), seed->n_elements / KEY_WORDS);
    KERNEL_TRY(ctx, check_inputs(index, seed, max_index, n));
    bool is_scalar = index->rank == 0 && seed->rank == 1 && max_index->rank == 0;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(index),
                                 is_scalar ? SHAPE_SCALAR : (struct shape){1, &n}));
    struct cipher c = {.n_rounds = (int)*(const int64_t *)ctx->instance->state};
    c.round_keys = xcalloc((size_t)c.n_rounds, sizeof(*c.round_keys));
    struct status *st = shuffle_all(ctx, &c, n);
    free(c.round_keys);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define INTS \
    (DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "RandomIndexShuffle", {{"dtype", INTS}}, .compute = index_shuffle, .init = rounds_init},
};
// clang-format on

const struct kernel_list index_shuffle_kernels = {rows, ARRAY_LEN(rows)};
