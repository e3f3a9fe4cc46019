"""Cases of the ragged family: splits of all kinds and depths, their crosses and counts, and what
must be refused."""

import itertools

import numpy as np
import tensorflow as tf
# what raw_ops cannot build in a graph
from tensorflow.python.ops import gen_ragged_array_ops, gen_ragged_conversion_ops

import oracle
import tf_kernels

R = tf.raw_ops
F, I32, I64 = np.float32, np.int32, np.int64


def outputs(out):
    """The tensors of an op's answer, lists unrolled."""
    if isinstance(out, tf.Operation):
        return list(out.outputs)
    if not isinstance(out, (list, tuple)):
        return [out]
    return [tensor for part in out for tensor in outputs(part)]


def wrap(value):
    return [wrap(v) for v in value] if isinstance(value, list) else oracle.const(value)


def case(function, inputs, **attrs):
    return lambda: outputs(function(**{k: wrap(v) for k, v in inputs.items()}, **attrs))


def ints(values, dtype=I64):
    return np.array(values, dtype)


def words(*values):
    return np.array(values, object)


def sampled(dtype, shape, seed=0):
    return oracle.sample(np.random.default_rng(seed), dtype, shape)


# ---- RaggedRange ----


def ranges():
    for dtype, splits in itertools.product(("int32", "int64", "float32", "float64"),
                                           ("int32", "int64")):
        for starts, limits, deltas in (
            (0, 5, 1), ([0, 5, 3], [3, 5, 10], [1, 1, 3]), ([0, 5], 7, 1), (0, [1, 2, 3], 1),
            (5, 0, [-1, -2, -7]), ([3, 3], [3, -3], [1, -2]), ([], [], []), ([], 3, 1), (0, 0, 1),
            ([1, 2], [1, 2, 3], 1), (0, 3, 0), ([[1]], 3, 1), (0, [[3]], 1), (0, 3, [[1]]),
            ([0, 0], [5, 5], [1, 0]), (10, 0, 1), (0, 10, -1), (-5, 5, 3), ([1], [9], [100]),
        ):  # fmt: skip
            inputs = {"starts": ints(starts, dtype), "limits": ints(limits, dtype),
                      "deltas": ints(deltas, dtype)}
            yield f"RaggedRange/{dtype}/{splits}/{starts}/{limits}/{deltas}", case(
                R.RaggedRange, inputs, Tsplits=splits)
    for dtype, (start, limit, delta) in itertools.product(
        ("float32", "float64"), ((0, 1, 0.1), (0.5, -2.25, -0.3), (1e9, 1e9 + 1000, 100.5),
                                 (0, 1, 0.3), (-0.1, 0.1, 0.05))):
        inputs = {"starts": ints(start, dtype), "limits": ints(limit, dtype),
                  "deltas": ints(delta, dtype)}
        yield f"RaggedRange/{dtype}/{start}/{limit}/{delta}", case(R.RaggedRange, inputs)
    low, high = -(2**31), 2**31 - 1
    for starts, limits, deltas in (([low], [high], [high]), ([high], [low], [low]),
                                   ([low, 0], [high, 3], [2**30, 1])):
        yield f"RaggedRange/far/{starts}/{limits}", case(
            R.RaggedRange, {"starts": ints(starts, I32), "limits": ints(limits, I32),
                            "deltas": ints(deltas, I32)})
    far = {"starts": ints([0, 0]), "limits": ints([2**40, 3]), "deltas": ints([1, 1])}
    yield "RaggedRange/overflow", case(R.RaggedRange, far, Tsplits="int32")
    yield "RaggedRange/infinite", case(R.RaggedRange,
                                       {"starts": F(0), "limits": F(np.inf), "deltas": F(1)})


# ---- RaggedGather ----


