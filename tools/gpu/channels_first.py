"""Cases of convolutions with channels first, which TensorFlow's CPU does not compute: those with
channels last, with transposes around each convolution."""
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

# op: (inputs that are images, input that is an image's shape, whether the output is an image)
OPS = {"Conv2D": ((0,), None, True), "Conv3D": ((0,), None, True),
       "Conv2DBackpropInput": ((2,), 0, True), "Conv3DBackpropInputV2": ((2,), 0, True),
       "Conv2DBackpropFilter": ((0, 2), None, False),
       "Conv3DBackpropFilterV2": ((0, 2), None, False)}
FORMATS = {b"NHWC": (b"NCHW", [0, 3, 1, 2], [0, 2, 3, 1]),
           b"NDHWC": (b"NCDHW", [0, 4, 1, 2, 3], [0, 2, 3, 4, 1])}


def _const(graph, name, values):
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = tf.int32.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.array(values, np.int32)))
    return name


def _op(graph, name, op, inputs, **types):
    node = graph.node.add(name=name, op=op, input=inputs)
    for attr, dtype in types.items():
        node.attr[attr].type = dtype
    return name


def _reorder(values, order, width=1):
    return [values[width * i + j] for i in order for j in range(width)]


def _turn(graph, node):
    """Makes the convolution one with channels first, under another name."""
    name, dtype, int32 = node.name, node.attr["T"].type, tf.int32.as_datatype_enum
    new_format, to_first, to_last = FORMATS[node.attr["data_format"].s]
    images, shape, makes_image = OPS[node.op]
    node.name = name + "/first" if makes_image else name
    for i in images:
        node.input[i] = _op(graph, f"{name}/in{i}", "Transpose",
                            [node.input[i], _const(graph, f"{name}/order{i}", to_first)], T=dtype,
                            Tperm=int32)
    if shape is not None:
        sizes = node.attr["Tshape"].type or int32
        node.input[shape] = _op(graph, f"{name}/sizes", "GatherV2",
                                [node.input[shape], _const(graph, f"{name}/sizes_order", to_first),
                                 _const(graph, f"{name}/axis", 0)], Tparams=sizes, Tindices=int32,
                                Taxis=int32)
    for attr, width in (("strides", 1), ("dilations", 1), ("explicit_paddings", 2)):
        values = list(node.attr[attr].list.i)
        if values:
            node.attr[attr].list.i[:] = _reorder(values, to_first, width)
    node.attr["data_format"].s = new_format
    if makes_image:
        _op(graph, name, "Transpose", [node.name, _const(graph, f"{name}/back", to_last)], T=dtype,
            Tperm=int32)


def channels_first(case):
    """The case with channels first; None if TensorFlow fails, or no convolution is turned. The size
    of an image without its batch and channels has no order to change."""
    if "two sizes" in case["name"]:
        return None
    graph = graph_pb2.GraphDef()
    graph.ParseFromString(case["graph"])
    nodes = [node for node in graph.node
             if node.op in OPS and node.attr["data_format"].s in FORMATS
             and node.attr["T"].type != tf.int32.as_datatype_enum]  # for CPUs
    if not nodes or any(step["code"] for step in case["expected"]):
        return None
    for node in nodes:
        _turn(graph, node)
    return {**case, "name": case["name"] + "/first", "graph": graph.SerializeToString()}
