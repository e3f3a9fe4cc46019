"""The functions of TensorFlow 2.21's C API for graphs and sessions, by the headers of its wheel,
and why some of them are not in ours. tools/gen_docs.py writes docs/c-api.md from these rows and
from the headers of client/. tests/client/test_library.py compares the names with the wheel's.
"""
import os
import re

FUNCTIONS = {
    "tf_status.h": """
        TF_NewStatus TF_DeleteStatus TF_SetStatus TF_SetPayload TF_ForEachPayload
        TF_SetStatusFromIOError TF_GetCode TF_Message""",
    "tf_buffer.h": """
        TF_NewBufferFromString TF_NewBuffer TF_DeleteBuffer TF_GetBuffer""",
    "tf_datatype.h": """
        TF_DataTypeSize""",
    "tf_tensor.h": """
        TF_NewTensor TF_TensorDefaultAlignment TF_AllocateTensor
        TF_TensorMaybeMove TF_DeleteTensor TF_TensorType TF_SetShape TF_NumDims TF_Dim
        TF_TensorByteSize TF_TensorData TF_TensorElementCount TF_TensorBitcastFrom
        TF_TensorIsAligned""",
    "tf_tstring.h": """
        TF_StringInit TF_StringCopy TF_StringAssignView TF_StringGetDataPointer
        TF_StringGetType TF_StringGetSize TF_StringGetCapacity TF_StringDealloc""",
    "c_api.h": """
        TF_Version TF_TensorFromProto TF_NewSessionOptions TF_SetTarget TF_SetConfig
        TF_DeleteSessionOptions TF_NewGraph TF_DeleteGraph TF_GraphSetTensorShape
        TF_GraphGetTensorNumDims TF_GraphGetTensorShape TF_NewOperationLocked
        TF_NewOperation TF_SetDevice TF_AddInput TF_AddInputList TF_AddControlInput
        TF_ColocateWith TF_SetAttrString TF_SetAttrStringList TF_SetAttrInt
        TF_SetAttrIntList TF_SetAttrFloat TF_SetAttrFloatList TF_SetAttrBool
        TF_SetAttrBoolList TF_SetAttrType TF_SetAttrTypeList TF_SetAttrPlaceholder
        TF_SetAttrFuncName TF_SetAttrShape TF_SetAttrShapeList TF_SetAttrTensorShapeProto
        TF_SetAttrTensorShapeProtoList TF_SetAttrTensor TF_SetAttrTensorList
        TF_SetAttrValueProto TF_FinishOperationLocked TF_FinishOperation TF_OperationName
        TF_OperationOpType TF_OperationDevice TF_OperationNumOutputs TF_OperationOutputType
        TF_OperationOutputListLength TF_OperationNumInputs TF_OperationInputType
        TF_OperationInputListLength TF_OperationInput TF_OperationAllInputs
        TF_OperationOutputNumConsumers TF_OperationOutputConsumers
        TF_OperationNumControlInputs TF_OperationGetControlInputs
        TF_OperationNumControlOutputs TF_OperationGetControlOutputs
        TF_OperationGetAttrMetadata TF_OperationGetAttrString TF_OperationGetAttrStringList
        TF_OperationGetAttrInt TF_OperationGetAttrIntList TF_OperationGetAttrFloat
        TF_OperationGetAttrFloatList TF_OperationGetAttrBool TF_OperationGetAttrBoolList
        TF_OperationGetAttrType TF_OperationGetAttrTypeList TF_OperationGetAttrShape
        TF_OperationGetAttrShapeList TF_OperationGetAttrTensorShapeProto
        TF_OperationGetAttrTensorShapeProtoList TF_OperationGetAttrTensor
        TF_OperationGetAttrTensorList TF_OperationGetAttrValueProto TF_OperationGetNumAttrs
        TF_OperationGetAttrNameLength TF_OperationGetAttrName TF_GraphOperationByName
        TF_GraphNextOperation TF_GraphToGraphDef TF_GraphGetOpDef TF_GraphVersions
        TF_NewImportGraphDefOptions TF_DeleteImportGraphDefOptions
        TF_ImportGraphDefOptionsSetPrefix TF_ImportGraphDefOptionsSetDefaultDevice
        TF_ImportGraphDefOptionsSetUniquifyNames TF_ImportGraphDefOptionsSetUniquifyPrefix
        TF_ImportGraphDefOptionsAddInputMapping
        TF_ImportGraphDefOptionsRemapControlDependency
        TF_ImportGraphDefOptionsAddControlDependency TF_ImportGraphDefOptionsAddReturnOutput
        TF_ImportGraphDefOptionsNumReturnOutputs TF_ImportGraphDefOptionsAddReturnOperation
        TF_ImportGraphDefOptionsNumReturnOperations TF_ImportGraphDefResultsReturnOutputs
        TF_ImportGraphDefResultsReturnOperations
        TF_ImportGraphDefResultsMissingUnusedInputMappings TF_DeleteImportGraphDefResults
        TF_GraphImportGraphDefWithResults TF_GraphImportGraphDefWithResultsNoSerialization
        TF_GraphImportGraphDefWithReturnOutputs TF_GraphImportGraphDef TF_GraphCopyFunction
        TF_GraphNumFunctions TF_GraphGetFunctions TF_OperationToNodeDef TF_NewWhile
        TF_FinishWhile TF_AbortWhile TF_AddGradients TF_AddGradientsWithPrefix
        TF_GraphToFunction TF_GraphToFunctionWithControlOutputs TF_FunctionName
        TF_FunctionToFunctionDef TF_FunctionImportFunctionDef TF_FunctionSetAttrValueProto
        TF_FunctionGetAttrValueProto TF_DeleteFunction TF_TryEvaluateConstant TF_NewSession
        TF_LoadSessionFromSavedModel TF_CloseSession TF_DeleteSession TF_SessionRun
        TF_SessionPRunSetup TF_SessionPRun TF_DeletePRunHandle TF_NewDeprecatedSession
        TF_CloseDeprecatedSession TF_DeleteDeprecatedSession TF_Reset TF_ExtendGraph TF_Run
        TF_PRunSetup TF_PRun TF_SessionListDevices TF_DeprecatedSessionListDevices
        TF_DeleteDeviceList TF_DeviceListCount TF_DeviceListName TF_DeviceListType
        TF_DeviceListMemoryBytes TF_DeviceListIncarnation TF_LoadLibrary TF_GetOpList
        TF_DeleteLibraryHandle TF_GetAllOpList TF_NewApiDefMap TF_DeleteApiDefMap
        TF_ApiDefMapPut TF_ApiDefMapGet TF_GetAllRegisteredKernels
        TF_GetRegisteredKernelsForOp TF_UpdateEdge TF_NewServer TF_ServerStart TF_ServerStop
        TF_ServerJoin TF_ServerTarget TF_DeleteServer TF_RegisterLogListener
        TF_RegisterFilesystemPlugin TF_AddOperationControlInput TF_SetAttr TF_ClearAttr
        TF_SetFullType TF_SetRequestedDevice TF_RemoveAllControlInputs
        TF_SetRequireShapeInferenceFns TF_ExtendSession TF_GetHandleShapeAndType
        TF_SetHandleShapeAndType TF_AddWhileInputHack""",
}

