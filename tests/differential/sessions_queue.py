"""Programs that wait: steps that meet in a queue, a barrier, an accumulator, a staging area or a
mutex; input pipelines with queue runners; synchronous replicas. Scripts as in sessions.py."""

import threading
import time

import numpy as np
from programs import PS, TASKS, WORKER0, WORKER1, attempt, tf, tf1

R = tf.raw_ops
JOIN_S = 20


def in_thread(function, *arguments, **keywords):
    """Runs attempt(function, …) in a thread; the result is a function that joins it and returns the
    outcome."""
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(attempt(function, *arguments,
            **keywords)))
    thread.start()

    def join():
        thread.join(JOIN_S)
        return outcomes[0] if outcomes else "it hangs"

    return join


def until(condition):
    """Waits for what another thread brings about."""
    deadline = time.time() + JOIN_S
    while not condition() and time.time() < deadline:
        time.sleep(0.001)
    return condition()


def blocks(join_free_thread_s=0.05):
    time.sleep(join_free_thread_s)  # only makes it likely that the other step waits already


def session(target, **keywords):
    return tf1.Session(target, config=tf1.ConfigProto(operation_timeout_in_ms=20000), **keywords)


# ---- queues between sessions ----


def _shared_queue(kind=tf1.FIFOQueue, name="shared", capacity=3, **keywords):
    with tf.device(PS):
        return kind(capacity, dtypes=[tf.int32, tf.string], shapes=[[2], []], shared_name=name,
                    **keywords)


def two_sessions(target, note):
    """One session's steps enqueue on one worker, the other's dequeue on the other; the queue lies
    on the ps."""
    n = 40
    with tf.Graph().as_default() as produce:
        queue = _shared_queue()
        i = tf1.placeholder(tf.int32, [])
        with tf.device(WORKER0):
            value = tf.stack([i, i * i])
        put, close = queue.enqueue([value, tf.strings.as_string(i)]), queue.close()
    with tf.Graph().as_default() as consume:
        number, text = _shared_queue().dequeue()
        with tf.device(WORKER1):
            number = number + 1
    with session(target, graph=produce) as first, session(target, graph=consume) as second:

        def producer():
            for k in range(n):
                first.run(put, {i: k})
            first.run(close)

        join = in_thread(producer)
        note("values", attempt(lambda: [second.run([number, text]) for _ in range(n)]))
        note("the end", attempt(second.run, [number, text]))
        note("producer", join())


def many_waiters(target, note):
    """Dequeues that wait are served one by one."""
    with tf.Graph().as_default():
        queue = _shared_queue(name="waiters", capacity=100)
        take = queue.dequeue()[1]
        put = queue.enqueue_many([np.zeros((20, 2), np.int32), [f"{i}" for i in range(20)]])
        with session(target) as first, session(target) as second:
            joins = [in_thread(first.run, take) for _ in range(20)]
            blocks()
            second.run(put)
            note("all came once", sorted(join().value for join in joins))
            note("nothing is left", attempt(second.run, queue.size()))


def closed_by_another(target, note):
    with tf.Graph().as_default():
        queue = _shared_queue(name="closed", capacity=1)
        take, many, up_to = queue.dequeue(), queue.dequeue_many(3), queue.dequeue_up_to(3)
        put = queue.enqueue([[1, 2], "x"])
        with session(target) as first, session(target) as second:
            joins = [in_thread(first.run, take[0])]
            blocks()
            second.run(queue.close())
            note("dequeue", joins[0]().code)
            note("enqueue", attempt(second.run, put))
            note("many", attempt(second.run, many))
            note("up to", attempt(second.run, up_to))
        again = _shared_queue(name="cancelled", capacity=1)
        put = again.enqueue([[1, 2], "x"])
        with session(target) as first, session(target) as second:
            first.run(put)
            join = in_thread(first.run, put)
            blocks()
            second.run(again.close(cancel_pending_enqueues=True))
            note("a pending enqueue", join().code)
            note("what was there", attempt(second.run, again.dequeue()))


