#!/usr/bin/env python3
"""Compares elementwise ops, reductions, softmaxes, scans, sorts, selections, segments, sparse
tensors and others of a simulated GPU with the CPU's kernels, in one cluster of ours.

    tests/cuda/run_ops.py [--long] [--only TEXT] [--seed N] [--replays] [--sample N] [--planted]

Each case is one op with fed operands, once for each device. The shapes are those at which the GPU's
kernels change their form: equal, scalar, rows, any broadcast, few and many outputs, chunks. The
simulated device reports races, missing barriers and addresses out of bounds, each of which is a
failure. What adds many numbers also runs with several seeds, which draw the order of blocks and
threads, and must give the same bits. With --replays each step runs five times, so that what it
repeats is replayed as CUDA graphs, and must give the same bits; nothing else is tested then.
Without --long types other than float take turns. --sample draws at most N cases by the seed. With
--planted, or --long without the others, parts of the plugin are also compiled with the bugs of
planted/ (planted_bugs.py), and the cases must find each. Ends with "N passed, N failed".
"""
import argparse
import glob
import os
import random
import re
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("MILLRACE_BUILD", "build"))
# A sanitized build has no kernels of its own: the device process is not sanitized.
KERNELS = os.path.join(ROOT, os.environ.get("MILLRACE_KERNELS_BUILD", BUILD), "tests", "cuda")
sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

import planted_bugs  # noqa: E402
from cluster import Cluster, ClusterError  # noqa: E402
from function_cases import function_failures  # noqa: E402
from image_cases import image_cases  # noqa: E402
from op_cases import (Cases, elementwise_cases, mixed_cases, order_cases,  # noqa: E402
                      reduction_cases, select_cases)
from product_cases import product_cases  # noqa: E402
from queue_cases import queue_failures  # noqa: E402
from rnn_cases import rnn_cases, rnn_failures  # noqa: E402
from scenario_cases import (device_failures, distribution_failures,  # noqa: E402
                            entry_failures, optimizer_failures, variant_failures)
from sparse_cases import (count_cases, other_cases, repeated_cases,  # noqa: E402
                          sparse_cases)
from window_cases import far_norm_failures, qint8_failures, window_cases  # noqa: E402

tf1 = tf.compat.v1
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 1e-11,
             "complex64": 1e-5, "complex128": 1e-11}
LONG_SUMS, SLACK = ("Cum", "Einsum", "BatchNorm", "Depthwise", "Conv", "LSTM", "BlockLSTM",
                    "GRU"), 20  # sums of many numbers
EXACT = "Image"  # cases of which the GPU must have the CPU's bits
BATCH = 60       # cases of one step
N_RUNS = 5       # of a step that is to be replayed


def difference(name, cpu, gpu):
    """What differs, or None."""
    cpu, gpu = numpy.asarray(cpu), numpy.asarray(gpu)
    if cpu.dtype != gpu.dtype or cpu.shape != gpu.shape:
        return f"{cpu.dtype}{cpu.shape} on a CPU, {gpu.dtype}{gpu.shape} on a GPU"
    if cpu.dtype.name not in TOLERANCE:
        agrees = cpu == gpu
    elif name.startswith(EXACT):
        both_nan = numpy.isnan(cpu) & numpy.isnan(gpu)
        agrees = (cpu == gpu) & (numpy.signbit(cpu) == numpy.signbit(gpu)) | both_nan
    else:
        tolerance = TOLERANCE[cpu.dtype.name] * (SLACK if name.startswith(LONG_SUMS) else 1)
        wide = "complex128" if cpu.dtype.kind == "c" else "float64"
        x, y = cpu.astype(wide), gpu.astype(wide)
        agrees = numpy.isclose(x, y, tolerance, tolerance, True) | numpy.isnan(x) & numpy.isnan(y)
    if agrees.all():
        return None
    at = tuple(numpy.argwhere(~agrees)[0])
    return f"{(~agrees).sum()} of {cpu.size}, at {at} {cpu[at]} on a CPU, {gpu[at]} on a GPU"


