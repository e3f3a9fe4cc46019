#!/usr/bin/env python3
"""Runs graph programs on a cluster of ours and in TensorFlow, and compares the results.

    run_cluster.py [--long] [--only TEXT] [--seed N] [--bin DIR] [--messages] [--trace]
    tools/dev gpu-sim 2 -- .venv/bin/python tests/differential/run_cluster.py --gpus

programs_*.py    programs of the kind that clients have (programs.py says what a case is)
sessions.py      programs whose point is the session; the oracle is a cluster of TensorFlow's own
servers
random_*.py      graphs, control flow over several tasks, and session scripts, from seeds
cases_*.py       the kernels' cases, each on a random task

Without --long a seeded sample. With --gpus each task has simulated GPUs, so what asks for no
device is there, and random programs also ask for single devices; TensorFlow has none.
gpu_differences.py says what differs then, and a device that finds a misuse fails the case. After
every case all daemons must live and no step may be left. The last line is "N passed, N failed[, N
skipped]".
"""

import glob
import importlib
import os
import random
import re
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import gpu_differences  # noqa: E402
import oracle  # noqa: E402
import programs  # noqa: E402
import random_functions  # noqa: E402
import random_graphs  # noqa: E402
import random_loops  # noqa: E402
import random_reads  # noqa: E402
import random_sessions  # noqa: E402
import sessions  # noqa: E402
import sessions_batch  # noqa: E402
import sessions_client  # noqa: E402
import sessions_data  # noqa: E402
import sessions_queue  # noqa: E402
from cluster import Cluster, ClusterError, argument_parser  # noqa: E402
from programs import tf, tf1  # noqa: E402

CASE_TIMEOUT_S = 90
RUN_TIMEOUT_MS = 20000
SAMPLE = {"random": 60, "loops": 30, "functions": 30, "reads": 30, "scripts": 10, "kernels": 600}
LONG = {"random": 2000, "loops": 1000, "functions": 1000, "reads": 2000, "scripts": 300,
        "kernels": None}
# programs and sessions are all run but for this
GPU_SAMPLE = {"programs": 300, "sessions": 20, "random": 40, "loops": 20, "functions": 20,
              "reads": 10, "scripts": 3, "kernels": 0}
N_READS = 3  # how often a program of random_reads runs on each side
HERE = os.path.dirname(os.path.abspath(__file__))


class Skipped(Exception):
    """A case that cannot say anything, and why."""


class Different(Exception):
    """What differs."""


class Watchdog:
    """A case that hangs ends because its master is killed; what the steps waited for is kept."""

    def __init__(self, cluster, limit_s):
        self.cluster, self.complaint = cluster, None
        self.timer = threading.Timer(limit_s, self._bite)

    def __enter__(self):
        self.timer.start()
        return self

    def __exit__(self, *_):
        self.timer.cancel()

    def _bite(self):
        self.complaint = "hangs"
        try:
            self.complaint = f"hangs; steps:\n{self.cluster.master.page('/stepz')}"
        finally:
            self.cluster.master.process.kill()


# ---- one case of each kind ----


def _cluster_config(options):
    config = tf1.ConfigProto()
    config.CopyFrom(options.get("config", tf1.ConfigProto()))
    config.operation_timeout_in_ms = RUN_TIMEOUT_MS
    return config


def _build_program(build):
    graph = tf.Graph()
    with graph.as_default():
        runs = build()
    return graph, runs


def _is_not_there_yet(outcome, options):
    return "needs" in options and outcome.code == tf.errors.UNIMPLEMENTED


def outcome_difference(our, their, options, has_gpus):
    if has_gpus and gpu_differences.is_unchecked(our, their):
        raise Skipped("a GPU does not report a bad element")
    return programs.outcome_difference(our, their, options)


