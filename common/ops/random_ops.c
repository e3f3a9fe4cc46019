/* Lists the random family: numbers from a stream that each execution advances, or (stateless ops)
 * from a seed alone. */
#include "common/ops/op_def.h"

/* The output has the shape in a vector input. */
static struct status *asked_shape(struct shape_inference *ctx, struct shape *ret) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    return shape_from_input(ctx, 0, ret);
}

static struct status *require_size(struct shape_inference *ctx, int input, int64_t size) {
    struct shape shape;
    TRY(shape_require_rank(ctx, input, 1, &shape));
    if (shape.dims[0] >= 0 && shape.dims[0] != size)
        return status_invalid("Dimension must be %lld but is %lld", (long long)size,
                              (long long)shape.dims[0]);
    return NULL;
}

static struct status *require_key(struct shape_inference *ctx, int key) {
    TRY(require_size(ctx, key, 1));
    TRY(shape_require_rank(ctx, key + 1, 1, NULL));
    return shape_require_rank(ctx, key + 2, 0, NULL);
}

static struct status *require_scalar(struct shape_inference *ctx, int input, const char *name) {
    if (ctx->in[input].rank > 0)
        return status_invalid("%s must be a scalar; got a tensor of shape %s", name,
                              SHAPE_TEXT(ctx->in[input]));
    return NULL;
}

static struct status *shape_asked(struct shape_inference *ctx) {
    return asked_shape(ctx, &ctx->out[0]);
}

static struct status *shape_uniform_int(struct shape_inference *ctx) {
    TRY(require_scalar(ctx, 1, "minval"));
    TRY(require_scalar(ctx, 2, "maxval"));
    return shape_asked(ctx);
}

static struct status *shape_stateless(struct shape_inference *ctx) {
    TRY(require_size(ctx, 1, 2));
    return shape_asked(ctx);
}

static struct status *shape_stateless_int(struct shape_inference *ctx) {
    TRY(require_scalar(ctx, 2, "minval"));
    TRY(require_scalar(ctx, 3, "maxval"));
    return shape_stateless(ctx);
}

static struct status *shape_stateless_v2(struct shape_inference *ctx) {
    TRY(require_key(ctx, 1));
    return shape_asked(ctx);
}

static struct status *shape_stateless_int_v2(struct shape_inference *ctx) {
    TRY(require_scalar(ctx, 4, "minval"));
    TRY(require_scalar(ctx, 5, "maxval"));
    return shape_stateless_v2(ctx);
}

static struct status *shape_get_key(struct shape_inference *ctx) {
    static const int64_t key[] = {1}, counter[] = {2};
    TRY(require_size(ctx, 0, 2));
    ctx->out[0] = (struct shape){1, key};
    ctx->out[1] = (struct shape){1, counter};
    if (ctx->node->n_outputs > 2)
        ctx->out[2] = SHAPE_SCALAR;
    return NULL;
}

static struct status *shape_stateless_shuffle(struct shape_inference *ctx) {
    TRY(require_key(ctx, 1));
    return shape_same_as_input(ctx);
}

static struct status *shape_multinomial(struct shape_inference *ctx) {
    struct shape logits;
    TRY(shape_require_rank(ctx, 0, 2, &logits));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    int64_t dims[2] = {logits.dims[0], -1};
    const struct tensor *samples = ctx->in_values[1];
    if (samples)
        dims[1] = tensor_index_at(samples, 0);
    if (samples && dims[1] < 0)
        return status_invalid(
            "Dimension size, given by scalar input 1, must be non-negative but is %lld",
            (long long)dims[1]);
    ctx->out[0] = shape_make(ctx, 2, dims);
    return NULL;
}

static struct status *shape_stateless_multinomial(struct shape_inference *ctx) {
    TRY(require_size(ctx, 2, 2));
    return shape_multinomial(ctx);
}

/* Gamma, Poisson: the requested shape, then that of the parameters. */
static struct status *shape_per_parameter(struct shape_inference *ctx) {
    struct shape asked;
    TRY(asked_shape(ctx, &asked));
    return shape_concat(ctx, asked, ctx->in[1], &ctx->out[0]);
}

static struct status *shape_parameterized(struct shape_inference *ctx) {
    for (int i = 1; i < 5; i++) {
        if (ctx->in[i].rank > 1)
            return status_invalid("Shape must be at most rank 1 but is rank %d", ctx->in[i].rank);
    }
    return shape_asked(ctx);
}

static struct status *shape_in_resource(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    return shape_from_input(ctx, 2, &ctx->out[0]);
}

static struct status *shape_uniform_int_in_resource(struct shape_inference *ctx) {
    TRY(require_scalar(ctx, 3, "minval"));
    TRY(require_scalar(ctx, 4, "maxval"));
    return shape_in_resource(ctx);
}

static struct status *shape_binomial_in_resource(struct shape_inference *ctx) {
    return shape_from_input(ctx, 2, &ctx->out[0]);
}

