"""A cluster whose processes find each other in etcd: starts in any order, tasks that move, die or
are claimed twice, an etcd that stops and returns, programs that dial a worker, and the end of a
job."""
import base64
import json
import os
import shutil
import signal
import socket
import sys
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import DEADLINE_S, WARM_PYTHON, LineReader, TestCase, program

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "membership_client.py")
ANY = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
TTL = ("--etcd-ttl", "3s")
RETURN_S = 10  # two on an idle machine


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Etcd:
    def __init__(self, test):
        self.test, self.port, self.peer = test, free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self, data="etcd"):
        peer = f"http://127.0.0.1:{self.peer}"
        self.process = self.test.popen(["etcd", "--data-dir", self.test.path(data),
                                        "--listen-client-urls", self.url, "--advertise-client-urls",
                                        self.url,
                                        "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                                        peer, "--initial-cluster", f"default={peer}"],
                                       stdout=open(self.test.path("etcd.log"), "ab"),
                                       env={"ETCD_UNSUPPORTED_ARCH": "arm64"})
        self.log = LineReader(self.process.stderr)
        self.log.until("ready to serve")
        return self

    def call(self, path, **fields):
        request = urllib.request.Request(self.url + path, json.dumps(fields).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            return json.load(reply)

    def keys(self, prefix="/millrace/"):
        encode = lambda text: base64.b64encode(text.encode()).decode()  # noqa: E731
        reply = self.call("/v3/kv/range", key=encode(prefix),
                          range_end=encode(prefix[:-1] + chr(ord(prefix[-1]) + 1)))
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv["value"]).decode()
                for kv in reply.get("kvs", [])}

    def compact(self):
        revision = int(self.call("/v3/kv/range", key="AA==")["header"]["revision"])
        self.call("/v3/kv/compaction", revision=str(revision), physical=True)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Daemon:
    def __init__(self, test, name, *flags):
        self.test = test
        self.port_file = test.path(f"ports-{len(test.started)}")
        self.process = test.popen([program(name), *map(str, flags), *ANY, "--port-file",
                                   self.port_file])
        self.log = LineReader(self.process.stderr)
        self.log.until(" port ")
        with open(self.port_file, encoding="utf-8") as f:
            lines = f.read().split("\n")
        self.port = int(lines[0])
        self.ports = {line.split()[0]: int(line.split()[1]) for line in lines[1:] if line}

    def saw(self, text, times=1):
        """Waits until the log has it so often, in whatever order with other lines."""
        deadline = time.monotonic() + DEADLINE_S
        while self.log.text.count(text) < times:
            if self.log.line(deadline) is None:
                self.test.fail(f"the log does not have '{text}':\n{self.log.text}")

    def page(self, path):
        """(status, body)"""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['admin']}{path}",
                                        timeout=DEADLINE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports['admin']}{path}", b"",
                                         {"X-Millrace": "test"} if not headers else headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def signal(self, signo):
        self.process.send_signal(signo)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Client:
    def __init__(self, test, port):
        self.test = test
        self.process = test.popen([WARM_PYTHON, CLIENT, f"grpc://127.0.0.1:{port}"], stdin=-1,
                                  stderr=open(test.path("client.log"), "ab"))
        self.out = LineReader(self.process.stdout)
        self.out.until("ready")

    def send(self, word):
        self.process.stdin.write(f"{word}\n".encode())
        self.process.stdin.flush()

    def ask(self, word):
        self.send(word)
        return self.out.line()

    def ask_until(self, word, answer):
        """Asks again until that answer comes; what came before it."""
        deadline, others = time.monotonic() + DEADLINE_S, []
        while (got := self.ask(word)) != answer:
            others.append(got)
            if time.monotonic() > deadline:
                self.test.fail(f"{word}: {answer!r} does not come, but {others[-1]!r}")
        return others


@unittest.skipUnless(shutil.which("etcd"),
                     "etcd is not installed (Debian's etcd-server; tools/setup all)")
