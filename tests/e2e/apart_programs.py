"""What test_apart.py runs, as a user would write it: TensorFlow programs on tasks that share no
files. Each ends with a line of JSON.

    apart_programs.py NAME TARGET PREFIX [ARGUMENT...]

APART_CLUSTER in the environment is a list in JSON, {job: [address, ...]}: the sessions bring that
cluster, whose job "store" takes the place of "ps".
"""
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_eager_execution()
CLUSTER = json.loads(os.environ.get("APART_CLUSTER", "{}"))
STORE = "/job:store" if CLUSTER else "/job:ps"
PS = [f"{STORE}/task:0", f"{STORE}/task:1"]
TEXT = [b"a", b"", b"\0\xff", b"long " * 1000]


def _session(target):
    cluster = tf.train.ClusterSpec(CLUSTER).as_cluster_def()
    return tf.Session(target, config=tf.ConfigProto(cluster_def=cluster))


def _model(mb=0):
    """Variables of several kinds on both tasks; of `mb` megabytes more on the first."""
    for i, device in enumerate(PS):
        with tf.device(device):
            tf.get_variable(f"small{i}", initializer=np.arange(5, dtype=np.float32) + i,
                            use_resource=True)
            tf.get_variable(f"ref{i}", initializer=np.full([7, 3], i, np.int64), use_resource=False)
            tf.get_variable(f"text{i}", initializer=tf.constant(TEXT), use_resource=True)
            tf.get_variable(f"large{i}",
                            initializer=np.random.default_rng(i).normal(size=(1500, 1000)),
                            use_resource=True)
    with tf.device(tf.train.replica_device_setter(2, ps_device=STORE)):
        tf.get_variable("table", shape=[1000, 64], partitioner=tf.fixed_size_partitioner(4),
                        initializer=tf.random_normal_initializer(seed=1))
    if mb:
        with tf.device(PS[0]):
            tf.get_variable("huge", shape=[mb, 1 << 18], initializer=tf.ones_initializer(),
                            use_resource=True)


def _values(session):
    names = [v.op.name for v in tf.global_variables()]
    return dict(zip(names, session.run(tf.global_variables())))


def _same(a, b):
    return set(a) == set(b) and all(np.array_equal(a[k], b[k]) for k in a)


def _save(session, saver, prefix):
    definition = saver.saver_def
    session.run(definition.save_tensor_name, {definition.filename_tensor_name: prefix})


def _restore(session, saver, prefix):
    definition = saver.saver_def
    session.run(definition.restore_op_name, {definition.filename_tensor_name: prefix})


def _change():
    return tf.group(*[tf.assign(v, v + tf.cast(2, v.dtype.base_dtype))
                      for v in tf.global_variables() if v.dtype.base_dtype != tf.string])


def save_and_restore(target, prefix, sharded="yes"):
    """Saves, changes everything, restores; and keeps what was saved beside the checkpoint for those
    who look later."""
    _model()
    saver, change = tf.train.Saver(sharded=sharded == "yes"), _change()
    with _session(target) as session:
        session.run(tf.global_variables_initializer())
        session.run(change)
        _save(session, saver, prefix)
        saved = _values(session)
        session.run(change)
        changed = not _same(_values(session), saved)
        _restore(session, saver, prefix)
        restored = _same(_values(session), saved)
        session.run(change)
        _save(session, saver, prefix)  # over itself
        saved = _values(session)
    np.save("saved.npy", np.array(saved, dtype=object), allow_pickle=True)
    return {"changed": changed, "restored": restored}


def restore(target, prefix):
    """In other processes: is it what was saved? A partitioned variable restored as a whole, too."""
    _model()
    saver = tf.train.Saver(sharded=True)
    with tf.device(PS[0]):
        whole = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["table"], shape_and_slices=[""],
                                     dtypes=[tf.float32])[0]
    with tf.device(PS[1]):
        part = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["table", "text0"],
                                    shape_and_slices=["1000 64 240,20:3,5", ""],
                                    dtypes=[tf.float32, tf.string])
    wanted = np.load("saved.npy", allow_pickle=True).item()
    with _session(target) as session:
        _restore(session, saver, prefix)
        table = np.concatenate([wanted[f"table/part_{i}"] for i in range(4)])
        got_whole, (got_part, got_text) = session.run([whole, part])
        return {"restored": _same(_values(session), wanted),
                "whole": np.array_equal(got_whole, table),
                "part": np.array_equal(got_part, table[240:260, 3:8]), "text": list(got_text)
                == TEXT}


def _error_of(run):
    try:
        run()
    except tf.errors.OpError as e:
        return f"{type(e).__name__}: {e.message}"
    return ""


def missing(target, prefix):
    _model()
    saver = tf.train.Saver(sharded=True)
    with _session(target) as session:
        session.run(tf.global_variables_initializer())
        _save(session, saver, prefix)
        with tf.device(PS[0]):
            key = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["nothing"],
                                       shape_and_slices=[""], dtypes=[tf.float32])
            kind = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["small0"],
                                        shape_and_slices=[""], dtypes=[tf.int32])
            long = tf.raw_ops.RestoreV2(prefix="file://" + "h" * 100000 + os.path.abspath(prefix)
                                        + "-nowhere", tensor_names=["v"], shape_and_slices=[""],
                                        dtypes=[tf.int32])
            shape = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["small0"],
                                         shape_and_slices=["6 0,2"], dtypes=[tf.float32])
        return {"checkpoint": _error_of(lambda: _restore(session, saver, prefix + "-nowhere")),
                "key": _error_of(lambda: session.run(key)),
                "long": _error_of(lambda: session.run(long)),
                "dtype": _error_of(lambda: session.run(kind)),
                "shape": _error_of(lambda: session.run(shape))}


def parts(target, prefix):
    """A save in two steps, with a pause for who spoils a part: waits for a line between them."""
    ops = []
    for i, device in enumerate(PS):
        with tf.device(device):
            ops.append(tf.raw_ops.SaveV2(prefix=f"{prefix}_temp/part-{i}", tensor_names=[f"v{i}"],
                                         shape_and_slices=[""],
                                         tensors=[tf.range(100000, dtype=tf.float32) + i]))
    with tf.device(PS[1]):
        merge = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[f"{prefix}_temp/part-{i}"
                for i in (0, 1)], destination_prefix=prefix, delete_old_dirs=True)
    with _session(target) as session:
        session.run(ops)
        print("saved", flush=True)
        sys.stdin.readline()
        return {"error": _error_of(lambda: session.run(merge))}


def save_large(target, prefix, mb):
    _model(int(mb))
    saver = tf.train.Saver(sharded=True)
    session = _session(target)
    session.run(tf.global_variables_initializer())
    print("ready", flush=True)
    return {"error": _error_of(lambda: _save(session, saver, prefix))}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
    os._exit(0)  # a client of a server that was killed waits for it at its exit
