#!/usr/bin/env python3
"""Runs the suites, two at a time, and ends with "N passed, N failed[, N skipped]".

    tests/run.py [--long] [--only SUITE[,SUITE]] [--must-run SUITE[,SUITE]] [--jobs N] [--list]

A suite is a row in SUITES: a name, a function that returns how many tests passed, failed and were
skipped, and what the suite covers. Without --long, suites that take long run a seeded sample of
their tests. Most suites wait for their daemons half of the time, so two fill two cores. Each suite
is a process of its own with a folder for its temporary files, which goes when the suite ends; then
its output is printed.
"""
import argparse
import concurrent.futures
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = os.path.join(ROOT, ".venv", "bin", "python")
TIMEOUT_S = 600


class Tally:
    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


def counts_of(output):
    """The tally of a closing line; None where the output has none."""
    counts = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", output, re.M)
    return Tally(*(int(n or 0) for n in counts[-1])) if counts else None


def run(command, timeout_s=TIMEOUT_S, env=None):
    """Runs a command. Returns (exit status, output); a command that exceeds timeout_s is killed and
    counts as failed."""
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=timeout_s,
                              env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as e:
        return 124, (e.stdout or b"").decode(errors="replace") + f"\n*** ended after {timeout_s} s"


def show_failure(name, output):
    lines = output.splitlines()
    failures = [line for line in lines[:-60] if line.startswith(("FAIL", "[  FAILED  ]", "not ok"))]
    print(f"--- {name} failed; its failures, and the end of its output:")
    print("\n".join(failures[:40] + lines[-60:]), flush=True)


def tally_cmocka(name, status, output):
    """Counts the tests of one program: cmocka prints one closing line for each group."""
    passed = sum(int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) test", output, re.M))
    failed = sum(int(n) for n in re.findall(r"^\[  FAILED  \] (\d+) test", output, re.M))
    skipped = sum(int(n) for n in re.findall(r"^\[  SKIPPED \] (\d+) test", output, re.M))
    if "[==========]" not in output:  # not a cmocka program: its exit status is its result
        passed, failed = int(status == 0), int(status != 0)
    elif status != 0 or passed + skipped == 0:
        failed = max(failed, 1)
    if failed:
        show_failure(name, output)
    return Tally(passed, failed, skipped)


def meson_tests(build_dir, wanted=lambda name: True):
    listing = subprocess.run(["meson", "introspect", "--tests", build_dir], cwd=ROOT,
                             stdout=subprocess.PIPE, check=True).stdout
    return [(t["name"], t["cmd"]) for t in json.loads(listing) if wanted(t["name"])]


def run_unit_tests(build_dir, env=None, wanted=lambda name: True):
    total = Tally()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        futures = {name: pool.submit(run, command, TIMEOUT_S, env) for name,
                   command in meson_tests(build_dir, wanted)}
        for name, future in futures.items():
            total.add(tally_cmocka(name, *future.result()))
    return total


def build(directory):
    status, output = run(["tools/dev", directory], 3600)
    if status != 0:
        show_failure(f"tools/dev {directory}", output)
    return status == 0


def suite_check(options):
    status, output = run(["/usr/bin/python3", "tools/check.py"])
    if status != 0:
        show_failure("tools/check.py", output)
    return counts_of(output) or Tally(0, 1)


def long_environment(options):
    """Tells test_worker_cancel at how many points to cancel, test_emit_division by how many numbers
    to divide all floats, test_emit_functions and test_fast_loops of how many floats: a sample, or
    all."""
    return {"MILLRACE_CANCEL_POINTS": "10000", "MILLRACE_DIVISIONS": "all",
            "MILLRACE_FUNCTIONS": "all"} if options.long else {}


def suite_unit(options):
    return run_unit_tests("build", long_environment(options))


# Leaks are looked for without what the run-time library learns of libraries' thread-local data: gcc
# 12's takes some of it to lie elsewhere, and then ends by "Tracer caught signal 11".
ASAN_OPTIONS = "detect_leaks=1:intercept_tls_get_addr=0"


def suite_asan(options):
    if not build("build-asan"):
        return Tally(0, 1)
    return run_unit_tests("build-asan", {"ASAN_OPTIONS": ASAN_OPTIONS,
                                         "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
                                         **long_environment(options)})


