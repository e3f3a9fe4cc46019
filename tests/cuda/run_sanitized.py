#!/usr/bin/env python3
"""Runs the tests of simulated GPUs with daemons, plugin and simulated driver under a sanitizer.

    tests/cuda/run_sanitized.py asan|tsan [--long] [--only SUITE[,SUITE]] [--list]
                                [-- FLAG...]

asan is AddressSanitizer with UBSan and LeakSanitizer. build-asan or build-tsan must be built
(tools/dev build-asan), and so must build, which has the kernels and the tools. MILLRACE_BUILD and
MILLRACE_KERNELS_BUILD name other folders. Without --long each suite runs a sample. FLAGs are given
to each suite in place of its own.
A report of a sanitizer fails the suite even if all its tests pass: a daemon may write it when it
ends. Ends with "N passed, N failed[, N skipped]".
"""
import argparse
import collections
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TIMEOUT_S = {False: 3600, True: 14400}  # by --long
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
SIMULATED = (os.path.join(ROOT, "tools", "dev"), "gpu-sim")

E2E_TESTS = sorted(os.path.basename(path)[:-len(".py")]
                   for path in glob.glob(os.path.join(ROOT, "tests", "e2e", "test_gpu*.py")))
UNIT_TESTS = re.compile(r"gpu|cuda")

# The flags of a usual run, and those of --long. A usual run takes a minute or a few. TensorFlow's
# client takes a good part of the time.
Suite = collections.namedtuple("Suite", "name script n_gpus some many what")
SUITES = [
    Suite("ops", "cuda/run_ops.py", 0, ["--sample", "60"], ["--sample", "600"],
          "kernels against the CPU's"),
    Suite("replays", "cuda/run_ops.py", 0, ["--replays", "--sample", "30"],
          ["--replays", "--sample", "300"], "the same as CUDA graphs"),
    Suite("fused", "cuda/run_fused.py", 0, ["--sample", "60", "--compiled", "2"],
          ["--compiled", "4"], "fused programs"),
    Suite("networks", "cuda/run_networks.py", 0, ["--only", "lstm_attention"], [],
          "published networks"),
    Suite("segments", "cuda/run_segments.py", 0, ["--only", "word2vec"], [],
          "steps that are replayed"),
    Suite("activities", "cuda/run_activities.py", 0, ["--only", "drop:5"], [], "traces"),
    Suite("program", "cuda/run.py", 0, ["--seeds", "1"], ["--seeds", "20"],
          "the simulated device's own tests"),
    Suite("transfers", "cuda/run_transfers.py", 0, [], ["--planted"],
          "copies between memories, and planted bugs"),
    Suite("failures", "cuda/run_failures.py", 0, [], [], "calls that fail, and lost devices"),
    Suite("unit", None, 0, [], [], "the unit tests of the plugin and of plans"),
    Suite("e2e", "e2e/run.py", 0, ["--all", "test_gpu_opening"], ["--all", *E2E_TESTS],
          "daemons and clients"),
    Suite("kernels", "differential/run_kernels.py", 1, ["--sample", "2"], ["--sample", "40"],
          "kernels against TensorFlow's"),
    Suite("cluster", "differential/run_cluster.py", 2, ["--gpus", "--only", "while"], ["--gpus"],
          "programs beside TensorFlow"),
    Suite("wrong", "differential/run_wrong.py", 2, ["--gpus", "--only", "feed"], ["--gpus"],
          "wrong requests"),
    Suite("passes", "differential/run_passes.py", 2, ["--gpus", "--only", "while"], ["--gpus"],
          "optimisations on and off"),
]


