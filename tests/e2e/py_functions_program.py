"""The client of test_py_functions.py. Each case runs in process and on the cluster, with equal
results.

    py_functions_program.py compare TARGET   prints {"case": …, "ours": …, "theirs": …} per case
    py_functions_program.py restart TARGET   calls a function of this process until its input ends
    py_functions_program.py large TARGET     the same, with 4 MiB both ways
"""
import json
import os
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "client", "python"))

import millrace  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_eager_execution()
WORDS = (
    "a word",
    "is int32, but expects float",
    "returns 2 values, but expects to see 1 values",
     "Error: ")
ERRORS = (
    ValueError,
    TypeError,
    NotImplementedError,
    MemoryError,
    KeyError,
    ZeroDivisionError,
     StopIteration)


def plain(value):
    """A fetched value as JSON: dtype, shape and elements."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    array = np.asarray(value)
    if array.dtype == object:
        return ["string", list(array.shape), [v.hex() for v in array.reshape(-1).tolist()]]
    return [str(array.dtype), list(array.shape), [repr(v) for v in array.reshape(-1).tolist()]]


def outcome(run):
    try:
        return plain(run())
    except tf.errors.OpError as e:
        return {"code": e.error_code, "says": [word for word in WORDS if word in e.message]}


# ---- cases: each takes a session and answers with what is compared ----

def every_dtype(session):
    out = []
    for dtype in (
    tf.float16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.bool,
    tf.complex64,
    tf.complex128,
     tf.bfloat16): # fmt: skip
        for shape in ((), (3,), (2, 0), (2, 3, 4), (1, 1, 1, 1, 1, 2)):
            value = (
    np.arange(
        np.prod(
            shape,
            dtype=int)) %
            2).reshape(shape).astype(
                dtype.as_numpy_dtype)
            fetch = tf.numpy_function(lambda a: (a, a[..., None]), [
                                      tf.constant(value, dtype)], [dtype, dtype])
            out.append(outcome(lambda: [v.astype(np.complex128) for v in session.run(fetch)]))
    return out


def strings(session):
    texts = tf.constant([[b"", b"a"], [b"\x00\xff", b"x" * 300]])

    def longer(rows):
        return np.array([[text + b"!" for text in row] for row in rows], dtype=object)

    fetches = [tf.numpy_function(longer, [texts], tf.string),
               tf.numpy_function(lambda: np.array([b"\xc3\xa9", b"bc"], dtype=object), [],
                                 tf.string)]
    return plain(session.run(fetches))


def many_values(session):
    fetch = tf.numpy_function(lambda *a: a[::-1], [tf.constant(float(i))
                              for i in range(40)], [tf.float32] * 40)
    return plain(session.run(fetch))


def nothing(session):
    seen = []
    node = tf1.py_func(lambda a: seen.append(float(a)), [tf.constant(2.0)], [])
    session.run(node)
    return seen


def large(session):
    value = tf.random.stateless_uniform([3, 1 << 20], [1, 2])
    doubled = tf.numpy_function(lambda a: a * 2, [value], tf.float32)
    return plain(session.run(tf.reduce_max(tf.abs(doubled - value * 2))))


def kept_arguments(session):
    """A function may keep its arguments, also while others come and go."""
    kept, x = [], tf1.placeholder(tf.int32, [None])
    fetch = tf.numpy_function(lambda a: (kept.append(a), np.int64(len(kept)))[1], [x], tf.int64)
    for i in range(12):
        session.run(fetch, {x: np.full(1 << 18, i, np.int32)})
    return [[int(a[0]), int(a[-1]), a.size] for a in kept]


def large_kinds(session):
    """Large values of each kind, empty ones, strings and small ones beside them, both ways."""
    values = [np.arange(1 << 17) % 2 == 0, np.arange(1 << 17, dtype=np.int8),
              np.arange(1 << 17).astype(np.complex64), np.array([b"x" * 70000, b""], dtype=object),
              np.zeros([0, 1 << 20], np.float32), np.float64(3),
              np.ones([1 << 8, 1 << 8], np.float64)]
    tensors = [tf.constant(v) for v in values]
    fetches = tf.numpy_function(lambda *a: a[::-1], tensors, [t.dtype for t in tensors[::-1]])
    found = session.run(fetches)
    same = [bool(np.array_equal(a, b)) and a.dtype == np.asarray(b).dtype
            for a, b in zip(found, values[::-1])]
    transposed = tf.numpy_function(lambda a: a.T, [tf.constant(values[2].reshape(2, -1))],
                                   tf.complex64)
    return same, plain(session.run(tf.shape(transposed))), plain(session.run(transposed)[5])


def many_at_a_time(session):
    """More bytes at a time than the shared memory has."""
    parts = [tf.numpy_function(lambda a: a + 1, [tf.fill([1 << 22], i)], tf.int32)
             for i in range(20)]
    return plain(session.run(tf.stack([tf.reduce_sum(tf.cast(p, tf.int64)) for p in parts])))


def eager(session):
    x = tf.constant([1.0, 2.0, 3.0])
    y = tf.py_function(lambda a: tf.reduce_sum(a * a), [x], tf.float32)
    return plain(session.run([y, tf1.gradients(y, x)[0]]))


def failures(session):
    def raising(error):
        def function():
            raise error("a word")
        return function

    out = [outcome(lambda: session.run(tf.numpy_function(raising(e), [], tf.float32)))
                   for e in ERRORS]
    wrong_type = tf.numpy_function(lambda: np.int32(1), [], tf.float32)
    wrong_count = tf.numpy_function(lambda: (1.0, 2.0), [], [tf.float64])
    return out + [outcome(lambda: session.run(f)) for f in (wrong_type, wrong_count)]


def drain(session, dataset):
    iterator = tf1.data.make_initializable_iterator(dataset)
    element, rows = iterator.get_next(), []
    session.run(iterator.initializer)
    try:
        while True:
            rows.append(plain(session.run(element)))
    except tf.errors.OutOfRangeError:
        return rows


def generator(session):
    ended = []

    def elements():
        try:
            for i in range(4):
                yield i, np.arange(i, dtype=np.float32), b"t%d" % i
        finally:
            ended.append(True)

    dataset = tf.data.Dataset.from_generator(
    elements, (tf.int64, tf.float32, tf.string), ((), (None,), ()))
    rows = drain(session, dataset.map(lambda a, b, c: (a * 2, b, c)).prefetch(2)
                 ), drain(session, dataset.repeat(2).batch(1).skip(3))
    return rows, len(ended)


def generator_that_fails(session):
    def elements():
        yield 1
        raise ValueError("a word")

    iterator = tf1.data.make_initializable_iterator(
        tf.data.Dataset.from_generator(elements, tf.int64))
    element = iterator.get_next()
    session.run(iterator.initializer)
    return [outcome(lambda: session.run(element)) for _ in range(2)]


def in_a_loop(session):
    start = tf.constant(0)
    fetch = tf1.while_loop(
    lambda i: i < 10,
    lambda i: tf.reshape(
        tf.numpy_function(
            lambda a: a +
            np.int32(2),
            [i],
            tf.int32),
            ()),
             [start])
    return plain(session.run(fetch))


def in_a_branch(session):
    which = tf1.placeholder(tf.bool, [])
    fetch = tf1.cond(
    which,
    lambda: tf.numpy_function(
        lambda: np.float32(1),
        [],
        tf.float32),
         lambda: tf.constant(2.0))
    return [plain(session.run(fetch, {which: w})) for w in (True, False)]


CASES = (
    every_dtype,
    strings,
    many_values,
    nothing,
    large,
    large_kinds,
    kept_arguments,
    many_at_a_time,
    eager,
    failures,
    generator,
    generator_that_fails,
    in_a_loop,
     in_a_branch)


def waiting_for_each_other(session):
    """More functions at a time than cores, each waiting for all others."""
    barrier = threading.Barrier(20)
    fetches = [
    tf.numpy_function(
        lambda: np.int64(
            barrier.wait(60)),
            [],
             tf.int64) for _ in range(20)]
    return sorted(int(v) for v in session.run(fetches)) == list(range(20))


def cancelled(session):
    """A step whose function does not return ends at its deadline, and other functions still run."""
    release = threading.Event()
    stuck = tf.numpy_function(lambda: np.int64(release.wait(60)), [], tf.int64)
    try:
        session.run(stuck, options=tf1.RunOptions(timeout_in_ms=300))
        return "no error"
    except tf.errors.DeadlineExceededError:
        after = int(session.run(tf.numpy_function(lambda: np.int64(7), [], tf.int64)))
        release.set()
        return after


def unserved(session):
    try:
        session.run(tf.numpy_function(lambda: np.int64(7), [], tf.int64))
        return "no error"
    except tf.errors.FailedPreconditionError as e:
        return "millrace.py_functions(target)" in e.message


def run_case(case, target):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        return case(session)


def compare(target):
    theirs = {case.__name__: run_case(case, "") for case in CASES}
    with millrace.py_functions(target):
        for case in CASES:
            print(json.dumps({"case": case.__name__, "ours": run_case(
                case, target), "theirs": theirs[case.__name__]}), flush=True)
        for case, wanted in ((waiting_for_each_other, True), (cancelled, 7)):
            print(json.dumps({"case": case.__name__, "ours": run_case(
                case, target), "theirs": wanted}), flush=True)
    print(json.dumps({"case": "unserved", "ours": run_case(
        unserved, target), "theirs": True}), flush=True)


def small_call():
    return tf.numpy_function(lambda: np.int64(7), [], tf.int64), lambda value: value == 7


def large_call():
    value = tf.reshape(tf.range(1 << 20), [1 << 10, 1 << 10])
    sums = tf.reduce_sum(tf.cast(tf.numpy_function(lambda a: a + 1, [value], tf.int32), tf.int64))
    return sums, lambda got: got == (1 << 20) * ((1 << 20) + 1) // 2


def repeat(target, call):
    """Prints "ok" for each step that succeeds, else the error's code, until its input ends."""
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    with millrace.py_functions(target), tf.Graph().as_default():
        with tf1.device("/job:worker/task:0"):
            fetch, is_right = call()
        session = tf1.Session(target)
        while not is_over.is_set():
            try:
                got = session.run(fetch, options=tf1.RunOptions(timeout_in_ms=20_000))
                print("ok" if is_right(got) else f"wrong: {got}", flush=True)
            except tf.errors.OpError as e:
                print(e.error_code, flush=True)


if __name__ == "__main__":
    {"compare": compare, "restart": lambda target: repeat(target, small_call),
     "large": lambda target: repeat(target, large_call)}[sys.argv[1]](sys.argv[2])
