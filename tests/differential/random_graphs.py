"""Random graphs: elementwise, reducing, reshaping and joining ops over several dtypes, variables,
tasks, control edges and conditionals, with random feeds (inner endpoints too) and fetches. A case
is a seed: the same graph in every run.

    cases(first, n) yields (name, build) as programs.py has it. waiting_cases are graphs in which
    most nodes wait for others, often without taking their values; elementwise_cases are mostly
    elementwise ops over shapes that broadcast, of up to some thousand elements; product_cases are
    matrix products and convolutions among such ops, up to some 40 KB each; redundant_cases are
    full of what a rewriter leaves out, and of what looks like it; large_cases multiply many
    variables that cross between tasks.
"""

import numpy as np
from programs import PLACES, Run, tf, tf1

DTYPES = ("float32", "float64", "int32", "int64", "bool", "string")
N_RUNS = 5


def _value(rng, dtype, shape):
    if dtype == "string":
        return rng.choice(np.array([b"", b"a", b"bc", b"longer than a few letters"], object),
                          size=shape) if shape else b"one"
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("int"):
        return rng.integers(-5, 6, shape).astype(dtype)
    return np.round(rng.normal(size=shape), 2).astype(dtype)


class _Builder:
    SHAPES = ((), (1,), (4,), (2, 3), (3, 1), (2, 2, 2), (0, 3))
    MAX_ELEMENTS = 5000

    def __init__(self, seed, waiting=0.15):
        self.rng, self.waiting = np.random.default_rng(seed), waiting
        self.tensors, self.placeholders, self.variables, self.updates = [], [], [], []

    def pick(self, dtypes=DTYPES, shape=None, rank=None):
        """A random tensor of one of these dtypes; a new constant when there is none."""
        wanted = [
            t for t in self.tensors
            if t.dtype.base_dtype.name in dtypes
            and (shape is None or t.shape.as_list() == list(shape))
            and (rank is None or t.shape.rank >= rank)
        ]  # fmt: skip
        if wanted and self.rng.random() < 0.9:
            return wanted[int(self.rng.integers(len(wanted)))]
        dtype = str(self.rng.choice(dtypes))
        if shape is None:
            shapes = [s for s in self.SHAPES if rank is None or len(s) >= rank]
            shape = shapes[int(self.rng.integers(len(shapes)))]
        return tf.constant(_value(self.rng, dtype, tuple(shape)), dtype)

    def like(self, t):
        """Another tensor of the same dtype and shape."""
        return self.pick((t.dtype.base_dtype.name,), t.shape.as_list())

    def node(self):
        numbers, floats = DTYPES[:4], DTYPES[:2]
        rng = self.rng
        kind = int(rng.integers(0, 16))
        if kind == 0:
            t = self.pick(floats)
            return rng.choice([tf.tanh, tf.sigmoid, tf.cos, tf.sin, tf.nn.relu, tf.nn.softplus,
                               tf.floor])(t)
        if kind == 1:
            t = self.pick(numbers)
            return rng.choice([tf.abs, tf.negative, tf.sign, tf.square, tf.zeros_like, tf.ones_like,
                               tf.identity, tf.stop_gradient])(t)
        if kind in (2, 3):
            t = self.pick(numbers)
            return rng.choice([tf.add, tf.subtract, tf.multiply, tf.maximum, tf.minimum,
                               tf.math.squared_difference])(t, self.like(t))
        if kind == 4:
            t = self.pick(numbers)
            return tf.clip_by_value(tf.add(t, self.pick((t.dtype.base_dtype.name,), ())),
                                    tf.cast(-100, t.dtype), tf.cast(100, t.dtype))
        if kind == 5:
            t = self.pick(numbers, rank=1)
            axis = int(rng.integers(t.shape.rank))
            return rng.choice([tf.reduce_sum, tf.reduce_max, tf.reduce_min])(
                t if t.shape[axis] else tf.ones_like(t), axis, keepdims=bool(rng.integers(2)))
        if kind == 6:
            return tf.reshape(self.pick(), [-1])
        if kind == 7:
            t = self.pick(rank=1)
            return tf.transpose(t, rng.permutation(t.shape.rank))
        if kind == 8:
            t = self.pick(rank=1)
            return tf.concat([t, self.like(t)], int(rng.integers(t.shape.rank)))
        if kind == 9:
            t = self.pick()
            return tf.stack([t, self.like(t), t], int(rng.integers(t.shape.rank + 1)))
        if kind == 10:
            t = self.pick(rank=1)
            n = t.shape[0]
            return t[int(rng.integers(0, n + 1)) :] if rng.integers(2) or not n else t[
                int(rng.integers(n))]
        if kind == 11:
            t = self.pick(numbers + ("bool",))
            return tf.cast(t if t.dtype.base_dtype != tf.float32
                           else tf.clip_by_value(t, -1e3, 1e3), str(rng.choice(numbers)))
        if kind == 12:
            t = self.pick(numbers)
            return rng.choice([tf.less, tf.greater_equal, tf.equal])(t, self.like(t))
        if kind == 13:
            t = self.pick(("bool",))
            return tf.logical_not(t) if rng.integers(2) else tf.logical_and(t, self.like(t))
        if kind == 14:
            t = self.pick()
            return tf.where(self.pick(("bool",), t.shape.as_list()), t, self.like(t))
        t = self.pick()
        return tf.cond(self.pick(("bool",), ()), lambda: tf.identity(t), lambda: tf.reverse(t, [0])
                       if t.shape.rank else tf.identity(self.like(t)))

    def start(self):
        for i in range(int(self.rng.integers(2, 5))):
            dtype = str(self.rng.choice(DTYPES))
            shape = self.SHAPES[int(self.rng.integers(len(self.SHAPES)))]
            x = tf1.placeholder(dtype, shape)
            self.placeholders.append(x)
            self.tensors.append(x)
        for i in range(int(self.rng.integers(0, 4))):
            dtype = str(self.rng.choice(DTYPES[:4]))
            shape = self.SHAPES[int(self.rng.integers(len(self.SHAPES)))]
            with tf.device(self.task()):
                v = tf1.get_variable(f"v{i}",
                                     initializer=tf.constant(_value(self.rng, dtype, shape), dtype),
                                     use_resource=bool(self.rng.integers(2)))
            self.variables.append(v)
            self.tensors.append(v.read_value() if self.rng.integers(2) else tf.identity(v))
            self.updates.append(tf1.assign_add(v, tf.ones_like(v.initial_value)))

    def task(self):
        return str(self.rng.choice([*PLACES, "/job:worker", ""]))

    def grow(self, n_nodes):
        for _ in range(n_nodes):
            before = [self.pick().op] if self.rng.random() < self.waiting else []
            with tf.device(self.task()), tf.control_dependencies(before):
                made = self.node()
            n_elements = made.shape.num_elements()
            if n_elements is not None and n_elements < self.MAX_ELEMENTS:
                self.tensors.append(made)

    def run(self):
        rng = self.rng
        fetches = [self.tensors[int(i)]
                   for i in rng.integers(0, len(self.tensors), int(rng.integers(1, 6)))]
        feeds = {x: _value(rng, x.dtype.name, tuple(x.shape.as_list())) for x in self.placeholders}
        # noqa: SLF001
        inner = [t for t in self.tensors if t not in feeds and all(t is not f for f in fetches)
                 and not t.dtype._is_ref_dtype]
        for t in (inner[int(i)]
                  for i in rng.integers(0, len(inner), int(rng.integers(0, 3)))) if inner else ():
            feeds[t] = _value(rng, t.dtype.name, tuple(t.shape.as_list()))
        return Run([f for f in fetches if all(f is not x for x in feeds)]
                   + [t.op for t in fetches[:1]], {t: v for t, v in feeds.items()})


