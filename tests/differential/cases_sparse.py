"""Cases of the sparse family: each op over its dtypes, ranks, orders and emptiness, and what must
be refused."""

import itertools

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_sparse_ops

import oracle
import tf_kernels
from cases_ragged import F, I32, I64, R, case, hole, ints, outputs, sampled, words, wrap

NARROW = {"float16": {"rtol": 4e-3, "atol": 4e-3}, "bfloat16": {"rtol": 3e-2, "atol": 3e-2}}
SHAPES = ((4, 5), (7,), (2, 3, 4), (3, 0), (1, 1), (2, 1, 2, 1, 3))


def places(shape, seed=0, share=0.5):
    """The places of about a share of the elements, in order."""
    return ints(np.argwhere(np.random.default_rng(seed).random(shape) < share)).reshape(
        -1, len(shape))


def sparse(dtype, shape, seed=0, share=0.5):
    """(indices, values, shape) in order."""
    indices = places(shape, seed, share)
    return indices, sampled(dtype, (len(indices),), seed), ints(shape)


def shuffled(entries, seed=0):
    order = np.random.default_rng(seed).permutation(len(entries[0]))
    return entries[0][order], entries[1][order], entries[2]


def named(prefix, entries, names=("indices", "values", "shape")):
    return {prefix + name: value for name, value in zip(names, entries)}


# What no op takes for a sparse tensor: (name, indices, values, shape).
BROKEN = (
    ("indices vector", ints([0, 1]), F([1, 2]), ints([2])),
    ("values matrix", ints([[0, 1]]), F([[1]]), ints([2, 2])),
    ("shape matrix", ints([[0, 1]]), F([1]), ints([[2, 2]])),
    ("more values", ints([[0, 1]]), F([1, 2]), ints([2, 2])),
    ("fewer sizes", ints([[0, 1]]), F([1]), ints([2])),
)  # fmt: skip
# What some take.
ODD = (
    ("negative size", ints([[0, 1]]), F([1]), ints([-2, 2])),
    ("too large", ints([[0, 1]]), F([1]), ints([2**40, 2**40])),
    ("outside", ints([[0, 1], [2, 0]]), F([1, 2]), ints([2, 2])),
    ("negative", ints([[-1, 1], [0, 0]]), F([1, 2]), ints([2, 2])),
    ("unsorted", ints([[1, 1], [0, 0]]), F([1, 2]), ints([2, 2])),
    ("repeated", ints([[1, 1], [1, 1]]), F([1, 2]), ints([2, 2])),
    ("no room", ints([[0, 0]]), F([1]), ints([0, 2])),
    ("empty", ints(np.zeros((0, 2))), F([]), ints([0, 2])),
)  # fmt: skip


def dtypes(op, attr="T"):
    return [d for d in tf_kernels.cpu_dtypes(op, attr) if d not in ("resource", "variant")]


def options(dtype):
    return NARROW.get(dtype, {})


# ---- put in another form ----


