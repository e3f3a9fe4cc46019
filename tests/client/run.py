#!/usr/bin/env python3
"""Runs the tests of the C client and ends with "N passed, N failed[, N skipped]".

    tests/client/run.py [NAME...]     all, or those whose name contains a NAME

With MILLRACE_SERVER=tensorflow in the environment the remote sessions are at TensorFlow's own
servers, not at ours; what only ours can do is skipped. A test that lasts five minutes hangs: the
run ends there, and says where the threads are and what the cluster is doing.
"""
import faulthandler
import os
import sys
import threading
import unittest

import local_cluster

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(os.path.dirname(os.path.dirname(HERE)), ".venv", "bin", "python")
LIMIT_S = 300


def end_hung(test):
    print(f"\n*** {test.id()} hangs", flush=True)
    faulthandler.dump_traceback(sys.stdout)
    print(local_cluster.status(), flush=True)
    os._exit(1)


class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        self.alarm = threading.Timer(LIMIT_S, end_hung, [test])
        self.alarm.daemon = True
        self.alarm.start()

    def stopTest(self, test):
        self.alarm.cancel()
        super().stopTest(test)


def tests(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests(item)
        else:
            yield item


def main():
    if os.path.exists(PYTHON) and sys.prefix == sys.base_prefix:
        os.execv(PYTHON, [PYTHON, os.path.abspath(__file__), *sys.argv[1:]])
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    found = unittest.defaultTestLoader.discover(HERE, "test_*.py")
    suite = unittest.TestSuite(t for t in tests(found)
                               if not names or any(name in t.id() for name in names))
    result = unittest.TextTestRunner(sys.stdout, resultclass=Result).run(suite)
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    passed = result.testsRun - failed - skipped
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
