"""TensorFlow clients under which daemons die, as processes of their own: see test_faults.py. They
end by os._exit, since TensorFlow's client waits at exit for servers that are gone.

    faults_client.py interactive TARGET TIMEOUT_MS     a command a line on stdin, a JSON object a
    line on stdout
    faults_client.py train TARGET DIRECTORY N_STEPS    a MonitoredTrainingSession with checkpoints;
    a line per step
    faults_client.py learn TARGET DIRECTORY N_STEPS    the same of a model, up to that global step;
    a line per step with its loss

Times are those of the monotonic clock, which all processes of a host share.
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1
tf1.disable_v2_behavior()
tf1.disable_control_flow_v2()
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


def say(**what):
    print(json.dumps(what), flush=True)


def interactive(target, timeout_ms):
    """add N: a step of the worker and the ps; spin: the same after an endless loop on the worker;
    block: waits for a queue of the ps; bump_ps, bump_worker: steps of one task; value: of the
    variable; init; new: creates a session again; close: closes the session."""
    with tf.device(PS):
        v = tf1.get_variable("v", initializer=tf.constant(0.0))
        empty = tf1.FIFOQueue(1, [tf.float32], [[]], shared_name="empty")
        taken = empty.dequeue()
    with tf.device(WORKER):
        n = tf1.placeholder(tf.int32, [])
        x = tf1.placeholder(tf.float32, [])
        loop = tf.while_loop(lambda i: i < n, lambda i: i + 1, [tf.constant(0)],
                             parallel_iterations=1)
        # The loop's first turn wants a value of the ps, so that all have begun when it runs.
        spun = tf.cast(tf.reshape(loop, []), tf.float32) + x
        doubled = x * 1.0
        w = tf1.get_variable("w", initializer=tf.constant(0.0))
        bump_worker = tf1.assign_add(w, 1.0)
    with tf.device(PS):
        add = tf1.assign_add(v, doubled)
        spin = tf1.assign_add(v, spun)
        block = tf1.assign_add(v, taken)
        bump_ps = tf1.assign_add(v, 1.0)
    with tf.device(WORKER):
        blocked = tf.identity(block)
    init = tf1.global_variables_initializer()
    config = tf1.ConfigProto(operation_timeout_in_ms=timeout_ms)
    session = tf1.Session(target, config=config)
    commands = {"init": lambda k: session.run(init), "add": lambda k: session.run(add, {x: k}),
                "value": lambda k: session.run(v),
                "bump_ps": lambda k: session.run(bump_ps),
                "bump_worker": lambda k: session.run(bump_worker),
                "spin": lambda k: session.run(spin, {n: 2**31 - 1, x: 0.0}),
                "block": lambda k: session.run(blocked),
                # fmt: skip
                "close": lambda k: session.close(),
                "devices": lambda k: len(session.list_devices())}
    say(ok="ready")
    for line in sys.stdin:
        word, *rest = line.split()
        began = time.monotonic()
        try:
            if word == "new":
                session = tf1.Session(target, config=config)
                got = len(session.list_devices())
            else:
                got = commands[word](float(rest[0]) if rest else None)
            say(ok=None if got is None else float(got), began=began, at=time.monotonic())
        except tf.errors.OpError as error:
            say(error=type(error).__name__, message=error.message, began=began, at=time.monotonic())


def train(target, directory, n_steps):
    """Each step adds (1, 3) to a pair on the ps, of which the worker has made the second: 3 * count
    == sum, or something is wrong."""
    with tf.device(PS):
        global_step = tf1.train.get_or_create_global_step()
        pair = tf1.get_variable("pair", initializer=tf.zeros([2]))
    with tf.device(WORKER):
        ones = tf.ones([3, 1])
        three = tf.reshape(tf.matmul(ones, ones, transpose_a=True), [])
        addend = tf.stack([tf.constant(1.0), three])
    with tf.device(PS):
        add = tf1.assign_add(pair, addend)
        with tf1.control_dependencies([add]):
            count = tf1.assign_add(global_step, 1)
    hooks = [tf1.train.CheckpointSaverHook(directory, save_steps=20,
                                           saver=tf1.train.Saver(max_to_keep=2))]
    with tf1.train.MonitoredTrainingSession(target, is_chief=True, hooks=hooks,
                                            save_checkpoint_secs=None, save_summaries_steps=None,
                                            # fmt: skip
                                            checkpoint_dir=directory, log_step_count_steps=None,
                                            max_wait_secs=60) as session:
        done = 0
        while done < n_steps:
            (k, total), _ = session.run([add, count])
            done += 1
            say(step=done, count=float(k), sum=float(total), at=time.monotonic())
    say(done=done)


def learn(target, directory, n_steps):
    """A small network on two workers, its batch a function of the global step: the loss of a step
    is what it is in a run that nobody disturbs, or an update was lost, was done twice, came too
    late, or was torn."""
    n, width = 32, 64
    with tf.device(PS):
        global_step = tf1.train.get_or_create_global_step()
        init = tf1.glorot_uniform_initializer(seed=3)
        w = [tf1.get_variable("w1", [8, width], initializer=init, use_resource=True),
             tf1.get_variable("w2", [width, 1], initializer=init, use_resource=True)]
        at = tf.identity(global_step)
    losses = []
    for task in range(2):
        with tf.device(f"/job:worker/task:{task}"):
            x = tf.sin(tf.cast(at, tf.float32) * (0.7 + task)
                       + tf.reshape(tf.range(n * 8, dtype=tf.float32), [n, 8]) * 0.37)
            y = tf.reduce_sum(x[:, :3], 1, keepdims=True) * tf.cos(x[:, 3:4])
            losses.append(tf.reduce_mean(tf.square(tf.matmul(tf.tanh(tf.matmul(x, w[0])), w[1])
                    - y)))
    with tf.device(PS):
        loss = tf.add_n(losses) / 2
        with tf1.control_dependencies([loss, at]):
            train = tf1.train.MomentumOptimizer(0.02, 0.9).minimize(
                loss, global_step=global_step, var_list=w)
    hooks = [tf1.train.CheckpointSaverHook(directory, save_steps=20,
                                           saver=tf1.train.Saver(max_to_keep=2))]
    with tf1.train.MonitoredTrainingSession(target, is_chief=True, hooks=hooks,
                                            save_checkpoint_secs=None, save_summaries_steps=None,
                                            # fmt: skip
                                            checkpoint_dir=directory, log_step_count_steps=None,
                                            max_wait_secs=60) as session:
        step = -1
        while step + 1 < n_steps:
            after, value, _ = session.run([at, loss, train])
            step = int(after) - 1  # a reference is fetched after the step's updates
            say(step=step, loss=float(value), at=time.monotonic())
    say(done=True)


def main():
    kind, target, *rest = sys.argv[1:]
    try:
        if kind == "interactive":
            interactive(target, int(rest[0]))
        else:
            {"train": train, "learn": learn}[kind](target, rest[0], int(rest[1]))
    except BaseException as error:  # whoever reads the pipe is told
        say(failed=repr(error))
        os._exit(1)
    os._exit(0)


main()