def arranged():
    for dtype, shape in itertools.product(dtypes("SparseReorder"), SHAPES):
        entries = shuffled(sparse(dtype, shape))
        yield f"SparseReorder/{dtype}/{shape}", case(R.SparseReorder, named("input_", entries))
    for name, *entries in BROKEN + ODD:
        if name != "repeated":
            yield f"SparseReorder/{name}", case(R.SparseReorder, named("input_", entries))
    for shape, target in (
        ((4, 6), [2, 12]), ((4, 6), [-1]), ((4, 6), [2, -1, 3]), ((4, 6), [4, 6]),
        ((24,), [2, 3, 4]), ((2, 3, 4), [24]), ((4, 6), [5, 5]), ((4, 6), [-1, -1]),
        ((4, 6), [7, -1]), ((4, 6), [-2, 12]),
        ((0, 3), [0, 7]), ((0, 3), [-1, 0]), ((0, 3), [-1, 7]), ((4, 6), []), ((1,), []),
        ((4, 6), [[2, 12]]), ((4, 6), [2**40, 2**40]), ((1, 1), [1, 1, 1]),
    ):  # fmt: skip
        yield f"SparseReshape/{shape}/{target}", case(
            R.SparseReshape, {"input_indices": places(shape), "input_shape": ints(shape),
                              "new_shape": ints(target)})
    for name, indices, _, shape in BROKEN + ODD:
        yield f"SparseReshape/{name}", case(R.SparseReshape,
                                            {"input_indices": indices, "input_shape": shape,
                                             "new_shape": ints([-1])})
    for dtype in dtypes("SparseConcat"):
        for dim, others in ((0, ((2, 3), (4, 3), (1, 3))), (1, ((3, 2), (3, 4))),
                            (-1, ((2, 2, 1), (2, 2, 3))), (1, ((2, 0), (2, 3))), (0, ((3,), (2,)))):
            parts = [shuffled(sparse(dtype, shape, i), i) for i, shape in enumerate(others)]
            inputs = {"indices": [p[0] for p in parts], "values": [p[1] for p in parts],
                      "shapes": [p[2] for p in parts]}
            yield f"SparseConcat/{dtype}/{dim}/{others}", case(
                R.SparseConcat, inputs, concat_dim=dim)
    whole = sparse("float32", (2, 2))
    for name, *entries in (*BROKEN, *ODD, ("rank", *sparse("float32", (2, 2, 2))),
                           ("sizes", *sparse("float32", (3, 3)))):
        if name == "repeated":
            continue
        for dim, swap in itertools.product((0, 2, -3), (False, True)):
            parts = [entries, whole] if swap else [whole, entries]
            inputs = {"indices": [p[0] for p in parts], "values": [p[1] for p in parts],
                      "shapes": [p[2] for p in parts]}
            yield f"SparseConcat/{name}/{dim}/{swap}", case(R.SparseConcat, inputs, concat_dim=dim)
    # noqa: E731
    split = lambda entries, dim, n: case(gen_sparse_ops.sparse_split,
                                         {"split_dim": ints(dim), **named("", entries)},
                                         num_split=n)
    for dtype in dtypes("SparseSplit"):
        for shape, dim, n in (((4, 7), 1, 3), ((4, 7), 0, 2), ((5,), 0, 5), ((2, 3, 4), 2, 1)):
            yield f"SparseSplit/{dtype}/{shape}/{dim}/{n}", split(sparse(dtype, shape), dim, n)
    for dim, n in ((2, 1), (-1, 1), (0, 5), ([0], 2), ([0, 1], 2), (-3, 1)):
        yield f"SparseSplit/{dim}/{n}", split(sparse("float32", (4, 5)), dim, n)
    for dtype in dtypes("SparseSlice"):
        for shape, start, size in (((4, 5), [1, 2], [2, 2]), ((4, 5), [0, 0], [9, 9]),
                                   ((4, 5), [3, 4], [5, 0]), ((4, 5), [4, 7], [1, 1]),
                                   ((2, 3, 4), [0, 1, 1], [2, 2, 2]), ((3,), [1], [1])):
            yield f"SparseSlice/{dtype}/{shape}/{start}/{size}", case(
                R.SparseSlice, {**named("", sparse(dtype, shape)), "start": ints(start),
                                "size": ints(size)})
    for start, size in (([1], [2, 2]), ([1, 1], [2]), ([[1, 1]], [2, 2])):
        yield f"SparseSlice/{start}/{size}", case(
            R.SparseSlice, {**named("", sparse("float32", (4, 5))), "start": ints(start),
                            "size": ints(size)})
    all_places = places((4, 5))
    for dtype in dtypes("SparseSliceGrad"):
        inside = ints([p for p in all_places if p[0] >= 1 and p[1] >= 2])
        inputs = {"backprop_val_grad": sampled(dtype, (len(inside),)), "input_indices": all_places,
                  "input_start": ints([1, 2]), "output_indices": inside - [1, 2]}
        yield f"SparseSliceGrad/{dtype}", case(R.SparseSliceGrad, inputs)
    for name, grad, indices, start, out in (
        ("elsewhere", (1,), all_places, [1, 2], [[9, 9]]),
        ("none", (0,), all_places, [1, 2], np.zeros((0, 2))),
        ("grads", (2,), all_places, [0, 0], all_places[:1]),
        ("rank", (1,), all_places, [0, 0], [[0, 0, 0]]),
        ("start", (1,), all_places, [0], all_places[:1]),
        ("matrix", (1, 1), all_places, [0, 0], all_places[:1]),
        ("vectors", (1,), [0, 1], [0, 0], [0, 0]),
        ("more", (3,), all_places[:2], [0, 0], all_places[:3]),
    ):  # fmt: skip
        inputs = {"backprop_val_grad": sampled("float32", grad), "input_indices": ints(indices),
                  "input_start": ints(start), "output_indices": ints(out)}
        yield f"SparseSliceGrad/{name}", case(R.SparseSliceGrad, inputs)


# ---- with dense ones ----


