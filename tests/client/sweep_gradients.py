#!/usr/bin/env python3
"""Compares TF_AddGradients of our library with tf.gradients of TensorFlow, for every op that has a
gradient there.

    sweep_gradients.py [FAMILY...] [--only TEXT] [--long] [--seed N] [--sample N] [--table FILE]

The graphs are the cases of tests/differential (cases_*.py). The client library adds its gradients
to a case's GraphDef, TensorFlow imports the result and adds its own, and one TensorFlow session
computes both from the same forward values, so a difference is one of the formulas. What TensorFlow
refuses says nothing. Without --long a seeded sample, which has each op as long as it suffices. The
last line is "N passed, N failed[, N skipped]".
"""
import argparse
import collections
import glob
import importlib
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
DIFFERENTIAL = os.path.join(os.path.dirname(HERE), "differential")
sys.path[:0] = [HERE, DIFFERENTIAL]

import oracle  # noqa: E402
import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402
from c_library import Builder, Output, Refused, millrace  # noqa: E402
from tensorflow.python.framework import ops  # noqa: E402
from tensorflow.python.ops import map_ops  # noqa: E402,F401  (registers gradients)

tf1 = tf.compat.v1
LEAVES = ("Const", "Placeholder", "PlaceholderWithDefault")
TOLERANCE = {"float16": 2e-2, "bfloat16": 6e-2, "float32": 1e-4, "float64": 1e-9,
             "complex64": 1e-4, "complex128": 1e-9}
SAMPLE_PER_FAMILY = 6
MAX_ELEMENTS = 1 << 20

# By how a case's name begins: why the gradient differs.
EXPLAINED = {
    r"Matrix(Diag|DiagPart|SetDiag)V2/":
        "TensorFlow aligns the diagonals of the second version as those of the third",
    r"MatrixSolveLs/complex":
        "TensorFlow transposes a product whose adjoint is meant",
    r"MatrixSolveLs/wrong/\(2, 2\)\(2, 1\)0$":
        "the matrix is all ones, and rounding alone makes its singular square invertible: both "
        "gradients are differences of rounded numbers near 4e6",
    r"RGBToHSV/float16/\(2, 5, 7, 3\)$":
        "in TensorFlow 1 / (blue - red)², which this pixel does not need, is infinite as a half, "
        "and 0 times it is NaN",
    r"BlockLSTMV2/": "TensorFlow takes the derivative of the first version, whose gates have "
                     "another order",
    r"RFFT/complex\d+/\(2,\)1": "TensorFlow counts the only frequency of one number twice",
    r"program/(flow|write dtype)$":  # the flow of a TensorArray, differentiated by itself
        "TensorFlow makes the array of gradients after the write that nobody reads",
    r"MaxPool3DGrad/.*\(1, 1, 1\)SAME":
        "TensorFlow's kernel of the second derivative writes over its input, which has its shape",
    r"SparseSegment(Sum|Mean|SqrtN)(WithNumSegments)?/\w+/\(3, 2\)0$":
        "TensorFlow's kernel leaves the memory as it was where nothing is gathered",
    r"SparseMatrixSparseMatMul/":
        "TensorFlow leaves out elements whose gradient is 0, and so changes the number of elements",
}

# TensorFlow's kernel of the gradient reads outside of memory there.
CRASHES = r"CropAndResize/change"


def explained(name):
    return next((why for pattern, why in EXPLAINED.items() if re.match(pattern, name)), None)



def registered():
    """{op: has it a gradient, or the word that it has none}"""
    return {op: row["type"] is not None for op, row in ops.gradient_registry._registry.items()}


def is_smooth(tensor):
    """Tensors without elements are left out: TensorFlow leaves the memory of their gradients as it
    was."""
    if 0 in (tensor.shape.as_list() if tensor.shape.rank else []):
        return False
    return tensor.dtype in (tf.half, tf.bfloat16, tf.float32, tf.float64, tf.complex64,
                            tf.complex128)


def users_of(graph):
    users = collections.defaultdict(set)
    for op in graph.get_operations():
        for tensor in op.inputs:
            users[tensor.op].add(op)
    return users


def reach(start, step):
    seen, stack = set(start), list(start)
    while stack:
        for op in step(stack.pop()):
            if op not in seen:
                seen.add(op)
                stack.append(op)
    return seen


