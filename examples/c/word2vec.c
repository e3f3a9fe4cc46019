/* word2vec: vectors for words by noise-contrastive estimation, from Shakespeare. The twin of
 * examples/word2vec.py.
 *
 * A word is to tell its neighbours from words drawn at random. Both tables are partitioned over two
 * parameter servers; a step reads and changes a few hundred rows of them.
 *
 *   cc examples/c/word2vec.c -o word2vec $(pkg-config --cflags --libs millrace)
 *   tfctl local --ps 2 --workers 1 -- ./word2vec [STEPS]
 *   MILLRACE_TARGET= ./word2vec [STEPS]             without daemons, in this process */
#include "example.h"

enum { N_PS = 2, N_WORDS = 5000, N_DIMENSIONS = 64, N_NOISE = 64, BATCH = 512, WINDOW = 3 };

static const char *const tasks[N_PS] = {"/job:ps/task:0", "/job:ps/task:1"};
static const char *const shown[] = {"king", "love", "she", "sword", "brother", "night"};
enum { N_SHOWN = sizeof shown / sizeof shown[0], N_NEAREST = 6 };

/* ---- the text as numbers of words ---- */

struct word {
    const char *text;
    size_t length;
    int count, first, number; /* how often, which one of the text, and its number: 0 is rare */
};

struct corpus {
    char *text;
    const char *names[N_WORDS];
    size_t lengths[N_WORDS];
    int64_t *tokens;
    int n_tokens;
};

static int more_frequent(const void *a, const void *b) {
    const struct word *x = *(struct word *const *)a, *y = *(struct word *const *)b;
    return x->count != y->count ? y->count - x->count : x->first - y->first;
}

/* The length of the word at `text`: letters and apostrophes, or one mark; 0 for anything else. */
static size_t word_length(const char *text) {
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz'");
    return length > 0 ? length : strspn(text, ".,;:!?") > 0;
}

static struct word *find_word(struct word *table, size_t capacity, const char *text,
                              size_t length) {
    size_t at = 5381;
    for (size_t i = 0; i < length; i++)
        at = at * 33 + (unsigned char)text[i];
    for (at %= capacity; table[at].text; at = (at + 1) % capacity)
        if (table[at].length == length && memcmp(table[at].text, text, length) == 0)
            break;
    return &table[at];
}

/* Numbers the words, the most frequent first. */
static struct corpus read_corpus(void) {
    enum { CAPACITY = 1 << 17 };
    struct corpus corpus = {.names = {"<rare>"}, .lengths = {6}};
    size_t n;
    char *text = load_text(&n);
    struct word *table = calloc(CAPACITY, sizeof *table);
    struct word **tokens = malloc((n + 1) * sizeof *tokens);
    struct word **words = malloc(CAPACITY * sizeof *words);
    int n_words = 0;
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 'a' - 'A' : text[i]);
    for (size_t i = 0, length; i<n; i += length> 0 ? length : 1) {
        length = word_length(text + i);
        if (length == 0)
            continue;
        struct word *word = find_word(table, CAPACITY, text + i, length);
        if (word->count++ == 0) {
            *word = (struct word){text + i, length, 1, n_words, 0};
            words[n_words++] = word;
        }
        tokens[corpus.n_tokens++] = word;
    }
    qsort(words, (size_t)n_words, sizeof *words, more_frequent);
    for (int i = 1; i < N_WORDS && i <= n_words; i++) {
        words[i - 1]->number = i;
        corpus.names[i] = words[i - 1]->text;
        corpus.lengths[i] = words[i - 1]->length;
    }
    corpus.text = text;
    corpus.tokens = malloc((size_t)corpus.n_tokens * sizeof *corpus.tokens);
    for (int i = 0; i < corpus.n_tokens; i++)
        corpus.tokens[i] = tokens[i]->number;
    free(table);
    free(tokens);
    free(words);
    return corpus;
}

/* ---- the model ---- */

struct model {
    TF_Output feeds[2]; /* centres [BATCH], neighbours [BATCH, 1] */
    TF_Output loss, nearest;
    TF_Operation *init, *train;
};

static TF_Output rows(MR_Builder *b, TF_Output x, int begin, int n, int rank) {
    return MR_Op(b, "Slice", NULL,
                 MR_INPUTS(x, MR_Ints(b, (const int64_t[]){begin, 0}, rank),
                           MR_Ints(b, (const int64_t[]){n, -1}, rank)));
}

static TF_Output sum(MR_Builder *b, TF_Output x, int axis) {
    return MR_Op(b, "Sum", "keep_dims=true", MR_INPUTS(x, MR_Scalar(b, TF_INT32, axis)));
}