def environment(kind, reports):
    """The environment of suites, whose sanitized programs write their reports to a folder."""
    build = os.environ.get("MILLRACE_BUILD", f"build-{kind}")
    path = "log_path=" + os.path.join(reports, "report")
    # The library of the simulated device handles SIGSEGV itself. Uses of a stack after its return
    # are not looked for in daemons: the stacks that this needs are not aligned for AVX-512.
    common = f"handle_segv=0:{path}"
    return {**os.environ, "MILLRACE_BUILD": build,
            "MILLRACE_BIN": os.path.join(ROOT, build, "bin"),
            "MILLRACE_KERNELS_BUILD": os.environ.get("MILLRACE_KERNELS_BUILD", "build"),
            "MILLRACE_E2E": "sanitized",
            "GRAPH_EVAL_GPU": os.path.join(ROOT, build, "kernels", "cuda", "millrace-cuda.so"),
            # tests/run.py says why without __tls_get_addr
            "ASAN_OPTIONS": f"{common}:detect_leaks=1:intercept_tls_get_addr=0",
            "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error=1:{path}",
            "TSAN_OPTIONS": f"{common}:halt_on_error=1:suppressions="
                            + os.path.join(ROOT, "tests", "tsan.supp")}


def run(command, env, timeout_s):
    """(exit status, output)"""
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, timeout=timeout_s, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, errors="replace")
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace") + f"ended after {timeout_s} s\n"


def run_unit_tests(env, timeout_s):
    """The same for the unit tests, of which each program counts as one."""
    build = os.path.join(ROOT, env["MILLRACE_BUILD"])
    tests = json.loads(subprocess.check_output(["meson", "introspect", "--tests", build]))
    chosen = [test for test in tests if UNIT_TESTS.search(test["name"])]
    output, n_failed = "", 0
    for test in chosen:
        status, text = run(test["cmd"], env, timeout_s)
        if status:
            n_failed += 1
            output += f"{test['name']} ends with {status}\n{text}"
    return bool(n_failed), f"{output}{len(chosen) - n_failed} passed, {n_failed} failed\n"


def run_suite(suite, kind, flags, is_long):
    """(passed, failed, skipped) of a suite, whose output is printed if something failed."""
    with tempfile.TemporaryDirectory() as reports:
        env = environment(kind, reports)
        if suite.script:
            command = [*((*SIMULATED, str(suite.n_gpus), "--") if suite.n_gpus else ()), PYTHON,
                       os.path.join(ROOT, "tests", suite.script), *flags]
            status, output = run(command, env, TIMEOUT_S[is_long])
        else:
            status, output = run_unit_tests(env, TIMEOUT_S[is_long])
        found = []
        for path in sorted(glob.glob(os.path.join(reports, "*"))):
            with open(path, encoding="utf-8", errors="replace") as text:
                found.append(text.read())
    counts = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", output, re.M)
    passed, failed, skipped = (int(n or 0) for n in counts[-1]) if counts else (0, 1, 0)
    if status or found:
        failed = max(failed, 1)
    if failed:
        print(output + "".join(found), flush=True)
    return passed, failed, skipped


def main():
    arguments, flags = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, flags = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", nargs="?", choices=("asan", "tsan"))
    parser.add_argument("--long", action="store_true", help="a larger part of each suite")
    parser.add_argument("--only", default=",".join(suite.name for suite in SUITES),
                        help="suites, joined by commas")
    parser.add_argument("--list", action="store_true", help="print the suites and stop")
    options = parser.parse_args(arguments)
    if options.list:
        for suite in SUITES:
            print(f"{suite.name:11} {suite.script or 'unit tests':30} {suite.what}")
        return 0
    wanted = options.only.split(",")
    unknown = set(wanted) - {suite.name for suite in SUITES}
    if unknown or not options.kind:
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}" if unknown else
                     "asan or tsan?")
    total = [0, 0, 0]
    for suite in SUITES:
        if suite.name not in wanted:
            continue
        begin = time.time()
        tally = run_suite(suite, options.kind,
                          flags or (suite.many if options.long else suite.some), options.long)
        total = [sum(pair) for pair in zip(total, tally)]
        print(f"{suite.name:11} {tally[0]:5} passed {tally[1]:4} failed {tally[2]:4} skipped "
              f"{time.time() - begin:7.1f} s   {options.kind}", flush=True)
    print(f"{total[0]} passed, {total[1]} failed" + (f", {total[2]} skipped" * bool(total[2])))
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
