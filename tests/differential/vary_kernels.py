#!/usr/bin/env python3
"""Varies the kernels' cases (cases_*.py), runs the variants in TensorFlow and with our kernels, and
compares what a case by itself does not show.

    vary_kernels.py outputs [FAMILY...]   the shapes of all outputs of the ops that a case fetches,
                                          those that nobody reads included
    vary_kernels.py flags [FAMILY...]     each boolean attr with both values, and each string attr
                                          with all that its op allows: the same values, or the
                                          same code
    vary_kernels.py allocations [FAMILY…] each allocation of a kernel fails once: the evaluator
                                          lives and does not say INTERNAL (use build-asan's for
                                          leaks)
    vary_kernels.py errors [FAMILY...]    broken cases (fuzz_kernels.py): the code, and the words
                                          of the message; a table of the differences, op by op

    vary_kernels.py all                   these four, one after the other

    [--long] [--only TEXT] [--n N] [--mutants M] [--first SEED] [--eval PATH]

TensorFlow runs in a process of its own, because some broken graphs end it. Without --long a small
seeded sample. errors prints a table, the most frequent difference first, and how many failures have
the same code and the same key words; it fails where these are too few. The last line is
"N passed, N failed".
"""

import argparse
import collections
import glob
import importlib
import multiprocessing
import os
import random
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import fuzz_kernels  # noqa: E402
import numpy  # noqa: E402
import oracle  # noqa: E402
import tensorflow as tf  # noqa: E402
from run_kernels import default_evaluator  # noqa: E402
from tensorflow.core.framework import attr_value_pb2, graph_pb2  # noqa: E402
from tensorflow.python.framework import op_def_registry  # noqa: E402

LIMIT_S = 4
REFUSED = -2  # TensorFlow's client refuses to build the graph
HANDLES = {tf.resource, tf.variant}

# (op, attr) whose two values TensorFlow runs alike, or whose difference is intended: why.
_UNSORTED = "the order is not defined"
_UNSET = "TensorFlow leaves the last outputs as its allocator gave them"
_FIRST = "two nodes fail, and either may be first"
FLAGS_EXPLAINED = {("TopKV2", "sorted"): _UNSORTED, ("FusedBatchNorm", "is_training"): _UNSET,
                   ("FusedBatchNormV2", "is_training"): _UNSET,
                   ("FusedBatchNormV3", "is_training"): _UNSET, ("AsString", "scientific"): _FIRST,
                   ("AsString", "shortest"): _FIRST}


# ---- TensorFlow in a process of its own ----


def serve(pipe):
    """Answers (graph, steps) with a list of (code, message, values)."""
    with open(os.devnull, "wb") as nowhere:  # TensorFlow prints a trace where it ends
        os.dup2(nowhere.fileno(), 2)
    pipe.send(None)
    while True:
        try:
            graphdef, steps = pipe.recv()
        except EOFError:
            return
        graph, answers = tf.Graph(), []
        try:
            with graph.as_default():
                tf.import_graph_def(graph_pb2.GraphDef.FromString(graphdef), name="")
            with tf.compat.v1.Session(graph=graph, config=oracle._session_config()) as session:
                for feeds, fetches, targets in steps:
                    answers.append(run_step(session, graph, feeds, fetches, targets))
        except UnicodeDecodeError:  # the client cannot read an error that quotes such bytes
            answers = [(oracle.SOME_ERROR, "", [])]
        except (ValueError, TypeError) as error:
            answers = [(REFUSED, str(error), [])]
        except tf.errors.OpError as error:
            answers = [(error.error_code, error.message, [])]
        pipe.send(answers)


def run_step(session, graph, feeds, fetches, targets):
    feeds = {name: oracle._make_array(oracle.tensor_pb2.TensorProto.FromString(proto))
             for name, proto in feeds.items()}
    operations = [graph.get_operation_by_name(name.split(":")[0]) for name in targets]
    try:
        values, _ = session.run([list(fetches), operations], feeds)
        return 0, "", values
    except tf.errors.OpError as error:
        return error.error_code, oracle._bare_message(error.message), []
    except UnicodeDecodeError:
        return oracle.SOME_ERROR, "", []
    except (ValueError, TypeError) as error:
        return REFUSED, str(error), []


