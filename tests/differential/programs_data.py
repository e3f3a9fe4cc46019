"""Pipelines of tf.data as graph-mode programs build them: every kind of dataset through an
initializable iterator, element by element to the end, and the ways in which iterators are made,
shared, initialized again and named."""

import atexit
import gzip
import itertools
import os
import shutil
import tempfile

import numpy as np
from programs import PS, WORKER0, WORKER1, Run, tf, tf1

D, V1 = tf.data.Dataset, tf1.data.Dataset
R = tf.raw_ops
AUTO = tf.data.AUTOTUNE
FILES = tempfile.mkdtemp(prefix="millrace-data-")
atexit.register(shutil.rmtree, FILES, True)
F = np.float32


def through(make, n=None, twice=False, device=None):
    """A case that pulls n elements (None: 12, beyond most ends) out of a pipeline; `twice`: begins
    again and pulls as many."""

    def build():
        with tf.device(device or WORKER0):
            iterator = tf1.data.make_initializable_iterator(make())
            element = iterator.get_next()
        runs = [Run(iterator.initializer)] + [Run(element)] * (n or 12)
        return runs + (runs if twice else [])

    return build


def r(n, *more):
    return D.range(n, *more)


def pairs(n=5):
    return D.from_tensor_slices((np.arange(n), np.arange(n, dtype=F) / 2))


def lengths(*sizes):
    """Vectors of these lengths."""
    return D.from_tensor_slices(np.array(sizes)).map(
        lambda n: tf.ones([n], tf.int32) * tf.cast(n, tf.int32))


def windows_without_failed(*window):
    """Windows of twelve elements, of which the fourth and the eighth fail."""

    def make():
        windows = r(12).map(lambda x: 840 // ((x - 3) * (x - 7))).window(*window)
        whole = windows.apply(tf.data.experimental.ignore_errors())
        return whole.flat_map(lambda w: w.batch(20))

    return make


def sparse_batch(make, size, row_shape):
    batch = tf1.data.experimental.dense_to_sparse_batch
    return lambda: make().apply(batch(size, row_shape))


def first_interleave(*sizes):
    """The first version of parallel interleave over datasets of these sizes, in blocks of two.

    In the middle of a block TensorFlow's order depends on its threads."""

    def inner(i):
        return r(tf.constant(sizes, tf.int64)[i]).map(lambda k: i * 100 + k)

    def make():
        return r(len(sizes)).apply(
            tf.data.experimental.parallel_interleave(inner, cycle_length=3, block_length=2))

    return make


POSITIONS = itertools.count()


def continued(make, n_before=3, n_between=2, n_after=8):
    """Saves the position after n_before elements, pulls more, and continues from the saved one."""

    def build():
        path = os.path.join(FILES, f"position-{next(POSITIONS)}")
        names = {"prefix": path, "tensor_names": ["position"], "shape_and_slices": [""]}
        with tf.device(WORKER0):
            iterator = tf1.data.make_initializable_iterator(make())
            element, handle = iterator.get_next(), iterator._iterator_resource
            save = R.SaveV2(tensors=[R.SerializeIterator(resource_handle=handle)], **names)
            saved = R.RestoreV2(dtypes=[tf.variant], **names)[0]
            restore = R.DeserializeIterator(resource_handle=handle, serialized=saved)
        runs = [Run(iterator.initializer)] + [Run(element)] * n_before + [Run(save)]
        return runs + [Run(element)] * n_between + [Run(restore)] + [Run(element)] * n_after

    return build


def _position_of_none():
    """Neither saved nor restored before the iterator has a dataset."""
    with tf.device(WORKER0):
        iterator = tf1.data.make_initializable_iterator(r(3))
        position = R.SerializeIterator(resource_handle=iterator._iterator_resource)
    return [Run(tf.shape(position)), Run(iterator.initializer), Run(iterator.get_next())]


def _options():
    options = tf.data.Options()
    options.deterministic = False
    with_options = r(3).with_options(options).map(lambda x: x + 1)
    return [Run(R.GetOptions(input_dataset=d._variant_tensor)) for d in (r(2), with_options)]


class Raw(tf.data.Dataset):
    """A dataset of a raw op."""

    def __init__(self, variant, spec):
        self.spec = spec
        super().__init__(variant)

    def _inputs(self):
        return []

    @property
    def element_spec(self):
        return self.spec


def matching(*patterns):
    def make():
        lines()
        paths = [os.path.join(FILES, pattern) for pattern in patterns]
        names = Raw(R.MatchingFilesDataset(patterns=paths), tf.TensorSpec([], tf.string))
        return names.map(lambda p: tf.strings.substr(p, -5, 5))

    return make


def _plus_variable():
    v = tf1.get_variable("v", initializer=np.int64(10), use_resource=True)
    iterator = tf1.data.make_initializable_iterator(r(2).map(lambda x: x + v))
    element = iterator.get_next()
    one = [Run(iterator.initializer), Run(element), Run(element), Run(element)]
    return [Run(v.initializer)] + one + [Run(v.assign_add(np.int64(100)))] + one


def _table():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"],
            np.array([1, 2], np.int64)), -1)
    iterator = tf1.data.make_initializable_iterator(
        D.from_tensor_slices(["b", "x", "a"]).map(table.lookup))
    return [Run(tf1.tables_initializer()), Run(iterator.initializer)] + [
        Run(iterator.get_next())] * 4


