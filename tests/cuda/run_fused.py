#!/usr/bin/env python3
"""Compares fused programs of a simulated GPU with the same nodes alone, to the bit.

    tests/cuda/run_fused.py [--long] [--only TEXT] [--seed N] [--sample N] [--planted]
                            [--compiled N]

Two clusters run the same graphs on a simulated GPU: one fuses, the other has --disable-passes fuse.
First each instruction of every type, with a selection behind it, so that it is fused; then random
programs with several shapes and outputs; then programs that no launch can hold, and those that
fail, of which the message has to name the right nodes. Each step runs five times, so that it is
replayed as a CUDA graph, too. Where shapes allow it, the fusing cluster must have launched less.
Then N cases (by default a few) run until their programs have been compiled, by the host's compiler
in place of NVRTC. --sample draws at most N cases by the seed. With --planted or --long it also
compiles the interpreter with each bug of planted/fused-*.patch, and must find that one. Ends with
"N passed, N failed".
"""
import argparse
import glob
import os
import random
import re
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy  # noqa: E402
import planted_bugs  # noqa: E402
import run_failures  # noqa: E402
import op_cases  # noqa: E402
import run_ops  # noqa: E402
import tensorflow as tf  # noqa: E402

from cluster import Cluster, ClusterError  # noqa: E402

RAW, tf1 = tf.raw_ops, tf.compat.v1
GPU = "/job:worker/task:0/device:GPU:0"
BATCH, N_RUNS = 60, 5
SHAPES = ([], [5], [40, 1], [40, 5], [3, 40, 5], [1, 40, 1], [3, 1, 1], [1, 1, 5])
NARROW_SHAPES = ([1003], [])
# What the planted bugs show in, which a sample may lack.
FINDING = ("special/shape/[1025]", "special/rank/2", "special/operands")
NO_GAIN = "fusing saved no launch"
UNARY = "Tanh Sigmoid Exp Relu Elu Softplus Neg Abs Square Sign Floor Sqrt Rsqrt LeakyRelu Rint"
BINARY = "AddV2 Sub Mul Maximum Minimum SquaredDifference DivNoNan RealDiv TanhGrad ReluGrad"


def instruction_cases(cases):
    """Those of op_cases.py, each with a selection behind it that takes the value as it is."""
    op_cases.elementwise_cases(cases)
    op_cases.mixed_cases(cases)
    cases.list = [case for case in cases.list
                  if not re.match(r"Softmax|LogSoftmax|L2Loss|Fill|BiasAddGrad", case[0])]
    for dtype in ("half", "bfloat16"):
        for n in (1, 2, 5, 70):
            cases.add(f"AddN/{dtype}/{n}", lambda *inputs: RAW.AddN(inputs=inputs),
                      *(cases.values(dtype, [45]) for _ in range(n)))


def with_selection(make):
    def chosen(x):
        condition = tf1.placeholder_with_default(True, [])
        other = tf1.placeholder_with_default(tf.zeros([], x.dtype), [])
        return RAW.SelectV2(condition=condition, t=x, e=other)
    return lambda *operands: [chosen(x) for x in tf.nest.flatten(make(*operands))]


