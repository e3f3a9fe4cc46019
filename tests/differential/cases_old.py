"""Ops that a client of today cannot make and old graphs hold: TensorFlow runs them in graphs whose
producer is older than the op's removal."""

import atexit
import os
import shutil
import tempfile

import numpy as np
import oracle
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, graph_pb2, tensor_shape_pb2
from tensorflow.python.framework import op_def_registry
from tf_kernels import cpu_dtypes

RNG = np.random.default_rng(7)
DIR = tempfile.mkdtemp(prefix="millrace-cases-old-")
atexit.register(shutil.rmtree, DIR, True)


def attr_value(kind, value):
    a = attr_value_pb2.AttrValue()
    if kind == "type":
        a.type = tf.as_dtype(value).as_datatype_enum
    elif kind == "bool":
        a.b = value
    elif kind == "int":
        a.i = value
    elif kind == "float":
        a.f = value
    elif kind == "string":
        a.s = value.encode()
    elif kind == "shape":
        a.shape.CopyFrom(tf.TensorShape(value).as_proto() if value is not None
                         else tensor_shape_pb2.TensorShapeProto(unknown_rank=True))
    elif kind == "list(int)":
        a.list.i.extend(value)
    elif kind == "list(type)":
        a.list.type.extend(tf.as_dtype(v).as_datatype_enum for v in value)
    elif kind == "list(shape)":
        a.list.shape.extend(tf.TensorShape(v).as_proto() for v in value)
    return a


class Old:
    """Nodes written down and imported as a graph of an old version."""

    def __init__(self):
        self.graph, self.inputs = graph_pb2.GraphDef(), {}

    def value(self, array, dtype=None):
        tensor = oracle.const(array, dtype)
        node = self.graph.node.add(name=f"in{len(self.inputs)}", op="Placeholder")
        node.attr["dtype"].CopyFrom(attr_value("type", tensor.dtype))
        self.inputs[node.name + ":0"] = tensor
        return node.name

    def add(self, op, *inputs, **attrs):
        node = self.graph.node.add(name=f"n{len(self.graph.node)}", op=op, input=inputs)
        kinds = {a.name: a.type for a in op_def_registry.get(op).attr}
        for name, value in attrs.items():
            node.attr[name].CopyFrom(attr_value(kinds[name], value))
        return node.name

    def build(self, *wanted):
        removed = [op_def_registry.get(node.op).deprecation.version for node in self.graph.node]
        self.graph.versions.producer = min(version for version in removed if version) - 1
        return tf.import_graph_def(self.graph, input_map=self.inputs, return_elements=list(wanted),
                                   name="")


def one(op, inputs, n_outputs=1, **attrs):
    """A case of one op. inputs: (array, dtype) pairs."""

    def build():
        old = Old()
        name = old.add(op, *[old.value(*i) for i in inputs], **attrs)
        return old.build(*[f"{name}:{k}" for k in range(n_outputs)])

    return build


def positive(dtype, *shape):
    a = RNG.normal(size=shape) + (1j * RNG.normal(size=shape) if "complex" in dtype else 0)
    return a @ np.conj(np.swapaxes(a, -1, -2)) + 3 * np.eye(shape[-1])


def magnitudes(build):
    """Vectors have a free sign."""
    return lambda: [tf.abs(tensor) for tensor in build()]


LOOSE = {"float16": 2e-2, "float32": 2e-3, "complex64": 2e-3, "float64": 1e-9, "complex128": 1e-9}


def diagonals():
    for dtype in cpu_dtypes("BatchMatrixDiag"):
        for shape in ((3,), (2, 3), (0, 2), (2, 0)):
            yield f"BatchMatrixDiag/{dtype}/{shape}", one(
                "BatchMatrixDiag", [(oracle.sample(RNG, dtype, shape), dtype)], T=dtype)
        for shape in ((3, 3), (2, 2, 4), (1, 4, 2)):
            matrix = oracle.sample(RNG, dtype, shape)
            yield f"BatchMatrixDiagPart/{dtype}/{shape}", one(
                "BatchMatrixDiagPart", [(matrix, dtype)], T=dtype)
            diagonal = oracle.sample(RNG, dtype, (*shape[:-2], min(shape[-2:])))
            yield f"BatchMatrixSetDiag/{dtype}/{shape}", one(
                "BatchMatrixSetDiag", [(matrix, dtype), (diagonal, dtype)], T=dtype)
    for dtype in cpu_dtypes("BatchMatrixBandPart"):
        for band in ((0, 0), (1, -1), (-1, 1)):
            matrix = oracle.sample(RNG, dtype, (2, 3, 4))
            yield f"BatchMatrixBandPart/{dtype}/{band}", one(
                "BatchMatrixBandPart", [(matrix, dtype), (band[0], "int64"), (band[1], "int64")],
                T=dtype)
    for op in ("BatchMatrixDiag", "BatchMatrixDiagPart"):
        yield f"{op}/scalar", one(op, [(1.0, "float32")], T="float32")
    yield "BatchMatrixSetDiag/sizes", one("BatchMatrixSetDiag",
                                          [(np.ones((2, 3)), "float32"), (np.ones(3), "float32")],
                                          T="float32")


