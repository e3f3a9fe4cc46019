"""Cases of random generators in resource variables (tf.random.Generator), and of
ParameterizedTruncatedNormal: TensorFlow's numbers."""

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
EXACT = {"rtol": 0, "atol": 0}
STATE = [2**63 - 3, -2, 77]


def generator(ops, state=STATE, dtype="int64", n=3, is_own=False):
    """ops: handle → fetches; n executions after the state is set, then the state itself. is_own: in
    memory that no constant shares, which StatefulRandomBinomial of TensorFlow leaves as it is."""

    def build():
        handle = R.VarHandleOp(dtype=dtype, shape=None, shared_name="g")
        assign = R.AssignVariableOp(resource=handle, value=tf.constant(numpy.array(state, dtype)))
        out = ops(handle)
        out = list(out) if isinstance(out, (list, tuple)) else [out]
        is_op = isinstance(out[0], tf.Operation)
        steps = [oracle.Step(targets=[assign])]
        if is_own:
            steps.append(oracle.Step(targets=[R.AssignAddVariableOp(resource=handle,
                    value=tf.constant(numpy.array([0, 0, 0], dtype)))]))
        return steps + [oracle.Step(targets=out) if is_op else oracle.Step(out)
                        for _ in range(n)] + [oracle.Step(
                            [R.ReadVariableOp(resource=handle, dtype=dtype)])]

    return build


def scalar(value, dtype="int64"):
    return oracle.const(numpy.array(value, dtype))


def resources():
    for op in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal",
               "StatefulUniformFullInt"):
        for dtype in tf_kernels.cpu_dtypes(op, "dtype"):
            for shape in ((1,), (3,), (), (2, 5), (0,), (1000,)):
                yield f"{op}/{dtype}/{list(shape)}", generator(
                    lambda h, op=op, dtype=dtype,
                    shape=shape: getattr(R, op)(resource=h, algorithm=scalar(1),
                                                shape=scalar(shape, "int32"), dtype=dtype)
                ), EXACT  # fmt: skip
    for dtype in ("int32", "int64"):
        for low, high in ((0, 1), (-3, 1000), (5, 5), (7, 5), ([1], 5), (1, [5])):
            yield f"StatefulUniformInt/{dtype}/{low}:{high}", generator(
                lambda h, dtype=dtype, low=low, high=high: R.StatefulUniformInt(
                    resource=h, algorithm=scalar(1), shape=scalar([5]), minval=scalar(low, dtype),
                    maxval=scalar(high, dtype))
            )  # fmt: skip
    for delta in (0, 1, 5, 2**40, 2**62):
        yield f"RngSkip/{delta}", generator(lambda h,
                                            delta=delta: R.RngSkip(
                                                resource=h, algorithm=scalar(1),
                                                delta=scalar(delta)))
        yield f"RngReadAndSkip/{delta}", generator(
            lambda h, delta=delta: R.RngReadAndSkip(resource=h, alg=scalar(1, "int32"),
                    delta=scalar(delta, "uint64")))


def binomials():
    pairs = {
        "few": (5, 0.3), "few likely": (7, 0.9), "many": (100, 0.4), "many likely": (1000, 0.75),
        "border": (20, 0.5), "huge": (1e6, 0.01), "none": (0, 0.5), "never": (9, 0),
        "always": (9, 1), "impossible": (9, -1), "beyond": (9, 1.5), "negative": (-3, 0.5),
    }  # fmt: skip
    floats = ("float32", "float64")
    for name, (count, p) in pairs.items():
        for dtype, out in [(t, o) for t in floats
                           for o in ("float16", "float32", "float64", "int32", "int64")] + [
                               ("float16", "float32"), ("int32", "int64")]:
            if dtype == "float16" and count > 1000:
                continue
            counts, probs = numpy.array(count, dtype), numpy.array(p, dtype)
            yield (f"StatelessRandomBinomial/{name}/{dtype},{out}", lambda counts=counts,
                   probs=probs, out=out: [
                R.StatelessRandomBinomial(shape=scalar([40], "int32"), seed=scalar([3, 4]),
                                          counts=oracle.const(counts), probs=oracle.const(probs),
                                          dtype=out)
            ], EXACT)
            if dtype == "float64" and out in ("float64", "int32"):
                yield f"StatefulRandomBinomial/{name}/{dtype},{out}", generator(
                    lambda h, counts=counts, probs=probs, out=out: R.StatefulRandomBinomial(
                        resource=h, algorithm=scalar(1), shape=scalar([7], "int32"),
                        counts=oracle.const(counts), probs=oracle.const(probs), dtype=out),
                        is_own=True
                ), EXACT  # fmt: skip
    counts, probs = numpy.array([5, 50, 100.0]), numpy.array([[0.3], [0.6]])
    for shape in ([2, 3], [4, 2, 3], [0, 2, 3], [2, 2, 3, 1], [3], [3, 2], [[2, 3]], [-1, 2, 3],
                  []):
        for seed in ([1, 2], [1], [[1, 2]]):
            yield f"StatelessRandomBinomial/{shape},{seed}", lambda shape=shape, seed=seed: [
                R.StatelessRandomBinomial(shape=scalar(shape, "int32"), seed=scalar(seed),
                                          counts=oracle.const(counts), probs=oracle.const(probs),
                                          dtype="float64")
            ], EXACT
    for algorithm in (0, 2, 3, [1]):
        yield f"StatefulRandomBinomial/algorithm {algorithm}", generator(
            lambda h, a=algorithm: R.StatefulRandomBinomial(resource=h, algorithm=scalar(a),
                    shape=scalar([2, 3], "int32"), counts=oracle.const(counts),
                    probs=oracle.const(probs)))
    yield "StatelessRandomBinomial/shapes", lambda: [
        R.StatelessRandomBinomial(shape=scalar([2, 3], "int32"), seed=scalar([3, 4]),
                                  counts=oracle.const(counts), probs=oracle.const(counts[:2]),
                                  dtype="float64")
    ]


