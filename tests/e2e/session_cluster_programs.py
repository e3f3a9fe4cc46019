"""A TensorFlow client whose sessions bring clusters of their own (ConfigProto.cluster_def): what
test_session_clusters.py runs. It reads a command in JSON from each line of stdin, and answers with
a line of JSON: {"ok": ...}, or {"error": the class, "message": ...}.
"""
import json
import os
import sys
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf2  # noqa: E402

tf = tf2.compat.v1
tf.disable_eager_execution()


def cluster_def(jobs):
    """From [[job, {index: address}], ...]; a job may occur twice."""
    made = tf2.train.ClusterDef()
    for name, tasks in jobs:
        job = made.job.add()
        job.name = name
        for index, address in tasks.items():
            job.tasks[int(index)] = address
    return made


class Session:
    """A variable of `n` floats at `home`, and values that travel from there over `via` and back."""

    def __init__(self, target, jobs=(), home=None, via=(), n=1, timeout_ms=60000, filters=()):
        self.graph = tf.Graph()
        with self.graph.as_default():
            with tf.device(home):
                self.variable = tf.get_variable("v", initializer=np.zeros(n, np.float32),
                                                use_resource=False)
                self.bump = self.variable.assign_add(tf.ones([n]))
                value = tf.identity(self.variable)
            for device in via:
                with tf.device(device):
                    value = value * 2.0 + tf.cast(tf.size(value) > 0, tf.float32)
            with tf.device(home):
                self.around = tf.reduce_mean(value)
                self.queue = tf.FIFOQueue(1, tf.float32, shapes=[[]], shared_name="q")
                blocked = self.queue.dequeue()
            with tf.device(via[-1] if via else home):
                self.block = blocked + self.around
        config = tf.ConfigProto(cluster_def=cluster_def(jobs), device_filters=filters,
                                operation_timeout_in_ms=timeout_ms)
        self.session = tf.Session(target, graph=self.graph, config=config)

    def do(self, what, times=1):
        run = self.session.run
        if what == "devices":
            return sorted(device.name for device in self.session.list_devices())
        if what == "close":
            return self.session.close()
        if what == "init":
            return run(self.variable.initializer)
        got = None
        for _ in range(times):
            got = run({"bump": self.bump, "around": self.around, "block": self.block,
                       "read": self.variable}[what])
        return float(np.mean(got))

    def traced(self):
        """Which devices a traced step names."""
        metadata = tf.RunMetadata()
        self.session.run(self.around, options=tf.RunOptions(trace_level=3), run_metadata=metadata)
        return sorted({stats.device for stats in metadata.step_stats.dev_stats})


def answer(function, *args, **kwargs):
    try:
        return {"ok": function(*args, **kwargs)}
    except Exception as error:  # the test compares it
        return {"error": type(error).__name__, "message": str(error)}


def together(sessions, what, times):
    """The same in several sessions at once."""
    answers = {}
    threads = [threading.Thread(target=lambda n=n, s=s: answers.update(
        {n: answer(s.do, what, times)})) for n, s in sessions.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def oracle():
    """TensorFlow's servers, for the same wrong inputs: two clusters of one job."""
    import socket
    ports = []
    sockets = [socket.socket() for _ in range(3)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
        ports.append(f"127.0.0.1:{s.getsockname()[1]}")
    for s in sockets:
        s.close()
    servers = [tf2.distribute.Server({"worker": ports[:2]}, "worker", i) for i in range(2)]
    servers.append(tf2.distribute.Server({"worker": ports[2:]}, "worker", 0))
    oracle.servers = servers
    return ports


def main():
    sessions = {}
    print(json.dumps({"ok": "here"}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        what, name = command.pop("do"), command.pop("name", "")
        if what == "open":
            got = answer(lambda c=command, n=name: sessions.update({n: Session(**c)}))
        elif what == "oracle":
            got = answer(oracle)
        elif what == "together":
            got = answer(together, {n: sessions[n] for n in command["names"]}, command["step"],
                         command["times"])
        elif what == "traced":
            got = answer(sessions[name].traced)
        else:
            got = answer(sessions[name].do, what, **command)
        print(json.dumps(got), flush=True)


if __name__ == "__main__":
    main()
