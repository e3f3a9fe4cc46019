"""SyncReplicasOptimizer with a backup worker: training continues while a worker is stopped, and is
correct when that worker continues [OSDI 4.4]."""
import os
import re
import signal
import time

import harness
from clients import daemon, start_replicas
from harness import LocalCluster, TestCase

# the long pause is one after which the master gives the task up
STEPS, PAUSE_S = (20000, 15) if harness.LONG else (1500, 0)


class TestBackupWorker(TestCase):
    def setUp(self):
        super().setUp()
        self.cluster = LocalCluster(self, "--ps", "1", "--workers", "3", "--quiet")
        self.clients = start_replicas(self, 3, "sync_replicas.py", "--target", self.cluster.target,
                                      f"--steps={STEPS}")

    def go_on_without(self, pid, stop=signal.SIGSTOP):
        """Stops a process while the chief and another worker go on for 200 steps, and PAUSE_S; the
        step at which it wakes up."""
        for client in self.clients:
            client.wait_for(r"step +\d+ +loss", client.n_lines())
        os.kill(pid, stop)
        try:
            at = max(self.clients[0].numbers(r"step +(\d+) +loss"))
            after, wake_up = self.clients[0].n_lines(), time.monotonic() + PAUSE_S
            while time.monotonic() < wake_up or max(
                self.clients[0].numbers(r"step +(\d+) +loss")) < at + 200:
                _, after = self.clients[0].wait_for(r"step +\d+ +loss", after)
            return max(self.clients[0].numbers(r"step +(\d+) +loss"))
        finally:
            os.kill(pid, signal.SIGCONT)

    def finish(self, late, woke_at):
        """The one that stood still takes part again, all end, and there was one update a step."""
        at, said = 0, late.n_lines()
        while at < woke_at - 50:  # the first may be of a step that had begun before the pause
            match, said = late.wait_for(r"step +(\d+) +loss|began at step (\d+)", said)
            at = int(match.group(1) or match.group(2))
        for client in self.clients:
            client.finish()
        out = "\n".join(self.clients[0].lines)
        updates, steps = re.search(r"^(\d+) updates in (\d+) steps$", out, re.M).groups()
        self.assertEqual(int(updates), int(steps))
        self.assertGreater(float(re.search(r"^test accuracy ([\d.]+)$", out, re.M).group(1)), 0.95)

    def test_a_client_is_paused(self):
        late = self.clients[2]
        # warm_python hands it on
        self.finish(late, self.go_on_without(late.process.pid, signal.SIGTSTP))

    def test_a_worker_is_paused(self):
        self.finish(self.clients[2], self.go_on_without(daemon(self.mark, "worker/2")))