def _variable_in_effect():
    v = tf1.get_variable("v", initializer=0, use_resource=True)

    def count(x):
        with tf.control_dependencies([v.assign_add(1)]):
            return tf.identity(x) * 2

    iterator = tf1.data.make_initializable_iterator(r(5).map(count))
    element = iterator.get_next()
    # TensorFlow may work ahead
    return [Run(v.initializer), Run(iterator.initializer)] + [Run(element)] * 6 + [Run(v)]


def _feeds():
    """The pipeline's arguments come from feeds when it begins."""
    n = tf1.placeholder(tf.int64, [])
    data = tf1.placeholder(tf.float32, [None, 2])
    iterator = tf1.data.make_initializable_iterator(
        D.zip((r(n), D.from_tensor_slices(data))).map(lambda i, row: (i, row * 2)))
    element = iterator.get_next()
    values = np.arange(6, dtype=F).reshape([3, 2])
    begin = [Run(iterator.initializer, {n: 2, data: values}), Run(element), Run(element),
             Run(element)]
    return begin + [Run(iterator.initializer, {n: 5, data: values})] + [Run(element)] * 4


def _one_shot(device):
    def build():
        with tf.device(device):
            a = tf1.data.make_one_shot_iterator(r(7).map(lambda x: x * x).batch(3)).get_next()
            b = tf1.data.make_one_shot_iterator(pairs(3).repeat()).get_next()
        return [Run([a, b])] * 2 + [Run(b), Run(a), Run(a), Run([b, b[0] + 1])]

    return build


def _one_shot_fails():
    element = tf1.data.make_one_shot_iterator(r(3).batch(tf.constant(0, tf.int64))).get_next()
    return [Run(element)] * 2


def _uninitialized():
    iterator = tf1.data.make_initializable_iterator(r(3))
    return [Run(iterator.get_next()), Run(iterator.initializer), Run(iterator.get_next())]


def _structure():
    """One iterator that begins with either of two datasets."""
    iterator = tf1.data.Iterator.from_structure(tf.int64, [None])
    element = iterator.get_next()
    one, two = iterator.make_initializer(r(4).batch(3)), iterator.make_initializer(
        r(5).map(lambda x: tf.fill([x], x)))
    return [Run(element), Run(one)] + [Run(element)] * 3 + [Run(two)] + [Run(element)] * 3 + [
        Run(one), Run(element)]


def _structure_differs():
    iterator = tf1.data.Iterator.from_structure(tf.int64, [3])
    element = iterator.get_next()
    begin = R.MakeIterator(dataset=r(4).batch(2, drop_remainder=True)._variant_tensor,
                           iterator=iterator._iterator_resource)
    other = R.MakeIterator(dataset=pairs()._variant_tensor, iterator=iterator._iterator_resource)
    return [Run(begin), Run(other), Run(iterator.make_initializer(r(6).batch(3))), Run(element)]


def _element_differs():
    """An element whose shape is not the declared one."""
    dataset = lengths(2, 3, 2)
    iterator = tf1.data.Iterator.from_structure(tf.int32, [None])
    begin = iterator.make_initializer(dataset)
    narrow = R.IteratorGetNext(iterator=iterator._iterator_resource, output_types=[tf.int32],
                               output_shapes=[[2]])
    return [Run(begin), Run(narrow), Run(narrow), Run(narrow), Run(narrow)]


def _control_order():
    """Two elements in one run, one after the other."""
    iterator = tf1.data.make_initializable_iterator(r(10))
    a = iterator.get_next()
    with tf.control_dependencies([a]):
        b = iterator.get_next()
    with tf.control_dependencies([b]):
        c = iterator.get_next()
    return [Run(iterator.initializer), Run([a, b, c]), Run([a, b, c]), Run([a, b])]


def _as_optional():
    iterator = tf1.data.make_initializable_iterator(pairs(2))
    optional = tf.data.experimental.get_next_as_optional(iterator) if hasattr(
        tf.data.experimental, "get_next_as_optional") else iterator.get_next_as_optional()
    has = optional.has_value()
    value = tf.cond(has, lambda: optional.get_value()[1], lambda: tf.constant(-1.0))
    return [Run(iterator.initializer)] + [Run([has, value])] * 4


