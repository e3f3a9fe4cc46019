#!/usr/bin/env python3
"""Placement by cost on real processes: is it faster than the simple rule, and does a step take as
long as the simulation says?

    bench/placement.py [--rounds N] [--only TEXT] [--size N] [--load N] [--bin DIR]

For each case two workers are started, made slower by --device-scale, and two masters that share
them, one with --placement=cost. Steps of both run in alternating rounds. The columns are the
shortest measured step by the simple rule and by cost, how many times faster that is, and what the
simulation of each placement said: by estimates, and again with measured costs, in a new session.
The last four cases leave nothing to choose: both placements are the same, and steps by cost may
take at most 3 % longer. Two of them are training steps of networks.py, whose costs are measured as
programs of several nodes.
The last line is the median error of the simulated times. Slow kernels mostly sleep, so two workers
run side by side on few cores, but other work on the machine lengthens the measured steps. --load
runs this many busy processes while costs are measured, and stops them while steps are timed: a
cost is what a node takes undisturbed."""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from daemons import start as start_process

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.join(ROOT, "bench"))
import networks  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
MAX_WARM_S = 30
SIMULATED = re.compile(r"simulated step ([0-9.]+) ms, ([0-9.]+) ms by the simple rule")


def products(x, n):
    for _ in range(n):
        x = tf.matmul(x, x)
    return x


def chain(source):
    return products(source(0), 8)


def wide(source):
    return tf.add_n([products(source(i), 2) for i in range(8)])


def placed_chain(source):
    """The client has placed all of it, half on each worker."""
    with tf.device("/job:worker/task:0"):
        x = products(source(0), 4)
    with tf.device("/job:worker/task:1"):
        return products(x, 4)


def towers(source):
    return products(source(0), 5) + products(source(1), 5)


def lstm(source):
    """Two layers of cells over six steps in time: a cell needs the one below and the one before."""
    weights = [source(layer) for layer in range(2)]
    below = [source(2 + t) for t in range(6)]
    for layer in range(2):
        state, above = source(8 + layer), []
        for value in below:
            state = tf.tanh(tf.matmul(value, weights[layer]) + tf.matmul(state, weights[layer]))
            above.append(state)
        below = above
    return below[-1]


def of_source(build):
    """A step that fetches the sum of what `build` makes of matrices."""
    def make(size):
        seed = tf1.placeholder(tf.float32, [])
        value = build(lambda i: tf.fill([size, size], seed + float(i)))
        with tf.device(value.device):
            return tf.no_op(), tf.reduce_sum(value), {seed: 0.0}
    return make


def of_network(build):
    return lambda _: build(tf, tf1, np)


CASES = {  # name: the workers' scales, the step
    "two unequal workers": ((8, 2), of_source(chain)),
    "wide": ((4, 4), of_source(wide)),
    "chain": ((4, 4), of_source(chain)),
    "LSTM, two layers": ((4, 4), of_source(lstm)),
    "a tower per worker": ((4, 4), of_source(towers)),
    "one worker": ((4,), of_source(wide)),
    "all placed": ((4, 4), of_source(placed_chain)),
    "LeNet, one worker": ((1,), of_network(networks.lenet)),
    "MLP, one worker": ((1,), of_network(networks.mlp)),
}


class Daemon:
    """A daemon that serves: its port, its admin port and its log."""

    def __init__(self, arguments, directory, name, program, *flags):
        self.log = os.path.join(directory, f"{name}.log")
        ports = os.path.join(directory, f"{name}.ports")
        with open(self.log, "w") as log:
            self.process = start_process(
                [os.path.join(arguments.bin, program), "--listen", "127.0.0.1:0", "--admin",
                 "127.0.0.1:0", "--port-file", ports, *flags], stderr=log)
        while not os.path.exists(ports):
            if self.process.poll() is not None:
                raise SystemExit(f"{program} did not start: {self.text()}")
            time.sleep(0.01)
        with open(ports) as f:
            self.port, self.admin = (int(w) for w in f.read().replace("admin", "").split())

    def text(self):
        with open(self.log) as f:
            return f.read()

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Step:
    """A session with the step of a case."""

    def __init__(self, master, make, size):
        with tf.Graph().as_default():
            initializer, fetches, feeds = make(size)
            self.session = tf1.Session(f"grpc://127.0.0.1:{master.port}")
            self.session.run(initializer)
            self.call = self.session.make_callable(fetches, list(feeds))
            self.values = list(feeds.values())
        self.run()
        found = SIMULATED.findall(master.text())
        self.simulated_ms = tuple(float(ms) for ms in found[-1]) if found else (None, None)

    def run(self):
        start = time.perf_counter()
        self.call(*self.values)
        return (time.perf_counter() - start) * 1e3


