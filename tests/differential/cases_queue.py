"""Cases of the queue, barrier, accumulator, staging and mutex families that run as steps one after
the other; what blocks: programs_queue.py."""

import numpy as np
import oracle
import tensorflow as tf

raw = tf.raw_ops
HIDDEN = {"modes": ("hidden",)}  # TensorFlow's shape functions would refuse the graph
CLASSES = ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue")


def steps(*items):
    """A step each: a list of fetches, or an operation to run."""
    made = []
    for item in items:
        if isinstance(item, tf.Operation):
            made.append(oracle.Step(targets=[item]))
        else:
            made.append(oracle.Step(fetches=list(item) if isinstance(item, (list, tuple))
                                    else [item]))
    return made


class Queue:
    """A queue and the ops on it, in one of the two forms of handles."""

    def __init__(self, kind, types, shapes=(), form="V2", capacity=-1, **attrs):
        self.form, self.types = form, [tf.as_dtype(t) for t in types]
        self.first = [tf.int64] if kind.startswith("PriorityQueue") else []
        self.handle = getattr(raw, kind + form)(component_types=self.types, shapes=list(shapes),
                                                capacity=capacity, **attrs)

    def _op(self, name):
        return getattr(raw, name + self.form)

    def enqueue(self, *components, **attrs):
        return self._op("QueueEnqueue")(handle=self.handle,
                                        components=[oracle.const(c) for c in components], **attrs)

    def enqueue_many(self, *components):
        return self._op("QueueEnqueueMany")(handle=self.handle,
                                            components=[oracle.const(c) for c in components])

    def dequeue(self, types=None, **attrs):
        return self._op("QueueDequeue")(handle=self.handle, component_types=types or self.first
                                        + self.types, **attrs)

    def dequeue_many(self, n, types=None):
        return self._op("QueueDequeueMany")(handle=self.handle,
                                            n=oracle.const(np.array(n, np.int32)),
                                            component_types=types or self.first + self.types)

    def dequeue_up_to(self, n):
        return self._op("QueueDequeueUpTo")(handle=self.handle,
                                            n=oracle.const(np.array(n, np.int32)),
                                            component_types=self.first + self.types)

    def close(self, cancel=False):
        return self._op("QueueClose")(handle=self.handle, cancel_pending_enqueues=cancel)

    def size(self):
        return self._op("QueueSize")(handle=self.handle)

    def is_closed(self):
        return self._op("QueueIsClosed")(handle=self.handle)


def i64(*values):
    return np.array(values, np.int64)


def f32(*values):
    return np.array(values, np.float32)


def i32(*values):
    return np.array(values, np.int32)


# ---- queues ----


def fifo_round_trip(kind, dtype, form):
    rng = np.random.default_rng(7)
    one, many = oracle.sample(rng, dtype, (2, 3)), oracle.sample(rng, dtype, (4, 2, 3))
    q = Queue(kind, [dtype, "string"], [[2, 3], []], form=form)
    return steps(
        q.enqueue(one, np.array(b"x", object)), q.size(),
        q.enqueue_many(many, np.array([b"a", b"", b"cc", b"d"], object)), q.size(),
        q.dequeue(), q.dequeue_many(2), q.dequeue_many(0), q.is_closed(), q.close(), q.is_closed(),
        q.dequeue_up_to(5), q.size(),
    )  # fmt: skip


def closed(kind, form):
    priority = [np.int64(3)] if kind == "PriorityQueue" else []
    priorities = [i64(4, 2)] if kind == "PriorityQueue" else []
    q = Queue(kind, ["int32"], [[]], form=form)
    # TensorFlow's loses the elements of a small batch by priority
    small = q.dequeue() if kind == "PriorityQueue" else q.dequeue_up_to(4)
    return steps(
        q.enqueue(*priority, np.int32(1)), q.close(), q.close(), q.close(True),
        q.enqueue(*priority, np.int32(1)), q.enqueue_many(*priorities, i32(1, 2)),
        q.enqueue_many(*[p[:0] for p in priorities], i32()), q.dequeue_many(2), q.size(), small,
        q.dequeue(), q.dequeue_many(1), q.dequeue_up_to(1),
        q.dequeue_up_to(0), q.dequeue_many(-1), q.dequeue_up_to(-1), q.is_closed(),
    )  # fmt: skip


