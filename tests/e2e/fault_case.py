"""What tests of faults share: a cluster whose daemons are killed, stopped and started again at
their ports, and a TensorFlow client that takes commands (faults_client.py)."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import harness
import raw_clients as raw
from harness import ROOT, SANITIZED, WARM_PYTHON, LineReader, TestCase
from raw_clients import FLOAT, type_attr

sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))
from cluster import Cluster  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PS, WORKER0, WORKER1 = "/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"
F = type_attr(FLOAT)
ABORTED, UNAVAILABLE = 10, 14
SLOW = 5 if SANITIZED else 1
KILLED_S, SILENT_S, RETURN_S = 0.5 * SLOW, 8.0, 2.0 * SLOW  # what docs/failure.md promises
MIB = 1 << 20


def say(what, seconds):
    print(f"    {what}: {seconds * 1000:.0f} ms" if seconds < 1 else f"    {what}: {seconds:.2f} s",
          flush=True)


class TensorFlowClient:
    """faults_client.py interactive."""

    def __init__(self, test, target, timeout_ms=60_000, prefix=()):
        self.test = test
        self.process = test.popen([*prefix, WARM_PYTHON, os.path.join(HERE, "faults_client.py"),
                                   "interactive", target, timeout_ms],
                                  {"TF_CPP_MIN_LOG_LEVEL": 3},
                                  stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
        self.lines = LineReader(self.process.stdout)
        self.answer()

    def tell(self, *words):
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.lines.line()
        self.test.assertIsNotNone(line, "the client has gone")
        return json.loads(line)

    def ask(self, *words):
        self.tell(*words)
        return self.answer()

    def good(self, *words):
        got = self.ask(*words)
        self.test.assertIn("ok", got)
        return got["ok"]


class FaultCase(TestCase):
    """A cluster of a ps and two workers, or as a test starts it."""

    flags, worker_flags, master_flags = (), (), ()
    n_workers = 2
    starts_by_itself = True

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(n_workers=self.n_workers, bin_dir=harness.BIN,
                               worker_flags=(*self.flags, *self.worker_flags),
                               master_flags=(*self.flags, *self.master_flags))  # fmt: skip
        if self.starts_by_itself:
            self.cluster.start()
            self.until_ready()
        self.addCleanup(self.stop_cluster)

    def stop_cluster(self):
        for daemon in self.cluster.daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.process.send_signal(signal.SIGCONT)
        self.cluster.stop()

    @property
    def ps(self):
        return self.cluster.daemons[0]

    @property
    def worker(self):
        return self.cluster.daemons[1]

    @property
    def master(self):
        return self.cluster.master

    def until(self, condition, what):
        deadline = time.monotonic() + harness.DEADLINE_S
        while not (got := condition()):
            self.assertLess(time.monotonic(), deadline, what)
        return got

    def until_ready(self):
        self.until(lambda: raw.page(self.master.admin_port, "/readyz")[0] == 200,
                   "the master does not find its tasks")

    def kill(self, daemon):
        at = time.monotonic()
        daemon.process.kill()
        daemon.process.wait()
        return at

    def restart(self, daemon):
        """At its old port; returns when it serves, and since when."""
        daemon.restart()
        return time.monotonic()

    def begin(self, client, word, *daemons):
        """A step that never ends, once all of them run it."""
        client.tell(word)
        for daemon in daemons:
            self.until(lambda d=daemon: d.metric("millrace_worker_steps_live") > 0,
                       "the step does not run")

    def until_good(self, client, *words):
        """Asks again and again; the answer, and the errors before it."""
        errors = []
        deadline = time.monotonic() + harness.DEADLINE_S
        while "ok" not in (got := client.ask(*words)):
            errors.append(got)
            self.assertLess(time.monotonic(), deadline, errors[-1])
        return got, errors

    def task_metric(self, name, task):
        """Of a task, by the master."""
        return self.master.metric(f'{name}{{task="{task.replace("/task", "/replica:0/task")}"}}')