def random_program(cases, i):
    """Operands of several shapes and types, and up to 40 nodes, of which some are fetched."""
    rng = numpy.random.default_rng((i, 17))
    dtype = str(rng.choice(["float32", "float32", "half", "bfloat16", "float64"]))
    shapes = [SHAPES[int(k)] for k in rng.integers(0, len(SHAPES), int(rng.integers(1, 6)))]
    plan = [(int(rng.integers(0, 20)), *(int(k) for k in rng.integers(0, 1 << 30, 3)))
            for _ in range(int(rng.integers(2, 41)))]
    step = int(rng.integers(3, 9))  # between the values that are fetched

    def make(*operands):
        values, truths = list(operands), [operands[0] > 0]
        for kind, a, b, c in plan:
            x, y = values[a % len(values)], values[b % len(values)]
            try:
                if kind < 7:
                    made = op_cases.raw(UNARY.split()[c % len(UNARY.split())], 1)(x)
                elif kind < 13:
                    op = BINARY.split()[c % len(BINARY.split())]
                    made = op_cases.raw(op, 2)(x, x if op.endswith("Grad") else y)
                elif kind < 15:
                    truths.append(tf.less(x, y))
                    continue
                elif kind < 17:
                    made = RAW.SelectV2(condition=truths[c % len(truths)], t=x, e=y)
                elif kind < 18:
                    wide = ("float64", "int64", "int8", "half")[c % 4]
                    made = tf.cast(tf.cast(tf.clip_by_value(x, -90, 90), wide), x.dtype)
                elif kind < 19:
                    made = tf.add_n([x] * (c % 4 + 1))
                else:
                    made = RAW.ClipByValue(t=x, clip_value_min=tf.cast(-1, x.dtype),
                                           clip_value_max=tf.cast(2, x.dtype))
            except (ValueError, tf.errors.InvalidArgumentError):
                continue  # shapes that do not broadcast
            values.append(made)
        made = values[len(operands):] or [values[0] + 1]
        return [made[-1], *made[::step], *truths[1::3]]
    cases.add(f"random/{i}", make, *(cases.values(dtype, shape, is_special=True)
                                     for shape in shapes))


def long_chain(x, n):
    for i in range(n):
        x = tf.tanh(x) if i % 2 else x * x
    return x


def special_cases(cases):
    """What is beyond a limit of one launch, and what the boundaries are."""
    for n in (2, 63, 64, 65, 200):
        cases.add(f"special/chain/{n}", lambda x, n=n: long_chain(x, n),
                  cases.values("float32", [3001]))
    for n in (3, 24, 25, 40):
        cases.add(f"special/inputs/{n}", lambda *x: tf.tanh(sum(x[1:], x[0])),
                  *(cases.values("float32", [77]) for _ in range(n)))
    for n in (15, 16, 17, 30):  # as many values are alive at once; each is an output
        def fan(x, n=n):
            parts = [tf.tanh(x * float(i + 1)) for i in range(n)]
            return [*parts, sum(parts[1:], parts[0])]
        cases.add(f"special/alive/{n}", fan, cases.values("float32", [513]))
    for shape in ([0], [0, 5], [1], [1, 1, 1], [1023], [1024], [1025], [70001]):
        cases.add(f"special/shape/{shape}", lambda x: tf.tanh(x * x) + x,
                  cases.values("float32", shape))
    rank = [2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3, 1]
    other = [1, 2, 1, 3, 1, 2, 1, 3, 1, 2, 1, 3]
    for n in (2, 5, 6, 7, 8):
        cases.add(f"special/rank/{n}", lambda x, y: tf.tanh(x * y) + y,
                  cases.values("float32", rank[:n]), cases.values("float32", other[:n]))
    cases.add("special/reduce", lambda x, y: tf.tanh(
        tf.reduce_sum(tf.exp(x) * y, 0) + 1) * tf.sigmoid(y), cases.values("float32", [9, 33]),
        cases.values("float32", [33]))
    cases.add("special/operands", lambda x: RAW.ClipByValue(
        t=RAW.LeakyRelu(features=x * x - 1, alpha=0.375), clip_value_min=tf.constant(-0.25),
        clip_value_max=tf.constant(0.5)) + 1, cases.values("float32", [77]))
    cases.add("special/small", lambda x, y: tf.tanh(x * y) + y,
              cases.values("float32", [3]), cases.values("float32", []))
    cases.add("special/unequal", lambda x, y: tf.logical_not(RAW.Equal(
        x=x, y=y, incompatible_shape_error=False)), cases.values("float32", [3]),
        cases.values("float32", [4]))


def run_batch(target, part, metadata=None):
    """The bytes of each case's values in each of some runs; and how many nodes were fused."""
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        fetches, feeds = [], {}
        for _, make, operands in part:
            places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
            feeds.update(zip(places, operands))
            fetches.append(tf.nest.flatten(make(*places)))
        config = tf1.ConfigProto(allow_soft_placement=True)
        with tf1.Session(target, graph=graph, config=config) as session:
            options = tf1.RunOptions(output_partition_graphs=True) if metadata else None
            runs = [session.run(fetches, feeds, options=options if i == 0 else None,
                                run_metadata=metadata if i == 0 else None)
                    for i in range(N_RUNS)]
    return [[[numpy.asarray(x).tobytes() for x in values] for values in run] for run in runs]


