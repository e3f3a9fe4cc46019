"""Batching across steps: rows of concurrent steps and sessions in one batch, functions that are
called once for many, limits, and what cancelled steps leave behind. Scripts as in sessions.py."""

import itertools

import numpy as np
from programs import PS, WORKER0, attempt, tf, tf1
from sessions_queue import in_thread

R = tf.raw_ops
LONG_US = 36_000_000  # by number, not by time
numbers = itertools.count()


def own_name():
    """A batcher of the script's own: by its node's name it would be shared with other graphs."""
    return f"batcher {next(numbers)}"


def batch(inputs, device=WORKER0, **attrs):
    with tf.device(device):
        given = {"num_batch_threads": 1, "max_batch_size": 2, "batch_timeout_micros": LONG_US,
                 "grad_timeout_micros": 0, "shared_name": own_name(), **attrs}
        return R.Batch(in_tensors=inputs, **given)


def call(function, inputs, captured=(), types=(tf.int32,), **attrs):
    concrete = tf.function(function).get_concrete_function(
        *[tf.TensorSpec(None, x.dtype) for x in [*inputs, *captured]])
    given = {"num_batch_threads": 1, "max_batch_size": 2, "batch_timeout_micros": LONG_US,
             "shared_name": own_name(), **attrs}
    with tf.device(WORKER0):
        return R.BatchFunction(in_tensors=inputs, captured_tensors=list(captured), f=concrete,
                               Tout=list(types), **given)


def both(session, fetches, feeds):
    """The outcomes of two steps that run at the same time."""
    join = in_thread(session.run, fetches, feeds[0])
    here = attempt(session.run, fetches, feeds[1])
    return [join(), here]


def shown(outcome):
    return [np.array(v).tolist() for v in outcome.value] if outcome.value is not None else str(
        outcome)


