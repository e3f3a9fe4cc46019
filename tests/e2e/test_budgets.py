"""What strangers can make grow has a limit: each flood is refused and counted, the daemon stays up
with its memory and descriptors flat, and another session's steps go on meanwhile. Also health, and
draining, as clients see them."""
import contextlib
import json
import os
import signal
import struct
import threading
import time
import zlib

import grpc

import raw_clients as rc
from harness import (
    DEADLINE_S, SANITIZED, WARM_PYTHON, LineReader, LocalCluster, TestCase, command_line,
    marked_pids, program, sanitized_too)

HALF_MIB = 1 << 19
MAX_GROWTH_BYTES = 64 << 20
PROTOCOL_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 1, 7, 8, 11
PRIORITY = 2
EXHAUSTED = 8  # gRPC's RESOURCE_EXHAUSTED


def poll(what, check):
    """Until check() is true: it asks a daemon, which takes its time."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"never: {what}")
    return found


class Cluster(LocalCluster):
    """A worker and a master with the flags given."""

    def __init__(self, test, *master_flags, more=()):
        file = test.path("ports")
        super().__init__(test, "--workers", "1", "--port-file", file, *more,
                         *(f"--master-flag={f}" for f in master_flags))
        with open(file) as f:
            self.grpc_port, self.admin_port = (int(word)
                                               for word in f.read().replace("admin", "").split())
        self.pids = {os.path.basename(command_line(pid)[0]): pid for pid in marked_pids(test.mark)}
        self.pid = self.pids["tf-master"]

    def status(self):
        return json.loads(rc.page(self.admin_port, "/statusz")[1])["service"]

    def refused(self, limit):
        status = self.status()
        return (status["grpc"].get(limit) or status["budgets"][limit])["refused"]

    def in_use(self, limit):
        return self.status()["grpc"][limit]["in_use"]

    def counted(self, limit):
        text = rc.page(self.admin_port, "/metrics")[1]
        found = [line for line in text.splitlines()
                 if line.startswith(f'millrace_grpc_refused_total{{limit="{limit}"}}')]
        return int(found[0].split()[1])


class OtherSession:
    """Steps of somebody else, one after another, while the body of the `with` runs."""

    def __init__(self, test, cluster):
        self.test, self.cluster, self.n, self.worst_s, self.error, self.is_over = (
            test, cluster, 0, 0, None, False)

    def run(self, client, handle):
        try:
            while not self.is_over:
                began = time.monotonic()
                got = client.run(handle, feeds=[("x:0", rc.float_tensor(1, 2))], fetches=["y:0"])
                assert rc.first(got["y:0"], 4) == struct.pack("<2f", 2, 3)
                self.worst_s = max(self.worst_s, time.monotonic() - began)
                self.n += 1
        except Exception as error:  # told by the thread that waits
            self.error = error

    def __enter__(self):
        self.client = rc.Client(self.cluster.grpc_port)
        handle = self.client.create(rc.small_graph())
        self.thread = threading.Thread(target=self.run, args=(self.client, handle))
        self.thread.start()
        poll("a step", lambda: self.n or self.error)
        return self

    def __exit__(self, *failure):
        n_before = self.n
        poll("one more step", lambda: self.n > n_before or self.error)
        self.is_over = True
        self.thread.join()
        self.client.channel.close()
        if not any(failure):
            self.test.assertIsNone(self.error)
            self.test.assertLess(self.worst_s, DEADLINE_S / 4)


class Reader(threading.Thread):
    """Takes what the server says, until it says no more."""

    def __init__(self, peer):
        super().__init__()
        self.peer, self.goaways, self.resets = peer, [], []
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            for kind, _, stream, payload in self.peer.frames():
                if kind == rc.GOAWAY:
                    self.goaways.append((int.from_bytes(payload[4:8], "big"), payload[8:].decode()))
                elif kind == rc.RST_STREAM:
                    self.resets.append((stream, int.from_bytes(payload, "big")))


def opened(stream, end=False, **headers):
    return rc.frame(rc.HEADERS, rc.END_HEADERS | (rc.END_STREAM if end else 0), stream,
                    rc.header_block(rc.SERVICE + "RunStep", **headers))


def setting(number, value):
    return rc.frame(rc.SETTINGS, 0, 0, struct.pack(">HI", number, value))


def many_streams(make, n=60000):
    return b"".join(make(1 + 2 * i) for i in range(n))


def reset(stream):
    return rc.frame(rc.RST_STREAM, 0, stream, struct.pack(">I", CANCEL))


def hpack_bomb():
    """A field of 4000 bytes into the decoder's table, and 15,000 references to it."""
    field = b"\x40\x01x\x7f" + bytes((0xA1, 0x1E)) + b"v" * 4000  # 127 + 0x21 + (0x1e << 7) = 4000
    return rc.frame(rc.HEADERS, rc.END_HEADERS, 1, rc.header_block(rc.SERVICE + "RunStep") + field
                    + b"\xbe" * 15000)


