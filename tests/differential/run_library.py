#!/usr/bin/env python3
"""Runs a library's own tests in TensorFlow in process and on a cluster of ours, and prints what
differs.

    run_library.py --python PYTHON [--mode graph|tf1] [--path DIR] [--stubs A,B] PATH...
    tools/dev gpu-sim 1 -- tests/differential/run_library.py --gpus ...

PATH is a test file or a folder of them. PYTHON has the library and a TensorFlow, and runs the tests
with pytest, or with unittest where it has no pytest. DIR is put in front of its module path.
library/library_process.py says what --mode and --stubs do. The cluster is one task of a job
`localhost`, because device names of a session in process name that job. With --gpus the task has
simulated GPUs, so an op without a device is on GPU:0 if it has a kernel there. What the simulated
device finds in the worker counts as failed.

Each file runs once on each side, on a cluster of its own; with --together all files run in one
process on each side, which saves the imports. A process group is killed when none of its tests ends
for --timeout seconds. The test that was running then counts as "hangs", and the rest runs without
it. A test that fails on both sides must fail with the same error line.

A test is evidence if it ran a step that the cluster's master counted, and used no stub. Without one
such test a file is "no evidence". Prints each test that differs and each file without evidence,
then a row of a table. The last line is "N passed, N failed, N skipped": evidence that is equal on
both sides, tests that differ, and tests that are equal and no evidence.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import gpu_differences  # noqa: E402
from cluster import ROOT, Cluster, ClusterError  # noqa: E402

START_TIMEOUT_S = 300  # imports and collection
MAX_HANGS = 5  # the rest of a file with this many tests that hang or crash does not run
ABSENT = {"outcome": "not run", "steps": 0, "stubbed": False, "error": ""}


def test_files(paths):
    for path in paths:
        if os.path.isfile(path):
            yield os.path.abspath(path)
        for folder, _, names in sorted(os.walk(path)):
            for name in sorted(names):
                if name.endswith("_test.py") or name.startswith("test_") and name.endswith(".py"):
                    yield os.path.abspath(os.path.join(folder, name))


# ---- one file on one side ----


def _n_event_bytes(env):
    path = env["LIBRARY_EVENTS"]
    return os.path.getsize(path) if os.path.exists(path) else 0


def run_process(command, env, cwd, log, timeout_s):
    """Runs a command in a process group of its own until it ends, or has told nothing new for
    timeout_s. Its first event may take longer. Returns whether it ended."""
    process = subprocess.Popen(command, env=env, cwd=cwd, stdout=log, stderr=log,
                               stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        seen, limit_s = 0, max(timeout_s, START_TIMEOUT_S)
        deadline = time.monotonic() + limit_s
        while True:
            try:
                process.wait(min(limit_s, 1))
                return True
            except subprocess.TimeoutExpired:
                n_bytes = _n_event_bytes(env)
                if n_bytes != seen:
                    seen, deadline = n_bytes, time.monotonic() + timeout_s
                elif time.monotonic() > deadline:
                    return False
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def read_events(path):
    """The tests that ended, by name, and the one that had begun last and did not end."""
    ended, running = {}, None
    if os.path.exists(path):
        with open(path) as lines:
            for event in map(json.loads, lines):
                if "begun" in event:
                    running = event["begun"]
                else:
                    ended[event["ended"]] = event
                    running = None
    return ended, running


def has_pytest(python):
    done = subprocess.run([python, "-c", "import pytest"], stderr=subprocess.DEVNULL)
    return done.returncode == 0


def side_of(cluster):
    """What tells a test process its side."""
    if cluster is None:
        return {"LIBRARY_TARGET": "", "LIBRARY_ADMIN": ""}
    return {"LIBRARY_TARGET": cluster.target,
            "LIBRARY_ADMIN": f"http://127.0.0.1:{cluster.master.admin_port}"}


def command_for(options, files):
    if not options.pytest:
        return [options.python, "-m", "library_unittest", *files]
    return [options.python, "-m", "pytest", "-q", "--continue-on-collection-errors", "-p",
            "library_plugin", "-p", "no:cacheprovider", f"--import-mode={options.import_mode}",
            *files]


def run_files(options, files, cluster, log):
    """Runs test files in one process on one side. Returns their tests by name."""
    found, hung = {}, []
    while len(hung) < MAX_HANGS:
        with tempfile.TemporaryDirectory(prefix="library-") as folder:
            env = {**os.environ, **side_of(cluster),
                   "LIBRARY_EVENTS": os.path.join(folder, "events"),
                   "LIBRARY_SKIP": json.dumps(list(found)), "LIBRARY_TEST": options.test,
                   "LIBRARY_MODE": options.mode, "LIBRARY_STUBS": options.stubs,
                   "TMPDIR": folder, "TEST_TMPDIR": folder, "TF_CPP_MIN_LOG_LEVEL": "3",
                   "CUDA_VISIBLE_DEVICES": "-1", "PYTHONHASHSEED": "0",
                   "PYTHONPATH": os.pathsep.join([os.path.join(HERE, "library"), *options.path])}
            in_time = run_process(command_for(options, files), env, os.path.dirname(files[0]), log,
                                  options.timeout)
            ended, running = read_events(env["LIBRARY_EVENTS"])
        found.update(ended)
        if running is None:
            if not in_time:
                found[os.path.basename(files[-1])] = {**ABSENT, "outcome": "hangs"}
            break
        hung.append(running)
        found[running] = {**ABSENT, "outcome": "crashes" if in_time else "hangs"}
    return found


# ---- both sides ----


class Tally:
    """What the tests of a library did on both sides."""

    COLUMNS = ("tests", "ran a step", "passed on both", "failed on both alike", "different",
               "no evidence", "used a stub")

    def __init__(self):
        self.counts, self.n_broken = dict.fromkeys(self.COLUMNS, 0), 0

    def add(self, name, theirs, ours):
        """Returns whether the test is evidence."""
        if theirs["outcome"] == ours["outcome"] == "skipped":
            return False
        is_stubbed = theirs["stubbed"] or ours["stubbed"]
        self.counts["tests"] += 1
        self.counts["ran a step"] += ours["steps"] > 0
        if (theirs["outcome"], theirs["error"]) != (ours["outcome"], ours["error"]):
            self.counts["different"] += 1
            print(f"DIFFERS {name}\n    TensorFlow  {theirs['outcome']}  {theirs['error']}\n"
                  f"    Millrace    {ours['outcome']}  {ours['error']}", flush=True)
            return True
        if is_stubbed:
            self.counts["used a stub"] += 1
        elif ours["steps"] == 0:
            self.counts["no evidence"] += 1
        elif ours["outcome"] == "passed":
            self.counts["passed on both"] += 1
        else:
            self.counts["failed on both alike"] += 1
            print(f"alike {name}: {ours['outcome']}  {ours['error']}", flush=True)
        return ours["steps"] > 0 and not is_stubbed

    def add_file(self, file, names, theirs, ours):
        n_before = self.counts["tests"]
        n_evidence = sum(self.add(name, theirs.get(name, ABSENT), ours.get(name, ABSENT))
                         for name in names)
        n_tests = self.counts["tests"] - n_before
        print(f"{file}: {n_tests} tests, evidence {n_evidence}", flush=True)
        if n_evidence or not n_tests:
            return
        print(f"NO EVIDENCE {file}")
        for name in names:
            if theirs.get(name, ABSENT)["outcome"] == "not collected":
                print(f"    {name}: {theirs[name]['error']}", flush=True)

    def print_table(self):
        """Returns the exit status."""
        counts = self.counts
        n_equal = counts["passed on both"] + counts["failed on both alike"]
        n_failed = counts["different"] + self.n_broken
        print("| " + " | ".join(counts) + " |\n| " + " | ".join(map(str, counts.values())) + " |")
        print(f"{n_equal} passed, {n_failed} failed, "
              f"{counts['no evidence'] + counts['used a stub']} skipped")
        return 1 if n_failed or not n_equal else 0


def compare_files(options, files, tally, log):
    theirs, ours = run_files(options, files, None, log), {}
    if all(test["outcome"] == "not collected" for test in theirs.values()):
        ours = theirs  # no test to run
    try:
        with Cluster(jobs={"localhost": 1},
                     worker_flags=["--gpu=require"] if options.gpus else ()) as cluster:
            ours = ours or run_files(options, files, cluster, log)
            cluster.check()
    except ClusterError as error:
        tally.n_broken += 1
        print(f"CLUSTER {' '.join(files)}: {error}", flush=True)
    if found := options.report and options.report.take():
        tally.n_broken += 1
        print(f"DEVICE {' '.join(files)}: {found}", flush=True)
    by_file = {}
    for name in {**theirs, **ours}:
        by_file.setdefault(name.split("::")[0], []).append(name)
    for file, names in by_file.items():
        tally.add_file(file, names, theirs, ours)


def compare_library(options, log):
    tally = Tally()
    files = [path for path in test_files(options.paths) if options.only in path]
    for group in [files] if options.together and files else [[path] for path in files]:
        compare_files(options, group, tally, log)
    return tally.print_table()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH")
    parser.add_argument("--python", default=os.path.join(ROOT, ".venv", "bin", "python"))
    parser.add_argument("--mode", default="", choices=["graph", "tf1"])
    parser.add_argument("--stubs", default="", help="modules that need not exist")
    parser.add_argument("--path", action="append", default=[], help="a folder of modules")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a test")
    parser.add_argument("--together", action="store_true", help="all files in one process")
    parser.add_argument("--only", default="", help="files with this text in their path")
    parser.add_argument("--test", default="", help="tests with this text in their name")
    parser.add_argument("--gpus", action="store_true",
                        help="the task has GPUs: run it under tools/dev gpu-sim N --")
    parser.add_argument("--import-mode", default="importlib", help="pytest's")
    parser.add_argument("--log", default=os.devnull, help="what the test processes print")
    options = parser.parse_args()
    options.path = [os.path.abspath(folder) for folder in options.path]
    options.pytest = has_pytest(options.python)
    with contextlib.ExitStack() as stack:
        options.report = (stack.enter_context(gpu_differences.DeviceReport()) if options.gpus
                          else None)
        return compare_library(options, stack.enter_context(open(options.log, "ab")))


if __name__ == "__main__":
    sys.exit(main())
