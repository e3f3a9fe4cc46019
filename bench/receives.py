#!/usr/bin/env python3
"""Scheduling of receives: how much less memory does a worker need, and does a step take longer?

    bench/receives.py [--rounds N] [--only TEXT] [--size N] [--values N] [--scale X] [--link MB]
                      [--bin DIR]

Each case reads many variables of a parameter server in one step. It runs on two clusters of a
server and a worker over TCP: one whose sessions ask for nothing, and one whose sessions set
GraphOptions.enable_recv_scheduling. late_steps.py explains the columns and flags."""
from late_steps import main
from placement import tf, tf1


def variables(arguments):
    with tf.device("/job:ps"):
        return [tf1.get_variable(f"w{i}", [arguments.size, arguments.size],
                                 initializer=tf1.random_normal_initializer(stddev=0.03, seed=i),
                                 use_resource=True) for i in range(arguments.values)]


def wide(arguments, x):
    """Each variable is used by itself."""
    return tf.add_n([tf.reduce_sum(tf.matmul(x, w)) for w in variables(arguments)])


def layers(arguments, x):
    """A network whose layers need one variable each."""
    for w in variables(arguments):
        x = tf.nn.relu(tf.matmul(x, w))
    return tf.reduce_sum(x)


def training(arguments, x):
    """The network's training step: a variable is needed again for its gradient."""
    loss = layers(arguments, x)
    with tf.control_dependencies([tf1.train.GradientDescentOptimizer(1e-9).minimize(loss)]):
        return tf.identity(loss)


if __name__ == "__main__":
    main(__doc__, {"wide": wide, "layers": layers, "training": training}, ("ps", "worker"),
         size=1024, values=24)
