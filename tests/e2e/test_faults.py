"""Deaths, silences and crowds: how soon the client gets an error, which error, and how soon steps
succeed again. Each figure is printed.

docs/failure.md promises the bounds: half a second for a killed task, 8 s for a silent one, 2 s
after its return. test_network.py tests networks that fail, and test_kills_in_a_row.py repeated
kills.
"""
import contextlib
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading
import time

import harness
import raw_clients as raw
from fault_case import (
    ABORTED, KILLED_S, MIB, PS, RETURN_S, SILENT_S, SLOW, UNAVAILABLE, WORKER0, WORKER1, F,
    FaultCase, TensorFlowClient, say)
from harness import SANITIZED, sanitized_too
from raw_clients import (
    FLOAT, Client, Refused, const, data, float_tensor, graph, loop_graph, node, small_graph,
    type_attr)


class TestKilled(FaultCase):
    def check_killed(self, victim, word, runs_on, code="UnavailableError"):
        task = victim.name.rstrip("0123456789"), victim.name[-1]
        name = f"/job:{task[0]}/replica:0/task:{task[1]}"
        client = TensorFlowClient(self, self.cluster.target)
        client.good("init")
        client.good("add", 1)
        self.begin(client, word, *runs_on)
        killed = self.kill(victim)
        got = client.answer()
        self.assertRegex(got.get("error", ""), f"^({code}|AbortedError)$")
        self.assertIn(name, got["message"])
        say(f"kill -9 of {victim.name} in a step: the client knows after", got["at"] - killed)
        self.assertLess(got["at"] - killed, KILLED_S)
        got = client.ask("add", 1)  # a task that is down fails steps at once
        self.assertEqual(got["error"], "UnavailableError")
        self.assertRegex(got["message"], f"{name} at .* is not reachable: .*last seen .* s ago")
        self.assertLess(got["at"] - got["began"], KILLED_S)
        self.assertIn(name, raw.page(self.master.admin_port, "/readyz")[1])
        served = self.restart(victim)
        got, errors = self.until_good(client, *(("init",) if victim is self.ps else ("add", 0)))
        say(f"{victim.name} is back: steps flow after", got["at"] - served)
        self.assertLess(got["at"] - served, RETURN_S)
        # once
        self.assertEqual([e["error"] for e in errors if e["error"] != "UnavailableError"],
                         ["AbortedError"])
        self.assertEqual(client.good("add", 7), 7 if victim is self.ps else 8)
        client.process.kill()
        self.cluster.check(20)

    @sanitized_too
    def test_the_worker(self):
        self.check_killed(self.worker, "spin", [self.worker])

    def test_the_ps(self):
        self.check_killed(self.ps, "block", [self.ps, self.worker])

    def test_the_master(self):
        client = TensorFlowClient(self, self.cluster.target, 5000)
        client.good("init")
        client.good("add", 1)
        self.begin(client, "spin", self.worker)
        killed = self.kill(self.master)
        for task in self.cluster.tasks:
            self.until(lambda t=task: t.metric("millrace_worker_steps_live") == 0,
                       "the step goes on")
        ended = time.monotonic() - killed
        say("kill -9 of the master in a step: its tasks have ended it after", ended)
        self.assertLess(ended, KILLED_S)
        self.assertIn("error", client.answer())
        served = self.restart(self.master)
        got, errors = self.until_good(client, "new")
        say("the master is back: a new session is there after", got["at"] - served)
        self.assertLess(got["at"] - served, RETURN_S)
        self.assertEqual(client.good("add", 1), 2)  # the variable was the ps's
        client.process.kill()

    @sanitized_too
    def test_the_client(self):
        client = TensorFlowClient(self, self.cluster.target)
        client.good("init")
        self.begin(client, "block", self.ps, self.worker)
        killed = time.monotonic()
        client.process.kill()
        self.cluster.check(20)
        say("kill -9 of the client in a step: it has ended everywhere after", time.monotonic()
            - killed)
        self.assertLess(time.monotonic() - killed, KILLED_S)