def gradient_like(y):
    """Another gradient for each element of y, whatever the shape is in the step."""
    if y.shape.is_fully_defined() and y.shape.num_elements() < MAX_ELEMENTS:
        n = y.shape.num_elements()
        angle = tf.constant(numpy.arange(n).reshape(y.shape) * 0.7 + 0.5, tf.float64)
    else:
        hidden = tf1.placeholder_with_default(y, None)
        numbers = tf.reshape(tf.range(tf.size(hidden)), tf.shape(hidden))
        angle = tf.cast(numbers, tf.float64) * 0.7 + 0.5
    if y.dtype.is_complex:
        return tf.cast(tf.complex(tf.sin(angle), tf.cos(angle)), y.dtype)
    return tf.cast(tf.sin(angle) + 1.25, y.dtype)


class Problem:
    """What is differentiated: names of tensors, so that it is the same in each graph."""

    def __init__(self, graph, step):
        ys = [y for y in dict.fromkeys(step.fetches) if isinstance(y, tf.Tensor) and is_smooth(y)
              and not y.dtype._is_ref_dtype]
        needed = reach([y.op for y in ys], lambda op: [t.op for t in op.inputs])
        leaves = [op.outputs[0] for op in graph.get_operations()
                  if op in needed and op.type in LEAVES and is_smooth(op.outputs[0])]
        users = users_of(graph)
        self.path = reach([x.op for x in leaves], lambda op: users[op]) & needed
        ys = [y for y in ys if y.op in self.path]
        self.ops = {op.type for op in self.path} - set(LEAVES)
        with graph.as_default():
            self.dys = [gradient_like(y).name for y in ys]
        self.xs, self.ys = [x.name for x in leaves], [y.name for y in ys]


def our_gradients(graph_def, problem):
    """(the GraphDef with our gradients, their names or None)"""
    b = Builder(millrace())
    try:
        buffer = b.c.TF_NewBufferFromString(graph_def, len(graph_def))
        options = b.c.TF_NewImportGraphDefOptions()
        try:
            b.call("TF_GraphImportGraphDef", b.graph, buffer, options)
        finally:
            b.c.TF_DeleteImportGraphDefOptions(options)
            b.c.TF_DeleteBuffer(buffer)

        def of(names):
            pairs = [name.split(":") for name in names]
            return [Output(b.c.TF_GraphOperationByName(b.graph, op.encode()), int(i))
                    for op, i in pairs]
        found = b.gradients(of(problem.ys), of(problem.xs), of(problem.dys), prefix="ours")
        return b.graph_def(), [o and f"{b.name(o.oper)}:{o.index}" for o in found]
    finally:
        b.close()


def differs(ours, theirs):
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, TensorFlow has {theirs.shape}"
    tolerance = TOLERANCE[theirs.dtype.name]
    wide = numpy.complex128 if theirs.dtype.kind == "c" else numpy.float64
    a, b = ours.astype(wide), theirs.astype(wide)
    largest = numpy.max(numpy.abs(b), initial=0, where=numpy.isfinite(b))
    same = numpy.isclose(a, b, rtol=tolerance, atol=tolerance * max(1, largest), equal_nan=True)
    if numpy.all(same):
        return None
    at = tuple(numpy.argwhere(~same)[0])
    return f"at {list(map(int, at))}: {ours[at]!r}, TensorFlow has {theirs[at]!r}"


class Skipped(Exception):
    """TensorFlow has no answer."""


def their_gradients(graph, problem):
    def of(names):
        return [graph.get_tensor_by_name(name) for name in names]
    try:
        with graph.as_default():
            found = tf1.gradients(of(problem.ys), of(problem.xs), of(problem.dys))
            return [None if dx is None else tf.convert_to_tensor(dx) for dx in found]
    except Exception as error:  # many kinds: shapes and numbers that its Python cannot handle
        raise Skipped(f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}")


def run_steps(graph, problem, steps, at, fetches):
    """The values of the fetches in step `at`, after the steps before it."""
    with tf1.Session(graph=graph, config=oracle._session_config()) as session:
        for i, step in enumerate(steps[: at + 1]):
            feeds = {key.name: value for key, value in step.feeds.items()}
            names = [t.name for t in step.fetches]
            targets = [t.op.name if hasattr(t, "op") else t.name for t in step.targets]
            if i < at:
                session.run([names, targets], feeds)
        return session.run([names, targets, fetches], feeds)[2]


