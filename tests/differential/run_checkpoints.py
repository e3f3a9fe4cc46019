#!/usr/bin/env python3
"""Checkpoints in both directions: what our kernels write, TensorFlow's readers and Saver read; what
TensorFlow writes, our kernels read.

    run_checkpoints.py [--long] [--only TEXT] [--eval PATH]

Our side is the evaluator of graphs (oracle.Evaluator). --long adds tensors above 2 GiB. The last
line is "N passed, N failed".
"""
import argparse
import os
import shutil
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import run_kernels  # noqa: E402
import oracle  # noqa: E402  (disables eager execution)
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.core.framework import tensor_pb2  # noqa: E402

V1 = tf.compat.v1
PLAIN = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
         "float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
STRANGE = ["float8_e5m2", "float8_e4m3fn", "int4", "uint4"]
OLD = [d for d in PLAIN if d not in ("uint32", "uint64", "bfloat16")]
SHAPES = [(), (0,), (3,), (2, 0, 3), (4, 5), (1, 2, 1, 2, 1), (100000,)]


class Ours:
    """Runs a graph built by a function in our kernels."""

    def __init__(self, evaluator):
        self.evaluator = evaluator

    def run(self, build, feeds=None):
        with tf.Graph().as_default() as graph:
            outs = build()
        fetches = [o.name for o in outs if isinstance(o, tf.Tensor)]
        targets = [o.name for o in outs if not isinstance(o, tf.Tensor)]
        wire = {name: tf.make_tensor_proto(value).SerializeToString() for name,
                value in (feeds or {}).items()}
        code, message, protos, _ = self.evaluator.run(
            graph.as_graph_def().SerializeToString(), [(wire, fetches, targets)])[0]
        if code:
            raise RuntimeError(f"code {code}: {message}")
        return [oracle._make_array(tensor_pb2.TensorProto.FromString(p)) for p in protos]


def theirs(build):
    with tf.Graph().as_default():
        outs = build()
        with V1.Session() as session:
            values, _ = session.run([[o for o in outs if isinstance(o, tf.Tensor)],
                                     [o for o in outs if not isinstance(o, tf.Tensor)]])
            return values


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if "int4" in str(a.dtype):
        a, b = a.astype(np.int8), b.astype(np.int8)
    if a.shape != b.shape:
        return False
    if a.dtype == object or b.dtype == object:
        return bool(np.all(a.astype(object) == b.astype(object)))
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def values_of(dtypes):
    """{name: array} of every dtype and shape, strings among them."""
    rng, out = np.random.default_rng(3), {}
    for dtype in [*dtypes, "string"]:
        for i, shape in enumerate(SHAPES):
            out[f"{dtype}/{i}"] = rng.integers(0, 8, shape).astype(
                tf.as_dtype(dtype).as_numpy_dtype) if "int4" in dtype else oracle.sample(
                    rng, dtype, shape)
    return out


def dtype_of(name):
    return tf.as_dtype(name.split("/")[0])


def save_v2(prefix, values, specs=None):
    names = list(values)
    return tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=specs
                             or [""] * len(names),
                             tensors=[tf.constant(values[n], dtype_of(n)) for n in names])


def restore_v2(prefix, names, dtypes, specs=None):
    return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=names, shape_and_slices=specs
                                or [""] * len(names), dtypes=dtypes)


def check_all(read, values):
    for name, value in values.items():
        assert same(read[name], value), name


# ---- the cases: functions of (ours, directory) ----


def ours_by_their_reader(ours, directory):
    values = values_of(PLAIN)
    ours.run(lambda: [save_v2(directory + "/m", values)])
    reader = V1.train.load_checkpoint(directory + "/m")
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    assert set(shapes) == set(values)
    for name, value in values.items():
        assert tuple(shapes[name]) == value.shape and dtypes[name] == dtype_of(name), name
    check_all({n: reader.get_tensor(n) for n in values}, values)


def ours_by_their_kernel_strange(ours, directory):
    values = {n: v for n, v in values_of(STRANGE).items() if not n.startswith("string")}
    ours.run(lambda: [save_v2(directory + "/m", values)])
    read = theirs(lambda: restore_v2(directory + "/m", list(values), [dtype_of(n) for n in values]))
    check_all(dict(zip(values, read)), values)


