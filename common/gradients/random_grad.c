/* Differentiates the random family: random numbers do not depend on shape or seed; only Gamma
 * depends on its alpha. */
#include "common/gradients/build.h"

/* The derivative of a sample with respect to its alpha; samples of one alpha are added up. */
static void gamma_alpha_grad(struct gradient_ctx *g, int alpha) {
    SET_SUM(alpha,
            MUL(DY(0), OP("RandomGammaGrad", OP("BroadcastTo", IN(alpha), SHAPE(OUT(0))), OUT(0))));
}

static void random_gamma_grad(struct gradient_ctx *g) { gamma_alpha_grad(g, 1); }
static void stateless_random_gamma_v2_grad(struct gradient_ctx *g) { gamma_alpha_grad(g, 2); }
static void stateless_random_gamma_v3_grad(struct gradient_ctx *g) { gamma_alpha_grad(g, 4); }

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("RandomUniform"),
    NO_GRADIENT("RandomStandardNormal"),
    NO_GRADIENT("TruncatedNormal"),
    NO_GRADIENT("RandomUniformInt"),
    NO_GRADIENT("RandomShuffle"),
    NO_GRADIENT("Multinomial"),
    GRADIENT("RandomGamma", random_gamma_grad),
    NO_GRADIENT("RandomPoisson"),
    NO_GRADIENT("RandomPoissonV2"),
    NO_GRADIENT("StatelessRandomUniform"),
    NO_GRADIENT("StatelessRandomNormal"),
    NO_GRADIENT("StatelessTruncatedNormal"),
    NO_GRADIENT("StatelessRandomUniformInt"),
    NO_GRADIENT("StatelessRandomUniformFullInt"),
    NO_GRADIENT("StatelessRandomUniformV2"),
    NO_GRADIENT("StatelessRandomNormalV2"),
    NO_GRADIENT("StatelessTruncatedNormalV2"),
    NO_GRADIENT("StatelessRandomUniformIntV2"),
    NO_GRADIENT("StatelessRandomUniformFullIntV2"),
    NO_GRADIENT("StatelessRandomGetKeyCounter"),
    NO_GRADIENT("StatelessRandomGetKeyCounterAlg"),
    NO_GRADIENT("StatelessRandomGetAlg"),
    UNDEFINED_GRADIENT("StatelessShuffle"),
    NO_GRADIENT("StatelessMultinomial"),
    GRADIENT("StatelessRandomGammaV2", stateless_random_gamma_v2_grad),
    GRADIENT("StatelessRandomGammaV3", stateless_random_gamma_v3_grad),
    NO_GRADIENT("StatelessRandomPoisson"),
    NO_GRADIENT("ParameterizedTruncatedNormal"),
    NO_GRADIENT("StatefulUniform"),
    NO_GRADIENT("StatefulStandardNormalV2"),
    NO_GRADIENT("StatefulTruncatedNormal"),
    NO_GRADIENT("StatefulUniformInt"),
    NO_GRADIENT("StatefulUniformFullInt"),
    NO_GRADIENT("StatefulRandomBinomial"),
    NO_GRADIENT("StatelessRandomBinomial"),
    NO_GRADIENT("RngSkip"),
    NO_GRADIENT("RngReadAndSkip"),
    NO_GRADIENT("NonDeterministicInts"),
    NO_GRADIENT("RandomIndexShuffle"),
};
// clang-format on

const struct gradient_list random_gradients = {rows, ARRAY_LEN(rows)};
