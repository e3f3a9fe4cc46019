"""GenerateVocabRemapping and LoadAndRemapMatrix: files of words, and a checkpoint that TensorFlow
writes."""

import atexit
import os
import shutil
import tempfile

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
DIR = tempfile.mkdtemp(prefix="millrace-cases-remap-")
atexit.register(shutil.rmtree, DIR, True)
FILES = {"old": b"knitting\nswimming\nlacrosse\nfootball\n",
         "new": b"football\nknitting\neco\nswimming\n", "doubled": b"a\nb\na\n",
         "windows": b"knitting\r\neco\r\n", "empty": b"", "blank": b"a\n\nb\n"}
PREFIX = os.path.join(DIR, "ckpt")
MATRIX = np.arange(24, dtype="float32").reshape(6, 4)


def path(name):
    at = os.path.join(DIR, name)
    if name in FILES and not os.path.exists(at):
        open(at, "wb").write(FILES[name])
    return at


def write_checkpoint():
    if os.path.exists(PREFIX + ".index"):
        return
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        save = R.SaveV2(prefix=PREFIX, tensor_names=["m", "ints", "vector"],
                        shape_and_slices=["", "", ""],
                        tensors=[tf.constant(MATRIX), tf.constant([[1, 2]]), tf.constant([1.0])])
        session.run(save)


def remapping(new, old, offset=0, n=3, old_size=-1):
    def build():
        out = R.GenerateVocabRemapping(new_vocab_file=oracle.const(path(new)),
                                       old_vocab_file=oracle.const(path(old)),
                                       new_vocab_offset=offset, num_new_vocab=n,
                                       old_vocab_size=old_size)
        return [out.remapping, out.num_present]
    return build


def matrix(rows, columns, values, n_rows=None, n_columns=None, name="m", prefix=None, max_rows=-1):
    def build():
        write_checkpoint()
        return [R.LoadAndRemapMatrix(
            ckpt_path=oracle.const([prefix or PREFIX]), old_tensor_name=oracle.const(name),
            row_remapping=oracle.const(np.array(rows, "int64")),
            col_remapping=oracle.const(np.array(columns, "int64")),
            initializing_values=oracle.const(np.array(values, "float32")), num_rows=len(rows)
            if n_rows is None else n_rows, num_cols=(len(columns) or 4) if n_columns is None
            else n_columns, max_rows_in_memory=max_rows,
        )]  # fmt: skip
    return build


def cases():
    for new, old, attrs in (
        ("new", "old", {}), ("new", "old", {"n": 4}), ("new", "old", {"n": 0}),
        ("new", "old", {"offset": 1}), ("new", "old", {"offset": 2}),
        ("new", "old", {"offset": 4, "n": 0}), ("new", "old", {"old_size": 2}),
        ("new", "old", {"old_size": 4}), ("new", "old", {"old_size": 9}),
        ("new", "doubled", {}), ("doubled", "old", {}), ("windows", "old", {"n": 2}),
        ("new", "windows", {}), ("empty", "old", {"n": 0}), ("empty", "old", {"n": 1}),
        ("new", "no such", {}), ("no such", "old", {}), ("blank", "blank", {}),
    ):  # fmt: skip
        yield f"GenerateVocabRemapping/{new}/{old}/{attrs}", remapping(new, old, **attrs)
    # For a column beyond the old matrix, TensorFlow answers what was in memory; ours is INTERNAL,
    # as for rows.
    for max_rows in (-1, 1, 2, 100):
        for rows, columns, values in (
            ([0, 1, 2], [], []), ([5, -1, 0], [], [1, 2, 3, 4]), ([2, 0], [3, 1], []),
            ([2, -1], [3, -1], [7, 8, 9]), ([-1, -1], [-1], [1, 2]), ([0, 0], [], []),
            ([0], [1, 1], []), ([6], [], []), ([-1], [], [1, 2]), ([0], [], [1]), ([], [], []),
            ([4, 3, 2, 1, 0], [0, -1, 2, -1, 1], list(range(10))), ([-5, 1], [], [1, 2, 3, 4]),
        ):  # fmt: skip
            yield f"LoadAndRemapMatrix/{rows}/{columns}/{values}/{max_rows}", matrix(
                rows, columns, values, max_rows=max_rows)
    yield "LoadAndRemapMatrix/num_rows", matrix([0, 1], [], [], n_rows=3)
    yield "LoadAndRemapMatrix/num_cols", matrix([0, 1], [0, 1], [], n_columns=3)
    yield "LoadAndRemapMatrix/no columns", matrix([0, 1], [], [], n_columns=3)
    yield "LoadAndRemapMatrix/name", matrix([0], [], [], name="none")
    yield "LoadAndRemapMatrix/ints", matrix([0], [], [], name="ints", n_columns=2)
    yield "LoadAndRemapMatrix/vector", matrix([0], [], [], name="vector", n_columns=1)
    yield "LoadAndRemapMatrix/file", matrix([0], [], [], prefix=os.path.join(DIR, "gone"))
