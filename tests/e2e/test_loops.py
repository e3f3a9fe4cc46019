"""Loops of millions of iterations take the memory of a few."""
import os
import subprocess

import harness
from fault_case import MIB, FaultCase
from harness import ROOT, SANITIZED, WARM_PYTHON, LineReader

PROGRAM = os.path.join(ROOT, "tests", "e2e", "loop_programs.py")
FEW, MANY = 2_000, 2_000_000 if harness.LONG else 200_000 if SANITIZED else 1_000_000
COMES_TO = {"scalar": lambda n: sum(i % 7 for i in range(n)), "vector": lambda n: float(n),
            "nested": lambda n: n // 10 * 10, "across": lambda n: n // 100}
GROWS_BYTES = 4 * MIB


class TestLoops(FaultCase):
    n_workers = 1

    def resident_bytes(self):
        """By daemon."""
        found = {}
        for daemon in self.cluster.daemons:
            with open(f"/proc/{daemon.process.pid}/statm") as statm:
                found[daemon.name] = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
        return found

    def test_constant_memory(self):
        process = self.popen([WARM_PYTHON, PROGRAM, self.cluster.target],
                             {"TF_CPP_MIN_LOG_LEVEL": 3}, stdin=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        lines = LineReader(process.stdout)

        def run(name, n):
            process.stdin.write(f"{name} {n}\n".encode())
            process.stdin.flush()
            self.assertEqual(float(lines.line()), COMES_TO[name.removesuffix("_function")](n), name)

        names = lines.line().split()
        self.assertEqual(len(names), 2 * len(COMES_TO))
        for name in names:
            run(name, FEW)
        before = self.resident_bytes()
        for name in names:
            run(name, MANY)
            after = self.resident_bytes()
            for daemon, size in before.items():
                self.assertLess(after[daemon], size + GROWS_BYTES * (10 if SANITIZED else 1),
                                f"{daemon} after {name}")
        process.stdin.close()
        self.assertEqual(process.wait(60), 0)
        self.cluster.check()
