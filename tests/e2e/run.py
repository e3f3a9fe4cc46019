#!/usr/bin/env python3
"""End-to-end tests: the programs as their users run them. Ends with "N passed, N failed[, N
skipped]".

    .venv/bin/python tests/e2e/run.py [--long] [--all] [NAME...]      NAME: test_local,
    test_local.TestSignals, ...

The programs are in $MILLRACE_BIN, or in build/bin. With MILLRACE_E2E=sanitized and without --all a
short subset runs: what is marked with harness.sanitized_too.
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import harness  # noqa: E402


TEST_S = 300  # of one test; with --long an hour


class Result(unittest.TextTestResult):
    """Says how long each test took, and ends one that hangs."""

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)
        signal.signal(signal.SIGALRM, self.hangs)
        signal.alarm(3600 if harness.LONG else TEST_S)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    @staticmethod
    def hangs(signo, frame):
        raise AssertionError("the test hangs")

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        self.stream.writeln(f"ok ({time.monotonic() - self.started:.2f} s)")
        self.stream.flush()


def keep_sanitized(suite):
    kept = unittest.TestSuite()
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            kept.addTest(keep_sanitized(item))
        elif getattr(getattr(item, item._testMethodName, None), "runs_sanitized", False):
            kept.addTest(item)
    return kept


def start_warm_python(directory):
    """warm.py, for as long as this process lives."""
    os.environ[harness.WARM] = os.path.join(directory, "warm")
    command = [harness.PYTHON, os.path.join(HERE, "warm.py"), os.environ[harness.WARM],
               *["--impatient"] * (not harness.LONG)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL,
                            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="run what takes minutes, too")
    parser.add_argument("--all", action="store_true",
                        help="also under sanitizers what is not marked with sanitized_too")
    parser.add_argument("names", nargs="*")
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # programs inherit what nohup sets for this one
    options = parser.parse_args()
    harness.LONG = options.long
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(options.names) if options.names else loader.discover(
        HERE, "test_*.py")
    if harness.SANITIZED and not options.all:
        suite = keep_sanitized(suite)
    # a shell's background job ignores it, and what it starts would, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="millrace-e2e-") as directory, start_warm_python(
        directory) as warm:
        result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2, descriptions=False,
                                         resultclass=Result).run(suite)
        warm.kill()
    n_failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    n_skipped = len(result.skipped)
    n_passed = result.testsRun - n_failed - n_skipped
    print(f"{max(n_passed, 0)} passed, {n_failed} failed"
          + (f", {n_skipped} skipped" if n_skipped else ""))
    return 1 if n_failed or n_passed <= 0 else 0


if __name__ == "__main__":
    sys.exit(main())
