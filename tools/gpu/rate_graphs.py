"""The graphs that measure one thing each: launches, elementwise ops, matrix products, convolutions,
fused programs. graphs.py writes them.

A step's results go into variables. What nothing but a control edge reaches is not computed, so it
would not be measured.
"""
import collections
import math

import tensorflow as tf

tf1 = tf.compat.v1
GPU, CPU = "/job:worker/task:0/device:GPU:0", "/job:worker/task:0/device:CPU:0"
UNFUSED = ["--disable-passes", "fuse"]  # of the master


def variable(name, shape, dtype=tf.float32, stddev=1.0, seed=1):
    """Fresh random data, made where the variable is."""
    made = tf.cast(tf1.random_normal(shape, stddev=stddev, seed=seed), dtype)
    return tf1.get_variable(name, initializer=made, use_resource=True)


def empty(name, like):
    """A variable that has no value until a step assigns one."""
    return tf1.get_variable(name, shape=like.shape, dtype=like.dtype, use_resource=True,
                            initializer=tf1.zeros_initializer())


def keep(*results):
    """The step ends when the results are in variables; nothing is fetched."""
    kept = [empty(f"result{i}", result).assign(result, read_value=False)
            for i, result in enumerate(results)]
    finish(*kept)


def finish(*updates):
    tf1.group(*updates, name="step")
    tf1.group(tf1.global_variables_initializer(), name="init")


# ---- launches, elementwise ops, matrix products ----

def chain(device, n):
    """n small nodes, one after another: what a launched node costs."""
    def build():
        with tf1.device(device):
            y = variable("x", [16])
            for _ in range(n):
                y = tf.tanh(y)
            keep(y)
    return build


def elementwise(n_elements, repeats):
    """The variable is negated again and again. The updates between keep passes from simplifying
    that."""
    def build():
        with tf1.device(GPU):
            x = variable("x", [n_elements])
            update = tf1.no_op()
            for _ in range(repeats):
                with tf1.control_dependencies([update]):
                    update = x.assign(tf.negative(x.read_value()), read_value=False)
            finish(update)
    return build


def products(n, dtype, repeats):
    def build():
        with tf1.device(GPU):
            y = variable("x", [n, n], dtype)
            w = variable("w", [n, n], dtype, stddev=n**-0.5, seed=2)
            for _ in range(repeats):
                y = tf.matmul(y, w)
            keep(y)
    return build


def scalar_fetch(device):
    """One kernel whose scalar the client fetches."""
    def build():
        with tf1.device(device):
            x = variable("x", [])
            tf.negative(x, name="loss")
        finish()
    return build


def nothing():
    finish()


# ---- convolutions ----

# A convolution of the networks: its batch, the image's side, channels, filters of this many
# channels and this side. Padding is SAME.
Conv = collections.namedtuple("Conv", "batch image channels n side stride")
# A batch is so large that one convolution has at least 29 GFLOP: 40 us at 700 TFLOP/s, several
# times what the host needs to enqueue it.
CONVS = {  # and what is measured of each
    "first": (Conv(128, 224, 3, 64, 7, 2), ("forward", "filter")),
    "wide": (Conv(64, 56, 256, 256, 3, 1), ("forward",)),
    "middle": (Conv(128, 28, 256, 256, 3, 1), ("forward", "data", "filter")),
    "deep": (Conv(64, 14, 512, 512, 3, 1), ("forward", "data", "filter")),
    "point": (Conv(1024, 28, 256, 128, 1, 1), ("forward", "data", "filter")),
    "five": (Conv(1024, 14, 32, 96, 5, 1), ("forward",)),
}
CONV_VALUES = 8  # filters or gradients, and results, of one step
# What a step computes at least: 5 ms at 700 TFLOP/s, beside which the client's share of some
# 0.15 ms does not count.
CONV_FLOPS = 3.5e12
SMALL_CONVS = {
    "first": (Conv(2, 16, 3, 8, 7, 2), ("forward", "filter")),
    "middle": (Conv(2, 8, 8, 8, 3, 1), ("forward", "data", "filter")),
}


