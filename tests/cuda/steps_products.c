/* More kinds of products than a device keeps: all are forgotten, also by the nodes that have found
 * one last. */
#include <stdio.h>
#include <string.h>

#include "tests/cuda/steps.h"

enum { MOST_KINDS = 4096 }; /* that a device keeps */

/* A product of a vector with itself. Each length is a kind. */
static const struct program square = {"square",
                                      {1},
                                      1,
                                      FEED "s = Const() {dtype=int32, value=int32[2]{1, -1}} @C\n"
                                           "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
                                           "p = MatMul(m, m) {T=float, transpose_b=true} @G\n"
                                           "y = _MrFetch(p) {T=float, index=0}\n"};

/* Feeds hold k % 13 - 4. */
static float expected(int n) {
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += (float)((k % 13 - 4) * (k % 13 - 4));
    return sum;
}

/* Returns how many kinds were new; -1: the step failed, or the product is wrong. */
static int multiply(struct plan *plan, int n) {
    static const char call[] = "cublasLtMatmulAlgoGetHeuristic";
    struct program program = square;
    struct run run;
    unsigned long before = driver.count(call);
    program.n_fed[0] = n;
    start_plan(&run, &program, plan);
    struct status *st = end_plan(&run);
    float found = st ? 0 : *(const float *)tensor_cdata(&run.fetches[0]);
    bool is_well = !st && found == expected(n);
    if (!is_well)
        printf("a product of %d: %s %g\n", n, st ? status_message(st) : "wrong:", (double)found);
    status_unref(st);
    run_clear(&run);
    return is_well ? (int)(driver.count(call) - before) : -1;
}

bool run_forgotten(void) {
    struct plan *first = plan_of(&square), *others = plan_of(&square);
    bool is_well = multiply(first, 3) == 1 && multiply(first, 3) == 0 && multiply(others, 3) == 0;
    for (int n = 4; n < 4 + MOST_KINDS && is_well; n++)
        is_well = multiply(others, n) == 1;
    int n_new = is_well ? multiply(first, 3) : 0; /* the node has found nothing else since */
    printf("kinds that were forgotten and found again: %d\n", n_new);
    plan_unref(first);
    plan_unref(others);
    return n_new == 1;
}
