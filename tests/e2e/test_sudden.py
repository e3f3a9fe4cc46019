"""Cancelled steps, sudden deaths and stops: they do not disturb others, nothing is left over, and
TERM ends every daemon with status 0 (under a sanitizer: without a leak)."""
import random
import signal
import socket
import struct
import subprocess
import time

import harness
import raw_clients as raw
from harness import SANITIZED, WARM_PYTHON, LineReader, sanitized_too
from hostile import F, I, MIB, PS, SEED, TASKS, WORKER0, WORKER1, HostileCase
from raw_clients import (DATA, ENDLESS, END_HEADERS, FLOAT, HEADERS, INT32, OPENING, RST_STREAM,
                         Client, Http2, Wire, const, data, float_tensor, frame, graph,
                         # fmt: skip
                         header_block, loop_graph, message, node, small_graph, tensor, wire_frame)


class TestStepsGivenUp(HostileCase):
    master_flags = ("--drain-timeout", "3s")  # sessions whose last connection has gone stay

    @sanitized_too
    def test_steps_given_up_in_every_phase(self):
        """While they are compiled, registered, run, and while their fetches come: by RST_STREAM,
        RST, FIN and a half-closed connection."""
        names = [f"n{i}" for i in range(100)]
        nodes = [node("x", "Placeholder", device=PS, dtype=F)]
        nodes += [node(name, "Neg", (names[i - 1] if i else "x",), TASKS[i % 3], T=F) for i,
                  name in enumerate(names)]
        endless = loop_graph(ENDLESS, WORKER0) + graph(node("z", "Identity", ("exit",), PS, T=I))
        rng = random.Random(SEED)
        with Client(self.port) as client:
            handle = client.create(graph(*nodes) + endless)
            for turn in range(120):
                value = float_tensor(*[1.0] * rng.choice((1, 10, 300_000)))
                fetches = [f"{rng.choice(names)}:0", f"{rng.choice(names)}:0"] + ["z:0"] * (
                    turn % 2)
                with Http2(self.port) as connection:
                    connection.open().send(raw.call_frames(1, "RunStep", raw.run_request(handle,
                            feeds=[("x:0", value)], fetches=fetches)))
                    for _ in range(rng.choice((0, 0, 1, 2, 5))):  # questions take time, too
                        self.cluster.master.page("/stepz")
                    if turn % 4 == 0:
                        connection.send(frame(RST_STREAM, 0, 1, b"\0\0\0\x08")
                                        + raw.call_frames(3, "ListDevices", b""))
                        self.assertTrue(connection.reply(3))
                    elif turn % 4 == 1:
                        connection.reset()
                    elif turn % 4 == 2:
                        connection.half_close()
            self.cluster.check(20)
            client.close(handle)
        self.check_well(room_mib=64)

    @sanitized_too
    def test_the_master_ends_while_a_page_waits_for_a_task(self):
        master, task = self.cluster.master, self.cluster.daemons[1]
        with Client(self.port) as client:
            handle = client.create(loop_graph(ENDLESS, WORKER0))
            step = client.begin_run(handle, fetches=["exit:0"])
            self.until(lambda: "waits for" in master.page("/stepz"), "no step runs")
            task.process.send_signal(signal.SIGSTOP)
            with socket.create_connection((raw.LOOPBACK, master.admin_port)) as page:
                page.sendall(b"GET /stepz HTTP/1.1\r\nHost: x\r\n\r\n")
                master.page("/livez")  # the loop has the request before
                for _ in range(2):  # the second one ends at once
                    master.process.send_signal(signal.SIGTERM)
                self.assertEqual(self.wait_for_exit(master.process), 0)
            task.process.send_signal(signal.SIGCONT)
            step.cancel()

    def test_sessions_closed_under_their_steps(self):
        rng = random.Random(SEED)
        with Client(self.port) as client:
            for turn in range(20):
                handle = client.create(loop_graph(ENDLESS, WORKER0)
                                       + graph(node("z", "Identity", ("exit",), PS, T=I)))
                steps = [client.begin_run(handle, fetches=[rng.choice(("z:0", "exit:0"))])
                         for _ in range(4)]
                if turn % 2:
                    self.until(lambda: "waits for" in self.cluster.master.page("/stepz"),
                               "no step runs")
                client.call("Reset",
                            data(1, "nobody's container")) if turn % 3 == 0 else client.close(
                                handle)
                for step in steps:  # CANCELLED, or ABORTED for one that came after the end
                    self.assertIn(raw.first(step.result(), 3) if step.exception() is None
                                  else step.code().value[0], (1, 10))
        self.check_well()


