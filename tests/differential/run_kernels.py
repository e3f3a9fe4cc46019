#!/usr/bin/env python3
"""The kernels' cases (cases_*.py) against TensorFlow, op by op, in the evaluator: see oracle.py. No daemon, no cluster.

    run_kernels.py [FAMILY...] [--long] [--only TEXT] [--seed N] [--eval PATH]

Without --long a seeded sample with a share of each family. The last line is "N passed, N failed[, N skipped]".
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

import oracle  # noqa: E402

SAMPLE_PER_FAMILY = 400


def default_evaluator():
    if "GRAPH_EVAL" in os.environ:
        return os.environ["GRAPH_EVAL"]
    build = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip("/")) if "MILLRACE_BIN" in os.environ else os.path.join(oracle.ROOT, "build")
    return os.path.join(build, "tests", "tools", "graph_eval")


def run_family(name, evaluator, arguments):
    cases = [case if len(case) == 3 else (*case, {}) for case in importlib.import_module(name).cases()]
    cases = [case for case in cases if not arguments.only or arguments.only in case[0]]
    if not arguments.long:
        cases = random.Random(f"{arguments.seed} {name}").sample(cases, min(len(cases), SAMPLE_PER_FAMILY))
    report, began = oracle.Report(), time.time()
    for case_name, build, options in cases:
        for mode in options.get("modes", ("static", "hidden")):
            oracle.run_case(evaluator, case_name, build, options, mode, report)
    for line in report.failed[:100]:
        print("FAIL", line)
    skipped = report.wider + report.unbuildable
    print(f"{name:20} {report.ok:6} passed {len(report.failed):4} failed {skipped:4} skipped   {time.time() - began:6.1f} s", flush=True)
    return report.ok, len(report.failed), skipped


def main():
    parser = argparse.ArgumentParser(description="compare our kernels with TensorFlow's")
    parser.add_argument("families", nargs="*", help="cases_array ...; default all")
    parser.add_argument("--long", action="store_true", help="all cases, not a sample")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eval", default=default_evaluator(), help="the evaluator; default build/tests/tools/graph_eval")
    arguments = parser.parse_args()
    evaluator = oracle.Evaluator(arguments.eval)
    found = sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "cases_*.py")))
    counts = [run_family(name, evaluator, arguments) for name in arguments.families or found]
    passed, failed, skipped = (sum(column) for column in zip(*counts))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