class MembershipCase(TestCase):
    def setUp(self):
        super().setUp()
        self.etcd = Etcd(self)

    def flags(self):
        return ("--etcd", self.etcd.url, "--cluster-name", "t", *TTL)

    def master(self, *flags):
        return Daemon(self, "tf-master", *self.flags(), *flags)

    def worker(self, job, index, *flags):
        return Daemon(self, "tf-worker", "--job", job, "--task", index, *self.flags(), *flags)

    def cluster(self):
        """(master, ps, worker), all registered and connected."""
        self.etcd.start()
        ps, worker, master = self.worker("ps", 0), self.worker("worker", 0), self.master(
            "--expect", "ps=1,worker=1")
        self.wait_ready(master, "ps", "worker")
        return master, ps, worker

    def wait_ready(self, master, *jobs, times=1):
        for job in jobs:
            master.saw(f"task /job:{job}/replica:0/task:0 is ready", times)

    def ended_with(self, process, code):
        self.assertEqual(self.wait_for_exit(process), code)


class TestStarting(MembershipCase):
    def test_any_order_etcd_last(self):
        master, worker, ps = self.master("--expect", "ps=1,worker=1"), self.worker(
            "worker", 0), self.worker("ps", 0)
        for daemon in (master, worker, ps):
            daemon.saw("trying again")
        status, why = master.page("/readyz")
        self.assertEqual(status, 503)
        self.assertIn("/job:ps/replica:0/task:0 (not registered)", why)
        self.etcd.start()
        self.wait_ready(master, "ps", "worker")
        master.saw("registered as")
        self.assertEqual(master.page("/readyz"), (200, "ok\n"))
        keys = self.etcd.keys()
        self.assertEqual(sorted(keys), ["/millrace/t/master", "/millrace/t/tasks/ps/0",
                                        "/millrace/t/tasks/worker/0"])
        member = json.loads(keys["/millrace/t/tasks/ps/0"])
        self.assertEqual(member["address"], f"127.0.0.1:{ps.port}")
        self.assertEqual(member["admin_address"], f"127.0.0.1:{ps.ports['admin']}")
        self.assertEqual(member["devices"], ["/job:ps/replica:0/task:0/device:CPU:0"])

    def test_a_session_waits_for_a_task_that_is_not_registered(self):
        self.etcd.start()
        master = self.master("--expect", "worker=1", "--task-wait", "1s")
        code, _, err = self.run_program("tfctl", "devices", "--target",
                                        f"grpc://127.0.0.1:{master.port}")
        self.assertNotEqual(code, 0)
        self.assertIn("/job:worker/replica:0/task:0 (not registered)", err)

    def test_without_expectations_any_task_will_do_but_one_has_to_be(self):
        self.etcd.start()
        master = self.master()
        self.assertEqual(master.page("/readyz"), (503, "missing tasks: no task has registered"))
        self.worker("worker", 3)
        master.saw("task:3 is ready")
        out, _ = self.expect(0, "tfctl", "devices", "--target", f"grpc://127.0.0.1:{master.port}")
        self.assertIn("/job:worker/replica:0/task:3/device:CPU:0", out)

    def test_strange_entries_are_passed_over(self):
        self.etcd.start()
        # noqa: E731
        put = lambda key, value: self.etcd.call("/v3/kv/put",
                                                key=base64.b64encode(key.encode()).decode(),
                                                value=base64.b64encode(value).decode())
        for key, value in (("tasks/worker/0", b"\xff\xfe"), ("tasks/worker/01", b"{}"),
                           ("tasks/x", b""), ("tasks/a b/0", b"{}"), ("tasks/worker/1", b"[1]")):
            put("/millrace/t/" + key, value)
        master = self.master()
        master.saw("etcd: skipped ")
        worker = self.worker("worker", 0)
        worker.saw("replacing it")  # what is there is no registration
        master.saw("task:0 is ready")
        self.assertEqual(master.page("/readyz")[0], 200)

    def test_wrong_flags(self):
        for flags, text in ((("--etcd", "http://a/b"), "etcd: 'http://a/b'"),
                            (("--etcd", ""), "etcd: ''"),
                            (("--etcd", "http://a:1", "--cluster-name", "a/b"),
                             "cluster-name: 'a/b'"),
                            (("--etcd", "http://a:1", "--advertise", "x"), "advertise: ")):
            for name in ("tf-master", "tf-worker"):
                _, err = self.expect(78, name, *flags, "--check-config")
                self.assertIn(text, err)
        self.assertIn("--master or --etcd",
                      self.expect(78, "tf-worker", "--client-port", "0", "--check-config")[1])
        self.assertIn("expect works only with --etcd",
                      self.expect(78, "tf-master", "--cluster", "a=b:1", "--expect", "a=1",
                                  "--check-config")[1])
        self.assertIn("JOB=NUMBER", self.expect(78, "tf-master", "--etcd", "http://a:1", "--expect",
                                                "worker", "--check-config")[1])