# name: the limit (or limits) that ends it, what opens it, and what comes again and again.
FLOODS = {
    "pings": ("control_frames", b"", rc.frame(rc.PING, 0, 0, b"pingpong") * 1000),
    "pongs": ("control_frames", b"", rc.frame(rc.PING, rc.ACK, 0, b"pingpong") * 1000),
    "settings": ("control_frames", b"", rc.frame(rc.SETTINGS, 0, 0) * 1000),
    "window sizes": ("control_frames", many_streams(opened, 2000),
                     (setting(4, 1) + setting(4, 2**31 - 1)) * 500),
    "priorities": ("control_frames", b"", rc.frame(PRIORITY, 0, 1, b"\0\0\0\3\x10") * 1000),
    "window updates": ("control_frames", b"", rc.frame(rc.WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 1000),
    "window updates of a stream": ("control_frames", opened(1),
                                   rc.frame(rc.WINDOW_UPDATE, 0, 1, b"\0\0\0\1") * 1000),
    "empty data": ("control_frames", opened(1), rc.frame(rc.DATA, 0, 1) * 1000),
    "data by the byte": ("control_frames",
                         opened(1) + rc.frame(rc.DATA, 0, 1, b"\0\x7f\xff\xff\xff"),
                         rc.frame(rc.DATA, 0, 1, b"x") * 1000),
    "unknown frames": ("control_frames", b"", rc.frame(0x77, 0, 0) * 1000),
    "a long goaway": ("control_frames", b"", rc.frame(rc.GOAWAY, 0, 0, b"\0" * HALF_MIB)),
    "rapid reset": ("resets", b"", lambda i: opened(i) + reset(i)),
    # Which comes first depends on how much is read at a time.
    "resets that we are made to send": (("resets", "streams"), b"", lambda i: opened(i)
                                        + rc.frame(rc.WINDOW_UPDATE, 0, i, b"\x7f\xff\xff\xff")),
    "continuations": ("header_bytes", rc.frame(rc.HEADERS, 0, 1, b"\x82"),
                      rc.frame(rc.CONTINUATION, 0, 1) * 1000),
    "long continuations": ("header_bytes", rc.frame(rc.HEADERS, 0, 1, b"\x82"),
                           rc.frame(rc.CONTINUATION, 0, 1, b"\x82" * HALF_MIB)),
    "long headers": ("header_bytes", b"",
                     rc.frame(rc.HEADERS, rc.END_HEADERS, 1, b"\x82" * HALF_MIB)),
    "an hpack bomb": ("header_bytes", b"", hpack_bomb()),
}


class TestFloods(TestCase):
    def flood(self, cluster, opening, again, reads):
        """Sends until the server has had enough; returns what it said, and how many bytes it took.
        """
        n_sent, next_stream = 0, 1
        with rc.Http2(cluster.grpc_port).open() as peer:
            reader = Reader(peer) if reads else None
            with contextlib.suppress(ConnectionError, TimeoutError):
                peer.socket.sendall(opening)
                while n_sent < 64 << 20 and (reader is None or reader.is_alive()):
                    chunk = again if isinstance(again, bytes) else b"".join(
                        again(next_stream + 2 * i) for i in range(500))
                    next_stream += 1000
                    peer.socket.sendall(chunk)
                    n_sent += len(chunk)
            if reader:
                peer.half_close()
                reader.join()
        return reader, n_sent

    def check(self, names, reads=True):
        cluster = Cluster(self)
        with OtherSession(self, cluster) as other:
            fds, resident = rc.n_descriptors(cluster.pid), rc.resident_bytes(cluster.pid)
            for name in names:
                limits, opening, again = FLOODS[name]
                limits = (limits,) if isinstance(limits, str) else limits
                with self.subTest(name):
                    n_before = sum(map(cluster.counted, limits))
                    reader, n_sent = self.flood(cluster, opening, again, reads)
                    self.assertLess(n_sent, 64 << 20)
                    self.assertEqual(sum(map(cluster.refused, limits)), n_before + 1)
                    if reads and len(limits) > 1 and not reader.goaways:
                        # what it was still sending when the connection was closed made TCP drop the
                        # server's last words
                        continue
                    if reads:
                        self.assertEqual(len(reader.goaways), 1)
                        self.assertIn(reader.goaways[0][0], (ENHANCE_YOUR_CALM,) if len(limits) == 1
                                      else (ENHANCE_YOUR_CALM, PROTOCOL_ERROR))
                        self.assertGreater(len(reader.goaways[0][1]), 10)
            self.assertGreater(other.n, 0)
            poll("its connections close", lambda: rc.n_descriptors(cluster.pid) <= fds)
            if not SANITIZED:  # which keeps what is freed
                self.assertLess(rc.resident_bytes(cluster.pid) - resident, MAX_GROWTH_BYTES)
        self.assertEqual(cluster.stop(), 0)

    @sanitized_too
    def test_floods_are_refused(self):
        self.check(FLOODS)

    def test_floods_of_one_who_does_not_read(self):
        self.check(("pings", "settings", "rapid reset", "resets that we are made to send",
                    "continuations"), reads=False)

    def test_streams_beyond_the_limit_are_reset(self):
        cluster = Cluster(self, "--max-streams=10")
        with OtherSession(self, cluster), rc.Http2(cluster.grpc_port) as peer:
            reader = Reader(peer)
            peer.send(rc.OPENING + many_streams(opened, 30))
            poll("resets", lambda: len(reader.resets) == 20)
            self.assertEqual({code for _, code in reader.resets}, {REFUSED_STREAM})
            self.assertEqual(cluster.refused("streams"), 20)
            self.assertEqual(cluster.in_use("streams"), 10)
            peer.half_close()
            reader.join()
            with rc.Http2(cluster.grpc_port).open() as one_who_knows:
                reader = Reader(one_who_knows)
                one_who_knows.send(many_streams(opened, 11))
                reader.join()
            self.assertEqual(len(reader.goaways), 1)
            self.assertEqual(cluster.refused("streams"), 21)

    def test_calls_beyond_the_limit_are_reset(self):
        cluster = Cluster(self, "--max-calls=50")
        with rc.Http2(cluster.grpc_port).open() as peer:
            reader = Reader(peer)
            peer.send(many_streams(opened, 60))
            poll("resets", lambda: len(reader.resets) == 10)
            self.assertEqual({code for _, code in reader.resets}, {ENHANCE_YOUR_CALM})
            with rc.Client(cluster.grpc_port) as client, self.assertRaises(rc.Refused) as refused:
                client.create(rc.small_graph())
            self.assertEqual(refused.exception.code, EXHAUSTED)
            peer.half_close()
            reader.join()
        with rc.Client(cluster.grpc_port) as client:
            poll("calls are given back", lambda: cluster.in_use("calls") == 0)
            client.create(rc.small_graph())

    def test_connections_beyond_the_limit_are_closed(self):
        cluster = Cluster(self, "--max-connections=5")
        with OtherSession(self, cluster), contextlib.ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(rc.Http2(cluster.grpc_port).open())
            self.assertEqual(cluster.in_use("connections"), 5)
            with rc.Http2(cluster.grpc_port) as one_more:
                self.assertEqual(one_more.read_to_end(), b"")
            self.assertEqual(cluster.refused("connections"), 1)


class TestSlowPeers(TestCase):
    def test_a_peer_that_says_nothing_is_closed(self):
        cluster = Cluster(self, "--handshake-timeout=300ms")
        with OtherSession(self, cluster):
            for opening in (b"", rc.PREFACE[:10], rc.PREFACE, rc.OPENING[:-1]):
                n_before = cluster.refused("handshake_ms")
                with rc.Http2(cluster.grpc_port) as peer:
                    peer.send(opening)
                    peer.read_to_end()
                self.assertEqual(cluster.refused("handshake_ms"), n_before + 1)

    def test_what_stalls_ends(self):
        big = rc.graph(rc.const("one", rc.float_tensor(1), rc.FLOAT),
                       rc.const("dims", rc.tensor(rc.INT32, (1,), struct.pack("<i", 12 << 20))),
                       rc.node("big", "Fill", ("dims", "scalar"), T=rc.type_attr(rc.FLOAT)),
                       # fmt: skip
                       rc.const("scalar", rc.tensor(rc.FLOAT, (), struct.pack("<f", 1)), rc.FLOAT))
        cluster = Cluster(self, "--stall-timeout=500ms")
        with OtherSession(self, cluster), rc.Client(cluster.grpc_port) as client:
            handle = client.create(big)
            n_before = cluster.refused("stall_ms")
            run = rc.call_frames(1, "RunStep",
                                 rc.run_request(handle, fetches=["big:0"], request_id=0))
            with self.subTest("a header block"), rc.Http2(cluster.grpc_port).open() as peer:
                peer.send(rc.frame(rc.HEADERS, 0, 1, b"\x83"))
                reader = Reader(peer)
                reader.join()
                self.assertEqual(reader.goaways[0][0], ENHANCE_YOUR_CALM)
            for name, frames in (("no message", opened(1)),
                                 ("half a prefix", opened(1) + rc.frame(rc.DATA, 0, 1, b"\0\0")),
                                 ("a message without its end",
                                  opened(1) + rc.frame(rc.DATA, 0, 1, rc.message(b"x" * 10))),
                                 # fmt: skip
                                 ("half a message", opened(1)
                                  + rc.frame(rc.DATA, 0, 1, rc.message(b"x" * 10, 20)))):
                with self.subTest(name), rc.Http2(cluster.grpc_port).open() as peer:
                    peer.send(frames)
                    self.assertEqual(peer.reply(1), b"")
            with self.subTest("a closed window"), rc.Http2(cluster.grpc_port) as peer:
                peer.send(rc.PREFACE + setting(4, 0) + run)
                reader = Reader(peer)
                poll("a reset", lambda: reader.resets)
                self.assertEqual(reader.resets, [(1, CANCEL)])
                peer.half_close()
                reader.join()
            with self.subTest("an unread socket"), rc.Http2(cluster.grpc_port) as peer:
                peer.send(rc.PREFACE + setting(4, 2**31 - 1)
                          + rc.frame(rc.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30)) + run)
                poll("it is given up", lambda: cluster.refused("stall_ms") == n_before + 7)
            self.assertEqual(cluster.refused("stall_ms"), n_before + 7)
            poll("all is given back", lambda: cluster.in_use("inflight_bytes") < 1000)


