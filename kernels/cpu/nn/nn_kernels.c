/* Lists the CPU kernels of activations, biases, softmax and top-k. */
#include "kernels/cpu/nn/nn_internal.h"

#define BIAS_TYPES (DTYPES_NUMBER)

// clang-format off
#define ACTIVATION(name, types) \
    {name, {{"T", types}}, nn_activation, nn_activation_init, .flags = KERNEL_ELEMENTWISE}
#define BIAS(name, function, ...) {name, {{"T", BIAS_TYPES}}, function, nn_bias_init, __VA_ARGS__}

static const struct kernel_def rows[] = {
    ACTIVATION("Relu",          DTYPES_REAL),
    ACTIVATION("ReluGrad",      DTYPES_REAL),
    ACTIVATION("Relu6",         DTYPES_REAL),
    ACTIVATION("Relu6Grad",     DTYPES_REAL),
    ACTIVATION("LeakyRelu",     DTYPES_REAL_FLOAT),
    ACTIVATION("LeakyReluGrad", DTYPES_REAL_FLOAT),
    ACTIVATION("Elu",           DTYPES_REAL_FLOAT),
    ACTIVATION("EluGrad",       DTYPES_REAL_FLOAT),
    ACTIVATION("Selu",          DTYPES_REAL_FLOAT),
    ACTIVATION("SeluGrad",      DTYPES_REAL_FLOAT),
    ACTIVATION("Softplus",      DTYPES_REAL_FLOAT),
    ACTIVATION("SoftplusGrad",  DTYPES_REAL_FLOAT),
    ACTIVATION("Softsign",      DTYPES_REAL_FLOAT),
    ACTIVATION("SoftsignGrad",  DTYPES_REAL_FLOAT),
    BIAS("BiasAdd",     nn_bias_add, .flags = KERNEL_ELEMENTWISE),
    BIAS("BiasAddV1",   nn_bias_add, .flags = KERNEL_ELEMENTWISE),
    BIAS("BiasAddGrad", nn_bias_add_grad, .flags = 0),
    {"L2Loss", {{"T", DTYPES_REAL_FLOAT}}, nn_l2_loss},
    {"Softmax",    {{"T", DTYPES_REAL_FLOAT}}, nn_softmax},
    {"LogSoftmax", {{"T", DTYPES_REAL_FLOAT}}, nn_log_softmax},
    {"SoftmaxCrossEntropyWithLogits", {{"T", DTYPES_REAL_FLOAT}}, nn_softmax_xent},
    {"SparseSoftmaxCrossEntropyWithLogits", {{"T", DTYPES_REAL_FLOAT}, {"Tlabels", DTYPES_INDEX}},
        nn_sparse_softmax_xent},
    {"InTopK",     {{"T", DTYPES_INDEX}}, nn_in_top_k,     nn_in_top_k_init},
    {"InTopKV2",   {{"T", DTYPES_INDEX}}, nn_in_top_k,     nn_in_top_k_init},
    {"TopK",       {{"T", DTYPES_REAL}},  nn_top_k,        nn_top_k_init},
    {"TopKV2",     {{"T", DTYPES_REAL}},  nn_top_k,        nn_top_k_init},
    {"NthElement", {{"T", DTYPES_REAL}},  nn_nth_element,  nn_nth_element_init},
};
// clang-format on

const struct kernel_list nn_kernels = {rows, ARRAY_LEN(rows)};