def gathers():
    # splits of a ragged rank of 3
    three = [[0, 2, 2, 5], [0, 1, 4, 4, 6, 7], [0, 2, 3, 3, 5, 6, 9, 10]]
    for dtype in tf_kernels.cpu_dtypes("RaggedGather", "Tvalues"):
        if tf.as_dtype(dtype).is_quantized:
            continue
        for depth, inner in itertools.product((1, 2, 3), ((), (2,), (0,))):
            splits = [ints(s) for s in three[3 - depth :]]
            values = sampled(dtype, (10, *inner))
            inputs = {"params_nested_splits": splits, "params_dense_values": values,
                      "indices": ints([1, 0, 2, 0])}
            yield f"RaggedGather/{dtype}/{depth}/{inner}", case(
                gen_ragged_array_ops.ragged_gather, inputs, OUTPUT_RAGGED_RANK=depth)
    values = sampled("float32", (10,))
    for splits_type, index_type in itertools.product((I32, I64), (I32, I64)):
        for indices in (1, [0], [], [[0, 1], [2, 1]], [[[1], [2]]], np.zeros((2, 0)),
                        np.zeros((0, 3)), [3], [-1], [2, 7]):
            for depth in (1, 2, 3):
                inputs = {"params_nested_splits": [ints(s, splits_type) for s in three[:depth]],
                          "params_dense_values": values, "indices": ints(indices, index_type)}
                rank = np.ndim(indices) + depth - 1
                yield (
                    f"RaggedGather/{depth}/{indices}/{splits_type.__name__}/{index_type.__name__}",
                    case(gen_ragged_array_ops.ragged_gather, inputs,
                         OUTPUT_RAGGED_RANK=rank))
    for splits in ([[0, 2, 11]], [[0, 3, 2]], [[-1, 2]], [[]], [[1, 3]], [[0, 2], [0, 11, 10]],
                   [[0, 3], [0, 4]], [0], [[[0, 1]]], [[0]], [[0, 2], [0, 1, 12]]):
        inputs = {"params_nested_splits": [ints(s) for s in splits], "params_dense_values": values,
                  "indices": ints([0])}
        yield f"RaggedGather/bad/{splits}", case(
            gen_ragged_array_ops.ragged_gather, inputs, OUTPUT_RAGGED_RANK=len(splits))
    inputs = {"params_nested_splits": [ints([0, 1])], "params_dense_values": F(3),
              "indices": ints([0])}
    yield "RaggedGather/scalar", case(gen_ragged_array_ops.ragged_gather, inputs,
                                      OUTPUT_RAGGED_RANK=1)


# ---- variants ----


def to_variant(splits, values, batched, dtype=I64):
    splits = [oracle.const(ints(s, dtype)) for s in splits]
    return gen_ragged_conversion_ops.ragged_tensor_to_variant(
        splits, oracle.const(values), batched_input=batched, **({} if splits else {"name": None}))


def from_variant(encoded, own, out, dtype="float32", splits="int64"):
    return outputs(gen_ragged_conversion_ops.ragged_tensor_from_variant(encoded,
            input_ragged_rank=own, output_ragged_rank=out, Tvalues=dtype, Tsplits=splits))


def gradient(encoded, splits, shape, dtype="float32"):
    return outputs(R.RaggedTensorToVariantGradient(encoded_ragged_grad=encoded,
            row_splits=oracle.const(ints(splits)),
            dense_values_shape=oracle.const(ints(shape, I32)), Tvalues=dtype))


def hole():
    shape = oracle.const(np.zeros(0, I32))
    handle = R.TensorListReserve(element_shape=shape, num_elements=oracle.const(I32(1)),
                                 element_dtype=tf.variant)
    return R.TensorListGetItem(input_handle=handle, index=oracle.const(I32(0)), element_shape=shape,
                               element_dtype=tf.variant)


ONE, TWO = [[0, 2, 2, 5]], [[0, 2, 2, 3], [0, 1, 3, 5]]


