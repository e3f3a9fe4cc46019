"""Random graphs of all number types, with the values and shapes that rewrites stumble over: NaN,
infinities, -0.0, denormals, the least and greatest integers, empty tensors, placeholders of unknown
shape, reference variables, conditionals that never run a branch, loops that run zero times, nodes
that are colocated with others, feeds and fetches in the middle. A case is a seed: the same graph in
every run.

    cases(first, n) yields (name, build, options) as programs.py has it; product_cases have matrix
    products, convolutions and gathered rows among such nodes.

A graph has few types and shapes, and a node mostly takes what was made last, so that long chains
arise. What the client refuses is tried again. A step may fail, because of sizes that only the step
knows, and a rewrite may leave out what fails (the option may_fail). TensorFlow has other results
for some of these values (a Relu of -0.0, quotients of complex infinities), so these graphs are for
comparing our ways with each other (run_passes.py).
"""

import numpy as np
from programs import TASKS, Run, tf, tf1

raw = tf.raw_ops
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
NUMBERS = FLOATS + INTS + COMPLEX
SHAPES = ((), (1,), (5,), (4, 1), (4, 5), (2, 4, 5), (1, 4, 1), (0, 5), (2, 1, 5), (1, 1, 1, 1),
          (3, 70), (2, 3, 4, 5, 2))  # fmt: skip
PRODUCT_SHAPES = ((16, 32), (16, 32), (32, 16), (1, 32), (32,), (2, 16, 32), (2, 9, 9, 8),
                  (160, 64), ())  # fmt: skip
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-310, 1e30, -1e5, 6e-8, 1.0, -1.0)
MAX_ELEMENTS = {False: 3000, True: 12000}  # of what others take: in a graph with products?
N_RUNS = 4
TRIES = 15

# By the name of the arguments.
UNARY = {
    "x": ("Tanh Sigmoid Exp Expm1 Log Log1p Sqrt Rsqrt Neg Abs Square Sign Floor Ceil Rint Round "
          "Reciprocal Inv Sin Cos Erf Sinh Atan IsNan IsInf IsFinite Invert Lgamma ZerosLike "
          "OnesLike ComplexAbs").split(),
    "features": "Relu Relu6 Elu Selu Softplus Softsign LeakyRelu".split(),
    "input": "Conj Identity StopGradient Real Imag Angle".split(),
}
BINARY = {
    ("x", "y"): ("Add AddV2 Sub Mul Maximum Minimum SquaredDifference DivNoNan MulNoNan RealDiv "
                 "Div Equal NotEqual Less LessEqual Greater GreaterEqual Pow Atan2 BitwiseAnd "
                 "BitwiseOr BitwiseXor FloorMod FloorDiv TruncateDiv LeftShift RightShift Xdivy "
                 "Xlogy LogicalAnd LogicalOr").split(),
    ("y", "dy"): "TanhGrad SigmoidGrad SqrtGrad RsqrtGrad InvGrad".split(),
    ("gradients", "features"): "ReluGrad Relu6Grad SoftplusGrad LeakyReluGrad".split(),
}
SMALL_OPERAND = {"FloorMod", "FloorDiv", "TruncateDiv", "Div", "LeftShift", "RightShift", "Pow"}
REDUCTIONS = "Sum Mean Max Min Prod EuclideanNorm All Any".split()
UNARY_OPS = [(op, names) for names, ops in UNARY.items() for op in ops]
BINARY_OPS = [(op, names) for names, ops in BINARY.items() for op in ops]


def _name(t):
    return t.dtype.base_dtype.name