def two_steps(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x, name = tf1.placeholder(tf.int32, [1, 2]), tf1.placeholder(tf.string, [1])
        batched, index, key = batch([x, name])
        outcomes = both(session, [*batched, index, key],
                        [{x: [[1, 2]], name: ["a"]}, {x: [[3, 4]], name: ["b"]}])
        values = sorted((o.value for o in outcomes), key=lambda v: len(v[0]))
        note("empty", [list(values[0][i].shape) for i in range(3)])
        note("rows", sorted(zip(values[1][0].tolist(), [s.decode() for s in values[1][1]])))
        note("index", values[1][2][:, 1:].tolist())
        note("keys", {int(k) for k in values[1][2][:, 0]} == {int(v[3]) for v in values})


def padded(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [None])
        batched, _, _ = batch([x], max_batch_size=10, allowed_batch_sizes=[5, 10],
                              batch_timeout_micros=1000, shared_name=own_name())
        note("by time", attempt(session.run, batched, {x: [1, 2, 3]}))
        note("by number", attempt(session.run, batched, {x: np.arange(10)}))
        note("nothing", attempt(session.run, batched, {x: []}))


def there_and_back(target, note):
    """Each step gets its own rows, over another task, too; and as a gradient would."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [1])
        (batched,), index, key = batch([x], grad_timeout_micros=20_000_000)
        with tf.device(PS):
            squared = tf.square(batched)
        with tf.device(WORKER0):
            own = R.Unbatch(batched_tensor=squared, batch_index=index, id=key,
                            timeout_micros=20_000_000, shared_name=own_name())
            back = R.UnbatchGrad(original_input=squared, batch_index=index, grad=own * 3.0, id=key,
                                 shared_name=own_name())
            slope = R.Unbatch(batched_tensor=back * 2.0 * batched, batch_index=index, id=key,
                              timeout_micros=20_000_000, shared_name=own_name())
        note("values", [shown(o) for o in both(session, [own], [{x: [2]}, {x: [5]}])])
        note("gradients", [shown(o) for o in both(session, [own, slope], [{x: [2]}, {x: [5]}])])


def two_sessions(target, note):
    """Sessions share a batcher by its name."""

    def start(value):
        with tf.Graph().as_default():
            batched, _, _ = batch([tf.constant([value])], shared_name="sessions share it")
            session = tf1.Session(target)
            return session, batched[0]

    (a, of_a), (b, of_b) = start(1), start(2)
    join = in_thread(a.run, of_a)
    values = [attempt(b.run, of_b).value, join().value]
    note("one batch", sorted(np.concatenate(values).tolist()))
    a.close()
    b.close()


def functions(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x, scale = tf1.placeholder(tf.int32, [None]), tf1.placeholder_with_default(10, [])
        # all rows are there at once: size 2
        result = call(lambda x, k: x * k + tf.size(x), [x], [scale])
        note("two steps", [shown(o) for o in both(session, result, [{x: [1]}, {x: [2]}])])
        note("full", attempt(session.run, result, {x: [3, 4]}))
        note("nothing", attempt(session.run, result, {x: []}))
        late = call(lambda x: x + tf.size(x), [x], max_batch_size=100, allowed_batch_sizes=[4, 100],
                    batch_timeout_micros=1000, shared_name=own_name())
        note("padded", attempt(session.run, late, {x: [1, 2]}))
        split = call(lambda x: x + tf.size(x), [x], max_batch_size=8, allowed_batch_sizes=[1, 2],
                     batch_timeout_micros=1000, enable_large_batch_splitting=True)
        note("split", attempt(session.run, split, {x: [1, 2, 3, 4, 5]}))
        adaptive = call(lambda x: x + 1, [x], num_batch_threads=0, batch_timeout_micros=0)
        note("adaptive", attempt(session.run, adaptive, {x: [1]}))
        several = call(lambda x, y: (tf.as_string(y), x + 1), [x, tf.cast(x, tf.float32)],
                       types=[tf.string, tf.int32], batch_timeout_micros=0)
        note("several", attempt(session.run, several, {x: [1, 2]}))


def decorated(target, note):
    """TensorFlow's own decorator, a variable inside, and a loop."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(WORKER0):
            weight = tf1.get_variable("weight", initializer=3.0, use_resource=True)

            @tf.nondifferentiable_batch_function(1, 2, LONG_US)
            def computation(x):
                return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * weight), [0, x])[
                    1]

            x = tf1.placeholder(tf.float32, [1])
            result = computation(x)
        session.run(weight.initializer)
        note("rows", [shown(o) for o in both(session, [result], [{x: [1]}, {x: [2]}])])


