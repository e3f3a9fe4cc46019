"""A TensorFlow client that a test drives: a line in, a line out. argv: the target, and the job and
index of the parameter server.

    init | add | read | where | big | trained   →   "ok VALUE" or "error CODE MESSAGE"
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_eager_execution()


def build():
    with tf1.device("/job:ps/task:0"):
        total = tf1.get_variable("total", [], initializer=tf1.zeros_initializer(),
                                 use_resource=True)
    fed = tf1.placeholder(tf.float32, [None], name="fed")
    return {"init": tf1.global_variables_initializer(),
            "add": total.assign_add(1.0, read_value=True), "read": total.read_value(), "fed": fed,
            "double": fed + fed}


def where(session):
    """The task that a node without a device runs on."""
    options, metadata = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE), tf1.RunMetadata()
    a = tf1.placeholder(tf.float32, [], name="plain")
    session.run(a * 2.0, {a: 1.0}, options=options, run_metadata=metadata)
    devices = {d.device for d in metadata.step_stats.dev_stats
               if any("mul" in n.node_name for n in d.node_stats)}
    return " ".join(sorted(d.split("/device")[0] for d in devices))


def trained(target):
    """Ten steps of a MonitoredTrainingSession."""
    with tf1.Graph().as_default():
        with tf1.device("/job:ps/task:0"):
            step = tf1.train.get_or_create_global_step()
            w = tf1.get_variable("w", [4], initializer=tf1.ones_initializer())
        loss = tf1.reduce_sum(tf1.square(w))
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
        hooks = [tf1.train.StopAtStepHook(last_step=10)]
        n = 0
        with tf1.train.MonitoredTrainingSession(master=target, is_chief=True,
                                                hooks=hooks) as session:
            while not session.should_stop():
                _, value = session.run([train, loss])
                n += 1
        return f"{n} {value:.6f}"


def main():
    target = sys.argv[1]
    nodes = build()
    session = tf1.Session(target)
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.strip()
        try:
            if word == "where":
                value = where(session)
            elif word == "trained":
                value = trained(target)
            elif word == "big":
                data = np.arange(8 << 20, dtype=np.float32)
                value = bool((session.run(nodes["double"], {nodes["fed"]: data}) == data * 2).all())
            elif word == "again":
                session = tf1.Session(target)
                value = ""
            else:
                value = session.run(nodes[word])
            print(f"ok {value}", flush=True)
        except tf.errors.OpError as error:
            print(f"error {type(error).__name__} {' '.join(error.message.split())}", flush=True)
    os._exit(0)  # a client whose servers are gone hangs at its end


if __name__ == "__main__":
    main()