def _in_loop():
    """GetNext inside of a while loop."""
    iterator = tf1.data.make_initializable_iterator(r(10).map(lambda x: x * 3))

    def body(i, total):
        return i + 1, total + iterator.get_next()

    total = tf1.while_loop(lambda i, _: i < 4, body, [0, np.int64(0)], parallel_iterations=1)[1]
    return [Run(iterator.initializer), Run(total), Run(total), Run(total),
            Run(iterator.initializer), Run(total)]


def _in_cond():
    iterator = tf1.data.make_initializable_iterator(r(10))
    p = tf1.placeholder(tf.bool, [])
    out = tf.cond(p, lambda: iterator.get_next(), lambda: tf.constant(-1, tf.int64))
    return [Run(iterator.initializer)] + [Run(out, {p: f}) for f in (True, False, True)]


def _training():
    features = np.random.RandomState(1).normal(size=[32, 3]).astype(F)
    labels = features @ np.array([[1.0], [2.0], [3.0]], F)
    iterator = tf1.data.make_initializable_iterator(
        D.from_tensor_slices((features, labels)).shuffle(32, seed=5).repeat(3).batch(8).prefetch(2))
    x, y = iterator.get_next()
    with tf.device(PS):
        w = tf1.get_variable("w", initializer=np.zeros([3, 1], F), use_resource=True)
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [Run(tf1.global_variables_initializer()), Run(iterator.initializer)] + [
        Run([train, loss])] * 13 + [Run(w)]


def _datasets_are_values():
    """Reductions and questions without an iterator."""
    total = r(10).map(lambda x: x * 2).reduce(np.int64(5), lambda a, b: a + b)
    both = pairs(4).reduce((np.int64(0), F(1)), lambda s, e: (s[0] + e[0], s[1] * (e[1] + 1)))
    none = r(0).reduce(np.int64(7), lambda a, b: a + b)
    one = tf.data.experimental.get_single_element(r(3).skip(2)) if hasattr(
        tf.data.experimental, "get_single_element") else r(3).skip(2).get_single_element()
    return [Run([total, both, none, one])]


def _single(dataset):
    def build():
        d = dataset()
        return [Run(R.DatasetToSingleElement(dataset=d._variant_tensor, output_types=[tf.int64],
                                             output_shapes=[[]]))]

    return build


def _cardinalities():
    some = [
        r(7), r(7).repeat(), r(7).repeat(3), r(0).repeat(), r(7).take(3), r(7).take(-1),
        r(7).skip(3), r(7).skip(9), r(7).skip(-1), r(7).batch(3),
        r(7).batch(3, drop_remainder=True), r(7).filter(lambda x: x > 1), r(7).map(lambda x: x),
        r(7).shard(3, 0), r(7).shard(3, 2), r(7).prefetch(1),
        r(7).shuffle(3), r(7).concatenate(r(2)), D.zip((r(7), r(3))), D.zip((r(7), r(3).repeat())),
        r(7).cache(), r(7).flat_map(lambda x: r(x)),
        D.from_tensors(1), D.from_tensor_slices(np.ones([4, 2])), r(7).unbatch() if False
        else r(7).take(2).repeat(2), r(7).window(3),
        r(7).padded_batch(3), r(7).enumerate(),
        r(7).apply(tf.data.experimental.assert_cardinality(7)),
    ]  # fmt: skip
    return [Run([R.DatasetCardinality(input_dataset=d._variant_tensor) for d in some])]


def _string_handle():
    """A feedable iterator: the handle says which of two."""
    a, b = (tf1.data.make_initializable_iterator(d) for d in (r(5), r(100, 105)))
    handle = tf1.placeholder(tf.string, [])
    element = tf1.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    which = tf1.placeholder(tf.bool, [])
    chosen = tf.cond(which, lambda: a.string_handle(), lambda: b.string_handle())
    same = tf1.data.Iterator.from_string_handle(chosen, tf.int64, []).get_next()
    runs = [Run([a.initializer, b.initializer])]
    return runs + [Run(same, {which: f}) for f in (True, False, True, False)] + [
        Run(element, {handle: b"no handle"})]


def _across_tasks():
    """Elements go from the iterator's task to where they are used."""
    with tf.device(WORKER1):
        iterator = tf1.data.make_initializable_iterator(pairs(4).map(lambda a, b: (a + 1, b * 2)))
        a, b = iterator.get_next()
    with tf.device(WORKER0):
        c = tf.cast(a, tf.float32) * b
    with tf.device(PS):
        d = c + 1
    return [Run(iterator.initializer)] + [Run([a, c, d])] * 5


