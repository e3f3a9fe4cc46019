"""TensorFlow's debug servers (grpc:// watches) on a cluster: tensors, gates, servers that fail."""
import os
import subprocess

from harness import ROOT, WARM_PYTHON, TestCase, program

PROGRAM = os.path.join(ROOT, "tests", "e2e", "debug_server_programs.py")
VALUE = "DebugIdentity"


class TestDebugServers(TestCase):
    def rows(self, name):
        """What the program prints, by the words before the colons."""
        process = self.popen(
            [program("tfctl"), "local", "--ps", "1", "--workers", "1", "--quiet", "--",
             WARM_PYTHON, PROGRAM, name], env={"TF_CPP_MIN_LOG_LEVEL": 3},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 0, f"{out.decode()}\n{err.decode()}")
        return dict(line.split(": ", 1) for line in out.decode().splitlines() if ": " in line)

    def test_a_server_gets_the_tensors_of_all_tasks(self):
        rows = self.rows("dumps")
        self.assertEqual(rows["nan"], "[[0.0, nan], [0.0, nan]]")
        self.assertEqual(rows["ps"], "[[1.0, -1.0], [1.0, -1.0]]")
        self.assertEqual(rows["turns"], "[0, 1, 2, 3, 0, 1, 2, 3]")
        self.assertEqual(rows["graphs"], "2 True True")
        self.assertEqual(rows["metadata"], "[[['x:0'], 0, ''], [['x:0'], 1, '']]")
        self.assertEqual(rows["fetches"], "True")

    def test_large_tensors_are_sent_in_chunks(self):
        rows = self.rows("large")
        self.assertEqual(rows["same"], "3000001 3000 (0, 3)")
        self.assertEqual(rows["path"], "/some/path")

    def test_a_server_opens_and_closes_gates(self):
        rows = self.rows("gates")
        both = [f"first_nan:0:{VALUE}", f"v:0:{VALUE}"]
        self.assertEqual(rows["closed"], "[]")
        self.assertEqual(rows["open"], str(both))
        self.assertEqual(rows["still"], str(both))
        self.assertEqual(rows["one"], str(both[:1]))
        self.assertEqual(rows["breakpoint"], str([both[0], f"loss:0:{VALUE}"]))
        self.assertEqual(rows["breakpoints"], str([("loss", 0, VALUE)]))
        self.assertEqual(rows["watches"], "True True")
        self.assertEqual(rows["line"], "True")

    def test_a_server_toggles_a_gate(self):
        rows = self.rows("toggles")
        seen = str([f"first_nan:0:{VALUE}"])
        self.assertEqual([rows[str(i)] for i in range(4)], [seen, "[]", seen, "[]"])

    def test_servers_that_fail(self):
        rows = self.rows("failures")
        self.assertRegex(rows["away"], r"^UnavailableError .*debug server .*localhost:\d+ within "
                                       r"\d+ ms: Connection refused")
        self.assertRegex(rows["silent"], r"^DeadlineExceededError .*debug server localhost:\d+ "
                                         r"does not speak HTTP/2")
        self.assertRegex(rows["silent cancelled"], "^DeadlineExceededError")
        self.assertRegex(rows["waiting"], "^DeadlineExceededError")
        self.assertRegex(rows["dying"], r"debug server localhost:\d+: .*SendEvents")
        self.assertRegex(rows["address"], "^InvalidArgumentError .*nowhere")
        self.assertRegex(rows["name"], "^UnavailableError .*no-such-host.invalid:1")
        self.assertEqual(rows["after"], "ran")
