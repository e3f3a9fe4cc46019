"""What test_narrow_sends.py runs on a cluster: do values cross between tasks whole, or cut to 16
bits? A line of JSON: by what the client asks for, by kind of edge."""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_eager_execution()
WHOLE = np.random.RandomState(0).randn(1000, 40).astype(np.float32)
CUT = (WHOLE.view(np.uint32) & 0xFFFF0000).view(np.float32)


def build():
    with tf.device("/job:ps/task:0"):
        ref, resource = tf.Variable(WHOLE, use_resource=False), tf.Variable(
            WHOLE, use_resource=True)
        double = tf.Variable(WHOLE.astype(np.float64))
    with tf.device("/job:worker/task:0"):
        by_loop = tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, resource + 0.0),
                                [0, tf.zeros(WHOLE.shape)])[1]
        return {"ref": ref + 0.0, "resource": resource * 1.0, "loop": by_loop,
                "double": tf.cast(double + 0.0, tf.float32)}


def main():
    values, result = build(), {}
    for asked in (False, True):
        config = tf.ConfigProto()
        config.graph_options.enable_bfloat16_sendrecv = asked
        with tf.Session(sys.argv[1], config=config) as session:
            session.run(tf.global_variables_initializer())
            got = session.run(values)
        result["asked" if asked else "not asked"] = {
            name: "whole" if np.array_equal(v, WHOLE) else "cut" if np.array_equal(v, CUT)
            else "wrong" for name, v in got.items()}
    print(json.dumps(result))


main()
