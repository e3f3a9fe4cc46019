"""Runs steps on a cluster until it fails: what test_profile.py captures."""
import os

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
with tf1.device("/job:ps/task:0"):
    v = tf1.get_variable("v", [64, 64])
with tf1.device("/job:worker/task:0"):
    x = tf1.random_uniform([64, 64], name="x")
    total = tf.reduce_sum(tf.linalg.matmul(x, v, name="product"), name="total")
with tf1.Session(os.environ["MILLRACE_TARGET"]) as session:
    session.run(tf1.global_variables_initializer())
    session.run(total)
    print("running", flush=True)
    while True:
        session.run(total)
