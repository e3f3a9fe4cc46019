"""Random session scripts: two clients that extend their graphs, run, feed, run partially, make
callables, fail, close and reset, in an order that a seed decides. A script records the result of
each call; it runs against TensorFlow's own servers and against ours.

    scripts(first, n) yields (name, script) as sessions.py has it.
"""

import random

from programs import TASKS, attempt, tf, tf1

N_CLIENTS = 2
N_ACTIONS = 25


class _Client:
    """A session with a growing graph. What it may fetch is in `tensors`; variables are shared
    between clients by name."""

    def __init__(self, target, rng):
        self.rng, self.target = rng, target
        self.graph, self.n_made = tf.Graph(), 0
        self.session, self.partial = None, None
        with self.graph.as_default():
            self.x = tf1.placeholder(tf.float32, [], name="x")
            self.y = tf1.placeholder(tf.float32, [], name="y")
            with tf.device(TASKS[0]):
                self.v = tf1.get_variable("v", initializer=1.0, use_resource=True)
            self.tensors = [self.x + self.y]
            self.open()

    def open(self):
        self.session = tf1.Session(self.target, graph=self.graph,
                                   config=tf1.ConfigProto(operation_timeout_in_ms=20000))
        self.partial = None

    def extend(self):
        with self.graph.as_default(), tf.device(self.rng.choice(TASKS)):
            a = self.rng.choice(self.tensors)
            kind = self.rng.randrange(5)
            if kind == 0:
                made = a * 2.0
            elif kind == 1:
                made = a + self.v
            elif kind == 2:
                made = tf.where(a > 3.0, a - 1.0, a)
            elif kind == 3:
                made = tf.cond(a > 0.0, lambda: a + 1.0, lambda: -a)
            else:
                # fails unless y is 2
                made = tf.reduce_sum(tf.reshape([a, a], tf.cast([self.y], tf.int32)))
            self.n_made += 1
            self.tensors.append(made)
        return "extended", None

    def feeds(self):
        return {self.x: self.rng.choice([0.5, -1.0, 3.0]), self.y: self.rng.choice([2.0, 2.0, 1.0])}

    def run(self):
        fetch = self.rng.choice(self.tensors)
        return "run", attempt(self.session.run, fetch, self.feeds())

    def run_without_a_feed(self):
        return "run without a feed", attempt(self.session.run, self.tensors[0], {self.x: 1.0})

    def initialize(self):
        return "initialize", attempt(self.session.run, self.v.initializer)

    def update(self):
        with self.graph.as_default():
            self.n_made += 1
            return "update", attempt(self.session.run, self.v.assign_add(1.0).op)

    def read(self):
        return "read", attempt(self.session.run, self.v.value())

    def setup(self):
        self.partial = None
        outcome = attempt(self.session.partial_run_setup, [self.tensors[0], self.tensors[-1]],
                          [self.x, self.y])
        if not outcome.code:
            self.partial, outcome.value = outcome.value, "a handle"
        return "setup", outcome

    def partly(self):
        if self.partial is None:
            return "nothing set up", None
        feeds = {k: v for k, v in self.feeds().items() if self.rng.random() < 0.6}
        fetches = [t for t in {self.tensors[0], self.tensors[-1]} if self.rng.random() < 0.5]
        fetches.sort(key=lambda t: t.name)
        return "partial run", attempt(self.session.partial_run, self.partial, fetches, feeds)

    def call(self):
        call = attempt(self.session.make_callable, self.rng.choice(self.tensors), [self.x, self.y])
        if call.code:
            return "make callable", call
        return "call", attempt(call.value, *self.feeds().values())

    def reopen(self):
        self.session.close()
        self.open()
        return "reopened", None

    def use_closed(self):
        old = self.session
        old.close()
        self.open()
        return "closed", attempt(old.run, self.tensors[0], self.feeds())


ACTIONS = {"run": 8, "extend": 5, "update": 3, "read": 3, "initialize": 2, "setup": 2, "partly": 5,
           "call": 2, "run_without_a_feed": 1, "reopen": 1, "use_closed": 1}


def _script(seed):
    def script(target, note):
        rng = random.Random(seed)
        clients = [_Client(target, rng) for _ in range(N_CLIENTS)]
        for client in clients[:1]:
            note("first", client.initialize()[1])
        for k in range(N_ACTIONS):
            client = rng.randrange(N_CLIENTS)
            if rng.random() < 0.03:
                tf1.Session.reset(target)
                note(f"{k} after reset",
                     attempt(clients[client].session.run, clients[client].tensors[0],
                             clients[client].feeds()))
                for c in clients:
                    c.open()
                clients[0].initialize()
                continue
            action = rng.choices(list(ACTIONS), ACTIONS.values())[0]
            what, outcome = getattr(clients[client], action)()
            note(f"{k} client {client} {what}", outcome)
        for client in clients:
            client.session.close()

    return script


def scripts(first, n):
    for seed in range(first, first + n):
        yield f"random_session/{seed}", _script(seed)
