/* Lists datasets and iterators. A dataset is a scalar of dtype variant; the attrs of an iterator's
 * node declare its elements. */
#include "common/ops/op_def.h"

static struct status *shape_declared(struct shape_inference *ctx) {
    const struct attr_value *shapes;
    int n = 0;
    TRY(node_get_list(ctx->node, "output_shapes", &shapes, &n));
    if (n != ctx->node->n_outputs)
        return status_invalid(
            "`output_shapes` must be the same length as `output_types` (%d vs. %d)", n,
            ctx->node->n_outputs);
    for (int i = 0; i < n; i++)
        ctx->out[i] = shapes[i].shape;
    return NULL;
}

/* The defaults of fields are inputs 8 and above. */
static struct status *shape_csv(struct shape_inference *ctx) {
    const struct attr_value *types;
    int n = 0;
    TRY(node_get_list(ctx->node, "output_types", &types, &n));
    for (int i = 8; i < 8 + n && i < ctx->node->n_data; i++) {
        if (ctx->in[i].rank > 1)
            return status_invalid("Shape must be at most rank 1 but is rank %d", ctx->in[i].rank);
        if (ctx->in[i].rank == 1 && ctx->in[i].dims[0] > 1)
            return status_invalid(
                "Shape of a default must be a length-0 or length-1 vector, or a scalar.");
    }
    ctx->out[0] = SHAPE_SCALAR;
    return NULL;
}

static bool shape_merge_failed(int64_t a, int64_t b, int64_t *ret) {
    *ret = a < 0 ? b : a;
    return a >= 0 && b >= 0 && a != b;
}

/* SerializeIterator: one variant. */
static struct status *shape_position(struct shape_inference *ctx) {
    static const int64_t one = 1;
    ctx->out[0] = shape_make(ctx, 1, &one);
    return NULL;
}

