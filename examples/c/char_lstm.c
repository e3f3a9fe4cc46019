/* A language model of characters: an LSTM over Shakespeare, unrolled by a while loop, its table
 * partitioned over two parameter servers. The twin of examples/char_lstm.py with the full softmax.
 *
 *   cc examples/c/char_lstm.c -o char_lstm $(pkg-config --cflags --libs millrace)
 *   tfctl local --ps 2 --workers 1 -- ./char_lstm [STEPS]
 *   MILLRACE_TARGET= ./char_lstm [STEPS]             without daemons, in this process */
#include "example.h"

enum { N_PS = 2, BATCH = 32, LENGTH = 20, N_EMBEDDED = 64, N_HIDDEN = 256, N_VARIABLES = 6 };

static const char *const tasks[N_PS] = {"/job:ps/task:0", "/job:ps/task:1"};
#define WORKER place("/job:worker/task:0")

/* ---- the text as numbers of its symbols ---- */

struct corpus {
    int32_t *tokens;
    int64_t n_tokens, n_symbols;
};

static struct corpus read_corpus(void) {
    size_t n;
    int number[256] = {0};
    unsigned char *text = (unsigned char *)load_text(&n);
    struct corpus corpus = {malloc(n * sizeof(int32_t)), (int64_t)n, 0};
    for (size_t i = 0; i < n; i++)
        number[text[i]] = 1;
    for (int c = 0; c < 256; c++)
        if (number[c])
            number[c] = (int)corpus.n_symbols++;
    for (size_t i = 0; i < n; i++)
        corpus.tokens[i] = number[text[i]];
    free(text);
    return corpus;
}

/* Batch i: LENGTH characters of each of BATCH streams, and those that follow them. */
static void take_batch(const struct corpus *corpus, int i, TF_Tensor **ids, TF_Tensor **labels) {
    int64_t length = corpus->n_tokens / BATCH, at = i % ((length - 1) / LENGTH) * LENGTH;
    int32_t now[BATCH][LENGTH], next[BATCH][LENGTH];
    for (int s = 0; s < BATCH; s++) {
        memcpy(now[s], corpus->tokens + s * length + at, sizeof now[s]);
        memcpy(next[s], corpus->tokens + s * length + at + 1, sizeof next[s]);
    }
    *ids = tensor_of(TF_INT32, now, MR_DIMS(BATCH, LENGTH));
    *labels = tensor_of(TF_INT32, next, MR_DIMS(BATCH, LENGTH));
}

/* ---- the model ---- */

struct model {
    TF_Output feeds[2]; /* ids, labels: int32 [BATCH, LENGTH] */
    TF_Output loss;
    TF_Operation *init, *train;
};

/* A variable on a parameter server, as the worker reads it. */
static TF_Output variable(MR_Builder *b, int task, const char *name, const int64_t *dims,
                          int num_dims, MR_Initializer init) {
    MR_SetDevice(b, place(tasks[task]));
    MR_Variable *made = MR_NewVariable(b, name, TF_FLOAT, dims, num_dims, init);
    MR_SetDevice(b, WORKER);
    return MR_Read(b, made);
}

struct cell {
    TF_Output memory, hidden; /* [BATCH, N_HIDDEN] */
};

/* One step of the LSTM. */
static struct cell step_cell(MR_Builder *b, struct cell cell, TF_Output x, TF_Output w,
                             TF_Output biases) {
    TF_Output axis = MR_Scalar(b, TF_INT32, 1);
    TF_Output joined = MR_Op(b, "ConcatV2", NULL, MR_INPUTS(x, cell.hidden, axis));
    TF_Output sums = MR_Binary(b, "AddV2", MR_Binary(b, "MatMul", joined, w), biases);
    TF_Operation *gates = MR_Op(b, "Split", "num_split=4", MR_INPUTS(axis, sums)).oper;
    TF_Output in = {gates, 0}, new = {gates, 1}, forget = {gates, 2}, out = {gates, 3};
    forget = MR_Binary(b, "AddV2", forget, MR_Scalar(b, TF_FLOAT, 1));
    TF_Output kept = MR_Binary(b, "Mul", cell.memory, MR_Unary(b, "Sigmoid", forget));
    TF_Output added = MR_Binary(b, "Mul", MR_Unary(b, "Sigmoid", in), MR_Unary(b, "Tanh", new));
    cell.memory = MR_Binary(b, "AddV2", kept, added);
    cell.hidden =
        MR_Binary(b, "Mul", MR_Unary(b, "Sigmoid", out), MR_Unary(b, "Tanh", cell.memory));
    return cell;
}

