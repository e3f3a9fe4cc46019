"""The measuring half of tools/gpu_run: environment, rates and networks on a GPU. Needs Python's
library and a pack's programs; PyTorch is asked in a process of its own, if it can be imported."""
import glob
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

import replay

HERE = os.path.dirname(os.path.abspath(__file__))
START_TIMEOUT_S, STEP_TIMEOUT_S, TORCH_TIMEOUT_S = 60, 120, 150
COPY_MIB, SMALL_COPY_MIB = 256, 1
MEMCHECK_S, MEMCHECK_STRIDE = 90, 97
SIMULATED = "MILLRACE_SIM_DEVICES" in os.environ


def cuda_library_folders():
    """Where Python's packages keep NVIDIA's libraries."""
    found = []
    for place in sys.path:
        found += sorted(glob.glob(os.path.join(place, "nvidia", "*", "lib")))
    return found


class Pack:
    """A folder that pack.py has written."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "pack.json"), encoding="utf-8") as file:
            self.manifest = json.load(file)
        if not os.path.exists(os.path.join(folder, "bin")):
            with tarfile.open(os.path.join(folder, "payload.tar.xz")) as payload:
                payload.extractall(folder)
        before = os.environ.get("LD_LIBRARY_PATH")
        path = [*([before] if before else []), os.path.join(folder, "lib"),
                *cuda_library_folders()]
        self.env = {**os.environ, "LD_LIBRARY_PATH": ":".join(path),
                    "GRAPH_EVAL_GPU": os.path.join(folder, "lib", "millrace", "millrace-cuda.so")}

    def program(self, name):
        return os.path.join(self.folder, "bin", name)

    def graph(self, name):
        return os.path.join(self.folder, "graphs", name + ".pb")


def output_of(command, **options):
    """What a command prints, or why it prints nothing."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=STEP_TIMEOUT_S, errors="replace", **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    return done.stdout.strip() if done.returncode == 0 else \
        f"(ended with {done.returncode}: {done.stdout.strip()[-400:]})"


# ---- a cluster of one worker ----

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

    def __init__(self, pack):
        self.pack, self.processes = pack, []
        self.worker_port, self.master_port = free_port(), free_port()
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")

    def start(self, *command):
        self.processes.append(subprocess.Popen(command, env=self.pack.env, stdout=self.log,
                                               stderr=self.log, stdin=subprocess.DEVNULL))

    def __enter__(self):
        worker = f"127.0.0.1:{self.worker_port}"
        libraries = ":".join(cuda_library_folders())
        self.start(self.pack.program("tf-worker"), "--job", "worker", "--task", "0", "--listen",
                   worker, "--gpu=require",
                   *(["--cuda-libs", libraries] if libraries else []))
        self.start(self.pack.program("tf-master"), "--listen", f"127.0.0.1:{self.master_port}",
                   "--cluster", f"worker={worker}")
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


def gpu_peak(status):
    """The most bytes of the GPU that were in use at once."""
    return max((device.get("memory_peak_bytes", 0) for device in status.get("devices", ())
                if "GPU" in device.get("name", "")), default=None)


def run_graph(pack, name, facts):
    """{step_ns, losses, peak_bytes} of a graph, or {reason}."""
    is_fetched = "network" in facts or facts.get("fetch")
    is_long = facts.get("repeats", 0) > 1
    steps = 5 if SIMULATED else 12 if is_long else 200 if is_fetched else 20
    command = [pack.program("gpu_steps"), "--graph", pack.graph(name), "--init", "init",
               "--warm", "3", "--steps", str(steps)]
    command += ["--fetch", "loss:0"] if is_fetched else []
    command += [] if facts.get("fetch") else ["--step", "step"]
    try:
        with Cluster(pack) as cluster:
            text = output_of(command + ["--target", cluster.target], env=pack.env)
            status = cluster.status()
    except (RuntimeError, OSError) as error:
        return {"reason": str(error)}
    if not text.startswith("{"):
        return {"reason": text}
    result = json.loads(text)
    return {"step_ns": statistics.median(result["step_ns"]), "losses": result["values"],
            "peak_bytes": gpu_peak(status)}


