"""Sessions: graphs, feeds, fetches, and steps that nobody waits for."""
import atexit
import contextlib
import ctypes
import logging
import os
import threading
import weakref

from millrace import _arrays
from millrace._errors import Error
from millrace._library import Buffer, Output, RunDone, library

_log = logging.getLogger("millrace")

class _Graph:
    def __init__(self):
        self._c = library()
        self.handle = self._c.TF_NewGraph()
        self._outputs = {}

    def __del__(self):
        self._c.TF_DeleteGraph(self.handle)

    def add(self, graph_def):
        data = _read(graph_def)
        buffer = self._c.TF_NewBufferFromString(data, len(data))
        options = self._c.TF_NewImportGraphDefOptions()
        try:
            self._c.call("TF_GraphImportGraphDef", self.handle, buffer, options)
        finally:
            self._c.TF_DeleteImportGraphDefOptions(options)
            self._c.TF_DeleteBuffer(buffer)

    def operation(self, name):
        name = str(getattr(name, "name", name))
        oper = self._c.TF_GraphOperationByName(self.handle, name.lstrip("^").encode())
        if not oper:
            raise KeyError(f"the graph has no operation '{name}'")
        return oper

    def output(self, name):
        """"x" or "x:1"; anything with a name of that form will do."""
        name = str(getattr(name, "name", name))
        if name not in self._outputs:
            operation, colon, index = name.partition(":")
            if colon and not index.isdigit():
                raise ValueError(f"'{name}' is not the name of an output, NAME or NAME:INDEX")
            oper, number = self.operation(operation), int(index or 0)
            n_outputs = self._c.TF_OperationNumOutputs(oper)
            if number >= n_outputs:
                raise KeyError(f"operation '{operation}' has {n_outputs} outputs, none is number "
                               f"{number}" + ("; give it in `targets`" if n_outputs == 0 else ""))
            self._outputs[name] = Output(oper, number)
        return self._outputs[name]


def _read(message):
    """The bytes of a message: of a bytes object, of a protobuf message, or of a file."""
    if hasattr(message, "SerializeToString"):
        return message.SerializeToString()
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message)
    with open(os.fspath(message), "rb") as f:
        return f.read()


def _is_one(names):
    """Is it a name, or an object with one, and not several?"""
    return isinstance(names, str) or hasattr(names, "name")


class _Arguments:
    """The arrays of one step, with the tensors of its feeds."""

    def __init__(self, c, graph, fetches, feeds, targets):
        self._c = c
        self.is_single = fetches is not None and _is_one(fetches)
        names = [] if fetches is None else [fetches] if self.is_single else list(fetches)
        targets = [targets] if _is_one(targets) else list(targets)
        self.outputs = (Output * max(len(names), 1))(*(graph.output(name) for name in names))
        self.targets = (ctypes.c_void_p * max(len(targets), 1))(
            *(graph.operation(name) for name in targets))
        self.n_outputs, self.n_targets = len(names), len(targets)
        self.inputs = (Output * max(len(feeds), 1))(*(graph.output(name) for name in feeds))
        self.tensors = (ctypes.c_void_p * max(len(feeds), 1))()
        self.n_inputs = len(feeds)
        try:
            for i, value in enumerate(feeds.values()):
                number = c.TF_OperationOutputType(self.inputs[i]) % 100
                self.tensors[i] = _arrays.to_tensor(c, value, number)
        except BaseException:
            self.free()
            raise

    def free(self):
        for tensor in self.tensors:
            if tensor:
                self._c.TF_DeleteTensor(tensor)

    def drop(self, results):
        for i in range(self.n_outputs):
            tensor, results[i] = results[i], None
            if tensor:
                self._c.TF_DeleteTensor(tensor)

    def values(self, results):
        values = [None] * self.n_outputs
        try:
            for i in range(self.n_outputs):
                tensor, results[i] = results[i], None
                values[i] = _arrays.to_value(self._c, tensor)
        finally:
            self.drop(results)
        return values[0] if self.is_single else values


def _call(callback, run):
    """As concurrent.futures: what a callback raises is logged, and keeps no other from its call."""
    try:
        callback(run)
    except Exception:
        _log.exception("calling a callback of %r", run)


_running = set()  # what the library will call back, whoever else has forgotten it


