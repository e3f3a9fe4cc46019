#!/usr/bin/env python3
"""Copies values through memory that tasks share and between devices, on simulated GPUs.

    tests/cuda/run_transfers.py [--long] [--planted] [--seed N]

The mode "transfers" of cuda_steps copies, compares bits, and counts which copies were direct: with
devices that reach each other and with devices that do not, with several seeds, which draw the order
of what runs on the devices. Then calls of the driver fail, as in run_failures.py, on devices that
do not reach each other. With --planted or --long the plugin is also built with each bug of
planted/transfers-*.patch, and the mode must find it, and with each of planted/team-*.patch, which
the mode "team" must find. Ends with "N passed, N failed[, N skipped]".
"""
import argparse
import concurrent.futures
import glob
import os
import random
import shlex
import subprocess
import sys
import tempfile

import run_failures

ROOT, BUILD = run_failures.ROOT, run_failures.BUILD
CALLS = ("cuCtxEnablePeerAccess", "cuDeviceCanAccessPeer", "cuEventCreate", "cuEventRecord",
         "cuMemHostAlloc", "cuMemHostRegister", "cuMemHostUnregister", "cuMemSetAccess",
         "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyPeerAsync",
         "cuStreamCreateWithPriority", "cuStreamSynchronize", "cuStreamWaitEvent")
N_FAILED, N_SEEDS = 25, 12
PLANTED_MODES = ("transfers", "team")  # the first words of the patches
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


def planted_plugin(patch, work):
    """Builds the plugin with a patch of one of its files. Returns its path."""
    target = "kernels/cuda/millrace-cuda.so"
    with open(patch, encoding="utf-8") as text:
        name = next(line for line in text if line.startswith("+++ ")).split("/")[-1].strip()
    source, made = os.path.join(work, name), os.path.join(work, name + ".o")
    plugin, archive = os.path.join(work, "planted.so"), os.path.join(work, "libcuda.a")
    subprocess.run(["patch", "--quiet", "--fuzz=0", "-o", source,
                    os.path.join(ROOT, "kernels", "cuda", name), patch], check=True)
    commands = subprocess.check_output(["ninja", "-C", BUILD, "-t", "commands", target], text=True)
    commands = [shlex.split(line) for line in commands.split("\n")]
    compiles = next(words for words in commands if words and words[-1].endswith("/cuda/" + name))
    old = compiles[compiles.index("-o") + 1]
    subprocess.run([{old: made, compiles[-1]: source, old + ".d": made + ".d"}.get(word, word)
                    for word in compiles], check=True, cwd=BUILD)
    objects = [path for path in glob.glob(os.path.join(BUILD, os.path.dirname(old), "*.o"))
               if os.path.basename(path) != os.path.basename(old)]
    subprocess.run(["ar", "crs", archive, made, *objects], check=True)
    links = next(words for words in reversed(commands) if target in words)
    subprocess.run([{target: plugin, "kernels/cuda/libcuda.a": archive}.get(word, word)
                    for word in links], check=True, cwd=BUILD)
    return plugin


def planted_problems(folder, seed):
    """The bugs that the mode does not find, and how many there are."""
    patches = [(mode, patch) for mode in PLANTED_MODES for patch in
               sorted(glob.glob(os.path.join(ROOT, "tests", "cuda", "planted", mode + "-*.patch")))]
    problems = [] if patches else ["no bugs are planted"]
    right = run_failures.PLUGIN
    for mode, patch in patches:
        with tempfile.TemporaryDirectory() as work:
            run_failures.PLUGIN = planted_plugin(patch, work)
            found = None
            for peers in PEERS:
                os.environ["MILLRACE_SIM_PEERS"] = peers
                found = found or problem_of_mode(seed, folder, mode)
        name = os.path.basename(patch)
        reason = found.split("\n")[0] if found else "not found"
        print(f"{name}: {reason}", flush=True)
        problems += [] if found else [f"{name}: not found"]
    run_failures.PLUGIN = right
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
            n += 1
            problem = problem_of_mode(options.seed, folder, "closing")
            problems += [f"peers {peers}, closing: {problem}"] if problem else []
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
