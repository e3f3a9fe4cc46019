"""tfctl local: starting, the command, signals, deaths; and that nothing is ever left behind."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.request

import harness
from harness import (
    LineReader, LocalCluster, TestCase, command_line, listening_socket, marked_pids, parent_of,
    program, sanitized_too)

SHOW_ENVIRONMENT = ("import json, os; print(json.dumps({k: v for k, v in os.environ.items() if "
                    "k.startswith('MILLRACE_')}))")


@contextlib.contextmanager
def free_pair():
    """Two listening sockets, of a port and of that port + 10000."""
    while True:
        first = listening_socket()
        port = first.getsockname()[1] + 10000
        second = socket.socket()
        second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            second.bind(("127.0.0.1", port))
            second.listen()
            break
        except (OSError, OverflowError):
            first.close()
            second.close()
    with first, second:
        yield first, second


class TestStart(TestCase):
    @sanitized_too
    def test_prints_one_address_that_answers(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "2")
        self.assertRegex(cluster.target, r"^grpc://127\.0\.0\.1:\d+$")
        socket.create_connection(("127.0.0.1", cluster.port()), 10).close()
        names = sorted(device["name"] for device in cluster.devices())
        self.assertEqual(names, ["/job:ps/replica:0/task:0/device:CPU:0",
                                 "/job:worker/replica:0/task:0/device:CPU:0",
                                 "/job:worker/replica:0/task:1/device:CPU:0"])
        self.assertEqual(cluster.stop(), 0)
        self.assertIsNone(cluster.out.line())
        self.expect_nothing_left()

    def test_starts_quickly(self):
        """Well under 0.5 s on an idle machine; the limit leaves room for a busy one."""
        best = float("inf")
        for _ in range(3):
            start = time.monotonic()
            cluster = LocalCluster(self, "--ps", "1", "--workers", "2", "--quiet")
            best = min(best, time.monotonic() - start)
            cluster.stop()
        self.assertLess(best, 1.0)

    def test_any_jobs_and_devices(self):
        cluster = LocalCluster(self, "--job", "chief=1", "--job=evaluator=2", "--cpu-devices", "2",
                               "--quiet")
        self.assertEqual(len(cluster.devices()), 6)
        cluster.stop()

    def test_one_worker_by_default(self):
        cluster = LocalCluster(self, "--quiet")
        self.assertEqual([d["name"] for d in cluster.devices()],
                         ["/job:worker/replica:0/task:0/device:CPU:0"])
        cluster.stop()

    def test_daemons_speak_behind_their_names(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "1")
        cluster.stop()
        lines = cluster.err.to_end().splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertRegex(line, r"^(ps/0    |worker/0|master  ) \| |^tfctl: ")

    def test_quiet_says_nothing(self):
        cluster = LocalCluster(self, "--quiet")
        cluster.stop()
        self.assertEqual(cluster.err.to_end(), "")

    def test_flags_reach_the_daemons(self):
        cluster = LocalCluster(self, "--worker-flag=--memory-limit=64M",
                               "--master-flag=--log-level=error", "--log-level", "warning")
        daemons = {os.path.basename(c[0]): c for c in map(command_line, marked_pids(self.mark))
                   if "--port-file" in c}
        self.assertIn("--memory-limit=64M", daemons["tf-worker"])
        self.assertIn("--log-level=error", daemons["tf-master"])
        cluster.stop()

    def test_a_chosen_port_and_a_port_file(self):
        taken = listening_socket()
        port = taken.getsockname()[1]
        taken.close()
        path = self.path("port")
        cluster = LocalCluster(self, "--listen", f"127.0.0.1:{port}", "--port-file", path,
                               "--quiet")
        self.assertEqual(cluster.port(), port)
        with open(path) as f:
            self.assertRegex(f.read(), rf"^{port}\nadmin \d+\n$")
        cluster.stop()

    def test_other_commands_find_the_pages_of_a_chosen_port(self):
        with free_pair() as (taken, pages):
            port = taken.getsockname()[1]
            taken.close()
            pages.close()
            cluster = LocalCluster(self, "--listen", f"127.0.0.1:{port}")
            out, _ = self.expect(0, "tfctl", "status", "--target", cluster.target)
            self.assertIn("all is well", out)
            cluster.stop()

    def test_a_cluster_starts_where_the_port_of_the_pages_is_taken(self):
        with free_pair() as (taken, pages):
            port = taken.getsockname()[1]
            taken.close()
            path = self.path("port")
            cluster = LocalCluster(self, "--listen", f"127.0.0.1:{port}", "--port-file", path)
            with open(path) as f:
                admin = int(f.read().split()[-1])
            self.assertNotEqual(admin, pages.getsockname()[1])
            self.expect(0, "tfctl", "status", "--admin", f"127.0.0.1:{admin}")
            cluster.stop()

    def test_a_foreign_tf_config_does_not_matter(self):
        cluster = LocalCluster(self, "--quiet",
                               env={"TF_CONFIG": '{"cluster": {"worker": ["elsewhere:1"]}}'})
        self.assertEqual(len(cluster.devices()), 1)
        cluster.stop()


class TestCommand(TestCase):
    def local(self, *args, **options):
        return self.run_program("tfctl", "local", "--quiet", "--ps", "1", *args, **options)

    @sanitized_too
    def test_command_finds_the_cluster_in_its_environment(self):
        code, out, err = self.local("--workers", "2", "--", sys.executable, "-c", SHOW_ENVIRONMENT)
        self.assertEqual((code, err), (0, ""))
        env = json.loads(out)
        self.assertRegex(env["MILLRACE_TARGET"], r"^grpc://127\.0\.0\.1:\d+$")
        self.assertEqual(sorted(json.loads(env["MILLRACE_PIDS"])),
                         ["master", "ps/0", "worker/0", "worker/1"])
        self.assertEqual(sorted(json.loads(env["MILLRACE_ADMIN"])),
                         ["master", "ps/0", "worker/0", "worker/1"])
        self.expect_nothing_left()

    def test_pids_are_the_daemons(self):
        check = ("import json, os; pids = json.loads(os.environ['MILLRACE_PIDS'])\n"
                 "for name, pid in pids.items(): print(name, "
                 "open(f'/proc/{pid}/cmdline').read().replace('\\0', ' '))")
        code, out, _ = self.local("--", sys.executable, "-c", check)
        self.assertEqual(code, 0)
        self.assertRegex(out, r"(?m)^master \S*tf-master --cluster ps=127\.0\.0\.1:\d+ ")
        self.assertRegex(out, r"(?m)^ps/0 \S*tf-worker --job ps --task 0 ")

    def test_status_pages_answer(self):
        check = ("import json, os, urllib.request; admin = "
                 "json.loads(os.environ['MILLRACE_ADMIN'])\n"
                 "for name, address in admin.items(): print(name, "
                 "urllib.request.urlopen(f'http://{address}/readyz').status)")
        code, out, err = self.local("--", sys.executable, "-c", check, env={"no_proxy": "*"})
        self.assertEqual((code, sorted(out.splitlines())), (0, ["master 200", "ps/0 200"]), err)

    def test_daemons_without_pages_are_left_out(self):
        code, out, err = self.local("--worker-flag=--admin=off", "--", "sh", "-c",
                                    'echo "$MILLRACE_ADMIN"')
        self.assertEqual((code, list(json.loads(out))), (0, ["master"]), err)

    def test_exits_as_the_command(self):
        for script, code in (("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137),
                             ("kill -TERM $$", 143)):
            self.assertEqual(self.local("--", "sh", "-c", script)[0], code, script)
        self.expect_nothing_left()

    def test_a_command_that_cannot_run(self):
        code, _, err = self.local("--", "/nonexistent/command")
        self.assertEqual(code, 127)
        self.assertIn("/nonexistent/command: No such file or directory", err)
        path = self.path("file")
        open(path, "w").close()
        self.assertEqual(self.local("--", path)[0], 126)
        self.expect_nothing_left()

    def test_stdin_and_stdout_are_the_commands(self):
        process = self.popen([program("tfctl"), "local", "--quiet", "--", "cat"],
                             stdin=subprocess.PIPE)
        out, err = process.communicate(b"through and through\n", timeout=harness.DEADLINE_S)
        self.assertEqual((process.returncode, out, err), (0, b"through and through\n", b""))

    def test_what_the_command_leaves_behind_is_ended(self):
        script = ("sleep 1000 & setsid sleep 1000 & (setsid sh -c 'trap \"\" HUP; sleep 1000; "
                  "sleep 1000' &) ; exit 3")
        self.assertEqual(self.local("--", "sh", "-c", script, stdout=subprocess.DEVNULL)[0], 3)
        self.expect_nothing_left()

    def test_a_cluster_inside_a_cluster(self):
        code, out, err = self.local("--", program("tfctl"), "local", "--quiet", "--",
                                    program("tfctl"), "devices")
        self.assertEqual((code, len(out.splitlines())), (0, 2), err)
        self.expect_nothing_left()


class TestSignals(TestCase):
    def test_interrupt_and_terminate_stop_it(self):
        for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            cluster = LocalCluster(self, "--ps", "1", "--workers", "1", "--quiet")
            self.assertEqual(cluster.stop(signo), 0)
            self.expect_nothing_left()

    def test_nohup(self):
        process = self.popen([program("tfctl"), "local", "--quiet"],
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        target = LineReader(process.stdout).line()
        process.send_signal(signal.SIGHUP)
        self.expect(0, "tfctl", "devices", "--target", target)
        process.terminate()
        self.assertEqual(self.wait_for_exit(process), 0)
        self.expect_nothing_left()

    def test_interrupted_while_it_starts(self):
        process = self.popen([program("tfctl"), "local", "--workers", "3"])
        LineReader(process.stderr).line()  # some daemon has said something
        process.send_signal(signal.SIGINT)
        self.wait_for_exit(process)
        self.expect_nothing_left()

    def test_killed_it_leaves_nothing(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "2")
        self.assertGreaterEqual(len(marked_pids(self.mark)), 5)
        cluster.process.kill()
        self.wait_for_exit(cluster.process)
        self.expect_nothing_left()

    def start_with_family(self):
        """A command with a child, a grandchild in a session of its own, and an orphan."""
        script = "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &) ; echo ready; wait"
        process = self.popen([program("tfctl"), "local", "--quiet", "--ps", "1", "--", "sh", "-c",
                              script])
        LineReader(process.stdout).until("ready")
        return process

    def test_killed_with_a_command_it_leaves_nothing(self):
        process = self.start_with_family()
        process.kill()
        self.wait_for_exit(process)
        self.expect_nothing_left()

    def test_its_second_process_killed_leaves_nothing(self):
        process = self.start_with_family()
        behind = [pid for pid in marked_pids(self.mark) if parent_of(pid) == process.pid]
        self.assertEqual(len(behind), 1)
        os.kill(behind[0], signal.SIGKILL)
        self.assertEqual(self.wait_for_exit(process), 70)
        for pid in marked_pids(self.mark):
            self.fail(f"left behind: {pid} {command_line(pid)}")

    def test_terminate_ends_the_command_too(self):
        process = self.start_with_family()
        process.terminate()
        self.assertEqual(self.wait_for_exit(process), 143)
        self.expect_nothing_left()

    def test_interrupt_is_the_commands(self):
        script = "trap 'echo again' INT; echo ready; while read line; do echo $line; done; exit 9"
        process = self.popen([program("tfctl"), "local", "--quiet", "--", "sh", "-c", script],
                             stdin=subprocess.PIPE)
        out = LineReader(process.stdout)
        out.until("ready")
        process.send_signal(signal.SIGINT)
        process.stdin.write(b"line\n")  # dash runs the trap when read returns
        process.stdin.flush()
        out.until("again")
        process.stdin.close()
        process.stdin = None
        self.assertEqual(self.wait_for_exit(process), 9)
        self.expect_nothing_left()

    def test_ctrl_c_reaches_the_command_once(self):
        script = ("import signal, sys\nn = 0\ndef count(*_):\n    global n\n    n += 1\n    "
                  "print('interrupt', n, flush=True)\n"
                  "signal.signal(signal.SIGINT, count)\nprint('ready', flush=True)\nfor line in "
                  "sys.stdin: break\nsys.exit(10 + n)")
        controller, terminal = pty.openpty()
        process = self.popen([program("tfctl"), "local", "--quiet", "--", sys.executable, "-c",
                              script], stdin=terminal, stdout=terminal,
                             stderr=terminal, preexec_fn=lambda: (os.setsid(),
                                     fcntl.ioctl(0, termios.TIOCSCTTY, 0)))
        os.close(terminal)
        out = LineReader(os.fdopen(controller, "rb+", buffering=0))
        out.until("ready")
        os.write(out.fd, b"\x03")
        out.until("interrupt 1")
        os.write(out.fd, b"go on\n")
        self.assertEqual(self.wait_for_exit(process), 11)
        out.file.close()
        self.expect_nothing_left()

    def test_a_reader_that_is_gone_does_not_matter(self):
        cluster = LocalCluster(self, "--log-level", "debug")
        cluster.process.stderr.close()
        self.assertEqual(len(cluster.devices()), 1)
        self.assertEqual(cluster.stop(), 0)
        self.expect_nothing_left()


DENSE_PULL = """
import json, os, sys, time, urllib.request
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
N = 100 << 18  # floats: 100 MB
with tf1.device("/job:ps/task:0"):
    v = tf1.get_variable("v", initializer=tf1.zeros([N]))
    bump = v.assign_add(tf1.ones([N])).op