class TestSilent(FaultCase):
    def check_silent(self, victim, stopped_s, silent_s):
        """A task that is stopped, with a step on its way and one sent after; then it goes on."""
        client = TensorFlowClient(self, self.cluster.target)
        bump = "bump_ps" if victim is self.ps else "bump_worker"
        client.good("init")
        client.good("add", 0)
        client.good(bump)
        other = Client(self.master.port)
        self.addCleanup(other.channel.close)
        handle = other.create(small_graph(WORKER1))
        closing = other.create(small_graph(PS if victim is self.ps else WORKER0))
        other.run(closing, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        stopped = time.monotonic()
        victim.process.send_signal(signal.SIGSTOP)
        client.tell(bump)  # sent to one that does not read
        stuck = other.begin_run(closing, 60, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        began = time.monotonic()
        other.close(closing)
        self.assertLess(time.monotonic() - began, 1 * SLOW,
                        "closing a session waits for a stopped task")
        got = client.answer()
        self.assertEqual(got.get("error"), "UnavailableError", got)
        self.assertRegex(got["message"], "/replica:0/task:0.*no sign of life for .* s")
        say(f"SIGSTOP of {victim.name}: the client knows after", got["at"] - stopped)
        self.assertLess(got["at"] - stopped, silent_s)
        self.assertEqual(raw.first(stuck.result(), 3), 1)  # CANCELLED, by its session's end
        self.assertEqual(self.task_metric("millrace_task_up", PS if victim is self.ps else WORKER0),
                         0)
        n_failed = 0
        while time.monotonic() - stopped < stopped_s:  # others go on, its own fail at once
            got = client.ask("add", 1)
            self.assertRegex(got["message"], "is not reachable: .*last seen .* s ago")
            self.assertLess(got["at"] - got["began"], KILLED_S)
            n_failed += 1
            other.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        self.assertGreater(n_failed, 0)
        self.assertEqual([t.metric("millrace_worker_steps_live") for t in self.cluster.tasks if t
                          is not victim], [0, 0])
        going = time.monotonic()
        victim.process.send_signal(signal.SIGCONT)
        got, errors = self.until_good(client, bump)
        say(f"SIGCONT of {victim.name}: steps flow after", got["at"] - going)
        self.assertLess(got["at"] - going, RETURN_S)
        # its state is intact: no ABORTED
        self.assertEqual({e["error"] for e in errors} - {"UnavailableError"}, set())
        self.assertEqual(got["ok"], 2)  # and what was sent to it while it slept has not been done
        client.process.kill()
        self.cluster.check(20)

    def test_the_ps_is_stopped(self):
        self.check_silent(self.ps, 30 if harness.LONG else 8, SILENT_S)


class TestSilentSoon(TestSilent):
    """The same with a heartbeat of half a second."""

    flags = ("--heartbeat", "500ms")
    worker_flags = ("--graph-grace", "100ms")

    def test_the_ps_is_stopped(self):
        self.check_silent(self.ps, 3, SILENT_S / 4 * SLOW)

    def test_the_worker_is_stopped(self):
        self.check_silent(self.worker, 3, SILENT_S / 4 * SLOW)

    def test_the_master_is_stopped(self):
        """Its tasks end its steps and, after --graph-grace, drop its graphs; when it goes on they
        get them again."""
        client = TensorFlowClient(self, self.cluster.target)
        client.good("init")
        self.assertEqual(client.good("add", 1), 1)
        self.begin(client, "spin", self.worker)
        stopped = time.monotonic()
        self.master.process.send_signal(signal.SIGSTOP)
        for task in self.cluster.tasks:
            self.until(lambda t=task: t.metric("millrace_worker_steps_live") == 0,
                       "the step goes on")
        say("SIGSTOP of the master, heartbeat 0.5 s: its tasks have ended its steps after",
            time.monotonic() - stopped)
        self.assertLess(time.monotonic() - stopped, SILENT_S / 4 * SLOW)
        for task in self.cluster.tasks:
            self.until(lambda t=task: t.metric("millrace_worker_graphs") == 0,
                       "the graphs are kept")
        going = time.monotonic()
        self.master.process.send_signal(signal.SIGCONT)
        self.assertEqual(client.answer()["error"], "UnavailableError")
        got, errors = self.until_good(client, "add", 1)
        say("SIGCONT of the master: steps flow after", got["at"] - going)
        self.assertLess(got["at"] - going, RETURN_S)
        self.assertEqual({e["error"] for e in errors} - {"UnavailableError"}, set())
        self.assertEqual(got["ok"], 2)
        client.process.kill()

    def test_busy_tasks_are_not_taken_for_dead(self):
        """Every thread of the pool is in a heavy kernel, for many heartbeats."""
        n, size = 8, 2000
        nodes = [const("dims", raw.tensor(raw.INT32, (2,), struct.pack("<2i", size, size)),
                       device=WORKER0), const("one", float_tensor(1)[:2] + data(2, b"") +
                 # fmt: skip
                 data(4, struct.pack("<f", 1)), FLOAT, WORKER0),
                 node("m", "Fill", ("dims", "one"), WORKER0, T=F, index_type=type_attr(raw.INT32))]
        for i in range(n):
            nodes.append(node(f"p{i}", "MatMul", ("m", f"p{i - 1}" if i >= n // 2 else "m"),
                              WORKER0, T=F))
        with Client(self.master.port) as client:
            handle = client.create(graph(*nodes))
            began = time.monotonic()
            while time.monotonic() - began < 6:
                client.run(handle, 60, targets=[f"p{i}" for i in range(n)])
        self.assertEqual(self.task_metric("millrace_task_losses_total", WORKER0), 0)
        rtt_s = self.task_metric("millrace_task_heartbeat_rtt_seconds", WORKER0)
        say("heartbeat of a worker with all threads in kernels: round trip", rtt_s)
        self.assertGreater(rtt_s, 0)
        self.assertLess(rtt_s, 60)

    def test_an_idle_cluster_is_idle(self):
        """Heartbeats, ten times as often as usual, cost next to nothing."""
        with Client(self.master.port) as client:  # so that the tasks know each other
            nodes = graph(const("a", float_tensor(1), FLOAT, PS),
                          node("b", "Neg", ("a",), WORKER0, T=F))
            client.run(client.create(nodes), fetches=["b:0"])

        def cpu_s(daemon):
            with open(f"/proc/{daemon.process.pid}/stat") as f:
                words = f.read().rsplit(")", 1)[1].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

        before, began = [cpu_s(d) for d in self.cluster.daemons], time.monotonic()
        # the time that passes is what is measured
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.master.process.wait(3)
        used = [after - b for b, after in zip(before, [cpu_s(d) for d in self.cluster.daemons])]
        say("CPU time of the busiest idle daemon in 3 s", max(used))
        self.assertLess(max(used), 0.1 * SLOW)


class TestSessions(FaultCase):
    flags = ("--heartbeat", "500ms")

    def test_a_restart_is_told_once_and_only_to_those_who_were_there(self):
        with Client(self.master.port) as client:
            there, elsewhere, idle = (client.create(small_graph(task))
                                      for task in (PS, WORKER1, PS))

            def run(handle):
                return client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])

            for handle in (there, elsewhere, idle):
                run(handle)
            self.kill(self.ps)
            self.restart(self.ps)
            self.until_ready()
            for handle in (there, idle):
                with self.assertRaises(Refused) as caught:
                    run(handle)
                self.assertEqual(caught.exception.code, ABORTED)
                self.assertIn("/job:ps/replica:0/task:0 has restarted", caught.exception.message)
                run(handle)  # registered again by itself
            run(elsewhere)
            run(client.create(small_graph(PS)))

    def test_reset_and_close_with_a_dead_task(self):
        with Client(self.master.port) as client:
            handle = client.create(loop_graph(raw.ENDLESS, WORKER0))
            step = client.begin_run(handle, fetches=["exit:0"])
            self.until(lambda: self.worker.metric("millrace_worker_steps_live") > 0, "no step runs")
            self.kill(self.ps)
            self.until(lambda: self.task_metric("millrace_task_up", PS) == 0,
                       "the master does not notice")
            began = time.monotonic()
            client.close(handle)
            self.assertLess(time.monotonic() - began, KILLED_S)
            self.assertEqual(raw.first(step.result(), 3), 1)
            began = time.monotonic()
            with self.assertRaises(Refused) as caught:
                client.call("Reset", b"")
            self.assertLess(time.monotonic() - began, KILLED_S)
            self.assertEqual(caught.exception.code, UNAVAILABLE)
            self.assertIn("/job:ps/replica:0/task:0", caught.exception.message)

    def test_a_reset_waits_until_the_master_has_tried_to_connect(self):
        """It comes while a task has accepted the master's first connection, and not answered."""
        self.worker.process.send_signal(signal.SIGSTOP)
        self.cluster.add_master(self.flags)
        master = self.cluster.masters[-1]
        with Client(master.port) as client:
            reset = client.begin("Reset", b"")
            self.until(lambda: master.metric("millrace_grpc_calls_total") > 0, "no call comes")
            self.worker.process.send_signal(signal.SIGCONT)
            self.assertEqual(client.end(reset), b"")

    def test_what_steps_wait_for_is_on_stepz(self):
        client = TensorFlowClient(self, self.cluster.target)
        client.good("init")
        self.begin(client, "block", self.ps, self.worker)
        page = self.until(lambda: (p := self.master.page("/stepz")) and "QueueDequeue" in p and p,
                          "the queue is not named")
        self.assertRegex(page,
                         r"step [0-9a-f]{16} session [0-9a-f]{32}, [0-9.]+ s: waits for "
                         r".*/job:ps/replica:0/task:0")
        self.assertRegex(page,
                         r"    /job:ps/replica:0/task:0: \S*[dD]equeue\S* \(QueueDequeueV2\) for "
                         r"[0-9.]+ s")
        self.assertRegex(page,
                         r"    /job:worker/replica:0/task:0: .* for [0-9.]+ s from "
                         r"/job:ps/replica:0/task:0")
        self.assertRegex(self.ps.page("/stepz"), r"\(QueueDequeueV2\) for [0-9.]+ s")
        self.ps.process.send_signal(signal.SIGSTOP)
        self.assertIn("/job:ps/replica:0/task:0: does not reply", self.master.page("/stepz"))
        self.ps.process.send_signal(signal.SIGCONT)
        client.process.kill()
        self.cluster.check(20)
        status = json.loads(self.master.page("/statusz"))["service"]["tasks"]
        self.assertEqual(len(status), 3)
        self.assertTrue(all({"rtt_us", "clock_offset_us", "missed", "losses", "last_seen_s"}
                            <= set(task) for task in status), status)
        self.assertGreater(self.master.metric('millrace_step_errors_total{code="CANCELLED"}'), 0)


class TestMissing(FaultCase):
    master_flags = ("--task-wait", "1s")

    def test_a_session_waits_once_whatever_the_stub_does(self):
        """TensorFlow's client sends a request that ended with UNAVAILABLE ten times more."""
        client = TensorFlowClient(self, self.cluster.target)
        self.kill(self.ps)
        self.until(lambda: self.task_metric("millrace_task_up", PS) == 0,
                   "the master does not notice")
        for _ in range(2):  # the next try of the user's is another one, and waits again
            got = client.ask("new")
            self.assertEqual(got.get("error"), "UnavailableError", got)
            self.assertRegex(got["message"],
                             r"Waited 1.0 s for tasks of the cluster that are missing: "
                             r"/job:ps/replica:0/task:0 at .*last seen")
            waited = got["at"] - got["began"]
            say("a session on a cluster with a task missing, --task-wait 1s: told after", waited)
            self.assertGreater(waited, 0.9)
            self.assertLess(waited, 1 + 1 * SLOW)
        n_calls = self.master.metric("millrace_grpc_calls_total")
        client.tell("new")
        self.until(lambda: self.master.metric("millrace_grpc_calls_total") > n_calls,
                   "it does not ask")
        self.restart(self.ps)
        self.assertIn("ok", client.answer())  # what waits goes on when the task comes
        client.process.kill()


class TestMasterGone(FaultCase):
    worker_flags = ("--master-wait", "300ms", "--heartbeat", "200ms")

    def test_tasks_without_a_master_exit_with_138(self):
        killed = self.kill(self.master)
        for task in self.cluster.tasks:
            self.assertEqual(task.process.wait(harness.DEADLINE_S), 138)
        say("kill -9 of the master, --master-wait 300ms: all tasks have exited with 138 after",
            time.monotonic() - killed)
        self.cluster.daemons.clear()


class TestCrowds(FaultCase):
    worker_flags = ("--max-inflight", "32M", "--shm", "off")
    master_flags = ("--max-connections", "20000")

    def check_64_clients(self, limit_mib):
        """Each moves 8 MiB to the ps and back in every step, all at once: nobody waits for ever,
        and the ps holds what it may hold."""
        n_clients, n_rounds, size = 64, 5 if not SANITIZED else 1, 2 * MIB
        nodes = (const("dims", raw.tensor(raw.INT32, (1,), struct.pack("<i", size)),
                       device=WORKER0), node("one", "Placeholder", device=WORKER0, dtype=F),
                 node("sent", "Fill", ("dims", "one"), WORKER0, T=F,
                      index_type=type_attr(raw.INT32)),
                 node("there", "Neg", ("sent",), PS, T=F),
                 node("here", "Neg", ("there",), WORKER1, T=F),
                 # fmt: skip
                 const("axis", raw.int_tensor(0), device=WORKER1),
                 node("max", "Max", ("here", "axis"), WORKER1, T=F, Tidx=type_attr(raw.INT32)))
        failures, before = [], {d.name: raw.resident_bytes(d.process.pid)
                                for d in self.cluster.daemons}

        def client(i):
            try:
                with Client(self.master.port) as mine:
                    handle = mine.create(graph(*nodes))
                    for _ in range(n_rounds):
                        got = mine.run(handle, 300,
                                       feeds=[("one:0", raw.tensor(FLOAT, (),
                                               struct.pack("<f", i)))], fetches=["max:0"])
                        assert raw.first(got["max:0"], 4) == struct.pack("<f", i)
                    mine.close(handle)
            except Exception as error:  # told by the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(n_clients)]
        began, peak = time.monotonic(), 0
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            status = json.loads(self.ps.page("/statusz"))
            peak = max(peak, status["rendezvous"]["in_flight_bytes"])
            self.assertLessEqual(status["rendezvous"]["in_flight_bytes"], 32 * MIB)
        self.assertEqual(failures, [])
        say(f"{n_clients} clients, {n_clients * n_rounds} steps of 2 x 8 MiB through one ps",
            time.monotonic() - began)
        with open(f"/proc/{self.ps.process.pid}/status") as f:
            high = int(re.search(r"VmHWM:\s+(\d+) kB", f.read()).group(1)) * 1024
        more = high - before["ps0"]
        print(f"    the ps: at most {peak / MIB:.0f} MiB in flight, {more / MIB:.0f} MiB more "
              "memory at the peak", flush=True)
        if not SANITIZED:
            self.assertLess(more, limit_mib * MIB)
        self.cluster.check(20)

    def test_64_clients_against_one_ps(self):
        self.check_64_clients(256)  # half of what they send at a time

    def works(self):
        """Two sessions, and a step of each."""
        with Client(self.master.port) as client:
            for task in (PS, WORKER0):
                handle = client.create(small_graph(task))
                client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
                client.close(handle)

    def check_idle(self, daemon, what, words, source, n, limit_bytes):
        """So many connections that say these words and nothing more; half of them vanish without a
        farewell."""
        pid = daemon.process.pid
        descriptors, resident = raw.n_descriptors(pid), raw.resident_bytes(pid)
        with contextlib.ExitStack() as idle:
            for i in range(n):
                connection = idle.enter_context(socket.create_connection(("127.0.0.1", daemon.port),
                        source_address=(source, 0)))
                connection.sendall(words)
                if i % 2:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                          struct.pack("ii", 1, 0))
            self.until(lambda: raw.n_descriptors(pid) >= n, "they are not accepted")
            began = time.monotonic()
            self.works()
            say(f"with {n} connections to {daemon.name} that {what}: two sessions and two steps "
                "take", time.monotonic() - began)
            each = (raw.resident_bytes(pid) - resident) / n
            print(f"    and each costs {each / 1024:.1f} KiB of its memory", flush=True)
            if not SANITIZED:
                self.assertLess(each, limit_bytes)
        self.until(lambda: raw.n_descriptors(pid) <= descriptors + 16,
                   f"{daemon.name}: descriptors are left")
        if not SANITIZED:  # what is free goes back to the system now and then
            self.until(lambda: raw.resident_bytes(pid) < resident + 16 * MIB,
                       f"{daemon.name}: memory is left")

    @sanitized_too
    def test_idle_connections_and_scanners(self):
        n = 10_000 if harness.LONG else 1000
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        n = min(n, hard - 500)
        self.works()
        for i, (daemon, what, words, limit_kib) in enumerate((
                (self.master, "say nothing", b"", 4),
                (self.master, "say half a preface", raw.PREFACE[:12], 24),
                (self.master, "greet as gRPC's clients do", raw.OPENING, 24),
                (self.ps, "say nothing", b"", 4),
                # fmt: skip
                (self.ps, "say half a header", raw.wire_frame("HELLO", raw.hello())[:20], 4))):
            self.check_idle(daemon, what, words, f"127.0.0.{i + 2}", n, limit_kib * 1024)
        for daemon in self.cluster.daemons:
            # a scanner's: nothing, a word of HTTP, of TLS, of anything
            for port in (daemon.port, daemon.admin_port):
                for bytes_ in (b"", b"\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
                               b"\x16\x03\x01\x00\xa5\x01" + bytes(160), b"SSH-2.0-scan\r\n",
                               os.urandom(500)):
                    with socket.create_connection(
                        ("127.0.0.1", port)) as connection, contextlib.suppress(OSError):
                        connection.sendall(bytes_)
        self.works()
        self.until(lambda: self.master.metric("millrace_grpc_connections") == 0,
                   "connections are left")
        self.cluster.check(20)

    def test_a_client_that_stops_reading(self):
        """It is stopped in a step: the step ends, others go on, and its session is there when it
        goes on."""
        client = TensorFlowClient(self, self.cluster.target)
        client.good("init")
        client.tell("add", 1)
        client.process.send_signal(signal.SIGTSTP)
        self.cluster.check(20)  # nobody waits for it
        with Client(self.master.port) as other:
            handle = other.create(small_graph(PS))
            other.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        client.process.send_signal(signal.SIGCONT)
        self.assertIn("ok", client.answer())
        self.assertGreaterEqual(client.good("add", 1), 1)
        client.process.kill()


class TestCrowdsBySharedMemory(TestCrowds):
    """Values are mapped, not sent: the pages of all steps that are under way are in sight of the
    ps, and none of them is lost."""

    worker_flags = ("--max-inflight", "32M")
    test_idle_connections_and_scanners = test_a_client_that_stops_reading = None

    def test_64_clients_against_one_ps(self):
        self.check_64_clients(64 * 8 * 2)


class TestCrowdsByLimitedSharedMemory(TestCrowdsBySharedMemory):
    """Beyond what a peer may keep alive, values go over the socket as grants allow, and what has
    been looked at does not stay mapped."""

    worker_flags = ("--max-inflight", "32M", "--shm-limit", "32M")

    def test_64_clients_against_one_ps(self):
        self.check_64_clients(64 * 8 * 3 // 4)