def _has_wrong_shapes(run, outcome):
    """Where TensorFlow's conditionals within conditionals of a function make its result dead, its
    call hands out an empty value of another shape than the graph says."""
    if outcome.code:
        return False
    pairs = zip(run.fetches, outcome.value) if isinstance(run.fetches, list) else [
        (run.fetches, outcome.value)]
    return any(tf.is_tensor(fetch) and fetch.shape.is_fully_defined() and value is not None
               and list(fetch.shape) != list(getattr(value, "shape", ())) for fetch, value in pairs)


def run_program(cluster, name, build, options, arguments):
    graph, runs = _build_program(build)
    ours = programs.run_all(cluster.target, graph, runs, _cluster_config(options))
    if any(_is_not_there_yet(outcome, options) for outcome in ours):
        raise Skipped(options["needs"])
    if "cluster_error" in options:
        wanted, pattern = options["cluster_error"]
        theirs = [programs.Outcome(code=outcome.code, node=outcome.node, message=outcome.message)
                  for outcome in ours]
        for outcome in theirs:
            outcome.code = wanted(None, None, "").error_code
        options = {**options, "message": pattern}
    else:
        graph, same = _build_program(lambda: programs.build_without_devices(
            options.get("oracle", build)))
        programs.strip_devices(graph)
        theirs = programs.run_all("", graph, same, programs.oracle_config())
    for index, (our, their) in enumerate(zip(ours, theirs)):
        if arguments.messages and their.code > 0:
            print(f"  {name} run {index}\n    ours {_first_line(our)}\n    tf   "
                  f"{_first_line(their)}")
        difference = outcome_difference(our, their, options, arguments.gpus)
        if difference and _has_wrong_shapes(runs[index], their):
            raise Skipped("TensorFlow hands out a dead value")
        if difference:
            raise Different(f"run {index} ({runs[index].fetches!r:.200}): {difference}")


def _reads_in_process(build):
    graph, runs = _build_program(lambda: programs.build_without_devices(build))
    programs.strip_devices(graph)
    config = programs.oracle_config()
    config.inter_op_parallelism_threads = 4
    return [programs.run_all("", graph, runs, config) for _ in range(N_READS)]


def _reads_on(target, build, config):
    graph, runs = _build_program(build)
    found = []
    for _ in range(N_READS):
        sessions.fresh_state(target)
        found.append(programs.run_all(target, graph, runs, config))
    return runs, found


def _stable_fetches(outcomes):
    """Which fetches of a run have the same value in all outcomes; None when not all succeeded."""
    if any(outcome.code for outcome in outcomes):
        return None
    return [i for i, value in enumerate(outcomes[0].value)
            if not any(programs.value_difference(outcome.value[i], value, {})
                       for outcome in outcomes[1:])]


def run_reads(cluster, build):
    """Compares what TensorFlow does the same way each time, in process and on its servers. Ends
    where its variables differ (each second run fetches them)."""
    config = _cluster_config({})
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    theirs = _reads_in_process(build)
    theirs += _reads_on(sessions.TensorFlowCluster.target(), build, config)[1]
    runs, ours = _reads_on(cluster.target, build, config)
    n_compared = 0
    for index, run in enumerate(runs):
        outcomes = [found[index] for found in theirs]
        stable = [] if index == 0 else _stable_fetches(outcomes)
        if stable is None:
            raise Different(f"run {index} fails in TensorFlow: {outcomes}")
        for outcome in (found[index] for found in ours):
            if outcome.code:
                raise Different(f"run {index} ({run.fetches!r:.300}): {outcome}")
            for i in stable:
                difference = programs.value_difference(outcome.value[i], outcomes[0].value[i], {})
                if difference:
                    raise Different(f"run {index}, fetch {run.fetches[i]!r}: {difference}")
        n_compared += len(stable)
        if index and index % 2 == 0 and len(stable) < len(run.fetches):
            break
    if not n_compared:
        raise Skipped("all of TensorFlow's results differ from time to time")