# ---- the parts of a report ----

def environment(pack):
    """What the machine is, and which libraries the worker finds."""
    facts = {"simulated": SIMULATED, "revision": pack.manifest["revision"],
             "libc": " ".join(os.confstr("CS_GNU_LIBC_VERSION").split()),
             "cores": os.cpu_count(), "python": sys.version.split()[0],
             "cuda_library_folders": cuda_library_folders()}
    query = "name,driver_version,memory.total,pci.bus_id"
    facts["nvidia_smi"] = output_of(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    try:
        with Cluster(pack) as cluster:
            status = cluster.status()
            facts["worker"] = status.get("gpu")
            facts["devices"] = output_of([pack.program("tfctl"), "devices", "--target",
                                          cluster.target], env=pack.env)
    except (RuntimeError, OSError) as error:
        facts["worker"] = str(error)
    return facts


def rates(pack):
    copy_mib = SMALL_COPY_MIB if pack.manifest["small"] else COPY_MIB
    text = output_of([pack.program("gpu_rates"), pack.graph("launch"), str(copy_mib)], env=pack.env)
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"reason": text}


def memcheck(pack):
    """A sample of the cases under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer")
    if not tool or SIMULATED:
        return {"reason": "the simulated device checks addresses itself" if SIMULATED
                else "compute-sanitizer is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        wrapper, log = os.path.join(folder, "graph_eval"), os.path.join(folder, "log")
        with open(wrapper, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec {tool} --tool memcheck --log-file {log} "
                       f"{pack.program('graph_eval')}\n")
        os.chmod(wrapper, 0o755)
        deadline, counts, failures = time.time() + MEMCHECK_S, {}, []
        evaluator = replay.Evaluator(wrapper)
        for path in sorted(glob.glob(os.path.join(pack.folder, "cases", "*.xz"))):
            for i, case in enumerate(replay.cases_of(path)):
                if i % MEMCHECK_STRIDE == 0 and time.time() < deadline:
                    outcome, difference = replay.replay_case(evaluator, case)
                    counts[outcome] = counts.get(outcome, 0) + 1
                    failures += [f"{case['name']}: {difference}"] if outcome == "differs" else []
        evaluator.stop()
        text = open(log, encoding="utf-8").read() if os.path.exists(log) else ""
    found = re.search(r"ERROR SUMMARY: (\d+) errors?", text)
    return {"cases": sum(counts.values()), "failures": failures[:20],
            "errors": int(found[1]) if found else None, "log": text[:4000]}


def beside_torch(pack):
    try:
        done = subprocess.run([sys.executable, os.path.join(HERE, "beside_torch.py"),
                               os.path.join(pack.folder, "pack.json")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=TORCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return {"reason": f"PyTorch took longer than {TORCH_TIMEOUT_S} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"reason": (done.stderr or "no output")[-400:]}


def run(folder, budget_s, wanted=None):
    """The wanted parts, by default all, within the budget: what takes longest, the differential
    cases, gets the rest."""
    deadline = time.time() + budget_s
    pack = Pack(os.path.abspath(folder))
    os.environ.update({key: pack.env[key] for key in ("LD_LIBRARY_PATH", "GRAPH_EVAL_GPU")})
    report = {"began": time.strftime("%Y-%m-%d %H:%M:%S"), "graphs": pack.manifest["graphs"],
              "small": pack.manifest["small"]}

    def part(name, make, *arguments):
        began = time.time()
        if wanted and name not in wanted:
            report[name] = {"reason": "not asked for"}
            return
        report[name] = make(*arguments)
        print(f"{name}: {time.time() - began:.1f} s", file=sys.stderr, flush=True)

    report["environment"] = environment(pack)
    part("rates", rates, pack)
    part("programs", lambda: {name: run_graph(pack, name, facts)
                              for name, facts in pack.manifest["graphs"].items()})
    part("torch", beside_torch, pack)
    part("memcheck", memcheck, pack)
    processes = 2 if SIMULATED else min(replay.PROCESSES, os.cpu_count())
    part("replay", replay.replay, pack.folder, processes, deadline)
    report["took_s"] = round(budget_s - (deadline - time.time()), 1)
    return report
