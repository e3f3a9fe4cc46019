"""libmillrace.so by ctypes: the functions that the package calls."""
import ctypes
import functools
import os

from millrace._errors import Error

_P, _S, _I, _N, _L = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t,
                      ctypes.c_int64)
NAME = "libmillrace.so.0"


class Output(ctypes.Structure):
    _fields_ = [("oper", _P), ("index", _I)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", _P), ("length", _N), ("deallocator", _P)]


# what is called when a run has ended, and when a tensor's memory is not needed any more
RunDone = ctypes.CFUNCTYPE(None, _P, _P)
Deallocator = ctypes.CFUNCTYPE(None, _P, _N, _P)

# name: (result, arguments)
_PROTOTYPES = {
    "TF_NewStatus": (_P, []),
    "TF_DeleteStatus": (None, [_P]),
    "TF_GetCode": (_I, [_P]),
    "TF_Message": (_S, [_P]),
    "TF_NewBuffer": (_P, []),
    "TF_NewBufferFromString": (_P, [_S, _N]),
    "TF_DeleteBuffer": (None, [_P]),
    "TF_NewTensor": (_P, [_I, _P, _I, _P, _N, Deallocator, _P]),
    "TF_DeleteTensor": (None, [_P]),
    "TF_TensorType": (_I, [_P]),
    "TF_NumDims": (_I, [_P]),
    "TF_Dim": (_L, [_P, _I]),
    "TF_TensorElementCount": (_L, [_P]),
    "TF_TensorByteSize": (_N, [_P]),
    "TF_TensorData": (_P, [_P]),
    "MR_NewStringTensor": (_P, [_P, _I, _P, _P]),
    "MR_StringAt": (_P, [_P, _L, _P]),
    "TF_NewGraph": (_P, []),
    "TF_DeleteGraph": (None, [_P]),
    "TF_GraphImportGraphDef": (None, [_P, _P, _P, _P]),
    "TF_NewImportGraphDefOptions": (_P, []),
    "TF_DeleteImportGraphDefOptions": (None, [_P]),
    "TF_GraphOperationByName": (_P, [_P, _S]),
    "TF_OperationNumOutputs": (_I, [_P]),
    "TF_OperationOutputType": (_I, [Output]),
    "TF_NewSessionOptions": (_P, []),
    "TF_DeleteSessionOptions": (None, [_P]),
    "TF_SetTarget": (None, [_P, _S]),
    "TF_SetConfig": (None, [_P, _S, _N, _P]),
    "MR_SetTimeout": (None, [_P, _L]),
    "MR_SetTls": (None, [_P, _S, _S, _S, _S]),
    "TF_NewSession": (_P, [_P, _P, _P]),
    "TF_CloseSession": (None, [_P, _P]),
    "TF_DeleteSession": (None, [_P, _P]),
    "TF_SessionRun": (None, [_P, _P, _P, _P, _I, _P, _P, _I, _P, _I, _P, _P]),
    "TF_SessionListDevices": (_P, [_P, _P]),
    "TF_DeleteDeviceList": (None, [_P]),
    "TF_DeviceListCount": (_I, [_P]),
    "TF_DeviceListName": (_S, [_P, _I, _P]),
    "TF_LoadSessionFromSavedModel": (_P, [_P, _P, _S, _P, _I, _P, _P, _P]),
    "MR_SessionRunAsync": (_P, [_P, _P, _P, _P, _I, _P, _I, _P, _I, RunDone, _P, _P]),
    "MR_CancelRun": (None, [_P]),
    "MR_RunHasEnded": (ctypes.c_ubyte, [_P]),
    "MR_WaitRun": (None, [_P]),
    "MR_RunResult": (None, [_P, _P, _P, _P]),
    "MR_DeleteRun": (None, [_P]),
}


class Library:
    """The C functions as attributes."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        for name, (result, arguments) in _PROTOTYPES.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def call(self, name, *arguments):
        """Calls a function whose last argument is a status, and raises what it says."""
        status = self.TF_NewStatus()
        try:
            result = getattr(self, name)(*arguments, status)
            code = self.TF_GetCode(status)
            if code:
                raise Error(code, self.TF_Message(status).decode(errors="replace"))
            return result
        finally:
            self.TF_DeleteStatus(status)


@functools.lru_cache(maxsize=None)
def library():
    """The library of $MILLRACE_LIBRARY, else the one that the wheel brought, that this source tree
    has built, or that the system has."""
    here = os.path.dirname(os.path.abspath(__file__))
    built = os.path.join(here, *[os.pardir] * 3, "build", "client", NAME)
    found = [path for path in (os.path.join(here, NAME), os.path.normpath(built))
             if os.path.exists(path)]
    return Library(os.environ.get("MILLRACE_LIBRARY") or (found or [NAME])[0])
