/* The graph of a client: for each ps task k and worker w, what travels from w to k and back.
 *
 *   init, add     w: Identity(x) ─► k: Assign, AssignAdd of a counter ─► w: got
 *   read          k ─► w
 *   peek          at k alone
 *   put, sum      w: Fill, a large value ─► k: a variable ─► w: Sum
 *   enqueue, dequeue of k's queue; loop: the condition at w, the body at k; bad: a kernel at k
 *   that fails while w waits for it first, second: of a partial run, there and back twice */
#include <stdio.h>

#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "tests/sim/client.h"

static void add_worker(struct str *out, int w) {
    str_addf(out, "x%d = Identity(x) {T=int64} @/job:worker/task:%d\n", w, w);
    str_addf(out, "f%d = Cast(x%d) {SrcT=int64, DstT=float} @/job:worker/task:%d\n", w, w, w);
    str_addf(out, "fill%d = Fill(large_dims, f%d) {T=float} @/job:worker/task:%d\n", w, w, w);
}

static void add_ps(const struct sim_client *client, struct str *out, int k) {
    str_addf(
        out,
        "v%d = VariableV2() {dtype=int64, shape=[], shared_name=\"counter_%d\"} @/job:ps/task:%d\n",
        k, client->index, k);
    str_addf(
        out,
        "b%d = VariableV2() {dtype=float, shape=[%d], shared_name=\"large_%d\"} @/job:ps/task:%d\n",
        k, CLIENT_LARGE_ELEMENTS, client->index, k);
    str_addf(out,
             "q%d = FIFOQueueV2() {component_types=[int64], shapes=[[]], capacity=8, "
             "shared_name=\"queue\"} @/job:ps/task:%d\n",
             k, k);
    str_addf(out, "peek%d = Identity(v%d) {T=int64} @/job:ps/task:%d\n", k, k, k);
    str_addf(out, "dequeued%d = QueueDequeueV2(q%d) {component_types=[int64]} @/job:ps/task:%d\n",
             k, k, k);
}

static void add_loop(struct str *out, int k, int w) {
    char frame[32];
    snprintf(frame, sizeof(frame), "loop%d_%d", k, w);
    str_addf(out, "%s_in = Enter(zero) {T=int64, frame_name=\"%s\"} @/job:worker/task:%d\n", frame,
             frame, w);
    str_addf(out,
             "%s_limit = Enter(x%d) {T=int64, frame_name=\"%s\", is_constant=true} "
             "@/job:worker/task:%d\n",
             frame, w, frame, w);
    str_addf(
        out,
        "%s_one = Enter(one) {T=int64, frame_name=\"%s\", is_constant=true} @/job:ps/task:%d\n",
        frame, frame, k);
    str_addf(out, "%s_merge = Merge(%s_in, %s_next) {T=int64, N=2} @/job:worker/task:%d\n", frame,
             frame, frame, w);
    str_addf(out, "%s_less = Less(%s_merge, %s_limit) {T=int64} @/job:worker/task:%d\n", frame,
             frame, frame, w);
    str_addf(out, "%s_cond = LoopCond(%s_less) @/job:worker/task:%d\n", frame, frame, w);
    str_addf(out, "%s_switch = Switch(%s_merge, %s_cond) {T=int64} @/job:worker/task:%d\n", frame,
             frame, frame, w);
    str_addf(out, "%s_body = AddV2(%s_switch:1, %s_one) {T=int64} @/job:ps/task:%d\n", frame, frame,
             frame, k);
    str_addf(out, "%s_next = NextIteration(%s_body) {T=int64} @/job:worker/task:%d\n", frame, frame,
             w);
    str_addf(out, "%s = Exit(%s_switch) {T=int64} @/job:worker/task:%d\n", frame, frame, w);
}

