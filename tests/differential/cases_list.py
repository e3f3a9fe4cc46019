"""TensorLists: making, one element, many elements, sums and zeros of lists, lists of lists, and
their refusals."""

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
Step = oracle.Step
ALL = (
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 complex64 "
    "complex128 bool string".split()
)
NUMBERS = ALL[:-2]
F = np.float32
A, B, C = np.array([1, 2], F), np.array([3, 4], F), np.array([5, 6, 7], F)
M = np.arange(6, dtype=F).reshape(3, 2)
ANY = -1


def shape_of(shape, dtype=np.int32):
    """A shape argument: -1 alone is an unknown rank."""
    return oracle.const(np.asarray(shape, dtype))


def integer(value):
    return oracle.const(np.asarray(value, np.int32))


class List:
    """A list under construction: every method returns the next one."""

    def __init__(self, handle, dtype="float32"):
        self.handle, self.dtype = handle, tf.as_dtype(dtype)

    def value(self, value):
        if isinstance(value, tf.Tensor):
            return value
        return oracle.const(value if isinstance(value, np.ndarray)
                            else np.asarray(value, self.dtype.as_numpy_dtype))

    def push(self, value):
        value = self.value(value)
        return List(R.TensorListPushBack(input_handle=self.handle, tensor=value), self.dtype)

    def set(self, index, value, **attrs):
        return List(R.TensorListSetItem(input_handle=self.handle, index=integer(index),
                                        item=self.value(value), **attrs), self.dtype)

    def get(self, index, shape=ANY, dtype=None, shape_type=np.int32):
        return R.TensorListGetItem(input_handle=self.handle, index=integer(index),
                                   element_shape=shape_of(shape, shape_type), element_dtype=dtype
                                   or self.dtype)

    def pop(self, shape=ANY, dtype=None):
        handle, value = R.TensorListPopBack(input_handle=self.handle, element_shape=shape_of(shape),
                                            element_dtype=dtype or self.dtype)
        return List(handle, self.dtype), value

    def size(self):
        return R.TensorListLength(input_handle=self.handle)

    def shape(self, dtype=tf.int32):
        return R.TensorListElementShape(input_handle=self.handle, shape_type=dtype)

    def stack(self, shape=ANY, dtype=None, **attrs):
        return R.TensorListStack(input_handle=self.handle, element_shape=shape_of(shape),
                                 element_dtype=dtype or self.dtype, **attrs)

    def gather(self, indices, shape=ANY, dtype=None):
        return R.TensorListGather(input_handle=self.handle, indices=integer(indices),
                                  element_shape=shape_of(shape), element_dtype=dtype or self.dtype)

    def resize(self, n):
        return List(R.TensorListResize(input_handle=self.handle, size=integer(n)), self.dtype)

    def concat(self, shape=ANY, leading=(), dtype=None, shape_type=np.int32):
        return list(
            R.TensorListConcatV2(
                input_handle=self.handle, element_shape=shape_of(shape, shape_type),
                leading_dims=oracle.const(np.asarray(leading, np.int64)), element_dtype=dtype
                or self.dtype
            )
        )

    def concat_v1(self, dtype=None, **attrs):
        return list(R.TensorListConcat(input_handle=self.handle, element_dtype=dtype or self.dtype,
                                       **attrs))

    def scatter(self, indices, value):
        return List(R.TensorListScatterIntoExistingList(input_handle=self.handle, tensor=self.value(
            value), indices=integer(indices)), self.dtype)

    def join(self, other, dtype=None):
        return List(R.TensorListConcatLists(input_a=self.handle, input_b=other.handle,
                                            element_dtype=dtype or self.dtype), self.dtype)

    def zeros(self):
        return List(R.ZerosLike(x=self.handle), self.dtype)

    def all(self):
        return [self.size(), self.shape(), self.stack()]


def empty(shape=ANY, dtype="float32", n_max=-1, shape_type=np.int32):
    return List(R.EmptyTensorList(element_shape=shape_of(shape, shape_type),
                                  max_num_elements=integer(n_max),
                                  element_dtype=tf.as_dtype(dtype)), dtype)


def reserve(n, shape=ANY, dtype="float32", shape_type=np.int32):
    return List(R.TensorListReserve(element_shape=shape_of(shape, shape_type),
                                    num_elements=integer(n), element_dtype=tf.as_dtype(dtype)),
                dtype)


def unstack(value, shape=None, shape_type=np.int32):
    value = np.asarray(value)
    return List(R.TensorListFromTensor(tensor=oracle.const(value),
                                       element_shape=shape_of(
                                           value.shape[1:] if shape is None else shape,
                                           shape_type)), value.dtype)


def scatter(value, indices, shape=ANY, shape_type=np.int32):
    value = np.asarray(value)
    return List(R.TensorListScatter(tensor=oracle.const(value), indices=integer(indices),
                                    element_shape=shape_of(shape, shape_type)), value.dtype)


