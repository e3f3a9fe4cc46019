#!/usr/bin/env python3
"""Calls every function of the client's headers with one bad argument at a time: NULL for a pointer,
an operation or an entry of an array, a number out of range, an unknown dtype or attr, bytes that
are no message.

    bad_input.py [FUNCTION...]

All other arguments are good, and a call with none but good ones succeeds. A bad one is refused with
INVALID_ARGUMENT in a text that names the function, unless MEANS has a row for it. Where a function
has no place for a status, it returns nothing. Prints "call WHAT" before each call, and
"fail WHAT: WHY" for each that does otherwise.
"""
import ctypes
import re
import sys

from c_library import CODES, Output, declarations, prototypes
from good_arguments import World, array, good_argument, parameters

GARBAGE = b"\xff\xff"
# What the good call says, where it is not OK.
GOOD_CODES = {"TF_Reset": "UNAVAILABLE", "TF_LoadSessionFromSavedModel": "NOT_FOUND",
              "MR_Restore": "NOT_FOUND"}

# "FUNCTION.ARGUMENT WHAT", as patterns: what looks bad and is not, and why.
MEANS = {
    r"TF_SetStatus.message|TF_SetTarget.target|TF_\w*SetD\w*evice.device|\w*SetPrefix.prefix"
    r"|MR_SetDevice.device|MR_Op.attrs|TF_SetConfig.proto NULL": "an empty text",
    r".*\.(run_metadata|run_options|description|options|on_done|arg|deallocator|meta_graph_def"
    r"|grad|dx|global_step|output_names|devices|ca_file|cert_file|key_file) NULL|MR_SetTls.name"
    r"|\w*ControlOutputs.control_output_names NULL|MR_RequestStop.status": "nobody asks for it",
    r"TF_AddGradientsWithPrefix.prefix|MR_(Placeholder|Group).name": "a free name",
    r".*Shape.num_dims -1|MR_Placeholder.num_dims -1": "an unknown rank",
    r"\w*.(num_opers|num_variables) -1": "all there are",
    r".*\.(max_\w+|num_shapes) -1|TF_OperationGetAttrShape.num_dims -1": "room for none",
    r"\w+_Delete\w*.*|MR_(CancelRun|WaitRun|RunHasEnded).run|MR_ShouldStop.*|MR_WaitForStop.*":
        "what is not there is deleted, has ended and has stopped",
    r"TF_FunctionSetAttrValueProto.attr_name unknown": "an attr that is new",
    r"MR_Group.opers an entry NULL": "left out",
    r"MR_FindVariable.name": "no variable has it",
    r"MR_StringAt.length": "the caller knows it",
    r"TF_ImportGraphDefOptions(Add|Re)\w+.src_(name NULL|index 99)":
        "no input has it: TF_ImportGraphDefResultsMissingUnusedInputMappings says so",
    r"TF_OperationOutputConsumers.consumers|TF_OperationGetControl\w+puts.control_\w+":
        "only the number is wanted",
}
# Texts that name the culprit and another function, or none, as TensorFlow's do.
SAYS = [r"Op type not registered 'no_such'", r"NodeDef mentions attr 'no_such' not in Op<name=NoOp",
        r"Requested return (tensor|node) ", r"Invalid return output -?\d+ of node 'x'",
        r"TF_GraphImportGraphDefWithResults: (input mapping of 'x|an operation is|operation ')",
        r"TF_SessionRun: operation 'stranger' is of another graph"]
LISTS = ("inputs", "outputs", "x", "y", "opers", "target_opers", "control_outputs", "controls",
         "input_values", "input_names", "output_names", "target_names", "containers", "tags",
         "control_output_names", "variables", "protos")


def bad_values(w, kind, name, value):
    """(what it is, the value) of each bad one for an argument."""
    if kind.endswith("*") or kind in ("function", "MR_RunDone"):
        yield "NULL", None
    if kind in ("TF_Output", "TF_Input"):
        yield "NULL", Output()
        yield "index 99", Output(value.oper, 99)
        yield "index -1", Output(value.oper, -1)
        if not w.function.startswith("TF_Operation"):
            yield "of another graph", Output(w.stranger, 0)
    if kind == "TF_Operation*" and w.function.startswith(("TF_Add", "TF_Col", "MR_", "TF_Imp")):
        yield "of another graph", w.stranger
    if kind == "int" or name == "index":
        yield "-1", -1
    if re.fullmatch("index|i|src_index", name):
        yield "99", 99
    if kind == "TF_DataType":
        yield "99", 99
    if name in ("proto", "graph_def", "from") and kind in ("void*", "TF_Buffer*"):
        yield "garbage", GARBAGE if kind == "void*" else w.filled(GARBAGE)
    if isinstance(value, ctypes.Array) and name in LISTS and not (
            name == "outputs" and re.fullmatch("MR_RunResult|TF_P?Run|TF_FinishWhile", w.function)):
        yield "an entry NULL", type(value)()
    if kind == "char*" and re.fullmatch("attr_name|arg_name|op_name|op_type", name):
        yield "unknown", b"no_such"


