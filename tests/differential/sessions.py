"""Programs whose point is the session, not the graph: several sessions, resets, growing graphs,
callables, timeouts, traces, threads, configs.

A script is a function of (target, note). It runs once against a cluster of TensorFlow's own servers
(one ps, two workers, in this process) and once against ours; note(name, value) records what is to
be equal, as programs.Outcome where it is the outcome of a call. scripts() yields (name, script) or
(name, script, options): those of programs.py, and `ours_only`: what matters is that our cluster
survives it.
"""

import gc
import os
import re
import socket
import subprocess
import sys
import threading
import time

import numpy as np
from programs import PS, TASKS, WORKER0, WORKER1, attempt, tf, tf1


class TensorFlowCluster:
    """TensorFlow's own servers in this process; started once, when first asked for."""

    _servers = None

    @classmethod
    def target(cls):
        if cls._servers is None:
            ports = [cls._free_port() for _ in range(3)]
            spec = tf.train.ClusterSpec({"ps": [f"127.0.0.1:{ports[0]}"],
                                         "worker": [f"127.0.0.1:{p}" for p in ports[1:]]})
            config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
            cls._servers = [tf.distribute.Server(spec, job_name=job, task_index=i, config=config)
                            for job, i in (("worker", 0), ("worker", 1), ("ps", 0))]
        return cls._servers[0].target

    @staticmethod
    def _free_port():
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]


def fresh_state(target):
    """Containers of the script before must not be seen."""
    tf1.Session.reset(target)


def _variable(name="v", value=0.0, resource=False, device=PS):
    with tf.device(device):
        return tf1.get_variable(name, initializer=tf.constant(value), use_resource=resource)


# ---- several sessions ----


def shared_state(resource):
    def script(target, note):
        with tf.Graph().as_default():
            v = _variable(resource=resource)
            grow = tf1.assign_add(v, 1.0)
            with tf1.Session(target) as first, tf1.Session(target) as second:
                note("before", attempt(second.run, v))
                first.run(v.initializer)
                first.run(grow)
                note("second sees it", attempt(second.run, v))
                second.run(grow)
                note("first sees it", attempt(first.run, v))
        with tf.Graph().as_default():
            v = _variable(resource=resource)
            other = tf1.get_variable("other", initializer=5.0)
            with tf1.Session(target) as third:
                note("another graph", attempt(third.run, v))
                note("other variable", attempt(third.run, other))

    return script


def isolated_state(target, note):
    config = tf1.ConfigProto(isolate_session_state=True)
    with tf.Graph().as_default():
        v = _variable()
        with tf1.Session(target, config=config) as first, tf1.Session(
            target, config=config) as second:
            first.run(v.initializer)
            note("own", attempt(first.run, v))
            note("other", attempt(second.run, v))


def containers(target, note):
    with tf.Graph().as_default():
        with tf1.container("one"):
            a = _variable("a", 1.0)
        with tf1.container("two"):
            b = _variable("b", 2.0, resource=True)
        c = _variable("c", 3.0)
        init = tf1.global_variables_initializer()
        with tf1.Session(target) as session:
            session.run(init)
            note("all", attempt(session.run, [a, b, c]))
        tf1.Session.reset(target, ["one"])
        with tf1.Session(target) as session:
            for name, v in (("a", a), ("b", b), ("c", c)):
                note(f"{name} after resetting one", attempt(session.run, v))
        tf1.Session.reset(target)
        with tf1.Session(target) as session:
            for name, v in (("b", b), ("c", c)):
                note(f"{name} after resetting all", attempt(session.run, v))


def reset_closes_sessions(target, note):
    with tf.Graph().as_default():
        v = _variable()
        session = tf1.Session(target)
        session.run(v.initializer)
        tf1.Session.reset(target)
        note("old session", attempt(session.run, v))
        with tf1.Session(target) as second:
            note("new session", attempt(second.run, v))
            second.run(v.initializer)
            note("initialised again", attempt(second.run, v))


def closed_session(target, note):
    with tf.Graph().as_default():
        a = tf.constant(1.0)
        session = tf1.Session(target)
        session.run(a)
        session.close()
        note("after close", attempt(session.run, a))
        session.close()
        del session
        gc.collect()


