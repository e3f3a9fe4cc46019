"""Programs of test_debug_servers.py: TensorFlow's own debug servers watch steps of a cluster."""
import json
import os
import socket
import sys
import threading
import types

import numpy as np
import tensorflow as tf

from tensorflow.core.debug import debug_service_pb2
from tensorflow.python.debug.lib import debug_data, debug_utils
from tensorflow.python.debug.wrappers import grpc_wrapper


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


# the test server imports it for a port that we give it
sys.modules.setdefault("portpicker", types.SimpleNamespace(pick_unused_port=free_port))
from tensorflow.python.debug.lib import grpc_debug_test_server  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_eager_execution()
TARGET = os.environ["MILLRACE_TARGET"]


def start_server(toggles=None, kind=grpc_debug_test_server.EventListenerTestServicer):
    port = free_port()
    server = kind(server_port=port, dump_dir=None, toggle_watch_on_core_metadata=toggles)
    server.run_server(blocking=False)
    return server, f"localhost:{port}"


def model():
    with tf1.device("/job:ps/task:0"):
        v = tf1.get_variable("v", initializer=tf.constant([1., -1.]), use_resource=False)
    with tf1.device("/job:worker/task:0"):
        x = tf1.placeholder(tf.float32, [2], name="x")
        log = tf1.log(x * v, name="first_nan")
        loss = tf.reduce_sum(log * 2., name="loss")
        turns = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)], name="loop")
    return x, loss, turns


def started():
    session = tf1.Session(TARGET)
    session.run(tf1.global_variables_initializer())
    return session


def seen(server):
    return sorted(server.debug_tensor_values)


def dumps():
    """All tensors of a step of two tasks."""
    server, address = start_server()
    x, *fetches = model()
    with started() as session:
        plain = session.run(fetches, {x: [1., 2.]})
        wrapped = grpc_wrapper.GrpcDebugWrapperSession(session, address)
        for _ in range(2):
            np.testing.assert_equal(wrapped.run(fetches, {x: [1., 2.]}), plain)
    values = server.debug_tensor_values
    print("nan:", [value.tolist() for value in values["first_nan:0:DebugIdentity"]])
    print("ps:", [value.tolist() for value in values["v:0:DebugIdentity"]])
    merge = next(name for name in seen(server) if name.startswith("loop/merge"))
    print("turns:", [int(value) for value in values[merge]])
    graphs = [{node.name for node in graph.node} for graph in server.partition_graph_defs]
    print("graphs:", len(graphs), any("first_nan" in names for names in graphs),
          any("v" in names for names in graphs))
    metadata = [json.loads(text) for text in server.core_metadata_json_strings]
    print("metadata:", [[one[key] for key in ("input_names", "session_run_index", "grpc_path")]
                        for one in metadata])
    print("fetches:", "loss:0" in metadata[0]["output_names"])


def large():
    """Tensors that need several messages, below and above the size of a chunk."""
    server, address = start_server()
    big = np.arange(3_000_001, dtype=np.float32)
    texts = np.array([f"{i} ".encode() * 1000 for i in range(3000)])
    with tf1.device("/job:worker/task:0"):
        numbers = tf1.placeholder(tf.float32, [None], name="numbers")
        strings = tf1.placeholder(tf.string, [None], name="strings")
        fetches = [tf1.identity(numbers, name="n"), tf1.identity(strings, name="s"),
                   tf.zeros([0, 3], name="empty")]
    with tf1.Session(TARGET) as session:
        wrapped = grpc_wrapper.GrpcDebugWrapperSession(session, f"grpc://{address}/some/path")
        wrapped.run(fetches, {numbers: big, strings: texts})
    [n] = server.debug_tensor_values["n:0:DebugIdentity"]
    [s] = server.debug_tensor_values["s:0:DebugIdentity"]
    [empty] = server.debug_tensor_values["empty:0:DebugIdentity"]
    np.testing.assert_equal(n, big)
    assert list(s) == list(texts)
    print("same:", n.size, s.size, empty.shape)
    print("path:", json.loads(server.core_metadata_json_strings[0])["grpc_path"])


