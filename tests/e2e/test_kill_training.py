"""Training that survives kill -9: MonitoredTrainingSession on a ps and two workers, under `tfctl
local --restart`.

A run must finish, lose no checkpoint that was reported as saved, and learn as much as a run that
nobody disturbs. Short runs are killed twice, when two more checkpoints have been saved; with
--long, runs of three minutes are killed every 20 seconds.
"""
import os
import re
import subprocess
import time
import unittest

import harness
from clients import kill, start_replicas
from harness import LocalCluster, TestCase

RUN_S, EVERY_S, QUIET_END_S = 180, 20, 15


class Run:
    """A chief and another client, training on a cluster whose daemons come back."""

    def __init__(self, test, *limits):
        self.test = test
        self.directory = test.path("checkpoints")
        self.cluster = LocalCluster(test, "--ps", "1", "--workers", "2", "--quiet", "--restart",
                                    f"--worker-flag=--file-root={test.directory}")
        self.clients = start_replicas(test, 2, "digits_monitored.py", "--target",
                                      self.cluster.target, f"--directory={self.directory}", *limits)
        self.chief = self.clients[0]

    def saved(self):
        return self.chief.numbers(r"saved step (\d+)")

    def wait_for_saves(self, n):
        after = self.chief.n_lines()
        for _ in range(n):
            _, after = self.chief.wait_for("saved step", after)

    def kill(self, name):
        """Kills a daemon, and sees the clients that used it begin again, where a reported
        checkpoint stood or later."""
        told = {client: client.n_lines() for client in self.clients}
        reported = self.saved()[-1]
        pid = kill(self.test.mark, name)
        self.cluster.err.until(f"{name} is back")
        self.test.expect(0, "tfctl", "checkpoint", "verify",
                         os.path.join(self.directory, f"model.ckpt-{reported}"))
        client = self.clients[1] if name == "worker/1" else self.chief
        match, _ = client.wait_for(r"began at step (\d+)", told[client])
        if client is self.chief:  # who restores
            self.test.assertGreaterEqual(int(match.group(1)), reported,
                                         f"{name} (pid {pid})\n{self.chief.story()}")

    def finish(self, timeout_s=harness.DEADLINE_S):
        """The accuracy of the last checkpoint."""
        for client in self.clients:
            client.finish(timeout_s)
            self.test.assertTrue(client.numbers(r"step +(\d+) +loss"), client.story())
        out = "\n".join(self.chief.lines)
        at, accuracy = re.search(r"the last checkpoint is of step (\d+)\ntest accuracy ([\d.]+)",
                                 out).groups()
        self.test.assertGreaterEqual(int(at), max(self.saved()))
        self.test.assertEqual(self.cluster.stop(), 0)
        return float(accuracy)


class KillCase(TestCase):
    undisturbed = {}

    def accuracy_undisturbed(self, *limits):
        """Of a run that nobody kills, once for all tests."""
        if limits not in self.undisturbed:
            self.undisturbed[limits] = Run(self, *limits).finish()
            subprocess.run(["rm", "-r", self.path("checkpoints")], check=True)
        return self.undisturbed[limits]


class TestTwoKills(KillCase):
    def train(self, *names):
        wanted = self.accuracy_undisturbed("--steps=3000")
        run = Run(self, "--steps=3000")
        for name in names:
            run.wait_for_saves(2)
            run.kill(name)
        self.assertGreater(run.finish(), wanted - 0.02)

    def test_the_parameter_server(self):
        self.train("ps/0", "ps/0")

    def test_both_workers(self):
        self.train("worker/0", "worker/1")

    def test_the_master(self):
        self.train("master", "master")


@unittest.skipUnless(harness.LONG, "three minutes each; runs with --long")
class TestKillsEveryTwentySeconds(KillCase):
    def train(self, *names):
        wanted = self.accuracy_undisturbed("--seconds=30")
        began = time.monotonic()
        run, n = Run(self, f"--seconds={RUN_S}"), 0
        while (due := began + (n + 1) * EVERY_S) < began + RUN_S - QUIET_END_S:
            with self.assertRaises(subprocess.TimeoutExpired, msg=run.chief.story()):
                run.chief.process.wait(due - time.monotonic())
            run.kill(names[n % len(names)])
            n += 1
        accuracy = run.finish(RUN_S + harness.DEADLINE_S)
        print(f"\n{n} kills of {', '.join(sorted(set(names)))} in {time.monotonic() - began:.0f} "
              f"s: accuracy {accuracy:.4f}, undisturbed {wanted:.4f}; "
              f"{len(run.saved())} checkpoints, the last of step {run.saved()[-1]}")
        self.assertGreater(accuracy, wanted - 0.02)

    def test_the_parameter_server(self):
        self.train("ps/0")

    def test_both_workers(self):
        self.train("worker/0", "worker/1")

    def test_the_master(self):
        self.train("master")