/* MapDefun: as many rows as the arguments have, each of the declared shape. */
static struct status *shape_map_defun(struct shape_inference *ctx) {
    const struct attr_value *types, *shapes;
    int n_arguments = 0, n = 0;
    int64_t n_rows = -1;
    TRY(node_get_list(ctx->node, "Targuments", &types, &n_arguments));
    for (int i = 0; i < n_arguments && i < ctx->node->n_data; i++) {
        if (ctx->in[i].rank == 0)
            return status_invalid("Arguments must have rank at least 1. Input %d has rank of 0.",
                                  i);
        if (ctx->in[i].rank > 0 && shape_merge_failed(n_rows, ctx->in[i].dims[0], &n_rows))
            return status_invalid("Arguments must have the same dimension 0.");
    }
    TRY(node_get_list(ctx->node, "output_shapes", &shapes, &n));
    if (n != ctx->node->n_outputs)
        return status_invalid(
            "`output_shapes` must be the same length as `output_types` (%d vs. %d)", n,
            ctx->node->n_outputs);
    for (int i = 0; i < n; i++)
        TRY(shape_concat(ctx, shape_make(ctx, 1, &n_rows), shapes[i].shape, &ctx->out[i]));
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"TensorDataset", "a dataset of one element", shape_scalar},
    {"TensorSliceDataset", "a dataset of the rows of tensors", shape_scalar},
    {"SparseTensorSliceDataset", "a dataset of the rows of a sparse tensor", shape_scalar},
    {"RangeDataset", "a dataset of numbers at equal steps", shape_scalar},
    {"TakeDataset", "the first elements of a dataset", shape_scalar},
    {"SkipDataset", "a dataset without its first elements", shape_scalar},
    {"ShardDataset", "every n-th element of a dataset", shape_scalar},
    {"RepeatDataset", "a dataset several times, or without end", shape_scalar},
    {"ZipDataset", "elements of several datasets side by side", shape_scalar},
    {"ConcatenateDataset", "one dataset after another", shape_scalar},
    {"DirectedInterleaveDataset", "elements of several datasets, chosen by another dataset",
     shape_scalar},
    {"OptionsDataset", "a dataset; options have no effect here", shape_scalar},
    {"FinalizeDataset", "a dataset, unchanged", shape_scalar},
    {"ModelDataset", "a dataset, unchanged", shape_scalar},
    {"OptimizeDataset", "a dataset, unchanged", shape_scalar},
    {"OptimizeDatasetV2", "a dataset, unchanged", shape_scalar},
    {"MaxIntraOpParallelismDataset", "a dataset, unchanged", shape_scalar},
    {"PrivateThreadPoolDataset", "a dataset, unchanged", shape_scalar},
    {"NonSerializableDataset", "a dataset, unchanged", shape_scalar},
    {"MapDataset", "a function's results for each element", shape_scalar},
    {"ExperimentalMapDataset", "a function's results for each element", shape_scalar},
    {"FilterDataset", "the elements for which a function is true", shape_scalar},
    {"ParallelFilterDataset", "the elements for which a function is true", shape_scalar},
    {"TakeWhileDataset", "elements up to the first for which a function is false", shape_scalar},
    {"ExperimentalTakeWhileDataset", "elements up to the first for which a function is false",
     shape_scalar},
    {"ScanDataset", "a function's results for each element and the state before it", shape_scalar},
    {"ExperimentalScanDataset", "a function's results for each element and the state before it",
     shape_scalar},
    {"GeneratorDataset", "the elements that a function makes until it raises an end of sequence",
     shape_scalar},
    {"FlatMapDataset", "the elements of the datasets that a function makes, one after the other",
     shape_scalar},
    {"InterleaveDataset", "the elements of the datasets that a function makes, in turns",
     shape_scalar},
    {"ParallelInterleaveDataset", "the elements of the datasets that a function makes, in turns",
     shape_scalar},
    {"ParallelInterleaveDatasetV2", "the elements of the datasets that a function makes, in turns",
     shape_scalar},
    {"ParallelInterleaveDatasetV3", "the elements of the datasets that a function makes, in turns",
     shape_scalar},
    {"ParallelInterleaveDatasetV4", "the elements of the datasets that a function makes, in turns",
     shape_scalar},
    {"LegacyParallelInterleaveDatasetV2",
     "the elements of the datasets that a function makes, in turns", shape_scalar},
    {"ExperimentalParallelInterleaveDataset",
     "the elements of the datasets that a function makes, in turns", shape_scalar},
    {"BatchDataset", "elements stacked, some at a time", shape_scalar},
    {"BatchDatasetV2", "elements stacked, some at a time", shape_scalar},
    {"ParallelBatchDataset", "elements stacked, some at a time", shape_scalar},
    {"PaddedBatchDataset", "elements padded and stacked, some at a time", shape_scalar},
    {"PaddedBatchDatasetV2", "elements padded and stacked, some at a time", shape_scalar},
    {"UnbatchDataset", "the rows of elements", shape_scalar},
    {"ExperimentalUnbatchDataset", "the rows of elements", shape_scalar},
    {"ReduceDataset", "a function's result over all elements, one after the other", shape_declared},
    {"DatasetToSingleElement", "the only element of a dataset", shape_declared},
    {"DatasetCardinality", "the number of elements of a dataset; -1 endless, -2 unknown",
     shape_scalar},
    {"ExperimentalDatasetCardinality",
     "the number of elements of a dataset; -1 endless, -2 unknown", shape_scalar},
    {"DatasetToGraph", "the nodes and functions that make a dataset, as a GraphDef", shape_scalar},
    {"DatasetToGraphV2", "the nodes and functions that make a dataset, as a GraphDef",
     shape_scalar},
    {"Iterator", "a place for an iterator over a dataset", shape_scalar},
    {"IteratorV2", "a place for an iterator over a dataset", shape_scalar},
    {"OneShotIterator", "an iterator over the dataset that a function makes", shape_scalar},
    {"AnonymousIterator", "an iterator under a unique name", shape_scalar},
    {"AnonymousIteratorV2", "an iterator under a unique name", shape_scalar},
    {"AnonymousIteratorV3", "an iterator under a unique name", shape_scalar},
    {"DeleteIterator", "removes an iterator", shape_none},
    {"MakeIterator", "an iterator begins with a dataset", shape_none},
    {"IteratorGetNext", "the next element; OUT_OF_RANGE at the end", shape_declared},
    {"IteratorGetNextSync", "the next element; OUT_OF_RANGE at the end", shape_declared},
    {"IteratorGetNextAsOptional", "the next element, or nothing at the end", shape_scalar},
    {"IteratorToStringHandle", "an iterator's handle as bytes", shape_scalar},
    {"IteratorFromStringHandle", "an iterator by its handle's bytes", shape_scalar},
    {"IteratorFromStringHandleV2", "an iterator by its handle's bytes", shape_scalar},
    {"IteratorGetDevice", "the device that an iterator is on", shape_scalar},
    {"SerializeIterator", "an iterator's position", shape_position},
    {"DeserializeIterator", "an iterator continues from a saved position", shape_none},
    {"GetOptions", "the options of a dataset, serialized", shape_scalar},
    {"MatchingFilesDataset", "the names of the files that match patterns", shape_scalar},
    {"ExperimentalMatchingFilesDataset", "the names of the files that match patterns",
     shape_scalar},
    {"DenseToSparseBatchDataset", "elements of different sizes as a sparse tensor, some at a time",
     shape_scalar},
    {"ExperimentalDenseToSparseBatchDataset",
     "elements of different sizes as a sparse tensor, some at a time", shape_scalar},
    {"RewriteDataset", "a dataset, unchanged", shape_scalar},
    {"ShuffleDataset", "elements in random order, drawn from a buffer", shape_scalar},
    {"ShuffleDatasetV3", "elements in random order, drawn from a buffer", shape_scalar},
    {"ShuffleAndRepeatDataset", "a dataset several times, in random order", shape_scalar},
    {"ShuffleAndRepeatDatasetV2", "a dataset several times, in random order", shape_scalar},
    {"DummySeedGenerator", "a handle to nothing", shape_scalar},
    {"DummyMemoryCache", "a handle to nothing", shape_scalar},
    {"RandomDataset", "random numbers without end", shape_scalar},
    {"RandomDatasetV2", "random numbers without end", shape_scalar},
    {"ExperimentalRandomDataset", "random numbers without end", shape_scalar},
    {"SamplingDataset", "each element with some probability", shape_scalar},
    {"PrefetchDataset", "a dataset whose elements are made ahead", shape_scalar},
    {"ParallelMapDataset", "a function's results for each element, several at a time",
     shape_scalar},
    {"ParallelMapDatasetV2", "a function's results for each element, several at a time",
     shape_scalar},
    {"MapAndBatchDataset", "a function's results for each element, stacked", shape_scalar},
    {"ExperimentalMapAndBatchDataset", "a function's results for each element, stacked",
     shape_scalar},
    {"WindowDataset", "datasets of consecutive elements", shape_scalar},
    {"GroupByWindowDataset", "what a function makes of elements with the same key, some at a time",
     shape_scalar},
    {"ExperimentalGroupByWindowDataset",
     "what a function makes of elements with the same key, some at a time", shape_scalar},
    {"GroupByReducerDataset", "what functions make of all elements with the same key",
     shape_scalar},
    {"ExperimentalGroupByReducerDataset", "what functions make of all elements with the same key",
     shape_scalar},
    {"CacheDataset", "a dataset that is made once and kept", shape_scalar},
    {"CacheDatasetV2", "a dataset that is made once and kept", shape_scalar},
    {"UniqueDataset", "each element once", shape_scalar},
    {"ParseExampleDataset", "serialized Examples as their features", shape_scalar},
    {"ParseExampleDatasetV2", "serialized Examples as their features", shape_scalar},
    {"ExperimentalParseExampleDataset", "serialized Examples as their features", shape_scalar},
    {"ExperimentalUniqueDataset", "each element once", shape_scalar},
    {"IgnoreErrorsDataset", "a dataset without the elements that fail", shape_scalar},
    {"ExperimentalIgnoreErrorsDataset", "a dataset without the elements that fail", shape_scalar},
    {"AssertCardinalityDataset", "a dataset that fails when it has another number of elements",
     shape_scalar},
    {"TextLineDataset", "the lines of files", shape_scalar},
    {"TFRecordDataset", "the records of TFRecord files", shape_scalar},
    {"TFRecordDatasetV2", "the records of TFRecord files, from given offsets", shape_scalar},
    {"FixedLengthRecordDataset", "blocks of equal size from files", shape_scalar},
    {"FixedLengthRecordDatasetV2", "blocks of equal size from files", shape_scalar},
    {"ListDataset", "elements that are given one by one", shape_scalar},
    {"ExperimentalNonSerializableDataset", "a dataset, unchanged", shape_scalar},
    {"ExperimentalDirectedInterleaveDataset",
     "elements of several datasets, chosen by another dataset", shape_scalar},
    {"ExperimentalMaxIntraOpParallelismDataset", "a dataset, unchanged", shape_scalar},
    {"ExperimentalPrivateThreadPoolDataset", "a dataset, unchanged", shape_scalar},
    {"ThreadPoolDataset", "a dataset, unchanged", shape_scalar},
    {"ExperimentalThreadPoolDataset", "a dataset, unchanged", shape_scalar},
    {"ThreadPoolHandle", "a handle to a pool, which is the worker's one", shape_scalar},
    {"ExperimentalThreadPoolHandle", "a handle to a pool, which is the worker's one", shape_scalar},
    {"BytesProducedStatsDataset", "a dataset, unchanged", shape_scalar},
    {"ExperimentalBytesProducedStatsDataset", "a dataset, unchanged", shape_scalar},
    {"LatencyStatsDataset", "a dataset, unchanged", shape_scalar},
    {"ExperimentalLatencyStatsDataset", "a dataset, unchanged", shape_scalar},
    {"ChooseFastestDataset", "the first of datasets that are alike", shape_scalar},
    {"ExperimentalChooseFastestDataset", "the first of datasets that are alike", shape_scalar},
    {"WrapDatasetVariant", "a dataset, unchanged", shape_scalar},
    {"UnwrapDatasetVariant", "a dataset, unchanged", shape_scalar},
    {"SlidingWindowDataset", "consecutive elements stacked, at equal steps", shape_scalar},
    {"ExperimentalSlidingWindowDataset", "consecutive elements stacked, at equal steps",
     shape_scalar},
    {"ExperimentalIteratorGetDevice", "the device that an iterator is on", shape_scalar},
    {"CSVDataset", "the records of CSV files, a component for each field", shape_csv},
    {"CSVDatasetV2", "the records of CSV files, a component for each field", shape_csv},
    {"ExperimentalCSVDataset", "the records of CSV files, a component for each field", shape_csv},
    {"MapDefun", "a function of each row of its arguments, stacked", shape_map_defun},
    {"DatasetToTFRecord", "writes a dataset's strings as records of a file", shape_none},
    {"ExperimentalDatasetToTFRecord", "writes a dataset's strings as records of a file",
     shape_none},
    {"AutoShardDataset", "every n-th element of a dataset, for one of n workers", shape_scalar},
    {"ExperimentalAutoShardDataset", "every n-th element of a dataset, for one of n workers",
     shape_scalar},
    {"SaveDataset", "saves a dataset's elements in files", shape_none},
    {"SaveDatasetV2", "a dataset whose elements are saved in files as they are handed out",
     shape_scalar},
    {"LoadDataset", "the elements that were saved in files", shape_scalar},
    {"SnapshotDatasetV2", "a dataset whose elements are saved once, and read after that",
     shape_scalar},
    {"MultiDeviceIterator", "a place for an iterator that deals out elements to several devices",
     shape_scalar},
    {"AnonymousMultiDeviceIterator", "an iterator for several devices under a unique name",
     shape_scalar},
    {"AnonymousMultiDeviceIteratorV3", "an iterator for several devices under a unique name",
     shape_scalar},
    {"DeleteMultiDeviceIterator", "removes an iterator for several devices", shape_none},
    {"MultiDeviceIteratorInit", "an iterator for several devices begins with a dataset",
     shape_scalar},
    {"MultiDeviceIteratorGetNextFromShard",
     "the next element for a device; OUT_OF_RANGE at the end", shape_declared},
    {"MultiDeviceIteratorToStringHandle", "the handle of an iterator for several devices as bytes",
     shape_scalar},
    {"MultiDeviceIteratorFromStringHandle", "an iterator for several devices by its handle's bytes",
     shape_scalar},
    {"RebatchDatasetV2", "batches cut anew, by a list of sizes", shape_scalar},
};
// clang-format on

const struct op_def_list dataset_ops = {rows, ARRAY_LEN(rows)};
