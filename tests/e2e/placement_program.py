"""Runs two products that do not need each other, without devices, a loop and a variable. Prints as
JSON which tasks computed what, and whether the values are right.

    placement_program.py TARGET [--until-measured URL]

With --until-measured, runs the step until the page at URL has a row of a product.
"""
import json
import sys
import urllib.request

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
SIZE = 1024


def task_of(metadata, name):
    """The task that ran a node; None if none did."""
    for device in metadata.step_stats.dev_stats:
        if any(node.node_name == name for node in device.node_stats):
            return device.device.split("/device:")[0]
    return None


def main(target, page=None):
    tf1.disable_eager_execution()
    x = tf1.placeholder(tf.float32, [SIZE, SIZE], name="x")
    state = tf1.get_variable("state", [], initializer=tf1.zeros_initializer(), use_resource=True)
    left = tf.matmul(x, x, name="left")
    right = tf.matmul(x, x, transpose_a=True, name="right")
    with tf1.device("/job:worker/task:0"):
        asked = tf.matmul(x, x, transpose_b=True, name="asked")
    loop = tf1.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, tf.matmul(v, x)),
                          [tf.constant(0), x])[1]
    counted = tf1.assign_add(state, tf.reduce_sum(right) * 0 + 1)
    value = np.random.RandomState(1).uniform(-0.05, 0.05, (SIZE, SIZE)).astype(np.float32)
    fetches = [left, right, asked, loop, counted]
    with tf1.Session(target) as session:
        session.run(tf1.global_variables_initializer())
        metadata = tf1.RunMetadata()
        got = session.run(fetches, {x: value},
                          options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
                          run_metadata=metadata)
        again = session.run(state)
        while page and "MatMul" not in urllib.request.urlopen(page).read().decode():
            session.run([left, right, asked, loop], {x: value})
    power = value @ value
    expected = [power, value.T @ value, value @ value.T, power @ value @ value, 1]
    print(json.dumps({
        "right values": [bool(np.allclose(a, b, atol=1e-3)) for a, b in zip(got, expected)],
        "state": float(again),
        "tasks": {name: task_of(metadata, name)
                  for name in ("left", "right", "asked", "while/loop_cond")},
    }))


main(sys.argv[1], sys.argv[3] if len(sys.argv) > 3 else None)
