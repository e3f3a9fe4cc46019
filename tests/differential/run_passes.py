#!/usr/bin/env python3
"""Runs programs with every optimisation on, with all off, and with each alone. The results must be
the same, bit by bit.

    run_passes.py [--long] [--only TEXT] [--seed N] [--bin DIR] [--trace]
    tools/dev gpu-sim 2 -- .venv/bin/python tests/differential/run_passes.py --gpus

What can be switched: placement by cost (tf-master --placement), late receives (--recv-scheduling),
the optional passes (tf-master --disable-passes, and OptimizerOptions.L0 of a session), outputs that
take their inputs' memory (tf-worker --no-in-place), code of fused programs (--no-fused-code), Unix
sockets between tasks (--unix off), threads for kernels and steps (--threads 1). The programs are
those of programs_*.py, random graphs, some of them with many control edges, with large values, or
with odd values, types and shapes, and random control flow. Passes that are off by default
(--enable-passes) may change the last bits, so they have random graphs of their own.
There are three sets of tasks: one as it is by default, one with all options off, and one whose
first worker is slow, so that placement by cost moves nodes. What is "moved by cost" has no devices
of tasks in its graph, unless its results depend on them (the option is_about_tasks). Each set has a
master for each way to compile.
With --gpus each task has simulated GPUs. The last bits of a CPU may be others than those of a GPU,
so nothing is folded then, and what is placed by cost is only close. Without --long a seeded sample.
The last line is "N passed, N failed".
"""

import functools
import os
import random
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import gpu_differences  # noqa: E402
import numpy as np  # noqa: E402
import programs  # noqa: E402
import random_graphs  # noqa: E402
import random_loops  # noqa: E402
import random_odd  # noqa: E402
import sessions  # noqa: E402
from cluster import Cluster, ClusterError, argument_parser  # noqa: E402
from programs import tf1  # noqa: E402
# noqa: E402
from run_cluster import RUN_TIMEOUT_MS, Watchdog, _build_program, _with_options, modules

SAMPLE = {"programs": 30, "random": 15, "waiting": 15, "elementwise": 20, "products": 20,
          "gathers": 20, "reductions": 20, "operands": 20, "redundant": 20, "loops": 8, "known": 8,
          "invariants": 8, "large": 6, "odd": 8, "odd products": 6}
LONG = {"programs": None, "random": 1000, "waiting": 1000, "elementwise": 1000, "products": 1000,
        "gathers": 1000, "reductions": 1000, "operands": 1000, "redundant": 1000, "loops": 500,
        "known": 500, "invariants": 500, "large": 300,
        "odd": 1000, "odd products": 500}
