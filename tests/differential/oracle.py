"""Compares our kernels with TensorFlow's, in process, op by op: no cluster, no session, no daemon.

A case is a function that builds a small graph (inside a fresh tf.Graph) and returns what to fetch.
TensorFlow runs the graph with its optimizers off; tests/tools/graph_eval.c evaluates the same
GraphDef with our kernels. Values must agree (integers, strings and bools exactly, floats within the
case's tolerance, NaN equal to NaN), failures by code, and a static shape of ours must be compatible
with the value's and with TensorFlow's (that it is less precise is counted, not failed).

A module cases_F.py holds `cases()`, which yields (name, build) or (name, build, options):

    def cases():
        for dtype in ("float32", "int32"):
            yield f"Neg/{dtype}", lambda dtype=dtype: [tf.raw_ops.Neg(x=oracle.const(numpy.array([1,
            2], dtype)))]

build returns a list of fetches, or a list of oracle.Step (run one after the other on one state:
variables, tables). options: rtol, atol (floats; default by dtype), bits (floats agree bit by bit,
NaN too), modes (default ("static", "hidden")), ignore ("values", "shapes": a difference there is
left open, and counted), to_largest (atol is relative to the largest element), explained (what
TensorFlow does there: any difference is counted, not failed).

Each case runs in two modes. static: oracle.const makes Const nodes, so that shape functions see
values. hidden: it makes placeholders with a default and no shape, so that TensorFlow's shape
functions cannot refuse a wrong graph and our kernels must (where TensorFlow refuses even that,
placeholders of known rank).

    python tests/differential/oracle.py cases_array [--only TEXT] [--eval PATH] [--messages]
"""

import argparse
import importlib
import os
import re
import sys
import time
from dataclasses import dataclass, field

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402
from evaluator import Crashed, Evaluator  # noqa: E402
from tensorflow.core.framework import tensor_pb2  # noqa: E402

tf.compat.v1.disable_v2_behavior()

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_mode = "static"


@dataclass
class Step:
    """One run of the case's graph."""

    fetches: list = field(default_factory=list)
    feeds: dict = field(default_factory=dict)
    targets: list = field(default_factory=list)


def const(value, dtype=None, name=None):
    """An input of a case: see the modes above."""
    tensor = tf.constant(value, dtype=dtype, name=name)
    if _mode == "hidden":
        tensor = tf.compat.v1.placeholder_with_default(tensor, shape=None)
    elif _mode == "ranked":
        tensor = tf.compat.v1.placeholder_with_default(tensor, shape=[None] * tensor.shape.rank)
    return tensor


def _samples(rng, dtype, n):
    dtype = tf.as_dtype(dtype)
    if dtype == tf.string:
        words = [b"", b"a", b"bc", b"some longer text than sixteen bytes", b"\0\xff", b"zz"]
        return numpy.array([words[i] for i in rng.integers(0, len(words), n)], dtype=object)
    if dtype == tf.bool:
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_complex:
        return (rng.normal(size=n) * 3 + 1j * rng.normal(size=n) * 3).astype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        return (rng.normal(size=n) * 3).astype(dtype.as_numpy_dtype)
    low, high = (0, 100) if dtype.is_unsigned else (-50, 50)
    return rng.integers(low, high, n).astype(dtype.as_numpy_dtype)


def sample(rng, dtype, shape):
    """A seeded array of moderate values of any dtype, strings included."""
    return _samples(rng, dtype, int(numpy.prod(shape, dtype=numpy.int64))).reshape(shape)


# ---- TensorFlow's side ----


def _session_config():
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1,
                                      inter_op_parallelism_threads=1)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


SOME_ERROR = -1  # which one is not known


def codes_agree(ours, theirs):
    """INTERNAL is for our own broken invariants. Where TensorFlow says it of what a client did,
    ours names what is wrong."""
    if theirs == tf.errors.INTERNAL:
        return ours in (tf.errors.INVALID_ARGUMENT, tf.errors.FAILED_PRECONDITION,
                        tf.errors.NOT_FOUND, tf.errors.DATA_LOSS)
    return ours == theirs or (theirs == SOME_ERROR and ours)


