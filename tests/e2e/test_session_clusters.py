"""Sessions that bring a cluster of their own (ConfigProto.cluster_def), with the unmodified
TensorFlow client: names, isolation, values between tasks, equal names that mean different
processes, kills, refusals, and what is left when a session closes."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import harness
import raw_clients as raw
from fault_case import KILLED_S, RETURN_S, SLOW, FaultCase
from harness import ROOT, WARM_PYTHON, LineReader, TestCase, sanitized_too
from test_membership import Daemon
from test_tls import TlsCase, free_ports

sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))
from cluster import Cluster  # noqa: E402

PROGRAM = os.path.join(ROOT, "tests", "e2e", "session_cluster_programs.py")
SMALL, MIDDLE, LARGE = 3, 100_000, 3_000_000  # floats: pushed, granted, by reference or granted
TASK_WAIT_S = 2


class Client:
    """session_cluster_programs.py."""

    def __init__(self, test):
        self.test = test
        self.process = test.popen([WARM_PYTHON, PROGRAM], {"TF_CPP_MIN_LOG_LEVEL": 3},
                                  stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.lines = LineReader(self.process.stdout)
        self.answer()

    def tell(self, what, name="", **command):
        self.process.stdin.write(json.dumps({"do": what, "name": name, **command}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.lines.line()
        self.test.assertIsNotNone(line, "the client has gone")
        return json.loads(line)

    def ask(self, what, name="", **command):
        self.tell(what, name, **command)
        return self.answer()

    def good(self, what, name="", **command):
        got = self.ask(what, name, **command)
        self.test.assertIn("ok", got)
        return got["ok"]

    def bad(self, error, part, what, name="", **command):
        got = self.ask(what, name, **command)
        self.test.assertEqual(got.get("error"), error, got)
        self.test.assertIn(part, got["message"])
        return got


def jobs(**tasks):
    return [[job, dict(enumerate(addresses))] for job, addresses in tasks.items()]


def device(job, task):
    return f"/job:{job}/replica:0/task:{task}/device:CPU:0"


class TwoClusters(FaultCase):
    """The cluster that has the client's master, and another one with the same names."""

    master_flags = ("--session-clusters=any", f"--task-wait={TASK_WAIT_S}s", "--heartbeat=1s")
    worker_flags = ("--heartbeat=1s",)

    def setUp(self):
        super().setUp()
        self.other = Cluster(n_workers=2, bin_dir=harness.BIN, worker_flags=self.worker_flags)
        self.other.start()
        self.addCleanup(self.stop_other)
        self.client = Client(self)
        self.here = [self.address(d) for d in self.cluster.tasks]  # ps 0, worker 0, worker 1
        self.there = [self.address(d) for d in self.other.tasks]
        self.me = self.cluster.target[len("grpc://"):]

    def stop_other(self):
        for daemon in self.other.daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.process.send_signal(signal.SIGCONT)
        self.other.stop()

    @staticmethod
    def address(daemon):
        return f"127.0.0.1:{daemon.port}"

    def open(self, name, cluster=(), home=None, via=(), n=SMALL, **more):
        self.client.good("open", name, target=more.pop("target", self.cluster.target), jobs=cluster,
                         home=home, via=via, n=n, **more)

    def tasks_of_both(self):
        return self.cluster.tasks + self.other.tasks

    def status(self, daemon):
        return json.loads(raw.page(daemon.admin_port, "/statusz")[1])

    def nothing_left(self):
        """No task has a cluster, a graph or a step of a session; the masters have no session."""
        def left():
            pages = [self.status(task) for task in self.tasks_of_both()]
            kinds = "session_clusters", "graphs", "live_steps"
            found = {p["task"]: {kind: p[kind] for kind in kinds if p[kind]} for p in pages}
            found["master"] = self.status(self.master)["service"]["session_clusters"]
            return {name: what for name, what in found.items() if what}
        try:
            self.until(lambda: not left(), "something is left of the sessions")
        except AssertionError:
            self.fail(f"left of the sessions: {left()}")