def refused(form):
    q, any_shape, two = Queue("FIFOQueue", ["int32"], [[2]], form=form), Queue(
        "FIFOQueue", ["int32"], form=form), Queue("FIFOQueue", ["int32", "int32"], form=form)
    return steps(
        q.enqueue(np.int32(1)), q.enqueue(f32(1, 2)), q.enqueue(i32(1, 2), np.int32(1)),
        q.enqueue_many(i32(1, 2)), q.enqueue_many(np.ones((1, 3), np.int32)),
        q.dequeue([tf.float32]), q.dequeue([tf.int32, tf.int32]), q.dequeue_many(1, [tf.string]),
        any_shape.dequeue_many(1), any_shape.dequeue_up_to(0),
        two.enqueue_many(i32(1, 2), i32(1)), two.enqueue(i32(1)), q.size(), any_shape.size(),
        two.size(),
    )  # fmt: skip


def any_shapes(form):
    q = Queue("FIFOQueue", ["float32", "string"], form=form, capacity=4)
    return steps(
        q.enqueue(f32(1, 2, 3), np.array(b"v", object)),
        q.enqueue(np.float32(4), np.array([b"a", b"b"], object)),
        q.enqueue_many(np.ones((2, 3), np.float32), np.array([[b"p"], [b"q"]], object)),
        q.dequeue(), q.dequeue(), q.dequeue(), q.dequeue(), q.size(),
    )  # fmt: skip


def padding(form):
    q = Queue("PaddingFIFOQueue", ["float32", "string", "int64"], [[None, 2], [None], []],
              form=form)
    words = np.array([b"one", b"two"], object)
    return steps(
        q.enqueue(np.ones((1, 2), np.float32), words, np.int64(1)),
        q.enqueue(np.full((3, 2), 2, np.float32), words[:1], np.int64(2)),
        q.enqueue(np.ones((0, 2), np.float32), words[:0], np.int64(3)),
        q.enqueue_many(np.full((2, 2, 2), 5, np.float32), np.array([[b"x"], [b"y"]], object),
                       i64(4, 5)),
        q.enqueue(f32(1), words, np.int64(1)),
        q.enqueue(np.ones((1, 1), np.float32), words, np.int64(1)),
        q.enqueue_many(np.ones((1, 1, 2), np.float32), words, i64(1)),
        q.dequeue_many(3), q.dequeue_many(0), q.dequeue(), q.close(), q.dequeue_many(2),
        q.dequeue_up_to(2), q.dequeue(), q.dequeue_up_to(1),
    )  # fmt: skip


def padding_rank3():
    q = Queue("PaddingFIFOQueue", ["int32"], [[None, None, None]])
    made = [np.arange(a * b * c, dtype=np.int32).reshape(a, b, c) + 1 for a, b,
            c in ((1, 2, 3), (2, 1, 1), (3, 3, 0), (2, 2, 2))]
    return steps(*[q.enqueue(m) for m in made], q.dequeue_many(4))


def shuffled(form, seed, seed2, min_after):
    q = Queue("RandomShuffleQueue", ["int32", "float32"], [[], []], form=form, capacity=50,
              min_after_dequeue=min_after, seed=seed, seed2=seed2)
    return steps(
        q.enqueue_many(np.arange(20, dtype=np.int32), np.arange(20, dtype=np.float32)), q.dequeue(),
        q.dequeue_many(6), q.dequeue(), q.size(),
        q.enqueue_many(np.arange(20, 30, dtype=np.int32), np.arange(20, 30, dtype=np.float32)),
        q.dequeue_many(7), q.close(), q.dequeue_many(30), q.dequeue_up_to(11), q.dequeue_up_to(11),
        q.dequeue(),
    )  # fmt: skip


