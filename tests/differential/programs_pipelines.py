"""Pipelines in which one dataset occurs several times, and orders that depend on how long inner
datasets are. TensorFlow gives each occurrence seeds and functions of its own, which go on when the
occurrence begins again."""

import itertools
import random

import numpy as np
from programs import Run, tf, tf1

D = tf.data.Dataset
R = tf.raw_ops


def shuffled(n=6, **more):
    return D.range(n).shuffle(n, seed=3, **more)


def drawn():
    return D.range(3).map(lambda i: tf1.random_normal([], seed=5))


def pairs(make):
    d = make()
    return D.zip((d, d))


def both(make, join):
    d = make()
    return join(d, d)


def through(*makes):
    """All of the pipelines' elements, twice: each initialized in the same step."""

    def build():
        iterators = [tf1.data.make_initializable_iterator(make().batch(40)) for make in makes]
        start = [i.initializer for i in iterators]
        return [Run(start), Run([i.get_next() for i in iterators])] * 2

    return build


def _two_iterators(make):
    def build():
        d = make().batch(40)
        iterators = [tf1.data.make_initializable_iterator(d) for _ in range(2)]
        both = tf.add_n([i.get_next() for i in iterators])  # either may be the first
        return [Run([i.initializer for i in iterators]), Run(both)] * 2

    return build


def _reduced():
    d = shuffled()
    digits = [d.reduce(np.int64(0), lambda a, x: a * 10 + x) for _ in range(2)]
    return [Run(digits)] * 2


def _unseeded():
    """Two occurrences have different entropy; the seeds of both are new in each step."""
    d = D.range(40).shuffle(40)
    a, b = tf.unstack(tf.stack(D.zip((d, d)).batch(40).get_single_element()))
    different = tf.reduce_any(tf.not_equal(a, b))
    return [Run([different, tf.sort(a), tf.sort(b)])]


def _shared_generator():
    """A resource that holds the seeds is shared by all who take it."""
    d = D.random(seed=3, rerandomize_each_iteration=True).take(3)
    iterator = tf1.data.make_initializable_iterator(d.repeat(2).batch(10))
    return [Run(iterator.initializer), Run(iterator.get_next())]


PIPELINES = {
    "zip": lambda: pairs(shuffled),
    "zip fixed": lambda: pairs(lambda: shuffled(reshuffle_each_iteration=False)),
    "zip repeated": lambda: pairs(shuffled).repeat(2),
    "zip of repeats": lambda: pairs(lambda: shuffled().repeat(2)),
    "zip of zip": lambda: pairs(lambda: pairs(shuffled)),
    "zip with map": lambda: both(shuffled, lambda a, b: D.zip((a, b.map(lambda x: x + 10)))),
    "zip of three": lambda: both(shuffled, lambda a, b: D.zip((a, b, a.take(5)))),
    "concatenate": lambda: both(shuffled, lambda a, b: a.concatenate(b)),
    "sample": lambda: both(shuffled, lambda a, b: D.sample_from_datasets([a, b], seed=4)),
    "repeat": lambda: shuffled().repeat(3),
    "shuffle and repeat": lambda: pairs(lambda: D.range(4).apply(
        tf.data.experimental.shuffle_and_repeat(4, 2, seed=3))),
    "random": lambda: pairs(lambda: D.random(seed=3).take(3)),
    "flat map": lambda: D.range(3).flat_map(lambda i: shuffled(4)),
    "flat map of captured": lambda: both(shuffled, lambda a, b: D.range(3).flat_map(lambda i: a)),
    "map of captured": lambda: both(shuffled, lambda a, b: D.range(3).map(
        lambda i: a.reduce(np.int64(0), lambda s, x: s * 10 + x))),
    "function zip": lambda: pairs(drawn),
    "function zip repeated": lambda: pairs(drawn).repeat(2),
    "function concatenate": lambda: both(drawn, lambda a, b: a.concatenate(b)),
    "function repeat": lambda: drawn().repeat(2),
    "function flat map": lambda: D.range(3).flat_map(lambda i: D.range(2).map(
        lambda j: tf1.random_normal([], seed=5))),
    "function interleave": lambda: D.range(3).interleave(lambda i: D.range(2).map(
        lambda j: tf1.random_normal([], seed=5)), cycle_length=2),
    "function of two": lambda: D.range(3).map(lambda i: tf1.random_normal([], seed=5)).map(
        lambda x: tf.stack([x, tf1.random_normal([], seed=5)])),
}  # fmt: skip


def _parallel_map():
    """Parallel calls draw distinct numbers of one stream; their order is not fixed."""
    d = D.range(20).map(lambda i: tf1.random_normal([], seed=5), num_parallel_calls=4)
    return [Run(tf.sort(d.batch(20).get_single_element()))] * 2


def _calls_in_a_function():
    f = tf.function(lambda: tf1.random_normal([], seed=5))
    d = D.range(4).map(lambda i: tf.sort(tf.stack([f(), f()])))
    return [Run(tf.sort(tf.reshape(d.batch(4).get_single_element(), [-1])))] * 2


# ---- interleave: every small configuration ----


