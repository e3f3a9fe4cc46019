#!/usr/bin/env python3
"""Our kernels against TensorFlow's, one op at a time, on one thread and on two, in one run.

    .venv/bin/python bench/kernels.py [FAMILY...] [--threads 1,2] [--only TEXT] [--rounds N] [--json
    FILE]

Rows stand in bench/kernel_rows/FAMILY.py: a function rows() that yields Row(name, build[, reason]);
build makes the op in a fresh tf.Graph from constants and returns one of its outputs. Each row is
timed in alternating rounds: the kernel alone in build/bench/kernel_time, and TensorFlow's in a
session whose graph runs the op many times, one after the other (less what an empty run takes). A
figure is the least mean over a batch of runs; the ratio is TensorFlow ÷ Millrace. A row below 0.7
must say why (`reason`); without one the run fails. TensorFlow runs as it comes: with oneDNN, but
with its graph rewriting off.
"""
import argparse
import glob
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TIMER = os.environ.get("KERNEL_TIME", os.path.join(ROOT, "build", "bench", "kernel_time"))
LEAST_RATIO = 0.7
ROUND_MS = 100
BATCH_MS = 8  # short, so that some run undisturbed on a busy machine


@dataclass
class Row:
    name: str
    build: object  # () -> a tensor, in the default graph
    reason: str = ""  # why the row may be below LEAST_RATIO


def time_ours(path, node, threads):
    done = subprocess.run([TIMER, path, node, str(threads), str(ROUND_MS)], stdout=subprocess.PIPE,
                          text=True, check=True)
    return float(done.stdout) / 1e3


class TensorFlowTimer:
    """Sessions over the same graph with the op n times, each after the one before, and over an
    empty one."""

    def __init__(self, tf, row, threads):
        self.tf, self.row = tf, row
        self.config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads,
                                               inter_op_parallelism_threads=1)
        self.config.graph_options.optimizer_options.opt_level = -1
        self.config.graph_options.rewrite_options.disable_meta_optimizer = True
        self.n = 1
        self._make()
        once = self._run()
        self.n = max(1, min(200, int(BATCH_MS * 1e3 / max(once, 1))))
        self._make()

    def _make(self):
        tf, graph = self.tf, self.tf.Graph()
        with graph.as_default():
            first = self.row.build().op
            last, nothing = first, tf.no_op()
            for _ in range(self.n - 1):
                with tf.control_dependencies([last]):
                    last = graph.create_op(first.type, list(first.inputs),
                                           [t.dtype for t in first.outputs],
                                           attrs=first.node_def.attr)
            self.node, self.graph_def = first.name, graph.as_graph_def()
            self.session = tf.compat.v1.Session(graph=graph, config=self.config)
            self.call = self.session.make_callable(last)
            self.empty = self.session.make_callable(nothing)
            self.call()

    def _least(self, call, times):
        best = math.inf
        for _ in range(times):
            began = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - began)
        return best * 1e6

    def _run(self, times=3):
        return (self._least(self.call, times) - self._least(self.empty, max(times, 5))) / self.n

    def round(self):
        return max(self._run(ROUND_MS // BATCH_MS), 0.1)


def measure(tf, row, threads, rounds):
    timer = TensorFlowTimer(tf, row, threads)
    with tempfile.NamedTemporaryFile(suffix=".pb") as file:
        file.write(timer.graph_def.SerializeToString())
        file.flush()
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(time_ours(file.name, timer.node, threads))
            theirs.append(timer.round())
    timer.session.close()
    return min(ours), min(theirs)


def run_threads(arguments, threads):
    """In a process of its own: TensorFlow makes its threads once."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    results = []
    for family in arguments.families:
        for row in importlib.import_module(f"kernel_rows.{family}").rows():
            if arguments.only and arguments.only not in row.name:
                continue
            ours, theirs = measure(tf, row, threads, arguments.rounds)
            ratio = theirs / ours
            verdict = "" if ratio >= LEAST_RATIO else f"  {row.reason or 'NO REASON GIVEN'}"
            print(f"{row.name:58} {threads} thread{'s' if threads > 1 else ' '} {ours:11.1f} "
                  f"{theirs:11.1f} {ratio:7.2f}{verdict}", flush=True)
            results.append({"row": row.name, "threads": threads, "ours_us": ours,
                            "theirs_us": theirs, "ratio": ratio, "reason": row.reason})
    return results


def main():
    parser = argparse.ArgumentParser(description="our kernels against TensorFlow's")
    parser.add_argument("families", nargs="*", help="of bench/kernel_rows; default all")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", help="rows whose name holds this text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    sys.path.insert(0, HERE)
    sys.modules["kernels"] = sys.modules[__name__]  # rows import Row from here
    arguments.families = arguments.families or sorted(
        os.path.basename(p)[:-3] for p in glob.glob(os.path.join(HERE, "kernel_rows", "*.py")))
    if arguments.child:
        results = run_threads(arguments, int(arguments.threads))
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file)
        os._exit(0)
    print(f"{'row':58} {'':9} {'ours µs':>11} {'TF µs':>11} {'ratio':>7}")
    results = []
    for threads in arguments.threads.split(","):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, __file__, *arguments.families, "--child", "--threads",
                       threads, "--rounds", str(arguments.rounds), "--json", file.name]
            subprocess.run(command + (["--only", arguments.only] if arguments.only else []),
                           check=True, stderr=subprocess.DEVNULL)
            results += json.load(file)
    ratios = [r["ratio"] for r in results]
    low = [r for r in results if r["ratio"] < LEAST_RATIO]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{len(ratios)} figures, geometric mean {mean:.2f}, least {min(ratios):.2f}, "
              f"{len(low)} below {LEAST_RATIO}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    sys.exit(1 if not ratios or any(not r["reason"] for r in low) else 0)


if __name__ == "__main__":
    main()