def by_priority(form):
    q = Queue("PriorityQueue", ["int32", "string"], [[], []], form=form)
    return steps(
        q.enqueue(np.int64(5), np.int32(50), np.array(b"five", object)),
        q.enqueue_many(i64(9, -3, 7, 1), i32(90, -30, 70, 10),
                       np.array([b"n", b"m", b"s", b"o"], object)),
        q.dequeue(), q.dequeue_many(2),
        q.enqueue(np.int64(6), np.int32(60), np.array(b"six", object)), q.dequeue_many(3), q.size(),
        q.enqueue(i64(1), np.int32(1), np.array(b"", object)),
        q.enqueue(np.int32(1), np.int32(1), np.array(b"", object)),
        q.enqueue_many(np.ones((1, 1), np.int64), i32(1), np.array([b""], object)),
        q.enqueue_many(i64(1, 2), i32(1), np.array([b"", b""], object)),
    )  # fmt: skip


def shared(kind, **attrs):
    types = {"types": ["int32"], "shapes": [[2]]}
    one = Queue(kind, shared_name="s", **types, **attrs)
    two = Queue(kind, shared_name="s", **types, **attrs)
    first = [np.int64(1)] if kind == "PriorityQueue" else []
    others = [Queue(kind, shared_name="s", **{**types, **attrs, **change})
              for change in ({"capacity": 3}, {"types": ["int64"]}, {"shapes": [[3]]})]
    others += [Queue(other, shared_name="s", **types,
                     **({"capacity": attrs["capacity"]} if "capacity" in attrs else {}))
               for other in CLASSES if other != kind]
    return steps(one.enqueue(*first, i32(1, 2)), two.size(), two.dequeue(),
                 *[other.size() for other in others], one.size())


def shared_seeds():
    def make(**change):
        return Queue("RandomShuffleQueue", ["int32"], [[]], shared_name="r",
                     **{"seed": 1, "seed2": 2, "min_after_dequeue": 1, "capacity": 9, **change})

    return steps(*[make(**change).size() for change in ({}, {"seed2": 3}, {"seed": 0, "seed2": 0},
            {"min_after_dequeue": 2}, {"capacity": 10})])


def not_made():
    for name, attrs in {
        "shapes": dict(shapes=[[2], [3]]), "partial": dict(shapes=[[None]]),
        "padding/none": dict(kind="PaddingFIFOQueue"),
        "padding/two": dict(kind="PaddingFIFOQueue", shapes=[[], []]),
        "padding/rank": dict(kind="PaddingFIFOQueue", shapes=[tf.TensorShape(None)]),
        "min": dict(kind="RandomShuffleQueue", capacity=2, min_after_dequeue=3),
        "min/equal": dict(kind="RandomShuffleQueue", capacity=2, min_after_dequeue=2),
        "min/negative": dict(kind="RandomShuffleQueue", min_after_dequeue=-1),
        "priority": dict(kind="PriorityQueue"),
        "priority/two": dict(kind="PriorityQueue", shapes=[[], []]),
    }.items():  # fmt: skip
        yield f"queue/refused/{name}", lambda attrs=attrs: steps(
            Queue(**{"kind": "FIFOQueue", "types": ["int32"], **attrs}).size())


def timeouts():
    q = Queue("FIFOQueue", ["int32"])
    return steps(q.enqueue(np.int32(1), timeout_ms=5), q.enqueue(np.int32(1)),
                 q.dequeue(timeout_ms=5), q.dequeue(timeout_ms=-1))


def fake():
    q = Queue("FIFOQueue", ["int32"])
    handle = raw.FakeQueue(resource=q.handle)
    return steps(q.enqueue(np.int32(5)), raw.QueueSize(handle=handle),
                 raw.QueueDequeue(handle=handle, component_types=[tf.int32]), q.size())


def other_kinds():
    mutex, variable = raw.MutexV2(), raw.VarHandleOp(dtype=tf.int32, shape=[], shared_name="v")
    q = Queue("FIFOQueue", ["int32"])
    return steps(raw.QueueSizeV2(handle=mutex), raw.QueueSizeV2(handle=variable),
                 raw.MutexLock(mutex=q.handle).op)


def capacity_zero():
    q = Queue("FIFOQueue", ["int32"], [[]], capacity=0)
    return steps(q.size(), q.close(), q.enqueue(np.int32(1)))


# ---- barriers ----


