"""Builds models with the training helpers of libmillrace."""
import ctypes

import numpy as np

from c_library import CODES, Builder, Output, Refused, millrace, output
from local_cluster import target

ARRAY = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64}


class Gradient(ctypes.Structure):
    _fields_ = [("variable", ctypes.c_void_p), ("values", Output), ("indices", Output)]


class Model(Builder):
    """A graph with an MR_Builder; `mr("Minimize", …)` calls MR_Minimize with that builder."""

    def __init__(self, graph=None):
        super().__init__(millrace(), graph)
        self.builder = self.c.MR_NewBuilder(self.graph)
        self.running = None

    def close(self):
        if self.running:
            self.call("TF_DeleteSession", self.running)
        self.c.MR_DeleteBuilder(self.builder)
        super().close()

    def mr(self, name, *arguments):
        arguments = [a.encode() if isinstance(a, str) else a for a in arguments]
        result = getattr(self.c, "MR_" + name)(self.builder, *arguments)
        status = self.c.MR_BuilderStatus(self.builder)
        if self.c.TF_GetCode(status):
            raise Refused(CODES[self.c.TF_GetCode(status)], self.c.TF_Message(status).decode())
        return result

    def add(self, op, *inputs, attrs=None):
        """MR_Op."""
        return self.mr("Op", op, attrs and attrs.encode(),
                       (Output * max(len(inputs), 1))(*map(output, inputs)), len(inputs))

    def variable(self, name, dtype, dims, init):
        return self.mr("NewVariable", name, dtype, dims_of(dims), len(dims), init)

    def array(self, values, dtype):
        """An MR_Constant."""
        values = np.asarray(values, ARRAY[dtype])
        tensor = self.tensor(dtype, values.shape, values.ravel().tolist())
        try:
            return self.mr("Constant", tensor)
        finally:
            self.c.TF_DeleteTensor(tensor)

    def step(self, fetches=(), targets=(), feeds=()):
        """Runs a step on the local cluster; the fetched arrays."""
        if not self.running:
            self.running = self.session(target())
        return [np.array(elements, ARRAY[dtype]).reshape(dims) for dtype, dims, elements in
                self.run(self.running, fetches, feeds, targets)]


def dims_of(dims):
    return (ctypes.c_int64 * max(len(dims), 1))(*dims)


def pointers(items):
    return (ctypes.c_void_p * max(len(items), 1))(*items)