def close_waits_for_enqueues(target, note):
    with tf.Graph().as_default():
        queue = _shared_queue(name="graceful", capacity=1)
        put, take, close, size = queue.enqueue([[1, 2], "x"]), queue.dequeue()[
            1], queue.close(), queue.size()
        with session(target) as first:
            first.run(put)
            pending = in_thread(first.run, put)
            blocks()
            closing = in_thread(first.run, close)
            blocks()
            note("taken", [first.run(take), first.run(take)])
            note("pending", pending())
            note("closing", closing())
            note("size", first.run(size))
            note("the end", attempt(first.run, take))


def kinds(target, note):
    with tf.Graph().as_default(), session(target) as one:
        with tf.device(WORKER1):
            padded = tf1.PaddingFIFOQueue(10, [tf.int32], [[None]])
            first = tf1.PriorityQueue(10, [tf.string], [[]])
            shuffled = tf1.RandomShuffleQueue(50, 0, [tf.int32], [[]], seed=7)
        tf1.set_random_seed(3)
        for length in (2, 0, 3):
            one.run(padded.enqueue([np.arange(length, dtype=np.int32)]))
        note("padded", one.run(padded.dequeue_many(3)))
        one.run(first.enqueue_many([np.array([5, 1, 3], np.int64), ["five", "one", "three"]]))
        note("by priority", one.run(first.dequeue_many(3)))
        one.run(shuffled.enqueue_many([np.arange(20, dtype=np.int32)]))
        note("shuffled", [one.run(shuffled.dequeue_many(10)), one.run(shuffled.dequeue())])


def isolation(target, note):
    """A queue without a shared name is its session's own."""
    with tf.Graph().as_default():
        with tf.device(PS):
            queue = tf1.FIFOQueue(5, tf.int32, [[]], name="mine")
        with session(target) as first, session(target) as second:
            first.run(queue.enqueue(1))
            note("sizes", [first.run(queue.size()), second.run(queue.size())])


# ---- deadlines and closed sessions ----


def deadline_leaves_the_queue_whole(target, note):
    with tf.Graph().as_default(), session(target) as one:
        queue = _shared_queue(name="whole", capacity=10)
        one.run(queue.enqueue_many([[[1, 1], [2, 2]], ["a", "b"]]))
        outcome = attempt(one.run, queue.dequeue_many(3), options=tf1.RunOptions(timeout_in_ms=200))
        assert outcome.code == tf.errors.DEADLINE_EXCEEDED, outcome
        values = one.run(queue.dequeue_many(2))
        assert list(values[1]) == [b"a", b"b"], values


def closing_is_quick(target, note):
    """A session that is closed ends its blocked steps at once, whatever they wait for, and those of
    others go on."""
    with tf.Graph().as_default():
        queue = _shared_queue(name="quick", capacity=10)
        with tf.device(WORKER1):
            far = queue.dequeue()[0] + 1
        other, survivor = session(target), session(target)
        survivor.run(queue.size())
        kept = in_thread(survivor.run, far)
        for blocked in (far, queue.dequeue_many(4)):
            victim = session(target)
            victim.run(tf.constant(1))
            join = in_thread(victim.run, blocked)
            blocks(0.2)
            began = time.time()
            victim.close()
            outcome, took_ms = join(), (time.time() - began) * 1000
            assert outcome.code == tf.errors.CANCELLED, outcome
            assert took_ms < 100, f"closing took {took_ms:.0f} ms"
        other.run(queue.enqueue([[5, 6], "x"]))
        outcome = kept()
        assert list(outcome.value) == [6, 7], outcome
        other.close()
        survivor.close()


def _fail_beside_a_dequeue(one, queue):
    with tf.device(WORKER0):
        zero = tf1.placeholder_with_default(0, [])
        bad = tf.math.floordiv(1, zero, name="bad")
    return attempt(one.run, [queue.dequeue(), bad])


def error_ends_a_wait(target, note):
    """A step whose other branch fails does not wait on. The element is there twice, because
    TensorFlow's servers answer before their dequeue has ended, and it may take one of them."""
    with tf.Graph().as_default(), session(target) as one:
        queue = _shared_queue(name="failing")
        note("the error", _fail_beside_a_dequeue(one, queue))
        put = queue.enqueue([[1, 2], "x"])
        one.run(put)
        one.run(put)
        note("the queue serves", attempt(one.run, queue.dequeue()))