class Barrier:
    def __init__(self, types=("int32", "float32"), shapes=((), ()), **attrs):
        self.types = [tf.as_dtype(t) for t in types]
        self.handle = raw.Barrier(component_types=self.types,
                                  shapes=[None if s is None else list(s) for s in shapes], **attrs)

    def insert(self, component, keys, values):
        return raw.BarrierInsertMany(
            handle=self.handle, keys=oracle.const(np.array(keys, object), tf.string),
            values=oracle.const(values), component_index=component
        )

    def take(self, n, small=False, types=None, **attrs):
        n = oracle.const(np.array(n, np.int32))
        out = raw.BarrierTakeMany(handle=self.handle, num_elements=n, component_types=types
                                  or self.types, allow_small_batch=small, **attrs)
        return [out.indices, out.keys, *out.values]

    def close(self, cancel=False):
        return raw.BarrierClose(handle=self.handle, cancel_pending_enqueues=cancel)

    def sizes(self):
        return [raw.BarrierReadySize(handle=self.handle),
                raw.BarrierIncompleteSize(handle=self.handle)]


def barrier_round_trip():
    b = Barrier()
    return steps(
        b.insert(0, ["a", "b", "c"], i32(1, 2, 3)), b.sizes(), b.insert(1, ["b", "a"], f32(20, 10)),
        b.sizes(), b.insert(0, ["a"], i32(5)), b.insert(0, ["c"], i32(6)), b.take(2), b.sizes(),
        b.insert(2, ["c"], f32(1)), b.insert(1, ["c"], i32(1)), b.insert(1, [], f32()), b.take(0),
        b.take([1]), b.insert(1, ["c"], f32(7)), b.take(1), b.sizes(),
    )  # fmt: skip


def barrier_closed(cancel):
    b = Barrier()
    return steps(
        b.insert(0, ["a", "b", "c"], i32(1, 2, 3)), b.insert(1, ["b", "a"], f32(20, 10)),
        b.close(cancel), b.sizes(), b.close(cancel), b.insert(0, ["new"], i32(1)), b.take(4),
        b.take(4, small=True), b.insert(1, ["c"], f32(1)), b.sizes(), b.take(5, small=True),
        b.take(5, small=True), b.take(1), b.insert(1, ["c"], f32(1)), b.close(True), b.close(True),
        b.insert(1, [], f32()), b.take(0), b.take(0, small=True),
    )  # fmt: skip


def barrier_rows(dtype):
    rng = np.random.default_rng(3)
    b = Barrier([dtype, "int64"], [[2, 1], []])
    values = oracle.sample(rng, dtype, (3, 2, 1))
    return steps(b.insert(1, ["x", "y", "z"], i64(1, 2, 3)), b.insert(0, ["z", "x"], values[:2]),
                 b.insert(0, ["y"], values[2:]), b.take(2), b.take(1))


def barrier_order():
    b = Barrier(["int32"], [[]])
    two = Barrier(["int32", "int32"], [[], []])
    return steps(
        b.insert(0, ["x"], i32(1)), b.insert(0, ["x"], i32(2)), b.insert(0, ["y"], i32(3)),
        b.insert(0, ["x"], i32(4)), b.take(4), b.insert(0, ["x"], np.ones((1, 2), np.int32)),
        b.insert(0, ["x"], np.ones((1, 0), np.int32)),
        b.take(1, types=[tf.float32]), b.take(1, types=[tf.int32, tf.int32]),
        b.take(1, timeout_ms=4), two.insert(0, ["a", "a"], i32(1, 2)), two.sizes(),
        two.insert(0, ["z", "y", "a"], i32(1, 2, 3)), two.sizes(),
    )  # fmt: skip


def unknown_ranks():
    """A component of unknown rank is a scalar, where a queue or a barrier needs to know the shape.
    """
    b, q = Barrier(shapes=[None, None]), Queue("FIFOQueue", ["int32", "float32"],
                                               [tf.TensorShape(None), [2]])
    return steps(
        b.insert(0, ["a", "b", "c"], i32(1, 2, 3)), b.insert(1, ["d"], np.ones((1, 0), np.float32)),
        b.insert(1, ["b", "a"], f32(3, 4)), b.sizes(), b.take(2),
        b.insert(1, ["c"], np.ones((1, 3), np.float32)),
        q.enqueue(i32(1), f32(1, 2)), q.enqueue(np.int32(1), f32(1, 2)),
        q.enqueue_many(i32(2, 3), np.ones((2, 2), np.float32)), q.dequeue_many(3),
    )  # fmt: skip