class TestSudden(HostileCase):
    """Deaths and stops under a step of TensorFlow's client, which adds a worker's endless loop to a
    variable of the ps."""

    SCRIPT = """
import os, sys, time
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_v2_behavior(); tf1.disable_control_flow_v2()
with tf.device("/job:ps/task:0"):
    v = tf1.get_variable("v", initializer=tf.constant(0.0))
with tf.device("/job:worker/task:0"):
    n = tf1.placeholder(tf.int32, [])
    loop = tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0)], parallel_iterations=1)
    x = tf.cast(tf.reshape(loop, []), tf.float32)
with tf.device("/job:ps/task:0"):
    add = tf1.assign_add(v, x)
init = tf1.global_variables_initializer()
session = tf1.Session(sys.argv[1], config=tf1.ConfigProto(operation_timeout_in_ms=int(sys.argv[2])))
session.run(init)
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    try:
        op = init if words[0] == "init" else add
        print("value", session.run(op, {n: int(words[-1])}), flush=True)
    except tf.errors.OpError as error:
        print("error", type(error).__name__, error.message.replace("\\n", " | "), flush=True)
os._exit(0)
"""

    def start_client(self, timeout_ms=60_000):
        self.client = self.popen([WARM_PYTHON, "-c", self.SCRIPT, self.cluster.target, timeout_ms],
                                 {"TF_CPP_MIN_LOG_LEVEL": 3}, stdin=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)  # fmt: skip
        self.lines = LineReader(self.client.stdout)
        self.lines.until("ready")
        self.assertEqual(self.ask("add 10"), "value 10.0")

    def tell(self, line):
        self.client.stdin.write(line.encode() + b"\n")
        self.client.stdin.flush()

    def ask(self, line):
        self.tell(line)
        return self.lines.line()

    def begin_endless(self):
        self.tell(f"add {ENDLESS}")
        worker = self.cluster.daemons[1]
        self.until(lambda: worker.metric("millrace_worker_steps_live") > 0, "the step does not run")

    def kill(self, daemon):
        self.killed_at = time.monotonic()
        daemon.process.kill()
        daemon.process.wait()

    def answer_soon(self, pattern, limit_s=10):
        """The endless step's error, long before the client's own deadline."""
        line = self.lines.line()
        self.assertRegex(line, pattern)
        self.assertLess(time.monotonic() - self.killed_at, limit_s)

    def restart(self, daemon):
        """At its old port."""
        daemon.restart()
        self.before[daemon.name] = (1000, 1 << 40)
        self.until(lambda: raw.page(self.cluster.master.admin_port, "/readyz")[0] == 200,
                   "the master does not find it")

    @sanitized_too
    def test_the_client_is_killed(self):
        self.start_client()
        self.begin_endless()
        self.client.kill()
        self.cluster.check(20)  # the step has ended everywhere
        self.check_well()

    @sanitized_too
    def test_the_ps_is_killed(self):
        self.start_client()
        self.begin_endless()
        self.kill(self.cluster.daemons[0])
        self.answer_soon("^error (UnavailableError|AbortedError) .*/job:ps/replica:0/task:0")
        self.assertRegex(self.ask("add 1"),
                         "^error UnavailableError .*/job:ps/replica:0/task:0.* is not reachable")
        self.restart(self.cluster.daemons[0])
        self.assertRegex(self.ask("add 1"),
                         "^error AbortedError .*/job:ps/replica:0/task:0 has restarted")
        self.assertRegex(self.ask("add 1"),
                         "^error FailedPreconditionError .*uninitialized value v")
        self.assertEqual(self.ask("init 0"), "value None")
        self.assertEqual(self.ask("add 7"), "value 7.0")
        self.client.kill()
        self.check_well()

    @sanitized_too
    def test_the_worker_is_killed(self):
        self.start_client()
        self.begin_endless()
        self.kill(self.cluster.daemons[1])
        self.answer_soon("^error (UnavailableError|AbortedError) .*/job:worker/replica:0/task:0")
        self.restart(self.cluster.daemons[1])
        self.assertRegex(self.ask("add 1"),
                         "^error AbortedError .*/job:worker/replica:0/task:0 has restarted")
        self.assertEqual(self.ask("add 7"), "value 17.0")  # the variable was the ps's
        self.client.kill()
        self.check_well()

    def test_the_master_is_killed(self):
        """TensorFlow's client waits for it until its own deadline; the tasks end the step at once.
        """
        self.start_client(timeout_ms=2000 if not SANITIZED else 5000)
        self.begin_endless()
        self.kill(self.cluster.master)
        for task in self.cluster.tasks:
            self.until(lambda: task.metric("millrace_worker_steps_live") == 0,
                       f"{task.name} still runs the step")
        self.assertRegex(self.lines.line(),
                         "^error (DeadlineExceededError|UnavailableError|AbortedError) ")
        self.restart(self.cluster.master)
        self.assertRegex(self.ask("add 1"),
                         "^error AbortedError .* is not found. Possibly, this master has restarted")
        self.client.kill()
        self.check_well()

    def test_a_worker_is_stopped_and_goes_on(self):
        self.start_client(timeout_ms=2000 if not SANITIZED else 5000)
        worker = self.cluster.daemons[1]
        worker.process.send_signal(signal.SIGSTOP)
        with Client(self.port) as other:  # the others do not wait for it
            handle = other.create(small_graph(WORKER1))
            other.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
            other.close(handle)
        began = time.monotonic()
        self.assertRegex(self.ask("add 1"), "^error DeadlineExceededError ")
        self.assertLess(time.monotonic() - began, 15)
        worker.process.send_signal(signal.SIGCONT)
        self.assertRegex(self.ask("add 7"), r"^value 1[78]\.0")  # what was sent to it may have run
        self.client.kill()
        self.check_well()


