/* Modes of cuda_steps about segments that are replayed as CUDA graphs: training loops give the same
 * bits with and without them, calls about graphs fail, memory runs out.
 *
 * A traced step is the reference: each of its nodes is enqueued by itself. */
#include "tests/cuda/steps.h"

#include <stdio.h>

#define VARIABLES                                                            \
    "w1 = VariableV2() {dtype=float, shape=[8,16], shared_name=\"w1\"} @G\n" \
    "b1 = VariableV2() {dtype=float, shape=[16], shared_name=\"b1\"} @G\n"   \
    "w2 = VariableV2() {dtype=float, shape=[16,8], shared_name=\"w2\"} @G\n" \
    "a1 = VariableV2() {dtype=float, shape=[8,16], shared_name=\"a1\"} @G\n"

const struct program mlp_init = {"mlp init",
                                 {128},
                                 1,
                                 FEED VARIABLES
                                 "c = Const() {dtype=float, value=float[128]{0.01, …}} @G\n"
                                 "sx = Mul(x, c) {T=float} @G\n"
                                 "s1 = Const() {dtype=int32, value=int32[2]{8, 16}} @C\n"
                                 "s2 = Const() {dtype=int32, value=int32[2]{16, 8}} @C\n"
                                 "i1 = Reshape(sx, s1) {T=float, Tshape=int32} @G\n"
                                 "i2 = Reshape(sx, s2) {T=float, Tshape=int32} @G\n"
                                 "z1 = ZerosLike(i1) {T=float} @G\n"
                                 "zb = Const() {dtype=float, value=float[16]{0.125, …}} @G\n"
                                 "d1 = Assign(w1, i1) {T=float} @G\n"
                                 "d2 = Assign(w2, i2) {T=float} @G\n"
                                 "d3 = Assign(b1, zb) {T=float} @G\n"
                                 "d4 = Assign(a1, z1) {T=float} @G\n"
                                 "e = Identity(d1, ^d2, ^d3, ^d4) {T=float} @G\n"
                                 "y = _MrFetch(e) {T=float, index=0}\n"};

/* Two layers with dropout, whose random numbers are counted on the host. */
const struct program mlp_step = {
    "mlp",
    {64},
    3,
    FEED VARIABLES "sm = Const() {dtype=int32, value=int32[2]{8, 8}} @C\n"
                   "sh = Const() {dtype=int32, value=int32[2]{8, 16}} @C\n"
                   "keep = Const() {dtype=float, value=float[]{0.25}} @C\n"
                   "lr = Const() {dtype=float, value=float[]{0.1}} @C\n"
                   "mo = Const() {dtype=float, value=float[]{0.9}} @C\n"
                   "m = Reshape(x, sm) {T=float, Tshape=int32} @G\n"
                   "h0 = MatMul(m, w1) {T=float} @G\n"
                   "h1 = BiasAdd(h0, b1) {T=float} @G\n"
                   "h2 = Relu(h1) {T=float} @G\n"
                   "r = RandomUniform(sh) {T=int32, dtype=float, seed=3, seed2=7} @G\n"
                   "g = GreaterEqual(r, keep) {T=float} @G\n"
                   "gm = Cast(g) {SrcT=bool, DstT=float} @G\n"
                   "h3 = Mul(h2, gm) {T=float} @G\n"
                   "o = MatMul(h3, w2) {T=float} @G\n"
                   "l = Softmax(m) {T=float} @G\n"
                   "xe = SoftmaxCrossEntropyWithLogits(o, l) {T=float} @G\n"
                   "dw2 = MatMul(h3, xe:1) {T=float, transpose_a=true} @G\n"
                   "dh = MatMul(xe:1, w2) {T=float, transpose_b=true} @G\n"
                   "dh2 = Mul(dh, gm) {T=float} @G\n"
                   "dh1 = ReluGrad(dh2, h2) {T=float} @G\n"
                   "dw1 = MatMul(m, dh1) {T=float, transpose_a=true} @G\n"
                   "db1 = BiasAddGrad(dh1) {T=float} @G\n"
                   "u2 = ApplyGradientDescent(w2, lr, dw2, ^dh) {T=float} @G\n"
                   "ub = ApplyGradientDescent(b1, lr, db1) {T=float} @G\n"
                   "u1 = ApplyMomentum(w1, a1, lr, dw1, mo) {T=float} @G\n"
                   "y = _MrFetch(u1) {T=float, index=0}\n"
                   "y2 = _MrFetch(xe) {T=float, index=1}\n"
                   "y3 = _MrFetch(u2, ^ub) {T=float, index=2}\n"};

