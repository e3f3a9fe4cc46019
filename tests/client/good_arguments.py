"""Good arguments for every function of the client's headers, for bad_input.py."""
import ctypes
import functools
import re
import tempfile

from c_library import (FLOAT, INT64, Builder, Output, declarations, ints, millrace, output, text,
                       types)

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
nothing = CALLBACK(lambda *_: None)
on_done = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: None)


class World(Builder):
    """Good arguments for one call; each is made when it is asked for."""

    def __init__(self, function):
        super().__init__(millrace())
        self.function, self.made, self.freed, self.others = function, [], set(), []
        self.x = self.placeholder("x", FLOAT, [])
        self.y = self.op("Relu", "y", self.x, controls=[self.x])
        self.n = self.op("NoOp", "n")
        self.vector = self.placeholder("vector", FLOAT, [1])
        self.sizes = array(ctypes.c_int64, 1)

    def keep(self, value, free=None):
        """The value, which is freed at the end by the function with this name."""
        if free:
            self.made.append((free, value))
        return value

    def close(self):
        for free, value in reversed(self.made):
            if value in self.freed:
                continue
            arguments = [self.status] if "Session" in free and "Options" not in free else []
            getattr(self.c, free)(value, *arguments)
        for other in self.others:
            other.close()
        if self.graph not in self.freed:
            self.c.TF_DeleteGraph(self.graph)
        if self.status not in self.freed:
            self.c.TF_DeleteStatus(self.status)

    @functools.cached_property
    def stranger(self):
        other = Builder(self.c)
        self.others.append(other)
        return other.placeholder("stranger", FLOAT, [])

    @functools.cached_property
    def folder(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="bad-input-")
        return self.temporary.name.encode()

    # ---- of the graph ----

    @functools.cached_property
    def desc(self):
        op = {"TF_AddInput": "Relu", "TF_AddInputList": "IdentityN"}.get(self.function, "NoOp")
        return self.c.TF_NewOperation(self.graph, op.encode(), b"described")

    @functools.cached_property
    def with_attrs(self):
        two = (ctypes.c_int64 * 2)(2, 2)
        shapes, ranks = (ctypes.c_void_p * 1)(ctypes.addressof(two)), (ctypes.c_int * 1)(2)
        value = self.scalar
        return self.op(
            "NoOp", "attrs", _String=text("s"), _Int=("Int", 1), _Float=("Float", 1),
            _Bool=("Bool", 1), _Type=("Type", FLOAT), _Shape=("Shape", two, 2),
            _Tensor=("Tensor", value), _IntList=ints(1), _TypeList=types(FLOAT),
            _FloatList=("FloatList", (ctypes.c_float * 1)(1), 1),
            _BoolList=("BoolList", (ctypes.c_ubyte * 1)(1), 1),
            _StringList=("StringList", (ctypes.c_char_p * 1)(b"s"), (ctypes.c_size_t * 1)(1), 1),
            _ShapeList=("ShapeList", shapes, ranks, 1),
            _TensorList=("TensorList", (ctypes.c_void_p * 1)(value), 1))

    def attr_name(self):
        found = re.match(r"TF_OperationGetAttr(Tensor)?(\w+?)(Proto)?(List)?$", self.function)
        if not found:
            return b"_a"
        tensor, kind, proto, many = (part or "" for part in found.groups())
        return f"_{kind if kind in ('Shape', 'Value') else tensor + kind}{many}".replace(
            "Metadata", "Int").replace("Value", "Int").encode()

    @functools.cached_property
    def scalar(self):
        return self.keep(self.tensor(FLOAT, [], [1]), "TF_DeleteTensor")

    @functools.cached_property
    def strings(self):
        one = (ctypes.c_char_p * 1)(b"s")
        return self.keep(self.c.MR_NewStringTensor(None, 0, one, (ctypes.c_size_t * 1)(1)),
                         "TF_DeleteTensor")

    @functools.cached_property
    def func(self):
        x, y = ((Output * 1)(output(oper)) for oper in (self.x, self.y))
        func = self.call("TF_GraphToFunction", self.graph, b"func", 0, -1, None, 1, x, 1, y, None,
                         None, None)
        self.call("TF_FunctionSetAttrValueProto", func, b"_a", ATTR, len(ATTR))
        return self.keep(func, "TF_DeleteFunction")

    @functools.cached_property
    def buffer(self):
        return self.keep(self.c.TF_NewBuffer(), "TF_DeleteBuffer")

    def filled(self, content):
        return self.keep(self.c.TF_NewBufferFromString(content, len(content)), "TF_DeleteBuffer")

    @functools.cached_property
    def import_options(self):
        options = self.c.TF_NewImportGraphDefOptions()
        self.c.TF_ImportGraphDefOptionsSetPrefix(options, b"imported")
        if self.function == "TF_GraphImportGraphDefWithReturnOutputs":
            self.c.TF_ImportGraphDefOptionsAddReturnOutput(options, b"y", 0)
        return self.keep(options, "TF_DeleteImportGraphDefOptions")

    @functools.cached_property
    def results(self):
        return self.keep(self.call("TF_GraphImportGraphDefWithResults", self.graph,
                                   self.filled(self.graph_def()), self.import_options),
                         "TF_DeleteImportGraphDefResults")

    @functools.cached_property
    def loop(self):
        self.loop_inputs = (Output * 1)(output(self.x))
        p = self.call("TF_NewWhile", self.graph, self.loop_inputs, 1)
        cond = Builder(self.c, p.cond_graph)
        p.cond_output = output(cond.op("IsFinite", "finite", p.cond_inputs[0]))
        p.body_outputs[0] = p.body_inputs[0]
        p.name = b"loop"
        return p

    # ---- sessions ----

    @functools.cached_property
    def options(self):
        options = self.keep(self.c.TF_NewSessionOptions(), "TF_DeleteSessionOptions")
        if self.function == "TF_Reset":
            self.c.TF_SetTarget(options, b"grpc://127.0.0.1:1")
        return options

    @functools.cached_property
    def session(self):
        return self.keep(self.call("TF_NewSession", self.graph, self.options), "TF_DeleteSession")

    @functools.cached_property
    def deprecated(self):
        session = self.keep(self.call("TF_NewDeprecatedSession", self.options),
                            "TF_DeleteDeprecatedSession")
        if self.function != "TF_ExtendGraph":
            graph = self.graph_def()
            self.call("TF_ExtendGraph", session, graph, len(graph))
        return session

    @functools.cached_property
    def devices(self):
        return self.keep(self.call("TF_SessionListDevices", self.session), "TF_DeleteDeviceList")

    @functools.cached_property
    def handle(self):
        """Of a partial run."""
        handle = ctypes.c_char_p()
        if self.function == "TF_SessionPRun":
            self.call("TF_SessionPRunSetup", self.session, array(Output, output(self.x)), 1,
                      array(Output, output(self.y)), 1, array(ctypes.c_void_p, self.y), 1,
                      ctypes.addressof(handle))
        else:
            self.call("TF_PRunSetup", self.deprecated, array(ctypes.c_char_p, b"x"), 1,
                      array(ctypes.c_char_p, b"y"), 1, array(ctypes.c_char_p, b"n"), 1,
                      ctypes.addressof(handle))
        value = handle.value
        self.c.TF_DeletePRunHandle(handle)
        return value

    @functools.cached_property
    def run(self):
        x, y = ((Output * 1)(output(oper)) for oper in (self.x, self.y))
        return self.keep(self.call(
            "MR_SessionRunAsync", self.session, None, x, (ctypes.c_void_p * 1)(self.scalar), 1, y,
            1, None, 0, None, None), "MR_DeleteRun")

    # ---- training ----

    @functools.cached_property
    def builder(self):
        return self.keep(self.c.MR_NewBuilder(self.graph), "MR_DeleteBuilder")

    @functools.cached_property
    def variable(self):
        return self.c.MR_NewVariable(self.builder, b"variable", FLOAT, None, 0, self.c.MR_Ones())

    @functools.cached_property
    def rows(self):
        dims = (ctypes.c_int64 * 2)(4, 2)
        return self.c.MR_NewVariable(self.builder, b"rows", FLOAT, dims, 2, self.c.MR_Ones())

    @functools.cached_property
    def global_step(self):
        return self.c.MR_NewGlobalStep(self.builder)

    @functools.cached_property
    def loss(self):
        read = self.c.MR_Read(self.builder, self.variable)
        return self.c.MR_Binary(self.builder, b"Mul", read, read)

    @functools.cached_property
    def integer(self):
        return self.c.MR_Scalar(self.builder, INT64, 1)

    @functools.cached_property
    def optimizer(self):
        return self.c.MR_NewGradientDescent(self.builder, output(self.x))

    @functools.cached_property
    def gradient_array(self):
        memory = ctypes.create_string_buffer(40)
        self.c.MR_Gradients(self.builder, self.loss, (ctypes.c_void_p * 1)(self.variable), 1,
                            memory, 1)
        return memory

    @functools.cached_property
    def saver(self):
        return self.c.MR_NewSaver(self.builder, (ctypes.c_void_p * 1)(self.variable), 1, 1)

    @functools.cached_property
    def initialized(self):
        """A session in which the variables have values."""
        init = self.c.MR_InitializeAll(self.builder)
        session = self.session
        self.call("MR_RunOperation", session, init)
        return session

    @functools.cached_property
    def lbfgs(self):
        return self.c.MR_NewLbfgs(self.builder, self.loss, (ctypes.c_void_p * 1)(self.variable), 1,
                                  5)

    @functools.cached_property
    def writer(self):
        return self.c.MR_NewSummaryWriter(self.builder, self.folder, self.integer)

    @functools.cached_property
    def sync(self):
        sync = self.c.MR_NewSyncReplicas(self.builder, self.optimizer, self.global_step, 1, 1)
        if self.function in ("MR_SyncUpdate", "MR_SyncInitialize", "MR_SyncClose"):
            self.c.MR_SyncTrain(self.builder, sync, self.gradient_array, 1)
        return sync

    @functools.cached_property
    def coordinator(self):
        return self.keep(self.c.MR_NewCoordinator(), "MR_DeleteCoordinator")