def bits(values):
    return [numpy.asarray(x).tobytes() for both in values for x in both[1]]


def run_batch(target, part, n_runs=1):
    """The failures of some cases, which are one step. A step that fails is halved."""
    with tf1.Graph().as_default() as graph:
        fetches, feeds = [], {}
        for _, make, operands in part:
            both = []
            for device in ("CPU", "GPU"):
                with tf.device(f"/job:worker/task:0/device:{device}:0"):
                    places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
                    feeds.update(zip(places, operands))
                    both.append(make(*places))
            fetches.append([tf.nest.flatten(tuple(x) if isinstance(x, tuple) else x) for x in both])
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            try:
                values = session.run(fetches, feeds)
                later = [bits(session.run(fetches, feeds)) for _ in range(n_runs - 1)]
            except (tf.errors.UnavailableError, tf.errors.AbortedError):
                raise  # a session with a daemon that has died would wait for it
            except tf.errors.OpError as error:
                if len(part) == 1:
                    return [f"{part[0][0]}: {error.message}"]
                half = len(part) // 2
                return (run_batch(target, part[:half], n_runs) +
                        run_batch(target, part[half:], n_runs))
    found = [f"{part[0][0]} … {part[-1][0]}: other bits in a later run"
             for other in later if other != bits(values)]
    for (name, _, _), (cpu, gpu) in zip(part, values):
        different = [text for a, b in zip(cpu, gpu) if (text := difference(name, a, b))]
        found += [f"{name}: {different[0]}"] if different else []
    return found


# What adds many numbers: its bits must not depend on the order in which blocks and threads run.
SUMS = re.compile(r"(UnsortedSegment|TensorScatterAdd|ScatterNd|Sum|BiasAddGrad|L2Loss|Cumsum|"
                  r"SegmentSum|SparseSegment\w+|DenseBincount/weights|SparseFillEmptyRowsGrad|"
                  r"InplaceAdd|Einsum|SparseTensorDenseMatMul|\w*Pool(3D)?Grad|BatchNorm|Depthwise|"
                  r"BlockLSTMGrad)"
                  r".*/(half|float32|float64)\b")


def bits_on_gpu(target, listed):
    """The bytes that the cases give on the GPU."""
    found = []
    for first in range(0, len(listed), BATCH):
        with tf1.Graph().as_default() as graph, tf.device("/job:worker/task:0/device:GPU:0"):
            fetches, feeds = [], {}
            for _, make, operands in listed[first:first + BATCH]:
                places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
                feeds.update(zip(places, operands))
                made = make(*places)
                fetches.append(tf.nest.flatten(tuple(made) if isinstance(made, tuple) else made))
            config = tf1.ConfigProto(allow_soft_placement=False)
            with tf1.Session(target, graph=graph, config=config) as session:
                found += [[numpy.asarray(value).tobytes() for value in values]
                          for values in session.run(fetches, feeds)]
    return found