def gates():
    """Gated watches: closed at first; the server opens and closes them, on both tasks."""
    server, address = start_server()
    x, loss, _ = model()
    with started() as session:
        wrapped = grpc_wrapper.TensorBoardDebugWrapperSession(session, address)

        def run(name):
            server.debug_tensor_values.clear()
            wrapped.run(loss, {x: [1., 2.]})
            print(f"{name}:", seen(server))
        run("closed")
        for node in ("v", "first_nan"):
            server.request_watch(node, 0, "DebugIdentity")
        run("open")
        run("still")
        server.request_unwatch("v", 0, "DebugIdentity")
        run("one")
        server.request_watch("loss", 0, "DebugIdentity", breakpoint=True)
        run("breakpoint")
        print("breakpoints:", sorted(server.breakpoints))
        watches = {watch.node_name for watch in server.gated_grpc_debug_watches()}
        print("watches:", "v" in watches, "loss" in watches)
        print("line:", bool(server.query_op_traceback("first_nan")))


def toggles():
    """The server opens a gate with its first reply, and closes it with its second."""
    server, address = start_server(toggles=[("first_nan", 0, "DebugIdentity")])
    x, loss, _ = model()
    with started() as session:
        wrapped = grpc_wrapper.TensorBoardDebugWrapperSession(
            session, address, send_traceback_and_source_code=False)
        for i in range(4):
            server.debug_tensor_values.clear()
            wrapped.run(loss, {x: [1., 2.]})
            print(f"{i}:", seen(server))


def outcome(session, fetches, feeds, url, ops=("DebugIdentity",), **options):
    run_options = tf1.RunOptions(**options)
    debug_utils.watch_graph(run_options, session.graph, debug_ops=list(ops), debug_urls=[url],
                            node_name_regex_allowlist="first_nan|v")
    try:
        session.run(fetches, feeds, options=run_options)
    except tf.errors.OpError as e:
        return f"{type(e).__name__} {' '.join(e.message.split())}"
    return "none"


class Waiting(grpc_debug_test_server.EventListenerTestServicer):
    """Never replies to what the gates' op waits for."""
    release = threading.Event()

    def __init__(self, server_port, dump_dir, toggle_watch_on_core_metadata):
        super().__init__(server_port, dump_dir, toggle_watch_on_core_metadata)
        self._stream_handler_class = lambda: WaitingHandler(self)


class WaitingHandler(grpc_debug_test_server.EventListenerTestStreamHandler):
    def __init__(self, servicer):
        super().__init__(None, servicer)

    def on_value_event(self, event):
        self._event_listener_servicer.release.wait()
        return debug_service_pb2.EventReply()


class Dying(Waiting):
    """Ends the connection when the first tensor arrives."""
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._stream_handler_class = lambda: DyingHandler(self)


class DyingHandler(WaitingHandler):
    def on_value_event(self, event):
        raise SystemError("planted")


def failures():
    x, loss, _ = model()
    silent = socket.create_server(("localhost", 0))
    with started() as session:
        feeds = {x: [1., 2.]}
        print("away:", outcome(session, loss, feeds, f"grpc://localhost:{free_port()}"))
        print("silent:", outcome(session, loss, feeds,
                                 f"grpc://localhost:{silent.getsockname()[1]}"))
        print("silent cancelled:", outcome(session, loss, feeds,
                                           f"grpc://localhost:{silent.getsockname()[1]}",
                                           timeout_in_ms=300))
        server, address = start_server(kind=Waiting)
        print("waiting:", outcome(session, loss, feeds, f"grpc://{address}", timeout_in_ms=1000))
        server.release.set()
        dying, address = start_server(kind=Dying)
        print("dying:", outcome(session, loss, feeds, f"grpc://{address}"))
        print("address:", outcome(session, loss, feeds, "grpc://nowhere"))
        print("name:", outcome(session, loss, feeds, "grpc://no-such-host.invalid:1"))
        session.run(loss, feeds)
        print("after:", "ran")


assert debug_data
globals()[sys.argv[1]]()