# ---- the arguments of a call ----

NAMES = {  # texts
    "oper_name": b"x", "op_name": b"NoOp", "arg_name": b"features", "placeholder": b"T",
    "message": b"m", "device": b"/cpu:0", "target": b"", "fn_name": b"made", "prefix": b"p",
    "description": b"d", "src_name": b"x", "export_dir": b"/nonexistent", "name": b"fresh",
    "text": b"t", "folder": b"/tmp", "tag": b"t", "path": b"/nonexistent", "attrs": b"",
    "value": b"f", "op_type": b"NoOp", "ca_file": b"", "cert_file": b"", "key_file": b""}
TEXTS = {  # arrays of texts
    "input_names": b"x", "output_names": b"y", "target_names": b"n", "containers": b"c",
    "tags": b"serve", "devices": b"/cpu:0", "control_output_names": b"c", "data": b"s"}
SHAPE, ATTR, CONFIG = b"\x12\x02\x08\x05", b"\x18\x05", b"\x10\x01"
TENSOR = b"\x08\x01\x12\x00\x2a\x04\x00\x00\x80\x3f"


def array(kind, *values):
    return (kind * len(values))(*values)


def slot():
    return array(ctypes.c_void_p, None)


def memory():
    return ctypes.create_string_buffer(64)


