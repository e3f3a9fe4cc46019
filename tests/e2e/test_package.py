"""The Debian package: built by the usual tools, and with --long used in a clean Debian."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import ROOT, TestCase
from test_systemd import boot

TOOLS = ("dpkg-buildpackage", "dh", "lintian")

PREPARE = """
dpkg -i /out/millrace.deb
dpkg -L millrace | while read -r path; do [ -d "$path" ] || echo "$path"; done >/out/installed
! ls -d /etc/systemd/system/*.wants/tf-*
cat >/etc/millrace.ini <<END
cluster = ps=127.0.0.1:2400,worker=127.0.0.1:2300
insecure = yes
END
mkdir /etc/millrace && mv /etc/millrace.ini /etc/millrace
"""
TRIAL = """
set -eu
systemctl start tf-master tf-worker@ps-0 tf-worker@worker-0
tfctl devices --target grpc://127.0.0.1:2222
echo == local
tfctl local --ps 1 -- sh -c 'tfctl devices'
echo == remove
dpkg --purge millrace
systemctl daemon-reload
while read -r path; do ! [ -e "$path" ] || echo "left $path"; done </out/installed
systemctl --no-legend list-units 'tf-*'
"""


class TestPackage(TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [name for name in TOOLS if not shutil.which(name)]
        if missing:
            raise unittest.SkipTest(f"not installed: {', '.join(missing)}")
        cls.folder = tempfile.mkdtemp(prefix="millrace-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        quick = [] if harness.LONG else ["--quick"]
        done = subprocess.run([os.path.join(ROOT, "tools", "package"), *quick, cls.folder],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stdout[-4000:])
        cls.package = cls.find(r"millrace_.*\.deb")
        cls.changes = cls.find(r"millrace_.*\.changes")

    @classmethod
    def find(cls, pattern):
        [name] = [name for name in os.listdir(cls.folder) if re.fullmatch(pattern, name)]
        return os.path.join(cls.folder, name)

    def field(self, name):
        return subprocess.check_output(["dpkg-deb", "--field", self.package, name],
                                       text=True).strip()

    def test_lintian_finds_nothing(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning",
                               self.changes], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_its_version_is_the_programs(self):
        self.assertEqual(self.expect(0, "tf-master", "--version")[0].split()[-1],
                         self.field("Version"))

    def test_it_depends_on_what_the_image_installs(self):
        with open(os.path.join(ROOT, "deploy", "Dockerfile"), encoding="utf-8") as f:
            image = re.search(r"--no-install-recommends \\\n +(.*) \\\n", f.read()).group(1).split()
        text = f"{self.field('Depends')}, {self.field('Recommends')}"
        package = {re.match(r"[\w.+-]+", part).group(0) for part in re.split(r"[,|] *", text)}
        self.assertEqual(set(image), package - {"libc6"})

    def test_a_clean_debian_installs_and_removes_it(self):
        if not harness.LONG:
            self.skipTest("takes minutes: --long")
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            self.skipTest("needs root and debootstrap")
        root = self.path("root")
        packages = ",".join(re.findall(r"(?:^|, *)([\w.+-]+)", self.field("Depends")))
        done = subprocess.run(["debootstrap", "--variant=minbase",
                               f"--include=systemd,iproute2,{packages}", "bookworm", root],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0 and "Failed getting release file" in done.stdout:
            self.skipTest("Debian cannot be reached")
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        self.out = self.path("out")
        os.mkdir(self.out)
        shutil.copy(self.package, os.path.join(self.out, "millrace.deb"))
        used, local, removed = re.split(r"== (?:local|remove)\n", boot(self, root, PREPARE, TRIAL))
        for text in (used, local):
            self.assertIn("/job:ps/replica:0/task:0/device:CPU:0", text)
        self.assertIn("/job:worker/replica:0/task:0/device:CPU:0", used)
        self.assertNotIn("left ", removed)
        self.assertNotIn("tf-worker", removed)
