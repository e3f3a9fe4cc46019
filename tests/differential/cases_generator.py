"""Cases of random generators in resource variables (tf.random.Generator), and of ParameterizedTruncatedNormal: TensorFlow's numbers."""

import numpy
import tensorflow as tf

import oracle
import tf_kernels

R = tf.raw_ops
EXACT = {"rtol": 0, "atol": 0}
STATE = [2**63 - 3, -2, 77]


def generator(ops, state=STATE, dtype="int64", n=3):
    """ops: handle → fetches; n executions after the state is set, then the state itself."""

    def build():
        handle = R.VarHandleOp(dtype=dtype, shape=None, shared_name="g")
        assign = R.AssignVariableOp(resource=handle, value=tf.constant(numpy.array(state, dtype)))
        out = ops(handle)
        out = list(out) if isinstance(out, (list, tuple)) else [out]
        is_op = isinstance(out[0], tf.Operation)
        return [oracle.Step(targets=[assign])] + [oracle.Step(targets=out) if is_op else oracle.Step(out) for _ in range(n)] + [oracle.Step([R.ReadVariableOp(resource=handle, dtype=dtype)])]

    return build


def scalar(value, dtype="int64"):
    return oracle.const(numpy.array(value, dtype))


def resources():
    for op in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal", "StatefulUniformFullInt"):
        for dtype in tf_kernels.cpu_dtypes(op, "dtype"):
            for shape in ((1,), (3,), (), (2, 5), (0,), (1000,)):
                yield f"{op}/{dtype}/{list(shape)}", generator(
                    lambda h, op=op, dtype=dtype, shape=shape: getattr(R, op)(resource=h, algorithm=scalar(1), shape=scalar(shape, "int32"), dtype=dtype)
                ), EXACT  # fmt: skip
    for dtype in ("int32", "int64"):
        for low, high in ((0, 1), (-3, 1000), (5, 5), (7, 5), ([1], 5), (1, [5])):
            yield f"StatefulUniformInt/{dtype}/{low}:{high}", generator(
                lambda h, dtype=dtype, low=low, high=high: R.StatefulUniformInt(
                    resource=h, algorithm=scalar(1), shape=scalar([5]), minval=scalar(low, dtype), maxval=scalar(high, dtype))
            )  # fmt: skip
    for delta in (0, 1, 5, 2**40, 2**62):
        yield f"RngSkip/{delta}", generator(lambda h, delta=delta: R.RngSkip(resource=h, algorithm=scalar(1), delta=scalar(delta)))
        yield f"RngReadAndSkip/{delta}", generator(lambda h, delta=delta: R.RngReadAndSkip(resource=h, alg=scalar(1, "int32"), delta=scalar(delta, "uint64")))


def wrong():
    def uniform(h, algorithm=1, shape=(3,)):
        return R.StatefulUniform(resource=h, algorithm=scalar(algorithm), shape=scalar(shape), dtype="float32")

    for algorithm in (0, 2, 3, 7, -1, [1]):
        yield f"wrong/algorithm {algorithm}", generator(lambda h, a=algorithm: uniform(h, a))
        yield f"wrong/skip algorithm {algorithm}", generator(lambda h, a=algorithm: R.RngSkip(resource=h, algorithm=scalar(a), delta=scalar(1)))
        yield f"wrong/read algorithm {algorithm}", generator(lambda h, a=algorithm: R.RngReadAndSkip(resource=h, alg=scalar(a, "int32"), delta=scalar(1, "uint64")))
    yield "wrong/delta", generator(lambda h: R.RngSkip(resource=h, algorithm=scalar(1), delta=scalar([1])))
    for shape in (3, [-1], [[2]]):
        yield f"wrong/shape {shape}", generator(lambda h, shape=shape: uniform(h, 1, shape))
    for state, dtype in (([1, 2], "int64"), ([[1, 2, 3]], "int64"), (1, "int64"), ([1, 2, 3], "float32"), ([1, 2, 3, 4, 5], "int64")):
        yield f"wrong/state {state} {dtype}", generator(uniform, state, dtype)
        yield f"wrong/skip state {state} {dtype}", generator(lambda h: R.RngSkip(resource=h, algorithm=scalar(1), delta=scalar(1)), state, dtype)
    yield "wrong/no variable", lambda: [uniform(R.VarHandleOp(dtype="int64", shape=None, shared_name="nobody"))]
    for dtype in ("int32", "int64", "uint32", "uint64"):
        for shape in ((), (3,), (0,), (2, 5)):
            yield f"NonDeterministicInts/{dtype}/{list(shape)}", lambda dtype=dtype, shape=shape: [
                R.NonDeterministicInts(shape=scalar(shape, "int32"), dtype=dtype)
            ], {"ignore": "values"}
    yield "NonDeterministicInts/wrong", lambda: [R.NonDeterministicInts(shape=scalar([-1]), dtype="int64")]