def barriers_refused():
    one = Barrier(shared_name="b")
    # fmt: skip
    return steps(*[b.sizes() for b in (one, Barrier(shared_name="b"),
                                       Barrier(["int32", "int32"], shared_name="b"),
                                       Barrier(shapes=[(2,), ()], shared_name="b"),
                                       Barrier(shapes=[]), Barrier(shapes=[()]),
                                       Barrier(shapes=[(None,), ()]), Barrier(capacity=5),
                                       Barrier(capacity=-2))])


# ---- accumulators ----


class Accumulator:
    def __init__(self, dtype="float32", shape=None, reduction="MEAN", form="", **attrs):
        self.form, self.dtype = form, tf.as_dtype(dtype)
        make = raw.ResourceConditionalAccumulator if form else raw.ConditionalAccumulator
        self.handle = make(dtype=self.dtype, shape=tf.TensorShape(shape), reduction_type=reduction,
                           **attrs)

    def apply(self, step, gradient):
        gradient = oracle.const(np.array(gradient, self.dtype.as_numpy_dtype))
        return getattr(raw, self.form + "AccumulatorApplyGradient")(
            handle=self.handle, local_step=oracle.const(np.int64(step)), gradient=gradient)

    def take(self, n):
        return getattr(raw, self.form + "AccumulatorTakeGradient")(
            handle=self.handle, num_required=oracle.const(np.array(n, np.int32)), dtype=self.dtype)

    def count(self):
        return getattr(raw, self.form + "AccumulatorNumAccumulated")(handle=self.handle)

    def set_step(self, step):
        return getattr(raw, self.form + "AccumulatorSetGlobalStep")(
            handle=self.handle, new_global_step=oracle.const(np.int64(step)))


def dense(dtype, reduction, form):
    rng = np.random.default_rng(5)
    gradients = [oracle.sample(rng, dtype, (33,)) for _ in range(6)]
    a = Accumulator(dtype, [33], reduction, form)
    return steps(
        *[a.apply(0, g) for g in gradients[:3]], a.count(), a.take(1), a.count(),
        a.apply(0, gradients[0]), a.count(), *[a.apply(1, g) for g in gradients], a.take(6),
        a.apply(2, gradients[0][:5]), a.apply(0, gradients[0][:5]), a.count(), a.set_step(10),
        a.apply(9, gradients[0]), a.apply(10, gradients[1]), a.count(), a.set_step(5),
        a.apply(5, gradients[1]),
        a.count(), a.take(0), a.take(-1), a.take(2), a.apply(6, gradients[0]), a.count(),
    )  # fmt: skip


def dense_shapes():
    any_shape, partial, scalar = Accumulator(), Accumulator(shape=[None, 2]), Accumulator(shape=[])
    rows = np.ones((1, 2))
    return steps(
        any_shape.apply(0, [1, 2]), any_shape.apply(0, [1, 2, 3]), any_shape.apply(0, 3),
        any_shape.take(1), any_shape.apply(1, 3), any_shape.take(1), partial.apply(0, rows),
        partial.apply(0, np.ones((2, 2))),
        partial.apply(0, np.ones((1, 3))), partial.apply(0, [1]), partial.count(), partial.take(1),
        partial.apply(5, np.ones((2, 2))), partial.take(1), scalar.apply(0, 4),
        scalar.apply(0, [4]), scalar.apply(0, 5), scalar.take(2),
    )  # fmt: skip


class SparseAccumulator:
    def __init__(self, dtype="float32", shape=None, reduction="MEAN", **attrs):
        self.dtype = tf.as_dtype(dtype)
        self.handle = raw.SparseConditionalAccumulator(
            dtype=self.dtype, shape=tf.TensorShape(shape), reduction_type=reduction, **attrs)

    def apply(self, step, indices, values, shape=(), known=True):
        return raw.SparseAccumulatorApplyGradient(
            handle=self.handle, local_step=oracle.const(np.int64(step)),
            gradient_indices=oracle.const(np.array(indices, np.int64)),
            gradient_values=oracle.const(np.array(values, self.dtype.as_numpy_dtype)),
            gradient_shape=oracle.const(np.array(shape, np.int64)), has_known_shape=known,
        )  # fmt: skip

    def take(self, n):
        return list(raw.SparseAccumulatorTakeGradient(handle=self.handle, num_required=oracle.const(
            np.array(n, np.int32)), dtype=self.dtype))

    def count(self):
        return raw.AccumulatorNumAccumulated(handle=self.handle)


