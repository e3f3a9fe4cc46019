"""The daemons and their units under systemd: what they tell it, and a real one that runs them in
namespaces with a /tmp, /run, /var and /dev of its own."""
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.request

from harness import BIN, DEADLINE_S, ROOT, TestCase, program

DEPLOY = os.path.join(ROOT, "deploy")
UNITS = ("tf-master.service", "tf-worker@.service")
DRAIN_S = 600


class TestNotify(TestCase):
    """The datagrams of sd_notify(3)."""

    def start(self, name, *flags, watchdog_ms=200, is_abstract=False):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.settimeout(DEADLINE_S)
        path = f"\0millrace-{self.mark}" if is_abstract else self.path("notify")
        self.socket.bind(path)
        return self.popen([program(name), *flags, "--listen", "127.0.0.1:0", "--port-file",
                           self.path("port")],
                          env={"NOTIFY_SOCKET": path.replace("\0", "@"),
                               "WATCHDOG_USEC": watchdog_ms * 1000},
                          stderr=subprocess.DEVNULL)

    def next(self):
        return self.socket.recv(4096).decode()

    def until(self, wanted):
        """The datagrams before one whose first line is `wanted`; that one is self.last."""
        found = []
        while (text := self.next()).splitlines()[0] != wanted:
            found.append(text)
        self.last = text
        return found

    def check(self, *command, **options):
        process = self.start(*command, **options)
        self.assertEqual(self.next(), "READY=1")
        self.assertTrue(os.path.exists(self.path("port")))  # it serves
        self.assertEqual([self.next(), self.next()], ["WATCHDOG=1"] * 2)
        process.send_signal(signal.SIGTERM)
        self.assertLessEqual(set(self.until("STOPPING=1")), {"WATCHDOG=1"})
        # systemd waits at least as long as the daemon lets steps run
        extended = re.fullmatch(r"STOPPING=1\nEXTEND_TIMEOUT_USEC=(\d+)", self.last)
        self.assertGreater(int(extended.group(1)), DRAIN_S * 1000 * 1000)
        self.assertEqual(self.wait_for_exit(process), 0)

    def test_the_master(self):
        self.check("tf-master", "--cluster", "worker=127.0.0.1:1", "--drain-timeout", f"{DRAIN_S}s")

    def test_a_task(self):
        self.check("tf-worker", "--drain-timeout", f"{DRAIN_S}s", is_abstract=True)

    def test_a_daemon_that_stands_still_says_nothing(self):
        process = self.start("tf-worker")
        self.until("WATCHDOG=1")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        self.socket.settimeout(1)
        with self.assertRaises(TimeoutError):
            while True:
                self.next()
        process.send_signal(signal.SIGCONT)
        self.socket.settimeout(DEADLINE_S)
        self.assertEqual(self.next(), "WATCHDOG=1")

    def test_a_watchdog_of_another_process(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.settimeout(DEADLINE_S)
        self.socket.bind(self.path("notify"))
        process = self.popen([program("tf-worker"), "--listen", "127.0.0.1:0"],
                             env={"NOTIFY_SOCKET": self.path("notify"), "WATCHDOG_USEC": 1000,
                                  "WATCHDOG_PID": 1}, stderr=subprocess.DEVNULL)
        self.assertEqual(self.next(), "READY=1")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.until("STOPPING=1"), [])


class TestLibraries(TestCase):
    def test_statusz_says_what_computes(self):
        process = self.popen([program("tf-worker"), "--listen", "127.0.0.1:0", "--port-file",
                              self.path("port")])
        err = self.read_until_serving(process)
        port = re.search(r"admin on port (\d+)", err).group(1)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        page = json.load(opener.open(f"http://127.0.0.1:{port}/statusz", timeout=DEADLINE_S))
        libraries = page["libraries"]
        self.assertIn(libraries["instructions"], ("base", "avx2", "avx512"))
        self.assertIs(libraries["jit"], True)
        # nothing has been computed, and the page loads nothing
        self.assertEqual((libraries["blas"], libraries["onednn"]), (None, None))

    @staticmethod
    def read_until_serving(process):
        err = ""
        while "serving on" not in err:
            err += process.stderr.readline().decode()
        return err