def wrong(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x, y = tf1.placeholder(tf.int32, None), tf1.placeholder(tf.int32, None)

        def note_batch(name, feeds, inputs=(x, y), **attrs):
            note(name, attempt(session.run, batch(list(inputs), **attrs)[0],
                               dict(zip(inputs, feeds))))

        note_batch("rows differ", ([0], [1, 2]))
        note_batch("scalar", (0,), (x,))
        note_batch("too large", ([1, 2, 3],), (x,))
        note_batch("threads", ([1],), (x,), num_batch_threads=0)
        note_batch("size", ([1],), (x,), max_batch_size=0)
        note_batch("time", ([1],), (x,), batch_timeout_micros=-1)
        note_batch("falling", ([1],), (x,), allowed_batch_sizes=[2, 1])
        note_batch("last", ([1],), (x,), allowed_batch_sizes=[1])

        def note_call(name, function, value, **attrs):
            note(name, attempt(session.run,
                               call(function, [x], **{"batch_timeout_micros": 0, **attrs}),
                               {x: value}))

        note_call("scalar result", tf.reduce_sum, [1])
        note_call("rows of the result", lambda x: tf.concat([x, x], 0), [1])
        note_call("inside", lambda x: tf.raw_ops.Reshape(tensor=x, shape=[7]), [1])
        note_call("too large", lambda x: x, [1, 2, 3])
        note_call("too large to split", lambda x: x, [1, 2, 3, 4, 5], max_batch_size=9,
                  allowed_batch_sizes=[2], max_enqueued_batches=2,
                  enable_large_batch_splitting=True)
        note_call("last", lambda x: x, [1], allowed_batch_sizes=[1])


def unbatch_alone(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        rows, index, key = tf1.placeholder(tf.int32, None), tf1.placeholder(
            tf.int64, None), tf1.placeholder(tf.int64, None)
        with tf.device(WORKER0):
            own = R.Unbatch(batched_tensor=rows, batch_index=index, id=key, timeout_micros=1000,
                            shared_name=own_name())
            back = R.UnbatchGrad(original_input=rows, batch_index=index, grad=rows, id=key,
                                 shared_name=own_name())
        for name, feeds in {
            "own": ([1, 2, 3], [[7, 0, 2]], 7),
            "sizes count": ([1, 2, 3], [[6, 5, 6], [7, 1, 2]], 7),
            "too many": ([1, 2, 3], [[7, 0, 2], [8, 2, 5]], 7),
            "too many keys": ([1, 2, 3], [[8, 0, 1]] * 4, 7),
        }.items():
            note(name, attempt(session.run, own, dict(zip((rows, index, key), feeds))))
        for name, feeds in {"own": ([1, 2], [[7, 0, 2]], 7),
                            "no index": ([1, 2], np.zeros((0, 3)), 8),
                            "no rows": ([], np.zeros((0, 3)), 9), "key": ([1], [[1, 0, 1]], [1, 1]),
                            "index": ([1], [[0, 0]], 3)}.items():
            note(f"back: {name}", attempt(session.run, back, dict(zip((rows, index, key), feeds))))


def never_arrives(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(WORKER0):
            own = R.Unbatch(batched_tensor=tf1.placeholder_with_default([0], [None])[:0],
                            batch_index=tf.zeros([0, 3], tf.int64), id=tf.constant(5, tf.int64),
                            timeout_micros=10_000, shared_name=own_name())
        note("in vain", attempt(session.run, own))


def cancelled(target, note):
    """A step that ends before its batch is full is not part of it."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.int32, [1])
        batched, _, _ = batch([x])
        result = call(lambda x: x + 1, [x])
        short = tf1.RunOptions(timeout_in_ms=100)
        for name, fetch in (("batch", batched[0]), ("function", result[0])):
            note(f"{name} ends", attempt(session.run, fetch, {x: [1]}, options=short).code)
            outcomes = both(session, fetch, [{x: [2]}, {x: [3]}])
            note(f"{name} goes on", sorted(v for o in outcomes for v in o.value.tolist()))


def crowd(target, note):
    """Sixteen threads, each in steps of its own: everybody gets his own rows."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.int32, [None])
        result = call(lambda x: x * 2, [x], max_batch_size=8, batch_timeout_micros=2000,
                      num_batch_threads=2, max_enqueued_batches=100)
        wrong_ones = []

        def work(k):
            for i in range(20):
                mine = np.arange(1 + (k + i) % 3) + 100 * k + i
                if not np.array_equal(session.run(result, {x: mine})[0], 2 * mine):
                    wrong_ones.append((k, i))

        joins = [in_thread(work, k) for k in range(16)]
        note("codes", {str(join()) for join in joins})
        note("wrong", wrong_ones)


def scripts():
    yield "batch/two_steps", two_steps
    yield "batch/padded", padded
    yield "batch/there_and_back", there_and_back
    yield "batch/two_sessions", two_sessions
    yield "batch/functions", functions
    yield "batch/decorated", decorated
    yield "batch/wrong", wrong
    yield "batch/unbatch_alone", unbatch_alone
    yield "batch/never_arrives", never_arrives
    # TensorFlow's batches keep what has been cancelled
    yield "batch/cancelled", cancelled, {"ours_only": True}
    yield "batch/crowd", crowd
