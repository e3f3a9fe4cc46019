"""Iterators that several sessions share, waits that end from outside, and training loops on
datasets. The oracle is a cluster of TensorFlow's."""

import os
import tempfile
import threading

import numpy as np
from programs import WORKER0, attempt, tf, tf1

D = tf.data.Dataset
R = tf.raw_ops


def _iterator(dataset, shared_name=None):
    with tf.device(WORKER0):
        iterator = tf1.data.make_initializable_iterator(dataset(), shared_name)
        return iterator, iterator.get_next()


def shared_by_name(target, note):
    """Two sessions of different graphs go on with one iterator; it outlives the session that made
    it."""

    def session():
        with tf.Graph().as_default():
            iterator, element = _iterator(lambda: D.range(10).map(lambda x: x * 2),
                                          "shared by name")
            return tf1.Session(target), iterator.initializer, element

    first, begin, a = session()
    second, _, b = session()
    note("not begun", attempt(second.run, b))
    first.run(begin)
    note("in turns", [attempt(s.run, e) for s,
                      e in ((first, a), (second, b), (first, a), (second, b))])
    first.close()
    note("goes on", [attempt(second.run, b) for _ in range(2)])
    third, begin, c = session()
    note("third goes on", attempt(third.run, c))
    third.run(begin)
    note("begun anew", [attempt(third.run, c), attempt(second.run, b)])
    third.close()
    second.close()


def own_by_default(target, note):
    """Without a shared name each session has its own, although the graph is one."""
    with tf.Graph().as_default():
        iterator, element = _iterator(lambda: D.range(10))
        with tf1.Session(target) as first, tf1.Session(target) as second:
            first.run(iterator.initializer)
            first.run(element)
            note("other", attempt(second.run, element))
            second.run(iterator.initializer)
            note("both", [attempt(first.run, element), attempt(second.run, element)])


def by_string_handle(target, note):
    """A feedable iterator between two graphs of one session's cluster."""
    with tf.Graph().as_default():
        iterator, element = _iterator(lambda: D.range(5), "by string")
        other, _ = _iterator(lambda: D.range(100, 105))
        handles = [iterator.string_handle(), other.string_handle()]
        with tf.device(WORKER0):
            handle = tf1.placeholder(tf.string, [])
            fed = tf1.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
            wrong = tf1.data.Iterator.from_string_handle(handle, tf.int32, []).get_next()
        with tf1.Session(target) as session:
            session.run([iterator.initializer, other.initializer])
            a, b = session.run(handles)
            note("in turns", [attempt(session.run, fed, {handle: h}) for h in (a, b, a)])
            note("itself", attempt(session.run, element))
            note("type", attempt(session.run, wrong, {handle: a}).code)
            with tf1.Session(target) as second:
                note("another session", attempt(second.run, fed, {handle: a}))


def cancelled_wait(target, note):
    """GetNext waits for a queue that a function dequeues from; a timeout ends it (TensorFlow says
    OUT_OF_RANGE), and the iterator goes on."""
    with tf.Graph().as_default():
        with tf.device(WORKER0):
            queue = tf1.FIFOQueue(10, [tf.int64], [[]], shared_name="feeds a dataset")
            put = queue.enqueue([np.int64(7)])
            dataset = D.range(10).map(lambda x: x * 100 + queue.dequeue())
            iterator = tf1.data.make_initializable_iterator(dataset)
            element = iterator.get_next()
        with tf1.Session(target) as session:
            session.run(iterator.initializer)
            session.run(put)
            assert session.run(element) == 7
            for _ in range(2):
                assert attempt(session.run, element,
                               options=tf1.RunOptions(
                                   timeout_in_ms=300)).code == tf.errors.DEADLINE_EXCEEDED
            session.run(put)
            assert session.run(element) == 307  # the two that were waited for in vain are lost


