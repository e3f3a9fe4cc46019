/* RunMetadata.partition_graphs: one graph for each device of a task. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/partition/device_graphs.h"

/* Adds "name(device) " of a NodeDef. */
static void describe_node(struct span nodedef, struct str *out) {
    struct proto_field field;
    while (proto_next(&nodedef, &field) > 0)
        if (field.number == 1)
            str_add_bytes(out, field.bytes.data, field.bytes.len);
        else if (field.number == 4)
            str_addf(out, "(%.*s) ", (int)field.bytes.len, field.bytes.data);
}

/* Adds its nodes, and "library" and "versions" where it has some. */
static void describe_graph(struct span graphdef, struct str *out) {
    struct proto_field field;
    while (proto_next(&graphdef, &field) > 0)
        if (field.number == 1)
            describe_node(field.bytes, out);
        else
            str_add(out, field.number == 2 ? "library " : "versions ");
    str_add_char(out, '\n');
}

static void check(const char *text, const char *wanted) {
    struct graph graph;
    struct str bytes = STR_INIT, found = STR_INIT;
    struct proto_field field;
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    device_graphs_add(&graph, &bytes);
    struct span graphs = {bytes.data, bytes.len};
    while (proto_next(&graphs, &field) > 0) {
        assert_int_equal(field.number, 3);
        describe_graph(field.bytes, &found);
    }
    assert_string_equal(str_text(&found), wanted);
    str_fini(&bytes);
    str_fini(&found);
    graph_fini(&graph);
}

static void nodes_of_one_device_are_one_graph(void **state) {
    check("x = Placeholder() {dtype=float} @/device:CPU:0\n"
          "y = Exp(x) {T=float} @/device:CPU:0\n",
          "x(/device:CPU:0) y(/device:CPU:0) versions \n");
}

static void each_device_has_a_graph_with_the_functions(void **state) {
    check("function f(a: float) -> (b: float) {\n"
          "  n = Neg(a) {T=float}\n"
          "  return b=n:y:0\n"
          "}\n"
          "x = Placeholder() {dtype=float} @/device:CPU:0\n"
          "y = Exp(x) {T=float} @/device:GPU:0\n"
          "z = PartitionedCall(y) {Tin=[float], Tout=[float], f=&f} @/device:CPU:0\n"
          "w = Neg(z, ^x) {T=float} @/device:GPU:1\n"
          "v = Neg(y) {T=float} @/device:GPU:0\n",
          "x(/device:CPU:0) z(/device:CPU:0) library versions \n"
          "y(/device:GPU:0) v(/device:GPU:0) library versions \n"
          "w(/device:GPU:1) library versions \n");
}

static void an_empty_partition_has_none(void **state) { check("", ""); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_of_one_device_are_one_graph),
        cmocka_unit_test(each_device_has_a_graph_with_the_functions),
        cmocka_unit_test(an_empty_partition_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
