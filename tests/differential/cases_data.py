"""Datasets without functions, as single ops: every element type, and what must be refused.
Pipelines with functions are in programs_data.py."""

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
I, F = np.int64, np.float32
TYPES = ("float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
         "complex64 complex128 bool string".split())
ONE = {"output_types": [tf.int64], "output_shapes": [[]]}


def const(value, dtype=None):
    return oracle.const(np.asarray(value), dtype) if dtype else oracle.const(np.asarray(value))


def span(n=4):
    return R.RangeDataset(start=const(I(0)), stop=const(I(n)), step=const(I(1)), **ONE)


def slices(*values, shapes=None):
    values = [v if isinstance(v, tf.Tensor) else const(v) for v in values]
    return R.TensorSliceDataset(components=values, output_shapes=shapes or [None] * len(values))


def single(dataset, *types, shapes=None):
    """The only element."""
    types = types or ("int64",)
    return list(R.DatasetToSingleElement(dataset=dataset,
                                         output_types=[tf.as_dtype(t) for t in types],
                                         output_shapes=shapes or [None] * len(types)))


def how_many(dataset):
    return [R.DatasetCardinality(input_dataset=dataset)]


def batch(dataset, n=I(10), types=("int64",), drop=False):
    return R.BatchDatasetV2(
        input_dataset=dataset, batch_size=const(n), drop_remainder=const(drop),
        output_types=[tf.as_dtype(t) for t in types], output_shapes=[None] * len(types)
    )


def _whole(dtype, shape):
    """Slices, cut and put together again."""

    def build():
        values = [const(oracle.sample(np.random.default_rng(i), dtype, shape), dtype)
                  for i in range(2)]
        dataset = slices(*values)
        return single(batch(dataset, types=(dtype, dtype)), dtype, dtype)

    return build


def _padded(dtype):
    def build():
        value = const(oracle.sample(np.random.default_rng(1), dtype, (2, 2, 3)), dtype)
        padding = const(oracle.sample(np.random.default_rng(2), dtype, ()), dtype)
        dataset = R.PaddedBatchDatasetV2(
            input_dataset=slices(value), batch_size=const(I(5)),
            padded_shapes=[const(np.array([3, 5], I))], padding_values=[padding],
            drop_remainder=const(False), output_shapes=[None],
        )  # fmt: skip
        return single(dataset, dtype)

    return build


def _iterator(types=(tf.int64,), shapes=((),)):
    return R.IteratorV2(shared_name="", container="", output_types=list(types),
                        output_shapes=[list(s) for s in shapes])


def _handle_of_variable():
    return R.VarHandleOp(dtype=tf.int64, shape=[])


