"""Every kind of wait, ended in every way: the client of test_waits.py. For each pair a line of
JSON; the test looks at what it says.

    wait_programs.py TARGET MASTER_ADMIN_PORT [NAME...]

What is waited for lies on the parameter server, under a shared name. One session's step waits,
/stepz of the master shows that it does; then the end comes, and another session looks at what was
waited for: it is as it was before, and works. A line {"kill": true} asks for the parameter server
to be killed, and started again; a line on stdin says that it has been.
"""
import json
import os
import sys
import threading
import time
import urllib.request

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.ops import data_flow_ops  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
tf1.disable_control_flow_v2()
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
TARGET, ADMIN = sys.argv[1], sys.argv[2]
DEADLINE_S = 60
TIMEOUT_MS = 150


def say(**what):
    print(json.dumps(what), flush=True)


def attempt(function, *arguments, **keywords):
    """(value, 0) or (message, the error's code)."""
    try:
        return function(*arguments, **keywords), 0
    except tf.errors.OpError as error:
        return error.message, error.error_code


def stepz():
    with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN}/stepz", timeout=10) as reply:
        return reply.read().decode()


def until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not (got := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}; steps:\n{stepz()}")
        time.sleep(0.002)
    return got


def plain(value):
    return np.asarray(value).tolist()


class Wait:
    """`waiter` waits; prepare() makes it so, look() is what an ended wait must leave as it was,
    use() ends with what proves that it works."""

    def __init__(self, name):
        self.name = name

    def prepare(self, session):
        pass

    def prepare_anew(self, session):
        """After its task's death: as an ended wait would have left it."""
        self.prepare(session)

    def feeds(self):
        return {}

    def begin(self, session):
        """What the waiting thread runs, given more fetches."""
        return lambda more, **options: session.run([self.waiter, *more], self.feeds(), **options)


class Dequeue(Wait):
    def __init__(self, kind, how, found):
        super().__init__(f"{kind}.{how}")
        self.found = found  # elements that are there, too few
        make = {"FIFOQueue": lambda **k: tf1.FIFOQueue(9, [tf.int64], [[]], **k),
                "PaddingFIFOQueue": lambda **k: tf1.PaddingFIFOQueue(9, [tf.int64], [[]], **k),
                # fmt: skip
                "RandomShuffleQueue": lambda **k: tf1.RandomShuffleQueue(
                    9, 0, [tf.int64], [[]], **k),
                "PriorityQueue": lambda **k: tf1.PriorityQueue(9, [tf.int64], [[]], **k)}
        self.queue = make[kind](shared_name=self.name)
        self.x = tf1.placeholder(tf.int64, [None])
        self.put, self.size = self.queue.enqueue_many(
            [self.x] * len(self.queue.dtypes)), self.queue.size()
        n = 3
        take = {"dequeue": lambda: self.queue.dequeue(name="waiter"),
                "dequeue_many": lambda: self.queue.dequeue_many(n, name="waiter"),
                "dequeue_up_to": lambda: self.queue.dequeue_up_to(n, name="waiter")}  # fmt: skip
        self.waiter, self.n = take[how](), 1 if how == "dequeue" else n
        self.take_all = self.queue.dequeue_many(self.n)
        if kind == "PriorityQueue":
            self.waiter, self.take_all = self.waiter[1], self.take_all[1]
        self.is_ordered = kind != "RandomShuffleQueue"

    def prepare(self, session):
        if self.found:
            session.run(self.put, {self.x: self.found})

    def look(self, session):
        return plain(session.run(self.size))

    def use(self, session):
        more = list(range(10, 10 + self.n - len(self.found)))
        session.run(self.put, {self.x: more})
        got = plain(session.run(self.take_all))
        return (got if self.is_ordered else sorted(got)) == [*self.found, *more] and self.look(
            session) == 0


class Enqueue(Wait):
    def __init__(self, many):
        super().__init__("enqueue_many" if many else "enqueue")
        self.queue = tf1.FIFOQueue(2, [tf.int64], [[]], shared_name=self.name)
        values = tf.constant([7, 8, 9], tf.int64) if many else tf.constant(9, tf.int64)
        self.fill = self.queue.enqueue_many([tf.constant([7, 8], tf.int64)])
        put = self.queue.enqueue_many([values], name="waiter") if many else self.queue.enqueue(
            [values], name="waiter")
        with tf.control_dependencies([put]):
            self.waiter = tf.constant(1)
        self.size, self.take = self.queue.size(), self.queue.dequeue_many(2)
        self.many = many

    def prepare(self, session):
        if not self.many:
            session.run(self.fill)

    def prepare_anew(self, session):
        session.run(self.fill)

    def look(self, session):
        return 2 if self.many else plain(session.run(self.size))  # what had room stays

    def use(self, session):
        return plain(session.run(self.take)) == [7, 8] and plain(session.run(self.size)) == 0