class TensorFlow:
    def __init__(self):
        self.process = None

    def run(self, graphdef, steps):
        """The answers, or None: it crashed, or took too long."""
        if not self.process:
            context = multiprocessing.get_context("forkserver")  # threads of this one stay here
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=serve, args=(other,), daemon=True)
            self.process.start()
            other.close()
            self.pipe.recv()  # it has started
        try:
            self.pipe.send((graphdef, steps))
            if self.pipe.poll(LIMIT_S):
                return self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass
        self.process.kill()
        self.process.join()
        self.process = None
        return None


def run_ours(evaluator, graphdef, steps):
    """The same of our kernels."""
    signal.alarm(5 * LIMIT_S)
    try:
        answers = evaluator.run(graphdef, steps)
    except TimeoutError:
        evaluator.process.kill()
        evaluator.process.wait()
        evaluator.process = None
        return None
    except oracle.Crashed:
        return None
    finally:
        signal.alarm(0)
    return [(code, message, [oracle._make_array(oracle.tensor_pb2.TensorProto.FromString(proto))
                             for proto in protos]) for code, message, protos, _ in answers]


# ---- variants ----


def wire(case):
    """(GraphDef, wire steps, graph) of a case, or None where TensorFlow's client refuses it."""
    try:
        graph, steps = oracle._build(case[1], "hidden")
    except (ValueError, TypeError, tf.errors.OpError):
        return None
    return graph.as_graph_def(), oracle._wire_steps(steps), graph


def is_plain(tensor):
    return tensor.dtype not in HANDLES and not tensor.dtype._is_ref_dtype


def before(graph, names):
    """The operations that fetches need, by name."""
    found, rest = {}, [graph.get_operation_by_name(name.split(":")[0]) for name in names]
    while rest:
        operation = rest.pop()
        if operation.name not in found:
            found[operation.name] = operation
            rest += [t.op for t in operation.inputs] + operation.control_inputs
    return [found[name] for name in sorted(found)]


def all_outputs(case):
    """The case with every output of every op that a step runs."""
    built = wire(case)
    if not built:
        return
    graphdef, steps, graph = built
    wider = []
    for feeds, fetches, targets in steps:
        others = [t.name for op in before(graph, [*fetches, *targets]) for t in op.outputs
                  if is_plain(t) and op.type not in ("Const", "PlaceholderWithDefault")]
        wider.append((feeds, [*fetches, *(n for n in others if n not in fetches)], targets))
    if wider != steps:
        yield "all outputs", graphdef, wider


def other_values(op, name, value):
    """Other values that an attr may have: of booleans, and of strings where the op lists them."""
    if value.WhichOneof("value") == "b":
        return [attr_value_pb2.AttrValue(b=not value.b)]
    definition = op_def_registry.get(op)
    rows = [a for a in definition.attr if a.name == name] if definition else []
    if value.WhichOneof("value") == "s" and rows:
        return [attr_value_pb2.AttrValue(s=s) for s in rows[0].allowed_values.list.s if s
                != value.s]
    return []


def flipped(case):
    built = wire(case)
    for node in built[0].node if built else ():
        for name in sorted(node.attr):
            if (node.op, name) in FLAGS_EXPLAINED:
                continue
            for value in other_values(node.op, name, node.attr[name]):
                graphdef = graph_pb2.GraphDef.FromString(built[0].SerializeToString())
                next(n for n in graphdef.node if n.name == node.name).attr[name].CopyFrom(value)
                yield f"{node.op}.{name}={value.s or value.b}", graphdef, built[1]


# ---- comparing ----


def shapes_differ(ours, theirs):
    """None, or how two answers differ where both succeed."""
    for number, (mine, other) in enumerate(zip(ours, theirs)):
        if mine[0] or other[0]:
            return None
        for i, (a, b) in enumerate(zip(mine[2], other[2])):
            if numpy.shape(a) != numpy.shape(b):
                return f"step {number}, fetch {i}: shape {numpy.shape(a)}, TensorFlow has " \
                       f"{numpy.shape(b)}"
    return None


