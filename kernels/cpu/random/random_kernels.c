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
#define SEQUENCE (KERNEL_STATEFUL | KERNEL_SESSION_STATE)
#define SHUFFLE_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
#define STATEFUL(name, attr, types, function, cost)                                                \
    {name, {{attr, types}}, function, random_state_init, .flags = SEQUENCE, .cost_ns_per_element = \
        cost}
#define STATELESS(name, types, kind, cost)                                                 \
    {name, {{"dtype", types}}, random_stateless, random_stateless_init, .arg = KIND(kind), \
        .cost_ns_per_element = cost}
#define STATELESS_V2(name, types, kind, cost)                                                 \
    {name, {{"dtype", types}}, random_stateless_v2, random_stateless_init, .arg = KIND(kind), \
        .cost_ns_per_element = cost}

#define IN_RESOURCE(name, types, kind, cost)                                                      \
    {name, {{"dtype", types}}, random_resource_fill, .arg = KIND(kind), .flags = KERNEL_STATEFUL, \
     .cost_ns_per_element = cost}

static const struct kernel_def rows[] = {
    STATEFUL("RandomUniform",        "dtype", DTYPES_REAL_FLOAT, random_uniform, 2),
    STATEFUL("RandomStandardNormal", "dtype", DTYPES_REAL_FLOAT, random_normal, 15),
    STATEFUL("TruncatedNormal",      "dtype", DTYPES_REAL_FLOAT, random_truncated_normal, 30),
    STATEFUL("RandomUniformInt",     "Tout",  INT32_64, random_uniform_int, 2),
    STATEFUL("RandomShuffle",        "T",     SHUFFLE_TYPES, random_shuffle, 4),
    {"Multinomial", {{"T", DTYPES_REAL_FLOAT}, {"output_dtype", INT32_64}}, random_multinomial,
        random_state_init,
     .flags = SEQUENCE, .cost_ns_per_element = 20},
    {"RandomGamma", {{"T", GAMMA_TYPES}}, random_gamma, random_state_init, .flags = SEQUENCE,
        .cost_ns_per_element = 100},
    {"RandomPoisson", {{"dtype", GAMMA_TYPES}}, random_poisson, random_state_init,
        .flags = SEQUENCE, .cost_ns_per_element = 100},
    {"RandomPoissonV2", {{"R", POISSON_TYPES}, {"dtype", POISSON_TYPES}}, random_poisson,
        random_state_init,
     .flags = SEQUENCE, .cost_ns_per_element = 100},

    STATELESS("StatelessRandomUniform",        DTYPES_REAL_FLOAT, RANDOM_UNIFORM, 2),
    STATELESS("StatelessRandomNormal",         DTYPES_REAL_FLOAT, RANDOM_NORMAL, 15),
    STATELESS("StatelessTruncatedNormal",      DTYPES_REAL_FLOAT, RANDOM_TRUNCATED, 30),
    STATELESS("StatelessRandomUniformInt",     INT32_64, RANDOM_RANGE, 2),
    STATELESS("StatelessRandomUniformFullInt", INT_BITS, RANDOM_BITS, 2),
    STATELESS_V2("StatelessRandomUniformV2",        DTYPES_REAL_FLOAT, RANDOM_UNIFORM, 2),
    STATELESS_V2("StatelessRandomNormalV2",         DTYPES_REAL_FLOAT, RANDOM_NORMAL, 15),
    STATELESS_V2("StatelessTruncatedNormalV2",      DTYPES_REAL_FLOAT, RANDOM_TRUNCATED, 30),
    STATELESS_V2("StatelessRandomUniformIntV2",     INT32_64, RANDOM_RANGE, 2),
    STATELESS_V2("StatelessRandomUniformFullIntV2", INT_BITS, RANDOM_BITS, 2),
    IN_RESOURCE("StatefulUniform",          DTYPES_REAL_FLOAT, RANDOM_UNIFORM, 2),
    IN_RESOURCE("StatefulStandardNormalV2", DTYPES_REAL_FLOAT, RANDOM_NORMAL, 15),
    IN_RESOURCE("StatefulTruncatedNormal",  DTYPES_REAL_FLOAT, RANDOM_TRUNCATED, 30),
    IN_RESOURCE("StatefulUniformInt",       INT32_64, RANDOM_RANGE, 2),
    IN_RESOURCE("StatefulUniformFullInt",   INT_BITS, RANDOM_BITS, 2),
    {"StatefulRandomBinomial",  {{"T", BINOMIAL_TYPES & ~DTYPES_INDEX}, {"dtype", BINOMIAL_TYPES}},
        random_resource_binomial, .flags = KERNEL_STATEFUL,
     .cost_ns_per_element = 150},
    {"StatelessRandomBinomial", {{"T", BINOMIAL_TYPES & ~DTYPES_INDEX}, {"dtype", BINOMIAL_TYPES}},
        random_stateless_binomial, .cost_ns_per_element = 150},
    {"RngSkip",        .compute = random_skip, .flags = KERNEL_STATEFUL},
    {"RngReadAndSkip", .compute = random_skip, .flags = KERNEL_STATEFUL},
    {"ParameterizedTruncatedNormal", {{"dtype", GAMMA_TYPES}}, random_parameterized,
        random_state_init, .flags = SEQUENCE,
     .cost_ns_per_element = 40},
    {"NonDeterministicInts", {{"dtype", INT_BITS}}, random_non_deterministic,
        .flags = KERNEL_STATEFUL, .cost_ns_per_element = 2},
    {"StatelessRandomGetKeyCounter",    .compute = random_get_key_counter},
    {"StatelessRandomGetKeyCounterAlg", .compute = random_get_key_counter},
    {"StatelessRandomGetAlg",           .compute = random_get_alg},
    {"StatelessShuffle",     {{"T", SHUFFLE_TYPES}}, random_stateless_shuffle,
        .cost_ns_per_element = 4},
    {"StatelessMultinomial", {{"T", DTYPES_REAL_FLOAT}, {"output_dtype", INT32_64}},
        random_stateless_multinomial, .cost_ns_per_element = 20},
    {"StatelessRandomGammaV2",  {{"dtype", GAMMA_TYPES}}, random_stateless_gamma,
        .cost_ns_per_element = 100},
    {"StatelessRandomGammaV3",  {{"dtype", GAMMA_TYPES}}, random_stateless_gamma,
        .cost_ns_per_element = 100},
    {"StatelessRandomPoisson", {{"Rtype", POISSON_TYPES}, {"dtype", POISSON_TYPES}},
        random_stateless_poisson, .cost_ns_per_element = 100},
};
// clang-format on

const struct kernel_list random_kernels = {rows, ARRAY_LEN(rows)};