def theirs_by_ours(ours, directory):
    values = {**values_of(PLAIN), **values_of(STRANGE)}
    theirs(lambda: [save_v2(directory + "/m", values)])
    plain = {n: v for n, v in values.items() if n.split("/")[0] not in STRANGE}
    check_all(dict(zip(plain,
                       ours.run(lambda: restore_v2(directory + "/m", list(plain),
                               [dtype_of(n) for n in plain])))), plain)
    # What TensorProto has no numpy form for goes through our own save, and back to TensorFlow.
    strange = [n for n in values if n.split("/")[0] in STRANGE]

    def copy():
        return [tf.raw_ops.SaveV2(prefix=directory + "/copy", tensor_names=strange,
                                  shape_and_slices=[""] * len(strange),
                                  tensors=restore_v2(
                                      directory + "/m", strange, [dtype_of(n) for n in strange]))]

    ours.run(copy)
    read = theirs(lambda: restore_v2(directory + "/copy", strange, [dtype_of(n) for n in strange]))
    check_all(dict(zip(strange, read)), {n: values[n] for n in strange})


def bytes_are_theirs(ours, directory):
    """The same tensors in the same order: our data file is theirs, byte for byte."""
    values = values_of(PLAIN)
    ours.run(lambda: [save_v2(directory + "/ours", values)])
    theirs(lambda: [save_v2(directory + "/theirs", values)])
    data = [open(f"{directory}/{who}.data-00000-of-00001", "rb").read()
            for who in ("ours", "theirs")]
    assert data[0] == data[1]


def slices_both_ways(ours, directory):
    a = np.arange(42, dtype=np.float32).reshape(7, 6)
    cuts = {"7 6 0,3:-": a[:3], "7 6 3,4:0,2": a[3:, :2], "7 6 3,4:2,4": a[3:, 2:]}

    def save(prefix):
        return [tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["v"] * 3,
                                  shape_and_slices=list(cuts),
                                  tensors=[tf.constant(c) for c in cuts.values()])]

    def restore(prefix):
        return restore_v2(prefix, ["v"] * 5, [tf.float32] * 5, ["", *cuts, "7 6 2,3:1,3"])

    ours.run(lambda: save(directory + "/ours"))
    theirs(lambda: save(directory + "/theirs"))
    assert same(V1.train.load_checkpoint(directory + "/ours").get_tensor("v"), a)
    for read in (theirs(lambda: restore(directory + "/ours")),
                 ours.run(lambda: restore(directory + "/theirs"))):
        for value, expected in zip(read, [a, *cuts.values(), a[2:5, 1:4]]):
            assert same(value, expected)


def many_dimensions_and_long_slices(ours, directory):
    """Keys of slices whose numbers take one to several bytes."""
    n = 1 << 21
    a = np.arange(n, dtype=np.int32)
    starts = [0, 63, 64, 8191, 8192, 1 << 20, n]
    specs = [f"{n} {s},{e - s}" for s, e in zip(starts, starts[1:])]

    def save(prefix):
        return [tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["v"] * len(specs),
                                  shape_and_slices=specs,
                                  tensors=[tf.constant(a[s:e]) for s,
                                           e in zip(starts, starts[1:])])]

    ours.run(lambda: save(directory + "/ours"))
    theirs(lambda: save(directory + "/theirs"))
    assert same(V1.train.load_checkpoint(directory + "/ours").get_tensor("v"), a)
    assert same(ours.run(lambda: restore_v2(directory + "/theirs", ["v"], [tf.int32]))[0], a)