const struct program net_init = {
    "net init",
    {96},
    1,
    FEED "f = VariableV2() {dtype=float, shape=[3,3,1,4], shared_name=\"f\"} @G\n"
         "w = VariableV2() {dtype=float, shape=[64,3], shared_name=\"w\"} @G\n"
         "c = Const() {dtype=float, value=float[3,3,1,4]{0.25, 0.125, -0.5, …}} @G\n"
         "k = Const() {dtype=float, value=float[64,3]{0.01, 0.02, -0.01, 0.03, …}} @G\n"
         "d1 = Assign(f, c) {T=float} @G\n"
         "d2 = Assign(w, k) {T=float} @G\n"
         "e = Identity(d1, ^d2) {T=float} @G\n"
         "y = _MrFetch(e) {T=float, index=0}\n"};

/* A convolution, max pooling and a dense layer. */
const struct program net_step = {
    "net",
    {128},
    2,
    FEED
    "f = VariableV2() {dtype=float, shape=[3,3,1,4], shared_name=\"f\"} @G\n"
    "w = VariableV2() {dtype=float, shape=[64,3], shared_name=\"w\"} @G\n"
    "s = Const() {dtype=int32, value=int32[4]{2, 8, 8, 1}} @C\n"
    "sf = Const() {dtype=int32, value=int32[4]{3, 3, 1, 4}} @C\n"
    "sd = Const() {dtype=int32, value=int32[2]{2, 64}} @C\n"
    "sp = Const() {dtype=int32, value=int32[4]{2, 4, 4, 4}} @C\n"
    "lr = Const() {dtype=float, value=float[]{0.01}} @C\n"
    "l = Const() {dtype=float, value=float[2,3]{0, 1, 0, 1, 0, 0}} @G\n"
    "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
    "c = Conv2D(m, f) {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"} @G\n"
    "c1 = Relu(c) {T=float} @G\n"
    "c2 = Mul(c1, c1) {T=float} @G\n"
    "c3 = Sqrt(c2) {T=float} @G\n"
    "p = MaxPool(c3) {T=float, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding=\"VALID\"} @G\n"
    "d = Reshape(p, sd) {T=float, Tshape=int32} @G\n"
    "o = MatMul(d, w) {T=float} @G\n"
    "xe = SoftmaxCrossEntropyWithLogits(o, l) {T=float} @G\n"
    "dw = MatMul(d, xe:1) {T=float, transpose_a=true} @G\n"
    "dd = MatMul(xe:1, w) {T=float, transpose_b=true} @G\n"
    "dp = Reshape(dd, sp) {T=float, Tshape=int32} @G\n"
    "dc1 = MaxPoolGrad(c3, p, dp) {T=float, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], "
    "padding=\"VALID\"} @G\n"
    "dc = ReluGrad(dc1, c1) {T=float} @G\n"
    "df = Conv2DBackpropFilter(m, sf, dc) {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"} @G\n"
    "uw = ApplyGradientDescent(w, lr, dw, ^dd) {T=float} @G\n"
    "uf = ApplyGradientDescent(f, lr, df) {T=float} @G\n"
    "y = _MrFetch(uf, ^uw) {T=float, index=0}\n"
    "y2 = _MrFetch(xe) {T=float, index=1}\n"};

/* A loop whose counter is the host's, and is needed on the GPU in each iteration. */
static const struct program counted_loop = {
    "counted loop",
    {48},
    1,
    FEED "zero = Const() {dtype=int32, value=int32[]{0}} @C\n"
         "one = Const() {dtype=int32, value=int32[]{1}} @C\n"
         "n_times = Const() {dtype=int32, value=int32[]{5}} @C\n"
         "e = Enter(zero) {T=int32, frame_name=\"f\"} @C\n"
         "by = Enter(one) {T=int32, frame_name=\"f\", is_constant=true} @C\n"
         "end = Enter(n_times) {T=int32, frame_name=\"f\", is_constant=true} @C\n"
         "v = Enter(x) {T=float, frame_name=\"f\"} @G\n"
         "m = Merge(e, n) {T=int32, N=2} @C\n"
         "vm = Merge(v, vn) {T=float, N=2} @G\n"
         "l = Less(m, end) {T=int32} @C\n"
         "p = LoopCond(l) @C\n"
         "s = Switch(m, p) {T=int32} @C\n"
         "vs = Switch(vm, p) {T=float} @G\n"
         "i = Add(s:1, by) {T=int32} @C\n"
         "c = Cast(s:1) {SrcT=int32, DstT=float} @G\n"
         "v1 = Add(vs:1, c) {T=float} @G\n"
         "v2 = Sin(v1) {T=float} @G\n"
         "v3 = Mul(v2, c) {T=float} @G\n"
         "n = NextIteration(i) {T=int32} @C\n"
         "vn = NextIteration(v3) {T=float} @G\n"
         "o = Exit(vs) {T=float} @G\n"
         "y = _MrFetch(o) {T=float, index=0}\n"};