def variants():
    for dtype in tf_kernels.cpu_dtypes("RaggedTensorToVariant", "Tvalues"):
        if tf.as_dtype(dtype).is_quantized:
            continue
        for inner in ((), (2,), (2, 3), (0,)):
            values = sampled(dtype, (5, *inner))
            yield f"variant/whole/{dtype}/{inner}", lambda v=values, d=dtype: from_variant(
                to_variant(ONE, v, False), 1, 1, d)
            yield f"variant/rows/{dtype}/{inner}", lambda v=values, d=dtype: from_variant(
                to_variant(ONE, v, True), 0, 1, d)
            yield f"variant/rows of two/{dtype}/{inner}", lambda v=values, d=dtype: from_variant(
                to_variant(TWO, v, True), 1, 2, d)
            yield f"variant/gradient/{dtype}/{inner}", lambda v=values, d=dtype, i=inner: gradient(
                to_variant(ONE, v, True), ONE[0], [5, *i], d)
    v, w = sampled("float32", (5,)), sampled("float32", (5,), 1)

    def stacked():
        return R.Pack(values=[to_variant(TWO, v, False), to_variant(TWO, w, False)])

    programs = {
        "rank -1": lambda: from_variant(to_variant(TWO, v, True), -1, 2),
        "rank -1 whole": lambda: from_variant(to_variant(TWO, v, False), -1, 2),
        "rank -1 too small": lambda: from_variant(R.Pack(values=[to_variant(ONE, v, True)]), -1, 1),
        "stacked": lambda: from_variant(stacked(), 2, 3),
        "stacked twice": lambda: from_variant(R.Pack(values=[stacked(), stacked(), stacked()]), 2,
                                              4),
        "three deep": lambda: from_variant(to_variant([[0, 1, 3], *TWO], v, True), 2, 3),
        "int32": lambda: from_variant(to_variant(TWO, v, True, I32), 1, 2, splits="int32"),
        "int32 as int64": lambda: from_variant(to_variant(TWO, v, True, I32), 1, 2),
        "wrong rank": lambda: from_variant(to_variant(TWO, v, True), 0, 1),
        "wrong ranks": lambda: from_variant(to_variant(TWO, v, True), 2, 2),
        "wrong dtype": lambda: from_variant(to_variant(TWO, v, True), 1, 2, "int32"),
        "no rows": lambda: from_variant(to_variant([[0]], v[:0], True), 0, 1),
        "no rows of two": lambda: from_variant(to_variant([[0], [0]], v[:0], True), 1, 2),
        "hole": lambda: from_variant(hole(), 1, 1),
        "list": lambda: from_variant(R.EmptyTensorList(element_shape=-1, max_num_elements=-1,
                element_dtype=tf.float32), 1, 1),
        "different inner": lambda: from_variant(R.Pack(
            values=[to_variant(ONE, np.ones((5, 2), F), False),
                    to_variant(ONE, np.ones((5,), F), False)]), 1, 2),
        "sum": lambda: from_variant(R.AddN(inputs=[to_variant(ONE, v, False),
                to_variant(ONE, w, False)]), 1, 1),
        "sum of other splits": lambda: from_variant(
            R.AddN(inputs=[to_variant(ONE, v, False), to_variant([[0, 1, 2, 5]], w, False)]), 1, 1),
        "sum of other ranks": lambda: from_variant(
            R.AddN(inputs=[to_variant(ONE, v, False), to_variant(TWO, w, False)]), 1, 1),
        "sum of other dtypes": lambda: from_variant(
            R.AddN(inputs=[to_variant(ONE, v, False), to_variant(ONE, v.astype(I32), False)]), 1,
            1),
        "zeros": lambda: from_variant(R.ZerosLike(x=to_variant(ONE, v, False)), 1, 1),
        "gradient of one": lambda: gradient(to_variant([[0, 5]], v, True), [0, 5], [5]),
        "gradient with holes": lambda: gradient(R.Pack(values=[hole(), to_variant([], v, False),
                hole()]), [0, 2, 7, 8], [8]),
        "bad splits": lambda: from_variant(to_variant([[0, 2, 9]], v, True), 0, 1),
        "falling splits": lambda: from_variant(to_variant([[0, 3, 2, 5]], v, True), 0, 1),
        "no splits": lambda: from_variant(to_variant([[]], v, True), 0, 1),
        "inside a list": lambda: from_variant(
            R.TensorListGetItem(
                input_handle=R.TensorListPushBack(
                    input_handle=R.EmptyTensorList(
                        element_shape=-1, max_num_elements=-1, element_dtype=tf.variant),
                                                  tensor=to_variant(ONE, v, False)),
                index=0, element_shape=-1, element_dtype=tf.variant,
            ),
            1, 1,
        ),
    }  # fmt: skip
    for name, build in programs.items():
        yield f"variant/{name}", build


# ---- to dense, to sparse ----


def to_tensor(shape, values, default, partitions, types, index=I64, shape_type=I64):
    inputs = {"shape": ints(shape, shape_type), "values": values, "default_value": default,
              "row_partition_tensors": [ints(p, index) for p in partitions]}
    return case(R.RaggedTensorToTensor, inputs, row_partition_types=types)