def parameterized():
    def case(shape, parameters, dtype="float32", n=3):
        def build():
            means, stddevs, minvals, maxvals = (oracle.const(numpy.array(p, dtype)) for p in parameters)
            out = R.ParameterizedTruncatedNormal(shape=scalar(shape, "int32"), means=means, stdevs=stddevs, minvals=minvals, maxvals=maxvals, seed=5, seed2=7)
            return [oracle.Step([out]) for _ in range(n)]

        return build

    inf = numpy.inf
    bounds = {"around": (0, 1, -2, 2), "one side": (0, 1, -2, inf), "other side": (1, 2, -inf, 1.5), "narrow": (0, 1, 0.1, 0.3), "narrow above": (0, 1, 2, 2.2), "tail": (0, 1, 4, inf),
              "left tail": (3, 1.5, -inf, -2), "within": (0, 1, -0.5, 0.5), "far": (0, 1, 20, 21), "half": (0, 1, 0, inf), "mean above": (5, 1, -1, 3)}  # fmt: skip
    for dtype in ("float16", "float32", "float64"):
        for name, parameters in bounds.items():
            for shape in ((1,), (5,), (101,), (2, 150), (3, 0)):
                yield f"Parameterized/{dtype}/{name}/{list(shape)}", case(shape, parameters, dtype), EXACT if dtype != "float16" else {"rtol": 1e-2}
        means, stddevs, low, high = (numpy.array(column) for column in zip(*bounds.values()))
        for samples in ((), (1,), (7,), (20, 9)):
            yield f"Parameterized/{dtype}/all/{list(samples)}", case((len(bounds), *samples), (means, stddevs, low, high), dtype), EXACT if dtype != "float16" else {"rtol": 1e-2}
            yield f"Parameterized/{dtype}/mixed/{list(samples)}", case((len(bounds), *samples), (means, 2, [-1], 30), dtype), EXACT if dtype != "float16" else {"rtol": 1e-2}
    good = (0, 1, -1, 1)
    for name, shape, parameters in (
        ("deviation", (3,), (0, 0, -1, 1)), ("negative deviation", (3,), (0, -1, -1, 1)), ("bounds", (3,), (0, 1, 1, 1)), ("crossed", (3,), (0, 1, 2, 1)), ("infinite", (3,), (0, 1, -inf, inf)), ("nan", (3,), (0, numpy.nan, -1, 1)),
        ("no shape", (), good), ("scalar shape", 3, good), ("negative shape", (-3,), good), ("sizes", (3, 2), ([0, 1], 1, -1, 1)), ("matrix", (3, 2), ([[0]], 1, -1, 1)), ("none", (0, 2), good), ("none wrong", (0, 2), (0, 0, 0, 0)), ("empty parameters", (0, 2), ([], 1, -1, 1)),
    ):  # fmt: skip
        yield f"Parameterized/{name}", case(shape, parameters), EXACT


def cases():
    yield from resources()
    yield from wrong()
    yield from parameterized()
