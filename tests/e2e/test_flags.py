"""The daemons' command lines: help, version, configuration files, exit codes, port files, TERM."""
import os
import signal

from harness import LineReader, TestCase, listening_socket, program

# What each daemon needs at the least.
DAEMONS = {
    "tf-worker": ["--job", "worker", "--task", "0"],
    "tf-master": ["--cluster", "worker=127.0.0.1:1"],
}
ANY_PORTS = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]


class TestFlags(TestCase):
    def for_each(self, check):
        """check(name, needed) for each daemon."""
        for name, needed in DAEMONS.items():
            with self.subTest(name):
                check(name, needed)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def test_help_and_version(self):
        def check(name, needed):
            out, err = self.expect(0, name, "--help")
            self.assertEqual(err, "")
            self.assertIn(f"Usage: {name}", out)
            for flag in ("listen", "port-file", "admin", "log-level", "config", "check-config"):
                self.assertIn(f"--{flag}", out)
            self.assertRegex(self.expect(0, name, "--version")[0], rf"^{name} .*\d+\.\d+\.\d+\n$")

        self.for_each(check)

    def test_a_wrong_flag_is_a_usage_error(self):
        def check(name, needed):
            for wrong in (["--no-such-flag"], ["--port-file"], ["--log-level", "loud"],
                          ["--drain-timeout", "soon"], ["stray"]):
                out, err = self.expect(64, name, *needed, *wrong)
                self.assertEqual(out, "")
                self.assertRegex(err, rf"^{name}: .*\n$")

        self.for_each(check)

    def test_a_bad_configuration_says_where(self):
        def check(name, needed):
            for line, text in ((2, "log-level = info\nno-such-setting = 1\n"),
                               (1, "drain-timeout = soon\n"), (3, "# a comment\n\nwhat is this\n")):
                path = self.write("bad.ini", text)
                for extra in ([], ["--check-config"]):
                    _, err = self.expect(78, name, *needed, "--config", path, *extra)
                    self.assertIn(f"{path}:{line}: ", err)
            _, err = self.expect(78, name, *needed, "--config", "/nonexistent.ini")
            self.assertIn("/nonexistent.ini", err)

        self.for_each(check)

    def test_check_config_shows_where_values_come_from(self):
        def check(name, needed):
            path = self.write("good.ini", "drain-timeout = 7s\nlog-level = warning\n")
            out, err = self.expect(0, name, *needed, "--config", path, "--log-level", "error",
                                   "--check-config")
            self.assertEqual(err, "")
            self.assertRegex(out, rf"(?m)^drain-timeout = 7000ms +# {path}:1$")
            self.assertRegex(out, r"(?m)^log-level = error +# flag$")

        self.for_each(check)

    def test_one_file_serves_both_daemons(self):
        path = self.write("shared.ini",
                          "log-level = error\n[master]\ntask-wait = 3s\n[worker]\ncpu-devices = "
                          "2\n")
        master = self.expect(0, "tf-master", *DAEMONS["tf-master"], "--config", path,
                             "--check-config")[0]
        worker = self.expect(0, "tf-worker", *DAEMONS["tf-worker"], "--config", path,
                             "--check-config")[0]
        self.assertRegex(master, rf"(?m)^task-wait = 3000ms +# {path}:3$")
        self.assertRegex(worker, rf"(?m)^cpu-devices = 2 +# {path}:5$")

    def test_tf_config_gives_the_cluster(self):
        env = {"TF_CONFIG": '{"cluster": {"ps": ["a:1"], "worker": ["127.0.0.1:2", '
                            '"127.0.0.1:3"]}, "task": {"type": "worker", "index": 1}}'}
        self.assertRegex(self.expect(0, "tf-master", "--check-config", env=env)[0],
                         r"(?m)^cluster = ps=a:1,worker=127.0.0.1:2;127.0.0.1:3 +# TF_CONFIG$")
        worker = self.expect(0, "tf-worker", "--check-config", env=env)[0]
        self.assertRegex(worker, r"(?m)^task = 1 +# TF_CONFIG$")
        self.assertRegex(worker, r"(?m)^listen = 127.0.0.1:3 ")

    def test_what_is_no_address_is_a_configuration_error(self):
        def check(name, needed):
            for flag in ("--listen", "--admin"):
                for wrong in ("bad", "127.0.0.1:99999", "::1:22"):
                    _, err = self.expect(78, name, *needed, flag, wrong, "--insecure")
                    self.assertIn(f'{flag[2:]}: address "{wrong}"', err)
            # a name, not loopback
            self.assertIn("--insecure",
                          self.expect(78, name, *needed, "--listen", "127.example.com:0")[1])

        self.for_each(check)

    def test_a_wide_address_needs_consent(self):
        def check(name, needed):
            code, _, err = self.run_program(name, *needed, "--listen", "0.0.0.0:0",
                                            "--check-config")
            self.assertIn(code, (64, 78), err)
            self.assertIn("--insecure", err)
            self.expect(0, name, *needed, "--listen", "0.0.0.0:0", "--insecure", "--check-config")

        self.for_each(check)

    def test_a_master_needs_a_cluster(self):
        code, _, err = self.run_program("tf-master", "--listen", "127.0.0.1:0", "--admin", "off")
        self.assertIn(code, (64, 78))
        self.assertIn("--cluster", err)
        _, err = self.expect(78, "tf-master", "--check-config", env={"TF_CONFIG": "{"})
        self.assertIn("TF_CONFIG", err)

    def test_a_taken_port_is_an_io_error(self):
        with listening_socket() as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            def check(name, needed):
                _, err = self.expect(74, name, *needed, "--listen", address, "--admin", "off")
                self.assertIn(address.split(":")[1], err)
                _, err = self.expect(74, name, *needed, "--listen", "127.0.0.1:0", "--admin",
                                     address)
                self.assertIn(address.split(":")[1], err)

            self.for_each(check)

    def test_a_port_file_that_cannot_be_written_is_an_io_error(self):
        def check(name, needed):
            _, err = self.expect(74, name, *needed, *ANY_PORTS, "--port-file", "/nonexistent/port")
            self.assertIn("/nonexistent/port", err)

        self.for_each(check)

    def test_terminated_it_exits_with_zero(self):
        def check(name, needed):
            for signo in (signal.SIGTERM, signal.SIGINT):
                path = self.path(f"{name}.port")
                process = self.popen([program(name), *needed, *ANY_PORTS, "--port-file", path])
                LineReader(process.stderr).until(" port ")
                with open(path) as f:
                    self.assertRegex(f.read(), r"^\d+\nadmin \d+\n$")
                process.send_signal(signo)
                self.assertEqual(self.wait_for_exit(process), 0)
                os.unlink(path)

        self.for_each(check)