def conversions():
    rows, ids, size = "ROW_SPLITS", "VALUE_ROWIDS", "FIRST_DIM_SIZE"
    for dtype in tf_kernels.cpu_dtypes("RaggedTensorToTensor"):
        if tf.as_dtype(dtype).is_quantized:
            continue
        for inner, default in (((), ()), ((2,), ()), ((2,), (2,)), ((2, 3), (1, 3)), ((2,), (1,))):
            values, filler = sampled(dtype, (5, *inner)), sampled(dtype, default, 1)
            for index in (I32, I64):
                yield f"RaggedTensorToTensor/{dtype}/{inner}/{default}/{index.__name__}", to_tensor(
                    -1, values, filler, ONE, [rows], index)
            yield f"RaggedTensorToTensor/{dtype}/{inner}/{default}/two", to_tensor(
                -1, values, filler, TWO, [rows] * 2)
        yield f"RaggedTensorToSparse/{dtype}", case(
            gen_ragged_conversion_ops.ragged_tensor_to_sparse,
            {"rt_nested_splits": [ints(s) for s in TWO], "rt_dense_values": sampled(dtype, (5, 2))})
    v, zero = sampled("float32", (5,)), F(-7)
    for shape in ([-1, -1], [2, 2], [5, 5], [3, 1], [1, 4], [-1, 2], [2, -1], [0, 3], [3, 0], -1,
                  [-1], [2, 2, 2], [-2, 1], 7, [[1, 2]], [4, -1]):
        for shape_type in (I32, I64):
            yield f"RaggedTensorToTensor/shape {shape}/{shape_type.__name__}", to_tensor(
                shape, v, zero, ONE, [rows], shape_type=shape_type)
        yield f"RaggedTensorToTensor/ids {shape}", to_tensor(
            shape, v, zero, [3, [0, 0, 2, 2, 2]], [size, ids])
    for shape in ([-1, -1, -1], [2, 1, 1], [4, 4, 4], [-1, -1, 2], [3, 2, -1]):
        yield f"RaggedTensorToTensor/two {shape}", to_tensor(shape, v, zero, TWO, [rows] * 2)
        yield f"RaggedTensorToTensor/two ids {shape}", to_tensor(
            shape, v, zero, [3, [0, 0, 2], [0, 1, 1, 2, 2]], [size, ids, ids])
        yield f"RaggedTensorToTensor/mixed {shape}", to_tensor(
            shape, v, zero, [3, [0, 0, 2], [0, 1, 3, 5]], [size, ids, rows])
        yield f"RaggedTensorToTensor/mixed too {shape}", to_tensor(
            shape, v, zero, [[0, 2, 2, 3], [0, 1, 1, 2, 2]], [rows, ids])
    matrix = sampled("float32", (5, 3))
    for shape in ([-1, -1, -1], [2, 2, 3], [2, 2, 2], [-1, -1, 4]):
        yield f"RaggedTensorToTensor/inner {shape}", to_tensor(shape, matrix, zero, ONE, [rows])
    for default in (np.zeros(3, F), np.zeros(2, F), np.zeros((5, 3), F), np.zeros((1, 3), F),
                    np.zeros(0, F)):
        yield f"RaggedTensorToTensor/default {default.shape}", to_tensor(
            -1, matrix, default, ONE, [rows])
    for name, partitions, types in (
        ("falling", [[0, 3, 2, 5]], [rows]), ("negative id", [3, [0, -1, 0, 0, 0]], [size, ids]),
        ("large id", [3, [0, 3, 3, 3, 3]], [size, ids]),
        ("size too large", [4, [0, 0, 2, 2, 2]], [size, ids]),
        ("negative size", [-1, [0]], [size, ids]), ("ids first", [[0, 0, 1, 1, 1]], [ids]),
        ("no type", [[0, 5]], []),
        ("unknown", [[0, 5]], ["ROWS"]), ("size last", [[0, 5], 5], [rows, size]),
        ("more types", [[0, 5]], [rows, rows]), ("empty", [[]], [rows]),
        ("vector size", [[3], [0, 0, 2, 2, 2]], [size, ids]),
        ("size then splits", [1, [0, 5]], [size, rows]),
    ):  # fmt: skip
        yield f"RaggedTensorToTensor/{name}", to_tensor(-1, v, zero, partitions, types)
    yield "RaggedTensorToTensor/no values", to_tensor(-1, v[:0], zero, [[0]], [rows])
    yield "RaggedTensorToTensor/scalar values", to_tensor(-1, F(1), zero, [[0, 1]], [rows])
    for splits, shape in (
        (ONE, (5,)), (TWO, (5,)), ([[0, 0, 0]], (0,)), ([[0]], (0,)), (ONE, (5, 2, 2)),
        (ONE, (5, 0)), ([[0, 1, 3], *TWO], (5,)), ([[0, 2, 4]], (5,)), ([[1, 5]], (5,)),
        ([[0, 6]], (5,)),
        ([[0, 3, 2, 5]], (5,)), ([[]], (0,)), ([[0, 3], [0, 5]], (5,)), (ONE, ()),
        ([[0, 2], [0, 2, 2]], (2,)),
    ):  # fmt: skip
        for index in (I32, I64):
            inputs = {"rt_nested_splits": [ints(s, index) for s in splits],
                      "rt_dense_values": sampled("int32", shape)}
            yield f"RaggedTensorToSparse/{splits}/{shape}/{index.__name__}", case(
                gen_ragged_conversion_ops.ragged_tensor_to_sparse, inputs)