def _first_line(outcome):
    text = outcome.message.strip()
    return f"[{outcome.node}] {text[:300]!r}"


def _notes(script, target):
    sessions.fresh_state(target)
    notes = []
    script(target, lambda name,
           value: notes.append((name, value if isinstance(value, programs.Outcome)
                                else programs.Outcome(value=value))))
    return notes


def run_script(cluster, name, script, options, arguments):
    try:
        ours = _notes(script, cluster.target)
    except tf.errors.UnimplementedError:
        if "needs" not in options:
            raise
        raise Skipped(options["needs"]) from None
    if "needs" in options and any(tf.errors.UNIMPLEMENTED in (value.code, value.value if isinstance(
        value.value, int) else 0) for _, value in ours):
        raise Skipped(options["needs"])
    if options.get("ours_only"):
        return
    theirs = _notes(script, sessions.TensorFlowCluster.target())
    if [n for n, _ in ours] != [n for n, _ in theirs]:
        raise Different(f"notes {ours}, TensorFlow has {theirs}")
    for (what, our), (_, their) in zip(ours, theirs):
        if arguments.messages and their.code > 0:
            print(f"  {name} {what}\n    ours {_first_line(our)}\n    tf   {_first_line(their)}")
        difference = outcome_difference(our, their, options, arguments.gpus)
        if difference:
            raise Different(f"{what}: {difference}")


def _run_steps(target, graph, steps):
    results = []
    config = tf1.ConfigProto(operation_timeout_in_ms=RUN_TIMEOUT_MS)
    # with and without folding
    config.graph_options.optimizer_options.opt_level = -1 if len(graph.get_operations()) % 2 else 0
    with tf1.Session(target, graph=graph, config=config) as session:
        for step in steps:
            outcome = programs.attempt(session.run, [list(step.fetches), list(step.targets)],
                                       step.feeds)
            results.append((outcome.code, outcome.message, outcome.value[0] if not outcome.code
                            else []))
    return results


def run_kernel_case(cluster, name, build, options, rng):
    try:
        compare_kernel_case(cluster, build, options, rng)
    except Different:
        if "explained" not in options:
            raise
        raise Skipped(options["explained"]) from None


def compare_kernel_case(cluster, build, options, rng):
    mode = rng.choice(options.get("modes", ("static", "hidden")))
    task = rng.choice(programs.TASKS)
    try:
        graph, steps = oracle._build(build, mode)
    except (ValueError, tf.errors.OpError):
        raise Skipped("TensorFlow refuses to build it") from None
    theirs = oracle._run_tensorflow(graph, steps)
    for op in graph.get_operations():
        op._set_device(task)
    ours = _run_steps(cluster.target, graph, steps)
    for index, (step, (our_code, our_message, values), (code, message, expected)) in enumerate(
        zip(steps, ours, theirs)):
        if code == tf.errors.UNIMPLEMENTED:
            raise Skipped("TensorFlow has no kernel")
        if our_code != code and "No OpKernel was registered" in our_message:
            raise Skipped("a kernel that is not there: run_kernels.py says which")
        if code == -1 and our_code > 0:
            continue  # an error whose text TensorFlow's own client cannot decode
        if not oracle.codes_agree(our_code, code):
            raise Different(f"[{mode}, {task}] step {index}: code {our_code} "
                            f"({our_message[:300]!r}), TensorFlow has {code} ({message[:200]!r})")
        for fetch, ours_value, value in zip(step.fetches, values, expected):
            difference = None
            if options.get("ignore") != "values" and not code:
                difference = oracle._values_differ(
                    ours_value, value, fetch.dtype.base_dtype, options)
            if difference:
                raise Different(f"[{mode}, {task}] step {index} {fetch.name}: {difference}")


