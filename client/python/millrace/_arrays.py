"""NumPy arrays to tensors of the library and back, without copies where that can be."""
import collections
import ctypes
import itertools

import numpy as np

from millrace._library import Deallocator

_STRING = 7
_DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 4: np.uint8, 5: np.int16, 6: np.int8,
           8: np.complex64, 9: np.int64, 10: np.bool_, 17: np.uint16, 18: np.complex128,
           19: np.float16, 22: np.uint32, 23: np.uint64}
_EXTENDED = {14: "bfloat16", 24: "float8_e5m2", 25: "float8_e4m3fn"}  # of ml_dtypes
_NAMES = {7: "string", 20: "resource", 21: "variant"}

# Arrays that tensors of the library use, by the number that the library gives back; and numbers
# that came back. An array may run code of its own when it goes, so it does not go in the callback,
# which runs on a thread of the library.
_kept, _numbers, _returned = {}, itertools.count(1), collections.deque()


@Deallocator
def _release(_data, _length, number):
    _returned.append(number)


def drop_returned():
    while _returned:
        _kept.pop(_returned.popleft(), None)


def _extended(number):
    """The dtype of ml_dtypes; None if the package is not there."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(getattr(ml_dtypes, _EXTENDED[number]))


def dtype_of(number):
    if number in _DTYPES:
        return np.dtype(_DTYPES[number])
    if number in _EXTENDED and _extended(number) is not None:
        return _extended(number)
    raise TypeError(f"a value of dtype {_EXTENDED.get(number) or _NAMES.get(number, number)} is no "
                    "NumPy array" + (" without ml_dtypes" if number in _EXTENDED else ""))


def _bytes(value):
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, np.bytes_)):
        return bytes(value)
    raise TypeError(f"an element of a tensor of strings is {type(value).__name__}, neither str nor "
                    "bytes")


def _strings(library, array):
    elements = [_bytes(value) for value in array.reshape(-1)]
    pointers = (ctypes.c_char_p * max(len(elements), 1))(*elements)
    lengths = (ctypes.c_size_t * max(len(elements), 1))(*map(len, elements))
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    return library.MR_NewStringTensor(dims, array.ndim, pointers, lengths)


def _convert(array, dtype):
    """Numbers of the same kind, or integers that become others without a loss."""
    are_integers = array.dtype.kind in "iu" and dtype.kind in "iu"
    if not are_integers and array.size and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(f"a feed has dtype {array.dtype}, and the graph takes {dtype}")
    converted = array.astype(dtype)
    if are_integers and not (np.array_equal(converted.astype(array.dtype), array)
                             and np.array_equal(converted < 0, array < 0)):
        raise TypeError(f"a feed has dtype {array.dtype}, and the graph takes {dtype}: its "
                        "numbers do not fit")
    return converted


def to_tensor(library, value, number):
    """A new tensor of the dtype. It shares the memory of an array that has this dtype already; do
    not change the array before the step has ended."""
    if number == _STRING:
        return _strings(library, np.asarray(value, dtype=object))
    dtype = dtype_of(number)
    array = np.asarray(value)
    if array.dtype != dtype:
        array = _convert(array, dtype)
    array = np.require(array, requirements="CA")
    drop_returned()
    kept = next(_numbers)
    _kept[kept] = array
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    tensor = library.TF_NewTensor(number, dims, array.ndim, array.ctypes.data, array.nbytes,
                                  _release, kept)
    if not tensor:
        raise ValueError(f"no tensor has the shape {array.shape}")
    return tensor


class _Owner:
    """Keeps a tensor of the library alive for the arrays that are views on it."""

    def __init__(self, library, tensor, size):
        self._library, self._tensor = library, tensor
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,),
                                    "data": (library.TF_TensorData(tensor), False)}

    def __del__(self):
        self._library.TF_DeleteTensor(self._tensor)


def _read_strings(library, tensor, shape):
    length = ctypes.c_size_t()
    out = np.empty(library.TF_TensorElementCount(tensor), dtype=object)
    for i in range(out.size):
        data = library.MR_StringAt(tensor, i, ctypes.byref(length))
        out[i] = ctypes.string_at(data, length.value) if length.value else b""
    return out.reshape(shape)


def to_value(library, tensor):
    """The value of a tensor, which is taken: an array that is a view on it, or of bytes objects for
    strings. A scalar is a scalar of NumPy, or bytes."""
    owner = None
    try:
        number = library.TF_TensorType(tensor)
        shape = tuple(library.TF_Dim(tensor, i) for i in range(library.TF_NumDims(tensor)))
        if number == _STRING:
            return _read_strings(library, tensor, shape)[()]
        dtype, size = dtype_of(number), library.TF_TensorByteSize(tensor)
        if size == 0:
            return np.empty(shape, dtype)
        owner = _Owner(library, tensor, size)
        return np.asarray(owner).view(dtype).reshape(shape)[()]
    finally:
        if owner is None:
            library.TF_DeleteTensor(tensor)
