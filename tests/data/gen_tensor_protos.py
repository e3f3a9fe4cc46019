"""Writes tensor_protos.bin: TensorProtos made by TensorFlow, in every type and encoding, each with
the elements that it stands for.

Run once with the project's Python (.venv/bin/python tests/data/gen_tensor_protos.py); the output is
committed. The file is a sequence of cases. Every number is a little-endian 32-bit one, every text
or run of bytes has its length before it:
  name, dtype, rank, sizes..., proto, elements
Elements of plain types are their bytes, row-major; of strings, each string's length and bytes.
"""
import os
import struct

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

cases = []


def number(n):
    return struct.pack("<I", n)


def run(data):
    return number(len(data)) + data


def add(name, proto, values, raw=None):
    values = np.asarray(values)
    if raw is None:
        if values.dtype == object:
            raw = b"".join(run(v) for v in values.reshape(-1))
        else:
            raw = values.tobytes()
    shape = [d.size for d in proto.tensor_shape.dim]
    cases.append(run(name.encode()) + number(proto.dtype) + number(len(shape))
                 + b"".join(number(d) for d in shape) +
                 run(proto.SerializeToString()) + run(raw))


def typed_field(dtype):
    if dtype in (tf.half, tf.bfloat16):
        return "half_val"
    if dtype in (tf.float32,):
        return "float_val"
    if dtype == tf.float64:
        return "double_val"
    if dtype == tf.complex64:
        return "scomplex_val"
    if dtype == tf.complex128:
        return "dcomplex_val"
    if dtype == tf.int64:
        return "int64_val"
    if dtype == tf.bool:
        return "bool_val"
    if dtype == tf.uint32:
        return "uint32_val"
    if dtype == tf.uint64:
        return "uint64_val"
    if "float8" in dtype.name or "float4" in dtype.name:
        return "float8_val"
    return "int_val"


def set_typed(proto, dtype, values):
    field = typed_field(dtype)
    flat = values.reshape(-1)
    if field == "half_val":
        proto.half_val.extend(int(v) for v in flat.view(np.uint16))
    elif field == "float8_val":
        proto.float8_val = flat.tobytes()
    elif field in ("scomplex_val", "dcomplex_val"):
        for v in flat:
            getattr(proto, field).extend([v.real, v.imag])
    else:
        getattr(proto, field).extend(v.item() if hasattr(v, "item") else int(v) for v in
                                     (flat.astype(np.int32) if field == "int_val" else flat))


plain = [tf.float32, tf.float64, tf.int32, tf.uint8, tf.int16, tf.int8, tf.complex64, tf.int64,
         tf.bool, tf.bfloat16, tf.uint16,
         tf.complex128, tf.half, tf.uint32, tf.uint64] + [
             tf.dtypes.as_dtype(n) for n in (24, 25, 26, 27, 28, 29, 30, 33)]

