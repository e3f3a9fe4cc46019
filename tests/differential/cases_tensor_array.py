"""TensorArrays: write, read, gather, scatter, concat, split, gradients, and their refusals."""

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
Step = oracle.Step
NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
           "uint16", "uint32", "uint64", "complex64", "complex128")
ALL = NUMBERS + ("bool", "string")
F = np.float32


class Array:
    def __init__(self, size=3, dtype="float32", **attrs):
        self.dtype = tf.as_dtype(dtype)
        self.handle, self.flow = R.TensorArrayV3(
            size=oracle.const(np.asarray(size, np.int32)), dtype=self.dtype, **attrs)

    def of(self, handle, flow):
        other = object.__new__(Array)
        other.dtype, other.handle, other.flow = self.dtype, handle, flow
        return other

    def write(self, index, value, dtype=None):
        value = oracle.const(np.asarray(value) if isinstance(value, np.ndarray)
                             else np.asarray(value, self.dtype.as_numpy_dtype), dtype)
        self.flow = R.TensorArrayWriteV3(handle=self.handle,
                                         index=oracle.const(np.asarray(index, np.int32)),
                                         value=value, flow_in=self.flow)
        return self

    def read(self, index, dtype=None):
        return R.TensorArrayReadV3(handle=self.handle,
                                   index=oracle.const(np.asarray(index, np.int32)),
                                   flow_in=self.flow, dtype=dtype or self.dtype)

    def after(self, what):
        with tf.control_dependencies([what]):
            self.flow = tf.identity(self.flow)
        return self

    def gather(self, indices, dtype=None, **attrs):
        return R.TensorArrayGatherV3(handle=self.handle,
                                     indices=oracle.const(np.asarray(indices, np.int32)),
                                     flow_in=self.flow, dtype=dtype or self.dtype, **attrs)

    def scatter(self, indices, value):
        self.flow = R.TensorArrayScatterV3(handle=self.handle,
                                           indices=oracle.const(np.asarray(indices, np.int32)),
                                           value=oracle.const(np.asarray(value)), flow_in=self.flow)
        return self

    def concat(self, dtype=None, **attrs):
        return list(R.TensorArrayConcatV3(handle=self.handle, flow_in=self.flow,
                                          dtype=dtype or self.dtype, **attrs))

    def split(self, value, lengths):
        self.flow = R.TensorArraySplitV3(handle=self.handle, value=oracle.const(np.asarray(value)),
                                         lengths=oracle.const(np.asarray(lengths, np.int64)),
                                         flow_in=self.flow)
        return self

    def size(self):
        return R.TensorArraySizeV3(handle=self.handle, flow_in=self.flow)

    def grad(self, source="g", prepend=None):
        if prepend is None:
            return self.of(*R.TensorArrayGradV3(handle=self.handle, flow_in=self.flow,
                                                source=source))
        return self.of(*R.TensorArrayGradWithShape(handle=self.handle, flow_in=self.flow,
                shape_to_prepend=oracle.const(np.asarray(prepend, np.int32)), source=source))

    def close(self):
        return self.after(R.TensorArrayCloseV3(handle=self.handle))


A, B = np.array([1, 2], F), np.array([3, 4], F)


def _elements(dtype, shape):
    def build():
        xs = [oracle.sample(np.random.default_rng(i), dtype, shape) for i in range(3)]
        array = Array(3, dtype)
        for i, x in enumerate(xs):
            array.write(i, x, array.dtype)
        return [array.read(1), array.read(0), array.size(), array.gather([2])]

    return build


def _bulk(dtype, inner):
    def build():
        x = oracle.sample(np.random.default_rng(7), dtype, (4,) + inner)
        array = Array(4, dtype, clear_after_read=False).scatter([2, 0, 3, 1], x)
        return [array.read(1), array.gather([0, 1, 2, 3]), array.gather([3, 3]), array.size(),
                array.flow]

    return build


def _split_concat(dtype, inner, lengths):
    def build():
        x = oracle.sample(np.random.default_rng(8), dtype, (sum(lengths),) + inner)
        array = Array(len(lengths), dtype, clear_after_read=False).split(x, lengths)
        return [array.read(0)] + array.concat() + [array.size()]

    return build


