#!/usr/bin/env python3
"""run_library.py on a tiny library, whose tests are equal, differ, run no step, hang, or fail.

The last line is "N passed, N failed, N skipped". Where this Python has no pytest, the processes of
the library run under unittest.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "library"))

from library_errors import error_line  # noqa: E402

HEAD = """
import os
import sys
import threading
import unittest
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
IS_OURS = bool(os.environ["LIBRARY_TARGET"])

def run_a_step():
    with tf.Graph().as_default(), tf1.Session() as session:
        return session.run(tf.constant(1) + 2)
"""

LIBRARY = {
    "sessions_test.py": """
    class Sessions(tf.test.TestCase):
        def test_interactive(self):
            with tf.Graph().as_default():
                session = tf1.InteractiveSession()
                self.assertEqual((tf.constant(1) + 2).eval(), 3)
                session.close()
        def test_of_the_test_case(self):
            with tf.Graph().as_default(), self.session():
                self.assertEqual(self.evaluate(tf.constant(1) + 2), 3)
        def test_monitored(self):
            with tf.Graph().as_default():
                tf1.train.create_global_step()
                with tf1.train.MonitoredSession() as session:
                    self.assertEqual(session.run("global_step:0"), 0)
        def test_callable(self):
            with tf.Graph().as_default(), tf1.Session() as session:
                self.assertEqual(session.make_callable(tf.constant(1) + 2)(), 3)
        def test_job_localhost(self):
            with tf.Graph().as_default(), tf.device("/job:localhost/task:0/cpu:0"):
                with tf1.Session() as session:
                    self.assertEqual(session.run(tf.constant(1) + 2), 3)
        def test_python_function(self):
            with tf.Graph().as_default(), tf1.Session() as session:
                self.assertEqual(session.run(tf.numpy_function(np.negative, [3], tf.int32)), -3)
        def test_no_eager_mode(self):
            tf1.compat.v1.enable_eager_execution()
            tf1.compat.v1.enable_v2_behavior()
            self.assertFalse(tf.executing_eagerly())
            run_a_step()
    """,
    "different_test.py": """
    class Different(unittest.TestCase):
        def test_fails_on_ours(self):
            run_a_step()
            self.assertFalse(IS_OURS)
        def test_other_error(self):
            run_a_step()
            raise ValueError("ours" if IS_OURS else "theirs")
        def test_same_error(self):
            run_a_step()
            raise ValueError("the same")
    """,
    "evidence_test.py": """
    class Evidence(unittest.TestCase):
        def test_no_step(self):
            pass
        def test_own_target(self):
            server = tf1.train.Server.create_local_server()
            with tf.Graph().as_default(), tf1.Session(server.target) as session:
                session.run(tf.constant(1) + 2)
    """,
    "stub_test.py": """
    import not_there
    class Stubbed(unittest.TestCase):
        def test_uses_it(self):
            run_a_step()
            not_there.thing(1)
    """,
    "broken_test.py": "import not_there_either\n",
    "hangs_test.py": """
    class Hangs(unittest.TestCase):
        def test_1_hangs(self):
            if IS_OURS:
                threading.Event().wait()
        def test_2_crashes(self):
            if IS_OURS:
                os._exit(3)
        def test_3_is_equal(self):
            run_a_step()
    """,
}


def write_library(folder):
    for name, text in LIBRARY.items():
        with open(os.path.join(folder, name), "w") as file:
            file.write(HEAD + textwrap.dedent(text))


def run_tiny(names, *options):
    """Returns the exit status and the output of run_library.py on files of the library."""
    with tempfile.TemporaryDirectory(prefix="tiny-") as folder:
        write_library(folder)
        done = subprocess.run([sys.executable, os.path.join(HERE, "run_library.py"), "--python",
                               sys.executable, *options,
                               *(os.path.join(folder, name) for name in names)],
                              stdout=subprocess.PIPE)
    return done.returncode, done.stdout.decode()


def part_of(output, name):
    """What is said of a test: its line and the indented lines behind it."""
    lines = output.splitlines()
    for index, line in enumerate(lines):
        if name in line:
            return "\n".join(lines[index:index + 3])
    return ""


class TestTogether(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.status, cls.output = run_tiny(
            ["sessions_test.py", "different_test.py", "evidence_test.py", "stub_test.py",
             "broken_test.py"], "--together", "--mode", "graph", "--stubs", "not_there")

    def test_every_kind_of_session_reaches_the_cluster(self):
        self.assertIn("sessions_test.py: 7 tests, evidence 7", self.output)

    def test_other_outcome_differs(self):
        self.assertRegex(part_of(self.output, "test_fails_on_ours"),
                         r"^DIFFERS .*\n +TensorFlow +passed.*\n +Millrace +failed")

    def test_other_error_differs(self):
        self.assertRegex(part_of(self.output, "test_other_error"),
                         r"^DIFFERS .*\n.*failed +ValueError: theirs\n.*ValueError: ours$")

    def test_same_error_is_alike(self):
        self.assertRegex(self.output, r"alike .*test_same_error: failed +ValueError: the same\n")

    def test_no_step_on_the_cluster_is_no_evidence(self):
        self.assertIn("evidence_test.py: 2 tests, evidence 0\nNO EVIDENCE evidence_test.py",
                      self.output)

    def test_stub_is_no_evidence(self):
        self.assertIn("NO EVIDENCE stub_test.py", self.output)

    def test_file_that_does_not_load(self):
        self.assertIn("No module named 'not_there_either'",
                      part_of(self.output, "NO EVIDENCE broken"))

    def test_sums(self):
        self.assertEqual(self.status, 1)
        self.assertIn("| 14 | 11 | 7 | 1 | 2 | 3 | 1 |\n8 passed, 2 failed, 4 skipped\n",
                      self.output)


class TestHangs(unittest.TestCase):
    def test_hang_and_crash_differ_and_the_rest_runs(self):
        status, output = run_tiny(["hangs_test.py"], "--timeout", "5")
        self.assertEqual(status, 1)
        self.assertRegex(part_of(output, "test_1_hangs"), r"DIFFERS .*\n.*passed.*\n.*hangs")
        self.assertRegex(part_of(output, "test_2_crashes"), r"DIFFERS .*\n.*passed.*\n.*crashes")
        self.assertIn("1 passed, 2 failed, 0 skipped\n", output)


class TestStatus(unittest.TestCase):
    def test_nothing_but_no_evidence_is_a_failure(self):
        status, output = run_tiny(["evidence_test.py"], "--test", "no_step")
        self.assertEqual(status, 1)
        self.assertTrue(output.endswith("0 passed, 0 failed, 1 skipped\n"))


class TestErrorLine(unittest.TestCase):
    def check(self, text, line):
        self.assertEqual(error_line(text), line)

    def test_where_an_error_is_from_does_not_count(self):
        self.check("a.b.InvalidArgumentError: From /job:localhost/replica:0/task:0:\nbad x",
                   "InvalidArgumentError: bad x")
        self.check("InvalidArgumentError: 2 root error(s) found.\n  (0) Invalid argument: bad x",
                   "InvalidArgumentError: bad x")
        self.check("a.b.InvalidArgumentError: bad x\nmore", "InvalidArgumentError: bad x")

    def test_line_behind_an_empty_one(self):
        self.check("AssertionError: \nNot equal", "AssertionError: Not equal")

    def test_addresses_and_folders_do_not_count(self):
        self.check("at 0x7f12, /tmp/abc/d", "at 0x, /tmp")

    def test_no_text(self):
        self.check("", "")


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(sys.stdout).run(suite)
    n_bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - n_bad - len(result.skipped)} passed, {n_bad} failed, "
          f"{len(result.skipped)} skipped")
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