/* ---- the loop over time ---- */

/* Its values: those that change, and those that every iteration reads. */
enum { TIME, MEMORY, HIDDEN, WRITTEN, W, BIASES, INPUTS, FILLED, OUTPUTS, N_VALUES };

/* Before time LENGTH, an iteration reads one character, and writes one hidden state. */
static void fill_loop(TF_WhileParams *loop) {
    MR_Builder *c = MR_NewBuilder(loop->cond_graph), *b = MR_NewBuilder(loop->body_graph);
    loop->cond_output =
        MR_Binary(c, "Less", loop->cond_inputs[TIME], MR_Scalar(c, TF_INT32, LENGTH));
    const TF_Output *in = loop->body_inputs;
    MR_SetDevice(b, WORKER);
    for (int i = 0; i < N_VALUES; i++)
        loop->body_outputs[i] = in[i];
    TF_Output x =
        MR_Op(b, "TensorArrayReadV3", "dtype=float", MR_INPUTS(in[INPUTS], in[TIME], in[FILLED]));
    struct cell cell = step_cell(b, (struct cell){in[MEMORY], in[HIDDEN]}, x, in[W], in[BIASES]);
    loop->body_outputs[TIME] = MR_Binary(b, "AddV2", in[TIME], MR_Scalar(b, TF_INT32, 1));
    loop->body_outputs[MEMORY] = cell.memory;
    loop->body_outputs[HIDDEN] = cell.hidden;
    loop->body_outputs[WRITTEN] = MR_Op(b, "TensorArrayWriteV3", NULL,
                                        MR_INPUTS(in[OUTPUTS], in[TIME], cell.hidden, in[WRITTEN]));
    expect_ok(MR_BuilderStatus(c));
    expect_ok(MR_BuilderStatus(b));
    MR_DeleteBuilder(c);
    MR_DeleteBuilder(b);
}

/* inputs [LENGTH, BATCH, N_EMBEDDED] → hidden states [LENGTH, BATCH, N_HIDDEN] */
static TF_Output loop_over_time(MR_Builder *b, TF_Output inputs, TF_Output w, TF_Output biases) {
    TF_Output length = MR_Scalar(b, TF_INT32, LENGTH), first = MR_Scalar(b, TF_INT32, 0);
    TF_Output times = MR_Op(b, "Range", NULL, MR_INPUTS(first, length, MR_Scalar(b, TF_INT32, 1)));
    TF_Output array = MR_Op(b, "TensorArrayV3", "dtype=float", MR_INPUTS(length));
    TF_Output outputs = MR_Op(b, "TensorArrayV3", "dtype=float", MR_INPUTS(length));
    TF_Output filled = MR_Op(b, "TensorArrayScatterV3", NULL,
                             MR_INPUTS(array, times, inputs, (TF_Output){array.oper, 1}));
    TF_Output zeros =
        MR_Binary(b, "Fill", MR_Ints(b, MR_DIMS(BATCH, N_HIDDEN)), MR_Scalar(b, TF_FLOAT, 0));
    TF_Output values[N_VALUES] = {
        [TIME] = first,
        [MEMORY] = zeros,
        [HIDDEN] = zeros,
        [WRITTEN] = {outputs.oper, 1},
        [W] = w,
        [BIASES] = biases,
        [INPUTS] = array,
        [FILLED] = filled,
        [OUTPUTS] = outputs,
    };
    expect_ok(MR_BuilderStatus(b));
    TF_Status *status = TF_NewStatus();
    TF_WhileParams loop = TF_NewWhile(MR_BuilderGraph(b), values, N_VALUES, status);
    expect_ok(status);
    fill_loop(&loop);
    loop.name = "time";
    TF_FinishWhile(&loop, status, values);
    expect_ok(status);
    TF_DeleteStatus(status);
    return MR_Op(b, "TensorArrayGatherV3", "dtype=float",
                 MR_INPUTS(outputs, times, values[WRITTEN]));
}