/* Two outputs whose sizes the device computes, and work that does not wait for them. */
static const struct program sized = {"sized",
                                     {96},
                                     3,
                                     FEED "two = Mul(x, x) {T=float} @G\n"
                                          "u1 = Unique(x) {T=float, out_idx=int32} @G\n"
                                          "u2 = Unique(two) {T=float, out_idx=int32} @G\n"
                                          "s = Const() {dtype=int32, value=int32[2]{12, 8}} @C\n"
                                          "m = Reshape(two, s) {T=float, Tshape=int32} @G\n"
                                          "o = MatMul(m, m) {T=float, transpose_b=true} @G\n"
                                          "a1 = MatMul(o, o) {T=float} @G\n"
                                          "a2 = MatMul(o, o) {T=float, transpose_b=true} @G\n"
                                          "a3 = Add(a1, a2) {T=float} @G\n"
                                          "a4 = Tanh(a3) {T=float} @G\n"
                                          "r1 = Sin(u1) {T=float} @G\n"
                                          "r2 = Mul(r1, u1) {T=float} @G\n"
                                          "r3 = Cos(r2) {T=float} @G\n"
                                          "q1 = Cos(u2) {T=float} @G\n"
                                          "q2 = Add(q1, u2) {T=float} @G\n"
                                          "q3 = Sin(q2) {T=float} @G\n"
                                          "y = _MrFetch(a4) {T=float, index=0}\n"
                                          "y2 = _MrFetch(r3) {T=float, index=1}\n"
                                          "y3 = _MrFetch(q3) {T=float, index=2}\n"};

/* Kernels of the CPU's that have the device make zeroes, and copy an input that others hold. */
static const struct program zeroed = {
    "zeroed",
    {128},
    2,
    FEED "s = Const() {dtype=int32, value=int32[4]{2, 4, 4, 4}} @C\n"
         "k = Const() {dtype=float, value=float[4]{1, 2, 3, 4}} @G\n"
         "at = Const() {dtype=int32, value=int32[2,1]{3, 77}} @G\n"
         "new = Const() {dtype=float, value=float[2]{0.5, 0.25}} @G\n"
         "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
         "b = FusedBatchNormV3(m, k, k, k, k) {T=float, U=float, is_training=false} @G\n"
         "d = DeepCopy(b) {T=float} @G\n"
         "r = Relu(d) {T=float} @G\n"
         "t = TensorScatterUpdate(x, at, new) {T=float, Tindices=int32} @G\n"
         "q = Mul(t, x) {T=float} @G\n"
         "y = _MrFetch(r) {T=float, index=0}\n"
         "y2 = _MrFetch(q) {T=float, index=1}\n"};

/* A variable is updated in place while somebody still holds the value before, which is therefore
 * copied. */
#define HELD "h = VarHandleOp() {dtype=float, shape=[8,16], shared_name=\"held\"} @G\n"
static const struct program held_init = {"held init",
                                         {128},
                                         1,
                                         FEED HELD
                                         "sh = Const() {dtype=int32, value=int32[2]{8, 16}} @C\n"
                                         "m = Reshape(x, sh) {T=float, Tshape=int32} @G\n"
                                         "v = Tanh(m) {T=float} @G\n"
                                         "d = AssignVariableOp(h, v) {dtype=float} @G\n"
                                         "e = Identity(m, ^d) {T=float} @G\n"
                                         "y = _MrFetch(e) {T=float, index=0}\n"};
