"""What test_traces.py runs on a cluster: traces a step between a parameter server and a worker, and
prints what RunMetadata says of it as JSON.

    trace_programs.py TARGET
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from tensorflow.python.client import timeline  # noqa: E402

tf.disable_eager_execution()


def main():
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(np.ones([512, 512], np.float32), use_resource=True, name="v")
        small = tf.Variable(np.ones([4], np.float32), use_resource=True, name="small")
        doubled = tf.multiply(v.read_value(), 2.0, name="doubled")
        there = tf.multiply(small.read_value(), 2.0, name="there")
    with tf.device("/job:worker/task:0"):
        product = tf.matmul(doubled, doubled, name="product")
        total = tf.reduce_sum(product) + tf.reduce_sum(tf.square(there, name="here"))
    metadata = tf.RunMetadata()
    with tf.Session(sys.argv[1]) as session:
        session.run(tf.global_variables_initializer())
        session.run(total)
        before = time.time()
        session.run(total, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
                    run_metadata=metadata)
        after = time.time()
    events = json.loads(timeline.Timeline(metadata.step_stats).generate_chrome_trace_format())
    pids = {e["pid"]: e["args"]["name"] for e in events["traceEvents"]
            if e.get("name") == "process_name"}
    starts = {e["id"]: pids[e["pid"]] for e in events["traceEvents"] if e.get("ph") == "s"}
    print(json.dumps({
        "before_us": before * 1e6, "after_us": after * 1e6,
        "nodes": [{"device": device.device, "name": node.node_name,
                   "label": node.timeline_label, "start_us": node.all_start_micros,
                   "end_us": node.all_start_micros + node.all_end_rel_micros}
                  for device in metadata.step_stats.dev_stats for node in device.node_stats],
        "arrows": [[starts[e["id"]], pids[e["pid"]], e["name"]] for e in events["traceEvents"]
                   if e.get("ph") == "t"]}))


main()
