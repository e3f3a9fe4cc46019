#!/usr/bin/env python3
"""Trains networks on a simulated GPU, and says how much of a step is replayed (docs/gpu.md, "Work
that is replayed").

    tests/cuda/run_segments.py [--long] [--only TEXT] [--seed N] [--warm N] [--steps N]

A row for each network: what the device counts in one step, once the first steps have been run. The
losses have the bits of a worker that launches each kernel by itself, and at least a part of the
work is replayed, in at most as many graphs as PROGRAMS says. Ends with "N passed, N failed[, N
skipped]".
"""
import argparse
import json
import os
import sys
import tempfile

from run_networks import BUILD, TESTS, simulate

import numpy as np  # noqa: E402

import graphs  # noqa: E402  (run_networks says where these are)
import networks  # noqa: E402
import tensorflow as tf  # noqa: E402
from cluster import Cluster  # noqa: E402

tf1 = tf.compat.v1
N_WARM, N_STEPS = 5, 5
COLUMNS = ("work", "work_replayed", "replays", "changes", "captures", "interrupted",
           "other_addresses", "moved", "ends_idle", "ends_other_use", "ends_library", "ends_full",
           "memory_calls")


def network(name):
    return lambda: networks.build(name, networks.NETWORKS[name][2])


def minimize(loss):
    """Adds the nodes that the suite runs: the step, the loss, and the initializer."""
    step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    tf.identity(loss, name="loss")
    tf.group(step, name="step")
    tf.group(tf1.global_variables_initializer(), name="init")


def forms(is_functional=False):
    """A layer whose input's rows are fed, and say how often a loop runs and which branch is taken:
    each number of rows is a form of the step, whose graph is kept beside those of the others."""
    tf1.enable_control_flow_v2() if is_functional else tf1.disable_control_flow_v2()
    x = tf1.placeholder(tf.float32, [None, 8], name="x")
    w = tf1.get_variable("w", initializer=tf.random.stateless_uniform([8, 8], [1, 2]),
                         use_resource=True)
    rows = tf.shape(x)[0]
    _, y = tf1.while_loop(lambda i, _: i * 8 < rows,
                          lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w) * 0.1)),
                          [tf.constant(0), x])
    y = tf1.cond(rows > 20, lambda: tf.nn.softmax(y), lambda: tf.sin(y) * 2.0)
    minimize(tf.reduce_mean(y * y))
    tf1.disable_control_flow_v2()


def many_forms():
    """A layer with more forms than a GPU keeps graphs. What has one is replayed, and the rest does
    not replace it."""
    x = tf1.placeholder(tf.float32, [None, 8], name="x")
    w = tf1.get_variable("w", initializer=tf.random.stateless_uniform([8, 8], [1, 2]),
                         use_resource=True)
    y = tf.tanh(tf.matmul(x, w))
    minimize(tf.reduce_mean(y * y))


def deep():
    """A recurrent layer of 220 steps, each with a product: a training step of more than 1,000
    launches, in which the worker is far ahead of the GPU, and pauses."""
    h = tf.random.stateless_uniform([8, 16], [3, 4])
    w = tf1.get_variable("w", initializer=tf.random.stateless_uniform([16, 16], [1, 2]) * 0.2,
                         use_resource=True)
    for _ in range(220):
        h = tf.tanh(tf.matmul(h, w))
    minimize(tf.reduce_mean(h * h))


# What is trained, the least part of its work that is replayed, and the most graphs of a step: one
# for each 256 parts.
PROGRAMS = {
    "mlp_128": (graphs.mlp(128, 32), 1, 1),
    "mlp_1024": (graphs.mlp(1024, 16), 1, 1),
    "word2vec": (graphs.word2vec(200, 64, 16, 64), 1, 1),
    "lstm": (graphs.lstm(64, 32, 8, False), 1, 1),
    "lstm_functional": (graphs.lstm(64, 32, 8, True), 1, 1),
    "deep": (deep, 1, 5),
    "bert": (network("bert"), 1, 2),
    "resnet50": (network("resnet50"), 1, 2),
    "lstm_attention": (network("lstm_attention"), 1, 3),
    "forms": (forms, 1, 1),
    "forms_functional": (lambda: forms(True), 1, 1),
    "many_forms": (many_forms, 0.85, 1),
}
FORMS = {"forms": (16, 24, 32), "forms_functional": (16, 24, 32),  # rows that are fed in turn
         "many_forms": tuple(range(1, 141))}
