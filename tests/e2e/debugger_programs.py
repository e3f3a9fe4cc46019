"""Programs of test_debugger.py: TensorFlow's unmodified debugger on a cluster."""
import os
import shutil
import sys

import numpy as np
import tensorflow as tf
from tensorflow.python.debug.lib import debug_data, debug_utils
from tensorflow.python.debug.wrappers import dumping_wrapper, local_cli_wrapper

tf1 = tf.compat.v1
tf1.disable_eager_execution()
TARGET = os.environ["MILLRACE_TARGET"]
ROOT = sys.argv[2]


def model():
    """The first NaN is log's; it is on the worker, its input's variable on the ps."""
    with tf1.device("/job:ps/task:0"):
        v = tf1.get_variable("v", initializer=tf.constant([1., -1.]), use_resource=False)
        r = tf1.get_variable("r", initializer=tf.constant([1., 2.]), use_resource=True)
    with tf1.device("/job:worker/task:0"):
        x = tf1.placeholder(tf.float32, [2], name="x")
        log = tf1.log(x * v, name="first_nan")
        loss = tf.reduce_sum(log * 2. + r, name="loss")
    turns = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)], name="loop")
    branch = tf.cond(x[0] > 0, lambda: tf1.identity(x, "taken"), lambda: tf1.negative(x, "other"))
    return x, loss, turns, branch


def watched(session, fetches, feeds, **options):
    run_options = tf1.RunOptions(output_partition_graphs=True)
    debug_utils.watch_graph(run_options, session.graph, debug_urls=[f"file://{ROOT}"], **options)
    metadata = tf1.RunMetadata()
    values = session.run(fetches, feeds, options=run_options, run_metadata=metadata)
    return values, debug_data.DebugDumpDir(ROOT, partition_graphs=metadata.partition_graphs)


def started():
    session = tf1.Session(TARGET)
    session.run(tf1.global_variables_initializer())
    return session


def dumps():
    x, *fetches = model()
    with started() as session:
        plain = session.run(fetches, {x: [1., 2.]})
        values, dump = watched(session, fetches, {x: [1., 2.]},
                               debug_ops=["DebugIdentity", "DebugNumericSummary"],
                               tolerate_debug_op_creation_failures=True)
    np.testing.assert_equal(values, plain)
    bad = dump.find(debug_data.has_inf_or_nan)
    print("first:", bad[0].node_name, bad[0].output_slot, bad[0].device_name)
    print("devices:", sorted(dump.devices()))
    print("graph:", dump.node_device("first_nan"), dump.node_inputs("loss"))
    print("names:", dump.core_metadata.input_names, dump.core_metadata.output_names[0])
    [value] = dump.get_tensors("first_nan", 0, "DebugIdentity")
    print("value:", value.tolist())
    [numbers] = dump.get_tensors("first_nan", 0, "DebugNumericSummary")
    print("numbers:", numbers.tolist())
    merge = next(name for name in dump.nodes() if name.startswith("loop/merge"))
    turns = dump.get_tensors(merge, 0, "DebugIdentity")
    print("turns:", [int(turn) for turn in turns])
    seen = {datum.node_name for datum in dump.dumped_tensor_data}
    print("taken:", [any(part in name for name in seen)
                     for part in ("then/taken", "else/other")])
    print("ref:", dump.get_tensors("v", 0, "DebugIdentity")[0].tolist())


def initializing():
    model()
    [v] = [v for v in tf1.global_variables() if v.op.name == "v"]
    with tf1.Session(TARGET) as session:
        _, dump = watched(session, v.initializer, {}, debug_ops=["DebugIdentity"],
                          node_name_regex_allowlist="^v(/Assign)?$")
    print("before:", dump.get_tensors("v", 0, "DebugIdentity")[0].initialized)
    print("after:", dump.get_tensors("v/Assign", 0, "DebugIdentity")[0].tolist())


def everywhere():
    """What is seen of a variable in the step that initializes it, on the CPU and on a GPU."""
    for dtype in ("float16", "float32", "float64", "int64", "bool", "complex64"):
        for device in ("CPU", "GPU"):
            tf1.reset_default_graph()
            with tf.device(f"/job:worker/task:0/device:{device}:0"):
                v = tf1.Variable(tf.cast([[1., 0.]], dtype), use_resource=False,
                                 name=f"{device}_{dtype}")
            with tf1.Session(TARGET) as session:
                _, dump = watched(session, v.initializer, {},
                                  tolerate_debug_op_creation_failures=True,
                                  debug_ops=["DebugIdentity", "DebugNanCount",
                                             "DebugNumericSummary"],
                                  node_name_regex_allowlist=f"^{v.op.name}(/Assign)?$")
                seen = []
                for datum in dump.dumped_tensor_data:
                    value = datum.get_tensor()
                    is_missing = isinstance(value, debug_data.InconvertibleTensorProto)
                    seen.append([datum.node_name[len(v.op.name):], datum.debug_op,
                                 None if is_missing else str(value.tolist())])
                print(f"{device} {dtype}: {sorted(seen, key=str)}, then {session.run(v).tolist()}")
            for name in os.listdir(ROOT):
                shutil.rmtree(os.path.join(ROOT, name), ignore_errors=True)


def options():
    x, loss, *_ = model()
    with started() as session:
        def error(*debug_ops, **more):
            try:
                watched(session, loss, {x: [1., 2.]}, debug_ops=list(debug_ops), **more)
            except tf.errors.OpError as e:
                return f"{type(e).__name__} {e.message}"
            return "none"
        print("kernel:", error("DebugNanCount"))
        print("tolerated:", error("DebugNanCount", tolerate_debug_op_creation_failures=True))
        print("unknown:", error("DebugNothing"))
        print("no debug op:", error("Log"))
        print("attr:", error("DebugNumericSummary(no_such=1)"))
        only = {"node_name_regex_allowlist": "first_nan|loss"}
        print("spec:", error("DebugNumericSummary(lower_bound=-1.5; mute_if_healthy=true)", **only))
        global ROOT
        ROOT = "/etc/millrace-debugger"
        print("root:", error("DebugIdentity", **only))


def dumping():
    x, loss, *_ = model()
    session = dumping_wrapper.DumpingDebugWrapperSession(
        started(), session_root=ROOT, watch_fn=lambda fetches, feeds: (["DebugIdentity"], r".*",
                                                                       None))
    for first in (1., 2.):
        session.run(loss, {x: [first, 2.]})
    for name in sorted(os.listdir(ROOT)):
        dump = debug_data.DebugDumpDir(os.path.join(ROOT, name))
        print("run:", dump.find(debug_data.has_inf_or_nan)[0].node_name, dump.run_fetches_info)


def cli():
    x, loss, *_ = model()
    session = local_cli_wrapper.LocalCLIDebugWrapperSession(started(), ui_type="readline",
                                                            dump_root=ROOT)
    session.add_tensor_filter("has_inf_or_nan", debug_data.has_inf_or_nan)
    print("loss:", session.run(loss, {x: [1., 2.]}))


globals()[sys.argv[1]]()