def compare_step(graph_def, problem, steps, at):
    """None, or what differs."""
    base = tf.Graph()
    try:
        with base.as_default():
            tf.import_graph_def(graph_def, name="")
    except ValueError as error:
        raise Skipped(f"import: {error}")
    theirs = their_gradients(base, problem)
    try:
        their_values = run_steps(base, problem, steps, at, [dx for dx in theirs if dx is not None])
    except (tf.errors.OpError, ValueError, TypeError, UnicodeDecodeError) as error:
        raise Skipped(f"step: {str(error).splitlines()[0]}")
    try:
        with_ours, names = our_gradients(graph_def.SerializeToString(), problem)
    except Refused as refused:
        return f"refused: {refused}"
    for x, name, dx in zip(problem.xs, names, theirs):
        if (name is None) != (dx is None):
            return f"gradient by {x}: ours is {name}, TensorFlow's {dx}"
    both = tf.Graph()
    with both.as_default():
        tf.import_graph_def(tf1.GraphDef.FromString(with_ours), name="")
    their_values = iter(their_values)
    again = their_gradients(both, problem)
    try:
        values = run_steps(both, problem, steps, at, [
            [both.get_tensor_by_name(name), dx] for name, dx in zip(names, again) if name])
    except tf.errors.OpError as error:
        lines = [line for line in error.message.splitlines() if line]
        return f"step with ours: {' '.join(lines[:4])}"
    for (ours, dx), x in zip(values, [x for x, name in zip(problem.xs, names) if name]):
        difference = differs(numpy.asarray(ours), numpy.asarray(dx))
        if difference:
            return f"gradient by {x}: {difference}"
    return None


class Tally:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], 0
        self.by_op = collections.defaultdict(lambda: [0, 0, 0])
        self.reasons = collections.Counter()

    def note(self, names, outcome):
        for name in names:
            self.by_op[name][outcome] += 1


def run_case(name, build, tally, verbose):
    if verbose:
        print("case", name, flush=True)
    try:
        graph, steps = oracle._build(build, "static")
    except (ValueError, tf.errors.OpError):
        return
    for at, step in enumerate(steps):
        try:
            problem = Problem(graph, step)
        except ValueError:  # a static shape that its Python cannot have
            continue
        if not problem.ys:
            continue
        try:
            difference = compare_step(graph.as_graph_def(), problem, steps, at)
        except Skipped as reason:
            tally.skipped += 1
            tally.note(problem.ops, 2)
            if verbose:
                print("skip", name, reason)
            continue
        tally.note(problem.ops, bool(difference))
        if difference and explained(name):
            tally.skipped += 1
        elif difference:
            tally.failed.append(f"{name}: {difference}")
            print("FAIL", tally.failed[-1], flush=True)
        else:
            tally.passed += 1


def sampled(cases, rng, n):
    """n cases in random order, of which each op has one as long as n suffices."""
    rng.shuffle(cases)
    seen, first, rest = set(), [], []
    for case in cases:
        op = case[0].split("/")[0]
        (rest if op in seen else first).append(case)
        seen.add(op)
    return (first + rest)[:n]


def main():
    parser = argparse.ArgumentParser(description="compare gradients with TensorFlow's")
    parser.add_argument("families", nargs="*", help="cases_array ...; default all")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--long", action="store_true", help="all cases, not a sample")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=SAMPLE_PER_FAMILY,
                        help="cases of a family without --long")
    parser.add_argument("--verbose", action="store_true", help="say why cases are skipped")
    parser.add_argument("--table", metavar="FILE", help="write what was compared, op by op")
    arguments = parser.parse_args()
    known, tally = registered(), Tally()
    families = arguments.families or sorted(
        os.path.basename(path)[:-3] for path in glob.glob(os.path.join(DIFFERENTIAL, "cases_*.py")))
    for family in families:
        cases = [case for case in importlib.import_module(family).cases()
                 if (not arguments.only or arguments.only in case[0])
                 and known.get(case[0].split("/")[0], True) and not re.match(CRASHES, case[0])]
        if not arguments.long:
            cases = sampled(cases, random.Random(f"{arguments.seed} {family}"), arguments.sample)
        before = tally.passed, len(tally.failed), tally.skipped
        for case in cases:
            run_case(case[0], case[1], tally, arguments.verbose)
        print(f"{family:20} {tally.passed - before[0]:6} passed "
              f"{len(tally.failed) - before[1]:4} failed {tally.skipped - before[2]:4} skipped",
              flush=True)
    if arguments.table:
        with open(arguments.table, "w", encoding="utf-8") as f:
            for op in sorted(op for op in known if known[op]):
                f.write(f"{op} {tally.by_op[op]}\n")
    print(f"{tally.passed} passed, {len(tally.failed)} failed"
          + (f", {tally.skipped} skipped" if tally.skipped else ""))
    sys.exit(1 if tally.failed or not tally.passed else 0)


if __name__ == "__main__":
    main()