def _run_tensorflow(graph, steps):
    results = []
    with tf.compat.v1.Session(graph=graph, config=_session_config()) as session:
        for step in steps:
            try:
                values, _ = session.run([list(step.fetches), list(step.targets)],
                                        feed_dict=step.feeds)
                results.append((0, "", values))
            except tf.errors.OpError as error:
                results.append((error.error_code, _bare_message(error.message), []))
            except UnicodeDecodeError:  # the client cannot read an error that quotes such bytes
                results.append((SOME_ERROR, "", []))
    return results


def _bare_message(message):
    """The kernel's own words, without the client's account of where the node was made."""
    before, found, after = message.partition("\nNode: ")
    return after.partition("\n")[2].strip() if found else message


# ---- comparing ----

DEFAULT_TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-13,
                     "complex64": 2e-6, "complex128": 1e-13}


def _make_array(proto):
    """tf.make_ndarray, which does not know strings in tensor_content: all lengths as varints, then
    all bytes."""
    if proto.dtype != tf.string.as_datatype_enum or not proto.tensor_content:
        return tf.make_ndarray(proto)
    shape = [d.size for d in proto.tensor_shape.dim]
    content, at, lengths, values = proto.tensor_content, 0, [], []
    for _ in range(int(numpy.prod(shape, dtype=numpy.int64))):
        length = shift = 0
        while True:
            byte = content[at]
            at, length, shift = at + 1, length | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        lengths.append(length)
    for length in lengths:
        values.append(content[at : at + length])
        at += length
    result = numpy.empty(len(values), dtype=object)
    result[:] = values
    return result.reshape(shape)


def _as_arrays(ours, theirs, dtype):
    # numpy's own type for bytes drops NULs at the end
    kind = object if dtype == tf.string else None
    return numpy.asarray(ours, kind), numpy.asarray(theirs, kind)


def _kinds_differ(ours, theirs, dtype):
    """None, or how shape or dtype differ."""
    ours, theirs = _as_arrays(ours, theirs, dtype)
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, TensorFlow has {theirs.shape}"
    if ours.dtype != theirs.dtype and dtype != tf.string:
        return f"dtype {ours.dtype}, TensorFlow has {theirs.dtype}"
    return None


def _values_differ(ours, theirs, dtype, options):
    """None, or what differs."""
    difference = _kinds_differ(ours, theirs, dtype)
    if difference:
        return difference
    ours, theirs = _as_arrays(ours, theirs, dtype)
    if dtype == tf.string or not (dtype.is_floating or dtype.is_complex):
        same = ours == theirs
    elif options.get("bits"):
        bits = (*ours.shape, ours.itemsize)
        mine, other = (numpy.frombuffer(side.tobytes(), numpy.uint8).reshape(bits)
                       for side in (ours, theirs))
        same = numpy.all(mine == other, axis=-1)
    else:
        wide = numpy.complex128 if dtype.is_complex else numpy.float64
        a, b = ours.astype(wide), theirs.astype(wide)
        rtol = options.get("rtol", DEFAULT_TOLERANCE.get(dtype.name, 0.0))
        atol = options.get("atol", rtol)
        if options.get("to_largest"):  # sums whose terms cancel
            atol *= max(1, numpy.max(numpy.abs(b), initial=0, where=numpy.isfinite(b)))
        same = numpy.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if numpy.all(same):
        return None
    where = tuple(int(i) for i in numpy.argwhere(~numpy.asarray(same).reshape(ours.shape))[0])
    return (f"at {list(where)}: {ours[where]!r}, TensorFlow has {theirs[where]!r}; "
            f"{int(numpy.sum(~numpy.asarray(same)))} of {ours.size} differ")


def _parse_shape(text):
    if text == "<unknown>":
        return None
    body = text.strip("[]")
    return [None if size == "?" else int(size) for size in body.split(",")] if body else []


def _shape_differs(ours, theirs, real):
    """(what is wrong, is ours less precise). All but `ours`, a text, are lists with None, or None
    for an unknown rank."""
    if ours.startswith("!"):
        return f"static shape: {ours[1:]}", False
    mine = _parse_shape(ours)
    if mine is None:
        return None, theirs is not None
    for other, what in ((real, "the value's"), (theirs, "TensorFlow's static shape")):
        if other is None:
            continue
        if len(other) != len(mine) or any(a is not None and b is not None and a != b for a,
                                          b in zip(mine, other)):
            return f"static shape {ours}, {what} is {other}", False
    return None, theirs is not None and any(a is None and b is not None for a,
                                            b in zip(mine, theirs))