def with_dense():
    for dtype, index in itertools.product(dtypes("SparseToDense"), (I32, I64)):
        for shape in SHAPES:
            if tf.as_dtype(dtype).is_quantized:
                continue
            indices, values, _ = sparse(dtype, shape)
            for filler in (values, sampled(dtype, (), 5)):
                inputs = {"sparse_indices": indices.astype(index),
                          "output_shape": ints(shape, index), "sparse_values": filler,
                          "default_value": sampled(dtype, (), 3)}
                yield f"SparseToDense/{dtype}/{index.__name__}/{shape}/{filler.shape}", case(
                    R.SparseToDense, inputs)
    for indices, shape, values, default in (
        (3, [5], 1, 0), ([1, 3], [5], [1, 2], 0), ([3, 1], [5], [1, 2], 0),
        ([1, 1], [5], [1, 2], 0), ([1, 5], [5], [1, 2], 0), ([-1, 1], [5], [1, 2], 0),
        ([[0, 1], [1, 0]], [2, 2], [1, 2, 3], 0), ([[0, 1]], [2], [1], 0),
        ([1], [5], [1], [0]), ([1], [[5]], [1], 0), ([[[1]]], [5], [1], 0), ([1], 5, [1], 0),
        ([1], [-5], [1], 0), (np.zeros((0, 2)), [2, 0], [], 7), ([[0, 0]], [2**40, 2**40], [1], 0),
        ([1], [5], [[1]], 0), (np.zeros((1, 0)), [], [4], 0),
    ):  # fmt: skip
        for validate in (True, False):
            inputs = {"sparse_indices": ints(indices), "output_shape": ints(shape),
                      "sparse_values": F(values), "default_value": F(default)}
            yield f"SparseToDense/{indices}/{shape}/{values}/{default}/{validate}", case(
                R.SparseToDense, inputs, validate_indices=validate)
    for dtype, index in itertools.product(dtypes("SparseTensorDenseAdd"), (I32, I64)):
        for shape in SHAPES[:5]:
            indices, values, sizes = shuffled(sparse(dtype, shape))
            inputs = {"a_indices": indices.astype(index), "a_values": values,
                      "a_shape": sizes.astype(index), "b": sampled(dtype, shape, 1)}
            yield f"SparseTensorDenseAdd/{dtype}/{index.__name__}/{shape}", case(
                R.SparseTensorDenseAdd, inputs), options(dtype)
    for name, *entries in BROKEN + ODD:
        yield f"SparseTensorDenseAdd/{name}", case(
            R.SparseTensorDenseAdd, {**named("a_", entries), "b": np.ones((2, 2), F)})
        for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul"):
            yield f"{op}/{name}", case(getattr(R, op),
                                       {**named("sp_", entries), "dense": np.ones((2, 2), F)})
    for b in ((3, 2), (2,), (2, 2, 2), (1, 2), ()):
        yield f"SparseTensorDenseAdd/b {b}", case(
            R.SparseTensorDenseAdd, {**named("a_", sparse("float32", (2, 2))), "b": np.ones(b, F)})
        yield f"SparseDenseCwiseAdd/b {b}", case(
            R.SparseDenseCwiseAdd, {**named("sp_", sparse("float32", (2, 2))),
                                    "dense": np.ones(b, F)})
    for op in ("SparseDenseCwiseAdd", "SparseDenseCwiseMul", "SparseDenseCwiseDiv"):
        for dtype in dtypes(op):
            for shape, dense in (((4, 5), (4, 5)), ((4, 5), (5,)), ((4, 5), (4, 1)),
                                 ((4, 5), (1, 1)), ((4, 5), ()), ((3,), (3,)), ((2, 3, 4), (3, 1)),
                                 ((3, 0), (3, 0))):
                other = sampled(dtype, dense, 1)
                if op.endswith("Div"):
                    other = np.where(other == 0, np.ones((), other.dtype), other).astype(
                        other.dtype)
                yield f"{op}/{dtype}/{shape}/{dense}", case(
                    getattr(R, op), {**named("sp_", shuffled(sparse(dtype, shape))),
                                     "dense": other}), options(dtype)


