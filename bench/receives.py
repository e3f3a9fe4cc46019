#!/usr/bin/env python3
"""Scheduling of receives: how much less memory does a worker need, and does a step take longer?

    bench/receives.py [--rounds N] [--only TEXT] [--size N] [--values N] [--scale X] [--link MB]
                      [--bin DIR]

Each case reads many variables of a parameter server in one step. It runs on two clusters of a
server and a worker over TCP: one whose sessions ask for nothing, and one whose sessions set
GraphOptions.enable_recv_scheduling. Steps of both run in alternating rounds. The columns are the
most tensor memory that the worker has held, beyond what it held before, the median and shortest
step of either, and the median ratio of two steps of one round with its standard error. With --scale
the worker's kernels take this many times as long. They mostly sleep, so that other work on the
machine disturbs the measurement less. With --link this many megabytes a second reach the worker."""
import argparse
import json
import math
import os
import statistics
import tempfile
import time
import urllib.request

import numpy as np
from placement import ROOT, Daemon, tf, tf1
from slow_link import SlowLink

ROWS = 64  # of the batch


def variables(arguments):
    with tf.device("/job:ps"):
        return [tf1.get_variable(f"w{i}", [arguments.size, arguments.size],
                                 initializer=tf1.random_normal_initializer(stddev=0.03),
                                 use_resource=True) for i in range(arguments.values)]


def wide(x, weights):
    """Each variable is used by itself."""
    return tf.add_n([tf.reduce_sum(tf.matmul(x, w)) for w in weights])


def layers(x, weights):
    """A network whose layers need one variable each."""
    for w in weights:
        x = tf.nn.relu(tf.matmul(x, w))
    return tf.reduce_sum(x)


def training(x, weights):
    """The network's training step: a variable is needed again for its gradient."""
    loss = layers(x, weights)
    with tf.control_dependencies([tf1.train.GradientDescentOptimizer(1e-9).minimize(loss)]):
        return tf.identity(loss)


CASES = {"wide": wide, "layers": layers, "training": training}


class Cluster:
    """Daemons for some jobs of one task each over TCP; the worker's memory."""

    def __init__(self, arguments, directory, jobs):
        os.mkdir(directory)
        flags = ("--unix", "off", "--shm", "off")
        scale = {"worker": ("--device-scale", str(arguments.scale))}
        self.daemons = {job: Daemon(arguments, directory, job, "tf-worker", "--job", job, *flags,
                                    *scale.get(job, ())) for job in jobs}
        ports = {job: daemon.port for job, daemon in self.daemons.items()}
        self.link = arguments.link and SlowLink(ports["worker"], arguments.link * 1e6)
        if self.link:
            ports["worker"] = self.link.port
        tasks = ",".join(f"{job}=127.0.0.1:{port}" for job, port in ports.items())
        self.daemons["master"] = Daemon(arguments, directory, "master", "tf-master", "--cluster",
                                        tasks)
        self.target = f"grpc://127.0.0.1:{self.daemons['master'].port}"

    def memory(self, what):
        page = f"http://127.0.0.1:{self.daemons['worker'].admin}/statusz"
        with urllib.request.urlopen(page) as answer:
            return json.load(answer)["devices"][0][f"memory_{what}_bytes"]

    def stop(self):
        for daemon in reversed(self.daemons.values()):
            daemon.stop()
        if self.link:
            self.link.stop()


class Run:
    """A cluster, and a session with the step of a case."""

    def __init__(self, arguments, directory, build, is_scheduled):
        self.cluster = Cluster(arguments, directory, ("ps", "worker"))
        self.memory = self.cluster.memory
        self.rng = np.random.default_rng(1)
        self.rows = self.rng.standard_normal((ROWS, arguments.size), np.float32)
        config = tf1.ConfigProto()
        config.graph_options.enable_recv_scheduling = is_scheduled
        with tf.Graph().as_default():
            weights = variables(arguments)
            with tf.device("/job:worker"):
                x = tf1.placeholder(tf.float32, [ROWS, arguments.size])
                value = build(x, weights)
            self.session = tf1.Session(self.cluster.target, config=config)
            self.session.run(tf1.global_variables_initializer())
            self.before = self.memory("in_use")
            self.call = self.session.make_callable(value, [x])
        self.times = []

    def step(self):
        start = time.perf_counter()
        self.call(self.rows)
        self.times.append((time.perf_counter() - start) * 1e3)

    def stop(self):
        self.session.close()
        self.cluster.stop()


def columns_of(peaks, steps):
    """Of two runs: their peaks, their times in ms round by round."""
    medians = [statistics.median(times) for times in steps]
    pairs = sorted(late / early for early, late in zip(*steps))
    error = 1.253 * statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else math.nan
    pair = f"{statistics.median(pairs):7.3f} ±{error:.3f}"
    columns = (peaks, medians, [min(times) for times in steps])
    return "   ".join([f"{early:8.1f} {late:8.1f} {late / early:6.3f}" for early, late in columns] +
                      [pair])


HEADER = "\n".join([
    "           " + "   ".join(f"{title:>24}" for title in ("peak, MB", "median step, ms",
                                                          "shortest step, ms")) + "   paired ratio",
    "           " + "   ".join([f"{'at once':>8} {'late':>8} {'':6}"] * 3)])


def measure(arguments, name, build):
    with tempfile.TemporaryDirectory() as directory:
        runs = [Run(arguments, os.path.join(directory, str(i)), build, i == 1) for i in range(2)]
        try:
            for index in range(arguments.rounds + 2):
                for run in runs[:: 1 if index % 2 else -1]:
                    run.step()
            peaks = [(run.memory("peak") - run.before) / 1e6 for run in runs]
        finally:
            for run in runs:
                run.stop()
    print(f"{name:10} " + columns_of(peaks, [run.times[2:] for run in runs]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=1024, help="rows of a variable")
    parser.add_argument("--values", type=int, default=24, help="variables of a step")
    parser.add_argument("--scale", type=float, default=1, help="--device-scale of the worker")
    parser.add_argument("--link", type=float, help="megabytes a second")
    parser.add_argument("--only", default="")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    arguments = parser.parse_args()
    tf1.disable_eager_execution()
    print(HEADER)
    for name, build in CASES.items():
        if arguments.only in name:
            measure(arguments, name, build)


if __name__ == "__main__":
    main()
