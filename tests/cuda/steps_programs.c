/* The programs of cuda_steps, and how one is planned, run and compared with the CPU. */
#include "tests/cuda/steps.h"

#include <math.h>
#include <stdio.h>

#include "common/graph/graph_text.h"

const struct program programs[] = {
    {"elementwise",
     {64},
     1,
     FEED "c = Const() {dtype=float, value=float[64]{3, …}} @G\n"
          "a = Mul(x, c) {T=float} @G\n"
          "b = AddV2(a, c) {T=float} @G\n"
          "z = ZerosLike(b) {T=float} @G\n"
          "d = AddV2(b, z) {T=float} @G\n"
          "y = _MrFetch(d) {T=float, index=0}\n"},
    {"products",
     {64},
     2,
     FEED "s = Const() {dtype=int32, value=int32[2]{8, 8}} @C\n"
          "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "p = MatMul(m, m) {T=float, transpose_b=true} @G\n"
          "i = Const() {dtype=int32, value=int32[2]{1, 0}} @C\n"
          "t = Transpose(p, i) {T=float, Tperm=int32} @G\n"
          "k = Const() {dtype=int32, value=int32[1]{0}} @C\n"
          "r = Sum(t, k) {T=float, Tidx=int32} @G\n"
          "y = _MrFetch(r) {T=float, index=0}\n"
          "w = _MrFetch(t) {T=float, index=1}\n"},
    {"many products",
     {64},
     1,
     FEED "s = Const() {dtype=int32, value=int32[3]{2, 4, 8}} @C\n"
          "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "p = BatchMatMulV2(m, m) {T=float, adj_y=true} @G\n"
          "y = _MrFetch(p) {T=float, index=0}\n"},
    {"convolutions",
     {64},
     2,
     FEED "s = Const() {dtype=int32, value=int32[4]{1, 8, 8, 1}} @C\n"
          "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "f = Const() {dtype=float, value=float[2,3,1,4]{2, …}} @G\n"
          "c = Conv2D(m, f) {T=float, strides=[1, 2, 1, 1], padding=\"SAME\"} @G\n"
          "i = Conv2DBackpropInput(s, f, c) {T=float, strides=[1, 2, 1, 1], padding=\"SAME\"} @G\n"
          "y = _MrFetch(c) {T=float, index=0}\n"
          "w = _MrFetch(i) {T=float, index=1}\n"},
    {"a convolution of a slice", /* its operand is aligned to 4 bytes only */
     {129},
     1,
     FEED "b = Const() {dtype=int32, value=int32[1]{1}} @C\n"
          "n = Const() {dtype=int32, value=int32[1]{128}} @C\n"
          "v = Slice(x, b, n) {T=float, Index=int32} @G\n"
          "s = Const() {dtype=int32, value=int32[4]{1, 16, 8, 1}} @C\n"
          "m = Reshape(v, s) {T=float, Tshape=int32} @G\n"
          "f = Const() {dtype=float, value=float[2,3,1,4]{2, …}} @G\n"
          "c = Conv2D(m, f) {T=float, strides=[1, 2, 1, 1], padding=\"SAME\"} @G\n"
          "y = _MrFetch(c) {T=float, index=0}\n"},
    {"large values",
     {2200000},
     1, /* three pieces of a copy each way */
     FEED "s = Const() {dtype=int32, value=int32[2]{2, 1100000}} @C\n"
          "a = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "y = _MrFetch(a) {T=float, index=0}\n"},
    {"two devices",
     {4096},
     1,
     FEED "a = Mul(x, x) {T=float} @G\n"
          "b = AddV2(a, x) {T=float} @H\n"
          "c = AddV2(b, a) {T=float} @G\n"
          "y = _MrFetch(c) {T=float, index=0}\n"},
    {"variables",
     {64},
     1,
     FEED "v = VariableV2() {dtype=float, shape=[64], shared_name=\"v\"} @G\n"
          "a = Assign(v, x) {T=float} @G\n"
          "h = Const() {dtype=float, value=float[]{0.5}} @G\n"
          "u = ApplyGradientDescent(a, h, x) {T=float} @G\n"
          "y = _MrFetch(u) {T=float, index=0}\n"},
    {"many inputs",
     {16},
     1,
     FEED
     "k = Const() {dtype=int32, value=int32[]{0}} @C\n"
     "a = AddN(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, "
     "x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, "
     "x, x, x, x, x, x, x, x, x, x, x, x, x, x) {T=float, N=70} @G\n"
     "b = ConcatV2(a, x, k) {T=float, N=2, Tidx=int32} @G\n"
     "y = _MrFetch(b) {T=float, index=0}\n"},
    {"out of memory",
     {0},
     1,
     "s = Const() {dtype=int32, value=int32[1]{40000000}} @C\n"
     "f = Const() {dtype=float, value=float[]{1}} @C\n"
     "big = Fill(s, f) {T=float, index_type=int32} @G\n"
     "k = Const() {dtype=int32, value=int32[1]{0}} @C\n"
     "r = Sum(big, k) {T=float, Tidx=int32} @G\n"
     "y = _MrFetch(r) {T=float, index=0}\n",
     "OOM when allocating tensor with shape[40000000] and type float"},
};

const size_t n_programs = ARRAY_LEN(programs);

const struct program on_cpu = {
    "cpu", {64}, 1, FEED "a = Mul(x, x) {T=float} @C\ny = _MrFetch(a) {T=float, index=0}\n"};

/* ---- running ---- */

static const char *device_of(const char *letter, bool is_on_cpu) {
    if (is_on_cpu || *letter == 'C' || *letter == '\0')
        return device_names[0];
    return device_names[*letter == 'G' ? 1 : 2];
}

struct status *make_plan(const struct program *program, bool is_on_cpu, struct plan **ret) {
    struct graph graph;
    struct plan_options options = {
        .devices = devices, .n_devices = n_devices, .host = &executor_host};
    graph_init(&graph);
    struct status *st = graph_parse(program->text, &graph);
    CHECK(!st);
    for (int i = 0; i < graph.n_nodes; i++)
        graph.nodes[i]->device = device_of(graph.nodes[i]->device, is_on_cpu);
    st = plan_new(&graph, &options, ret);
    graph_fini(&graph);
    return st;
}

struct status *training_begin(struct training *training, const struct program *init,
                              const struct program *program) {
    struct run run;
    *training = (struct training){containers, NULL, NULL};
    containers = container_table_new();
    TRY(make_plan(init, false, &training->init_plan));
    start_plan(&run, init, training->init_plan);
    struct status *st = end_plan(&run);
    run_clear(&run);
    return st ? st : make_plan(program, false, &training->plan);
}

void training_end(struct training *training) {
    plan_unref(training->plan);
    plan_unref(training->init_plan);
    container_table_free(containers);
    containers = training->before;
}

struct plan *plan_of(const struct program *program) {
    struct plan *plan;
    struct status *st = make_plan(program, false, &plan);
    if (st)
        printf("%s: %s\n", program->name, status_message(st));
    CHECK(!st);
    return plan;
}

static void on_done(struct execution *execution, struct status *status_take) {
    ending_tell(&CONTAINER_OF(execution, struct run, execution)->end, status_take);
}

static void feed(struct run *run, const struct program *program) {
    for (int i = 0; i < 2 && program->n_fed[i] > 0; i++) {
        int64_t n = program->n_fed[i];
        struct status *st =
            tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &run->feeds[i]);
        CHECK(!st);
        for (int64_t k = 0; k < n; k++)
            ((float *)tensor_data(&run->feeds[i]))[k] = (float)(k % 13) - 4;
    }
}

