"""A wire between this network namespace and another one, which loses packets on command: two TUN
devices, joined by a process (a thread of the test would stand still whenever the test computes).
It needs root, but neither netem nor a firewall in the kernel.

    with LossyWire() as wire:
        wire.run_inside(["tf-worker", "--listen", f"{wire.there}:2400", "--insecure"])
        wire.loss_out = wire.loss_in = 1.0        a partition; 0.1: a packet in ten
        wire.rate_in = 20e6                       bytes a second from there
"""
import ctypes
import fcntl
import mmap
import os
import random
import select
import shutil
import subprocess
import sys
import struct
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 1500
BURST_S = 0.01  # what a wire with a rate passes at once


def why_not():
    """A reason when this host cannot have one, else None."""
    if os.geteuid() != 0:
        return "not root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "no /dev/net/tun"
    if not shutil.which("ip"):
        return "no ip (iproute2)"
    try:
        with LossyWire():
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces here: {error}"


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def open_tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return fd


class State(ctypes.Structure):
    """What both processes see."""

    _fields_ = [("loss_out", ctypes.c_double), ("loss_in", ctypes.c_double),
                ("rate_out", ctypes.c_double), ("rate_in", ctypes.c_double),
                ("n_packets", ctypes.c_uint64), ("n_lost", ctypes.c_uint64)]


def shared(name):
    return property(lambda wire: getattr(wire.state, name),
                    lambda wire, value: setattr(wire.state, name, value))


class LossyWire:
    loss_out, loss_in = shared("loss_out"), shared("loss_in")  # to there, and from there
    rate_out, rate_in = shared("rate_out"), shared("rate_in")  # 0: as fast as it goes
    n_packets, n_lost = shared("n_packets"), shared("n_lost")

    def __init__(self, seed=1):
        number = os.getpid() % 16000 * 4
        self.namespace = f"millrace-{os.getpid()}"
        self.names = (f"mra{os.getpid()}", f"mrb{os.getpid()}")
        self.here, self.there = (f"10.219.{number >> 8}.{(number & 255) + i}" for i in (1, 2))
        self.seed, self.fds, self.process = seed, [], None
        self.memory = os.memfd_create("lossy_wire")
        os.truncate(self.memory, ctypes.sizeof(State))
        self.state = map_state(self.memory)

    def __enter__(self):
        try:
            ip("netns", "add", self.namespace)
            self.fds = [open_tun(name) for name in self.names]
            ip("link", "set", self.names[1], "netns", self.namespace)
            ip("addr", "add", self.here, "peer", self.there, "dev", self.names[0])
            ip("link", "set", self.names[0], "mtu", str(MTU), "up")
            ip("-n", self.namespace, "addr", "add", self.there, "peer", self.here, "dev",
               self.names[1])
            ip("-n", self.namespace, "link", "set", self.names[1], "mtu", str(MTU), "up")
            ip("-n", self.namespace, "link", "set", "lo", "up")
            words = [str(word) for word in (*self.fds, self.memory, self.seed)]
            self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), *words],
                                            stdin=subprocess.PIPE,
                                            pass_fds=(*self.fds, self.memory))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.stdin.close()
            self.process.wait()
        for fd in (*self.fds, self.memory):
            os.close(fd)
        subprocess.run(["ip", "netns", "del", self.namespace], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)

    def inside(self, command):
        return ["ip", "netns", "exec", self.namespace, *command]


def map_state(fd):
    return State.from_buffer(mmap.mmap(fd, ctypes.sizeof(State)))


class Direction:
    def __init__(self, source, destination, way, state, chance):
        self.source, self.destination, self.way = source, destination, way
        self.state, self.chance = state, chance
        self.due = 0.0  # when the wire has room for the next packet

    def wait_s(self):
        """Returns how long the wire has no room."""
        return max(0.0, self.due - time.monotonic() - BURST_S)

    def carry(self):
        state, rate = self.state, getattr(self.state, f"rate_{self.way}")
        for _ in range(64):
            if rate and self.wait_s():
                return
            try:
                packet = os.read(self.source, MTU + 100)
            except OSError:  # nothing more now, or the device is going
                return
            state.n_packets += 1
            if rate:
                self.due = max(self.due, time.monotonic()) + len(packet) / rate
            loss = getattr(state, f"loss_{self.way}")
            if loss and self.chance.random() < loss:
                state.n_lost += 1
                continue
            try:
                os.write(self.destination, packet)
            except OSError:  # its queue is full: a packet lost like others
                state.n_lost += 1


def forward(a, b, memory, seed):
    """Joins the devices `a` and `b` until standard input ends."""
    state, chance = map_state(memory), random.Random(seed)
    ways = {a: Direction(a, b, "out", state, chance), b: Direction(b, a, "in", state, chance)}
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while True:
        waits = [way.wait_s() for way in ways.values()]
        for way, wait in zip(ways.values(), waits):
            poll.register(way.source, 0 if wait else select.POLLIN)
        limit = min((wait for wait in waits if wait), default=None)
        for fd, _ in poll.poll(limit and limit * 1000 + 1):
            if fd == 0:
                return
            ways[fd].carry()


if __name__ == "__main__":
    forward(*map(int, sys.argv[1:]))