class TestSessionClusters(TwoClusters):
    @sanitized_too
    def test_devices_have_the_sessions_names(self):
        self.open("s", jobs(client=[self.me], a=[self.here[1]], b=[self.there[1], self.there[2]]))
        self.assertEqual(self.client.good("devices", "s"),
                         [device("a", 0), device("b", 0), device("b", 1)])
        self.open("home")
        self.assertEqual(self.client.good("devices", "home"),
                         [device("ps", 0), device("worker", 0), device("worker", 1)])
        # numbers may leave gaps; the entry of the target need not exist
        self.open("gap", [["b", {7: self.there[1]}]], device("b", 7))
        self.assertEqual(self.client.good("devices", "gap"), [device("b", 7)])
        self.client.good("init", "gap")
        self.assertEqual(self.client.good("bump", "gap"), 1)
        # filters choose among the session's tasks
        self.open("some", jobs(b=self.there), filters=["/job:b/task:1"])
        self.assertEqual(self.client.good("devices", "some"), [device("b", 1)])
        # an empty cluster_def is none
        self.open("none", [])
        self.assertEqual(len(self.client.good("devices", "none")), 3)

    @sanitized_too
    def test_values_cross_both_ways(self):
        # two tasks that are worker 0 at home, and one that is called as another is at home
        cluster = jobs(worker=[self.here[2], self.there[1], self.here[1]])
        via = [device("worker", 1), device("worker", 2), device("worker", 1)]
        for n in (SMALL, MIDDLE, LARGE):
            self.open("s", cluster, device("worker", 0), via, n)
            self.client.good("init", "s")
            for bumped in (1, 2, 3):
                self.client.good("bump", "s")
                self.assertEqual(self.client.good("around", "s"), bumped * 8 + 7)
            self.client.good("close", "s")
        self.nothing_left()

    def test_variables_are_the_sessions_own(self):
        cluster = jobs(worker=[self.here[1], self.here[2]])
        self.open("home", [], device("worker", 0), [device("worker", 1)])
        self.client.good("init", "home")
        self.client.good("bump", "home", times=5)
        self.open("a", cluster, device("worker", 0), [device("worker", 1)])
        self.open("b", cluster, device("worker", 0), [device("worker", 1)])
        for name in "ab":
            self.client.bad("FailedPreconditionError", "uninitialized", "around", name)
            self.client.good("init", name)
        self.client.good("bump", "a", times=2)
        self.assertEqual([self.client.good("around", name) for name in ("home", "a", "b")],
                         [11, 5, 1])
        self.client.good("close", "a")
        self.client.good("close", "b")
        self.open("again", cluster, device("worker", 0), [device("worker", 1)])
        self.client.bad("FailedPreconditionError", "uninitialized", "around", "again")
        self.assertEqual(self.client.good("around", "home"), 11)

    @sanitized_too
    def test_equal_names_are_different_processes(self):
        """Four sessions at the same time; /job:worker/task:0 is another process in each."""
        w0, w1, o0, o1 = self.here[1], self.here[2], self.there[1], self.there[2]
        home, via = device("worker", 0), [device("worker", 1)]
        self.open("home", [], home, via, MIDDLE)
        self.open("other", [], home, via, MIDDLE, target=self.other.target)
        clusters = {"a": [w0, o0], "b": [o0, w0], "c": [w1, w0], "d": [o1, w1]}
        for name, tasks in clusters.items():
            self.open(name, jobs(worker=tasks), home, via, MIDDLE)
        names = ["home", "other", *clusters]
        for i, name in enumerate(names):
            self.client.good("init", name)
            self.client.good("bump", name, times=i + 1)
        rounds = 5 if harness.SANITIZED else 40
        answers = self.client.good("together", names=names, step="around", times=rounds)
        self.assertEqual(answers, {name: {"ok": (i + 1) * 2 + 1} for i, name in enumerate(names)})
        # and the tasks know which of their names is meant
        for name, daemon in (("worker:0", self.worker), ("worker:1", self.cluster.daemons[2])):
            known = {c["task"] for c in self.status(daemon)["session_clusters"]}
            self.assertEqual(known, {"/job:worker/replica:0/task:0",
                                     "/job:worker/replica:0/task:1"}, name)
        shown = self.status(self.master)["service"]["session_clusters"]
        self.assertEqual(len(shown), 4)
        own = {task["own_task"] for cluster in shown for task in cluster["tasks"]}
        self.assertEqual(own, {"/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"})
        self.assertIn("peers", self.status(self.worker)["session_clusters"][0])
        for name in names:
            self.client.good("close", name)
        self.nothing_left()

    def test_traces_have_the_sessions_names(self):
        self.open("s", jobs(x=[self.here[1]], y=[self.there[1]]), device("x", 0), [device("y", 0)])
        self.client.good("init", "s")
        named = {d.split("/device")[0] for d in self.client.good("traced", "s")}
        self.assertEqual(named, {"/job:x/replica:0/task:0", "/job:y/replica:0/task:0"})

    def test_a_closed_session_leaves_nothing(self):
        cluster = jobs(worker=[self.here[1], self.there[1]])

        def open_and_close():
            self.open("s", cluster, device("worker", 0), [device("worker", 1)], MIDDLE)
            self.client.good("init", "s")
            self.client.good("around", "s")
            self.client.good("close", "s")
            self.nothing_left()

        def descriptors():
            return [len(os.listdir(f"/proc/{d.process.pid}/fd"))
                    for d in (self.worker, self.other.daemons[1], self.master)]

        open_and_close()
        self.until(lambda: self.status(self.worker)["clients"] == 2, "a connection is left")
        before = descriptors()
        for _ in range(20):
            open_and_close()
        self.until(lambda: all(now <= then + 2 for now, then in zip(descriptors(), before)),
                   "descriptors are left")


