#!/usr/bin/env python3
"""Cancels kernels that run long (long_kernels.py) with their first question whether the result is
still wanted, in the evaluator (oracle.py), without daemons.

    run_cancel.py [--long | --all] [--only TEXT] [--eval PATH]

Each case runs twice: to its end, and cancelled. A kernel passes if it asks soon after it began and
then ends: the cancelled run takes less than a third of the whole run's time, and between two
questions of the whole run passes less than a third of it. Times are those of the kernel's thread
on its core, which the machine's load does not change. A kernel that waits for a call on another
thread (StaticRegexFullMatch) must abandon it. A case whose kernel takes less than MIN_MS says
nothing and is skipped. Without --long a part of the cases that are known to stop. The last line is
"N passed, N failed, N skipped"."""

import argparse
import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import long_kernels  # noqa: E402
import tensorflow as tf  # noqa: E402
from run_kernels import default_evaluator  # noqa: E402

MIN_MS = 40
MIN_WAITS = 6
MOST_SHARE = 1 / 3
TRIES = 3  # of a case: fresh memory may take as long as all the rest, once
LIMIT_S = 300


def request(graphdef, target):
    """graph_eval's, for one step with one target."""
    def text(data):
        return struct.pack("<I", len(data)) + data

    body = text(graphdef) + struct.pack("<IIII", 1, 0, 0, 1) + text(target.encode())
    return text(body)


def run(evaluator, graphdef, target, op, cancels, timeout=LIMIT_S, **options):
    """Of the op's longest execution: how often it asked, the longest time without a question in ms,
    all its time in ms. None: it did not run. `options` are those of subprocess.run."""
    environment = {**os.environ, "GRAPH_EVAL_POLLS": op, "OPENBLAS_NUM_THREADS": "1"}
    if cancels:
        environment["GRAPH_EVAL_CANCEL"] = "1"
    done = subprocess.run([evaluator], input=request(graphdef, target), env=environment,
                          capture_output=True, timeout=timeout, check=True, **options)
    rows = [line.split() for line in done.stderr.decode().splitlines()
            if line.startswith("polls ")]
    found = [(int(row[3]), int(row[5]) / 1e6, int(row[7]) / 1e6) for row in rows]
    return max(found, key=lambda row: row[2], default=None)


def check_abandoned(evaluator, graphdef, target, op, n_asked):
    """Of a kernel that does little itself: it waits for a call on another thread, and asks every
    few milliseconds whether to abandon that call. One that has asked often must end with the first
    questions that say so, while the call has most of its work before it."""
    if n_asked < MIN_WAITS:
        return None
    n_more, _, _ = run(evaluator, graphdef, target, op, True)
    return "" if n_more <= MOST_SHARE * MIN_WAITS else (
        f"asks {n_more} times after it was cancelled, and {n_asked} times in a whole run")


def check(evaluator, build, op):
    """What is wrong, "" if nothing is, or None: the case says nothing."""
    graph = tf.Graph()
    with graph.as_default():
        made = build()
    target = made.op if isinstance(made, tf.Tensor) else made[0].op
    graphdef = graph.as_graph_def().SerializeToString()
    whole = run(evaluator, graphdef, target.name, op, False)
    if not whole:
        return f"no kernel of {op} has run"
    n_asked, longest_ms, all_ms = whole
    if all_ms < MIN_MS:
        return check_abandoned(evaluator, graphdef, target.name, op, n_asked)
    if longest_ms > MOST_SHARE * all_ms:
        return f"asks {n_asked} times in {all_ms:.0f} ms, but not for {longest_ms:.0f} ms"
    _, _, cancelled_ms = run(evaluator, graphdef, target.name, op, True)
    if cancelled_ms > MOST_SHARE * all_ms:
        return f"takes {cancelled_ms:.0f} of {all_ms:.0f} ms after it was cancelled"
    return ""


def main():
    parser = argparse.ArgumentParser(description="kernels that run long, cancelled")
    parser.add_argument("--long", action="store_true", help="all cases that are known to stop")
    parser.add_argument("--all", action="store_true", help="all cases")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--eval", default=default_evaluator(), help="graph_eval")
    arguments = parser.parse_args()
    n = {"passed": 0, "failed": 0, "skipped": 0}
    for name, build in long_kernels.CASES.items():
        known = long_kernels.STOP if arguments.long else long_kernels.SAMPLE
        if arguments.only not in name or not (arguments.all or name in known):
            continue
        for _ in range(TRIES):
            wrong = check(arguments.eval, build, name.split("/")[0])
            if not wrong:
                break
        n["skipped" if wrong is None else "failed" if wrong else "passed"] += 1
        if wrong:
            print(f"FAIL {name}: {wrong}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in n.items()))
    sys.exit(1 if n["failed"] else 0)


if __name__ == "__main__":
    main()