# ---- counts ----

def counts():
    grid, vector = ints([[1, 1, 0, 5], [7, 0, 1, 7], [2, 2, 2, 2]]), ints([3, 1, 3, 2, 9, 0, 3])
    places = ints([[0, 0], [0, 3], [1, 1], [2, 0], [2, 1], [2, 3]])
    for weight_type, value_type in itertools.product(
        tf_kernels.cpu_dtypes("DenseCountSparseOutput", "output_type"), (I32, I64)):
        for binary, low, high in ((False, -1, -1), (True, -1, -1), (False, 12, -1), (False, -1, 3),
                                  (False, 2, 0), (True, 0, 6)):
            attrs = {"minlength": low, "maxlength": high, "binary_output": binary}
            name = f"{weight_type}/{value_type.__name__}/{binary}/{low}/{high}"
            for weighted in (False, True):
                def weights(like, on=weighted, t=weight_type):
                    return sampled(t, like.shape) if on else np.zeros(0, t)
                for values in (grid, vector):
                    yield f"DenseCount/{name}/{values.ndim}/{weighted}", case(
                        R.DenseCountSparseOutput,
                        {"values": values.astype(value_type), "weights": weights(values)}, **attrs)
                entries = ints([4, 4, 2, 0, 0, 5], value_type)
                sparse = {"indices": places, "values": entries, "dense_shape": ints([4, 4]),
                          "weights": weights(entries)}
                yield f"SparseCount/{name}/{weighted}", case(
                    R.SparseCountSparseOutput, sparse, **attrs)
                ragged = {"splits": ints([0, 2, 2, 6]), "values": entries,
                          "weights": weights(entries)}
                yield f"RaggedCount/{name}/{weighted}", case(
                    R.RaggedCountSparseOutput, ragged, **attrs)
    none, binary = np.zeros(0, F), {"binary_output": False}
    for values in (ints(3), np.zeros((2, 2, 2), I64), np.zeros((0, 3), I64), np.zeros((3, 0), I64),
                   np.zeros(0, I64)):
        yield f"DenseCount/{values.shape}", case(
            R.DenseCountSparseOutput, {"values": values, "weights": none}, **binary)
    yield "DenseCount/negative", case(R.DenseCountSparseOutput,
                                      {"values": ints([3, -1]), "weights": none}, **binary)
    yield "DenseCount/weights", case(R.DenseCountSparseOutput,
                                     {"values": grid, "weights": np.zeros(3, F)}, **binary)
    for name, indices, values, shape, weights in (
        ("vector", [[0], [2]], [3, 3], [3], []), ("outside", [[0, 9]], [1], [2, 2], []),
        ("negative", [[-1, 0]], [1], [2, 2], []), ("no rows", np.zeros((0, 2)), [], [0, 2], []),
        ("rank", [0, 1], [1, 2], [2], []), ("values", [[0, 1]], [1, 2], [2, 2], []),
        ("shape", [[0, 1]], [1], [2, 2, 2], []), ("shape matrix", [[0, 1]], [1], [[2, 2]], []),
        ("values matrix", [[0, 1]], [[1]], [2, 2], []),
        ("empty", np.zeros((0, 2)), [], [3, 4], []),
    ):  # fmt: skip
        sparse = {"indices": ints(indices), "values": ints(values), "dense_shape": ints(shape),
                  "weights": np.array(weights, F)}
        yield f"SparseCount/{name}", case(R.SparseCountSparseOutput, sparse, **binary)
        bins = {"indices": ints(indices), "values": ints(values), "dense_shape": ints(shape),
                "size": I64(4), "weights": np.array(weights, F)}
        yield f"SparseBincount/{name}", case(R.SparseBincount, bins)
    for name, splits, values, weights in (
        ("one split", [0], [], []), ("start", [1, 2], [3, 3], []), ("end", [0, 1], [3, 3], []),
        ("none", [], [], []), ("rows", [0, 0, 0], [], []), ("past", [0, 9], [1, 2], []),
    ):  # fmt: skip
        ragged = {"splits": ints(splits), "values": ints(values), "weights": np.array(weights, F)}
        yield f"RaggedCount/{name}", case(R.RaggedCountSparseOutput, ragged, **binary)
        yield f"RaggedBincount/{name}", case(R.RaggedBincount, {**ragged, "size": I64(4)})
    for weight_type, value_type in itertools.product(
        tf_kernels.cpu_dtypes("SparseBincount"), (I32, I64)):
        for size, on, weighted in itertools.product((0, 3, 9), (False, True), (False, True)):
            entries = ints([4, 4, 2, 0, 0, 8], value_type)
            rest = {"values": entries, "size": value_type(size),
                    "weights": sampled(weight_type, (6,)) if weighted else np.zeros(0, weight_type)}
            name = f"{weight_type}/{value_type.__name__}/{size}/{on}/{weighted}"
            yield f"SparseBincount/{name}", case(
                R.SparseBincount, {"indices": places, "dense_shape": ints([4, 4]), **rest},
                binary_output=on)
            yield f"SparseBincount/vector/{name}", case(
                R.SparseBincount, {"indices": ints([[0], [1], [2], [3], [4], [5]]),
                                   "dense_shape": ints([6]), **rest}, binary_output=on)
            yield f"RaggedBincount/{name}", case(
                R.RaggedBincount, {"splits": ints([0, 2, 2, 6]), **rest}, binary_output=on)
    for size in (-1, [3]):
        yield f"RaggedBincount/size {size}", case(
            R.RaggedBincount, {"splits": ints([0, 1]), "values": ints([1]), "size": ints(size),
                               "weights": none})
        yield f"SparseBincount/size {size}", case(
            R.SparseBincount, {"indices": ints([[0]]), "values": ints([1]),
                               "dense_shape": ints([1]), "size": ints(size), "weights": none})
    yield "RaggedBincount/negative", case(R.RaggedBincount,
                                          {"splits": ints([0, 1]), "values": ints([-1]),
                                           "size": I64(3), "weights": none})
    yield "SparseBincount/negative", case(R.SparseBincount,
                                          {"indices": ints([[0]]), "values": ints([-1]),
                                           "dense_shape": ints([1]), "size": I64(3),
                                           "weights": none})