class TakeFromBarrier(Wait):
    def __init__(self):
        super().__init__("barrier")
        barrier = data_flow_ops.Barrier((tf.int64, tf.int64), shapes=((), ()),
                                        shared_name=self.name)
        self.keys = tf1.placeholder(tf.string, [None])
        x = tf.cast(tf.strings.length(self.keys), tf.int64)
        self.insert = [barrier.insert_many(0, self.keys, x),
                       barrier.insert_many(1, self.keys, x * 2)]
        self.sizes = [barrier.ready_size(), barrier.incomplete_size()]
        indices, keys, values = barrier.take_many(2, name="waiter")
        self.waiter = keys
        again = barrier.take_many(2)
        self.take = [again[1], *again[2]]

    def prepare(self, session):
        session.run(self.insert, {self.keys: ["a"]})

    def look(self, session):
        return plain(session.run(self.sizes))

    def use(self, session):
        session.run(self.insert, {self.keys: ["bb"]})
        return [plain(v) for v in session.run(self.take)] == [[b"a", b"bb"], [1, 2], [2, 4]]


class TakeGradient(Wait):
    def __init__(self, is_sparse):
        super().__init__("sparse_accumulator" if is_sparse else "accumulator")
        self.x = tf1.placeholder(tf.float32, [2])
        if is_sparse:
            accumulator = tf1.SparseConditionalAccumulator(tf.float32, [9], shared_name=self.name)
            rows = tf.IndexedSlices(self.x, tf.constant([1, 3], tf.int64),
                                    tf.constant([9], tf.int64))
            self.apply = accumulator.apply_indexed_slices_grad(rows, local_step=1 << 40)
            self.waiter, self.take = (accumulator.take_indexed_slices_grad(2, name=name).values
                                      for name in ("waiter", "again"))
        else:
            accumulator = tf1.ConditionalAccumulator(tf.float32, [2], shared_name=self.name)
            self.apply = accumulator.apply_grad(self.x, local_step=1 << 40)
            self.waiter, self.take = accumulator.take_grad(2, name="waiter"), accumulator.take_grad(
                2)
        self.count = accumulator.num_accumulated()

    def prepare(self, session):
        session.run(self.apply, {self.x: [1.0, 2.0]})

    def look(self, session):
        return plain(session.run(self.count))

    def use(self, session):
        session.run(self.apply, {self.x: [3.0, 6.0]})
        return plain(session.run(self.take)) == [2.0, 4.0] and self.look(session) == 0


class Stage(Wait):
    def __init__(self, is_full, by_key):
        super().__init__(("map_" if by_key else "") + ("stage" if is_full else "unstage"))
        self.is_full = is_full
        if by_key:
            area = data_flow_ops.MapStagingArea([tf.int64], [[]], shared_name=self.name, capacity=1)
            # noqa: E731
            put = lambda name=None: area.put(tf.constant(5, tf.int64), [tf.constant(7, tf.int64)],
                                             indices=[0], name=name)
            # noqa: E731
            get = lambda name=None: area.get(tf.constant(5, tf.int64), name=name)[1][0]
        else:
            area = data_flow_ops.StagingArea([tf.int64], [[]], shared_name=self.name, capacity=1)
            put = lambda name=None: area.put([tf.constant(7, tf.int64)], name=name)  # noqa: E731
            get = lambda name=None: area.get(name=name)[0]  # noqa: E731
        self.put, self.get, self.size = put(), get(), area.size()
        if is_full:
            with tf.control_dependencies([put("waiter")]):
                self.waiter = tf.constant(1)
        else:
            self.waiter = get("waiter")

    def prepare(self, session):
        if self.is_full:
            session.run(self.put)

    def look(self, session):
        return plain(session.run(self.size))

    def use(self, session):
        if not self.is_full:
            session.run(self.put)
        return plain(session.run(self.get)) == 7 and self.look(session) == 0


