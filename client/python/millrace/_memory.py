"""Memory that this process shares with one task, for large values (kernels/host/calls/py_memory.h).

The file has no name and cannot shrink. It is gone when both processes have ended, however they
ended. The task's blocks are in the first half, this process's in the second.
"""
import fcntl
import mmap
import os
import threading

import numpy as np

ALIGN = 64
MIN_VALUE_BYTES = 1 << 16
_NONCE_BYTES = 16
_F_ADD_SEALS, _F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW = 1033, 1, 2, 4


class _Block:
    """A value of the task's. Arrays that are views on it keep it alive; then its block is free."""

    def __init__(self, memory, at, size):
        self._memory, self._at = memory, at
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,),
                                    "data": (memory.address + at, False)}

    def __del__(self):
        self._memory.set_state(self._at - ALIGN, 0)


class Memory:
    def __init__(self, size):
        self.size = size // (2 * ALIGN) * (2 * ALIGN)
        self._half = self.size // 2
        self._lock = threading.Lock()
        self._blocks = []  # (begin, end) of this process's, in order
        self._fd = os.memfd_create("millrace-py-functions",
                                   os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._fd, self.size)
            fcntl.fcntl(self._fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL)
            self._map = mmap.mmap(self._fd, self.size)
        except OSError:
            os.close(self._fd)
            raise
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._states = self._bytes.view(np.uint32)
        self.address = self._bytes.ctypes.data
        nonce = os.urandom(_NONCE_BYTES)
        self._bytes[:_NONCE_BYTES] = np.frombuffer(nonce, np.uint8)
        self.name = f"{os.getpid()} {self._fd} {self.size} {nonce.hex()}"

    def close_file(self):
        """The task has mapped the file, or never will: only the mapping is needed from now on."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def set_state(self, begin, state):
        self._states[begin // 4] = state

    def view(self, at, size):
        """The task's value at `at` as bytes."""
        if at % ALIGN or at < 2 * ALIGN or at + size > self._half:
            raise ValueError(f"{size} bytes at {at} of {self.size} that are shared with a task")
        return np.asarray(_Block(self, at, size))

    def put(self, array):
        """Copies a contiguous array into a block for the task. Returns its place; 0: no room."""
        size = -(-array.nbytes // ALIGN) * ALIGN + ALIGN
        with self._lock:
            self._blocks = [b for b in self._blocks if self._states[b[0] // 4]]
            begin = self._half
            for i, block in enumerate([*self._blocks, (self.size, self.size)]):
                if block[0] - begin >= size:
                    self._blocks.insert(i, (begin, begin + size))
                    self.set_state(begin, 1)
                    break
                begin = block[1]
            else:
                return 0
        at = begin + ALIGN
        self._bytes[at:at + array.nbytes] = array.reshape(-1).view(np.uint8)
        return at


def open_memory(size):
    """A Memory, or None where this system or its limits do not allow one."""
    if size < 4 * ALIGN or not hasattr(os, "memfd_create"):
        return None
    try:
        return Memory(size)
    except OSError:
        return None
