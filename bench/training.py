#!/usr/bin/env python3
"""A training step of whole networks: TensorFlow in this process, TensorFlow's own cluster, and
ours, side by side in one run.

    .venv/bin/python bench/training.py [--rounds N] [--only TEXT] [--json FILE]

The networks are those of examples/ (LeNet, the residual network on digits) and the LSTM of
compare.py. In process TensorFlow sends no message and copies no variable: what a cluster's step
costs beyond it is messages. Each round measures every way in turn; a figure is the least mean of a
round, since other load only adds to it. Ratios are TensorFlow's time ÷ ours.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "examples")]

import compare  # noqa: E402


def lenet(tf, tf1, np, on_cluster):
    import lenet as network

    x, y, _, _ = network.load_digits()
    images, labels, loss, train, _ = network.build(on_cluster)
    call = tf1.global_variables_initializer()
    return call, [loss, train], {images: x[: network.BATCH], labels: y[: network.BATCH]}


def resnet(tf, tf1, np, on_cluster):
    import common
    import resnet_digits as network

    training = network.build(common.Place("cluster" if on_cluster else ""), network.load_digits())
    return tf1.global_variables_initializer(), [training.loss, training.train], training.feed(0)


def lstm(tf, tf1, np, on_cluster):
    initializers, make = compare.build_lstm(tf, tf1, np)

    class Recorder:
        """Keeps what compare.py asks a session for."""

        def make_callable(self, fetches, feeds):
            self.fetches, self.feeds = fetches, feeds
            return lambda value: setattr(self, "value", value)

    recorder = Recorder()
    make(recorder)()
    return initializers, recorder.fetches, {recorder.feeds[0]: recorder.value}


NETWORKS = {"LeNet": (lenet, 10), "residual network": (resnet, 4), "LSTM": (lstm, 4)}


def session_of(tf, tf1, np, build, target):
    graph = tf.Graph()
    with graph.as_default():
        if target:
            initializers, fetches, feeds = build(tf, tf1, np, True)
        else:
            # compare.py's programs name tasks: all are this process
            with tf1.device(lambda _: "/cpu:0"):
                initializers, fetches, feeds = build(tf, tf1, np, False)
            for op in graph.get_operations():
                op._set_device("/device:CPU:0")  # noqa: SLF001
        session = tf1.Session(target, graph=graph, config=compare.config(tf1))
        session.run(initializers)
        keys, values = list(feeds), list(feeds.values())
        step = session.make_callable(fetches, keys)
    return lambda: step(*values)


def main():
    parser = argparse.ArgumentParser(description="training steps beside TensorFlow's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    import numpy as np
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    tf1.disable_control_flow_v2()
    clusters, results = [compare.TensorFlowCluster(), compare.MillraceCluster()], []
    print(f"{'network':20} {'in process':>12} {'TF cluster':>12} {'Millrace':>12} "
          f"{'÷ in process':>13} {'÷ cluster':>10}")
    for name, (build, n) in NETWORKS.items():
        if arguments.only not in name:
            continue
        steps = [session_of(tf, tf1, np, build, target)
                 for target in ("", clusters[0].target, clusters[1].target)]
        least = [float("inf")] * 3
        for step in steps:
            compare.measure(step, 5)
        for _ in range(arguments.rounds):
            for i, step in enumerate(steps):
                began = time.perf_counter()
                for _ in range(n):
                    step()
                least[i] = min(least[i], (time.perf_counter() - began) / n)
        inside, theirs, ours = (t * 1e3 for t in least)
        results.append({"network": name, "in_process_ms": inside, "tensorflow_cluster_ms": theirs,
                        "millrace_ms": ours})
        print(f"{name:20} {inside:9.2f} ms {theirs:9.2f} ms {ours:9.2f} ms {inside / ours:13.2f} "
              f"{theirs / ours:10.2f}", flush=True)
        for cluster in clusters:
            tf1.Session.reset(cluster.target)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    for cluster in clusters:
        cluster.stop()
    sys.stdout.flush()
    os._exit(0)  # TensorFlow's sessions block for ever when their server is gone


if __name__ == "__main__":
    main()
