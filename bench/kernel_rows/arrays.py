"""What moves, gathers, scatters, sorts and reduces: three sizes each."""

import numpy
import tensorflow as tf

from kernels import Row

R = tf.raw_ops
RNG = numpy.random.default_rng(4)
SUMS = ("summed in doubles, as good as exact in any order and on any number of threads; TensorFlow "
        "sums floats")
HASH = "a table that is probed place by place; TensorFlow's looks at 16 places at a time"
LANES = "rows are short: joining the lanes of a row weighs as much as the row"
SIZES = {"1k": (32, 32), "64k": (256, 256), "1M": (1024, 1024)}


def data(*shape, dtype="float32"):
    return tf.constant(RNG.normal(size=shape), dtype=dtype)


def numbers(high, *shape, dtype="int32"):
    return tf.constant(RNG.integers(0, high, shape), dtype=dtype)


def moves():
    for label, (m, n) in SIZES.items():
        yield Row(f"ConcatV2 rows {label}", lambda m=m,
                  n=n: R.ConcatV2(values=[data(m, n), data(m, n)], axis=0))
        yield Row(f"ConcatV2 columns {label}", lambda m=m,
                  n=n: R.ConcatV2(values=[data(m, n), data(m, n)], axis=1))
        yield Row(f"Split columns {label}", lambda m=m,
                  n=n: R.Split(axis=1, value=data(m, n), num_split=4)[0])
        yield Row(f"Pack {label}", lambda m=m, n=n: R.Pack(values=[data(m, n), data(m, n)], axis=1))
        yield Row(f"Transpose {label}", lambda m=m, n=n: R.Transpose(x=data(m, n), perm=[1, 0]))
        yield Row(f"Transpose NHWC to NCHW {label}", lambda m=m,
                  n=n: R.Transpose(x=data(4, m // 4, n // 16, 16), perm=[0, 3, 1, 2]))
        yield Row(f"StridedSlice {label}", lambda m=m,
                  n=n: R.StridedSlice(input=data(m, n), begin=[1, 3], end=[m, n], strides=[2, 1]))
        yield Row(f"Slice {label}", lambda m=m,
                  n=n: R.Slice(input=data(m, n), begin=[2, 2], size=[m - 4, n - 4]))
        yield Row(f"PadV2 {label}", lambda m=m,
                  n=n: R.PadV2(input=data(m, n), paddings=[[1, 1], [2, 2]], constant_values=0.0))
        yield Row(f"Tile {label}", lambda m=m,
                  n=n: R.Tile(input=data(m // 2, n // 2), multiples=[2, 2]))
        yield Row(f"ReverseV2 {label}", lambda m=m, n=n: R.ReverseV2(tensor=data(m, n), axis=[1]))
        yield Row(f"OneHot {label}", lambda m=m,
                  n=n: R.OneHot(indices=numbers(n, m), depth=n, on_value=1.0, off_value=0.0))
        yield Row(f"BroadcastTo {label}", lambda m=m,
                  n=n: R.BroadcastTo(input=data(n), shape=[m, n]))


def indexed():
    for label, (m, n) in SIZES.items():
        yield Row(f"GatherV2 {label}", lambda m=m,
                  n=n: R.GatherV2(params=data(m * 4, n), indices=numbers(m * 4, m), axis=0))
        yield Row(f"GatherV2 scalars {label}", lambda m=m,
                  n=n: R.GatherV2(params=data(m * n), indices=numbers(m * n, m * n), axis=0))
        yield Row(f"GatherNd {label}", lambda m=m,
                  n=n: R.GatherNd(params=data(m, n), indices=numbers(min(m, n), m * n // 4, 2)))
        yield Row(f"ScatterNd {label}", lambda m=m,
                  n=n: R.ScatterNd(indices=numbers(m, m, 1), updates=data(m, n), shape=[m, n]))
        yield Row(f"TensorScatterAdd {label}", lambda m=m,
                  n=n: R.TensorScatterAdd(tensor=data(m, n), indices=numbers(m, m // 4, 1),
                                          updates=data(m // 4, n)))
        yield Row(f"SegmentSum {label}", lambda m=m,
                  n=n: R.SegmentSum(data=data(m, n), segment_ids=tf.sort(numbers(m // 4, m))))
        yield Row(f"UnsortedSegmentSum {label}", lambda m=m,
                  n=n: R.UnsortedSegmentSum(data=data(m, n), segment_ids=numbers(m // 4, m),
                                            num_segments=m // 4))
        yield Row(
            f"SparseSegmentMean {label}",
            lambda m=m, n=n: R.SparseSegmentMean(data=data(m, n), indices=numbers(m, m),
                    segment_ids=tf.sort(numbers(m // 4, m))),
        )
        yield Row(f"DynamicPartition {label}", lambda m=m,
                  n=n: R.DynamicPartition(data=data(m, n), partitions=numbers(4, m),
                                          num_partitions=4)[0])
        yield Row(f"DynamicStitch {label}", lambda m=m,
                  n=n: R.DynamicStitch(indices=[tf.range(m // 2), tf.range(m // 2, m)],
                                       data=[data(m // 2, n), data(m // 2, n)]))
        yield Row(f"Where {label}", lambda m=m,
                  n=n: R.Where(condition=tf.constant(RNG.integers(0, 2, (m, n)).astype(bool))))


def ordered():
    for label, n in {"1k": 1000, "16k": 16000, "256k": 256000}.items():
        yield Row(f"TopKV2 {label}", lambda n=n: R.TopKV2(input=data(4, n // 4), k=10)[0])
        yield Row(f"TopKV2 sorted whole {label}", lambda n=n: R.TopKV2(input=data(n), k=n)[0])
        yield Row(f"Unique {label}", lambda n=n: R.Unique(x=numbers(n // 4, n))[0], HASH)
        yield Row(f"ListDiff {label}",
                  lambda n=n: R.ListDiff(x=numbers(n, n), y=numbers(n, n // 2))[0], HASH)
        yield Row(f"Bincount {label}",
                  lambda n=n: R.Bincount(arr=numbers(100, n), size=100,
                                         weights=tf.constant([], tf.float32)))
        yield Row(f"LowerBound {label}",
                  lambda n=n: R.LowerBound(sorted_inputs=tf.sort(data(1, n)), values=data(1, n)))


def reductions():
    for label, (m, n) in SIZES.items():
        for op in ("Sum", "Max", "Mean", "Prod"):
            for name, axis in (("all", [0, 1]), ("rows", [1]), ("columns", [0])):
                if name == "all" or op in ("Sum", "Max"):
                    yield Row(f"{op} {name} {label}", lambda op=op, m=m, n=n,
                              axis=axis: getattr(R, op)(input=data(m, n), axis=axis),
                              LANES if op == "Max" else SUMS)
        yield Row(f"Sum middle of three {label}", lambda m=m,
                  n=n: R.Sum(input=data(m // 8, 8, n), axis=[1]), SUMS)
        yield Row(f"ArgMax {label}", lambda m=m, n=n: R.ArgMax(input=data(m, n), dimension=1))
        yield Row(f"Cumsum {label}", lambda m=m, n=n: R.Cumsum(x=data(m, n), axis=1))
        yield Row(f"L2Loss {label}", lambda m=m, n=n: R.L2Loss(t=data(m, n)), SUMS)


def rows():
    yield from moves()
    yield from indexed()
    yield from ordered()
    yield from reductions()