def wrong():
    def uniform(h, algorithm=1, shape=(3,)):
        return R.StatefulUniform(resource=h, algorithm=scalar(algorithm), shape=scalar(shape),
                                 dtype="float32")

    for algorithm in (0, 2, 3, 7, -1, [1]):
        yield f"wrong/algorithm {algorithm}", generator(lambda h, a=algorithm: uniform(h, a))
        yield f"wrong/skip algorithm {algorithm}", generator(
            lambda h, a=algorithm: R.RngSkip(resource=h, algorithm=scalar(a), delta=scalar(1)))
        yield f"wrong/read algorithm {algorithm}", generator(
            lambda h, a=algorithm: R.RngReadAndSkip(resource=h, alg=scalar(a, "int32"),
                    delta=scalar(1, "uint64")))
    yield "wrong/delta", generator(lambda h: R.RngSkip(resource=h, algorithm=scalar(1),
            delta=scalar([1])))
    for shape in (3, [-1], [[2]]):
        yield f"wrong/shape {shape}", generator(lambda h, shape=shape: uniform(h, 1, shape))
    for state, dtype in (([1, 2], "int64"), ([[1, 2, 3]], "int64"), (1, "int64"),
                         ([1, 2, 3], "float32"), ([1, 2, 3, 4, 5], "int64")):
        yield f"wrong/state {state} {dtype}", generator(uniform, state, dtype)
        yield f"wrong/skip state {state} {dtype}", generator(
            lambda h: R.RngSkip(resource=h, algorithm=scalar(1), delta=scalar(1)), state, dtype)
    yield "wrong/no variable", lambda: [uniform(R.VarHandleOp(dtype="int64", shape=None,
            shared_name="nobody"))]
    for dtype in ("int32", "int64", "uint32", "uint64"):
        for shape in ((), (3,), (0,), (2, 5)):
            yield f"NonDeterministicInts/{dtype}/{list(shape)}", lambda dtype=dtype, shape=shape: [
                R.NonDeterministicInts(shape=scalar(shape, "int32"), dtype=dtype)
            ], {"ignore": "values"}
    yield "NonDeterministicInts/wrong", lambda: [
        R.NonDeterministicInts(shape=scalar([-1]), dtype="int64")]


def parameterized():
    def case(shape, parameters, dtype="float32", n=3):
        def build():
            means, stddevs, minvals, maxvals = (oracle.const(numpy.array(p, dtype))
                                                for p in parameters)
            out = R.ParameterizedTruncatedNormal(
                shape=scalar(shape, "int32"), means=means, stdevs=stddevs, minvals=minvals,
                maxvals=maxvals, seed=5, seed2=7)
            return [oracle.Step([out]) for _ in range(n)]

        return build

    inf = numpy.inf
    bounds = {"around": (0, 1, -2, 2), "one side": (0, 1, -2, inf), "other side": (1, 2, -inf, 1.5),
              "narrow": (0, 1, 0.1, 0.3), "narrow above": (0, 1, 2, 2.2), "tail": (0, 1, 4, inf),
              # fmt: skip
              "left tail": (3, 1.5, -inf, -2), "within": (0, 1, -0.5, 0.5), "far": (0, 1, 20, 21),
              "half": (0, 1, 0, inf), "mean above": (5, 1, -1, 3)}
    for dtype in ("float16", "float32", "float64"):
        for name, parameters in bounds.items():
            for shape in ((1,), (5,), (101,), (2, 150), (3, 0)):
                yield f"Parameterized/{dtype}/{name}/{list(shape)}", case(
                    shape, parameters, dtype), EXACT if dtype != "float16" else {"rtol": 1e-2}
        means, stddevs, low, high = (numpy.array(column) for column in zip(*bounds.values()))
        for samples in ((), (1,), (7,), (20, 9)):
            yield f"Parameterized/{dtype}/all/{list(samples)}", case(
                (len(bounds), *samples), (means, stddevs, low, high),
                dtype), EXACT if dtype != "float16" else {"rtol": 1e-2}
            yield f"Parameterized/{dtype}/mixed/{list(samples)}", case(
                (len(bounds), *samples), (means, 2, [-1], 30),
                dtype), EXACT if dtype != "float16" else {"rtol": 1e-2}
    good = (0, 1, -1, 1)
    for name, shape, parameters in (
        ("deviation", (3,), (0, 0, -1, 1)), ("negative deviation", (3,), (0, -1, -1, 1)),
        ("bounds", (3,), (0, 1, 1, 1)), ("crossed", (3,), (0, 1, 2, 1)),
        ("infinite", (3,), (0, 1, -inf, inf)), ("nan", (3,), (0, numpy.nan, -1, 1)),
        ("no shape", (), good), ("scalar shape", 3, good), ("negative shape", (-3,), good),
        ("sizes", (3, 2), ([0, 1], 1, -1, 1)), ("matrix", (3, 2), ([[0]], 1, -1, 1)),
        ("none", (0, 2), good), ("none wrong", (0, 2), (0, 0, 0, 0)),
        ("empty parameters", (0, 2), ([], 1, -1, 1)),
    ):  # fmt: skip
        yield f"Parameterized/{name}", case(shape, parameters), EXACT


def cases():
    yield from resources()
    yield from binomials()
    yield from wrong()
    yield from parameterized()