TSAN_TESTS = ("kernels_queue", "pool", "executor", "executor_loops", "executor_references",
              "worker_wake", "cancel", "partial", "worker_function", "worker_service",
              "worker_service_steps", "session_state", "rendezvous", "rendezvous_credit",
              "peer_rdma", "peer_rdma_faults", "wire", "container", "loop", "status", "wire_local",
              "grpc_inproc", "client_c_api", "sessions_threads")


def suite_tsan(options):
    if not build("build-tsan"):
        return Tally(0, 1)
    env = {"TSAN_OPTIONS": "halt_on_error=1:suppressions="
           + os.path.join(ROOT, "tests", "tsan.supp")}
    tally = run_unit_tests("build-tsan", env,
                           lambda name: any(name.endswith(t) for t in TSAN_TESTS))
    tally.add(run_python_suite("tests/e2e/run.py", options, arguments=["test_crowd"],
                               env={**env, "MILLRACE_BIN": os.path.join(ROOT, "build-tsan", "bin"),
                                    "MILLRACE_E2E": "sanitized"}))
    return tally


def run_python_suite(script, options, timeout_s=3600, env=None, arguments=(), prefix=()):
    """A Python program whose last line is "N passed, N failed[, N skipped]"."""
    command = [*prefix, PYTHON, script, *arguments] + (["--long"] if options.long else [])
    status, output = run(command, timeout_s, env)
    tally = counts_of(output)
    if tally is None:
        show_failure(script, output)
        return Tally(0, 1)
    if tally.failed or status != 0:
        show_failure(script, output)
        tally.failed = max(tally.failed, 1)
    return tally


def suite_kernels(options):
    compared = run_python_suite("tests/differential/run_kernels.py", options)
    compared.add(run_python_suite("tests/differential/run_reasons.py", options))
    compared.add(run_python_suite("tests/differential/vary_kernels.py", options, 7200,
                                  arguments=["all"]))
    compared.add(run_python_suite("tests/differential/run_cancel.py", options))
    return compared


def suite_shapes(options):
    return run_python_suite("tests/differential/run_shapes.py", options)


def suite_checkpoints(options):
    return run_python_suite("tests/differential/run_checkpoints.py", options)


def suite_docs(options):
    return run_python_suite("tests/docs/run.py", options)


# What the C client asks of TensorFlow's own servers; all of it with --long.
CLIENT_AT_TENSORFLOW = ("test_session", "test_run_async", "test_control_flow_gradients",
                        "TestLbfgs", "TestOptimizers", "TestSyncReplicas")


def suite_client(options):
    tally = run_python_suite("tests/client/run.py", options)
    tally.add(run_python_suite("tests/client/run.py", options,
                               arguments=() if options.long else CLIENT_AT_TENSORFLOW,
                               env={"MILLRACE_SERVER": "tensorflow"}))
    tally.add(run_python_suite("tests/client/sweep_gradients.py", options, 7200))
    tally.add(run_python_suite("tests/client/random_graphs.py", options))
    return tally


def suite_cluster(options):
    compared = run_python_suite("tests/differential/run_cluster.py", options)
    compared.add(run_python_suite("tests/differential/test_run_library.py",
                                  argparse.Namespace(long=False)))
    return compared


def suite_wrong(options):
    return run_python_suite("tests/differential/run_wrong.py", options)


def suite_passes(options):
    return run_python_suite("tests/differential/run_passes.py", options, 7200)


def suite_e2e(options):
    return run_python_suite("tests/e2e/run.py", options)


def suite_e2e_asan(options):
    if not build("build-asan"):
        return Tally(0, 1)
    return run_python_suite("tests/e2e/run.py", options,
                            env={"MILLRACE_BIN": os.path.join(ROOT, "build-asan", "bin"),
                                 "MILLRACE_KERNELS_BUILD": os.environ.get("MILLRACE_BUILD",
                                                                          "build"),
                                 "MILLRACE_E2E": "sanitized",
                                 "ASAN_OPTIONS": ASAN_OPTIONS,
                                 "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"})


def run_seeds(n):
    """Runs n seeds of the simulator. Returns (exit status, output, runs that passed, runs that
    failed)."""
    status, output = run(["build/tests/sim/cluster_sim", "--seeds", str(n), "--jobs",
                          str(os.cpu_count())], 3600)
    counts = re.findall(r"^(\d+) runs, .*: (\d+) failed$", output, re.M)
    n_runs, n_failed = map(int, counts[-1]) if counts else (0, 1)
    return status, output, n_runs - n_failed if counts else 0, n_failed