PROGRAMS = {
    "range step zero": lambda: how_many(R.RangeDataset(start=const(I(0)), stop=const(I(5)),
            step=const(I(0)), **ONE)),
    "range vector": lambda: how_many(R.RangeDataset(start=const(np.zeros(2, I)), stop=const(I(5)),
            step=const(I(1)), **ONE)),
    "range extremes": lambda: [
        R.DatasetCardinality(input_dataset=R.RangeDataset(start=const(I(a)), stop=const(I(b)),
                step=const(I(s)), **ONE))
        for a, b, s in ((0, 10, 3), (0, 9, 3), (9, 0, -3), (10, 0, -3), (0, 0, 1), (5, 0, 1),
                        (-5, 5, 7))
    ],
    "slices scalar": lambda: how_many(slices(F(1))),
    "slices differ": lambda: how_many(slices(np.zeros(2, F), np.zeros(3, F))),
    "slices shapes": lambda: single(slices(np.arange(3, dtype=I).reshape(1, 3)), shapes=[[4]]),
    "single none": lambda: single(span(0)),
    "single many": lambda: single(span(2)),
    "single type": lambda: single(span(1), "int32"),
    "single of number": lambda: single(R.OptionalNone()),
    "not a dataset": lambda: how_many(R.OptionalNone()),
    "vector of datasets": lambda: how_many(R.Pack(values=[span()])),
    "take vector": lambda: how_many(R.TakeDataset(input_dataset=span(), count=const(np.zeros(1, I)),
            **ONE)),
    "repeat overflow": lambda: how_many(R.RepeatDataset(input_dataset=span(1 << 40),
            count=const(I(1 << 10)), **ONE)),
    "shard zero": lambda: how_many(R.ShardDataset(input_dataset=span(), num_shards=const(I(0)),
            index=const(I(0)), **ONE)),
    "shard index": lambda: how_many(R.ShardDataset(input_dataset=span(), num_shards=const(I(2)),
            index=const(I(2)), **ONE)),
    "shard negative": lambda: how_many(R.ShardDataset(input_dataset=span(), num_shards=const(I(2)),
            index=const(I(-1)), **ONE)),
    "batch zero": lambda: how_many(batch(span(), I(0))),
    "batch negative": lambda: how_many(batch(span(), I(-3))),
    "batch ragged": lambda: single(
        batch(R.ConcatenateDataset(input_dataset=slices(np.zeros((1, 2), I)),
                                   another_dataset=slices(np.zeros((1, 3), I)),
                                   output_types=[tf.int64], output_shapes=[None]))
    ),
    "concatenate types": lambda: how_many(R.ConcatenateDataset(input_dataset=span(),
            another_dataset=slices(np.zeros(2, F)), **ONE)),
    "shuffle zero": lambda: how_many(R.ShuffleDataset(input_dataset=span(), buffer_size=const(I(0)),
            seed=const(I(1)), seed2=const(I(2)), **ONE)),
    "shuffle and repeat zero": lambda: how_many(
        R.ShuffleAndRepeatDataset(input_dataset=span(), buffer_size=const(I(2)), seed=const(I(1)),
                                  seed2=const(I(2)), count=const(I(0)), **ONE)
    ),
    "prefetch negative": lambda: how_many(R.PrefetchDataset(input_dataset=span(), buffer_size=const(
        I(-2)), **ONE)),
    "window zero": lambda: how_many(window(size=0)),
    "window shift zero": lambda: how_many(window(shift=0)),
    "window stride zero": lambda: how_many(window(stride=0)),
    "window counts": lambda: [R.DatasetCardinality(input_dataset=window(**w))
                              for w in ({}, {"drop": True}, {"shift": 5},
                                        {"stride": 3, "drop": True})],
    "unique type": lambda: how_many(R.UniqueDataset(input_dataset=slices(np.zeros(2, F)),
            output_types=[tf.float32], output_shapes=[[]])),
    "unbatch scalar": lambda: single(R.UnbatchDataset(input_dataset=span(1), **ONE)),
    "unbatch differs": lambda: single(
        R.UnbatchDataset(
            input_dataset=R.TensorDataset(components=[const(np.zeros(2, I)), const(np.zeros(3, I))],
                                          output_shapes=[None, None]),
            output_types=[tf.int64, tf.int64],
            output_shapes=[None, None],
        ),
        "int64",
        "int64",
    ),
    "sparse matrix": lambda: how_many(R.SparseTensorSliceDataset(indices=const(np.zeros(2, I)),
            values=const(np.zeros(2, F)), dense_shape=const(np.ones(1, I)))),
    "sparse values": lambda: how_many(
        R.SparseTensorSliceDataset(indices=const(np.zeros((2, 1), I)), values=const(np.zeros(3, F)),
                                   dense_shape=const(np.ones(1, I)))
    ),
    "sparse shape": lambda: how_many(
        R.SparseTensorSliceDataset(indices=const(np.zeros((2, 1), I)), values=const(np.zeros(2, F)),
                                   dense_shape=const(np.ones(2, I)))
    ),
    "padded value type": lambda: how_many(
        R.PaddedBatchDataset(input_dataset=span(), batch_size=const(I(2)),
                             padded_shapes=[const(np.zeros(0, I))], padding_values=[const(F(0))],
                             output_shapes=[None])
    ),
    "padded size": lambda: how_many(
        R.PaddedBatchDataset(input_dataset=span(), batch_size=const(I(0)),
                             padded_shapes=[const(np.zeros(0, I))], padding_values=[const(I(0))],
                             output_shapes=[None])
    ),
    "padded value shape": lambda: how_many(
        R.PaddedBatchDataset(
            input_dataset=span(), batch_size=const(I(2)), padded_shapes=[const(np.zeros(0, I))],
            padding_values=[const(np.zeros(1, I))], output_shapes=[None]
        )
    ),
    "rebatch": lambda: single(
        batch(R.RebatchDatasetV2(input_dataset=batch(span(6), I(4)),
                                 batch_sizes=const(np.array([3], I)), drop_remainder=const(False),
                                 **ONE))
    ),
    "rebatch zero": lambda: single(R.RebatchDatasetV2(input_dataset=batch(span(6), I(4)),
            batch_sizes=const(np.array([0], I)), drop_remainder=const(False), **ONE)),
    "blocks zero": lambda: how_many(blocks(record_bytes=0)),
    "blocks header": lambda: how_many(blocks(header_bytes=-1)),
    "blocks footer": lambda: how_many(blocks(footer_bytes=-1)),
    "lines matrix": lambda: how_many(
        R.TextLineDataset(filenames=const(np.array([["a"]], object), "string"),
                          compression_type=const(np.array("", object), "string"),
                          buffer_size=const(I(0)))
    ),
    "lines compression": lambda: how_many(
        R.TextLineDataset(filenames=const(np.array(["a"], object), "string"),
                          compression_type=const(np.array("x", object), "string"),
                          buffer_size=const(I(0)))
    ),
    "get next not begun": lambda: list(R.IteratorGetNext(iterator=_iterator(), **ONE)),
    "get next of a variable": lambda: list(R.IteratorGetNext(iterator=_handle_of_variable(),
            **ONE)),
    "string handle of a variable": lambda: [R.IteratorToStringHandle(
        resource_handle=_handle_of_variable())],
}