def woken_wait(target, note):
    """Two threads wait for an element each; another feeds what both are made of."""
    with tf.Graph().as_default():
        with tf.device(WORKER0):
            queue = tf1.FIFOQueue(10, [tf.int64], [[]], shared_name="wakes a dataset")
            value = tf1.placeholder(tf.int64, [])
            put = queue.enqueue([value])
            iterator = tf1.data.make_initializable_iterator(
                D.range(10).map(lambda x: x * 0 + queue.dequeue()))
            element = iterator.get_next()
        with tf1.Session(target) as session:
            session.run(iterator.initializer)
            outcomes = []
            threads = [threading.Thread(target=lambda: outcomes.append(
                attempt(session.run, element))) for _ in range(2)]
            for thread in threads:
                thread.start()
            for v in (5, 6):
                session.run(put, {value: v})
            for thread in threads:
                thread.join()
            note("both", sorted(int(o.value) for o in outcomes))


def closed_while_ahead(target, note):
    """A session ends while its iterators are full of work ahead."""
    for make in (
        lambda: D.range(1 << 40).map(lambda x: x + 1).prefetch(5),
        lambda: D.range(1 << 40).map(lambda x: x + 1, num_parallel_calls=4),
        lambda: D.range(1 << 40).map(lambda x: x + 1, num_parallel_calls=4).batch(10).prefetch(1),
    ):
        with tf.Graph().as_default():
            iterator, element = _iterator(make)
            with tf1.Session(target) as session:
                session.run(iterator.initializer)
                note("some", attempt(session.run, element))
                session.run(iterator.initializer)
                note("again", attempt(session.run, element))


def endless_filter(target, note):
    """A function that wants no element: nothing but the timeout ends the wait, and others are
    served meanwhile."""
    with tf.Graph().as_default():
        iterator, element = _iterator(lambda: D.range(1 << 60).filter(lambda x: x < 0))
        with tf1.Session(target) as session, tf.device(WORKER0):
            session.run(iterator.initializer)
            one = tf.constant(1) + 1
            outcomes = []
            thread = threading.Thread(target=lambda: outcomes.append(attempt(session.run, element,
                    options=tf1.RunOptions(timeout_in_ms=500)).code))
            thread.start()
            note("meanwhile", attempt(session.run, one))
            thread.join()
            note("ended", outcomes)


