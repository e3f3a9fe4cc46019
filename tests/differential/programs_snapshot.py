"""Datasets that leave elements in files, and read them again: records, saved datasets, snapshots;
and iterators that deal out elements to several devices."""

import atexit
import itertools
import os
import shutil
import tempfile

import numpy as np
from programs import WORKER0, Run, build_without_devices, oracle_config, tf, tf1
from programs_data import R_dataset, continued
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.ops import functional_ops

D = tf.data.Dataset
R = tf.raw_ops
F = np.float32
FILES = tempfile.mkdtemp(prefix="millrace-snapshot-")
atexit.register(shutil.rmtree, FILES, True)
NUMBERS = itertools.count()


def fresh(name):
    """A path that no other run of a case uses."""
    return os.path.join(FILES, f"{name}-{next(NUMBERS)}")


def pull(dataset, n):
    iterator = tf1.data.make_initializable_iterator(dataset)
    return [Run(iterator.initializer)] + [Run(iterator.get_next())] * n


def records(make, compression="", n=6, op=R.DatasetToTFRecord):
    """What is written, read back."""

    def build():
        path = fresh("records")
        with tf.device(WORKER0):
            write = op(input_dataset=make()._variant_tensor, filename=path,
                       compression_type=compression)
            return [Run(write)] + pull(tf.data.TFRecordDataset(path, compression), n)

    return build


def texts(n):
    return D.range(n).map(tf.as_string)


def long_texts():
    """More than a block, of texts that compress and of some that do not."""
    noise = np.random.default_rng(1).bytes(3000)
    return D.range(700).map(lambda i: tf.strings.join(
        [tf.as_string(i), tf.strings.substr(noise, tf.cast(i, tf.int32), 1000), "x" * 500]))


def mixed(n):
    return D.range(n).map(lambda i: {"i": i, "f": tf.cast(i, tf.float32) / 2, "s": tf.as_string(i),
                                     "v": tf.fill([i % 3, 2], i), "b": i > 2})


def in_order(shards):
    return shards.flat_map(lambda shard: shard)


def saved(make, compression=None, shard_func=None, n=8):
    """A saved dataset, loaded in the order of its shards."""

    def build():
        path = fresh("saved")
        with tf.device(WORKER0):
            dataset = make()
            save = dataset.save(path, compression=compression, shard_func=shard_func)
            loaded = D.load(path, dataset.element_spec, compression, in_order)
            # the dataset is made once its files are there
            iterator = tf1.data.make_initializable_iterator(loaded)
            cardinality = loaded.cardinality()
        runs = [Run(save), Run(iterator.initializer)] + [Run(iterator.get_next())] * n
        return runs + [Run(cardinality)]

    return build


def passing(make, n=8):
    """SaveDatasetV2 hands its input's elements on."""

    def build():
        from tensorflow.python.data.ops import save_op

        path = fresh("passing")
        with tf.device(WORKER0):
            dataset = make()
            through = save_op._SaveDataset(dataset, path, None, None)
            return pull(through, n) + pull(D.load(path, dataset.element_spec,
                                                  reader_func=in_order), n)

    return build


def theirs(compression):
    """What TensorFlow has saved in process."""
    path = fresh("theirs")

    def write():
        with tf.Graph().as_default(), tf1.Session(config=oracle_config()) as session:
            session.run(mixed(600).save(path, compression=compression,
                                        shard_func=lambda e: e["i"] % 3))

    def build():
        if not os.path.exists(os.path.join(path, "snapshot.metadata")):
            build_without_devices(write)
        with tf.device(WORKER0):
            loaded = D.load(path, mixed(1).element_spec, compression, in_order)
            total = loaded.reduce((tf.constant(0, tf.int64), 0.0, "", tf.constant(0, tf.int64)),
                                  lambda s, e: (s[0] + e["i"], s[1] + e["f"],
                                                tf.strings.join([s[2], e["s"]]),
                                                s[3] + tf.reduce_sum(e["v"])))
            return [Run(total), Run(loaded.cardinality())] + pull(loaded, 4)

    return build


def _missing():
    with tf.device(WORKER0):
        return pull(D.load(fresh("missing"), tf.TensorSpec([], tf.int64), None, in_order), 1)


