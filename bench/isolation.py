#!/usr/bin/env python3
"""Does a heavy step of one session hold up the small steps of another?

    bench/isolation.py [--rounds N] [--seconds S] [--only TEXT] [--bin DIR] [--json FILE]

One session runs small steps on a worker and notes how long each takes: alone; beside as many idle
loops (other processes) as there are cores, which is what sharing the cores costs anybody; and
beside another session's heavy step on the same worker, of several kinds. All in alternating rounds,
so that the machine's noise falls on each alike. The last column is p99 beside the heavy step ÷ p99
beside the idle loops: at most 2 is the aim, and what is above 1 the cores do not explain."""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))

import numpy as np  # noqa: E402
from cluster import Cluster  # noqa: E402
from programs import WORKER0, tf, tf1  # noqa: E402


def _matmuls():
    x = tf.random.uniform([1000, 1000], seed=1)
    for _ in range(20):
        x = tf.matmul(x, x) * 1e-3
    return x[0, 0]


def _long_loop():
    return tf1.while_loop(lambda i: i < 2_000_000, lambda i: i + 1, [0])


def _wide():
    x = tf.random.uniform([200_000], seed=1)
    return tf.add_n([tf.reduce_sum(tf.exp(x * k)) for k in np.linspace(0, 1, 200)])


def _many_small():
    x = tf.random.uniform([], seed=1)
    return tf.add_n([tf.sin(x + k) for k in range(20_000)])


def _fetched_strings():
    return tf.strings.as_string(tf.range(1_000_000))


HEAVY = {"matrix products": _matmuls, "one long loop": _long_loop, "200 large nodes": _wide,
         "20,000 small nodes": _many_small, "a million strings fetched": _fetched_strings}


def _fed_strings(target):
    """A step that is fed a million strings: the master passes them on, the worker decodes them."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        strings = tf1.placeholder(tf.string, [None])
        count = tf.size(strings)
    session = tf1.Session(target, graph=graph)
    values = np.array([b"%d" % i for i in range(1_000_000)], object)
    return lambda: session.run(count, {strings: values})


FED = {"a million strings fed": _fed_strings}


def _session(target, build):
    graph = tf.Graph()
    with graph.as_default(), tf.device(WORKER0):
        fetch = build()
    session = tf1.Session(target, graph=graph,
                          config=tf1.ConfigProto(
                              graph_options=tf1.GraphOptions(
                                  optimizer_options=tf1.OptimizerOptions(opt_level=-1))))
    session.run(fetch)
    return session.make_callable(fetch)


class Beside:
    """Something that goes on while the small steps run."""

    def __init__(self, run=None, n_idle_loops=0):
        self.run, self.n_idle_loops, self.n_runs = run, n_idle_loops, 0

    def __enter__(self):
        self.loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"])
                      for _ in range(self.n_idle_loops)]
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._go_on)
        self.thread.start()
        return self

    def _go_on(self):
        while self.run and not self.is_over.is_set():
            self.run()
            self.n_runs += 1

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        for process in self.loops:
            process.kill()
            process.wait()


def _small_steps(step, seconds):
    took, until = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < until:
        step()
        took.append(time.perf_counter() - begin)
    return took


def main():
    parser = argparse.ArgumentParser(description="small steps beside heavy ones")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--only", default="", help="heavy steps whose name holds this text")
    parser.add_argument("--bin",
                        help="where tf-master and tf-worker are; default $MILLRACE_BIN or "
                             "build/bin")
    parser.add_argument("--json", help="a report")
    arguments = parser.parse_args()
    report = []
    with Cluster(bin_dir=arguments.bin) as cluster:
        small = _session(cluster.target, lambda: tf.random.uniform([], seed=1) + 1)
        kinds = {"alone": Beside(), "idle loops on all cores": Beside(n_idle_loops=os.cpu_count())}
        kinds.update({name: Beside(_session(cluster.target, build)) for name, build in HEAVY.items()
                      if arguments.only in name})
        kinds.update({name: Beside(build(cluster.target)) for name, build in FED.items()
                      if arguments.only in name})
        took = {name: [] for name in kinds}
        for _ in range(arguments.rounds):
            for name, beside in kinds.items():
                with beside:
                    took[name] += _small_steps(small, arguments.seconds)
    p99 = {name: np.percentile(times, 99) for name, times in took.items()}
    print(f"{'beside':28} {'steps':>8} {'median':>10} {'p99':>10} {'÷ alone':>8} "
          f"{'÷ idle loops':>12}")
    for name, times in took.items():
        median, ratios = np.median(times), (p99[name] / p99["alone"],
                                            p99[name] / p99["idle loops on all cores"])
        print(f"{name:28} {len(times):8} {median * 1e6:7.0f} µs {p99[name] * 1e6:7.0f} µs "
              f"{ratios[0]:8.2f} {ratios[1]:12.2f}")
        report.append({"beside": name, "steps": len(times), "median_s": median, "p99_s": p99[name],
                       "p99_by_idle_loops": ratios[1]})
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=1)
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's client may hang at exit


if __name__ == "__main__":
    main()
