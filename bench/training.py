#!/usr/bin/env python3
"""A training step of whole networks: TensorFlow in this process, TensorFlow's own cluster, and
ours, side by side in one run.

    .venv/bin/python bench/training.py [--rounds N] [--only TEXT] [--json FILE]

The networks stand in networks.py. The first three run whole on one worker; the others, those of
examples/ and the LSTM of compare.py, keep their variables on a ps. In process TensorFlow sends no
message and copies no variable: what a cluster's step costs beyond it is messages. All run with
their defaults, so TensorFlow rewrites its graphs. Each round measures every way in turn; a figure
is the least mean of a round, since other load only adds to it. Ratios are TensorFlow's time ÷ ours;
the aim is the least ratio to TensorFlow in process that the project accepts.
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


def on_worker(build):
    def placed(tf, tf1, np, on_cluster):
        with tf1.device(networks.WORKER if on_cluster else None):
            return build(tf, tf1, np)

    return placed


# name: what builds it, the steps of a round, the aim
NETWORKS = {
    "LeNet": (on_worker(networks.lenet), 8, 1.5),
    "residual network": (on_worker(networks.residual), 3, 1.5),
    "encoder": (on_worker(networks.encoder), 2, 1.3),
    "LeNet on digits, ps": (networks.lenet_on_digits, 10, None),
    "residual on digits, ps": (networks.residual_on_digits, 4, None),
    "LSTM, ps": (lambda tf, tf1, np, _: compare.build_lstm(tf, tf1, np), 4, None),
}


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
        session = tf1.Session(target, graph=graph)
        session.run(initializers)
        return compare.call_of(session, fetches, feeds)


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
    print(f"{'network':22} {'in process':>12} {'TF cluster':>12} {'Millrace':>12} "
          f"{'÷ in process':>13} {'÷ cluster':>10} {'aim':>5}")
    for name, (build, n, aim) in NETWORKS.items():
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
                        "millrace_ms": ours, "aim": aim})
        print(f"{name:22} {inside:9.2f} ms {theirs:9.2f} ms {ours:9.2f} ms {inside / ours:13.2f} "
              f"{theirs / ours:10.2f} {aim or '':>5}", flush=True)
        for cluster in clusters:
            tf1.Session.reset(cluster.target)
    compare.report_and_exit(arguments.json, results, clusters)


if __name__ == "__main__":
    main()
