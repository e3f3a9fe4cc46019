"""Memory runs out while simulated GPUs of two tasks send values to each other: of the GPUs, pinned,
and what may be registered. A step fails once, with RESOURCE_EXHAUSTED, the node and the bytes; the
next step is right, and nothing is kept."""
import json
import os
import re
import signal
import struct
import unittest

import raw_clients as raw
import test_gpu
from harness import LineReader, TestCase, program
from raw_clients import Client, Refused, const, graph, node, type_attr

TASKS = 2
CPUS, GPUS = ([f"/job:worker/replica:0/task:{task}/device:{device}:0" for task in range(TASKS)]
              for device in ("CPU", "GPU"))
F, I = type_attr(1), type_attr(3)
SMALL, LARGE = 40 << 10, 1300 << 10  # floats: 160 KiB, 5.2 MB, which is two pieces
CONSTANT_BYTES = 4096  # a block
MEMORY, HOG = "32M", (29 << 20) // 4  # of a GPU, and floats of it
# Of a GPU of two workers, which take it in steps of 22 MiB; floats of two and of three steps.
SHARED_BYTES, SHARE, TWO_STEPS, THREE_STEPS = 92 << 20, "70M", (24 << 20) // 4, (46 << 20) // 4
OUT_OF_MEMORY = 2
RESOURCE_EXHAUSTED = 8
MOST_FAILURES = 40
NODES = {"a_float", "two", "one", "there", "back", "taken", "own_taken"}


def there_and_back(devices):
    """0, 2, 4, ... from the first device to the second and back; how many are wrong then."""
    def numbers(prefix, device):
        return [const(prefix + "start", raw.int_tensor(0), device=device),
                const(prefix + "delta", raw.int_tensor(1), device=device),
                node(prefix + "range", "Range", (prefix + "start", "limit", prefix + "delta"),
                     device, Tidx=I),
                node(prefix + "float", "Cast", (prefix + "range",), device, SrcT=I, DstT=F)]

    two, one = raw.float_tensor(2.0), raw.float_tensor(1.0)
    return graph(node("limit", "Placeholder", (), CPUS[0], dtype=I), *numbers("a_", CPUS[0]),
                 const("two", two, 1, devices[0]), const("one", one, 1, devices[1]),
                 const("a_two", two, 1, CPUS[0]), const("a_one", one, 1, CPUS[0]),
                 node("there", "Mul", ("a_float", "two"), devices[0], T=F),
                 node("back", "AddV2", ("there", "one"), devices[1], T=F),
                 node("taken", "Neg", ("back",), devices[0], T=F),
                 node("own", "Mul", ("a_float", "a_two"), CPUS[0], T=F),
                 node("own_back", "AddV2", ("own", "a_one"), CPUS[0], T=F),
                 node("own_taken", "Neg", ("own_back",), CPUS[0], T=F),
                 node("differs", "NotEqual", ("taken", "own_taken"), CPUS[0], T=F),
                 node("count", "Cast", ("differs",), CPUS[0], SrcT=type_attr(10), DstT=F),
                 const("axis", raw.int_tensor(0), device=CPUS[0]),
                 node("sum", "Sum", ("count", "axis"), CPUS[0], T=F, Tidx=I))  # fmt: skip


def hog(device, size=HOG):
    """A variable that leaves no memory for a large value, and its end."""
    return graph(node("handle", "VarHandleOp", (), device, dtype=F, shape=raw.data(7, b""),
                      shared_name=raw.data(2, b"hog")),
                 const("size", raw.tensor(raw.INT32, (1,), struct.pack("<i", size)), device=device),
                 node("much", "Empty", ("size",), device, dtype=F),
                 node("take", "AssignVariableOp", ("handle", "much"), device, dtype=F),
                 node("release", "DestroyResourceOp", ("handle",), device))  # fmt: skip