def values_differ(ours, theirs):
    for number, (mine, other) in enumerate(zip(ours, theirs)):
        if not oracle.codes_agree(mine[0], other[0]):
            return f"step {number}: {mine[:2]}, TensorFlow {other[:2]}"
        for i, (a, b) in enumerate(zip(mine[2], other[2])):
            a, b = numpy.asarray(a), numpy.asarray(b)
            if a.shape != b.shape:
                return f"step {number}, fetch {i}: shape {a.shape}, TensorFlow has {b.shape}"
            if a.dtype == object or a.dtype.kind in "bSU":
                same = numpy.array_equal(a, b)
            else:
                kind = numpy.complex128 if a.dtype.kind == "c" else numpy.float64
                same = numpy.allclose(a.astype(kind), b.astype(kind), 2e-2, 2e-2, equal_nan=True)
            if not same:
                return f"step {number}, fetch {i}: {a!r:.200}, TensorFlow has {b!r:.200}"
    return None


def compare(evaluator, tensorflow, cases, variants, differ):
    """(passed, failures) over the variants of the cases."""
    passed, failures, unread = 0, [], 0
    for case in cases:
        options = case[2] if len(case) > 2 else {}
        if "values" in str(options.get("ignore", "")) and differ is values_differ:
            continue
        for what, graphdef, steps in variants(case):
            theirs = tensorflow.run(graphdef.SerializeToString(), steps)
            if theirs is None or theirs[0][0] in (REFUSED, tf.errors.UNIMPLEMENTED):
                unread += 1
                continue
            ours = run_ours(evaluator, graphdef.SerializeToString(), steps)
            why = "graph_eval ended" if ours is None else differ(ours, theirs)
            passed += not why
            if why:
                failures.append(f"{case[0]}, {what}: {why}")
    return passed, failures, unread


# ---- errors ----


# Words that say nothing, and words for the same.
FILLING = set("""and are as be been but by does for from given got has have in into is it its just
    must not of only or received saw should specified tensor than that the to was which
    with""".split())
ALIKE = {"matrix": "rank", "scalar": "rank", "vector": "rank", "vec": "rank", "ndims": "rank",
         "dimensional": "rank", "dimension": "dimensions", "shapes": "shape", "equal": "same",
         "match": "same", "elements": "size", "length": "size", "sorted": "increasing",
         "negative": "nonnegative", "bounds": "range", "bound": "range", "args": "inputs",
         "input": "inputs", "indices": "index", "values": "value", "dtype": "type",
         "types": "type"}


def words(message):
    """The key words of a message: without numbers, names of nodes and quotations."""
    message = re.sub(r"\[\[.*| for '\{\{node.*", "", message, flags=re.S)
    message = re.sub(r"\{\{.*?\}\}|base64: \S+", "", message)
    found = set(re.findall(r"[a-z]{2,}", re.sub(r"[-_]", " ", message.lower()))) - FILLING
    return {ALIKE.get(word, word) for word in found}


# What TensorFlow's shape functions say of any op.
OF_SHAPES = re.compile(r"^(Shape|Dimension|Rank)s? (must|\d+ in both|cannot)|"
                       r"invalid shape scalar|Invalid value in tensor used for shape")
SHAPE_WORDS = {"rank", "dimensions", "shape", "size", "number", "axis"}


def is_alike(ours, theirs):
    """At least half of the words of TensorFlow's message are in ours. Where TensorFlow says what it
    says of any op's shapes, ours says something of a shape. A message that TensorFlow's client
    cannot read has no words."""
    expected, said = words(theirs), words(ours)
    if OF_SHAPES.search(theirs):
        return bool(said & SHAPE_WORDS)
    return len(said & expected) * 2 >= len(expected)


def failing_op(graph, message):
    """The op that a message blames, or "?"."""
    found = re.search(r"\{\{node ([^}]+)\}\}", message)
    names = {node.name: node.op for node in graph.node}
    return names.get(found.group(1).split("/")[-1], names.get(found.group(1), "?")) if found \
        else "?"


