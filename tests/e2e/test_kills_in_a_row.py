"""Training under kill -9 of the ps, both workers and the master, in an order that a seed chooses:
no hang, nothing that grows, and at every step the loss that it has in a run that nobody
disturbs."""
import json
import os
import random
import re
import time

import harness
import raw_clients as raw
from fault_case import HERE, MIB, FaultCase, say
from harness import WARM_PYTHON, LineReader, marked_pids

SEED = 20
N_KILLS, STEPS_BETWEEN = 100 if harness.LONG else 10, 30
STUCK_S = 30  # from a restart to the next step
# of a daemon that has lived through others' deaths
ROOM_MIB, ROOM_DESCRIPTORS, ROOM_THREADS = 48, 24, 4


class Trainer:
    """faults_client.py train or learn: its steps, each checked as it comes."""

    def __init__(self, case, kind, n_steps, name="checkpoints"):
        directory = case.path(name)
        os.makedirs(directory, exist_ok=True)
        self.case, self.log_path = case, case.path(f"{name}.log")
        self.process = case.popen([WARM_PYTHON, os.path.join(HERE, "faults_client.py"), kind,
                                   case.cluster.target, directory, n_steps],
                                  # fmt: skip
                                  {"TF_CPP_MIN_LOG_LEVEL": 3}, stderr=open(self.log_path, "wb"))
        self.lines = LineReader(self.process.stdout)

    def next(self):
        """None at the end."""
        line = self.lines.line()
        if line is None:
            with open(self.log_path, errors="replace") as log:
                self.case.fail("the trainer has gone:\n" + log.read()[-3000:])
        got = json.loads(line)
        self.case.assertNotIn("failed", got)
        return None if "done" in got else got


def use(daemon):
    """What a daemon holds: bytes resident but of files, descriptors, threads, arenas mapped."""
    with open(f"/proc/{daemon.process.pid}/status") as f:
        words = dict(re.findall(r"^(RssAnon|RssShmem|Threads):\s+(\d+)", f.read(), re.M))
    with open(f"/proc/{daemon.process.pid}/maps") as f:
        arenas = {line.split(None, 5)[5] + line.split()[4] for line in f if "/memfd:" in line}
    return {"bytes": (int(words["RssAnon"]) + int(words["RssShmem"])) * 1024,
            "descriptors": raw.n_descriptors(daemon.process.pid),
            "threads": int(words["Threads"]), "arenas": len(arenas)}  # fmt: skip


class TestTraining(FaultCase):
    """Both halves of a pair that every step adds to, with a ps that dies once."""

    flags = ("--heartbeat", "500ms")

    def test_the_ps_is_killed_and_training_goes_on(self):
        trainer, count = Trainer(self, "train", 10**9), 0
        served = restored = None
        for i in range(60):
            if i == 30:
                self.kill(self.ps)
                served = self.restart(self.ps)
            step = trainer.next()
            self.assertEqual(step["sum"], 3 * step["count"], "a torn step")
            if served and not restored and step["at"] >= served:
                restored = step["at"] - served
            self.assertLessEqual(step["count"], count + 2)
            count = step["count"]
        say("kill -9 of the ps under training: after its restart the next step is done in",
            restored)
        trainer.process.kill()
        self.cluster.check(20)


class TestKillsInARow(FaultCase):
    flags = ("--heartbeat", "500ms")

    def setUp(self):
        super().setUp()
        self.wanted, self.at, self.born = [], -1, {}

    def undisturbed(self, n_steps):
        trainer = Trainer(self, "learn", n_steps, "undisturbed")
        while (step := trainer.next()) is not None:
            self.assertEqual(step["step"], len(self.wanted))
            self.wanted.append(step["loss"])
        self.assertEqual(trainer.process.wait(harness.DEADLINE_S), 0)
        self.assertLess(sum(self.wanted[-20:]), sum(self.wanted[:20]) / 2, "it does not learn")

    def next_step(self, trainer):
        step = trainer.next()
        self.assertIsNotNone(step, "the training has ended before the kills")
        at, loss = step["step"], step["loss"]
        # the next one; back at a checkpoint; or on, where a step was done and its answer lost
        self.assertLessEqual(at, self.at + 2)
        self.assertAlmostEqual(loss, self.wanted[at], delta=1e-5 * max(1, abs(self.wanted[at])),
                               msg=f"the loss of step {at}")
        self.n_back += at != self.at + 1
        self.at = at
        return step

    def saved(self):
        """The global step of the newest checkpoint that was reported, on whose steps training may
        not fall back."""
        with open(os.path.join(self.path("checkpoints"), "checkpoint"), encoding="utf-8") as f:
            return int(re.search(r'^model_checkpoint_path: ".*-(\d+)"', f.read(), re.M).group(1))

    def check_use(self, why):
        """Of those that have seen another one die."""
        for daemon in self.cluster.daemons:
            self.assertIsNone(daemon.process.poll(),
                              f"{daemon.name} has died:\n{daemon.log_tail()}")
            now, before = use(daemon), self.born.setdefault(daemon.process.pid, use(daemon))
            words = f"{why}: {daemon.name} had {before}, has {now}"
            self.assertLess(now["bytes"], before["bytes"] + ROOM_MIB * MIB, words)
            self.assertLessEqual(now["descriptors"], before["descriptors"] + ROOM_DESCRIPTORS,
                                 words)
            self.assertLessEqual(now["threads"], before["threads"] + ROOM_THREADS, words)
            # its own, and of each other task that lives
            self.assertLessEqual(now["arenas"], len(self.cluster.tasks), words)

    def test_all_of_them(self):
        rng = random.Random(SEED)
        began, self.n_back, waits, killed = time.monotonic(), 0, [], []
        self.undisturbed(N_KILLS * STEPS_BETWEEN + 200)
        trainer = Trainer(self, "learn", len(self.wanted))
        for _ in range(5):
            self.next_step(trainer)
        files = len(os.listdir(self.path("checkpoints")))
        for i in range(N_KILLS):
            for _ in range(rng.randrange(STEPS_BETWEEN)):
                self.next_step(trainer)
            victim, saved = rng.choice(self.cluster.daemons), self.saved()
            self.kill(victim)
            served = self.restart(victim)
            step = self.next_step(trainer)
            while step["at"] < served:
                step = self.next_step(trainer)
            self.assertGreaterEqual(step["step"], saved,
                                    f"kill {i}, of {victim.name}: a checkpoint is lost")
            waits.append(step["at"] - served)
            killed.append(victim.name)
            self.assertLess(waits[-1], STUCK_S, f"kill {i}, of {victim.name}, seed {SEED}")
            self.check_use(f"kill {i}, of {victim.name}")
        for _ in range(40):
            self.next_step(trainer)
        counts = ", ".join(f"{name} {killed.count(name)}" for name in sorted(set(killed)))
        say(f"{N_KILLS} kills ({counts}) under training, {self.n_back} breaks in the count, every "
            "loss as undisturbed; the next step is done, "
            "after a restart, at the mean", sum(waits) / len(waits))  # fmt: skip
        say("    at worst", max(waits))
        say("    all of it", time.monotonic() - began)
        trainer.process.kill()
        trainer.process.wait()
        self.cluster.check(20)
        self.until(lambda: self.master.metric("millrace_grpc_connections") == 0,
                   "connections are left")
        self.assertEqual(marked_pids(self.mark), [])  # the clients'
        self.assertLessEqual(len(os.listdir(self.path("checkpoints"))), files + 12)
