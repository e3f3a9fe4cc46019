#!/usr/bin/env python3
"""Large values made late: how much less memory does a worker need, and does a step take longer?

    bench/delays.py [--rounds N] [--only TEXT] [--size N] [--values N] [--scale X] [--bin DIR]

Each case makes many large values of little (Fill, OneHot). It runs on two workers, each with a
master of its own: one whose session asks for nothing, and one whose session sets
GraphOptions.enable_recv_scheduling. Steps of both run in alternating rounds. The columns are
the same as those of receives.py."""
import argparse
import os
import tempfile
import time

import numpy as np
from placement import ROOT, tf, tf1
from receives import HEADER, Cluster, columns_of

ROWS = 64  # of the batch


def fills(arguments, x):
    """Layers whose weights are constants."""
    for i in range(arguments.values):
        x = tf.matmul(x, tf.fill([arguments.size, arguments.size], np.float32(1 / (i + 8))))
    return tf.reduce_sum(x)


def wide(arguments, x):
    """The same products beside each other: nothing is delayed."""
    return tf.add_n([tf.reduce_sum(tf.matmul(
        x, tf.fill([arguments.size, arguments.size], np.float32(1 / (i + 8)))))
        for i in range(arguments.values)])


def one_hot(arguments, x):
    """Rows of a matrix, picked by products with rows of one 1."""
    ids = tf.cast(tf.math.abs(tf.reduce_sum(x[:1], 0)), tf.int32)
    for i in range(arguments.values):
        x = tf.matmul(x, tf.one_hot(ids + i, arguments.size))
    return tf.reduce_sum(x)


CASES = {"fills": fills, "wide": wide, "one-hot": one_hot}


class Run:
    """A cluster of one worker, and a session with the step of a case."""

    def __init__(self, arguments, directory, build, is_scheduled):
        self.cluster = Cluster(arguments, directory, ("worker",))
        config = tf1.ConfigProto()
        config.graph_options.enable_recv_scheduling = is_scheduled
        self.rows = np.random.default_rng(1).standard_normal((ROWS, arguments.size), np.float32)
        with tf.Graph().as_default():
            x = tf1.placeholder(tf.float32, [ROWS, arguments.size])
            value = build(arguments, x)
            self.session = tf1.Session(self.cluster.target, config=config)
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


def measure(arguments, name, build):
    with tempfile.TemporaryDirectory() as directory:
        runs = [Run(arguments, os.path.join(directory, str(i)), build, i == 1) for i in range(2)]
        try:
            for index in range(arguments.rounds + 2):
                results = [run.step() for run in runs[:: 1 if index % 2 else -1]]
                if results[0] != results[1] and results[0] == results[0]:
                    raise SystemExit(f"{name}: results differ: {results}")
            peaks = [run.peak() for run in runs]
        finally:
            for run in runs:
                run.stop()
    print(f"{name:10} " + columns_of(peaks, [run.times[2:] for run in runs]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", type=int, default=2048, help="rows of a value")
    parser.add_argument("--values", type=int, default=12, help="large values of a step")
    parser.add_argument("--scale", type=float, default=1, help="--device-scale of the worker")
    parser.add_argument("--only", default="")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    arguments = parser.parse_args()
    arguments.link = None
    tf1.disable_eager_execution()
    print(HEADER)
    for name, build in CASES.items():
        if arguments.only in name:
            measure(arguments, name, build)


if __name__ == "__main__":
    main()
