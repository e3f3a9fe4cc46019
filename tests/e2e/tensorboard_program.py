"""The program of test_tensorboard.py: a run on a cluster that writes what TensorBoard shows."""
import os
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
TARGET, LOGDIR = os.environ["MILLRACE_TARGET"], sys.argv[1]

with tf1.device("/job:ps/task:0"):
    weights = tf1.get_variable("weights", [4, 1], initializer=tf1.zeros_initializer())
with tf1.device("/job:worker/task:0"):
    x = tf1.placeholder(tf.float32, [None, 4], name="x")
    y = tf1.placeholder(tf.float32, [None, 1], name="y")
    error = tf.reduce_mean(tf.square(tf.linalg.matmul(x, weights) - y), name="error")
    tf1.summary.scalar("loss", error)
    tf1.summary.histogram("weights", weights)
    tf1.summary.image("inputs", tf.reshape(tf.abs(x[:16]), [1, 8, 8, 1]))
train = tf1.train.GradientDescentOptimizer(0.1).minimize(error)
merged = tf1.summary.merge_all()

rng = np.random.default_rng(1)
inputs = rng.normal(size=(32, 4)).astype("float32")
wanted = inputs @ np.array([[1], [-2], [3], [0.5]], "float32")
feeds = {x: inputs, y: wanted}
with tf1.Session(TARGET) as session, tf1.summary.FileWriter(LOGDIR) as writer:
    session.run(tf1.global_variables_initializer())
    for step in range(20):
        options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE if step == 10 else 0,
                                 output_partition_graphs=step == 10)
        metadata = tf1.RunMetadata()
        summary, _ = session.run([merged, train], feeds, options=options, run_metadata=metadata)
        writer.add_summary(summary, step)
        if step == 10:
            writer.add_run_metadata(metadata, "step 10", step)
    writer.add_graph(session.graph)
