#!/usr/bin/env python3
"""What does a call of a Python function cost, beside TensorFlow in process?

    bench/py_functions.py [--rounds N] [--seconds S] [--only TEXT] [--bin DIR] [--json FILE]

One program calls tf.numpy_function in TensorFlow's own process, on a cluster of one worker with
millrace.py_functions, and on that cluster with max_shared_bytes=0, where all values pass through
the connection. Rounds alternate. Each row is one session.run:

    latency     a call with one number; the time of the step, and of the step without the call
    serial      a step of 100 calls, one after the other, per call
    parallel    a step of 100 calls that do not wait for each other, per call
    4 MB        4 MB to the function and 4 MB back

The medians of the rounds are printed, and the ratio to TensorFlow."""

import argparse
import json
import os
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path += [os.path.join(ROOT, "tests", "differential"), os.path.join(ROOT, "client", "python")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import millrace  # noqa: E402
import tensorflow as tf  # noqa: E402
from cluster import Cluster  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_eager_execution()
N_CALLS = 100
LARGE = 1 << 20  # float32: 4 MB


def call(x):
    y = tf.numpy_function(lambda a: a, [x], x.dtype)
    y.set_shape(x.shape)
    return y


def latency(x):
    return call(x)


def no_call(x):
    return x + 1


def serial(x):
    for _ in range(N_CALLS):
        x = call(x)
    return x


def parallel(x):
    return tf.add_n([call(x + i) for i in range(N_CALLS)])


def large(x):
    """The step makes the values and uses them, so that only the call moves 4 MB."""
    return call(tf.fill([LARGE], tf.cast(x, tf.float32)))[LARGE - 1]


def large_without(x):
    return tf.fill([LARGE], tf.cast(x, tf.float32))[LARGE - 1]


# name, what is run, how many calls it has, bytes both ways of a call
ROWS = (("a step without a call", no_call, 1, 0), ("latency", latency, 1, 0),
        ("serial, per call", serial, N_CALLS, 0), ("parallel, per call", parallel, N_CALLS, 0),
        ("4 MB made and used, no call", large_without, 1, 0),
        ("4 MB both ways", large, 1, 8 * LARGE))


def measure(session, fetch, feed, seconds):
    """The median time of a step in seconds."""
    session.run(fetch, feed)
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        began = time.perf_counter()
        session.run(fetch, feed)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def program(target, wanted, seconds):
    """{row: seconds for a call} of one round."""
    found = {}
    for name, build, n_calls, _ in ROWS:
        if wanted not in name:
            continue
        with tf.Graph().as_default():
            x = tf1.placeholder(tf.float64, [])
            fetch = build(x)
            with tf1.Session(target) as session:
                found[name] = measure(session, fetch, {x: 1.0}, seconds) / n_calls
    return found


def one_round(target, wanted, seconds):
    yield "TensorFlow", program("", wanted, seconds)
    with millrace.py_functions(target):
        yield "Millrace", program(target, wanted, seconds)
    with millrace.py_functions(target, max_shared_bytes=0):
        yield "not shared", program(target, wanted, seconds)


def show(rounds):
    sides = list(rounds)
    print(f"{'':28}" + "".join(f"{side:>14}" for side in sides) + f"{'ratio':>8}")
    medians = {}
    for name, _, _, size in ROWS:
        if name not in rounds[sides[0]][0]:
            continue
        row = {side: statistics.median(one[name] for one in rounds[side]) for side in sides}
        medians[name] = row
        ratio = row["Millrace"] / row["TensorFlow"]
        print(f"{name:28}" + "".join(f"{row[s] * 1e6:>11.0f} µs" for s in sides) + f"{ratio:>8.1f}")
        if size:
            print(f"{'':28}" + "".join(f"{size / row[s] / 1e9:>9.2f} GB/s" for s in sides))
        elif "per call" in name:
            print(f"{'':28}" + "".join(f"{1 / row[s]:>12.0f}/s" for s in sides))
    return medians


def main():
    parser = argparse.ArgumentParser(description="measure calls of Python functions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="for each row and round")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--bin", help="where tf-master and tf-worker are; default build/bin")
    parser.add_argument("--json", help="a file for the medians, in seconds")
    options = parser.parse_args()
    rounds = {}
    with Cluster(n_ps=0, n_workers=1, bin_dir=options.bin) as cluster:
        for _ in range(options.rounds):
            for side, found in one_round(cluster.target, options.only, options.seconds):
                rounds.setdefault(side, []).append(found)
    medians = show(rounds)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(medians, file, indent=1)


if __name__ == "__main__":
    main()