def first_failure(answers):
    return next(((code, message) for code, message, _ in answers if code), (0, ""))


def subject(case, graph):
    """The op that a case is about: by its name, else the op of most nodes."""
    name = case[0].split("/")[0]
    if op_def_registry.get(name):
        return name
    counts = collections.Counter(n.op for n in graph.node
                                 if n.op not in ("Const", "PlaceholderWithDefault"))
    return counts.most_common(1)[0][0] if counts else "?"


def builds(case):
    """[(GraphDef, wire steps)]: constants that shape functions do not see, and that they see."""
    found = []
    for modes in (("hidden", "ranked"), ("static",)):
        for mode in modes:
            try:
                graph, steps = oracle._build(case[1], mode)
            except (ValueError, TypeError, tf.errors.OpError):
                continue
            found.append((graph.as_graph_def(), oracle._wire_steps(steps)))
            break
    return found


def answer_both(evaluator, tensorflow, graph, steps):
    """((code, message) of ours, of TensorFlow's) for the first failure of each, or None: nobody
    fails, or nothing can be said. What TensorFlow's shape functions refuse has no code."""
    theirs = tensorflow.run(graph.SerializeToString(), steps)
    if theirs is None or any(code == tf.errors.UNIMPLEMENTED for code, _, _ in theirs):
        return None
    ours = run_ours(evaluator, graph.SerializeToString(), steps)
    if ours is None:
        return None
    mine, other = first_failure(ours), first_failure(theirs)
    if other[0] == REFUSED:
        other = (oracle.SOME_ERROR, other[1])
    return (mine, other) if mine[0] or other[0] else None


def compare_errors(evaluator, tensorflow, family, cases, arguments, table):
    """Counts of failures: {"all", "code": the same code, "words": the same key words, too}."""
    counts, silent = collections.Counter(), set()
    for seed in range(arguments.first, arguments.first + arguments.n):
        rng = random.Random(f"{family} {seed}")
        case = rng.choice(cases)
        built = builds(case) if case[0] not in silent else []
        for mutant in range(arguments.mutants if built else 0):
            graph = graph_pb2.GraphDef()
            before_it, steps = built[mutant % len(built)]
            graph.CopyFrom(before_it)
            fuzz_kernels.mutate(rng, graph)
            answers = answer_both(evaluator, tensorflow, graph, steps)
            if not tensorflow.process:  # it ended, or waited
                silent.add(case[0])
                break
            if not answers:
                continue
            mine, other = answers
            op = failing_op(graph, other[1] or mine[1])
            op = subject(case, graph) if op == "?" else op
            has_code = bool(oracle.codes_agree(mine[0], other[0]))
            has_words = has_code and is_alike(mine[1], other[1])
            counts.update(all=1, code=has_code, words=has_words)
            if has_words:
                continue
            key = (op, mine[0], other[0], " ".join(sorted(words(other[1]))))
            row = table.setdefault(key, [0, mine[1], other[1], f"{family} {seed} {mutant}"])
            row[0] += 1
    return counts


def print_errors(table):
    for (op, mine, other, _), (n, ours, theirs, where) in sorted(table.items(),
                                                                 key=lambda item: -item[1][0]):
        print(f"{n:4} {op} ({where})\n     {other:2} TensorFlow: {theirs[:300]!r}\n"
              f"     {mine:2} ours:       {ours[:300]!r}")


# ---- failing allocations ----

N_FAILURES = 200  # of a case


def fail_allocations(evaluator, cases):
    """(passed, failures)."""
    passed, failures = 0, []
    for case in cases:
        for graph, steps in builds(case):
            signal.alarm(10 * LIMIT_S)
            try:
                evaluator.run(graph.SerializeToString(), steps)
                passed += 1
            except TimeoutError:
                failures.append(f"{case[0]}: no answer in {10 * LIMIT_S} s")
                evaluator.process.kill()
                evaluator.process.wait()
                evaluator.process = None
            except oracle.Crashed as error:
                failures.append(f"{case[0]}: {error}")
            finally:
                signal.alarm(0)
    return passed, failures, 0


