"""Loads libmillrace and TensorFlow's own C API with one set of prototypes: those of our headers.

    ours, theirs = millrace(), tensorflow()
    graph = ours.TF_NewGraph()

A Library's attributes are the C functions. Graphs are built with Builder, by the same calls
through either of the two.
"""
import ctypes
import functools
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(os.environ["MILLRACE_BIN"].rstrip("/")) if "MILLRACE_BIN" in os.environ \
    else os.path.join(ROOT, "build")
HEADERS = ["c_status.h", "c_buffer.h", "c_tensor.h", "c_graph.h", "c_session.h"]
HEADERS += [name for name in ("c_function.h", "c_import.h", "c_gradients.h", "c_while.h",
                                "c_saved_model.h", "c_run_async.h")
            if os.path.exists(os.path.join(ROOT, "client", name))]
HEADERS += sorted(os.path.join("training", name)
                  for name in os.listdir(os.path.join(ROOT, "client", "training"))
                  if name.endswith(".h") and not name.endswith("_internal.h"))
SHARED_OBJECT = os.path.join(BUILD, "client", "libmillrace.so.0")

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL, HALF, RESOURCE, VARIANT = 1, 2, 3, 7, 9, 10, 19, 20, 21
CODES = {0: "OK", 1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED",
         5: "NOT_FOUND", 6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED",
         9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED",
         13: "INTERNAL", 14: "UNAVAILABLE"}


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t),
                ("data_deallocator", ctypes.c_void_p)]


class Output(ctypes.Structure):
    _fields_ = [("oper", ctypes.c_void_p), ("index", ctypes.c_int)]


class AttrMetadata(ctypes.Structure):
    _fields_ = [("is_list", ctypes.c_ubyte), ("list_size", ctypes.c_int64),
                ("type", ctypes.c_int), ("total_size", ctypes.c_int64)]


class WhileParams(ctypes.Structure):
    _fields_ = [("ninputs", ctypes.c_int), ("cond_graph", ctypes.c_void_p),
                ("cond_inputs", ctypes.POINTER(Output)), ("cond_output", Output),
                ("body_graph", ctypes.c_void_p), ("body_inputs", ctypes.POINTER(Output)),
                ("body_outputs", ctypes.POINTER(Output)), ("name", ctypes.c_char_p)]


class Initializer(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("a", ctypes.c_double), ("b", ctypes.c_double),
                ("seed", ctypes.c_int64)]


class SyncReplica(ctypes.Structure):
    _fields_ = [("init", ctypes.c_void_p), ("train", ctypes.c_void_p)]


BY_VALUE = {"int": ctypes.c_int, "TF_Code": ctypes.c_int, "TF_DataType": ctypes.c_int,
            "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
            "float": ctypes.c_float, "double": ctypes.c_double,
            "MR_Initializer": Initializer, "MR_RunDone": ctypes.c_void_p,
            "MR_SyncReplica": SyncReplica, "unsigned char": ctypes.c_ubyte,
            "TF_Output": Output, "TF_Input": Output, "TF_AttrMetadata": AttrMetadata,
            "TF_Buffer": Buffer, "TF_WhileParams": WhileParams}


