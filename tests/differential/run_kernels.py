#!/usr/bin/env python3
"""Compares the kernels' cases (cases_*.py) with TensorFlow, op by op, in the evaluator (oracle.py),
without daemons.

    run_kernels.py [FAMILY...] [--long] [--only TEXT] [--seed N] [--sample N] [--backward] [--report
    FILE] [--eval PATH]

Without --long a seeded sample with a share of each family. --backward: also the client's gradient
of each case that agrees. --report: with it, and writes what was compared op by op (op_report.py).
The last line is "N passed, N failed[, N skipped]".
"""

import argparse
import glob
import importlib
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import op_report  # noqa: E402
import oracle  # noqa: E402

SAMPLE_PER_FAMILY = 400


def default_evaluator():
    if "GRAPH_EVAL" in os.environ:
        return os.environ["GRAPH_EVAL"]
    build = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip(
        "/")) if "MILLRACE_BIN" in os.environ else os.path.join(oracle.ROOT, "build")
    return os.path.join(build, "tests", "tools", "graph_eval")


BACKWARD_SLACK = 16  # a gradient is a chain of ops: its tolerance is that many times the case's


def run_backward(evaluator, name, build, options, report, ops):
    """The client's gradient of a case. What it cannot differentiate says nothing."""
    graph, steps = oracle._build(build, "static")
    found = op_report.differentiate(graph, steps)
    if not found:
        return
    fetches, types = found
    loosest = max(options.get("rtol", 0), *(oracle.DEFAULT_TOLERANCE.get(t.dtype.base_dtype.name, 0)
                                            for t in fetches))
    options = {"rtol": BACKWARD_SLACK * loosest,
               "atol": max(BACKWARD_SLACK * loosest, options.get("atol", 0)), "ignore": "shapes",
               "to_largest": True}
    n_failed, why = len(report.failed), op_report.backward_reason(name)
    outcome = oracle.compare_graph(evaluator, name, graph, [oracle.Step(fetches)], options,
                                   "backward", report)
    if outcome == "differs" and why:
        del report.failed[n_failed:]
        report.explained += 1
        outcome = "explained"
    if ops:
        ops.backward_case(name, types, outcome)


def sampled(cases, rng, n):
    """n cases in random order, of which each op has one as long as n suffices: names begin with the
    op's."""
    rng.shuffle(cases)
    seen, first, rest = set(), [], []
    for case in cases:
        subject = case[0].split("/")[0]
        (rest if subject in seen else first).append(case)
        seen.add(subject)
    return (first + rest)[:n]


def run_family(name, evaluator, arguments, ops):
    cases = [case if len(case) == 3 else (*case, {})
             for case in importlib.import_module(name).cases()]
    cases = [case for case in cases if not arguments.only or arguments.only in case[0]]
    if not arguments.long:
        cases = sampled(cases, random.Random(f"{arguments.seed} {name}"), arguments.sample)
    report, began = oracle.Report(), time.time()
    is_on_gpu = "GRAPH_EVAL_GPU" in os.environ
    for case_name, build, options in cases:
        if is_on_gpu and op_report.gpu_reason(case_name):
            options = {**options, "explained": op_report.gpu_reason(case_name)}
        for mode in options.get("modes", ("static", "hidden")):
            outcome, graph = oracle.run_case(evaluator, case_name, build, options, mode, report)
            if ops:
                ops.case(case_name, mode, graph, outcome, options)
            if (arguments.backward or ops) and mode == "static" and outcome in (
                "agree", "left open") and options.get("ignore") != "values":
                run_backward(evaluator, case_name, build, options, report, ops)
    for line in report.failed[:100]:
        print("FAIL", line)
    skipped = report.wider + report.unbuildable + report.explained
    print(f"{name:20} {report.ok:6} passed {len(report.failed):4} failed {skipped:4} skipped   "
          f"{time.time() - began:6.1f} s", flush=True)
    return report.ok, len(report.failed), skipped


def write_report(ops, arguments):
    import run_cluster  # late: its programs are needed here only

    modules = [module for pattern in ("programs_*.py",) for module in run_cluster.modules(pattern)]
    graphs = (run_cluster._build_program(run_cluster._with_options(case)[1])[0]
              for module in modules for case in module.cases())
    paths = (arguments.report, arguments.eval, "--eval")
    command = " ".join(["run_kernels.py"] + [a for a in sys.argv[1:] if a not in paths])
    compared, n, neither = ops.write(arguments.report, command, ops.programs(graphs))
    print(f"{compared} of {n} ops with a kernel compared; nowhere: {' '.join(neither)}")


def main():
    parser = argparse.ArgumentParser(description="compare our kernels with TensorFlow's")
    parser.add_argument("families", nargs="*", help="cases_array ...; default all")
    parser.add_argument("--long", action="store_true", help="all cases, not a sample")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eval", default=default_evaluator(),
                        help="the evaluator; default build/tests/tools/graph_eval")
    parser.add_argument("--sample", type=int, default=SAMPLE_PER_FAMILY,
                        help="cases of a family without --long")
    parser.add_argument("--backward", action="store_true", help="gradients, too")
    parser.add_argument("--report", metavar="FILE", help="write what was compared, op by op")
    arguments = parser.parse_args()
    ops = op_report.OpReport() if arguments.report else None
    evaluator = oracle.Evaluator(arguments.eval)
    found = sorted(os.path.basename(path)[:-3]
                   for path in glob.glob(os.path.join(HERE, "cases_*.py")))
    counts = [run_family(name, evaluator, arguments, ops) for name in arguments.families or found]
    if ops:
        write_report(ops, arguments)
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""),
          flush=True)
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
