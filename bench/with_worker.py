#!/usr/bin/env python3
"""What does a cluster in one process (tf-master --with-worker) save, beside a master and a worker?

    bench/with_worker.py [--rounds N] [--steps N] [--bin DIR] [--json FILE]

Both clusters run at once on loopback, without GPUs. A C client (c_noop) times no-op steps on each
in alternating rounds; its figures are medians of the rounds. "cpu" is the processor time of the
daemons for one step, "memory" their resident memory afterwards, and "ready" the time from the start
until a step has run."""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

from daemons import start as start_process

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORKER = "worker=127.0.0.1:{}"
TICKS = os.sysconf("SC_CLK_TCK")
FIGURES = ("ready_ms", "median_us", "p99_us", "cpu_us", "memory_mb")


class Daemons:
    """One of the two clusters."""

    def __init__(self, programs, has_two):
        self.programs, self.processes = programs, []
        begin = time.monotonic()
        try:
            if has_two:
                port = self._start("tf-worker", "--job", "worker", "--task", "0", "--gpu", "off")
                flags = ["--cluster", WORKER.format(port)]
            else:
                flags = ["--with-worker", "--gpu", "off"]
            self.target = f"grpc://127.0.0.1:{self._start('tf-master', *flags)}"
            self.steps(1)
        except BaseException:
            self.stop()
            raise
        self.ready_ms = (time.monotonic() - begin) * 1e3

    def _start(self, program, *flags):
        """Starts a daemon. Returns its port once it listens."""
        process = start_process(
            [os.path.join(self.programs, program), "--listen", "127.0.0.1:0", *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        lines = []
        for line in process.stderr:
            lines.append(line)
            found = re.search(r" serving .*, port (\d+), admin", line)
            if found:
                return int(found.group(1))
        raise RuntimeError(f"{program} did not start: {''.join(lines)}")

    def steps(self, n):
        """Runs n no-op steps. Returns (median, 99th percentile) in µs."""
        noop = os.path.join(self.programs, "..", "bench", "c_noop")
        done = subprocess.run([noop, "--target", self.target, "--steps", str(n)], check=True,
                              stdout=subprocess.PIPE, text=True)
        found = re.search(r"median ([\d.]+) µs.*p99 ([\d.]+) µs", done.stdout)
        return float(found.group(1)), float(found.group(2))

    def cpu_s(self):
        total = 0
        for process in self.processes:
            with open(f"/proc/{process.pid}/stat", encoding="ascii") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])  # utime, stime
        return total / TICKS

    def memory_mb(self):
        total = 0
        for process in self.processes:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as f:
                total += int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1))
        return total / 1e3

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.communicate()


def measure(daemons, n):
    before = daemons.cpu_s()
    median, p99 = daemons.steps(n)
    return {"median_us": median, "p99_us": p99, "cpu_us": (daemons.cpu_s() - before) / n * 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5000, help="steps of a round")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"), metavar="DIR")
    parser.add_argument("--json", metavar="FILE", help="write the figures")
    arguments = parser.parse_args()
    clusters, found = {}, {}
    try:
        for name, has_two in (("two processes", True), ("--with-worker", False)):
            clusters[name] = Daemons(arguments.bin, has_two)
        for _ in range(arguments.rounds):
            for name, daemons in clusters.items():
                found.setdefault(name, []).append(measure(daemons, arguments.steps))
        report = {name: {"ready_ms": daemons.ready_ms, "memory_mb": daemons.memory_mb(),
                         **{key: statistics.median(one[key] for one in found[name])
                            for key in ("median_us", "p99_us", "cpu_us")}}
                  for name, daemons in clusters.items()}
    finally:
        for daemons in clusters.values():
            daemons.stop()
    print(f"{'':16}" + "".join(f"{figure:>12}" for figure in FIGURES))
    for name, row in report.items():
        print(f"{name:16}" + "".join(f"{row[figure]:12.1f}" for figure in FIGURES))
    two, one = report.values()
    print(f"{'saved':16}" + "".join(f"{two[figure] - one[figure]:12.1f}" for figure in FIGURES))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