# The first pattern that matches the whole name of a missing function says why it is missing.
REASONS = (
    (r"TF_String\w+", "the strings of a tensor are read and set with MR_StringAt and "
     "MR_NewStringTensor"),
    (r"TF_(SetPayload|ForEachPayload)", "no status of a master has payloads"),
    (r"TF_SetStatusFromIOError", "for file system plugins"),
    (r"TF_(TensorBitcastFrom|SetShape|TensorMaybeMove|TensorDefaultAlignment|TensorIsAligned)",
     "for kernels in the same process; tensors here are aligned to 64 bytes"),
    (r"TF_(LoadLibrary|GetOpList|DeleteLibraryHandle)",
     "loads kernels into the process; the kernels are in the servers"),
    (r"TF_\w*ApiDefMap\w*", "serves generators of bindings, which need TensorFlow's texts"),
    (r"TF_\w*Server\w*", "servers are the daemons tf-master and tf-worker"),
    (r"TF_Register(LogListener|FilesystemPlugin)", "the client writes no logs and reads no files"),
    (r"TF_(UpdateEdge|AddOperationControlInput|SetAttr|ClearAttr|SetFullType|SetRequestedDevice|"
     r"RemoveAllControlInputs|SetRequireShapeInferenceFns|AddWhileInputHack|"
     r"GetHandleShapeAndType|SetHandleShapeAndType|"
     r"ImportGraphDefOptionsSetValidateColocationConstraints|"
     r"GraphImportGraphDefWithResultsNoSerialization)",
     "private to TensorFlow's Python; they change a graph that sessions have"),
    (r"TF_\w+", "not written yet"),
)


def headers(root):
    """{header: [functions]} of client/, in the order of the headers."""
    out = {}
    folder = os.path.join(root, "client")
    names = [name for name in sorted(os.listdir(folder)) if re.fullmatch(r"c_\w+\.h", name)]
    names += [f"training/{name}" for name in sorted(os.listdir(os.path.join(folder, "training")))
              if name.endswith(".h")]
    for name in names:
        if name.endswith("_internal.h"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        found = re.findall(r"^[\w ]+[ *]((?:TF|MR)_\w+)\(", text, re.M)
        if found:
            out[name] = found
    return out


def functions(header):
    return FUNCTIONS[header].split()


def reason(name):
    return next(why for pattern, why in REASONS if re.fullmatch(pattern, name))


def page(root):
    ours = headers(root)
    home = {name: header for header, names in ours.items() for name in names}
    n_all = sum(len(functions(header)) for header in FUNCTIONS)
    n_there = sum(name in home for header in FUNCTIONS for name in functions(header))
    out = ["# The C API\n\n",
           "`libmillrace` has functions of TensorFlow's C API, with its names and meanings, and a "
           "few of its own\n(`MR_`). A program includes `<millrace/c_api.h>`, links with "
           "`pkg-config --cflags --libs millrace`,\nand needs no TensorFlow. Each header in "
           "`client/` says which threads may call its functions.\n\n",
           f"Of the {n_all} functions in the headers of TensorFlow 2.21, {n_there} are there.\n"
           "A program that uses these builds with either library: only its include differs, and "
           "what it does\nwith the strings of tensors. A fed resource handle works here; "
           "TensorFlow's library refuses it.\n"]
    for header in FUNCTIONS:
        out.append(f"\n## tensorflow/c/{header}\n\n| function | here |\n|---|---|\n")
        for name in functions(header):
            where = f"`client/{home[name]}`" if name in home else f"no: {reason(name)}"
            out.append(f"| `{name}` | {where} |\n")
    own = [(name, header) for header, names in ours.items() for name in names
           if name.startswith("MR_")]
    out.append("\n## Our own\n\n| function | header |\n|---|---|\n")
    out += [f"| `{name}` | `client/{header}` |\n" for name, header in own]
    return "".join(out)
