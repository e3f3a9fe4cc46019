"""Cases of connectionist temporal classification. Ours computes in double, TensorFlow's in float
here and there: floats agree within its rounding. Left out: labels that are all blanks, for which
TensorFlow writes beyond its memory."""

import numpy
import tensorflow as tf

import oracle

R = tf.raw_ops
LOOSE = {"float32": {"rtol": 1e-3, "atol": 1e-4}, "float64": {"rtol": 2e-6, "atol": 2e-7}}


def once(make):
    def build():
        return [t for output in make() for t in (output if isinstance(output, list) else [output])]

    return build


def sparse_of(labels):
    indices = [(b, i) for b, row in enumerate(labels) for i in range(len(row))]
    values = [label for row in labels for label in row]
    return numpy.array(indices, "int64").reshape(-1, 2), numpy.array(values, "int32")


def loss(inputs, indices, values, lengths, **attrs):
    def make():
        return R.CTCLoss(inputs=oracle.const(inputs), labels_indices=oracle.const(indices),
                         labels_values=oracle.const(values),
                         # fmt: skip
                         sequence_length=oracle.const(numpy.array(lengths, "int32")), **attrs)

    return once(make)


def losses():
    rng = numpy.random.default_rng(1)
    for dtype in ("float32", "float64"):
        for time, batch, classes in ((1, 1, 2), (5, 1, 3), (5, 3, 4), (12, 4, 6), (40, 2, 20)):
            # fmt: skip
            for attrs in ({}, {"preprocess_collapse_repeated": True}, {"ctc_merge_repeated": False},
                          {"preprocess_collapse_repeated": True, "ctc_merge_repeated": False}):
                # beyond, outputs underflow in TensorFlow
                for scale in (1, 5 if dtype == "float32" else 20):
                    inputs = (rng.normal(size=(time, batch, classes)) * scale).astype(dtype)
                    labels = [[int(x) for x in rng.integers(0, max(classes - 1, 1),
                            rng.integers(1, max(time // 2, 1) + 1))] for _ in range(batch)]
                    labels[0] = labels[0] + [classes - 1] * (time > 10)
                    lengths = [int(rng.integers(max(2 * len(row), 1), time + 1)) if 2 * len(row)
                               < time else time for row in labels]
                    name = (
                        f"CTCLoss/{dtype}/{time},{batch},{classes}/"
                        f"{'+'.join(attrs) or 'plain'}/{scale}")
                    yield name, loss(inputs, *sparse_of(labels), lengths, **attrs), LOOSE[dtype]
    inputs = rng.normal(size=(4, 2, 4)).astype("float32")
    for name, labels, lengths, attrs in (
        ("no inputs", [[], []], [0, 4], {}), ("no inputs, labels", [[1], [1]], [0, 4], {}),
        ("no inputs, labels, ignored", [[1], [1]], [0, 4],
         {"ignore_longer_outputs_than_inputs": True}),
        ("too long", [[0, 1, 2], [1]], [2, 4], {}),
        ("too long, ignored", [[0, 1, 2], [1]], [2, 4],
         {"ignore_longer_outputs_than_inputs": True}),
        ("exact", [[0, 1, 2, 0], [1]], [4, 4], {}), ("repeated", [[1, 1, 1], [1]], [4, 4], {}),
        ("repeated fits", [[1, 1], [1]], [3, 4], {}),
        ("repeated, ignored", [[1, 1, 1], [1]], [4, 4],
         {"ignore_longer_outputs_than_inputs": True}),
                                         ("repeated, alone", [[1, 1, 1], [1]], [4, 4],
                                          {"ctc_merge_repeated": False}),
        ("blank at the end", [[1, 3], [1, 3, 3]], [4, 4], {}),
        ("blank within", [[1, 3, 1], [1]], [4, 4], {}),
        ("above blank", [[1, 7], [1, 9]], [4, 4], {}),
        ("negative", [[-1], [1]], [4, 4], {}), ("collapsed to fit", [[1, 1, 1, 2], [1]], [3, 4],
                                                {"preprocess_collapse_repeated": True}),
        ("collapsed to fit, ignored", [[1, 1, 1, 2], [1]], [3, 4],
         {"preprocess_collapse_repeated": True, "ignore_longer_outputs_than_inputs": True}),
        ("collapsed does not fit", [[1, 2, 1, 2], [1]], [3, 4],
         {"preprocess_collapse_repeated": True}), ("none for one", [[], [1]], [4, 4], {}),
        ("length beyond", [[1], [1]], [5, 4], {}), ("length negative", [[1], [1]], [-1, 4], {}),
        ("one length", [[1], [1]], [4], {}), ("length matrix", [[1], [1]], [[4, 4]], {}),
    ):  # fmt: skip
        yield f"CTCLoss/{name}", loss(inputs, *sparse_of(labels), lengths, **attrs), LOOSE[
            "float32"]
    for name, indices, values in (
        ("out of order", [[1, 0], [0, 0]], [1, 1]), ("doubled", [[0, 0], [0, 0]], [1, 1]),
        ("outside", [[2, 0]], [1]), ("far", [[0, 4]], [1]), ("below", [[-1, 0]], [1]),
        ("below in time", [[0, -1]], [1]), ("gap", [[0, 1], [0, 3]], [1, 2]),
        ("more values", [[0, 0]], [1, 2]), ("three columns", [[0, 0, 0]], [1]),
        ("vector", [0, 0], [1]), ("value matrix", [[0, 0]], [[1]]),
    ):  # fmt: skip
        yield f"CTCLoss/indices {name}", loss(inputs, numpy.array(indices, "int64"),
                                              numpy.array(values, "int32"), [4, 4]), LOOSE[
                                                  "float32"]
    for shape, lengths in (((4, 0, 4), []), ((0, 2, 4), [0, 0]), ((4, 2, 0), [4, 4]),
                           ((4, 2), [4, 4]), ((4,), [4])):
        yield f"CTCLoss/inputs {list(shape)}", loss(
            numpy.zeros(shape, "float32"), *sparse_of([]), lengths), LOOSE["float32"]
    impossible = numpy.array([[[0, -numpy.inf, 0]]] * 3, "float32")
    yield "CTCLoss/no path", loss(impossible, *sparse_of([[1]]), [3]), LOOSE["float32"]


def decoders():
    rng = numpy.random.default_rng(2)

    def decode(op, inputs, lengths, **attrs):
        return once(lambda: getattr(R, op)(inputs=oracle.const(inputs),
                                           sequence_length=oracle.const(
                                               numpy.array(lengths, "int32")), **attrs))

    for dtype in ("float32", "float64"):
        for time, batch, classes in ((1, 1, 1), (1, 1, 2), (6, 1, 3), (8, 3, 5), (30, 2, 12)):
            inputs = (rng.normal(size=(time, batch, classes)) * 2).astype(dtype)
            lengths = [int(x) for x in rng.integers(0, time + 1, batch - 1)] + [time]
            for merges in (True, False):
                for blank in (-1, 0, classes - 1, -classes):
                    yield f"Greedy/{dtype}/{time},{batch},{classes}/{merges}/{blank}", decode(
                        "CTCGreedyDecoder", inputs, lengths, merge_repeated=merges,
                        blank_index=blank
                    ), {"rtol": 1e-5}
                for width, top in ((1, 1), (3, 1), (3, 3), (100, 2), (7, 5)):
                    yield f"Beam/{dtype}/{time},{batch},{classes}/{merges}/{width},{top}", decode(
                        "CTCBeamSearchDecoder", inputs, [time] * batch if top > 1 else lengths,
                        beam_width=width, top_paths=top, merge_repeated=merges
                    ), LOOSE[dtype]
    ties = numpy.zeros((3, 1, 3), "float32")
    yield "Greedy/ties", decode("CTCGreedyDecoder", ties, [3])
    yield "Greedy/nan", decode("CTCGreedyDecoder", numpy.full((2, 1, 3), numpy.nan, "float32"), [2])
    inputs = rng.normal(size=(4, 2, 3)).astype("float32")
    long = (rng.normal(size=(300, 1, 30)) * 3).astype("float64")
    yield "Beam/long", decode("CTCBeamSearchDecoder", long, [300], beam_width=50, top_paths=10,
                              merge_repeated=False), LOOSE["float64"]
    for op, attrs in (("CTCGreedyDecoder", {}),
                      ("CTCBeamSearchDecoder", {"beam_width": 3, "top_paths": 1})):
        for name, values, lengths in (
            ("length beyond", inputs, [5, 4]), ("length negative", inputs, [-1, 4]),
            ("one length", inputs, [4]), ("length matrix", inputs, [[4, 4]]),
            ("matrix", inputs[0], [4]),
            ("no batch", inputs[:, :0], []), ("no time", inputs[:0], [0, 0]),
            ("no class", inputs[:, :, :0], [4, 4]), ("one class", inputs[:, :, :1], [4, 4]),
        ):  # fmt: skip
            yield f"{op}/{name}", decode(op, values, lengths, **attrs), {"rtol": 1e-5}
    for blank in (3, -4, 100):
        yield f"Greedy/blank {blank}", decode("CTCGreedyDecoder", inputs, [4, 4], blank_index=blank)
    yield "Beam/more paths than beams", decode("CTCBeamSearchDecoder", inputs, [4, 4], beam_width=2,
                                               top_paths=3)
    yield "Beam/more paths than there are", decode(
        "CTCBeamSearchDecoder", inputs[:1], [1, 1], beam_width=20, top_paths=8)


def cases():
    yield from losses()
    yield from decoders()