/* x + biases - log(expected counts) */
static TF_Output logits(MR_Builder *b, TF_Output x, TF_Output biases, TF_Output expected) {
    return MR_Binary(b, "Sub", MR_Binary(b, "AddV2", x, biases), MR_Unary(b, "Log", expected));
}

/* The loss of true and of drawn words. */
static TF_Output contrast(MR_Builder *b, MR_Variable **w, MR_Variable **biases, TF_Output embedded,
                          TF_Output neighbours) {
    TF_Output noise = MR_Op(b, "LogUniformCandidateSampler",
                            "num_true=1, num_sampled=64, unique=true, range_max=5000, seed=1, "
                            "seed2=6",
                            MR_INPUTS(neighbours)); /* words, expected counts of both */
    TF_Output real = MR_Binary(b, "Reshape", neighbours, MR_Ints(b, MR_DIMS(-1)));
    TF_Output all = MR_Op(b, "ConcatV2", NULL, MR_INPUTS(real, noise, MR_Scalar(b, TF_INT32, 0)));
    TF_Output all_w = MR_EmbeddingLookup(b, w, N_PS, all);
    TF_Output all_b = MR_EmbeddingLookup(b, biases, N_PS, all);
    TF_Output product = MR_Binary(b, "Mul", embedded, rows(b, all_w, 0, BATCH, 2));
    TF_Output column =
        MR_Binary(b, "Reshape", rows(b, all_b, 0, BATCH, 1), MR_Ints(b, MR_DIMS(-1, 1)));
    TF_Output trues = logits(b, sum(b, product, 1), column, (TF_Output){noise.oper, 1});
    TF_Output drawn = MR_Op(b, "MatMul", "transpose_b=true",
                            MR_INPUTS(embedded, rows(b, all_w, BATCH, N_NOISE, 2)));
    drawn = logits(b, drawn, rows(b, all_b, BATCH, N_NOISE, 1), (TF_Output){noise.oper, 2});
    TF_Output true_losses = MR_Unary(b, "Softplus", MR_Unary(b, "Neg", trues));
    TF_Output losses =
        MR_Binary(b, "AddV2", true_losses, sum(b, MR_Unary(b, "Softplus", drawn), 1));
    return MR_Binary(b, "Mean", losses, MR_Ints(b, MR_DIMS(0, 1)));
}

/* The words whose vectors have the smallest angle to those of the shown words. */
static TF_Output nearest(MR_Builder *b, MR_Variable **vectors, const int64_t *numbers) {
    TF_Output all =
        MR_Op(b, "ConcatV2", NULL,
              MR_INPUTS(MR_Read(b, vectors[0]), MR_Read(b, vectors[1]), MR_Scalar(b, TF_INT32, 0)));
    TF_Output length = MR_Unary(b, "Rsqrt", sum(b, MR_Unary(b, "Square", all), 1));
    TF_Output unit = MR_Binary(b, "Mul", all, length);
    TF_Output chosen =
        MR_Op(b, "GatherV2", NULL,
              MR_INPUTS(unit, MR_Ints(b, numbers, N_SHOWN), MR_Scalar(b, TF_INT32, 0)));
    TF_Output angles = MR_Op(b, "MatMul", "transpose_b=true", MR_INPUTS(chosen, unit));
    TF_Output top = MR_Binary(b, "TopKV2", angles, MR_Scalar(b, TF_INT32, N_NEAREST));
    return (TF_Output){top.oper, 1};
}

static struct model build(MR_Builder *b, const int64_t *shown_numbers) {
    struct model m;
    const char *const ps[N_PS] = {place(tasks[0]), place(tasks[1])};
    MR_Variable *vectors[N_PS] = {0}, *w[N_PS] = {0}, *biases[N_PS] = {0};
    MR_SetSeed(b, 1);
    MR_SetDevice(b, place("/job:worker/task:0"));
    MR_NewPartitionedVariable(b, "vectors", TF_FLOAT, MR_DIMS(N_WORDS, N_DIMENSIONS),
                              MR_RandomUniform(-0.5 / N_DIMENSIONS, 0.5 / N_DIMENSIONS, 2), ps,
                              N_PS, vectors);
    MR_NewPartitionedVariable(b, "nce_w", TF_FLOAT, MR_DIMS(N_WORDS, N_DIMENSIONS),
                              MR_TruncatedNormal(0, 0.125, 4), ps, N_PS, w);
    MR_NewPartitionedVariable(b, "nce_b", TF_FLOAT, MR_DIMS(N_WORDS), MR_Zeros(), ps, N_PS, biases);
    m.feeds[0] = MR_Placeholder(b, "centres", TF_INT64, MR_DIMS(BATCH));
    m.feeds[1] = MR_Placeholder(b, "neighbours", TF_INT64, MR_DIMS(BATCH, 1));
    TF_Output embedded = MR_EmbeddingLookup(b, vectors, N_PS, m.feeds[0]);
    m.loss = contrast(b, w, biases, embedded, m.feeds[1]);
    MR_Optimizer *adagrad = MR_NewAdagrad(b, MR_Scalar(b, TF_FLOAT, 1), 0.1);
    m.train = MR_Minimize(b, adagrad, m.loss, NULL);
    m.nearest = nearest(b, vectors, shown_numbers);
    m.init = MR_InitializeAll(b);
    return m;
}

