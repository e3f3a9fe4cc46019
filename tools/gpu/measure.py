"""The measuring half of tools/gpu_run: environment, rates, timed graphs, memcheck and differential
cases on a GPU. Needs Python's library and a pack's programs; PyTorch is asked in processes of its
own, if it can be imported."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import programs
import replay
from pack_folder import SIMULATED, Pack, cuda_library_folders

HERE = os.path.dirname(os.path.abspath(__file__))
STEP_TIMEOUT_S, TORCH_TIMEOUT_S = 120, 150
COPY_MIB, SMALL_COPY_MIB = 256, 1
MEMCHECK_S, MEMCHECK_STRIDE = 90, 97
# Parts whose graphs are timed, in this order; PyTorch does the same work of those in BESIDE_TORCH.
TIMED = ("programs", "networks", "conv", "products", "fused")
BESIDE_TORCH = ("programs", "networks", "conv", "products")
PARTS = ("rates", *TIMED, "memcheck", "replay")


def output_of(command, **options):
    """What a command prints, or why it prints nothing."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=STEP_TIMEOUT_S, errors="replace", **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    return done.stdout.strip() if done.returncode == 0 else \
        f"(ended with {done.returncode}: {done.stdout.strip()[-400:]})"


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
        with programs.Cluster(pack) as cluster:
            status = cluster.status()
            facts["worker"] = status.get("gpu")
            facts["devices"] = output_of([pack.program("tfctl"), "devices", "--target",
                                          cluster.target], env=pack.env)
    except (RuntimeError, OSError) as error:
        facts["worker"] = str(error)
    return facts


def rates(pack):
    found = {}
    for what in (str(SMALL_COPY_MIB if pack.manifest["small"] else COPY_MIB), "replay"):
        text = output_of([pack.program("gpu_rates"), pack.graph("launch"), what], env=pack.env)
        lines = [line for line in text.splitlines() if line.startswith("{")]
        found.update(json.loads(lines[-1]) if lines else {"reason": text})
    return found


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


def beside_torch(pack, part, limit_s):
    """What PyTorch needs for the graphs of a part. It prints a line for each, so that a part which
    takes too long keeps those that have ended."""
    command = [sys.executable, os.path.join(HERE, "beside_torch.py"),
               os.path.join(pack.folder, "pack.json"), part]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=limit_s)
        output, reason = done.stdout, done.stderr.decode(errors="replace")[-400:] or "no output"
    except subprocess.TimeoutExpired as error:
        output, reason = error.stdout or b"", f"PyTorch took longer than {limit_s:.0f} s"
    found = {"reason": reason}
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("{") and line.endswith("}"):
            found.update(json.loads(line))
    return found


def time_part(pack, part, report, deadline):
    """Fills in what the graphs of a part do here, and in PyTorch."""
    report["programs"].update(programs.run_part(pack, part, deadline))
    names = [name for name, facts in pack.manifest["graphs"].items() if facts["part"] == part]
    left_s = min(TORCH_TIMEOUT_S, deadline - time.time())
    if part not in BESIDE_TORCH or left_s <= 0:
        return
    found = beside_torch(pack, part, left_s)
    report["torch"].update({name: found.get(name, {"reason": found["reason"]}) for name in names})
    report["torch_versions"] = found.get("versions")


def run(folder, budget_s, wanted=None):
    """The wanted parts, by default all, within the budget: what takes longest, the differential
    cases, gets the rest. What fails in a part costs the rows that it would have filled."""
    deadline = time.time() + budget_s
    pack = Pack(os.path.abspath(folder))
    os.environ.update({key: pack.env[key] for key in ("LD_LIBRARY_PATH", "GRAPH_EVAL_GPU")})
    not_asked = {"reason": "not asked for"}
    report = {"began": time.strftime("%Y-%m-%d %H:%M:%S"), "graphs": pack.manifest["graphs"],
              "small": pack.manifest["small"], "rates": not_asked, "memcheck": not_asked,
              "replay": not_asked, "programs": dict(not_asked), "torch": dict(not_asked)}
    processes = 2 if SIMULATED else min(replay.PROCESSES, os.cpu_count())
    filled = {"rates": lambda: rates(pack), "memcheck": lambda: memcheck(pack),
              "replay": lambda: replay.replay(pack.folder, processes, deadline)}
    report["environment"] = environment(pack)
    for part in PARTS:
        began = time.time()
        if wanted and part not in wanted:
            continue
        try:
            if part in TIMED:
                time_part(pack, part, report, deadline)
            else:
                report[part] = filled[part]()
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            report.setdefault("failures", {})[part] = repr(error)
        print(f"{part}: {time.time() - began:.1f} s", file=sys.stderr, flush=True)
    report["took_s"] = round(budget_s - (deadline - time.time()), 1)
    return report
