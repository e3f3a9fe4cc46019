/* Casts between all numeric types and bool.
 *
 * Each pair of the eleven plain types (bool, the integers, float, double) has a direct loop. For
 * the other types, stages before and after that loop convert blocks on the stack. The stage before
 * widens the source: half, bfloat16 and 8-bit floats to float, 4-bit integers to 8 bits, complex to
 * its real part. The stage after narrows the result.
 *
 * A float that an integer type cannot hold becomes what x86's conversion gives, without undefined
 * behaviour: the least int32 or int64, of which narrower and unsigned types take the low bits. With
 * Truncate, the excess fraction bits of a float are cut off instead of rounded. */
#include "kernels/cpu/math/math_internal.h"

#include <stdlib.h>

#include "kernels/cpu/math/math_blocks.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/half_blocks.h"

enum { CAST_BLOCK = 256 };

/* The number that is converted always fits, and the loop chooses between the result and OTHERWISE
 * afterwards. So the loops have no branch, and they vectorise. */
#define FLOAT_TO_INT(name, S, T, FITS, OTHERWISE) \
    static inline T name(S x) {                   \
        bool fits = (FITS);                       \
        T whole = (T)(fits ? x : 0);              \
        return fits ? whole : (OTHERWISE);        \
    }
FLOAT_TO_INT(f32_to_i32, float, int32_t, (x >= -2147483648.0f) & (x < 2147483648.0f), INT32_MIN)
FLOAT_TO_INT(f64_to_i32, double, int32_t, (x > -2147483649.0) & (x < 2147483648.0), INT32_MIN)
FLOAT_TO_INT(f32_to_i64, float, int64_t, (x >= -0x1p63f) & (x < 0x1p63f), INT64_MIN)
FLOAT_TO_INT(f64_to_i64, double, int64_t, (x >= -0x1p63) & (x < 0x1p63), INT64_MIN)
static inline uint64_t f32_to_u64(float x) {
    return x >= 0x1p63f && x < 0x1p64f ? (uint64_t)x : (uint64_t)f32_to_i64(x);
}
static inline uint64_t f64_to_u64(double x) {
    return x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)f64_to_i64(x);
}

/* The list of targets, written out because a list macro cannot be used within itself. */
// clang-format off
#define TARGETS(X, ...)                                                               \
    X(i8, int8_t, DT_INT8, __VA_ARGS__)                                               \
    X(i16, int16_t, DT_INT16, __VA_ARGS__) X(i32, int32_t, DT_INT32, __VA_ARGS__)     \
    X(i64, int64_t, DT_INT64, __VA_ARGS__) X(u8, uint8_t, DT_UINT8, __VA_ARGS__)      \
    X(u16, uint16_t, DT_UINT16, __VA_ARGS__) X(u32, uint32_t, DT_UINT32, __VA_ARGS__) \
    X(u64, uint64_t, DT_UINT64, __VA_ARGS__)                                          \
    X(f32, float, DT_FLOAT, __VA_ARGS__) X(f64, double, DT_DOUBLE, __VA_ARGS__)
// clang-format on
#define CAST_LOOP(name, S, T, ...)                             \
    static void name(const void *in, void *out, int64_t n) {   \
        const S *from = in;                                    \
        T *to = out;                                           \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
            S x = from[i];                                     \
            to[i] = (T)(__VA_ARGS__);                          \
        }                                                      \
    }
