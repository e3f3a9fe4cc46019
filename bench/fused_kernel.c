/* fused_kernel: what does the CPU's kernel of a fused program (kernels/cpu/fused) gain? The same
 * nodes one by one and as one, without a master, a worker or an executor. A product's "one by one"
 * is the product, and all nodes behind it as one.
 *
 *   fused_kernel [N_THREADS [MOST_BYTES [NAME]]]     NAME: only programs with this in their name
 *
 * One by one, an intermediate value is moved to its last reader, so that kernels work in place as
 * they do in a step. The two ways are measured in turn; a figure is the least mean of a batch. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/graph/fused.h"
#include "common/graph/graph_text.h"
#include "kernels/kernel.h"

enum { MAX_NODES = 64, ROUNDS = 30, BATCH_NS = 1000000 };

static void must(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, "fused_kernel: %s\n", status_message(st));
    exit(70);
}

struct program {
    struct graph graph;
    struct node *nodes[MAX_NODES]; /* that compute, in order */
    struct kernel_instance instances[MAX_NODES];
    struct tensor inputs[MAX_NODES];        /* by id of a Placeholder */
    bool is_last_use[MAX_NODES][MAX_NODES]; /* by node and input: nobody reads the value later */
    int n_nodes, n_ids, n_at_once;
    struct pool *pool;
};

static void make_axes(const char *name, struct tensor *ret) {
    int64_t n = strcmp(name, "all") == 0 ? 2 : 1;
    must(tensor_new(allocator_host(), DT_INT32, (struct shape){1, &n}, ret));
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)tensor_data(ret))[i] = n == 2 ? (int32_t)i : 1;
}

static void make_inputs(struct program *p, int64_t rows, int64_t columns) {
    for (int i = 0; i < p->graph.n_nodes; i++) {
        struct node *node = p->graph.nodes[i];
        if (!node_is_op(node, "Placeholder")) {
            p->nodes[p->n_nodes++] = node;
            continue;
        }
        /* x…: rows × columns; c…: a column; r…: a row; s…: a scalar; a…: axes [1], or all */
        if (node->name[0] == 'a') {
            make_axes(node->name, &p->inputs[i]);
            continue;
        }
        int64_t dims[2] = {node->name[0] == 'r' ? 1 : rows, node->name[0] == 'c' ? 1 : columns};
        struct shape shape = {node->name[0] == 's' || rows == 0 ? 0 : 2, dims};
        if (node_attr(node, "shape")->shape.rank > 0)
            shape = node_attr(node, "shape")->shape;
        must(tensor_new(allocator_host(), DT_FLOAT, shape, &p->inputs[i]));
        float *to = tensor_data(&p->inputs[i]);
        for (int64_t k = 0; k < p->inputs[i].n_elements; k++)
            to[k] = 0.3f + (float)(k % 97) / 100;
    }
}

static void run(struct program *p, struct kernel_instance *instance, struct tensor *inputs,
                struct tensor *outputs) {
    struct kernel_ctx ctx = {
        .inputs = inputs, .outputs = outputs, .instance = instance, .pool = p->pool};
    instance->compute(&ctx);
    must(ctx.status);
    for (int i = 0; i < instance->n_inputs; i++)
        tensor_clear(&inputs[i]);
}

/* Runs all nodes; the value of the last one is dropped. */
static void run_nodes(struct program *p) {
    struct tensor values[MAX_NODES], inputs[MAX_NODES];
    for (int i = 0; i < p->n_ids; i++)
        values[i] = TENSOR_INIT;
    for (int k = 0; k < p->n_nodes; k++) {
        struct node *node = p->nodes[k];
        for (int i = 0; i < node->n_data; i++) {
            int id = node->inputs[i].src->id;
            inputs[i] = TENSOR_INIT;
            if (p->is_last_use[k][i])
                tensor_move(&inputs[i], &values[id]);
            else
                tensor_copy(&inputs[i], values[id].storage ? &values[id] : &p->inputs[id]);
        }
        run(p, &p->instances[k], inputs, &values[node->id]);
    }
    for (int i = 0; i < p->n_ids; i++)
        tensor_clear(&values[i]);
}

static void find_last_uses(struct program *p) {
    bool is_read[MAX_NODES] = {false};
    for (int k = p->n_nodes - 1; k >= 0; k--)
        for (int i = p->nodes[k]->n_data - 1; i >= 0; i--) {
            const struct node *src = p->nodes[k]->inputs[i].src;
            p->is_last_use[k][i] = !is_read[src->id] && !node_is_op(src, "Placeholder");
            is_read[src->id] = true;
        }
}

