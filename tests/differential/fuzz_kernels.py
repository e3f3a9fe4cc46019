#!/usr/bin/env python3
"""Breaks the kernels' cases (cases_*.py) a little and runs them: other shapes, numbers at the
limits of their types, NaN, changed bytes.

    fuzz_kernels.py [FAMILY...] [--only TEXT] [--n N] [--first SEED] [--mutants M] [--eval PATH]

Each seed gives one case and M mutants of it. The results do not matter. The evaluator must live
(use a build with sanitizers, build-asan/tests/tools/graph_eval) and must never say INTERNAL.
Mutants that get no answer in time are printed: some ask for much work, others reveal an endless
loop. Constants are hidden from shape functions, so only kernels can refuse them. --first SEED --n 1
runs one again. The last line is "N passed, N failed".
"""

import argparse
import collections
import glob
import importlib
import os
import random
import re
import signal
import sys

os.environ.setdefault("ASAN_OPTIONS", "allocator_may_return_null=1")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy  # noqa: E402
import oracle  # noqa: E402
import tensorflow as tf  # noqa: E402
from run_kernels import default_evaluator  # noqa: E402
from tensorflow.core.framework import graph_pb2  # noqa: E402
from tensorflow.python.framework import op_def_registry  # noqa: E402

LIMIT_S = 20
SLOW, CRASHED = -1, -2  # beside codes
MAX_ELEMENTS = 1 << 16
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 255.0, 1e-30, 1e30, -1e30, float("inf"), float("-inf"),
         float("nan"))
WHOLE = (0, 1, 2, 3, -1, -2, 7, 127, 255, 1 << 16, 2**31 - 1, -(2**31), 2**31, 2**62, -(2**63))
HELD = {"dtype", "shape", "_output_shapes"}  # attrs that only say what a constant is


# ---- constants ----


def random_numbers(rng, dtype, n):
    if dtype.kind == "b":
        values = [rng.random() < 0.5 for _ in range(n)]
    elif dtype.kind in "iu":
        info = numpy.iinfo(dtype)
        ends = [v for v in WHOLE if info.min <= v <= info.max] + [info.min, info.max]
        values = [rng.choice(ends) if rng.random() < 0.5 else rng.randrange(0, 5) for _ in range(n)]
    else:
        values = [rng.choice(REALS) for _ in range(n)]
    with numpy.errstate(all="ignore"):
        return numpy.array(values, object).astype(dtype)


def other_shape(rng, shape):
    shape = list(shape)
    what = rng.randrange(4)
    if what == 0 or not shape:
        shape.insert(rng.randrange(len(shape) + 1), rng.choice((0, 1, 1, 2)))
    elif what == 1:
        shape.pop(rng.randrange(len(shape)))
    else:
        at = rng.randrange(len(shape))
        shape[at] = max(0, rng.choice((0, 1, shape[at] - 1, shape[at] + 1, 2 * shape[at])))
    return shape