with tf1.device("/job:worker/task:0"):
    pulled = tf1.reduce_sum(tf1.reshape(v.read_value(), [1024, -1]), 1)
session = tf1.Session(os.environ["MILLRACE_TARGET"])
session.run(v.initializer)
for i in range(4):
    assert session.run(pulled).tolist() == [i * N / 1024] * 1024, i
    session.run(bump)
with open(sys.argv[1], "w") as f:
    f.write("done")
sys.stdin.readline()
os._exit(0)
"""


# Large values from the ps into ops that would write over an input that is theirs alone, and into
# what outlives the step.
IN_PLACE = """
import os, sys
import numpy as np
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
N = 256
x0 = np.arange(N * N, dtype=np.float32).reshape(N, N) / N
with tf1.device("/job:ps/task:0"):
    made = [tf.constant(x0) + float(i) for i in range(1, 9)]
    on_ps = tf1.get_variable("on_ps", initializer=tf1.zeros([N, N]), use_resource=True)
    old_style = tf1.get_variable("old_style", initializer=tf1.zeros([N, N]), use_resource=False)
with tf1.device("/job:worker/task:0"):
    kept = tf1.get_variable("kept", initializer=tf1.zeros([N, N]), use_resource=True)
    fetches = {
        "unary": (tf.exp(-made[0]), np.exp(-(x0 + 1))),
        "binary": (made[1] * 2 - 1, (x0 + 2) * 2 - 1),
        "add_n": (tf.add_n([made[2], tf.ones([N, N])]), x0 + 4),
        "reshaped": (tf.reshape(made[3], [-1])[5:] + 1, (x0 + 4).reshape(-1)[5:] + 1),
        "select": (tf.where(made[4] > 100, made[4], -made[4]),
                   np.where(x0 + 5 > 100, x0 + 5, -(x0 + 5))),
        "scatter": (tf.tensor_scatter_nd_add(made[5], [[0]], [[1.0] * N])[0], x0[0] + 7),
        "passed on": (made[6], x0 + 7),
    }
    keep = kept.assign(made[7])
    grow = kept.assign_add(tf.ones([N, N]))
    update = kept.scatter_sub(tf.IndexedSlices(tf.ones([1, N]), tf.constant([0])))
    back = kept + 0.0