class Run:
    """A step that was started with Session.run_async."""

    def __init__(self, session, arguments):
        self._c, self._session, self._arguments = library(), session, arguments
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._result = self._error = self._handle = None
        self._callbacks = []
        self._on_done = RunDone(self._take)  # kept until the run has ended

    def _start(self):
        a = self._arguments
        try:
            # the run may have ended, and must not be deleted, before it is noted
            with self._session._in_call() as handle, self._lock:
                self._handle = self._c.call(
                    "MR_SessionRunAsync", handle, None, a.inputs, a.tensors, a.n_inputs, a.outputs,
                    a.n_outputs, a.targets, a.n_targets, self._on_done, None)
        finally:
            a.free()

    def _take(self, _, run):
        results = (ctypes.c_void_p * max(self._arguments.n_outputs, 1))()
        try:
            self._c.call("MR_RunResult", run, results, None)
            self._result = self._arguments.values(results)
        except BaseException as error:  # it belongs to whoever asks for the result
            self._error = error
        with self._lock:
            self._handle = False
            callbacks, self._callbacks = self._callbacks, None
            self._c.MR_DeleteRun(run)
        _running.discard(self)
        self._ended.set()
        for callback in callbacks:
            _call(callback, self)

    def done(self):
        return self._ended.is_set()

    def cancel(self):
        """Asks the master to cancel the step. The result is then the Error CANCELLED, unless the
        step has ended before."""
        with self._lock:
            if self._handle:
                self._c.MR_CancelRun(self._handle)

    def result(self, timeout=None):
        """Waits, at most `timeout` seconds, and returns what Session.run would return."""
        if not self._ended.wait(timeout):
            raise TimeoutError("the step has not ended")
        if self._error:
            raise self._error
        return self._result

    def exception(self, timeout=None):
        """Waits, and returns what result() would raise, or None."""
        if not self._ended.wait(timeout):
            raise TimeoutError("the step has not ended")
        return self._error

    def add_done_callback(self, callback):
        """Calls `callback(run)` when the step has ended, on a thread of the session; at once if it
        has ended already."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        _call(callback, self)

    def __await__(self):
        import asyncio
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def tell():
            if future.cancelled():
                return
            if self._error:
                future.set_exception(self._error)
            else:
                future.set_result(self._result)
        def tell_soon(_):
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell)
        self.add_done_callback(tell_soon)
        try:
            return (yield from future.__await__())
        except asyncio.CancelledError:
            self.cancel()
            raise


class Session:
    """A session of a graph at a master.

    target     "grpc://HOST:PORT", "grpcs://HOST:PORT", "unix:PATH", or "" for a master and a worker
               inside this process
    graph_def  a GraphDef: bytes, a message of protobuf, or the path of a file with its bytes
    config     a ConfigProto: bytes, a message, or None
    timeout    how many seconds each call may take; None: no limit
    tls        {"ca": …, "cert": …, "key": …, "name": …} for grpcs://; each may be absent

    Names of outputs are "x" or "x:1"; objects with such a `name`, as TensorFlow's, will do. Any
    thread may call; calls of several threads overlap.
    """

    def __init__(self, target="", graph_def=b"", *, config=None, timeout=None, tls=None):
        self._c = library()
        self._begin_life()
        self._graph = _Graph()
        if graph_def:
            self._graph.add(graph_def)
        options = _options(self._c, target, config, timeout, tls)
        try:
            self._handle = self._c.call("TF_NewSession", self._graph.handle, options)
        finally:
            self._c.TF_DeleteSessionOptions(options)

    def extend(self, graph_def):
        """Adds nodes to the graph, which may use those that it has."""
        self._check_open()
        self._graph.add(graph_def)

    def _begin_life(self):
        self._handle, self._pid = None, os.getpid()
        self._idle, self._n_calls = threading.Condition(), 0
        _sessions.add(self)

    def _check_open(self):
        if self._pid != os.getpid():
            raise Error("FAILED_PRECONDITION", "the session belongs to the parent of this process")
        if not self._handle:
            raise Error("FAILED_PRECONDITION", "the session is closed")

    @contextlib.contextmanager
    def _in_call(self):
        """close() waits for the calls of other threads, which it ends."""
        with self._idle:
            self._check_open()
            self._n_calls += 1
            handle = self._handle
        try:
            yield handle
        finally:
            with self._idle:
                self._n_calls -= 1
                self._idle.notify_all()

    def run(self, fetches=None, feeds=None, targets=(), *, run_options=None, run_metadata=None):
        """Runs one step.

        fetches  the name of an output, or a list of names; the result is a value, or a list. None
                 only runs the targets, and returns []
        feeds    {name of an output: value}. Arrays of the output's dtype are not copied
        targets  operations that run without being fetched: a name, or a list
        run_options, run_metadata
                 a RunOptions (as `config`), and a bytearray that receives a serialized RunMetadata

        Raises Error, and KeyError or TypeError for what the graph does not have or take.
        """
        self._check_open()
        if run_metadata is not None and not isinstance(run_metadata, bytearray):
            raise TypeError("run_metadata is no bytearray")
        a = _Arguments(self._c, self._graph, fetches, feeds or {}, targets)
        results = (ctypes.c_void_p * max(a.n_outputs, 1))()
        options = metadata = None
        try:
            if run_options is not None:
                data = _read(run_options)
                options = self._c.TF_NewBufferFromString(data, len(data))
            if run_metadata is not None:
                metadata = self._c.TF_NewBuffer()
            with self._in_call() as handle:
                self._c.call("TF_SessionRun", handle, options, a.inputs, a.tensors, a.n_inputs,
                             a.outputs, results, a.n_outputs, a.targets, a.n_targets, metadata)
            if metadata:
                buffer = Buffer.from_address(metadata)
                run_metadata[:] = ctypes.string_at(buffer.data, buffer.length)
            return a.values(results)
        finally:
            a.free()
            a.drop(results)
            _arrays.drop_returned()
            self._c.TF_DeleteBuffer(options)
            self._c.TF_DeleteBuffer(metadata)

    def run_async(self, fetches=None, feeds=None, targets=()):
        """Starts a step and returns a Run, whose result() is that of run(). It may be awaited."""
        self._check_open()
        run = Run(self, _Arguments(self._c, self._graph, fetches, feeds or {}, targets))
        _running.add(run)
        try:
            run._start()
        except BaseException:
            _running.discard(run)
            raise
        return run

    def devices(self):
        """The names of the devices."""
        with self._in_call() as handle:
            devices = self._c.call("TF_SessionListDevices", handle)
        try:
            return [self._c.call("TF_DeviceListName", devices, i).decode()
                    for i in range(self._c.TF_DeviceListCount(devices))]
        finally:
            self._c.TF_DeleteDeviceList(devices)

    def close(self):
        """Ends the session, its steps, and the calls of other threads. A second call does nothing.
        A callback of a run may call it."""
        with self._idle:
            handle, self._handle = self._handle, None
        if not handle or self._pid != os.getpid():
            return
        try:
            self._c.call("TF_CloseSession", handle)  # the steps end
        finally:
            with self._idle:
                while self._n_calls:
                    self._idle.wait()
            self._c.call("TF_DeleteSession", handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        """Python may collect objects on any thread, also on the one that runs the session's loop,
        so another one closes it."""
        if getattr(self, "_handle", None) and self._pid == os.getpid():
            handle, self._handle = self._handle, None
            with contextlib.suppress(RuntimeError):  # the interpreter ends
                threading.Thread(target=_delete, args=(self._c, handle), daemon=True).start()


def _delete(c, handle):
    with contextlib.suppress(Error):  # the master has gone
        c.call("TF_DeleteSession", handle)


_sessions = weakref.WeakSet()


@atexit.register
def _close_all():
    for session in list(_sessions):
        with contextlib.suppress(Error):
            session.close()


def _options(c, target, config, timeout, tls):
    options = c.TF_NewSessionOptions()
    try:
        c.TF_SetTarget(options, target.encode())
        if config is not None:
            data = _read(config)
            c.call("TF_SetConfig", options, data, len(data))
        if timeout is not None:
            c.MR_SetTimeout(options, max(1, round(timeout * 1000)))
        if tls is not None:
            unknown = set(tls) - {"ca", "cert", "key", "name"}
            if unknown:
                raise TypeError(f"tls has no '{sorted(unknown)[0]}', only ca, cert, key and name")
            c.MR_SetTls(options, *(os.fsencode(tls[key]) if tls.get(key) else None
                                   for key in ("ca", "cert", "key", "name")))
        return options
    except BaseException:
        c.TF_DeleteSessionOptions(options)
        raise


def load_saved_model(directory, target="", tags=("serve",), *, config=None, timeout=None, tls=None):
    """A Session with the graph and the variables of a SavedModel.

    The master's tasks read the files, so they must reach the directory. `session.meta_graph_def`
    has the bytes of the model's MetaGraphDef.
    """
    c = library()
    session = Session.__new__(Session)
    session._c = c
    session._begin_life()
    session._graph = _Graph()
    names = (ctypes.c_char_p * len(tags))(*(tag.encode() for tag in tags))
    options, meta = _options(c, target, config, timeout, tls), c.TF_NewBuffer()
    try:
        session._handle = c.call("TF_LoadSessionFromSavedModel", options, None,
                                 os.fsencode(directory), names, len(tags), session._graph.handle,
                                 meta)
        buffer = Buffer.from_address(meta)
        session.meta_graph_def = ctypes.string_at(buffer.data, buffer.length)
    finally:
        c.TF_DeleteSessionOptions(options)
        c.TF_DeleteBuffer(meta)
    return session
