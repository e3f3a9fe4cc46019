#!/usr/bin/env python3
"""Runs the scenarios of the simulated CUDA device, each with many seeds.

    tests/cuda/run.py [--long] [--seeds N] [--only SCENARIO[,SCENARIO]]

A scenario with a planted bug has to be reported in every run, one without never. A run is a process
of cuda_test_program. Ends with "N passed, N failed[, N skipped]"; a scenario with all its seeds is
one test.
"""
import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"), "tests", "cuda")
PROGRAM = os.path.join(BUILD, "cuda_test_program")
SEEDS = 100
TIMEOUT_S = 60

# What the report of each planted bug says, and how the program ends when not with 0.
BUGS = {
    "no_wait_before_a_kernel": r'a missing wait: .*"scale"',
    "no_wait_before_a_copy_out": r'a missing wait: .*"copy to the host"',
    "freed_block_is_reused": r'a missing wait: .*"fill"',
    "freed_block_is_read": r"an illegal address: copy to the host",
    "no_wait_before_a_graph": r'a missing wait: .*"scale"',
    "graph_with_an_old_address": r'an illegal address: kernel "scale"',
    "graph_with_a_block_of_others": r'a missing wait: .*"scale"|an illegal address: kernel "scale"',
    "missing_syncthreads": r'a race in kernel "sum_without_barrier": .* shared memory at kernels',
    "missing_syncwarp": r'a race in kernel "rotate_without_wait": .* shared memory at kernels',
    "update_without_atomic": r'a race in kernel "sum_plain": .* global memory at kernels',
    "divergent_barrier": r'a divergent barrier: in kernel "diverge"',
    "write_one_beyond": r'an illegal address: kernel "scale_beyond" .* writes .* behind the end',
    "write_a_page_beyond": r'an illegal address: kernel "scale_far" .* writes',
    "kernel_uses_host_memory": r'an illegal address: kernel "write_host" .* writes',
    "host_reads_device_memory": r"the host uses 0x\w+, which is memory of a device",
    "host_reads_before_the_copy_has_ended": r"pinned memory that a copy writes",
    "host_reads_what_a_graph_writes": r"pinned memory that a copy writes",
    "graph_writes_memory_that_is_not_pinned": r"a graph with a copy to memory that is not pinned",
    "host_writes_what_a_copy_reads": r"pinned memory that a copy reads",
    "copy_of_memory_that_is_not_pinned": r"a copy from memory that is not pinned",
    "unmapped_too_early": r"a missing wait: the host unmaps|an illegal address: fill",
    "host_reads_registered_memory_before_the_copy_has_ended": r"pinned memory that a copy writes",
    "host_writes_registered_memory_that_a_copy_reads": r"pinned memory that a copy reads",
    "device_writes_read_only_memory": r"a copy to memory that was registered as READ_ONLY",
    "unregistered_too_early": r"a missing wait: the host unregisters 0x\w+, memory that a copy",
    "copied_after_it_was_given_back": r"was given back to the system while it was registered",
    "given_back_while_registered": r"was given back to the system while it was registered",
}
ENDS_BY_FAULT = {"host_reads_device_memory", "host_reads_before_the_copy_has_ended",
                 "host_reads_what_a_graph_writes", "host_writes_what_a_copy_reads",
                 "host_reads_registered_memory_before_the_copy_has_ended",
                 "host_writes_registered_memory_that_a_copy_reads"}


def environment(seed, report):
    return {**os.environ,
            "CUDA_LIBRARY": os.path.join(BUILD, "sim", "libcuda.so.1"),
            "MILLRACE_SIM_KERNELS": os.path.join(BUILD, "cuda_test_kernels.so"),
            "MILLRACE_SIM_DEVICES": "2",
            "MILLRACE_SIM_SEED": str(seed),
            "MILLRACE_SIM_REPORT": report,
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0:detect_leaks=0",
            "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "")
                             + ":print_stacktrace=1:halt_on_error=1",
            "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + ":handle_segv=0:halt_on_error=1"}


def run_once(name, seed, folder):
    """Returns None, or what is wrong with the run."""
    report = os.path.join(folder, f"{name}.{seed}")
    try:
        done = subprocess.run([PROGRAM, name], env=environment(seed, report), timeout=TIMEOUT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        return f"seed {seed}: did not end within {TIMEOUT_S} s"
    reports = ""
    if os.path.exists(report):
        with open(report, encoding="utf-8", errors="replace") as f:
            reports = f.read()
    wanted = -signal.SIGSEGV if name in ENDS_BY_FAULT else 0
    output = done.stdout.decode(errors="replace") + reports
    if done.returncode != wanted:
        return f"seed {seed}: ended with {done.returncode}, not {wanted}:\n{output}"
    if name in BUGS and not re.search(BUGS[name], reports):
        return f"seed {seed}: the bug was not found:\n{output}"
    if name not in BUGS and reports:
        return f"seed {seed}: a false report:\n{output}"
    return None


def names():
    """The scenarios as the program lists them. A planted bug without a row in BUGS is an error."""
    listing = subprocess.run([PROGRAM], check=True, stdout=subprocess.PIPE, text=True).stdout
    kinds = [line.split() for line in listing.splitlines()]
    if {name for kind, name in kinds if kind == "bug"} != set(BUGS):
        raise SystemExit("the planted bugs of the program are not those of run.py")
    return [name for _, name in kinds]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="ten times as many seeds")
    parser.add_argument("--seeds", type=int, help=f"seeds of each scenario (default {SEEDS})")
    parser.add_argument("--only", help="scenarios, joined by commas")
    options = parser.parse_args()
    if not os.path.exists(PROGRAM):
        print("0 passed, 0 failed, 1 skipped")
        return 0
    n_seeds = options.seeds or SEEDS * (10 if options.long else 1)
    wanted = options.only.split(",") if options.only else names()
    n_failed = 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in wanted:
            problems = [problem for problem in pool.map(
                lambda seed, name=name: run_once(name, seed, folder), range(1, n_seeds + 1))
                if problem]
            if problems:
                n_failed += 1
                print(f"{name}: {len(problems)} of {n_seeds} seeds fail. {problems[0]}", flush=True)
    print(f"{len(wanted) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