static void start(struct run *run, const struct program *program, struct plan *plan, bool is_traced,
                  void (*on_inputs_taken)(struct execution *execution)) {
    static _Atomic uint64_t n_steps;
    *run = (struct run){.plan = plan, .end = ENDING_INIT};
    feed(run, program);
    execution_init(&run->execution);
    run->execution.plan = plan;
    run->execution.step_id = atomic_fetch_add(&n_steps, 1) + 1;
    run->execution.feeds = run->feeds;
    run->execution.fetches = run->fetches;
    run->execution.containers = containers;
    run->execution.pool = pool;
    run->execution.on_done = on_done;
    run->execution.on_inputs_taken = on_inputs_taken;
    run->execution.stats_level = is_traced ? EXECUTION_STATS_ALL : EXECUTION_STATS_NONE;
    execution_start(&run->execution);
}

void start_plan(struct run *run, const struct program *program, struct plan *plan) {
    start(run, program, plan, false, NULL);
}
void start_traced(struct run *run, const struct program *program, struct plan *plan) {
    start(run, program, plan, true, NULL);
}
void start_saving(struct run *run, const struct program *program, struct plan *plan,
                  void (*on_inputs_taken)(struct execution *execution)) {
    start(run, program, plan, false, on_inputs_taken);
}

struct status *end_plan(struct run *run) {
    ending_wait(&run->end);
    execution_fini(&run->execution);
    for (int i = 0; i < 2; i++)
        tensor_clear(&run->feeds[i]);
    return run->end.status;
}

static struct status *run_plan(struct run *run, const struct program *program, struct plan *plan) {
    start_plan(run, program, plan);
    return end_plan(run);
}

void run_clear(struct run *run) {
    for (int i = 0; i < MAX_FETCHES; i++)
        tensor_clear(&run->fetches[i]);
}

static bool is_near(const struct tensor *a, const struct tensor *b) {
    if (a->n_elements != b->n_elements)
        return false;
    const float *x = tensor_cdata(a), *y = tensor_cdata(b);
    for (int64_t i = 0; i < a->n_elements; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-4f * (1 + fabsf(y[i]))))
            return false;
    return true;
}

/* ---- attempts ---- */

struct status *attempt(const struct program *program, struct plan **plan,
                       const struct run *expected) {
    struct run run;
    if (!*plan)
        TRY(make_plan(program, false, plan));
    struct status *st = run_plan(&run, program, *plan);
    if (!st && expected)
        for (int i = 0; i < program->n_fetches && !st; i++)
            if (!is_near(&run.fetches[i], &expected->fetches[i]))
                st = status_internal("a wrong value");
    run_clear(&run);
    if (program->expected_failure && st && strstr(status_message(st), program->expected_failure)) {
        status_unref(st);
        return NULL;
    }
    return !st && program->expected_failure ? status_internal("it does not fail") : st;
}

bool run_program(const struct program *program) {
    struct run expected;
    struct plan *cpu_plan = NULL, *plan = NULL;
    bool has_values = !program->expected_failure;
    if (has_values) {
        struct status *st = make_plan(program, true, &cpu_plan);
        CHECK(!st);
        st = run_plan(&expected, program, cpu_plan);
        CHECK(!st);
    }
    int n_ok = 0;
    for (int tries = 0; n_ok < 2 && tries < 2 + MAX_TRIES; tries++) {
        struct status *st = attempt(program, &plan, has_values ? &expected : NULL);
        printf("%s: %s%s\n", program->name, st ? "failed: " : "ok", st ? status_message(st) : "");
        n_ok += !st;
        status_unref(st);
    }
    if (has_values)
        run_clear(&expected);
    plan_unref(plan);
    plan_unref(cpu_plan);
    return n_ok == 2;
}