class TestTcp(TwoClusters):
    worker_flags = ("--heartbeat=1s", "--shm=off", "--unix=off", "--wire-streams=2")

    def test_values_cross_both_ways(self):
        TestSessionClusters.test_values_cross_both_ways(self)


class TestFaults(TwoClusters):
    def setUp(self):
        super().setUp()
        self.victim = self.other.daemons[1]
        self.cluster_def = jobs(x=[self.here[1]], y=[self.there[1]])

    def open_both(self):
        self.open("s", self.cluster_def, device("x", 0), [device("y", 0)], MIDDLE)
        self.open("home", [], device("worker", 0), [device("worker", 1)], MIDDLE)
        for name in ("s", "home"):
            self.client.good("init", name)
            self.client.good("bump", name)

    def begin_block(self):
        self.client.tell("block", "s")
        for daemon in (self.worker, self.victim):
            self.until(lambda d=daemon: d.metric("millrace_worker_steps_live") > 0,
                       "the step does not run")

    @sanitized_too
    def test_a_task_is_killed_and_comes_back(self):
        self.open_both()
        self.begin_block()
        killed = self.kill(self.victim)
        got = self.client.answer()
        self.assertEqual(got.get("error"), "UnavailableError", got)
        self.assertIn("/job:y/replica:0/task:0", got["message"])
        self.assertLess(time.monotonic() - killed, KILLED_S)
        self.client.bad("UnavailableError", "/job:y/replica:0/task:0", "around", "s")
        self.assertEqual(self.client.good("around", "home"), 3)  # notices nothing
        back = self.restart(self.victim)
        errors = []
        while "ok" not in (got := self.client.ask("around", "s")):
            errors.append(got["error"])
            self.assertLess(time.monotonic() - back, harness.DEADLINE_S)
        self.assertLess(time.monotonic() - back, RETURN_S)
        self.assertEqual([e for e in errors if e != "UnavailableError"], ["AbortedError"])
        self.assertEqual(got["ok"], 3)  # the variable is at the task that lived
        self.assertEqual(self.client.good("around", "home"), 3)
        self.client.good("close", "s")
        self.client.good("close", "home")
        self.nothing_left()

    def test_a_task_with_the_variable_is_killed(self):
        self.open("s", jobs(x=[self.there[1]], y=[self.here[1]]), device("x", 0), [device("y", 0)])
        self.client.good("init", "s")
        self.kill(self.victim)
        self.restart(self.victim)
        errors = []
        while (got := self.client.ask("around", "s"))["error"] != "FailedPreconditionError":
            errors.append(got["error"])
        self.assertEqual([e for e in errors if e != "UnavailableError"], ["AbortedError"])
        self.client.good("init", "s")
        self.assertEqual(self.client.good("around", "s"), 1)

    def test_a_silent_task_holds_up_nobody(self):
        self.open_both()
        self.begin_block()
        self.victim.process.send_signal(signal.SIGSTOP)
        got = self.client.answer()  # after three heartbeats
        self.assertEqual(got.get("error"), "UnavailableError", got)
        self.assertEqual(self.client.good("around", "home"), 3)
        began = time.monotonic()
        self.client.good("close", "s")
        self.assertLess(time.monotonic() - began, 1 * SLOW)
        # a new one waits for the task, and says so in time
        self.open("new", self.cluster_def, device("x", 0))
        began = time.monotonic()
        self.client.bad("UnavailableError", "/job:y/replica:0/task:0", "init", "new")
        self.assertLess(time.monotonic() - began, TASK_WAIT_S + 3 * SLOW)
        self.until(lambda: not self.status(self.worker)["session_clusters"], "a cluster is left")
        self.victim.process.send_signal(signal.SIGCONT)
        self.open("late", self.cluster_def, device("x", 0), [device("y", 0)])
        self.client.good("init", "late")
        self.assertEqual(self.client.good("around", "late"), 1)

    def test_a_client_is_killed(self):
        self.open_both()
        self.begin_block()
        self.client.process.kill()
        self.cluster.check(20)
        self.other.check(20)

    def test_the_master_is_killed(self):
        self.open_both()
        self.begin_block()
        self.kill(self.master)
        self.until(lambda: self.victim.metric("millrace_worker_steps_live") == 0,
                   "the step goes on without its master")