def order_failures(listed, seeds, plugin):
    """The cases whose bits differ between orders that the simulated device draws."""
    by_seed = []
    for seed in seeds:
        os.environ["MILLRACE_SIM_SEED"] = str(seed)
        with Cluster(worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
            by_seed.append(bits_on_gpu(cluster.target, listed))
            cluster.check()
    return [f"{name}: other bits in another order"
            for (name, _, _), *values in zip(listed, *by_seed)
            if any(value != values[0] for value in values)]


def reports(cluster):
    """What the simulated device says in the daemons' logs."""
    for daemon in cluster.daemons:
        with open(daemon.log_path, errors="replace") as log:
            yield from (line.strip() for line in log if line.startswith("simulated device"))


def finds_bug(listed, kernels, plugin):
    """What the cases find, or None."""
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    try:
        with Cluster(worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
            for first in range(0, len(listed), BATCH):
                failures = run_batch(cluster.target, listed[first:first + BATCH])
                if failures:
                    return failures[0]
            return next(reports(cluster), None)
    except (tf.errors.UnavailableError, tf.errors.AbortedError, ClusterError) as error:
        # The device has failed, which ends its worker.
        text = str(error)
        return next(iter(re.findall("^simulated device.*", text, re.M)), " ".join(text.split()))


def planted_failures(listed, kernels, plugin):
    """The bugs that no case finds, and how many there are."""
    missed, n = [], 0
    for name, pattern in planted_bugs.CASES.items():
        chosen = [case for case in listed if re.search(pattern, case[0])]
        for patch in planted_bugs.patches(name) if chosen else ():
            with tempfile.TemporaryDirectory() as work:
                found = finds_bug(chosen, *planted_bugs.variant(patch, kernels, plugin, work))
            print(f"{os.path.basename(patch)}: {found or 'not found'}")
            missed += [] if found else [f"{os.path.basename(patch)}: not found"]
            n += 1
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    return missed, n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replays", action="store_true", help="run each step five times")
    parser.add_argument("--sample", type=int, metavar="N", help="at most this many cases")
    parser.add_argument("--planted", action="store_true", help="find the bugs of planted/ as well")
    arguments = parser.parse_args()
    cases = Cases(arguments.seed, arguments.only)
    elementwise_cases(cases)
    mixed_cases(cases)
    reduction_cases(cases, arguments.long)
    select_cases(cases)
    order_cases(cases)
    count_cases(cases)
    sparse_cases(cases)
    other_cases(cases)
    repeated_cases(cases)
    window_cases(cases)
    image_cases(cases)
    rnn_cases(cases)
    product_cases(cases)
    listed = cases.list
    if not arguments.long:
        listed = [case for i, case in enumerate(listed) if "float32" in case[0] or i % 4 == 0]
    if arguments.sample and arguments.sample < len(listed):
        listed = random.Random(arguments.seed).sample(listed, arguments.sample)
    tests = os.path.join(BUILD, "tests", "cuda")
    path = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["LD_LIBRARY_PATH"] = os.path.join(tests, "sim") + (":" + path if path else "")
    os.environ["MILLRACE_SIM_DEVICES"] = "1"
    os.environ["MILLRACE_SIM_SEED"] = str(arguments.seed)
    kernels = glob.glob(os.path.join(KERNELS, "gpu_*.so"))
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    plugin = os.path.join(BUILD, "kernels", "cuda", "millrace-cuda.so")
    with Cluster(worker_flags=["--gpu", "require", "--gpu-plugin", plugin]) as cluster:
        failures = []
        for first in range(0, len(listed), BATCH):
            failures += run_batch(cluster.target, listed[first:first + BATCH],
                                  N_RUNS if arguments.replays else 1)
        n_alone = 0
        for name, check in (("ParameterizedTruncatedNormal", distribution_failures),
                            ("SparseT", entry_failures), ("ApplyProximal", optimizer_failures),
                            ("Variant", variant_failures), ("Function", function_failures),
                            ("RNNWrong", rnn_failures), ("Queue", queue_failures),
                            ("MaxPool/qint8", qint8_failures),
                            ("BatchNorm/far", far_norm_failures),
                            ("Device", device_failures)):
            if arguments.replays:
                break
            if not arguments.only or name.startswith(arguments.only[:len(name)]):
                failures += check(cluster.target)
                n_alone += 1
        n_replays = sum(int(n) for task in cluster.tasks for n in re.findall(
            r"^millrace_device_replays_total{.*GPU.*} (\d+)$", task.page("/metrics"), re.M))
        if arguments.replays and listed and n_replays == 0:
            failures.append("nothing was replayed")
        failures += reports(cluster)
        cluster.check()
    sums = [case for case in listed if SUMS.match(case[0]) and not arguments.replays]
    first = arguments.seed
    if sums:
        seeds = range(first, first + (10 if arguments.long else 3))
        failures += order_failures(sums, seeds, plugin)
    n_planted = 0
    if arguments.planted or arguments.long and not (arguments.replays or arguments.sample):
        missed, n_planted = planted_failures(cases.list, kernels, plugin)
        failures += missed
    print("\n".join(failures))
    n_run = len(listed) + len(sums) + n_alone + n_planted
    print(f"{n_run - len(failures)} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