class Lock(Wait):
    """Another step holds the mutex until a queue has something."""

    def __init__(self):
        super().__init__("mutex")
        mutex = tf.raw_ops.MutexV2(shared_name=self.name)
        with tf.name_scope("held"):
            queue = tf1.FIFOQueue(1, [tf.int64], [[]], shared_name="release")
            self.release = queue.enqueue([tf.constant(1, tf.int64)])
            lock = tf.raw_ops.MutexLock(mutex=mutex)
            with tf.control_dependencies([lock]):
                taken = queue.dequeue(name="holder")
            with tf.control_dependencies([taken]):
                self.hold = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        lock = tf.raw_ops.MutexLock(mutex=mutex, name="waiter")
        with tf.control_dependencies([tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)]):
            self.waiter = tf.constant(1)
        lock = tf.raw_ops.MutexLock(mutex=mutex)
        with tf.control_dependencies([tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)]):
            self.again = tf.constant(2)

    def prepare(self, session):
        self.outcomes = []
        self.thread = threading.Thread(target=lambda: self.outcomes.append(
            attempt(session.run, self.hold)[1]))
        self.thread.start()
        until(lambda: "holder (" in stepz(), "the mutex is not held")

    def look(self, session):
        return "held" if self.thread.is_alive() else "free"

    def use(self, session):
        if self.thread.is_alive():
            session.run(self.release)
        self.thread.join(DEADLINE_S)
        return plain(session.run(self.again)) == 2


class Remote(Dequeue):
    """Another task waits for the value that does not come."""

    def __init__(self):
        super().__init__("FIFOQueue", "dequeue", [])
        self.name = "recv"
        with tf.device(WORKER):
            self.waiter = self.waiter + 1


class InFunction(Dequeue):
    def __init__(self):
        super().__init__("FIFOQueue", "dequeue", [])
        self.name = "function"
        queue = self.queue

        @tf.function(autograph=False)
        def inner():
            return queue.dequeue(name="waiter") * 2

        @tf.function(autograph=False)
        def outer():
            return inner() + 1

        self.waiter = outer()


class InLoop(Dequeue):
    def __init__(self):
        super().__init__("FIFOQueue", "dequeue", [])
        self.name = "loop"
        self.waiter = tf1.while_loop(lambda i, _: i < 3, lambda i,
                                     s: [i + 1, s + self.queue.dequeue(name="waiter")],
                                     [0, tf.constant(0, tf.int64)])[1]


class Iterator(Dequeue):
    """A function that a dataset calls waits."""

    def __init__(self):
        super().__init__("FIFOQueue", "dequeue", [])
        self.name = "iterator"
        queue = self.queue
        dataset = tf1.data.Dataset.range(1000).map(lambda i: queue.dequeue() * 2)
        iterator = tf1.data.make_initializable_iterator(dataset, shared_name="iterator")
        self.make = iterator.initializer
        self.waiter, self.next = iterator.get_next(name="waiter"), iterator.get_next()

    def prepare(self, session):
        session.run(self.make)

    def use(self, session):
        session.run(self.put, {self.x: [21]})
        return plain(session.run(self.next)) == 42


class Partial(Dequeue):
    """The second call of a partial run waits; the step began with the first."""

    def __init__(self):
        super().__init__("FIFOQueue", "dequeue", [])
        self.name = "partial_run"
        self.fed, self.late = tf1.placeholder(tf.int64, []), tf1.placeholder(tf.int64, [])
        self.first = self.fed + 1
        with tf.control_dependencies([self.first, self.late]):
            self.waiter = self.queue.dequeue(name="waiter")

    def begin(self, session):
        def run(more):
            handle = session.partial_run_setup([self.first, self.waiter, *more],
                                               [self.fed, self.late])
            assert session.partial_run(handle, self.first, {self.fed: 1}) == 2
            return session.partial_run(handle, [self.waiter, *more], {self.late: 1})

        return run


def waits():
    for kind in ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue"):
        yield lambda kind=kind: Dequeue(kind, "dequeue", [])
        if kind != "PriorityQueue":
            yield lambda kind=kind: Dequeue(kind, "dequeue_many", [1, 2])
    yield lambda: Dequeue("FIFOQueue", "dequeue_up_to", [1, 2])
    yield from (lambda: Enqueue(False), lambda: Enqueue(True), TakeFromBarrier,
                lambda: TakeGradient(False), lambda: TakeGradient(True))
    yield from (lambda full=full, by_key=by_key: Stage(full, by_key) for full in (True, False)
                for by_key in (True, False))
    yield from (Lock, Remote, InFunction, InLoop, Iterator, Partial)