class TestUnits(TestCase):
    def read(self, *names):
        with open(os.path.join(DEPLOY, *names), encoding="utf-8") as f:
            return f.read()

    def test_they_tell_systemd(self):
        for name in UNITS:
            unit = self.read("systemd", name)
            self.assertIn("\nType=notify\n", unit)
            self.assertGreaterEqual(int(re.search(r"(?m)^WatchdogSec=(\d+)$", unit).group(1)), 10)

    def test_only_tasks_may_execute_what_they_write(self):
        self.assertRegex(self.read("systemd", "tf-master.service"),
                         r"(?m)^MemoryDenyWriteExecute=yes$")
        self.assertNotRegex(self.read("systemd", "tf-worker@.service"),
                            r"(?m)^MemoryDenyWriteExecute=")

    def test_gpus_are_there_before_a_task_that_cannot_make_them(self):
        unit = self.read("systemd", "tf-worker@.service")
        self.assertRegex(unit, r"(?m)^NoNewPrivileges=yes$")  # not by a setuid nvidia-modprobe
        drop_in = self.read("drop-ins", "tf-worker@.service.d", "gpu.conf")
        for module in ("Wants", "After"):
            self.assertRegex(drop_in, rf"(?m)^{module}=modprobe@nvidia_uvm\.service\b")
        # "+" is as root, and "-" for hosts that need no help
        before = re.findall(r"(?m)^ExecStartPre=(\W+)/usr/bin/(\S+)", drop_in)
        self.assertEqual(before, [("+-", "nvidia-smi"), ("+-", "nvidia-modprobe")])
        for device in re.findall(r"(?m)^DeviceAllow=char-nvidia\S* (\w+)$", drop_in):
            self.assertEqual(device, "rwm")  # m: so that these may make it
        cache = re.search(r"(?m)^CacheDirectory=(\S+)$", drop_in).group(1)
        self.assertIn(f"\nEnvironment=CUDA_CACHE_PATH=%C/{cache}\n", drop_in)

    def test_systemd_finds_them_secure(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        for name in UNITS:  # 2.0 and less is its "OK"; without the restrictions they have 9.2
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager",
                                   "--threshold=20", os.path.join(DEPLOY, "systemd", name)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_drop_ins_fit(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        search = self.path("units")
        os.mkdir(search)
        for name in UNITS:
            unit = self.read("systemd", name).replace("/usr/bin/tf-", os.path.join(BIN, "tf-"))
            with open(os.path.join(search, name), "w", encoding="utf-8") as f:
                f.write(unit)
        for path in glob.glob(os.path.join(DEPLOY, "drop-ins", "*")):
            shutil.copytree(path, os.path.join(search, os.path.basename(path)))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", "tf-master.service",
                               "tf-worker@ps-0.service"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "SYSTEMD_UNIT_PATH": search + ":"})
        self.assertNotIn(search, done.stdout)
        self.assertNotIn("tf-", done.stdout)


