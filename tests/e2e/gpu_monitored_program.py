"""Trains a small net in a MonitoredTrainingSession, with a batch of its own for each global step. v
counts the updates. Each line says what a run has told, a session that begins, or a checkpoint;
TensorFlow's own words about failures are on stderr.

    gpu_monitored_program.py TARGET DIRECTORY STATE END [soft]

STATE is the device of all variables but the global step. Trains until the file END exists.
"""
import json
import os
import sys

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
tf1.logging.set_verbosity(tf1.logging.INFO)
GPU, PS = "/job:worker/task:0/device:GPU:0", "/job:ps/task:0/device:CPU:0"
SAVE_STEPS, SIZE = 6, 70_000


def tell(**what):
    print(json.dumps(what), flush=True)


class TellBeginning(tf1.train.SessionRunHook):
    def after_create_session(self, session, coord):
        tell(begun=int(session.run(tf1.train.get_global_step())))


class TellSaves(tf1.train.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        tell(saved=int(global_step_value))


def build(state):
    """What a run fetches: the global step after it, the loss before it, the least and the largest
    element of v."""
    with tf.device(PS):
        step = tf1.train.get_or_create_global_step()
    with tf.device(state):
        weights = [tf1.get_variable(f"w{n}", initializer=tf.sin(tf.range(16.0 * n)) * 0.3,
                                    use_resource=True) for n in (64, 4)]
        v = tf1.get_variable("v", initializer=tf.zeros([SIZE]), use_resource=True, trainable=False)
    with tf.device(GPU):
        number = tf.cast(step, tf.float32) + 1.0
        x = tf.reshape(tf.sin(tf.range(32.0 * 16) * number), [32, 16])
        hidden = tf.nn.relu(tf.matmul(x, tf.reshape(weights[0], [16, 64])))
        y = tf.matmul(hidden, tf.reshape(weights[1], [64, 1]))
        loss = tf.reduce_mean(tf.square(y - tf.reduce_sum(x, 1, keepdims=True)))
    train = tf1.train.MomentumOptimizer(0.002, 0.9).minimize(loss, var_list=weights)
    with tf.device(state):
        count = v.assign_add(tf.fill([SIZE], 2.0), read_value=False)
        with tf.control_dependencies([train, count]):
            now = v.read_value()
        ends = tf.stack([tf.reduce_min(now), tf.reduce_max(now)])
    with tf.control_dependencies([train, count]), tf.device(PS):
        return [step.assign_add(1, read_value=True), loss, ends]


def main():
    target, directory, state, end, *soft = sys.argv[1:]
    fetches = build(state)
    saves = tf1.train.CheckpointSaverHook(directory, save_steps=SAVE_STEPS, listeners=[TellSaves()])
    try:
        with tf1.train.MonitoredTrainingSession(
                target, is_chief=True, checkpoint_dir=directory, save_checkpoint_secs=None,
                save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
                hooks=[TellBeginning()], chief_only_hooks=[saves],
                config=tf1.ConfigProto(allow_soft_placement=bool(soft))) as session:
            while not os.path.exists(end):
                at, loss, ends = session.run(fetches)
                tell(step=int(at), loss=float(loss), ends=ends.tolist())
    except tf.errors.OpError as error:
        tell(error=type(error).__name__, message=error.message)


if __name__ == "__main__":
    main()
