"""Programs on workers with simulated GPUs compute what TensorFlow computes on its CPU."""
import ctypes
import glob
import json
import os
import unittest

import harness
import raw_clients as rc
from harness import LineReader, ROOT, SANITIZED, WARM_PYTHON, program, sanitized_too

BUILD = os.path.dirname(os.path.dirname(program("tf-worker")))
SIMULATION = os.path.join(BUILD, "tests", "cuda")
# A sanitized build has no kernels of its own: the device process is not sanitized.
KERNELS = os.path.join(ROOT, os.environ.get("MILLRACE_KERNELS_BUILD", BUILD), "tests", "cuda")
PROGRAMS = os.path.join(ROOT, "tests", "e2e", "gpu_programs.py")
DEBUGGED = os.path.join(ROOT, "tests", "e2e", "debugger_programs.py")
# Sums of products are in another order.
TOLERANCE = 2e-5


SOME_PROGRAMS = ["mlp", "lstm_functional", "mixed_devices", "checkpoint"]

# Says what a variable holds after it was restored or set, and changed, and saves it.
CHECKPOINT = """
import sys
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
target, wanted, old, new = sys.argv[1:]
with tf.device("/job:worker/task:0/device:" + wanted):
    v = tf1.get_variable("v", initializer=[[1.0, 2.0], [3.0, 4.0]])
    slot = tf1.get_variable("slot", initializer=tf.constant([5, 6], tf.int64), trainable=False)
    change = [v.assign(v * 3.0), slot.assign_add([1, 1])]
saver = tf1.train.Saver()
with tf1.Session(target) as session:
    if old:
        saver.restore(session, old)
    else:
        session.run(tf1.global_variables_initializer())
    session.run(change)
    saver.save(session, new)
    print([value.tolist() for value in session.run([v, slot])])
"""

TWO_STEPS = """
import sys
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
x = tf1.placeholder(tf.float32, [64])
with tf.device("/device:GPU:0"):
    y = tf.reduce_max(x + 1.0)
with tf1.Session(sys.argv[1], graph=y.graph) as session:
    for _ in range(2):
        try:
            print(session.run(y, {x: [2.0] * 64}))
        except tf.errors.OpError as error:
            print(type(error).__name__, error.message.replace(chr(10), " "))
"""


# What a product and a convolution of a number make that TF32 has no bits for.
PRECISION = """
import sys
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
x = tf1.placeholder(tf.float32, [2, 2])
image = tf.reshape(x, [1, 2, 2, 1])
with tf.device("/device:GPU:0"):
    product = tf.matmul(x, tf.eye(2))
    image = tf.nn.conv2d(image, tf.ones([1, 1, 1, 1]), 1, "SAME")
with tf1.Session(sys.argv[1], graph=x.graph) as session:
    feed = {x: [[1 + 2**-14, 1], [1, 1]]}
    print([float(value.flat[0] - 1) * 2**14 for value in session.run([product, image], feed)])
"""


# Trains on a GPU until it is lost, and says what each step was told. Then the same session's steps
# on the CPU, and a new session, which does without the GPU.
LOSS = """
import json
import sys
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
config = tf1.ConfigProto(allow_soft_placement=True)
with tf.device("/job:worker/task:0/device:GPU:0"):
    v = tf1.get_variable("v", initializer=tf.zeros([64]), use_resource=True)
    step = tf.reduce_sum(v.assign_add(tf.ones([64]) * 2.0, read_value=True))
with tf.device("/job:worker/task:0/device:CPU:0"):
    n = tf1.get_variable("n", initializer=0.0, use_resource=True)
    count = n.assign_add(1.0, read_value=True)
told, told_on_cpu = [], []

def try_to_run(session, what, where):
    try:
        session.run(what)
    except tf.errors.OpError as error:
        where.append([type(error).__name__, error.message])

with tf1.Session(sys.argv[1], config=config) as session:
    session.run(tf1.global_variables_initializer())
    for _ in range(2000):
        try_to_run(session, step, told)
        try_to_run(session, count, told_on_cpu)
        if any(name == "AbortedError" for name, _ in told):
            break
    for _ in range(3):
        try_to_run(session, step, told)
        try_to_run(session, count, told_on_cpu)
with tf1.Session(sys.argv[1], config=config) as session:
    devices = [device.name for device in session.list_devices()]
    session.run(v.initializer)
    print(json.dumps([told, told_on_cpu, devices, float(session.run(step))]))
"""


