"""A relay in front of a task's port. It flips a bit on command, as failing memory in a switch does.
TCP's checksum does not find that.

    with FlippingRelay(port) as relay:
        relay.flip_in(65536)          when at least this many bytes pass at once, in either
        direction, flips a bit in the middle of them, once
        relay.flipped.wait()
"""
import contextlib
import selectors
import socket
import threading


class FlippingRelay:
    def __init__(self, target_port):
        self.target_port = target_port
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.lock, self.min_bytes, self.flipped = threading.Lock(), None, threading.Event()
        self.is_over, self.sockets = False, []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.is_over = True
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for s in self.sockets:
            s.close()

    def flip_in(self, min_bytes):
        self.flipped.clear()
        with self.lock:
            self.min_bytes = min_bytes

    def cut(self, number):
        """Ends a connection: the one that was made first is number 0, the last -1."""
        for s in [self.sockets[i : i + 2] for i in range(0, len(self.sockets), 2)][number]:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def accept(self):
        while not self.is_over:
            try:
                here, _ = self.listening.accept()
                there = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                return
            self.sockets += [here, there]
            threading.Thread(target=self.carry_both, args=(here, there), daemon=True).start()

    def carry_both(self, here, there):
        other = {here: there, there: here}
        with selectors.DefaultSelector() as selector:
            for s in other:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(s, selectors.EVENT_READ)
            with contextlib.suppress(OSError, ValueError):
                while all(self.carry(key.fileobj, other[key.fileobj]) for key,
                          _ in selector.select()):
                    pass
        here.close()
        there.close()

    def carry(self, source, destination):
        """False at the end of what comes from there: the connection is closed both ways."""
        data = source.recv(1 << 20)
        if not data:
            return False
        with self.lock:
            must_flip = self.min_bytes is not None and len(data) >= self.min_bytes
            if must_flip:
                self.min_bytes = None
        if must_flip:
            at = len(data) // 2
            data = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            self.flipped.set()
        destination.sendall(data)
        return True
