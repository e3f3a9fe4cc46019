"""What a client can do with a session, in the manner of TensorFlow's own tests of its client:
structures of fetches and feeds, partial runs, callables, timelines, device filters and counts,
closes and resets while something runs, handles of tensors, functions, large values. As sessions.py
has it.
"""

import collections
import threading

import numpy as np
from programs import PS, TASKS, WORKER0, WORKER1, attempt, tf, tf1
from sessions import _await_mark, _mark, _variable

Pair = collections.namedtuple("Pair", "left right")


def fetch_structures(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(PS):
            a = tf.constant([1, 2, 3], name="a")
        with tf.device(WORKER1):
            b = tf.identity(tf.constant("text"), name="b")
        op = tf.group(a, b)
        sparse = tf.SparseTensor([[0, 1], [2, 0]], [1.5, 2.5], [3, 2])
        slices = tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([1]), tf.constant([4, 2]))
        bare = tf.IndexedSlices(tf.constant([[1.0, 2.0]]), tf.constant([1]))
        ragged = tf.ragged.constant([[1, 2], [], [3]])
        for name, fetches in {
            "tensor": a, "name": "a:0", "op": op, "op by name": op.name, "list": [a, b, op],
            "tuple": (a, (b, [a])), "dict": {"x": a, "y": {"z": [b]}},
            "named": Pair(a, Pair(b, op)), "twice": [a, a, [a]], "nothing": [], "no keys": {},
            "sparse": sparse, "sparse in a list": [sparse, a],
            "slices": slices, "bare slices": bare,
            "ordered": collections.OrderedDict([("y", b), ("x", a)]), "variables": [],
            "ragged": ragged,
        }.items():  # fmt: skip
            outcome = attempt(session.run, fetches)
            if name in ("sparse", "slices", "bare slices"):
                outcome.value = [None if part is None else np.asarray(part)
                                 for part in outcome.value]
            if name == "ragged":
                outcome.value = [np.asarray(outcome.value.values),
                                 np.asarray(outcome.value.row_splits)]
            if name == "sparse in a list":
                outcome.value = [list(outcome.value[0]), outcome.value[1]]
            note(name, outcome)
        for wrong in (None, 7, [a, None], "a", "nobody:0", tf.Graph(), {"x": object()}):
            note(f"{type(wrong).__name__} is no fetch", attempt(session.run, wrong).code)


