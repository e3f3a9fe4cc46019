/* Synchronous replicas with a backup worker: three workers, and the gradients of the first two to
 * come make a step [OSDI 4.4, figure 4c]. The twin of examples/sync_replicas.py.
 *
 * Each worker has a thread with a session of its own, and so has the chief, which applies the
 * gradients. The witness is a variable whose gradient is always 1: it tells how many updates there
 * were, which must be one a step.
 *
 *   cc examples/c/sync_replicas.c -o sync_replicas $(pkg-config --cflags --libs millrace)
 *   tfctl local --ps 1 --workers 3 -- ./sync_replicas [STEPS] */
#include "example.h"

enum { N_WORKERS = 3, N_AGGREGATED = 2, BATCH = 64, N_VARIABLES = 5, TIMEOUT_MS = 60000 };
#define RATE 0.25 /* a binary fraction, so that the witness counts without rounding */

struct tower {
    TF_Output feeds[2], loss; /* images, labels */
    MR_SyncReplica replica;
};

struct model {
    TF_Graph *graph;
    struct tower towers[N_WORKERS];
    TF_Output accuracy, witness; /* on worker 0 */
    TF_Operation *init, *begin, *update, *close;
    struct digits digits;
    int n_steps;
};

/* ---- the graph ---- */

/* x · weights + biases */
static TF_Output dense(MR_Builder *b, TF_Output x, MR_Variable *weights, MR_Variable *biases) {
    return MR_Binary(b, "AddV2", MR_Binary(b, "MatMul", x, MR_Read(b, weights)),
                     MR_Read(b, biases));
}

static TF_Output mean(MR_Builder *b, TF_Output x) {
    return MR_Binary(b, "Mean", x, MR_Ints(b, MR_DIMS(0)));
}

/* One worker's copy of the network; `v` are w1, b1, w2, b2 and the witness. */
static struct tower make_tower(MR_Builder *b, MR_SyncReplicas *sync, MR_Variable **v,
                               TF_Output *logits) {
    struct tower tower;
    MR_Gradient gradients[N_VARIABLES];
    TF_Output x = tower.feeds[0] = MR_Placeholder(b, "x", TF_FLOAT, MR_DIMS(-1, 64));
    TF_Output y = tower.feeds[1] = MR_Placeholder(b, "y", TF_INT64, MR_DIMS(-1));
    *logits = dense(b, MR_Unary(b, "Relu", dense(b, x, v[0], v[1])), v[2], v[3]);
    tower.loss = mean(b, MR_Binary(b, "SparseSoftmaxCrossEntropyWithLogits", *logits, y));
    TF_Output witnessed = MR_Binary(b, "AddV2", tower.loss, MR_Read(b, v[4]));
    MR_Gradients(b, witnessed, v, N_VARIABLES, gradients, N_VARIABLES);
    tower.replica = MR_SyncTrain(b, sync, gradients, N_VARIABLES);
    return tower;
}

static void build(MR_Builder *b, struct model *m) {
    TF_Output logits[N_WORKERS];
    MR_SetDevice(b, "/job:ps/task:0");
    MR_Variable *step = MR_NewGlobalStep(b);
    MR_Variable *v[N_VARIABLES] = {
        MR_NewVariable(b, "w1", TF_FLOAT, MR_DIMS(64, 128), MR_GlorotUniform(1)),
        MR_NewVariable(b, "b1", TF_FLOAT, MR_DIMS(128), MR_Zeros()),
        MR_NewVariable(b, "w2", TF_FLOAT, MR_DIMS(128, 10), MR_GlorotUniform(1)),
        MR_NewVariable(b, "b2", TF_FLOAT, MR_DIMS(10), MR_Zeros()),
        MR_NewVariable(b, "witness", TF_FLOAT, NULL, 0, MR_Zeros()),
    };
    MR_Optimizer *descent = MR_NewGradientDescent(b, MR_Scalar(b, TF_FLOAT, RATE));
    MR_SyncReplicas *sync = MR_NewSyncReplicas(b, descent, step, N_AGGREGATED, N_WORKERS);
    for (int i = 0; i < N_WORKERS; i++) {
        char device[64], prefix[64];
        snprintf(device, sizeof device, "/job:worker/task:%d", i);
        snprintf(prefix, sizeof prefix, "tower%d", i);
        MR_SetDevice(b, device);
        MR_SetPrefix(b, prefix);
        m->towers[i] = make_tower(b, sync, v, &logits[i]);
    }
    MR_SetPrefix(b, NULL);
    MR_SetDevice(b, "/job:worker/task:0");
    TF_Output answer = MR_Binary(b, "ArgMax", logits[0], MR_Scalar(b, TF_INT32, 1));
    TF_Output is_right = MR_Binary(b, "Equal", answer, m->towers[0].feeds[1]);
    m->accuracy = mean(b, MR_Cast(b, is_right, TF_FLOAT));
    m->witness = MR_Read(b, v[4]);
    m->update = MR_SyncUpdate(b, sync);
    m->begin = MR_SyncInitialize(b, sync);
    m->close = MR_SyncClose(b, sync);
    m->init = MR_InitializeAll(b);
}

