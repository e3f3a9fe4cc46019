"""Cases of the recurrent family: LSTM block cells and sequences, GRU block cells, and their
gradients."""

import itertools

import numpy
import tensorflow as tf

import oracle
import tf_kernels
from cases_conv import case

R = tf.raw_ops
LOOSE = {"float32": {"rtol": 2e-5, "atol": 2e-5}, "float16": {"rtol": 3e-2, "atol": 3e-2}}
SUMS = {"float32": {"rtol": 1e-4, "atol": 1e-4}, "float16": {"rtol": 1e-1, "atol": 2e-1}}
SIZES = ((2, 3, 4), (1, 1, 1), (5, 17, 33), (64, 20, 128))  # batch, inputs, cells


def values(rng, dtype, *shape):
    return (rng.normal(size=shape) * 0.5).astype(dtype)


def weights(rng, dtype, n_inputs, n_cells):
    w = values(rng, dtype, n_inputs + n_cells, 4 * n_cells)
    return {"w": w, **{name: values(rng, dtype, n_cells) for name in ("wci", "wcf", "wco")},
            "b": values(rng, dtype, 4 * n_cells)}


def lstm_cells():
    rng = numpy.random.default_rng(1)
    names = ("i", "cs", "f", "o", "ci", "co")
    for dtype, (batch, n_inputs, n_cells), peephole in itertools.product(
        tf_kernels.cpu_dtypes("LSTMBlockCell"), SIZES, (False, True)):
        inputs = {"x": values(rng, dtype, batch, n_inputs),
                  "cs_prev": values(rng, dtype, batch, n_cells),
                  "h_prev": values(rng, dtype, batch, n_cells)}
        inputs.update(weights(rng, dtype, n_inputs, n_cells))
        label = f"{dtype}/{batch}x{n_inputs}>{n_cells}/{peephole}"
        for clip, bias in ((3.0, 1.0), (-1.0, 0.0), (0.2, 2.5), (0.0, 1.0)):
            attrs = {"cell_clip": clip, "forget_bias": bias, "use_peephole": peephole}
            yield f"LSTMBlockCell/{label}/{clip},{bias}", *case(
                "LSTMBlockCell", inputs, LOOSE[dtype], **attrs)
        state = {name: (rng.random((batch, n_cells))
                        - (0.5 if name in ("cs", "ci", "co") else 0)).astype(dtype)
                 for name in names}
        grads = {"cs_grad": values(rng, dtype, batch, n_cells),
                 "h_grad": values(rng, dtype, batch, n_cells)}
        yield f"LSTMBlockCellGrad/{label}", *case(
            "LSTMBlockCellGrad", {**inputs, **state, **grads}, SUMS[dtype], use_peephole=peephole)


def lstm_sequences():
    rng = numpy.random.default_rng(2)
    names = ("i", "cs", "f", "o", "ci", "co", "h")
    for version, dtype, (batch, n_inputs, n_cells), peephole in itertools.product(
        ("", "V2"), tf_kernels.cpu_dtypes("BlockLSTM"), SIZES, (False, True)):
        n_steps = 6
        x = values(rng, dtype, n_steps, batch, n_inputs)
        before = {"cs_prev": values(rng, dtype, batch, n_cells),
                  "h_prev": values(rng, dtype, batch, n_cells)}
        arrays = {"x": x, **before, **weights(rng, dtype, n_inputs, n_cells)}
        label = f"{version}/{dtype}/{batch}x{n_inputs}>{n_cells}/{peephole}"
        for length in (6, 4, 1, 0):
            inputs = {"seq_len_max": numpy.int64(length), **arrays}

            def build(inputs=inputs, length=length, version=version, peephole=peephole):
                """What TensorFlow leaves unset after seq_len_max is cut off."""
                out = getattr(R, "BlockLSTM" + version)(
                    **{k: oracle.const(v) for k, v in inputs.items()}, use_peephole=peephole,
                    cell_clip=0.7)
                return [out[1], out[6], *[tf.slice(t, [0, 0, 0], [length, -1, -1]) for t in out]]

            options = {"rtol": 1e-1, "atol": 1e-1} if dtype == "float16" and batch > 5 else LOOSE[
                dtype]
            yield f"BlockLSTM{label}/{length}", build, options
            if length == 0:
                continue
            state = {name: (rng.random((n_steps, batch, n_cells))
                            - (0.5 if name in ("cs", "ci", "co", "h") else 0)).astype(dtype)
                     for name in names}
            grads = {"cs_grad": values(rng, dtype, n_steps, batch, n_cells),
                     "h_grad": values(rng, dtype, n_steps, batch, n_cells)}
            options = {"rtol": 2e-1, "atol": 3.0} if dtype == "float16" and batch > 5 else SUMS[
                dtype]

            def build_grad(inputs=inputs, state=state, grads=grads, length=length, version=version,
                           peephole=peephole):
                every = {**inputs, **state, **grads}
                out = list(getattr(R, "BlockLSTMGrad"
                                   + version)(**{k: oracle.const(v) for k, v in every.items()},
                                              use_peephole=peephole))
                return out if peephole else out[:4] + out[7:]

            yield f"BlockLSTMGrad{label}/{length}", build_grad, options


