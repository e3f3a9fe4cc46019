#!/usr/bin/env python3
"""Compares static shapes of whole graphs with TensorFlow's: only kernels of small constants run.

    run_shapes.py [FAMILY...] [--long] [--only TEXT] [--seed N] [--mutants N] [--bin PATH]
    [--messages] [--trace]

Every graph of cases_*.py, programs_*.py and random_graphs.py goes to TensorFlow's import, which
infers them again (hints of the graph's maker are removed), and to ours
(tests/tools/graph_shapes.c). Each output is one of
    equal          the same shape
    less specific  we leave open what TensorFlow knows
    more specific  we know what TensorFlow leaves open
    conflicting    sizes or ranks that cannot both be true: a failure
What we would refuse, TensorFlow must refuse: else a failure ("stricter"). What TensorFlow alone
refuses is counted by op ("laxer").

Graphs of programs are right, so each also goes through mutants: inputs rewired to endpoints of the
same type, other constants, other attrs. Without --long a seeded sample. The last line is "N passed,
N failed"; a graph with no failure passes.
"""

import argparse
import collections
import json
import os
import random
import re
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy  # noqa: E402
import oracle  # noqa: E402
import programs  # noqa: E402
import random_graphs  # noqa: E402
import run_cluster  # noqa: E402
from evaluator import ToolProcess  # noqa: E402
from programs import tf, tf1  # noqa: E402
from tensorflow.core.framework import graph_pb2  # noqa: E402

SAMPLE_PER_FAMILY, SAMPLE_RANDOM, LONG_RANDOM = 40, 30, 500


class Inference(ToolProcess):
    """A graph_shapes process."""

    def run(self, graphdef):
        """(code and message of reading, of inference that refuses, {endpoint: shape text},
        microseconds, evaluated)"""
        reply, at = self.ask(graphdef), 0

        def number():
            nonlocal at
            at += 4
            return struct.unpack_from("<I", reply, at - 4)[0]

        def text():
            nonlocal at
            n = number()
            at += n
            return reply[at - n : at].decode(errors="replace")

        read = number(), text()
        if read[0]:
            return read, (0, ""), {}, 0, 0
        refusal = number(), text()
        microseconds, evaluated, _, n_nodes = number(), number(), number(), number()
        shapes = {}
        for _ in range(n_nodes):
            name, n_outputs = text(), number()
            for i in range(n_outputs):
                shapes[f"{name}:{i}"] = text()
        return read, refusal, shapes, microseconds, evaluated


def tensorflow_shapes(graphdef):
    """("", {endpoint: sizes or None}), or (why TensorFlow's client refuses the graph, {})."""
    graph = tf.Graph()
    with graph.as_default():
        try:
            tf1.import_graph_def(graphdef, name="")
        except (ValueError, tf.errors.OpError) as error:
            return str(error), {}
    shapes = {}
    for op in graph.get_operations():
        for i, output in enumerate(op.outputs):
            shapes[f"{op.name}:{i}"] = None if output.shape.rank is None else output.shape.as_list()
    return "", shapes