def many_sessions(target, note):
    with tf.Graph().as_default():
        v = _variable(value=1.0)
        with tf1.Session(target) as session:
            session.run(v.initializer)
        for i in range(20):
            with tf1.Session(target) as session:
                note(f"session {i}", attempt(session.run, tf1.assign_add(v, 1.0)))


# ---- one session ----


def growing_graph(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [])
        y = x
        for i in range(12):
            with tf.device(TASKS[i % 3]):
                y = y + float(i)
                v = tf1.get_variable(f"v{i}", initializer=float(i), use_resource=bool(i % 2))
            note(f"grown {i}", attempt(session.run, y, {x: 1.0}))
            session.run(v.initializer)
            note(f"variable {i}", attempt(session.run, v + y, {x: 1.0}))
        note("first names again", attempt(session.run, "add:0", {x: 2.0}))


def grows_with_functions(target, note):
    """Each extension carries the whole library again, its map entries in another order each time.
    """
    with tf.Graph().as_default(), tf1.Session(target) as session:
        count, product = tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2.0), [0, 1.0])
        either = tf.cond(count > 3, lambda: product + 1.0, lambda: product - 1.0)
        note("first", attempt(session.run, either))
        for i in range(20):
            note(f"extended {i}", attempt(session.run, either + float(i)))