class TestRefusals(TwoClusters):
    def refused(self, error, part, cluster, **more):
        self.open("refused", cluster, **more)
        began = time.monotonic()
        got = self.client.bad(error, part, "devices", "refused")
        self.assertLess(time.monotonic() - began, TASK_WAIT_S + 3 * SLOW)
        return got

    def test_unreachable_tasks_are_named(self):
        port = free_ports(1)[0]
        for address, why in ((f"127.0.0.1:{port}", "refused"), (self.other.target[7:], "closed"),
                             ("no-such-host.invalid:1", "no-such-host")):
            got = self.refused("UnavailableError", "/job:b/replica:0/task:0",
                               jobs(a=[self.here[1]], b=[address]))
            self.assertIn(address, got["message"])
            self.assertIn(why, got["message"])
        self.nothing_left()

    def test_wrong_lists(self):
        a, b = self.here[1], self.there[1]
        wrong = [
            (jobs(me=[self.me]), "no task other than this master"),
            (jobs(me=[self.me, self.me.replace("127.0.0.1", "localhost")], w=[a, a]), "two tasks"),
            (jobs(w=[a], v=[a]), "the address of two tasks"),
            ([["w", {0: a}], ["w", {1: b}]], "job w is listed twice"),
            ([["w", {-1: a}]], "-1 is not the number of a task"),
            (jobs(w=["nonsense"]), "nonsense"),
            (jobs(w=[""]), "task 0 of job w"),
            ([["a b", {0: a}]], "not a job name"),
            ([["", {0: a}]], "not a job name"),
            (jobs(w=[f"127.0.0.1:{1000 + i}" for i in range(513)]), "more than 512 tasks"),
            (jobs(w=[a], v=[a.replace("127.0.0.1", "localhost")]), "the same process"),
        ]
        for cluster, part in wrong:
            self.refused("InvalidArgumentError", part, cluster)
        self.refused("PermissionDeniedError", "Unix socket", jobs(w=["unix:@elsewhere"]))
        self.open("device", jobs(w=[a]), device("v", 0))
        self.client.bad("InvalidArgumentError", "/job:v", "init", "device")
        self.nothing_left()

    def test_as_tensorflows_servers(self):
        """Codes for what both can do. TensorFlow wants the target in the list; we do not."""
        p0, p1, p2 = self.client.good("oracle")
        mine = {p0: self.me, p1: self.here[1], p2: self.there[1]}
        lists = [
            [["a", {0: p0}], ["b", {0: p1, 3: p2}]],
            [["a", {0: p0}], ["b", {0: p1}], ["b", {1: p2}]],
            [["a", {0: p0}], ["b", {0: "nonsense"}]],
            [["a", {0: p0}], ["b", {0: ""}]],
            [["a", {0: p0}], ["b", {0: p0, 1: p1}]],
            [["a", {0: p0}], ["b", {}], ["c", {0: p1}]],
        ]
        for i, theirs in enumerate(lists):
            ours = [[job, {k: mine.get(v, v) for k, v in tasks.items()}] for job, tasks in theirs]
            self.open("theirs", theirs, target=f"grpc://{p0}", timeout_ms=20000)
            self.open("ours", ours)
            expected, got = (self.client.ask("devices", name) for name in ("theirs", "ours"))
            self.assertEqual(got.get("error"), expected.get("error"), (theirs, expected, got))
            if "ok" in got:  # the target's own entry is a task of TensorFlow's only
                self.assertEqual(got["ok"], [d for d in expected["ok"] if d != device("a", 0)], i)

    def test_many_sessions_and_few_clusters(self):
        self.cluster.stop()
        self.cluster = Cluster(n_workers=2, bin_dir=harness.BIN, worker_flags=self.worker_flags,
                               master_flags=["--max-session-clusters=2"])
        self.cluster.start()
        address = self.address(self.cluster.daemons[1])
        for name in ("a", "b", "c"):
            self.open(name, jobs(w=[address]), device("w", 0))
        self.client.good("init", "a")
        self.client.good("init", "b")
        self.client.bad("ResourceExhaustedError", "--max-session-clusters", "init", "c")
        page = self.status(self.master)["service"]["budgets"]["session_clusters"]
        self.assertEqual((page["limit"], page["in_use"], page["refused"]), (2, 2, 1))
        self.client.good("close", "a")
        self.client.good("init", "c")


