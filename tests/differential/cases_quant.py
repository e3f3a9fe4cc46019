"""Cases of the quantising family: codes of few bits, and reals that are rounded to codes."""

import itertools

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
CODES = ("qint8", "quint8", "qint16", "quint16", "qint32")
F = numpy.float32


def op_case(op, inputs, options=None, **attrs):
    def build():
        out = getattr(R, op)(**{name: oracle.const(value) for name, value in inputs.items()},
                             **attrs)
        return list(out) if isinstance(out, tuple) else [out]

    return build, options or {}


def reals(rng, shape, dtype="float32"):
    values = (rng.normal(size=shape) * 2.5).astype(dtype)
    return values


def fake():
    rng = numpy.random.default_rng(1)
    shapes = ((), (0,), (3, 5), (2, 3, 1, 2, 2), (3001,))
    for shape, bits, narrow in itertools.product(shapes, (2, 8, 16), (False, True)):
        x, dy = reals(rng, shape), reals(rng, shape)
        attrs = {"num_bits": bits, "narrow_range": narrow}
        for low, high in ((-6.0, 6.0), (-1.3, 2.9), (0.0, 4.0), (-3.0, 0.0), (0.0, 0.0), (0.5, 2.0),
                          (-2.0, -0.5)):
            label = f"{list(shape)}/{bits}{'n' if narrow else ''}/{low},{high}"
            ends = {"min": F(low), "max": F(high)}
            sums = {"rtol": 1e-4}
            yield f"FakeQuantWithMinMaxVars/{label}", *op_case(
                "FakeQuantWithMinMaxVars", {"inputs": x, **ends}, **attrs)
            yield f"FakeQuantWithMinMaxVarsGradient/{label}", *op_case(
                "FakeQuantWithMinMaxVarsGradient", {"gradients": dy, "inputs": x, **ends}, sums,
                **attrs)
            if low < high:
                yield f"FakeQuantWithMinMaxArgs/{label}", *op_case(
                    "FakeQuantWithMinMaxArgs", {"inputs": x}, min=low, max=high, **attrs)
                yield f"FakeQuantWithMinMaxArgsGradient/{label}", *op_case(
                    "FakeQuantWithMinMaxArgsGradient", {"gradients": dy, "inputs": x}, min=low,
                    max=high, **attrs)
        if shape:
            ends = {"min": -abs(reals(rng, shape[-1:])), "max": abs(reals(rng, shape[-1:]))}
            ends["min"][:1] = ends["max"][:1] = 0
            label = f"{list(shape)}/{bits}{'n' if narrow else ''}"
            yield f"FakeQuantWithMinMaxVarsPerChannel/{label}", *op_case(
                "FakeQuantWithMinMaxVarsPerChannel", {"inputs": x, **ends}, **attrs)
            yield f"FakeQuantWithMinMaxVarsPerChannelGradient/{label}", *op_case(
                "FakeQuantWithMinMaxVarsPerChannelGradient", {"gradients": dy, "inputs": x, **ends},
                {"rtol": 1e-4}, **attrs)
    special = numpy.array([numpy.nan, numpy.inf, -numpy.inf, -0.0, 1e30, -1e30], F)
    for low, high in ((-1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (numpy.nan, 1.0)):
        yield f"FakeQuantWithMinMaxVars/special/{low},{high}", *op_case(
            "FakeQuantWithMinMaxVars", {"inputs": special, "min": F(low), "max": F(high)})
        yield f"FakeQuantWithMinMaxVarsGradient/special/{low},{high}", *op_case(
            "FakeQuantWithMinMaxVarsGradient", {"gradients": numpy.ones(6, F), "inputs": special,
                                                "min": F(low), "max": F(high)})
    x = reals(rng, (4, 3))
    for name, ends in {"vector": ([1], 2), "two": ([1, 2], 2), "none": ([], 2),
                       "matrix": ([[1]], 2)}.items():
        ends = {"min": numpy.array(ends[0], F), "max": numpy.array(ends[1], F)}
        for pair in (ends, {"min": -ends["max"], "max": ends["min"]}):
            yield f"FakeQuantWithMinMaxVars/wrong {name}", *op_case(
                "FakeQuantWithMinMaxVars", {"inputs": x, **pair})
            yield f"FakeQuantWithMinMaxVarsGradient/wrong {name}", *op_case(
                "FakeQuantWithMinMaxVarsGradient", {"gradients": x, "inputs": x, **pair})
    for low, high in (([1], [2]), ([1, 2], [3, 4]), ([1, 2, 3], 1), (1, [1, 2, 3]),
                      ([[1, 2, 3]], [1, 2, 3])):
        ends = {"min": numpy.array(low, F), "max": numpy.array(high, F)}
        yield f"FakeQuantWithMinMaxVarsPerChannel/wrong {low},{high}", *op_case(
            "FakeQuantWithMinMaxVarsPerChannel", {"inputs": x, **ends})
        yield f"FakeQuantWithMinMaxVarsPerChannelGradient/wrong {low},{high}", *op_case(
            "FakeQuantWithMinMaxVarsPerChannelGradient", {"gradients": x, "inputs": x, **ends})
    for low, high, bits in ((1.0, 1.0, 8), (2.0, 1.0, 8), (-1.0, 1.0, 1), (-1.0, 1.0, 17)):
        yield f"FakeQuantWithMinMaxArgs/wrong {low},{high},{bits}", *op_case(
            "FakeQuantWithMinMaxArgs", {"inputs": x}, min=low, max=high, num_bits=bits)
        yield f"FakeQuantWithMinMaxVars/wrong bits {bits}", *op_case(
            "FakeQuantWithMinMaxVars", {"inputs": x, "min": F(-1), "max": F(1)}, num_bits=bits)
    yield "FakeQuantWithMinMaxArgsGradient/shapes", *op_case(
        "FakeQuantWithMinMaxArgsGradient", {"gradients": x, "inputs": x[:2]})
    yield "FakeQuantWithMinMaxVarsGradient/shapes", *op_case(
        "FakeQuantWithMinMaxVarsGradient", {"gradients": x, "inputs": x[:2], "min": F(-1),
                                            "max": F(1)})
    ends = {"min": -numpy.ones(3, F), "max": numpy.ones(3, F)}
    yield "FakeQuantWithMinMaxVarsPerChannelGradient/shapes", *op_case(
        "FakeQuantWithMinMaxVarsPerChannelGradient", {"gradients": x, "inputs": x[:2], **ends})


def simulated():
    rng = numpy.random.default_rng(2)
    shapes = ((), (0,), (3, 5), (2, 3, 400))
    for dtype, shape, signed, given in itertools.product(
        ("float32", "float64"), shapes, (True, False), (True, False)):
        x = reals(rng, shape, dtype)
        if not given and x.size == 0:
            continue
        for bits, narrow, rounding in ((8, False, "HALF_TO_EVEN"), (8, True, "HALF_UP"),
                                       (3, True, "HALF_TO_EVEN"), (16, False, "HALF_UP"),
                                       (2, False, "HALF_TO_EVEN")):
            attrs = {"signed_input": signed, "num_bits": bits, "range_given": given,
                     "narrow_range": narrow, "round_mode": rounding}
            for low, high in ((-1.5, 2.0), (0.0, 3.0), (-3.0, 0.5)) if given else ((0.0, 0.0),):
                ends = {"input_min": numpy.array(low, dtype), "input_max": numpy.array(high, dtype)}
                label = (
                    f"{dtype}/{list(shape)}/{signed},{given}/{bits},{narrow},{rounding}/"
                    f"{low},{high}")
                for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
                    yield f"{op}/{label}", *op_case(op, {"input": x, **ends}, **attrs)
                three = {k: v for k, v in attrs.items() if k not in ("num_bits", "round_mode")}
                if shape:  # TensorFlow's kernel refuses scalars here only
                    yield f"QuantizeAndDequantizeV3/{label}", *op_case(
                        "QuantizeAndDequantizeV3",
                        {"input": x, **ends, "num_bits": numpy.int32(bits)}, **three)
        for axis in range(len(shape)):
            n = shape[axis]
            ends = {"input_min": -abs(reals(rng, (n,), dtype)) - 0.1,
                    "input_max": abs(reals(rng, (n,), dtype)) + 0.1}
            # TensorFlow 2.21 wants scalars of an op that has none then
            for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4") if not given else ():
                yield f"{op}/{dtype}/{list(shape)}/{signed},{given}/axis {axis}", *op_case(
                    op, {"input": x, **ends}, axis=axis, signed_input=signed, range_given=given)
            if given:
                yield (f"QuantizeAndDequantizeV3/{dtype}/{list(shape)}/{signed}/axis {axis}",
                       *op_case("QuantizeAndDequantizeV3",
                                {"input": x, **ends, "num_bits": numpy.int32(7)}, axis=axis,
                                signed_input=signed))
            yield f"QuantizeAndDequantizeV4Grad/{dtype}/{list(shape)}/axis {axis}", *op_case(
                "QuantizeAndDequantizeV4Grad", {"gradients": x[::-1], "input": x, **ends},
                axis=axis)
        ends = {"input_min": numpy.array(-1, dtype), "input_max": numpy.array(1.5, dtype)}
        yield f"QuantizeAndDequantizeV4Grad/{dtype}/{list(shape)}", *op_case(
            "QuantizeAndDequantizeV4Grad", {"gradients": x * 3, "input": x, **ends})
    x = reals(rng, (3, 4))
    for low, high, attrs in (
        (1, 0, {}), ([1], [2], {}), ([1, 2], [3, 4], {}), (0, 1, {"num_bits": 0}),
        (0, 1, {"num_bits": 63}), (0, 1, {"num_bits": 62, "signed_input": False}),
        (0, 1, {"axis": -2}), ([0, 0], [1, 1], {"axis": 2}),
        ([0, 0], [1, 1], {"axis": 1}), ([0, 0, 0, 2], [1] * 4, {"axis": 1}), (0, 1, {"axis": 1}),
        ([0] * 4, [1], {"axis": 1}), ([[0] * 4], [[1] * 4], {"axis": 1}), ([], [], {}),
    ):  # fmt: skip
        ends = {"input_min": numpy.array(low, F), "input_max": numpy.array(high, F)}
        for op in ("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"):
            yield f"{op}/wrong/{low},{high},{attrs}", *op_case(
                op, {"input": x, **ends}, range_given=True, **attrs)
        # TensorFlow ends on others
        for bits in (8, 0, 70, [8]) if ends["input_min"].size == 1 else ():
            three = {k: v for k, v in attrs.items() if k != "num_bits"}
            yield f"QuantizeAndDequantizeV3/wrong/{low},{high},{attrs},{bits}", *op_case(
                "QuantizeAndDequantizeV3",
                {"input": x, **ends, "num_bits": numpy.array(bits, "int32")}, **three)
        if "num_bits" not in attrs:
            yield f"QuantizeAndDequantizeV4Grad/wrong/{low},{high},{attrs}", *op_case(
                "QuantizeAndDequantizeV4Grad", {"gradients": x, "input": x, **ends}, **attrs)
    yield "QuantizeAndDequantizeV4Grad/shapes", *op_case(
        "QuantizeAndDequantizeV4Grad", {"gradients": x, "input": x[:2], "input_min": F(0),
                                        "input_max": F(1)})
    for bad in (numpy.nan, numpy.inf):
        yield f"QuantizeAndDequantizeV2/{bad}", *op_case(
            "QuantizeAndDequantizeV2", {"input": numpy.array([1, bad, -2], F), "input_min": F(-1),
                                        "input_max": F(1)}, range_given=True)


def as_codes(tensors):
    """Codes as integers, which every client can read."""
    return [tf.bitcast(t, {"qint8": "int8", "quint8": "uint8", "qint16": "int16",
                           "quint16": "uint16", "qint32": "int32"}[t.dtype.name])
            if t.dtype.is_quantized else t for t in tensors]


def codes(rng, dtype, shape):
    plain = numpy.dtype(dtype.replace("q", ""))
    info = numpy.iinfo(plain)
    return rng.integers(info.min, info.max, shape, dtype=plain, endpoint=True)


def code_const(value):
    dtype = "q" + value.dtype.name if value.dtype.name[0] != "u" else "qu" + value.dtype.name[1:]
    return tf.bitcast(oracle.const(value), dtype)


def code_case(op, inputs, options=None, **attrs):
    """Integers among the inputs are codes, unless their name is in `plain`."""
    plain = attrs.pop("plain", ())

    def build():
        made = {k: code_const(v) if v.dtype.kind in "iu" and k not in plain else oracle.const(v)
                for k, v in inputs.items()}
        out = getattr(R, op)(**made, **attrs)
        return as_codes(list(out) if isinstance(out, tuple) else [out])

    return build, options or {}


def ranged(low, high):
    return {"min_range": numpy.array(low, F), "max_range": numpy.array(high, F)}


def converted():
    rng = numpy.random.default_rng(3)
    shapes = ((), (0,), (3, 5), (2, 3, 400))
    modes = (("MIN_COMBINED", "HALF_AWAY_FROM_ZERO"), ("MIN_FIRST", "HALF_AWAY_FROM_ZERO"),
             ("SCALED", "HALF_AWAY_FROM_ZERO"), ("SCALED", "HALF_TO_EVEN"))
    for dtype, shape, (mode, rounding), narrow in itertools.product(
        CODES, shapes, modes, (False, True)):
        x, q = reals(rng, shape), codes(rng, dtype, shape)
        attrs = {"T": dtype, "mode": mode, "round_mode": rounding, "narrow_range": narrow}
        for low, high in ((-3.0, 4.0), (0.0, 2.0), (0.5, 2.0), (-4.0, -1.0), (0.0, 0.0),
                          (0.0, 1e-5)):
            label = f"{dtype}/{list(shape)}/{mode},{rounding},{narrow}/{low},{high}"
            yield f"QuantizeV2/{label}", *code_case(
                "QuantizeV2", {"input": x, **ranged(low, high)}, **attrs)
            if rounding == "HALF_AWAY_FROM_ZERO" and low < high:
                for to in ("float32", "bfloat16"):
                    yield f"Dequantize/{label}/{to}", *code_case(
                        "Dequantize", {"input": q, **ranged(low, high)}, mode=mode,
                        narrow_range=narrow, dtype=to)
        for axis in range(len(shape)):
            ends = ranged(-abs(reals(rng, shape[axis])), abs(reals(rng, shape[axis])))
            yield (f"QuantizeV2/{dtype}/{list(shape)}/{mode},{rounding},{narrow}/axis {axis}",
                   *code_case("QuantizeV2", {"input": x, **ends}, axis=axis, **attrs))
            if rounding == "HALF_AWAY_FROM_ZERO":
                yield f"Dequantize/{dtype}/{list(shape)}/{mode},{narrow}/axis {axis}", *code_case(
                    "Dequantize", {"input": q, **ends}, mode=mode, narrow_range=narrow, axis=axis)
    x, q = reals(rng, (3, 4)), codes(rng, "quint8", (3, 4))
    for low, high, axis in ((1, 0, -1), ([0], [1], -1), ([0, 0], [1, 1], -1), ([], [], -1),
                            ([0, 0], [1, 1], 1), ([0] * 4, [1] * 3, 1), (0, 1, 1), ([0], [1], 2),
                            (0, 1, -2), ([[0] * 4], [[1] * 4], 1)):
        yield f"QuantizeV2/wrong/{low},{high},{axis}", *code_case(
            "QuantizeV2", {"input": x, **ranged(low, high)}, T="quint8", axis=axis)
        yield f"Dequantize/wrong/{low},{high},{axis}", *code_case(
            "Dequantize", {"input": q, **ranged(low, high)}, axis=axis)
    yield "QuantizeV2/wrong rounding", *code_case(
        "QuantizeV2", {"input": x, **ranged(0, 1)}, T="quint8", round_mode="HALF_TO_EVEN")
    for minimum in (0.0, 0.5, 3.0):
        yield f"QuantizeV2/minimum {minimum}", *code_case(
            "QuantizeV2", {"input": x, **ranged(-0.1, 0.1)}, T="qint8", mode="SCALED",
            ensure_minimum_range=minimum)


def rangewise():
    rng = numpy.random.default_rng(4)
    for shape in ((), (7,), (3, 4), (1000,)):
        full = codes(rng, "qint32", shape)
        for name, q in {"full": full, "small": full // 100000, "above": abs(full // 4096) + 5,
                        "below": -abs(full // 4096) - 5}.items():
            for low, high in ((-3.0, 4.0), (-50000.0, 50000.0), (0.0, 1e6), (1.0, 1.0)):
                ends = {"input_min": F(low), "input_max": F(high)}
                label = f"{list(shape)}/{name}/{low},{high}"
                yield f"RequantizationRange/{label}", *code_case(
                    "RequantizationRange", {"input": q, **ends})
                yield f"QuantizeDownAndShrinkRange/{label}", *code_case(
                    "QuantizeDownAndShrinkRange", {"input": q, **ends}, out_type="quint8")
                for out, (to_low, to_high) in itertools.product(
                    ("quint8", "qint8"), ((-1.0, 2.0), (0.0, 0.0), (-4000.0, 0.0), (0.5, 1.0),
                                          (0.0, -1.0))):
                    wanted = {"requested_output_min": F(to_low), "requested_output_max": F(to_high)}
                    yield f"Requantize/{label}/{out}/{to_low},{to_high}", *code_case(
                        "Requantize", {"input": q, **ends, **wanted}, out_type=out)
    q = codes(rng, "qint32", (3,))
    for low, high in (([1], [2]), ([1, 2], 2), ([], 1)):
        ends = {"input_min": numpy.array(low, F), "input_max": numpy.array(high, F)}
        yield f"RequantizationRange/wrong/{low},{high}", *code_case(
            "RequantizationRange", {"input": q, **ends})
        yield f"QuantizeDownAndShrinkRange/wrong/{low},{high}", *code_case(
            "QuantizeDownAndShrinkRange", {"input": q, **ends}, out_type="quint8")
        yield f"Requantize/wrong/{low},{high}", *code_case(
            "Requantize", {"input": q, **ends, "requested_output_min": F(0),
                           "requested_output_max": F(1)}, out_type="quint8")
    yield "RequantizationRange/nothing", *code_case(
        "RequantizationRange", {"input": q[:0], "input_min": F(-1), "input_max": F(1)})
    yield "QuantizeDownAndShrinkRange/nothing", *code_case(
        "QuantizeDownAndShrinkRange", {"input": q[:0], "input_min": F(-1), "input_max": F(1)},
        out_type="quint8")


def arithmetic():
    rng = numpy.random.default_rng(5)
    for op, dtype, shape in itertools.product(("QuantizedRelu", "QuantizedRelu6"),
                                              ("quint8", "qint32"),
                                              ((), (7,), (0,), (3, 4), (1500,))):
        for low, high in ((-3.0, 4.0), (-10.0, 30.0), (0.0, 2.0), (1.0, 2.0), (-2.0, -1.0),
                          (1.0, 1.0)):
            ends = {"min_features": F(low), "max_features": F(high)}
            yield f"{op}/{dtype}/{list(shape)}/{low},{high}", *code_case(
                op, {"features": codes(rng, dtype, shape), **ends}, out_type=dtype)
    yield "QuantizedRelu/wrong", *code_case("QuantizedRelu",
                                            {"features": codes(rng, "quint8", (3,)),
                                             "min_features": numpy.array([1], F),
                                             "max_features": F(2)})
    for dtype, shape in itertools.product(("quint8", "qint8"),
                                          ((2, 3), (0, 3), (2, 3, 4), (2, 2, 2, 3, 5))):
        for low, high in ((-3.0, 4.0), (0.0, 1.0), (-1.0, 0.0)):
            ends = {"min_input": F(low), "max_input": F(high), "min_bias": F(-1), "max_bias": F(2)}
            yield f"QuantizedBiasAdd/{dtype}/{list(shape)}/{low},{high}", *code_case(
                "QuantizedBiasAdd", {"input": codes(rng, dtype, shape),
                                     "bias": codes(rng, dtype, shape[-1:]), **ends},
                    out_type="qint32")
    ends = {"min_input": F(0), "max_input": F(1), "min_bias": F(-1), "max_bias": F(2)}
    for a, b in (((3,), (3,)), ((2, 3), (2,)), ((2, 3), (1, 3)), ((2, 3), ()), ((2, 0), (0,))):
        yield f"QuantizedBiasAdd/wrong/{a},{b}", *code_case(
            "QuantizedBiasAdd", {"input": codes(rng, "quint8", a), "bias": codes(rng, "quint8", b),
                                 **ends}, out_type="qint32")


RANGES = ((-3.0, 4.0), (0.0, 1.0), (-1.0, 0.0), (-100.0, 0.5))


def ends_of(names, *ranges):
    return {f"{end}_{name}": numpy.array(value, F) for name, pair in zip(names, ranges) for end,
            value in zip(("min", "max"), pair)}


def products():
    rng = numpy.random.default_rng(6)
    # of no inner size TensorFlow leaves the result as it finds it
    for m, k, n in ((3, 4, 5), (1, 1, 1), (0, 3, 2), (17, 33, 65)):
        for (transpose_a, transpose_b), pair in itertools.product(
            itertools.product((False, True), repeat=2), zip(RANGES, RANGES[1:] + RANGES[:1])):
            a, b = codes(rng, "quint8", (k, m) if transpose_a else (m, k)), codes(
                rng, "quint8", (n, k) if transpose_b else (k, n))
            attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
            yield f"QuantizedMatMul/{m},{k},{n}/{transpose_a},{transpose_b}/{pair}", *code_case(
                "QuantizedMatMul", {"a": a, "b": b, **ends_of("ab", *pair)}, **attrs)
    u = lambda *shape: codes(rng, "quint8", shape)
    good = ((0.0, 1.0), (0.0, 1.0))
    for a, b, pair in ((u(2, 3), u(2, 2), good), (u(3), u(3, 2), good), (u(2, 3), u(3), good),
                       (u(2, 3), u(3, 2), ((1.0, 0.0), (0.0, 1.0))),
                       (u(2, 3), u(3, 2), ((0.0, 1.0), (2.0, 2.0))),
                       (u(2, 3), u(3, 2), (([0.0], 1.0), (0.0, 1.0)))):
        yield f"QuantizedMatMul/wrong/{a.shape},{b.shape},{pair}", *code_case(
            "QuantizedMatMul", {"a": a, "b": b, **ends_of("ab", *pair)})
    for shape, filters, strides, padding in (((1, 5, 6, 2), (3, 2, 2, 3), 1, "SAME"),
                                             ((2, 5, 6, 2), (3, 3, 2, 4), 2, "SAME"),
                                             ((2, 7, 6, 1), (3, 3, 1, 1), 3, "VALID"),
                                             ((1, 4, 4, 8), (1, 1, 8, 5), 1, "VALID"),
                                             ((2, 9, 9, 3), (5, 5, 3, 16), 1, "SAME")):
        for pair in zip(RANGES, RANGES[1:] + RANGES[:1]):
            inputs = {"input": u(*shape), "filter": u(*filters),
                      **ends_of(("input", "filter"), *pair)}
            yield f"QuantizedConv2D/{shape},{filters},{strides},{padding}/{pair}", *code_case(
                "QuantizedConv2D", inputs, strides=[1, strides, strides, 1], padding=padding)
    x, w = u(1, 4, 4, 2), u(2, 2, 2, 3)
    for a, b, attrs, pair in ((x[0], w, {}, good), (x, w[0], {}, good),
                              (x, u(2, 2, 3, 3), {}, good), (x[:0], w, {}, good),
                              (x, w, {"dilations": [1, 2, 2, 1]}, good),
                              (x, w, {"strides": [1, 1, 2, 1]}, good),
                              (x, w, {"strides": [2, 1, 1, 1]}, good),
                              (x, w, {}, (([0.0], 1.0), (0.0, 1.0)))):
        attrs = {"strides": [1, 1, 1, 1], "padding": "SAME", **attrs}
        yield f"QuantizedConv2D/wrong/{a.shape},{b.shape},{attrs},{pair}", *code_case(
            "QuantizedConv2D", {"input": a, "filter": b, **ends_of(("input", "filter"), *pair)},
            **attrs)


def pooled():
    rng = numpy.random.default_rng(7)
    for op, dtype in itertools.product(("QuantizedMaxPool", "QuantizedAvgPool"),
                                       ("quint8", "qint8")):
        make = lambda shape, ksize, strides=(1, 1), padding="SAME", low=-1.0: code_case(
            op, {"input": codes(rng, dtype, shape), **ends_of(("input",), (low, 2.0))},
            ksize=[1, *ksize, 1], strides=[1, *strides, 1], padding=padding)
        for shape, ksize, strides, padding in itertools.product(
            ((1, 4, 4, 1), (2, 7, 5, 3), (1, 8, 8, 40), (0, 4, 4, 2), (1, 4, 4, 0)),
            ((1, 1), (2, 2), (3, 2)), ((1, 1), (2, 3)), ("SAME", "VALID")):
            yield f"{op}/{dtype}/{shape},{ksize},{strides},{padding}", *make(
                shape, ksize, strides, padding)
        yield f"{op}/{dtype}/wrong rank", *make((4, 4, 2), (2, 2))
        yield f"{op}/{dtype}/wrong range", *make((1, 4, 4, 2), (2, 2), low=[0.0])
        yield f"{op}/{dtype}/channels", *code_case(
            op, {"input": codes(rng, dtype, (1, 4, 4, 4)), **ends_of(("input",), (0, 2.0))},
            ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="SAME")
        yield f"{op}/{dtype}/batch", *code_case(op,
                                                {"input": codes(rng, dtype, (1, 4, 4, 4)),
                                                        **ends_of(("input",), (0, 2.0))},
                                                ksize=[2, 1, 1, 1], strides=[1, 1, 1, 1],
                                                padding="SAME")


def pairs():
    rng = numpy.random.default_rng(8)
    for op in ("QuantizedAdd", "QuantizedMul"):
        make = lambda x, y, *ranges: code_case(op,
                                               {"x": codes(rng, "quint8", x),
                                                "y": codes(rng, "quint8", y),
                                                **ends_of("xy", *ranges)})
        for (x, y), pair in itertools.product((((), ()), ((3, 4), (3, 4)), ((3, 4), ()), ((), (7,)),
                                               ((3, 5), (5,)), ((5,), (3, 5)), ((2, 3, 4), (3, 4)),
                                               ((2, 3), (1, 3)), ((2, 700), (700,))),
                                              zip(RANGES, RANGES[1:] + RANGES[:1])):
            yield f"{op}/{x},{y}/{pair}", *make(x, y, *pair)
        good = ((0.0, 1.0), (0.0, 1.0))
        for x, y, pair in (((2, 3), (2,), good), ((0, 3), (3,), good),
                           ((2,), (2,), ((1.0, 0.0), (0.0, 1.0))),
                           ((2,), (2,), ((0.0, 1.0), (1.0, 1.0))),
                           ((2,), (2,), (([0.0], 1.0), (0.0, 1.0)))):
            yield f"{op}/wrong/{x},{y}/{pair}", *make(x, y, *pair)


def moved():
    rng = numpy.random.default_rng(9)

    def concat(dtype, axis, shapes, mins, maxes):
        def build():
            values = [code_const(codes(rng, dtype, shape)) for shape in shapes]
            plain = lambda numbers: [oracle.const(numpy.array(v, F)) for v in numbers]
            return as_codes(list(R.QuantizedConcat(concat_dim=oracle.const(
                numpy.array(axis, "int32")), values=values, input_mins=plain(mins),
                                                   input_maxes=plain(maxes))))

        return build, {}

    for dtype in ("quint8", "qint32"):
        for shapes, axis in ((((3,), (4,)), 0), (((2, 3), (2, 1), (2, 600)), 1),
                             (((2, 3, 2), (1, 3, 2)), 0), (((2, 2),), 1)):
            for ranges in (((-1.0, 2.0), (-1.0, 2.0), (-1.0, 2.0)),
                           ((0.0, 4.0), (-2.0, 4.0), (1.0, 3.0)),
                           ((1.0, 2.0), (0.5, 3.0), (2.5, 4.0)),
                           ((-3.0, 3.0), (-2.0, 1.0), (-3.0, 3.0)),
                           ((-3.0, -1.0), (-2.0, -1.5), (-3.0, -1.0))):
                mins, maxes = zip(*ranges[: len(shapes)])
                yield f"QuantizedConcat/{dtype}/{shapes},{axis}/{ranges}", *concat(
                    dtype, axis, shapes, mins, maxes)
        for axis, shapes, mins in ((0, ((2,), (2, 2)), (0, 0)), (0, ((2, 3), (2, 2)), (0, 0)),
                                   (3, ((2, 2), (2, 2)), (0, 0)), (-3, ((2, 2), (2, 2)), (0, 0)),
                                   (0, ((), ()), (0, 0)), ([0], ((2,), (2,)), (0, 0)),
                                   (0, ((2,), (2,)), ([0, 1], 0)), (0, ((2,), (2,)), ([], 0)),
                                   (0, ((2,), (2,)), ([0], 0))):
            yield f"QuantizedConcat/{dtype}/wrong {axis},{shapes},{mins}", *concat(
                dtype, axis, shapes, mins, (1, 1))
        for shape, to, low in (((4,), [2, -1], 0), ((4,), [2, 2], [0]), ((), [1, 1], 0),
                               ((0, 3), [3, -1], 0), ((4,), [3], 0), ((4,), [-1, -1], 0),
                               ((4,), [2, 2], [0, 1]), ((4,), [2, 2], [[0]])):
            for index in ("int32", "int64"):
                inputs = {"tensor": codes(rng, dtype, shape), "shape": numpy.array(to, index),
                          "input_min": numpy.array(low, F), "input_max": F(2)}
                yield f"QuantizedReshape/{dtype}/{shape},{to},{low},{index}", *code_case(
                    "QuantizedReshape", inputs, plain=("shape",))


def normalised():
    rng = numpy.random.default_rng(10)

    def batch(shape, depths=None, ranges=None, **attrs):
        depths = depths or (shape[-1],) * 4
        ranges = ranges or ((-3.0, 5.0), (-1.0, 2.0), (0.0, 4.0), (-2.0, 2.0), (0.5, 3.0))
        inputs = {"t": codes(rng, "quint8", shape)}
        inputs.update({name: codes(rng, "quint8", (depth,) if isinstance(depth, int) else depth)
                       for name, depth in zip(("m", "v", "beta", "gamma"), depths)})
        for name, pair in zip(("t", "m", "v", "beta", "gamma"), ranges):
            inputs.update({f"{name}_min": numpy.array(pair[0], F),
                           f"{name}_max": numpy.array(pair[1], F)})
        return code_case("QuantizedBatchNormWithGlobalNormalization", inputs, out_type="qint32",
                         **{"variance_epsilon": 0.001, "scale_after_normalization": True, **attrs})

    op = "QuantizedBatchNormWithGlobalNormalization"
    for shape, scales in itertools.product(((1, 1, 1, 1), (1, 1, 1, 2), (2, 3, 4, 5),
                                            (1, 10, 20, 3), (0, 2, 2, 3)), (True, False)):
        yield f"{op}/{shape},{scales}", *batch(shape, scale_after_normalization=scales)
    good = ((0.0, 1.0),) * 4
    yield f"{op}/rank", *batch((2, 3))
    yield f"{op}/means", *batch((1, 2, 2, 3), (2, 3, 3, 3))
    yield f"{op}/gammas", *batch((1, 2, 2, 3), (3, 3, 3, 2))
    yield f"{op}/matrix", *batch((1, 2, 2, 3), ((3, 1), 3, 3, 3))
    yield f"{op}/two ends", *batch((1, 2, 2, 3), ranges=(([0.0, 1.0], 1.0), *good))
    yield f"{op}/two ends of a mean", *batch((1, 2, 2, 3),
                                             ranges=((0.0, 1.0), ([0.0, 1.0], 1.0), *good[1:]))
    for shape, attrs in itertools.product(((1, 3, 3, 2), (2, 8, 5, 3), (1, 30, 30, 4),
                                           (0, 2, 2, 3)), ({}, {"output_range_given": True,
                                                   "given_y_min": -1.5, "given_y_max": 2.0},
                                                           {"min_separation": 7.0},
                                                           {"variance_epsilon": 0.5})):
        # TensorFlow makes a range of its own of nothing
        if shape[0] or "output_range_given" in attrs:
            yield f"QuantizedInstanceNorm/{shape}/{attrs}", *code_case(
                "QuantizedInstanceNorm", {"x": codes(rng, "quint8", shape), "x_min": F(-1),
                                          "x_max": F(3)}, {"rtol": 1e-5}, **attrs)
    for low, high, attrs in ((2.0, 1.0, {}), (1.0, 1.0, {}), ([0.0], 1.0, {}),
                             (0.0, 1.0, {"output_range_given": True}),
                             (0.0, 1.0, {"output_range_given": True, "given_y_min": 1.0})):
        yield f"QuantizedInstanceNorm/wrong/{low},{high},{attrs}", *code_case(
            "QuantizedInstanceNorm", {"x": codes(rng, "quint8", (1, 2, 2, 3)),
                                      "x_min": numpy.array(low, F), "x_max": numpy.array(high, F)},
                **attrs)


def resized():
    rng = numpy.random.default_rng(11)
    grids = ({}, {"align_corners": True}, {"half_pixel_centers": True},
             {"align_corners": True, "half_pixel_centers": True})
    for dtype, shape, size, grid in itertools.product(
        ("quint8", "qint32", "float32"), ((1, 4, 5, 1), (2, 3, 4, 3), (1, 7, 6, 9)),
        ((7, 9), (2, 2), (1, 1), (4, 5)), grids):
        images = codes(rng, dtype, shape) if dtype != "float32" else reals(rng, shape)
        for low, high in ((-1.0, 2.0), (0.0, 255.0)):
            inputs = {"images": images, "size": numpy.array(size, "int32"), "min": F(low),
                      "max": F(high)}
            yield f"QuantizedResizeBilinear/{dtype}/{shape},{size},{grid},{low}", *code_case(
                "QuantizedResizeBilinear", inputs, {"rtol": 1e-5} if dtype == "float32" else {},
                plain=("size",), **grid)
    for shape, size, low in (((2, 2, 2), [3, 3], 0.0), ((1, 2, 2, 2), [3], 0.0),
                             ((1, 2, 2, 2), [3, 3], [0.0]), ((1, 2, 2, 2), [0, 3], 0.0),
                             ((1, 0, 2, 2), [3, 3], 0.0), ((1, 2, 2, 2), [-1, 3], 0.0)):
        inputs = {"images": codes(rng, "quint8", shape), "size": numpy.array(size, "int32"),
                  "min": numpy.array(low, F), "max": F(1)}
        yield f"QuantizedResizeBilinear/wrong/{shape},{size},{low}", *code_case(
            "QuantizedResizeBilinear", inputs, plain=("size",))


def by_channel():
    rng = numpy.random.default_rng(12)
    for shape in ((1, 2, 2, 3), (2, 3, 3, 1), (1, 9, 10, 40)):
        full = codes(rng, "qint32", shape)
        high = abs(reals(rng, shape[-1:])) + F(0.1)
        for name, q in {"full": full, "small": full // 100000, "above": abs(full // 2)}.items():
            for clip in (1e9, 1.0):
                yield f"RequantizationRangePerChannel/{shape}/{name}/{clip}", *code_case(
                    "RequantizationRangePerChannel",
                    {"input": q, "input_min": -high, "input_max": high / 2}, clip_value_max=clip)
            for dtype, (low, top) in itertools.product(
                ("quint8", "qint8"), ((-1.0, 1.0), (-2.0, 1.0), (0.0, 3.0), (-3.0, -1.0))):
                ends = {"input_min": -high, "input_max": high, "requested_output_min": F(low),
                        "requested_output_max": F(top)}
                yield f"RequantizePerChannel/{shape}/{name}/{dtype}/{low},{top}", *code_case(
                    "RequantizePerChannel", {"input": q, **ends}, out_type=dtype)
                ends = {"input_min": F(-2), "input_max": F(1),
                        "requested_output_min": numpy.array([low], F),
                        "requested_output_max": F(top)}
                if shape[-1] <= 3:  # TensorFlow reads past its one range
                    ends = {"input_min": F(-2), "input_max": F(1),
                            "requested_output_min": numpy.array([low], F),
                            "requested_output_max": F(top)}
                    yield (f"RequantizePerChannel/{shape}/{name}/{dtype}/{low},{top}/one",
                           *code_case("RequantizePerChannel", {"input": q, **ends}, out_type=dtype))
    q = codes(rng, "qint32", (1, 2, 2, 3))
    for x, low, high in ((q[0], [0] * 3, [1] * 3), (q, [0, 0], [1] * 3), (q, [0], [1]),
                         (q[:0], [0] * 3, [1] * 3), (q, [0] * 3, [1])):
        yield f"RequantizationRangePerChannel/wrong/{x.shape},{low},{high}", *code_case(
            "RequantizationRangePerChannel", {"input": x, "input_min": numpy.array(low, F),
                                              "input_max": numpy.array(high, F)},
                clip_value_max=6.0)
    for x, low, high in ((q[0], [0] * 3, [1] * 3), (q, [0, 0], [1] * 3)):
        ends = {"input_min": numpy.array(low, F), "input_max": numpy.array(high, F),
                "requested_output_min": F(-1), "requested_output_max": F(1)}
        yield f"RequantizePerChannel/wrong/{x.shape},{low},{high}", *code_case(
            "RequantizePerChannel", {"input": x, **ends})


def cases():
    yield from fake()
    yield from simulated()
    yield from converted()
    yield from rangewise()
    yield from arithmetic()
    yield from products()
    yield from pooled()
    yield from pairs()
    yield from moved()
    yield from normalised()
    yield from resized()
    yield from by_channel()
