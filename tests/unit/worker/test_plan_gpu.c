/* Golden plans: which memory each value of a training step is in, and where values are copied.
 *
 * data/NAME.pb is a graph that TensorFlow's client made (data/gen_gpu_graphs.py). It is compiled
 * for a task with a GPU, as a master does; then the plan's copies are added. data/NAME.txt is the
 * result, a line for each node:
 *
 *   name = Op(input, input:1, ^control) place -> memory of each output
 *
 * With MILLRACE_REGENERATE=1 in the environment the .txt files are written again: review the diff,
 * above all the counts of copies in their first lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/str.h"
#include "common/graph/graph_proto.h"
#include "common/graph/internal_ops.h"
#include "common/graph/references.h"
#include "kernels/cuda/rows/gpu_rows.h"
#include "master/compile/compile.h"
#include "worker/plan/plan.h"

#define TASK "/job:worker/replica:0/task:0"
enum { CPU, GPU, N_DEVICES };

/* No copy is started: that the GPU has a memory of its own is all that a plan wants to know. */
static const struct device_ops no_ops;
static struct device devices[N_DEVICES] = {
    {.full_name = TASK "/device:CPU:0", .type = "CPU"},
    {.full_name = TASK "/device:GPU:0", .type = "GPU", .ops = &no_ops}};
static const struct plan_options plan_options = {.devices = devices, .n_devices = N_DEVICES};

static void must(struct status *st) {
    if (st)
        fail_msg("%s", status_message(st));
}

static bool read_file(const char *name, const char *extension, struct str *out) {
    struct str path = STR_INIT;
    char chunk[4096];
    str_addf(&path, TEST_SOURCE_ROOT "/tests/unit/worker/data/%s.%s", name, extension);
    FILE *file = fopen(str_text(&path), "rb");
    str_fini(&path);
    if (!file)
        return false;
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        str_add_bytes(out, chunk, n);
    fclose(file);
    return true;
}

static void write_file(const char *name, const struct str *text) {
    struct str path = STR_INIT;
    str_addf(&path, TEST_SOURCE_ROOT "/tests/unit/worker/data/%s.txt", name);
    FILE *file = fopen(str_text(&path), "wb");
    assert_non_null(file);
    fwrite(text->data, 1, text->len, file);
    fclose(file);
    str_fini(&path);
}

/* ---- text ---- */

static void print_node(const struct node *node, const char *frame, struct str *out) {
    str_addf(out, "%s = %s(", node->name, node->op_name);
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node_input *in = &node->inputs[i];
        str_addf(out, "%s%s%s", i ? ", " : "", in->index == CONTROL_EDGE ? "^" : "", in->src->name);
        if (in->index > 0)
            str_addf(out, ":%d", in->index);
    }
    str_addf(out, ") %s", strcmp(node->device, devices[GPU].full_name) == 0 ? "GPU:0" : "CPU:0");
    for (int i = 0; i < node->n_outputs; i++) {
        /* A copy's device is where it is enqueued; its output is where it leads. */
        struct span to;
        int memory = plan_output_memory(&plan_options, node, i);
        if (node_is_op(node, OP_COPY)) {
            must(node_get_s(node, "dst_device", &to));
            memory = to.len > 0 ? GPU : PLAN_HOST;
        }
        str_addf(out, "%s%s", i ? ", " : " -> ", memory == GPU ? "gpu" : "host");
    }
    if (*frame)
        str_addf(out, " in %s", frame);
    str_add_char(out, '\n');
}

struct counts {
    int once, looped; /* copies of a step, and of an iteration */
};

static struct counts print_plan(const struct graph *graph, struct str *out) {
    struct plan_frame_map frames;
    struct counts n = {0, 0};
    struct str text = STR_INIT;
    must(plan_find_frames(graph, &frames));
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        if (!node || node->is_removed)
            continue;
        int frame = frames.frame_of[id];
        if (node_is_op(node, OP_COPY))
            *(frame == 0 ? &n.once : &n.looped) += 1;
        print_node(node, frames.frames[frame].name, &text);
    }
    plan_frame_map_fini(&frames);
    str_addf(out, "# copies: %d a step, %d an iteration\n", n.once, n.looped);
    str_add_bytes(out, text.data, text.len);
    str_fini(&text);
    return n;
}

