"""Ops that move or update elements, beyond the sizes that kernels of a GPU work in: tiles of 32,
chunks of 256 rows, batches of 16 copies, parts of 1,024 columns, and blocks of them."""

import numpy
import tensorflow as tf
from cases_array import A, one
from cases_training import TOLERANCE, _optimize

RNG = numpy.random.default_rng(11)
SIZES = ("int8", "float16", "float32", "int64", "complex128")
SUMS = ("float16", "float32", "int64", "complex64")


def array(dtype, shape):
    """Small whole numbers, whose sums are exact in any order."""
    return RNG.integers(-3, 4, shape).astype(tf.as_dtype(dtype).as_numpy_dtype)


def moves():
    for dtype in SIZES:
        for shape, perm in (((40, 70), (1, 0)), ((3, 64, 33), (0, 2, 1)), ((5, 17, 19, 18),
                            (3, 1, 0, 2)), ((65, 2, 34), (2, 1, 0)), ((6, 7, 64), (1, 0, 2))):
            yield f"Transpose/{dtype}/{shape}{perm}", one("Transpose", x=array(dtype, shape),
                                                          perm=A(perm))
        for n, width in ((20, 3), (37, 8), (16, 1)):
            parts = [array(dtype, (9, width + i % 3)) for i in range(n)]
            yield f"ConcatV2/{dtype}/{n}x{width}", one("ConcatV2", values=parts, axis=A(1))
            yield f"Pack/{dtype}/{n}x{width}", one(
                "Pack", values=[array(dtype, (5, width))] * n, axis=1)
            yield f"Split/{dtype}/{n}x{width}", one(
                "Split", axis=A(1), value=array(dtype, (6, n * width)), num_split=n)
        yield f"Pad/{dtype}", one("Pad", input=array(dtype, (9, 31, 40)),
                                  paddings=A([[1, 2], [0, 3], [4, 5]]))
        yield f"MirrorPad/{dtype}", one("MirrorPad", input=array(dtype, (9, 31, 40)),
                                        paddings=A([[1, 2], [0, 3], [4, 5]]), mode="REFLECT")
        yield f"Tile/{dtype}", one("Tile", input=array(dtype, (7, 33)), multiples=A([3, 5]))
        yield f"StridedSlice/{dtype}", one("StridedSlice", input=array(dtype, (70, 80)),
                                           begin=A([60, 1]), end=A([3, 79]), strides=A([-3, 2]))
        yield f"Slice/{dtype}", one("Slice", input=array(dtype, (40, 64)), begin=A([3, 16]),
                                    size=A([30, 32]))


def picks():
    for dtype in SIZES:
        for shape, axis in (((50, 3), 0), ((4, 50, 16), 1), ((2, 3, 50), 2)):
            indices = RNG.integers(0, 50, (700,)).astype("int64")
            yield f"GatherV2/{dtype}/{shape}", one("GatherV2", params=array(dtype, shape),
                                                   indices=indices, axis=A(axis))
        rows = RNG.integers(0, 6, (600, 2)).astype("int32")
        for inner in ((), (5,), (32,)):
            yield f"GatherNd/{dtype}/{inner}", one(
                "GatherNd", params=array(dtype, (6, 7) + inner), indices=rows)
        yield f"OneHot/{dtype}", one(
            "OneHot", indices=RNG.integers(-1, 40, (30, 20)).astype("int32"), depth=A(37),
            on_value=array(dtype, ()), off_value=array(dtype, ()), axis=1)


def updates():
    for dtype in SUMS:
        for n, inner in ((700, ()), (300, (3,)), (20, (1500,))):
            rows = RNG.integers(0, 23, (n, 1)).astype("int32")
            new = array(dtype, (n,) + inner)
            yield f"ScatterNd/{dtype}/{n}x{inner}", one(
                "ScatterNd", indices=rows, updates=new, shape=A((23,) + inner))
            yield f"UnsortedSegmentSum/{dtype}/{n}x{inner}", one(
                "UnsortedSegmentSum", data=new, segment_ids=rows[:, 0] - 1, num_segments=A(23))
    for name in ("Adagrad", "Ftrl", "KerasMomentum"):
        for dtype in ("float32",):
            for n, width in ((300, 3), (40, 70), (6, 1100)):
                rtol, atol = TOLERANCE[dtype]
                rows = RNG.integers(0, 31, n) if n < 100 else RNG.permutation(n)[:290]
                yield (f"ResourceSparseApply{name}/{dtype}/{n}x{width}", _optimize(
                    name, True, dtype, (max(31, n), width), {}, rows=rows), {
                        "rtol": 8 * rtol, "atol": 8 * atol})


def cases():
    yield from moves()
    yield from picks()
    yield from updates()
