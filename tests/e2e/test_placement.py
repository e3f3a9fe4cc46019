"""Placement of what the client left open: the simple rule, variables spread over servers, and the
cost model. Receives that start when their values are needed."""
import json
import os
import re

import raw_clients as rc
from harness import ROOT, WARM_PYTHON, LineReader, TestCase, program

PROGRAM = os.path.join(ROOT, "tests", "e2e", "placement_program.py")
SIZES_PROGRAM = os.path.join(ROOT, "tests", "e2e", "sizes_program.py")
SPREAD_PROGRAM = os.path.join(ROOT, "tests", "e2e", "spread_program.py")
REPLACEMENT_PROGRAM = os.path.join(ROOT, "tests", "e2e", "replacement_program.py")
AWAY_PROGRAM = os.path.join(ROOT, "tests", "e2e", "away_program.py")
RECEIVES_PROGRAM = os.path.join(ROOT, "tests", "e2e", "receives_program.py")
FIRST, SECOND = "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"


class TestPlacement(TestCase):
    def setUp(self):
        super().setUp()
        self.workers = {}  # by index, those of start_worker

    def run_local(self, program, *flags):
        code, out, err = self.run_program("tfctl", "local", *flags, "--", "sh", "-c",
                                          f'exec "{WARM_PYTHON}" "{program}" "$MILLRACE_TARGET"',
                                          timeout_s=400)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(out.splitlines()[-1]), err

    def run_on_cluster(self, *flags):
        result = self.run_local(PROGRAM, "--workers", "2", "--quiet", *flags)[0]
        self.assertEqual(result["right values"], [True] * 5)
        self.assertEqual(result["state"], 1)
        return result["tasks"]

    def test_the_simple_rule_uses_the_default_task(self):
        self.assertEqual(set(self.run_on_cluster().values()), {FIRST})

    def test_by_cost_independent_products_use_both_tasks(self):
        tasks = self.run_on_cluster("--master-flag", "--placement", "--master-flag", "cost")
        self.assertEqual(tasks["asked"], FIRST)
        self.assertIn(SECOND, tasks.values())

    def start_worker(self, index, *flags):
        """A worker and a reader of its log; returns its address and its admin port."""
        file = self.path(f"ports-{index}")
        worker = self.popen([program("tf-worker"), "--task", index, "--listen", "127.0.0.1:0",
                             "--admin", "127.0.0.1:0", "--port-file", file, *flags])
        self.workers[index] = worker
        LineReader(worker.stderr).until("serving")
        with open(file) as f:
            port, admin = (int(word) for word in f.read().replace("admin", "").split())
        return f"127.0.0.1:{port}", admin

    def test_by_cost_work_leaves_a_slow_task(self):
        slow, admin = self.start_worker(0, "--device-scale", "20")
        fast, _ = self.start_worker(1)
        ports = self.path("master-ports")
        master = self.popen([program("tf-master"), "--cluster", f"worker={slow};{fast}",
                             "--listen", "127.0.0.1:0", "--admin", "off", "--port-file", ports,
                             "--placement", "cost"])
        log = LineReader(master.stderr)
        for _ in range(2):
            log.until("is ready over")
        with open(ports) as f:
            target = f"grpc://127.0.0.1:{int(f.readline())}"
        code, out, err = self.run_program(WARM_PYTHON, PROGRAM, target, timeout_s=400)
        self.assertEqual(code, 0, err)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual(result["right values"], [True] * 5)
        self.assertEqual(result["tasks"], {"asked": FIRST, "left": SECOND, "right": SECOND,
                                           "while/loop_cond": SECOND})
        device = json.loads(rc.page(admin, "/statusz")[1])["devices"][0]
        self.assertEqual(device["scale"], 20)
        self.assertGreater(device["rates"]["flops_per_second"], 0)

    def start_master(self, address, *flags):
        """A master by cost; returns its process, the client's target and the admin port."""
        ports = self.path("master-ports")
        master = self.popen([program("tf-master"), "--cluster", f"worker={address}",
                             "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                             "--port-file", ports, *flags])
        LineReader(master.stderr).until("is ready over")
        with open(ports) as f:
            port, admin = (int(word) for word in f.read().replace("admin", "").split())
        return master, f"grpc://127.0.0.1:{port}", admin

    def products(self, admin):
        out, _ = self.expect(0, "tfctl", "costs", "--admin", f"127.0.0.1:{admin}")
        self.assertEqual(json.loads(rc.page(admin, "/costz")[1]), json.loads(out))
        return [row for row in json.loads(out)
                if row.get("key", "").startswith("MatMul float 1024x1024,1024x1024 CPU ")]

    def test_measured_costs_outlive_the_master(self):
        address, _ = self.start_worker(0)
        file = self.path("costs")
        master, target, admin = self.start_master(address, "--cost-file", file)
        self.assertEqual(self.products(admin), [])
        code, _, err = self.run_program(WARM_PYTHON, PROGRAM, target, "--until-measured",
                                        f"http://127.0.0.1:{admin}/costz", timeout_s=400)
        self.assertEqual(code, 0, err)
        before = self.products(admin)
        self.assertGreater(before[0]["ns"], 100000)
        master.terminate()
        self.assertEqual(self.wait_for_exit(master), 0)
        master, _, admin = self.start_master(address, "--cost-file", file)
        self.assertEqual(sorted(row["key"] for row in self.products(admin)),
                         sorted(row["key"] for row in before))
        master.terminate()
        self.assertEqual(self.wait_for_exit(master), 0)
        with open(file, "a") as f:
            f.write("many ns")
        code, _, err = self.run_program("tf-master", "--cluster", f"worker={address}",
                                        "--cost-file", file)
        self.assertEqual(code, 78)
        self.assertRegex(err, "cost file .*/costs: line [0-9]+ is cut off")

    def run_until(self, target, admin, text):
        """Runs steps with batches of 300 until the page of costs has the text."""
        code, _, err = self.run_program(WARM_PYTHON, SIZES_PROGRAM, target,
                                        f"http://127.0.0.1:{admin}/costz", text, timeout_s=400)
        self.assertEqual(code, 0, err)

    def test_measured_sizes_replace_guesses(self):
        address, _ = self.start_worker(0)
        file = self.path("costs")
        master, target, admin = self.start_master(address, "--cost-file", file)
        self.run_until(target, admin, "MatMul float ?x512,512x64 CPU ")
        rows = json.loads(rc.page(admin, "/costz")[1])
        sizes = {row["key"].split(" ")[2]: row["size"] for row in rows if "size" in row}
        self.assertEqual(sizes, {"_feed_x_0": 300, "kept": 200})
        out, _ = self.expect(0, "tfctl", "costs", "--admin", f"127.0.0.1:{admin}", "--output",
                             "text")
        self.assertRegex(out, "300 in [0-9]+ executions: size of _feed_x_0 _MrFeed [?]x512 ")
        master.terminate()
        self.assertEqual(self.wait_for_exit(master), 0)
        master, target, admin = self.start_master(address, "--cost-file", file)
        self.run_until(target, admin, "MatMul float 512x512,512x64 CPU ")

    def test_a_cost_file_that_cannot_be_used_ends_the_master(self):
        pipe, there = self.path("pipe"), self.path("new-costs")
        os.mkfifo(pipe)
        for path, complaint in ((self.path("no/such/directory/costs"), "cannot write cost file .*: "
                                 "No such file or directory"),
                                ("", "cannot write cost file : No such file or directory"),
                                (self.path("."), "cannot read cost file .*: Is a directory"),
                                (pipe, "cost file .*/pipe: its first line is not")):
            code, _, err = self.run_program("tf-master", "--cluster", "worker=127.0.0.1:1",
                                            "--listen", "127.0.0.1:0", "--admin", "off",
                                            "--cost-file", path)
            self.assertEqual(code, 78, err)
            self.assertRegex(err, complaint)
        address, _ = self.start_worker(0)
        master, _, _ = self.start_master(address, "--cost-file", there)
        with open(there) as f:
            self.assertEqual(f.read(), "millrace costs 1\n")
        self.assertEqual(os.listdir(os.path.dirname(there)).count("new-costs"), 1)
        master.terminate()
        self.assertEqual(self.wait_for_exit(master), 0)

    def run_replacement(self, case, scale, *flags, kills=False):
        """Runs REPLACEMENT_PROGRAM by cost; returns its result and the master's log."""
        slow, _ = self.start_worker(0, "--device-scale", scale)
        fast, _ = self.start_worker(1)
        ports = self.path("master-ports")
        master = self.popen([program("tf-master"), "--cluster", f"worker={slow};{fast}",
                             "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
                             "--port-file", ports, "--placement", "cost",
                             *[flag for flag in flags if flag.startswith("--replace")]])
        log = LineReader(master.stderr)
        for _ in range(2):
            log.until("is ready over")
        with open(ports) as f:
            port, admin = f.read().replace("admin", "").split()
        code, out, err = self.run_program(
            WARM_PYTHON, REPLACEMENT_PROGRAM, f"grpc://127.0.0.1:{port}", admin, case,
            *[flag for flag in flags if not flag.startswith("--replace")],
            *(["--kill", str(self.workers[1].pid)] if kills else []), timeout_s=400)
        self.assertEqual(code, 0, err)
        return json.loads(out.splitlines()[-1]), log

    def replace(self, case, scale, *flags):
        """As run_replacement, and checks what holds of every case."""
        result, log = self.run_replacement(case, scale, *flags)
        self.assertEqual(set(result["before"].values()), {FIRST}, result)
        self.assertEqual(result["after"]["asked"], FIRST)
        self.assertEqual(result["n_sums"], 1)
        self.assertTrue(result["counts agree"])
        return result, log

    def test_measured_costs_move_work_to_the_fast_task(self):
        result, log = self.replace("chain", "4")
        self.assertEqual(result["results"], {"taken": 1, "dropped": 0, "alike": 0, "failed": 0},
                         result)
        self.assertEqual({result["after"][f"node{i}"] for i in range(3)}, {SECOND})
        self.assertRegex(result["why"][0], "^placed again by measured costs: the median of 9 steps "
                         "is [0-9.]+ ms, as placed before [0-9.]+ ms$")
        log.until("placed again by measured costs: the median of 9 steps is")
        self.check_graph_after_replacement(result)

    def check_graph_after_replacement(self, result):
        """/graphz shows what runs now, also under the number that the signature had before."""
        now, old = (result["graphs"][name] for name in ("now", "old link"))
        self.assertGreater(now["signature"], 1)
        self.assertEqual(old["signature"], now["signature"])
        self.assertEqual(now["placement"], result["why"][0])
        nodes = {n["node"]: n for n in now["nodes"] if n["op"] == "MatMul"}
        for name, task in result["after"].items():
            self.assertEqual(nodes[name]["device"].split("/device:")[0], task)
            self.assertGreater(nodes[name]["took_us"], 0)
        for i in range(3):
            self.assertRegex(nodes[f"node{i}"]["why_here"],
                             "^the simulated step takes [0-9.]+ ms, and [0-9.]+ ms with this node "
                             f"on {FIRST}/device:CPU:0$")

    def test_the_placement_with_the_shorter_steps_is_kept(self):
        """Each half needs a batch of 16 MB whose size no shape tells, so moving one seldom pays.
        What is tested is that the decision follows the times."""
        result, log = self.replace("halves", "1")
        if result["results"]["alike"]:
            self.skipTest("the simulation found no gain in moving one half")
        log.until("the median of 9 steps is")
        found = re.match("placed (again|back).* 9 steps is ([0-9.]+) ms.* ([0-9.]+) ms$",
                         result["why"][0])
        kept_ms, other_ms = float(found[2]), float(found[3])
        is_moved = SECOND in result["after"].values()
        self.assertEqual(is_moved, found[1] == "again")
        self.assertEqual(is_moved, result["results"]["taken"] == 1)
        self.assertEqual(not is_moved, result["results"]["dropped"] == 1)
        self.assertLess(0.96 * kept_ms, other_ms)

    def test_a_placement_by_cost_races_with_the_simple_rule(self):
        """Products of which two run side by side where there are cores for both. The decision
        follows the times."""
        result, log = self.run_replacement("wide", "1")
        self.assertIn(SECOND, result["before"].values())
        self.assertEqual(result["n_sums"], 1)
        self.assertTrue(result["counts agree"])
        log.until("the median of 9 steps is")
        found = re.match("placed by (cost|the simple rule): the median of 9 steps is ([0-9.]+) ms, "
                         "(by the simple rule|as placed by cost) ([0-9.]+) ms$", result["why"][0])
        is_simple = found[1] == "the simple rule"
        self.assertEqual(is_simple, found[3] == "as placed by cost")
        self.assertEqual(is_simple, result["results"]["taken"] == 1)
        self.assertEqual(not is_simple, result["results"]["dropped"] == 1)
        self.assertLess(0.96 * float(found[2]), float(found[4]))
        self.assertEqual(result["after"], dict.fromkeys(result["before"], FIRST) if is_simple
                         else result["before"])
        now, old = (result["graphs"][name] for name in ("now", "old link"))
        self.assertEqual((now["placement"], now["signature"]),
                         (result["why"][0], old["signature"]))
        for row in now["nodes"]:
            if row["node"] in result["after"]:
                self.assertEqual(row["device"].split("/device:")[0], result["after"][row["node"]])
                if is_simple and row["node"] != "asked":
                    self.assertEqual(row["why_here"], "by the simple rule, by which measured steps "
                                     "were shorter than by cost")

    def test_a_lost_task_ends_the_race(self):
        """Only the placement by measured costs needs the second task."""
        result, log = self.run_replacement("chain", "4", kills=True)
        self.assertLessEqual(result["failed"], 1, result)
        self.assertGreaterEqual(result["results"]["failed"], 1, result)
        log.until("placed back as before: with the placement by measured costs, steps fail: Task "
                  f"{SECOND} at")

    def test_nothing_moves_to_a_lost_task(self):
        first, _ = self.start_worker(0)
        second, _ = self.start_worker(1)
        _, target, _ = self.start_master(f"{first};{second}", "--placement", "cost")
        code, out, err = self.run_program(WARM_PYTHON, AWAY_PROGRAM, target,
                                          str(self.workers[1].pid), timeout_s=400)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out.splitlines()[-1]), [FIRST])

    def test_work_stays_where_placing_again_is_switched_off(self):
        result, _ = self.replace("chain", "4", "--replace=off", "--until-measured")
        self.assertEqual(set(result["results"].values()), {0})
        self.assertEqual(result["after"], result["before"])
        self.assertEqual(result["why"], [])

    def test_late_receives_need_less_memory(self):
        sockets = ("--unix", "off", "--shm", "off")
        server, _ = self.start_worker(0, "--job", "ps", *sockets)
        worker, admin = self.start_worker(1, "--task", "0", *sockets)
        _, target, _ = self.start_master(f"{worker},ps={server}")
        code, out, err = self.run_program(WARM_PYTHON, RECEIVES_PROGRAM, target,
                                          f"http://127.0.0.1:{admin}/statusz", timeout_s=400)
        self.assertEqual(code, 0, err)
        result = json.loads(out.splitlines()[-1])
        self.assertEqual(len(set(result["totals"])), 1)
        self.assertLess(2 * (result["late"] - result["before"]),
                        result["at once"] - result["before"], result)

    def test_a_session_spreads_its_variables(self):
        result, log = self.run_local(SPREAD_PROGRAM, "--workers", "1", "--ps", "2")
        self.assertTrue(result["losses agree"] and result["losses fall"], result)
        self.assertEqual(set(result["simple"].values()), {FIRST})
        self.assertEqual(result["spread"], {"wide": "/job:ps/replica:0/task:0",
                                            "narrow": "/job:ps/replica:0/task:1"})
        self.assertIn("net/narrow: (VariableV2): /job:ps/replica:0/task:1/device:CPU:0: "
                      "its state is there", log)
        self.assertIn("'elsewhere'", result["unknown placement"])
        self.assertIn("'colour'", result["unknown wish"])
