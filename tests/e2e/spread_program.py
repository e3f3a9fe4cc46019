"""Trains a layer of variables without devices in sessions that choose their placement. Prints as
JSON which tasks held the variables, the losses, and what the master said of an unknown placement.

    spread_program.py TARGET
"""
import json
import sys

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def config_of(**wishes):
    config = tf1.ConfigProto(log_device_placement=True)
    ours = config.graph_options.rewrite_options.custom_optimizers.add()
    ours.name = "millrace"
    for name, value in wishes.items():
        ours.parameter_map[name].s = value.encode()
    return config


def losses_and_tasks(target, config):
    with tf.Graph().as_default():
        tf1.set_random_seed(1)
        x = tf.constant(np.random.RandomState(1).uniform(size=(8, 64)).astype(np.float32))
        with tf1.variable_scope("net", use_resource=False):
            wide = tf1.get_variable("wide", [64, 256], initializer=tf1.ones_initializer())
            narrow = tf1.get_variable("narrow", [256, 1], initializer=tf1.ones_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(tf.matmul(x, wide), narrow)))
        train = tf1.train.MomentumOptimizer(1e-7, 0.9).minimize(loss)
        init = tf1.global_variables_initializer()
        with tf1.Session(target, config=config) as session:
            metadata = tf1.RunMetadata()
            session.run(init, options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
                        run_metadata=metadata)
            losses = [float(session.run([loss, train])[0]) for _ in range(3)]
            tasks = {node.node_name: device.device.split("/device:")[0]
                     for device in metadata.step_stats.dev_stats for node in device.node_stats}
            return losses, {name: tasks[f"net/{name}/Assign"] for name in ("wide", "narrow")}


def refused(target, **wishes):
    try:
        with tf.Graph().as_default(), tf1.Session(target, config=config_of(**wishes)) as session:
            session.run(tf.constant(1))
    except tf.errors.InvalidArgumentError as error:
        return error.message
    return None


def main(target):
    tf1.disable_eager_execution()
    plain, plain_tasks = losses_and_tasks(target, None)
    spread, spread_tasks = losses_and_tasks(target, config_of(placement="spread"))
    print(json.dumps({
        "losses agree": bool(np.allclose(plain, spread)), "losses fall": plain[2] < plain[0],
        "simple": plain_tasks, "spread": spread_tasks,
        "unknown placement": refused(target, placement="elsewhere"),
        "unknown wish": refused(target, colour="blue")}))


main(sys.argv[1])