class _ElementwiseBuilder(_Builder):
    """What a fused program takes, and now and then what ends one."""

    SHAPES = ((), (5,), (40, 1), (40, 5), (3, 40, 5), (1, 40, 1), (3, 1, 1), (0, 5))
    UNARY = (tf.tanh, tf.sigmoid, tf.exp, tf.nn.relu, tf.nn.elu, tf.nn.softplus, tf.negative,
             tf.abs, tf.square, tf.sign, tf.floor, tf.math.erf, tf.nn.leaky_relu)  # fmt: skip
    BINARY = (tf.add, tf.subtract, tf.multiply, tf.maximum, tf.minimum, tf.math.squared_difference,
              tf.math.divide_no_nan)

    def node(self):
        rng, kind = self.rng, int(self.rng.integers(0, 20))
        if kind < 6:
            t = self.pick(("float32", "float64"))
            return rng.choice(self.UNARY)(tf.clip_by_value(t, -20, 20) if kind == 0 else t)
        if kind < 14:
            t = self.pick(DTYPES[:4])
            other = self.pick((t.dtype.base_dtype.name,))
            ops = self.BINARY[: len(self.BINARY) - (not t.dtype.is_floating)]
            return ops[int(rng.integers(len(ops)))](t, other)
        if kind == 14:
            t = self.pick(DTYPES[:4])
            return rng.choice([tf.less, tf.greater_equal])(t, self.pick((t.dtype.base_dtype.name,)))
        if kind == 15:
            t = self.pick(DTYPES[:4])
            return tf1.where_v2(self.pick(("bool",)), t, self.like(t))
        if kind == 16:
            t = self.pick(DTYPES[:4] + ("bool",))
            return tf.cast(t if not t.dtype.is_floating else tf.clip_by_value(t, -1e3, 1e3),
                           str(rng.choice(DTYPES[:4])))
        if kind == 17:
            t = self.pick(DTYPES[:4], rank=1)
            return tf.reduce_max(t, int(rng.integers(t.shape.rank)), keepdims=True)
        return super().node()

    def grow(self, n_nodes):
        """Nodes whose shapes do not broadcast are tried again: nothing is left of them."""
        for _ in range(n_nodes):
            for _ in range(20):
                try:
                    super().grow(1)
                    break
                except ValueError:
                    continue