def _failing():
    with tf.device(WORKER0):
        return [Run(D.range(4).map(lambda x: 6 // (x - 2)).save(fresh("failing")))]


def snapshot(make, rounds=2, n=5, **arguments):
    """The same elements from the input, and from the files."""

    def build():
        path = fresh("snapshot")
        with tf.device(WORKER0):
            dataset = make().snapshot(path, reader_func=in_order,
                                      shard_func=lambda *_: tf.constant(0, tf.int64), **arguments)
            return pull(dataset, n) * rounds

    return build


def _kept_random():
    """The second iterator reads what the first one has drawn."""
    path = fresh("random")
    with tf.device(WORKER0):
        drawn = D.range(4).map(lambda x: tf.random.uniform([]))
        dataset = drawn.snapshot(path, reader_func=in_order,
                                 shard_func=lambda _: tf.constant(0, tf.int64))
        total = dataset.reduce(0.0, lambda s, x: s + x)
        first = tf1.get_local_variable("first", [], initializer=tf1.zeros_initializer())
        return [Run(first.initializer), Run(tf1.assign(first, total).op),
                Run(tf.equal(first, total))]


def sharded(policy, n_workers=3, index=1, n=6):
    def build():
        types = {"output_types": [tf.int64], "output_shapes": [[]]}
        with tf.device(WORKER0):
            variant = R.AutoShardDataset(input_dataset=D.range(7)._variant_tensor,
                                         num_workers=np.int64(n_workers), index=np.int64(index),
                                         auto_shard_policy=policy, **types)
            iterator = R.IteratorV2(shared_name="", container="", **types)
            begin = R.MakeIterator(dataset=variant, iterator=iterator)
            element = R.IteratorGetNext(iterator=iterator, **types)
        return [Run(begin)] + [Run(element)] * n

    return build


# ---- positions ----


def position_in_saved(compression=None):
    """Of an iterator over a saved dataset."""

    def build():
        path = fresh("position")
        with tf.device(WORKER0):
            dataset = mixed(9)
            save = dataset.save(path, compression=compression)
        return [Run(save)] + continued(lambda: D.load(path, dataset.element_spec, compression,
                                                      in_order))()

    return build


def position_in_snapshot(is_kept):
    """Of an iterator that writes a snapshot, and of one that reads it."""

    def build():
        path = fresh("position")

        def make():
            return mixed(9).snapshot(path, reader_func=in_order,
                                     shard_func=lambda *_: tf.constant(0, tf.int64))

        with tf.device(WORKER0):
            kept = make().reduce(np.int64(0), lambda s, e: s + e["i"]) if is_kept else tf.zeros([])
        return [Run(kept)] + continued(make)()

    return build


def position_in_shards(policy):
    return continued(lambda: R_dataset(R.AutoShardDataset, D.range(30).shuffle(4, seed=3),
                                       num_workers=np.int64(3), index=np.int64(1),
                                       auto_shard_policy=policy))


# ---- several devices ----

TYPES = {"output_types": [tf.int64], "output_shapes": [[]]}


def _multi(n=7, devices=("/cpu:0", "/cpu:0"), buffer=2):
    handle = R.MultiDeviceIterator(devices=devices, shared_name="", container="", **TYPES)
    begin = R.MultiDeviceIteratorInit(dataset=D.range(n)._variant_tensor,
                                      multi_device_iterator=handle,
                                      max_buffer_size=np.int64(buffer))
    incarnation = tf1.placeholder(tf.int64, [])

    def get(shard):
        return R.MultiDeviceIteratorGetNextFromShard(
            multi_device_iterator=handle, shard_num=shard, incarnation_id=incarnation, **TYPES)[0]

    return handle, begin, incarnation, get


def dealt(*shards):
    """Elements in this order of shards."""

    def build():
        with tf.device(WORKER0):
            _, begin, incarnation, get = _multi()
            gets = [get(0), get(1)]
            return [Run(begin)] + [Run(gets[shard], {incarnation: 1}) for shard in shards]

    return build


def _dealt_at_once():
    with tf.device(WORKER0):
        _, begin, incarnation, get = _multi()
        return [Run(begin), Run([get(0), get(1)], {incarnation: 1}),
                Run([get(1), get(0)], {incarnation: 1})]


def _dealt_again():
    with tf.device(WORKER0):
        _, begin, incarnation, get = _multi()
        return [Run(begin), Run(get(0), {incarnation: 1}),
                Run(begin), Run(get(0), {incarnation: 1}), Run(get(0), {incarnation: 2})]


def _dealt_by_name():
    with tf.device(WORKER0):
        handle, begin, incarnation, get = _multi()
        text = R.MultiDeviceIteratorToStringHandle(multi_device_iterator=handle)
        same = R.MultiDeviceIteratorFromStringHandle(string_handle=text, **TYPES)
        other = R.MultiDeviceIteratorGetNextFromShard(
            multi_device_iterator=same, shard_num=1, incarnation_id=incarnation, **TYPES)[0]
        return [Run(begin), Run(other, {incarnation: 1}), Run(get(0), {incarnation: 1})]


def _dealt_wrong_types():
    with tf.device(WORKER0):
        handle = R.MultiDeviceIterator(devices=["/cpu:0"], shared_name="", container="",
                                       output_types=[tf.float32], output_shapes=[[]])
        return [Run(R.MultiDeviceIteratorInit(dataset=D.range(2)._variant_tensor,
                                              multi_device_iterator=handle,
                                              max_buffer_size=np.int64(1)))]


def _whole():
    """tf.data's own class: iterators on the devices call the host's."""
    with tf.device(WORKER0):
        multi = multi_device_iterator_ops.MultiDeviceIterator(
            D.range(6), ["/cpu:0", "/cpu:0"], source_device="/cpu:0")
        first, second = multi._device_iterators[0].get_next(), multi._device_iterators[
            1].get_next()
    return [Run(multi.initializer), Run(first), Run(second), Run(first), Run(second)]


def remote(target, feed=True):
    """A call to the device that the step names."""

    def build():
        @tf.function
        def twice(x):
            return x * 2

        with tf.device(WORKER0):
            name = tf1.placeholder(tf.string, []) if feed else tf.strings.lower(
                tf.constant(target))
            y = functional_ops.remote_call(
                target=name, args=[tf.constant(21)], Tout=[tf.int32],
                f=twice.get_concrete_function(tf.TensorSpec([], tf.int32)))
        return [Run(y, {name: target} if feed else {})]

    return build


PROGRAMS = {
    "records": records(lambda: texts(4)),
    "records/zlib": records(lambda: texts(4), "ZLIB"),
    "records/gzip": records(lambda: texts(4), "GZIP"),
    "records/long": records(long_texts, n=12),
    "records/long gzip": records(long_texts, "GZIP", n=12),
    "records/none": records(lambda: texts(0), n=1),
    "records/unknown": records(lambda: texts(1), "LZ4", n=1),
    "records/experimental": records(lambda: texts(2), op=R.ExperimentalDatasetToTFRecord),
    "records/failing": records(lambda: texts(3).map(lambda t: tf.as_string(
        1 // (tf.strings.to_number(t, tf.int32) - 1))), n=1),
    "save/numbers": saved(lambda: D.range(5)),
    "save/mixed": saved(lambda: mixed(5)),
    "save/none": saved(lambda: D.range(0), n=1),
    "save/gzip": saved(lambda: mixed(5), "GZIP"),
    "save/many": saved(lambda: D.range(3000).batch(7), n=5),
    "save/shards": saved(lambda: D.range(7), shard_func=lambda x: x % 3),
    "save/bad shard": saved(lambda: D.range(7), shard_func=lambda x: tf.constant([1, 2], tf.int64),
                            n=1),
    "save/failing": _failing,
    "save/passing": passing(lambda: D.range(5)),
    "load/missing": _missing,
    "load/theirs": theirs(None),
    "load/theirs gzip": theirs("GZIP"),
    "load/theirs snappy": theirs("SNAPPY"),
    "snapshot/numbers": snapshot(lambda: D.range(3)),
    "snapshot/mixed": snapshot(lambda: mixed(3)),
    "snapshot/plain": snapshot(lambda: mixed(3), compression=""),
    "snapshot/gzip": snapshot(lambda: mixed(3), compression="GZIP"),
    "snapshot/random": _kept_random,
    "position/saved": position_in_saved(),
    "position/saved gzip": position_in_saved("GZIP"),
    "position/saved snappy": position_in_saved("SNAPPY"),
    "position/snapshot that is written": position_in_snapshot(False),
    "position/snapshot that is read": position_in_snapshot(True),
    "position/shards off": position_in_shards(-1),
    "position/shards of data": position_in_shards(2),
    "shard/off": sharded(-1),
    "shard/auto": sharded(0),
    "shard/data": sharded(2),
    "shard/last": sharded(2, 3, 2),
    "shard/one": sharded(2, 1, 0, 8),
    "shard/wrong index": sharded(2, 3, 3, 0),
    "shard/wrong number": sharded(2, 0, 0, 0),
    "multi/turns": dealt(0, 1, 0, 1, 0, 1, 0, 1),
    "multi/one first": dealt(0, 0, 1, 1, 0, 0, 1, 1),
    "multi/at once": _dealt_at_once,
    "multi/again": _dealt_again,
    "multi/by name": _dealt_by_name,
    "multi/types": _dealt_wrong_types,
    "multi/whole": _whole,
    "remote/fed": remote("/cpu:0"),
    "remote/computed": remote("/CPU:0", feed=False),
    "remote/malformed": remote("/nothing:of:that"),
}
OPTIONS = {
    # TensorFlow waits for ever
    "save/failing": {"cluster_error": (tf.errors.InvalidArgumentError, "[Zz]ero")},
}


def cases():
    for name, build in PROGRAMS.items():
        yield f"snapshot/{name}", build, OPTIONS.get(name, {})