class _Builder:
    def __init__(self, seed, has_products):
        self.rng, self.has_products = np.random.default_rng(seed), has_products
        self.tensors, self.placeholders, self.variables = [], [], []
        self.types = [self.choice(NUMBERS) for _ in range(int(self.rng.integers(1, 4)))] + ["bool"]
        self.types += [self.choice(FLOATS)] if self.rng.integers(2) else []
        shapes = PRODUCT_SHAPES if has_products else SHAPES
        base = self.pick(shapes)
        self.shapes = [base, base, tuple(n if self.rng.integers(2) else 1 for n in base), (),
                       self.pick(shapes), self.pick(shapes)]

    # ---- choices ----

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def choice(self, values):
        return str(self.rng.choice(values))

    def value(self, name, shape):
        rng, np_type = self.rng, tf.as_dtype(name).as_numpy_dtype
        if name == "bool":
            return np.asarray(rng.integers(0, 2, shape), bool)
        if name in INTS:
            info = np.iinfo(np_type)
            made = rng.integers(-5 if info.min else 0, 6, shape)
            edges = rng.choice(np.array([info.min, info.max, 0, 1], np_type), shape)
            is_edge = rng.integers(0, 6, shape) == 0
            return np.where(is_edge, edges, np.asarray(made, np_type)).astype(np_type)
        parts = [np.where(rng.integers(0, 4, shape) == 0, rng.choice(SPECIAL, shape),
                          np.round(rng.normal(size=shape) * 2, 2)) for _ in range(2)]
        made = parts[0] + 1j * parts[1] if name in COMPLEX else parts[0]
        return np.asarray(made).astype(np_type)

    def constant(self, name, shape=None):
        shape = self.pick(self.shapes) if shape is None else shape
        if name != "bool" and self.rng.integers(2):  # often neutral
            value = np.full(shape if self.rng.integers(2) else (), self.pick((0, 1, 1, 2, -0.0)))
            return tf.constant(value.astype(tf.as_dtype(name).as_numpy_dtype))
        return tf.constant(self.value(name, tuple(shape)), name)

    def take(self, names=None, shape=None, among=None):
        """A tensor of one of these types, mostly one of the last; a new constant if there is none.
        """
        names = names or self.types
        wanted = [t for t in (among or self.tensors) if _name(t) in names
                  and (shape is None or (t.shape.rank is not None
                                         and t.shape.as_list() == list(shape)))]
        if not wanted or self.rng.random() < 0.1:
            return self.constant(self.choice(names), shape)
        return wanted[-1 - min(len(wanted) - 1, int(self.rng.exponential(4)))]

    def device(self):
        return tf.device(self.choice((*TASKS, "/job:worker", "") + (TASKS[1],) * 9))

    def attempt(self, make):
        """Returns None if the client refuses every try."""
        for _ in range(TRIES):
            try:
                return make()
            except (ValueError, TypeError, IndexError):
                continue
        return None

    # ---- nodes ----

    def unary(self, t):
        op, name = self.pick(UNARY_OPS) if _name(t) != "bool" else ("LogicalNot", "x")
        more = {"Tout": tf.float64 if _name(t) == "complex128" else tf.float32} if op in (
            "Real", "Imag", "Angle", "ComplexAbs") else {}
        return getattr(raw, op)(**{name: t}, **more)

    def binary(self, t, among):
        op, names = self.pick(BINARY_OPS)
        other = self.take((_name(t),), among=among)
        if op in SMALL_OPERAND and _name(t) in INTS:
            other = tf.constant(self.pick((1, 2, 3)), _name(t))
        if names != ("x", "y") and not (t.shape.is_fully_defined() and t.shape == other.shape):
            raise ValueError("kernels of gradients refuse shapes that differ")
        return getattr(raw, op)(**dict(zip(names, (t, other))))

    def cast(self, t):
        to = self.choice((*self.types, "float32", "int32"))
        if _name(t) in COMPLEX and to not in COMPLEX:
            to = "complex64"
        if _name(t) in FLOATS and to in INTS:  # only what fits: TensorFlow leaves the rest open
            low, high = (tf.constant(n, _name(t)) for n in (0, 100))
            t = raw.ClipByValue(t=t, clip_value_min=low, clip_value_max=high)
            t = raw.SelectV2(condition=raw.IsNan(x=t), t=low, e=t)
        return raw.Cast(x=t, DstT=tf.as_dtype(to), Truncate=self.rng.integers(5) == 0)

    def almost_nothing(self, t):
        """What a rewriter would like to leave out, and often must not."""
        kind, n = int(self.rng.integers(5)), self.pick((0, 0, 1, -1))
        if kind == 0:
            return self.cast(self.cast(t))
        if kind == 1:
            return raw.Neg(x=raw.Neg(x=t))
        rounded = raw.Mul(x=t, y=tf.constant(n, _name(t)))
        return self.pick((raw.AddV2, raw.Sub, raw.Mul))(x=rounded, y=tf.constant(n * n, _name(t)))

    def elementwise(self, among=None):
        kind, t = self.rng.random(), self.take(among=among)
        if kind < 0.2:
            return self.almost_nothing(t)
        if kind < 0.45:
            return self.unary(t)
        if kind < 0.75:
            return self.binary(t, among)
        if kind < 0.85:
            return self.pick((raw.SelectV2, raw.SelectV2, raw.Select))(
                condition=self.take(("bool",), among=among), t=t,
                e=self.take((_name(t),), among=among))
        if kind < 0.93:
            return self.cast(t)
        return raw.BroadcastTo(input=t, shape=raw.Shape(input=self.take()))

    def shape_op(self):
        t, kind = self.take(), int(self.rng.integers(9))
        rank = t.shape.rank or 0
        if kind == 0:
            return raw.Reshape(tensor=t, shape=raw.Shape(input=t) if self.rng.integers(2) else [-1])
        if kind == 1:
            order = self.rng.permutation(rank)
            back = np.argsort(order) if self.rng.integers(3) else order
            return raw.Transpose(x=raw.Transpose(x=t, perm=order), perm=back)
        if kind == 2:
            axis = [self.pick(range(rank))]
            return raw.ReverseV2(tensor=raw.ReverseV2(tensor=t, axis=axis), axis=axis)
        if kind == 3:
            return raw.Squeeze(input=raw.ExpandDims(input=t, axis=self.pick(range(rank + 1))),
                               axis=[self.pick(range(rank + 1))])
        if kind == 4:
            return self.pick((raw.Shape, raw.Size, raw.Rank))(input=t)
        if kind == 5:
            op, name = self.pick(UNARY_OPS)
            parts = [getattr(raw, op)(**{name: part}) for part in (t, self.take((_name(t),)))]
            return raw.ConcatV2(values=parts, axis=self.pick(range(rank)))
        if kind == 6:
            op, x = self.pick((raw.AddV2, raw.Mul)), self.take(INTS)
            three, five = (tf.constant(n, _name(x)) for n in (3, 5))
            return op(x=five, y=op(x=x, y=three))
        if kind == 7:
            return raw.Tile(input=t, multiples=self.rng.integers(1, 3, rank))
        return raw.Pad(input=t, paddings=np.full((rank, 2), int(self.rng.integers(4) == 0)))

    def reduction(self):
        t = self.take()
        n = int(self.rng.integers(0, t.shape.rank + 1))
        made = getattr(raw, self.pick(REDUCTIONS))(
            input=t, axis=np.arange(-n, 0), keep_dims=bool(self.rng.integers(2)))
        self.add(made)
        return raw.Mul(x=made, y=t) if self.rng.integers(2) else made

    def product(self):
        t, kind = self.take([name for name in self.types if name != "bool"]), self.rng.integers(3)
        if kind == 0 and t.shape.rank == 2:
            made = raw.MatMul(a=t, b=self.constant(_name(t), (t.shape[1], 16)))
        elif kind == 1 and t.shape.rank == 4:
            made = raw.Conv2D(input=t, filter=self.constant(_name(t), (3, 3, t.shape[3], 16)),
                              strides=[1, int(self.rng.integers(1, 3)), 1, 1],
                              padding=self.choice(("SAME", "VALID")))
        elif t.shape.rank:
            rows = raw.GatherV2(params=t, indices=self.rng.integers(0, t.shape[0], (3, 4)), axis=0)
            made = getattr(raw, self.pick(REDUCTIONS[:5]))(input=rows, axis=[1])
        else:
            raise ValueError("it has no rows")
        if self.rng.integers(4) == 0:
            self.add(made)
        if self.rng.integers(2):
            made = raw.BiasAdd(value=made, bias=self.constant(_name(made), (made.shape[-1],)))
        return raw.Relu(features=made) if _name(made) not in COMPLEX else raw.Neg(x=made)

    # ---- control flow ----

    def branch(self, t):
        made = [t]
        for _ in range(int(self.rng.integers(0, 4))):
            one = self.attempt(lambda: self.elementwise(made))
            made += [one] if one is not None else []
        return tf.identity([one for one in made if _name(one) == _name(t)][-1])

    def conditional(self):
        t = self.take()
        is_true = self.take(("bool",), ()) if self.rng.integers(2) else tf.constant(
            bool(self.rng.integers(2)))
        with self.device():
            return tf1.cond(is_true, lambda: self.branch(t), lambda: self.branch(t))

    def loop(self):
        start, n = tf.identity(self.take()), int(self.rng.integers(0, 4))
        with self.device():
            return tf1.while_loop(
                lambda i, x: i < n, lambda i, x: (i + 1, self.branch(x)), [tf.constant(0), start],
                shape_invariants=[tf.TensorShape([]), tf.TensorShape(None)],
                parallel_iterations=self.pick((1, 10)))[1]

    # ---- the graph ----

    def start(self):
        for i in range(int(self.rng.integers(2, 5))):
            name, shape = self.choice(self.types), self.pick(self.shapes)
            known = self.pick((shape, shape, None, [None if self.rng.integers(2) else n
                                                    for n in shape]))
            x = tf1.placeholder(name, known)
            self.placeholders.append((x, name, shape))
            self.tensors.append(x)
        for i in range(int(self.rng.integers(0, 3))):
            is_resource, shape = bool(self.rng.integers(2)), self.pick(self.shapes)
            with tf.device(self.choice(TASKS)):
                v = tf1.get_variable(f"v{i}", initializer=self.constant(self.choice(self.types),
                                                                        shape),
                                     use_resource=is_resource)
            self.variables.append(v)
            self.tensors.append(v.read_value() if is_resource else v._ref())  # noqa: SLF001

    def add(self, t):
        n = t.shape.num_elements()
        if n is None or n < MAX_ELEMENTS[self.has_products]:
            self.tensors.append(t)

    def node(self):
        kind = self.rng.random()
        if self.has_products and kind < 0.5:
            return self.product()
        makes = ((0.62, self.elementwise), (0.82, self.shape_op), (0.92, self.reduction),
                 (0.96, self.conditional), (1.0, self.loop))  # fmt: skip
        return next(make for limit, make in makes if kind < limit)()

    def placed_node(self):
        before = [self.take().op] if self.rng.random() < 0.15 else []
        with self.device(), tf.control_dependencies(before):
            if self.rng.random() < 0.07:
                with tf1.colocate_with(self.take().op, ignore_existing=True):
                    return self.node()
            return self.node()

    def grow(self, n_nodes):
        for _ in range(n_nodes):
            made = self.attempt(self.placed_node)
            if made is not None:
                self.add(made)

    def run(self):
        feeds = {x: self.value(name, shape) for x, name, shape in self.placeholders}
        fetches = [self.pick(self.tensors) for _ in range(int(self.rng.integers(1, 6)))]
        inner = self.pick(self.tensors)
        if (self.rng.integers(3) == 0 and inner.shape.is_fully_defined()
                and not inner.dtype._is_ref_dtype):  # noqa: SLF001
            feeds[inner] = self.value(_name(inner), tuple(inner.shape.as_list()))
        return Run([t for t in fetches if all(t is not fed for fed in feeds)], feeds)

    def update(self):
        v = self.pick(self.variables)
        return Run(tf1.assign(v, tf.constant(self.value(_name(v), tuple(v.shape.as_list())),
                                             _name(v))).op)


def _build(seed, n_nodes, has_products):
    def build():
        builder = _Builder(seed, has_products)
        builder.start()
        builder.grow(n_nodes)
        runs = [Run(tf1.global_variables_initializer())]
        for _ in range(N_RUNS):
            runs.append(builder.run())
            runs += [builder.update(), Run(builder.variables)] if builder.variables else []
        return runs

    return build


def cases(first, n):
    for seed in range(first, first + n):
        yield f"odd/{seed}", _build(seed, 12 + seed % 5 * 14, False), {"may_fail": True}


def product_cases(first, n):
    for seed in range(first, first + n):
        yield f"oddproducts/{seed}", _build(seed, 10 + seed % 5 * 8, True), {"may_fail": True}
