"""A worker with a simulated GPU is killed in each phase of training steps and of saves, and starts
again. The client gets ABORTED once for each of its ends, restores the last checkpoint and goes on,
and computes what it would have computed without them."""
import json
import os
import signal
import unittest

import harness
import test_gpu
from harness import LineReader, TestCase, WARM_PYTHON, program

# Adds to a variable of task 1's GPU what task 0's GPU sends, and saves it by other steps. Each line
# is what one run has told. The variable is never other than its number of steps says.
TRAINING = """
import json
import os
import sys
import numpy
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
target, folder, end = sys.argv[1:]
N, EVERY = 70_000, 4
GPUS = ["/job:worker/task:%d/device:GPU:0" % task for task in range(2)]
x = tf1.placeholder(tf.float32, [])
with tf.device(GPUS[0]):
    sent = tf.fill([N], x) * 2.0
with tf.device(GPUS[1]):
    v = tf1.get_variable("v", initializer=tf.zeros([N]), use_resource=True)
    n = tf1.get_variable("n", initializer=0.0, use_resource=True)
    one = x
    for _ in range(6):  # enough for a CUDA graph
        one = tf.sqrt(one * x)
    with tf.control_dependencies([v.assign_add(sent * one, read_value=False)]):
        step = n.assign_add(1.0, read_value=True)
    ends = tf.stack([tf.reduce_min(v), tf.reduce_max(v)])
saver = tf1.train.Saver(max_to_keep=2)
path, saved, at, is_lost = None, 0, 0, True

def tell(**what):
    print(json.dumps(what), flush=True)

def begin(session):
    if path:
        saver.restore(session, path)
    else:
        session.run(tf1.global_variables_initializer())

with tf1.Session(target) as session:
    while not os.path.exists(end):
        try:
            if is_lost:
                begin(session)
                is_lost = False
                tell(begun=saved)
            at = int(session.run(step, {x: 1.0}))
            tell(step=at, ends=session.run(ends).tolist())
            if at % EVERY == 0:
                path = saver.save(session, os.path.join(folder, "m"), at, write_meta_graph=False)
                saved = at
                tell(saved=at)
        except tf.errors.OpError as error:
            tell(error=type(error).__name__, message=error.message)
            is_lost = is_lost or isinstance(error, tf.errors.AbortedError)
"""
MOST_STEPS = 60
# Calls of the driver in which the worker ends, one after the other. In the first ones the session's
# graph is registered: there is nothing yet whose loss it could be told.
UNUSED = ("cuMemHostAlloc:1", "cuMemCreate:1", "cuMemcpyHtoDAsync:1")
PHASES = ("cuMemHostRegister:1",     # a value is received
          "cuMemcpyHtoDAsync:3",     # variables are set
          "cuMemcpyHtoDAsync:9",
          "cuLaunchKernel:5",
          "cuStreamWaitEvent:4",
          "cuEventSynchronize:12",
          "cuStreamBeginCapture:1",
          "cuGraphInstantiate:1",
          "cuGraphLaunch:1",         # a replay
          "cuGraphLaunch:4",
          "cuMemcpyDtoHAsync:9",     # both variables are saved, after four steps of two fetches
          "cuMemcpyDtoHAsync:10",
          "cuMemcpyDtoHAsync:19",    # the next checkpoint, which follows one
          "cuMemcpyHtoDAsync:4")  # fmt: skip


@unittest.skipUnless(os.path.exists(os.path.join(test_gpu.SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuKills(TestCase):
    def start_worker(self, task, address="127.0.0.1:0", last=""):
        ports = self.path(f"ports-{task}")
        env = {**test_gpu.simulation(1), "MILLRACE_SIM_REPORT": self.path("report"),
               "MILLRACE_SIM_LAST": last}
        worker = self.popen([program("tf-worker"), "--task", task, "--listen", address,
                             "--port-file", ports, "--gpu=require", "--gpu-copy-threads=1",
                             f"--file-root={self.tmp}"], env)
        LineReader(worker.stderr).until("serving on")
        with open(ports, encoding="utf-8") as text:
            port = int(text.read().split("admin")[0])
        os.remove(ports)
        return worker, f"127.0.0.1:{port}"

    def start_client(self, *addresses):
        ports = self.path("ports-m")
        self.master = self.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file",
                                  ports, "--cluster", "worker=" + ";".join(addresses)])
        LineReader(self.master.stderr).until("serving grpc on")
        with open(ports, encoding="utf-8") as text:
            target = f"grpc://127.0.0.1:{int(text.read().split()[0])}"
        self.end = self.path("end")
        client = self.popen([WARM_PYTHON, "-c", TRAINING, target, self.tmp, self.end],
                            self.environment(TF_CPP_MIN_LOG_LEVEL=3))
        return client, LineReader(client.stdout)

    def next(self):
        """What the client tells next."""
        line = self.lines.line()
        self.assertIsNotNone(line, self.lines.text[-2000:])
        told = json.loads(line)
        if "step" in told:
            self.assertEqual(told["ends"], [2.0 * told["step"]] * 2)
        if "error" in told:
            self.assertIn(told["error"], ("UnavailableError", "AbortedError"), told)
            self.n_aborted += told["error"] == "AbortedError"
        if "begun" in told:
            self.assertEqual(told["begun"], self.saved)
        self.saved = told.get("saved", self.saved)
        return told

    def end_in(self, worker, phase):
        """Reads what the client tells until the worker has ended."""
        n_steps = 0
        while worker.poll() is None:
            n_steps += "step" in self.next()
            self.assertLess(n_steps, MOST_STEPS, f"nothing ends in {phase}")
        self.assertEqual(worker.wait(), -signal.SIGKILL)

    def test_training_survives_its_worker_in_each_phase(self):
        self.saved = self.n_aborted = 0
        other, other_address = self.start_worker(0)
        phases = (*UNUSED, *PHASES, "")
        worker, address = self.start_worker(1, last=phases[0])
        client, self.lines = self.start_client(other_address, address)
        for phase, following in zip(phases, phases[1:]):
            self.end_in(worker, phase)
            worker, _ = self.start_worker(1, address, following)
        n_saves = 0
        while n_saves < 2:
            n_saves += "saved" in self.next()
        with open(self.end, "w", encoding="utf-8"):
            pass
        _, err = client.communicate(timeout=harness.DEADLINE_S)
        self.assertEqual(client.returncode, 0, err)
        self.assertEqual(self.n_aborted, len(PHASES))
        for process in (other, worker):
            self.assertIsNone(process.poll())
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 0)
        self.assertFalse(os.path.exists(self.path("report")))


if __name__ == "__main__":
    unittest.main()