def fused_instructions(metadata):
    """The ops of fused programs in the step's graphs that run on the GPU."""
    return [func.name for graph in metadata.partition_graphs for node in graph.node
            if node.op == "_MrFused" and "GPU" in node.device
            for func in node.attr["program"].list.func]


def launches(cluster):
    return sum(int(n) for task in cluster.tasks for n in re.findall(
        r"^millrace_device_work_total{.*GPU.*} (\d+)$", task.page("/metrics"), re.M))


def compare(fusing, plain, part):
    """Failures of some cases, which are one step. A step that fails is halved."""
    metadata = tf1.RunMetadata()
    try:
        together, alone = run_batch(fusing, part, metadata), run_batch(plain, part)
    except (tf.errors.UnavailableError, tf.errors.AbortedError):
        raise  # a session with a daemon that has died would wait for it
    except tf.errors.OpError as error:
        if len(part) == 1:
            return [f"{part[0][0]}: {error.message}"], []
        half = len(part) // 2
        first, second = compare(fusing, plain, part[:half]), compare(fusing, plain, part[half:])
        return first[0] + second[0], first[1] + second[1]
    failures = []
    for i, (name, _, _) in enumerate(part):
        for run in together:
            if run[i] != alone[0][i]:
                k = [a == b for a, b in zip(run[i], alone[0][i])].index(False)
                failures.append(f"{name}: other bits of value {k} where it is fused")
                break
    return failures, fused_instructions(metadata)


def error_failures(target):
    """An error names the node that made it, and not the node that it has become part of."""
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        x, y = (tf1.placeholder(tf.float32, [None]) for _ in range(2))
        culprit = RAW.Mul(x=tf.tanh(x), y=y, name="culprit")
        made = tf.exp(culprit, name="behind")
        with tf1.Session(target, graph=graph) as session:
            right = session.run(made, {x: [1, 2], y: [3, 4]})
            try:
                session.run(made, {x: [1, 2, 3], y: [3, 4]})
                return ["errors: shapes that do not fit give no error"]
            except tf.errors.InvalidArgumentError as error:
                text = error.message
    failures = [] if numpy.allclose(right, numpy.exp(numpy.tanh([1, 2]) * [3, 4])) else [
        f"errors: {right}"]
    if "{{node culprit}}" not in text or "[3] vs. [2]" not in text or "behind" in text:
        failures.append(f"errors: {text}")
    return failures


def told(target, make, feeds, n_runs):
    """The messages of the first run that fails among some."""
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        places = [tf1.placeholder(tf.float32, [None] * x.ndim) for x in feeds]
        fetches = make(*places)
        with tf1.Session(target, graph=graph) as session:
            for _ in range(n_runs):
                try:
                    session.run(fetches, dict(zip(places, feeds)))
                except tf.errors.OpError as error:
                    return error.message
    return "no run has failed"


def chain(x):
    """Launches of their own, and a program of three nodes behind them."""
    for i in range(5):
        x = tf.cumsum(x, axis=0, name=f"apart{i}")
    return tf.tanh(RAW.Mul(x=tf.exp(x, name="a"), y=x, name="b"), name="c")


def too_large(x, y):
    small = tf.tanh(x, name="small")
    culprit = RAW.Mul(x=small, y=y, name="culprit")
    return [small, culprit, tf.exp(culprit, name="behind")]


def attribution_failures(flags):
    """A launch that fails, also when it was held back, is the failure of all nodes that it
    computes; an output that finds no memory is that of its node."""
    failures = []
    x = numpy.linspace(0, 1, 2048, dtype="float32")  # too many to be fed or fetched by a launch
    for fail in ("cuLaunchKernel:6:999", "cuGraphLaunch:1:700"):
        os.environ["MILLRACE_SIM_FAIL"] = fail
        with Cluster(n_workers=1, worker_flags=flags) as cluster:
            text = told(cluster.target, chain, [x], N_RUNS * 2)
        if "[[{{node a}}, {{node b}}, {{node c}}]]" not in text or "apart" in text:
            failures.append(f"attribution/{fail}: {text}")
    del os.environ["MILLRACE_SIM_FAIL"]
    with Cluster(n_workers=1, worker_flags=[*flags, "--gpu-memory", "2M"]) as cluster:
        text = told(cluster.target, too_large, [x[:1000].reshape(1000, 1),
                                                numpy.ones([1, 1000], "float32")], 1)
        if "{{node culprit}}" not in text or "small" in text or "behind" in text:
            failures.append(f"attribution/memory: {text}")
    return failures


