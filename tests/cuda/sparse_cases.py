"""Cases of run_ops.py: counts, segments, sparse tensors and their products, updates in place,
Einsum, gamma numbers."""
import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

from op_cases import COMPLEX, HALF_TO_DOUBLE, INT, REAL, WIDE, raw  # noqa: E402

RAW = tf.raw_ops


def count_cases(cases):
    for index in ("int32", "int64"):
        for weights in ("float32", "int32"):
            for shape in ([5000], [3, 400], [0]):
                values = cases.rng.integers(0, 40, shape).astype(index)
                size = lambda values: tf.constant(30, values.dtype)  # noqa: E731
                for is_binary in (False, True):
                    make = lambda values, weights, b=is_binary: RAW.DenseBincount(  # noqa: E731
                        input=values, size=size(values), weights=weights, binary_output=b)
                    cases.add(f"DenseBincount/{index}/{weights}/{shape}", make, values,
                              cases.values(weights, [0]))
                    cases.add(f"DenseBincount/weights/{index}/{weights}/{shape}", make, values,
                              cases.values(weights, shape, 0.5, 3))
    for dtype in WIDE:
        cases.add(f"HistogramFixedWidth/{dtype}",
                  lambda x: RAW.HistogramFixedWidth(
                      values=x, value_range=tf.cast([-1, 2], x.dtype), nbins=tf.constant(9)),
                  cases.values(dtype, [3000]))
    for dtype in REAL:
        for op in ("Sum", "Mean", "Prod", "Min", "Max"):
            low, high = (0.9, 1.1) if op == "Prod" else (-3, 3)
            for shape in ([500], [40, 3], [7, 300], [3000, 2], [1, 1], [0, 4]):
                for index in ("int32", "int64"):
                    ids = numpy.sort(cases.rng.integers(0, max(shape[0] // 5, 1) + 3, shape[0]))
                    cases.add(f"Segment{op}/{dtype}/{index}{shape}", raw(f"Segment{op}", 2),
                              cases.values(dtype, shape, low, high), ids.astype(index))
        for kind in ("Sum", "Mean", "SqrtN"):
            rows, ids = cases.rng.integers(0, 50, 300), numpy.sort(cases.rng.integers(0, 70, 300))
            data, op = cases.values(dtype, [50, 6]), f"SparseSegment{kind}"
            for index, id_type in (("int32", "int32"), ("int64", "int32"), ("int32", "int64")):
                operands = rows.astype(index), ids.astype(id_type)
                name = f"{dtype}/{index}/{id_type}"
                cases.add(f"{op}/{name}", raw(op, 3), data, *operands)
                cases.add(f"{op}WithNumSegments/{name}", lambda d, r, i, op=op: getattr(
                    RAW, op + "WithNumSegments")(data=d, indices=r, segment_ids=i,
                                                 num_segments=tf.constant(80)), data, *operands)
                grad = cases.values(dtype, [70, 6])
                cases.add(f"{op}Grad/{name}", lambda g, r, i, op=op: getattr(RAW, op + "Grad")(
                    grad=g, indices=r, segment_ids=i, output_dim0=tf.constant(55)), grad, *operands)
                cases.add(f"{op}GradV2/{name}", lambda g, r, i, op=op: getattr(RAW, op + "GradV2")(
                    grad=g, indices=r, segment_ids=i, dense_output_dim0=tf.constant(55)),
                    grad, *operands)
        if dtype != "bfloat16":
            cases.add(f"CheckNumerics/{dtype}", raw("CheckNumerics", 1, message="here"),
                      cases.values(dtype, [3000]))


def sparse_cases(cases):
    """More entries than a block has threads. Rows without entries are in most of them."""
    def entries(n, sizes):
        flat = numpy.sort(cases.rng.choice(numpy.prod(sizes), n, replace=False))
        return numpy.stack(numpy.unravel_index(flat, sizes), 1).astype(numpy.int64)

    def shape(*sizes):
        return tf.constant(sizes, tf.int64)

    for dtype in REAL + INT + ["bool"] + COMPLEX:
        at, values = entries(900, (300, 70)), cases.values(dtype, [900])
        more, others = entries(40, (11, 70)), cases.values(dtype, [40])
        cases.add(f"SparseConcat/{dtype}",
                  lambda a, x, b, y: tuple(RAW.SparseConcat(
                      indices=[a, b], values=[x, y], shapes=[shape(300, 70), shape(11, 70)],
                      concat_dim=0)), at, values, more, others)
        cases.add(f"SparseSlice/{dtype}",
                  lambda a, x: tuple(RAW.SparseSlice(indices=a, values=x, shape=shape(300, 70),
                                                     start=shape(20, 7), size=shape(200, 30))),
                  at, values)
        for axis, n_parts in ((0, 7), (1, 1), (1, 70)):
            cases.add(f"SparseSplit/{dtype}/{axis}/{n_parts}",
                      lambda a, x, axis=axis, n=n_parts: tuple(tf.nest.flatten(RAW.SparseSplit(
                          split_dim=shape(axis)[0], indices=a, values=x, shape=shape(300, 70),
                          num_split=n))), at, values)
        shuffled = cases.rng.permutation(900)
        cases.add(f"SparseFillEmptyRows/{dtype}",
                  lambda a, x, filler: tuple(RAW.SparseFillEmptyRows(
                      indices=a, values=x, dense_shape=shape(1500, 70), default_value=filler)),
                  at[shuffled], values, cases.values(dtype, []))
        if dtype not in ["bool", *COMPLEX]:
            # half sums on the CPU round after each addition
            marks = cases.rng.permutation(1200 if "float16" not in dtype and dtype != "half" else
                                          910)[:900]
            size = marks.max() + 1
            cases.add(f"SparseFillEmptyRowsGrad/{dtype}", raw("SparseFillEmptyRowsGrad", 2),
                      marks.astype(numpy.int64), cases.values(dtype, [int(size)]))
    for dtype in HALF_TO_DOUBLE + COMPLEX:
        for index in ("int32", "int64"):
            for adjoint_a, adjoint_b in itertools.product((False, True), (False, True)):
                for n in (1, 20) if index == "int64" else (260,):
                    at = cases.rng.permutation(entries(500, (40, 70))).astype(index)
                    at[:100, 0] = 17  # a long row, with entries that are repeated
                    b = (n, 40 if adjoint_a else 70)
                    cases.add(f"SparseTensorDenseMatMul/{dtype}/{index}/{adjoint_a}{adjoint_b}/{n}",
                              lambda at, x, b, t=adjoint_a, u=adjoint_b:
                              RAW.SparseTensorDenseMatMul(a_indices=at, a_values=x, b=b,
                                                          a_shape=shape(40, 70), adjoint_a=t,
                                                          adjoint_b=u),
                              at, cases.values(dtype, [500], 0.1, 1),
                              cases.values(dtype, b if adjoint_b else b[::-1], 0.1, 1))
    for dtype in REAL + ["int64", "bool"]:
        for index in ("int32", "int64"):
            at = entries(3000, (300, 70)).astype(index)
            cases.add(f"SparseToDense/validated/{dtype}/{index}",
                      lambda at, x: RAW.SparseToDense(
                          sparse_indices=at, output_shape=tf.constant([300, 70], at.dtype),
                          sparse_values=x, default_value=tf.cast(1, x.dtype)),
                      at, cases.values(dtype, [3000]))
    cases.add("SparseReshape", lambda a: tuple(RAW.SparseReshape(
        input_indices=a, input_shape=shape(300, 70), new_shape=shape(7, -1, 50))),
        entries(900, (300, 70)))


def other_cases(cases):
    for dtype in ("bfloat16", "float32", "float64", "int8", "uint8", "int64", "uint64", "half"):
        x, rows = cases.values(dtype, [37, 50]), cases.rng.integers(-90, 90, 600).astype("int32")
        for op in ("InplaceUpdate", "InplaceAdd", "InplaceSub"):
            if dtype in ("bfloat16", "half") and op != "InplaceUpdate":
                continue  # order and rounding: tests/differential
            cases.add(f"{op}/{dtype}", lambda x, i, v, op=op: getattr(RAW, op)(
                x=tf.identity(x), i=i, v=v), x, rows, cases.values(dtype, [600, 50]))
    for dtype in ("int32", "int64"):
        cases.add(f"DataFormatDimMap/{dtype}", raw("DataFormatDimMap", 1),
                  cases.rng.integers(-9, 9, 1003).astype(dtype))
    for dtype in HALF_TO_DOUBLE + COMPLEX:
        for equation, *shapes in (("ij,jk->ik", [33, 70], [70, 40]), ("iij->j", [40, 40, 33]),
                                  ("abc,cbd->da", [9, 20, 31], [31, 20, 5]),
                                  ("a->aa", [60]), ("ab,cd->ac", [7, 300], [8, 90]),
                                  ("...ab,...bc->...ac", [4, 1, 9, 8], [6, 8, 7])):
            operands = [cases.values(dtype, shape, -1, 1) for shape in shapes]
            if dtype == "half" and len(shapes) > 1:
                continue  # sums that one operand alone has are rounded on a GPU
            cases.add(f"Einsum/{dtype}/{equation}", lambda *inputs, e=equation: RAW.Einsum(
                inputs=inputs, equation=e), *operands)
    for dtype in REAL[:1] + WIDE:
        alpha = cases.values(dtype, [40], 0.2, 6)
        alpha[3] = 1
        cases.add(f"StatelessRandomGammaV2/{dtype}", lambda alpha: RAW.StatelessRandomGammaV2(
            shape=tf.constant([30, 40]), seed=tf.constant([3, 9]), alpha=alpha), alpha)
        cases.add(f"StatelessRandomGammaV3/{dtype}", lambda key, counter, alpha:
                  RAW.StatelessRandomGammaV3(shape=tf.constant([30, 40]), key=key, counter=counter,
                                             alg=tf.constant(1), alpha=alpha),
                  numpy.array([7], "uint64"), numpy.array([5, 6], "uint64"), alpha)


def repeated_cases(cases):
    """Many rows that are added to few places, in an order that would show in the last bits."""
    for dtype in ["half", "float32", "float64"]:
        data = cases.values(dtype, [3000, 5]) * 10.0 ** cases.rng.integers(-3, 3, [3000, 1])
        data, ids = data.astype(tf.as_dtype(dtype).as_numpy_dtype), cases.rng.integers(0, 9, 3000)
        cases.add(f"UnsortedSegmentSum/{dtype}", lambda x, at: RAW.UnsortedSegmentSum(
            data=x, segment_ids=at, num_segments=tf.constant(9)), data, ids)
        if dtype != "half":
            cases.add(f"TensorScatterAdd/{dtype}", lambda x, at: RAW.TensorScatterAdd(
                tensor=x[:9] * 0, indices=at[:, None], updates=x), data, ids)
        cases.add(f"ScatterNd/{dtype}", lambda x, at: RAW.ScatterNd(
            indices=at[:, None], updates=x, shape=tf.constant([9, 5], at.dtype)), data, ids)
