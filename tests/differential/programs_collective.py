"""Collectives of a group of one device. TensorFlow cannot run them in process, so another graph
gives the expected values. Larger groups are refused by name."""

import itertools

import numpy as np
from programs import WORKER0, Run, tf, tf1

R = tf.raw_ops
KEYS = itertools.count(1)
REDUCE = {"merge_op": "Add", "final_op": "Div"}


def value(dtype, shape=(2, 3)):
    return tf.cast(np.arange(int(np.prod(shape))).reshape(shape), dtype)


def first(op, dtype, size=1, **attrs):
    with tf.device(WORKER0):
        return [Run(op(input=value(dtype), group_size=size, group_key=next(KEYS),
                       instance_key=next(KEYS), **attrs))]


def second(op, dtype, size=1, **attrs):
    with tf.device(WORKER0):
        fed = tf1.placeholder(tf.int32, [])
        return [Run(op(input=value(dtype), group_size=fed, group_key=next(KEYS),
                       instance_key=next(KEYS), **attrs), {fed: size})]


TOKENS = {"ordering_token": []}
OPS = {
    "reduce": (first, R.CollectiveReduce, {"subdiv_offsets": [0], **REDUCE}),
    "gather": (first, R.CollectiveGather, {"shape": [2, 3]}),
    "send": (first, R.CollectiveBcastSend, {"shape": [2, 3]}),
    "reduce v2": (second, R.CollectiveReduceV2, {**TOKENS, **REDUCE}),
    "gather v2": (second, R.CollectiveGatherV2, TOKENS),
    "scatter v2": (second, R.CollectiveReduceScatterV2, {**TOKENS, **REDUCE}),
    "all to all v2": (second, R.CollectiveAllToAllV2, TOKENS),
    "send v2": (second, R.CollectiveBcastSendV2, {}),
}


def cases():
    for name, (make, op, attrs) in OPS.items():
        for dtype in ("float32", "float64", "float16", "int32", "int64"):
            yield (f"collective/{name}/{dtype}",
                   lambda m=make, o=op, a=attrs, d=dtype: m(o, d, **a),
                   {"oracle": lambda d=dtype: [Run(value(d))]})
        yield (f"collective/{name}/two", lambda m=make, o=op, a=attrs: m(o, "float32", 2, **a),
               {"cluster_error": (tf.errors.UnimplementedError, "groups of one")})
        yield (f"collective/{name}/none", lambda m=make, o=op, a=attrs: m(o, "float32", 0, **a),
               {"cluster_error": (tf.errors.InvalidArgumentError, "positive integer")})
