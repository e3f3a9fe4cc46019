"""64 clients at once, by tests/tools/crowd: sessions that are made, used and closed by the
thousand, each result checked, while somebody reads the daemons' pages. Nothing is left of them: no
session, step, graph or memory. Under ThreadSanitizer this is where the daemons' threads meet."""
import os
import sys
import threading
import time

import harness
import raw_clients as raw
from harness import ROOT, SANITIZED, TestCase, sanitized_too

sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))
from cluster import Cluster  # noqa: E402

N_THREADS = 64
MIB = 1 << 20
ROOM = 8 * MIB  # between two looks at a daemon at rest
PAGES = ("/livez", "/readyz", "/statusz", "/metrics", "/stepz")
CROWD = os.path.join(os.path.dirname(harness.BIN.rstrip("/")), "tests", "tools", "crowd")


class PageReader:
    """Reads all pages of all daemons again and again."""

    def __init__(self, daemons):
        self.daemons, self.is_over, self.n_read, self.wrong = daemons, threading.Event(), 0, []
        self.thread = threading.Thread(target=self.read)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()

    def read(self):
        while not self.is_over.wait(0.1):
            for daemon in self.daemons:
                for path in PAGES:
                    status = raw.page(daemon.admin_port, path)[0]
                    self.n_read += 1
                    # a worker may have no such page
                    if status != 200 and (status, path) != (404, "/stepz"):
                        self.wrong.append((daemon.name, path, status))


class TestCrowd(TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(bin_dir=harness.BIN, master_flags=("--session-ttl", "1s"))
        self.cluster.start()
        self.addCleanup(self.cluster.stop)
        # until the tasks have measured their devices, the master is not ready
        self.until(lambda: raw.page(self.cluster.master.admin_port, "/readyz")[0] == 200,
                   "the master is not ready")

    def crowd(self, n_sessions):
        status, out, err = self.run_program(CROWD, "--target", self.cluster.target, "--threads",
                                            N_THREADS, "--sessions", n_sessions, timeout_s=3600)
        self.assertEqual(status, 0, f"{out}\n{err[-4000:]}")
        print(out.strip(), end=" ", flush=True)

    def until(self, condition, what):
        deadline = time.monotonic() + harness.DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)

    def resident(self):
        return [raw.resident_bytes(daemon.process.pid) for daemon in self.cluster.daemons]

    def check_nothing_left(self):
        self.cluster.check(harness.DEADLINE_S)
        master = self.cluster.master
        self.until(lambda: master.metric("millrace_sessions") == 0, "sessions are left")
        self.until(lambda: master.metric("millrace_grpc_connections") == 0, "connections are left")
        for task in self.cluster.tasks:
            self.until(lambda: task.metric("millrace_worker_graphs") == 0,
                       f"graphs are left at {task.name}")

    def check_flat(self, before):
        """Daemons give memory back at their leisure: soon no more is held than before."""
        if SANITIZED:  # a sanitizer's quarantine keeps memory; it says itself what leaks
            return
        daemons = list(zip(self.cluster.daemons, before))
        self.until(lambda: all(raw.resident_bytes(d.process.pid) < was + ROOM for d,
                               was in daemons),
                   f"memory grows: {before}, now {self.resident()}")  # fmt: skip
        print(" ".join(f"{d.name} {was / MIB:.1f}→{raw.resident_bytes(d.process.pid) / MIB:.1f} MiB"
                       for d, was in daemons), end=" ")

    @sanitized_too
    def test_sessions_come_and_go(self):
        """The first tenth warms up; after it memory stays."""
        n = (100000 if harness.LONG and not SANITIZED else 20000 if harness.LONG else 1000
             if SANITIZED else 4000)
        with PageReader(self.cluster.daemons) as reader:
            self.crowd(n // 10)
            self.check_nothing_left()
            before = self.resident()
            self.crowd(n - n // 10)
        self.assertEqual(reader.wrong, [])
        self.assertGreater(reader.n_read, 0)
        self.check_nothing_left()
        self.check_flat(before)
        self.assertEqual(self.cluster.stop(), [])