def suite_sim(options):
    status, output, passed, failed = run_seeds(1000 if options.long else 100)
    if failed or status != 0:
        show_failure("cluster_sim", output)
        failed = max(failed, 1)
    tally = Tally(passed, failed)
    if not options.long:
        return tally
    status, output = run(["/usr/bin/python3", "tests/sim/planted.py"], 7200)
    print(output, end="", flush=True)
    tally.add(counts_of(output) or Tally(0, 1))
    return tally


def suite_cuda(options):
    tally = run_python_suite("tests/cuda/run.py", options)
    tally.add(run_python_suite("tests/cuda/run_failures.py", options, 14400))
    tally.add(run_python_suite("tests/cuda/run_transfers.py", options, 14400))
    return tally


# The suites of tests/cuda/run_sanitized.py that run without --long.
GPU_SANITIZED = ("ops", "replays", "fused", "networks", "segments", "activities", "unit")


def gpu_sanitized(options):
    """Tests of simulated GPUs under AddressSanitizer with UBSan, and under ThreadSanitizer."""
    tally = Tally()
    for kind in ("asan", "tsan"):
        if not build("build-" + kind):
            tally.failed += 1
            continue
        env = {"MILLRACE_BUILD": "build-" + kind,
               "MILLRACE_KERNELS_BUILD": os.environ.get("MILLRACE_BUILD", "build")}
        only = [] if options.long else ["--only", ",".join(GPU_SANITIZED)]
        tally.add(run_python_suite("tests/cuda/run_sanitized.py", options, 14400, env=env,
                                   arguments=[kind, *only]))
    return tally


def suite_gpu(options):
    """The rows that a GPU computes, on a simulated one: beside the CPU in one cluster, beside
    TensorFlow, in clients' programs and published networks, and as tools/gpu_run replays them
    elsewhere. Also a sample with sanitized daemons."""
    build = os.environ.get("MILLRACE_BUILD", "build")
    plugin = os.path.join(ROOT, build, "kernels", "cuda", "millrace-cuda.so")
    if not os.path.exists(os.path.join(ROOT, build, "tests", "cuda", "sim", "sim_device")):
        return Tally(0, 0, 1)
    tally = run_python_suite("tests/cuda/run_ops.py", options)
    tally.add(run_python_suite("tests/cuda/run_ops.py", options,
                               arguments=["--replays"] + ([] if options.long else
                                                          ["--sample", "300"])))
    tally.add(gpu_sanitized(options))
    tally.add(run_python_suite("tests/cuda/run_fused.py", options))
    tally.add(run_python_suite("tests/differential/run_kernels.py", options, 14400,
                               env={"GRAPH_EVAL_GPU": plugin},
                               arguments=[] if options.long else ["--sample", "40"],
                               prefix=["tools/dev", "gpu-sim", "1", "--"]))
    tally.add(run_python_suite("tests/differential/run_cluster.py", options, 14400,
                               arguments=["--gpus"],
                               prefix=["tools/dev", "gpu-sim", "2", "--"]))
    for script in ("run_wrong.py", "run_passes.py"):
        tally.add(run_python_suite("tests/differential/" + script, options, 14400,
                                   arguments=["--gpus"],
                                   prefix=["tools/dev", "gpu-sim", "2", "--"]))
    tally.add(run_python_suite("tests/cuda/run_networks.py", options))
    tally.add(run_python_suite("tests/cuda/run_segments.py", options))
    tally.add(run_python_suite("tests/cuda/run_activities.py", options))
    tally.add(run_python_suite("tests/cuda/run_gpu_run.py", options,
                               prefix=["tools/dev", "gpu-sim", "1", "--"]))
    return tally


def suite_rdma(options):
    """Tests with a Soft-RoCE device in a guest, also under AddressSanitizer."""
    if not build("build-asan"):
        return Tally(0, 1)
    command = ["/usr/bin/python3", "tests/rdma/run.py", "--asan-build",
               os.path.join(ROOT, "build-asan")]
    status, output = run(command, 900)
    tally = counts_of(output) or Tally(0, 1)
    if tally.failed or tally.skipped or status != 0:
        show_failure("tests/rdma/run.py", output)
        tally.failed = max(tally.failed, int(status != 0))
    return tally