def feed_kinds(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(WORKER1):
            for dtype in ("float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16",
                          "int64", "uint32", "uint64", "bool", "complex64", "complex128"):
                x = tf1.placeholder(dtype, [None], name=f"x_{dtype}")
                value = np.array([0, 1, 1]).astype(x.dtype.as_numpy_dtype)
                note(dtype, attempt(session.run, tf.identity(x), {x: value}))
            text = tf1.placeholder(tf.string, None)
            for value in ("", "ä", b"\xff\x00", ["a", "b"], [["a"], ["\u20ac"]],
                          np.array([], object), np.array([b"x\0", b""], object)):
                note(f"text {value!r}", attempt(session.run, tf.identity(text), {text: value}))
            sparse = tf1.sparse_placeholder(tf.float32)
            dense = tf1.sparse_tensor_to_dense(sparse)
            note("sparse", attempt(session.run, dense,
                                   {sparse: tf1.SparseTensorValue([[0, 1]], [2.0], [1, 3])}))
            note("sparse tuple", attempt(session.run, dense, {sparse: ([[0, 1]], [2.0], [1, 3])}))
            note("sparse, out of range",
                 attempt(session.run, dense, {sparse: ([[0, 9]], [2.0], [1, 3])}).code)
            x = tf1.placeholder(tf.int32, [2], name="x")
            for value in ([1, 2], (3, 4), np.int64([5, 6]), [1.5, 2], [2**40, 1], [1], [[1, 2]],
                          "no", [None, 1], None, [True, False]):
                outcome = attempt(session.run, x * 2, {x: value})
                note(f"feed {value!r}", outcome if outcome.code >= 0 else outcome.code)
            y = x + 1
            note("an inner endpoint", attempt(session.run, y * 2, {y: [7, 8]}))
            note("by name", attempt(session.run, "add:0", {"x:0": [7, 8]}))
            v = _variable("v", [1.0, 2.0], device=PS)
            session.run(v.initializer)
            note("a variable's value", attempt(session.run, v + 1, {v.value(): [5.0, 6.0]}))
            note("several", attempt(session.run, [y, v.value()], {(x): [1, 1]}))


def partial_runs(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(PS):
            a = tf1.placeholder(tf.float32, [], name="a")
            b = tf1.placeholder(tf.float32, [], name="b")
        with tf.device(WORKER1):
            c = tf1.placeholder(tf.float32, [], name="c")
            r1 = tf.add(a, b, name="r1")
        with tf.device(WORKER0):
            r2 = tf.multiply(r1, c, name="r2")
        v = _variable(device=WORKER0)
        session.run(v.initializer)
        with tf.control_dependencies([r1]):
            grow = v.assign_add(1.0).op

        def script(name, setup, *calls):
            made = attempt(session.partial_run_setup, *setup)
            note(f"{name}: setup", made.code)
            for k, (fetches, feeds) in enumerate(calls):
                outcome = attempt(session.partial_run, made.value, fetches, feeds)
                note(f"{name}: {k}", outcome if outcome.code >= 0 else outcome.code)

        whole = ([r1, r2], [a, b, c])
        script("in two", whole, (r1, {a: 1, b: 2}), (r2, {c: 7}))
        script("in three", whole, ([], {a: 1}), (r1, {b: 2}), (r2, {c: 3}))
        script("all at once", whole, ([r1, r2], {a: 1, b: 2, c: 3}))
        script("nothing to fetch", whole, ([], {a: 1}), ([], {b: 2}))
        script("a feed is missing", whole, (r1, {a: 1}), (r1, {b: 2}))
        script("not set up", ([r1], [a, b]), (r2, {a: 1, b: 2}), (r1, {a: 1, b: 2}))
        script("a feed not set up", ([r1], [a, b]), (r1, {a: 1, b: 2, c: 3}))
        script("fed twice", whole, ([], {a: 1}), (r1, {a: 1, b: 2}))
        script("fetched twice", whole, (r1, {a: 1, b: 2}), (r1, {c: 2}), (r2, {c: 2}))
        script("feeds only", ([], [a, b]), ([], {a: 1}))
        script("an op", ([r1, grow], [a, b]), ([], {a: 1}), ([r1, grow], {b: 1}))
        note("grown once", attempt(session.run, v))
        runs = [session.partial_run_setup([r1, r2], [a, b, c]) for _ in range(20)]
        note("many: first", [float(session.partial_run(run, r1, {a: k, b: 1})) for k,
                             run in enumerate(runs)])
        note("between", attempt(session.run, r2, {a: 1, b: 1, c: 4}))
        note("many: second", [float(session.partial_run(run, r2, {c: 2}))
                              for run in reversed(runs)])
        bad = tf.gather([c, c], tf.cast(r1, tf.int32), name="bad")
        script("fails in the end", ([r1, bad], [a, b, c]), (r1, {a: 3, b: 2}), (bad, {c: 7}),
               (bad, {}))
        note("the session goes on", attempt(session.run, r1, {a: 3, b: 2}))


def callables(target, note):
    from tensorflow.core.protobuf import config_pb2

    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(PS):
            x = tf1.placeholder(tf.float32, [None], name="x")
            y = tf.add(x, 1.0, name="y")
        with tf.device(WORKER1):
            z = tf.multiply(y, 2.0, name="z")
        for name, fetches, feeds in (("one", z, [x]), ("list", [z, y], [x]),
                                     ("dict", {"a": z}, [x]), ("inner", z, [y]),
                                     ("op", tf.group(z), [x]), ("none", [], [])):
            call = attempt(session.make_callable, fetches, feeds)
            note(f"{name}: made", call.code)
            if not call.code:
                note(name, attempt(call.value, *[[1.0, 2.0]] * len(feeds)))
        call = session.make_callable(z, [x])
        note("too few", attempt(call).code)
        note("too many", attempt(call, [1.0], [2.0]).code)
        metadata = tf1.RunMetadata()
        note("traced", attempt(call, [1.0],
                               options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
                               run_metadata=metadata))
        note("trace", sum(len(device.node_stats) for device in metadata.step_stats.dev_stats) > 0)
        options = config_pb2.CallableOptions(feed=["x:0"], fetch=["z:0", "y:0"], target=["y"])
        made = session._make_callable_from_options(options)  # noqa: SLF001
        for k in range(3):
            note(f"handle {k}", attempt(made, np.array([k], np.float32)))
        connected = config_pb2.CallableOptions(feed=["x:0"], fetch=["z:0"])
        connected.tensor_connection.add(from_tensor="x:0", to_tensor="y:0")
        made = attempt(session._make_callable_from_options, connected)  # noqa: SLF001
        note("connected", made.code)
        for wrong in (config_pb2.CallableOptions(feed=["x:0"], fetch=["nobody:0"]),
                      config_pb2.CallableOptions(feed=["nobody:0"], fetch=["z:0"]),
                      # fmt: skip
                      config_pb2.CallableOptions(fetch=["x:0"]),
                      config_pb2.CallableOptions(feed=["x:0", "x:0"], fetch=["z:0"])):
            outcome = attempt(session._make_callable_from_options, wrong)  # noqa: SLF001
            if not outcome.code:
                outcome = attempt(outcome.value, *[np.ones([1], np.float32)] * len(wrong.feed))
            note(f"wrong {wrong}".replace("\n", " "), outcome.code)


def timelines(target, note):
    import json

    from tensorflow.python.client import timeline

    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.device(PS):
            v = tf1.get_variable("v", initializer=tf.ones([8, 8]), use_resource=True)
        with tf.device(WORKER0):
            a = tf.matmul(v, v, name="a")
            loop = tf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, tf.matmul(s, a)), [0, a])[
                1]
        with tf.device(WORKER1):
            b = tf.reduce_sum(loop, name="b")
        session.run(v.initializer)
        metadata = tf1.RunMetadata()
        note("value", attempt(session.run, b,
                              options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
                              run_metadata=metadata))
        drawn = timeline.Timeline(metadata.step_stats)
        for options in ({}, {"show_memory": True}, {"show_dataflow": False}):
            events = json.loads(drawn.generate_chrome_trace_format(**options))["traceEvents"]
            note(f"events {options}", {"MatMul", "Sum"} <= {event.get("name") for event in events})
            note(f"durations {options}", all(event["dur"] >= 0 and event["ts"] > 0
                                             for event in events if event.get("ph") == "X"))
        analysis = timeline.Timeline(metadata.step_stats).analyze_step_stats(
            show_dataflow=True, show_memory=True)
        note("memory", isinstance(analysis.allocator_maximums, dict))
        profiler = tf1.profiler.Profiler(session.graph, None)
        profiler.add_step(1, metadata)
        options = tf1.profiler.ProfileOptionBuilder(
            tf1.profiler.ProfileOptionBuilder.time_and_memory()).with_empty_output().build()
        by_op = profiler.profile_operations(options)
        note("profile", (by_op.total_exec_micros > 0, by_op.total_requested_bytes >= 2 * 8 * 8 * 4))
        by_name = profiler.profile_name_scope(options)
        note("profile of the product",
             {child.name: child.requested_bytes for child in by_name.children}.get("a"))
        note("loops are seen",
             sum(n.node_name.endswith("MatMul") for d in metadata.step_stats.dev_stats
                 for n in d.node_stats) >= 4)
        metadata = tf1.RunMetadata()
        session.run(b, options=tf1.RunOptions(output_partition_graphs=True), run_metadata=metadata)
        note("no trace with partition graphs", (len(metadata.partition_graphs) > 1,
                                                len(metadata.step_stats.dev_stats)))
        with tf.Graph().as_default() as again:
            for part in metadata.partition_graphs:
                note("a partition has ops", len(part.node) > 0 and {n.op for n in part.node}
                     != set())
            note("graph", again is not None)