def failures_of(listed, kernels, plugin):
    """What is wrong with the cases and with errors; and which ops were fused."""
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    flags = ["--gpu", "require", "--gpu-plugin", plugin]
    failures, fused = [], set()
    with Cluster(n_workers=1, worker_flags=flags) as fusing, \
            Cluster(n_workers=1, worker_flags=flags,
                    master_flags=["--disable-passes", "fuse"]) as plain:
        for first in range(0, len(listed), BATCH):
            found, ops = compare(fusing.target, plain.target, listed[first:first + BATCH])
            failures += found
            fused |= set(ops)
        failures += error_failures(fusing.target)
        together, alone = launches(fusing), launches(plain)
        for cluster in (fusing, plain):
            failures += run_ops.reports(cluster)
            cluster.check()
    print(f"{together} launches where nodes are fused, {alone} where they are not; "
          f"{len(fused)} ops were fused")
    if together >= alone:
        failures.append(NO_GAIN)
    return failures, fused


def planted_failures(listed, kernels, plugin):
    """The bugs that the cases do not find, and how many there are."""
    patches = planted_bugs.patches("fused")
    missed = [] if patches else ["no bugs are planted"]
    for patch in patches:
        name = os.path.basename(patch)
        with tempfile.TemporaryDirectory() as work:
            variant = planted_bugs.kernels_with(patch, kernels, work)
            try:
                found, _ = failures_of(listed, variant, plugin)
                found = [text for text in found if text != NO_GAIN]  # too few cases do that, too
            except (tf.errors.UnavailableError, tf.errors.AbortedError, ClusterError) as error:
                # The device has failed, which ends its worker.
                found = [" ".join(str(error).split())]
        print(f"{name}: {found[0] if found else 'not found'}")
        missed += [] if found else [f"{name}: not found"]
    return missed, len(patches)


# ---- programs that are compiled at run time ----

MOST_RUNS = 2000  # of a case, of which the third asks for the compiler


def compiled(cluster):
    """How many programs were compiled, and how many cannot be."""
    page = "".join(task.page("/metrics") for task in cluster.tasks)
    return [sum(int(n) for n in re.findall(
        rf'^millrace_device_compiled_total{{.*GPU.*outcome="{outcome}".*}} (\d+)$', page, re.M))
            for outcome in ("compiled", "failed")]


def compiled_case(fusing, plain, case):
    """None or what is wrong with a case, and whether its program was compiled."""
    name, make, operands = case
    expected = run_batch(plain.target, [case])[0]
    with tf1.Graph().as_default() as graph, tf.device(GPU):
        places = [tf1.placeholder(tf.as_dtype(x.dtype), x.shape) for x in operands]
        fetches, feeds = tf.nest.flatten(make(*places)), dict(zip(places, operands))
        config = tf1.ConfigProto(allow_soft_placement=True)
        with tf1.Session(fusing.target, graph=graph, config=config) as session:
            before, n_behind = compiled(fusing), 0
            for _ in range(MOST_RUNS):
                found = [numpy.asarray(x).tobytes() for x in session.run(fetches, feeds)]
                if found != expected[0]:
                    return f"{name}: other bits, {n_behind} runs behind its compilation", True
                n_behind += n_behind > 0 or compiled(fusing) != before
                if n_behind == N_RUNS:
                    break
    return None, n_behind > 0