@dataclass
class Report:
    ok: int = 0
    failed: list = field(default_factory=list)
    unbuildable: int = 0  # TensorFlow's shape functions refuse the graph
    weaker_shapes: dict = field(default_factory=dict)
    both_fail: int = 0
    wider: int = 0  # TensorFlow says UNIMPLEMENTED, we compute
    explained: int = 0


def _build(build, mode):
    global _mode
    _mode = mode
    graph = tf.Graph()
    try:
        with graph.as_default():
            steps = build()
    finally:
        _mode = "static"
    if not isinstance(steps, (list, tuple)):
        steps = [steps]
    if not steps or not isinstance(steps[0], Step):
        steps = [Step(list(steps))]
    return graph, steps


def _wire_steps(steps):
    wire = []
    for step in steps:
        feeds = {}
        for tensor, value in step.feeds.items():
            feeds[tensor.name] = tf.make_tensor_proto(
                value, dtype=tensor.dtype.base_dtype).SerializeToString()
        wire.append((feeds, [t.name for t in step.fetches],
                     [t.op.name if hasattr(t, "op") else t.name for t in step.targets]))
    return wire


def run_case(evaluator, name, build, options, mode, report, show_messages=False):
    """Returns what it came to (agree, fail alike, differs, refused: TensorFlow's client does not
    build it, wider: only we compute, explained: differs as the case's option says, left open:
    differs in what the case's option ignores), and the graph."""
    try:
        graph, steps = _build(build, mode)
    except (ValueError, tf.errors.OpError) as error:
        if mode == "hidden":
            return run_case(evaluator, name, build, options, "ranked", report, show_messages)
        report.unbuildable += 1
        if show_messages:
            print(f"  note {name} [{mode}] cannot be built: {str(error).splitlines()[0][:160]}")
        return "refused", None
    n_failed = len(report.failed)
    outcome = compare_graph(evaluator, name, graph, steps, options, mode, report, show_messages)
    if outcome == "differs" and "explained" in options:
        del report.failed[n_failed:]
        report.explained += 1
        outcome = "explained"
    return outcome, graph


# By how a case's name begins and what TensorFlow's CPU kernel says: what a GPU cannot refuse,
# because the host does not read what is in its memory.
UNCHECKED_ON_GPU = (
    (r"(Resource)?Gather(V2)?\b", r"is not in \[0, ", "an index out of range reads zeros"),
    (r"(Resource)?GatherNd\b", "does not index into", "a slice out of range reads zeros"),
    (r"(Resource)?Scatter(Update|Add|Sub|Mul|Div|Min|Max)\b", r"is not in \[0, ",
     "a row out of range is not updated"),
    (r"(Resource)?ScatterNd(Update|Add|Sub|Min|Max)?\b|TensorScatter\w+\b|NonAliasing\b",
     "does not index into", "a slice out of range is not updated"),
    (r"(Resource)?SparseApply\w+\b", r"is not in \[0, |is out of range",
     "a row out of range is not updated"),
    (r"(Resource)?(Sparse)?Apply(Ftrl|ProximalAdagrad)\w*\b",
     r"is not a (positive|non-negative|non-positive) scalar",
     "a rate in the GPU's memory is not looked at"),
    (r"UnsortedSegment\w+\b", r"is not in \[0, |is out of range", "an id out of range is left out"),
    (r"DynamicPartition\b", r"is not in \[0, ", "a row whose partition is out of range is in none"),
    (r"SparseToDense/.*/False$", "out of bounds",
     "an entry out of range is left out unless the node says validate_indices"),
    (r"SparseTensorDenseMatMul\b", r"out of bounds \(>=",
     "an entry whose row of b does not exist adds NaN, any other one is left out"),
    (r"(Max|Avg)Pool", r"only supports ND?HWC on device type CPU",
     "a GPU has kernels for channels first"),
    (r"(Depthwise)?Conv(2|3|\b)",
     r"supports? (only )?(the )?ND?HWC|supported for NHWC|(do|does) not yet support dilation rates|"
     r"only supports dilated rates of 1|grouped convolutions are not supported on CPU|"
     r"must have the same number of channels",
     "a GPU has kernels for channels first, dilations and groups"),
    (r"ReverseSequence\b", r"seq_lens\(\d+\) [<>] ", "a length is cut to the steps"),
)


def is_unchecked_on_gpu(name, message):
    """Is this an error that a GPU cannot have?"""
    return any(re.match(case, name) and re.search(text, message)
               for case, text, _ in UNCHECKED_ON_GPU)