def convolutions(conv, kind, dtype, n_values, rounds):
    """Equal convolutions of different values: equal ones would be computed once. Each round
    computes the same again, and waits for the round before it, so it replaces what that has
    kept."""
    batch, image, channels, n, side, stride = conv
    images, filters = [batch, image, image, channels], [side, side, channels, n]
    out_side = -(-image // stride)
    gradients = [batch, out_side, out_side, n]
    deviation = (side * side * channels)**-0.5

    def convolved(x, value):
        if kind == "filter":
            return tf1.nn.conv2d_backprop_filter(x, filters, value, [1, stride, stride, 1], "SAME")
        if kind == "data":
            return tf1.nn.conv2d_backprop_input(images, value, x, [1, stride, stride, 1], "SAME")
        return tf.nn.conv2d(x, value, stride, "SAME")

    def build():
        with tf1.device(GPU):
            if kind == "filter":
                values = [variable(f"dy{i}", gradients, dtype, seed=i + 2)
                          for i in range(n_values)]
            else:
                values = [variable(f"w{i}", filters, dtype, deviation, i + 2)
                          for i in range(n_values)]
            x = variable("x", gradients if kind == "data" else images, dtype)
            kept, updates = None, []
            for _ in range(rounds):
                with tf1.control_dependencies(updates):
                    read = x.read_value()
                    results = [convolved(read, value.read_value()) for value in values]
                    kept = kept or [empty(f"result{i}", result)
                                    for i, result in enumerate(results)]
                    updates = [variable.assign(result, read_value=False)
                               for variable, result in zip(kept, results)]
            finish(*updates)
    return build


def conv_programs(is_small):
    n_values = 2 if is_small else CONV_VALUES
    for name, (conv, kinds) in (SMALL_CONVS if is_small else CONVS).items():
        flops = 2 * conv.batch * (-(-conv.image // conv.stride))**2 * (
            conv.side**2 * conv.channels * conv.n)
        rounds = 2 if is_small else math.ceil(CONV_FLOPS / (flops * n_values))
        for kind in kinds:
            dtypes = [tf.float32, tf.float16] + ([tf.bfloat16] if name == "middle" else [])
            for dtype in dtypes:
                yield f"conv_{name}_{kind}_{dtype.name}", convolutions(
                    conv, kind, dtype, n_values, rounds), {
                        "part": "conv", "flops": flops * n_values * rounds,
                        "conv": conv._asdict(), "kind": kind, "dtype": dtype.name,
                        "values": n_values, "rounds": rounds, "repeats": n_values * rounds}


# ---- what fusion changes ----

def chain_of_ten(x):
    for _ in range(5):
        x = tf.tanh(x * 1.25 + 0.5)
    return x - tf.abs(x)


def gelu(x):
    return 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer_norm(x):
    mean = tf.reduce_mean(x, 1, keepdims=True)
    centred = x - mean
    variance = tf.reduce_mean(centred * centred, 1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-6) * 1.5 + 0.25


def with_gradient(function):
    """The value and its gradient, as a training step needs both."""
    def both(x):
        y = function(x)
        return y, tf.gradients(y, x, tf.cos(x))[0]
    return both


def fused(function, rows, columns):
    def build():
        with tf1.device(GPU):
            found = function(tf.identity(variable("x", [rows, columns])))
            keep(*(found if isinstance(found, tuple) else (found,)))
    return build


def adam_by_hand(rows, columns):
    """One update of all elements, as a graph of elementwise ops and three assignments."""
    def build():
        with tf1.device(GPU):
            w, gradient = (variable(name, [rows, columns], seed=i)
                           for i, name in enumerate(("w", "gradient")))
            m, v = empty("m", w), empty("v", w)
            new_m = m.read_value() * 0.9 + gradient.read_value() * 0.1
            new_v = v.read_value() * 0.999 + tf.square(gradient.read_value()) * 0.001
            new_w = w.read_value() - 0.001 * new_m / (tf.sqrt(new_v) + 1e-8)
            finish(*(variable.assign(value, read_value=False)
                     for variable, value in ((m, new_m), (v, new_v), (w, new_w))))
    return build


def fused_programs(is_small):
    rows, columns = (16, 64) if is_small else (16384, 1024)  # 64 MiB of float
    builds = {"chain of 10": fused(chain_of_ten, rows, columns),
              "layer norm": fused(layer_norm, rows, columns),
              "layer norm and gradient": fused(with_gradient(layer_norm), rows, columns),
              "GELU": fused(gelu, rows, columns),
              "GELU and gradient": fused(with_gradient(gelu), rows, columns),
              "Adam by hand": adam_by_hand(rows, columns)}
    for what, build in builds.items():
        yield "fused_" + what.replace(" ", "_"), build, {
            "part": "fused", "fused": what, "bytes": 4 * rows * columns,
            "variants": ["unfused"]}


# ---- all of them ----

def programs(is_small, sizes):
    n, repeats, links, sides = sizes
    yield "nothing", nothing, {}
    for name, device in (("chain_gpu", GPU), ("chain_cpu", CPU)):
        yield name, chain(device, links), {"nodes": links, "master": UNFUSED,
                                           "variants": ["graphs_off"] if device == GPU else []}
    yield "scalar_gpu", scalar_fetch(GPU), {"fetch": True}
    yield "scalar_cpu", scalar_fetch(CPU), {"fetch": True}
    yield "elementwise", elementwise(n, repeats), {"bytes": 8 * n * repeats, "elements": n,
                                                   "repeats": repeats}
    for dtype in (tf.float32, tf.float16, tf.bfloat16, tf.float64):
        for side in sides:
            count = 4 if is_small else max(4, (8192 // side)**2 * (2 if dtype.size == 8 else 8))
            yield f"products_{dtype.name}_{side}", products(side, dtype, count), {
                "part": "products", "flops": 2 * side**3 * count, "side": side,
                "dtype": dtype.name, "repeats": count}
    yield from conv_programs(is_small)
    yield from fused_programs(is_small)