static struct status *shape_skip(struct shape_inference *ctx) {
    static const int64_t state[] = {3};
    for (int i = 0; i < 3; i++)
        TRY(shape_require_rank(ctx, i, 0, NULL));
    if (ctx->node->n_outputs > 0)
        ctx->out[0] = (struct shape){1, state};
    return NULL;
}

/* The output is a scalar for scalar inputs and one seed, and otherwise a vector. */
static struct status *shape_index_shuffle(struct shape_inference *ctx) {
    int64_t n = -1;
    if (ctx->in[0].rank > 1 || ctx->in[2].rank > 1)
        return NULL;
    if (ctx->in[0].rank == 0 && ctx->in[1].rank == 1 && ctx->in[2].rank == 0)
        ctx->out[0] = SHAPE_SCALAR;
    else if (ctx->in[0].rank == 1)
        ctx->out[0] = ctx->in[0];
    else if (ctx->in[2].rank == 1)
        ctx->out[0] = ctx->in[2];
    else if (ctx->in[1].rank == 2)
        ctx->out[0] = shape_make(ctx, 1, ctx->in[1].dims);
    else if (ctx->in[0].rank >= 0 && ctx->in[1].rank >= 0 && ctx->in[2].rank >= 0)
        ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"RandomUniform", "uniform in [0, 1)", shape_asked},
    {"RandomStandardNormal", "normal, mean 0 and deviation 1", shape_asked},
    {"TruncatedNormal", "normal, redrawn until within 2 deviations", shape_asked},
    {"RandomUniformInt", "uniform integers in [minval, maxval)", shape_uniform_int},
    {"RandomShuffle", "the rows of value in random order", shape_same_as_input},
    {"Multinomial", "classes drawn by their logits", shape_multinomial},
    {"RandomGamma", "gamma, one set of samples per alpha", shape_per_parameter},
    {"RandomPoisson", "Poisson, one set of samples per rate", shape_per_parameter},
    {"RandomPoissonV2", "Poisson, one set of samples per rate", shape_per_parameter},
    {"StatelessRandomUniform", "uniform in [0, 1), from a seed", shape_stateless},
    {"StatelessRandomNormal", "normal, from a seed", shape_stateless},
    {"StatelessTruncatedNormal", "normal within 2 deviations, from a seed", shape_stateless},
    {"StatelessRandomUniformInt", "uniform integers in [minval, maxval), from a seed",
     shape_stateless_int},
    {"StatelessRandomUniformFullInt", "integers of all values, from a seed", shape_stateless},
    {"StatelessRandomUniformV2", "uniform in [0, 1), from key and counter", shape_stateless_v2},
    {"StatelessRandomNormalV2", "normal, from key and counter", shape_stateless_v2},
    {"StatelessTruncatedNormalV2", "normal within 2 deviations, from key and counter",
     shape_stateless_v2},
    {"StatelessRandomUniformIntV2", "uniform integers in [minval, maxval), from key and counter",
     shape_stateless_int_v2},
    {"StatelessRandomUniformFullIntV2", "integers of all values, from key and counter",
     shape_stateless_v2},
    {"StatelessRandomGetKeyCounter", "a generator's key and counter for a seed", shape_get_key},
    {"StatelessRandomGetKeyCounterAlg", "a generator's key, counter and algorithm for a seed",
     shape_get_key},
    {"StatelessRandomGetAlg", "the device's random number algorithm", shape_scalar},
    {"StatelessShuffle", "the rows of value in random order, from key and counter",
     shape_stateless_shuffle},
    {"StatelessMultinomial", "classes drawn by their logits, from a seed",
     shape_stateless_multinomial},
    {"StatelessRandomGammaV2", "gamma, from a seed", shape_stateless},
    {"StatelessRandomGammaV3", "gamma, from key and counter", shape_stateless_v2},
    {"StatelessRandomPoisson", "Poisson, from a seed", shape_stateless},
    {"ParameterizedTruncatedNormal", "normal between bounds, with parameters for each batch",
     shape_parameterized},
    {"StatefulUniform", "uniform in [0, 1), from a generator in a variable", shape_in_resource},
    {"StatefulStandardNormalV2", "normal, from a generator in a variable", shape_in_resource},
    {"StatefulTruncatedNormal", "normal within 2 deviations, from a generator in a variable",
     shape_in_resource},
    {"StatefulUniformInt", "uniform integers in [minval, maxval), from a generator in a variable",
     shape_uniform_int_in_resource},
    {"StatefulUniformFullInt", "integers of all values, from a generator in a variable",
     shape_in_resource},
    {"StatefulRandomBinomial", "binomial, from a generator in a variable",
     shape_binomial_in_resource},
    {"StatelessRandomBinomial", "binomial, from a seed", shape_stateless},
    {"RngSkip", "advances a generator", shape_skip},
    {"RngReadAndSkip", "advances a generator, and returns its state before", shape_skip},
    {"NonDeterministicInts", "integers of all values from the machine's randomness", shape_asked},
    {"RandomIndexShuffle", "the positions of indices in a permutation that a seed chooses",
     shape_index_shuffle},
};
// clang-format on

const struct op_def_list random_ops = {rows, ARRAY_LEN(rows)};