def serve_imports():
    """The other end of Importer."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while len(head := sys.stdin.buffer.read(4)) == 4:
        graphdef = graph_pb2.GraphDef.FromString(
            sys.stdin.buffer.read(struct.unpack("<I", head)[0]))
        reply = json.dumps(tensorflow_shapes(graphdef)).encode()
        replies.write(struct.pack("<I", len(reply)) + reply)
        replies.flush()
    os._exit(0)


class Importer(Inference):
    """tensorflow_shapes in another process: wrong graphs make TensorFlow's shape functions abort.
    None when they did."""

    def __init__(self):
        super().__init__([sys.executable, os.path.abspath(__file__), "--importer"])

    def run(self, graphdef):
        try:
            return json.loads(self.ask(graphdef, subprocess.DEVNULL))
        except oracle.Crashed:
            return None


def compare(ours, theirs):
    """'equal', 'less specific', 'more specific', 'conflicting'"""
    mine = oracle._parse_shape(ours)
    if mine is None or theirs is None:
        return "equal" if mine is theirs else "less specific" if mine is None else "more specific"
    if len(mine) != len(theirs) or any(a is not None and b is not None and a != b for a,
                                       b in zip(mine, theirs)):
        return "conflicting"
    if mine == theirs:
        return "equal"
    return "less specific" if any(a is None and b is not None for a,
                                  b in zip(mine, theirs)) else "more specific"


# ---- mutants ----


def _dtypes(graphdef):
    graph = tf.Graph()
    with graph.as_default():
        tf1.import_graph_def(graphdef, name="")
    return {t.name: t.dtype for op in graph.get_operations() for t in op.outputs}


def _endpoint(name):
    return name if ":" in name else name + ":0"


def _rewire(rng, node, earlier, dtypes):
    places = [i for i, name in enumerate(node.input) if not name.startswith("^")]
    if not places:
        return
    place = rng.choice(places)
    dtype = dtypes.get(_endpoint(node.input[place]))
    found = [name for name in earlier if dtypes[name] == dtype]
    if found:
        node.input[place] = rng.choice(found)


def _change_constant(rng, node):
    if node.attr["dtype"].type in (tf.variant.as_datatype_enum, tf.resource.as_datatype_enum):
        return
    value = tf.make_ndarray(node.attr["value"].tensor)
    if value.dtype.kind not in "iuf" or value.size > 100:
        return
    changed = numpy.array(value).reshape(-1)
    if changed.size and rng.random() < 0.9:
        numbers = [0, 1, 2, 3, 5, 7] if value.dtype.kind == "u" else [-2, -1, 0, 1, 2, 3, 5, 7]
        numbers += [2**31 - 1] if value.dtype in (numpy.int32, numpy.int64) else []
        changed[rng.randrange(changed.size)] = rng.choice(numbers)
        changed = changed.reshape(value.shape)
    else:
        shape = [rng.choice([0, 1, 2, 3]) for _ in range(rng.choice([0, 1, 1, 2]))]
        changed = numpy.resize(changed, shape) if changed.size else numpy.ones(shape, value.dtype)
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(changed.astype(value.dtype),
            shape=changed.shape))


def _change_attr(rng, node):
    names = [name for name, attr in node.attr.items() if not name.startswith("_")
             and attr.WhichOneof("value") in ("i", "b", "shape")]
    names = [name for name in names if name
             not in ("N", "num", "num_split", "seed", "seed2", "ksize") or rng.random() < 0.1]
    if not names:
        return
    attr = node.attr[rng.choice(sorted(names))]
    kind = attr.WhichOneof("value")
    if kind == "i":
        attr.i = rng.choice([-2, -1, 0, 1, 2, 3, 10])
    elif kind == "b":
        attr.b = not attr.b
    else:
        attr.shape.Clear()
        if rng.random() < 0.2:
            attr.shape.unknown_rank = True
        else:
            for _ in range(rng.randrange(4)):
                attr.shape.dim.add().size = rng.choice([-1, 0, 1, 2, 3])


def mutant(rng, graphdef, dtypes):
    copy = type(graphdef)()
    copy.CopyFrom(graphdef)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(copy.node))
        node = copy.node[at]
        if node.op == "Const":
            _change_constant(rng, node)
        elif rng.random() < 0.6:
            names = {before.name for before in copy.node[:at]}
            _rewire(rng, node, [endpoint for endpoint in dtypes
                                if endpoint.rpartition(":")[0] in names], dtypes)
        else:
            _change_attr(rng, node)
    return copy


# ---- the run ----


def _words(message):
    """A refusal's own words, without where it happened."""
    return message.partition(" for '{{node")[0].strip()


def _op(message):
    found = re.search(r"\{\{node \S+\}\} = (\w+)\[", message)
    return found.group(1) if found else "?"


class Run:
    def __init__(self, arguments):
        self.arguments, self.inference, self.importer = arguments, Inference(
            [arguments.bin]), Importer()
        self.outputs, self.by_op = collections.Counter(), {"less specific": {}, "more specific": {}}
        self.ops, self.failures = set(), []
        self.passed = self.refused_alike = self.same_words = 0
        self.unread = self.mutants = self.aborted = 0
        self.laxer, self.other_words = collections.Counter(), {}
        self.nodes = self.microseconds = self.evaluated = 0

    def fail(self, name, what):
        self.failures.append(f"{name}: {what}")

    def graph(self, name, graphdef):
        if self.arguments.trace:
            print(name, flush=True)
        for node in graphdef.node:
            node.attr.pop("_output_shapes", None)
        answer = self.importer.run(graphdef.SerializeToString())
        try:
            read, own_refusal, ours, microseconds, evaluated = self.inference.run(
                graphdef.SerializeToString())
        except oracle.Crashed as crash:
            self.fail(name, f"CRASH {crash}")
            return False
        if answer is None:
            self.aborted += 1
            return False
        refusal, theirs = answer
        if read[0]:
            self.unread += 1
            if not refusal:
                self.fail(name, f"we do not take the graph: {read[1][:300]}")
            return False
        self.nodes, self.microseconds, self.evaluated = self.nodes + len(
            graphdef.node), self.microseconds + microseconds, self.evaluated + evaluated
        if refusal or own_refusal[0]:
            self.refusals(name, refusal, own_refusal)
            return False
        n_failures = len(self.failures)
        types = {node.name: node.op for node in graphdef.node}
        for endpoint, shape in theirs.items():
            op = types[endpoint.rpartition(":")[0]]
            verdict = compare(ours[endpoint], shape)
            self.outputs[verdict] += 1
            self.ops.add(op)
            if verdict == "conflicting":
                self.fail(name, f"{endpoint} ({op}): {ours[endpoint]}, TensorFlow has {shape}")
            elif verdict != "equal":
                self.by_op[verdict].setdefault(op,
                                               f"{name} {endpoint}: {ours[endpoint]}, TensorFlow "
                                               f"has {shape}")
        self.passed += len(self.failures) == n_failures
        return True

    def refusals(self, name, refusal, own_refusal):
        if own_refusal[0] and not refusal:
            self.fail(name, f"stricter than TensorFlow: {own_refusal[1][:600]}")
        elif not own_refusal[0]:
            self.laxer[_op(refusal)] += 1
            if self.arguments.messages:
                print(f"  laxer {name}: {refusal[:300]}")
        else:
            self.refused_alike += 1
            self.passed += 1
            if own_refusal[0] != tf.errors.INVALID_ARGUMENT:
                self.fail(name, f"code {own_refusal[0]}")
            if _words(refusal) == _words(own_refusal[1]):
                self.same_words += 1
            else:
                self.other_words.setdefault(_op(refusal),
                                            (_words(own_refusal[1])[:200], _words(refusal)[:200]))

    def case(self, name, graph, rng):
        graphdef = graph.as_graph_def()
        if not self.graph(name, graphdef) or not self.arguments.mutants or len(graphdef.node) < 2:
            return
        dtypes = _dtypes(graphdef)
        for i in range(self.arguments.mutants):
            self.mutants += 1
            self.graph(f"{name} mutant {i}", mutant(rng, graphdef, dtypes))

    def report(self):
        for line in self.failures[:100]:
            print("FAIL", line)
        for verdict, examples in self.by_op.items():
            for op, example in sorted(examples.items()):
                print(f"{verdict} {op}: {example}")
        if self.arguments.messages:
            for op, (ours, theirs) in sorted(self.other_words.items()):
                print(f"other words {op}\n    ours {ours}\n    tf   {theirs}")
        print(f"laxer than TensorFlow's client: {sum(self.laxer.values())} "
              f"{dict(self.laxer.most_common(12))}")
        counts = ", ".join(f"{self.outputs[verdict]} {verdict}"
                           for verdict in ("equal", "less specific", "more specific",
                                           "conflicting"))
        print(f"{len(self.ops)} ops, {sum(self.outputs.values())} outputs: {counts}")
        print(
            f"{self.mutants} mutants; {self.refused_alike} graphs refused by both, "
            f"{self.same_words} in the same words; {self.unread} not read, {self.aborted} abort "
            "TensorFlow; "
            f"{self.nodes} nodes in {self.microseconds / 1e3:.1f} ms, {self.evaluated} constants "
            "computed"
        )


