"""A step on two clusters, of which one makes or receives values as late as it can: how much less
memory does the worker need, and does the step take longer? For receives.py and delays.py.

Steps of both run in alternating rounds. The columns are the most tensor memory that the worker has
held, beyond what it held before, the median and shortest step of either, and the median ratio of
two steps of one round with its standard error. With --scale the worker's kernels take this many
times as long. They mostly sleep, so that other work on the machine disturbs the measurement
less."""
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

    def __init__(self, arguments, directory, jobs, build, is_scheduled):
        self.cluster = Cluster(arguments, directory, jobs)
        config = tf1.ConfigProto()
        config.graph_options.enable_recv_scheduling = is_scheduled
        self.rows = np.random.default_rng(1).standard_normal((ROWS, arguments.size), np.float32)
        with tf.Graph().as_default():
            with tf.device("/job:worker"):
                x = tf1.placeholder(tf.float32, [ROWS, arguments.size])
                value = build(arguments, x)
            self.session = tf1.Session(self.cluster.target, config=config)
            self.session.run(tf1.global_variables_initializer())
            self.before = self.cluster.memory("in_use")
            self.call = self.session.make_callable(value, [x])
        self.times = []

    def step(self):
        start = time.perf_counter()
        result = self.call(self.rows)
        self.times.append((time.perf_counter() - start) * 1e3)
        return float(result)

    def peak(self):
        return (self.cluster.memory("peak") - self.before) / 1e6

    def stop(self):
        self.session.close()
        self.cluster.stop()


HEADER = "\n".join([
    "           " + "   ".join(f"{title:>24}" for title in ("peak, MB", "median step, ms",
                                                          "shortest step, ms")) + "   paired ratio",
    "           " + "   ".join([f"{'at once':>8} {'late':>8} {'':6}"] * 3)])


def columns_of(peaks, steps):
    """Of two runs: their peaks, their times in ms round by round."""
    medians = [statistics.median(times) for times in steps]
    pairs = sorted(late / early for early, late in zip(*steps))
    error = 1.253 * statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else math.nan
    pair = f"{statistics.median(pairs):7.3f} ±{error:.3f}"
    columns = (peaks, medians, [min(times) for times in steps])
    return "   ".join([f"{early:8.1f} {late:8.1f} {late / early:6.3f}" for early, late in columns] +
                      [pair])


def measure(arguments, jobs, name, build):
    with tempfile.TemporaryDirectory() as directory:
        runs = [Run(arguments, os.path.join(directory, str(i)), jobs, build, i == 1)
                for i in range(2)]
        try:
            for index in range(arguments.rounds + 2):
                results = [run.step() for run in runs[:: 1 if index % 2 else -1]]
                if not np.array_equal(*results, equal_nan=True):
                    raise SystemExit(f"{name}: results differ: {results}")
            peaks = [run.peak() for run in runs]
        finally:
            for run in runs:
                run.stop()
    print(f"{name:10} " + columns_of(peaks, [run.times[2:] for run in runs]), flush=True)


def main(docstring, cases, jobs, size, values):
    """`cases` maps a name to a function of the arguments and a batch, which returns the value to
    fetch; `size` and `values` are defaults."""
    parser = argparse.ArgumentParser(description=docstring,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=size, help="rows and columns of a value")
    parser.add_argument("--values", type=int, default=values, help="large values of a step")
    parser.add_argument("--scale", type=float, default=1, help="--device-scale of the worker")
    parser.add_argument("--link", type=float, help="megabytes a second that reach the worker")
    parser.add_argument("--only", default="")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    arguments = parser.parse_args()
    tf1.disable_eager_execution()
    print(HEADER)
    for name, build in cases.items():
        if arguments.only in name:
            measure(arguments, jobs, name, build)