def call(w, arguments):
    """(code, text, result) of the call; the code is None where nothing can tell it."""
    c, name = w.c, w.function
    c.TF_SetStatus(w.status, 0, b"")
    result = getattr(c, name)(*arguments)
    kinds = dict((kind, argument) for (kind, _), argument in zip(parameters(name), arguments))
    status = None
    if name == "TF_GetCode":
        return None, "", result != 3
    if "TF_Status*" in kinds and name not in (
            "TF_SetStatus", "TF_DeleteStatus", "MR_RequestStop"):
        status = kinds["TF_Status*"]
    elif name == "MR_NewBuilder":
        status = c.MR_BuilderStatus(w.keep(result, "MR_DeleteBuilder"))
    elif "MR_Builder*" in kinds and name != "MR_DeleteBuilder":
        status = c.MR_BuilderStatus(kinds["MR_Builder*"])
    elif kinds.get("TF_OperationDescription*"):
        status = w.status
        c.TF_FinishOperation(w.desc, status)
    elif name.startswith("TF_NewOperation") and result:
        status = w.status
        c.TF_FinishOperation(result, status)
    elif kinds.get("TF_ImportGraphDefOptions*") and "Delete" not in name:
        status = w.status
        c.TF_DeleteImportGraphDefResults(c.TF_GraphImportGraphDefWithResults(
            w.graph, w.filled(w.graph_def()), w.import_options, status))
    if name.startswith("TF_SetAttr") and "TF_Status*" in kinds and c.TF_GetCode(status) == 0 and \
            kinds["TF_OperationDescription*"]:
        c.TF_FinishOperation(w.desc, status)
    code = CODES.get(c.TF_GetCode(status), "other") if status else None
    text = c.TF_Message(status).decode(errors="replace") if status else ""
    free_result(w, result, arguments)
    return code, text, result


FREES = {"TF_Session": "TF_DeleteSession", "TF_DeprecatedSession": "TF_DeleteDeprecatedSession",
         "MR_Run": "MR_DeleteRun", "TF_Graph": "TF_DeleteGraph", "TF_Tensor": "TF_DeleteTensor",
         "MR_Coordinator": "MR_DeleteCoordinator", "TF_DeviceList": "TF_DeleteDeviceList"}


def free_result(w, result, arguments):
    """Frees what a call has made, and notes what it has freed."""
    if "_Delete" in w.function:
        w.freed.update(a for a in arguments if isinstance(a, int))
    elif w.function == "TF_NewWhile" and result.cond_graph:
        w.c.TF_AbortWhile(ctypes.byref(result))
    elif re.match(r"(TF|MR)_(New|Load|Session(List|RunAsync)|Allocate)", w.function) and result:
        free = FREES.get(declarations()[w.function][0].strip(" *").replace("const ", ""))
        if free:
            w.keep(result, free)


def is_nothing(result):
    if isinstance(result, ctypes.Structure):
        return all(is_nothing(getattr(result, name)) for name, _ in result._fields_)
    return result in (None, 0, -1, b"", 2**64 - 1) or not isinstance(result, (int, float, bytes))


class Failures:
    def __init__(self):
        self.n = self.n_calls = 0

    def add(self, what, why):
        self.n += 1
        print(f"fail {what}: {why}", flush=True)


def try_one(function, what, change, failures, judge):
    """Calls the function in a world of its own; `change` makes one argument bad."""
    print("call", what, flush=True)
    failures.n_calls += 1
    w = World(function)
    try:
        arguments = [good_argument(w, kind, name) for kind, name in parameters(function)]
        why = judge(*call(w, change(w, arguments)))
        if why:
            failures.add(what, why)
    finally:
        w.close()


def try_function(function, failures):
    wanted = GOOD_CODES.get(function, "OK")

    def good(code, text, _):
        return f"{code}: {text}" if code not in (None, wanted) else None
    try_one(function, f"{function}()", lambda w, arguments: arguments, failures, good)
    for i, (kind, name) in enumerate(parameters(function)):
        w = World(function)
        whats = [what for what, _ in bad_values(w, kind, name, good_argument(w, kind, name))]
        w.close()
        for what in whats:
            called = f"{function}.{name} {what}"
            codes = ["INVALID_ARGUMENT", "NOT_FOUND" if what == "unknown" else
                     "OUT_OF_RANGE" if name == "i" else None]

            def change(w, arguments, i=i, kind=kind, name=name, what=what):
                bad = dict(bad_values(w, kind, name, arguments[i]))[what]
                return [*arguments[:i], bad, *arguments[i + 1:]]

            def judge(code, text, result, kind=kind, called=called, codes=codes):
                if kind == "TF_Status*" or any(re.match(pattern, called) for pattern in MEANS):
                    return None
                if code is None:
                    return None if is_nothing(result) else f"returned {result!r}"
                if code == "OK":
                    return "accepted"
                is_named = function.replace("Locked", "") in text or any(
                    re.search(says, text) for says in SAYS)
                return None if code in codes and is_named else f"{code}: {text}"
            try_one(function, called, change, failures, judge)


def main():
    failures = Failures()
    for function in sys.argv[1:] or prototypes():
        try_function(function, failures)
    print(f"{failures.n_calls - failures.n} passed, {failures.n} failed")
    return 1 if failures.n else 0


if __name__ == "__main__":
    sys.exit(main())