with tf1.device("/job:ps/task:0"):
    return_it = [on_ps.assign(back), old_style.assign(back)]
    bump = [on_ps.assign_add(tf.ones([N, N])), old_style.assign_add(tf.ones([N, N]))]
session = tf1.Session(os.environ["MILLRACE_TARGET"], config=tf1.ConfigProto(
    graph_options=tf1.GraphOptions(optimizer_options=tf1.OptimizerOptions(opt_level=-1))))
session.run(tf1.global_variables_initializer())
for _ in range(5):
    got = session.run({name: pair[0] for name, pair in fetches.items()})
    for name, pair in fetches.items():
        np.testing.assert_allclose(got[name], pair[1], rtol=1e-5, atol=2e-38, err_msg=name)
    session.run(keep)
    session.run(grow)
    session.run(update)
    expected = x0 + 9
    expected[0] -= 1
    np.testing.assert_allclose(session.run(kept), expected)
    session.run(return_it)
    session.run(bump)
    for v in (on_ps, old_style):
        np.testing.assert_allclose(session.run(v), expected + 1)
    np.testing.assert_allclose(session.run(kept), expected)
with open(sys.argv[1], "w") as f:
    f.write("done")
sys.stdin.readline()
os._exit(0)
"""


class TestSharedMemory(TestCase):
    def peer_page(self, job):
        """The other task, as the daemon's status page has it."""
        pid = next(pid for pid in marked_pids(self.mark) if command_line(pid)[1:3]
                   == ["--job", job])
        words = command_line(pid)
        path = words[words.index("--port-file") + 1]
        with open(path) as f:
            port = int(f.read().split()[2])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/statusz", timeout=10) as page:
            return json.load(page)["peers"][0]

    def run_and_look(self, script, *flags):
        """Runs the script to where it has written its file; the pages of ps and worker about each
        other then."""
        done = self.path("done")
        process = self.popen([program("tfctl"), "local", "--ps", "1", "--workers", "1", "--quiet",
                              *flags, "--", sys.executable, "-c",
                              script, done], {"TF_CPP_MIN_LOG_LEVEL": "3"}, stdin=subprocess.PIPE)
        deadline = time.monotonic() + harness.DEADLINE_S
        while not os.path.exists(done) or not open(done).read():
            if process.poll() is not None:
                self.fail(process.stderr.read().decode(errors="replace"))
            self.assertLess(time.monotonic(), deadline)
            select.select([], [], [], 0.05)
        pages = self.peer_page("ps"), self.peer_page("worker")
        process.stdin.write(b"\n")
        process.stdin.flush()
        self.assertEqual(self.wait_for_exit(process), 0)
        return pages

    def test_a_dense_pull_moves_no_bytes(self):
        ps, worker = self.run_and_look(DENSE_PULL)
        self.assertEqual((ps["transport"], worker["transport"]), ("shm", "shm"))
        # the first one may go before the arena is mapped
        self.assertGreaterEqual(ps["shm"]["given"], 3)
        self.assertEqual(ps["shm"]["given_bytes"], ps["shm"]["given"] * (100 << 20))
        self.assertEqual(worker["shm"]["mapped_bytes"], ps["shm"]["given_bytes"])
        self.assertEqual(worker["shm"]["holding"], 0)
        self.expect_nothing_left()

    def test_nothing_is_written_over_what_came_by_reference(self):
        ps, worker = self.run_and_look(IN_PLACE)
        self.assertGreaterEqual(ps["shm"]["given"], 4 * 8)
        self.assertGreaterEqual(worker["shm"]["given"], 4)
        self.assertEqual(worker["shm"]["holding"] + ps["shm"]["holding"], 0)

    def test_switched_off_the_page_says_so(self):
        ps, worker = self.run_and_look(DENSE_PULL, "--worker-flag=--shm=off")
        self.assertEqual(ps["transport"], "unix")
        self.assertTrue("shm: switched off" in ps["why"] + worker["why"])
        self.assertNotIn("given", ps["shm"])