class TestOwn(TwoClusters):
    master_flags = ()  # --session-clusters=own is the default

    def test_only_addresses_of_the_own_cluster(self):
        self.open("s", jobs(me=[self.me], x=[self.here[2], self.here[1]]), device("x", 0),
                  [device("x", 1)], MIDDLE)
        self.client.good("init", "s")
        self.client.good("bump", "s")
        self.assertEqual(self.client.good("around", "s"), 3)
        self.open("t", jobs(x=[self.here[1]], y=[self.there[1]]))
        self.client.bad("PermissionDeniedError", "--session-clusters=own", "devices", "t")


class TestOff(TwoClusters):
    master_flags = ("--session-clusters=off",)

    def test_none(self):
        self.open("s", jobs(x=[self.here[1]]))
        self.client.bad("PermissionDeniedError", "--session-clusters=off", "devices", "s")
        self.open("home")
        self.assertEqual(len(self.client.good("devices", "home")), 3)


class TestClientPort(TestCase):
    """The client dials a worker (tf-worker --client-port), which relays it to the master."""

    def test_the_entry_that_was_dialled_is_that_worker(self):
        port = free_ports(1)[0]
        dialled = Daemon(self, "tf-worker", "--job", "worker", "--task", 0, "--client-port", 0,
                         "--master", f"127.0.0.1:{port}")
        other = Daemon(self, "tf-worker", "--job", "worker", "--task", 1)
        addresses = [f"127.0.0.1:{daemon.port}" for daemon in (dialled, other)]
        master = self.popen([harness.program("tf-master"), "--listen", f"127.0.0.1:{port}",
                             "--admin", "off", "--cluster", f"worker={';'.join(addresses)}"])
        LineReader(master.stderr).until("is ready")
        target = f"127.0.0.1:{dialled.ports['client']}"
        client = Client(self)

        def where(name, cluster, **more):
            """The session's devices, and those of a step whose nodes name none."""
            client.good("open", name, target=f"grpc://{target}", jobs=cluster, **more)
            client.good("init", name)
            return client.good("devices", name), client.good("traced", name)

        a, b = device("a", 0), device("b", 0)
        self.assertEqual(where("s", jobs(a=[addresses[1]], b=[target])), ([a, b], [b]))
        # by the address of its wire it is a task like another, and nodes run on the first one
        self.assertEqual(where("t", jobs(a=[addresses[1]], b=[addresses[0]])), ([a, b], [a]))
        # a task once by each of its addresses
        client.good("open", "u", target=f"grpc://{target}", jobs=jobs(a=[target, addresses[0]]))
        client.bad("InvalidArgumentError", "the same process", "devices", "u")


class TestTls(TlsCase):
    """A task proves the name of its own cluster, whatever the session calls it."""

    jobs = {"ps": 1, "worker": 2}

    def test_names_are_proved(self):
        tasks = {name: self.worker(name, "--heartbeat=1s") for name in self.ports}
        stranger = free_ports(1)[0]
        other = self.path("other")
        self.make_certs(other)  # of another authority
        self.worker_elsewhere(stranger, other)
        master = self.master("--session-clusters=any", "--task-wait=2s", client_ca=False)
        tunnel_port = free_ports(1)[0]
        target = f"127.0.0.1:{tunnel_port}"
        self.popen([harness.program("tfctl"), "tunnel", f"127.0.0.1:{master.port}", "--listen",
                    target, *self.tls("client")])
        client, target = Client(self), f"grpc://{target}"
        names = [f"127.0.0.1:{self.ports[n]}" for n in ("worker-1", "ps-0", "worker-0")]
        client.good("open", "s", target=target, jobs=jobs(worker=names), n=MIDDLE,
                    home=device("worker", 0), via=[device("worker", 1), device("worker", 2)])
        client.good("init", "s")
        client.good("bump", "s")
        self.assertEqual(client.good("around", "s"), 7)
        client.good("open", "t", target=target, jobs=jobs(x=[f"127.0.0.1:{stranger}"]))
        got = client.bad("UnavailableError", "/job:x/replica:0/task:0", "devices", "t")
        self.assertIn("certificate", got["message"])
        for task in tasks.values():
            self.assertIn("session_clusters", task.status())

    def worker_elsewhere(self, port, directory):
        ports = self.path("ports-elsewhere")
        worker = self.popen([harness.program("tf-worker"), "--job", "worker", "--task", "0",
                             "--listen", f"127.0.0.1:{port}", "--unix", "off", "--admin", "off",
                             "--port-file", ports, *self.tls("worker-0", directory)])
        LineReader(worker.stderr).until(" port ")