/* ---- plans ---- */

static struct device_table *one_task(void) {
    struct device_table *table = device_table_new();
    device_table_add(table, TASK, "localhost:1", NULL, 1);
    for (int i = 0; i < N_DEVICES; i++)
        device_table_add_device(table, devices[i].full_name, devices[i].type, 0, 1, "");
    device_table_finish(table);
    return table;
}

static void add_copies(struct graph *graph) {
    struct graph_consumers consumers;
    graph_consumers_init(&consumers, graph);
    bool *is_reference = graph_find_references(graph, &consumers);
    graph_consumers_fini(&consumers);
    must(plan_add_copies(graph, &plan_options, is_reference));
    free(is_reference);
}

/* The text of the plan of a training step, and how many copies it has. */
static struct counts plan_text(const char *name, struct str *out) {
    const char *fetches[] = {"loss:0"}, *targets[] = {"step"};
    struct signature signature = {NULL, fetches, targets, 0, 1, 1};
    struct graph_limits limits;
    struct graph graph;
    struct compile_options options;
    struct compiled *compiled;
    struct str bytes = STR_INIT;
    struct device_table *table = one_task();
    graph_init(&graph);
    graph_limits_default(&limits);
    compile_options_default(&options);
    options.allow_soft_placement = true;
    options.fold_budget_ns = 60 * INT64_C(1000000000);
    assert_true(read_file(name, "pb", &bytes));
    must(graph_add_graphdef(&graph, (struct span){bytes.data, bytes.len}, &limits));
    must(place_session(&graph, table, &options));
    must(compile_step(&graph, &signature, table, &options, NULL, &compiled));
    assert_int_equal(compiled->n_partitions, 1);
    add_copies(&compiled->partitions[0].graph);
    struct counts n = print_plan(&compiled->partitions[0].graph, out);
    compiled_free(compiled);
    graph_fini(&graph);
    device_table_unref(table);
    str_fini(&bytes);
    return n;
}

static void check_plan(const char *name, int most_once, int most_looped) {
    struct str found = STR_INIT, wanted = STR_INIT;
    struct counts n = plan_text(name, &found);
    if (getenv("MILLRACE_REGENERATE"))
        write_file(name, &found);
    read_file(name, "txt", &wanted);
    if (n.once > most_once || n.looped > most_looped)
        fail_msg("%s: %d copies a step and %d an iteration, at most %d and %d are needed", name,
                 n.once, n.looped, most_once, most_looped);
    if (strcmp(str_text(&found), str_text(&wanted)) != 0) {
        print_message("-- got\n%s", str_text(&found));
        fail_msg("%s: the plan has changed", name);
    }
    str_fini(&found);
    str_fini(&wanted);
}

static void mlp_copies_the_loss_only(void **state) { check_plan("mlp", 1, 0); }

static void word2vec_copies_what_a_person_would(void **state) { check_plan("word2vec", 1, 0); }

static void residual_copies_the_loss_only(void **state) { check_plan("residual", 1, 0); }

/* The int32 counter of the loop is in host memory, and a row of the sequence is picked by it. */
static void lstm_loop_copies_its_counter(void **state) { check_plan("lstm", 1, 1); }

/* Its lists are on the GPU, and its predicates and their carriers on the host. */
static void functional_lstm_copies_its_counter(void **state) {
    check_plan("lstm_functional", 1, 1);
}

int main(void) {
    gpu_add_device_type(NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_copies_the_loss_only),
        cmocka_unit_test(word2vec_copies_what_a_person_would),
        cmocka_unit_test(residual_copies_the_loss_only),
        cmocka_unit_test(lstm_loop_copies_its_counter),
        cmocka_unit_test(functional_lstm_copies_its_counter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
