"""Cases of the random family. The same seeds must give TensorFlow's numbers bit for bit, execution
after execution.

Normals depend on libm's log, sin and cos, which both sides take from this machine."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
EXACT = {"rtol": 0, "atol": 0}
SHAPES = ((1,), (3,), (4,), (), (2, 5), (0,), (2, 0, 3), (1, 1, 1, 1, 2, 1, 1, 3), (1000,))
SIZES = SHAPES + ((100001,),)


def executions(n, make):
    """n executions of one node, in one session."""

    def build():
        out = make()
        return [oracle.Step([out]) for _ in range(n)]

    return build


def once(make):
    def build():
        out = make()
        return list(out) if isinstance(out, tuple) else [out]

    return build


def shape_of(sizes, dtype="int32"):
    return oracle.const(numpy.array(sizes, dtype))


def stateful():
    for op, (seed, seed2) in itertools.product(("RandomUniform", "RandomStandardNormal",
                                                "TruncatedNormal"), ((5, 7), (-3, 0),
                                                        (0, 2**40 + 1))):
        for dtype in tf_kernels.cpu_dtypes(op, "dtype"):
            for shape in SIZES if seed == 5 else ((4,), (33,)):
                index = "int64" if len(shape) == 2 else "int32"
                yield f"{op}/{dtype}/{seed},{seed2}/{list(shape)}", executions(
                    3, lambda op=op, dtype=dtype, shape=shape, seed=seed, seed2=seed2,
                    index=index: getattr(R, op)(
                        shape=shape_of(shape, index), dtype=dtype, seed=seed, seed2=seed2)
                ), EXACT  # fmt: skip
    for dtype, shape, (low, high) in itertools.product(
        ("int32", "int64"), SIZES, ((0, 1), (-3, 1000), (-(2**31), 2**31 - 1),
                                    (-(2**63), 2**63 - 1), (-(2**62), 2**63 - 5))
    ):
        if dtype == "int32" and abs(low) > 2**31:
            continue
        if len(shape) != 1 and low < -3:
            continue
        yield f"RandomUniformInt/{dtype}/{list(shape)}/{low}:{high}", executions(
            3, lambda dtype=dtype, shape=shape, low=low, high=high: R.RandomUniformInt(
                shape=shape_of(shape), minval=oracle.const(numpy.array(low, dtype)),
                maxval=oracle.const(numpy.array(high, dtype)), seed=5, seed2=7)
        )  # fmt: skip
    one = numpy.int32
    for low, high in ((one(5), one(5)), (one(6), one(5)), (numpy.array([1], "int32"), one(5)),
                      (one(1), numpy.array([5], "int32"))):
        for n in (0, 3):
            yield f"RandomUniformInt/wrong/{low}:{high}/{n}", once(
                lambda low=low, high=high,
                n=n: R.RandomUniformInt(shape=shape_of([n]), minval=oracle.const(low),
                                        maxval=oracle.const(high), seed=1)
            )
    for sizes, dtype in ((3, "int32"), ([[1, 2]], "int32"), ([-1, 2], "int32"), ([3, -2], "int64"),
                         ([2**40, 2**40], "int64"), ([1] * 300, "int32"), (-1, "int64")):
        yield f"RandomUniform/wrong/{str(sizes)[:30]}", once(
            lambda sizes=sizes, dtype=dtype: R.RandomUniform(shape=shape_of(sizes, dtype),
                    dtype="float32", seed=1))


def discrete():
    rng = numpy.random.default_rng(1)
    for dtype in [d for d in tf_kernels.cpu_dtypes("RandomShuffle") if d
                  not in ("variant", "resource")]:
        for shape in ((), (1,), (2,), (5,), (10,), (7, 3), (0,), (3, 0), (6, 2, 2)):
            value = oracle.sample(rng, dtype, shape)
            yield f"RandomShuffle/{dtype}/{list(shape)}", executions(
                3, lambda value=value: R.RandomShuffle(value=oracle.const(value), seed=5, seed2=7))
    yield "RandomShuffle/many", executions(3,
                                           lambda: R.RandomShuffle(
                                               value=oracle.const(numpy.arange(10007)), seed=5,
                                               seed2=7))
    key, counter, alg = numpy.array([5], "uint64"), numpy.array(
        [2**64 - 2, 7], "uint64"), numpy.int32(1)
    for value in (numpy.arange(10), numpy.arange(1000), numpy.arange(12).reshape(6, 2),
                  numpy.array([b"a", b"bc", b"d"], object), numpy.int32(3), numpy.zeros((3, 0))):
        yield f"StatelessShuffle/{value.dtype}/{value.shape}", once(
            lambda value=value: R.StatelessShuffle(
                value=oracle.const(value), key=oracle.const(key), counter=oracle.const(counter),
                alg=oracle.const(alg))
        )
    for dtype, out in itertools.product(tf_kernels.cpu_dtypes("Multinomial"), ("int32", "int64")):
        if dtype not in ("float16", "bfloat16", "float32", "float64"):
            continue
        for batch, classes, n in ((1, 3, 1), (1, 3, 5), (2, 4, 3), (3, 10, 100), (0, 3, 4),
                                  (2, 3, 0), (4, 1, 6)):
            logits = oracle.sample(rng, dtype, (batch, classes))
            yield f"Multinomial/{dtype}/{out}/{batch},{classes},{n}", executions(
                3, lambda logits=logits, n=n, out=out: R.Multinomial(
                    logits=oracle.const(logits), num_samples=oracle.const(numpy.int32(n)), seed=5,
                    seed2=7, output_dtype=out)
            )  # fmt: skip
            yield f"StatelessMultinomial/{dtype}/{out}/{batch},{classes},{n}", once(
                lambda logits=logits, n=n, out=out: R.StatelessMultinomial(
                    logits=oracle.const(logits), num_samples=oracle.const(numpy.int32(n)),
                    seed=oracle.const(numpy.array([5, 7])), output_dtype=out)
            )  # fmt: skip
    odd = numpy.array([[-numpy.inf, 1, -numpy.inf, 2], [-numpy.inf] * 4,
                       [numpy.nan, 0, numpy.inf, 1]], "float32")
    three = numpy.ones((1, 3), "float32")
    for logits, n in (
        (odd, 9), (three[0], 2), (three, [2]), (three, -5), (three[:, :0], 2), (three[:0, :0], 2)
    ):  # fmt: skip
        yield f"Multinomial/odd/{logits.shape}/{n}", once(
            lambda logits=logits,
            n=n: R.Multinomial(logits=oracle.const(logits),
                               num_samples=oracle.const(numpy.array(n, "int32")), seed=5, seed2=7)
        )


def rejection():
    # Results that TensorFlow flushes to zero (denormals) are left out by their parameters.
    for dtype in ("float16", "float32", "float64"):
        for alpha in (1.0, [0.5, 1, 2, 7.3], [[0.2], [100]], []):
            for shape in ((), (3,), (50,), (2, 7), (0,)):
                yield f"RandomGamma/{dtype}/{alpha}/{list(shape)}", executions(
                    3, lambda dtype=dtype, alpha=alpha, shape=shape: R.RandomGamma(
                        shape=shape_of(shape), alpha=oracle.const(numpy.array(alpha, dtype)),
                        seed=5, seed2=7)
                ), EXACT  # fmt: skip
        for alpha, shape in ((1.0, (3,)), ([0.5, 1, 2], (4, 3)), ([0.5, 1, 2], (3,)),
                             ([0.5, 1, 2], (4, 2)), ([0.5, 1, 2], ()), ([], (2, 0))):
            yield f"StatelessRandomGammaV2/{dtype}/{alpha}/{list(shape)}", once(
                lambda dtype=dtype, alpha=alpha, shape=shape: R.StatelessRandomGammaV2(
                    shape=shape_of(shape), seed=oracle.const(numpy.array([5, 7])),
                    alpha=oracle.const(numpy.array(alpha, dtype)))
            ), EXACT  # fmt: skip
            yield f"StatelessRandomGammaV3/{dtype}/{alpha}/{list(shape)}", once(
                lambda dtype=dtype, alpha=alpha, shape=shape: R.StatelessRandomGammaV3(
                    shape=shape_of(shape), key=oracle.const(numpy.array([5], "uint64")),
                    counter=oracle.const(numpy.array([0, 7], "uint64")),
                    alg=oracle.const(numpy.int32(1)), alpha=oracle.const(numpy.array(alpha, dtype)))
            ), EXACT  # fmt: skip
    types = ("float16", "float32", "float64", "int32", "int64")
    for rate_type, out in itertools.product(types, types):
        for rate, shape in (([0.5, 3, 9.9, 10, 50, 1000], (20,)), (4, ()), ([[0]], (3,)),
                            ([], (3,)), ([12], (0,))):
            yield f"RandomPoissonV2/{rate_type}/{out}/{rate}", executions(
                3, lambda rate_type=rate_type, out=out, rate=rate, shape=shape: R.RandomPoissonV2(
                    shape=shape_of(shape), rate=oracle.const(numpy.array(rate, rate_type)), seed=5,
                    seed2=7, dtype=out)
            ), EXACT  # fmt: skip
        yield f"StatelessRandomPoisson/{rate_type}/{out}", once(
            lambda rate_type=rate_type, out=out: R.StatelessRandomPoisson(
                shape=shape_of((4, 3)), seed=oracle.const(numpy.array([5, 7])),
                lam=oracle.const(numpy.array([0.5, 7, 20], rate_type)), dtype=out)
        ), EXACT  # fmt: skip
    yield "RandomGamma/wrong", once(lambda: R.RandomGamma(shape=shape_of(3), alpha=oracle.const(
        numpy.ones(3)), seed=1))
    yield "RandomPoissonV2/wrong", once(lambda: R.RandomPoissonV2(shape=shape_of([-3]),
            rate=oracle.const(numpy.ones(3)), seed=1))
    yield "StatelessRandomPoisson/wrong", once(
        lambda: R.StatelessRandomPoisson(shape=shape_of((4, 2)),
                                         seed=oracle.const(numpy.array([5, 7])),
                                         lam=oracle.const(numpy.ones(3)), dtype="float32")
    )


def stateless():
    # fmt: skip
    floats = {"StatelessRandomUniform": "StatelessRandomUniformV2",
              "StatelessRandomNormal": "StatelessRandomNormalV2",
              "StatelessTruncatedNormal": "StatelessTruncatedNormalV2"}
    seeds = (([5, 7], "int64"), ([3, -4], "int32"), ([-1, 2**40], "int64"), ([0, 0], "int64"))
    counters = ([0, 7], [2**64 - 1, 2**64 - 1], [2**64 - 3, 7, 8])
    for (v1, v2), shape in itertools.product(floats.items(), SIZES):
        for dtype in tf_kernels.cpu_dtypes(v1, "dtype"):
            for seed, seed_type in seeds if shape == (4,) else seeds[:1]:
                yield f"{v1}/{dtype}/{seed}/{list(shape)}", once(
                    lambda v1=v1, dtype=dtype, seed=seed, seed_type=seed_type,
                    shape=shape: getattr(R, v1)(
                        shape=shape_of(shape), seed=oracle.const(numpy.array(seed, seed_type)),
                        dtype=dtype)
                ), EXACT  # fmt: skip
            for counter in counters if shape == (1000,) else counters[:1]:
                yield f"{v2}/{dtype}/{counter}/{list(shape)}", once(
                    lambda v2=v2, dtype=dtype, counter=counter, shape=shape: getattr(R, v2)(
                        shape=shape_of(shape, "int64"),
                        key=oracle.const(numpy.array([2**63 + 5], "uint64")),
                        counter=oracle.const(numpy.array(counter, "uint64")),
                        alg=oracle.const(numpy.int32(1 if len(shape) == 1 else 3)), dtype=dtype)
                ), EXACT  # fmt: skip
    for dtype, shape in itertools.product(("int32", "int64", "uint32", "uint64"), SIZES):
        yield f"StatelessRandomUniformFullInt/{dtype}/{list(shape)}", once(
            lambda dtype=dtype, shape=shape: R.StatelessRandomUniformFullInt(shape=shape_of(shape),
                    seed=oracle.const(numpy.array([5, 7])), dtype=dtype)
        )
        yield f"StatelessRandomUniformFullIntV2/{dtype}/{list(shape)}", once(
            lambda dtype=dtype, shape=shape: R.StatelessRandomUniformFullIntV2(
                shape=shape_of(shape), key=oracle.const(numpy.array([5], "uint64")),
                counter=oracle.const(numpy.array([0, 7], "uint64")),
                alg=oracle.const(numpy.int32(1)), dtype=dtype)
        )  # fmt: skip
        if dtype.startswith("u"):
            continue
        for low, high in ((-3, 1000), (5, 5), (-(2**31), 2**31 - 1), ([1], 3)):
            low, high = numpy.array(low, dtype), numpy.array(high, dtype)
            yield f"StatelessRandomUniformInt/{dtype}/{list(shape)}/{low}:{high}", once(
                lambda shape=shape, low=low, high=high: R.StatelessRandomUniformInt(
                    shape=shape_of(shape), seed=oracle.const(numpy.array([5, 7])),
                    minval=oracle.const(low), maxval=oracle.const(high))
            )  # fmt: skip
            yield f"StatelessRandomUniformIntV2/{dtype}/{list(shape)}/{low}:{high}", once(
                lambda shape=shape, low=low, high=high: R.StatelessRandomUniformIntV2(
                    shape=shape_of(shape), key=oracle.const(numpy.array([5], "uint64")),
                    counter=oracle.const(numpy.array([0, 7], "uint64")),
                    alg=oracle.const(numpy.int32(1)), minval=oracle.const(low),
                    maxval=oracle.const(high))
            )  # fmt: skip
    for seed in ([5, 7], [-1, 2**40], [1], [1, 2, 3], [[1, 2]], 1):
        for op in ("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg"):
            yield f"{op}/{seed}", once(lambda op=op,
                                       seed=seed: getattr(R, op)(
                                           seed=oracle.const(numpy.array(seed, "int64"))))
        yield f"StatelessRandomUniform/seed {seed}", once(
            lambda seed=seed: R.StatelessRandomUniform(
                shape=shape_of([3]), seed=oracle.const(numpy.array(seed, "int64"))))
    for seed_type in ("uint32", "uint64", "int32"):
        yield f"StatelessRandomUniformFullInt/seed {seed_type}", once(
            lambda seed_type=seed_type: R.StatelessRandomUniformFullInt(
                shape=shape_of([3]), seed=oracle.const(numpy.array([5, 7], seed_type)),
                dtype="uint32")
        )
    yield "StatelessRandomGetAlg", once(lambda: R.StatelessRandomGetAlg())
    # A counter of one element is left out: TensorFlow reads beyond it.
    for key, counter, alg in (
        ([1, 2], [1, 2], 1), (1, [1, 2], 1), ([1], [], 1), ([1], 1, 1), ([1], [[1, 2]], 1),
        ([1], [1, 2], 2), ([1], [1, 2], 0), ([1], [1, 2], 7), ([1], [1, 2], [1]),
    ):  # fmt: skip
        yield f"StatelessRandomUniformV2/wrong/{key}/{counter}/{alg}", once(
            lambda key=key, counter=counter, alg=alg: R.StatelessRandomUniformV2(
                shape=shape_of([3]), key=oracle.const(numpy.array(key, "uint64")),
                counter=oracle.const(numpy.array(counter, "uint64")),
                alg=oracle.const(numpy.array(alg, "int32")), dtype="float32")
        )  # fmt: skip


def cases():
    yield from stateful()
    yield from discrete()
    yield from rejection()
    yield from stateless()