class TestMessages(TestCase):
    def raw_call(self, cluster, body, flag, encoding="gzip"):
        """The numbers of refused messages that a call with this body makes go up."""
        before = cluster.status()["grpc"]
        with rc.Http2(cluster.grpc_port).open() as peer:
            peer.send(opened(1, grpc_encoding=encoding)
                      + rc.frame(rc.DATA, rc.END_STREAM, 1, rc.message(body, flag=flag)))
            peer.reply(1)
        after = cluster.status()["grpc"]
        return {name for name in after if after[name]["refused"] != before[name]["refused"]}

    def test_bombs(self):
        bomb = zlib.compress(b"\0" * (256 << 20), 9)
        cluster = Cluster(self, "--max-inflate=16M", "--max-inflight=32M")
        with OtherSession(self, cluster):
            resident = rc.resident_bytes(cluster.pid)
            self.assertEqual(self.raw_call(cluster, bomb, 1, "deflate"), {"inflate_bytes"})
            gzipped = zlib.compressobj(9, zlib.DEFLATED, 31)
            self.assertEqual(self.raw_call(cluster, gzipped.compress(b"\0" * (256 << 20))
                                           + gzipped.flush(), 1), {"inflate_bytes"})
            self.assertLess(rc.resident_bytes(cluster.pid) - resident, 16 << 20)
        cluster.stop()
        cluster = Cluster(self, "--max-inflate-ratio=100")
        self.assertEqual(self.raw_call(cluster, zlib.compress(b"\0" * (1 << 20), 9), 1, "deflate"),
                         {"inflate_bytes"})

    def refused(self, client, **request):
        with self.assertRaises(rc.Refused) as refused:
            client.run(**request)
        return refused.exception.code

    def test_bytes(self):
        cluster = Cluster(self, "--max-message=4M", "--max-inflight=6M")
        feed = rc.tensor(rc.FLOAT, (1 << 19,), b"\0" * (2 << 20))
        with rc.Client(cluster.grpc_port) as client, rc.Http2(cluster.grpc_port).open() as hoarder:
            handle = client.create(rc.small_graph())
            step = {"handle": handle, "feeds": [("x:0", feed)], "fetches": ["y:0"]}
            client.run(**step)
            self.assertEqual(self.refused(client,
                                          **{**step, "feeds": [
                                              ("x:0", rc.tensor(rc.FLOAT, (1 << 20,),
                                                      b"\0" * (4 << 20)))]}), EXHAUSTED)
            self.assertEqual(cluster.refused("message_bytes"), 1)
            for stream in (1, 3):  # claimed bytes take no room from others
                hoarder.send(opened(stream)
                             + rc.frame(rc.DATA, 0, stream, rc.message(b"x" * 10, 3 << 20)))
            poll("two calls", lambda: cluster.in_use("calls") == 2)
            client.run(**step)
            # bytes that came do
            hoarder.send(rc.frame(rc.DATA, 0, 1, b"x" * (5 << 19))
                         + rc.frame(rc.DATA, 0, 3, b"x" * (5 << 19)))
            poll("they came", lambda: cluster.in_use("inflight_bytes") > 5 << 20)
            self.assertEqual(self.refused(client, **step), EXHAUSTED)
            self.assertEqual(cluster.refused("inflight_bytes"), 1)
            hoarder.socket.close()
            poll("they are given back", lambda: cluster.in_use("inflight_bytes") == 0)
            client.run(**step)

    @sanitized_too
    def test_compressed_calls(self):
        cluster = Cluster(self)
        feed = rc.tensor(rc.FLOAT, (1 << 18,), struct.pack("<f", 2) * (1 << 18))
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            channel = grpc.insecure_channel(f"{rc.LOOPBACK}:{cluster.grpc_port}",
                                            compression=compression,
                                            options=[
                                                ("grpc.enable_http_proxy", 0),
                                                ("grpc.use_local_subchannel_pool", 1)])
            with self.subTest(compression), channel:
                handle = rc.first(channel.unary_unary(rc.SERVICE + "CreateSession")(
                    rc.create_request(rc.small_graph())), 1)
                request = rc.run_request(handle, feeds=[("x:0", feed)], fetches=["y:0"])
                reply = channel.unary_unary(rc.SERVICE + "RunStep")(request)
                self.assertEqual(rc.first(rc.first(rc.first(reply, 1), 2), 4),
                                 struct.pack("<f", 3) * (1 << 18))
        for body, flag, encoding in ((b"junk", 1, "gzip"), (zlib.compress(b"x")[:-1], 1, "deflate"),
                                     (b"x", 1, "identity"), (b"x", 0, "snappy")):
            # errors, but no budget's
            self.assertEqual(self.raw_call(cluster, body, flag, encoding), set())


