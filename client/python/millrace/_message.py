"""The bytes of one call of a Python function, as kernels/host/calls/py_message.h describes them.

A blob is the elements of a uint8 vector. Values other than strings are read as views on it, or on
the memory that both ends share (_memory.py).
"""
import struct

import numpy as np

from millrace import _memory

JOIN, SERVE, LEAVE = range(3)
EAGER, SHARES = 1, 2  # flags of a call
MAX_MESSAGE_BYTES = 1 << 16

_CALL = struct.Struct("<QIIII")
_REQUEST = struct.Struct("<QQIIII")
_VALUE = struct.Struct("<IIQ")
_PLACE = struct.Struct("<Q")
_STRING = 7  # DT_STRING
_SHARED = 1 << 31


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


def read_call(blob, numpy_type, memory=None):
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
        if dtype & _SHARED:
            raw = memory.view(_PLACE.unpack_from(blob, begin)[0], size)
            values.append(raw.view(numpy_type(dtype & ~_SHARED)).reshape(shape))
            size = _PLACE.size
        elif dtype == _STRING:
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


def _encode(value, type_number, memory):
    """(number of the dtype, shape, list of bytes-like parts, size of the value) of a numpy
    array."""
    if value.dtype.kind in "OSU":
        texts = _strings(value)
        lengths = np.array([len(t) for t in texts], np.uint64)
        return _STRING, value.shape, [lengths, *texts], lengths.nbytes + sum(map(len, texts))
    dtype, array = type_number(value.dtype), np.ascontiguousarray(value)
    place = 0
    if memory is not None and array.nbytes >= _memory.MIN_VALUE_BYTES:
        place = memory.put(array)
    if place:
        return dtype | _SHARED, value.shape, [_PLACE.pack(place)], array.nbytes
    return dtype, value.shape, [array], array.nbytes


def write_request(server, kind, call=0, code=0, message="", values=(), type_number=None,
                  memory=None):
    """A request as a uint8 array."""
    text = message.encode(errors="replace")[:MAX_MESSAGE_BYTES]
    encoded = [_encode(value, type_number, memory) for value in values]
    at = _REQUEST.size + len(text)
    places = []
    for _, shape, parts, _ in encoded:
        begin = _elements_begin(at, len(shape))
        places.append((_round_up(at, 8), begin))
        at = begin + sum(len(p) if isinstance(p, bytes) else p.nbytes for p in parts)
    blob = np.zeros(at, np.uint8)
    _REQUEST.pack_into(blob, 0, server, call, kind, code, len(text), len(encoded))
    blob[_REQUEST.size:_REQUEST.size + len(text)] = np.frombuffer(text, np.uint8)
    for (dtype, shape, parts, size), (head, begin) in zip(encoded, places):
        _VALUE.pack_into(blob, head, dtype, len(shape), size)
        dims = np.array(shape, np.int64).view(np.uint8)
        blob[head + _VALUE.size:head + _VALUE.size + dims.size] = dims
        for part in parts:
            is_bytes = isinstance(part, bytes)
            raw = np.frombuffer(part, np.uint8) if is_bytes else part.reshape(-1).view(np.uint8)
            blob[begin:begin + raw.size] = raw
            begin += raw.size
    return blob
