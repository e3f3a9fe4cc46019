"""Connects every session of a library's test process to the cluster, and counts its steps.

Whoever makes the session (Session, InteractiveSession, TestCase.session, MonitoredSession, Keras),
its base is TensorFlow's BaseSession, which is changed here. A session that brings a target of its
own keeps it, and its runs are not counted. On the side of TensorFlow in process sessions are only
counted.
"""

import re
import urllib.request

import tensorflow as tf
from tensorflow.python.client import session as client

RUN_TIMEOUT_MS = 60000


class StepCounter:
    """Counts the steps that this process ran, and on a cluster those that the master says ended.

    Only the master can prove that a step reached it, and only the client knows its own steps from
    those that serve Python functions. Therefore the smaller number of both counts.
    """

    def __init__(self, admin):
        self.admin, self.n_runs = admin, 0

    def now(self):
        """What steps_since needs later."""
        return self.n_runs, self._n_ended()

    def steps_since(self, earlier):
        n_runs = self.n_runs - earlier[0]
        return min(n_runs, self._n_ended() - earlier[1]) if self.admin and n_runs else n_runs

    def _n_ended(self):
        if not self.admin:
            return 0
        with urllib.request.urlopen(self.admin + "/metrics", timeout=60) as page:
            return int(re.search(rb"^millrace_steps_total (\d+)", page.read(), re.M).group(1))


def _isolated(config):
    """A session in process has variables of its own, so its twin on a cluster gets them, too."""
    changed = tf.compat.v1.ConfigProto()
    if config is not None:
        changed.CopyFrom(config)
    changed.isolate_session_state = True
    if not changed.operation_timeout_in_ms:
        changed.operation_timeout_in_ms = RUN_TIMEOUT_MS
    return changed


def redirect_sessions(target, counter):
    """Makes sessions without a target use `target`, if it is not empty, and counts their runs."""
    plain_init = client.BaseSession.__init__

    def init(self, own_target="", graph=None, config=None):
        self.is_counted = not own_target
        if target and not own_target:
            own_target, config = target, _isolated(config)
        plain_init(self, own_target, graph, config)

    def counted(method, session_of):
        def count_and_call(self, *args, **kwargs):
            counter.n_runs += getattr(session_of(self), "is_counted", False)
            return method(self, *args, **kwargs)

        return count_and_call

    client.BaseSession.__init__ = init
    for name in ("_call_tf_sessionrun", "_call_tf_sessionprun"):
        setattr(client.BaseSession, name,
                counted(getattr(client.BaseSession, name), lambda session: session))
    made = client.BaseSession._Callable
    made.__call__ = counted(made.__call__, lambda callable: callable._session)


def stay_in_graph_mode():
    """Switches TensorFlow 2's behaviour off, and the switches that would bring it back, under
    each of their names."""
    tf1 = tf.compat.v1
    tf1.disable_v2_behavior()
    homes = [tf, tf1]
    for first in ("v1", "v2"):
        for second in ("v1", "v2"):
            inner = getattr(getattr(tf.compat, first, None), "compat", None)
            homes.append(getattr(inner, second, None))
    for home in homes:
        for name in ("enable_eager_execution", "enable_v2_behavior"):
            if home is not None and hasattr(home, name):
                setattr(home, name, lambda *args, **kwargs: None)
