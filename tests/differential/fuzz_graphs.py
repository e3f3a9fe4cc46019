#!/usr/bin/env python3
"""Breaks valid graphs a little and runs them on a cluster, without TensorFlow's client. The graphs
are those of programs_*.py, mutated by a seed.

    fuzz_graphs.py [--n N] [--first SEED] [--programs N] [--bin DIR] [--verbose] [--compare]
    fuzz_graphs.py --first SEED --n 1 runs one again

The results do not matter. Every daemon must live, every step must end by its deadline with a code
and a message, nothing may be left over, and the daemons must exit with 0 (a sanitizer's complaint
gives another status). With --compare each graph also runs on TensorFlow's own servers, and the
first code that is not OK is compared. A mutant can be wrong in several ways, so differences are
printed, and a person judges them. Our INTERNAL where TensorFlow has another code is a bug. The last
line is "N passed, N failed".
"""

import argparse
import collections
import contextlib
import math
import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))

import numpy as np  # noqa: E402
from cluster import Cluster, ClusterError  # noqa: E402
from programs import TASKS, tf, tf1  # noqa: E402
from raw_clients import Client, Refused, data, first, float_tensor, small_graph  # noqa: E402
from run_cluster import _with_options, modules  # noqa: E402
from run_wrong import AS_IT_IS  # noqa: E402
from tensorflow.python.client.session import _FetchHandler  # noqa: E402
from tensorflow_server import TensorFlowServer  # noqa: E402

STEP_MS = 1500
HANG_S = 20  # a call that takes longer than its deadline by so much
MEMORY_LIMIT = "512M"
CHECK_EVERY = 25

# [(endpoint, TensorProto)], [endpoint], [node]
Step = collections.namedtuple("Step", "feeds fetches targets")
Program = collections.namedtuple("Program", "name graph steps")

# ---- valid programs ----


def _step(graph, run):
    handler = _FetchHandler(graph, run.fetches, {})
    feeds = []
    for key, value in run.feeds.items():
        t = graph.as_graph_element(key, allow_operation=False)
        feeds.append((t.name, tf.make_tensor_proto(value, t.dtype.base_dtype)))
    return Step(feeds, [t.name for t in handler.fetches()], [op.name for op in handler.targets()])


def load_programs(sample=None, seed=0):
    """Those whose feeds and fetches are plain; of `sample` of all, if that is given."""
    cases, loaded = [case for module in modules("programs_*.py") for case in module.cases()], []
    for case in cases if sample is None else random.Random(seed).sample(
        cases, min(sample, len(cases))):
        name, build, _ = _with_options(case)
        graph = tf.Graph()
        try:
            with graph.as_default():
                runs = build()
                steps = [_step(graph, run) for run in runs]
        except Exception:  # noqa: BLE001  (what the client refuses is not for here)
            continue
        definition = graph.as_graph_def()
        if 0 < definition.ByteSize() < 100_000:
            loaded.append(Program(name, definition, steps))
    return loaded


# ---- mutations ----

INTS = (-1, 0, 1, 2, 3, 7, 64, 255, 256, 65535, -(2**31), 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1,
        -(2**63))
DTYPES = (*range(24), 101, 103, 200, 999)
FLOW = ("Enter", "Exit", "Merge", "Switch", "NextIteration", "LoopCond", "RefEnter", "RefSwitch")
OPS = ("NoOp", "Identity", "IdentityN", "Const", "Placeholder", "_Arg", "_Retval", "_Send", "_Recv",
       "Nope", "", "StatefulPartitionedCall", "If", "While",
       # fmt: skip
       "TensorArrayV3", "Reshape", "StridedSlice", "ConcatV2", "Gather", "Pack", "VarHandleOp",
       "ReadVariableOp", "Stack", "Assert", "Print")
DEVICES = ("", *TASKS, "/job:nobody/task:0", "/job:ps/task:9", "/device:GPU:0", "/device:CPU:99",
           "//", "/job:", "\xff", "/job:worker/task:-1", "/cpu:0",
           # fmt: skip
           "/job:worker/replica:0/task:1/device:CPU:0", "/job:worker/task:99999999999999999999")
NAMES = ("", "a:b", "^x", "x" * 5000, "../x", "\u00e9", "a b", "_", "/")


