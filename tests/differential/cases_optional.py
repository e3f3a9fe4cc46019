"""Optionals: with and without values, sums and zeros of them, and their refusals."""

import numpy as np
import oracle
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, tensor_pb2

R = tf.raw_ops
F = np.float32
ALL = ("float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
       "complex64 complex128 bool string".split())
A, B = np.array([1, 2], F), np.array([3, 4], F)


def some(*values):
    return R.OptionalFromValue(components=[v if isinstance(v, tf.Tensor)
                                           else oracle.const(np.asarray(v)) for v in values])


def value(of, types=("float32",), shapes=None):
    return list(R.OptionalGetValue(optional=of, output_types=[tf.as_dtype(t) for t in types],
                                   output_shapes=shapes or [None] * len(types)))


def has(of):
    return R.OptionalHasValue(optional=of)


def hole():
    """A variant that holds nothing."""
    shape = oracle.const(np.zeros(0, np.int32))
    handle = R.TensorListReserve(element_shape=shape, num_elements=oracle.const(np.int32(1)),
                                 element_dtype=tf.variant)
    return R.TensorListGetItem(input_handle=handle, index=oracle.const(np.int32(0)),
                               element_shape=shape, element_dtype=tf.variant)


def some_list():
    return R.TensorListFromTensor(tensor=oracle.const(np.ones((2, 2), F)),
                                  element_shape=oracle.const(np.array([2], np.int32)))


def _round_trip(dtype, shape):
    def build():
        x, y = (oracle.sample(np.random.default_rng(i), dtype, shape) for i in range(2))
        of = some(oracle.const(x, dtype), oracle.const(y, dtype))
        return value(of, (dtype, dtype)) + [has(of)]

    return build


def _sum(dtype):
    def build():
        x, y = (oracle.const(oracle.sample(np.random.default_rng(i), dtype, (3,)), dtype)
                for i in range(2))
        return value(R.AddN(inputs=[some(x, y), some(y, y)]), (dtype, dtype)) + value(
            R.ZerosLike(x=some(x)), (dtype,))

    return build


PROGRAMS = {
    "none": lambda: [has(R.OptionalNone())],
    "none value": lambda: value(R.OptionalNone()),
    "some": lambda: [has(some(A))] + value(some(A)) + value(some(A), shapes=[[2]])
    + value(some(A), shapes=[[None]]),
    "shape": lambda: value(some(A), shapes=[[3]]),
    "rank": lambda: value(some(A), shapes=[[1, 2]]),
    "dtype": lambda: value(some(A), ("int32",)),
    "fewer": lambda: value(some(A, B)),
    "more": lambda: value(some(A), ("float32", "float32")),
    "second dtype": lambda: value(some(A, B), ("float32", "int32")),
    "has of hole": lambda: [has(hole())],
    "value of hole": lambda: value(hole()),
    "has of list": lambda: [has(some_list())],
    "value of list": lambda: value(some_list()),
    "length of optional": lambda: [R.TensorListLength(input_handle=some(A))],
    "has of vector": lambda: [has(R.Pack(values=[some(A)]))],
    "value of vector": lambda: value(R.Pack(values=[some(A)])),
    "nested": lambda: value(value(some(some(A, B)), ("variant",))[0], ("float32", "float32")),
    "list inside": lambda: [R.TensorListLength(input_handle=value(some(some_list()), ("variant",))[
        0])],
    "inside a list": lambda: value(
        R.TensorListGetItem(
            input_handle=R.TensorListPushBack(input_handle=R.EmptyTensorList(element_shape=-1,
                    max_num_elements=-1, element_dtype=tf.variant), tensor=some(A)),
            index=0,
            element_shape=-1,
            element_dtype=tf.variant,
        )
    ),
    "add": lambda: value(R.AddN(inputs=[some(A), some(B), some(A)])),
    "add one": lambda: value(R.AddN(inputs=[some(A)])),
    "add none none": lambda: [has(R.AddN(inputs=[R.OptionalNone(), R.OptionalNone()]))],
    "add some none": lambda: [has(R.AddN(inputs=[some(A), R.OptionalNone()]))],
    "add none some": lambda: [has(R.AddN(inputs=[R.OptionalNone(), some(A)]))],
    "add sizes": lambda: [has(R.AddN(inputs=[some(A), some(A, B)]))],
    "add dtypes": lambda: [has(R.AddN(inputs=[some(A), some(np.int32(1))]))],
    "add shapes": lambda: [has(R.AddN(inputs=[some(A), some(np.zeros(3, F))]))],
    "add text": lambda: [has(R.AddN(inputs=[some("a"), some("b")]))],
    "add bool": lambda: [has(R.AddN(inputs=[some(True), some(True)]))],
    "add list": lambda: [has(R.AddN(inputs=[some(A), some_list()]))],
    "add nested": lambda: value(value(R.AddN(inputs=[some(some(A)), some(some(B))]),
                                      ("variant",))[0]),
    "add lists inside": lambda: [
        R.TensorListStack(input_handle=value(R.AddN(inputs=[some(some_list()), some(some_list())]),
                                             ("variant",))[0], element_shape=-1,
                          element_dtype=tf.float32)
    ],
    "zeros": lambda: value(R.ZerosLike(x=some(A))),
    "zeros none": lambda: [has(R.ZerosLike(x=R.OptionalNone()))],
    "zeros text": lambda: value(R.ZerosLike(x=some("a")), ("string",)),
    "zeros nested": lambda: value(value(R.ZerosLike(x=some(some(A))), ("variant",))[0]),
    "shared": lambda: (lambda of: value(R.AddN(inputs=[of, of])) + value(of)
                       + value(R.ZerosLike(x=of)))(some(A)),
}


def number(kind, value):
    """A variant of a plain number, as a Const holds it."""
    content = tensor_pb2.TensorProto(dtype=tf.variant.as_datatype_enum, tensor_shape={})
    content.variant_val.add(type_name=kind.encode(), metadata=value.tobytes())
    return tf.constant(1).graph.create_op(
        "Const", [], [tf.variant], attrs={
            "value": attr_value_pb2.AttrValue(tensor=content),
            "dtype": attr_value_pb2.AttrValue(type=content.dtype)}).outputs[0]


NUMBERS = {"int": np.int32(3), "float": np.float32(2.5), "bool": np.bool_(True),
           "double": np.float64(1.5)}


def after(make):
    """Whether it can be made: a client cannot fetch a variant."""

    def build():
        with tf.control_dependencies([make()]):
            return [tf.constant(1) + 1]

    return build


def number_cases():
    for kind, value in NUMBERS.items():
        of = lambda k=kind, v=value: number(k, v)  # noqa: E731
        yield f"number/{kind}/zeros", after(lambda o=of: R.ZerosLike(x=o()))
        yield f"number/{kind}/sum", after(lambda o=of: R.AddN(inputs=[o(), o(), o()]))
        yield f"number/{kind}/zero and number", after(
            lambda o=of: R.AddN(inputs=[R.ZerosLike(x=o()), o()]))
    yield "number/mixed", after(lambda: R.AddN(inputs=[number("int", np.int32(1)),
            number("float", np.float32(1))]))


def cases():
    for dtype in ALL:
        for shape in ((), (3,), (2, 1, 2, 1, 2, 3), (0, 2)):
            yield f"round trip/{dtype}/{shape}", _round_trip(dtype, shape)
        if dtype not in ("bool", "string"):
            yield f"sum/{dtype}", _sum(dtype)
    for name, build in PROGRAMS.items():
        yield f"program/{name}", build
    yield from number_cases()
