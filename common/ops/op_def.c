/* The families of supported ops, a line each, and the lookup by name. */
#include "common/ops/op_def.h"

#include <pthread.h>

#include "common/base/map.h"

extern const struct op_def_list array_ops, array_join_ops, array_index_ops, array_space_ops,
    control_flow_ops, edge_ops;
extern const struct op_def_list nn_ops;
extern const struct op_def_list math_ops;
extern const struct op_def_list state_ops, resource_variable_ops, training_ops, tensor_array_ops,
    stack_ops, logging_ops;
extern const struct op_def_list random_ops;
extern const struct op_def_list io_ops;
extern const struct op_def_list string_ops;
extern const struct op_def_list unicode_ops;
extern const struct op_def_list parsing_ops;
extern const struct op_def_list summary_ops;
extern const struct op_def_list conv_ops, norm_ops, pool_ops, rnn_ops;
extern const struct op_def_list list_ops, lookup_ops, optional_ops;
extern const struct op_def_list sparse_ops, ragged_ops, set_ops;
extern const struct op_def_list queue_ops, barrier_ops, accumulator_ops, staging_ops, mutex_ops;
extern const struct op_def_list linalg_ops, fft_ops;
extern const struct op_def_list image_ops, reader_ops;
extern const struct op_def_list candidate_ops, ctc_ops, codec_ops, quant_ops, audio_ops,
    cluster_ops;
extern const struct op_def_list dataset_ops, session_value_ops, batch_ops, debug_ops,
    tensor_map_ops;

const struct op_def_list *const op_def_lists[] = {
    &array_ops,
    &array_join_ops,
    &array_index_ops,
    &array_space_ops,
    &control_flow_ops,
    &edge_ops,
    &nn_ops,
    &math_ops,
    &state_ops,
    &resource_variable_ops,
    &training_ops,
    &tensor_array_ops,
    &stack_ops,
    &logging_ops,
    &random_ops,
    &unicode_ops,
    &parsing_ops,
    &summary_ops,
    &string_ops,
    &list_ops,
    &lookup_ops,
    &io_ops,
    &optional_ops,
    &sparse_ops,
    &ragged_ops,
    &set_ops,
    &queue_ops,
    &barrier_ops,
    &accumulator_ops,
    &staging_ops,
    &mutex_ops,
    &conv_ops,
    &pool_ops,
    &norm_ops,
    &rnn_ops,
    &linalg_ops,
    &fft_ops,
    &image_ops,
    &reader_ops,
    &candidate_ops,
    &ctc_ops,
    &dataset_ops,
    &codec_ops,
    &quant_ops,
    &audio_ops,
    &cluster_ops,
    &session_value_ops,
    &batch_ops,
    &debug_ops,
    &tensor_map_ops,
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