# ---- crosses ----


def cross(features, hashed=False, buckets=0, key=956888297470, splits="int64", order=None):
    """features: ("R", values, splits), ("S", indices, values, shape), ("D", matrix)."""
    pick = {letter: [f for f in features if f[0] == letter] for letter in "RSD"}
    inputs = {
        "ragged_values": [f[1] for f in pick["R"]],
        "ragged_row_splits": [ints(f[2], splits) for f in pick["R"]],
        "sparse_indices": [ints(f[1]) for f in pick["S"]],
        "sparse_values": [f[2] for f in pick["S"]], "sparse_shape": [ints(f[3]) for f in pick["S"]],
        "dense_inputs": [f[1] for f in pick["D"]],
    }  # fmt: skip
    attrs = {"input_order": order if order is not None else "".join(f[0] for f in features),
             "hashed_output": hashed, "num_buckets": buckets, "hash_key": key}
    return case(R.RaggedCross, inputs, out_values_type="int64" if hashed else "string",
                out_row_splits_type=splits, **attrs)


def crosses():
    text, number = ("R", words(b"a", b"b", b"", b"long enough to leave a small string"),
                    [0, 2, 3, 4]), ("R", ints([5, -7, 2**40]), [0, 1, 3, 3])
    sparse = ("S", [[0, 0], [0, 2], [2, 1]], words(b"x", b"y", b"z"), [3, 4])
    sparse_number = ("S", [[0, 0], [1, 0], [1, 1]], ints([1, 2, 3]), [3, 2])
    dense, dense_text = ("D", ints([[1, 2], [3, 4], [5, 6]])), (
        "D", words(*[bytes([97 + i]) for i in range(6)]).reshape(3, 2))
    sets = ([text], [number], [text, number], [sparse], [dense], [text, sparse, dense],
            [dense_text, number, sparse_number], [sparse_number, text, dense_text, number], [])
    for features, (hashed, buckets), splits in itertools.product(
        sets, ((False, 0), (True, 0), (True, 100)), ("int32", "int64")):
        name = "".join(f[0] for f in features)
        yield (
            f"RaggedCross/{name}/{len(features) and features[0][1] is text[1]}/"
            f"{hashed}/{buckets}/{splits}",
            cross(features, hashed, buckets, splits=splits))
    yield "RaggedCross/key", cross([text, number], True, 7, key=-1)
    for name, features, order in (
        ("order too short", [text, number], "R"), ("order of others", [text, dense], "RR"),
        ("rank", [("R", words(b"a").reshape(1, 1), [0, 1])], None),
        ("splits", [("R", words(b"a"), [0, 2])], None),
        ("splits start", [("R", words(b"a", b"b"), [1, 2])], None),
        ("batches", [text, ("D", ints([[1]]))], None),
        ("sparse rank", [("S", [[0, 0, 0]], ints([1]), [1, 1, 1])], None),
        ("dense rank", [("D", ints([1, 2]))], None), ("no splits", [("R", words(), [])], None),
        ("no rows", [("R", words(), [0])], None),
        ("unsorted", [("S", [[2, 0], [0, 0]], ints([1, 2]), [3, 1]), number], None),
    ):  # fmt: skip
        yield f"RaggedCross/{name}", cross(features, order=order)