def linear():
    square = (([], 3), ([2], 4), ([2, 0], 3), ([3], 0))
    for op, outputs in {"BatchCholesky": 1, "BatchMatrixDeterminant": 1, "BatchMatrixInverse": 1,
                        "BatchSelfAdjointEig": 1, "SelfAdjointEig": 1}.items():
        for dtype in cpu_dtypes(op):
            options = {"rtol": LOOSE[dtype], "atol": LOOSE[dtype]}
            for stack, n in square:
                build = one(op, [(positive(dtype, *stack, n, n), dtype)], outputs, T=dtype)
                yield f"{op}/{dtype}/{stack}{n}", magnitudes(
                    build) if "Eig" in op else build, options
            yield f"{op}/{dtype}/vector", one(op, [(np.ones(3), dtype)], outputs, T=dtype)
            yield f"{op}/{dtype}/oblong", one(op, [(np.ones((2, 3)), dtype)], outputs, T=dtype)
    for dtype in cpu_dtypes("BatchMatrixSolve"):
        options, many = {"rtol": LOOSE[dtype], "atol": LOOSE[dtype]}, oracle.sample(
            RNG, dtype, (2, 3, 2))
        matrix = positive(dtype, 2, 3, 3)
        for adjoint in (False, True):
            yield f"BatchMatrixSolve/{dtype}/{adjoint}", one(
                "BatchMatrixSolve", [(matrix, dtype), (many, dtype)], T=dtype,
                adjoint=adjoint), options
            for lower in (False, True):
                yield (
                    f"BatchMatrixTriangularSolve/{dtype}/{adjoint}/{lower}",
                    one("BatchMatrixTriangularSolve", [(matrix, dtype), (many, dtype)], T=dtype,
                        adjoint=adjoint, lower=lower),
                    options,
                )
        yield f"BatchMatrixSolve/{dtype}/singular", one(
            "BatchMatrixSolve", [(np.zeros((1, 2, 2)), dtype), (np.ones((1, 2, 1)), dtype)],
            T=dtype)
        yield f"BatchMatrixSolve/{dtype}/differ", one(
            "BatchMatrixSolve", [(matrix, dtype), (np.ones((2, 2, 2)), dtype)], T=dtype)
    for dtype in cpu_dtypes("BatchMatrixInverse"):
        yield f"BatchMatrixInverse/{dtype}/adjoint", one(
            "BatchMatrixInverse", [(positive(dtype, 2, 3, 3), dtype)], T=dtype, adjoint=True), {
                "rtol": LOOSE[dtype], "atol": LOOSE[dtype]}
    for dtype in cpu_dtypes("BatchMatrixSolveLs"):
        tall = RNG.normal(size=(2, 5, 3))
        for fast in (False, True):
            yield (
                f"BatchMatrixSolveLs/{dtype}/{fast}",
                one("BatchMatrixSolveLs", [(tall, dtype), (RNG.normal(size=(2, 5, 2)), dtype),
                                           (0.1 if fast else 0.0, "float64")], T=dtype, fast=fast),
                {"rtol": LOOSE[dtype], "atol": LOOSE[dtype]},
            )
    for dtype in cpu_dtypes("BatchCholeskyGrad"):
        factor = np.linalg.cholesky(positive(dtype, 2, 4, 4))
        yield f"BatchCholeskyGrad/{dtype}", one("BatchCholeskyGrad",
                                                [(factor, dtype), (RNG.normal(size=(2, 4, 4)),
                                                        dtype)], T=dtype), {
                                                            "rtol": LOOSE[dtype],
                                                            "atol": LOOSE[dtype]}
    for dtype in cpu_dtypes("BatchSelfAdjointEigV2"):  # vectors have a free sign: values only
        yield f"BatchSelfAdjointEigV2/{dtype}", one(
            "BatchSelfAdjointEigV2", [(positive(dtype, 2, 4, 4), dtype)], T=dtype,
            compute_v=False), {"rtol": LOOSE[dtype], "atol": LOOSE[dtype]}
    for dtype in cpu_dtypes("BatchSvd"):
        for shape in ((2, 4, 3), (3, 4), (2, 0, 3)):
            yield f"BatchSvd/{dtype}/{shape}", one(
                "BatchSvd", [(RNG.normal(size=shape), dtype)], T=dtype, compute_uv=False), {
                    "rtol": LOOSE[dtype], "atol": LOOSE[dtype]}