class Row:
    """One wait in a graph of its own, with what may fail beside it."""

    def __init__(self, make):
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(PS):
            self.wait = make()
            self.bad, self.poke = {}, {}
            for where, device in (("same_task", PS), ("other_task", WORKER)):
                with tf.device(device):
                    queue = tf1.FIFOQueue(1, [tf.int64], [[]], shared_name=f"zero_{where}")
                    self.poke[where] = queue.enqueue([tf.constant(0, tf.int64)])
                    self.bad[where] = tf.math.floordiv(
                        tf.constant(1, tf.int64), queue.dequeue(name=f"zero_{where}"))
        self.open()

    def open(self, **config):
        self.survivor = tf1.Session(TARGET, graph=self.graph)
        self.victim = tf1.Session(TARGET, graph=self.graph, config=tf1.ConfigProto(**config))

    def start(self, more=(), **options):
        """The wait, in a thread; returns when it waits."""
        n_waiters = stepz().count("waiter")
        self.ended, run = [], self.wait.begin(self.victim)

        def wait():
            message, code = attempt(run, more, **options)
            self.ended.append((time.monotonic(), code, str(message)[:300]))

        self.thread = threading.Thread(target=wait)
        self.thread.start()
        until(lambda: stepz().count("waiter") > n_waiters or self.ended,
              f"{self.wait.name} does not wait")

    def finish(self, end, since, before):
        self.thread.join(DEADLINE_S)
        if not self.ended:
            return say(wait=self.wait.name, end=end, hangs=True, steps=stepz())
        at, code, message = self.ended[0]
        return say(wait=self.wait.name, end=end, code=code, message=message, took_s=at - since,
                   before=before, after=self.wait.look(self.survivor),
                   works=bool(self.wait.use(self.survivor)))  # fmt: skip

    def timeout(self, is_sessions):
        """The step's own, or that of the session's operations."""
        if is_sessions:
            self.victim = tf1.Session(TARGET, graph=self.graph,
                                      config=tf1.ConfigProto(operation_timeout_in_ms=TIMEOUT_MS))
        before, began = self.wait.look(self.survivor), time.monotonic()
        self.start(**({} if is_sessions else {"options": tf1.RunOptions(timeout_in_ms=TIMEOUT_MS)}))
        return began + TIMEOUT_MS / 1000, before

    def closed(self):
        before = self.wait.look(self.survivor)
        self.start()
        began = time.monotonic()
        self.victim.close()
        return began, before

    def failed(self, where):
        before = self.wait.look(self.survivor)
        self.start([self.bad[where]])
        until(lambda: f"zero_{where} (" in stepz(), "what fails beside it does not wait")
        began = time.monotonic()
        self.survivor.run(self.poke[where])
        return began, before

    def reset(self):
        before = self.wait.look(self.survivor)
        self.start()
        began = time.monotonic()
        tf1.Session.reset(TARGET, ["a container of nobody"])
        self.survivor = tf1.Session(TARGET, graph=self.graph)
        if isinstance(self.wait, Lock):  # its holder was a step of a session, too
            self.wait.thread.join(DEADLINE_S)
            before = self.wait.look(self.survivor)
        return began, before

    def close(self):
        for session in (self.victim, self.survivor):
            attempt(session.close)


ENDS = {
    "timeout": lambda row: row.timeout(False),
    "operation_timeout": lambda row: row.timeout(True),
    "close": Row.closed,
    "error_same_task": lambda row: row.failed("same_task"),
    "error_other_task": lambda row: row.failed("other_task"),
    "reset": Row.reset,
}


def one(make, name):
    tf1.Session.reset(TARGET)
    row = Row(make)
    row.wait.prepare(row.survivor)
    row.finish(name, *ENDS[name](row))
    row.close()


def killed():
    """All of them at once: one death ends all waits. What lay on the dead task is gone; made anew,
    it works."""
    tf1.Session.reset(TARGET)
    rows = [Row(make) for make in waits() if make is not Lock]
    for row in rows:
        row.wait.prepare(row.survivor)
        row.start()
    until(lambda: stepz().count("waiter") >= len(rows), "not all wait")
    say(kill=True)
    since = json.loads(sys.stdin.readline())["at"]
    for row in rows:
        row.thread.join(DEADLINE_S)
        row.close()
    until(lambda: attempt(tf1.Session.reset, TARGET)[1] == 0, "the task is not back")
    for row in rows:
        row.open()
        until(lambda row=row: attempt(row.wait.prepare_anew, row.survivor)[1] == 0,
              "the task does not come back")
        row.finish("kill", since, row.wait.look(row.survivor))
        row.close()


def main():
    names = sys.argv[3:]
    for end in names:
        if end == "kill":
            killed()
            continue
        for make in waits():
            if end != "timeout" or make is not Partial:  # partial runs take no options
                one(make, end)
    say(done=True)


try:
    main()
except BaseException as error:  # whoever reads the pipe is told
    import traceback

    say(failed=traceback.format_exc(limit=-4))
    os._exit(1)
os._exit(0)
