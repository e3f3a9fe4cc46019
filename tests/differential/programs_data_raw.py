"""Kinds of datasets and iterators that tf.data of today does not make: older clients' graphs, and
what the runtime's own rewriting puts in."""

import numpy as np
from programs import WORKER0, Run, tf, tf1
from programs_data import F, R, R_dataset, tfrecords, through
from tensorflow.python.data.ops import structured_function

D = tf.data.Dataset
I = np.int64
BACKGROUND = {"sloppy": False, "buffer_output_elements": I(2), "prefetch_input_elements": I(1)}


def r(n):
    return D.range(n)


def function(of, dataset=None, structure=None):
    """A function of an element, as ops take it."""
    given = {"dataset": dataset} if dataset is not None else {"input_structure": structure}
    return structured_function.StructuredFunctionWrapper(of, "programs_data_raw", **given).function


def number(*shape, dtype=tf.int64):
    return tf.TensorSpec(shape, dtype)


def mapped(op, of, name="f", n=6, batched=False, **arguments):
    """op over 0 … n - 1; elements are int64 scalars, or vectors of them."""

    def make():
        dataset = r(n)
        inputs = {"input_dataset": dataset._variant_tensor, "other_arguments": [],
                  name: function(of, dataset), "output_types": [tf.int64],
                  "output_shapes": [[None] if batched else []]}
        return Raw(lambda: op(**inputs, **arguments), dataset, number(None) if batched
                   else number())

    return make


class Raw(tf.data.Dataset):
    def __init__(self, make, dataset, spec):
        self._spec, self._from = spec, dataset
        super().__init__(make())

    def _inputs(self):
        return [self._from] if self._from is not None else []

    @property
    def element_spec(self):
        return self._spec


def plain(op, n=6, **arguments):
    return lambda: R_dataset(op, r(n), **{k: v() if callable(v) else v for k,
                                          v in arguments.items()})



def _interleaved(op, **arguments):
    def make():
        dataset = r(5)
        of = function(lambda x: D.range(x * 10, x * 10 + x), dataset)
        return Raw(
            lambda: op(
                input_dataset=dataset._variant_tensor, other_arguments=[], cycle_length=I(2),
                block_length=I(2), f=of, output_types=[tf.int64], output_shapes=[[]], **arguments
            ),
            dataset,
            number(),
        )

    return make


def _scan():
    dataset = r(6)
    of = function(lambda s, x: (s + x, s * x), structure=(number(), number()))
    make = lambda: R.ExperimentalScanDataset(  # noqa: E731
        input_dataset=dataset._variant_tensor, initial_state=[I(1)], other_arguments=[], f=of,
        output_types=[tf.int64], output_shapes=[[]]
    )
    return Raw(make, dataset, number())


def _by_reducer():
    """Elements summed by what remains of a division by 3."""
    dataset = r(10)
    key = function(lambda x: x % 3, dataset)
    begin = function(lambda _: I(0), structure=number())
    reduce = function(lambda s, x: s + x, structure=(number(), number()))
    end = function(lambda s: s, structure=number())
    others = {f"{which}_func_other_arguments": []
              for which in ("key", "init", "reduce", "finalize")}
    make = lambda: R.GroupByReducerDataset(  # noqa: E731
        input_dataset=dataset._variant_tensor, key_func=key, init_func=begin, reduce_func=reduce,
        finalize_func=end, output_types=[tf.int64], output_shapes=[[]], **others
    )
    return Raw(make, dataset, number())


def _by_window():
    dataset = r(10)
    key, size = function(lambda x: x % 2, dataset), function(lambda _: I(3), structure=number())
    reduce = function(lambda key, window: window.batch(3),
                      structure=(number(), tf.data.DatasetSpec(number())))
    others = {f"{which}_func_other_arguments": [] for which in ("key", "reduce", "window_size")}
    make = lambda: R.ExperimentalGroupByWindowDataset(  # noqa: E731
        input_dataset=dataset._variant_tensor, key_func=key, reduce_func=reduce,
        window_size_func=size, output_types=[tf.int64], output_shapes=[[None]], **others
    )
    return Raw(make, dataset, number(None))


def _unbatched():
    dataset = r(7).batch(3)
    return Raw(lambda: R.ExperimentalUnbatchDataset(input_dataset=dataset._variant_tensor,
            output_types=[tf.int64], output_shapes=[[]]), dataset, number())


def _records(offsets):
    def make():
        path = tfrecords("raw-v2", [b"one", b"", b"three" * 20])
        return Raw(
            lambda: R.TFRecordDatasetV2(filenames=[path], compression_type="", buffer_size=I(1000),
                                        byte_offsets=np.array(offsets, I)), None,
                   number(dtype=tf.string)
        )

    return make


def _sliding(size, shift, stride, drops):
    sizes = {"window_size": I(size), "window_shift": I(shift), "window_stride": I(stride),
             "drop_remainder": drops}
    return lambda: Raw(
        lambda: R.SlidingWindowDataset(input_dataset=r(8)._variant_tensor, output_types=[tf.int64],
                                       output_shapes=[[None]], **sizes), r(8), number(None)
    )


