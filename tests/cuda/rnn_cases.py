"""Cases of run_ops.py: cells and sequences of LSTM and GRU with their gradients. What a GPU says
about operands that do not fit must be the CPU's words."""
import itertools
import os
import re

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy  # noqa: E402
import tensorflow as tf  # noqa: E402

RAW, tf1 = tf.raw_ops, tf.compat.v1
SIZES = ((3, 5, 4), (1, 1, 1), (2, 0, 3), (37, 20, 33))  # batch, inputs, cells
EMPTY = ((0, 3, 4), (2, 3, 0))
STATES = ("i", "cs", "f", "o", "ci", "co", "h")


def weights(cases, dtype, n_inputs, n_cells):
    """w, the three peepholes, b."""
    return [cases.values(dtype, [n_inputs + n_cells, 4 * n_cells], -0.5, 0.5),
            *(cases.values(dtype, [n_cells], -1, 1) for _ in range(3)),
            cases.values(dtype, [4 * n_cells], -1, 1)]


def states(cases, dtype, names, shape):
    """What the forward op would give: gates are in 0 … 1, the others on both sides of 0."""
    return [cases.values(dtype, shape, -0.9 if name in ("cs", "ci", "co", "h") else 0.1, 0.9)
            for name in names]


def lstm_cell_cases(cases):
    before = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
    for dtype, (batch, n_inputs, n_cells), peephole in itertools.product(
            ("half", "float32"), SIZES + EMPTY, (False, True)):
        operands = [cases.values(dtype, [batch, n]) for n in (n_inputs, n_cells, n_cells)]
        operands += weights(cases, dtype, n_inputs, n_cells)
        for clip, bias in ((0.3, 1.0), (-1.0, -2.0)):
            cases.add(f"LSTMBlockCell/{dtype}/{batch},{n_inputs},{n_cells}/{peephole}/{clip}",
                      lambda *inputs, a=(clip, bias, peephole): tuple(RAW.LSTMBlockCell(
                          **dict(zip(before, inputs)), cell_clip=a[0], forget_bias=a[1],
                          use_peephole=a[2])), *operands)
        grads = states(cases, dtype, STATES[:6], [batch, n_cells])
        grads += [cases.values(dtype, [batch, n_cells], -1, 1) for _ in range(2)]
        names = (*before, *STATES[:6], "cs_grad", "h_grad")
        cases.add(f"LSTMBlockCellGrad/{dtype}/{batch},{n_inputs},{n_cells}/{peephole}",
                  lambda *inputs, peephole=peephole, names=names: tuple(RAW.LSTMBlockCellGrad(
                      **dict(zip(names, inputs)), use_peephole=peephole)), *operands, *grads)


def sequence(op, names, **attrs):
    """Makes the op; the last operand is seq_len_max, which is in the host's memory."""
    def make(*inputs):
        return tuple(getattr(RAW, op)(**dict(zip(names, inputs)), **attrs))
    return make


def lstm_sequence_cases(cases):
    n_steps = 7
    before = ("x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco", "b")
    for dtype, (batch, n_inputs, n_cells), peephole, version in itertools.product(
            ("half", "float32"), SIZES + EMPTY, (False, True), ("", "V2")):
        operands = [cases.values(dtype, [n_steps, batch, n_inputs]),
                    *(cases.values(dtype, [batch, n_cells], -1, 1) for _ in range(2)),
                    *weights(cases, dtype, n_inputs, n_cells)]
        grads = states(cases, dtype, STATES, [n_steps, batch, n_cells])
        grads += [cases.values(dtype, [n_steps, batch, n_cells], -1, 1) for _ in range(2)]
        for length in (7, 4, 1, 0):
            name = f"{version}/{dtype}/{batch},{n_inputs},{n_cells}/{peephole}/{length}"
            end = numpy.int64(length)
            cases.add(f"BlockLSTM{name}", sequence(
                f"BlockLSTM{version}", (*before, "seq_len_max"), cell_clip=0.6,
                use_peephole=peephole), *operands, end)
            cases.add(f"BlockLSTMGrad{name}", sequence(
                f"BlockLSTMGrad{version}", (*before, *STATES, "cs_grad", "h_grad", "seq_len_max"),
                use_peephole=peephole), *operands, *grads, end)
    # so many rows that the sums of columns are merged from chunks
    x = cases.values("float32", [60, 70, 3])
    operands = [x, *(cases.values("float32", [70, 5], -1, 1) for _ in range(2)),
                *weights(cases, "float32", 3, 5)]
    grads = states(cases, "float32", STATES, [60, 70, 5])
    grads += [cases.values("float32", [60, 70, 5], -0.1, 0.1) for _ in range(2)]
    cases.add("BlockLSTMGrad/chunks/float32", sequence(
        "BlockLSTMGrad", (*before, *STATES, "cs_grad", "h_grad", "seq_len_max"),
        use_peephole=True), *operands, *grads, numpy.int64(60))


