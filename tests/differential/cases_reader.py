"""Cases of readers: lines, blocks, TFRecords, whole files; queues that run dry; counts, resets,
states; damaged files."""

import atexit
import gzip
import os
import shutil
import tempfile
import zlib

import numpy as np
import tensorflow as tf

import oracle

R = tf.raw_ops
DIR = tempfile.mkdtemp(prefix="millrace-cases-reader-")
atexit.register(shutil.rmtree, DIR, True)


def file(name, data):
    path = os.path.join(DIR, name)
    with open(path, "wb") as out:
        out.write(data)
    return path


def records(name, values, kind=""):
    path = os.path.join(DIR, name)
    with tf.io.TFRecordWriter(path, kind) as writer:
        for value in values:
            writer.write(value)
    return path


LINES = [file("lines-a", b"one\ntwo\r\nthree\n\nfive"), file("lines-empty", b""),
         file("lines-b", b"\n\nlast\n"), file("lines-long", b"x" * 200001 + b"\n" + b"y" * 70000)]
BLOCKS = bytes(range(97, 123)) * 3
TF_VALUES = [b"", b"a", b"bc" * 100, b"z" * 150000]


def strings(*values):
    return tf.constant(np.array(values, object), tf.string, shape=(len(values),))


class Rig:
    """A reader, a queue and what runs on them, in either form of handle."""

    def __init__(self, kind, v2=True, capacity=100, **attrs):
        self.suffix = "V2" if v2 else ""
        queue = R.FIFOQueueV2 if v2 else R.FIFOQueue
        self.queue = queue(component_types=[tf.string], shapes=[[]], capacity=capacity,
                           shared_name=f"queue-{kind}")
        self.reader = getattr(R, kind + self.suffix)(**attrs)

    def op(self, name, **inputs):
        return getattr(R, name + self.suffix)(reader_handle=self.reader, **inputs)

    def fill(self, *names, close=True):
        enqueue = getattr(R, "QueueEnqueueMany" + self.suffix)
        steps = [oracle.Step(targets=[enqueue(handle=self.queue,
                                              components=[strings(*names)])])] if names else []
        if close:
            steps.append(oracle.Step(targets=[getattr(R, "QueueClose" + self.suffix)(
                handle=self.queue)]))
        return steps

    def read(self, n=1):
        return [oracle.Step(list(self.op("ReaderRead", queue_handle=self.queue))) for _ in range(n)]

    def read_up_to(self, limit, n=1):
        limit = tf.constant(limit, tf.int64)
        return [oracle.Step(list(self.op("ReaderReadUpTo", queue_handle=self.queue,
                                         num_records=limit))) for _ in range(n)]

    def counts(self):
        return [oracle.Step([self.op("ReaderNumRecordsProduced"),
                             self.op("ReaderNumWorkUnitsCompleted")])]


def all_records(kind, names, n, v2=True, **attrs):
    def build():
        rig = Rig(kind, v2, **attrs)
        return rig.fill(*names) + rig.counts() + rig.read(n) + rig.counts()

    return build


def batches(kind, names, limit, n, v2=True, **attrs):
    def build():
        rig = Rig(kind, v2, **attrs)
        return rig.fill(*names) + rig.read_up_to(limit, n) + rig.counts()

    return build


def reading():
    gone = os.path.join(DIR, "gone")
    for skip in (0, 1, 3):
        yield f"TextLineReader/{skip}", all_records(
            "TextLineReader", LINES, 11, skip_header_lines=skip)
    yield "IdentityReader", all_records("IdentityReader", ["a", "", "b/c"], 4)
    for v2 in (True, False):  # the only reader of the first form that a new graph may have
        yield f"WholeFileReader/{v2}", all_records("WholeFileReader", LINES, 5, v2)
    yield "TextLineReader/gone", all_records("TextLineReader", [LINES[0], gone, LINES[2]], 7)
    yield "WholeFileReader/gone", all_records("WholeFileReader", [gone], 1)
    yield "WholeFileReader/directory", all_records("WholeFileReader", [gone + "/x"], 1)
    yield "TextLineReader/wrong skip", all_records("TextLineReader", LINES, 1, skip_header_lines=-1)
    # fmt: skip
    for attrs in ({"record_bytes": 10}, {"record_bytes": 7, "header_bytes": 3},
                  {"record_bytes": 7, "header_bytes": 3, "footer_bytes": 5},
                  {"record_bytes": 5, "hop_bytes": 2},
                  {"record_bytes": 5, "hop_bytes": 20, "header_bytes": 1, "footer_bytes": 2},
                  {"record_bytes": 500}, {"record_bytes": 78},
                  {"record_bytes": 5, "header_bytes": 100}, {"record_bytes": 2, "hop_bytes": 2}):
        plain = [file("blocks", BLOCKS), file("blocks-none", b"")]
        packed = [file("blocks-zlib", zlib.compress(BLOCKS))]
        n = 45
        yield f"FixedLengthRecordReader/{attrs}", all_records(
            "FixedLengthRecordReader", plain, n, **attrs)
        yield f"FixedLengthRecordReader/zlib {attrs}", all_records(
            "FixedLengthRecordReader", packed, n, encoding="ZLIB", **attrs)
    for attrs in ({"record_bytes": -1}, {"record_bytes": 5, "header_bytes": -1},
                  {"record_bytes": 5, "footer_bytes": -1}, {"record_bytes": 5, "hop_bytes": -1}):
        yield f"FixedLengthRecordReader/wrong {attrs}", all_records(
            "FixedLengthRecordReader", [], 1, **attrs)
    for kind in ("", "GZIP", "ZLIB"):
        names = [records(f"tf-{kind}-{i}", values, kind) for i,
                 values in enumerate((TF_VALUES, [], [b"last"]))]
        yield f"TFRecordReader/{kind}", all_records(
            "TFRecordReader", names, 6, compression_type=kind)
    whole = open(records("tf-damaged", [b"first", b"second"]), "rb").read()
    first = len(whole) // 2
    for at in (0, 9, 13, 19, first - 1, first + 4, first + 14):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        yield f"TFRecordReader/damaged {at}", all_records(
            "TFRecordReader", [file(f"tf-damaged-{at}", bytes(damaged))], 2)
    for n in (1, 11, 12, 15, first - 1, first + 3, len(whole) - 1):
        yield f"TFRecordReader/cut {n}", all_records(
            "TFRecordReader", [file(f"tf-cut-{n}", whole[:n])], 2)
    packed = gzip.compress(whole)
    yield "TFRecordReader/cut gzip", all_records("TFRecordReader", [file("tf-cut.gz", packed[:20])],
            1, compression_type="GZIP")


