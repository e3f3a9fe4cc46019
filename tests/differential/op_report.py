"""What a run of run_kernels.py compared, op by op: docs/op_report.md.

A case counts for every op whose node stands in its graph (or in a function of it). Backward: the
client's own gradient of the case's fetches with respect to its floating constants, run on both
sides; it counts for the ops that lie between them and have a gradient function. A dtype is an op's
type attr with its value; which of them TensorFlow computes on a CPU the wheel says (tf_kernels.py),
which we do our tables (dump_tables). Ops that the master expands and no kernel computes are
compared by run_cluster.py on a cluster; its programs are counted here by their graphs.
"""

import collections
import json
import os
import re
import subprocess
import sys

import oracle
import tensorflow as tf
import tf_kernels
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry, ops

sys.path.insert(0, os.path.join(oracle.ROOT, "tests", "tools"))

import op_gaps  # noqa: E402

# What the comparison leaves open where it differs, by the case's option "ignore": TensorFlow's
# behaviour that is no answer to compare with.
EXPLAINED = {
    "values": "values are random or the memory as it was: success, dtype and shape are compared",
    "shapes": "the static shape contradicts the value: values are compared",
}

# By how a case's name begins, a pattern.
BACKWARD_EXPLAINED = {
    "FusedBatchNorm": "the gradient of a plain sum by the scale is nothing but rounding: the "
                      "normalised values cancel",
    r"BiasAdd(V1)?/(bfloat16|float16)/": "BiasAddGrad adds up in the 16 bits of its type, where "
                                         "256 + 1 is 256 (bfloat16): many rows come to less than "
                                         "their sum",
    "Digamma/float32/long": "Zeta of floats sums nine terms and expands about the ninth: NaN for q "
                            "near -9, where that is near 0",
    r"MaxPool(3D)?Grad/.*[(\[]1, 1(, 1)?[)\]]SAME": "MaxPoolGradGrad and MaxPool3DGradGrad clear "
                                                    "their result before they read the gradient, "
                                                    "in whose memory it lies when shapes are alike "
                                                    "and nobody else holds it: zeros",
}

# By how a case's name begins, a pattern: what TensorFlow's GPU kernels, and ours, answer otherwise
# than those of a CPU, with which a case is compared.
GPU_EXPLAINED = {
    r"\w*(Div|Mod)/u?int\d+/(scalar zero|zero|specials)$":
        "a kernel cannot fail: the quotient by an integer zero has all bits set",
    r"Pow/int\d+/negative$": "a kernel cannot fail: a negative integer power is rounded to zero",
    r"SparseSoftmaxCrossEntropyWithLogits/wrong/.*\[(\d+, -\d+|[35], 0)\]$":
        "a kernel cannot fail: a label outside of the classes gives NaN",
    r"(Dense)?Bincount/wrong/.*-1":
        "the host cannot read the values: one below zero is in no bin",
    r"HistogramFixedWidth/special/\[nan":
        "the host cannot read the values: a NaN is in no bin",
    r"Segment\w+/wrong/.*\[(0, 2, 1|-1, 0, 0|0, -1, 0)\]$":
        "TensorFlow's documentation: ids that are not sorted are no error on a GPU, and the result "
        "is not specified",
    r"SparseSegment\w+/wrong/\(3, 2\)/\[0, (-1|1|3)\]/\[(0, 0|-1, 0|1, 0)\]$":
        "the host cannot read ids that are not sorted, and rows out of range, which count as zeros",
    r"SparseSegment\w+WithNumSegments/wrong/2$":
        "the host cannot read the last id: segments beyond their number are left out",
    r"SparseSegment\w+Grad/wrong/\[0, (-1|4)\]/\[0, 1\]/4$|SparseSegment\w+Grad/wrong/\[0, 1\]/"
    r"\[(-1, 0|0, 2)\]/4$|SparseSegment\w+GradV2/(\[(-1|4)\]/\[0\]|\[0\]/\[(-1|3)\])/4$":
        "the host cannot read ids and indices: what is out of range is left out",
    r"SparseSliceGrad/elsewhere$|SparseFillEmptyRowsGrad/\[(3|-1)\]/\(3,\)$":
        "the host cannot read indices: a gradient without an entry is left out",
    r"Parameterized/float\d+/":
        "each number has a stream of its own; tests/cuda/run_ops.py compares distributions",
    r"Parameterized/((negative )?deviation|bounds|crossed|infinite|nan)$":
        "the host cannot read the parameters: wrong ones give NaN",
}


# Cases that agree bit by bit on a CPU, and on a simulated device, which has the CPU's functions.
# The logarithm and the sine of a GPU have other last bits.
GPU_ROUNDED = r"\w*(Normal|Gamma)\w*/"


def is_rounded_on_gpu(name):
    return bool(re.match(GPU_ROUNDED, name))