class _ProductBuilder(_ElementwiseBuilder):
    """Products and what may be computed behind them, and now and then a second taker."""

    SHAPES = ((), (16,), (160, 64), (64, 64), (2, 64, 64), (2, 18, 18, 16))
    MAX_ELEMENTS = 20000

    def node(self):
        rng, kind = self.rng, int(self.rng.integers(0, 10))
        if kind > 3:
            return super().node()
        dtype = ("float32", "float64")[int(rng.integers(8) == 0)]
        if kind == 0:
            images = self.pick((dtype,), (2, 18, 18, 16))
            window = tf.constant(_value(rng, dtype, (3, 3, 16, 16)) / 9, dtype)
            t = tf.nn.conv2d(tf.clip_by_value(images, -9, 9), window, int(rng.integers(1, 3)),
                             str(rng.choice(["SAME", "VALID"])))
        else:
            left = self.pick((dtype,), self.SHAPES[int(rng.integers(2, 5))])
            right = tf.constant(_value(rng, dtype, (64, 64)) / 8, dtype)
            t = tf.matmul(tf.clip_by_value(left, -9, 9), right, transpose_b=bool(rng.integers(2)))
        self.tensors += [t] if rng.random() < 0.3 else []
        if rng.random() < 0.6:
            t = tf.nn.bias_add(t, tf.constant(_value(rng, dtype, (t.shape[-1],)), dtype))
        if rng.random() < 0.3:
            t = t + self.like(t)
        return rng.choice(self.UNARY[3:5] + self.UNARY[6:8])(t)


class _GatherBuilder(_ElementwiseBuilder):
    """Rows that are picked and reduced, now and then along another axis or with a second taker."""

    SHAPES = ((), (40,), (7, 40), (3, 20), (5, 2, 40))
    MAX_ELEMENTS = 20000
    REDUCTIONS = (tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod)

    def node(self):
        rng = self.rng
        if rng.integers(3):
            return super().node()
        rows = self.pick(DTYPES[:4], self.SHAPES[int(rng.integers(2, 5))])
        shape = tuple(int(n) for n in rng.integers(1, 9, int(rng.integers(1, 4))))
        indices = tf.constant(rng.integers(0, min(int(n) for n in rows.shape[:2]), shape),
                              str(rng.choice(["int32", "int64"])))
        if rng.integers(3) == 0:
            indices = indices + tf.cast(self.pick(("int32",), ()), indices.dtype) * 0
        picked = tf.gather(rows, indices, axis=int(rng.integers(8) == 0))
        self.tensors += [picked] if rng.random() < 0.2 else []
        first = int(rng.integers(len(shape)))
        axes = [*range(first, len(shape))] if rng.integers(4) else [first]
        return rng.choice(self.REDUCTIONS)(picked, axes, keepdims=bool(rng.integers(2)))


