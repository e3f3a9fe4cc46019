"""Cases of run_ops.py: matrix products whose operands are the rows of slices, at any address, and
stacks of more products than a library takes at once."""
import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

RAW = tf.raw_ops
DTYPES = ("half", "bfloat16", "float32", "float64", "complex64", "complex128")
STACK = 70_000  # products; a library may take 65,535


def sliced_cases(cases):
    """Slices of at least 512 bytes are views. A row is no multiple of 16 bytes, so what follows it
    is not aligned to a pack of elements."""
    for dtype, (skip_x, skip_y), transpose in itertools.product(
            DTYPES, ((1, 0), (0, 1), (3, 1)), (False, True)):
        cases.add(f"MatMul/slices/{dtype}/{skip_x},{skip_y}/{transpose}",
                  lambda x, y, a=skip_x, b=skip_y, t=transpose: RAW.MatMul(
                      a=x[a:], b=y[b:], transpose_b=t),
                  cases.values(dtype, [skip_x + 70, 13]),
                  cases.values(dtype, [skip_y + (21 if transpose else 13),
                                       13 if transpose else 21]))


def stack_cases(cases):
    for dtype in ("half", "float32"):
        cases.add(f"BatchMatMul/stack/{dtype}", lambda x, y: RAW.BatchMatMulV2(x=x, y=y),
                  cases.values(dtype, [STACK, 1, 2]), cases.values(dtype, [STACK, 2, 1]))
        cases.add(f"BatchMatMul/one of many/{dtype}", lambda x, y: RAW.BatchMatMulV2(x=x, y=y),
                  cases.values(dtype, [STACK, 1, 3]), cases.values(dtype, [3, 1]))
        cases.add(f"BatchMatMul/adjoint stack/{dtype}", lambda x, y: RAW.BatchMatMulV2(
            x=x, y=y, adj_x=True), cases.values(dtype, [2, 1]), cases.values(dtype, [STACK, 2, 1]))


def product_cases(cases):
    sliced_cases(cases)
    stack_cases(cases)