def ended_wait_takes_nothing(target, note):
    """When a failed step is answered, its dequeue has ended: an element put afterwards stays."""
    with tf.Graph().as_default(), session(target) as one:
        queue = _shared_queue(name="failing")
        error = _fail_beside_a_dequeue(one, queue)
        assert error.code == tf.errors.INVALID_ARGUMENT, error
        one.run(queue.enqueue([[1, 2], "x"]))
        assert one.run(queue.size()) == 1
        numbers, text = one.run(queue.dequeue())
        assert (numbers.tolist(), text) == ([1, 2], b"x")


# ---- input pipelines ----


def batches(target, note):
    with tf.Graph().as_default():
        numbers = tf1.train.range_input_producer(20, num_epochs=2, shuffle=False).dequeue()
        with tf.device(WORKER1):
            square, text = numbers * numbers, tf.strings.as_string(numbers)
        batch = tf1.train.batch([square, text], 7, allow_smaller_final_batch=True)
        with session(target) as one:
            one.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            coordinator = tf1.train.Coordinator()
            threads = tf1.train.start_queue_runners(one, coordinator)
            got = []
            outcome = attempt(lambda: [got.append(one.run(batch)) for _ in range(100)])
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=JOIN_S)
            note("batches", got)
            note("the end", outcome.code)


def shuffled_batches(target, note):
    data = np.arange(40, dtype=np.float32)
    with tf.Graph().as_default():
        value = tf1.train.slice_input_producer([data], num_epochs=1, shuffle=True, seed=4)[0]
        batch = tf1.train.shuffle_batch([value], 8, capacity=30, min_after_dequeue=10, seed=5)
        with tf1.train.MonitoredTrainingSession(target) as one:
            got = [one.run(batch) for _ in range(5)]
            note("all of them once", sorted(np.concatenate(got).tolist()))
            note("the end", attempt(one.run, batch).code)


def joined_batches(target, note):
    with tf.Graph().as_default():
        sources = [tf1.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue() + 10 * i
                   for i in range(2)]
        lengths = [tf.range(s) for s in sources]
        batch = tf1.train.batch_join([[s, v] for s, v in zip(sources, lengths)], 4,
                                     dynamic_pad=True)
        with session(target) as one:
            one.run(tf1.local_variables_initializer())
            coordinator = tf1.train.Coordinator()
            threads = tf1.train.start_queue_runners(one, coordinator)
            got = [one.run(batch) for _ in range(3)]
            note("padded right",
                 all(v.shape == (4, s.max())
                     and all((row[:k] == np.arange(k)).all() and not row[k:].any() for k,
                             row in zip(s, v)) for s, v in got))
            note("all of them", sorted(np.concatenate([s for s, _ in got]).tolist()))
            note("the end", attempt(one.run, batch).code)
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=JOIN_S)


def pipeline(target, note):
    """Stages on three tasks, each with a runner of its own."""
    n = 30
    with tf.Graph().as_default():
        previous = tf1.train.range_input_producer(n, num_epochs=1, shuffle=False).dequeue()
        for stage, task in enumerate(TASKS):
            with tf.device(task):
                queue = tf1.FIFOQueue(2, tf.int32, [[]])
                tf1.train.add_queue_runner(tf1.train.QueueRunner(queue,
                        [queue.enqueue(previous * 2 + stage)]))
                previous = queue.dequeue()
        with session(target) as one:
            one.run(tf1.local_variables_initializer())
            coordinator = tf1.train.Coordinator()
            threads = tf1.train.start_queue_runners(one, coordinator)
            note("values", [one.run(previous) for _ in range(n)])
            note("the end", attempt(one.run, previous).code)
            coordinator.request_stop()
            coordinator.join(threads, stop_grace_period_secs=JOIN_S)


# ---- the others ----


