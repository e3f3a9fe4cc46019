/* Lists the CPU kernels of random numbers. The stateless ones depend on their inputs alone, so they
 * may be folded and merged. */
#include "kernels/cpu/random/random_internal.h"

#define KIND(kind) ((const void *)(intptr_t)(kind))
#define INT32_64 (DTYPES_INDEX)
#define INT_BITS (DTYPES_INDEX | DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64))
#define BINOMIAL_TYPES \
    (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_INDEX)
#define GAMMA_TYPES (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE))
#define POISSON_TYPES (GAMMA_TYPES | DTYPES_INDEX)
#define SEQUENCE (KERNEL_STATEFUL | KERNEL_SESSION_STATE | KERNEL_STOPPABLE)
#define SHUFFLE_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
#define STATEFUL(name, attr, types, function) \
    {name, {{attr, types}}, function, random_state_init, .flags = SEQUENCE}
#define STATELESS(name, types, kind) \
    {name, {{"dtype", types}}, random_stateless, random_stateless_init, .arg = KIND(kind)}
#define STATELESS_V2(name, types, kind) \
    {name, {{"dtype", types}}, random_stateless_v2, random_stateless_init, .arg = KIND(kind)}
#define IN_RESOURCE(name, types, kind) \
    {name, {{"dtype", types}}, random_resource_fill, .arg = KIND(kind), .flags = KERNEL_STATEFUL}

static const struct kernel_def rows[] = {
    STATEFUL("RandomUniform",        "dtype", DTYPES_REAL_FLOAT, random_uniform),
    STATEFUL("RandomStandardNormal", "dtype", DTYPES_REAL_FLOAT, random_normal),
    STATEFUL("TruncatedNormal",      "dtype", DTYPES_REAL_FLOAT, random_truncated_normal),
    STATEFUL("RandomUniformInt",     "Tout",  INT32_64, random_uniform_int),
    STATEFUL("RandomShuffle",        "T",     SHUFFLE_TYPES, random_shuffle),
    {"Multinomial", {{"T", DTYPES_REAL_FLOAT}, {"output_dtype", INT32_64}}, random_multinomial,
        random_state_init, .flags = SEQUENCE},
    {"RandomGamma", {{"T", GAMMA_TYPES}}, random_gamma, random_state_init, .flags = SEQUENCE},
    {"RandomPoisson", {{"dtype", GAMMA_TYPES}}, random_poisson, random_state_init,
        .flags = SEQUENCE},
    {"RandomPoissonV2", {{"R", POISSON_TYPES}, {"dtype", POISSON_TYPES}}, random_poisson,
        random_state_init, .flags = SEQUENCE},

    STATELESS("StatelessRandomUniform",        DTYPES_REAL_FLOAT, RANDOM_UNIFORM),
    STATELESS("StatelessRandomNormal",         DTYPES_REAL_FLOAT, RANDOM_NORMAL),
    STATELESS("StatelessTruncatedNormal",      DTYPES_REAL_FLOAT, RANDOM_TRUNCATED),
    STATELESS("StatelessRandomUniformInt",     INT32_64, RANDOM_RANGE),
    STATELESS("StatelessRandomUniformFullInt", INT_BITS, RANDOM_BITS),
    STATELESS_V2("StatelessRandomUniformV2",        DTYPES_REAL_FLOAT, RANDOM_UNIFORM),
    STATELESS_V2("StatelessRandomNormalV2",         DTYPES_REAL_FLOAT, RANDOM_NORMAL),
    STATELESS_V2("StatelessTruncatedNormalV2",      DTYPES_REAL_FLOAT, RANDOM_TRUNCATED),
    STATELESS_V2("StatelessRandomUniformIntV2",     INT32_64, RANDOM_RANGE),
    STATELESS_V2("StatelessRandomUniformFullIntV2", INT_BITS, RANDOM_BITS),
    IN_RESOURCE("StatefulUniform",          DTYPES_REAL_FLOAT, RANDOM_UNIFORM),
    IN_RESOURCE("StatefulStandardNormalV2", DTYPES_REAL_FLOAT, RANDOM_NORMAL),
    IN_RESOURCE("StatefulTruncatedNormal",  DTYPES_REAL_FLOAT, RANDOM_TRUNCATED),
    IN_RESOURCE("StatefulUniformInt",       INT32_64, RANDOM_RANGE),
    IN_RESOURCE("StatefulUniformFullInt",   INT_BITS, RANDOM_BITS),
    {"StatefulRandomBinomial",  {{"T", BINOMIAL_TYPES & ~DTYPES_INDEX}, {"dtype", BINOMIAL_TYPES}},
        random_resource_binomial, .flags = KERNEL_STATEFUL},
    {"StatelessRandomBinomial", {{"T", BINOMIAL_TYPES & ~DTYPES_INDEX}, {"dtype", BINOMIAL_TYPES}},
        random_stateless_binomial},
    {"RngSkip",        .compute = random_skip, .flags = KERNEL_STATEFUL},
    {"RngReadAndSkip", .compute = random_skip, .flags = KERNEL_STATEFUL},
    {"ParameterizedTruncatedNormal", {{"dtype", GAMMA_TYPES}}, random_parameterized,
        random_state_init, .flags = SEQUENCE},
    {"NonDeterministicInts", {{"dtype", INT_BITS}}, random_non_deterministic,
        .flags = KERNEL_STATEFUL},
    {"StatelessRandomGetKeyCounter",    .compute = random_get_key_counter},
    {"StatelessRandomGetKeyCounterAlg", .compute = random_get_key_counter},
    {"StatelessRandomGetAlg",           .compute = random_get_alg},
    {"StatelessShuffle",     {{"T", SHUFFLE_TYPES}}, random_stateless_shuffle},
    {"StatelessMultinomial", {{"T", DTYPES_REAL_FLOAT}, {"output_dtype", INT32_64}},
        random_stateless_multinomial},
    {"StatelessRandomGammaV2",  {{"dtype", GAMMA_TYPES}}, random_stateless_gamma},
    {"StatelessRandomGammaV3",  {{"dtype", GAMMA_TYPES}}, random_stateless_gamma},
    {"StatelessRandomPoisson", {{"Rtype", POISSON_TYPES}, {"dtype", POISSON_TYPES}},
        random_stateless_poisson},
};
// clang-format on

const struct kernel_list random_kernels = {rows, ARRAY_LEN(rows)};