def neural():
    for dtype in cpu_dtypes("BatchNormWithGlobalNormalization"):
        x, v, up = RNG.normal(size=(2, 3, 3, 4)), [
            RNG.uniform(0.5, 2, 4) for _ in range(4)], RNG.normal(size=(2, 3, 3, 4))
        for scaled in (False, True):
            attrs, options = {"T": dtype, "variance_epsilon": 0.01,
                              "scale_after_normalization": scaled}, {
                                  "rtol": 3 * LOOSE[dtype], "atol": 3 * LOOSE[dtype]}
            yield f"BatchNormWithGlobalNormalization/{dtype}/{scaled}", one(
                "BatchNormWithGlobalNormalization", [(a, dtype) for a in (x, *v)], **attrs), options
            inputs = [(a, dtype) for a in (x, v[0], v[1], v[3], up)]
            yield f"BatchNormWithGlobalNormalizationGrad/{dtype}/{scaled}", one(
                "BatchNormWithGlobalNormalizationGrad", inputs, 5, **attrs), options
        yield f"BatchNormWithGlobalNormalization/{dtype}/rank", one(
            "BatchNormWithGlobalNormalization", [(a, dtype) for a in (x[0], *v)], **attrs)
        yield f"BatchNormWithGlobalNormalization/{dtype}/sizes", one(
            "BatchNormWithGlobalNormalization", [(a, dtype) for a in (x, v[0][:2], *v[1:])],
            **attrs), {"explained": "TensorFlow reads past the end of a mean that is too short"}
    for op in ("Conv3DBackpropInput", "Conv3DBackpropFilter"):
        for dtype in cpu_dtypes(op):
            for padding, out, stride in (("SAME", 4, 1), ("VALID", 3, 1), ("SAME", 2, 2)):
                inputs = [(RNG.normal(size=s), dtype)
                          for s in ((2, 4, 4, 4, 2), (2, 2, 2, 2, 3), (2, out, out, out, 3))]
                options = {"rtol": LOOSE[dtype] * 4, "atol": LOOSE[dtype] * 4}
                yield f"{op}/{dtype}/{padding}{stride}", one(
                    op, inputs, T=dtype, strides=[1, stride, stride, stride, 1],
                    padding=padding), options
            wrong = [(np.ones(s), dtype)
                     for s in ((2, 4, 4, 4, 2), (2, 2, 2, 3, 3), (2, 4, 4, 4, 3))]
            yield f"{op}/{dtype}/channels", one(op, wrong, T=dtype, strides=[1] * 5, padding="SAME")
    for k in (3, 9):
        broken = {"explained": "TensorFlow cannot run TopK: its kernel asks for an attr that the "
                               "op does not have"}
        yield f"TopK/{k}", one("TopK", [(oracle.sample(RNG, "float32", (3, 7)), "float32")], 2,
                               T="float32", k=k), broken
    for dtype in cpu_dtypes("QuantizeAndDequantize"):
        for signed, bits, given in ((True, 8, False), (False, 8, True), (True, 4, True),
                                    (True, 16, False)):
            yield (
                f"QuantizeAndDequantize/{dtype}/{signed}/{bits}/{given}",
                one("QuantizeAndDequantize", [(RNG.uniform(0, 3, (4, 5)), dtype)], T=dtype,
                    signed_input=signed, num_bits=bits, range_given=given, input_min=-1.0 if signed
                    else 0.0, input_max=2.0),
            )
        yield f"QuantizeAndDequantize/{dtype}/bits", one(
            "QuantizeAndDequantize", [(np.ones(2), dtype)], T=dtype, num_bits=70)
        yield f"QuantizeAndDequantize/{dtype}/range", one(
            "QuantizeAndDequantize", [(np.ones(2), dtype)], T=dtype, range_given=True,
            input_min=3.0, input_max=1.0)


