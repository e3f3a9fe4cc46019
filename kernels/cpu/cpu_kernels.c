/* The families of CPU kernels: a line each, in the order in which rows are tried. */
#include "kernels/kernel.h"

extern const struct kernel_list array_kernels, array_reshape_kernels, array_transpose_kernels,
    array_join_kernels, array_slice_kernels;
extern const struct kernel_list array_gather_kernels, array_scatter_kernels, array_pad_kernels,
    array_space_kernels;
extern const struct kernel_list array_diag_kernels, array_unique_kernels, array_sequence_kernels,
    array_partition_kernels;
extern const struct kernel_list nn_kernels;
extern const struct kernel_list math_kernels, math_cast_kernels, math_select_kernels,
    math_reduce_kernels, matmul_kernels, math_scan_kernels;
extern const struct kernel_list math_segment_kernels, math_segment_grad_kernels, math_count_kernels;
extern const struct kernel_list state_kernels, state_scatter_kernels, state_scatter_nd_kernels;
extern const struct kernel_list resource_variable_kernels, resource_gather_kernels,
    training_kernels;
extern const struct kernel_list tensor_array_kernels, tensor_array_bulk_kernels, stack_kernels,
    session_value_kernels, logging_kernels;
extern const struct kernel_list control_flow_kernels;
extern const struct kernel_list random_kernels;
extern const struct kernel_list string_kernels;
extern const struct kernel_list unicode_kernels;
extern const struct kernel_list parsing_kernels, vocab_remap_kernels;
extern const struct kernel_list summary_kernels;
extern const struct kernel_list list_kernels, list_bulk_kernels, list_join_kernels,
    optional_kernels, variant_kernels;
extern const struct kernel_list conv_kernels, norm_kernels, pooling_kernels, rnn_kernels;
extern const struct kernel_list lookup_kernels, lookup_file_kernels;
extern const struct kernel_list io_kernels, checkpoint_kernels, checkpoint_merge_kernels,
    checkpoint_v1_kernels;
extern const struct kernel_list ragged_range_kernels, ragged_gather_kernels, ragged_variant_kernels,
    ragged_dense_kernels, ragged_count_kernels, ragged_cross_kernels;
extern const struct kernel_list sparse_arrange_kernels, sparse_dense_kernels, sparse_matmul_kernels,
    sparse_pair_kernels, sparse_reduce_kernels, sparse_fill_kernels;
extern const struct kernel_list sparse_cross_kernels, sparse_serial_kernels, sparse_map_kernels,
    sparse_distance_kernels;
extern const struct kernel_list set_kernels, set_search_kernels;
extern const struct kernel_list queue_kernels, barrier_kernels, accumulator_kernels,
    staging_kernels, mutex_kernels;
extern const struct kernel_list image_resize_kernels, image_nearest_kernels, image_crop_kernels,
    image_color_kernels, image_boxes_kernels, image_suppress_kernels, image_transform_kernels;
extern const struct kernel_list reader_kernels;
extern const struct kernel_list array_inplace_kernels, math_betainc_kernels;
extern const struct kernel_list candidate_kernels, ctc_kernels, codec_kernels, quant_kernels,
    audio_kernels, kmeans_kernels;
extern const struct kernel_list iterator_kernels, dataset_source_kernels, dataset_choose_kernels,
    dataset_map_kernels, dataset_parse_kernels, dataset_nested_kernels, dataset_batch_kernels,
    dataset_reduce_kernels, dataset_shuffle_kernels, dataset_ahead_kernels, dataset_window_kernels,
    dataset_group_kernels, dataset_keep_kernels, dataset_file_kernels, dataset_rebatch_kernels;
extern const struct kernel_list conv_kernels, norm_kernels, pooling_kernels, rnn_kernels;
extern const struct kernel_list linalg_kernels, matmul_einsum_kernels, math_check_kernels,
    fft_kernels;
extern const struct kernel_list batch_kernels, map_defun_kernels, math_debugger_kernels,
    index_shuffle_kernels, isotonic_kernels, dataset_csv_kernels, lookup_dataset_kernels,
    tensor_map_kernels;