/* ---- the threads ---- */

/* A session whose steps end after a minute, so that nobody waits for a thread that has failed. */
static TF_Session *connect(TF_Graph *graph, TF_Status *status) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    const char *target = getenv("MILLRACE_TARGET");
    TF_SetTarget(options, target ? target : "");
    MR_SetTimeout(options, TIMEOUT_MS);
    TF_Session *session = TF_NewSession(graph, options, status);
    TF_DeleteSessionOptions(options);
    return session;
}

/* Applies gradients, one step after the other. */
static void run_chief(MR_Coordinator *coordinator, void *arg, TF_Status *status) {
    const struct model *m = arg;
    TF_Session *session = connect(m->graph, status);
    TF_Status *ignored = TF_NewStatus();
    for (int i = 0; i < m->n_steps && TF_GetCode(status) == TF_OK; i++)
        MR_RunOperation(session, m->update, status);
    MR_RequestStop(coordinator, status);
    if (session) {
        MR_RunOperation(session, m->close, ignored);
        TF_DeleteSession(session, ignored);
    }
    TF_DeleteStatus(ignored);
}

struct worker {
    const struct model *model;
    int task;
};

/* Hands in gradients of its own batches. */
static void run_worker(MR_Coordinator *coordinator, void *arg, TF_Status *status) {
    const struct worker *worker = arg;
    const struct tower *tower = &worker->model->towers[worker->task];
    struct random r = random_seed((uint32_t)worker->task);
    TF_Session *session = connect(worker->model->graph, status);
    TF_Status *ignored = TF_NewStatus();
    for (int i = 0; TF_GetCode(status) == TF_OK && !MR_ShouldStop(coordinator); i++) {
        TF_Tensor *values[2], *loss = NULL;
        const TF_Operation *train = tower->replica.train;
        draw_digits(&worker->model->digits, &r, BATCH, &values[0], &values[1]);
        TF_SessionRun(session, NULL, tower->feeds, values, 2, &tower->loss, &loss, 1, &train, 1,
                      NULL, status);
        if (loss && i % 200 == 0)
            printf("worker %d: batch %5d   loss %.4f\n", worker->task, i,
                   *(float *)TF_TensorData(loss));
        TF_DeleteTensor(values[0]);
        TF_DeleteTensor(values[1]);
        TF_DeleteTensor(loss);
    }
    if (session)
        TF_DeleteSession(session, ignored);
    TF_DeleteStatus(ignored);
}

static void train(struct model *m, TF_Session *session, TF_Status *status) {
    struct worker workers[N_WORKERS];
    MR_RunOperation(session, m->init, status);
    expect_ok(status);
    MR_RunOperation(session, m->begin, status);
    MR_Coordinator *coordinator = MR_NewCoordinator();
    for (int i = 0; i < N_WORKERS && TF_GetCode(status) == TF_OK; i++) {
        workers[i] = (struct worker){m, i};
        MR_RunOperation(session, m->towers[i].replica.init, status);
        expect_ok(status);
        MR_StartThread(coordinator, run_worker, &workers[i], status);
    }
    expect_ok(status);
    MR_StartThread(coordinator, run_chief, m, status);
    expect_ok(status);
    MR_Join(coordinator, status);
    expect_ok(status);
    MR_DeleteCoordinator(coordinator);
}

int main(int argc, char **argv) {
    TF_Status *status = TF_NewStatus();
    struct model m = {.graph = TF_NewGraph(), .digits = load_digits()};
    m.n_steps = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2000;
    MR_Builder *builder = MR_NewBuilder(m.graph);
    build(builder, &m);
    expect_ok(MR_BuilderStatus(builder));
    TF_Session *session = connect(m.graph, status);
    expect_ok(status);
    train(&m, session, status);

    struct digits *d = &m.digits;
    const TF_Output *feeds = m.towers[0].feeds;
    float accuracy =
        run_step(session, feeds, tensor_of(TF_FLOAT, d->test_images, MR_DIMS(d->n_test, 64)),
                 tensor_of(TF_INT64, d->test_labels, MR_DIMS(d->n_test)), m.accuracy, NULL, status);
    TF_Tensor *witness = NULL;
    TF_SessionRun(session, NULL, NULL, NULL, 0, &m.witness, &witness, 1, NULL, 0, NULL, status);
    expect_ok(status);
    int n_updates = (int)(-*(float *)TF_TensorData(witness) / RATE);
    printf("%d updates in %d steps\ntest accuracy %.4f\n", n_updates, m.n_steps, accuracy);
    TF_DeleteTensor(witness);
    TF_DeleteSession(session, status);
    MR_DeleteBuilder(builder);
    TF_DeleteGraph(m.graph);
    TF_DeleteStatus(status);
    return n_updates == m.n_steps && (accuracy > 0.95 || m.n_steps < 500) ? 0 : 1;
}
