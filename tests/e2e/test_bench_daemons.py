"""The daemons of a benchmark end with it, however it ends (bench/daemons.py)."""
import os
import subprocess
import sys
import tempfile
import unittest

import harness

BENCH = os.path.join(harness.ROOT, "bench")
TIMEOUT_S = 60


def run(program, **env):
    """Runs Python code in bench/. Daemons hold the ends of its pipes, so this returns when they
    have ended, or raises."""
    return subprocess.run([sys.executable, "-c", program], cwd=BENCH, text=True, timeout=TIMEOUT_S,
                          capture_output=True,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env})


class BenchDaemons(unittest.TestCase):
    def test_tasks_end_where_the_master_does_not_start(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(os.path.abspath(harness.BIN), "tf-worker"),
                       os.path.join(folder, "tf-worker"))
            os.symlink("/bin/false", os.path.join(folder, "tf-master"))
            done = run("import compare; compare.MillraceCluster()", MILLRACE_BIN=folder)
        self.assertIn("master ended with 1", done.stderr)

    def test_a_cluster_ends_with_a_benchmark_that_fails_or_is_killed(self):
        for how in ("raise ValueError", "os._exit(3)", "os.kill(os.getpid(), 9)"):
            with self.subTest(how):
                done = run("import compare, os; cluster = compare.MillraceCluster()\n"
                           f"print(len(cluster.processes), flush=True); {how}",
                           MILLRACE_BIN=os.path.abspath(harness.BIN))
                self.assertEqual(done.stdout.strip(), "3", done.stderr)


if __name__ == "__main__":
    unittest.main()