def check_compatibility_page():
    """docs/compatibility.md names every field of the client's configuration and options."""
    from tensorflow.core.framework import graph_pb2, node_def_pb2
    from tensorflow.core.protobuf import config_pb2

    with open(os.path.join(oracle.ROOT, "docs", "compatibility.md")) as page:
        words = set(re.findall(r"\w+", page.read()))
    config, options = config_pb2.ConfigProto.DESCRIPTOR, config_pb2.RunOptions.DESCRIPTOR
    messages = [config, config.fields_by_name["experimental"].message_type,
                config.fields_by_name["rpc_options"].message_type, options]
    messages += [options.fields_by_name["experimental"].message_type,
                 config_pb2.CallableOptions.DESCRIPTOR, config_pb2.RunMetadata.DESCRIPTOR]
    messages += [config_pb2.GraphOptions.DESCRIPTOR, config_pb2.OptimizerOptions.DESCRIPTOR,
                 graph_pb2.GraphDef.DESCRIPTOR, node_def_pb2.NodeDef.DESCRIPTOR]
    missing = [f"{message.name}.{field.name}" for message in messages for field in message.fields
               if field.name not in words]
    if missing:
        raise Different(f"docs/compatibility.md does not name {', '.join(missing)}")


# ---- all of them ----


def _with_options(case):
    return case if len(case) == 3 else (*case, {})


def modules(pattern):
    return [importlib.import_module(os.path.basename(path)[:-3])
            for path in sorted(glob.glob(os.path.join(HERE, pattern)))]


