"""Cases of the set family: set operations on dense and sparse sets, and searches in sorted rows."""

import itertools

import numpy as np

import oracle
import tf_kernels
from cases_ragged import F, I64, R, case, ints, sampled, words

OPERATIONS = ("a-b", "b-a", "intersection", "union")


def members(dtype, shape, seed=0):
    """Few different values, so that sets meet."""
    rng = np.random.default_rng(seed)
    if dtype == "string":
        return rng.choice(words(b"", b"a", b"b", b"ab", b"longer than fifteen bytes", b"\xff"),
                          shape)
    return rng.integers(0, 6, shape).astype(dtype) - (3 if dtype.startswith("int") else 0)


def sparse_set(dtype, shape, seed):
    """About half of the places, in order."""
    rng = np.random.default_rng(seed)
    places = np.argwhere(rng.random(shape) < 0.5)
    return ints(places.reshape(-1, len(shape))), members(dtype, (len(places),), seed), ints(shape)


def operations():
    for dtype, operation in itertools.product(tf_kernels.cpu_dtypes("SetSize"), OPERATIONS):
        for a, b in (((2, 4), (2, 5)), ((3, 2, 4), (3, 2, 1)), ((1, 0), (1, 3)), ((0, 3), (0, 2)),
                     ((2, 1, 2, 3), (2, 1, 2, 2))):
            name = f"{dtype}/{operation}/{a}"
            yield f"DenseToDense/{name}", case(R.DenseToDenseSetOperation,
                                               {"set1": members(dtype, a),
                                                "set2": members(dtype, b, 1)},
                                               set_operation=operation)
            indices, values, shape = sparse_set(dtype, b, 2)
            dense = {"set1": members(dtype, a), "set2_indices": indices, "set2_values": values,
                     "set2_shape": shape}
            yield f"DenseToSparse/{name}", case(R.DenseToSparseSetOperation, dense,
                                                set_operation=operation)
            other = sparse_set(dtype, a, 3)
            sparse = {"set1_indices": other[0], "set1_values": other[1], "set1_shape": other[2],
                      "set2_indices": indices, "set2_values": values, "set2_shape": shape}
            yield f"SparseToSparse/{name}", case(
                R.SparseToSparseSetOperation, sparse, set_operation=operation)
            if operation == "union":
                yield f"SetSize/{name}", case(R.SetSize,
                                              {"set_indices": indices, "set_values": values,
                                               "set_shape": shape})
    grid = members("int32", (2, 3))
    for operation in ("UNION", "A-b", "sum", ""):
        yield f"DenseToDense/{operation}", case(R.DenseToDenseSetOperation,
                                                {"set1": grid, "set2": grid},
                                                set_operation=operation)
    for a, b in (((3,), (3,)), ((2, 3), (3,)), ((2, 3), (3, 3)), ((2, 3), (1, 2, 3)), ((), ())):
        inputs = {"set1": members("int32", a), "set2": members("int32", b)}
        yield f"DenseToDense/{a}/{b}", case(R.DenseToDenseSetOperation, inputs,
                                            set_operation="union")
    for name, indices, shape in (
        ("unsorted", [[1, 0], [0, 0]], [2, 3]), ("repeated", [[0, 0], [0, 0]], [2, 3]),
        ("outside", [[0, 0], [1, 3]], [2, 3]), ("row", [[0, 0], [2, 0]], [2, 3]),
        ("negative", [[-1, 0], [0, 0]], [2, 3]),
        ("other rows", [[0, 0], [1, 0]], [3, 3]), ("rank 1", [[0], [1]], [2]),
        ("rank 3", [[0, 0, 0], [1, 0, 0]], [2, 3, 1]), ("no room", [[0, 0], [1, 0]], [0, 3]),
        ("bad shape", [[0, 0], [1, 0]], [-1, 3]),
        ("shape rank", [[0, 0], [1, 0]], [[2, 3]]), ("values", [[0, 0]], [2, 3]),
        ("rank", [0, 1], [2, 3]), ("too large", [[0, 0], [1, 0]], [2**40, 2**40]),
    ):  # fmt: skip
        for validate in (True, False):
            if not validate and name in ("row", "negative", "no room"):
                continue  # TensorFlow writes outside of its buffer, or loses the error
            second = {"set2_indices": ints(indices), "set2_values": members("int32", (2,)),
                      "set2_shape": ints(shape)}
            attrs = {"set_operation": "union", "validate_indices": validate}
            yield f"DenseToSparse/{name}/{validate}", case(
                R.DenseToSparseSetOperation, {"set1": grid, **second}, **attrs)
            first = {"set1_indices": ints([[0, 1], [1, 1]]),
                     "set1_values": members("int32", (2,), 4), "set1_shape": ints([2, 3])}
            yield f"SparseToSparse/{name}/{validate}", case(
                R.SparseToSparseSetOperation, {**first, **second}, **attrs)
            size = {k.replace("set2", "set"): v for k, v in second.items()}
            yield f"SetSize/{name}/{validate}", case(R.SetSize, size, validate_indices=validate)