def program_cases(pattern):
    for module in run_cluster.modules(pattern):
        yield from (run_cluster._with_options(case) for case in module.cases())


def sampled(cases, n, rng, arguments):
    found = [case for case in cases if not arguments.only or arguments.only in case[0]]
    return found if arguments.long or arguments.only else rng.sample(found, min(n, len(found)))


def run_all(run, arguments):
    for module in run_cluster.modules("cases_*.py"):
        if arguments.families and module.__name__ not in arguments.families:
            continue
        rng = random.Random(f"{arguments.seed} {module.__name__}")
        cases = [case if len(case) == 3 else (*case, {}) for case in module.cases()]
        for name, build, options in sampled(cases, SAMPLE_PER_FAMILY, rng, arguments):
            for mode in options.get("modes", ("static", "hidden")):
                try:
                    graph, _ = oracle._build(build, mode)
                except (ValueError, tf.errors.OpError):
                    continue  # TensorFlow's own shape functions refuse to build it
                run.case(f"{name} [{mode}]", graph, rng)
    if arguments.families:
        return
    rng = random.Random(f"{arguments.seed} programs")
    for name, build, _ in sampled(program_cases("programs_*.py"), SAMPLE_PER_FAMILY, rng,
                                  arguments):
        run.case(name, run_cluster._build_program(build)[0], rng)
    for name, build, _ in random_graphs.cases(arguments.seed, LONG_RANDOM if arguments.long
                                              else SAMPLE_RANDOM):
        if not arguments.only or arguments.only in name:
            run.case(name, run_cluster._build_program(build)[0], rng)


def default_bin():
    build = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip(
        "/")) if "MILLRACE_BIN" in os.environ else os.path.join(oracle.ROOT, "build")
    return os.path.join(build, "tests", "tools", "graph_shapes")


def main():
    parser = argparse.ArgumentParser(description="compare our static shapes with TensorFlow's")
    parser.add_argument("families", nargs="*", help="cases_array ...; default all, and programs")
    parser.add_argument("--long", action="store_true", help="all graphs, not a sample")
    parser.add_argument("--only", help="graphs whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=2, help="of each graph")
    parser.add_argument("--bin", default=default_bin(),
                        help="the tool; default build/tests/tools/graph_shapes")
    parser.add_argument("--messages", action="store_true",
                        help="show both messages where they differ")
    parser.add_argument("--trace", action="store_true",
                        help="print each graph's name before it goes to TensorFlow")
    parser.add_argument("--importer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.importer:
        serve_imports()
    run, began = Run(arguments), time.time()
    run_all(run, arguments)
    run.report()
    print(f"{time.time() - began:.1f} s")
    print(f"{run.passed} passed, {len(run.failures)} failed", flush=True)
    run.inference.stop()
    run.importer.stop()
    os._exit(1 if run.failures or not run.passed else 0)


if __name__ == "__main__":
    main()