class _ReductionBuilder(_ElementwiseBuilder):
    """Reductions, mostly over the last dimensions, and what is computed with their results."""

    SHAPES = ((), (70,), (40, 1), (40, 70), (3, 40, 70), (3, 1, 70), (5, 2100), (2, 9000), (0, 70))
    MAX_ELEMENTS = 20000
    REDUCTIONS = (tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod)

    def node(self):
        rng, kind = self.rng, int(self.rng.integers(0, 8))
        if kind > 3:
            return super().node()
        if kind == 3:
            t = self.pick(("bool",), rank=1)
            return rng.choice([tf.reduce_all, tf.reduce_any])(t, -1, keepdims=True)
        t = self.pick(("float32", "float64", "float32", "int32"), rank=1)
        if kind == 0 and t.dtype.is_floating:
            return self.normalised(tf.clip_by_value(t, -9, 9))
        n_last = int(rng.integers(1, t.shape.rank + 1))
        axes = [*range(-n_last, 0)] if rng.integers(6) else [0]
        axes = [axis % t.shape.rank for axis in axes] if rng.integers(2) else axes
        made = rng.choice(self.REDUCTIONS)(t, axes, keepdims=bool(rng.integers(4)))
        self.tensors += [made] if rng.random() < 0.3 else []
        return made if kind == 1 else rng.choice(self.BINARY[:5])(t, made)

    def normalised(self, t):
        """What people write by hand: softmax, layer norm, a loss."""
        kind = int(self.rng.integers(3))
        if kind == 0:
            powers = tf.exp(t - tf.reduce_max(t, -1, keepdims=True))
            return powers / tf.reduce_sum(powers, -1, keepdims=True)
        if kind == 1:
            centred = t - tf.reduce_mean(t, -1, keepdims=True)
            variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
            return centred * tf.math.rsqrt(variance + 1e-3)
        return tf.reduce_mean(tf.reduce_sum(tf.square(t - self.like(t)), -1)) * 0.5


class _OperandBuilder(_Builder):
    """Convolutions of padded images and products of transposed matrices, now and then with a second
    taker, and their gradients. Nothing makes a large difference of a small one."""

    SHAPES = ((2, 9, 8, 3), (5, 6), (6, 5), (2, 5, 6), (3, 2, 6, 5), (2, 20, 18, 16))
    DTYPES = ("float32", "float32", "float64", "int32", "complex64")
    MAX_ELEMENTS = 20000

    def start(self):
        for shape in self.SHAPES:
            x = tf1.placeholder(str(self.rng.choice(self.DTYPES)), shape)
            self.placeholders.append(x)
            self.tensors.append(x)

    def settle(self, t):
        """Keeps numbers small."""
        if t.dtype.is_floating:
            return tf.tanh(t)
        return t * tf.constant(0.1, t.dtype) if t.dtype.is_complex else t % 7

    def padded(self):
        rng = self.rng
        dtype = str(rng.choice(self.DTYPES[:4]))
        x = self.pick((dtype,), self.SHAPES[int(rng.choice([0, 0, 5]))])
        sides = rng.integers(0, 3, (4, 2))
        sides[[0, 3]] = 0 if rng.integers(6) else 1
        window = _value(rng, dtype, (3, int(rng.integers(2, 4)), int(x.shape[3] + sides[3].sum()),
                                     16))
        window = tf.constant(window / 9 if dtype.startswith("float") else window % 3, dtype)
        p = tf.pad(x, tf.constant(sides, str(rng.choice(["int32", "int64"]))),
                   constant_values=int(rng.integers(8) == 0))
        y = tf.nn.conv2d(p, window, [1, int(rng.integers(1, 3)), int(rng.integers(1, 3)), 1],
                         str(rng.choice(["VALID", "VALID", "VALID", "SAME"])))
        self.tensors += [p] if rng.random() < 0.2 else []
        if x.dtype.is_floating and rng.integers(2):
            made = tf.gradients(y, [x, window, p][: int(rng.choice([1, 2, 2, 2, 3]))], tf.cos(y))
            self.tensors += [self.settle(t) for t in made]
        return self.settle(y)

    def transposed(self, t):
        rank = t.shape.rank
        order = [*range(rank - 2), rank - 1, rank - 2] if self.rng.integers(6) else [*range(rank)]
        return tf.transpose(t, order, conjugate=bool(self.rng.integers(2)))

    def node(self):
        rng = self.rng
        if rng.integers(3) == 0:
            return self.padded()
        dtype, kind = str(rng.choice(self.DTYPES)), int(rng.integers(1, 4))
        shape = self.SHAPES[int(rng.choice([1, 2] if kind < 3 else [3, 4]))]
        left = self.pick((dtype,), shape)
        right = self.like(left)
        if rng.integers(2):
            t = self.transposed(left)
            self.tensors += [t] if rng.random() < 0.2 else []
            made = (t, right) if t.shape[-1] == right.shape[-2] else (t, self.transposed(right))
        else:
            made = (left, self.transposed(right))
        flips = {"transpose_b": made[0].shape[-1] != made[1].shape[-2]}
        if rng.integers(4) == 0 and made[0].shape[-1] == made[1].shape[-2]:
            made, flips = (tf.linalg.matrix_transpose(made[0]), made[1]), {"transpose_a": True}
        return self.settle(tf.matmul(*made, **flips))


