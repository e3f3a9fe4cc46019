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

PROGRAMS = {"mlp": graphs.mlp(8, 4), "word2vec": graphs.word2vec(20, 4, 6, 5),
            "lstm": graphs.lstm(4, 3, 5, False), "lstm_functional": graphs.lstm(4, 3, 5, True),
            "residual": graphs.residual(12, 4, 2)}

for name, build in PROGRAMS.items():
    with tf.Graph().as_default() as graph:
        build()
    with open(os.path.join(HERE, name + ".pb"), "wb") as file:
        file.write(graph.as_graph_def().SerializeToString(deterministic=True))
