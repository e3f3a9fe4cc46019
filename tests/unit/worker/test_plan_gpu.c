/* Golden plans: which memory each value of a training step is in, and where values are copied.
 *
 * data/NAME.pb is a graph that TensorFlow's client made (data/gen_gpu_graphs.py). It is compiled
 * for a task with a GPU, as a master does; then the plan's copies are added. data/NAME.txt is the
 * result, a line for each node:
 *
 *   name = Op(input, input:1, ^control) place -> memory of each output
 *
 * Each input must be in the memory where its kernel wants it.
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
#include "common/graph/internal_ops.h"
#include "kernels/cuda/rows/gpu_rows.h"
#include "tests/tools/step_plan.h"
#include "worker/plan/plan_internal.h"

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
    /* A copy's device is where it is enqueued. */
    str_addf(out, ") %s", step_plan_is_on_gpu(node) ? "GPU:0" : "CPU:0");
    for (int i = 0; i < node->n_outputs; i++)
        str_addf(out, "%s%s", i ? ", " : " -> ",
                 step_plan_output_is_on_gpu(node, i) ? "gpu" : "host");
    if (*frame)
        str_addf(out, " in %s", frame);
    str_add_char(out, '\n');
}

/* The kernels of a GPU take along small values of the host. */
static bool is_small_constant(const struct node *node) {
    const struct tensor *value;
    if (!node_is_op(node, "Const"))
        return false;
    must(node_get_tensor(node, "value", &value));
    return value->storage == TENSOR_INLINE;
}

static void check_memory(const struct node *node) {
    for (int i = 0; i < node->n_data && !node_is_op(node, OP_COPY); i++) {
        const struct node_input *from = &node->inputs[i];
        bool is_wanted_there = plan_input_memory(&step_plan_options, node, i) != PLAN_HOST;
        if (dtype_is_ref((enum dtype)from->src->out_types[from->index]) ||
            plan_takes_any_memory(&step_plan_options, node, i) || is_small_constant(from->src))
            continue;
        if (step_plan_output_is_on_gpu(from->src, from->index) != is_wanted_there)
            fail_msg("%s gets %s:%d in the wrong memory", node->name, from->src->name, from->index);
    }
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
        check_memory(node);
    }
    plan_frame_map_fini(&frames);
    str_addf(out, "# copies: %d a step, %d an iteration\n", n.once, n.looped);
    str_add_bytes(out, text.data, text.len);
    str_fini(&text);
    return n;
}

/* ---- plans ---- */

/* The text of the plan of a training step, and how many copies it has. */
static struct counts plan_text(const char *name, struct str *out) {
    struct step_plan plan;
    struct str bytes = STR_INIT;
    assert_true(read_file(name, "pb", &bytes));
    must(step_plan_init(&plan, (struct span){bytes.data, bytes.len}));
    struct counts n = print_plan(plan.graph, out);
    step_plan_fini(&plan);
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

/* The CPU takes what enters the loop where it was made. */
static void invariants_enter_from_where_they_are(void **state) { check_plan("invariants", 2, 2); }

int main(void) {
    gpu_add_device_type(NULL, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_copies_the_loss_only),
        cmocka_unit_test(word2vec_copies_what_a_person_would),
        cmocka_unit_test(residual_copies_the_loss_only),
        cmocka_unit_test(lstm_loop_copies_its_counter),
        cmocka_unit_test(functional_lstm_copies_its_counter),
        cmocka_unit_test(invariants_enter_from_where_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