class _RedundantBuilder(_Builder):
    """What changes nothing, and pairs that cancel each other, now and then almost."""

    SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-310)

    def number(self, t):
        """A constant of t's type that is often neutral, and often makes t larger."""
        shape = (1,) * int(self.rng.choice([0, 0, 0, 1, 2, 4]))
        value = np.full(shape, self.rng.choice([0, 1, 1, 2]), t.dtype.base_dtype.as_numpy_dtype)
        return tf.constant(value)

    def pair(self, t):
        rng, rank = self.rng, t.shape.rank
        kind, name = int(rng.integers(0, 8)), t.dtype.base_dtype.name
        if kind == 0 and name not in ("bool", "string"):
            return tf.negative(tf.negative(t))
        if kind == 1 and name == "bool":
            return tf.logical_not(tf.logical_not(t))
        if kind == 2 and name.startswith("int"):
            wide = str(rng.choice(("int64", "float64", "float32", "int32", "int8")))
            return tf.cast(tf.cast(t, wide), str(rng.choice((name, "float32", "int64"))))
        if kind == 3 and name in ("float32", "float64", "int32"):
            one = rng.choice([tf.abs, tf.sign, tf.round])
            return one(one(t))
        if kind == 4 and rank:
            perm = rng.permutation(rank)
            back = np.argsort(perm) if rng.integers(3) else rng.permutation(rank)
            return tf.transpose(tf.transpose(t, perm), back)
        if kind == 5 and rank:
            axis = [int(rng.integers(rank))]
            return tf.reverse(tf.reverse(t, axis), axis if rng.integers(3) else [0])
        if kind == 6:
            axis = int(rng.integers(rank + 1))
            return tf.squeeze(tf.expand_dims(t, axis), [axis])
        return tf.reshape(tf.reshape(t, [-1]), tf.shape(t) if rng.integers(2)
                          else np.array(t.shape.as_list(), np.int32))

    def whole(self, t):
        rng, rank = self.rng, t.shape.rank
        kind = int(rng.integers(0, 9))
        if kind == 0:
            return tf.tile(t, np.ones(rank, np.int32))
        if kind == 1 and t.dtype.base_dtype != tf.string:
            return tf.pad(t, np.zeros((rank, 2), np.int32))
        if kind == 2:
            return tf.slice(t, np.zeros(rank, np.int32), np.full(rank, -1, np.int32))
        if kind == 3 and rank:
            return t[:] if rng.integers(2) else t[..., :]
        if kind == 4 and rank:
            return tf.split(t, 1, int(rng.integers(rank)))[0]
        if kind == 5 and t.dtype.base_dtype.name in ("int32", "float32"):
            return tf.reduce_sum(t, np.zeros(0, np.int32))
        if kind == 6:
            return tf1.where(tf.fill(tf.shape(t), self.pick(("bool",), ())), t, t)
        if kind == 7:
            return tf.broadcast_to(t, tf.shape(t))
        return tf.raw_ops.IdentityN(input=[t])[0] if rng.integers(2) else tf.identity(t)

    def shape_of(self, t):
        return self.rng.choice([tf.shape, tf.size, tf.rank])(t)

    def node(self):
        rng, kind = self.rng, int(self.rng.integers(0, 16))
        if kind < 5:
            return self.pair(self.pick())
        if kind < 8:
            return self.whole(self.pick())
        if kind < 11:
            t = self.pick(DTYPES[:4])
            ops = [tf.add, tf.subtract, tf.multiply] + [tf.math.divide] * t.dtype.is_floating
            op, number = ops[int(rng.integers(len(ops)))], self.number(t)
            return op(t, number) if rng.integers(3) else op(number, t)
        if kind == 11:
            t = self.pick(("int32", "int64"))
            op = rng.choice([tf.add, tf.multiply, tf.bitwise.bitwise_or])
            return op(tf.cast(3, t.dtype), op(t, tf.cast(5, t.dtype)))
        if kind == 12:
            return self.shape_of(self.pick())
        if kind == 13:
            t = self.pick(DTYPES[:2], rank=1)
            op = rng.choice([tf.tanh, tf.exp, tf.negative, tf.sign])
            return tf.concat([op(t), op(self.like(t))], 0)
        if kind == 14:
            t = self.pick(DTYPES[:4])
            return tf.add(t, tf.fill(tf.shape(t), self.pick((t.dtype.base_dtype.name,), ())))
        return super().node()

    def run(self):
        made = super().run()
        for x, value in made.feeds.items():
            if x.dtype.is_floating and self.rng.integers(2):
                where = self.rng.integers(0, 2, value.shape).astype(bool)
                special = self.rng.choice(self.SPECIAL, value.shape).astype(value.dtype)
                made.feeds[x] = np.where(where, special, value).astype(value.dtype)
        return made