static const struct program held = {
    "held",
    {128},
    2,
    FEED HELD "sh = Const() {dtype=int32, value=int32[2]{8, 16}} @C\n"
              "at = Const() {dtype=int32, value=int32[2]{1, 5}} @C\n"
              "by = Const() {dtype=float, value=float[2,16]{0.5, 0.25, …}} @G\n"
              "m = Reshape(x, sh) {T=float, Tshape=int32} @G\n"
              "k = ReadVariableOp(h) {dtype=float} @G\n"
              "s = ResourceScatterSub(h, at, by, ^k) {dtype=float, Tindices=int32} @G\n"
              "p = Mul(k, m, ^s) {T=float} @G\n"
              "q = Sin(p) {T=float} @G\n"
              "r = ReadVariableOp(h, ^s) {dtype=float} @G\n"
              "y = _MrFetch(q) {T=float, index=0}\n"
              "y2 = _MrFetch(r) {T=float, index=1}\n"};

/* Products that a CPU would hand to several threads of the pool. */
const struct program wide_step = {"wide",
                                  {128},
                                  1,
                                  FEED "s = Const() {dtype=int32, value=int32[2]{128, 1}} @C\n"
                                       "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
                                       "o = MatMul(m, m) {T=float, transpose_b=true} @G\n"
                                       "a1 = MatMul(o, o) {T=float} @G\n"
                                       "a2 = MatMul(o, o) {T=float, transpose_b=true} @G\n"
                                       "a3 = MatMul(o, o) {T=float, transpose_a=true} @G\n"
                                       "b1 = MatMul(a1, o) {T=float} @G\n"
                                       "b2 = MatMul(a2, o) {T=float} @G\n"
                                       "b3 = MatMul(a3, o) {T=float} @G\n"
                                       "c1 = Sub(b1, b2) {T=float} @G\n"
                                       "c2 = Sub(c1, b3) {T=float} @G\n"
                                       "y = _MrFetch(c2) {T=float, index=0}\n"};

/* ---- training ---- */

uint64_t counted(enum device_count which) {
    uint64_t counts[N_DEVICE_COUNTS];
    devices[N_CPUS].ops->counts(&devices[N_CPUS], counts);
    return counts[which];
}

static _Thread_local uint64_t before_step[N_DEVICE_COUNTS];
uint64_t counted_last(enum device_count which) { return counted(which) - before_step[which]; }

static uint64_t hash_fetches(const struct run *run, const struct program *program) {
    uint64_t hash = 0;
    for (int i = 0; i < program->n_fetches; i++)
        hash =
            hash_bytes(tensor_cdata(&run->fetches[i]), tensor_size_bytes(&run->fetches[i]), hash);
    return hash;
}

static struct status *step(const struct program *program, struct plan *plan, bool is_traced,
                           uint64_t *ret_hash) {
    struct run run;
    devices[N_CPUS].ops->counts(&devices[N_CPUS], before_step);
    if (is_traced)
        start_traced(&run, program, plan);
    else
        start_plan(&run, program, plan);
    struct status *st = end_plan(&run);
    *ret_hash = st ? 0 : hash_fetches(&run, program);
    if (is_traced)
        step_stats_free(run.execution.stats);
    run_clear(&run);
    return st;
}

int train_hashed(const struct program *init, const struct program *program, bool is_traced,
                 uint64_t hashes[N_TRAINED]) {
    struct training training;
    int n_failed = 0;
    struct status *st = training_begin(&training, init, program);
    for (int i = 0; i < N_TRAINED && !st; i++) {
        struct status *why = step(program, training.plan, is_traced, &hashes[i]);
        if (why)
            printf("%s: step %d failed: %s\n", program->name, i, status_message(why));
        n_failed += why != NULL;
        status_unref(why);
    }
    if (st)
        printf("%s: %s\n", program->name, status_message(st));
    n_failed += st != NULL;
    status_unref(st);
    training_end(&training);
    return n_failed;
}

bool hashes_are_equal(const char *name, const uint64_t a[N_TRAINED], const uint64_t b[N_TRAINED]) {
    for (int i = 0; i < N_TRAINED; i++)
        if (a[i] != b[i]) {
            printf("%s: step %d differs\n", name, i);
            return false;
        }
    return true;
}

static void print_counts(const char *name) {
    printf("%s: %llu parts, %llu of them in %llu replays, %llu changed, %llu captured, "
           "%llu interrupted, %llu failed\n",
           name, (unsigned long long)counted(DEVICE_WORK),
           (unsigned long long)counted(DEVICE_WORK_REPLAYED),
           (unsigned long long)counted(DEVICE_REPLAYS), (unsigned long long)counted(DEVICE_CHANGES),
           (unsigned long long)counted(DEVICE_CAPTURES),
           (unsigned long long)counted(DEVICE_INTERRUPTED),
           (unsigned long long)counted(DEVICE_FAILED));
}

