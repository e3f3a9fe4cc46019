"""One test process of a library, on one side: what its drivers (library_plugin.py with pytest,
library_unittest.py without) share. run_library.py starts it and says in the environment:

    LIBRARY_EVENTS   the file that gets a line of JSON for each event, at once, so that a test
                     that never ends is known: {"begun": TEST}, or {"ended": TEST, "outcome":
                     "passed", "steps": 3, "stubbed": false, "error": ""}
    LIBRARY_SKIP     a JSON list of tests that are not run
    LIBRARY_TEST     if not empty, only tests with this text in their name are run
    LIBRARY_MODE     "" as the library's process is; "graph" without TensorFlow 2's behaviour;
                     "tf1" where, in addition, `tensorflow` is TensorFlow 1's API
    LIBRARY_STUBS    modules that need not exist, joined by commas
    LIBRARY_TARGET   the cluster, or empty for TensorFlow in process
    LIBRARY_ADMIN    the address of the master's admin pages
"""

import json
import os
import random
import sys

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import numpy as np  # noqa: E402

import library_names  # noqa: E402
import library_sessions  # noqa: E402
from library_errors import error_line  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))


class Recorder:
    """Prepares this process, then tells what each test did."""

    def __init__(self):
        env = os.environ
        self.events, self.text = env["LIBRARY_EVENTS"], env.get("LIBRARY_TEST", "")
        self.skip = set(json.loads(env.get("LIBRARY_SKIP", "[]")))
        self.counter = library_sessions.StepCounter(env.get("LIBRARY_ADMIN", ""))
        self.before, self.served = {}, None
        target, mode = env.get("LIBRARY_TARGET", ""), env.get("LIBRARY_MODE", "")
        library_names.add_stubs([name for name in env.get("LIBRARY_STUBS", "").split(",") if name])
        library_names.restore_names_of_numpy_and_python()
        if mode:
            library_sessions.stay_in_graph_mode()
        if mode == "tf1":
            library_names.restore_names_of_tensorflow()
        self._parse_no_flags()
        library_sessions.redirect_sessions(target, self.counter)
        if target:
            self._serve_python_functions(target)

    def _parse_no_flags(self):
        """TensorFlow's TestCase reads flags, which its own test program would have parsed."""
        from absl import flags
        flags.FLAGS(["library"], known_only=True)

    def _serve_python_functions(self, target):
        sys.path.append(os.path.join(ROOT, "client", "python"))
        import millrace
        self.served = millrace.py_functions(target)
        self.served.__enter__()

    def close(self):
        if self.served:
            self.served.__exit__(None, None, None)

    def _note(self, **event):
        with open(self.events, "a") as events:
            events.write(json.dumps(event) + "\n")

    def is_wanted(self, name):
        return name not in self.skip and self.text in name

    def begin(self, name):
        random.seed(0)
        np.random.seed(0)
        self.before[name] = self.counter.now(), library_names.Stub.n_uses
        self._note(begun=name)

    def end(self, name, outcome, error=""):
        before, n_uses = self.before.pop(name)
        self._note(ended=name, outcome=outcome, steps=self.counter.steps_since(before),
                   stubbed=library_names.Stub.n_uses > n_uses, error=error_line(error))

    def not_collected(self, name, error):
        """A file, or a part of one, whose tests are not known."""
        self._note(ended=name, outcome="not collected", steps=0, stubbed=False,
                   error=error_line(error))
