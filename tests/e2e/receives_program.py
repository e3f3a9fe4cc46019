"""Runs a network whose layers are on a parameter server, first in a session that asks for late
receives and then in one that does not. Prints as JSON the most tensor memory that the worker had
held after either, and the results.

    receives_program.py TARGET STATUS_PAGE
"""
import json
import sys
import urllib.request

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
SIZE, LAYERS, STEPS = 512, 24, 5


def peak_bytes(page):
    with urllib.request.urlopen(page) as reply:
        return json.load(reply)["devices"][0]["memory_peak_bytes"]


def main(target, page):
    tf1.disable_eager_execution()
    with tf.device("/job:ps"):
        weights = [tf1.get_variable(f"w{i}", [SIZE, SIZE], use_resource=True,
                                    initializer=tf1.random_normal_initializer(0.0, 0.04, seed=i))
                   for i in range(LAYERS)]
    with tf.device("/job:worker"):
        x = tf1.placeholder(tf.float32, [SIZE, SIZE])
        y = x
        for w in weights:
            y = tf.matmul(y, w)
        total = tf.reduce_sum(tf.abs(y))
    rows = np.random.default_rng(1).standard_normal((SIZE, SIZE), np.float32)
    result = {"before": 0, "late": 0, "at once": 0, "totals": []}
    for is_late in (True, False):
        config = tf1.ConfigProto()
        config.graph_options.enable_recv_scheduling = is_late
        with tf1.Session(target, config=config) as session:
            if is_late:
                session.run(tf1.global_variables_initializer())
                result["before"] = peak_bytes(page)
            result["totals"] += [float(session.run(total, {x: rows})) for _ in range(STEPS)]
            result["late" if is_late else "at once"] = peak_bytes(page)
    print(json.dumps(result))


main(*sys.argv[1:])
