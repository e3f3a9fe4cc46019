#!/usr/bin/env python3
"""Traces training steps on the simulated GPU, whose simulated CUPTI has faults (docs/gpu.md,
"Traces").

    tests/cuda/run_activities.py [--long] [--only TEXT] [--seed N] [--list]

The rows of `cuda_steps PLUGIN activities` are compared with those of a run that takes times by
events: whatever CUPTI does, each node has the same rows on stream:all. Without faults each node has
its kernels, too, and steps are replayed as CUDA graphs while they are traced. Ends with "N passed,
N failed[, N skipped]".
"""
import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile

import run_failures

SIM = os.path.join(run_failures.BUILD, "tests", "cuda", "sim")
TIMEOUT_S = 300
NOT_REPLAYED = "0 replays"
PRIVILEGES, BUSY = 35, 39  # CUPTI's own numbers: not permitted; another profiler is attached
UNKNOWN_VERSION = 150000

Row = collections.namedtuple("Row", "node stream activity start_ns end_ns is_wrong")


class Step:
    def __init__(self, title):
        self.title, self.rows = title, []

    def nodes(self):
        """How often each node is on stream:all."""
        return collections.Counter(row.node for row in self.rows if row.stream == "stream:all")

    def activities(self):
        return [row for row in self.rows if row.stream != "stream:all"]


def steps_of(output):
    steps = []
    for line in output.splitlines():
        if line.startswith("step of "):
            steps.append(Step(line))
        found = re.match(r"row (\S+) (\S+) (\S+) (-?\d+) (-?\d+)( wrong)?$", line)
        if found:
            steps[-1].rows.append(Row(found[1], found[2], found[3], int(found[4]), int(found[5]),
                                      found[6] is not None))
    return steps