IN_SHORT = ("mlp_128", "word2vec", "deep", "forms", "forms_functional")


def counts_of(cluster):
    status = json.loads(cluster.tasks[0].page("/statusz"))
    gpu = next(device for device in status["devices"] if "GPU" in device["name"])
    return {**gpu["counts"], "peak": gpu["memory_peak_bytes"]}


def feeds_of(name, step):
    rows = FORMS.get(name)
    if not rows:
        return {}
    n = rows[step % len(rows)]
    return {"x:0": np.arange(n * 8, dtype=np.float32).reshape(n, 8) / (n * 8)}


def train(name, graph, options, flags):
    """The losses of all steps, what the device counts in each measured step, and the most memory
    that was used."""
    n_forms = len(FORMS.get(name, (1,)))
    plugin = os.path.join(BUILD, "kernels", "cuda", "millrace-cuda.so")
    losses, counted = [], []
    with Cluster(n_ps=0, n_workers=1, worker_flags=["--gpu", "require", "--gpu-plugin", plugin,
                                                    *flags]) as cluster:
        with tf1.Session(cluster.target, graph=graph) as session:
            session.run("init")
            for step in range((options.warm + options.steps) * n_forms):
                before = counts_of(cluster)
                losses.append(session.run(["loss:0", "step"],
                                          feeds_of(name, step))[0].tobytes())
                if step >= options.warm * n_forms:
                    counted.append({key: n - before[key] for key, n in counts_of(cluster).items()})
        cluster.check()
        return losses, counted, counts_of(cluster)["peak"]


def failure(name, options):
    build, least, most_graphs = PROGRAMS[name]
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(1)
        build()
    losses, counted, peak = train(name, graph, options, [])
    expected, _, _ = train(name, graph, options, ["--gpu-graphs", "off"])
    mean = {key: sum(step.get(key, 0) for step in counted) / len(counted) for key in counted[0]}
    print(f"{name:16}" + "".join(f"{mean.get(key, 0):16.4g}" for key in COLUMNS) + f"{peak:12}",
          flush=True)
    if losses != expected:
        return "the losses have other bits without graphs"
    if mean["work_replayed"] < least * mean["work"]:
        return f"{mean['work_replayed']} of {mean['work']} parts of a step are replayed"
    if mean["replays"] > most_graphs:
        return f"a step needs {mean['replays']} graphs, more than {most_graphs}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="all networks")
    parser.add_argument("--only", help="networks whose name holds this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warm", type=int, default=N_WARM, help="steps that are run first")
    parser.add_argument("--steps", type=int, default=N_STEPS, help="steps that are counted")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(TESTS, "sim", "sim_device")):
        print("0 passed, 0 failed, 1 skipped")
        return 0
    names = [name for name in PROGRAMS if not options.only or options.only in name]
    if not options.long and not options.only:
        names = IN_SHORT
    failures = []
    with tempfile.NamedTemporaryFile() as report:
        simulate(options.seed, report.name)
        print(f"{'of a step':16}" + "".join(f"{key:>16}" for key in COLUMNS) + f"{'peak':>12}")
        for name in names:
            problem = failure(name, options)
            failures += [f"{name}: {problem}"] if problem else []
        reported = report.read().decode(errors="replace")
        failures += [f"the simulated device reports: {reported}"] if reported else []
    print("\n".join(failures))
    print(f"{max(len(names) - len(failures), 0)} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