def sparse(dtype, reduction):
    a = SparseAccumulator(dtype, [5, 2], reduction)
    rows = [[1, 2], [3, 4.5]]
    return steps(
        a.apply(0, [0, 3], rows, [5, 2]), a.apply(0, [3, 1], rows, [5, 2]),
        a.apply(0, [1, 3], rows, [5, 2]), a.count(), a.take(1), a.apply(0, [0], rows[:1], [5, 2]),
        a.count(), a.apply(1, [2, 2], rows, [5, 2]),
        a.apply(1, [2], rows[:1], [5, 2]), a.apply(1, [], np.zeros((0, 2)), [5, 2]), a.take(3),
        a.apply(9, [], np.zeros((0, 2)), [5, 2]), a.take(1), a.apply(9, [4], rows[:1], known=False),
        a.take(1),
    )  # fmt: skip


def sparse_refused():
    a = SparseAccumulator(shape=[5, 2])
    row = [[1, 1]]
    return steps(
        a.apply(1, [0], row, [5, 3]), a.apply(1, [0, 1], row, [5, 2]),
        a.apply(1, [0], [[1, 1, 1]], [5, 2]), a.apply(1, [0], row, [5]),
        a.apply(1, [[0]], row, [5, 2]), a.apply(1, [9], row, [5, 2]), a.apply(1, [0], 1, [5, 2]),
        a.apply(1, [0], [1], [5, 2]), a.count(), a.apply(1, [0], row, [5, 2]),
        a.apply(1, [0], [1], [5, 2]), a.count(), a.take(0),
    )  # fmt: skip


def sparse_shapes():
    any_shape, partial = SparseAccumulator(), SparseAccumulator(shape=[None, 2], reduction="SUM")
    return steps(
        any_shape.apply(0, [0, 3], [1, 2], known=False), any_shape.apply(0, [0, 3], [1, 2], [4]),
        any_shape.apply(0, [7], [[1]], known=False), any_shape.take(1),
        any_shape.apply(1, [7], [[1, 2]], [9, 2]), any_shape.take(1),
        partial.apply(0, [0, 3], [[1, 2], [3, 4]], [4, 2]),
        partial.apply(0, [0, 3], [[1, 2], [3, 4]], [5, 2]),
        partial.apply(0, [7], [[1, 2]], known=False), partial.take(1),
    )  # fmt: skip


def accumulators_shared():
    a, b = Accumulator(shape=[2], shared_name="a"), Accumulator(shape=[2], shared_name="a")
    return steps(a.apply(0, [1, 2]), b.count(), b.take(1))


# ---- staging ----


def stage(values, **attrs):
    return raw.Stage(values=[oracle.const(v) for v in values], **attrs)


def areas():
    types = [tf.int32, tf.float32]
    k, named = dict(dtypes=types, shared_name="area"), dict(shared_name="area")
    index = lambda i: oracle.const(np.array(i, np.int32))  # noqa: E731
    return steps(
        stage([np.int32(1), f32(2, 3)], **named), stage([np.int32(3), np.float32(4)], **named),
        raw.StageSize(**k), raw.StagePeek(index=index(0), **k), raw.StagePeek(index=index(1), **k),
        raw.StagePeek(index=index([1]), **k),
        raw.Unstage(**k), raw.StageSize(**k), raw.Unstage(dtypes=types[::-1], **named),
        raw.StageSize(**k), raw.StageClear(**k), stage([np.int32(1), np.float32(1)], **named),
        raw.Unstage(dtypes=types[:1], **named), raw.StageSize(**k),
        stage([np.int32(1), np.float32(1)], **named), raw.StageClear(**k), raw.StageSize(**k),
    )  # fmt: skip


