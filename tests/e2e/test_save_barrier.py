"""Saves that ask for a consistent checkpoint: all shards of a checkpoint are of one boundary
between steps."""
import json
import os

import harness
from harness import ROOT, WARM_PYTHON, TestCase, sanitized_too

PROGRAMS = os.path.join(ROOT, "tests", "e2e", "save_barrier_programs.py")


class CutCase(TestCase):
    def run_on_cluster(self, name, *args, flags=()):
        directory = self.path("checkpoints")
        os.makedirs(directory, exist_ok=True)
        more = [word for flag in flags for word in ("--master-flag", flag)]
        code, out, err = self.run_program("tfctl", "local", "--ps", "2", "--workers", "2",
                                          "--quiet", "--worker-flag",
                                          f"--file-root={self.directory}",
                                          *more, "--", "sh", "-c",
                                          f'exec "{WARM_PYTHON}" "{PROGRAMS}" {name} '
                                          f'"$MILLRACE_TARGET" "{directory}" {" ".join(args)}',
                                          timeout_s=600)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(out.splitlines()[-1])

    def check_pairs(self, asks, n_saves, flags=(), is_torn=False):
        result = self.run_on_cluster("pairs", asks, str(n_saves), flags=flags)
        print(result, end=" ")
        self.assertTrue(result["equal_at_end"], result)
        self.assertEqual(result["torn"] > 0, is_torn, result)


class TestCuts(CutCase):
    @sanitized_too
    def test_asked_for_by_an_attr(self):
        self.check_pairs("attr", 200 if not harness.SANITIZED else 20)

    def test_asked_for_by_the_operator(self):
        self.check_pairs("flag", 200 if harness.LONG else 50, flags=["--consistent-saves"])

    def test_a_node_may_say_no(self):
        """Without a cut such checkpoints are torn: what the others prove is something."""
        self.check_pairs("not", 200 if harness.LONG else 100, flags=["--consistent-saves"],
                         is_torn=True)

    def test_a_step_that_waits_in_a_queue(self):
        result = self.run_on_cluster("blocked", flags=["--save-wait=500ms"])
        self.assertIn("waited 0.5 s for a consistent checkpoint", result["error"])
        self.assertIn("/job:ps/replica:0/task:0", result["error"])
        self.assertEqual(result["saved_after"], 4)
