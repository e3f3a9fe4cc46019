"""One test process of a library (library_process.py) without pytest.

    python -m library_unittest FILE...
"""

import importlib.util
import os
import sys
import unittest

from library_process import Recorder


def name_of(test):
    """As pytest names it."""
    file = os.path.basename(getattr(sys.modules.get(type(test).__module__), "__file__", ""))
    return "::".join([file, type(test).__name__, getattr(test, "_testMethodName", test.id())])


class Result(unittest.TestResult):
    def __init__(self, recorder):
        super().__init__()
        self.recorder, self.outcome = recorder, None

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "passed", ""
        self.recorder.begin(name_of(test))

    def stopTest(self, test):
        super().stopTest(test)
        self.recorder.end(name_of(test), *self.outcome)

    def _fail(self, test, error):
        text = f"{error[0].__name__}: {error[1]}"
        if hasattr(test, "_testMethodName"):
            self.outcome = "failed", text
        else:
            self.recorder.not_collected(name_of(test), text)  # of a class's or a module's set-up

    def addError(self, test, error):
        self._fail(test, error)

    def addFailure(self, test, error):
        self._fail(test, error)

    def addSkip(self, test, reason):
        self.outcome = "skipped", reason

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._fail(test, error)


def _wanted(suite, recorder):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _wanted(test, recorder)
        elif recorder.is_wanted(name_of(test)):
            yield test


def run_file(path, recorder):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        recorder.not_collected(os.path.basename(path), f"{type(error).__name__}: {error}")
    else:
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        unittest.TestSuite(_wanted(suite, recorder)).run(Result(recorder))


def main(files):
    recorder = Recorder()
    for path in files:
        run_file(path, recorder)
    recorder.close()


if __name__ == "__main__":
    main(sys.argv[1:])
