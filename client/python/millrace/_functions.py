"""Serves the Python functions of this process to the steps of a cluster.

A step of the reserved token (kernels/host/calls/py_service.h) waits on each task for a call, a
thread runs the function, and the next step takes the result along. TensorFlow's own registry of
functions is what is called; TensorFlow is not changed.
"""
import random
import threading
import traceback

from millrace import _memory, _message

SERVE_TOKEN = "millrace.serve"
_RETRY_S = 0.2
_SHARED_BYTES = 256 << 20


def _tensorflow():
    import tensorflow as tf
    from tensorflow.python.ops import gen_script_ops, script_ops
    return tf, gen_script_ops, script_ops


def _new_server():
    return random.SystemRandom().getrandbits(63) | 1


class _Task:
    """One task's serving step, built in the servers' graph."""

    def __init__(self, tf, gen_script_ops, name):
        self.name = name
        self.lock = threading.Lock()  # held while the task is joined
        self.next_server = _new_server()
        # the number that this process has there, and the memory shared with the task, or None;
        # another pair after each time that it is joined
        self.joined = None, None
        with tf.device(name + "/device:CPU:0"):
            self.request = tf.compat.v1.placeholder(tf.uint8, [None])
            self.call = gen_script_ops.py_func(
                [self.request], token=SERVE_TOKEN, Tout=[tf.uint8])[0]


