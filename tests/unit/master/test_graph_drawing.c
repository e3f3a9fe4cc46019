/* Drawings of placed graphs: what the boxes say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "master/service/graph_drawing.h"

/* The drawing of one node of that name has the line. */
static void expect_line(const char *name, const char *line) {
    struct node_times times[2] = {{0}};
    struct placed_graph graph;
    struct str out = STR_INIT;
    placed_graph_init(&graph);
    graph.nodes = arena_new(&graph.arena, struct placed_node);
    graph.nodes[0] = (struct placed_node){
        .name = name, .op = "NoOp", .device = "/job:a/replica:0/task:0", .why = "it may be"};
    graph.n_nodes = 1;
    graph_drawing_write(&graph, times, &out);
    if (!strstr(str_text(&out), line))
        fail_msg("no %s in %s", line, str_text(&out));
    str_fini(&out);
    placed_graph_fini(&graph);
}

static void long_names_keep_their_end(void **state) {
    expect_line("scope/another/yet/another/node", "\"…/another/yet/another/node\"");
}

static void names_are_cut_between_characters(void **state) {
    expect_line("ääääääääääääääx", "\"…ääääääääääääx\"");
    expect_line("ääääääääääääää", "\"…ääääääääääää\"");
    expect_line("𝔘𝔘𝔘𝔘𝔘𝔘𝔘𝔘", "\"…𝔘𝔘𝔘𝔘𝔘𝔘\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_names_keep_their_end),
        cmocka_unit_test(names_are_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
