"""The group that a device is in. The exchanges themselves are in programs_collective.py: in process
TensorFlow cannot run them."""

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops


def const(value):
    return oracle.const(np.asarray(value, np.int32))


def assign(groups, device, base=7):
    return lambda: list(R.CollectiveAssignGroupV2(
        group_assignment=const(groups), device_index=const(device), base_key=const(base)))


def cases():
    for groups, device in (([[0, 1], [2, 3]], 2), ([[0, 1, 2]], 0), ([[0], [1], [2]], 2),
                           ([[0, 1]], 5), ([0, 1], 0), ([[0, 1]], [1])):
        yield f"CollectiveAssignGroupV2/{groups}/{device}", assign(groups, device)
