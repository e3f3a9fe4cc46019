#!/usr/bin/env python3
"""Copies values through memory that tasks share and between devices, on simulated GPUs.

    tests/cuda/run_transfers.py [--long] [--planted] [--seed N]

The mode "transfers" of cuda_steps copies, compares bits, and counts which copies were direct: with
devices that reach each other and with devices that do not, with several seeds, which draw the order
of what runs on the devices. Then calls of the driver fail, as in run_failures.py, on devices that
do not reach each other. With --planted or --long the plugin is also built with each bug of
planted/transfers-*.patch, and the mode must find it, and with those of planted/team-*.patch and
others, which other modes must find (PLANTED). ThreadSanitizer must find planted/races-*.patch where
$MILLRACE_BUILD has it. Ends with "N passed, N failed[, N skipped]".
"""
import argparse
import concurrent.futures
import os
import random
import sys
import tempfile

import planted_bugs
import run_failures

CALLS = ("cuCtxEnablePeerAccess", "cuDeviceCanAccessPeer", "cuEventCreate", "cuEventRecord",
         "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister", "cuMemSetAccess",
         "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyPeerAsync",
         "cuStreamCreateWithPriority", "cuStreamSynchronize", "cuStreamWaitEvent")
N_FAILED, N_SEEDS = 25, 12
ENDING_MODES = ("closing", "failing peer")
# By the first words of patches: the modes of which one finds the bug.
PLANTED = {"transfers": ["transfers"], "team": ["team"], "segments": ["segments"],
           "memory": [""]}
RACES = {"races-1": ["many"], "races-2": ["many", "team"], "races-3": ["many", "team"],
         "races-4": ["team"]}
PATCHES = ("transfers", "team", "segments", "memory", "races")  # all of their first words
DATA_RACE = "ThreadSanitizer: data race"
SANITIZERS = ("ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")
PEERS = ("1", "0")  # do the devices reach each other?


def problem_of_mode(seed, folder, mode="transfers"):
    """None, or what is wrong with the mode."""
    output, _, problem = run_failures.run(None, folder, seed, mode)
    if problem or "did not end well: 0" not in output:
        return f"{problem or 'a wrong value or count'}\n{output}"
    return None


def failing_cases(folder, options):
    _, calls, _ = run_failures.run(None, folder, options.seed)
    cases = [case for case in run_failures.all_cases(calls) if case.call in CALLS]
    random.Random(options.seed).shuffle(cases)
    return cases if options.long else cases[:N_FAILED]


def find(folder, seed, modes, is_race):
    """What finds the bug of run_failures.PLUGIN, or None."""
    for mode in modes:
        for peers in PEERS:
            os.environ["MILLRACE_SIM_PEERS"] = peers
            found = problem_of_mode(seed, folder, mode)
            if found and (not is_race or DATA_RACE in found):
                reason = DATA_RACE if is_race else found.split("\n")[0]
                return f'in the mode "{mode}": {reason}'
    return None


def planted_problems(folder, seed):
    """The bugs that no mode finds, and how many there are."""
    is_tsan = "-fsanitize=thread" in planted_bugs.commands_of(planted_bugs.PLUGIN)[-1]
    wanted = PLANTED | (RACES if is_tsan else {})
    patches = [(name, modes, patch) for name, modes in wanted.items()
               for patch in planted_bugs.patches(name)]
    known = {patch for name in PLANTED | RACES for patch in planted_bugs.patches(name)}
    problems = [f"{os.path.basename(patch)}: in no mode" for first in PATCHES
                for patch in planted_bugs.patches(first) if patch not in known]
    right, environment = run_failures.PLUGIN, dict(os.environ)
    for name in SANITIZERS:  # these reports are wanted, so they are not kept for others
        os.environ[name] = os.environ.get(name, "") + ":log_path=stderr"
    for name, modes, patch in patches:
        with tempfile.TemporaryDirectory() as work:
            run_failures.PLUGIN = planted_bugs.plugin_with(patch, work)
            found = find(folder, seed, modes, name in RACES)
        print(f"{os.path.basename(patch)}: {found or 'not found'}", flush=True)
        problems += [] if found else [f"{os.path.basename(patch)}: not found"]
    run_failures.PLUGIN = right
    os.environ.update(environment)
    return problems, len(patches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="every call, and more seeds")
    parser.add_argument("--planted", action="store_true", help="find the bugs of planted/ as well")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not os.path.exists(run_failures.PROGRAM):
        print("0 passed, 0 failed, 1 skipped")
        return 0
    problems, n = [], 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        seeds = range(options.seed, options.seed + N_SEEDS * (10 if options.long else 1))
        for peers in PEERS:
            os.environ["MILLRACE_SIM_PEERS"] = peers
            n += len(seeds)
            for mode in ENDING_MODES:
                n += 1
                problem = problem_of_mode(options.seed, folder, mode)
                problems += [f"peers {peers}, {mode}: {problem}"] if problem else []
            problems += [f"peers {peers}, seed {seed}: {problem}" for seed, problem in
                         zip(seeds, pool.map(lambda seed: problem_of_mode(seed, folder), seeds))
                         if problem]
        cases = failing_cases(folder, options)
        n += len(cases)
        problems += [f"{case.call}, call {case.n}, error {case.error}: {problem}"
                     for case, problem in zip(cases, pool.map(
                         lambda case: run_failures.problem_of(case, folder, options.seed), cases))
                     if problem]
        if options.planted or options.long:
            missed, n_planted = planted_problems(folder, options.seed)
            problems += missed
            n += n_planted
    print("\n".join(problems))
    print(f"{n - len(problems)} passed, {len(problems)} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