class py_functions:
    """Lets steps on the cluster at `target` call Python functions of this process.

        with millrace.py_functions(target):
            with tf.compat.v1.Session(target) as session:
                session.run(...)

    Functions run on threads of this object, several at a time (at most max_threads for each
    task); those that wait for each other may do so. A function's exception ends the step with its
    text, as in TensorFlow. Leaving the block ends calls that are under way with UNAVAILABLE, so
    close sessions first.

    Values of 64 KiB and more pass through memory that this process shares with each task on its
    host: at most max_shared_bytes for each task, of which half is for arguments and half for
    results. 0 shares none.

    config is a ConfigProto for the session that serves, e.g. with device filters; tasks that it
    filters out are not served.
    """

    def __init__(self, target, max_threads=64, config=None, max_shared_bytes=_SHARED_BYTES):
        self._target, self._config, self._max_threads = target, config, max_threads
        self._max_shared_bytes = max_shared_bytes
        self._lock = threading.Lock()
        self._is_closed = False
        self._threads, self._n_idle, self._n_threads = [], {}, {}
        self._session = self._tasks = None

    def __enter__(self):
        self._tf, self._gen_script_ops, self._script_ops = _tensorflow()
        self._errors = self._tf.errors
        self._graph = self._tf.Graph()
        self._open()
        for task in self._tasks:
            self._n_idle[task.name] = self._n_threads[task.name] = 0
            self._add_thread(task)
        return self

    def __exit__(self, *exc):
        with self._lock:
            self._is_closed = True
        for task in self._tasks:
            try:
                self._run(task, _message.write_request(task.joined[0], _message.LEAVE))
            except self._errors.OpError:
                pass  # the task has gone, and its calls with it
        self._session.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    # ---- the session that serves ----

    def _open(self):
        self._session = self._tf.compat.v1.Session(
            self._target, graph=self._graph, config=self._config)
        if self._tasks is None:
            names = sorted({d.name.split("/device:")[0] for d in self._session.list_devices()})
            with self._graph.as_default():
                self._tasks = [_Task(self._tf, self._gen_script_ops, name) for name in names]
        for task in self._tasks:
            self._join(task)

    def _join(self, task):
        """Under a new number and with new memory each time, because the task may be another
        process, which must not take a result for one of its own calls."""
        memory = _memory.open_memory(self._max_shared_bytes)
        name = memory.name if memory else ""
        server, (old, _) = task.next_server, task.joined
        try:
            reply = self._run(task, _message.write_request(server, _message.JOIN, message=name))
        finally:
            if memory:
                memory.close_file()
        task.joined = server, memory if memory and reply.size else None
        task.next_server = _new_server()
        if old is not None:
            try:
                self._run(task, _message.write_request(old, _message.LEAVE))
            except self._errors.OpError:
                pass  # whoever knew the old number is gone

    def _run(self, task, request):
        return self._session.run(task.call, {task.request: request})

    def _rejoin(self, task, seen):
        """A task has restarted, or the master has: joins again, unless another thread has done so
        since the calling one saw `seen`. False once this is closed."""
        while not self._is_closed:
            try:
                with task.lock:
                    if task.joined is seen:
                        self._join(task)
                return True
            except (self._errors.AbortedError, self._errors.UnavailableError,
                    self._errors.NotFoundError, self._errors.DeadlineExceededError,
                    RuntimeError) as e:
                self._reopen_after(e)
        return False

    def _reopen_after(self, error):
        """A session that its master no longer knows is replaced."""
        threading.Event().wait(_RETRY_S)
        if not isinstance(error, self._errors.AbortedError):
            return
        with self._lock:
            if self._is_closed:
                return
            old, self._session = self._session, self._tf.compat.v1.Session(
                self._target, graph=self._graph, config=self._config)
        try:
            old.close()
        except self._errors.OpError:
            pass

    # ---- threads ----

    def _add_thread(self, task):
        thread = threading.Thread(target=self._serve, args=(task,), daemon=True,
                                  name=f"millrace functions of {task.name}")
        self._threads.append(thread)
        self._n_threads[task.name] += 1
        self._n_idle[task.name] += 1
        thread.start()

    def _busy(self, task):
        """The calling thread has a call: somebody else must wait for the next one."""
        with self._lock:
            self._n_idle[task.name] -= 1
            can_grow = self._n_threads[task.name] < self._max_threads and not self._is_closed
            if self._n_idle[task.name] == 0 and can_grow:
                self._add_thread(task)

    def _serve(self, task):
        joined = request = None
        while not self._is_closed:
            if joined is not task.joined:
                joined = task.joined
                request = _message.write_request(joined[0], _message.SERVE)
            try:
                blob = self._run(task, request)
            except (self._errors.OpError, RuntimeError):
                if self._is_closed or not self._rejoin(task, joined):
                    return
                joined = None
                continue
            if blob.size == 0:
                joined = None
                continue
            self._busy(task)
            request = self._call(blob, *joined)
            with self._lock:
                self._n_idle[task.name] += 1

    # ---- one call ----

    def _numpy_type(self, number):
        return self._tf.dtypes.as_dtype(number).as_numpy_dtype

    def _type_number(self, dtype):
        return self._tf.dtypes.as_dtype(dtype).as_datatype_enum

    def _call(self, blob, server, memory):
        """Runs a call; the request that delivers its result and waits for the next one."""
        call, flags, token, values = _message.read_call(blob, self._numpy_type, memory)
        code, message, results = 0, "", []
        try:
            results = self._results(token, flags, values)
            return _message.write_request(server, _message.SERVE, call, values=results,
                                          type_number=self._type_number,
                                          memory=memory if flags & _message.SHARES else None)
        except BaseException as e:  # whatever a function raises belongs to its step
            code, message = self._failure(e)
        return _message.write_request(server, _message.SERVE, call, code, message)

    def _results(self, token, flags, values):
        if flags & _message.EAGER:
            return self._eager_results(token, values)
        result = self._script_ops._py_funcs(token, None, values)
        if result is None or getattr(result, "shape", None) == () and result.item() is None:
            return []
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def _eager_results(self, token, values):
        from tensorflow.python.eager import context
        with context.eager_mode():
            tensors = [self._tf.constant(value) for value in values]
        result = self._script_ops._py_funcs(
            token, "/job:localhost/replica:0/task:0/device:CPU:0", tensors)
        if result is None:
            return []
        result = result if isinstance(result, (list, tuple)) else [result]
        return [tensor.numpy() for tensor in result]

    def _failure(self, error):
        """(code, message) of an exception, by TensorFlow's rules."""
        errors = self._errors
        if isinstance(error, errors.OpError):
            return error.error_code, error.message
        code = errors.UNKNOWN
        for kinds, number in (((StopIteration,), errors.OUT_OF_RANGE),
                              ((ValueError, TypeError), errors.INVALID_ARGUMENT),
                              ((MemoryError,), errors.RESOURCE_EXHAUSTED),
                              ((NotImplementedError,), errors.UNIMPLEMENTED)):
            if isinstance(error, kinds):
                code = number
                break
        text = f"{type(error).__name__}: {error}\n" + \
                       "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return code, text