def scatter_v2(value, indices, n, shape=ANY, shape_type=np.int32):
    value = np.asarray(value)
    return List(R.TensorListScatterV2(tensor=oracle.const(value), indices=integer(indices),
                                      element_shape=shape_of(shape, shape_type),
                                      num_elements=integer(n)), value.dtype)


def split(value, lengths, shape=ANY, shape_type=np.int32):
    value = np.asarray(value)
    return List(R.TensorListSplit(tensor=oracle.const(value),
                                  element_shape=shape_of(shape, shape_type),
                                  lengths=oracle.const(np.asarray(lengths, np.int64))), value.dtype)


def add_n(*lists):
    return List(R.AddN(inputs=[each.handle for each in lists]), lists[0].dtype)


def push_batch(lists, value):
    handles = R.Pack(values=[each.handle for each in lists], axis=0)
    handles = R.TensorListPushBackBatch(input_handles=handles,
                                        tensor=oracle.const(np.asarray(value)))
    return [List(each, lists[0].dtype) for each in R.Unpack(value=handles, num=len(lists), axis=0)]


def two():
    return empty().push(A).push(B)


def mixed():
    return empty().push(A).push(C)


def holes(shape=ANY):
    return reserve(3, shape).set(1, A)


def nested():
    return empty((), tf.variant).push(two().handle).push(mixed().handle)


def opaque(of):
    """The same list where no shape function knows its elements."""
    return List(empty((), tf.variant).push(of.handle).get(0), of.dtype)


# ---- values ----


def _elements(dtype, shape):
    def build():
        xs = [oracle.sample(np.random.default_rng(i), dtype, shape) for i in range(3)]
        pushed = empty(ANY, dtype)
        for x in xs:
            pushed = pushed.push(x)
        written = reserve(3, shape, dtype).set(2, xs[0]).set(0, xs[1])
        popped, last = pushed.pop()
        return [pushed.stack(), pushed.get(1), last, popped.stack(), written.stack(shape),
                written.get(1), written.gather([2, 0, 2]), written.shape()]

    return build


def _bulk(dtype, inner):
    def build():
        x = oracle.sample(np.random.default_rng(7), dtype, (4,) + inner)
        rows = List(unstack(x).handle, dtype)
        spread = List(scatter_v2(x, [2, 0, 5, 1], 7).handle, dtype)
        if dtype == "string":  # TensorFlow makes no zeros of strings here
            spread = spread.set(3, x[0]).set(4, x[0]).set(6, x[0])
        merged = rows.scatter([3, 0], x[:2])
        return rows.all() + [spread.size(), spread.stack(), spread.get(5), merged.stack(),
                             rows.gather([3, 3, 0])]

    return build


def _split(dtype, inner, lengths):
    def build():
        x = oracle.sample(np.random.default_rng(8), dtype, (sum(lengths),) + inner)
        parts = List(split(x, lengths, (-1,) + inner).handle, dtype)
        return parts.concat((-1,) + inner) + parts.concat_v1(element_shape=(None,) + inner) + [
            parts.get(0), parts.size(), parts.shape()]

    return build


def _sums(dtype, shape):
    def build():
        xs = [oracle.sample(np.random.default_rng(i), dtype, shape) for i in range(6)]
        a, b, c = (reserve(3, shape, dtype).set(0, xs[i]).set(2, xs[i + 1]) for i in (0, 2, 4))
        c = c.set(1, xs[3])
        return [add_n(a, b).stack(shape), add_n(a, c, b).stack(shape), add_n(a).stack(shape),
                a.zeros().stack(shape), c.zeros().size()]

    return build


def _shared():
    """One list with many holders: nobody's change reaches another."""
    base = two()
    pushed, written, (popped, last), other = base.push(C), base.set(0, B), base.pop(), base.push(B)
    again = pushed.set(2, A)
    return [base.stack(), pushed.get(2), written.stack(), popped.stack(), last, other.stack(),
            again.stack(), pushed.size(), base.resize(3).size()]