def others():
    for dtype in cpu_dtypes("RandomPoisson", "dtype"):
        for index in ("int32", "int64"):
            rates = np.array([0.1, 2.0, 30.0])
            yield f"RandomPoisson/{dtype}/{index}", one(
                "RandomPoisson", [(np.array([4, 5]), index), (rates, dtype)], S=index, dtype=dtype,
                seed=5, seed2=7)
        yield f"RandomPoisson/{dtype}/matrix", one(
            "RandomPoisson", [(np.ones((1, 1)), "int32"), (rates, dtype)], S="int32", dtype=dtype,
            seed=5, seed2=7)
    sound = RNG.uniform(-1, 1, (2, 30, 1))
    yield "AudioSummary/two", one("AudioSummary", [("tag", "string"), (sound, "float32")],
                                  sample_rate=44.0, max_outputs=3)
    yield "AudioSummary/one", one("AudioSummary", [("tag", "string"), (sound[..., 0], "float32")],
                                  sample_rate=8000.0, max_outputs=1)
    yield "AudioSummary/rank", one("AudioSummary", [("tag", "string"), (sound[0, :, 0], "float32")],
                                   sample_rate=8000.0)
    yield "AudioSummary/tag", one("AudioSummary",
                                  [(np.array(["a", "b"]), "string"), (sound, "float32")],
                                  sample_rate=8000.0)

    def placeholder(shape, value):
        def build():
            old = Old()
            name = old.add("PlaceholderV2", dtype="float32", shape=shape)
            (x,) = old.build(name + ":0")
            return [oracle.Step([x], {x: value}), oracle.Step([x])]

        return build

    yield "PlaceholderV2/fed", placeholder([2, None], np.ones((2, 3), "float32"))
    yield "PlaceholderV2/unknown", placeholder(None, np.ones((2, 3), "float32"))


def readers():
    """Readers and queues whose handles are references."""
    with open(os.path.join(DIR, "lines"), "wb") as out:
        out.write(b"one\ntwo\n\nfour")
    with tf.io.TFRecordWriter(os.path.join(DIR, "records")) as writer:
        for value in (b"", b"a", b"bc" * 100):
            writer.write(value)

    def read(kind, path, n, state=False, **attrs):
        def build():
            old = Old()
            reader = old.add(kind, **attrs)
            queue = old.add("FIFOQueue", component_types=["string"], shapes=[[]])
            fill = old.add("QueueEnqueueMany", queue,
                           old.value(np.array([os.path.join(DIR, path)]), "string"),
                           Tcomponents=["string"])
            close, reset = old.add("QueueClose", queue), old.add("ReaderReset", reader)
            once, counts = old.add("ReaderRead", reader, queue), [
                old.add("ReaderNumRecordsProduced", reader),
                old.add("ReaderNumWorkUnitsCompleted", reader)]
            saved, wrong = old.add("ReaderSerializeState", reader), old.add(
                "ReaderRestoreState", reader, old.value("no state", "string"))
            names = [fill, close, reset, once + ":0", once + ":1", counts[0] + ":0",
                     counts[1] + ":0", saved + ":0", wrong]
            fill, close, reset, key, value, produced, completed, saved, wrong = old.build(*names)
            steps = [oracle.Step(targets=[fill]), oracle.Step(targets=[close])] + [
                oracle.Step([key, value])] * n + [oracle.Step([produced, completed])]
            return steps + ([oracle.Step([saved]), oracle.Step(targets=[wrong])] if state
                            else [oracle.Step(targets=[reset]), oracle.Step([produced, completed])])

        return build

    for state in (False, True):
        yield f"TextLineReader/{state}", read("TextLineReader", "lines", 5, state), {
            "modes": ("static",)}
        yield f"TextLineReader/skips/{state}", read(
            "TextLineReader", "lines", 3, state, skip_header_lines=2), {"modes": ("static",)}
        yield f"FixedLengthRecordReader/{state}", read(
            "FixedLengthRecordReader", "lines", 4, state, record_bytes=3, header_bytes=1), {
                "modes": ("static",),
                "explained": "TensorFlow's kernel asks for an attr that the op does not have"}
        yield f"TFRecordReader/{state}", read("TFRecordReader", "records", 4, state), {
            "modes": ("static",)}
        yield f"IdentityReader/{state}", read("IdentityReader", "lines", 2, state), {
            "modes": ("static",)}
        yield f"WholeFileReader/{state}", read("WholeFileReader", "lines", 2, state), {
            "modes": ("static",)}