def turn_bytes(rng, text):
    """Something else than text: names of files stay what they are."""
    if b"/" in text or len(text) < 8:
        return text
    text = bytearray(text)
    for _ in range(rng.choice((1, 1, 2, 8))):
        text[rng.randrange(len(text))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    return bytes(text[: rng.randrange(len(text))] if rng.random() < 0.2 else text)


def mutate_tensor(rng, proto):
    """Replaces the proto's contents, mostly. Answers whether it could."""
    dtype = tf.as_dtype(proto.dtype)
    if dtype == tf.string:
        values = numpy.vectorize(lambda text: turn_bytes(rng, text), otypes=[object])(
            oracle._make_array(proto)) if proto.tensor_shape.dim or proto.string_val else None
        if values is None or not values.size:
            return False
    elif dtype.is_quantized or dtype in (tf.resource, tf.variant):
        return False
    else:
        values = tf.make_ndarray(proto)
        shape = other_shape(rng, values.shape) if rng.random() < 0.4 else values.shape
        n = int(numpy.prod(shape, dtype=object))
        if n > MAX_ELEMENTS:
            return False
        if n and values.size and rng.random() < 0.7:  # most of it as it was
            new = numpy.resize(values.ravel(), n)
            at = rng.sample(range(n), min(n, rng.choice((0, 1, 1, 3))))
            if values.dtype.kind in "biuf" or values.dtype.name == "bfloat16":
                new[at] = random_numbers(rng, values.dtype, len(at))
        else:
            new = random_numbers(rng, values.dtype,
                                 n) if values.dtype.kind != "c" else numpy.resize(
                                     values.ravel(), n) if values.size else numpy.zeros(
                                         n, values.dtype)
        values = new.reshape(shape)
    proto.CopyFrom(tf.make_tensor_proto(values, dtype))
    return True


# ---- attrs ----


def mutate_attr(rng, value):
    kind = value.WhichOneof("value")
    if kind == "i":
        value.i = rng.choice(WHOLE)
    elif kind == "f":
        value.f = rng.choice(REALS)
    elif kind == "b":
        value.b = not value.b
    elif kind == "list" and value.list.i:
        value.list.i[rng.randrange(len(value.list.i))] = rng.choice(WHOLE)
    elif kind == "list" and value.list.f:
        value.list.f[rng.randrange(len(value.list.f))] = rng.choice(REALS)
    else:
        return False
    return True


def mutate(rng, graph):
    """One to three changes. Counts of arguments stay: the graph would not be one."""
    changes = rng.choice((1, 1, 2, 3))
    for _ in range(50):
        node = rng.choice(graph.node)
        if node.op == "Const":
            changes -= mutate_tensor(rng, node.attr["value"].tensor)
        else:
            definition = op_def_registry.get(node.op)
            counts = {arg.number_attr for arg in definition.input_arg} if definition else set()
            names = sorted(set(node.attr) - HELD - counts)
            if names and rng.random() < 0.5:
                changes -= mutate_attr(rng, node.attr[rng.choice(names)])
        if changes <= 0:
            return


# ---- running ----


def on_alarm(signum, frame):
    raise TimeoutError


def run(evaluator, graph, steps):
    """(the first code, what is wrong or None)."""
    signal.alarm(LIMIT_S)
    try:
        results = evaluator.run(graph.SerializeToString(), steps)
    except TimeoutError:
        evaluator.process.kill()
        evaluator.process.wait()
        evaluator.process = None
        return SLOW, None
    except oracle.Crashed as error:
        return CRASHED, str(error)
    finally:
        signal.alarm(0)
    codes = [result[0] for result in results if result[0]]
    wrong = [result[1] for result in results if result[0] == tf.errors.INTERNAL]
    return codes[0] if codes else 0, f"INTERNAL: {wrong[0]}" if wrong else None


def graph_of(case):
    """The case's graph with its constants hidden, or None where it cannot be built so."""
    for mode in ("hidden", "ranked", "static"):
        try:
            graph, steps = oracle._build(case[1], mode)
            return graph.as_graph_def(), oracle._wire_steps(steps)
        except (ValueError, tf.errors.OpError):
            continue
    return None


def main():
    parser = argparse.ArgumentParser(description="run broken kernels' cases")
    parser.add_argument("families", nargs="*", help="cases_array ...; default all")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--n", type=int, default=300, help="cases of each family")
    parser.add_argument("--mutants", type=int, default=5, help="of each case")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--eval", default=default_evaluator(),
                        help="the evaluator; default build/tests/tools/graph_eval")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, on_alarm)
    evaluator = oracle.Evaluator(arguments.eval)
    passed, failed = 0, 0
    for family in arguments.families or sorted(os.path.basename(path)[:-3]
                                               for path in glob.glob(
                                                   os.path.join(HERE, "cases_*.py"))):
        cases = [case for case in importlib.import_module(family).cases() if not arguments.only
                 or re.search(arguments.only, case[0])]
        codes = collections.Counter()
        for seed in range(arguments.first, arguments.first + arguments.n if cases else 0):
            rng = random.Random(f"{family} {seed}")
            case = rng.choice(cases)
            built = graph_of(case)
            for mutant in range(arguments.mutants if built else 0):
                graph = graph_pb2.GraphDef.FromString(built[0].SerializeToString())
                mutate(rng, graph)
                code, problem = run(evaluator, graph, built[1])
                codes[code] += 1
                passed, failed = passed + (not problem), failed + bool(problem)
                if code == SLOW:
                    print(f"slow {family}, seed {seed}, mutant {mutant} of {case[0]}: no answer in "
                          f"{LIMIT_S} s", flush=True)
                if problem:
                    print(f"FAIL {family}, seed {seed}, mutant {mutant} of {case[0]}: {problem}",
                          flush=True)
        print(f"{family:20} {sum(codes.values()):6} mutants, codes {dict(sorted(codes.items()))}",
              flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