def partitioned_by_their_saver(ours, directory):
    """TensorFlow's Saver writes a partitioned variable, we read it whole; we write one, its Saver
    reads it."""
    whole = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
    with tf.Graph().as_default(), V1.Session() as session:
        v = V1.get_variable("v", shape=[10, 4], partitioner=V1.fixed_size_partitioner(3),
                            initializer=V1.zeros_initializer())
        starts = np.cumsum([0] + [int(part.shape[0]) for part in v])
        session.run([part.assign(whole[a:b]) for part, a, b in zip(v, starts, starts[1:])])
        V1.train.Saver().save(session, directory + "/theirs")
        assert same(ours.run(lambda: restore_v2(directory + "/theirs", ["v"], [tf.float32]))[0],
                    whole)
        specs = [f"10 4 {s},{n}:-" for s, n in ((0, 5), (5, 5))]
        ours.run(lambda: [tf.raw_ops.SaveV2(prefix=directory + "/ours", tensor_names=["v", "v"],
                                            shape_and_slices=specs,
                                            tensors=[
                                                tf.constant(-whole[:5]), tf.constant(-whole[5:])])])
        V1.train.Saver().restore(session, directory + "/ours")
        parts = [session.run(v) for v in sorted(V1.global_variables(), key=lambda v: v.name)]
        assert same(np.concatenate(parts), -whole)


def sharded_both_ways(ours, directory):
    values = [{f"float32/{i}": np.full(i + 1, i, np.float32)} for i in range(3)]

    def merge(who):
        parts = [f"{directory}/{who}_temp/part-{i:05d}-of-00003" for i in range(3)]
        return parts, lambda: [tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts,
                destination_prefix=f"{directory}/{who}", delete_old_dirs=True)]

    for who, writer, merger in (("a", ours.run, ours.run), ("b", ours.run, theirs),
                                ("c", theirs, ours.run)):
        parts, build = merge(who)
        os.makedirs(os.path.dirname(parts[0]))
        for part, value in zip(parts, values):
            writer(lambda: [save_v2(part, value)])
        merger(build)
        assert not os.path.exists(os.path.dirname(parts[0])), who
        reader = V1.train.load_checkpoint(f"{directory}/{who}")
        for value in values:
            check_all({n: reader.get_tensor(n) for n in value}, value)


def saved_over_and_over(ours, directory):
    """Our data files change their names when a checkpoint is replaced: TensorFlow follows, and its
    clean-up finds them all."""
    prefix = directory + "/m"
    for i in range(4):
        value = {"float32/x": np.full(10, i, np.float32)}
        ours.run(lambda: [save_v2(prefix, value)])
        check_all({"float32/x": V1.train.load_checkpoint(prefix).get_tensor("float32/x")}, value)
        assert len([f for f in os.listdir(directory) if ".data-" in f]) == 1
        assert tf.train.latest_checkpoint(directory) is None and V1.train.checkpoint_exists(prefix)
    V1.train.remove_checkpoint(prefix)
    assert os.listdir(directory) == []


def old_format_both_ways(ours, directory):
    values = values_of(OLD)
    names = list(values)

    def save(file):
        return [tf.raw_ops.Save(filename=file, tensor_names=names,
                                data=[tf.constant(values[n], dtype_of(n)) for n in names])]

    def restore(file):
        return [tf.raw_ops.Restore(file_pattern=file, tensor_name=n, dt=dtype_of(n)) for n in names]

    ours.run(lambda: save(directory + "/ours"))
    theirs(lambda: save(directory + "/theirs"))
    check_all(dict(zip(names, theirs(lambda: restore(directory + "/ours")))), values)
    check_all(dict(zip(names, ours.run(lambda: restore(directory + "/theirs")))), values)
    reader = V1.train.load_checkpoint(directory + "/ours")
    # its Python reader has few types
    readable = {n: v for n, v in values.items()
                if n.startswith(("float32", "float64", "int32", "int64", "string"))}
    check_all({n: reader.get_tensor(n) for n in readable}, readable)


def old_format_sharded(ours, directory):
    a = np.arange(24, dtype=np.float64).reshape(6, 4)
    for i in range(3):
        ours.run(lambda: [tf.raw_ops.SaveSlices(filename=f"{directory}/m-{i:05d}-of-00003",
                                                tensor_names=["v"], shapes_and_slices=[
                                                    f"6 4 {2 * i},2:-"],
                                                data=[tf.constant(a[2 * i : 2 * i + 2])])])
    read = theirs(lambda: [tf.raw_ops.Restore(file_pattern=directory + "/m-?????-of-00003",
                                              tensor_name="v", dt=tf.float64)])
    assert same(read[0], a)


