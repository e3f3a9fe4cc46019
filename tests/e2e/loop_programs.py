"""Loops of millions of iterations, for test_loops.py, which looks at the daemons' memory meanwhile.

    loop_programs.py TARGET     "KIND N" a line on stdin, what the loop came to a line on stdout
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


def scalar(n):
    return tf1.while_loop(lambda i, s: i < n, lambda i, s: [i + 1, s + tf.cast(i % 7, tf.int64)],
                          [0, tf.constant(0, tf.int64)])[1]


def vector(n):
    """Each iteration has a value of its own that lies in memory."""
    return tf.reduce_max(tf1.while_loop(lambda i, x: i < n, lambda i,
                                        x: [i + 1, tf.minimum(x + 1.0, 1e6)],
                                        [0, tf.zeros([1000])])[1])


def nested(n):
    def inner(i, s):
        return i + 1, s + tf1.while_loop(lambda j, t: j < 10, lambda j, t: [j + 1, t + 1],
                                         [0, tf.constant(0, tf.int64)])[1]

    return tf1.while_loop(lambda i, s: i < n // 10, inner, [0, tf.constant(0, tf.int64)])[1]


def across(n):
    """An iteration in a hundred's share: two messages each."""

    def body(i, s):
        with tf.device(PS):
            t = s + 1
        return i + 1, t

    with tf.device(WORKER):
        return tf1.while_loop(lambda i, s: i < n // 100, body, [0, tf.constant(0, tf.int64)])[1]


def made(kind, n, is_functional):
    (tf1.enable_control_flow_v2 if is_functional else tf1.disable_control_flow_v2)()
    with tf.device(WORKER):
        return {"scalar": scalar, "vector": vector, "nested": nested, "across": across}[kind](n)


n = tf1.placeholder(tf.int32, [])
loops = {f"{kind}{'_function' if is_functional else ''}": made(kind, n, is_functional)
         for kind in ("scalar", "vector", "nested", "across")
         for is_functional in (False, True)}  # fmt: skip
session = tf1.Session(sys.argv[1])
print(*loops, flush=True)
for line in sys.stdin:
    name, count = line.split()
    print(session.run(loops[name], {n: int(count)}), flush=True)
os._exit(0)
