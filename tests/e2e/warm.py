"""A Python that has imported TensorFlow already, for the clients of tests: each begins as a fork of
it, which saves three seconds of processor time a client. Everything else is as in a Python of its
own: arguments, directory, environment, pipes, exit status, its end.

    warm.py SOCKET [--impatient]        started by run.py; ends with it

    warm_python  ── arguments, directory, environment, namespaces; descriptors 0, 1, 2 ──►  warm.py
    ── fork ──►  the program
        ▲  signals ──►                                                                        │
        └───────────────────────────── "here" or not, its exit status ◄───────────────────────┘

A warm_python that is killed takes its program with it. SIGTSTP stands for SIGSTOP, which cannot be
handed on.
"""
import array
import ctypes
import functools
import json
import os
import random
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile

NOT_HERE, HERE = -(2**31), -(2**31) + 1  # no exit status
PR_SET_PDEATHSIG = 1
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")


def namespaces():
    return [os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES
            if os.path.exists(f"/proc/self/ns/{name}")]


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def receive(connection):
    """The request and its descriptors; None from one that has gone."""
    data, ancillary, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    if len(data) < 4:
        return None
    fds = array.array("i")
    for level, kind, bytes_ in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(bytes_)
    (left,), text = struct.unpack("<I", data), b""
    while left > len(text):
        part = connection.recv(left - len(text))
        if not part:
            return None
        text += part
    return {**json.loads(text), "fds": list(fds)}


class Server:
    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        self.children = {}  # connection → (pid, pidfd)

    def serve(self):
        """Returns in each child: its request."""
        while True:
            for key, _ in self.selector.select():
                if request := key.data(key.fileobj):
                    return request

    def accept(self, listener):
        connection, _ = listener.accept()
        request = receive(connection)
        if request and request["namespaces"] != namespaces():
            connection.sendall(struct.pack("<i", NOT_HERE))
            request = None
        if not request:
            connection.close()
            return None
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self.forget(connection)
            return request
        connection.sendall(struct.pack("<i", HERE))
        for fd in request["fds"]:
            os.close(fd)
        pidfd = os.pidfd_open(pid)
        self.children[connection] = pid, pidfd
        self.selector.register(pidfd, selectors.EVENT_READ, lambda fd: self.ended(connection))
        self.selector.register(connection, selectors.EVENT_READ, self.told)
        return None

    def forget(self, connection):
        """In a child: what is its parent's."""
        self.selector.close()
        self.listener.close()
        connection.close()
        for other, (_, pidfd) in self.children.items():
            other.close()
            os.close(pidfd)

    def told(self, connection):
        """A byte is a signal; the end is that of who asked."""
        data = connection.recv(64)
        pid, _ = self.children[connection]
        for signo in data or [signal.SIGKILL]:
            os.kill(pid, signo)
        if not data:
            self.selector.unregister(connection)

    def ended(self, connection):
        pid, pidfd = self.children.pop(connection)
        self.selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        try:
            self.selector.unregister(connection)
            connection.sendall(struct.pack("<i", os.waitstatus_to_exitcode(status)))
        except (KeyError, OSError):
            pass  # who asked has gone
        connection.close()


def become(request):
    """This process, as if it had been started so."""
    die_with_parent()
    for number, fd in enumerate(request["fds"]):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None
    sys.executable = request["executable"]
    random.seed()
    sys.modules["numpy"].random.seed()


def run(arguments):
    if arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
        exec(compile(arguments[1], "<string>", "exec"),
             {"__name__": "__main__", "__builtins__": __builtins__})
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


def import_quietly(impatient):
    """Without what TensorFlow says of itself, which would stand in the midst of the tests' output.
    Impatient: a client that waits for the chief to restore looks again after a second rather than
    thirty."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    import tensorflow.compat.v1 as tf

    if impatient:
        manager = tf.train.SessionManager
        manager.__init__ = functools.partialmethod(manager.__init__, recovery_wait_secs=1)
    os.dup2(kept, 2)
    os.close(kept)
    os.close(null)


def main():
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is run.py's
    server = Server(sys.argv[1])
    import_quietly(sys.argv[2:] == ["--impatient"])  # who comes meanwhile waits
    request = server.serve()
    become(request)
    run(request["arguments"])


if __name__ == "__main__":
    main()
