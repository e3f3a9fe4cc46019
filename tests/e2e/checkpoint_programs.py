"""What test_checkpoints.py runs on a cluster, as a user would write it: TensorFlow programs, each
ends with a line of JSON.

    checkpoint_programs.py NAME TARGET DIRECTORY
"""
import glob
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_eager_execution()
PS, WORKERS = "/job:ps/task:0", ["/job:worker/task:0", "/job:worker/task:1"]


def _model(on_workers=False):
    """A ref variable on the ps, resource variables on a worker, a partitioned one, integers and
    strings."""
    with tf.device(PS):
        step = tf.train.get_or_create_global_step()
        ref = tf.get_variable("ref", initializer=np.arange(12, dtype=np.float32).reshape(3, 4),
                              use_resource=False)
        table = tf.get_variable("table", shape=[7, 3], partitioner=tf.fixed_size_partitioner(3),
                                initializer=tf.ones_initializer())
    with tf.device(WORKERS[1] if on_workers else PS):
        tf.get_variable("resource", initializer=np.linspace(0, 1, 5000), use_resource=True)
        tf.get_variable("words", initializer=tf.constant([b"a", b"", b"\0\xff"]), use_resource=True)
        tf.get_variable("half", initializer=tf.constant([1.5, -2], tf.float16), use_resource=True)
    return step, ref, table


def _change():
    """Other values for all variables."""
    ops = []
    for v in tf.global_variables():
        if v.dtype.base_dtype == tf.string:
            new = tf.strings.join([v, tf.constant("!")])
        else:
            new = v + tf.cast(2, v.dtype.base_dtype)
        ops.append(tf.assign(v, new))
    return tf.group(*ops)


def _values(session):
    return {v.op.name: session.run(v) for v in tf.global_variables()}


def _same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[k], b[k]) for k in a)


def _read_by_tensorflow(prefix, values):
    """Does TensorFlow's own reader find the same values?"""
    reader = tf.train.load_checkpoint(prefix)
    for name, value in values.items():
        whole = name.split("/part_")[0]
        read = reader.get_tensor(whole)
        if "/part_" in name:
            start = sum(v.shape[0] for k, v in sorted(values.items())
                        if k.startswith(whole + "/part_") and k < name)
            read = read[start : start + value.shape[0]]
        if not np.array_equal(read, value):
            return False
    return True


def saver(target, directory, sharded=False):
    _model(on_workers=sharded)
    change, init = _change(), tf.global_variables_initializer()
    saver = tf.train.Saver(max_to_keep=2, sharded=sharded)
    saved, out = {}, {}
    with tf.Session(target) as session:
        session.run(init)
        for i in range(4):
            session.run(change)
            prefix = saver.save(session, os.path.join(directory, "model"), global_step=i)
            saved[prefix] = _values(session)
        session.run(change)
        last = tf.train.latest_checkpoint(directory)
        saver.restore(session, last)
        out["restored"] = _same(_values(session), saved[last])
        out["kept"] = sorted(os.path.basename(p) for p in saver.last_checkpoints)
        saver.restore(session, saver.last_checkpoints[0])
        out["restored_older"] = _same(_values(session), saved[saver.last_checkpoints[0]])
    out["files"] = sorted(os.path.basename(p) for p in glob.glob(os.path.join(directory, "*")))
    out["read_by_tensorflow"] = all(_read_by_tensorflow(p, saved[p])
                                    for p in saver.last_checkpoints)
    return out


def sharded(target, directory):
    return saver(target, directory, sharded=True)


def same_name(target, directory):
    """Saving over the same name again and again keeps one data file."""
    _model()
    change, prefix = _change(), os.path.join(directory, "model")
    init, saver = tf.global_variables_initializer(), tf.train.Saver()
    with tf.Session(target) as session:
        session.run(init)
        for _ in range(3):
            session.run(change)
            saver.save(session, prefix, write_meta_graph=False)
        values = _values(session)
        session.run(change)
        saver.restore(session, prefix)
        restored = _same(_values(session), values)
    files = sorted(os.path.basename(p) for p in glob.glob(prefix + ".*"))
    return {"restored": restored, "n_files": len(files),
            "read_by_tensorflow": _read_by_tensorflow(prefix, values)}