/* Makes one node of all but the first n_apart; -1: each stays a node. */
static void program_init(struct program *p, const char *text, int64_t rows, int64_t columns,
                         int n_apart) {
    bool is_result[MAX_NODES] = {false};
    graph_init(&p->graph);
    must(graph_parse(text, &p->graph));
    make_inputs(p, rows, columns);
    if (n_apart >= 0 && p->n_nodes - n_apart > 1) {
        is_result[p->n_nodes - n_apart - 1] = true;
        must(fused_node_make(&p->graph, p->nodes + n_apart, p->n_nodes - n_apart, is_result));
        p->nodes[n_apart] = p->nodes[p->n_nodes - 1];
        p->n_nodes = n_apart + 1;
    }
    p->n_ids = p->graph.n_nodes;
    find_last_uses(p);
    for (int k = 0; k < p->n_nodes; k++)
        must(kernel_instance_init(&p->instances[k], p->nodes[k], "CPU",
                                  "/job:w/replica:0/task:0/device:CPU:0", allocator_host(), NULL));
}

static void program_fini(struct program *p) {
    for (int k = 0; k < p->n_nodes; k++)
        kernel_instance_fini(&p->instances[k]);
    for (int i = 0; i < MAX_NODES; i++)
        tensor_clear(&p->inputs[i]);
    graph_fini(&p->graph);
}