def some_at_a_time():
    for limit in (1, 2, 3, 100):
        yield f"ReaderReadUpTo/lines/{limit}", batches("TextLineReader", LINES, limit, 4)
    yield "ReaderReadUpTo/identity", batches("IdentityReader", ["a", "b"], 5, 3)
    yield "ReaderReadUpTo/whole", batches("WholeFileReader", LINES, 2, 3, False)
    # at -1 TensorFlow aborts, and we refuse
    yield "ReaderReadUpTo/0", batches("TextLineReader", LINES, 0, 1)
    names = [records(f"tf-up-to-{i}", values) for i,
             values in enumerate(([b"a", b"b", b"c"], [], [b"d"]))]
    yield "ReaderReadUpTo/records", batches("TFRecordReader", names, 2, 4)
    yield "ReaderReadUpTo/blocks", batches("FixedLengthRecordReader",
                                           [file("up-to-blocks", BLOCKS)], 4, 4, record_bytes=9)


def states():
    def reset(kind, names, v2):
        def build():
            rig = Rig(kind, v2)
            steps = rig.fill(*names) + rig.read(2) + rig.counts()
            return steps + [oracle.Step(targets=[rig.op("ReaderReset")])] + rig.counts() + rig.read(
                1) + rig.counts()

        return build

    def saved(kind, names, n):
        def build():
            rig = Rig(kind)
            steps = rig.fill(*names) + rig.read(n)
            state = rig.op("ReaderSerializeState")
            steps.append(oracle.Step([state]))
            other = Rig(kind)
            steps.append(oracle.Step(targets=[other.op("ReaderRestoreState", state=state)]))
            read_on = oracle.Step(list(other.op("ReaderRead", queue_handle=rig.queue)))
            return steps + other.counts() + [oracle.Step([other.op("ReaderSerializeState")]),
                                             read_on] + other.counts()

        return build

    def restored(kind, state):
        def build():
            rig = Rig(kind)
            return [oracle.Step(targets=[rig.op("ReaderRestoreState",
                                                state=tf.constant(state))])] + rig.counts()

        return build

    yield "ReaderReset/lines", reset("TextLineReader", LINES, True)
    yield "ReaderReset/identity", reset("IdentityReader", ["a", "b", "c"], True)
    yield "ReaderReset/whole", reset("WholeFileReader", LINES, False)
    for n in (0, 1, 2):
        yield f"ReaderSerializeState/identity/{n}", saved("IdentityReader", ["a", "b", "c"], n)
        yield f"ReaderSerializeState/whole/{n}", saved("WholeFileReader", LINES, n)
    yield "ReaderSerializeState/lines", saved("TextLineReader", LINES, 0)
    for state in (b"", b"\x08\x02\x10\x01\x18\x01\x22\x01q", b"BOGUS", b"\x08\x05\x10\x01",
                  b"\x08\x01\x10\x02", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                  b"\x22\x05ab", [b"a"]):
        yield f"ReaderRestoreState/{state}", restored("IdentityReader", state)


def record_input():
    """Order is random: batches of whole epochs are compared, sorted."""
    for kind, coding in (("plain", ""), ("zlib", "ZLIB"), ("gzip", "GZIP")):
        for i, n in enumerate((4, 0, 5, 3)):
            records(f"input-{kind}-{i}", [str(100 * i + k).encode() for k in range(n)], coding)

    def epochs(kind, batch, n, **attrs):
        def build():
            made = R.RecordInput(file_pattern=os.path.join(DIR, f"input-{kind}-*"),
                                 batch_size=batch, file_buffer_size=100, file_parallelism=1,
                                 **attrs)
            return [oracle.Step([tf.sort(tf.strings.to_number(made, tf.int32))])] * n

        return build

    for kind, coding in (("plain", ""), ("zlib", "ZLIB"), ("gzip", "GZIP"), ("none", ""),
                         ("plain-1", ""), ("plain", "ZLIB"), ("plain", "BOGUS")):
        yield f"RecordInput/{kind},{coding}", epochs(kind, 12, 3, compression_type=coding)
    yield "RecordInput/shift", epochs("plain", 12, 3, file_shuffle_shift_ratio=0.4,
                                      file_random_seed=5)
    yield "RecordInput/two epochs", epochs("plain", 24, 2)


def cases():
    for group in (reading, some_at_a_time, states, record_input):
        for name, build in group():
            yield name, build, {"modes": ("static",)}