static void add_pair(struct str *out, int k, int w) {
    str_addf(out, "init%d_%d = Assign(v%d, x%d) {T=int64} @/job:ps/task:%d\n", k, w, k, w, k);
    str_addf(out, "add%d_%d = AssignAdd(v%d, x%d) {T=int64, use_locking=true} @/job:ps/task:%d\n",
             k, w, k, w, k);
    str_addf(out, "got%d_%d = Identity(add%d_%d) {T=int64} @/job:worker/task:%d\n", k, w, k, w, w);
    str_addf(out, "read%d_%d = Identity(v%d) {T=int64} @/job:worker/task:%d\n", k, w, k, w);
    str_addf(out, "put%d_%d = Assign(b%d, fill%d) {T=float} @/job:ps/task:%d\n", k, w, k, w, k);
    str_addf(out, "take%d_%d = Identity(b%d) {T=float} @/job:worker/task:%d\n", k, w, k, w);
    str_addf(out, "sum%d_%d = Mean(take%d_%d, axis) {T=float} @/job:worker/task:%d\n", k, w, k, w,
             w);
    str_addf(out,
             "enqueue%d_%d = QueueEnqueueV2(q%d, x%d) {Tcomponents=[int64]} @/job:ps/task:%d\n", k,
             w, k, w, k);
    str_addf(out, "dequeue%d_%d = Identity(dequeued%d) {T=int64} @/job:worker/task:%d\n", k, w, k,
             w);
    str_addf(out, "divided%d_%d = FloorDiv(x%d, zero) {T=int64} @/job:ps/task:%d\n", k, w, w, k);
    str_addf(out, "more%d_%d = AddV2(x%d, one) {T=int64} @/job:ps/task:%d\n", k, w, w, k);
    str_addf(out, "first%d_%d = Identity(more%d_%d) {T=int64} @/job:worker/task:%d\n", k, w, k, w,
             w);
    str_addf(out, "both%d_%d = AddV2(first%d_%d, y) {T=int64} @/job:worker/task:%d\n", k, w, k, w,
             w);
    str_addf(out, "second%d_%d = Identity(both%d_%d) {T=int64} @/job:ps/task:%d\n", k, w, k, w, k);
    str_addf(out, "bad%d_%d = Identity(divided%d_%d) {T=int64} @/job:worker/task:%d\n", k, w, k, w,
             w);
    add_loop(out, k, w);
}

static void to_graphdef(const char *text, struct str *out) {
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    if (st)
        sim_fail("the client's own graph: %s", status_message(st));
    graph_to_graphdef(&graph, NULL, out);
    graph_fini(&graph);
}

void client_graph(const struct sim_client *client, struct str *out) {
    struct str text = STR_INIT;
    str_add(&text, "x = Placeholder() {dtype=int64, shape=[]}\n"
                   "y = Placeholder() {dtype=int64, shape=[]}\n"
                   "zero = Const() {dtype=int64, value=int64[]{0}}\n"
                   "one = Const() {dtype=int64, value=int64[]{1}}\n"
                   "axis = Const() {dtype=int32, value=int32[1]{0}}\n");
    str_addf(&text, "large_dims = Const() {dtype=int32, value=int32[1]{%d}}\n",
             CLIENT_LARGE_ELEMENTS);
    for (int w = 0; w < cluster.n_workers; w++)
        add_worker(&text, w);
    for (int k = 0; k < cluster.n_ps; k++) {
        add_ps(client, &text, k);
        for (int w = 0; w < cluster.n_workers; w++)
            add_pair(&text, k, w);
    }
    to_graphdef(str_text(&text), out);
    str_fini(&text);
}

/* Stands alone: a graph is parsed by itself, and the session's nodes are not in it. */
void client_graph_extension(const struct sim_client *client, struct str *out) {
    struct str text = STR_INIT;
    unsigned long long n = (unsigned long long)client->n_extensions;
    str_addf(&text,
             "more%llu_in = Const() {dtype=int64, value=int64[]{%llu}}\nmore%llu = "
             "Identity(more%llu_in) {T=int64} @/job:worker/task:0\n",
             n, n, n, n);
    to_graphdef(str_text(&text), out);
    str_fini(&text);
}