/* One thread's own time, which other load changes little; with more threads, the wall's. */
static int64_t now_ns(const struct program *p) {
    struct timespec now;
    clock_gettime(p->pool ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

static double batch_ns(struct program *p) {
    int64_t began = now_ns(p), n = 0, took = 0;
    for (; n == 0 || took < BATCH_NS; took = now_ns(p) - began)
        for (int i = 0; i < p->n_at_once; i++, n++)
            run_nodes(p);
    return (double)took / (double)n;
}

/* Without rows, the text has a product, whose inputs have shapes. */
static void measure(const char *name, const char *text, int64_t rows, int64_t columns,
                    const char *only, struct pool *pool) {
    struct program ways[2];
    double least[2] = {INFINITY, INFINITY};
    if (!strstr(name, only))
        return;
    memset(ways, 0, sizeof(ways));
    for (int way = 0; way < 2; way++) {
        program_init(&ways[way], text, rows, columns, way == 1 ? 0 : rows < 0 ? 1 : -1);
        ways[way].pool = pool;
        ways[way].n_at_once = rows >= 0 && rows * columns < 1000 ? 20 : 1;
        run_nodes(&ways[way]);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int way = 0; way < 2; way++)
            least[way] = fmin(least[way], batch_ns(&ways[way]));
    printf("%-22s %10lld B %14.0f ns %14.0f ns %8.2f\n", name,
           (long long)(rows < 0 ? 0 : rows * columns * 4), least[0], least[1], least[0] / least[1]);
    for (int way = 0; way < 2; way++)
        program_fini(&ways[way]);
}

/* ---- programs ---- */

#define IN(name) name " = Placeholder() {dtype=float}\n"
#define AXES(name) name " = Placeholder() {dtype=int32}\n"
#define UNARY(name, op, a) name " = " op "(" a ") {T=float}\n"
#define BINARY(name, op, a, b) name " = " op "(" a ", " b ") {T=float}\n"

static char *chain(int n) {
    static const char *const ops[] = {"AddV2", "Mul", "Maximum", "Sub"};
    struct str text = STR_INIT;
    str_add(&text, IN("x0") IN("x1"));
    for (int i = 0; i < n; i++)
        str_addf(&text, "n%d = %s(%s%d, x1) {T=float}\n", i, ops[i % 4], i ? "n" : "x",
                 i ? i - 1 : 0);
    return str_detach(&text);
}

static const struct named {
    const char *name, *text;
} programs[] = {
    {"GELU (erf)", IN("x0") IN("s0") IN("s1") IN("s2") BINARY("a", "Mul", "x0", "s0")
                       UNARY("b", "Erf", "a") BINARY("c", "AddV2", "b", "s1")
                           BINARY("d", "Mul", "x0", "c") BINARY("e", "Mul", "d", "s2")},
    {"GELU (tanh)",
     IN("x0") IN("s0") IN("s1") IN("s2") IN("s3") UNARY("q", "Square", "x0")
         BINARY("t", "Mul", "q", "x0") BINARY("a", "Mul", "t", "s0") BINARY("b", "AddV2", "a", "x0")
             BINARY("c", "Mul", "b", "s1") UNARY("d", "Tanh", "c") BINARY("e", "AddV2", "d", "s2")
                 BINARY("f", "Mul", "x0", "e") BINARY("g", "Mul", "f", "s3")},
    {"normalise, scale",
     IN("x0") IN("c0") IN("c1") IN("r0") IN("r1") IN("s0") BINARY("a", "Sub", "x0", "c0")
         BINARY("b", "AddV2", "c1", "s0") UNARY("d", "Rsqrt", "b") BINARY("e", "Mul", "a", "d")
             BINARY("f", "Mul", "e", "r0") BINARY("g", "AddV2", "f", "r1")},
    {"Adam", IN("x0") IN("x1") IN("x2") IN("x3") IN("s0") IN("s1") IN("s2") IN("s3") IN("s4")
                 BINARY("a", "Mul", "x1", "s0") BINARY("b", "Mul", "x3", "s1")
                     BINARY("m", "AddV2", "a", "b") UNARY("g2", "Square", "x3")
                         BINARY("c", "Mul", "x2", "s2") BINARY("d", "Mul", "g2", "s3")
                             BINARY("v", "AddV2", "c", "d") UNARY("q", "Sqrt", "v")
                                 BINARY("h", "AddV2", "q", "s4") BINARY("u", "RealDiv", "m", "h")
                                     BINARY("w", "Mul", "u", "s0") BINARY("z", "Sub", "x0", "w")},
    {"Adam, corrected",
     IN("x0") IN("x1") IN("s0") IN("s1") IN("s2") IN("s3") BINARY("a", "Mul", "x0", "s0")
         BINARY("b", "Mul", "x1", "s1") BINARY("m", "AddV2", "a", "b") UNARY("p", "Square", "x0")
             UNARY("q", "Square", "x1") BINARY("c", "Mul", "p", "s2") BINARY("d", "Mul", "q", "s3")
                 BINARY("v", "AddV2", "c", "d") BINARY("k", "RealDiv", "m", "s0")
                     BINARY("l", "RealDiv", "v", "s2") UNARY("r", "Sqrt", "l")
                         BINARY("h", "AddV2", "r", "s3") BINARY("u", "RealDiv", "k", "h")
                             BINARY("w", "Mul", "u", "s1") BINARY("z", "Sub", "x0", "w")},
    {"LSTM cell, gates", IN("x0") IN("x1") IN("x2") IN("x3") IN("x4") UNARY("i", "Sigmoid", "x0")
                             UNARY("f", "Sigmoid", "x1") UNARY("o", "Sigmoid", "x2")
                                 UNARY("g", "Tanh", "x3") BINARY("a", "Mul", "f", "x4")
                                     BINARY("b", "Mul", "i", "g") BINARY("c", "AddV2", "a", "b")
                                         UNARY("t", "Tanh", "c") BINARY("h", "Mul", "o", "t")},
};

#define REDUCTION(name, op, a, axes, keep) \
    name " = " op "(" a ", " axes ") {T=float, keep_dims=" keep "}\n"

/* Of rows: with reductions along them. */
static const struct named row_programs[] = {
    {"softmax", IN("x0") AXES("a0") REDUCTION("m", "Max", "x0", "a0", "true")
                    BINARY("d", "Sub", "x0", "m") UNARY("e", "Exp", "d")
                        REDUCTION("s", "Sum", "e", "a0", "true") BINARY("y", "RealDiv", "e", "s")},
    {"layer norm",
     IN("x0") IN("r0") IN("r1") IN("s0") AXES("a0") REDUCTION("m", "Mean", "x0", "a0", "true")
         BINARY("c", "Sub", "x0", "m") UNARY("q", "Square", "c")
             REDUCTION("v", "Mean", "q", "a0", "true") BINARY("w", "AddV2", "v", "s0")
                 UNARY("r", "Rsqrt", "w") BINARY("n", "Mul", "c", "r") BINARY("g", "Mul", "n", "r0")
                     BINARY("y", "AddV2", "g", "r1")},
    {"mean square", IN("x0") IN("x1") AXES("all") BINARY("d", "Sub", "x0", "x1")
                        UNARY("q", "Square", "d") REDUCTION("l", "Mean", "q", "all", "false")},
    {"cross entropy",
     IN("x0") IN("x1") AXES("a0") REDUCTION("m", "Max", "x0", "a0", "true") BINARY(
         "d", "Sub", "x0", "m") UNARY("e", "Exp", "d") REDUCTION("s", "Sum", "e", "a0", "true")
         UNARY("l", "Log", "s") BINARY("z", "Sub", "d", "l") BINARY("p", "Mul", "z", "x1")
             REDUCTION("r", "Sum", "p", "a0", "false") UNARY("n", "Neg", "r")},
};

#define OF(name, shape) name " = Placeholder() {dtype=float, shape=[" shape "]}\n"
#define BIAS_RELU BINARY("b", "BiasAdd", "p", "v") UNARY("r", "Relu", "b")
#define CONVOLUTION                                                                               \
    "p = Conv2D(x, w) {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"}\n" BINARY("b", "BiasAdd", \
                                                                                  "p", "v")

static const struct named products[] = {
    {"MatMul 64 3136 1024", OF("x", "64,3136") OF("w", "3136,1024") OF("v", "1024")
                                BINARY("p", "MatMul", "x", "w") BIAS_RELU},
    {"MatMul 1024 256 1024", OF("x", "1024,256") OF("w", "256,1024") OF("v", "1024")
                                 BINARY("p", "MatMul", "x", "w") BIAS_RELU},
    {"MatMul 8192 32 256",
     OF("x", "8192,32") OF("w", "32,256") OF("v", "256") BINARY("p", "MatMul", "x", "w") BIAS_RELU},
    {"MatMul 512 512 512", OF("x", "512,512") OF("w", "512,512") OF("v", "512")
                               BINARY("p", "MatMul", "x", "w") BIAS_RELU},
    {"scores 32 128 64 128", OF("x", "32,128,64") OF("w", "32,64,128") IN("s0") BINARY(
                                 "p", "BatchMatMulV2", "x", "w") BINARY("r", "Mul", "p", "s0")},
    {"conv 64 28 1 32 5",
     OF("x", "64,28,28,1") OF("w", "5,5,1,32") OF("v", "32") CONVOLUTION UNARY("r", "Relu", "b")},
    {"conv 64 14 32 64 5",
     OF("x", "64,14,14,32") OF("w", "5,5,32,64") OF("v", "64") CONVOLUTION UNARY("r", "Relu", "b")},
    {"conv 64 32 16 16 3",
     OF("x", "64,32,32,16") OF("w", "3,3,16,16") OF("v", "16") CONVOLUTION UNARY("r", "Relu", "b")},
    {"conv 16 56 64 256 1", OF("x", "16,56,56,64") OF("w", "1,1,64,256") OF("v", "256")
                                CONVOLUTION UNARY("r", "Relu", "b")},
    {"conv 8 112 3 64 3 sum",
     OF("x", "8,112,112,3") OF("w", "3,3,3,64") OF("v", "64") OF("y", "8,112,112,64")
         CONVOLUTION BINARY("s", "AddV2", "b", "y") UNARY("r", "Relu", "s")},
};

int main(int argc, char **argv) {
    static const int64_t sizes[][2] = {{0, 0},     {4, 64},    {16, 16},     {64, 64},    {32, 512},
                                       {256, 256}, {512, 512}, {1024, 1024}, {5000, 5000}};
    static const int lengths[] = {2, 5, 10, 20};
    int n_threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    int64_t most_bytes = argc > 2 ? strtoll(argv[2], NULL, 10) : INT64_MAX;
    const char *only = argc > 3 ? argv[3] : "";
    struct pool *pool = n_threads > 1 ? pool_new(n_threads) : NULL;
    printf("%-22s %12s %17s %17s %8s\n", "program", "a value", "one by one", "fused", "ratio");
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        if (sizes[s][0] * sizes[s][1] * 4 > most_bytes)
            break;
        for (size_t l = 0; l < ARRAY_LEN(lengths); l++) {
            char name[32], *text = chain(lengths[l]);
            snprintf(name, sizeof(name), "chain of %d", lengths[l]);
            measure(name, text, sizes[s][0], sizes[s][1], only, pool);
            free(text);
        }
        for (size_t i = 0; i < ARRAY_LEN(programs); i++)
            measure(programs[i].name, programs[i].text, sizes[s][0], sizes[s][1], only, pool);
        for (size_t i = 0; i < ARRAY_LEN(row_programs) && sizes[s][0] > 0; i++)
            measure(row_programs[i].name, row_programs[i].text, sizes[s][0], sizes[s][1], only,
                    pool);
    }
    for (size_t i = 0; i < ARRAY_LEN(products); i++)
        measure(products[i].name, products[i].text, -1, 1, only, pool);
    pool_free(pool);
    return 0;
}