def long_names_and_many(ours, directory):
    """An index of many blocks, with names that share prefixes, and some that hold any byte."""
    names = [f"model/layer_{i // 50}/sub_{i % 50}/weights" for i in range(8000)] + [
        "x" * 5000, "\x01odd\x7f", "é/日本", "a b"]
    values = [np.float32(i) for i in range(len(names))]

    def save(prefix):
        return [tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names,
                                  shape_and_slices=[""] * len(names),
                                  tensors=list(tf.unstack(tf.constant(values))))]

    ours.run(lambda: save(directory + "/ours"))
    theirs(lambda: save(directory + "/theirs"))
    reader = V1.train.load_checkpoint(directory + "/ours")
    assert all(reader.get_tensor(n) == v for n, v in zip(names, values))
    read = ours.run(lambda: restore_v2(directory + "/theirs", names, [tf.float32] * len(names)))
    assert all(r == v for r, v in zip(read, values))


def damage_is_noticed_by_both(ours, directory):
    ours.run(lambda: [save_v2(directory + "/m", {"float32/x": np.arange(100, dtype=np.float32)})])
    with open(directory + "/m.data-00000-of-00001", "r+b") as f:
        f.seek(40)
        f.write(b"\xff")
    for run in (ours.run, theirs):
        try:
            run(lambda: restore_v2(directory + "/m", ["float32/x"], [tf.float32]))
        except (RuntimeError, tf.errors.DataLossError) as error:
            assert "hecksum does not match" in str(error)
        else:
            raise AssertionError("not noticed")


def beyond_two_gib(ours, directory):
    """A tensor of 2.2 GiB and one after it; the values are made and compared where they are, the
    evaluator's pipe takes no more than 2 GiB."""
    n = (11 << 28) // 5 + 7

    def fill():
        return tf.fill([n], tf.constant(3.5)), tf.constant([1, 2, 3])

    def save(prefix):
        return [tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["large", "after"],
                                  shape_and_slices=["", ""], tensors=fill())]

    def compare(prefix):
        large, after = restore_v2(prefix, ["large", "after"], [tf.float32, tf.int32])
        return [tf.reduce_min(large), tf.reduce_max(large), tf.size(large, out_type=tf.int64),
                tf.identity(after)]

    ours.run(lambda: save(directory + "/ours"))
    read = theirs(lambda: compare(directory + "/ours"))
    os.unlink(directory + "/ours.data-00000-of-00001")
    theirs(lambda: save(directory + "/theirs"))
    for values in (read, ours.run(lambda: compare(directory + "/theirs"))):
        assert values[0] == values[1] == 3.5 and values[2] == n and list(values[3]) == [1, 2, 3]


CASES = [ours_by_their_reader, ours_by_their_kernel_strange, theirs_by_ours, bytes_are_theirs,
         slices_both_ways, many_dimensions_and_long_slices,
         partitioned_by_their_saver, sharded_both_ways, saved_over_and_over, old_format_both_ways,
         old_format_sharded, long_names_and_many, damage_is_noticed_by_both]
LONG_CASES = [beyond_two_gib]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="also tensors above 2 GiB")
    parser.add_argument("--only", help="cases whose name holds this text")
    parser.add_argument("--eval", default=run_kernels.default_evaluator())
    options = parser.parse_args()
    ours = Ours(oracle.Evaluator(options.eval))
    n_passed = n_failed = 0
    for case in CASES + (LONG_CASES if options.long else []):
        if options.only and options.only not in case.__name__:
            continue
        directory = tempfile.mkdtemp(prefix="millrace-checkpoints-")
        try:
            case(ours, directory)
            n_passed += 1
            print(f"ok   {case.__name__}", flush=True)
        except Exception:
            n_failed += 1
            print(f"FAIL {case.__name__}\n{traceback.format_exc()[-1500:]}", flush=True)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"{n_passed} passed, {n_failed} failed")
    sys.exit(1 if n_failed or not n_passed else 0)


if __name__ == "__main__":
    main()