def _interleave(parallel):
    """Blocks and cycles against inputs of several lengths, all fed."""

    def build():
        sizes = tf1.placeholder(tf.int64, [None])
        cycle, block = tf1.placeholder(tf.int64, []), tf1.placeholder(tf.int64, [])
        more = {"num_parallel_calls": tf.data.AUTOTUNE, "deterministic": True} if parallel else {}
        d = D.from_tensor_slices(sizes).enumerate().interleave(
            lambda i, n: D.range(n).map(lambda k: i * 10 + k), cycle_length=cycle,
            block_length=block, **more)
        end = D.from_tensors(tf.constant(-1, tf.int64))  # a batch has at least one element
        values = d.concatenate(end).batch(100).get_single_element()
        every = [(s, c, b) for n in range(5) for s in itertools.product(range(4), repeat=n)
                 for c in range(1, 5) for b in range(1, 4)]
        some = random.Random(7).sample(every, 250)
        return [Run(values, {sizes: np.array(s, np.int64), cycle: c, block: b})
                for s, c, b in some]

    return build


# ---- graphs that were exported ----


def _imported(make):
    """The pipeline's MetaGraph, imported into another graph, under a scope."""

    def build():
        with tf.Graph().as_default() as graph:
            iterator = tf1.data.make_initializable_iterator(make())
            tf.group(iterator.initializer, name="begin")
            tf.identity(iterator.get_next(), name="next")
            meta = tf1.train.export_meta_graph(graph=graph)
        tf1.train.import_meta_graph(meta, import_scope="in")
        graph = tf1.get_default_graph()
        start = graph.get_operation_by_name("in/begin")
        element = graph.get_tensor_by_name("in/next:0")
        return ([Run(start)] + [Run(element)] * 5) * 2

    return build


IMPORTED = {
    "range": lambda: D.range(3),
    "map": lambda: D.range(3).map(lambda x: x * 2),
    "filter": lambda: D.range(8).filter(lambda x: x % 3 > 0),
    "flat map": lambda: D.range(3).flat_map(lambda x: D.range(x)),
    "captured": lambda: both(lambda: tf.constant(5, tf.int64), lambda c, _: D.range(3).map(
        lambda x: x + c)),
    "batch": lambda: D.from_tensor_slices([1.0, 2.0, 3.0]).map(lambda x: x + 1).batch(2),
    "generator state": lambda: D.range(4).shuffle(4, seed=1).map(lambda x: x + 1).prefetch(1),
}  # fmt: skip


# ---- errors that are ignored ----


def _failing(x):
    return 840 // ((x - 3) * (x - 7))


IGNORED = {
    "map, batch": lambda: D.range(12).map(_failing).batch(3),
    "map, batch, drop": lambda: D.range(12).map(_failing).batch(5, drop_remainder=True),
    "parallel map, batch": lambda: D.range(12).map(_failing, num_parallel_calls=3).batch(3),
    "map, batch, prefetch": lambda: D.range(12).map(_failing).batch(3).prefetch(2),
    "batch, map": lambda: D.range(12).batch(3).map(_failing),
    "map and batch": lambda: D.range(12).apply(
        tf.data.experimental.map_and_batch(_failing, 3)),
    "map and batch, drop": lambda: D.range(11).apply(
        tf.data.experimental.map_and_batch(_failing, 3, drop_remainder=True)),
    "map, padded": lambda: D.range(12).map(lambda x: tf.reshape(_failing(x), [1])).padded_batch(3),
    "map, filter": lambda: D.range(12).map(_failing).filter(lambda x: x > 0),
    "filter": lambda: D.range(12).filter(lambda x: _failing(x) > 0),
    "flat map": lambda: D.range(12).flat_map(lambda x: D.from_tensors(_failing(x)).repeat(2)),
    "inner": lambda: D.range(3).flat_map(lambda y: D.range(5).map(lambda x: 12 // (x - y))),
    "interleave": lambda: D.range(9).interleave(
        lambda x: D.from_tensors(_failing(x)).repeat(2), cycle_length=2),
    "inner interleave": lambda: D.range(4).interleave(
        lambda y: D.range(5).map(lambda x: 12 // (x - y)), cycle_length=2),
    "zip": lambda: D.zip((D.range(12).map(_failing), D.range(12))),
    "concatenate": lambda: D.range(5).map(_failing).concatenate(D.range(3)),
    "take": lambda: D.range(12).map(_failing).take(6),
    "skip": lambda: D.range(12).map(_failing).skip(4),
    "shuffle": lambda: D.range(12).map(_failing).shuffle(3, seed=1),
    "repeat": lambda: D.range(6).map(_failing).repeat(2),
    "scan": lambda: D.range(12).scan(np.int64(0), lambda s, x: (s + _failing(x), s)),
    "unbatch": lambda: D.range(12).batch(2).map(_failing).unbatch(),
    "cache": lambda: D.range(6).map(_failing).cache().repeat(2),
}  # fmt: skip


def ignoring(make):
    def build():
        d = make().apply(tf.data.experimental.ignore_errors())
        iterator = tf1.data.make_initializable_iterator(d)
        element = iterator.get_next()
        return [Run(iterator.initializer)] + [Run(element)] * 14

    return build


def cases():
    for name, make in PIPELINES.items():
        yield f"pipelines/{name}", through(make)
    yield "pipelines/two iterators", _two_iterators(shuffled)
    yield "pipelines/two iterators of a function", _two_iterators(drawn)
    yield "pipelines/reduced", _reduced
    yield "pipelines/unseeded", _unseeded
    yield "pipelines/shared generator", _shared_generator
    yield "pipelines/parallel map", _parallel_map
    yield "pipelines/calls in a function", _calls_in_a_function
    for parallel in (False, True):
        yield f"pipelines/interleave/{'parallel' if parallel else 'one by one'}", _interleave(
            parallel)
    for name, make in IMPORTED.items():
        yield f"pipelines/imported/{name}", _imported(make)
    for name, make in IGNORED.items():
        yield f"pipelines/ignored/{name}", ignoring(make)