def barrier(target, note):
    from tensorflow.python.ops import data_flow_ops

    with tf.Graph().as_default():
        with tf.device(PS):
            b = data_flow_ops.Barrier((tf.float32, tf.int32), shapes=((), ()),
                                      shared_name="barrier")
        take = b.take_many(3)
        with session(target) as first, session(target) as second:
            waiting = in_thread(first.run, take)
            second.run(b.insert_many(0, ["a", "b", "c"], [1.0, 2.0, 3.0]))
            note("incomplete", second.run([b.ready_size(), b.incomplete_size()]))
            for k in ("c", "a", "b"):
                second.run(b.insert_many(1, [k], [ord(k)]))
            taken = waiting().value
            note("taken", sorted(zip(taken[1].tolist(), taken[2][0].tolist(),
                                     taken[2][1].tolist())))
            waiting = in_thread(first.run, take)
            blocks()
            second.run(b.close())
            note("closed", waiting().code)


def accumulators(target, note):
    with tf.Graph().as_default():
        with tf.device(PS):
            dense = tf1.ConditionalAccumulator(tf.float32, [2], shared_name="dense")
            rows = tf1.SparseConditionalAccumulator(tf.float32, [9, 1], shared_name="rows")
        with tf.device(WORKER0):
            gradient = tf.constant([1.0, 2.0])
        apply = dense.apply_grad(gradient, local_step=0)
        take, take_rows = dense.take_grad(3), rows.take_indexed_slices_grad(2)
        with session(target) as first, session(target) as second:
            waiting = [in_thread(first.run, take),
                       in_thread(first.run, [take_rows.values, take_rows.indices])]
            for _ in range(3):
                second.run(apply)
            second.run(rows.apply_grad([1, 3], [[1.0], [2.0]], [9, 1]))
            second.run(rows.apply_grad([3, 4], [[4.0], [5.0]], [9, 1]))
            note("mean", waiting[0]())
            note("rows", waiting[1]())
            second.run(apply)
            note("a stale one is dropped", second.run(dense.num_accumulated()))
            second.run(dense.set_global_step(0))
            note("timeout", attempt(second.run, take,
                                    options=tf1.RunOptions(timeout_in_ms=200)).code)


def staging(target, note):
    """One wait at a time: in TensorFlow each holds a thread, of which its servers here have two."""
    from tensorflow.python.ops import data_flow_ops

    with tf.Graph().as_default():
        with tf.device(WORKER0):
            area = data_flow_ops.StagingArea([tf.int32], [[]], shared_name="area", capacity=2)
            x = tf1.placeholder(tf.int32, [])
            put, get = area.put([x]), area.get()
            by_key = data_flow_ops.MapStagingArea(
                [tf.int32, tf.float32], [[], []], shared_name="map")
            put_key = by_key.put(tf.constant(7, tf.int64), [tf.constant(1), tf.constant(2.0)],
                                 indices=[0, 1])
            key, values = by_key.get(tf.constant(7, tf.int64))
        with session(target) as one:
            waiting = in_thread(one.run, get)
            blocks()
            for i in range(3):
                one.run(put, {x: i})
            note("of the waiting step", waiting())
            waiting_key = in_thread(one.run, values)
            blocks()
            one.run(put_key)
            note("by key", waiting_key())
            got = []
            full = in_thread(lambda: [one.run(put, {x: 10 + i}) for i in range(4)])
            while len(got) < 4:
                got.append(int(one.run(get)[0]))
            note("all came", full().code)
            note("size", one.run(area.size()))


def staged_in_parts(target, note):
    """The parts of a tuple do not wait behind a whole one that has no room; without memory they
    wait as any."""
    from tensorflow.python.ops import data_flow_ops

    with tf.Graph().as_default():
        with tf.device(WORKER0):
            area = data_flow_ops.MapStagingArea([tf.int32, tf.float32], [[], [None]],
                                                shared_name="parts", capacity=1, memory_limit=100)
            key, a, b = tf1.placeholder(tf.int64, []), tf1.placeholder(
                tf.int32, []), tf1.placeholder(tf.float32, [None])
            whole, first, second = area.put(key, [a, b], indices=[0, 1]), area.put(
                key, [a], indices=[0]), area.put(key, [b], indices=[1])
            got = area.get(key)[1]
        with session(target) as one:

            def taken(k):
                number, numbers = one.run(got, {key: k})
                return [int(number), int(numbers[0])]

            one.run(whole, {key: 1, a: 10, b: [1.0]})
            stuck = in_thread(one.run, whole, {key: 2, a: 20, b: [2.0]})
            blocks()
            one.run(first, {key: 3, a: 30})
            one.run(second, {key: 3, b: [3.0]})
            assert taken(3) == [30, 3]
            assert taken(1) == [10, 1]
            assert stuck().code == 0
            # 96 bytes, and the 8 of key 2 are there
            much = in_thread(one.run, second, {key: 4, b: [4.0] * 24})
            blocks()
            assert int(one.run(area.incomplete_size())) == 0
            assert taken(2) == [20, 2]
            assert much().code == 0
            assert int(one.run(area.incomplete_size())) == 1
            one.run(area.clear())


