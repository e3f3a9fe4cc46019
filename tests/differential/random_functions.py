"""Random functions over several tasks: If, Case, While and calls as clients of TensorFlow 2 make
them in graph mode, nested in each other; every op of a body on a random task, every call on
another, and gradients through all of it. A case is a seed: the same graph in every run.

    cases(first, n) yields (name, build, options) as programs.py has it.
"""

import numpy as np
import random_loops
from programs import PLACES, Run, tf, tf1
from programs_functions import v2


class _Builder(random_loops._Builder):  # noqa: SLF001
    """With control flow v2 on, what random_loops makes of conditionals and loops are If and While.
    Here come calls, Case, and state: how often each run has counted is compared, too."""

    def __init__(self, seed):
        super().__init__(seed)
        with tf.device(str(self.rng.choice(PLACES))):
            self.count = tf1.get_variable("count", initializer=0, use_resource=True)

    def call(self, values, depth):
        """A function with arguments of its own, called once or twice; it may take what is outside
        of it besides."""
        twice = bool(self.rng.integers(2))

        @tf.function(autograph=False)
        def f(a, b):
            return self.block([a, b] + values[:1], depth + 1)

        a, b = self.pick(values), self.pick(values)
        with self.somewhere():
            made = f(a, b)
        with self.somewhere():
            return f(made, a) if twice else made

    def case(self, values, depth):
        """An index that is in range, or not: the last branch is the default. As in a predicate, a
        further number keeps the last bit of a sum from being decisive."""
        n = int(self.rng.integers(1, 4))
        with self.somewhere():
            index = tf.cast(tf.reduce_sum(self.pick(values)) * 2.0 + 0.0037, tf.int32)
        with self.somewhere():
            return tf.switch_case(index, [lambda: tf.identity(self.block(values, depth + 1))
                                          for _ in range(n)])

    def op(self, values):
        if self.rng.random() > 0.05:
            return super().op(values)
        added = self.count.assign_add(1, read_value=False)  # keeps its call from being stateless
        with tf.control_dependencies([added] if added is not None else []), self.somewhere():
            return tf.identity(self.pick(values))

    def block(self, values, depth):
        values = list(values)
        for _ in range(int(self.rng.integers(1, 3))):
            if depth >= random_loops.MAX_DEPTH:
                values.append(self.op(values))
                continue
            kind = self.rng.random()
            make = (self.call if kind < 0.3 else self.case if kind < 0.45 else self.cond if kind
                    < 0.6 else self.loop if kind < 0.75 else None)
            values.append(make(values, depth) if make else self.op(values))
            if depth == 0:
                self.made.append(values[-1])
        return values[-1]


def _build(seed):
    @v2
    def build():
        builder = _Builder(seed)
        feeds = [tf1.placeholder(tf.float32, [3]) for _ in range(random_loops.N_FEEDS)]
        results = [builder.block(feeds, 0) for _ in range(2)]
        if seed % 2 == 0:
            results += [g for g in tf1.gradients(results[0], feeds) if g is not None]
        runs = [Run(tf1.global_variables_initializer())]
        for k in range(3):
            rng = np.random.default_rng([seed, k])
            runs.append(Run(results + builder.made if k == 0 else results,
                            {x: np.round(rng.normal(size=3), 2).astype(np.float32) for x in feeds}))
        runs.append(Run(results[1], runs[1].feeds))
        counted = Run(builder.count.read_value())
        return [run for first in runs for run in (first, counted)]

    return build


def cases(first, n):
    for seed in range(first, first + n):
        yield f"random_functions/{seed}", _build(seed), {"rtol": 1e-4, "atol": 1e-5}