class TestDeaths(TestCase):
    def daemon(self, job):
        return next(pid for pid in marked_pids(self.mark) if command_line(pid)[1:3]
                    == ["--job", job])

    def test_a_dead_daemon_stops_the_cluster(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "1", "--quiet")
        pid = self.daemon("ps")
        os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.wait_for_exit(cluster.process), 70)
        self.assertIn(f"tfctl: ps/0 (pid {pid}) was killed by signal 9 (Killed); stopping the "
                      "cluster", cluster.err.to_end())
        self.expect_nothing_left()

    def test_keep_going(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "1", "--keep-going", "--quiet")
        os.kill(self.daemon("ps"), signal.SIGKILL)
        cluster.err.until("going on without it")
        self.assertEqual(cluster.stop(), 0)
        self.expect_nothing_left()

    def test_with_a_command_a_death_is_reported_only(self):
        script = ("import json, os, sys; os.kill(json.loads(os.environ['MILLRACE_PIDS'])['ps/0'], "
                  "9); sys.stdin.read(); sys.exit(4)")
        process = self.popen([program("tfctl"), "local", "--quiet", "--ps", "1", "--workers", "1",
                              "--", sys.executable, "-c", script],
                             stdin=subprocess.PIPE)
        LineReader(process.stderr).until("ps/0")
        process.stdin.close()
        process.stdin = None
        self.assertEqual(self.wait_for_exit(process), 4)
        self.expect_nothing_left()

    def test_restart(self):
        cluster = LocalCluster(self, "--ps", "1", "--workers", "1", "--restart", "--quiet")
        self.assertEqual(len(cluster.devices()), 2)
        for _ in range(3):
            old = self.daemon("ps")
            os.kill(old, signal.SIGKILL)
            back = cluster.err.until("ps/0 is back")
            new = int(re.search(r"pid (\d+)", back).group(1))
            self.assertNotEqual(new, old)
            self.assertEqual(command_line(new)[command_line(new).index("--listen") + 1],
                             self.listen_of(new))
        self.assertEqual(cluster.stop(), 0)
        self.expect_nothing_left()

    def listen_of(self, pid):
        """The address that the master was told for ps/0."""
        master = next(command_line(p) for p in marked_pids(self.mark)
                      if os.path.basename(command_line(p)[0]) == "tf-master")
        return re.search(r"ps=([^,]*)", master[master.index("--cluster") + 1]).group(1)

    def test_restart_of_the_master(self):
        cluster = LocalCluster(self, "--workers", "1", "--restart", "--quiet")
        os.kill(next(p for p in marked_pids(self.mark) if os.path.basename(command_line(p)[0])
                     == "tf-master"), signal.SIGKILL)
        cluster.err.until("master is back")
        self.assertEqual(len(cluster.devices()), 1)
        self.assertEqual(cluster.stop(), 0)

    def start_with_failing_worker(self, condition):
        """A cluster with --restart whose tf-worker ends with status 74 while the shell's condition
        on the file $0.fail holds."""
        programs = self.path("bin")
        os.mkdir(programs)
        for name in ("tfctl", "tf-master"):
            shutil.copy(program(name), programs)
        worker = os.path.join(programs, "tf-worker")
        with open(worker, "w") as f:
            f.write(f'#!/bin/sh\nif {condition}; then exit 74; fi\nexec {program("tf-worker")} '
                    '"$@"\n')
        os.chmod(worker, 0o755)
        process = self.popen([os.path.join(programs, "tfctl"), "local", "--ps", "1", "--workers",
                              "1", "--restart", "--quiet"])
        LineReader(process.stdout).line()
        with open(worker + ".fail", "w") as f:
            f.write("x\nx\n")
        os.kill(self.daemon("ps"), signal.SIGKILL)
        return process, LineReader(process.stderr)

    def test_restart_tries_again(self):
        """Two tries fail; the third finds the file empty."""
        process, err = self.start_with_failing_worker('[ -s "$0.fail" ] && sed -i 1d "$0.fail"')
        err.until("exited with status 74; restarting it")
        err.until("exited with status 74; restarting it")
        err.until("ps/0 is back")
        process.terminate()
        self.assertEqual(self.wait_for_exit(process), 0)
        self.expect_nothing_left()

    def test_restart_gives_up(self):
        process, err = self.start_with_failing_worker('[ -e "$0.fail" ]')
        err.until("exited with status 74; stopping the cluster")
        self.assertEqual(self.wait_for_exit(process), 74)
        self.expect_nothing_left()

    def test_a_daemon_that_cannot_start(self):
        _, err = self.expect(70, "tfctl", "local", "--workers", "1", "--worker-flag=--no-such-flag")
        self.assertIn("no-such-flag", err)
        self.assertIn("exited with status 64; stopping the cluster", err)
        _, err = self.expect(70, "tfctl", "local", "--quiet", "--worker-flag=--no-such-flag")
        self.assertIn("no-such-flag", err)
        self.expect_nothing_left()

    def test_a_cluster_that_does_not_get_ready(self):
        stuck = self.path("bin")
        os.mkdir(stuck)
        shutil.copy(program("tfctl"), stuck)
        shutil.copy(program("tf-worker"), stuck)
        with open(os.path.join(stuck, "tf-master"), "w") as f:
            f.write("#!/bin/sh\nexec sleep 1000\n")
        os.chmod(os.path.join(stuck, "tf-master"), 0o755)
        _, err = self.expect(70, os.path.join(stuck, "tfctl"), "local", "--start-timeout", "500ms")
        self.assertIn("did not start within 500 ms; still missing: master", err)
        self.expect_nothing_left()