def _chain(n):
    def build():
        pushed = empty()
        for i in range(n):
            pushed = pushed.push(np.full((3,), i, F))
        values, rest = [], pushed
        for _ in range(n // 2):
            rest, value = rest.pop()
            values.append(value)
        return values + [rest.stack(), pushed.size()]

    return build


def _batch():
    a, b = push_batch([two(), empty()], M[:2])
    return [a.stack(), b.stack()]


# Left out where TensorFlow aborts and we refuse: an index vector of two for GetItem, negative
# indices for a SetItem that resizes and for ScatterIntoExistingList, and leading_dims that are
# negative or no vector.
PROGRAMS = {
    "empty": lambda: [empty().size(), empty().shape(), empty((2, -1)).shape(),
                      empty((2, 3)).shape(tf.int64), empty(()).shape()],
    "empty wide": lambda: [empty((2, -1), shape_type=np.int64).shape(tf.int64)],
    "empty shape below": lambda: [empty((2, -2)).shape()],
    "empty scalar shape": lambda: [empty(5).shape()],
    "empty scalar shape below": lambda: [empty(-2).shape()],
    "empty matrix shape": lambda: [empty([[2]]).shape()],
    "empty max vector": lambda: [empty(n_max=[3]).size()],
    "empty max": lambda: [empty(n_max=2).push(A).push(B).size()],
    "empty max full": lambda: [empty(n_max=2).push(A).push(B).push(C).size()],
    "empty max zero": lambda: [empty(n_max=0).push(A).size()],
    "empty max negative": lambda: [empty(n_max=-7).push(A).size()],
    "empty max reserve": lambda: [empty(n_max=2).resize(5).size()],
    "empty max set": lambda: [empty(n_max=1).push(A).set(3, B,
            resize_if_index_out_of_bounds=True).size()],
    "empty max popped": lambda: [empty(n_max=1).push(A).pop()[0].push(B).get(0)],
    "empty max join": lambda: [empty(n_max=1).push(A).join(two()).size(),
                               empty(n_max=1).push(A).join(two()).push(A).size()],
    "empty max join other": lambda: [two().join(empty(n_max=1).push(A)).push(A).size()],
    "reserve": lambda: [reserve(3).size(), reserve(0).size(), reserve(3, (2,)).get(1),
                        reserve(2, (2,)).stack((2,)), reserve(2, (2,)).stack()],
    "reserve negative": lambda: [reserve(-1).size()],
    "reserve vector": lambda: [reserve([3]).size()],
    "reserve bad shape": lambda: [reserve(3, (2, -5)).size()],
    "reserve wide": lambda: [reserve(3, (2, 2), shape_type=np.int64).stack()],
    "push shape": lambda: [empty((3,)).push(A).size()],
    "push rank": lambda: [empty((-1, -1)).push(A).size()],
    "push partial": lambda: empty((-1,)).push(A).push(C).all()[:2],
    "push dtype": lambda: [empty().push(np.array([1], np.int32)).size()],
    "push onto matrix": lambda: [List(tf.reshape(R.Pack(values=[two().handle]), [1, 1])).push(
        A).size()],
    "push onto vector": lambda: [List(R.Pack(values=[two().handle])).push(A).size()],
    "length of vector": lambda: [List(R.Pack(values=[two().handle])).size()],
    "get": lambda: [two().get(0), two().get(1, (2,)), two().get(1, (-1,)),
                    two().get(1, (2,), shape_type=np.int64)],
    "get outside": lambda: [two().get(2)],
    "get negative": lambda: [two().get(-1)],
    "get vector index": lambda: [two().get([0])],
    "get shape": lambda: [two().get(0, (3,))],
    "get shape rank": lambda: [two().get(0, (1, 2))],
    "get bad shape": lambda: [two().get(0, (-3,))],
    "get dtype": lambda: [two().get(0, dtype=tf.int32)],
    "get hole": lambda: [reserve(2).get(0)],
    "get hole asked": lambda: [reserve(2).get(0, (2,))],
    "get hole partial": lambda: [reserve(2, (-1,)).get(0)],
    "get hole partial asked": lambda: [reserve(2, (-1, 2)).get(0, (3, -1))],
    "get hole conflict": lambda: [reserve(2, (3,)).get(0, (2,))],
    "get hole conflict rank": lambda: [reserve(2, (3,)).get(0, (2, 2))],
    "get hole other": lambda: [holes().get(0)],
    "get hole other partial": lambda: [holes((-1,)).get(0)],
    "get hole other two": lambda: [reserve(3, (-1,)).set(0, A).set(1, C).get(2)],
    "get hole string": lambda: [reserve(2, (2,), "string").get(0)],
    "get hole bool": lambda: [reserve(2, (2,), "bool").get(0)],
    "get hole large": lambda: [reserve(1, (1 << 20, 1 << 20, 1 << 20, 1 << 20)).get(0)],
    "set": lambda: two().set(0, C).all()[:2] + [two().set(0, C).get(0), holes().set(2, C).get(2)],
    "set outside": lambda: [two().set(2, A).size()],
    "set negative": lambda: [two().set(-1, A).size()],
    "set grows": lambda: [(lambda x: [x.size(), x.get(5),
                                      x.get(3)][i])(
                                          two().set(5, A, resize_if_index_out_of_bounds=True))
                          for i in range(3)],
    "set inside grows": lambda: [two().set(1, A, resize_if_index_out_of_bounds=True).stack()],
    "set shape": lambda: [empty((2,)).push(A).set(0, C).size()],
    "set shape rank": lambda: [empty((-1,)).push(A).set(0, M).size()],
    "set dtype": lambda: [two().set(0, np.array([1], np.int32)).size()],
    "set vector index": lambda: [two().set([0], A).stack()],
    "pop": lambda: [(lambda x: [x[0].size(), x[1]][i])(two().pop((2,))) for i in range(2)],
    "pop empty": lambda: [empty().pop()[1]],
    "pop empty full shape": lambda: [empty((2,)).pop((2,))[1]],
    "pop shape": lambda: [two().pop((3,))[1]],
    "pop rank": lambda: [two().pop((-1, -1))[1]],
    "pop dtype": lambda: [two().pop(dtype=tf.int32)[1]],
    "pop hole": lambda: [reserve(2).pop()[1]],
    "pop hole shaped": lambda: [reserve(2, (2,)).pop()[1]],
    "pop hole asked": lambda: [reserve(2).pop((2, 2))[1]],
    "pop hole other": lambda: [holes((-1,)).pop()[1]],
    "pop hole conflict": lambda: [reserve(2, (2,)).pop((3,))[1]],
    "pop list conflict": lambda: [empty((-1,)).push(A).pop((2, 2))[1]],
    "length of text": lambda: [List(_no_list()).size()],
    "element shape of none": lambda: [List(_no_list()).shape()],
    "element shape": lambda: [two().shape(), two().shape(tf.int64),
                              empty((2, -1)).push(M[:2]).shape()],
    "stack": lambda: [two().stack((2,)), two().stack((-1,)), two().stack(num_elements=2)],
    "stack number": lambda: [two().stack(num_elements=3)],
    "stack shape": lambda: [two().stack((3,))],
    "stack rank": lambda: [two().stack((2, 1))],
    "stack bad shape": lambda: [two().stack((-3,))],
    "stack dtype": lambda: [two().stack(dtype=tf.int32)],
    "stack different": lambda: [mixed().stack()],
    "stack different partial": lambda: [mixed().stack((-1,))],
    "stack none": lambda: [empty().stack()],
    "stack none shaped": lambda: [empty((2,)).stack()],
    "stack none asked": lambda: [empty().stack((2, 3))],
    "stack none partial": lambda: [empty((2, -1)).stack((-1, 3))],
    "stack none partial both": lambda: [empty((2, -1)).stack((-1, -1))],
    "stack none number": lambda: [empty((2,)).stack((2,), num_elements=0)],
    "stack none conflict": lambda: [empty((2,)).stack((3,))],
    "stack conflict": lambda: [empty((2,)).push(A).stack((3,))],
    "stack holes": lambda: [holes().stack()],
    "stack holes shaped": lambda: [holes((2,)).stack()],
    "stack holes partial": lambda: [holes((-1,)).stack((-1,))],
    "stack holes asked": lambda: [holes().stack((2,))],
    "stack holes wrong": lambda: [holes().stack((3,))],
    "stack holes only": lambda: [reserve(2).stack()],
    "stack holes only partial": lambda: [reserve(2, (-1, 2)).stack()],
    "stack holes only asked": lambda: [reserve(2, (-1, 2)).stack((3, -1))],
    "stack holes string": lambda: [reserve(2, (2,), "string").stack()],
    "stack zero size": lambda: [empty().push(np.zeros((0, 2), F)).push(
        np.zeros((0, 2), F)).stack()],
    "stack large": lambda: [unstack(np.arange(200000, dtype=F).reshape(4, 50000)).stack()],
    "stack scalars": lambda: [empty(()).push(1.0).push(2.0).stack(())],
    "stack scalar shape": lambda: [two().stack(3)],
    "gather": lambda: [two().gather([1, 0, 1]), two().gather([1], (2,)), two().gather([], (2,)),
                       holes().gather([1, 1])],
    "gather outside": lambda: [two().gather([0, 2])],
    "gather negative": lambda: [two().gather([0, -1])],
    "gather none": lambda: [two().gather([])],
    "gather none shaped": lambda: [empty((2,)).gather([])],
    "gather none partial": lambda: [empty((2, -1)).gather([], (-1, 3))],
    "gather shape": lambda: [two().gather([0], (3,))],
    "gather different": lambda: [mixed().gather([0, 1])],
    "gather different one": lambda: [mixed().gather([1])],
    "gather holes": lambda: [holes().gather([0, 1])],
    "gather holes only": lambda: [holes().gather([0, 2])],
    "gather holes shaped": lambda: [holes((2,)).gather([0, 2])],
    "gather holes nothing": lambda: [reserve(2).gather([0])],
    "gather dtype": lambda: [two().gather([0], dtype=tf.int32)],
    "gather scalar": lambda: [two().gather(1)],
    "gather matrix": lambda: [two().gather([[0, 1], [1, 0]])],
    "resize": lambda: [two().resize(1).stack(), two().resize(2).stack(), two().resize(4).size(),
                       two().resize(4).stack(), two().resize(0).size()],
    "resize negative": lambda: [two().resize(-1).size()],
    "resize vector": lambda: [two().resize([1]).size()],
    "resize back": lambda: [two().resize(1).resize(2).get(1, (2,))],
    "from tensor": lambda: unstack(M).all() + unstack(M, (-1,)).all() + unstack(M, ANY).all(),
    "from tensor wide": lambda: unstack(M, (2,), np.int64).all(),
    "from tensor shape": lambda: unstack(M, (3,)).all(),
    "from tensor rank": lambda: unstack(M, ()).all(),
    "from tensor scalar": lambda: [unstack(F(1), ()).size()],
    "from tensor scalar any": lambda: [unstack(F(1), ANY).size()],
    "from tensor none": lambda: [unstack(np.zeros((0, 2), F)).size(),
                                 unstack(np.zeros((0, 2), F)).stack(),
                                 unstack(np.zeros((0, 2), F)).shape()],
    "from tensor vector": lambda: unstack(A).all(),
    "from tensor push": lambda: [unstack(M).push(A).stack(), unstack(M).set(1, A).stack()],
    "scatter": lambda: [scatter(M, [2, 0, 1]).stack(), scatter(M, [4, 0, 1]).size(),
                        scatter(M, [4, 0, 1]).get(4), scatter(M, [0, 1, 2], (2,)).shape()],
    "scatter wide": lambda: [scatter(M, [2, 0, 1], (2,), np.int64).stack()],
    "scatter doubled": lambda: [scatter(M, [1, 1, 1]).get(1), scatter(M, [1, 1, 1]).size()],
    "scatter negative": lambda: [scatter(M, [1, -1, 0]).size()],
    "scatter none": lambda: [scatter(np.zeros((0, 2), F), []).size()],
    "scatter shape": lambda: [scatter(M, [2, 0, 1], (3,)).size()],
    "scatter fewer": lambda: [scatter(M, [1, 0]).stack()],
    "scatter more": lambda: [scatter(M, [1, 0, 2, 3]).size()],
    "scatter scalar": lambda: [scatter(F(1), [0]).size()],
    "scatter scalar index": lambda: [scatter(M[:1], 0).size()],
    "scatter matrix index": lambda: [scatter(M[:1], [[0]]).size()],
    "scatter v2": lambda: [scatter_v2(M, [2, 0, 1], 5).size(),
                           scatter_v2(M, [2, 0, 1], 5, (2,)).stack(),
                           scatter_v2(M, [2, 0, 1], 5).get(2)],
    "scatter v2 -1": lambda: [scatter_v2(M, [2, 0, 4], -1).size()],
    "scatter v2 less": lambda: [scatter_v2(M, [2, 0, 1], 2).size()],
    "scatter v2 below": lambda: [scatter_v2(M, [2, 0, 1], -2).size()],
    "scatter v2 zero": lambda: [scatter_v2(np.zeros((0, 2), F), [], 0).size()],
    "scatter v2 negative": lambda: [scatter_v2(M, [2, 0, -1], 5).size()],
    "scatter v2 negative far": lambda: [scatter_v2(M, [2, 0, -100], -1).size()],
    "scatter v2 vector": lambda: [scatter_v2(M, [2, 0, 1], [5]).size()],
    "scatter v2 shape": lambda: [scatter_v2(M, [2, 0, 1], 5, (2, 2)).size()],
    "scatter v2 fewer": lambda: [scatter_v2(M, [1, 0], 3).size()],
    "scatter v2 more": lambda: [scatter_v2(M, [1, 0, 2, 2], 3).size()],
    "scatter v2 scalar": lambda: [scatter_v2(F(1), [0], 1).size()],
    "scatter into": lambda: [two().scatter([1], M[:1]).stack(), two().scatter([5, 0], M[:2]).size(),
                             two().scatter([5, 0], M[:2]).get(5)],
    "scatter into nothing": lambda: [two().scatter([], np.zeros((0, 2), F)).stack()],
    "scatter into shape": lambda: [empty((3,)).push(C).scatter([0], M[:1]).size()],
    "scatter into fewer": lambda: [two().scatter([1], M).stack()],
    "scatter into more": lambda: [two().scatter([1, 0, 1], M[:1]).size()],
    "scatter into scalar": lambda: [two().scatter([0], F(1)).size()],
    "scatter into scalar index": lambda: [two().scatter(0, M[:1]).size()],
    "concat": lambda: mixed().concat() + mixed().concat((-1,)) + two().concat((2,))
    + mixed().concat_v1(),
    "concat wide": lambda: mixed().concat((-1,), shape_type=np.int64),
    "concat shape": lambda: two().concat((3,)),
    "concat rank": lambda: two().concat((-1, 2)),
    "concat scalars": lambda: empty(()).push(1.0).concat(),
    "concat scalar element": lambda: empty().push(1.0).concat(),
    "concat scalar shape": lambda: empty().push(1.0).concat(()),
    "concat different": lambda: empty().push(M).push(np.zeros((1, 3), F)).concat(),
    "concat none": lambda: empty().concat(),
    "concat none shaped": lambda: empty((2, 3)).concat(),
    "concat none tail": lambda: empty((-1, 3)).concat(),
    "concat none asked": lambda: empty().concat((-1, 3)),
    "concat none partial": lambda: empty((-1, -1)).concat(),
    "concat none v1": lambda: empty().concat_v1(element_shape=[None, 3]),
    "concat none v1 unknown": lambda: empty().concat_v1(),
    "concat leading none": lambda: empty((-1, 3)).concat((-1, 3), [2]),
    "concat leading": lambda: reserve(2, (-1, 2)).concat((-1, 2), [1, 2]),
    "concat leading hole": lambda: reserve(3, (-1, 2)).set(1, M).concat((-1, 2), [1, 3, 2]),
    "concat leading hole unused": lambda: reserve(3, (-1, 2)).set(1, M).concat((-1, 2), [1, 9, 2]),
    "concat leading short": lambda: reserve(3, (-1, 2)).concat((-1, 2), [1, 2]),
    "concat v1 holes": lambda: reserve(2, (3, 2)).set(0, M).concat_v1(element_shape=[3, 2]),
    "concat v1 holes tail": lambda: reserve(2, (3, 2)).set(0, M).concat_v1(element_shape=[None, 2]),
    "concat v1 shape": lambda: two().concat_v1(element_shape=[3]),
    "concat v1 shape full": lambda: two().concat_v1(element_shape=[2]),
    "concat v1 holes any": lambda: holes().concat_v1(element_shape=[2]),
    "concat v1 list": lambda: empty((-1, 2)).concat_v1(),
    "concat v1 conflict": lambda: opaque(empty((-1, 2)).push(M)).concat_v1(element_shape=[None, 3]),
    "concat v1 scalar": lambda: empty().push(1.0).concat_v1(),
    "concat v1 scalar shape": lambda: empty().push(1.0).concat_v1(element_shape=[]),
    "concat v1 different": lambda: empty().push(M).push(np.zeros((1, 3), F)).concat_v1(),
    "concat holes any": lambda: holes().concat(),
    "concat holes any leading": lambda: holes().concat(leading=[1, 2, 1]),
    "concat holes uneven": lambda: reserve(3, (-1, 2)).set(0, M).set(1, M[:1]).concat(),
    "concat holes only": lambda: reserve(2, (-1, 2)).concat(),
    "concat holes only unknown": lambda: reserve(2).concat(),
    "concat holes only unknown leading": lambda: reserve(2).concat(leading=[1, 1]),
    "concat holes only asked": lambda: reserve(2).concat((3, 2)),
    "concat holes only tail": lambda: reserve(2).concat((-1, 2), [1, 1]),
    "concat conflict": lambda: opaque(empty((-1, 2)).push(M)).concat((-1, 3)),
    "concat conflict first": lambda: opaque(empty((3, 2)).push(M)).concat((4, 2)),
    "concat leading beside size": lambda: reserve(2, (3, 2)).set(0, M).concat((3, 2), [1, 1]),
    "concat leading zero": lambda: reserve(2, (-1, 2)).concat((-1, 2), [0, 2]),
    "concat none full": lambda: empty((4, 3)).concat((4, -1)),
    "concat bad shape": lambda: two().concat((-3,)),
    "concat leading long": lambda: reserve(1, (-1, 2)).concat((-1, 2), [1, 2]),
    "concat leading full": lambda: two().concat((2,), [7, 9]),
    "concat holes": lambda: reserve(2, (-1, 2)).set(0, M).concat((-1, 2)),
    "concat holes full": lambda: reserve(2, (3, 2)).set(0, M).concat((3, 2)),
    "concat holes full v1": lambda: reserve(2, (3, 2)).set(0, M).concat_v1(),
    "concat holes only full": lambda: reserve(2, (3, 2)).concat(),
    "concat dtype": lambda: two().concat(dtype=tf.int32),
    "concat zero rows": lambda: empty().push(np.zeros((0, 2), F)).push(M).push(
        np.zeros((0, 2), F)).concat(),
    "concat all zero rows": lambda: empty().push(np.zeros((0, 2), F)).push(
        np.zeros((0, 2), F)).concat(),
    "concat large": lambda: split(np.arange(100000, dtype=F).reshape(1000, 100),
                                  [400, 0, 600]).concat(),
    "split": lambda: split(M, [1, 0, 2]).concat()
    + [split(M, [1, 2], (-1, 2)).shape(), split(M, [1, 2]).get(1), split(M, []).size()][:2],
    "split wide": lambda: [split(M, [1, 2], (-1, 2), np.int64).get(1)],
    "split sum less": lambda: [split(M, [1, 1]).size()],
    "split sum more": lambda: [split(M, [1, 7]).size()],
    "split negative first": lambda: [split(M, [-1, 4]).size()],
    "split negative inside": lambda: [split(M, [2, -1, 2]).size()],
    "split negative": lambda: [split(M, [4, -1]).size()],
    "split overflow": lambda: [split(M, [1 << 62, 1 << 62, 1 << 62, 1 << 62, 3]).size()],
    "split shape": lambda: [split(M, [1, 2], (1, 2)).size()],
    "split tail": lambda: [split(M, [1, 2], (-1, 3)).size()],
    "split scalar": lambda: [split(F(1), [1]).size()],
    "split scalar lengths": lambda: [split(M, 3).size()],
    "split matrix lengths": lambda: [split(M, [[3]]).size()],
    "split none": lambda: [split(np.zeros((0, 2), F), []).size()],
    "split none of some": lambda: [split(M, []).size()],
    "split scalar shape": lambda: [split(M, [1, 2], ()).size()],
    "split full": lambda: [split(M, [3], (3, 2)).shape()],
    "join": lambda: two().join(unstack(M)).all()
    + [two().join(empty()).size(), empty((2,)).join(two()).shape(),
       two().join(empty((2,))).shape()],
    "join shapes": lambda: [empty((2,)).push(A).join(empty((3,)).push(C)).size()],
    "join partial": lambda: [empty((2, -1)).join(empty((-1, 3))).shape()],
    "join dtype": lambda: [two().join(empty(dtype="int32")).size()],
    "join attr": lambda: [two().join(two(), tf.int32).size()],
    "join vectors": lambda: [_joined(2)],
    "join vectors sizes": lambda: [_joined(3)],
    "join matrices": lambda: [_joined(2, 2)],
    "join self": lambda: (lambda x: x.join(x).all())(two()),
    "batch": _batch,
    "batch rows": lambda: [push_batch([two(), empty()], M)[0].size()],
    "batch scalar": lambda: [push_batch([two()], F(1))[0].size()],
    "batch dtype": lambda: [push_batch([two()], np.zeros((1, 2), np.int32))[0].size()],
    "batch shape": lambda: [push_batch([two(), empty((3,))], M[:2])[0].size()],
    "batch full": lambda: [push_batch([two(), empty(n_max=0)], M[:2])[0].size()],
    "batch of scalar": lambda: [List(R.TensorListPushBackBatch(input_handles=two().handle,
            tensor=oracle.const(M))).size()],
    "batch shared": lambda: (lambda x: [x[0].stack(), x[1].stack()])(
        push_batch([two()] * 2, M[:2])),
    "batch same": lambda: (lambda one: (lambda x: [one.size(), x[0].stack(), x[1].stack()])(
        push_batch([one, one], M[:2])))(two()),
    "add": lambda: [add_n(two(), two()).stack(), add_n(two(), two(), two()).get(0)],
    "add sizes": lambda: [add_n(two(), two().push(A)).size()],
    "add shapes": lambda: [add_n(two(), mixed()).size()],
    "add list shapes": lambda: [add_n(empty((2,)).push(A), empty((-1,)).push(A)).shape()],
    "add list shapes conflict": lambda: [add_n(empty((2,)), empty((3,))).shape()],
    "add dtypes": lambda: [add_n(two(), empty(dtype="int32").push(1).push(2)).size()],
    "add holes": lambda: [add_n(holes((2,)), reserve(3, (2,)).set(0, B)).stack()],
    "add holes unknown": lambda: [add_n(holes(), reserve(3).set(0, B)).size(),
                                  add_n(holes(), reserve(3).set(0, B)).get(0),
                                  add_n(holes(), reserve(3)).get(1)],
    "add text": lambda: [add_n(empty(dtype="string").push(np.array(["a"], object)),
                               empty(dtype="string").push(np.array(["b"], object))).size()],
    "add bools": lambda: [add_n(empty(dtype="bool").push(True),
                                empty(dtype="bool").push(True)).stack()],
    "add nested": lambda: [List(add_n(nested(), nested()).get(1, (), tf.variant)).get(1)],
    "add none": lambda: [List(add_n(List(_no_list()), two()).handle).size()],
    "add nothing": lambda: [add_n(empty(), empty()).size()],
    "zeros": lambda: [two().zeros().stack(), holes((2,)).zeros().stack(), two().zeros().shape(),
                      empty((2, -1)).zeros().shape()],
    "zeros text": lambda: [empty(dtype="string").push(np.array(["a"], object)).zeros().stack()],
    "zeros of nothing": lambda: [List(_no_list()).zeros().size()],
    "zeros nested": lambda: [List(nested().zeros().get(1, (), tf.variant)).get(1)],
    "zeros holes unknown": lambda: [holes().zeros().get(1), reserve(2).zeros().size()],
    "zeros holes unknown read": lambda: [reserve(2).zeros().get(0)],
    "identity": lambda: [List(R.Identity(input=two().handle)).stack(),
                         List(R.StopGradient(input=two().handle)).stack()],
    "nested": lambda: [List(nested().get(1, (), tf.variant)).get(1), nested().size(),
                       List(nested().pop((), tf.variant)[1]).size()],
    "nested stack": lambda: [List(R.Unpack(value=nested().stack((), tf.variant), num=2)[1]).get(1)],
    "nested hole": lambda: [List(reserve(2, (), tf.variant).get(1)).size()],
    "nested gather": lambda: [List(R.Unpack(value=nested().gather([1, 0], (), tf.variant),
                                            num=2)[1]).get(1)],
    "through a list of unknowns": lambda: [List(empty((), tf.variant).push(two().handle).get(
        0)).get(0, (2,))],
    "push dtype opaque": lambda: [opaque(empty()).push(np.array([1], np.int32)).size()],
    "get dtype opaque": lambda: [opaque(two()).get(0, dtype=tf.int32)],
    "set dtype opaque": lambda: [opaque(two()).set(0, np.array([1], np.int32)).size()],
    "pop dtype opaque": lambda: [opaque(two()).pop(dtype=tf.int32)[1]],
    "stack dtype opaque": lambda: [opaque(two()).stack(dtype=tf.int32)],
    "gather dtype opaque": lambda: [opaque(two()).gather([0], dtype=tf.int32)],
    "concat dtype opaque": lambda: opaque(two()).concat(dtype=tf.int32),
    "concat v1 dtype opaque": lambda: opaque(two()).concat_v1(dtype=tf.int32),
    "join dtype opaque": lambda: [opaque(two()).join(opaque(empty(dtype="int32"))).size()],
    "join attr opaque": lambda: [opaque(two()).join(opaque(two()), tf.int32).size()],
    "join max": lambda: [opaque(empty(n_max=5)).join(empty(n_max=1)).push(A).push(A).size()],
    "join vectors sizes opaque": lambda: [_joined(3, hide=True)],
    "join vector scalar": lambda: [List(R.TensorListConcatLists(input_a=two().handle,
            input_b=R.Pack(values=[two().handle]), element_dtype=tf.float32)).size()],
    "join none": lambda: [two().join(List(_no_list())).size()],
    "batch dtype opaque": lambda: [push_batch([opaque(two())],
                                              np.zeros((1, 2), np.int32))[0].size()],
    "batch of none": lambda: [push_batch([List(_no_list())], M[:1])[0].size()],
    "batch matrix": lambda: [tf.shape(R.TensorListPushBackBatch(input_handles=tf.reshape(
        R.Pack(values=[two().handle] * 4), [2, 2]), tensor=oracle.const(M)))],
    "add dtypes opaque": lambda: [add_n(opaque(two()),
                                        opaque(empty(dtype="int32").push(1).push(2))).size()],
    "add two none": lambda: [List(add_n(List(_no_list()), List(_no_list())).handle).size()],
    "add list none": lambda: [List(add_n(two(), List(_no_list())).handle).size()],
    "add vectors": lambda: [List(R.Unpack(value=R.AddN(
        inputs=[R.Pack(values=[two().handle] * 2)] * 2), num=2)[0]).stack()],
    "zeros vector": lambda: [List(R.Unpack(value=R.ZerosLike(x=R.Pack(values=[two().handle] * 2)),
                                           num=2)[0]).stack()],
    "zeros bool": lambda: [empty(dtype="bool").push(True).zeros().stack()],
    "zeros text hole": lambda: [reserve(2, (), "string").zeros().size()],
    "zeros nothing text": lambda: [empty(dtype="string").zeros().size()],
    "list of handles": lambda: [R.TensorListLength(input_handle=R.TensorListPushBack(
        input_handle=empty(dtype=tf.resource).handle,
        tensor=R.StackV2(max_size=3, elem_type=tf.float32)))],
    "shared": _shared,
    "chain": _chain(40),
}


def _no_list():
    """A variant that holds nothing."""
    return reserve(1, (), tf.variant).get(0)


def _joined(n, rank=1, hide=False):
    a = R.Pack(values=[two().handle] * 2)
    b = R.Pack(values=[empty().push(C).handle] * n)
    if hide:
        a, b = (empty(ANY, tf.variant).push(each).get(0) for each in (a, b))
    if rank == 2:
        a, b = tf.reshape(a, [1, 2]), tf.reshape(b, [1, 2])
    joined = R.TensorListConcatLists(input_a=a, input_b=b, element_dtype=tf.float32)
    return List(R.Unpack(value=tf.reshape(joined, [-1]), num=2)[1]).get(2)


def cases():
    for i, dtype in enumerate(ALL):
        for j, shape in enumerate(((), (2,), (2, 3), (0,), (1, 2, 1, 2, 1, 2),
                                   (1, 1, 2, 1, 1, 2, 1, 1, 2), (30, 40))):
            if dtype in ("float32", "string", "int32") or (i + j) % 2 == 0:
                yield f"elements/{dtype}/{shape}", _elements(dtype, shape)
                yield f"bulk/{dtype}/{shape}", _bulk(dtype, shape)
                if dtype in NUMBERS:
                    yield f"sums/{dtype}/{shape}", _sums(dtype, shape)
        for lengths in ([1, 2, 2], [0, 3], [4], [0, 0]):
            yield f"split/{dtype}/{lengths}", _split(dtype, (2,) if i % 2 else (), lengths)
    for name, build in PROGRAMS.items():
        yield f"program/{name}", build
