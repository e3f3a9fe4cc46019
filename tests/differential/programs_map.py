"""MapDefun: functions of rows."""

import numpy as np
from programs import WORKER0, Run, tf, tf1

R = tf.raw_ops


def of_rows(function, arguments, captured=(), types=(tf.int32,), shapes=((),)):
    def build():
        inputs = [tf1.placeholder_with_default(tf.constant(value), None)
                  for value in (*arguments, *captured)]
        concrete = tf.function(function).get_concrete_function(
            *[tf.TensorSpec(None, x.dtype) for x in inputs])
        n = len(arguments)
        with tf.device(WORKER0):
            out = R.MapDefun(arguments=inputs[:n], captured_inputs=inputs[n:],
                             output_types=list(types), output_shapes=list(shapes), f=concrete)
        return [Run(list(out))]

    return build


def i32(*values):
    return np.array(values, np.int32)


def looped(x):
    return tf.while_loop(lambda i, s: i < x, lambda i, s: (i + 1, s + i), [0, 0])[1]


CASES = {
    "plus one": of_rows(lambda x: x + 1, [i32(1, 2, 3)]),
    "many": of_rows(lambda x: x * x, [np.arange(1000, dtype=np.int32)]),
    "matrices": of_rows(lambda x: tf.transpose(x), [np.arange(24, dtype=np.int32).reshape(2, 3, 4)],
                        shapes=((4, 3),)),
    "two and two": of_rows(lambda x, y: (x + y, tf.cast(x, tf.float32)), [i32(1, 2), i32(3, 4)],
                           types=(tf.int32, tf.float32), shapes=((), ())),
    "captured": of_rows(lambda x, k: x * k, [i32(1, 2)], [i32(10)[0]]),
    "strings": of_rows(lambda x: tf.strings.join([x, "!"]), [np.array([b"a", b"b" * 30])],
                       types=(tf.string,)),
    "a loop inside": of_rows(looped, [i32(5, 0, 7)]),
    "no rows": of_rows(lambda x: x + 1, [np.zeros((0, 2), np.int32)], shapes=((2,),)),
    "shape in part": of_rows(lambda x: tf.stack([x, x]), [i32(1, 2)], shapes=((None,),)),
    "shape unknown": of_rows(lambda x: tf.stack([x, x]), [i32(1, 2)], shapes=(None,)),
    "a scalar": of_rows(lambda x: x, [i32(1)[0]]),
    "rows differ": of_rows(lambda x, y: x + y, [i32(1), i32(1, 2)]),
}
OTHER_NODES = {  # TensorFlow names a node inside of the function, or none
    "type differs": of_rows(lambda x: tf.cast(x, tf.float32), [i32(1, 2)]),
    "no rows of unknown shape": of_rows(lambda x: x + 1, [np.zeros((0, 2), np.int32)],
                                        shapes=(None,)),
    "shape differs": of_rows(lambda x: tf.stack([x, x]), [i32(1, 2)]),
    "shapes differ": of_rows(lambda x: tf.range(x), [i32(1, 1, 2)], shapes=((None,),)),
    "fails": of_rows(lambda x: R.Reshape(tensor=x, shape=[2]), [i32(1, 2)], shapes=((2,),)),
}


def cases():
    for name, build in CASES.items():
        yield f"map/{name}", build
    for name, build in OTHER_NODES.items():
        yield f"map/{name}", build, {"node": False}