class TestUsage(TestCase):
    def test_help_and_version(self):
        out, err = self.expect(0, "tfctl", "--help")
        self.assertEqual(err, "")
        for name in ("local", "devices", "run"):
            self.assertIn(f"  {name} ", out)
            self.assertIn(f"Usage: tfctl {name} ", self.expect(0, "tfctl", name, "--help")[0])
        self.assertRegex(self.expect(0, "tfctl", "--version")[0], r"^tfctl .*\d+\.\d+\.\d+\n$")

    def test_bad_command_lines(self):
        for args in ([], ["nothing"], ["--nothing"], ["local", "--nothing"], ["local", "--ps"],
                     ["local", "--ps", "x"], ["local", "--ps=-1"],
                     ["local", "--job", "a"], ["local", "--job", "a=0"], ["local", "--job", "1a=1"],
                     ["local", "--ps", "1", "--job", "ps=1"],
                     ["local", "--workers", "1001"], ["local", "stray"], ["local", "--"],
                     ["devices"], ["devices", "stray"],
                     ["run", "--target", "grpc://127.0.0.1:1"], ["run", "graph.pb"],
                     ["run", "a.pb", "b.pb", "--target", "grpc://127.0.0.1:1"]):
            _, err = self.expect(64, "tfctl", *args)
            self.assertRegex(err, r"^tfctl.*: .*\(see --help\)\n$")

    def test_binaries_are_missing(self):
        alone = self.path("alone")
        os.mkdir(alone)
        shutil.copy(program("tfctl"), alone)
        _, err = self.expect(74, os.path.join(alone, "tfctl"), "local",
                             env={"PATH": "/nonexistent"})
        self.assertIn("tf-worker: No such file or directory "
                      "(neither in the directory of tfctl nor in PATH)",
                      err)
        self.expect_nothing_left()

    def test_binaries_along_the_path(self):
        alone = self.path("alone")
        os.mkdir(alone)
        shutil.copy(program("tfctl"), alone)
        self.expect(0, os.path.join(alone, "tfctl"), "local", "--quiet", "--", "true",
                    env={"PATH": f"{harness.BIN}:{os.environ['PATH']}"})

    def test_the_port_is_taken(self):
        with listening_socket() as taken:
            port = taken.getsockname()[1]
            _, err = self.expect(74, "tfctl", "local", "--listen", f"127.0.0.1:{port}")
            self.assertIn(str(port), err)
        self.expect_nothing_left()

    def test_a_port_file_that_cannot_be_written(self):
        _, err = self.expect(74, "tfctl", "local", "--quiet", "--port-file", "/nonexistent/port")
        self.assertIn("/nonexistent/port", err)
        self.expect_nothing_left()


class TestNoWorkers(TestCase):
    def test_a_cluster_has_a_task(self):
        _, err = self.expect(64, "tfctl", "local", "--workers", "0")
        self.assertIn("at least one task", err)

    def test_other_jobs(self):
        out, _ = self.expect(0, "tfctl", "local", "--ps", "1", "--workers", "0", "--",
                             program("tfctl"), "devices")
        self.assertIn("/job:ps/", out)
        self.assertNotIn("/job:worker/", out)