# A loop in a loop whose gradient keeps ten times the memory of the GPU, with stacks and a condition
# that the GPU computes, and with TensorLists. Then without swap_memory.
SWAPPING = """
import json
import sys
import numpy
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
SIZE, N = 20000, 130  # 2 · 4 · SIZE · N bytes: ten times 2 MiB

def loop(n, y, body, swaps=True):
    return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, body(y)), [0, y],
                         parallel_iterations=1, swap_memory=swaps)[1]

def run(device, is_v2, swaps=True):
    (tf1.enable_control_flow_v2 if is_v2 else tf1.disable_control_flow_v2)()
    with tf.Graph().as_default() as graph, tf.device(device):
        x = tf1.placeholder(tf.float32, [SIZE])
        w = tf.reduce_mean(x) * 0.5
        step = lambda y: tf.sin(y * w) + x
        branch = lambda y: tf.cond(tf.reduce_mean(y) > 1.2, lambda: step(y), lambda: y + x)
        if is_v2:  # a cond's Optionals are on the CPU
            branch = step
        y = loop(N // 5, x, lambda y: loop(5, branch(y), step, swaps), swaps)
        grad = tf.gradients(tf.reduce_mean(y), x)[0]
        total = tf.reduce_sum(grad * tf.range(float(SIZE)) / SIZE)
        with tf1.Session(sys.argv[1]) as session:
            feed = {x: numpy.linspace(0.5, 1.5, SIZE).astype("float32")}
            return [float(value) for value in session.run([y[0], total], feed)]

CPU, GPU = ("/job:worker/task:0/device:" + name for name in ("CPU:0", "GPU:0"))
for is_v2 in (False, True):
    print(json.dumps([run(device, is_v2) for device in (CPU, GPU)]))
try:
    print(json.dumps(run(GPU, False, swaps=False)))
except tf.errors.ResourceExhaustedError:
    print(json.dumps("no memory"))
"""


# A cond in a loop of TensorFlow 2, whose optionals move, too, and a TensorArray that a loop writes
# and another one reads: both keep ten times 16 MiB.
SWAPPING_MORE = """
import json
import sys
import numpy
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
SIZE = 80000
CPU, GPU = ("/job:worker/task:0/device:" + name for name in ("CPU:0", "GPU:0"))

def loop(n, body, *values):
    return tf.while_loop(lambda i, *y: i < n, lambda i, *y: (i + 1, *body(i, *y)), [0, *values],
                         parallel_iterations=1, swap_memory=True)[1:]

def conditions(x):
    w = tf.reduce_mean(x) * 0.5
    branch = lambda i, y: [tf.cond(tf.reduce_mean(y) > 1.2, lambda: tf.sin(y * w) + x,
                                   lambda: y + x)]
    y, = loop(260, branch, x)
    return [y[0], tf.reduce_sum(tf.gradients(tf.reduce_mean(y), x)[0] * x)]

def array(x):
    n = 520
    made = tf.TensorArray(tf.float32, n, element_shape=[SIZE])
    y, made = loop(n, lambda i, y, to: (tf.sin(y) + x, to.write(i, y)), x, made)
    total, = loop(n, lambda i, s: [s + made.read(i)], tf.zeros([SIZE]))
    return [y[0], tf.reduce_mean(total)]

for is_v2, make in ((True, conditions), (False, array)):
    (tf1.enable_control_flow_v2 if is_v2 else tf1.disable_control_flow_v2)()
    found = []
    for device in (CPU, GPU):
        with tf.Graph().as_default() as graph, tf.device(device):
            x = tf1.placeholder(tf.float32, [SIZE])
            fetches = make(x)
            with tf1.Session(sys.argv[1]) as session:
                feed = {x: numpy.linspace(0.5, 1.5, SIZE).astype("float32")}
                found.append([float(value) for value in session.run(fetches, feed)])
    print(json.dumps(found))
"""