def products():
    for dtype, index, (adjoint_a, adjoint_b) in itertools.product(
        dtypes("SparseTensorDenseMatMul"), (I32, I64),
        itertools.product((False, True), (False, True))):
        for m, k, n in ((4, 5, 3), (1, 1, 1), (3, 0, 2), (0, 4, 2), (4, 5, 0), (7, 30, 33)):
            if k > 5 and dtype == "bfloat16":
                continue  # TensorFlow rounds after each addition, we do once
            indices, values, shape = shuffled(sparse(dtype, (k, m) if adjoint_a else (m, k)))
            inputs = {"a_indices": indices.astype(index), "a_values": values, "a_shape": shape,
                      "b": sampled(dtype, (n, k) if adjoint_b else (k, n), 1)}
            name = f"{dtype}/{index.__name__}/{adjoint_a}/{adjoint_b}/{m}/{k}/{n}"
            yield f"SparseTensorDenseMatMul/{name}", case(
                R.SparseTensorDenseMatMul, inputs, adjoint_a=adjoint_a,
                adjoint_b=adjoint_b), NARROW.get(dtype, {"rtol": 1e-5})
    for name, *entries in BROKEN + ODD:
        if name == "negative size":
            continue  # the end of TensorFlow
        yield f"SparseTensorDenseMatMul/{name}", case(
            R.SparseTensorDenseMatMul, {**named("a_", entries), "b": np.ones((2, 2), F)})
    for b in ((3, 2), (2,), (2, 2, 2), ()):
        yield f"SparseTensorDenseMatMul/b {b}", case(
            R.SparseTensorDenseMatMul, {**named("a_", sparse("float32", (2, 2))),
                                        "b": np.ones(b, F)})
    for a_type, b_type, ta, tb, hint in itertools.product(
        ("float32", "bfloat16"), ("float32", "bfloat16"), (False, True), (False, True),
        (False, True)):
        for m, k, n in ((3, 4, 5), (1, 1, 1), (0, 3, 2), (2, 3, 0), (20, 33, 17)):
            a = sampled(a_type, (k, m) if ta else (m, k)) * (
                np.random.default_rng(3).random((k, m) if ta else (m, k)) < 0.3).astype(
                    tf.as_dtype(a_type).as_numpy_dtype)
            inputs = {"a": a, "b": sampled(b_type, (n, k) if tb else (k, n), 1)}
            name = f"{a_type}/{b_type}/{ta}/{tb}/{hint}/{m}/{k}/{n}"
            yield f"SparseMatMul/{name}", case(R.SparseMatMul, inputs, transpose_a=ta,
                                               transpose_b=tb, a_is_sparse=hint,
                                               b_is_sparse=False), {"rtol": 1e-5, "atol": 1e-4}
    for a, b in (((2, 3), (2, 3)), ((3,), (3, 2)), ((2, 3, 3), (3, 2))):
        yield f"SparseMatMul/{a}/{b}", case(R.SparseMatMul,
                                            {"a": np.ones(a, F), "b": np.ones(b, F)})


# ---- two of them ----


def pairs():
    for dtype in dtypes("SparseAdd"):
        real = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
        for shape, threshold in itertools.product(SHAPES, (0, 3, -1)):
            a, b = sparse(dtype, shape), sparse(dtype, shape, 1)
            inputs = {**named("a_", a), **named("b_", b), "thresh": np.array(threshold, real)}
            yield f"SparseAdd/{dtype}/{shape}/{threshold}", case(R.SparseAdd, inputs)
    for dtype in dtypes("SparseAddGrad"):
        a, b = places((4, 5)), places((4, 5), 1)
        both = ints(sorted({tuple(p) for p in a} | {tuple(p) for p in b}))[::2]
        inputs = {"backprop_val_grad": sampled(dtype, (len(both),)), "a_indices": a, "b_indices": b,
                  "sum_indices": both}
        yield f"SparseAddGrad/{dtype}", case(R.SparseAddGrad, inputs)
    for name, grad, a, b, total in (
        ("none", (0,), np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2))),
        ("ranks", (1,), [[0, 0]], [[0]], [[0, 0]]), ("grads", (2,), [[0, 0]], [[0, 1]], [[0, 0]]),
        ("vector", (1,), [0], [[0]], [[0]]),
        ("matrix", (1, 1), [[0]], [[0]], [[0]]), ("dropped", (1,), [[0], [2]], [[1], [2]], [[1]]),
    ):  # fmt: skip
        inputs = {"backprop_val_grad": sampled("float32", grad), "a_indices": ints(a),
                  "b_indices": ints(b), "sum_indices": ints(total)}
        yield f"SparseAddGrad/{name}", case(R.SparseAddGrad, inputs)
    for op in ("SparseSparseMaximum", "SparseSparseMinimum"):
        for dtype, shape in itertools.product(dtypes(op), SHAPES):
            yield f"{op}/{dtype}/{shape}", case(getattr(R, op),
                                                {**named("a_", sparse(dtype, shape)),
                                                        **named("b_", sparse(dtype, shape, 1))})
    good = sparse("float32", (2, 2))
    for name, *entries in (*BROKEN, *ODD, ("rank", *sparse("float32", (2, 2, 2))),
                           ("sizes", *sparse("float32", (3, 3)))):
        if name in ("repeated", "unsorted"):
            continue  # nobody promises what comes of these
        for swap in (False, True):
            a, b = (entries, good) if swap else (good, entries)
            inputs = {**named("a_", a), **named("b_", b)}
            yield f"SparseAdd/{name}/{swap}", case(R.SparseAdd, {**inputs, "thresh": F(0)})
            yield f"SparseSparseMaximum/{name}/{swap}", case(R.SparseSparseMaximum, inputs)
    yield "SparseAdd/threshold", case(R.SparseAdd,
                                      {**named("a_", good), **named("b_", good), "thresh": F([0])})


