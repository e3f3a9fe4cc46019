/* Derivatives of the nn family. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("BiasAdd"),
    LATER_GRADIENT("BiasAddV1"),
    LATER_GRADIENT("BiasAddGrad"),
    LATER_GRADIENT("Relu"),
    LATER_GRADIENT("ReluGrad"),
    LATER_GRADIENT("Relu6"),
    LATER_GRADIENT("Relu6Grad"),
    LATER_GRADIENT("LeakyRelu"),
    LATER_GRADIENT("LeakyReluGrad"),
    LATER_GRADIENT("Elu"),
    LATER_GRADIENT("EluGrad"),
    LATER_GRADIENT("Selu"),
    LATER_GRADIENT("SeluGrad"),
    LATER_GRADIENT("Softplus"),
    LATER_GRADIENT("SoftplusGrad"),
    LATER_GRADIENT("Softsign"),
    NO_GRADIENT("SoftsignGrad"),   /* TensorFlow has none either */
    LATER_GRADIENT("Softmax"),
    LATER_GRADIENT("LogSoftmax"),
    LATER_GRADIENT("SoftmaxCrossEntropyWithLogits"),
    LATER_GRADIENT("SparseSoftmaxCrossEntropyWithLogits"),
    NO_GRADIENT("InTopK"),         /* answers yes or no */
    NO_GRADIENT("InTopKV2"),
    LATER_GRADIENT("TopK"),
    LATER_GRADIENT("TopKV2"),
    LATER_GRADIENT("NthElement"),
    LATER_GRADIENT("L2Loss"),
};
// clang-format on

const struct gradient_list nn_gradients = {rows, ARRAY_LEN(rows)};