# Keeps a tensor of one GPU, and asks for it on each.
KEPT = """
import sys
import tensorflow as tf
tf1, raw = tf.compat.v1, tf.raw_ops
tf1.disable_eager_execution()
GPUS = ["/job:worker/replica:0/task:0/device:GPU:%d" % i for i in range(2)]
with tf1.Session(sys.argv[1]) as session:
    with tf.device(GPUS[0]):
        handle = raw.GetSessionHandle(value=tf.constant([1.0, 2.0]) * 3.0)
    place = tf1.placeholder(tf.string)
    kept = session.run(handle)
    for gpu in GPUS:
        with tf.device(gpu):
            value = raw.GetSessionTensor(handle=place, dtype=tf.float32) + 1.0
        try:
            print(session.run(value, {place: kept.handle}).tolist())
        except tf.errors.OpError as error:
            print(type(error).__name__, error.message.replace(chr(10), " "))
"""


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def simulation(n_devices):
    """The environment of a program that finds simulated GPUs."""
    kernels = sorted(glob.glob(os.path.join(KERNELS, "gpu_*.so")))
    env = {"LD_LIBRARY_PATH": os.path.join(SIMULATION, "sim"),
           "MILLRACE_SIM_KERNELS": ":".join(kernels), "MILLRACE_SIM_DEVICES": n_devices}
    if SANITIZED:  # the library handles SIGSEGV itself: the device's memory is closed
        env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
    return env


