"""What a program case is, and how two runs of it are compared.

A case is a function that builds a graph (inside a fresh tf.Graph) and returns a list of Run: one
session.run after the other, on one session. It is built twice: once for TensorFlow in process,
where all devices are taken off the graph, and once for the cluster, whose tasks are /job:ps/task:0,
/job:worker/task:0 and /job:worker/task:1. Every run must end alike: equal values (floats within a
tolerance, structures, dtypes and shapes exactly), or the same error code, attributed to the same
node.

A module programs_F.py holds cases(), which yields (name, build) or (name, build, options). Options:
    rtol, atol      for floats; default by dtype
    config          ConfigProto for both
    needs           what is not there yet ("queues"): when the cluster answers UNIMPLEMENTED, the
    case is skipped with this reason
    node            False: the error's node is not compared
    message         a regular expression that both messages must match where a run fails
    values          False: only that both succeed is compared
    oracle          another build for TensorFlow in process, whose runs must come to the same
    cluster_error   (class, regular expression): how every run fails on the cluster; TensorFlow in
    process, whose devices are other ones, is not asked
"""

import contextlib
import os
import re
import unittest.mock
from dataclasses import dataclass, field

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import oracle  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
tf1.disable_control_flow_v2()
tf1.logging.set_verbosity(tf1.logging.ERROR)

PS, WORKER0, WORKER1 = TASKS = ("/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1")
# where random programs put nodes; run_cluster.py --gpus adds the devices of the tasks
PLACES = [*TASKS]
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12, "complex64": 1e-5,
             "complex128": 1e-12, "bfloat16": 1.6e-2}


@dataclass
class Run:
    """One session.run. A fetch may be anything that TensorFlow's client takes."""

    fetches: object
    feeds: dict = field(default_factory=dict)


@dataclass
class Outcome:
    """What a run came to: a value, or an error."""

    value: object = None
    code: int = 0
    node: str = None
    message: str = ""

    def __str__(self):
        if self.code:
            return f"error {self.code} at {self.node}: {self.message[:400]!r}"
        return f"value {self.value!r}"[:400]


def _bare_message(message):
    """What the server said, without the client's account of where the node was made."""
    _, found, after = message.rpartition("\nNode: ")
    return after.partition("\n")[2].strip() if found else message.removeprefix(
        "Graph execution error:").strip()


def attempt(function, *arguments, **keywords):
    """Calls function; errors of TensorFlow's client become an Outcome. What the client itself
    refuses (TypeError, ValueError) has code -1."""
    try:
        return Outcome(value=function(*arguments, **keywords))
    except tf.errors.OpError as error:
        return Outcome(code=error.error_code, node=error.op.name if error.op is not None else None,
                       message=_bare_message(error.message))
    except (TypeError, ValueError, RuntimeError) as error:
        return Outcome(code=-1, node=type(error).__name__, message=str(error))


def oracle_config():
    """Without rewriting: what runs is the graph as it is."""
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def build_without_devices(build):
    """Builds a case for TensorFlow in process, which has none of the cluster's devices: not in
    functions either, where they cannot be taken off later."""
    with unittest.mock.patch.object(tf, "device", lambda _: contextlib.nullcontext()):
        return build()


def strip_devices(graph):
    for op in graph.get_operations():
        op._set_device("")  # noqa: SLF001


def run_all(target, graph, runs, config):
    with tf1.Session(target, graph=graph, config=config) as session:
        return [attempt(session.run, run.fetches, run.feeds) for run in runs]


# ---- comparing ----


def _array_difference(ours, theirs, options):
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.dtype != theirs.dtype:
        return f"dtype {ours.dtype}, TensorFlow has {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, TensorFlow has {theirs.shape}"
    dtype = theirs.dtype.name
    if dtype in TOLERANCE:
        wide = np.complex128 if "complex" in dtype else np.float64
        rtol = options.get("rtol", TOLERANCE[dtype])
        same = np.isclose(ours.astype(wide), theirs.astype(wide), rtol=rtol,
                          atol=options.get("atol", rtol), equal_nan=True)
        if options.get("zero_signs"):
            for part in (np.real, np.imag):
                both = (part(ours).astype(np.float64), part(theirs).astype(np.float64))
                same &= (both[0] != 0) | (np.signbit(both[0]) == np.signbit(both[1]))
    else:
        same = np.asarray(ours == theirs)
        if np.sum(~same) <= options.get("flips", 0) * same.size:
            return None
    if np.all(same):
        return None
    where = tuple(int(i) for i in np.argwhere(~same.reshape(theirs.shape))[0])
    return (f"at {list(where)}: {ours[where]!r}, TensorFlow has {theirs[where]!r}; "
            f"{int(np.sum(~same))} of {ours.size} differ")


def value_difference(ours, theirs, options):
    """None, or what differs between two values of session.run."""
    if type(ours) is not type(theirs) and not (np.isscalar(ours) and np.isscalar(theirs)):
        return f"a {type(ours).__name__}, TensorFlow has a {type(theirs).__name__}"
    if theirs is None:
        return None
    if isinstance(theirs, dict):
        pairs = [(key, ours.get(key), value) for key, value in theirs.items()]
    elif isinstance(theirs, (list, tuple)):
        if len(ours) != len(theirs):
            return f"{len(ours)} values, TensorFlow has {len(theirs)}"
        pairs = [(i, a, b) for i, (a, b) in enumerate(zip(ours, theirs))]
    else:
        return _array_difference(ours, theirs, options)
    for key, a, b in pairs:
        difference = value_difference(a, b, options)
        if difference:
            return f"[{key}] {difference}"
    return None


def outcome_difference(ours, theirs, options):
    """None, or what differs between two outcomes."""
    if not oracle.codes_agree(ours.code, theirs.code):
        return f"{ours}, TensorFlow has {theirs}"
    if not theirs.code:
        return value_difference(ours.value, theirs.value, options) if options.get(
            "values", True) else None
    if options.get("node", True) and ours.node != theirs.node:
        return f"{ours}, TensorFlow has {theirs}"
    for whose, outcome in (("ours", ours), ("TensorFlow's", theirs)):
        if "message" in options and not re.search(options["message"], outcome.message):
            return f"{whose} message {outcome.message!r} does not match {options['message']!r}"
    return None
