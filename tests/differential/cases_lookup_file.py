"""InitializeTableFromTextFileV2: columns, whole lines, line numbers, delimiters, vocabulary sizes,
offsets, and refused files."""

import atexit
import os
import shutil
import tempfile

import numpy as np
import oracle
import tensorflow as tf

R = tf.raw_ops
Step = oracle.Step
LINE_NUMBER, WHOLE_LINE = -1, -2
DIR = tempfile.mkdtemp(prefix="millrace-cases-lookup-")
atexit.register(shutil.rmtree, DIR, True)
FILES = {
    "words": b"alpha\nbeta\ngamma\n",
    "words no end": b"alpha\nbeta\ngamma",
    "windows": b"alpha\r\nbeta\r\n",
    "blank lines": b"alpha\n\nbeta\n\n",
    "doubled": b"alpha\nbeta\nalpha\n",
    "empty": b"",
    "newline": b"\n",
    "columns": b"a\t1\t1.5\nb\t2\t-2\nc\t-3\t1e3\n",
    "commas": b"a,1\nb,2\n",
    "short line": b"a\t1\nb\n",
    "long line": b"a\t1\t2\t3\nb\t2\n",
    "numbers": b"10\n-20\n30\n",
    "bad numbers": b"10\nx\n30\n",
    "blank numbers": b" 10 \t 5\n 20\t7 \n",
    "large numbers": b"2147483648\n9223372036854775807\n",
    "too large": b"9223372036854775808\n",
    "no number": b"\t1\n",
    "reals": b"a\tinf\nb\tnan\nc\t0x10\nd\t1e400\n",
    "bytes": b"\xff\n\0x\n",
}


def path(name):
    full = os.path.join(DIR, name)
    if name in FILES and not os.path.exists(full):
        with open(full, "wb") as f:
            f.write(FILES[name])
    return full


def _table(file, key="string", value="int64", key_index=WHOLE_LINE, value_index=LINE_NUMBER,
           find=None, filename=None, make=R.HashTableV2, times=1, **more):
    """Fills a table and reads it back, in the order of its keys' hashes."""

    def build():
        handle = make(key_dtype=tf.as_dtype(key), value_dtype=tf.as_dtype(value), shared_name="t")
        name = oracle.const(path(file) if filename is None else filename, tf.string)
        steps = []
        for _ in range(times):
            fill = R.InitializeTableFromTextFileV2(
                table_handle=handle, filename=name, key_index=key_index, value_index=value_index,
                **more)
            steps.append(Step(targets=[fill]))
        keys, values = R.LookupTableExportV2(table_handle=handle, Tkeys=tf.as_dtype(key),
                                             Tvalues=tf.as_dtype(value))
        numbers = R.StringToHashBucketFast(input=keys if key == "string" else tf.as_string(keys),
                                           num_buckets=1 << 40)
        order = R.TopKV2(input=-numbers, k=tf.size(keys)).indices
        steps.append(Step([R.LookupTableSizeV2(table_handle=handle), tf.gather(keys, order),
                           tf.gather(values, order)]))
        return steps

    return build


t = _table
PROGRAMS = {
    "words to numbers": t("words"),
    "no newline at the end": t("words no end"),
    "numbers to words": t("words", "int64", "string", LINE_NUMBER, WHOLE_LINE),
    "carriage returns": t("windows"),
    "blank lines": t("blank lines", "int64", "string", LINE_NUMBER, WHOLE_LINE),
    "blank lines as keys": t("blank lines"),
    "doubled key": t("doubled"),
    "empty file": t("empty"),
    "one newline": t("newline"),
    "columns": t("columns", "string", "int64", 0, 1),
    "columns float": t("columns", "string", "float32", 0, 2),
    "columns double": t("columns", "string", "float64", 0, 2),
    "columns int32": t("columns", "string", "int32", 0, 1),
    "columns back": t("columns", "int64", "string", 1, 0),
    "column and line": t("columns", "string", "int64", 0, LINE_NUMBER),
    "column and whole": t("columns", "int64", "string", 1, WHOLE_LINE),
    "column beyond": t("columns", "string", "int64", 0, 3),
    "commas": t("commas", "string", "int64", 0, 1, delimiter=","),
    "wrong delimiter": t("commas", "string", "int64", 0, 1),
    "delimiter two": t("commas", "string", "int64", 0, 1, delimiter=",,"),
    "delimiter none": t("commas", "string", "int64", 0, 1, delimiter=""),
    "short line": t("short line", "string", "int64", 0, 1),
    "long line": t("long line", "string", "int64", 0, 1),
    "whole numbers": t("numbers", "int64", "int64"),
    "whole numbers int32": t("numbers", "int32", "int32", WHOLE_LINE, WHOLE_LINE),
    "bad numbers": t("bad numbers", "int64", "int64"),
    "blank numbers": t("blank numbers", "int64", "int64", 0, 1),
    "large numbers": t("large numbers", "int64", "int64"),
    "large numbers int32": t("large numbers", "int32", "int32", WHOLE_LINE, WHOLE_LINE),
    "too large": t("too large", "int64", "int64"),
    "no number": t("no number", "int64", "int64", 0, 1),
    "reals": t("reals", "string", "float32", 0, 1),
    "reals double": t("reals", "string", "float64", 0, 1),
    "bytes": t("bytes"),
    "vocabulary of 0": t("words", vocab_size=0),
    "vocabulary of 2": t("words", vocab_size=2),
    "vocabulary of 3": t("words", vocab_size=3),
    "vocabulary of 4": t("words", vocab_size=4),
    "vocabulary of columns": t("columns", "string", "int64", 0, 1, vocab_size=1),
    "vocabulary before the doubled": t("doubled", vocab_size=2),
    "vocabulary before a short line": t("short line", "string", "int64", 0, 1, vocab_size=1),
    "offset": t("words", offset=10),
    "offset back": t("words", "int64", "string", LINE_NUMBER, WHOLE_LINE, offset=5),
    "line number as int32": t("words", "string", "int32"),
    "line number as int32 key": t("words", "int32", "string", LINE_NUMBER, WHOLE_LINE),
    "whole line as float": t("words", "string", "float32", 0, WHOLE_LINE),
    "twice": t("words", times=2),
    "no such file": t("none"),
    "no file name": t("words", filename=""),
    "two file names": t("words", filename=["a", "b"]),
    "a mutable table": t("words", make=R.MutableHashTableV2),
}


def cases():
    for name, build in PROGRAMS.items():
        yield f"file/{name}", build
