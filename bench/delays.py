#!/usr/bin/env python3
"""Large values made late: how much less memory does a worker need, and does a step take longer?

    bench/delays.py [--rounds N] [--only TEXT] [--size N] [--values N] [--scale X] [--bin DIR]

Each case makes many large values of little (Fill, OneHot). It runs on two workers, each with a
master of its own: one whose session asks for nothing, and one whose session sets
GraphOptions.enable_recv_scheduling. late_steps.py explains the columns and flags."""
import numpy as np
from late_steps import main
from placement import tf


def fill(arguments, i):
    return tf.fill([arguments.size, arguments.size], np.float32(1 / (i + 8)))


def fills(arguments, x):
    """Layers whose weights are constants."""
    for i in range(arguments.values):
        x = tf.matmul(x, fill(arguments, i))
    return tf.reduce_sum(x)


def wide(arguments, x):
    """The same products beside each other: nothing is delayed."""
    return tf.add_n([tf.reduce_sum(tf.matmul(x, fill(arguments, i)))
                     for i in range(arguments.values)])


def one_hot(arguments, x):
    """Rows of a matrix, picked by products with rows of one 1."""
    ids = tf.cast(tf.math.abs(tf.reduce_sum(x[:1], 0)), tf.int32)
    for i in range(arguments.values):
        x = tf.matmul(x, tf.one_hot(ids + i, arguments.size))
    return tf.reduce_sum(x)


if __name__ == "__main__":
    main(__doc__, {"fills": fills, "wide": wide, "one-hot": one_hot}, ("worker",), size=2048,
         values=12)
