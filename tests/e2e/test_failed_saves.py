"""A save that fails leaves a line in the log of its task, and is counted."""
from harness import WARM_PYTHON, TestCase

PROGRAM = """
import json, os, re, sys, time, urllib.request
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
value = tf1.get_variable("v", [2])
saver = tf1.train.Saver([value])
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def counts():
    address = json.loads(os.environ["MILLRACE_ADMIN"])["worker/0"]
    text = opener.open(f"http://{address}/metrics").read().decode()
    return [int(n) for n in re.findall(r"(?m)^millrace_saves(?:_failed)?_total (\\d+)$", text)]
def last_save():
    address = json.loads(os.environ["MILLRACE_ADMIN"])["worker/0"]
    text = opener.open(f"http://{address}/metrics").read().decode()
    return int(re.search(r"(?m)^millrace_last_save_timestamp_seconds (\\d+)$", text).group(1))
with tf1.Session(os.environ["MILLRACE_TARGET"]) as session:
    session.run(value.initializer)
    feed = saver.saver_def.filename_tensor_name
    print(counts(), last_save())
    session.run(saver.saver_def.save_tensor_name, {feed: sys.argv[1] + "/good"})
    print(counts(), abs(time.time() - last_save()) < 60)
    try:
        session.run(saver.saver_def.save_tensor_name, {feed: "/proc/no/bad"})
    except tf.errors.OpError as error:
        print(type(error).__name__)
    print(sorted(counts()))
"""


class TestFailedSaves(TestCase):
    def test_the_log_and_the_metric(self):
        out, err = self.expect(0, "tfctl", "local", "--workers", "1", "--", WARM_PYTHON, "-c",
                               PROGRAM, self.tmp, env={"TF_CPP_MIN_LOG_LEVEL": 3})
        before, good, error, bad = out.splitlines()
        self.assertEqual((before, good), ("[0, 0] 0", "[1, 0] True"), out)
        self.assertRegex(error, "Error$")
        self.assertEqual(bad, "[1, 2]")
        [line] = [line for line in err.splitlines() if "SaveV2 to" in line]
        self.assertIn("E /job:worker/replica:0/task:0", line)
        self.assertIn("the checkpoint before it is intact", line)