static bool train_both(const struct program *init, const struct program *program,
                       uint64_t least_replays) {
    uint64_t traced[N_TRAINED], replayed[N_TRAINED], before = counted(DEVICE_REPLAYS);
    bool is_well = train_hashed(init, program, true, traced) == 0;
    /* each node ends a segment, and only that of a size enqueues enough for one */
    is_well &= counted(DEVICE_REPLAYS) == before || program == &sized;
    is_well &= train_hashed(init, program, false, replayed) == 0;
    is_well &= hashes_are_equal(program->name, traced, replayed);
    print_counts(program->name);
    if (counted(DEVICE_REPLAYS) < before + least_replays) {
        printf("%s: too few replays\n", program->name);
        is_well = false;
    }
    return is_well;
}

/* One thread enqueues all of a step, so it comes in the same order. */
static bool order_is_kept(void) {
    uint64_t interrupted = counted(DEVICE_INTERRUPTED), idle = counted(DEVICE_ENDS_IDLE);
    bool is_well = train_both(&mlp_init, &wide_step, N_TRAINED / 2);
    if (counted(DEVICE_INTERRUPTED) > interrupted ||
        counted(DEVICE_ENDS_IDLE) > idle + 2 * N_TRAINED)
        is_well = false;
    if (!is_well)
        printf("wide: %llu interrupted, %llu segments ended early\n",
               (unsigned long long)(counted(DEVICE_INTERRUPTED) - interrupted),
               (unsigned long long)(counted(DEVICE_ENDS_IDLE) - idle));
    return is_well;
}

/* All of the last step was one replay: what is fed, a convolution and a fetch are parts of it. */
static bool is_one_replay(const char *name) {
    bool is_well = counted_last(DEVICE_REPLAYS) == 1 &&
                   counted_last(DEVICE_WORK_REPLAYED) == counted_last(DEVICE_WORK);
    if (!is_well)
        printf("%s: %llu parts of the last step, %llu of them in %llu replays; %llu segments ended "
               "at another use, %llu at a library\n",
               name, (unsigned long long)counted_last(DEVICE_WORK),
               (unsigned long long)counted_last(DEVICE_WORK_REPLAYED),
               (unsigned long long)counted_last(DEVICE_REPLAYS),
               (unsigned long long)counted_last(DEVICE_ENDS_OTHER_USE),
               (unsigned long long)counted_last(DEVICE_ENDS_LIBRARY));
    return is_well;
}

/* The counter comes in the arguments of a launch, in each of five iterations. */
static bool counter_is_launched(void) {
    bool is_well = counted_last(DEVICE_FROM_HOST_LAUNCHED) == 6 &&
                   counted_last(DEVICE_FROM_HOST_LAUNCHED_BYTES) == 5 * 4 + 48 * 4 &&
                   counted_last(DEVICE_FROM_HOST_STAGED) == 0;
    if (!is_well)
        printf("counted loop: %llu copies of %llu bytes in launches, %llu others\n",
               (unsigned long long)counted_last(DEVICE_FROM_HOST_LAUNCHED),
               (unsigned long long)counted_last(DEVICE_FROM_HOST_LAUNCHED_BYTES),
               (unsigned long long)counted_last(DEVICE_FROM_HOST_STAGED));
    return is_well;
}

/* Sizes arrive at another time in each step, and what follows from them comes in the same order. */
static bool sizes_keep_the_order(void) {
    bool is_well = train_both(&mlp_init, &sized, N_TRAINED / 2);
    if (counted_last(DEVICE_WORK_REPLAYED) < counted_last(DEVICE_WORK) ||
        counted_last(DEVICE_INTERRUPTED) > 0 || counted_last(DEVICE_MOVED) > 0) {
        printf("sized: %llu of %llu parts of the last step are replayed, %llu segments were "
               "interrupted, %llu values moved\n",
               (unsigned long long)counted_last(DEVICE_WORK_REPLAYED),
               (unsigned long long)counted_last(DEVICE_WORK),
               (unsigned long long)counted_last(DEVICE_INTERRUPTED),
               (unsigned long long)counted_last(DEVICE_MOVED));
        is_well = false;
    }
    return is_well;
}

