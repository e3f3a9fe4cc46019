"""Writes graph.pb (b = 2 · a) and a.npy into the current folder, for the blocks of README.md that
run a graph."""
import numpy
import tensorflow as tf

with tf.Graph().as_default() as graph:
    a = tf.compat.v1.placeholder(tf.float32, [3], name="a")
    tf.multiply(a, 2.0, name="b")
with open("graph.pb", "wb") as f:
    f.write(graph.as_graph_def().SerializeToString())
numpy.save("a.npy", numpy.float32([1, 2, 3]))