def kernel_cases(wanted, limit, rng):
    """All cases, or a seeded sample with a share of each family."""
    found = []
    families = modules("cases_*.py")
    for family in families:
        of_family = [_with_options(case) for case in family.cases()]
        of_family = [case for case in of_family if wanted(case[0])]
        if limit is not None:
            of_family = rng.sample(of_family, min(len(of_family), limit // len(families)))
        found += of_family
    return found


class Runner:
    def __init__(self, arguments, report=None):
        """report: a gpu_differences.DeviceReport."""
        self.arguments, self.report = arguments, report
        self.cluster = Cluster(bin_dir=arguments.bin)
        self.passed, self.failed, self.skipped, self.reasons = 0, 0, 0, {}

    def start(self):
        self.cluster.start()
        if self.arguments.gpus and not any("GPU" in name for name in self.device_names()):
            raise SystemExit(f"run_cluster.py: --gpus, and the tasks have none: "
                             f"{self.device_names()}")

    def device_names(self):
        with tf1.Session(self.cluster.target) as session:
            return [device.name for device in session.list_devices()]

    def case(self, name, function):
        if not self.cluster.daemons:
            self.start()
        problem = None
        left_out = gpu_differences.why_left_out(name) if self.arguments.gpus else None
        if left_out:
            self.skipped += 1
            self.reasons[left_out] = self.reasons.get(left_out, 0) + 1
            return
        if self.arguments.trace:
            print(name, flush=True)
        with Watchdog(self.cluster, CASE_TIMEOUT_S) as watchdog:
            try:
                sessions.fresh_state(self.cluster.target)
                function()
                self.passed += 1
            except Skipped as reason:
                self.skipped += 1
                self.reasons[str(reason)] = self.reasons.get(str(reason), 0) + 1
            except Different as difference:
                problem = str(difference)
            except Exception:  # noqa: BLE001  (a broken case must not end the run)
                problem = traceback.format_exc(limit=4)
        try:
            if watchdog.complaint:
                raise ClusterError(watchdog.complaint)
            if self.report and (found := self.report.take()):
                raise ClusterError(f"the simulated device reports: {found}")
            self.cluster.check()
        except (ClusterError, OSError) as error:
            if not problem:
                self.passed -= 1
            problem = f"{problem or ''}\n  {error}"
            self.cluster.stop()
        if problem:
            self.failed += 1
            print(f"FAIL {name}: {problem}", flush=True)

    def section(self, title, cases):
        began, before = time.time(), (self.passed, self.failed, self.skipped)
        for name, function in cases:
            self.case(name, function)
        passed, failed, skipped = (now - then for now,
                                   then in zip((self.passed, self.failed, self.skipped), before))
        print(f"{title:10} {passed:6} passed {failed:4} failed {skipped:4} skipped   "
              f"{time.time() - began:6.1f} s", flush=True)

    def run(self):
        arguments, rng = self.arguments, random.Random(self.arguments.seed)
        limits = LONG if arguments.long else GPU_SAMPLE if arguments.gpus else SAMPLE

        def wanted(name):
            return not arguments.only or arguments.only in name

        def program(case):
            name, build, options = _with_options(case)
            return name, lambda: run_program(self.cluster, name, build, options, arguments)

        def random_program(case):
            name, build, options = _with_options(case)
            if arguments.gpus:
                options = {**options, "config": tf1.ConfigProto(allow_soft_placement=True)}
            return program((name, build, options))

        def script(case):
            name, function, options = _with_options(case)
            return name, lambda: run_script(self.cluster, name, function, options, arguments)

        def kernel(case):
            name, build, options = case
            case_rng = random.Random(f"{arguments.seed} {name}")
            return f"kernel/{name}", lambda: run_kernel_case(
                self.cluster, name, build, options, case_rng)

        def some(kind, cases):
            found = [case for case in cases if wanted(case[0])]
            n = min(limits.get(kind, len(found)), len(found))
            return [found[i] for i in sorted(rng.sample(range(len(found)), n))]

        if arguments.gpus:
            self.start()
            programs.PLACES += self.device_names()
        if wanted("docs/compatibility"):
            self.section("docs", [("docs/compatibility", check_compatibility_page)])
        self.section("programs", [program(c) for c in some("programs", [
            c for m in modules("programs_*.py") for c in m.cases()])])
        self.section("sessions", [script(c) for c in some("sessions", [
            *sessions.scripts(), *sessions_batch.scripts(), *sessions_client.scripts(),
            *sessions_data.scripts(), *sessions_queue.scripts()])])
        self.section("random",
                     [random_program(c) for c in random_graphs.cases(arguments.seed,
                             limits["random"]) if wanted(c[0])])
        self.section("loops",
                     [random_program(c) for c in random_loops.cases(arguments.seed, limits["loops"])
                      if wanted(c[0])])
        self.section("functions",
                     [random_program(c) for c in random_functions.cases(arguments.seed,
                             limits["functions"]) if wanted(c[0])])
        self.section("reads",
                     [(name, lambda build=build: run_reads(self.cluster, build))
                      for name, build in random_reads.cases(arguments.seed, limits["reads"])
                      if wanted(name)])
        self.section("scripts",
                     [script(c) for c in random_sessions.scripts(arguments.seed, limits["scripts"])
                      if wanted(c[0])])
        self.section("kernels",
                     [kernel(c) for c in kernel_cases(lambda n: wanted(f"kernel/{n}"),
                             limits["kernels"], rng)])
        for complaint in self.cluster.stop():
            self.failed += 1
            print("FAIL stopping:", complaint)
        for reason, n in sorted(self.reasons.items()):
            print(f"skipped {n}: {reason}")
        print(f"{self.passed} passed, {self.failed} failed"
              + (f", {self.skipped} skipped" if self.skipped else ""), flush=True)
        return 1 if self.failed or not self.passed else 0


def main():
    parser = argument_parser("compare a cluster with TensorFlow")
    parser.add_argument("--trace", action="store_true",
                        help="print each case's name before it runs: some abort TensorFlow")
    parser.add_argument("--messages", action="store_true",
                        help="show both messages where runs fail")
    parser.add_argument("--gpus", action="store_true",
                        help="the tasks have GPUs: run it under tools/dev gpu-sim 2 --")
    arguments = parser.parse_args()
    gpu_differences.run_and_exit(Runner, arguments)


if __name__ == "__main__":
    main()
