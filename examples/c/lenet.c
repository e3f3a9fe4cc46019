/* A convolutional network in the manner of LeNet, trained on digits: convolution, batch
 * normalisation, pooling and their gradients. The twin of examples/lenet.py.
 *
 * Variables live on the parameter server, the network on a worker.
 *
 *   cc examples/c/lenet.c -o lenet $(pkg-config --cflags --libs millrace)
 *   tfctl local --ps 1 --workers 1 -- ./lenet [STEPS]
 *   MILLRACE_TARGET= ./lenet [STEPS]                 without daemons, in this process */
#include "example.h"

enum { BATCH = 64 };

#define PS place("/job:ps/task:0")
#define WORKER place("/job:worker/task:0")

/* A variable on the parameter server, as the worker reads it. */
static TF_Output variable(MR_Builder *b, const char *layer, const char *name, const int64_t *dims,
                          int num_dims, MR_Initializer init) {
    char full[64];
    snprintf(full, sizeof full, "%s/%s", layer, name);
    MR_SetDevice(b, PS);
    MR_Variable *made = MR_NewVariable(b, full, TF_FLOAT, dims, num_dims, init);
    MR_SetDevice(b, WORKER);
    return MR_Read(b, made);
}

/* A convolution by 3x3 filters, batch normalisation, Relu, and the greatest of 2x2 values. */
static TF_Output convolve(MR_Builder *b, TF_Output x, int depth, int n_filters, const char *name) {
    TF_Output filters =
        variable(b, name, "w", MR_DIMS(3, 3, depth, n_filters), MR_GlorotUniform(depth));
    TF_Output scale = variable(b, name, "scale", MR_DIMS(n_filters), MR_Ones());
    TF_Output offset = variable(b, name, "offset", MR_DIMS(n_filters), MR_Zeros());
    TF_Output none = MR_Op(b, "Const", "dtype=float, value=float[0]{}", NULL, 0);
    TF_Output y = MR_Op(b, "Conv2D", "strides=[1,1,1,1], padding=\"SAME\"", MR_INPUTS(x, filters));
    y = MR_Op(b, "FusedBatchNormV3", "epsilon=0.001, is_training=true",
              MR_INPUTS(y, scale, offset, none, none));
    return MR_Op(b, "MaxPool", "ksize=[1,2,2,1], strides=[1,2,2,1], padding=\"SAME\"",
                 MR_INPUTS(MR_Unary(b, "Relu", y)));
}

static TF_Output dense(MR_Builder *b, TF_Output x, int n_in, int n_out, const char *name) {
    TF_Output weights = variable(b, name, "w", MR_DIMS(n_in, n_out), MR_GlorotUniform(n_in));
    TF_Output biases = variable(b, name, "b", MR_DIMS(n_out), MR_Zeros());
    return MR_Binary(b, "BiasAdd", MR_Binary(b, "MatMul", x, weights), biases);
}

static TF_Output mean(MR_Builder *b, TF_Output x) {
    return MR_Binary(b, "Mean", x, MR_Ints(b, MR_DIMS(0)));
}

struct model {
    TF_Output feeds[2]; /* images, labels */
    TF_Output loss, accuracy;
    TF_Operation *init, *train;
};

static struct model build(MR_Builder *b) {
    struct model m;
    MR_SetDevice(b, WORKER);
    m.feeds[0] = MR_Placeholder(b, "images", TF_FLOAT, MR_DIMS(-1, 64));
    TF_Output labels = m.feeds[1] = MR_Placeholder(b, "labels", TF_INT64, MR_DIMS(-1));
    TF_Output x = MR_Binary(b, "Reshape", m.feeds[0], MR_Ints(b, MR_DIMS(-1, 8, 8, 1)));
    x = convolve(b, convolve(b, x, 1, 32, "conv1"), 32, 64, "conv2");
    x = MR_Binary(b, "Reshape", x, MR_Ints(b, MR_DIMS(-1, 2 * 2 * 64)));
    x = MR_Unary(b, "Relu", dense(b, x, 2 * 2 * 64, 128, "dense1"));
    TF_Output logits = dense(b, x, 128, 10, "logits");
    m.loss = mean(b, MR_Binary(b, "SparseSoftmaxCrossEntropyWithLogits", logits, labels));

    MR_Optimizer *momentum = MR_NewMomentum(b, MR_Scalar(b, TF_FLOAT, 0.02), 0.9, 0);
    m.train = MR_Minimize(b, momentum, m.loss, NULL);
    TF_Output answer = MR_Binary(b, "ArgMax", logits, MR_Scalar(b, TF_INT32, 1));
    m.accuracy = mean(b, MR_Cast(b, MR_Binary(b, "Equal", answer, labels), TF_FLOAT));
    m.init = MR_InitializeAll(b);
    return m;
}

int main(int argc, char **argv) {
    int n_steps = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 200;
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    MR_Builder *builder = MR_NewBuilder(graph);
    struct model model = build(builder);
    expect_ok(MR_BuilderStatus(builder));

    struct digits digits = load_digits();
    struct random r = random_seed(0);
    TF_Session *session = MR_NewSession(graph, NULL, status);
    expect_ok(status);
    MR_RunOperation(session, model.init, status);
    expect_ok(status);
    for (int step = 1; step <= n_steps; step++) {
        TF_Tensor *images, *labels;
        draw_digits(&digits, &r, BATCH, &images, &labels);
        float loss =
            run_step(session, model.feeds, images, labels, model.loss, model.train, status);
        if (step <= 20 || step % 50 == 0)
            printf("step %5d   loss %.6f\n", step, loss);
    }
    TF_Tensor *images = tensor_of(TF_FLOAT, digits.test_images, MR_DIMS(digits.n_test, 64));
    TF_Tensor *labels = tensor_of(TF_INT64, digits.test_labels, MR_DIMS(digits.n_test));
    float accuracy = run_step(session, model.feeds, images, labels, model.accuracy, NULL, status);
    printf("test accuracy %.4f\n", accuracy);

    TF_DeleteSession(session, status);
    MR_DeleteBuilder(builder);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return accuracy > 0.95 || n_steps < 200 ? 0 : 1;
}