# ---- reductions ----


def reductions():
    for op in ("SparseReduceSum", "SparseReduceSumSparse", "SparseReduceMax",
               "SparseReduceMaxSparse"):
        for dtype in dtypes(op):
            for shape, axes in (((4, 5), [0]), ((4, 5), [1]), ((4, 5), -1), ((4, 5), [0, 1]),
                                ((4, 5), []), ((2, 3, 4), [0, 2]), ((2, 3, 4), [1, -3]),
                                ((7,), [0]), ((3, 0), [1]), ((4, 5), [1, 1])):
                for keep in (False, True):
                    inputs = {**named("input_", shuffled(sparse(dtype, shape))),
                              "reduction_axes": ints(axes, I32)}
                    yield f"{op}/{dtype}/{shape}/{axes}/{keep}", case(
                        getattr(R, op), inputs, keep_dims=keep), NARROW.get(dtype, {"rtol": 1e-5})
        for name, *entries in BROKEN + ODD:
            for axes in ([0], [1], []):
                yield f"{op}/{name}/{axes}", case(
                    getattr(R, op), {**named("input_", entries), "reduction_axes": ints(axes, I32)})
        for axes in ([2], [-3], [[0]]):
            yield f"{op}/{axes}", case(getattr(R, op),
                                       {**named("input_", sparse("float32", (2, 2))),
                                        "reduction_axes": ints(axes, I32)})
    for dtype, shape in itertools.product(dtypes("SparseSoftmax"),
                                          ((4, 5), (2, 3, 4), (3, 0), (1, 1), (2, 1, 2, 1, 3),
                                           (7,))):
        yield f"SparseSoftmax/{dtype}/{shape}", case(
            R.SparseSoftmax, named("sp_", sparse(dtype, shape))), NARROW.get(dtype, {"rtol": 1e-5})
    for name, *entries in BROKEN + ODD:
        yield f"SparseSoftmax/{name}", case(R.SparseSoftmax, named("sp_", entries))


# ---- empty rows, crosses, distances, segments ----


def fills():
    for dtype, shape in itertools.product(dtypes("SparseFillEmptyRows"), ((6, 3), (5,), (4, 2, 2))):
        for entries in (sparse(dtype, shape, share=0.2), shuffled(sparse(dtype, shape, share=0.2)),
                        sparse(dtype, shape, share=1)):
            inputs = dict(zip(("indices", "values", "dense_shape"), entries))
            yield f"SparseFillEmptyRows/{dtype}/{shape}", case(
                R.SparseFillEmptyRows, {**inputs, "default_value": sampled(dtype, (), 1)})
    for dtype in dtypes("SparseFillEmptyRowsGrad"):
        yield f"SparseFillEmptyRowsGrad/{dtype}", case(
            R.SparseFillEmptyRowsGrad, {"reverse_index_map": ints([1, 2, 0]),
                                        "grad_values": sampled(dtype, (7,))}), options(dtype)
    for name, indices, values, shape in BROKEN + ODD:
        if name in ("too large", "fewer sizes", "negative size"):
            continue  # TensorFlow looks at no size but the first, and ends on a negative one
        yield f"SparseFillEmptyRows/{name}", case(
            R.SparseFillEmptyRows, {"indices": indices, "values": values, "dense_shape": shape,
                                    "default_value": F(1)})
    yield "SparseFillEmptyRows/default", case(R.SparseFillEmptyRows,
                                              {"indices": ints([[0, 0]]), "values": F([1]),
                                               "dense_shape": ints([2, 2]),
                                               "default_value": F([1])})
    for index_map, grads in (([3], (3,)), ([-1], (3,)), ([], (3,)), ([0, 0], (3,)), ([[0]], (3,)),
                             ([0], (3, 1)), ([], (0,))):
        yield f"SparseFillEmptyRowsGrad/{index_map}/{grads}", case(
            R.SparseFillEmptyRowsGrad, {"reverse_index_map": ints(index_map),
                                        "grad_values": sampled("float32", grads)})


