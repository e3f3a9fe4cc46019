/* Evaluates graphs that are given as text, for the tests of kernels. */
#include "tests/unit/kernels/kernel_test.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"

struct fixture {
    struct test_host *host;
    struct test_graph graph;
};

static struct status *fixture_init(struct fixture *fixture, const char *text) {
    fixture->host = test_host_new(0);
    test_graph_init(&fixture->graph, fixture->host);
    struct status *st = graph_parse(text, &fixture->graph.graph);
    return st ? st : test_graph_prepare(&fixture->graph);
}

static void fixture_fini(struct fixture *fixture) {
    test_graph_fini(&fixture->graph);
    test_host_free(fixture->host);
}

static void expect_ok(struct status *st, const char *what) {
    if (st)
        fail_msg("%s: %s: %s", what, status_code_name(status_code(st)), status_message(st));
}

static void expect_failure(struct status *st, enum status_code code, const char *words,
                           const char *what) {
    if (!st)
        fail_msg("%s: succeeded, expected %s \"%s\"", what, status_code_name(code), words);
    if (status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("%s: expected %s \"%s\", got %s: %s", what, status_code_name(code), words,
                 status_code_name(status_code(st)), status_message(st));
    status_unref(st);
}

static void expect_tensor(const struct tensor *value, const char *expected, const char *what) {
    struct str text = STR_INIT;
    tensor_print(value, INT64_MAX, &text);
    if (strcmp(str_text(&text), expected) != 0)
        fail_msg("%s:\n  expected %s\n  got      %s", what, expected, str_text(&text));
    str_fini(&text);
}

void kernel_test_run(const char *graph_text, const char *endpoint, const char *expected) {
    struct kernel_test_step step = {.endpoint = endpoint, .expected = expected};
    kernel_test_steps(graph_text, &step, 1);
}

void kernel_test_steps(const char *graph_text, const struct kernel_test_step *steps,
                       size_t n_steps) {
    struct fixture fixture;
    expect_ok(fixture_init(&fixture, graph_text), "graph");
    for (size_t i = 0; i < n_steps; i++) {
        struct tensor value = TENSOR_INIT;
        const char *what = steps[i].endpoint ? steps[i].endpoint : steps[i].target;
        expect_ok(test_graph_run(&fixture.graph, NULL, 0, &steps[i].endpoint,
                                 steps[i].endpoint != NULL, &steps[i].target,
                                 steps[i].target != NULL, &value),
                  what);
        if (!steps[i].endpoint)
            continue;
        expect_tensor(&value, steps[i].expected, what);
        char *shape = NULL;
        struct str own = STR_INIT;
        expect_ok(test_graph_infer(&fixture.graph, &steps[i].endpoint, 1, &shape), what);
        shape_print(tensor_shape(&value), &own);
        if (!strchr(shape, '?') && !strchr(shape, '<') && strcmp(shape, str_text(&own)) != 0)
            fail_msg("%s: inferred shape %s, real shape %s", what, shape, str_text(&own));
        str_fini(&own);
        free(shape);
        tensor_clear(&value);
    }
    fixture_fini(&fixture);
}

void kernel_test_fails(const char *graph_text, const char *endpoint, enum status_code code,
                       const char *words) {
    struct fixture fixture;
    struct tensor value = TENSOR_INIT;
    struct status *st = fixture_init(&fixture, graph_text);
    if (!st)
        st = test_graph_run(&fixture.graph, NULL, 0, &endpoint, 1, NULL, 0, &value);
    expect_failure(st, code, words, endpoint);
    tensor_clear(&value);
    fixture_fini(&fixture);
}

void kernel_test_shape(const char *graph_text, const char *endpoint, const char *expected) {
    struct fixture fixture;
    char *shape = NULL;
    expect_ok(fixture_init(&fixture, graph_text), "graph");
    struct status *st = test_graph_infer(&fixture.graph, &endpoint, 1, &shape);
    if (expected[0] == '!') {
        expect_failure(st, STATUS_INVALID_ARGUMENT, expected + 1, endpoint);
    } else {
        expect_ok(st, endpoint);
        if (strcmp(shape, expected) != 0)
            fail_msg("%s: expected shape %s, got %s", endpoint, expected, shape);
    }
    free(shape);
    fixture_fini(&fixture);
}