def grows_after_error(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        a = tf.constant(1)
        note("bad", attempt(session.run, a // tf1.placeholder_with_default(0, [])))
        note("good", attempt(session.run, a + 1))
        with tf.device("/job:missing"):
            bad = tf1.get_variable("bad", initializer=1.0, use_resource=False)
        note("placed nowhere", attempt(session.run, bad).code)
        note("the session after that", attempt(session.run, a + 2).code)


def empty_graph_first(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        names = sorted(device.name for device in session.list_devices())
        note("devices", [name for name in names if name.endswith("CPU:0")])
        note("types", sorted({device.device_type for device in session.list_devices()
                              if "CPU" in device.name}))
        note("afterwards", attempt(session.run, tf.constant(2) * 3))


def callables(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [None])
        v = _variable(value=10.0)
        session.run(v.initializer)
        call = session.make_callable([x * 2, v], feed_list=[x])
        for i in range(3):
            note(f"call {i}", attempt(call, [float(i)]))
        note("no feeds", attempt(session.make_callable(v + 1)))
        note("target", attempt(session.make_callable(tf1.assign(v, 3.0).op)))
        note("options", attempt(call, [1.0], options=tf1.RunOptions(),
                                run_metadata=tf1.RunMetadata()))


def callable_from_options(target, note):
    from tensorflow.core.protobuf import config_pb2

    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [2], name="x")
        y = tf.multiply(x, 3.0, name="y")
        options = config_pb2.CallableOptions(feed=[x.name], fetch=[y.name])
        made = attempt(session._make_callable_from_options, options)  # noqa: SLF001
        note("made", made.code)
        if not made.code:
            note("called", attempt(made.value, np.array([1, 2], np.float32)))


def partial_run(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        a, b = tf1.placeholder(tf.float32, []), tf1.placeholder(tf.float32, [])
        first, second = a + 1, (a + 1) * b
        made = attempt(session.partial_run_setup, [first, second], [a, b])
        note("setup", made.code)
        if not made.code:
            note("first", attempt(session.partial_run, made.value, first, {a: 1.0}))
            note("second", attempt(session.partial_run, made.value, second, {b: 5.0}))


def unknown_names(target, note):
    """What the client cannot check by itself goes over the wire: names that are not in the graph.
    """
    from tensorflow.python.client import pywrap_tf_session

    with tf.Graph().as_default() as graph, tf1.Session(target) as session:
        a = tf.constant(1.0, name="a")
        op = tf.no_op(name="op")
        session.run([a, op])
        assert graph and pywrap_tf_session
        for name, arguments in (("a client's check", "nowhere:0"), ("an op", "nowhere"),
                                ("output", "a:3")):
            note(name, attempt(session.run, arguments))
        note("feed of an op", attempt(session.run, a, {op: 1}))
        note("feed twice", attempt(session.run, a + 1, {a: 1.0, "a:0": 2.0}))
        note("bad dtype", attempt(session.run, a, {a: "text"}))
        note("fed and fetched", attempt(session.run, [a, a + 1], {a: 4.0}))


def fed_alone(target, note):
    """Only what is fed is fetched: TensorFlow's client answers by itself or asks for nothing."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [2])
        note("fed", attempt(session.run, x, {x: [1, 2]}))
        note("fed twice", attempt(session.run, [x, x], {x: [1, 2]}))


def with_statement(target, note):
    with tf.Graph().as_default():
        a = tf.constant(3.0)
        with tf1.Session(target).as_default():
            note("eval", attempt(a.eval))
            note("eval with a feed", attempt((a * 2).eval, {a: 4.0}))
            tf.no_op().run()
        session = tf1.InteractiveSession(target)
        note("interactive", attempt((a + 1).eval))
        session.close()


def configs(target, note):
    variants = {
        "threads": tf1.ConfigProto(intra_op_parallelism_threads=2, inter_op_parallelism_threads=3),
        "device_count": tf1.ConfigProto(device_count={"CPU": 1, "GPU": 0}),
        "soft": tf1.ConfigProto(allow_soft_placement=True, log_device_placement=True),
        "filters": tf1.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"]),
        "optimizer": tf1.ConfigProto(graph_options=tf1.GraphOptions(
            optimizer_options=tf1.OptimizerOptions(opt_level=-1))),
        "rpc": tf1.ConfigProto(rpc_options=tf.compat.v1.ConfigProto().rpc_options),
        "timeout": tf1.ConfigProto(operation_timeout_in_ms=60000),
        "placement_period": tf1.ConfigProto(placement_period=10),
        "gpu": tf1.ConfigProto(gpu_options=tf1.GPUOptions(allow_growth=True)),
    }
    for name, config in variants.items():
        with tf.Graph().as_default(), tf1.Session(target, config=config) as session:
            with tf.device(PS):
                a = tf.constant([1.0, 2.0]) * 2
            note(name, attempt(session.run, tf.reduce_sum(a)))


def soft_placement(target, note):
    config = tf1.ConfigProto(allow_soft_placement=True)
    with tf.Graph().as_default(), tf1.Session(target, config=config) as session:
        with tf.device("/job:ps/task:0/device:GPU:3"):
            v = tf1.get_variable("v", initializer=2.0, use_resource=False)
        with tf.device("/device:GPU:0"):
            y = v * 3
        session.run(v.initializer)
        note("soft", attempt(session.run, y))


def gpu_without_soft_placement(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device("/job:ps/task:0/device:GPU:0"):
            a = tf.add(tf1.placeholder_with_default(1.0, []), 1.0, name="a")
        note("gpu", attempt(session.run, a).code)


# ---- time ----


def _blocking(name="queue"):
    return tf1.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name=name)


def run_timeout(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        take = _blocking("q1").dequeue()
        began = time.time()
        outcome = attempt(session.run, take, options=tf1.RunOptions(timeout_in_ms=300))
        note("timeout", outcome.code)
        note("in time", outcome.code != tf.errors.DEADLINE_EXCEEDED or time.time() - began < 5)
        note("the session goes on", attempt(session.run, tf.constant(1) + 1))


def operation_timeout(target, note):
    with tf.Graph().as_default(), tf1.Session(target,
                                              config=tf1.ConfigProto(
                                                  operation_timeout_in_ms=300)) as session:
        note("timeout", attempt(session.run, _blocking("q2").dequeue()).code)
        note("the session goes on", attempt(session.run, tf.constant(1) + 1))


def _mark():
    """An op that says that its step has begun: _await_mark waits for it, from any session."""
    return _variable("mark", resource=True).assign(1.0).op


def _await_mark(target):
    deadline = time.monotonic() + 20
    with tf.Graph().as_default():
        mark = _variable("mark", resource=True)
        with tf1.Session(target) as session:
            while time.monotonic() < deadline and attempt(session.run, mark.value()).code:
                pass  # not there yet: each look is a step


def close_while_blocked(target, note):
    with tf.Graph().as_default():
        queue = _blocking("q3")
        with tf.control_dependencies([_mark()]):
            take = queue.dequeue()
        session = tf1.Session(target)
        session.run(tf.constant(1))
        outcomes = []
        thread = threading.Thread(target=lambda: outcomes.append(attempt(session.run, take)))
        thread.start()
        _await_mark(target)
        session.close()
        thread.join(20)
        note("ended", not thread.is_alive())
        note("code", outcomes[0].code if outcomes else None)


def endless_loop(target, note):
    """A loop that does not end by itself ends at its deadline, and leaves nothing behind."""
    for device in (WORKER0, PS):
        with tf.Graph().as_default(), tf1.Session(target) as session:
            with tf.device(device):
                loop = tf1.while_loop(lambda i: i >= 0, lambda i: tf.maximum(i - 1, 0), [5])
                doubled = loop * 2
            began = time.time()
            note(f"{device}", attempt(session.run, doubled,
                                      options=tf1.RunOptions(timeout_in_ms=200)).code)
            note(f"{device} in time", time.time() - began < 5)
            note("the session goes on", attempt(session.run, tf.constant(1) + 1))


def endless_loop_closed(target, note):
    """Session.close ends it too."""
    with tf.Graph().as_default():
        with tf.device(WORKER1), tf.control_dependencies([_mark()]):
            loop = tf1.while_loop(lambda i: i >= 0, lambda i: tf.maximum(i - 1, 0), [5])
        with tf.device(PS):
            far = loop + 1
        session = tf1.Session(target)
        session.run(tf.constant(1))
        outcomes = []
        thread = threading.Thread(target=lambda: outcomes.append(attempt(session.run, far)))
        thread.start()
        _await_mark(target)
        session.close()
        thread.join(20)
        note("ended", not thread.is_alive())
        note("code", outcomes[0].code if outcomes else None)


def error_ends_other_tasks(target, note):
    """While one task loops for ever, another fails: the step ends with that error."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.int32, [])
        with tf.device(WORKER1):
            loop = tf1.while_loop(lambda i: i >= 0, lambda i: tf.maximum(i - 1, 0), [5])
        with tf.device(PS):
            bad = tf.math.floordiv(1, x, name="bad")
        note("error", attempt(session.run, [loop, bad], {x: 0}))


# ---- traces ----


def _trace_case(session):
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=tf.ones([4, 4]), use_resource=False)
    with tf.device(WORKER0):
        y = tf.matmul(v, v, name="product")
    with tf.device(WORKER1):
        z = tf.add(y, 1.0, name="sum")
    session.run(v.initializer)
    return z


def full_trace(target, note):
    from tensorflow.python.client import timeline

    with tf.Graph().as_default(), tf1.Session(target) as session:
        z = _trace_case(session)
        metadata = tf1.RunMetadata()
        session.run(z, options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
                    run_metadata=metadata)
        devices = sorted(d.device for d in metadata.step_stats.dev_stats
                         if any(n.node_name in ("v", "product", "sum") for n in d.node_stats))
        note("devices", [re.sub(".*(/job:.*)", r"\1", d) for d in devices])
        nodes = {n.node_name: n for d in metadata.step_stats.dev_stats for n in d.node_stats}
        note("nodes", sorted(name for name in nodes if name in ("product", "sum", "v", "v/read")))
        note("label", re.sub(r"_recv_\d+|_S\d+", "", nodes["product"].timeline_label).replace(
            "read/", "read"))
        note("outputs", [list(o.tensor_description.shape.dim[0:1])[0].size
                         for o in nodes["product"].output])
        note("internal", [name for name in nodes if re.search(r"/_(send|recv)_\d|^_f", name)])
        note("times", 0 < nodes["product"].all_start_micros and nodes["product"].op_end_rel_micros
             >= nodes["product"].op_start_rel_micros >= 0)
        note("timeline", '"name": "MatMul"' in timeline.Timeline(
            metadata.step_stats).generate_chrome_trace_format())
        plain = tf1.RunMetadata()
        session.run(z, run_metadata=plain)
        note("no trace asked", len(plain.step_stats.dev_stats))


def partition_graphs(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        z = _trace_case(session)
        metadata = tf1.RunMetadata()
        session.run(z, options=tf1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
        note("tasks", len(metadata.partition_graphs))
        note("where", sorted({n.device[:20] for g in metadata.partition_graphs for n in g.node
                              if n.name in ("product", "sum")}))


def cost_graph(target, note):
    """Each third step, and so on: by signature; what the nodes and edges are."""
    for every, after in ((1, 0), (3, 0), (3, 2), (2, 5), (0, 0)):
        config = tf1.ConfigProto(graph_options=tf1.GraphOptions(
            build_cost_model=every, build_cost_model_after=after))
        with tf.Graph().as_default(), tf1.Session(target, config=config) as session:
            z = _trace_case(session)
            for step in range(7):
                metadata = tf1.RunMetadata()
                session.run(z, run_metadata=metadata)
                nodes = {n.name: n for n in metadata.cost_graph.node}
                name_of = {n.id: n.name for n in metadata.cost_graph.node}
                # TensorFlow's servers count from below 0: they begin with a step before `after`
                if step >= after:
                    note(f"{every} after {after}: step {step}", "product" in nodes)
                if "product" not in nodes or step < after:
                    continue
                product = nodes["product"]
                note("device", product.device[:20])
                note("cost", product.compute_cost > 0)
                note("output", ([d.size for d in product.output_info[0].shape.dim],
                                product.output_info[0].size, product.output_info[0].dtype))
                note("of the sum", "product" in {name_of[i.preceding_node]
                                                 for i in nodes["sum"].input_info})
                note("no trace", len(metadata.step_stats.dev_stats))


def traced_error(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        bad = tf.math.floordiv(1, tf1.placeholder_with_default(0, []), name="bad")
        note("error", attempt(session.run, bad,
                              options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
                              run_metadata=tf1.RunMetadata()))


# ---- threads ----


def sixteen_threads(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [None])
        with tf.device(PS):
            v = tf1.get_variable("v", initializer=0, use_resource=False)
            grow = tf1.assign_add(v, 1, use_locking=True)
            a = x * 2
        with tf.device(WORKER1):
            b = tf.reduce_sum(a)
        bad = tf.gather(tf1.placeholder_with_default([1, 2], [None]), tf.cast(b, tf.int32),
                        name="bad")
        session.run(v.initializer)
        wrong, seen = [], set()

        def work(k):
            for i in range(15):
                total = session.run(b, {x: np.full([50], k + i)})
                if total != 100 * (k + i):
                    wrong.append((k, i, total))
                seen.add(int(session.run(grow)))
                if i % 5 == 0:
                    outcome = attempt(session.run, bad, {x: [100.0]})
                    if outcome.code != tf.errors.INVALID_ARGUMENT or outcome.node != "bad":
                        wrong.append(outcome)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        note("wrong", wrong)
        note("count", attempt(session.run, v))
        note("last seen", max(seen))


def threads_of_sessions(target, note):
    """Sessions that come and go at once, each with its own graph."""
    wrong = []

    def work(k):
        for i in range(4):
            with tf.Graph().as_default(), tf1.Session(target) as session:
                with tf.device(TASKS[(k + i) % 3]):
                    a = tf.constant(float(k))
                with tf.device(TASKS[(k + i + 1) % 3]):
                    b = a * float(i)
                if session.run(b) != k * i:
                    wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    note("wrong", wrong)


def extend_while_running(target, note):
    """One thread runs steps while another makes the graph grow."""
    with tf.Graph().as_default() as graph, tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [])
        y = x + 1
        wrong, stop = [], threading.Event()

        def runner():
            i = 0
            while not stop.is_set():
                i += 1
                if session.run(y, {x: float(i)}) != i + 1:
                    wrong.append(i)

        thread = threading.Thread(target=runner)
        thread.start()
        z = y
        for i in range(15):
            with graph.as_default():
                z = z + 1.0
            if session.run(z, {x: 1.0}) != 3.0 + i:
                wrong.append(("grown", i))
        stop.set()
        thread.join(20)
        note("wrong", wrong)


# ---- races ----


def short_timeouts(target, note):
    """Deadlines that pass at any moment of a step over three tasks; then the session still works.
    """
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [None])
        y = x
        for i in range(9):
            with tf.device(TASKS[i % 3]):
                y = y * 2.0 + 1.0
        codes = set()

        def work(k):
            rng = np.random.default_rng(k)
            for _ in range(40):
                size = int(rng.choice([3, 300, 60000]))
                timeout = int(rng.integers(1, 6))
                codes.add(attempt(session.run, y, {x: np.ones([size])},
                                  options=tf1.RunOptions(timeout_in_ms=timeout)).code)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        note("codes", sorted(codes - {0, tf.errors.DEADLINE_EXCEEDED}))
        note("afterwards", attempt(session.run, y, {x: [0.0]}))


def failing_transfers(target, note):
    """A task fails while large and small values are on their way between the others."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x, n = tf1.placeholder(tf.float32, [None]), tf1.placeholder(tf.int32, [])
        with tf.device(PS):
            a, small = x + 1.0, tf.reduce_sum(x)
        with tf.device(WORKER1):
            b = tf.reduce_sum(a * 2.0) + small
        with tf.device(WORKER0):
            c = b + tf.cast(tf.math.floordiv(1, n, name="bad"), tf.float32)
        wrong = []
        for i in range(40):
            size = (10, 100000, 400000)[i % 3]
            outcome = attempt(session.run, c, {x: np.zeros([size]), n: 0})
            if outcome.code != tf.errors.INVALID_ARGUMENT or outcome.node != "bad":
                wrong.append(str(outcome))
            if session.run(c, {x: np.zeros([size]), n: 1}) != 2 * size + 1:
                wrong.append(i)
        note("wrong", wrong)


CLIENT = """
from sessions import _mark
from programs import tf, tf1
with tf1.Session({target!r}) as session:
    with tf.device({task!r}), tf.control_dependencies([_mark()]):
        loop = tf1.while_loop(lambda i: i >= 0, lambda i: tf.maximum(i - 1, 0), [5])
    with tf.device({other!r}):
        far = loop + 1
    session.run(tf.constant(1))
    print("ready", flush=True)
    session.run(far)
"""


def killed_client(target, note):
    """A client that dies leaves no step behind (the runner looks)."""
    here = os.path.dirname(os.path.abspath(__file__))
    script = CLIENT.format(target=target, task=WORKER1, other=PS)
    client = subprocess.Popen([sys.executable, "-c", script], cwd=here, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    ready = client.stdout.readline()
    _await_mark(target)
    client.kill()
    client.wait()
    note("was running", ready.strip())
    with tf.Graph().as_default(), tf1.Session(target) as session:
        note("others go on", attempt(session.run, tf.constant(1) + 1))


# ---- what trainers use ----


def supervised(target, note):
    """SessionManager's way: wait until the chief has initialised, check, run."""
    with tf.Graph().as_default():
        v = _variable(value=4.0)
        init, ready = tf1.global_variables_initializer(), tf1.report_uninitialized_variables()
        manager = tf1.train.SessionManager(ready_op=ready, recovery_wait_secs=0.1)
        with manager.prepare_session(target, init_op=init) as session:
            note("chief", attempt(session.run, v))
        with manager.wait_for_session(target, max_wait_secs=10) as session:
            note("worker", attempt(session.run, v))


def monitored(target, note):
    with tf.Graph().as_default():
        step = tf1.train.get_or_create_global_step()
        w = tf1.get_variable("w", initializer=[2.0, -2.0])
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(
            tf.reduce_sum(w * w), global_step=step)
        scaffold = tf1.train.Scaffold(saver=tf1.train.Saver(), summary_op=tf.no_op(),
                                      local_init_op=tf1.local_variables_initializer())
        with tf1.train.MonitoredSession(tf1.train.ChiefSessionCreator(scaffold, master=target),
                                        hooks=[tf1.train.StopAtStepHook(last_step=5)]) as session:
            while not session.should_stop():
                session.run(train)
        with tf1.Session(target) as session:
            note("trained", attempt(session.run, [w, step]))


def _endless_loop(going):
    return tf1.while_loop(going, lambda i: tf.maximum(i - 1, 0), [5])


def failure_beside_an_endless_loop(target, note):
    """A loop that never pauses keeps no other node of its task from failing, whichever was made
    first. (TensorFlow's needs a second thread.)"""
    for is_loop_first in (True, False):
        with tf.Graph().as_default(), tf.device(WORKER1):
            x = tf1.placeholder(tf.int32, [])
            # noqa: B023
            made = [lambda: _endless_loop(lambda i: i >= 0), lambda: tf.math.floordiv(1, x)]
            nodes = [make() for make in (made if is_loop_first else reversed(made))]
            with tf1.Session(target,
                             config=tf1.ConfigProto(operation_timeout_in_ms=30000)) as session:
                outcome = attempt(session.run, nodes, {x: 0})
                assert outcome.code == tf.errors.INVALID_ARGUMENT, outcome


def loop_until_another_task_says(target, note):
    """What an endless loop waits for comes from another task, or a node beside it, and is assigned
    beside it."""
    for device in (PS, WORKER1):
        with tf.Graph().as_default():
            n = tf1.placeholder(tf.int32, [])
            flag = _variable("flag", False, True, WORKER1)
            with tf.device(WORKER1):
                loop = _endless_loop(lambda i: tf.logical_not(flag.read_value()))  # noqa: B023
            with tf.device(device):
                said = tf.reduce_sum(tf.range(n)) > 10
            assigned = flag.assign(said, read_value=False)
            with tf1.Session(target,
                             config=tf1.ConfigProto(operation_timeout_in_ms=30000)) as session:
                session.run(flag.initializer)
                session.run([loop.op, assigned], {n: 1000})


def kept_values(target, note):
    """Values that stay in the cluster behind handles; TensorFlow has them in process only, and a
    session of its own says what they are."""

    def steps(session):
        value = tf.constant([1.0, 2.0]) * 2.0
        handle = session.run(tf1.get_session_handle(value))
        holder, again = tf1.get_session_tensor(handle.handle, tf.float32)
        feeds = {holder: handle.handle}
        other = session.run(tf1.get_session_handle(again + 5.0), feeds)
        yield session.run(again, feeds).tolist()
        yield other.eval().tolist()
        name, gone = tf1.delete_session_tensor(handle.handle)
        session.run(gone, {name: handle.handle})
        for fetch, feeds in ((again, feeds), (gone, {name: handle.handle})):
            outcome = attempt(session.run, fetch, feeds)
            yield outcome.code
        handle = other = None  # the client deletes what nobody names any more, a few at a time
        for k in range(30):
            handle = session.run(tf1.get_session_handle(value * k))
        yield handle.eval().tolist()

    results = []
    for where in ("", target):
        with tf.Graph().as_default(), tf1.Session(where) as session:
            results.append(list(steps(session)))
    assert results[0] == results[1], results


def scripts():
    yield "session/shared_state/ref", shared_state(False)
    yield "session/shared_state/resource", shared_state(True)
    yield "session/isolated_state", isolated_state
    yield "session/containers", containers
    yield "session/reset_closes_sessions", reset_closes_sessions
    yield "session/closed", closed_session
    yield "session/many", many_sessions
    yield "session/growing_graph", growing_graph
    yield "session/grows_with_functions", grows_with_functions
    yield "session/grows_after_error", grows_after_error
    yield "session/empty_graph_first", empty_graph_first
    yield "session/callables", callables
    yield "session/callable_from_options", callable_from_options
    yield "session/partial_run", partial_run
    yield "session/kept_values", kept_values, {"ours_only": True}
    yield "session/endless/failure", failure_beside_an_endless_loop, {"ours_only": True}
    yield "session/endless/until", loop_until_another_task_says, {"ours_only": True}
    yield "session/unknown_names", unknown_names
    yield "session/fed_alone", fed_alone
    yield "session/with_statement", with_statement
    yield "session/configs", configs
    yield "session/soft_placement", soft_placement
    yield "session/gpu_without_soft_placement", gpu_without_soft_placement
    yield "session/run_timeout", run_timeout
    yield "session/operation_timeout", operation_timeout
    yield "session/close_while_blocked", close_while_blocked
    yield "session/endless_loop", endless_loop
    yield "session/endless_loop_closed", endless_loop_closed
    yield "session/error_ends_other_tasks", error_ends_other_tasks
    yield "session/full_trace", full_trace
    yield "session/partition_graphs", partition_graphs
    yield "session/cost_graph", cost_graph
    yield "session/traced_error", traced_error
    yield "session/sixteen_threads", sixteen_threads
    yield "session/threads_of_sessions", threads_of_sessions
    yield "session/extend_while_running", extend_while_running
    yield "session/short_timeouts", short_timeouts
    yield "session/failing_transfers", failing_transfers
    yield "session/killed_client", killed_client, {"ours_only": True}
    yield "session/session_manager", supervised
    yield "session/monitored", monitored