def device_filters(target, note):
    with tf.Graph().as_default():
        with tf.device(PS):
            a = tf1.get_variable("a", initializer=1.0, use_resource=True)
        with tf.device(WORKER1):
            b = tf1.get_variable("b", initializer=2.0, use_resource=True)
        for name, filters in {"both": ["/job:ps", "/job:worker"],
                              "task": ["/job:ps", "/job:worker/task:0"],
                              "other": ["/job:ps", "/job:worker/task:1", "/job:worker/task:0"],
                              # fmt: skip
                              "device": ["/job:ps/cpu:0",
                                         "/job:worker/task:0/device:CPU:0"]}.items():
            with tf1.Session(target, config=tf1.ConfigProto(device_filters=filters)) as session:
                devices = sorted(d.name for d in session.list_devices() if d.name.endswith("CPU:0"))
                note(f"{name}: devices", devices)
                note(f"{name}: init", attempt(session.run, [a.initializer, b.initializer]).code)
        with tf1.Session(target,
                         config=tf1.ConfigProto(device_filters=["/job:ps",
                                 "/job:worker/task:0"])) as session, tf.Graph().as_default():
            pass


def unknown_devices(target, note):
    """One node on a device that nobody has: no step of this graph runs, whether or not it needs the
    node."""
    for name, device in (("job", "/job:nobody"), ("task", "/job:worker/task:9"),
                         ("type", "/job:ps/device:GPU:0"),
                         ("number", "/job:ps/task:0/device:CPU:7")):
        for soft in (False, True):
            with tf.Graph().as_default(), tf1.Session(
                target, config=tf1.ConfigProto(allow_soft_placement=soft)) as session:
                a = tf1.placeholder_with_default(1.0, [])
                with tf.device(device):
                    b = tf.add(a, 1.0, name="b")
                note(f"{name}, soft {soft}: what needs it", attempt(session.run, b).code)
                note(f"{name}, soft {soft}: what does not", attempt(session.run, a * 2).code)
    with tf.Graph().as_default(), tf1.Session(target) as session:
        a = tf.constant(1.0) + 1
        note("before", attempt(session.run, a))
        with tf.device("/job:nobody"):
            tf.add(a, 1.0, name="b")
        note("grown by it", attempt(session.run, a).code)
        note("again", attempt(session.run, a).code)