def compiled_failures(listed, kernels, plugin):
    os.environ["MILLRACE_SIM_KERNELS"] = ":".join(kernels)
    flags = ["--gpu", "require", "--gpu-plugin", plugin]
    os.environ["MILLRACE_SIM_COMPILER"] = run_failures.COMPILER
    try:
        with Cluster(n_workers=1, worker_flags=flags) as fusing:
            os.environ.pop("MILLRACE_SIM_COMPILER")
            with Cluster(n_workers=1, worker_flags=flags,
                         master_flags=["--disable-passes", "fuse"]) as plain:
                found = [compiled_case(fusing, plain, case) for case in listed]
                n_compiled, n_failed = compiled(fusing)
                failures = [text for text, _ in found if text] + list(run_ops.reports(fusing))
                fusing.check()
    finally:
        os.environ.pop("MILLRACE_SIM_COMPILER", None)
    print(f"{sum(was for _, was in found)} of {len(listed)} cases ran compiled, in {n_compiled} "
          f"programs; {n_failed} could not be compiled")
    if n_failed or not any(was for _, was in found):
        failures.append("programs are not compiled")
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--compiled", type=int, metavar="N", default=4,
                        help="how many cases run until they are compiled")
    parser.add_argument("--only")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, metavar="N", help="at most this many cases")
    parser.add_argument("--planted", action="store_true", help="find the bugs of planted/ as well")
    arguments = parser.parse_args()
    cases = op_cases.Cases(arguments.seed, arguments.only)
    instruction_cases(cases)
    listed = [(name, with_selection(make), operands) for name, make, operands in cases.list]
    wanted = {name.split("/")[0] for name, _, _ in listed}
    if not arguments.long:
        seen, few = set(), []  # each op and type once
        for case in listed:
            key = tuple(case[0].split("/")[:3 if case[0].startswith("Cast") else 2])
            few += [] if key in seen else [case]
            seen.add(key)
        listed = few
    cases.list = []
    special_cases(cases)
    for i in range(400 if arguments.long else 60):
        random_program(cases, arguments.seed * 1000 + i)
    listed += cases.list
    finding = [case for case in cases.list if case[0] in FINDING]
    if arguments.sample and arguments.sample < len(listed):
        listed = random.Random(arguments.seed).sample(listed, arguments.sample)
    tests = os.path.join(run_ops.BUILD, "tests", "cuda")
    path = os.environ.get("LD_LIBRARY_PATH", "")
    os.environ["LD_LIBRARY_PATH"] = os.path.join(tests, "sim") + (":" + path if path else "")
    os.environ["MILLRACE_SIM_DEVICES"] = "1"
    os.environ["MILLRACE_SIM_SEED"] = str(arguments.seed)
    kernels = glob.glob(os.path.join(run_ops.KERNELS, "gpu_*.so"))
    plugin = os.path.join(run_ops.BUILD, "kernels", "cuda", "millrace-cuda.so")
    failures, fused = failures_of(listed, kernels, plugin)
    failures += attribution_failures(["--gpu-plugin", plugin])
    sampled = [case for case in cases.list if case[0].startswith(("random/", "special/shape/1",
                                                                  "special/rank/5"))]
    random.Random(arguments.seed).shuffle(sampled)
    sampled = sampled[:arguments.compiled]
    failures += compiled_failures(sampled, kernels, plugin) if sampled else []
    never = sorted(wanted - fused - NOT_FUSED)
    if never and not (arguments.only or arguments.sample):
        failures.append(f"never fused: {' '.join(never)}")
    n_planted = 0
    if arguments.planted or arguments.long:
        also = [case for case in finding if not any(case is other for other in listed)]
        missed, n_planted = planted_failures(listed + also, kernels, plugin)
        failures += missed
    print("\n".join(failures))
    n_passed = len(listed) + 1 + len(sampled) + n_planted - len(failures)
    print(f"{n_passed} passed, {len(failures)} failed")
    return bool(failures)


# of run_ops.py, what no instruction computes
NOT_FUSED = set("ZerosLike OnesLike chain Erf Erfc Lgamma Digamma BesselI0 BesselI1 BesselI0e "
                "BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK1 BesselK0e BesselK1e BesselY0 "
                "BesselY1 Erfinv Ndtri Dawsn Expint Spence FresnelCos FresnelSin Zeta Polygamma "
                "Igamma Igammac IgammaGradA RandomGammaGrad Conj".split())

if __name__ == "__main__":
    sys.exit(main())
