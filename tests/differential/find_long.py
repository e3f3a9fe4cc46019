#!/usr/bin/env python3
"""Searches for kernels that compute long without asking whether their result is still wanted: the
kernels' cases (cases_*.py) with enlarged inputs, in the evaluator (oracle.py), without daemons.

    find_long.py [FAMILY...] [--only TEXT] [--elements N] [--cases N] [--eval PATH]

Of each op the first cases are run, several times each: with every constant repeated along its
first or its last dimension until it has about N elements, and with the first constant alone. What
the op refuses says nothing. A line for each op that did not ask for GAP_MS or more, with the
longest such time of its cases. What is found belongs into long_kernels.py once it is mended."""

import argparse
import glob
import importlib
import os
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import oracle  # noqa: E402
import run_cancel  # noqa: E402
import tensorflow as tf  # noqa: E402
from run_kernels import default_evaluator  # noqa: E402

GAP_MS = 10
LIMIT_S = 30
MEMORY_BYTES = 10 << 30
FIRST, LAST = 0, -1
WAYS = [(None, FIRST), (None, LAST), (0, FIRST)]  # which constant (None: all), and where


class Enlarger:
    """Takes the place of oracle.const."""

    def __init__(self, n_elements):
        self.n_elements, self.way, self.n_made = n_elements, None, 0

    def const(self, value, dtype=None, name=None):
        tensor = tf.constant(value, dtype=dtype, name=name)
        number, self.n_made = self.n_made, self.n_made + 1
        which, axis = self.way
        if not tensor.shape.rank or not tensor.shape.num_elements() or which not in (None, number):
            return tensor
        multiples = [1] * tensor.shape.rank
        multiples[axis] = max(1, self.n_elements // tensor.shape.num_elements())
        return tf.tile(tensor, multiples)


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def measure(evaluator, build, op):
    """Questions, the longest time without one and the whole time, as run_cancel.run; None: the op
    did not run."""
    graph = tf.Graph()
    try:
        with graph.as_default():
            steps = build()
            if isinstance(steps[0], oracle.Step):
                steps = [fetch for step in steps for fetch in [*step.fetches, *step.targets]]
            target = tf.group(*steps)
        return run_cancel.run(evaluator, graph.as_graph_def().SerializeToString(), target.name, op,
                              False, timeout=LIMIT_S, preexec_fn=limit_memory)
    except (ValueError, TypeError, tf.errors.OpError, subprocess.SubprocessError):
        return None  # TensorFlow's client or the evaluator refuses it


def search(family, enlarger, arguments):
    module = importlib.import_module(family)
    if hasattr(module, "const"):
        module.const = enlarger.const
    n_run, worst = {}, {}
    for name, build, *_ in module.cases():
        op = name.split("/")[0]
        if arguments.only not in name or n_run.get(op, 0) >= arguments.cases:
            continue
        n_run[op] = n_run.get(op, 0) + 1
        for way in WAYS:
            enlarger.way, enlarger.n_made = way, 0
            found = measure(arguments.eval, build, op)
            if found and found[1] > worst.get(op, (0, GAP_MS))[1]:
                worst[op] = (*found, name)
    for op, found in sorted(worst.items(), key=lambda row: -row[1][1]):
        n_asked, longest_ms, all_ms, name = found
        print(f"{op:36} {longest_ms:8.1f} of {all_ms:8.1f} ms, asked {n_asked:6}: {name}",
              flush=True)
    print(f"{family}: {len(n_run)} ops, {len(worst)} that do not ask for {GAP_MS} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description="kernels that do not ask")
    parser.add_argument("families", nargs="*", help="cases_array ...; default all")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--elements", type=int, default=1 << 23)
    parser.add_argument("--cases", type=int, default=2, help="of each op")
    parser.add_argument("--eval", default=default_evaluator(), help="graph_eval")
    arguments = parser.parse_args()
    enlarger = Enlarger(arguments.elements)
    oracle.const = enlarger.const
    for family in arguments.families or sorted(
        os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "cases_*.py"))):
        search(family, enlarger, arguments)


if __name__ == "__main__":
    main()