def other_names(target, directory):
    _model()
    prefix = os.path.join(directory, "model")
    with tf.device(PS):
        other = tf.get_variable("other", shape=[3, 4], initializer=tf.zeros_initializer())
    init = tf.global_variables_initializer()
    ref = [v for v in tf.global_variables() if v.op.name == "ref"][0]
    saver, loader = tf.train.Saver({"under/another/name": ref}), tf.train.Saver(
        {"under/another/name": other})
    with tf.Session(target) as session:
        session.run(init)
        saver.save(session, prefix)
        loader.restore(session, prefix)
        return {"restored": bool(np.array_equal(session.run(other), session.run(ref)))}


def from_tensorflow(target, directory):
    """A checkpoint of TensorFlow's own session, partitioned variable and all, restored on the
    cluster."""
    prefix = os.path.join(directory, "theirs")
    with tf.Graph().as_default():
        tf.get_variable("table", initializer=np.random.rand(7, 3).astype(np.float32),
                        partitioner=None)
        tf.get_variable("ref", initializer=np.random.rand(3, 4).astype(np.float32))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            values = _values(session)
            tf.train.Saver().save(session, prefix)
    _model()
    variables = {v.op.name: v for v in tf.global_variables()}
    parts = [v for k, v in sorted(variables.items()) if k.startswith("table/")]
    saver = tf.train.Saver([variables["ref"], *parts])
    with tf.Session(target) as session:
        saver.restore(session, prefix)
        table = np.concatenate([session.run(v) for v in parts])
        return {"restored": bool(np.array_equal(table, values["table"])
                                 and np.array_equal(session.run(variables["ref"]), values["ref"]))}


def missing(target, directory):
    """What a user sees when a checkpoint lacks a variable, has another shape, or lies where the
    task may not look."""
    _model()
    ref = [v for v in tf.global_variables() if v.op.name == "ref"][0]
    init, out = tf.global_variables_initializer(), {}
    small, large, far = tf.train.Saver({"ref": ref}), tf.train.Saver({"none": ref}), tf.train.Saver(
        {"ref": ref})
    with tf.Session(target) as session:
        session.run(init)
        prefix = small.save(session, os.path.join(directory, "model"))
        for name, call in (("missing", lambda: large.restore(session, prefix)),
                           ("denied", lambda: session.run(
                               tf.raw_ops.ReadFile(filename="/etc/passwd")))):
            try:
                call()
            except (tf.errors.OpError, ValueError) as error:
                out[name] = (f"{type(error).__name__}: "
                             f"{error.message if hasattr(error, 'message') else error}"[:300])
        out["works"] = session.run(ref).shape == (3, 4)
    return out


def monitored(target, directory):
    """Trains, ends, and goes on where it ended."""
    with tf.device(PS):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", shape=[4], initializer=tf.zeros_initializer())
    with tf.device(WORKERS[0]):
        loss = tf.reduce_sum(tf.square(w - [1.0, 2.0, 3.0, 4.0]))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    steps, values = [], []
    for limit in (20, 45):
        with tf.train.MonitoredTrainingSession(target, checkpoint_dir=directory,
                                               save_checkpoint_steps=10, save_summaries_steps=None,
                                               save_summaries_secs=None,
                                               log_step_count_steps=None,
                                               hooks=[
                                                   tf.train.StopAtStepHook(
                                                       last_step=limit)]) as session:
            steps.append(int(session.run(step)))
            while not session.should_stop():
                values.append(session.run([train, w])[1])
    final = tf.train.load_checkpoint(directory)
    return {"began_at": steps, "n_steps": len(values),
            "saved_step": int(final.get_tensor("global_step")),
            "learned": bool(np.allclose(final.get_tensor("w"), [1, 2, 3, 4], atol=0.01))}


def main():
    name, target, directory = sys.argv[1:]
    print(json.dumps(globals()[name](target, directory)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