def print_counts(what, counts):
    print(f"{what:20} {counts['all']:6} fail, {counts['code']:6} with the same code, "
          f"{counts['words']:6} with the same key words, too", flush=True)


# ---- running ----

MODES = ("outputs", "flags", "allocations", "errors")
SAMPLED = {"outputs": 12, "flags": 6, "allocations": 4, "errors": 3}  # cases of each family
# What the share of failures with the same code, and with the same key words, may not fall below.
# TensorFlow's shape functions refuse some graphs that kernels of both take, and what it reads
# beyond its inputs has no fixed outcome.
LEAST_CODES, LEAST_WORDS = 0.95, 0.8


def cases_of(family, only):
    return [case for case in importlib.import_module(family).cases() if not only
            or re.search(only, case[0])]


def run_errors(families, arguments, evaluator, tensorflow):
    """(passed, failed): failures with the same key words, and the shares that are too small."""
    table, total = {}, collections.Counter()
    for family in families:
        cases = cases_of(family, arguments.only)
        if not cases:
            continue
        counts = compare_errors(evaluator, tensorflow, family, cases, arguments, table)
        total.update(counts)
        if arguments.n > SAMPLED["errors"]:
            print_counts(family, counts)
    if arguments.n > SAMPLED["errors"]:
        print_errors(table)
    print_counts("errors, all", total)
    failed = 0
    for what, least in (("code", LEAST_CODES), ("words", LEAST_WORDS)):
        if total[what] < least * total["all"]:
            failed += 1
            print(f"FAIL errors: {total[what]} of {total['all']} with the same {what}, less than "
                  f"{least:.0%}")
    return total["words"], failed


def run_variants(what, families, arguments, evaluator, tensorflow):
    good, bad = 0, 0
    for family in families:
        rng = random.Random(f"{arguments.first} {family}")
        cases = cases_of(family, arguments.only)
        cases = rng.sample(cases, min(len(cases), arguments.n))
        if what == "allocations":
            passed, failures, unread = fail_allocations(evaluator, cases)
        elif what == "outputs":
            passed, failures, unread = compare(evaluator, tensorflow, cases, all_outputs,
                                               shapes_differ)
        else:
            passed, failures, unread = compare(evaluator, tensorflow, cases, flipped,
                                               values_differ)
        for line in failures[:100]:
            print("FAIL", what, family, line)
        if passed or failures:
            print(f"{what} {family:20} {passed:5} passed {len(failures):4} failed {unread:4} "
                  "TensorFlow cannot answer", flush=True)
        good, bad = good + passed, bad + len(failures)
    return good, bad


def main():
    parser = argparse.ArgumentParser(description="compare variants of the kernels' cases")
    parser.add_argument("what", choices=(*MODES, "all"))
    parser.add_argument("families", nargs="*", help="cases_array ...; default all")
    parser.add_argument("--long", action="store_true", help="100 cases of each family")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--n", type=int, help="cases of each family; default: a small sample")
    parser.add_argument("--mutants", type=int, default=5, help="errors: of each case")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--eval", default=default_evaluator(),
                        help="the evaluator; default build/tests/tools/graph_eval")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, fuzz_kernels.on_alarm)
    tensorflow, asked = TensorFlow(), arguments.n
    families = arguments.families or sorted(os.path.basename(path)[:-3]
                                            for path in glob.glob(os.path.join(HERE, "cases_*.py")))
    passed, failed = 0, 0
    for what in MODES if arguments.what == "all" else [arguments.what]:
        arguments.n = asked or (100 if arguments.long else SAMPLED[what])
        os.environ["GRAPH_EVAL_FAILURES"] = str(N_FAILURES if what == "allocations" else 0)
        evaluator = oracle.Evaluator(arguments.eval)
        good, bad = run_errors(families, arguments, evaluator,
                               tensorflow) if what == "errors" else run_variants(
                                   what, families, arguments, evaluator, tensorflow)
        evaluator.stop()
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
