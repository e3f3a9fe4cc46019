"""Random control flow over several tasks: conditionals and loops, nested, with parallel_iterations
of 1, 3 and 10, loop constants, TensorArrays and gradients; each op on a random task. A case is a
seed: the same graph in every run.

    cases(first, n) yields (name, build, options) as programs.py has it. In known_cases most
    predicates of conditionals are constants; in invariant_cases loops compute much from what they
    do not change.
"""

import numpy as np
from programs import PLACES, Run, tf, tf1

MAX_DEPTH = 3
N_FEEDS = 3


class _Builder:
    """All values are float32 vectors of three, kept small by tanh, so that any op may follow any
    other."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.made = []  # what stands outside of all conds and loops

    def somewhere(self):
        return tf.device(str(self.rng.choice([*PLACES, ""])))

    def pick(self, values):
        return values[int(self.rng.integers(len(values)))]

    def op(self, values):
        kind = int(self.rng.integers(5))
        a, b = self.pick(values), self.pick(values)
        with self.somewhere():
            if kind == 0:
                return tf.tanh(a + b)
            if kind == 1:
                return tf.tanh(a * b - 0.5)
            if kind == 2:
                return tf.reverse(a, [0])
            if kind == 3:
                return tf.where(tf.greater(a, b), a, tf.sin(b))
            return tf.tanh(tf.reduce_sum(a) + b)

    def predicate(self, values):
        """Feeds have two decimals, so their sums may be 0 but for the last bit. A further number
        keeps that bit from being decisive: devices add in different orders."""
        a, b = self.pick(values), self.pick(values)
        with self.somewhere():
            factor = float(self.rng.choice([0.5, -1.0, 2.0]))
            return tf.reduce_sum(a) > tf.reduce_sum(b) * factor + 0.0037

    def cond(self, values, depth):
        predicate = self.predicate(values)
        with self.somewhere():
            return tf1.cond(predicate, lambda: tf.identity(self.block(values, depth + 1)),
                            lambda: tf.identity(self.block(values, depth + 1)))

    def loop(self, values, depth):
        """Counts to a limit that may be a value of the graph; carries one or two vectors, and reads
        those from outside."""
        n_carried, parallel = int(self.rng.integers(1, 3)), int(self.rng.choice([1, 3, 10]))
        starts = [self.pick(values) for _ in range(n_carried)]
        limit = int(self.rng.integers(0, 5))
        with self.somewhere():
            end = tf.constant(limit) if self.rng.random() < 0.5 else tf.cast(
                tf.reduce_sum(tf.zeros_like(starts[0])), tf.int32) + limit

        def go_on(i, *carried):
            with self.somewhere():
                return i < end if self.rng.random() < 0.7 else tf.logical_and(
                    i < end, tf.reduce_sum(carried[0]) < 100.0)

        def body(i, *carried):
            made = [self.block(values + list(carried), depth + 1) for _ in carried]
            with self.somewhere():
                return (i + 1, *made)

        with self.somewhere():
            loop = tf1.while_loop(go_on, body, [tf.constant(0), *starts],
                                  parallel_iterations=parallel)
        return self.pick(loop[1:])

    def array_loop(self, values):
        """Writes each iteration's value; what was written is joined after the loop."""
        n = int(self.rng.integers(1, 6))
        start = self.pick(values)
        with self.somewhere():
            array = tf.TensorArray(tf.float32, n, clear_after_read=False)

        def body(i, x, a):
            made = self.op(values + [x])
            with self.somewhere():
                return i + 1, made, a.write(i, made)

        with self.somewhere():
            written = tf1.while_loop(lambda i, x, a: i < n, body, [tf.constant(0), start, array])[2]
            return tf.tanh(tf.reduce_sum(written.stack(), 0))

    def block(self, values, depth):
        values = list(values)
        for _ in range(int(self.rng.integers(1, 4))):
            kind = self.rng.random()
            if depth < MAX_DEPTH and kind < 0.2:
                values.append(self.cond(values, depth))
            elif depth < MAX_DEPTH and kind < 0.4:
                values.append(self.loop(values, depth))
            elif depth == 0 and kind < 0.5:
                values.append(self.array_loop(values))
            else:
                values.append(self.op(values))
            if depth == 0:
                self.made.append(values[-1])
        return values[-1]


class _KnownBuilder(_Builder):
    """Most predicates are constants, or computed from constants."""

    def predicate(self, values):
        known, is_true = self.rng.random() < 0.7, bool(self.rng.integers(2))
        if not known:
            return super().predicate(values)
        with self.somewhere():
            return (tf.constant(is_true) if self.rng.integers(2)
                    else tf.less(tf.constant(1), tf.constant(1 + is_true)))


class _InvariantBuilder(_Builder):
    """Loops compute much from what they do not change; some run zero times."""

    def op(self, values):
        outer = self.pick(values[: max(1, len(values) // 2)])
        with self.somewhere():
            for _ in range(int(self.rng.integers(1, 4))):
                outer = self.pick([tf.sin, tf.tanh, tf.negative, lambda x: x * 0.5,
                                   lambda x: tf.maximum(x, 0.1), tf.cos])(outer)
            return tf.tanh(outer * self.pick(values) if self.rng.integers(2) else outer)

    def predicate(self, values):
        with self.somewhere():
            return super().predicate([self.op(values), *values])


def _build(seed, kind=_Builder):
    def build():
        builder = kind(seed)
        feeds = [tf1.placeholder(tf.float32, [3]) for _ in range(N_FEEDS)]
        results = [builder.block(feeds, 0) for _ in range(2)]
        if seed % 3 == 0:
            results += [g for g in tf1.gradients(results[0], feeds) if g is not None]
        runs = []
        for k in range(3):
            rng = np.random.default_rng([seed, k])
            runs.append(Run(results + builder.made if k == 0 else results,
                            {x: np.round(rng.normal(size=3), 2).astype(np.float32) for x in feeds}))
        runs.append(Run(results[1], runs[0].feeds))
        return runs

    return build


def cases(first, n):
    for seed in range(first, first + n):
        yield f"random_loops/{seed}", _build(seed), {"rtol": 1e-4, "atol": 1e-5}


def known_cases(first, n):
    for seed in range(first, first + n):
        yield f"known/{seed}", _build(seed, _KnownBuilder), {"rtol": 1e-4, "atol": 1e-5}


def invariant_cases(first, n):
    for seed in range(first, first + n):
        yield f"invariants/{seed}", _build(seed, _InvariantBuilder), {"rtol": 1e-4, "atol": 1e-5}
