"""The bytes of one call of a Python function, as kernels/host/calls/py_message.h describes them.

A blob is the elements of a uint8 vector. Values other than strings are read as views on it.
"""
import struct

import numpy as np

JOIN, SERVE, LEAVE = range(3)
EAGER = 1
MAX_MESSAGE_BYTES = 1 << 16

_CALL = struct.Struct("<QIIII")
_REQUEST = struct.Struct("<QQIIII")
_VALUE = struct.Struct("<IIQ")
_STRING = 7  # DT_STRING


def _round_up(at, align):
    return -(-at // align) * align


def _elements_begin(at, rank):
    return _round_up(_round_up(at, 8) + _VALUE.size + 8 * rank, 64)


def _read_strings(blob, begin, size, shape):
    n = int(np.prod(shape, dtype=np.int64))
    lengths = blob[begin:begin + 8 * n].view(np.uint64)
    data = blob[begin + 8 * n:begin + size].tobytes()
    out, at = np.empty(n, dtype=object), 0
    for i, length in enumerate(lengths.tolist()):
        out[i] = data[at:at + length]
        at += length
    return out.reshape(shape)


def read_call(blob, numpy_type):
    """(id, flags, token, values) of a call; numpy_type maps the number of a dtype to numpy's."""
    call, flags, n, token_len, _ = _CALL.unpack_from(blob)
    at = _CALL.size
    token = blob[at:at + token_len].tobytes().decode()
    at += token_len
    values = []
    for _ in range(n):
        dtype, rank, size = _VALUE.unpack_from(blob, _round_up(at, 8))
        shape = np.frombuffer(blob, np.int64, rank, _round_up(at, 8) + _VALUE.size).tolist()
        begin = _elements_begin(at, rank)
        if dtype == _STRING:
            values.append(_read_strings(blob, begin, size, shape))
        else:
            values.append(blob[begin:begin + size].view(numpy_type(dtype)).reshape(shape))
        at = begin + size
    return call, flags, token, values


def _strings(value):
    """The elements of an array of strings as bytes, in row-major order."""
    out = []
    for element in value.reshape(-1).tolist():
        if isinstance(element, str):
            element = element.encode()
        if not isinstance(element, bytes):
            raise TypeError(f"Unsupported object type {type(element).__name__}")
        out.append(element)
    return out


def _encode(value, type_number):
    """(number of the dtype, shape, list of bytes-like parts) of a numpy array."""
    if value.dtype.kind in "OSU":
        texts = _strings(value)
        return _STRING, value.shape, [np.array([len(t) for t in texts], np.uint64), *texts]
    return type_number(value.dtype), value.shape, [np.ascontiguousarray(value)]


def write_request(server, kind, call=0, code=0, message="", values=(), type_number=None):
    """A request as a uint8 array."""
    text = message.encode(errors="replace")[:MAX_MESSAGE_BYTES]
    encoded = [_encode(value, type_number) for value in values]
    at = _REQUEST.size + len(text)
    places = []
    for _, shape, parts in encoded:
        begin = _elements_begin(at, len(shape))
        size = sum(len(p) if isinstance(p, bytes) else p.nbytes for p in parts)
        places.append((_round_up(at, 8), begin, size))
        at = begin + size
    blob = np.zeros(at, np.uint8)
    _REQUEST.pack_into(blob, 0, server, call, kind, code, len(text), len(encoded))
    blob[_REQUEST.size:_REQUEST.size + len(text)] = np.frombuffer(text, np.uint8)
    for (dtype, shape, parts), (head, begin, size) in zip(encoded, places):
        _VALUE.pack_into(blob, head, dtype, len(shape), size)
        blob[head + _VALUE.size:head + _VALUE.size + 8 * \
            len(shape)] = np.array(shape, np.int64).view(np.uint8)
        for part in parts:
            raw = np.frombuffer(part, np.uint8) if isinstance(
                part, bytes) else part.reshape(-1).view(np.uint8)
            blob[begin:begin + raw.size] = raw
            begin += raw.size
    return blob