TENSORFLOW_CLIENT = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
target = sys.argv[1]
for algorithm in sys.argv[2:]:
    options = {"compression_algorithm": algorithm} if algorithm != "none" else {}
    config = tf.ConfigProto(rpc_options=options, operation_timeout_in_ms=60000)
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [None], name="x")
        big = tf.constant(np.arange(50000, dtype=np.float32))
        y = tf.reduce_sum(x) + tf.reduce_sum(big)
        with tf.Session(target, graph=graph, config=config) as session:
            for n in (1, 1000, 3000000):
                got = session.run(y, {x: np.ones(n, np.float32)})
                assert abs(got - (n + 50000 * 49999 / 2)) < 2000, (algorithm, n, got)
            for wrong in ("zzz:0",):
                try:
                    session.run(wrong)
                except (ValueError, tf.errors.OpError):
                    pass
    print("ran", algorithm, flush=True)
    sys.stdin.readline()
os._exit(0)
"""


class TestTensorFlowClient(TestCase):
    def start(self, target, *algorithms):
        client = self.popen([WARM_PYTHON, "-c", TENSORFLOW_CLIENT, target, *algorithms], stdin=-1)
        return client, LineReader(client.stdout)

    def test_compression(self):
        cluster = Cluster(self)
        client, out = self.start(cluster.target, "gzip", "deflate", "none")
        for algorithm in ("gzip", "deflate", "none"):
            self.assertEqual(out.line(), f"ran {algorithm}", client.stderr.peek() if client.poll()
                             else None)
            client.stdin.write(b"\n")
            client.stdin.flush()
        self.assertEqual(self.wait_for_exit(client), 0)

    def serve(self, worker_port, listen):
        """A master of its own; returns it and the port it listens on."""
        file = self.path("master-ports")
        master = self.popen([program("tf-master"), "--cluster", f"worker=127.0.0.1:{worker_port}",
                             "--listen", listen, "--admin", "off",
                             "--port-file", file])  # fmt: skip
        LineReader(master.stderr).until("serving")
        with open(file) as f:
            return master, int(f.readline())

    def test_a_restarted_master_is_found_again(self):
        file = self.path("worker-ports")
        worker = self.popen([program("tf-worker"), "--listen", "127.0.0.1:0", "--admin", "off",
                             "--port-file", file])
        LineReader(worker.stderr).until("serving")
        with open(file) as f:
            worker_port = int(f.readline())
        master, port = self.serve(worker_port, "127.0.0.1:0")
        client, out = self.start(f"grpc://127.0.0.1:{port}", "none", "none")
        self.assertEqual(out.line(), "ran none")
        master.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait_for_exit(master), 0)
        master, _ = self.serve(worker_port, f"127.0.0.1:{port}")
        client.stdin.write(b"\n")
        client.stdin.flush()
        self.assertEqual(out.line(), "ran none")
        client.stdin.close()
        self.assertEqual(self.wait_for_exit(client), 0)


class TestService(TestCase):
    def test_steps(self):
        cluster = Cluster(self, "--max-steps=3", "--max-session-steps=2")
        with rc.Client(cluster.grpc_port) as client:
            handles = [client.create(rc.loop_graph(rc.ENDLESS)) for _ in range(3)]
            running = [client.begin_run(handle, DEADLINE_S, fetches=["exit:0"])
                       for handle in (handles[0], handles[0], handles[1])]
            poll("three steps", lambda: cluster.status()["steps"] == 3)
            with self.assertRaises(rc.Refused) as refused:
                client.run(handles[2], fetches=["exit:0"])
            self.assertEqual(refused.exception.code, EXHAUSTED)
            self.assertIn("--max-steps", refused.exception.message)
            client.close(handles[1])
            poll("two steps", lambda: cluster.status()["steps"] == 2)
            with self.assertRaises(rc.Refused) as refused:
                client.run(handles[0], fetches=["exit:0"])
            self.assertEqual(refused.exception.code, EXHAUSTED)
            self.assertIn("--max-session-steps", refused.exception.message)
            budgets = cluster.status()["budgets"]
            self.assertEqual(budgets["steps"], {"limit": 3, "in_use": 2, "refused": 1})
            self.assertEqual(budgets["session_steps"], {"limit": 2, "in_use": 2, "refused": 1})
            client.close(handles[0])
            for call in running:
                with contextlib.suppress(rc.Refused):
                    client.end(call)

    def test_sessions_and_nodes(self):
        cluster = Cluster(self, "--max-sessions=2", "--max-nodes=3")
        with rc.Client(cluster.grpc_port) as client:
            handles = [client.create(rc.small_graph()), None]
            for limit, graph in (("nodes",
                                  rc.graph(*(rc.const(f"c{i}", rc.int_tensor(i))
                                             for i in range(4)))), ("sessions", rc.small_graph())):
                if limit == "sessions":
                    handles[1] = client.create(rc.small_graph())
                with self.assertRaises(rc.Refused) as refused:
                    client.create(graph)
                self.assertEqual(refused.exception.code, EXHAUSTED)
                self.assertEqual(cluster.refused(limit), 1)
            client.close(handles[1])
            client.create(rc.small_graph())

    def test_health(self):
        cluster = Cluster(self, more=("--keep-going",))
        serving, not_serving, unknown = b"\x08\x01", b"\x08\x02", b"\x08\x03"
        with rc.Client(cluster.grpc_port) as client:
            check = client.channel.unary_unary("/grpc.health.v1.Health/Check")
            watch = client.channel.unary_stream("/grpc.health.v1.Health/Watch")
            named = rc.data(1, "tensorflow.MasterService")
            self.assertEqual(check(b""), serving)
            self.assertEqual(check(named), serving)
            for request, code in ((rc.data(1, "no.Such"), grpc.StatusCode.NOT_FOUND),
                                  (b"\xff", grpc.StatusCode.INVALID_ARGUMENT)):
                for method in (check,) if code == grpc.StatusCode.NOT_FOUND else (
                    check, lambda r: next(watch(r))):
                    with self.assertRaises(grpc.RpcError) as error:
                        method(request)
                    self.assertEqual(error.exception.code(), code)
            watching = [watch(b"", timeout=DEADLINE_S), watch(named, timeout=DEADLINE_S)]
            lost = watch(rc.data(1, "no.Such"), timeout=DEADLINE_S)
            self.assertEqual([next(w) for w in watching], [serving, serving])
            self.assertEqual(next(lost), unknown)
            left = watch(b"", timeout=DEADLINE_S)
            next(left)
            left.cancel()
            os.kill(cluster.pids["tf-worker"], signal.SIGKILL)
            self.assertEqual([next(w) for w in watching], [not_serving, not_serving])
            self.assertEqual(check(named), not_serving)
            poll("the watcher that left is gone", lambda: cluster.in_use("calls") == 3)
            os.kill(cluster.pid, signal.SIGTERM)
            for watcher in (*watching, lost):
                with self.assertRaises(grpc.RpcError) as error:
                    next(watcher)
                self.assertEqual(error.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_health_says_that_it_drains(self):
        cluster = Cluster(self)
        with rc.Client(cluster.grpc_port) as client:
            watching = client.channel.unary_stream("/grpc.health.v1.Health/Watch")(
                b"", timeout=DEADLINE_S)
            self.assertEqual(next(watching), b"\x08\x01")
            os.kill(cluster.pid, signal.SIGTERM)
            self.assertEqual(next(watching), b"\x08\x02")
            with self.assertRaises(grpc.RpcError) as error:
                next(watching)
            self.assertEqual(error.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_drain(self):
        """GOAWAY of the highest stream id and a PING; calls sent before its answer are served; then
        GOAWAY of the last id; all are answered."""
        cluster = Cluster(self)
        with rc.Client(cluster.grpc_port) as client:
            handle = client.create(rc.loop_graph(3000000))
        run = rc.run_request(handle, fetches=["exit:0"], request_id=0)
        with rc.Http2(cluster.grpc_port).open() as peer:
            peer.send(rc.call_frames(1, "RunStep", run))
            poll("a step", lambda: cluster.status()["steps"] == 1)
            os.kill(cluster.pid, signal.SIGTERM)
            frames, ended, last_ids, pinged = peer.frames(), set(), [], False
            for kind, flags, stream, payload in frames:
                if kind == rc.GOAWAY:
                    last_ids.append(struct.unpack(">II", payload[:8]))
                if kind == rc.PING and not flags & rc.ACK:
                    pinged = True
                    peer.send(rc.call_frames(3, "RunStep", run)
                              + rc.frame(rc.PING, rc.ACK, 0, payload))
                if len(last_ids) == 2:  # beyond the last id: ignored
                    peer.send(rc.call_frames(5, "RunStep", run))
                if flags & rc.END_STREAM and kind in (rc.DATA, rc.HEADERS):
                    ended.add(stream)
            self.assertTrue(pinged)
            self.assertEqual(last_ids, [(2**31 - 1, 0), (3, 0)])
            self.assertEqual(ended, {1, 3})