def _while_blocked(name, end, expected=None):
    """Steps that wait, and what ends them."""

    def script(target, tell):
        notes = {}

        def note(what, value):
            notes[what] = value
            tell(what, value)

        with tf.Graph().as_default():
            queue = tf1.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name=f"never_{name}")
            with tf.control_dependencies([_mark()]), tf.device(WORKER1):
                wait = queue.dequeue() + 1.0
            session = tf1.Session(target)
            other = tf1.Session(target)
            other.run(tf.constant(1))
            outcomes = []
            threads = [threading.Thread(target=lambda s=session,
                                        w=wait: outcomes.append(attempt(s.run, w).code))
                       for _ in range(3)]
            for thread in threads:
                thread.start()
            _await_mark(target)
            end(target, session)
            for thread in threads:
                thread.join(20)
            note("ended", not any(thread.is_alive() for thread in threads))
            note("codes", sorted(set(outcomes)))
            note("the other", attempt(other.run, tf.constant(1) + 1).code)
            note("used again", attempt(session.run, tf.constant(1)).code)
            if expected:
                assert notes == expected, notes

    return script


close_while_blocked = _while_blocked("close", lambda target, session: session.close())
# TensorFlow's server crashes.
reset_while_blocked = _while_blocked("reset", lambda target, session: tf1.Session.reset(target),
                                     {"ended": True, "codes": [1], "the other": 10,
                                      "used again": 10})