bool run_segments(void) {
    bool is_well = order_is_kept(); /* before others have graphs that begin with a feed, too */
    /* The value of a fetch is freed by another thread, so addresses may differ for some steps. */
    is_well &= train_both(&mlp_init, &mlp_step, N_TRAINED / 2);
    is_well &= train_both(&net_init, &net_step, 4) & is_one_replay("net");
    is_well &= train_both(&mlp_init, &zeroed, N_TRAINED / 2) & is_one_replay("zeroed");
    is_well &= train_both(&held_init, &held, 4) & is_one_replay("held");
    is_well &= train_both(&mlp_init, &counted_loop, N_TRAINED / 2) & is_one_replay("counted loop") &
               counter_is_launched();
    return is_well & sizes_keep_the_order();
}

/* ---- failures ---- */

static const char *const graph_calls[] = {"cuStreamBeginCapture", "cuStreamGetCaptureInfo",
                                          "cuStreamEndCapture",   "cuGraphGetNodes",
                                          "cuGraphInstantiate",   "cuGraphLaunch",
                                          "cuGraphDestroy",       "cuGraphExecKernelNodeSetParams"};

/* Memory runs out, so all graphs are freed, and what has come before is not counted any more. */
static bool forget_graphs(void) {
    const struct program *program = &programs[n_programs - 1];
    uint64_t hash;
    struct plan *plan = NULL;
    struct status *st = make_plan(program, false, &plan);
    CHECK(!st);
    st = step(program, plan, false, &hash);
    bool is_full = status_code(st) == STATUS_RESOURCE_EXHAUSTED;
    uint64_t n_made = counted(DEVICE_CAPTURES), n_freed = driver.count("cuGraphExecDestroy");
    if (!is_full || n_made != n_freed)
        printf("%llu of %llu graphs are freed\n", (unsigned long long)n_freed,
               (unsigned long long)n_made);
    status_unref(st);
    plan_unref(plan);
    return is_full && n_made == n_freed;
}

/* A call about graphs fails once: the work is done without a graph. */
static bool train_with_failure(const char *call, const uint64_t expected[N_TRAINED]) {
    uint64_t hashes[N_TRAINED], n_before = driver.count(call), n_failed = counted(DEVICE_FAILED);
    bool is_giving_back = strcmp(call, "cuGraphDestroy") == 0;
    CHECK(driver.fail(call, 1, CUDA_ERROR_UNKNOWN) == 0);
    bool is_well = train_hashed(&mlp_init, &mlp_step, false, hashes) == 0;
    is_well &= hashes_are_equal(call, expected, hashes);
    is_well &= is_giving_back || counted(DEVICE_FAILED) == n_failed + 1;
    is_well &= forget_graphs();
    is_well &= driver.count(call) > n_before;
    printf("without %s: %s\n", call, is_well ? "ok" : "wrong");
    return is_well;
}

/* The graph cannot be launched, and then the first launch of its parts fails: the step fails, with
 * the launch's node, and the next step is well. */
static bool fail_twice(void) {
    struct training training;
    uint64_t hash;
    bool is_well = true;
    struct status *st = training_begin(&training, &mlp_init, &mlp_step);
    CHECK(!st);
    for (int i = 0; i < N_TRAINED; i++) {
        bool fails = i == N_TRAINED - 2;
        if (fails) {
            CHECK(driver.fail("cuGraphLaunch", 1, CUDA_ERROR_UNKNOWN) == 0);
            CHECK(driver.fail("cuLaunchKernel", 1, CUDA_ERROR_UNKNOWN) == 0);
        }
        st = step(&mlp_step, training.plan, false, &hash);
        const char *message = st ? status_message(st) : "ok";
        bool is_told = strstr(message, "cuLaunchKernel failed") && strstr(message, "{{node ") &&
                       !strstr(message, "{{node y") && status_code(st) == STATUS_INTERNAL;
        if (fails ? !is_told : st != NULL) {
            printf("step %d: %s\n", i, message);
            is_well = false;
        }
        status_unref(st);
    }
    training_end(&training);
    return is_well;
}

bool run_segment_failures(void) {
    uint64_t expected[N_TRAINED];
    bool is_well = train_hashed(&mlp_init, &mlp_step, true, expected) == 0;
    for (size_t i = 0; i < ARRAY_LEN(graph_calls); i++)
        is_well &= train_with_failure(graph_calls[i], expected);
    is_well &= fail_twice();
    print_counts("failures");
    return is_well;
}