GPU_SAMPLE = {kind: max(1, n // 4) for kind, n in SAMPLE.items()} | {"programs": 12}
SLOW = "100"  # how many times as long kernels of the slow task take
PLAIN_TASKS = ("--no-in-place", "--no-fused-code", "--unix", "off", "--threads", "1")
# The optional ones.
PASSES = ("simplify", "invariants", "fold", "branches", "cse", "waits", "controls", "fuse",
          "contract", "gathers", "delays")
OPT_IN = ("pads", "transposes")
REFERENCE = "all on"
# name: (which tasks, master flags, is the session L0?)
WAYS = {
    REFERENCE: ("usual", (), False),
    "all off": ("plain", ("--disable-passes", ",".join(PASSES)), False),
    **{f"{name} alone": ("plain", ("--disable-passes", ",".join(p for p in PASSES if p != name)),
                         False) for name in PASSES},
    "in place, threads and Unix sockets alone": ("usual", ("--disable-passes", ",".join(PASSES)),
                                                 False),
    "L0": ("usual", (), True),
    "placed by cost": ("usual", ("--placement", "cost"), False),
    "moved by cost": ("unequal", ("--placement", "cost", "--recv-scheduling"), False),
    "spread": ("unequal", ("--placement", "spread"), False),
    "receives late": ("usual", ("--recv-scheduling",), False),
    "receives late alone": ("plain", ("--recv-scheduling", "--disable-passes", ",".join(PASSES)),
                            False),
    "small constants folded": ("usual", ("--fold-max", "64"), False),
}  # fmt: skip
BY_COST = {name for name, (_, flags, _) in WAYS.items() if "--placement" in flags}


# Of programs for passes that are off by default. What these do is equal but for rounding.
OPT_IN_WAYS = {
    REFERENCE: WAYS[REFERENCE],
    "all off": WAYS["all off"],
    "off by default": ("usual", ("--enable-passes", ",".join(OPT_IN)), False),
    "off by default, moved by cost": ("unequal", ("--enable-passes", ",".join(OPT_IN),
                                                  "--placement", "cost"), False),
    **{f"{name} alone": ("plain", ("--enable-passes", name, "--disable-passes", ",".join(PASSES)),
                         False) for name in OPT_IN},
}


def without_folding(ways):
    """The ways that are not about folding, and that do not fold."""
    return {name: (tasks, flags if "--disable-passes" in flags
                   else (*flags, "--disable-passes", "fold"), is_l0)
            for name, (tasks, flags, is_l0) in ways.items() if "fold" not in name}


class Clusters:
    """The sets of tasks; for each way a master."""

    def __init__(self, bin_dir, has_gpus=False):
        gpu = ("--gpu", "require") if has_gpus else ()
        self.sets = {
            "usual": Cluster(bin_dir=bin_dir, worker_flags=gpu),
            "plain": Cluster(bin_dir=bin_dir, worker_flags=(*gpu, *PLAIN_TASKS)),
            "unequal": Cluster(bin_dir=bin_dir, worker_flags=gpu,
                               flags_of={("worker", 0): ("--device-scale", SLOW)})}
        self.ways, self.opt_in_ways = ((without_folding(WAYS), without_folding(OPT_IN_WAYS))
                                       if has_gpus else (WAYS, OPT_IN_WAYS))
        # costs may say that the CPU computes a node
        self.exact_ways = set(WAYS) - (BY_COST if has_gpus else set())
        self.targets = {}

    def start(self):
        masters = {}
        for tasks, cluster in self.sets.items():
            cluster.start()
            masters[tasks, ()] = cluster.target
        for name, (tasks, flags, _) in {**self.ways, **self.opt_in_ways}.items():
            key = tasks, flags
            if key not in masters:
                masters[key] = self.sets[tasks].add_master(flags)
            self.targets[name] = masters[key]

    def stop(self):
        return [complaint for cluster in self.sets.values() for complaint in cluster.stop()]

    def check(self):
        for cluster in self.sets.values():
            cluster.check()


def config_of(options, is_l0):
    config = tf1.ConfigProto()
    config.CopyFrom(options.get("config", tf1.ConfigProto()))
    config.operation_timeout_in_ms = RUN_TIMEOUT_MS
    if is_l0:
        config.graph_options.optimizer_options.opt_level = -1
    return config


@functools.lru_cache
def devices(target):
    with tf1.Session(target) as session:
        return [tf1.DeviceSpec.from_string(device.name) for device in session.list_devices()]


def free_nodes(graph, target):
    """The placer may put each node on any task. Devices that the cluster lacks stay wrong."""
    for op in graph.get_operations():
        wanted = tf1.DeviceSpec.from_string(op.device)
        if wanted.job and any(wanted.make_merged_spec(device) == device.make_merged_spec(wanted)
                              for device in devices(target)):
            op._set_device("")  # noqa: SLF001


def run_way(name, target, build, options, is_l0):
    sessions.fresh_state(target)
    graph, runs = _build_program(build)
    if "moved by cost" in name and not options.get("is_about_tasks"):
        free_nodes(graph, target)
    return programs.run_all(target, graph, runs, config_of(options, is_l0))


def closely(options):
    """Values that were computed by other devices. One that is not a float follows from floats, for
    example whether one is greater than another, so single ones of many may differ."""
    return {"flips": 0.01, **options}


def exactly(options):
    """Equal to the bit, but for the bits of a NaN, which follow the order of two operands: an
    optimisation moves and leaves out work, it does no sums in another way. Not for programs with
    the option any_order, whose sums follow the order in which nodes happen to run."""
    return {key: value for key, value in options.items() if key in ("values", "node")} | {
        "rtol": 0.0, "atol": 0.0, "zero_signs": True}


class Runner:
    def __init__(self, arguments, report=None):
        """report: a gpu_differences.DeviceReport."""
        self.arguments, self.report = arguments, report
        self.clusters = Clusters(arguments.bin, arguments.gpus)
        self.passed = self.failed = self.n_runs = 0

    def difference(self, build, options):
        is_opt_in, may_fail = options.get("is_opt_in"), options.get("may_fail")
        options = {key: value for key, value in options.items()
                   if key not in ("is_opt_in", "may_fail")}
        ways = self.clusters.opt_in_ways if is_opt_in else self.clusters.ways
        outcomes = {name: run_way(name, self.clusters.targets[name], build, options, is_l0)
                    for name, (_, _, is_l0) in ways.items()}
        for name, found in outcomes.items():
            for index, (our, wanted) in enumerate(zip(found, outcomes[REFERENCE])):
                self.n_runs += 1
                if may_fail and our.code:
                    continue  # the reference may have left out the node that fails
                is_exact = name in self.clusters.exact_ways and not options.get("any_order")
                compare_by = exactly(options) if is_exact else closely(options)
                difference = programs.outcome_difference(our, wanted, compare_by)
                if difference:
                    return f"'{name}', run {index}: {difference.replace('TensorFlow', REFERENCE)}"
        return None

    def case(self, case):
        name, build, options = _with_options(case)
        if self.arguments.trace:
            print(name, flush=True)
        try:
            with Watchdog(self.clusters.sets["usual"], 120) as watchdog:
                problem = self.difference(build, options)
            if watchdog.complaint:
                raise ClusterError(watchdog.complaint)
            if self.report and (found := self.report.take()):
                raise ClusterError(f"the simulated device reports: {found}")
            self.clusters.check()
        except (ClusterError, OSError) as error:
            problem = str(error)
            self.clusters.stop()
            self.clusters.start()
        self.passed, self.failed = self.passed + (not problem), self.failed + bool(problem)
        if problem:
            print(f"FAIL {name}: {problem}", flush=True)

    def run(self):
        arguments, rng = self.arguments, random.Random(self.arguments.seed)
        limits = LONG if arguments.long else GPU_SAMPLE if arguments.gpus else SAMPLE
        known = [case for module in modules("programs_*.py") for case in module.cases()]
        known = [case for case in known if not arguments.only or arguments.only in case[0]]
        if limits["programs"] is not None and not arguments.only:
            known = rng.sample(known, min(limits["programs"], len(known)))
        self.clusters.start()
        sections = {"programs": known,
                    "random": random_graphs.cases(arguments.seed, limits["random"]),
                    "waiting": random_graphs.waiting_cases(arguments.seed, limits["waiting"]),
                    "elementwise": random_graphs.elementwise_cases(arguments.seed,
                                                                   limits["elementwise"]),
                    "products": random_graphs.product_cases(arguments.seed, limits["products"]),
                    "gathers": random_graphs.gather_cases(arguments.seed, limits["gathers"]),
                    "reductions": random_graphs.reduction_cases(arguments.seed,
                                                                limits["reductions"]),
                    "operands": random_graphs.operand_cases(arguments.seed, limits["operands"]),
                    "redundant": random_graphs.redundant_cases(arguments.seed,
                                                               limits["redundant"]),
                    "loops": random_loops.cases(arguments.seed, limits["loops"]),
                    "known": random_loops.known_cases(arguments.seed, limits["known"]),
                    "invariants": random_loops.invariant_cases(arguments.seed,
                                                               limits["invariants"]),
                    "large": random_graphs.large_cases(arguments.seed, limits["large"]),
                    "odd": random_odd.cases(arguments.seed, limits["odd"]),
                    "odd products": random_odd.product_cases(arguments.seed,
                                                             limits["odd products"])}
        for title, cases in sections.items():
            began, before = time.time(), (self.passed, self.failed)
            for case in cases:
                if not arguments.only or arguments.only in case[0]:
                    self.case(case)
            print(f"{title:10} {self.passed - before[0]:6} passed {self.failed - before[1]:4} "
                  f"failed   {time.time() - began:6.1f} s", flush=True)
        for complaint in self.clusters.stop():
            self.failed += 1
            print("FAIL stopping:", complaint)
        print(f"{len(self.clusters.ways)} ways, {self.n_runs} runs compared")
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed or not self.passed else 0


def main():
    parser = argument_parser("compare programs with optimisations on and off")
    parser.add_argument("--trace", action="store_true",
                        help="print each case's name before it runs")
    parser.add_argument("--gpus", action="store_true",
                        help="the tasks have GPUs: run it under tools/dev gpu-sim 2 --")
    arguments = parser.parse_args()
    np.seterr(all="ignore")
    gpu_differences.run_and_exit(Runner, arguments)


if __name__ == "__main__":
    main()