def large_values(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        x = tf1.placeholder(tf.float32, [None])
        with tf.device(PS):
            y = x + 1.0
        with tf.device(WORKER1):
            z = tf.reduce_sum(tf.cast(y, tf.float64))
        big = np.arange(5 << 20, dtype=np.float32)
        note("there and back", bool(np.array_equal(session.run(y, {x: big}), big + 1)))
        note("through", attempt(session.run, z, {x: np.ones([5 << 20])}))
        constant = tf.constant(np.full([1 << 20], 3.0, np.float32))
        note("a constant", attempt(session.run, tf.reduce_sum(constant)))
        texts = tf1.placeholder(tf.string, [None])
        note("strings", attempt(session.run, tf.strings.length(texts),
                                {texts: [b"x" * (1 << 20), b"", b"y" * 3]}))


def extends_and_runs(target, note):
    """The graph grows in one thread while others run it, in one session and in two."""
    with tf.Graph().as_default() as graph, tf1.Session(target) as session, tf1.Session(
        target) as second:
        x = tf1.placeholder(tf.float32, [])
        y, wrong, stop = x, [], threading.Event()

        def run(which):
            while not stop.is_set():
                if which.run(first, {x: 2.0}) != 3.0:
                    wrong.append(which)

        first = x + 1.0
        threads = [threading.Thread(target=run, args=(s,)) for s in (session, session, second)]
        for thread in threads:
            thread.start()
        for k in range(20):
            with graph.as_default(), tf.device(TASKS[k % 3]):
                y = y + 1.0
            for s in (session, second):
                if s.run(y, {x: 0.0}) != k + 1:
                    wrong.append(k)
        stop.set()
        for thread in threads:
            thread.join(20)
        note("wrong", wrong)


def isolation(target, note):
    """Isolated sessions see neither each other's variables, queues and tables nor the cluster's."""
    shared, isolated = tf1.ConfigProto(), tf1.ConfigProto(isolate_session_state=True)
    with tf.Graph().as_default():
        v = _variable("v", 3.0, resource=True)
        queue = tf1.FIFOQueue(5, [tf.int32], shapes=[[]], shared_name="q")
        put, size = queue.enqueue(1), queue.size()
        with tf1.Session(target, config=shared) as one, tf1.Session(
            target, config=isolated) as two, tf1.Session(target, config=isolated) as three:
            one.run([v.initializer, put])
            note("the cluster's", attempt(one.run, [v, size]))
            note("not two's", attempt(two.run, v).code)
            note("two's queue", attempt(two.run, size))
            two.run([v.initializer, put])
            two.run([v.assign_add(4.0), put])
            note("two's own", attempt(two.run, [v, size]))
            note("three's", (attempt(three.run, v).code, attempt(three.run, size).value))
            note("one's still", attempt(one.run, [v, size]))
        with tf1.Session(target, config=shared) as one:
            note("afterwards", attempt(one.run, [v, size]))


def control_flow(target, note):
    with tf.Graph().as_default(), tf1.Session(target) as session:
        p, x = tf1.placeholder(tf.bool, []), tf1.placeholder(tf.float32, [])
        v = _variable("v", 0.0, device=PS)
        session.run(v.initializer)
        with tf.device(WORKER1):
            grown = tf1.cond(p, lambda: tf1.assign_add(v, x), lambda: tf1.assign_sub(v, x))
            taken = tf1.cond(p, lambda: x * 2, lambda: tf.gather([x, x], tf.cast(x, tf.int32) + 5))
        note("assign in cond", [attempt(session.run, grown, {p: k, x: 2.0}) .value
                                for k in (True, True, False)])
        note("a branch that fails", attempt(session.run, taken, {p: False, x: 1.0}).code)
        note("the other does not", attempt(session.run, taken, {p: True, x: 1.0}))
        t = taken.op.inputs[0]
        note("a dead tensor is fetched", attempt(session.run, t, {p: True, x: 1.0}).code)
        i, total = tf1.while_loop(lambda i, s: i < 10, lambda i,
                                  s: (i + 1, s + tf1.cond(p, lambda: x, lambda: -x)), [0, 0.0])
        note("cond in a loop", attempt(session.run, [i, total], {p: True, x: 1.5}))
        inner = next(op for op in tf1.get_default_graph().get_operations() if op.type
                     == "NextIteration").outputs[0]
        note("an inner tensor of a loop is no fetch",
             attempt(session.run, inner, {p: True, x: 1.0}).code != 0)
        nested = tf1.while_loop(lambda i, s: i < 3, lambda i,
                                s: (i + 1, tf1.while_loop(lambda j, u: j < 4, lambda j,
                                        u: (j + 1, u + x), [0, s])[1]), [0, 0.0])
        note("nested", attempt(session.run, nested, {x: 1.0}))
        note("its gradient", attempt(session.run, tf1.gradients(nested[1], x), {x: 1.0}))
        shapes = tf1.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.concat([s, [x]], 0)),
                                [0, tf.zeros([0])], shape_invariants=[tf.TensorShape([]),
                                        tf.TensorShape([None])])
        note("growing shapes", attempt(session.run, shapes, {x: 1.0}))
        case = tf1.case([(x < 1, lambda: tf.constant(1)), (x < 2, lambda: tf.constant(2))],
                        default=lambda: tf.constant(3))
        note("case", [attempt(session.run, case, {x: k}).value for k in (0.0, 1.5, 9.0)])
        exclusive = tf1.case([(x < 1, lambda: tf.constant(1)), (x < 2, lambda: tf.constant(2))],
                             default=lambda: tf.constant(3), exclusive=True)
        note("not exclusive", attempt(session.run, exclusive, {x: 0.0}).code)
        with tf.control_dependencies([tf1.assert_positive(x, ["must be positive"])]):
            checked = tf.identity(x)
        note("assert passes", attempt(session.run, checked, {x: 1.0}))
        note("assert fails", attempt(session.run, checked, {x: -1.0}).code)
        array = tf.TensorArray(tf.float32, 3, clear_after_read=True).unstack([x, x + 1, x + 2])
        note("array", attempt(session.run, array.stack(), {x: 1.0}))
        once = array.read(0)
        with tf.control_dependencies([once]):
            note("read twice", attempt(session.run, array.read(0), {x: 1.0}).code)