# ---- empty rows ----


def fills():
    for dtype in tf_kernels.cpu_dtypes("RaggedFillEmptyRows"):
        if dtype in ("resource", "variant"):
            continue
        inputs = {"value_rowids": ints([1, 1, 3, 4]), "values": sampled(dtype, (4,)),
                  "nrows": I64(6), "default_value": sampled(dtype, (), 1)}
        yield f"RaggedFillEmptyRows/{dtype}", case(R.RaggedFillEmptyRows, inputs)
    for dtype in tf_kernels.cpu_dtypes("RaggedFillEmptyRowsGrad"):
        yield f"RaggedFillEmptyRowsGrad/{dtype}", case(
            R.RaggedFillEmptyRowsGrad, {"reverse_index_map": ints([1, 2, 0]),
                                        "grad_values": sampled(dtype, (7,))}), {
                                            "atol": 0.02} if dtype in (
                                                "float16", "bfloat16") else {}
    for rows, n, default in (([], 3, 1), ([0, 1, 2], 3, 1), ([2, 0, 2], 3, 1), ([3], 3, 1),
                             ([-1], 3, 1), ([0], 0, 1), ([0], 2, [1]), ([[0]], 2, 1), ([0], [2], 1),
                             ([0, 0], -1, 1)):
        inputs = {"value_rowids": ints(rows), "values": np.arange(np.size(rows), dtype=F),
                  "nrows": ints(n), "default_value": np.array(default, F)}
        yield f"RaggedFillEmptyRows/{rows}/{n}/{default}", case(R.RaggedFillEmptyRows, inputs)
    inputs = {"value_rowids": ints([0]), "values": np.zeros(2, F), "nrows": I64(3),
              "default_value": F(0)}
    yield "RaggedFillEmptyRows/lengths", case(R.RaggedFillEmptyRows, inputs)


def cases():
    for family in (ranges, gathers, variants, conversions, counts, crosses, fills):
        yield from family()