def message_of(w):
    """What a function takes as void *."""
    if w.function == "TF_FunctionImportFunctionDef":
        return w.bytes("TF_FunctionToFunctionDef", w.func)
    if w.function == "TF_ExtendGraph":
        return w.graph_def()
    return SHAPE if "ShapeProto" in w.function else CONFIG if "Config" in w.function else ATTR


BY_TYPE = {
    "TF_Status*": lambda w: w.status, "TF_Graph*": lambda w: w.graph,
    "TF_Operation*": lambda w: w.y, "TF_OperationDescription*": lambda w: w.desc,
    "TF_Output": lambda w: output(w.x), "TF_Input": lambda w: output(w.y),
    "TF_Output*": lambda w: array(Output, output(w.x)),
    "TF_Input*": lambda w: array(Output, Output()),
    "TF_Operation**": lambda w: array(ctypes.c_void_p, w.y),
    "TF_Tensor*": lambda w: w.scalar, "TF_Tensor**": lambda w: array(ctypes.c_void_p, w.scalar),
    "TF_Buffer*": lambda w: w.buffer, "TF_Function*": lambda w: w.func,
    "TF_FunctionOptions*": lambda w: None, "TF_SessionOptions*": lambda w: w.options,
    "TF_Session*": lambda w: w.session, "TF_DeprecatedSession*": lambda w: w.deprecated,
    "TF_DeviceList*": lambda w: w.devices,
    "TF_ImportGraphDefOptions*": lambda w: w.import_options,
    "TF_ImportGraphDefResults*": lambda w: w.results,
    "TF_WhileParams*": lambda w: ctypes.byref(w.loop),
    "MR_Run*": lambda w: w.run, "MR_RunDone": lambda w: on_done, "function": lambda w: nothing,
    "MR_Builder*": lambda w: w.builder, "MR_Variable*": lambda w: w.variable,
    "MR_Variable**": lambda w: array(ctypes.c_void_p, w.variable),
    "MR_Optimizer*": lambda w: w.optimizer, "MR_Gradient*": lambda w: w.gradient_array,
    "MR_Saver*": lambda w: w.saver, "MR_Lbfgs*": lambda w: w.lbfgs,
    "MR_SummaryWriter*": lambda w: w.writer, "MR_SyncReplicas*": lambda w: w.sync,
    "MR_Coordinator*": lambda w: w.coordinator, "MR_Initializer": lambda w: w.c.MR_Ones(),
    "void*": message_of, "void**": lambda w: array(ctypes.c_char_p, message_of(w)),
    "size_t*": lambda w: array(ctypes.c_size_t, len(message_of(w))),
    "size_t": lambda w: len(message_of(w)),
    "int64_t*": lambda w: array(ctypes.c_int64, *[1] * 8),
    "int64_t**": lambda w: array(ctypes.c_void_p, ctypes.addressof(w.sizes)),
    "int*": lambda w: array(ctypes.c_int, 1), "TF_DataType*": lambda w: array(ctypes.c_int, FLOAT),
    "float*": lambda w: array(ctypes.c_float, 1),
    "double*": lambda w: array(ctypes.c_double, 1, 1),
    "unsigned char*": lambda w: array(ctypes.c_ubyte, 1),
    "int": lambda w: 1, "int64_t": lambda w: 1, "double": lambda w: .5, "float": lambda w: 1,
    "unsigned char": lambda w: 0, "TF_DataType": lambda w: FLOAT, "TF_Code": lambda w: 3,
}