/* ids → hidden states [BATCH · LENGTH, N_HIDDEN] */
static TF_Output lstm(MR_Builder *b, TF_Output ids, int64_t n_symbols) {
    MR_Variable *table[N_PS] = {0};
    const char *const ps[N_PS] = {place(tasks[0]), place(tasks[1])};
    MR_NewPartitionedVariable(b, "embedding", TF_FLOAT, MR_DIMS(n_symbols, N_EMBEDDED),
                              MR_RandomUniform(-0.08, 0.08, 2), ps, N_PS, table);
    TF_Output w = variable(b, 0, "lstm_w", MR_DIMS(N_EMBEDDED + N_HIDDEN, 4 * N_HIDDEN),
                           MR_RandomUniform(-0.08, 0.08, 4));
    TF_Output biases = variable(b, 1, "lstm_b", MR_DIMS(4 * N_HIDDEN), MR_Zeros());
    TF_Output by_time = MR_Ints(b, MR_DIMS(1, 0, 2)); /* and back: batches first */
    TF_Output embedded = MR_EmbeddingLookup(b, table, N_PS, ids);
    TF_Output states = loop_over_time(b, MR_Binary(b, "Transpose", embedded, by_time), w, biases);
    states = MR_Binary(b, "Transpose", states, by_time);
    return MR_Binary(b, "Reshape", states, MR_Ints(b, MR_DIMS(-1, N_HIDDEN)));
}

static struct model build(MR_Builder *b, int64_t n_symbols) {
    struct model m;
    MR_SetSeed(b, 1);
    MR_SetDevice(b, WORKER);
    m.feeds[0] = MR_Placeholder(b, "ids", TF_INT32, MR_DIMS(BATCH, LENGTH));
    m.feeds[1] = MR_Placeholder(b, "labels", TF_INT32, MR_DIMS(BATCH, LENGTH));
    TF_Output hidden = lstm(b, m.feeds[0], n_symbols);
    TF_Output w =
        variable(b, 0, "softmax_w", MR_DIMS(n_symbols, N_HIDDEN), MR_RandomUniform(-0.08, 0.08, 5));
    TF_Output biases = variable(b, 1, "softmax_b", MR_DIMS(n_symbols), MR_Zeros());
    TF_Output product = MR_Op(b, "MatMul", "transpose_b=true", MR_INPUTS(hidden, w));
    TF_Output flat = MR_Binary(b, "Reshape", m.feeds[1], MR_Ints(b, MR_DIMS(-1)));
    TF_Output losses = MR_Binary(b, "SparseSoftmaxCrossEntropyWithLogits",
                                 MR_Binary(b, "AddV2", product, biases), flat);
    m.loss = MR_Binary(b, "Mean", losses, MR_Ints(b, MR_DIMS(0)));

    MR_Gradient gradients[N_VARIABLES];
    MR_Optimizer *adam = MR_NewAdam(b, MR_Scalar(b, TF_FLOAT, 2e-3), 0.9, 0.999, 1e-8);
    MR_Gradients(b, m.loss, NULL, -1, gradients, N_VARIABLES);
    MR_ClipByGlobalNorm(b, gradients, N_VARIABLES, 5);
    m.train = MR_ApplyGradients(b, adam, gradients, N_VARIABLES, NULL);
    m.init = MR_InitializeAll(b);
    return m;
}

int main(int argc, char **argv) {
    int n_steps = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 200;
    struct corpus corpus = read_corpus();
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    MR_Builder *builder = MR_NewBuilder(graph);
    struct model model = build(builder, corpus.n_symbols);
    expect_ok(MR_BuilderStatus(builder));
    TF_Session *session = MR_NewSession(graph, NULL, status);
    expect_ok(status);
    for (int step = -1; step < n_steps; step++) { /* step -1 only compiles, as in the twin */
        TF_Tensor *ids, *labels;
        if (step <= 0)
            MR_RunOperation(session, model.init, status);
        expect_ok(status);
        take_batch(&corpus, step < 0 ? 0 : step, &ids, &labels);
        float loss = run_step(session, model.feeds, ids, labels, model.loss, model.train, status);
        if (step >= 0 && (step < 20 || (step + 1) % 50 == 0))
            printf("step %5d   loss %.6f\n", step + 1, loss);
    }
    TF_DeleteSession(session, status);
    MR_DeleteBuilder(builder);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    free(corpus.tokens);
    return 0;
}
