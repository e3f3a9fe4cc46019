"""tfctl drain: a task leaves its cluster on purpose, and nobody is alarmed."""
import http.client
import json
import signal

import raw_clients as raw
from harness import LineReader, program
from raw_clients import FLOAT, Client, data, float_tensor, graph, node, small_graph, type_attr
from test_pages import PagesCase, get

TASK = "/job:worker/replica:0/task:1"


class TestDrain(PagesCase):
    """A parameter server and two workers, of which the second is drained."""

    def setUp(self):
        super().setUp()
        workers = [self.daemon("tf-worker", "--job", "ps"), self.daemon("tf-worker"),
                   self.daemon("tf-worker", "--task", "1")]
        self.drained = self.started[-1]
        self.addresses = [f"127.0.0.1:{port}" for port, _ in workers]
        ports = self.path("master-port")
        master = self.popen([program("tf-master"), "--listen", "127.0.0.1:0", "--port-file", ports,
                             "--cluster", f"ps={self.addresses[0]},worker={self.addresses[1]};"
                                          f"{self.addresses[2]}"])
        self.log = LineReader(master.stderr)
        self.log.until(" port ")
        with open(ports, encoding="utf-8") as f:
            self.port, admin = [int(word) for word in f.read().replace("admin", "").split()]
        self.admins = {"master": admin}
        self.admin = f"127.0.0.1:{admin}"
        self.until(lambda: self.states()[TASK] == "ready", "the worker is not ready")
        self.client = Client(self.port)
        self.addCleanup(self.client.channel.close)

    def states(self):
        return {row["task"]: row["state"]
                for row in self.json_of("master", "/statusz")["service"]["tasks"]}

    def tfctl(self, *args, code=0):
        return self.expect(code, "tfctl", *args, "--admin", self.admin)

    def test_it_leaves_when_its_steps_have_ended(self):
        t = data(1, raw.number(6, FLOAT))
        busy = self.client.create(graph(
            node("queue", "FIFOQueueV2", device="/job:worker/task:1", component_types=t),
            node("dequeue", "QueueDequeueV2", ("queue",), "/job:worker/task:1",
                 component_types=t),
            raw.const("value", float_tensor(1), FLOAT, "/job:worker/task:1"),
            node("enqueue", "QueueEnqueueV2", ("queue", "value"), "/job:worker/task:1",
                 Tcomponents=t)))
        waiting = self.client.begin_run(busy, fetches=["dequeue:0"])
        self.until(lambda: "QueueDequeue" in json.dumps(
            self.json_of("master", "/stepz?format=json")["steps"]), "no step waits on the task")
        self.assertIn(f"{TASK} is draining", self.tfctl("drain", "worker/1", "--wait", "0s")[0])
        self.assertEqual(self.states()[TASK], "draining")
        out, _ = self.tfctl("status")  # all is well, and the drain is shown
        self.assertIn(f"{TASK} is draining on purpose", out)
        self.assertIn("2 of 2 ready", out)
        # a new session does not see it
        devices, _ = self.expect(0, "tfctl", "devices", "--json", "--target",
                                 f"grpc://127.0.0.1:{self.port}")
        self.assertNotIn(TASK, devices)
        with self.assertRaises(raw.Refused) as refused:
            self.client.create(small_graph("/job:worker/task:1"))
        self.assertIn("/job:worker/task:1", str(refused.exception))
        other = self.client.create(small_graph("/job:worker"))
        self.client.run(other, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])
        # a session that has used it gets the error of a lost task
        with self.assertRaises(raw.Refused) as refused:
            self.client.run(busy, targets=["enqueue"])
        self.assertEqual(refused.exception.code, 14)
        self.assertIsNone(self.drained.poll())
        waiting.cancel()
        self.assertIn(f"{TASK} has left", self.tfctl("drain", TASK)[0])
        self.assertEqual(self.wait_for_exit(self.drained), 0)
        self.assertEqual(self.states()[TASK], "drained")
        line = self.log.until(f"task {TASK} has left")
        self.assertIn(" I ", line)
        status = json.loads(self.tfctl("status", "--output", "json")[0])
        self.assertEqual((status["ok"], status["tasks"], status["drained"]), (True, 2, [TASK]))
        # another process of that name belongs to the cluster again
        self.popen([program("tf-worker"), "--task", "1", "--listen", self.addresses[2]])
        self.until(lambda: self.states()[TASK] == "ready", "the new process is not used")
        again = self.client.create(small_graph("/job:worker/task:1"))
        self.client.run(again, feeds=[("x:0", float_tensor(1))], fetches=["y:0"])

    def begin_drain(self, *flags):
        """A drain that waits for a step, and what it says on stderr."""
        t = data(1, raw.number(6, FLOAT))
        handle = self.client.create(graph(
            node("queue", "FIFOQueueV2", device="/job:worker/task:1", component_types=t),
            node("dequeue", "QueueDequeueV2", ("queue",), "/job:worker/task:1",
                 component_types=t)))
        self.waiting = self.client.begin_run(handle, fetches=["dequeue:0"])
        self.until(lambda: "QueueDequeue" in json.dumps(
            self.json_of("master", "/stepz?format=json")["steps"]), "no step waits on the task")
        process = self.popen([program("tfctl"), "drain", TASK, "--admin", self.admin, *flags])
        err = LineReader(process.stderr)
        err.until("is draining")
        self.until(lambda: self.states()[TASK] == "draining", "it is not draining")
        return process, err

    def test_one_that_crashes_has_not_left(self):
        process, err = self.begin_drain("--output", "json")
        self.log.until("is drained: an operator")
        self.drained.kill()
        self.assertIn(" W ", self.log.until(f"lost task {TASK}"))
        self.assertEqual(self.wait_for_exit(process), 70)
        self.assertIn(f"tfctl drain: ABORTED: {TASK} was lost while it was draining: ",
                      err.to_end())
        self.assertEqual(json.loads(process.stdout.read())["error"]["code"], "ABORTED")
        self.assertEqual(self.states()[TASK], "lost")
        out, _ = self.tfctl("status")
        self.assertIn(f"{TASK} is lost: it ended while it was draining", out)

    def test_one_that_crashes_and_is_started_again_has_not_left(self):
        process, err = self.begin_drain()
        self.drained.kill()
        self.drained.wait()
        self.popen([program("tf-worker"), "--task", "1", "--listen", self.addresses[2]])
        self.assertEqual(self.wait_for_exit(process), 70)
        self.assertIn(f"{TASK} was lost while it was draining", err.to_end())
        self.until(lambda: self.states()[TASK] == "ready", "the new process is not used")

    def test_one_that_is_told_to_stop_meanwhile_has_left(self):
        process, _ = self.begin_drain("--wait", "50s")
        self.drained.send_signal(signal.SIGTERM)  # the second order ends its steps
        self.assertEqual(self.wait_for_exit(process), 0)
        self.assertEqual(self.states()[TASK], "drained")

    def test_what_cannot_be_drained(self):
        path = f"/task/drain?task={TASK}"
        self.assertEqual(get(self.admins["master"], path)[0], 405)
        connection = http.client.HTTPConnection(raw.LOOPBACK, self.admins["master"], timeout=30)
        self.addCleanup(connection.close)
        connection.request("POST", path)  # without the header that no browser sends
        self.assertEqual(connection.getresponse().status, 403)
        self.assertEqual(self.states()[TASK], "ready")
        self.assertIn("404", self.tfctl("drain", "worker/7", code=70)[1])
        self.assertIn("no task", self.tfctl("drain", "worker", code=64)[1])
        self.assertIn("an argument is missing", self.tfctl("drain", code=64)[1])
        self.drained.kill()
        self.until(lambda: self.states()[TASK] == "down", "the master has not noticed")
        self.assertIn("is not connected", self.tfctl("drain", TASK, code=70)[1])
