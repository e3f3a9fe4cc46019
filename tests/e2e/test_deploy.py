"""What deploy/ and configs/ say must be what the daemons take: every command line there is run with
--check-config."""
import fnmatch
import glob
import os
import re
import shlex
import shutil
import subprocess

from harness import ROOT, TestCase, program

DEPLOY = os.path.join(ROOT, "deploy")
CONFIG = os.path.join(ROOT, "configs", "millrace.ini")
CONFIG_ETCD = os.path.join(ROOT, "configs", "millrace-etcd.ini")
MANIFEST = os.path.join(DEPLOY, "kubernetes", "base", "millrace.yaml")
INSTANCES = ("ps-0", "worker-0", "worker-1")  # of the cluster in configs/millrace.ini


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def settings(out):
    """What --check-config printed: {name: value}."""
    return dict(re.findall(r"(?m)^([a-z-]+) = (.*?) +# \S+$", out))


class TestUnits(TestCase):
    def unit(self, name):
        return read(os.path.join(DEPLOY, "systemd", name))

    config = CONFIG

    def command(self, unit, instance):
        """ExecStart as systemd would run it, with our programs and files, and --check-config at the
        end."""
        line = re.search(r"(?m)^ExecStart=(.*)$", unit).group(1)
        line = line.replace("%%", "\0").replace("%i", instance).replace("\0", "%")
        self.assertNotIn("/usr/local", line)
        words = [re.sub(r"/usr/bin/(tf-\w+)", lambda m: program(m.group(1)), word)
                 for word in shlex.split(line)]
        words = [word.replace("/etc/millrace/millrace.ini", self.config).replace("$$", "\0")
                 for word in words]
        words = [piece for word in words
                 for piece in (["--check-config"] if word == "$MILLRACE_FLAGS"
                               else [] if word == "$MILLRACE_TLS_FLAGS" else [word])]
        return [word.replace("\0", "$") for word in words]

    def check(self, unit, instance=""):
        out, _ = self.expect(0, *self.command(unit, instance),
                             env={"MILLRACE_FLAGS": "--check-config"})
        return settings(out)

    def test_the_master(self):
        values = self.check(self.unit("tf-master.service"))
        self.assertEqual(values["listen"], "0.0.0.0:2222")
        self.assertEqual(values["insecure"], "yes")
        self.assertEqual(values["admin"], "")  # on loopback
        directory = re.search(r"(?m)^RuntimeDirectory=(.*)$", self.unit("tf-master.service"))
        self.assertEqual(values["admin-socket"], f"/run/{directory.group(1)}/admin.sock")
        self.assertEqual(values["cluster"],
                         "ps=10.0.0.10:2400,worker=10.0.0.20:2300;10.0.0.21:2300")

    def test_the_tasks(self):
        for instance in INSTANCES:
            with self.subTest(instance):
                values = self.check(self.unit("tf-worker@.service"), instance)
                self.assertEqual(f"{values['job']}-{values['task']}", instance)
                self.assertIn(values["listen"], values["cluster"])

    def test_a_task_has_a_directory_of_its_own(self):
        """Without one its working directory would be /, which is no file root."""
        unit = self.unit("tf-worker@.service")
        directory = re.search(r"(?m)^StateDirectory=(.*)$", unit).group(1)
        self.assertIn("%i", directory)
        self.assertIn(f"\nWorkingDirectory=%S/{directory}\n", unit)
        self.assertRegex(read(os.path.join(DEPLOY, "Dockerfile")),
                         r"(?m)^WORKDIR /var/lib/millrace$")

    def test_a_task_that_the_cluster_lacks(self):
        _, err = self.expect(78, *self.command(self.unit("tf-worker@.service"), "ps-1"),
                             env={"MILLRACE_FLAGS": "--check-config"})
        self.assertIn("it has no task 1 of job ps", err)

    def test_with_etcd_in_place_of_a_list(self):
        self.config = CONFIG_ETCD
        values = self.check(self.unit("tf-master.service"))
        self.assertEqual((values["etcd"], values["cluster-name"], values["expect"]),
                         ("http://10.0.0.5:2379", "train", "ps=1,worker=2"))
        for instance in INSTANCES:
            values = self.check(self.unit("tf-worker@.service"), instance)
            self.assertEqual(f"{values['job']}-{values['task']} {values['listen']} "
                             f"{values['etcd']}", f"{instance} 0.0.0.0:0 http://10.0.0.5:2379")

    def test_time_to_drain(self):
        for name in ("tf-master.service", "tf-worker@.service"):
            unit = self.unit(name)
            timeout_s = int(re.search(r"(?m)^TimeoutStopSec=(\d+)$", unit).group(1))
            drain_ms = int(re.fullmatch(r"(\d+)ms",
                                        self.check(unit, "ps-0")["drain-timeout"]).group(1))
            self.assertGreater(timeout_s * 1000, drain_ms)

    def test_flags_of_the_example(self):
        line = re.search(r"(?m)^MILLRACE_FLAGS=(.*)$",
                         read(os.path.join(ROOT, "configs", "millrace.env"))).group(1)
        for name in ("tf-master", "tf-worker"):
            self.expect(0, name, "--cluster", "worker=127.0.0.1:2300", *line.split(),
                        "--check-config")

    def test_systemd_takes_them(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        for path in glob.glob(os.path.join(DEPLOY, "systemd", "*.service")):
            name = os.path.basename(path).replace("@.", "@ps-0.")
            with open(self.path(name), "w", encoding="utf-8") as f:
                f.write(read(path).replace("/usr/bin/tf-",
                                           os.path.join(
                                               os.path.dirname(program("tf-master")), "tf-")))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", self.path(name)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.assertNotIn(name, done.stdout)


class TestImage(TestCase):
    def test_it_holds_the_libraries_that_the_programs_need(self):
        if not shutil.which("dpkg"):
            self.skipTest("dpkg is not installed")
        text = read(os.path.join(DEPLOY, "Dockerfile"))
        installed = set(re.search(r"--no-install-recommends \\\n +(.*) \\\n",
                                  text).group(1).split()) | {"libc6"}
        files = set()
        for name in ("tf-master", "tf-worker", "tfctl"):
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]",
                                subprocess.check_output(
                                    ["readelf", "-d", program(name)], text=True))
            paths = dict(re.findall(r"(\S+) => (\S+)",
                                    subprocess.check_output(["ldd", program(name)], text=True)))
            files |= {os.path.basename(os.path.realpath(paths[library])) for library in needed
                      if library in paths}
        files = {name for name in files if not re.match(r"lib(asan|ubsan|tsan)\.", name)}
        owners = subprocess.run(["dpkg", "-S", *(f"*/{name}" for name in files)],
                                stdout=subprocess.PIPE, text=True).stdout
        for name in files:
            packages = {line.split(":")[0] for line in owners.splitlines()
                        if line.endswith(f"/{name}")}
            self.assertTrue(packages & installed, f"{name} comes from {packages}")

    def test_the_image_for_gpus_has_what_the_worker_looks_for(self):
        text = read(os.path.join(DEPLOY, "Dockerfile.gpu"))
        [base, tag] = re.findall(r"docker build -f \S+ -t (\S+) \.", text)
        self.assertEqual(re.findall(r"(?m)^FROM (\S+)$", text), [base])
        self.assertIn(f"docker build -f deploy/Dockerfile -t {base} .",
                      read(os.path.join(DEPLOY, "Dockerfile")))
        overlay = read(os.path.join(DEPLOY, "kubernetes/overlays/gpu/kustomization.yaml"))
        self.assertIn(f"value: {tag}\n", overlay)
        copied = re.search(r"cp (.*) /libraries", text).group(1)
        for source in ("blas.c", "compiler.c", "dnn.c", "activity.c"):
            names = re.findall(r'"(lib\w+\.so\.\d+)"',
                               read(os.path.join(ROOT, "kernels", "cuda", source)))
            self.assertTrue(any(fnmatch.fnmatch(name, os.path.basename(path)) for name in names
                                for path in copied.split()), names)
        self.assertIn("libnvrtc-builtins.so.", copied)  # which libnvrtc opens
        wheels = re.findall(r" (nvidia-\S+)==13\.0\.\*", text)
        for part in ("cublas", "cuda-nvcc", "cuda-nvrtc"):
            self.assertIn(f"nvidia-{part}", wheels)
        options = read(os.path.join(ROOT, "meson_options.txt"))
        for option in re.findall(r"-D(\w+)=", text):
            self.assertIn(f"option('{option}'", options)
        self.assertIn("/usr/lib/millrace/\n", text)  # beside /usr/bin/tf-worker: ../lib/millrace

    def test_it_makes_what_the_manifest_runs(self):
        tag = re.search(r"docker build -f deploy/Dockerfile -t (\S+) \.",
                        read(os.path.join(DEPLOY, "Dockerfile"))).group(1)
        self.assertEqual(set(re.findall(r"image: (\S+)", read(MANIFEST))), {tag})
        version = self.expect(0, "tf-master", "--version")[0].split()[-1]
        self.assertEqual(tag, f"millrace:{version}")
