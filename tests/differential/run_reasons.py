#!/usr/bin/env python3
"""Checks that each op which TensorFlow's CPU can run has a kernel here, or a reason why not.

    run_reasons.py

The ops are those for which the installed wheel registers a kernel for CPUs or for every device; the
kernels are those of docs/ops.md, and the reasons those of tools/op_reasons.py. A pattern of a
reason that names no op of TensorFlow is an error, too, and so is a reason that the wheel disproves:
a kernel here, a kernel for CPUs where the reason denies it, an op that is not deprecated. The last
line is "N passed, N failed".
"""

import os
import re
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tools")]

import op_reasons  # noqa: E402
import tensorflow  # noqa: E402,F401  (loads every library that registers kernels)
from tensorflow.python.framework import kernels, op_def_registry  # noqa: E402


def ops_of_wheel():
    return sorted({row.op for row in kernels.get_all_registered_kernels().kernel
                   if row.device_type in ("CPU", "DEFAULT") and not row.label})


def supported():
    with open(os.path.join(ROOT, "docs", "ops.md"), encoding="utf-8") as f:
        return set(re.findall(r"^\| `(\w+)` \|", f.read(), re.M))


def signatures():
    with open(os.path.join(ROOT, "common", "signatures", "op_signatures.c"), encoding="utf-8") as f:
        rows = f.read().partition("op_signature_table[] = {")[2]
    return set(re.findall(r'^    \{"(\w+)", ', rows, re.M))


def untrue(reason, op, wheel, kernels_here):
    """What speaks against an op's reason, or None."""
    definition = op_def_registry.get(op)
    if op in kernels_here:
        return "it has a kernel here"
    if reason in op_reasons.NO_KERNEL and op in wheel:
        return "TensorFlow has a kernel for CPUs"
    if reason == op_reasons.DEPRECATED and not (definition and definition.deprecation.version):
        return "TensorFlow takes it in new graphs"
    return None


def main():
    failed, kernels_here, known = [], supported(), signatures()
    wheel = ops_of_wheel()
    for op in wheel:
        if op not in kernels_here and not op_reasons.reason_of(op):
            failed.append(f"{op}: TensorFlow's CPU runs it; it has neither a kernel nor a reason "
                          "in tools/op_reasons.py")
    n_ops = n_patterns = 0
    for reason, ops in op_reasons.by_reason(known).items():
        for op in ops:
            n_ops += 1
            why = untrue(reason, op, wheel, kernels_here)
            if why:
                failed.append(f"{op}: {reason}: {why}")
    for reason, patterns in op_reasons.REASONS:
        for pattern in patterns:
            n_patterns += 1
            if not any(re.fullmatch(pattern, op) for op in known):
                failed.append(f"{reason}: {pattern} names no op of TensorFlow")
    for line in failed:
        print("FAIL", line)
    print(f"{len(wheel) + n_ops + n_patterns - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