# (pattern of functions, name): what a function needs that the tables above do not give
SPECIAL = [
    ("TF_GraphImportGraphDef.*", "graph_def", lambda w: w.filled(w.graph_def())),
    (".*", "run_options", lambda w: w.filled(b"")),
    ("TF_TensorFromProto", "from", lambda w: w.filled(TENSOR)),
    ("TF_Graph[SG]etTensorShape", "output", lambda w: output(w.vector)),
    ("TF_NewTensor|TF_AllocateTensor", "length", lambda w: 4),
    ("TF_NewTensor", "data", lambda w: memory()),
    ("MR_NewStringTensor", "lengths", lambda w: array(ctypes.c_size_t, 1)),
    ("MR_StringAt", "tensor", lambda w: w.strings),
    (".*", "index|i|src_index|slot", lambda w: 0),
    ("TF_NewOperation.*", "oper_name", lambda w: b"fresh"),
    ("TF_OperationOutputListLength", "arg_name", lambda w: b"activations"),
    (".*", "attr_name", lambda w: w.attr_name()),
    ("TF_OperationGetAttr.*", "oper", lambda w: w.with_attrs),
    ("TF_OperationGetAttrString.*", "value|storage", lambda w: memory()),
    ("TF_OperationGetAttrShape", "num_dims", lambda w: 2),
    ("TF_OperationGetAttrShapeList", "storage_size", lambda w: 8),
    ("TF_OperationGetAttrName", "output", lambda w: memory()),
    ("TF_DeletePRunHandle", "handle", lambda w: None),
    ("TF_.*PRun", "handle", lambda w: w.handle),
    ("TF_GraphToFunction.*|.*Run.*|.*ReturnOutputs", "outputs|return_outputs|output_values",
     lambda w: array(Output, output(w.y))),
    ("TF_AddGradients.*", "y", lambda w: array(Output, output(w.y))),
    ("TF_GraphCopyFunction", "grad", lambda w: None),
    ("TF_FinishWhile", "outputs", lambda w: array(Output, Output())),
    ("MR_(Op|Unary)", "op_type", lambda w: b"Relu"), ("MR_Binary", "op_type", lambda w: b"Mul"),
    ("MR_RunOperation", "oper", lambda w: w.n), (".*", "loss", lambda w: w.loss),
    ("MR_NewLbfgs", "history", lambda w: 5),
    ("MR_LbfgsStep|MR_Save|MR_Restore", "session", lambda w: w.initialized),
    ("MR_Gradients", "gradients", lambda w: memory()),
    (".*", "global_step", lambda w: w.global_step),
    ("MR_Save", "prefix", lambda w: w.folder + b"/saved"),
    ("MR_LatestCheckpoint", "path", lambda w: memory()),
    ("MR_.*", "step|ids", lambda w: w.integer),
    ("MR_Save", "step", lambda w: 1), ("MR_NewSummaryWriter", "folder", lambda w: w.folder),
    ("MR_EmbeddingLookup", "parts", lambda w: array(ctypes.c_void_p, w.rows)),
]


def parameters(function):
    """[(type without const, name)]"""
    out = []
    for text_of_one in declarations()[function][1]:
        if "(" in text_of_one:
            out.append(("function", re.search(r"\(\*(\w+)\)", text_of_one).group(1)))
            continue
        kind, name = re.match(r"(.*?)(\w+)$", re.sub(r"\bconst\b|\s+", " ", text_of_one)).groups()
        out.append((re.sub(r"\s*\*\s*", "*", " ".join(kind.split())), name))
    return out


def good_argument(w, kind, name):
    for functions, names, make in reversed(SPECIAL):
        if re.fullmatch(functions, w.function) and re.fullmatch(names, name):
            value = make(w)
            if not (kind == "TF_Tensor**" and isinstance(value, ctypes.Array)):
                return value
    if kind == "char*":
        return NAMES[name]
    if kind == "char**":
        return array(ctypes.c_char_p, TEXTS.get(name))
    return BY_TYPE[kind](w) if kind in BY_TYPE else slot()
