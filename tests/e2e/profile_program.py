"""The program of test_profile.py: steps on a cluster, while TensorFlow's client captures them."""
import glob
import json
import os
import sys
import threading

import tensorflow as tf

from tensorflow.tsl.profiler.protobuf import xplane_pb2

tf1 = tf.compat.v1
tf1.disable_eager_execution()
TARGET, LOGDIR = os.environ["MILLRACE_TARGET"], sys.argv[1]

with tf1.device("/job:ps/task:0"):
    v = tf1.get_variable("v", [64, 64])
with tf1.device("/job:worker/task:0"):
    x = tf1.random_uniform([64, 64], name="x")
    total = tf.reduce_sum(tf.linalg.matmul(x, v, name="product"), name="total")
session = tf1.Session(TARGET)
session.run(tf1.global_variables_initializer())
done, ran = threading.Event(), threading.Event()


def steps():
    while not done.is_set():
        session.run(total)
        ran.set()


thread = threading.Thread(target=steps)
thread.start()
ran.wait()
tf.profiler.experimental.client.trace(TARGET, LOGDIR, 300, num_tracing_attempts=1)
monitor = tf.profiler.experimental.client.monitor(TARGET, 100, level=1)
done.set()
thread.join()
[path] = glob.glob(os.path.join(LOGDIR, "plugins", "profile", "*", "*.xplane.pb"))
space = xplane_pb2.XSpace()
with open(path, "rb") as f:
    space.ParseFromString(f.read())
lines = {}
for plane in space.planes:
    for line in plane.lines:
        names = {plane.event_metadata[event.metadata_id].name for event in line.events}
        assert all(event.duration_ps >= 0 for event in line.events)
        lines.setdefault(plane.name, {})[line.name] = sorted(names)
empty = "none"
try:
    tf.profiler.experimental.client.trace(TARGET, LOGDIR, 1, num_tracing_attempts=1)
except RuntimeError as e:
    empty = str(e)
print(json.dumps({"lines": lines, "monitor": monitor, "hosts": list(space.hostnames),
                  "empty": empty}))