def large_graph():
    chain = [node(f"n{i}", "Neg", (f"n{i - 1}" if i else "x",), TASKS[i // 10_000 % 3], T=F)
             for i in range(100_000)]
    return graph(node("x", "Placeholder", dtype=F), *chain)


class TestStopping(HostileCase):
    """TERM in the middle of things: whatever is still on its way, each daemon ends with status 0
    (tearDown looks), and soon."""

    def setUp(self):
        super().setUp()
        self.large, self.last = large_graph(), "n99999:0"

    def stop_master(self, limit_s):
        """Within the drain timeout of 3 s and some."""
        began = time.monotonic()
        self.assertIsNone(self.cluster.master.stop())
        self.assertLess(time.monotonic() - began, limit_s)

    @sanitized_too
    def test_a_task_that_does_not_answer(self):
        """A step is being ended at a stopped worker; it must neither hold the master up nor outlive
        what it uses there."""
        worker = self.cluster.daemons[1]
        with Client(self.port) as client:
            step = client.begin_run(client.create(loop_graph(ENDLESS, WORKER0)), fetches=["exit:0"])
            self.until(lambda: "waits for /job" in self.cluster.master.page("/stepz"),
                       "no step runs")
            worker.process.send_signal(signal.SIGSTOP)
            step.cancel()
            self.until(lambda: "is being ended" in self.cluster.master.page("/stepz"),
                       "the step is not cancelled")
        self.stop_master(9)
        worker.process.send_signal(signal.SIGCONT)

    def test_calls_that_a_task_does_not_answer(self):
        """RegisterGraph and Reset."""
        worker = self.cluster.daemons[1]
        with Client(self.port) as client:
            handle = client.create(small_graph(WORKER0))
            worker.process.send_signal(signal.SIGSTOP)
            calls = [client.begin_run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])]
            self.until(lambda: "registered" in self.cluster.master.page("/stepz"),
                       "nothing is registered")
            calls.append(client.begin("Reset", b""))
            self.assertIsNotNone(calls[0].result())  # Reset has closed its session
            for call in calls:
                call.cancel()
        self.stop_master(9)
        worker.process.send_signal(signal.SIGCONT)

    @sanitized_too
    def test_a_graph_that_is_read_for_nobody(self):
        """CreateSession's client goes, then TERM comes, while a pool thread still reads the graph.
        """
        with Http2(self.port).open() as connection:
            connection.send(frame(HEADERS, END_HEADERS, 1,
                                  header_block(raw.SERVICE + "CreateSession")))
            connection.send(frame(DATA, 1, 1, message(raw.create_request(self.large))))
            self.until(lambda: self.cluster.master.metric("millrace_sessions") > 0,
                       "it has not begun")
            connection.reset()
        self.until(lambda: self.cluster.master.metric("millrace_grpc_connections") == 0,
                   "connections are left")
        self.stop_master(60)

    @sanitized_too
    def test_a_step_that_is_compiled_for_nobody(self):
        with Client(self.port) as client:
            step = client.begin_run(client.create(self.large), feeds=[("x:0", float_tensor(1))],
                                    fetches=[self.last])
            self.until(lambda: "being compiled" in self.cluster.master.page("/stepz"),
                       "it has not begun")
            step.cancel()
        self.stop_master(60)

    def test_conversations_that_never_end(self):
        """Half-sent calls, and replies that nobody reads, wait for no longer than the drain
        timeout."""
        bytes_ = OPENING + raw.call_frames(1, "CreateSession", raw.create_request(small_graph()))
        with Client(self.port) as client:
            handle = client.create(small_graph(WORKER0))
        connections = [Http2(self.port) for _ in range(60)] + [
            Wire(self.cluster.daemons[1].port) for _ in range(60)]
        for i, connection in enumerate(connections[:60]):
            connection.send(bytes_[: i * 5])
        for i, connection in enumerate(connections[60:]):
            connection.send(wire_frame("HELLO", raw.hello())[:i])
        unread = Http2(self.port).open()
        unread.send(raw.call_frames(1, "RunStep",
                                    raw.run_request(
                                        handle, feeds=[("x:0", float_tensor(*[1.0] * 10**6))],
                                        fetches=["y:0"])))
        self.stop_master(9)
        self.assertEqual(self.cluster.stop(), [])
        for connection in (*connections, unread):
            connection.socket.close()