def more_options(target, note):
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder_with_default(2.0, [], name="x")
        with tf.device(PS):
            y = tf.add(x, 1.0, name="y")
        queue = tf1.FIFOQueue(1, [tf.float32], shapes=[[]], shared_name="empty")
        wait = queue.dequeue()
        with tf1.Session(target, graph=graph,
                         config=tf1.ConfigProto(operation_timeout_in_ms=60000)) as session:
            for name, options in {
                "none": None, "empty": tf1.RunOptions(),
                "timeout": tf1.RunOptions(timeout_in_ms=50000),
                "inter_op": tf1.RunOptions(inter_op_thread_pool=0),
                "report": tf1.RunOptions(report_tensor_allocations_upon_oom=True),
                "all": tf1.RunOptions(trace_level=3, output_partition_graphs=True),
            }.items():  # fmt: skip
                note(name, attempt(session.run, y, options=options, run_metadata=tf1.RunMetadata()))
            note("times out", attempt(session.run, [wait, y],
                                      options=tf1.RunOptions(timeout_in_ms=100)).code)
            metadata = tf1.RunMetadata()
            note("times out, traced", attempt(session.run, wait,
                                              options=tf1.RunOptions(
                                                  timeout_in_ms=100, trace_level=3),
                                              run_metadata=metadata).code)
            note("goes on", attempt(session.run, y))
        for name, config in {
            "cost model": tf1.ConfigProto(graph_options=tf1.GraphOptions(build_cost_model=1)),
            "shapes": tf1.ConfigProto(graph_options=tf1.GraphOptions(infer_shapes=True)),
            "pruned": tf1.ConfigProto(graph_options=tf1.GraphOptions(place_pruned_graph=True)),
            "recv": tf1.ConfigProto(graph_options=tf1.GraphOptions(enable_recv_scheduling=True)),
            "bfloat16": tf1.ConfigProto(graph_options=tf1.GraphOptions(
                enable_bfloat16_sendrecv=True)),
            "L1": tf1.ConfigProto(graph_options=tf1.GraphOptions(
                optimizer_options=tf1.OptimizerOptions(opt_level=0, do_function_inlining=True))),
            "devices": tf1.ConfigProto(device_count={"CPU": 1}),
        }.items():  # fmt: skip
            with tf1.Session(target, graph=graph, config=config) as session:
                note(name, attempt(session.run, y * 4.0))


def names_of_errors(target, note):
    """The op of an error is the client's, with the place where it was made."""
    with tf.Graph().as_default(), tf1.Session(target) as session:
        with tf.name_scope("outer"), tf.device(WORKER1):
            x = tf1.placeholder(tf.int32, [None], name="x")
            bad = tf.gather([1, 2, 3], x, name="bad")

        @tf.function
        def inside(t):
            return tf.gather([1, 2, 3], t, name="inside")

        with tf.device(PS):
            called = inside(x)
            looped = tf1.while_loop(lambda i: i < 3,
                                    lambda i: i + tf.gather([1, 1], x, name="in_loop")[0], [0],
                                    name="loop")
            either = tf1.cond(tf.size(x) > 0, lambda: tf.gather([1], x, name="in_cond"), lambda: x,
                              name="either")
        for name, fetch in (("plain", bad), ("loop", looped), ("cond", either)):
            outcome = attempt(session.run, fetch, {x: [7]})
            note(name, outcome)
        note("function", attempt(session.run, called, {x: [7]}).code)
        try:
            session.run(bad, {x: [7]})
        except tf.errors.InvalidArgumentError as error:
            note("op", error.op.name)
            note("its type", error.op.type)
            note("the message says where", "sessions_client.py" in error.message
                 and "bad" in error.message)


def scripts():
    for script in (fetch_structures, feed_kinds, partial_runs, callables, timelines, device_filters,
                   unknown_devices, large_values,
                   # fmt: skip
                   extends_and_runs, isolation, control_flow, more_options, names_of_errors):
        yield f"client/{script.__name__}", script
    yield "client/close_while_blocked", close_while_blocked
    yield "client/reset_while_blocked", reset_while_blocked, {"ours_only": True}