def searches():
    for (op, dtype), out in itertools.product([(o, d) for o in ("LowerBound", "UpperBound")
                                               for d in tf_kernels.cpu_dtypes(o)],
                                              ("int32", "int64")):
        for rows, length, n in ((1, 9, 5), (3, 8, 4), (2, 0, 3), (2, 3, 0), (0, 3, 3)):
            below = np.sort(oracle.sample(np.random.default_rng(0), dtype, (rows, length)), axis=1)
            values = sampled(dtype, (rows, n), 1)
            if length and n:
                values[:, 0] = below[:, length // 2]
            yield f"{op}/{dtype}/{out}/{rows}/{length}/{n}", case(
                getattr(R, op), {"sorted_inputs": below, "values": values}, out_type=out)
    for op in ("LowerBound", "UpperBound"):
        rng = np.random.default_rng(2)
        for rows, length, n in ((1, 500, 301), (3, 33, 40), (1, 1, 30), (2, 64, 16)):
            below, values = rng.integers(0, 99, (rows, length)).astype(F), rng.integers(
                -3, 103, (rows, n)).astype(F)
            values[:, ::7] = np.nan
            yield f"{op}/many/{length}/{n}", case(
                getattr(R, op), {"sorted_inputs": np.sort(below), "values": values})
            yield f"{op}/not sorted/{length}/{n}", case(
                getattr(R, op), {"sorted_inputs": below, "values": values})
            below[:, length // 3] = np.nan
            yield f"{op}/no number/{length}/{n}", case(
                getattr(R, op), {"sorted_inputs": np.sort(below), "values": values})
        special = {"sorted_inputs": F([[-np.inf, -1, -0.0, 0, 0, 5, np.inf]]),
                   "values": F([[np.nan, 0, -0.0, np.inf, -np.inf, 5, 4]])}
        yield f"{op}/special", case(getattr(R, op), special)
        for a, b in (((3,), (1, 3)), ((1, 3), (3,)), ((2, 3), (1, 3)), ((1, 1, 3), (1, 3)),
                     ((), ())):
            yield f"{op}/{a}/{b}", case(getattr(R, op),
                                        {"sorted_inputs": np.zeros(a, F), "values": np.zeros(b, F)})
    for dtype in tf_kernels.cpu_dtypes("Bucketize"):
        for boundaries, shape in itertools.product(
            ([], [0], [-1, 0.5, 0.5, 10], [3, 1], [float("-inf"), 0, float("inf")]),
            ((), (7,), (2, 3), (0, 2), (2, 1, 2, 1, 3))):
            yield f"Bucketize/{dtype}/{boundaries}/{shape}", case(
                R.Bucketize, {"input": sampled(dtype, shape)}, boundaries=boundaries)
    yield "Bucketize/nan", case(R.Bucketize, {"input": F([np.nan, np.inf, -np.inf, 0.5])},
                                boundaries=[0, 0.5, 1])
    yield "Bucketize/large", case(R.Bucketize,
                                  {"input": I64([2**53 + 1, 2**24 + 1, -(2**63), 2**63 - 1])},
                                  boundaries=[2**24, 2.0**53, 2.0**63])


def cases():
    yield from operations()
    yield from searches()
