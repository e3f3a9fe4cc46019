#!/usr/bin/env python3
"""Fails each call of the CUDA driver, cuBLASLt and cuDNN once, while cuda_steps runs steps on
simulated GPUs.

    tests/cuda/run_failures.py [--long] [--only CALL[,CALL]] [--seed N]

A first run counts the calls. Then each occurrence of each call fails once, in a run of its own: a
plain error, an error after which the device can do nothing more, and for calls that make something
a lack of memory. After each of them
  - a status, or a line of the log for a call that gives something back, names the call and the
    driver's number of the error, or the library's and the node;
  - the run ends, the steps that follow a plain error succeed, and after a sticky one, or one that
    keeps a device from being opened, every step on the device says that it has failed, while steps
    on the CPU go on, and on the first device where only the second cannot be opened;
  - no memory of a device is in use at the end, and what was made of the driver was given back;
  - the simulated device reports nothing.
The device process is also killed in each call, as if the devices had fallen off the bus. Then every
later step on a device fails with UNAVAILABLE and says so, with the Xid, and all else is
as above.
Phases that need steps before them (a capture, a replay, a save, a swap) lose the device in runs of
their own.
Other runs count the calls of a warm step, hold the device until a step is far ahead of it, run many
steps at once, let a step wait for memory, cancel one that waits for the size of an output, and
describe what steps wait for while they end.
Without --long a sample of the calls fails, drawn by the seed. Ends with
"N passed, N failed[, N skipped]".
"""
import argparse
import collections
import concurrent.futures
import glob
import os
import random
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"))
# A sanitized build has no kernels of its own: the device process is not sanitized.
KERNELS = os.path.join(ROOT, os.environ.get("MILLRACE_KERNELS_BUILD", BUILD), "tests", "cuda")
PROGRAM = os.path.join(BUILD, "tests", "cuda", "cuda_steps")
PLUGIN = os.path.join(BUILD, "kernels", "cuda", "millrace-cuda.so")
# In place of NVRTC; asked only where a program has fused nodes.
COMPILER = ("c++ -x c++ -std=c++17 -O1 -fsanitize=thread -Wno-tsan -ffp-contract=off -w "
            f"-D_GNU_SOURCE -fno-exceptions -fno-rtti -I {ROOT} -include "
            f"{ROOT}/tests/cuda/sim/device_runtime.h -fPIC -shared -nodefaultlibs "
            "-Wl,--no-as-needed -lc -lm")
TIMEOUT_S = 120
N_SAMPLED = 60
UNKNOWN, ILLEGAL_ADDRESS, OUT_OF_MEMORY = 999, 700, 2
LOST = -1  # no error: the call kills the device process
PAIRS = {"cuMemHostAlloc": "cuMemFreeHost", "cuMemCreate": "cuMemRelease", "cuMemMap": "cuMemUnmap",
         "cuMemAddressReserve": "cuMemAddressFree", "cuEventCreate": "cuEventDestroy",
         "cuMemHostRegister": "cuMemHostUnregister",
         "cuStreamCreateWithPriority": "cuStreamDestroy", "cuLibraryLoadData": "cuLibraryUnload",
         "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease",
         "cublasLtCreate": "cublasLtDestroy",
         "cublasLtMatmulDescCreate": "cublasLtMatmulDescDestroy",
         "cublasLtMatrixLayoutCreate": "cublasLtMatrixLayoutDestroy",
         "cublasLtMatmulPreferenceCreate": "cublasLtMatmulPreferenceDestroy",
         "cudnnCreate": "cudnnDestroy",
         "cudnnBackendCreateDescriptor": "cudnnBackendDestroyDescriptor"}
LIBRARIES = ("cublas", "cudnn")  # their calls have errors of their own
# These may find no memory.
MAKERS = (*(call for call in PAIRS if not call.startswith(LIBRARIES)), "cuLaunchKernel")

MODES = ("warm", "ahead", "parted", "many", "kept", "forgotten", "waiting", "holders", "size",
         "traced", "workspace", "planning", "engines", "synced", "hang", "hanging launch", "rdma",
         "rdma failures", "saves", "segments", "segment failures", "segments at once",
         "refused captures", "transfers", "arriving", "closing", "team", "exhausted",
         "hanging team", "compiled", "hanging copies", "described")
LONG_MODES = (*MODES, "patience")
HANGING_MODES = ("hang", "hanging launch", "hanging team")
N_STREAMS = 5  # of a device

# The step that replays is told, with a node; a later one says that the device has failed.
REPLAY_FAILS = re.compile(r"step \d+ failed: cuGraphLaunch failed: .*CUDA error \d+.*\n"
                          r"\t \[\[\{\{node .*\n.*step \d+ failed: GPU 0 .* has failed")

