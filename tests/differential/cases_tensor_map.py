"""Cases of tensor maps."""

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops


def mapped(*pairs):
    """A map of these entries, in this order."""
    handle = R.EmptyTensorMap()
    for key, value in pairs:
        handle = R.TensorMapInsert(input_handle=handle, key=oracle.const(key),
                                   value=oracle.const(value))
    return handle


F = np.float32
TWO = ((1, F([1, 2])), (2, F([3])))


def case(pairs, ask):
    return lambda: ask(mapped(*pairs))


def lookup(key, dtype=tf.float32):
    return lambda m: [R.TensorMapLookup(input_handle=m, key=oracle.const(key), value_dtype=dtype)]


def has(*keys):
    return lambda m: [R.TensorMapHasKey(input_handle=m, key=oracle.const(key)) for key in keys]


def size(m):
    return [R.TensorMapSize(input_handle=m)]


def sorted_keys(dtype):
    """In which order they come is nobody's business."""
    return lambda m: [tf.sort(tf.reshape(R.TensorMapStackKeys(input_handle=m, key_dtype=dtype),
                                         [-1]))]


def erased(key, then):
    return lambda m: then(R.TensorMapErase(input_handle=m, key=oracle.const(key),
                                           value_dtype=tf.float32))


def twice(m):
    """The map before and after a change to it."""
    more = R.TensorMapInsert(input_handle=m, key=oracle.const(7), value=oracle.const(F(7)))
    return size(m) + size(more) + has(7)(m) + has(7)(more)


def cases():
    yield "TensorMap/size", case(TWO, size)
    yield "TensorMap/empty", case((), size)
    yield "TensorMap/twice", case(TWO, twice)
    yield "TensorMap/replaced", case((*TWO, (2, F([9, 9]))), lambda m: size(m) + lookup(2)(m))
    yield "TensorMap/many", case([(k, F(k)) for k in range(40)], lambda m: size(m) + lookup(33)(m)
                                 + sorted_keys(tf.int32)(m))
    for key in (1, 2, 3, F(2), np.int64(2), [2]):
        yield f"TensorMapLookup/{key!r}", case(TWO, lookup(key))
    yield "TensorMapLookup/type", case(TWO, lookup(2, tf.int32))
    for dtype in ("int8", "float64", "bool", "complex64", "float16", "uint16"):
        yield f"TensorMapLookup/{dtype}", case([(np.array([1, 0], dtype), F(5))],
                                               lookup(np.array([1, 0], dtype)))
    yield "TensorMapLookup/strings", case([("a", F(1)), (["a", "b"], F(2))],
                                          lambda m: lookup("a")(m) + lookup(["a", "b"])(m))
    yield "TensorMapLookup/string values", case([("a", ["x", "y"])], lookup("a", tf.string))
    yield "TensorMapHasKey", case(TWO, has(1, 2, 3, [1]))
    yield "TensorMapErase", case(TWO, erased(1, lambda m: size(m) + has(1, 2)(m) + lookup(2)(m)))
    yield "TensorMapErase/missing", case(TWO, erased(9, size))
    yield "TensorMapErase/last", case(TWO[:1], erased(1, size))
    yield "TensorMapStackKeys", case(TWO, sorted_keys(tf.int32))
    yield "TensorMapStackKeys/vector", case([([1, 2], F(1))],
                                            lambda m: [
                                                R.TensorMapStackKeys(
                                                    input_handle=m, key_dtype=tf.int32)])
    yield "TensorMapStackKeys/empty", case((), sorted_keys(tf.int32))
    yield "TensorMapStackKeys/type", case(TWO, sorted_keys(tf.float32))
    yield "TensorMapStackKeys/shapes", case([(1, F(1)), ([1, 2], F(2))], sorted_keys(tf.int32))
    yield "TensorMap/a list", lambda: size(R.EmptyTensorList(element_shape=oracle.const(
        np.zeros(0, "int32")), max_num_elements=oracle.const(1), element_dtype=tf.int32))

    def summed():
        both = R.AddN(inputs=[mapped(*TWO), mapped((2, F([10])), (3, F([20])))])
        return size(both) + lookup(1)(both) + lookup(2)(both) + lookup(3)(both)

    def zeros():
        nothing = R.ZerosLike(x=mapped(*TWO))
        return size(nothing) + lookup(1)(nothing)

    yield "TensorMap/sum", summed
    yield "TensorMap/zeros", zeros