def monitored(one_shot):
    """MonitoredTrainingSession until the dataset ends."""

    def script(target, note):
        with tf.Graph().as_default():
            with tf1.device(tf1.train.replica_device_setter(ps_tasks=1, worker_device=WORKER0,
                    ps_device="/job:ps")):
                dataset = D.from_tensor_slices(np.arange(20, dtype=np.float32)).repeat(2).batch(4)
                step = tf1.train.get_or_create_global_step()
                if one_shot:
                    x = tf1.data.make_one_shot_iterator(dataset).get_next()
                else:
                    iterator = tf1.data.make_initializable_iterator(dataset)
                    tf1.add_to_collection(tf1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
                    x = iterator.get_next()
                w = tf1.get_variable("w", initializer=1.0)
                loss = tf.reduce_mean(tf.square(x * w - 2 * x)) / 400
                train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
            losses = []
            with tf1.train.MonitoredTrainingSession(
                master=target, is_chief=True, save_checkpoint_secs=None,
                log_step_count_steps=None) as session:
                while not session.should_stop():
                    losses.append(session.run([train, loss, step])[1])
            note("losses", np.array(losses, np.float32))

    return script


def _all_of(dataset, target, n=100):
    """The elements, up to the end or an error."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        iterator, element = _iterator(dataset) if target else (lambda i: (i, i.get_next()))(
            tf1.data.make_initializable_iterator(dataset()))
        begun = attempt(session.run, iterator.initializer)
        if begun.code:
            return begun
        seen = []
        for _ in range(n):
            outcome = attempt(session.run, element)
            if outcome.code:
                return seen, outcome.code
            parts = outcome.value if isinstance(outcome.value, tuple) else (outcome.value,)
            seen.append([np.array(v).tolist() for v in parts])
        return seen, None


def cached_in_files(target, note):
    """A cache that one program writes and another reads, on either side; and what is left when
    nobody comes to the end."""
    folder = tempfile.mkdtemp()

    def pipeline(name, marks=10):
        # noqa: E731
        of = lambda x: (x * 10, tf.strings.as_string(x), tf.ones([x % 3, 2], tf.float16))
        return lambda: D.range(marks).map(of).cache(os.path.join(folder, name))

    def names():
        return sorted(n for n in os.listdir(folder) if "temp" not in n)

    note("written", _all_of(pipeline("ours"), target))
    note("files", names())
    note("read here", _all_of(pipeline("ours", 3), target))  # what is there counts
    note("read in process", _all_of(pipeline("ours", 3), ""))
    _all_of(pipeline("theirs"), "")
    note("read from process", _all_of(pipeline("theirs", 3), target))
    note("half", _all_of(pipeline("half"), target, 4))
    note("whole", _all_of(pipeline("half"), target))
    note("nothing", _all_of(pipeline("nothing", 0), target))
    note("nothing again", _all_of(pipeline("nothing", 5), target))
    with open(os.path.join(folder, "locked_0.lockfile"), "w", encoding="utf-8") as file:
        file.write("Created at: 1")
    note("locked", _all_of(pipeline("locked"), target))
    note("deeper", _all_of(pipeline("a/b/c"), target))
    with open(os.path.join(folder, "broken.index"), "w", encoding="utf-8") as file:
        file.write("no table")
    note("broken", _all_of(pipeline("broken"), target))
    # noqa: E731
    fails = lambda: D.range(4).map(lambda x: tf.debugging.check_numerics(
        1.0 / tf.cast(x - 2, tf.float32), "two")).cache(os.path.join(folder, "fails"))
    note("error", _all_of(fails, target))


def _rows(session, element):
    """All that an iterator has left."""
    rows = []
    while True:
        try:
            rows.append(session.run(element))
        except tf.errors.OutOfRangeError:
            return rows


def _run_again(serialized):
    """The dataset of a GraphDef, made anew in this process: what its iterator hands out."""
    graph_def = tf1.GraphDef.FromString(serialized)
    result = [node for node in graph_def.node if node.op == "_Retval"][0]
    graph_def.node.remove(result)
    with tf.Graph().as_default(), tf1.Session() as session:
        (variant,) = tf1.import_graph_def(graph_def,
                                          return_elements=[
                                              result.input[0] + ("" if ":" in result.input[0]
                                                      else ":0")], name="")
        dataset = tf.data.experimental.from_variant(variant, tf.TensorSpec(None, tf.int64))
        iterator = tf1.data.make_initializable_iterator(dataset)
        element = iterator.get_next()
        session.run(iterator.initializer)
        return _rows(session, element)


def as_graph(target, note):
    """A dataset's graph, as Keras asks for it: the kinds of datasets, the functions, and what the
    graph makes."""

    def made_by(x):
        return x * 3 + 1

    with tf.Graph().as_default(), tf1.Session(target) as session, tf.device(WORKER0):
        n = tf1.placeholder_with_default(np.int64(6), [], name="n")
        chain = D.range(2 * 5).map(made_by).shuffle(3, seed=4).batch(4)
        nested = D.range(3).interleave(lambda x: D.range(x).map(made_by).shuffle(2, seed=1),
                                       cycle_length=2)
        for name, dataset in (("chain", chain), ("nested", nested)):
            for version, op in (
                ("V2", R.DatasetToGraphV2(input_dataset=dataset._variant_tensor)),
                ("V1", R.DatasetToGraph(input_dataset=dataset._variant_tensor,
                                        strip_device_assignment=True)),
            ):
                graph_def = tf1.GraphDef.FromString(session.run(op))
                note(f"{name}, {version}: datasets",
                     sorted(node.op for node in graph_def.node
                            if node.op.endswith(("Dataset", "DatasetV2", "DatasetV3"))))
                note(f"{name}, {version}: functions", len(graph_def.library.function))
                note(f"{name}, {version}: result",
                     [(node.name, node.op) for node in graph_def.node if node.op == "_Retval"])
                note(f"{name}, {version}: devices", {node.device for node in graph_def.node}
                     == {""})
                note(f"{name}, {version}: again", _run_again(graph_def.SerializeToString()))
        graph = tf1.data.Dataset.range(n)._as_serialized_graph()
        note("fed", "RangeDataset" in [node.op
                                       for node in tf1.GraphDef.FromString(
                                           session.run(graph, {n: 3})).node])
        bad = R.RangeDataset(start=np.int64(0), stop=n, step=np.int64(0), output_types=[tf.int64],
                             output_shapes=[[]])
        note("one that cannot be made", attempt(session.run, R.DatasetToGraphV2(input_dataset=bad),
                                                {n: 3}).code)
        branch = tf1.cond(n > 3, lambda: tf.strings.length(chain._as_serialized_graph()) > 0,
                          lambda: tf.constant(False))
        note("in a branch", [session.run(branch, {n: k}) for k in (1, 5)])
        note("as a target", session.run(graph.op))


def _several_types(n):
    return D.range(n).map(lambda i: {"i": i, "f": tf.cast(i, tf.float32) / 2, "s": tf.strings.join(
        [tf.as_string(i), "x" * 300]), "v": tf.fill([i % 3, 2], i), "b": i > 2})


IN_PROCESS = ""


def _place(target):
    return None if target == IN_PROCESS else WORKER0


def _write_files(target, path, compression):
    """A saved dataset in shards, a snapshot and a file of records, written by `target`."""
    with tf.Graph().as_default(), tf1.Session(target) as session, tf.device(_place(target)):
        save = _several_types(600).save(path + "saved", compression=compression,
                                        shard_func=lambda e: e["i"] % 3)
        session.run(save)
        kept = tf1.data.make_initializable_iterator(_several_types(300).snapshot(
            path + "kept", compression=compression))
        whole = kept.get_next()
        session.run(kept.initializer)
        for _ in range(300):
            session.run(whole)
        assert attempt(session.run, whole).code == tf.errors.OUT_OF_RANGE
        records = D.range(900).map(lambda i: tf.strings.join([tf.as_string(i), "y" * 200]))
        session.run(R.DatasetToTFRecord(input_dataset=records._variant_tensor,
                                        filename=path + "records",
                                        compression_type=compression or ""))


def _sums(target, path, compression):
    """What `target` reads of such files."""
    found = []
    snapshot = os.path.join(path + "kept", os.listdir(path + "kept")[0])  # named by the graph
    with tf.Graph().as_default(), tf1.Session(target) as session, tf.device(_place(target)):
        for name in (path + "saved", snapshot):
            spec = _several_types(1).element_spec
            if name == snapshot:  # whose elements are numbered
                spec = tf.TensorSpec([], tf.int64), spec
            loaded = D.load(name, spec, compression, lambda shards: shards.flat_map(lambda s: s))
            if name == snapshot:
                loaded = loaded.map(lambda _, e: e)
            total = loaded.reduce((np.int64(0), np.float32(0), np.int64(0), np.int64(0)), lambda s,
                                  e: (s[0] + e["i"], s[1] + e["f"],
                                      s[2] + tf.strings.to_hash_bucket_fast(e["s"], 1 << 40),
                                      s[3] + tf.reduce_sum(e["v"])))
            found.append(session.run(total))
        records = tf.data.TFRecordDataset(path + "records", compression or "")
        found.append(session.run(records.reduce(
            np.int64(0), lambda s, e: s + tf.strings.to_hash_bucket_fast(e, 1 << 40))))
    return found


def files_of_each_other(target, note):
    """What TensorFlow in process reads of files that the cluster has written, and the cluster of
    TensorFlow's."""
    for compression in (None, "GZIP", "SNAPPY"):
        with tempfile.TemporaryDirectory() as directory:
            for writer, reader, what in ((target, IN_PROCESS, "in process"),
                                         (IN_PROCESS, target, "on the cluster")):
                path = os.path.join(directory, what + " ")
                _write_files(writer, path, compression)
                note(f"read {what}, {compression}", _sums(reader, path, compression))


def scripts():
    yield "data sessions/files of each other", files_of_each_other
    yield "data sessions/as a graph", as_graph
    yield "data sessions/shared by name", shared_by_name
    yield "data sessions/own by default", own_by_default
    yield "data sessions/by string handle", by_string_handle
    yield "data sessions/cancelled wait", cancelled_wait, {"ours_only": True}
    yield "data sessions/woken wait", woken_wait
    yield "data sessions/closed while ahead", closed_while_ahead
    yield "data sessions/endless filter", endless_filter
    yield "data sessions/monitored", monitored(False)
    yield "data sessions/monitored one shot", monitored(True)
    yield "data sessions/cached in files", cached_in_files
