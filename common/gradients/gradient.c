/* Finds the gradient row of an op among the rows of all families (common/ops/families.inc). */
#include "common/gradients/gradient.h"

#include <pthread.h>

#include "common/base/map.h"

const struct gradient_list *const gradient_lists[] = {
    &no_gradients,
#define GRADIENTS(list) &list,
#include "common/ops/families.inc"
};
const size_t n_gradient_lists = ARRAY_LEN(gradient_lists);

static struct strmap by_op;
static pthread_once_t by_op_once = PTHREAD_ONCE_INIT;

static void by_op_build(void) {
    strmap_init(&by_op);
    for (size_t l = 0; l < n_gradient_lists; l++) {
        for (size_t r = 0; r < gradient_lists[l]->n_rows; r++) {
            const struct gradient_row *row = &gradient_lists[l]->rows[r];
            if (!strmap_get(&by_op, row->op)) /* a row per op: test_tables names doubled ones */
                strmap_put(&by_op, row->op, (void *)(uintptr_t)row);
        }
    }
}

const struct gradient_row *gradient_find(const char *op) {
    pthread_once(&by_op_once, by_op_build);
    return strmap_get(&by_op, op);
}