def window(size=3, shift=2, stride=1, drop=False):
    arguments = {"size": size, "shift": shift, "stride": stride}
    return R.WindowDataset(
        input_dataset=span(10), drop_remainder=const(drop), output_types=[tf.variant],
        output_shapes=[[]], **{k: const(I(v)) for k, v in arguments.items()}
    )


def blocks(header_bytes=0, record_bytes=2, footer_bytes=0):
    return R.FixedLengthRecordDataset(
        filenames=const(np.array(["a"], object), "string"), header_bytes=const(I(header_bytes)),
        record_bytes=const(I(record_bytes)),
        footer_bytes=const(I(footer_bytes)), buffer_size=const(I(0)),
    )  # fmt: skip


def example(**features):
    def of(values):
        if not len(values) or isinstance(values[0], int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        if isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    return tf.train.Example(features=tf.train.Features(
        feature={k: of(v) for k, v in features.items()})).SerializeToString()


BATCHES = [
    [example(a=[1, 2], b=[1.5], c=[b"x", b"yy"], d=[1, 2, 3]), example(b=[2.5], c=[], a=[3])],
    [example(b=[0.5], a=[7], c=[b"z"], e=[9])],
    [example(b=[0.5, 1.5])],  # one number too many
    [b"no example"],
    [],
]
KINDS = {"a": "sparse", "b": "dense", "c": "ragged", "d": "sparse", "e": "dense"}
FEATURE_TYPES = {"a": tf.int64, "b": tf.float32, "c": tf.string, "d": tf.int64, "e": tf.int64}


def parsed(batch, names="abcde", op="ParseExampleDatasetV2", calls=2, presets=None, **changed):
    """The features of a batch: sparse and ragged ones unpacked."""
    kind = lambda k: [n for n in names if KINDS[n] == k]
    types = lambda k: [FEATURE_TYPES[n] for n in kind(k)]
    defaults = presets or {"b": np.zeros(0, F), "e": np.array([-1], I)}
    attrs = {
        "sparse_keys": kind("sparse"), "sparse_types": types("sparse"), "dense_keys": kind("dense"),
        "dense_shapes": [[1]] * len(kind("dense")),
        "output_types": [FEATURE_TYPES[n] if KINDS[n] == "dense" else tf.variant
                         for n in sorted(names)], "output_shapes": [None] * len(names),
    }  # fmt: skip
    if op != "ExperimentalParseExampleDataset":
        attrs.update(ragged_keys=kind("ragged"), ragged_value_types=types("ragged"),
                     ragged_split_types=[tf.int64] * len(kind("ragged")))
    attrs.update(changed)
    source = R.TensorDataset(components=[const(np.array(batch, object), "string")],
                             output_shapes=[None])
    dataset = getattr(R, op)(input_dataset=source, num_parallel_calls=const(I(calls)),
                             dense_defaults=[const(defaults[n]) for n in kind("dense")], **attrs)
    out = []
    for name, value in zip(sorted(names), single(dataset, *attrs["output_types"])):
        if KINDS[name] == "sparse":
            out += R.DeserializeSparse(serialized_sparse=value, dtype=FEATURE_TYPES[name])
        elif KINDS[name] == "ragged":
            splits, values = R.RaggedTensorFromVariant(
                encoded_ragged=value, input_ragged_rank=1, output_ragged_rank=1,
                Tvalues=FEATURE_TYPES[name], Tsplits=tf.int64)
            out += [splits[0], values]
        else:
            out.append(value)
    return out


def parse_cases():
    for i, batch in enumerate(BATCHES):
        for op, names in (("ParseExampleDatasetV2", "abcde"), ("ParseExampleDataset", "edcba"),
                          ("ExperimentalParseExampleDataset", "bad"),
                          ("ParseExampleDatasetV2", "b"), ("ParseExampleDatasetV2", "c")):
            yield f"{op}/batch {i}/{names}", lambda batch=batch, op=op, names=names: parsed(
                batch, names, op)
    good = BATCHES[0]
    yield "ParseExampleDatasetV2/calls", lambda: parsed(good, calls=0)
    yield "ParseExampleDatasetV2/automatic", lambda: parsed(good, calls=-1)
    yield "ParseExampleDatasetV2/preset shape", lambda: parsed(
        good, presets={"b": np.zeros((2, 2), F), "e": np.array([-1], I)})
    yield "ParseExampleDatasetV2/variable", lambda: parsed(
        BATCHES[2], "b", presets={"b": np.zeros((), F)}, dense_shapes=[[None]])
    yield "ParseExampleDatasetV2/shape", lambda: parsed(good, "b", dense_shapes=[[2]])
    yield "ParseExampleDatasetV2/other type", lambda: parsed(good, "b", dense_keys=["c"])


def cases():
    yield from parse_cases()
    for dtype in TYPES:
        for shape in ((3,), (1, 2), (2, 0), (2, 1, 2, 1, 2, 3)):
            yield f"slices/{dtype}/{shape}", _whole(dtype, shape)
        yield f"padded/{dtype}", _padded(dtype)
    for name, build in PROGRAMS.items():
        yield f"data/{name}", build
