"""Processes of tests/tools: a request in, a reply out. graph_eval.c evaluates graphs with our
kernels. Needs Python's library only: tools/gpu_run uses it where there is no TensorFlow."""

import atexit
import os
import struct
import subprocess


class Crashed(Exception):
    pass


class ToolProcess:
    """A process that answers each request; started again after a crash. A message is its length in
    four bytes, and its bytes."""

    def __init__(self, command):
        self.command, self.process = command, None
        atexit.register(self.stop)

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
            self.process = None

    def kill(self):
        """Ends a process that does not answer: whoever waits for its reply gets Crashed."""
        process = self.process
        if process:
            process.kill()

    def _read(self, n):
        data = self.process.stdout.read(n)
        if len(data) < n:
            code = self.process.wait()
            self.process = None
            raise Crashed(f"{os.path.basename(self.command[-1])} ended with {code}")
        return data

    def ask(self, request, stderr=None):
        """The reply."""
        if not self.process:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=stderr)
        try:
            self.process.stdin.write(struct.pack("<I", len(request)) + request)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the read says how it ended
        return self._read(struct.unpack("<I", self._read(4))[0])


class Evaluator(ToolProcess):
    """A graph_eval process."""

    def __init__(self, path):
        super().__init__([path])

    def run(self, graphdef, steps):
        """steps: a list of (feeds {endpoint: TensorProto bytes}, fetch endpoints, target names).
        Returns per step (code, message, protos, shapes); one failed entry when the graph itself is
        refused."""
        out = bytearray()

        def add(data):
            out.extend(struct.pack("<I", len(data)) + data)

        def count(n):
            out.extend(struct.pack("<I", n))

        add(graphdef)
        count(len(steps))
        for feeds, fetches, targets in steps:
            count(len(feeds))
            for endpoint, proto in feeds.items():
                add(endpoint.encode())
                add(proto)
            for names in (fetches, targets):
                count(len(names))
                for name in names:
                    add(name.encode())
        reply, at = self.ask(bytes(out)), 0

        def number():
            nonlocal at
            at += 4
            return struct.unpack_from("<I", reply, at - 4)[0]

        def chunk():
            nonlocal at
            n = number()
            at += n
            return reply[at - n : at]

        code, message = number(), chunk().decode(errors="replace")
        if code:
            return [(code, message, [], [])]
        results = []
        for _, fetches, _ in steps:
            code, message = number(), chunk().decode(errors="replace")
            protos = [chunk() for _ in fetches] if not code else []
            shapes = [chunk().decode(errors="replace") for _ in fetches] if not code else []
            results.append((code, message, protos, shapes))
        return results