def gpu_reason(name):
    """Why a case may differ on a GPU, or None."""
    return next((why for pattern, why in GPU_EXPLAINED.items() if re.match(pattern, name)), None)


def backward_reason(name):
    """Why the gradient of a case may differ, or None."""
    return next((why for pattern, why in BACKWARD_EXPLAINED.items() if re.match(pattern, name)),
                None)


class Tally:
    def __init__(self):
        self.forward = self.errors = self.backward = self.refused = self.wider = self.explained = 0
        self.differs, self.dtypes = [], set()


def _nodes(graph):
    """(op, attrs) of every node, those of functions included."""
    graphdef = graph.as_graph_def()
    for node in graphdef.node:
        yield node
    for function in graphdef.library.function:
        yield from function.node_def


def _dtypes(node):
    definition = op_def_registry.get(node.op)
    for attr in definition.attr if definition else ():
        if attr.type not in ("type", "list(type)"):
            continue
        value = node.attr[attr.name] if attr.name in node.attr else attr.default_value
        for number in value.list.type or [value.type]:
            if number in types_pb2.DataType.values() and number:
                yield attr.name, tf.as_dtype(number % 100).name


class OpReport:
    def __init__(self):
        self.ops, self.cases, self.reasons = collections.defaultdict(
            Tally), collections.Counter(), collections.defaultdict(set)

    def case(self, name, mode, graph, outcome, options):
        """outcome: agree, fail alike, differs, refused, wider, explained, left open; see
        oracle.run_case."""
        explained = outcome in ("explained", "left open")
        self.cases["agree" if outcome == "left open" else outcome] += 1
        self.cases["left open"] += explained
        if explained:
            self.reasons[options.get("explained") or EXPLAINED[options["ignore"]]].add(
                name.split("/")[0])
        nodes = list(_nodes(graph)) if graph else []
        for op in {node.op for node in nodes}:
            tally = self.ops[op]
            tally.forward += outcome in ("agree", "left open", "fail alike")
            tally.errors += outcome == "fail alike"
            tally.wider += outcome == "wider"
            tally.explained += explained
            if outcome == "differs":
                tally.differs.append(f"{name} [{mode}]")
        if outcome in ("agree", "left open"):
            for node in nodes:
                self.ops[node.op].dtypes.update(_dtypes(node))
        if outcome == "refused":
            op = name.split("/")[0]
            self.ops[op if op_def_registry.get(op) else "(others)"].refused += 1

    def backward_case(self, name, differentiated, outcome):
        self.cases[f"backward {outcome}"] += 1
        if outcome == "explained":
            self.cases["left open"] += 1
            self.reasons[backward_reason(name)].add(name.split("/")[0] + " backward")
        for op in differentiated:
            self.ops[op].backward += outcome in ("agree", "fail alike")
            if outcome == "differs":
                self.ops[op].differs.append(f"{name} [backward]")

    def programs(self, graphs):
        """Ops in the graphs of run_cluster.py's programs, with how many graphs each is in."""
        counts = collections.Counter()
        for graph in graphs:
            counts.update({node.op for node in _nodes(graph)})
        return counts

    # ---- the page ----

    def write(self, path, command, program_counts):
        build = os.path.join(oracle.ROOT, "build")
        kernels = op_gaps.our_kernels(build)
        missing = {op: op_gaps.missing_types(op, rows) for op, rows in kernels.items() if rows}
        lines = [self._row(op, kernels[op], missing.get(op, []), program_counts)
                 for op in sorted(kernels) if not op.startswith("_")]
        with_kernel = [op for op in kernels if kernels[op] and not op.startswith("_")]
        compared = [op for op in with_kernel if self.ops[op].forward]
        rest = sorted(op for op in kernels if not op.startswith("_") and not self.ops[op].forward)
        on_cluster = [op for op in rest if program_counts[op]]
        neither = [op for op in rest if not program_counts[op]]
        differs = self.cases["differs"] + self.cases["backward differs"]
        said = self.cases["agree"] + self.cases["fail alike"] + self.cases[
            "backward agree"] + self.cases["backward fail alike"] + self.cases[
                "explained"] + self.cases["backward explained"] + differs
        explained = self.cases["left open"] + self.cases["wider"]
        text = [
            "# Kernels against TensorFlow's, op by op",
            "",
            f"Written by `{command}`. tests/differential/op_report.py explains each column.",
            "",
            f"**{said:,} comparisons: {differs} unexplained differences, {explained} explained "
            f"({100 * explained / max(said, 1):.2f} %).** "
            f"{self.cases['agree']:,} agree, {self.cases['fail alike']:,} fail with the same code, "
            f"{self.cases['backward agree']:,} gradients agree. "
            f"{self.cases['refused']:,} cases say nothing: TensorFlow's client refuses to build "
            "them.",
            "",
            f"{len(compared)} of {len(with_kernel)} ops with a kernel are compared in this run, "
            f"{sum(1 for op in kernels if self.ops[op].backward)} backward too. "
            f"{len(on_cluster)} more ops are only in programs of run_cluster.py (control flow, "
            f"calls, iterators): {', '.join(on_cluster) or 'none'}. "
            f"In neither: {', '.join(neither) or 'none'}.",
            "",
            f"Explained ({self.cases['wider']} of them: TensorFlow says UNIMPLEMENTED where we "
            "compute):",
            "",
            "| what TensorFlow does | in cases of |",
            "|---|---|",
            *(f"| {why} | {', '.join(sorted(names))} |" for why,
              names in sorted(self.reasons.items())),
            "",
            "| op | forward | of them errors | backward | dtypes: ours of TensorFlow's | compared "
            "| programs | left open |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
        ]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(text))
        return len(compared), len(with_kernel), neither

    def _row(self, op, rows, missing, program_counts):
        tally = self.ops[op]
        theirs = _theirs(op)
        lost = {pair for combination in missing for pair in combination if len(combination) == 1}
        ours = (f"{len(theirs) - len(lost)} of {len(theirs)}" if rows and theirs else "" if rows
                else "no kernel: expanded")
        if missing:
            ours += " (not " + ", ".join(" ".join(f"{attr} {name}" for attr, name in combination)
                                         for combination in missing[:4]) + (
                                             ", …" if len(missing) > 4 else "") + ")"
        notes = []
        if tally.differs:
            notes.append(f"**{len(tally.differs)} differ: {tally.differs[0]}**")
        notes += [f"{n} {word}" for n, word in ((tally.explained, "explained"),
                                                (tally.wider, "only ours computes"),
                                                (tally.refused, "refused by the client")) if n]
        seen = len(tally.dtypes & theirs)
        numbers = [tally.forward, tally.errors, tally.backward]
        return (f"| {op} | {' | '.join(str(n or '') for n in numbers)} | {ours} | "
                f"{f'{seen} of {len(theirs)}' if theirs else ''} | {program_counts[op] or ''} | "
                f"{', '.join(notes)} |")