class Pair:
    """Two workers with a GPU each, a master, and a session."""

    def __init__(self, test, is_shared, special, flags=()):
        self.test, self.logs, self.workers, self.admins = test, [], [], []
        self.report = test.path("report")
        addresses = []
        for task in range(TASKS):
            ports = test.path(f"ports-{task}")
            env = {**test_gpu.simulation(1), "MILLRACE_SIM_REPORT": self.report, **special[task]}
            worker = test.popen([program("tf-worker"), "--listen=127.0.0.1:0", "--port-file", ports,
                                 f"--task={task}", "--gpu=require", "--gpu-copy-threads=1",
                                 *([] if is_shared else ["--unix=off"]), *flags], env)
            self.logs.append(LineReader(worker.stderr))
            self.logs[-1].until("serving on")
            with open(ports, encoding="utf-8") as text:
                port, admin = text.read().split("admin")
            addresses.append(f"127.0.0.1:{int(port)}")
            self.workers.append(worker)
            self.admins.append(int(admin))
        ports = test.path("ports-master")
        self.master = test.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file",
                                  ports, "--cluster", "worker=" + ";".join(addresses)])
        LineReader(self.master.stderr).until("serving grpc on")
        with open(ports, encoding="utf-8") as text:
            self.client = Client(int(text.read().split()[0]))
        self.handle = self.client.create(there_and_back(GPUS))

    def step(self, size):
        """None, or the failure."""
        try:
            proto = self.client.run(self.handle, 60, feeds=[("limit:0", raw.int_tensor(size))],
                                    fetches=["sum:0"])["sum:0"]
        except Refused as error:
            return error
        wrong = struct.unpack("<f", raw.first(proto, 4) or raw.first(proto, 5))[0]
        self.test.assertEqual(wrong, 0)
        return None

    def held(self):
        """What the tasks hold between steps."""
        found = []
        for admin in self.admins:
            status = json.loads(raw.page(admin, "/statusz")[1])
            found.append([{row["name"]: row["memory_in_use_bytes"] for row in status["devices"]
                           if "GPU" in row["name"]},
                          [peer["in_flight_bytes"] for peer in status["peers"]]])
        return found

    def end(self):
        self.client.channel.close()
        for process in (self.master, *self.workers):
            process.terminate()
        codes = [process.wait(timeout=60) for process in (self.master, *self.workers)]
        text = ""
        if os.path.exists(self.report):
            with open(self.report, encoding="utf-8", errors="replace") as file:
                text = file.read()
            os.remove(self.report)
        return codes, text, [log.to_end() for log in self.logs]


