"""A relay in front of a task's port, over which few bytes a second pass to the task, as over a slow
network. All connections share the link. The relay mostly sleeps, in a process of its own.

    with SlowLink(port, bytes_per_second) as link:
        link.port
"""
import multiprocessing
import socket
import threading
import time

CHUNK = 64 << 10


class SlowLink:
    def __init__(self, target_port, bytes_per_second):
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.process = multiprocessing.get_context("fork").Process(
            target=serve, args=(listening, target_port, bytes_per_second), daemon=True)
        self.process.start()
        listening.close()

    def stop(self):
        self.process.terminate()
        self.process.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Limit:
    """When the next bytes may pass."""

    def __init__(self, bytes_per_second):
        self.rate, self.free_at, self.lock = bytes_per_second, 0, threading.Lock()

    def wait(self, n_bytes):
        with self.lock:
            self.free_at = max(self.free_at, time.monotonic()) + n_bytes / self.rate
            free_at = self.free_at
        time.sleep(max(0, free_at - time.monotonic()))


def carry(source, sink, limit):
    try:
        while data := source.recv(CHUNK):
            if limit:
                limit.wait(len(data))
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # the other direction or the process has ended
        pass


def serve(listening, target_port, bytes_per_second):
    limit = Limit(bytes_per_second)
    while True:
        here, _ = listening.accept()
        there = socket.create_connection(("127.0.0.1", target_port))
        for s in (here, there):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for way in ((here, there, limit), (there, here, None)):
            threading.Thread(target=carry, args=way, daemon=True).start()