class OldArray:
    """A TensorArray of the first or second version: the handle is strings, the flow a number."""

    def __init__(self, old, version, n=3, dtype="float32", **attrs):
        self.old, self.version, self.dtype = old, version, dtype
        attrs.setdefault("element_shape", None)
        self.handle = old.add(f"TensorArray{version}", old.value(n, "int32"), dtype=dtype, **attrs)
        self.flow = old.value(0.0, "float32")

    def write(self, index, value):
        self.flow = self.old.add(f"TensorArrayWrite{self.version}", self.handle,
                                 self.old.value(index, "int32"),
                                 self.old.value(value, self.dtype), self.flow, T=self.dtype)
        return self

    def change(self, op, *inputs, **attrs):
        self.flow = self.old.add(op, self.handle, *inputs, self.flow, **attrs)
        return self

    def get(self, op, *inputs, **attrs):
        return self.old.add(op, self.handle, *inputs, self.flow, **attrs)


def old_array(version, of, **attrs):
    def build():
        old = Old()
        return old.build(*[f"{name}:0" for name in of(OldArray(old, version, **attrs), old)])

    return build


def old_arrays():
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    for v in ("", "V2"):
        def read(a, old, index=1):
            return [a.get(f"TensorArrayRead{a.version}", old.value(index, "int32"),
                          dtype="float32")]

        def gather(a, old, indices=(1, 0)):
            return [a.get(f"TensorArrayGather{a.version}", old.value(indices, "int32"),
                          dtype="float32", element_shape=None)]

        def scatter(a, old, indices=(2, 0, 1)):
            return a.change(f"TensorArrayScatter{a.version}", old.value(indices, "int32"),
                            old.value(rows, "float32"), T="float32")

        def size(a, old):
            return [a.get(f"TensorArraySize{a.version}")]

        def split(a, old, lengths=(1, 0, 2)):
            return a.change(f"TensorArraySplit{a.version}", old.value(rows, "float32"),
                            old.value(lengths, "int64"), T="float32")

        def concat(a, old):
            return [a.get(f"TensorArrayConcat{a.version}", dtype="float32",
                          element_shape_except0=None)]

        def gradient(a, old):
            a.write(0, [1.0, 2.0])
            a.handle = old.add(f"TensorArrayGrad{a.version}", a.handle, a.flow, source="g")
            a.write(0, [3.0, 4.0]).write(0, [5.0, 6.0])
            return gather(a, old, (0,))

        programs = {
            "size": size,
            "write": lambda a, old: read(a.write(1, [1.0, 2.0]), old),
            "unwritten": read,
            "outside": lambda a, old: read(a, old, 7),
            "write outside": lambda a, old: size(a.write(3, 1.0), old),
            "twice": lambda a, old: size(a.write(0, 1.0).write(0, 1.0), old),
            "gather": lambda a, old: gather(a.write(0, 1.0).write(1, 2.0), old),
            "scatter": lambda a, old: gather(scatter(a, old), old),
            "scatter outside": lambda a, old: gather(scatter(a, old, (0, 1, 5)), old),
            "split": lambda a, old: concat(split(a, old), old),
            "split wrong": lambda a, old: concat(split(a, old, (1, 1)), old),
            "gradient": gradient,
        }
        for name, of in programs.items():
            yield f"TensorArray{v}/{name}", old_array(v, of)
        yield f"TensorArray{v}/grows", old_array(v, lambda a, old: size(a.write(5, 1.0), old),
                                                 dynamic_size=True)
    for n in (3, 4):
        def unpack(a, old):
            return a.change("TensorArrayUnpack", old.value(rows, "float32"), T="float32")

        def pack(a, old):
            return [a.get("TensorArrayPack", dtype="float32", element_shape=None)]

        yield f"TensorArray/unpack {n}", old_array(
            "", lambda a, old: pack(unpack(a, old), old), n=n)
    yield "TensorArray/unpack 2", old_array("", lambda a, old: pack(unpack(a, old), old), n=2)
    yield "TensorArray/pack 0", old_array("", lambda a, old: pack(a, old), n=0)


def cases():
    yield from diagonals()
    yield from linear()
    yield from neural()
    yield from others()
    yield from readers()
    yield from old_arrays()