Case = collections.namedtuple("Case", "call n error")


def environment(case, report, seed):
    env = {**os.environ,
           "LD_LIBRARY_PATH": os.path.join(BUILD, "tests", "cuda", "sim"),
           "MILLRACE_SIM_KERNELS": ":".join(sorted(glob.glob(os.path.join(KERNELS, "gpu_*.so")))),
           "MILLRACE_SIM_DEVICES": "2", "MILLRACE_SIM_SEED": str(seed),
           # both ways of large copies: by several threads, and by one
           "MILLRACE_STEPS_COPY_THREADS": "1" if seed % 4 == 0 else "3",
           "MILLRACE_SIM_REPORT": report, "MILLRACE_SIM_COMPILER": COMPILER,
           "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_leaks=1")
                           + ":intercept_tls_get_addr=0:handle_segv=0"
                           + ":detect_stack_use_after_return=1",
           "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "")
                            + ":print_stacktrace=1:halt_on_error=1",
           "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + ":handle_segv=0:halt_on_error=1"
                           f":suppressions={ROOT}/tests/tsan.supp"}
    if case and case.error == LOST:
        env["MILLRACE_SIM_KILL"] = f"{case.call}:{case.n}"
    elif case:
        env["MILLRACE_SIM_FAIL"] = f"{case.call}:{case.n}:{case.error}"
    return env