const struct kernel_list *const cpu_kernel_lists[] = {
    &array_kernels,
    &array_reshape_kernels,
    &array_transpose_kernels,
    &array_join_kernels,
    &array_slice_kernels,
    &array_gather_kernels,
    &array_scatter_kernels,
    &array_pad_kernels,
    &array_space_kernels,
    &array_diag_kernels,
    &array_unique_kernels,
    &array_sequence_kernels,
    &array_partition_kernels,
    &nn_kernels,
    &math_kernels,
    &math_cast_kernels,
    &math_select_kernels,
    &math_reduce_kernels,
    &matmul_kernels,
    &math_scan_kernels,
    &math_segment_kernels,
    &math_segment_grad_kernels,
    &math_count_kernels,
    &state_kernels,
    &state_scatter_kernels,
    &state_scatter_nd_kernels,
    &resource_variable_kernels,
    &resource_gather_kernels,
    &training_kernels,
    &tensor_array_kernels,
    &tensor_array_bulk_kernels,
    &stack_kernels,
    &logging_kernels,
    &control_flow_kernels,
    &session_value_kernels,
    &random_kernels,
    &string_kernels,
    &unicode_kernels,
    &parsing_kernels,
    &vocab_remap_kernels,
    &summary_kernels,
    &list_kernels,
    &list_bulk_kernels,
    &list_join_kernels,
    &optional_kernels,
    &variant_kernels,
    &lookup_kernels,
    &lookup_file_kernels,
    &io_kernels,
    &checkpoint_kernels,
    &checkpoint_merge_kernels,
    &checkpoint_v1_kernels,
    &ragged_range_kernels,
    &ragged_gather_kernels,
    &ragged_variant_kernels,
    &ragged_dense_kernels,
    &ragged_count_kernels,
    &ragged_cross_kernels,
    &sparse_arrange_kernels,
    &sparse_dense_kernels,
    &sparse_matmul_kernels,
    &sparse_pair_kernels,
    &sparse_reduce_kernels,
    &sparse_fill_kernels,
    &sparse_cross_kernels,
    &sparse_serial_kernels,
    &sparse_map_kernels,
    &sparse_distance_kernels,
    &set_kernels,
    &set_search_kernels,
    &queue_kernels,
    &barrier_kernels,
    &accumulator_kernels,
    &staging_kernels,
    &mutex_kernels,
    &image_resize_kernels,
    &image_nearest_kernels,
    &image_crop_kernels,
    &image_color_kernels,
    &image_boxes_kernels,
    &image_suppress_kernels,
    &image_transform_kernels,
    &reader_kernels,
    &candidate_kernels,
    &ctc_kernels,
    &codec_kernels,
    &quant_kernels,
    &audio_kernels,
    &kmeans_kernels,
    &array_inplace_kernels,
    &math_betainc_kernels,
    &iterator_kernels,
    &dataset_source_kernels,
    &dataset_choose_kernels,
    &dataset_map_kernels,
    &dataset_parse_kernels,
    &dataset_nested_kernels,
    &dataset_batch_kernels,
    &dataset_reduce_kernels,
    &dataset_shuffle_kernels,
    &dataset_ahead_kernels,
    &dataset_window_kernels,
    &dataset_group_kernels,
    &dataset_keep_kernels,
    &dataset_file_kernels,
    &dataset_rebatch_kernels,
    &conv_kernels,
    &pooling_kernels,
    &norm_kernels,
    &rnn_kernels,
    &linalg_kernels,
    &matmul_einsum_kernels,
    &math_check_kernels,
    &fft_kernels,
    &batch_kernels,
    &map_defun_kernels,
    &math_debugger_kernels,
    &index_shuffle_kernels,
    &isotonic_kernels,
    &dataset_csv_kernels,
    &lookup_dataset_kernels,
    &tensor_map_kernels,
};
const size_t n_cpu_kernel_lists = ARRAY_LEN(cpu_kernel_lists);
