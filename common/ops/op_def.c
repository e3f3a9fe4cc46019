/* Finds the op row of a name among the rows of all families (common/ops/families.inc). */
#include "common/ops/op_def.h"

#include <pthread.h>

#include "common/base/map.h"

const struct op_def_list *const op_def_lists[] = {
#define OPS(list) &list,
#include "common/ops/families.inc"
};
const size_t n_op_def_lists = ARRAY_LEN(op_def_lists);

static struct strmap by_name;
static pthread_once_t by_name_once = PTHREAD_ONCE_INIT;

static void by_name_build(void) {
    strmap_init(&by_name);
    for (size_t l = 0; l < n_op_def_lists; l++) {
        for (size_t r = 0; r < op_def_lists[l]->n_rows; r++) {
            const struct op_def *def = &op_def_lists[l]->rows[r];
            if (!strmap_get(&by_name, def->name)) /* a row per op: test_tables names doubled ones */
                strmap_put(&by_name, def->name, (void *)(uintptr_t)def);
        }
    }
}

const struct op_def *op_def_find(const char *name) {
    pthread_once(&by_name_once, by_name_build);
    return strmap_get(&by_name, name);
}