/* From integers and bool to anything, and between floats, C's own conversion is right. */
#define PLAIN_CAST(tag, T, DT, source, S) CAST_LOOP(cast_##source##_##tag, S, T, x)
#define ALL_FROM_INT(source, S, W, DT, ...) \
    TARGETS(PLAIN_CAST, source, S) CAST_LOOP(cast_##source##_bool, S, uint8_t, x != 0)
NUMBERS_INTS(ALL_FROM_INT)
TARGETS(PLAIN_CAST, bool, uint8_t)
CAST_LOOP(cast_bool_bool, uint8_t, uint8_t, x != 0)

#define ALL_FROM_FLOAT(source, S)                                                            \
    VECTOR_CLONES CAST_LOOP(cast_##source##_i8, S, int8_t, source##_to_i32(x)) VECTOR_CLONES \
    CAST_LOOP(cast_##source##_i16, S, int16_t, source##_to_i32(x)) VECTOR_CLONES             \
    CAST_LOOP(cast_##source##_i32, S, int32_t, source##_to_i32(x)) VECTOR_CLONES             \
    CAST_LOOP(cast_##source##_i64, S, int64_t, source##_to_i64(x)) VECTOR_CLONES             \
    CAST_LOOP(cast_##source##_u8, S, uint8_t, source##_to_i32(x)) VECTOR_CLONES              \
    CAST_LOOP(cast_##source##_u16, S, uint16_t, source##_to_i32(x)) VECTOR_CLONES            \
    CAST_LOOP(cast_##source##_u32, S, uint32_t, source##_to_i64(x)) VECTOR_CLONES            \
    CAST_LOOP(cast_##source##_u64, S, uint64_t, source##_to_u64(x)) VECTOR_CLONES            \
    CAST_LOOP(cast_##source##_f32, S, float, x)                                              \
    VECTOR_CLONES CAST_LOOP(cast_##source##_f64, S, double, x)                               \
    VECTOR_CLONES CAST_LOOP(cast_##source##_bool, S, uint8_t, x != 0)
ALL_FROM_FLOAT(f32, float)
ALL_FROM_FLOAT(f64, double)

#define CAST_ENTRY(tag, T, DT, source, ...) [DT] = cast_##source##_##tag,
#define CAST_ROW(source, S, W, DT, ...) \
    [DT] = {TARGETS(CAST_ENTRY, source)[DT_BOOL] = cast_##source##_bool},
static unary_loop *const plain_casts[DT_UINT64 + 1][DT_UINT64 + 1] = {
    NUMBERS_INTS(CAST_ROW)
        NUMBERS_FLOATS(CAST_ROW)[DT_BOOL] = {TARGETS(CAST_ENTRY, bool)[DT_BOOL] = cast_bool_bool}};

/* ---- stages ---- */

static struct small_float small_float_of(enum dtype dtype) {
    return dtype == DT_FLOAT8_E5M2 ? SMALL_FLOAT_E5M2 : SMALL_FLOAT_E4M3FN;
}

/* Rounds to the nearest 8-bit float, ties to even. */
static uint8_t small_float_from_float(enum dtype dtype, float x) {
    bool is_e5m2 = dtype == DT_FLOAT8_E5M2;
    int fraction_bits = is_e5m2 ? 2 : 3, bias = is_e5m2 ? 15 : 7;
    uint8_t sign = signbit(x) ? 0x80 : 0, nan = is_e5m2 ? 0x7e : 0x7f, top = is_e5m2 ? 0x7c : 0x7f;
    float magnitude = fabsf(x);
    if (x != x)
        return (uint8_t)(sign | nan);
    if (magnitude == 0 || magnitude == INFINITY)
        return (uint8_t)(magnitude == 0 ? sign : sign | top);
    int exponent;
    frexpf(magnitude, &exponent); /* magnitude is in [2^(exponent-1), 2^exponent) */
    int least = 1 - bias, e = MAX(exponent - 1, least);
    /* In units of the last place at exponent e. Scaling by a power of two is exact. */
    int units = (int)nearbyintf(ldexpf(magnitude, fraction_bits - MIN(e, 16)));
    if (e > 16)
        return (uint8_t)(sign | top);
    /* a carry out of the fraction increments the exponent */
    int bits = ((e - least) << fraction_bits) + units;
    return (uint8_t)(sign | MIN(bits, top));
}

static void load_small_float(enum dtype dtype, float *to, const uint8_t *from, int64_t n) {
    struct small_float format = small_float_of(dtype);
    for (int64_t i = 0; i < n; i++)
        to[i] = small_float_to_float(format, from[i]);
}

static inline bool is_small_float(enum dtype dtype) {
    return dtype == DT_FLOAT8_E5M2 || dtype == DT_FLOAT8_E4M3FN;
}
static inline bool is_nibble(enum dtype dtype) { return dtype == DT_INT4 || dtype == DT_UINT4; }
static inline bool is_complex(enum dtype dtype) { return dtype_in(dtype, DTYPES_COMPLEX); }

/* The plain type that a dtype has between the stages, or DT_INVALID where Cast does not take the
 * dtype. */
static enum dtype plain_of(enum dtype dtype) {
    switch (dtype) {
    case DT_HALF:
    case DT_BFLOAT16:
    case DT_COMPLEX64:
    case DT_FLOAT8_E5M2:
    case DT_FLOAT8_E4M3FN:
        return DT_FLOAT;
    case DT_COMPLEX128:
        return DT_DOUBLE;
    case DT_QINT8:
    case DT_INT4:
        return DT_INT8;
    case DT_QUINT8:
    case DT_UINT4:
        return DT_UINT8;
    case DT_QINT16:
        return DT_INT16;
    case DT_QUINT16:
        return DT_UINT16;
    case DT_QINT32:
        return DT_INT32;
    default:
        return dtype_in(dtype, DTYPES_REAL | DTYPE_BIT(DT_BOOL)) ? dtype : DT_INVALID;
    }
}
static bool needs_stage(enum dtype dtype) {
    return dtype_is_narrow_float(dtype) || is_small_float(dtype) || is_nibble(dtype) ||
           is_complex(dtype);
}

struct cast_state {
    enum dtype in, out;
    size_t in_size, out_size;
    bool is_same; /* the output is the input */
    bool truncates;
    bool loads, stores; /* whether there is a stage before, and after */
    /* complex to complex: both parts are cast, which are twice as many elements */
    bool passes_complex;
    int cut_bits; /* how many of the plain source's fraction bits the target cannot hold */
    unary_loop *loop;
    size_t from_size, to_size; /* of the direct loop's elements */
    enum dtype from;
};

static struct status *cast_init(struct kernel_init *init) {
    struct cast_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "Truncate", &state->truncates));
    state->in = (enum dtype)init->node->in_types[0];
    state->out = (enum dtype)init->node->out_types[0];
    state->in_size = dtype_size(state->in);
    state->out_size = dtype_size(state->out);
    enum dtype from = plain_of(state->in), to = plain_of(state->out);
    state->is_same = state->in == state->out;
    if (state->is_same)
        return NULL;
    if (from == DT_INVALID || to == DT_INVALID)
        return status_unimplemented("Cast %s to %s is not supported", dtype_name(state->in),
                                    dtype_name(state->out));
    state->loads = needs_stage(state->in);
    state->stores = needs_stage(state->out);
    state->passes_complex = is_complex(state->in) && is_complex(state->out);
    state->from = from;
    state->from_size = dtype_size(from);
    state->to_size = dtype_size(to);
    state->loop = plain_casts[from][to];
    bool is_to_float =
        elementwise_fraction_bits(state->out) < 64 && (from == DT_FLOAT || from == DT_DOUBLE);
    state->cut_bits =
        state->truncates && is_to_float
            ? MAX(elementwise_fraction_bits(from) - elementwise_fraction_bits(state->out), 0)
            : 0;
    return NULL;
}

static void load_stage(const struct cast_state *state, const char *in, int64_t n, void *to) {
    enum dtype dtype = state->in;
    if (dtype_is_narrow_float(dtype)) {
        half_block_load(dtype, to, (const uint16_t *)in, n);
    } else if (is_small_float(dtype)) {
        load_small_float(dtype, to, (const uint8_t *)in, n);
    } else if (dtype == DT_COMPLEX64) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = ((const float *)in)[2 * i];
    } else if (dtype == DT_COMPLEX128) {
        for (int64_t i = 0; i < n; i++)
            ((double *)to)[i] = ((const double *)in)[2 * i];
    } else { /* a 4-bit integer has a byte of its own */
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)to)[i] =
                dtype == DT_UINT4 ? (uint8_t)(in[i] & 15) : (uint8_t)(((in[i] & 15) ^ 8) - 8);
    }
}

static void store_stage(const struct cast_state *state, const void *from, int64_t n, char *out) {
    enum dtype dtype = state->out;
    if (dtype_is_narrow_float(dtype)) {
        half_block_store(dtype, (uint16_t *)out, from, n);
    } else if (is_small_float(dtype)) {
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)out)[i] = small_float_from_float(dtype, ((const float *)from)[i]);
    } else if (dtype == DT_COMPLEX64) {
        for (int64_t i = 0; i < n; i++)
            ((float complex *)out)[i] = ((const float *)from)[i];
    } else if (dtype == DT_COMPLEX128) {
        for (int64_t i = 0; i < n; i++)
            ((double complex *)out)[i] = ((const double *)from)[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            out[i] = (char)(dtype == DT_UINT4 ? ((const uint8_t *)from)[i] & 15
                                              : ((((const uint8_t *)from)[i] & 15) ^ 8) - 8);
    }
}

/* Zeroes the low fraction bits. Infinity stays infinity, and a NaN stays NaN because one of its
 * upper bits is set. */
static void cut_fraction(const struct cast_state *state, const void *from, int64_t n, void *to) {
    if (state->from == DT_FLOAT) {
        uint32_t mask = ~0u << state->cut_bits;
        for (int64_t i = 0; i < n; i++) {
            float x = ((const float *)from)[i];
            ((float *)to)[i] = x != x ? x : float_from_bits(float_bits(x) & mask);
        }
        return;
    }
    uint64_t mask = ~0ull << state->cut_bits;
    for (int64_t i = 0; i < n; i++) {
        double x = ((const double *)from)[i];
        uint64_t bits;
        memcpy(&bits, &x, sizeof(bits));
        bits = x != x ? bits : bits & mask;
        memcpy((double *)to + i, &bits, sizeof(bits));
    }
}

struct cast_job {
    const struct cast_state *state;
    const char *in;
    char *out;
};

static void run_staged(const struct cast_state *state, const char *in, char *out, int64_t n) {
    double first[CAST_BLOCK], second[CAST_BLOCK];
    const void *from = in;
    if (state->loads) {
        load_stage(state, in, n, first);
        from = first;
    }
    if (state->cut_bits) {
        cut_fraction(state, from, n, first);
        from = first;
    }
    state->loop(from, state->stores ? (void *)second : out, n);
    if (state->stores)
        store_stage(state, second, n, out);
}

static void cast_range(void *arg, int64_t begin, int64_t end) {
    const struct cast_job *job = arg;
    const struct cast_state *state = job->state;
    const char *in = job->in + begin * (int64_t)state->in_size;
    char *out = job->out + begin * (int64_t)state->out_size;
    if (!state->loads && !state->stores && !state->cut_bits) {
        state->loop(in, out, end - begin);
        return;
    }
    for (; begin < end; begin += CAST_BLOCK) {
        int64_t n = MIN(end - begin, CAST_BLOCK);
        run_staged(state, in, out, n);
        in += n * (int64_t)state->in_size;
        out += n * (int64_t)state->out_size;
    }
}

/* Casts both parts of complex numbers, as twice as many reals. */
static void cast_complex_range(void *arg, int64_t begin, int64_t end) {
    struct cast_job job = *(struct cast_job *)arg;
    struct cast_state parts = *job.state;
    parts.in_size /= 2;
    parts.out_size /= 2;
    parts.loads = parts.stores = false;
    job.state = &parts;
    cast_range(&job, 2 * begin, 2 * end);
}

static enum kernel_result cast_compute(struct kernel_ctx *ctx) {
    const struct cast_state *state = ctx->instance->state;
    struct tensor *in = &ctx->inputs[0];
    if (state->is_same) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    struct cast_job job = {state, tensor_cdata(in), NULL};
    int64_t n = in->n_elements;
    if (is_inline_scalar(in)) {
        job.out = output_scalar(&ctx->outputs[0], state->out);
        (state->passes_complex ? cast_complex_range : cast_range)(&job, 0, 1);
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, state->out, tensor_shape(in)));
    job.out = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, n, state->loads || state->stores ? 1.5 : 0.5,
                      state->passes_complex ? cast_complex_range : cast_range, &job);
    return KERNEL_DONE;
}

static unsigned cast_block(const struct kernel_instance *instance, const void *const *operands,
                           unsigned ones, void *out, int64_t n) {
    const struct cast_state *state = instance->state;
    struct cast_job job = {state, operands[0], out};
    (void)ones;
    if (state->is_same)
        memmove(out, operands[0], (size_t)n * state->in_size);
    else
        (state->passes_complex ? cast_complex_range : cast_range)(&job, 0, n);
    return 0;
}

const struct block_engine math_cast_engine = {cast_compute, cast_block, BLOCK_BROADCAST, NULL,
                                              NULL};

#define CASTABLE                                                                         \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_QUANTIZED | DTYPE_BIT(DT_FLOAT8_E5M2) | \
     DTYPE_BIT(DT_FLOAT8_E4M3FN) | DTYPE_BIT(DT_INT4) | DTYPE_BIT(DT_UINT4))
static const struct kernel_def rows[] = {
    {"Cast",
     {{"SrcT", CASTABLE}, {"DstT", CASTABLE}},
     cast_compute,
     cast_init,
     .flags = KERNEL_ELEMENTWISE},
};

const struct kernel_list math_cast_kernels = {rows, ARRAY_LEN(rows)};
