"""Kills a worker of a session, then runs a signature that is new to the session and could use both
workers. Prints as JSON on which tasks its products ran.

    away_program.py TARGET PID
"""
import json
import os
import signal
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
N_PRODUCTS, SIDE = 8, 512


def task_of_products(metadata):
    return sorted({device.device.split("/device:")[0] for device in metadata.step_stats.dev_stats
                   if any(node.node_name.startswith("product") for node in device.node_stats)})


def main(target, pid):
    tf1.disable_eager_execution()
    x = tf1.placeholder(tf.float32, [SIDE, SIDE])
    with tf1.device("/job:worker/task:1"):
        there = tf.identity(x)
    products = [tf.matmul(x * float(i), x, name=f"product{i}") for i in range(N_PRODUCTS)]
    feed = {x: np.ones([SIDE, SIDE], np.float32)}
    metadata, options = tf1.RunMetadata(), tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    with tf1.Session(target) as session:
        session.run(there, feed)
        os.kill(pid, signal.SIGKILL)
        while True:  # until the master knows
            try:
                session.run(there, feed)
            except tf.errors.UnavailableError:
                break
        session.run([tf.reduce_sum(product) for product in products], feed, options, metadata)
    print(json.dumps(task_of_products(metadata)))


main(sys.argv[1], int(sys.argv[2]))