PREPARE = """
cp /out/bin/* /usr/bin/
cp /out/systemd/* /etc/systemd/system/
mkdir -p /etc/millrace
cat >/etc/millrace/millrace.ini <<END
cluster = ps=127.0.0.1:2400,worker=127.0.0.1:2300
insecure = yes
END
"""
TRIAL = """
set -eu
tasks="tf-worker@ps-0 tf-worker@worker-0"
# Type=notify: once this has returned, all of them serve
systemctl start tf-master $tasks
tfctl devices --target grpc://127.0.0.1:2222
curl -s http://127.0.0.1:12400/statusz >/out/statusz
systemctl show -P MainPID,User tf-master >/out/pids
cat /proc/$(systemctl show -P MainPID tf-worker@ps-0)/status | grep -E '^(Uid|NoNewPrivs|CapEff)'
ls -ld /var/lib/private/millrace-ps-0
echo == job end
curl -s -X POST -H 'X-Millrace: 1' --unix-socket /run/millrace-master/admin.sock http://x/job/end
while systemctl is-active -q tf-master $tasks; do :; done
systemctl show -p Result,ExecMainStatus,NRestarts tf-master $tasks
echo == watchdog
quick=/run/systemd/system/tf-worker@ps-0.service.d
mkdir $quick
printf '[Service]\\nWatchdogSec=5\\nWatchdogSignal=SIGKILL\\n' >$quick/quick.conf
systemctl daemon-reload
systemctl start tf-worker@ps-0
pid=$(systemctl show -P MainPID tf-worker@ps-0)
[ "$pid" -gt 1 ]
kill -STOP "$pid"
until [ "$(systemctl show -P NRestarts tf-worker@ps-0)" -ge 1 ]; do :; done
until systemctl is-active -q tf-worker@ps-0; do :; done
systemctl stop tf-worker@ps-0
rm -r $quick
systemctl daemon-reload
echo == tls
tfctl certs /etc/millrace/tls --tasks ps=1,worker=1 >/dev/null
stat -c '%U %a %n' /etc/millrace/tls/master.key
cp -r /out/drop-ins/* /etc/systemd/system/
rm /etc/systemd/system/tf-worker@.service.d/gpu.conf
systemctl daemon-reload
systemctl start tf-master $tasks
cd /etc/millrace/tls
tfctl devices --target grpcs://127.0.0.1:2222 --tls-ca ca.pem --tls-cert client.pem \\
  --tls-key client.key
! tfctl devices --target grpcs://127.0.0.1:2222 --tls-ca ca.pem --timeout 5s
ls -l /run/credentials/tf-master.service
systemctl stop tf-master $tasks
systemctl show -p Result,ExecMainStatus tf-master $tasks
echo == end
"""


def boot(test, root, prepare, trial):
    """Runs a script under a systemd of its own (boot_systemd). Returns the script's output."""
    out = test.out
    for name, text in (("prepare", prepare), ("trial", trial)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            f.write(text)
    command = [os.path.join(ROOT, "tests", "e2e", "boot_systemd"), root, out, "prepare", "trial"]
    code, _, err = test.run_program(*command, timeout_s=280)
    if code == 77:
        test.skipTest("this machine allows no control groups of its own")

    def read(name):
        path = os.path.join(out, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()

    test.assertEqual(read("status").strip(), "0",
                     f"{code} {err}\n{read('prepare-log')}\n{read('log')}\n{read('messages')}")
    return read("log")


class TestRealSystemd(TestCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not os.path.exists("/lib/systemd/systemd"):
            self.skipTest("needs root, and systemd installed")
        self.out = self.path("out")
        os.makedirs(os.path.join(self.out, "bin"))
        for name in ("tf-master", "tf-worker", "tfctl"):
            shutil.copy(program(name), os.path.join(self.out, "bin"))
        for folder in ("systemd", "drop-ins"):
            shutil.copytree(os.path.join(DEPLOY, folder), os.path.join(self.out, folder))

    def test_it_runs_a_cluster(self):
        log = boot(self, "/", PREPARE, TRIAL)
        started, ended, watchdog, tls = re.split(r"== (?:job end|watchdog|tls)\n", log)
        for text in (started, tls):
            self.assertIn("/job:ps/replica:0/task:0/device:CPU:0", text)
            self.assertIn("/job:worker/replica:0/task:0/device:CPU:0", text)
        uid = int(re.search(r"(?m)^Uid:\t(\d+)", started).group(1))
        self.assertTrue(61184 <= uid <= 65519, uid)  # a dynamic user
        self.assertIn("NoNewPrivs:\t1", started)
        self.assertIn("CapEff:\t0000000000000000", started)
        self.assertIn("drwx------", started)
        # a job that has ended stays ended
        for line in ("Result=success", "ExecMainStatus=0", "NRestarts=0"):
            self.assertEqual(ended.splitlines().count(line), 3, ended)
        self.assertIn("root 600 /etc/millrace/tls/master.key", tls)
        self.assertIn("key.pem", tls)
        for line in ("Result=success", "ExecMainStatus=0"):
            self.assertEqual(tls.splitlines().count(line), 3, tls)
        with open(os.path.join(self.out, "statusz"), encoding="utf-8") as f:
            self.assertIs(json.load(f)["libraries"]["jit"], True)