TEXTS = (ints([[0, 0], [0, 1], [2, 0]]), words(b"a", b"b", b""), ints([3, 2]))
NUMBERS = (ints([[0, 0], [1, 0], [1, 1], [2, 3]]), ints([5, -1, 2**40, 7]), ints([3, 4]))
DENSE, DENSE_TEXT = ints([[1, 2], [3, 4], [-5, 2**35]]), words(b"p", b"q", b"r").reshape(3, 1)


def crosses():
    columns = {"t": TEXTS, "n": NUMBERS}
    denses = {"d": DENSE, "w": DENSE_TEXT}
    for some, others in itertools.product(("", "t", "n", "tn", "nt", "tnt"), ("", "d", "w", "dw")):
        inputs = {
            "indices": [columns[c][0] for c in some], "values": [columns[c][1] for c in some],
            "shapes": [columns[c][2] for c in some], "dense_inputs": [denses[c] for c in others],
        }  # fmt: skip
        for out, inside, buckets in (("string", "string", 0), ("string", "int64", 0),
                                     ("int64", "int64", 0), ("int64", "int64", 100),
                                     ("int64", "string", 7)):
            attrs = {"hashed_output": out == "int64", "num_buckets": buckets,
                     "hash_key": 956888297470, "out_type": out, "internal_type": inside}
            yield f"SparseCross/{some}/{others}/{out}/{inside}/{buckets}", case(
                R.SparseCross, inputs, **attrs)
        for sep in (b"_X_", b"", b"<->"):
            yield f"SparseCrossV2/{some}/{others}/{sep}", case(
                R.SparseCrossV2, {**inputs, "sep": np.array(sep, object)})
        for buckets, strong in itertools.product((0, 100), (False, True)):
            if strong and "d" in others:
                continue  # the end of TensorFlow
            options_ = {"num_buckets": I64(buckets), "strong_hash": np.array(strong),
                        "salt": ints([137, 173])}
            yield f"SparseCrossHashed/{some}/{others}/{buckets}/{strong}", case(
                R.SparseCrossHashed, {**inputs, **options_})
    for name, indices, values, shape, dense in (
        ("rank 3", [[0, 0, 0]], [1], [1, 1, 1], [[1]]),
        ("indices", [0, 0], [1, 1], [2, 1], [[1], [2]]),
        ("values", [[0, 0]], [1, 2], [1, 1], [[1]]), ("shape", [[0, 0]], [1], [1], [[1]]),
        ("batch", [[0, 0]], [1], [2, 1], [[1]]), ("dense rank", [[0, 0]], [1], [1, 1], [1]),
        ("shape matrix", [[0, 0]], [1], [[1, 1]], [[1]]),
        ("unsorted", [[1, 0], [0, 0]], [1, 2], [2, 1], [[1], [2]]),
        ("no rows", np.zeros((0, 2)), [], [0, 3], np.zeros((0, 2))),
    ):  # fmt: skip
        inputs = {"indices": [ints(indices)], "values": [ints(values)], "shapes": [ints(shape)],
                  "dense_inputs": [ints(dense)]}
        yield f"SparseCrossV2/{name}", case(R.SparseCrossV2,
                                            {**inputs, "sep": np.array(b"x", object)})
    good = {"indices": [NUMBERS[0]], "values": [NUMBERS[1]], "shapes": [NUMBERS[2]],
            "dense_inputs": []}
    yield "SparseCrossV2/sep", case(R.SparseCrossV2, {**good, "sep": words(b"x")})
    for buckets, strong, salt in (([1], False, [1, 2]), (1, [False], [1, 2])):
        yield f"SparseCrossHashed/{buckets}/{strong}", case(
            R.SparseCrossHashed, {**good, "num_buckets": ints(buckets),
                                  "strong_hash": np.array(strong), "salt": ints(salt)})


