"""Runs the timed graphs of a pack: each on a cluster of its own, so that one that fails or hangs
costs its own rows only."""
import json
import os
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

import pack_folder
from pack_folder import SIMULATED

START_TIMEOUT_S, PROGRAM_TIMEOUT_S = 60, 60
MOST_LOSSES = 12  # of a report
# What a variant of a program's run changes: flags of the worker, flags of the master.
VARIANTS = {None: ([], []), "graphs_off": (["--gpu-graphs", "off"], []),
            "unfused": ([], ["--disable-passes", "fuse"])}


def free_port():
    """A port whose admin port, 10,000 above, is a port, too."""
    while True:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        if 1024 < port < 50000:
            return port
        port = 20000 + port % 20000
        with socket.socket() as other:
            if other.connect_ex(("127.0.0.1", port)):
                return port


class Cluster:
    """A master and a worker with a GPU, for the length of a with statement."""

    def __init__(self, pack, worker_flags=(), master_flags=()):
        self.pack, self.processes = pack, []
        self.worker_flags, self.master_flags = worker_flags, master_flags
        self.worker_port = self.master_port = free_port()
        while self.master_port == self.worker_port:
            self.master_port = free_port()
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")

    def start(self, *command):
        self.processes.append(subprocess.Popen(command, env=self.pack.env, stdout=self.log,
                                               stderr=self.log, stdin=subprocess.DEVNULL))

    def __enter__(self):
        worker = f"127.0.0.1:{self.worker_port}"
        libraries = ":".join(pack_folder.cuda_library_folders())
        self.start(self.pack.program("tf-worker"), "--job", "worker", "--task", "0", "--listen",
                   worker, "--gpu=require", *self.worker_flags,
                   *(["--cuda-libs", libraries] if libraries else []))
        self.start(self.pack.program("tf-master"), "--listen", f"127.0.0.1:{self.master_port}",
                   "--cluster", f"worker={worker}", *self.master_flags)
        self.target = f"grpc://127.0.0.1:{self.master_port}"
        deadline = time.time() + START_TIMEOUT_S
        while True:
            try:
                self.page(self.master_port, "readyz")
                return self
            except OSError:
                if any(p.poll() is not None for p in self.processes) or time.time() > deadline:
                    text = self.text()
                    self.__exit__()
                    raise RuntimeError("the cluster does not start: " + text[-800:]) from None
                time.sleep(0.05)

    def __exit__(self, *_):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.log.close()

    def text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read()

    def page(self, port, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{port + 10000}/{name}", timeout=5) as reply:
            return reply.read().decode()

    def status(self):
        return json.loads(self.page(self.worker_port, "statusz"))

    def gpu(self):
        """What the worker says of its GPU."""
        return next((device for device in self.status().get("devices", ())
                     if "GPU" in device.get("name", "")), {})

    def worker_cpu_ns(self):
        """The CPU time of the worker's threads."""
        tasks, total = f"/proc/{self.processes[0].pid}/task", 0
        for task in os.listdir(tasks):
            try:
                with open(f"{tasks}/{task}/schedstat", encoding="utf-8") as file:
                    total += int(file.read().split()[0])
            except OSError:  # the thread has ended, or the kernel keeps no such file
                pass
        return total


def steps_of(facts):
    """How many steps are run first, and how many are then measured. A segment is captured when it
    has come three times; a thread compiles fused programs meanwhile, some 60 ms each."""
    if SIMULATED:
        return 5, 4
    if "net" in facts:
        return 150, 20
    if facts.get("repeats", 0) > 1 or "nodes" in facts:
        return 5, 15
    return (500, 500) if "network" in facts or facts.get("fetch") else (400, 40)


def ran(command, env, while_paused):
    """What gpu_steps prints. It is killed when it takes too long; while_paused is called between
    its warm steps and the measured ones."""
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors="replace") as process:
        watchdog = threading.Timer(PROGRAM_TIMEOUT_S, process.kill)
        watchdog.start()
        try:
            if process.stdout.readline() == "warm\n":
                while_paused()
            text, errors = process.communicate("go\n")
        except BrokenPipeError:
            text, errors = "", ""
        finally:
            watchdog.cancel()
    if process.returncode == -9:
        raise RuntimeError(f"stopped after {PROGRAM_TIMEOUT_S} s")
    if process.returncode:
        raise RuntimeError((errors or text).strip()[-400:] or f"ended with {process.returncode}")
    return json.loads(text)


def run_graph(pack, name, facts, variant):
    """{step_ns, losses, peak_bytes, cpu_ns of the worker in a step, counts of a step}, or {reason}.
    """
    warm, steps = steps_of(facts)
    worker_flags, master_flags = VARIANTS[variant]
    command = [pack.program("gpu_steps"), "--graph", pack.graph(name), "--init", "init", "--pause",
               "--warm", str(warm), "--steps", str(steps)]
    has_loss = facts.get("fetch") or {"network", "net"} & set(facts)
    command += ["--fetch", "loss:0"] if has_loss else []
    command += [] if facts.get("fetch") else ["--step", "step"]
    before = {}

    def while_paused():
        before.update(gpu=cluster.gpu(), cpu_ns=cluster.worker_cpu_ns())

    try:
        with Cluster(pack, worker_flags, facts["master"] + master_flags) as cluster:
            result = ran(command + ["--target", cluster.target], pack.env, while_paused)
            cpu_ns, gpu = cluster.worker_cpu_ns(), cluster.gpu()
    except (RuntimeError, OSError, ValueError) as error:
        return {"reason": str(error)}
    counts, old = gpu.get("counts", {}), before["gpu"].get("counts", {})
    times = result["step_ns"]
    return {"step_ns": statistics.median(times), "least_ns": min(times),
            "losses": result["values"][:MOST_LOSSES], "peak_bytes": gpu.get("memory_peak_bytes"),
            "cpu_ns": (cpu_ns - before["cpu_ns"]) / steps,
            "counts": {key: (counts[key] - old.get(key, 0)) / steps for key in counts}}


def run_part(pack, part, deadline):
    """The results of a part's graphs, by name, or by "NAME VARIANT"."""
    found = {}
    for name, facts in pack.manifest["graphs"].items():
        for variant in (None, *facts["variants"]) if facts["part"] == part else ():
            key = f"{name} {variant}" if variant else name
            found[key] = run_graph(pack, name, facts, variant) if time.time() < deadline else {
                "reason": "no time was left"}
    return found
