/* Synchronous, in-graph replication: one client, one graph, two workers [OSDI 4.4, figure 4b]. The
 * twin of examples/digits_sync.py.
 *
 * Each step feeds one batch of digits, splits it over the two worker tasks, averages their
 * gradients on the parameter server and applies them once.
 *
 *   cc examples/c/digits.c -o digits $(pkg-config --cflags --libs millrace)
 *   tfctl local --ps 1 --workers 2 -- ./digits
 *   MILLRACE_TARGET= ./digits                        without daemons, in this process */
#include "example.h"

enum { N_WORKERS = 2, BATCH = 128, N_STEPS = 1200, N_VARIABLES = 4 };

/* x · weights + biases */
static TF_Output dense(MR_Builder *b, TF_Output x, const MR_Variable *weights,
                       const MR_Variable *biases) {
    return MR_Binary(b, "AddV2", MR_Binary(b, "MatMul", x, MR_Read(b, weights)),
                     MR_Read(b, biases));
}

struct network {
    MR_Variable *variables[N_VARIABLES]; /* w1, b1, w2, b2 */
};

static struct network make_network(MR_Builder *b) {
    return (struct network){{
        MR_NewVariable(b, "w1", TF_FLOAT, MR_DIMS(64, 128), MR_GlorotUniform(1)),
        MR_NewVariable(b, "b1", TF_FLOAT, MR_DIMS(128), MR_Zeros()),
        MR_NewVariable(b, "w2", TF_FLOAT, MR_DIMS(128, 10), MR_GlorotUniform(1)),
        MR_NewVariable(b, "b2", TF_FLOAT, MR_DIMS(10), MR_Zeros()),
    }};
}

static TF_Output logits_of(MR_Builder *b, const struct network *n, TF_Output x) {
    TF_Output hidden = MR_Unary(b, "Relu", dense(b, x, n->variables[0], n->variables[1]));
    return dense(b, hidden, n->variables[2], n->variables[3]);
}

static TF_Output mean(MR_Builder *b, TF_Output x) {
    return MR_Binary(b, "Mean", x, MR_Ints(b, MR_DIMS(0)));
}

/* One worker's share: the loss of its part of the batch, and the gradients of the variables. */
static TF_Output replica(MR_Builder *b, const struct network *network, TF_Output x, TF_Output y,
                         MR_Gradient gradients[N_VARIABLES]) {
    TF_Output losses =
        MR_Binary(b, "SparseSoftmaxCrossEntropyWithLogits", logits_of(b, network, x), y);
    TF_Output loss = mean(b, losses);
    MR_Gradients(b, loss, NULL, -1, gradients, N_VARIABLES);
    return loss;
}

/* The mean of what the workers computed. */
static TF_Output average(MR_Builder *b, const TF_Output *of_workers) {
    return MR_Binary(b, "RealDiv", MR_Op(b, "AddN", NULL, of_workers, N_WORKERS),
                     MR_Scalar(b, TF_FLOAT, N_WORKERS));
}

struct model {
    TF_Output feeds[2]; /* images, labels */
    TF_Output loss, accuracy;
    TF_Operation *init, *train;
};

static struct model build(MR_Builder *b) {
    struct model m;
    MR_Gradient gradients[N_WORKERS][N_VARIABLES] = {{{0}}}, means[N_VARIABLES] = {{0}};
    TF_Output losses[N_WORKERS], of_workers[N_WORKERS];
    MR_SetDevice(b, place("/job:ps/task:0"));
    struct network network = make_network(b);
    MR_SetDevice(b, place("/job:worker/task:0"));
    TF_Output x = m.feeds[0] = MR_Placeholder(b, "x", TF_FLOAT, MR_DIMS(-1, 64));
    TF_Output y = m.feeds[1] = MR_Placeholder(b, "y", TF_INT64, MR_DIMS(-1));
    TF_Output axis = MR_Scalar(b, TF_INT32, 0);
    TF_Output xs = MR_Op(b, "Split", "num_split=2", MR_INPUTS(axis, x));
    TF_Output ys = MR_Op(b, "Split", "num_split=2", MR_INPUTS(axis, y));
    for (int task = 0; task < N_WORKERS; task++) {
        MR_SetDevice(b, place(task == 0 ? "/job:worker/task:0" : "/job:worker/task:1"));
        losses[task] = replica(b, &network, (TF_Output){xs.oper, task}, (TF_Output){ys.oper, task},
                               gradients[task]);
    }
    MR_SetDevice(b, place("/job:ps/task:0"));
    m.loss = average(b, losses);
    for (int i = 0; i < N_VARIABLES; i++) {
        for (int task = 0; task < N_WORKERS; task++)
            of_workers[task] = gradients[task][i].values;
        means[i] = (MR_Gradient){network.variables[i], average(b, of_workers), {NULL, 0}};
    }
    MR_Optimizer *momentum = MR_NewMomentum(b, MR_Scalar(b, TF_FLOAT, 0.1), 0.9, 0);
    m.train = MR_ApplyGradients(b, momentum, means, N_VARIABLES, NULL);
    MR_SetDevice(b, place("/job:worker/task:0"));
    TF_Output answer =
        MR_Op(b, "ArgMax", NULL, MR_INPUTS(logits_of(b, &network, x), MR_Scalar(b, TF_INT32, 1)));
    m.accuracy = mean(b, MR_Cast(b, MR_Binary(b, "Equal", answer, y), TF_FLOAT));
    m.init = MR_InitializeAll(b);
    return m;
}

int main(int argc, char **argv) {
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    MR_Builder *builder = MR_NewBuilder(graph);
    struct model model = build(builder);
    expect_ok(MR_BuilderStatus(builder));

    struct digits digits = load_digits();
    struct random r = random_seed(0);
    TF_Session *session = MR_NewSession(graph, argc > 1 ? argv[1] : NULL, status);
    expect_ok(status);
    MR_RunOperation(session, model.init, status);
    expect_ok(status);
    for (int step = 1; step <= N_STEPS; step++) {
        TF_Tensor *images, *labels;
        draw_digits(&digits, &r, BATCH, &images, &labels);
        float loss =
            run_step(session, model.feeds, images, labels, model.loss, model.train, status);
        if (step == 1 || step % 300 == 0)
            printf("step %5d   loss %.4f\n", step, loss);
    }
    TF_Tensor *images = tensor_of(TF_FLOAT, digits.test_images, MR_DIMS(digits.n_test, 64));
    TF_Tensor *labels = tensor_of(TF_INT64, digits.test_labels, MR_DIMS(digits.n_test));
    float accuracy = run_step(session, model.feeds, images, labels, model.accuracy, NULL, status);
    printf("test accuracy %.4f\n", accuracy);

    TF_DeleteSession(session, status);
    MR_DeleteBuilder(builder);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return accuracy > 0.95 ? 0 : 1;
}