def distances():
    def few(dtype, shape, seed):
        indices, values, sizes = sparse(dtype, shape, seed, 0.6)
        kinds = sampled(dtype, (3,), 9)
        return indices, kinds[np.random.default_rng(seed).integers(0, 3, len(values))], sizes

    for dtype, normalize in itertools.product(dtypes("EditDistance"), (True, False)):
        for a, b in (((4, 5), (4, 7)), ((7,), (5,)), ((2, 3, 4), (2, 3, 4)), ((2, 3), (4, 3)),
                     ((3, 0), (3, 2)), ((0, 3), (0, 3))):
            inputs = {**named("hypothesis_", few(dtype, a, 1)), **named("truth_", few(dtype, b, 2))}
            yield f"EditDistance/{dtype}/{normalize}/{a}/{b}", case(
                R.EditDistance, inputs, normalize=normalize)
    special = (ints([[0, 0], [0, 1], [0, 2]]), F([0, np.nan, 1]), ints([1, 3]))
    yield "EditDistance/special", case(R.EditDistance,
                                       {**named("hypothesis_", special),
                                        **named("truth_", (special[0], F([-0.0, np.nan, 1]),
                                                special[2]))})
    good = sparse("float32", (2, 2))
    for name, *entries in (*BROKEN, *ODD, ("rank", *sparse("float32", (2, 2, 2)))):
        if name in ("repeated", "unsorted", "negative", "negative size", "too large"):
            continue  # undefined, or the end of TensorFlow
        yield f"EditDistance/{name}", case(R.EditDistance,
                                           {**named("hypothesis_", good),
                                            **named("truth_", entries)})
        yield f"EditDistance/{name} first", case(
            R.EditDistance, {**named("hypothesis_", entries), **named("truth_", good)})


def segments():
    for kind, dtype, index, segment in itertools.product(
        ("Sum", "Mean", "SqrtN"), dtypes("SparseSegmentSumGradV2"), (I32, I64), (I32, I64)):
        for grad, indices, ids, n in (((3, 2), [4, 1, 4, 0], [0, 0, 1, 2], 6), ((1,), [0], [0], 1),
                                      ((2, 0), [1, 1], [0, 1], 3), ((0, 3), [], [], 4),
                                      ((3, 2, 2), [5, 5, 5], [0, 2, 2], 6)):
            inputs = {"grad": sampled(dtype, grad), "indices": ints(indices, index),
                      "segment_ids": ints(ids, segment), "dense_output_dim0": I32(n)}
            yield (f"SparseSegment{kind}GradV2/{dtype}/{index.__name__}/{segment.__name__}/{grad}",
                   case(getattr(R, f"SparseSegment{kind}GradV2"), inputs), options(dtype))
    for indices, ids, n in (([4], [0], 4), ([-1], [0], 4), ([0], [3], 4), ([0, 1], [0], 4),
                            ([[0]], [[0]], 4), ([0], [-1], 4), ([0], [0], [4])):
        inputs = {"grad": np.ones((3, 2), F), "indices": ints(indices, I32),
                  "segment_ids": ints(ids, I32), "dense_output_dim0": ints(n, I32)}
        yield f"SparseSegmentSumGradV2/{indices}/{ids}/{n}", case(R.SparseSegmentSumGradV2, inputs)


# ---- serialized, kept ----