SUITES = [
    ("check", suite_check,
     "format, line lengths, include table, banned calls, generated files, pages"),
    ("unit", suite_unit, "cmocka tests"),
    ("asan", suite_asan, "cmocka tests under AddressSanitizer and UBSan"),
    ("tsan", suite_tsan, "threads: cmocka tests, and 64 clients at once, under ThreadSanitizer"),
    ("sim", suite_sim,
     "whole clusters in virtual time, under seeds of random faults; --long: planted bugs, too"),
    ("cuda", suite_cuda,
     "the simulated CUDA device: planted bugs are found with every seed, right programs run; each "
     "call of the driver fails once"),
    ("gpu", suite_gpu, "kernels of a simulated GPU against the CPU's and TensorFlow's"),
    ("kernels", suite_kernels, "every kernel against TensorFlow in process"),
    ("shapes", suite_shapes, "static shapes of whole graphs against TensorFlow's"),
    ("checkpoints", suite_checkpoints,
     "checkpoints that TensorFlow reads and writes, in both directions"),
    ("cluster", suite_cluster,
     "TensorFlow programs on a cluster against TensorFlow in process; the runner of other "
     "people's tests"),
    ("wrong", suite_wrong,
     "wrong requests to a cluster and to TensorFlow's own servers: the same errors"),
    ("passes", suite_passes, "programs with each optimisation on and off: the same, bit by bit"),
    ("client", suite_client, "the C client: the same calls through it and through TensorFlow's"),
    ("docs", suite_docs,
     "the code blocks of README.md and docs/, as a reader runs them; the checks of tools/check.py"),
    ("e2e", suite_e2e, "daemons, command lines, failures, training runs"),
    ("e2e-asan", suite_e2e_asan, "one cluster run under AddressSanitizer and UBSan"),
    ("rdma", suite_rdma, "tasks and daemons on a Soft-RoCE device, in a QEMU guest"),
]


STARTS_FIRST = ("e2e",)  # takes as long as several others, which run beside it


def cpu_s():
    """Processor time of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def closing_line(tally):
    return (f"{tally.passed} passed, {tally.failed} failed"
            + (f", {tally.skipped} skipped" if tally.skipped else ""))


def run_suite(name, options):
    """Runs one suite in this process, and prints its row."""
    function, what = next((f, w) for n, f, w in SUITES if n == name)
    start, work = time.time(), cpu_s()
    with tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        tally = function(options)
    took = time.time() - start
    if name in options.must_run.split(",") and tally.skipped:
        print(f"--- {name} was skipped, and must run")
        tally.failed += tally.skipped
        tally.skipped = 0
    print(f"{name:10} {tally.passed:6} passed {tally.failed:4} failed {tally.skipped:4} "
          f"skipped   {took:6.1f} s   {(cpu_s() - work) / max(took, 0.1):3.1f} cores   {what}",
          flush=True)
    return tally


def run_suite_apart(name, options):
    """Runs one suite in a process of its own. Returns (tally, what it printed but for the closing
    line)."""
    command = [sys.executable, os.path.abspath(__file__), "--only", name,
               "--must-run", options.must_run] + ["--long"] * options.long
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL)
    output = done.stdout.decode(errors="replace")
    tally = counts_of(output)
    if tally is None or (done.returncode != 0 and not tally.failed):
        return Tally(0, 1), f"{output}--- {name} ended with status {done.returncode}\n"
    return tally, output[:output.rstrip("\n").rfind("\n") + 1]


def run_suites(names, options):
    total = Tally()
    first = [name for name in names if name in STARTS_FIRST]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(run_suite_apart, name, options)
                   for name in first + [name for name in names if name not in first]]
        for future in concurrent.futures.as_completed(futures):
            tally, output = future.result()
            print(output, end="", flush=True)
            total.add(tally)
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="run everything, not a sample")
    parser.add_argument("--only", help="suites, joined by commas")
    parser.add_argument("--must-run", default="",
                        help="suites that fail where they would be skipped, joined by commas")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count(), 2),
                        help="suites that run at the same time")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for name, _, what in SUITES:
            print(f"{name:10} {what}")
        return 0
    known = [name for name, _, _ in SUITES]
    wanted = options.only.split(",") if options.only else known
    unknown = set(wanted) - set(known)
    if unknown:
        parser.error(f"unknown suite: {', '.join(sorted(unknown))}")
    if len(wanted) == 1:
        total = run_suite(wanted[0], options)
    else:
        total = run_suites([name for name in known if name in wanted], options)
    print(closing_line(total))
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
