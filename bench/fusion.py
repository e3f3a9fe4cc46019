#!/usr/bin/env python3
"""Chains and small networks of elementwise ops: ours fused, ours fused without machine code
(`--no-fused-code`), ours without the pass `fuse`, TensorFlow's graph mode as users run it (its
rewriter on), and TensorFlow with XLA, in one run.

    .venv/bin/python bench/fusion.py [--rounds N] [--only TEXT] [--most-mb N] [--json FILE]

A program reads variables, computes, and assigns the result to a variable, so that no value travels
to the client. Small programs are in the graph several times, with variables of their own, so that
the messages of a step count little; the figure is for one of them. TensorFlow runs in this process
and sends no message at all. Each round measures every way in turn; a figure is the least mean of a
round, since other load only adds to it. Ratios are the other's time ÷ ours fused.
"""
import argparse
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import compare  # noqa: E402
import networks  # noqa: E402

WAYS = ("fused", "no code", "unfused", "TensorFlow", "XLA")


class Millrace(compare.MillraceCluster):
    def __init__(self, flagged="", *flags):
        self.flagged, self.flags = flagged, flags
        super().__init__()

    def start(self, name, command):
        return super().start(name, command + list(self.flags if name == self.flagged else ()))


def chain(length):
    def program(tf, x, y):
        for i in range(length):
            x = (tf.add, tf.multiply, tf.maximum, tf.subtract)[i % 4](x, y)
        return x
    return program


def gelu(tf, x, y):
    return networks.gelu(tf, x)


def layer_norm(tf, x, y):
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    centred = x - mean
    variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-5) * y[:1, :] + y[1:2, :]


def softmax(tf, x, y):
    powers = tf.exp(x - tf.reduce_max(x, axis=-1, keepdims=True))
    return powers / tf.reduce_sum(powers, axis=-1, keepdims=True)


def mean_square(tf, x, y):
    return tf.reduce_mean(tf.square(x - y))


def cross_entropy(tf, x, y):
    shifted = x - tf.reduce_max(x, axis=-1, keepdims=True)
    logs = shifted - tf.math.log(tf.reduce_sum(tf.exp(shifted), axis=-1, keepdims=True))
    return tf.reduce_mean(-tf.reduce_sum(y * logs, axis=-1))


def lstm(tf, x, y):
    i, f, o, g = tf.split(x, 4, axis=-1)
    c = tf.sigmoid(f + 1.0) * g + tf.sigmoid(i) * tf.tanh(g)
    h = tf.sigmoid(o) * tf.tanh(c)
    return tf.concat([c, h, c, h], axis=-1)


def adam(tf, x, y):
    m = 0.9 * x + 0.1 * y
    v = 0.999 * tf.square(x) + 0.001 * tf.square(y)
    return x - 0.001 * (m / 0.9) / (tf.sqrt(v / 0.999) + 1e-8)


# name, program, (rows, columns), copies in one step
CHAIN_SIZES = ((256, 1, 64), (256, 64, 32), (256, 1024, 8), (1024, 4096, 1), (5000, 5000, 1))
PROGRAMS = [(f"chain of {n}, {show}", chain(n), (rows, columns), copies)
            for n in (2, 5, 10, 20)
            for show, (rows, columns, copies) in zip(("1 KB", "64 KB", "1 MB", "16 MB", "100 MB"),
                                                     CHAIN_SIZES)]
PROGRAMS += [(f"{name}, {show}", program, shape, copies)
             for name, program in (("GELU", gelu), ("layer norm", layer_norm), ("softmax", softmax),
                                   ("mean square", mean_square), ("cross entropy", cross_entropy),
                                   ("LSTM cell", lstm), ("Adam", adam))
             for show, shape, copies in (("1 KB", (4, 64), 64), ("16 KB", (32, 128), 64),
                                         ("64 KB", (32, 512), 32), ("1 MB", (512, 512), 4),
                                         ("4 MB", (1024, 1024), 1),
                                         ("16 MB", (4096, 1024), 1))]


