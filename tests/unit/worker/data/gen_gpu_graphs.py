"""Writes the graphs of test_plan_gpu.c: training steps as TensorFlow's client makes them, with the
nodes "loss" and "step".

Run once with the project's Python (.venv/bin/python tests/unit/worker/data/gen_gpu_graphs.py); the
output is committed.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))
sys.path.insert(0, os.path.join(ROOT, "tools", "gpu"))

import graphs  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1


def invariants():
    """A loop on the GPU takes a value of the CPU and a constant, and so does the CPU within it."""
    with tf.device("/device:CPU:0"):
        x = tf.random.uniform([8], name="x")
        c = tf.constant([0.5] * 8, name="c")

    def body(i, total, part):
        total = tf.tanh(total * x + c)
        with tf.device("/device:CPU:0"):
            part = tf.math.erf(x + part) * c
        return i + 1, total, part

    _, total, part = tf1.while_loop(lambda i, *_: i < 3, body, [0, tf.zeros([8]), tf.ones([8])])
    tf.reduce_sum(total + part, name="loss")
    tf.no_op(name="step")


PROGRAMS = {"mlp": graphs.mlp(8, 4), "word2vec": graphs.word2vec(20, 4, 6, 5),
            "lstm": graphs.lstm(4, 3, 5, False), "lstm_functional": graphs.lstm(4, 3, 5, True),
            "residual": graphs.residual(12, 4, 2), "invariants": invariants}

for name, build in PROGRAMS.items():
    with tf.Graph().as_default() as graph:
        build()
    with open(os.path.join(HERE, name + ".pb"), "wb") as file:
        file.write(graph.as_graph_def().SerializeToString(deterministic=True))