def c_type(text):
    """The ctypes type of a parameter or result: pointers are addresses, except for texts."""
    text = re.sub(r"\bconst\b", " ", text)
    if "(" in text:
        return ctypes.c_void_p
    stars = text.count("*")
    words = re.findall(r"\w+", text)
    known = [" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in BY_VALUE]
    if stars == 0:
        return BY_VALUE[known[0]] if known else None
    if stars == 1 and words[0] == "char":
        return ctypes.c_char_p
    return ctypes.c_void_p


def split_arguments(text):
    depth, start, out = 0, 0, []
    for i, c in enumerate(text):
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and depth == 0:
            out.append(text[start:i])
            start = i + 1
    return [part.strip() for part in [*out, text[start:]] if part.strip() not in ("", "void")]


@functools.lru_cache()
def declarations():
    """{name: (text of the result, texts of the arguments)} of our headers."""
    out = {}
    for name in HEADERS:
        with open(os.path.join(ROOT, "client", name), encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        for result, function, arguments in re.findall(
                r"^([\w ]+[ *])((?:TF|MR)_\w+)\(((?:[^;])*)\);", text, re.M):
            out[function] = result.replace("extern", ""), split_arguments(arguments)
    return out


@functools.lru_cache()
def prototypes():
    """{name: (type of the result, types of the arguments)} of our headers."""
    return {name: (c_type(result), [c_type(argument) for argument in arguments])
            for name, (result, arguments) in declarations().items()}


class Library:
    def __init__(self, *paths):
        self.objects = [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL if "tensorflow" in path
                                    else ctypes.RTLD_LOCAL) for path in paths]
        self.is_ours = "millrace" in paths[-1]

    def __getattr__(self, name):
        result, arguments = prototypes()[name]
        for library in reversed(self.objects):
            if hasattr(library, name):
                function = library[name]
                function.restype, function.argtypes = result, arguments
                setattr(self, name, function)
                return function
        raise AttributeError(name)


@functools.lru_cache()
def millrace():
    return Library(SHARED_OBJECT)


@functools.lru_cache()
def tensorflow():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import tensorflow as tf
    folder = os.path.dirname(tf.__file__)
    return Library(os.path.join(folder, "libtensorflow_framework.so.2"),
                   os.path.join(folder, "libtensorflow_cc.so.2"))


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Builder:
    """One graph of a library, and what a program does with it."""

    def __init__(self, library, graph=None):
        self.c, self.graph = library, graph or library.TF_NewGraph()
        self.status = library.TF_NewStatus()

    def close(self):
        self.c.TF_DeleteGraph(self.graph)
        self.c.TF_DeleteStatus(self.status)

    def check(self):
        code = self.c.TF_GetCode(self.status)
        if code:
            raise Refused(CODES.get(code, code), self.c.TF_Message(self.status).decode())

    def call(self, name, *arguments):
        """Calls a function whose last argument is a status; raises what it says. Some functions
        of TensorFlow leave the status alone when they succeed."""
        self.c.TF_SetStatus(self.status, 0, b"")
        result = getattr(self.c, name)(*arguments, self.status)
        self.check()
        return result

    # ---- values ----

    def tensor(self, dtype, dims, values=()):
        """A tensor of plain elements."""
        kind = {FLOAT: ctypes.c_float, DOUBLE: ctypes.c_double, INT32: ctypes.c_int32,
                INT64: ctypes.c_int64, BOOL: ctypes.c_bool}[dtype]
        n = 1
        for dim in dims:
            n *= dim
        out = self.c.TF_AllocateTensor(dtype, (ctypes.c_int64 * len(dims))(*dims), len(dims),
                                       n * ctypes.sizeof(kind))
        array = (kind * n).from_address(self.c.TF_TensorData(out)) if n else []
        for i, value in enumerate(values):
            array[i] = value
        return out

    def values(self, tensor):
        """(dtype, dims, elements) of a tensor of plain elements, which is freed."""
        c = self.c
        dtype = c.TF_TensorType(tensor)
        kind = {FLOAT: ctypes.c_float, DOUBLE: ctypes.c_double, INT32: ctypes.c_int32,
                INT64: ctypes.c_int64, BOOL: ctypes.c_bool}[dtype]
        dims = [c.TF_Dim(tensor, i) for i in range(c.TF_NumDims(tensor))]
        n = c.TF_TensorByteSize(tensor) // ctypes.sizeof(kind)
        elements = list((kind * n).from_address(c.TF_TensorData(tensor))) if n else []
        c.TF_DeleteTensor(tensor)
        return dtype, dims, elements

    def bytes(self, name, *arguments):
        """What a function puts into a buffer; the buffer is the last argument before the status."""
        buffer = self.c.TF_NewBuffer()
        try:
            self.call(name, *arguments, buffer)
            b = Buffer.from_address(buffer)
            return ctypes.string_at(b.data, b.length)
        finally:
            self.c.TF_DeleteBuffer(buffer)

    # ---- nodes ----

    def op(self, op, name, *inputs, device=None, controls=(), colocate=(), **attrs):
        """Adds an operation. An input is an Output, an operation (its output 0), or a list of
        these. An attr is a function that sets it: see below."""
        c = self.c
        desc = c.TF_NewOperation(self.graph, op.encode(), name.encode())
        if device:
            c.TF_SetDevice(desc, device.encode())
        for item in inputs:
            if isinstance(item, (list, tuple)):
                c.TF_AddInputList(desc, (Output * len(item))(*map(output, item)), len(item))
            else:
                c.TF_AddInput(desc, output(item))
        for control in controls:
            c.TF_AddControlInput(desc, control)
        for other in colocate:
            c.TF_ColocateWith(desc, other)
        for attr, (setter, *arguments) in attrs.items():
            function = getattr(c, "TF_SetAttr" + setter)
            if setter.endswith(("Proto", "ProtoList")) or setter in ("Tensor", "TensorList"):
                self.call("TF_SetAttr" + setter, desc, attr.encode(), *arguments)
            else:
                function(desc, attr.encode(), *arguments)
        return self.call("TF_FinishOperation", desc)

    def constant(self, name, dtype, dims, values=(), **keywords):
        tensor = self.tensor(dtype, dims, values)
        try:
            return self.op("Const", name, dtype=("Type", dtype), value=("Tensor", tensor),
                           **keywords)
        finally:
            self.c.TF_DeleteTensor(tensor)

    def placeholder(self, name, dtype, dims=None, **keywords):
        shape = ("Shape", (ctypes.c_int64 * len(dims or ()))(*(dims or ())),
                 -1 if dims is None else len(dims))
        return self.op("Placeholder", name, dtype=("Type", dtype), shape=shape, **keywords)

    def gradients(self, ys, xs, dys=None, prefix=None):
        """The gradients by the xs as Outputs, None where there is none."""
        out = (Output * len(xs))()
        self.c.TF_SetStatus(self.status, 0, b"")
        self.c.TF_AddGradientsWithPrefix(
            self.graph, prefix and prefix.encode(), (Output * len(ys))(*map(output, ys)), len(ys),
            (Output * len(xs))(*map(output, xs)), len(xs),
            (Output * len(ys))(*map(output, dys)) if dys else None, self.status, out)
        self.check()
        return [Output(o.oper, o.index) if o.oper else None for o in out]

    # ---- reading ----

    def find(self, name):
        return self.c.TF_GraphOperationByName(self.graph, name.encode())

    def operations(self):
        pos = ctypes.c_size_t(0)
        while True:
            oper = self.c.TF_GraphNextOperation(self.graph, ctypes.byref(pos))
            if not oper:
                return
            yield oper

    def name(self, oper):
        return self.c.TF_OperationName(oper).decode()

    def shape(self, value):
        """The static shape of an output, None for an unknown rank."""
        value = output(value)
        rank = self.call("TF_GraphGetTensorNumDims", self.graph, value)
        if rank < 0:
            return None
        dims = (ctypes.c_int64 * max(rank, 1))()
        self.call("TF_GraphGetTensorShape", self.graph, value, dims, rank)
        return list(dims)[:rank]

    def graph_def(self):
        return self.bytes("TF_GraphToGraphDef", self.graph)

    # ---- running ----

    def session(self, target="", config=b""):
        options = self.c.TF_NewSessionOptions()
        self.c.TF_SetTarget(options, target.encode())
        try:
            self.call("TF_SetConfig", options, config, len(config))
            return self.call("TF_NewSession", self.graph, options)
        finally:
            self.c.TF_DeleteSessionOptions(options)

    def run(self, session, fetches=(), feeds=(), targets=()):
        """The values of the fetches. Feeds are pairs of an output and a tensor, which is freed."""
        results = (ctypes.c_void_p * max(len(fetches), 1))()
        arguments = arrays(fetches, feeds, targets, results)
        try:
            self.call("TF_SessionRun", session, None, *arguments, None)
        finally:
            for _, tensor in feeds:
                self.c.TF_DeleteTensor(tensor)
        return [self.values(result) for result in results[:len(fetches)]]


def arrays(fetches, feeds, targets, results):
    """The arguments that TF_SessionRun and TF_SessionPRun have in common."""
    n_feeds, n_fetches, n_targets = len(feeds), len(fetches), len(targets)
    return ((Output * max(n_feeds, 1))(*(output(o) for o, _ in feeds)),
            (ctypes.c_void_p * max(n_feeds, 1))(*(t for _, t in feeds)), n_feeds,
            (Output * max(n_fetches, 1))(*map(output, fetches)), results, n_fetches,
            (ctypes.c_void_p * max(n_targets, 1))(*targets), n_targets)


def output(item, index=0):
    return item if isinstance(item, Output) else Output(item, index)


def ints(*values):
    return "IntList", (ctypes.c_int64 * len(values))(*values), len(values)


def types(*values):
    return "TypeList", (ctypes.c_int * len(values))(*values), len(values)


def text(value):
    return "String", value.encode(), len(value.encode())


def normal_graph_def(serialized):
    """{name: (op, device, data inputs, set of control inputs, attrs)}, the library, and the
    versions of a GraphDef; what TensorFlow alone adds for itself is left out."""
    from tensorflow.core.framework import graph_pb2
    graph = graph_pb2.GraphDef.FromString(serialized)
    nodes = {}
    for node in graph.node:
        controls = {i for i in node.input if i.startswith("^")}
        nodes[node.name] = (node.op, node.device, [i for i in node.input if i not in controls],
                            controls, {k: normal_attr(v) for k, v in node.attr.items()})
    library = {f.signature.name: f for f in graph.library.function}
    return nodes, library, (graph.versions.producer, graph.versions.min_consumer), \
        sorted((g.function_name, g.gradient_func) for g in graph.library.gradient)


def normal_attr(value):
    """Tensors by their elements, since a value has several encodings."""
    if value.WhichOneof("value") == "tensor":
        import tensorflow as tf
        array = tf.make_ndarray(value.tensor)
        return "tensor", str(array.dtype), array.shape, array.tolist()
    return value.SerializeToString(deterministic=True)