def serialized():
    def round_trip(entries, dtype, form, many):
        def build():
            parts = [oracle.const(v) for v in entries]
            op = R.SerializeManySparse if many else R.SerializeSparse
            text = op(sparse_indices=parts[0], sparse_values=parts[1], sparse_shape=parts[2],
                      out_type=form)
            back = R.DeserializeManySparse if many and form == "string" else R.DeserializeSparse
            return ([text] if form == "string" else []) + outputs(
                back(serialized_sparse=text, dtype=dtype))

        return build

    for dtype, form, many in itertools.product(dtypes("SerializeManySparse"), ("string", "variant"),
                                               (False, True)):
        for shape in ((4, 5), (2, 3, 4), (1, 1)):
            yield f"Serialize/{dtype}/{form}/{many}/{shape}", round_trip(
                sparse(dtype, shape, share=0.3), dtype, form, many)
    for form in ("string", "variant"):
        for name, *entries in BROKEN + ODD:
            if name in ("too large", "negative size"):
                continue
            yield f"Serialize/{name}/{form}", round_trip(entries, "float32", form, True)
            yield f"Serialize/one/{name}/{form}", round_trip(entries, "float32", form, False)
        yield f"Serialize/rank 1/{form}", round_trip(sparse("float32", (4,)), "float32", form, True)
        yield f"Serialize/other dtype/{form}", round_trip(
            sparse("float32", (4, 5)), "int32", form, True)

        def stacked(shapes, dtype="float32", f=form, outer=None):
            def build():
                parts = [[oracle.const(v) for v in sparse(dtype, s, i)] for i,
                         s in enumerate(shapes)]
                texts = [R.SerializeSparse(sparse_indices=p[0], sparse_values=p[1],
                                           sparse_shape=p[2], out_type=f) for p in parts]
                text = R.Pack(values=texts)
                if outer is not None:
                    text = R.Reshape(tensor=text, shape=outer)
                return outputs(R.DeserializeSparse(serialized_sparse=text, dtype="float32"))

            return build

        yield f"Deserialize/sizes/{form}", stacked([(4, 5), (2, 7), (3, 3)])
        yield f"Deserialize/nested/{form}", stacked(
            [(4, 5), (2, 7), (3, 3), (1, 2)], outer=[2, 2, 3])
        yield f"Deserialize/ranks/{form}", stacked([(4, 5), (7,)])
        yield f"Deserialize/one/{form}", stacked([(4, 5)])
        yield f"Deserialize/dtype/{form}", stacked([(4, 5)], "int32")
    for shape in ((), (2,), (0, 3), (2, 4)):
        yield f"Deserialize/shape {shape}", case(
            R.DeserializeSparse, {"serialized_sparse": np.full(shape, b"", object)},
            dtype="float32")
    yield "Deserialize/garbage", case(R.DeserializeSparse,
                                      {"serialized_sparse": words(b"\xff\xff", b"x", b"\0")},
                                      dtype="float32")
    yield "Deserialize/hole", lambda: outputs(R.DeserializeSparse(serialized_sparse=R.Pack(
        values=[hole()] * 3), dtype="float32"))


def kept():
    def place(*values):
        return [oracle.const(v) for v in values]

    def many(dtype, shape):
        def build():
            indices, values, sizes = place(*sparse(dtype, shape, share=0.3))
            numbers = R.AddManySparseToTensorsMap(
                sparse_indices=indices, sparse_values=values, sparse_shape=sizes, shared_name="m")
            back = outputs(R.TakeManySparseFromTensorsMap(sparse_handles=numbers, dtype=dtype,
                    shared_name="m"))
            with tf.control_dependencies([back[0]]):
                again = outputs(R.TakeManySparseFromTensorsMap(sparse_handles=numbers, dtype=dtype,
                        shared_name="m"))
            return [oracle.Step([numbers, *back]), oracle.Step([numbers]), oracle.Step(again)]

        return build

    for dtype, shape in itertools.product(dtypes("AddManySparseToTensorsMap"),
                                          ((4, 5), (2, 3, 4), (0, 3))):
        yield f"Map/many/{dtype}/{shape}", many(dtype, shape)

    def single(shapes, take="float32", order=None, shared="m"):
        def build():
            numbers = []
            for i, shape in enumerate(shapes):
                indices, values, sizes = place(*sparse("float32", shape, i))
                with tf.control_dependencies(numbers):
                    numbers.append(R.AddSparseToTensorsMap(sparse_indices=indices,
                            sparse_values=values, sparse_shape=sizes, shared_name=shared,
                            name=f"add{i}"))
            picked = R.Pack(values=[numbers[i] for i in order or range(len(numbers))])
            return [picked, *outputs(R.TakeManySparseFromTensorsMap(sparse_handles=picked,
                    dtype=take, shared_name=shared or "add0"))]

        return build

    yield "Map/one", single([(4, 5)])
    yield "Map/three", single([(4, 5), (2, 7), (3, 3)], order=[2, 0, 1])
    yield "Map/twice", single([(4, 5), (2, 7)], order=[0, 0])
    yield "Map/ranks", single([(4, 5), (2,)])
    yield "Map/dtype", single([(4, 5)], take="int32")
    yield "Map/node name", single([(4, 5)], shared="")
    for numbers in ([], [7], [-1], [[0]], 0):
        yield f"Map/take {numbers}", case(R.TakeManySparseFromTensorsMap,
                                          {"sparse_handles": ints(numbers)}, dtype="float32",
                                          shared_name="m")
    for name, *entries in BROKEN + ODD:
        inputs = named("sparse_", entries)
        if name not in ("negative size", "too large"):
            yield f"Map/add/{name}", case(R.AddSparseToTensorsMap, inputs, shared_name="m")
        yield f"Map/add many/{name}", case(R.AddManySparseToTensorsMap, inputs, shared_name="m")


def cases():
    for family in (arranged, with_dense, products, pairs, reductions, fills, crosses, distances,
                   segments, serialized, kept):
        yield from family()