def gru_cases(cases):
    before = ("x", "h_prev", "w_ru", "w_c", "b_ru", "b_c")
    for batch, n_inputs, n_cells in SIZES + EMPTY:
        operands = [cases.values("float32", shape, -1, 1) for shape in (
            [batch, n_inputs], [batch, n_cells], [n_inputs + n_cells, 2 * n_cells],
            [n_inputs + n_cells, n_cells], [2 * n_cells], [n_cells])]
        cases.add(f"GRUBlockCell/float32/{batch},{n_inputs},{n_cells}",
                  lambda *inputs: tuple(RAW.GRUBlockCell(**dict(zip(before, inputs)))), *operands)
        more = [cases.values("float32", [batch, n_cells], low, 0.9) for low in (0.1, 0.1, -1, -1)]
        names = (*before, "r", "u", "c", "d_h")
        cases.add(f"GRUBlockCellGrad/float32/{batch},{n_inputs},{n_cells}",
                  lambda *inputs, names=names: tuple(RAW.GRUBlockCellGrad(
                      **dict(zip(names, inputs)))), *operands, *more)


def rnn_cases(cases):
    lstm_cell_cases(cases)
    lstm_sequence_cases(cases)
    gru_cases(cases)


# ---- operands that do not fit ----

def ones(**shapes):
    return {name: numpy.ones(shape, "float32") for name, shape in shapes.items()}


LSTM = ones(x=(2, 3), cs_prev=(2, 4), h_prev=(2, 4), w=(7, 16), wci=(4,), wcf=(4,), wco=(4,),
            b=(16,))
STEPS = {**LSTM, "x": numpy.ones((5, 2, 3), "float32"), "seq_len_max": numpy.int64(5)}
OF_STEP = {name: numpy.ones((2, 4), "float32") for name in (*STATES[:6], "cs_grad", "h_grad")}
OF_STEPS = {name: numpy.ones((5, 2, 4), "float32") for name in (*STATES, "cs_grad", "h_grad")}
GRU = ones(x=(2, 3), h_prev=(2, 4), w_ru=(7, 8), w_c=(7, 4), b_ru=(8,), b_c=(4,))
OF_GRU = ones(r=(2, 4), u=(2, 4), c=(2, 4), d_h=(2, 4))
WRONG = {
    "LSTMBlockCell": (LSTM, {"x": (3, 3), "cs_prev": (1, 4), "h_prev": (2, 5), "w": (7, 15),
                             "wci": (3,), "b": (15,)}),
    "LSTMBlockCellGrad": ({**LSTM, **OF_STEP}, {"w": (6, 16), "co": (2, 3), "h_grad": (3, 4)}),
    "BlockLSTM": (STEPS, {"x": (5, 3, 3), "h_prev": (2, 3), "w": (7, 12), "wco": (5,)}),
    "BlockLSTMV2": (STEPS, {"cs_prev": (3, 4), "b": (12,)}),
    "BlockLSTMGrad": ({**STEPS, **OF_STEPS}, {"h": (5, 2, 3), "cs_grad": (4, 2, 4)}),
    "BlockLSTMGradV2": ({**STEPS, **OF_STEPS}, {"wcf": (2,), "i": (5, 1, 4)}),
    "GRUBlockCell": (GRU, {"x": (3, 3), "w_ru": (7, 7), "b_c": (3,)}),
    "GRUBlockCellGrad": ({**GRU, **OF_GRU}, {"w_c": (6, 4), "u": (2, 3)}),
}


def wrong_operands():
    """(op, what is wrong, all operands)."""
    for op, (right, wrong) in WRONG.items():
        for name, shape in wrong.items():
            yield op, f"{name}{shape}", {**right, name: numpy.ones(shape, "float32")}
        if "seq_len_max" in right:
            for length in (-1, 6):
                yield op, f"seq_len_max={length}", {**right, "seq_len_max": numpy.int64(length)}


def message(target, device, op, operands):
    """What the op says on a device. The shapes are fed without being declared."""
    with tf1.Graph().as_default() as graph, tf.device(f"/job:worker/task:0/device:{device}:0"):
        places = {name: tf1.placeholder(tf.as_dtype(x.dtype)) for name, x in operands.items()}
        attrs = {} if op.startswith("GRU") else {"use_peephole": True}
        made = getattr(RAW, op)(**places, **attrs)
        config = tf1.ConfigProto(allow_soft_placement=False)
        with tf1.Session(target, graph=graph, config=config) as session:
            try:
                session.run(made[0], {places[name]: x for name, x in operands.items()})
            except tf.errors.InvalidArgumentError as error:
                return re.sub(r"(CPU|GPU):0", "", error.message).split("\n")[0]
    return "no error"


def rnn_failures(target):
    failures = []
    for op, what, operands in wrong_operands():
        cpu, gpu = (message(target, device, op, operands) for device in ("CPU", "GPU"))
        if cpu != gpu or "no error" in cpu:
            failures.append(f"{op}/{what}: '{cpu}' on a CPU, '{gpu}' on a GPU")
    return failures