def compare_graph(evaluator, name, graph, steps, options, mode, report, show_messages=False):
    theirs = _run_tensorflow(graph, steps)
    try:
        ours = evaluator.run(graph.as_graph_def().SerializeToString(), _wire_steps(steps))
    except Crashed as crash:
        report.failed.append(f"{name} [{mode}]: CRASH {crash}")
        return "differs"
    ours += [ours[-1]] * (len(theirs) - len(ours))
    outcome = "agree"
    for index, (step, (our_code, our_message, protos, shapes),
                (code, message, values)) in enumerate(zip(steps, ours, theirs)):
        label = f"{name} [{mode}]" + (f" step {index}" if len(steps) > 1 else "")
        # we take types and ranks that TensorFlow does not
        if code == tf.errors.UNIMPLEMENTED and not our_code:
            report.wider += 1
            return "wider"
        if "GRAPH_EVAL_GPU" in os.environ and not our_code and is_unchecked_on_gpu(name, message):
            report.explained += 1
            return "explained"
        if not codes_agree(our_code, code):
            report.failed.append(f"{label}: code {our_code} ({our_message[:300]!r}), TensorFlow "
                                 f"has {code} ({message[:200]!r})")
            return "differs"
        if code:
            report.both_fail += 1
            outcome = "fail alike"
            if show_messages:
                print(f"  {label}\n    ours {our_message.splitlines()[0]}\n    tf   "
                      f"{message.splitlines()[0]}")
            continue
        for fetch, proto, shape, value in zip(step.fetches, protos, shapes, values):
            own = tensor_pb2.TensorProto.FromString(proto)
            static = fetch.shape.as_list() if fetch.shape.rank is not None else None
            shape_difference, is_weaker = _shape_differs(
                shape, static, [d.size for d in own.tensor_shape.dim])
            if is_weaker:
                report.weaker_shapes.setdefault(fetch.op.type,
                                                f"{label}: {shape}, TensorFlow has {static}")
            both = (_make_array(own), value, fetch.dtype.base_dtype)
            for what, difference in (("kind", _kinds_differ(*both)),
                                     ("values", _values_differ(*both, options)),
                                     ("shapes", shape_difference)):
                if difference and options.get("ignore") != what:
                    report.failed.append(f"{label} {fetch.name}: {difference}")
                    return "differs"
                # alike, though not as the value
                if difference and not (what == "shapes" and shape[:1] != "!" and _parse_shape(shape)
                                       == static):
                    outcome = "left open"
    report.ok += 1
    return outcome


def run_module(name, evaluator, only=None, show_messages=False):
    module = importlib.import_module(name)
    report, began, n = Report(), time.time(), 0
    for case in module.cases():
        case_name, build, options = case if len(case) == 3 else (*case, {})
        if only and only not in case_name:
            continue
        n += 1
        for mode in options.get("modes", ("static", "hidden")):
            run_case(evaluator, case_name, build, options, mode, report, show_messages)
    for line in report.failed[:200]:
        print("FAIL", line)
    for op, line in sorted(report.weaker_shapes.items()):
        print("weaker shape", op, line)
    print(
        f"{name}: {n} cases, {report.ok} runs agree ({report.both_fail} steps of them fail alike), "
        f"{len(report.failed)} differ, "
        f"{report.wider} only we compute, {report.unbuildable} not buildable in TensorFlow, "
        f"{time.time() - began:.1f} s"
    )
    return not report.failed and report.ok > 0


def main():
    parser = argparse.ArgumentParser(description="compare our kernels with TensorFlow's")
    parser.add_argument("modules", nargs="*", help="cases_array …; all of them by default")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--eval",
                        default=os.environ.get("GRAPH_EVAL",
                                               os.path.join(ROOT, "build/tests/tools/graph_eval")))
    parser.add_argument("--messages", action="store_true",
                        help="show both messages where both fail")
    arguments = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, here)
    # cases_*.py import this module, not a second copy
    sys.modules["oracle"] = sys.modules[__name__]
    found = sorted(f[:-3] for f in os.listdir(here) if f.startswith("cases_") and f.endswith(".py"))
    evaluator = Evaluator(arguments.eval)
    results = [run_module(name, evaluator, arguments.only, arguments.messages)
               for name in arguments.modules or found]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