class TestHolders(MembershipCase):
    def test_a_second_claimant_ends(self):
        self.etcd.start()
        first = self.worker("worker", 0)
        first.saw("registered as")
        second = self.worker("worker", 0)
        second.saw("is alive: exiting")
        self.assertIn(f"held by the process at 127.0.0.1:{first.port}", second.log.text)
        self.ended_with(second.process, 138)
        master = self.master()
        master.saw("registered as")
        other = self.master()
        other.saw("is alive: exiting")
        self.ended_with(other.process, 138)
        self.assertIsNone(first.process.poll())
        self.assertIsNone(master.process.poll())

    def test_a_killed_holder_is_replaced_before_its_lease_lapses(self):
        master, _, worker = self.cluster()
        before = json.loads(self.etcd.keys()["/millrace/t/tasks/worker/0"])
        worker.kill()
        began = time.monotonic()
        other = self.worker("worker", 0)
        other.saw("is dead")
        other.saw("registered as")
        self.wait_ready(master, "worker", times=2)
        print(f"[replaced after {time.monotonic() - began:.2f} s]", end=" ", flush=True)
        after = json.loads(self.etcd.keys()["/millrace/t/tasks/worker/0"])
        self.assertNotEqual(before["address"], after["address"])
        self.assertNotEqual(before["incarnation"], after["incarnation"])
        master.kill()
        successor = self.master()
        successor.saw("registered as")
        successor.saw("task:0 is ready")

    def test_a_master_that_cannot_be_asked_keeps_its_key_as_long_as_its_lease(self):
        self.etcd.start()
        silent = self.popen([program("tf-master"), *self.flags(), "--listen", "127.0.0.1:0",
                             "--admin", "off"])
        LineReader(silent.stderr).until("registered as")
        second = self.master()
        second.saw("renews its lease, but cannot be probed from here (it has no admin port): "
                   "exiting")
        self.ended_with(second.process, 138)
        silent.kill()
        silent.wait()
        successor = self.master()
        successor.saw("its lease has lapsed")
        successor.saw("registered as")

    def test_a_stopped_holder_is_replaced_and_ends_when_it_goes_on(self):
        self.etcd.start()
        first = self.worker("worker", 0)
        first.saw("registered as")
        first.signal(signal.SIGSTOP)
        second = self.worker("worker", 0, "--etcd-ttl", "3s")
        second.saw("registered as")  # by the probe or by the lease, whichever was first
        first.signal(signal.SIGCONT)
        first.saw("exiting")
        self.ended_with(first.process, 138)
        self.assertIsNone(second.process.poll())

    def test_terminated_its_entry_goes_at_once(self):
        master, _, worker = self.cluster()
        worker.signal(signal.SIGTERM)
        self.ended_with(worker.process, 0)
        self.assertNotIn("/millrace/t/tasks/worker/0", self.etcd.keys())
        master.signal(signal.SIGTERM)
        self.ended_with(master.process, 0)
        self.assertNotIn("/millrace/t/master", self.etcd.keys())