def n_measured(master):
    with urllib.request.urlopen(f"http://127.0.0.1:{master.admin}/costz") as page:
        return sum("MatMul" in row.get("key", "") for row in json.load(page))


def signal_all(processes, number):
    for process in processes:
        process.send_signal(number)


def measure(arguments, name, scales, make, errors, load):
    with tempfile.TemporaryDirectory() as directory:
        daemons = []
        try:
            for task, scale in enumerate(scales):
                daemons.append(Daemon(arguments, directory, f"worker{task}", "tf-worker", "--task",
                                      str(task), "--device-scale", str(scale), "--threads", "1"))
            cluster = "worker=" + ";".join(f"127.0.0.1:{d.port}" for d in daemons)
            masters = [Daemon(arguments, directory, placement, "tf-master", "--cluster", cluster,
                              "--placement", placement, "--log-level", "debug")
                       for placement in ("simple", "cost")]
            daemons += masters
            simple = Step(masters[0], make, arguments.size)
            estimated = Step(masters[1], make, arguments.size)
            end = time.monotonic() + MAX_WARM_S
            while not n_measured(masters[1]) and time.monotonic() < end:
                estimated.run()
            by_cost = Step(masters[1], make, arguments.size)
            times = [[], []]
            signal_all(load, signal.SIGSTOP)
            for _ in range(arguments.rounds):
                times[0].append(simple.run())
                times[1].append(by_cost.run())
            signal_all(load, signal.SIGCONT)
            for step in (simple, estimated, by_cost):
                step.session.close()  # while there is somebody to answer
        finally:
            for daemon in reversed(daemons):
                daemon.stop()
    simple_ms, cost_ms = (min(t) for t in times)
    for step, kind in ((estimated, "estimated"), (by_cost, "measured")):
        cost, by_rule = step.simulated_ms
        if cost is None:  # there was nothing to choose, so nothing was simulated
            continue
        errors[kind] += [abs(by_rule / simple_ms - 1)]
        if step is by_cost:
            errors[kind] += [abs(cost / cost_ms - 1)]
    simulated = "   ".join(
        " ".join("        -" if ms is None else f"{ms:9.1f}" for ms in reversed(step.simulated_ms))
        for step in (estimated, by_cost))
    print(f"{name:20} {simple_ms:9.1f} {cost_ms:9.1f} {simple_ms / cost_ms:7.2f}   {simulated}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--only", default="")
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    arguments = parser.parse_args()
    tf1.disable_eager_execution()
    errors = {"estimated": [], "measured": []}
    print(f"{'ms a step':20} {'simple':>9} {'by cost':>9} {'times':>7}   "
          f"{'simulated by estimates':>19}   {'with measured costs':>19}")
    load = [start_process([sys.executable, "-c", "while True: pass"])
            for _ in range(arguments.load)]
    try:
        for name, (scales, make) in CASES.items():
            if arguments.only in name:
                measure(arguments, name, scales, make, errors, load)
    finally:
        for process in load:
            process.kill()
            process.wait()
    if any(errors.values()):
        print("median error of the simulated step: " + ", ".join(
            f"{kind} costs {statistics.median(values):.0%} of {len(values)}"
            for kind, values in errors.items() if values))


if __name__ == "__main__":
    main()