FIRST_RECORD_BYTES = 8 + 4 + 3 + 4

NUMBERS = dict(output_types=[tf.int64], output_shapes=[[]])
PIPELINES = {
    "batch v1": lambda: Raw(lambda: R.BatchDataset(input_dataset=r(7)._variant_tensor,
            batch_size=I(3), output_types=[tf.int64], output_shapes=[[None]]), None, number(None)),
    "finalize": plain(R.FinalizeDataset),
    "model": plain(R.ModelDataset),
    "non serializable": plain(R.NonSerializableDataset),
    "optimize": plain(R.OptimizeDataset, optimizations=lambda: tf.constant([], tf.string)),
    "optimize v2": plain(
        R.OptimizeDatasetV2, **{f"optimizations_{which}": (lambda: tf.constant([], tf.string))
                                for which in ("enabled", "disabled", "default")}
    ),
    "intra op": plain(R.MaxIntraOpParallelismDataset, max_intra_op_parallelism=I(1)),
    "intra op negative": plain(R.MaxIntraOpParallelismDataset, max_intra_op_parallelism=I(-1)),
    "thread pool": plain(R.PrivateThreadPoolDataset, num_threads=I(2)),
    "thread pool negative": plain(R.PrivateThreadPoolDataset, num_threads=I(-2)),
    "cache v2": plain(R.CacheDatasetV2, filename="", cache=lambda: R.DummyMemoryCache()),
    "shuffle v3": plain(R.ShuffleDatasetV3, buffer_size=I(4), seed=I(3), seed2=I(5),
                        seed_generator=lambda: R.DummySeedGenerator(),
                        reshuffle_each_iteration=False),
    "shuffle v3 zero": plain(R.ShuffleDatasetV3, buffer_size=I(0), seed=I(3), seed2=I(5),
                             seed_generator=lambda: R.DummySeedGenerator(),
                             reshuffle_each_iteration=False),
    "shuffle and repeat v2": plain(
        R.ShuffleAndRepeatDatasetV2, n=4, buffer_size=I(3), seed=I(3), seed2=I(5), count=I(2),
        seed_generator=lambda: R.DummySeedGenerator(), reshuffle_each_iteration=False
    ),
    "random experimental": lambda: Raw(lambda: R.ExperimentalRandomDataset(seed=I(3), seed2=I(4),
            **NUMBERS), None, number()),
    "random v2": lambda: Raw(
        lambda: R.RandomDatasetV2(seed=I(3), seed2=I(4), seed_generator=R.DummySeedGenerator(),
                                  rerandomize_each_iteration=False, **NUMBERS), None, number()
    ),
    "ignore errors": lambda: R_dataset(R.ExperimentalIgnoreErrorsDataset,
                                       D.from_tensor_slices(np.array([1, 0, 2], I)).map(
                                           lambda x: 10 // x)),
    "unique": lambda: R_dataset(R.ExperimentalUniqueDataset, r(9).map(lambda x: x % 4)),
    "unbatch": _unbatched,
    "intra op experimental": plain(R.ExperimentalMaxIntraOpParallelismDataset,
                                   max_intra_op_parallelism=I(1)),
    "thread pool experimental": plain(R.ExperimentalPrivateThreadPoolDataset, num_threads=I(2)),
    "thread pool by handle": plain(R.ThreadPoolDataset,
                                   thread_pool=lambda: R.ThreadPoolHandle(
                                       num_threads=2, display_name="pool")),
    "thread pool by handle experimental": plain(R.ExperimentalThreadPoolDataset,
                                                thread_pool=lambda: R.ExperimentalThreadPoolHandle(
                                                    num_threads=2, display_name="pool")),
    "thread pool negative handle": plain(R.ThreadPoolDataset,
                                         thread_pool=lambda: R.ThreadPoolHandle(
                                             num_threads=-1, display_name="pool")),
    "thread pool of none": plain(R.ThreadPoolDataset,
                                 thread_pool=lambda: R.ThreadPoolHandle(
                                     num_threads=0, display_name="pool")),
    "non serializable experimental": plain(R.ExperimentalNonSerializableDataset),
    "bytes produced": plain(R.BytesProducedStatsDataset, tag=lambda: tf.constant("tag")),
    "latency": plain(R.ExperimentalLatencyStatsDataset, tag=lambda: tf.constant("tag")),
    "list": lambda: Raw(lambda: R.ListDataset(tensors=[I(3), I(1), I(4)], **NUMBERS), None,
                        number()),
    "list of pairs": lambda: Raw(lambda: R.ListDataset(tensors=[I(3), "a", I(1), "b"],
            output_types=[tf.int64, tf.string], output_shapes=[[], []]), None,
                                 (number(), number(dtype=tf.string))),
    "fastest": lambda: Raw(lambda: R.ChooseFastestDataset(input_datasets=[r(5)._variant_tensor,
            r(5)._variant_tensor], num_experiments=2, **NUMBERS), r(5), number()),
    **{
        f"sliding {size} {shift} {stride} {drops}": _sliding(size, shift, stride, drops)
        for size, shift, stride in ((3, 1, 1), (2, 3, 1), (2, 1, 3), (3, 2, 2), (20, 1, 1),
                                    (0, 1, 1), (1, 0, 1), (1, 1, 0))
        for drops in (True, False)
    },
    "map and batch": mapped(R.ExperimentalMapAndBatchDataset, lambda x: x * x, batched=True,
                            batch_size=I(4), num_parallel_calls=I(2), drop_remainder=False),
    "map and batch zero": mapped(R.ExperimentalMapAndBatchDataset, lambda x: x * x, batched=True,
                                 batch_size=I(0), num_parallel_calls=I(2), drop_remainder=False),
    "map parallel v1": mapped(R.ParallelMapDataset, lambda x: x + 100, num_parallel_calls=2),
    "map parallel v1 zero": mapped(R.ParallelMapDataset, lambda x: x + 100, num_parallel_calls=0),
    "filter parallel": mapped(R.ParallelFilterDataset, lambda x: x % 3 > 0, "predicate", n=12,
                              num_parallel_calls=I(3), deterministic="true"),
    "take while": mapped(R.ExperimentalTakeWhileDataset, lambda x: x < 4, "predicate"),
    "scan": _scan,
    "group by reducer": _by_reducer,
    "group by window": _by_window,
    "interleave v1": _interleaved(R.ParallelInterleaveDataset, **BACKGROUND),
    "interleave experimental": _interleaved(R.ExperimentalParallelInterleaveDataset, **BACKGROUND),
    "interleave v2": _interleaved(R.ParallelInterleaveDatasetV2, num_parallel_calls=I(2)),
    "interleave v3": _interleaved(R.ParallelInterleaveDatasetV3, num_parallel_calls=I(2),
                                  deterministic="true"),
    "records v2": _records([0]),
    "records v2 from the second": _records([FIRST_RECORD_BYTES]),
}
# TensorFlow cannot iterate over these: writing a dataset as a graph, which it does first, fails for
# them. They must come to the same as these.
ORACLES = {
    "batch v1": lambda: r(7).batch(3),
    "random experimental": lambda: Raw(lambda: R.RandomDataset(seed=I(3), seed2=I(4), **NUMBERS),
                                       None, number()),
    "filter parallel": lambda: r(12).filter(lambda x: x % 3 > 0),
    "records v2": lambda: D.from_tensor_slices([b"one", b"", b"three" * 20]),
    "records v2 from the second": lambda: D.from_tensor_slices([b"", b"three" * 20]),
}
OPTIONS = {name: {"oracle": through(make)} for name, make in ORACLES.items()}


def _cardinality():
    with tf.device(WORKER0):
        return [Run([R.ExperimentalDatasetCardinality(input_dataset=d._variant_tensor)
                     for d in (r(5), r(5).repeat(), r(5).filter(lambda x: x > 1))])]


def _next(iterator, op=R.IteratorGetNext):
    return op(iterator=iterator, **NUMBERS)[0]


def _begun_alone(make):
    """An iterator that one step makes, begins, reads and lets go, since its handle is of the step.
    """

    def build():
        with tf.device(WORKER0):
            handle, deleter = make()
            begin = R.MakeIterator(dataset=r(3)._variant_tensor, iterator=handle)
            with tf.control_dependencies([begin]):
                first = _next(handle)
            with tf.control_dependencies([first]):
                second = _next(handle, R.IteratorGetNextSync)
            with tf.control_dependencies([second]):
                end = R.DeleteIterator(handle=handle,
                                       deleter=deleter) if deleter is not None else tf.no_op()
            with tf.control_dependencies([end]):
                return [Run([first, second, tf.constant(1)]), Run([first, second])]

    return build


def _named():
    with tf.device(WORKER0):
        handle = R.Iterator(shared_name="raw", container="", **NUMBERS)
        begin = R.MakeIterator(dataset=r(4)._variant_tensor, iterator=handle)
        text = R.IteratorToStringHandle(resource_handle=handle)
        again = R.IteratorFromStringHandle(string_handle=text, **NUMBERS)
        return [Run(begin), Run(_next(handle)), Run(_next(again, R.IteratorGetNextSync)),
                Run(_next(again)), Run(_next(handle)), Run(_next(handle, R.IteratorGetNextSync))]


def _wrong_text():
    with tf.device(WORKER0):
        return [Run(_next(R.IteratorFromStringHandle(string_handle="no handle", **NUMBERS)))]


PROGRAMS = {
    "cardinality": _cardinality,
    "anonymous v2": _begun_alone(lambda: R.AnonymousIteratorV2(**NUMBERS)),
    "anonymous v3": _begun_alone(lambda: (R.AnonymousIteratorV3(**NUMBERS), None)),
    "named v1": _named,
    "wrong text": _wrong_text,
}


def cases():
    for name, make in PIPELINES.items():
        yield f"data raw/{name}", through(make), OPTIONS.get(name, {})
    for name, build in PROGRAMS.items():
        yield f"data raw/program/{name}", build