def gru_cells():
    rng = numpy.random.default_rng(3)
    for batch, n_inputs, n_cells in SIZES:
        inputs = {"x": values(rng, "float32", batch, n_inputs),
                  "h_prev": values(rng, "float32", batch, n_cells)}
        inputs["w_ru"], inputs["w_c"] = values(rng, "float32", n_inputs + n_cells,
                                               2 * n_cells), values(
                                                   rng, "float32", n_inputs + n_cells, n_cells)
        inputs["b_ru"], inputs["b_c"] = values(rng, "float32", 2 * n_cells), values(
            rng, "float32", n_cells)
        yield f"GRUBlockCell/{batch}x{n_inputs}>{n_cells}", *case(
            "GRUBlockCell", inputs, LOOSE["float32"])
        more = {name: rng.random((batch, n_cells)).astype("float32") for name in ("r", "u", "c")}
        more["d_h"] = values(rng, "float32", batch, n_cells)
        yield f"GRUBlockCellGrad/{batch}x{n_inputs}>{n_cells}", *case(
            "GRUBlockCellGrad", {**inputs, **more}, LOOSE["float32"])


def wrong():
    rng = numpy.random.default_rng(4)
    good = {"x": values(rng, "float32", 2, 3), "cs_prev": values(rng, "float32", 2, 4),
            "h_prev": values(rng, "float32", 2, 4), **weights(rng, "float32", 3, 4)}
    for name, shape in (
        ("x", (2, 2)), ("x", (3, 3)), ("cs_prev", (3, 4)), ("h_prev", (2, 5)), ("h_prev", (1, 4)),
        ("w", (7, 15)), ("w", (6, 16)), ("b", (15,)),
    ):  # fmt: skip
        yield f"LSTMBlockCell/wrong/{name}{shape}", *case(
            "LSTMBlockCell", {**good, name: numpy.ones(shape, "float32")})
    good = {"x": values(rng, "float32", 2, 3), "h_prev": values(rng, "float32", 2, 4),
            "w_ru": values(rng, "float32", 7, 8), "w_c": values(rng, "float32", 7, 4)}
    good.update(b_ru=values(rng, "float32", 8), b_c=values(rng, "float32", 4))
    for name, shape in (("x", (3, 3)), ("x", (2, 2)), ("h_prev", (2, 5)), ("h_prev", (1, 4)),
                        ("w_ru", (7, 7)), ("w_ru", (6, 8)), ("w_c", (7, 3)), ("b_ru", (7,)),
                        ("b_c", (3,))):
        yield f"GRUBlockCell/wrong/{name}{shape}", *case(
            "GRUBlockCell", {**good, name: numpy.ones(shape, "float32")})


def cases():
    yield from lstm_cells()
    yield from lstm_sequences()
    yield from gru_cells()
    yield from wrong()