class TestSteps(MembershipCase):
    def test_a_task_restarted_elsewhere(self):
        master, ps, _ = self.cluster()
        client = Client(self, master.port)
        self.assertTrue(client.ask("init").startswith("ok"))
        self.assertEqual(client.ask("add"), "ok 1.0")
        ps.kill()
        other = self.worker("ps", 0)
        served = time.monotonic()
        self.assertNotEqual(other.port, ps.port)
        self.wait_ready(master, "ps", times=2)
        answer = client.ask("add")
        print(f"[known at its new address after {time.monotonic() - served:.2f} s]", end=" ",
              flush=True)
        self.assertLess(time.monotonic() - served, RETURN_S)
        self.assertTrue(answer.startswith("error AbortedError") and "has restarted" in answer,
                        answer)
        self.assertTrue(client.ask("init").startswith("ok"))  # once only
        self.assertEqual(client.ask("add"), "ok 1.0")

    def test_etcd_stopped_under_steps(self):
        master, ps, worker = self.cluster()
        client = Client(self, master.port)
        self.assertTrue(client.ask("init").startswith("ok"))
        self.etcd.process.send_signal(signal.SIGSTOP)
        n = 0
        began = time.monotonic()
        while not master.page("/readyz")[1].startswith("ok, degraded: etcd has not answered"):
            n += 1
            self.assertEqual(client.ask("add"), f"ok {float(n)}")
        print(f"[{n} steps, degraded after {time.monotonic() - began:.1f} s]", end=" ", flush=True)
        lapse = time.monotonic() + (60 if harness.LONG else 4)  # longer than the leases
        while time.monotonic() < lapse:
            n += 1
            self.assertEqual(client.ask("add"), f"ok {float(n)}")
        self.assertIn("; its registration has lapsed", master.page("/readyz")[1])
        self.etcd.process.send_signal(signal.SIGCONT)
        back = time.monotonic()
        ps.saw("registered as", 2)
        worker.saw("registered as", 2)
        while master.page("/readyz") != (200, "ok\n"):
            n += 1
            self.assertEqual(client.ask("add"), f"ok {float(n)}")
        print(f"[{n} steps in all, none failed; ready again {time.monotonic() - back:.1f} s after "
              "it went on]", end=" ", flush=True)
        self.assertEqual(sorted(self.etcd.keys())[1:],
                         ["/millrace/t/tasks/ps/0", "/millrace/t/tasks/worker/0"])

    def test_etcd_killed_under_steps_and_back(self):
        master, ps, _ = self.cluster()
        client = Client(self, master.port)
        self.assertTrue(client.ask("init").startswith("ok"))
        self.etcd.kill()
        master.saw("keeping the tasks that are known")
        self.assertEqual(client.ask("add"), "ok 1.0")
        self.etcd.start()
        master.saw("listed again")
        self.assertEqual(client.ask("add"), "ok 2.0")
        self.etcd.kill()
        ps.saw("trying again")
        self.etcd.start(data="empty")  # it has forgotten everything
        ps.saw("its lease has lapsed")
        master.saw("listed again", 2)
        self.assertEqual(client.ask("add"), "ok 3.0")
        self.worker("worker", 1)
        master.saw("/job:worker/replica:0/task:1 is ready")

    def test_compaction(self):
        master, _, worker = self.cluster()
        self.etcd.compact()
        self.worker("worker", 1)
        master.saw("/job:worker/replica:0/task:1 is ready")
        master.signal(signal.SIGSTOP)
        worker.kill()
        other = self.worker("worker", 0)
        other.saw("registered as")
        self.worker("worker", 2).log.until("registered as")
        self.etcd.compact()
        master.signal(signal.SIGCONT)
        master.saw(f"task /job:worker/replica:0/task:0 is registered at 127.0.0.1:{other.port}")
        master.saw("/job:worker/replica:0/task:2 is ready")