def _theirs(op):
    """The (attr, dtype) pairs that TensorFlow's CPU kernels name and a client can send."""
    return {pair for combination in tf_kernels.cpu_combinations(op) for pair in combination
            if pair[1] in tf_kernels.cpu_dtypes(op, pair[0])}


# ---- backward ----


def _between(graph, ys, xs):
    """The ops on a way from xs to ys that have a gradient function."""
    forward, backward = {x.op for x in xs}, {y.op for y in ys}
    every = graph.get_operations()
    for op in every:
        if any(t.op in forward for t in op.inputs):
            forward.add(op)
    for op in reversed(every):
        if op in backward:
            backward.update(t.op for t in op.inputs)
    found = set()
    for op in every:
        if op in forward and op in backward and op.type not in ("Const", "PlaceholderWithDefault"):
            try:
                if ops.get_gradient_function(op) is not None:
                    found.add(op.type)
            except LookupError:
                pass
    return found


TENSORFLOW_MAX_RANK = 6  # beyond, its kernels refuse what gradients are made of


def differentiate(graph, steps):
    """(fetches, ops) of the client's gradient of a case's floating results by its floating
    constants; None where there is none to take, and for tensors without elements: TensorFlow leaves
    the memory of their gradients as it was."""
    if len(steps) != 1 or steps[0].feeds or steps[0].targets:
        return None

    def is_smooth(tensor):
        return tensor.dtype.base_dtype == tensor.dtype and (
            tensor.dtype.is_floating or tensor.dtype.is_complex)

    def is_nothing(tensor):
        return tensor.shape.num_elements() == 0 or (tensor.shape.rank or 0) > TENSORFLOW_MAX_RANK

    ys = [tensor for tensor in steps[0].fetches if is_smooth(tensor)]
    if any(op.type == "Const" and op.outputs[0].shape.num_elements() == 0
           for op in graph.get_operations()):
        return None
    xs = [op.outputs[0] for op in graph.get_operations()
          if op.type in ("Const", "PlaceholderWithDefault") and is_smooth(op.outputs[0])]
    if not ys or not xs or any(map(is_nothing, xs + ys)):
        return None
    types = _between(graph, ys, xs)
    if not types:
        return None
    try:
        with graph.as_default():
            gradients = [g for g in tf.gradients(ys, xs) if g is not None]
    except (LookupError, ValueError, TypeError, NotImplementedError, AttributeError, AssertionError,
            RuntimeError, IndexError, tf.errors.OpError):
        return None  # what the client's gradient functions do not take
    fetches = []
    for gradient in gradients:
        fetches += [gradient.values, gradient.indices] if isinstance(
            gradient, tf.IndexedSlices) else [gradient]
    return (fetches, types) if fetches else None
