#!/usr/bin/env python3
"""Saving and restoring a large checkpoint: Millrace, the same bytes by plain system calls, and
TensorFlow, side by side in one run.

    .venv/bin/python bench/checkpoint.py [--mb 1024] [--variables 16] [--rounds 5] [--dir DIR]
    [--json FILE]

A ps of a local cluster holds the variables. Each round, in this order and then in the reverse one:

  save      SaveV2 of all of them          | os.write of as many bytes in 4 MiB calls, fsync   |
  TensorFlow's SaveV2, which does not sync
  restore   RestoreV2 of all, unassigned   | os.readinto fresh memory in 4 MiB calls           |
  TensorFlow's RestoreV2

The files of a restore are in the page cache for all three. Ratios are to the plain program, of
medians; a disk whose speed varies between rounds varies all three. At last, while the ps saves and
without: null steps per second of a worker for another client, and steps that train a multilayer
perceptron whose variables are saved with the others (on the cluster they lie on the ps, and a
worker computes).
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("MILLRACE_BIN", os.path.join(ROOT, "build", "bin"))
CALL_BYTES = 4 << 20

import daemons  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_eager_execution()


class System:
    """Variables in a session, and ops that save and restore them."""

    def __init__(self, name, target, device, options, directory):
        self.name, self.prefix, self.graph = name, os.path.join(
            directory, name, "model"), tf.Graph()
        os.makedirs(os.path.dirname(self.prefix))
        n = options.mb * (1 << 20) // 4 // options.variables
        names = [f"v{i}" for i in range(options.variables)]
        with self.graph.as_default(), tf.device(device):
            values = [tf.get_variable(name, shape=[n],
                                      initializer=tf.random_uniform_initializer(seed=1))
                      for name in names]
            self.train_op, trained = perceptron("/job:worker/task:0" if target else device)
            values, names = values + trained, names + [v.op.name for v in trained]
            specs = [""] * len(names)
            self.save_op = tf.raw_ops.SaveV2(prefix=self.prefix, tensor_names=names,
                                             shape_and_slices=specs,
                                             tensors=[v.read_value() for v in values])
            self.restore_op = tf.raw_ops.RestoreV2(
                prefix=self.prefix, tensor_names=names, shape_and_slices=specs,
                dtypes=[tf.float32] * len(names))[0].op
            init = tf.global_variables_initializer()
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        self.session = tf.Session(target, graph=self.graph, config=config)
        self.session.run(init)

    def save(self):
        self.session.run(self.save_op)

    def restore(self):
        self.session.run(self.restore_op)


class Plain:
    name = "plain"

    def __init__(self, options, directory):
        self.path = os.path.join(directory, "plain", "data")
        os.makedirs(os.path.dirname(self.path))
        self.data = memoryview(np.random.default_rng(1).random(options.mb * (1 << 20) // 8)).cast(
            "B")

    def save(self):
        """To a new name, as all three do."""
        temporary = self.path + ".new"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        for at in range(0, len(self.data), CALL_BYTES):
            os.write(fd, self.data[at : at + CALL_BYTES])
        os.fsync(fd)
        os.close(fd)
        os.rename(temporary, self.path)

    def restore(self):
        into = memoryview(np.empty(len(self.data) // 8)).cast("B")
        with open(self.path, "rb", buffering=0) as f:
            for at in range(0, len(into), CALL_BYTES):
                f.readinto(into[at : at + CALL_BYTES])


def perceptron(device):
    """(a step that trains it on random images, its variables); the variables stay where the caller
    puts them."""
    w1, w2 = (tf.get_variable(name, shape=shape, initializer=tf.glorot_uniform_initializer(seed=1))
              for name, shape in (("w1", [784, 256]), ("w2", [256, 10])))
    images = np.random.RandomState(0).rand(64, 784).astype(np.float32)
    with tf.device(device):
        logits = tf.matmul(tf.nn.relu(tf.matmul(tf.constant(images), w1)), w2)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=tf.constant(np.arange(64) % 10), logits=logits))
    return tf.train.GradientDescentOptimizer(0.01).minimize(loss), [w1, w2]


def timed(call):
    os.sync()  # nobody pays for what another left to be written
    began = time.monotonic()
    call()
    return time.monotonic() - began


def steps_per_s(step, save=None):
    """How often `step` runs in a second: during save(), or for two seconds."""
    step()
    thread = threading.Thread(target=save if save else lambda: time.sleep(2))
    began, n = time.monotonic(), 0
    thread.start()
    while thread.is_alive():
        step()
        n += 1
    return n / (time.monotonic() - began)


def null_step(target):
    with tf.Graph().as_default(), tf.device("/job:worker/task:0"):
        op = tf.no_op()
        session = tf.Session(target)
    return lambda: session.run(op)


def measure_steps(what, step, save, rounds):
    """Medians of alternating rounds: {"idle", "while saving"}."""
    both = [(steps_per_s(step), steps_per_s(step, save)) for _ in range(rounds)]
    idle, busy = (statistics.median(column) for column in zip(*both))
    print(f"{what:36}{idle:9.0f} /s, while it saves {busy:9.0f} /s  ({busy / idle:.2f} x)")
    return {"idle": idle, "while saving": busy}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--variables", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where the files go; default: the temporary directory")
    parser.add_argument("--json")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="millrace-bench-", dir=options.dir)
    cluster = daemons.start([os.path.join(BIN, "tfctl"), "local", "--ps", "1", "--workers", "1",
                             "--quiet", f"--worker-flag=--file-root={directory}"],
                            stdout=subprocess.PIPE, text=True)
    try:
        target = cluster.stdout.readline().strip()
        systems = [System("millrace", target, "/job:ps/task:0", options, directory),
                   Plain(options, directory),
                   System("tensorflow", "", "/cpu:0", options, directory)]
        times = {(s.name, what): [] for s in systems for what in ("save", "restore")}
        for i in range(options.rounds + 1):
            for what in ("save", "restore"):
                for system in systems if i % 2 == 0 else systems[::-1]:
                    seconds = timed(getattr(system, what))
                    if i > 0:  # the first round warms up
                        times[system.name, what].append(seconds)
        report = {}
        print(f"{options.mb} MiB in {options.variables} variables, median of {options.rounds} "
              "rounds; times to the plain program\n")
        print(f"{'':10}{'millrace':>20}{'plain':>12}{'tensorflow':>20}")
        for what in ("save", "restore"):
            medians = {s.name: statistics.median(times[s.name, what]) for s in systems}
            report[what] = {"seconds": medians,
                            "ratio": {n: m / medians["plain"] for n, m in medians.items()},
                            "all": {s.name: times[s.name, what] for s in systems}}
            ratio = report[what]["ratio"]
            print(f"{what:10}{medians['millrace']:10.3f} s {ratio['millrace']:5.2f} "
                  f"x{medians['plain']:10.3f} s{medians['tensorflow']:10.3f} s "
                  f"{ratio['tensorflow']:5.2f} x")
        ours, theirs, n_rounds = systems[0], systems[2], min(3, options.rounds)
        print()
        report["null_steps_per_s"] = measure_steps(
            "null steps on a worker", null_step(target), ours.save, n_rounds)
        for system in (ours, theirs):
            report[f"training_steps_per_s_{system.name}"] = measure_steps(
                f"training steps, {system.name}", lambda s=system: s.session.run(s.train_op),
                system.save,
                                                                          n_rounds)
        if options.json:
            with open(options.json, "w") as f:
                json.dump(report, f, indent=1)
    finally:
        cluster.terminate()
        shutil.rmtree(directory, ignore_errors=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