class TestClientPort(MembershipCase):
    def test_programs_that_dial_a_worker(self):
        self.etcd.start()
        self.worker("ps", 0)
        self.worker("worker", 0)
        second = self.worker("worker", 1, "--client-port", 0)
        client = None
        master = self.master("--expect", "ps=1,worker=2")
        master.saw("registered as")
        client = Client(self, second.ports["client"])
        self.assertEqual(client.ask("where"), "ok /job:worker/replica:0/task:1")
        self.assertTrue(client.ask("init").startswith("ok"))
        self.assertEqual(client.ask("add"), "ok 1.0")
        self.assertEqual(client.ask("big"), "ok True")
        self.assertTrue(client.ask("trained").startswith("ok 10 "))
        direct = Client(self, master.port)
        self.assertEqual(direct.ask("where"), "ok /job:worker/replica:0/task:0")
        self.assertEqual(direct.ask("read"), "ok 1.0")  # the same variable

    def test_a_client_that_is_there_before_the_master(self):
        self.etcd.start()
        worker = self.worker("worker", 0, "--client-port", 0)
        waiting = self.popen([program("tfctl"), "devices", "--target",
                              f"grpc://127.0.0.1:{worker.ports['client']}"])
        worker.saw("registered as")
        self.master()
        out, err = waiting.communicate(timeout=DEADLINE_S)
        self.assertEqual(waiting.returncode, 0, err)
        self.assertIn(b"/job:worker/replica:0/task:0", out)

    def test_a_static_cluster_too(self):
        port = free_port()
        worker = Daemon(self, "tf-worker", "--client-port", 0, "--master", f"127.0.0.1:{port}")
        master = self.popen([program("tf-master"), "--listen", f"127.0.0.1:{port}", "--admin",
                             "off", "--cluster", f"worker=127.0.0.1:{worker.port}"])
        LineReader(master.stderr).until("is ready")
        out, _ = self.expect(0, "tfctl", "devices", "--target",
                             f"grpc://127.0.0.1:{worker.ports['client']}")
        self.assertIn("/job:worker/replica:0/task:0", out)


class TestAuthentication(MembershipCase):
    """A real etcd, which asks for users."""

    def setUp(self):
        super().setUp()
        self.etcd.start()
        encode = lambda text: base64.b64encode(text.encode()).decode()  # noqa: E731
        for name, password in (("root", "root"), ("millrace", "se cret"), ("guest", "guest")):
            self.etcd.call("/v3/auth/user/add", name=name, password=password)
            self.etcd.call("/v3/auth/role/add", name=name)
            self.etcd.call("/v3/auth/user/grant", user=name, role=name)
        self.etcd.call("/v3/auth/role/grant", name="millrace",
                       perm={"permType": "READWRITE", "key": encode("/millrace/"),
                             "range_end": encode("/millrace0")})
        self.etcd.call("/v3/auth/enable")

    def user(self, name, password):
        path = self.path(f"password-{len(self.started)}")
        with open(path, "w", encoding="utf-8") as f:
            f.write(password + "\n")
        return ("--etcd-user", name, "--etcd-password-file", path)

    def refused(self, words, *flags):
        worker = self.worker("worker", 0, *flags)
        worker.saw(words)
        member = json.loads(worker.page("/memberz")[1])["registration"]
        self.assertIn((member["state"], member["etcd"]), [("granting", "up"), ("claiming", "up")])
        self.assertIn(words, member["why"])
        status, why = worker.page("/readyz")
        self.assertEqual(status, 503)
        self.assertIn(f"not registered in etcd: {words}" if not flags else words, why)

    def test_without_a_user(self):
        self.refused("etcd: etcdserver: user name is empty")

    def test_with_a_wrong_password(self):
        self.refused("login of user millrace: etcd: etcdserver: authentication failed, invalid "
                     "user ID or password", *self.user("millrace", "guess"))

    def test_with_a_user_who_may_not(self):
        worker = self.worker("worker", 0, *self.user("guest", "guest"))
        worker.saw("etcd: etcdserver: permission denied")
        self.assertIn("etcdserver: permission denied", worker.page("/memberz")[1])
        self.assertEqual(worker.page("/readyz")[0], 503)

    def test_a_cluster_whose_tokens_are_lost(self):
        user = self.user("millrace", "se cret")
        ps, worker, master = self.worker("ps", 0, *user), self.worker(
            "worker", 0, *user), self.master("--expect", "ps=1,worker=1", *user)
        self.wait_ready(master, "ps", "worker")
        for daemon in (master, ps, worker):
            daemon.saw("registered as")
            self.assertEqual(daemon.page("/readyz"), (200, "ok\n"))
        self.etcd.kill()  # its tokens are in its memory
        for daemon in (master, ps, worker):
            daemon.saw("trying again")
        self.etcd.start()
        for daemon in (master, ps, worker):
            daemon.saw("registered as", times=2)
        master.saw("etcd: listed again")
        self.worker("worker", 1, *user).saw("registered as")
        master.saw("/job:worker/replica:0/task:1 is ready")  # the watch works, too
        job = ("tfctl", "job", "end", "--etcd", self.etcd.url, "--cluster-name", "t")
        self.assertIn("etcdserver: user name is empty", self.expect(70, *job)[1])
        self.expect(0, *job, *user)
        for daemon in (master, ps, worker):
            self.ended_with(daemon.process, 0)

    def test_a_user_of_an_etcd_without_users(self):
        other = Etcd(self)
        other.start("other")
        worker = Daemon(self, "tf-worker", "--etcd", other.url, *self.user("millrace", "any"))
        worker.saw("registered as")

    def test_flags_that_do_not_go_together(self):
        self.assertIn("must be given together",
                      self.expect(78, "tf-worker", "--etcd-user", "x", "--check-config")[1])
        self.assertIn(self.path("nothing"),
                      self.expect(74, "tf-worker", *ANY, *self.flags(), "--etcd-user", "x",
                                  "--etcd-password-file", self.path("nothing"))[1])