def _captured():
    """What functions capture: tensors of the graph, of other tasks too."""
    with tf.device(PS):
        scale = tf1.placeholder(tf.float32, [])
    with tf.device(WORKER0):
        offset = tf.constant([1.0, 2.0])
        iterator = tf1.data.make_initializable_iterator(
            r(4).map(lambda x: tf.cast(x, tf.float32) * scale + offset).filter(
                lambda v: v[0] < scale * 3))
        element = iterator.get_next()
    return [Run(iterator.initializer, {scale: 10.0})] + [Run(element)] * 4 + [
        Run(iterator.initializer, {scale: 1.0}), Run(element)]


def _control_flow_in_function():
    def f(x):
        y = tf.cond(tf.equal(x % 2, 0), lambda: x * 10, lambda: x - 100)
        return tf.while_loop(lambda i, _: i < 3, lambda i, s: (i + 1, s + y), (0, x))[1]

    return r(5).map(f)


PIPELINES = {
    "range": lambda: r(5),
    "range down": lambda: r(10, 0, -3),
    "range float": lambda: D.range(0, 5, 2, output_type=tf.float32),
    "range bfloat16": lambda: D.range(3, output_type=tf.bfloat16),
    "range uint8": lambda: D.range(250, 260, output_type=tf.uint8),
    "tensors": lambda: D.from_tensors((np.arange(3), {"a": "text", "b": np.ones([2, 2])})),
    "slices": lambda: D.from_tensor_slices({"a": np.arange(6).reshape([3, 2]),
                                            "b": np.array(["x", "", "z" * 40])}),
    "slices empty": lambda: D.from_tensor_slices(np.zeros([0, 3])),
    "slices sparse": lambda: D.from_tensor_slices(
        tf.SparseTensor([[0, 0], [2, 1], [2, 2]], np.array([1, 2, 3]), [4, 3])),
    "sparse legacy": lambda: V1.from_sparse_tensor_slices(
        tf.SparseTensor([[0, 0], [2, 1], [2, 2]], np.array([1, 2, 3]), [4, 3])),
    "slices ragged": lambda: D.from_tensor_slices(tf.ragged.constant([[1, 2], [], [3]])),
    "repeat": lambda: r(3).repeat(2),
    "repeat forever": lambda: r(3).repeat(),
    "repeat none": lambda: r(3).repeat(0),
    "repeat forever nothing": lambda: r(0).repeat(),
    "take": lambda: r(10).take(3),
    "take all": lambda: r(4).take(-1),
    "skip": lambda: r(6).skip(4),
    "skip all": lambda: r(6).skip(-1),
    "shard": lambda: r(10).shard(3, 1),
    "shard bad": lambda: R_dataset(R.ShardDataset, r(3), num_shards=np.int64(2), index=np.int64(2)),
    "zip": lambda: D.zip((r(3), pairs(), r(10, 20))),
    "concatenate": lambda: r(2).concatenate(r(10, 13)),
    "enumerate": lambda: pairs(3).enumerate(start=5),
    "batch": lambda: pairs(7).batch(3),
    "batch whole": lambda: pairs(7).batch(3, drop_remainder=True),
    "batch strings": lambda: D.from_tensor_slices(["a", "bb", "", "dddd" * 9]).batch(3),
    "batch nothing": lambda: r(0).batch(3),
    "batch huge": lambda: r(5).batch(1 << 40),
    "batch zero": lambda: r(5).batch(tf.constant(0, tf.int64)),
    "batch differs": lambda: lengths(2, 2, 3, 2, 2).batch(2),
    "batch parallel": lambda: r(7).batch(2, num_parallel_calls=2),
    "batch sparse": lambda: D.from_tensor_slices(
        tf.SparseTensor([[0, 0], [2, 1]], [1, 2], [3, 3])).batch(2),
    "batch of batch": lambda: r(9).batch(2).batch(2),
    "padded": lambda: lengths(1, 3, 0, 2, 5).padded_batch(2),
    "padded to": lambda: lengths(1, 3, 2).padded_batch(2, padded_shapes=[4], padding_values=-1),
    "padded too small": lambda: lengths(1, 3, 2, 1).padded_batch(2, padded_shapes=[2]),
    "padded parts": lambda: D.zip((lengths(1, 2, 3), r(3),
                                   lengths(2, 1, 1).map(
                                       lambda x: tf.ones(
                                           [tf.size(x), 2], tf.float64)))).padded_batch(
        2, ([None], [], [None, 3]), (7, np.int64(0), np.float64(0.5)), drop_remainder=True
    ),
    "padded strings": lambda: r(1, 4).map(lambda n: tf.fill([n], "ab")).padded_batch(
        3, [None], padding_values="-"),
    "unbatch": lambda: D.from_tensor_slices((np.arange(12).reshape([3, 2, 2]),
                                             np.arange(6).reshape([3, 2]))).unbatch(),
    "unbatch rebatch": lambda: r(10).batch(4).unbatch().batch(3),
    "map": lambda: r(4).map(lambda x: x * 2 + 1),
    "map several": lambda: pairs(4).map(lambda a,
                                        b: {"s": tf.cast(a, tf.float32) + b, "same": a,
                                            "c": tf.constant("c")}),
    "map constant": lambda: r(3).map(lambda _: 7),
    "map same": lambda: pairs(3).map(lambda a, b: (b, a, a)),
    "map fails": lambda: D.from_tensor_slices(np.array([1, 0, 2], np.int32)).map(lambda x: 10 // x),
    "map check": lambda: D.from_tensor_slices([1.0, np.nan, 2.0]).map(
        lambda x: tf1.check_numerics(x, "no number")),
    "map strings": lambda: D.from_tensor_slices(["1,2", "3,4"]).map(
        lambda s: tf1.decode_csv(s, [[0], [0.0]])),
    "map control flow": _control_flow_in_function,
    "map functions": lambda: r(4).map(lambda x: tf.map_fn(lambda y: y * x, tf.range(x))),
    "map parallel cut short": lambda: r(2).map(lambda x: x + 1, num_parallel_calls=4).take(1),
    "map parallel": lambda: r(20).map(lambda x: x * x, num_parallel_calls=3),
    "map auto": lambda: r(20).map(lambda x: x * x, num_parallel_calls=AUTO),
    "map parallel fails": lambda: D.from_tensor_slices(np.array([1, 0, 2], np.int32)).map(
        lambda x: 10 // x, num_parallel_calls=2),
    "map map": lambda: r(5).map(lambda x: x + 1).map(lambda x: x * 10).map(tf.as_string),
    "map out of range": lambda: r(3).map(lambda x: R_next_of_nothing(x)),
    "map dataset": lambda: r(4).map(lambda x: r(x).batch(10)).flat_map(lambda d: d),
    "map and batch": lambda: r(10).apply(tf.data.experimental.map_and_batch(lambda x: x * 2, 4,
            num_parallel_calls=2)),
    "map and batch whole": lambda: r(10).apply(tf.data.experimental.map_and_batch(
        lambda x: (x, [x, x]), 4, drop_remainder=True)),
    "filter": lambda: r(20).filter(lambda x: x % 3 == 0),
    "filter none": lambda: r(5000).filter(lambda x: x < 0),
    "filter fails": lambda: D.from_tensor_slices(np.array([1, 0, 2], np.int32)).filter(
        lambda x: 10 // x > 5),
    "flat map": lambda: r(5).flat_map(lambda x: r(x).map(lambda y: x * 10 + y)),
    "flat map deep": lambda: r(4).flat_map(lambda x: r(x).flat_map(lambda y: r(y + 1).map(
        lambda z: x * 100 + y * 10 + z))),
    "interleave": lambda: r(5).interleave(lambda x: r(x).map(lambda y: x * 10 + y), cycle_length=2),
    "interleave blocks": lambda: r(6).interleave(
        lambda x: r(x).map(lambda y: x * 10 + y), cycle_length=3, block_length=2),
    "interleave one": lambda: r(4).interleave(lambda x: r(x), cycle_length=1, block_length=5),
    "interleave wide": lambda: r(3).interleave(lambda x: r(x + 2), cycle_length=10),
    "interleave parallel": lambda: r(6).interleave(
        lambda x: r(x).map(lambda y: x * 10 + y), cycle_length=3, num_parallel_calls=2),
    "interleave parallel blocks": lambda: r(6).interleave(
        lambda x: r(x).map(lambda y: x * 10 + y), cycle_length=2, block_length=3,
        num_parallel_calls=2),
    "interleave legacy": lambda: r(6).apply(tf.data.experimental.parallel_interleave(
        lambda x: r(x).map(lambda y: x * 10 + y), cycle_length=3)),
    "scan": lambda: r(6).scan(np.int64(1), lambda s, x: (s + x, s * x)),
    "scan parts": lambda: pairs(4).scan((np.int64(0), F(1)), lambda s,
                                        e: ((s[0] + e[0], s[1] * 2), (s[1], e[1]))),
    "take while": lambda: r(10).take_while(lambda x: x < 4),
    "window": lambda: r(7).window(3).flat_map(lambda w: w.batch(10)),
    "window shift": lambda: r(7).window(3, shift=1, stride=2).flat_map(lambda w: w.batch(10)),
    "window whole": lambda: r(7).window(3, shift=2, drop_remainder=True).flat_map(
        lambda w: w.batch(10)),
    "window gap": lambda: r(12).window(2, shift=5).flat_map(lambda w: w.batch(10)),
    "window pairs": lambda: pairs(5).window(2).flat_map(
        lambda a, b: D.zip((a.batch(2), b.batch(2)))),
    "shuffle": lambda: r(20).shuffle(5, seed=3),
    "shuffle all": lambda: r(10).shuffle(100, seed=3),
    "shuffle one": lambda: r(10).shuffle(1, seed=3),
    "shuffle repeat": lambda: r(5).shuffle(3, seed=7).repeat(3),
    "shuffle repeat same": lambda: r(5).shuffle(3, seed=7, reshuffle_each_iteration=False).repeat(
        3),
    "shuffle and repeat": lambda: r(5).apply(tf.data.experimental.shuffle_and_repeat(3, count=3,
            seed=7)),
    "shuffle and repeat forever": lambda: r(3).apply(
        tf.data.experimental.shuffle_and_repeat(5, seed=1)),
    "shuffle forever nothing": lambda: r(0).apply(
        tf.data.experimental.shuffle_and_repeat(5, seed=1)),
    "shuffle pairs": lambda: pairs(8).shuffle(4, seed=1).batch(3),
    "random": lambda: D.random(seed=4),
    "random ops": lambda: r(4).map(lambda x: tf.random.uniform([2], seed=5)),
    "random ops repeated": lambda: r(2).map(lambda x: tf.random.uniform([2], seed=5)).repeat(3),
    "random ops parallel": lambda: r(2).map(lambda x: tf.random.stateless_uniform([2], seed=[x, x]),
                                            num_parallel_calls=2),
    "sampled": lambda: R_dataset(R.SamplingDataset, r(30), rate=F(0.3), seed=np.int64(3),
                                 seed2=np.int64(4)),
    "sample from": lambda: D.sample_from_datasets([r(3), r(100, 105)], [0.5, 0.5], seed=1),
    "choose from": lambda: D.choose_from_datasets(
        [r(3), r(100, 105)], D.from_tensor_slices(np.array([0, 1, 1, 0, 1, 0, 0, 1])),
        stop_on_empty_dataset=False),
    "choose stops": lambda: D.choose_from_datasets(
        [r(1), r(100, 105)], D.from_tensor_slices(np.array([0, 1, 0, 1, 1]))),
    "choose badly": lambda: D.choose_from_datasets(
        [r(3), r(100, 105)], D.from_tensor_slices(np.array([0, 2, 1]))),
    "cache": lambda: r(5).map(lambda x: x * 2).cache().repeat(2),
    "cache take": lambda: r(5).cache().take(2).repeat(2),
    "prefetch": lambda: r(8).map(lambda x: x + 1).prefetch(2),
    "prefetch auto": lambda: r(8).prefetch(AUTO).batch(3).prefetch(1),
    "prefetch none": lambda: r(3).prefetch(0),
    "prefetch fails": lambda: D.from_tensor_slices(np.array([1, 0, 2], np.int32)).map(
        lambda x: 10 // x).prefetch(1),
    "options": lambda: with_options(r(4)),
    "unique": lambda: D.from_tensor_slices(["a", "b", "a", "c", "b"]).unique(),
    "unique numbers": lambda: D.from_tensor_slices([1.5, 2.0, 1.5, 2.5]).map(
        lambda x: tf.cast(x * 2, tf.int64)).unique(),
    "ignore errors": lambda: D.from_tensor_slices(np.array([1, 0, 2], np.int32)).map(
        lambda x: 10 // x).apply(tf.data.experimental.ignore_errors()),
    "assert cardinality": lambda: r(3).apply(tf.data.experimental.assert_cardinality(3)),
    "assert fewer": lambda: r(3).apply(tf.data.experimental.assert_cardinality(2)),
    "assert more": lambda: r(3).filter(lambda x: True).apply(
        tf.data.experimental.assert_cardinality(4)),
    "group by window": lambda: r(12).group_by_window(
        lambda x: x % 3, lambda k, d: d.batch(4).map(lambda b: (k, b)), window_size=3),
    "group by window size": lambda: r(12).group_by_window(
        lambda x: x % 2, lambda k, d: d.batch(10), window_size_func=lambda k: k + 2),
    "group by reducer": lambda: r(10).apply(
        tf.data.experimental.group_by_reducer(
            lambda x: x % 3, tf.data.experimental.Reducer(lambda k: np.int64(0), lambda s, x: s + x,
                    lambda s: s * 10)
        )
    ),
    "bucket": lambda: lengths(1, 5, 2, 7, 3, 6, 1).bucket_by_sequence_length(
        tf.size, [3, 6], [2, 2, 2]),
    "rejection": lambda: r(30).rejection_resample(
        lambda x: tf.cast(x % 2, tf.int32), [0.5, 0.5], [0.5, 0.5], seed=1).take(3),
    "rebatch": lambda: r(10).batch(4).rebatch([3, 1]),
    "deep chain": lambda: deep(60),
    "file lines": lambda: tf.data.TextLineDataset(lines()),
    "file lines gzip": lambda: tf.data.TextLineDataset(
        written("z.txt.gz", gzip.compress(b"a\nb\nc")), compression_type="GZIP"),
    "file lines skip": lambda: tf.data.TextLineDataset(lines()).skip(1).map(
        lambda x: tf.strings.length(x)),
    "file no": lambda: tf.data.TextLineDataset([*lines()[:1], os.path.join(FILES, "no"),
                                                *lines()[2:]]),
    "file records": lambda: tf.data.TFRecordDataset(
        [tfrecords("a.rec", RECORDS), tfrecords("b.rec", RECORDS[:2])]),
    "file records gzip": lambda: tf.data.TFRecordDataset(
        tfrecords("a.rec.gz", RECORDS, "GZIP"), "GZIP"),
    "file records zlib": lambda: tf.data.TFRecordDataset(
        tfrecords("a.rec.z", RECORDS, "ZLIB"), "ZLIB"),
    "file records cut": lambda: tf.data.TFRecordDataset(
        [cut(tfrecords("c.rec", RECORDS)), tfrecords("b.rec", RECORDS[:2])]),
    "file records parallel": lambda: tf.data.TFRecordDataset(
        [tfrecords("a.rec", RECORDS), tfrecords("b.rec", RECORDS[:2])], num_parallel_reads=2),
    "file blocks": lambda: tf.data.FixedLengthRecordDataset(
        written("blocks", b"hh1234567890ff"), 5, 2, 2),
    "file blocks odd": lambda: tf.data.FixedLengthRecordDataset(
        written("blocks.odd", b"hh12345678901ff"), 5, 2, 2),
    "file blocks gzip": lambda: tf.data.FixedLengthRecordDataset(
        written("blocks.gz", gzip.compress(b"hh1234567890ff")), 5, 2, 2, compression_type="GZIP"),
    "file bad compression": lambda: tf.data.TextLineDataset(lines(), compression_type="LZ4"),
    "file many": lambda: tf.data.TFRecordDataset(
        tfrecords("many.rec", [b"%d" % i for i in range(3000)])).skip(2990),
    "file list": lambda: D.list_files(os.path.join(os.path.dirname(lines()[0]), "?.txt"),
                                      shuffle=False).map(lambda p: tf.strings.substr(p, -5, 5)),
    **{f"ignore errors of windows {window}": windows_without_failed(*window)
       for window in ((3,), (3, 1), (3, 2), (3, 5), (2, 1, 3), (3, 1, 2), (3, 1, 1, True),
                      (2, 7, 1, True))},
    **{f"interleave legacy, sizes {sizes}": first_interleave(*sizes)
       for sizes in ((2, 2, 2, 2), (4, 2, 2), (2, 0, 4, 2), (0, 2, 0, 0, 4), (0, 0, 0, 0, 2))},
    "matching files": matching("?.txt"),
    "matching files of several patterns": matching("b.t*", "?.txt", "none*"),
    "sparse batch": sparse_batch(lambda: lengths(1, 3, 0, 2, 5), 2, [4]),
    "sparse batch grows": sparse_batch(lambda: lengths(1, 3, 0, 2, 5), 2, [None]),
    "sparse batch matrices": sparse_batch(
        lambda: r(1, 5).map(lambda n: tf.fill([n, 2], "x")), 3, [None, 2]),
    "sparse batch rank": sparse_batch(lambda: lengths(1, 2), 2, [2, 2]),
    "file interleave": lambda: D.from_tensor_slices(lines()).interleave(
        tf.data.TextLineDataset, cycle_length=2),
    "file examples": lambda: tf.data.TFRecordDataset(examples()).batch(2).map(
        lambda s: tf.io.parse_example(s, {"n": tf.io.FixedLenFeature([], tf.int64),
                                          "t": tf.io.VarLenFeature(tf.string)})
    ),
}  # fmt: skip
# The kinds whose position is saved and restored. Not random ops: on a busy machine TensorFlow draws
# ahead sometimes, so that the numbers after the restored position differ from run to run.
POSITIONED = (
    "range", "slices", "repeat", "repeat forever", "shard", "zip", "concatenate", "batch",
    "padded", "unbatch", "map fails", "map parallel", "map and batch", "filter", "flat map",
    "interleave blocks", "interleave parallel", "scan", "take while", "window shift", "shuffle",
    "shuffle repeat", "shuffle pairs", "random", "sampled", "choose from", "cache",
    "prefetch", "prefetch fails", "unique", "ignore errors", "group by window", "rebatch",
    "file lines gzip", "file records", "sparse batch", "matching files", "deep chain",
)  # fmt: skip
UNLIKE = {"rejection": {"values": False}, "file no": {"message": "No such file"}}


def written(name, data):
    """A file that both TensorFlow and the cluster read."""
    path = os.path.join(FILES, name)
    with open(path, "wb") as file:
        file.write(data)
    return path


def tfrecords(name, records, compression=""):
    path = os.path.join(FILES, name)
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    return path


def lines():
    return [written("a.txt", b"one\r\ntwo\n\nthree"), written("empty.txt", b""),
            written("b.txt", b"four\n")]


RECORDS = [b"", b"a" * 5, b"b" * 100000, b"\0\1"]


def cut(path):
    """The same file without its last bytes."""
    with open(path, "rb") as file:
        return written("cut", file.read()[:-3])


def examples():
    def feature(x):
        n, t = tf.train.Int64List(value=[x]), tf.train.BytesList(value=[b"x"] * x)
        return tf.train.Features(feature={"n": tf.train.Feature(int64_list=n),
                                          "t": tf.train.Feature(bytes_list=t)})

    return tfrecords("examples", [tf.train.Example(features=feature(i)).SerializeToString()
                                  for i in range(5)])


def deep(n):
    dataset = r(3)
    for _ in range(n):
        dataset = dataset.map(lambda x: x + 1)
    return dataset


def with_options(dataset):
    options = tf.data.Options()
    options.deterministic = True
    options.threading.private_threadpool_size = 2
    return dataset.with_options(options).map(lambda x: x * 2)


def R_dataset(op, dataset, **arguments):
    """A dataset that Python has no class for."""

    class Made(tf.data.Dataset):
        def __init__(self):
            super().__init__(op(input_dataset=dataset._variant_tensor, output_types=[tf.int64],
                                output_shapes=[[]], **arguments))

        def _inputs(self):
            return [dataset]

        @property
        def element_spec(self):
            return dataset.element_spec

    return Made()


def R_next_of_nothing(x):
    """A function that meets an end of sequence itself."""
    iterator = R.AnonymousIterator(output_types=[tf.int64], output_shapes=[[]])
    begin = R.MakeIterator(dataset=r(0)._variant_tensor, iterator=iterator)
    with tf.control_dependencies([begin]):
        return x + R.IteratorGetNext(iterator=iterator, output_types=[tf.int64],
                                     output_shapes=[[]])[0]


def _nested_for_ever():
    """A dataset that holds the one before it, many times: it is refused before it is too deep."""

    def body(i, d):
        return i + 1, R.TensorDataset(components=[d], output_shapes=[[]])

    start = R.TensorDataset(components=[np.int64(1)], output_shapes=[[]])
    deep_one = tf1.while_loop(lambda i, _: i < 100000, body, [0, start])[1]
    return [Run(R.DatasetCardinality(input_dataset=deep_one))]


PROGRAMS = {
    "variable in a function": _plus_variable,
    "position of none": _position_of_none,
    "options": _options,
    "table in a function": _table,
    "effects in a function": _variable_in_effect,
    "feeds": _feeds,
    "one shot": _one_shot(WORKER0),
    "one shot elsewhere": _one_shot(WORKER1),
    "one shot fails": _one_shot_fails,
    "not begun": _uninitialized,
    "structure": _structure,
    "structure differs": _structure_differs,
    "element differs": _element_differs,
    "control order": _control_order,
    "as optional": _as_optional,
    "in a loop": _in_loop,
    "in a branch": _in_cond,
    "training": _training,
    "reductions": _datasets_are_values,
    "single of none": _single(lambda: r(0)),
    "single of many": _single(lambda: r(2)),
    "cardinalities": _cardinalities,
    "string handle": _string_handle,
    "across tasks": _across_tasks,
    "captured": _captured,
    "again": through(lambda: r(5).shuffle(3,
                                          seed=2).map(
                                              lambda x: tf.cast(x, tf.float32)
                                              + tf.random.uniform([], seed=9)), 7, twice=True),
    "on the ps": through(lambda: pairs(3).map(lambda a, b: b), device=PS),
}


def cases():
    for name, make in PIPELINES.items():
        yield f"data/{name}", through(make), UNLIKE.get(name, {})
        if name in POSITIONED:
            yield f"data/position/{name}", continued(make)
    for name, build in PROGRAMS.items():
        yield f"data/program/{name}", build
    refused = (tf.errors.InvalidArgumentError, "Datasets nest too deep")
    yield "data/program/nested for ever", _nested_for_ever, {"cluster_error": refused}
