"""Random programs whose results depend on when a variable is read: reference and resource
variables, values that forward a variable's buffer, uses and updates between them, conditionals,
loops and functions, and several fetches. A case is a seed: the same graph in every run.

Uses and updates follow each other by control edges, so their results are certain, while the
forwarding ops stand anywhere. A resource variable is fetched on its own, because a read of it that
waits for nothing races with the updates of its step in TensorFlow. TensorFlow runs each program
several times, and only what was the same each time is compared (run_cluster.py).

    cases(first, n) yields (name, build) as programs.py has it.
"""

import numpy as np
from programs import PS, WORKER0, Run, tf, tf1
from tensorflow.python.framework import function

MAX_DEPTH = 2
N_RUNS = 4
SIZE = 4

FORWARDING = (
    tf.identity,
    tf.stop_gradient,
    lambda x: tf.reshape(x, [2, 2]),
    lambda x: tf.expand_dims(x, 0),
    lambda x: tf.squeeze(tf.expand_dims(x, 0)),
    lambda x: tf.ensure_shape(x, x.shape),
    lambda x: tf.debugging.check_numerics(x, "bad"),
    lambda x: tf.tuple([x])[0],
    lambda x: tf.identity_n([x, x])[1],
    lambda x: tf1.placeholder_with_default(x, x.shape),
)


class _Builder:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.last = []  # what the next use or update waits for
        self.depth = 0

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def numbers(self):
        return self.rng.integers(-3, 4, SIZE).astype(np.float32)

    def start(self):
        self.variables = [
            tf1.get_variable(f"v{i}", initializer=self.numbers(), use_resource=self.chance(0.3))
            for i in range(int(self.rng.integers(1, 4)))]
        self.fed = tf1.placeholder(tf.float32, [SIZE])
        self.values = [self.forward(v) for v in self.variables]
        self.fetches = [*(v for v in self.variables if not self.is_resource(v)), *self.values]

    # ---- the order ----

    def in_order(self):
        return tf.control_dependencies(self.last)

    def did(self, made):
        self.last = [made.op if hasattr(made, "op") else made]
        return made

    def inside(self, make):
        """Builds the body of a branch or loop. Its value waits for all that the body does."""
        outer = self.last, self.values
        self.last, self.values, self.depth = [], list(self.values), self.depth + 1
        made = make()
        with tf.control_dependencies(self.last):
            made = [tf.identity(value) for value in made]
        self.depth -= 1
        self.last, self.values = outer
        return made

    # ---- what a program does ----

    def forward(self, value):
        if self.is_resource(value):
            with self.in_order():
                return self.did(value.read_value())
        for _ in range(int(self.rng.integers(1, 4))):
            value = self.pick(FORWARDING)(value)
        return value

    @staticmethod
    def is_resource(value):
        return getattr(value, "handle", None) is not None

    def delta(self):
        """What an update adds: a constant, or a value that another task computes from a feed."""
        if self.chance(0.6):
            return tf.constant(self.numbers())
        with tf.device(WORKER0):
            return self.fed + float(self.rng.integers(3))

    def update(self):
        v, delta = self.pick(self.variables), self.delta()
        kind = int(self.rng.integers(5 if self.is_resource(v) else 6))
        with self.in_order():
            if kind == 0:
                made = tf1.assign(v, delta)
            elif kind == 1:
                made = tf1.assign_sub(v, delta)
            elif kind == 2:
                row = int(self.rng.integers(SIZE))
                made = tf1.scatter_update(v, [row], delta[:1])
            elif kind == 3:
                made = tf1.train.GradientDescentOptimizer(0.5).apply_gradients([(delta, v)])
            elif kind == 4:
                made = tf1.assign_add(v, delta)
            else:
                made = tf1.assign_add(v, delta, use_locking=True)
        self.did(made)
        if isinstance(made, tf.Tensor) and self.depth == 0:
            self.values.append(made)  # the variable itself
            self.fetches.append(made)
        elif self.depth == 0:
            self.fetches.append(made if isinstance(made, tf.Operation) else made.op)
        return made

    def use(self, keep=True):
        value = tf.reshape(self.pick(self.values), [SIZE])
        with self.in_order():
            made = self.did(value * 0.5 + 1.0 if self.chance(0.5) else tf.add(value, 0.25))
        if keep and self.depth == 0:
            self.fetches.append(made)
        return made

    def read(self):
        v = self.pick(self.variables) if self.chance(0.5) else self.pick(self.values)
        made = self.forward(v)
        self.values.append(made)
        if self.depth == 0:
            self.fetches.append(made)

    def cond(self):
        with self.in_order():
            pred = tf.reduce_sum(self.fed) > float(self.rng.integers(-3, 4))
        self.did(pred)
        made = tf1.cond(pred, lambda: self.inside(self.block), lambda: self.inside(self.block))
        made = made[0] if isinstance(made, list) else made
        self.did(made)
        self.values.append(made)
        if self.depth == 0:
            self.fetches.append(made)

    def loop(self):
        with self.in_order():
            start = tf.constant(0) + 0
            total = tf.zeros([SIZE]) + 0.0
        n, parallel = int(self.rng.integers(0, 4)), int(self.rng.choice([1, 10]))

        def body(i, total):
            def make():
                return i + 1, total + self.block()[0]
            return self.inside(make)

        i, total = tf1.while_loop(lambda i, _: i < n, body, [start, total],
                                  parallel_iterations=parallel)
        with tf.control_dependencies([i.op]):
            made = self.did(total * 1.0)
        if self.depth == 0:
            self.fetches += [made, i]

    def call(self):
        value = tf.reshape(self.pick(self.values), [SIZE])
        resources = [v for v in self.variables if self.is_resource(v)]
        if resources and self.chance(0.6):
            v = self.pick(resources)

            def grow(x):
                v.assign_add(x)
                return v.read_value() + x

            with self.in_order():
                made = tf.function(grow)(value)
        elif self.chance(0.5):
            with self.in_order():
                made = tf.function(lambda x: tf.identity(x) * 3.0)(value)
        else:
            @function.Defun(tf.float32, func_name=f"twice_{len(self.fetches)}_{self.depth}_"
                            f"{int(self.rng.integers(1 << 30))}")
            def twice(x):
                return x * 2.0

            with self.in_order():
                made = twice(value)
            made.set_shape([SIZE])
        self.did(made)
        if self.depth == 0:
            self.fetches.append(made)

    def step(self):
        actions = [self.update, self.update, self.use, self.use, self.read, self.read, self.call]
        if self.depth < MAX_DEPTH:
            actions += [self.cond, self.loop]
        self.pick(actions)()

    def block(self):
        for _ in range(int(self.rng.integers(1, 4))):
            self.step()
        return [self.use(keep=False)]

    def run(self):
        n = min(len(self.fetches), int(self.rng.integers(1, 5)))
        picked = self.rng.choice(len(self.fetches), n, replace=False)
        return Run([self.fetches[int(i)] for i in picked], {self.fed: self.numbers()})


def _build(seed, n_steps):
    def build():
        builder = _Builder(seed)
        with tf.device(PS):
            builder.start()
            for _ in range(n_steps):
                builder.step()
        runs = [Run(tf1.global_variables_initializer())]
        for _ in range(N_RUNS):
            runs += [builder.run(), Run(list(builder.variables))]
        return runs

    return build


def cases(first, n):
    for seed in range(first, first + n):
        yield f"random_reads/{seed}", _build(seed, 4 + seed % 4 * 4)