def _all_nodes(graph):
    """(node, the nodes that it may name): of the graph, and of its functions."""
    found = [(n, graph.node) for n in graph.node]
    for function in graph.library.function:
        found += [(n, function.node_def) for n in function.node_def]
    return found


def _endpoint(rng, nodes):
    name = rng.choice(nodes).name if nodes else "x"
    form = rng.random()
    return (name if form < 0.5 else f"{name}:{rng.choice((0, 0, 1, 1, 2, 7, -1, 2**31))}" if form
            < 0.9 else "^" + name)


def _mutate_shape(rng, shape):
    kind = rng.randrange(5)
    if kind == 0 or not shape.dim:
        shape.dim.add().size = rng.choice(INTS)
    elif kind == 1:
        del shape.dim[rng.randrange(len(shape.dim))]
    elif kind == 2:
        shape.unknown_rank = not shape.unknown_rank
    elif kind == 3:
        for _ in range(rng.choice((10, 253, 254, 255, 300))):
            shape.dim.add().size = rng.choice((1, 1, 1, 2))
    else:
        rng.choice(shape.dim).size = rng.choice(INTS)


def _mutate_tensor(rng, value):
    kind = rng.randrange(5)
    if kind == 0:
        value.dtype = rng.choice(DTYPES)
    elif kind == 1:
        _mutate_shape(rng, value.tensor_shape)
    elif kind == 2 and value.tensor_content:
        content = bytearray(value.tensor_content)
        size = {1: 4, 2: 8, 3: 4, 9: 8}.get(value.dtype, 1)
        at = rng.randrange(len(content) // size or 1) * size
        content[at : at + size] = (struct.pack("<q", rng.choice(INTS)) + b"\xff" * 8)[:size]
        value.tensor_content = bytes(content)
    elif kind == 3:
        value.tensor_content = value.tensor_content[
            : rng.randrange(len(value.tensor_content) + 1)] + bytes(rng.randrange(3))
    else:
        number = rng.choice(INTS)
        value.int_val.append(max(min(number, 2**31 - 1), -(2**31)))
        value.int64_val.append(number)
        value.float_val.append(rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"))))


def _mutate_constant(rng, graph):
    """The numbers that kernels take as sizes, axes and indices."""
    constants = [n for n, _ in _all_nodes(graph) if n.op == "Const"
                 and n.attr["dtype"].type in (1, 3, 9)]
    if not constants:
        return
    value = rng.choice(constants).attr["value"].tensor
    if math.prod(dim.size for dim in value.tensor_shape.dim) > 10**6:
        return  # only the shape is so large
    array = np.array(tf.make_ndarray(value))
    if array.size == 0:
        return
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        flat[rng.randrange(flat.size)] = np.array(
            rng.choice(INTS) if array.dtype != np.float32
            else rng.choice((0, -1, 1e38, np.nan, np.inf))).astype(array.dtype)
    value.CopyFrom(tf.make_tensor_proto(array, shape=array.shape))


def _mutate_attr(rng, graph):
    node, _ = rng.choice(_all_nodes(graph))
    if not node.attr:
        return
    key = rng.choice(sorted(node.attr))
    attr = node.attr[key]
    kind = attr.WhichOneof("value")
    if rng.random() < 0.1:
        del node.attr[key]
    elif rng.random() < 0.05:
        node.attr["T" if key != "T" else "N"].CopyFrom(attr)
    elif kind == "type":
        attr.type = rng.choice(DTYPES)
    elif kind == "i":
        attr.i = rng.choice(INTS)
    elif kind == "b":
        attr.b = not attr.b
    elif kind == "f":
        attr.f = rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
    elif kind == "s":
        attr.s = rng.choice((b"", b"\xff\xfe", b"VALID", b"frame", b"x" * 3000, b"loc:@nobody",
                             attr.s + b"!"))
    elif kind == "shape":
        _mutate_shape(rng, attr.shape)
    elif kind == "tensor":
        _mutate_tensor(rng, attr.tensor)
    elif kind == "func":
        attr.func.name = rng.choice(NAMES + tuple(f.signature.name for f in graph.library.function))
    elif kind == "list":
        for field in ("type", "i", "s", "shape", "func"):
            values = getattr(attr.list, field)
            if len(values) and rng.random() < 0.5:
                del values[rng.randrange(len(values))]
            elif len(values) and field not in ("shape", "func"):
                values.append(rng.choice(list(values)) if rng.random() < 0.5 or field != "i"
                              else rng.choice(INTS))


def _mutate_wiring(rng, graph):
    node, nodes = rng.choice(_all_nodes(graph))
    kind = rng.randrange(6)
    if not node.input or kind == 0:
        node.input.append(_endpoint(rng, nodes))
    elif kind == 1:
        del node.input[rng.randrange(len(node.input))]
    elif kind == 2:
        inputs = list(node.input)
        rng.shuffle(inputs)
        node.input[:] = inputs
    else:
        node.input[rng.randrange(len(node.input))] = _endpoint(rng, nodes)


def _mutate_control(rng, graph):
    node, nodes = rng.choice(_all_nodes(graph))
    node.input.append("^" + rng.choice(nodes).name)


def _mutate_name(rng, graph):
    node, nodes = rng.choice(_all_nodes(graph))
    node.name = rng.choice((rng.choice(nodes).name, rng.choice(NAMES)))


def _mutate_op(rng, graph):
    node, nodes = rng.choice(_all_nodes(graph))
    node.op = rng.choice((rng.choice(OPS), rng.choice(FLOW), rng.choice(nodes).op))


def _mutate_device(rng, graph):
    node, nodes = rng.choice(_all_nodes(graph))
    node.device = rng.choice(DEVICES)
    if rng.random() < 0.2:
        node.attr["_class"].list.s.append(b"loc:@" + rng.choice(nodes).name.encode())


def _insert_flow(rng, graph):
    """A node of control flow on an edge."""
    users = [n for n in graph.node if any(not i.startswith("^") for i in n.input)]
    if not users:
        return
    user = rng.choice(users)
    at = rng.choice([i for i, name in enumerate(user.input) if not name.startswith("^")])
    new = graph.node.add(name=f"flow{rng.randrange(10**6)}", op=rng.choice(FLOW),
                         device=rng.choice((user.device, *TASKS)))
    new.input.append(user.input[at])
    new.attr["T"].type = rng.choice((1, 3, 9, 10,
                                     *(a.type for a in user.attr.values() if a.WhichOneof("value")
                                       == "type")))
    if "Enter" in new.op:
        new.attr["frame_name"].s = rng.choice((b"frame", b"while/while_context", b""))
        new.attr["is_constant"].b = rng.random() < 0.5
        new.attr["parallel_iterations"].i = rng.choice((1, 10, 0, -1, 2**40))
    elif new.op == "Merge":
        new.input.append(rng.choice((_endpoint(rng, graph.node), new.name)))
        new.attr["N"].i = 2
    elif "Switch" in new.op:
        new.input.append(_endpoint(rng, graph.node))
    user.input[at] = new.name + (":1" if rng.random() < 0.3 else "")


def _mutate_function(rng, graph):
    if not graph.library.function:
        return
    function = rng.choice(graph.library.function)
    kind = rng.randrange(5)
    if kind == 0:
        function.signature.name = rng.choice((rng.choice(graph.library.function).signature.name,
                                              *NAMES))
    elif kind == 1 and function.ret:
        key = rng.choice(sorted(function.ret))
        if rng.random() < 0.5:
            del function.ret[key]
        else:
            function.ret[key] = rng.choice(("nobody:0", "x:out:7", ":", *function.ret.values()))
    elif kind == 2 and function.signature.input_arg:
        rng.choice(function.signature.input_arg).type = rng.choice(DTYPES)
    elif kind == 3 and function.signature.output_arg:
        del function.signature.output_arg[rng.randrange(len(function.signature.output_arg))]
    elif function.node_def:  # calls itself
        node = rng.choice(function.node_def)
        for attr in node.attr.values():
            if attr.WhichOneof("value") == "func":
                attr.func.name = function.signature.name


MUTATIONS = (_mutate_constant,) * 4 + (_mutate_attr,) * 4 + (_mutate_wiring,) * 4 + (
    _insert_flow,) * 2 + (_mutate_op,) * 2
MUTATIONS += (_mutate_control, _mutate_name, _mutate_device, _mutate_function)


def _mutate_step(rng, graph, step):
    feeds, fetches, targets = list(step.feeds), list(step.fetches), list(step.targets)
    kind = rng.random()
    if kind < 0.4:
        fetches.append(rng.choice((_endpoint(rng, graph.node), "", ":", "x:0:0", "\xff")))
    elif kind < 0.5 and graph.node:
        targets.append(rng.choice(graph.node).name)
    elif kind < 0.8 and graph.node:  # an inner endpoint
        value = tf.make_tensor_proto(rng.choice((1.0, 1, True, "s", [[1.0, 2.0]], [3, -1],
                np.zeros((0, 3), np.float32))))
        feeds.append((_endpoint(rng, graph.node), value))
    elif feeds:
        at = rng.randrange(len(feeds))
        value = tf1.make_tensor_proto(0)
        value.CopyFrom(feeds[at][1])
        with contextlib.suppress(ValueError):
            _mutate_tensor(rng, value)
        feeds[at] = (feeds[at][0], value)
    return Step(feeds, fetches, targets)


def mutant(programs, seed):
    """(name, GraphDef, steps), the same for a seed."""
    rng = random.Random(seed)
    program = rng.choice(programs)
    graph = type(program.graph)()
    graph.CopyFrom(program.graph)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        # what an earlier one has made impossible
        with contextlib.suppress(ValueError, TypeError, IndexError):
            rng.choice(MUTATIONS)(rng, graph)
    steps = [_mutate_step(rng, graph, step) if rng.random() < 0.2 else step
             for step in program.steps]
    return f"{seed} {program.name}", graph, steps


# ---- running them ----


class Finding(Exception):
    """What must not happen."""


INTERNAL, UNAVAILABLE, TIME_OUT = 13, 14, 4


class Oracle:
    """TensorFlow's servers. They abort on many a mutant: then there is nothing to compare."""

    def __init__(self):
        self.server = TensorFlowServer()
        self.server.start()
        self.same = self.aborted = self.waits = 0
        self.differences = {}

    def outcome(self, graph, steps):
        """(code, message) of the first call that fails, (0, "") where none does, None where it
        aborts."""
        client = Client(self.server.port)
        try:
            client.call("Reset", b"", HANG_S)
            handle = first(client.call("CreateSession", data(1, graph.SerializeToString())
                                       + data(2, AS_IT_IS) + data(3, "grpc://here"), HANG_S), 1)
            for step in steps:
                feeds = [(endpoint, value.SerializeToString()) for endpoint, value in step.feeds]
                client.run(handle, 3 * STEP_MS / 1000, feeds=feeds, fetches=step.fetches,
                           targets=step.targets, timeout_ms=STEP_MS)
            client.close(handle)
        except Refused as refused:
            if refused.code == UNAVAILABLE:
                self.server.process.wait()
                return None
            return refused.code, refused.message
        finally:
            client.channel.close()
            self.server.revive()
        return 0, ""

    def compare(self, name, ours, graph, steps):
        try:
            theirs = self.outcome(graph, steps)
        except UnicodeDecodeError:
            return
        if theirs is None:
            self.aborted += 1
        elif theirs[0] == ours[0]:
            self.same += 1
        elif theirs[0] == TIME_OUT:
            self.waits += 1
        else:
            self.differences.setdefault((ours[0], theirs[0], ours[1][-50:] if ours[0] == 0
                                         else ours[1][:40]), (name, ours[1], theirs[1]))
        if theirs and ours[0] == INTERNAL != theirs[0]:
            raise Finding(f"INTERNAL, {ours[1]!r}; TensorFlow has {theirs}")

    def report(self):
        for (our, their, _), (name, ours, theirs) in sorted(self.differences.items()):
            print(f"{our} and {their}: {name}\n    ours {ours[:300]!r}\n    tf   {theirs[:300]!r}")
        print(f"{self.same} the same, {len(self.differences)} kinds of differences, TensorFlow "
              f"aborts in {self.aborted} and does not end in {self.waits}")
        self.server.stop()


class Fuzzer:
    def __init__(self, cluster, oracle=None):
        self.cluster, self.oracle, self.client, self.outcomes, self.messages = (
            cluster, oracle, None, collections.Counter(), {})
        self.first_failure = None

    def start(self):
        self.cluster.start()
        self.client = Client(self.cluster.master.port)

    def note(self, name, code, message):
        self.outcomes[code] += 1
        if code and not self.first_failure:
            self.first_failure = (code, message)
        if code and not message:
            raise Finding(f"code {code} without a message")
        self.messages.setdefault((code, message[:60]), name)

    def run(self, name, graph, steps):
        self.first_failure = None
        self.run_ours(name, graph, steps)
        if self.oracle:
            self.oracle.compare(name, self.first_failure or (0, ""), graph, steps)

    def run_ours(self, name, graph, steps):
        began = time.time()
        try:
            if self.oracle:
                self.client.call("Reset", b"", HANG_S)
            handle = self.client.call("CreateSession", data(1, graph.SerializeToString())
                                      + (data(2, AS_IT_IS) if self.oracle else b""), HANG_S)
        except Refused as refused:
            if refused.code == 4:
                raise Finding(f"CreateSession did not end within {HANG_S} s") from None
            self.note(name, refused.code, refused.message)
            return
        handle = handle[2 : 2 + handle[1]]
        for step in steps:
            feeds = [(endpoint, value.SerializeToString()) for endpoint, value in step.feeds]
            try:
                self.client.run(handle, HANG_S, feeds=feeds, fetches=step.fetches,
                                targets=step.targets, timeout_ms=STEP_MS)
                self.note(name, 0, "")
            except Refused as refused:
                if refused.code == 4 and "Timed out waiting for the step" not in refused.message:
                    raise Finding(f"a step outlives its deadline of {STEP_MS} ms: "
                                  f"{refused.message}") from None
                self.note(name, refused.code, refused.message)
            if time.time() - began > HANG_S:
                break
        self.client.close(handle)

    def check(self):
        """Everybody lives and works; nothing is left."""
        self.cluster.check(15)
        for task in TASKS:
            handle = self.client.create(small_graph(task))
            self.client.run(handle, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
            self.client.close(handle)


def fuzz(programs, first, n, bin_dir=None, verbose=False, oracle=None):
    """(passed, [what was found]). After a find the cluster is a new one."""
    fuzzer = Fuzzer(Cluster(bin_dir=bin_dir,
                            worker_flags=["--memory-limit", MEMORY_LIMIT, "--drain-timeout", "2s"],
                            master_flags=["--drain-timeout", "2s"]), oracle)
    findings, since_check = [], []
    fuzzer.start()
    for seed in range(first, first + n):
        name, graph, steps = mutant(programs, seed)
        since_check.append(seed)
        try:
            if verbose:
                print(name, flush=True)
            fuzzer.run(name, graph, steps)
            fuzzer.cluster.check_alive()
            if len(since_check) == CHECK_EVERY or seed == first + n - 1:
                fuzzer.check()
                since_check = []
        except (Finding, ClusterError, Refused, OSError, ValueError) as error:
            # ValueError: a reply that is no protobuf, or no UTF-8
            findings.append(f"seeds {since_check[0]}..{name}: {error}")
            print("FAIL", findings[-1], flush=True)
            fuzzer.client.channel.close()
            fuzzer.cluster.stop()
            fuzzer.start()
            since_check = []
    fuzzer.client.channel.close()
    for complaint in fuzzer.cluster.stop():
        findings.append(f"stopping after seeds {first}..{first + n - 1}: {complaint}")
        print("FAIL", findings[-1], flush=True)
    return n - len(findings), findings, fuzzer


def main():
    parser = argparse.ArgumentParser(description="run broken graphs on a cluster")
    parser.add_argument("--n", type=int, default=3000, help="mutants")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--programs", type=int,
                        help="break only this many of the valid graphs, drawn by the first seed; "
                             "building all takes a while")
    parser.add_argument("--bin",
                        help="where tf-master and tf-worker are; default $MILLRACE_BIN or "
                             "build/bin")
    parser.add_argument("--verbose", action="store_true",
                        help="print each mutant's name, and each kind of message once")
    parser.add_argument("--compare", action="store_true",
                        help="with what TensorFlow's own servers say")
    arguments = parser.parse_args()
    loaded = load_programs(arguments.programs, arguments.first)
    oracle = Oracle() if arguments.compare else None
    passed, findings, fuzzer = fuzz(loaded, arguments.first, arguments.n, arguments.bin,
                                    arguments.verbose, oracle)
    if oracle:
        oracle.report()
    print(f"{len(loaded)} programs; codes: {dict(sorted(fuzzer.outcomes.items()))}")
    for (code, message), name in sorted(fuzzer.messages.items()) if arguments.verbose else ():
        print(f"  {code} {message!r}   {name}")
    print(f"{passed} passed, {len(findings)} failed", flush=True)
    os._exit(1 if findings or not passed else 0)


if __name__ == "__main__":
    main()
