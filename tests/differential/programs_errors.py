"""Programs that fail: the same code, the same node, and the key words of TensorFlow's messages that
its own tests look for."""

import numpy as np
from programs import PS, WORKER1, Run, tf, tf1

R = tf.raw_ops


def _dynamic(value, dtype=None):
    """A value whose shape is unknown to the client, so that the mistake is found at run time."""
    return tf1.placeholder_with_default(tf.constant(value, dtype), None)


def _uninitialized(resource):
    def build():
        with tf.device(PS):
            v = tf1.get_variable("v", initializer=1.0, use_resource=resource)
        with tf.device(WORKER1):
            y = tf.add(v, 1.0, name="y")
        return [Run(v), Run(y), Run(tf1.assign_add(v, 1.0))]

    return build


def _one(make, device=PS):
    def build():
        with tf.device(device):
            return [Run(make()), Run(make())]

    return build


def _then_works():
    """A session goes on after errors, and the graph after an error in another part."""
    x = tf1.placeholder(tf.int32, [])
    y = tf.constant(10) // x
    z = tf.constant([1, 2, 3])[x]
    return [Run(y, {x: 0}), Run(y, {x: 5}), Run(z, {x: 7}), Run(z, {x: 1}), Run([y, z], {x: 0}),
            Run([y, z], {x: 2})]


def _first_error_wins():
    """Tasks that wait for the failed one end with its error."""
    with tf.device(PS):
        x = tf1.placeholder_with_default(0, [], name="x")
        bad = tf.math.floordiv(1, x, name="bad")
    with tf.device(WORKER1):
        far = tf.add(bad, 1, name="far")
    with tf.device("/job:worker/task:0"):
        further = tf.add(far, 1, name="further")
    return [Run([further, far]), Run(further, {x: 1}), Run(further)]


def _bad_device():
    with tf.device("/job:nowhere/task:7"):
        a = tf.constant(1.0, name="a") + _dynamic(1.0)
    return [Run(a)]


def _no_gpu():
    with tf.device("/job:ps/task:0/device:GPU:0"):
        a = tf.add(_dynamic(1.0), 1.0, name="a")
    return [Run(a)]