def run(mode, trace, faults, seed, library=None):
    """The output, and what is wrong with the run in itself."""
    with tempfile.NamedTemporaryFile() as report:
        env = {**run_failures.environment(None, report.name, seed), "MILLRACE_STEPS_TRACE": trace,
               "MILLRACE_SIM_CUPTI": faults}
        if library:
            env["LD_LIBRARY_PATH"] = library
        try:
            done = subprocess.run([run_failures.PROGRAM, run_failures.PLUGIN, mode], env=env,
                                  timeout=TIMEOUT_S, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired as late:
            return (late.stdout or b"").decode(errors="replace"), "it does not end"
        reports = report.read().decode(errors="replace")
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        return output, f"it ends with {done.returncode}"
    if reports:
        return output, f"the simulated device reports: {reports}"
    if "did not end well: 0" not in output:
        return output, "a program does not end well"
    if output.count("in use: 0") != 2:
        return output, "memory is lost"
    return output, None


def described(output):
    return re.search(r"^described: (.*)$", output, re.M)[1]


def rows_problem(steps, expected):
    """Whatever CUPTI does, the nodes are those of a run by events, with times that can be."""
    if len(steps) != len(expected) or not steps:
        return f"{len(steps)} traced steps, not {len(expected)}"
    for step, other in zip(steps, expected):
        if step.nodes() != other.nodes():
            return f"{step.title}: other nodes: {step.nodes() - other.nodes()}, " \
                   f"without {other.nodes() - step.nodes()}"
        if any(row.is_wrong for row in step.rows):
            return f"{step.title}: a row has wrong times"
    return None


def complete_problem(steps):
    """Nothing is lost: each node has its kernels, in their order, and steps are replayed."""
    for step in steps:
        nodes = {row.node for row in step.rows if row.stream == "stream:all"}
        known = {row.node for row in step.activities()}
        if known != nodes:
            return f"{step.title}: no activities of {nodes - known}"
        ends = 0
        for row in sorted(step.activities(), key=lambda row: row.start_ns):
            if row.start_ns < ends:
                return f"{step.title}: {row.node} begins before the kernel in front of it ends"
            ends = row.end_ns
    if all(NOT_REPLAYED in step.title for step in steps):
        return "traced steps are not replayed"
    names = {(row.node, row.activity) for step in steps for row in step.activities()}
    if not any(node == "h2" and "relu" in name for node, name in names):
        return f"no relu among {sorted(names)}"
    return None


def lossy_problem(steps, all_steps, share):
    """Of the activities of a run without faults about this share is known, in the right places."""
    known = sum(len(step.activities()) for step in steps)
    whole = sum(len(step.activities()) for step in all_steps)
    names = collections.defaultdict(set)
    for step in all_steps:
        for row in step.activities():
            names[row.node].add(row.activity)
    for step in steps:
        for row in step.activities():
            if row.activity not in names[row.node]:
                return f"{step.title}: {row.node} has the kernel {row.activity}"
    low, high = share
    if not low * whole <= known <= high * whole:
        return f"{known} of {whole} activities are known"
    return None


# The faults, and the share of the activities that is known in spite of them.
LOSSES = {"shuffle": (1, 1), "unknown": (1, 1), "shuffle,unknown": (1, 1), "anonymous": (1, 1),
          "drop:3": (0.6, 0.72), "drop:50": (0.9, 0.99), "drop:50,anonymous": (0.8, 0.99),
          "drop:1": (0, 0), "alien": (0, 0.9), "late": (0, 0), "keep": (0, 0), "zero": (0, 0),
          "wild": (0, 0)}
# CUPTI cannot be used: what /statusz says.
REFUSALS = {f"version:{UNKNOWN_VERSION}": f"its version {UNKNOWN_VERSION} is unknown",
            f"refuse:{PRIVILEGES}": "cuptiActivityEnable failed with CUPTI status 35",
            f"refuse:{BUSY}": "cuptiActivityEnable failed with CUPTI status 39"}


class Suite:
    def __init__(self, seed):
        self.seed = seed
        self.kept = {}

    def steps(self, trace):
        """Those without faults."""
        if trace not in self.kept:
            output, problem = run("activities", trace, "", self.seed)
            if problem:
                raise RuntimeError(f"{problem}\n{output}")
            self.kept[trace] = steps_of(output), output
        return self.kept[trace][0]

    def events(self):
        steps = self.steps("events")
        if any(step.activities() for step in steps):
            return "there are activities"
        if any(NOT_REPLAYED not in step.title for step in steps):
            return "a step is replayed"
        return None if "CUPTI" not in described(self.kept["events"][1]) else "CUPTI is described"

    def complete(self):
        steps = self.steps("auto")
        problem = rows_problem(steps, self.steps("events")) or complete_problem(steps)
        if not problem and "call cuEventElapsedTime 0" not in self.kept["auto"][1]:
            problem = "events are asked for times"
        if not problem and "times of traced steps by CUPTI" not in described(self.kept["auto"][1]):
            problem = "it is not described"
        return problem

    def left_out(self):
        """Convolutions that no graph has are enqueued between graphs."""
        output, problem = run("activities left out", "auto", "", self.seed)
        steps = steps_of(output)
        problem = problem or rows_problem(steps, self.steps("events")) or complete_problem(steps)
        if not problem and "a segment is not replayed: cudnnBackendExecute" not in output:
            problem = "the convolutions are in graphs"
        kernels = {(row.node, row.activity) for step in steps for row in step.activities()}
        if not problem and not {("c", "library"), ("df", "library")} <= kernels:
            problem = "the convolutions themselves are not among the kernels"
        return f"{problem}\n{output}" if problem else None

    def clock(self):
        """Work that the device began after a moment has times after that moment."""
        return run("traced", "auto", "", self.seed)[1]

    def at_once(self):
        """Traces of several threads: each has its own rows, whatever is lost."""
        for faults in ("", "drop:3", "shuffle,unknown", "late"):
            output, problem = run("activities at once", "auto", faults, self.seed)
            if problem or len(set(re.findall(r"^at once: ok, (\d+) rows$", output, re.M))) != 1:
                return f"{problem or 'rows differ'} ({faults})\n{output}"
        return None

    def loss(self, faults):
        output, problem = run("activities", "auto", faults, self.seed)
        steps = steps_of(output)
        problem = problem or rows_problem(steps, self.steps("events")) or \
            lossy_problem(steps, self.steps("auto"), LOSSES[faults])
        return f"{problem}\n{output}" if problem else None

    def refusal(self, faults, words, library=None):
        output, problem = run("activities", "auto", faults, self.seed, library)
        steps = steps_of(output)
        problem = problem or rows_problem(steps, self.steps("events"))
        if not problem and any(step.activities() for step in steps):
            problem = "there are activities"
        if not problem and words not in described(output):
            problem = f"it is not described: {described(output)}"
        if not problem and output.count("times of traced steps are taken by events") != 1:
            problem = "the log does not say so once"
        return f"{problem}\n{output}" if problem else None

    def missing(self):
        """The driver is there, and CUPTI is not, or it is NVIDIA's, which does without the
        simulated driver."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libcuda.so.1", "sim_device"):
                os.symlink(os.path.join(SIM, name), os.path.join(folder, name))
            return self.refusal("", "because CUPTI cannot be used: ", folder)

    def lost(self):
        output, problem = run("lost activities", "auto", "", self.seed)
        if "lost: " not in output or output.count("cpu: ok") != 2:
            return f"the loss is not told\n{output}"
        return None if problem == "a program does not end well" or not problem else \
            f"{problem}\n{output}"

    def cases(self):
        yield "events", self.events
        yield "complete", self.complete
        yield "left out", self.left_out
        yield "clock", self.clock
        yield "at once", self.at_once
        yield "missing", self.missing
        yield "lost", self.lost
        for faults in LOSSES:
            yield faults, lambda faults=faults: self.loss(faults)
        for faults, words in REFUSALS.items():
            yield faults, lambda faults=faults, words=words: self.refusal(faults, words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="with more seeds")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    options = parser.parse_args()
    n_passed = n_failed = 0
    for seed in range(options.seed, options.seed + (8 if options.long else 1)):
        for name, case in Suite(seed).cases():
            if options.only not in name:
                continue
            if options.list:
                print(name)
                continue
            problem = case()
            n_passed += not problem
            n_failed += bool(problem)
            if problem:
                print(f"FAIL {name} (seed {seed}): {problem}", flush=True)
    print(f"{n_passed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