def area_limits():
    return steps(
        stage([np.int32(1), np.float32(1)], memory_limit=3, shared_name="three"),
        stage([np.int32(1), np.float32(1)], memory_limit=8, shared_name="eight"),
        stage([np.array(b"abc", object)], memory_limit=10, shared_name="ten"),
        stage([np.array(b"abc", object)], memory_limit=27, shared_name="many"),
        raw.StageSize(dtypes=[], shared_name="eight"), raw.StageSize(dtypes=[], shared_name="ten"),
    )  # fmt: skip


def area_names():
    one = stage([np.int32(1)], name="by_node")
    return steps(one, raw.StageSize(dtypes=[tf.int32], name="other"),
                 raw.StageSize(dtypes=[tf.int32], shared_name="by_node"),
                 raw.Unstage(dtypes=[tf.int32], shared_name="by_node"))


class Map:
    def __init__(self, prefix, types=("int32", "float32"), name="map", **attrs):
        self.prefix, self.types = prefix, [tf.as_dtype(t) for t in types]
        self.attrs = dict(dtypes=self.types, shared_name=prefix + name, **attrs)

    def op(self, name):
        return getattr(raw, self.prefix + name)

    def put(self, key, indices, *values):
        key, indices = oracle.const(np.array(key, np.int64)), oracle.const(
            np.array(indices, np.int32))
        return self.op("MapStage")(key=key, indices=indices,
                                   values=[oracle.const(v) for v in values], **self.attrs)

    def get(self, key, indices, types=None, name="MapUnstage"):
        key, indices = oracle.const(np.array(key, np.int64)), oracle.const(
            np.array(indices, np.int32))
        return self.op(name)(key=key, indices=indices,
                             **{**self.attrs, "dtypes": types
                                or [self.types[i] for i in np.ravel(indices_of(indices))]})

    def peek(self, key, indices, types=None):
        return self.get(key, indices, types, "MapPeek")

    def any(self, indices, types):
        out = self.op("MapUnstageNoKey")(indices=oracle.const(np.array(indices, np.int32)),
                                         **{**self.attrs, "dtypes": types})
        return [out.key, *out.values]

    def sizes(self):
        return [self.op("MapSize")(**self.attrs), self.op("MapIncompleteSize")(**self.attrs)]

    def clear(self):
        return self.op("MapClear")(**self.attrs)


def indices_of(tensor):
    """What an oracle.const was made of."""
    op = tensor.op.inputs[0].op if tensor.op.inputs else tensor.op
    return tf.make_ndarray(op.get_attr("value"))


def maps(prefix):
    m = Map(prefix)
    one, two, types = np.int32(1), np.float32(2), [tf.int32, tf.float32]
    return steps(
        m.put(7, [0, 1], one, two), m.sizes(), m.put(3, [1], two), m.sizes(), m.peek(7, [0, 1]),
        m.peek(7, [1]), m.peek(7, [0], [tf.float32]), m.peek(7, [5], [tf.float32]),
        m.peek(7, [0, 1, 0], [*types, tf.int32]), m.put(3, [1], two),
        m.put(3, [4], two), m.put(3, [0], np.int32(5)), m.sizes(), m.get(7, [1]), m.get(7, [1]),
        m.sizes(), m.get(7, [0]), m.sizes(), m.put([5], [0, 1], one, two),
        m.put([5, 6], [0, 1], one, two), m.put([], [0, 1], one, two),
        m.put(9, [1, 0], two, one), m.put(9, [0, 0], one, one), m.put(9, [], one), m.get(3, [0, 1]),
        m.any([0, 1], types), m.sizes(), m.put(1, [0], one), m.sizes(), m.clear(), m.sizes(),
        m.put(7, [0, 1], one, two), m.put(7, [0, 1], np.int32(11), two), m.get(7, [0, 1]),
        m.sizes(),
    )  # fmt: skip


def ordered_map():
    m = Map("Ordered", ["int32"], name="order")
    return steps(*[m.put(k, [0], np.int32(k)) for k in (5, -1, 9, 3)],
                 *[m.any([0], [tf.int32]) for _ in range(4)])


def map_limits():
    small = Map("", ["int32"], name="small", memory_limit=3)
    return steps(small.put(1, [0], np.int32(1)), small.sizes())


# ---- mutexes ----