ERRORS = {
    "matmul_shapes": (lambda: tf.matmul(_dynamic(np.ones([2, 3])), _dynamic(np.ones([2, 3])),
                                        name="e"), "Matrix size-incompatible|In\\[0\\] mismatch"),
    "add_shapes": (lambda: tf.add(_dynamic([1.0, 2.0]), _dynamic([1.0, 2.0, 3.0]), name="e"),
                   "[Ii]ncompatible shapes"),
    "reshape_size": (lambda: tf.reshape(_dynamic([1.0, 2.0]), [3], name="e"),
                     "Input to reshape is a tensor with 2 values, but the requested shape has 3"),
    "gather_range": (lambda: tf.gather(_dynamic([1.0, 2.0]), _dynamic([0, 5]), name="e"),
                     r"indices\[1\] = 5 is not in \[0, 2\)"),
    "divide_by_zero": (lambda: tf.math.floordiv(_dynamic(1), _dynamic(0), name="e"),
                       "[Dd]ivi[a-z]+ by zero"),
    "mod_by_zero": (lambda: tf.math.floormod(_dynamic(1), _dynamic(0), name="e"),
                    "[Dd]ivi[a-z]+ by zero"),
    "concat_shapes": (lambda: tf.concat([_dynamic([[1.0, 2.0]]), _dynamic([[1.0], [2.0]])], 0,
                                        name="e"), "Dimension"),
    "slice_range": (lambda: tf.slice(_dynamic([1.0, 2.0]), [1], [5], name="e"),
                    "Expected size\\[0\\] in \\[0, 1\\]"),
    "strided_slice_range": (lambda: R.StridedSlice(input=_dynamic([1.0, 2.0]), begin=[5], end=[6],
            strides=[1], shrink_axis_mask=1, name="e"),
                            "slice index 5 of dimension 0 out of bounds"),
    "split_size": (lambda: R.Split(axis=0, value=_dynamic([1.0, 2.0, 3.0]), num_split=2,
                                   name="e")[0], "Number of ways to split should evenly divide"),
    "unpack_size": (lambda: tf.unstack(_dynamic([1.0, 2.0, 3.0]), num=2, name="e"), None),
    "squeeze": (lambda: tf.squeeze(_dynamic([1.0, 2.0]), [0], name="e"),
                "Can not squeeze dim\\[0\\], expected a dimension of 1, got 2|Tried to explicitly "
                "squeeze dimension 0 but dimension was not 1: 2"),
    "transpose": (lambda: tf.transpose(_dynamic([[1.0]]), _dynamic([0, 0]), name="e"), None),
    "check_numerics": (lambda: R.CheckNumerics(tensor=_dynamic([1.0, float("nan")]),
                                               message="look here", name="e"),
                       "look here : Tensor had NaN values"),
    "assert": (lambda: tf1.Assert(_dynamic(False), ["the data", 7], name="e"),
               "assertion failed: .*the data"),
    "one_hot_depth": (lambda: tf.one_hot(_dynamic([1]), _dynamic(-1), name="e"),
                      "depth must be non-negative"),
    "segment_sum": (lambda: tf.math.segment_sum(_dynamic([1.0, 2.0]), _dynamic([1, 0]), name="e"),
                    "segment ids are not increasing"),
    "fill_negative": (lambda: tf.fill(_dynamic([-1]), 1.0, name="e"), None),
    "cast_string": (lambda: tf.strings.to_number(_dynamic(["a"]), name="e"),
                    "StringToNumberOp could not correctly convert string"),
    "bias_add": (lambda: tf.nn.bias_add(_dynamic([[1.0, 2.0]]), _dynamic([1.0]), name="e"),
                 "Must provide as many biases as the last dimension"),
    "softmax_labels": (lambda: R.SparseSoftmaxCrossEntropyWithLogits(
        features=_dynamic([[1.0, 2.0]]), labels=_dynamic([7]), name="e").loss,
                       "Received a label value of 7 which is outside the valid range of \\[0, "
                       "2\\)"),
    "not_scalar_predicate": (lambda: R.Switch(data=1.0, pred=_dynamic([True, False]),
                                              name="e").output_true, None),
    "range_delta": (lambda: tf.range(_dynamic(0), 5, _dynamic(0), name="e"), "Requires delta != 0"),
    "tile": (lambda: tf.tile(_dynamic([1.0]), _dynamic([1, 2]), name="e"),
             "Expected multiples argument to be a vector of length 1"),
    "pad": (lambda: tf.pad(_dynamic([1.0]), _dynamic([[1, 1], [1, 1]]), name="e"), None),
    "where_shapes": (lambda: R.SelectV2(condition=_dynamic([True, False]),
                                        t=_dynamic([1.0, 2.0, 3.0]), e=_dynamic([1.0]), name="e"),
                     None),
    "reduce_axis": (lambda: R.Sum(input=_dynamic([1.0]), axis=_dynamic(3), name="e"),
                    "Invalid reduction dimension"),
    "expand_dims": (lambda: tf.expand_dims(_dynamic([1.0]), _dynamic(5), name="e"), None),
    "broadcast_to": (lambda: tf.broadcast_to(_dynamic([1.0, 2.0]), _dynamic([3]), name="e"), None),
    "argmax_axis": (lambda: tf.argmax(_dynamic([1.0]), _dynamic(4), name="e"), None),
    "scatter_nd": (lambda: tf.scatter_nd(_dynamic([[7]]), _dynamic([1.0]), _dynamic([3]), name="e"),
                   None),
    "placeholder": (lambda: tf1.placeholder(tf.float32, [2], name="e") + 1,
                    "You must feed a value for placeholder tensor 'e(_1)?' with dtype float"),
}  # fmt: skip


def cases():
    for kind in ("ref", "resource"):
        yield f"error/uninitialized/{kind}", _uninitialized(kind == "resource")
    for name, (make, message) in ERRORS.items():
        yield f"error/{name}", _one(make), {**({"message": message} if message else {}),
                                            **({"needs": "CheckNumerics"} if name
                                               == "check_numerics" else {})}
    yield "error/session_goes_on", _then_works
    yield "error/first_error_wins", _first_error_wins
    yield "error/no_such_job", _bad_device, {"cluster_error": (tf.errors.InvalidArgumentError,
            "Could not satisfy explicit device specification|was explicitly assigned to")}
    yield "error/no_such_device", _no_gpu, {"cluster_error": (tf.errors.InvalidArgumentError,
            "was explicitly assigned to|Could not satisfy|no supported kernel")}