def run(case, folder, seed, mode=""):
    """The run's output, its calls, and what is wrong with it in itself."""
    with tempfile.NamedTemporaryFile(dir=folder) as report:
        try:
            done = subprocess.run([PROGRAM, PLUGIN, mode], env=environment(case, report.name, seed),
                                  timeout=TIMEOUT_S, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired as late:
            return (late.stdout or b"").decode(errors="replace"), {}, "it does not end"
        reports = report.read().decode(errors="replace")
    output = done.stdout.decode(errors="replace")
    calls = {name: int(n) for name, n in re.findall(r"^call (\w+) (\d+)$", output, re.M)}
    problem = f"it ends with {done.returncode}" if done.returncode else None
    problem = problem or (f"the simulated device reports: {reports}" if reports else None)
    return output, calls, problem


def unbalanced(case, calls):
    """What was made and not given back, or the reverse."""
    for make, give_back in PAIRS.items():
        made = calls[make] - (case.call == make)
        returned = calls[give_back] - (case.call == give_back)
        if made != returned and not (case.call == give_back and made == returned + 1):
            return f"{make} made {made}, {give_back} gave back {returned}"
    return None


def lost_problem(output, failed):
    """What is wrong after the devices were lost."""
    is_open = not any(line.startswith("open: failed") for line in failed)
    later = output.splitlines()
    if failed:
        later = later[later.index(failed[0]) + 1:]
    if output.count("cpu: ok") != 2:
        return "the CPU's steps fail"
    if is_open and output.count("in use: 0") != 2:
        return "memory is lost"
    if is_open and failed and "Xid 79" not in output:
        return "no Xid is named"
    if is_open and failed and "has failed, so nothing runs on it" not in output:
        return "the failure of the device is not named"
    if is_open and failed and any(line.endswith(": ok") and not line.startswith(("cpu", "out of"))
                                  for line in later):
        return "a step succeeds on a lost device"
    if any(not re.search("CUDA error|cuBLAS status|cuDNN status|has failed", line)
           for line in failed):
        return "a failure without a reason"
    return None


def problem_of(case, folder, seed):
    """None, or what is wrong after the failure."""
    output, calls, problem = run(case, folder, seed)
    if problem:
        return f"{problem}\n{output}"
    if case.error == LOST:
        failed = [line for line in output.splitlines() if ": failed: " in line]
        problem = lost_problem(output, failed)
        return f"{problem}\n{output}" if problem else None
    if calls[case.call] < case.n:
        return None  # threads made fewer calls this time
    named = re.compile(rf"\b{case.call} failed(: .*CUDA error| with (cuBLAS|cuDNN) status) "
                       rf"{case.error}\b")
    failed = [line for line in output.splitlines() if ": failed: " in line]
    is_sticky = case.error == ILLEGAL_ADDRESS
    is_closed = any(line.startswith("open: failed") for line in failed)
    # The other device goes on, and each step on this one says why it could not be opened.
    is_out = "it could not be opened: " in output
    # Memory of a device is asked for again before the step fails.
    is_repeated = case.error == OUT_OF_MEMORY and case.call in ("cuMemCreate", "cuMemMap")
    # The message of a step that is to find no memory, which is not printed, has it.
    is_in_message = case.call == "cuMemGetInfo" and not is_sticky
    if not named.search(output) and not ((is_repeated or is_in_message) and not failed):
        problem = "nothing names the call"
    elif not is_sticky and not is_out and len(failed) > 1:
        problem = "more than one step fails"
    elif not is_sticky and not is_out and "did not end well: 0" not in output:
        problem = "later steps fail"
    elif any(not named.search(line) for line in failed):
        problem = "a failure without a reason"
    elif case.call.startswith(LIBRARIES) and output.count("\n\t [[{{node ") != len(failed):
        problem = "the status does not name the node"
    elif output.count("cpu: ok") != 2:
        problem = "the CPU's steps fail"
    elif not is_closed and output.count("in use: 0") != 2:
        problem = "memory is lost"
    elif (is_out and not is_sticky and "elementwise: ok" not in output and
          not re.search(r"\bGPU 0 .*has failed", output)):
        problem = "the other device does not go on"
    elif not is_sticky:
        problem = unbalanced(case, calls)
    return f"{problem}\n{output}" if problem else None


def all_cases(calls):
    for call, count in calls.items():
        for n in range(1, count + 1):
            yield Case(call, n, UNKNOWN)
            yield Case(call, n, LOST)
            if call.startswith(LIBRARIES):
                continue
            yield Case(call, n, ILLEGAL_ADDRESS)
            if call in MAKERS:
                yield Case(call, n, OUT_OF_MEMORY)


def sampled(cases, rng):
    """One failure of each call, one loss of the devices in it, and others."""
    first = {}
    rng.shuffle(cases)
    for case in cases:
        first.setdefault((case.call, case.error == LOST), case)
    others = [case for case in cases if case is not first[case.call, case.error == LOST]]
    return [*first.values(), *others[:max(0, N_SAMPLED - len(first))]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="every occurrence of every call")
    parser.add_argument("--only", help="calls, joined by commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not os.path.exists(PROGRAM):
        print("0 passed, 0 failed, 1 skipped")
        return 0
    n_failed = 0
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        output, calls, problem = run(None, folder, options.seed)
        if problem or "failed" in output.replace("programs that did not", ""):
            print(f"without a failure: {problem}\n{output}\n0 passed, 1 failed")
            return 1
        modes = [] if options.only else LONG_MODES if options.long else MODES
        phases = re.findall(r"^phase (.*)$", run(None, folder, options.seed, "lost ?")[0], re.M)
        for phase in phases if modes else ():
            output, made, problem = run(None, folder, options.seed, f"lost {phase}")
            failed = [line for line in output.splitlines() if ": failed: " in line]
            problem = problem or lost_problem(output, failed)
            n_kept = made.get("cuLibraryLoadData", 0) - made.get("cuLibraryUnload", 0)
            if n_kept > (phase == "code"):  # in which loading fails
                problem = problem or f"{n_kept} libraries are not unloaded"
            if problem or "did not end well: 0" not in output or len(failed) < 2:
                n_failed += 1
                print(f"FAIL lost in the phase {phase}: {problem}\n{output}", flush=True)
        for mode in modes:
            output, calls_of_mode, problem = run(None, folder, options.seed, mode)
            # A call of the driver might hang again, so nothing of the device is given back.
            kept = (calls_of_mode.get("cuStreamCreateWithPriority", 0) -
                    calls_of_mode.get("cuStreamDestroy", 0))
            if mode in HANGING_MODES and kept != N_STREAMS:
                problem = problem or f"{kept} streams are kept, not {N_STREAMS}"
            if problem or "did not end well: 0" not in output:
                n_failed += 1
                print(f"FAIL {mode}: {problem}\n{output}", flush=True)
        lost = [Case("cuGraphLaunch", 3, error) for error in (ILLEGAL_ADDRESS, LOST) if modes]
        for case in lost:  # a replay finds that the device has failed
            output, _, problem = run(case, folder, options.seed, "segments")
            if problem or not REPLAY_FAILS.search(output) or output.count("cpu: ok") != 2:
                n_failed += 1
                print(f"FAIL a replay, error {case.error}: {problem}\n{output}", flush=True)
        modes = [*modes, *lost, *(phases if modes else ())]
        cases = [case for case in all_cases(calls)
                 if not options.only or case.call in options.only.split(",")]
        if not options.long and not options.only:
            cases = sampled(cases, random.Random(options.seed))
        for case, problem in zip(cases, pool.map(
                lambda case: problem_of(case, folder, options.seed), cases)):
            if problem:
                n_failed += 1
                print(f"FAIL {case.call}, call {case.n}, error {case.error}: {problem}", flush=True)
    print(f"{len(cases) + len(modes) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