class _LargeBuilder(_Builder):
    """Receives that may be late: values of 100 KB whose consumers take a while. They are integers,
    because sums of floats depend on the number of threads."""

    SIDE, N_LARGE = 160, 30
    SHAPES = ((), (SIDE, SIDE))
    MAX_ELEMENTS = 2 * SIDE * SIDE

    def start(self):
        super().start()
        for i in range(self.N_LARGE):
            value = tf.constant(_value(self.rng, "int32", (self.SIDE, self.SIDE)))
            with tf.device(self.task()):
                v = tf1.get_variable(f"large{i}", initializer=value,
                                     use_resource=bool(self.rng.integers(2)))
            self.variables.append(v)
            self.tensors.append(v.read_value())
            self.updates.append(tf1.assign_add(v, tf.ones_like(value)))

    def node(self):
        if self.rng.integers(3):
            left, right = (self.pick(("int32",), (self.SIDE, self.SIDE)) for _ in range(2))
            return tf.bitwise.bitwise_and(tf.matmul(left, right), 7)
        return super().node()

    def run(self):
        """Fetches what comes of many values as well."""
        made = super().run()
        large = [t for t in self.tensors if t.shape.as_list() == [self.SIDE, self.SIDE]
                 and t.dtype == tf.int32]
        return Run(made.fetches + [tf.add_n(large[-20:])], made.feeds)


def _build(seed, n_nodes, kind=_Builder, **options):
    def build():
        builder = kind(seed, **options)
        builder.start()
        builder.grow(n_nodes)
        runs = [Run(tf1.global_variables_initializer())]
        for _ in range(N_RUNS):
            runs.append(builder.run())
            if builder.updates:
                runs += [Run(builder.updates[int(builder.rng.integers(len(builder.updates)))].op),
                         Run(builder.variables)]
        return runs

    return build


def cases(first, n):
    for seed in range(first, first + n):
        yield f"random/{seed}", _build(seed, 10 + seed % 5 * 15), {"rtol": 1e-4}


def waiting_cases(first, n):
    for seed in range(first, first + n):
        yield (f"waiting/{seed}", _build(seed, 10 + seed % 5 * 15, waiting=0.7), {"rtol": 1e-4})


def elementwise_cases(first, n):
    for seed in range(first, first + n):
        yield (f"elementwise/{seed}", _build(seed, 15 + seed % 5 * 20, _ElementwiseBuilder),
               {"rtol": 1e-4})


def product_cases(first, n):
    for seed in range(first, first + n):
        yield (f"products/{seed}", _build(seed, 10 + seed % 5 * 10, _ProductBuilder),
               {"rtol": 1e-4})


def gather_cases(first, n):
    for seed in range(first, first + n):
        yield (f"gathers/{seed}", _build(seed, 10 + seed % 5 * 10, _GatherBuilder),
               {"rtol": 1e-4})


def reduction_cases(first, n):
    for seed in range(first, first + n):
        yield (f"reductions/{seed}", _build(seed, 10 + seed % 5 * 10, _ReductionBuilder),
               {"rtol": 1e-4})


def operand_cases(first, n):
    for seed in range(first, first + n):
        yield (f"operands/{seed}", _build(seed, 10 + seed % 5 * 8, _OperandBuilder),
               {"rtol": 1e-4, "atol": 1e-4, "is_opt_in": True})


def redundant_cases(first, n):
    for seed in range(first, first + n):
        yield (f"redundant/{seed}", _build(seed, 15 + seed % 5 * 15, _RedundantBuilder),
               {"rtol": 1e-4})


def large_cases(first, n):
    for seed in range(first, first + n):
        yield (f"large/{seed}", _build(seed, 15 + seed % 3 * 15, _LargeBuilder), {"rtol": 1e-4})
