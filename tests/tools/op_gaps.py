#!/usr/bin/env python3
"""What TensorFlow's wheel computes on a CPU and our tables do not: ops without a kernel, and types
of ops that have one.

    op_gaps.py [--build DIR] [--use FILE]

--use: a text that holds op names, each followed by how often it is used ("MatMul 202"); what is
used most comes first. Facts come from the installed wheel (tests/differential/tf_kernels.py) and
from tests/tools/dump_tables.
"""

import argparse
import json
import os
import re
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "differential"))

import tf_kernels  # noqa: E402

OURS_TO_NUMPY = {"half": "float16", "float": "float32", "double": "float64"}


def signatures():
    """Every op that a client can send."""
    with open(os.path.join(ROOT, "common", "ops", "op_signatures.c"), encoding="utf-8") as file:
        return re.findall(r'^    \{"([A-Za-z]\w*)", (?:args|NULL)', file.read(), re.M)


def uses(path):
    if not path:
        return {}
    with open(path, encoding="utf-8") as file:
        return {name: int(n or 0) for name,
                n in re.findall(r"\b([A-Z]\w+)\b(?:\s+(\d+))?", file.read())}


def our_kernels(build):
    """op -> a list of {type attr: set of type names} for its rows."""
    tables = json.loads(subprocess.run([os.path.join(build, "tests", "tools", "dump_tables")],
                                       stdout=subprocess.PIPE, check=True).stdout)
    kernels = {row["name"]: [] for row in tables["ops"]}
    for row in tables["kernels"]:
        types = {attr: {OURS_TO_NUMPY.get(name, name) for name in names} for attr,
                 names in row["types"].items()}
        kernels.setdefault(row["op"], []).append(types)
    return kernels


def missing_types(op, rows):
    """Combinations of types that a kernel of TensorFlow's takes and no row of ours."""

    def is_taken(combination):
        return any(all(attr not in row or name in row[attr] for attr, name in combination)
                   for row in rows)

    # kernels are registered for types, too, that the op's signature does not allow
    def can_be_sent(combination):
        return all(name in tf_kernels.cpu_dtypes(op, attr) for attr, name in combination)

    combinations = [c for c in tf_kernels.cpu_combinations(op) if c and can_be_sent(c)]
    return [combination for combination in combinations if not is_taken(combination)]


def main():
    parser = argparse.ArgumentParser(description="what TensorFlow computes on a CPU and we do not")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--use", help="a text with op names and how often each is used")
    arguments = parser.parse_args()
    use, ours = uses(arguments.use), our_kernels(arguments.build)
    by_use = sorted(signatures(), key=lambda op: (-use.get(op, 0), op))
    missing = [op for op in by_use if op not in ours and tf_kernels.cpu_kernels(op)]
    print(f"{len(missing)} ops without a kernel of ours:")
    for op in missing:
        print(f"  {op:50} {use.get(op, '')}")
    narrower = [(op, missing_types(op, ours[op])) for op in by_use if ours.get(op)]
    narrower = [(op, gaps) for op, gaps in narrower if gaps]
    print(f"{len(narrower)} ops with types that are missing:")
    for op, gaps in narrower:
        shown = "; ".join(",".join(f"{a}={n}" for a, n in gap) for gap in gaps[:6])
        print(f"  {op:50} {shown}{' …' if len(gaps) > 6 else ''}")


if __name__ == "__main__":
    main()
