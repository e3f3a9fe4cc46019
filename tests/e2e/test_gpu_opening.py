"""One of a worker's simulated GPUs cannot be opened. The worker goes on with the others, which keep
their numbers, and every place says which GPU is out and why."""
import json
import os
import re
import unittest

import raw_clients as raw
import test_gpu
from harness import LineReader, TestCase, program, sanitized_too
from raw_clients import Client, Refused, const, graph, node, type_attr

N = 4
TASK = "/job:worker/replica:0/task:0"
GPUS = [f"{TASK}/device:GPU:{gpu}" for gpu in range(N)]
F = type_attr(1)
STREAMS = 5  # of a GPU
BUSY, NO_MEMORY, ECC, UNKNOWN = 46, 2, 214, 999
# A call that opens a GPU, how often it is called for one, and its error. The first and the fifth
# are GPU 0's: cuLibraryLoadData is called for each image of kernels, and builds differ in these.
OPENING = (("cuDeviceGet", 1, UNKNOWN), ("cuDevicePrimaryCtxRetain", 1, BUSY),
           ("cuDevicePrimaryCtxRetain", 1, NO_MEMORY), ("cuStreamCreateWithPriority", STREAMS, ECC),
           ("cuLibraryLoadData", 1, NO_MEMORY), ("cuMemAddressReserve", 1, NO_MEMORY),
           ("cuMemGetInfo", 1, UNKNOWN))


def doubled(*devices):
    """2, which is doubled on each of the devices."""
    nodes = [const("y0", raw.float_tensor(2.0), 1, f"{TASK}/device:CPU:0")]
    for i, device in enumerate(devices):
        nodes.append(node(f"y{i + 1}", "AddV2", (f"y{i}", f"y{i}"), device, T=F))
    return graph(*nodes)


@unittest.skipUnless(os.path.exists(os.path.join(test_gpu.SIMULATION, "sim", "sim_device")),
                     "the simulated device is not built")
class TestGpuOpening(TestCase):
    def start(self, fail, n_gpus=N, flags=()):
        env = {**test_gpu.simulation(n_gpus), "MILLRACE_SIM_FAIL": fail,
               "MILLRACE_SIM_REPORT": self.path("report")}
        ports = self.path("ports")
        self.worker = self.popen([program("tf-worker"), "--listen=127.0.0.1:0", "--port-file",
                                  ports, *flags], env)
        self.log = LineReader(self.worker.stderr)
        self.log.until("serving on")
        with open(ports, encoding="utf-8") as text:
            port, admin = map(int, text.read().split("admin"))
        self.master = self.popen([program("tf-master"), "--listen=127.0.0.1:0", "--port-file",
                                  ports + "m", "--cluster", f"worker=127.0.0.1:{port}"])
        LineReader(self.master.stderr).until("serving grpc on")
        with open(ports + "m", encoding="utf-8") as text:
            numbers = re.findall(r"\d+", text.read())
        self.master_port, self.master_admin = int(numbers[0]), int(numbers[1])
        return admin

    def end(self):
        for process in (self.master, self.worker):
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 0)
        self.assertFalse(os.path.exists(self.path("report")))

    def expect_told(self, out, why, admin):
        status = json.loads(raw.page(admin, "/statusz")[1])
        failed = {row["name"]: row.get("failed") for row in status["devices"] if "GPU" in
                  row["name"]}
        self.assertEqual(list(failed), GPUS)
        self.assertEqual([name for name in GPUS if failed[name]], [GPUS[out]])
        self.assertRegex(failed[GPUS[out]], why)
        metrics = raw.page(admin, "/metrics")[1]
        for gpu, name in enumerate(GPUS):
            self.assertIn(f'millrace_device_failed{{device="{name}"}} {int(gpu == out)}', metrics)
        self.assertRegex(self.log.text, why)
        told, _ = self.expect(70, "tfctl", "status", "--admin",
                              f"127.0.0.1:{self.master_admin}")
        self.assertRegex(told.replace("\n", " "), f"{GPUS[out]} is not used: .*has failed")
        rows, _ = self.expect(0, "tfctl", "devices", "--json", "--target",
                              f"grpc://127.0.0.1:{self.master_port}")
        self.assertEqual([row["name"] for row in json.loads(rows) if row["type"] == "GPU"],
                         [name for name in GPUS if name != GPUS[out]])

    def test_a_gpu_that_does_not_open_leaves_the_others_their_numbers(self):
        for i, (call, per_gpu, error) in enumerate(OPENING):
            out = i % N
            with self.subTest(call, gpu=out, error=error):
                why = (rf"GPU {out}\b.* has failed.*could not be opened: {call} failed: .*"
                       rf"CUDA error {error}\b|GPU {out}\b.* has failed.*{call} failed: .*"
                       rf"CUDA error {error}\b")
                admin = self.start(f"{call}:{out * per_gpu + 1}:{error}",
                                   flags=["--gpu=require"])
                others = [name for name in GPUS if name != GPUS[out]]
                with Client(self.master_port) as client:
                    handle = client.create(doubled(*others, ""))
                    value = client.run(handle, 60, fetches=["y4:0"])["y4:0"]
                    self.assertIn(b"\x00\x00\x00\x42", value)  # 32
                    with self.assertRaises(Refused) as refused:
                        client.create(doubled(GPUS[out]))
                    self.assertIn(f"{GPUS[out]} is not available: GPU {out}",
                                  refused.exception.message)
                    self.assertRegex(refused.exception.message, why)
                self.expect_told(out, why, admin)
                self.end()

    def buses(self, visible):
        """The PCI buses of the GPUs that a worker has, in the order of their names."""
        worker = self.popen([program("tf-worker"), "--listen=127.0.0.1:0"],
                            {**test_gpu.simulation(N), "CUDA_VISIBLE_DEVICES": visible})
        log = LineReader(worker.stderr)
        log.until("serving on")
        worker.terminate()
        self.assertEqual(worker.wait(timeout=60), 0)
        found = re.findall(r"(\S+GPU:\d+): .*pci bus id: 0000:(..):", log.text)
        self.assertEqual([name for name, _ in found], GPUS[:len(found)])
        return [int(bus, 16) for _, bus in found]

    def test_visible_devices_restrict_and_order(self):
        uuid = "GPU-6d696c6c-7261-6365-2d73-696d2d6770"
        for visible, expected in (("2,0", [3, 1]), ("3,9,1", [4]), ("1, 2", [2, 3]), ("1,x", [2]),
                                  (f"{uuid}03,0,{uuid}02", [4, 1, 3]), (f"0,{uuid}", [1]),
                                  ("", []), ("-1", []), ("0,0", [])):
            with self.subTest(visible):
                self.assertEqual(self.buses(visible), expected)

    @sanitized_too
    def test_a_worker_whose_only_gpu_does_not_open(self):
        fail = f"cuDevicePrimaryCtxRetain:1:{BUSY}"
        self.start(fail, 1)
        with Client(self.master_port) as client:
            handle = client.create(doubled(""))
            self.assertIn(b"\x00\x00\x80\x40", client.run(handle, 60, fetches=["y1:0"])["y1:0"])
        self.end()
        _, err = self.expect(78, "tf-worker", "--listen=127.0.0.1:0", "--gpu=require",
                             env={**test_gpu.simulation(1), "MILLRACE_SIM_FAIL": fail})
        self.assertRegex(err, r"gpu: required, but no GPU works: GPU 0 .*CUDA error 46")


if __name__ == "__main__":
    unittest.main()