def step_of(tf, tf1, np, row, target, is_jit):
    _, program, shape, copies = row
    graph, random = tf.Graph(), np.random.default_rng(7)
    values = [random.random(shape, np.float32) + 0.1 for _ in range(2)]
    device = "/job:worker/task:0" if target else "/cpu:0"
    options = tf1.ConfigProto()
    with graph.as_default(), tf1.device(device):
        body = tf.function(lambda x, y: program(tf, x, y), jit_compile=True) if is_jit else (
            lambda x, y: program(tf, x, y))
        feeds, starts, ends = [], [], []
        for _ in range(2):
            feeds.append(tf1.placeholder(tf.float32, shape))
        for k in range(copies):
            def variable(name, of, k=k):
                return tf1.get_variable(f"{name}{k}", of, use_resource=True,
                                        initializer=tf1.zeros_initializer())
            x, y = variable("x", shape), variable("y", shape)
            made = body(x.read_value(), y.read_value())
            z = variable("z", made.shape)
            starts += [x.initializer, y.initializer, z.initializer]
            ends.append((x, y, z, made))
        fills = [v.assign(feed).op for x, y, _, _ in ends for v, feed in zip((x, y), feeds)]
        train = tf.group(*[z.assign(made).op for _, _, z, made in ends])
        check = [tf.reshape(ends[0][2].read_value(), [-1])[:1]]
    session = tf1.Session(target, graph=graph, config=options)
    session.run(starts)
    session.run(fills, dict(zip(feeds, values)))
    step = session.make_callable(train)
    step()
    return step, lambda: float(session.run(check)[0][0])


def measure_row(tf, tf1, np, row, clusters, rounds):
    targets = [cluster.target for cluster in clusters] + ["", ""]
    made = [step_of(tf, tf1, np, row, target, way == "XLA") for way, target in zip(WAYS, targets)]
    results = [check() for _, check in made]
    if not np.allclose(results, results[0], rtol=1e-4):
        raise SystemExit(f"{row[0]}: results differ: {dict(zip(WAYS, results))}")
    if len(set(results[:3])) > 1:
        raise SystemExit(f"{row[0]}: fused {results[0]!r}, no code {results[1]!r}, "
                         f"unfused {results[2]!r}")
    least = [float("inf")] * len(WAYS)
    for _ in range(rounds):
        for i, (step, _) in enumerate(made):
            began, n = time.perf_counter(), 0
            while n < 2 or time.perf_counter() - began < 0.05:
                step()
                n += 1
            least[i] = min(least[i], (time.perf_counter() - began) / n / row[3])
    return least


def main():
    parser = argparse.ArgumentParser(description="fused programs beside TensorFlow and XLA")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--most-mb", type=float, default=1000)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    clusters, results = [Millrace(), Millrace("worker", "--no-fused-code"),
                         Millrace("master", "--disable-passes", "fuse")], []
    print(f"{'program':22}" + "".join(f"{way:>15}" for way in WAYS)
          + "".join(f"{'÷ ' + way:>14}" for way in WAYS[1:]))
    for row in PROGRAMS:
        if arguments.only not in row[0] or np.prod(row[2]) * 4e-6 > arguments.most_mb:
            continue
        least = measure_row(tf, tf1, np, row, clusters, arguments.rounds)
        results.append({"program": row[0], **{f"{w}_us": t * 1e6 for w, t in zip(WAYS, least)}})
        print(f"{row[0]:22}" + "".join(f"{t * 1e6:12.1f} µs" for t in least)
              + "".join(f"{t / least[0]:14.2f}" for t in least[1:]), flush=True)
        for cluster in clusters:
            tf1.Session.reset(cluster.target)
    compare.report_and_exit(arguments.json, results, clusters)


if __name__ == "__main__":
    main()
