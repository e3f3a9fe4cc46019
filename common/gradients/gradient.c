/* The families of gradient rows, a line each, and the lookup by op. */
#include "common/gradients/gradient.h"

#include <pthread.h>

#include "common/base/map.h"

extern const struct gradient_list array_gradients, array_index_gradients, array_diag_gradients,
    control_flow_gradients;
extern const struct gradient_list nn_gradients;
extern const struct gradient_list math_gradients, arithmetic_gradients, reduction_gradients,
    segment_gradients, matmul_gradients;
extern const struct gradient_list state_gradients, resource_variable_gradients, training_gradients,
    tensor_array_gradients, stack_gradients, logging_gradients;
extern const struct gradient_list random_gradients;
extern const struct gradient_list io_gradients;
extern const struct gradient_list string_gradients;
extern const struct gradient_list unicode_gradients;
extern const struct gradient_list parsing_gradients;
extern const struct gradient_list summary_gradients;
extern const struct gradient_list conv_gradients, norm_gradients, pool_gradients, rnn_gradients;
extern const struct gradient_list list_gradients, lookup_gradients, optional_gradients;
extern const struct gradient_list sparse_gradients, ragged_gradients, set_gradients;
extern const struct gradient_list queue_gradients, barrier_gradients, accumulator_gradients,
    staging_gradients, mutex_gradients;
extern const struct gradient_list linalg_gradients, fft_gradients;
extern const struct gradient_list image_gradients, reader_gradients;
extern const struct gradient_list candidate_gradients, ctc_gradients, codec_gradients,
    quant_gradients, audio_gradients, cluster_gradients, einsum_gradients;
extern const struct gradient_list dataset_gradients, session_value_gradients, batch_gradients,
    debug_gradients, tensor_map_gradients;

const struct gradient_list *const gradient_lists[] = {
    &array_gradients,       &control_flow_gradients,  &nn_gradients,
    &math_gradients,        &state_gradients,         &resource_variable_gradients,
    &training_gradients,    &tensor_array_gradients,  &stack_gradients,
    &unicode_gradients,     &parsing_gradients,       &summary_gradients,
    &logging_gradients,     &random_gradients,        &string_gradients,
    &list_gradients,        &lookup_gradients,        &io_gradients,
    &optional_gradients,    &sparse_gradients,        &ragged_gradients,
    &set_gradients,         &queue_gradients,         &barrier_gradients,
    &accumulator_gradients, &staging_gradients,       &mutex_gradients,
    &conv_gradients,        &pool_gradients,          &norm_gradients,
    &rnn_gradients,         &linalg_gradients,        &fft_gradients,
    &image_gradients,       &reader_gradients,        &candidate_gradients,
    &ctc_gradients,         &array_index_gradients,   &array_diag_gradients,
    &arithmetic_gradients,  &reduction_gradients,     &segment_gradients,
    &matmul_gradients,      &dataset_gradients,       &codec_gradients,
    &quant_gradients,       &audio_gradients,         &cluster_gradients,
    &einsum_gradients,      &session_value_gradients, &batch_gradients,
    &debug_gradients,       &tensor_map_gradients,
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
