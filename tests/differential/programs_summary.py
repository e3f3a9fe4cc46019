"""Summary writers: what TensorBoard's files hold after a program has written them, but for the
times."""

import atexit
import shutil
import tempfile

import numpy as np
from programs import WORKER1, Run, tf, tf1

R = tf.raw_ops
WALL_TIME_BYTES = 9  # the first field of every Event
PICTURE = np.random.default_rng(3).random((2, 4, 3, 3)).astype(np.float32)
SOUND = np.random.default_rng(4).normal(size=(2, 50, 1)).astype(np.float32)


def _events(directory):
    """The Events of the directory's only file, without their times, and without the first one,
    which names who wrote it."""
    names = tf.io.matching_files(tf.constant(directory + "/*"))
    reader = R.TFRecordReaderV2()
    queue = R.FIFOQueueV2(component_types=[tf.string], shapes=[[]])
    filled = R.QueueEnqueueManyV2(handle=queue, components=[names])
    with tf.control_dependencies([filled]):
        closed = R.QueueCloseV2(handle=queue)
    with tf.control_dependencies([closed]):
        read = R.ReaderReadUpToV2(reader_handle=reader, queue_handle=queue,
                                  num_records=np.int64(100))
    return tf.strings.substr(read.values, WALL_TIME_BYTES, 1 << 20)[1:], tf.shape(names)


def _writer(device, **keywords):
    directory = tempfile.mkdtemp(prefix="millrace-summary-")
    atexit.register(shutil.rmtree, directory, True)
    with tf.device(device):
        writer = R.SummaryWriter(shared_name=keywords.get("name", "writer"))
        arguments = {"logdir": directory + "/a/b", "max_queue": keywords.get("max_queue", 10),
                     "flush_millis": 100000, "filename_suffix": ".v2"}
        return writer, R.CreateSummaryFileWriter(writer=writer, **arguments), directory + "/a/b"


def _all_kinds():
    writer, create, directory = _writer(WORKER1)
    with tf.device(WORKER1):
        step = np.int64(7)
        metadata = tf1.SummaryMetadata(display_name="shown").SerializeToString()
        summary = tf1.summary.Summary(value=[tf1.summary.Summary.Value(tag="raw",
                simple_value=2.5)])
        graph = tf1.GraphDef(node=[tf1.NodeDef(name="n", op="NoOp")]).SerializeToString()
        event = tf1.Event(wall_time=3.0, step=9, summary=summary).SerializeToString()
        writes = [
            R.WriteScalarSummary(writer=writer, step=step, tag="loss", value=np.float32(1.5)),
            R.WriteScalarSummary(writer=writer, step=step, tag="count", value=np.int64(-3)),
            R.WriteSummary(writer=writer, step=step, tensor=np.arange(6.0).reshape(2, 3),
                           tag="tensor", summary_metadata=metadata),
            R.WriteSummary(writer=writer, step=step, tensor=np.array([b"x", b"yy"], object),
                           tag="words", summary_metadata=b""),
            R.WriteHistogramSummary(writer=writer, step=step, tag="h",
                                    values=np.array([1.0, 2, 2, -5], np.float32)),
            R.WriteImageSummary(writer=writer, step=step, tag="i", tensor=PICTURE,
                                bad_color=np.array([255, 0, 0, 255], np.uint8)),
            R.WriteAudioSummary(writer=writer, step=step, tag="a", tensor=SOUND,
                                sample_rate=np.float32(8000)),
            R.WriteRawProtoSummary(writer=writer, step=step, tensor=summary.SerializeToString()),
            R.WriteGraphSummary(writer=writer, step=step, tensor=graph),
            R.ImportEvent(writer=writer, event=event),
        ]
        flush, close = R.FlushSummaryWriter(writer=writer), R.CloseSummaryWriter(writer=writer)
        return [Run(create)] + [Run(write) for write in writes] + [
            Run(flush), Run(_events(directory)), Run(close), Run(writes[0])]


def _queue_of_one():
    """Every second event goes to the file."""
    writer, create, directory = _writer(WORKER1, max_queue=1, name="short")
    with tf.device(WORKER1):
        write = R.WriteScalarSummary(writer=writer, step=np.int64(1), tag="t", value=1.0)
        return [Run(create), Run(create), Run(write), Run(write), Run(_events(directory)),
                Run(R.CloseSummaryWriter(writer=writer)), Run(create)]


def _wrong(make):
    def build():
        writer, create, _ = _writer(WORKER1, name="wrong")
        with tf.device(WORKER1):
            return [Run(create), Run(make(writer)), Run(R.CloseSummaryWriter(writer=writer))]

    return build


def cases():
    yield "summary writer/all kinds", _all_kinds
    yield "summary writer/queue of one", _queue_of_one
    none = tf.float32.as_numpy_dtype
    wrong = {
        "histogram of NaN": lambda w: R.WriteHistogramSummary(
            writer=w, step=np.int64(1), tag="h", values=none(np.nan)),
        "image of rank 3": lambda w: R.WriteImageSummary(
            writer=w, step=np.int64(1), tag="i", tensor=PICTURE[0],
            bad_color=np.zeros(4, np.uint8)),
        "raw proto": lambda w: R.WriteRawProtoSummary(
            writer=w, step=np.int64(1), tensor=b"\xff\xff"),
        "graph": lambda w: R.WriteGraphSummary(writer=w, step=np.int64(1), tensor=b"\xff\xff"),
        "event": lambda w: R.ImportEvent(writer=w, event=b"\xff\xff"),
        "unknown writer": lambda w: R.FlushSummaryWriter(
            writer=R.SummaryWriter(shared_name="nobody")),
    }
    for name, make in wrong.items():
        yield f"summary writer/wrong {name}", _wrong(make)