@unittest.skipUnless(os.path.exists(os.path.join(test_gpu.SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuExhausted(TestCase):
    def pair(self, is_shared, special=({}, {}), flags=()):
        pair = Pair(self, is_shared, special, flags)
        self.addCleanup(pair.client.channel.close)
        return pair

    def expect_nothing_is_kept(self, pair):
        """But the constants, and by the driver nothing that it was not given back."""
        for memory, in_flight in pair.held():
            self.assertEqual(set(memory.values()), {CONSTANT_BYTES})
            self.assertEqual(set(in_flight), {0})
        codes, report, logs = pair.end()
        self.assertEqual(codes, [0] * 3, logs)
        self.assertEqual(report, "")
        return logs

    def expect_told(self, error, nodes, size):
        self.assertEqual(error.code, RESOURCE_EXHAUSTED, error.message)
        self.assertRegex(error.message, size)
        named = re.search(r"\n\t \[\[\{\{node (\w+?)(/_\w+)?\}\}", error.message)
        self.assertTrue(named, error.message)
        self.assertIn(named[1], nodes)

    def test_pinned_memory_is_refused_in_each_phase(self):
        """Of a constant, of values to and from each GPU, and of their second pieces."""
        special = [{"MILLRACE_SIM_FAIL": f"cuMemHostAlloc:odd:{OUT_OF_MEMORY}"}] * TASKS
        for is_shared in (False, True):
            with self.subTest(is_shared):
                pair = self.pair(is_shared, special)
                failures, n_right = [], 0
                while n_right < 4:
                    error = pair.step((SMALL, LARGE)[n_right % 2])
                    n_right = 0 if error else n_right + 1
                    failures += [error] if error else []
                    self.assertLess(len(failures), MOST_FAILURES, error)
                for error in failures:
                    self.expect_told(error, NODES, "cuMemHostAlloc failed.*4194304 bytes of pinn")
                    self.assertRegex(error.message, r"\(a copy (to|from) |node (two|one)\}\}")
                self.assertGreaterEqual(len(failures), 6)
                self.expect_nothing_is_kept(pair)

    def test_a_gpu_has_no_memory_for_what_it_receives(self):
        """While it arrives in pieces, and where it is in the sender's memory."""
        for is_shared in (False, True):
            with self.subTest(is_shared):
                pair = self.pair(is_shared, flags=[f"--gpu-memory={MEMORY}"])
                self.assertIsNone(pair.step(LARGE))
                before = pair.held()
                for task, received in ((1, "there"), (0, "back")):
                    hogging = pair.client.create(hog(GPUS[task]))
                    pair.client.run(hogging, 60, targets=["take"])
                    error = pair.step(LARGE)
                    self.assertIsNotNone(error)
                    self.expect_told(error, (received, *NODES), rf"{LARGE * 4} bytes")
                    pair.client.run(hogging, 60, targets=["release"])
                    pair.client.close(hogging)
                    self.assertIsNone(pair.step(LARGE))
                    self.assertIsNone(pair.step(SMALL))
                    self.assertEqual(pair.held(), before)
                self.expect_nothing_is_kept(pair)

    def test_another_worker_on_the_same_gpu_holds_its_memory(self):
        """The driver refuses what it has promised when the worker started. The worker keeps nothing
        of what it got for the value, goes on, and has the memory when the other one has ended."""
        special = {"MILLRACE_SIM_SHARED": self.path("gpu"), "MILLRACE_SIM_MEMORY": SHARED_BYTES,
                   "MILLRACE_SIM_CHECK": 0}  # large values are slow with it
        pair = self.pair(True, [special] * TASKS, [f"--gpu-memory={SHARE}"])
        self.assertIsNone(pair.step(LARGE))  # each has a step
        before = pair.held()
        hogs = [pair.client.create(hog(device, TWO_STEPS)) for device in GPUS]
        pair.client.run(hogs[1], 60, targets=["take"])
        pair.client.run(hogs[1], 60, targets=["release"])  # what it has mapped stays its own
        greedy = pair.client.create(hog(GPUS[0], THREE_STEPS))
        for _ in range(2):
            with self.assertRaises(Refused) as refused:
                pair.client.run(greedy, 60, targets=["take"])
            words = (r"cuMemCreate failed: .*CUDA error 2\).*; the driver has (\d+) of the GPU's "
                     rf"{SHARED_BYTES} bytes left for all processes")
            self.expect_told(refused.exception, {"much"}, words)
            left = int(re.search(words, refused.exception.message)[1])
            step_bytes, rest = divmod(SHARED_BYTES - left, 3)  # two of one, and one of the other
            self.assertEqual(rest, 0, left)
            self.assertGreaterEqual(left, step_bytes)
            self.assertIsNone(pair.step(LARGE))
            self.assertEqual(pair.held(), before)
        pair.client.run(hogs[0], 60, targets=["take"])  # the step that is left
        pair.client.run(hogs[0], 60, targets=["release"])
        pair.workers[1].kill()
        pair.workers[1].wait()
        pair.client.run(greedy, 60, targets=["take"])
        pair.client.run(greedy, 60, targets=["release"])
        codes, report, logs = pair.end()
        self.assertEqual((codes, report), ([0, 0, -signal.SIGKILL], ""), logs)

    def test_registration_is_refused_in_each_phase(self):
        """Values are right all the same, and each kind of memory is told once."""
        for n in (1, 2, 3):
            with self.subTest(n):
                fail = f"cuMemHostRegister:{n}:{OUT_OF_MEMORY}"
                pair = self.pair(True, [{"MILLRACE_SIM_FAIL": fail}] * TASKS)
                for size in (LARGE, SMALL, LARGE, LARGE + 1, LARGE):
                    self.assertIsNone(pair.step(size))
                for log in self.expect_nothing_is_kept(pair):
                    self.assertEqual(log.count("memory that tasks share cannot be registered"), 1)


if __name__ == "__main__":
    unittest.main()
