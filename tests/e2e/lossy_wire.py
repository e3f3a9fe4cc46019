"""A wire between this network namespace and another one, which loses packets on command: two TUN
devices, joined by a thread. It needs root, but neither netem nor a firewall in the kernel.

    with LossyWire() as wire:
        wire.run_inside(["tf-worker", "--listen", f"{wire.there}:2400", "--insecure"])
        wire.loss_out = wire.loss_in = 1.0        a partition; 0.1: a packet in ten
"""
import fcntl
import os
import random
import select
import shutil
import struct
import subprocess
import threading

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 1500


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


class LossyWire:
    def __init__(self, seed=1):
        number = os.getpid() % 16000 * 4
        self.namespace = f"millrace-{os.getpid()}"
        self.names = (f"mra{os.getpid()}", f"mrb{os.getpid()}")
        self.here, self.there = (f"10.219.{number >> 8}.{(number & 255) + i}" for i in (1, 2))
        self.loss_out = self.loss_in = 0.0  # of what goes there, and of what comes from there
        self.n_packets = self.n_lost = 0
        self.random, self.is_over, self.fds = random.Random(seed), False, []

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
        except BaseException:
            self.__exit__()
            raise
        self.stop_pipe = os.pipe()
        self.thread = threading.Thread(target=self.forward, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        if hasattr(self, "thread"):
            self.is_over = True
            os.write(self.stop_pipe[1], b"x")
            self.thread.join()
            for fd in self.stop_pipe:
                os.close(fd)
        for fd in self.fds:
            os.close(fd)
        subprocess.run(["ip", "netns", "del", self.namespace], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)

    def inside(self, command):
        return ["ip", "netns", "exec", self.namespace, *command]

    def forward(self):
        a, b = self.fds
        poll = select.poll()
        for fd in (a, b, self.stop_pipe[0]):
            poll.register(fd, select.POLLIN)
        while not self.is_over:
            for fd, _ in poll.poll():
                if fd == self.stop_pipe[0]:
                    return
                self.carry(fd, b if fd == a else a, self.loss_out if fd == a else self.loss_in)

    def carry(self, source, destination, loss):
        for _ in range(64):
            try:
                packet = os.read(source, MTU + 100)
            except OSError:  # nothing more now, or the device is going
                return
            self.n_packets += 1
            if loss and self.random.random() < loss:
                self.n_lost += 1
                continue
            try:
                os.write(destination, packet)
            except OSError:  # its queue is full: a packet lost like others
                self.n_lost += 1