def mutexes():
    m = raw.MutexV2()
    lock = raw.MutexLock(mutex=m)
    chained = raw.ConsumeMutexLock(mutex_lock=tf.identity(lock))
    shared = [raw.MutexV2(shared_name="m") for _ in range(2)]
    others = [raw.ConsumeMutexLock(mutex_lock=raw.MutexLock(mutex=s)) for s in shared]
    return steps(raw.ConsumeMutexLock(mutex_lock=lock), lock.op, chained, *others, others[0])


def no_lock():
    return steps(raw.ConsumeMutexLock(mutex_lock=raw.EmptyTensorList(element_shape=oracle.const(
        i32()), max_num_elements=oracle.const(np.int32(1)), element_dtype=tf.int32)))


def cases():
    forms = ("", "V2")
    for form in forms:
        for kind in ("FIFOQueue", "PaddingFIFOQueue"):
            for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16",
                          "uint16", "int32", "uint32", "int64", "uint64", "bool", "complex64",
                          "complex128", "string"):
                yield (f"queue/{kind}{form}/{dtype}", lambda kind=kind, dtype=dtype,
                       form=form: fifo_round_trip(kind, dtype, form))
        for kind in CLASSES:
            yield f"queue/closed/{kind}{form}", lambda kind=kind, form=form: closed(
                kind, form), HIDDEN
        yield f"queue/refused{form}", lambda form=form: refused(form), HIDDEN
        yield f"queue/any shapes{form}", lambda form=form: any_shapes(form)
        yield f"queue/padding{form}", lambda form=form: padding(form)
        yield f"queue/priority{form}", lambda form=form: by_priority(form)
        for seed, seed2, min_after in ((1, 2, 0), (87654321, 7, 3), (-5, 3, 10), (0, 9, 1)):
            yield f"queue/shuffle{form}/{seed},{seed2},{min_after}", lambda a=(
                form, seed, seed2, min_after): shuffled(*a)
    yield "queue/padding/rank3", padding_rank3
    for kind in CLASSES:
        attrs = {"capacity": 8} if kind == "RandomShuffleQueue" else {}
        yield f"queue/shared/{kind}", lambda kind=kind, attrs=attrs: shared(kind, **attrs)
    yield "queue/shared/seeds", shared_seeds
    yield from not_made()
    yield "queue/timeout", timeouts
    yield "queue/fake", fake
    yield "queue/other kinds", other_kinds
    yield "queue/capacity 0", capacity_zero
    yield "barrier/round trip", barrier_round_trip, HIDDEN
    for cancel in (False, True):
        yield f"barrier/closed/{cancel}", lambda cancel=cancel: barrier_closed(cancel)
    for dtype in ("float32", "float16", "bfloat16", "int8", "uint8", "int32", "uint16", "bool",
                  "complex64", "complex128", "string"):
        yield f"barrier/{dtype}", lambda dtype=dtype: barrier_rows(dtype)
    yield "barrier/order", barrier_order
    yield "barrier/unknown ranks", unknown_ranks
    yield "barrier/refused", barriers_refused
    for dtype in ("float16", "float32", "float64"):
        for reduction in ("MEAN", "SUM"):
            for form in ("", "Resource"):
                yield f"accumulator/{form}/{dtype}/{reduction}", lambda a=(
                    dtype, reduction, form): dense(*a), HIDDEN
            yield f"accumulator/sparse/{dtype}/{reduction}", lambda a=(dtype, reduction): sparse(*a)
    for dtype in ("bfloat16", "int32", "complex64"):
        yield f"accumulator/{dtype}", lambda dtype=dtype: steps(Accumulator(dtype).count())
    yield "accumulator/shapes", dense_shapes
    yield "accumulator/sparse/refused", sparse_refused
    yield "accumulator/sparse/shapes", sparse_shapes
    yield "accumulator/shared", accumulators_shared
    yield "staging/areas", areas, HIDDEN
    yield "staging/limits", area_limits
    yield "staging/names", area_names
    for prefix in ("", "Ordered"):
        yield f"staging/{prefix}map", lambda prefix=prefix: maps(prefix)
    yield "staging/ordered", ordered_map
    yield "staging/map limits", map_limits
    yield "mutex", mutexes
    yield "mutex/no lock", no_lock