def _grads(dtype, shape):
    def build():
        xs = [oracle.sample(np.random.default_rng(i), dtype, shape) for i in range(4)]
        array = Array(3, dtype).write(0, xs[0], dtype).write(1, xs[1], dtype)
        grad = array.grad().write(0, xs[2], dtype).write(0, xs[3], dtype).write(0, xs[3], dtype)
        return [grad.gather([0, 1]), grad.size()]

    return build


PROGRAMS = {
    "flow": lambda: [Array().flow, Array().write(0, 1.0).flow],
    "unwritten": lambda: [Array().read(0)],
    "unwritten shaped": lambda: [Array(element_shape=[2]).read(0)],
    "unwritten partial": lambda: [Array(element_shape=[None, 2]).read(0)],
    "unwritten kept": lambda: [(lambda a: a.after(a.read(0)).read(0))(
        Array(element_shape=[2], clear_after_read=False))],
    "write outside": lambda: [Array().write(3, 1.0).flow],
    "write grows": lambda: [Array(dynamic_size=True).write(7, 1.0).size()],
    "write grows far": lambda: [(lambda a: [a.size(), a.read(2000)][i])(
        Array(0, dynamic_size=True).write(2000, A)) for i in range(2)],
    "write negative": lambda: [Array().write(-1, 1.0).flow],
    "write negative dynamic": lambda: [Array(dynamic_size=True).write(-1, 1.0).flow],
    "write dtype": lambda: [Array().write(0, np.int32(1)).flow],
    "write twice": lambda: [Array().write(0, 1.0).write(0, 2.0).flow],
    "write after read": lambda: [(lambda a: a.after(a.read(0)).write(0, 2.0).flow)(
        Array().write(0, 1.0))],
    "write after kept read": lambda: [(lambda a: a.after(a.read(0)).write(0, 2.0).flow)(
        Array(clear_after_read=False).write(0, 1.0))],
    "read outside": lambda: [Array().read(3)],
    "read negative": lambda: [Array().read(-1)],
    "read twice": lambda: [(lambda a: a.after(a.read(0)).read(0))(Array().write(0, 1.0))],
    "read twice kept": lambda: [(lambda a: a.after(a.read(0)).read(0))(
        Array(clear_after_read=False).write(0, A))],
    "read dtype": lambda: [Array().write(0, 1.0).read(0, tf.int32)],
    "element shape": lambda: [Array(element_shape=[3]).write(0, A).flow],
    "element shape partial": lambda: [Array(element_shape=[None]).write(0, A).read(0)],
    "element rank": lambda: [Array(element_shape=[None]).write(0, 1.0).flow],
    "identical": lambda: [Array(identical_element_shapes=True).write(0, A).write(
        1, np.zeros(3, F)).flow],
    "identical partial": lambda: [Array(identical_element_shapes=True,
                                        element_shape=[None]).write(0, A).write(
                                            1, np.zeros(3, F)).flow],
    "identical zeros": lambda: [Array(identical_element_shapes=True).write(0, A).gather([0, 1])],
    "different": lambda: [Array().write(0, A).write(1, np.zeros(3, F)).read(1)],
    "negative size": lambda: [Array(-1).size()],
    "vector size": lambda: [Array([1]).size()],
    "vector index": lambda: [Array().write([0], 1.0).flow],
    "vector index read": lambda: [Array().read([0])],
    "empty": lambda: [Array(0).size()],
    "gather": lambda: [Array().write(0, A).write(1, B).gather([1, 0])],
    "gather unwritten": lambda: [Array().write(0, A).gather([0, 2])],
    "gather unwritten shaped": lambda: [Array(element_shape=[2]).write(0, A).gather([0, 2])],
    "gather outside": lambda: [Array().write(0, A).gather([0, 3])],
    "gather negative": lambda: [Array().write(0, A).gather([0, -3])],
    "gather none": lambda: [Array().gather([])],
    "gather none shaped": lambda: [Array().gather([], element_shape=[2])],
    "gather none shaped array": lambda: [Array(element_shape=[3]).gather([])],
    "gather shape": lambda: [Array().write(0, A).gather([0], element_shape=[3])],
    "gather shape partial": lambda: [Array().write(0, A).gather([0], element_shape=[None])],
    "gather different": lambda: [Array().write(0, A).write(1, np.zeros(3, F)).gather([0, 1])],
    "gather scalar": lambda: [Array().write(0, A).gather(0)],
    "gather dtype": lambda: [Array().write(0, A).gather([0], tf.int32)],
    "gather doubled": lambda: [Array().write(0, A).gather([0, 0])],
    "gather doubled kept": lambda: [Array(clear_after_read=False).write(0, A).gather([0, 0])],
    "scatter count": lambda: [Array().scatter([2, 0], np.zeros((3, 1), F)).flow],
    "scatter outside": lambda: [Array().scatter([2, 0, 5], np.zeros((3, 1), F)).flow],
    "scatter grows": lambda: [Array(dynamic_size=True).scatter([2, 0, 5],
            np.zeros((3, 1), F)).size()],
    "scatter negative": lambda: [Array().scatter([2, 0, -5], np.zeros((3, 1), F)).flow],
    "scatter doubled": lambda: [Array().scatter([2, 0, 2], np.zeros((3, 1), F)).flow],
    "scatter scalar": lambda: [Array().scatter([0], F(1)).flow],
    "scatter scalar index": lambda: [Array().scatter(0, np.zeros(1, F)).flow],
    "scatter dtype": lambda: [Array().scatter([0], np.zeros(1, np.int32)).flow],
    "scatter none": lambda: [Array().scatter([], np.zeros((0, 2), F)).flow],
    "scatter shape": lambda: [Array(element_shape=[3]).scatter([0], np.zeros((1, 2), F)).flow],
    "scatter deep": lambda: [Array().scatter([0, 2, 1],
                                             np.arange(3 * 64, dtype=F).reshape(
                                                 3, 2, 2, 1, 2, 2, 4)).read(2)],
    "concat": lambda: Array().write(0, A).write(1, np.zeros(1, F)).write(
        2, np.zeros(0, F)).concat(),
    "concat unwritten": lambda: Array().write(0, A).concat(),
    "concat scalar": lambda: Array(1).write(0, 1.0).concat(),
    "concat different": lambda: Array(2).write(0, np.zeros((1, 2), F)).write(
        1, np.zeros((1, 1), F)).concat(),
    "concat shape": lambda: Array(1).write(0, np.zeros((1, 2), F)).concat(
        element_shape_except0=[3]),
    "concat shape fits": lambda: Array(1).write(0, np.zeros((1, 2), F)).concat(
        element_shape_except0=[None]),
    "concat none": lambda: Array(0).concat(),
    "concat none shaped": lambda: Array(0).concat(element_shape_except0=[2]),
    "concat none partial": lambda: Array(0).concat(element_shape_except0=[None]),
    "concat dtype": lambda: Array(1).write(0, A).concat(tf.int32),
    "concat twice": lambda: (lambda a: a.after(a.concat()[0]).concat())(Array(1).write(0, A)),
    "split sum": lambda: [Array().split(np.zeros(5, F), [1, 2, 1]).flow],
    "split size": lambda: [Array().split(np.zeros(5, F), [1, 4]).flow],
    "split grows": lambda: [Array(dynamic_size=True).split(np.zeros(5, F), [1, 1, 1, 1, 1]).size()],
    "split less": lambda: [Array(dynamic_size=True).split(np.zeros(5, F), [1, 4]).flow],
    "split scalar": lambda: [Array().split(F(1), [1, 0, 0]).flow],
    "split scalar lengths": lambda: [Array().split(np.zeros(1, F), 1).flow],
    "split dtype": lambda: [Array().split(np.zeros(3, np.int32), [1, 1, 1]).flow],
    "close read": lambda: [Array().close().read(0)],
    "close write": lambda: [Array().close().write(0, 1.0).flow],
    "close size": lambda: [Array().close().size()],
    "close gather": lambda: [Array().close().gather([0])],
    "close twice": lambda: [Array().close().close().size()],
    "close grad": lambda: [Array().close().grad().flow],
    "grad unwritten": lambda: [Array().write(0, A).grad().gather([0, 2])],
    "grad zeros": lambda: [Array().write(0, A).grad().read(0)],
    "grad zeros shaped": lambda: [Array(element_shape=[2]).grad().read(0)],
    "grad shape": lambda: [Array().write(0, A).grad().write(0, np.zeros(3, F)).flow],
    "grad shape second": lambda: [Array().grad().write(0, A).write(0, np.zeros(3, F)).flow],
    "grad after read": lambda: [(lambda a: a.after(a.read(0)).grad().read(0))(Array().write(0, A))],
    "grad write after read": lambda: [(lambda g: g.after(g.read(0)).write(0, A).flow)(
        Array().write(0, A).grad())],
    "grad of grad": lambda: [Array().grad().grad().flow],
    "grad twice": lambda: [(lambda a: [a.grad().write(0, A).flow, a.grad().size()][1])(Array())],
    "grad sources": lambda: [(lambda a: a.after(a.grad("x").write(0, A).flow).grad("y").write(
        0, B).read(0))(Array().write(0, A))],
    "grad stops growth": lambda: [(lambda a: a.after(a.grad().flow).write(7, A).flow)(
        Array(dynamic_size=True).write(5, A))],
    "grad size": lambda: [Array(dynamic_size=True).write(5, A).grad().size()],
    "grad prepend": lambda: [Array().write(0, A).grad(prepend=[3]).read(0)],
    "grad prepend element": lambda: [Array(element_shape=[2]).grad(prepend=[3, 1]).read(1)],
    "grad prepend none": lambda: [Array().write(0, A).grad(prepend=[]).read(0)],
    "grad prepend write": lambda: [Array().write(0, A).grad(prepend=[2]).write(
        0, np.ones((2, 2), F)).write(0, np.ones((2, 2), F)).read(0)],
    "grad prepend shape": lambda: [Array().write(0, A).grad(prepend=[2]).write(
        0, np.ones((2,), F)).read(0)],
    "grad of stack": lambda: [R.TensorArrayGradV3(handle=R.StackV2(max_size=3,
            elem_type=tf.float32), flow_in=1.0, source="a")[1]],
    "array of handles": lambda: [(lambda a: R.TensorArraySizeV3(handle=a.read(0), flow_in=0.0))(
        _of_handles())],
}