/* ---- training ---- */

/* Pairs of words that are up to WINDOW words apart; step i draws from the seed i. */
static void draw_pairs(const struct corpus *corpus, int step, TF_Tensor **centres,
                       TF_Tensor **neighbours) {
    int64_t at[BATCH], near[BATCH], away[BATCH];
    struct random r = random_seed((uint32_t)step);
    for (int i = 0; i < BATCH; i++)
        at[i] = WINDOW + random_up_to(&r, (uint32_t)corpus->n_tokens - 2 * WINDOW - 1);
    for (int i = 0; i < BATCH; i++)
        away[i] = 1 + random_up_to(&r, WINDOW - 1);
    for (int i = 0; i < BATCH; i++)
        near[i] = corpus->tokens[at[i] + (random_up_to(&r, 1) ? away[i] : -away[i])];
    for (int i = 0; i < BATCH; i++)
        at[i] = corpus->tokens[at[i]];
    *centres = tensor_of(TF_INT64, at, MR_DIMS(BATCH));
    *neighbours = tensor_of(TF_INT64, near, MR_DIMS(BATCH, 1));
}

static float train_step(TF_Session *session, const struct model *m, const struct corpus *corpus,
                        int step, TF_Status *status) {
    TF_Tensor *centres, *neighbours;
    draw_pairs(corpus, step, &centres, &neighbours);
    return run_step(session, m->feeds, centres, neighbours, m->loss, m->train, status);
}

static void show_nearest(TF_Session *session, const struct model *m, const struct corpus *corpus,
                         TF_Status *status) {
    TF_Tensor *found = NULL;
    TF_SessionRun(session, NULL, NULL, NULL, 0, &m->nearest, &found, 1, NULL, 0, NULL, status);
    expect_ok(status);
    const int32_t *numbers = TF_TensorData(found);
    for (int i = 0; i < N_SHOWN; i++) {
        printf("  %-8s", shown[i]);
        for (int k = 1; k < N_NEAREST; k++) {
            int32_t word = numbers[N_NEAREST * i + k];
            printf(" %.*s", (int)corpus->lengths[word], corpus->names[word]);
        }
        printf("\n");
    }
    TF_DeleteTensor(found);
}

int main(int argc, char **argv) {
    int n_steps = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 5000;
    struct corpus corpus = read_corpus();
    int64_t shown_numbers[N_SHOWN] = {0};
    for (int i = 0; i < N_SHOWN; i++)
        for (int k = 1; k < N_WORDS; k++)
            if (corpus.lengths[k] == strlen(shown[i]) &&
                memcmp(corpus.names[k], shown[i], corpus.lengths[k]) == 0)
                shown_numbers[i] = k;
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    MR_Builder *builder = MR_NewBuilder(graph);
    struct model model = build(builder, shown_numbers);
    expect_ok(MR_BuilderStatus(builder));
    TF_Session *session = MR_NewSession(graph, NULL, status);
    expect_ok(status);
    for (int i = 0; i < 2; i++) { /* the first step only compiles, as in the twin */
        MR_RunOperation(session, model.init, status);
        expect_ok(status);
        if (i == 0)
            train_step(session, &model, &corpus, 0, status);
    }
    for (int step = 0; step < n_steps; step++) {
        float loss = train_step(session, &model, &corpus, step, status);
        if (step < 20 || (step + 1) % 1000 == 0)
            printf("step %5d   loss %.6f\n", step + 1, loss);
    }
    show_nearest(session, &model, &corpus, status);
    TF_DeleteSession(session, status);
    MR_DeleteBuilder(builder);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    free(corpus.tokens);
    free(corpus.text);
    return 0;
}