class TestEnd(MembershipCase):
    def test_by_etcd(self):
        master, ps, worker = self.cluster()
        self.expect(0, "tfctl", "job", "end", "--etcd", self.etcd.url, "--cluster-name", "t")
        for daemon in (master, ps, worker):
            self.ended_with(daemon.process, 0)
            self.assertIn("the job has ended", daemon.log.to_end())
        late = self.worker("worker", 1)  # who comes late learns of it
        self.ended_with(late.process, 0)
        self.assertEqual(self.etcd.keys(), {"/millrace/t/job": "ended"})
        self.expect(0, "tfctl", "job", "begin", "--etcd", self.etcd.url, "--cluster-name", "t")
        again = self.worker("worker", 1)
        again.saw("registered as")
        self.assertIsNone(again.process.poll())

    def test_by_the_master_of_a_static_cluster(self):
        worker = Daemon(self, "tf-worker")
        ps = Daemon(self, "tf-worker", "--job", "ps")
        master = Daemon(self, "tf-master", "--cluster",
                        f"worker=127.0.0.1:{worker.port},ps=127.0.0.1:{ps.port}")
        self.wait_ready(master, "ps", "worker")
        self.assertEqual(master.page("/job/end")[0], 405)
        self.assertEqual(master.post("/job/end", Origin="http://elsewhere"), 403)
        self.expect(0, "tfctl", "job", "end", "--admin", f"127.0.0.1:{master.ports['admin']}")
        for daemon in (master, ps, worker):
            self.ended_with(daemon.process, 0)

    def test_wrong_usage(self):
        self.assertIn("'stop' is not end or begin",
                      self.expect(64, "tfctl", "job", "stop", "--admin", "127.0.0.1:1")[1])
        self.assertIn("no job is named", self.expect(64, "tfctl", "job", "end")[1])
        self.assertIn("begin needs --etcd",
                      self.expect(64, "tfctl", "job", "begin", "--admin", "127.0.0.1:1")[1])
        self.expect(74, "tfctl", "job", "end", "--admin", f"127.0.0.1:{free_port()}")
        self.expect(74, "tfctl", "job", "end", "--etcd", f"http://127.0.0.1:{free_port()}")


if __name__ == "__main__":
    sys.exit(unittest.main())