def critical_section(target, note):
    with tf.Graph().as_default():
        with tf.device(PS):
            v = tf1.get_variable("v", initializer=0, use_resource=True)
            section = tf.CriticalSection(shared_name="section")

        def body():
            before = v.read_value()
            with tf.control_dependencies([before]):
                return v.assign(before + 1, read_value=True)

        step = section.execute(body)
        with session(target) as one:
            one.run(v.initializer)
            joins = [in_thread(lambda: [one.run(step) for _ in range(25)]) for _ in range(4)]
            note("no update is lost", [join().code for join in joins] + [int(one.run(v))])


def sync_replicas(target, note):
    """Two replicas in threads, each with a session of its own; both gradients make one update."""
    n_steps = 5
    barrier_of_threads = threading.Barrier(2)

    def replica(index):
        with tf.Graph().as_default():
            with tf.device(tf1.train.replica_device_setter(
                worker_device=f"/job:worker/task:{index}", ps_tasks=1)):
                step = tf1.train.get_or_create_global_step()
                w = tf1.get_variable("w", initializer=[1.0, -1.0])
                loss = tf.reduce_sum(tf.square(w - [3.0, 5.0])) * (1.0 + index)
                optimizer = tf1.train.SyncReplicasOptimizer(
                    tf1.train.GradientDescentOptimizer(0.05), replicas_to_aggregate=2,
                    total_num_replicas=2)
                train = optimizer.minimize(loss, global_step=step)
            hook = optimizer.make_session_run_hook(index == 0)
            with tf1.train.MonitoredTrainingSession(
                target, is_chief=index == 0, hooks=[hook], stop_grace_period_secs=5) as one:
                barrier_of_threads.wait(JOIN_S)
                for _ in range(n_steps):
                    one.run(train)
                barrier_of_threads.wait(JOIN_S)
                values = one.run([step, w])
                barrier_of_threads.wait(JOIN_S)
                return values

    joins = [in_thread(replica, i) for i in range(2)]
    outcomes = [join() for join in joins]
    note("global step", [int(o.value[0]) if o.value else str(o) for o in outcomes])
    expected = np.array([1.0, -1.0])
    for _ in range(n_steps):
        expected -= 0.05 * 2 * (expected - [3.0, 5.0]) * 1.5
    note("weights", [bool(np.allclose(o.value[1], expected, rtol=1e-4)) if o.value else str(o)
                     for o in outcomes])


def scripts():
    yield "queue/two_sessions", two_sessions
    yield "queue/many_waiters", many_waiters
    yield "queue/closed_by_another", closed_by_another
    yield "queue/close_waits_for_enqueues", close_waits_for_enqueues
    yield "queue/kinds", kinds
    yield "queue/isolation", isolation
    yield "queue/deadline", deadline_leaves_the_queue_whole, {"ours_only": True}
    yield "queue/closing_is_quick", closing_is_quick, {"ours_only": True}
    yield "queue/error_ends_a_wait", error_ends_a_wait
    yield "queue/ended_wait_takes_nothing", ended_wait_takes_nothing, {"ours_only": True}
    yield "queue/batches", batches
    yield "queue/shuffled_batches", shuffled_batches
    yield "queue/joined_batches", joined_batches
    yield "queue/pipeline", pipeline
    yield "queue/barrier", barrier
    yield "queue/accumulators", accumulators
    yield "queue/staging", staging
    yield "queue/staged_in_parts", staged_in_parts, {"ours_only": True}
    yield "queue/critical_section", critical_section
    yield "queue/sync_replicas", sync_replicas