for dtype in plain:
    np_type = dtype.as_numpy_dtype
    small = "int4" in dtype.name
    values = np.array([[1, 0, 2], [3, 1, 0]] if small or "float4" in dtype.name
                      else [[1, 0, 2], [77, 100, 64]]).astype(np_type)
    if dtype in (tf.float32, tf.float64, tf.half, tf.bfloat16, tf.complex64, tf.complex128):
        values = np.array([[1.5, -0.0, 65504], [-2.25, np.inf, 1e-7]]).astype(np_type)
    elif dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
        values = np.array([[1, -1, np.iinfo(np_type).min], [0, np.iinfo(np_type).max, 5]],
                          dtype=np_type)
    elif dtype in (tf.uint8, tf.uint16, tf.uint32, tf.uint64):
        values = np.array([[1, 0, np.iinfo(np_type).max], [0, 9, 5]], dtype=np_type)
    if dtype in (tf.complex64, tf.complex128):
        values = values * np_type(1) + np_type(2j)

    def head():
        return tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum,
                                      tensor_shape=tf.TensorShape(values.shape).as_proto())

    content = head()
    content.tensor_content = values.tobytes()
    add(dtype.name + " content", content, values)
    typed = head()
    set_typed(typed, dtype, values)
    add(dtype.name + " typed", typed, values)
    few = head()
    set_typed(few, dtype, values.reshape(-1)[:4])
    add(dtype.name + " few", few,
        np.concatenate([values.reshape(-1)[:4], np.repeat(values.reshape(-1)[3:4], 2)]))
    splat = head()
    set_typed(splat, dtype, values.reshape(-1)[:1])
    add(dtype.name + " splat", splat, np.repeat(values.reshape(-1)[:1], 6))
    zeros = head()
    add(dtype.name + " none", zeros, np.zeros(6, np_type))
    many = head()
    set_typed(many, dtype, np.concatenate([values.reshape(-1), values.reshape(-1)]))
    add(dtype.name + " many", many, values)
    scalar = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    set_typed(scalar, dtype, values.reshape(-1)[:1])
    add(dtype.name + " scalar without a shape", scalar, values.reshape(-1)[:1])
    # What TensorFlow's own encoder makes of it.
    try:
        made = tf.make_tensor_proto(values, dtype=dtype)
        add(dtype.name + " make_tensor_proto", made, values)
        uniform = tf.make_tensor_proto(values.reshape(-1)[0], dtype=dtype, shape=[2, 2])
        add(dtype.name + " make_tensor_proto uniform", uniform,
            np.repeat(values.reshape(-1)[:1], 4))
    except (TypeError, ValueError, KeyError):
        pass
    first = values.reshape(-1)[:1]
    expected = {"content": values, "typed": values, "splat": np.repeat(first, 6),
                "none": np.zeros(6, np_type),
                "few": np.concatenate([values.reshape(-1)[:4],
                                       np.repeat(values.reshape(-1)[3:4], 2)])}
    for what, proto in (("content", content), ("typed", typed), ("few", few), ("splat", splat),
                        ("none", zeros)):
        # TensorFlow's own decoder must agree with the elements above.
        try:
            got = tf.io.parse_tensor(proto.SerializeToString(), dtype).numpy()
            print(dtype.name, what, "ok" if got.tobytes() == expected[what].tobytes()
                  else "DIFFERS")
        except Exception as error:
            print(dtype.name, what, "refused by TensorFlow:", str(error)[:80])

for number_of, name in ((11, "qint8"), (12, "quint8"), (13, "qint32"), (15, "qint16"),
                        (16, "quint16")):
    proto = tensor_pb2.TensorProto(dtype=number_of, tensor_shape=tf.TensorShape([3]).as_proto())
    proto.int_val.extend([1, 2, 3])
    size = {"qint8": np.int8, "quint8": np.uint8, "qint32": np.int32, "qint16": np.int16,
            "quint16": np.uint16}[name]
    add(name + " typed", proto, np.array([1, 2, 3], size))

strings = np.array([b"a", b"", b"bc\0d", b"x" * 300], dtype=object)
add("string make_tensor_proto", tf.make_tensor_proto(strings), strings)
add("string one, repeated",
    tensor_pb2.TensorProto(dtype=7, tensor_shape=tf.TensorShape([3]).as_proto(),
                           string_val=[b"ab"]),
    np.array([b"ab"] * 3, dtype=object))
add("string none", tensor_pb2.TensorProto(dtype=7, tensor_shape=tf.TensorShape([2]).as_proto()),
    np.array([b"", b""], dtype=object))
content = tf.io.serialize_tensor(tf.constant(strings)).numpy()
parsed = tensor_pb2.TensorProto.FromString(content)
add("string serialize_tensor", parsed, strings)
lengths = b"\x01\x00\x04\xac\x02"
add("string content", tensor_pb2.TensorProto(dtype=7, tensor_shape=tf.TensorShape([4]).as_proto(),
                                             tensor_content=lengths + b"".join(strings)), strings)
add("empty", tf.make_tensor_proto(np.zeros((0, 3), np.float32)), np.zeros((0, 3), np.float32))
add("large", tf.make_tensor_proto(np.arange(5000, dtype=np.float32)),
    np.arange(5000, dtype=np.float32))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensor_protos.bin"),
          "wb") as out:
    for case in cases:
        out.write(case)
print(len(cases), "cases")
