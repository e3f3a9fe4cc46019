"""A pytest plugin: one test process of a library (library_process.py)."""

import pytest

from library_process import Recorder


def _error(report):
    crash = getattr(report.longrepr, "reprcrash", None)
    return getattr(crash, "message", None) or str(report.longrepr or "")


class Events:
    def __init__(self, recorder):
        self.recorder, self.outcomes = recorder, {}

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if self.recorder.is_wanted(item.nodeid)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid):
        self.recorder.begin(nodeid)

    def pytest_runtest_logreport(self, report):
        """The first phase of a test that does not pass decides; a failure replaces a skip."""
        known = self.outcomes.get(report.nodeid, ("passed", ""))
        if report.outcome != "passed" and known[0] != "failed":
            self.outcomes[report.nodeid] = report.outcome, _error(report)

    def pytest_runtest_logfinish(self, nodeid):
        self.recorder.end(nodeid, *self.outcomes.get(nodeid, ("passed", "")))

    def pytest_collectreport(self, report):
        if report.failed:
            lines = _error(report).strip().splitlines()
            self.recorder.not_collected(report.nodeid, lines[-1] if lines else "")


def pytest_configure(config):
    recorder = Recorder()
    config.pluginmanager.register(Events(recorder))
    config.add_cleanup(recorder.close)