class TestStoppingTogether(HostileCase):
    """With time enough: what is under way ends by itself."""

    worker_flags = ("--drain-timeout", "100s")

    @sanitized_too
    def test_everybody_at_once(self):
        """While the partitions of a large graph are registered and run."""
        with Client(self.port) as client:
            step = client.begin_run(client.create(large_graph()), feeds=[("x:0", float_tensor(1))],
                                    fetches=["n99999:0"])
            self.until(lambda: "being compiled" not in self.cluster.master.page("/stepz"),
                       "it is still compiled")
            for daemon in self.cluster.daemons:
                daemon.process.terminate()
            self.assertIsNotNone(step.exception() or step.result())
        for daemon in self.cluster.daemons:  # before tearDown: a second TERM would not wait
            daemon.process.wait(harness.DEADLINE_S)


class TestManySessions(HostileCase):
    @sanitized_too
    def test_two_thousand_sessions_leave_nothing(self):
        nodes = (node("x", "Placeholder", device=PS, dtype=F),
                 const("one", float_tensor(1), FLOAT, WORKER0),
                 node("y", "AddV2", ("x", "one"), WORKER0, T=F),
                 node("z", "Neg", ("y",), WORKER1, T=F),
                 const("shape", tensor(INT32, (1,), struct.pack("<i", -7)), device=PS),
                 node("bad", "Reshape", ("y", "shape"), WORKER1, T=F, Tshape=I))  # fmt: skip
        graph_def = graph(*nodes) + loop_graph(20, WORKER0)
        settled = None
        with Client(self.port) as client:
            for i in range(2000):
                handle = client.create(graph_def)
                client.run(handle, feeds=[("x:0", float_tensor(*[1.0] * (i % 3000)))],
                           fetches=["z:0", "exit:0"])
                self.assertEqual(self.code(client.run, handle, feeds=[("x:0", float_tensor(1))],
                                           fetches=["bad:0"]), 3)
                self.assertEqual(self.code(client.create, graph(node("a", "Nope"))), 5)
                client.close(handle)
                if i == 600:
                    settled = [raw.resident_bytes(d.process.pid) for d in self.cluster.daemons]
        for daemon, before in zip(self.cluster.daemons, settled):
            if not SANITIZED:
                self.assertLess(raw.resident_bytes(daemon.process.pid), before + 2 * MIB,
                                daemon.name)
        for task in self.cluster.tasks:
            self.assertEqual(task.metric("millrace_worker_graphs"), 0)
        self.check_well()