@unittest.skipUnless(os.path.exists(os.path.join(SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpu(harness.TestCase):
    def run_on_gpus(self, *command, n_devices=2, seed=1, more=None, flags=()):
        """What the command prints on a cluster of two workers, each with some GPUs."""
        report = self.path("report")
        env = {**simulation(n_devices), "MILLRACE_SIM_SEED": seed,
               "MILLRACE_SIM_REPORT": report, "TF_CPP_MIN_LOG_LEVEL": 3, **(more or {})}
        out, _ = self.expect(0, "tfctl", "local", "--workers", 2, "--quiet", "--worker-flag",
                             "--gpu=require", *flags, "--", *command, env=env, timeout_s=280)
        if os.path.exists(report):
            with open(report, encoding="utf-8", errors="replace") as text:
                self.fail(f"the simulated device reports: {text.read()}")
        return out

    @sanitized_too
    def test_programs_compute_the_same(self):
        """Training, also of images, loops, replicas on two GPUs and on two tasks, checkpoints."""
        some = SOME_PROGRAMS if SANITIZED and not harness.LONG else []
        command = 'program=$1; shift; exec "$0" "$program" "$MILLRACE_TARGET" "$@"'
        output = self.run_on_gpus("sh", "-c", command, WARM_PYTHON, PROGRAMS, *some)
        results = [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(results), len(some) or 16)
        for result in results:
            with self.subTest(result["name"]):
                self.assertGreater(result["n_gpu_nodes"], 0)
                self.assertEqual(len(result["local"]), len(result["gpu"]))
                for expected, found in zip(result["local"], result["gpu"]):
                    self.assertLessEqual(abs(expected - found),
                                         TOLERANCE * max(1, abs(expected)), result["name"])

    def test_replayed_steps_have_the_bits_of_launches_one_by_one(self):
        """Training of a dense net, of images and of loops, with CUDA graphs and without."""
        names = ["mlp", "images", "lstm_lowered", "lstm_functional"]
        command = 'program=$1; shift; exec "$0" "$program" "$MILLRACE_TARGET" "$@"'
        found = []
        for graphs in ("off", "auto"):
            out = self.run_on_gpus("sh", "-c", command, WARM_PYTHON, PROGRAMS, *names, n_devices=1,
                                   flags=("--worker-flag", f"--gpu-graphs={graphs}"))
            found.append([json.loads(line)["gpu"] for line in out.splitlines()])
        self.assertEqual(*found)

    def test_a_traced_step_shows_kernels_where_cupti_tells_them(self):
        command = 'program=$1; shift; exec "$0" "$program" "$MILLRACE_TARGET" "$@"'
        for flag, faults, has_kernels in (("auto", "", True), ("events", "", False),
                                          ("auto", "refuse:35", False), ("auto", "late", False)):
            with self.subTest(flag=flag, faults=faults):
                out = self.run_on_gpus("sh", "-c", command, WARM_PYTHON, PROGRAMS, "traced_loop",
                                       n_devices=1, more={"MILLRACE_SIM_CUPTI": faults},
                                       flags=("--worker-flag", f"--gpu-trace={flag}"))
                self.assertEqual([json.loads(line)["gpu"] for line in out.splitlines()],
                                 [[True, True, True, True, has_kernels]])

    def test_a_debugger_sees_variables_without_a_value_as_on_the_cpu(self):
        out = self.run_on_gpus(WARM_PYTHON, DEBUGGED, "everywhere",
                               os.path.join(self.tmp, "dump"), n_devices=1,
                               flags=("--worker-flag", f"--file-root={self.tmp}"))
        seen = dict(line.split(": ", 1) for line in out.splitlines() if ": [" in line)
        self.assertEqual(len(seen), 12, out)
        for name, text in seen.items():
            self.assertEqual(text, seen[name.replace("GPU", "CPU")], name)
            self.assertIn("['', 'DebugIdentity', None]", text)
            self.assertIn("['/Assign', 'DebugIdentity', '[[", text)
        self.assertIn("['', 'DebugNumericSummary', '[0.0, 0.0, 0.0, ", seen["GPU float32"])
        self.assertIn("['', 'DebugNanCount', '[0]']", seen["GPU float32"])

    def test_checkpoints_go_from_gpus_to_cpus_and_back(self):
        """Written on a GPU, restored and changed by a cluster without one, then on a GPU again."""
        paths = ["", *(self.path(f"model-{i}") for i in range(3))]
        found, flags = [], ["--worker-flag", "--file-root=" + self.path("")]
        for i, device in enumerate(("GPU:0", "CPU:0", "GPU:0")):
            command = ["sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET" "$2" "$3" "$4"',
                       WARM_PYTHON, CHECKPOINT, device, paths[i], paths[i + 1]]
            if device == "GPU:0":
                output = self.run_on_gpus(*command, n_devices=1, flags=flags)
            else:
                output, _ = self.expect(0, "tfctl", "local", "--workers", 1, "--quiet",
                                        "--worker-flag", "--gpu=off", *flags, "--", *command)
            found.append(json.loads(output))
        self.assertEqual(found, [[[[3.0, 6.0], [9.0, 12.0]], [6, 7]],
                                 [[[9.0, 18.0], [27.0, 36.0]], [7, 8]],
                                 [[[27.0, 54.0], [81.0, 108.0]], [8, 9]]])

    def test_clients_see_the_devices(self):
        output = self.run_on_gpus(program("tfctl"), "devices")
        for task in range(2):
            for gpu in range(2):
                self.assertIn(f"/job:worker/replica:0/task:{task}/device:GPU:{gpu}", output)

    def test_a_failed_call_is_the_status_of_its_step_alone(self):
        """The first launch stores what is fed, the second one adds."""
        output = self.run_on_gpus("sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET"', WARM_PYTHON,
                                  TWO_STEPS, more={"MILLRACE_SIM_FAIL": "cuLaunchKernel:2:999"})
        first, second = output.splitlines()
        self.assertRegex(first, r"^InternalError .*cuLaunchKernel failed: .*CUDA error 999\) "
                                r"\(add_f32\)")
        self.assertEqual(second, "3.0")

    def test_products_round_to_tf32_unless_a_flag_forbids_it(self):
        command = ["sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET"', WARM_PYTHON, PRECISION]
        found = [json.loads(self.run_on_gpus(*command, n_devices=1, flags=flags,
                                             more={"MILLRACE_SIM_TF32": 1}))
                 for flags in ([], ["--worker-flag", "--no-gpu-tf32"])]
        self.assertEqual(found, [[0.0, 0.0], [1.0, 1.0]])

    def test_a_loop_keeps_ten_times_the_memory_of_its_gpu(self):
        command = ["sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET"', WARM_PYTHON, SWAPPING]
        output = self.run_on_gpus(*command, n_devices=1, flags=["--worker-flag", "--gpu-memory=2M"])
        *results, without = (json.loads(line) for line in output.splitlines())
        self.assertEqual(len(results), 2)
        for on_cpu, on_gpu in results:
            self.assertEqual(on_cpu[0], on_gpu[0])
            self.assertAlmostEqual(on_cpu[1], on_gpu[1], delta=TOLERANCE * abs(on_cpu[1]))
        self.assertEqual(without, "no memory")

    def test_optionals_and_tensor_arrays_keep_ten_times_the_memory_of_their_gpu(self):
        command = ["sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET"', WARM_PYTHON, SWAPPING_MORE]
        output = self.run_on_gpus(*command, n_devices=1,
                                  flags=["--worker-flag", "--gpu-memory=16M"])
        results = [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(results), 2)
        for on_cpu, on_gpu in results:
            self.assertEqual(on_cpu[0], on_gpu[0])
            self.assertAlmostEqual(on_cpu[1], on_gpu[1], delta=TOLERANCE * abs(on_cpu[1]))

    def test_a_gpu_refuses_the_tensor_that_another_gpu_keeps(self):
        output = self.run_on_gpus("sh", "-c", 'exec "$0" -c "$1" "$MILLRACE_TARGET"', WARM_PYTHON,
                                  KEPT, n_devices=2)
        same, other = output.splitlines()
        self.assertEqual(same, "[4.0, 7.0]")
        self.assertRegex(other, r"^InvalidArgumentError .*The tensor with handle 'GetSessionHandle;"
                                r"\d+;/job:worker/replica:0/task:0/device:GPU:0' is not in the "
                                r"memory of /job:worker/replica:0/task:0/device:GPU:1 ")
        self.assertIn("{{node GetSessionTensor_1}}", other)

    def lost_gpu(self, kill, *flags):
        """The processes of a client, a worker that loses its GPU in the Nth call of the driver, and
        a master, and the port of the worker's pages."""
        env = self.environment(**simulation(1), MILLRACE_SIM_KILL=kill,
                               MILLRACE_SIM_REPORT=self.path("report"))
        ports = self.path(f"ports-{kill}")
        worker = self.popen([program("tf-worker"), "--listen=127.0.0.1:0", "--port-file", ports,
                             *flags], env)
        LineReader(worker.stderr).until("serving on")
        with open(ports, encoding="utf-8") as text:
            port, admin = text.read().split("admin")
        master = self.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file",
                             ports + "m", "--cluster", f"worker=127.0.0.1:{int(port)}"])
        LineReader(master.stderr).until("serving grpc on")
        with open(ports + "m", encoding="utf-8") as text:
            target = f"grpc://127.0.0.1:{int(text.read().split()[0])}"
        client = self.popen([WARM_PYTHON, "-c", LOSS, target],
                            self.environment(TF_CPP_MIN_LOG_LEVEL=3))
        return client, worker, master, int(admin)

    def test_a_worker_goes_on_without_a_gpu_that_it_has_lost(self):
        """In a launch, a copy out and a wait; tests/cuda/run_failures.py has the other calls."""
        for kill in ("cuLaunchKernel:40", "cuMemcpyDtoHAsync:9", "cuEventSynchronize:20"):
            with self.subTest(kill):
                client, worker, master, admin = self.lost_gpu(kill)
                out, err = client.communicate(timeout=120)
                self.assertEqual(client.returncode, 0, err)
                told, told_on_cpu, devices, value = json.loads(out)
                names = [name for name, _ in told]
                self.assertEqual(names.count("AbortedError"), 1, told)
                self.assertRegex(told[0][1], r"(failed.*CUDA error 999\), Xid 79|has failed)")
                self.assertEqual(set(names) - {"UnavailableError", "AbortedError"}, set(), told)
                self.assertEqual(told_on_cpu, [])
                self.assertFalse(any("GPU" in name for name in devices), devices)
                self.assertEqual(value, 128.0)
                status = json.loads(rc.page(admin, "/statusz")[1])
                gpu, = (row for row in status["devices"] if row["name"].endswith("GPU:0"))
                self.assertIn("Xid 79", gpu["failed"])
                self.assertEqual(gpu["rates"], {"flops_per_second": 1.02e12, "dispatch_ns": 0,
                                                "bytes_per_second": 2.56e11})
                self.assertIn('millrace_device_failed{device="/job:worker/replica:0/task:0/device:'
                              'GPU:0"} 1', rc.page(admin, "/metrics")[1])
                self.assertFalse(os.path.exists(self.path("report")))
                for process in (master, worker):
                    process.kill()
                    process.wait()

    def test_a_worker_that_needs_its_gpu_ends_when_it_is_lost(self):
        client, worker, master, _ = self.lost_gpu("cuLaunchKernel:40", "--gpu=require")
        self.assertEqual(worker.wait(timeout=60), 138)
        for process in (client, master):
            process.kill()
            process.wait()

    def start_daemon(self, name, *flags, env=None):
        """A daemon, what it logs, its port, and that of its pages."""
        ports = self.path(f"ports-{len(self.started)}")
        daemon = self.popen([program(name), "--listen=127.0.0.1:0", "--port-file", ports, *flags],
                            env)
        lines = LineReader(daemon.stderr)
        lines.until("serving ")
        with open(ports, encoding="utf-8") as text:
            port, admin = text.read().split("admin")
        return daemon, lines, int(port.split()[0]), int(admin)

    def start_hanging_worker(self, call):
        """One whose GPU's driver does not return from the Nth call."""
        gate = self.path(f"gate-{call}")
        os.mkfifo(gate)
        return self.start_daemon("tf-worker", "--drain-timeout=1s", env=self.environment(
            **simulation(1), MILLRACE_SIM_GATE=f"{call}:{gate}"))

    def test_a_worker_ends_although_its_driver_hangs_in_the_end(self):
        """While the device is closed: the wait for its stream, and what frees its memory."""
        calls = ("cuStreamSynchronize:1", "cuMemAddressFree:1", "cuDevicePrimaryCtxRelease:1")
        started = [self.start_hanging_worker(call) for call in calls]
        for worker, *_ in started:
            worker.terminate()
        for worker, lines, *_ in started:
            self.assertEqual(self.wait_for_exit(worker), 0)
            lines.until("a thread has not ended")

    def test_a_worker_ends_although_its_driver_hangs_in_a_step(self):
        """The step's copy, which the drain cuts off."""
        worker, lines, port, admin = self.start_hanging_worker("cuEventSynchronize:1")
        _, _, port, _ = self.start_daemon("tf-master", f"--cluster=worker=127.0.0.1:{port}")
        client = self.popen([WARM_PYTHON, "-c", TWO_STEPS, f"grpc://127.0.0.1:{port}"],
                            self.environment(TF_CPP_MIN_LOG_LEVEL=3))
        while "_MrCopy" not in rc.page(admin, "/stepz")[1]:
            self.assertIsNone(client.poll())
        worker.terminate()
        self.assertEqual(self.wait_for_exit(worker), 0)
        lines.until("work on the pool has not ended")

    def test_a_worker_without_a_driver_does_not_load_the_plugin(self):
        if has_driver():
            self.skipTest("this host has a CUDA driver")
        ports = self.path("ports")
        worker = self.popen([program("tf-worker"), "--listen", "127.0.0.1:0", "--port-file", ports])
        LineReader(worker.stderr).until("serving on")
        with open(f"/proc/{worker.pid}/maps", encoding="utf-8") as maps:
            self.assertNotIn("millrace-cuda.so", maps.read())
        with open(ports, encoding="utf-8") as text:
            admin_port = int(text.read().split("admin")[1])
        status = json.loads(rc.page(admin_port, "/statusz")[1])
        self.assertIn("no CUDA driver: libcuda.so.1", status["gpu"])

    def test_a_worker_that_needs_a_gpu_says_what_is_missing(self):
        _, err = self.expect(78, "tf-worker", "--listen", "127.0.0.1:0", "--gpu=require",
                             "--gpu-plugin", "/no/such/plugin.so")
        self.assertIn("gpu: required, but", err)
        self.assertIn("/no/such/plugin.so", err)
        for name, needed in (("tf-worker", []), ("tf-master", ["--with-worker"])):
            _, err = self.expect(78, name, *needed, "--listen", "127.0.0.1:0", "--gpu-plugin=")
            self.assertIn("gpu-plugin: the path is empty", err)

    def test_a_gpu_that_cannot_run_the_kernels_is_left_out(self):
        """One that is older than all images, as a display's beside one that computes."""
        too_old, ports = {"MILLRACE_SIM_FAIL": "cuKernelGetFunction:1:209"}, self.path("ports")
        worker = self.popen([program("tf-worker"), "--listen=127.0.0.1:0", "--port-file", ports,
                             "--gpu=require"], self.environment(**simulation(2), **too_old))
        LineReader(worker.stderr).until("serving on")
        with open(ports, encoding="utf-8") as text:
            admin = int(text.read().split("admin")[1])
        status = json.loads(rc.page(admin, "/statusz")[1])
        names = [row["name"].split("/")[-1] for row in status["devices"]]
        self.assertEqual(names, ["device:CPU:0", "device:GPU:0"])
        self.assertRegex(status["gpu"], r"; not used: GPU 0: .* compute capability 9\.0: "
                                        r"cuKernelGetFunction failed: .*CUDA error 209")
        _, err = self.expect(78, "tf-worker", "--listen=127.0.0.1:0", "--gpu=require",
                             env={**simulation(1), **too_old})
        self.assertRegex(err, "gpu: required, but .*no device; not used: GPU 0: .*CUDA error 209")