def _of_handles():
    array = Array(1, tf.resource)
    array.flow = R.TensorArrayWriteV3(handle=array.handle, index=0, value=Array(5).handle,
                                      flow_in=array.flow)
    return array


def _tensor_list():
    """TensorFlow's own wrapper, as graphs of loops use it."""
    array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, infer_shape=True)
    for i in range(4):
        array = array.write(i, oracle.const(np.full((2, 2), i, F)))
    return [array.stack(), array.size()]


def _gradient():
    x = oracle.const(np.arange(6, dtype=F).reshape(3, 2))
    array = tf.TensorArray(tf.float32, size=3, clear_after_read=False).unstack(x)
    y = array.read(0) * array.read(0) + array.read(2)
    return tf.gradients(y, x)


def _split_gradient(parts):
    """Elements written after a value was split into the others are none of its gradient, which
    their values have no part in either."""

    def build():
        x = oracle.const(np.arange(1, 2 * parts + 1, dtype=F).reshape(parts, 2))
        array = tf.TensorArray(tf.float32, size=parts, dynamic_size=True, infer_shape=False).split(
            x, [1] * parts)
        y = array.write(parts, [[5.0, 6.0]]).write(parts + 2, [[7.0, 8.0], [9.0, 0.0]]).write(
            parts + 1, [[1.0, 2.0]]).concat()
        return [y, *tf.gradients(y * y, x)]

    return build


def cases():
    for i, dtype in enumerate(ALL):
        for j, shape in enumerate(((), (2,), (2, 3), (0,), (1, 2, 1, 2, 1, 2), (30, 40))):
            if dtype in ("float32", "string", "int32") or (i + j) % 2 == 0:
                yield f"elements/{dtype}/{shape}", _elements(dtype, shape)
                yield f"bulk/{dtype}/{shape}", _bulk(dtype, shape)
                if dtype in NUMBERS:
                    yield f"grads/{dtype}/{shape}", _grads(dtype, shape)
        for lengths in ([1, 2, 2], [0, 3], [4], [0, 0]):
            yield f"split/{dtype}/{lengths}", _split_concat(dtype, (2,) if i % 2 else (), lengths)
    yield "bulk/large", _bulk("float32", (100, 200))
    yield "split/large", _split_concat("float32", (300,), [100, 0, 200])
    for name, build in PROGRAMS.items():
        yield f"program/{name}", build
    yield "wrapper", _tensor_list
    yield "gradient", _gradient
    for parts in (1, 3):
        yield f"gradient/split/{parts}", _split_gradient(parts)
